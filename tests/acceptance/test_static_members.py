"""Static membership: of two processes under one name the earlier, or one of both, is refused."""

import contextlib
import signal

import pytest

from tests import servers
from tests.made_corpus import a_corpus, the_expected

#: Documents, and partitions of their topic.
DOCUMENTS, PARTITIONS = 900, 4
#: Long enough for a process to be started anew, also on a busy machine.
SESSION = {"kafka.session_timeout": "60s"}


def static(installation, name, log=None):
    """Return a daemon with a member id that stays; ``log`` tells two of one name apart."""
    settings = {"kafka.instance_id": name, "kafka.group_instance_id": f"member-{name}", **SESSION}
    return installation.daemon(log or name, **settings)


def judged(installation, corpus):
    """Check that what was alerted are exactly the pairs of the reference."""
    installation.wait_committed(len(corpus))
    expected = the_expected(corpus)
    assert len(expected) > 200
    assert installation.pairs() == expected


@pytest.mark.long
def test_a_frozen_process_that_wakes_after_its_successor_took_over_is_refused(install):
    # Batches so small that the documents last for seconds.
    installation = install(PARTITIONS, batch_records=3)
    corpus = a_corpus(22, DOCUMENTS)
    with contextlib.ExitStack() as stack:
        old = stack.enter_context(static(installation, "a"))
        old.wait_ready()
        installation.send(corpus[: 2 * DOCUMENTS // 3])
        installation.wait_committed(DOCUMENTS // 20)
        old.signal(signal.SIGSTOP)
        # Now, so that the successor has work however much was done.
        installation.send(corpus[2 * DOCUMENTS // 3 :])
        new = stack.enter_context(static(installation, "a", log="successor"))
        new.wait_ready()
        servers.wait_until(lambda: new.alive_or_fail() and new.metric("streamdedup_records_total"), what="a new owner")
        old.signal(signal.SIGCONT)
        assert old.wait() == 78
        judged(installation, corpus)
        assert new.stop() == 0
    reason = old.events("fatal")[-1]["reason"]
    assert "instance_id" in reason


@pytest.mark.long
def test_of_two_that_live_under_one_name_one_ends_with_the_advice(install):
    installation = install(2, batch_records=15)
    corpus = a_corpus(23, 600)
    with static(installation, "a") as first:
        first.wait_ready()
        installation.send(corpus[:300])
        # At work, either could fence the other as a producer before the group decides, and end for another reason.
        installation.wait_committed(300)
        with static(installation, "a", log="twin") as second:
            codes = servers.wait_until(lambda: ended(first, second), what="the end of one")
            assert codes == [78]
            loser, winner = (first, second) if second.process.poll() is None else (second, first)
            assert "give each its own" in loser.events("fatal")[-1]["reason"]
            installation.send(corpus[300:])
            judged(installation, corpus)
            assert winner.stop() == 0


def ended(*daemons):
    """Exit codes of those that have ended."""
    return [daemon.process.returncode for daemon in daemons if daemon.process.poll() is not None]
