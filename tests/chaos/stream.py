"""An endless stream of records: texts, near and exact copies, redeliveries, invalid records, appends and deletions.

The seed decides the sequence, and the duration of a run decides its length. Ids are keys, so copies of a text are in
all partitions. The verdict reads the topics, not this module.
"""

import random
from collections import deque
from collections.abc import Iterator
from zlib import crc32

import msgspec

from tests.made_corpus import WORDS

#: Key and value of a record.
KeyValue = tuple[bytes, bytes | None]

#: Largest distance of a copy from its original, in records, and the share of each kind of record.
COPIED_FROM, COPIES, REDELIVERIES, POISON = 150, 0.6, 0.06, 0.02
#: Share of changes that return to an earlier text of the document.
RETURNS = 0.3
#: Of the appends and deletions, the share of appends, and the share of appends to an unknown document.
CONTINUES, CONTINUES_NONE = 0.55, 0.05
#: Number of the last documents with a rest of which one is continued.
CONTINUED = 50
#: Lasting documents: their number, how many of them are near-duplicates of each other at most, the number of texts of
#: each, the share of records about them, and of these the shares of appends and deletions. Every second one is never
#: deleted, so that its pairs last for the whole run.
LASTING, LASTING_ALIKE, LASTING_TEXTS, LASTING_SHARE, LASTING_APPENDS, LASTING_DELETIONS = 12, 3, 3, 0.3, 0.15, 0.15
#: Values that are no documents.
BAD_VALUES = (b"not json", b'{"id": 7}', b'{"text": "without an id"', b"\xff\xfe", b'["a list"]', b'{"id": "x"}')


def a_record(identity: str, text: str) -> KeyValue:
    """A document as a record; its source follows from the id, and one id in five has none."""
    fields = {"id": identity, "text": text}
    if number := crc32(identity.encode()) % 5:
        fields["source"] = f"s{number - 1}"
    return identity.encode(), msgspec.json.encode(fields)


def an_operation(op: str, identity: str, **fields: str) -> KeyValue:
    return identity.encode(), msgspec.json.encode({"id": identity, "op": op, **fields})


class _Lifecycles:
    """Creates appends and deletions: partly sent texts are continued, other documents are deleted and may return."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._rests: dict[str, str] = {}
        self._gone: deque[tuple[str, list[str]]] = deque(maxlen=COPIED_FROM)

    def begin(self, identity: str, text: str) -> str:
        """Return the first part of a text; the rest, if any, is appended later."""
        words = text.split()
        if self._rng.random() < CONTINUES / 2 and len(words) > 1:
            cut = self._rng.randint(max(1, len(words) // 3), len(words) - 1)
            self._rests[identity] = " ".join(words[cut:])
            words = words[:cut]
        return " ".join(words)

    def next(self, number: int, there: dict[str, list[str]]) -> KeyValue:
        """Append to a document, delete one, or insert a deleted one again; ``there`` has the texts of documents."""
        rng = self._rng
        draw = rng.random()
        if draw < CONTINUES_NONE:
            return an_operation("append", f"unknown-{number}", text=_new(rng))
        if draw < CONTINUES and self._rests:
            return self._continue(rng.choice(list(self._rests)[-CONTINUED:]))
        if self._gone and rng.random() < RETURNS:
            identity, texts = self._gone.popleft()
            there[identity] = [rng.choice(texts)]
            return a_record(identity, there[identity][0])
        identity = rng.choice(list(there)[-COPIED_FROM:])
        self._gone.append((identity, there.pop(identity)))
        self._rests.pop(identity, None)
        return (identity.encode(), None) if rng.random() < RETURNS else an_operation("delete", identity)

    def _continue(self, identity: str) -> KeyValue:
        """Append a part of the rest of a text, so that many documents have several appends."""
        words = self._rests.pop(identity).split()
        cut = self._rng.randint(1, len(words))
        if words[cut:]:
            self._rests[identity] = " ".join(words[cut:])
        return an_operation("append", identity, text=" ".join(words[:cut]))


class _Lasting:
    """Documents that live as long as the run: changed and changed back, appended to, deleted and inserted again.

    Each document has a few texts, of which each is near to one of its neighbours.
    """

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._texts: list[list[str]] = []
        for number in range(LASTING):
            if number % LASTING_ALIKE == 0:
                bases = [_new(rng) for _ in range(LASTING_TEXTS)]
            self._texts.append([_copy(rng, base) for base in bases])
        self._there: set[int] = set()

    def next(self) -> KeyValue:
        rng = self._rng
        number = rng.randrange(LASTING)
        identity, draw = f"lasting-{number}", rng.random()
        if number in self._there and draw < LASTING_APPENDS:
            return an_operation("append", identity, text=rng.choice(WORDS))
        if number in self._there and number % 2 and draw < LASTING_APPENDS + LASTING_DELETIONS:
            self._there.remove(number)
            return an_operation("delete", identity)
        self._there.add(number)
        return a_record(identity, rng.choice(self._texts[number]))


def endless(seed: int, changes: float = 0.0, ends: float = 0.0, *, lasting: bool = False) -> Iterator[KeyValue]:
    """Yield records of one seed.

    ``changes`` is the share of records that replace the text of a recent document, sometimes by an earlier one;
    ``ends`` of those that append to a document, delete it, or insert it again. With ``lasting`` some documents live as
    long as the run.
    """
    rng = random.Random(f"stream {seed}")
    recent: deque[tuple[str, KeyValue]] = deque(maxlen=COPIED_FROM)
    had: dict[str, list[str]] = {}
    lifecycles = _Lifecycles(random.Random(f"lifecycles {seed}"))
    lasting_documents = _Lasting(random.Random(f"lasting {seed}")) if lasting else None
    number = 0
    while True:
        number += 1
        draw = rng.random()
        if lasting_documents is not None and rng.random() < LASTING_SHARE:
            yield lasting_documents.next()
            continue
        if draw < POISON:
            yield b"poison-%d" % number, rng.choice(BAD_VALUES)
            continue
        if draw < POISON + REDELIVERIES and recent:
            yield rng.choice(recent)[1]
            continue
        if ends and had and rng.random() < ends:
            yield lifecycles.next(number, had)
            continue
        text = _copy(rng, rng.choice(recent)[0]) if recent and rng.random() < COPIES else _new(rng)
        identity = f"doc-{number}"
        if recent and had and rng.random() < changes:
            text, identity = _change(rng, text, had)
        if ends:
            text = lifecycles.begin(identity, text)
        had.setdefault(identity, []).append(text)
        record = a_record(identity, text)
        recent.append((text, record))
        yield record


def _change(rng: random.Random, text: str, had: dict[str, list[str]]) -> tuple[str, str]:
    """Return a new or an earlier text for an existing document."""
    identity = rng.choice(list(had)[-COPIED_FROM:])
    # The empty text of a deletion is no earlier text.
    before = [old for old in had[identity] if old]
    return (rng.choice(before) if rng.random() < RETURNS and before else text), identity


def _new(rng: random.Random) -> str:
    return " ".join(rng.choices(WORDS, k=rng.randint(8, 40)))


def _copy(rng: random.Random, text: str) -> str:
    """Return an edit of a text: none, slight, or around the threshold."""
    words = text.split()
    for _ in range(rng.randint(0, 4)):
        words[rng.randrange(len(words))] = rng.choice(WORDS)
    return " ".join(words)
