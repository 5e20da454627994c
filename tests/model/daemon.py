"""A daemon: poll, fence, index, announce, publish, finish; the steps are those of ``streamdedup.service.loop``."""

import random
from collections.abc import Generator

from tests.model.detector import Detector
from tests.model.documents import Operation, Position, Texts
from tests.model.errors import BatchRefused, IndexLost, Reconnected, StoreUnavailable
from tests.model.index import Index, Right
from tests.model.kafka import Kafka
from tests.model.rules import Rules
from tests.model.store import Network, Step, Store

#: Most records of a batch.
_BATCH_RECORDS = 4
#: What a daemon with nothing to do yields.
IDLE = "idle"


class Daemon:
    """One process, a member of the group; stepped by ``next(daemon.steps)``."""

    def __init__(
        self,
        kafka: Kafka,
        index: Index,
        network: Network,
        texts: Texts,
        window: int | None,
        rules: Rules,
        rng: random.Random,
    ) -> None:
        self._kafka = kafka
        self._clock = index.clock
        self._store = Store(index, network, rules)
        self._detector = Detector(self._store, texts, window, rules)
        self._rules = rules
        self._rng = rng
        self._rights: dict[int, Right] = {}
        self._attempts_count = 0
        #: That the server may have gone back in time.
        self._doubtful = False
        #: That the index was found to be gone; only an operator helps.
        self.index_lost = False
        self.steps = self._run()

    def _run(self) -> Generator[Step, None, None]:
        while True:
            try:
                yield from self._turn()
            except Reconnected:
                self._rights.clear()
                self._doubtful = self._rules.rejoined
                yield None
            except (StoreUnavailable, BatchRefused):
                # The batch is undone, and every partition is fenced anew before anything is repeated.
                self._rights.clear()
                yield None
            except IndexLost:
                self.index_lost = True
                while True:
                    yield IDLE

    def _turn(self) -> Generator[Step, None, None]:
        if self._doubtful and self._kafka.partitions_of(self):
            self._kafka.rejoin()
            yield None
            if self._rules.announced:
                yield from self._store.verify(list(self._kafka.tokens))
            self._doubtful = False
        generation = self._kafka.generation
        mine = self._kafka.partitions_of(self)
        if any(right.generation != generation for right in self._rights.values()):
            self._rights.clear()
        batch = self._poll(mine)
        if not batch and all(partition in self._rights for partition in mine):
            self._store.look()
            yield IDLE
            return
        committed = {partition: (self._kafka.committed[partition], self._kafka.tokens[partition]) for partition in mine}
        for partition in mine:
            if partition not in self._rights:
                self._rights[partition] = yield from self._store.fence(partition, generation, *committed[partition])
        if batch:
            yield from self._work_on(batch, generation)

    def _poll(self, partitions: list[int]) -> list[tuple[Position, Operation]]:
        """Take some records of each partition from what is committed on."""
        batch: list[tuple[Position, Operation]] = []
        for partition in partitions:
            start, log = self._kafka.committed[partition], self._kafka.log[partition]
            count = self._rng.randint(0 if batch else 1, _BATCH_RECORDS)
            batch += [
                (Position(partition, offset), log[offset]) for offset in range(start, min(len(log), start + count))
            ]
        return batch

    def _work_on(self, batch: list[tuple[Position, Operation]], generation: int) -> Generator[Step, None, None]:
        ends = {position.partition: position.offset + 1 for position, _ in batch}
        rights = {partition: self._rights[partition] for partition in ends}
        outcome = yield from self._detector.index(batch, rights)
        self._attempts_count += 1
        token = (generation, max(right.epoch for right in self._rights.values()), self._attempts_count)
        if self._rules.announced:
            yield from self._store.announce(list(ends), token, list(rights.values()))
        yield None
        if not self._kafka.commit(self, generation, ends, token, outcome, self._clock.now):
            raise BatchRefused
        self._store.note(f"commits {ends}", *outcome.alerts, *outcome.dead_letters)
        yield from self._store.finish(ends, list(rights.values()))

    def replay_silently(self, committed: list[int]) -> Generator[Step, None, None]:
        """Index what is committed, for a rebuild: below the mark nothing is emitted."""
        generation = self._kafka.generation
        for partition in range(len(committed)):
            self._rights[partition] = yield from self._store.fence(partition, generation, 0, None)
        rights = {partition: right._replace(mark=committed[partition]) for partition, right in self._rights.items()}
        for partition, end in enumerate(committed):
            for offset in range(end):
                record = (Position(partition, offset), self._kafka.log[partition][offset])
                yield from self._detector.index([record], rights)
        token = (generation, max(right.epoch for right in rights.values()), 0)
        yield from self._store.announce(range(len(committed)), token, list(rights.values()))
        yield from self._store.finish(dict(enumerate(committed)), list(rights.values()))

    def seed_claims(self) -> Generator[Step, None, None]:
        """Restore the claims of all published pairs; they belong to no position that will ask."""
        published = [(pair, Position(-1, -1)) for pair in self._kafka.alerts]
        yield from self._store.claim_pairs(published, list(self._rights.values()))
