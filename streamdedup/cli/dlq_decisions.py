"""The decisions of a replay: which dead letters are sent, what the replay group remembers, and the counts of both."""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Self

from streamdedup.cli.dead_letters import DeadLetter, DeadLetterFilter
from streamdedup.errors import StreamdedupError
from streamdedup.settings.units import counted

#: Bytes of offset metadata: the brokers' default of ``offset.metadata.max.bytes``.
MAX_METADATA_BYTES: Final = 4_096
#: Headers of a dead letter that lacks parts of its record.
_TRUNCATED: Final = ("truncated", "truncated-key", "dropped-headers")


class Verdict(StrEnum):
    """Decision about a dead letter: sent, or left out for the reason in the text.

    For a dead letter without bytes (stage ``read``) the record is fetched from its topic.
    """

    REPLAY = "replayed"
    NOT_WANTED = "excluded by --code, --topic, --partition or --offsets"
    BEFORE = "processed by an earlier run"
    EXHAUSTED = "failed as often as --max-attempts allows"
    TRUNCATED = "truncated, so the record cannot be restored"
    GONE = "without its bytes, and the record is no longer in its topic"
    STILL_UNREADABLE = "without its bytes, and the Kafka client still cannot read the record"
    NULL = "neither key nor value, which cannot be sent"
    FOREIGN = "from no input topic of the settings"
    UNREADABLE = "the dead letter itself cannot be read by the Kafka client"


@dataclass(slots=True)
class ReplayProgress:
    """Progress in one partition of the dead-letter topic; the replay group stores it as offset and metadata.

    Attributes:
        offset: All dead letters before are replayed, or left out permanently.
        kinds: By topic and code of the record: offset before which this kind is replayed, if beyond ``offset``.
        gap: Offset of the first dead letter that this run left for another run; None without one.
    """

    offset: int = 0
    kinds: dict[tuple[str, str], int] = field(default_factory=dict)
    gap: int | None = None

    @classmethod
    def read(cls, offset: int, metadata: str) -> Self:
        """Read stored progress; metadata of another program is ignored."""
        try:
            by_topic = json.loads(metadata)
            kinds = {(topic, code): int(end) for topic, ends in by_topic.items() for code, end in ends.items()}
        except (ValueError, AttributeError, TypeError):
            kinds = {}
        return cls(offset, kinds)

    def metadata(self) -> str:
        """Return the kinds as offset metadata.

        Raises:
            StreamdedupError: The metadata is longer than ``MAX_METADATA_BYTES``.
        """
        by_topic: dict[str, dict[str, int]] = {}
        for (topic, code), end in sorted(self.kinds.items()):
            by_topic.setdefault(topic, {})[code] = end
        text = json.dumps(by_topic, separators=(",", ":")) if by_topic else ""
        if len(text) > MAX_METADATA_BYTES:
            raise StreamdedupError(
                f"{len(self.kinds):,} kinds of dead letters were replayed one by one, more than the progress can hold: "
                "replay once without --code and --topic"
            )
        return text

    def covers(self, letter: DeadLetter) -> bool:
        """Return whether an earlier run replayed the dead letter."""
        return letter.record.position.offset < max(self.offset, self.kinds.get((letter.topic, letter.code), 0))

    def add(self, letter: DeadLetter, *, wanted: bool) -> None:
        """Add the next dead letter in offset order: completed if wanted, else left for another run."""
        kind, offset = (letter.topic, letter.code), letter.record.position.offset
        if wanted:
            self.kinds[kind] = max(offset + 1, self.kinds.get(kind, 0))
        elif self.gap is None and not self.covers(letter):
            self.gap = offset
        self.advance(offset + 1)

    def advance(self, end: int) -> None:
        """Advance ``offset`` to ``end``, or to the first gap before."""
        self.offset = max(self.offset, end if self.gap is None else min(end, self.gap))
        self.kinds = {kind: offset for kind, offset in self.kinds.items() if offset > self.offset}


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """Options of a replay.

    Attributes:
        wanted: Filter of the user.
        partition_counts: Number of partitions of each input topic.
        max_attempts: Records with this many failures are left out.
        again: Include dead letters that earlier runs replayed.
        limit: Greatest number of dead letters to replay; None for all.
        rate: Dead letters per second; 0 for no limit.
    """

    wanted: DeadLetterFilter
    partition_counts: Mapping[str, int]
    max_attempts: int = 3
    again: bool = False
    limit: int | None = None
    rate: float = 0.0

    @property
    def uses_progress(self) -> bool:
        """Whether stored progress is used and updated: not if the filter names positions."""
        return not self.wanted.names_positions

    def verdict(self, letter: DeadLetter, progress: ReplayProgress | None) -> Verdict:
        """Decide about a dead letter; ``progress`` is that of earlier runs, None to ignore them."""
        if not self.wanted.accepts(letter):
            return Verdict.NOT_WANTED
        if progress is not None and progress.covers(letter):
            return Verdict.BEFORE
        origin, record, facts = letter.origin, letter.record, letter.facts
        if origin is None or origin.partition >= self.partition_counts.get(origin.topic, 0):
            return Verdict.FOREIGN
        if not letter.is_unread:
            if any(name in facts for name in _TRUNCATED):
                return Verdict.TRUNCATED
            if record.key is None and (record.value is None or facts.get("null-value") == "true"):
                return Verdict.NULL
        return Verdict.EXHAUSTED if letter.attempts >= self.max_attempts else Verdict.REPLAY


@dataclass(slots=True)
class Tally:
    """Counts of dead letters by verdict, and of replayed ones by topic.

    ``has_earlier`` is whether earlier runs replayed some. Their number is unknown, as most are not read.
    """

    verdicts: Counter[Verdict] = field(default_factory=Counter)
    topics: Counter[str] = field(default_factory=Counter)
    has_earlier: bool = False

    def add(self, verdict: Verdict, letter: DeadLetter) -> None:
        """Count one dead letter."""
        self.has_earlier |= verdict is Verdict.BEFORE
        self.verdicts[verdict] += 1
        if verdict is Verdict.REPLAY:
            self.topics[letter.topic] += 1

    @property
    def replayed_count(self) -> int:
        """Number of replayed dead letters."""
        return self.verdicts[Verdict.REPLAY]

    def replayed(self) -> str:
        """Return number and topics of the replayed dead letters as text."""
        topics = ", ".join(f"{topic} {count:,}" for topic, count in sorted(self.topics.items()))
        return counted(self.replayed_count, "dead letter") + (f" ({topics})" if topics else "")

    def left_out(self) -> list[str]:
        """Return one line for each reason to leave dead letters out."""
        uncounted = (Verdict.REPLAY, Verdict.BEFORE)
        lines = [
            f"{count:,} left out: {verdict}"
            for verdict, count in sorted(self.verdicts.items())
            if count and verdict not in uncounted
        ]
        if self.has_earlier:
            lines.append("left out and not counted: those that an earlier run has processed; --again includes them")
        return lines
