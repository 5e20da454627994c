"""From texts to sets of 32-bit shingle hashes, a whole batch at a time.

A shingle is a run of k consecutive tokens or of k consecutive characters of the normalised text. What is computed is
said again, slowly and plainly, in `tests/unit/reference_shingles.py`; for any Unicode text both agree exactly.

1. Characters that are not to be seen (soft hyphen, zero-width, variation selectors, tatweel) are removed, with
   `fold_marks` accents and vowel signs as well; the rest is put into NFKC and case-folded, to a fixed point.
2. Runs of letters, combining marks and digits are tokens. In scripts without spaces each character is a token, with
   the marks that follow it. Everything else separates.
3. Tokens or characters get 64-bit hashes (`elements`), runs of them 32-bit hashes (`shingle_hashes`).

ASCII documents are handled as bytes, the others as code points through `folding`; which of the two ways a
document takes can never be seen in its hashes, nor can what else is in its batch. This module does no input or output.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamdedup.text.hashing import (
    Elements,
    distinct,
    numbered_repetitions,
    offsets_of,
    ranges,
    sorted_hashes,
    without_stops,
)
from streamdedup.text.normalise import fold
from streamdedup.text.tokens import SPACE_HASH, ElementReader, utf8
from streamdedup.text.unicode_tables import LETTER, NUMBER

#: Version of everything that decides what a text hashes to; part of the fingerprint of an index.
ALGORITHM = 2

#: Characters that one pass works on, so that its arrays stay in the second-level cache. Measured on Reuters.
_PASS_CHARACTERS = 1 << 17
#: Top bits of a token hash that index the first, coarse test for stop words.
_STOP_BITS = 12
#: Top bits of a shingle hash that index the first test for stop shingles, of which there may be tens of thousands.
_FRAME_BITS = 20

_ENGLISH = """
a about above after again against all also am among an and any are as at be because been before being below between
both but by can cannot could did do does doing down during each either else ever every few for from further had has
have having he her here hers herself him himself his how however i if in into is it its itself just may me might more
most must my myself neither no nor not now of off on once only or other our ours ourselves out over own per same shall
she should since so some such than that the their theirs them themselves then there these they this those though
through thus to too under until up upon us very was we were what when where whether which while who whom whose why
will with within without would yet you your yours yourself yourselves
"""
#: English function words, for articles: they carry style, not content.
ENGLISH_STOP_WORDS = frozenset(_ENGLISH.split())


@dataclass(frozen=True, slots=True)
class ShingleOptions:
    """What counts as a shingle.

    Attributes:
        unit: Shingles are made of words (tokens) or of characters.
        size: Number of tokens or characters in one shingle, at least 1.
        letters_only: Only letters and marks make tokens; digits separate.
        fold_marks: Accents (Latin, Greek, Cyrillic) and vowel signs (Arabic, Hebrew, Syriac) are left out.
        stop_words: Tokens to leave out, word unit only. Normalised like the text; an entry of several tokens
            ("don't") stands for each of them.
        keep_white_space: Character unit: separators count as one space between words; otherwise not at all.
        bag: A shingle that occurs n times counts as n elements (multiset Jaccard), not as one.
        short_texts: A text with fewer than `size` tokens or characters is one shingle as a whole, or none.
        stop_shingles: Hashes of shingles that are left out, in a bag every occurrence. A text of which nothing would be
            left keeps them all.

    Raises:
        ValueError: A size below 1, or stop words with the character unit.
    """

    unit: Literal["word", "char"] = "word"
    size: int = 3
    letters_only: bool = False
    fold_marks: bool = False
    stop_words: frozenset[str] = frozenset()
    keep_white_space: bool = True
    bag: bool = False
    short_texts: Literal["whole", "skip"] = "whole"
    stop_shingles: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ValueError(f"the shingle size must be at least 1, not {self.size}")
        if self.stop_words and self.unit == "char":
            raise ValueError("stop words can be left out of word shingles only; shingle unit is 'char'")


@dataclass(frozen=True, slots=True)
class ShingleBatch:
    """The shingle hashes of a batch of documents, one document behind the other.

    Attributes:
        hashes: uint32 (n_total,); within a document sorted ascending and distinct.
        offsets: int64 (n_docs + 1,); document i has hashes[offsets[i]:offsets[i + 1]].
        token_counts: int64 (n_docs,); tokens (words) of each document, stop words not counted.
        element_counts: int64 (n_docs,); tokens or characters of each document, whatever its shingles are made of.
        tails: uint64 (n_tails,); of each document the hashes of its last `size` - 1 elements, of all while it has
            fewer: what a text that continues it needs to know.
        tail_offsets: int64 (n_docs + 1,); document i has tails[tail_offsets[i]:tail_offsets[i + 1]].
        frame_only: bool (n_docs,); documents that consist of stop shingles only, and so keep them.
    """

    hashes: NDArray[np.uint32]
    offsets: NDArray[np.int64]
    token_counts: NDArray[np.int64]
    element_counts: NDArray[np.int64]
    tails: NDArray[np.uint64]
    tail_offsets: NDArray[np.int64]
    frame_only: NDArray[np.bool_]


class _Pass(NamedTuple):
    """Shingles of texts that are worked on together; the attributes are those of `ShingleBatch`, with counts."""

    hashes: NDArray[np.uint32]
    counts: NDArray[np.int64]
    token_counts: NDArray[np.int64]
    element_counts: NDArray[np.int64]
    tails: NDArray[np.uint64]
    tail_counts: NDArray[np.int64]
    frame_only: NDArray[np.bool_]


class Shingler:
    """Makes shingle hashes of texts, always the same way."""

    def __init__(self, options: ShingleOptions) -> None:
        self.options = options
        self._reader = ElementReader(options.unit, options.letters_only, options.keep_white_space, options.fold_marks)
        self._stop_hashes = np.empty(0, np.uint64)
        self._maybe_stop = np.zeros(1 << _STOP_BITS, np.bool_)
        if options.stop_words:
            self._stop_hashes = np.unique(self._reader.tokens(sorted(options.stop_words)).hashes)
            self._maybe_stop[self._stop_hashes >> (64 - _STOP_BITS)] = True
        self._stops = np.array(sorted(options.stop_shingles), np.uint32)
        self._maybe_frame = np.zeros(1 << _FRAME_BITS, np.bool_)
        self._maybe_frame[self._stops >> np.uint32(32 - _FRAME_BITS)] = True

    def shingle(self, texts: Sequence[str]) -> ShingleBatch:
        """Return the distinct shingle hashes of each text.

        Memory needed beside the result: some 100 bytes for each character of the longest text or of 128 Ki characters,
        whichever is more.

        Args:
            texts: Any number of texts, any Unicode, lone surrogates included.
        """
        passes = [self._pass(texts[first:last]) for first, last in _passes(texts)]
        if not passes:
            none, nobody = np.empty(0, np.int64), np.zeros(1, np.int64)
            no_tail, no_frame = np.empty(0, np.uint64), np.empty(0, np.bool_)
            return ShingleBatch(np.empty(0, np.uint32), nobody, none, none, no_tail, nobody, no_frame)
        joined = passes[0] if len(passes) == 1 else _Pass(*map(np.concatenate, zip(*passes, strict=True)))
        return ShingleBatch(
            joined.hashes,
            offsets_of(joined.counts),
            joined.token_counts,
            joined.element_counts,
            joined.tails,
            offsets_of(joined.tail_counts),
            joined.frame_only,
        )

    def continued(
        self, tails: Sequence[NDArray[np.uint64]], empty: Sequence[bool], texts: Sequence[str]
    ) -> ShingleBatch:
        """Return the shingles that texts gain when each is continued on a new line.

        Together with those of the text so far they are the shingles of the whole. If that had fewer elements than a
        shingle takes, so that its tail is all of it, they are the shingles of the whole by themselves.

        Args:
            tails: n tails, as in `ShingleBatch.tails`.
            empty: Whether each text so far has no element at all.
            texts: What follows each.

        Returns:
            Hashes ascending, and in a bag as often as they occur, stop shingles among them only where there is nothing
            else; the tails of the whole; of tokens those that were added, of elements those that were added and the
            tail's.
        """
        added = self._elements(texts, ascii_only=False)
        elements = self._joined(tails, empty, added)
        hashes, counts, frame_only = self._sorted(elements, np.arange(len(texts)))
        if not self.options.bag:
            hashes, counts = distinct(hashes, counts)
        ends, tail_counts = _tails(elements, self.options.size)
        new_tails = elements.hashes[ends]
        return ShingleBatch(
            hashes,
            offsets_of(counts),
            added.token_counts,
            elements.used,
            new_tails,
            offsets_of(tail_counts),
            frame_only,
        )

    def _joined(self, tails: Sequence[NDArray[np.uint64]], empty: Sequence[bool], added: Elements) -> Elements:
        """Put each tail before the elements that follow it, and a space between where white space counts."""
        spaced = self.options.unit == "char" and self.options.keep_white_space
        parts: list[NDArray[np.uint64]] = []
        lengths = []
        first = offsets_of(added.stored)[:-1]
        for tail, first_one, start, used in zip(tails, empty, first.tolist(), added.used.tolist(), strict=True):
            if not used:
                lengths.append(0)
                continue
            seam = SPACE_HASH if spaced and not first_one else SPACE_HASH[:0]
            parts += (tail, seam, added.hashes[start : start + used])
            lengths.append(len(tail) + len(seam) + used)
        counts = np.array(lengths, np.int64)
        return Elements(np.concatenate([SPACE_HASH[:0], *parts]), counts, counts, added.token_counts)

    def _sorted(
        self, elements: Elements, documents: NDArray[np.int64]
    ) -> tuple[NDArray[np.uint32], NDArray[np.int64], NDArray[np.bool_]]:
        """Return sorted hashes, how many each document has, and which consist of stop shingles only."""
        whole = self.options.short_texts == "whole"
        hashes, counts = sorted_hashes(elements, documents, self.options.size, whole=whole)
        if not self._stops.size:
            return hashes, counts, np.zeros(counts.size, np.bool_)
        return without_stops(hashes, counts, self._stops, self._maybe_frame)

    def _pass(self, texts: Sequence[str]) -> "_Pass":
        """Return what a batch is made of, for texts that are worked on together."""
        plain = [i for i, text in enumerate(texts) if text.isascii()]
        other = [i for i, text in enumerate(texts) if not text.isascii()]
        groups = []
        if plain:
            groups.append(self._elements([texts[i] for i in plain], ascii_only=True))
        if other:
            groups.append(self._elements([texts[i] for i in other], ascii_only=False))
        documents = np.array(plain + other, np.int64)
        elements = groups[0] if len(groups) == 1 else Elements(*map(np.concatenate, zip(*groups, strict=True)))
        hashes, counts, frame_only = self._sorted(elements, documents)
        if self.options.bag:
            hashes = numbered_repetitions(hashes, counts)
        hashes, counts = distinct(hashes, counts)
        # From the order in which the documents were worked on back to their own.
        place = np.empty(len(texts), np.int64)
        place[documents] = np.arange(len(texts))
        ends, tail_counts = _tails(elements, self.options.size, place)
        tails = elements.hashes[ends]
        tokens, used = elements.token_counts[place], elements.used[place]
        return _Pass(hashes, counts, tokens, used, tails, tail_counts, frame_only)

    def _elements(self, texts: Sequence[str], *, ascii_only: bool) -> Elements:
        """Return the elements of texts that are all ASCII, or handled as any Unicode."""
        elements = self._reader.read(texts, ascii_only=ascii_only)
        return self._without_stop_words(elements) if self._stop_hashes.size else elements

    def _without_stop_words(self, tokens: Elements) -> Elements:
        """Leave out the tokens that have the hash of a stop word."""
        keep = ~self._maybe_stop.take(tokens.hashes >> (64 - _STOP_BITS))
        maybe = np.flatnonzero(~keep)
        nearest = np.searchsorted(self._stop_hashes, tokens.hashes[maybe]).clip(max=self._stop_hashes.size - 1)
        keep[maybe] = self._stop_hashes[nearest] != tokens.hashes[maybe]
        kept = np.flatnonzero(keep)
        counts = np.diff(np.searchsorted(kept, offsets_of(tokens.stored)))
        return Elements(tokens.hashes.take(kept), counts, counts, counts)


def _tails(
    elements: Elements, size: int, order: NDArray[np.int64] | slice = slice(None)
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return where the last elements of each document stand, documents in `order`, and how many there are of each."""
    counts = np.minimum(elements.used, size - 1)[order]
    ends = (offsets_of(elements.stored)[:-1] + elements.used)[order]
    return ranges(ends - counts, counts), counts


def normalise(text: str, *, letters_only: bool = False, fold_marks: bool = False) -> str:
    """Return the text that shingles are made of: folded tokens, each run of separators one space, none at the ends.

    No space is put between the characters of scripts that are written without. Applying it twice changes nothing.
    """
    folded = fold([text], fold_marks=fold_marks)
    inside = (folded.packed & (LETTER if letters_only else LETTER | NUMBER)) != 0
    return " ".join(utf8(folded.packed, inside).decode().split())


def parse_stop_words(text: str) -> frozenset[str]:
    """Return the words of a list with one word a line; what follows a # is a comment, empty lines do not count."""
    words = (line.partition("#")[0].strip() for line in text.splitlines())
    return frozenset(word for word in words if word)


def _passes(texts: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yield (first, last) of runs of texts that are worked on together."""
    first = characters = 0
    for i, text in enumerate(texts):
        if characters and characters + len(text) > _PASS_CHARACTERS:
            yield first, i
            first, characters = i, 0
        characters += len(text) + 1
    if first < len(texts):
        yield first, len(texts)
