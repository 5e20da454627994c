"""The connection of a process to the index: the calls of ``streamdedup.index.contract``, one effect at a time.

Every method is a generator and calls one script for each slot concerned. The generator gives up control before each
call of a script, so anything may happen between two calls, and a killed or frozen process stops between two calls.
"""

import random
from collections.abc import Callable, Generator, Mapping, Sequence
from functools import partial
from typing import Any

from tests.model.documents import BANDS, Marker, Pair, Position, Record
from tests.model.errors import BatchRefused, IndexLost, Reconnected, StoreUnavailable
from tests.model.index import (
    NO_ATTEMPT,
    SLOTS,
    Announced,
    Announcement,
    Ask,
    AttemptId,
    Fence,
    Index,
    InsertResult,
    any_slot,
)
from tests.model.rules import Rules

#: Yielded by a daemon: ``IDLE``, or None.
Step = str | None
Fences = Sequence[Fence]
Entry = tuple[int, tuple[int, ...]]


class Network:
    """The connection to the server: a reply may be lost, and a call may be delayed.

    Args:
        rng: Decides.
        doubt: Share of the calls whose outcome stays unknown.
    """

    def __init__(self, rng: random.Random, doubt: float) -> None:
        self._rng = rng
        self._doubt = doubt
        #: Delayed calls.
        self.late: list[Callable[[], Any]] = []

    def deliver(self, execute: Callable[[], Any], again: bool) -> Any:
        """Send a call to the server.

        Args:
            execute: The call.
            again: Whether the client repeats a call whose outcome it does not know.

        Raises:
            StoreUnavailable: The outcome is unknown.
        """
        if not self._doubt or self._rng.random() >= self._doubt:
            return execute()
        if self._rng.random() < 0.5:
            execute()  # and the reply is lost
        else:
            self.late.append(execute)
        if again:
            return execute()
        raise StoreUnavailable

    def arrive_late(self) -> None:
        """Deliver one delayed call."""
        execute = self.late.pop(self._rng.randrange(len(self.late)))
        try:
            execute()
        except (BatchRefused, IndexLost, StoreUnavailable):
            return


class Store:
    """The connection of one process.

    Args:
        index: The server.
        network: The way there.
        rules: The rules.
        staging: Process that rebuilds the index over this connection; None for the index.
    """

    def __init__(self, index: Index, network: Network, rules: Rules, staging: str | None = None) -> None:
        self._staging = staging
        self._index = index
        self._network = network
        self._rules = rules
        self._incarnation = index.incarnation
        #: Incarnation of the connection over which the last call went.
        self._called = index.incarnation
        self._number = 0
        #: Slot that numbers calls -> number of the last acknowledged call.
        self._acknowledged: dict[int, int] = {}
        index.stores_count += 1
        self.name = f"process {index.stores_count}"

    def trace_event(self, *what: object) -> None:
        """Add an event of this process to the trace."""
        self._index.trace_event(f"  {self.name}", *what)

    def look(self) -> None:
        """Check the index and the connection.

        Raises:
            Reconnected: The connection was opened again.
            IndexLost: The index is gone.
        """
        self._called = self._index.incarnation
        if not self._index.exists:
            raise IndexLost
        self.check_connection()

    def forget_calls(self) -> None:
        """Forget the acknowledged calls, as after an hour without work: their numbers expire."""
        self._acknowledged.clear()

    def check_connection(self) -> None:
        """Check that the connection was not opened again.

        Raises:
            Reconnected: The connection was opened again, which a call does by itself.
        """
        if self._incarnation != self._called and self._rules.reconnection_detected:
            self._incarnation = self._called
            raise Reconnected

    def _call(
        self, slot: int, fences: Fences, script: Callable[..., Any], *arguments: Any
    ) -> Generator[Step, None, Any]:
        yield None
        self._number += 1
        call_slot = self._index.call_slot(slot)
        acknowledged = self._acknowledged.get(call_slot, 0)
        call = partial(self._execute, slot, self._number, acknowledged, fences, script, *arguments)
        try:
            result = self._network.deliver(call, again=not self._rules.fenced_in_doubt)
        except StoreUnavailable:
            self._acknowledged.clear()
            raise
        if fences:
            self._acknowledged[call_slot] = self._number
        return result

    def _execute(
        self, at: int, number: int, acknowledged: int, fences: Fences, script: Callable[..., Any], *arguments: Any
    ) -> Any:
        self._called = self._index.incarnation
        # Read at delivery, not when the call was sent: the server may be another one.
        slot = self._index.slots[at]
        try:
            self._index.check(slot, fences)
            if fences:
                self._index.count_call(at, self.name, number, acknowledged)
            result = script(slot, *arguments)
        except (BatchRefused, IndexLost, StoreUnavailable) as error:
            self._index.trace_event(f"  {self.name} slot {at} {script.__name__}", *arguments, f"-> {error!r}")
            raise
        self._index.trace_event(f"  {self.name} slot {at} {script.__name__}", *arguments, f"-> {result}")
        return result

    def fence(
        self, partition: int, generation: int, committed: int, attempt_id: AttemptId | None, topic: int
    ) -> Generator[Step, None, Fence]:
        """Fence a partition in every slot, with the highest epoch.

        Args:
            partition: The partition.
            generation: Our generation.
            committed: Committed offset.
            attempt_id: The attempt that committed it; None when offsets were set by hand.
            topic: Incarnation of the topic.

        Raises:
            IndexLost: Some slot has never heard of that attempt.
        """
        epoch = 0
        if self._rules.fenced_in_doubt:
            epoch = yield from self._call(0, (), self._index.next_epoch)
        announced = []
        for slot in range(SLOTS):
            last = yield from self._call(
                slot, (), self._index.set_fence, partition, generation, epoch, attempt_id is not None, self._staging
            )
            announced.append(last)
        if self._rules.announced and min(announced) < (attempt_id or NO_ATTEMPT):
            raise IndexLost
        fence = Fence(partition, generation, epoch, 0, attempt_id or NO_ATTEMPT)
        mark = yield from self._call(partition % SLOTS, (fence,), self._index.raise_mark, partition, committed, topic)
        return fence._replace(mark=mark)

    def verify(self, attempt_ids: Sequence[AttemptId | None]) -> Generator[Step, None, None]:
        """Check that all committed attempts are announced in every slot.

        Raises:
            IndexLost: Something is not.
        """
        for of_slot in (yield from self.announced(len(attempt_ids))):
            if any(last.attempt_id < (known or NO_ATTEMPT) for last, known in zip(of_slot, attempt_ids, strict=True)):
                raise IndexLost

    def announced(self, partitions_count: int) -> Generator[Step, None, list[list[Announced]]]:
        """Return the last announced attempt of each partition, by slot."""
        by_slot: list[list[Announced]] = []
        for slot in range(SLOTS):
            of_slot = yield from self._call(slot, (), self._index.get_announced, range(partitions_count))
            by_slot.append(of_slot)
        return by_slot

    def insert_entries(
        self, inserts: Sequence[tuple[int, Record | Marker, Position | None]], fences: Fences
    ) -> Generator[Step, None, list[InsertResult]]:
        return (yield from self._spread(self._index.insert_entries, inserts, lambda insert: insert[0] % SLOTS, fences))

    def forget_removals(self, docs: Sequence[tuple[int, Position]], fences: Fences) -> Generator[Step, None, None]:
        """Delete the record of removals, after a call that changes nothing.

        A server that forgets the removals in another slot forgets this call too, and refuses the next.
        """
        for slot in sorted({doc % SLOTS for doc, _ in docs}):
            yield from self._call(slot, fences, self._index.remove_from_buckets, [])
        for slot in range(SLOTS):
            own = [entry for entry in docs if entry[0] % SLOTS == slot]
            if own:
                yield from self._call(slot, fences, self._index.forget_removals, own)

    def restore_incarnations(
        self, incarnations: Sequence[tuple[int, Position]], fences: Fences
    ) -> Generator[Step, None, None]:
        yield from self._spread(self._index.restore_incarnations, incarnations, lambda entry: entry[0] % SLOTS, fences)

    def drop_claims(self, docs: Sequence[int], fences: Fences) -> Generator[Step, None, None]:
        for slot in range(SLOTS):
            yield from self._call(slot, fences, self._index.drop_claims, docs)

    def insert_and_look_up(self, entries: Sequence[Entry], fences: Fences) -> Generator[Step, None, list[set[int]]]:
        """Insert documents into the bucket of every band; return the candidates of each."""
        candidates: list[set[int]] = [set() for _ in entries]
        # Add and read in one step, if the rule holds.
        calls = [(True, True)] if self._rules.add_before_read else [(False, True), (True, False)]
        for band in range(BANDS):
            own = [(doc, band, keys[band]) for doc, keys in entries]
            for add, read in calls:
                members = yield from self._call(band, fences, self._index.insert_and_look_up, own, add, read)
                for found, others in zip(candidates, members, strict=True):
                    found.update(others)
        return candidates

    def remove_from_buckets(
        self, entries: Sequence[tuple[int, int, int]], fences: Fences
    ) -> Generator[Step, None, None]:
        """Remove documents (document, band, key) from buckets."""
        for band in range(BANDS):
            own = [entry for entry in entries if entry[1] == band]
            if own:
                yield from self._call(band, fences, self._index.remove_from_buckets, own)

    def get_entries(self, docs: Sequence[int]) -> Generator[Step, None, dict[int, Record | Marker]]:
        found: dict[int, Record | Marker] = {}
        for slot in range(SLOTS):
            own = [doc for doc in docs if doc % SLOTS == slot]
            if own:
                found |= yield from self._call(slot, (), self._index.get_entries, own)
        return found

    def save_pending_matches(
        self, pending_matches: Sequence[tuple[Position, frozenset[Pair | None]]], fences: Fences
    ) -> Generator[Step, None, list[frozenset[Pair | None]]]:
        return (
            yield from self._spread(
                self._index.save_pending_matches, pending_matches, lambda entry: entry[0].partition % SLOTS, fences
            )
        )

    def claim_pairs(self, asked: Sequence[Ask], fences: Fences) -> Generator[Step, None, list[bool]]:
        return (yield from self._spread(self._index.claim_pairs, asked, lambda ask: any_slot(ask.pair), fences))

    def announce(self, announcements: Sequence[Announcement], fences: Fences) -> Generator[Step, None, None]:
        """Announce in every slot that batches are completely written, before they are published."""
        for slot in range(SLOTS):
            yield from self._call(slot, fences, self._index.announce, announcements)

    def finish(self, committed: Mapping[int, int], fences: Fences) -> Generator[Step, None, None]:
        for partition, end in committed.items():
            yield from self._call(partition % SLOTS, fences, self._index.finish, partition, end)

    def _spread(
        self, script: Callable[..., Any], entries: Sequence[Any], slot_of: Callable[[Any], int], fences: Fences
    ) -> Generator[Step, None, list[Any]]:
        """Call a script once for each slot; one result for each entry, in their order."""
        results: list[Any] = [None] * len(entries)
        for slot in range(SLOTS):
            rows = [row for row, entry in enumerate(entries) if slot_of(entry) == slot]
            if rows:
                replies = yield from self._call(slot, fences, script, [entries[row] for row in rows])
                for row, reply in zip(rows, replies, strict=True):
                    results[row] = reply
        return results
