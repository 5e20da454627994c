"""The wire format: documents in (``documents``), alerts out (``alerts``), dead letters out (``dead_letters``).

The value of a record is decoded to a ``Document`` or a ``DecodeError`` with a stable code. An ``Alert`` is encoded to
one or more JSON messages. The formats are specified in ``docs/messages.md`` and in the JSON Schemas of
``streamdedup/wire/schemas``. The text of a document is in ``Document.text`` alone: no error, alert or header contains
any part of it.
"""

from importlib import resources
from typing import Literal

from streamdedup.wire.alerts import (
    MIN_ALERT_BYTES,
    Alert,
    AlertPart,
    Contained,
    Match,
    MatchBody,
    Reason,
    decode_alert,
    encode_alert,
    match_body,
    rfc_3339,
)
from streamdedup.wire.documents import (
    MAX_DEPTH,
    MAX_ID_BYTES,
    Decoder,
    Document,
    ErrorCode,
    Op,
    content_digest,
    id_mistake,
    is_too_deep,
    repair_json,
)

__all__ = [
    "MAX_DEPTH",
    "MAX_ID_BYTES",
    "MIN_ALERT_BYTES",
    "Alert",
    "AlertPart",
    "Contained",
    "Decoder",
    "Document",
    "ErrorCode",
    "Match",
    "MatchBody",
    "Op",
    "Reason",
    "content_digest",
    "decode_alert",
    "encode_alert",
    "id_mistake",
    "is_too_deep",
    "match_body",
    "repair_json",
    "rfc_3339",
    "schema",
]


def schema(name: Literal["document", "alert", "dead-letter"]) -> str:
    """Return the JSON Schema (2020-12) of a message as text."""
    return resources.files("streamdedup.wire").joinpath("schemas", f"{name}.schema.json").read_text(encoding="utf-8")
