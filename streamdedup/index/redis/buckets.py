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
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from streamdedup.index.redis.keys import Keys, by_slot
from streamdedup.index.redis.partitions import RedisPart, RedisPartitions
from streamdedup.index.redis.scripts import Call, ScriptRunner
from streamdedup.index.redis.servers import Command
from streamdedup.index.values import COPIES_CAP, SHOWN_OF_FULL, Fence, FoundNearCapacity, Hits

#: Documents of one script call, which keeps the server busy for some 3 ms.
_CALL_DOCUMENTS: Final = 1_000


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
    """Scripts of a layout, and the form of document numbers in their arguments and replies.

    Attributes:
        name: Value of the setting ``redis.bucket_layout``; the scripts are ``insert_NAME`` and ``remove_NAME``.
        encode: Returns document numbers, int64 (n,), as one argument.
        decode: Returns the document numbers of a reply.
        lifetimes: Number of lifetimes for which a member is stored in the steady state, mean.
    """

    name: str
    encode: Callable[[NDArray[np.int64]], bytes]
    decode: Callable[[Any], list[int]]
    lifetimes: float


#: The layouts by name.
LAYOUTS: Final = {
    layout.name: layout
    for layout in (
        BucketLayout("sets", _texts, _of_texts, lifetimes=1.0),
        # The generation before as a whole, and half of the present one.
        BucketLayout("packed", _packed, _of_packed, lifetimes=1.5),
    )
}


class RedisBuckets:
    """The buckets of the bands: one for each band and band key.

    Args:
        layout: Layout of the buckets.
        keys: Keys of the index.
        runner: Calls the scripts.
        partitions: Makes calls under fences.
        lifetime_ms: Time to live of a member after its insertion, in milliseconds; None for ever.
        bucket_cap: Largest number of members of a bucket; None for no limit.
    """

    def __init__(
        self,
        layout: BucketLayout,
        *,
        keys: Keys,
        runner: ScriptRunner,
        partitions: RedisPartitions,
        lifetime_ms: int | None,
        bucket_cap: int | None,
    ) -> None:
        self._layout = layout
        self._keys = keys
        self._runner = runner
        self._fenced_call = partitions.fenced_call
        self._lifetime = b"%d" % (lifetime_ms or 0)
        self._cap = bucket_cap or 0

    def insert(
        self,
        numbers: Sequence[int],
        band_keys: NDArray[np.uint32],
        fences: Sequence[Fence],
        also: Sequence[Call] = (),
    ) -> Hits:
        """See ``BucketStore.insert_and_look_up``; ``also`` are calls for the same round trip."""
        options = [b"%d" % self._cap, b"%d" % SHOWN_OF_FULL]
        calls, rows_of_call = self._calls("insert", numbers, band_keys, fences, options)
        candidates: list[dict[int, int]] = [{} for _ in numbers]
        full: Counter[int] = Counter()
        near_capacity: set[int] = set()
        replies = self._runner.run([*calls, *also])[: len(calls)]
        for rows, found in zip(rows_of_call, replies, strict=True):
            for index, members in zip(found[::2], found[1::2], strict=True):
                row = int(rows[abs(index) - 1])
                if index < 0:
                    full[row] += 1
                others_count = _count(candidates[row], self._layout.decode(members), numbers[row])
                if 0 < self._cap <= 2 * others_count:
                    near_capacity.add(row)
        return Hits(candidates, full.total(), frozenset(full), frozenset(near_capacity | full.keys()))

    def remove(self, numbers: Sequence[int], band_keys: NDArray[np.uint32], fences: Sequence[Fence]) -> None:
        """See ``BucketStore.remove_from_buckets``."""
        self._runner.run(self._calls("remove", numbers, band_keys, fences, [])[0])

    def check_slots(self, slots: Iterable[int], fences: Sequence[Fence]) -> None:
        """Make the checks of ``lua/_fence.lua`` in slots, by calls of the script of removal without a document."""
        name = f"remove_{self._layout.name}"
        self._runner.run(
            [
                self._fenced_call(name, slot, fences, [self._keys.buckets(slot), self._lifetime, b"", b""])
                for slot in slots
            ]
        )

    def _calls(
        self,
        verb: str,
        numbers: Sequence[int],
        band_keys: NDArray[np.uint32],
        fences: Sequence[Fence],
        options: Sequence[bytes],
    ) -> tuple[list[Call], list[NDArray[np.intp]]]:
        """Return a call for each slot and chunk of documents, and the rows of each call."""
        calls, rows_of_call = [], []
        numbers_array = np.array(numbers, np.int64)
        big_endian = band_keys.astype(">u4")
        of_all = self._layout.encode(numbers_array)
        for slot, rows_of_slot in self._keys.rows_by_slot(band_keys):
            for first in range(0, len(rows_of_slot), _CALL_DOCUMENTS):
                rows = rows_of_slot[first : first + _CALL_DOCUMENTS]
                keys = big_endian[rows, self._keys.band_of(slot)].tobytes()
                encoded = of_all if len(rows) == len(numbers) else self._layout.encode(numbers_array[rows])
                arguments = [self._keys.buckets(slot), self._lifetime, *options, keys, encoded]
                call = self._fenced_call(f"{verb}_{self._layout.name}", slot, fences, arguments)
                calls.append(call._replace(documents_count=len(rows)))
                rows_of_call.append(rows)
        return calls, rows_of_call


def _count(candidates: dict[int, int], members: Sequence[int], own: int) -> int:
    """Count the members of a bucket other than the document itself; return how many there are."""
    for number in members:
        if number != own:
            candidates[number] = candidates.get(number, 0) + 1
    return len(members) - (own in members)


class RedisCopies(RedisPart):
    """The buckets of exact copies: one for each content digest."""

    def remove(self, documents: Sequence[tuple[int, bytes]], fences: Sequence[Fence]) -> None:
        """See ``BucketStore.remove_copies``."""
        calls: list[Call] = []
        for slot, members in by_slot(self._keys.copies_slot(digest) for _, digest in documents).items():
            arguments = [self._keys.copies(slot), self._keys.copy_removals(slot)]
            pairs = chain.from_iterable((documents[index][1], documents[index][0]) for index in members)
            calls.append(self._fenced_call("remove_copies", slot, fences, [*arguments, *pairs]))
        self._runner.run(calls)

    def count_removals(self) -> dict[int, int]:
        """See ``BucketStore.copy_removals``."""
        keys = [self._keys.copy_removals(slot) for slot in range(self._keys.slots_count)]
        counts = self._servers.ask_all([Command(key, ("HGET", key, "count")) for key in keys])
        return {slot: int(count or 0) for slot, count in enumerate(counts)}

    def insert(
        self, documents: Sequence[tuple[int, bytes]], fences: Sequence[Fence], found: FoundNearCapacity | None
    ) -> list[list[int]]:
        """See ``BucketStore.insert_copies``."""
        others = found.documents if found is not None else ()
        removals: Mapping[int, int] = found.removals if found is not None else {}
        groups = by_slot(self._keys.copies_slot(digest) for _, digest in documents)
        groups_of_others = by_slot(self._keys.copies_slot(digest) for _, digest in others)
        calls: list[Call] = []
        own_of_call: list[list[int]] = []
        for slot in dict.fromkeys([*groups_of_others, *groups]):
            own, of_others = groups.get(slot, []), groups_of_others.get(slot, [])
            head = [self._keys.copies(slot), self._keys.copy_removals(slot), self._lifetime_ms or 0, COPIES_CAP]
            inserted = [*(others[index] for index in of_others), *(documents[index] for index in own)]
            pairs = chain.from_iterable((digest, number) for number, digest in inserted)
            arguments = [*head, removals.get(slot, 0), len(of_others), *pairs]
            calls.append(self._fenced_call("insert_copies", slot, fences, arguments))
            own_of_call.append(own)
        copies: list[list[int]] = [[] for _ in documents]
        for own, reply in zip(own_of_call, self._runner.run(calls), strict=True):
            for index, members in zip(own, reply, strict=True):
                copies[index] = [int(member) for member in members]
        return copies
