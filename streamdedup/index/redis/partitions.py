"""Partitions in Redis, a part of ``RedisIndex``: fences, high-water marks and announced attempts.

Called by ``daemon`` through the contract. Scripts: ``set_fence``, ``raise_high_water_mark``, ``announce_attempt``. Read
``index.contract`` first: the calls implement its rules 6, 7 and 11. A change touches ``index.memory_partitions``.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from streamdedup.errors import IndexLost
from streamdedup.index.entries import (
    decode_attempt,
    decode_high_water_mark,
    encode_attempt,
    encode_fence,
)
from streamdedup.index.redis.fenced import RedisPart
from streamdedup.index.redis.scripts import Call
from streamdedup.index.redis.servers import Command
from streamdedup.index.values import UNKNOWN_BROKER_STATE, AnnouncedAttempt, BrokerState, Fence, PartitionState
from streamdedup.position import Partition, PartitionIncarnation, Position

#: Time to live of a fence that is not renewed. A daemon that is frozen for longer wakes up without fences. A consumer
#: group that was deleted begins again at generation 1, and is refused for this time.
FENCE_LIFETIME_MS = 7 * 86_400_000
#: Largest number of records whose pending matches a fence deletes; those of further records expire. A daemon that dies
#: between commit and ``finish`` leaves the pending matches of one batch, and this number covers several of the largest.
_CLEARED_RECORDS = 20_000


class RedisPartitions(RedisPart):
    def fence(
        self,
        partition: Partition,
        generation: int,
        start: int,
        committed_id: str = "",
        state: BrokerState = UNKNOWN_BROKER_STATE,
        confirm: Callable[[], None] = lambda: None,
    ) -> Fence:
        self._refuse_if_gone()
        attempts = self._set_fences(partition, generation)
        # Again, now that the fence is set: the index may have been deleted before, and a rebuild may have begun, whose
        # staging index this caller must not fence.
        self._refuse_if_gone()
        if not all(attempt.knows(committed_id) for attempt in attempts):  # a slot has lost the committed attempt
            raise IndexLost(f"the index has gone back, or another was used: it lacks committed batches of {partition}")
        confirm()
        # For this call only: the script compares generation and writer, not the high-water mark.
        fence = Fence(partition, generation, start)
        # The reply has -1 without a previous high-water mark, and ``recreated`` as 0 or 1.
        ((previous, current, incarnation, recreated),) = self._run([self._high_water_mark_call(fence, start, state)])
        if previous >= 0:
            # Delete pending matches that remain because ``finish`` was not called after a commit: those between the two
            # high-water marks. For a topic that was created again, delete those from the high-water mark on in the
            # incarnation before, which will never be committed.
            cleared = PartitionIncarnation(*partition, incarnation - recreated)
            end = previous + _CLEARED_RECORDS if recreated else current
            offsets = range(max(previous, end - _CLEARED_RECORDS), end)
            self._drop_pending_matches(map(cleared.position_at, offsets))
        return Fence(partition, generation, current, committed_id, incarnation, bool(recreated))

    def _set_fences(self, partition: Partition, generation: int) -> list[AnnouncedAttempt]:
        """Set a partition fence in every slot; return the attempt announced in each slot."""
        value = encode_fence(generation, self._writer)
        replies = self._run(
            [
                Call(
                    "set_fence",
                    [self._keys.guard(slot), self._keys.fence(slot, partition)],
                    [value, FENCE_LIFETIME_MS, self._keys.announced(slot, partition)],
                )
                for slot in self._slots
            ]
        )
        return [decode_attempt(reply) for reply in replies]

    def _refuse_if_gone(self) -> None:
        if not self._servers.ask(self._keys.fingerprint, "EXISTS", self._keys.fingerprint):
            raise IndexLost("the index is gone from the server")

    def _high_water_mark_call(self, fence: Fence, offset: int, state: BrokerState = UNKNOWN_BROKER_STATE) -> Call:
        end = "" if state.end is None else state.end
        arguments = [self._keys.high_water_mark(fence.partition), offset, state.topic_id, end, state.incarnation]
        slot = 0  # of all high-water marks
        return self._fenced_call("raise_high_water_mark", slot, self._encode_fences([fence]), arguments)

    def finish(self, ends: Mapping[Partition, int], positions: Sequence[Position], fences: Sequence[Fence]) -> None:
        # In this order: after a crash in between, the next owner clears the positions from the old high-water mark on.
        self._drop_pending_matches(positions)
        by_partition = {fence.partition: fence for fence in fences}
        self._run([self._high_water_mark_call(by_partition[partition], offset) for partition, offset in ends.items()])

    def _drop_pending_matches(self, positions: Iterable[Position]) -> None:
        keys = [self._keys.pending_matches(position) for position in positions]
        self._servers.ask_many([Command(key, ("UNLINK", key)) for key in keys])

    def partition_states(self, partitions: Sequence[Partition]) -> dict[Partition, PartitionState]:
        if not partitions:
            return {}
        keys = [
            [self._keys.high_water_mark(partition) for partition in partitions],
            *([self._keys.announced(slot, partition) for partition in partitions] for slot in self._slots),
        ]
        fingerprint = self._keys.fingerprint
        commands = [Command(of_slot[0], ("MGET", *of_slot)) for of_slot in keys]
        has_index, *values = self._servers.ask_many([Command(fingerprint, ("EXISTS", fingerprint)), *commands])
        if not has_index:
            self.forget_calls()  # their numbers are gone too
            return dict.fromkeys(partitions, PartitionState(None))
        states = {}
        for partition, stored, *announced in zip(partitions, *values, strict=True):
            # The slots differ where one has gone back, or where an announcement reached only some of them.
            attempts = tuple(dict.fromkeys(decode_attempt(attempt or b"") for attempt in announced))
            if stored is None:
                states[partition] = PartitionState(None, attempts=attempts)
            else:
                states[partition] = PartitionState(*decode_high_water_mark(stored), attempts)
        return states

    def announce(
        self,
        attempt_id: str,
        fences: Sequence[Fence],
        starts: Mapping[Partition, int],
        *,
        committed_id: str | None = None,
    ) -> None:
        calls, encoded_fences = [], self._encode_fences(fences)
        known_ids = [fence.committed_id if committed_id is None else committed_id for fence in fences]
        values = [
            encode_attempt(AnnouncedAttempt(attempt_id, starts[fence.partition], known_id))
            for fence, known_id in zip(fences, known_ids, strict=True)
        ]
        for slot in self._slots:
            arguments: list[Any] = [attempt_id]
            for fence, value in zip(fences, values, strict=True):
                arguments += (self._keys.announced(slot, fence.partition), fence.committed_id, value)
            calls.append(self._fenced_call("announce_attempt", slot, encoded_fences, arguments))
        self._run(calls)

    def unfence(self, partition: Partition) -> None:
        keys = [self._keys.fence(slot, partition) for slot in self._slots]
        self._servers.ask_many([Command(key, ("UNLINK", key)) for key in keys])
