"""From texts to elements: tokens or characters, each as a 64-bit hash (`element_hashes`). Called by `shingles`.

    text          Don't use 2!
    tokens        don  t  use  2
    characters    d o n _ t _ u s e _ 2        with white space: a space (_) for each run of separators

Letters, numbers and combining marks are inside tokens, all else separates. A letter or number of a script without
spaces, such as Han, is a token of its own with the marks behind it: a *solo* character. `unicode_tables` has the bits
for these kinds. ASCII texts are read as bytes, which is faster, other texts as code points folded by `normalise`; both
ways give an ASCII text the same elements.

The texts of a batch are one array with a separator before each text. `inside` is a mask for the characters inside
tokens, `starts` are the places where tokens start, `text_starts` those where texts start.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from streamdedup.text.element_hashes import LAST_UNIT, PADDING, Elements, character_hashes, hash64, token_hashes
from streamdedup.text.folding import FoldOptions
from streamdedup.text.normalise import Folded, fold
from streamdedup.text.runs import Int64s, Mask, UInt32s, offsets_of
from streamdedup.text.unicode_tables import CODE_POINT, LETTER, MARK, NUMBER, SOLO, SPACE, kind_mask


def _ascii_table(*, letters_only: bool) -> bytes:
    """Return a table for `bytes.translate`: lower-case letters and digits, a space for all other bytes."""
    table = bytearray(b" " * 256)
    for point in range(128):
        character = chr(point)
        if character.isalpha() or (character.isdigit() and not letters_only):
            table[point] = ord(character.lower())
    return bytes(table)


_ASCII = _ascii_table(letters_only=False)
_ASCII_LETTERS = _ascii_table(letters_only=True)
_ASCII_HASHES = character_hashes(np.arange(128, dtype=np.uint32))
#: Steps, each of which finds one more mark behind every solo character, before a slower search finds all.
_MARKS_STEPWISE = 4
#: Where more than so many characters for each separator continue a token, as in Thai, ends of tokens are not searched
#: for: the length of a token includes the separators behind it, which change no hash.
_CONTINUING_PER_SEPARATOR = 4
#: Hash of the space that replaces a run of separators, where the elements are characters.
SPACE_HASH = _ASCII_HASHES[SPACE : SPACE + 1]


@dataclass(frozen=True, slots=True)
class ElementReader:
    """Reads texts as elements; the options are those of `shingles.ShingleOptions`."""

    unit: Literal["word", "char"]
    letters_only: bool
    keep_white_space: bool
    folding: FoldOptions

    def read(self, texts: Sequence[str], *, ascii_only: bool) -> Elements:
        """Return the elements of texts, all of them ASCII with ``ascii_only``."""
        if self.unit == "char":
            return self._ascii_characters(texts) if ascii_only else self._general_characters(texts)
        return self._ascii_tokens(texts) if ascii_only else self._general_tokens(texts)

    def _ascii_bytes(self, texts: Sequence[str]) -> tuple[bytes, Int64s]:
        """Return the folded bytes, a separator before each text and at the end; the text starts, and the end."""
        lengths = np.fromiter(map(len, texts), np.int64, len(texts))
        data = "\n".join(["", *texts, ""]).encode("ascii").translate(_ASCII_LETTERS if self.letters_only else _ASCII)
        return data + PADDING, offsets_of(lengths + 1) + 1  # each text begins after its separator

    def _ascii_tokens(self, texts: Sequence[str]) -> Elements:
        data, text_starts = self._ascii_bytes(texts)
        inside = _ascii_inside(data)
        edges = np.flatnonzero(inside[1:] != inside[:-1]) + 1  # start, end, start, end ... of the tokens
        starts = edges[::2].copy()  # contiguous, which makes look-ups faster
        counts = np.diff(np.searchsorted(starts, text_starts))  # starts within each text; likewise below
        return Elements(hash64(data, starts, edges[1::2] - starts), counts, counts)

    def _ascii_characters(self, texts: Sequence[str]) -> Elements:
        data, text_starts = self._ascii_bytes(texts)
        inside = _ascii_inside(data)
        places, counts, token_counts = self._character_places(inside, text_starts)
        return Elements(_ASCII_HASHES.take(np.frombuffer(data, np.uint8).take(places)), counts, token_counts)

    def _general_tokens(self, texts: Sequence[str]) -> Elements:
        folded = fold(texts, self.folding)
        inside = self._inside(folded)
        starts, lengths = _token_places(folded, inside, exact=False)
        hashes = token_hashes(_token_points(folded, inside), starts, lengths)
        counts = np.diff(np.searchsorted(starts, folded.starts))
        return Elements(hashes, counts, counts)

    def _general_characters(self, texts: Sequence[str]) -> Elements:
        folded = fold(texts, self.folding)
        inside = self._inside(folded)
        places, counts, token_counts = self._character_places(inside, folded.starts)
        if folded.bits & SOLO:
            token_starts = np.flatnonzero(_token_begins(folded, inside))
            token_counts = np.diff(np.searchsorted(token_starts, folded.starts))
        points = _spaced_points(folded.packed, inside).take(places)
        return Elements(character_hashes(points), counts, token_counts)

    def spans(self, text: str) -> tuple[str, list[tuple[int, int]]]:
        """Return the folded text, a space for each separator, and the start and end of each element in it."""
        folded = fold([text], self.folding)
        inside = self._inside(folded)
        if self.unit == "char":
            starts, _, _ = self._character_places(inside, folded.starts)
            ends = starts + 1
        else:
            starts, lengths = _token_places(folded, inside, exact=True)
            ends = starts + lengths
        return spaced_text(folded.packed, inside), list(zip(starts.tolist(), ends.tolist(), strict=True))

    def _character_places(self, inside: Mask, text_starts: Int64s) -> tuple[Int64s, Int64s, Int64s]:
        """Return the places of the characters that become elements; by text their number, and that of the tokens.

        With white space, the first separator behind each token is an element, except at the end of a text. A run of
        solo characters counts as one token.
        """
        token_ends = np.flatnonzero(inside[:-1] > inside[1:]) + 1  # inside, then not
        token_offsets = np.searchsorted(token_ends, text_starts)
        token_counts = np.diff(token_offsets)
        if self.keep_white_space:
            is_element = inside.copy()
            is_element[1:] |= inside[:-1]
            # Not behind the last token of a text.
            is_element[token_ends.take(token_offsets[1:][token_counts > 0] - 1)] = False
            inside = is_element
        places = np.flatnonzero(inside)
        return places, np.diff(np.searchsorted(places, text_starts)), token_counts

    def _inside(self, folded: Folded) -> Mask:
        inside: Mask = (folded.kinds & kind_mask(LETTER if self.letters_only else LETTER | NUMBER)) != 0
        return inside


def _ascii_inside(data: bytes) -> Mask:
    inside: Mask = np.frombuffer(data, np.uint8) != SPACE
    inside[-len(PADDING) :] = False
    return inside


def _token_begins(folded: Folded, inside: Mask) -> Mask:
    """Return a mask for the first characters of tokens: behind a separator, solo, and behind a solo character."""
    kinds, bits = folded.kinds, folded.bits
    begins = inside.copy()
    np.greater(inside[1:], inside[:-1], out=begins[1:])
    if not bits & SOLO:
        return begins
    solo = (kinds & kind_mask(SOLO)) != 0
    solo &= inside  # with `letters_only` a solo number separates
    if not (inside & ~solo).any():
        return inside  # every character is a token by itself
    begins |= solo
    plain = (kinds & kind_mask(SOLO | MARK)) == 0
    begins_after_solo = inside[1:] & plain[1:]
    if not begins_after_solo.any():
        return begins
    # Still missing: the first character of a word directly behind a solo character or its marks.
    begins_after_solo &= inside[:-1] & ~plain[:-1]
    if begins_after_solo.any():
        reached = _continued_by_marks(solo, (kinds & kind_mask(MARK)) != 0) if bits & MARK else solo
        begins[1:] |= reached[:-1] & begins_after_solo
    return begins


def _continued_by_marks(solo: Mask, mark: Mask) -> Mask:
    """Return a mask for the solo characters and the marks directly behind them."""
    reached = solo.copy()
    for _ in range(_MARKS_STEPWISE):
        further = reached[:-1] & mark[1:]
        further &= ~reached[1:]
        if not further.any():
            return reached
        reached[1:] |= further
    # Longer runs: each mark gets the value in `solo` of the last character before it that is no mark.
    base = np.flatnonzero(~mark)
    length = np.diff(np.append(base, mark.size))
    reached[base[0] :] = np.repeat(solo.take(base), length)
    return reached


def _token_places(folded: Folded, inside: Mask, *, exact: bool) -> tuple[Int64s, Int64s | NDArray[np.int8]]:
    """Return the starts and lengths of tokens in code points; int8, which is faster, for lengths that are all 1.

    Unless ``exact``, a length may include the separators behind the token.
    """
    if not folded.bits & SOLO:
        edges = np.flatnonzero(inside[1:] != inside[:-1]) + 1
        return edges[::2].copy(), edges[1::2] - edges[::2]
    begins = _token_begins(folded, inside)
    starts = np.flatnonzero(begins)
    separators = inside.size - np.count_nonzero(inside)
    continuing = inside.size - separators - starts.size
    if not continuing:
        return starts, np.ones(starts.size, np.int8)
    if not exact and separators * _CONTINUING_PER_SEPARATOR < continuing:
        lengths = np.empty_like(starts)
        np.subtract(starts[1:], starts[:-1], out=lengths[:-1])
        lengths[-1] = inside.size - starts[-1]
        return starts, lengths
    # A token ends before a separator and before the first character of another token.
    end = begins[1:] | ~inside[1:]
    end &= inside[:-1]
    lengths = np.flatnonzero(end)
    lengths += 1
    lengths -= starts
    return starts, lengths


def _token_points(folded: Folded, inside: Mask) -> NDArray[np.uint16] | UInt32s:
    """Return the folded code points with NUL for separators, as `token_hashes` reads them: uint16 if all fit."""
    # `bits` is a union: its code point exceeds LAST_UNIT, 16 ones, only if that of an entry does.
    is_narrow = (folded.bits & CODE_POINT) <= LAST_UNIT
    points = folded.packed.astype("<u2") if is_narrow else folded.packed & CODE_POINT  # "<u2" drops the bits above
    points *= inside
    return points


def _spaced_points(packed: UInt32s, inside: Mask) -> UInt32s:
    return np.where(inside, packed & CODE_POINT, SPACE)


def spaced_text(packed: UInt32s, inside: Mask) -> str:
    return str(_spaced_points(packed, inside).astype("<u4", copy=False).data, "utf-32-le")
