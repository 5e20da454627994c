"""The stored form of an index entry, which the Lua scripts read in part. A marker of a deletion has no id.

======  ======  ==========================================================
byte    length  what (numbers big-endian)
======  ======  ==========================================================
0       1       version of this layout in the upper half, 1 in the lower
                half where the entry names a cluster
1       16      digest of the content
17      8       record time, milliseconds since the epoch
25      8       offset
33      2       length p of the partition
35      p       partition as text, ``topic:number`` (``position.Log``)
35+p    2       length i of the id
37+p    i       id, UTF-8
37+p+i  rest    the encoded content (``content``)
end-8   8       number of the first document of the cluster, signed; absent
                where that is the document itself
======  ======  ==========================================================
"""

import struct
from functools import lru_cache
from hashlib import blake2b

from streamdedup.index.documents import IndexEntry
from streamdedup.position import Log, Position

_VERSION = 2
#: First byte of an entry without a cluster and with one; `lua/set_clusters.lua` turns the first into the second.
_ALONE, _IN_CLUSTER = _VERSION << 4, _VERSION << 4 | 1
_HEAD = struct.Struct(">B16sqqH")
_NUMBER = struct.Struct(">q")
_LENGTH = struct.Struct(">H")
_PLACE = struct.Struct(">qH")


def encode_number(number: int) -> bytes:
    """Encode a document number as the 8 bytes that keys and records hold."""
    return _NUMBER.pack(number)


def decode_number(member: bytes) -> int:
    """Return the document number in the last 8 bytes of a member of a bucket."""
    return int.from_bytes(member[-8:], "big", signed=True)


def encode_place(position: Position) -> bytes:
    """Encode a position as in an index entry, from the offset to the end of the partition."""
    log = _encode_log(position.log)
    return _PLACE.pack(position.offset, len(log)) + log


def position_token(position: Position) -> bytes:
    """Return the 8 bytes by which a claim knows a position: BLAKE2b of all that tells it from others.

    Claims only compare positions, and a digest takes less room than the text.
    """
    return blake2b(":".join(map(str, position)).encode(), digest_size=8).digest()


@lru_cache(maxsize=4096)
def _encode_log(log: Log) -> bytes:
    return str(log).encode()


def encode_entry(record: IndexEntry) -> bytes:
    """Encode an index entry; the document number is not part of it but of its key."""
    log = _encode_log(record.position.log)
    document_id = record.id.encode("utf-8", "surrogatepass")
    is_alone = record.cluster == record.number
    first = _ALONE if is_alone else _IN_CLUSTER
    head = _HEAD.pack(first, record.digest, record.time_ms, record.position.offset, len(log))
    cluster = b"" if is_alone else _NUMBER.pack(record.cluster)
    return b"".join((head, log, _LENGTH.pack(len(document_id)), document_id, record.content, cluster))


def decode_entry(number: int, data: bytes) -> IndexEntry:
    """Decode a record that ``encode_entry`` made.

    Raises:
        ValueError: It was not.
    """
    try:
        first, digest, time_ms, offset, length = _HEAD.unpack_from(data)
        if first not in (_ALONE, _IN_CLUSTER):
            raise ValueError(f"document record {number} has layout {first >> 4}, expected {_VERSION}")
        at = _HEAD.size + length
        partition = data[_HEAD.size : at].decode()
        (id_length,) = _LENGTH.unpack_from(data, at)
        id_end = at + _LENGTH.size + id_length
        content_end = len(data) if first == _ALONE else len(data) - _NUMBER.size
        if id_end > content_end:
            raise ValueError(f"document record {number} is damaged: cut off within the id")
        document_id = data[at + _LENGTH.size : id_end].decode("utf-8", "surrogatepass")
        position = Log.read(partition).at(offset)
        cluster = number if first == _ALONE else _NUMBER.unpack_from(data, content_end)[0]
    except (struct.error, UnicodeDecodeError) as error:
        raise ValueError(f"document record {number} is damaged: {error}") from error
    return IndexEntry(number, document_id, digest, position, time_ms, cluster, data[id_end:content_end])


def decode_mark(stored: bytes) -> tuple[int, str]:
    """Return the offset of a mark that ``lua/raise_mark.lua`` stored, and the id of the topic, empty when unknown."""
    offset, _, rest = stored.decode().partition(" ")
    ids = rest.partition(" ")[2]
    return int(offset), ids.partition(" ")[0]


def holding(generation: int, store: bytes) -> str:
    """Return what a fence holds: the generation, and which store has set it."""
    return f"{generation}:{store.hex()}"


def generation_of(fence: bytes) -> int:
    """Return the generation under which a fence was set."""
    return int(fence.partition(b":")[0])
