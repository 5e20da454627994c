"""Redis keys of an index: all modules of ``index.redis`` that name keys take them from ``Keys``.

A change touches docs/redis.md, docs/format.md, ``inspection.KINDS`` and the comments of the scripts that build the key.

Each key carries a hash tag, ``{prefix:profile:slot}``, and a letter for its kind: ``{sd:articles:0}mnews:2`` is the
high-water mark of partition 2 of ``news``. The slots are the bands (times ``shards``), so that one script call serves
all documents of a batch in one slot, on a cluster too:

=====================  =======  ==============================================================
key                    type     content
=====================  =======  ==============================================================
``{..:s}b`` + CRC      set      layout ``sets``: a bucket, the document numbers of one band
                                key (CRC-32)
``{..:s}b`` + CRC + :  set      layout ``sets``: its earlier part (``lua/_sets.lua``)
``{..:s}b`` + gen.     string   layout ``packed``: page and bucket counts of a page generation
... gen. + : + page    hash     layout ``packed``: a bucket page (``lua/_pages.lua``)
... gen. + := + CRC    string   layout ``packed``: a bucket that is too large for its page
``{..:s}d`` + digest   zset     a bucket of exact copies: document numbers with this content, by order of insertion
``{..:s}q``            hash     removals from these: how many, and the last in each cell of
                                contents (``lua/remove_copies.lua``)
``{..:s}r`` + number   string   an index entry (``index.entries``)
``{..:s}g`` + number   string   the set of the cluster with this first document
                                (``lua/_cluster_sets.lua``)
``{..:s}c`` + page     hash     many claims: pair -> owner (``lua/_claims.lua``)
``{..:s}k``            string   the catalogue of the claim pages
``{..:s}p`` + position hash     pending matches at a position (``index.entries``)
``{..:s}f`` + part.    string   partition fence, in every slot
``{..:s}a`` + part.    string   announced attempt for a partition, in every slot
``{..:s}o`` + writer   string   number of a writer's last call, for an hour: in every slot of a
                                cluster, else in slot 0 for all slots
``{..:0}m`` + part.    string   partition high-water mark, its incarnation, Kafka's topic ids
                                (``lua/raise_high_water_mark.lua``)
``{..:0}h`` + time     string   documents inserted in a slice of time (HyperLogLog)
``{..:0}fingerprint``  string   the parameters that the index was built with, as JSON
``{..:0}staging``      string   instead of the fingerprint while the index is rebuilt or
                                deleted: the process with the lease on the staging index
``{..:0}dropping``     string   exists while the index is being deleted
``{..:s}x``                     never exists, see below
=====================  =======  ==============================================================

A position begins with partition and topic incarnation: ``topic:partition:offset`` or
``topic@incarnation:partition:offset``.

The slot of a bucket is computed from band and band key, of a bucket of exact copies from the content, of an entry or a
cluster's set from the document number, of a claim from the pair, of pending matches from the partition.

Scripts build most keys themselves, and a cluster checks declared keys only. While a hash slot of the cluster moves, its
keys are divided between two nodes; a script would not find a key on the other node, and would create the key a second
time. So each call also declares a *guard*, a key that never exists: while a hash slot moves, both nodes refuse calls
that declare a missing key.
"""

from collections.abc import Iterable, Iterator, Sequence
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from streamdedup.index.entries import encode_number
from streamdedup.position import Partition, PartitionIncarnation, Position


class Keys:
    """Keys and slots of one index.

    Attributes:
        fingerprint: The parameters that the index was built with.
        existence: Key that exists as long as the index does: the fingerprint, for a staging index its lease.
        staging: Lease on the staging index.
        dropping: Key that exists while the index is being deleted.
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

    def split_band_keys(
        self, band_keys: NDArray[np.uint32], max_rows: int
    ) -> Iterator[tuple[int, NDArray[np.intp], bytes]]:
        """Yield for each script call the slot, its rows (documents), and the joined band keys of these rows.

        ``band_keys`` have the shape (n, bands); a call has at most ``max_rows`` of the n rows.
        """
        big_endian = band_keys.astype(">u4")
        # The shard is band key * shards / 2^32: equal ranges of band keys, which have 32 bits.
        shard_of = (band_keys.astype(np.uint64) * np.uint64(self._shards)) >> np.uint64(32)
        for slot in range(self.slots_count):
            band, shard = divmod(slot, self._shards)
            rows_of_slot = np.flatnonzero(shard_of[:, band] == shard)
            for start in range(0, len(rows_of_slot), max_rows):
                rows = rows_of_slot[start : start + max_rows]
                yield slot, rows, big_endian[rows, band].tobytes()

    # Keys, and prefixes of the keys that scripts build

    def guard(self, slot: int) -> bytes:
        """Return the guard: a key that never exists. A script that declares it is refused while the hash slot moves."""
        return self._tags[slot] + b"x"

    def buckets_prefix(self, slot: int) -> bytes:
        """Return the prefix for buckets; the rest depends on the layout (see the table above)."""
        return self._tags[slot] + b"b"

    def copies_prefix(self, slot: int) -> bytes:
        """Return the prefix for buckets of exact copies; the content digest (16 bytes) follows."""
        return self._tags[slot] + b"d"

    def copy_removals(self, slot: int) -> bytes:
        return self._tags[slot] + b"q"

    def entries_prefix(self, slot: int) -> bytes:
        """Return the prefix for index entries; the document number (8 bytes) follows."""
        return self._tags[slot] + b"r"

    def entry(self, number: int) -> bytes:
        return self.entries_prefix(self.entry_slot(number)) + encode_number(number)

    def cluster_sets_prefix(self, slot: int) -> bytes:
        """Return the prefix for the sets of clusters; the number of the first document (8 bytes) follows."""
        return self._tags[slot] + b"g"

    def claim_pages(self, slot: int) -> tuple[bytes, bytes]:
        """Return the prefix for claim pages (generation and page number follow), and the key of their catalogue."""
        return self._tags[slot] + b"c", self.claim_catalogue(slot)

    def claim_catalogue(self, slot: int) -> bytes:
        return self._tags[slot] + b"k"

    def pending_matches_prefix(self, slot: int) -> bytes:
        """Return the key prefix of pending matches; the position follows as text."""
        return self._tags[slot] + b"p"

    def pending_matches(self, position: Position) -> bytes:
        return self.pending_matches_prefix(self.partition_slot(position.partition_incarnation)) + position.key.encode()

    def fence(self, slot: int, partition: Partition) -> bytes:
        return self._tags[slot] + b"f" + str(partition).encode()

    def announced(self, slot: int, partition: Partition) -> bytes:
        return self._tags[slot] + b"a" + str(partition).encode()

    def fenced_call_keys(self, slot: int, partitions: Sequence[bytes], writer: bytes, call_slot: int) -> list[bytes]:
        """Return the keys for ``lua/_fence.lua``: the guard, the fences, and the number of the writer's last call.

        ``writer`` is the random name of the index object; the number of its last call is in ``call_slot``.
        """
        tag = self._tags[slot]
        # `guard` and `fence`, written out for speed: each call of a batch has these keys.
        return [tag + b"x", *map((tag + b"f").__add__, partitions), self._tags[call_slot] + b"o" + writer]

    def high_water_mark(self, partition: Partition) -> bytes:
        return self._tags[0] + b"m" + str(partition).encode()

    def document_count(self, time_slice: int) -> bytes:
        """Return the key that counts documents inserted in a time slice, numbered from the epoch."""
        return self._tags[0] + b"h%d" % time_slice


def by_slot(slots: Iterable[int]) -> dict[int, list[int]]:
    """Group rows by slot: return for each slot its rows, ascending. ``slots`` has the slot of each row."""
    groups: dict[int, list[int]] = {}
    for row, slot in enumerate(slots):
        groups.setdefault(slot, []).append(row)
    return groups
