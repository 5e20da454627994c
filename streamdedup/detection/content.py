"""What the index keeps of a document's content, and how it grows when the document is continued.

Beside the sketch that is compared these are the hashes of the last elements (words or characters), from which the
shingles across a seam are made; no text. A document that is continued comes to exactly the content of the whole text.

Binary form, version 1 (little-endian):

    octet 0       0x10, plus 1 with a version, plus 2 with a life, plus 4 if it consists of stop shingles only
    octets 1-2    tokens, at most 65,535, uint16
    octets 3-4    elements, at most 65,535, uint16
    octet 5       number of values of the tail
    then          the tail, uint64 each; the version, 16 octets, and the life, 8, if any; the sketch (`sketch`)
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from streamdedup.errors import StoreMisconfigured
from streamdedup.similarity import sketch as sketches
from streamdedup.similarity.sketch import Sketch, SketchBatch, Sketcher
from streamdedup.text.hashing import repetitions
from streamdedup.text.shingles import ShingleBatch, Shingler

#: Version of the binary form, that of the sketch within included; part of the fingerprint of an index.
FORMAT: Final = 1
_FORMAT: Final = FORMAT << 4
_WITH_VERSION: Final = 0x01
_WITH_INCARNATION: Final = 0x02
_FRAME_ONLY: Final = 0x04
_WITH_NEITHER: Final = bytes([_FORMAT])
_HEADER: Final = struct.Struct("<BHHB")
#: The same of many contents.
_HEADERS: Final = np.dtype([("flags", "u1"), ("tokens", "<u2"), ("elements", "<u2"), ("tail", "u1")])
#: Most that is told of a number of tokens or elements.
_MOST: Final = 65_535
#: Octets of a version and of a life.
_VERSION_SIZE: Final = 16
_INCARNATION_SIZE: Final = 8


class ContentDamaged(StoreMisconfigured, ValueError):
    """What the index keeps of a document is not what we have written; going on would miss its pairs."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"what is kept of a document is damaged: {reason}; another program writes to the index")


class BagTooLarge(ValueError):
    """A bag beyond `exact_limit`: how often each shingle occurs is not known any more, so it cannot grow."""


@dataclass(frozen=True, slots=True, eq=False)
class Content:
    """What is kept of a document's content.

    Attributes:
        sketch: What is compared.
        token_count: Tokens, 65,535 for more.
        element_count: Tokens or characters, whatever shingles are made of; 65,535 for more.
        tail: Hashes of the last elements, one fewer than a shingle has, uint64; of all while there are fewer.
        version: Digest of the text under which the document was first placed, if it has been continued since: pairs
            are known by it, so that those alerted before are not alerted again.
        life: Tells a document that was deleted and placed again from the one before: its pairs are alerted anew.
        frame_only: It consists of stop shingles only, so that these are what is compared, until something else is
            added.
    """

    sketch: Sketch
    token_count: int
    element_count: int
    tail: NDArray[np.uint64]
    version: bytes | None = None
    life: bytes | None = None
    frame_only: bool = False

    def encoded(self) -> bytes:
        """Return the binary form (module docstring)."""
        flags = _FORMAT | (_WITH_VERSION if self.version is not None else 0) | (_WITH_INCARNATION if self.life else 0)
        flags |= _FRAME_ONLY if self.frame_only else 0
        head = _HEADER.pack(flags, min(self.token_count, _MOST), min(self.element_count, _MOST), len(self.tail))
        tail = self.tail.astype("<u8", copy=False).tobytes()
        return b"".join((head, tail, self.version or b"", self.life or b"", sketches.encode(self.sketch)))


#: The content of a document without elements.
NOTHING: Final = Content(Sketch(0, hashes=np.empty(0, np.uint32)), 0, 0, np.empty(0, np.uint64))


def decode(data: bytes) -> Content:
    """Decode what `Content.encoded` made; the result owns its memory.

    Raises:
        ContentDamaged: The octets are no content of this version; the text says why.
    """
    tokens, elements, tail, version, life, sketch = _split(data)
    values = np.frombuffer(tail, "<u8").astype(np.uint64)
    return Content(_sketch(sketch), tokens, elements, values, version, life, bool(data[0] & _FRAME_ONLY))


def decode_sketch(data: bytes) -> Sketch:
    """Decode the sketch alone, for comparing.

    Raises:
        ContentDamaged: As `decode`.
    """
    return _sketch(_split(data)[-1])


def version_and_incarnation(data: bytes) -> tuple[bytes | None, bytes | None]:
    """Return version and life alone; None for the many without.

    Raises:
        ContentDamaged: As `decode`.
    """
    return (None, None) if data[:1] == _WITH_NEITHER else _split(data)[3:5]


def _sketch(data: bytes) -> Sketch:
    try:
        return sketches.decode(data)
    except ValueError as error:
        raise ContentDamaged(str(error)) from error


def _split(data: bytes) -> tuple[int, int, bytes, bytes | None, bytes | None, bytes]:
    if len(data) < _HEADER.size:
        raise ContentDamaged(f"a content has at least {_HEADER.size} octets, not {len(data)}")
    flags, tokens, elements, tail_count = _HEADER.unpack_from(data)
    if flags & 0xF0 != _FORMAT:
        raise ContentDamaged(f"a content of version {flags >> 4}; this program reads version {_FORMAT >> 4}")
    tail_end = _HEADER.size + 8 * tail_count
    version_end = tail_end + (_VERSION_SIZE if flags & _WITH_VERSION else 0)
    sketch_start = version_end + (_INCARNATION_SIZE if flags & _WITH_INCARNATION else 0)
    if len(data) < sketch_start:
        raise ContentDamaged(f"a content of {len(data)} octets is cut off")
    version, life = data[tail_end:version_end] or None, data[version_end:sketch_start] or None
    return tokens, elements, data[_HEADER.size : tail_end], version, life, data[sketch_start:]


def contents_of(shingles: ShingleBatch, made: SketchBatch) -> list[Content]:
    """Return the contents of a batch of texts.

    Args:
        shingles: Of each text.
        made: The sketch of each.
    """
    bounds = shingles.tail_offsets.tolist()
    return [
        Content(sketch, tokens, elements, shingles.tails[first:last].copy(), frame_only=frame_only)
        for sketch, tokens, elements, first, last, frame_only in zip(
            made,
            shingles.token_counts.tolist(),
            shingles.element_counts.tolist(),
            bounds[:-1],
            bounds[1:],
            shingles.stop_only.tolist(),
            strict=True,
        )
    ]


def encoded_contents(shingles: ShingleBatch, made: SketchBatch) -> list[bytes]:
    """Return the binary forms of `contents_of`, made for the whole batch at once.

    Args:
        shingles: Of each text.
        made: The sketch of each.
    """
    heads = np.empty(len(made), _HEADERS)
    heads["flags"] = np.where(shingles.stop_only, _FORMAT | _FRAME_ONLY, _FORMAT)
    heads["tokens"] = np.minimum(shingles.token_counts, _MOST)
    heads["elements"] = np.minimum(shingles.element_counts, _MOST)
    heads["tail"] = np.diff(shingles.tail_offsets)
    head_octets, size = heads.tobytes(), _HEADER.size
    tails = shingles.tails.astype("<u8", copy=False).tobytes()
    bounds = pairwise((8 * shingles.tail_offsets).tolist())
    return [
        b"".join((head_octets[size * row : size * (row + 1)], tails[first:last], sketch))
        for row, ((first, last), sketch) in enumerate(zip(bounds, made.encoded(), strict=True))
    ]


def grown(shingler: Shingler, sketcher: Sketcher, contents: Sequence[Content], texts: Sequence[str]) -> list[Content]:
    """Continue documents, each with a text on a new line.

    Args:
        shingler: Makes the shingles of the profile.
        sketcher: Makes its sketches.
        contents: n contents so far.
        texts: What follows each.

    Returns:
        What `contents_of` returns of the whole texts, with versions and lives kept.

    Raises:
        BagTooLarge: One of them is a bag beyond `exact_limit`.
    """
    empty = [not content.element_count for content in contents]
    more = shingler.continued([content.tail for content in contents], empty, texts)
    bounds, tails = more.offsets.tolist(), more.tail_offsets.tolist()
    results = []
    for at, content in enumerate(contents):
        if not more.element_counts[at]:
            results.append(content)
            continue
        hashes = more.hashes[bounds[at] : bounds[at + 1]]
        # A tail of all elements so far was joined to the text, and whatever single shingle it made is one no more.
        before = content.sketch if content.element_count >= shingler.options.size else None
        frame_only = bool(more.stop_only[at])
        if before is not None and before.count and content.frame_only != frame_only:
            # Stop shingles count no more, on whichever side of the seam they are.
            before, hashes = (None, hashes) if content.frame_only else (before, hashes[:0])
            frame_only = False
        results.append(
            replace(
                content,
                sketch=_joined(shingler, sketcher, before, hashes),
                token_count=content.token_count + int(more.token_counts[at]),
                element_count=content.element_count + int(more.element_counts[at]) - len(content.tail),
                tail=more.tails[tails[at] : tails[at + 1]].copy(),
                frame_only=frame_only,
            )
        )
    return results


def _joined(shingler: Shingler, sketcher: Sketcher, before: Sketch | None, hashes: NDArray[np.uint32]) -> Sketch:
    """Return the sketch of the union, in a bag of the sum."""
    family, limit = sketcher.family, sketcher.exact_limit
    if before is not None and before.hashes is None:
        if shingler.options.bag:
            raise BagTooLarge(f"a bag of more than {limit} shingles is kept by its signature and cannot be continued")
        assert before.signature is not None
        own = np.unique(hashes)
        offsets = np.array([0, len(own)], np.int64)
        signature = family.update(before.signature[np.newaxis], own, offsets)[0]
        return sketcher.estimated(before.count + len(own), signature)
    known = np.empty(0, np.uint32) if before is None or before.hashes is None else before.hashes
    if shingler.options.bag:
        hashes = _numbered(known, hashes)
    union = np.union1d(known, hashes)
    made, _ = sketcher.make(union, np.array([0, len(union)], np.int64))
    return made[0]


def _numbered(known: NDArray[np.uint32], hashes: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Give each occurrence of a shingle the number that follows those in a bag."""
    there = set(known.tolist())
    elements: set[int] = set()
    for shingle, count in zip(*(part.tolist() for part in np.unique(hashes, return_counts=True)), strict=True):
        first = 0
        while _occurrence(shingle, first) in there:
            first += 1
        elements.update(_occurrence(shingle, number) for number in range(first, first + count))
    return np.array(sorted(elements), np.uint32)


def _occurrence(shingle: int, number: int) -> int:
    return int(repetitions(np.array([shingle], np.uint64), np.array([number], np.int64))[0])
