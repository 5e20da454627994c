"""Rebuilds in the course of months: each pair is alerted as often as without the loss (memory world, scaled clock).

Lifetimes are 31 days: a retention of 30 days, and a day of slack.
"""

from collections import Counter
from dataclasses import replace

import pytest
from msgspec import structs

from streamdedup import clock
from streamdedup.daemon import publisher
from streamdedup.daemon.rebuild_seeds import Seeds, alerts_in
from streamdedup.detection.detector import Detector
from streamdedup.detection.model import document_number
from streamdedup.kafka.protocols import Batch, Message, Record
from streamdedup.position import Position
from streamdedup.wire import Alert, AlertReader, decode_alert, encode_alert
from tests.alerts import a_document, a_match, an_alert
from tests.turns import CLOCK, DUPLICATES, GROUP, INPUT, Sent, World

DAY_MS = 86_400_000
RETENTION_MS, LIFETIME_MS = 30 * DAY_MS, 31 * DAY_MS
FIRST_MS = 1_700_000_000_000
TEXT = "amber birch cedar delta ember fjord grove heath"
COPY = f"{TEXT} inlet"
OTHER, UNLIKE = "knoll lagoon jetty inlet pearl quartz river stone", "tulip umber valley willow zinc maple north ocean"


class Months:
    """One daemon over months; records have the time at which they are sent."""

    def __init__(self, monkeypatch) -> None:
        self._now_ms = FIRST_MS
        self._options = {"lifetime_ms": LIFETIME_MS, "now_ms": lambda: float(self._now_ms)}
        monkeypatch.setattr(clock, "now_ms", lambda: self._now_ms)
        monkeypatch.setattr(publisher, "Message", self._message)
        self._world = World(
            [],
            partitions=1,
            on_index_lost="rebuild",
            kept_ms=LIFETIME_MS,
            now_ms=FIRST_MS,
            index_options=self._options,
            make_detector=lambda options, index: Detector(replace(options, window_ms=RETENTION_MS), index),
        )

    def _message(self, topic, key, value, headers=()) -> Message:
        return Message(topic, key, value, headers, self._now_ms)

    def recreate(self, day: float) -> None:
        """Delete the input topic on a day, and create it again."""
        self._now_ms = self._world.now_ms = FIRST_MS + round(day * DAY_MS)
        self._world.recreate()

    def send(self, day: float, *records: Sent) -> None:
        """Send records on a day, and process them."""
        world = self._world
        self._now_ms = world.now_ms = FIRST_MS + round(day * DAY_MS)
        CLOCK.now_s += 1
        world.send(*(replace(record, time_ms=self._now_ms) for record in records))
        world.run()

    def lose_index(self) -> None:
        """Lose the index, and let the daemon rebuild it."""
        world = self._world
        world.server.go_back(None)
        world.broker.rebalance(GROUP)
        (daemon,) = world.daemons
        for _ in range(20):
            world.turn(daemon)
            if world.index._fingerprint is not None and world.index.held_by() is None:
                return
        raise AssertionError("the index is not rebuilt")

    def alerts(self) -> list[Alert]:
        """Published alerts, in order."""
        return [decode_alert(record.value) for record in self._world.broker.records(DUPLICATES)]

    def alerted(self) -> list[int]:
        """How often each pair was alerted."""
        return sorted(Counter(self._world.pairs()).values())


@pytest.fixture
def months(monkeypatch):
    return Months(monkeypatch)


def toggled(day: int) -> tuple[Sent, Sent]:
    """Both documents of a pair, with other texts on every second call."""
    if day % 10:
        return Sent("a", OTHER, 0), Sent("b", UNLIKE, 0)
    return Sent("a", TEXT, 0), Sent("b", COPY, 0)


@pytest.mark.parametrize("lost_on", [None, 20, 30, 35, 40, 60, 90])
def test_documents_that_outlive_their_alert_by_changes_are_alerted_once(months, lost_on):
    for day in range(0, 105, 5):
        if day == lost_on:
            months.lose_index()
        months.send(day, *toggled(day))
    assert months.alerted() == [1]


@pytest.mark.parametrize("lost_on", [None, 33, 60, 95])
def test_a_document_that_was_deleted_before_the_replayed_window_is_alerted_anew_when_it_returns(months, lost_on):
    months.send(0, Sent("a", TEXT, 0), Sent("b", COPY, 0))
    months.send(1, Sent("a", "", 0, op="delete"))
    for day in range(20, 101, 20):
        if lost_on is not None and day - 20 < lost_on <= day:
            months.lose_index()
        # Sent again, so that only "b" lives on.
        months.send(day, Sent("b", UNLIKE, 0))
        months.send(day + 0.5, Sent("b", COPY, 0))
    months.send(101, Sent("a", TEXT, 0))
    assert months.alerted() == [2]


@pytest.mark.parametrize("lost_on", [None, 30, 60, 140])
def test_a_document_keeps_its_incarnation_when_its_deletion_is_older_than_all_that_is_replayed(months, lost_on):
    months.send(0, Sent("a", TEXT, 0))
    months.send(1, Sent("a", "", 0, op="delete"))
    for day in range(10, 155, 5):
        if day == lost_on:
            months.lose_index()
        months.send(day, *toggled(day))
    assert months.alerted() == [1]


#: The end of "a", and a pair of it with an earlier version of "b".
END, EARLIER = Sent("a", "", 0, op="delete"), (Sent("a", TEXT, 0), Sent("b", f"{TEXT} jetty", 0))


def test_a_document_that_was_inserted_again_without_an_alert_keeps_its_incarnation_in_a_rebuild(months):
    for day, records in enumerate(([Sent("a", TEXT, 0)], [END], toggled(0), [END], [Sent("a", UNLIKE, 0)])):
        months.send(day, *records)
    months.lose_index()
    months.send(10, Sent("a", TEXT, 0))
    assert months.alerted() == [2]


def test_an_append_after_a_rebuild_alerts_no_pair_of_a_document_that_was_deleted_and_inserted_again(months):
    months.send(0, Sent("a", TEXT, 0))
    months.send(1, Sent("a", "", 0, op="delete"))
    months.send(2, Sent("a", TEXT, 0))
    months.send(2.5, Sent("b", COPY, 0))
    months.send(32.1, Sent("other", UNLIKE, 0))
    months.lose_index()
    months.send(32.4, Sent("a", "zinc", 0, op="append"))
    assert months.alerted() == [1]


@pytest.mark.parametrize("is_recreated", [False, True])
def test_a_document_whose_deletion_is_forgotten_has_its_first_incarnation_also_after_a_rebuild(months, is_recreated):
    pair = toggled(0)
    for day, records in (0, pair[:1]), (1, [END]), (2, EARLIER), (3, [END, replace(END, id="b")]):
        months.send(day, *records)
    if is_recreated:
        months.recreate(120)  # offsets begin again
    months.send(130, *pair)
    months.lose_index()
    months.send(131, Sent("a", OTHER, 0))
    months.send(132, pair[0])
    assert months.alerted() == [2]


def test_the_incarnation_in_the_latest_alert_counts_in_whatever_order_partitions_are_read(months):
    for day, records in enumerate((EARLIER[:1], [END], EARLIER, [END], toggled(0))):
        months.send(day, *records)
    in_order, backwards = Seeds(None, [], None), Seeds(None, [], None)
    alerts = months.alerts()
    for alert, other in zip(alerts, reversed(alerts), strict=True):
        in_order.add(alert)
        backwards.add(other)
    assert in_order._incarnations == backwards._incarnations != {}


def test_of_two_alerts_at_the_same_time_the_incarnation_of_the_later_counts():
    seeds, number = Seeds(None, [], None), document_number("articles", "a")
    for incarnation in ("ff" * 8, "00" * 8):
        seeds.add(an_alert(structs.replace(a_document("a", Position(INPUT, 0, 1)), incarnation=incarnation)))
    assert seeds._incarnations[number][-1] == "00" * 8


def test_an_alert_tells_the_incarnations_of_its_document_and_of_all_its_matches():
    seeds, at = Seeds(None, [], None), Position(INPUT, 0, 1)
    document, *matches = (
        structs.replace(version, incarnation=version.id * 16)
        for version in (a_document("a", at), a_match("b", at), a_match("c", at))
    )
    seeds.add(an_alert(document, *matches))
    told = {document_number("articles", name): (0, name * 16) for name in "abc"}
    assert seeds._incarnations == told


@pytest.mark.parametrize(
    ("later_ms", "is_document", "is_replaced"),
    [(LIFETIME_MS, False, False), (LIFETIME_MS + 1, False, True), (1, True, True)],
)
def test_a_match_with_the_first_incarnation_replaces_another_only_after_a_lifetime(later_ms, is_document, is_replaced):
    seeds = Seeds(None, [], LIFETIME_MS)
    old, new = Position(INPUT, 0, 1), Position(INPUT, 0, 2)
    seeds.add(an_alert(structs.replace(a_document("a", old), incarnation="ff" * 8)))
    if is_document:
        alert = an_alert(a_document("a", new), detected_at_ms=later_ms)
    else:
        alert = an_alert(a_document("b", new), a_match("a", old, 1.0), detected_at_ms=later_ms)
    seeds.add(alert)
    assert seeds._incarnations[document_number("articles", "a")][-1] == ("" if is_replaced else "ff" * 8)


def test_alerts_behind_a_record_of_another_program_are_read():
    alert = an_alert(a_document("b", Position(INPUT, 0, 1)), a_match("a", Position(INPUT, 0, 0)))
    values = [b"{}", None, *encode_alert(alert)]
    records = (Record(Position(DUPLICATES, 0, offset), 0, None, value) for offset, value in enumerate(values))
    assert list(alerts_in(Batch(tuple(records)), AlertReader(), alert.profile)) == [alert]
