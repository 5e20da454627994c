"""Buckets in Redis, a part of ``RedisIndex``: band buckets, in one of two layouts, and buckets of exact copies.

``sets``
    A Redis set for each band and band key, with document numbers as members; a larger bucket is two sets
    (``lua/_sets.lua``). An insertion takes the same commands at any index size, and ``SMEMBERS`` shows a bucket to an
    operator. A bucket with one document takes about 150 bytes, as every Redis key does.
``packed``
    Bucket pages (``lua/_pages.lua``), for indexes that are limited by memory: hashes with up to a hundred buckets as
    fields. A bucket with one document takes about 17 bytes; an insertion reads some more pages.

Both layouts return all members that were inserted during the last lifetime and not removed, and may return older ones.
Buckets of exact copies are sorted sets in both. Rules 2 and 9 of ``index.contract`` explain the calls.
"""

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamdedup.index.redis.fenced import RedisPart
from streamdedup.index.redis.keys import by_slot
from streamdedup.index.redis.reading import SLICES_PER_LIFETIME
from streamdedup.index.redis.scripts import Call
from streamdedup.index.redis.servers import Command
from streamdedup.index.values import (
    COPIES_CAP,
    SHOWN_OF_FULL,
    BandKeys,
    Fences,
    FoundNearCapacity,
    Hits,
    HitsBuilder,
    NumberAndDigest,
)


class BucketLayout(NamedTuple):
    """The form in which the scripts of a layout take document numbers, int64 (n,), and return members."""

    encode: Callable[[NDArray[np.int64]], bytes]
    decode: Callable[[Any], list[int]]


#: By NAME, the setting ``redis.bucket_layout``. Scripts: ``insert_NAME``, ``remove_NAME``, ``look_up_NAME``.
LAYOUTS: Final = {
    "sets": BucketLayout(
        encode=lambda numbers: b" ".join([b"%d" % number for number in numbers.tolist()]),
        decode=lambda members: list(map(int, members)),
    ),
    "packed": BucketLayout(
        encode=lambda numbers: numbers.astype(">i8").tobytes(),
        decode=lambda members: np.frombuffer(members, ">i8").tolist(),
    ),
}


class RedisBuckets(RedisPart):
    def insert_and_look_up(self, numbers: Sequence[int], band_keys: BandKeys, fences: Fences) -> Hits:
        decode, cap = LAYOUTS[self.options.bucket_layout].decode, self.options.bucket_cap or 0
        calls, rows_of_call = self._bucket_calls("insert", numbers, band_keys, fences, [cap, SHOWN_OF_FULL])
        builder = HitsBuilder(numbers, self.options.bucket_cap)
        *replies, _ = self._run([*calls, self._count_call(numbers)])
        for rows, reply in zip(rows_of_call, replies, strict=True):
            # Pairs, flat: the row in the call, from 1 on, negative if the bucket is full; the members of the bucket.
            for signed_row, members in zip(reply[::2], reply[1::2], strict=True):
                builder.add(int(rows[abs(signed_row) - 1]), decode(members), is_full=signed_row < 0)
        return builder.hits()

    def remove_from_buckets(self, numbers: Sequence[int], band_keys: BandKeys, fences: Fences) -> None:
        calls, _ = self._bucket_calls("remove", numbers, band_keys, fences)
        self._run(calls)

    def _bucket_calls(
        self, verb: str, numbers: Sequence[int], band_keys: BandKeys, fences: Fences, limits: Sequence[int] = ()
    ) -> tuple[list[Call], list[NDArray[np.intp]]]:
        """Return a call for each slot, and for each call its rows of ``numbers``.

        Only an insertion has ``limits``: cap of a bucket (0 for none), and number of members that a full bucket shows.
        """
        calls, rows_of_call = [], []
        layout, encode = self.options.bucket_layout, LAYOUTS[self.options.bucket_layout].encode
        all_numbers, encoded_fences = np.array(numbers, np.int64), self._encode_fences(fences)
        all_encoded = encode(all_numbers)
        for slot, rows, keys in self._keys.split_band_keys(band_keys):
            # Without shards each slot has all documents.
            encoded = all_encoded if len(rows) == len(numbers) else encode(all_numbers[rows])
            arguments = [self._keys.buckets_prefix(slot), self.options.lifetime_ms, *limits, keys, encoded]
            calls.append(self._fenced_call(f"{verb}_{layout}", slot, encoded_fences, arguments, len(rows)))
            rows_of_call.append(rows)
        return calls, rows_of_call

    def _count_call(self, numbers: Sequence[int]) -> Call:
        """Return the call that counts documents in the present time slice (``RedisReading.count_documents``)."""
        # The slice is read until all its documents have expired: a lifetime and a slice after its start.
        lifetime_ms = self.options.lifetime_ms + self.options.lifetime_ms // SLICES_PER_LIFETIME
        elements = np.array(numbers, ">i8").tobytes()
        key = self._keys.document_count(self._present_slice())
        return Call("count_documents", [key], [lifetime_ms, elements], len(numbers))

    def remove_copies(self, documents: Sequence[NumberAndDigest], fences: Fences) -> None:
        slots = [self._keys.digest_slot(digest) for _, digest in documents]
        removed = [(digest, number) for number, digest in documents]
        self._run_by_slot("remove_copies", slots, fences, self._copies_arguments, removed)

    def copy_removals(self) -> dict[int, int]:
        keys = [self._keys.copy_removals(slot) for slot in self._slots]
        counts = self._servers.ask_many([Command(key, ("HGET", key, "count")) for key in keys])
        return {slot: int(count or 0) for slot, count in enumerate(counts)}

    def insert_copies(
        self, documents: Sequence[NumberAndDigest], fences: Fences, near_capacity: FoundNearCapacity | None = None
    ) -> list[list[int]]:
        outside = near_capacity or FoundNearCapacity((), {})  # documents outside the batch
        groups = by_slot(self._keys.digest_slot(digest) for _, digest in documents)
        outside_groups = by_slot(self._keys.digest_slot(digest) for _, digest in outside.documents)
        slots = list(outside_groups | groups)
        encoded_fences = self._encode_fences(fences)
        calls = []
        for slot in slots:
            outside_documents = [outside.documents[row] for row in outside_groups.get(slot, [])]
            inserted = outside_documents + [documents[row] for row in groups.get(slot, [])]
            limits = [self.options.lifetime_ms, COPIES_CAP, outside.removals.get(slot, 0), len(outside_documents)]
            contents = chain.from_iterable((digest, number) for number, digest in inserted)
            arguments = [*self._copies_arguments(slot), *limits, *contents]
            calls.append(self._fenced_call("insert_copies", slot, encoded_fences, arguments))
        copies: list[list[int]] = [[] for _ in documents]
        for slot, reply in zip(slots, self._run(calls), strict=True):  # no replies for ``outside``
            for row, members in zip(groups.get(slot, []), reply, strict=True):
                copies[row] = [int(member) for member in members]
        return copies

    def _copies_arguments(self, slot: int) -> tuple[bytes, bytes]:
        return self._keys.copies_prefix(slot), self._keys.copy_removals(slot)
