"""The page for people in a real Chromium: each view, hostile texts, servers that go away, bounds, and its use without a
mouse, on a phone and by a screen reader."""

import contextlib
import json
import os
import time
from dataclasses import replace
from importlib import resources
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import structs
from PIL import Image
from playwright.sync_api import expect

from streamdedup.detection.lookup import IndexLookup
from streamdedup.detection.suppression import Suppression
from streamdedup.kafka.protocols import Record
from streamdedup.position import Position
from streamdedup.serve.admission import Tokens
from streamdedup.serve.problems import TYPE_PREFIX
from streamdedup.text.alignment import MAX_WORDS
from streamdedup.wire import Decoder, encode_alert
from streamdedup.wire.dead_letters import DaemonInfo, Failure, Stage, dead_letter
from tests import alerts
from tests.browsing import DEADLINE_MS, Tab, opened_browser, serving
from tests.event_stream import MemoryTopic
from tests.integration.test_serve import fill, settings_for
from tests.served import NEAR, OPTIONS, TEXT, Service
from tests.servers import wait_until
from tests.serving import ServeProcess
from tests.support.processes import pause, resume

TOKEN = "t" * 22
#: Time of alerts and dead letters: 2026-05-01 07:22:11 UTC, in milliseconds since the epoch.
TIME_MS = 1_777_620_131_000
MARKUP = "<script>document.title='taken'</script> <img src=x onerror=\"document.title='taken'\"> &amp; {{7*7}}"
HOSTILE = {
    "script": MARKUP,
    "right to left": "\u202egnp.exe שלום עולם \u2066 مرحبا \u200f end",
    "controls": "bell \x07 escape \x1b[31m null \x00 delete \x7f next\x85line separator \u2028 end",
    "separators": "a\r\nb\rc\td \ufeff \u200b \u2060 \ufff9 end",
}
#: The same texts as the page shows them.
SHOWN = {
    "script": MARKUP,
    "right to left": "⟦U+202E⟧gnp.exe שלום עולם ⟦U+2066⟧ مرحبا ⟦U+200F⟧ end",
    "controls": "bell ␇ escape ␛[31m null ␀ delete ␡ next⟦U+0085⟧line separator ⟦U+2028⟧ end",
    "separators": "a\nb␍c\td ⟦U+FEFF⟧ ⟦U+200B⟧ ⟦U+2060⟧ ⟦U+FFF9⟧ end",
}


def an_alert(
    document_id: str, *others: tuple[str, float], source: str | None = None, profile: str = "articles", **more: Any
) -> bytes:
    """Return a published alert about a document and the documents that it resembles."""
    place = Position("articles", 0, 1)
    matches = [alerts.a_match(each, place, similarity) for each, similarity in others]
    document = alerts.a_document(document_id, place, source=source)
    found = alerts.an_alert(document, *matches, profile=profile, detected_at_ms=TIME_MS, **more)
    (value,) = encode_alert(found)
    return value


def a_letter(offset: int, code: str, text: str) -> Record:
    """Return the dead letter of a record."""
    failed = Record(Position("articles", 3, offset), 0, b"key", b"xylophone", ())
    failure = Failure(Stage.DECODE, code, "DecodeError", text)
    made = dead_letter("dead", failed, failure, DaemonInfo("group", "a", "1"), time_ms=TIME_MS)
    return Record(failed.position, TIME_MS, made.key, made.value, made.headers)


@pytest.fixture(scope="module")
def browser():
    with opened_browser() as opened:
        yield opened


@contextlib.contextmanager
def a_world(**options):
    """Yield a service on an index and an alerts topic in memory, and the address of its page."""
    topic, letters = MemoryTopic(), MemoryTopic(1, "letters")
    service = Service(
        open_reader=topic.open,
        open_letters=letters.open,
        max_body_bytes=8_000_000,
        max_bodies_bytes=16_000_000,
        **options,
    )
    profiles = service.index_thread.profiles
    profiles["articles"] = replace(
        profiles["articles"], max_text_bytes=2_000_000, decoder=Decoder(max_text_bytes=2_000_000)
    )
    try:
        with serving(service) as url:
            yield SimpleNamespace(service=service, topic=topic, letters=letters, url=url)
    finally:
        service.close()


@pytest.fixture
def world():
    with a_world() as made:
        yield made


@pytest.fixture
def open_tab(browser):
    """Open tabs, which are checked for errors at the end."""
    opened = []

    def open_at(url, view="", **context):
        tab = Tab(browser, **context)
        opened.append((tab, url))
        tab.page.goto(url + view)
        return tab

    yield open_at
    for tab, url in opened:
        tab.close(url)


@pytest.fixture
def tab(world, open_tab):
    """A tab that has the names of the profiles."""
    opened = open_tab(world.url)
    expect(opened.page.locator("#indexes")).to_contain_text("articles")
    return opened


def ask(page, text: str) -> None:
    expect(page.locator("#indexes")).to_contain_text("articles")
    page.get_by_label("Text", exact=True).fill(text)
    page.get_by_role("button", name="Find near-duplicates").click()


def receive(world, page, *alerts: bytes) -> None:
    """Commit alerts once the page follows, and wait until the page has them."""
    expect(page.locator("#live-status")).to_contain_text("Following")
    before = int(page.locator("#live-count").text_content().split(" ")[0].replace(",", "") or 0)
    world.topic.add(0, *alerts)
    expect(page.locator("#live-count")).to_contain_text(f"{before + len(alerts):,} alert", timeout=DEADLINE_MS)


class TestAsk:
    def test_a_text_has_its_near_duplicates_and_a_click_shows_the_differences(self, world, tab):
        world.service.add(("same", TEXT), ("near", NEAR), ("other", "kelp lime moss nettle oak pine quince"))
        page = tab.page
        ask(page, TEXT)
        expect(page.locator("#ask-status")).to_contain_text("2 near-duplicates with a similarity of 0.5000 or more")
        rows = page.locator("#ask-matches > li")
        expect(rows).to_have_count(2)
        expect(rows.nth(0)).to_contain_text("1.0000 same exact, 4 shared bands")
        expect(rows.nth(1)).to_contain_text("0.8750 near exact")
        expect(rows.nth(1).locator(".caption")).to_have_text(NEAR)
        rows.nth(1).get_by_role("button").click()
        expect(rows.nth(1)).to_contain_text("similarity 0.8750 (exact)")
        expect(rows.nth(1).get_by_role("region", name="your text")).to_have_text(TEXT)
        expect(rows.nth(1).get_by_role("region", name="near")).to_have_text(NEAR)
        expect(rows.nth(1).locator(".text del")).to_have_text(" iris")
        rows.nth(1).get_by_role("button", expanded=True).click()
        expect(rows.nth(1).locator(".text")).to_have_count(0)

    def test_an_exact_copy_is_said_to_be_the_same(self, world, tab):
        world.service.add(("first", TEXT))
        ask(tab.page, TEXT)
        row = tab.page.locator("#ask-matches > li")
        row.get_by_role("button", name="first").click()
        expect(row.locator(".differences")).to_contain_text("Both texts are the same.")
        assert row.locator("del, ins").count() == 0

    def test_what_the_daemon_would_skip_and_what_is_unknown_are_said_in_words(self, world, tab):
        world.service.add(("other", "kelp lime moss nettle oak pine quince"))
        ask(tab.page, "one two")
        expect(tab.page.locator("#ask-status")).to_have_text(
            "The daemon would skip this text: it has fewer words than the profile requires (min_words = 3)."
        )
        ask(tab.page, TEXT)
        expect(tab.page.locator("#ask-status")).to_contain_text("No near-duplicate with a similarity of 0.5000")

    def test_a_lower_similarity_finds_more_and_states_the_recall(self, world, tab):
        world.service.add(("half", TEXT[: len(TEXT) // 2] + " moss nettle oak pine quince reed"))
        tab.page.get_by_label("Least similarity").first.fill("0.05")
        ask(tab.page, TEXT)
        expect(tab.page.locator("#ask-status")).to_contain_text("similarity of 0.0500 or more")
        expect(tab.page.locator("#ask-status")).to_contain_text("of 100 near-duplicates")

    def test_a_text_that_kafka_no_longer_has_is_named_with_the_reason(self, world, tab):
        world.service.add(("near", NEAR))
        world.service.texts.records.clear()
        ask(tab.page, TEXT)
        tab.page.locator("#ask-matches").get_by_role("button").click()
        expect(tab.page.locator("#ask-matches")).to_contain_text("The texts cannot be shown: Kafka no longer has")

    def test_a_rule_that_suppresses_near_duplicates_is_named(self, world, tab):
        world.service.add(("near", NEAR), ("short", TEXT))
        profiles, options = (
            world.service.index_thread.profiles,
            replace(OPTIONS, suppression=Suppression(min_shingles=8)),
        )
        profiles["articles"] = replace(profiles["articles"], lookup=IndexLookup(options, world.service.index))
        page = tab.page
        page.get_by_label("Source", exact=True).fill("wire")
        with page.expect_request("**/lookup") as asked:
            ask(page, NEAR)
        assert asked.value.post_data_json["source"] == "wire"
        expect(page.locator("#ask-status")).to_contain_text("1 near-duplicate with a similarity of 0.5000 or more.")
        suppressed = "1 near-duplicate is no match, because one has too few shingles (min_shingles)."
        expect(page.locator("#ask-status")).to_contain_text(suppressed)
        page.goto(f"{world.url}#document/articles/near")
        expect(page.locator("#document-result")).to_contain_text(suppressed)

    @pytest.mark.parametrize("kind", HOSTILE)
    def test_a_hostile_text_is_shown_as_text(self, world, tab, kind):
        world.service.add(("stored", f"{NEAR} {HOSTILE[kind]}"))
        page = tab.page
        page.get_by_label("Text", exact=True).evaluate(
            "(field, text) => { field.value = text; }", f"{TEXT} {HOSTILE[kind]}"
        )
        page.get_by_role("button", name="Find near-duplicates").click()
        page.locator("#ask-matches").get_by_role("button").click()
        stored = page.get_by_role("region", name="stored")
        expect(stored).to_be_visible()
        assert stored.evaluate("each => each.textContent") == f"{NEAR} {SHOWN[kind]}"
        # A text area turns each end of a line into a line feed.
        pasted = SHOWN[kind].replace("\u240d", "\n")
        assert page.get_by_role("region", name="your text").evaluate("each => each.textContent") == f"{TEXT} {pasted}"
        assert page.title() == "Ask \u00b7 streamdedup"
        assert page.locator("main script, main img").count() == 0

    def test_half_a_surrogate_pair_is_looked_up_and_shown_as_a_replacement(self, world, tab):
        world.service.add(("near", f"{NEAR} half \ufffd end"))
        page = tab.page
        page.get_by_label("Text", exact=True).evaluate(
            "(field, text) => { field.value = text + ' half ' + String.fromCharCode(0xd83d) + ' end'; }", NEAR
        )
        page.get_by_role("button", name="Find near-duplicates").click()
        expect(page.locator("#ask-matches")).to_contain_text("1.0000")
        page.locator("#ask-matches").get_by_role("button").click()
        expect(page.get_by_role("region", name="your text")).to_have_text(f"{NEAR} half \ufffd end")

    def test_long_equal_passages_are_cut_until_they_are_wanted(self, world, tab):
        words = " ".join(f"word{number}" for number in range(9_000))
        world.service.add(("large", words.replace("word5000", "changed")))
        ask(tab.page, words)
        tab.page.locator("#ask-matches").get_by_role("button").click()
        large = tab.page.get_by_role("region", name="large")
        expect(large.locator("del")).to_have_text("changed")
        assert len(large.text_content()) < 5_000
        large.get_by_role("button", name="equal characters").first.click()
        expect(large.locator("button.gap")).to_have_count(1)
        assert len(large.text_content()) > 40_000

    def test_texts_of_a_megabyte_are_shown_without_marks_and_the_page_stays_small(self, world, tab):
        words = " ".join(f"word{number}" for number in range(110_000))
        assert len(words) > 1_000_000
        world.service.add(("large", words.replace("word50000", "changed")), ("solid", "x" * 1_000_000 + " y z " + NEAR))
        page = tab.page
        ask(page, words)
        page.locator("#ask-matches").get_by_role("button").click()
        large = page.get_by_role("region", name="large")
        expect(page.locator(".differences")).to_contain_text(f"more than {MAX_WORDS:,} words")
        expect(page.locator(".differences").locator("ins, del")).to_have_count(0)
        assert len(large.text_content()) < 5_000
        assert page.evaluate("document.querySelectorAll('*').length") < 500
        large.get_by_role("button", name="further characters").click()
        expect(large.locator("button.gap")).to_have_count(0)
        assert len(large.text_content()) > 1_000_000
        ask(page, "x" * 1_000_000 + " y z " + TEXT)
        expect(page.locator("#ask-matches")).to_contain_text("solid")  # the answer before is shown meanwhile
        page.locator("#ask-matches").get_by_role("button").click()
        expect(page.get_by_role("region", name="solid")).to_be_visible()
        assert tab.width() <= 1_000

    def test_a_text_that_is_too_large_is_refused_in_words(self, world, tab):
        ask(tab.page, "word " * 401_000)
        expect(tab.page.locator("#ask-status .problem")).to_contain_text("2,005,000 bytes long")

    @pytest.mark.parametrize(("text", "direction"), [("42 שלום", "rtl"), ("42 one שלום", "ltr"), ("مرحبا one", "rtl")])
    def test_the_field_has_the_direction_of_its_text(self, tab, text, direction):
        field = tab.page.get_by_label("Text", exact=True)
        field.fill(text)
        expect(field).to_have_css("direction", direction)

    def test_an_answer_below_a_changed_question_is_marked_as_old(self, world, tab):
        world.service.add(("same", TEXT))
        page = tab.page
        ask(page, TEXT)
        expect(page.locator("#ask-matches > li")).to_have_count(1)
        old = page.locator("#ask-old")
        expect(old).to_be_hidden()
        page.get_by_label("Text", exact=True).fill(TEXT + " more")
        expect(old).to_have_text("Old answer: the text or a field has changed since. Ask again.")
        page.get_by_label("Text", exact=True).fill(TEXT)
        expect(old).to_be_hidden()
        page.get_by_label("Least similarity").first.fill("0.9")
        expect(old).to_be_visible()
        page.get_by_role("button", name="Find near-duplicates").click()
        expect(old).to_be_hidden()

    def test_an_empty_index_is_told_from_a_text_without_near_duplicates(self, world, tab):
        page = tab.page
        ask(page, TEXT)
        expect(page.locator("#ask-status")).to_have_text(
            "The index of this profile is empty: there is nothing to compare with."
        )
        world.service.add(("other", "kelp lime moss nettle oak pine quince"))
        ask(page, TEXT)
        expect(page.locator("#ask-status")).to_contain_text("No near-duplicate with a similarity of 0.5000 or more.")

    def test_limits_are_named_with_their_numbers(self, open_tab):
        with a_world(options=replace(OPTIONS, max_candidates=1)) as world:
            world.service.add(*((f"d{number}", TEXT) for number in range(3)))
            page = open_tab(world.url).page
            ask(page, TEXT)
            expect(page.locator("#ask-status")).to_contain_text(
                "Not all candidates were compared, because there were too many (max_candidates = 1, bucket_cap = 500)."
            )
            ask(page, "one two")
            expect(page.locator("#ask-status")).to_contain_text("(min_words = 3)")

    def test_a_joiner_in_a_passage_that_differs_is_visible(self, world, tab):
        world.service.add(("plain", TEXT))
        page = tab.page
        ask(page, TEXT.replace("delta", "gam\u200dma so\u00adft"))
        page.locator("#ask-matches").get_by_role("button").click()
        expect(page.get_by_role("region", name="your text").locator("ins")).to_have_text(
            "gam\u27e6U+200D\u27e7ma so\u27e6U+00AD\u27e7ft"
        )


class TestLive:
    def test_alerts_appear_as_they_are_committed_each_with_its_comparison(self, world, open_tab):
        world.service.add(("first", TEXT), ("second", NEAR))
        page = open_tab(world.url, "#live").page
        receive(world, page, an_alert("second", ("first", 0.875), ("gone", 0.75), source="wire"))
        row = page.locator("#live-rows > li")
        expect(row.locator(".caption")).to_have_count(0)
        expect(row).to_contain_text("0.8750 second resembles first and 1 other")
        expect(row).to_contain_text("2026-05-01 07:22:11 UTC \u00b7 articles \u00b7 wire")
        row.get_by_role("button").click()
        row.get_by_role("button", name="first exact").last.click()
        expect(row.get_by_role("region", name="second")).to_have_text(NEAR)
        expect(row.locator(".text ins")).to_have_text(" iris")
        row.get_by_role("button", name="gone").last.click()
        expect(row.get_by_role("alert")).to_contain_text("The index has no such document")

    def test_an_alert_shows_the_labels_of_both_documents(self, world, open_tab):
        page = open_tab(world.url, "#live").page
        place = Position("articles", 0, 1)
        match = alerts.a_match("old", place, label="Ferry link returns", source="Tidewater", published_at="2026-03-02")
        document = structs.replace(alerts.a_document("new", place, source="Desk"), label="Boats to Kestrel Bay")
        receive(
            world,
            page,
            *encode_alert(
                alerts.an_alert(
                    document, match, cluster_id="x", cluster_label="Ferry?", cluster_size=1000, detected_at_ms=TIME_MS
                )
            ),
        )
        row = page.locator("#live-rows > li")
        expect(row.locator(".caption")).to_have_text(
            [
                "new Boats to Kestrel Bay \u00b7 Desk",
                "old Ferry link returns \u00b7 Tidewater \u00b7 2026-03-02",
                "first Ferry?",
            ]
        )
        expect(row).to_contain_text("2026-05-01 07:22:11 UTC \u00b7 articles \u00b7 cluster of 1000+ documents")

    def test_a_story_is_one_row_with_its_sources_and_the_most_copied_can_be_first(self, world, open_tab):
        def of_story(name, document_id, size, sources, **more):
            spread = {
                "cluster_size": size,
                "cluster_sources": sources,
                "cluster_since": "2026-05-01T06:31:20.004Z",
                "cluster_until": "2026-05-01T07:02:11.480Z",
            }
            return an_alert(document_id, ("x", 0.9), cluster_id=name, **spread | more)

        page = open_tab(world.url, "#live").page
        more = {"cluster_earliest_id": "f1", "cluster_earliest_source": "Tidewater"}
        receive(world, page, of_story("ferry", "f2", 2, 2), of_story("ferry", "f3", 3, 3, **more))
        receive(world, page, of_story("roof", "r2", 1000, 2), of_story("ferry", "f4", 4, 3, profile="other"))
        receive(world, page, an_alert("plain", ("x", 0.9)))
        rows, ids = page.locator("#live-rows > li"), page.locator("#live-rows > li > button bdi:first-of-type")
        expect(ids).to_have_text(["plain", "f4", "r2", "f3"])
        expect(rows.nth(3)).to_contain_text(
            "cluster of 3 documents \u00b7 3 sources since 2026-05-01 06:31:20 UTC, earliest Tidewater"
        )
        expect(rows.nth(2)).to_contain_text("cluster of 1000+ documents \u00b7 2+ sources since")
        expect(rows.nth(0)).not_to_contain_text("source")
        page.get_by_label("Stories").select_option("copied")
        expect(page.get_by_role("list", name="Alerts", exact=True)).to_be_visible()
        expect(ids).to_have_text(["f4", "f3", "r2", "plain"])
        receive(world, page, of_story("roof", "r3", 1000, 9))
        expect(ids).to_have_text(["r3", "f4", "f3", "plain"])
        page.get_by_label("Stories").select_option("newest")
        expect(ids).to_have_text(["r3", "plain", "f4", "f3"])
        parts = [json.loads(of_story("long", "l2", 2, 1)) | {"part": part, "parts": 2} for part in (1, 2)]
        receive(world, page, *(json.dumps(part).encode() for part in parts))
        expect(rows.first).to_contain_text("part 1 of 2")

    def test_alerts_from_before_are_shown_at_once_and_once(self, world, open_tab):
        page = open_tab(world.url, "#live").page
        expect(page.locator("#live-status")).to_have_text("Following. No alert yet.")
        page.goto("about:blank")
        world.topic.add(0, an_alert("one", ("x", 0.9)), None, an_alert("two", ("x", 0.9)))
        page.goto(world.url + "#live")
        ids = page.locator("#live-rows > li > button bdi:first-of-type")
        expect(ids).to_have_text(["two", "one"])
        expect(page.locator("#live-status")).to_have_text("Following.")
        receive(world, page, an_alert("three", ("x", 0.9)))
        expect(ids).to_have_text(["three", "two", "one"])

    def test_the_newest_is_first_and_a_pause_holds_the_list(self, world, open_tab):
        page = open_tab(world.url, "#live").page
        receive(world, page, an_alert("one", ("x", 0.9)), an_alert("two", ("x", 0.9)))
        ids = page.locator("#live-rows > li > button bdi:first-of-type")
        expect(ids).to_have_text(["two", "one"])
        page.get_by_role("button", name="Pause").first.click()
        expect(page.locator("#live-status")).to_contain_text("Paused")
        receive_paused = an_alert("three", ("x", 0.9))
        world.topic.add(1, receive_paused)
        expect(page.locator("#live-count")).to_contain_text("3 alerts received, 1 of them since the pause; 2 shown")
        expect(ids).to_have_text(["two", "one"])
        page.get_by_role("button", name="Pause").first.click()
        expect(ids).to_have_text(["three", "two", "one"])

    def test_a_row_that_is_open_holds_the_list(self, world, open_tab):
        page = open_tab(world.url, "#live").page
        receive(world, page, an_alert("one", ("x", 0.9)))
        page.locator("#live-rows button").first.click()
        expect(page.locator("#live-status")).to_contain_text("Paused while a row is open")
        receive_held = an_alert("two", ("x", 0.9))
        world.topic.add(0, receive_held)
        expect(page.locator("#live-count")).to_contain_text("1 of them since the pause")
        expect(page.locator("#live-rows > li")).to_have_count(1)
        page.locator("#live-rows button").first.click()
        expect(page.locator("#live-rows > li")).to_have_count(2)

    def test_the_filter_chooses_by_profile_source_and_similarity(self, world, open_tab):
        page = open_tab(world.url, "#live").page
        receive(
            world,
            page,
            an_alert("a", ("x", 0.9), source="Harbour Wire"),
            an_alert("b", ("x", 0.6), source="Harbour Wire"),
            an_alert("c", ("x", 0.9), source="Desk"),
            an_alert("d", ("x", 0.9), ("y", 0.95), source=None, profile="other"),
        )
        ids = page.locator("#live-rows > li > button bdi:first-of-type")
        page.get_by_label("Source contains").fill("harbour")
        expect(ids).to_have_text(["b", "a"])
        page.locator("#live-similarity").fill("0.7")
        expect(ids).to_have_text(["a"])
        page.get_by_label("Source contains").fill("")
        expect(ids).to_have_text(["d", "c", "a"])
        page.locator("#live-profile").select_option("articles")
        expect(ids).to_have_text(["c", "a"])
        receive(world, page, an_alert("e", ("x", 0.5)), an_alert("f", ("x", 0.8)))
        expect(ids).to_have_text(["f", "c", "a"])

    def test_another_view_stops_the_stream_and_a_return_resumes_it(self, world, open_tab):
        page = open_tab(world.url, "#live").page
        receive(world, page, an_alert("one", ("x", 0.9)))
        page.get_by_role("tab", name="Ask").click()
        world.topic.wait_closed()
        world.topic.add(0, an_alert("two", ("x", 0.9)))
        page.get_by_role("tab", name="Live").click()
        ids = page.locator("#live-rows > li > button bdi:first-of-type")
        expect(ids).to_have_text(["two", "one"])

    def test_a_broken_stream_resumes_and_says_so_meanwhile(self, world, open_tab):
        page = open_tab(world.url, "#live").page
        receive(world, page, an_alert("one", ("x", 0.9)))
        world.topic.fail()
        expect(page.locator("#live-status")).to_contain_text("Alerts cannot be read")
        with world.topic.changed:
            world.topic.is_away = False
        world.topic.add(0, an_alert("two", ("x", 0.9)))
        ids = page.locator("#live-rows > li > button bdi:first-of-type")
        expect(ids).to_have_text(["two", "one"])
        expect(page.locator("#live-status")).to_have_text("Following.")

    def test_hostile_names_are_shown_as_text(self, world, open_tab):
        page = open_tab(world.url, "#live").page
        name = f"{HOSTILE['script']} {HOSTILE['right to left']}"
        receive(world, page, an_alert(name, (name, 0.9), source=HOSTILE["script"] + HOSTILE["controls"]))
        row = page.locator("#live-rows > li")
        assert row.locator("bdi").first.evaluate("each => each.textContent") == (
            f"{SHOWN['script']} {SHOWN['right to left']}"
        )
        assert SHOWN["script"] + SHOWN["controls"] in row.evaluate("each => each.textContent")
        row.get_by_role("button").click()
        assert page.title() == "Live \u00b7 streamdedup"
        assert row.locator("script, img").count() == 0

    def test_ten_thousand_alerts_do_not_make_the_page_grow(self, world, open_tab):
        tab = open_tab(world.url, "#live")
        alerts = [
            an_alert(f"document {number}", *((f"other {number} {at}", 0.9) for at in range(5)), source="wire")
            for number in range(12_000)
        ]
        for at in range(0, 2_000, 500):
            receive(world, tab.page, *alerts[at : at + 500])
        before = tab.memory()
        for at in range(2_000, 12_000, 500):
            receive(world, tab.page, *alerts[at : at + 500])
        after = tab.memory()
        expect(tab.page.locator("#live-count")).to_contain_text("12,000 alerts received; 200 shown.")
        expect(tab.page.locator("#live-rows > li")).to_have_count(200)
        expect(tab.page.locator("#live-rows > li").first).to_contain_text("document 11999")
        assert after["nodes"] <= before["nodes"] * 1.1
        assert after["heap_bytes"] <= before["heap_bytes"] + 2**20

    def test_a_stream_that_the_service_lacks_is_named_and_not_asked_for_again(self, world, open_tab):
        page, requests = open_tab(world.url).page, []
        body = json.dumps({"type": TYPE_PREFIX + "not-found", "title": "There is no such resource", "status": 404})

        def answer(route):
            requests.append(route.request.url)
            route.fulfill(status=404, content_type="application/problem+json", body=body)

        page.route("**/v1/dead-letters*", answer)
        page.get_by_role("tab", name="Live").click()
        page.get_by_role("tab", name="Dead letters").click()
        expect(page.locator("#dead-status")).to_have_text("This service has no such stream.")
        page.wait_for_timeout(2_500)  # a repeated attempt comes after 2 seconds
        assert len(requests) == 1

    def test_dead_letters_have_their_reasons_and_resume(self, world, open_tab):
        page = open_tab(world.url).page
        page.get_by_role("tab", name="Live").click()
        page.get_by_role("tab", name="Dead letters").click()
        expect(page.locator("#dead-status")).to_have_text("Following. No dead letter yet.")
        world.topic.wait_closed()
        world.letters.add(0, a_letter(0, "not_json", "the value is not JSON"), a_letter(1, "not_utf8", "<b>bold</b>"))
        rows = page.locator("#dead-rows > li")
        expect(rows).to_have_count(2)
        expect(rows.nth(0)).to_contain_text("not_utf8 <b>bold</b>")
        expect(rows.nth(1)).to_contain_text("not_json the value is not JSON")
        expect(rows.nth(1)).to_contain_text("2026-05-01 07:22:11 UTC · articles:3:0")
        rows.nth(1).get_by_role("button").click()
        panel = rows.nth(1).locator(".panel")
        expect(panel).to_contain_text("Stagedecode")
        expect(panel).to_contain_text("Attempts1")
        expect(panel.get_by_role("region", name="Command")).to_have_text(
            "streamdedup dlq inspect --config streamdedup.toml --topic articles --code not_json "
            "--since 2026-05-01T07:22:11.000Z --json"
        )
        assert "xylophone" not in page.content()
        rows.nth(1).get_by_role("button").click()
        page.get_by_role("tab", name="Alerts").click()
        world.letters.wait_closed()
        world.letters.add(0, a_letter(2, "not_json", "another"))
        page.get_by_role("tab", name="Dead letters").click()
        expect(rows).to_have_count(3)


class TestDocument:
    def test_a_document_has_its_facts_its_matches_and_its_cluster(self, world, open_tab):
        world.service.add(("first", TEXT), ("second/b", NEAR))
        page = open_tab(world.url, "#document").page
        page.locator("#document-id").fill("second/b")
        expect(page.locator("#document-profile")).to_have_value("articles")  # the profiles have been loaded
        page.get_by_role("button", name="Show").click()
        result = page.locator("#document-result")

        def title(name):
            # A comparison has the ids of both documents as headings of the next level.
            return result.get_by_role("heading", name=name, exact=True, level=3)

        expect(title("second/b")).to_be_visible()
        expect(result).to_contain_text("1970-01-01 00:00:00")
        expect(result).to_contain_text("articles:0:1")
        expect(result).to_contain_text("1 near-duplicate")
        result.get_by_role("button", name="first").click()
        expect(result.get_by_role("region", name="second/b")).to_have_text(NEAR)
        result.get_by_role("link", name="first").first.click()
        expect(title("first")).to_be_visible()
        assert page.url.endswith("#document/articles/first")
        page.go_back()
        expect(title("second/b")).to_be_visible()
        page.reload()
        expect(title("second/b")).to_be_visible()

    def test_the_later_one_of_two_documents_is_the_green_one(self, world, open_tab):
        world.service.add(("first", TEXT), ("second", NEAR))
        page = open_tab(world.url).page

        def with_times(route):
            body = route.fetch().json()
            body["a"]["record_time"], body["b"]["record_time"] = "2026-05-01T07:00:00Z", "2026-05-01T08:00:00Z"
            route.fulfill(json=body)

        page.route("**/compare?*", with_times)
        page.goto(world.url + "#document/articles/first")
        result = page.locator("#document-result")
        result.get_by_role("button", name="second").click()
        expect(result.locator(".text ins")).to_have_text(" iris")  # only in the second one, which is the later one
        expect(result.get_by_role("region").first).to_have_text(NEAR)

    def test_the_members_of_the_cluster_are_in_the_order_of_time_with_their_sources(self, world, open_tab):
        world.service.add(("first", TEXT), ("second", NEAR))
        members = [
            {"id": "first", "source": "wire", "record_time": "2026-05-01T07:00:00Z", "label": "Ferry link"},
            {"id": "second", "source": "<i>desk</i>", "record_time": "2026-05-01T08:00:00Z"},
            {"id": "third", "source": None, "record_time": "2026-05-01T09:00:00Z"},
        ]
        page = open_tab(world.url).page

        def with_members(route):
            body = route.fetch().json()
            body["cluster"] = {"id": "first", "members": members, "complete": False}
            route.fulfill(json=body)

        page.route("**/documents/second/matches", with_members)
        page.goto(world.url + "#document/articles/second")
        table = page.get_by_role("table")
        expect(table.locator("tbody tr")).to_have_count(3)
        assert [" ".join(row.split()) for row in table.locator("tbody tr").all_inner_texts()] == [
            "2026-05-01 07:00:00 UTC wire Ferry link first",
            "2026-05-01 08:00:00 UTC <i>desk</i> second (this document)",
            "2026-05-01 09:00:00 UTC unknown third",
        ]
        expect(page.locator("#document-result")).to_contain_text("this cluster has more")

    def test_an_unknown_document_is_said_in_words(self, world, open_tab):
        page = open_tab(world.url, "#document/articles/nowhere").page
        expect(page.locator("#document-status .problem")).to_contain_text("The index has no such document")
        assert page.locator("#document-id").input_value() == "nowhere"


class TestState:
    def test_the_profiles_and_their_indexes(self, world, open_tab):
        page = open_tab(world.url, "#state").page
        table = page.get_by_role("table", name="Profiles")
        expect(
            table.get_by_role("row", name="articles articles 0.5, by 4 x 2 bands 0 can be looked up")
        ).to_be_visible()
        expect(page.locator("#view-state")).to_contain_text("on the dashboard in Grafana")
        world.service.index._fingerprint = None
        expect(table.get_by_role("row", name="unknown The index does not exist")).to_be_visible()


class TestServers:
    def test_redis_goes_away_and_comes_back(self, start_redis, open_tab, tmp_path):
        server = start_redis()
        settings = settings_for(server.url)
        fill(settings, TEXT, NEAR, time_ms=int(time.time() * 1000))
        config = tmp_path / "streamdedup.toml"
        config.write_text(
            f'[kafka]\nbootstrap_servers = "localhost:9"\n[redis]\nurl = "{server.url}"\n[profiles.articles]\n'
            'topics = ["articles"]\nshingle_size = 2\nthreshold = 0.5\n'
            'recall_from = 0.5\ncontainment_threshold = "none"\n',
            encoding="utf-8",
        )
        with ServeProcess(config, tmp_path) as process:
            page = open_tab(f"http://127.0.0.1:{process.port()}/").page
            ask(page, TEXT)
            expect(page.locator("#ask-matches > li")).to_have_count(2)
            page.locator("#ask-matches").get_by_role("button").first.click()
            expect(page.locator("#ask-matches")).to_contain_text("The texts cannot be shown: Kafka")
            pause(server)
            page.get_by_role("button", name="Find near-duplicates").click()
            expect(page.locator("#ask-status .problem")).to_contain_text("Redis does not answer")
            page.get_by_role("tab", name="State").click()
            expect(page.get_by_role("table", name="Profiles")).to_contain_text("Redis does not answer")
            resume(server)
            expect(page.get_by_role("table", name="Profiles")).to_contain_text("can be looked up")
            page.get_by_role("tab", name="Ask").click()
            page.get_by_role("button", name="Find near-duplicates").click()
            expect(page.locator("#ask-matches > li")).to_have_count(2)

    def test_a_service_that_ends_is_named_and_found_again(self, world, open_tab):
        page = open_tab(world.url).page
        expect(page.locator("#indexes")).to_contain_text("articles")
        page.route("**/v1/**", lambda route: route.abort())
        ask(page, TEXT)
        expect(page.locator("#ask-status .problem")).to_have_text("The service does not answer.")
        page.reload()
        expect(page.locator("#unavailable")).to_contain_text("The service does not answer.")
        page.unroute("**/v1/**")
        page.get_by_role("button", name="Try again").click()
        expect(page.locator("#indexes")).to_contain_text("articles: 0 documents")
        expect(page.locator("#unavailable")).to_be_empty()

    def test_the_token_is_asked_for_and_kept_by_the_tab_alone(self, open_tab, tmp_path):
        (tmp_path / "tokens").write_text(TOKEN)
        with a_world(tokens=Tokens(tmp_path / "tokens")) as world:
            page = open_tab(world.url, "#live").page
            dialog = page.get_by_role("dialog", name="This service requires a token")
            dialog.get_by_label("Token").fill("\u00e9")
            dialog.get_by_role("button").click()
            expect(dialog.get_by_role("alert")).to_contain_text("beyond ASCII")
            dialog.get_by_label("Token").fill("wrong")
            dialog.get_by_role("button").click()
            expect(dialog.get_by_role("alert")).to_have_text("The service does not accept this token.")
            page.keyboard.press("Escape")
            dialog.get_by_label("Token").fill(TOKEN)
            page.keyboard.press("Enter")
            expect(dialog).to_be_hidden()
            expect(page.locator("#indexes")).to_contain_text("articles: 0 documents")
            expect(page.locator("#links")).to_be_hidden()  # a browser would follow them without the token
            receive(world, page, an_alert("one", ("x", 0.9)))
            page.reload()
            expect(page.locator("#live-status")).to_have_text("Following.")
            assert TOKEN not in page.url
            assert page.evaluate("[document.cookie, localStorage.length]") == ["", 0]
            page.get_by_role("button", name="Forget the token").click()
            expect(dialog).to_be_visible()
            assert page.evaluate("sessionStorage.length") == 0


class TestPeople:
    @pytest.fixture
    def filled(self, world):
        """A world whose document, alert and source have names without a place to break a line."""
        name = "n" * 300
        world.service.add((name, TEXT), ("near", NEAR + " " + "w" * 500))
        spread = {
            "cluster_sources": 2,
            "cluster_since": "2026-05-01T06:31:20.004Z",
            "cluster_earliest_source": "e" * 300,
        }
        world.alert = an_alert("near", (name, 0.875), source="s" * 300, **spread)
        world.name = name
        return world

    @pytest.mark.parametrize("scheme", ["light", "dark"])
    def test_a_phone_needs_no_scrolling_to_the_side(self, filled, open_tab, scheme):
        viewport = {"width": 360, "height": 740}
        tab = open_tab(filled.url, viewport=viewport, color_scheme=scheme, has_touch=True)
        page = tab.page
        ask(page, TEXT)
        page.locator("#ask-matches").get_by_role("button").last.click()
        # One text, with the differences in their places.
        expect(page.locator("#ask-matches .columns")).to_have_count(0)
        expect(page.locator("#ask-matches .text del")).to_be_visible()
        assert tab.width() <= 360
        page.get_by_role("tab", name="Live").click()
        receive(filled, page, filled.alert)
        page.locator("#live-rows button").first.click()
        page.locator("#live-rows li li button").first.click()
        expect(page.locator("#live-rows .text")).to_be_visible()
        assert tab.width() <= 360
        page.get_by_role("tab", name="Document").click()
        page.locator("#document-id").fill(filled.name)
        page.get_by_role("button", name="Show").click()
        expect(page.locator("#document-result h3").first).to_be_visible()
        assert tab.width() <= 360
        page.get_by_role("tab", name="State").click()
        expect(page.get_by_role("table", name="Profiles")).to_be_visible()
        assert tab.width() <= 360
        background = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert background == {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 24, 28)"}[scheme]

    def test_a_wider_window_shows_both_texts_side_by_side(self, filled, open_tab):
        page = open_tab(filled.url, viewport={"width": 360, "height": 740}).page
        ask(page, TEXT)
        page.locator("#ask-matches").get_by_role("button").last.click()
        expect(page.locator("#ask-matches .text")).to_have_count(1)
        page.set_viewport_size({"width": 1000, "height": 740})
        expect(page.locator("#ask-matches .columns .text")).to_have_count(2)

    def test_everything_works_by_keys_alone(self, filled, open_tab):
        page = open_tab(filled.url).page
        expect(page.locator("#indexes")).to_contain_text("articles")
        press = page.keyboard.press
        press("Tab")
        expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
        press("Enter")
        press("Tab")
        expect(page.get_by_label("Text", exact=True)).to_be_focused()
        page.keyboard.insert_text(NEAR)
        press("Control+Enter")
        rows = page.locator("#ask-matches > li")
        expect(rows).to_have_count(2)
        for _ in range(5):
            press("Tab")
        expect(rows.nth(0).get_by_role("button")).to_be_focused()
        press("Enter")
        expect(rows.nth(0).locator(".text")).to_have_count(2)
        press("Tab")
        press("Tab")
        expect(rows.nth(0).locator(".text").first).to_be_focused()
        page.get_by_role("tab", name="Ask").focus()
        press("ArrowRight")
        expect(page.get_by_role("tab", name="Live")).to_be_focused()
        expect(page.get_by_role("tabpanel", name="Live")).to_be_visible()
        receive(filled, page, filled.alert)
        press("ArrowLeft")
        press("ArrowLeft")
        expect(page.get_by_role("tab", name="State")).to_be_focused()
        press("Home")
        press("ArrowRight")
        press("Tab")
        expect(page.get_by_role("tab", name="Alerts")).to_be_focused()
        for _ in range(5):
            press("Tab")
        expect(page.get_by_role("button", name="Pause").first).to_be_focused()
        press("Space")
        expect(page.get_by_role("button", name="Pause", pressed=True)).to_be_visible()
        press("Tab")
        expect(page.locator("#live-rows > li > button")).to_be_focused()
        press("Enter")
        press("Tab")
        press("Enter")
        expect(page.locator("#document-result h3").first).to_contain_text("near")
        expect(page.get_by_role("heading", name="Document", exact=True)).to_be_focused()

    def test_the_accessibility_tree_has_landmarks_tabs_and_named_controls(self, filled, open_tab):
        tab = open_tab(filled.url)
        page = tab.page
        ask(page, NEAR)
        page.locator("#ask-matches").get_by_role("button").first.click()
        expect(page.locator("#ask-matches .text").first).to_be_visible()
        for landmark in ("banner", "navigation", "main", "contentinfo"):
            expect(page.get_by_role(landmark)).to_have_count(1)
        tree = page.locator("body").aria_snapshot()
        assert '- tab "Ask" [selected]' in tree
        assert '- tab "Live"' in tree
        assert '- tabpanel "Ask"' in tree
        assert '- textbox "Text"' in tree
        assert '- combobox "Profile"' in tree
        assert '- list "Near-duplicates"' in tree
        for name in ("Ask", "Live", "Document", "State"):
            page.get_by_role("tab", name=name).click()
            if name == "Live":
                receive(filled, page, filled.alert)
            assert tab.unnamed_controls() == []

    def test_the_browser_itself_refuses_html(self, world, open_tab):
        tab = open_tab(world.url)
        refused = "() => { try { document.body.innerHTML = '<b>x</b>'; } catch (error) { return error.name; } }"
        assert tab.page.evaluate(refused) == "TypeError"
        assert tab.page.locator("body > b").count() == 0
        wait_until(lambda: tab.page.evaluate("1") and tab.errors, what="the report of the browser")
        assert "TrustedHTML" in tab.errors.pop()


#: The picture of the README; WRITE_PICTURE=1 draws it anew.
PICTURE = Path(__file__).parents[2] / "docs" / "images" / "page.png"
ARTICLES = Path(str(resources.files("streamdedup") / "sample" / "articles.jsonl"))
#: Most bytes of the picture.
MAX_PICTURE_BYTES = 150_000


def articles() -> dict[str, str]:
    """Return the texts of the sample's articles that are documents, by id."""
    found = {}
    for line in ARTICLES.read_bytes().splitlines():
        with contextlib.suppress(ValueError, TypeError, KeyError):
            entry = json.loads(line)
            found[entry["id"]] = entry["text"]
    return {document_id: text for document_id, text in found.items() if text and isinstance(text, str)}


def test_the_picture_of_the_readme_shows_a_text_of_the_sample_and_its_near_duplicates(world, open_tab, tmp_path):
    documents = articles()
    world.service.add(*documents.items())
    page = open_tab(world.url, viewport={"width": 1000, "height": 1100}, color_scheme="light").page
    ask(page, documents["art-002"].replace("two second-hand", "three new").replace("on Fridays", "on Saturdays"))
    row = page.locator("#ask-matches > li").filter(has_text="art-005")
    row.get_by_role("button").click()
    expect(row.locator(".text ins").last).to_be_visible()
    page.evaluate("document.activeElement.blur(); scrollTo(0, 0)")
    drawn = tmp_path / "page.png"
    page.screenshot(path=drawn, animations="disabled")
    picture = Image.open(drawn).convert("RGB").quantize(64, dither=Image.Dither.NONE)
    picture.save(drawn, optimize=True)
    if os.environ.get("WRITE_PICTURE"):
        PICTURE.write_bytes(drawn.read_bytes())
    assert drawn.stat().st_size < MAX_PICTURE_BYTES
    with Image.open(PICTURE) as committed:
        assert committed.size == picture.size
