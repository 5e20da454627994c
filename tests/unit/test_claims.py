"""How long pairs stay claimed: documents that live on are reported once (memory store, injected clock)."""

from contextlib import suppress
from dataclasses import replace
from unittest.mock import patch

import pytest

from streamdedup.index.memory import MemoryIndex
from streamdedup.position import Position
from streamdedup.wire import Document
from tests.streams import OPTIONS, Stream

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
TEXT = "amber birch cedar delta ember fjord grove heath inlet jetty knoll lagoon"
OTHER_TEXT = "maple north ocean pearl quartz river stone tulip umber valley willow zinc"


class Daemon:
    """A detector over a store with a clock; every record comes at its record time."""

    def __init__(self, retention_ms: int = 30 * DAY_MS, slack_ms: int = DAY_MS) -> None:
        self._now_ms = 0
        store = MemoryIndex(lifetime_ms=retention_ms + slack_ms, now_ms=lambda: float(self._now_ms))
        self._stream = Stream(replace(OPTIONS, window_ms=retention_ms), store)
        self.store = store
        self._offset = 0
        #: Whether it dies before the first claims of each record, and is started again.
        self.dies = False
        #: Days on which each pair of ids was reported.
        self.reported: dict[tuple[str, str], list[float]] = {}

    def take(self, day: float, document_id: str, text: str, op: str = "upsert") -> None:
        self._now_ms = round(day * DAY_MS)
        position = Position("articles", 0, self._offset)
        self._offset += 1
        document = Document(document_id, text, position, self._now_ms, op=op)
        if op == "delete":
            self._stream.delete([document])
            return
        if self.dies:
            with patch.object(self.store, "claim_pairs", side_effect=SystemExit), suppress(SystemExit):
                self._stream.index(document)
        for detection in self._stream.index(document).detections:
            for match in detection.matches:
                pair = min(document_id, match.id), max(document_id, match.id)
                self.reported.setdefault(pair, []).append(day)


@pytest.fixture
def daemon() -> Daemon:
    """A daemon that has reported the pair of "a" and "b"."""
    daemon = Daemon()
    daemon.take(0, "a", TEXT)
    daemon.take(0.1, "b", TEXT)
    return daemon


def test_two_documents_that_are_appended_to_for_a_hundred_days_are_reported_once(daemon):
    for day in range(5, 101, 5):
        daemon.take(day, "a", f"line of day {day}", "append")
        daemon.take(day + 0.1, "b", f"line of day {day}", "append")
    assert daemon.reported == {("a", "b"): [0.1]}
    assert daemon.store.count_claims() == 1


def test_a_text_that_alternates_between_two_versions_is_reported_once_for_each():
    daemon = Daemon()
    daemon.take(0, "constant", TEXT)
    for day in range(5, 101, 5):
        daemon.take(day, "changing", TEXT if day % 10 else OTHER_TEXT)
        daemon.take(day + 0.1, "constant", "line", "append")
    (days,) = daemon.reported.values()
    assert days == [5]


def test_documents_that_are_appended_to_in_turn_extend_their_claims(daemon):
    for day in range(20, 201, 20):
        daemon.take(day, "a", "line", "append")
        daemon.take(day + 9, "b", "line", "append")
    assert daemon.reported == {("a", "b"): [0.1]}


@pytest.mark.parametrize("dies", [False, True])
def test_claims_outlive_times_in_which_the_documents_are_too_far_apart(dies):
    """Both are in the index throughout, because the slack is long; only seldom do they lie within the window."""
    daemon = Daemon(retention_ms=HOUR_MS, slack_ms=DAY_MS)
    daemon.dies = dies
    daemon.take(0, "a", TEXT)
    daemon.take(0, "b", TEXT)
    for step in range(1, 41):
        daemon.take(step / 2, "a", "one more line" if step == 1 else "again", "append")
        daemon.take(step / 2 + 0.25, "b", "one more line" if step == 1 else "again", "append")
    daemon.take(20.3, "a", "the last", "append")
    daemon.take(20.3, "b", "the last", "append")
    assert daemon.reported == {("a", "b"): [0]}


def test_a_pair_that_has_not_been_one_for_longer_than_a_claim_lives_is_reported_again(daemon):
    daemon.take(63, "a", TEXT)
    daemon.take(63.1, "b", TEXT)
    assert daemon.reported == {("a", "b"): [0.1, 63.1]}


@pytest.mark.parametrize("back", [2, 20, 30, 33, 40, 50, 61, 63, 70, 95, 125, 130])
def test_a_document_that_was_deleted_and_is_inserted_again_is_reported_again(daemon, back):
    """Its partner lives on all the time, and so may the claim of the pair."""
    daemon.take(1, "a", "", "delete")
    for day in range(5, back, 5):
        daemon.take(day, "b", "zinc", "append")
    daemon.take(back + 0.3, "a", TEXT)
    assert daemon.reported == {("a", "b"): [0.1, back + 0.3]}


def test_a_later_version_of_a_document_that_was_deleted_is_reported_again_with_the_first_text(daemon):
    daemon.take(1, "a", "", "delete")
    daemon.take(2, "a", OTHER_TEXT)
    daemon.take(3, "a", TEXT)
    daemon.take(4, "a", OTHER_TEXT)
    daemon.take(5, "a", TEXT)
    assert daemon.reported == {("a", "b"): [0.1, 3]}


@pytest.mark.parametrize(("append", "later", "days"), [(None, 29, [29]), (None, 30.5, []), (20, 49, [49])])
def test_an_append_renews_the_time_of_its_document(append, later, days):
    """The window of 30 days counts from the append."""
    daemon = Daemon()
    daemon.take(0, "a", TEXT)
    if append is not None:
        daemon.take(append, "a", "zinc", "append")
    daemon.take(later, "b", TEXT)
    assert daemon.reported == ({("a", "b"): days} if days else {})


@pytest.mark.parametrize("days", [range(5, 101, 5), range(30, 301, 30)])
def test_two_near_duplicate_versions_of_a_document_are_each_reported_once(days):
    daemon = Daemon()
    daemon.take(0, "a", TEXT)
    for at, day in enumerate(days):
        daemon.take(day, "b", (TEXT, f"{TEXT} zinc")[at % 2])
        daemon.take(day + 0.1, "a", f"line {day}" if at % 3 == 0 else "line", "append")
    assert len(daemon.reported[("a", "b")]) <= 2
