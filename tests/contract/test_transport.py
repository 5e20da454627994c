"""The promises of a transport to the loop, shown on the transport in memory and on a real Kafka."""

import contextlib
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from kafka import KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType

from streamdedup.errors import BrokerMisconfigured, BrokerSilent, BrokerUnavailable, FatalError, ProducerFenced, Rejoin
from streamdedup.kafka.history import KafkaHistory
from streamdedup.kafka.options import KafkaOptions
from streamdedup.kafka.producer import KafkaTransport
from streamdedup.kafka.protocols import (
    Batch,
    CommittedOffset,
    History,
    Message,
    ReadProgress,
    Sink,
    Source,
    Transport,
)
from streamdedup.position import Partition
from tests import servers
from tests.daemons import set_offsets
from tests.simulation.transport import MemoryBroker, MemoryHistory, MemoryTransport
from tests.support.kafka import KafkaServer
from tests.support.processes import pause, resume

#: Number of partitions of the input topic.
PARTITIONS = 2

#: Parameter of the fixtures below for a real Kafka.
ON_KAFKA = pytest.param("kafka", marks=pytest.mark.long)
#: A record time that no broker deletes, and an hour, in milliseconds.
NOW_MS, HOUR_MS = time.time_ns() // 1_000_000 - 86_400_000, 3_600_000
#: Longest single poll, in seconds.
POLL_S = 0.2


@dataclass
class MemorySystem:
    """The broker in memory, with an input topic and an output topic."""

    input: str = "input"
    output: str = "output"
    broker: MemoryBroker = field(default_factory=lambda: MemoryBroker({"input": PARTITIONS, "output": 1}))

    def transport(
        self,
        member: str = "one",
        *,
        max_poll_records: int = 500,
        exactly_once: bool = True,
        instance_id: str | None = None,
    ) -> Transport:
        """A member of the group."""
        return MemoryTransport(
            self.broker,
            "group",
            [self.input],
            transactional_id=member if exactly_once else None,
            max_poll_records=max_poll_records,
            instance_id=instance_id,
        )

    def produce(self, *values: bytes, partition: int = 0, **fields: Any) -> None:
        """Append to the input topic; ``fields`` (``readable``, ``timestamp_ms``) go to each record."""
        for value in values:
            self.broker.produce(self.input, value, partition=partition, **fields)

    @contextlib.contextmanager
    def uncommitted(self, value: bytes, timestamp_ms: int, *, is_aborted: bool = False) -> Iterator[None]:
        """Append to the input topic in a transaction, which the end of the context commits or aborts."""
        transaction = self.broker.begin("producer", self.broker.register("producer"))
        self.broker.append(Message(self.input, None, value, timestamp_ms=timestamp_ms), transaction, 0)
        yield
        self.broker.end("producer", "aborted" if is_aborted else "committed")

    def history(self) -> History:
        return MemoryHistory(self.broker)

    def recreate(self, *, offsets_deleted: bool = True) -> None:
        """Delete the input topic and create it again; where its offsets are left, the group has no members."""
        self.broker.recreate(self.input, offsets_deleted=offsets_deleted)

    def add_partitions(self, count: int) -> None:
        """Give the input topic so many partitions."""
        self.broker.add_partitions(self.input, count)

    def compact(self) -> None:
        """Make the input topic a compacted one."""
        self.broker.compact(Partition(self.input, 0))

    def set_offset(self, offset: int) -> None:
        """Set the offset of partition 0, as another program can while the group has no members."""
        self.broker.commit("group", {Partition(self.input, 0): offset})

    def delete_group(self) -> None:
        """Delete the group, which has no members."""
        self.broker.delete_group("group")

    def remove_records(self, end: int) -> None:
        """Remove the records of partition 0 before an offset, as retention does."""
        self.broker.truncate(Partition(self.input, 0), end)

    def published(self) -> list[bytes]:
        """What a reader of committed records sees in the output topic."""
        return [record.value or b"" for record in self.broker.records(self.output)]

    @contextlib.contextmanager
    def silenced(self) -> Iterator[None]:
        """Answer nothing while the context is open."""
        self.broker.away = True
        yield
        self.broker.away = False

    @contextlib.contextmanager
    def kept(self, *sources: Source) -> Iterator[None]:
        """Keep ``sources`` in the group while the context is open: a rebalance needs all members at the same time."""
        for source in sources * 2:
            source.keep_membership(0.0)
        yield


@dataclass
class RealSystem:
    """Topics of a real Kafka, with the methods of ``MemorySystem``."""

    bootstrap: str
    input: str
    output: str
    group: str
    server: KafkaServer | None = None

    def transport(
        self,
        member: str = "one",
        *,
        max_poll_records: int = 500,
        exactly_once: bool = True,
        instance_id: str | None = None,
    ) -> Transport:
        return KafkaTransport(
            KafkaOptions(
                bootstrap_servers=self.bootstrap,
                group_id=self.group,
                topics=(self.input,),
                delivery="exactly-once" if exactly_once else "at-least-once",
                transactional_id=f"{self.group}-{member}",
                max_poll_records=max_poll_records,
                heartbeat_interval_s=0.2,
                # Longer than a busy machine needs to open a transport, and than the silence of a broker: a broker that
                # was frozen beyond a session ends it as soon as it wakes up.
                session_timeout_s=45.0,
                group_instance_id=instance_id,
            )
        )

    def produce(self, *values: bytes, partition: int = 0, readable: bool = True, **fields: Any) -> None:
        headers = [] if readable else [(servers.NotUtf8("name"), b"")]
        servers.produce(self.bootstrap, self.input, values, partition=partition, headers=headers, **fields)

    @contextlib.contextmanager
    def uncommitted(self, value: bytes, timestamp_ms: int, *, is_aborted: bool = False) -> Iterator[None]:
        options = {"transactional_id": servers.fresh_name("producer"), "retry_backoff_ms": 20}
        with contextlib.closing(KafkaProducer(bootstrap_servers=self.bootstrap, **options)) as producer:
            producer.init_transactions()
            producer.begin_transaction()
            producer.send(self.input, value=value, partition=0, timestamp_ms=timestamp_ms)
            producer.flush()
            yield
            (producer.abort_transaction if is_aborted else producer.commit_transaction)()
        # The marker comes after the answer.
        servers.wait_no_transaction(self.bootstrap, [self.input])

    def history(self) -> History:
        return KafkaHistory(servers.kafka_options(self.bootstrap, self.input))

    def recreate(self, *, offsets_deleted: bool = True) -> None:
        offsets = servers.committed_offsets(self.bootstrap, self.group)
        metadata = servers.committed_metadata(self.bootstrap, self.group)
        with contextlib.closing(servers.admin_client(self.bootstrap)) as admin:
            admin.delete_topics([self.input])
            servers.wait_until(lambda: self.input not in admin.list_topics(), what="the end of the topic")
        servers.wait_until(
            lambda: not servers.committed_offsets(self.bootstrap, self.group), what="the deletion of its offsets"
        )
        servers.create_topics(self.bootstrap, [self.input], PARTITIONS)
        if not offsets_deleted:  # as a group coordinator leaves it that deletes them late
            set_offsets(self.bootstrap, self.group, offsets, metadata)

    def add_partitions(self, count: int) -> None:
        with contextlib.closing(servers.admin_client(self.bootstrap)) as admin:
            admin.create_partitions({self.input: count})
            servers.wait_until(
                lambda: len(admin.describe_topics([self.input])[0]["partitions"]) == count, what="the new partitions"
            )

    def compact(self) -> None:
        policy = {"cleanup.policy": "compact,delete"}
        with contextlib.closing(servers.admin_client(self.bootstrap)) as admin:
            admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, self.input, policy)])

    def set_offset(self, offset: int) -> None:
        set_offsets(self.bootstrap, self.group, {(self.input, 0): offset})

    def delete_group(self) -> None:
        with contextlib.closing(servers.admin_client(self.bootstrap)) as admin:
            servers.wait_until(
                lambda: admin.delete_groups([self.group]) == {self.group: "OK"}, what="the deletion of the group"
            )

    def remove_records(self, end: int) -> None:
        with contextlib.closing(servers.admin_client(self.bootstrap)) as admin:
            admin.delete_records({TopicPartition(self.input, 0): end})

    def published(self) -> list[bytes]:
        return [record.value for record in servers.read_topic(self.bootstrap, self.output)]

    @contextlib.contextmanager
    def silenced(self) -> Iterator[None]:
        assert self.server is not None, "only a server of the test's own may be silenced"
        pause(self.server.brokers[0])
        try:
            yield
        finally:
            resume(self.server.brokers[0])

    @contextlib.contextmanager
    def kept(self, *sources: Source) -> Iterator[None]:
        end = threading.Event()

        def keep(source: Source) -> None:
            while not end.is_set():
                source.keep_membership(0.1)

        with ThreadPoolExecutor(max_workers=len(sources)) as threads:
            keepers = [threads.submit(keep, source) for source in sources]
            try:
                yield
            finally:
                end.set()
            for keeper in keepers:
                keeper.result()


System = MemorySystem | RealSystem


@pytest.fixture(params=["memory", ON_KAFKA])
def system(request) -> System:
    if request.param == "memory":
        return MemorySystem()
    new_topic = request.getfixturevalue("new_topic")
    return RealSystem(
        request.getfixturevalue("kafka"),
        new_topic("input", PARTITIONS),
        new_topic("output"),
        servers.fresh_name("group"),
    )


@pytest.fixture(params=["memory", ON_KAFKA])
def own_system(request) -> System:
    """A system that may be silenced."""
    if request.param == "memory":
        return MemorySystem()
    server = request.getfixturevalue("start_kafka")()
    servers.create_topics(server.bootstrap_servers, ["input"], PARTITIONS)
    servers.create_topics(server.bootstrap_servers, ["output"])
    return RealSystem(server.bootstrap_servers, "input", "output", "group", server)


def next_batch(source: Source, limit: int | None = None) -> Batch:
    """The next batch that is not empty, with ``limit`` records at most."""
    return servers.wait_until(lambda: source.poll(POLL_S, limit), what="a batch")


def values(batch: Batch) -> list[bytes | None]:
    return [record.value for record in batch.records]


def two_values(source: Source) -> list[bytes | None]:
    """Poll until two records have come."""
    read: list[bytes | None] = []
    servers.wait_until(lambda: read.extend(values(source.poll(POLL_S))) or len(read) == 2, what="both records")
    return read


def join(source: Source) -> None:
    """Poll until ``source`` owns all partitions; nothing must arrive meanwhile."""

    def owns() -> bool:
        assert not source.poll(POLL_S)
        return len(source.assigned()) == PARTITIONS

    servers.wait_until(owns, what="all partitions")


def join_at_least(source: Source) -> None:
    """Poll until ``source`` owns all partitions and has positions in them."""
    servers.wait_until(
        lambda: source.poll(POLL_S) is not None and len(source.stats().lags) == PARTITIONS, what="positions"
    )


def share(system: System, left: Source, right: Source) -> None:
    """Return when each of two members owns one partition."""
    with system.kept(left, right):
        servers.wait_until(
            lambda: len(left.assigned()) == len(right.assigned()) == 1, what="a partition for each of two"
        )


def test_a_group_starts_at_the_first_record_and_reads_in_order(system, open_ends):
    system.produce(b"a", b"b", b"c")
    source, _ = open_ends(system.transport())
    batch = next_batch(source)
    assert values(batch) == [b"a", b"b", b"c"]
    assert [record.position.offset for record in batch.records] == [0, 1, 2]
    assert batch.starts == {Partition(system.input, 0): 0}
    assert batch.next_offsets == {Partition(system.input, 0): 3}
    assert batch.generation >= 0


def test_a_poll_returns_no_more_records_than_asked_for(system, open_ends):
    system.produce(*(b"%d" % number for number in range(7)))
    source, _ = open_ends(system.transport(max_poll_records=4))
    first = next_batch(source)
    source.rewind(first)
    sizes = [len(next_batch(source, limit).records) for limit in (2, 1, 10)]
    assert len(first.records) == 4
    assert sizes == [2, 1, 4]


def test_a_member_knows_of_the_partitions_of_others_too(system, open_ends):
    left, _ = open_ends(system.transport())
    right, _ = open_ends(system.transport())
    share(system, left, right)
    for source in (left, right):
        assert source.partitions() == left.assigned() | right.assigned()


def test_a_poll_returns_the_records_that_are_there_and_does_not_wait_for_a_full_batch(system, open_ends):
    source, _ = open_ends(system.transport(max_poll_records=2_000))
    join(source)
    system.produce(b"a")
    limit_s = 120.0
    begin_s = time.monotonic()
    assert values(source.poll(limit_s)) == [b"a"]
    assert time.monotonic() - begin_s < limit_s / 2


def test_a_rewound_batch_comes_again_and_its_records_once(system, open_ends):
    system.produce(b"a", b"b")
    source, _ = open_ends(system.transport())
    first = next_batch(source)
    source.rewind(first)
    assert values(next_batch(source)) == values(first)
    assert not source.poll(0.05)


def test_a_batch_that_was_polled_ahead_and_the_one_before_it_are_rewound_together(system, open_ends):
    system.produce(*(b"%d" % number for number in range(6)))
    source, _ = open_ends(system.transport())
    first, ahead = next_batch(source, 2), next_batch(source, 2)
    assert [values(first), values(ahead)] == [[b"0", b"1"], [b"2", b"3"]]
    for batch in (ahead, first):
        source.rewind(batch)
    assert values(next_batch(source)) == [b"%d" % number for number in range(6)]


@pytest.mark.parametrize("exactly_once", [True, False])
def test_a_batch_is_committed_alone_while_another_was_polled_ahead(system, open_ends, exactly_once):
    system.produce(*(b"%d" % number for number in range(6)))
    source, sink = open_ends(system.transport(exactly_once=exactly_once))
    first, ahead = next_batch(source, 2), next_batch(source, 2)
    partition = Partition(system.input, 0)
    sink.publish([], first)
    assert source.committed_offset(partition).offset == 2
    sink.publish([], ahead)
    assert source.committed_offset(partition).offset == 4
    assert values(next_batch(source)) == [b"4", b"5"]


def test_reading_begins_at_the_first_record_of_a_time_or_later(system, open_ends):
    first, second = Partition(system.input, 0), Partition(system.input, 1)
    for number, hours in enumerate((2, 9, 5, 12)):
        system.produce(b"%d" % number, timestamp_ms=NOW_MS + hours * HOUR_MS)
    system.produce(b"old", partition=1, timestamp_ms=NOW_MS)
    source, _ = open_ends(system.transport())
    join_at_least(source)
    times_ms = {first: NOW_MS + 8 * HOUR_MS, second: NOW_MS + 1}
    starts = source.first_since(times_ms)
    # The partition without such a record begins at its end.
    assert starts == {first: 1, second: 1}
    source.seek(starts)
    assert values(next_batch(source)) == [b"1", b"2", b"3"]
    system.produce(b"new", partition=1, timestamp_ms=NOW_MS)
    assert values(next_batch(source)) == [b"new"]


def test_a_record_of_an_open_transaction_is_not_skipped(system, open_ends):
    partition = Partition(system.input, 0)
    system.produce(b"old", timestamp_ms=NOW_MS)
    source, _ = open_ends(system.transport())
    join_at_least(source)
    with system.uncommitted(b"young", NOW_MS + HOUR_MS):
        system.produce(b"behind", timestamp_ms=NOW_MS + HOUR_MS)
        starts = source.first_since({partition: NOW_MS + 1})
        assert starts == {partition: 1}
        source.seek(starts)
    assert two_values(source) == [b"young", b"behind"]


def test_a_partition_of_another_member_is_not_moved(system, open_ends):
    left, _ = open_ends(system.transport("left"))
    right, _ = open_ends(system.transport("right"))
    share(system, left, right)
    left.seek(dict.fromkeys(right.assigned(), 7))
    for partition in right.assigned():
        system.produce(b"a", partition=partition.partition)
    with system.kept(left):
        assert values(next_batch(right)) == [b"a"]


@pytest.mark.parametrize("exactly_once", [True, False])
def test_publishing_commits_and_a_new_source_goes_on_behind(system, open_ends, exactly_once):
    system.produce(b"a")
    source, sink = open_ends(system.transport(exactly_once=exactly_once))
    batch = next_batch(source)
    sink.publish([Message(system.output, b"k", b"alert", (("h", b"v"),), 7)], batch)
    # The marker of the commit comes after the answer.
    servers.wait_until(lambda: system.published() == [b"alert"], what="the committed message")
    assert source.committed_offset(Partition(system.input, 0)).offset == 1
    source.close()
    sink.close()
    system.produce(b"b")
    source, _ = open_ends(system.transport(exactly_once=exactly_once))
    assert values(next_batch(source)) == [b"b"]


def test_what_was_not_published_comes_again_to_a_new_source(system, open_ends):
    system.produce(b"a")
    source, _ = open_ends(system.transport())
    assert values(next_batch(source)) == [b"a"]
    source.close()
    source, _ = open_ends(system.transport())
    assert values(next_batch(source)) == [b"a"]


def test_partitions_that_arrive_while_holding_are_held_too(system, open_ends):
    system.produce(b"a")
    system.produce(b"b", partition=1)
    source, _ = open_ends(system.transport())
    servers.wait_until(
        lambda: source.keep_membership(POLL_S) or len(source.assigned()) == PARTITIONS, what="an assignment"
    )
    source.keep_membership(POLL_S)
    assert sorted(two_values(source)) == [b"a", b"b"]


def test_two_members_share_the_partitions_and_a_kept_one_goes_on_where_it_was(system, open_ends):
    left, left_sink = open_ends(system.transport("left"))
    join(left)
    system.produce(b"a")
    system.produce(b"b", partition=1)
    found: list[bytes | None] = []

    def drain(source: Source, sink: Sink) -> None:
        if batch := source.poll(POLL_S):
            sink.publish([], batch)
            found.extend(values(batch))

    servers.wait_until(lambda: drain(left, left_sink) or len(found) == 2, what="the first records")
    right, right_sink = open_ends(system.transport("right"))
    share(system, left, right)
    assert not left.assigned() & right.assigned()
    assert left.stats().rebalances_count >= 2
    system.produce(b"c")
    system.produce(b"d", partition=1)
    for source, sink, other in ((left, left_sink, right), (right, right_sink, left)):
        with system.kept(other):
            batch = next_batch(source)
        found.extend(values(batch))
        sink.publish([], batch)
    assert sorted(found) == [b"a", b"b", b"c", b"d"]


def test_a_batch_of_a_kept_partition_is_not_rewound_by_a_rebalance(system, open_ends):
    left, _ = open_ends(system.transport("left"))
    join(left)
    system.produce(b"a")
    system.produce(b"b", partition=1)
    batches: list[Batch] = []

    def polled() -> bool:
        batch = left.poll(POLL_S)
        batches.extend([batch] if batch else [])
        return sum(len(batch.records) for batch in batches) == 2

    servers.wait_until(polled, what="both records")
    right, _ = open_ends(system.transport("right"))
    share(system, left, right)
    with system.kept(right):
        assert not left.poll(0.3)
        for batch in batches:
            left.rewind(batch)
        again = next_batch(left)
    assert len(again.records) == 1
    assert again.starts.keys() == left.assigned()


@pytest.mark.parametrize("exactly_once", [True, False])
def test_a_batch_that_the_group_has_moved_on_from_is_refused_whole(system, open_ends, exactly_once):
    system.produce(b"a")
    left, left_sink = open_ends(system.transport("left", exactly_once=exactly_once))
    late = next_batch(left)
    right, _ = open_ends(system.transport("right", exactly_once=exactly_once))
    share(system, left, right)
    with pytest.raises(BrokerUnavailable):
        left_sink.publish([Message(system.output, None, b"alert")], late)
    # Without transactions messages are sent before the commit that is refused.
    assert system.published() == ([] if exactly_once else [b"alert"])
    if exactly_once:
        with pytest.raises(BrokerUnavailable, match="unusable"):
            left_sink.publish([Message(system.output, None, b"later")], Batch())
        assert system.published() == []
        left.close()
        left_sink.close()
        system.transport("left").open()[1].close()
    assert right.committed_offset(Partition(system.input, 0)) is None


def test_a_member_without_partitions_has_the_generation_of_the_group(system, open_ends):
    sources = [open_ends(system.transport(name))[0] for name in ("one", "two", "three")]
    with system.kept(*sources):
        servers.wait_until(
            lambda: (
                len(generations := {source.generation() for source in sources}) == 1
                and None not in generations
                and sorted(len(source.assigned()) for source in sources) == [0, 1, 1]
            ),
            what="an assignment for three members",
        )


def replaced(source: Source) -> bool:
    """Tell whether a source has learned that another process holds its membership."""
    try:
        source.poll(POLL_S)
    except BrokerMisconfigured:
        return True
    return False


def test_a_static_member_that_is_replaced_keeps_generation_and_partitions_and_the_earlier_process_is_refused(
    system, open_ends
):
    earlier, sink = open_ends(system.transport("earlier", instance_id="one"))
    join(earlier)
    earlier.confirm()
    system.produce(b"a")
    batch = next_batch(earlier)
    later, _ = open_ends(system.transport("later", instance_id="one"))
    assert values(next_batch(later)) == [b"a"]
    assert later.generation() == batch.generation
    with pytest.raises((BrokerUnavailable, FatalError)):
        sink.publish([Message(system.output, None, b"alert")], batch)
    with pytest.raises(FatalError):
        earlier.confirm()
    servers.wait_until(lambda: replaced(earlier), what="the end of the earlier process")
    later.confirm()
    assert system.published() == []
    assert later.committed_offset(Partition(system.input, 0)) is None


def test_a_static_member_that_was_closed_is_in_the_group_until_its_session_ends(system, open_ends):
    source, _ = open_ends(system.transport(instance_id="one"))
    join(source)
    generation = source.generation()
    source.close()
    later, _ = open_ends(system.transport(instance_id="one"))
    join(later)
    assert later.generation() == generation


def test_a_group_that_was_deleted_has_no_offsets_and_counts_its_generations_anew(system, open_ends):
    system.produce(b"a")
    for _ in range(2):
        source, sink = open_ends(system.transport())
        join_at_least(source)
        source.close()
    source, sink = open_ends(system.transport())
    batch = next_batch(source)
    sink.publish([], batch)
    assert batch.generation > 1
    sink.close()
    source.close()
    system.delete_group()
    source, _ = open_ends(system.transport())
    again = next_batch(source)
    assert values(again) == [b"a"]
    assert again.generation == 1
    assert source.committed_offset(Partition(system.input, 0)) is None


def test_of_records_that_were_removed_reading_begins_at_the_first_that_is_left(system, open_ends):
    system.produce(b"a", b"b", b"c", b"d")
    source, sink = open_ends(system.transport(max_poll_records=1))
    sink.publish([], next_batch(source))
    source.close()
    system.remove_records(2)
    source, _ = open_ends(system.transport())
    batch = next_batch(source)
    assert values(batch) == [b"c", b"d"]
    assert batch.starts == {Partition(system.input, 0): 2}
    committed_offset = source.committed_offset(Partition(system.input, 0))
    assert committed_offset is not None
    assert committed_offset.offset == 1


def test_a_history_keeps_all_records_unless_older_ones_are_removed_or_the_topic_is_compacted(system):
    partition, history = Partition(system.input, 0), system.history()
    system.produce(b"a", b"b", b"c")
    assert history.keeps_all({partition: 0})
    system.remove_records(2)
    assert [history.keeps_all({partition: start}) for start in (1, 2)] == [False, True]
    system.compact()
    servers.wait_until(lambda: not history.keeps_all({partition: 2}), what="compaction")


def test_of_a_topic_that_was_created_again_neither_earlier_offsets_nor_earlier_losses_count(system, open_ends):
    partition = Partition(system.input, 0)
    system.produce(b"a")
    source, sink = open_ends(system.transport())
    batch = next_batch(source)
    sink.publish([], batch)
    assert source.committed_offset(partition) == CommittedOffset(1, topic_id=batch.topic_ids[system.input])
    source.close()
    system.remove_records(1)
    system.compact()
    system.recreate(offsets_deleted=False)
    system.produce(b"b", b"c")
    source, _ = open_ends(system.transport())
    again = next_batch(source)
    # The earlier offset exists in the new topic: nothing but the topic id tells.
    assert values(again) == [b"b", b"c"]
    assert again.topic_ids[system.input] != batch.topic_ids[system.input]
    assert source.committed_offset(partition) is None
    assert source.committed_offsets() == {}
    assert system.history().keeps_all({partition: 0})


def test_a_member_has_to_rejoin_when_a_topic_was_created_again(system, open_ends):
    source, _ = open_ends(system.transport())
    join(source)
    system.recreate()
    with pytest.raises(Rejoin):
        servers.wait_until(lambda: source.poll(POLL_S), what="the new topic")


def test_partitions_that_are_added_are_assigned_and_read_from_their_first_offset(system, open_ends):
    source, _ = open_ends(system.transport())
    join(source)
    generation = source.generation()
    system.add_partitions(PARTITIONS + 1)
    system.produce(b"a", b"b", partition=PARTITIONS)
    batch = next_batch(source)
    assert values(batch) == [b"a", b"b"]
    assert batch.starts == {Partition(system.input, PARTITIONS): 0}
    assert batch.generation > generation
    assert len(source.assigned()) == PARTITIONS + 1


def test_an_aborted_record_is_not_read_and_its_offset_and_marker_are_passed_and_counted(system, open_ends):
    partition = Partition(system.input, 0)
    system.produce(b"a", timestamp_ms=NOW_MS)
    with system.uncommitted(b"aborted", NOW_MS + HOUR_MS, is_aborted=True):
        system.produce(b"b", timestamp_ms=NOW_MS)
    with system.history().open([system.input], None, None) as span:
        assert [value for batch in span.batches() for value in values(batch)] == [b"a", b"b"]
        assert (span.total_count, span.done_count()) == (4, 4)
    source, sink = open_ends(system.transport())
    batch = next_batch(source)
    assert [(record.value, record.position.offset) for record in batch.records] == [(b"a", 0), (b"b", 2)]
    sink.publish([], batch)
    assert source.committed_offset(partition).offset == 3
    servers.wait_until(lambda: not source.poll(POLL_S) and source.end(partition) == 4, what="the end")
    progress = system.history().progress([system.input], {partition: 3}, NOW_MS + 2 * HOUR_MS, lambda: None)
    assert progress == {partition: ReadProgress(is_read=True, time_ms=NOW_MS)}
    system.produce(b"c")
    assert next_batch(source).starts == {partition: 4}


def test_the_next_generation_reads_from_an_offset_that_another_program_has_set(system, open_ends):
    partition = Partition(system.input, 0)
    system.produce(b"a", b"b", b"c")
    source, sink = open_ends(system.transport())
    batch = replace(next_batch(source), metadata="attempt")
    sink.publish([], batch)
    assert source.committed_offset(partition) == CommittedOffset(3, "attempt", batch.topic_ids[system.input])
    source.close()
    system.set_offset(1)
    source, _ = open_ends(system.transport())
    assert values(next_batch(source)) == [b"b", b"c"]
    assert source.committed_offset(partition) == CommittedOffset(1)


def test_a_later_sink_of_the_same_id_fences_the_earlier(system, open_ends):
    system.produce(b"a")
    source, earlier = open_ends(system.transport())
    batch = next_batch(source)
    open_ends(system.transport())
    with pytest.raises(ProducerFenced):
        earlier.publish([Message(system.output, None, b"alert")], batch)
    assert system.published() == []


def test_unreadable_records_are_reported_with_their_place_and_passed_by_committing(system, open_ends):
    system.produce(b"a")
    system.produce(b"bad", readable=False)
    system.produce(b"c")
    source, sink = open_ends(system.transport())
    seen: list[Any] = []

    def step() -> bool:
        if batch := source.poll(POLL_S):
            seen.extend(values(batch) + [(entry.position.offset, bool(entry.reason)) for entry in batch.unreadable])
            sink.publish([], batch)
        return len(seen) == 3

    servers.wait_until(step, what="all records")
    assert seen == [b"a", (1, True), b"c"]
    assert source.committed_offset(Partition(system.input, 0)).offset == 3


def test_a_rewound_unreadable_record_is_reported_again(system, open_ends):
    system.produce(b"bad", readable=False)
    source, _ = open_ends(system.transport())
    first = next_batch(source)
    assert [entry.position.offset for entry in first.unreadable] == [0]
    source.rewind(first)
    assert next_batch(source).unreadable == first.unreadable


def test_the_lag_is_what_is_left_to_read(system, open_ends):
    system.produce(b"a", b"b", b"c", b"d", b"e")
    source, sink = open_ends(system.transport(max_poll_records=2))
    sink.publish([], next_batch(source))
    assert source.stats().lags[Partition(system.input, 0)] == 3
    for _ in range(2):
        sink.publish([], next_batch(source))
    assert source.stats().lags[Partition(system.input, 0)] == 0


def test_a_source_that_holds_learns_the_ends_when_it_asks(system, open_ends):
    partition = Partition(system.input, 0)
    system.produce(b"a", b"b")
    source, sink = open_ends(system.transport())
    sink.publish([], next_batch(source))
    source.keep_membership(0.0)
    system.produce(b"c", b"d", b"e")
    source.keep_membership(0.1)
    source.request_ends()
    assert (source.stats().lags[partition], source.end(partition)) == (3, 5)
    assert values(next_batch(source)) == [b"c", b"d", b"e"]


def test_an_open_transaction_does_not_lower_the_known_end(system, open_ends):
    partition = Partition(system.input, 0)
    system.produce(b"a", b"b")
    source, sink = open_ends(system.transport())
    sink.publish([], next_batch(source))
    with system.uncommitted(b"c", NOW_MS):
        servers.wait_until(lambda: not source.poll(POLL_S) and source.end(partition) == 3, what="the end")
        source.request_ends()
        assert (source.stats().lags[partition], source.end(partition)) == (1, 3)


def test_silence_is_noticed_although_nothing_is_under_way_and_the_same_ends_go_on_after_it(own_system, open_ends):
    source, sink = open_ends(own_system.transport())
    join(source)
    rebalances = source.stats().rebalances_count

    def polled() -> Batch | None:
        """What a poll returns; None when it says that nobody answers."""
        try:
            return source.poll(POLL_S)
        except BrokerSilent:
            return None

    with own_system.silenced():
        servers.wait_until(lambda: polled() is None, what="silence")
        source.keep_membership(POLL_S)
        assert polled() is None
    own_system.produce(b"a")
    batch = servers.wait_until(polled, what="the record")
    assert values(batch) == [b"a"]
    sink.publish([], batch)
    assert source.stats().rebalances_count == rebalances


def test_a_closed_end_can_be_closed_again_and_refuses_work(system, open_ends):
    source, sink = open_ends(system.transport())
    for end in (source, sink, source, sink):
        end.close()
    message = Message(system.output, None, b"alert")
    for work in (
        lambda: source.poll(POLL_S),
        lambda: source.keep_membership(POLL_S),
        lambda: sink.publish([message], Batch()),
    ):
        with pytest.raises(BrokerUnavailable):
            work()
