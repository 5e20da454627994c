"""The dead-letter codes. A new one also goes to ``docs/messages.md`` and ``schemas/dead-letter.schema.json``."""

from enum import StrEnum


class ErrorCode(StrEnum):
    """Reason for a dead letter, of a ``MessageError``; stable names for headers and metric labels."""

    NOT_UTF8 = "not_utf8"
    NOT_JSON = "not_json"
    NOT_AN_OBJECT = "not_an_object"
    TOO_DEEP = "too_deep"
    #: The value has a schema id in front, but the format of the profile is plain JSON.
    FOREIGN_FRAMING = "foreign_framing"
    #: The value has no schema id, but the format of the profile has schemas in a registry.
    NOT_FRAMED = "not_framed"
    #: The registry has no schema with the id of the value.
    UNKNOWN_SCHEMA = "unknown_schema"
    #: The schema is of another type than the format of the profile, has no text field, or cannot be compiled.
    UNUSABLE_SCHEMA = "unusable_schema"
    #: Bytes that do not fit their schema.
    SCHEMA_MISMATCH = "schema_mismatch"
    INVALID_FIELD = "invalid_field"
    MISSING_TEXT = "missing_text"
    INVALID_ID = "invalid_id"
    #: A document without a scope, in a profile with a scope field and no default.
    MISSING_SCOPE = "missing_scope"
    UNKNOWN_OP = "unknown_op"
    NULL_WITHOUT_KEY = "null_without_key"
    TOO_LARGE = "too_large"
    #: An append to a document that is not in the index.
    UNKNOWN_DOCUMENT = "unknown_document"
    #: An append to a document that is stored as a signature, in a profile that counts repeated shingles.
    BAG_TOO_LARGE = "bag_too_large"
    #: Two ids share one 64-bit document number.
    ID_COLLISION = "id_collision"
    #: The Kafka client could not read the record; only its position is known.
    UNREADABLE = "unreadable"
    #: A defect in this program that the record triggers.
    INTERNAL = "internal"
