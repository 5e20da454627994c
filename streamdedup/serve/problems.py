"""Errors of the HTTP service as problem details (RFC 9457).

The ``type`` of a problem is stable: a URN whose last part is a name from ``PROBLEMS``. The ``title`` belongs to the
type; ``detail`` describes the occurrence and never contains text of a document.
"""

from http import HTTPStatus
from typing import Final

import msgspec

from streamdedup.errors import FatalError, IndexMismatch, MessageError, StoreUnavailable, StreamdedupError
from streamdedup.wire import ErrorCode

PROBLEM_JSON: Final = "application/problem+json"
TYPE_PREFIX: Final = "urn:streamdedup:problem:"  # beginning of the type of each problem
#: Delay in ``Retry-After`` while Redis does not answer or the index does not exist, in seconds.
_STORE_RETRY_S: Final = 2

#: Status and title of each problem by name. Clients rely on names and statuses.
PROBLEMS: Final[dict[str, tuple[int, str]]] = {
    "malformed-json": (400, "The body is not JSON"),
    "invalid-request": (400, "The request cannot be read"),
    "host-not-allowed": (400, "The Host header names another server"),
    "unauthorized": (401, "A valid bearer token is required"),
    "not-found": (404, "There is no such resource"),
    "unknown-profile": (404, "There is no such profile"),
    "unknown-document": (404, "The index has no such document"),
    "method-not-allowed": (405, "The resource has no such method"),
    "slow-request": (408, "The request arrives too slowly"),
    "no-scopes": (409, "The profile has no scopes"),
    "too-large": (413, "The body or a text is too large"),
    "unsupported-media-type": (415, "The content type is not application/json"),
    "missing-text": (422, "The text is missing"),
    "missing-scope": (422, "The scope is missing"),
    "invalid-field": (422, "A field is invalid"),
    "id-collision": (422, "Another document has the number of this id"),
    "too-many-requests": (429, "Too many requests are in progress"),
    "internal": (500, "The service has a defect"),
    "index-absent": (503, "The index does not exist"),
    "index-mismatch": (503, "The index was built with other parameters"),
    "index-unusable": (503, "The index cannot be read"),
    "store-unavailable": (503, "Redis does not answer, or the index is being rebuilt or deleted"),
    "alerts-unavailable": (503, "Alerts cannot be read"),
    "dead-letters-unavailable": (503, "Dead letters cannot be read"),
    "timeout": (503, "The answer took too long"),
}


class Problem(msgspec.Struct, frozen=True, omit_defaults=True):
    """Body of the answer to a request that failed; ``detail`` is empty where the title says all."""

    type: str
    title: str
    status: int
    detail: str = ""
    field: str = ""


class RequestProblem(Exception):
    """Ends a request with a problem of ``PROBLEMS``; ``retry_after_s`` is None where waiting does not help."""

    def __init__(self, name: str, detail: str = "", *, field: str = "", retry_after_s: int | None = None) -> None:
        status, title = PROBLEMS[name]
        super().__init__(detail or title)
        self.body = Problem(TYPE_PREFIX + name, title, status, detail, field)
        self.headers = {} if retry_after_s is None else {"retry-after": str(retry_after_s)}
        if status == HTTPStatus.UNAUTHORIZED:
            self.headers["www-authenticate"] = "Bearer"


class IndexAbsentError(StreamdedupError):
    """The index of a profile does not exist: no daemon has created it, or it was deleted."""


def request_problem_of(error: Exception) -> RequestProblem:  # noqa: PLR0911  one for each kind of error
    """Return the problem that reports an error of a request.

    Texts of store errors are not sent, because they may name servers and users; ``IndexAbsentError`` names only the
    profile, ``IndexMismatch`` only parameters. A ``MessageError`` of a look-up is about the scope
    (``detection.scope.query_scope``), or an ``ID_COLLISION``.
    """
    match error:
        case RequestProblem():
            return error
        case StoreUnavailable():
            return RequestProblem("store-unavailable", retry_after_s=_STORE_RETRY_S)
        case IndexAbsentError():
            return RequestProblem("index-absent", str(error), retry_after_s=_STORE_RETRY_S)
        case IndexMismatch():
            return RequestProblem("index-mismatch", str(error))
        case FatalError():  # any but IndexMismatch
            return RequestProblem("index-unusable")
        case MessageError(code=ErrorCode.MISSING_SCOPE):
            return RequestProblem("missing-scope", str(error), field="scope")
        case MessageError(code=ErrorCode.INVALID_FIELD):  # the request has a scope, and the profile has no scopes
            return RequestProblem("no-scopes", str(error), field="scope")
        case MessageError():  # ``ID_COLLISION``
            return RequestProblem("id-collision", str(error), field="id")
        case _:
            return RequestProblem("internal")


def place_of(error: Exception) -> str:
    """Return file and line where an error was raised, for the log; a whole traceback could show a document's text."""
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    return "" if frame is None else f"{frame.tb_frame.f_code.co_filename.rpartition('/')[2]}:{frame.tb_lineno}"
