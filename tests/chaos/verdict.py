"""Did a run lose or double anything? Told from its topics alone: input, duplicates, dead letters.

A document is in a *state* from one of its records to the next that changes it: placed, changed, continued. Records of
an id stand in one partition, in order. An alert names two states, by the places of their records. Two sets bound what
may be alerted:

* a pair of the states that are left at the end was valid ever since the later one came, and must be alerted once;
* a pair of any two states that may have stood together may be alerted; anything else must not be.

A pair is alerted once for the two *versions*: what is continued stays the version that was placed, and who is placed
again after a deletion is another one. While no document changes both sets are P, the pairs that a comparison of all
documents finds.
"""

import itertools
import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from streamdedup.position import Position
from streamdedup.wire import content_digest, decode_alert
from tests.made_corpus import the_expected
from tests.servers import read_topic, wait_no_transaction

#: A document in one version: its id, how often it was deleted before, and the digest of what was placed.
Version = tuple[str, int, str]
#: Two versions, sorted.
VersionPair = tuple[Version, Version]
#: Topic, partition, offset.
Place = tuple[str, int, int]


@dataclass(slots=True, eq=False)
class State:
    """A document from one record to the next.

    Attributes:
        place: Of the record that brought it about.
        digest: Of the content, as an alert writes it.
        text: The whole of it.
        version: The version that it is a state of.
        until: Offset of the record that ended it; None when it is left at the end.
    """

    place: Place
    digest: str
    text: str
    version: Version
    until: int | None = None

    def together(self, other: "State") -> bool:
        """Whether both may have stood at the same time: what stands in two partitions has no order."""
        if self.place[:2] != other.place[:2]:
            return True
        first, second = sorted((self, other), key=lambda state: state.place)
        return first.until is None or first.until > second.place[2]


@dataclass(frozen=True, slots=True)
class History:
    """What the records of an input topic say.

    Attributes:
        states: The state that each record is about, by place; one that is sent again is about the same.
        poison: Key and value of each record that can never be processed, by place.
    """

    states: dict[Place, State]
    poison: dict[Place, tuple[bytes | None, bytes | None]]

    def together(self, a: State, b: State) -> bool:
        """Whether two contents may have stood at the same time.

        A change and the return from it that come in one batch are none: the index keeps the place of the first.
        """
        return any(one.together(other) for one in self._alike(a) for other in self._alike(b))

    def _alike(self, state: State) -> list[State]:
        return [one for one in self.states.values() if (one.version, one.digest) == (state.version, state.digest)]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is wrong with a run.

    Attributes:
        expected_count: How many pairs there had to be.
        poison_count: How many dead letters there had to be.
        lost: Pairs that had to be alerted and were not.
        doubled: Pairs alerted more than once, with repetitions.
        invented: Pairs alerted that never were.
        letters_lost: Places without their dead letter.
        letters_doubled: Places with more than one.
        letters_invented: Places of dead letters whose record was good, or came out changed.
    """

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
        """Everything that a subscriber misses."""
        return len(self.lost) + len(self.letters_lost)

    @property
    def doubled_count(self) -> int:
        """Everything that a subscriber sees too often."""
        return len(self.doubled) + len(self.letters_doubled)

    @property
    def invented_count(self) -> int:
        """Everything that a subscriber must not see."""
        return len(self.invented) + len(self.letters_invented)

    @property
    def good(self) -> bool:
        """Whether nothing is wrong."""
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
    """Follows the documents of an input topic."""

    def __init__(self) -> None:
        self.told = History({}, {})
        self._last: dict[str, State] = {}
        self._deletions: Counter[str] = Counter()

    def take(self, record: Any) -> None:
        """Take in one record."""
        place = record.topic, record.partition, record.offset
        if record.value is None:
            self._delete(record.key.decode(), place)
            return
        try:
            fields = json.loads(record.value)
            identity, op = fields["id"], fields.get("op", "upsert")
            text = "" if op == "delete" else fields["text"]
        except (ValueError, KeyError, TypeError, AttributeError):
            self.told.poison[place] = (record.key, record.value)
            return
        if op == "delete":
            self._delete(identity, place)
        elif op == "upsert":
            self._place(identity, text, place)
        elif identity in self._last:
            self._continue(identity, text, place)
        else:
            self.told.poison[place] = (record.key, record.value)

    def _delete(self, identity: str, place: Place) -> None:
        before = self._last.pop(identity, None)
        if before is not None:
            before.until = place[2]
            self._deletions[identity] += 1

    def _place(self, identity: str, text: str, place: Place) -> None:
        digest = content_digest(text).hex()
        before = self._last.get(identity)
        if before is not None and before.digest == digest:
            self.told.states[place] = before
        else:
            self._now(identity, State(place, digest, text, (identity, self._deletions[identity], digest)))

    def _continue(self, identity: str, text: str, place: Place) -> None:
        before = self._last[identity]
        digest = blake2b(bytes.fromhex(before.digest) + content_digest(text), digest_size=16).hexdigest()
        self._now(identity, State(place, digest, f"{before.text}\n{text}", before.version))

    def _now(self, identity: str, state: State) -> None:
        before = self._last.get(identity)
        if before is not None:
            before.until = state.place[2]
        self._last[identity] = self.told.states[state.place] = state


def history(records: Iterable[Any]) -> History:
    """Read an input topic: partition by partition, in order of offsets; all records of an id stand in one partition."""
    reading = _Reading()
    for record in records:
        reading.take(record)
    return reading.told


def near_texts(texts: Iterable[str]) -> set[tuple[str, str]]:
    """Compare all texts with each other; return those that are near, each pair in both orders, and each with itself."""
    distinct = sorted(set(texts))
    found = the_expected([(str(at), text) for at, text in enumerate(distinct)])
    pairs = {(distinct[int(a)], distinct[int(b)]) for a, b in found}
    return pairs | {(b, a) for a, b in pairs} | {(text, text) for text in distinct}


def _versions(a: State, b: State) -> VersionPair:
    first, second = sorted((a.version, b.version))
    return first, second


def _place(position: Position) -> Place:
    """Return a position as the records of the input name it: Kafka does not tell incarnations of a topic apart."""
    return position.topic, position.partition, position.offset


def _sides(records: Iterable[Any]) -> Iterable[tuple[tuple[Place, str, str], tuple[Place, str, str]]]:
    """Yield the pairs of a duplicates topic: of both sides place, id and digest."""
    for record in records:
        alert = decode_alert(record.value).alert
        own = (_place(alert.position), alert.document_id, alert.digest)
        for match in alert.matches:
            yield own, (_place(match.position), match.id, match.digest)


def alerted(records: Iterable[Any], told: History, near: set[tuple[str, str]]) -> tuple[Counter[VersionPair], set[Any]]:
    """Read a duplicates topic.

    Args:
        records: Of that topic.
        told: What the input says.
        near: As of `near_texts`.

    Returns:
        How often each pair was alerted, and whatever never was a pair.
    """
    seen: Counter[VersionPair] = Counter()
    invented = set()
    for sides in _sides(records):
        states = [told.states.get(place) for place, _, _ in sides]
        a, b = states
        right = (
            a is not None
            and b is not None
            and all((state.version[0], state.digest) == side[1:] for state, side in zip((a, b), sides, strict=True))
        )
        if right and a.version[0] != b.version[0] and (a.text, b.text) in near and told.together(a, b):
            seen[_versions(a, b)] += 1
        else:
            invented.add(tuple(sorted((identity, 0, digest) for _, identity, digest in sides)))
    return seen, invented


def lettered(records: Iterable[Any]) -> Counter[tuple[Place, bytes | None, bytes | None]]:
    """Count each record in the records of a dead-letter topic, as it came out."""
    seen: Counter[tuple[Place, bytes | None, bytes | None]] = Counter()
    for record in records:
        headers = {name: value.decode() for name, value in record.headers if name.startswith("streamdedup.dlq.")}
        topic, partition, offset = (headers[f"streamdedup.dlq.{name}"] for name in ("topic", "partition", "offset"))
        seen[(topic, int(partition), int(offset)), record.key, record.value] += 1
    return seen


def judge(inputs: Iterable[Any], duplicates: Iterable[Any], letters: Iterable[Any]) -> Verdict:
    """Compare what came out with what went in.

    Args:
        inputs: Records of the input topic, partition by partition in order.
        duplicates: Records of the duplicates topic that a read_committed subscriber sees.
        letters: Records of the dead-letter topic that such a subscriber sees.
    """
    told = history(inputs)
    near = near_texts(state.text for state in told.states.values())
    left = list({id(state): state for state in told.states.values() if state.until is None}.values())
    must = {
        _versions(a, b)
        for a, b in itertools.combinations(left, 2)
        if (a.text, b.text) in near and a.version[0] != b.version[0]
    }
    seen, invented = alerted(duplicates, told, near)
    kept = lettered(letters)
    bad = {(place, *record) for place, record in told.poison.items()}
    return Verdict(
        expected_count=len(must),
        poison_count=len(bad),
        lost=sorted(must - seen.keys()),
        doubled=sorted((seen - Counter(seen.keys())).elements()),
        invented=sorted(invented),
        letters_lost=sorted(place for place, *_ in bad - kept.keys()),
        letters_doubled=sorted(place for place, *_ in (kept - Counter(kept.keys())).elements()),
        letters_invented=sorted(place for place, *_ in kept.keys() - bad),
    )


def judge_topics(bootstrap: str, topic: str, duplicates: str) -> Verdict:
    """Compare the topics of an installation that has come to the end of its input and has stopped."""
    # A killed daemon's transaction hides what others have published behind it until the broker aborts it.
    wait_no_transaction(bootstrap, [duplicates, f"{duplicates}.dlq"])
    return judge(
        read_topic(bootstrap, topic),
        read_topic(bootstrap, duplicates),
        read_topic(bootstrap, f"{duplicates}.dlq"),
    )
