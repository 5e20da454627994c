"""The server that the index lives in: slots, and scripts that are atomic within one slot.

Bands, records, claims and partitions are spread over the slots, so what a document needs is never changed in one step.
Every script takes the slot first. Names follow ``index/redis/lua``.
"""

import itertools
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from enum import IntEnum
from typing import Any, Generic, NamedTuple, TypeVar

from tests.model.documents import BANDS, Content, Marker, Pair, Position, Record
from tests.model.errors import BatchRefused, IndexLost, StoreUnavailable
from tests.model.lists import Lists
from tests.model.rules import Rules

SLOTS = BANDS
#: Names an attempt at a batch; later attempts have greater ones: generation, time.
Token = tuple[int, int]
NO_TOKEN: Token = (0, 0)
#: How long a draft stands without a sign of whoever builds it.
LEASE = 60
K = TypeVar("K")
V = TypeVar("V")
NEVER = float("inf")


class Clock:
    """Time of the world, in steps of the scheduler."""

    def __init__(self) -> None:
        self.now = 0


class InsertState(IntEnum):
    """What became of a record that was put; see ``streamdedup.index.contract``."""

    CREATED = 0
    REPLACED = 1
    REPLAYED = 2
    REDELIVERED = 3
    SUPERSEDED = 4
    #: There is nothing to delete or to append to.
    UNKNOWN = 5
    #: The record appended to is another one by now; nothing was changed.
    CONFLICT = 6


class Put(NamedTuple):
    """Outcome of one put: the state, what stands there, and the contents whose buckets are still to be left."""

    state: InsertState
    standing: Record | Marker | None
    shed: tuple[Content, ...]


class Right(NamedTuple):
    """The right to write for a partition; ``token`` is the last attempt known to be committed."""

    partition: int
    generation: int
    epoch: int
    mark: int
    token: Token = NO_TOKEN


class Listed(NamedTuple):
    """A document that was placed: which, at which position, and the time of its record."""

    doc: int
    position: Position
    time: int


class ListedClaim(NamedTuple):
    """A claim that was asked for: of which pair, by which position, and the time of its record."""

    pair: Hashable
    position: Position
    time: int


class Ask(NamedTuple):
    """A question for a claim: of which pair, by which position, and whether that only extends it."""

    pair: Hashable
    position: Position
    extending: bool = False


class Claim(NamedTuple):
    """A claim: the position that owns it, the last one that has asked, and whether that only extended it."""

    owner: Position
    last: Position
    extended: bool = False


class Snapshot(NamedTuple):
    """A copy of everything."""

    slots: list["Slot"]
    exists: bool
    builder: tuple[str, int] | None


class Table(Generic[K, V]):
    """Keys that expire a fixed time after they were set."""

    def __init__(self, clock: Clock, lifetime: int | None) -> None:
        self._clock = clock
        self._lifetime = lifetime
        self._entries: dict[K, tuple[V, float]] = {}

    def get(self, key: K) -> V | None:
        entry = self._entries.get(key)
        return entry[0] if entry is not None and entry[1] > self._clock.now else None

    def set(self, key: K, value: V) -> None:
        lifetime = self._lifetime
        self._entries[key] = (value, NEVER if lifetime is None else self._clock.now + lifetime)

    def drop(self, key: K) -> None:
        self._entries.pop(key, None)

    def items(self) -> list[tuple[K, V]]:
        now = self._clock.now
        return [(key, value) for key, (value, end) in self._entries.items() if end > now]

    def __iter__(self) -> Iterator[K]:
        return iter([key for key, _ in self.items()])

    def copy(self, copied: Callable[[V], V]) -> "Table[K, V]":
        other = Table[K, V](self._clock, self._lifetime)
        other._entries = {key: (copied(value), end) for key, (value, end) in self._entries.items()}
        return other


class Slot:
    """What lives and is changed together."""

    def __init__(self, clock: Clock, lifetime: int | None, claim_lifetime: int | None) -> None:
        self.records: Table[int, Record | Marker] = Table(clock, lifetime)
        self.shed: Table[int, tuple[Content, ...]] = Table(clock, lifetime)
        #: (band, key) -> member -> when it entered
        self.buckets: Table[tuple[int, int], dict[int, int]] = Table(clock, lifetime)
        self.claims: Table[Any, Claim] = Table(clock, claim_lifetime)
        #: Position -> pairs saved for it; None among them: an append that met no document
        self.partners: Table[Position, frozenset[Pair | None]] = Table(clock, lifetime)
        self.fences: dict[int, tuple[int, int]] = {}
        self.marks: dict[int, int] = {}
        #: Partition -> incarnation of the topic that its mark belongs to.
        self.topics: dict[int, int] = {}
        #: Documents placed from each partition, to be evicted when their time is over.
        self.listed: Lists[Listed] = Lists(lifetime)
        #: Claims made by each partition, to be dropped when nothing can meet either side.
        self.listed_claims: Lists[ListedClaim] = Lists(lifetime)
        #: Partition -> time that it has come to.
        self.times: dict[int, int] = {}
        self.announced: dict[int, Token] = {}
        #: Name of a store -> number of its last call.
        self.orders: dict[str, int] = {}
        self.epoch = 0

    def copy(self) -> "Slot":
        other = Slot.__new__(Slot)
        same = lambda value: value  # noqa: E731
        other.records, other.shed = self.records.copy(same), self.shed.copy(same)
        other.buckets, other.claims = self.buckets.copy(dict), self.claims.copy(same)
        other.partners = self.partners.copy(same)
        other.fences, other.marks, other.topics = dict(self.fences), dict(self.marks), dict(self.topics)
        other.announced, other.epoch = dict(self.announced), self.epoch
        other.orders = dict(self.orders)
        other.listed, other.listed_claims = self.listed.copy(), self.listed_claims.copy()
        other.times = dict(self.times)
        return other


class Index:
    """The server.

    Args:
        clock: The time.
        lifetime: How long a key lives; None for ever.
        rules: The rules.
    """

    def __init__(self, clock: Clock, lifetime: int | None, rules: Rules) -> None:
        self.clock = clock
        self.lifetime = lifetime
        self._claim_lifetime = None if lifetime is None else lifetime * (2 if rules.claims_cover_replays else 1)
        self._rules = rules
        #: Changes whenever all connections are cut.
        self.incarnation = 0
        self.exists = True
        #: Who builds it anew, and when he was last heard of.
        self.builder: tuple[str, int] | None = None
        #: How many processes have connected; gives each a name in the trace.
        self.stores_count = 0
        #: What happened, for whoever looks into a run.
        self.trace: list[str] | None = None
        self.slots = self._empty_slots()

    def note(self, *what: object) -> None:
        """Write something into the trace, if there is one."""
        if self.trace is not None:
            self.trace.append(f"{self.clock.now:5} {' '.join(map(str, what))}")

    def _empty_slots(self) -> list[Slot]:
        return [Slot(self.clock, self.lifetime, self._claim_lifetime) for _ in range(SLOTS)]

    # What happens to servers

    def flush(self) -> None:
        """Lose everything; connections stay."""
        self.slots = self._empty_slots()
        self.exists = False
        self.builder = None

    def snapshot(self) -> Snapshot:
        return Snapshot([slot.copy() for slot in self.slots], self.exists, self.builder)

    def restore(self, snapshot: Snapshot) -> None:
        """Come back as of an earlier time; all connections are cut."""
        self.slots = [slot.copy() for slot in snapshot.slots]
        self.incarnation += 1
        self.exists, self.builder = snapshot.exists, snapshot.builder

    # The draft, all of it in one slot

    def is_being_built(self, name: str | None = None) -> bool:
        """Tell whether somebody builds the index anew, or this one does."""
        if self.builder is None or self.builder[1] + LEASE <= self.clock.now:
            return False
        return name is None or self.builder[0] == name

    def hold_staging(self, name: str) -> bool:
        """Reserve the building, unless somebody else has."""
        if self.is_being_built() and not self.is_being_built(name):
            return False
        self.builder = (name, self.clock.now)
        return True

    def release_draft(self, name: str) -> None:
        """Let somebody else build."""
        if self.is_being_built(name):
            self.builder = None

    def begin_draft(self, name: str) -> bool:
        """Delete what is there and begin to build, if it is ours to do."""
        if not self.is_being_built(name):
            return False
        self.flush()
        self.builder = (name, self.clock.now)
        self.exists = not self._rules.whole_before_use
        return True

    def keep_draft(self, name: str) -> None:
        """Prolong the hold on the draft (``hold_staging.lua``).

        Raises:
            BatchRefused: It is not ours any more.
        """
        if not self.is_being_built(name):
            raise BatchRefused
        self.builder = (name, self.clock.now)

    def complete_draft(self, name: str) -> None:
        """Make the draft the index."""
        self.keep_draft(name)
        self.builder = None
        self.exists = True

    # Scripts

    def check(self, slot: Slot, rights: Iterable[Right]) -> None:
        """Refuse writes of lower generations or epochs (``_fence.lua``)."""
        for right in rights:
            stored = slot.fences.get(right.partition)
            if stored is None:
                if not self.exists:
                    raise IndexLost
                raise BatchRefused
            if self._rules.fence and stored > (right.generation, right.epoch):
                raise BatchRefused

    def count_call(self, slot: Slot, name: str, number: int, acknowledged: int) -> None:
        """Refuse a call where an earlier one of the same store was forgotten (``_fence.lua``)."""
        last = slot.orders.get(name, 0)
        if self._rules.writes_remembered and last < acknowledged:
            raise StoreUnavailable
        slot.orders[name] = max(number, last)

    def next_epoch(self, slot: Slot) -> int:
        """Return a number greater than all before, also when the counter was lost: the server's time helps."""
        slot.epoch = max(slot.epoch + 1, self.clock.now)
        return slot.epoch

    def set_fence(
        self, slot: Slot, partition: int, generation: int, epoch: int, known: bool, name: str | None
    ) -> Token:
        """Take a partition over in one slot; return the last attempt at a batch of it that was announced there.

        Args:
            slot: The slot.
            partition: The partition.
            generation: Our generation.
            epoch: Our epoch.
            known: Whether it is known which attempt was committed; else, in a new group, those before count no more.
            name: Who builds the draft in which this happens; None in the index.
        """
        if not (self.exists if name is None else self.is_being_built(name)):
            raise IndexLost
        if self._rules.fence and slot.fences.get(partition, (0, 0)) > (generation, epoch):
            raise BatchRefused
        if not known and partition not in slot.fences:
            slot.announced.pop(partition, None)
        slot.fences[partition] = (generation, epoch)
        return slot.announced.get(partition, NO_TOKEN)

    def raise_mark(self, slot: Slot, partition: int, committed: int, topic: int) -> int:
        """Raise the mark to what is committed, forget the partners saved below it; return the mark.

        The mark of an earlier incarnation of the topic is forgotten, and so are its partners.

        Raises:
            BatchRefused: The topic was deleted and created again since the caller has heard of it.
        """
        if topic < slot.topics.get(partition, 0):
            raise BatchRefused
        if topic > slot.topics.get(partition, 0):
            slot.topics[partition] = topic
            slot.marks.pop(partition, None)
            for position in slot.partners:
                if position.partition == partition and position.topic < topic:
                    slot.partners.drop(position)
        slot.marks[partition] = max(slot.marks.get(partition, 0), committed)
        if self._rules.purged_when_taken_over:
            self._purge(slot, partition, committed)
        return slot.marks[partition]

    def finish(self, slot: Slot, partition: int, committed: int) -> None:
        """Note what is committed and forget the partners saved below it."""
        slot.marks[partition] = max(slot.marks.get(partition, 0), committed)
        self._purge(slot, partition, committed)

    def list_placed(self, slot: Slot, entries: Sequence[Listed]) -> None:
        """Note documents that were placed."""
        for entry in entries:
            slot.listed.append(entry.position.partition, entry, self.clock.now, sliced=self._rules.lists_expire)

    def raise_time(self, slot: Slot, partition: int, time: int) -> None:
        """Note how far in time a partition has come."""
        slot.times[partition] = max(slot.times.get(partition, time), time)

    def get_times(self, slot: Slot) -> dict[int, int]:
        """Return how far in time each partition has come, of those that are noted here."""
        return dict(slot.times)

    def get_listed(self, slot: Slot, partition: int, limit: int, count: int) -> list[Listed]:
        """Return the first listed documents of a partition, up to the first that is not older than a limit."""
        first = slot.listed.first(partition, count, self.clock.now)
        return list(itertools.takewhile(lambda entry: entry.time < limit, first))

    def unlist(self, slot: Slot, partition: int, entries: Sequence[Listed]) -> None:
        """Forget the first listed documents, if they are these."""
        slot.listed.remove_first(partition, entries, self.clock.now)

    def drop_entries(self, slot: Slot, entries: Sequence[Listed]) -> None:
        """Drop records that stand at the listed position."""
        for doc, position, _ in entries:
            standing = slot.records.get(doc)
            if standing is not None and (standing.position == position or not self._rules.aged_where_listed):
                slot.records.drop(doc)

    def list_claims(self, slot: Slot, entries: Sequence[ListedClaim]) -> None:
        """Note claims that were asked for."""
        for entry in entries:
            slot.listed_claims.append(entry.position.partition, entry, self.clock.now, sliced=self._rules.lists_expire)

    def get_listed_claims(self, slot: Slot, partition: int, limit: int, count: int) -> list[ListedClaim]:
        """Return the first listed claims of a partition, up to the first that is not older than a limit."""
        first = slot.listed_claims.first(partition, count, self.clock.now)
        return list(itertools.takewhile(lambda entry: entry.time < limit, first))

    def unlist_claims(self, slot: Slot, partition: int, entries: Sequence[ListedClaim]) -> None:
        """Forget the first listed claims, if they are these."""
        slot.listed_claims.remove_first(partition, entries, self.clock.now)

    def drop_listed_claims(self, slot: Slot, entries: Sequence[ListedClaim]) -> list[None]:
        """Drop claims that nobody has asked for since they were listed."""
        for pair, position, _ in entries:
            claim = slot.claims.get(pair)
            if claim is not None and claim.last == position:
                slot.claims.drop(pair)
        return [None] * len(entries)

    def _purge(self, slot: Slot, partition: int, committed: int) -> None:
        for position in slot.partners:
            if position.partition == partition and position.offset < committed:
                slot.partners.drop(position)

    def announce(self, slot: Slot, known: Sequence[tuple[int, Token]], token: Token) -> None:
        """Note that an attempt at a batch is completely written.

        Args:
            slot: The slot.
            known: Each partition, and the last attempt known to be committed.
            token: The attempt.
        """
        for partition, committed in known:
            if self._rules.announced_in_turn and slot.announced.get(partition, NO_TOKEN) < committed:
                raise IndexLost
        for partition, _ in known:
            slot.announced[partition] = max(slot.announced.get(partition, NO_TOKEN), token)

    def settle_announced(self, slot: Slot, partition: int, draft: Token, token: Token | None) -> None:
        """Put what is committed in the place of a draft's announcement."""
        if slot.announced.get(partition) != draft:
            raise IndexLost
        slot.announced.pop(partition, None)
        if token is not None:
            slot.announced[partition] = token

    def get_announced(self, slot: Slot, partitions: Sequence[int]) -> list[Token]:
        """Return the last attempt announced for each partition."""
        return [slot.announced.get(partition, NO_TOKEN) for partition in partitions]

    def insert_entries(self, slot: Slot, puts: Sequence[tuple[int, Record | Marker, Position | None]]) -> list[Put]:
        """Put records and markers in the order given.

        Args:
            slot: The slot.
            puts: For each the document, what to put, and the position of the record appended to.
        """
        return [self._put(slot, doc, new, base) for doc, new, base in puts]

    def _put(self, slot: Slot, doc: int, new: Record | Marker, base: Position | None) -> Put:
        old = slot.records.get(doc)
        state = decide_version(old, new, self._rules)
        if (
            base is not None
            and state in (InsertState.CREATED, InsertState.REPLACED)
            and (old is None or old.position != base)
        ):
            return Put(InsertState.CONFLICT, old, ())
        if state in (InsertState.CREATED, InsertState.REPLACED):
            if isinstance(new, Marker) and not self._rules.deletion_marked:
                slot.records.drop(doc)
            else:
                slot.records.set(doc, new)
            if isinstance(old, Record) and self._rules.leaving_remembered:
                slot.shed.set(doc, (*(slot.shed.get(doc) or ()), old.content))
        shed = slot.shed.get(doc) or ()
        if isinstance(old, Record) and state is InsertState.REPLACED and not self._rules.leaving_remembered:
            shed = (old.content,)
        return Put(state, old, shed)

    def settle(self, slot: Slot, docs: Sequence[tuple[int, Position]]) -> None:
        """Forget the buckets to be left: they are left."""
        for doc, position in docs:
            standing = slot.records.get(doc)
            if standing is None or standing.position == position:
                slot.shed.drop(doc)

    def drop_claims(self, slot: Slot, docs: Sequence[int]) -> None:
        """Remove the claims of documents; only without ``claims_outlive_deletion``."""
        for pair in slot.claims:
            if pair[0][0] in docs or pair[1][0] in docs:
                slot.claims.drop(pair)

    def insert_and_look_up(
        self, slot: Slot, entries: Sequence[tuple[int, int, int]], add: bool, read: bool
    ) -> list[list[int]]:
        """Add documents (document, band, key) to buckets and return who was there before each."""
        found = []
        now = self.clock.now
        for doc, band, key in entries:
            members = slot.buckets.get((band, key)) or {}
            if self.lifetime is not None and self._rules.members_expire:
                members = {member: since for member, since in members.items() if since + self.lifetime > now}
            found.append([member for member in members if member != doc] if read else [])
            if add:
                members[doc] = now
                slot.buckets.set((band, key), members)
        return found

    def remove_from_buckets(self, slot: Slot, entries: Sequence[tuple[int, int, int]]) -> None:
        """Take documents (document, band, key) out of buckets."""
        for doc, band, key in entries:
            members = slot.buckets.get((band, key))
            if members is not None:
                members.pop(doc, None)

    def get_entries(self, slot: Slot, docs: Sequence[int]) -> dict[int, Record | Marker]:
        """Return what stands at each document that there is."""
        found = ((doc, slot.records.get(doc)) for doc in docs)
        return {doc: standing for doc, standing in found if standing is not None}

    def save_pending_matches(
        self, slot: Slot, partners: Sequence[tuple[Position, frozenset[Pair | None]]]
    ) -> list[frozenset[Pair | None]]:
        """Add to what is saved for each position and return all of it."""
        saved = []
        for position, pairs in partners:
            known = slot.partners.get(position) or frozenset()
            if not pairs <= known:
                known |= pairs
                slot.partners.set(position, known)
            saved.append(known)
        return saved

    def claim_pairs(self, slot: Slot, asked: Sequence[Ask]) -> list[bool]:
        """Give each pair to the position that asks first, extend its claim; return for each whether it is this one."""
        owned = []
        for pair, position, extending in asked:
            claim = slot.claims.get(pair)
            if claim is None and not extending:
                slot.claims.set(pair, Claim(position, position))
            elif claim is not None and self._rules.claims_extended:
                slot.claims.set(pair, Claim(claim.owner, position, extending))
            owned.append(not extending and (claim is None or claim.owner == position))
        return owned


def decide_version(old: Record | Marker | None, new: Record | Marker, rules: Rules) -> InsertState:
    """Decide by position order, as ``index.documents.decide_version`` of the product does."""
    if old is None:
        return InsertState.UNKNOWN if isinstance(new, Marker) else InsertState.CREATED
    if old.position == new.position:
        return InsertState.REPLAYED
    same_partition = old.position.log == new.position.log
    if same_partition and new.position.offset < old.position.offset and rules.position_order:
        return InsertState.SUPERSEDED
    if isinstance(old, Marker):
        if not same_partition and new.time <= old.time:
            return InsertState.SUPERSEDED
        return InsertState.REPLACED if isinstance(new, Marker) else InsertState.CREATED
    if isinstance(new, Record) and is_same_text(old, new, rules):
        return InsertState.REDELIVERED
    if not same_partition and new.time <= old.time:
        return InsertState.SUPERSEDED
    return InsertState.REPLACED


def is_same_text(old: Record, new: Record, rules: Rules) -> bool:
    """Tell whether the same text stands there already."""
    if rules.content_compared:
        return old.content == new.content
    return old.version == new.version and len(new.content) == 1


def any_slot(key: Any) -> int:
    """Spread keys over the slots."""
    return hash(key) % SLOTS
