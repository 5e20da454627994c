"""Dead-letter replay for ``cli.dlq``: restores failed records, sends them to their topics, and commits the progress.

The dead-letter topic is read without a consumer group; a separate group (``progress_group``) stores only the progress:
the offset before which all dead letters of a partition are done, with the topic id. A run with a filter begins there,
but stores nothing: one offset cannot tell which of the dead letters before it were left out. The group has no members,
so Kafka deletes the progress ``offsets.retention.minutes`` after the last commit; dead letters are kept for ever.
"""

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Self

from msgspec import structs

from streamdedup.counts import counted
from streamdedup.errors import MessageError
from streamdedup.kafka.group_admin import GroupOffsets
from streamdedup.kafka.offsets import is_outdated
from streamdedup.kafka.options import KafkaOptions
from streamdedup.kafka.producer import Feeder
from streamdedup.kafka.protocols import CommittedOffset, Message, Record
from streamdedup.kafka.reader import RecordFetcher, TopicReader
from streamdedup.position import Position
from streamdedup.wire.dead_letters import PREFIX, DeadLetter

COMMIT_INTERVAL_S: Final = 2.0  # longest time between two commits of the progress, in seconds
MAX_ATTEMPTS: Final = 3  # records with this many failures are left out, so that replays cannot loop
#: Facts (``DeadLetter.facts``) of a dead letter that lacks parts of its record.
_TRUNCATED: Final = ("truncated", "truncated-key", "dropped-headers")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterFilter:
    """Conditions of ``dlq inspect`` and ``dlq replay``; an empty one accepts all. ``since_s`` is in epoch seconds."""

    codes: frozenset[str] = frozenset()
    topics: frozenset[str] = frozenset()
    since_s: float | None = None

    @property
    def accepts_all(self) -> bool:
        return self == DeadLetterFilter()

    def accepts(self, letter: DeadLetter) -> bool:
        if (self.codes and letter.code not in self.codes) or (self.topics and letter.topic not in self.topics):
            return False
        return self.since_s is None or letter.time_s >= self.since_s


class LeftOut(StrEnum):
    """Why a dead letter is not replayed."""

    FILTERED = "excluded by --code, --topic or --since"
    EXHAUSTED = f"failed {MAX_ATTEMPTS} times"
    TRUNCATED = "truncated, so the record cannot be restored"
    GONE = "without its bytes, and the record is no longer in its topic"
    STILL_UNREADABLE = "without its bytes, and the Kafka client still cannot read the record"
    NULL = "neither key nor value, which cannot be sent"
    FOREIGN = "from no input topic of the settings"
    UNREADABLE = "the dead letter itself cannot be read by the Kafka client"


@dataclass(slots=True)
class Tally:
    topics: Counter[str] = field(default_factory=Counter)
    reasons: Counter[LeftOut] = field(default_factory=Counter)

    @property
    def replayed_count(self) -> int:
        return self.topics.total()

    def replayed_text(self) -> str:
        topics = ", ".join(f"{topic} {count:,}" for topic, count in sorted(self.topics.items()))
        return counted(self.replayed_count, "dead letter") + (f" ({topics})" if topics else "")

    def left_out(self) -> list[str]:
        return [f"{count:,} left out: {reason}" for reason, count in sorted(self.reasons.items()) if count]


def message_of(letter: DeadLetter, origin: Position) -> Message:
    """Return the record to send to the original topic, with key, value, record time and headers of the dead letter."""
    record = letter.record
    # With those about the failure: if the record fails again, the daemon continues their count of attempts.
    headers = tuple((name, value or b"") for name, value in record.headers)  # a null header becomes an empty one
    timestamp_ms = record.timestamp_ms if record.timestamp_ms >= 0 else None  # -1 in Kafka: the record has no time
    return Message(origin.topic, record.key, record.value, headers, timestamp_ms)


def message_of_fetched(letter: DeadLetter, origin: Position, record: Record) -> Message | None:
    """Return the record to send for a dead letter without bytes, from the failed record; None without key and value."""
    if record.key is None and record.value is None:
        return None
    # A dead letter without bytes has only headers with facts. The record may have older ones, of an earlier replay.
    user_headers = [(name, value) for name, value in record.headers if not name.startswith(PREFIX)]
    # A further dead letter would inherit `unread`, although it has bytes.
    fact_headers = [(name, value) for name, value in letter.record.headers if name != f"{PREFIX}unread"]
    return message_of(DeadLetter(structs.replace(record, headers=(*user_headers, *fact_headers))), origin)


def reason_to_leave_out(
    letter: DeadLetter, partition_counts: Mapping[str, int], topic_ids: Mapping[str, str]
) -> LeftOut | None:
    """Return why a dead letter cannot be replayed, by its headers, and partition counts and ids of the input topics."""
    origin, record = letter.origin, letter.record
    if origin is None or origin.partition >= partition_counts.get(origin.topic, 0):
        return LeftOut.FOREIGN
    if not letter.is_unread:  # bytes of a record that the daemon could not read are fetched later
        if any(name in letter.facts for name in _TRUNCATED):
            return LeftOut.TRUNCATED
        # Such a dead letter has an empty value, because the record had neither key nor value (`null-value`).
        if record.key is None and (record.value is None or letter.facts.get("null-value") == "true"):
            return LeftOut.NULL
    elif is_outdated(letter.facts.get("topic-id", ""), topic_ids.get(origin.topic, "")):
        return LeftOut.GONE  # at the position may be a record of the new topic
    return LeftOut.EXHAUSTED if letter.attempts >= MAX_ATTEMPTS else None


class DeadLetterReplay:
    """Sends dead letters back to their records' topics. A context manager.

    Covers the dead letters that exist at construction; failures during the replay are left for the next run.
    ``options`` has the dead-letter topic, ``partition_counts`` the input topics, ``topic_ids`` both. With
    ``from_beginning`` the stored progress is ignored.
    """

    def __init__(
        self,
        options: KafkaOptions,
        letter_filter: DeadLetterFilter,
        partition_counts: Mapping[str, int],
        topic_ids: Mapping[str, str],
        *,
        from_beginning: bool = False,
    ) -> None:
        self._options = options
        self._filter = letter_filter
        self._partition_counts = partition_counts
        self._topic_ids = topic_ids
        self._own_id = topic_ids.get(options.topics[0], "")
        self._fetcher: RecordFetcher | None = None  # opened for the first dead letter without bytes
        with ExitStack() as stack:
            self._reader = stack.enter_context(TopicReader(options))
            self._offsets = stack.enter_context(GroupOffsets(options, progress_group(options.group_id)))
            beginnings, ends = dict(self._reader.beginnings), self._reader.ends
            progress = {} if from_beginning else self._offsets.read(ends)
            # Kafka may keep the offsets of a deleted topic. The end shows it where brokers have no topic ids.
            outdated = {
                partition
                for partition, stored in progress.items()
                if is_outdated(stored.metadata, self._own_id) or stored.offset > ends[partition]
            }
            #: The dead-letter topic was created again since the last run; these partitions are read from the beginning.
            self.is_recreated = bool(outdated)
            # A partition alone without an offset is a new one: each commit is of all partitions, which expire together.
            is_limited = from_beginning or letter_filter.since_s is not None
            #: No progress is stored, and no time limits the run: dead letters may be sent a second time.
            self.lacks_progress = not is_limited and not progress and beginnings != ends
            #: Offset before which all dead letters are done, by partition of their topic.
            self._done = beginnings | {p: stored.offset for p, stored in progress.items() if p not in outdated}
            self._stack = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._stack.close()

    def count(self) -> Tally:
        """Return the tally that ``run`` would have, without sending anything."""
        tally = Tally()
        for _ in self._messages(tally):
            pass
        return tally

    def run(self) -> Iterator[Tally]:
        """Replay, and yield the same growing tally every 2 seconds and at the end.

        Dead letters sent after the last commit of the progress are sent again by the next run.
        """
        tally, committed_at = Tally(), time.monotonic()
        self.store_progress()  # where the run begins: a lack of rights ends it here
        with Feeder(self._options) as feeder:
            try:
                for letter, message in self._messages(tally):
                    if message is not None:
                        key, value, time_ms = message.key, message.value, message.timestamp_ms
                        # By the key, this client could choose another partition than the writer of the record.
                        partition = _origin(letter).partition
                        feeder.send(message.topic, key, value, time_ms, headers=message.headers, partition=partition)
                    # Dead letters that cannot be replayed are done as well.
                    self._done[letter.record.position.topic_partition] = letter.record.position.offset + 1
                    if time.monotonic() - committed_at > COMMIT_INTERVAL_S:
                        self._commit(feeder)
                        committed_at = time.monotonic()
                        yield tally
            except KeyboardInterrupt:
                self._commit(feeder)
                raise
            # The last offsets of a partition may have no dead letter: transaction markers, unreadable records.
            self._done = dict(self._reader.ends)
            self._commit(feeder)
        yield tally

    def store_progress(self) -> None:
        """Commit the progress of this run, unless it has a filter."""
        if self._filter.accepts_all:
            done = self._done.items()
            self._offsets.write({partition: CommittedOffset(offset, self._own_id) for partition, offset in done})

    def _commit(self, feeder: Feeder) -> None:
        feeder.flush()  # waits until Kafka has stored what was sent
        self.store_progress()

    def _messages(self, tally: Tally) -> Iterator[tuple[DeadLetter, Message | None]]:
        """Yield each dead letter with the record to send, or with None if it is left out; count both in ``tally``."""
        self._reader.start_at(self._done)
        for batch in self._reader.batches():
            tally.reasons[LeftOut.UNREADABLE] += len(batch.unreadable)
            for letter in map(DeadLetter, batch.records):
                outcome = self._message_or_reason(letter)
                if isinstance(outcome, LeftOut):
                    tally.reasons[outcome] += 1
                    yield letter, None
                else:
                    tally.topics[letter.topic] += 1
                    yield letter, outcome

    def _message_or_reason(self, letter: DeadLetter) -> Message | LeftOut:
        if not self._filter.accepts(letter):
            return LeftOut.FILTERED
        if reason := reason_to_leave_out(letter, self._partition_counts, self._topic_ids):
            return reason
        return self._fetched_message_or_reason(letter) if letter.is_unread else message_of(letter, _origin(letter))

    def _fetched_message_or_reason(self, letter: DeadLetter) -> Message | LeftOut:
        """Return the record of a dead letter without bytes, fetched from its topic, or why it is left out."""
        origin = _origin(letter)
        if self._fetcher is None:
            self._fetcher = self._stack.enter_context(RecordFetcher(self._options))
        try:
            record = self._fetcher.fetch(origin)
        except MessageError:
            return LeftOut.STILL_UNREADABLE
        if record is None:
            return LeftOut.GONE
        return message_of_fetched(letter, origin, record) or LeftOut.NULL


def progress_group(group_id: str) -> str:
    return f"{group_id}.dlq-replay"


def _origin(letter: DeadLetter) -> Position:
    assert letter.origin is not None, "a dead letter of unknown origin is never replayed"
    return letter.origin
