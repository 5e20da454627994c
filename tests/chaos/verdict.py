"""The verdict of a run: lost, doubled and invented pairs, from its topics (input, duplicates, dead letters) alone.

A document is in a *state* from one of its records to the next that changes it: an upsert or an append. Records of an id
are in one partition, in order. An alert names two states by the offsets of their records. Two sets bound the alerts:

* A pair of two states at the end was valid since the later record, and must be alerted once.
* A pair of two states that may have existed at the same time may be alerted. Other pairs must not be alerted.

A pair is alerted once for its two *versions*: an append keeps the version, and a document that is inserted again after
a deletion has a new one. While no document changes, both sets are the pairs that a comparison of all documents finds.

With a retention, pairs within it at all record times that the index may have for them are in the first set, and pairs
within it at any of these times in the second.
"""

import itertools
import json
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from streamdedup.position import Position
from streamdedup.wire import content_digest, decode_alert
from tests.made_corpus import the_expected
from tests.servers import read_topic, wait_no_transaction

#: Sources of which pairs are suppressed, and least number of shingles of two words, under ``SUPPRESSING``.
IGNORED, MIN_SHINGLES = ("s0", "s1"), 14
#: Settings of daemons that suppress pairs.
SUPPRESSING = {
    "profiles.articles.ignore_same_source": "true",
    "profiles.articles.ignore_sources": json.dumps([IGNORED]),
    "profiles.articles.min_shingles": MIN_SHINGLES,
}
#: A document in one version: its id, the number of earlier deletions, and the digest of the upserted text.
Version = tuple[str, int, str]
#: Two versions, sorted.
VersionPair = tuple[Version, Version]
#: Topic, partition, offset.
Place = tuple[str, int, int]


@dataclass(slots=True, eq=False)
class State:
    """State of a document from one record to the next.

    Attributes:
        place: Place of the record that began the state.
        until: Offset of the record that ended the state; None at the end of the topic.
        times_ms: Earliest and latest record time that the index may have for the state: a change and its reversal in
            one batch keep the earlier time, and a redelivery may insert an expired document again.
    """

    place: Place
    digest: str
    text: str
    version: Version
    until: int | None = None
    source: str | None = None
    times_ms: tuple[int, int] = (0, 0)
    before: "State | None" = field(default=None, repr=False)

    @property
    def content(self) -> tuple[Version, str]:
        return self.version, self.digest

    def together(self, other: "State") -> bool:
        """Tell whether both may have existed at the same time; records of two partitions have no order."""
        if self.place[:2] != other.place[:2]:
            return True
        first, second = sorted((self, other), key=lambda state: state.place)
        return first.until is None or first.until > second.place[2]

    def distances_ms(self, other: "State") -> tuple[int, int]:
        """Return the least and the greatest difference between the record times."""
        (a, b), (c, d) = self.times_ms, other.times_ms
        return max(0, a - d, c - b), max(d - a, b - c)


@dataclass(frozen=True, slots=True)
class History:
    """Content of an input topic: the state after each record, and records that can never be processed, by place."""

    states: dict[Place, State]
    poison: dict[Place, tuple[bytes | None, bytes | None]]
    alike: dict[tuple[Version, str], list[State]] = field(default_factory=lambda: defaultdict(list))

    def together(self, a: State, b: State, window_ms: int | None = None) -> bool:
        """Tell whether two contents may have existed at the same time, and within the retention.

        A change and its reversal in one batch have no effect: the index keeps the place of the first record.
        """
        return any(
            first.together(second) and (window_ms is None or first.distances_ms(second)[0] <= window_ms)
            for first in self.alike[a.content]
            for second in self.alike[b.content]
        )


@dataclass(frozen=True, slots=True)
class Verdict:
    """Mistakes of a run: lost, doubled and invented pairs, and dead letters by the places of their records."""

    expected_count: int
    poison_count: int
    lost: list[VersionPair] = field(default_factory=list)
    doubled: list[VersionPair] = field(default_factory=list)
    invented: list[VersionPair] = field(default_factory=list)
    letters_lost: list[Place] = field(default_factory=list)
    letters_doubled: list[Place] = field(default_factory=list)
    letters_invented: list[Place] = field(default_factory=list)

    @property
    def lost_count(self) -> int:
        return len(self.lost) + len(self.letters_lost)

    @property
    def doubled_count(self) -> int:
        return len(self.doubled) + len(self.letters_doubled)

    @property
    def invented_count(self) -> int:
        return len(self.invented) + len(self.letters_invented)

    @property
    def good(self) -> bool:
        return not (self.lost_count or self.doubled_count or self.invented_count)

    def __str__(self) -> str:
        examples = self.lost[:3] + self.doubled[:3] + self.invented[:3]
        return (
            f"lost {self.lost_count}  doubled {self.doubled_count}  invented {self.invented_count}  "
            f"(pairs expected {self.expected_count}, dead letters expected {self.poison_count})"
            + "".join(f"\n    {pair}" for pair in examples)
            + "".join(f"\n    dead letter {p}" for p in (self.letters_lost + self.letters_doubled)[:3])
        )


class _Reading:
    """Reads the records of an input topic."""

    def __init__(self) -> None:
        self.history = History({}, {})
        self._last: dict[str, State] = {}
        self._deletions: Counter[str] = Counter()

    def take(self, record: Any) -> None:
        place = record.topic, record.partition, record.offset
        if record.value is None:
            self._delete(record.key.decode(), place)
            return
        try:
            fields = json.loads(record.value)
            identity, op = fields["id"], fields.get("op", "upsert")
            text = "" if op == "delete" else fields["text"]
        except (ValueError, KeyError, TypeError, AttributeError):
            self.history.poison[place] = (record.key, record.value)
            return
        time_ms = getattr(record, "timestamp", 0)
        if op == "delete":
            self._delete(identity, place)
        elif op == "upsert":
            self._upsert(identity, text, place, fields.get("source"), time_ms)
        elif identity in self._last:
            self._append(identity, text, place, time_ms)
        else:
            self.history.poison[place] = (record.key, record.value)

    def _delete(self, identity: str, place: Place) -> None:
        before = self._last.pop(identity, None)
        if before is not None:
            before.until = place[2]
            self._deletions[identity] += 1

    def _upsert(self, identity: str, text: str, place: Place, source: str | None, time_ms: int) -> None:
        digest = content_digest(text).hex()
        before = self._last.get(identity)
        if before is not None and before.digest == digest:
            self.history.states[place] = before
            before.times_ms = before.times_ms[0], time_ms
        else:
            version = identity, self._deletions[identity], digest
            self._now(identity, State(place, digest, text, version, source=source), time_ms)

    def _append(self, identity: str, text: str, place: Place, time_ms: int) -> None:
        before = self._last[identity]
        digest = blake2b(bytes.fromhex(before.digest) + content_digest(text), digest_size=16).hexdigest()
        state = State(place, digest, f"{before.text}\n{text}", before.version, source=before.source)
        self._now(identity, state, time_ms)

    def _now(self, identity: str, state: State, time_ms: int) -> None:
        state.times_ms = time_ms, time_ms
        state.before = before = self._last.get(identity)
        if before is not None:
            before.until = state.place[2]
            if before.before is not None and before.before.content == state.content:
                state.times_ms = before.before.times_ms[0], time_ms
        self._last[identity] = self.history.states[state.place] = state
        self.history.alike[state.content].append(state)


def history(records: Iterable[Any]) -> History:
    """Read an input topic: partition by partition, in order of offsets; all records of an id are in one partition."""
    reading = _Reading()
    for record in records:
        reading.take(record)
    return reading.history


def near_texts(texts: Iterable[str]) -> set[tuple[str, str]]:
    """Return all pairs of near-duplicate texts, in both orders, and each text with itself."""
    distinct = sorted(set(texts))
    found = the_expected([(str(at), text) for at, text in enumerate(distinct)])
    pairs = {(distinct[int(a)], distinct[int(b)]) for a, b in found}
    return pairs | {(b, a) for a, b in pairs} | {(text, text) for text in distinct}


def is_suppressed(a: State, b: State) -> bool:
    """Tell whether a pair is suppressed under ``SUPPRESSING``."""
    if min(len(set(itertools.pairwise(state.text.split()))) for state in (a, b)) < MIN_SHINGLES:
        return True
    if not a.source or not b.source:
        return False
    return a.source == b.source or {a.source, b.source} == set(IGNORED)


def _versions(a: State, b: State) -> VersionPair:
    first, second = sorted((a.version, b.version))
    return first, second


def _place(position: Position) -> Place:
    """Return the place of a position, without the incarnation of the topic."""
    return position.topic, position.partition, position.offset


def _sides(records: Iterable[Any]) -> Iterable[tuple[tuple[Place, str, str], tuple[Place, str, str]]]:
    """Yield the pairs of a duplicates topic: place, id and digest of both sides."""
    for record in records:
        alert = decode_alert(record.value)
        own = (_place(alert.document.position), alert.document.id, alert.document.digest)
        for match in alert.matches:
            yield own, (_place(match.position), match.id, match.digest)


def alerted(
    records: Iterable[Any],
    content: History,
    near: set[tuple[str, str]],
    window_ms: int | None,
    *,
    suppressing: bool = False,
) -> tuple[Counter[VersionPair], set[Any]]:
    """Return the number of alerts of each pair in a duplicates topic, and alerted pairs that never existed."""
    seen: Counter[VersionPair] = Counter()
    invented = set()
    for sides in _sides(records):
        states = [content.states.get(place) for place, _, _ in sides]
        a, b = states
        right = (
            a is not None
            and b is not None
            and all((state.version[0], state.digest) == side[1:] for state, side in zip((a, b), sides, strict=True))
            and not (suppressing and is_suppressed(a, b))
        )
        if right and a.version[0] != b.version[0] and (a.text, b.text) in near and content.together(a, b, window_ms):
            seen[_versions(a, b)] += 1
        else:
            invented.add(tuple(sorted((identity, 0, digest) for _, identity, digest in sides)))
    return seen, invented


def dead_letters(records: Iterable[Any]) -> Counter[tuple[Place, bytes | None, bytes | None]]:
    seen: Counter[tuple[Place, bytes | None, bytes | None]] = Counter()
    for record in records:
        headers = {name: value.decode() for name, value in record.headers if name.startswith("streamdedup.dlq.")}
        topic, partition, offset = (headers[f"streamdedup.dlq.{name}"] for name in ("topic", "partition", "offset"))
        seen[(topic, int(partition), int(offset)), record.key, record.value] += 1
    return seen


def judge(
    inputs: Iterable[Any],
    duplicates: Iterable[Any],
    letters: Iterable[Any],
    window_ms: int | None = None,
    *,
    suppressing: bool = False,
) -> Verdict:
    """Compare the records of the output topics with those of the input topic; ``window_ms`` is the retention.

    ``suppressing``: whether the daemons had the settings ``SUPPRESSING``.
    """
    content = history(inputs)
    near = near_texts(state.text for state in content.states.values())
    final: dict[str, list[State]] = defaultdict(list)
    for state in {id(state): state for state in content.states.values() if state.until is None}.values():
        final[state.text].append(state)
    expected = {
        _versions(a, b)
        for texts in near
        for a, b in itertools.product(*(final.get(text, ()) for text in texts))
        if a.version[0] != b.version[0]
        and not (suppressing and is_suppressed(a, b))
        and (window_ms is None or a.distances_ms(b)[1] <= window_ms)
    }
    seen, invented = alerted(duplicates, content, near, window_ms, suppressing=suppressing)
    kept = dead_letters(letters)
    bad = {(place, *record) for place, record in content.poison.items()}
    return Verdict(
        expected_count=len(expected),
        poison_count=len(bad),
        lost=sorted(expected - seen.keys()),
        doubled=sorted((seen - Counter(seen.keys())).elements()),
        invented=sorted(invented),
        letters_lost=sorted(place for place, *_ in bad - kept.keys()),
        letters_doubled=sorted(place for place, *_ in (kept - Counter(kept.keys())).elements()),
        letters_invented=sorted(place for place, *_ in kept.keys() - bad),
    )


def judge_topics(
    bootstrap: str, topic: str, duplicates: str, window_ms: int | None = None, *, suppressing: bool = False
) -> Verdict:
    """Judge an installation whose input is completely processed and whose daemons have stopped."""
    # The transaction of a killed daemon hides later messages until the broker aborts it.
    wait_no_transaction(bootstrap, [duplicates, f"{duplicates}.dlq"])
    inputs, pairs, letters = (read_topic(bootstrap, name) for name in (topic, duplicates, f"{duplicates}.dlq"))
    return judge(inputs, pairs, letters, window_ms, suppressing=suppressing)
