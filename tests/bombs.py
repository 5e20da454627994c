"""Small values that a whole decoder turns into much memory or time, and the memory that one of them takes.

``python -m tests.bombs FORMAT BYTES`` decodes each bomb of a format in a process of its own.
"""

import json
import os
import resource
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from streamdedup.errors import MessageError
from streamdedup.position import Position
from streamdedup.wire import Decoder, Registry
from streamdedup.wire.schema_registry import RegisteredSchema, RegistrySession

TEXT_FIELDS = ("payload.body", "text")
#: Type of the schemas of each format.
KINDS = {"avro": "AVRO", "protobuf": "PROTOBUF", "json-schema": "JSON"}
_EMOJI = "😀".encode()
_WIDE = 300
#: First letters of a text that an outcome has.
_LETTERS = 2


@dataclass(frozen=True)
class Bomb:
    """A bomb: makes a value of about so many bytes; ``outcome``: first letters of the text, or the code."""

    format: str
    value: Callable[[int], bytes]
    schema: str = ""
    outcome: str = "hi"

    @property
    def is_read(self) -> bool:
        return len(self.outcome) <= _LETTERS


def zigzag(number: int) -> bytes:
    return varint((number << 1) ^ (number >> 63))


def varint(number: int) -> bytes:
    written = bytearray()
    while number > 0x7F:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*written, number])


def record(name: str, **fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": key, "type": kind} for key, kind in fields.items()]}


def _avro(value: Callable[[int], bytes], outcome: str = "hi", **fields: Any) -> Bomb:
    return Bomb("avro", value, json.dumps(record("R", **fields)), outcome)


def _items(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


def _block(size: int) -> bytes:
    return zigzag(size) + bytes(size) + zigzag(0)


def _protobuf(message: str, value: Callable[[int], bytes], outcome: str = "hi") -> Bomb:
    wide = "message Wide { " + " ".join(f"int64 f{number} = {number};" for number in range(1, _WIDE)) + " } "
    text = f'syntax = "proto3"; message A {{ {message} }} message B {{ string body = 1; }} {wide}'
    return Bomb("protobuf", lambda size: b"\0" + value(size), text, outcome)


_ENDLESS = zigzag(2**40) + zigzag(0)
_EMPTY = {"type": "error", "name": "E", "fields": []}
_TEXT, _HI = b"\4hi", b"\x12\2hi"
#: Names as sentences' subjects.
BOMBS = {
    "empty arrays": Bomb("json", lambda size: b'{"x":[[]' + b",[]" * (size // 3) + b'],"text":"hi"}'),
    "empty arrays on a path": Bomb("json", lambda size: b'{"payload":[[]' + b",[]" * (size // 3) + b'],"text":"hi"}'),
    "objects beside a path": Bomb(
        "json", lambda size: b'{"payload":{"x":[{}' + b",{}" * (size // 3) + b'],"body":"hi"}}'
    ),
    "short strings beside brackets": Bomb(
        "json", lambda size: b'{"x":[""' + b', ""' * (size // 4) + b'],"y":[[]' + b",[]" * 300 + b'],"text":"hi"}'
    ),
    "a character of four bytes": Bomb(
        "json", lambda size: b'{"text":"hi' + b"a" * size + _EMOJI + b'"}', outcome="too_large"
    ),
    "halves of pairs": Bomb(
        "json", lambda size: b'{"x":"' + b"\\ud800" * (size // 6) + b'","text":"hi"}', outcome="not_json"
    ),
    "escapes before half of a pair": Bomb(
        "json", lambda size: b'{"x":"' + b"\\n" * (size // 2) + b'","text":"hi\\ud800"}'
    ),
    "endless items of an error": _avro(lambda _size: _TEXT + _ENDLESS, text="string", a=_items(_EMPTY)),
    "endless items in front of the text": _avro(
        lambda _size: _ENDLESS + _TEXT, "unusable_schema", a=_items(_EMPTY), text="string"
    ),
    "endless items of a fixed of no bytes": _avro(
        lambda _size: _ENDLESS + _TEXT,
        "unusable_schema",
        a=_items(record("Z", f={"type": "fixed", "name": "F", "size": 0}, n="null")),
        text="string",
    ),
    "records of one boolean": _avro(
        lambda size: _block(size) + _TEXT, a=_items(record("W", b="boolean")), text="string"
    ),
    "wide records": _avro(
        lambda size: _block(size) + _TEXT,
        a=_items(record("W", b="boolean", **{f"n{at}": "null" for at in range(_WIDE)})),
        text="string",
    ),
    "empty texts": _avro(lambda size: _block(size // 8) + _TEXT, a=_items("string"), text="string"),
    "a map on a path": _avro(
        lambda size: zigzag(size // 16) + bytes(size // 8) + zigzag(0) + _TEXT,
        payload={"type": "map", "values": "string"},
        text="string",
    ),
    "a number without end": _avro(lambda size: b"\xff" * size + _TEXT, "schema_mismatch", a="long", text="string"),
    "a text of four bytes a character": _avro(
        lambda size: zigzag(size + len(_EMOJI)) + b"a" * size + _EMOJI, "too_large", text="string"
    ),
    "a deletion with a long id and a long text": _avro(
        lambda size: b"\x0cdelete" + 2 * (zigzag(size // 2 + len(_EMOJI)) + b"a" * (size // 2) + _EMOJI),
        "too_large",
        op="string",
        id="string",
        text="string",
    ),
    "repeated wide messages": _protobuf(
        "repeated Wide w = 1; string text = 2;", lambda size: b"\x0a\0" * (size // 2) + _HI
    ),
    "a oneof in turns": _protobuf(
        "oneof x { B payload = 1; B other = 3; } string text = 2;", lambda size: b"\x0a\0\x1a\0" * (size // 4) + _HI
    ),
    "messages in themselves": _protobuf(
        "A payload = 1; A body = 3; string text = 2;",
        lambda size: b"\x0a\4\x1a\0\x0a\0" * (size // 6) + _HI,
        "invalid_field",
    ),
    "unknown groups": _protobuf("string text = 2;", lambda size: b"\x1b\x1c" * (size // 2) + _HI),
    "a path of many indexes": Bomb(
        "protobuf",
        lambda size: zigzag(size) + bytes(size),
        'syntax = "proto3"; message A { string text = 2; }',
        "schema_mismatch",
    ),
    "a map": _protobuf("map<string, string> payload = 1; string text = 2;", lambda size: b"\x0a\0" * (size // 2) + _HI),
    "the text again and again": _protobuf("string text = 2;", lambda size: b"\x12\1a" * (size // 3) + _HI),
    "the text and an unknown field in turns": _protobuf(
        "string text = 2;", lambda size: b"\x12\1a\x18\0" * (size // 5) + _HI
    ),
    "a text in a message and an unknown field in turns": _protobuf(
        "B payload = 1; string text = 2;", lambda size: b"\x0a\5\x0a\1a\x18\0" * (size // 7) + _HI, "a\n"
    ),
    "a long text with an emoji": _protobuf(
        "string text = 2;", lambda size: b"\x12" + varint(size + len(_EMOJI)) + b"a" * size + _EMOJI, "too_large"
    ),
}


def outcome_of(bomb: Bomb, kind: str, value: bytes) -> tuple[str, int]:
    """Return the outcome of a value, and the bytes by which the peak of the memory of this process grows meanwhile."""
    RegistrySession.by_id = lambda *_: RegisteredSchema(KINDS[kind], bomb.schema or "true", {})
    decoder = Decoder(format=kind, text_fields=TEXT_FIELDS, registry=Registry("http://localhost"))
    outcome, before = "", 0
    for part in (value[:20], value):  # the first compiles the schema
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        try:
            outcome = decoder.decode(Position("t", 0, 0), 5, b"key", part).text.strip()[:_LETTERS]
        except MessageError as error:
            outcome = error.code
    return outcome, 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)


def measured(kind: str, size: int) -> Iterator[dict[str, Any]]:
    """Yield name, outcome, bytes and growth for each bomb of a format, each in a fork, whose peak begins anew."""
    for name, bomb in BOMBS.items():
        if bomb.format in (kind, kind.removesuffix("-schema")):
            value = (b"" if kind == "json" else b"\0\0\0\0\7") + bomb.value(size)
            reader, writer = os.pipe()
            if os.fork() == 0:
                os.write(writer, json.dumps(outcome_of(bomb, kind, value)).encode())
                os._exit(0)
            os.close(writer)
            with open(reader, encoding="utf-8") as answer:  # noqa: PTH123  a pipe
                outcome, growth = json.loads(answer.read())
            os.wait()
            yield {"name": name, "outcome": outcome, "expected": bomb.outcome, "bytes": len(value), "growth": growth}


if __name__ == "__main__":
    sys.stdout.writelines(json.dumps(line) + "\n" for line in measured(sys.argv[1], int(sys.argv[2])))
