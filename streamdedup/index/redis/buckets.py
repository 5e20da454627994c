"""Buckets in Redis, a part of ``RedisIndex``: band buckets, in one of two layouts, and buckets of exact copies.

``sets``
    One Redis set per band and band key (CRC-32), members are document numbers; a larger bucket is two sets
    (``lua/_sets.lua``). An insertion takes the same commands at any index size, and ``SMEMBERS`` shows a bucket to an
    operator. A bucket with one document takes about 150 bytes, as every Redis key does.
``packed``
    Bucket pages: a hash holds about a hundred buckets as fields. A bucket with one document takes about 17 bytes; an
    insertion reads some more pages. For indexes that are limited by memory (``lua/_pages.lua``).

Both layouts return all members that were inserted during the last lifetime and not removed, and may return older ones.
Buckets of exact copies are sorted sets in both layouts. Rules 2 and 9 of ``index.contract`` explain the calls.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamdedup.index.redis.fenced import RedisPart
from streamdedup.index.redis.keys import by_slot
from streamdedup.index.redis.reading import SLICES_PER_LIFETIME
from streamdedup.index.redis.scripts import Call
from streamdedup.index.redis.servers import Command
from streamdedup.index.values import COPIES_CAP, SHOWN_OF_FULL, Fence, FoundNearCapacity, Hits


def _encode_texts(numbers: NDArray[np.int64]) -> bytes:
    return b" ".join([b"%d" % number for number in numbers.tolist()])


def _encode_packed(numbers: NDArray[np.int64]) -> bytes:
    return numbers.astype(">i8").tobytes()


def _decode_texts(members: Iterable[bytes]) -> list[int]:
    return list(map(int, members))


def _decode_packed(members: bytes) -> list[int]:
    numbers: list[int] = np.frombuffer(members, ">i8").tolist()
    return numbers


class BucketLayout(NamedTuple):
    """The form in which the scripts for a layout take document numbers, int64 (n,), and return them."""

    encode: Callable[[NDArray[np.int64]], bytes]
    decode: Callable[[Any], list[int]]


#: The layouts by NAME, the setting ``redis.bucket_layout``. Scripts: ``insert_NAME``, ``remove_NAME``,
#: ``look_up_NAME``.
LAYOUTS: Final = {
    "sets": BucketLayout(_encode_texts, _decode_texts),
    "packed": BucketLayout(_encode_packed, _decode_packed),
}


class RedisBuckets(RedisPart):
    def insert_and_look_up(
        self, numbers: Sequence[int], band_keys: NDArray[np.uint32], fences: Sequence[Fence]
    ) -> Hits:
        decode, cap = LAYOUTS[self.options.bucket_layout].decode, self.options.bucket_cap or 0
        calls, rows_of_call = self._bucket_calls("insert", numbers, band_keys, fences, [cap, SHOWN_OF_FULL])
        candidates: list[dict[int, int]] = [{} for _ in numbers]
        full: Counter[int] = Counter()
        near_capacity: set[int] = set()
        *replies, _ = self._run([*calls, self._count_call(numbers)])
        for rows, reply in zip(rows_of_call, replies, strict=True):
            # A flat list of pairs: row in the call, from 1 on, negative if the bucket is full; its members.
            for signed_row, members in zip(reply[::2], reply[1::2], strict=True):
                row = int(rows[abs(signed_row) - 1])
                co_members_count = _add_to_candidates(candidates[row], decode(members), numbers[row])
                if signed_row < 0:
                    full[row] += 1
                elif 0 < cap <= 2 * co_members_count:
                    near_capacity.add(row)
        return Hits(candidates, full, frozenset(near_capacity))

    def remove_from_buckets(
        self, numbers: Sequence[int], band_keys: NDArray[np.uint32], fences: Sequence[Fence]
    ) -> None:
        calls, _ = self._bucket_calls("remove", numbers, band_keys, fences)
        self._run(calls)

    def _bucket_calls(
        self,
        verb: str,
        numbers: Sequence[int],
        band_keys: NDArray[np.uint32],
        fences: Sequence[Fence],
        limits: Sequence[int] = (),
    ) -> tuple[list[Call], list[NDArray[np.intp]]]:
        """Return a call for each slot, and for each call its rows of ``numbers``.

        Only an insertion has ``limits``: cap of a bucket (0 for none), and number of members that a full bucket shows.
        """
        calls, rows_of_call = [], []
        script, encode = f"{verb}_{self.options.bucket_layout}", LAYOUTS[self.options.bucket_layout].encode
        numbers_array, encoded_fences = np.array(numbers, np.int64), self._encode_fences(fences)
        all_encoded = encode(numbers_array)
        for slot, rows, keys in self._keys.split_band_keys(band_keys):
            # Without shards each slot has all documents.
            encoded = all_encoded if len(rows) == len(numbers) else encode(numbers_array[rows])
            arguments = [self._keys.buckets_prefix(slot), self.options.lifetime_ms, *limits, keys, encoded]
            calls.append(self._fenced_call(script, slot, encoded_fences, arguments, len(rows)))
            rows_of_call.append(rows)
        return calls, rows_of_call

    def _count_call(self, numbers: Sequence[int]) -> Call:
        # `count_documents` reads a slice until all its documents have expired: a lifetime and a slice after its start.
        lifetime_ms = self.options.lifetime_ms + self.options.lifetime_ms // SLICES_PER_LIFETIME
        elements = np.array(numbers, ">i8").tobytes()
        key = self._keys.document_count(self._document_slice())
        return Call("count_documents", [key], [lifetime_ms, elements], len(numbers))

    def remove_copies(self, documents: Sequence[tuple[int, bytes]], fences: Sequence[Fence]) -> None:
        slots = [self._keys.digest_slot(digest) for _, digest in documents]
        removed = [(digest, number) for number, digest in documents]
        self._run_by_slot("remove_copies", slots, fences, self._copies_arguments, removed)

    def copy_removals(self) -> dict[int, int]:
        keys = [self._keys.copy_removals(slot) for slot in self._slots]
        counts = self._servers.ask_many([Command(key, ("HGET", key, "count")) for key in keys])
        return {slot: int(count or 0) for slot, count in enumerate(counts)}

    def insert_copies(
        self,
        documents: Sequence[tuple[int, bytes]],
        fences: Sequence[Fence],
        near_capacity: FoundNearCapacity | None = None,
    ) -> list[list[int]]:
        outside = near_capacity or FoundNearCapacity((), {})  # documents outside the batch
        groups = by_slot(self._keys.digest_slot(digest) for _, digest in documents)
        outside_groups = by_slot(self._keys.digest_slot(digest) for _, digest in outside.documents)
        calls, encoded_fences = [], self._encode_fences(fences)
        rows_of_call: list[list[int]] = []
        for slot in outside_groups | groups:
            rows, outside_rows = groups.get(slot, []), outside_groups.get(slot, [])
            inserted = [*(outside.documents[row] for row in outside_rows), *(documents[row] for row in rows)]
            arguments = [
                *self._copies_arguments(slot),
                self.options.lifetime_ms,
                COPIES_CAP,
                outside.removals.get(slot, 0),
                len(outside_rows),
                *chain.from_iterable((digest, number) for number, digest in inserted),
            ]
            calls.append(self._fenced_call("insert_copies", slot, encoded_fences, arguments))
            rows_of_call.append(rows)
        copies: list[list[int]] = [[] for _ in documents]
        for rows, reply in zip(rows_of_call, self._run(calls), strict=True):  # no replies for ``outside``
            for row, members in zip(rows, reply, strict=True):
                copies[row] = [int(member) for member in members]
        return copies

    def _copies_arguments(self, slot: int) -> tuple[bytes, bytes]:
        return self._keys.copies_prefix(slot), self._keys.copy_removals(slot)


def _add_to_candidates(candidates: dict[int, int], members: Sequence[int], document: int) -> int:
    """Count a shared bucket for each member except the document itself; return the number of these members."""
    for number in members:
        if number != document:
            candidates[number] = candidates.get(number, 0) + 1
    return len(members) - (document in members)
