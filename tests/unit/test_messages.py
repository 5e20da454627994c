"""The wire formats: documents decoded, alerts encoded, dead letters made, and each valid by its schema."""

import json
import string
from dataclasses import replace
from hashlib import blake2b, sha256

import msgspec
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from msgspec import structs

from streamdedup.errors import DecodeError, DocumentTooLarge, MessageError
from streamdedup.kafka.protocols import Record
from streamdedup.position import Position
from streamdedup.wire import (
    ALERT_VERSION,
    MAX_DEPTH,
    MAX_ID_BYTES,
    MIN_ALERT_BYTES,
    Alert,
    AlertDocument,
    Decoder,
    Document,
    ErrorCode,
    Match,
    content_digest,
    dead_letters,
    decode_alert,
    encode_alert,
    rfc_3339,
    schema,
)
from streamdedup.wire.copied_headers import MAX_COPIED_BYTES, copied_headers, headers_bytes
from streamdedup.wire.dead_letters import MIN_BYTES, PREFIX, DaemonInfo, Failure, Stage, dead_letter, read_headers
from tests.bad_input import ROWS
from tests.thoroughness import examples

AT = Position("articles", 3, 1042)
TIME_MS = 1_777_618_931_480
NOW_MS = TIME_MS + 132
DAEMON = DaemonInfo("streamdedup", "0", "0.1.0")
FAILURE = Failure(Stage.DECODE, ErrorCode.MISSING_TEXT, "DecodeError", "no text")
VALIDATORS = {
    name: Draft202012Validator(json.loads(schema(name)), format_checker=Draft202012Validator.FORMAT_CHECKER)
    for name in ("document", "alert", "dead-letter")
}


def decode(value, key=None, **options):
    return Decoder(**options).decode(AT, TIME_MS, key, value)


def refusal(value, key=None, **options):
    with pytest.raises(MessageError) as caught:
        decode(value, key, **options)
    return caught.value


# --- Decoding of valid values ---------------------------------------------------------------------


def test_a_full_document_is_decoded():
    value = b'{"id":"a","text":"one two","published_at":"2026-05-01","source":"s","op":"upsert","more":[1,{"x":null}]}'
    assert decode(value, b"key") == Document("a", "one two", AT, TIME_MS, "upsert", "s", "2026-05-01")


@pytest.mark.parametrize(
    ("value", "key", "document_id"),
    [
        (b'{"id":"a","text":"x"}', b"\xff", "a"),  # a bad key does no harm beside an id
        (b'{"text":"x"}', "clé".encode(), "clé"),
        (b'{"id":null,"text":"x"}', b"k", "k"),
        (b'{"text":"x"}', None, "articles:3:1042"),
        (b'{"id":"i","text":"a"}', None, "i"),
        (b'{"id":"%s","text":"a"}' % (b"i" * MAX_ID_BYTES), None, "i" * MAX_ID_BYTES),
    ],
)
def test_a_document_without_an_id_has_that_of_its_key_or_else_of_its_position(value, key, document_id):
    assert decode(value, key).id == document_id


@pytest.mark.parametrize(("number", "expected"), [("42", "42"), ("-7", "-7"), ("-0", "0"), ("9" * 30, "9" * 30)])
def test_a_whole_number_as_an_id_becomes_its_decimal_text(number, expected):
    assert decode(b'{"id":%s,"text":"x"}' % number.encode()).id == expected


def test_fields_can_have_other_names():
    names = {"id_field": "_id", "text_fields": ["title", "body.en"], "op_field": "do", "source_field": "s p"}
    value = b'{"_id":"1","title":"A","body.en":"B","do":"append","s p":"q","published":5,"id":[],"text":[],"op":9}'
    document = decode(value, **names, published_at_field="published")
    assert document == Document("1", "A\nB", AT, TIME_MS, "append", "q", "5")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (b'{"title":"A","text":"B"}', "A\nB"),
        (b'{"text":"B","title":"A"}', "A\nB"),
        (b'{"title":null,"text":"B"}', "B"),
        (b'{"title":"A"}', "A"),
        (b'{"title":"","text":"B"}', "\nB"),
        (b'{"title":""}', ""),
    ],
)
def test_several_text_fields_are_joined_by_a_newline_and_missing_ones_left_out(value, text):
    assert decode(value, text_fields=("title", "text")).text == text


@pytest.mark.parametrize(
    ("value", "key"),
    [
        (b'{"id":"a","op":"delete"}', None),
        (b'{"id":"a","op":"delete","text":"x"}', None),
        (b'{"id":"a","op":"delete","text":5}', None),
        (rb'{"id":"a","op":"delete","text":5,"source":"\ud800"}', None),
        (None, b"a"),
    ],
)
def test_a_deletion_has_no_text_and_a_tombstone_deletes_the_document_of_its_key(value, key):
    assert decode(value, key) == Document("a", "", AT, TIME_MS, "delete")


def test_a_field_of_numbers_for_source_and_publication_is_kept_as_text():
    document = decode(b'{"text":"x","source":12,"published_at":1777618931}')
    assert (document.source, document.published_at) == ("12", "1777618931")


# --- Every odd input has one result ---------------------------------------------------------------

ACCEPTED = {
    "empty text": (b'{"text":""}', ""),
    "white space around": (b' \r\n{"text":"a"}\n\t', "a"),
    "byte order mark": (b'\xef\xbb\xbf{"text":"a"}', "a"),
    "a name twice, the last counts": (b'{"text":"a","text":"b"}', "b"),
    "number out of range in a skipped field": (b'{"text":"a","n":1e999}', "a"),
    "wrong bytes in a skipped field": (b'{"text":"a","n":"\xff"}', "a"),
    "wrong bytes in a skipped name": (b'{"text":"a","\xff":1}', "a"),
    "escaped NUL": (b'{"text":"a\\u0000b"}', "a\x00b"),
    "surrogate pair": (b'{"text":"\\ud83d\\ude00"}', "\U0001f600"),
    "high half alone": (b'{"text":"a\\ud83d"}', "a\ufffd"),
    "high half before a letter": (b'{"text":"\\uD83Db"}', "\ufffdb"),
    "low half alone": (b'{"text":"\\uDE00"}', "\ufffd"),
    "two high halves and a pair": (b'{"text":"\\ud83d\\ud83d\\ude00"}', "\ufffd\U0001f600"),
    "halves in the wrong order": (b'{"text":"\\ude00\\ud83d"}', "\ufffd\ufffd"),
    "half in a skipped field": (b'{"text":"a\\\\ud83d","n":"\\ud83d"}', "a\\ud83d"),
    "half and byte order mark": (b'\xef\xbb\xbf{"text":"\\ud83d"}', "\ufffd"),
    "10,000 halves": (b'{"text":"a","n":"' + b"\\ud83d" * 10_000 + b'"}', "a"),
    "brackets in strings are no nesting": (b'{"text":"' + b'[{\\"' * 1_000 + b'"}', '[{"' * 1_000),
    "many brackets side by side": (b'{"text":"a","n":[' + b"[]," * 1_000 + b"{}]}", "a"),
    "as deep as allowed": (b'{"text":"a","n":' + b"[" * (MAX_DEPTH - 1) + b"]" * (MAX_DEPTH - 1) + b"}", "a"),
}

#: Beside the rows of ``tests.bad_input``.
REFUSED = {
    "cut off within an escape": (b'{"text":"a\\ud83d', ErrorCode.NOT_JSON),
    "half a pair, then not JSON": (b'{"text":"\\ud83d"', ErrorCode.NOT_JSON),
    "10,001 halves": (b'{"text":"a","n":"' + b"\\ud83d" * 10_001 + b'"}', ErrorCode.NOT_JSON),
    "two byte order marks": (b'\xef\xbb\xbf\xef\xbb\xbf{"text":"a"}', ErrorCode.NOT_JSON),
    "overlong form": (b'{"text":"\xc0\x80"}', ErrorCode.NOT_UTF8),
    "encoded surrogate": (b'{"text":"\xed\xa0\xbd"}', ErrorCode.NOT_UTF8),
    "half a pair and wrong bytes": (b'{"source":"\\ud83d","text":"\xff"}', ErrorCode.NOT_UTF8),
    "random bytes": (b"\x80\x81\x82\x83\x84\x85", ErrorCode.NOT_UTF8),
    "a zero byte, too short for framing": (b"\x00\x00", ErrorCode.NOT_JSON),
    "half a pair and a wrong type": (b'{"source":"\\ud83d","text":5}', ErrorCode.INVALID_FIELD),
    "a deletion of nothing that can be named": (b'{"id":1.5,"op":"delete"}', ErrorCode.INVALID_ID),
    "an unknown operation with a wrong type": (b'{"id":"a","op":"remove","text":5}', ErrorCode.INVALID_FIELD),
    "an addition of a wrong type": (b'{"id":"a","op":"append","text":5}', ErrorCode.INVALID_FIELD),
    "nothing to append": (b'{"id":"a","op":"append"}', ErrorCode.MISSING_TEXT),
    "id a number of 10,000 digits": (b'{"id":%s,"text":"a"}' % (b"1" * 10_000), ErrorCode.INVALID_ID),
    "too deep by one": (b'{"n":' + b"[" * MAX_DEPTH + b"]" * MAX_DEPTH + b',"text":"a"}', ErrorCode.TOO_DEEP),
    "10,000 objects deep": (b'{"n":' * 10_000 + b"1" + b"}" * 10_000, ErrorCode.TOO_DEEP),
    "10,000 deep in the text": (b'{"text":' + b"[" * 10_000 + b"]" * 10_000 + b"}", ErrorCode.TOO_DEEP),
    "1,000,000 deep and cut off": (b"[" * 1_000_000, ErrorCode.TOO_DEEP),
}


@pytest.mark.parametrize(("value", "text"), ACCEPTED.values(), ids=ACCEPTED.keys())
def test_an_odd_value_is_processed(value, text):
    assert decode(value).text == text


DECODERS = {"plain": Decoder(), "titled": Decoder(text_fields=("title", "body")), "strict": Decoder()}


#: Rows whose outcome the index or the client of Kafka decides.
LATER = ("unreadable", "append-to-nothing", "key-in-another-form")


@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if name not in LATER and "unr" not in row.outcome])
def test_a_row_of_bad_input_is_decoded_or_refused_with_its_code(name):
    kind, _, code = ROWS[name].outcome.partition(":")
    for sent in ROWS[name].records:
        error = None
        try:
            DECODERS[ROWS[name].profile].decode(AT, TIME_MS, sent.key, sent.value)
        except MessageError as caught:
            error = caught
        assert (error and error.code) == (code if kind == "dead letter" else None), sent
        assert isinstance(error, DocumentTooLarge) == (code == ErrorCode.TOO_LARGE)


@pytest.mark.parametrize(("value", "code"), REFUSED.values(), ids=REFUSED.keys())
def test_a_bad_value_is_refused_with_its_code(value, code):
    assert refusal(value).code is code


@pytest.mark.parametrize(
    ("value", "key", "code"),
    [
        (None, None, ErrorCode.NULL_WITHOUT_KEY),
        (None, b"", ErrorCode.INVALID_ID),
        (None, b"\xff", ErrorCode.INVALID_ID),
        (None, b"a\n", ErrorCode.INVALID_ID),
        (None, b"k" * 1_025, ErrorCode.INVALID_ID),
        (b'{"text":"a"}', b"", ErrorCode.INVALID_ID),
        (b'{"text":"a"}', b"\xff", ErrorCode.INVALID_ID),
        (b'{"text":"a","id":""}', b"k", ErrorCode.INVALID_ID),
    ],
)
def test_a_bad_key_is_refused_with_its_code(value, key, code):
    assert refusal(value, key).code is code


def test_half_pairs_in_other_fields_become_replacement_characters():
    document = decode(b'{"id":"\\ufffd","text":"a","source":"\\ud83d","published_at":"x\\ude00"}')
    assert (document.id, document.source, document.published_at) == ("\ufffd", "\ufffd", "x\ufffd")


def test_the_length_of_an_id_is_counted_in_bytes():
    assert decode('{{"id":"{}","text":"a"}}'.format("é" * 512).encode()).id == "é" * 512
    assert refusal('{{"id":"{}","text":"a"}}'.format("é" * 513).encode()).code is ErrorCode.INVALID_ID


def test_the_limit_on_a_text_is_counted_in_bytes_of_the_text_itself():
    spelled = b'{"text":"' + b"\\u00e9" * 50 + b'"}'
    assert decode(spelled, max_text_bytes=100).text == "é" * 50
    error = refusal(spelled, max_text_bytes=99)
    assert (error.code, str(error)) == (ErrorCode.TOO_LARGE, "the text is 100 bytes long; the limit is 99")


@pytest.mark.parametrize(
    "options",
    [{"text_fields": ("a", "a")}, {"id_field": "text"}, {"op_field": "source"}, {"id_field": '"'}],
)
def test_impossible_names_of_fields_are_refused_at_once(options):
    with pytest.raises(ValueError, match=r"name|Renamed"):
        Decoder(**options)


SECRET = "Zyzzyva quokka xylograph"


@pytest.mark.parametrize(
    "value",
    [
        '{"text":"%s"',
        '{"text":"%s","op":"%s"}',
        '{"text":["%s"]}',
        '{"text":"%s","id":""}',
        '{"text":"%s","id":"\\u0000%s"}',
        '{"text":"%s","id":{"%s":1}}',
        '{"text":"%s","op":["%s"]}',
        '"%s"',
        "%s",
        '{"%s":1}',
        '{"text":"%s\\q"}',
        '{"text":"%s\\ud800","id":7.5}',
        "\0\0\0\0\1%s",
        '{"text":"%s\udcff"}',
        '{"text":"%s' + SECRET * 50 + '"}',
    ],
)
def test_an_error_tells_nothing_of_the_text(value):
    raw = value.replace("%s", SECRET).encode("utf-8", "surrogateescape")
    error = refusal(raw, max_text_bytes=1_000)
    assert not any(word in str(error) for word in SECRET.split())
    assert len(str(error)) < 200


def test_an_error_names_the_field_and_the_types_or_the_byte():
    assert str(refusal(b'{"body":5}', text_fields=("body",))) == "field `body`: Expected `str | null`, got `int`"
    assert str(refusal(b'{"text":"ab\xff"}')) == "the value is not UTF-8: invalid byte at position 11"
    assert "byte 9" in str(refusal(b'{"text": x}'))
    assert "registry id 7" in str(refusal(b"\x00\x00\x00\x00\x07{}"))
    assert "registry id 576484708" in str(refusal(b'\x00"\\udc00x"'))


@settings(max_examples=examples(300))
@given(st.binary(max_size=200) | st.text(alphabet='{}[]":,\\ud8c0e9 textidop1', max_size=80).map(str.encode))
def test_any_bytes_become_a_document_or_a_message_error(value):
    try:
        document = decode(value)
    except MessageError as error:
        assert error.code in set(ErrorCode)  # noqa: PT017  either result is right
    else:
        document.text.encode()


json_texts = st.text(max_size=20)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from([0.5, -1.25]) | json_texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(json_texts, inner, max_size=3),
    max_leaves=6,
)
# Mostly right, sometimes wrong: both sides of the border are visited.
loose_documents = st.fixed_dictionaries(
    {},
    optional={
        "id": json_texts | st.integers() | json_values,
        "text": json_texts | json_values,
        "published_at": json_texts | json_values,
        "source": json_texts | json_values,
        "op": st.sampled_from(["upsert", "append", "delete", None]) | json_values,
        "other": json_values,
    },
)


@settings(max_examples=examples(300))
@given(loose_documents, st.booleans())
@example({"id": "\x7f", "text": ""}, True)
@example({"op": "delete"}, True)
@example({"id": "a\n", "text": ""}, True)
@example({"id": "a\n", "op": "delete", "text": 5}, True)
@example({"op": "delete", "text": 5, "source": []}, True)
def test_the_decoder_accepts_exactly_the_values_that_the_schema_allows_and_deletions_with_any_other_field(
    fields, escaped
):
    value = json.dumps(fields, ensure_ascii=escaped).encode("utf-8")
    is_deletion = fields.get("op") == "delete"
    try:
        accepted = not decode(value, key=b"key").left_out or is_deletion
    except MessageError:
        accepted = False
    needed = {name: fields[name] for name in fields if not is_deletion or name in ("id", "op")}
    assert VALIDATORS["document"].is_valid(needed) == accepted


ids = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=40)
short_texts = st.none() | st.text(st.characters(exclude_categories=("Cs",)), max_size=40)


@settings(max_examples=examples(100))
@given(ids, st.text(st.characters(exclude_categories=("Cs",))), short_texts, short_texts, st.booleans())
def test_decoding_is_the_inverse_of_encoding(document_id, text, source, published_at, escaped):
    fields = {"id": document_id, "text": text, "source": source, "published_at": published_at}
    document = decode(json.dumps(fields, ensure_ascii=escaped).encode())
    assert document == Document(document_id, text, AT, TIME_MS, "upsert", source, published_at)


@settings(max_examples=examples(100))
@given(st.text(st.characters() | st.sampled_from("\\u\ud83d\ude00d8")))
def test_halves_of_surrogate_pairs_are_replaced_and_nothing_else_changes(text):
    # Two escapes of JSON are one whole pair for every reader.
    paired = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    expected = "".join("\ufffd" if "\ud800" <= c <= "\udfff" else c for c in paired)
    assert decode(json.dumps({"text": text}).encode()).text == expected


# --- Digests and schemas --------------------------------------------------------------------------


def test_a_content_digest_is_blake2b_of_utf8_and_tells_half_pairs_apart():
    assert content_digest("é") == blake2b(b"\xc3\xa9", digest_size=16).digest()
    assert len({content_digest(text) for text in ("\ud800", "\ud801", "\ufffd", "")}) == 4


@pytest.mark.parametrize("name", VALIDATORS)
def test_a_schema_is_valid_and_so_are_its_examples(name):
    Draft202012Validator.check_schema(VALIDATORS[name].schema)
    for one in VALIDATORS[name].schema["examples"]:
        VALIDATORS[name].validate(one)
        assert name != "alert" or decode_alert(json.dumps(one).encode()).matches


def test_the_schema_of_dead_letters_lists_every_code_and_stage():
    properties = VALIDATORS["dead-letter"].schema["properties"]
    assert properties[f"{PREFIX}error.code"]["enum"] == [str(code) for code in ErrorCode]
    assert properties[f"{PREFIX}stage"]["enum"] == [str(stage) for stage in Stage]


# --- Alerts ---------------------------------------------------------------------------------------

DIGEST = "00112233445566778899aabbccddeeff"
MATCH = Match("article-42", DIGEST, "articles", 0, 988, 0.875, "exact", 0.0, 9, DIGEST)
DOCUMENT = AlertDocument("article-57", DIGEST, "articles", 3, 1042, "2026-05-01T07:02:11.480Z", "May", "coast")
ALERT = Alert(
    schema_version=ALERT_VERSION,
    profile="articles",
    document=DOCUMENT,
    matches=(MATCH,),
    cluster_id="c",
    threshold=0.8,
    part=1,
    parts=1,
    detected_at="2026-05-01T07:02:11.612Z",
)

topics = st.text(string.ascii_letters, min_size=1, max_size=8)
# A message does not tell the incarnation of a topic.
positions = st.builds(Position, topics, st.integers(0, 99), st.integers(0, 2**63 - 1), st.just(0))
digests = st.binary(min_size=16, max_size=16).map(bytes.hex)
versions = {
    "id": ids,
    "digest": digests,
    "topic": topics,
    "partition": st.integers(0, 99),
    "offset": st.integers(0, 2**63 - 1),
}
incarnations = st.sampled_from(["", "0123456789abcdef"])
matches = st.builds(
    Match,
    **versions,
    similarity=st.floats(0, 1),
    method=st.sampled_from(["exact", "estimated"]),
    standard_error=st.floats(0, 0.5),
    shared_bands=st.integers(1, 64),
    pair=digests,
    containment=st.floats(0, 1),
    containment_error=st.none() | st.floats(0, 0.5),
    contained=st.sampled_from(["document", "match", "both"]),
    reason=st.sampled_from(["similarity", "containment"]),
    label=st.text(max_size=9),
    source=st.none() | st.text(min_size=1, max_size=9),
    published_at=st.none() | st.text(min_size=1, max_size=9),
    incarnation=incarnations,
)
times = st.integers(-62_135_596_800_000, 253_402_300_799_999).map(rfc_3339)
alerts = st.builds(
    Alert,
    schema_version=st.just(ALERT_VERSION),
    profile=ids,
    document=st.builds(
        AlertDocument,
        **versions,
        record_time=times,
        published_at=short_texts,
        source=short_texts,
        label=st.text(max_size=9),
        incarnation=incarnations,
    ),
    matches=st.lists(matches, min_size=1, max_size=12).map(tuple),
    cluster_id=ids,
    threshold=st.floats(0, 1, exclude_min=True),
    part=st.just(1),
    parts=st.just(1),
    detected_at=times,
    containment_threshold=st.none() | st.floats(0, 1, exclude_min=True),
    cluster_label=st.text(max_size=9),
    cluster_size=st.none() | st.integers(1, 1_000),
    cluster_sources=st.none() | st.integers(1, 1_000),
    cluster_since=st.none() | times,
    cluster_until=st.none() | times,
    cluster_earliest_id=st.none() | ids,
    cluster_earliest_source=st.none() | short_texts,
    complete=st.booleans(),
    suppressed=st.dictionaries(
        st.sampled_from(["min_shingles", "only_sources", "ignore_same_source", "ignore_sources"]), st.integers(1, 2**31)
    ),
)


HEAD = (
    b'{"schema_version":1,"profile":"articles","document":{"id":"article-57",'
    b'"digest":"00112233445566778899aabbccddeeff","topic":"articles","partition":3,"offset":1042,'
    b'"record_time":"2026-05-01T07:02:11.480Z","published_at":"May","source":"coast"},"matches":['
)


def test_an_alert_has_fields_in_a_fixed_order_and_these_bytes():
    expected = (
        HEAD + b'{"id":"article-42","digest":"00112233445566778899aabbccddeeff","topic":"articles",'
        b'"partition":0,"offset":988,"similarity":0.875,"method":"exact","standard_error":0.0,"shared_bands":9,'
        b'"pair":"00112233445566778899aabbccddeeff"}],'
        b'"cluster_id":"c","threshold":0.8,"part":1,"parts":1,"detected_at":"2026-05-01T07:02:11.612Z"}'
    )
    assert encode_alert(ALERT) == [expected]
    assert encode_alert(structs.replace(ALERT, complete=False)) == [expected[:-1] + b',"complete":false}']
    suppressed = structs.replace(ALERT, suppressed={"ignore_same_source": 3})
    assert encode_alert(suppressed) == [expected[:-1] + b',"suppressed":{"ignore_same_source":3}}']


CONTAINED = {"containment": 0.5, "containment_error": 0.125, "contained": "match", "reason": "similarity"}
CAPTION = {"label": 'A "ferry"', "source": "coast", "published_at": "2026-05-01"}
SPREAD = {
    "cluster_sources": 2,
    "cluster_since": "2026-05-01T06:31:20.004Z",
    "cluster_until": "2026-05-01T07:02:11.480Z",
    "cluster_earliest_id": "c",
    "cluster_earliest_source": "coast",
}
RULES = {"containment_threshold": 0.75, "complete": False, "suppressed": {"min_shingles": 2}}
INCARNATION = {"incarnation": "0123456789abcdef"}


def test_optional_fields_are_in_a_fixed_order_behind_the_others():
    match = structs.replace(MATCH, **CONTAINED, **CAPTION, **INCARNATION)
    document = structs.replace(DOCUMENT, label="Boats", **INCARNATION)
    cluster = {"cluster_label": "A ferry", "cluster_size": 3} | SPREAD
    alert = json.loads(encode_alert(structs.replace(ALERT, document=document, matches=(match,), **RULES, **cluster))[0])
    plain = json.loads(encode_alert(ALERT)[0])
    assert list(alert) == [*plain, *RULES, *cluster]
    assert list(alert["document"]) == [*plain["document"], "label", "incarnation"]
    assert list(alert["matches"][0]) == [*plain["matches"][0], *CONTAINED, *CAPTION, *INCARNATION]


def test_the_times_of_a_cluster_need_a_time_zone():
    message = encode_alert(structs.replace(ALERT, **SPREAD))[0]
    assert decode_alert(message).cluster_times_ms[1] == 1_777_618_931_480
    with pytest.raises(DecodeError, match="time zone"):
        decode_alert(message.replace(b"11.480Z", b"11.480"))


def test_an_alert_whose_match_has_no_pair_key_is_refused():
    message = encode_alert(structs.replace(ALERT, matches=(structs.replace(MATCH, pair=""),)))[0]
    with pytest.raises(DecodeError, match="a match without the field `pair`"):
        decode_alert(message)


@settings(max_examples=examples(100))
@given(alerts, st.integers(1, 5))
def test_an_alert_survives_its_encoding_in_any_number_of_parts(alert, max_matches):
    messages = encode_alert(alert, max_matches)
    parts = [decode_alert(message) for message in messages]
    in_order = sorted(alert.matches, key=lambda match: (-match.similarity, match.id, msgspec.json.encode(match)))
    assert [match for part in parts for match in part.matches] == in_order
    for number, part in enumerate(parts, 1):
        assert part == structs.replace(alert, matches=part.matches, part=number, parts=len(parts))
        assert 1 <= len(part.matches) <= max_matches
    for message in messages:
        VALIDATORS["alert"].validate(json.loads(message))


@settings(max_examples=examples(50))
@given(alerts, st.randoms(use_true_random=False))
def test_the_bytes_of_an_alert_do_not_depend_on_the_order_of_its_matches(alert, random):
    shuffled = list(alert.matches)
    random.shuffle(shuffled)
    assert encode_alert(structs.replace(alert, matches=tuple(shuffled))) == encode_alert(alert)


def test_an_alert_without_matches_has_no_message():
    assert encode_alert(structs.replace(ALERT, matches=())) == []


def test_101_matches_take_two_messages():
    found = tuple(structs.replace(MATCH, id=f"{i:03}") for i in range(101))
    parts = [decode_alert(message) for message in encode_alert(structs.replace(ALERT, matches=found))]
    assert [(len(p.matches), p.part, p.parts) for p in parts] == [(100, 1, 2), (1, 2, 2)]


def test_no_message_is_longer_than_its_limit_even_with_the_longest_fields():
    longest = '"' * MAX_ID_BYTES
    label = '"' * 160
    found = tuple(structs.replace(MATCH, id=longest[4:] + f"{i:04}", label=label) for i in range(300))
    worst = "\x00" * MAX_ID_BYTES
    document = structs.replace(DOCUMENT, id=longest, published_at=worst, source=worst, label=label)
    alert = structs.replace(ALERT, document=document, cluster_id=longest, matches=found, cluster_label=label)
    alert = structs.replace(alert, cluster_earliest_id=longest, cluster_earliest_source=label)
    messages = encode_alert(alert, max_matches=1_000, max_bytes=MIN_ALERT_BYTES)
    # The key, and the bytes that kafka-python adds to a record.
    assert max(map(len, messages)) <= MIN_ALERT_BYTES - MAX_ID_BYTES - 82
    # No room is given away: the next match would not have fitted.
    assert min(map(len, messages[:-1])) > MIN_ALERT_BYTES - 4_000
    assert sum(len(decode_alert(message).matches) for message in messages) == 300
    assert max(map(len, encode_alert(alert))) < 900_000


def test_copied_headers_count_towards_the_limit_of_an_alert():
    matches = tuple(structs.replace(MATCH, id=f"{number:0900}") for number in range(100))
    alone, beside = (
        encode_alert(structs.replace(ALERT, matches=matches), max_bytes=MIN_ALERT_BYTES, header_bytes=header_bytes)
        for header_bytes in (0, MAX_COPIED_BYTES)
    )
    assert max(map(len, beside)) <= MIN_ALERT_BYTES - MAX_COPIED_BYTES < max(map(len, alone))
    assert sum(len(decode_alert(message).matches) for message in beside) == 100


def test_only_the_named_headers_are_copied_in_order_and_a_null_value_as_an_empty_one():
    found = [("b", b"1"), ("private", b"2"), ("a", None), ("b", b"3"), ("A", b"4")]
    assert copied_headers(found, ["a", "b"]) == (("b", b"1"), ("a", b""), ("b", b"3"))


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 9_000).map(bytes)), max_size=9))
def test_copied_headers_are_bounded_and_only_those_beyond_the_bound_are_left_out(found):
    copied = copied_headers(found, "ab")
    assert headers_bytes(copied) <= MAX_COPIED_BYTES
    wanted = tuple(header for header in found if header[0] in "ab")
    if headers_bytes(wanted) <= MAX_COPIED_BYTES:
        assert copied == wanted
    else:
        assert all(headers_bytes([*copied, left]) > MAX_COPIED_BYTES for left in wanted if left not in copied)


@pytest.mark.parametrize("limits", [{"max_matches": 0}, {"max_bytes": MIN_ALERT_BYTES - 1}])
def test_limits_too_small_for_one_match_are_refused(limits):
    with pytest.raises(ValueError, match="room for one match"):
        encode_alert(ALERT, **limits)


@pytest.mark.parametrize(
    ("time_ms", "text"), [(2**63 - 1, "9999-12-31T23:59:59.999Z"), (-(2**63), "0001-01-01T00:00:00.000Z")]
)
def test_a_time_beyond_the_calendar_is_written_as_the_nearest(time_ms, text):
    assert rfc_3339(time_ms) == text


def test_an_alert_with_more_fields_is_read():
    message = json.loads(encode_alert(ALERT)[0])
    for part in (message, message["document"], message["matches"][0]):
        part["more"] = {"x": [1]}
    assert decode_alert(json.dumps(message).encode()) == ALERT


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("schema_version", 2),
        ("matches", None),
        ("detected_at", "yesterday"),
        ("detected_at", "2026-05-01T07:02:11.612"),
    ],
)
def test_a_message_that_is_no_alert_is_refused(key, value):
    message = json.loads(encode_alert(ALERT)[0]) | {key: value}
    with pytest.raises(DecodeError, match="no alert message of version 1"):
        decode_alert(json.dumps(message).encode())


@pytest.mark.parametrize("levels", [256, 100_000])
def test_an_alert_that_is_nested_too_deeply_is_refused(levels):
    with pytest.raises(DecodeError, match="no alert message of version 1: nested deeper than 256 levels"):
        decode_alert(encode_alert(ALERT)[0][:-1] + b',"more":' + b"[" * levels + b"]" * levels + b"}")


@pytest.mark.parametrize("field", [{"incarnation": "x" * 16}, {"incarnation": "ab"}, {"offset": -1}])
def test_an_alert_with_a_name_or_an_offset_that_no_daemon_writes_is_refused(field):
    changed = [structs.replace(MATCH, **change) for change in (field, {"pair": "zz" * 16}, {"pair": "\n"})]
    foreign = [structs.replace(ALERT, matches=(match,)) for match in changed]
    for alert in [*foreign, structs.replace(ALERT, document=structs.replace(DOCUMENT, **field))]:
        with pytest.raises(DecodeError, match="no alert message of version 1"):
            decode_alert(encode_alert(alert)[0])


@settings(max_examples=examples(100))
@given(st.binary(max_size=50))
def test_any_bytes_are_an_alert_or_refused(value):
    with pytest.raises(DecodeError):
        decode_alert(value)


@settings(max_examples=examples(300))
@given(alerts, st.data())
def test_a_damaged_alert_is_refused_or_read_as_a_whole(alert, data):
    octets = bytearray(encode_alert(alert, 100, 10**6)[0])
    for _ in range(data.draw(st.integers(1, 3))):
        octets[data.draw(st.integers(0, len(octets) - 1))] = data.draw(st.integers(0, 255))
    try:
        read = decode_alert(bytes(octets))
    except DecodeError:
        return
    again = decode_alert(encode_alert(read, 100, 10**6)[0])
    assert set(again.matches) == set(read.matches)
    assert structs.replace(again, matches=()) == structs.replace(read, matches=(), part=1, parts=1)


# --- Dead letters ---------------------------------------------------------------------------------

header_names = st.text(st.characters(exclude_categories=("Cs",)), max_size=12)
headers = st.lists(st.tuples(header_names, st.none() | st.binary(max_size=30)), max_size=5).map(tuple)
records = st.builds(
    Record,
    position=positions,
    timestamp_ms=st.integers(-1, 2**62),
    key=st.none() | st.binary(max_size=20),
    value=st.none() | st.binary(max_size=60),
    headers=headers,
)
failures = st.builds(
    Failure,
    stage=st.sampled_from(Stage),
    code=st.sampled_from(ErrorCode),
    error_class=st.just("DecodeError"),
    message=st.text(max_size=60),
)


def own_headers(letter):
    own = [(name, value.decode()) for name, value in letter.headers if name.startswith(PREFIX)]
    assert len(dict(own)) == len(own)
    VALIDATORS["dead-letter"].validate(dict(own))
    return {name.removeprefix(PREFIX): value for name, value in own}


def foreign_headers(letter):
    return [header for header in letter.headers if not header[0].startswith(PREFIX)]


def made(record, **options):
    return dead_letter("dead", record, FAILURE, DAEMON, time_ms=NOW_MS, **options)


def size_bytes(letter):
    parts = [letter.key or b"", letter.value or b"", *(name.encode() + value for name, value in letter.headers)]
    return sum(map(len, parts))


RECORD = Record(AT, TIME_MS, b"key", b"\xff\x00value", (("trace", b"\x01\xff"), ("trace", b"2"), ("tenant", None)))


def test_a_dead_letter_is_the_record_with_headers_of_the_reason():
    letter = made(RECORD)
    assert (letter.key, letter.value, letter.timestamp_ms) == (b"key", b"\xff\x00value", TIME_MS)
    assert foreign_headers(letter) == [("trace", b"\x01\xff"), ("trace", b"2"), ("tenant", b"")]
    assert own_headers(letter) == {
        "topic": "articles",
        "partition": "3",
        "offset": "1042",
        "timestamp": str(TIME_MS),
        "group": "streamdedup",
        "instance": "0",
        "version": "0.1.0",
        "stage": "decode",
        "error.code": "missing_text",
        "error.class": "DecodeError",
        "error.message": "no text",
        "time": "2026-05-01T07:02:11.612Z",
        "attempts": "1",
        "null-headers": '["tenant"]',
    }


@settings(max_examples=examples(150))
@given(records, failures)
def test_every_dead_letter_keeps_the_record_and_is_valid_by_the_schema(record, failure):
    assume(not any(name.startswith(PREFIX) for name, _ in record.headers))
    letter = dead_letter("dead", record, failure, DAEMON, time_ms=NOW_MS)
    own = own_headers(letter)
    assert letter.key == record.key
    assert letter.value == (b"" if record.value is None and record.key is None else record.value)
    assert foreign_headers(letter) == [(name, value or b"") for name, value in record.headers]
    assert json.loads(own.get("null-headers", "[]")) == [name for name, value in record.headers if value is None]
    assert ("null-value" in own) == (record.value is None and record.key is None and failure.stage is not Stage.READ)
    assert all(len(value) <= 1_024 for name, value in letter.headers if name.startswith(PREFIX))
    assert read_headers(letter.headers) == own


@pytest.mark.parametrize(
    ("key", "unread", "value", "header"),
    [(None, False, b"", {"null-value"}), (b"key", False, None, set()), (None, True, b"", {"unread"})],
    ids=["no key and no value", "tombstone", "unreadable"],
)
def test_a_null_value_is_told_from_a_tombstone_and_from_a_record_that_could_not_be_read(key, unread, value, header):
    failure = replace(FAILURE, stage=Stage.READ if unread else Stage.DECODE)
    letter = dead_letter("dead", structs.replace(RECORD, key=key, value=None), failure, DAEMON, time_ms=NOW_MS)
    assert (letter.key, letter.value) == (key, value)
    own = own_headers(letter)
    assert {name: own[name] for name in own.keys() & {"null-value", "unread"}} == dict.fromkeys(header, "true")


@pytest.mark.parametrize(("given_ms", "expected_ms"), [(-1, None), (0, 0), (NOW_MS + 1, NOW_MS), (2**63 - 1, NOW_MS)])
def test_the_record_time_is_kept_unless_a_broker_would_refuse_it(given_ms, expected_ms):
    letter = made(structs.replace(RECORD, timestamp_ms=given_ms))
    assert letter.timestamp_ms == expected_ms
    assert own_headers(letter)["timestamp"] == str(given_ms)


def test_a_dead_letter_that_fails_again_has_its_headers_replaced_and_counts_on():
    first = made(RECORD)
    again = structs.replace(RECORD, position=Position("articles", 3, 2_000), headers=first.headers)
    second = dead_letter("dead", again, Failure(Stage.SIZE, "too_large", "E", "m"), DAEMON, time_ms=NOW_MS)
    own = own_headers(second)
    assert foreign_headers(second) == foreign_headers(first)
    assert (own["attempts"], own["offset"], own["error.code"]) == ("2", "2000", "too_large")
    assert own["null-headers"] == '["tenant"]'


@pytest.mark.parametrize("attempts", [b"", b"-3", b"x", b"9" * 50, "٣".encode(), b"\xff", None])
def test_a_senseless_count_of_attempts_starts_again(attempts):
    place = {"topic": b"articles", "partition": b"3", "offset": b"7", "attempts": attempts}
    letter = made(structs.replace(RECORD, headers=tuple((PREFIX + name, value) for name, value in place.items())))
    assert own_headers(letter)["attempts"] == "1"


@pytest.mark.parametrize(
    "place",
    [
        {},
        {"topic": b"articles", "partition": b"3"},
        {"topic": b"articles", "partition": b"3", "offset": b"1042"},
        {"topic": b"articles", "partition": b"3", "offset": b"-1"},
        {"topic": b"articles", "partition": b"2", "offset": b"7"},
        {"topic": b"reviews", "partition": b"3", "offset": b"7"},
    ],
    ids=str,
)
def test_a_producers_own_headers_of_our_names_are_not_believed(place):
    """Otherwise they would prevent the replay of the record: failed too often, or without its bytes."""
    facts = {"attempts": b"99", "unread": b"true", "truncated": b"true"} | place
    letter = made(structs.replace(RECORD, headers=tuple((PREFIX + name, value) for name, value in facts.items())))
    own = own_headers(letter)
    assert (own["attempts"], own.keys() & {"unread", "truncated"}) == ("1", set())


def test_a_value_beyond_the_limit_is_cut_and_says_so():
    value = bytes(range(256)) * 400
    letter = made(structs.replace(RECORD, value=value), max_bytes=50_000)
    own = own_headers(letter)
    assert value.startswith(letter.value)
    assert 48_000 < size_bytes(letter) <= 50_000
    assert own["truncated"] == "true"
    assert own["original-length"] == "102400"
    assert own["sha256"] == sha256(value).hexdigest()
    assert foreign_headers(letter) == [("trace", b"\x01\xff"), ("trace", b"2"), ("tenant", b"")]


def test_a_cut_value_that_fails_again_still_tells_of_the_whole_one():
    value = b"v" * 100_000
    first = made(structs.replace(RECORD, value=value), max_bytes=60_000)
    again = structs.replace(RECORD, position=Position("articles", 3, 2_000), value=first.value, headers=first.headers)
    for limit in (70_000, 40_000):
        own = own_headers(made(again, max_bytes=limit))
        assert (own["original-length"], own["sha256"]) == ("100000", sha256(value).hexdigest())


def test_headers_that_do_not_fit_are_dropped_and_counted():
    many = tuple((f"h{i}", b"x" * 1_000) for i in range(40))
    letter = made(structs.replace(RECORD, headers=many), max_bytes=MIN_BYTES)
    own = own_headers(letter)
    assert (foreign_headers(letter), own["dropped-headers"], letter.key) == ([], "40", b"key")
    assert letter.value == RECORD.value
    assert own.keys().isdisjoint({"truncated", "original-length", "sha256"})


def test_headers_that_are_dropped_after_a_replay_are_counted_with_the_earlier_ones():
    many = tuple((f"h{number}", b"x" * 1_000) for number in range(40))
    first = made(structs.replace(RECORD, headers=many), max_bytes=MIN_BYTES)
    position = RECORD.position._replace(offset=RECORD.position.offset + 1)
    again = made(structs.replace(RECORD, position=position, headers=first.headers + many[:30]), max_bytes=MIN_BYTES)
    assert own_headers(again)["dropped-headers"] == "70"


def test_copied_headers_are_dropped_last():
    many = (("trace", b"t"), *((f"h{number}", b"x" * 1_000) for number in range(40)), ("state", None))
    record = structs.replace(RECORD, headers=many)
    letter = made(record, max_bytes=MIN_BYTES, copy_headers=("state", "trace", "absent"))
    assert foreign_headers(letter) == [("trace", b"t"), ("state", b"")]
    assert own_headers(letter)["dropped-headers"] == "40"
    key = b"k" * (MIN_BYTES - 200)
    assert foreign_headers(made(structs.replace(record, key=key), max_bytes=MIN_BYTES, copy_headers=("trace",))) == []


def test_a_key_that_does_not_fit_is_cut():
    key = b"k" * 30_000
    letter = made(structs.replace(RECORD, key=key), max_bytes=MIN_BYTES)
    own = own_headers(letter)
    assert key.startswith(letter.key)
    assert (own["truncated-key"], own["original-key-length"], letter.value) == ("true", "30000", b"")


@settings(max_examples=examples(100))
@given(
    key=st.none() | st.integers(0, 60_000).map(lambda n: b"k" * n),
    value=st.none() | st.integers(0, 60_000).map(lambda n: b"v" * n),
    extra=st.lists(st.tuples(st.sampled_from(["a", "b" * 500]), st.integers(0, 9_000).map(lambda n: b"h" * n))),
    message=st.integers(0, 2_000).map(lambda n: "é" * n),
    max_bytes=st.integers(MIN_BYTES, 80_000),
    copy_headers=st.sampled_from(["", "a", "ab"]),
)
def test_a_dead_letter_always_fits(key, value, extra, message, max_bytes, copy_headers):
    daemon = DaemonInfo("g" * 2_000, "i" * 2_000, "v" * 2_000)
    record = Record(AT, TIME_MS, key, value, (*extra, ("n" * 2_000, None)))
    failure = Failure(Stage.SIZE, "too_large", "E" * 2_000, message)
    letter = dead_letter(
        "dead", record, failure, daemon, time_ms=NOW_MS, max_bytes=max_bytes, copy_headers=copy_headers
    )
    assert size_bytes(letter) <= max_bytes
    own_headers(letter)


def test_our_own_headers_at_their_longest_fit_the_smallest_limit():
    forged = tuple((PREFIX + name, b"x" * 5_000) for name in dead_letters._FACTS_OF_BYTES)
    daemon = DaemonInfo("g" * 2_000, "i" * 2_000, "v" * 2_000)
    record = Record(Position("t" * 249, 1, 1), TIME_MS, b"k" * 30_000, b"v" * 30_000, forged)
    failure = Failure(Stage.SIZE, "c" * 2_000, "E" * 2_000, "m" * 2_000)
    assert size_bytes(dead_letter("dead", record, failure, daemon, time_ms=NOW_MS, max_bytes=MIN_BYTES)) <= MIN_BYTES


def test_a_limit_below_our_own_headers_is_refused():
    with pytest.raises(ValueError, match="24,576 bytes"):
        made(RECORD, max_bytes=MIN_BYTES - 1)


def test_a_long_message_is_cut_between_two_characters():
    letter = dead_letter("dead", RECORD, replace(FAILURE, message="x" + "é" * 1_000), DAEMON, time_ms=NOW_MS)
    assert own_headers(letter)["error.message"] == "x" + "é" * 511


@pytest.mark.parametrize(
    ("names", "named"),
    [
        (["h" * 1_020], ["h" * 1_020]),
        (["h" * 1_021], ["..."]),
        (["h" * 1_010, "b" * 9], ["h" * 1_010, "..."]),
        (["h" * 1_100, "b"], ["..."]),
        (["b", "h" * 1_100], ["b", "..."]),
        (["字" * 171, "b", "c"], ["..."]),
    ],
)
def test_null_headers_with_long_names_are_named_as_far_as_they_fit(names, named):
    letter = made(structs.replace(RECORD, headers=tuple((name, None) for name in names)))
    assert json.loads(own_headers(letter)["null-headers"]) == named


def test_a_failure_of_ours_keeps_code_and_words():
    failure = Failure.of(DecodeError(ErrorCode.NOT_JSON, "at byte 3"), Stage.DECODE)
    assert failure == Failure(Stage.DECODE, "not_json", "DecodeError", "at byte 3")


def test_an_unexpected_failure_tells_its_place_and_nothing_else():
    with pytest.raises(KeyError) as caught:
        {}[SECRET]
    failure = Failure.of(caught.value, Stage.PROCESS)
    assert (failure.code, failure.error_class) == ("internal", "KeyError")
    assert failure.message.startswith("unexpected KeyError at line ")
    assert SECRET not in failure.message
    assert Failure.of(ValueError(SECRET), Stage.PROCESS).message == "unexpected ValueError"
