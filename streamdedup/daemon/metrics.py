"""Every metric of the daemon, declared once."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from threading import Lock

import numpy as np
from numpy.typing import NDArray
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Info,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

# Else the client adds a series to each counter and histogram that says when it was made: as many again, and
# ``process_start_time_seconds`` says the same.
disable_created_metrics()  # type: ignore[no-untyped-call]

#: Bounds for the stages of a batch, in seconds.
_STAGE_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
#: Bounds for the way from the record's time to the commit, in seconds.
_LATENCY_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 3600, 86_400)
#: Bounds for sizes of batches and numbers of candidates.
_COUNT_BUCKETS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)

_PREFIX = "streamdedup_"

#: Stages of a batch. The loop's time is that of the first four; the last one passes in a thread beside it.
STAGES = ("poll", "prepare", "index", "publish", "ahead")
#: What the daemon can wait for, in the words of its log and as labels.
WAITING_FOR = {"the store": "store", "Kafka": "kafka", "partitions": "partitions", "the index": "index"}


class BatchHistogram(Collector):
    """A histogram with one label that takes many values at once; the client's own takes them one by one.

    Args:
        name: Name of the metric.
        text: Its help text.
        bounds: Upper bounds of its buckets, ascending; a bucket without a bound follows.
        label: Name of the label.

    Attributes:
        label: Name of the label.
    """

    def __init__(self, name: str, text: str, bounds: Sequence[float], label: str) -> None:
        self._name = name
        self._text = text
        self._bounds = np.array(bounds, np.float64)
        self._bound_texts: list[str] = [
            floatToGoString(bound)  # type: ignore[no-untyped-call]
            for bound in (*bounds, math.inf)
        ]
        self.label = label
        self._counts: dict[str, NDArray[np.int64]] = {}
        self._sums: dict[str, float] = {}
        # The metrics are read in the thread of the HTTP server.
        self._lock = Lock()

    def observe(self, label: str, values: NDArray[np.float64]) -> None:
        """Count values, float64 (n,), under a value of the label."""
        buckets = np.searchsorted(self._bounds, values, side="left")
        counts = np.bincount(buckets, minlength=len(self._bound_texts))
        with self._lock:
            self._counts[label] = self._counts.get(label, 0) + counts
            self._sums[label] = self._sums.get(label, 0.0) + float(values.sum())

    def describe(self) -> Iterator[HistogramMetricFamily]:
        """Yield the metric without values, as a registry asks for it."""
        yield HistogramMetricFamily(self._name, self._text, labels=[self.label])

    def collect(self) -> Iterator[HistogramMetricFamily]:
        """Yield the metric with its values, as a registry asks for it."""
        (family,) = self.describe()
        with self._lock:
            for label, counts in self._counts.items():
                cumulative = np.cumsum(counts).tolist()
                family.add_metric([label], list(zip(self._bound_texts, cumulative, strict=True)), self._sums[label])
        yield family


class Metrics:
    """The daemon's metrics in a registry of their own, beside those of the process (memory, time, open files)."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)

        self.records = self._counter(
            "records", "Records consumed and committed; kind is what they ask for, or invalid.", "topic", "kind"
        )
        self.documents_indexed = self._counter("documents_indexed", "Documents placed in the index.", "profile")
        self.documents_replayed = self._counter(
            "documents_replayed", "Documents that an attempt before had placed in the index.", "profile"
        )
        self.documents_silent = self._counter(
            "documents_silent",
            "Documents indexed without alerts: below the committed offset, or before index_silently_until.",
            "profile",
        )
        self.documents_silent_unexplained = self._counter(
            "documents_silent_unexplained",
            "Documents indexed without alerts although nobody set offsets back: the committed offset is gone.",
            "profile",
        )
        self.documents_outdated = self._counter(
            "documents_outdated", "Documents of a backlog that were taken out because their time is over.", "profile"
        )
        self.documents_deleted = self._counter(
            "documents_deleted", "Requests that a document be deleted, whether it was there or not.", "profile"
        )
        self.skipped = self._counter("skipped", "Documents passed over without being a mistake.", "profile", "reason")
        self.future_times = self._counter(
            "future_times", "Documents whose record time lay in the future and was set back."
        )
        self.dead_letters = self._counter(
            "dead_letters", "Records published to the dead-letter topic, by the topic they came from.", "topic", "code"
        )
        self.dead_letters_silent = self._counter(
            "dead_letters_silent",
            "Bad records without dead letters: below the committed offset, or before index_silently_until.",
        )
        self.alerts = self._counter("alerts", "Documents with at least one new near-duplicate.", "profile")
        self.pairs = self._counter("pairs", "Near-duplicate pairs published.", "profile")
        self.candidates = self._counter("candidates", "Candidates met in buckets.", "profile")
        self.candidates_verified = self._counter(
            "candidates_verified", "Candidates compared and found near-duplicates.", "profile"
        )
        self.candidates_rejected = self._counter(
            "candidates_rejected", "Candidates compared and found different, too far apart in time, or gone.", "profile"
        )
        self.candidates_dropped = self._counter(
            "candidates_dropped", "Candidates beyond max_candidates, never compared.", "profile"
        )
        self.full_buckets = self._counter(
            "full_buckets", "Times that a document found a bucket full and did not enter it.", "profile"
        )
        self.batch_records = self._histogram("batch_records", "Records in a batch.", _COUNT_BUCKETS)
        self.batch_seconds = self._histogram(
            "batch_seconds",
            "Time of a batch by stage: poll, prepare, index, publish; ahead: prepare of the next batch, beside them.",
            _STAGE_BUCKETS,
            "stage",
        )
        self.latency_seconds = BatchHistogram(
            f"{_PREFIX}latency_seconds", "From a record's time to the commit of its batch.", _LATENCY_BUCKETS, "topic"
        )
        self.registry.register(self.latency_seconds)
        self.batches_refused = self._counter(
            "batches_refused", "Batches dropped because somebody else owns a partition."
        )
        self.rebuilds = self._counter("rebuilds", "Times that the Kafka clients were closed and opened anew.")
        self.rebalances = self._counter("rebalances", "Times that partitions were assigned or taken away.")
        self.topics_recreated = self._counter(
            "topics_recreated", "Times that a topic was found deleted and created again.", "topic"
        )
        self.partitions_assigned = self._gauge("partitions_assigned", "Partitions that are ours.")
        self.store_errors = self._counter("store_errors", "Times that the store did not serve us.")
        self.broker_errors = self._counter("broker_errors", "Times that Kafka did not serve us.")
        self.lag_records = self._gauge("lag_records", "Records still to read.", "topic", "partition")
        self.last_commit_timestamp_seconds = self._gauge(
            "last_commit_timestamp_seconds", "When a batch was last committed, seconds since the epoch."
        )
        self.index_documents = self._gauge(
            "index_documents", "Documents in the index: an estimate, within about 1 %.", "profile"
        )
        self.index_lost_timestamp_seconds = self._gauge(
            "index_lost_timestamp_seconds",
            "When the index was found lost or gone back in time, seconds since the epoch; 0 if it is complete.",
            "profile",
        )
        self.store_used_bytes = self._gauge("store_used_bytes", "Memory that the store's server uses.")
        self.store_limit_bytes = self._gauge("store_limit_bytes", "Memory limit of the store's server; 0 for none.")
        self.loop_age_seconds = self._gauge("loop_age_seconds", "Time since the loop last made a step.")
        self.ready = self._gauge("ready", "1 while the daemon is at work, 0 while it waits for something.")
        self.waiting = self._gauge(
            "waiting", "1 while the daemon waits for this: store, kafka, partitions or index.", "what"
        )
        for what in WAITING_FOR.values():
            self.waiting.labels(what).set(0)
        self.halted = self._gauge(
            "halted", "1 since too many records would have become dead letters; the daemon publishes nothing further."
        )
        self.build = Info(f"{_PREFIX}build", "Version of the software.", registry=self.registry)

    def begin_at_zero(
        self, profile_of: Mapping[str, str], *, kinds: Iterable[str], codes: Iterable[str], reasons: Iterable[str]
    ) -> None:
        """Show every series that can be foreseen from the start: a rate does not see the first value of one.

        Args:
            profile_of: Name of the profile of each input topic.
            kinds: What a record can ask for.
            codes: Why a record can become a dead letter.
            reasons: Why a document can be skipped.
        """
        kinds, codes, reasons = tuple(kinds), tuple(codes), tuple(reasons)
        by_profile = (
            self.documents_indexed,
            self.documents_replayed,
            self.documents_silent,
            self.documents_silent_unexplained,
            self.documents_deleted,
            self.documents_outdated,
            self.alerts,
            self.pairs,
            self.candidates,
            self.candidates_verified,
            self.candidates_rejected,
            self.candidates_dropped,
            self.full_buckets,
            self.index_lost_timestamp_seconds,
        )
        for stage in STAGES:
            self.batch_seconds.labels(stage)
        for topic, profile in profile_of.items():
            self.latency_seconds.observe(topic, np.empty(0))
            self.topics_recreated.labels(topic)
            for kind in kinds:
                self.records.labels(topic, kind)
            for code in codes:
                self.dead_letters.labels(topic, code)
            for reason in reasons:
                self.skipped.labels(profile, reason)
            for metric in by_profile:
                metric.labels(profile)

    def observe_loop_age(self, age_s: Callable[[], float]) -> None:
        """Read the age of the loop's last step, in seconds, whenever the metrics are asked for."""
        self.loop_age_seconds.set_function(age_s)

    def observe_readiness(self, waiting_for: Callable[[], str | None], is_ready: Callable[[], bool]) -> None:
        """Read whether the daemon is at work, and what it waits for, whenever the metrics are asked for.

        Args:
            waiting_for: Returns one of ``WAITING_FOR``, or None.
            is_ready: Tells whether it is at work.
        """

        def shown(what: str) -> Callable[[], float]:
            return lambda: float(waiting_for() == what)

        self.ready.set_function(is_ready)
        for what, label in WAITING_FOR.items():
            self.waiting.labels(label).set_function(shown(what))

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"{_PREFIX}{name}_total", text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"{_PREFIX}{name}", text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
        return Histogram(f"{_PREFIX}{name}", text, labels, buckets=buckets, registry=self.registry)
