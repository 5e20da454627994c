"""The daemon's metrics: kind, help text, advice to the operator, label names (``streamdedup.metrics.DeclaredMetric``).

``cli.run`` makes one ``Metrics`` and calls ``begin_at_zero``; ``statistics`` sets most values. A new metric: the recipe
in ``docs/architecture.md``.
"""

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from functools import partial
from typing import get_args

import numpy as np
from prometheus_client import Counter, Gauge, Histogram, Info

from streamdedup.daemon.batch import INVALID
from streamdedup.detection.model import Skip
from streamdedup.detection.suppression import SuppressionRule
from streamdedup.metrics import BatchHistogram, DeclaredMetric, MetricSet
from streamdedup.wire import ErrorCode, Flaw, Op

#: Bucket bounds for the stages of a batch, in seconds.
_STAGE_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
#: Bucket bounds for the time from the record time to the commit, in seconds.
_LATENCY_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 3600, 86_400)
#: Bucket bounds for the number of records in a batch.
_COUNT_BUCKETS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)

#: Stages of a batch, in the thread of the loop; ``ahead`` is the time of the thread that prepares the next batch.
STAGES = ("poll", "prepare", "index", "publish", "ahead")
#: Kinds of rebuilds by daemons: of a whole index; of its gap; of the gap of an index that `index prepare` has built.
REBUILD_KINDS = ("lost", "gap", "switch")


class Awaited(StrEnum):
    """A server or event for which the daemon waits: the member's name is the label, its value the name in the log."""

    STORE = "the store"
    KAFKA = "Kafka"
    SCHEMA_REGISTRY = "the schema registry"
    GROUP = "the group"  # members use another index
    PARTITIONS = "partitions"  # their assignment
    INDEX = "the index"  # being rebuilt or deleted


def _profile_counter(text: str, action: str, *labels: str) -> DeclaredMetric[Counter]:
    return DeclaredMetric(Counter, text, action, "profile", *labels)


_counter = partial(DeclaredMetric, Counter)
_gauge = partial(DeclaredMetric, Gauge)


class Metrics(MetricSet):
    prefix = "streamdedup_"

    # Documents

    records = _counter(
        "Records consumed and committed; kind is the operation, or invalid.",
        "None for an hour: [nothing comes in](operating.md#nothing-comes-in).",
        "topic",
        "kind",
    )
    documents_indexed = _profile_counter("Documents inserted into the index.", "No action.")
    documents_replayed = _profile_counter(
        "Documents that an uncommitted attempt had already inserted.", "Rises: find the failures in the log."
    )
    documents_silent = _profile_counter(
        "Documents indexed silently: below the committed offset, or before index_silently_until.",
        "Rises unexpectedly: [documents are silent](operating.md#documents-are-silent).",
    )
    documents_silent_unexplained = _profile_counter(
        "Documents indexed without alerts because the committed offset is gone.",
        "Any: [documents are silent](operating.md#documents-are-silent).",
    )
    documents_deleted = _profile_counter("Deletions processed, also of unknown documents.", "No action.")
    documents_deleted_unknown = _profile_counter(
        "Deletions of documents that the index did not know.",
        "A share that jumps: [deletions have no effect](operating.md#deletions-have-no-effect).",
    )
    documents_flawed = _profile_counter(
        "Documents whose key is not their id, or whose source or published_at is unusable.",
        "Reason key: [deletions have no effect](operating.md#deletions-have-no-effect). Others: correct the field.",
        "reason",
    )
    skipped = _profile_counter("Documents skipped.", "A share that jumps: ask the producer.", "reason")
    future_times = _counter(
        "Documents whose record time was in the future.",
        "More than 1 % of the records: [set the producer's clock](operating.md#times-in-the-future).",
    )
    dead_letters = _counter(
        "Records published to the dead-letter topic.",
        "Any: [dead letters](operating.md#dead-letters).",
        "topic",
        "code",
    )
    dead_letters_silent = _counter(
        "Invalid records without dead letters: below the committed offset, or before index_silently_until.",
        "No action.",
    )

    # Detections

    alerts = _profile_counter(
        "Documents with at least one new near-duplicate.", "Stops, or jumps: look at the producers."
    )
    pairs = _profile_counter("Near-duplicate pairs published.", "Many for each alert: copies of one text.")
    candidates = _profile_counter(
        "Candidates of documents that may emit pairs: from buckets, and exact copies.",
        "Hundreds for each document: [buckets are full](operating.md#buckets-are-full).",
    )
    candidates_verified = _profile_counter(  # the accepted ones only; see ``candidates_rejected``
        "Candidates accepted as near-duplicates, suppressed ones included.",
        "A small share of the candidates: `streamdedup tune`.",
    )
    suppressed = _profile_counter(
        "Near-duplicates that a rule of the profile keeps out of alerts.",
        "More than intended: check the rules. A pair may count twice.",
        "rule",
    )
    candidates_rejected = _profile_counter(
        "Candidates rejected: not similar, of another scope, too far apart in time, or deleted.",
        "A large share of the candidates: `streamdedup tune`.",
    )
    candidates_dropped = _profile_counter(
        # The 3 are `detection.candidates.STORM_CANDIDATES`.
        "Candidates not compared: beyond max_candidates, or for a document with a full bucket beyond 3.",
        "Rises: pairs may be missed; [buckets are full](operating.md#buckets-are-full).",
    )
    full_buckets = _profile_counter(
        "Insertions that full buckets refused.",
        "Rises: pairs may be missed; [buckets are full](operating.md#buckets-are-full).",
    )
    documents_hidden = _profile_counter(
        "Documents without a match whose buckets were full in all bands.",
        "Any: pairs of them are missed; [buckets are full](operating.md#buckets-are-full).",
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
        "Time by stage: of a batch poll (also an empty one), publish and ahead; mostly of a chunk prepare and index.",
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
    last_commit_timestamp_seconds = _gauge(
        "Time of the last commit, seconds since the epoch.",
        "Does not change beside a lag: [the daemon is not ready](operating.md#the-daemon-is-not-ready).",
    )
    loop_age_seconds = _gauge(
        "Time since the last step of the loop.", "Above 30 s: [the loop is stuck](operating.md#the-loop-is-stuck)."
    )

    # Kafka

    lag_records = _gauge(
        "End offset less committed offset; 0 where everything is read and nothing is in progress.",
        "Grows: [lag grows](operating.md#lag-grows).",
        "topic",
        "partition",
    )
    lag_timestamp_seconds = _gauge(
        "Time of the last lags, seconds since the epoch.",
        "A minute ago or more: [Kafka is away](operating.md#kafka-is-away), or the group rebalances.",
    )
    partitions_assigned = _gauge(
        "Partitions assigned to this daemon.",
        "Unequal: choose a number of daemons that divides that of partitions. 0: a spare daemon.",
    )
    rebalances = _counter(
        "Times that partitions were assigned or revoked.",
        "Rises without restarts: [the clients are rebuilt](operating.md#the-clients-are-rebuilt-again-and-again).",
    )
    topic_missing = _gauge(
        "1 while the input topic does not exist.", "1: [a topic is missing](operating.md#a-topic-is-missing).", "topic"
    )
    topics_recreated = _counter(
        "Times that a topic was deleted and created again.",
        "Any: [a topic was created again](operating.md#a-topic-was-created-again).",
        "topic",
    )
    rebuilds = _counter(  # of clients; `index_rebuilds` counts those of indexes
        "Times that the Kafka clients were closed and opened again.",
        "Rises: [the clients are rebuilt](operating.md#the-clients-are-rebuilt-again-and-again).",
    )
    broker_errors = _counter("Failed attempts to use Kafka.", "Rises: [Kafka is away](operating.md#kafka-is-away).")
    batches_refused = _counter(
        "Batches dropped because another daemon owns a partition, or just owned it.",
        "More than ten in 15 minutes: [batches are refused](operating.md#batches-are-refused).",
    )

    # Index

    index_documents = _gauge(
        "Documents in the index: an estimate, within about 1 %.",
        "Far from the documents of one retention period: check `retention`. A change of it or of `retention_slack` "
        "restarts the count at 0; it is right again a lifetime later.",
        "profile",
    )
    index_lost_timestamp_seconds = _gauge(
        "When the index was found lost or gone back in time, seconds since the epoch; 0 if it is complete.",
        "Not 0: [the index is lost](operating.md#the-index-is-lost).",
        "profile",
    )
    index_rebuilds = _profile_counter(
        "Rebuilds of the index, by kind.",
        "Lost or gap: find out why [the index was lost](operating.md#the-index-is-lost).",
        "kind",
    )
    store_used_bytes = _gauge(
        "Memory in use by the server of the index.",
        "Above 85 % of the limit: [store memory is nearly full](operating.md#store-memory-is-nearly-full).",
    )
    store_limit_bytes = _gauge("Memory limit of the server of the index; 0 for no limit.", "0: set `maxmemory`.")
    store_errors = _counter(
        "Failed attempts to use the server of the index.", "Rises: [the store is away](operating.md#the-store-is-away)."
    )

    # Health

    ready = _gauge(
        "1 while the daemon is at work; 0 while it waits or has halted, or a topic is missing.",
        "0 for 5 minutes: [the daemon is not ready](operating.md#the-daemon-is-not-ready).",
    )
    waiting = _gauge(
        "1 while the daemon waits for the server or state of the label.",
        "1 for a minute: [the store](operating.md#the-store-is-away), [Kafka](operating.md#kafka-is-away) or the "
        "[schema registry](operating.md#the-daemon-is-not-ready) is away.",
        "what",
    )
    halted = _gauge(
        "1 after too many dead letters: the daemon publishes nothing until a restart.",
        "1: [the dead-letter breaker has opened](operating.md#the-dead-letter-breaker-has-opened).",
    )
    build = DeclaredMetric(Info, "Version of the software.", "Differs after an upgrade: a daemon was forgotten.")

    def begin_at_zero(self, profile_of: Mapping[str, str]) -> None:
        """Create all series with known label values; ``profile_of``: profile by input topic.

        A rate does not see the first value of a series that is created later.
        """
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
            for name, declared in self.declared().items():  # counters by profile alone
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
