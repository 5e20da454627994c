"""Rendering: terminal-safe text, differences of texts, pairs and dead letters as lines; counters of the demo."""

import io
import re
from datetime import datetime

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from prometheus_client.exposition import generate_latest
from rich.console import Console

from streamdedup.cli.demo_run import DaemonCounters
from streamdedup.cli.output import showing_share
from streamdedup.cli.rendering import differences
from streamdedup.cli.rendering.dead_letters import dead_letter_notice
from streamdedup.cli.rendering.differences import GAP, compare
from streamdedup.cli.rendering.pairs import INCOMPLETE, AlertView, Side, match_line, side_by_side
from streamdedup.cli.rendering.safe_text import printable
from streamdedup.cli.rendering.terminal import TIME_FORMAT, local_time
from streamdedup.counts import listed_counts
from streamdedup.daemon.metrics import Metrics
from streamdedup.kafka.protocols import Record
from streamdedup.position import Position
from streamdedup.text.alignment import MAX_WORDS
from streamdedup.wire.dead_letters import DeadLetter
from tests.alerts import a_document, a_match, an_alert
from tests.thoroughness import examples

PLACE = Position("articles", 0, 7)
MATCH = a_match("old-1", PLACE, 0.89761)
ALERT = an_alert(a_document("new-1", PLACE), MATCH, cluster_id="old-1", detected_at_ms=1_700_000_000_000)


def changed(pieces):
    return [piece.text for piece in pieces if piece.kind == "changed"]


def written(pieces):
    return "".join(piece.text + piece.space for piece in pieces)


def rendered(renderable, width=100):
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(renderable)
    return console.file.getvalue()


def alert_lines(**changes):
    """Return the lines that show the alert with other fields."""
    console = Console(file=io.StringIO(), width=40, color_system=None)
    AlertView(console).show(replace(ALERT, **changes))
    return console.file.getvalue().splitlines()


@pytest.mark.parametrize(
    ("left", "right", "marked"),
    [
        ("Crossings take thirty minutes each way.", "Crossings take forty minutes each way.", ("thirty", "forty")),
        ("老茶馆停业三年之后，上周日重新开门", "老茶馆停业三年之后，上周六重新开门", ("日", "六")),
        ("केवल आठ सौ", "केवल नौ सौ", ("आठ", "नौ")),
        ("so red, round things", "so blue, square things", ("red, round", "blue, square")),
    ],
    ids=["words", "a script without spaces", "combining marks", "a comma apart"],
)
def test_only_the_words_that_differ_are_marked(left, right, marked):
    comparison = compare(left, right)
    assert (changed(comparison.left), changed(comparison.right)) == ([marked[0]], [marked[1]])


@pytest.mark.parametrize(
    "other", ["ONE TWO THREE", "one\ttwo \n three", "one two three", "\uff4f\uff4e\uff45 two three"]
)
def test_case_blanks_and_form_of_characters_are_no_difference(other):
    assert compare("one two three", other).is_same


def test_long_shared_stretches_lose_their_middle_on_both_sides():
    shared = " ".join(f"word{number}" for number in range(100))

    comparison = compare(f"first {shared} alpha {shared}", f"first {shared} beta {shared}")

    for side in (comparison.left, comparison.right):
        assert [piece.kind for piece in side] == ["gap", "same", "changed", "same", "gap"]
        assert len(written(side)) < 200


def test_two_equal_texts_show_their_beginning():
    text = " ".join(f"word{number}" for number in range(100))

    comparison = compare(text, text)

    assert comparison.is_same
    assert written(comparison.left).startswith("word0 word1")
    assert written(comparison.left).endswith(GAP)


def test_the_beginnings_of_texts_that_are_too_long_to_be_aligned_are_shown_without_marks():
    comparison = compare("a " * (MAX_WORDS + 1), "b")

    assert [piece.kind for piece in comparison.left] == ["same", "gap"]
    assert differences.BEGINNING_CHARS - 10 < len(written(comparison.left)) < differences.BEGINNING_CHARS + 10
    assert [piece.kind for piece in comparison.right] == ["same"]
    assert not comparison.is_same
    long = Side("n", PLACE, "a " * (MAX_WORDS + 1))
    assert "one text has more than 10,000 words" in rendered(side_by_side(long, long, coloured=False), 200)


@settings(max_examples=examples(200))
@given(left=st.text(max_size=80), right=st.text(max_size=80))
def test_short_texts_are_shown_whole_apart_from_blanks(left, right):
    comparison = compare(left, right)

    for text, pieces in ((left, comparison.left), (right, comparison.right)):
        if not any(piece.kind == "gap" for piece in pieces):
            shown = re.sub("⟦U\\+([0-9A-F]+)⟧", lambda name: chr(int(name[1], 16)), written(pieces))
            assert "".join(printable(shown).split()) == "".join(printable(text).split())


@settings(max_examples=examples(200))
@given(left=st.text(max_size=80), right=st.text(max_size=80))
def test_what_stays_unmarked_is_the_same_on_both_sides(left, right):
    comparison = compare(left, right)
    unmarked = [
        differences._folded("".join(written([piece for piece in side if piece.kind == "same"]).split()))
        for side in (comparison.left, comparison.right)
    ]

    if len(left) < differences.CONTEXT_CHARS and len(right) < differences.CONTEXT_CHARS:
        # Folding a whole may compose across tokens; the letters are the same in any case.
        assert differences._folded(unmarked[0]) == differences._folded(unmarked[1])


@settings(max_examples=examples(200))
@given(text=st.text())
@example(text="\x1b\x7f\x9b\u202a\u202e\u2066\u2069")
def test_nothing_that_steers_a_terminal_gets_through(text):
    shown = printable(text)

    assert not any(ord(character) < 32 or 0x7F <= ord(character) < 0xA0 for character in shown)
    assert not any("\u202a" <= character <= "\u202e" or "\u2066" <= character <= "\u2069" for character in shown)
    shown.encode()


ESTIMATED = {"method": "estimated", "standard_error": 0.0353}
CONTAINED = {"containment": 0.95, "contained": "match"}
BY_CONTAINMENT = {"containment": 0.95, "containment_error": 0.0192, "contained": "document", "reason": "containment"}


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({}, ["0.8976 exact"]),
        (ESTIMATED, ["0.8976 estimated ±0.035"]),
        (CONTAINED, ["0.8976 exact", "old in new 0.9500"]),
        (ESTIMATED | BY_CONTAINMENT, ["0.8976 estimated ±0.035", "new in old 0.9500 ±0.019, alerted by containment"]),
    ],
)
def test_a_pair_is_one_line_with_errors_of_estimates_and_the_containment(changes, parts):
    line = match_line(ALERT, replace(MATCH, **changes)).plain

    assert line.split("  ")[1:] == ["articles", "new-1 ~ old-1", *parts, "cluster old-1"]


@pytest.mark.parametrize("complete", [True, False])
def test_an_alert_whose_candidates_were_not_all_compared_says_so(complete):
    assert alert_lines(complete=complete)[1:] == ([] if complete else [INCOMPLETE])


def test_an_alert_tells_how_many_pairs_were_suppressed_by_which_rule():
    shown = alert_lines(suppressed={"min_shingles": 1, "ignore_same_source": 1_200})
    assert shown[1:] == ["          not alerted: 1,200 ignore_same_source, 1 min_shingles"]


def test_below_a_pair_are_the_words_by_which_people_recognise_its_documents():
    old = replace(MATCH, label="Ferry link returns after eleven years", source="Tidewater", published_at="2026-03-02")
    new = replace(ALERT.document, label="Boats [b]to\x1b Kestrel Bay", published_at=None)
    shown = alert_lines(document=new, matches=(old, replace(old, id="old-2", source=None), MATCH))
    assert [line for line in shown if " ~ " not in line] == [
        "          new  Boats [b]to  Kestrel Bay",
        "          old  Ferry link returns after eleven years  Tidewater, 2026-03-02",
        "          old  Ferry link returns after eleven years  2026-03-02",
    ]


@pytest.mark.parametrize(
    ("cluster_id", "lines"), [("new-1", []), ("old-1", []), ("x", ["          first  Ferry link"])]
)
def test_the_first_document_of_the_cluster_is_named_unless_it_is_shown(cluster_id, lines):
    shown = alert_lines(cluster_id=cluster_id, cluster_label="Ferry\nlink")
    assert [line for line in shown if " ~ " not in line] == lines


@pytest.mark.parametrize(("size", "shown"), [(None, ""), (2, " (2)"), (999, " (999)"), (1000, " (1000+)")])
def test_a_pair_has_the_size_of_its_cluster(size, shown):
    line = match_line(replace(ALERT, cluster_id="c", cluster_size=size), MATCH).plain
    assert line.endswith(f"  cluster c{shown}")


SPREAD = {
    "cluster_size": 7,
    "cluster_sources": 3,
    "cluster_since": "2026-05-01T06:31:20.004Z",
    "cluster_until": "2026-05-01T07:02:11.480Z",
    "cluster_earliest_id": "old-1",
    "cluster_earliest_source": "Tide\nwater",
}


@pytest.mark.parametrize(
    ("changes", "shown"),
    [
        ({}, "3 sources, {} to {}, earliest Tide water old-1"),
        ({"cluster_size": 1000}, "3+ sources, {} to {}, earliest Tide water old-1"),
        ({"cluster_sources": 1, "cluster_earliest_source": None}, "1 source, {} to {}, earliest old-1"),
        ({"cluster_earliest_id": None, "cluster_earliest_source": None}, "3 sources, {} to {}"),
    ],
)
def test_an_alert_tells_how_many_sources_the_cluster_has_since_when(changes, shown):
    times = [datetime.fromisoformat(SPREAD[f"cluster_{end}"]).timestamp() for end in ("since", "until")]
    times = [local_time(time_s, TIME_FORMAT) for time_s in times]
    assert alert_lines(**SPREAD | changes)[1:] == [f"          {shown.format(*times)}"]


def test_ids_are_never_taken_for_markup_or_control_sequences():
    alert = replace(ALERT, document=a_document("[red]x\x1b[31m", PLACE))

    assert "[red]x [31m ~ old-1" in rendered(match_line(alert, MATCH))
    assert alert_lines(suppressed={"\x1b[2J": 1})[1:] == ["          not alerted: 1  [2J"]


@pytest.mark.parametrize(("no_color", "mark"), [(True, "{+Boats+}"), (False, "Boats")])
def test_brackets_mark_differences_where_the_terminal_shows_no_colours(no_color, mark):
    console = Console(file=io.StringIO(), width=100, force_terminal=True, color_system="256", no_color=no_color)
    AlertView(console, lambda name, *_: Side(name, PLACE, "Boats run" if name == "new-1" else "Ferries run")).show(
        ALERT
    )
    assert mark in re.split(r"\x1b\[[0-9;]*m| ", console.file.getvalue())


@pytest.mark.parametrize("time_ms", [-(10**17), 10**17])
def test_a_time_beyond_the_calendar_is_no_reason_to_stop(time_ms):
    assert local_time(time_ms / 1000, "%H:%M") == "?"


def test_a_dead_letter_is_one_line():
    headers = {"topic": "articles", "partition": "2", "offset": "15", "error.code": "not_json"}
    headers |= {"error.message": "the value is not JSON\nat all", "time": "2026-03-02T06:24:00.000Z"}
    record = Record(PLACE, 0, None, b"", tuple((f"streamdedup.dlq.{k}", v.encode()) for k, v in headers.items()))

    line = dead_letter_notice(DeadLetter(record)).plain
    assert line.endswith("dead letter  articles:2:15  not_json  the value is not JSON\\nat all")


def test_a_dead_letter_without_headers_is_shown_all_the_same():
    assert "dead letter  ?  ?  " in dead_letter_notice(DeadLetter(Record(PLACE, 0, None, b""))).plain


def test_a_title_of_progress_is_no_markup(monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")  # makes rich take any stream for a terminal
    with showing_share("a[/b][red].jsonl", 1) as add:
        add(1)
    assert "a[/b][red].jsonl" in capsys.readouterr().err


def test_control_codes_in_the_topic_of_a_match_are_not_shown():
    place = Position("t\x1b[2J", 0, 1)
    assert "\x1b" not in rendered(side_by_side(Side("n", place, "one"), Side("o", place, "two"), coloured=False))


@pytest.mark.parametrize(
    ("other", "coloured", "lines"),
    [
        ("one 2 three", False, ("one {+two+} three", "one [-2-] three")),
        ("one three", False, ("one {+two+} three", "one three")),
        ("one 2 three", True, ("one two three", "one 2 three")),
    ],
)
def test_differences_stand_in_brackets_unless_they_are_coloured(other, coloured, lines):
    shown = rendered(side_by_side(Side("n", PLACE, "one two three"), Side("o", PLACE, other), coloured=coloured))
    assert [line in shown for line in lines] == [True, True]
    assert shown.count("[-") == sum("[-" in line for line in lines)


def test_a_missing_text_is_explained():
    missing = Side("o", PLACE, None, "continued by \x1b[2Jappends")
    shown = rendered(side_by_side(Side("n", PLACE, "one two"), missing, coloured=False))

    assert "one two" in shown
    assert "continued by " in shown
    assert "\x1b" not in shown


def test_the_counters_are_those_of_the_metrics():
    metrics = Metrics()
    metrics.records.labels("articles", "upsert").inc(7)
    metrics.records.labels("articles", "invalid").inc(2)
    metrics.documents_indexed.labels("articles").inc(6)
    metrics.skipped.labels("articles", "empty").inc()
    metrics.dead_letters.labels("articles", "not_json").inc(2)
    metrics.dead_letters.labels("articles", "too_deep").inc(0)
    metrics.pairs.labels("articles").inc(3)

    counters = DaemonCounters.parse(generate_latest(metrics.registry).decode())

    assert counters.balance() == "9 consumed = 6 indexed + 1 skipped + 2 dead letters"
    assert counters.pairs == 3
    assert listed_counts(counters.dead_letters) == "2 not_json"


def test_an_account_that_does_not_add_up_is_seen():
    metrics = Metrics()
    metrics.records.labels("articles", "upsert").inc()

    counters = DaemonCounters.parse(generate_latest(metrics.registry).decode())

    assert not counters.is_balanced
    assert "≠" in counters.balance()
