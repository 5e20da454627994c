"""The daemon's metrics: kind, help text, advice to the operator, label names (``streamdedup.metrics.DeclaredMetric``).

``cli.run`` makes one ``Metrics`` and calls ``begin_at_zero``; ``statistics`` sets most values. A new metric: the recipe
in ``docs/architecture.md``.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import partial
from threading import Lock
from typing import get_args

import numpy as np
from numpy.typing import NDArray
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from streamdedup.daemon.batch import INVALID
from streamdedup.detection.model import Skip
from streamdedup.detection.suppression import SuppressionRule
from streamdedup.metrics import DeclaredMetric, MetricSet
from streamdedup.wire import ErrorCode, Flaw, Op

#: Bucket bounds for the stages of a batch, in seconds.
_STAGE_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
#: Bucket bounds for the time from the record time to the commit, in seconds.
_LATENCY_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 3600, 86_400)
#: Bucket bounds for the number of records in a batch.
_COUNT_BUCKETS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)

#: Stages of a batch, in the thread of the loop; ``ahead`` is the time of the thread that prepares the next batch.
STAGES = ("poll", "prepare", "index", "publish", "ahead")
#: Kinds of rebuilds by daemons: of a whole index; of its gap; of the gap after a switch to an index that
#: `index prepare` has built.
REBUILD_KINDS = ("lost", "gap", "switch")


class Awaited(StrEnum):
    """A server or event for which the daemon waits: the member's name is the label, its value the name in the log."""

    STORE = "the store"
    KAFKA = "Kafka"
    SCHEMA_REGISTRY = "the schema registry"
    GROUP = "the group"  # members use another index
    PARTITIONS = "partitions"  # their assignment
    INDEX = "the index"  # being rebuilt or deleted


class BatchHistogram(Collector):
    """A histogram with one label that observes many values in one call, which ``prometheus_client.Histogram`` lacks.

    ``buckets`` are upper bounds, ascending; a bucket without a bound follows them.
    """

    def __init__(
        self, name: str, text: str, labels: tuple[str], *, buckets: Sequence[float], registry: CollectorRegistry
    ) -> None:
        self._name = name
        self._text = text
        self._bounds = np.array(buckets, np.float64)
        self._bound_texts: list[str] = [
            floatToGoString(bound)  # type: ignore[no-untyped-call]
            for bound in (*buckets, math.inf)
        ]
        (self.label_name,) = labels
        self._counts: dict[str, NDArray[np.int64]] = {}
        self._sums: dict[str, float] = {}
        # Scrapes read in the thread of the HTTP server.
        self._lock = Lock()
        registry.register(self)

    def observe(self, label_value: str, values: NDArray[np.float64]) -> None:
        """Observe ``values``, float64 (n,); an empty array creates the series."""
        # A value that equals a bound belongs below this bound, as in Prometheus.
        bucket_numbers = np.searchsorted(self._bounds, values, side="left")
        counts = np.bincount(bucket_numbers, minlength=len(self._bound_texts))
        with self._lock:
            self._counts[label_value] = self._counts.get(label_value, 0) + counts
            self._sums[label_value] = self._sums.get(label_value, 0.0) + float(values.sum())

    def describe(self) -> Iterator[HistogramMetricFamily]:
        yield HistogramMetricFamily(self._name, self._text, labels=[self.label_name])

    def collect(self) -> Iterator[HistogramMetricFamily]:
        (family,) = self.describe()
        with self._lock:
            for label_value, counts in self._counts.items():
                cumulative = list(zip(self._bound_texts, np.cumsum(counts).tolist(), strict=True))
                family.add_metric([label_value], cumulative, self._sums[label_value])
        yield family


class Metrics(MetricSet):
    prefix = "streamdedup_"

    # Documents

    records = DeclaredMetric(
        Counter,
        "Records consumed and committed.",
        "None for an hour: [nothing comes in](operating.md#nothing-comes-in).",
        "topic",
        "kind",
    )
    documents_indexed = DeclaredMetric(Counter, "Documents inserted into the index.", "No action.", "profile")
    documents_replayed = DeclaredMetric(
        Counter,
        "Documents that an uncommitted attempt had already inserted.",
        "Rises: find the failures in the log.",
        "profile",
    )
    documents_silent = DeclaredMetric(
        Counter,
        "Documents indexed silently: below the committed offset, or before index_silently_until.",
        "Rises unexpectedly: [documents are silent](operating.md#documents-are-silent).",
        "profile",
    )
    documents_silent_unexplained = DeclaredMetric(
        Counter,
        "Documents indexed without alerts because the committed offset is gone.",
        "Any: [documents are silent](operating.md#documents-are-silent).",
        "profile",
    )
    documents_deleted = DeclaredMetric(
        Counter, "Deletions processed, also of unknown documents.", "No action.", "profile"
    )
    documents_deleted_unknown = DeclaredMetric(
        Counter,
        "Deletions of documents that the index did not know.",
        "A share that jumps: [deletions have no effect](operating.md#deletions-have-no-effect).",
        "profile",
    )
    documents_flawed = DeclaredMetric(
        Counter,
        "Documents whose key is not their id, or whose source or published_at is unusable.",
        "Reason key: [deletions have no effect](operating.md#deletions-have-no-effect). Others: correct the field.",
        "profile",
        "reason",
    )
    skipped = DeclaredMetric(
        Counter,
        "Documents skipped.",
        "A share that jumps: ask the producer.",
        "profile",
        "reason",
    )
    future_times = DeclaredMetric(
        Counter,
        "Documents whose record time was in the future.",
        "More than 1 % of the records: [set the producer's clock](operating.md#times-in-the-future).",
    )
    dead_letters = DeclaredMetric(
        Counter,
        "Records published to the dead-letter topic.",
        "Any: [dead letters](operating.md#dead-letters).",
        "topic",
        "code",
    )
    dead_letters_silent = DeclaredMetric(
        Counter,
        "Invalid records without dead letters: below the committed offset, or before index_silently_until.",
        "No action.",
    )

    # Detections

    alerts = DeclaredMetric(
        Counter,
        "Documents with at least one new near-duplicate.",
        "Stops, or jumps: look at the producers.",
        "profile",
    )
    pairs = DeclaredMetric(
        Counter,
        "Near-duplicate pairs published.",
        "Many for each alert: copies of one text.",
        "profile",
    )
    candidates = DeclaredMetric(
        Counter,
        "Candidates of documents that may emit pairs: from buckets, and exact copies.",
        "Hundreds for each document: [buckets are full](operating.md#buckets-are-full).",
        "profile",
    )
    candidates_verified = DeclaredMetric(  # the accepted ones only; see ``candidates_rejected``
        Counter,
        "Candidates accepted as near-duplicates, suppressed ones included.",
        "A small share of the candidates: `streamdedup tune`.",
        "profile",
    )
    suppressed = DeclaredMetric(
        Counter,
        "Near-duplicates that a rule of the profile keeps out of alerts.",
        "More than intended: check the rules. A pair may count twice.",
        "profile",
        "rule",
    )
    candidates_rejected = DeclaredMetric(
        Counter,
        "Candidates rejected: not similar, of another scope, too far apart in time, or deleted.",
        "A large share of the candidates: `streamdedup tune`.",
        "profile",
    )
    candidates_dropped = DeclaredMetric(
        Counter,
        # The 3 are `detection.candidates.STORM_CANDIDATES`.
        "Candidates not compared: beyond max_candidates, or for a document with a full bucket beyond 3.",
        "Rises: [buckets are full](operating.md#buckets-are-full).",
        "profile",
    )
    full_buckets = DeclaredMetric(
        Counter,
        "Insertions that full buckets refused.",
        "Rises: [buckets are full](operating.md#buckets-are-full).",
        "profile",
    )
    documents_hidden = DeclaredMetric(
        Counter,
        "Documents without a match whose buckets were full in all bands.",
        "Any: [buckets are full](operating.md#buckets-are-full).",
        "profile",
    )

    # Times

    batch_records = DeclaredMetric(
        Histogram,
        "Records in a batch.",
        "Full batches and a lag: [more daemons or processors](operating.md#lag-grows).",
        buckets=_COUNT_BUCKETS,
    )
    batch_seconds = DeclaredMetric(
        Histogram,
        "Time by stage, of a batch; prepare and index mostly of a chunk.",
        "One stage grows: [lag grows](operating.md#lag-grows).",
        "stage",
        buckets=_STAGE_BUCKETS,
    )
    latency_seconds = DeclaredMetric(
        BatchHistogram,
        "Time from the record time to the commit of the batch.",
        "The 99th percentile is above a minute: [latency is high](operating.md#latency-is-high).",
        "topic",
        buckets=_LATENCY_BUCKETS,
    )
    last_commit_timestamp_seconds = DeclaredMetric(
        Gauge,
        "Time of the last commit, seconds since the epoch.",
        "Does not change beside a lag: [the daemon is not ready](operating.md#the-daemon-is-not-ready).",
    )
    loop_age_seconds = DeclaredMetric(
        Gauge,
        "Time since the last step of the loop.",
        "Above 30 s: [the loop is stuck](operating.md#the-loop-is-stuck).",
    )

    # Kafka

    lag_records = DeclaredMetric(
        Gauge,
        "End offset less committed offset; 0 where everything is read and nothing is in progress.",
        "Grows: [lag grows](operating.md#lag-grows).",
        "topic",
        "partition",
    )
    lag_timestamp_seconds = DeclaredMetric(
        Gauge,
        "Time of the last lags, seconds since the epoch.",
        "A minute ago or more: [Kafka is away](operating.md#kafka-is-away), or the group rebalances.",
    )
    partitions_assigned = DeclaredMetric(
        Gauge,
        "Partitions assigned to this daemon.",
        "Unequal: choose a number of daemons that divides that of partitions. 0: a spare daemon.",
    )
    rebalances = DeclaredMetric(
        Counter,
        "Times that partitions were assigned or revoked.",
        "Rises without restarts: [the clients are rebuilt](operating.md#the-clients-are-rebuilt-again-and-again).",
    )
    topic_missing = DeclaredMetric(
        Gauge,
        "1 while the input topic does not exist.",
        "1: [a topic is missing](operating.md#a-topic-is-missing).",
        "topic",
    )
    topics_recreated = DeclaredMetric(
        Counter,
        "Times that a topic was deleted and created again.",
        "Any: [a topic was created again](operating.md#a-topic-was-created-again).",
        "topic",
    )
    rebuilds = DeclaredMetric(  # of clients; `index_rebuilds` counts those of indexes
        Counter,
        "Times that the Kafka clients were closed and opened again.",
        "Rises: [the clients are rebuilt](operating.md#the-clients-are-rebuilt-again-and-again).",
    )
    broker_errors = DeclaredMetric(
        Counter, "Failed attempts to use Kafka.", "Rises: [Kafka is away](operating.md#kafka-is-away)."
    )
    batches_refused = DeclaredMetric(
        Counter,
        "Batches dropped because another daemon owns a partition, or just owned it.",
        "More than ten in 15 minutes: [batches are refused](operating.md#batches-are-refused).",
    )

    # Index

    index_documents = DeclaredMetric(
        Gauge,
        "Documents in the index: an estimate, within about 1 %.",
        "Far from the documents of one retention period: check `retention`; a change of it restarts the count.",
        "profile",
    )
    index_lost_timestamp_seconds = DeclaredMetric(
        Gauge,
        "When the index was found lost, seconds since the epoch; 0 if it is complete.",
        "Not 0: [the index is lost](operating.md#the-index-is-lost).",
        "profile",
    )
    index_rebuilds = DeclaredMetric(
        Counter,
        "Rebuilds of the index, by kind.",
        "Lost or gap: find out why [the index was lost](operating.md#the-index-is-lost).",
        "profile",
        "kind",
    )
    store_used_bytes = DeclaredMetric(
        Gauge,
        "Memory in use by the server of the index.",
        "Above 85 % of the limit: [store memory is nearly full](operating.md#store-memory-is-nearly-full).",
    )
    store_limit_bytes = DeclaredMetric(
        Gauge,
        "Memory limit of the server of the index; 0 for no limit.",
        "0: set `maxmemory`.",
    )
    store_errors = DeclaredMetric(
        Counter,
        "Failed attempts to use the server of the index.",
        "Rises: [the store is away](operating.md#the-store-is-away).",
    )

    # Health

    ready = DeclaredMetric(
        Gauge,
        "1 while the daemon is at work; 0 while it waits or has halted, or a topic is missing.",
        "0 for 5 minutes: [the daemon is not ready](operating.md#the-daemon-is-not-ready).",
    )
    waiting = DeclaredMetric(
        Gauge,
        "1 while the daemon waits for the server or state of the label.",
        "1 for a minute: [the store](operating.md#the-store-is-away), [Kafka](operating.md#kafka-is-away) or the "
        "[schema registry](operating.md#the-daemon-is-not-ready) is away.",
        "what",
    )
    halted = DeclaredMetric(
        Gauge,
        "1 after too many dead letters: the daemon publishes nothing until a restart.",
        "1: [the dead-letter breaker has opened](operating.md#the-dead-letter-breaker-has-opened).",
    )
    build = DeclaredMetric(Info, "Version of the software.", "Differs after an upgrade: a daemon was forgotten.")

    def begin_at_zero(self, profile_of: Mapping[str, str]) -> None:
        """Create all series with known label values; ``profile_of``: profile by input topic."""
        # A rate does not see the first value of a series that is created later.
        # Metrics with a second label, and the values of that label:
        of_topic = [(self.records, (*get_args(Op), INVALID)), (self.dead_letters, tuple(ErrorCode))]
        of_profile = [
            (self.skipped, tuple(Skip)),
            (self.suppressed, tuple(SuppressionRule)),
            (self.documents_flawed, get_args(Flaw)),
            (self.index_rebuilds, REBUILD_KINDS),
        ]
        for stage in STAGES:
            self.batch_seconds.labels(stage)
        for topic in profile_of:
            self.latency_seconds.observe(topic, np.empty(0))
            self.topics_recreated.labels(topic)
            _create_series(topic, of_topic)
        for profile in dict.fromkeys(profile_of.values()):
            _create_series(profile, of_profile)
            self.index_lost_timestamp_seconds.labels(profile)
            for name, declared in self.declared().items():  # all counters with no label but the profile
                if declared.kind is Counter and declared.labels == ("profile",):
                    getattr(self, name).labels(profile)

    def connect_readiness(self, waiting_for: Callable[[], Awaited | None], is_ready: Callable[[], bool]) -> None:
        """Read ``ready`` and ``waiting`` from these functions at each scrape."""
        self.ready.set_function(is_ready)
        for awaited in Awaited:
            self.waiting.labels(awaited.name.lower()).set_function(partial(lambda one: waiting_for() is one, awaited))

    def connect_missing_topics(self, topics: Iterable[str], missing: Callable[[], frozenset[str]]) -> None:
        """Read ``topic_missing`` from ``missing`` at each scrape, for all input topics."""
        for topic in topics:
            self.topic_missing.labels(topic).set_function(partial(lambda name: name in missing(), topic))


def _create_series(owner: str, families: Iterable[tuple[Counter, Iterable[str]]]) -> None:
    for family, values in families:
        for value in values:
            family.labels(owner, value)
