"""The keys of the Redis store.

Each key carries a hash tag, ``{prefix:profile:slot}``, where the slots are the bands (times ``shards``), so
that one script call serves all documents of a batch in one slot, on a cluster too:

=====================  =======  ==============================================================
key                    type     what
=====================  =======  ==============================================================
``{..:s}b`` + CRC-32   set      layout ``sets``: a bucket, the document numbers of one band key
``{..:s}b`` + gen.     string   layout ``packed``: pages and buckets of a page generation
``{..:s}b`` + page     hash     layout ``packed``: a bucket page (``lua/_pages.lua``)
``{..:s}b`` + bucket   string   layout ``packed``: a bucket that is too large for its page
``{..:s}d`` + digest   set      a bucket of exact copies: numbers of documents with this content
``{..:s}q``            hash     departures from these: how many, and the last of each cell of contents
``{..:s}r`` + number   string   a document record (layout: ``index.entries``)
``{..:s}c`` + page     hash     many claims: pair -> who owns it, who has asked last (``lua/_claims.lua``)
``{..:s}k``            string   the catalogue of the pages of claims
``{..:s}p`` + position hash     pair key -> match: the partners found for a position
``{..:s}f`` + part.    string   the fence of a partition, in every slot
``{..:s}a`` + part.    string   the last attempt announced for a partition, in every slot
``{..:s}o`` + store    string   number of a store's last call, in every slot; for an hour
``{..:0}m`` + part.    string   the mark of a partition, its incarnation, Kafka's ids of the topic
``{..:0}e`` + part.    string   where the last process to own a partition began to read it
``{..:s}l`` + slice    list     documents inserted long after their record times, with these;
                                slice of time, colon, log (``index.expiry_lists``)
``{..:s}n`` + slice    list     the claims that they made
``{..:0}t``            hash     event-time watermark of each partition
``{..:0}h`` + time     string   which documents came in a slice of time (HyperLogLog)
``{..:0}fingerprint``  string   the parameters that the index was built with, as JSON
``{..:0}draft``        string   in the fingerprint's place while the index is rebuilt: by whom
``{..:0}dropping``     string   there while the index is being deleted
``{..:s}x``                     never there, see below
=====================  =======  ==============================================================

A log is a partition in one incarnation of its topic: ``topic:number`` or ``topic@incarnation:number``. Positions
begin with it.

Slots: a bucket stands in the slot of its band, one of exact copies in that of the content, a record in that of its
number, a claim in that of its pair, partners and lists in that of their partition; nothing else decides it, so every
daemon finds the same place.

Scripts make the names of most of their keys themselves, and a cluster checks those that are declared only: while a slot
moves, a script would see a key that has moved already, or has not yet, as absent, and make it a second time. Each call
therefore declares a key that is never there as well: a call with two keys of which one is missing is refused as long as
its slot moves, on both sides.
"""

from collections.abc import Iterable, Iterator
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from streamdedup.index.entries import encode_number
from streamdedup.position import Log, Partition, Position


class Keys:
    """Names the place of each fact.

    Args:
        namespace: Prefix and profile, joined by a colon.
        bands: Bands of the banding.
        shards: Slots of each band.
        in_staging: Whether these are the keys of an index that is being rebuilt.

    Attributes:
        slots_count: How many slots there are.
        fingerprint: Key that is there while the index is: the fingerprint, or of one that is being rebuilt the draft.
        draft: Key of the draft.
        dropping: Key that is there while the index is being deleted.
        watermarks: Key of the event-time watermarks of all partitions.
    """

    def __init__(self, namespace: str, bands: int, shards: int = 1, *, in_staging: bool = False) -> None:
        self.slots_count = bands * shards
        self._shards = shards
        self._tags = [f"{{{namespace}:{slot}}}".encode() for slot in range(self.slots_count)]
        self.draft = self._tags[0] + b"draft"
        self.fingerprint = self.draft if in_staging else self._tags[0] + b"fingerprint"
        self.dropping = self._tags[0] + b"dropping"
        self.watermarks = self._tags[0] + b"t"

    def guard(self, slot: int) -> bytes:
        """Key of a slot that is never there, by which a script is refused while its slot moves."""
        return self._tags[slot] + b"x"

    def buckets(self, slot: int) -> bytes:
        """Prefix of the buckets of a slot, or of its bucket pages."""
        return self._tags[slot] + b"b"

    def copies(self, slot: int) -> bytes:
        """Prefix of the buckets of exact copies of a slot; the content digest (16 bytes) follows."""
        return self._tags[slot] + b"d"

    def records(self, slot: int) -> bytes:
        """Prefix of the records of a slot; the document number (8 bytes) follows."""
        return self._tags[slot] + b"r"

    def claims(self, slot: int) -> bytes:
        """Prefix of the pages of claims of a slot; numbers of generation and page follow."""
        return self._tags[slot] + b"c"

    def claim_catalogue(self, slot: int) -> bytes:
        """Key of the catalogue of the pages of claims of a slot."""
        return self._tags[slot] + b"k"

    def partners(self, slot: int) -> bytes:
        """Prefix of the partners of a slot; the position as text follows."""
        return self._tags[slot] + b"p"

    def record_slot(self, number: int) -> int:
        """Slot of a document's record."""
        return number % self.slots_count

    def copies_slot(self, digest: bytes) -> int:
        """Slot of the exact copies of a content."""
        return int.from_bytes(digest[:4], "big") % self.slots_count

    def departures(self, slot: int) -> bytes:
        """Key of the departures from the buckets of exact copies of a slot."""
        return self._tags[slot] + b"q"

    def claim_slot(self, pair_key: bytes) -> int:
        """Slot of a pair's claim."""
        return int.from_bytes(pair_key[:4], "big") % self.slots_count

    def log_slot(self, log: Log) -> int:
        """Slot of what is kept of a partition in one slot only."""
        return crc32(str(log).encode()) % self.slots_count

    def partner_slot(self, position: Position) -> int:
        """Slot of the partners of a position."""
        return self.log_slot(position.log)

    def band_of(self, slot: int) -> int:
        """Band whose buckets stand in a slot."""
        return slot // self._shards

    def rows_by_slot(self, band_keys: NDArray[np.uint32]) -> Iterator[tuple[int, NDArray[np.intp]]]:
        """Yield each slot with the rows whose bucket of that slot's band stands in it.

        Args:
            band_keys: (n, bands) band keys.
        """
        shard_of = (band_keys.astype(np.uint64) * np.uint64(self._shards)) >> np.uint64(32)
        for slot in range(self.slots_count):
            band, shard = divmod(slot, self._shards)
            yield slot, np.flatnonzero(shard_of[:, band] == shard)

    def by_record_slot(self, numbers: NDArray[np.int64]) -> list[tuple[int, NDArray[np.intp]]]:
        """Return the slots of document numbers, int64 (n,), each with the places of its numbers."""
        slots = numbers % self.slots_count
        return [(slot, np.flatnonzero(slots == slot)) for slot in np.unique(slots).tolist()]

    def record(self, number: int) -> bytes:
        """Key of a document's record."""
        return self.records(self.record_slot(number)) + encode_number(number)

    def fence(self, slot: int, partition: Partition) -> bytes:
        """Key of a partition's fence in one slot."""
        return self._tags[slot] + b"f" + str(partition).encode()

    def announced(self, slot: int, partition: Partition) -> bytes:
        """Key of the last attempt announced for a partition in one slot."""
        return self._tags[slot] + b"a" + str(partition).encode()

    def documents_listed(self, log: Log, at: int) -> bytes:
        """Key of the documents of a log that were listed in a slice of time."""
        return self._tags[self.log_slot(log)] + b"l%d:%b" % (at, str(log).encode())

    def claims_listed(self, log: Log, at: int) -> bytes:
        """Key of the claims of a log that were listed in a slice of time."""
        return self._tags[self.log_slot(log)] + b"n%d:%b" % (at, str(log).encode())

    def documents(self, at: int) -> bytes:
        """Key of the documents of a slice of time, counted from the epoch."""
        return self._tags[0] + b"h%d" % at

    def order(self, slot: int, store: bytes) -> bytes:
        """Key of the number of a store's last call in one slot."""
        return self._tags[slot] + b"o" + store

    def read_start(self, partition: Partition) -> bytes:
        """Key of the place at which the owner of a partition began to read."""
        return self._tags[0] + b"e" + str(partition).encode()

    def mark(self, partition: Partition) -> bytes:
        """Key of a partition's mark."""
        return self._tags[0] + b"m" + str(partition).encode()


def by_slot(slots: Iterable[int]) -> dict[int, list[int]]:
    """Group the places of a list by slot.

    Args:
        slots: The slot of each.
    """
    groups: dict[int, list[int]] = {}
    for index, slot in enumerate(slots):
        groups.setdefault(slot, []).append(index)
    return groups
