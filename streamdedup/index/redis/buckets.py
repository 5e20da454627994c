"""The buckets of an index in Redis: those of the bands, in one of two layouts, and those of exact copies.

``sets``
    One Redis set per band and band key (CRC-32), members are document numbers. An insertion takes the same commands
    at any size of the index, and ``SMEMBERS`` shows a bucket to an operator. A bucket of one document takes about 150
    bytes, as every key of Redis does.
``packed``
    Bucket pages: a hash holds about a hundred buckets as fields. A bucket of one document takes about 17 bytes; an
    insertion reads some pages more. For indexes whose size decides (``lua/_pages.lua``).

Both return the same members: all that were inserted during the last lifetime and not removed, perhaps older ones too.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from streamdedup.index.expiry import SLICES_PER_LIFETIME
from streamdedup.index.redis.base import RedisPart
from streamdedup.index.redis.keys import by_slot
from streamdedup.index.redis.scripts import Call
from streamdedup.index.redis.servers import Command
from streamdedup.index.values import COPIES_CAP, SHOWN_OF_FULL, Fence, FoundNearCapacity, Hits

#: Documents of one script call, which keeps the server busy for some 3 ms.
CALL_DOCUMENTS: Final = 1_000


def _texts(numbers: NDArray[np.int64]) -> bytes:
    return b" ".join([b"%d" % number for number in numbers.tolist()])


def _packed(numbers: NDArray[np.int64]) -> bytes:
    return numbers.astype(">i8").tobytes()


def _of_texts(members: Iterable[bytes]) -> list[int]:
    return list(map(int, members))


def _of_packed(members: bytes) -> list[int]:
    numbers: list[int] = np.frombuffer(members, ">i8").tolist()
    return numbers


@dataclass(frozen=True, slots=True)
class BucketLayout:
    """The form of document numbers in arguments and replies of the scripts of a layout.

    Attributes:
        encode: Returns document numbers, int64 (n,), as one argument.
        decode: Returns the document numbers of a reply.
        lifetimes: Number of lifetimes for which a member is stored in the steady state, mean.
    """

    encode: Callable[[NDArray[np.int64]], bytes]
    decode: Callable[[Any], list[int]]
    lifetimes: float


#: The layouts by the value of ``redis.bucket_layout``; scripts: ``insert_NAME``, ``remove_NAME``, ``look_up_NAME``.
LAYOUTS: Final = {
    "sets": BucketLayout(_texts, _of_texts, lifetimes=1.0),
    # The generation before as a whole, and half of the present one.
    "packed": BucketLayout(_packed, _of_packed, lifetimes=1.5),
}


class RedisBuckets(RedisPart):
    """A ``BucketStore`` in Redis."""

    def insert_and_look_up(
        self, numbers: Sequence[int], band_keys: NDArray[np.uint32], fences: Sequence[Fence]
    ) -> Hits:
        """See ``BucketStore.insert_and_look_up``; the documents are also counted."""
        decode, cap = LAYOUTS[self.options.bucket_layout].decode, self.options.bucket_cap or 0
        calls, rows_of_call = self._calls("insert", numbers, band_keys, fences, [cap, SHOWN_OF_FULL])
        candidates: list[dict[int, int]] = [{} for _ in numbers]
        full: Counter[int] = Counter()
        near_capacity: set[int] = set()
        replies = self._run([*calls, self._count_call(numbers)])[: len(calls)]
        for rows, found in zip(rows_of_call, replies, strict=True):
            for index, members in zip(found[::2], found[1::2], strict=True):
                row = int(rows[abs(index) - 1])
                if index < 0:
                    full[row] += 1
                others_count = _count(candidates[row], decode(members), numbers[row])
                if 0 < cap <= 2 * others_count:
                    near_capacity.add(row)
        return Hits(candidates, full.total(), frozenset(full), frozenset(near_capacity | full.keys()))

    def remove_from_buckets(
        self, numbers: Sequence[int], band_keys: NDArray[np.uint32], fences: Sequence[Fence]
    ) -> None:
        """See ``BucketStore.remove_from_buckets``."""
        self._run(self._calls("remove", numbers, band_keys, fences, [])[0])

    def _calls(
        self,
        verb: str,
        numbers: Sequence[int],
        band_keys: NDArray[np.uint32],
        fences: Sequence[Fence],
        options: Sequence[int],
    ) -> tuple[list[Call], list[NDArray[np.intp]]]:
        """Return a call for each slot and chunk of documents, and the rows of each call."""
        calls, rows_of_call = [], []
        script, encode = f"{verb}_{self.options.bucket_layout}", LAYOUTS[self.options.bucket_layout].encode
        numbers_array = np.array(numbers, np.int64)
        of_all = encode(numbers_array)
        for slot, rows, keys in self._keys.calls_of_buckets(band_keys, CALL_DOCUMENTS):
            encoded = of_all if len(rows) == len(numbers) else encode(numbers_array[rows])
            arguments = [self._keys.buckets(slot), self._lifetime, *options, keys, encoded]
            calls.append(self._fenced_call(script, slot, fences, arguments, len(rows)))
            rows_of_call.append(rows)
        return calls, rows_of_call

    def _count_call(self, numbers: Sequence[int]) -> Call:
        """Return the call that counts documents in the present slice of time."""
        # Documents expire one by one but are counted until their slice expires, at most an eighth of a lifetime later.
        lifetime_ms = self._lifetime + self._lifetime // SLICES_PER_LIFETIME
        elements = np.array(numbers, ">i8").tobytes()
        key = self._keys.documents(self._document_slice())
        return Call("count_documents", [key], [lifetime_ms, elements], len(numbers))

    def remove_copies(self, documents: Sequence[tuple[int, bytes]], fences: Sequence[Fence]) -> None:
        """See ``BucketStore.remove_copies``."""
        slots = (self._keys.copies_slot(digest) for _, digest in documents)
        removed = [(digest, number) for number, digest in documents]
        self._run(self._calls_by_slot("remove_copies", slots, fences, self._copies, removed))

    def copy_removals(self) -> dict[int, int]:
        """See ``BucketStore.copy_removals``."""
        keys = [self._keys.copy_removals(slot) for slot in self._slots]
        counts = self._servers.ask_all([Command(key, ("HGET", key, "count")) for key in keys])
        return {slot: int(count or 0) for slot, count in enumerate(counts)}

    def insert_copies(
        self, documents: Sequence[tuple[int, bytes]], fences: Sequence[Fence], found: FoundNearCapacity | None = None
    ) -> list[list[int]]:
        """See ``BucketStore.insert_copies``."""
        found = found or FoundNearCapacity((), {})
        groups = by_slot(self._keys.copies_slot(digest) for _, digest in documents)
        groups_of_found = by_slot(self._keys.copies_slot(digest) for _, digest in found.documents)
        calls: list[Call] = []
        own_of_call: list[list[int]] = []
        for slot in dict.fromkeys([*groups_of_found, *groups]):
            own, of_found = groups.get(slot, []), groups_of_found.get(slot, [])
            inserted = [*(found.documents[index] for index in of_found), *(documents[index] for index in own)]
            arguments = [
                *self._copies(slot),
                self._lifetime,
                COPIES_CAP,
                found.removals.get(slot, 0),
                len(of_found),
                *chain.from_iterable((digest, number) for number, digest in inserted),
            ]
            calls.append(self._fenced_call("insert_copies", slot, fences, arguments))
            own_of_call.append(own)
        copies: list[list[int]] = [[] for _ in documents]
        for own, reply in zip(own_of_call, self._run(calls), strict=True):
            for index, members in zip(own, reply, strict=True):
                copies[index] = [int(member) for member in members]
        return copies

    def _copies(self, slot: int) -> tuple[bytes, bytes]:
        return self._keys.copies(slot), self._keys.copy_removals(slot)


def _count(candidates: dict[int, int], members: Sequence[int], own: int) -> int:
    """Count the members of a bucket other than the document itself; return how many there are."""
    for number in members:
        if number != own:
            candidates[number] = candidates.get(number, 0) + 1
    return len(members) - (own in members)
