"""A broker, a Redis server, filled topics, and a clock for the consumers of the topics.

A consumer is started as a process of its own, and its committed offsets are read twenty times a second: a round
lasts from the first commit seen to the last, so that the start does not count.
"""

import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgspec
import redis
from kafka import KafkaAdminClient
from kafka.errors import KafkaError

from benchmarks import servers
from benchmarks.datasets import REPOSITORY, Text
from benchmarks.report import Table, table
from benchmarks.servers import ModuleProcess
from streamdedup.cli.demo_servers import DaemonProcess, forget_settings
from streamdedup.embedded import ManagedProcess, RedisServer, ServerError
from tests.servers import create_topics, fresh_name, make_kafka, read_topic
from tests.support.kafka import KAFKA_VERSION, KafkaServer

#: Partitions of each topic.
PARTITIONS = 4
#: Pause between two readings of the committed offsets, in seconds.
LOOK_S = 0.05
#: Longest wait for a further commit, in seconds.
PATIENCE_S = 60.0
#: Makes the value of a document.
Encode = Callable[[Mapping[str, Any]], bytes]


@dataclass(frozen=True)
class Reading:
    """One reading of the counters."""

    at_s: float
    committed: int
    cpu_s: dict[str, float]
    others_s: float
    stages_s: dict[str, float]


@dataclass(frozen=True)
class Round:
    """One round of one contender, from its first commit to its last."""

    documents_per_s: float
    cpu_us: dict[str, float]
    stages_us: dict[str, float]
    others_share: float

    @classmethod
    def between(cls, first: Reading, last: Reading) -> "Round":
        count, seconds = last.committed - first.committed, last.at_s - first.at_s
        return cls(
            count / seconds,
            {name: 1e6 * (last.cpu_s[name] - used) / count for name, used in first.cpu_s.items()},
            {name: 1e6 * (last.stages_s[name] - spent) / count for name, spent in first.stages_s.items()},
            max(0.0, last.others_s - first.others_s) / (seconds * (os.cpu_count() or 1)),
        )


@dataclass(frozen=True)
class Job:
    """Work of a contender: a filled topic, and unique names."""

    topic: str
    group: str
    output: str


#: Makes the processes that share a job.
Make = Callable[[Job], list[ManagedProcess]]


class OtherDaemon(DaemonProcess):
    """The daemon of another checkout, with the environment in its folder ``.venv``."""

    def __init__(self, checkout: Path, directory: Path, settings: str) -> None:
        super().__init__(directory, settings)
        self._checkout = checkout.resolve()

    def command(self) -> list[str]:
        """Return the command line; the variable would otherwise name the code that is measured here."""
        python = self._checkout / ".venv" / "bin" / "python"
        environment = ["env", f"PYTHONPATH={self._checkout}"]
        return [*environment, str(python), "-m", "streamdedup", "run", "--config", str(self.config_path)]


class World:
    """The servers and the filled topics."""

    def __init__(self, stack: ExitStack) -> None:
        forget_settings()
        # The consumers run in other folders, and must find the measured code.
        os.environ["PYTHONPATH"] = str(REPOSITORY)
        self.folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="streamdedup-bench-")))
        self.redis: RedisServer = stack.enter_context(servers.make_redis())
        self._kafka: KafkaServer = stack.enter_context(make_kafka(fast_start=False))
        self.address = self._kafka.bootstrap_servers
        # Deleting a large index is one command.
        self._client = stack.enter_context(redis.Redis.from_url(self.redis.url, socket_timeout=PATIENCE_S))
        self._admin: Any = stack.enter_context(closing(KafkaAdminClient(bootstrap_servers=self.address)))
        self._filled: dict[str, int] = {}

    @classmethod
    @contextmanager
    def started(cls) -> Iterator["World"]:
        with ExitStack() as stack:
            yield cls(stack)

    def servers(self) -> str:
        return f"Apache Kafka {KAFKA_VERSION}, one node; {servers.name_of_redis(self._client)}"

    def fill(self, topic: str, documents: list[Text], encode: Encode = msgspec.json.encode) -> None:
        create_topics(self.address, [topic], PARTITIONS)
        servers.fill(self.address, topic, documents, encode)
        self._filled[topic] = len(documents)

    def daemon(
        self,
        job: Job,
        kafka: Mapping[str, Any] | None = None,
        profile: Mapping[str, Any] | None = None,
        *,
        store: Mapping[str, Any] | None = None,
        checkout: Path | None = None,
        registry: str | None = None,
    ) -> DaemonProcess:
        """Return a daemon; ``kafka``, ``profile`` and ``store`` are keys of sections that differ from the defaults."""
        names = {"bootstrap_servers": self.address, "group_id": job.group, "duplicates_topic": job.output}
        sections: dict[str, dict[str, Any]] = {
            "kafka": names | dict(kafka or {}),
            "redis": {"url": self.redis.url, **(store or {})},
            "profiles.articles": {"topics": [job.topic], **(profile or {})},
        }
        if registry is not None:
            sections["schema_registry"] = {"url": registry}
        text = "[service]\nmetrics_port = {port}\n"
        for title, keys in sections.items():
            # A JSON text or number is one of TOML too.
            lines = [f"{key} = {msgspec.json.encode(value).decode()}" for key, value in keys.items()]
            text += "\n".join([f"[{title}]", *lines, ""])
        directory = self.folder / fresh_name("daemon")
        return DaemonProcess(directory, text) if checkout is None else OtherDaemon(checkout, directory, text)

    def consumer(self, job: Job, function: str, **more: object) -> ModuleProcess:
        """Return a consumer, a function of `benchmarks.consumers`, with its further arguments."""
        return ModuleProcess("consumers", function, kafka=self.address, **asdict(job), **more)

    def measure(self, topic: str, make: Make) -> Round:
        """Run processes over a topic, with an empty index, a new group and an empty output."""
        job, count = self._job(topic), self._filled[topic]
        with self._started(make(job)) as processes:
            first = self._await(processes, job, 1)
            last = self._await(processes, job, count)
        if first.committed == last.committed:
            raise ServerError("everything was committed at once; there must be more documents")
        return Round.between(first, last)

    def alerts(self, topic: str, make: Make) -> list[bytes]:
        """Run processes over a topic in the same way, and return the records that a subscriber gets."""
        job = self._job(topic)
        with self._started(make(job)) as processes:
            self._await(processes, job, self._filled[topic])
        return [record.value for record in read_topic(self.address, job.output)]

    def empty_job(self) -> Job:
        topic = fresh_name("input")
        create_topics(self.address, [topic], PARTITIONS)
        return self._job(topic)

    def committed_count(self, job: Job) -> int:
        """Return the number of documents of a job that its consumers have committed; 0 without a coordinator yet."""
        try:
            offsets = self._admin.list_group_offsets(job.group)[job.group]
        except KafkaError as error:
            if not error.retriable:
                raise
            return 0
        return sum(max(0, stored.offset) for stored in offsets.values())

    @property
    def kafka_pid(self) -> int:
        return self._kafka.brokers[0].pid

    def _job(self, topic: str) -> Job:
        servers.empty(self._client)
        job = Job(topic, fresh_name("group"), fresh_name("duplicates"))
        create_topics(self.address, [job.output, f"{job.output}.dlq"], PARTITIONS)
        return job

    @contextmanager
    def _started(self, processes: list[ManagedProcess]) -> Iterator[list[ManagedProcess]]:
        with ExitStack() as stack:
            for process in processes:
                stack.enter_context(closing(process))
                process.choose_ports()
                process.spawn()
            for process in processes:
                process.wait_ready()
            yield processes

    def _await(self, processes: Sequence[ManagedProcess], job: Job, count: int) -> Reading:
        """Wait until so many documents are committed or a process ends."""
        seen, changed_s = -1, time.monotonic()
        while True:
            committed, now_s = self.committed_count(job), time.monotonic()
            if committed >= count:
                return self._look(processes, committed, now_s)
            if committed != seen:
                seen, changed_s = committed, now_s
            stuck = now_s - changed_s > PATIENCE_S
            for process in processes:
                if stuck or not process.is_running():
                    raise ServerError(f"{process.name}: no more than {committed} of {count}{process.log_tail()}")
            time.sleep(LOOK_S)

    def _look(self, processes: Sequence[ManagedProcess], committed: int, now_s: float) -> Reading:
        cpu_s = {
            "consumer": sum(servers.cpu_s(process.pid) for process in processes),
            "Redis": servers.cpu_s(self.redis.pid),
            "Kafka": servers.cpu_s(self.kafka_pid),
        }
        others_s = servers.busy_s() - sum(cpu_s.values()) - time.process_time()
        stages_s = _stages([process.get("/metrics")[1] for process in processes if isinstance(process, DaemonProcess)])
        return Reading(now_s, committed, cpu_s, others_s, stages_s)


def _stages(metrics: Sequence[str]) -> dict[str, float]:
    """Return the time of the daemons in each stage, in seconds."""
    pattern = r'^streamdedup_batch_seconds_sum\{stage="(\w+)"\} (\S+)$'
    spent: dict[str, float] = {}
    for text in metrics:
        for name, value in re.findall(pattern, text, re.MULTILINE):
            spent[name] = spent.get(name, 0.0) + float(value)
    return spent


@dataclass(frozen=True)
class Entry:
    """One contender: its unique name, its topic, and the factory of its processes."""

    name: str
    topic: str
    make: Make


#: Rounds by the name of the contender.
Rounds = dict[str, list[Round]]


def in_turns(world: World, topic: str, entries: Sequence[Entry], rounds_count: int) -> Rounds:
    """Measure all contenders in turns, printing each result.

    First the bare loop processes a topic as often: a broker that has just started is several times slower, to the
    disadvantage of the first contender.
    """
    for _ in range(rounds_count):
        world.measure(topic, lambda job: [world.consumer(job, "bare")])
    rounds: Rounds = {entry.name: [] for entry in entries}
    for _ in range(rounds_count):
        for entry in entries:
            measured = world.measure(entry.topic, entry.make)
            rounds[entry.name].append(measured)
            print(f"{entry.name}: {measured.documents_per_s:,.0f} documents/s", file=sys.stderr, flush=True)
    return rounds


def best_of(rounds: Rounds) -> dict[str, Round]:
    return {name: max(measured, key=lambda round_: round_.documents_per_s) for name, measured in rounds.items()}


def setting_of(world: World, documents: str, rounds: Rounds) -> dict[str, str]:
    """Return documents, servers, number of rounds, and the share of the machine used by other programs."""
    shares = [best.others_share for best in best_of(rounds).values()]
    return {
        "documents": documents,
        "servers": world.servers(),
        "rounds": str(len(next(iter(rounds.values())))),
        "other programs": f"{min(shares):.0%} to {max(shares):.0%} of the machine",
    }


def rates(rounds: Rounds, title: str = "", ratio: str = "times the first") -> Table:
    """Return the table of rates, each beside that of the first contender, and of processor times."""
    best = best_of(rounds)
    first = next(iter(best.values()))
    rows = [
        [name, measured.documents_per_s, measured.documents_per_s / first.documents_per_s, *measured.cpu_us.values()]
        for name, measured in best.items()
    ]
    processes = {f"{name}, µs": ",.0f" for name in first.cpu_us}
    return table({title: "", "documents/s": ",.0f", ratio: ".2f", **processes}, rows)
