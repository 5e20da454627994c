"""The traps of the Kafka client that lose or duplicate records: one test for the workaround of each.

The numbers T1 to T17 are used in the names only; each test describes the trap.
"""

import contextlib
import importlib.metadata
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import kafka.codec
import pytest
from kafka import KafkaProducer, OffsetAndMetadata, TopicPartition
from kafka.consumer.subscription_state import SubscriptionState
from kafka.errors import KafkaTimeoutError
from kafka.structs import ConsumerGroupMetadata, MemberState

from streamdedup.errors import BrokerMisconfigured, BrokerUnavailable, CodecMissing, DecodeError, FatalError
from streamdedup.kafka import offsets as offsets_module
from streamdedup.kafka import producer as producer_module
from streamdedup.kafka.consumer import KafkaSource
from streamdedup.kafka.options import KafkaOptions
from streamdedup.kafka.producer import KafkaTransport, TransactionalSink
from streamdedup.kafka.protocols import Batch, Message
from streamdedup.kafka.reader import RecordFetcher, TopicReader
from streamdedup.position import Partition, Position
from tests import servers
from tests.support.kafka import KafkaServer
from tests.support.processes import pause, resume

#: Longest single poll, in seconds.
POLL_S = 0.2

#: Options of ends without a broker.
OPTIONS = KafkaOptions(bootstrap_servers="unused:1", group_id="g", topics=("t",), transactional_id="x")

Ends = tuple[KafkaSource, TransactionalSink]


class Lab:
    """One input topic, one output topic, one group; ends that are closed with it."""

    def __init__(self, bootstrap: str, open_ends: Callable[..., Ends], partitions: int = 1, **output: str) -> None:
        self.bootstrap = bootstrap
        self.input = servers.fresh_name("input")
        self.output = servers.fresh_name("output")
        self.group = servers.fresh_name("group")
        self._open_ends = open_ends
        servers.create_topics(bootstrap, [self.input], partitions)
        servers.create_topics(bootstrap, [self.output], 1, output)

    def options(self, member: str = "one", *, topics: tuple[str, ...] = (), **changes: Any) -> KafkaOptions:
        # Long limits, because a busy broker answers late. The session is short: a new member waits for its end.
        limits = {"connect_timeout_s": 60.0, "session_timeout_s": 6.0, "produce_timeout_s": 20.0}
        fixed = {"group_id": self.group, "transactional_id": f"{self.group}-{member}", "heartbeat_interval_s": 0.2}
        return servers.kafka_options(self.bootstrap, *(topics or (self.input,)), **(fixed | limits | changes))

    def open(self, member: str = "one", **changes: Any) -> Ends:
        source, sink = self._open_ends(KafkaTransport(self.options(member, **changes)))
        assert isinstance(sink, TransactionalSink)
        return source, sink

    def produce(self, *values: bytes, **fields: Any) -> None:
        servers.produce(self.bootstrap, self.input, values, **fields)

    def message(self, value: bytes) -> Message:
        return Message(self.output, b"key", value)

    def published(self) -> list[bytes]:
        return [record.value for record in servers.read_topic(self.bootstrap, self.output)]

    def offset(self) -> int | None:
        return servers.committed_offsets(self.bootstrap, self.group).get((self.input, 0))

    def wait_outcome(self, published: list[bytes], offset: int) -> None:
        """Wait until a commit is seen by subscribers and by the group: both are told after the producer."""
        outcome = published, offset
        what = f"{published} published, {offset} committed"
        servers.wait_until(lambda: (self.published(), self.offset()) == outcome, what=what)


@pytest.fixture
def lab(kafka, open_ends) -> Lab:
    return Lab(kafka, open_ends)


@pytest.fixture(scope="module")
def own_kafka() -> Iterator[KafkaServer]:
    """A broker that may be silenced without disturbing other tests."""
    with servers.make_kafka() as server:
        yield server


def next_batch(source: KafkaSource) -> Batch:
    return servers.wait_until(lambda: source.poll(POLL_S), what="a batch")


def values(batch: Batch) -> list[bytes | None]:
    return [record.value for record in batch.records]


def copy_all(lab: Lab, ends: Ends, count: int) -> None:
    """Publish every record of the input until ``count`` are published, rebuilding both ends after each failure."""
    source, sink = ends
    while len(lab.published()) < count:
        if batch := source.poll(POLL_S):
            try:
                sink.publish([lab.message(value or b"") for value in values(batch)], batch)
            except BrokerUnavailable:
                source.close()
                sink.close()
                source, sink = lab.open()


class TestT1AFailedMessageDoesNotFailTheCommit:
    """The client's flush and commit succeed although a message was given up; only its future knows."""

    def test_every_future_is_asked_before_the_commit(self):
        calls: list[str] = []
        failed = SimpleNamespace(get=lambda timeout: (_ for _ in ()).throw(KafkaTimeoutError("given up")))
        producer = SimpleNamespace(
            begin_transaction=lambda: calls.append("begin"),
            send=lambda *_args, **_fields: failed,
            flush=lambda timeout: calls.append("flush"),
            send_offsets_to_transaction=lambda *_args: calls.append("offsets"),
            commit_transaction=lambda: calls.append("commit"),
        )
        with pytest.raises(BrokerUnavailable, match="given up"):
            TransactionalSink(producer, OPTIONS).publish([Message("out", None, b"v")], Batch())
        assert calls == ["begin", "flush"]

    def test_a_message_that_the_broker_refuses_stops_the_batch_and_names_the_topic(self, kafka, open_ends):
        lab = Lab(kafka, open_ends, **{"max.message.bytes": "2000"})
        lab.produce(b"a")
        source, sink = lab.open(compression=None)
        with pytest.raises(BrokerMisconfigured, match=lab.output):
            sink.publish([lab.message(b"small"), lab.message(b"x" * 5000)], next_batch(source))
        assert lab.published() == []
        assert lab.offset() is None

    def test_messages_that_fit_one_by_one_but_not_together_are_published(self, kafka, open_ends):
        lab = Lab(kafka, open_ends, **{"max.message.bytes": "2000"})
        lab.produce(b"a")
        source, sink = lab.open(compression=None)
        sink.publish([lab.message(b"%d" % number * 1500) for number in range(3)], next_batch(source))
        lab.wait_outcome([b"%d" % number * 1500 for number in range(3)], 1)


def test_t2_t11_a_sink_that_failed_cannot_bring_old_offsets_into_a_new_transaction(kafka, open_ends):
    lab = Lab(kafka, open_ends, **{"max.message.bytes": "2000"})
    lab.produce(b"a", b"b")
    source, sink = lab.open(compression=None)
    with pytest.raises(BrokerMisconfigured):
        sink.publish([lab.message(b"x" * 5000)], next_batch(source))
    with pytest.raises(BrokerUnavailable, match="unusable"):
        sink.publish([lab.message(b"later")], Batch())
    source.close()
    sink.close()
    source, sink = lab.open(compression=None)
    batch = next_batch(source)
    assert values(batch) == [b"a", b"b"]
    sink.publish([lab.message(b"small")], batch)
    lab.wait_outcome([b"small"], 2)


class TestT3T4MembershipIsTakenWithTheBatch:
    """Taken when committing, it is empty once heartbeats have stopped, and an empty one is refused by no broker."""

    def test_a_late_commit_is_refused_and_the_new_owners_offset_stays(self, lab):
        lab.produce(b"a", b"b")
        late, late_sink = lab.open("late", max_poll_interval_s=1.0)
        batch = next_batch(late)
        assert isinstance(batch.membership, ConsumerGroupMetadata)
        owner, owner_sink = lab.open("owner")
        taken = next_batch(owner)  # arrives when the late member has been silent for its longest poll interval
        owner_sink.publish([lab.message(b"by the owner")], taken)
        servers.wait_until(lambda: late._consumer.group_metadata().generation_id < 0, what="the end of the membership")
        with pytest.raises(BrokerUnavailable):
            late_sink.publish([lab.message(b"too late")], batch)
        late_sink.close()
        lab.open("late")[1].close()
        lab.wait_outcome([b"by the owner"], 2)


def test_all_partitions_are_read_after_a_hold(kafka, open_ends):
    lab = Lab(kafka, open_ends, partitions=2)
    for partition in (0, 1):
        lab.produce(*[b"%d-%d" % (partition, number) for number in range(5)], partition=partition)
    source, _ = lab.open()
    read = [*values(servers.wait_until(lambda: source.poll(POLL_S, 1), what="a record"))]
    # The client keeps the fetched records of one partition after the other.
    (first,) = {partition for partition in source._consumer.assignment() if b"%d-0" % partition.partition in read}
    source._consumer.pause(first)
    for records in source._consumer.poll(timeout_ms=5_000, max_records=1).values():
        read += [record.value for record in records]
    source.keep_membership(0.2)
    while len(read) < 10:
        read += values(next_batch(source))
    assert sorted(read) == [b"%d-%d" % (partition, number) for partition in (0, 1) for number in range(5)]


class TestT6T10KafkaStopsAnswering:
    """The client waits for ever in a commit, whose outcome is unknown."""

    @pytest.fixture(autouse=True)
    def little_patience(self, monkeypatch):
        monkeypatch.setattr(producer_module, "COMMIT_MARGIN_S", 1.0)

    @pytest.mark.parametrize("step", ["flush", "send_offsets_to_transaction", "commit_transaction"])
    def test_a_frozen_broker_ends_publishing_in_time_and_nothing_is_lost_or_doubled(self, own_kafka, open_ends, step):
        lab = Lab(own_kafka.bootstrap_servers, open_ends)
        publish_into_silence(lab, step, lambda: pause(own_kafka.brokers[0]))
        resume(own_kafka.brokers[0])
        own_kafka.wait_ready()
        copy_all(lab, reopened(lab), 3)
        lab.wait_outcome([b"a", b"b", b"c"], 3)

    def test_a_killed_broker_ends_publishing_in_time_and_nothing_is_lost_or_doubled(self, own_kafka, open_ends):
        lab = Lab(own_kafka.bootstrap_servers, open_ends)
        publish_into_silence(lab, "commit_transaction", own_kafka.kill)
        own_kafka.start()
        copy_all(lab, reopened(lab), 3)
        lab.wait_outcome([b"a", b"b", b"c"], 3)


def publish_into_silence(lab: Lab, step: str, silence: Callable[[], None]) -> None:
    """Publish a batch while the broker falls silent before ``step``; it must fail within its bounds."""
    lab.produce(b"a", b"b", b"c")
    quick = {"delivery_timeout_s": 2.0, "produce_timeout_s": 1.0}
    source, sink = lab.open(transaction_timeout_s=3.0, **quick)
    batch = next_batch(source)
    silence_at(sink, step, silence)
    begun = time.monotonic()
    with pytest.raises(BrokerUnavailable):
        sink.publish([lab.message(value or b"") for value in values(batch)], batch)
    source.close()
    sink.close()
    assert time.monotonic() - begun < 3.0 + 1.0 + 2 * 3.0 + 30.0  # transaction, margin, two closings, slack


def silence_at(sink: TransactionalSink, step: str, silence: Callable[[], None]) -> None:
    """Make the broker fall silent just before ``step``."""
    original = getattr(sink._producer, step)

    def wrapped(*arguments: Any, **fields: Any) -> Any:
        silence()
        return original(*arguments, **fields)

    setattr(sink._producer, step, wrapped)


def reopened(lab: Lab) -> Ends:
    """New ends, as soon as the broker lets them be opened."""

    def opened() -> Ends | None:
        with contextlib.suppress(BrokerUnavailable):
            return lab.open()
        return None

    return servers.wait_until(opened, what="new clients")


def commit_in_open_transaction(lab: Lab) -> Ends:
    """Commit offset 1, and offset 2 in a transaction that stays open."""
    lab.produce(b"a")
    source, sink = lab.open()
    sink.publish([], next_batch(source))
    lab.produce(b"b")
    batch = next_batch(source)
    sink._producer.begin_transaction()
    offsets = {TopicPartition(lab.input, 0): OffsetAndMetadata(2, "", -1)}
    sink._producer.send_offsets_to_transaction(offsets, batch.membership)
    return source, sink


def test_t7_an_offset_is_not_read_past_a_transaction_that_may_still_commit_it(lab, monkeypatch):
    source, sink = commit_in_open_transaction(lab)
    with monkeypatch.context() as impatient:
        impatient.setattr(offsets_module, "ABORT_MARGIN_S", -28.0)  # from the transaction timeout of 30 s
        impatient.setattr(source, "_options", replace(source._options, fetch_timeout_s=2.0))
        with pytest.raises(BrokerUnavailable):
            source.committed_offset(Partition(lab.input, 0))
    sink._producer.commit_transaction()
    assert source.committed_offset(Partition(lab.input, 0)).offset == 2


def test_the_offsets_before_an_open_transaction_are_read_without_waiting_for_its_end(lab):
    source, sink = commit_in_open_transaction(lab)
    assert source.committed_offsets(stable=False)[Partition(lab.input, 0)].offset == 1
    sink._producer.commit_transaction()
    assert source.committed_offsets()[Partition(lab.input, 0)].offset == 2


class TestT8T9RecordsThatTheClientCannotParse:
    """It raises once, hides the records behind in the same batch, and spins for ever when polled again."""

    #: Header by which a record becomes unreadable.
    BAD = (servers.NotUtf8("name"), b"")

    def produce_as_one_batch(self, lab: Lab, records: list[tuple[bytes, bool]]) -> None:
        """Write all ``records`` (value, readable) as one record batch."""
        producer = KafkaProducer(bootstrap_servers=lab.bootstrap, linger_ms=1000, batch_size=1_000_000)
        with contextlib.closing(producer):
            for value, readable in records:
                producer.send(lab.input, value=value, headers=[] if readable else [self.BAD])
            producer.flush(servers.DEADLINE_S)

    def collect(self, source: KafkaSource, sink: TransactionalSink, count: int) -> list[Any]:
        """Values that were read and offsets that were stepped over, all committed."""
        seen: list[Any] = []

        def step() -> bool:
            if batch := source.poll(POLL_S):
                seen.extend(values(batch) + [entry.position.offset for entry in batch.unreadable])
                sink.publish([], batch)
            return len(seen) >= count

        servers.wait_until(step, what=f"{count} records")
        return seen

    def test_the_rest_of_the_batch_is_stepped_over_and_each_offset_reported(self, lab):
        self.produce_as_one_batch(lab, [(b"a", True), (b"b", True), (b"bad", False), (b"hidden", True)])
        lab.produce(b"after")
        source, sink = lab.open()
        assert self.collect(source, sink, 5) == [b"a", b"b", 2, 3, b"after"]
        lab.wait_outcome([], 5)
        assert source.stats().rebalances_count == 1  # stepping over costs no rebalance
        with RecordFetcher(lab.options()) as fetcher:
            with pytest.raises(DecodeError):
                fetcher.fetch(Position(lab.input, 0, 2))
            assert fetcher.fetch(Position(lab.input, 0, 3)).value == b"hidden"

    @pytest.mark.parametrize("codec", ["snappy", "zstd", "lz4", "gzip"])
    def test_a_codec_that_is_not_installed_stops_every_reader_and_no_offset_is_passed(self, lab, monkeypatch, codec):
        with contextlib.closing(KafkaProducer(bootstrap_servers=lab.bootstrap, compression_type=codec)) as producer:
            producer.send(lab.input, value=b"x" * 1000).get(servers.DEADLINE_S)
        source, sink = lab.open()
        fatal = pytest.raises(CodecMissing, match=f"compressed with {codec}.*pip install")
        with monkeypatch.context() as hidden:
            hidden.setattr(kafka.codec, f"has_{codec}", lambda: False)
            with fatal:
                servers.wait_until(lambda: source.poll(POLL_S), what="the error")
            assert lab.offset() is None
            with fatal, TopicReader(lab.options()) as reader:
                list(reader.batches())
            with fatal, RecordFetcher(lab.options()) as fetcher:
                fetcher.fetch(Position(lab.input, 0, 0))
        source.close()
        sink.close()
        source, _ = lab.open()
        assert values(next_batch(source)) == [b"x" * 1000]

    def test_aborted_records_are_not_reported(self, lab):
        servers.produce_in_transactions(lab.bootstrap, lab.input, (b"aborted", False), headers=[self.BAD])
        lab.produce(b"bad", headers=[self.BAD])
        lab.produce(b"after")
        source, sink = lab.open()
        assert self.collect(source, sink, 2) == [2, b"after"]  # 0 is the aborted record, 1 its marker

    def test_on_unreadable_halt_stops_and_names_the_position(self, lab):
        lab.produce(b"a")
        lab.produce(b"bad", headers=[self.BAD])
        source, sink = lab.open(on_unreadable="halt")
        sink.publish([], next_batch(source))
        with pytest.raises(FatalError, match=f"{lab.input}:0:1 to 1"):
            servers.wait_until(lambda: source.poll(POLL_S))
        lab.wait_outcome([], 1)

    def test_one_that_arrives_while_holding_waits_for_the_next_poll(self, lab):
        lab.produce(b"bad", headers=[self.BAD])
        source, _ = lab.open()
        servers.wait_until(lambda: source.keep_membership(POLL_S) or source.assigned(), what="an assignment")
        source.keep_membership(POLL_S)
        assert [entry.position.offset for entry in next_batch(source).unreadable] == [0]


def test_t13_transactions_follow_each_other_without_the_clients_pause(lab):
    _, sink = lab.open()

    def publish() -> float:
        begun = time.perf_counter()
        sink.publish([lab.message(b"x")], Batch())
        return time.perf_counter() - begun

    # With the client's default none is shorter than its pause of 100 ms; without a pause 10 ms are enough.
    servers.wait_until(lambda: publish() < 0.1, what="a transaction without a pause")


def test_t14_the_client_is_no_release_that_leaves_kept_partitions_unfetched():
    version = tuple(int(part) for part in importlib.metadata.version("kafka-python").split(".")[:3])
    assert (3, 0, 12) <= version < (3, 1)


def test_t15_a_rebalance_whose_end_falls_between_two_polls_is_finished(lab, monkeypatch):
    source, _ = lab.open()
    servers.wait_until(lambda: source.poll(POLL_S) or source.assigned(), what="an assignment")
    coordinator = source._consumer._coordinator
    original = coordinator._perform_assignment

    def slow(*arguments: Any) -> Any:
        time.sleep(2 * POLL_S)  # the poll's time is over before the group's answer
        return original(*arguments)

    monkeypatch.setattr(coordinator, "_perform_assignment", slow)
    add_partition(lab)
    source._consumer._client.cluster.request_update()
    servers.wait_until(lambda: source.poll(POLL_S) or coordinator.state == MemberState.REBALANCING, what="a rebalance")
    monkeypatch.undo()
    servers.wait_until(lambda: source.poll(POLL_S) or len(source.assigned()) == 2, 30.0, "the new partition")


def await_partitions(source: KafkaSource, count: int) -> None:
    """Poll until the source has this number of partitions."""
    servers.wait_until(lambda: source.poll(POLL_S) or len(source.assigned()) == count, what=f"{count} partitions")


def add_partition(lab: Lab) -> None:
    with contextlib.closing(servers.admin_client(lab.bootstrap)) as admin:
        admin.create_partitions({lab.input: 2})


def open_static(lab: Lab, name: str, *topics: str) -> Ends:
    """Open the ends of a static member that stays in the group when it is closed."""
    return lab.open(name, group_instance_id=name, session_timeout_s=servers.DEADLINE_S, topics=topics)


def test_t16_a_static_leader_that_returns_reads_partitions_that_come_later(lab):
    source, sink = open_static(lab, "a-0")
    await_partitions(source, 1)
    sink.close()
    source.close()
    source, _ = open_static(lab, "a-0")
    await_partitions(source, 1)
    assert source.generation() == 1  # the group has not rebalanced
    add_partition(lab)
    await_partitions(source, 2)


def test_t16_a_static_leader_that_returns_reads_partitions_that_have_come_meanwhile(lab):
    source, sink = open_static(lab, "a-0")
    await_partitions(source, 1)
    sink.close()
    source.close()
    add_partition(lab)
    source, _ = open_static(lab, "a-0")
    await_partitions(source, 2)


@pytest.mark.parametrize("keeps_topic", [True, False])
def test_t17_a_static_member_that_returns_with_another_topic_reads_this_topic(lab, keeps_topic):
    added = servers.fresh_name("added")
    servers.create_topics(lab.bootstrap, [added])
    leader, _ = open_static(lab, "a-0")
    await_partitions(leader, 1)
    member, sink = open_static(lab, "a-1")
    add_partition(lab)
    servers.wait_until(lambda: leader.poll(POLL_S) or member.poll(POLL_S) or member.assigned(), what="an assignment")
    sink.close()
    member.close()
    member, _ = open_static(lab, "a-1", added, *[lab.input] * keeps_topic)
    partition = Partition(added, 0)
    servers.wait_until(lambda: leader.poll(POLL_S) or member.poll(POLL_S) or partition in member.assigned())


def test_the_private_parts_of_the_client_that_are_relied_on_exist():
    assert isinstance(SubscriptionState("earliest").assignment, dict)
