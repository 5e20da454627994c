"""The verdict on a run: lost, doubled and invented pairs are found from the topics alone."""

import json
from hashlib import blake2b
from types import SimpleNamespace

import pytest

from streamdedup.position import Position
from streamdedup.wire import Alert, Match, content_digest, encode_alert
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


def sourced(offset, identity, text, source):
    value = json.dumps({"id": identity, "text": text, "source": source}).encode()
    return SimpleNamespace(topic="in", partition=0, offset=offset, key=identity.encode(), value=value)


def alert(offset, identity, text, *others, digest=None, partition=0):
    """An alert of the record at an offset; others: offset, id and text of each match."""
    matches = [
        Match(other, content_digest(other_text).hex(), Position("in", 0, other_offset), 0.9, "exact", 0.0, 3)
        for other_offset, other, other_text in others
    ]
    found = Alert(
        profile="articles",
        document_id=identity,
        digest=digest or content_digest(text).hex(),
        position=Position("in", partition, offset),
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


def test_a_redelivered_record_changes_nothing():
    assert judge([*PLAIN, record(3, "a", ONE)], [PAIR], []).good


def test_a_pair_with_an_older_version_may_be_alerted_or_not():
    changed = [*PLAIN, record(3, "a", FAR)]
    final = alert(3, "a", FAR, (2, "c", FAR))
    assert judge(changed, [final], []).good
    assert judge(changed, [PAIR, final], []).good
    assert judge(changed, [PAIR], []).lost_count == 1
    assert judge(changed, [PAIR, PAIR, final], []).doubled_count == 1


def test_a_pair_whose_version_comes_back_is_alerted_once():
    back = [*PLAIN, record(3, "a", FAR), record(4, "a", ONE)]
    assert judge(back, [PAIR], []).good
    assert judge(back, [], []).lost_count == 1
    assert judge(back, [PAIR, PAIR], []).doubled_count == 1


def operation(offset, identity, op, text=None, partition=0):
    value = json.dumps({"id": identity, "op": op} | ({} if text is None else {"text": text})).encode()
    return SimpleNamespace(topic="in", partition=partition, offset=offset, key=identity.encode(), value=value)


def tombstone(offset, identity):
    return SimpleNamespace(topic="in", partition=0, offset=offset, key=identity.encode(), value=None)


#: The first half of a text, and the rest.
HALF, REST = ONE.rpartition(" zeta")[0], "zeta eta theta iota kappa"
#: With the digest of the whole text.
WHOLE_DIGEST = blake2b(content_digest(HALF) + content_digest(REST), digest_size=16).hexdigest()


def test_an_appended_document_is_compared_as_a_whole_and_keeps_its_version():
    grown = [record(0, "a", HALF), record(1, "b", TWO), operation(2, "a", "append", REST)]
    whole = alert(2, "a", None, (1, "b", TWO), digest=WHOLE_DIGEST)
    assert judge(grown, [whole], []).good
    assert judge(grown, [], []).lost_count == 1
    assert judge(grown, [whole, whole], []).doubled_count == 1
    assert judge(grown, [alert(0, "a", HALF, (1, "b", TWO))], []).invented_count == 1
    # A third text came when one and two were near already, and was then continued out of everyone's reach.
    further = [*PLAIN, operation(3, "b", "append", FAR)]
    assert judge(further, [PAIR], []).good
    assert judge(further, [], []).good


@pytest.mark.parametrize("gone", [tombstone(1, "a"), operation(1, "a", "delete")])
def test_a_document_after_a_deletion_makes_no_pair_with_the_deleted_one(gone):
    deleted = [record(0, "a", ONE), gone, record(2, "b", TWO)]
    assert judge(deleted, [], []).good
    assert judge(deleted, [alert(2, "b", TWO, (0, "a", ONE))], []).invented_count == 1
    # In another partition nobody knows which came first.
    elsewhere = [record(0, "a", ONE), gone, record(0, "b", TWO, partition=1)]
    assert judge(elsewhere, [], []).good
    assert judge(elsewhere, [alert(0, "b", TWO, (0, "a", ONE), partition=1)], []).good


def test_a_return_from_a_change_may_be_alerted_by_the_place_that_it_returned_to():
    returned = [record(0, "a", ONE), record(1, "a", FAR), record(2, "b", TWO), record(3, "a", ONE)]
    for at in (0, 3):
        assert judge(returned, [alert(2, "b", TWO, (at, "a", ONE))], []).good
    assert judge(returned, [alert(2, "b", TWO, (1, "a", ONE))], []).invented_count == 1


def test_a_document_inserted_again_after_a_deletion_has_a_new_version():
    again = [*PLAIN, tombstone(3, "a"), record(4, "a", ONE)]
    anew = alert(4, "a", ONE, (1, "b", TWO))
    assert judge(again, [PAIR, anew], []).good
    assert judge(again, [PAIR], []).lost_count == 1
    assert judge(again, [PAIR, anew, anew], []).doubled_count == 1


def test_an_append_to_no_document_is_poison():
    value = operation(3, "nobody", "append", ONE)
    told = letter(3, value.value)
    told.key = b"nobody"
    assert judge([*PLAIN, value], [PAIR], [told]).good
    assert judge([*PLAIN, value], [PAIR], []).lost_count == 1


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


#: Near-duplicates of more than ``MIN_SHINGLES`` shingles.
LONG, LONGER = f"{ONE} {FAR}", f"{TWO} {FAR}"


@pytest.mark.parametrize(
    ("a", "b", "texts", "is_suppressed"),
    [
        ("s1", "s1", (LONG, LONGER), True),
        ("s1", "s0", (LONG, LONGER), True),
        ("s1", "s2", (LONG, LONGER), False),
        ("s1", None, (LONG, LONGER), False),
        ("s1", "s2", (ONE, TWO), True),
    ],
)
def test_suppressed_pairs_are_neither_expected_nor_allowed(a, b, texts, is_suppressed):
    inputs = [sourced(0, "a", texts[0], a), sourced(1, "b", texts[1], b)]
    found = alert(1, "b", texts[1], (0, "a", texts[0]))
    assert judge(inputs, [found], []).good
    assert judge(inputs, [], [], suppressing=True).good == is_suppressed
    assert judge(inputs, [found], [], suppressing=True).invented_count == is_suppressed


def test_an_append_ends_the_suppression_of_a_short_text():
    digest = blake2b(bytes.fromhex(content_digest(TWO).hex()) + content_digest(FAR), digest_size=16).hexdigest()
    append = json.dumps({"id": "b", "op": "append", "text": FAR, "source": "s1"}).encode()
    inputs = [sourced(0, "a", LONG, "s1"), sourced(1, "b", TWO, "s2")]
    inputs += [SimpleNamespace(topic="in", partition=0, offset=2, key=b"b", value=append)]
    found = alert(2, "b", "", (0, "a", LONG), digest=digest)
    assert judge(inputs, [found], [], suppressing=True).good
    assert judge(inputs, [], [], suppressing=True).lost_count == 1
