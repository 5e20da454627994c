"""Bad and surprising input with the outcome of each record; docs/messages.md lists the surprising records."""

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import Literal

from tests.raw_batches import NO_CODEC, SNAPPY

#: How a record ends: ``processed``, ``deleted``, ``skipped:<reason>`` or ``dead letter:<code>``.
Outcome = str
#: Name of the profile, which is that of its topic too: one text field; a title and a body; short texts skipped.
ProfileName = Literal["plain", "titled", "strict"]

#: Words of an example's text.
WORDS_COUNT = 24
#: Words and words of a shingle that the profile ``strict`` asks for.
STRICT_WORDS, STRICT_SHINGLE = 3, 5

#: Headers that are allowed and seldom seen: a null value, bytes that are no text, an empty name, a name twice.
ODD_HEADERS = ((b"trace", None), (b"trace", b"\xff"), (b"", b""))
#: A time far beyond the clock: 2099-12-31, in milliseconds since the epoch.
FUTURE_MS = 4_102_358_400_000


@dataclass(frozen=True)
class Sent:
    """One record.

    Attributes:
        value: Value bytes or None.
        key: Key bytes or None.
        headers: Names and values of its headers, as bytes.
        timestamp_ms: Record time in milliseconds since the epoch; None is now, -1 is none.
        by_hand: Send it in a batch built by hand, with this codec; None leaves it to the client.
        found_as: The id under which a processed document is found; "" stands for its position.
        like: The text of a processed document, as far as words go.
        twin: Sent before all others into the other partition, and processed: an earlier version of the document.
    """

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[bytes, bytes | None], ...] = ()
    timestamp_ms: int | None = None
    by_hand: int | None = None
    found_as: str = ""
    like: str = ""
    twin: "Sent | None" = None


@dataclass(frozen=True)
class Row:
    """A row of the table.

    Attributes:
        outcome: What must become of each of the records.
        records: Examples.
        profile: Where they are sent to.
    """

    outcome: Outcome
    records: tuple[Sent, ...]
    profile: ProfileName = "plain"


def words(name: str, count: int = WORDS_COUNT) -> str:
    """Return words that no other name has."""
    hashes = (blake2b(f"{name} {number}".encode(), digest_size=4).hexdigest() for number in range(count))
    return " ".join("".join(chr(ord("a") + int(digit, 16)) for digit in each) for each in hashes)


def json_of(**fields: object) -> bytes:
    """Return a JSON object in UTF-8."""
    return json.dumps(fields, ensure_ascii=False).encode()


def _valid(name: str, **changes: object) -> Sent:
    """A document as it should be, but for ``changes``, found under its name."""
    return Sent(json_of(**{"id": name, "text": words(name)} | changes), name.encode(), found_as=name, like=words(name))


def _spelt(name: str, value: str, key: bytes | None = None, found_as: str | None = None) -> Sent:
    """A document whose JSON is written out; TEXT stands for its words."""
    text = words(name)
    return Sent(value.replace("TEXT", text).encode(), key, found_as=name if found_as is None else found_as, like=text)


def _raw(*values: bytes) -> tuple[Sent, ...]:
    """Records with a key and these values."""
    return tuple(Sent(value, b"raw") for value in values)


def _changed(name: str, *changes: dict[str, object]) -> tuple[Sent, ...]:
    """Documents that are as they should be but for one of ``changes``."""
    return tuple(_valid(f"{name}-{number}", **each) for number, each in enumerate(changes))


def _whole_value() -> Iterator[tuple[str, Row]]:
    """The value as bytes, and as JSON."""
    deep = "[" * 10_000 + "]" * 10_000
    yield "not-json", Row("dead letter:not_json", _raw(b"hello", b"{'text':'a'}", b'{"text":"a",}', b" \n"))
    yield "cut-off", Row("dead letter:not_json", _raw(b'{"id": "cut", "text": "The ferry to the isl', b'{"text":"a\\u'))
    yield "two-documents", Row("dead letter:not_json", _raw(json_of(text="a") + b"\n" + json_of(text="b")))
    yield "empty-value", Row("dead letter:not_json", _raw(b""))
    yield (
        "nan",
        Row("dead letter:not_json", _raw(b'{"text":NaN}', b'{"text":"a","n":NaN}', b'{"text":"a","n":-Infinity}')),
    )
    yield "huge-number", Row("processed", (_spelt("huge", '{"id":"huge","text":"TEXT","n":1e999}'),))
    yield (
        "raw-control-character",
        Row("dead letter:not_json", _raw(b'{"text":"a\nb"}', b'{"text":"a\tb"}', b'{"text":"a\0b"}')),
    )
    yield "not-an-object", Row("dead letter:not_an_object", _raw(b"null", b"42", b'[{"text":"a"}]'))
    yield "json-in-a-string", Row("dead letter:not_an_object", _raw(json.dumps(json_of(text="a").decode()).encode()))
    yield "too-deep", Row("dead letter:too_deep", _raw(f'{{"text":"a","n":{deep}}}'.encode(), deep.encode()))
    yield "too-large", Row("dead letter:too_large", _raw(json_of(id="large", text="word " * 1_000_000)))
    yield "names-twice", Row("processed", (_spelt("twice", '{"id":"x","text":"y","id":"twice","text":"TEXT"}'),))
    yield "names-twice-wrong-type", Row("dead letter:invalid_field", _raw(b'{"text":5,"text":"a"}'))
    yield (
        "schema-registry",
        Row("dead letter:foreign_framing", _raw(b"\0\0\0\0\x07" + json_of(text="a"), b"\0\0\0\x01\x02\x06abc\xff")),
    )
    yield "compressed-value", Row("dead letter:not_utf8", _raw(gzip.compress(json_of(text="a"), mtime=0)))


def _encodings() -> Iterator[tuple[str, Row]]:
    """Bytes and characters."""
    latin = Sent(
        b'{"id":"latin","text":"%s","skipped":"caf\xe9"}' % words("latin").encode(),
        found_as="latin",
        like=words("latin"),
    )
    mark = _valid("mark")
    yield "not-utf8", Row("dead letter:not_utf8", _raw(b'{"text":"caf\xe9"}', b'{"id":"\xff","text":"a"}'))
    yield "not-utf8-in-a-skipped-field", Row("processed", (latin,))
    spelt = '{"text":"a"}'
    yield "utf-16", Row("dead letter:not_utf8", _raw(*map(spelt.encode, ("utf-16", "utf-16-le", "utf-16-be"))))
    yield (
        "byte-order-mark",
        Row("processed", (Sent(b"\xef\xbb\xbf" + (mark.value or b""), found_as="mark", like=mark.like),)),
    )
    yield (
        "half-a-pair",
        Row(
            "processed",
            (
                _spelt("half-text", r'{"id":"half-text","text":"TEXT\ud83d"}'),
                _spelt("half-source", r'{"id":"half-source","text":"TEXT","source":"\udc00"}'),
                _spelt("half-time", r'{"id":"half-time","text":"TEXT","published_at":"\ud83d\ud83d"}'),
            ),
        ),
    )
    yield "half-a-pair-in-the-id", Row("dead letter:invalid_id", _raw(b'{"id":"a\\ud83d","text":"a"}'))
    head, tail = words("nul").split(" ", 1)
    yield (
        "escaped-nul",
        Row(
            "processed",
            (Sent(rf'{{"id":"nul","text":"{head}\u0000{tail}\u0000"}}'.encode(), found_as="nul", like=words("nul")),),
        ),
    )


def _texts() -> Iterator[tuple[str, Row]]:
    """The text fields."""
    yield "empty-text", Row("skipped:empty", _changed("empty", {"text": ""}))
    yield "no-words", Row("skipped:empty", _changed("no-words", {"text": " \n"}, {"text": "\u2026 !!! \U0001f600"}))
    yield (
        "one-word",
        Row("processed", (Sent(json_of(id="one-word", text=words("1", 1)), found_as="one-word", like=words("1", 1)),)),
    )
    yield (
        "too-few-words",
        Row("skipped:too_few_words", _changed("few", {"text": words("few", STRICT_WORDS - 1)}), "strict"),
    )
    yield (
        "shorter-than-a-shingle",
        Row("skipped:too_short", _changed("short", {"text": words("short", STRICT_SHINGLE - 1)}), "strict"),
    )
    yield "missing-text", Row("dead letter:missing_text", _raw(b"{}", b'{"id":"a"}', b'{"Text":"a"}'))
    yield (
        "null-text",
        Row(
            "dead letter:missing_text",
            (*_changed("null", {"text": None}), Sent(b'{"text":null}', headers=ODD_HEADERS, by_hand=NO_CODEC)),
        ),
    )
    yield (
        "text-of-a-wrong-type",
        Row(
            "dead letter:invalid_field",
            _changed("type", {"text": 5}, {"text": ["a"]}, {"text": {"en": "a"}}, {"text": True}),
        ),
    )
    title, body = words("title", 4), words("body")
    yield (
        "two-text-fields",
        Row(
            "processed",
            (Sent(json_of(id="titled", title=title, body=body), found_as="titled", like=f"{title} {body}"),),
            "titled",
        ),
    )
    yield (
        "one-of-two-text-fields",
        Row(
            "processed",
            (
                Sent(json_of(id="untitled", title=None, body=words("un")), found_as="untitled", like=words("un")),
                Sent(json_of(id="heading", title=words("heading")), found_as="heading", like=words("heading")),
            ),
            "titled",
        ),
    )
    yield "none-of-two-text-fields", Row("dead letter:missing_text", (Sent(json_of(id="t", text="a")),), "titled")


def _ids() -> Iterator[tuple[str, Row]]:
    """Ids and keys."""
    yield (
        "id-a-whole-number",
        Row("processed", (_spelt("42", '{"id":42,"text":"TEXT"}'), _spelt("-7", '{"id":-7,"text":"TEXT"}'))),
    )
    yield "id-minus-zero", Row("processed", (_spelt("0", '{"id":-0,"text":"TEXT"}'),))
    yield (
        "id-with-a-point-or-exponent",
        Row(
            "dead letter:invalid_id",
            _raw(*(b'{"id":%s,"text":"a"}' % number for number in (b"42.0", b"1e3", b"1e999"))),
        ),
    )
    yield (
        "id-of-a-wrong-type",
        Row("dead letter:invalid_id", _changed("id-type", {"id": True}, {"id": ["a"]}, {"id": {"a": 1}})),
    )
    yield "empty-id", Row("dead letter:invalid_id", (*_changed("x", {"id": ""}), Sent(json_of(text="a"), b"")))
    yield (
        "long-id",
        Row(
            "dead letter:invalid_id",
            (
                *_changed("long", {"id": "i" * 10_240}, {"id": 10**1_024}),
                Sent(json_of(text="a"), b"k" * 10_240),
            ),
        ),
    )
    yield (
        "control-character-in-the-id",
        Row("dead letter:invalid_id", _changed("control", {"id": "a\0"}, {"id": "a\tb"}, {"id": "a\x85"})),
    )
    yield "key-not-utf8", Row("dead letter:invalid_id", (Sent(json_of(text="a"), b"\xff\xfe"),))
    yield "key-not-utf8-beside-an-id", Row("processed", (_spelt("beside", '{"id":"beside","text":"TEXT"}', b"\xff"),))
    yield "null-id", Row("processed", (_spelt("null-id", '{"id":null,"text":"TEXT"}', b"null-id"),))
    yield "no-id-and-no-key", Row("processed", (_spelt("nameless", '{"text":"TEXT"}', found_as=""),))


def _other_fields() -> Iterator[tuple[str, Row]]:
    """Operation, source, time of publication."""
    yield "unknown-op", Row("dead letter:unknown_op", _changed("op", {"op": "remove"}, {"op": "DELETE"}, {"op": ""}))
    yield (
        "op-without-id-and-key",
        Row("dead letter:invalid_id", (Sent(b'{"op":"delete"}'), Sent(b'{"op":"append","text":"a"}'))),
    )
    yield (
        "unusable-source-or-time",
        Row(
            "processed",
            (
                *_changed("long-s", {"source": "s" * 1_025}, {"published_at": "\u2026" * 342}),
                *_changed("typed", {"source": []}, {"published_at": 1.5}, {"source": True, "published_at": {"a": [1]}}),
            ),
        ),
    )
    yield "op-of-a-wrong-type", Row("dead letter:invalid_field", _changed("other", {"op": 1}, {"op": [], "source": []}))


def _records() -> Iterator[tuple[str, Row]]:
    """What is odd about the record, not its value."""
    yield "null-value-with-key", Row("deleted", (Sent(None, b"tombstone"),))
    yield (
        "key-in-another-form",
        Row("dead letter:invalid_id", tuple(Sent(None, key) for key in (b'{"id":"a"}', b'"a"'))),
    )
    yield "framed-key", Row("dead letter:invalid_id", (Sent(None, b"\0\0\0\0\7\2a"), Sent(None, b"\1" + b"g" * 16)))
    yield (
        "append-to-nothing",
        Row("dead letter:unknown_document", (_spelt("no-one", '{"op":"append","text":"TEXT"}', b"no-one"),)),
    )
    yield "null-value-without-key", Row("dead letter:null_without_key", (Sent(None, by_hand=NO_CODEC),))
    nulls = _valid("headers")
    odd = Sent(nulls.value, headers=ODD_HEADERS, by_hand=NO_CODEC, found_as="headers", like=nulls.like)
    yield "null-headers", Row("processed", (odd,))
    yield (
        "header-name-not-utf8",
        Row("dead letter:unreadable", (Sent(_valid("h").value, b"h", ((b"\xff\xfe", b"x"),), by_hand=NO_CODEC),)),
    )
    packed = _valid("snappy")
    by_hand = Sent(packed.value, b"snappy", by_hand=SNAPPY, found_as="snappy", like=packed.like)
    yield "compressed-with-snappy", Row("processed", (by_hand,))
    for name, time_ms, by_hand in (
        ("time-in-the-future", FUTURE_MS, None),
        ("time-long-past", 1_000, None),
        ("no-time", -1, NO_CODEC),
    ):
        valid = _valid(name)
        sent = Sent(valid.value, timestamp_ms=time_ms, by_hand=by_hand, found_as=name, like=valid.like)
        yield name, Row("processed", (sent,))
    again = _valid("again")
    yield "same-again", Row("skipped:redelivered", (Sent(again.value, again.key, twin=again),))
    older = _valid("older", text=words("older version"))
    yield (
        "older-version",
        Row("skipped:superseded", (Sent(older.value, older.key, timestamp_ms=1_000, twin=_valid("older")),)),
    )


#: Every row by its name.
ROWS: dict[str, Row] = dict(
    pair for group in (_whole_value, _encodings, _texts, _ids, _other_fields, _records) for pair in group()
)
