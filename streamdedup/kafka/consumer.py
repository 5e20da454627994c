"""``KafkaSource``: the consumer of the group as a ``kafka.protocols.Source``.

``producer.KafkaTransport`` opens a ``KafkaSource``. Modules of ``daemon`` use it as a ``Source``, in the thread of the
loop; ``AtLeastOnceSink`` commits through it, and ``cli.index`` joins the group with it. Watches over the membership
and the topics are in ``kafka.group``. ``kafka.reader`` uses ``unpack``.
"""

import logging
import threading
import time
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any

import structlog
from kafka import KafkaConsumer
from kafka.consumer.subscription_state import ConsumerRebalanceListener
from kafka.structs import MemberState, TopicPartition

from streamdedup.errors import BrokerUnavailable, FatalError, MembershipEnded, StreamdedupError
from streamdedup.kafka import compat
from streamdedup.kafka.compat import UnreadableRange
from streamdedup.kafka.errors import CLIENT_ERRORS, close_quietly, is_retriable, translated
from streamdedup.kafka.group import FencingWatch, OtherIndexWatch, SilenceWatch, TopicWatch
from streamdedup.kafka.offsets import fetch_committed, offsets_to_commit, partitions_of
from streamdedup.kafka.options import KafkaOptions
from streamdedup.kafka.protocols import Batch, CommittedOffset, Record, SourceStats, Unreadable
from streamdedup.position import Partition, Position
from streamdedup.repeats import RepeatLimit

logger = logging.getLogger(__name__)

#: Longest single wait in ``keep_membership``, in seconds: the longest time for which a new partition stays unpaused.
KEEP_STEP_S = 0.25
#: Longest time that ``poll_ahead`` waits for records, in seconds.
AHEAD_POLL_S = 0.05
#: Pause after a poll that failed with an error that the client calls retriable, in seconds.
RETRY_PAUSE_S = 0.1

#: Time limit of ``request_ends``, in milliseconds: the loop waits for the answer.
ENDS_MS = 1_000

#: Requests for the metadata of the topics before the consumer joins the group.
METADATA_REQUESTS = 3
#: Longest wait of ``FreshPoll``'s second poll, in seconds. A broker that has records answers within a few milliseconds.
SECOND_POLL_S = 0.01
#: ``FreshPoll`` leaves the second poll out if its last result and the present first poll together have fewer records:
#: as a rule the broker then holds no further records, and the wait would delay those of the first poll.
FEW_RECORDS = 4
#: ``FreshPoll`` leaves the second poll out if the first has so many bytes of values. So a batch has at most these bytes
#: and those of one fetch.
ENOUGH_BYTES = 1_048_576

#: Records by partition, as the client returns them. An ``UnreadableRange``, which has the attributes ``offset`` and
#: ``value`` of a record, takes the place of unreadable records.
Polled = Mapping[Any, list[Any]]


class KafkaSource:
    """Batches from a consumer of the group. ``Source`` states what each method owes; docstrings here only say how.

    Rebalances are only counted and logged: Kafka refuses to commit a batch of an earlier generation.
    """

    def __init__(self, consumer: Any, options: KafkaOptions, listener: "RebalanceListener") -> None:
        self._consumer = consumer
        self._options = options
        self._listener = listener
        self._silence = SilenceWatch(consumer, options)
        self._fencing = FencingWatch(consumer, options)
        self._repeats = RepeatLimit(structlog.get_logger(__name__))
        self._fresh = FreshPoll(consumer, self._repeats)
        #: Unreadable ranges of a poll: `_poll` empties the list, then the parser of the client fills it.
        self._unreadable = compat.step_past_unreadable(consumer, options.max_poll_records)
        self._topics = TopicWatch(consumer, options)
        self._other_indexes = OtherIndexWatch(consumer, options)
        #: Partitions whose position belongs to the present topic.
        self._checked_partitions: frozenset[Partition] = frozenset()
        #: Why this source is unusable; None while it is usable.
        self._broken: str | None = None

    @classmethod
    def open(cls, options: KafkaOptions) -> "KafkaSource":
        """Connect and subscribe; partitions arrive during the first polls."""
        consumer = compat.build(KafkaConsumer, options.consumer(), options)
        try:
            listener = RebalanceListener()
            source = cls(consumer, options, listener)
            consumer.subscribe(topics=list(options.topics), listener=listener)
            _await_metadata(consumer, options)
        except BaseException:
            close_quietly("close the consumer", consumer.close, options.close_timeout_s)
            raise
        return source

    def poll(self, timeout_s: float, max_records: int | None = None) -> Batch:
        """Poll; check topics and membership; return an empty batch after a rewind (``_in_present_topics``).

        Raises ``FatalError`` also for a codec that is not installed, and with ``on_unreadable = "halt"`` for an
        unreadable record.
        """
        self._raise_if_broken()
        self._repeats.write_counts()
        fetched = self._poll(timeout_s, max_records)
        try:
            batch = self._in_present_topics(fetched)
        except StreamdedupError:
            self.rewind(fetched)  # the caller gets no batch, and may poll this source again
            raise
        if batch:
            self._silence.reset()
        else:
            self._fencing.check()  # a client without its membership fetches nothing more
            self._silence.check()
        return batch

    def poll_ahead(self, max_records: int) -> Batch:
        return self.poll(AHEAD_POLL_S, max_records)

    def _poll(self, timeout_s: float, max_records: int | None) -> Batch:
        """Return the next records of the client; an empty batch after a retriable error and without membership."""
        # `keep_membership` pauses partitions. They stay paused through a rebalance, and nothing else resumes them.
        if paused := self._consumer.paused():
            self._consumer.resume(*paused)
            compat.drop_parked(self._consumer)  # to fetch them again: the client might never return these records
        configured = self._options.max_poll_records
        limit = configured if max_records is None else min(max_records, configured)
        self._unreadable.clear()
        try:
            polled = self._fresh.poll(timeout_s, limit)
        except Exception as error:  # noqa: BLE001  sorted below
            self._retry_or_break("poll_retried", error, "A poll failed and is repeated", RETRY_PAUSE_S)
            return Batch()
        compat.finish_rebalance(self._consumer)  # the client forgets a rebalance that ends between two polls
        records, unreadable = unpack(polled, self._unreadable)
        if unreadable:
            self._report_or_halt(unreadable)
        return self._under_membership(records, unreadable)

    def _in_present_topics(self, batch: Batch) -> Batch:
        """Check topics and indexes of the group, which may raise; return the batch, or an empty one after a rewind.

        If the committed offset of a new partition belongs to a deleted topic of this name, this partition is read from
        its oldest record, and the others from the start of the batch.
        """
        self._topics.check()
        self._other_indexes.check()
        assigned = self.assigned()
        new_partitions = assigned - self._checked_partitions
        if new_partitions:
            _, outdated = fetch_committed(self._consumer, self._options, self._topics.ids(), sorted(new_partitions))
            if outdated:
                self.rewind(batch)
                self._consumer.seek_to_beginning(*(TopicPartition(*partition) for partition in outdated))
                names = sorted(map(str, outdated))
                event = {"event": "committed_for_earlier_topic", "partitions": names}
                text = "The committed offset belongs to a deleted topic; reading restarts at the oldest record"
                logger.warning(text, extra=event)
                batch = Batch()
        self._checked_partitions = assigned
        return batch

    def rewind(self, batch: Batch) -> None:
        """Seek to the starts of the batch; a rebalance alone moves no position back."""
        self.seek(batch.starts)

    def first_since(self, times_ms: Mapping[Partition, int]) -> dict[Partition, int]:
        """Take the end of a partition without such a record, for which kafka-python 3 returns no offset.

        The ends are asked for first: a record that arrives between the two requests lies at or behind its end.
        """
        times = {TopicPartition(*partition): time_ms for partition, time_ms in times_ms.items()}
        timeout_ms = round(self._options.fetch_timeout_s * 1000)
        try:
            ends = self._consumer.end_offsets(list(times), timeout_ms=timeout_ms)
            firsts = self._consumer.offsets_for_times(times, timeout_ms=timeout_ms)
        except CLIENT_ERRORS as error:
            raise translated(error, "find a time in the topics", self._options.secrets()) from error
        return {
            Partition(*partition): end if (first := firsts.get(partition)) is None else first.offset
            for partition, end in ends.items()
        }

    def seek(self, offsets: Mapping[Partition, int]) -> None:
        assigned = self.assigned()
        for partition, offset in offsets.items():
            if partition in assigned:
                self._consumer.seek(TopicPartition(*partition), offset)

    def keep_membership(self, timeout_s: float) -> None:
        self._raise_if_broken()
        deadline = time.monotonic() + timeout_s
        while True:
            self._consumer.pause(*self._consumer.assignment())  # a rebalance may have assigned further partitions
            remaining_s = deadline - time.monotonic()
            if remaining_s <= 0:
                return
            self._fencing.check()
            self._keep_step(min(remaining_s, KEEP_STEP_S))

    def _keep_step(self, timeout_s: float) -> None:
        """Poll once, which keeps the membership; rewind partitions that were not paused yet."""
        try:
            polled = self._consumer.poll(timeout_ms=round(timeout_s * 1000))
        except Exception as error:  # noqa: BLE001  sorted below
            pause_s = min(timeout_s, RETRY_PAUSE_S)
            self._retry_or_break("hold_poll_failed", error, "A poll failed while waiting", pause_s)
        else:
            compat.finish_rebalance(self._consumer)
            self.seek({Partition(*partition): records[0].offset for partition, records in polled.items() if records})

    def committed_offset(self, partition: Partition) -> CommittedOffset | None:
        return fetch_committed(self._consumer, self._options, self._topics.ids(), [partition])[0].get(partition)

    def committed_offsets(self, *, stable: bool = True) -> dict[Partition, CommittedOffset]:
        missing = self._topics.missing()
        topics = [topic for topic in self._options.topics if topic not in missing]
        partitions = partitions_of(self._consumer, topics)
        return fetch_committed(self._consumer, self._options, self._topics.ids(), partitions, stable=stable)[0]

    def end(self, partition: Partition) -> int | None:
        state = compat.assigned_states(self._consumer).get(TopicPartition(*partition))
        return None if state is None else state.highwater

    def request_ends(self) -> None:
        states, missing = dict(compat.assigned_states(self._consumer)), self._topics.missing()
        partitions = [partition for partition in states if partition.topic not in missing]
        try:
            ends = self._consumer.end_offsets(partitions, timeout_ms=ENDS_MS)
        except (*CLIENT_ERRORS, KeyError) as error:  # KeyError, in kafka-python 3.0.12: a partition without an answer
            raise translated(error, "look up the ends of the topics", self._options.secrets()) from error
        for partition, end in ends.items():
            # Fetches store the end at this place, too. Never lowered: while a transaction is open, the answer is only
            # the last stable offset.
            states[partition].highwater = max(end, states[partition].highwater or 0)

    def confirm(self) -> None:
        self._fencing.confirm()

    def commit(self, batch: Batch) -> None:
        present, at_poll = self._consumer.group_metadata(), batch.membership
        if (present.generation_id, present.member_id) != (at_poll.generation_id, at_poll.member_id):
            # No broker would refuse: the client commits under the present membership, or under none.
            self._broken = "the group moved on while the batch was processed; the new owner processes it again"
            raise MembershipEnded(self._broken)
        timeout_ms = round(self._options.fetch_timeout_s * 1000)
        try:
            self._consumer.commit(offsets_to_commit(batch), timeout_ms=timeout_ms)
        except CLIENT_ERRORS as error:
            self._broken = "a commit failed"
            raise translated(error, "commit offsets", self._options.secrets()) from error

    def assigned(self) -> frozenset[Partition]:
        return frozenset(Partition(*partition) for partition in self._consumer.assignment())

    def partitions(self) -> frozenset[Partition]:
        return frozenset(
            Partition(topic, partition)
            for topic in self._options.topics
            for partition in compat.known_partitions(self._consumer, topic)
        )

    def missing_topics(self) -> frozenset[str]:
        return self._topics.missing()

    def generation(self) -> int | None:
        membership = self._consumer.group_metadata()
        return membership.generation_id if _has_joined(membership) else None

    def stats(self) -> SourceStats:
        states, lags = compat.assigned_states(self._consumer), {}
        for partition in self.assigned():
            state = states.get(TopicPartition(*partition))
            if state is not None and state.position is not None and state.highwater is not None:
                lags[partition] = max(0, state.highwater - state.position.offset)
        return SourceStats(self._listener.rebalances_count, lags)

    def close(self) -> None:
        """Leave the group; takes at most ``close_timeout_s`` and never raises."""
        self._broken = "closed"
        self._repeats.close()
        half_ms = round(self._options.close_timeout_s * 1000 / 2)  # the other half is for closing the connections
        close_quietly(
            "close the consumer",
            lambda: self._consumer.close(autocommit=False, timeout_ms=half_ms),
            self._options.close_timeout_s,
        )

    def _under_membership(self, records: tuple[Record, ...], unreadable: tuple[Unreadable, ...]) -> Batch:
        """Return the batch; without membership, or if a partition was revoked since, rewind and return an empty one."""
        if not records and not unreadable:
            return Batch()
        # Read directly after the poll: once heartbeats have stopped the membership is empty, and a broker accepts a
        # commit with an empty membership from any client, for partitions of other members.
        membership = self._consumer.group_metadata()
        batch = Batch(records, unreadable, membership.generation_id, membership, topic_ids=self._topics.ids())
        if _has_joined(membership) and batch.starts.keys() <= self.assigned():
            return batch
        logger.info("A batch came without membership; it is polled again", extra={"event": "batch_without_membership"})
        self.rewind(batch)
        return Batch()

    def _retry_or_break(self, event: str, error: Exception, message: str, pause_s: float) -> None:
        """Log and wait after a retriable error of a poll; raise any other error, and refuse further polls."""
        if not is_retriable(error):
            self._broken = "a poll failed"  # the client may keep an exhausted fetch, and spin on it in the next poll
            if isinstance(error, (StreamdedupError, MemoryError)):
                raise error  # no error of the client
            raise translated(error, "poll", self._options.secrets()) from error
        self._repeats.info(event, message=message, error=repr(error))
        time.sleep(pause_s)

    def _report_or_halt(self, unreadable: tuple[Unreadable, ...]) -> None:
        """Log the positions of unreadable records; with ``on_unreadable = "halt"`` raise instead."""
        batch = Batch(unreadable=unreadable)
        starts, ends = batch.starts, batch.ends
        if self._options.on_unreadable == "halt":
            reasons = {record.position.topic_partition: record.reason for record in unreadable}
            spans = "; ".join(
                f"{Position(*partition, start)} to {ends[partition] - 1}: {reasons[partition]}"
                for partition, start in starts.items()
            )
            self._broken = "a record is unreadable"
            raise FatalError(
                f'records that the Kafka client cannot parse: {spans}. Set kafka.on_unreadable = "skip" to step past '
                "them, or move the group's offset behind them"
            )
        message = "Stepping past records that the Kafka client cannot parse"
        self._repeats.error("unreadable_skipped", message=message, starts=_by_text(starts), ends=_by_text(ends))

    def _raise_if_broken(self) -> None:
        if self._broken is not None:
            raise BrokerUnavailable(f"this source is unusable ({self._broken}); open a new one")


class FreshPoll:
    """Polls a second time where the first poll returns only records that were fetched earlier.

    The client sends the next fetch while a poll returns, and the broker answers the fetch as soon as it has one record.
    After a batch was processed, the client therefore holds the few records that arrived at first, and the broker holds
    the later ones. The second poll fetches the later ones, so that they are processed one batch earlier.
    """

    def __init__(self, consumer: Any, repeats: RepeatLimit) -> None:
        self._consumer = consumer
        self._repeats = repeats
        self._last_count = 0  # records, and unreadable ranges, in the last result

    def poll(self, timeout_s: float, limit: int) -> Polled:
        """Return at most ``limit`` records, waiting ``timeout_s`` for the first; an error leaves positions alone."""
        # Asked before the poll: a client that holds nothing fetches in the first poll, and needs no second.
        has_fetched = compat.has_fetched(self._consumer)
        polled: Polled = self._consumer.poll(timeout_ms=round(timeout_s * 1000), max_records=limit)
        if has_fetched and self._is_worth_another(polled, limit):
            polled = self._with_newer(polled, limit)
        self._last_count = _count(polled)
        return polled

    def _is_worth_another(self, polled: Polled, limit: int) -> bool:
        count = _count(polled)
        if count >= limit or count + self._last_count < FEW_RECORDS:
            return False
        values = (record.value for records in polled.values() for record in records)
        return sum(len(value) for value in values if value is not None) < ENOUGH_BYTES

    def _with_newer(self, polled: Polled, limit: int) -> Polled:
        """Poll again and return the records of both polls; a rebalance in between may have revoked partitions."""
        states_before = self._states(polled)
        timeout_ms = round(SECOND_POLL_S * 1000)
        try:
            newer: Polled = self._consumer.poll(timeout_ms=timeout_ms, max_records=limit - _count(polled))
        except Exception as error:
            if not is_retriable(error):
                # The caller gets no records, so the first poll is undone.
                for partition, records in self._still_assigned(polled, states_before).items():
                    self._consumer.seek(partition, records[0].offset)
                raise
            self._repeats.info("poll_retried", message="A second poll failed and is left out", error=repr(error))
            newer = {}
        older = self._still_assigned(polled, states_before)
        return {partition: [*older.get(partition, ()), *newer.get(partition, ())] for partition in {**older, **newer}}

    def _states(self, polled: Polled) -> dict[Any, Any]:
        states = compat.assigned_states(self._consumer)
        return {partition: states.get(partition) for partition in polled}

    def _still_assigned(self, polled: Polled, states_before: Mapping[Any, Any]) -> Polled:
        """Return the records whose partitions were not revoked in between.

        Those partitions have the same state object as before: the client makes a new one at each assignment. Records of
        revoked partitions are fetched again, here or by another member.
        """
        states = self._states(polled)
        return {
            partition: records
            for partition, records in polled.items()
            if states_before[partition] is not None and states[partition] is states_before[partition]
        }


class RebalanceListener(ConsumerRebalanceListener):  # type: ignore[misc]  # the client is untyped
    """Counts and logs rebalances, and does nothing else.

    The client calls the methods on its network thread, where a blocking call would stop the heartbeats. An exception
    would be raised by the poll.
    """

    def __init__(self) -> None:
        self.rebalances_count = 0

    def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
        self._rebalanced("partitions_assigned", assigned)

    def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
        self._rebalanced("partitions_revoked", revoked)

    def on_partitions_lost(self, lost: Iterable[Any]) -> None:
        self._rebalanced("partitions_lost", lost)

    def _rebalanced(self, event: str, partitions: Iterable[Any]) -> None:
        self.rebalances_count += 1
        names = sorted(str(Partition(*partition)) for partition in partitions)
        logger.info("The group rebalanced", extra={"event": event, "partitions": names})


def unpack(polled: Polled, ranges: list[UnreadableRange]) -> tuple[tuple[Record, ...], tuple[Unreadable, ...]]:
    """Return the polled records and the unreadable positions; ``ranges`` are the unreadable ranges in ``polled``."""
    unreadable: tuple[Unreadable, ...] = ()
    if ranges:  # rare; otherwise no entry of `polled` is searched. The search keeps the order within a partition.
        unreadable = tuple(
            Unreadable(Position(entry.topic, entry.partition, offset), entry.reason)
            for entry in chain.from_iterable(polled.values())
            if isinstance(entry, UnreadableRange)
            for offset in range(entry.offset, entry.last + 1)
        )
        polled = {
            partition: [record for record in records if not isinstance(record, UnreadableRange)]
            for partition, records in polled.items()
        }
    records = tuple(
        [  # faster than a generator, for each record
            Record(
                Position(record.topic, record.partition, record.offset),
                record.timestamp,
                record.key,
                record.value,
                tuple(record.headers),
            )
            for records in polled.values()
            for record in records
        ]
    )
    return records, unreadable


def _has_joined(membership: Any) -> bool:
    return bool(membership.generation_id >= 0 and membership.state == MemberState.STABLE)


def _count(polled: Polled) -> int:
    return sum(map(len, polled.values()))


def _by_text(offsets: Mapping[Partition, int]) -> dict[str, int]:
    return {str(partition): offset for partition, offset in offsets.items()}


def _await_metadata(consumer: Any, options: KafkaOptions) -> None:
    """Wait until the client knows the topics, for at most ``connect_timeout_s``.

    A consumer that joins without knowing the topics assigns no partition, and joins again as soon as the topics are
    known: one more rebalance for the whole group at each start. The answer to a request that was sent
    before ``subscribe`` also ends a wait, and names no topics; a missing topic is in no answer. Hence several requests.
    """
    ends_at = time.monotonic() + options.connect_timeout_s
    for _ in range(METADATA_REQUESTS):
        done = threading.Event()
        compat.request_metadata(consumer).add_both(lambda _result, done=done: done.set())
        done.wait(max(0.0, ends_at - time.monotonic()))
        if all(compat.known_partitions(consumer, topic) for topic in options.topics):
            return
