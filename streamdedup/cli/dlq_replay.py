"""The replay of dead letters: records are restored, sent to their topics, and the progress is committed."""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import Self

from msgspec import structs

from streamdedup.cli.dead_letters import DeadLetter
from streamdedup.cli.dlq_decisions import ReplayOptions, ReplayProgress, Tally, Verdict
from streamdedup.cli.pace import Pace
from streamdedup.errors import MessageError
from streamdedup.kafka.group import GroupOffsets
from streamdedup.kafka.options import KafkaOptions
from streamdedup.kafka.producer import Feeder
from streamdedup.kafka.protocols import CommittedOffset, Message, Record
from streamdedup.kafka.reader import RecordFetcher, SpanReader
from streamdedup.position import Partition, Position
from streamdedup.wire.dead_letters import PREFIX

#: Longest time between two commits of the progress, in seconds.
COMMIT_INTERVAL_S = 2.0


def message_of(letter: DeadLetter, origin: Position) -> Message:
    """Return the record to send to the original topic.

    The record keeps key, value, record time and all headers; the headers of the dead letter continue the count of
    attempts.
    """
    record = letter.record
    headers = tuple((name, value or b"") for name, value in record.headers)
    timestamp_ms = record.timestamp_ms if record.timestamp_ms >= 0 else None
    return Message(origin.topic, record.key, record.value, headers, timestamp_ms)


def message_of_fetched(letter: DeadLetter, origin: Position, record: Record) -> Message | None:
    """Return the record to send for a dead letter without bytes, or None if it has neither key nor value.

    Args:
        letter: The dead letter; the headers are added, except the mark of unread records.
        origin: Position of the record.
        record: The record, fetched from there.
    """
    if record.key is None and record.value is None:
        return None
    own = [(name, value) for name, value in record.headers if not name.startswith(PREFIX)]
    facts = [(name, value) for name, value in letter.record.headers if name != f"{PREFIX}unread"]
    return message_of(DeadLetter(structs.replace(record, headers=(*own, *facts))), origin)


class DeadLetterReplay:
    """Sends dead letters back to the topics of their records. A context manager.

    Covers the dead letters that exist at construction; failures of replayed records are left for the next run.

    Args:
        options: Kafka options with the dead-letter topic and the group of the daemons.
        choice: Options of the replay.

    Attributes:
        is_recreated: Whether the dead-letter topic was created again since the last run, so that the stored progress is
            void.

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

    def __exit__(self, *_error: object) -> None:
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
        """Return the record to send; the record of a dead letter without bytes is fetched from its topic."""
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
