"""The wire format: documents in (``documents``), alerts out (``alerts``), dead letters out (``dead_letters``).

A change of a message touches ``docs/messages.md`` and a JSON Schema in ``schemas``. Of all values in this package, only
``Document.text`` and labels contain document text; errors and headers do not.
"""

from importlib import resources
from typing import Literal

from streamdedup.wire.alerts import (
    ALERT_VERSION,
    MIN_ALERT_BYTES,
    Alert,
    AlertDocument,
    AlertReader,
    Contained,
    Match,
    Reason,
    alert_json,
    decode_alert,
    encode_alert,
    rfc_3339,
)
from streamdedup.wire.documents import KEY_ADVICE, Decoder, Document, Flaw, KeyFormat, Op
from streamdedup.wire.error_codes import ErrorCode
from streamdedup.wire.formats.json_text import MAX_DEPTH, encode_fields, is_too_deep, one_line, repair_json
from streamdedup.wire.formats.registry import RegistryFormat
from streamdedup.wire.identity import (
    MAX_ID_BYTES,
    SCOPE_BYTES,
    content_digest,
    id_mistake,
    missing_scope,
    scope_key,
    toggle_scope,
)
from streamdedup.wire.schema_registry import Registry


def schema(name: Literal["document", "alert", "dead-letter"]) -> str:
    """Return the JSON Schema (2020-12) for a message as text."""
    return resources.files("streamdedup.wire").joinpath("schemas", f"{name}.schema.json").read_text(encoding="utf-8")
