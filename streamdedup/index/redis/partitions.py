"""What an index in Redis knows of partitions: fences, marks, announcements; and the calls made under fences."""

import secrets
import time
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, islice
from typing import Any, NamedTuple

from streamdedup.errors import IndexLost
from streamdedup.index.entries import decode_mark, holding
from streamdedup.index.redis.keys import Keys
from streamdedup.index.redis.runner import Call, ScriptRunner
from streamdedup.index.redis.servers import Command, Servers
from streamdedup.index.values import UNKNOWN_LOG, Fence, LogState, PartitionState
from streamdedup.position import Log, Partition, Position

#: How long a fence stands without being renewed. A daemon frozen for longer could wake up unfenced; a consumer group
#: that was deleted starts again at generation one and would be refused as long.
FENCE_LIFETIME_MS = 7 * 86_400_000
#: Most records of a partition that may have been committed without a mark: some of the largest batches.
_UNMARKED_RECORDS = 20_000
#: How long a slot certainly remembers the number of our last call, in seconds; it does so for an hour.
_REMEMBERED_S = 3000.0


class _Called(NamedTuple):
    """A call: its number, how many runs had failed before, and when it was made, in seconds."""

    number: int
    failures_count: int
    at: float


class RedisPartitions:
    """The partitions of one index; its methods are those of ``Index``.

    Args:
        servers: Where the index is.
        keys: Names of its keys.
        runner: Calls its scripts.
    """

    def __init__(self, servers: Servers, keys: Keys, runner: ScriptRunner) -> None:
        self._servers = servers
        self._keys = keys
        self._runner = runner
        self._slots = range(keys.slots_count)
        self._name = secrets.token_bytes(8)
        self._last_calls: dict[int, _Called] = {}

    def fenced_call(self, name: str, slot: int, fences: Sequence[Fence], arguments: Iterable[Any]) -> Call:
        """Return a call of a script that writes, under the fences of the partitions concerned."""
        keys = [self._keys.guard(slot), *(self._keys.fence(slot, fence.partition) for fence in fences)]
        number = self._runner.number
        arguments = [
            *(holding(fence.generation, self._name) for fence in fences),
            number,
            self._acknowledged(slot, number),
            *arguments,
        ]
        return Call(name, [*keys, self._keys.order(slot, self._name)], arguments)

    def _acknowledged(self, slot: int, number: int) -> int:
        """Return the number of the last call in a slot that is known to have succeeded, or 0; note the next one."""
        failures_count, now = self._runner.failures_count, time.monotonic()
        last = self._last_calls.get(slot, _Called(0, -1, 0.0))
        if last.number == number:  # several calls of one run
            return 0
        self._last_calls[slot] = _Called(number, failures_count, now)
        known = last.failures_count == failures_count and now - last.at < _REMEMBERED_S
        return last.number if known else 0

    def fence(self, partition: Partition, generation: int, committed: int, attempt_id: str, state: LogState) -> Fence:
        """See ``PartitionStore.fence``."""
        self._refuse_if_gone()
        replies = self._runner.run(
            [
                Call(
                    "set_fence",
                    [self._keys.guard(slot), self._keys.fence(slot, partition)],
                    [
                        holding(generation, self._name),
                        FENCE_LIFETIME_MS,
                        self._keys.announced(slot, partition),
                        int(bool(attempt_id)),
                    ],
                )
                for slot in self._slots
            ]
        )
        # Once more: it may have been deleted just before, and what is being built in its place is not for us.
        self._refuse_if_gone()
        if min(reply.decode() for reply in replies) < attempt_id:
            raise IndexLost(f"the index has gone back to an earlier time: it lacks what is committed of {partition}")
        fence = Fence(partition, generation, committed)
        ((before, mark, incarnation, recreated),) = self._runner.run([self._mark_call(fence, committed, state)])
        if before >= 0:
            # Committed without a mark, or read and never to be committed: the partners of these positions, which name
            # ids, were not forgotten.
            log = Log(*partition, incarnation - recreated)
            end = before + _UNMARKED_RECORDS if recreated else mark
            self.drop_pending_matches(log.at(offset) for offset in range(max(before, end - _UNMARKED_RECORDS), end))
        return Fence(partition, generation, mark, attempt_id, incarnation, bool(recreated))

    def drop_pending_matches(self, positions: Iterable[Position]) -> None:
        """Forget the partners saved for positions."""
        keys = [
            self._keys.partners(self._keys.partner_slot(position)) + position.key.encode() for position in positions
        ]
        self._servers.ask_all([Command(key, ("UNLINK", key)) for key in keys])

    def _refuse_if_gone(self) -> None:
        if not self._servers.ask(self._keys.fingerprint, "EXISTS", self._keys.fingerprint):
            raise IndexLost("the index is gone from the server")

    def _mark_call(self, fence: Fence, offset: int, state: LogState = UNKNOWN_LOG) -> Call:
        end = "" if state.end is None else state.end
        keys = self._keys.mark(fence.partition), self._keys.watermarks, str(fence.partition)
        return self.fenced_call("raise_mark", 0, [fence], [*keys, offset, state.topic_id, end])

    def raise_marks(self, committed: Mapping[Partition, int], fences: Sequence[Fence]) -> None:
        """Note what is committed."""
        by_partition = {fence.partition: fence for fence in fences}
        self._runner.run([self._mark_call(by_partition[partition], offset) for partition, offset in committed.items()])

    def partition_states(self, partitions: Sequence[Partition]) -> dict[Partition, PartitionState]:
        """See ``PartitionStore.partition_states``."""
        keys = [
            [
                self._keys.mark(each),
                self._keys.read_start(each),
                *(self._keys.announced(slot, each) for slot in self._slots),
            ]
            for each in partitions
        ]
        home = self._keys.fingerprint
        asked = [Command(key, ("GET", key)) for of_one in keys for key in of_one]
        exists, *values = self._servers.ask_all([Command(home, ("EXISTS", home)), *asked])
        if not exists:
            return dict.fromkeys(partitions, PartitionState(None))
        replies = iter(values)
        states = {}
        for partition, of_one in zip(partitions, keys, strict=True):
            mark, read_start, *announced = islice(replies, len(of_one))
            least = min((stored or b"").decode() for stored in announced)
            states[partition] = PartitionState(
                None if mark is None else decode_mark(mark)[0], least, (read_start or b"").decode()
            )
        return states

    def save_read_start(self, read_start: str, fence: Fence) -> None:
        """See ``PartitionStore.save_read_start``."""
        arguments = [self._keys.read_start(fence.partition), read_start]
        self._runner.run([self.fenced_call("save_read_start", 0, [fence], arguments)])

    def announce(self, attempt_id: str, fences: Sequence[Fence]) -> None:
        """See ``PartitionStore.announce``."""
        calls = []
        for slot in self._slots:
            known = [(self._keys.announced(slot, fence.partition), fence.attempt_id) for fence in fences]
            calls.append(self.fenced_call("announce", slot, fences, [attempt_id, *chain.from_iterable(known)]))
        self._runner.run(calls)

    def settle(self, draft: str, notes: Mapping[Partition, str], fences: Sequence[Fence]) -> None:
        """See ``StagingIndex.settle``."""
        calls = []
        for slot in self._slots:
            wanted = [(self._keys.announced(slot, partition), note) for partition, note in notes.items()]
            calls.append(self.fenced_call("settle", slot, fences, [draft, *chain.from_iterable(wanted)]))
        self._runner.run(calls)

    def unfence(self, partition: Partition) -> None:
        """See ``PartitionStore.unfence``."""
        keys = [self._keys.fence(slot, partition) for slot in self._slots]
        self._servers.ask_all([Command(key, ("UNLINK", key)) for key in keys])
