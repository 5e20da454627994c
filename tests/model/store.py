"""A daemon's connection to the index: the calls of ``streamdedup.index.contract.BucketStore``, one effect at a time.

Every method is a generator that gives up control before each call of a script, one script for each slot that it
concerns, so anything may happen in between, and a process that is killed or frozen stops there.
"""

import random
from collections.abc import Callable, Generator, Mapping, Sequence
from functools import partial
from typing import Any

from tests.model.documents import BANDS, Marker, Pair, Position, Record
from tests.model.errors import BatchRefused, IndexLost, Reconnected, StoreUnavailable
from tests.model.index import NO_TOKEN, SLOTS, Ask, Index, Listed, ListedClaim, Put, Right, Token, any_slot
from tests.model.rules import Rules

#: What a step of a daemon tells the scheduler: that there was nothing to do, or nothing.
Step = str | None
Rights = Sequence[Right]
Entry = tuple[int, tuple[int, ...]]


class Network:
    """The way to the server: a reply may be lost, and a call may be stuck and take effect late.

    Args:
        rng: Decides.
        doubt: Share of the calls whose outcome stays unknown.
    """

    def __init__(self, rng: random.Random, doubt: float) -> None:
        self._rng = rng
        self._doubt = doubt
        #: Calls still on their way.
        self.late: list[Callable[[], Any]] = []

    def deliver(self, execute: Callable[[], Any], again: bool) -> Any:
        """Carry a call to the server.

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
        """Let one of the calls on their way take effect."""
        execute = self.late.pop(self._rng.randrange(len(self.late)))
        try:
            execute()
        except (BatchRefused, IndexLost, StoreUnavailable):
            return


class Store:
    """One process's connection.

    Args:
        index: The server.
        network: The way there.
        rules: The rules.
        draft: Who builds the index anew by this store; None for the index itself.
    """

    def __init__(self, index: Index, network: Network, rules: Rules, draft: str | None = None) -> None:
        self._draft = draft
        self._index = index
        self._network = network
        self._rules = rules
        self._incarnation = index.incarnation
        self._number = 0
        #: Slot -> number of the last call there that was acknowledged.
        self._acknowledged: dict[int, int] = {}
        index.stores_count += 1
        self.name = f"process {index.stores_count}"

    def note(self, *what: object) -> None:
        """Write something that this process did into the trace."""
        self._index.note(f"  {self.name}", *what)

    def look(self) -> None:
        """Notice in passing that the index is gone, or the connection another one.

        Raises:
            Reconnected: The connection had to be opened anew.
            IndexLost: The index is gone.
        """
        if not self._index.exists:
            raise IndexLost
        self.check_connection()

    def check_connection(self) -> None:
        """Make sure that the connection is the one that was seen last.

        Raises:
            Reconnected: It had to be opened anew, which a call does in passing.
        """
        if self._incarnation != self._index.incarnation and self._rules.reconnecting_noticed:
            self._incarnation = self._index.incarnation
            raise Reconnected

    def _call(
        self, slot: int, rights: Rights, script: Callable[..., Any], *arguments: Any
    ) -> Generator[Step, None, Any]:
        yield None
        self._number += 1
        call = partial(self._execute, slot, self._number, self._acknowledged.get(slot, 0), rights, script, *arguments)
        try:
            result = self._network.deliver(call, again=not self._rules.fenced_in_doubt)
        except StoreUnavailable:
            self._acknowledged.clear()
            raise
        if rights:
            self._acknowledged[slot] = self._number
        return result

    def _execute(
        self, at: int, number: int, acknowledged: int, rights: Rights, script: Callable[..., Any], *arguments: Any
    ) -> Any:
        # Looked up now, not when the call was sent: the server may be another one by then.
        slot = self._index.slots[at]
        try:
            self._index.check(slot, rights)
            if rights:
                self._index.count_call(slot, self.name, number, acknowledged)
            result = script(slot, *arguments)
        except (BatchRefused, IndexLost, StoreUnavailable) as error:
            self._index.note(f"  {self.name} slot {at} {script.__name__}", *arguments, f"-> {error!r}")
            raise
        self._index.note(f"  {self.name} slot {at} {script.__name__}", *arguments, f"-> {result}")
        return result

    def fence(
        self, partition: int, generation: int, committed: int, token: Token | None, topic: int
    ) -> Generator[Step, None, Right]:
        """Take over a partition in every slot, with a later epoch than ever before.

        Args:
            partition: The partition.
            generation: Our generation.
            committed: What the group has committed.
            token: The attempt that committed it; None when offsets were set by hand.
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
                slot, (), self._index.set_fence, partition, generation, epoch, token is not None, self._draft
            )
            announced.append(last)
        if self._rules.announced and min(announced) < (token or NO_TOKEN):
            raise IndexLost
        right = Right(partition, generation, epoch, 0, token or NO_TOKEN)
        mark = yield from self._call(partition % SLOTS, (right,), self._index.raise_mark, partition, committed, topic)
        return right._replace(mark=mark)

    def verify(self, tokens: Sequence[Token | None]) -> Generator[Step, None, None]:
        """Look whether all that is committed is announced in every slot.

        Raises:
            IndexLost: Something is not.
        """
        for slot in range(SLOTS):
            announced = yield from self._call(slot, (), self._index.get_announced, range(len(tokens)))
            if any(last < (token or NO_TOKEN) for last, token in zip(announced, tokens, strict=True)):
                raise IndexLost

    def insert_entries(
        self, puts: Sequence[tuple[int, Record | Marker, Position | None]], rights: Rights
    ) -> Generator[Step, None, list[Put]]:
        return (yield from self._spread(self._index.insert_entries, puts, lambda put: put[0] % SLOTS, rights))

    def settle(self, docs: Sequence[tuple[int, Position]], rights: Rights) -> Generator[Step, None, None]:
        """Forget what is to be left, after a call that changes nothing.

        Whoever forgets that buckets of another slot were left forgets this one too, and refuses the next.
        """
        for slot in sorted({doc % SLOTS for doc, _ in docs}):
            yield from self._call(slot, rights, self._index.remove_from_buckets, [])
        for slot in range(SLOTS):
            mine = [entry for entry in docs if entry[0] % SLOTS == slot]
            if mine:
                yield from self._call(slot, rights, self._index.settle, mine)

    def drop_claims(self, docs: Sequence[int], rights: Rights) -> Generator[Step, None, None]:
        for slot in range(SLOTS):
            yield from self._call(slot, rights, self._index.drop_claims, docs)

    def insert_and_look_up(self, entries: Sequence[Entry], rights: Rights) -> Generator[Step, None, list[set[int]]]:
        """Enter every band's bucket; return for each document whom it met."""
        met: list[set[int]] = [set() for _ in entries]
        # Add and read in one step, unless the rule is off.
        calls = [(True, True)] if self._rules.add_before_read else [(False, True), (True, False)]
        for band in range(BANDS):
            mine = [(doc, band, keys[band]) for doc, keys in entries]
            for add, read in calls:
                members = yield from self._call(band, rights, self._index.insert_and_look_up, mine, add, read)
                for found, others in zip(met, members, strict=True):
                    found.update(others)
        return met

    def remove_from_buckets(
        self, entries: Sequence[tuple[int, int, int]], rights: Rights
    ) -> Generator[Step, None, None]:
        """Take documents (document, band, key) out of buckets."""
        for band in range(BANDS):
            mine = [entry for entry in entries if entry[1] == band]
            if mine:
                yield from self._call(band, rights, self._index.remove_from_buckets, mine)

    def get_entries(self, docs: Sequence[int]) -> Generator[Step, None, dict[int, Record | Marker]]:
        found: dict[int, Record | Marker] = {}
        for slot in range(SLOTS):
            mine = [doc for doc in docs if doc % SLOTS == slot]
            if mine:
                found |= yield from self._call(slot, (), self._index.get_entries, mine)
        return found

    def save_pending_matches(
        self, partners: Sequence[tuple[Position, frozenset[Pair | None]]], rights: Rights
    ) -> Generator[Step, None, list[frozenset[Pair | None]]]:
        return (
            yield from self._spread(
                self._index.save_pending_matches, partners, lambda entry: entry[0].partition % SLOTS, rights
            )
        )

    def claim_pairs(self, asked: Sequence[Ask], rights: Rights) -> Generator[Step, None, list[bool]]:
        return (yield from self._spread(self._index.claim_pairs, asked, lambda ask: any_slot(ask.pair), rights))

    def announce(self, token: Token, rights: Rights) -> Generator[Step, None, None]:
        """Note in every slot that an attempt is completely written, before it is published."""
        known = [(right.partition, right.token) for right in rights]
        for slot in range(SLOTS):
            yield from self._call(slot, rights, self._index.announce, known, token)

    def settle_announced(self, draft: Token, token: Token | None, right: Right) -> Generator[Step, None, None]:
        """Announce what is committed, in a draft."""
        for slot in range(SLOTS):
            yield from self._call(slot, (right,), self._index.settle_announced, right.partition, draft, token)

    def finish(self, committed: Mapping[int, int], rights: Rights) -> Generator[Step, None, None]:
        for partition, end in committed.items():
            yield from self._call(partition % SLOTS, rights, self._index.finish, partition, end)

    def list_placed(self, entries: Sequence[Listed], rights: Rights) -> Generator[Step, None, None]:
        """Note documents that were placed, each in the slot of its partition."""
        for slot in range(SLOTS):
            mine = [entry for entry in entries if entry.position.partition % SLOTS == slot]
            if mine:
                yield from self._call(slot, rights, self._index.list_placed, mine)

    def raise_time(self, partition: int, time: int, right: Right) -> Generator[Step, None, None]:
        """Note how far in time a partition has come."""
        yield from self._call(partition % SLOTS, (right,), self._index.raise_time, partition, time)

    def get_times(self) -> Generator[Step, None, dict[int, int]]:
        """Return how far in time each partition has come."""
        times: dict[int, int] = {}
        for slot in range(SLOTS):
            times |= yield from self._call(slot, (), self._index.get_times)
        return times

    def get_listed(self, partition: int, limit: int, count: int) -> Generator[Step, None, list[Listed]]:
        """Return the first listed documents of a partition that are older than a limit."""
        return (yield from self._call(partition % SLOTS, (), self._index.get_listed, partition, limit, count))

    def unlist(self, partition: int, entries: Sequence[Listed], right: Right) -> Generator[Step, None, None]:
        """Forget listed documents."""
        yield from self._call(partition % SLOTS, (right,), self._index.unlist, partition, entries)

    def drop_entries(self, entries: Sequence[Listed], right: Right) -> Generator[Step, None, None]:
        """Drop records that stand at the listed position."""
        for slot in range(SLOTS):
            mine = [entry for entry in entries if entry.doc % SLOTS == slot]
            if mine:
                yield from self._call(slot, (right,), self._index.drop_entries, mine)

    def list_claims(self, entries: Sequence[ListedClaim], rights: Rights) -> Generator[Step, None, None]:
        """Note claims that were asked for, each in the slot of its partition."""
        for slot in range(SLOTS):
            mine = [entry for entry in entries if entry.position.partition % SLOTS == slot]
            if mine:
                yield from self._call(slot, rights, self._index.list_claims, mine)

    def get_listed_claims(self, partition: int, limit: int, count: int) -> Generator[Step, None, list[ListedClaim]]:
        """Return the first listed claims of a partition that are older than a limit."""
        return (yield from self._call(partition % SLOTS, (), self._index.get_listed_claims, partition, limit, count))

    def drop_listed_claims(
        self, partition: int, entries: Sequence[ListedClaim], right: Right
    ) -> Generator[Step, None, None]:
        """Drop claims, then forget that they are listed."""
        yield from self._spread(self._index.drop_listed_claims, entries, lambda entry: any_slot(entry.pair), (right,))
        yield from self._call(partition % SLOTS, (right,), self._index.unlist_claims, partition, entries)

    def _spread(
        self, script: Callable[..., Any], entries: Sequence[Any], slot_of: Callable[[Any], int], rights: Rights
    ) -> Generator[Step, None, list[Any]]:
        """Call a script once for each slot; one result for each entry, in their order."""
        results: list[Any] = [None] * len(entries)
        for slot in range(SLOTS):
            rows = [row for row, entry in enumerate(entries) if slot_of(entry) == slot]
            if rows:
                replies = yield from self._call(slot, rights, script, [entries[row] for row in rows])
                for row, reply in zip(rows, replies, strict=True):
                    results[row] = reply
        return results
