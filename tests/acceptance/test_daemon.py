"""The installed daemon over a real Kafka and a real Redis: its pairs are exactly those of a comparison of all pairs."""

import signal
import sys
from pathlib import Path

import pytest
from redis import Redis

from tests import servers
from tests.daemons import PATIENT, Daemon, Installation, produce_keyed, set_offsets, values_of
from tests.made_corpus import a_corpus, the_expected
from tests.support.processes import pause, resume


@pytest.mark.parametrize(
    ("daemons", "partitions", "batch_records"),
    [(1, 1, 500), (1, 4, 7), pytest.param(2, 3, 25, marks=pytest.mark.short)],
    ids=["one", "small-batches", "two"],
)
def test_the_pairs_alerted_are_exactly_those_of_the_reference(install, daemons, partitions, batch_records):
    installation = install(partitions, batch_records=batch_records)
    corpus = a_corpus(daemons * 100 + partitions, 450)
    with installation.all_running("abcd"[:daemons]):
        installation.send(corpus)
        installation.wait_committed(len(corpus))
    expected = the_expected(corpus)
    assert len(expected) > 50
    assert installation.pairs() == expected


@pytest.mark.short
def test_killed_in_the_middle_and_started_again_it_loses_and_doubles_nothing(install):
    # Batches so small that the documents last for seconds.
    installation = install(3, batch_records=5)
    corpus = a_corpus(7, 900)
    produce_keyed(
        installation.kafka,
        installation.topic,
        [*values_of(corpus), (b"bad", b"not json")],
        headers_of=lambda key: [("own", b"1"), ("traceparent", b"00-" + key), ("tracestate", b"a=" + key)],
    )
    # Each start waits for the end of the session before.
    settings = {"kafka.copy_headers": "tracestate,traceparent", "kafka.session_timeout": "2s"}
    with installation.running(**settings) as daemon:
        for committed in (60, 200, 400):
            installation.wait_committed(committed)
            daemon.kill()
            assert installation.committed_count() < len(corpus)
            daemon.start()
        installation.wait_committed(len(corpus) + 1)
    assert installation.pairs() == the_expected(corpus)
    for alert in installation.published(installation.duplicates):
        assert alert.headers == [("traceparent", b"00-" + alert.key), ("tracestate", b"a=" + alert.key)]
    (letter,) = installation.published(f"{installation.duplicates}.dlq")
    assert letter.headers[:3] == [("own", b"1"), ("traceparent", b"00-bad"), ("tracestate", b"a=bad")]


def test_while_the_group_awaits_the_end_of_a_session_the_other_daemon_is_not_ready(install):
    installation = install(2)

    def assigned_count(daemon: Daemon) -> float:
        return daemon.metric("streamdedup_partitions_assigned")

    with installation.all_running("abc", **{"kafka.session_timeout": "60s"}) as daemons:  # one is a spare
        servers.wait_until(lambda: sorted(map(assigned_count, daemons)) == [0, 1, 1], what="all partitions")
        _, other, killed = sorted(daemons, key=assigned_count)
        killed.kill()
        killed.start()
        wait_not_ready(other, "partitions")
        installation.send(a_corpus(26, 40))
        installation.wait_committed(40)
        for daemon in daemons:
            daemon.wait_ready()


def test_sigterm_under_load_ends_it_within_ten_seconds_and_the_next_run_goes_on(install, lift_stop_limit):
    installation = install(2, batch_records=10)
    corpus = a_corpus(9, 800)
    installation.send(corpus)
    with installation.running() as daemon:
        installation.wait_committed(30)
        assert daemon.stop() == 0
        lift_stop_limit()
        daemon.start()
        installation.wait_committed(len(corpus))
    assert installation.pairs() == the_expected(corpus)


@pytest.mark.short
def test_what_cannot_be_read_goes_to_the_dead_letters_and_nothing_disappears(install):
    installation = install(1)
    good = a_corpus(10, 30)
    records = [
        *values_of(good),
        (b"x1", b"not json"),
        (b"x2", b'{"id": "x2", "text": 5}'),
        (b"x3", b'{"id": "x3", "op": "append", "text": "more"}'),
        (b"x4", b'{"id": "x4", "text": ""}'),
        (b"x5", None),
    ]
    produce_keyed(installation.kafka, installation.topic, records)
    with installation.running() as daemon:
        installation.wait_committed(len(records))
        counts = {"records": len(records), "skipped": 1, "dead_letters": 3, "documents_deleted": 1}
        counts["documents_indexed"] = len(good)
        # The daemon counts a batch after its commit.
        servers.wait_until(
            lambda: {name: daemon.metric(f"streamdedup_{name}_total") for name in counts} == counts, what=f"{counts}"
        )
    letters = installation.published(f"{installation.duplicates}.dlq")
    codes = {letter.key: dict(letter.headers)["streamdedup.dlq.error.code"] for letter in letters}
    assert codes == {b"x1": b"not_json", b"x2": b"invalid_field", b"x3": b"unknown_document"}
    assert {letter.key: letter.value for letter in letters}[b"x1"] == b"not json"


def test_a_record_below_the_committed_offset_is_silent_when_offsets_are_set_back(install):
    installation = install(1)
    corpus = a_corpus(11, 90)
    installation.send(corpus)
    with installation.running() as daemon:
        installation.wait_committed(len(corpus))
        assert daemon.stop() == 0
        before = installation.pairs()
        set_offsets(installation.kafka, installation.group, {(installation.topic, 0): 10})
        daemon.start()
        installation.wait_committed(len(corpus))
    assert installation.pairs() == before == the_expected(corpus)


class TestServersAway:
    @pytest.mark.short
    def test_redis_away_at_run_is_waited_for_without_leaving_the_group(self, install, start_redis):
        redis = start_redis(options=servers.PERSISTENT)
        installation = install(2, batch_records=10)
        corpus = a_corpus(12, 600)
        # A time-out at Kafka would be another rebalance.
        with installation.running(**PATIENT, **{"redis.url": redis.url}) as daemon:
            installation.send(corpus[:300])
            daemon.wait_ready()
            installation.wait_committed(100)
            redis.kill()
            daemon.wait_event("waiting", what="the store")
            wait_not_ready(daemon, "the store")
            assert daemon.get("/livez")[0] == 200
            rebalances = daemon.metric("streamdedup_rebalances_total")
            installation.send(corpus[300:])
            redis.start()
            installation.wait_committed(len(corpus))
            # Joined anew once it was back: a neighbour's batch from before the outage is refused.
            assert daemon.metric("streamdedup_rebalances_total") == rebalances + 1
        assert installation.pairs() == the_expected(corpus)

    @pytest.mark.long
    def test_kafka_that_freezes_in_the_middle_of_a_batch_turns_readiness(self, install_on, start_kafka):
        kafka = start_kafka()
        installation = install_on(kafka)
        corpus = a_corpus(18, 200)
        trace = installation.folder / "trace"
        with HeldDaemon(installation, trace) as daemon:
            installation.send(corpus[:100])
            installation.wait_committed(100)
            daemon.wait_ready()
            # The step alone waits; the heartbeats of the client go on.
            aim = trace.with_suffix(".aim")
            aim.write_text("stall before_send_offsets")
            installation.send(corpus[100:])
            held = trace.with_suffix(".held")
            servers.wait_until(held.exists, what="the daemon to be about to commit")
            for broker in kafka.brokers:
                pause(broker)
            held.unlink()
            wait_not_ready(daemon, "Kafka")
            # The commit itself fails after half a minute, and has a line of its own.
            assert [event["what"] for event in daemon.events("waiting") if event["level"] == "warning"] == ["Kafka"]
            assert not daemon.events("clients_lost")
            assert (daemon.metric("streamdedup_ready"), daemon.get("/livez")[0]) == (0, 200)
            for broker in kafka.brokers:
                resume(broker)
            installation.wait_committed(len(corpus))
            daemon.wait_ready()
            assert daemon.stop() == 0
            assert "Traceback" not in daemon.log.read_text()
        assert installation.pairs() == the_expected(corpus)

    @pytest.mark.long
    def test_no_stop_in_good_order_logs_an_error(self, install_on, start_kafka, start_redis):
        kafka, redis = start_kafka(), start_redis()
        (broker,) = kafka.brokers
        installation = install_on(kafka)

        def stopped(daemon: Daemon) -> None:
            before = len(daemon.events())
            assert daemon.stop() == 0
            assert [event for event in daemon.events()[before:] if event["level"] in {"error", "critical"}] == []
            assert "Traceback" not in daemon.log.read_text()

        # A ping of a frozen Redis lasts for three time-outs, and the stop waits for it.
        with installation.daemon(**{"redis.url": redis.url, "redis.timeout": "1s"}) as daemon:
            daemon.wait_event("connected")
            stopped(daemon)  # while it joins the group
            installation.send(a_corpus(23, 400))
            daemon.start()
            servers.wait_until(lambda: daemon.metric("streamdedup_records_total"), what="work")
            stopped(daemon)  # in the middle of its work
            daemon.start()
            daemon.wait_ready()
            pause(redis)
            installation.send(a_corpus(24, 30))
            wait_not_ready(daemon, "the store")
            stopped(daemon)
            resume(redis)
            daemon.start()
            installation.wait_committed(430)
            broker.kill()
            wait_not_ready(daemon, "Kafka")
            stopped(daemon)
            kafka.start()
            daemon.start()
            daemon.wait_ready()
            with Redis.from_url(redis.url) as client:
                client.flushall()
            installation.send(a_corpus(25, 30))
            # Last, because the next start would wait for the end of the lease on the index.
            daemon.wait_event("index_rebuild_begun")
            stopped(daemon)

    def test_asked_to_stop_while_kafka_is_frozen_it_ends_in_time_and_nothing_is_lost(
        self, install_on, start_kafka, lift_stop_limit
    ):
        kafka = start_kafka()
        installation = install_on(kafka)
        corpus = a_corpus(16, 600)
        with installation.running() as daemon:
            installation.send(corpus)
            installation.wait_committed(50)
            for broker in kafka.brokers:
                pause(broker)
            assert daemon.stop() in (0, 75)
            for broker in kafka.brokers:
                resume(broker)
            lift_stop_limit()
            daemon.start()
            installation.wait_committed(len(corpus))
        assert installation.pairs() == the_expected(corpus)


class HeldDaemon(Daemon):
    """A daemon with the default time limits whose steps can be held: see ``tests.chaos.watched_daemon``."""

    def __init__(self, installation: Installation, trace: Path) -> None:
        super().__init__(installation, "a", {"kafka.transaction_timeout": "30s"})
        self._trace = trace

    def program(self) -> list[str]:
        return [sys.executable, "-m", "tests.chaos.watched_daemon", str(self._trace), "--"]


def wait_not_ready(daemon, awaited: str) -> None:
    """Wait until the daemon says that it waits for a server."""
    said = 503, f"waiting for {awaited}\n"
    servers.wait_until(lambda: daemon.get("/readyz") == said, what=f"the daemon to notice that {awaited} is away")


def test_a_committed_offset_that_the_topic_does_not_reach_hides_no_document(install):
    installation = install(1)
    corpus = a_corpus(1, 40)
    installation.send(corpus[:20])
    installation.run_until_committed(20)
    set_offsets(installation.kafka, installation.group, {(installation.topic, 0): 1000})
    installation.send(corpus[20:])
    with installation.running():
        servers.wait_until(lambda: installation.committed_count() == len(corpus), what="the last document")
    assert installation.pairs() == the_expected(corpus)


def test_metrics_and_health_are_served_and_loopback_only_by_default(install):
    installation = install(1)
    with installation.daemon() as daemon:
        daemon.wait_ready()
        assert daemon.get("/livez") == (200, "ok\n")
        assert daemon.get("/nothing")[0] == 404
        text = daemon.get("/metrics")[1]
        assert "streamdedup_build_info" in text
        assert "streamdedup_batch_seconds_bucket" in text
        daemon.signal(signal.SIGINT)
        assert daemon.wait() == 0
