"""Records without end whose pairs are known: texts, near and exact copies, redeliveries, poison.

The sequence follows from the seed alone; how much of it a run uses follows from how long the run takes. Ids are keys,
so copies of a text stand in all partitions. The verdict reads the topic, and needs nothing from here.
"""

import random
from collections import deque
from collections.abc import Iterator

import msgspec

from tests.made_corpus import WORDS

#: Key and value of a record.
KeyValue = tuple[bytes, bytes]

#: How far back the texts lie that are copied, in records, and what each kind's share of the records is.
COPIED_FROM, COPIES, REDELIVERIES, POISON = 150, 0.6, 0.06, 0.02
#: Share of changes that give a document back a text that it had.
RETURNS = 0.3
#: Values that are no documents.
BAD_VALUES = (b"not json", b'{"id": 7}', b'{"text": "without an id"', b"\xff\xfe", b'["a list"]', b'{"id": "x"}')


def a_record(identity: str, text: str) -> KeyValue:
    """A document as a record."""
    return identity.encode(), msgspec.json.encode({"id": identity, "text": text})


def endless(seed: int, changes: float = 0.0) -> Iterator[KeyValue]:
    """Yield records of one seed.

    Args:
        seed: Decides all of them.
        changes: Share of records that give a document of the recent past another text; now and then one that it had.
    """
    rng = random.Random(f"stream {seed}")
    recent: deque[tuple[str, KeyValue]] = deque(maxlen=COPIED_FROM)
    had: dict[str, list[str]] = {}
    number = 0
    while True:
        number += 1
        draw = rng.random()
        if draw < POISON:
            yield b"poison-%d" % number, rng.choice(BAD_VALUES)
            continue
        if draw < POISON + REDELIVERIES and recent:
            yield rng.choice(recent)[1]
            continue
        text = _copy(rng, rng.choice(recent)[0]) if recent and rng.random() < COPIES else _new(rng)
        identity = f"doc-{number}"
        if recent and rng.random() < changes:
            text, identity = _change(rng, text, had)
        had.setdefault(identity, []).append(text)
        record = a_record(identity, text)
        recent.append((text, record))
        yield record


def _change(rng: random.Random, text: str, had: dict[str, list[str]]) -> tuple[str, str]:
    """Another text for a document that there is: a new one, or one that it had before."""
    identity = rng.choice(list(had)[-COPIED_FROM:])
    return (rng.choice(had[identity]) if rng.random() < RETURNS else text), identity


def _new(rng: random.Random) -> str:
    return " ".join(rng.choices(WORDS, k=rng.randint(8, 40)))


def _copy(rng: random.Random, text: str) -> str:
    """An edit of a text: none at all, slight, or around the threshold."""
    words = text.split()
    for _ in range(rng.randint(0, 4)):
        words[rng.randrange(len(words))] = rng.choice(WORDS)
    return " ".join(words)
