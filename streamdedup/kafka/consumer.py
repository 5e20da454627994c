"""The consumer as a Source."""

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Any, Never

import structlog
from kafka import KafkaConsumer
from kafka.consumer.subscription_state import ConsumerRebalanceListener
from kafka.structs import MemberState, TopicPartition

from streamdedup.errors import BrokerUnavailable, FatalError, StreamdedupError
from streamdedup.kafka.client import build, close_quietly
from streamdedup.kafka.errors import CLIENT_ERRORS, translated
from streamdedup.kafka.fencing import FencingWatch
from streamdedup.kafka.fresh_poll import FreshPoll, forget_fetched, is_retriable
from streamdedup.kafka.groups import fetch_committed
from streamdedup.kafka.incarnations import TopicIds
from streamdedup.kafka.options import KafkaOptions
from streamdedup.kafka.protocols import Batch, Bookmark, Record, SourceStats, Unreadable
from streamdedup.kafka.records import named, offsets_of, places, records_of, unreadable_of
from streamdedup.kafka.repeats import RepeatLimit
from streamdedup.kafka.silence import SilenceWatch
from streamdedup.kafka.unreadable import UnreadableRange, find_unreadable, may_be_unreadable
from streamdedup.position import Partition

logger = logging.getLogger(__name__)

#: Longest single wait inside ``hold``, in seconds: how long a newly arrived partition may stay unpaused.
HOLD_STEP_S = 0.25

#: Pause after a poll that failed with an error that the client calls retriable, in seconds.
RETRY_PAUSE_S = 0.1


class KafkaSource:
    """Batches from a consumer of the group.

    A rebalance needs no more than a note: a batch of an earlier generation is rewound by the loop, or Kafka refuses to
    commit it.
    """

    def __init__(self, consumer: Any, options: KafkaOptions, listener: "RebalanceNotes") -> None:
        self._consumer = consumer
        self._options = options
        self._notes = listener
        self._silence = SilenceWatch(consumer, options)
        self._fencing = FencingWatch(consumer, options)
        self._repeats = RepeatLimit(structlog.get_logger(__name__))
        self._fresh = FreshPoll(consumer, self._repeats)
        self._topic_ids = TopicIds(consumer, options.topics)
        #: Partitions that begin at a place of their present topic.
        self._placed: frozenset[Partition] = frozenset()
        self._broken: str | None = None
        self._closed = False

    @classmethod
    def open(cls, options: KafkaOptions) -> "KafkaSource":
        """Connect and subscribe; partitions arrive during the first polls.

        Raises:
            BrokerUnavailable: Nothing answers.
            FatalError: The broker refuses us for good.
        """
        consumer = build(KafkaConsumer, options.consumer(), options)
        notes = RebalanceNotes()
        consumer.subscribe(topics=list(options.topics), listener=notes)
        _await_metadata(consumer, options)
        return cls(consumer, options, notes)

    def poll(self, timeout_s: float, most: int | None = None) -> Batch:
        """Return the next records; see ``Source.poll``.

        Raises:
            BrokerSilent: Kafka has stopped answering; poll again.
            BrokerUnavailable: This source is unusable; close it and open a new one.
            Rejoin: A topic was deleted and created again; close this source and open a new one.
            FatalError: The broker refuses us, the library of a codec is not installed, or a record is unreadable and
                ``on_unreadable`` is ``halt``.
        """
        self._refuse_if_broken()
        self._repeats.look()
        polled = self._poll(timeout_s, most)
        try:
            batch = self._in_present_topics(polled)
        except StreamdedupError:
            self.rewind(polled)  # the caller gets no batch, and may poll this source again
            raise
        if batch:
            self._silence.heard()
        else:
            self._fencing.look()
            self._silence.look()
        return batch

    def poll_ahead(self, timeout_s: float, most: int) -> Batch:
        """Poll while the last batch is not committed yet; see ``Source.poll_ahead``.

        Raises:
            StreamdedupError: As ``poll``.
        """
        return self.poll(timeout_s, most)

    def _poll(self, timeout_s: float, most: int | None) -> Batch:
        """The next records, or nothing."""
        # A partition keeps its pause through a rebalance, so whatever was held is released here and nowhere else.
        self._consumer.resume(*self._consumer.paused())
        limit = self._options.max_poll_records
        limit = limit if most is None else min(most, limit)
        try:
            polled = self._fresh.poll(timeout_s, limit)
        except Exception as error:  # noqa: BLE001  a parser may raise anything
            return self._after_failed_poll(error)
        self._rejoin_if_left_hanging()
        return self._under_membership(records=tuple(records_of(polled)))

    def _in_present_topics(self, batch: Batch) -> Batch:
        """Return the batch; or nothing when a partition was read from a place of an earlier topic, and go back to 0."""
        self._topic_ids.look()
        assigned = self.assigned()
        arrived = assigned - self._placed
        if arrived:
            _, earlier = fetch_committed(self._consumer, self._options, self._topic_ids.known(), sorted(arrived))
            if earlier:
                self.rewind(batch)
                self._consumer.seek_to_beginning(*(TopicPartition(*partition) for partition in earlier))
                named_ones = sorted(map(str, earlier))
                event = {"event": "committed_for_earlier_topic", "partitions": named_ones}
                logger.warning("What is committed belongs to a topic since deleted; reading begins anew", extra=event)
                batch = Batch()
        self._placed = assigned
        return batch

    def rewind(self, batch: Batch) -> None:
        """Make the next poll start again at ``batch``."""
        # A rebalance moves no position by itself, in any mode: what was polled and not committed comes again only if we
        # seek back to it.
        self._seek(batch.starts())

    def hold(self, timeout_s: float) -> None:
        """Keep the membership and fetch nothing; see ``Source.hold``.

        Raises:
            BrokerUnavailable: This source is unusable; close it and open a new one.
            FatalError: The broker refuses us for good.
        """
        self._refuse_if_broken()
        deadline = time.monotonic() + timeout_s
        while True:
            self._consumer.pause(*self._consumer.assignment())
            remaining_s = deadline - time.monotonic()
            if remaining_s <= 0:
                return
            self._fencing.look()
            self._hold_step(min(remaining_s, HOLD_STEP_S))

    def committed(self, partition: Partition) -> Bookmark | None:
        """Return what the group has committed, or None; see ``Source.committed``."""
        return fetch_committed(self._consumer, self._options, self._topic_ids.known(), [partition])[0].get(partition)

    def all_committed(self) -> dict[Partition, Bookmark]:
        """Return what the group has committed, for every partition of its topics."""
        return fetch_committed(self._consumer, self._options, self._topic_ids.known())[0]

    def end(self, partition: Partition) -> int | None:
        """Return the offset behind the last record of a partition as last heard; see ``Source.end``."""
        end: int | None = self._of_assigned(partition, lambda state: state.highwater)
        return end

    def confirm(self) -> None:
        """See ``Source.confirm``."""
        self._fencing.confirm()

    def commit(self, batch: Batch) -> None:
        """Commit ``batch`` outside any transaction.

        Raises:
            BrokerUnavailable: Outcome unknown, or the membership has changed.
            FatalError: The broker refuses us for good.
        """
        now = self._consumer.group_metadata()
        if (now.generation_id, now.member_id) != (batch.membership.generation_id, batch.membership.member_id):
            # The client would commit under the present membership, or under none, which no broker refuses.
            self._break("the group moved on while the batch was processed; it is left to the partitions' new owner")
        timeout_ms = round(self._options.fetch_timeout_s * 1000)
        try:
            self._consumer.commit(offsets_of(batch), timeout_ms=timeout_ms)
        except CLIENT_ERRORS as error:
            self._broken = "a commit failed"
            raise translated(error, "commit offsets", self._options.secrets()) from error

    def assigned(self) -> frozenset[Partition]:
        """Return the partitions that are ours at this moment."""
        return frozenset(Partition(*partition) for partition in self._consumer.assignment())

    def partitions(self) -> frozenset[Partition]:
        """Return all partitions of the topics; see ``Source.partitions``."""
        # The public method may ask the broker, and wait.
        cluster, known = self._consumer._cluster, set()  # noqa: SLF001  see above
        for topic in self._options.topics:
            # A topic may go between two looks of the client's, whose own thread keeps the map.
            with contextlib.suppress(KeyError):
                known |= {Partition(topic, number) for number in cluster.partitions_for_topic(topic) or ()}
        return frozenset(known)

    def generation(self) -> int | None:
        """Return the generation of the group, or None while we are no member."""
        return now.generation_id if _has_joined(now := self._consumer.group_metadata()) else None

    def stats(self) -> SourceStats:
        """Return counters and lags; no request is sent."""
        positions = self._positions()
        lags: dict[Partition, int] = {}
        for partition, position in positions.items():
            end = self._of_assigned(partition, lambda state: state.highwater)
            if end is not None:
                lags[partition] = max(0, end - position)
        return SourceStats(self._notes.rebalances_count, lags)

    def close(self) -> None:
        """Leave the group; takes at most ``close_timeout_s`` and never raises."""
        if self._closed:
            return
        self._closed = True
        self._broken = "closed"
        self._repeats.close()
        half_ms = round(self._options.close_timeout_s * 500)  # the other half is for closing the connections
        close_quietly(
            "close the consumer",
            lambda: self._consumer.close(autocommit=False, timeout_ms=half_ms),
            self._options.close_timeout_s,
        )

    def _under_membership(self, records: tuple[Record, ...] = (), unreadable: tuple[Unreadable, ...] = ()) -> Batch:
        """The batch, if we are members of the group; else nothing, and the next poll starts again at the same place."""
        if not records and not unreadable:
            return Batch()
        # Taken now: after the heartbeats have stopped it is empty, and a broker accepts a commit without membership
        # from anyone, for partitions that are no longer ours.
        membership = self._consumer.group_metadata()
        batch = Batch(records, unreadable, membership.generation_id, membership, topic_ids=self._topic_ids.known())
        if _has_joined(membership) and batch.starts().keys() <= self.assigned():
            return batch
        logger.info("A batch came without membership; it is polled again", extra={"event": "batch_without_membership"})
        self.rewind(batch)
        return Batch()

    def _hold_step(self, timeout_s: float) -> None:
        """Poll once; what arrives from partitions that were not yet paused goes back."""
        try:
            polled = self._consumer.poll(timeout_ms=round(timeout_s * 1000))
        except Exception as error:
            forget_fetched(self._consumer)
            if not may_be_unreadable(error) and not is_retriable(error):
                self._broken = "a poll failed"
                raise translated(error, "poll", self._options.secrets()) from error
            # Left to the next poll, which meets it again and steps past it.
            self._repeats.info("hold_poll_failed", message="A poll failed while holding", error=repr(error))
            time.sleep(min(timeout_s, RETRY_PAUSE_S))
        else:
            self._rejoin_if_left_hanging()
            self._seek({Partition(*partition): records[0].offset for partition, records in polled.items() if records})

    def _after_failed_poll(self, error: Exception) -> Batch:
        """An empty batch, the records to step past, or an exception."""
        if is_retriable(error):
            self._repeats.info("poll_retried", message="A poll failed and is repeated", error=repr(error))
            time.sleep(RETRY_PAUSE_S)
            return Batch()
        if may_be_unreadable(error):
            return self._step_past_unreadable(error)
        # The client keeps the half-parsed fetch, and the next poll of the same consumer would spin on it for ever,
        # whatever its timeout.
        self._broken = "a poll failed"
        raise translated(error, "poll", self._options.secrets()) from error

    def _step_past_unreadable(self, error: Exception) -> Batch:
        """The unreadable records as a batch, at most ``max_poll_records`` of them; the position lies behind them."""
        forget_fetched(self._consumer)
        try:
            found = find_unreadable(self._options, self._positions())
        except CLIENT_ERRORS as failure:
            self._broken = "a poll failed"
            raise translated(failure, "look for the unreadable record", self._options.secrets()) from failure
        if not found:
            self._break(f"a poll failed, but every partition can be read: {error!r}", error)
        if self._options.on_unreadable == "halt":
            self._halt(found)
        unreadable = tuple(islice(unreadable_of(found), self._options.max_poll_records))
        batch = Batch(unreadable=unreadable)
        message = "Stepping past records that the Kafka client cannot parse"
        starts, ends = named(batch.starts()), named(batch.ends())
        self._repeats.error("unreadable_skipped", message=message, starts=starts, ends=ends)
        self._seek(batch.ends())
        return self._under_membership(unreadable=unreadable)

    def _halt(self, found: Mapping[Partition, UnreadableRange]) -> Never:
        """Stop, and say where."""
        self._broken = "a record is unreadable"
        where = "; ".join(f"{place} to {range_.last}: {range_.reason}" for place, range_ in places(found))
        raise FatalError(
            f"records that the Kafka client cannot parse: {where}. Set on_unreadable to skip to step past them, or "
            f"move the group's offset behind them"
        )

    def _rejoin_if_left_hanging(self) -> None:
        """Finish a rebalance that the client has forgotten.

        When the group's leader joins again because a topic has new partitions, or was unknown at first, and the poll
        ends between joining and hearing of it, the client takes itself for joined: it never polls the answer, sends no
        heartbeats and fetches nothing, for ever.
        """
        coordinator = self._consumer._coordinator  # noqa: SLF001  no public method tells or cures it
        if coordinator.state == MemberState.REBALANCING and not coordinator.need_rejoin():
            logger.info("Joining the group once more", extra={"event": "rejoin"})
            coordinator.request_rejoin()

    def _positions(self) -> dict[Partition, int]:
        """Next offset to read of each partition that has one; no request is sent."""
        positions: dict[Partition, int] = {}
        for partition in self.assigned():
            position = self._of_assigned(partition, lambda state: state.position)
            if position is not None:
                positions[partition] = position.offset
        return positions

    def _of_assigned(self, partition: Partition, read: Callable[[Any], Any]) -> Any:
        """What ``read`` finds in the client's state of ``partition``, or None when it is not ours (any more)."""
        # The public position() may ask the broker, and wait.
        state = self._consumer._subscription.assignment.get(TopicPartition(*partition))  # noqa: SLF001  see above
        return None if state is None else read(state)

    def _seek(self, offsets: Mapping[Partition, int]) -> None:
        """Set the next offset of those partitions that are ours."""
        ours = self.assigned()
        for partition, offset in offsets.items():
            if partition in ours:
                self._consumer.seek(TopicPartition(*partition), offset)

    def _refuse_if_broken(self) -> None:
        """Never poll again what may spin."""
        if self._broken is not None:
            raise BrokerUnavailable(f"this source is unusable ({self._broken}); open a new one")

    def _break(self, text: str, cause: Exception | None = None) -> Never:
        """Give this source up."""
        self._broken = text
        raise BrokerUnavailable(text) from cause


def _has_joined(membership: Any) -> bool:
    return bool(membership.generation_id >= 0 and membership.state == MemberState.STABLE)


class RebalanceNotes(ConsumerRebalanceListener):  # type: ignore[misc]  # the client is untyped
    """Counts rebalances and nothing else.

    It is called on the client's network thread, where a blocking call would stop the heartbeats, and an exception would
    surface from poll.
    """

    def __init__(self) -> None:
        self.rebalances_count = 0

    def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
        """Note partitions that came."""
        self._note("partitions_assigned", assigned)

    def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
        """Note partitions that went."""
        self._note("partitions_revoked", revoked)

    def on_partitions_lost(self, lost: Iterable[Any]) -> None:
        """Note partitions that somebody else may own already."""
        self._note("partitions_lost", lost)

    def _note(self, event: str, partitions: Iterable[Any]) -> None:
        self.rebalances_count += 1
        names = sorted(str(Partition(*partition)) for partition in partitions)
        logger.info("The group rebalanced", extra={"event": event, "partitions": names})


def _await_metadata(consumer: Any, options: KafkaOptions) -> None:
    """Wait until the client knows the topics, or has tried for ``connect_timeout_s``.

    Joining before, it assigns no partition and joins a second time as soon as it knows: a rebalance more for the whole
    group at each start.
    """
    tried = threading.Event()
    metadata = consumer._client.cluster.request_update()  # noqa: SLF001  the public methods ask about every topic
    metadata.add_both(lambda _result: tried.set())
    tried.wait(options.connect_timeout_s)
