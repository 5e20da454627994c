"""A real Prometheus looks at real daemons: every query of the dashboard follows the event that it is there to show.

Grafana itself is not needed: what it would send is sent to Prometheus, with a choice of daemons and a span of rates in
the place of the dashboard's variables.
"""

import itertools
import re
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Self

import pytest
import yaml
from redis import Redis

from streamdedup.indexes import connect_backend
from streamdedup.position import Partition
from streamdedup.settings import Settings
from tests import servers
from tests.daemons import DEADLINE_S, Daemon, Installation, delete_offsets, produce_keyed, set_offsets, values_of
from tests.dashboard import PANELS, metrics_of, substituted
from tests.floods import a_story, decoys
from tests.made_corpus import a_corpus
from tests.prometheus import RULES, PrometheusServer, Watch
from tests.support.ports import free_ports
from tests.support.processes import pause, resume

#: Seconds that an event may take to be seen.
SEEN_S = 240.0
#: The span over which rates are taken: ten scrapes.
SPAN = "5s"
#: Name of the daemons' job.
JOB = "watched"

#: Partitions of the input topic.
PARTITIONS = 2

#: A query: title of its panel and legend.
Shown = tuple[str, str]

#: What must be seen after each event: more or less than before it, or something where there was nothing.
EVENTS: dict[str, dict[Shown, str]] = {
    "a daemon starts": {
        ("Ready daemons", "ready"): "more",
        ("Ready daemons", "of"): "more",
        ("Waiting, and ready", "{{instance}} ready"): "more",
        ("Process memory", "{{instance}}"): "more",
        ("Store memory and its limit", "limit"): "more",
        ("Up, by version", "version {{version}}"): "more",
    },
    "a second daemon joins, and leaves": {
        ("Partitions", "{{instance}}"): "less",
        ("Errors and rebuilds", "rebalances"): "more",
    },
    "documents come in": {
        ("Documents", "records"): "more",
        ("Alerts", "alerts"): "more",
        ("Latency p99", "p99"): "more",
        ("Store memory", "used"): "more",
        ("Store memory and its limit", "used"): "more",
        ("Documents in the index", "documents"): "more",
        ("Documents in the index by profile", "{{profile}}"): "more",
        ("Memory of a document", "bytes a document"): "more",
        ("Records by topic", "{{topic}}"): "more",
        ("Records by kind", "{{kind}}"): "more",
        ("Outcome of the records", "indexed"): "more",
        ("Outcome of the records", "deletions"): "more",
        ("Alerts and pairs by profile", "alerts {{profile}}"): "more",
        ("Alerts and pairs by profile", "pairs {{profile}}"): "more",
        ("Alerts and pairs by profile", "suppressed {{profile}} {{rule}}"): "more",
        ("Latency", "half"): "more",
        ("Latency", "9 of 10"): "more",
        ("Latency", "99 of 100"): "more",
        ("Latency distribution", "{{le}}"): "more",
        ("Time by stage", "{{stage}}"): "more",
        ("Duration of a stage, p99", "{{stage}}"): "more",
        ("Records in a batch", "half"): "more",
        ("Records in a batch", "99 of 100"): "more",
        ("Records in a batch", "on average"): "more",
        ("Candidates of a document", "met"): "more",
        ("Candidates of a document", "near-duplicates"): "more",
        ("Candidates of a document", "rejected"): "more",
        ("Candidates of a document", "dropped, never compared"): "more",
        ("Full buckets by profile", "{{profile}}"): "more",
        ("Since the last commit", "{{instance}}"): "more",
        ("Process CPU", "{{instance}}"): "more",
    },
    "some of them are bad": {
        ("Dead letters, last hour", "dead letters"): "more",
        ("Outcome of the records", "skipped"): "more",
        ("Outcome of the records", "dead letters"): "more",
        ("Dead letters by topic and code", "{{topic}} {{code}}"): "more",
        ("Skipped and set back", "{{profile}} {{reason}}"): "more",
        ("Skipped and set back", "time in the future"): "more",
        ("Skipped and set back", "{{profile}} flawed {{reason}}"): "more",
        ("Skipped and set back", "{{profile}} unknown deleted"): "more",
    },
    "Redis freezes while documents come in": {
        ("Loop age", "{{instance}}"): "more",
        ("Waiting, and ready", "{{instance}} waits for {{what}}"): "more",
        ("Errors and rebuilds", "store errors"): "more",
        ("Alerts that fire", "{{alertname}}"): "more",
        ("Lag", "records"): "more",
        ("Lag by partition", "{{topic}}:{{partition}}"): "more",
    },
    "Redis goes on": {
        ("Full buckets by profile", "documents hidden {{profile}}"): "more",
    },
    "Kafka freezes while documents come in": {
        ("Errors and rebuilds", "Kafka errors"): "more",
        ("Errors and rebuilds", "clients closed"): "more",
        ("Repeated and silent", "after a failure"): "more",
        ("Since the last commit", "{{instance}} lag"): "more",
    },
    "a topic turns bad": {
        ("Waiting, and ready", "{{instance}} halted"): "more",
    },
    "the daemon is started again, and offsets are set back": {
        ("Up, by version", "seconds since the last start"): "less",
        ("Outcome of the records", "dead letters again, in silence"): "more",
        ("Repeated and silent", "below the committed offset"): "more",
        ("Repeated and silent", "dead letters below it"): "more",
    },
    "its committed offsets are deleted": {
        ("Repeated and silent", "of these, without a reason"): "more",
    },
    "its topic is deleted and created again": {
        ("Waiting, and ready", "{{topic}} missing"): "more",
        ("Errors and rebuilds", "topics created again"): "more",
    },
    "the index is lost": {
        ("Waiting, and ready", "{{instance}} lost the index of {{profile}}"): "more",
    },
    "the index is lost and rebuilt": {
        ("Errors and rebuilds", "index rebuilt: {{kind}}"): "more",
    },
    # The last event: a daemon that is refused for a minute ends.
    "another generation writes to the index": {
        ("Errors and rebuilds", "batches refused"): "more",
    },
}


#: Alerts that fire after an event.
ALERTS: dict[str, tuple[str, ...]] = {
    "a daemon starts": ("StreamdedupNothingComesIn",),
    "documents come in": ("StreamdedupBucketsFull", "StreamdedupLatencyHigh"),
    "some of them are bad": ("StreamdedupDeadLetters", "StreamdedupFutureTimes"),
    "Redis freezes while documents come in": ("StreamdedupStoreAway", "StreamdedupNotReady"),
    "Redis goes on": ("StreamdedupDocumentsHidden",),
    "a topic turns bad": ("StreamdedupHalted",),
    "its committed offsets are deleted": ("StreamdedupDocumentsSilent",),
    "its topic is deleted and created again": ("StreamdedupTopicMissing",),
    "the index is lost": ("StreamdedupIndexLost",),
    "the index is lost and rebuilt": ("StreamdedupIndexRebuilt",),
    "another generation writes to the index": ("StreamdedupBatchesRefused",),
}

#: Small batches, caps low enough to be reached, and no alerts about texts of two shingles.
CAPS = {
    "kafka.batch_records": 25,
    "profiles.articles.bucket_cap": 3,
    "profiles.articles.max_candidates": 3,
    "profiles.articles.min_shingles": 3,
}
#: Little patience with a Kafka that does not answer.
BRIEF = {"kafka.transaction_timeout": "6s"}
#: A lost index does not end the daemon.
LOST = {"service.on_index_lost": "continue"}
#: What depends on a figure that the daemon takes every 15 seconds.
SLOW: tuple[Shown, ...] = (
    ("Store memory", "used"),
    ("Store memory and its limit", "used"),
    ("Store memory and its limit", "limit"),
    ("Documents in the index", "documents"),
    ("Documents in the index by profile", "{{profile}}"),
    ("Memory of a document", "bytes a document"),
)


@pytest.fixture(scope="module")
def watch(tmp_path_factory):
    watch = Watch(tmp_path_factory.mktemp("prometheus"))
    with watch.server:
        yield watch


def all_shown() -> dict[Shown, str]:
    """Return the queries of the dashboard by panel and legend, as they are sent for our daemons."""
    return {
        (panel["title"], target["legendFormat"]): substituted(target["expr"], job=JOB, instance=".*", span=SPAN)
        for panel in PANELS
        for target in panel["targets"]
    }


class Wall:
    """The dashboard: what it shows now, and what is still to be seen on it.

    Args:
        prometheus: Where the data come from.
    """

    def __init__(self, prometheus: PrometheusServer) -> None:
        self._prometheus = prometheus
        self._queries = all_shown()
        self._expected: dict[Shown, tuple[str, dict]] = {}
        self._fired: set[str] = set()

    def shows(self, shown: Shown) -> dict[frozenset[tuple[str, str]], float]:
        return self._prometheus.values(self._queries[shown])

    def expect(self, event: str) -> None:
        """Remember what the wall shows before an event, and what it must show after it; its alerts must fire anew."""
        self._expected |= {shown: (how, self.shows(shown)) for shown, how in EVENTS[event].items()}
        self._fired -= set(ALERTS.get(event, ()))

    def look(self) -> None:
        """Look for what is still expected, of all events, and for alerts that fire."""
        self._fired |= self._prometheus.firing(JOB)
        for shown, (how, before) in list(self._expected.items()):
            now = self.shows(shown)
            differences = [value - before.get(labels, 0) for labels, value in now.items()]
            if any(difference > 0 if how == "more" else difference < 0 for difference in differences):
                del self._expected[shown]

    def unseen(self, event: str) -> list[Shown | str]:
        """Look, and return the queries and alerts that are missing of one event."""
        self.look()
        alerts = (alert for alert in ALERTS.get(event, ()) if alert not in self._fired)
        return [*(shown for shown in EVENTS[event] if shown in self._expected), *alerts]

    @contextmanager
    def looked_at(self) -> Iterator[None]:
        """Look for what is expected while an event happens: at its end a rate may have risen and fallen again."""
        over = threading.Event()

        def keep_looking() -> None:
            while not over.wait(0.2):
                self.look()

        with ThreadPoolExecutor(1) as pool:
            looking = pool.submit(keep_looking)
            try:
                yield
            finally:
                over.set()
            looking.result()

    def wait_for(self, event: str, *, but: tuple[Shown, ...] = ()) -> None:
        """Wait until all that an event changes has been seen; what takes longer is left to a later wait."""
        missing: list[Shown | str] = []

        def seen() -> bool:
            missing[:] = [shown for shown in self.unseen(event) if shown not in but]
            return not missing

        try:
            servers.wait_until(seen, SEEN_S, event)
        except TimeoutError:
            pytest.fail(f"after the event '{event}' nothing has changed in {missing}", pytrace=False)


def storm(count: int) -> list[tuple[str, str]]:
    """Return documents that are copies of one."""
    return [(f"copy-{number}", " ".join(f"word{at}" for at in range(30))) for number in range(count)]


def bad(count: int) -> list[tuple[bytes, bytes]]:
    return [(f"bad-{number}".encode(), b"not json") for number in range(count)]


class Life:
    """A daemon over servers of its own, and what can happen to it."""

    def __init__(self, installation: Installation, kafka, redis, watch: Watch) -> None:
        self._installation, self._kafka, self._redis, self._watch = installation, kafka, redis, watch
        self._sent_count = 0
        self.daemon = self._new_daemon(dead_letter_limit=30)
        self._second = installation.daemon("b", **{"redis.url": redis.url} | CAPS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        for daemon in (self.daemon, self._second):
            daemon.__exit__()

    def _new_daemon(self, dead_letter_limit: object, **settings: object) -> Daemon:
        own = {"redis.url": self._redis.url, "service.dead_letter_limit": dead_letter_limit}
        return self._installation.daemon(**own | CAPS | BRIEF | LOST | settings)

    def send(self, records, **fields) -> None:
        produce_keyed(self._kafka.bootstrap_servers, "articles", records, **fields)
        self._sent_count += len(records)

    def start(self) -> None:
        self.daemon.start()
        self._watch.look_at(JOB, self.daemon.wait_event("started")["metrics_port"])
        self.daemon.wait_ready()
        # The second daemon takes some of these.
        owned = f'streamdedup_partitions_assigned{{job="{JOB}"}} == {PARTITIONS}'
        servers.wait_until(lambda: self._watch.server.values(owned), what="the partitions of the daemon")

    def a_second_joins(self) -> None:
        self._second.start()
        self._second.wait_ready()

    def settle(self, event: str) -> None:
        """Let what an event has begun come to its end before the next one."""
        if event == "a daemon starts":
            self._leave_the_rates("streamdedup_rebalances_total")
        if event == "a second daemon joins, and leaves":
            assert self._second.stop() == 0
        if event in {"some of them are bad", "Redis goes on", "Kafka freezes while documents come in"}:
            self._installation.wait_committed(self._sent_count)
        if event == "Redis goes on":
            # A batch that Redis has cut short in the middle of its work is done again too.
            self._leave_the_rates("streamdedup_documents_replayed_total")

    def _leave_the_rates(self, counter: str) -> None:
        """Wait until a rate no longer shows what an event has counted: the next event would not exceed it."""
        recent = f"sum(increase({counter}{{job={JOB!r}}}[{SPAN}])) > 0"
        servers.wait_until(lambda: not self._watch.server.values(recent), what=f"the end of the rate of {counter}")

    def documents_come_in(self) -> None:
        self.send(
            values_of(
                [*a_corpus(1, 300), *storm(60), ("short-1", "three short words"), ("short-2", "three short words")]
            )
        )
        self.send([(f"copy-{number}".encode(), b'{"op": "delete"}') for number in range(50, 60)])
        self.send(values_of(words(20, 0)), timestamp_ms=(int(time.time()) - 1800) * 1000)

    def some_are_bad(self) -> None:
        # Half an hour ahead; brokers refuse more than one.
        later_ms = (int(time.time()) + 1800) * 1000
        self.send([*bad(5), (b"empty", b'{"id": "empty", "text": ""}'), (b"flawed", b'{"id": "x", "text": "a b c"}')])
        self.send([(b"unknown", None)])
        self.send(values_of(a_corpus(2, 10)), timestamp_ms=later_ms)

    def redis_freezes(self) -> None:
        # Before the documents come in, or the daemon may be done with them by then.
        pause(self._redis)
        self.send(values_of([(f"third-{i}", text) for i, text in a_corpus(3, 3000)]))

    def redis_goes_on(self) -> None:
        # In one partition, so that the text comes after the decoys.
        text = a_story()
        self.send(values_of([*decoys(text, 400, 85), ("story", text)]), partition=0)
        resume(self._redis)

    def kafka_freezes(self) -> None:
        """Freeze Kafka again and again until it hits a batch between index and commit, which is then done again."""
        (broker,) = self._kafka.brokers
        replayed = self.daemon.metric("streamdedup_documents_replayed_total")
        for attempt in range(10):
            # New documents for each freeze, so that a batch is under way.
            with self.daemon.growing("streamdedup_records_total"):
                self.send(values_of([(f"fourth-{attempt}-{i}", text) for i, text in a_corpus(40 + attempt, 3000)]))
            # Counted also by a daemon that was already done with them, which keeps its clients.
            with self.daemon.growing("streamdedup_broker_errors_total"):
                pause(broker)
            resume(broker)
            self._installation.wait_committed(self._sent_count)
            if self.daemon.metric("streamdedup_documents_replayed_total") > replayed:
                return
        pytest.fail("no batch was done again", pytrace=False)

    def a_topic_turns_bad(self) -> None:
        self.send(bad(100))

    def offsets_are_set_back(self) -> None:
        assert self.daemon.stop() == 0
        partitions = {("articles", 0): 0, ("articles", 1): 0}
        set_offsets(self._kafka.bootstrap_servers, self._installation.group, partitions)
        self.daemon = self._new_daemon(dead_letter_limit="none")
        # Nothing is done before Prometheus has seen it for the first time: of a first value there is no rate.
        pause(self._redis)
        self._start_and_be_seen()
        resume(self._redis)

    def offsets_are_deleted(self) -> None:
        assert self.daemon.stop() == 0
        delete_offsets(self._kafka.bootstrap_servers, self._installation.group, "articles", PARTITIONS)
        self.daemon = self._new_daemon(dead_letter_limit="none")
        pause(self._redis)
        self._start_and_be_seen()
        resume(self._redis)

    def its_topic_is_recreated(self) -> None:
        with closing(servers.admin_client(self._kafka.bootstrap_servers)) as admin:
            admin.delete_topics(["articles"])
        firing = self._watch.server.firing
        servers.wait_until(lambda: "StreamdedupTopicMissing" in firing(JOB), SEEN_S, "the alert of the missing topic")
        servers.create_topics(self._kafka.bootstrap_servers, ["articles"], PARTITIONS)
        self.send(values_of(a_corpus(5, 40)))

    def _start_and_be_seen(self) -> None:
        self.daemon.start()
        port = self.daemon.wait_event("started")["metrics_port"]
        self._watch.look_at(JOB, port)
        seen = f'streamdedup_ready{{instance="127.0.0.1:{port}"}}'
        servers.wait_until(lambda: self._watch.server.values(seen), what="the first look at the daemon")

    def another_generation_writes(self) -> None:
        raise_fences(self._installation, self._redis.url)
        produce_keyed(self._kafka.bootstrap_servers, "articles", values_of(storm(10)))

    def the_index_is_lost(self) -> None:
        with Redis.from_url(self._redis.url) as client:
            client.flushall()
            produce_keyed(self._kafka.bootstrap_servers, "articles", values_of(a_corpus(6, 10)))
            servers.wait_until(lambda: client.keys("*}fingerprint"), what="an index that is begun anew")

    def the_index_is_rebuilt(self) -> None:
        assert self.daemon.stop() == 0
        self.daemon = self._new_daemon(dead_letter_limit="none", **{"service.on_index_lost": "rebuild"})
        self._start_and_be_seen()
        self.daemon.wait_ready()
        with Redis.from_url(self._redis.url) as client:
            client.flushall()
        produce_keyed(self._kafka.bootstrap_servers, "articles", values_of(a_corpus(7, 10)))
        self.daemon.wait_event("index_rebuilt")


def raise_fences(installation: Installation, redis_url: str) -> None:
    """Leave fences as a consumer group would that has lived for long and is deleted since."""
    settings = Settings.load(installation.config, {"redis.url": redis_url}, {})
    with closing(connect_backend(settings)) as backend:
        store = backend.index("articles")
        for number in range(PARTITIONS):
            partition = Partition(installation.topic, number)
            store.fence(partition, 1_000_000, 0, store.partition_states([partition])[partition].least_announced)


def test_every_query_of_the_dashboard_belongs_to_an_event():
    belonging = [shown for event in EVENTS.values() for shown in event]
    assert len(belonging) == len(set(belonging))
    assert set(belonging) == all_shown().keys()


def test_every_query_of_the_dashboard_follows_its_event(install_on, start_kafka, start_redis, watch):
    redis = start_redis(options={"maxmemory": str(64 * 1024 * 1024)})
    kafka = start_kafka()
    wall = Wall(watch.server)
    life = Life(install_on(kafka), kafka, redis, watch)
    events: dict[str, Callable[[], None]] = {
        "a daemon starts": life.start,
        "a second daemon joins, and leaves": life.a_second_joins,
        "documents come in": life.documents_come_in,
        "some of them are bad": life.some_are_bad,
        "Redis freezes while documents come in": life.redis_freezes,
        "Redis goes on": life.redis_goes_on,
        "Kafka freezes while documents come in": life.kafka_freezes,
        "a topic turns bad": life.a_topic_turns_bad,
        "the daemon is started again, and offsets are set back": life.offsets_are_set_back,
        "its committed offsets are deleted": life.offsets_are_deleted,
        "its topic is deleted and created again": life.its_topic_is_recreated,
        "the index is lost": life.the_index_is_lost,
        "the index is lost and rebuilt": life.the_index_is_rebuilt,
        "another generation writes to the index": life.another_generation_writes,
    }
    assert events.keys() == EVENTS.keys()
    assert not any(wall.shows(shown) for shown in all_shown())
    with life:
        for event, happens in events.items():
            wall.expect(event)
            with wall.looked_at():
                happens()
            # The memory of the store is looked at every 15 seconds only: later events need not wait for it.
            wall.wait_for(event, but=SLOW)
            life.settle(event)
        for event in EVENTS:
            wall.wait_for(event)
        names = set(watch.server.ask("label/__name__/values"))
        for query in all_shown().values():
            assert metrics_of(query) <= {re.sub(r"_bucket$", "", name) for name in names}


class Scene:
    """A daemon that Prometheus looks at under a job of its own.

    Args:
        installation: Its topics and settings.
        watch: Prometheus.
        job: Name of the job.
        settings: Further settings of the daemon.
    """

    def __init__(self, installation: Installation, watch: Watch, job: str, **settings: object) -> None:
        self._installation, self._watch, self._job = installation, watch, job
        self.daemon = installation.daemon(job, **settings)

    def __enter__(self) -> Self:
        self.daemon.start()
        self._watch.look_at(self._job, self.daemon.wait_event("started")["metrics_port"])
        ready = f'streamdedup_ready{{job="{self._job}"}}'
        servers.wait_until(lambda: self._watch.server.values(ready), DEADLINE_S, "a first look at the daemon")
        servers.wait_until(lambda: self._watch.server.values(f"{ready} == 1"), DEADLINE_S, "a daemon that is ready")
        return self

    def __exit__(self, *_error: object) -> None:
        self._watch.look_at(self._job)
        self.daemon.__exit__()

    def send(self, records, **fields) -> None:
        produce_keyed(self._installation.kafka, self._installation.topic, records, **fields)

    def quiet(self, *alerts: str) -> None:
        """Check that alerts do not fire, as their rules were evaluated on the daemon as it is now.

        On a busy machine a look may fail, and an alert fires until the next one.
        """
        looked = f'timestamp(streamdedup_ready{{job="{self._job}"}})'
        (before,) = servers.wait_until(lambda: self._watch.server.values(looked).values(), what="a first look")

        def last() -> float:
            return max(self._watch.server.values(looked).values(), default=0)

        servers.wait_until(lambda: last() > before + 2, what="further looks")
        what = f"an end of {', '.join(alerts)}"
        servers.wait_until(lambda: not self._watch.server.firing(self._job) & set(alerts), SEEN_S, what)

    def new_start_times(self, known: set[float]) -> set[float]:
        """Wait until Prometheus has seen the daemon with a start time that is not known; return this time."""
        query = f'process_start_time_seconds{{job="{self._job}"}}'
        return servers.wait_until(
            lambda: self.daemon.alive_or_fail() and set(self._watch.server.values(query).values()) - known,
            SEEN_S,
            "another start time",
        )

    def fires(self, *alerts: str, timeout_s: float = SEEN_S) -> None:
        """Wait until all of these have been seen to fire."""
        seen: set[str] = set()

        def all_seen() -> bool:
            seen.update(self._watch.server.firing(self._job))
            return seen >= set(alerts)

        try:
            servers.wait_until(all_seen, timeout_s, "alerts")
        except TimeoutError:
            pytest.fail(f"{set(alerts) - seen} did not fire; {seen} did", pytrace=False)


def words(count: int, first: int) -> list[tuple[str, str]]:
    """Return documents that resemble no other."""
    return [(f"plain-{i}", " ".join(f"w{i}x{at}" for at in range(12))) for i in range(first, first + count)]


@pytest.mark.long
class TestAlerts:
    def test_of_a_store_that_fills_up_freezes_or_is_away(self, install, watch, start_redis):
        limit = 32 * 1024 * 1024
        redis = start_redis(options={"maxmemory": str(limit)})
        installation = install(PARTITIONS)
        patient = {"redis.url": redis.url, "redis.timeout": "1m"}
        with (
            Scene(installation, watch, "store", **{"redis.url": redis.url}) as scene,
            Scene(installation, watch, "stuck", **patient) as stuck,
        ):
            scene.quiet("StreamdedupStoreNearlyFull")
            stuck.quiet("StreamdedupLoopStuck")
            with Redis.from_url(redis.url) as client:
                while client.info("memory")["used_memory"] < 0.88 * limit:
                    client.append("ballast", bytes(256 * 1024))
            scene.fires("StreamdedupStoreNearlyFull")
            pause(redis)
            scene.send(values_of(words(100, 0)))
            stuck.fires("StreamdedupLoopStuck")

    def test_of_a_kafka_that_freezes_again_and_again_and_is_killed(self, install_on, start_kafka, watch):
        kafka = start_kafka()
        (broker,) = kafka.brokers
        # One record a batch, so that something is always under way; and back in its group at once.
        brief = {"kafka.batch_records": 1, "kafka.group_instance_id": "one", "kafka.transaction_timeout": "3s"}
        with Scene(install_on(kafka), watch, "kafka", **brief) as scene:
            scene.send(values_of(words(1000, 0)))
            scene.quiet("StreamdedupClientsRebuilt", "StreamdedupKafkaAway")
            for first in range(1000, 5000, 1000):
                # New documents for each freeze, so that a batch is under way.
                with scene.daemon.growing("streamdedup_records_total"):
                    scene.send(values_of(words(1000, first)))
                with scene.daemon.growing("streamdedup_rebuilds_total"):
                    pause(broker)
                resume(broker)
            scene.fires("StreamdedupClientsRebuilt")
            broker.kill()
            scene.fires("StreamdedupKafkaAway")

    def test_of_a_daemon_that_is_killed_again_and_again(self, install, watch):
        (port,) = free_ports()
        with Scene(install(1), watch, "streamdedup", **{"service.metrics_port": port}) as scene:
            scene.quiet("StreamdedupDown", "StreamdedupRestarts")
            times = scene.new_start_times(set())
            scene.daemon.kill()
            scene.fires("StreamdedupDown")
            for _ in range(3):
                scene.daemon.kill()
                scene.daemon.start()
                times |= scene.new_start_times(times)
            scene.fires("StreamdedupRestarts")

    def test_of_a_lag_that_grows(self, install, watch):
        with Scene(install(PARTITIONS), watch, "lag", **{"kafka.batch_records": 1}) as scene:
            scene.send(values_of(words(20, 0)))
            scene.quiet("StreamdedupLagGrows")
            for first in range(20, 12_020, 400):
                scene.send(values_of(words(400, first)))
                if "StreamdedupLagGrows" in watch.server.firing("lag"):
                    break
            scene.fires("StreamdedupLagGrows")


def test_every_alert_is_brought_about():
    rules = yaml.safe_load(RULES.read_text(encoding="utf-8"))
    alerts = {rule["alert"] for group in rules["groups"] for rule in group["rules"] if "alert" in rule}
    fired = re.findall(r"\.fires\(([^)]*)\)", Path(__file__).read_text(encoding="utf-8"))
    named = re.findall(r"Streamdedup\w+", " ".join(fired))
    assert {*named, *itertools.chain.from_iterable(ALERTS.values())} == alerts
