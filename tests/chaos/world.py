"""Servers behind proxies, and daemons that write a trace and can be held at a step."""

import contextlib
import os
import re
import signal
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import redis
from kafka import KafkaProducer
from kafka.errors import KafkaError

from streamdedup.embedded import RedisServer
from streamdedup.embedded.process import LOOPBACK
from streamdedup.kafka import compat
from tests import servers
from tests.chaos.proxy import Proxy
from tests.chaos.stream import KeyValue
from tests.daemons import Daemon, Installation
from tests.support.kafka import KafkaBroker, KafkaServer
from tests.support.ports import free_ports
from tests.support.processes import resume

#: Stage of each step.
STAGES = {
    **dict.fromkeys(
        (
            "insert_entries",
            "insert_and_look_up",
            "insert_copies",
            "get_entries",
            "read_entries",
            "save_pending_matches",
            "claim_pairs",
            "set_clusters",
        ),
        "index",
    ),
    **dict.fromkeys(("begin", "send", "flush"), "sending"),
    **dict.fromkeys(("send_offsets", "commit"), "commit"),
}
#: Session timeout, transaction timeout, and interval at which the broker aborts overdue transactions, in seconds.
SESSION_S, TRANSACTION_S, ABORT_SCAN_S = 4.0, 6.0, 1.0
#: Settings with which a daemon notices faults within seconds instead of a minute.
QUICK = {
    "kafka.session_timeout": f"{SESSION_S:g}s",
    "kafka.transaction_timeout": f"{TRANSACTION_S:g}s",
    "kafka.max_poll_interval": "20s",
    "redis.timeout": "1s",
    "service.dead_letter_limit": "none",
}


def stage_of(point: str | None) -> str:
    return STAGES.get((point or "").partition("_")[2], "between")


class ProxiedKafka(KafkaServer):
    """Kafka with a proxy of each node for the daemons, and a listener for other clients."""

    def __init__(self, directory: Path, broker_count: int) -> None:
        # By default the broker aborts overdue transactions every ten seconds, and readers wait for that.
        options = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": f"{ABORT_SCAN_S * 1000:.0f}"}
        super().__init__(servers.kafka_jars(), directory, broker_count=broker_count, options=options)
        self.proxies = [Proxy(speaks_kafka=True) for _ in self.brokers]

    @property
    def through_proxies(self) -> str:
        return ",".join(f"{LOOPBACK}:{proxy.port}" for proxy in self.proxies)

    def _properties(self, broker: KafkaBroker) -> dict[str, str]:
        properties = super()._properties(broker)
        proxy = self.proxies[broker.node_id - 1]
        (proxy.target_port,) = free_ports()
        properties["listeners"] += f",VIA://{LOOPBACK}:{proxy.target_port}"
        properties["advertised.listeners"] += f",VIA://{LOOPBACK}:{proxy.port}"
        properties["listener.security.protocol.map"] = "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,VIA:PLAINTEXT"
        return properties

    def close(self) -> None:
        super().close()
        for proxy in self.proxies:
            proxy.close()


@dataclass(frozen=True, slots=True)
class Passage:
    """One line of a trace: the time on the monotonic clock, and the name of a point."""

    at_ns: int
    point: str


def passages_of(trace: Path) -> list[Passage]:
    lines = re.findall(r"^(\d+) (.+)\n", trace.read_text(encoding="utf-8"), re.MULTILINE)
    return [Passage(int(at), point) for at, point in lines]


def last_point(trace: Path) -> str | None:
    """Return the last point of a trace, or None. Lines about holds are no points."""
    points = [passage.point for passage in passages_of(trace) if " " not in passage.point]
    return points[-1] if points else None


def has_read_ahead(trace: Path) -> bool:
    """Tell whether the last poll of a trace was a poll ahead."""
    polls = [passage.point for passage in passages_of(trace) if passage.point in ("after_poll", "after_poll_ahead")]
    return polls[-1:] == ["after_poll_ahead"]


class WatchedDaemon(Daemon):
    """A daemon that writes a trace and can be held; ``broken`` names a broken loop.

    With ``full_batches`` the first batch may already have ``kafka.batch_records``: no slow start.
    """

    def __init__(
        self,
        installation: Installation,
        name: str,
        settings: Any,
        broken: str | None = None,
        *,
        full_batches: bool = False,
    ) -> None:
        super().__init__(installation, name, {**QUICK, **settings})
        self.name = name
        self.broken = broken
        self._full_batches = full_batches
        self._folder = installation.folder
        self._first_aim: tuple[str, str] | None = None
        self._starts = 0
        self.trace = self._folder / f"{name}-0.trace"

    def program(self) -> list[str]:
        broken = ["--break", self.broken] if self.broken else []
        full_batches = ["--full-batches"] if self._full_batches else []
        return [sys.executable, "-m", "tests.chaos.watched_daemon", str(self.trace), *broken, *full_batches, "--"]

    def aim_at_start(self, point: str, manner: str = "freeze") -> None:
        """Hold the daemon at a point after its next start."""
        self._first_aim = (point, manner)

    def start(self, **environ: str) -> None:
        self.trace = self._folder / f"{self.name}-{self._starts}.trace"
        self.trace.touch()
        self._starts += 1
        if self._first_aim is not None:
            self.aim(*self._first_aim)
            self._first_aim = None
        super().start(**environ)

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def passages(self, since_ns: int = 0) -> list[Passage]:
        return [passage for passage in passages_of(self.trace) if passage.at_ns >= since_ns]

    def passed(self, point: str, since_ns: int = 0) -> bool:
        return any(passage.point == point for passage in self.passages(since_ns))

    def owned(self) -> set[str]:
        owned: set[str] = set()
        for event in self.events():
            if event["event"] == "partitions_assigned":
                owned |= set(event["partitions"])
            elif event["event"] in {"partitions_revoked", "partitions_lost"}:
                owned -= set(event["partitions"])
        return owned

    def aim(self, point: str, manner: str = "freeze") -> None:
        """Hold the daemon at the next passage of a point."""
        scratch = Path(f"{self.trace}.new")
        scratch.write_text(f"{manner} {point}", encoding="utf-8")
        scratch.rename(f"{self.trace}.aim")

    @property
    def held(self) -> bool:
        return Path(f"{self.trace}.held").exists()

    def disarm(self) -> None:
        """Remove the aim, unless the daemon is held already."""
        Path(f"{self.trace}.aim").unlink(missing_ok=True)

    def wait_held(self, timeout_s: float = servers.DEADLINE_S) -> None:
        servers.wait_until(lambda: self.alive_or_fail() and self.held, timeout_s, f"{self.name} to be held")

    def release(self) -> None:
        self.disarm()
        Path(f"{self.trace}.held").unlink(missing_ok=True)
        # Repeated: a held daemon may not have stopped itself yet, and would miss the first signal.
        servers.wait_until(self._continues, what=f"{self.name} to continue")

    def _continues(self) -> bool:
        if not self.running:
            return True
        os.kill(self.process.pid, signal.SIGCONT)
        ends = Counter(passage.point.split()[0] for passage in self.passages() if " " in passage.point)
        return ends["held"] == ends["released"]

    def wait_passed(self, point: str, since_ns: int = 0, timeout_s: float = servers.DEADLINE_S) -> None:
        what = f"{self.name} to pass {point}"
        servers.wait_until(lambda: self.alive_or_fail() and self.passed(point, since_ns), timeout_s, what)


class World:
    """Kafka and Redis behind proxies, and installations on them; a context manager.

    Acknowledged writes of Redis survive a kill. Without ``redis_program`` it is the one of the installed wheel.
    """

    def __init__(self, folder: Path, broker_count: int = 1, redis_program: str | None = None) -> None:
        self.folder = folder
        self._stack = contextlib.ExitStack()
        self.kafka = ProxiedKafka(folder / "kafka", broker_count)
        self.redis: RedisServer = servers.make_redis(
            redis_program, directory=folder / "redis", options={"appendonly": "yes", "appendfsync": "always"}
        )
        self.redis_proxy = Proxy()

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            stack.callback(self.redis_proxy.close)
            stack.callback(self.kafka.close)
            stack.callback(self.redis.close)
            self.redis.start()
            self.redis_proxy.target_port = self.redis.port
            self.kafka.start()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stack.close()

    def heal(self) -> None:
        self.redis.start()
        resume(self.redis)
        with self.redis_client() as client:
            client.config_set("maxmemory", 0)
        self.kafka.start()
        for proxy in (self.redis_proxy, *self.kafka.proxies):
            proxy.delay_s = 0.0
            proxy.swallowed_request = None
            proxy.release()
            proxy.accept()

    def install(self, partitions: int, outputs: int = 3, **options: Any) -> Installation:
        """Create topics, a group and a settings file, with values of ``daemons.SETTINGS``; daemons use the proxies."""
        self.heal()
        group = servers.fresh_name("group")
        topic, duplicates = f"{group}-articles", f"{group}-duplicates"
        bootstrap = self.kafka.bootstrap_servers
        servers.create_topics(bootstrap, [topic], partitions)
        servers.create_topics(bootstrap, [duplicates, f"{duplicates}.dlq"], outputs)
        folder = self.folder / group
        folder.mkdir()
        installation = Installation(
            folder,
            kafka=self.kafka.through_proxies,
            redis=f"redis://{LOOPBACK}:{self.redis_proxy.port}/0",
            topic=topic,
            duplicates=duplicates,
            group=group,
            **options,
        )
        installation.kafka = bootstrap  # the harness connects without a proxy
        return installation

    def redis_client(self) -> redis.Redis:
        return redis.Redis(port=self.redis.port, decode_responses=True)


class Producing:
    """Produces records at a steady rate in a thread of its own, until closed."""

    def __init__(self, bootstrap: str, topic: str, records: Iterator[KeyValue], per_second: float) -> None:
        self._topic, self._records, self._pause_s = topic, records, 1 / per_second
        self._producer = KafkaProducer(
            bootstrap_servers=bootstrap.split(","), linger_ms=5, delivery_timeout_ms=60_000, request_timeout_ms=5_000
        )
        self.count = 0
        self._futures: list[Any] = []
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="producing", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._end.wait(self._pause_s):
            key, value = next(self._records)
            with contextlib.suppress(KafkaError):  # no metadata at the moment; the records in the topic count
                self._futures.append(self._producer.send(self._topic, key=key, value=value))
                self.count += 1

    def close(self) -> None:
        """Stop, and wait for the records in flight."""
        self._end.set()
        self._thread.join()
        try:
            self._producer.flush(servers.DEADLINE_S)
            self._producer.close()
        except KafkaError:  # kafka-python 3.0 may keep a batch in flight for ever; the records in the topic count
            compat.force_close(self._producer)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


@contextlib.contextmanager
def a_world(broker_count: int = 1, redis_program: str | None = None) -> Iterator[World]:
    """Open a world in a temporary folder; the arguments are those of ``World``."""
    with (
        tempfile.TemporaryDirectory(prefix="streamdedup-chaos-") as folder,
        World(Path(folder), broker_count, redis_program) as world,
    ):
        yield world
