"""Redis flushed, and put back from an older copy, under each policy; and ``streamdedup index rebuild``."""

import pytest

from streamdedup.wire import decode_alert
from tests.daemons import PATIENT, wait_no_members

TEXTS = [
    f"text number {at} of a corpus in which every text comes twice and has words of its own: {at * 7}"
    for at in range(9)
]
FIRST = [(f"a{at}", text) for at, text in enumerate(TEXTS)]
SECOND = [(f"b{at}", text) for at, text in enumerate(TEXTS[:5])]
#: What comes when the index is back: twins of both, a document sent again, and one that got another's text. Its former
#: text has no twin here: whether the two would meet depends on the order in which the partitions are read.
THIRD = [*((f"c{at}", text) for at, text in enumerate(TEXTS) if at != 1), FIRST[0], ("b1", TEXTS[8])]
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
