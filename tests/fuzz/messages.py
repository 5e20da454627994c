"""Messages by seed: good documents, what can be done to them, the rows of ``bad_input``, and bytes of no meaning.

Nothing here knows what should become of a message; that is for ``reading`` and ``accounts``.
"""

import gzip
import json
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from streamdedup.wire.dead_letters import PREFIX
from tests.bad_input import FUTURE_MS, ODD_HEADERS, ROWS

#: Names of the profiles, which are those of their topics: see ``accounts.PROFILES``.
TOPICS = ("plain", "titled", "strict", "reviews", "bags")
#: Rows of ``bad_input`` are taken up to this size; what is larger is made by ``_too_large``, in proportion.
_MOST_ROW_BYTES = 30_000
#: Where good texts take their words from: scripts with and without spaces, marks, digits, what case folding changes.
WORDS = re.findall(
    r"\S+",
    "amber birch cedar delta ember fjord grove heath inlet jetty knoll lagoon 1987 3.5 don't ÉTÉ straße İstanbul "
    "العَرَبِيَّة كِتَاب हिन्दी ภาษาไทย 老茶馆 重新开门 東京タワー 한국어 Ελλάδα Россия cafe\u0301 ﬁne ①② x\u00adyz "
    "👩\u200d🚀 \u202eabc naïve Ǆ ſ K Å 𝔘𝔫𝔦",
)
_HALVES = (r"\ud83d", r"\udc00", r"\\ud83d", r"\uD83D\u0041", r"\ude00\ud83d", r"\ud83d\ud83d\ude00")
_NUMBERS = ("1e999", "-0", "0.0", "1" * 400, "-" + "9" * 5_000, "1E400", "01", "+1", ".5", "1.", "0x10", "1e", "-")
_OTHERS: tuple[Any, ...] = (
    None, True, False, 0, -7, 42, 1.5, 2**63, -(2**63) - 1, 10**40, "", " ", "\0", "a\tb", "\x85", "x" * 1_030,
    [], ["a"], {}, {"a": {"b": []}}, "\ufeff", "\ufffd", "\u2028", "delete", "append", "upsert", "UPSERT", "…" * 342,
)  # fmt: skip


@dataclass(frozen=True)
class Fuzzed:
    """One message; ``made_by`` says what was done to it."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int
    made_by: str


def fuzzed_messages(seed: str, count: int, now_ms: int) -> Iterator[Fuzzed]:
    """Make so many messages of a seed, which are sent at about ``now_ms``."""
    rng = random.Random(seed)
    maker = _Maker(rng)
    makers, weights = zip(*maker.makers(), strict=True)
    for make in rng.choices(makers, weights, k=count):
        topic = rng.choice(TOPICS)
        key, value = make(topic)
        if rng.random() < 0.1:
            key = maker.odd_key()
        headers = maker.odd_headers(topic) if rng.random() < 0.2 else ()
        yield Fuzzed(topic, key, value, headers, maker.time_ms(now_ms), make.__name__.strip("_"))


KeyAndValue = tuple[bytes | None, bytes | None]


class _Maker:
    """Makes keys and values; each method that ends a message takes its topic."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._texts = [self._new_text() for _ in range(50)]
        self._ids_count = 0
        small = [row.records for row in ROWS.values()]
        self._poison = [s for sent in small for s in sent if len(s.value or b"") <= _MOST_ROW_BYTES]

    def makers(self) -> list[tuple[Callable[[str], KeyAndValue], float]]:
        return [
            (self._good, 30),
            (self._bits_flipped, 12),
            (self._cut_off, 5),
            (self._bytes_moved, 6),
            (self._random_bytes, 3),
            (self._field_swapped, 10),
            (self._field_removed, 3),
            (self._names_twice, 4),
            (self._wrapped, 3),
            (self._nested, 2),
            (self._odd_number, 3),
            (self._surrogates, 4),
            (self._odd_characters, 4),
            (self._other_encoding, 3),
            (self._spliced, 3),
            (self._too_large, 0.3),
            (self._many_shingles, 0.7),
            (self._poisoned, 5),
            (self._without_value, 2),
        ]

    # Good ones

    def _new_text(self) -> str:
        return " ".join(self._rng.choices(WORDS, k=self._rng.choice((0, 1, 2, 8, 12, 20, 30, 60))))

    def _a_text(self) -> str:
        rng = self._rng
        if rng.random() < 0.1:
            self._texts[rng.randrange(len(self._texts))] = self._new_text()
        words = rng.choice(self._texts).split()
        if words and rng.random() < 0.7:
            words[rng.randrange(len(words))] = rng.choice(WORDS)
        return " ".join(words)

    def _an_id(self) -> str:
        if self._rng.random() < 0.15:
            return f"d{self._rng.randrange(self._ids_count + 1)}"
        self._ids_count += 1
        return f"d{self._ids_count}"

    def _fields(self, topic: str) -> dict[str, Any]:
        rng = self._rng
        fields: dict[str, Any] = {"id": self._an_id(), ("body" if topic == "titled" else "text"): self._a_text()}
        if topic == "titled" and rng.random() < 0.5:
            fields["title"] = self._a_text()
        if rng.random() < 0.3:
            fields["source"] = rng.choice(("coast-daily", 7, None))
        if rng.random() < 0.3:
            fields["published_at"] = rng.choice(("2026-05-01T07:00:00Z", 1_777_618_931))
        if rng.random() < 0.15:
            fields["op"] = rng.choice(("upsert", "append", "append", "delete", None))
        if rng.random() < 0.2:
            fields["more"] = rng.choice(_OTHERS)
        return fields

    def _value(self, topic: str) -> bytes:
        return json.dumps(self._fields(topic), ensure_ascii=self._rng.random() < 0.3).encode()

    def _good(self, topic: str) -> KeyAndValue:
        fields = self._fields(topic)
        key = str(fields["id"]).encode()
        if self._rng.random() < 0.2:
            del fields["id"]
        return key, json.dumps(fields, ensure_ascii=False).encode()

    # Bytes

    def _bits_flipped(self, topic: str) -> KeyAndValue:
        data = bytearray(self._value(topic))
        for _ in range(self._rng.choice((1, 1, 1, 2, 5))):
            data[self._rng.randrange(len(data))] ^= 1 << self._rng.randrange(8)
        return b"k", bytes(data)

    def _cut_off(self, topic: str) -> KeyAndValue:
        value = self._value(topic)
        return b"k", value[: self._rng.randrange(len(value))]

    def _bytes_moved(self, topic: str) -> KeyAndValue:
        """A piece is taken out, said twice, or moved to another place."""
        rng, value = self._rng, self._value(topic)
        first, last = sorted(rng.choices(range(len(value) + 1), k=2))
        at = rng.randrange(len(value) + 1)
        piece, rest = value[first:last], value[:first] + value[last:]
        return b"k", rng.choice((rest, value[:at] + piece + value[at:], rest[:at] + piece + rest[at:]))

    def _random_bytes(self, topic: str) -> KeyAndValue:
        noise = self._rng.randbytes(self._rng.choice((0, 1, 5, 40, 300)))
        if self._rng.random() < 0.5:
            return noise[:8], noise
        value = self._value(topic)
        at = self._rng.randrange(len(value))
        return noise[:8], value[:at] + noise + value[at:]

    def _spliced(self, topic: str) -> KeyAndValue:
        """The beginning of one message and the end of another."""
        a, b = self._value(topic), self._value(topic)
        return b"k", a[: self._rng.randrange(len(a))] + b[self._rng.randrange(len(b)) :]

    # Structure

    def _field_swapped(self, topic: str) -> KeyAndValue:
        fields = self._fields(topic)
        names = ("id", "text", "title", "body", "source", "published_at", "op")
        name = self._rng.choice((*fields, *names))
        fields[name] = self._rng.choice(_OTHERS)
        return self._rng.choice((None, b"k")), json.dumps(fields).encode()

    def _field_removed(self, topic: str) -> KeyAndValue:
        fields = self._fields(topic)
        name = self._rng.choice(list(fields))
        kept = fields.pop(name)
        if self._rng.random() < 0.5:
            fields[name.title()] = kept
        return self._rng.choice((None, b"k")), json.dumps(fields).encode()

    def _names_twice(self, topic: str) -> KeyAndValue:
        rng, fields = self._rng, self._fields(topic)
        pairs = list(fields.items())
        name, value = rng.choice(pairs)
        again = rng.choice((value, *_OTHERS))
        pairs.insert(rng.randrange(len(pairs) + 1), (name, again))
        return b"k", ("{" + ",".join(f"{json.dumps(n)}:{json.dumps(v)}" for n, v in pairs) + "}").encode()

    def _wrapped(self, topic: str) -> KeyAndValue:
        value = self._value(topic)
        inside = json.dumps(value.decode()).encode()
        wraps = (
            b"[%s]" % value,
            b'{"text":%s}' % value,
            inside,
            b'{"text":%s}' % inside,
            value * 2,
            b"\n %s\n" % value,
        )
        return b"k", self._rng.choice(wraps)

    def _nested(self, topic: str) -> KeyAndValue:
        depth = self._rng.choice((2, 100, 250, 254, 255, 256, 257, 300, 2_000))
        opening, closing = self._rng.choice((("[", "]"), ('{"a":', "}")))
        deep = opening * depth + "0" + closing * self._rng.choice((depth, depth, depth - 1, depth + 1))
        name = self._rng.choice(("more", "text", "id"))
        return b"k", self._with_raw(topic, name, deep)

    def _odd_number(self, topic: str) -> KeyAndValue:
        name = self._rng.choice(("more", "id", "source", "published_at", "text"))
        return b"k", self._with_raw(topic, name, self._rng.choice((*_NUMBERS, "NaN", "Infinity", "-Infinity", "nul")))

    def _with_raw(self, topic: str, name: str, raw: str) -> bytes:
        fields = self._fields(topic)
        fields.pop(name, None)
        return (json.dumps(fields, ensure_ascii=False)[:-1] + f', "{name}": {raw}}}').encode()

    # Characters

    def _surrogates(self, topic: str) -> KeyAndValue:
        name = self._rng.choice(("id", "text", "text", "source", "published_at", "op", "more"))
        text = self._a_text().replace('"', "")
        at = self._rng.randrange(len(text) + 1)
        half = self._rng.choice(_HALVES)
        return b"k", self._with_raw(topic, name, f'"{text[:at]}{half}{text[at:]}"')

    def _odd_characters(self, topic: str) -> KeyAndValue:
        rng, fields = self._rng, self._fields(topic)
        odd = "".join(chr(rng.choice((rng.randrange(0x20), rng.randrange(0xD800), rng.randrange(0xE000, 0x110000))))
                      for _ in range(rng.choice((1, 3, 30))))  # fmt: skip
        name = rng.choice(("id", "text", "text", "body", "source"))
        fields[name] = rng.choice((odd, f"{fields.get(name, '')}{odd}"))
        return b"k", json.dumps(fields, ensure_ascii=rng.random() < 0.3).encode()

    def _other_encoding(self, topic: str) -> KeyAndValue:
        value = self._value(topic)
        text = value.decode()
        return b"k", self._rng.choice(
            (
                b"\xef\xbb\xbf" + value,
                text.encode("utf-16"),
                text.encode("utf-16-le"),
                text.encode("utf-32"),
                text.encode("latin-1", "replace"),
                text.encode("cp1251", "replace"),
                b"\0\0\0\0\x07" + value,
                gzip.compress(value, mtime=0),
            )
        )

    # Sizes, rows, nothing

    def _too_large(self, topic: str) -> KeyAndValue:
        name = self._rng.choice(("text", "text", "more", "id", "source"))
        long = "long " * self._rng.choice((1_000, 5_000, 14_000))
        return self._rng.choice((b"k", b"k" * 66_000)), self._with_raw(topic, name, f'"{long}"')

    def _many_shingles(self, topic: str) -> KeyAndValue:
        fields = self._fields(topic)
        fields["body" if topic == "titled" else "text"] = " ".join(self._rng.choices(WORDS, k=900))
        return b"k", json.dumps(fields, ensure_ascii=False).encode()

    def _poisoned(self, _topic: str) -> KeyAndValue:
        sent = self._rng.choice(self._poison)
        return sent.key, sent.value

    def _without_value(self, _topic: str) -> KeyAndValue:
        return self._rng.choice((None, b"", self._an_id().encode(), b"\xff")), self._rng.choice((None, None, b""))

    # Beside the value

    def odd_key(self) -> bytes | None:
        rng = self._rng
        return rng.choice((None, b"", rng.randbytes(rng.randrange(40)), b"k" * 1_025, self._an_id().encode()))

    def odd_headers(self, topic: str) -> tuple[tuple[str, bytes | None], ...]:
        """Headers; some are those of dead letters, and some of these name an earlier position in partition 0."""
        rng = self._rng
        if rng.random() < 0.1:
            place = {"topic": topic.encode(), "partition": b"0", "offset": rng.choice((b"0", b"9" * 18, b"-1", b"x"))}
            facts = {"attempts": b"3", "truncated": b"true", "sha256": rng.randbytes(32).hex().encode()}
            return tuple((f"{PREFIX}{name}", value) for name, value in (place | facts).items())
        plain = [(name.decode(), value) for name, value in ODD_HEADERS]
        ours = [
            (f"{PREFIX}{name}", rng.choice((b"", b"3", b"-1", b"9" * 30, b"true", rng.randbytes(9), None)))
            for name in ("attempts", "truncated", "sha256", "original-length", "topic", "unknown", "error.message")
        ]
        others = [("trace", rng.randbytes(rng.choice((0, 16, 1_000)))), ("größe…", None), ("x" * 300, b"y")]
        return tuple(rng.choices([*plain, *ours, *others], k=rng.choice((1, 2, 5))))

    def time_ms(self, now_ms: int) -> int:
        rng = self._rng
        if rng.random() < 0.9:
            return now_ms - rng.randrange(86_400_000)
        return rng.choice((-1, 0, 1_000, FUTURE_MS, -(2**63), 2**63 - 1, now_ms + 1))
