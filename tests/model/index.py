"""The server of the index: slots, and scripts that are atomic within one slot.

Bands, entries, claims and partitions are spread over the slots, so no step changes all data of a document.
Every script takes the slot first. Names follow ``index/redis/lua``.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from enum import IntEnum
from typing import Any, Generic, NamedTuple, TypeVar

from tests.model.documents import BANDS, NEVER_DELETED, Content, Marker, Pair, Position, Record, with_incarnation
from tests.model.errors import BatchRefused, IndexLost, StoreUnavailable
from tests.model.rules import Rules

SLOTS = BANDS
#: Attempt id of a batch: generation and time, ascending.
AttemptId = tuple[int, int]
NO_ATTEMPT: AttemptId = (0, 0)
#: Owner of the claims on pairs whose alert is committed: no record has this position.
PUBLISHED = Position(-1, -1)
#: Steps for which a staging index is reserved after the last sign of its process.
LEASE = 60
K = TypeVar("K")
V = TypeVar("V")
NEVER = float("inf")


class Clock:
    """Time of the world, in steps of the scheduler."""

    def __init__(self) -> None:
        self.now = 0


class InsertState(IntEnum):
    """Result of inserting an entry; see ``streamdedup.index.contract``."""

    CREATED = 0
    REPLACED = 1
    REPLAYED = 2
    REDELIVERED = 3
    SUPERSEDED = 4
    #: There is nothing to append to.
    UNKNOWN = 5
    #: The entry that is appended to has changed; nothing was written.
    CONFLICT = 6


class InsertResult(NamedTuple):
    """Result of one insertion: the state, the stored entry, and contents to remove from their buckets."""

    state: InsertState
    stored: Record | Marker | None
    removals: tuple[Content, ...]


class Fence(NamedTuple):
    """The right to write for a partition; ``attempt_id`` is the last attempt known to be committed."""

    partition: int
    generation: int
    epoch: int
    mark: int
    attempt_id: AttemptId = NO_ATTEMPT


class Announced(NamedTuple):
    """The last announced attempt of a partition.

    Attributes:
        attempt_id: The attempt.
        start: Offset at which its batch began; None without an attempt.
        committed: The last attempt that was known to be committed when this one was announced.
    """

    attempt_id: AttemptId = NO_ATTEMPT
    start: int | None = None
    committed: AttemptId = NO_ATTEMPT


class Announcement(NamedTuple):
    """An attempt to be announced: its batch begins at ``start``, and ``known`` is the last committed attempt.

    The attempt of a rebuild is ``committed`` itself.
    """

    partition: int
    attempt_id: AttemptId
    start: int
    known: AttemptId = NO_ATTEMPT
    committed: bool = False


class Ask(NamedTuple):
    """A request for a claim: the pair, the position, and whether an existing claim is only extended."""

    pair: Hashable
    position: Position
    extending: bool = False


class Snapshot(NamedTuple):
    """A copy of the server."""

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

    def set(self, key: K, value: V, lifetime: int | None = None) -> None:
        lifetime = self._lifetime if lifetime is None else lifetime
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
    """Data of one slot, changed by one script at a time."""

    def __init__(self, clock: Clock, lifetime: int | None, claim_lifetime: int | None) -> None:
        self.records: Table[int, Record | Marker] = Table(clock, lifetime)
        self.removals: Table[int, tuple[Content, ...]] = Table(clock, lifetime)
        #: (band, key) -> member -> time of insertion
        self.buckets: Table[tuple[int, int], dict[int, int]] = Table(clock, lifetime)
        #: Pair -> position that owns it
        self.claims: Table[Any, Position] = Table(clock, claim_lifetime)
        #: Position -> pairs saved for it; None for an append that found no document
        self.pending_matches: Table[Position, frozenset[Pair | None]] = Table(clock, lifetime)
        self.fences: dict[int, tuple[int, int]] = {}
        self.marks: dict[int, int] = {}
        #: Partition -> incarnation of the topic of its mark.
        self.topics: dict[int, int] = {}
        self.announced: dict[int, Announced] = {}
        #: Name of a store -> number of its last call.
        self.orders: dict[str, int] = {}
        self.epoch = 0

    def copy(self) -> "Slot":
        other = Slot.__new__(Slot)
        same = lambda value: value  # noqa: E731
        other.records, other.removals = self.records.copy(same), self.removals.copy(same)
        other.buckets, other.claims = self.buckets.copy(dict), self.claims.copy(same)
        other.pending_matches = self.pending_matches.copy(same)
        other.fences, other.marks, other.topics = dict(self.fences), dict(self.marks), dict(self.topics)
        other.announced, other.epoch = dict(self.announced), self.epoch
        other.orders = dict(self.orders)
        return other


class Index:
    """The server of the index.

    Args:
        clock: The time.
        lifetime: How long a key lives; None for ever.
        rules: The rules.
        servers_apart: Whether each slot is on a server of its own.
    """

    def __init__(self, clock: Clock, lifetime: int | None, rules: Rules, *, servers_apart: bool = False) -> None:
        self.clock = clock
        self._servers_apart = servers_apart
        self.lifetime = lifetime
        self._claim_lifetime = None if lifetime is None else lifetime * (2 if rules.claims_cover_replays else 1)
        #: A replay of the other document may ask for the claim up to a lifetime after the deletion.
        self.marker_lifetime = lifetime
        if self._claim_lifetime is not None and lifetime is not None and rules.markers_outlive_claims:
            self.marker_lifetime = self._claim_lifetime + lifetime
        self._rules = rules
        #: Number of times that all connections were cut.
        self.incarnation = 0
        self.exists = True
        #: Process that rebuilds the index, and time of its last sign.
        self.builder: tuple[str, int] | None = None
        #: Number of stores; gives each a name in the trace.
        self.stores_count = 0
        #: Events of the run, if they are recorded.
        self.trace: list[str] | None = None
        self.slots = self._empty_slots()

    def trace_event(self, *what: object) -> None:
        """Add an event to the trace, if there is one."""
        if self.trace is not None:
            self.trace.append(f"{self.clock.now:5} {' '.join(map(str, what))}")

    def _empty_slots(self) -> list[Slot]:
        return [Slot(self.clock, self.lifetime, self._claim_lifetime) for _ in range(SLOTS)]

    # Faults of the server

    def flush(self) -> None:
        """Lose all data; connections stay open."""
        self.slots = self._empty_slots()
        self.exists = False
        self.builder = None

    def snapshot(self) -> Snapshot:
        return Snapshot([slot.copy() for slot in self.slots], self.exists, self.builder)

    def restore(self, snapshot: Snapshot, slots: Sequence[int] = range(SLOTS)) -> None:
        """Return some slots to an earlier state; all connections are cut. The first slot names the index."""
        for slot in slots:
            self.slots[slot] = snapshot.slots[slot].copy()
        self.incarnation += 1
        if 0 in slots:
            self.exists, self.builder = snapshot.exists, snapshot.builder

    # Staging, in one slot

    def is_being_built(self, name: str | None = None) -> bool:
        """Tell whether a process, or this one, rebuilds the index."""
        if self.builder is None or self.builder[1] + LEASE <= self.clock.now:
            return False
        return name is None or self.builder[0] == name

    def hold_staging(self, name: str) -> bool:
        """Reserve the rebuild, unless another process has."""
        if self.is_being_built() and not self.is_being_built(name):
            return False
        self.builder = (name, self.clock.now)
        return True

    def release_staging(self, name: str) -> None:
        """Let other processes rebuild."""
        if self.is_being_built(name):
            self.builder = None

    def begin_staging(self, name: str, *, is_gap: bool) -> bool:
        """Begin to rebuild the index, if the rebuild is reserved for this process; keep the index to fill a gap."""
        if not self.is_being_built(name):
            return False
        if not is_gap:
            self.flush()
            self.exists = not self._rules.whole_before_use
        self.builder = (name, self.clock.now)
        return True

    def extend_lease(self, name: str) -> None:
        """Extend the reservation of the rebuild (``extend_staging_lease.lua``).

        Raises:
            BatchRefused: Another process has reserved the rebuild.
        """
        if not self.is_being_built(name):
            raise BatchRefused
        self.builder = (name, self.clock.now)

    def complete_staging(self, name: str) -> None:
        """Make the staging index the index."""
        self.extend_lease(name)
        self.builder = None
        self.exists = True

    # Scripts

    def check(self, slot: Slot, fences: Iterable[Fence]) -> None:
        """Refuse writes of other generations or epochs (``_fence.lua``)."""
        for fence in fences:
            stored = slot.fences.get(fence.partition)
            if stored is None:
                if not self.exists:
                    raise IndexLost
                raise BatchRefused
            if self._rules.fence and stored != (fence.generation, fence.epoch):
                raise BatchRefused

    def call_slot(self, slot: int) -> int:
        """Return the slot that numbers the calls in a slot: one for all slots of a server."""
        return slot if self._servers_apart else 0

    def count_call(self, slot: int, name: str, number: int, acknowledged: int) -> None:
        """Refuse a call if an earlier call of the same store was forgotten (``_fence.lua``)."""
        orders = self.slots[self.call_slot(slot)].orders
        last = orders.get(name, 0)
        if self._rules.writes_remembered and last < acknowledged:
            raise StoreUnavailable
        orders[name] = max(number, last)

    def next_epoch(self, slot: Slot) -> int:
        """Return a number greater than all before. The server's time makes up for a lost counter."""
        slot.epoch = max(slot.epoch + 1, self.clock.now)
        return slot.epoch

    def set_fence(
        self, slot: Slot, partition: int, generation: int, epoch: int, known: bool, name: str | None
    ) -> AttemptId:
        """Fence a partition in one slot; return its last announced attempt there.

        Args:
            slot: The slot.
            partition: The partition.
            generation: Our generation.
            epoch: Our epoch.
            known: Whether it is known which attempt was committed; else, in a new group, those before count no more.
            name: Process that rebuilds the index, for its staging index; None for the index.
        """
        if not (self.exists if name is None else self.is_being_built(name)):
            raise IndexLost
        if self._rules.fence and slot.fences.get(partition, (0, 0)) > (generation, epoch):
            raise BatchRefused
        if not known and partition not in slot.fences:
            slot.announced.pop(partition, None)
        slot.fences[partition] = (generation, epoch)
        return slot.announced.get(partition, Announced()).attempt_id

    def raise_mark(self, slot: Slot, partition: int, committed: int, topic: int) -> int:
        """Raise the high-water mark to the committed offset, delete pending matches below it, and return it.

        The high-water mark and pending matches of an earlier incarnation of the topic are deleted.

        Raises:
            BatchRefused: The topic was deleted and created again since the caller has heard of it.
        """
        if topic < slot.topics.get(partition, 0):
            raise BatchRefused
        if topic > slot.topics.get(partition, 0):
            slot.topics[partition] = topic
            slot.marks.pop(partition, None)
            for position in slot.pending_matches:
                if position.partition == partition and position.topic < topic:
                    slot.pending_matches.drop(position)
        slot.marks[partition] = max(slot.marks.get(partition, 0), committed)
        if self._rules.purged_when_taken_over:
            self._purge(slot, partition, committed)
        return slot.marks[partition]

    def finish(self, slot: Slot, partition: int, committed: int) -> None:
        """Raise the high-water mark to the committed offset, and delete pending matches below it."""
        slot.marks[partition] = max(slot.marks.get(partition, 0), committed)
        self._purge(slot, partition, committed)

    def _purge(self, slot: Slot, partition: int, committed: int) -> None:
        for position in slot.pending_matches:
            if position.partition == partition and position.offset < committed:
                slot.pending_matches.drop(position)

    def announce(self, slot: Slot, announcements: Sequence[Announcement]) -> None:
        """Announce that batches are completely written.

        Raises:
            IndexLost: The slot has never heard of a committed attempt.
        """
        for partition, _, _, known, _ in announcements:
            if self._rules.announced_in_turn and slot.announced.get(partition, Announced()).attempt_id < known:
                raise IndexLost
        for partition, attempt_id, start, known, committed in announcements:
            if slot.announced.get(partition, Announced()).attempt_id < attempt_id:
                slot.announced[partition] = Announced(attempt_id, start, attempt_id if committed else known)

    def get_announced(self, slot: Slot, partitions: Sequence[int]) -> list[Announced]:
        """Return the last attempt announced for each partition."""
        return [slot.announced.get(partition, Announced()) for partition in partitions]

    def insert_entries(
        self, slot: Slot, inserts: Sequence[tuple[int, Record | Marker, Position | None]]
    ) -> list[InsertResult]:
        """Insert entries and markers in order.

        Args:
            slot: The slot.
            inserts: Document, entry, and position of the entry that is appended to.
        """
        return [self._insert(slot, doc, new, base) for doc, new, base in inserts]

    def _insert(self, slot: Slot, doc: int, new: Record | Marker, base: Position | None) -> InsertResult:
        old = slot.records.get(doc)
        if isinstance(new, Record):
            new = with_incarnation(new, old)
        state = decide_version(old, new, self._rules)
        if (
            base is not None
            and state in (InsertState.CREATED, InsertState.REPLACED)
            and (old is None or old.position != base)
        ):
            return InsertResult(InsertState.CONFLICT, old, ())
        if state in (InsertState.CREATED, InsertState.REPLACED):
            if isinstance(new, Marker) and not self._rules.deletion_marked:
                slot.records.drop(doc)
            else:
                slot.records.set(doc, new, self.marker_lifetime if isinstance(new, Marker) else None)
            if isinstance(old, Record) and self._rules.removals_remembered:
                slot.removals.set(doc, (*(slot.removals.get(doc) or ()), old.content))
        removals = slot.removals.get(doc) or ()
        if isinstance(old, Record) and state is InsertState.REPLACED and not self._rules.removals_remembered:
            removals = (old.content,)
        return InsertResult(state, old, removals)

    def forget_removals(self, slot: Slot, docs: Sequence[tuple[int, Position]]) -> None:
        """Delete the record of removals that are done."""
        for doc, position in docs:
            stored = slot.records.get(doc)
            if stored is None or stored.position == position:
                slot.removals.drop(doc)

    def restore_incarnations(self, slot: Slot, incarnations: Sequence[tuple[int, Position]]) -> list[bool]:
        """Set the incarnations of documents whose deletion was not replayed; tell which of them were set."""
        restored = []
        for doc, incarnation in incarnations:
            stored = slot.records.get(doc)
            restored.append(isinstance(stored, Record) and stored.incarnation == NEVER_DELETED)
            if isinstance(stored, Record) and restored[-1]:
                slot.records.set(doc, stored._replace(incarnation=incarnation))
        return restored

    def drop_claims(self, slot: Slot, docs: Sequence[int]) -> None:
        """Delete the claims of documents; only without ``claims_outlive_deletion``."""
        for pair in slot.claims:
            if pair[0][0] in docs or pair[1][0] in docs:
                slot.claims.drop(pair)

    def insert_and_look_up(
        self, slot: Slot, entries: Sequence[tuple[int, int, int]], add: bool, read: bool
    ) -> list[list[int]]:
        """Add documents (document, band, key) to buckets, and return the other members of each."""
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
        """Remove documents (document, band, key) from buckets."""
        for doc, band, key in entries:
            members = slot.buckets.get((band, key))
            if members is not None:
                members.pop(doc, None)

    def get_entries(self, slot: Slot, docs: Sequence[int]) -> dict[int, Record | Marker]:
        """Return the stored entries and markers of documents."""
        found = ((doc, slot.records.get(doc)) for doc in docs)
        return {doc: stored for doc, stored in found if stored is not None}

    def save_pending_matches(
        self, slot: Slot, pending_matches: Sequence[tuple[Position, frozenset[Pair | None]]]
    ) -> list[frozenset[Pair | None]]:
        """Save pairs for positions, and return all saved pairs of each position."""
        saved = []
        for position, pairs in pending_matches:
            known = slot.pending_matches.get(position) or frozenset()
            if not pairs <= known:
                known |= pairs
                slot.pending_matches.set(position, known)
            saved.append(known)
        return saved

    def claim_pairs(self, slot: Slot, asked: Sequence[Ask]) -> list[bool]:
        """Claim pairs, or extend their claims; return for each request whether the position owns the pair."""
        owned = []
        for pair, position, extending in asked:
            owner = None if position == PUBLISHED and self._rules.published_overrides else slot.claims.get(pair)
            if owner is None and not extending:
                slot.claims.set(pair, position)
            elif owner is not None and self._rules.claims_extended:
                slot.claims.set(pair, owner)
            owned.append(not extending and owner in (None, position))
        return owned


def decide_version(old: Record | Marker | None, new: Record | Marker, rules: Rules) -> InsertState:
    """Decide by position order, as ``index.documents.decide_version``."""
    if old is None:
        return InsertState.CREATED
    if old.position == new.position:
        return InsertState.REPLAYED
    same_partition = old.position.partition_incarnation == new.position.partition_incarnation
    if same_partition and new.position.offset < old.position.offset and rules.position_order:
        return InsertState.SUPERSEDED
    if isinstance(old, Marker):
        if not same_partition and new.time <= old.time:
            return InsertState.SUPERSEDED
        return InsertState.REPLACED
    if isinstance(new, Record) and is_same_text(old, new, rules):
        return InsertState.REDELIVERED
    if not same_partition and new.time <= old.time:
        return InsertState.SUPERSEDED
    return InsertState.REPLACED


def is_same_text(old: Record, new: Record, rules: Rules) -> bool:
    """Tell whether the entries have the same text."""
    if rules.content_compared:
        return old.content == new.content
    return old.version == new.version and len(new.content) == 1


def any_slot(key: Any) -> int:
    """Spread keys over the slots."""
    return hash(key) % SLOTS
