"""A group that begins at the window: old records are skipped, also after a crash before its first commit."""

import contextlib
import signal
import time

import pytest
from kafka.admin import ConfigResource, ConfigResourceType

from tests import servers
from tests.made_corpus import a_corpus, the_expected

DAY_MS = 86_400_000
#: Documents older than the window, and documents within it.
OLD, YOUNG, PARTITIONS = a_corpus(31, 200), a_corpus(32, 200), 2
#: Skips what is older than 31 days. The session of the killed daemon need not be waited for long.
AT_WINDOW = {
    "kafka.auto_offset_reset": "window",
    "profiles.articles.retention": "30d",
    "profiles.articles.retention_slack": "1d",
    "kafka.session_timeout": "2s",
}

pytestmark = pytest.mark.long


@pytest.fixture
def installation(install):
    """An installation whose topic holds documents of a hundred days ago, then of twenty days ago and of today."""
    installation = install(PARTITIONS, batch_records=30)
    with contextlib.closing(servers.admin_client(installation.kafka)) as admin:
        # The broker's default retention would delete the old ones.
        keep = ConfigResource(ConfigResourceType.TOPIC, installation.topic, {"retention.ms": "-1"})
        admin.alter_configs([keep])
    half = len(YOUNG) // 2
    for documents, days in ((OLD, 100), (YOUNG[:half], 20), (YOUNG[half:], 0)):
        time_ms = time.time_ns() // 1_000_000 - days * DAY_MS
        named = [(f"{days}-{identity}" if days == 100 else identity, text) for identity, text in documents]
        installation.send(named, timestamp_ms=time_ms)
    return installation


@pytest.mark.parametrize("point", ["after_fence", "before_commit", "after_commit"])
def test_after_a_crash_the_pairs_of_the_window_are_alerted_once_and_no_older_record_is_read(installation, point):
    daemon = installation.daemon(**AT_WINDOW)
    with contextlib.ExitStack() as stack:
        stack.callback(daemon.__exit__, None, None, None)
        daemon.start(crash_at=point)
        assert daemon.wait() == -signal.SIGKILL, daemon.log.read_text()
        assert daemon.events("window_start")
        daemon.start()
        daemon.wait_ready()
        installation.wait_committed(len(OLD) + len(YOUNG))
        assert daemon.metric("streamdedup_records_total") <= len(YOUNG)
        assert daemon.stop() == 0
    assert installation.pairs() == the_expected(YOUNG)


def test_two_daemons_share_a_topic_from_the_window_on(installation):
    with installation.daemon("one", **AT_WINDOW) as one, installation.daemon("two", **AT_WINDOW) as two:
        one.wait_ready()
        two.wait_ready()
        installation.wait_committed(len(OLD) + len(YOUNG))
        assert (one.stop(), two.stop()) == (0, 0)
    assert installation.pairs() == the_expected(YOUNG)
