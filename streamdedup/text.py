"""From texts to sets of 32-bit shingle hashes, a whole batch at a time.

A shingle is a run of k consecutive tokens or of k consecutive characters of the normalised text. What is computed is
said again, slowly and plainly, in `tests/unit/reference_shingles.py`; for any Unicode text both agree exactly.

1. Characters that are not to be seen (soft hyphen, zero-width, variation selectors) are removed, the rest is put into
   NFKC and case-folded, to a fixed point.
2. Runs of letters, combining marks and digits are tokens. In scripts without spaces each character is a token, with
   the marks that follow it. Everything else separates.
3. Tokens or characters get 64-bit hashes, runs of them 32-bit hashes (`shingle_hashes`).

ASCII documents are handled as bytes, the others as code points through `unicode_tables`; which of the two ways a
document takes can never be seen in its hashes, nor can what else is in its batch. This module does no input or output.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from streamdedup import unicode_tables
from streamdedup.shingle_hashes import (
    PADDING,
    Elements,
    character_hashes,
    first_of_equals,
    numbered_repetitions,
    offsets_of,
    shingle_keys,
    token_hashes,
)
from streamdedup.unicode_tables import CODE_POINT, LETTER, MARK, NUMBER, SOLO, SPACE, Folded

#: Version of everything that decides what a text hashes to; part of the fingerprint of an index.
ALGORITHM = 1

#: Characters that one pass works on, so that its arrays stay in the second-level cache. Measured on Reuters.
_PASS_CHARACTERS = 1 << 17
#: Top bits of a token hash that index the first, coarse test for stop words.
_STOP_BITS = 12

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


def _ascii_table(*, letters_only: bool) -> bytes:
    """Return the table for `bytes.translate`: folded letters and digits, a space for everything else."""
    table = bytearray(b" " * 256)
    for point in range(128):
        character = chr(point)
        if character.isalpha() or (character.isdigit() and not letters_only):
            table[point] = ord(character.lower())
    return bytes(table)


_ASCII = _ascii_table(letters_only=False)
_ASCII_LETTERS = _ascii_table(letters_only=True)
_ASCII_HASHES = character_hashes(np.arange(128, dtype=np.uint32))


@dataclass(frozen=True, slots=True)
class ShingleOptions:
    """What counts as a shingle.

    Attributes:
        unit: Shingles are made of words (tokens) or of characters.
        size: Number of tokens or characters in one shingle, at least 1.
        letters_only: Only letters and marks make tokens; digits separate.
        stop_words: Tokens to leave out, word unit only. Normalised like the text; an entry of several tokens
            ("don't") stands for each of them.
        keep_white_space: Character unit: separators count as one space between words; otherwise not at all.
        bag: A shingle that occurs n times counts as n elements (multiset Jaccard), not as one.
        short_texts: A text with fewer than `size` tokens or characters is one shingle as a whole, or none.

    Raises:
        ValueError: A size below 1, or stop words with the character unit.
    """

    unit: Literal["word", "char"] = "word"
    size: int = 3
    letters_only: bool = False
    stop_words: frozenset[str] = frozenset()
    keep_white_space: bool = True
    bag: bool = False
    short_texts: Literal["whole", "skip"] = "whole"

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
    """

    hashes: NDArray[np.uint32]
    offsets: NDArray[np.int64]
    token_counts: NDArray[np.int64]


class Shingler:
    """Makes shingle hashes of texts, always the same way."""

    def __init__(self, options: ShingleOptions) -> None:
        self.options = options
        self._ascii = _ASCII_LETTERS if options.letters_only else _ASCII
        self._token_bits = LETTER if options.letters_only else LETTER | NUMBER
        self._stop_hashes = np.empty(0, np.uint64)
        self._maybe_stop = np.zeros(1 << _STOP_BITS, np.bool_)
        if options.stop_words:
            self._stop_hashes = np.unique(self._general_tokens(sorted(options.stop_words)).hashes)
            self._maybe_stop[self._stop_hashes >> (64 - _STOP_BITS)] = True

    def shingle(self, texts: Sequence[str]) -> ShingleBatch:
        """Return the distinct shingle hashes of each text.

        Memory needed beside the result: some 100 bytes for each character of the longest text or of 128 Ki characters,
        whichever is more.

        Args:
            texts: Any number of texts, any Unicode, lone surrogates included.
        """
        passes = [self._pass(texts[first:last]) for first, last in _passes(texts)]
        if not passes:
            return ShingleBatch(np.empty(0, np.uint32), np.zeros(1, np.int64), np.empty(0, np.int64))
        hashes, counts, token_counts = passes[0]
        if len(passes) > 1:
            hashes = np.concatenate([part[0] for part in passes])
            counts = np.concatenate([part[1] for part in passes])
            token_counts = np.concatenate([part[2] for part in passes])
        return ShingleBatch(hashes, offsets_of(counts), token_counts)

    def _pass(self, texts: Sequence[str]) -> tuple[NDArray[np.uint32], NDArray[np.int64], NDArray[np.int64]]:
        """Return hashes, shingle counts and token counts of texts that are worked on together."""
        plain = [i for i, text in enumerate(texts) if text.isascii()]
        other = [i for i, text in enumerate(texts) if not text.isascii()]
        groups = []
        if plain:
            groups.append(self._elements([texts[i] for i in plain], ascii_only=True))
        if other:
            groups.append(self._elements([texts[i] for i in other], ascii_only=False))
        documents = np.array(plain + other, np.int64)
        elements = groups[0] if len(groups) == 1 else Elements(*map(np.concatenate, zip(*groups, strict=True)))
        keys = shingle_keys(elements, documents, self.options.size, whole=self.options.short_texts == "whole")
        if self.options.bag:
            keys = numbered_repetitions(keys)
        keys = keys.take(np.flatnonzero(first_of_equals(keys)))
        bounds = np.searchsorted(keys, np.arange(len(texts) + 1, dtype=np.uint64) << 32)
        token_counts = np.empty(len(texts), np.int64)
        token_counts[documents] = elements.token_counts
        return keys.astype(np.uint32), np.diff(bounds), token_counts

    def _elements(self, texts: Sequence[str], *, ascii_only: bool) -> Elements:
        """Return the elements of texts that are all ASCII, or handled as any Unicode."""
        if self.options.unit == "char":
            return self._ascii_characters(texts) if ascii_only else self._general_characters(texts)
        tokens = self._ascii_tokens(texts) if ascii_only else self._general_tokens(texts)
        return self._without_stop_words(tokens) if self._stop_hashes.size else tokens

    def _ascii_bytes(self, texts: Sequence[str]) -> tuple[bytes, NDArray[np.int64]]:
        """Return folded bytes with a separator before each text and at the end, and where each text starts."""
        starts = np.fromiter(map(len, texts), np.int64, len(texts)) + 1
        data = "\n".join(["", *texts, ""]).encode("ascii").translate(self._ascii)
        return data + PADDING, offsets_of(starts) + 1

    def _ascii_tokens(self, texts: Sequence[str]) -> Elements:
        data, documents = self._ascii_bytes(texts)
        inside = _ascii_inside(data)
        edges = np.flatnonzero(inside[1:] != inside[:-1]) + 1
        starts = edges[::2].copy()
        counts = np.diff(np.searchsorted(starts, documents))
        return Elements(token_hashes(data, starts, edges[1::2] - starts), counts, counts, counts)

    def _ascii_characters(self, texts: Sequence[str]) -> Elements:
        data, documents = self._ascii_bytes(texts)
        inside = _ascii_inside(data)
        kept, stored, used = self._kept(inside, documents)
        starts = np.flatnonzero(inside[1:] & ~inside[:-1]) + 1
        hashes = _ASCII_HASHES.take(np.frombuffer(data, np.uint8).take(kept))
        return Elements(hashes, stored, used, np.diff(np.searchsorted(starts, documents)))

    def _general_tokens(self, texts: Sequence[str]) -> Elements:
        folded = unicode_tables.fold(texts)
        inside = (folded.packed & self._token_bits) != 0
        begins = _token_begins(folded, inside)
        ends = inside.copy()
        ends[:-1] &= begins[1:] | ~inside[1:]
        data = _utf8(folded.packed, inside)
        at = np.flatnonzero((np.frombuffer(data, np.uint8) & 0xC0) != 0x80)
        begin = np.flatnonzero(begins)
        starts = at.take(begin)
        hashes = token_hashes(data + PADDING, starts, at.take(np.flatnonzero(ends) + 1) - starts)
        counts = np.diff(np.searchsorted(begin, folded.starts))
        return Elements(hashes, counts, counts, counts)

    def _general_characters(self, texts: Sequence[str]) -> Elements:
        folded = unicode_tables.fold(texts)
        inside = (folded.packed & self._token_bits) != 0
        kept, stored, used = self._kept(inside, folded.starts)
        begin = np.flatnonzero(_token_begins(folded, inside))
        points = _points(folded.packed, inside).take(kept)
        return Elements(character_hashes(points), stored, used, np.diff(np.searchsorted(begin, folded.starts)))

    def _kept(
        self, inside: NDArray[np.bool_], documents: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Return which characters are stored, how many for each document, and how many of these are its text.

        With white space, the first separator of each run is stored. The one behind the last token of a document is
        stored as well, but is no part of its text.
        """
        if not self.options.keep_white_space:
            kept = np.flatnonzero(inside)
            stored = np.diff(np.searchsorted(kept, documents))
            return kept, stored, stored
        keep = inside.copy()
        keep[1:] |= inside[:-1]
        kept = np.flatnonzero(keep)
        stored = np.diff(np.searchsorted(kept, documents))
        return kept, stored, np.maximum(stored - 1, 0)

    def _without_stop_words(self, tokens: Elements) -> Elements:
        """Leave out the tokens that have the hash of a stop word."""
        keep = ~self._maybe_stop.take(tokens.hashes >> (64 - _STOP_BITS))
        maybe = np.flatnonzero(~keep)
        nearest = np.searchsorted(self._stop_hashes, tokens.hashes[maybe]).clip(max=self._stop_hashes.size - 1)
        keep[maybe] = self._stop_hashes[nearest] != tokens.hashes[maybe]
        kept = np.flatnonzero(keep)
        counts = np.diff(np.searchsorted(kept, offsets_of(tokens.stored)))
        return Elements(tokens.hashes.take(kept), counts, counts, counts)


def normalise(text: str, *, letters_only: bool = False) -> str:
    """Return the text that shingles are made of: folded tokens, each run of separators one space, none at the ends.

    No space is put between the characters of scripts that are written without. Applying it twice changes nothing.
    """
    folded = unicode_tables.fold([text])
    inside = (folded.packed & (LETTER if letters_only else LETTER | NUMBER)) != 0
    return " ".join(_utf8(folded.packed, inside).decode().split())


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


def _ascii_inside(data: bytes) -> NDArray[np.bool_]:
    """Return which bytes are part of a token; the padding is not."""
    inside: NDArray[np.bool_] = np.frombuffer(data, np.uint8) != SPACE
    inside[-len(PADDING) :] = False
    return inside


def _token_begins(folded: Folded, inside: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return where tokens begin: after a separator; at and after characters that are tokens of their own."""
    begins = inside.copy()
    begins[1:] &= ~inside[:-1]
    if not folded.bits & SOLO:
        return begins
    solo = (folded.packed & SOLO) != 0
    solo &= inside
    if not folded.bits & MARK:
        begins |= solo
        begins[1:] |= solo[:-1] & inside[1:]
        return begins
    # Marks continue what they follow, so they are passed over when asking what a character comes after.
    base = np.flatnonzero((folded.packed & MARK) == 0)
    alone = solo.take(base)
    new = alone.copy()
    new[1:] |= alone[:-1] & inside.take(base[1:])
    begins[base[new]] = True
    return begins


def _points(packed: NDArray[np.uint32], inside: NDArray[np.bool_]) -> NDArray[np.uint32]:
    """Return folded code points, spaces for what separates."""
    points = packed & CODE_POINT
    points -= SPACE
    points *= inside
    points += SPACE
    return points


def _utf8(packed: NDArray[np.uint32], inside: NDArray[np.bool_]) -> bytes:
    """Return folded code points as UTF-8, spaces for what separates."""
    return str(_points(packed, inside).astype("<u4", copy=False).data, "utf-32-le").encode("utf-8")
