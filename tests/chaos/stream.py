"""Records without end whose pairs are known: texts, near and exact copies, redeliveries, poison, whole lives.

The sequence follows from the seed alone; how much of it a run uses follows from how long the run takes. Ids are keys,
so copies of a text stand in all partitions. The verdict reads the topic, and needs nothing from here.
"""

import random
from collections import deque
from collections.abc import Iterator

import msgspec

from tests.made_corpus import WORDS

#: Key and value of a record.
KeyValue = tuple[bytes, bytes | None]

#: How far back the texts lie that are copied, in records, and what each kind's share of the records is.
COPIED_FROM, COPIES, REDELIVERIES, POISON = 150, 0.6, 0.06, 0.02
#: Share of changes that give a document back a text that it had.
RETURNS = 0.3
#: Of the records that continue or end a document, the shares of those that continue one, and that do so with none.
CONTINUES, CONTINUES_NONE = 0.55, 0.05
#: Values that are no documents.
BAD_VALUES = (b"not json", b'{"id": 7}', b'{"text": "without an id"', b"\xff\xfe", b'["a list"]', b'{"id": "x"}')


def a_record(identity: str, text: str) -> KeyValue:
    """A document as a record."""
    return identity.encode(), msgspec.json.encode({"id": identity, "text": text})


def an_operation(op: str, identity: str, **fields: str) -> KeyValue:
    """An operation on a document as a record."""
    return identity.encode(), msgspec.json.encode({"id": identity, "op": op, **fields})


class _Lives:
    """Continues documents and ends them: a text that came in part is continued, others go and may come again."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._rests: dict[str, str] = {}
        self._gone: deque[tuple[str, list[str]]] = deque(maxlen=COPIED_FROM)

    def begin(self, identity: str, text: str) -> str:
        """Return how much of a text comes at first: now and then a part, of which the rest is to follow."""
        words = text.split()
        if self._rng.random() < CONTINUES / 2 and len(words) > 1:
            cut = self._rng.randint(max(1, len(words) // 3), len(words) - 1)
            self._rests[identity] = " ".join(words[cut:])
            words = words[:cut]
        return " ".join(words)

    def next(self, number: int, there: dict[str, list[str]]) -> KeyValue:
        """Continue a document, or end one.

        Args:
            number: Of the record.
            there: The documents that are there, with their texts; one that is ended is taken out.
        """
        rng = self._rng
        draw = rng.random()
        if draw < CONTINUES_NONE:
            return an_operation("append", f"nobody-{number}", text=_new(rng))
        if draw < CONTINUES and self._rests:
            return self._continue(rng.choice(list(self._rests)))
        if self._gone and rng.random() < RETURNS:
            identity, texts = self._gone.popleft()
            there[identity] = [rng.choice(texts)]
            return a_record(identity, there[identity][0])
        identity = rng.choice(list(there)[-COPIED_FROM:])
        self._gone.append((identity, there.pop(identity)))
        self._rests.pop(identity, None)
        return (identity.encode(), None) if rng.random() < RETURNS else an_operation("delete", identity)

    def _continue(self, identity: str) -> KeyValue:
        """Append some of what is left of a text, so that many documents are continued more than once."""
        words = self._rests.pop(identity).split()
        cut = self._rng.randint(1, len(words))
        if words[cut:]:
            self._rests[identity] = " ".join(words[cut:])
        return an_operation("append", identity, text=" ".join(words[:cut]))


def endless(seed: int, changes: float = 0.0, ends: float = 0.0) -> Iterator[KeyValue]:
    """Yield records of one seed.

    Args:
        seed: Decides all of them.
        changes: Share of records that give a document of the recent past another text; now and then one that it had.
        ends: Share of records that continue a document or delete it, or place it again.
    """
    rng = random.Random(f"stream {seed}")
    recent: deque[tuple[str, KeyValue]] = deque(maxlen=COPIED_FROM)
    had: dict[str, list[str]] = {}
    lives = _Lives(random.Random(f"lives {seed}"))
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
        if ends and had and rng.random() < ends:
            yield lives.next(number, had)
            continue
        text = _copy(rng, rng.choice(recent)[0]) if recent and rng.random() < COPIES else _new(rng)
        identity = f"doc-{number}"
        if recent and had and rng.random() < changes:
            text, identity = _change(rng, text, had)
        if ends:
            text = lives.begin(identity, text)
        had.setdefault(identity, []).append(text)
        record = a_record(identity, text)
        recent.append((text, record))
        yield record


def _change(rng: random.Random, text: str, had: dict[str, list[str]]) -> tuple[str, str]:
    """Another text for a document that there is: a new one, or one that it had before."""
    identity = rng.choice(list(had)[-COPIED_FROM:])
    # Of one that was deleted in between the empty text is no text.
    before = [old for old in had[identity] if old]
    return (rng.choice(before) if rng.random() < RETURNS and before else text), identity


def _new(rng: random.Random) -> str:
    return " ".join(rng.choices(WORDS, k=rng.randint(8, 40)))


def _copy(rng: random.Random, text: str) -> str:
    """An edit of a text: none at all, slight, or around the threshold."""
    words = text.split()
    for _ in range(rng.randint(0, 4)):
        words[rng.randrange(len(words))] = rng.choice(WORDS)
    return " ".join(words)
