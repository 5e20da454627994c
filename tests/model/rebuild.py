"""The rebuild of a lost index, in the steps of ``streamdedup.daemon.rebuild``."""

import random
from collections.abc import Generator, Iterable, Iterator
from typing import NamedTuple

from tests.model.detector import Detector
from tests.model.documents import NEVER_DELETED, Pair, Position, Texts
from tests.model.index import NEVER, NO_ATTEMPT, PUBLISHED, Announced, Announcement, Ask, Fence, Index
from tests.model.kafka import Kafka, Transaction
from tests.model.rules import Rules
from tests.model.store import Network, Step, Store


class _Replayed(NamedTuple):
    """Record times from which a rebuild reads the input: of all records, and of deletions."""

    records: float
    deletions: float


#: Of each partition with a gap the offset from which records are missing, with the attempt from which alerts are.
Gap = dict[int, Announced]


def find_gap(kafka: Kafka, index: Index, rules: Rules) -> Generator[Step, None, Gap | None]:
    """Return the gap of an index that has gone back to an earlier time; None where the index as a whole is lost."""
    yield None
    if not index.exists:
        return None
    store = Store(index, Network(random.Random(0), 0), rules)
    by_slot = yield from store.announced(len(kafka.log))
    gap: Gap = {}
    for partition, of_partition in enumerate(zip(*by_slot, strict=True)):
        committed = kafka.attempt_ids[partition] or NO_ATTEMPT
        lacking = [last for last in of_partition if last.attempt_id < committed]
        if lacking:
            earliest = min(lacking, key=lambda last: last.attempt_id)
            gap[partition] = earliest if rules.gap_of_every_slot else of_partition[0]
    # All that was written before a committed attempt is in the index, where its successor is announced: a batch in
    # progress may announce itself after the index has gone back, but then it is not published.
    since = max(min(last.committed for last in of_partition) for of_partition in zip(*by_slot, strict=True))
    if gap and since == NO_ATTEMPT:
        return None
    # A partition without an attempt is new.
    return {partition: Announced(since, last.start or 0) for partition, last in gap.items()}


_ALL = _Replayed(float("-inf"), float("-inf"))


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

    def run(self, gap: Gap | None) -> Generator[Step, None, None]:
        """Rebuild the index, or fill its gap, one effect at a time."""
        yield None
        kafka, staging = self._kafka, self._staging
        committed, attempt_ids = list(kafka.committed), list(kafka.attempt_ids)
        generation, topic = kafka.generation, kafka.topic
        yield None
        fences = yield from self._take_over(committed, generation, topic)
        if gap and self._rules.gap_given_up and (yield from self._has_later_entries(gap, committed)):
            self._index.begin_staging(self._name, is_gap=False)
            gap = None
            fences = yield from self._take_over(committed, generation, topic)
        if gap is None:
            since = self._replayed(committed)
            for partition, end in enumerate(committed):
                yield from self._replay(partition, 0, end, since, fences)
        else:
            for partition, last in gap.items():
                start = last.start if self._rules.gap_replayed else committed[partition]
                assert start is not None
                yield from self._replay(partition, start, committed[partition], _ALL, fences)
        yield from self._seed(gap, list(fences.values()))
        announcements = [
            Announcement(partition, attempt_id, committed[partition], committed=True)
            for partition, attempt_id in enumerate(attempt_ids)
            if attempt_id is not None
        ]
        if self._rules.announced:
            yield from staging.announce(announcements, list(fences.values()))
        staging.check_connection()
        self._index.complete_staging(self._name)
        self._index.trace_event(f"  {self._name} has rebuilt")

    def _take_over(self, committed: list[int], generation: int, topic: int) -> Generator[Step, None, dict[int, Fence]]:
        fences = {}
        for partition, end in enumerate(committed):
            fences[partition] = yield from self._staging.fence(partition, generation, end, None, topic)
        return fences

    def _has_later_entries(self, gap: Gap, committed: list[int]) -> Generator[Step, None, bool]:
        """Tell whether a document of the gap has an entry from a record that is not committed."""
        for partition, last in gap.items():
            docs = {operation.doc for operation in self._kafka.log[partition][last.start : committed[partition]]}
            stored = yield from self._staging.get_entries(sorted(docs))
            if any(entry.position.offset >= committed[entry.position.partition] for entry in stored.values()):
                return True
        return False

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
        self, partition: int, start: int, end: int, since: _Replayed, fences: dict[int, Fence]
    ) -> Generator[Step, None, None]:
        for offset in range(start, end):
            operation = self._kafka.log[partition][offset]
            self._index.extend_lease(self._name)
            if operation.time >= (since.deletions if operation.kind == "delete" else since.records):
                position = Position(partition, offset, self._kafka.topic)
                yield from self._detector.index([(position, operation)], fences)

    def _seed(self, gap: Gap | None, fences: list[Fence]) -> Generator[Step, None, None]:
        """Restore claims and incarnations from the duplicates topic, for a gap from its earliest attempt on."""
        alerts = yield from self._alerts(0 if gap is None else min(last.attempt_id[1] for last in gap.values()))
        if self._rules.claims_seeded and (gap is None or self._rules.gap_claims_seeded):
            yield from self._staging.claim_pairs([Ask(*alert) for alert in alerts], fences)
        if self._rules.incarnations_restored:
            latest = {doc: incarnation for pair, _ in alerts for doc, _, incarnation in pair}
            deleted = [(doc, since) for doc, since in latest.items() if since != NEVER_DELETED]
            yield from self._staging.restore_incarnations(deleted, fences)

    def _alerts(self, since: float) -> Generator[Step, None, list[tuple[Pair, Position]]]:
        """Return the pairs published since a time, with the positions that own their claims.

        The duplicates topic is read when every transaction below the end has ended; from its start after a loss.
        """
        yield None
        transactions = [transaction for transaction in self._kafka.duplicates if transaction.at >= since]
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
                    yield pair, PUBLISHED if transaction.committed else position
                seen.add(position)
