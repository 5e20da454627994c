"""Stop shingles: what so many documents share that it says nothing about any two of them. Learning, writing, reading.

A frame that many texts have in common (an earnings table, a licence, a cookie notice) makes different texts similar.
Shingles that stand in more than a share of the documents of a sample are such frames; they are written to a file, a
profile names the file, and its shingles are left out before anything is computed. Because the file is fixed before
the first document, what is found does not depend on the order of arrival.

Not meant for `unit = "char"`: what many texts share of a few characters is the language.

Format, UTF-8, version 1: a first line that names it; lines `key = value` that say which shingles these are and what
they were learnt from; an empty line; then a line for each shingle, ascending: its hash as eight hexadecimal digits, a
space, and in how many documents it stood. The text of the shingles is not kept.

This module does no input or output.
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
#: Shingles that are counted at the same time; when there are more, the rarest are forgotten. Some
#: 350 MB at most were measured.
MOST_COUNTED = 4_000_000
#: Share of the documents where nothing else is asked for; `docs/templates.md` has the figures.
DEFAULT_SHARE = 0.05
#: A stop shingle stands in at least so many documents, however small the sample is.
LEAST_DOCUMENTS = 3
#: Documents that are counted at once.
_BATCH_DOCUMENTS = 2_000
_LINE = re.compile(r"([0-9a-f]{8}) ([1-9][0-9]*)")
_SETTING = re.compile(r"([a-z_]+) = (\S+)")


@dataclass(frozen=True, slots=True)
class StopShingles:
    """Stop shingles and what they were learnt from.

    Attributes:
        counts: By hash, in how many documents it stood.
        documents: Different documents of the sample.
        share: Share of them from which on a shingle is a stop shingle, above 0, up to 1.
        shingles: What kind of shingles they are, as `described` says it.
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
        """In how many documents a stop shingle stands at least."""
        return max(LEAST_DOCUMENTS, math.ceil(self.share * self.documents - 1e-9))

    def encoded(self) -> str:
        """Return the content of a file."""
        settings = self.shingles | {"documents": str(self.documents), "share": repr(self.share)}
        head = [HEADER, *(f"{key} = {value}" for key, value in settings.items()), ""]
        return "\n".join([*head, *(f"{value:08x} {count}" for value, count in sorted(self.counts.items()))]) + "\n"


def described(options: ShingleOptions) -> dict[str, str]:
    """Return what decides which hash a shingle has, as texts; equal for options whose shingles are the same."""
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
    """Return 16 bytes of BLAKE2b, in hexadecimal, of a stop list as it works; "none" for an empty one."""
    if not words:
        return "none"
    return _digest("\n".join(sorted({token for word in words for token in normalise(word).split(" ")})))


def digest_of_hashes(hashes: frozenset[int]) -> str:
    """Return 16 bytes of BLAKE2b, in hexadecimal, of stop shingles; "none" for none at all."""
    return _digest("\n".join(f"{value:08x}" for value in sorted(hashes))) if hashes else "none"


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def parse_stop_shingles(text: str) -> StopShingles:
    """Read the content of a file.

    Raises:
        ValueError: It is no such file; the text says which line is wrong, in words that follow the file's name.
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
    """Take the size of the sample and the share out of the settings of a file."""
    try:
        documents, share = int(settings.pop("documents")), float(settings.pop("share"))
    except ValueError as error:
        raise ValueError(f"has a wrong head: {error}") from None
    if documents < 0 or not 0 < share <= 1:
        raise ValueError(f"has a wrong head: {documents} documents, share {share}")
    return documents, share


def differences(stops: StopShingles, options: ShingleOptions) -> list[str]:
    """Return in what the shingles of a file are not those of a profile, each as a text; empty if they are."""
    wanted = described(options)
    return [f"{key} {stops.shingles[key]}, not {wanted[key]}" for key in wanted if stops.shingles[key] != wanted[key]]


def learn_stop_shingles(texts: Iterable[str], options: ShingleOptions, share: float) -> StopShingles:
    """Find the shingles that stand in at least a share of the different documents of a sample.

    Documents with the same shingles count once, or a text that was copied often would be a frame. The counts are exact
    while there are no more than `MOST_COUNTED` different shingles. Beyond that the rarest are forgotten now and then
    (lossy counting; Manku and Motwani, 2002): a shingle may then be taken for more frequent than it is, by as much as
    may have been forgotten of it, never for less, so that none is missed.

    Args:
        texts: Any number of texts; they are read once.
        options: Which shingles; what is left out by `stop_shingles` is not.
        share: Above 0, up to 1.

    Raises:
        ValueError: A share outside that range, or too small for what can be counted.
    """
    if not 0 < share <= 1:
        raise ValueError(f"the share must be above 0 and at most 1, not {share}")
    # Sets of shingles are what counts, with all that is common in them.
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
    """Return the shingles of those texts whose shingles were not seen before."""
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
    """Counts in how many documents shingles stand, in bounded memory.

    Args:
        most: Shingles to count at the same time.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._hashes = np.empty(0, np.uint32)
        self._counts = np.empty(0, np.int64)
        #: Most that may have been forgotten of a shingle before it was counted.
        self._missed = np.empty(0, np.int64)
        #: In how many documents a shingle may have stood that is not counted, at most.
        self.forgotten = 0

    def add(self, documents: Sequence[NDArray[np.uint32]]) -> None:
        """Count the shingles of some documents, each document's distinct."""
        if not documents:
            return
        new, times = np.unique(np.concatenate(documents), return_counts=True)
        both = np.concatenate([self._hashes, new])
        order = np.argsort(both, kind="stable")
        both = both[order]
        counts = np.concatenate([self._counts, times])[order]
        missed = np.concatenate([self._missed, np.full(new.size, self.forgotten)])[order]
        # A shingle that was counted before stands first of the two, with what may have been missed of it then.
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
        """Return the shingles that may stand in `least` documents or more, and how many that may be, up to `most`."""
        upper = self._counts + self._missed
        at = np.flatnonzero(upper >= least)
        return dict(zip(self._hashes[at].tolist(), np.minimum(upper[at], most).tolist(), strict=True))
