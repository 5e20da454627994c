"""Stop shingles: shingles of boilerplate that many documents share. Learns them from a sample, writes and reads files.

Boilerplate (an earnings table, a licence, a cookie notice) makes different texts similar. Shingles that occur in at
least a given share of the documents of a sample are boilerplate. They are written to a file, a profile names the file,
and its shingles are left out of every document. The file is fixed before the first document, so the pairs do not depend
on the order of arrival.

Not meant for `unit = "char"`: runs of a few characters that many texts share belong to the language, not to
boilerplate.

Format, UTF-8, version 1: a first line with the name of the format; lines `key = value` with the options of the shingles
and the size of the sample; an empty line; then one line for each shingle, ascending: the hash as eight hexadecimal
digits, a space, and the number of documents it occurred in. The text of the shingles is not stored.

No input or output happens here.
"""

import hashlib
import itertools
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from streamdedup.text.shingles import ALGORITHM, ShingleOptions, Shingler, normalise

#: First line of a file.
HEADER = "streamdedup stop shingles, version 1"
#: Most shingles that are counted at the same time, 350 MB at most (measured). Beyond it the rarest are forgotten.
MOST_COUNTED = 4_000_000
#: Default share of the documents; measurements are in `docs/text.md`.
DEFAULT_SHARE = 0.05
#: Least number of documents with a stop shingle, for a sample of any size.
LEAST_DOCUMENTS = 3
#: Documents that are counted at once.
_BATCH_DOCUMENTS = 2_000
_LINE = re.compile(r"([0-9a-f]{8}) ([1-9][0-9]*)")
_SETTING = re.compile(r"([a-z_]+) = (\S+)")


@dataclass(frozen=True, slots=True)
class StopShingles:
    """Stop shingles and the sample that they were learnt from.

    Attributes:
        counts: Number of documents with the shingle, by hash.
        documents: Number of documents in the sample, copies counted once.
        share: Least share of the documents with a stop shingle, above 0, up to 1.
        shingles: Options of the shingles, as `described` returns them.
    """

    counts: dict[int, int]
    documents: int
    share: float
    shingles: dict[str, str]

    @property
    def hashes(self) -> frozenset[int]:
        """The hashes alone."""
        return frozenset(self.counts)

    @property
    def least_documents(self) -> int:
        """Least number of documents with a stop shingle."""
        return max(LEAST_DOCUMENTS, math.ceil(self.share * self.documents - 1e-9))

    def encoded(self) -> str:
        """Return the content of a file."""
        settings = self.shingles | {"documents": str(self.documents), "share": repr(self.share)}
        head = [HEADER, *(f"{key} = {value}" for key, value in settings.items()), ""]
        return "\n".join([*head, *(f"{value:08x} {count}" for value, count in sorted(self.counts.items()))]) + "\n"


def described(options: ShingleOptions) -> dict[str, str]:
    """Return the options that decide on the hash of a shingle, as texts."""
    return {
        "algorithm": str(ALGORITHM),
        "unit": options.unit,
        "size": str(options.size),
        "letters_only": _flag(options.letters_only),
        "fold_marks": _flag(options.fold_marks),
        "stop_words": digest_of_words(options.stop_words),
        "keep_white_space": _flag(options.keep_white_space or options.unit == "word"),
    }


def _flag(value: bool) -> str:
    return "true" if value else "false"


def digest_of_words(words: frozenset[str]) -> str:
    """Return 16 bytes of BLAKE2b, in hexadecimal, of the normalised tokens of a stop list; "none" for an empty one."""
    if not words:
        return "none"
    return _digest("\n".join(sorted({token for word in words for token in normalise(word).split(" ")})))


def digest_of_hashes(hashes: frozenset[int]) -> str:
    """Return 16 bytes of BLAKE2b, in hexadecimal, of stop shingles; "none" for no shingles."""
    return _digest("\n".join(f"{value:08x}" for value in sorted(hashes))) if hashes else "none"


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def parse_stop_shingles(text: str) -> StopShingles:
    """Read the content of a file.

    Raises:
        ValueError: The text is not such a file. The error names the wrong line and continues a sentence that begins
            with the name of the file.
    """
    lines = text.split("\n")
    if lines[0] != HEADER:
        raise ValueError(f"is no file of stop shingles: its first line is not {HEADER!r}")
    settings: dict[str, str] = {}
    at = 1
    while at < len(lines) and (found := _SETTING.fullmatch(lines[at])):
        settings[found[1]] = found[2]
        at += 1
    expected = [*described(ShingleOptions()), "documents", "share"]
    if list(settings) != expected or at == len(lines) or lines[at]:
        raise ValueError(f"line {at + 1}: the head must be {', '.join(expected)}, in this order, and an empty line")
    documents, share = _sample(settings)
    counts: dict[int, int] = {}
    last = -1
    for number, line in enumerate(lines[at + 1 :], at + 2):
        if not line and number == len(lines):
            break
        entry = _LINE.fullmatch(line)
        if entry is None or int(entry[1], 16) <= last or int(entry[2]) > documents:
            raise ValueError(
                f"line {number}: must be eight hexadecimal digits, more than in the line before, a space and a number "
                f"of up to {documents} documents"
            )
        last = int(entry[1], 16)
        counts[last] = int(entry[2])
    return StopShingles(counts, documents, share, settings)


def _sample(settings: dict[str, str]) -> tuple[int, float]:
    """Remove the size of the sample and the share from the settings of a file and return both."""
    try:
        documents, share = int(settings.pop("documents")), float(settings.pop("share"))
    except ValueError as error:
        raise ValueError(f"has a wrong head: {error}") from None
    if documents < 0 or not 0 < share <= 1:
        raise ValueError(f"has a wrong head: {documents} documents, share {share}")
    return documents, share


def differences(stops: StopShingles, options: ShingleOptions) -> list[str]:
    """Return the options in which a file and a profile differ, each as a text; empty if there are none."""
    wanted = described(options)
    return [f"{key} {stops.shingles[key]}, not {wanted[key]}" for key in wanted if stops.shingles[key] != wanted[key]]


def learn_stop_shingles(texts: Iterable[str], options: ShingleOptions, share: float) -> StopShingles:
    """Find the shingles that occur in at least a share of the documents of a sample.

    Documents with the same shingles count once, so that a text with many copies is no boilerplate. The counts are exact
    up to `MOST_COUNTED` different shingles. Beyond that the rarest are forgotten (lossy counting; Manku and Motwani,
    2002): the count of a shingle may then be too high by the number of forgotten occurrences, never too low, so that no
    stop shingle is missed.

    Args:
        texts: Any number of texts; they are read once.
        options: Options of the shingles; `bag` and `stop_shingles` are ignored.
        share: Above 0, up to 1.

    Raises:
        ValueError: A share outside that range, or too small for the number of shingles that can be counted.
    """
    if not 0 < share <= 1:
        raise ValueError(f"the share must be above 0 and at most 1, not {share}")
    plain = replace(options, bag=False, stop_shingles=frozenset())
    shingler, counter = Shingler(plain), Counter(MOST_COUNTED)
    seen: set[bytes] = set()
    batch: list[str] = []
    for text in texts:
        batch.append(text)
        if len(batch) == _BATCH_DOCUMENTS:
            counter.add(_different(shingler, batch, seen))
            batch = []
    counter.add(_different(shingler, batch, seen))
    found = StopShingles({}, len(seen), share, described(plain))
    if counter.forgotten >= found.least_documents:
        raise ValueError(
            f"too many different shingles to count those of only {found.least_documents} documents; take a greater "
            "share or a smaller sample"
        )
    return replace(found, counts=counter.at_least(found.least_documents, len(seen)))


def _different(shingler: Shingler, texts: Sequence[str], seen: set[bytes]) -> list[NDArray[np.uint32]]:
    """Return the shingle sets of texts that are not in `seen`, and add them to it."""
    shingles = shingler.shingle(texts)
    different = []
    for first, last in itertools.pairwise(shingles.offsets.tolist()):
        hashes = shingles.hashes[first:last]
        digest = hashlib.blake2b(hashes.tobytes(), digest_size=16).digest()
        if len(hashes) and digest not in seen:
            seen.add(digest)
            different.append(hashes)
    return different


class Counter:
    """Counts the documents that contain each shingle, in bounded memory (lossy counting).

    Args:
        most: Most shingles to count at the same time.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._hashes = np.empty(0, np.uint32)
        self._counts = np.empty(0, np.int64)
        #: Upper bound of the documents with each shingle before its count began.
        self._missed = np.empty(0, np.int64)
        #: Upper bound of the documents with a shingle that is not counted.
        self.forgotten = 0

    def add(self, documents: Sequence[NDArray[np.uint32]]) -> None:
        """Count the shingles of documents, distinct within each."""
        if not documents:
            return
        new, times = np.unique(np.concatenate(documents), return_counts=True)
        both = np.concatenate([self._hashes, new])
        order = np.argsort(both, kind="stable")
        both = both[order]
        counts = np.concatenate([self._counts, times])[order]
        missed = np.concatenate([self._missed, np.full(new.size, self.forgotten)])[order]
        # Of two equal shingles the first is the one with the earlier count, and its upper bound holds for both.
        first = np.flatnonzero(np.concatenate(([True], both[1:] != both[:-1])))
        self._hashes, self._missed = both[first], missed[first]
        self._counts = np.add.reduceat(counts, first)
        self._forget()

    def _forget(self) -> None:
        """Forget the rarest shingles while there are too many."""
        while self._hashes.size > self._most:
            upper = self._counts + self._missed
            self.forgotten = max(self.forgotten + 1, int(upper.min()))
            kept = np.flatnonzero(upper > self.forgotten)
            self._hashes, self._counts, self._missed = self._hashes[kept], self._counts[kept], self._missed[kept]

    def at_least(self, least: int, most: int) -> dict[int, int]:
        """Return the shingles that may occur in `least` documents or more, with the upper bound, at most `most`."""
        upper = self._counts + self._missed
        at = np.flatnonzero(upper >= least)
        return dict(zip(self._hashes[at].tolist(), np.minimum(upper[at], most).tolist(), strict=True))
