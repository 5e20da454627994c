"""The daemon ends as if killed at each point of its loop; started again, it loses no pair and doubles none."""

import contextlib
import signal

import pytest

from tests.chaos.stream import a_record, an_operation
from tests.chaos.verdict import judge_topics
from tests.crash_points import CRASH_POINTS
from tests.daemons import produce_keyed, values_of
from tests.made_corpus import a_corpus

#: Documents, partitions, and records that no daemon can process.
DOCUMENTS, PARTITIONS, POISON = 90, 2, 6
#: Every so many documents one is continued, changed or deleted; the last is sent again when it has been.
LIVES_EVERY = 6
#: Points that a daemon which nothing befalls passes once: at its start, or once for each partition, or seldom.
ONCE = (
    "open",
    "committed",
    "fence",
    "copy_removals",
    "insert_copies",
    "init_transactions",
)
#: Committing offsets without a transaction, under at-least-once delivery.
PLAIN = ("before_commit_offsets", "after_commit_offsets")
#: Where to end, and at which passage: behind every step, which is as before the next. In the second batch the index
#: holds documents already, and the mark of its partition stands above zero.
ENDS = [
    *[
        (point, 1 if point.partition("_")[2] in ONCE else 2)
        for point in CRASH_POINTS
        if point.startswith("after_") and point not in PLAIN
    ],
    ("before_insert_entries", 1),
    ("after_insert_and_look_up", 1),
    ("after_claim_pairs", 1),
    ("after_send", 1),
    ("after_send", 7),
    # A batch is ahead, prepared or about to be.
    ("after_poll_ahead", 1),
    ("before_insert_entries", 5),
    ("before_commit", 5),
    ("before_commit", 1),
    ("after_commit", 1),
    ("after_commit", 4),
]
CASES = [pytest.param(*end, id=f"{end[0]}-{end[1]}") for end in sorted(ENDS)]


@pytest.fixture
def filled(install):
    """An installation whose input waits to be read: texts with near-copies, some of them sent twice, and poison.

    Of the documents some are continued, changed, or deleted and placed again.
    """
    installation = install(PARTITIONS, batch_records=15)
    texts = a_corpus(17, DOCUMENTS)
    corpus = values_of(texts)
    for at in reversed(range(LIVES_EVERY, DOCUMENTS, LIVES_EVERY)):
        corpus[at:at] = a_turn(at // LIVES_EVERY, *texts[at - LIVES_EVERY], texts[at][1])
    corpus[30:30] = corpus[:5]
    for number in range(POISON):
        corpus.insert(20 * number, (b"poison-%d" % number, b"not json %d" % number))
    installation.records = len(corpus)
    produce_keyed(installation.kafka, installation.topic, corpus)
    return installation


def a_turn(number: int, identity: str, text: str, other: str) -> list[tuple[bytes, bytes | None]]:
    """What befalls a document; other: the text of another."""
    return [
        [an_operation("append", identity, text=other.rpartition(" ")[2])],
        [a_record(identity, other)],
        [(identity.encode(), None)],
        [an_operation("delete", identity), a_record(identity, text)],
        [a_record(identity, other), a_record(identity, text), an_operation("append", identity, text=other)],
    ][number % 5]


def crash_and_go_on(installation, point: str, passage: int, **settings: str) -> None:
    """Start a daemon that ends at a point, start it again, and let it do everything."""
    # A session so short that the daemon that is started again need not wait long for the partitions of the first.
    daemon = installation.daemon(**{"kafka.session_timeout": "2s"} | settings)
    with contextlib.ExitStack() as stack:
        stack.callback(daemon.__exit__, None, None, None)
        daemon.start(crash_at=f"{point}:{passage}")
        assert daemon.wait() == -signal.SIGKILL, daemon.log.read_text()
        daemon.start()
        daemon.wait_ready()
        installation.wait_committed(installation.records)
        assert daemon.stop() == 0


@pytest.mark.parametrize(("point", "passage"), CASES)
def test_a_crash_loses_and_doubles_nothing(filled, point, passage):
    # Copies have buckets of their own where the others hold half of what they can; no bucket of the corpus holds nine.
    crowded = {"profiles.articles.bucket_cap": "8"} if point.endswith(("_copies", "_copy_removals")) else {}
    crash_and_go_on(filled, point, passage, **crowded)
    verdict = judge_topics(filled.kafka, filled.topic, filled.duplicates)
    assert verdict.good, verdict
    assert verdict.expected_count > 10
    assert verdict.poison_count == POISON


@pytest.mark.long
@pytest.mark.parametrize("point", PLAIN)
def test_without_transactions_a_crash_repeats_but_loses_nothing(filled, point):
    # The fifth batch is the first one with 15 records, among them some that are alerted. A daemon that a short session
    # puts out of the group before begins with small ones again.
    settings = {"kafka.delivery": "at-least-once", "kafka.session_timeout": "10s"}
    crash_and_go_on(filled, point, 5, **settings)
    verdict = judge_topics(filled.kafka, filled.topic, filled.duplicates)
    assert not verdict.lost_count, verdict
    assert not verdict.invented_count, verdict
    assert verdict.doubled_count > 0 or point.startswith("after")
