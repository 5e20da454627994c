"""The HTTP service over an index in memory: answers, problems, access, limits, gathering."""

import asyncio
import json
import logging
import os
import re
import socket
import subprocess
import sys
import threading
import time
import tracemalloc
import weakref
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

import jsonschema
import msgspec
import pytest
from structlog.testing import capture_logs

from streamdedup.cli.serve import _listen, run_service
from streamdedup.detection.lookup import LookupQuery
from streamdedup.detection.preparation import Preparer
from streamdedup.detection.suppression import Suppression
from streamdedup.errors import EXIT_USAGE, IndexMismatch, SettingsError, StoreMisconfigured, StoreUnavailable
from streamdedup.index.memory import MemoryIndex
from streamdedup.serve import bodies, index_thread
from streamdedup.serve.access import Gate, Limits
from streamdedup.serve.admission import AllowedHosts, Tokens
from streamdedup.serve.batches import BATCHES
from streamdedup.serve.gathering import Gatherer
from streamdedup.serve.index_thread import PASS_TEXTS, TimedReader
from streamdedup.serve.metrics import ServeMetrics
from streamdedup.serve.problems import PROBLEMS, TYPE_PREFIX
from streamdedup.serve.schemas import MAX_BATCH_MATCHES, MAX_BATCH_TEXTS, MAX_MATCHES
from streamdedup.settings import Settings
from streamdedup.wire import Match, schema
from tests.served import LOOKUP, NEAR, OPTIONS, TEXT, Service, a_receive, a_scope, call

#: A word that no log may contain.
SECRET = "xylophone"
TOKEN = "t" * 22


@pytest.fixture
def make_service():
    """Make services with other options, which are closed at the end."""
    with ExitStack() as stack:
        yield lambda **options: stack.enter_context(closing(Service(**options)))


@pytest.fixture
def service(make_service):
    made = make_service()
    with made.client:
        yield made


@pytest.fixture
def held(make_service, monkeypatch):
    """Hold the calls of a method of the index of a service until the event that is returned is set."""
    events = []

    def hold(service, method):
        events.append(threading.Event())
        call_index = getattr(service.index, method)
        monkeypatch.setattr(service.index, method, lambda *given: events[-1].wait(60) and call_index(*given))
        return events[-1]

    yield hold
    for event in events:
        event.set()


def value(service, name, **labels):
    return service.metrics.registry.get_sample_value(f"streamdedup_serve_{name}", labels)


def check_problem(response, name, **fields):
    """Check a response that is a problem."""
    status, title = PROBLEMS[name]
    body = response.json()
    assert response.headers["content-type"].startswith("application/problem+json")
    assert (response.status_code, body["status"], body["title"]) == (status, status, title)
    assert body["type"] == TYPE_PREFIX + name
    assert {key: body.get(key) for key in fields} == fields
    assert "Traceback" not in response.text
    return body


def endless_body(part_bytes, sent):
    """Return the channel on which a body without an end is received; ``sent`` gets an element for each part."""

    async def receive():
        sent.append(1)
        return {"type": "http.request", "body": b"x" * part_bytes, "more_body": True}

    return receive


async def until(is_reached):
    while not is_reached():  # noqa: ASYNC110
        await asyncio.sleep(0.001)


class TestLookup:
    def test_matches_have_the_fields_of_an_alert_and_the_most_similar_is_first(self, service):
        service.add(("same", TEXT), ("near", NEAR), ("other", "kelp lime moss nettle oak pine quince"))
        answer = service.look_up(text=TEXT, id="new")
        assert [match["id"] for match in answer["matches"]] == ["same", "near"]
        assert (answer["skipped"], answer["complete"], answer["matches_count"]) == (None, True, 2)
        definitions = json.loads(schema("alert"))["$defs"]
        match_schema = {**definitions["match"], "$defs": definitions}
        for match in answer["matches"]:
            jsonschema.validate(match, match_schema)
        of_exact = {field.encode_name for field in msgspec.structs.fields(Match)}
        of_exact -= {"containment_error", "source", "published_at", "incarnation"}
        assert set(answer["matches"][0]) == of_exact

    def test_without_an_id_there_is_no_pair(self, service):
        service.add(("same", TEXT))
        assert "pair" not in service.look_up(text=TEXT)["matches"][0]

    def test_the_limit_cuts_matches_and_not_their_number(self, service):
        service.add(*((f"d{at}", TEXT) for at in range(5)))
        answer = service.look_up(text=TEXT, limit=2)
        assert ([match["id"] for match in answer["matches"]], answer["matches_count"]) == (["d0", "d1"], 5)

    def test_a_lower_threshold_states_the_recall_there(self, service):
        service.add(("near", NEAR))
        answer = service.look_up(text=TEXT, threshold=0.2)
        assert answer["threshold"] == 0.2
        assert answer["recall"] == pytest.approx(1 - (1 - 0.2**2) ** 4)

    @pytest.mark.parametrize(("text", "reason"), [("", "empty"), ("one two", "too_few_words")])
    def test_a_text_that_the_daemon_skips_has_the_reason(self, service, text, reason):
        assert service.look_up(text=text)["skipped"] == reason

    def test_the_rules_of_the_profile_apply_to_a_text_with_a_source(self, make_service):
        options = replace(OPTIONS, suppression=Suppression(ignore_same_source=True))
        made = make_service(options=options)
        made.add(("one", TEXT), ("two", NEAR), source="daily")
        made.add(("three", TEXT))
        of_daily, unknown = made.look_up(text=TEXT, source="daily"), made.look_up(text=TEXT)
        assert ([match["id"] for match in of_daily["matches"]], of_daily["matches_count"]) == (["three"], 1)
        assert of_daily["suppressed"] == {"ignore_same_source": 2}
        assert ([match["id"] for match in unknown["matches"]], unknown["suppressed"]) == (["one", "three", "two"], {})
        path = "/v1/profiles/articles"
        stored = made.client.get(f"{path}/documents/one/matches").json()
        assert [match["id"] for match in stored["matches"]] == ["three"]
        assert stored["suppressed"] == {"ignore_same_source": 1}
        compared = [
            made.client.get(f"{path}/compare", params={"a": "one", "b": "two"}),
            made.client.post(f"{path}/compare", json={"text": TEXT, "id": "two", "source": "daily"}),
            made.client.post(f"{path}/compare", json={"text": TEXT, "id": "two"}),
        ]
        assert [(each.json()["is_match"], each.json()["suppressed_by"]) for each in compared] == [
            (False, "ignore_same_source"),
            (False, "ignore_same_source"),
            (True, None),
        ]

    def test_half_a_surrogate_pair_is_replaced_as_in_a_record(self, service):
        service.add(("d0", "amber \ufffd birch cedar delta"))
        body = b'{"text": "amber \\ud800 birch cedar delta"}'
        response = service.client.post(LOOKUP, content=body, headers={"content-type": "application/json"})
        assert response.json()["matches"][0]["similarity"] == 1.0

    def test_half_a_surrogate_pair_in_an_id_is_refused_because_the_id_would_become_another_one(self, service):
        service.add(("d\ufffd", TEXT))
        body, headers = json.dumps({"text": TEXT, "id": "d\ud800"}).encode(), {"content-type": "application/json"}
        for path in (LOOKUP, "/v1/profiles/articles/compare"):
            response = service.client.post(path, content=body, headers=headers)
            assert "half of a surrogate pair" in check_problem(response, "invalid-field", field="id")["detail"]
        beside = b'{"text": "amber \\ud800"}, {"text": "amber", "id": "d\\ufffd"}'
        batch = b'{"texts": [%b, %b]}' % (body, beside)
        results = service.client.post(LOOKUP + ":batch", content=batch, headers=headers).json()["results"]
        assert [result.get("problem", {}).get("field") for result in results] == ["id", None, None]

    def test_half_a_surrogate_pair_in_the_text_refuses_no_id_with_a_replacement_character(self, service):
        service.add(("d\ufffd", TEXT), ("e", "amber \ufffd birch cedar delta"))
        body = b'{"text": "amber \\ud800 birch cedar delta", "id": "d\\ufffd"}'
        headers = {"content-type": "application/json"}
        for path in (LOOKUP, "/v1/profiles/articles/compare"):
            assert service.client.post(path, content=body, headers=headers).status_code == 200
        response = service.client.post(LOOKUP + ":batch", content=b'{"texts": [%b]}' % body, headers=headers)
        (result,) = response.json()["results"]
        assert [match["id"] for match in result["answer"]["matches"]] == ["e"]

    def test_a_batch_answers_each_text_and_a_mistake_spoils_no_other(self, service):
        service.add(("d0", TEXT))
        texts = [{"text": TEXT}, {}, {"text": 3}, {"text": TEXT, "limit": 0}, 7, {"text": "z" * 2_001}, {"text": NEAR}]
        results = service.client.post(LOOKUP + ":batch", json={"texts": texts}).json()["results"]
        problems = [result.get("problem", {}).get("type", "").removeprefix(TYPE_PREFIX) for result in results]
        assert problems == ["", "missing-text", *["invalid-field"] * 3, "too-large", ""]
        assert [len(result["answer"]["matches"]) for result in results if "answer" in result] == [1, 1]

    @pytest.mark.parametrize("batch", [{}, {"texts": []}, {"texts": [{"text": "a"}] * (MAX_BATCH_TEXTS + 1)}])
    def test_a_batch_has_one_text_at_least_and_not_too_many(self, service, batch):
        response = service.client.post(LOOKUP + ":batch", json=batch)
        check_problem(response, "invalid-field", field="texts")

    def test_a_full_batch_takes_several_passes(self, service):
        service.add(("d0", TEXT))
        response = service.client.post(LOOKUP + ":batch", json={"texts": [{"text": TEXT}] * MAX_BATCH_TEXTS})
        assert [len(result["answer"]["matches"]) for result in response.json()["results"]] == [1] * MAX_BATCH_TEXTS
        assert value(service, "pass_texts_count") == -(-MAX_BATCH_TEXTS // PASS_TEXTS)

    def test_the_matches_of_a_batch_are_bounded_together(self, service):
        greatest = {"text": TEXT, "limit": MAX_MATCHES}
        texts = [greatest] * (MAX_BATCH_MATCHES // MAX_MATCHES)
        assert service.client.post(LOOKUP + ":batch", json={"texts": texts}).status_code == 200
        response = service.client.post(LOOKUP + ":batch", json={"texts": [*texts, {"text": TEXT, "limit": 1}]})
        assert "50,001" in check_problem(response, "invalid-field", field="limit")["detail"]

    def test_matches_beyond_the_limit_are_dropped_group_by_group(self, service, monkeypatch):
        """While a batch is in progress it holds all matches of one group of texts, and not those of all texts."""
        look_up_all, bodies, alive = service.index_thread.look_up_all, [], []

        async def observed(profile, queries):
            answers = await look_up_all(profile, queries)
            alive.append(sum(one() is not None for one in bodies))
            bodies.extend(weakref.ref(answer.suppressed) for answer in answers)
            return answers

        monkeypatch.setattr(service.index_thread, "look_up_all", observed)
        texts = [{"text": TEXT, "limit": 1}] * MAX_BATCH_TEXTS
        response = service.client.post(LOOKUP + ":batch", json={"texts": texts})
        assert len(response.json()["results"]) == MAX_BATCH_TEXTS
        assert alive == [0, 0, 0, 0]

    async def test_few_batches_are_looked_up_at_a_time_and_all_are_answered(self, service, monkeypatch):
        look_up_all, running, most = service.index_thread.look_up_all, [], []
        body = json.dumps({"texts": [{"text": TEXT}]}).encode()

        async def counted(profile, queries):
            running.append(1)
            most.append(len(running))
            try:
                return await look_up_all(profile, queries)
            finally:
                running.pop()

        monkeypatch.setattr(service.index_thread, "look_up_all", counted)
        requests = [call(service.app, path=LOOKUP + ":batch", receive=a_receive(body)) for _ in range(8)]
        assert [start["status"] for start, _ in await asyncio.gather(*requests)] == [200] * 8
        assert max(most) == BATCHES


class TestDocuments:
    @pytest.mark.parametrize("document_id", ["plain", "with/slash", "ünï cøde", "100%", "a?b#c", "%2F", ".."])
    def test_a_document_is_found_by_its_encoded_id(self, service, document_id):
        service.add((document_id, TEXT), ("near", NEAR))
        encoded = "".join(f"%{byte:02X}" for byte in document_id.encode())
        body = service.client.get(f"/v1/profiles/articles/documents/{encoded}").json()
        assert (body["id"], body["cluster_id"], body["shingles"], body["tokens"]) == (document_id, document_id, 7, 8)
        assert body["record_time"] == "1970-01-01T00:00:00.000Z"
        found = service.client.get(f"/v1/profiles/articles/documents/{encoded}/matches").json()
        assert [match["id"] for match in found["matches"]] == ["near"]
        assert found["cluster_id"] == document_id

    def test_the_matches_of_a_document_have_its_cluster(self, service, monkeypatch):
        service.add(("a", TEXT), time_ms=9)
        service.add(("b", NEAR), source="wire", time_ms=7)
        members = [
            {"id": "b", "source": "wire", "record_time": "1970-01-01T00:00:00.007Z", "label": NEAR},
            {"id": "a", "source": None, "record_time": "1970-01-01T00:00:00.009Z", "label": TEXT},
        ]

        def cluster():
            return service.client.get("/v1/profiles/articles/documents/b/matches").json()["cluster"]

        spread = {
            "sources": 1,
            "since": "1970-01-01T00:00:00.007Z",
            "until": "1970-01-01T00:00:00.009Z",
            "earliest_id": "b",
            "earliest_source": "wire",
        }
        assert cluster() == {"id": "a", "members": members, "complete": True, "size": 2, **spread}
        service.add(("c", NEAR), source="coast")
        assert cluster()["sources"] == 2
        monkeypatch.setattr(bodies, "CLUSTER_SIZE_CAP", 2)
        assert cluster()["complete"] is False

    @pytest.mark.parametrize(
        ("path", "problem", "fields"),
        [
            ("documents/none", "unknown-document", {}),
            ("documents/none/matches", "unknown-document", {}),
            ("compare?a=none&b=none", "unknown-document", {}),
            ("compare?a=a&b=b", "unknown-document", {"field": "b"}),
            ("compare?a=x", "invalid-request", {"field": "b"}),
            ("documents/%FF", "invalid-field", {"field": "id"}),
            ("documents/%00", "invalid-field", {"field": "id"}),
            (f"documents/{'a' * 1_025}", "invalid-field", {"field": "id"}),
        ],
    )
    def test_a_document_that_is_unknown_or_not_named_and_a_text_that_cannot_be_an_id(
        self, service, path, problem, fields
    ):
        service.add(("a", TEXT))
        check_problem(service.client.get(f"/v1/profiles/articles/{path}"), problem, **fields)

    def test_a_comparison(self, service):
        service.add(("a", TEXT), ("b", NEAR))
        body = service.client.get("/v1/profiles/articles/compare", params={"a": "a", "b": "b"}).json()
        fields = ("similarity", "method", "is_match", "within_window")
        assert [body[field] for field in fields] == [0.875, "exact", True, True]
        assert (body["bands"], body["a"]["id"], body["b"]["cluster_id"]) == (4, "a", "a")


class TestProblems:
    @pytest.mark.parametrize(
        ("content", "name", "field"),
        [
            (b"", "malformed-json", None),
            (b"{", "malformed-json", None),
            (b"\xff", "malformed-json", None),
            (b'{"text": ' + b"[" * 300, "malformed-json", None),
            (b"[]", "invalid-field", None),
            (b"{}", "missing-text", "text"),
            (b'{"text": null}', "missing-text", "text"),
            (b'{"text": 1}', "invalid-field", "text"),
            (b'{"text": "a", "treshold": 0.5}', "invalid-field", "treshold"),
            (b'{"text": "a", "threshold": 0}', "invalid-field", "threshold"),
            (b'{"text": "a", "threshold": 1.5}', "invalid-field", "threshold"),
            (b'{"text": "a", "limit": 1001}', "invalid-field", "limit"),
            (b'{"text": "a", "id": ""}', "invalid-field", "id"),
            (b'{"text": "a", "id": "\\u0000"}', "invalid-field", "id"),
            (b'{"text": "a", "id": 5}', "invalid-field", "id"),
        ],
    )
    def test_a_body_that_cannot_be_read(self, service, content, name, field):
        response = service.client.post(LOOKUP, content=content, headers={"content-type": "application/json"})
        check_problem(response, name, field=field)

    @pytest.mark.parametrize(
        "content_type", ["", "text/plain", "application/x-www-form-urlencoded", "application/jsonp"]
    )
    def test_another_content_type_is_refused(self, service, content_type):
        headers = {"content-type": content_type} if content_type else {}
        response = service.client.post(LOOKUP, content=b'{"text": "a"}', headers=headers)
        check_problem(response, "unsupported-media-type")

    def test_a_text_beyond_the_limit_of_the_profile_and_a_body_that_is_announced_as_too_large(self, service):
        response = service.client.post(LOOKUP, json={"text": "ä" * 1_001})
        check_problem(response, "too-large", detail="the text is 2,002 bytes long; the limit is 2,000")
        check_problem(service.client.post(LOOKUP, json={"text": "a" * 200_000}), "too-large")

    def test_the_longest_body_grows_with_the_longest_text(self):
        assert Limits.for_texts(1_000) == Limits()
        grown = Limits.for_texts(2**24)
        assert (grown.max_body_bytes, grown.max_bodies_bytes, grown.timeout_s) == (2**27, 2**27, Limits().timeout_s)

    async def test_a_body_without_a_length_is_read_up_to_the_limit(self, make_service):
        """The rest of an endless body is never asked for."""
        made, sent = make_service(max_body_bytes=10_000), []
        start, _ = await call(made.app, receive=endless_body(1_000, sent))
        assert (start["status"], len(sent)) == (413, 11)

    def test_an_unknown_profile_path_and_method(self, service):
        check_problem(service.client.post("/v1/profiles/none/lookup", json={"text": "a"}), "unknown-profile")
        check_problem(service.client.get("/v2"), "not-found")
        check_problem(service.client.put("/v1/profiles"), "method-not-allowed")

    def test_an_index_that_does_not_exist_is_unavailable(self, service):
        service.index._fingerprint = None
        response = service.client.post(LOOKUP, json={"text": TEXT})
        check_problem(response, "index-absent")
        assert int(response.headers["retry-after"]) > 0

    def test_an_index_with_other_parameters_is_unavailable(self, service):
        service.index._fingerprint = None
        service.index.open({"bands": 5})
        body = check_problem(service.client.post(LOOKUP, json={"text": TEXT}), "index-mismatch")
        assert "bands is 5 in the index and 4 in the settings" in body["detail"]

    @pytest.mark.parametrize(
        ("error", "name"),
        [(StoreUnavailable("10.1.2.3"), "store-unavailable"), (StoreMisconfigured("user x"), "index-unusable")],
    )
    @pytest.mark.parametrize(("path", "body"), [("", {"text": TEXT}), (":batch", {"texts": [{"text": TEXT}]})])
    def test_a_store_that_fails_is_unavailable_and_its_text_is_for_the_log(
        self, service, monkeypatch, error, name, path, body
    ):
        def failing(*_arguments):
            raise error

        monkeypatch.setattr(service.index, "look_up", failing)
        with capture_logs() as events:
            response = service.client.post(LOOKUP + path, json=body)
        check_problem(response, name)
        assert str(error) not in response.text
        assert ("retry-after" in response.headers) == (name == "store-unavailable")
        assert [(event["event"], event["reason"]) for event in events] == [("index_unavailable", str(error))]

    def test_a_defect_that_one_text_triggers_fails_that_text_alone_and_shows_no_text(self, service, monkeypatch):
        find = service.index_thread.profiles["articles"].lookup.look_up

        def failing(queries, time_ms):
            if any(SECRET in query.text for query in queries):
                raise RuntimeError(queries[0].text)
            return find(queries, time_ms)

        monkeypatch.setattr(service.index_thread.profiles["articles"].lookup, "look_up", failing)
        service.add(("d0", TEXT))
        texts = [{"text": TEXT}, {"text": f"{SECRET} {TEXT}"}, {"text": NEAR}]
        with capture_logs() as events:
            response = service.client.post(LOOKUP + ":batch", json={"texts": texts})
        results = response.json()["results"]
        assert ["answer" in result for result in results] == [True, False, True]
        assert results[1]["problem"]["type"] == TYPE_PREFIX + "internal"
        assert [event["event"] for event in events] == ["lookup_failed"]
        assert SECRET not in repr(events)
        assert SECRET not in response.text

    def test_a_defect_elsewhere_is_a_problem_without_a_traceback(self, service, monkeypatch, caplog):
        def failing(_document_id):
            raise RuntimeError(SECRET)

        monkeypatch.setattr(service.index_thread.profiles["articles"].lookup, "document", failing)
        with capture_logs() as events, caplog.at_level(logging.DEBUG):
            response = service.client.get("/v1/profiles/articles/documents/a")
        check_problem(response, "internal")
        assert [(event["event"], event["error"]) for event in events] == [("request_failed", "RuntimeError")]
        assert SECRET not in repr(events) + caplog.text + response.text

    def test_an_answer_that_the_framework_cannot_encode_is_logged_too(self, service, monkeypatch):
        monkeypatch.setattr(service.index_thread.profiles["articles"].reader, "count_documents", lambda: "\ud800")
        with capture_logs() as events:
            check_problem(service.client.get("/v1/profiles"), "internal")
        assert [(event["event"], event["error"]) for event in events] == [("request_failed", "UnicodeEncodeError")]

    def test_the_state_of_the_index_is_logged_when_it_changes(self, service, monkeypatch):
        look_up = service.index.look_up

        def failing(*_arguments):
            raise StoreUnavailable("away")

        with capture_logs() as events:
            for answer in (failing, failing, look_up, look_up, failing):
                monkeypatch.setattr(service.index, "look_up", answer)
                service.client.post(LOOKUP, json={"text": TEXT})
        assert [event["event"] for event in events] == ["index_unavailable", "index_available", "index_unavailable"]
        assert value(service, "store_errors_total", profile="articles") == 3

    def test_an_outage_ends_with_a_request_that_is_refused_for_its_scope(self, service, monkeypatch):
        def failing(*_arguments):
            raise StoreUnavailable("away")

        service.add(("d0", TEXT))
        with capture_logs() as events:
            with monkeypatch.context() as patch:
                patch.setattr(service.index, "look_up", failing)
                service.client.post(LOOKUP, json={"text": TEXT})
            body = {"text": TEXT, "id": "d0", "scope": "x"}
            check_problem(service.client.post("/v1/profiles/articles/compare", json=body), "no-scopes")
        assert [event["event"] for event in events] == ["index_unavailable", "index_available"]


class TestAccess:
    def test_a_token_of_the_file_is_required(self, make_service, tmp_path):
        path = tmp_path / "tokens"
        path.write_text(f"# rotated\n{TOKEN}\n\n{'u' * 30}\n")
        made = make_service(tokens=Tokens(path))
        with made.client as client:
            for wrong in (None, TOKEN, f"Basic {TOKEN}", "Bearer x"):
                response = client.get("/v1/profiles", headers={"authorization": wrong} if wrong else {})
                check_problem(response, "unauthorized")
                assert response.headers["www-authenticate"] == "Bearer"
            for token in (TOKEN, "u" * 30):
                assert client.get("/v1/profiles", headers={"authorization": f"bearer {token}"}).status_code == 200
            assert client.get("/metrics").status_code == 401
            assert {client.get(path).status_code for path in ("/livez", "/readyz")} == {200}
            assert {client.head(path).status_code for path in ("/livez", "/readyz")} == {200}
            paths = ("/livez/", f"{client.base_url}//readyz", "/%2Flivez")
            assert [client.get(path).status_code for path in paths] == [200, 200, 401]

    def test_tokens_are_read_again_when_their_file_changes_and_an_unusable_file_changes_nothing(self, tmp_path):
        path = tmp_path / "tokens"
        path.write_text(TOKEN)
        tokens = Tokens(path)

        def allowed():
            return [tokens.allow(f"Bearer {token}".encode()) for token in (TOKEN, "u" * 30)]

        with capture_logs() as events:
            assert allowed() == [True, False]
            path.write_text(f"{TOKEN}\n{'u' * 30}\n")
            assert allowed() == [True, True]
            for change in (lambda: path.write_text("short"), path.unlink):
                change()
                assert allowed() == allowed() == [True, True]
            other = tmp_path / "other"
            other.write_text("u" * 30)
            path.symlink_to(other)
            assert allowed() == [False, True]
        assert [event["event"] for event in events] == ["tokens_read", *["tokens_refused"] * 2, "tokens_read"]
        assert TOKEN not in str(events)

    @pytest.mark.parametrize(
        ("text", "reason"),
        [
            ("", "holds no token"),
            ("# none\n", "holds no token"),
            ("short\n", "line 1 needs"),
            ("ä" * 30, "ASCII"),
            (f"{TOKEN}\n{TOKEN} {TOKEN}\n", "line 2 needs"),
        ],
    )
    def test_a_file_of_tokens_that_cannot_be_used(self, tmp_path, text, reason):
        path = tmp_path / "tokens"
        path.write_text(text, encoding="utf-8")
        with pytest.raises(SettingsError, match=reason) as caught:
            Tokens(path)
        assert TOKEN not in str(caught.value)

    def test_a_byte_order_mark_is_no_part_of_a_token(self, tmp_path):
        path = tmp_path / "tokens"
        path.write_text(TOKEN, encoding="utf-8-sig")
        assert Tokens(path).allow(f"Bearer {TOKEN}".encode())

    def test_a_missing_file_of_tokens(self):
        with pytest.raises(SettingsError, match=r"api\.tokens_file: cannot be read"):
            Tokens(Path("none"))

    @pytest.mark.timeout(60)
    @pytest.mark.parametrize("kind", ["pipe", "folder", "device"])
    def test_what_is_no_regular_file_is_never_read_for_tokens(self, tmp_path, kind):
        path = tmp_path / "tokens"
        path.write_text(TOKEN)
        tokens = Tokens(path)
        path.unlink()
        {"pipe": os.mkfifo, "folder": os.mkdir, "device": lambda path: path.symlink_to("/dev/zero")}[kind](path)
        with pytest.raises(SettingsError, match=rf"^api\.tokens_file: is no regular file: {path}$"):
            Tokens(path)
        with capture_logs() as events:
            assert tokens.allow(b"Bearer " + TOKEN.encode())
        assert [event["event"] for event in events] == ["tokens_refused"]

    @pytest.mark.parametrize("host", ["localhost", "localhost:8080", "127.0.0.1:1", "[::1]", "[::1]:8080", "LOCALHOST"])
    def test_without_tokens_this_machine_may_be_named_in_all_ways(self, service, host):
        assert service.client.get("/livez", headers={"host": host}).status_code == 200

    @pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "evil.example:8080", "::1", ""])
    def test_without_tokens_another_host_is_refused(self, service, host):
        check_problem(service.client.get("/v1/profiles", headers={"host": host}), "host-not-allowed")

    @pytest.mark.parametrize(
        ("hosts", "any_address", "header", "is_allowed"),
        [
            (["dedup.example"], False, "dedup.example", True),
            (["Dedup.Example."], False, "dedup.EXAMPLE:8080", True),
            (["dedup.example"], False, "dedup.example.:8080", True),
            (["dedup.example"], False, "localhost:1", True),
            (["dedup.example"], False, "a.dedup.example", False),
            (["dedup.example"], False, "dedup.example.evil.example", False),
            (["dedup.example"], False, "dedup.example:80@evil.example", False),
            (["dedup.example"], False, "dedup.example:80:80", False),
            (["dedup.example"], False, "", False),
            (["dedup.example"], False, "10.0.0.5:8080", False),
            (["10.0.0.5"], False, "10.0.0.5:8080", True),
            (["::2"], False, "[0::2]:8080", True),
            (["[::2]"], False, "[::2]", True),
            (["::2"], False, "::2", False),
            (["serve"], True, "10.0.0.5:8080", True),
            (["serve"], True, "[fd00::5]:8080", True),
            (["serve"], True, "evil.example:8080", False),
            (["serve"], True, "10.0.0.5.evil.example", False),
            (["serve"], True, "fd00::5", False),
        ],
    )
    def test_the_allowed_hosts_may_be_named_at_any_port(self, hosts, any_address, header, is_allowed):
        assert AllowedHosts(hosts, any_address=any_address).allow(header.encode()) is is_allowed

    def test_without_tokens_a_host_that_is_not_listed_is_refused_with_the_setting(self, make_service):
        made = make_service(hosts=AllowedHosts(["dedup.example"]))
        with made.client as client:
            assert client.get("/v1/profiles", headers={"host": "dedup.example"}).status_code == 200
            body = check_problem(client.get("/v1/profiles", headers={"host": "evil.example"}), "host-not-allowed")
            assert "api.allowed_hosts" in body["detail"]

    def test_with_tokens_any_host_may_be_named(self, make_service, tmp_path):
        (tmp_path / "tokens").write_text(TOKEN)
        made = make_service(tokens=Tokens(tmp_path / "tokens"))
        with made.client as client:
            headers = {"host": "api.example", "authorization": f"Bearer {TOKEN}"}
            assert client.get("/v1/profiles", headers=headers).status_code == 200

    @pytest.mark.parametrize("path", ["/v1/profiles", "/openapi.json", "/none", "/livez", "/metrics"])
    def test_every_response_has_the_security_headers(self, service, path):
        headers = service.client.get(path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cache-control"] == "no-store"
        assert headers["content-security-policy"].startswith("default-src 'none'; ")
        assert "access-control-allow-origin" not in headers

    def test_a_preflight_of_another_origin_is_not_answered(self, service):
        headers = {"origin": "https://evil.example", "access-control-request-method": "POST"}
        response = service.client.options(LOOKUP, headers=headers)
        assert not any(name.startswith("access-control") for name in response.headers)

    async def test_requests_beyond_the_limit_are_refused_and_probes_are_not(self, make_service, held):
        made = make_service(max_requests=2)
        released = held(made, "look_up")
        waiting = [asyncio.create_task(call(made.app)) for _ in range(2)]
        await until(lambda: value(made, "in_flight") == 2)
        refused = await call(made.app)
        live = await call(made.app, method="GET", path="/livez")
        released.set()
        answered = [await each for each in waiting]
        assert (refused[0]["status"], dict(refused[0]["headers"])[b"retry-after"]) == (429, b"1")
        assert live[0]["status"] == 200
        assert [messages[0]["status"] for messages in [*answered, await call(made.app)]] == [200, 200, 200]

    async def test_a_request_that_takes_too_long_is_ended(self, make_service, held):
        made = make_service(timeout_s=0.05)
        released = held(made, "look_up")
        start, body = await call(made.app)
        released.set()
        assert (start["status"], json.loads(body["body"])["type"]) == (503, TYPE_PREFIX + "timeout")
        assert value(made, "in_flight") == 0

    @pytest.mark.parametrize(("method", "path"), [("POST", LOOKUP), ("GET", "/v1/profiles/articles/documents/d0")])
    @pytest.mark.parametrize("is_known", [False, True], ids=["silent", "behind a call that failed"])
    async def test_a_redis_that_is_silent_is_named_before_the_time_of_the_request(
        self, make_service, monkeypatch, held, method, path, is_known
    ):
        made = make_service()
        monkeypatch.setattr(index_thread, "_CHECK_INTERVAL_S", 0.01)
        monkeypatch.setattr(index_thread, "AWAY_S", 60.0 if is_known else 0.1)
        released = held(made, "check")
        if is_known:
            made.index_thread._outages_of(made.index_thread.profiles["articles"]).error = "StoreUnavailable"
        start, body = await call(made.app, method=method, path=path)
        released.set()
        assert (start["status"], json.loads(body["body"])["title"]) == (
            503,
            "Redis does not answer, or the index is being rebuilt or deleted",
        )

    async def test_a_request_that_waits_for_others_waits_while_redis_answers(self, make_service, monkeypatch):
        made = make_service()
        monkeypatch.setattr(index_thread, "_CHECK_INTERVAL_S", 0.001)
        look_up = made.index.look_up
        monkeypatch.setattr(made.index, "look_up", lambda *given: time.sleep(0.05) or look_up(*given))
        assert (await call(made.app))[0]["status"] == 200

    async def test_a_look_up_that_computes_for_long_is_no_silence_of_redis(self, make_service, monkeypatch):
        made = make_service(timeout_s=0.5)
        monkeypatch.setattr(index_thread, "_CHECK_INTERVAL_S", 0.01)
        monkeypatch.setattr(index_thread, "AWAY_S", 0.3)
        released, prepare = threading.Event(), Preparer.prepare
        monkeypatch.setattr(Preparer, "prepare", lambda *given: released.wait(60) and prepare(*given))
        start, body = await call(made.app)
        released.set()
        assert (start["status"], json.loads(body["body"])["type"]) == (503, TYPE_PREFIX + "timeout")

    async def test_an_error_of_the_framework_itself_shows_no_traceback(self):
        async def broken(_scope, _receive, _send):
            raise RuntimeError(SECRET)

        gate = Gate(broken, None, AllowedHosts(), Limits(timeout_s=1.0), ServeMetrics())
        with capture_logs() as events:
            start, body = await call(gate)
        assert (start["status"], json.loads(body["body"])["type"]) == (500, TYPE_PREFIX + "internal")
        assert [(event["event"], event["error"]) for event in events] == [("request_failed", "RuntimeError")]
        assert SECRET not in repr(events)

    async def test_a_probe_has_a_deadline_too(self, make_service, held):
        """Otherwise probes of a Redis that does not answer would wait for each other."""
        made = make_service(timeout_s=0.05)
        released = held(made, "check")
        start, _ = await call(made.app, method="GET", path="/readyz")
        released.set()
        assert start["status"] == 503

    async def test_a_body_that_never_arrives_is_not_waited_for(self, make_service):
        start, body = await call(make_service(timeout_s=0.05).app, receive=asyncio.Event().wait)
        assert (start["status"], json.loads(body["body"])["type"]) == (408, TYPE_PREFIX + "slow-request")

    async def test_bodies_are_limited_together_and_count_until_the_answer(self, make_service, held):
        made = make_service(max_bodies_bytes=100)
        released = held(made, "look_up")
        small, large = (json.dumps({"text": TEXT[:length]}).encode() for length in (20, 45))
        assert len(large) + len(small) <= 100 < 2 * len(large)
        waiting = asyncio.create_task(call(made.app, receive=a_receive(large)))
        await until(lambda: made.index_thread._call_began_at is not None)
        refused = await call(made.app, receive=a_receive(large))
        accepted = asyncio.create_task(call(made.app, receive=a_receive(small)))
        released.set()
        answered = [await waiting, await accepted, await call(made.app, receive=a_receive(large))]
        assert (refused[0]["status"], dict(refused[0]["headers"])[b"retry-after"]) == (429, b"1")
        assert json.loads(refused[1]["body"])["type"] == TYPE_PREFIX + "too-many-requests"
        assert [messages[0]["status"] for messages in answered] == [200, 200, 200]

    async def test_while_a_client_takes_a_long_answer_only_the_answer_is_kept(self, make_service):
        made = make_service(max_requests=1, max_bodies_bytes=6_000_000, max_body_bytes=6_000_000)
        made.add(("d0", TEXT))
        is_sending, released = asyncio.Event(), asyncio.Event()

        async def receive():
            body = json.dumps({"texts": [{"text": TEXT}] * 500}).encode()
            return {"type": "http.request", "body": body + b" " * 5_000_000, "more_body": False}

        async def send(message):
            if message["type"] == "http.response.body":
                is_sending.set()
                await released.wait()

        async def ask(send):
            await made.app(a_scope("POST", LOOKUP + ":batch"), receive, send)

        tracemalloc.start()
        try:
            slow = asyncio.create_task(ask(send))
            await asyncio.wait_for(is_sending.wait(), 60)
            assert tracemalloc.get_traced_memory()[0] < 4_000_000
        finally:
            tracemalloc.stop()
        assert value(made, "in_flight") == 0
        assert (await call(made.app, path=LOOKUP + ":batch", receive=receive))[0]["status"] == 200
        released.set()
        await slow

    async def test_a_client_that_leaves_after_its_body_has_had_an_answer(self):
        messages = iter([{"type": "http.request", "body": b"", "more_body": False}, {"type": "http.disconnect"}])

        async def receive():
            return next(messages)

        async def app(_scope, receive, send):
            await receive()
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await receive()

        metrics = ServeMetrics()
        await call(Gate(app, None, AllowedHosts(), Limits(), metrics), receive=receive)
        labels = {"route": "none", "status": "200"}
        assert metrics.registry.get_sample_value("streamdedup_serve_requests_total", labels) == 1


def a_gatherer(answer, count: int, weight: int = 1_000) -> Gatherer:
    """Return a gatherer of numbers and texts; a number weighs itself."""
    return Gatherer(answer, lambda each: each if isinstance(each, int) else 1, count, weight)


def doubled(passes):
    """Return a function that answers each question with its double, after other tasks had their turn."""

    async def answer(questions):
        passes.append(list(questions))
        await asyncio.sleep(0)
        return [question * 2 for question in questions]

    return answer


class TestGathering:
    async def test_questions_that_arrive_during_a_pass_form_the_next_one(self):
        passes, first, go_on = [], asyncio.Event(), asyncio.Event()

        async def answer(questions):
            passes.append(list(questions))
            first.set()
            await go_on.wait()
            return questions

        gatherer = a_gatherer(answer, 2)
        tasks = [asyncio.create_task(gatherer.ask([0]))]
        await first.wait()
        tasks += [asyncio.create_task(gatherer.ask([each])) for each in range(1, 6)]
        tasks[2].cancel()
        await asyncio.sleep(0)
        go_on.set()
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        assert passes == [[0], [1, 3], [4, 5]]
        assert [answer for answer in answers if isinstance(answer, list)] == [[0], [1], [3], [4], [5]]

    async def test_many_questions_are_asked_in_groups_and_let_others_pass(self):
        passes = []
        gatherer = a_gatherer(doubled(passes), 3)
        many = asyncio.create_task(gatherer.ask([*"abcdefg"]))
        await asyncio.sleep(0)
        answers = await asyncio.gather(many, gatherer.ask(["x"]), gatherer.ask([]))
        assert answers == [[letter * 2 for letter in "abcdefg"], ["xx"], []]
        assert "".join(sorted("".join(map("".join, passes)))) == "abcdefgx"
        assert all(len(each) <= 3 for each in passes)
        # The other question waits for no more than one group of the first ones.
        assert "x" in [*passes[0], *passes[1]]

    async def test_heavy_questions_are_answered_in_several_passes(self):
        passes = []
        gatherer = a_gatherer(doubled(passes), 9, weight=10)
        await gatherer.ask([4, 5, 6, 40, 1, 2])
        await asyncio.gather(*(gatherer.ask([each]) for each in (7, 3, 1)))
        assert passes == [[4, 5], [6], [40], [1, 2], [7, 3], [1]]

    async def test_an_error_of_one_question_and_an_error_of_a_pass(self):
        async def answer(questions):
            if "all" in questions:
                raise StoreUnavailable("away")
            return [IndexMismatch("one") if question == "one" else question for question in questions]

        async def several(*questions):
            gatherer = a_gatherer(answer, 10)
            return [type(each) for (each,) in await asyncio.gather(*(gatherer.ask([each]) for each in questions))]

        assert await several("a", "one") == [str, IndexMismatch]
        assert await several("a", "all") == [StoreUnavailable] * 2

    async def test_requests_that_wait_for_a_pass_are_looked_up_together(self, make_service, held):
        made = make_service()
        released = held(made, "look_up")
        requests = [asyncio.create_task(call(made.app))]
        await until(lambda: made.index_thread._call_began_at is not None)
        requests += [asyncio.create_task(call(made.app)) for _ in range(4)]
        await until(lambda: len(made.index_thread._gatherer._waiting) == 4)
        released.set()
        assert [messages[0]["status"] for messages in await asyncio.gather(*requests)] == [200] * 5
        assert (value(made, "pass_texts_count"), value(made, "pass_texts_sum")) == (2, 5)


@pytest.mark.parametrize("missing", ["litestar", "uvicorn", "h11", "uvloop"])
def test_a_missing_library_is_named_with_the_command_that_installs_it(monkeypatch, missing):
    for module in ("streamdedup.serve.app", "streamdedup.serve.server", "uvicorn.protocols.http.h11_impl"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(SettingsError, match=rf"serve needs {missing}: pip install 'streamdedup\[serve\]'"):
        run_service(Settings.model_construct())


def test_without_the_extra_serve_the_command_says_how_to_install_it():
    """In a process of its own: here all modules of the service are imported already."""
    program = """
import sys
from streamdedup.cli.main import main

class WithoutExtra:
    @staticmethod
    def find_spec(name, *_):
        if name in {"litestar", "uvicorn", "h11", "uvloop"}:
            raise ModuleNotFoundError(name=name)

sys.meta_path.insert(0, WithoutExtra)
main(["serve", *sys.argv[1:]])
"""
    settings = ("kafka.bootstrap_servers=h:1", "redis.url=redis://h:1", "profiles.p.topics=p")
    command = [sys.executable, "-c", program, *(f"--set={setting}" for setting in settings)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (EXIT_USAGE, "")
    assert json.loads(done.stderr)["reason"] == "serve needs litestar: pip install 'streamdedup[serve]'"


class TestAddress:
    def test_answers_are_not_held_back_by_the_socket(self):
        """asyncio sets TCP_NODELAY only where the protocol is named."""
        with _listen("127.0.0.1", 0) as listener:
            assert listener.proto == socket.IPPROTO_TCP
            assert listener.getsockname()[1] > 0

    def test_an_address_in_use_is_named(self):
        with _listen("127.0.0.1", 0) as listener:
            port = listener.getsockname()[1]
            with pytest.raises(SettingsError, match=f"api.port: cannot listen on 127.0.0.1:{port}: "):
                _listen("127.0.0.1", port)

    def test_a_host_that_does_not_exist_is_named(self):
        with pytest.raises(SettingsError, match=r"api\.host: no\.such\.host\.invalid: "):
            _listen("no.such.host.invalid", 0)


class TestService:
    def test_profiles_have_their_settings_and_the_state_of_their_index(self, service):
        service.add(("d0", TEXT))
        (profile,) = service.client.get("/v1/profiles").json()["profiles"]
        assert (profile["name"], profile["bands"], profile["index"], profile["documents"]) == ("articles", 4, None, 1)
        service.index._fingerprint = None
        (profile,) = service.client.get("/v1/profiles").json()["profiles"]
        assert (profile["index"]["type"], profile["documents"]) == (TYPE_PREFIX + "index-absent", None)

    async def test_profiles_whose_redis_is_silent_are_listed_with_its_name_all_at_once(
        self, make_service, monkeypatch, held
    ):
        made = make_service()
        (profile,) = made.index_thread.profiles.values()
        made.index_thread.profiles = {name: replace(profile, name=name) for name in "abc"}
        monkeypatch.setattr(index_thread, "_CHECK_INTERVAL_S", 0.01)
        monkeypatch.setattr(index_thread, "AWAY_S", 0.1)
        released = held(made, "check")
        _, profiles = await call(made.app, method="GET", path="/v1/profiles")
        start, ready = await call(made.app, method="GET", path="/readyz")
        released.set()
        titles = [body["index"]["title"] for body in json.loads(profiles["body"])["profiles"]]
        assert titles == ["Redis does not answer, or the index is being rebuilt or deleted"] * 3
        expected = b"".join(
            b"%c: Redis does not answer, or the index is being rebuilt or deleted\n" % name for name in b"abc"
        )
        assert (start["status"], ready["body"]) == (503, expected)

    def test_it_is_ready_while_one_of_its_indexes_can_be_looked_up(self, service):
        assert service.client.get("/readyz").text == "ok\n"
        (profile,) = service.index_thread.profiles.values()
        absent = TimedReader(MemoryIndex())
        service.index_thread.profiles = {
            "articles": profile,
            "reviews": replace(profile, name="reviews", reader=absent),
        }
        response = service.client.get("/readyz")
        assert (response.status_code, response.text) == (200, "reviews: The index does not exist\n")
        service.index._fingerprint = None
        response = service.client.get("/readyz")
        lines = [f"{name}: The index does not exist\n" for name in ("articles", "reviews")]
        assert (response.status_code, response.text) == (503, "".join(lines))
        assert service.client.get("/livez").status_code == 200

    def test_it_is_not_live_while_a_call_does_not_end(self, service, monkeypatch):
        monkeypatch.setattr("streamdedup.serve.index_thread.STUCK_S", -1.0)
        monkeypatch.setattr(service.index_thread, "_call_began_at", 0.0)
        assert service.client.get("/livez").status_code == 503

    def test_the_counters_of_each_profile_begin_at_zero(self, service):
        for name in ("texts_total", "store_errors_total"):
            assert value(service, name, profile="articles") == 0

    def test_metrics_name_routes_and_not_paths(self, service):
        service.look_up(text=TEXT)
        service.client.get(f"/v1/profiles/articles/documents/{SECRET}")
        service.client.get(f"/{SECRET}")
        text = service.client.get("/metrics").text
        assert 'streamdedup_serve_requests_total{route="/v1/profiles/{profile}/lookup",status="200"} 1.0' in text
        assert 'streamdedup_serve_requests_total{route="none",status="404"} 1.0' in text
        assert SECRET not in text

    def test_the_openapi_document_describes_every_route_and_body(self, service):
        document = service.client.get("/openapi.json").json()
        assert set(document["paths"]) == {
            LOOKUP.replace("articles", "{profile}"),
            LOOKUP.replace("articles", "{profile}") + ":batch",
            "/v1/profiles/{profile}/documents/{document_id}",
            "/v1/profiles/{profile}/documents/{document_id}/matches",
            "/v1/profiles/{profile}/compare",
            "/v1/alerts",
            "/v1/dead-letters",
            "/v1/profiles",
        }
        body = document["components"]["schemas"]["LookupRequest"]
        assert body["required"] == ["text"]
        assert set(body["properties"]) == {"text", "id", "limit", "threshold", "source", "scope"}
        schemas = document["components"]["schemas"]
        match = schemas["Match"]["properties"]
        assert match.keys() == {field.name for field in msgspec.structs.fields(Match)}
        assert match["containment"]["description"].startswith("Share of the smaller document's shingles")
        assert all(field["description"] for field in match.values())
        assert set(re.findall(r'"#/components/schemas/(\w+)"', json.dumps(document))) <= set(schemas)
        body_schema = {**schemas["LookupBody"], "components": document["components"]}
        jsonschema.validate(service.look_up(text=TEXT), body_schema)

    def test_the_openapi_document_names_the_statuses_of_problems_alone(self, service):
        paths = service.client.get("/openapi.json").json()["paths"].values()
        statuses = {int(status) for path in paths for operation in path.values() for status in operation["responses"]}
        assert statuses - {200} <= {status for status, _ in PROBLEMS.values()}


async def test_the_queries_of_one_pass_have_their_own_results(make_service):
    """Answers go back to the requests that asked, in any order of profiles."""
    made = make_service()
    made.add(("d0", TEXT))
    profile = made.index_thread.profiles["articles"]
    queries = (made.index_thread.look_up(profile, LookupQuery(text)) for text in (TEXT, "", NEAR))
    found = await asyncio.gather(*queries)
    assert [len(result.matches) for result in found] == [1, 0, 1]
    assert found[1].skipped == "empty"
