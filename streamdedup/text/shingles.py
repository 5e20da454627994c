"""Shingles: a 32-bit hash for each run of k tokens or characters of a text, a batch of texts at a time.

1. Without `keep_urls`, `markup` replaces each URL by a space.
2. `tokens` folds the text (`normalise`), cuts it into elements, tokens or characters, and gives each a 64-bit hash.
3. Stop words are left out.
4. `shingle_hashes` computes a 32-bit hash for each run of k elements, the shingle.
5. Stop shingles are left out. Repetitions are removed or, in a bag, numbered.

A document's hashes do not depend on the rest of the batch. `tests/unit/reference_shingles.py` is the specification: one
character at a time, in plain Python, with the same result for any Unicode text. A change of the result touches it and
docs/format.md, and needs a new `ALGORITHM`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from streamdedup.text.element_hashes import Elements
from streamdedup.text.folding import FoldOptions
from streamdedup.text.markup import without_urls
from streamdedup.text.normalise import fold
from streamdedup.text.runs import Int64s, Mask, UInt32s, UInt64s, joined_offsets, offsets_of, ranges
from streamdedup.text.shingle_hashes import (
    HashSet,
    distinct,
    numbered_repetitions,
    ordered_hashes,
    sorted_hashes,
    without_stops,
)
from streamdedup.text.tokens import SPACE_HASH, ElementReader, spaced_text
from streamdedup.text.unicode_tables import LETTER, NUMBER

#: Version of the steps from a text to hashes; part of the fingerprint of an index.
ALGORITHM = 1

#: Characters in one chunk of texts, so that the arrays stay in the second-level cache. Measured on Reuters.
_CHUNK_CHARACTERS = 1 << 17
#: Top bits of a token hash in the quick first test for stop words (`HashSet`).
_STOP_WORD_BITS = 12
#: Top bits of a shingle hash in the quick first test for stop shingles, of which there may be tens of thousands.
_STOP_SHINGLE_BITS = 20


@dataclass(frozen=True, slots=True)
class ShingleOptions:
    """The definition of shingles: mostly the settings of a profile with these names (docs/settings.md).

    Attributes:
        stop_words: Word unit: tokens to leave out, folded like the text; "don't" leaves out "don" and "t".
        keep_white_space: Character unit: whether a run of separators is one space, or is left out.
        bag: A shingle that occurs n times counts as n elements (multiset Jaccard), not as one.
        short_texts: A text with fewer than `size` tokens or characters is one shingle as a whole, or none.
        stop_shingles: Hashes to leave out, with all occurrences in a bag; a text with no others keeps them.
    """

    unit: Literal["word", "char"] = "word"
    size: int = 3
    letters_only: bool = False
    fold_marks: bool = False
    fold_variants: bool = False
    fold_look_alikes: bool = False
    keep_urls: bool = True
    stop_words: frozenset[str] = frozenset()
    keep_white_space: bool = True
    bag: bool = False
    short_texts: Literal["whole", "skip"] = "whole"
    stop_shingles: frozenset[int] = frozenset()

    @property
    def kind(self) -> str:
        """Unit and size for people, such as "word 3"."""
        return f"{self.unit} {self.size}"


class ShingleBatch(NamedTuple):
    """The shingle hashes of a document batch, one document behind the other.

    Attributes:
        hashes: Ascending within a document; distinct, except in a bag from `appended`.
        offsets: int64 (n_docs + 1,); document i has hashes[offsets[i]:offsets[i + 1]].
        token_counts: Tokens by document, without stop words, also for the character unit.
        element_counts: Elements by document.
        tails: Hashes of the last `size` - 1 elements, or fewer, by document, with ``tail_offsets``.
        stop_only: Whether a document has stop shingles only, and so keeps them.
    """

    hashes: UInt32s
    offsets: Int64s
    token_counts: Int64s
    element_counts: Int64s
    tails: UInt64s
    tail_offsets: Int64s
    stop_only: Mask


class OrderedShingles(NamedTuple):
    """The shingles of a text in its order, with bounds in ``spaced``: the folded text, a space for each separator."""

    hashes: UInt32s
    starts: Int64s
    ends: Int64s
    spaced: str

    def text(self, low: int, high: int) -> str:
        """Return the part of `spaced` from the start of shingle `low` to the end of shingle `high` - 1."""
        return " ".join(self.spaced[self.starts[low] : self.ends[high - 1]].split())


class Shingler:
    """Computes shingles under fixed options. Threads may share it."""

    def __init__(self, options: ShingleOptions) -> None:
        self.options = options
        folding = FoldOptions(options.fold_marks, options.fold_variants, options.fold_look_alikes)
        self._reader = ElementReader(options.unit, options.letters_only, options.keep_white_space, folding)
        stop_words = np.empty(0, np.uint64)
        if options.stop_words:
            stop_words = self._reader.read(sorted(options.stop_words), ascii_only=False).hashes
        self._stop_words = HashSet(stop_words, _STOP_WORD_BITS)
        self._stop_shingles = HashSet(np.fromiter(options.stop_shingles, np.uint32), _STOP_SHINGLE_BITS)

    def shingle(self, texts: Sequence[str]) -> ShingleBatch:
        """Return the distinct shingle hashes of any Unicode texts, lone surrogates included.

        Takes about 100 bytes of memory for each character in a chunk or in a longer text.
        """
        texts = self._without_urls(texts)
        chunks = [self._chunk(texts[first:last]) for first, last in _chunks(texts)]
        if len(chunks) == 1:
            return chunks[0]
        batch = ShingleBatch(*map(np.concatenate, zip(*chunks, strict=True)))
        offsets = joined_offsets(chunk.offsets for chunk in chunks)
        return batch._replace(offsets=offsets, tail_offsets=joined_offsets(chunk.tail_offsets for chunk in chunks))

    def in_order(self, text: str) -> OrderedShingles:
        """Return the shingles in text order, stop shingles and repetitions included."""
        (text,) = self._without_urls([text])
        spaced, spans = self._reader.spans(text)
        hashes = self._reader.read([text], ascii_only=False).hashes
        bounds = np.array(spans, np.int64).reshape(-1, 2)  # start and end of each element
        if self._stop_words:
            words = np.flatnonzero(~self._stop_words.contains(hashes))
            hashes, bounds = hashes.take(words), bounds[words]
        size = min(self.options.size, len(hashes))
        if not size or (size < self.options.size and self.options.short_texts == "skip"):
            return OrderedShingles(np.empty(0, np.uint32), bounds[:0, 0], bounds[:0, 1], spaced)
        # A shingle begins with its first element and ends with its last one, `size` - 1 elements later.
        shingles = ordered_hashes(hashes, size)
        return OrderedShingles(shingles, bounds[: shingles.size, 0], bounds[size - 1 :, 1], spaced)

    def appended(self, tail: UInt64s, text: str, *, is_first: bool) -> ShingleBatch:
        """Return the shingles that a stored text gains when a text is appended on a new line, as a batch of one.

        The whole text has the gained shingles beside those of the stored text; in place of them if the stored text is
        shorter than a shingle, and so is one shingle as a whole.

        Args:
            tail: `ShingleBatch.tails` of the stored text.
            is_first: Whether the stored text has no elements, so that no space is at the seam.

        In the result `token_counts` are those of the appended text, `element_counts` include the tail before it, 0
        where nothing is gained, and `tails` are those of the whole text.
        """
        added = self._elements(self._without_urls([text]), ascii_only=False)
        gained = added.hashes
        if gained.size:
            is_spaced = self.options.unit == "char" and self.options.keep_white_space and not is_first
            gained = np.concatenate([tail, SPACE_HASH, gained] if is_spaced else [tail, gained])
        element_counts = np.array([gained.size])
        elements = Elements(gained, element_counts, added.token_counts)
        hashes, counts, stop_only = self._sorted_without_stops(elements, np.arange(1))
        if not self.options.bag:
            hashes, counts = distinct(hashes, counts)
        tail = gained[max(0, gained.size - self.options.size + 1) :]
        tail_offsets = np.array([0, tail.size])
        return ShingleBatch(
            hashes, offsets_of(counts), added.token_counts, element_counts, tail, tail_offsets, stop_only
        )

    def _sorted_without_stops(self, elements: Elements, order: Int64s) -> tuple[UInt32s, Int64s, Mask]:
        """Return the result of `without_stops` for the shingles of all elements, repetitions included."""
        whole = self.options.short_texts == "whole"
        hashes, counts = sorted_hashes(elements, order, self.options.size, whole=whole)
        if not self._stop_shingles:
            return hashes, counts, np.zeros(counts.size, np.bool_)
        return without_stops(hashes, counts, self._stop_shingles)

    def _without_urls(self, texts: Sequence[str]) -> Sequence[str]:
        return texts if self.options.keep_urls else [without_urls(text) for text in texts]

    def _chunk(self, texts: Sequence[str]) -> ShingleBatch:
        """Shingle one cache-sized chunk of texts."""
        # ASCII texts are read as one group, then the others; ``order`` restores the order of the texts.
        ascii_only = [row for row, text in enumerate(texts) if text.isascii()]
        wide = [row for row, text in enumerate(texts) if not text.isascii()]
        groups = []
        if ascii_only or not wide:  # at least one group, also for no texts
            groups.append(self._elements([texts[row] for row in ascii_only], ascii_only=True))
        if wide:
            groups.append(self._elements([texts[row] for row in wide], ascii_only=False))
        order = np.argsort(np.array(ascii_only + wide, np.int64), kind="stable")
        elements = groups[0] if len(groups) == 1 else Elements(*map(np.concatenate, zip(*groups, strict=True)))
        hashes, counts, stop_only = self._sorted_without_stops(elements, order)
        if self.options.bag:
            hashes = numbered_repetitions(hashes, counts)
        hashes, counts = distinct(hashes, counts)
        element_counts = elements.counts[order]
        tail_counts = np.minimum(element_counts, self.options.size - 1)
        tail_starts = offsets_of(elements.counts)[order] + element_counts - tail_counts
        return ShingleBatch(
            hashes,
            offsets_of(counts),
            elements.token_counts[order],
            element_counts,
            elements.hashes[ranges(tail_starts, tail_counts)],
            offsets_of(tail_counts),
            stop_only,
        )

    def _elements(self, texts: Sequence[str], *, ascii_only: bool) -> Elements:
        """Return the elements without stop words."""
        elements = self._reader.read(texts, ascii_only=ascii_only)
        if not self._stop_words:
            return elements
        words = np.flatnonzero(~self._stop_words.contains(elements.hashes))
        counts = np.diff(np.searchsorted(words, offsets_of(elements.counts)))
        return Elements(elements.hashes.take(words), counts, counts)


def folded_text(text: str) -> str:
    """Return a text after `normalise.fold`, with one space for each run of separators and none at the ends."""
    folded = fold([text], FoldOptions())
    return " ".join(spaced_text(folded.packed, (folded.packed & (LETTER | NUMBER)) != 0).split())


def _chunks(texts: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yield the bounds of chunks: as many texts as `_CHUNK_CHARACTERS` allow; for no texts, one empty chunk."""
    start = characters = 0
    for row, text in enumerate(texts):
        if characters and characters + len(text) > _CHUNK_CHARACTERS:
            yield start, row
            start, characters = row, 0
        characters += len(text) + 1  # with the separator
    yield start, len(texts)
