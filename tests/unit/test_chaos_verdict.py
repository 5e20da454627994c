"""The verdict on a run: lost, doubled and invented pairs are found from the topics alone."""

import json
from types import SimpleNamespace

import pytest

from streamdedup.position import Position
from streamdedup.wire import content_digest, encode_alert
from tests.alerts import a_document, a_match, an_alert
from tests.chaos.verdict import judge

#: Texts of which the first two are near-duplicates of each other, and the third of none.
ONE = "alpha beta gamma delta epsilon zeta eta theta iota kappa"
TWO = "alpha beta gamma delta epsilon zeta eta theta iota lambda"
FAR = "one two three four five six seven eight nine ten"


def record(offset, identity, text, time_ms=0):
    value = json.dumps({"id": identity, "text": text}).encode()
    key = identity.encode()
    return SimpleNamespace(topic="in", partition=0, offset=offset, key=key, value=value, timestamp=time_ms)


def alert(offset, identity, text, *others):
    """An alert of the record at an offset; others: offset, id and text of each match."""
    matches = [
        a_match(other, Position("in", 0, other_offset), digest=content_digest(other_text).hex())
        for other_offset, other, other_text in others
    ]
    document = a_document(identity, Position("in", 0, offset), content_digest(text).hex())
    (value,) = encode_alert(an_alert(document, *matches), 100, 1_000_000)
    return SimpleNamespace(value=value)


PAIR = alert(1, "b", TWO, (0, "a", ONE))
PLAIN = [record(0, "a", ONE), record(1, "b", TWO), record(2, "c", FAR)]


@pytest.mark.parametrize(
    ("alerts", "lost", "doubled", "invented"),
    [
        ([PAIR], 0, 0, 0),
        ([], 1, 0, 0),
        ([PAIR, PAIR], 0, 1, 0),
        ([PAIR, alert(0, "a", ONE, (1, "b", TWO))], 0, 1, 0),
        ([PAIR, PAIR, PAIR], 0, 2, 0),
        ([PAIR, alert(2, "c", FAR, (0, "a", ONE))], 0, 0, 1),
        ([alert(1, "b", FAR, (0, "a", ONE))], 1, 0, 1),
    ],
)
def test_pairs_are_compared_as_a_multiset(alerts, lost, doubled, invented):
    verdict = judge(PLAIN, alerts, [])
    assert (verdict.lost_count, verdict.doubled_count, verdict.invented_count) == (lost, doubled, invented)
    assert verdict.good == (lost == doubled == invented == 0)
    assert verdict.expected_count == 1
