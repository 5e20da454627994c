"""Learns stop shingles, for `stop_shingles`, from a sample of documents.

Shingles that occur in at least a given share of the documents of a sample, or of one source in it, are boilerplate: a
publisher's notice is rare overall and frequent in one source. Called by `cli.stop_shingles` and `tuning.meter`.

Not meant for `unit = "char"`: short runs that many texts share belong to the language, not to boilerplate.
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

#: Largest number of counts at the same time: one for each shingle, and one more for each source that has the shingle;
#: 370 MB at most (measured). With more counts, the rarest shingles are forgotten.
MOST_COUNTED = 4_000_000
#: Share of the documents; measurements are in `docs/text.md`.
DEFAULT_SHARE = 0.05
#: Default of `least_source_documents`: a source with fewer documents gets no stop shingles of its own.
LEAST_SOURCE_DOCUMENTS = 100
#: Documents that are counted at once.
_BATCH_DOCUMENTS = 2_000
#: Odd constant without structure: its product with a group is XORed into the digest of a document, so that `seen` has
#: another value for each group.
_GROUP_FACTOR = 0x9E3779B97F4A7C15


class GroupStops(NamedTuple):
    """Stop shingles of one source, or of all documents (`source` None); `counts`: documents by shingle hash."""

    source: str | None
    documents_count: int
    counts: dict[int, int]


class Learnt(NamedTuple):
    """Stop shingles learnt from a sample.

    Attributes:
        stops: The union over all documents and the sources.
        groups: All documents, then the sources with at least `least_source_documents`, ordered by name.
        small_sources: Number of sources with fewer documents.
        least_source_documents: The argument, or more after forgetting.
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
    """Find the shingles that occur in at least a share of a sample's documents, or of one source in it.

    Documents with the same shingles count once in each source, so that a text with many copies is no boilerplate. The
    counts are exact up to `MOST_COUNTED` counts. Beyond that the rarest are forgotten (lossy counting; Manku and
    Motwani, 2002): the count of a shingle may then be too high by the forgotten occurrences, never too low,
    so that no stop shingle is missed. A source is skipped if it is so small that its stop shingles may be forgotten.

    Of the options, `bag` and `stop_shingles` are ignored. Raises ValueError for a share outside (0, 1], and for one so
    small that a stop shingle of the whole sample may have been forgotten.
    """
    if not 0 < share <= 1:
        raise ValueError(f"the share must be above 0 and at most 1, not {share}")
    plain = replace(options, bag=False, stop_shingles=frozenset())
    shingler, sample = Shingler(plain), _Sample(DocumentCounter(MOST_COUNTED))
    for batch in _batches(texts):
        shingles = shingler.shingle([text for text, _ in batch])
        sample.add(shingles.hashes, shingles.offsets, [source or None for _, source in batch])
    documents_count = sample.documents_by_group[0]  # group 0 has all documents
    least = least_documents(share, documents_count)
    if sample.counter.forgotten_bound >= least:
        raise ValueError(
            f"too many different shingles to count those of only {least} documents; take a greater share or a smaller "
            "sample"
        )
    # Raise the least source size until even there a stop shingle has more documents than any forgotten one.
    while least_documents(share, least_source_documents) <= sample.counter.forgotten_bound:
        least_source_documents = 1 + max(least_source_documents, int(sample.counter.forgotten_bound / share))
    groups = list(sample.stops_by_group(share, least_source_documents))
    counts: dict[int, int] = {}
    for group in groups:
        counts |= {value: max(count, counts.get(value, 0)) for value, count in group.counts.items()}
    small = len(sample.documents_by_group) - len(groups)  # both count all documents as a group
    stops = StopShingles(counts, documents_count, share, described_options(plain))
    return Learnt(stops, tuple(groups), small, least_source_documents)


def _batches(texts: Iterable[tuple[str, str | None]]) -> Iterator[list[tuple[str, str | None]]]:
    unread = iter(texts)
    while batch := list(itertools.islice(unread, _BATCH_DOCUMENTS)):
        yield batch


class DocumentCounter:
    """Counts the documents that contain each shingle, by group; at most ``capacity`` counts (lossy counting)."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        #: Group << 32 | shingle, ascending. The other two arrays have an item for each key.
        self._keys = np.empty(0, np.uint64)
        #: Documents with each shingle since its count began.
        self._counts = np.empty(0, np.int64)
        #: Upper bound of the documents with each shingle before its count began.
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
        # Of two equal keys the first is the earlier count (stable sort). Its bound stays: nothing was forgotten since.
        firsts = np.flatnonzero(np.concatenate(([True], keys[1:] != keys[:-1])))
        self._keys, self._missed = keys[firsts], missed[firsts]
        self._counts = np.add.reduceat(counts, firsts)
        self._forget()

    def _forget(self) -> None:
        while self._keys.size > self._capacity:
            upper = self._counts + self._missed
            self.forgotten_bound = int(upper.min())  # rises: other items had more, new ones have at least one more
            remaining = np.flatnonzero(upper > self.forgotten_bound)
            self._keys, self._counts = self._keys[remaining], self._counts[remaining]
            self._missed = self._missed[remaining]

    def at_least(self, minimum: int, maximum: int, group: int) -> dict[int, int]:
        """Return the shingles of a group with an upper bound of at least `minimum` documents, and these bounds.

        Bounds above `maximum`, the documents of the group, are lowered to it.
        """
        low, high = np.searchsorted(self._keys, np.array([group << 32, (group + 1) << 32], np.uint64)).tolist()
        upper = self._counts[low:high] + self._missed[low:high]
        frequent = np.flatnonzero(upper >= minimum)
        hashes = (self._keys[low:high][frequent] & np.uint64(0xFFFFFFFF)).tolist()
        return dict(zip(hashes, np.minimum(upper[frequent], maximum).tolist(), strict=True))


@dataclass
class _Sample:
    """The documents of a sample, counted all together (group 0) and by source (groups from 1 on).

    Attributes:
        group_numbers: Group of each source.
        documents_by_group: Number of different documents by group.
        seen: A 64-bit digest for each different document in each of its groups; some 150 bytes a document.
    """

    counter: DocumentCounter
    group_numbers: dict[str, int] = field(default_factory=dict)
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
        group = self.group_numbers.setdefault(source, len(self.documents_by_group))
        if group == len(self.documents_by_group):
            self.documents_by_group.append(0)
        return group

    def stops_by_group(self, share: float, least_source_documents: int) -> Iterator[GroupStops]:
        names: list[tuple[str | None, int]] = [(None, 0), *sorted(self.group_numbers.items())]
        for name, group in names:
            count = self.documents_by_group[group]
            if name is None or count >= least_source_documents:
                yield GroupStops(name, count, self.counter.at_least(least_documents(share, count), count, group))
