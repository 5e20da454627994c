"""Stored and published forms: index entries, fingerprints, alerts, read from bytes that nobody wrote.

Each reader either raises what its docstring names, or returns something whole: written anew and read again it is the
same, and it can be compared.
"""

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from streamdedup.errors import DecodeError, StoreMisconfigured
from streamdedup.index.documents import Content, IndexEntry
from streamdedup.index.fingerprints import decode_fingerprint
from streamdedup.position import Position
from streamdedup.similarity.minhash import HashFamily
from streamdedup.similarity.sketch import Sketch, Sketcher
from streamdedup.wire import Alert, Match, decode_alert, encode_alert
from tests.entries import decode_entry, encode_entry
from tests.fuzz.mutation import mutated

PERMUTATIONS = 16
#: Most bytes of an alert made here.
_ALERT_BYTES = 100_000


class Undocumented(Exception):
    """What a reader did with bytes that it may not do.

    Args:
        reader: Its name.
        data: What it was given.
        reason: What happened.
    """

    def __init__(self, reader: str, data: bytes, reason: str) -> None:
        super().__init__(f"{reader}: {reason}: {data[:400]!r}{'...' if len(data) > 400 else ''}")
        self.data = data


@dataclass(frozen=True)
class Form:
    """One stored form.

    Attributes:
        examples: Makes bytes as they are written.
        read: Reads them.
        error: What it raises for anything else.
        check: Looks at what was read, and at its bytes; raises AssertionError where it is not whole.
    """

    examples: Callable[[random.Random], bytes]
    read: Callable[[bytes], Any]
    error: type[Exception]
    check: Callable[[Any, bytes], None]


@cache
def _sketcher() -> Sketcher:
    return Sketcher(HashFamily(PERMUTATIONS, 7), exact_limit=90, banded=8)


def _a_sketch(rng: random.Random) -> Sketch:
    count = rng.choice((0, 1, 2, 40, 64, 90))
    hashes = np.array(sorted(rng.sample(range(2**32), count)), np.uint32)
    if rng.random() < 0.7:
        return Sketch(count, hashes=hashes)
    return Sketch(91, signature=np.array([rng.randrange(2**32) for _ in range(PERMUTATIONS)], np.uint32))


def _a_content(rng: random.Random) -> Content:
    tail = tuple(rng.randrange(2**64) for _ in range(rng.randrange(4)))
    version, incarnation = rng.choice((None, rng.randbytes(16))), rng.choice((None, rng.randbytes(8)))
    counts, source = (rng.randrange(2**16), rng.randrange(2**16)), rng.choice((None, rng.randbytes(8)))
    return Content(_a_sketch(rng), *counts, tail, rng.random() < 0.1, version, incarnation, source)


def _an_entry(rng: random.Random) -> bytes:
    position = Position(rng.choice(("articles", "a-b_c.d")), rng.randrange(5), rng.randrange(2**40))
    document_id = rng.choice(("d1", "größe/老茶馆", "x" * 300))
    content = _a_content(rng)
    number, cluster, time_ms = rng.randrange(-(2**63), 2**63), rng.randrange(-(2**63), 2**63), rng.randrange(2**42)
    return encode_entry(IndexEntry(number, document_id, rng.randbytes(16), position, time_ms, cluster, content))


def _an_alert(rng: random.Random) -> bytes:
    matches = tuple(
        Match(f"m{at}", rng.randbytes(16).hex(), Position("articles", 0, at), 0.9, "exact", 0.0, 3)
        for at in range(rng.choice((1, 3)))
    )
    times = rng.randrange(2**42), rng.randrange(2**42)
    return encode_alert(
        Alert("articles", "d", "ab" * 16, Position("articles", 1, 7), times[0], None, "s", matches, "d", 0.8, times[1]),
        100,
        _ALERT_BYTES,
    )[0]


def _check_sketch(read: Sketch) -> None:
    if read.signature is None or len(read.signature) == PERMUTATIONS:
        other = Sketch(1, hashes=np.array([5], np.uint32))
        (similarity,) = _sketcher().similarities([read], [other]).values
        assert 0 <= similarity <= 1


def _check_entry(read: IndexEntry, data: bytes) -> None:
    again = encode_entry(read)
    assert decode_entry(read.number, again) == read
    _check_sketch(read.content.sketch)
    # All but the number of the partition has one spelling.
    assert again == data or str(read.position.of).encode() not in data


def _check_alert(read: Any, _data: bytes) -> None:
    again = decode_alert(encode_alert(read.alert, 10**6, 10**9)[0]).alert
    assert set(again.matches) == set(read.alert.matches)
    assert replace(again, matches=()) == replace(read.alert, matches=())


def _check_fingerprint(read: Any, _data: bytes) -> None:
    assert isinstance(read, dict)


def _fingerprint_of(data: bytes) -> dict[str, object]:
    return decode_fingerprint(b"key", data)


FORMS = {
    "entry": Form(_an_entry, lambda data: decode_entry(3, data), ValueError, _check_entry),
    "fingerprint": Form(
        lambda _rng: b'{"bands":9,"rows":4,"similarity":"set","seed":1}',
        _fingerprint_of,
        StoreMisconfigured,
        _check_fingerprint,
    ),
    "alert": Form(_an_alert, decode_alert, DecodeError, _check_alert),
}


def fuzz_stored(seed: str, count: int) -> Counter[str]:
    """Read ``count`` damaged forms of each kind.

    Returns:
        How many of each kind were refused, and how many read all the same.

    Raises:
        Undocumented: One did neither.
    """
    rng = random.Random(seed)
    outcomes: Counter[str] = Counter()
    for name, form in FORMS.items():
        examples = [form.examples(rng) for _ in range(20)]
        for _ in range(count):
            data = (
                mutated(rng, rng.choice(examples), examples) if rng.random() < 0.9 else rng.randbytes(rng.randrange(80))
            )
            outcomes[f"{name} {_outcome(name, form, data)}"] += 1
    return outcomes


def _outcome(name: str, form: Form, data: bytes) -> str:
    try:
        read = form.read(data)
    except form.error as error:
        # A subclass that says nothing of ours, such as UnicodeDecodeError, is a slip and no message.
        if type(error) is not form.error:
            raise Undocumented(name, data, f"{type(error).__name__} {error}") from error
        return "refused"
    except Exception as error:
        raise Undocumented(name, data, f"{type(error).__name__} {error}") from error
    try:
        form.check(read, data)
    except Exception as error:
        raise Undocumented(name, data, f"it was read as {read!r}, which is not whole: {error!r}") from error
    return "read"
