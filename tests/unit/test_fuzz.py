"""Damaged input of every kind, a short portion of ``make fuzz``; and that the fuzzers notice what they should."""

import pickle
from collections import Counter
from dataclasses import replace

import pytest
import structlog

from streamdedup.daemon.publisher import Publisher
from streamdedup.detection.detector import Detector
from tests.fuzz import stored
from tests.fuzz.accounts import Accountant, Unaccounted
from tests.fuzz.files import fuzz_corpora, fuzz_settings
from tests.fuzz.fuzzed import Fuzzed
from tests.fuzz.memory import growth
from tests.fuzz.messages import fuzzed_messages
from tests.fuzz.reading import read
from tests.fuzz.requests import fuzz_requests
from tests.fuzz.stored import Undocumented, fuzz_stored
from tests.fuzz.workers import Failed, begin, chunk

#: When the messages are sent, in milliseconds since the epoch.
NOW_MS = 1_777_618_931_480
SEED = "in every run of the tests"


def good(text: str, number: int = 0) -> Fuzzed:
    value = b'{"id": "g%d", "text": "%s"}' % (number, text.encode())
    return Fuzzed("plain", None, value, (), NOW_MS, "good")


@pytest.fixture(autouse=True)
def _logging_as_before():
    yield
    structlog.reset_defaults()


@pytest.mark.parametrize("count", [3_000, pytest.param(12_000, marks=pytest.mark.long)])
def test_every_message_is_accounted_for(count):
    messages = list(fuzzed_messages(SEED, count, NOW_MS))
    account = Accountant().settle(messages)
    kinds = Counter()
    for outcome, count in account.outcomes.items():
        kinds[outcome.partition(" ")[0]] += count
    assert kinds.total() == len(messages)
    assert min(kinds["processed"], kinds["skipped"], kinds["dead"]) > count / 12
    assert account.pairs_count > count / 60
    assert account.cut_count > 0
    assert account.judged_count > len(messages) / 2
    assert all(account.made_by[name, True] + account.made_by[name, False] > 0 for name, _ in account.made_by)


def test_the_same_seed_makes_the_same_messages_and_another_one_others():
    assert list(fuzzed_messages("a", 50, NOW_MS)) == list(fuzzed_messages("a", 50, NOW_MS))
    assert list(fuzzed_messages("a", 50, NOW_MS)) != list(fuzzed_messages("b", 50, NOW_MS))


def test_a_message_written_to_a_file_is_read_as_it_was():
    for message in fuzzed_messages(SEED, 300, NOW_MS):
        assert Fuzzed.from_json(message.as_json()) == message


class FailsToIndex(Detector):
    """Has a mistake that one text brings to light behind the stage in which single documents are isolated."""

    def index(self, prepared, fences):
        if any("fjord" in document.text for document in prepared.documents):
            raise ZeroDivisionError("a mistake")
        return super().index(prepared, fences)


class FailsToPrepare(Detector):
    def prepare(self, documents):
        if any("fjord" in document.text for document in documents):
            raise ZeroDivisionError("a mistake")
        return super().prepare(documents)


@pytest.mark.parametrize(
    ("detector", "reason"), [(FailsToIndex, "ZeroDivisionError: a mistake"), (FailsToPrepare, "a mistake of ours")]
)
def test_a_mistake_of_ours_is_noticed_and_the_message_found_that_brings_it_to_light(detector, reason):
    messages = [good("amber birch cedar", 1), good("delta fjord grove", 2), good("heath inlet jetty", 3)]
    with pytest.raises(Unaccounted, match=reason) as caught:
        Accountant(detector).settle(messages)
    assert caught.value.messages == [messages[1]]


def test_a_dead_letter_that_is_not_sent_is_noticed(monkeypatch):
    publication = Publisher.publication

    def without_dead_letters(publisher, result, fences):
        return replace(publication(publisher, result, fences), messages=[], dead_letters=[])

    monkeypatch.setattr(Publisher, "publication", without_dead_letters)
    with pytest.raises(Unaccounted, match=r"1 sent, 1 consumed, but \{\}"):
        Accountant().settle([replace(good(""), value=b"{")])


@pytest.mark.parametrize("changed", [{"value": b"{ "}, {"key": b"other"}, {"headers": (("a", b"b"),)}])
def test_a_dead_letter_that_is_not_as_it_was_sent_is_noticed(monkeypatch, changed):
    message = Publisher._dead_letter_message

    def changed_message(publisher, failed):
        made = message(publisher, failed)
        return replace(made, **{**changed, "headers": changed.get("headers", ()) + tuple(made.headers)})

    monkeypatch.setattr(Publisher, "_dead_letter_message", changed_message)
    with pytest.raises(Unaccounted, match=r"another one|others"):
        Accountant().settle([replace(good(""), value=b"{")])


def test_a_reading_of_the_decoder_that_differs_from_the_second_one_is_noticed(monkeypatch):
    monkeypatch.setattr("tests.fuzz.accounts.read", lambda *_: "dead letter")
    with pytest.raises(Unaccounted, match="expects dead letter; it became none"):
        Accountant().settle([good("amber")])


@pytest.mark.parametrize(
    ("value", "verdict"),
    [
        (b'{"text": "a"}', "no dead letter"),
        (b'{"text": "a"', "dead letter"),
        (b'{"text": NaN}', "dead letter"),
        (b'{"text": "a", "n": 1e999}', "no dead letter"),
        (b'{"text": "a", "text": "b"}', "either"),
        (b'{"text": "\xff"}', "either"),
        (b'{"text": 1}', "dead letter"),
        (b'{"text": "a", "id": 1.5}', "dead letter"),
        (b'{"text": "aaaaaaaaaaaa"}', "dead letter"),
        (None, "dead letter"),
    ],
)
def test_the_second_reading_judges_what_is_plain(value, verdict):
    assert read(None, value, ("text",), max_text_bytes=10) == verdict


def test_what_a_worker_finds_passes_to_the_process_that_asked(monkeypatch):
    begin()
    account, _, rss = chunk((SEED, 100))
    assert account.outcomes.total() == 100
    assert rss > 10**6
    monkeypatch.setattr("tests.fuzz.accounts.read", lambda *_: "dead letter")
    with pytest.raises(Failed) as caught:
        chunk((SEED, 100))
    passed = pickle.loads(pickle.dumps(caught.value))
    assert passed.seed == SEED
    assert passed.reason.startswith("a second reading expects dead letter")
    (line,) = passed.lines
    assert Fuzzed.from_json(line).as_json() == line


def test_stored_forms_are_refused_as_documented_or_read_whole():
    outcomes = fuzz_stored(SEED, 400)
    for name in stored.FORMS:
        assert outcomes[f"{name} refused"] > 50
        assert outcomes[f"{name} read"] > 0


def test_a_reader_that_raises_something_else_is_noticed(monkeypatch):
    form = replace(stored.FORMS["entry"], error=KeyError)
    monkeypatch.setitem(stored.FORMS, "entry", form)
    with pytest.raises(Undocumented, match="entry: ValueError"):
        fuzz_stored(SEED, 50)


@pytest.mark.parametrize("count", [150, pytest.param(1_500, marks=pytest.mark.long)])
def test_settings_are_taken_or_refused_with_messages(tmp_path, count):
    outcomes = fuzz_settings(SEED, count, tmp_path)
    assert outcomes["settings refused"] > count / 3
    assert outcomes["settings taken"] > 0


def test_corpora_are_read_or_refused_by_a_message_that_names_the_file(tmp_path):
    outcomes = fuzz_corpora(SEED, 60, tmp_path)
    for kind in ("jsonl", "csv", "tsv", "txt", "sgm", "tar"):
        assert outcomes[f"corpus .{kind} refused"] > 0
        assert outcomes[f"corpus .{kind} read"] > 0
    assert outcomes["corpus entries with a problem"] > 0


def test_growth_is_that_of_the_last_quarter_above_the_second():
    assert growth([5.0, 5.0, 10.0, 10.0, 10.0, 10.0, 11.0, 11.0]) == pytest.approx(0.1)
    assert growth([1.0] * 100) == 0.0
    assert growth([1.0, 2.0, 3.0]) == 0.0


def test_damaged_requests_have_an_answer_or_a_problem_and_never_a_defect():
    statuses, rss = fuzz_requests(SEED, 1_000)
    assert statuses.total() == 1_000
    assert {200, 400, 404, 415, 422} <= statuses.keys()
    assert len(rss) == 10
