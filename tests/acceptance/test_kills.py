"""Daemons killed again and again while documents flow: no pair lost, none doubled."""

import contextlib
import random
import signal
import time

import pytest

from tests.daemons import produce_keyed, values_of
from tests.made_corpus import a_corpus, the_expected

#: Kills in one run, documents, partitions.
SEED, KILLS, DOCUMENTS, PARTITIONS = 1, 12, 2400, 6


def kill_at_work(daemon, rng: random.Random) -> float:
    """Kill a daemon while it works on what was produced, or at any moment when it has no partition.

    Returns:
        How many documents it had done again that somebody had begun before.
    """
    before = daemon.metric("streamdedup_records_total")
    deadline_s = time.monotonic() + 5
    while daemon.metric("streamdedup_records_total") < before + 10 and time.monotonic() < deadline_s:
        daemon.alive_or_fail()
    replayed = daemon.metric("streamdedup_documents_replayed_total")
    time.sleep(rng.uniform(0, 0.03))  # not to wait for anything: the moment of the kill is to be any
    daemon.kill()
    return replayed


@pytest.mark.long
def test_three_daemons_of_which_one_after_another_is_killed(install):
    rng = random.Random(SEED)
    installation = install(PARTITIONS, batch_records=15)
    corpus = a_corpus(SEED, DOCUMENTS)
    daemons = [installation.daemon(name) for name in "abc"]
    replayed = 0.0
    try:
        for daemon in daemons:
            daemon.start()
        for kill in range(KILLS):
            start = DOCUMENTS * kill // KILLS
            end = DOCUMENTS * (kill + 1) // KILLS
            produce_keyed(installation.kafka, installation.topic, values_of(corpus[start:end]))
            victim = rng.choice(daemons)
            replayed += kill_at_work(victim, rng)
            victim.start()
            installation.wait_committed(start)
        installation.wait_committed(DOCUMENTS)
        replayed += sum(daemon.metric("streamdedup_documents_replayed_total") for daemon in daemons)
        assert [daemon.stop() for daemon in daemons] == [0, 0, 0]
    finally:
        for daemon in daemons:
            daemon.__exit__(None, None, None)
    expected = the_expected(corpus)
    assert len(expected) > 200
    assert installation.pairs() == expected
    # Without a document that was begun twice no kill has hit a batch, and the run would prove nothing.
    assert replayed > 0


@pytest.mark.long
def test_a_daemon_killed_again_and_again_in_one_batch_reads_it_in_smaller_batches(install):
    installation = install(1, batch_records=16)
    corpus = a_corpus(SEED, 80)
    produce_keyed(installation.kafka, installation.topic, values_of(corpus))
    daemon = installation.daemon(**{"kafka.session_timeout": "2s"})
    told = []
    with contextlib.ExitStack() as stack:
        stack.callback(daemon.__exit__, None, None, None)
        for point in (*["after_insert_entries:1"] * 3, "after_commit:1"):
            daemon.start(STREAMDEDUP_CRASH_AT=point)
            assert daemon.wait() == -signal.SIGKILL, daemon.log.read_text()
            told.append([event["records"] for event in daemon.events("batches_halved")])
        # Three starts have committed nothing, and the fourth one batch.
        assert told == [[], [8], [4], [2]]
        # The daemon is killed when the commit is decided, a moment before the group has it.
        installation.wait_committed(2)
        assert installation.committed_count() == 2
        daemon.start()
        installation.wait_committed(len(corpus))
        assert daemon.stop() == 0
    assert installation.pairs() == the_expected(corpus)
