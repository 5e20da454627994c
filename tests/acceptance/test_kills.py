"""A daemon that is killed at every start commits the smaller batches: no pair lost, none doubled."""

import contextlib
import signal

import pytest

from tests.daemons import PATIENT
from tests.made_corpus import a_corpus, the_expected


@pytest.mark.long
def test_a_daemon_killed_at_every_third_batch_commits_the_two_smaller_ones(install):
    installation = install(1, batch_records=16)
    corpus = a_corpus(1, 80)
    installation.send(corpus)
    # A static member is back in its group at once; patient, because a batch that a time-out undoes is counted again.
    daemon = installation.daemon(**PATIENT, **{"kafka.group_instance_id": "one"})
    repeated = []
    with contextlib.ExitStack() as stack:
        stack.callback(daemon.__exit__, None, None, None)
        for start in range(3):
            daemon.start(crash_at="after_insert_entries:3")
            assert daemon.wait() == -signal.SIGKILL, daemon.log.read_text()
            repeated.append([event["documents"] for event in daemon.events("batch_repeated")])
            # One record and two; four were too many. What was committed is visible a moment later.
            installation.wait_committed(3 * (start + 1))
            assert installation.committed_count() == 3 * (start + 1)
        # The first of the four is repeated, and the log names the cure.
        assert repeated == [[], [1], [1]]
        daemon.start()
        installation.wait_committed(len(corpus))
        assert daemon.stop() == 0
    assert installation.pairs() == the_expected(corpus)
