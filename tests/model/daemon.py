"""A daemon: poll, fence, index, announce, publish, finish; the steps are those of ``streamdedup.daemon.loop``."""

import random
from collections.abc import Generator, Mapping
from typing import NamedTuple

from tests.model.detector import Detector
from tests.model.documents import NOTHING_SUPPRESSED, Operation, Position, Suppression, Texts
from tests.model.errors import BatchRefused, IndexLost, Reconnected, StoreUnavailable
from tests.model.index import Announcement, Fence, Index
from tests.model.kafka import Kafka
from tests.model.rebuild import Rebuild, find_gap
from tests.model.rules import Rules
from tests.model.store import Network, Step, Store

#: Largest number of records in a batch.
_BATCH_RECORDS = 4
#: Probability that a daemon does not read ahead, although it may.
_NOT_AHEAD = 0.3
#: Yielded by a daemon without work.
IDLE = "idle"


class Batch(NamedTuple):
    """Records of one poll.

    Attributes:
        records: Some records of each partition.
        generation: Generation of the group at the poll.
        partitions: Partitions that were assigned at the poll.
    """

    records: list[tuple[Position, Operation]]
    generation: int
    partitions: list[int]

    def starts(self) -> dict[int, int]:
        """Return the offset of the first record of each partition."""
        return {position.partition: position.offset for position, _ in reversed(self.records)}

    def ends(self) -> dict[int, int]:
        """Return the offset behind the last record of each partition."""
        return {position.partition: position.offset + 1 for position, _ in self.records}


class Daemon:
    """One process: a member of the group, stepped by ``next(daemon.steps)``.

    Args:
        kafka: The broker.
        index: The server.
        network: The connection to the server.
        texts: Contents of the documents.
        window: Greatest difference of record times of a pair; None for no limit.
        rules: The rules.
        rng: Source of all decisions.
        ahead: Source of the decisions to read ahead; None for never.
        suppression: Rules about what is alerted.
        calls_expire: Whether the server forgets the numbers of calls while the daemon is idle.
    """

    def __init__(
        self,
        kafka: Kafka,
        index: Index,
        network: Network,
        texts: Texts,
        window: int | None,
        rules: Rules,
        rng: random.Random,
        *,
        ahead: random.Random | None = None,
        suppression: Suppression = NOTHING_SUPPRESSED,
        calls_expire: bool = False,
    ) -> None:
        self._calls_expire = calls_expire
        self._kafka = kafka
        self._clock = index.clock
        self._index = index
        self._texts = texts
        self._window = window
        self._store = Store(index, network, rules)
        self._detector = Detector(self._store, texts, window, rules, suppression=suppression)
        self._ahead_rng = ahead
        #: The batch that was read ahead.
        self._ahead: Batch | None = None
        self._rules = rules
        self._rng = rng
        self._fences: dict[int, Fence] = {}
        #: Incarnation of the topic of the fences.
        self._topic = 0
        self._last_attempt = 0
        self._checked: frozenset[int] = frozenset()
        #: Whether the server may have gone back to an earlier time.
        self._doubtful = False
        self.steps = self._run()

    def _run(self) -> Generator[Step, None, None]:
        while True:
            try:
                yield from self._turn()
            except Reconnected:
                self._reset()
                self._doubtful = self._rules.rejoined
                yield None
            except (StoreUnavailable, BatchRefused):
                # Undo the batch, and fence every partition again before anything is repeated.
                self._reset()
                yield None
            except IndexLost:
                self._reset()
                yield from self._recover()

    def _reset(self) -> None:
        """Undo the current batch and the batch ahead; the next poll starts at the committed offsets."""
        self._fences.clear()
        if self._rules.ahead_rewound:
            self._ahead = None

    def _recover(self) -> Generator[Step, None, None]:
        """Rebuild the index or fill its gap, or wait while another process does; after a failure, begin again."""
        yield None
        name = self._store.name
        if not self._index.hold_staging(name):
            return
        gap = yield from find_gap(self._kafka, self._index, self._rules)
        if gap is not None and not gap:
            self._index.release_staging(name)  # another process has completed the rebuild
            return
        if not self._index.begin_staging(name, is_gap=gap is not None):
            return
        self._index.trace_event(f"  {name} begins to rebuild", gap)
        # From now on, batches that other daemons indexed before are refused.
        self._kafka.rejoin()
        try:
            # A lost reply would end the rebuild, as other failures do; the connection of the rebuild is reliable.
            reliable = Network(self._rng, 0)
            staging = Store(self._index, reliable, self._rules, staging=name)
            rebuild = Rebuild(self._kafka, self._index, staging, self._texts, self._window, self._rules, name)
            yield from rebuild.run(gap)
        except (StoreUnavailable, BatchRefused, IndexLost, Reconnected):
            self._index.release_staging(name)
        # A later reconnection is checked as any other.
        self._fences.clear()

    def _turn(self) -> Generator[Step, None, None]:
        if self._doubtful and self._kafka.partitions_of(self):
            self._kafka.rejoin()
            yield None
            if self._rules.announced:
                yield from self._store.verify(list(self._kafka.attempt_ids))
            self._doubtful = False
        batch, self._ahead = self._ahead, None
        if batch is None:
            batch = yield from self._next()
        own = batch.partitions
        if not batch.records and all(partition in self._fences for partition in own):
            self._store.look()
            if self._calls_expire:
                self._store.forget_calls()
            yield IDLE
            return
        self._store.check_connection()
        committed = {
            partition: (self._kafka.committed[partition], self._kafka.attempt_ids[partition]) for partition in own
        }
        for partition in own:
            if partition not in self._fences:
                self._fences[partition] = yield from self._store.fence(
                    partition, batch.generation, *committed[partition], self._topic
                )
        if batch.records and (yield from self._reads_ahead(batch)):
            yield from self._process(batch)

    def _next(self) -> Generator[Step, None, Batch]:
        """Check new assignments and generations, then poll."""
        own = self._kafka.partitions_of(self)
        if not self._checked.issuperset(own) and self._rules.announced and self._rules.all_checked:
            yield from self._store.verify(list(self._kafka.attempt_ids))
        self._checked = frozenset(own)
        if any(fence.generation != self._kafka.generation for fence in self._fences.values()):
            self._fences.clear()
        if self._rules.incarnations_told and self._topic != self._kafka.topic:
            self._topic = self._kafka.topic
            self._fences.clear()
        return self._poll(self._rng, {})

    def _reads_ahead(self, batch: Batch) -> Generator[Step, None, bool]:
        """Read the next batch ahead, at random; tell whether the current batch is still valid.

        A poll may join a later generation. Then both batches are undone.
        """
        if self._ahead_rng is None or self._ahead_rng.random() < _NOT_AHEAD:
            return True
        yield None
        ahead = self._poll(self._ahead_rng, batch.ends())
        if ahead.generation != batch.generation:
            self._reset()
            return False
        self._ahead = ahead if ahead.records else None
        return True

    def _poll(self, rng: random.Random, ends: Mapping[int, int]) -> Batch:
        """Return some records of each partition, from the end of the current batch or from the committed offset."""
        partitions = self._kafka.partitions_of(self)
        batch: list[tuple[Position, Operation]] = []
        for partition in partitions:
            start, log = ends.get(partition, self._kafka.committed[partition]), self._kafka.log[partition]
            count = rng.randint(0 if batch else 1, _BATCH_RECORDS)
            batch += [
                (Position(partition, offset, self._topic), log[offset])
                for offset in range(start, min(len(log), start + count))
            ]
        return Batch(batch, self._kafka.generation, partitions)

    def _process(self, batch: Batch) -> Generator[Step, None, None]:
        ends = batch.ends()
        fences = {partition: self._fences[partition] for partition in ends}
        publication = yield from self._detector.index(batch.records, fences)
        self._last_attempt = max(self._last_attempt + 1, self._clock.now)
        attempt_id = (batch.generation, self._last_attempt)
        if self._rules.announced:
            announcements = [
                Announcement(partition, attempt_id, start, fences[partition].attempt_id)
                for partition, start in batch.starts().items()
            ]
            yield from self._store.announce(announcements, list(fences.values()))
        self._store.check_connection()
        yield None
        transaction = self._kafka.begin(publication, self._clock.now)
        yield None
        if not self._kafka.commit(self, batch.generation, ends, attempt_id, publication, transaction, self._clock.now):
            raise BatchRefused
        self._store.trace_event(f"commits {ends}", *publication.alerts, *publication.dead_letters)
        self._fences |= {
            each: self._fences[each]._replace(attempt_id=attempt_id) for each in ends if each in self._fences
        }
        try:
            yield from self._store.finish(ends, list(fences.values()))
        except (StoreUnavailable, BatchRefused):
            # The batch is committed: there is nothing to undo.
            self._fences.clear()
            yield None
            return
