"""The verdict on a run: what is lost, doubled or invented is told from the topics alone."""

import json
from types import SimpleNamespace

import pytest

from streamdedup.messages import Alert, Match, content_digest, encode_alert
from streamdedup.position import Position
from tests.chaos.verdict import judge

#: Texts of which the first two are near-duplicates of each other, and the third of none.
ONE = "alpha beta gamma delta epsilon zeta eta theta iota kappa"
TWO = "alpha beta gamma delta epsilon zeta eta theta iota lambda"
FAR = "one two three four five six seven eight nine ten"


def record(offset, identity, text, partition=0):
    value = json.dumps({"id": identity, "text": text}).encode()
    return SimpleNamespace(topic="in", partition=partition, offset=offset, key=identity.encode(), value=value)


def poison(offset, value=b"nothing"):
    return SimpleNamespace(topic="in", partition=0, offset=offset, key=b"p", value=value)


def alert(identity, text, *others):
    matches = [
        Match(other, content_digest(other_text).hex(), Position("in", 0, 0), 0.9, "exact", 0.0, 3)
        for other, other_text in others
    ]
    found = Alert(
        profile="articles",
        document_id=identity,
        digest=content_digest(text).hex(),
        position=Position("in", 0, 1),
        time_ms=0,
        published_at=None,
        source=None,
        matches=tuple(matches),
        cluster_id=identity,
        threshold=0.5,
        detected_at_ms=0,
    )
    (value,) = encode_alert(found, 100, 1_000_000)
    return SimpleNamespace(value=value)


def letter(offset, value=b"nothing"):
    headers = [(f"streamdedup.dlq.{n}", v) for n, v in (("topic", b"in"), ("partition", b"0"))]
    offset_header = ("streamdedup.dlq.offset", b"%d" % offset)
    return SimpleNamespace(key=b"p", value=value, headers=[*headers, offset_header, ("other", None)])


PAIR = alert("b", TWO, ("a", ONE))
PLAIN = [record(0, "a", ONE), record(1, "b", TWO), record(2, "c", FAR)]


@pytest.mark.parametrize(
    ("alerts", "lost", "doubled", "invented"),
    [
        ([PAIR], 0, 0, 0),
        ([], 1, 0, 0),
        ([PAIR, PAIR], 0, 1, 0),
        ([PAIR, alert("a", ONE, ("b", TWO))], 0, 1, 0),
        ([PAIR, PAIR, PAIR], 0, 2, 0),
        ([PAIR, alert("c", FAR, ("a", ONE))], 0, 0, 1),
        ([alert("b", FAR, ("a", ONE))], 1, 0, 1),
    ],
)
def test_pairs_are_compared_as_a_multiset(alerts, lost, doubled, invented):
    verdict = judge(PLAIN, alerts, [])
    assert (verdict.lost_count, verdict.doubled_count, verdict.invented_count) == (lost, doubled, invented)
    assert verdict.good == (lost == doubled == invented == 0)
    assert verdict.expected_count == 1


def test_a_redelivered_record_changes_nothing():
    assert judge([*PLAIN, record(3, "a", ONE)], [PAIR], []).good


def test_a_pair_with_an_older_version_may_be_alerted_or_not():
    changed = [*PLAIN, record(3, "a", FAR)]
    final = alert("a", FAR, ("c", FAR))
    assert judge(changed, [final], []).good
    assert judge(changed, [PAIR, final], []).good
    assert judge(changed, [PAIR], []).lost_count == 1
    assert judge(changed, [PAIR, PAIR, final], []).doubled_count == 1


def test_a_pair_whose_version_comes_back_is_alerted_once():
    back = [*PLAIN, record(3, "a", FAR), record(4, "a", ONE)]
    assert judge(back, [PAIR], []).good
    assert judge(back, [], []).lost_count == 1
    assert judge(back, [PAIR, PAIR], []).doubled_count == 1


@pytest.mark.parametrize(
    ("letters", "lost", "doubled", "invented"),
    [
        ([letter(3)], 0, 0, 0),
        ([], 1, 0, 0),
        ([letter(3), letter(3)], 0, 1, 0),
        ([letter(3), letter(1)], 0, 0, 1),
        ([letter(3, b"changed")], 1, 0, 1),
    ],
)
def test_dead_letters_are_the_poison_byte_for_byte(letters, lost, doubled, invented):
    verdict = judge([*PLAIN, poison(3)], [PAIR], letters)
    assert (verdict.lost_count, verdict.doubled_count, verdict.invented_count) == (lost, doubled, invented)
    assert verdict.poison_count == 1
