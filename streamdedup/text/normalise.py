"""From texts to folded and classified code points, for texts beyond ASCII.

Called by `tokens` and `shingles.folded_text`. A change of the result also touches `unicode_tables`,
tests/unit/reference_shingles.py and docs/format.md ("Folding"), and needs a new `shingles.ALGORITHM`.

Normalising by a table is many times faster than ``unicodedata.normalize``, but right only where neighbours do not
interact; the entries of the table tell where they may (`unicode_tables`). ``fold`` works in steps:

1. Look each code point up in ``Tables.packed``, and drop the ignorable ones (``_look_up``).
2. Repair the simple cases in which neighbours interact (`mark_repair`). Texts in NFD need no more, Vietnamese included;
   nor does vowelled Arabic in which shadda is typed before the vowel sign.
3. Compose with ``unicodedata`` the documents that step 2 leaves in doubt, and repeat steps 1 and 2 for them
   (``_fold_doubtful``).
4. Fold documents that are still in doubt with ``folding_rounds``, which is always right (``_fold_slowly``).
5. Replace entries with ``EXPANDS`` by several code points (``_expand``).

The result for a document depends neither on the steps that fold it nor on the rest of the batch.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamdedup.text.folding import FoldOptions, folding_rounds, normalized
from streamdedup.text.mark_repair import Repaired, repair
from streamdedup.text.runs import UNCHECKED, VALUES_PER_CHANGE, Int64s, UInt32s, offsets_of, ranges, spliced, without
from streamdedup.text.unicode_tables import CHECK, CLASSED, CODE_POINT, EXPANDS, IGNORED, Tables, kinds_of, tables


class Folded(NamedTuple):
    """Documents after normalisation, all in one array, a separator before each and one at the end.

    Attributes:
        packed: Entries as in ``Tables.packed``; separators are SPACE without bits.
        starts: int64 (n_docs + 1,); document starts; the last entry is the length of ``packed``.
        bits: The union (OR) of all entries of ``packed``, to tell which bits occur at all.
        kinds: The highest byte of each entry (`unicode_tables.kinds_of`).
    """

    packed: UInt32s
    starts: Int64s
    bits: int
    kinds: NDArray[np.uint8]


class _LookedUp(NamedTuple):
    """Documents after step 1, and in ``points`` the code points of their texts, without the ignorable ones."""

    folded: Folded
    points: UInt32s


def fold(texts: Sequence[str], folding: FoldOptions) -> Folded:
    """Normalise and classify at least one text of any code points, lone surrogates and NUL included."""
    table = tables(folding)
    looked_up, repaired = _repaired(texts, table)
    if repaired.doubtful_documents.size:
        folded = _classified(*_fold_doubtful(looked_up, repaired, table, folding))
    elif repaired.is_composed:
        folded = _classified(repaired.packed, repaired.starts)
    else:
        # Marks may have changed places, but all marks are of the same kind for `tokens`.
        folded = looked_up.folded._replace(packed=repaired.packed)
    return _expand(folded, table) if folded.bits & EXPANDS else folded


def _repaired(texts: Sequence[str], table: Tables) -> tuple[_LookedUp, Repaired]:
    """Steps 1 and 2."""
    looked_up = _look_up(texts, table)
    (packed, starts, bits, kinds), points = looked_up
    if not bits & (CHECK | CLASSED):
        return looked_up, Repaired(packed, starts, doubtful_documents=starts[:0])
    return looked_up, repair(packed, starts, kinds, points, table)


def _classified(packed: UInt32s, starts: Int64s) -> Folded:
    return Folded(packed, starts, int(np.bitwise_or.reduce(packed)), kinds_of(packed))


def _look_up(texts: Sequence[str], table: Tables) -> _LookedUp:
    """Step 1: look up all code points, a line feed before each text and after the last; drop the ignorable ones."""
    joined = "\n".join(["", *texts, ""])
    lengths = np.fromiter(map(len, texts), np.int64, len(texts))
    starts = offsets_of(lengths + 1) + 1  # each text begins after its line feed
    # Takes a third of the time that `str.encode` takes, and accepts lone surrogates.
    points = np.array([joined], "<U").view("<u4")
    packed = table.packed.take(points, mode=UNCHECKED)
    folded = _classified(packed, starts)
    if folded.bits & IGNORED:
        ignored = np.flatnonzero((packed & IGNORED) != 0)
        starts = starts - np.searchsorted(ignored, starts)  # fewer by the ignorable code points before
        folded, points = _classified(without(packed, ignored), starts), without(points, ignored)
    return _LookedUp(folded, points)


def _fold_slowly(text: str, table: Tables, folding: FoldOptions) -> str:
    *_, (_, folded) = folding_rounds(text, folding, lambda text: _without_ignorable(text, table))
    return folded


def _without_ignorable(text: str, table: Tables) -> str:
    """Return a text without ignorable code points; ``table`` decides whether accents are among them."""
    points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")
    ignored = np.flatnonzero((table.packed.take(points) & IGNORED) != 0)
    return str(without(points, ignored).data, "utf-32-le", "surrogatepass") if ignored.size else text


def _fold_doubtful(
    looked_up: _LookedUp, repaired: Repaired, table: Tables, folding: FoldOptions
) -> tuple[UInt32s, Int64s]:
    """Steps 3 and 4: fold the doubtful documents anew; return ``packed`` and ``starts`` of all documents."""
    packed, starts, documents = repaired.packed, repaired.starts, repaired.doubtful_documents
    texts = [
        str(looked_up.points[first:last].data, "utf-32-le", "surrogatepass")
        for first, last in _text_bounds(looked_up.folded.starts, documents)
    ]
    _, composed = _repaired([normalized("NFC", text) for text in texts], table)
    slow = set(composed.doubtful_documents.tolist())
    lengths = np.diff(starts)  # with the separator behind each document
    pieces, end = [], 0
    for doubtful_row, (first, last) in enumerate(_text_bounds(starts, documents)):
        if doubtful_row in slow:
            text = _fold_slowly(texts[doubtful_row], table, folding)
            piece = table.packed.take(np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4"))
        else:
            piece = composed.packed[composed.starts[doubtful_row] : composed.starts[doubtful_row + 1] - 1]
        lengths[documents[doubtful_row]] += piece.size - (last - first)
        pieces += [packed[end:first], piece]
        end = last
    pieces.append(packed[end:])
    return np.concatenate(pieces), starts[0] + offsets_of(lengths)


def _text_bounds(starts: Int64s, documents: Int64s) -> list[tuple[int, int]]:
    return list(zip(starts.take(documents).tolist(), (starts.take(documents + 1) - 1).tolist(), strict=True))


def _expand(folded: Folded, table: Tables) -> Folded:
    """Step 5: replace each entry with ``EXPANDS``, whose low bits are an expansion number, by several code points."""
    packed = folded.packed
    places = np.flatnonzero((packed & EXPANDS) != 0)
    numbers = packed[places] & CODE_POINT
    starts, ends = table.expansion_offsets[numbers], table.expansion_offsets[numbers + 1]
    lengths = ends - starts
    # Code points that the expansions before each place add; last, those that all add.
    shifts = np.concatenate(([0], np.cumsum(lengths - 1)))
    if places.size * VALUES_PER_CHANGE < packed.size:
        pieces = [table.expansions[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
        expanded = spliced(packed, places, pieces)
    else:
        counts = np.ones(packed.size, np.int64)
        counts[places] = lengths
        expanded = np.repeat(packed, counts)
        expanded[ranges(places + shifts[:-1], lengths)] = table.expansions[ranges(starts, lengths)]
    return _classified(expanded, folded.starts + shifts[np.searchsorted(places, folded.starts)])
