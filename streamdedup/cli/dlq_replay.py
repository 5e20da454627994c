"""The replay of dead letters: which are sent, to which topics, and what the replay group remembers."""

import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import TracebackType
from typing import Final, Self

from msgspec import structs

from streamdedup.cli.dead_letters import DeadLetter, DeadLetterFilter
from streamdedup.cli.pace import Pace
from streamdedup.errors import MessageError, StreamdedupError
from streamdedup.kafka import KafkaOptions
from streamdedup.kafka.group import GroupOffsets
from streamdedup.kafka.producer import Feeder
from streamdedup.kafka.protocols import CommittedOffset, Message, Record
from streamdedup.kafka.reader import RecordFetcher, SpanReader
from streamdedup.position import Partition, Position
from streamdedup.settings.units import counted
from streamdedup.wire.dead_letters import PREFIX

#: Longest time between two commits of the progress, in seconds.
COMMIT_INTERVAL_S = 2.0
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


def message_of(letter: DeadLetter, origin: Position) -> Message:
    """Return the record to send to the original topic.

    It keeps key, value, record time and all headers; those of the dead letter continue its count of attempts.
    """
    record = letter.record
    headers = tuple((name, value or b"") for name, value in record.headers)
    timestamp_ms = record.timestamp_ms if record.timestamp_ms >= 0 else None
    return Message(origin.topic, record.key, record.value, headers, timestamp_ms)


def message_of_fetched(letter: DeadLetter, origin: Position, record: Record) -> Message | None:
    """Return the record to send for a dead letter without bytes, or None if it has neither key nor value.

    Args:
        letter: The dead letter; its headers are added, except the one that marks it as unread.
        origin: Position of the record.
        record: The record, fetched from there.
    """
    if record.key is None and record.value is None:
        return None
    own = [(name, value) for name, value in record.headers if not name.startswith(PREFIX)]
    facts = [(name, value) for name, value in letter.record.headers if name != f"{PREFIX}unread"]
    return message_of(DeadLetter(structs.replace(record, headers=(*own, *facts))), origin)


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


class DeadLetterReplay:
    """Sends dead letters back to the topics of their records. A context manager.

    Covers the dead letters that exist at construction; failures of replayed records are left for the next run.

    Args:
        options: Kafka options with the dead-letter topic and the group of the daemons.
        choice: Options of the replay.

    Attributes:
        is_recreated: Whether the dead-letter topic was created again since the last run, so that its progress is void.

    Raises:
        BrokerUnavailable: Kafka did not answer.
        FatalError: The broker refuses permanently, or the dead-letter topic does not exist.
    """

    def __init__(self, options: KafkaOptions, choice: ReplayOptions) -> None:
        self._options = options
        self._choice = choice
        self._fetcher: RecordFetcher | None = None
        self.is_recreated = False
        with ExitStack() as stack:
            self._reader = stack.enter_context(SpanReader(options))
            self._offsets = stack.enter_context(GroupOffsets(options, group_of(options.group_id)))
            self._progress = self._stored_progress()
            self._stack = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stack.close()

    def count(self) -> Tally:
        """Return the verdicts of a run without sending anything."""
        tally = Tally()
        for letter, verdict, _ in self._decided(tally):
            tally.add(verdict, letter)
        return tally

    def run(self) -> Iterator[Tally]:
        """Replay, and yield the tally every 2 seconds and at the end.

        Steps:
            1. Send dead letters at the given rate.
            2. Wait until Kafka has stored them.
            3. Commit the progress. Dead letters sent after the last commit are sent again by the next run.

        Raises:
            BrokerUnavailable: Dead letters could not be sent, or the progress not be committed.
            FatalError: The same, and an operator has to resolve the reason.
        """
        tally, pace, committed_at = Tally(), Pace(self._choice.rate), time.monotonic()
        with Feeder(replace(self._options, topics=tuple(self._choice.partition_counts))) as feeder:
            try:
                for letter, verdict, message in self._decided(tally):
                    if message is not None:
                        pace.wait()
                        _send(feeder, message, _origin(letter).partition)
                    tally.add(verdict, letter)
                    self._progress[letter.record.position.of].add(letter, wanted=verdict is not Verdict.NOT_WANTED)
                    if time.monotonic() - committed_at > COMMIT_INTERVAL_S:
                        self._commit(feeder)
                        committed_at = time.monotonic()
                        yield tally
            except KeyboardInterrupt:
                self._commit(feeder)
                raise
            if tally.replayed_count != self._choice.limit:
                for partition, end in self._reader.ends.items():
                    self._progress[partition].advance(end)
            self._commit(feeder)
        yield tally

    def _decided(self, tally: Tally) -> Iterator[tuple[DeadLetter, Verdict, Message | None]]:
        """Yield each dead letter with its verdict and the record to send, up to the limit; count unreadable ones."""
        skips_earlier, replayed_count = self._choice.uses_progress and not self._choice.again, 0
        starts = {partition: progress.offset for partition, progress in self._progress.items()}
        tally.has_earlier = skips_earlier and any(
            start > self._reader.beginnings[partition] for partition, start in starts.items()
        )
        self._reader.start_at(starts if skips_earlier else {})
        for batch in self._reader.batches():
            tally.verdicts[Verdict.UNREADABLE] += len(batch.unreadable)
            for letter in map(DeadLetter, batch.records):
                progress = self._progress[letter.record.position.of] if skips_earlier else None
                verdict = self._choice.verdict(letter, progress)
                message = None
                if verdict is Verdict.REPLAY:
                    verdict, message = self._message(letter)
                yield letter, verdict, message
                replayed_count += verdict is Verdict.REPLAY
                if replayed_count == self._choice.limit:
                    return

    def _message(self, letter: DeadLetter) -> tuple[Verdict, Message | None]:
        """Return the record to send; for a dead letter without bytes it is fetched from its topic."""
        origin = _origin(letter)
        if not letter.is_unread:
            return Verdict.REPLAY, message_of(letter, origin)
        if self._fetcher is None:
            self._fetcher = self._stack.enter_context(RecordFetcher(self._options))
        try:
            record = self._fetcher.fetch(origin)
        except MessageError:
            return Verdict.STILL_UNREADABLE, None
        if record is None:
            return Verdict.GONE, None
        message = message_of_fetched(letter, origin, record)
        return (Verdict.NULL, None) if message is None else (Verdict.REPLAY, message)

    def _stored_progress(self) -> dict[Partition, ReplayProgress]:
        progress = {partition: ReplayProgress() for partition in self._reader.ends}
        for partition, stored in self._offsets.read(self._reader.ends).items():
            if stored.offset > self._reader.ends[partition]:
                self.is_recreated = True
            else:
                progress[partition] = ReplayProgress.read(stored.offset, stored.metadata)
        return progress

    def _commit(self, feeder: Feeder) -> None:
        feeder.flush()
        if self._choice.uses_progress:
            self._offsets.write(
                {partition: CommittedOffset(one.offset, one.metadata()) for partition, one in self._progress.items()}
            )


def group_of(group_id: str) -> str:
    """Return the consumer group that stores the replay progress for a group of daemons."""
    return f"{group_id}.dlq-replay"


def _origin(letter: DeadLetter) -> Position:
    assert letter.origin is not None, "a dead letter of unknown origin is never replayed"
    return letter.origin


def _send(feeder: Feeder, message: Message, partition: int) -> None:
    """Send a record to its original partition; a partition chosen by key could differ, if another client wrote it."""
    key, value, time_ms = message.key, message.value, message.timestamp_ms
    feeder.send(message.topic, key, value, time_ms, headers=message.headers, partition=partition)
