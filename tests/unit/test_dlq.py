"""Dead letters as the commands see them: what is shown of them, which are meant, which are replayed."""

import contextlib
import json
import math
import re
import unicodedata
from datetime import datetime
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from typer.testing import CliRunner

from streamdedup.cli import dlq, dlq_replay, guards, main, settings_options
from streamdedup.cli.dlq_replay import (
    DeadLetterFilter,
    DeadLetterReplay,
    LeftOut,
    Tally,
    message_of,
    message_of_fetched,
)
from streamdedup.cli.rendering.dead_letters import dead_letter_json, dead_letter_line
from streamdedup.cli.rendering.safe_text import escaped
from streamdedup.cli.settings_options import parse_since
from streamdedup.errors import BrokerMisconfigured, SettingsError, StreamdedupError
from streamdedup.kafka.pace import Pace
from streamdedup.kafka.protocols import Batch, CommittedOffset, Record
from streamdedup.position import Position
from streamdedup.wire import dead_letters
from streamdedup.wire.dead_letters import MIN_BYTES, PREFIX, DeadLetter, Failure, Stage, dead_letter, read_headers
from tests.support.clock import ManualClock

DAEMON = dead_letters.DaemonInfo("group", "a", "1.0")
ORIGIN = Position("articles", 2, 1042)
TIME_MS = 1_777_618_931_612
SETTINGS = [
    word
    for setting in ("kafka.bootstrap_servers=h:2", "redis.url=redis://h:1", "redis.allow_plaintext=true",
                    "profiles.articles.topics=articles")
    for word in ("--set", setting)
]  # fmt: skip


def letter(code="missing_text", *, offset=0, origin=ORIGIN, number=1, **fields):
    """A dead letter as the daemon makes it, ``number`` times over, at ``offset`` of the dead-letter topic."""
    options = {name: fields.pop(name) for name in ("topic_id", "max_bytes") if name in fields}
    stage = Stage.READ if fields.pop("unread", False) else Stage.DECODE
    fields = {"key": b"k", "value": b'{"id": "k"}', "headers": (), "timestamp_ms": TIME_MS - 500} | fields
    record = Record(origin, fields["timestamp_ms"], fields["key"], fields["value"], fields["headers"])
    failure = Failure(stage, code, "DecodeError", "no text: `text` missing or null")
    for number_before in reversed(range(number)):
        # Each replay goes to a later place of the partition.
        record = structs.replace(record, position=origin._replace(offset=origin.offset - number_before))
        made = dead_letter("dead", record, failure, DAEMON, time_ms=TIME_MS, **options)
        record = Record(origin, made.timestamp_ms or 0, made.key, made.value, made.headers)
    return DeadLetter(structs.replace(record, position=Position("duplicates.dlq", 0, offset)))


def foreign(value=b"value", headers=()):
    """A record of the dead-letter topic that no daemon has written."""
    return DeadLetter(Record(Position("duplicates.dlq", 0, 0), TIME_MS, None, value, headers))


def shown(one):
    return dead_letter_line(one).plain


# What is shown


@given(st.one_of(st.text(), st.binary()), st.integers(1, 40))
def test_nothing_that_steers_a_terminal_is_ever_shown(content, limit):
    text = escaped(content, limit)
    assert len(text) <= limit + 1
    assert all(unicodedata.category(character) not in {"Cc", "Cf", "Cs", "Zl", "Zp"} for character in text)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"\x1b[31mred\x07", "\\x1b[31mred\\x07"),
        ("\u202eabc\u2066", "\\u202eabc\\u2066"),
        ("a\nb\tc\r", "a\\nb\\tc\\r"),
        (b"gr\xfcn", "gr\\xfcn"),
        ("\x9b0m\x7f", "\\x9b0m\\x7f"),
        ("\U000e0041", "\\U000e0041"),
        ("老茶馆 – ü", "老茶馆 – ü"),
        (b"x" * 500, "x" * 80 + "…"),
        ("x" * 80, "x" * 80),
        ("", ""),
        # A character that is cut off is not shown as broken.
        ("馆".encode() * 1000, "馆" * 80 + "…"),
    ],
)
def test_hidden_characters_are_shown_by_their_numbers_and_long_texts_are_cut(content, text):
    assert escaped(content, 80) == text


def test_a_line_names_time_code_place_reason_and_the_beginning_of_the_value():
    time = datetime.fromtimestamp(TIME_MS / 1000).astimezone().strftime("%Y-%m-%d %H:%M:%S%z")
    assert shown(letter()) == (f'{time}  missing_text  articles:2:1042  no text: `text` missing or null  {{"id": "k"}}')


def test_a_line_has_the_number_of_failures_and_marks_null_empty_and_unread_values():
    assert "(failed 3 times)" in shown(letter(number=3))
    assert shown(letter(value=None)).endswith("(null)")
    assert shown(letter(value=b"")).endswith("(empty)")
    assert shown(letter(unread=True, key=None, value=None)).endswith("(unread)")


def test_what_no_daemon_has_written_is_shown_with_question_marks():
    line = shown(foreign(b"\x1b[2J", [(f"{PREFIX}partition", b"x"), (f"{PREFIX}time", b"yesterday")]))
    assert line.endswith("  ?  ?    \\x1b[2J")
    assert json.loads(dead_letter_json(foreign()))["origin"] is None


def test_json_has_everything_in_ascii_on_one_line():
    one = letter(
        value=b"\xff\x00", key="ключ".encode(), headers=(("trace", b"\x1b["), ("none", None), ("bin", b"\xfe"))
    )
    text = dead_letter_json(one)
    assert re.fullmatch(r"[ -~]+", text)
    read = json.loads(text)
    assert read["dead_letter"] == {"topic": "duplicates.dlq", "partition": 0, "offset": 0}
    assert read["origin"] == {"topic": "articles", "partition": 2, "offset": 1042}
    assert (read["code"], read["attempts"], read["time"]) == ("missing_text", 1, "2026-05-01T07:02:11.612Z")
    assert (read["key"], read["value_base64"]) == ("ключ", "/wA=")
    assert read["headers"] == [
        {"name": "trace", "value": "\x1b["},
        {"name": "none", "value": ""},
        {"name": "bin", "value_base64": "/g=="},
    ]
    assert read["facts"]["null-headers"] == '["none"]'


# Which ones are meant


@pytest.mark.parametrize(
    ("condition", "is_accepted"),
    [
        (DeadLetterFilter(), True),
        (DeadLetterFilter(codes=frozenset({"not_json", "missing_text"})), True),
        (DeadLetterFilter(codes=frozenset({"not_json"})), False),
        (DeadLetterFilter(topics=frozenset({"articles"}), since_s=0.0), True),
        (DeadLetterFilter(topics=frozenset({"reviews"})), False),
        (DeadLetterFilter(since_s=TIME_MS / 1000), True),
        (DeadLetterFilter(since_s=TIME_MS / 1000 + 0.001), False),
    ],
)
def test_a_filter_accepts_a_letter_for_which_all_conditions_hold(condition, is_accepted):
    assert condition.accepts(letter()) is is_accepted


def test_a_filter_with_a_condition_does_not_accept_all():
    assert DeadLetterFilter().accepts_all
    conditions = ({"codes": frozenset({"a"})}, {"topics": frozenset({"a"})}, {"since_s": 0.0})
    assert not any(DeadLetterFilter(**condition).accepts_all for condition in conditions)


def test_since_is_a_time_or_how_long_ago(monkeypatch):
    monkeypatch.setattr(settings_options.time, "time", lambda: 10_000.0)
    assert parse_since("2h") == 2_800.0
    assert parse_since("1970-01-01T01:00:00Z") == 3_600.0
    assert parse_since("1970-01-02") == datetime(1970, 1, 2).astimezone().timestamp()
    for text in ("yesterday", "2", "", "9999999-01-01"):
        with pytest.raises(SettingsError, match="--since"):
            parse_since(text)


# Which ones are replayed


@pytest.mark.parametrize(
    ("one", "reason"),
    [
        (letter(), None),
        (letter(number=2), None),
        (letter(number=3), LeftOut.EXHAUSTED),
        (letter(value=None), None),
        (letter(key=None, value=b""), None),
        (letter(key=None, value=None), LeftOut.NULL),
        (letter(headers=(("h", None),)), None),
        (letter(unread=True, key=None, value=None), None),
        (letter(unread=True, topic_id="present", key=None, value=None), None),
        (letter(unread=True, topic_id="deleted", key=None, value=None), LeftOut.GONE),
        (letter(value=b"x" * MIN_BYTES, max_bytes=MIN_BYTES), LeftOut.TRUNCATED),
        (letter(value=b"", headers=(("h", b"x" * MIN_BYTES),), max_bytes=MIN_BYTES), LeftOut.TRUNCATED),
        (letter(key=b"x" * MIN_BYTES, max_bytes=MIN_BYTES), LeftOut.TRUNCATED),
        (letter(origin=Position("articles", 4, 0)), LeftOut.FOREIGN),
        (letter(origin=Position("duplicates", 0, 0)), LeftOut.FOREIGN),
        (foreign(), LeftOut.FOREIGN),
    ],
)
def test_only_whole_records_of_input_topics_that_have_not_failed_too_often_are_replayed(one, reason):
    assert dlq_replay.reason_to_leave_out(one, {"articles": 4}, {"articles": "present"}) is reason


def test_what_is_sent_back_is_the_record_and_fails_as_its_next_attempt():
    one = letter(number=2, headers=(("trace", b"1"), ("none", None)), timestamp_ms=77)
    message = message_of(one, one.origin)
    assert (message.topic, message.key, message.value, message.timestamp_ms) == ("articles", b"k", b'{"id": "k"}', 77)
    assert message.headers[:2] == (("trace", b"1"), ("none", b""))
    failed = Record(Position("articles", 2, 2000), 77, message.key, message.value, message.headers)
    again = dead_letter(
        "dead", failed, Failure(Stage.DECODE, "missing_text", "DecodeError", "no"), DAEMON, time_ms=TIME_MS
    )
    assert dict(again.headers)[f"{PREFIX}attempts"] == b"3"
    assert dict(again.headers)[f"{PREFIX}offset"] == b"2000"


def test_a_letter_without_bytes_is_sent_with_those_of_its_record_and_fails_as_its_next_attempt():
    one = letter("unreadable", unread=True, key=None, value=None, timestamp_ms=-1)
    fetched = Record(ORIGIN, 77, b"k", None, (("trace", b"1"), ("none", None), (f"{PREFIX}attempts", b"99")))
    message = message_of_fetched(one, ORIGIN, fetched)
    assert (message.topic, message.key, message.value, message.timestamp_ms) == ("articles", b"k", None, 77)
    assert message.headers[:2] == (("trace", b"1"), ("none", b""))
    facts = read_headers(message.headers)
    assert (facts["attempts"], facts["error.code"], "unread" in facts) == ("1", "unreadable", False)
    assert sum(name == f"{PREFIX}attempts" for name, _ in message.headers) == 1
    failed = Record(ORIGIN._replace(offset=2_000), 77, message.key, message.value, message.headers)
    again = dead_letter("dead", failed, Failure(Stage.DECODE, "not_json", "DecodeError", "no"), DAEMON, time_ms=TIME_MS)
    facts = read_headers(again.headers)
    assert (facts["attempts"], "unread" in facts) == ("2", False)


def test_a_fetched_record_with_neither_key_nor_value_cannot_be_sent():
    one = letter("unreadable", unread=True, key=None, value=None)
    assert message_of_fetched(one, ORIGIN, Record(ORIGIN, 77, None, None)) is None


def test_a_record_without_a_time_is_sent_without_one():
    one = letter()
    bare = DeadLetter(Record(one.record.position, -1, b"k", b"v", one.record.headers))
    assert message_of(bare, one.origin).timestamp_ms is None


@pytest.fixture
def inspect(monkeypatch):
    """Return a function that runs ``dlq inspect`` over dead letters, and returns its lines."""
    letters = [*[letter("not_json")] * 2, *[letter("missing_text")] * 3, foreign()]
    letters.append(letter("\x1b[2Jtoo_large", origin=ORIGIN._replace(topic="reviews")))
    batches = [Batch(tuple(one.record for one in letters))]
    reader = contextlib.nullcontext(SimpleNamespace(batches=lambda: iter(batches)))
    monkeypatch.setattr(dlq, "TopicReader", lambda _options: reader)

    def run(*options, code=0):
        done = CliRunner().invoke(main.app, ["dlq", "inspect", *options, *SETTINGS])
        assert (done.exit_code == code) or isinstance(done.exception, code), done.output
        return [line.split() for line in done.stdout.splitlines()]

    return run


def test_dead_letters_are_counted_by_topic_and_code_the_most_first(inspect):
    lines = inspect("--count")
    assert lines[:2] == [["3", "articles", "missing_text"], ["2", "articles", "not_json"]]
    assert sorted(lines[2:]) == [["1", "?", "?"], ["1", "reviews", "\\x1b[2Jtoo_large"]]
    assert inspect("--count", "--code", "not_json") == [["2", "articles", "not_json"]]
    inspect("--count", "--json", code=SettingsError)


def test_inspection_ends_at_its_limit(inspect):
    assert [len(inspect("--limit", str(limit))) for limit in (1, 4, 10**20)] == [1, 4, 7]
    assert len(inspect("--code", "missing_text", "--limit", "2")) == 2  # two letters of another code are first
    assert inspect("--count", "--limit", "2") == [["2", "articles", "not_json"]]


@pytest.fixture
def broker(monkeypatch):
    """Two dead letters of two codes, the progress that is stored (by partition), and the records that are sent."""
    letters = [letter("not_json", offset=0), letter("missing_text", offset=1)]
    partition, stored, starts, sent = letters[0].record.position.topic_partition, {}, {}, []

    def batches():
        return [Batch(tuple(one.record for one in letters[starts[partition] :]))]

    reader = SimpleNamespace(beginnings={partition: 0}, ends={partition: 2}, start_at=starts.update, batches=batches)
    offsets = SimpleNamespace(read=lambda _partitions: dict(stored), write=stored.update)
    feeder = SimpleNamespace(send=lambda *given, **_: sent.append(given), flush=list)
    parts = {"TopicReader": reader, "GroupOffsets": offsets, "Feeder": feeder}
    for name, part in parts.items():
        monkeypatch.setattr(dlq_replay, name, lambda *_, part=part: contextlib.nullcontext(part))
    return SimpleNamespace(
        stored=stored,
        sent=sent,
        reader=reader,
        offsets=offsets,
        feeder=feeder,
        partition=partition,
        needed_rights=None,
        topic_id="old",
    )


@pytest.fixture
def replay(broker):
    """Return a function that replays the two dead letters with a filter, and returns how many are sent."""

    def run(**conditions):
        broker.sent.clear()
        with DeadLetterReplay(
            SimpleNamespace(group_id="g", topics=("d",)), DeadLetterFilter(**conditions), {"articles": 3}, {}
        ) as made:
            assert not made.is_recreated
            list(made.run())
        return len(broker.sent)

    return run


def test_a_complete_replay_is_not_repeated_and_one_with_conditions_leaves_all_to_the_next(replay):
    assert replay(codes=frozenset({"not_json"})) == 1
    assert replay() == 2
    assert replay() == 0


@pytest.mark.parametrize("interval_s", [-1, math.inf], ids=["after each dead letter", "at the end"])
def test_progress_is_committed_only_after_all_dead_letters_before_it_are_stored(
    replay, broker, monkeypatch, interval_s
):
    monkeypatch.setattr(dlq_replay, "COMMIT_INTERVAL_S", interval_s)
    in_flight, in_flight_counts = [], []
    broker.feeder.send = lambda *given, **_: in_flight.append(given)
    broker.feeder.flush = in_flight.clear
    broker.offsets.write = lambda _progress: in_flight_counts.append(len(in_flight))
    replay()
    assert set(in_flight_counts) == {0}


@pytest.fixture
def replay_command(broker, monkeypatch):
    """Return a function that runs ``dlq replay``, and returns how many are sent and standard error."""

    def require_topics(_options, needed):
        broker.needed_rights = needed
        return {"articles": 3}

    monkeypatch.setattr(dlq, "require_topics", require_topics)
    monkeypatch.setattr(dlq, "topic_ids", lambda options: dict.fromkeys(options.topics, broker.topic_id))
    monkeypatch.setattr(guards, "is_interactive", lambda: True)

    def run(*options, code=0, answer="y"):
        broker.sent.clear()
        done = CliRunner().invoke(main.app, ["dlq", "replay", *SETTINGS, *options], input=f"{answer}\n")
        assert (done.exit_code == code) or isinstance(done.exception, code), done.output
        return len(broker.sent), done.stderr + str(done.exception)

    return run


def test_a_replay_needs_the_right_to_write_only_on_the_topics_that_it_sends_to(replay_command, broker):
    more = ["--set", "profiles.articles.topics=articles,reviews"]
    for options, articles, reviews in (
        ((), ("READ", "WRITE"), ("READ", "WRITE")),
        (("--topic", "articles"), ("READ", "WRITE"), ("READ",)),
        (("--dry-run",), ("READ",), ("READ",)),
    ):
        replay_command(*options, *more)
        assert broker.needed_rights == {"articles": articles, "reviews": reviews}


@pytest.mark.parametrize("answer", ["n", ""])
def test_a_replay_sends_nothing_without_a_yes(replay_command, monkeypatch, answer):
    assert replay_command(code=1, answer=answer)[0] == 0
    monkeypatch.setattr(guards, "is_interactive", lambda: False)
    sent_count, text = replay_command(code=SettingsError)
    assert (sent_count, "--yes: required without a terminal" in text) == (0, True)


def test_a_replay_of_a_topic_that_no_profile_has_is_refused(replay_command):
    assert "no profile has this topic" in replay_command("--topic", "elsewhere", code=SettingsError)[1]


NO_PROGRESS = "stores no progress: this is the first replay, or Kafka has deleted the progress"


def test_a_replay_without_progress_says_so_and_is_refused_where_nobody_is_asked(replay_command, broker):
    sent_count, text = replay_command("--yes", code=StreamdedupError)
    assert (sent_count, broker.stored) == (0, {})
    assert f"--yes: the consumer group streamdedup.dlq-replay {NO_PROGRESS}" in text
    assert all(option in text for option in ("run it without --yes", "--since", "--from-beginning"))
    sent_count, text = replay_command()
    assert (sent_count, NO_PROGRESS in text) == (2, True)
    sent_count, text = replay_command("--yes")
    assert (sent_count, NO_PROGRESS in text) == (0, False)
    broker.stored.clear()  # Kafka deletes offsets after a time, and keeps the dead letters
    assert replay_command("--yes", code=StreamdedupError)[0] == 0
    assert NO_PROGRESS in replay_command("--dry-run", "--yes")[1]


def test_a_replay_of_some_codes_without_progress_says_so_unless_a_time_limits_it(replay_command, broker):
    code = ("--yes", "--code", "not_json")
    sent_count, text = replay_command(*code)
    assert (sent_count, NO_PROGRESS in text) == (1, True)
    assert NO_PROGRESS not in replay_command(*code, "--since", "1h")[1]
    broker.stored[broker.partition] = CommittedOffset(0)
    assert NO_PROGRESS not in replay_command(*code)[1]


@pytest.mark.parametrize("options", [("--yes", "--from-beginning"), ()])
def test_a_replay_that_may_not_store_its_progress_sends_nothing(replay_command, broker, options):
    def refuse(_progress):
        raise BrokerMisconfigured

    broker.offsets.write = refuse
    assert replay_command(*options, code=BrokerMisconfigured)[0] == 0


def test_a_replay_with_nothing_to_send_stores_the_progress_again(replay_command, broker):
    replay_command()
    kept = dict(broker.stored)
    writes = []
    broker.offsets.write = writes.append
    for options, expected in (((), [kept]), (("--dry-run",), []), (("--code", "not_json"), [])):
        writes.clear()
        assert replay_command(*options)[0] == 0
        assert writes == expected


def test_a_replay_with_nothing_to_send_moves_no_progress_back(replay_command, broker, monkeypatch):
    monkeypatch.setattr(dlq_replay, "reason_to_leave_out", lambda *_: LeftOut.FOREIGN)
    replay_command()
    assert replay_command("--yes", code=StreamdedupError)[0] == 0  # still none is stored
    broker.stored[broker.partition] = CommittedOffset(2)
    replay_command("--from-beginning")
    assert broker.stored[broker.partition].offset == 2


def test_a_replay_from_the_beginning_sends_all_whatever_progress_is_stored(replay_command, broker):
    for _ in range(2):
        assert replay_command("--yes", "--from-beginning")[0] == 2
        assert broker.stored[broker.partition].offset == 2


def test_a_topic_that_was_made_anew_with_the_progress_of_the_old_one_is_replayed_whole(replay_command, broker):
    broker.stored[broker.partition] = CommittedOffset(9)
    sent_count, text = replay_command("--yes")
    assert (sent_count, "duplicates.dlq was created again" in text) == (2, True)


@pytest.mark.parametrize(("topic_id", "sent_count"), [("new", 2), ("old", 0), ("", 0)])
def test_a_topic_with_another_id_than_at_the_last_replay_is_replayed_whole(
    replay_command, broker, topic_id, sent_count
):
    replay_command()
    broker.topic_id = topic_id
    is_new = sent_count > 0
    for expected, is_told in ((sent_count, is_new), (0, False)):
        sent, text = replay_command("--yes")
        assert (sent, "duplicates.dlq was created again" in text) == (expected, is_told)


def test_a_replay_with_conditions_or_of_an_empty_topic_needs_no_progress(replay_command, broker):
    assert replay_command("--yes", "--since", "2026-01-01")[0] == 2
    broker.reader.beginnings[broker.partition] = 2
    sent_count, text = replay_command("--yes")
    assert (sent_count, NO_PROGRESS in text) == (0, False)


def test_a_tally_lists_the_replayed_topics_and_the_reasons_of_the_others():
    tally = Tally()
    tally.topics["articles"] += 1
    for reason in (LeftOut.TRUNCATED, LeftOut.EXHAUSTED, LeftOut.TRUNCATED):
        tally.reasons[reason] += 1
    assert tally.replayed_text() == "1 dead letter (articles 1)"
    assert sorted(tally.left_out()) == [
        "1 left out: failed 3 times",
        "2 left out: truncated, so the record cannot be restored",
    ]


# The pace


def test_a_pace_is_exact_over_time_however_long_each_record_takes():
    clock = ManualClock(late_s=0.0007)
    pace = Pace(300.0, clock, clock.sleep)
    for number in range(3_000):
        pace.wait()
        assert clock.now_s - 100.0 >= number / 300.0 - 0.006
        clock.now_s += 0.001
    assert clock.now_s - 100.0 == pytest.approx(2_999 / 300.0, abs=0.01)


def test_a_pace_begins_with_the_first_record_not_with_the_connection():
    clock = ManualClock(late_s=0.0007)
    pace = Pace(10.0, clock, clock.sleep)
    clock.now_s += 60
    times = []
    for _ in range(3):
        pace.wait()
        times.append(round(clock.now_s - 160.0, 1))
    assert times == [0.0, 0.1, 0.2]


def test_after_a_long_hold_up_a_pace_makes_up_for_one_second():
    clock = ManualClock(late_s=0.0007)
    pace = Pace(10.0, clock, clock.sleep)
    pace.wait()
    clock.now_s += 60
    for _ in range(31):
        pace.wait()
    assert clock.now_s - 160.0 == pytest.approx(2.0, abs=0.11)


@pytest.mark.parametrize("rate", [1e-10, 5e-324])
def test_a_tiny_rate_waits_by_sleeps_of_at_most_a_day(rate):
    durations_s = []

    def sleep(duration_s):
        durations_s.append(duration_s)
        if len(durations_s) == 3:
            raise KeyboardInterrupt

    pace = Pace(rate, lambda: 0.0, sleep)
    pace.wait()
    with pytest.raises(KeyboardInterrupt):
        pace.wait()
    assert durations_s == [86_400.0] * 3


def test_without_a_rate_nothing_waits():
    clock = ManualClock(late_s=0.0007)
    pace = Pace(0, clock, clock.sleep)
    for _ in range(10):
        pace.wait()
    assert clock.now_s == 100.0
