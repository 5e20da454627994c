"""Loop statistics: turns events and committed batches into metrics and log lines.

Called by ``loop`` and its parts: ``observe`` after each poll, ``observe_wait`` in waits, ``count_batch`` after each
commit, and the methods under "Events". A new metric: the recipe in docs/architecture.md. A new log event: also
docs/metrics.md.
"""

import math
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict

import numpy as np

from streamdedup import clock
from streamdedup.daemon.batch import BatchResult, FailedRecord
from streamdedup.daemon.lags import Lags
from streamdedup.daemon.loop_log import log
from streamdedup.daemon.metrics import Metrics
from streamdedup.detection.limits import CURE, ReachedLimits
from streamdedup.detection.model import DetectionResult
from streamdedup.index.contract import StoreHealth
from streamdedup.index.values import NEARLY_FULL, Fence, StoreStats
from streamdedup.kafka.protocols import Batch, Source
from streamdedup.repeats import RepeatLimit
from streamdedup.wire import ErrorCode, Flaw

#: Interval of the summary in the log, in seconds.
_SUMMARY_S = 60.0
#: Interval of requests to the indexes, in seconds. An idle daemon notices within this time that their server is away.
_STATS_S = 10.0
#: Share of the memory limit to which the memory must fall after a warning (``NEARLY_FULL``) before the next one.
_ROOM_AGAIN = 0.8


class Statistics:
    """Updates the metrics, and logs a summary at intervals; all ``indexes``, by profile, are on one server."""

    def __init__(
        self, metrics: Metrics, indexes: Mapping[str, StoreHealth], monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._metrics = metrics
        self._indexes = indexes
        self._monotonic = monotonic
        #: Limits the lines that are written once for each dead letter or hidden document.
        self._repeats = RepeatLimit(log, monotonic)
        self._summary: Counter[str] = Counter()  # counts since the last summary
        self._summary_at_s = monotonic()
        #: Documents that have reached limits, by profile; logged by ``close``.
        self._limits: defaultdict[str, ReachedLimits] = defaultdict(ReachedLimits)
        self.lags = Lags(metrics, monotonic)
        self._stats_at_s = -math.inf  # the first call of `observe_indexes` asks
        self._rebalances_count = 0  # rebalances of the present source that are in the metric
        self._is_nearly_full = False
        #: Topic incarnations that are counted: ``topic_recreated`` is called for each partition of a topic.
        self._recreated: set[tuple[str, int]] = set()
        #: Topics and flaws that were logged, each pair once.
        self._flawed: set[tuple[str, Flaw]] = set()

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        """Measure a stage in ``batch_seconds``, unless it fails."""
        start = time.perf_counter()
        yield
        self._metrics.batch_seconds.labels(stage).observe(time.perf_counter() - start)

    # Committed batches

    def count_batch(self, result: BatchResult, dead_letters: Sequence[FailedRecord]) -> None:
        """Count a committed batch; ``dead_letters`` are its published failures."""
        metrics, decoded = self._metrics, result.decoded
        metrics.batch_records.observe(decoded.topic_operations.total())
        for (topic, operation), count in decoded.topic_operations.items():
            metrics.records.labels(topic, operation).inc(count)
        metrics.dead_letters_silent.inc(len(result.failures) - len(dead_letters))  # failures that are not published
        metrics.future_times.inc(decoded.future_count)
        for profile, flaw, position in decoded.flawed:
            metrics.documents_flawed.labels(profile, flaw).inc()
            if (position.topic, flaw) not in self._flawed:
                self._flawed.add((position.topic, flaw))
                log.warning("document_flawed", flaw=flaw, position=str(position))
        for profile, detected in result.detected.items():
            self._count_detected(profile, detected)
            self._limits[profile] += ReachedLimits.of(detected)
        self._count_dead_letters(dead_letters)
        self._observe_latency(decoded.batch)
        metrics.last_commit_timestamp_seconds.set(clock.now_ms() / 1000)
        counts = _logged_counts(result, len(dead_letters))
        log.debug("batch_committed", **counts)
        self._summary.update(counts)

    def _count_dead_letters(self, dead_letters: Sequence[FailedRecord]) -> None:
        for failed in dead_letters:
            failure, position = failed.failure, failed.record.position
            self._metrics.dead_letters.labels(position.topic, failure.code).inc()
            if failure.code == ErrorCode.INTERNAL:
                self._repeats.error("internal_error", failure.code, reason=failure.message, position=str(position))
            self._repeats.info("dead_letter", failure.code, position=str(position))

    def _count_detected(self, profile: str, detected: DetectionResult) -> None:
        metrics = self._metrics
        for reason, count in Counter(reason for _, reason in detected.skipped).items():
            metrics.skipped.labels(profile, reason).inc(count)
        for rule, count in detected.suppressed.items():
            metrics.suppressed.labels(profile, rule).inc(count)
        for counter, count in (
            (metrics.documents_indexed, detected.indexed_count),
            (metrics.documents_replayed, detected.replayed_count),
            (metrics.documents_silent, detected.silent_count),
            (metrics.documents_silent_unexplained, detected.unexplained_count),
            (metrics.documents_deleted, detected.deleted_count),
            (metrics.documents_deleted_unknown, detected.deleted_unknown_count),
            (metrics.alerts, len(detected.detections)),
            (metrics.pairs, _pairs_count(detected)),
            (metrics.candidates, detected.candidates_count),
            (metrics.candidates_verified, detected.accepted_count),
            (metrics.candidates_rejected, detected.rejected_count),
            (metrics.candidates_dropped, detected.dropped_candidates_count),
            (metrics.full_buckets, detected.full_buckets_count),
            (metrics.documents_hidden, len(detected.hidden)),
        ):
            counter.labels(profile).inc(count)
        for document in detected.hidden:
            self._repeats.warning("document_hidden", profile=profile, id=document.id, position=str(document.position))

    def _observe_latency(self, batch: Batch) -> None:
        """Observe the time from each record time to the present, all records of a topic at once."""
        times_ms: dict[str, list[int]] = {}
        for record in batch.records:
            times = times_ms.setdefault(record.position.topic, [])
            if record.timestamp_ms >= 0:  # negative: without a time
                times.append(record.timestamp_ms)
        present_ms = clock.now_ms()
        for topic, times in times_ms.items():
            # Not below 0: the clock of the producer may be ahead.
            self._metrics.latency_seconds.observe(topic, np.maximum(0, present_ms - np.array(times, np.int64)) / 1000)

    # Source and index

    def observe(self, source: Source, batch: Batch) -> None:
        """Show numbers of the source and of the indexes; log the summary when it is due."""
        self.observe_membership(source)
        self.lags.observe(source, batch)
        self._repeats.write_counts()
        self.observe_indexes()
        self._log_summary()

    def observe_wait(self, source: Source | None) -> None:
        """Show numbers of ``source``, None without Kafka, at intervals; a rebuild calls this for each record."""
        if source is not None and self.lags.refresh(source):
            self.observe_membership(source)
        self._log_summary()

    def observe_membership(self, source: Source) -> None:
        """Count the rebalances since the last call, and show how many partitions are assigned."""
        count = source.stats().rebalances_count
        self._metrics.rebalances.inc(count - self._rebalances_count)
        self._rebalances_count = count
        self._metrics.partitions_assigned.set(len(source.assigned()))

    def _log_summary(self) -> None:
        now_s = self._monotonic()
        if now_s - self._summary_at_s >= _SUMMARY_S:
            self._summary_at_s = now_s
            log.info("summary", **self._summary, lag=sum(self.lags.shown.values()))
            self._summary.clear()

    def observe_indexes(self) -> None:
        """Ask the indexes for their numbers every ``_STATS_S``; raise if one does not answer."""
        now_s = self._monotonic()
        if now_s - self._stats_at_s < _STATS_S:
            return
        self._stats_at_s = now_s
        for profile, index in self._indexes.items():
            self._metrics.index_documents.labels(profile).set(index.count_documents())
        stats = next(iter(self._indexes.values())).stats()  # one server has all indexes
        self._metrics.store_used_bytes.set(stats.used_bytes or 0)
        self._metrics.store_limit_bytes.set(stats.limit_bytes or 0)
        self._check_memory(stats)

    def _check_memory(self, stats: StoreStats) -> None:
        """Warn when the memory is nearly full; warn again only after there was room."""
        if stats.used_share > NEARLY_FULL and not self._is_nearly_full:
            log.warning("store_nearly_full", used_bytes=stats.used_bytes, limit_bytes=stats.limit_bytes)
        limit = _ROOM_AGAIN if self._is_nearly_full else NEARLY_FULL
        self._is_nearly_full = stats.used_share > limit

    # Events

    def halted(self) -> None:
        self._metrics.halted.set(1)
        self._repeats.close()  # logs the repeat counts now: while halted no call does, and `close` may come days later

    def close(self) -> None:
        """Log how often events were repeated, and which limits documents have reached; at the end of the loop."""
        self._repeats.close()
        for profile, reached in self._limits.items():
            if reached.documents:
                log.warning("limits_reached", profile=profile, **asdict(reached), reason=f"pairs may be missed: {CURE}")

    def topic_recreated(self, fence: Fence) -> None:
        """Record once that a topic was deleted and created again."""
        topic = fence.partition.topic
        if (topic, fence.incarnation) not in self._recreated:
            self._recreated.add((topic, fence.incarnation))
            self._metrics.topics_recreated.labels(topic).inc()
            log.warning("topic_recreated", topic=topic, partition=fence.partition.partition, mark=fence.high_water_mark)

    def index_lost(self, profile: str) -> None:
        self._metrics.index_lost_timestamp_seconds.labels(profile).set(clock.now_ms() / 1000)

    def index_complete(self, profile: str, rebuild_kind: str | None) -> None:
        """Record that a profile's index is complete; count a rebuild by ``rebuild_kind``, None without a rebuild."""
        self._metrics.index_lost_timestamp_seconds.labels(profile).set(0)
        if rebuild_kind is not None:
            self._metrics.index_rebuilds.labels(profile, rebuild_kind).inc()

    def clients_closed(self) -> None:
        self._metrics.rebuilds.inc()  # of the Kafka clients; `index_rebuilds` counts those of indexes
        self._metrics.partitions_assigned.set(0)
        self._rebalances_count = 0  # new clients count from 0
        self.lags.forget_ends()


def _pairs_count(detected: DetectionResult) -> int:
    return sum(len(detection.matches) for detection in detected.detections)


def _logged_counts(result: BatchResult, dead_letters_count: int) -> dict[str, int]:
    """Return the fields of the log event ``batch_committed``, whose sums are those of ``summary``."""
    profiles = result.detected.values()
    return {
        "records": result.decoded.topic_operations.total(),
        "alerts": sum(len(detected.detections) for detected in profiles),
        "pairs": sum(map(_pairs_count, profiles)),
        "skipped": sum(len(detected.skipped) for detected in profiles),
        "dead_letters": dead_letters_count,
        "full_buckets": sum(detected.full_buckets_count for detected in profiles),
        "dropped_candidates": sum(detected.dropped_candidates_count for detected in profiles),
    }
