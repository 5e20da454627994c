"""A backlog in small batches, each polled and prepared while the one before it is at work, on a real Kafka."""

import contextlib
import re
import signal

from tests.daemons import PATIENT, Daemon, Installation
from tests.made_corpus import a_corpus, the_expected
from tests.servers import admin_client, wait_until

#: How long the daemons may take for each step, in seconds.
DEADLINE_S = 120.0


def ahead_count(daemon: Daemon) -> float:
    """Return how many batches were prepared ahead."""
    found = re.search(
        r'^streamdedup_batch_seconds_count\{stage="ahead"\} (\S+)$', daemon.get("/metrics")[1], re.MULTILINE
    )
    return float(found[1]) if found else 0.0


def state_of_group(installation: Installation) -> str:
    with contextlib.closing(admin_client(installation.kafka)) as admin:
        return str(admin.describe_groups([installation.group])[installation.group]["group_state"])


def test_a_rebalance_during_a_backlog_puts_the_batch_ahead_back(install):
    installation = install(4, batch_records=10)
    corpus = a_corpus(21, 1_500)
    installation.send(corpus[:1_000])
    # Sessions and transactions that outlast the start of the second daemon.
    with installation.daemon("a", **PATIENT) as first:
        wait_until(lambda: first.alive_or_fail() and ahead_count(first) > 3, DEADLINE_S, "batches ahead")
        # Frozen while the second daemon joins, so that the rebalance meets the first one in the middle of the backlog.
        first.signal(signal.SIGSTOP)
        installation.send(corpus[1_000:])
        with installation.daemon("b", **PATIENT) as second:
            second.wait_event("connected", DEADLINE_S)
            wait_until(lambda: state_of_group(installation) == "PreparingRebalance", DEADLINE_S, "a rebalance")
            first.signal(signal.SIGCONT)
            installation.wait_committed(len(corpus), DEADLINE_S)
            # The batches of the old generation were put back: none was published in vain, which would cost new clients.
            assert first.metric("streamdedup_broker_errors_total") == 0
            wait_until(lambda: first.metric("streamdedup_rebalances_total") >= 2, DEADLINE_S, "the second rebalance")
            assert first.stop() == second.stop() == 0
    assert installation.pairs() == the_expected(corpus)
