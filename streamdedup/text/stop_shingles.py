"""Stop shingles: boilerplate that many documents share. Learns from a sample, writes and reads files.

Boilerplate (an earnings table, a licence, a cookie notice) makes different texts similar. Shingles that occur in at
least a given share of the documents of a sample, or of one source in it, are boilerplate: a publisher's notice is rare
overall and frequent in one source. They are written to a file, a profile names the file, and its shingles are left out
of every document. The file is fixed before the first document, so the pairs do not depend on the order of arrival.
Called by `cli.stop_shingles`, which learns and writes files, by `tuning.meter`, which learns, and by
`settings.profile`, which reads files. A new option of shingles that changes hashes is added to `described_options`.

Not meant for `unit = "char"`: short runs that many texts share belong to the language, not to boilerplate.

Format, UTF-8, version 1: a first line with the name of the format; lines `key = value` with the options of the shingles
and the size of the sample; an empty line; then one line for each shingle, ascending: the hash as eight hexadecimal
digits, a space, and the number of documents (`StopShingles.counts`). The text of the shingles is not stored.
"""

import hashlib
import itertools
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamdedup.text.folding import look_alikes_version, variants_version
from streamdedup.text.shingles import ALGORITHM, ShingleOptions, Shingler, folded_text

#: First line of a file.
HEADER = "streamdedup stop shingles, version 1"
#: Largest number of counts at the same time: one for each shingle, and one more for each source that has the shingle;
#: 370 MB at most (measured). With more counts, the rarest shingles are forgotten.
MOST_COUNTED = 4_000_000
#: Default share of the documents; measurements are in `docs/text.md`.
DEFAULT_SHARE = 0.05
#: Least number of documents with a stop shingle, for a sample of any size.
LEAST_DOCUMENTS = 3
#: Default for the least number of documents of a source whose shingles are counted by themselves.
LEAST_SOURCE_DOCUMENTS = 100
#: Documents that are counted at once.
_BATCH_DOCUMENTS = 2_000
#: Odd constant without structure: gives the digest of a document another value in each of its groups.
_GROUP_FACTOR, _MASK_64 = 0x9E3779B97F4A7C15, 2**64 - 1
_LINE = re.compile(r"([0-9a-f]{8}) ([1-9][0-9]*)")
_SETTING = re.compile(r"([a-z_]+) = (\S+)")


@dataclass(frozen=True, slots=True)
class StopShingles:
    """Stop shingles and the sample that they were learnt from.

    Attributes:
        counts: Number of documents by shingle hash. A shingle may be a stop shingle of several groups, all documents or
            those of one source: the greatest number counts.
        documents: Number of documents in the sample, copies counted once.
        share: Least document share for a stop shingle, above 0, up to 1.
        options: Options of the shingles (`described_options`).
    """

    counts: dict[int, int]
    documents: int
    share: float
    options: dict[str, str]

    @property
    def hashes(self) -> frozenset[int]:
        return frozenset(self.counts)

    @property
    def least_documents(self) -> int:
        return least_documents(self.share, self.documents)

    def encoded(self) -> str:
        settings = self.options | {"documents": str(self.documents), "share": repr(self.share)}
        head = [HEADER, *(f"{key} = {value}" for key, value in settings.items()), ""]
        return "\n".join([*head, *(f"{value:08x} {count}" for value, count in sorted(self.counts.items()))]) + "\n"


def least_documents(share: float, documents: int) -> int:
    """Return the least document count for a stop shingle in a sample, or a source, with so many documents."""
    # Without `- 1e-9`, 0.07 * 100 would give 8: the product is a little more than 7 in floating point.
    return max(LEAST_DOCUMENTS, math.ceil(share * documents - 1e-9))


def described_options(options: ShingleOptions) -> dict[str, str]:
    """Return the options that decide on shingle hashes, as texts."""
    return {
        "algorithm": str(ALGORITHM),
        "unit": options.unit,
        "size": str(options.size),
        "letters_only": str(options.letters_only).lower(),
        "fold_marks": str(options.fold_marks).lower(),
        "stop_words": digest_of_words(options.stop_words),
        # Word shingles are the same with and without the option, so files for them have the default.
        "keep_white_space": str(options.keep_white_space or options.unit == "word").lower(),
        "fold_variants": variants_version() if options.fold_variants else "false",
        "fold_look_alikes": look_alikes_version() if options.fold_look_alikes else "false",
        "keep_urls": str(options.keep_urls).lower(),
    }


def digest_of_words(words: frozenset[str]) -> str:
    """Return 16 BLAKE2b bytes, in hexadecimal, for the normalised tokens in a stop list; "none" for an empty list."""
    if not words:
        return "none"
    return _digest("\n".join(sorted({token for word in words for token in folded_text(word).split(" ")})))


def digest_of_hashes(hashes: frozenset[int]) -> str:
    """Return 16 BLAKE2b bytes, in hexadecimal, for stop shingles; "none" for no shingles."""
    return _digest("\n".join(f"{value:08x}" for value in sorted(hashes))) if hashes else "none"


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def parse_stop_shingles(text: str) -> StopShingles:
    """Read a file's content.

    Raises ValueError for the first wrong line; its text continues a sentence that begins with the name of the file.
    """
    lines = text.split("\n")
    if lines[0] != HEADER:
        raise ValueError(f"is no file of stop shingles: its first line is not {HEADER!r}")
    settings: dict[str, str] = {}
    head = 1
    while head < len(lines) and (setting := _SETTING.fullmatch(lines[head])):
        settings[setting[1]] = setting[2]
        head += 1
    expected = [*described_options(ShingleOptions()), "documents", "share"]
    if list(settings) != expected or head == len(lines) or lines[head]:
        raise ValueError(f"line {head + 1}: the head must be {', '.join(expected)}, in this order, and an empty line")
    documents, share = _pop_sample(settings)
    counts: dict[int, int] = {}
    last = -1
    for number, line in enumerate(lines[head + 1 :], head + 2):  # the first line has number 1
        if not line and number == len(lines):
            break  # behind the last line feed
        entry = _LINE.fullmatch(line)
        if entry is None or int(entry[1], 16) <= last or int(entry[2]) > documents:
            raise ValueError(
                f"line {number}: must be eight hexadecimal digits, more than in the line before, a space and a number "
                f"of up to {documents} documents"
            )
        last = int(entry[1], 16)
        counts[last] = int(entry[2])
    return StopShingles(counts, documents, share, settings)


def _pop_sample(settings: dict[str, str]) -> tuple[int, float]:
    try:
        documents, share = int(settings.pop("documents")), float(settings.pop("share"))
    except ValueError as error:
        raise ValueError(f"has a wrong head: {error}") from None
    if documents < 0 or not 0 < share <= 1:
        raise ValueError(f"has a wrong head: {documents} documents, share {share}")
    return documents, share


def differences(stops: StopShingles, options: ShingleOptions) -> list[str]:
    """Return the options in which a file and a profile differ, as texts."""
    profile, file = described_options(options), stops.options
    return [f"{key} {file[key]}, not {profile[key]}" for key in profile if file[key] != profile[key]]


class SourceStops(NamedTuple):
    """Stop shingles of one source, or of all documents (``source`` None); ``counts``: documents by shingle hash."""

    source: str | None
    documents: int
    counts: dict[int, int]


class Learnt(NamedTuple):
    """Stop shingles learnt from a sample.

    Attributes:
        stops: The union over all documents and the sources.
        groups: All documents, then the sources with at least `least_source_documents`, ordered by name.
        small_sources: Number of sources with fewer documents.
        least_source_documents: Least document count for a source in `groups`; the argument, or more after forgetting.
    """

    stops: StopShingles
    groups: tuple[SourceStops, ...]
    small_sources: int
    least_source_documents: int


def learn_stop_shingles(
    documents: Iterable[tuple[str, str | None]],
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

    Args:
        documents: Texts with their sources, None or empty without one; read once.
        options: Shingle options; `bag` and `stop_shingles` are ignored.
        share: Above 0, up to 1.

    Raises ValueError for a share outside that range, or too small for the shingles that can be counted.
    """
    if not 0 < share <= 1:
        raise ValueError(f"the share must be above 0 and at most 1, not {share}")
    plain = replace(options, bag=False, stop_shingles=frozenset())
    shingler, sample = Shingler(plain), _Sample(DocumentCounter(MOST_COUNTED))
    for batch in _batches(documents):
        shingles = shingler.shingle([text for text, _ in batch])
        sample.add(shingles.hashes, shingles.offsets, [source or None for _, source in batch])
    everything = StopShingles({}, sample.documents[0], share, described_options(plain))  # 0: the group of all documents
    if sample.counter.forgotten >= everything.least_documents:
        raise ValueError(
            f"too many different shingles to count those of only {everything.least_documents} documents; take a "
            "greater share or a smaller sample"
        )
    # A source must be so large that its stop shingles occur more often than a forgotten shingle can.
    while least_documents(share, least_source_documents) <= sample.counter.forgotten:
        least_source_documents = 1 + max(least_source_documents, int(sample.counter.forgotten / share))
    groups = list(sample.groups(share, least_source_documents))
    counts: dict[int, int] = {}
    for group in groups:
        counts |= {value: max(count, counts.get(value, 0)) for value, count in group.counts.items()}
    small = len(sample.documents) - len(groups)  # both count all documents as a group
    return Learnt(replace(everything, counts=counts), tuple(groups), small, least_source_documents)


def _batches(documents: Iterable[tuple[str, str | None]]) -> Iterator[list[tuple[str, str | None]]]:
    unread = iter(documents)
    while batch := list(itertools.islice(unread, _BATCH_DOCUMENTS)):
        yield batch


@dataclass
class _Sample:
    """The documents of a sample, counted all together (group 0) and by source (groups from 1 on).

    Attributes:
        group_numbers: Group of each source.
        documents: Number of different documents by group.
        seen: A 64-bit digest for each different document in each of its groups; some 150 bytes a document.
    """

    counter: "DocumentCounter"
    group_numbers: dict[str, int] = field(default_factory=dict)
    documents: list[int] = field(default_factory=lambda: [0])
    seen: set[int] = field(default_factory=set)

    def add(self, hashes: NDArray[np.uint32], offsets: NDArray[np.int64], sources: Sequence[str | None]) -> None:
        keys: list[NDArray[np.uint64]] = []
        for first, last, source in zip(offsets[:-1].tolist(), offsets[1:].tolist(), sources, strict=True):
            if first == last:
                continue  # a document without shingles does not count
            digest = hashlib.blake2b(hashes[first:last].tobytes(), digest_size=8).digest()
            for group in (0,) if source is None else (0, self._group_of(source)):
                group_digest = int.from_bytes(digest) ^ (group * _GROUP_FACTOR & _MASK_64)
                if group_digest not in self.seen:
                    self.seen.add(group_digest)
                    self.documents[group] += 1
                    keys.append(hashes[first:last] | np.uint64(group << 32))
        self.counter.add(keys)

    def _group_of(self, source: str) -> int:
        """Return the group of a source; make a group for a new source."""
        group = self.group_numbers.setdefault(source, len(self.documents))
        if group == len(self.documents):
            self.documents.append(0)
        return group

    def groups(self, share: float, least_source_documents: int) -> Iterator[SourceStops]:
        """Yield the stop shingles for all documents, and for each source with enough documents."""
        names: list[tuple[str | None, int]] = [(None, 0), *sorted(self.group_numbers.items())]
        for name, group in names:
            count = self.documents[group]
            if name is None or count >= least_source_documents:
                yield SourceStops(name, count, self.counter.at_least(least_documents(share, count), count, group))


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
        #: Upper bound of the documents of a group with a shingle that is not counted there.
        self.forgotten = 0

    def add(self, documents: Sequence[NDArray[np.uint64]]) -> None:
        """Count shingles by document: group << 32 | shingle, distinct within each document."""
        if not documents:
            return
        new, times = np.unique(np.concatenate(documents), return_counts=True)
        keys = np.concatenate([self._keys, new])
        order = np.argsort(keys, kind="stable")
        keys = keys[order]
        counts = np.concatenate([self._counts, times])[order]
        missed = np.concatenate([self._missed, np.full(new.size, self.forgotten)])[order]
        # Of two equal shingles the first is the one with the earlier count, and its upper bound holds for both.
        firsts = np.flatnonzero(np.concatenate(([True], keys[1:] != keys[:-1])))
        self._keys, self._missed = keys[firsts], missed[firsts]
        self._counts = np.add.reduceat(counts, firsts)
        self._forget()

    def _forget(self) -> None:
        while self._keys.size > self._capacity:
            upper = self._counts + self._missed
            self.forgotten = int(upper.min())  # greater than the last value, as every bound is
            remaining = np.flatnonzero(upper > self.forgotten)
            self._keys, self._counts = self._keys[remaining], self._counts[remaining]
            self._missed = self._missed[remaining]

    def at_least(self, minimum: int, maximum: int, group: int = 0) -> dict[int, int]:
        """Return the shingles of a group that `minimum` documents may have, with upper bounds of at most `maximum`."""
        low, high = np.searchsorted(self._keys, np.array([group << 32, (group + 1) << 32], np.uint64)).tolist()
        upper = self._counts[low:high] + self._missed[low:high]
        frequent = np.flatnonzero(upper >= minimum)
        hashes = (self._keys[low:high][frequent] & np.uint64(0xFFFFFFFF)).tolist()
        return dict(zip(hashes, np.minimum(upper[frequent], maximum).tolist(), strict=True))
