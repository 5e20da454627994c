"""The dead-letter codes. A new one also goes to ``docs/messages.md`` and ``schemas/dead-letter.schema.json``."""

from enum import StrEnum


class ErrorCode(StrEnum):
    """Reason for a dead letter, of a ``MessageError``; stable names for headers and metric labels."""

    NOT_UTF8 = "not_utf8"
    NOT_JSON = "not_json"
    NOT_AN_OBJECT = "not_an_object"
    TOO_DEEP = "too_deep"
    FOREIGN_FRAMING = "foreign_framing"
    NOT_FRAMED = "not_framed"
    UNKNOWN_SCHEMA = "unknown_schema"
    UNUSABLE_SCHEMA = "unusable_schema"
    SCHEMA_MISMATCH = "schema_mismatch"
    INVALID_FIELD = "invalid_field"
    MISSING_TEXT = "missing_text"
    INVALID_ID = "invalid_id"
    MISSING_SCOPE = "missing_scope"
    UNKNOWN_OP = "unknown_op"
    NULL_WITHOUT_KEY = "null_without_key"
    TOO_LARGE = "too_large"
    UNKNOWN_DOCUMENT = "unknown_document"
    BAG_TOO_LARGE = "bag_too_large"
    ID_COLLISION = "id_collision"
    UNREADABLE = "unreadable"
    INTERNAL = "internal"
