"""Comparisons with texts: read from the records of documents, checked, aligned; and why a text is missing."""

import asyncio
import json
import threading
from contextlib import ExitStack, closing, nullcontext, suppress
from types import SimpleNamespace

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from streamdedup.cli import serve as cli_serve
from streamdedup.cli import topic_reading
from streamdedup.errors import BrokerMisconfigured, BrokerUnavailable, DecodeError, RegistryUnavailable
from streamdedup.kafka.protocols import Record
from streamdedup.position import Position
from streamdedup.serve import texts
from streamdedup.serve.problems import TYPE_PREFIX
from streamdedup.settings import Settings
from streamdedup.text.alignment import align
from streamdedup.wire import Registry
from tests.event_stream import DEADLINE_S
from tests.served import NEAR, PARTITION, TEXT, Service, a_receive, call

COMPARE = "/v1/profiles/articles/compare"
A, B = Position(*PARTITION, 0), Position(*PARTITION, 1)


@pytest.fixture
def service():
    with closing(Service()) as made, made.client:
        made.add(("a", TEXT), ("b", NEAR))
        yield made


def compare(service, a="a", b="b"):
    response = service.client.get(COMPARE, params={"a": a, "b": b})
    assert response.status_code == 200, response.text
    return response.json()


async def compare_at_once(service, count):
    """Return the bodies of so many comparisons in progress at one time."""
    requests = [call(service.app, method="GET", path=COMPARE, query=b"a=a&b=b") for _ in range(count)]
    return [json.loads(body["body"]) for _, body in await asyncio.gather(*requests)]


def missing(service, **ids):
    """Return the reason why a text is missing; the rest of the comparison is there."""
    body = compare(service, **ids)
    assert body["segments"] is None
    assert body["similarity"] == 0.875
    return body["texts_missing"]


def test_two_stored_documents_have_their_texts_as_segments(service):
    body = compare(service)
    assert body["segments"] == [
        {"kind": "equal", "a": TEXT, "b": TEXT},
        {"kind": "changed", "a": "", "b": " iris"},
    ]
    assert (body["aligned"], body["texts_missing"]) == (True, None)


def test_texts_of_too_many_words_are_one_segment(service, monkeypatch):
    monkeypatch.setattr("streamdedup.text.alignment.MAX_WORDS", 8)
    body = compare(service)
    assert body["segments"] == [{"kind": "changed", "a": TEXT, "b": NEAR}]
    assert (body["aligned"], body["texts_missing"]) == (False, None)


def test_a_text_is_compared_with_a_stored_document(service):
    response = service.client.post(COMPARE, json={"text": NEAR, "id": "a"})
    body = response.json()
    stored = compare(service, a="b", b="a")
    assert body["a"] is None
    fields = ("b", "similarity", "method", "standard_error", "bands", "shared_bands", "within_window", "is_match")
    assert {field: body[field] for field in fields} == {field: stored[field] for field in fields}
    assert body["segments"] == stored["segments"]


def test_a_text_that_the_daemon_skips_is_no_match(service):
    service.add(("short", "one two"))
    body = service.client.post(COMPARE, json={"text": "one two", "id": "short"}).json()
    assert (body["similarity"], body["is_match"]) == (1.0, False)


@pytest.mark.parametrize(
    ("content", "name", "field"),
    [
        (b"{", "malformed-json", None),
        (b'{"id": "a"}', "missing-text", "text"),
        (b'{"text": "a"}', "invalid-field", "id"),
        (b'{"text": "a", "id": ""}', "invalid-field", "id"),
        (b'{"text": "a", "id": "\\u0000"}', "invalid-field", "id"),
        (b'{"text": "a", "id": "a", "threshold": 1}', "invalid-field", "threshold"),
        (b'{"text": "a", "id": "none"}', "unknown-document", "id"),
        (b'{"text": "' + b"a" * 3_000 + b'", "id": "a"}', "too-large", None),
    ],
)
def test_a_body_that_cannot_be_compared(service, content, name, field):
    problem = service.client.post(COMPARE, content=content, headers={"content-type": "application/json"}).json()
    assert (problem["type"], problem.get("field")) == (TYPE_PREFIX + name, field)


def test_a_text_needs_the_content_type(service):
    assert service.client.post(COMPARE, content=b'{"text": "a", "id": "a"}').status_code == 415


class TestMissing:
    def test_a_record_that_is_gone(self, service):
        del service.texts.records[B]
        assert missing(service) == "Kafka no longer has the record of b, articles:0:1: expired or compacted"

    @pytest.mark.parametrize(
        "value", [{"id": "a", "text": "other words"}, {"id": "c", "text": TEXT}, {"id": "a", "op": "delete"}]
    )
    def test_a_record_that_was_replaced(self, service, value):
        service.texts.records[A] = Record(A, 0, None, json.dumps(value).encode())
        assert missing(service).startswith("the record of a, articles:0:0, was replaced by another one")

    def test_a_record_that_is_no_document_or_that_the_client_cannot_parse(self, service):
        service.texts.records[A] = Record(A, 0, None, b"not json")
        assert missing(service) == "the record of a, articles:0:0, cannot be decoded: not_json"
        service.texts.error = DecodeError("unreadable", "codec 9")
        assert missing(service) == "the record of a, articles:0:0, cannot be decoded: unreadable"

    @pytest.fixture
    def change_entries(self, service, monkeypatch):
        """Let the index have entries that a function makes of its entries."""
        lookup = service.index_thread.profiles["articles"].lookup
        document = lookup.document

        def change_by(changed):
            monkeypatch.setattr(lookup, "document", lambda name: (changed(document(name)[0]), document(name)[1]))

        return change_by

    def test_a_text_that_was_continued_is_in_no_record(self, service, change_entries):
        change_entries(lambda entry: replace(entry, content=replace(entry.content, first_digest=b"v" * 16)))
        assert missing(service) == "the text of a was continued by appends; no record has the whole"
        assert service.texts.opened_count == 0

    def test_the_key_of_a_record_is_an_id_too(self, service):
        service.texts.records[A] = Record(A, 0, b"a", json.dumps({"text": TEXT}).encode())
        assert compare(service)["texts_missing"] is None

    def test_a_topic_that_was_created_again_counts_incarnations_and_kafka_does_not(self, service, change_entries):
        change_entries(lambda entry: replace(entry, position=entry.position._replace(incarnation=1)))
        assert compare(service)["texts_missing"] is None


class TestAlerts:
    """An alert has id, digest and position of a document, and not whether the document was continued."""

    @pytest.mark.parametrize(
        ("value", "reason"),
        [
            (
                {"id": "a", "op": "append", "text": "iris"},
                "the text of a was continued by appends; no record has the whole",
            ),
            ({"id": "b", "op": "append", "text": "iris"}, "the record of a, articles:0:0, was replaced by another one"),
        ],
    )
    def test_a_continued_text_is_told_from_a_record_that_was_replaced(self, value, reason, monkeypatch):
        fetcher = SimpleNamespace(fetch=lambda position: Record(position, 0, None, json.dumps(value).encode()))
        monkeypatch.setattr(topic_reading, "RecordFetcher", lambda _options: nullcontext(fetcher))
        settings = SimpleNamespace(profiles={})
        side = topic_reading.text_fetcher(ExitStack(), None, settings)("a", "00" * 16, A)
        assert side.text is None
        assert side.missing.startswith(reason)


class TestFailures:
    @pytest.mark.parametrize(
        ("error", "server"),
        [
            (BrokerUnavailable("10.1.2.3 is away"), "Kafka"),
            (BrokerMisconfigured("user x lacks READ"), "Kafka"),
            (RegistryUnavailable("10.1.2.3 is away"), "the schema registry"),
        ],
    )
    def test_a_server_that_fails_is_not_asked_again_at_once_and_the_reason_is_for_the_log(
        self, service, monkeypatch, error, server
    ):
        service.texts.error = error
        with capture_logs() as events:
            reason = f"{server} cannot be read; the reason is in the log of the service"
            assert [missing(service) for _ in range(2)] == [reason] * 2
            assert (service.texts.opened_count, service.texts.closed_count) == (1, 1)
            service.texts.error = None
            monkeypatch.setattr(service.aligner, "_paused_until", 0.0)
            assert compare(service)["texts_missing"] is None
            # The closed client is not used again.
            assert (service.texts.opened_count, service.texts.closed_count) == (2, 1)
        assert [(event["event"], event.get("reason")) for event in events] == [
            ("texts_unavailable", str(error)),
            ("texts_available", None),
        ]

    def test_failures_of_two_kinds_in_turns_are_logged_once_each_until_a_success(self, service, monkeypatch):
        monkeypatch.setattr(texts, "_PAUSE_S", 0.0)
        kafka, registry = BrokerUnavailable("away"), RegistryUnavailable("away")
        with capture_logs() as events:
            for error in (kafka, registry, kafka, registry, None, registry):
                service.texts.error = error
                compare(service)
        assert [(event["event"], event.get("error")) for event in events] == [
            ("texts_unavailable", "BrokerUnavailable"),
            ("texts_unavailable", "RegistryUnavailable"),
            ("texts_available", None),
            ("texts_unavailable", "RegistryUnavailable"),
        ]

    async def test_a_kafka_that_does_not_answer_holds_up_no_other_request(self):
        with closing(Service(texts_timeout_s=0.05)) as service:
            service.add(("a", TEXT), ("b", NEAR))
            service.texts.released.clear()
            answers = await compare_at_once(service, 4)
            look_up = await call(service.app)
            service.texts.released.set()
            assert look_up[0]["status"] == 200
            reason = "Kafka did not answer within 0.05 s, or earlier comparisons took this time"
            assert [body["texts_missing"] for body in answers] == [reason] * 4
            assert service.texts.opened_count <= texts._THREADS

    def test_where_a_registry_takes_part_a_comparison_without_an_answer_names_both_servers(self):
        with closing(Service(texts_timeout_s=0.05, registry=Registry("http://10.1.2.3"))) as service:
            service.add(("a", TEXT), ("b", NEAR))
            service.texts.released.clear()
            reason = missing(service)
            service.texts.released.set()
            assert reason.startswith("Kafka or the schema registry did not answer within 0.05 s, or earlier")

    @pytest.mark.parametrize(("timeout_s", "expected_s"), [(30.0, cli_serve._REGISTRY_S), (0.5, 0.5)])
    def test_a_silent_registry_fails_within_the_time_of_a_comparison(self, timeout_s, expected_s):
        values = {
            "kafka.bootstrap_servers": "localhost:9",
            "redis.url": "redis://127.0.0.1:9",
            "schema_registry.url": "http://10.1.2.3",
            "schema_registry.timeout": f"{timeout_s * 1000:.0f}ms",
            "profiles.articles.topics": "articles",
            "profiles.articles.format": "avro",
        }
        settings = Settings.load(None, values, {})
        decoder = cli_serve._comparison_decoder(settings, settings.profiles["articles"])
        assert decoder.registry.timeout_s == expected_s < cli_serve._COMPARISON_S
        assert decoder.value_format._registry is decoder.registry

    async def test_no_more_than_two_comparisons_read_at_a_time_and_all_are_answered(self, monkeypatch):
        with closing(Service()) as service:
            service.add(("a", TEXT), ("b", NEAR))
            fetch, running, most = service.texts.fetch, [], []
            both = threading.Barrier(texts._THREADS)

            def counted(position):
                running.append(1)
                most.append(len(running))
                if position == A and len(most) <= texts._THREADS:
                    both.wait(DEADLINE_S)
                try:
                    return fetch(position)
                finally:
                    running.pop()

            monkeypatch.setattr(service.texts, "fetch", counted)
            assert [body["texts_missing"] for body in await compare_at_once(service, 6)] == [None] * 6
            assert max(most) == service.texts.opened_count == texts._THREADS

    async def test_no_text_is_logged(self, service, monkeypatch, caplog):
        def failing(_a, _b):
            raise RuntimeError(TEXT)

        monkeypatch.setattr(texts, "align", failing)
        with capture_logs() as events:
            body = a_receive(json.dumps({"text": TEXT, "id": "a"}).encode())
            start, _ = await call(service.app, path=COMPARE, receive=body)
        assert start["status"] == 500
        assert "amber" not in repr(events) + caplog.text


async def test_a_request_that_gives_up_leaves_its_thread_in_use(monkeypatch):
    """Otherwise a thread would get a second call, which had to wait although another thread is free."""
    with closing(Service()) as service:
        service.add(("a", TEXT), ("b", NEAR))
        begun, released = threading.Semaphore(0), threading.Event()

        def slow(a, b):
            begun.release()
            assert released.wait(DEADLINE_S)
            return align(a, b)

        monkeypatch.setattr(texts, "align", slow)
        requests = asyncio.gather(*(compare_at_once(service, 1) for _ in range(texts._THREADS)))
        for _ in range(texts._THREADS):
            assert await asyncio.to_thread(begun.acquire, timeout=DEADLINE_S)
        requests.cancel()
        with suppress(asyncio.CancelledError):
            await requests
        in_use = texts._THREADS - service.aligner._free_threads._value
        released.set()
        assert in_use == texts._THREADS
