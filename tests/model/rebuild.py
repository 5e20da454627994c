"""The rebuild of a lost index, in the steps of ``streamdedup.daemon.rebuild``."""

from collections.abc import Generator, Iterable, Iterator
from typing import NamedTuple

from tests.model.detector import Detector
from tests.model.documents import NEVER_DELETED, Pair, Position, Texts
from tests.model.index import NEVER, Ask, AttemptId, Fence, Index
from tests.model.kafka import Kafka, Transaction
from tests.model.rules import Rules
from tests.model.store import Step, Store

#: Owns the seeded claims: no record has this position.
_NOBODY = Position(-1, -1)


class _Replayed(NamedTuple):
    """Record times from which a rebuild reads the input: of all records, and of deletions."""

    records: float
    deletions: float


class Rebuild:
    """Replays the committed records in silence, and restores claims and incarnations from the published alerts.

    Args:
        kafka: The broker.
        index: The server.
        staging: Connection of the rebuild.
        texts: Contents of the documents.
        window: Greatest difference of record times of a pair; None for no limit.
        rules: The rules.
        name: Name of the process.
    """

    def __init__(
        self, kafka: Kafka, index: Index, staging: Store, texts: Texts, window: int | None, rules: Rules, name: str
    ) -> None:
        self._kafka = kafka
        self._index = index
        self._staging = staging
        self._detector = Detector(staging, texts, window, rules)
        self._rules = rules
        self._name = name

    def run(self) -> Generator[Step, None, None]:
        """Rebuild the index, one effect at a time."""
        yield None
        kafka, staging = self._kafka, self._staging
        committed, attempt_ids = list(kafka.committed), list(kafka.attempt_ids)
        generation, topic = kafka.generation, kafka.topic
        yield None
        fences = {}
        # Below all attempt ids of batches, and unique.
        own: AttemptId = (0, self._index.clock.now)
        for partition, end in enumerate(committed):
            fence = yield from staging.fence(partition, generation, end, None, topic)
            fences[partition] = fence
            yield from staging.announce(own, [fence])
        since = self._replayed(committed)
        for partition, end in enumerate(committed):
            yield from self._replay(partition, end, since, fences)
        yield from self._seed(list(fences.values()))
        for partition, attempt_id in enumerate(attempt_ids):
            if self._rules.announced:
                yield from staging.restore_attempt(own, attempt_id, fences[partition])
        staging.check_connection()
        self._index.complete_staging(self._name)
        self._index.trace_event(f"  {self._name} has rebuilt")

    def _replayed(self, committed: list[int]) -> _Replayed:
        """Return how far the replay reaches back: one window before the next record of the slowest partition."""
        lifetime, marker_lifetime = self._index.lifetime, self._index.marker_lifetime
        if lifetime is None or marker_lifetime is None:
            return _Replayed(float("-inf"), float("-inf"))
        logs = zip(self._kafka.log, committed, strict=True)
        next_times = [log[end].time for log, end in logs if end < len(log)]
        reference = min([self._index.clock.now, *next_times])
        records = reference - (lifetime if self._rules.window_replayed else lifetime // 4)
        deletions = max(reference - marker_lifetime, self._index.clock.now - (self._kafka.retention or NEVER))
        return _Replayed(records, deletions if self._rules.deletions_read_back else records)

    def _replay(
        self, partition: int, end: int, since: _Replayed, fences: dict[int, Fence]
    ) -> Generator[Step, None, None]:
        for offset, operation in enumerate(self._kafka.log[partition][:end]):
            self._index.extend_lease(self._name)
            if operation.time >= (since.deletions if operation.kind == "delete" else since.records):
                position = Position(partition, offset, self._kafka.topic)
                yield from self._detector.index([(position, operation)], fences)

    def _seed(self, fences: list[Fence]) -> Generator[Step, None, None]:
        """Restore claims and incarnations from the duplicates topic."""
        alerts = yield from self._alerts()
        if self._rules.claims_seeded:
            yield from self._staging.claim_pairs([Ask(*alert) for alert in alerts], fences)
        if self._rules.incarnations_restored:
            latest = {doc: incarnation for pair, _ in alerts for doc, _, incarnation in pair}
            deleted = [(doc, since) for doc, since in latest.items() if since != NEVER_DELETED]
            yield from self._staging.restore_incarnations(deleted, fences)

    def _alerts(self) -> Generator[Step, None, list[tuple[Pair, Position]]]:
        """Return the published pairs with the positions that own their claims.

        The duplicates topic is read from its start, when every transaction below the end has ended.
        """
        yield None
        transactions = list(self._kafka.duplicates)
        while self._rules.alerts_read_to_end and not all(each.ended for each in transactions):
            self._index.extend_lease(self._name)
            yield None
        return list(self._read(transactions))

    def _read(self, transactions: Iterable[Transaction]) -> Iterator[tuple[Pair, Position]]:
        lifetime, now = self._index.lifetime, self._index.clock.now
        for transaction in transactions:
            if not self._rules.alerts_read_to_end and not transaction.ended:
                return  # the last stable offset
            if self._rules.aborted_alerts_ignored and not transaction.committed:
                continue
            if not self._rules.alerts_read_from_start and lifetime is not None and transaction.at < now - lifetime:
                continue
            seen: set[Position] = set()
            for pair, position in transaction.alerts:
                if self._rules.all_matches_seeded or position not in seen:
                    yield pair, _NOBODY if transaction.committed else position
                seen.add(position)
