"""Output on a narrow terminal: no word and no number is broken, and nothing that differs is invisible."""

import io
import re
import sys
from importlib import resources

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from streamdedup.cli import main as cli
from streamdedup.cli.output import tell, tell_prefixed
from streamdedup.cli.rendering.dead_letters import dead_letter_line
from streamdedup.cli.rendering.differences import compare
from streamdedup.cli.rendering.pairs import AlertView, Side
from streamdedup.cli.rendering.safe_text import HIDDEN, ODD_SPACES, UNSEEN, visible
from streamdedup.cli.rendering.terminal import TIME_FORMAT, local_time, print_line, wrapped
from streamdedup.daemon import logs
from streamdedup.kafka.protocols import Record
from streamdedup.position import Position
from streamdedup.wire.dead_letters import DeadLetter
from tests.alerts import a_document, a_match, an_alert

WIDTH = 80
UUID, OTHER_UUID = "3f9a1c0e-7b52-4d1f-9a63-0f5d2c8e6b17", "b07d4e21-18c5-4f6a-8e39-5a1c7f2d9e40"
PLACE = Position("articles", 0, 7)


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def narrow(monkeypatch):
    """Return a function that makes standard output and standard error terminals, and returns them."""

    def make(width=WIDTH):
        # In the test itself: pytest replaces both streams after the fixtures.
        monkeypatch.setenv("COLUMNS", str(width))
        monkeypatch.setenv("TERM", "xterm-256color")
        streams = Terminal(), Terminal()
        monkeypatch.setattr(sys, "stdout", streams[0])
        monkeypatch.setattr(sys, "stderr", streams[1])
        return streams

    return make


def console():
    return Console(file=Terminal(), width=WIDTH, force_terminal=True, color_system=None, highlight=False)


def lines(text):
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text).splitlines()


def too_long(text):
    return [line for line in lines(text) if cell_len(line) > WIDTH]


@given(st.text(" abc日é", max_size=60), st.integers(8, 30))
def test_lines_break_at_blanks_only_and_only_where_they_must(text, width):
    broken = wrapped(text, width).split("\n")
    assert [word for line in broken for word in line.split()] == text.split()
    assert all(cell_len(line.rstrip()) <= width or len(line.split()) == 1 for line in broken)
    if cell_len(text) <= width:
        assert broken == [text]


def test_codes_of_style_take_no_columns():
    styled = " ".join(f"\x1b[1m{word}\x1b[0m" for word in ["word"] * 15)
    assert wrapped(styled, WIDTH) == styled


def test_messages_and_reports_break_between_words(narrow):
    out, err = narrow()
    tell("  index      " + "does not fit the settings; a daemon with these settings does not start " * 2)
    tell_prefixed("passed over articles[0]@1234567890: " + "the value is not JSON at all " * 5)
    assert too_long(out.getvalue()) == too_long(err.getvalue()) == []
    assert "articles[0]@1234567890:" in err.getvalue()


def test_an_alert_keeps_its_ids_and_numbers_whole():
    match = a_match(OTHER_UUID, PLACE, 0.89761)
    alert = an_alert(a_document(UUID, PLACE), match, cluster_id=OTHER_UUID, complete=False)
    target = console()
    AlertView(target, lambda key, _, position: Side(key, position, "the same words " * 20)).show(alert)
    shown = target.file.getvalue()
    assert too_long(shown) == []
    assert all(shown.count(name) > 1 for name in (UUID, OTHER_UUID))
    assert "0.8976" in shown


def test_a_dead_letter_keeps_its_words_whole():
    headers = {"error.message": "field `published_at`: expected a time in RFC 3339, with its zone, got `yesterday`"}
    headers |= {"error.code": "bad_time", "time": "2026-03-02T06:24:00.000Z"}
    named = tuple((f"streamdedup.dlq.{name}", text.encode()) for name, text in headers.items())
    record = Record(Position("dlq", 0, 1), 0, b"k", b'{"title": "Ferry link to Kestrel Bay returns"}', named)
    target = console()
    print_line(target, dead_letter_line(DeadLetter(record)))
    shown = target.file.getvalue()
    assert too_long(shown) == []
    assert "`published_at`:" in shown


def test_a_log_event_on_a_terminal_breaks_between_fields():
    stream = Terminal()
    logs.configure("info", stream, fit=lambda text: wrapped(text, WIDTH))
    try:
        fields = {"records": 500, "partition": "articles[0]", **dict.fromkeys("abcdefg", 123456)}
        structlog.get_logger("x").info("batch_committed", **fields)
    finally:
        structlog.reset_defaults()
    shown = lines(stream.getvalue())
    assert len(shown) > 1
    assert too_long(stream.getvalue()) == []
    assert re.match(r"\d\d:\d\d:\d\d[+-]\d{4} ", shown[0])


def test_times_have_their_zone():
    assert re.fullmatch(r"2026-03-0[12] \d\d:24:00[+-]\d{4}", local_time(1_772_432_640, TIME_FORMAT))


@pytest.mark.parametrize("width", [WIDTH, 120])
@pytest.mark.parametrize("command", ["tune", "evaluate", "neighbours"])
def test_commands_about_files_fit_the_terminal(command, width, narrow, tmp_path):
    streams = narrow(width)
    words = [f"word{number}" for number in range(40)]
    texts = [" ".join([*words[:end], *words[end + 1 :]]) for end in range(12)]
    file = tmp_path / "a.jsonl"
    file.write_text("".join(f'{{"id": "{UUID[:-2]}{n}", "text": "{t}"}}\n' for n, t in enumerate(texts)))
    options = {"tune": ["-t", "0.8", "--unit", "word", "--size", "3"], "neighbours": ["--id", f"{UUID[:-2]}0"]}
    with pytest.raises(SystemExit) as ended:
        cli.main([command, str(file), *options.get(command, [])])
    assert ended.value.code == 0
    shown = [line for stream in streams for line in lines(stream.getvalue().split("\r")[-1]) if str(file) not in line]
    assert [line for line in shown if cell_len(line.rstrip()) > width and len(line.split()) > 1] == []
    assert any("0.9" in line or "1.0" in line for line in shown)


def changed(pieces):
    return [piece.text for piece in pieces if piece.kind == "changed"]


@pytest.mark.parametrize(
    ("left", "right", "only_left", "only_right"),
    [
        ("the fer\u200bry returns", "the ferry returns", "fer⟦U+200B⟧ry", "ferry"),
        ("costs 100\u00a0000 crowns", "costs 100 000 crowns", "⟦U+00A0⟧", ""),
        ("a \u202eword\u202c here", "a word here", "⟦U+202E⟧⟦U+202C⟧", ""),
    ],
)
def test_what_differs_invisibly_is_named(left, right, only_left, only_right):
    comparison = compare(left, right)
    assert "".join(changed(comparison.left)) == only_left
    assert "".join(changed(comparison.right)) == only_right
    assert not comparison.is_same


def test_a_space_that_both_texts_have_is_a_blank():
    comparison = compare("Vraiment\u00a0? Oui", "Vraiment\u00a0? Non")
    assert "⟦" not in "".join(piece.text for piece in (*comparison.left, *comparison.right))


def test_text_of_a_line_keeps_its_styles_where_it_breaks():
    target = console()
    print_line(target, Text.assemble(("word " * 20, "bold"), "end"))
    assert lines(target.file.getvalue())[1].startswith("  word")


def test_the_page_and_the_terminal_name_the_same_characters():
    page = resources.files("streamdedup.serve").joinpath("static", "dom.js").read_text(encoding="utf-8")
    for characters in (HIDDEN, UNSEEN, ODD_SPACES):
        assert characters.pattern in page.replace("\\\\", "\\")


@pytest.mark.parametrize("character", ["\u00ad", "\u200c", "\u200d", "\ufe0f", "\u00a0", "\u202f"])
def test_a_character_that_is_all_that_differs_is_named_and_stays_where_nothing_differs(character):
    assert visible(f"a{character}b", differs=True) == f"a⟦U+{ord(character):04X}⟧b"
    assert "⟦" not in visible(f"a{character}b", differs=False)
