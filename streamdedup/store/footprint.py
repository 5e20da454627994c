"""How many bytes an index takes in Redis or Valkey, computed from what is stored and how the servers store it.

A model of `used_memory`: what the server's allocator hands out for each key, plus the server's two tables, of keys and
of times to live. It was read off servers into which keys of one kind and length were put, 60,000 at a time, and agrees
with those measurements of strings (key and value lengths up to 1,000) within 2 bytes a key. How far it is off for whole
indexes: docs/tuning.md.

    Redis 7.0, jemalloc     an entry (24), the key's string, an object (16) with its value inside (up to 44 bytes) or
                            beside it; an entry more for a time to live; both tables 8 bytes for each of 2^i places
    Valkey 9.1, libc        one block of object, time to live, key and value together, up to 128 bytes; a longer value
                            and a list stand beside it; tables of 2^i buckets of 64 bytes for 7 keys, and more where
                            eight keys meet in one

Buckets stand on shelves, sorted sets of many of them (`lua/_shelves.lua`): how many members one has is Poisson
distributed. Up to 128 are kept as a list. Claims are on pages, hashes of many of them (`lua/_claims.lua`), kept as
lists as well; they live for two to three lifetimes.

A string of n bytes takes n + 1 and a head of 1, 3 or 5 bytes, a list of n members 7 + 21 n; the allocator rounds each
block up. The tables double, so the bytes of a document depend on the number of documents. Pure computation: no server
is asked.
"""

import itertools
import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from streamdedup.store.redis_figures import SLICES_COUNT

#: Bytes of a document's record besides partition, id and sketch: see store.records.
_RECORD_BYTES: Final = 45
#: Bytes that follow the prefix of a key: the kind, then number of the layer and colon, document number or pair.
_SHELF_KEY, _RECORD_KEY, _CLAIM_PAGE_KEY = 1 + 2, 1 + 8, 1 + 2
#: Members for each shelf with which a slot gets another one, and how many shelves it has at least.
_FULL_SHELF, _FEWEST_SHELVES = 16, 1024
#: For how many lifetimes a member stands on its shelf, in the mean and at most: eras of half of one, the rest of that
#: in which it came, two more, and some of the next.
_LIFETIMES_ON_SHELF, _MOST_LIFETIMES_ON_SHELF = 1.3, 1.5
#: Claims for each page with which a slot gets another one; bytes of a claim in the list of its page (12 of the pair, 12
#: of the two positions, and what divides them).
_FULL_CLAIM_PAGE, _LISTED_CLAIM_BYTES = 32, 28
#: Generations of pages that hold claims, by the share of a lifetime for which each has taken them, in the mean.
_CLAIM_GENERATIONS: Final = (1.0, 1.0, 0.5)
#: Largest value that Redis 7 keeps inside its object, bytes.
_REDIS_EMBEDDED: Final = 44
#: Largest block in which Valkey keeps key and value together, bytes.
_VALKEY_EMBEDDED: Final = 128
#: Keys in one bucket of Valkey's tables, and its bytes.
_VALKEY_KEYS, _VALKEY_BUCKET = 7, 64
#: A counter of documents of one slice of time (HyperLogLog), bytes; fences and scripts, about.
_COUNTER_BYTES: Final = 12_304
_FIXED_BYTES: Final = 200_000
#: Most members of a sorted set that the servers keep as a list; bytes of a list and of each member there (13 of its
#: own, a score of 32 bits, and what divides them).
_LISTED_MEMBERS, _LIST_BYTES, _LISTED_BYTES = 128, 7, 21
#: What a member costs beyond, measured with sorted sets of 150 to 500: 112 to 129 bytes in Redis 7, 80 to 83 in Valkey.
_LOOSE_IN_REDIS, _LOOSE_IN_VALKEY = 125, 81


@dataclass(frozen=True, slots=True)
class Buckets:
    """The buckets of an index.

    Attributes:
        count: How many there are.
        members_count: Members of all of them.
        large_members_count: Those that are in buckets too large to be kept in a list.
    """

    count: float
    members_count: float
    large_members_count: float


@dataclass(frozen=True, slots=True)
class ServerModel:
    """How a server stores keys.

    Attributes:
        name: Of the server, for people.
        is_valkey: Keys and values in one block, tables of buckets; else as Redis 7 does.
        is_libc: The allocator is that of the C library; else jemalloc.
    """

    name: str
    is_valkey: bool
    is_libc: bool

    def blocks(self, sizes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return what the allocator takes for blocks of such sizes, bytes, int64 (n,)."""
        sizes = np.asarray(sizes, np.int64)
        if self.is_libc:
            rounded: NDArray[np.int64] = np.maximum((sizes + 23) // 16 * 16 - 8, 24)
            return rounded
        # Four classes between two powers of two, at least 16 bytes apart.
        power = np.frexp(np.maximum(sizes - 1, 1).astype(np.float64))[1].astype(np.int64)
        step = np.maximum(np.int64(1) << np.maximum(power - 3, 0), 16)
        return np.asarray(-(-sizes // step) * step, np.int64)

    def block(self, size: int) -> int:
        """Return what the allocator takes for one block, bytes."""
        return int(self.blocks(np.array([size]))[0])

    def strings(self, key_bytes: int, value_bytes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return what keys with a string and a time to live take without the tables, bytes, int64 (n,).

        Args:
            key_bytes: Length of each key.
            value_bytes: Lengths of the values, int64 (n,).
        """
        values = np.asarray(value_bytes, np.int64)
        beside = self.blocks(values + _heads(values) + 1)
        if self.is_valkey:
            key = _string(key_bytes) + 1
            together = 8 + 8 + key + values + 3 + 1
            parted = self.block(16 + 8 + key) + beside
            return np.where(together <= _VALKEY_EMBEDDED, self.blocks(together), parted)
        object_bytes = np.where(values <= _REDIS_EMBEDDED, self.blocks(16 + 3 + values + 1), self.block(16) + beside)
        return np.asarray(2 * self.block(24) + self.block(_string(key_bytes)) + object_bytes, np.int64)

    def set_key(self, key_bytes: int) -> int:
        """Return what a sorted set with a time to live takes without its list and the tables, bytes."""
        if self.is_valkey:
            return self.block(16 + 8 + _string(key_bytes) + 1)
        return 2 * self.block(24) + self.block(_string(key_bytes)) + self.block(16)

    def lists(self, counts: NDArray[np.int64], member_bytes: int = _LISTED_BYTES) -> NDArray[np.int64]:
        """Return what the lists of shelves or pages with so many members take, bytes, int64 (n,)."""
        return self.blocks(_LIST_BYTES + member_bytes * np.asarray(counts, np.int64))

    def table(self, keys_count: float) -> float:
        """Return the bytes of one of the server's tables."""
        if keys_count < 1:
            return 0.0
        if not self.is_valkey:
            return 8.0 * (1 << max(0, math.ceil(math.log2(keys_count))))
        buckets = float(1 << max(0, math.ceil(math.log2(keys_count / _VALKEY_KEYS))))
        return buckets * (_VALKEY_BUCKET + self.block(_VALKEY_BUCKET) * _further_buckets(keys_count / buckets))


#: The servers that were measured. The wheel of the demo brings a Valkey that uses the C library's allocator; a Valkey
#: built as usual uses jemalloc, whose classes are those of Redis.
REDIS_7: Final = ServerModel("Redis 7", is_valkey=False, is_libc=False)
VALKEY_9: Final = ServerModel("Valkey 9", is_valkey=True, is_libc=False)


def model_of(name: str, allocator: str) -> ServerModel:
    """Return the model of a server.

    Args:
        name: As in "Valkey 9.1.2".
        allocator: As the server names it, "jemalloc-5.3.0" or "libc".
    """
    return ServerModel(name, name.startswith("Valkey"), allocator.startswith("libc"))


@dataclass(frozen=True, slots=True)
class Layout:
    """How long the keys of an index are.

    Attributes:
        namespace_bytes: Length of prefix and profile, joined by a colon.
        slots_count: Slots: bands times shards.
        partition_bytes: Length of a partition as text, ``topic:number``.
    """

    namespace_bytes: int
    slots_count: int
    partition_bytes: int

    def key_lengths(self, rest_bytes: int) -> list[tuple[int, float]]:
        """Return the lengths of the keys ``{namespace:slot}`` with what follows, and which share of keys has each."""
        digits = np.bincount([len(str(slot)) for slot in range(self.slots_count)])
        shares = digits / self.slots_count
        return [
            (3 + self.namespace_bytes + count + rest_bytes, float(share)) for count, share in enumerate(shares) if share
        ]


def record_bytes(layout: Layout, id_bytes: NDArray[np.int64], sketch_bytes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the lengths of records, int64 (n,).

    Args:
        layout: Of the index.
        id_bytes: Lengths of the ids, UTF-8, int64 (n,).
        sketch_bytes: Lengths of the encoded sketches, int64 (n,).
    """
    return _RECORD_BYTES + layout.partition_bytes + id_bytes + sketch_bytes


def buckets_of(members: NDArray[np.int64]) -> Buckets:
    """Return the buckets with so many members each, int64 (n,)."""
    return Buckets(len(members), int(members.sum()), int(members[members > _LISTED_MEMBERS].sum()))


def _shelves(server: ServerModel, layout: Layout, buckets: Buckets, *, filling: bool) -> tuple[float, float]:
    """Return how many shelves an index has, and the bytes of all without the tables."""
    listed = (buckets.members_count - buckets.large_members_count) / layout.slots_count
    loose = buckets.large_members_count / layout.slots_count
    mean, most = (1.0, 1.0) if filling else (_LIFETIMES_ON_SHELF, _MOST_LIFETIMES_ON_SHELF)
    shelves = max(float(_FEWEST_SHELVES), most * (listed + loose) / _FULL_SHELF)
    together = buckets.members_count / max(buckets.count, 1.0)
    keys, size = _layer(server, layout, shelves, mean * listed, together)
    loose_bytes = mean * loose * (_LOOSE_IN_VALKEY if server.is_valkey else _LOOSE_IN_REDIS)
    return layout.slots_count * keys, layout.slots_count * (size + loose_bytes)


def _layer(
    server: ServerModel, layout: Layout, shelves: float, members_count: float, together: float
) -> tuple[float, float]:
    """Return how many shelves of a slot are not empty, and their bytes; ``together``: members a bucket."""
    keys, lists = _divided(server, shelves, float(_FEWEST_SHELVES), members_count, together)
    key = sum(
        share * digit_share * server.set_key(length + digits)
        for digits, digit_share in _digits(round(shelves))
        for length, share in layout.key_lengths(_SHELF_KEY)
    )
    return keys, keys * key + lists


def _divided(
    server: ServerModel,
    shelves: float,
    least: float,
    members_count: float,
    together: float,
    member_bytes: int = _LISTED_BYTES,
) -> tuple[float, float]:
    """Return how many of the shelves of a linear hash table are not empty, and the bytes of their lists.

    Args:
        server: Where they are.
        shelves: Shelves, at least ``least``.
        least: Shelves at the beginning, a power of two.
        members_count: Members of all of them.
        together: Members that are always on one shelf, in the mean.
        member_bytes: Bytes of a member in a list.
    """
    # Shelves that were divided already have half the load of those that were not.
    while 2 * least <= shelves:
        least *= 2
    parted, whole = 2 * (shelves - least), 2 * least - shelves
    each = members_count / (2 * least)
    kinds = [(parted, each), (whole, 2 * each)]
    found = [_alike(server, count, load, together, member_bytes) for count, load in kinds if count >= 1 and load > 0]
    return sum(keys for keys, _ in found), sum(size for _, size in found)


def _claims(server: ServerModel, layout: Layout, claims: float, *, filling: bool) -> tuple[float, float]:
    """Return how many pages of claims an index has, and the bytes of all without the tables.

    Args:
        server: Where the index is.
        layout: Of its keys.
        claims: Pairs that are claimed in a lifetime.
        filling: There has been one lifetime so far.
    """
    keys, size = 0.0, 0.0
    for share in (1.0,) if filling else _CLAIM_GENERATIONS:
        in_slot = share * claims / layout.slots_count
        pages = max(1.0, in_slot / _FULL_CLAIM_PAGE)
        if in_slot > 0:
            found, lists = _divided(server, pages, 1.0, in_slot, 1.0, _LISTED_CLAIM_BYTES)
            key = sum(
                one * server.set_key(length + len(str(round(pages))))
                for length, one in layout.key_lengths(_CLAIM_PAGE_KEY)
            )
            keys, size = keys + found, size + lists + found * key
    return layout.slots_count * keys, layout.slots_count * size


def _alike(server: ServerModel, shelves: float, load: float, together: float, member_bytes: int) -> tuple[float, float]:
    """Return how many of some shelves are not empty, and the bytes of their lists; ``load``: members of each."""
    buckets = load / together
    counts = np.arange(1, int(buckets + 12 * math.sqrt(buckets) + 12))
    chances = np.exp(counts * math.log(buckets) - buckets - np.array([math.lgamma(one + 1) for one in counts]))
    sizes = server.lists(np.rint(counts * together).astype(np.int64), member_bytes)
    return shelves * float(chances.sum()), shelves * float((chances * sizes).sum())


def _digits(shelves: int) -> list[tuple[int, float]]:
    """Return the numbers of digits that the shelves of a layer have, and which share has each."""
    bounds = [0, *(10**digits for digits in range(1, len(str(shelves - 1)))), shelves]
    return [(at + 1, (high - low) / shelves) for at, (low, high) in enumerate(itertools.pairwise(bounds))]


def index_bytes(
    server: ServerModel,
    layout: Layout,
    record_lengths: NDArray[np.int64],
    documents: float,
    buckets: Buckets,
    claims: float,
    *,
    filling: bool = False,
) -> float:
    """Return the bytes of an index.

    Args:
        server: Where it is.
        layout: Of its keys.
        record_lengths: Lengths of some documents' records, the others being like them, int64 (n,), n at least 1.
        documents: Documents in the index.
        buckets: Its buckets.
        claims: Pairs that are claimed in a lifetime.
        filling: It was filled for the first time; else as many documents have expired as came.
    """
    record = sum(
        share * float(server.strings(length, record_lengths).mean())
        for length, share in layout.key_lengths(_RECORD_KEY)
    )
    pages_count, pages = _claims(server, layout, claims, filling=filling)
    shelves_count, shelves = _shelves(server, layout, buckets, filling=filling)
    keys = documents + shelves_count + pages_count
    counters = (SLICES_COUNT + 1) * server.block(_COUNTER_BYTES)
    return documents * record + shelves + pages + 2 * server.table(keys) + counters + _FIXED_BYTES


def _string(length: int) -> int:
    """Return the bytes of a key's string."""
    return length + (1 if length < 32 else 3) + 1


def _heads(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.where(lengths < 256, 3, 5)


def _further_buckets(load: float) -> float:
    """Return how many buckets more are chained to one, when so many keys fall into each in the mean.

    Their number is Poisson distributed; one of a chain that has a next one gives up a place for it.
    """
    return math.fsum(
        math.ceil((keys - _VALKEY_KEYS) / (_VALKEY_KEYS - 1))
        * math.exp(keys * math.log(load) - load - math.lgamma(keys + 1))
        for keys in range(_VALKEY_KEYS + 1, 60)
    )
