"""Fields of JSON in nested objects, and the repair of JSON that is almost valid."""

import pytest

from streamdedup.errors import DecodeError
from streamdedup.position import Position
from streamdedup.wire import Decoder, ErrorCode, is_too_deep

AT = Position("articles", 3, 1042)
PATHS = {
    "text_fields": ("payload.body", "title", "a.b.t"),
    "id_field": "meta.id",
    "op_field": "op",
    "source_field": "a.b.c",
}


@pytest.mark.parametrize(
    ("value", "fields"),
    [
        (b'{"payload": {"body": "x"}, "meta": {"id": 5}}', ("x", "5", None)),
        (b'{"payload.body": "x", "meta.id": "i"}', ("x", "i", None)),
        (b'{"payload": {"body": "y"}, "payload.body": "x"}', ("x", "key", None)),
        (b'{"payload": {"body": "x"}, "payload.body": null}', ("x", "key", None)),
        (b'{"payload": {"body": "x"}, "a": {"b": {"c": "s"}}}', ("x", "key", "s")),
        (b'{"payload": {"body": "x"}, "a": {"b.c": "s"}, "a.b": {"c": "s"}}', ("x", "key", None)),
        (b'{"payload": {"body": "x"}, "a": {"b": "s"}}', ("x", "key", None)),
        (b'{"payload": {"body": "z"}, "payload": {"body": "x"}}', ("x", "key", None)),
        (b'{"payload": {"body": "z"}, "payload": null, "title": "x"}', ("x", "key", None)),
        (b'{"payload": [{"body": "z"}], "meta": 7, "title": "x"}', ("x", "key", None)),
        (b'{"payload": {"body": "x", "more": {"body": 5}}, "a": []}', ("x", "key", None)),
        (b'\xef\xbb\xbf {"payload" : {"body":"\\ud800"}}', ("\ufffd", "key", None)),
    ],
)
def test_a_dot_in_the_name_of_a_field_leads_into_an_object_where_no_field_has_the_whole_name(value, fields):
    document = Decoder(**PATHS).decode(AT, 5, b"key", value)
    assert (document.text, document.id, document.source) == fields


@pytest.mark.parametrize(
    ("value", "code", "reason"),
    [
        (
            b'{"payload": {"body": 5}}',
            ErrorCode.INVALID_FIELD,
            "field `payload.body`: Expected `str | null`, got `int`",
        ),
        (b'{"payload.body": 5}', ErrorCode.INVALID_FIELD, "field `payload.body`: "),
        (
            b'{"title": "x", "a": {"b": {"t": {}}}}',
            ErrorCode.INVALID_FIELD,
            "field `a.b.t`: Expected `str | null`, got `object`",
        ),
        (b'{"title": "x", "meta": {"id": {}}}', ErrorCode.INVALID_ID, "is of a wrong type"),
        (b'{"title": "x", "meta": {"id": "\\ud800"}}', ErrorCode.INVALID_ID, "half of a surrogate pair"),
        (b'{"title": "x", "meta": {"id": "\\u0000\\ud800"}}', ErrorCode.INVALID_ID, "control character"),
        (b'{"payload": {"body": "\xff"}}', ErrorCode.NOT_UTF8, "position 22"),
        (b'{"payload": {"body": "x", "y": [nul]}}', ErrorCode.NOT_JSON, "byte 33"),
        (b'{"payload": {"more": "x"}}', ErrorCode.MISSING_TEXT, "`payload.body`, `title`"),
        (b"[]", ErrorCode.NOT_AN_OBJECT, ""),
    ],
)
def test_errors_name_the_whole_path_of_a_field(value, code, reason):
    with pytest.raises(DecodeError) as caught:
        Decoder(**PATHS).decode(AT, 5, b"key", value)
    assert caught.value.code == code
    assert reason in str(caught.value)


def test_a_name_and_a_path_that_begins_with_it_can_both_be_fields():
    decoder = Decoder(id_field="a", text_fields=("a.b", "a.b.c"))
    assert decoder.decode(AT, 5, None, b'{"a": "i", "a.b": "x", "a.b.c": "y"}').text == "x\ny"
    with pytest.raises(DecodeError, match="id"):
        decoder.decode(AT, 5, None, b'{"a": {"b": "x"}}')


def test_the_depth_of_many_strings_and_brackets_is_counted_across_parts():
    strings = b'"]]","\\"[[",' * 3_000
    for levels, is_deep in ((250, False), (251, True)):
        value = b"[" * 3 + strings + b"[" * 3 + strings + b"[" * levels + b"]" * (levels + 6)
        assert is_too_deep(value) == is_deep
