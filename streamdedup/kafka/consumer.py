"""``KafkaSource``: the consumer of the group as a ``kafka.protocols.Source``."""

import logging
import threading
import time
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import structlog
from kafka import KafkaConsumer
from kafka.consumer.subscription_state import ConsumerRebalanceListener
from kafka.structs import MemberState, TopicPartition

from streamdedup.errors import BrokerUnavailable, FatalError, MembershipEnded, StreamdedupError
from streamdedup.kafka import compat
from streamdedup.kafka.errors import CLIENT_ERRORS, CLOSE_TIMEOUT_S, close_quietly, is_retriable, translated
from streamdedup.kafka.fresh_poll import FreshPoll
from streamdedup.kafka.offsets import fetch_committed, first_offsets, offsets_to_commit, partitions_of
from streamdedup.kafka.options import KafkaOptions
from streamdedup.kafka.protocols import Batch, CommittedOffset, Record, SourceStats, UnreadableRecord
from streamdedup.kafka.unreadable import guard_parsing, unpack
from streamdedup.kafka.watches import OtherIndexWatch, SilenceWatch, StaticMembershipWatch, TopicWatch
from streamdedup.position import Partition, Position
from streamdedup.repeats import RepeatLimit

logger = logging.getLogger(__name__)

#: Longest poll in ``keep_membership``, in seconds. A partition that is assigned during a poll is paused after it.
KEEP_STEP_S = 0.25
#: Longest time that ``poll_ahead`` waits for records, in seconds.
AHEAD_POLL_S = 0.05
#: Pause after a poll that failed with an error that the client calls retriable, in seconds.
RETRY_PAUSE_S = 0.1
#: Time limit of ``request_ends``, in milliseconds: the loop waits for the answer.
ENDS_MS = 1_000
#: Requests for the metadata of the topics before the consumer joins the group.
METADATA_REQUESTS = 3


class KafkaSource:
    """Batches from a consumer of the group. ``Source`` has the contract of each method; docstrings here say how.

    A rebalance does not interrupt the work on a batch: its transaction carries the membership of the poll, and Kafka
    refuses an earlier one. ``commit``, outside a transaction, compares the memberships itself.
    """

    def __init__(self, consumer: Any, options: KafkaOptions) -> None:
        self._consumer = consumer
        self._options = options
        self.listener = RebalanceListener(consumer)
        self._silence = SilenceWatch(consumer, options)
        self._static_membership = StaticMembershipWatch(consumer, options)
        self._repeats = RepeatLimit(structlog.get_logger(__name__))  # for lines that may repeat; fields are keywords
        self._fresh = FreshPoll(consumer, self._repeats)
        #: Unreadable ranges of a poll: `_fetch` empties the list, then the parser of the client fills it.
        self._unreadable = guard_parsing(consumer, options.max_poll_records)
        self._topics = TopicWatch(consumer, options)
        self._other_indexes = OtherIndexWatch(consumer, options)
        #: The client's state of each partition whose committed offset was compared with the topic id. Each assignment
        #: makes a new state object, so the identity of the object shows what was compared.
        self._checked_states: dict[Any, Any] = {}
        self._unusable_because: str | None = None  # None while this source is usable

    @classmethod
    def open(cls, options: KafkaOptions) -> "KafkaSource":
        """Connect and subscribe; partitions arrive during the first polls."""
        consumer = compat.build(KafkaConsumer, options.consumer(), options)
        try:
            compat.lead_after_return(consumer)  # else a static leader that returns misses new partitions
            source = cls(consumer, options)
            consumer.subscribe(topics=list(options.topics), listener=source.listener)
            _await_metadata(consumer, options)
        except BaseException:
            close_quietly("close the consumer", consumer.close)
            raise
        return source

    def poll(self, timeout_s: float, max_records: int | None = None) -> Batch:
        """Fetch a batch under the present membership, then check topics, other indexes and new partitions.

        A batch that a step finds invalid is rewound; the step raises, or an empty batch is returned. Raises
        ``FatalError`` also for a codec that is not installed, and with ``on_unreadable = "halt"`` for an unreadable
        record.
        """
        self._raise_if_unusable()
        self._repeats.write_counts()
        fetched = self._fetch(timeout_s, max_records)
        try:
            self._topics.check()
            self._other_indexes.check()
            batch = self._compare_new_partitions(fetched)
        except StreamdedupError:
            self.rewind(fetched)  # the caller gets no batch, and may poll this source again
            raise
        if batch:
            self._silence.reset()
        else:
            self._static_membership.check()  # a client without its membership fetches nothing more
            self._silence.check()
        return batch

    def poll_ahead(self, max_records: int) -> Batch:
        return self.poll(AHEAD_POLL_S, max_records)

    def _fetch(self, timeout_s: float, max_records: int | None) -> Batch:
        """Return the next records of the client; an empty batch after a retriable error, or without membership."""
        # `keep_membership` has paused these. They stay paused through a rebalance, and only this resumes them.
        if paused := self._consumer.paused():
            self._consumer.resume(*paused)
            compat.drop_parked(self._consumer)  # records from before the pause, which the client might never return
        configured = self._options.max_poll_records
        limit = configured if max_records is None else min(max_records, configured)
        self._unreadable.clear()
        compat.keep_join_answer(self._consumer)  # else the client joins again
        try:
            polled = self._fresh.poll(timeout_s, limit)
        except Exception as error:  # noqa: BLE001  sorted below
            self._pause_or_raise("poll_retried", error, message="A poll failed and is repeated", pause_s=RETRY_PAUSE_S)
            return Batch()
        compat.finish_rebalance(self._consumer)  # if the client has forgotten one
        records, unreadable = unpack(polled, has_unreadable=bool(self._unreadable))
        if unreadable:
            self._report_or_halt(unreadable)
        return self._under_membership(records, unreadable)

    def _pause_or_raise(self, event: str, error: Exception, *, message: str, pause_s: float) -> None:
        """Log and wait after a retriable error of a poll; raise any other error, and refuse further polls."""
        if is_retriable(error):
            self._repeats.info(event, message=message, error=repr(error))
            time.sleep(pause_s)
            return
        # The client may keep an exhausted fetch, and spin on it in the next poll.
        self._unusable_because = "a poll failed"
        if isinstance(error, (StreamdedupError, MemoryError)):  # not from the client
            raise error
        raise translated(error, "poll", self._options) from error

    def _report_or_halt(self, unreadable: tuple[UnreadableRecord, ...]) -> None:
        """Log the positions of unreadable records; with ``on_unreadable = "halt"`` raise instead."""
        only_unreadable = Batch(unreadable=unreadable)
        starts, next_offsets = only_unreadable.starts, only_unreadable.next_offsets
        if self._options.on_unreadable == "halt":
            # Of each partition the first start, the last end and the last reason.
            reasons = {record.position.topic_partition: record.reason for record in unreadable}
            texts = "; ".join(
                f"{Position(*partition, start)} to {next_offsets[partition] - 1}: {reasons[partition]}"
                for partition, start in starts.items()
            )
            self._unusable_because = "a record is unreadable"
            raise FatalError(
                f'records that the Kafka client cannot parse: {texts}. Set kafka.on_unreadable = "skip" to step past '
                "them, or move the group's offset behind them"
            )
        message = "Stepping past records that the Kafka client cannot parse"
        self._repeats.error("unreadable_skipped", message=message, starts=_by_text(starts), ends=_by_text(next_offsets))

    def _under_membership(self, records: tuple[Record, ...], unreadable: tuple[UnreadableRecord, ...]) -> Batch:
        """Return a batch; without membership, or if a partition was revoked since, rewind and return an empty one."""
        if not records and not unreadable:
            return Batch()
        # Read directly after the poll: heartbeats may end the membership at any time. Then `group_metadata` returns an
        # empty one, with which a broker accepts commits from any client, even for partitions of other members.
        membership = self._consumer.group_metadata()
        batch = Batch(records, unreadable, membership.generation_id, membership, topic_ids=self._topics.ids())
        if _has_joined(membership) and batch.starts.keys() <= self.assigned():
            return batch
        text = "A batch came without membership or from a revoked partition; it is polled again"
        logger.info(text, extra={"event": "batch_without_membership"})
        self.rewind(batch)
        return Batch()

    def _compare_new_partitions(self, batch: Batch) -> Batch:
        """Return the batch; an empty one if the committed offset of a new partition belongs to a deleted topic.

        Then this partition is read from its oldest record, and the others from the start of the batch.
        """
        states = dict(compat.assigned_states(self._consumer))
        # A partition that has left and returned has another state, also if no poll has returned in between.
        unchecked = [Partition(*key) for key, state in states.items() if self._checked_states.get(key) is not state]
        if unchecked:
            outdated = fetch_committed(self._consumer, self._options, self._topics.ids(), unchecked).outdated
            if outdated:
                self.rewind(batch)
                self._consumer.seek_to_beginning(*(TopicPartition(*partition) for partition in outdated))
                event = {"event": "committed_for_earlier_topic", "partitions": sorted(map(str, outdated))}
                text = "The committed offset belongs to a deleted topic; reading restarts at the oldest record"
                logger.warning(text, extra=event)
                batch = Batch()
        self._checked_states = states
        return batch

    def _raise_if_unusable(self) -> None:
        if self._unusable_because is not None:
            raise BrokerUnavailable(f"this source is unusable ({self._unusable_because}); open a new one")

    def rewind(self, batch: Batch) -> None:
        """Seek to the starts of the batch. In a later rebalance a partition that stays assigned keeps this position."""
        self.seek(batch.starts)

    def first_since(self, times_ms: Mapping[Partition, int]) -> dict[Partition, int]:
        partitions = [TopicPartition(*partition) for partition in times_ms]
        timeout_ms = round(self._options.fetch_timeout_s * 1000)
        try:
            # The ends first: a record that arrives between the two requests lies at or behind its end.
            ends = self._consumer.end_offsets(partitions, timeout_ms=timeout_ms)
            # A `TopicPartition`, as in `ends`, equals the `Partition`: both are named tuples.
            return first_offsets(self._consumer, times_ms, ends, timeout_ms)
        except CLIENT_ERRORS as error:
            raise translated(error, "find a time in the topics", self._options) from error

    def seek(self, offsets: Mapping[Partition, int]) -> None:
        assigned = self.assigned()
        for partition, offset in offsets.items():
            if partition in assigned:
                self._consumer.seek(TopicPartition(*partition), offset)

    def keep_membership(self, timeout_s: float) -> None:
        self._raise_if_unusable()
        deadline = time.monotonic() + timeout_s
        while True:
            self._consumer.pause(*self._consumer.assignment())  # a rebalance may have assigned further partitions
            remaining_s = deadline - time.monotonic()
            if remaining_s <= 0:
                return
            self._static_membership.check()
            self._keep_step(min(remaining_s, KEEP_STEP_S))

    def _keep_step(self, timeout_s: float) -> None:
        """Poll once to keep the membership; rewind partitions that returned records, assigned during the poll."""
        compat.keep_join_answer(self._consumer)
        try:
            polled = self._consumer.poll(timeout_ms=round(timeout_s * 1000))
        except Exception as error:  # noqa: BLE001  sorted below
            pause_s = min(timeout_s, RETRY_PAUSE_S)
            self._pause_or_raise("hold_poll_failed", error, message="A poll failed while waiting", pause_s=pause_s)
        else:
            compat.finish_rebalance(self._consumer)
            # The first entry may be an `UnreadableRange`, which has an offset, too.
            self.seek({Partition(*partition): records[0].offset for partition, records in polled.items() if records})

    def committed_offset(self, partition: Partition) -> CommittedOffset | None:
        return fetch_committed(self._consumer, self._options, self._topics.ids(), [partition]).present.get(partition)

    def committed_offsets(self, *, stable: bool = True) -> dict[Partition, CommittedOffset]:
        missing = self._topics.missing()
        topics = [topic for topic in self._options.topics if topic not in missing]
        partitions = partitions_of(self._consumer, topics)
        return fetch_committed(self._consumer, self._options, self._topics.ids(), partitions, stable=stable).present

    def end(self, partition: Partition) -> int | None:
        state = compat.assigned_states(self._consumer).get(TopicPartition(*partition))
        return None if state is None else state.highwater

    def request_ends(self) -> None:
        states = dict(compat.assigned_states(self._consumer))
        missing = self._topics.missing()
        partitions = [partition for partition in states if partition.topic not in missing]
        try:
            ends = self._consumer.end_offsets(partitions, timeout_ms=ENDS_MS)
        except CLIENT_ERRORS as error:
            raise translated(error, "look up the ends of the topics", self._options) from error
        for partition, end in ends.items():
            # Fetches write it, too. Never lowered: in an open transaction the answer is only the last stable offset.
            states[partition].highwater = max(end, states[partition].highwater or 0)

    def confirm(self) -> None:
        self._static_membership.confirm()

    def commit(self, batch: Batch) -> None:
        present, at_poll = self._consumer.group_metadata(), batch.membership
        if (present.generation_id, present.member_id) != (at_poll.generation_id, at_poll.member_id):
            # No broker would refuse: the client commits under the present membership, or under none.
            reason = "the group moved on while the batch was processed; the new owner processes it again"
            self._unusable_because = reason
            raise MembershipEnded(reason)
        timeout_ms = round(self._options.fetch_timeout_s * 1000)
        try:
            self._consumer.commit(offsets_to_commit(batch), timeout_ms=timeout_ms)
        except CLIENT_ERRORS as error:
            self._unusable_because = "a commit failed"
            raise translated(error, "commit offsets", self._options) from error

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
        lags = {}
        for partition, state in dict(compat.assigned_states(self._consumer)).items():
            if state.position is not None and state.highwater is not None:
                lags[Partition(*partition)] = max(0, state.highwater - state.position.offset)
        return SourceStats(self.listener.rebalances_count, lags)

    def close(self) -> None:
        self._unusable_because = "closed"
        self._repeats.close()
        half_ms = round(CLOSE_TIMEOUT_S * 1000 / 2)  # the other half is for closing the connections
        close = partial(self._consumer.close, autocommit=False, timeout_ms=half_ms)
        close_quietly("close the consumer", close)


class RebalanceListener(ConsumerRebalanceListener):  # type: ignore[misc]  # the client is untyped
    """Counts and logs rebalances; drops requested offsets from before them, and after a loss the owned partitions.

    Called on the client's network thread, where a blocking call would stop the heartbeats, before offsets are fetched.
    An exception would be raised by the poll.
    """

    def __init__(self, consumer: Any) -> None:
        self.rebalances_count = 0
        self._consumer = consumer

    def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
        self._rebalanced("partitions_assigned", assigned)

    def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
        self._rebalanced("partitions_revoked", revoked)

    def on_partitions_lost(self, lost: Iterable[Any]) -> None:
        compat.forget_owned_partitions(self._consumer)  # else the next join names them as owned
        self._rebalanced("partitions_lost", lost)

    def _rebalanced(self, event: str, partitions: Iterable[Any]) -> None:
        compat.drop_offset_answers(self._consumer)  # other members may have committed since
        self.rebalances_count += 1
        names = sorted(str(Partition(*partition)) for partition in partitions)
        logger.info("The group rebalanced", extra={"event": event, "partitions": names})


def _has_joined(membership: Any) -> bool:
    return bool(membership.generation_id >= 0 and membership.state == MemberState.STABLE)


def _by_text(offsets: Mapping[Partition, int]) -> dict[str, int]:
    return {str(partition): offset for partition, offset in offsets.items()}


def _await_metadata(consumer: Any, options: KafkaOptions) -> None:
    """Wait until the client knows the topics, for at most ``connect_timeout_s``.

    A consumer that joins without knowing the topics joins again as soon as they are known: one more rebalance for the
    whole group at each start. The first answer may belong to a request from before ``subscribe``, which names no
    topics, so several requests are made; but not endlessly, because a missing topic is in no answer.
    """
    deadline = time.monotonic() + options.connect_timeout_s
    for _ in range(METADATA_REQUESTS):
        done = threading.Event()
        # The default binds the event of this round: a late answer sets the event of its own round.
        compat.request_metadata(consumer).add_both(lambda _result, done=done: done.set())
        done.wait(max(0.0, deadline - time.monotonic()))
        if all(compat.known_partitions(consumer, topic) for topic in options.topics):
            return
