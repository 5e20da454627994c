"""The codec of the values in Redis: index entries, pending matches, fences, high-water marks, announced attempts.

Besides this module only scripts know the stored forms. A change of a form raises ``LAYOUT``, and touches docs/format.md
(the fields in full), tests/format_vectors.py and the scripts that read the field:

- ``_entries.lua``: the fields of an index entry from digest to id, to compare two versions;
- ``set_clusters.lua``: the fields from offset to partition; it replaces first byte and cluster;
- ``_cluster_sets.lua``: times, positions and sources.

The parts of an index entry in order; bytes are counted from 0:

    head          big-endian: at byte 0 layout and flags, at 1 the content digest, at 17 the record time, at 25 the
                  offset, at 33 the length of the partition, at 35 the partition, then length and text of the id
    content       little-endian: the fields of ``documents.Content``, the sketch last (``index.sketch_codec``)
    source        8 bytes, if the first byte has the flag
    cluster       8 bytes, if the first byte has the flag: the entry names another document
"""

import struct
from collections.abc import Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Final, NamedTuple

import msgspec

from streamdedup.index.documents import SOURCE_BYTES, Content, IndexEntry, PendingMatches
from streamdedup.index.sketch_codec import StoredSketch, decode_sketches, encode_sketches
from streamdedup.index.values import PUBLISHED, AnnouncedAttempt, ClusterCounts
from streamdedup.position import PartitionIncarnation, Position
from streamdedup.wire import SCOPE_BYTES, Match

#: Version of the layout of all stored values, a part of the fingerprint of an index.
LAYOUT: Final = 2
#: First byte of an entry without cluster and source, and the flags for these; scripts read them.
_FIRST_BYTE = LAYOUT << 4
_IN_CLUSTER = 1
_HAS_SOURCE = 2
#: First and last byte of the digest in an entry.
DIGEST_RANGE: Final = (1, 16)
#: First byte, digest, record time, offset; the same and the length of the partition.
_HEAD, _HEAD_AND_LENGTH = struct.Struct(">B16sqq"), struct.Struct(">B16sqqH")
_NUMBER = struct.Struct(">q")
_LENGTH = struct.Struct(">H")
#: Flags, tokens, elements, hashes in the tail, distinct shingles.
_CONTENT = struct.Struct("<BHHBI")
#: By number of hashes in the tail: the tail; the fields of ``_CONTENT`` and the tail.
_TAILS = [struct.Struct(f"<{count}Q") for count in range(256)]
_CONTENTS = [struct.Struct(f"{_CONTENT.format}{count}Q") for count in range(256)]
# Flags of a content
_HAS_FIRST_DIGEST = 1
_HAS_INCARNATION = 2
_STOP_SHINGLES_ONLY = 4
_IS_SIGNATURE = 8
_HAS_SCOPE = 16
_HAS_CAPTION = 32
_KNOWN_FLAGS = 63  # the sum of these
_DIGEST_BYTES, _INCARNATION_BYTES = 16, 8


def encode_entries(entries: Sequence[IndexEntry]) -> list[bytes]:
    sketches = encode_sketches([entry.content.sketch for entry in entries])
    return [_encode_entry(entry, sketch) for entry, sketch in zip(entries, sketches, strict=True)]


def _encode_entry(entry: IndexEntry, encoded_sketch: bytes) -> bytes:
    content, position, tail = entry.content, entry.position, entry.content.tail
    document_id = entry.id.encode("utf-8", "surrogatepass")
    is_alone = entry.cluster == entry.number
    first_byte = _FIRST_BYTE | (0 if is_alone else _IN_CLUSTER) | (_HAS_SOURCE if content.source else 0)
    flags = (_IS_SIGNATURE if content.sketch.hashes is None else 0) | (_HAS_CAPTION if content.caption else 0)
    hashes = b""
    # One test for most entries, which have none of these.
    if content.stop_only or content.first_digest or content.incarnation or content.scope:
        flags |= (_STOP_SHINGLES_ONLY if content.stop_only else 0) | (_HAS_FIRST_DIGEST if content.first_digest else 0)
        flags |= (_HAS_INCARNATION if content.incarnation else 0) | (_HAS_SCOPE if content.scope else 0)
        hashes = b"".join(filter(None, (content.first_digest, content.incarnation, content.scope)))
    caption = bytes((len(content.caption),)) + content.caption if content.caption else b""
    counts = content.token_count, content.element_count, len(tail), content.sketch.count
    return b"".join(
        (
            _HEAD.pack(first_byte, entry.digest, entry.time_ms, position.offset),
            _encode_partition(position.partition_incarnation),
            _LENGTH.pack(len(document_id)),
            document_id,
            _CONTENTS[len(tail)].pack(flags, *counts, *tail),
            hashes,
            caption,
            encoded_sketch,
            content.source or b"",
            b"" if is_alone else _NUMBER.pack(entry.cluster),
        )
    )


class _ParsedEntry(NamedTuple):
    """A decoded index entry except for its sketch.

    Attributes:
        entry_arguments: Those of ``IndexEntry`` before the content.
        content_arguments: Those of ``Content`` after the sketch.
    """

    entry_arguments: tuple[int, str, bytes, Position, int, int]
    content_arguments: tuple[Any, ...]
    sketch: StoredSketch


def decode_entries(numbers: Sequence[int], stored: Sequence[bytes]) -> list[IndexEntry]:
    """Decode index entries, which share no memory with ``stored``; raise ``ValueError`` for a damaged one."""
    parsed = [_parse_entry(number, data) for number, data in zip(numbers, stored, strict=True)]
    try:
        sketches = decode_sketches([entry.sketch for entry in parsed])
    except ValueError as error:
        if len(parsed) > 1:
            # Decoded alone, the damaged sketch raises an error that names its entry.
            for number, data in zip(numbers, stored, strict=True):
                decode_entries([number], [data])
        raise ValueError(f"index entry {numbers[0]} is damaged: {error}") from error
    return [
        IndexEntry(*entry.entry_arguments, Content(sketch, *entry.content_arguments))
        for entry, sketch in zip(parsed, sketches, strict=True)
    ]


def _parse_entry(number: int, data: bytes) -> _ParsedEntry:
    """Decode all but the sketch."""
    # Empty data fails at the first ``unpack_from``.
    if data and data[0] >> 4 != LAYOUT:
        raise ValueError(f"index entry {number} is damaged: layout {data[0] >> 4}, expected {LAYOUT}")
    if data and data[0] & ~(_FIRST_BYTE | _IN_CLUSTER | _HAS_SOURCE):
        raise ValueError(f"index entry {number} is damaged: unknown first byte {data[0]:#x}")
    try:
        first_byte, digest, time_ms, offset, partition_length = _HEAD_AND_LENGTH.unpack_from(data)
        id_start = _HEAD_AND_LENGTH.size + partition_length + _LENGTH.size
        (id_length,) = _LENGTH.unpack_from(data, id_start - _LENGTH.size)
        id_end = id_start + id_length
        cluster, end = number, len(data)
        if first_byte & _IN_CLUSTER:
            end -= _NUMBER.size
            (cluster,) = _NUMBER.unpack_from(data, end)
        source = None
        if first_byte & _HAS_SOURCE:
            end -= SOURCE_BYTES
            source = data[end : end + SOURCE_BYTES]
        position = _decode_partition(data[_HEAD_AND_LENGTH.size : id_start - _LENGTH.size]).position_at(offset)
        document_id = data[id_start:id_end].decode("utf-8", "surrogatepass")
        content, sketch = _parse_content(data, id_end, end, source)
    except (struct.error, ValueError) as error:
        raise ValueError(f"index entry {number} is damaged: {error}") from error
    return _ParsedEntry((number, document_id, digest, position, time_ms, cluster), content, sketch)


def _parse_content(data: bytes, start: int, end: int, source: bytes | None) -> tuple[tuple[Any, ...], StoredSketch]:
    """Return the ``Content`` arguments after the sketch, and the sketch as stored."""
    flags, token_count, element_count, tail_count, shingle_count = _CONTENT.unpack_from(data, start)
    tail_start = start + _CONTENT.size
    first_digest_start = tail_start + _TAILS[tail_count].size
    incarnation_start = first_digest_start + (_DIGEST_BYTES if flags & _HAS_FIRST_DIGEST else 0)
    scope_start = incarnation_start + (_INCARNATION_BYTES if flags & _HAS_INCARNATION else 0)
    scope_end = scope_start + (SCOPE_BYTES if flags & _HAS_SCOPE else 0)
    sketch_start = scope_end
    if flags & _HAS_CAPTION:  # refused below if the length byte is cut off
        sketch_start += 1 + (data[scope_end] if scope_end < end else 0)
    if flags & ~_KNOWN_FLAGS:
        raise ValueError(f"unknown flags {flags:#x}")
    if sketch_start > end:
        raise ValueError(f"{len(data)} bytes, cut off or too long")
    content = (
        token_count,
        element_count,
        _TAILS[tail_count].unpack_from(data, tail_start),
        bool(flags & _STOP_SHINGLES_ONLY),
        data[first_digest_start:incarnation_start] or None,
        data[incarnation_start:scope_start] or None,
        source,
        data[scope_start:scope_end] or None,
        data[scope_end + 1 : sketch_start] or None,
    )
    return content, StoredSketch(data[sketch_start:end], shingle_count, bool(flags & _IS_SIGNATURE))


def encode_number(number: int) -> bytes:
    return _NUMBER.pack(number)


def decode_number(encoded: bytes) -> int:
    number: int = _NUMBER.unpack(encoded)[0]
    return number


def encode_position(position: Position) -> bytes:
    """Encode a position as in an index entry, from byte 25 to the end of the partition."""
    return _NUMBER.pack(position.offset) + _encode_partition(position.partition_incarnation)


def position_token(position: Position) -> bytes:
    """Return the 8 bytes that name a position in a claim: a digest, or zeros for ``PUBLISHED``.

    A digest, shorter than the text, suffices because claims only compare positions.
    """
    if position == PUBLISHED:
        return bytes(8)
    return blake2b(":".join(map(str, position)).encode(), digest_size=8).digest()


@lru_cache(maxsize=4096)
def _encode_partition(partition: PartitionIncarnation) -> bytes:
    text = str(partition).encode()
    return _LENGTH.pack(len(text)) + text


@lru_cache(maxsize=4096)
def _decode_partition(encoded: bytes) -> PartitionIncarnation:
    return PartitionIncarnation.parse(encoded.decode())


#: Counts of a cluster, and bytes of a member of its set: ``redis/lua/_cluster_sets.lua``.
_COUNTS, _MEMBER_BYTES = struct.Struct(">HHq6s6s"), 24


def decode_counts(reply: bytes) -> ClusterCounts:
    size, sources, earliest, since, until = _COUNTS.unpack_from(reply)
    return ClusterCounts(
        size, sources, earliest, int.from_bytes(since, signed=True), int.from_bytes(until, signed=True)
    )


def decode_cluster(reply: bytes) -> tuple[ClusterCounts, list[int]]:
    starts = range(_COUNTS.size, len(reply), _MEMBER_BYTES)
    return decode_counts(reply), [decode_number(reply[start : start + _NUMBER.size]) for start in starts]


#: First bytes of the fields of pending matches.
_MATCH, _DIGEST, _MISSING = b"m", b"d", b"u"
_encode_json = msgspec.json.Encoder().encode
_decode_match = msgspec.json.Decoder(Match).decode


def encode_pending(pending: PendingMatches) -> dict[bytes, bytes]:
    """Return hash fields: ``m`` and a pair key with a match in JSON, ``d`` with the digest, ``u`` empty.

    A field is left out if there is no such match or digest, ``u`` unless the document is missing.
    """
    fields = {_MATCH + key: _encode_json(match) for key, match in pending.matches.items()}
    if pending.digest is not None:
        fields[_DIGEST] = pending.digest
    if pending.document_missing:
        fields[_MISSING] = b""
    return fields


def decode_pending(fields: Mapping[bytes, bytes]) -> PendingMatches:
    """Decode hash fields; raise ``ValueError`` for a damaged one."""
    try:
        matches = {field[1:]: _decode_match(match) for field, match in fields.items() if field[:1] == _MATCH}
    except ValueError as error:  # msgspec's errors are ValueErrors
        raise ValueError(f"pending matches are damaged: {error}") from error
    return PendingMatches(matches, fields.get(_DIGEST), _MISSING in fields)


def count_claims(catalogue: bytes) -> int:
    """Return the sum of the third numbers of the generations in a catalogue (``redis/lua/_claims.lua``)."""
    return sum(int(generation.split()[2]) for generation in catalogue.split(b","))


def decode_high_water_mark(stored: bytes) -> tuple[int, int, str]:
    """Return offset, incarnation and topic id of a high-water mark (``redis/lua/raise_high_water_mark.lua``)."""
    offset, incarnation, topic_id, *_ = stored.decode().split(" ")
    return int(offset), int(incarnation), topic_id


def encode_attempt(attempt: AnnouncedAttempt) -> str:
    return f"{attempt.attempt_id} {attempt.start} {attempt.committed_id}"


def decode_attempt(stored: bytes) -> AnnouncedAttempt:
    """Decode an announced attempt; empty bytes are the default attempt."""
    attempt_id, start, committed_id, *_ = (*stored.decode().split(" "), "", "")
    return AnnouncedAttempt(attempt_id, int(start) if start else None, committed_id)


def encode_fence(generation: int, writer: bytes) -> str:
    return f"{generation}:{writer.hex()}"


def decode_generation(fence: bytes) -> int:
    return int(fence.partition(b":")[0])
