"""Partitions in Redis, a part of ``RedisIndex``: fences, high-water marks and announced attempts.

Rules 6, 7 and 11 of ``index.contract`` explain the calls; ``index.memory_partitions`` is the specification.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from streamdedup.errors import IndexLost
from streamdedup.index.entries import decode_attempt, decode_high_water_mark, encode_attempt, encode_fence
from streamdedup.index.redis.fenced import EncodedFences, RedisPart
from streamdedup.index.redis.scripts import Call
from streamdedup.index.redis.servers import Command
from streamdedup.index.values import UNKNOWN_BROKER_STATE, AnnouncedAttempt, BrokerState, Fence, Fences, PartitionState
from streamdedup.position import Partition, PartitionIncarnation, Position

#: Time to live of a fence that is not renewed. A daemon that is frozen for longer wakes up without fences. A consumer
#: group that was deleted begins again at generation 1, and is refused for this time.
FENCE_LIFETIME_MS = 7 * 86_400_000
#: Largest number of records whose pending matches a fence deletes; those of further records expire. A daemon that dies
#: between commit and ``finish`` leaves one batch, and this number covers several of the largest.
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
        # Again: a rebuild may have deleted the index meanwhile. The fence must not be one of its staging index.
        self._refuse_if_gone()
        if not all(attempt.knows(committed_id) for attempt in attempts):
            raise IndexLost(f"the index has gone back, or another was used: it lacks committed batches of {partition}")
        confirm()
        encoded_fences = EncodedFences([str(partition).encode()], [encode_fence(generation, self._writer)])
        call = self._high_water_mark_call(partition, encoded_fences, start, state)
        ((previous, current, incarnation, recreated),) = self._run([call])  # ``previous`` is -1 for none
        fence = Fence(partition, generation, current, committed_id, incarnation, bool(recreated))
        if previous >= 0:
            self._drop_left_matches(fence, previous)
        return fence

    def _drop_left_matches(self, fence: Fence, previous: int) -> None:
        """Delete pending matches that ``finish`` will not; ``previous`` is the high-water mark before the fence."""
        if fence.is_recreated:  # of the earlier incarnation, from its high-water mark on
            incarnation, start, end = fence.incarnation - 1, previous, previous + _CLEARED_RECORDS
        else:  # between the two high-water marks: ``finish`` was not called after a commit
            incarnation, end = fence.incarnation, fence.high_water_mark
            start = max(previous, end - _CLEARED_RECORDS)
        cleared = PartitionIncarnation(*fence.partition, incarnation)
        self._unlink(self._keys.pending_matches(cleared.position_at(offset)) for offset in range(start, end))

    def _set_fences(self, partition: Partition, generation: int) -> list[AnnouncedAttempt]:
        """Set the fence in every slot; return the attempt announced in each slot."""
        value = encode_fence(generation, self._writer)
        calls = []
        for slot in self._slots:
            keys = [self._keys.guard(slot), self._keys.fence(slot, partition)]
            calls.append(Call("set_fence", keys, [value, FENCE_LIFETIME_MS, self._keys.announced(slot, partition)]))
        return [decode_attempt(reply) for reply in self._run(calls)]

    def _refuse_if_gone(self) -> None:
        if not self._servers.ask(self._keys.existence, "EXISTS", self._keys.existence):
            raise IndexLost("the index is gone from the server")

    def _high_water_mark_call(
        self, partition: Partition, fences: EncodedFences, offset: int, state: BrokerState = UNKNOWN_BROKER_STATE
    ) -> Call:
        end = "" if state.end is None else state.end
        arguments = [self._keys.high_water_mark(partition), offset, state.topic_id, end, state.incarnation]
        return self._fenced_call("raise_high_water_mark", 0, fences, arguments)  # slot 0 has all high-water marks

    def finish(self, ends: Mapping[Partition, int], positions: Sequence[Position], fences: Fences) -> None:
        # In this order: after a crash in between, the next fence deletes those from the old high-water mark on.
        self._unlink(map(self._keys.pending_matches, positions))
        encoded = {fence.partition: self._encode_fences([fence]) for fence in fences}
        self._run([self._high_water_mark_call(partition, encoded[partition], end) for partition, end in ends.items()])

    def _unlink(self, keys: Iterable[bytes]) -> None:
        self._servers.ask_many([Command(key, ("UNLINK", key)) for key in keys])

    def partition_states(self, partitions: Sequence[Partition]) -> dict[Partition, PartitionState]:
        if not partitions:
            return {}
        marks = [self._keys.high_water_mark(partition) for partition in partitions]
        announced = [[self._keys.announced(slot, partition) for partition in partitions] for slot in self._slots]
        existence = self._keys.existence
        commands = [Command(keys[0], ("MGET", *keys)) for keys in (marks, *announced)]
        has_index, *values = self._servers.ask_many([Command(existence, ("EXISTS", existence)), *commands])
        if not has_index:
            self.forget_calls()  # their numbers are gone too
            return dict.fromkeys(partitions, PartitionState(None))
        states = {}
        for partition, stored, *stored_attempts in zip(partitions, *values, strict=True):
            # The slots differ where one has gone back, or where an announcement reached only some of them.
            attempts = tuple(dict.fromkeys(decode_attempt(attempt or b"") for attempt in stored_attempts))
            if stored is None:
                states[partition] = PartitionState(None, attempts=attempts)
            else:
                states[partition] = PartitionState(*decode_high_water_mark(stored), attempts)
        return states

    def announce(
        self, attempt_id: str, fences: Fences, starts: Mapping[Partition, int], *, committed_id: str | None = None
    ) -> None:
        calls, encoded_fences = [], self._encode_fences(fences)
        for slot in self._slots:
            arguments: list[Any] = [attempt_id]
            for fence in fences:
                known_id = fence.committed_id if committed_id is None else committed_id
                value = encode_attempt(AnnouncedAttempt(attempt_id, starts[fence.partition], known_id))
                arguments += (self._keys.announced(slot, fence.partition), fence.committed_id, value)
            calls.append(self._fenced_call("announce_attempt", slot, encoded_fences, arguments))
        self._run(calls)

    def unfence(self, partition: Partition) -> None:
        self._unlink(self._keys.fence(slot, partition) for slot in self._slots)
