"""The Litestar application: its routes, and how an exception becomes a problem. Called by ``cli.serve``.

The docstring of a handler is the description of its operation in the OpenAPI document. ``served`` is the profile that
the path of a request names (``_served_profile``). A function that a handler passes to ``IndexThread.call`` runs in that
thread.
"""

import asyncio
import re
from collections.abc import Mapping
from typing import Annotated, Any, Final

import msgspec
import structlog
from litestar import Litestar, MediaType, Request, Response, get, post, route
from litestar.di import NamedDependency, Provide
from litestar.exceptions import HTTPException
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import FromPath, HeaderParameter, PathParameter, QueryParameter
from litestar.response.base import ASGIResponse
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from streamdedup.detection.lookup import DocumentComparison
from streamdedup.errors import StreamdedupError
from streamdedup.serve.batches import BatchLookup
from streamdedup.serve.bodies import cluster_body, compare_body, document_body, lookup_body, matches_body, profile_body
from streamdedup.serve.events import EVENT_STREAM, MAX_RECENT, parse_event_id
from streamdedup.serve.feed import Feed, Feeds
from streamdedup.serve.index_thread import IndexThread, ServedProfile, StoredDocument
from streamdedup.serve.metrics import ServeMetrics
from streamdedup.serve.openapi import openapi_route
from streamdedup.serve.page import page_routes
from streamdedup.serve.problems import PROBLEM_JSON, Problem, RequestProblem, place_of, request_problem_of
from streamdedup.serve.requests import (
    check_content_type,
    check_id,
    decode_compare,
    decode_lookup,
    decode_path_id,
    query_of,
)
from streamdedup.serve.schemas import (
    ID_SCHEMA,
    CompareBody,
    DocumentBody,
    DocumentMatchesBody,
    LookupBatchBody,
    LookupBody,
    ProfileBody,
    ProfilesBody,
)
from streamdedup.serve.streaming import EventStream
from streamdedup.serve.texts import TextAligner

#: Problem by the status of an ``HTTPException`` of the framework; other statuses are ``internal``.
_FRAMEWORK_PROBLEMS: Final = {
    400: "invalid-request",
    404: "not-found",
    405: "method-not-allowed",
    413: "too-large",
    415: "unsupported-media-type",
}
#: Error text of Litestar 2.25 for a missing parameter: the name of the parameter is in this text alone.
_MISSING_PARAMETER: Final = re.compile(r"Missing required \w+ parameter '([\w-]+)' ")
#: Content type of metrics; the framework adds the character set.
_METRICS_TYPE: Final = CONTENT_TYPE_LATEST.partition("; charset")[0]

log = structlog.get_logger("streamdedup.serve")

_Request = Request[Any, Any, Any]
_Thread = NamedDependency[IndexThread]
_Served = NamedDependency[ServedProfile]
# `access.Gate` gives the routes the undecoded path, so that an id may contain `%2F`. Handlers therefore decode ids of a
# path; the framework decodes those of a query.
_DocumentId = Annotated[str, PathParameter(description="Id of a document, percent-encoded.", schema_extra=ID_SCHEMA)]


def _problems(*statuses: int) -> Mapping[int, ResponseSpec]:
    """Describe problems with these statuses, and with those that any request may get."""
    return {
        status: ResponseSpec(Problem, generate_examples=False, description="Problem.", media_type=PROBLEM_JSON)
        for status in sorted({*statuses, 400, 401, 408, 429, 500, 503})
    }


# Look-ups. No POST of the service creates anything: status 200, not Litestar's 201. Status 409 is for a request with a
# scope to a profile without scopes. A batch has no 409: it reports this problem in the place of the text.


@post("/v1/profiles/{profile:str}/lookup", status_code=200, responses=_problems(404, 409, 413, 415, 422))
async def look_up(request: _Request, served: _Served, thread: _Thread) -> LookupBody:
    """Find the near-duplicates of a text.

    The matches are those that a daemon would find if the text arrived now.
    """
    check_content_type(request.headers.get("content-type", ""))
    lookup = decode_lookup(await request.body(), served.max_text_bytes)
    # A `limit` has no fraction, but is a float, so that JSON may also write it as 1.0 (`schemas.LookupRequest`).
    return lookup_body(await thread.look_up(served, query_of(lookup)), int(lookup.limit))


@post("/v1/profiles/{profile:str}/lookup:batch", status_code=200, responses=_problems(404, 413, 415, 422))
async def look_up_batch(request: _Request, served: _Served, batches: NamedDependency[BatchLookup]) -> LookupBatchBody:
    """Find the near-duplicates of up to 500 texts, each for itself; a problem with a text is reported in its place."""
    check_content_type(request.headers.get("content-type", ""))
    return LookupBatchBody(await batches.look_up(served, await request.body()))


# Documents


@get("/v1/profiles/{profile:str}/documents/{document_id:str}", responses=_problems(404, 422))
async def document(served: _Served, document_id: _DocumentId, thread: _Thread) -> DocumentBody:
    """Return a document of the index, without its text; the id is percent-encoded."""
    decoded_id = decode_path_id(document_id)
    return document_body(served, await thread.call(served, lambda: served.document(decoded_id)))


@get("/v1/profiles/{profile:str}/documents/{document_id:str}/matches", responses=_problems(404, 422))
async def document_matches(served: _Served, document_id: _DocumentId, thread: _Thread) -> DocumentMatchesBody:
    """Return the near-duplicates of a document of the index, and its cluster."""
    decoded_id = decode_path_id(document_id)

    def find_matches() -> DocumentMatchesBody:
        stored = served.document(decoded_id)
        cluster = cluster_body(stored.cluster_id, served.lookup.cluster_of(stored.entry))
        return matches_body(stored.entry, cluster, served.lookup.matches_of(stored.entry))

    return await thread.call(served, find_matches)


@get("/v1/profiles/{profile:str}/compare", responses=_problems(404, 422))
async def compare(
    served: _Served,
    thread: _Thread,
    aligner: NamedDependency[TextAligner],
    a: Annotated[str, QueryParameter(description="Id of a document.", schema_extra=ID_SCHEMA)],
    b: Annotated[str, QueryParameter(description="Id of another document.", schema_extra=ID_SCHEMA)],
) -> CompareBody:
    """Compare two documents of the index, and align their texts where Kafka still has both."""
    check_id(a, "a")
    check_id(b, "b")

    def compare_stored() -> tuple[StoredDocument, StoredDocument, DocumentComparison]:
        stored_a, stored_b = served.document(a, "a"), served.document(b, "b")
        return stored_a, stored_b, served.lookup.compare(stored_a.entry, stored_b.entry)

    stored_a, stored_b, comparison = await thread.call(served, compare_stored)
    alignment = await aligner.align(served.decoder, stored_a.entry, stored_b.entry)
    return compare_body(document_body(served, stored_a), document_body(served, stored_b), comparison, alignment)


@post("/v1/profiles/{profile:str}/compare", status_code=200, responses=_problems(404, 409, 413, 415, 422))
async def compare_text(
    request: _Request, served: _Served, thread: _Thread, aligner: NamedDependency[TextAligner]
) -> CompareBody:
    """Compare a text with a document of the index, and align it where Kafka still has the text of the document."""
    check_content_type(request.headers.get("content-type", ""))
    request_body = decode_compare(await request.body(), served.max_text_bytes)

    def compare_text_with_stored() -> tuple[StoredDocument, DocumentComparison]:
        stored = served.document(request_body.id, "id")
        return stored, served.lookup.compare_text(query_of(request_body), stored.entry, thread.now_ms())

    stored, comparison = await thread.call(served, compare_text_with_stored)
    alignment = await aligner.align(served.decoder, request_body.text, stored.entry)
    return compare_body(None, document_body(served, stored), comparison, alignment)


@route("/v1/profiles/{profile:str}/compare", http_method="OPTIONS", status_code=204, include_in_schema=False)
async def compare_options(profile: FromPath[str]) -> Response[None]:  # noqa: ARG001  a part of the path
    """Name the methods of the path: Litestar 2.25 would name the method of only one of its handlers."""
    return Response(None, headers={"allow": "GET, OPTIONS, POST"})


# Streams

_STREAM: Final = ResponseSpec(
    str, generate_examples=False, description="Server-sent events, without end.", media_type=EVENT_STREAM
)
_LastEventId = Annotated[
    str | None, HeaderParameter(name="Last-Event-ID", description="Id after which the stream resumes.")
]

_Recent = Annotated[
    int,
    QueryParameter(
        ge=0, le=MAX_RECENT, description="Offsets before the end with which a stream without Last-Event-ID begins."
    ),
]


@get("/v1/alerts", responses={**_problems(404), 200: _STREAM})
async def alerts(
    thread: _Thread,
    feeds: NamedDependency[Feeds],
    profile: Annotated[str | None, QueryParameter(description="Profile; default: all.")] = None,
    recent: _Recent = 0,
    last_event_id: _LastEventId = None,
) -> ASGIResponse:
    """Follow the committed alerts of all daemons, without end; an event `alert` has the JSON of an alert as data."""
    if profile is not None:
        _served_profile(profile, thread)  # raises for an unknown profile
    return _stream(feeds.alerts, profile, last_event_id, recent)


@get("/v1/dead-letters", responses={**_problems(), 200: _STREAM})
async def dead_letters(
    feeds: NamedDependency[Feeds], recent: _Recent = 0, last_event_id: _LastEventId = None
) -> ASGIResponse:
    """Follow the committed dead letters of all daemons, without end.

    An event `dead-letter` has position, reason, error and time of a failure as data, and no part of the record.
    """
    return _stream(feeds.dead_letters, None, last_event_id, recent)


def _stream(feed: Feed, profile: str | None, last_event_id: str | None, recent_count: int) -> ASGIResponse:
    last = None if last_event_id is None else parse_event_id(last_event_id)
    return EventStream(feed, feed.subscribe(profile, last, recent_count))


# The service


@get("/v1/profiles", responses=_problems())
async def profiles(thread: _Thread) -> ProfilesBody:
    """Return all profiles with the states of their indexes."""
    bodies = (_profile_with_state(thread, served) for served in thread.profiles.values())
    return ProfilesBody(await asyncio.gather(*bodies))


async def _profile_with_state(thread: IndexThread, served: ServedProfile) -> ProfileBody:
    try:
        documents_count = await thread.call(served, served.reader.count_documents)
    except StreamdedupError as error:
        return profile_body(served, documents_count=None, index_problem=request_problem_of(error).body)
    return profile_body(served, documents_count, index_problem=None)


@route("/livez", http_method=["GET", "HEAD"], media_type=MediaType.TEXT)
async def livez(thread: _Thread) -> Response[str]:
    if thread.is_stuck():
        return Response("a call of the index does not end\n", status_code=503, media_type=MediaType.TEXT)
    return Response("ok\n", media_type=MediaType.TEXT)


@route("/readyz", http_method=["GET", "HEAD"], media_type=MediaType.TEXT)
async def readyz(thread: _Thread) -> Response[str]:
    """Tell whether at least one index can be looked up; the body has a line for each one that cannot."""
    errors = await asyncio.gather(*map(thread.index_error, thread.profiles.values()))
    states = zip(thread.profiles, errors, strict=True)
    problems = [f"{name}: {request_problem_of(error).body.title}\n" for name, error in states if error is not None]
    is_ready = len(problems) < len(errors)
    return Response("".join(problems) or "ok\n", status_code=200 if is_ready else 503, media_type=MediaType.TEXT)


@get("/metrics")
async def show_metrics(metrics: NamedDependency[ServeMetrics]) -> Response[bytes]:
    return Response(generate_latest(metrics.registry), media_type=_METRICS_TYPE)


def _served_profile(profile: FromPath[str], thread: _Thread) -> ServedProfile:
    served = thread.profiles.get(profile)
    if served is None:
        raise RequestProblem("unknown-profile", field="profile")
    return served


# Errors


def _problem_response(_request: _Request, error: Exception) -> Response[bytes]:
    problem = request_problem_of(error)
    body = msgspec.json.encode(problem.body)
    return Response(body, status_code=problem.body.status, media_type=PROBLEM_JSON, headers=problem.headers)


def _on_framework_error(request: _Request, error: HTTPException) -> Response[bytes]:
    name = _FRAMEWORK_PROBLEMS.get(error.status_code)
    if name is None:
        if isinstance(error.__cause__, Exception):  # such as an answer that cannot be encoded
            return _on_defect(request, error.__cause__)
        name = "internal"  # the client disconnected while its body was read: nobody gets this response
    detail, field = _wrong_parameter(error) if name == "invalid-request" else ("", "")
    response = _problem_response(request, RequestProblem(name, detail, field=field))
    response.headers.update(error.headers or {})  # with status 405, the allowed methods
    return response


def _wrong_parameter(error: HTTPException) -> tuple[str, str]:
    """Return the mistake in a parameter and the name of the parameter, or empty texts; never the value."""
    match error.extra:
        case [{"message": str(mistake), "key": str(name)}, *_]:
            return mistake, name
    missing = _MISSING_PARAMETER.match(error.detail)
    return ("a parameter that is required is missing", missing[1]) if missing else ("", "")


def _on_defect(request: _Request, error: Exception) -> Response[bytes]:
    log.error(
        "request_failed", route=request.scope.get("path_template"), error=type(error).__name__, place=place_of(error)
    )
    return _problem_response(request, RequestProblem("internal"))


#: Handlers that the OpenAPI document describes.
_DESCRIBED: Final = (
    look_up,
    look_up_batch,
    document,
    document_matches,
    compare,
    compare_text,
    alerts,
    dead_letters,
    profiles,
)


def create_app(
    thread: IndexThread, aligner: TextAligner, feeds: Feeds, metrics: ServeMetrics, max_body_bytes: int
) -> Litestar:
    batches = BatchLookup(thread)
    dependencies = {
        "thread": Provide(lambda: thread, sync_to_thread=False),
        "served": Provide(_served_profile, sync_to_thread=False),
        "batches": Provide(lambda: batches, sync_to_thread=False),
        "aligner": Provide(lambda: aligner, sync_to_thread=False),
        "feeds": Provide(lambda: feeds, sync_to_thread=False),
        "metrics": Provide(lambda: metrics, sync_to_thread=False),
    }
    return Litestar(
        [
            compare_options,
            *_DESCRIBED,
            livez,
            readyz,
            show_metrics,
            openapi_route(_DESCRIBED, dependencies),
            *page_routes(),
        ],
        dependencies=dependencies,
        exception_handlers={
            RequestProblem: _problem_response,
            StreamdedupError: _problem_response,
            HTTPException: _on_framework_error,
            Exception: _on_defect,
        },
        openapi_config=None,
        request_max_body_size=max_body_bytes,
        logging_config=None,
        debug=False,
    )
