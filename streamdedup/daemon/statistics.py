"""What the loop counts: the facts of each batch, turned into metrics and into the lines of the log."""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager

import numpy as np
import structlog

from streamdedup.daemon.batch_result import BatchResult, Failed
from streamdedup.daemon.metrics import Metrics
from streamdedup.detection.model import DetectionResult
from streamdedup.index.contract import BucketStore, Fence, StoreStats
from streamdedup.kafka.protocols import Batch, Source
from streamdedup.kafka.repeats import RepeatLimit
from streamdedup.position import Partition
from streamdedup.wire import ErrorCode
from streamdedup.wire.dead_letters import Failure

#: Between two lines of summary in the log, and between two looks at the store's memory, in seconds. The second is also
#: how late a daemon to which nothing comes may notice that its store is away.
_SUMMARY_S, _STATS_S = 60.0, 10.0

#: Share of the store's memory limit beyond which a warning is logged, and below which the next one may follow. The
#: first is that of the alert rule.
NEARLY_FULL, ROOM_AGAIN = 0.85, 0.8

log = structlog.get_logger("streamdedup.loop")


def now_ms() -> int:
    """Return the wall clock in milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


class Statistics:
    """Keeps the metrics up to date and writes a summary now and then.

    Args:
        metrics: What is counted.
        clock: Monotonic seconds, for the limit of repeated log lines.
    """

    def __init__(self, metrics: Metrics, clock: Callable[[], float] = time.monotonic) -> None:
        self._metrics = metrics
        self._repeats = RepeatLimit(log, clock)
        self._summary: Counter[str] = Counter()
        self._summary_at = time.monotonic()
        self._lagging: set[Partition] = set()
        self._stats_at = 0.0
        self._rebalances_count = 0
        self._nearly_full = False
        self._recreated: set[tuple[str, int]] = set()

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        """Measure a stage of a batch that succeeds."""
        start = time.perf_counter()
        yield
        self._metrics.batch_seconds.labels(stage).observe(time.perf_counter() - start)

    def topic_recreated(self, fence: Fence) -> None:
        """Tell of a topic that was deleted and created again, once for all of its partitions."""
        topic = fence.partition.topic
        if (topic, fence.incarnation) not in self._recreated:
            self._recreated.add((topic, fence.incarnation))
            self._metrics.topics_recreated.labels(topic).inc()
            log.warning("topic_recreated", topic=topic, partition=fence.partition.number, mark=fence.mark)

    def count(self, batch: Batch, work: BatchResult) -> None:
        """Count a batch that is committed."""
        metrics = self._metrics
        metrics.batch_records.observe(len(work.kinds))
        for (topic, kind), count in Counter(work.kinds).items():
            metrics.records.labels(topic, kind).inc(count)
        metrics.dead_letters_silent.inc(work.silent_failures_count)
        metrics.future_times.inc(work.future_count)
        for (topic, code), count in Counter(work.dead_letter_codes).items():
            metrics.dead_letters.labels(topic, code).inc(count)
        for profile, outcome in work.outcomes.items():
            self._count_outcome(profile, outcome)
        self._observe_latency(batch)
        metrics.last_commit_timestamp_seconds.set(now_ms() / 1000)
        self._log_dead_letters(work.letters)
        facts = self._facts(work)
        log.debug("batch_committed", **facts)
        self._summary.update(facts)

    def _log_dead_letters(self, letters: Sequence[Failed]) -> None:
        """Log dead letters that are published."""
        for failed in letters:
            failure, position = Failure.of(failed.error, failed.stage), str(failed.record.position)
            if failure.code == ErrorCode.INTERNAL:
                self._repeats.error("internal_error", failure.code, reason=failure.message, position=position)
            self._repeats.info("dead_letter", failure.code, position=position)

    def _count_outcome(self, profile: str, outcome: DetectionResult) -> None:
        metrics = self._metrics
        for reason, count in Counter(reason for _, reason in outcome.skipped).items():
            metrics.skipped.labels(profile, reason).inc(count)
        for counter, count in (
            (metrics.documents_indexed, outcome.indexed_count),
            (metrics.documents_replayed, outcome.replayed_count),
            (metrics.documents_silent, outcome.silent_count),
            (metrics.documents_silent_unexplained, outcome.unexplained_count),
            (metrics.documents_deleted, outcome.deleted_count),
            (metrics.alerts, len(outcome.detections)),
            (metrics.pairs, sum(len(detection.matches) for detection in outcome.detections)),
            (metrics.candidates, outcome.candidates_count),
            (metrics.candidates_verified, outcome.verified_count),
            (metrics.candidates_rejected, outcome.rejected_count),
            (metrics.candidates_dropped, outcome.dropped_candidates_count),
            (metrics.full_buckets, outcome.full_buckets_count),
        ):
            counter.labels(profile).inc(count)

    def _observe_latency(self, batch: Batch) -> None:
        times_ms: dict[str, list[int]] = {}
        for record in batch.records:
            times = times_ms.setdefault(record.position.topic, [])
            if record.timestamp_ms >= 0:  # else it has none
                times.append(record.timestamp_ms)
        now = now_ms()
        for topic, times in times_ms.items():
            self._metrics.latency_seconds.observe(topic, np.maximum(0, now - np.array(times, np.int64)) / 1000)

    @staticmethod
    def _facts(work: BatchResult) -> dict[str, int]:
        detections = [detection for outcome in work.outcomes.values() for detection in outcome.detections]
        return {
            "records": len(work.kinds),
            "alerts": len(detections),
            "pairs": sum(len(detection.matches) for detection in detections),
            "skipped": sum(len(outcome.skipped) for outcome in work.outcomes.values()),
            "dead_letters": len(work.dead_letter_codes),
        }

    def look_at(self, source: Source, stores: Mapping[str, BucketStore]) -> None:
        """Take the figures that source and store keep themselves; write the summary when it is due.

        Args:
            source: Where records come from.
            stores: The index of each profile, all on one server.

        Raises:
            StoreUnavailable: The store was to be asked and does not answer.
            StoreMisconfigured: It has come to lose keys.
        """
        stats = source.stats()
        self._metrics.rebalances.inc(stats.rebalances_count - self._rebalances_count)
        self._rebalances_count = stats.rebalances_count
        self._metrics.partitions_assigned.set(len(source.assigned()))
        self._forget_lags(known=stats.lags.keys())
        self._lagging = set(stats.lags)
        for partition, lag_count in stats.lags.items():
            self._metrics.lag_records.labels(partition.topic, str(partition.number)).set(lag_count)
        self._repeats.look()
        now = time.monotonic()
        if now - self._stats_at >= _STATS_S:
            self._stats_at = now
            self._look_at_stores(stores)
        if now - self._summary_at >= _SUMMARY_S:
            self._summary_at = now
            log.info("summary", **self._summary, lag=sum(stats.lags.values()))
            self._summary.clear()

    def _forget_lags(self, known: AbstractSet[Partition] = frozenset()) -> None:
        for partition in self._lagging - known:
            self._metrics.lag_records.remove(partition.topic, str(partition.number))
        self._lagging &= known

    def _look_at_stores(self, stores: Mapping[str, BucketStore]) -> None:
        for profile, store in stores.items():
            self._metrics.index_documents.labels(profile).set(store.count_documents())
        for store in list(stores.values())[:1]:
            stats = store.stats()
            self._metrics.store_used_bytes.set(stats.used_bytes or 0)
            self._metrics.store_limit_bytes.set(stats.limit_bytes or 0)
            self._warn_of_memory(stats)

    def _warn_of_memory(self, stats: StoreStats) -> None:
        """Say once that the memory is nearly full, and again only after there was room in between."""
        fullness = (stats.used_bytes or 0) / stats.limit_bytes if stats.limit_bytes else 0.0
        if fullness > NEARLY_FULL and not self._nearly_full:
            log.warning("store_nearly_full", used_bytes=stats.used_bytes, limit_bytes=stats.limit_bytes)
        self._nearly_full = fullness > (ROOM_AGAIN if self._nearly_full else NEARLY_FULL)

    def waiting(self) -> None:
        """Note that the daemon waits: it fetches nothing meanwhile, so no lag is known."""
        self._forget_lags()

    def halted(self) -> None:
        """Note that the daemon publishes nothing further."""
        self._metrics.halted.set(1)
        self._forget_lags()
        self._repeats.close()

    def close(self) -> None:
        """Log the counts of repeated events; called when the loop ends."""
        self._repeats.close()

    def store_failed(self) -> None:
        """Count a failure of the store."""
        self._metrics.store_errors.inc()

    def broker_failed(self) -> None:
        """Count a failure of Kafka."""
        self._metrics.broker_errors.inc()

    def evicted(self, profile: str, count: int) -> None:
        """Count documents that backlog expiry has evicted."""
        self._metrics.documents_outdated.labels(profile).inc(count)

    def index_lost(self, profile: str, lost: bool) -> None:
        """Note that the index of a profile was found lost, or is complete again."""
        self._metrics.index_lost_timestamp_seconds.labels(profile).set(now_ms() / 1000 if lost else 0)

    def batch_refused(self) -> None:
        """Count a batch that belonged to somebody else."""
        self._metrics.batches_refused.inc()

    def clients_closed(self) -> None:
        """Count a closing of the Kafka clients."""
        self._metrics.rebuilds.inc()
        self._metrics.partitions_assigned.set(0)
        self._rebalances_count = 0
