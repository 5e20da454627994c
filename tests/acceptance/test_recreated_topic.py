"""A topic that is deleted and created again, on a real Kafka: its documents are alerted, and each pair once."""

import contextlib
import json
import subprocess
import sys

import pytest

from tests import servers
from tests.daemons import DEADLINE_S, PATIENT, Installation, set_offsets
from tests.made_corpus import pairs_of, twins

#: Pairs of the first topic and of the next, and partitions of each.
BEFORE, AFTER, PARTITIONS = 100, 40, 2

pytestmark = pytest.mark.long


def recreate(installation: Installation) -> None:
    with contextlib.closing(servers.admin_client(installation.kafka)) as admin:
        admin.delete_topics([installation.topic])
        servers.wait_until(lambda: installation.topic not in admin.list_topics(), DEADLINE_S, "the end of the topic")
    servers.create_topics(installation.kafka, [installation.topic], PARTITIONS)


def states(installation: Installation) -> set[str | None]:
    """What ``index status`` says of the partitions."""
    command = [sys.executable, "-m", "streamdedup", "index", "status", "--config", str(installation.config), "--json"]
    found = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    return {row["state"] for row in found["profiles"][0]["partitions"]}


def everything_is_alerted_once(installation: Installation, again: int) -> None:
    """Wait until the next topic, which holds so many of the first one's pairs again, is done with."""
    expected = sorted([*pairs_of("old", BEFORE), *pairs_of("new", AFTER)])
    servers.wait_until(lambda: len(installation.pairs()) >= len(expected), 2 * DEADLINE_S, "all pairs")
    installation.wait_committed(2 * (again + AFTER))
    assert installation.pairs() == expected


@pytest.fixture
def at_work(install):
    """An installation whose daemon has alerted everything that the first topic held."""
    installation = install(PARTITIONS)
    with installation.daemon(**PATIENT) as daemon:
        daemon.wait_ready()
        installation.send(twins("old", BEFORE))
        installation.wait_committed(2 * BEFORE)
        assert installation.pairs() == sorted(pairs_of("old", BEFORE))
        yield installation, daemon


@pytest.mark.parametrize("offsets", ["deleted", "left"])
def test_a_stopped_daemon_finds_it_at_its_next_start(at_work, offsets):
    installation, daemon = at_work
    assert daemon.stop() == 0
    old_offsets = servers.committed_offsets(installation.kafka, installation.group)
    metadata = servers.committed_metadata(installation.kafka, installation.group)
    recreate(installation)
    if offsets == "left":
        # As a group coordinator leaves it that deletes the offsets of a deleted topic late.
        set_offsets(installation.kafka, installation.group, old_offsets, metadata)
    installation.send([*twins("old", BEFORE), *twins("new", AFTER)])
    assert states(installation) == {"recreated"}
    daemon.start()
    everything_is_alerted_once(installation, BEFORE)
    assert daemon.metric("streamdedup_topics_recreated_total") == 1
    assert daemon.metric("streamdedup_documents_silent_total") == 0
    assert [event["topic"] for event in daemon.events("topic_recreated")] == [installation.topic]
    assert daemon.stop() == 0
    assert states(installation) == {None}


@pytest.mark.parametrize("count", [0, BEFORE], ids=["shorter", "longer"])
def test_a_running_daemon_finds_it_by_itself(at_work, count):
    """A longer topic has a record where the consumer was, so that nothing but the id of the topic tells."""
    installation, daemon = at_work
    recreate(installation)
    installation.send([*twins("old", count), *twins("new", AFTER)])
    everything_is_alerted_once(installation, count)
    assert daemon.metric("streamdedup_topics_recreated_total") == 1
    assert daemon.metric("streamdedup_documents_silent_total") == 0
    assert len(daemon.events("topic_recreated")) == 1
    assert len(daemon.events("connected")) <= 3
    assert daemon.stop() == 0
