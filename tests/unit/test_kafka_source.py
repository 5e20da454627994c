"""The source over a consumer without a broker: offsets of deleted topics, and partitions that were taken away."""

from dataclasses import replace
from types import SimpleNamespace
from uuid import UUID

import pytest
from kafka.errors import KafkaTimeoutError, NodeNotReadyError, TopicAuthorizationFailedError
from kafka.future import Future
from kafka.protocol.consumer import IsolationLevel
from kafka.structs import (
    ConsumerGroupMetadata,
    MemberState,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    TopicPartition,
)
from structlog.testing import capture_logs

from streamdedup.errors import (
    BrokerMisconfigured,
    BrokerUnavailable,
    CodecMissing,
    FatalError,
    MembershipEnded,
    Rejoin,
)
from streamdedup.kafka import consumer as source_module
from streamdedup.kafka import watches
from streamdedup.kafka.consumer import KEEP_STEP_S, RETRY_PAUSE_S, KafkaSource, RebalanceListener
from streamdedup.kafka.offsets import fetch_committed, offsets_to_commit
from streamdedup.kafka.options import KafkaOptions
from streamdedup.kafka.protocols import Batch, CommittedOffset, Record
from streamdedup.kafka.unreadable import UnreadableRange
from streamdedup.position import Partition, Position
from tests.support.clock import ManualClock

OPTIONS = KafkaOptions(
    bootstrap_servers="h:1", group_id="g", topics=("deleted", "healthy"), transactional_id="x", create_command="create"
)
DELETED, HEALTHY = TopicPartition("deleted", 0), TopicPartition("healthy", 0)
#: Error codes of Kafka: no error, a topic that does not exist, no right to the topic.
NO_ERROR, UNKNOWN_TOPIC, REFUSED = 0, 3, 29
#: Topic ids: of the deleted topic before and now, and of the other topic.
BEFORE, PRESENT, OTHER = (UUID(int=number) for number in (1, 2, 3))


class Coordinator:
    """A group coordinator that records how it is asked for offsets."""

    def __init__(self) -> None:
        self._isolation_level = IsolationLevel.READ_COMMITTED
        self._offset_fetch_futures = {"the same partitions": "waits for a transaction"}
        self.asked = []

    def fetch_committed_offsets(self, _partitions, timeout_ms):
        self.asked.append((self._isolation_level, len(self._offset_fetch_futures), timeout_ms))
        return {}


class GroupConsumer:
    """A member of a group that owns two partitions; a topic is a list of offsets.

    Attributes:
        member_id, generation_id: Membership that the group has given to the member.
        owned: Assigned partitions; as in the client, each has a state for as long as it stays assigned.
        offsets: Next offset of each partition.
        committed: Committed offsets, with their metadata.
    """

    def __init__(self) -> None:
        self.member_id, self.generation_id = "member", 3
        self._subscription = SimpleNamespace(assignment={})
        self.owned = {DELETED, HEALTHY}
        self.offsets = {DELETED: 7, HEALTHY: 40}
        self.committed_offsets = {
            DELETED: OffsetAndMetadata(7, f"attempt 0 {BEFORE}", -1),
            HEALTHY: OffsetAndMetadata(40, f"attempt 3 {OTHER}", -1),
        }
        self.revoked_by_poll: set[TopicPartition] = set()
        self._fetcher = SimpleNamespace(
            _completed_fetches=[],
            _next_partition_records=None,
            _paused_partition_records={},
            fetched_records=None,
            _parse_fetched_data=None,
        )
        self.paused_partitions: set[TopicPartition] = set()
        self._cluster = SimpleNamespace(update_metadata=lambda _metadata: None)
        self._coordinator = SimpleNamespace(
            state=MemberState.STABLE,
            heartbeat=SimpleNamespace(last_receive=float("inf"), last_reset=0.0),
            fetch_committed_offsets=self._fetch_committed_offsets,
            _offset_fetch_futures={},
            _join_task=None,
            _process_join_group_response=None,
            _assignors={},
        )

    @property
    def owned(self):
        return set(self._subscription.assignment)

    @owned.setter
    def owned(self, partitions):
        states = self._subscription.assignment
        self._subscription.assignment = {each: states.get(each) or SimpleNamespace() for each in partitions}

    def _fetch_committed_offsets(self, partitions, timeout_ms):
        return {
            partition: self.committed_offsets[partition]
            for partition in partitions
            if partition in self.committed_offsets
        }

    def poll(self, timeout_ms, max_records):
        polled = {partition: [a_record(partition, offset)] for partition, offset in self.offsets.items()}
        self.offsets = {partition: offset + 1 for partition, offset in self.offsets.items()}
        self.owned -= self.revoked_by_poll
        return polled

    def seek(self, partition, offset):
        if partition not in self.owned:
            raise ValueError("Unassigned partition")  # as the client does
        self.offsets[partition] = offset

    def seek_to_beginning(self, *partitions):
        self.offsets |= dict.fromkeys(partitions, 0)

    def assignment(self):
        return self.owned

    def paused(self):
        return set(self.paused_partitions)

    def pause(self, *partitions):
        self.paused_partitions |= set(partitions)

    def resume(self, *partitions):
        self.paused_partitions -= set(partitions)

    def group_metadata(self):
        return ConsumerGroupMetadata("g", self.generation_id, self.member_id, None, self._coordinator.state)


def a_record(partition, offset):
    return SimpleNamespace(**partition._asdict(), offset=offset, timestamp=0, key=None, value=b"v", headers=[])


@pytest.fixture
def consumer():
    return GroupConsumer()


def metadata_of(**topics):
    """Return an answer of Kafka: the id of each topic, or None where Kafka has no such topic."""
    described = [
        SimpleNamespace(name=name, topic_id=topic_id or UUID(int=0), error_code=NO_ERROR if topic_id else UNKNOWN_TOPIC)
        for name, topic_id in topics.items()
    ]
    return SimpleNamespace(brokers=["broker"], topics=described)


@pytest.fixture
def source(consumer):
    source = KafkaSource(consumer, OPTIONS)
    consumer._cluster.update_metadata(metadata_of(deleted=PRESENT, healthy=OTHER))
    return source


def test_beside_a_topic_that_was_created_again_no_record_of_a_healthy_topic_is_skipped(source, caplog):
    assert not source.poll(0.0)
    assert caplog.messages == ["The committed offset belongs to a deleted topic; reading restarts at the oldest record"]
    assert source.committed_offset(Partition("deleted", 0)) is None
    assert source.poll(0.0).starts == {Partition("deleted", 0): 0, Partition("healthy", 0): 40}
    assert source.poll(0.0).starts == {Partition("deleted", 0): 1, Partition("healthy", 0): 41}


def test_a_poll_ahead_waits_for_fifty_milliseconds_and_returns_at_most_the_records_that_memory_may_hold(
    source, consumer, monkeypatch
):
    calls = []
    monkeypatch.setattr(consumer, "poll", lambda **how: calls.append(how) or {})
    assert not source.poll_ahead(2)
    assert calls == [{"timeout_ms": 50, "max_records": 2}]


def test_a_partition_that_left_and_returned_is_not_read_from_an_offset_committed_for_the_deleted_topic(
    source, consumer, monkeypatch
):
    source.poll(0.0)
    for owned in ({HEALTHY}, {DELETED, HEALTHY}):
        monkeypatch.setattr(consumer, "poll", lambda timeout_ms, owned=owned: setattr(consumer, "owned", owned) or {})
        source._keep_step(0.1)
    monkeypatch.undo()
    consumer.offsets[DELETED] = 7  # the client begins at the committed offset
    assert not source.poll(0.0)
    assert source.poll(0.0).starts[Partition("deleted", 0)] == 0


@pytest.mark.parametrize(
    ("metadata", "present", "earlier"),
    [
        (f"attempt 1 {BEFORE}", str(PRESENT), True),
        (f"attempt 1 {PRESENT}", str(PRESENT), False),
        (f"0 {BEFORE}", str(PRESENT), True),
        ("attempt", str(PRESENT), False),
        (f"attempt 1 {BEFORE}", "", False),
    ],
    ids=["other id", "same id", "id alone", "no id committed", "present id unknown"],
)
def test_a_committed_offset_is_ignored_where_it_names_another_id_than_that_of_the_topic(
    consumer, metadata, present, earlier
):
    consumer.committed_offsets = {DELETED: OffsetAndMetadata(7, metadata, -1)}
    partition = Partition("deleted", 0)
    offsets, of_earlier_topic = fetch_committed(consumer, OPTIONS, {"deleted": present}, [partition])
    assert of_earlier_topic == ({partition} if earlier else set())
    assert {each: committed_offset.offset for each, committed_offset in offsets.items()} == (
        {} if earlier else {partition: 7}
    )


@pytest.mark.parametrize(
    ("incarnation", "topic_id", "metadata"),
    [
        (3, str(OTHER), f"attempt 3 {OTHER}"),
        (0, str(OTHER), f"attempt 0 {OTHER}"),
        (3, "", f"attempt 3 {UUID(int=0)}"),
        (0, "", "attempt"),
    ],
    ids=["with an id", "first incarnation", "before Kafka 2.8", "first incarnation before Kafka 2.8"],
)
def test_the_incarnation_and_the_id_of_the_topic_are_committed_behind_the_attempt(
    source, consumer, incarnation, topic_id, metadata
):
    records = tuple(Record(Position("healthy", number, 40, incarnation), 0, None, b"v") for number in (1, 0))
    batch = Batch(records, metadata="attempt", topic_ids={"healthy": topic_id} if topic_id else {})
    consumer.committed_offsets = offsets_to_commit(batch)
    committed = OffsetAndMetadata(41, metadata, -1)
    assert consumer.committed_offsets == {HEALTHY: committed, TopicPartition("healthy", 1): committed}
    assert source.committed_offset(Partition("healthy", 0)) == CommittedOffset(41, "attempt", topic_id, incarnation)


def test_after_each_joining_the_group_is_asked_once_for_members_with_other_indexes(consumer, monkeypatch):
    asked, watch = [], watches.OtherIndexWatch(consumer, OPTIONS)
    monkeypatch.setattr(watches, "refuse_other_indexes", asked.append)
    for member_id, state, count in (
        ("first", MemberState.STABLE, 1),
        ("first", MemberState.STABLE, 1),
        ("second", MemberState.UNJOINED, 1),
        ("second", MemberState.STABLE, 2),
    ):
        consumer.member_id, consumer._coordinator.state = member_id, state
        watch.check()
        assert asked == [OPTIONS] * count


@pytest.mark.parametrize(("module", "step"), [(watches, "refuse_other_indexes"), (source_module, "fetch_committed")])
def test_a_batch_is_rewound_where_a_step_after_its_fetch_fails(source, consumer, monkeypatch, module, step):
    def fail(*_arguments):
        raise BrokerUnavailable("made to fail")

    monkeypatch.setattr(module, step, fail)
    for _ in range(2):
        with pytest.raises(BrokerUnavailable, match="made to fail"):
            source.poll(0.0)
        assert consumer.offsets == {DELETED: 7, HEALTHY: 40}


class TestMissingTopics:
    def test_a_topic_is_missing_from_the_first_denial_on_until_it_exists(self, source, consumer, caplog):
        caplog.set_level("INFO", "streamdedup.kafka.watches")
        for deleted, missing in ((None, {"deleted"}), (None, {"deleted"}), (PRESENT, set())):
            consumer._cluster.update_metadata(metadata_of(deleted=deleted, healthy=OTHER))
            assert source.missing_topics() == missing
        events = [(line.event, line.topic) for line in caplog.records]
        assert events == [("topic_missing", "deleted"), ("topic_found", "deleted")]
        assert caplog.records[0].message == "no such topic: deleted; create with: create"

    def test_a_topic_that_may_no_longer_be_read_ends_the_source_until_it_is_granted_again(self, source, consumer):
        answer = metadata_of(deleted=None, healthy=OTHER, foreign=None)
        for topic in (answer.topics[0], answer.topics[2]):
            topic.error_code = REFUSED
        consumer._cluster.update_metadata(answer)
        assert source.missing_topics() == set()
        with pytest.raises(BrokerMisconfigured, match=r"cannot read deleted: .* grant READ on the topics"):
            source.poll(0.0)
        assert consumer.offsets == {DELETED: 7, HEALTHY: 40}
        consumer._cluster.update_metadata(metadata_of(deleted=PRESENT, healthy=OTHER))
        source.poll(0.0)

    def test_a_missing_topic_whose_rights_go_too_stays_a_missing_one(self, source, consumer):
        for error_code in (UNKNOWN_TOPIC, REFUSED):
            answer = metadata_of(deleted=None, healthy=OTHER)
            answer.topics[0].error_code = error_code
            consumer._cluster.update_metadata(answer)
            source.poll(0.0)
        assert source.missing_topics() == {"deleted"}

    def test_an_answer_that_the_client_ignores_is_ignored(self, source, consumer):
        answer = metadata_of(deleted=None)
        answer.brokers = []
        consumer._cluster.update_metadata(answer)
        assert source.missing_topics() == set()

    def test_committed_offsets_of_the_other_topics_are_known(self, source, consumer):
        consumer._cluster.partitions_for_topic = {"healthy": {0}}.get
        with pytest.raises(BrokerUnavailable, match="which partitions deleted has"):
            source.committed_offsets()
        consumer._cluster.update_metadata(metadata_of(deleted=None, healthy=OTHER))
        assert source.committed_offsets() == {Partition("healthy", 0): CommittedOffset(40, "attempt", str(OTHER), 3)}
        consumer._cluster.update_metadata(metadata_of(deleted=None, healthy=None))
        assert source.committed_offsets() == {}

    def test_offsets_are_read_without_waiting_for_transactions_only_where_they_need_not_be_stable(
        self, source, consumer
    ):
        consumer._coordinator = coordinator = Coordinator()
        consumer._cluster.update_metadata(metadata_of(deleted=OTHER, healthy=OTHER))
        consumer._cluster.partitions_for_topic = {"deleted": {0}, "healthy": {0}}.get
        for stable in (False, True):
            source.committed_offsets(stable=stable)
        source.committed_offset(Partition("healthy", 0))
        waiting = (IsolationLevel.READ_COMMITTED, 1, 45_000)  # longer than a transaction, of 30 s
        assert coordinator.asked == [(IsolationLevel.READ_UNCOMMITTED, 0, 30_000), waiting, waiting]

    def test_a_topic_that_comes_back_is_another_one_and_the_group_is_joined_anew(self, source, consumer):
        consumer._cluster.update_metadata(metadata_of(deleted=BEFORE, healthy=OTHER))
        with pytest.raises(Rejoin, match="topic deleted was deleted and created again"):
            source.poll(0.0)


@pytest.mark.parametrize(
    ("generation", "state"), [(-1, MemberState.UNJOINED), (-1, MemberState.STABLE), (7, MemberState.REBALANCING)]
)
def test_a_batch_that_came_without_membership_is_polled_again(source, consumer, monkeypatch, generation, state):
    monkeypatch.setattr(source_module.compat, "finish_rebalance", lambda _: None)
    monkeypatch.setattr(watches.SilenceWatch, "check", lambda _: None)
    consumer.committed_offsets.clear()
    consumer.generation_id, consumer._coordinator.state = generation, state
    assert not source.poll(0.0)
    assert consumer.offsets == {DELETED: 7, HEALTHY: 40}


@pytest.mark.parametrize("watch", [watches.SilenceWatch, watches.StaticMembershipWatch])
def test_a_poll_that_returns_nothing_asks_the_watches(source, consumer, watch, monkeypatch):
    def fail(_watch):
        raise BrokerUnavailable("made to fail")

    source.poll(0.0)
    monkeypatch.setattr(watch, "check", fail)
    source.poll(0.0)
    consumer.poll = lambda **_: {}
    with pytest.raises(BrokerUnavailable, match="made to fail"):
        source.poll(0.0)


def test_a_closed_source_has_left_the_group_without_a_commit_and_is_used_no_more(source, consumer):
    closed = []
    consumer.close = lambda **how: closed.append(how)
    source.close()
    assert closed == [{"autocommit": False, "timeout_ms": 1_500}]
    with pytest.raises(BrokerUnavailable, match="closed"):
        source.poll(0.0)


def test_after_a_hold_all_partitions_are_read_and_parked_records_are_fetched_again(source, consumer):
    consumer.paused_partitions = {DELETED, HEALTHY}
    consumer._fetcher._paused_partition_records[HEALTHY] = "parked"
    source.poll(0.0)
    assert not consumer.paused_partitions
    assert not consumer._fetcher._paused_partition_records


def test_a_batch_with_records_of_a_partition_that_was_taken_away_is_polled_again(source, consumer):
    consumer.committed_offsets.clear()
    consumer.revoked_by_poll = {DELETED}
    assert not source.poll(0.0)
    del consumer.offsets[DELETED]
    assert source.poll(0.0).starts == {Partition("healthy", 0): 40}


@pytest.mark.parametrize(("generation", "member"), [(4, "member"), (3, "another")])
def test_a_batch_is_not_committed_under_another_membership_than_that_of_its_poll(source, consumer, generation, member):
    consumer.committed_offsets.clear()
    consumer.commit = lambda *_, **__: pytest.fail("committed")
    batch = source.poll(0.0)
    assert batch
    consumer.group_metadata = lambda: ConsumerGroupMetadata("g", generation, member, None, MemberState.STABLE)
    with pytest.raises(MembershipEnded, match="the group moved on"):
        source.commit(batch)


def test_a_record_that_arrives_while_a_time_is_looked_up_is_not_skipped(source, consumer):
    """The client finds no record of the time, and the record arrives before the next answer."""
    ends = {HEALTHY: 41}

    def end_offsets(partitions, timeout_ms):
        found = {partition: ends[partition] for partition in partitions}
        ends[HEALTHY] += 1
        return found

    def offsets_for_times(times, timeout_ms):
        ends[HEALTHY] += 1
        return dict.fromkeys(times)

    consumer.end_offsets, consumer.offsets_for_times = end_offsets, offsets_for_times
    assert source.first_since({Partition("healthy", 0): 5}) == {Partition("healthy", 0): 41}
    consumer.offsets_for_times = lambda times, timeout_ms: dict.fromkeys(times, OffsetAndTimestamp(12, 5, -1))
    assert source.first_since({Partition("healthy", 0): 5}) == {Partition("healthy", 0): 12}


def test_the_ends_that_kafka_answers_are_those_of_existing_topics_and_never_lower_than_the_fetched_ones(
    consumer, source
):
    ahead, behind = TopicPartition("healthy", 1), TopicPartition("healthy", 2)
    states = {partition: SimpleNamespace(highwater=50, position=SimpleNamespace(offset=40)) for partition in
              (DELETED, HEALTHY, ahead, behind)}  # fmt: skip
    states[ahead].highwater = None
    consumer._subscription = SimpleNamespace(assignment=states)
    consumer.owned = set(states)
    asked = []

    def end_offsets(partitions, timeout_ms):
        asked.append((set(partitions), timeout_ms))
        return {HEALTHY: 90, ahead: 7, behind: 45}

    consumer.end_offsets = end_offsets
    consumer._cluster.update_metadata(metadata_of(deleted=None, healthy=OTHER))
    source.request_ends()
    assert asked == [({HEALTHY, ahead, behind}, 1_000)]
    assert [source.end(Partition("healthy", number)) for number in range(4)] == [90, 7, 50, None]
    states[behind].position = None  # not yet looked up
    assert source.stats().lags == {Partition("deleted", 0): 10, Partition("healthy", 0): 50, Partition("healthy", 1): 0}


@pytest.mark.parametrize(
    ("ask", "doing"),
    [
        (lambda source: source.request_ends(), "look up the ends of the topics"),
        (lambda source: source.first_since({Partition("healthy", 0): 5}), "find a time in the topics"),
    ],
)
def test_offsets_that_kafka_does_not_tell_are_an_outage(consumer, source, ask, doing):
    def end_offsets(partitions, timeout_ms):
        raise KafkaTimeoutError

    consumer.end_offsets = end_offsets
    with pytest.raises(BrokerUnavailable, match=doing):
        ask(source)


class TestKeptMembership:
    """A source whose caller waits for another server, and polls only to stay in the group."""

    @pytest.fixture
    def clock(self, monkeypatch):
        clock = ManualClock()
        monkeypatch.setattr(source_module, "time", SimpleNamespace(monotonic=clock, sleep=clock.sleep))
        return clock

    @pytest.fixture
    def polls(self, consumer, clock):
        """The time limits of the polls, the errors that they raise, and the records that they return."""
        polls = SimpleNamespace(limits_ms=[], errors=[], records={})

        def poll(timeout_ms, max_records=None):
            polls.limits_ms.append(timeout_ms)
            clock.now_s += timeout_ms / 1000
            if polls.errors:
                raise polls.errors.pop()
            returned, polls.records = polls.records, {}
            return returned

        consumer.poll = poll
        return polls

    def test_it_is_polled_in_steps_until_the_time_is_over_with_all_partitions_paused(self, source, consumer, polls):
        source.keep_membership(2.5 * KEEP_STEP_S)
        assert polls.limits_ms == [1000 * KEEP_STEP_S, 1000 * KEEP_STEP_S, 500 * KEEP_STEP_S]
        assert consumer.paused_partitions == {DELETED, HEALTHY}

    def test_records_of_a_partition_that_was_assigned_in_a_step_are_read_later(self, source, consumer, polls):
        polls.records = {HEALTHY: [a_record(HEALTHY, 33), a_record(HEALTHY, 34)], DELETED: []}
        poll, consumer.owned = consumer.poll, {DELETED}
        consumer.poll = lambda **how: setattr(consumer, "owned", {DELETED, HEALTHY}) or poll(**how)
        source.keep_membership(KEEP_STEP_S)
        assert consumer.offsets == {DELETED: 7, HEALTHY: 33}
        assert consumer.paused_partitions == {DELETED, HEALTHY}, "the next step would fetch the records again"

    def test_an_answer_to_a_join_that_came_before_the_step_is_kept(self, source, consumer, polls):
        consumer._coordinator._join_task = join = Future().success("answer")
        consumer._coordinator.state, consumer._coordinator.need_rejoin = MemberState.REBALANCING, lambda: True
        poll, seen = consumer.poll, []
        consumer.poll = lambda **how: seen.append(consumer._coordinator._join_task) or poll(**how)
        source.keep_membership(KEEP_STEP_S)
        assert join not in seen != []

    def test_a_failure_that_passes_is_repeated_after_a_pause(self, source, polls):
        polls.errors = [NodeNotReadyError()]
        source.keep_membership(2 * KEEP_STEP_S)
        assert polls.limits_ms == [1000 * KEEP_STEP_S, 1000 * (KEEP_STEP_S - RETRY_PAUSE_S)]

    @pytest.mark.parametrize(
        ("error", "raised"),
        [
            (TopicAuthorizationFailedError("t"), BrokerMisconfigured),
            (RuntimeError("a defect"), BrokerUnavailable),
            (CodecMissing("made to fail"), CodecMissing),
            (MemoryError(), MemoryError),
        ],
    )
    @pytest.mark.parametrize("keeps", [True, False])
    def test_after_any_other_failure_the_source_is_used_no_more(self, source, polls, error, raised, keeps):
        polls.errors = [error]
        poll, keep = lambda: source.poll(0.0), lambda: source.keep_membership(1.0)
        with pytest.raises(raised):
            (keep if keeps else poll)()
        for refused in (poll, keep):
            with pytest.raises(BrokerUnavailable, match=r"unusable \(a poll failed\); open a new one"):
                refused()

    def test_a_membership_that_another_process_took_over_ends_the_wait(self, source, polls, monkeypatch):
        def taken(_watch):
            raise MembershipEnded("made to fail")

        monkeypatch.setattr(watches.StaticMembershipWatch, "check", taken)
        with pytest.raises(MembershipEnded):
            source.keep_membership(1.0)
        assert not polls.limits_ms


class TestUnreadableRecords:
    RANGE = UnreadableRange("healthy", 0, 40, 42, reason="damaged")

    @pytest.fixture
    def polled(self, consumer, monkeypatch):
        """Let a poll return an unreadable range, as the parser of the client does."""

        def opened(on_unreadable):
            noted: list[UnreadableRange] = []
            monkeypatch.setattr(source_module, "guard_parsing", lambda *_, **__: noted)
            options = replace(OPTIONS, on_unreadable=on_unreadable)
            source = KafkaSource(consumer, options)
            consumer._cluster.update_metadata(metadata_of(deleted=BEFORE, healthy=OTHER))

            def poll(timeout_ms, max_records):
                noted.append(self.RANGE)
                return {HEALTHY: [self.RANGE]}

            consumer.poll = poll
            return source

        return opened

    def test_they_are_skipped_and_reported(self, polled):
        with capture_logs() as logs:
            batch = polled("skip").poll(0.0)
        assert [record.position.offset for record in batch.unreadable] == [40, 41, 42]
        (line,) = logs
        assert (line["event"], line["starts"], line["ends"]) == (
            "unreadable_skipped",
            {"healthy:0": 40},
            {"healthy:0": 43},
        )

    def test_they_end_a_source_that_is_to_halt(self, polled):
        source = polled("halt")
        with pytest.raises(FatalError, match=r"healthy:0:40 to 42: damaged\. Set kafka\.on_unreadable"):
            source.poll(0.0)
        with pytest.raises(BrokerUnavailable, match="a record is unreadable"):
            source.poll(0.0)


def test_after_a_failed_commit_the_source_is_used_no_more(source, consumer):
    def commit(offsets, timeout_ms):
        committed.append({partition: at.offset for partition, at in offsets.items()})
        if len(committed) > 1:
            raise KafkaTimeoutError

    committed, consumer.commit = [], commit
    source.poll(0.0)  # reads the topic that was created again from its beginning
    batch = source.poll(0.0)
    source.commit(batch)
    with pytest.raises(BrokerUnavailable, match="commit offsets"):
        source.commit(batch)
    assert committed == [{DELETED: 1, HEALTHY: 41}] * 2
    with pytest.raises(BrokerUnavailable, match=r"unusable \(a commit failed\)"):
        source.poll(0.0)


def test_a_generation_is_that_of_a_member(source, consumer):
    assert source.generation() == 3
    consumer._coordinator.state = MemberState.UNJOINED
    assert source.generation() is None


def test_a_source_subscribes_and_is_closed_where_it_cannot_be_opened(consumer, monkeypatch):
    calls = []
    consumer.subscribe = lambda topics, listener: calls.append((topics, type(listener)))
    consumer.close = lambda **_: calls.append("close")
    monkeypatch.setattr(source_module.compat, "build", lambda *_: consumer)
    monkeypatch.setattr(source_module, "_await_metadata", lambda *_: None)
    KafkaSource.open(OPTIONS)
    subscribed = (["deleted", "healthy"], RebalanceListener)
    assert calls == [subscribed]

    def fail(*_):
        raise BrokerUnavailable("made to fail")

    monkeypatch.setattr(source_module, "_await_metadata", fail)
    with pytest.raises(BrokerUnavailable):
        KafkaSource.open(OPTIONS)
    assert calls == [subscribed, subscribed, "close"]


def test_each_rebalance_is_counted_and_logged(source, consumer, caplog):
    caplog.set_level("INFO", logger=source_module.logger.name)
    listener = source.listener
    listener.on_partitions_assigned([HEALTHY, DELETED])
    listener.on_partitions_revoked([HEALTHY])
    listener.on_partitions_lost([])
    assert [(line.event, line.partitions) for line in caplog.records] == [
        ("partitions_assigned", ["deleted:0", "healthy:0"]),
        ("partitions_revoked", ["healthy:0"]),
        ("partitions_lost", []),
    ]
    assert listener.rebalances_count == 3
