"""Help for tests that talk to real servers: wait for conditions, make topics, fill them, read them to their end."""

import contextlib
import os
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition

from streamdedup.embedded import RedisServer
from streamdedup.kafka.compat import ClosingSelector
from streamdedup.kafka.options import KafkaOptions
from tests.support.kafka import KafkaServer, fetch_kafka
from tests.support.registry import RegistryServer, fetch_registry

T = TypeVar("T")

# The tests' own clients leave no socket to the garbage collector, which would report it in some later test.
for _kind in (KafkaAdminClient, KafkaConsumer, KafkaProducer):
    _kind.DEFAULT_CONFIG["selector"] = ClosingSelector

#: Seconds that anything asked of a server may take before the test fails: many times as long as on a busy machine.
DEADLINE_S = 120.0
#: Seconds between two looks at a condition.
POLL_S = 0.02


def wait_until(condition: Callable[[], T], timeout_s: float = DEADLINE_S, what: str = "the condition") -> T:
    """Return the first true value of ``condition``, asked again and again.

    Raises:
        TimeoutError: It stayed false for ``timeout_s`` seconds; the text says ``what`` was waited for.
    """
    end = time.monotonic() + timeout_s
    while not (value := condition()):
        if time.monotonic() > end:
            raise TimeoutError(f"waited {timeout_s:g} s in vain for {what}; last value: {value!r}")
        time.sleep(POLL_S)
    return value


class NotUtf8(str):
    """A header name that is no UTF-8 on the wire, which other clients write and this one cannot parse."""

    __slots__ = ()

    def encode(self, *_arguments: Any) -> bytes:
        return b"\xff"


class Unavailable(pytest.skip.Exception):
    """A test is skipped because a server program is not installed; the text says how to install it."""


def unavailable(error: Exception) -> NoReturn:
    """Answer a server that cannot be started: a skip on a laptop, a failure under CI.

    Raises:
        Unavailable: The variable CI is not set.
    """
    if os.environ.get("CI"):
        pytest.fail(f"{error}", pytrace=False)
    raise Unavailable(f"{error}")


def fresh_name(kind: str) -> str:
    """Return a name that nothing else has, for a topic, a group, a transactional id or a key prefix."""
    return f"{kind}-{uuid.uuid4().hex[:12]}"


def cache() -> Path:
    """Return the folder of fetched programs."""
    folder = os.environ.get("XDG_CACHE_HOME")
    return (Path(folder) if folder else Path.home() / ".cache") / "streamdedup"


def kafka_jars() -> Path:
    """Return the folder of Kafka's jars in the user's cache, fetched at the first use."""
    return fetch_kafka(cache())


def make_registry(database: Path | None = None) -> RegistryServer:
    """Return a schema registry of the test's own, not started yet; fetched into the user's cache at the first use."""
    return RegistryServer(fetch_registry(cache()), database)


def make_kafka(**options: Any) -> KafkaServer:
    """Return a Kafka of the test's own, not started yet; ``options`` as for ``KafkaServer``."""
    return KafkaServer(kafka_jars(), **options)


#: Options of a Redis whose acknowledged writes survive a restart, also after kill -9. The server writes before it
#: answers. "everysec" would delay writes during an fsync, and lose them with the process; without fsync only a crash of
#: the machine loses them.
PERSISTENT = {"appendonly": "yes", "appendfsync": "no"}


def make_redis(program: str | None, **options: Any) -> RedisServer:
    """Return a Redis of the test's own, not started yet; ``options`` as for ``RedisServer``."""
    return RedisServer(program, **options)


def admin_client(bootstrap: str, **options: Any) -> KafkaAdminClient:
    """Return a client for topics and groups; close it."""
    return KafkaAdminClient(bootstrap_servers=bootstrap.split(","), **options)


def kafka_options(bootstrap: str, *topics: str, **changes: Any) -> KafkaOptions:
    """Return the options of a member of a group of its own, for these topics or one that is named input."""
    fixed = {"group_id": fresh_name("group"), "transactional_id": fresh_name("id")}
    return KafkaOptions(bootstrap_servers=bootstrap, topics=topics or ("input",), **(fixed | changes))


def create_topics(
    bootstrap: str, names: Iterable[str], partitions: int = 1, configs: Mapping[str, str] | None = None
) -> None:
    """Create topics and wait until every partition has a leader; replicated as the cluster's default says."""
    topic = {"num_partitions": partitions, "replication_factor": -1, "configs": dict(configs or {})}
    with contextlib.closing(admin_client(bootstrap)) as admin:
        admin.create_topics(dict.fromkeys(names, topic), wait_for_metadata=True)


def produce(bootstrap: str, topic: str, values: Iterable[bytes | None], **fields: Any) -> None:
    """Append ``values`` and wait until all are acknowledged; ``fields`` (key, partition...) go to each record."""
    with contextlib.closing(KafkaProducer(bootstrap_servers=bootstrap.split(","), linger_ms=5)) as producer:
        futures = [producer.send(topic, value=value, **fields) for value in values]
        producer.flush(DEADLINE_S)
        for future in futures:
            future.get(0)


def produce_in_transactions(bootstrap: str, topic: str, *outcomes: tuple[bytes, bool], **fields: Any) -> None:
    """Append values in a transaction each, which is committed or aborted; ``fields`` go to each record."""
    options = {"transactional_id": fresh_name("producer"), "retry_backoff_ms": 20}
    with contextlib.closing(KafkaProducer(bootstrap_servers=bootstrap.split(","), **options)) as producer:
        producer.init_transactions()
        for value, committed in outcomes:
            producer.begin_transaction()
            producer.send(topic, value=value, **fields).get(DEADLINE_S)
            (producer.commit_transaction if committed else producer.abort_transaction)()


def read_topic(
    bootstrap: str, topic: str, *, isolation: str = "read_committed", timeout_s: float = DEADLINE_S, **login: Any
) -> list[Any]:
    """Return all records of ``topic`` up to the end that it has now, partition by partition, in order of offsets.

    Under read_committed the end is that of the last finished transaction: what an open one holds back is not waited
    for.

    Args:
        bootstrap: Addresses of the brokers.
        topic: Which topic.
        isolation: "read_committed", or "read_uncommitted" to see aborted records too.
        timeout_s: Longest time to wait, in seconds.
        login: The client's options for TLS and login.

    Raises:
        TimeoutError: The end was not reached.
    """
    options = {"isolation_level": isolation, "enable_auto_commit": False, "auto_offset_reset": "earliest", **login}
    with contextlib.closing(KafkaConsumer(bootstrap_servers=bootstrap.split(","), group_id=None, **options)) as reader:
        partitions = [TopicPartition(topic, number) for number in sorted(reader.partitions_for_topic(topic) or ())]
        if not partitions:
            raise LookupError(f"there is no topic {topic}")
        reader.assign(partitions)
        reader.seek_to_beginning()
        ends = reader.end_offsets(partitions)
        records: dict[TopicPartition, list[Any]] = {partition: [] for partition in partitions}
        deadline = time.monotonic() + timeout_s
        while any(reader.position(partition) < end for partition, end in ends.items()):
            if time.monotonic() > deadline:
                positions = {partition: reader.position(partition) for partition in partitions}
                raise TimeoutError(f"after {timeout_s:g} s {topic} was read to {positions} of {ends}")
            for partition, polled in reader.poll(timeout_ms=200).items():
                records[partition] += [record for record in polled if record.offset < ends[partition]]
        return [record for partition in partitions for record in records[partition]]


def wait_no_transaction(bootstrap: str, topics: Iterable[str], timeout_s: float = DEADLINE_S, **login: Any) -> None:
    """Wait until no transaction is open in topics that nobody writes to; ``login`` as for ``read_topic``."""
    what = f"the end of all transactions in {topics}"
    wait_until(lambda: not has_open_transaction(bootstrap, topics, **login), timeout_s, what)


def has_open_transaction(bootstrap: str, topics: Iterable[str], **login: Any) -> bool:
    """Tell whether a transaction is open in topics; ``login`` as for ``read_topic``."""

    def ends(isolation: str) -> dict[TopicPartition, int]:
        with contextlib.closing(
            KafkaConsumer(bootstrap_servers=bootstrap.split(","), group_id=None, isolation_level=isolation, **login)
        ) as reader:
            partitions = [TopicPartition(topic, at) for topic in topics for at in reader.partitions_for_topic(topic)]
            found: dict[TopicPartition, int] = reader.end_offsets(partitions)
            return found

    return ends("read_committed") != ends("read_uncommitted")


def committed_metadata(bootstrap: str, group: str) -> dict[tuple[str, int], str]:
    """Return what ``group`` has committed along with its offsets, by topic and partition."""
    with contextlib.closing(admin_client(bootstrap)) as admin:
        offsets = admin.list_group_offsets(group)[group]
    return {(partition.topic, partition.partition): value.metadata for partition, value in offsets.items()}


def committed_offsets(bootstrap: str, group: str) -> dict[tuple[str, int], int]:
    """Return what ``group`` has committed: offset by topic and partition."""
    with contextlib.closing(admin_client(bootstrap)) as admin:
        offsets = admin.list_group_offsets(group)[group]
    return {(partition.topic, partition.partition): value.offset for partition, value in offsets.items()}
