"""Private servers of the benchmarks, and readings of their state."""

import json
import os
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import redis

from benchmarks.datasets import Text
from streamdedup.embedded import ManagedProcess, RedisServer, find_redis
from streamdedup.kafka.options import KafkaOptions
from streamdedup.kafka.producer import Feeder


class ModuleProcess(ManagedProcess):
    """A function of a module of the benchmarks as a process, ready as soon as it runs; arguments as for ``call``."""

    def __init__(self, module: str, function: str, **arguments: object) -> None:
        super().__init__(module)
        self._command = call(module, function, **arguments)

    def command(self) -> list[str]:
        return self._command

    def is_ready(self) -> bool:
        return self.is_running()


def call(module: str, function: str, **arguments: object) -> list[str]:
    """Return the command line that calls a function of a module of the benchmarks with arguments that JSON can hold."""
    return [sys.executable, "-W", "ignore", "-m", "benchmarks.called", module, function, json.dumps(arguments)]


def make_redis() -> RedisServer:
    return RedisServer(redis_programs()[0])


def redis_programs() -> list[str]:
    """Return the Redis server programs to compare: the installed one, if any, and the one in the wheel, Valkey."""
    return list(dict.fromkeys([shutil.which("redis-server") or find_redis(), find_redis()]))


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


def fill(kafka: str, topic: str, documents: Iterable[Text], encode: Any) -> None:
    """Send documents to a topic, each keyed by its id, and wait until all are stored."""
    options = KafkaOptions(bootstrap_servers=kafka, group_id="none", topics=(topic,), transactional_id="none")
    with Feeder(options) as feeder:
        for document in documents:
            feeder.send(topic, document.id.encode(), encode({"id": document.id, "text": document.text}))
