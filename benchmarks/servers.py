"""Private servers of the benchmarks, and readings of their state."""

import os
import shutil
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import redis
from kafka import KafkaAdminClient
from kafka.errors import KafkaError

from benchmarks.datasets import Text
from streamdedup.embedded import RedisServer
from streamdedup.embedded.redis import find_redis
from streamdedup.kafka.options import KafkaOptions
from streamdedup.kafka.producer import Feeder
from tests.servers import kafka_jars
from tests.support.kafka import KAFKA_VERSION, KafkaServer

#: The Redis server program, if installed; else that of the wheel.
REDIS_PROGRAM = "redis-server"


def make_redis(program: str | None = None) -> RedisServer:
    """Return a Redis server, not started yet.

    Raises:
        MissingToolError: There is no such program.
    """
    return RedisServer(redis_program(program))


def redis_program(program: str | None = None) -> str | None:
    """Return the Redis server program to take; None for the one in the wheel."""
    return program or (REDIS_PROGRAM if shutil.which(REDIS_PROGRAM) else None)


def redis_programs(program: str | None = None) -> list[str]:
    """Return the Redis server programs to compare: the installed one, if any, and the one in the wheel, Valkey.

    Args:
        program: The only one.
    """
    return [program] if program else list(dict.fromkeys([redis_program() or find_redis(), find_redis()]))


def make_kafka() -> KafkaServer:
    """Return a broker that runs as fast as it can, not started yet.

    Raises:
        MissingToolError: Java or Maven is not installed.
    """
    return KafkaServer(kafka_jars(), fast_start=False)


def name_of_kafka() -> str:
    """Return name and version of the broker."""
    return f"Apache Kafka {KAFKA_VERSION}, one node"


def name_of_redis(client: "redis.Redis") -> str:
    """Return name, version and allocator of the server."""
    server: dict[str, Any] = client.info("server")
    memory: dict[str, Any] = client.info("memory")
    kind = "Valkey" if "valkey_version" in server else "Redis"
    return f"{kind} {server.get('valkey_version', server['redis_version'])} with {memory['mem_allocator']}"


def empty(client: "redis.Redis") -> None:
    """Delete everything, now and not in the background."""
    client.execute_command("FLUSHALL", "SYNC")


def used_bytes(client: "redis.Redis") -> int:
    """Return the memory that the server has allocated."""
    memory: dict[str, Any] = client.info("memory")
    return int(memory["used_memory"])


def cpu_s(pid: int) -> float:
    """Return the processor time of a process and its threads, in seconds; 0 where the system hides it."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def busy_s() -> float:
    """Return the processor time of all processes of the machine, in seconds; 0 where the system hides it."""
    try:
        fields = Path("/proc/stat").read_text(encoding="utf-8").partition("\n")[0].split()[1:9]
    except OSError:
        return 0.0
    user, nice, system, _idle, _waiting, interrupts, soft_interrupts, stolen = map(int, fields)
    return (user + nice + system + interrupts + soft_interrupts + stolen) / os.sysconf("SC_CLK_TCK")


def create_topic(kafka: str, name: str, partitions: int) -> None:
    """Create a topic and wait until its partitions have leaders."""
    with closing(KafkaAdminClient(bootstrap_servers=kafka.split(","))) as admin:
        admin.create_topics({name: {"num_partitions": partitions, "replication_factor": 1}}, wait_for_metadata=True)


def fill(kafka: str, topic: str, documents: Iterable[Text], encode: Any) -> None:
    """Send documents to a topic, each keyed by its id, and wait until all are stored."""
    options = KafkaOptions(bootstrap_servers=kafka, group_id="none", topics=(topic,), transactional_id="none")
    with Feeder(options) as feeder:
        for document in documents:
            feeder.send(topic, document.id.encode(), encode({"id": document.id, "text": document.text}))


def committed_count(admin: Any, group: str) -> int:
    """Return the sum of a group's committed offsets; 0 while it has no coordinator yet."""
    try:
        offsets = admin.list_group_offsets(group)[group]
    except KafkaError as error:
        if not error.retriable:
            raise
        return 0
    return sum(max(0, stored.offset) for stored in offsets.values())
