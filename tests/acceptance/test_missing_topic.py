"""An input topic that is deleted, on a real Kafka: reported, and read again when it is created."""

import contextlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import servers
from tests.daemons import DEADLINE_S, PATIENT, produce_keyed, values_of
from tests.made_corpus import pairs_of, twins

#: Pairs in each topic and at each time, and partitions of each topic.
PAIRS, PARTITIONS = 20, 2
#: Longest time from the deletion of a topic to its report, in seconds.
REPORT_S = 30.0
#: Exit code of an error that an operator must solve.
EXIT_FATAL = 78

pytestmark = pytest.mark.long


class Topics:
    """An installation with two input topics, and commands on it.

    Args:
        installation: The installation; its topic exists.
        other: Name of the second topic.
    """

    def __init__(self, installation, other: str) -> None:
        self.installation = installation
        self.kafka, self.topic, self.other = installation.kafka, installation.topic, other
        self.names = f"profiles.articles.topics={self.topic},{other}"

    def daemon(self, **settings):
        key, _, value = self.names.partition("=")
        return self.installation.daemon(**{key: value, **PATIENT, **settings})

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        options = ("--config", str(self.installation.config), "--set", self.names)
        command = [sys.executable, "-m", "streamdedup", *words, *options]
        return subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)

    def delete(self, *topics: str) -> None:
        with contextlib.closing(servers.admin_client(self.kafka)) as admin:
            admin.delete_topics(list(topics))
            servers.wait_until(lambda: not {*topics} & {*admin.list_topics()}, what="the end of the topics")

    def create(self, *topics: str) -> None:
        servers.create_topics(self.kafka, topics, PARTITIONS)

    def send(self, topic: str, name: str) -> None:
        produce_keyed(self.kafka, topic, values_of(twins(name, PAIRS)))

    def wait_pairs(self, *names: str) -> None:
        expected = sorted(pair for name in names for pair in pairs_of(name, PAIRS))
        servers.wait_until(lambda: len(self.installation.pairs()) >= len(expected), DEADLINE_S, f"pairs of {names}")
        assert self.installation.pairs() == expected


@pytest.fixture
def topics(install):
    return Topics(install(PARTITIONS), servers.fresh_name("reviews"))


def reported(daemon, topic: str, timeout_s: float = DEADLINE_S) -> None:
    """Wait until a daemon reports that a topic does not exist, and check that it is alive."""
    text = f"no such topic: {topic}\n"
    servers.wait_until(lambda: daemon.get("/readyz") == (503, text), timeout_s, f"a report of {topic}")
    assert daemon.get("/livez") == (200, "ok\n")
    assert daemon.metric("streamdedup_topic_missing") == 1
    assert daemon.metric("streamdedup_ready") == 0


def pasted(command: str) -> str:
    """Run a command line in a shell, in another folder than the daemon; return its output."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        command, shell=True, capture_output=True, text=True, cwd="/", env=os.environ | {"PATH": path}, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_topic_that_is_deleted_is_reported_and_read_again_when_it_is_created(topics):
    topics.create(topics.other)
    with topics.daemon() as daemon:
        daemon.wait_ready()
        topics.send(topics.topic, "first")
        topics.send(topics.other, "second")
        servers.wait_until(lambda: topics.installation.committed_count(topics.topic, topics.other) == 4 * PAIRS)
        topics.delete(topics.other)
        reported(daemon, topics.other, REPORT_S)
        (event,) = daemon.events("topic_missing")
        assert (event["topic"], event["level"]) == (topics.other, "warning")
        assert event["message"].startswith(f"no such topic: {topics.other}; create with: streamdedup topics create ")
        status = topics.command("index", "status")
        assert f"  no such topic: {topics.other}; create with: streamdedup topics create --config" in status.stdout
        (profile,) = json.loads(topics.command("index", "status", "--json").stdout)["profiles"]
        assert profile["missing_topics"] == [topics.other]
        # It goes on with the other topic.
        topics.send(topics.topic, "third")
        topics.wait_pairs("first", "second", "third")
        reported(daemon, topics.other)
        # It goes on by itself: the same documents again are no news, others are.
        topics.create(topics.other)
        topics.send(topics.other, "second")
        topics.send(topics.other, "fourth")
        topics.wait_pairs("first", "second", "third", "fourth")
        daemon.wait_ready()
        assert daemon.metric("streamdedup_topics_recreated_total") == 1
        assert daemon.metric("streamdedup_documents_silent_total") == 0
        assert daemon.metric("streamdedup_topic_missing") == 0
        assert daemon.metric("streamdedup_broker_errors_total") == 0
        assert daemon.stop() == 0


def test_a_deletion_in_the_middle_of_a_batch_harms_no_other_topic(topics):
    topics.create(topics.other)
    with topics.daemon(**{"kafka.transaction_timeout": "9s"}) as daemon:
        daemon.wait_ready()
        with daemon.growing("streamdedup_records_total"):
            produce_keyed(topics.kafka, topics.other, values_of(twins("other", 20 * PAIRS)))
        topics.delete(topics.other)
        servers.wait_until(lambda: topics.other in daemon.get("/readyz")[1], DEADLINE_S, "a report of the topic")
        topics.send(topics.topic, "first")
        wanted = set(pairs_of("first", PAIRS))
        servers.wait_until(lambda: wanted <= set(topics.installation.pairs()), DEADLINE_S, "pairs of the other topic")
        reported(daemon, topics.other)
        assert daemon.stop() == 0
    published = topics.installation.pairs()
    assert len(published) == len(set(published))


def test_a_daemon_starts_without_one_of_its_topics_and_reads_it_once_it_exists(topics):
    checked = topics.command("check")
    assert checked.returncode == 0, checked.stdout
    assert f"warning  no such topic: {topics.other}; the daemon reads its other topics" in checked.stdout
    with topics.daemon() as daemon:
        reported(daemon, topics.other)
        (warning,) = [event for event in daemon.events("topic_warning") if topics.other in event["reason"]]
        topics.send(topics.topic, "first")
        topics.wait_pairs("first")
        created = pasted(re.search(r"create with: (streamdedup .*)", warning["reason"])[1])
        assert f"{topics.other}: created" in created
        topics.send(topics.other, "second")
        topics.wait_pairs("first", "second")
        daemon.wait_ready()
        assert daemon.metric("streamdedup_topics_recreated_total") == 0
        assert daemon.stop() == 0


def test_a_daemon_that_starts_without_any_of_its_topics_ends_and_names_the_command_that_creates_them(topics):
    topics.delete(topics.topic)
    with topics.daemon() as daemon:
        assert daemon.wait() == EXIT_FATAL
        reason = daemon.events("fatal")[0]["reason"]
        assert f"no such topic: {topics.topic}; create with: streamdedup topics create" in reason
        assert f"no such topic: {topics.other}; create with: streamdedup topics create" in reason
        pasted(re.search(r"create with: (streamdedup .*)", reason)[1])
        daemon.start()
        daemon.wait_ready()
        assert daemon.stop() == 0
