"""Rebuilds a lost index: replays the committed records, and publishes nothing.

The new index is a staging index (``index.staging``) until it is complete, and no daemon can take over a partition
meanwhile: a document that is compared with half of an index would miss its pairs with the other half for ever.

Steps, for each profile:
    1. Begin the staging index. From now on all writes by daemons are refused.
    2. Join the group anew, so that Kafka refuses batches that were indexed before. (Done by the caller.)
    3. Take over all partitions, with the committed offsets as high-water marks. Replay the topics up to these offsets,
       silently, from the beginning that the next record needs (``rebuild_window``).
    4. Seed claims and clusters from the duplicates topic, which has the published pairs.
    5. Announce the committed attempts, and complete the staging index.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace

from streamdedup.daemon.batch import BatchProcessor, Pipeline, now_ms
from streamdedup.daemon.partitions import committed_attempt
from streamdedup.daemon.rebuild_window import RebuildWindow, begun_at_window, rebuild_window
from streamdedup.detection.model import document_number, published_pair_key
from streamdedup.errors import DecodeError, StoreUnavailable
from streamdedup.index.staging import StagingIndex
from streamdedup.index.values import Fence
from streamdedup.kafka.protocols import Batch, CommittedOffset, History, Source
from streamdedup.position import Partition, Position
from streamdedup.wire import Alert, decode_alert

#: Interval and duration of the calls that keep the group membership, in seconds.
_HOLD_EVERY_S, _HOLD_S = 1.0, 0.01
#: Interval at which staging indexes that wait for their turn are kept, in seconds; at most 60.
_KEEP_EVERY_S = 10.0
#: Incarnation in the positions that own seeded claims.
_NO_INCARNATION = -1
#: Number of claims that are seeded at once.
_SEED_PAIRS = 5_000

#: Called with the names of the topics, the number of offsets that are read, and the number of all offsets.
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class RebuildTarget:
    """Index, profile and topics in a rebuild.

    Attributes:
        staging: The staging index.
        pipeline: Pipeline on the staging index.
        topics: Input topics.
        kept_ms: Retention plus slack, in milliseconds: how much older than the next record a replayed document may be;
            None for no limit.
    """

    staging: StagingIndex
    pipeline: Pipeline
    topics: Sequence[str]
    kept_ms: int | None


class Rebuilder:
    """Rebuilds indexes.

    Args:
        open_target: Opens the target for a profile name.
        history: Reads topics.
        duplicates_topic: Alert topic.
        now_ms: Returns the present, in milliseconds since the epoch.
    """

    def __init__(
        self,
        open_target: Callable[[str], RebuildTarget],
        history: History,
        duplicates_topic: str,
        now_ms: Callable[[], int] = now_ms,
    ) -> None:
        self._open_target = open_target
        self._history = history
        self._duplicates_topic = duplicates_topic
        self._now_ms = now_ms
        self._targets: dict[str, RebuildTarget] = {}

    def begin(
        self, name: str, is_lost: Callable[[], bool] = lambda: True, tick: Callable[[], None] = lambda: None
    ) -> bool:
        """Begin to rebuild a profile's index; delete the present index.

        Args:
            name: Profile name.
            is_lost: See ``StagingIndex.begin``.
            tick: Called at every step.

        Returns:
            Whether the rebuild was begun by this call.

        Raises:
            StoreUnavailable: Another process rebuilds the index.
        """
        if name in self._targets:
            return False
        target = self._open_target(name)
        if not target.staging.begin(is_lost, self._keeping_others(tick)):
            return False
        self._targets[name] = target
        return True

    def has_begun(self, name: str) -> bool:
        """Tell whether a rebuild for a profile has begun here."""
        return name in self._targets

    def rebuild(
        self,
        name: str,
        committed: Mapping[Partition, CommittedOffset],
        generation: int,
        tick: Callable[[], None],
        progress: Progress = lambda _topics, _done, _total: None,
        missing_topics: frozenset[str] = frozenset(),
    ) -> int:
        """Rebuild a profile's index after ``begin``.

        Args:
            name: Profile name.
            committed: Committed offsets for all partitions.
            generation: Consumer-group generation, which began after ``begin``.
            tick: Called at every step.
            progress: Called with the progress.
            missing_topics: Input topics that do not exist, and are not read.

        Returns:
            How many records were replayed.

        Raises:
            StoreUnavailable: The index's server does not answer; begin again.
            BrokerUnavailable: Kafka does not answer; begin again.
            BatchRefused: Another process has taken over the rebuild.
        """
        target = self._targets.pop(name)
        target = replace(target, topics=[topic for topic in target.topics if topic not in missing_topics])
        step = self._keeping_others(tick)
        try:
            rebuild = _Rebuild(target, self._history, committed, generation, step, progress)
            count = rebuild.run(self._duplicates_topic, self._now_ms())
        except BaseException:
            target.staging.abandon()
            raise
        return count

    def _keeping_others(self, tick: Callable[[], None]) -> Callable[[], None]:
        """Return a tick that also extends the leases on all staging indexes, which are built one after the other."""

        def keep() -> None:
            for target in self._targets.values():
                target.staging.extend_lease()

        return _with_keeping(tick, keep, _KEEP_EVERY_S)

    def abandon(self) -> None:
        """Abandon all rebuilds that have begun; never raises."""
        while self._targets:
            self._targets.popitem()[1].staging.abandon()


def keeping_membership(source: Source, tick: Callable[[], None]) -> Callable[[], None]:
    """Return a tick that also keeps the group membership."""
    return _with_keeping(tick, lambda: source.hold(_HOLD_S), _HOLD_EVERY_S)


def _with_keeping(tick: Callable[[], None], keep: Callable[[], None], interval_s: float) -> Callable[[], None]:
    """Return a tick that also calls ``keep`` at intervals."""
    kept_at = time.monotonic()

    def step() -> None:
        nonlocal kept_at
        tick()
        if time.monotonic() - kept_at > interval_s:
            keep()
            kept_at = time.monotonic()

    return step


class _Rebuild:
    """Steps 3 to 5."""

    def __init__(
        self,
        target: RebuildTarget,
        history: History,
        committed: Mapping[Partition, CommittedOffset],
        generation: int,
        tick: Callable[[], None],
        progress: Progress,
    ) -> None:
        self._staging = target.staging
        self._pipeline = target.pipeline
        self._target = target
        self._history = history
        self._committed = {
            partition: offset for partition, offset in committed.items() if partition.topic in target.topics
        }
        self._generation = generation
        self._tick = tick
        self._progress = progress
        self._connections_count = self._pipeline.index.connections_count()

    def run(self, duplicates_topic: str, now_ms: int) -> int:
        # Before the first write: another process may have taken the rebuild over.
        self._staging.extend_lease()
        # 3. Take over and replay.
        fences = {
            partition: self._staging.take_over(partition, self._generation, committed.offset)
            for partition, committed in self._committed.items()
        }
        count = 0
        if fences:
            window = self._window(now_ms)
            count = self._replay(fences, window)
            # 4. Seed.
            held = list(fences.values())
            self._seed(duplicates_topic, window, held)
            # 5. Announce and complete.
            self._staging.restore_attempts(
                {partition: committed_attempt(committed) for partition, committed in self._committed.items()}, held
            )
        self._check_connections()
        self._staging.complete(self._pipeline.fingerprint)
        return count

    def _check_connections(self) -> None:
        if self._pipeline.index.connections_count() != self._connections_count:
            raise StoreUnavailable(
                "a connection to the store was lost during the rebuild; acknowledged writes may be lost with it"
            )

    def _window(self, now_ms: int) -> RebuildWindow:
        if self._target.kept_ms is None:
            return RebuildWindow({}, None)
        offsets = {partition: committed.offset for partition, committed in self._committed.items()}
        progress = self._history.progress(self._target.topics, offsets, now_ms)
        if self._pipeline.max_start_age_ms is not None:
            progress = begun_at_window(progress, offsets, now_ms - self._pipeline.max_start_age_ms)
        return rebuild_window(progress, self._target.kept_ms, now_ms)

    def _batches(
        self,
        topics: Sequence[str],
        since_ms: Mapping[Partition, int | None] | int | None,
        ends: Mapping[Partition, int] | None,
    ) -> Iterator[Batch]:
        """Yield the records since the window began, and report the progress."""
        names = ", ".join(topics)
        with self._history.open(topics, since_ms, ends) as span:
            self._progress(names, 0, span.total_count)
            for batch in span.batches():
                self._tick()
                self._staging.extend_lease()
                self._check_connections()
                yield batch
                self._progress(names, span.done_count(), span.total_count)

    def _replay(self, fences: Mapping[Partition, Fence], window: RebuildWindow) -> int:
        processor = BatchProcessor(dict.fromkeys(self._target.topics, self._pipeline), nullcontext, self._tick)
        ends = {partition: committed.offset for partition, committed in self._committed.items()}
        count = 0
        for batch in self._batches(self._target.topics, window.inputs, ends):
            processor.index(processor.decode(batch), fences)
            count += len(batch.records)
        return count

    def _seed(self, duplicates_topic: str, window: RebuildWindow, fences: list[Fence]) -> None:
        claims: dict[bytes, Position] = {}
        alerts: dict[int, Alert] = {}
        for batch in self._batches([duplicates_topic], window.alerts, None):
            for alert in self._alerts(batch):
                for match in alert.matches:
                    # No record asks for a claim as this position, because alerts do not contain the incarnation.
                    owner = alert.document.position._replace(incarnation=_NO_INCARNATION)
                    claims[published_pair_key(alert.profile, alert, match)] = owner
                alerts[document_number(alert.profile, alert.document.id)] = alert
            if len(claims) >= _SEED_PAIRS:
                self._write(claims, alerts, fences)
                claims.clear()
                alerts.clear()
        if claims:
            self._write(claims, alerts, fences)

    def _alerts(self, batch: Batch) -> Iterator[Alert]:
        for record in batch.records:
            try:
                alert = decode_alert(record.value or b"")
            except DecodeError:
                continue  # another program writes to the topic, too
            if alert.profile == self._pipeline.name:
                yield alert

    def _write(self, claims: Mapping[bytes, Position], alerts: Mapping[int, Alert], fences: list[Fence]) -> None:
        index = self._pipeline.index
        index.claim_pairs(list(claims.items()), fences)
        entries = index.get_entries(list(alerts))
        index.set_clusters(
            [
                (number, entry.position, document_number(alert.profile, alert.cluster_id))
                for number, entry in entries.items()
                if not entry.deleted
                for alert in [alerts[number]]
                # A document keeps its cluster when text is appended, and loses it with a new version.
                if alert.document.position == entry.position or alert.document.digest == entry.version.hex()
            ],
            fences,
        )
