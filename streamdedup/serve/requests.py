"""Decodes request bodies and path parameters, and makes look-up queries.

Bodies are decoded here and not by the framework for three reasons: half surrogate pairs are replaced as in a record, so
that a look-up and the daemon see the same text; a mistake in one text of a batch does not fail the other texts; error
texts contain no value of the request.
"""

from typing import Final, TypeVar
from urllib.parse import unquote_to_bytes

import msgspec

from streamdedup.detection.lookup import LookupQuery
from streamdedup.serve.problems import Problem, RequestProblem
from streamdedup.serve.schemas import MAX_BATCH_TEXTS, CompareRequest, LookupRequest
from streamdedup.wire import MAX_DEPTH, id_mistake, is_too_deep, repair_json

T = TypeVar("T")
R = TypeVar("R", LookupRequest, CompareRequest)

_JSON: Final = "application/json"


class _RawBatch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    texts: list[msgspec.Raw]


_lookup_decoder = msgspec.json.Decoder(LookupRequest)
_compare_decoder = msgspec.json.Decoder(CompareRequest)
_batch_decoder = msgspec.json.Decoder(_RawBatch)


# Bodies


def check_content_type(content_type: str) -> None:
    """Refuse a body that is not declared as JSON, a type that web pages of other origins cannot send (CORS)."""
    if content_type.partition(";")[0].strip().lower() != _JSON:
        raise RequestProblem("unsupported-media-type", f"send the body as {_JSON}")


def decode_lookup(body: bytes, max_text_bytes: int) -> LookupRequest:
    return _decode_request(_lookup_decoder, body, body, max_text_bytes)


def decode_compare(body: bytes, max_text_bytes: int) -> CompareRequest:
    return _decode_request(_compare_decoder, body, body, max_text_bytes)


def decode_batch(body: bytes, max_text_bytes: int) -> list[LookupRequest | Problem]:
    """Decode the body of a batch; in the place of a text that is refused is the problem with it."""
    batch, with_nul = _decode(_batch_decoder, body)
    if not 1 <= len(batch.texts) <= MAX_BATCH_TEXTS:
        detail = f"a batch has 1 to {MAX_BATCH_TEXTS} texts, not {len(batch.texts):,}"
        raise RequestProblem("invalid-field", detail, field="texts")
    requests: list[LookupRequest | Problem] = []
    for text, text_with_nul in zip(map(bytes, batch.texts), map(bytes, with_nul.texts), strict=True):
        try:
            requests.append(_decode_request(_lookup_decoder, text, text_with_nul, max_text_bytes))
        except RequestProblem as error:
            requests.append(error.body)
    return requests


def _decode_request(decoder: msgspec.json.Decoder[R], body: bytes, body_with_nul: bytes, max_text_bytes: int) -> R:
    """Decode a body, or a text of a batch in the two forms of ``_decode``, and check its text and id."""
    request, with_nul = _decode(decoder, body)
    if body_with_nul != body:
        with_nul = decoder.decode(body_with_nul)
    # In UTF-8 a text is never longer than its JSON, so most texts need not be encoded to be measured.
    if len(body) > max_text_bytes and (length := len(request.text.encode())) > max_text_bytes:
        raise RequestProblem("too-large", f"the text is {length:,} bytes long; the limit is {max_text_bytes:,}")
    if request.id is not None:
        check_id(request.id, "id", is_repaired=request.id != with_nul.id)
    return request


def _decode(decoder: msgspec.json.Decoder[T], body: bytes) -> tuple[T, T]:
    """Decode a body with U+FFFD for half surrogate pairs, as in the daemon, and with NUL, to find strings with some."""
    if is_too_deep(body):
        raise RequestProblem("malformed-json", f"the body is nested deeper than {MAX_DEPTH} levels")
    try:
        value = decoder.decode(body)
    except msgspec.ValidationError as error:
        raise _invalid(error) from None
    except ValueError as error:
        repaired = repair_json(body)
        if repaired == body:
            raise RequestProblem("malformed-json", str(error)) from None
        # This ends, because a repaired body has nothing left to repair.
        return _decode(decoder, repaired)[0], decoder.decode(repair_json(body, b"u0000"))
    return value, value


def _invalid(error: msgspec.ValidationError) -> RequestProblem:
    """Return the problem with the wrong field; the error text of msgspec quotes no value."""
    # It ends with the path of the field, or the name of a missing or unknown one.
    reason, _, path = str(error).partition(" - at `$.")
    field = (path or reason.partition(" field `")[2]).removesuffix("`")
    if field == "text" and (reason.startswith("Object missing") or reason.endswith("got `null`")):
        return RequestProblem("missing-text", field="text")
    return RequestProblem("invalid-field", reason, field=field)


def query_of(request: LookupRequest | CompareRequest) -> LookupQuery:
    """Return the query of a request; ``id`` of a ``CompareRequest`` names the stored document, not the text."""
    source, scope = request.source, request.scope
    if isinstance(request, CompareRequest):
        return LookupQuery(request.text, source=source, scope=scope)
    return LookupQuery(request.text, id=request.id, threshold=request.threshold, source=source, scope=scope)


# Ids


def decode_path_id(encoded: str) -> str:
    try:
        document_id = unquote_to_bytes(encoded).decode()
    except UnicodeDecodeError:
        raise RequestProblem("invalid-field", "the id is not UTF-8", field="id") from None
    check_id(document_id, "id")
    return document_id


def check_id(document_id: str, field: str, *, is_repaired: bool = False) -> None:
    mistake = id_mistake(document_id, len(document_id.encode()))
    if is_repaired:  # two ids could become equal by the repair
        mistake = "contains half of a surrogate pair"
    if mistake is not None:
        raise RequestProblem("invalid-field", f"the id {mistake}", field=field)
