"""Captions: the words, source and time by which people recognise a document, in the index and in alerts."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec import structs

from streamdedup import clock
from streamdedup.daemon.options import LoopOptions
from streamdedup.daemon.publisher import Publisher
from streamdedup.detection.captions import PART_BYTES, Caption, caption_of, label_of, read_caption
from streamdedup.detection.detector import Detector
from streamdedup.detection.lookup import IndexLookup, LookupQuery
from streamdedup.detection.model import DetectionResult, document_number
from streamdedup.kafka.protocols import Batch, Record
from streamdedup.position import Position
from streamdedup.settings import Settings
from streamdedup.wire import MIN_ALERT_BYTES, Document, decode_alert
from streamdedup.wire.copied_headers import MAX_COPIED_BYTES
from streamdedup.wire.dead_letters import DaemonInfo
from tests import streams
from tests.streams import Stream
from tests.thoroughness import examples

OPTIONS = replace(streams.OPTIONS, label_bytes=80)
TEXT = "Ferry link to Kestrel Bay returns\nThe harbour board voted on Tuesday to lease two catamarans."
MAX_LABEL_BYTES = 160


def a_document(document_id: str, text: str, offset: int, time_ms: int = 0, **more) -> Document:
    return Document(document_id, text, Position("articles", 0, offset), time_ms, **more)


@pytest.fixture
def stream() -> Stream:
    return Stream(OPTIONS)


def stored_caption(stream: Stream, document_id: str) -> Caption:
    number = document_number("articles", document_id)
    return read_caption(stream.store.get_entries([number])[number].content.caption, 80)


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("", ""),
        ("\n \t", ""),
        (TEXT, "Ferry link to Kestrel Bay returns"),
        ("\n\n  Ferry\tlink \n", "Ferry link"),
        (" " * 400 + "Ferry link", "Ferry link"),
        ("Dear all,\nthe ferry runs again from May.\nRegards", "Dear all, the ferry runs again from May."),
        ("word " * 40, "word word word word word word word word word word word word word word word word"),
        ("a" * 79 + " b", "a" * 79),
        ("a" * 80 + " b", "a" * 80),
        ("a " + "b" * 100, "a " + "b" * 78),
        ("船" * 40, "船" * 26),
        ("می\u200cخواهم", "می\u200cخواهم"),
        ("क्\u200dष \u200d x\u200c", "क्\u200dष x"),
        ("x" * 79 + "e\u0301", "x" * 79),
        ("x" * 76 + "क्\u200dष", "x" * 76),
        ("e" + "\u0301" * 60, "e" + "\u0301" * 39),
        ("\ufeffFe\u200brry\x00 \x1b[31mlink\u202e to Kestrel Bay", "Ferry [31mlink to Kestrel Bay"),
    ],
)
def test_a_label_is_the_first_words_of_a_text(text, label):
    assert label_of(text, 80) == label


@settings(max_examples=examples(300))
@given(text=st.text(), source=st.none() | st.text(), published_at=st.none() | st.text(), limit=st.integers(1, 160))
@example(text="0\r0", source="s" * (PART_BYTES - 1) + " s", published_at=None, limit=2)
def test_a_caption_is_bounded_and_visible_and_can_be_read(text, source, published_at, limit):
    stored = caption_of(a_document("a", text, 0, source=source, published_at=published_at), limit)
    caption = read_caption(stored, limit)
    assert stored is None or 0 < len(stored) <= limit + 2 * PART_BYTES + 2
    assert len(caption.label.encode()) <= limit
    without_joiners = [part.replace("\u200c", "").replace("\u200d", "") for part in caption]
    assert all(part.isprintable() and part == part.strip() for part in without_joiners)


def test_the_longest_caption_fits_into_an_index_entry():
    document = a_document("a", "x" * 999, 0, source="s" * 999, published_at="t" * PART_BYTES)
    caption = caption_of(document, MAX_LABEL_BYTES)
    assert len(caption) == MAX_LABEL_BYTES + 2 * PART_BYTES + 2 <= 255


def test_a_long_source_shows_that_it_is_cut_and_a_long_time_is_left_out():
    document = a_document("a", "", 0, source="s" * 33, published_at="t" * 33)
    assert read_caption(caption_of(document, 80), 80) == Caption("", "s" * 29 + "…")
    assert read_caption(caption_of(a_document("a", "", 0, source="s" * 32), 80), 80) == Caption("", "s" * 32)


def test_a_match_and_a_detection_have_the_labels_of_both_documents(stream):
    stream.index(a_document("old", TEXT, 0, source="Tidewater", published_at="2026-03-02"))
    (detection,) = stream.index(a_document("new", f"Boats! {TEXT}", 1)).detections
    assert detection.label == "Boats! Ferry link to Kestrel Bay returns"
    (match,) = detection.matches
    assert match.label == "Ferry link to Kestrel Bay returns"
    assert (match.source, match.published_at) == ("Tidewater", "2026-03-02")


def test_a_detection_has_the_label_of_the_first_document_in_its_cluster(stream):
    stream.index(a_document("first", TEXT, 0))
    (second,) = stream.index(a_document("second", f"Boats! {TEXT}", 1)).detections
    (third,) = stream.index(a_document("third", f"Boats! {TEXT} More later.", 2)).detections
    title, _ = TEXT.split("\n")
    assert [(each.cluster_id, each.cluster_label) for each in (second, third)] == [("first", title)] * 2
    (alone,) = Stream(OPTIONS).index(a_document("a", TEXT, 0), a_document("b", TEXT, 1)).detections
    assert (alone.cluster_id, alone.cluster_label) == ("a", alone.label)


def test_an_alert_has_the_sources_times_and_the_earliest_document_of_its_detection(stream, monkeypatch):
    monkeypatch.setattr(clock, "now_ms", lambda: 86_400_000)
    stream.index(a_document("first", TEXT, 0, source="a", time_ms=7))
    (detection,) = stream.index(a_document("second", TEXT, 1, source="b", time_ms=3)).detections
    publisher = Publisher(LoopOptions("duplicates", "dead", 900_000, DaemonInfo("group", "a", "1"), "fail"), {})
    pipeline = SimpleNamespace(name="articles", threshold=0.5, containment_threshold=0.9)
    (message,) = publisher._alert_messages(pipeline, detection, ())
    alert = decode_alert(message.value)
    assert alert.containment_threshold == 0.9
    assert (alert.cluster_sources, alert.cluster_times_ms) == (2, (3, 7))
    assert (alert.cluster_earliest_id, alert.cluster_earliest_source) == ("second", "b")
    assert alert.detected_at == "1970-01-02T00:00:00.000Z"
    (message,) = publisher._alert_messages(pipeline, replace(detection, spread=None), ())
    assert b"cluster_s" not in message.value.replace(b"cluster_size", b"")


def test_the_copied_headers_do_not_depend_on_other_profiles_of_the_batch(stream):
    result = stream.index(a_document("first", TEXT, 0), a_document("second", TEXT, 1))
    position = result.detections[0].document.position
    options = LoopOptions("duplicates", "dead", 900_000, DaemonInfo("group", "a", "1"), "fail", copy_headers=("trace",))
    pipelines = {
        name: SimpleNamespace(name=name, threshold=0.5, containment_threshold=None) for name in ("articles", "reviews")
    }
    batch = Batch((Record(position, 0, None, b"", (("trace", b"1"), ("other", b"2"))),))
    detected = {"articles": result, "reviews": DetectionResult()}
    (message,) = Publisher(options, pipelines).messages(
        SimpleNamespace(decoded=SimpleNamespace(batch=batch, topic_ids={}), detected=detected), ()
    )
    assert message.headers == (("trace", b"1"),)


def test_an_alert_is_divided_so_that_each_part_has_room_for_the_copied_headers(stream):
    (detection,) = stream.index(a_document("first", TEXT, 0), a_document("second", TEXT, 1)).detections
    detection = replace(detection, matches=[structs.replace(detection.matches[0], id="m" * 900)] * 100)
    options = LoopOptions("duplicates", "dead", MIN_ALERT_BYTES, DaemonInfo("group", "a", "1"), "fail")
    pipeline = SimpleNamespace(name="articles", threshold=0.5, containment_threshold=None)
    headers = (("trace", b"x" * (MAX_COPIED_BYTES - 5)),)
    messages = Publisher(options, {})._alert_messages(pipeline, detection, headers)
    assert max(len(message.value) for message in messages) <= MIN_ALERT_BYTES - MAX_COPIED_BYTES


def test_exact_copies_have_each_their_own_source(stream):
    stream.index(a_document("one", TEXT, 0, source="a"), a_document("two", TEXT, 1, published_at="May"))
    (detection,) = stream.index(a_document("three", TEXT, 2)).detections
    shown = [(match.id, match.source, match.published_at) for match in detection.matches]
    assert shown == [("one", "a", None), ("two", None, "May")]


def test_a_continued_document_keeps_its_caption_in_the_index_and_in_its_alert(stream):
    first, second = TEXT.split("\n")
    stream.index(a_document("whole", TEXT, 0), a_document("grown", first, 1, source="a"))
    (detection,) = stream.index(a_document("grown", second, 2, op="append")).detections
    assert (detection.document.id, detection.label) == ("grown", first)
    assert stored_caption(stream, "grown") == Caption(first, "a")


def test_a_new_version_has_its_own_caption_and_a_deletion_leaves_none(stream):
    stream.index(a_document("a", TEXT, 0, source="s"))
    stream.index(a_document("a", "Crack found in the girders of a bridge", 1))
    assert stored_caption(stream, "a") == Caption("Crack found in the girders of a bridge")
    stream.delete([a_document("a", "", 2, op="delete")])
    assert stored_caption(stream, "a") == Caption()


def test_a_replay_gives_the_same_captions(stream):
    batch = [a_document("old", TEXT, 0, source="s"), a_document("new", TEXT, 1)]
    assert stream.index(*batch).detections == stream.index(*batch).detections


def test_without_labels_nothing_of_a_text_is_stored():
    stream = Stream(replace(OPTIONS, label_bytes=0))
    stream.index(a_document("old", TEXT, 0, source="s", published_at="May"))
    (detection,) = stream.index(a_document("new", TEXT, 1, source="s", published_at="May")).detections
    (match,) = detection.matches
    assert (detection.label, match.label, match.source, match.published_at) == ("", "", None, None)
    assert stored_caption(stream, "old") == Caption()


def test_without_labels_those_of_earlier_entries_are_not_shown(stream):
    options = replace(OPTIONS, label_bytes=0)
    stream.index(a_document("old", TEXT, 0, source="s", published_at="May"), a_document("copy", TEXT, 1, source="s"))
    stream.detector = Detector(options, stream.store)
    (detection,) = stream.index(a_document("new", TEXT, 2)).detections
    (result,) = IndexLookup(options, stream.store).look_up([LookupQuery(TEXT)], 0)
    assert (detection.label, detection.cluster_label) == ("", "")
    shown = {(match.label, match.source, match.published_at) for match in (*detection.matches, *result.matches)}
    assert shown == {("", None, None)}
    stream.detector = Detector(OPTIONS, stream.store)
    assert stored_caption(stream, "old") != Caption()


def test_without_labels_the_matches_that_an_earlier_attempt_saved_have_none(stream):
    batch = [a_document("old", TEXT, 0, source="s"), a_document("new", TEXT, 1)]
    stream.index(*batch)
    stream.detector = Detector(replace(OPTIONS, label_bytes=0), stream.store)
    (detection,) = stream.index(*batch).detections
    assert [(match.label, match.source) for match in detection.matches] == [("", None)]


def test_labels_can_be_changed_without_a_new_index():
    def profile(**keys):
        values = {"kafka.bootstrap_servers": "k:1", "redis.url": "redis://r", "profiles.a.topics": "t", **keys}
        return Settings.load(None, values, environ={}).profiles["a"]

    assert profile().label_bytes == 80
    assert profile().fingerprint() == profile(**{"profiles.a.label_bytes": 0}).fingerprint()
    assert profile(**{"profiles.a.label_bytes": MAX_LABEL_BYTES}).label_bytes == MAX_LABEL_BYTES
