"""Base class for the parts of ``RedisIndex``: calls of writing scripts, with fences and call numbers.

Read ``index.contract`` first: rules 7 and 10 are about fences and call numbers.
"""

import secrets
import time
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Any, NamedTuple

from streamdedup.index.entries import encode_fence
from streamdedup.index.redis.keys import by_slot
from streamdedup.index.redis.reading import RedisIndexOptions, RedisReading
from streamdedup.index.redis.scripts import Call, Scripts
from streamdedup.index.redis.servers import Servers
from streamdedup.index.values import Fences

#: Seconds after a call in which the server certainly has its number, whose key expires after an hour.
_REMEMBERED_S = 3000.0


class EncodedFences(NamedTuple):
    """Fences for script calls: the partitions, as in the keys of the fences, and the expected value at each key."""

    partitions: list[bytes]
    values: list[str]


class RedisPart(RedisReading):
    """Base class for the parts that ``RedisIndex`` joins; each part implements some methods of the contract.

    Call numbers (rule 10): a *run* is one call of ``_run``, with the script calls of one step, which all have the
    number of the run. For each writer and slot the server keeps the number of the last run. A call states its run,
    which must not be lower (LATE), and the least number of a slot that has lost no writes (FORGOTTEN).

    With ``in_staging`` this index belongs to a ``StagingIndex``, into which a rebuild writes.
    """

    def __init__(self, servers: Servers, options: RedisIndexOptions, *, in_staging: bool = False) -> None:
        super().__init__(servers, options, in_staging=in_staging)
        self._scripts = Scripts(servers, self._keys.existence)
        #: Random name of this index object (rule 7), a part of its fences and of the keys of its call numbers.
        self._writer = secrets.token_bytes(8)
        #: Number of the next run, whose calls are made (``_fenced_call``) before they are run.
        self._run_number = 1
        #: Number and monotonic time of the last run, by call slot (``_fenced_call``).
        self._last_calls: dict[int, tuple[int, float]] = {}

    def _run(self, calls: Sequence[Call]) -> list[Any]:
        self._run_number += 1
        try:
            return self._scripts.run(calls)
        except BaseException:
            self.forget_calls()
            raise

    def _encode_fences(self, fences: Fences) -> EncodedFences:
        return EncodedFences(
            [str(fence.partition).encode() for fence in fences],
            [encode_fence(fence.generation, self._writer) for fence in fences],
        )

    def _fenced_call(
        self, name: str, slot: int, fences: EncodedFences, arguments: Iterable[Any], documents_count: int = 0
    ) -> Call:
        """Return a call of a writing script for the next run, and count it."""
        # A single server loses the last writes of all slots together, so slot 0 has the call number for all slots.
        call_slot = slot if self._servers.mode == "cluster" else 0
        keys = self._keys.fenced_call_keys(slot, fences.partitions, self._writer, call_slot)
        fenced_arguments = [*fences.values, self._run_number, self._expected_number(call_slot), *arguments]
        return Call(name, keys, fenced_arguments, documents_count)

    def forget_calls(self) -> None:
        """Forget the calls so far: after a failed run, or a deletion of all keys, the server may lack their numbers."""
        self._last_calls.clear()

    def _expected_number(self, call_slot: int) -> int:
        """Return the least number that a call slot must have, 0 if unknown, and count a call of the next run.

        The first call of a run expects the number of the last run, unless that is too old. Further calls expect the
        number of their run, which the first call stores, so they are refused if it is. Calls of run 7 expect 6, 7, 7.
        """
        last_number, called_at_s = self._last_calls.get(call_slot, (0, 0.0))
        now_s = time.monotonic()
        self._last_calls[call_slot] = self._run_number, now_s
        return last_number if now_s - called_at_s < _REMEMBERED_S else 0

    def _run_by_slot(
        self,
        name: str,
        slots: Sequence[int],
        fences: Fences,
        first_arguments: Callable[[int], Sequence[Any]],
        arguments: Sequence[Iterable[Any]],
    ) -> list[Any]:
        """Call a script once for each slot, with a reply for each row; return the replies in the order of the rows.

        A call gets ``first_arguments(slot)``, then the arguments of its rows.
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
