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

Buckets are sets of their own (layout ``sets``), or fields of bucket pages (layout ``packed``, `lua/_pages.lua`): the
number of buckets on a page is Poisson distributed. Claims are on pages as well (`lua/_claims.lua`) and live for two
to three lifetimes.

A string of n bytes takes n + 1 and a head of 1, 3 or 5 bytes, a set of n numbers 8 + 8 n, a field of a page 8 + 8 n;
the allocator rounds each block up. The tables double, so the bytes of a document depend on the number of documents.
Pure computation: no server is asked.
"""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from streamdedup.store.redis_figures import SLICES_COUNT

#: Bytes of a document's record besides partition, id and sketch: see store.records.
_RECORD_BYTES: Final = 37
#: Bytes that follow the prefix of a key: the kind, then band key, document number, or number of a page.
_SET_KEY, _RECORD_KEY, _CLAIM_PAGE_KEY = 1 + 4, 1 + 8, 1 + 2
#: Bytes that follow the prefix of a page's key, besides the digits of its number: kind, generation, colon. Of the key
#: of a bucket that is too large for its page: kind, generation, two signs, band key.
_PAGE_KEY, _OWN_KEY = 1 + 3 + 1, 1 + 3 + 2 + 4
#: Buckets for each page with which a slot gets another one, how many pages a slot has at least, and most members that
#: a bucket has on its page.
_FULL_PAGE, _FEWEST_PAGES, _MOST_IN_PAGE = 64, 1024, 8
#: Lifetimes of documents in the bucket pages, mean: the generation before as a whole, half of the present one.
_LIFETIMES_IN_PAGES = 1.5
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
#: Most members of a set that the servers keep as a compact list of numbers, and the bytes of one member beyond.
_COMPACT_MEMBERS, _LOOSE_MEMBER_BYTES = 512, 64
#: Bytes of a page's list, and of a bucket there besides 8 for each member.
_LIST_BYTES, _FIELD_BYTES = 7, 8


@dataclass(frozen=True, slots=True)
class Buckets:
    """The buckets of an index.

    Attributes:
        count: How many there are.
        members_count: Members of all of them.
        sizes: Members of each bucket of a sample of them, int64 (n,).
    """

    count: float
    members_count: float
    sizes: NDArray[np.int64]


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
        """Return what a set or hash with a time to live takes without its members and the tables, bytes."""
        if self.is_valkey:
            return self.block(16 + 8 + _string(key_bytes) + 1)
        return 2 * self.block(24) + self.block(_string(key_bytes)) + self.block(16)

    def members(self, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the bytes of the members of sets with so many document numbers, int64 (n,)."""
        counts = np.asarray(counts, np.int64)
        return np.where(counts <= _COMPACT_MEMBERS, self.blocks(8 + 8 * counts), counts * _LOOSE_MEMBER_BYTES)

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
        packed: Whether the layout of the buckets is ``packed``, else ``sets``.
    """

    namespace_bytes: int
    slots_count: int
    partition_bytes: int
    packed: bool = False

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
    return Buckets(len(members), int(members.sum()), members)


def _sets(server: ServerModel, layout: Layout, buckets: Buckets) -> tuple[float, float]:
    """Return the number of keys of the buckets in the layout ``sets``, and their bytes without the tables."""
    compact = float((server.members(buckets.sizes) - 8 * buckets.sizes).mean()) if len(buckets.sizes) else 0.0
    key = sum(share * server.set_key(length) for length, share in layout.key_lengths(_SET_KEY))
    return buckets.count, buckets.count * (key + compact) + 8 * buckets.members_count


def _pages(server: ServerModel, layout: Layout, buckets: Buckets, *, filling: bool) -> tuple[float, float]:
    """Return the number of keys of the buckets in the layout ``packed``, and their bytes without the tables."""
    if not len(buckets.sizes):
        return 0.0, 0.0
    large = buckets.sizes > _MOST_IN_PAGE
    in_page = float(np.where(large, _FIELD_BYTES, _FIELD_BYTES + 8 * buckets.sizes).mean())
    own_count = buckets.count * float(large.mean())
    own = sum(
        share * float(server.strings(length, 8 * buckets.sizes[large]).mean())
        for length, share in layout.key_lengths(_OWN_KEY)
        if own_count
    )
    each = buckets.count / layout.slots_count
    pages = max(float(_FEWEST_PAGES), each / _FULL_PAGE)
    found, lists = _divided(server, pages, float(_FEWEST_PAGES), each, in_page)
    digits = len(str(int(pages - 1)))
    key = sum(share * server.set_key(length + digits) for length, share in layout.key_lengths(_PAGE_KEY))
    pages_count = layout.slots_count * found
    size = layout.slots_count * lists + pages_count * key + own_count * own
    generations = 1.0 if filling else _LIFETIMES_IN_PAGES
    return generations * (pages_count + own_count), generations * size


def _divided(server: ServerModel, pages: float, fewest: float, fields: float, bytes_each: float) -> tuple[float, float]:
    """Return how many pages of a linear hash table are not empty, and the bytes of their lists.

    Args:
        server: Where the pages are.
        pages: Pages, at least ``fewest``.
        fewest: Pages at the beginning, a power of two.
        fields: Fields of all pages.
        bytes_each: Bytes of a field in a list, mean.
    """
    # Pages that were divided already have half the load of those that were not.
    base = fewest
    while 2 * base <= pages:
        base *= 2
    load = fields / base
    kinds = [(2 * (pages - base), load / 2), (2 * base - pages, load)]
    found = [_alike(server, count, of, bytes_each) for count, of in kinds if count >= 1 and of > 0]
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
            found, lists = _divided(server, pages, 1.0, in_slot, _LISTED_CLAIM_BYTES)
            key = sum(
                one * server.set_key(length + len(str(round(pages))))
                for length, one in layout.key_lengths(_CLAIM_PAGE_KEY)
            )
            keys, size = keys + found, size + lists + found * key
    return layout.slots_count * keys, layout.slots_count * size


def _alike(server: ServerModel, pages: float, load: float, bytes_each: float) -> tuple[float, float]:
    """Return how many of some pages are not empty, and the bytes of their lists; ``load``: buckets of each."""
    counts = np.arange(1, int(load + 12 * math.sqrt(load) + 12))
    chances = np.exp(counts * math.log(load) - load - np.array([math.lgamma(one + 1) for one in counts]))
    sizes = server.blocks(np.rint(_LIST_BYTES + counts * bytes_each).astype(np.int64))
    return pages * float(chances.sum()), pages * float((chances * sizes).sum())


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
    if layout.packed:
        bucket_keys, bucket_bytes = _pages(server, layout, buckets, filling=filling)
    else:
        bucket_keys, bucket_bytes = _sets(server, layout, buckets)
    keys = documents + bucket_keys + pages_count
    counters = (SLICES_COUNT + 1) * server.block(_COUNTER_BYTES)
    return documents * record + bucket_bytes + pages + 2 * server.table(keys) + counters + _FIXED_BYTES


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
