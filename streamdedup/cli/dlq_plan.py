"""What a replay of dead letters does with each of them, and what it remembers; decides and performs nothing."""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Self

from msgspec import structs

from streamdedup.cli.letters import Letter, Wanted
from streamdedup.errors import StreamdedupError
from streamdedup.kafka.protocols import Message, Record
from streamdedup.position import Position
from streamdedup.wire.dead_letters import PREFIX

#: Bytes of what one partition can remember beside its offset; the brokers' usual ``offset.metadata.max.bytes``.
MAX_NOTE_BYTES: Final = 4_096


class Verdict(StrEnum):
    """What becomes of a dead letter; all but the first are left out, and the text says why.

    A letter without bytes (stage ``read``) is replayed with the record from its topic, as far as that can be fetched.
    """

    REPLAY = "replayed"
    NOT_WANTED = "not asked for by code, topic or place"
    BEFORE = "dealt with by an earlier run"
    EXHAUSTED = "failed as often as --max-attempts allows"
    TRUNCATED = "cut, so the record cannot be restored"
    GONE = "without its bytes, and the record is no longer in its topic"
    STILL_UNREADABLE = "without its bytes, and the Kafka client still cannot read the record"
    NULL = "neither key nor value, which cannot be sent"
    FOREIGN = "from no input topic of the settings"
    UNREADABLE = "the dead letter itself cannot be read by the Kafka client"


#: Facts that a dead letter states when parts of its record are missing.
_CUT: Final = ("truncated", "truncated-key", "dropped-headers")


@dataclass(slots=True)
class Replayed:
    """Up to where the dead letters of one partition of their topic were replayed.

    Attributes:
        offset: All before it were, or were left out for good.
        kinds: Of single kinds, by topic and code of the record, those before a later offset.
        gap: Offset of the first letter that this run has left for another; None while there is none.
    """

    offset: int = 0
    kinds: dict[tuple[str, str], int] = field(default_factory=dict)
    gap: int | None = None

    @classmethod
    def read(cls, offset: int, note: str) -> Self:
        """Read what ``note`` has written; a note of somebody else's says nothing."""
        try:
            by_topic = json.loads(note)
            kinds = {(topic, code): int(end) for topic, ends in by_topic.items() for code, end in ends.items()}
        except (ValueError, AttributeError, TypeError):
            kinds = {}
        return cls(offset, kinds)

    def note(self) -> str:
        """Return the kinds as text.

        Raises:
            StreamdedupError: They are too many to be kept.
        """
        by_topic: dict[str, dict[str, int]] = {}
        for (topic, code), end in sorted(self.kinds.items()):
            by_topic.setdefault(topic, {})[code] = end
        text = json.dumps(by_topic, separators=(",", ":")) if by_topic else ""
        if len(text) > MAX_NOTE_BYTES:
            raise StreamdedupError(
                f"{len(self.kinds):,} kinds of dead letters were replayed one by one, more than can be remembered: "
                "replay once without --code and --topic"
            )
        return text

    def covers(self, letter: Letter) -> bool:
        """Tell whether ``letter`` was replayed before."""
        offset = letter.record.position.offset
        return offset < max(self.offset, self.kinds.get((letter.topic, letter.code), 0))

    def pass_by(self, letter: Letter, *, wanted: bool) -> None:
        """Take note of a letter, in order of offsets: dealt with, or left for another run."""
        kind, offset = (letter.topic, letter.code), letter.record.position.offset
        if wanted:
            self.kinds[kind] = max(offset + 1, self.kinds.get(kind, 0))
        elif self.gap is None and not self.covers(letter):
            self.gap = offset

    def settle(self, offset: int) -> None:
        """Take note that all before ``offset`` were passed by."""
        self.offset = max(self.offset, offset if self.gap is None else min(offset, self.gap))
        self.kinds = {kind: end for kind, end in self.kinds.items() if end > self.offset}


@dataclass(frozen=True, slots=True)
class Rules:
    """Which dead letters are replayed.

    Attributes:
        wanted: Those that were asked for.
        partition_counts: Number of partitions of each input topic.
        max_attempts: Records that have failed so often are left out.
    """

    wanted: Wanted
    partition_counts: Mapping[str, int]
    max_attempts: int

    def verdict(self, letter: Letter, replayed: Replayed | None) -> Verdict:
        """Say what becomes of ``letter``.

        Args:
            letter: It.
            replayed: What was replayed of its partition before; None to take all again.
        """
        if not self.wanted.takes(letter):
            return Verdict.NOT_WANTED
        if replayed is not None and replayed.covers(letter):
            return Verdict.BEFORE
        obstacle = self._obstacle(letter)
        if obstacle is not None:
            return obstacle
        return Verdict.EXHAUSTED if letter.attempts >= self.max_attempts else Verdict.REPLAY

    def _obstacle(self, letter: Letter) -> Verdict | None:
        """Say why the record cannot be sent, or None when it can, or when its bytes are not in the letter."""
        origin, record, facts = letter.origin, letter.record, letter.facts
        if origin is None or origin.partition >= self.partition_counts.get(origin.topic, 0):
            return Verdict.FOREIGN
        if letter.is_unread:
            return None
        if any(name in facts for name in _CUT):
            return Verdict.TRUNCATED
        if record.key is None and (record.value is None or facts.get("null-value") == "true"):
            return Verdict.NULL
        return None


def message_of(letter: Letter, origin: Position) -> Message:
    """Return the record to send: key, value, headers and record time of the letter, for its original topic.

    The headers that make it a dead letter go along, so that a further failure counts on.
    """
    record = letter.record
    headers = tuple((name, value or b"") for name, value in record.headers)
    timestamp_ms = record.timestamp_ms if record.timestamp_ms >= 0 else None
    return Message(origin.topic, record.key, record.value, headers, timestamp_ms)


def message_of_fetched(letter: Letter, origin: Position, record: Record) -> Message | None:
    """Return the record to send for a letter without bytes; None when it has neither key nor value.

    Args:
        letter: The letter; its headers go along, but for the one that says that there are no bytes.
        origin: Where the record stands.
        record: The record, from there.
    """
    if record.key is None and record.value is None:
        return None
    own = [(name, value) for name, value in record.headers if not name.startswith(PREFIX)]
    facts = [(name, value) for name, value in letter.record.headers if name != f"{PREFIX}unread"]
    return message_of(Letter(structs.replace(record, headers=(*own, *facts))), origin)


@dataclass(slots=True)
class Tally:
    """Counts of what becomes of dead letters.

    Attributes:
        verdicts: By verdict.
        topics: Those replayed, by topic.
        has_earlier: Whether there are letters that an earlier run has dealt with. How many is not known: most are not
            even read.
    """

    verdicts: Counter[Verdict] = field(default_factory=Counter)
    topics: Counter[str] = field(default_factory=Counter)
    has_earlier: bool = False

    def add(self, verdict: Verdict, letter: Letter) -> None:
        """Count one."""
        self.has_earlier |= verdict is Verdict.BEFORE
        self.verdicts[verdict] += 1
        if verdict is Verdict.REPLAY:
            self.topics[letter.topic] += 1

    @property
    def replayed_count(self) -> int:
        """How many are replayed."""
        return self.verdicts[Verdict.REPLAY]

    def replayed(self) -> str:
        """Say how many are replayed, and to which topics."""
        topics = ", ".join(f"{topic} {count:,}" for topic, count in sorted(self.topics.items()))
        noun = "dead letter" if self.replayed_count == 1 else "dead letters"
        return f"{self.replayed_count:,} {noun}" + (f" ({topics})" if topics else "")

    def left_out(self) -> list[str]:
        """Say how many are left out, a line for each reason."""
        uncounted = (Verdict.REPLAY, Verdict.BEFORE)
        others = sorted(
            (verdict, count) for verdict, count in self.verdicts.items() if count and verdict not in uncounted
        )
        lines = [f"{count:,} left out: {verdict}" for verdict, count in others]
        earlier = ["left out and not counted: those that an earlier run has dealt with; --again takes them too"]
        return lines + (earlier if self.has_earlier else [])
