"""The metrics of the daemon."""

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

# Otherwise the client adds a series with the time of creation for each counter and histogram. These series double the
# number of series, and ``process_start_time_seconds`` has the same information.
disable_created_metrics()  # type: ignore[no-untyped-call]

#: Bucket bounds for the stages of a batch, in seconds.
_STAGE_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
#: Bucket bounds for the time from the record time to the commit, in seconds.
_LATENCY_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 3600, 86_400)
#: Bucket bounds for the number of records in a batch.
_COUNT_BUCKETS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)

_PREFIX = "streamdedup_"

#: Stages of a batch. The first four take time of the loop; ``ahead`` is the time of the thread that reads ahead.
STAGES = ("poll", "prepare", "index", "publish", "ahead")
#: Everything that the daemon can wait for: name in the log, and label of the metric.
WAITING_FOR = {"the store": "store", "Kafka": "kafka", "partitions": "partitions", "the index": "index"}


class BatchHistogram(Collector):
    """A histogram with one label that observes many values at once; that of the client observes one at a time.

    Args:
        name: Name of the metric.
        text: Help text.
        bounds: Upper bounds of the buckets, ascending; a bucket without a bound follows.
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
        # Scrapes read in the thread of the HTTP server.
        self._lock = Lock()

    def observe(self, label: str, values: NDArray[np.float64]) -> None:
        """Observe values, float64 (n,), under a label value."""
        buckets = np.searchsorted(self._bounds, values, side="left")
        counts = np.bincount(buckets, minlength=len(self._bound_texts))
        with self._lock:
            self._counts[label] = self._counts.get(label, 0) + counts
            self._sums[label] = self._sums.get(label, 0.0) + float(values.sum())

    def describe(self) -> Iterator[HistogramMetricFamily]:
        """Yield the metric without values; called by a registry."""
        yield HistogramMetricFamily(self._name, self._text, labels=[self.label])

    def collect(self) -> Iterator[HistogramMetricFamily]:
        """Yield the metric with its values; called by a registry."""
        (family,) = self.describe()
        with self._lock:
            for label, counts in self._counts.items():
                cumulative = np.cumsum(counts).tolist()
                family.add_metric([label], list(zip(self._bound_texts, cumulative, strict=True)), self._sums[label])
        yield family


class Metrics:
    """The metrics of the daemon in a registry of their own, with those of the process (memory, time, open files)."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        #: Metrics whose only label is the profile, and whose series exist from the start.
        self._by_profile: list[Counter | Gauge] = []
        self._add_documents()
        self._add_detections()
        self._add_times()
        self._add_kafka()
        self._add_index()
        self._add_health()

    def _add_documents(self) -> None:
        self.records = self._counter(
            "records", "Records consumed and committed; kind is the operation, or invalid.", "topic", "kind"
        )
        self.documents_indexed = self._counter("documents_indexed", "Documents inserted into the index.", "profile")
        self.documents_replayed = self._counter(
            "documents_replayed", "Documents that an earlier attempt had already inserted.", "profile"
        )
        self.documents_silent = self._counter(
            "documents_silent",
            "Documents indexed without alerts: below the committed offset, or before index_silently_until.",
            "profile",
        )
        self.documents_silent_unexplained = self._counter(
            "documents_silent_unexplained",
            "Documents indexed without alerts although no offset was set back: the committed offset is gone.",
            "profile",
        )
        self.documents_outdated = self._counter(
            "documents_outdated", "Expired documents evicted during catch-up.", "profile"
        )
        self.documents_deleted = self._counter(
            "documents_deleted", "Deletions processed, also of documents that did not exist.", "profile"
        )
        self.skipped = self._counter(
            "skipped", "Documents skipped, which is no error; reason says why.", "profile", "reason"
        )
        self.future_times = self._counter(
            "future_times", "Documents whose record time was in the future and was replaced by the present."
        )
        self.dead_letters = self._counter(
            "dead_letters", "Records published to the dead-letter topic, by input topic.", "topic", "code"
        )
        self.dead_letters_silent = self._counter(
            "dead_letters_silent",
            "Invalid records without dead letters: below the committed offset, or before index_silently_until.",
        )

    def _add_detections(self) -> None:
        self.alerts = self._counter("alerts", "Documents with at least one new near-duplicate.", "profile")
        self.pairs = self._counter("pairs", "Near-duplicate pairs published.", "profile")
        self.candidates = self._counter("candidates", "Candidates found in buckets.", "profile")
        self.candidates_verified = self._counter(
            "candidates_verified",
            "Candidates that verification accepted as near-duplicates, suppressed ones included.",
            "profile",
        )
        self.suppressed = self._counter(
            "suppressed", "Near-duplicates that a rule of the profile keeps out of alerts.", "profile", "rule"
        )
        self.candidates_rejected = self._counter(
            "candidates_rejected",
            "Candidates that verification rejected: not similar, too far apart in time, or deleted.",
            "profile",
        )
        self.candidates_dropped = self._counter(
            "candidates_dropped", "Candidates beyond max_candidates, which are not verified.", "profile"
        )
        self.full_buckets = self._counter(
            "full_buckets", "Buckets that were full, so that a document was not inserted into them.", "profile"
        )

    def _add_times(self) -> None:
        self.batch_records = self._histogram("batch_records", "Records in a batch.", _COUNT_BUCKETS)
        self.batch_seconds = self._histogram(
            "batch_seconds",
            "Time of a batch by stage: poll, prepare, index, publish; ahead: prepare of the next batch in a thread.",
            _STAGE_BUCKETS,
            "stage",
        )
        self.latency_seconds = BatchHistogram(
            f"{_PREFIX}latency_seconds",
            "Time from the record time to the commit of the batch.",
            _LATENCY_BUCKETS,
            "topic",
        )
        self.registry.register(self.latency_seconds)
        self.last_commit_timestamp_seconds = self._gauge(
            "last_commit_timestamp_seconds", "Time of the last commit, seconds since the epoch."
        )
        self.loop_age_seconds = self._gauge("loop_age_seconds", "Time since the last step of the loop.")

    def _add_kafka(self) -> None:
        self.lag_records = self._gauge("lag_records", "Records that are not read yet.", "topic", "partition")
        self.partitions_assigned = self._gauge("partitions_assigned", "Partitions assigned to this daemon.")
        self.rebalances = self._counter("rebalances", "Times that partitions were assigned or revoked.")
        self.topics_recreated = self._counter(
            "topics_recreated", "Times that a topic was deleted and created again.", "topic"
        )
        self.rebuilds = self._counter("rebuilds", "Times that the Kafka clients were closed and opened again.")
        self.broker_errors = self._counter("broker_errors", "Failed attempts to use Kafka.")
        self.batches_refused = self._counter(
            "batches_refused", "Batches dropped because another daemon owns a partition."
        )

    def _add_index(self) -> None:
        self.index_documents = self._gauge(
            "index_documents", "Documents in the index: an estimate, within about 1 %.", "profile"
        )
        self.index_lost_timestamp_seconds = self._gauge(
            "index_lost_timestamp_seconds",
            "When the index was found lost or gone back in time, seconds since the epoch; 0 if it is complete.",
            "profile",
        )
        self._by_profile.append(self.index_lost_timestamp_seconds)
        self.store_used_bytes = self._gauge("store_used_bytes", "Memory in use by the server of the index.")
        self.store_limit_bytes = self._gauge(
            "store_limit_bytes", "Memory limit of the server of the index; 0 for no limit."
        )
        self.store_errors = self._counter("store_errors", "Failed attempts to use the server of the index.")

    def _add_health(self) -> None:
        self.ready = self._gauge("ready", "1 while the daemon is at work, 0 while it waits or has halted.")
        self.waiting = self._gauge(
            "waiting", "1 while the daemon waits for this: store, kafka, partitions or index.", "what"
        )
        for label in WAITING_FOR.values():
            self.waiting.labels(label).set(0)
        self.halted = self._gauge(
            "halted", "1 after too many dead letters: the daemon publishes nothing until a restart."
        )
        self.build = Info(f"{_PREFIX}build", "Version of the software.", registry=self.registry)

    def begin_at_zero(
        self,
        profile_of: Mapping[str, str],
        *,
        kinds: Iterable[str],
        codes: Iterable[str],
        reasons: Iterable[str],
        rules: Iterable[str],
    ) -> None:
        """Create all series with known labels, because a rate does not see the first value of a new series.

        Args:
            profile_of: Name of the profile of each input topic.
            kinds: Kinds of records.
            codes: Codes of dead letters.
            reasons: Reasons for skipping a document.
            rules: Rules of suppression.
        """
        kinds, codes, reasons, rules = tuple(kinds), tuple(codes), tuple(reasons), tuple(rules)
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
            for rule in rules:
                self.suppressed.labels(profile, rule)
            for metric in self._by_profile:
                metric.labels(profile)

    def observe_readiness(self, waiting_for: Callable[[], str | None], is_ready: Callable[[], bool]) -> None:
        """Read the readiness at each scrape.

        Args:
            waiting_for: Returns one of ``WAITING_FOR``, or None.
            is_ready: Tells whether the daemon is at work.
        """

        def is_awaited(name: str) -> Callable[[], float]:
            return lambda: float(waiting_for() == name)

        self.ready.set_function(is_ready)
        for name, label in WAITING_FOR.items():
            self.waiting.labels(label).set_function(is_awaited(name))

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        counter = Counter(f"{_PREFIX}{name}_total", text, labels, registry=self.registry)
        if labels == ("profile",):
            self._by_profile.append(counter)
        return counter

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"{_PREFIX}{name}", text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
        return Histogram(f"{_PREFIX}{name}", text, labels, buckets=buckets, registry=self.registry)
