"""The stored form of a document record, which the Lua scripts read in part. A marker of a deletion has no id.

======  ======  ==========================================================
byte    length  what (numbers big-endian)
======  ======  ==========================================================
0       1       version of this layout
1       8       number of the first document of the cluster, signed
9       16      digest of the content
25      8       record time, milliseconds since the epoch
33      8       offset
41      2       length p of the partition
43      p       partition as text, ``topic:number`` (``position.Log``)
43+p    2       length i of the id
45+p    i       id, UTF-8
45+p+i  rest    the encoded content (``content``)
======  ======  ==========================================================
"""

import struct
from hashlib import blake2b

from streamdedup.position import Log, Position
from streamdedup.store.documents import StoredRecord

_VERSION = 1
_HEAD = struct.Struct(">Bq16sqqH")
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
    """Encode a position as it stands in a record, from the offset to the end of the partition."""
    partition = str(position.log).encode()
    return _PLACE.pack(position.offset, len(partition)) + partition


def position_token(position: Position) -> bytes:
    """Return the 8 bytes by which a claim knows a position: BLAKE2b of all that tells it from others.

    Claims only compare positions, and a digest takes less room than the text.
    """
    return blake2b(":".join(map(str, position)).encode(), digest_size=8).digest()


def encode_record(record: StoredRecord) -> bytes:
    """Encode a record; its number is not part of it but of its key."""
    partition = str(record.position.log).encode()
    document_id = record.id.encode("utf-8", "surrogatepass")
    head = _HEAD.pack(_VERSION, record.cluster, record.digest, record.time_ms, record.position.offset, len(partition))
    return b"".join((head, partition, _LENGTH.pack(len(document_id)), document_id, record.content))


def decode_record(number: int, data: bytes) -> StoredRecord:
    """Decode a record that ``encode_record`` made.

    Raises:
        ValueError: It was not.
    """
    try:
        version, cluster, digest, time_ms, offset, length = _HEAD.unpack_from(data)
        if version != _VERSION:
            raise ValueError(f"document record {number} has layout {version}, expected {_VERSION}")
        at = _HEAD.size + length
        partition = data[_HEAD.size : at].decode()
        (id_length,) = _LENGTH.unpack_from(data, at)
        id_end = at + _LENGTH.size + id_length
        if id_end > len(data):
            raise ValueError(f"document record {number} is damaged: cut off within the id")
        document_id = data[at + _LENGTH.size : id_end].decode("utf-8", "surrogatepass")
        position = Log.read(partition).at(offset)
    except (struct.error, UnicodeDecodeError) as error:
        raise ValueError(f"document record {number} is damaged: {error}") from error
    return StoredRecord(number, document_id, digest, position, time_ms, cluster, data[id_end:])


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
