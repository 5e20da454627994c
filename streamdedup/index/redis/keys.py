"""Redis keys of an index, and their slots.

A key is a hash tag, ``{prefix:profile:slot}``, a letter for its kind (docs/redis.md, Stored keys), and a name:
``{sd:articles:0}mnews:2`` is the high-water mark of partition 2 of ``news``. A change touches docs/redis.md,
docs/format.md, ``inspection.KINDS`` and the scripts that build the key.

The slots are the bands (times ``shards``), so that one script call serves all documents of a batch in one slot, on a
cluster too. Fences and announced attempts are in every slot, high-water marks in slot 0.

Scripts build most keys themselves, and a cluster checks declared keys only. While a hash slot of the cluster moves, its
keys are divided between two nodes; a script would not find a key on the other node, and would create the key a second
time. So each call declares a *guard*, a key that never exists: meanwhile both nodes refuse calls with such a key.
"""

from collections.abc import Iterable, Iterator, Sequence
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from streamdedup.index.entries import encode_number
from streamdedup.index.values import BandKeys
from streamdedup.position import Partition, PartitionIncarnation, Position


class Keys:
    """Keys and slots of one index.

    ``existence`` is a key that exists as long as the index does: the fingerprint, for a staging index its lease.
    """

    def __init__(self, namespace: str, bands: int, shards: int = 1, *, in_staging: bool = False) -> None:
        self.slots_count = bands * shards
        self._shards = shards
        self._tags = [f"{{{namespace}:{slot}}}".encode() for slot in range(self.slots_count)]
        self.staging = self._tags[0] + b"staging"
        self.fingerprint = self._tags[0] + b"fingerprint"
        self.existence = self.staging if in_staging else self.fingerprint
        self.dropping = self._tags[0] + b"dropping"

    # Slots

    def entry_slot(self, number: int) -> int:
        return number % self.slots_count

    def digest_slot(self, digest: bytes) -> int:
        """Return the slot for a content digest or a pair key."""
        return int.from_bytes(digest[:4], "big") % self.slots_count

    def partition_slot(self, partition: PartitionIncarnation) -> int:
        return crc32(str(partition).encode()) % self.slots_count

    def split_band_keys(self, band_keys: BandKeys) -> Iterator[tuple[int, NDArray[np.intp], bytes]]:
        """Yield each slot that has rows, these rows, and their joined band keys."""
        big_endian = band_keys.astype(">u4")
        # A shard has a range of band keys, which have 32 bits: number of the shard = band key * shards / 2^32.
        shard_of = (band_keys.astype(np.uint64) * np.uint64(self._shards)) >> np.uint64(32)
        for slot in range(self.slots_count):
            band, shard = divmod(slot, self._shards)
            rows = np.flatnonzero(shard_of[:, band] == shard)
            if rows.size:
                yield slot, rows, big_endian[rows, band].tobytes()

    # Keys, and prefixes of the keys that scripts build

    def guard(self, slot: int) -> bytes:
        """Return the guard: a key that never exists."""
        return self._tags[slot] + b"x"

    def buckets_prefix(self, slot: int) -> bytes:
        """Return the prefix of buckets; the rest depends on the layout."""
        return self._tags[slot] + b"b"

    def copies_prefix(self, slot: int) -> bytes:
        return self._tags[slot] + b"d"

    def copy_removals(self, slot: int) -> bytes:
        return self._tags[slot] + b"q"

    def entries_prefix(self, slot: int) -> bytes:
        return self._tags[slot] + b"r"

    def entry(self, number: int) -> bytes:
        return self.entries_prefix(self.entry_slot(number)) + encode_number(number)

    def cluster_sets_prefix(self, slot: int) -> bytes:
        return self._tags[slot] + b"g"

    def claim_pages_prefix(self, slot: int) -> bytes:
        return self._tags[slot] + b"c"

    def claim_catalogue(self, slot: int) -> bytes:
        return self._tags[slot] + b"k"

    def pending_matches_prefix(self, slot: int) -> bytes:
        """Return the prefix of pending matches; the text of the position follows (``Position.key``)."""
        return self._tags[slot] + b"p"

    def pending_matches(self, position: Position) -> bytes:
        return self.pending_matches_prefix(self.partition_slot(position.partition_incarnation)) + position.key.encode()

    def fence(self, slot: int, partition: Partition) -> bytes:
        return self._tags[slot] + b"f" + str(partition).encode()

    def announced(self, slot: int, partition: Partition) -> bytes:
        return self._tags[slot] + b"a" + str(partition).encode()

    def fenced_call_keys(self, slot: int, partitions: Sequence[bytes], writer: bytes, call_slot: int) -> list[bytes]:
        """Return the keys for ``lua/_fence.lua``: the guard, the fences, and the number of the writer's last call."""
        tag = self._tags[slot]  # for each call of a batch: keys of the guard and the fences, written out for speed
        return [tag + b"x", *map((tag + b"f").__add__, partitions), self._tags[call_slot] + b"o" + writer]

    def high_water_mark(self, partition: Partition) -> bytes:
        return self._tags[0] + b"m" + str(partition).encode()

    def document_count(self, time_slice: int) -> bytes:
        return self._tags[0] + b"h%d" % time_slice


def by_slot(slots: Iterable[int]) -> dict[int, list[int]]:
    """Return the rows by slot, ascending; ``slots`` has the slot of each row."""
    groups: dict[int, list[int]] = {}
    for row, slot in enumerate(slots):
        groups.setdefault(slot, []).append(row)
    return groups
