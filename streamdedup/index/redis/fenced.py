"""Base class for the parts of an index in Redis, which write: script calls under fences and with call numbers.

``redis.store`` joins the parts. Read ``index.contract`` first: rules 7 and 10 are about fences and call numbers.
"""

import secrets
import time
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Any, NamedTuple

from streamdedup import clock
from streamdedup.index.entries import encode_fence
from streamdedup.index.redis.keys import Keys, by_slot
from streamdedup.index.redis.reading import RedisIndexOptions, RedisReading
from streamdedup.index.redis.scripts import Call, FencedScripts
from streamdedup.index.redis.servers import Servers
from streamdedup.index.values import Fence

#: Seconds after a call in which the slot certainly has its number; the key of the number expires after an hour.
_REMEMBERED_S = 3000.0


class _LastCall(NamedTuple):
    run_number: int
    failures_count: int
    called_at_s: float


class EncodedFences(NamedTuple):
    """Fences for the calls of an operation: partitions as text, for the keys; and the expected value at each key."""

    partitions: list[bytes]
    values: list[str]


class RedisPart(RedisReading):
    """Base class for the parts that ``RedisIndex`` joins; each part implements one Protocol in the contract.

    Call numbers (rule 10): a *run* is one ``FencedScripts.run``, the calls of one operation, all with its number. For
    each writer and slot the server keeps the number of the last run. A call states its run, which must not be lower
    (LATE), and the least number that the slot must have: a slot with a lower one has lost writes (FORGOTTEN).

    With ``in_staging`` this index belongs to a ``StagingIndex``, into which a rebuild writes.
    """

    def __init__(
        self,
        servers: Servers,
        options: RedisIndexOptions,
        *,
        in_staging: bool = False,
        now_ms: Callable[[], float] = clock.now_ms,
    ) -> None:
        keys = Keys(options.namespace, options.bands, options.shards, in_staging=in_staging)
        self._runner = FencedScripts(servers, keys.existence)
        super().__init__(servers, options, keys, self._runner.run, now_ms)
        #: Random name of this index object (rule 7), a part of its fences and of the keys of its call numbers.
        self._writer = secrets.token_bytes(8)
        #: By slot; a single server has slot 0 for all. Empty before the first call and after ``forget_calls``.
        self._last_calls: dict[int, _LastCall] = {}

    def _encode_fences(self, fences: Sequence[Fence]) -> EncodedFences:
        return EncodedFences(
            [str(fence.partition).encode() for fence in fences],
            [encode_fence(fence.generation, self._writer) for fence in fences],
        )

    def _fenced_call(
        self, name: str, slot: int, fences: EncodedFences, arguments: Iterable[Any], documents_count: int = 0
    ) -> Call:
        """Return a call of a writing script for the next run."""
        run_number = self._runner.run_number
        # A single server loses the last writes of all slots together, so slot 0 has the number for all slots.
        call_slot = slot if self._servers.mode == "cluster" else 0
        keys = self._keys.fenced_call_keys(slot, fences.partitions, self._writer, call_slot)
        fenced_arguments = [*fences.values, run_number, self._expected_number(call_slot, run_number), *arguments]
        return Call(name, keys, fenced_arguments, documents_count)

    def forget_calls(self) -> None:
        """Forget the calls so far, when all keys were deleted, the call numbers among them."""
        self._last_calls.clear()

    def _expected_number(self, slot: int, run_number: int) -> int:
        """Return the least number that the slot must have, 0 if unknown, and remember a call of this run.

        The first call of a run expects the number of the last run; it is unknown after a failed run, and where the last
        call is too old. Further calls expect the number of their run, which the first call has stored, so they are
        refused if the first call is. Three calls of run 7 after run 6 expect 6, 7 and 7.
        """
        last = self._last_calls.get(slot)
        if last is not None and last.run_number == run_number:
            return run_number
        failures_count, now_s = self._runner.failures_count, time.monotonic()
        self._last_calls[slot] = _LastCall(run_number, failures_count, now_s)
        if last is None or last.failures_count != failures_count or now_s - last.called_at_s >= _REMEMBERED_S:
            return 0
        return last.run_number

    def _run_by_slot(
        self,
        name: str,
        slots: Sequence[int],
        fences: Sequence[Fence],
        first_arguments: Callable[[int], Sequence[Any]],
        arguments: Sequence[Iterable[Any]],
    ) -> list[Any]:
        """Call a script that has a reply for each row, such as a document; return the replies in the order of the rows.

        There is a call for each slot: it gets ``first_arguments(slot)``, then the arguments of its rows.
        """
        encoded_fences, groups, calls = self._encode_fences(fences), by_slot(slots), []
        for slot, rows in groups.items():
            slot_arguments = [*first_arguments(slot), *chain.from_iterable(arguments[row] for row in rows)]
            calls.append(self._fenced_call(name, slot, encoded_fences, slot_arguments))
        replies: list[Any] = [None] * len(slots)
        for rows, slot_replies in zip(groups.values(), self._run(calls), strict=True):
            for row, reply in zip(rows, slot_replies, strict=True):
                replies[row] = reply
        return replies
