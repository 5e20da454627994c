"""Redis flushed, and put back from an older copy, under each policy; and ``streamdedup index rebuild``."""

import contextlib
import re
import time

import pytest
from kafka.admin import ConfigResource, ConfigResourceType

from streamdedup.wire import decode_alert
from tests import servers
from tests.daemons import PATIENT, produce_keyed, values_of, wait_no_members
from tests.servers import has_open_transaction, wait_until

TEXTS = [
    f"text number {at} of a corpus in which every text comes twice and has words of its own: {at * 7}"
    for at in range(9)
]
FIRST = [(f"a{at}", text) for at, text in enumerate(TEXTS)]
SECOND = [(f"b{at}", text) for at, text in enumerate(TEXTS[:5])]
#: What comes when the index is back: twins of both, a document sent again, and one that got another's text. Its former
#: text has no twin here: whether the two would meet depends on the order in which the partitions are read.
THIRD = [*((f"c{at}", text) for at, text in enumerate(TEXTS) if at != 1), FIRST[0], ("b1", TEXTS[8])]
DAY_MS = 86_400_000
PAIRS_OF_TWO = sorted((f"a{at}", f"b{at}") for at in range(5))


def feed(installation, *parts):
    """Send documents and wait until a daemon has committed them."""
    for part in parts:
        before = installation.committed_count()
        installation.send(part)
        installation.wait_committed(before + len(part))


def alerts(installation):
    """Alerts without the moment and the names that the installation gave to its topics."""
    found = []
    for record in installation.published(installation.duplicates):
        alert = decode_alert(record.value)
        matches = sorted((m.id, m.digest, m.position[1:], m.pair) for m in alert.matches)
        found.append((alert.document.id, alert.document.digest, alert.document.position[1:], alert.cluster_id, matches))
    return sorted(found)


def saved(redis_client):
    """A copy of everything in Redis."""
    keys = sorted(redis_client.scan_iter(count=1000))
    return {key: (redis_client.dump(key), max(0, redis_client.pttl(key))) for key in keys}


def put_back(redis_client, copied):
    with redis_client.pipeline(transaction=True) as restoring:  # as a failover does: no daemon sees a part of the keys
        restoring.flushdb()
        for key, (value, lifetime_ms) in copied.items():
            restoring.restore(key, lifetime_ms, value)
        restoring.execute()


def lose(redis_client, how, copied):
    if how == "flushed":
        redis_client.flushdb()
    else:
        put_back(redis_client, copied)


def never_lost(installation):
    with installation.running():
        feed(installation, FIRST, SECOND, THIRD)
    return alerts(installation)


@pytest.mark.parametrize("how", ["flushed", pytest.param("gone back", marks=pytest.mark.long)])
def test_an_index_built_anew_by_the_command_is_like_one_that_was_never_lost(install, redis_client, index, how):
    # Which of two documents is alerted, and its cluster, depend on the order in which partitions are read.
    expected = never_lost(install(1, threshold=0.9))
    installation = install(1, threshold=0.9)
    config = ("--config", installation.config)
    with installation.running(**PATIENT):
        feed(installation, FIRST)
        copied = saved(redis_client)
        feed(installation, SECOND)
        refused = index("rebuild", "--no-wait", *config)
        assert refused.returncode == 1
        assert f"daemons of the group {installation.group} are running" in refused.stderr
    lose(redis_client, how, copied)
    # What is in flight when the index goes: sent, and not committed.
    installation.send(THIRD)
    with installation.daemon(**{"service.on_index_lost": "fail"}) as daemon:
        assert daemon.wait() == 78
        assert "streamdedup index rebuild" in daemon.log.read_text()
    assert redis_client.dbsize() == (0 if how == "flushed" else len(copied))
    wait_no_members(installation.kafka, installation.group)
    # Nothing is deleted, so nothing is asked.
    done = index("rebuild", *config)
    assert done.returncode == 0, done.stderr
    if how == "flushed":
        assert done.stdout == f"articles: rebuilt from {len(FIRST + SECOND)} records\n"
    else:
        # The batch that was last announced when the copy was made is read again too.
        count = int(done.stdout.removeprefix("articles: complete again from ").split()[0])
        assert len(SECOND) <= count < len(FIRST + SECOND)
    assert done.stderr == ""
    assert installation.pairs() == PAIRS_OF_TWO
    installation.run_until_committed(len(FIRST + SECOND + THIRD))
    assert alerts(installation) == expected


@pytest.mark.long
def test_a_rebuild_right_after_a_static_member_has_ended_waits_for_its_session_and_names_it(
    install, redis_client, index
):
    installation = install(2, threshold=0.9)
    config = ("--config", installation.config)
    # Longer than a busy machine needs to end the daemon and to ask twice.
    session = ("--set", "kafka.session_timeout=60s")
    with installation.running(**{"kafka.group_instance_id": "member-a", "kafka.session_timeout": "60s"}):
        feed(installation, FIRST)
    redis_client.flushdb()
    refused = index("rebuild", "--no-wait", *config)
    assert refused.returncode == 1
    assert re.search(r"are running: streamdedup-\S+, group_instance_id member-a, at /127.0.0.1", refused.stderr)
    done = index("rebuild", *config, *session)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"articles: rebuilt from {len(FIRST)} records\n"
    assert "group_instance_id member-a, at /127.0.0.1; waiting at most 75 s" in done.stderr


@pytest.mark.long
def test_a_rebuild_in_a_backlog_of_long_ago_recovers_what_the_backlog_is_compared_with(install, redis_client, index):
    installation = install(2, threshold=0.9)
    with contextlib.closing(servers.admin_client(installation.kafka)) as admin:
        # Records of long ago must outlive the broker's default retention.
        keep = ConfigResource(ConfigResourceType.TOPIC, installation.topic, {"retention.ms": "-1"})
        admin.alter_configs([keep])
    days_ago = (time.time_ns() // 1_000_000) - 200 * DAY_MS
    installation.send(FIRST, timestamp_ms=days_ago)
    installation.run_until_committed(len(FIRST))
    redis_client.flushdb()
    installation.send(SECOND, timestamp_ms=days_ago + DAY_MS)
    done = index("rebuild", "--config", installation.config)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"articles: rebuilt from {len(FIRST)} records\n"
    installation.run_until_committed(len(FIRST + SECOND))
    assert installation.pairs() == PAIRS_OF_TWO


@pytest.mark.long
def test_keys_put_back_under_running_daemons_cost_no_pair_also_with_a_daemon_that_was_idle(install, redis_client):
    installation = install(2, threshold=0.9)
    with installation.all_running(("a", "b"), **PATIENT) as daemons:
        for daemon in daemons:
            daemon.wait_event("partitions_assigned")
        # Each batch stores the commit of the batch before, and a gap needs a known commit.
        for number in range(4):
            text = f"a first text, number {number} of four: {number * 11}"
            installation.send([(f"s{number}", text)], partition=number % 2)
            installation.wait_committed(number + 1)
        copied, copied_at_s = saved(redis_client), time.monotonic()
        installation.send([(f"x{at}", text) for at, text in enumerate(TEXTS[2:7])], partition=0)
        installation.wait_committed(9)
        wait_until(lambda: time.monotonic() > copied_at_s + 10, what="an age of ten seconds of the copy")
        put_back(redis_client, copied)
        installation.send([(f"y{at}", text) for at, text in enumerate(TEXTS[2:7])], partition=1)
        installation.wait_committed(14)
        assert any(event["gap"] for daemon in daemons for event in daemon.events("index_rebuild_begun"))
    assert installation.pairs() == sorted((f"x{at}", f"y{at}") for at in range(5))


BASE = " ".join(f"word{at}" for at in range(60))
ELSEWHERE = " ".join(f"mark{at}" for at in range(60))


@pytest.mark.long
def test_alerts_behind_an_open_transaction_are_known_to_a_rebuilt_index(install, redis_client):
    """Daemon "one" dies within its transaction; "two" publishes the pair A-B behind it before the index is lost."""
    installation = install(2, threshold=0.9)
    # The transaction stays open for 45 s, or until "one" is back. Both keep their partitions.
    times = {"kafka.session_timeout": "180s", "kafka.transaction_timeout": "45s"}

    def member(name):
        return installation.daemon(
            name, **{"service.on_index_lost": "rebuild", "kafka.group_instance_id": name, **times}
        )

    def send(partition, document_id, text):
        produce_keyed(installation.kafka, installation.topic, values_of([(document_id, text)]), partition=partition)

    with member("two") as two, member("one") as one:
        for daemon in (one, two):
            daemon.wait_ready()
        wait_until(
            lambda: all(daemon.metric("streamdedup_partitions_assigned") == 1 for daemon in (one, two)),
            180,
            "a partition for each",
        )
        send(0, "X", f"{BASE} before")
        installation.wait_committed(1)
        one.kill()
        one.start(crash_at="after_flush")
        one.wait_ready()
        (partition,) = one.events("at_work")[-1]["partitions"]
        number = int(partition.rpartition(":")[2])
        # The pair B-X makes the transaction write an alert.
        send(number, "B", BASE)
        one.wait()
        send(1 - number, "A", f"{BASE} tail")
        installation.wait_committed(2)
        assert has_open_transaction(installation.kafka, [installation.duplicates])
        redis_client.flushdb()
        send(1 - number, "other", ELSEWHERE)
        two.wait_event("index_rebuild_begun")
        one.start()
        installation.wait_committed(4)
        assert one.events("index_rebuilt") or two.events("index_rebuilt")
        assert (one.stop(), two.stop()) == (0, 0)
    assert installation.pairs() == [("A", "B"), ("A", "X"), ("B", "X")]
