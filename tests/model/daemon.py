"""A daemon: poll, fence, index, announce, publish, finish; the steps are those of ``streamdedup.daemon.loop``."""

import random
from collections.abc import Generator, Mapping
from typing import NamedTuple

from tests.model.detector import Detector
from tests.model.documents import Operation, Position, Texts
from tests.model.errors import BatchRefused, IndexLost, Reconnected, StoreUnavailable
from tests.model.index import Ask, Index, Right
from tests.model.kafka import Kafka
from tests.model.rules import Rules
from tests.model.store import Network, Step, Store

#: Most records of a batch.
_BATCH_RECORDS = 4
#: How often a daemon that reads ahead does not.
_NOT_AHEAD = 0.3
#: Most documents taken out of a partition's list at once.
_AGED_AT_ONCE = 3
#: What a daemon with nothing to do yields.
IDLE = "idle"


class Batch(NamedTuple):
    """Records that were polled together.

    Attributes:
        records: Some records of each partition.
        generation: Generation of the group at the poll.
        partitions: Partitions that were assigned at the poll.
    """

    records: list[tuple[Position, Operation]]
    generation: int
    partitions: list[int]

    def ends(self) -> dict[int, int]:
        """Return the offset behind the last record of each partition."""
        return {position.partition: position.offset + 1 for position, _ in self.records}


class Daemon:
    """One process, a member of the group; stepped by ``next(daemon.steps)``.

    Args:
        kafka: The broker.
        index: The server.
        network: The way to the server.
        texts: What documents are made of.
        window: Greatest difference of record times of a pair; None for no limit.
        rules: The rules.
        rng: Decides.
        backlog: Whether expired documents are evicted by watermarks.
        ahead: Decides when the daemon reads a batch ahead; None for never.
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
        backlog: bool = False,
        ahead: random.Random | None = None,
    ) -> None:
        self._kafka = kafka
        self._clock = index.clock
        self._index = index
        self._texts = texts
        self._window = window
        self._store = Store(index, network, rules)
        self._detector = Detector(self._store, texts, window, rules, ages=backlog)
        self._backlog = backlog
        self._ahead_rng = ahead
        #: The batch that was polled while the one before it was at work.
        self._ahead: Batch | None = None
        #: What was ours, committed and noted when nothing was left to be taken out.
        self._aged_at: object = None
        self._rules = rules
        self._rng = rng
        self._rights: dict[int, Right] = {}
        #: Incarnation of the topic that the rights are for.
        self._topic = 0
        self._last_attempt = 0
        self._looked_at: frozenset[int] = frozenset()
        #: That the server may have gone back in time.
        self._doubtful = False
        self.steps = self._run()

    def _run(self) -> Generator[Step, None, None]:
        while True:
            try:
                yield from self._turn()
            except Reconnected:
                self._put_back()
                self._doubtful = self._rules.rejoined
                yield None
            except (StoreUnavailable, BatchRefused):
                # The batch is undone, and every partition is fenced anew before anything is repeated.
                self._put_back()
                yield None
            except IndexLost:
                self._put_back()
                yield from self._mend()

    def _put_back(self) -> None:
        """Undo the batch at work and the batch ahead: the next poll begins at what is committed."""
        self._rights.clear()
        if self._rules.ahead_put_back:
            self._ahead = None

    def _mend(self) -> Generator[Step, None, None]:
        """Build the index anew, or wait while somebody else does; what fails is begun again."""
        yield None
        name = self._store.name
        if not self._index.hold_staging(name):
            return
        if not (yield from self._is_lost()):
            self._index.release_draft(name)  # somebody else was done just before
            return
        if not self._index.begin_draft(name):
            return
        self._index.note(f"  {name} begins to rebuild")
        # A neighbour's batch that was indexed before is refused from now on.
        self._kafka.rejoin()
        try:
            # A reply that is lost costs a connection, and that a new beginning: here only the latter happens.
            reliable = Network(self._rng, 0)
            yield from self._rebuild(name, Store(self._index, reliable, self._rules, draft=name))
        except (StoreUnavailable, BatchRefused, IndexLost, Reconnected):
            self._index.release_draft(name)
        # What was opened anew meanwhile is looked at as ever.
        self._rights.clear()

    def _is_lost(self) -> Generator[Step, None, bool]:
        yield None
        if not self._index.exists:
            return True
        try:
            yield from Store(self._index, Network(self._rng, 0), self._rules).verify(list(self._kafka.tokens))
        except IndexLost:
            return True
        return False

    def _rebuild(self, name: str, draft: Store) -> Generator[Step, None, None]:
        yield None
        committed, tokens, generation = list(self._kafka.committed), list(self._kafka.tokens), self._kafka.generation
        published, topic = [alert.pair for alert in self._kafka.alerts], self._kafka.topic
        yield None
        detector = Detector(draft, self._texts, self._window, self._rules)
        rights = {}
        # Below any attempt, and nobody else's.
        own = (0, self._clock.now)
        for partition, end in enumerate(committed):
            right = yield from draft.fence(partition, generation, end, None, topic)
            rights[partition] = right
            yield from draft.announce(own, [right])
        for partition, end in enumerate(committed):
            for offset in range(end):
                self._index.keep_draft(name)
                record = (Position(partition, offset, topic), self._kafka.log[partition][offset])
                yield from detector.index([record], rights)
        if self._rules.claims_seeded:
            # They belong to no position that will ask.
            yield from draft.claim_pairs([Ask(pair, Position(-1, -1)) for pair in published], list(rights.values()))
        for partition, token in enumerate(tokens):
            if self._rules.announced:
                yield from draft.settle_announced(own, token, rights[partition])
        draft.check_connection()
        self._index.complete_draft(name)
        self._index.note(f"  {name} has rebuilt")

    def _turn(self) -> Generator[Step, None, None]:
        if self._doubtful and self._kafka.partitions_of(self):
            self._kafka.rejoin()
            yield None
            if self._rules.announced:
                yield from self._store.verify(list(self._kafka.tokens))
            self._doubtful = False
        batch, self._ahead = self._ahead, None
        if batch is None:
            batch = yield from self._next()
        mine = batch.partitions
        if not batch.records and all(partition in self._rights for partition in mine):
            yield from self._rest(mine)
            return
        self._store.check_connection()
        committed = {partition: (self._kafka.committed[partition], self._kafka.tokens[partition]) for partition in mine}
        for partition in mine:
            if partition not in self._rights:
                self._rights[partition] = yield from self._store.fence(
                    partition, batch.generation, *committed[partition], self._topic
                )
        if batch.records and (yield from self._reads_ahead(batch)):
            yield from self._work_on(batch)

    def _next(self) -> Generator[Step, None, Batch]:
        """Poll, after a look at what is new."""
        mine = self._kafka.partitions_of(self)
        if not self._looked_at.issuperset(mine) and self._rules.announced and self._rules.all_looked_at:
            yield from self._store.verify(list(self._kafka.tokens))
        self._looked_at = frozenset(mine)
        if any(right.generation != self._kafka.generation for right in self._rights.values()):
            self._rights.clear()
        if self._rules.incarnations_told and self._topic != self._kafka.topic:
            self._topic = self._kafka.topic
            self._rights.clear()
        return self._poll(self._rng, {})

    def _reads_ahead(self, batch: Batch) -> Generator[Step, None, bool]:
        """Poll the batch behind this one, perhaps; tell whether this one is still to be worked on.

        A poll may join a later generation. Then both batches are put back.
        """
        if self._ahead_rng is None or self._ahead_rng.random() < _NOT_AHEAD:
            return True
        yield None
        ahead = self._poll(self._ahead_rng, batch.ends())
        if ahead.generation != batch.generation:
            self._put_back()
            return False
        self._ahead = ahead if ahead.records else None
        return True

    def _rest(self, mine: list[int]) -> Generator[Step, None, None]:
        """Use the time in which nothing comes."""
        # A real one looks again and again.
        seen = (mine, list(self._kafka.committed), [dict(slot.times) for slot in self._index.slots])
        if self._backlog and seen != self._aged_at:
            if not (yield from self._age(mine)):
                self._aged_at = seen
            return
        self._store.look()
        yield IDLE

    def _poll(self, rng: random.Random, ends: Mapping[int, int]) -> Batch:
        """Take some records of each partition, from the end of the batch at work or from what is committed on."""
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

    def _work_on(self, batch: Batch) -> Generator[Step, None, None]:
        ends = batch.ends()
        rights = {partition: self._rights[partition] for partition in ends}
        outcome = yield from self._detector.index(batch.records, rights)
        self._last_attempt = max(self._last_attempt + 1, self._clock.now)
        token = (batch.generation, self._last_attempt)
        if self._rules.announced:
            yield from self._store.announce(token, list(rights.values()))
        self._store.check_connection()
        yield None
        if not self._kafka.commit(self, batch.generation, ends, token, outcome, self._clock.now):
            raise BatchRefused
        self._store.note(f"commits {ends}", *outcome.alerts, *outcome.dead_letters)
        self._rights |= {each: self._rights[each]._replace(token=token) for each in ends if each in self._rights}
        try:
            yield from self._store.finish(ends, list(rights.values()))
        except (StoreUnavailable, BatchRefused):
            # The batch is committed, so that nothing is put back.
            self._rights.clear()
            yield None
            return
        if self._backlog:
            for partition, right in rights.items():
                first = next(operation.time for position, operation in batch.records if position.partition == partition)
                yield from self._store.raise_time(partition, first, right)
            yield from self._age(list(ends))

    def _age(self, partitions: list[int]) -> Generator[Step, None, bool]:
        """Take out what no partition has records left to be compared with; tell whether there was any."""
        assert self._window is not None
        times = yield from self._store.get_times()
        slowest = min((times.get(partition, 0) for partition in range(len(self._kafka.log))), default=0)
        found = False
        for partition in partitions:
            limit = slowest if self._rules.slowest_awaited else times.get(partition, 0)
            right = self._rights[partition]
            # Who was paired with a document may be a window later than it, and comes to be met for another window.
            claims = yield from self._store.get_listed_claims(partition, limit - 2 * self._window, _AGED_AT_ONCE)
            if claims and self._rules.claims_aged:
                yield from self._store.drop_listed_claims(partition, claims, right)
                found = True
            due = yield from self._store.get_listed(partition, limit - self._window, _AGED_AT_ONCE)
            if not due:
                continue
            found = True
            if not self._rules.aged_to_the_end:
                yield from self._store.unlist(partition, due, right)
            yield from self._detector.age(due, right)
            yield from self._store.unlist(partition, due, right)
        return found
