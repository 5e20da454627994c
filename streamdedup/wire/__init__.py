"""Documents in, alerts out: the only package besides ``dead_letters`` that knows the wire format.

A record's value becomes a ``Document`` or a ``DecodeError`` with a stable code; what a document was found to resemble
becomes one or more JSON messages. The formats are promised to users in ``docs/messages.md`` and as JSON Schemas in
``streamdedup/schemas``. Texts go nowhere but into ``Document.text``: no error and no alert contains any of it.
"""

from importlib import resources
from typing import Literal

from streamdedup.wire.alerts import (
    ALERT_VERSION,
    DEFAULT_MAX_ALERT_BYTES,
    DEFAULT_MAX_MATCHES,
    MIN_ALERT_BYTES,
    Alert,
    AlertPart,
    Match,
    Method,
    decode_alert,
    encode_alert,
)
from streamdedup.wire.documents import (
    DEFAULT_MAX_TEXT_BYTES,
    MAX_DEPTH,
    MAX_ID_BYTES,
    Decoder,
    Document,
    ErrorCode,
    Op,
    content_digest,
)

__all__ = [
    "ALERT_VERSION",
    "DEFAULT_MAX_ALERT_BYTES",
    "DEFAULT_MAX_MATCHES",
    "DEFAULT_MAX_TEXT_BYTES",
    "MAX_DEPTH",
    "MAX_ID_BYTES",
    "MIN_ALERT_BYTES",
    "Alert",
    "AlertPart",
    "Decoder",
    "Document",
    "ErrorCode",
    "Match",
    "Method",
    "Op",
    "content_digest",
    "decode_alert",
    "encode_alert",
    "schema",
]


def schema(name: Literal["document", "alert", "dead-letter"]) -> str:
    """Return the JSON Schema (2020-12) of a message as text."""
    return resources.files("streamdedup.wire").joinpath("schemas", f"{name}.schema.json").read_text(encoding="utf-8")
