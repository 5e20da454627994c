"""``streamdedup index prepare``: new parameters without a pause, under a stream of documents."""

import random
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager

import pytest
from kafka import KafkaConsumer
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor

from tests import servers
from tests.daemons import PATIENT, Daemon, Installation, wait_no_members

pytestmark = pytest.mark.long

WORDS = [f"word{at}" for at in range(3_000)]


class Stream:
    """Texts of 30 words, each of which comes twice, 2 to 60 documents apart, sent in the background."""

    def __init__(self, installation: Installation, seed: int = 1) -> None:
        self._installation = installation
        self._random = random.Random(seed)
        self._stopped = threading.Event()
        self._waiting: list[tuple[int, str, str]] = []
        self._count = 0
        #: Expected pairs.
        self.pairs: set[tuple[str, str]] = set()

    def batch(self, count: int) -> list[tuple[str, str]]:
        """Return the next documents (id, text)."""
        documents = []
        for _ in range(count):
            self._count += 1
            number = f"{self._count:06d}"
            if self._waiting and self._waiting[0][0] <= self._count:
                _, first, text = self._waiting.pop(0)
                self.pairs.add((first, number))
            else:
                text = " ".join(self._random.choices(WORDS, k=30))
                self._waiting.append((self._count + self._random.randint(2, 60), number, text))
                self._waiting.sort()
            documents.append((number, text))
        return documents

    @contextmanager
    def flowing(self):
        """Send documents until the end of the context."""

        def send() -> None:
            while not self._stopped.is_set():
                self._installation.send(self.batch(20))
                self._stopped.wait(0.1)

        sender = threading.Thread(target=send)
        sender.start()
        try:
            yield
        finally:
            self._stopped.set()
            sender.join()

    def finish(self) -> int:
        """Send the second one of each pair; return the number of all documents."""
        documents = []
        for _, first, text in self._waiting:
            self._count += 1
            self.pairs.add((first, f"{self._count:06d}"))
            documents.append((f"{self._count:06d}", text))
        self._waiting.clear()
        self._installation.send(documents)
        return self._count


@pytest.fixture
def installation(install):
    return install(2, threshold=0.9)


#: Thresholds, shingles, bands and seed change.
CHANGES = {
    "redis.key_prefix": "next",
    "profiles.articles.threshold": "0.7",
    "profiles.articles.recall_from": "0.7",
    "profiles.articles.shingle_size": "3",
    "profiles.articles.seed": "7",
}
#: The same as options.
CHANGE_OPTIONS = [word for item in CHANGES.items() for word in ("--set", "=".join(item))]


def test_parameters_change_without_a_pair_lost_or_doubled_while_documents_flow(installation, index):
    stream = Stream(installation)
    installation.send(stream.batch(400))
    with stream.flowing():
        with installation.daemon("old", **PATIENT) as old:
            installation.wait_committed(400)
            prepared = index("prepare", "--config", installation.config, *CHANGE_OPTIONS)
            assert prepared.returncode == 0, prepared.stderr
            assert "Now stop the daemons of the group" in prepared.stdout
            with installation.daemon("new", **PATIENT, **CHANGES) as new:
                waiting = new.wait_event("waiting")
                while "have another index, by their redis.key_prefix" not in waiting["reason"]:
                    waiting = new.wait_event("waiting")
                assert waiting["what"] == "the group"
                assert "streamdedup-" in waiting["reason"]
                assert new.get("/readyz") == (503, "waiting for the group\n")
                assert old.stop() == 0
                new.wait_ready()
                (begun,) = new.events("index_rebuild_begun")
                assert begun["gap"]
                assert new.events("index_rebuilt")[-1]["kind"] == "switch"
                assert 'index_rebuilds_total{kind="switch",profile="articles"} 1.0' in new.get("/metrics")[1]
                assert new.metric("streamdedup_index_lost_timestamp_seconds") == 0
                assert new.stop() == 0
        wait_no_members(installation.kafka, installation.group)
    with installation.running("last", **PATIENT, **CHANGES):
        installation.wait_committed(stream.finish())
        # The old index stays until it is dropped, which leaves the new one and its daemons alone.
        refused = index("drop", "--yes", "--config", installation.config, *CHANGE_OPTIONS)
        assert "are running" in refused.stderr
        assert index("drop", "--yes", "--config", installation.config).returncode == 0
        running = index("prepare", "--config", installation.config, *CHANGE_OPTIONS)
        assert "redis.key_prefix: daemons use the indexes of this prefix" in running.stderr
    seen = installation.pairs()
    assert sorted(stream.pairs) == seen
    assert sorted(set(seen)) == seen
    status = index("status", "--config", installation.config, *CHANGE_OPTIONS)
    assert "fits the settings" in status.stdout


@contextmanager
def a_member(installation: Installation, client_id: str):
    """Keep a member with this client id in the group until the end of the context."""
    ended = threading.Event()
    consumer = KafkaConsumer(
        installation.topic,
        bootstrap_servers=installation.kafka.split(","),
        group_id=installation.group,
        client_id=client_id,
        enable_auto_commit=False,
        partition_assignment_strategy=[CooperativeStickyAssignor],
    )

    def poll() -> None:
        while not ended.is_set():
            consumer.poll(100)

    with closing(consumer), ThreadPoolExecutor(1) as pool:
        # A member that joins without knowing the topic joins twice, and the client may forget the second time (T15).
        servers.wait_until(lambda: consumer.partitions_for_topic(installation.topic), what="metadata")
        polling = pool.submit(poll)
        try:
            servers.wait_until(lambda: consumer.assignment() or polling.done(), what="the partitions of the member")
            yield
        finally:
            ended.set()
        polling.result()


def test_a_member_that_names_no_index_is_waited_for_by_daemons_and_hinders_no_preparation(installation, index):
    stream = Stream(installation)
    installation.send(stream.batch(40))
    installation.run_until_committed(40)
    wait_no_members(installation.kafka, installation.group)
    with ExitStack() as membership:
        membership.enter_context(a_member(installation, "streamdedup"))
        prepared = index("prepare", "--config", installation.config, *CHANGE_OPTIONS)
        assert prepared.returncode == 0, prepared.stderr
        refused = index("drop", "--yes", "--config", installation.config, *CHANGE_OPTIONS)
        assert "are running: streamdedup at" in refused.stderr
        with installation.daemon("new", **PATIENT, **CHANGES) as new:
            waiting = new.wait_event("waiting")
            while "names none: streamdedup at" not in waiting["reason"]:
                waiting = new.wait_event("waiting")
            membership.close()
            new.wait_ready()
            assert not new.events("index_rebuild_begun")
            installation.wait_committed(stream.finish())
            assert new.stop() == 0
    assert installation.pairs() == sorted(stream.pairs)


def test_daemons_with_static_memberships_switch_without_waiting_for_the_sessions_of_those_that_have_stopped(
    installation, index
):
    stream = Stream(installation)
    patient = {**PATIENT, "kafka.session_timeout": "300s"}  # longer than the test waits for anything

    def static(name: str, **settings: str) -> Daemon:
        membership = {"kafka.instance_id": name, "kafka.group_instance_id": f"member-{name}"}
        return installation.daemon(f"{name}-{len(settings)}", **patient, **membership, **settings)

    with static("a") as a, static("b") as b:
        installation.send(stream.batch(100))
        installation.wait_committed(100)
        b.wait_ready()
        prepared = index("prepare", "--config", installation.config, *CHANGE_OPTIONS)
        assert prepared.returncode == 0, prepared.stderr
        assert [a.stop(), b.stop()] == [0, 0]
    with static("a", **CHANGES) as a, static("b", **CHANGES) as b:
        count = stream.finish()
        installation.wait_committed(count)
        a.wait_ready()
        b.wait_ready()
        assert [a.stop(), b.stop()] == [0, 0]
    assert installation.pairs() == sorted(stream.pairs)


def test_an_index_is_prepared_beside_another_one_only(installation, index):
    config = ("--config", installation.config)
    nothing = index("prepare", *config)
    assert nothing.returncode == 2
    assert "has no committed offsets to prepare for" in nothing.stderr
    stream = Stream(installation)
    installation.send(stream.batch(40))
    installation.run_until_committed(40)
    waits = index("prepare", *config, "--set", "service.on_index_lost=continue")
    assert waits.returncode == 2
    assert 'service.on_index_lost: must be "rebuild"' in waits.stderr
    changed = {"profiles.articles.threshold": "0.7", "profiles.articles.recall_from": "0.7"}
    changes = [word for item in changed.items() for word in ("--set", "=".join(item))]
    refused = index("prepare", *config, *changes)
    assert refused.returncode == 2
    assert re.search(
        r"redis\.key_prefix: there is an index of articles with other parameters .*other prefix", refused.stderr
    )
    with installation.daemon(**changed) as daemon:
        assert daemon.wait() == 78
        assert "streamdedup index rebuild" in daemon.log.read_text()
        assert "streamdedup index prepare" in daemon.log.read_text()
    wait_no_members(installation.kafka, installation.group)
    rebuilt = index("rebuild", "--yes", *config, *changes)
    assert rebuilt.returncode == 0, rebuilt.stderr
    with installation.daemon() as daemon:
        assert daemon.wait() == 78
        assert re.search(r"the last one took \d+\.\d s", daemon.log.read_text())
    with installation.running(**changed):
        installation.wait_committed(stream.finish())
    assert installation.pairs() == sorted(stream.pairs)
