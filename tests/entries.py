"""Index entries for tests that look at the index and not at texts."""

from collections.abc import Iterable

import numpy as np

from streamdedup.index.documents import Content, IndexEntry, PendingMatches
from streamdedup.index.entries import decode_entries, encode_entries
from streamdedup.position import Partition, Position
from streamdedup.similarity.sketch import Sketch
from tests.alerts import a_match

PARTITION = Partition("articles", 0)


def content_of(name: bytes = b"a", hashes_count: int = 4) -> Content:
    """Return a content that differs from that of another name; ``hashes_count`` decides on its size."""
    first = int.from_bytes(name[-3:], "big")
    hashes = np.arange(first, first + hashes_count, dtype=np.uint32)
    return Content(Sketch(hashes_count, hashes), 3, 3, (first, 2**64 - 1))


def an_entry(
    number: int = 7, *, offset: int = 0, content: bytes = b"a", partition: Partition = PARTITION, time_ms: int = 1000
) -> IndexEntry:
    position = Position(*partition, offset)
    digest = content.ljust(16, b"\0")
    return IndexEntry(number, f"doc-{number}", digest, position, time_ms, number, content_of(content))


def encode_entry(entry: IndexEntry) -> bytes:
    (data,) = encode_entries([entry])
    return data


def decode_entry(number: int, data: bytes) -> IndexEntry:
    (entry,) = decode_entries([number], [data])
    return entry


def pending_of(pair_keys: Iterable[bytes] = (), name: str = "m") -> PendingMatches:
    """Return pending matches of pairs, which differ from those of another name."""
    match = a_match(name, Position("articles", 0, 1), digest="ab" * 16)
    return PendingMatches(dict.fromkeys(pair_keys, match))
