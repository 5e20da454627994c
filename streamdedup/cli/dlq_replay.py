"""The replay of dead letters: reads them once to count, and once more to send them back."""

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Self

from streamdedup.cli.dlq_plan import Replayed, Rules, Tally, Verdict, message_of, message_of_fetched
from streamdedup.cli.letters import Letter
from streamdedup.cli.pace import Pace
from streamdedup.errors import MessageError
from streamdedup.kafka import KafkaOptions
from streamdedup.kafka.feeder import Feeder
from streamdedup.kafka.protocols import Bookmark, Message
from streamdedup.kafka.reader import RecordFetcher
from streamdedup.kafka.span import Bookmarks, SpanReader
from streamdedup.position import Partition, Position

#: Longest time, in seconds, for which what was sent is not remembered yet.
REMEMBER_S = 2.0


@dataclass(frozen=True, slots=True)
class Choice:
    """What a user has asked for.

    Attributes:
        rules: Which dead letters.
        again: Take also those that were replayed before.
        limit: Most dead letters to replay; None for all.
        rate: Most dead letters a second; 0 for no limit.
    """

    rules: Rules
    again: bool
    limit: int | None
    rate: float

    @property
    def remembers(self) -> bool:
        """Whether the memory of earlier runs is used and brought up to date: not where single places are named."""
        return not self.rules.wanted.names_places


class Replay:
    """Sends dead letters back to the topics that their records came from. A context manager.

    Only letters count that are there when this is made: those that a replay brings about are left for the next one.

    Args:
        options: Where Kafka is; its topic is the dead-letter topic, its group that of the daemons.
        choice: What to do.

    Attributes:
        is_anew: Whether the dead-letter topic was made anew since the last replay, so that nothing is remembered of it.

    Raises:
        BrokerUnavailable: Nothing answers.
        FatalError: The broker refuses us for good, or the dead-letter topic does not exist.
    """

    def __init__(self, options: KafkaOptions, choice: Choice) -> None:
        self._options = options
        self._choice = choice
        self._stack = ExitStack()
        self._fetcher: RecordFetcher | None = None
        self.is_anew = False
        with ExitStack() as stack:
            self._reader = stack.enter_context(SpanReader(options))
            self._bookmarks = stack.enter_context(Bookmarks(options, group_of(options.group_id)))
            self._replayed = self._remembered()
            self._stack = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stack.close()

    def count(self) -> Tally:
        """Return what a run would do now, and do nothing.

        Raises:
            BrokerUnavailable: Kafka did not answer.
        """
        tally = Tally()
        for letter, verdict, _ in self._judged(tally):
            tally.add(verdict, letter)
        return tally

    def run(self) -> Iterator[Tally]:
        """Send, remember what was sent, and yield now and then what was done so far, at last all of it.

        Steps:
            1. Send letters, at the pace that was asked for.
            2. Wait until Kafka has stored them.
            3. Remember them. What was sent and is not remembered when this ends is sent again by the next run.

        Raises:
            BrokerUnavailable: A letter could not be sent, or not be remembered.
            FatalError: The same, for a reason that an operator must cure.
        """
        tally, pace, remembered_at = Tally(), Pace(self._choice.rate), time.monotonic()
        with Feeder(replace(self._options, topics=tuple(self._choice.rules.partition_counts))) as feeder:
            try:
                for letter, verdict, message in self._judged(tally):
                    if message is not None:
                        pace.wait()
                        _send(feeder, letter, message)
                    tally.add(verdict, letter)
                    self._pass_by(letter, verdict)
                    if time.monotonic() - remembered_at > REMEMBER_S:
                        self._remember(feeder)
                        remembered_at = time.monotonic()
                        yield tally
            except KeyboardInterrupt:
                self._remember(feeder)
                raise
            if tally.replayed_count != self._choice.limit:
                for partition, end in self._reader.ends.items():
                    self._replayed[partition].settle(end)
            self._remember(feeder)
        yield tally

    def _judged(self, tally: Tally) -> Iterator[tuple[Letter, Verdict, Message | None]]:
        """Yield each letter with what becomes of it and what is sent; count those that cannot be read.

        Ends at the ends of the topic, or at the limit.
        """
        mindful, replayed_count = self._choice.remembers and not self._choice.again, 0
        starts = {partition: replayed.offset for partition, replayed in self._replayed.items()}
        tally.has_earlier = mindful and any(start > self._reader.beginnings[one] for one, start in starts.items())
        self._reader.start_at(starts if mindful else {})
        for batch in self._reader.batches():
            tally.verdicts[Verdict.UNREADABLE] += len(batch.unreadable)
            for letter in map(Letter, batch.records):
                replayed = self._replayed[letter.record.position.of] if mindful else None
                verdict = self._choice.rules.verdict(letter, replayed)
                message = None
                if verdict is Verdict.REPLAY:
                    verdict, message = self._message(letter)
                yield letter, verdict, message
                replayed_count += verdict is Verdict.REPLAY
                if replayed_count == self._choice.limit:
                    return

    def _message(self, letter: Letter) -> tuple[Verdict, Message | None]:
        """Return what is sent for a letter; of one without bytes the record is fetched from its topic.

        Raises:
            BrokerUnavailable: Kafka did not answer.
            FatalError: The broker refuses us, or the library of a codec is still not installed.
        """
        origin = _origin_of(letter)
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

    def _pass_by(self, letter: Letter, verdict: Verdict) -> None:
        replayed = self._replayed[letter.record.position.of]
        replayed.pass_by(letter, wanted=verdict is not Verdict.NOT_WANTED)
        replayed.settle(letter.record.position.offset + 1)

    def _remembered(self) -> dict[Partition, Replayed]:
        """What earlier runs have replayed, by partition of the dead-letter topic."""
        marks: Mapping[Partition, Bookmark] = self._bookmarks.read(self._reader.ends)
        found = {partition: Replayed() for partition in self._reader.ends}
        for partition, mark in marks.items():
            if mark.offset > self._reader.ends[partition]:
                self.is_anew = True
            else:
                found[partition] = Replayed.read(mark.offset, mark.note)
        return found

    def _remember(self, feeder: Feeder) -> None:
        """Write down what was sent, once it is stored."""
        feeder.flush()
        if self._choice.remembers:
            self._bookmarks.write(
                {
                    partition: Bookmark(replayed.offset, replayed.note())
                    for partition, replayed in self._replayed.items()
                }
            )


def group_of(group_id: str) -> str:
    """Return the consumer group that remembers what was replayed for the daemons of ``group_id``."""
    return f"{group_id}.dlq-replay"


def _origin_of(letter: Letter) -> Position:
    assert letter.origin is not None, "a letter of unknown origin is never replayed"
    return letter.origin


def _send(feeder: Feeder, letter: Letter, message: Message) -> None:
    # Not where the key would lead: another client may have placed it by other rules, and all versions of a document
    # must stay in one partition.
    feeder.send(
        message.topic,
        message.key,
        message.value,
        message.timestamp_ms,
        headers=message.headers,
        partition=_origin_of(letter).partition,
    )
