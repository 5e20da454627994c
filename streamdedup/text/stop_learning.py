"""Learns stop shingles (`stop_shingles`) from a sample of documents; called by `cli.stop_shingles` and `tuning.meter`.

Stop shingles occur in at least a given share of the documents of the sample, or of one source in it: a publisher's
notice is rare overall and frequent in one source. Documents are therefore counted by *group*: group 0 has all, each
further group those of a source.

Not for `unit = "char"`: short runs that many texts share belong to the language, not to boilerplate.
"""

import hashlib
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from streamdedup.text.runs import Int64s, UInt32s, UInt64s
from streamdedup.text.shingles import ShingleOptions, Shingler
from streamdedup.text.stop_shingles import StopShingles, described_options, least_documents

#: Largest number of counts, one for each shingle in each group: 370 MB at most (measured).
MOST_COUNTED = 4_000_000
#: Share of the documents; measurements are in `docs/text.md`.
DEFAULT_SHARE = 0.05
#: Least documents of a source that has stop shingles of its own.
LEAST_SOURCE_DOCUMENTS = 100
#: Documents that are counted at once.
_BATCH_DOCUMENTS = 2_000
#: Makes the digests of a document differ between the groups, which share one set. Odd: no two products are equal.
_GROUP_FACTOR = 0x9E3779B97F4A7C15


class GroupStops(NamedTuple):
    """The stop shingles of a source, or of all documents (`source` None); `counts`: documents by shingle hash."""

    source: str | None
    documents_count: int
    counts: dict[int, int]


class Learnt(NamedTuple):
    """Stop shingles learnt from a sample.

    Attributes:
        stops: Those of all groups.
        groups: All documents, then the sources with at least `least_source_documents`, by name.
        small_sources: Number of sources with fewer documents.
        least_source_documents: The argument, or more if shingles were forgotten.
    """

    stops: StopShingles
    groups: tuple[GroupStops, ...]
    small_sources: int
    least_source_documents: int


def learn_stop_shingles(
    texts: Iterable[tuple[str, str | None]],
    options: ShingleOptions,
    share: float,
    *,
    least_source_documents: int = LEAST_SOURCE_DOCUMENTS,
) -> Learnt:
    """Find the shingles that occur in at least a share of the documents of a sample, or of one source in it.

    `texts` are the documents, each a text and its source. Documents with the same shingles count once in each group, so
    that a text with many copies is no boilerplate. No stop shingle is missed: the counts are exact up to
    `MOST_COUNTED`; beyond it `DocumentCounter` forgets the rarest shingles. A source is then skipped if it is so small
    that its stop shingles may be among the forgotten ones.

    Of the options, `bag` and `stop_shingles` are ignored. Raises ValueError for a share outside (0, 1], and for one so
    small that a stop shingle of the whole sample may have been forgotten.
    """
    if not 0 < share <= 1:
        raise ValueError(f"the share must be above 0 and at most 1, not {share}")
    plain = replace(options, bag=False, stop_shingles=frozenset())
    shingler, sample = Shingler(plain), _Sample(DocumentCounter(MOST_COUNTED))
    unread = iter(texts)
    while batch := list(itertools.islice(unread, _BATCH_DOCUMENTS)):
        shingles = shingler.shingle([text for text, _ in batch])
        sample.add(shingles.hashes, shingles.offsets, [source or None for _, source in batch])
    documents_count = sample.documents_by_group[0]
    least = least_documents(share, documents_count)
    if sample.counter.forgotten_bound >= least:
        raise ValueError(
            f"too many different shingles to count those of only {least} documents; take a greater share or a smaller "
            "sample"
        )
    # In a source of this size a stop shingle has more documents than any forgotten one; `least_documents` rounds.
    while least_documents(share, least_source_documents) <= sample.counter.forgotten_bound:
        least_source_documents = 1 + max(least_source_documents, int(sample.counter.forgotten_bound / share))
    groups = tuple(sample.stops_by_group(share, least_source_documents))
    counts: dict[int, int] = {}
    for group in groups:
        # Of a shingle in several groups the greatest count.
        counts |= {shingle: max(count, counts.get(shingle, 0)) for shingle, count in group.counts.items()}
    stops = StopShingles(counts, documents_count, share, described_options(plain))
    small_sources = len(sample.documents_by_group) - len(groups)  # both count all documents as a group
    return Learnt(stops, groups, small_sources, least_source_documents)


@dataclass
class _Sample:
    """The documents of a sample, counted by group.

    Attributes:
        groups_by_source: From 1 on.
        documents_by_group: Number of different documents.
        seen: A 64-bit digest for each different document in each of its groups; some 150 bytes a document.
    """

    counter: "DocumentCounter"
    groups_by_source: dict[str, int] = field(default_factory=dict)
    documents_by_group: list[int] = field(default_factory=lambda: [0])
    seen: set[int] = field(default_factory=set)

    def add(self, hashes: UInt32s, offsets: Int64s, sources: Sequence[str | None]) -> None:
        keys_by_document: list[UInt64s] = []
        for first, last, source in zip(offsets[:-1].tolist(), offsets[1:].tolist(), sources, strict=True):
            if first == last:
                continue  # a document without shingles does not count
            digest = hashlib.blake2b(hashes[first:last].tobytes(), digest_size=8).digest()
            for group in (0,) if source is None else (0, self._group_of(source)):
                group_digest = int.from_bytes(digest) ^ (group * _GROUP_FACTOR % 2**64)
                if group_digest not in self.seen:
                    self.seen.add(group_digest)
                    self.documents_by_group[group] += 1
                    keys_by_document.append(hashes[first:last] | np.uint64(group << 32))
        self.counter.add(keys_by_document)

    def _group_of(self, source: str) -> int:
        group = self.groups_by_source.setdefault(source, len(self.documents_by_group))
        if group == len(self.documents_by_group):
            self.documents_by_group.append(0)
        return group

    def stops_by_group(self, share: float, least_source_documents: int) -> Iterator[GroupStops]:
        names: list[tuple[str | None, int]] = [(None, 0), *sorted(self.groups_by_source.items())]
        for name, group in names:
            count = self.documents_by_group[group]
            if name is None or count >= least_source_documents:
                yield GroupStops(name, count, self.counter.frequent(group, least_documents(share, count), count))


class DocumentCounter:
    """Counts the documents that contain each shingle, by group, with at most `capacity` counts.

    Beyond them it forgets the rarest (lossy counting; Manku and Motwani, 2002): counts may then be too high.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        #: Group << 32 | shingle, ascending.
        self._keys = np.empty(0, np.uint64)
        #: By key: documents since the key was added.
        self._counts = np.empty(0, np.int64)
        #: By key: an upper bound of the documents before, which were forgotten.
        self._missed = np.empty(0, np.int64)
        #: Upper bound of the documents of a group with a shingle that has no key in the group.
        self.forgotten_bound = 0

    def add(self, keys_by_document: Sequence[UInt64s]) -> None:
        """Count the shingles of documents: keys group << 32 | shingle, distinct within each document."""
        if not keys_by_document:
            return
        new, times = np.unique(np.concatenate(keys_by_document), return_counts=True)
        keys = np.concatenate([self._keys, new])
        order = np.argsort(keys, kind="stable")
        keys = keys[order]
        counts = np.concatenate([self._counts, times])[order]
        missed = np.concatenate([self._missed, np.full(new.size, self.forgotten_bound)])[order]
        # Of two equal keys the first is the earlier count (stable sort), with its bound, which still holds.
        firsts = np.flatnonzero(np.concatenate(([True], keys[1:] != keys[:-1])))
        self._keys, self._missed = keys[firsts], missed[firsts]
        self._counts = np.add.reduceat(counts, firsts)
        self._forget()

    def _forget(self) -> None:
        while self._keys.size > self._capacity:
            upper = self._counts + self._missed
            self.forgotten_bound = int(upper.min())  # rises: remaining keys were above it, new ones begin above it
            remaining = np.flatnonzero(upper > self.forgotten_bound)
            self._keys, self._counts = self._keys[remaining], self._counts[remaining]
            self._missed = self._missed[remaining]

    def frequent(self, group: int, least: int, documents_count: int) -> dict[int, int]:
        """Return the shingles of a group that may have at least `least` documents, with upper bounds of this number.

        Bounds are at most `documents_count`, that of the group.
        """
        low, high = np.searchsorted(self._keys, np.array([group << 32, (group + 1) << 32], np.uint64)).tolist()
        upper = self._counts[low:high] + self._missed[low:high]
        frequent = np.flatnonzero(upper >= least)
        hashes = (self._keys[low:high][frequent] & np.uint64(0xFFFFFFFF)).tolist()
        return dict(zip(hashes, np.minimum(upper[frequent], documents_count).tolist(), strict=True))
