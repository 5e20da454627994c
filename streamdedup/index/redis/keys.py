"""The keys of an index in Redis.

Each key carries a hash tag, ``{prefix:profile:slot}``. The slots are the bands (times ``shards``), so that one script
call serves all documents of a batch in one slot, on a cluster too:

=====================  =======  ==============================================================
key                    type     content
=====================  =======  ==============================================================
``{..:s}b`` + CRC-32   set      layout ``sets``: a bucket, the document numbers of one band key
``{..:s}b`` + gen.     string   layout ``packed``: numbers of pages and buckets of a page
                                generation
``{..:s}b`` + page     hash     layout ``packed``: a bucket page (``lua/_pages.lua``)
``{..:s}b`` + bucket   string   layout ``packed``: a bucket that is too large for its page
``{..:s}d`` + digest   set      a bucket of exact copies: numbers of documents with this content
``{..:s}q``            hash     removals from these: how many, and the last of each cell of
                                contents (``lua/remove_copies.lua``)
``{..:s}r`` + number   string   an index entry (``index.entries``)
``{..:s}c`` + page     hash     many claims: pair -> owner, last position (``lua/_claims.lua``)
``{..:s}k``            string   the catalogue of the pages of claims
``{..:s}p`` + position hash     pending matches of a position (``index.entries``)
``{..:s}f`` + part.    string   the fence of a partition, in every slot
``{..:s}a`` + part.    string   the announced attempt of a partition, in every slot
``{..:s}o`` + store    string   number of a store's last call, in every slot; for an hour
``{..:0}m`` + part.    string   the high-water mark of a partition, its incarnation, Kafka's
                                ids of the topic (``lua/raise_high_water_mark.lua``)
``{..:0}e`` + part.    string   where the last owner of a partition began to read
``{..:s}l`` + slice    list     documents inserted long after their record times; the key ends
                                with slice of time, colon, log (``index.expiry``)
``{..:s}n`` + slice    list     the claims that they asked for
``{..:0}t``            hash     event-time watermark of each partition
``{..:0}h`` + time     string   documents inserted in a slice of time (HyperLogLog)
``{..:0}fingerprint``  string   the parameters that the index was built with, as JSON
``{..:0}draft``        string   instead of the fingerprint while the index is rebuilt: name of
                                the process with the lease on the staging index
``{..:0}dropping``     string   exists while the index is being deleted
``{..:s}x``                     never exists, see below
=====================  =======  ==============================================================

A log is a partition in one incarnation of its topic: ``topic:number`` or ``topic@incarnation:number``. Positions begin
with it.

A bucket is in a slot of its band, a bucket of exact copies in the slot of the content, an entry in that of its number,
a claim in that of its pair, pending matches and lists in that of their partition. Nothing else decides, so every daemon
finds the same key.

Scripts build most of their keys themselves, and a cluster checks declared keys only. While a slot moves, each of the
two nodes has a part of the keys; a script would not find a key of the other node, and would create the key a second
time. So each call also declares a *guard*, a key that never exists: a call with two keys of which one is missing is
refused by both nodes while its slot moves.
"""

from binascii import crc_hqx
from collections.abc import Iterable, Iterator
from functools import lru_cache
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from streamdedup.index.entries import encode_number
from streamdedup.position import Log, Partition, Position


class Keys:
    """The keys of one index, and the slots that they are in.

    Args:
        namespace: Prefix and profile, joined by a colon.
        bands: Number of bands.
        shards: Slots of each band.
        in_staging: Whether these are the keys of a staging index.

    Attributes:
        slots_count: Number of slots.
        fingerprint: Key that exists as long as the index does; of a staging index, ``staging``.
        staging: Key of the lease on the staging index.
        dropping: Key that exists while the index is being deleted.
        watermarks: Key of the event-time watermarks.
    """

    def __init__(self, namespace: str, bands: int, shards: int = 1, *, in_staging: bool = False) -> None:
        self.slots_count = bands * shards
        self._shards = shards
        self._tags = [f"{{{namespace}:{slot}}}".encode() for slot in range(self.slots_count)]
        self.staging = self._tags[0] + b"draft"
        self.fingerprint = self.staging if in_staging else self._tags[0] + b"fingerprint"
        self.dropping = self._tags[0] + b"dropping"
        self.watermarks = self._tags[0] + b"t"

    # Slots

    def entry_slot(self, number: int) -> int:
        """Slot of the entry of a document."""
        return number % self.slots_count

    def copies_slot(self, digest: bytes) -> int:
        """Slot of the bucket of exact copies of a content."""
        return int.from_bytes(digest[:4], "big") % self.slots_count

    def claim_slot(self, pair_key: bytes) -> int:
        """Slot of the claim of a pair."""
        return int.from_bytes(pair_key[:4], "big") % self.slots_count

    def log_slot(self, log: Log) -> int:
        """Slot of the pending matches and the lists of a partition."""
        return crc32(str(log).encode()) % self.slots_count

    def calls_of_buckets(
        self, band_keys: NDArray[np.uint32], rows_of_call: int
    ) -> Iterator[tuple[int, NDArray[np.intp], bytes]]:
        """Yield for each call of a script: the slot, the rows with a bucket there, and their band keys, joined.

        Args:
            band_keys: Band keys, (n, bands).
            rows_of_call: Most rows of a call.
        """
        big_endian = band_keys.astype(">u4")
        shard_of = (band_keys.astype(np.uint64) * np.uint64(self._shards)) >> np.uint64(32)
        for slot in range(self.slots_count):
            band, shard = divmod(slot, self._shards)
            rows_of_slot = np.flatnonzero(shard_of[:, band] == shard)
            for first in range(0, len(rows_of_slot), rows_of_call):
                rows = rows_of_slot[first : first + rows_of_call]
                yield slot, rows, big_endian[rows, band].tobytes()

    # Keys, and prefixes of the keys that scripts build

    def guard(self, slot: int) -> bytes:
        """Key of a slot that never exists: a script that declares this key is refused while the slot moves."""
        return self._tags[slot] + b"x"

    def buckets(self, slot: int) -> bytes:
        """Prefix of the buckets or bucket pages of a slot."""
        return self._tags[slot] + b"b"

    def copies(self, slot: int) -> bytes:
        """Prefix of the buckets of exact copies of a slot; the content digest (16 bytes) follows."""
        return self._tags[slot] + b"d"

    def copy_removals(self, slot: int) -> bytes:
        """Key of the removals from the buckets of exact copies of a slot."""
        return self._tags[slot] + b"q"

    def entries(self, slot: int) -> bytes:
        """Prefix of the entries of a slot; the document number (8 bytes) follows."""
        return self._tags[slot] + b"r"

    def entry(self, number: int) -> bytes:
        """Key of the entry of a document."""
        return self.entries(self.entry_slot(number)) + encode_number(number)

    def claim_pages(self, slot: int) -> tuple[bytes, bytes]:
        """Prefix of the pages of claims of a slot, which the numbers of generation and page follow; their catalogue."""
        return self._tags[slot] + b"c", self.claim_catalogue(slot)

    def claim_catalogue(self, slot: int) -> bytes:
        """Key of the catalogue of the pages of claims of a slot."""
        return self._tags[slot] + b"k"

    def all_pending_matches(self, slot: int) -> bytes:
        """Prefix of the pending matches of a slot; the position as text follows."""
        return self._tags[slot] + b"p"

    def pending_matches(self, position: Position) -> bytes:
        """Key of the pending matches of a position."""
        return self.all_pending_matches(self.log_slot(position.log)) + position.key.encode()

    def fence(self, slot: int, partition: Partition) -> bytes:
        """Key of the fence of a partition in one slot."""
        return self._tags[slot] + b"f" + str(partition).encode()

    def announced(self, slot: int, partition: Partition) -> bytes:
        """Key of the announced attempt of a partition in one slot."""
        return self._tags[slot] + b"a" + str(partition).encode()

    def last_call(self, slot: int, store: bytes) -> bytes:
        """Key of the number of a store's last call in one slot."""
        return self._tags[slot] + b"o" + store

    def high_water_mark(self, partition: Partition) -> bytes:
        """Key of the high-water mark of a partition."""
        return self._tags[0] + b"m" + str(partition).encode()

    def read_start(self, partition: Partition) -> bytes:
        """Key of the place where the owner of a partition began to read."""
        return self._tags[0] + b"e" + str(partition).encode()

    def documents_listed(self, log: Log, at: int) -> bytes:
        """Key of the documents of a log that were listed in a slice of time."""
        return self._tags[self.log_slot(log)] + b"l%d:%b" % (at, str(log).encode())

    def claims_listed(self, log: Log, at: int) -> bytes:
        """Key of the claims of a log that were listed in a slice of time."""
        return self._tags[self.log_slot(log)] + b"n%d:%b" % (at, str(log).encode())

    def documents(self, at: int) -> bytes:
        """Key of the documents that were inserted in a slice of time, counted from the epoch."""
        return self._tags[0] + b"h%d" % at


def by_slot(slots: Iterable[int]) -> dict[int, list[int]]:
    """Group the indexes of a list by slot.

    Args:
        slots: Slot of each element of the list.
    """
    groups: dict[int, list[int]] = {}
    for index, slot in enumerate(slots):
        groups.setdefault(slot, []).append(index)
    return groups


#: Hash slots of a Redis Cluster.
_HASH_SLOTS = 16_384


@lru_cache(maxsize=4096)
def fullest_share(namespace: str, bands: int, shards: int, masters: int) -> float:
    """Return the share of the slots of an index that is on the fullest master of a cluster.

    Args:
        namespace: Prefix and profile, joined by a colon.
        bands: Number of bands.
        shards: Slots of each band.
        masters: Number of masters, each with an equal range of the hash slots.
    """
    owners = _hash_slots(namespace, bands * shards) * masters // _HASH_SLOTS
    return int(np.bincount(owners).max()) / (bands * shards)


@lru_cache(maxsize=32)
def _hash_slots(namespace: str, slots_count: int) -> NDArray[np.int64]:
    """Return the hash slot of each slot of an index: CRC-16 (XMODEM) of the hash tag, int64 (slots_count,)."""
    tags = (f"{namespace}:{slot}".encode() for slot in range(slots_count))
    return np.fromiter((crc_hqx(tag, 0) % _HASH_SLOTS for tag in tags), np.int64, slots_count)
