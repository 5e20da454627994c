"""Daemons killed again and again while documents flow: no pair lost, none doubled."""

import random

import pytest

from tests import servers
from tests.daemons import produce_keyed, values_of
from tests.made_corpus import a_corpus, the_expected

#: Kills in one run, documents, partitions.
KILLS, DOCUMENTS, PARTITIONS = 12, 2400, 6


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", [1, 2])
def test_three_daemons_of_which_one_after_another_is_killed(install, seed):
    rng = random.Random(seed)
    installation = install(PARTITIONS, batch_records=15)
    corpus = a_corpus(seed, DOCUMENTS)
    daemons = [installation.daemon(name) for name in "abc"]
    try:
        for daemon in daemons:
            daemon.start()
        for kill in range(KILLS):
            start = DOCUMENTS * kill // KILLS
            end = DOCUMENTS * (kill + 1) // KILLS
            produce_keyed(installation.kafka, installation.topic, values_of(corpus[start:end]))
            installation.wait_committed(start + rng.randrange(end - start), 120)
            victim = rng.choice(daemons)
            victim.kill()
            victim.start()
        installation.wait_committed(DOCUMENTS, 120)
        assert [daemon.stop() for daemon in daemons] == [0, 0, 0]
    finally:
        for daemon in daemons:
            daemon.__exit__(None, None, None)
    visible = len(servers.read_topic(installation.kafka, installation.duplicates))
    written = len(servers.read_topic(installation.kafka, installation.duplicates, isolation="read_uncommitted"))
    expected = the_expected(corpus)
    assert len(expected) > 200
    assert installation.pairs() == expected
    # Without an aborted alert no kill has hit a transaction, and the run would prove little.
    assert written > visible
