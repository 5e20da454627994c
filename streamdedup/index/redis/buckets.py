"""The buckets of an index in Redis, in one of two layouts behind the same two calls.

``sets``
    One Redis set per band and band key (CRC-32), members are document numbers. An insertion takes the same commands
    at any size of the index, and ``SMEMBERS`` shows a bucket to an operator. A bucket of one document takes about 150
    bytes, because every key of Redis does.
``packed``
    Bucket pages: a hash holds about a hundred buckets as fields. A bucket of one document takes about 18 bytes; an
    insertion looks at some pages more. For indexes whose size decides (``lua/_pages.lua``).

Both return the same members: all that were inserted during the last lifetime and not removed, perhaps older ones too.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from streamdedup.index.redis.keys import Keys
from streamdedup.index.redis.partitions import RedisPartitions
from streamdedup.index.redis.runner import Call, ScriptRunner
from streamdedup.index.values import SHOWN_OF_FULL, Fence, Hits

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
    """Scripts of a layout and the form in which they take and return document numbers.

    Attributes:
        name: Value of the setting ``redis.bucket_layout``; the scripts are ``insert_NAME`` and ``remove_NAME``.
        encode: Returns document numbers, int64 (n,), as one argument.
        decode: Returns the document numbers of a reply.
        lifetimes: For how many lifetimes a member is stored in the steady state, mean.
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
    """Inserts documents into buckets and removes them.

    Args:
        layout: How the buckets are stored.
        keys: Names of keys.
        runner: Calls the scripts.
        partitions: Puts the fences in front of a call.
        lifetime_ms: How long a member is found after its insertion, milliseconds; None for ever.
        bucket_cap: Most members of a bucket; None for no limit.
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
        self._partitions = partitions
        self._lifetime = b"%d" % (lifetime_ms or 0)
        self._cap = b"%d" % (bucket_cap or 0)

    def insert(
        self,
        numbers: Sequence[int],
        band_keys: NDArray[np.uint32],
        fences: Sequence[Fence],
        also: Sequence[Call] = (),
    ) -> Hits:
        """See ``Index.insert_and_look_up``; ``also`` are calls to send along."""
        options = [self._cap, b"%d" % SHOWN_OF_FULL]
        calls, rows_of_call = self._calls("insert", numbers, band_keys, fences, options)
        candidates: list[dict[int, int]] = [{} for _ in numbers]
        full: Counter[int] = Counter()
        near_capacity: set[int] = set()
        cap = int(self._cap)
        replies = self._runner.run([*calls, *also])[: len(calls)]
        for rows, found in zip(rows_of_call, replies, strict=True):
            for place, members in zip(found[::2], found[1::2], strict=True):
                row = int(rows[abs(place) - 1])
                if place < 0:
                    full[row] += 1
                others_count = _count(candidates[row], self._layout.decode(members), numbers[row])
                if 0 < cap <= 2 * others_count:
                    near_capacity.add(row)
        return Hits(candidates, full.total(), frozenset(full), frozenset(near_capacity | full.keys()))

    def remove(self, numbers: Sequence[int], band_keys: NDArray[np.uint32], fences: Sequence[Fence]) -> None:
        """See ``Index.remove_from_buckets``."""
        self._runner.run(self._calls("remove", numbers, band_keys, fences, [])[0])

    def removing_none(self, slots: Iterable[int], fences: Sequence[Fence]) -> None:
        """Call the script of removal without a document, for its checks alone."""
        name = f"remove_{self._layout.name}"
        self._runner.run(
            [
                self._partitions.fenced_call(name, slot, fences, [self._keys.buckets(slot), self._lifetime, b"", b""])
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
        """Return a call for each slot and chunk of documents, and the rows that it concerns."""
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
                call = self._partitions.fenced_call(f"{verb}_{self._layout.name}", slot, fences, arguments)
                calls.append(call._replace(documents_count=len(rows)))
                rows_of_call.append(rows)
        return calls, rows_of_call


def _count(candidates: dict[int, int], members: Sequence[int], own: int) -> int:
    """Count the members of a bucket other than the document itself; return how many there are."""
    for number in members:
        if number != own:
            candidates[number] = candidates.get(number, 0) + 1
    return len(members) - (own in members)
