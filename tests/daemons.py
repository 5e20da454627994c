"""Start the installed command as a process, look at it, stop it, kill it."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

import msgspec
from kafka import KafkaProducer, TopicPartition
from kafka.errors import KafkaError, NoError
from kafka.structs import OffsetAndMetadata

from streamdedup.wire import decode_alert
from tests.servers import admin_client, committed_offsets, read_topic, wait_no_transaction, wait_until

#: Seconds that a daemon may take to start, to join its group or to catch up before the test fails.
DEADLINE_S = 180.0

SETTINGS = """
[kafka]
bootstrap_servers = "{kafka}"
group_id = "{group}"
duplicates_topic = "{duplicates}"
batch_records = {batch_records}
session_timeout = "6s"
transaction_timeout = "9s"

[redis]
url = "{redis}"
key_prefix = "{prefix}"
bucket_layout = "{bucket_layout}"

[service]
metrics_port = 0

[profiles.articles]
topics = ["{topic}"]
shingle_size = {shingle_size}
threshold = {threshold}
recall_from = {threshold}
containment_threshold = "none"
bucket_cap = "none"
max_candidates = "none"
"""

#: ``streamdedup`` with more time to stop than a busy machine needs; tests of the time limit have it as installed.
PROGRAM = (
    sys.executable,
    "-c",
    "import streamdedup.daemon.shutdown as s; s.STOP_TIMEOUT_S = 120; from streamdedup.__main__ import main; main()",
)

#: For daemons whose time-outs no test waits for: a busy machine needs some seconds for an answer, and a time-out costs
#: new clients.
PATIENT = MappingProxyType(
    {
        "kafka.session_timeout": "60s",
        "kafka.transaction_timeout": "180s",
        "redis.timeout": "30s",
    }
)


class Installation:
    """Topics, a key prefix and a settings file that daemons share."""

    def __init__(
        self, folder: Path, *, kafka: str, redis: str, topic: str, duplicates: str, group: str, **options: Any
    ):
        self.folder = folder
        self.kafka = kafka
        self.topic = topic
        self.duplicates = duplicates
        self.group = group
        self.config = folder / "streamdedup.toml"
        values = {"batch_records": 50, "bucket_layout": "sets", "shingle_size": 2, "threshold": 0.5} | options
        text = SETTINGS.format(
            kafka=kafka, redis=redis, topic=topic, duplicates=duplicates, group=group, prefix=group, **values
        )
        self.config.write_text(text, encoding="utf-8")

    def daemon(self, name: str = "a", **settings: Any) -> "Daemon":
        """Return a daemon of this installation, not started yet."""
        return Daemon(self, name, settings)

    @contextlib.contextmanager
    def running(self, name: str = "a", **settings: Any) -> Iterator["Daemon"]:
        """Run a daemon, which must end with code 0 when it is asked to stop at the end of the context."""
        with self.daemon(name, **settings) as daemon:
            yield daemon
            assert daemon.stop() == 0

    @contextlib.contextmanager
    def all_running(self, names: Iterable[str], **settings: Any) -> Iterator[list["Daemon"]]:
        """Run several daemons as ``running`` does, all of them ready."""
        with contextlib.ExitStack() as stack:
            daemons = [stack.enter_context(self.running(name, **settings)) for name in names]
            for daemon in daemons:
                daemon.wait_ready()
            yield daemons

    def send(self, documents: Iterable[tuple[str, str]], **fields: Any) -> None:
        """Append documents (id, text) to the input topic, keyed by their id; ``fields`` go to each record."""
        produce_keyed(self.kafka, self.topic, values_of(documents), **fields)

    def run_until_committed(self, count: int, **settings: Any) -> None:
        """Run a daemon until ``count`` records are committed."""
        with self.running(**settings):
            self.wait_committed(count)

    def pairs(self) -> list[tuple[str, str]]:
        """All pairs that a subscriber of the duplicates topic sees, as a sorted list with repetitions."""
        found = []
        for record in self.published(self.duplicates):
            alert = decode_alert(record.value)
            found += [tuple(sorted((alert.document.id, match.id))) for match in alert.matches]
        return sorted(found)

    def published(self, topic: str) -> list[Any]:
        """All records that a subscriber of an output topic sees, when nothing writes to it."""
        # What is committed may be so for the group a moment before it is for subscribers.
        wait_no_transaction(self.kafka, [topic])
        return read_topic(self.kafka, topic)

    def committed_count(self, *topics: str) -> int:
        """How many records of ``topics`` (the input topic) are committed; waits for a coordinator of the group."""
        (offsets,) = wait_until(self._committed, what="an answer of the coordinator")
        return sum(offset for (topic, _), offset in offsets.items() if topic in (topics or (self.topic,)))

    def _committed(self) -> tuple[dict[tuple[str, int], int]] | None:
        """The committed offsets; None when Kafka asks to try again."""
        try:
            return (committed_offsets(self.kafka, self.group),)
        except KafkaError as error:
            if not error.retriable:
                raise
            return None

    def wait_committed(self, count: int, timeout_s: float = DEADLINE_S) -> None:
        """Wait until ``count`` records are committed."""
        wait_until(lambda: self.committed_count() >= count, timeout_s, f"{count} committed records")


class Daemon:
    """One process of ``streamdedup run``."""

    def __init__(
        self,
        installation: Installation,
        name: str,
        settings: Mapping[str, Any],
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self._installation = installation
        self._name = name
        self._settings = {"kafka.instance_id": name, **settings}
        self._environ = dict(environ or {})
        self._runs = Counter()
        self.process: subprocess.Popen[bytes] | None = None
        self.log = installation.folder / f"{name}.log"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_error: object) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def program(self) -> list[str]:
        """What stands in the place of ``streamdedup`` on the command line."""
        return [*PROGRAM]

    def start(self, *, crash_at: str | None = None, **environ: str) -> None:
        """Start the process, with these variables in its environment; ``crash_at``: see ``tests.crash_points``."""
        program = self.program() if crash_at is None else [sys.executable, "-m", "tests.crash_points", crash_at]
        sets = [part for key, value in self._settings.items() for part in ("--set", f"{key}={value}")]
        command = [*program, "run", "--config", str(self._installation.config), *sets]
        self.log = self._installation.folder / f"{self._name}-{self._runs['starts']}.log"
        self._runs["starts"] += 1
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                command,
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env={**os.environ, **self._environ, **environ},
            )

    def events(self, name: str | None = None, **fields: Any) -> list[dict[str, Any]]:
        """What it has logged so far, with these fields."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        found = [json.loads(line) for line in lines if line.startswith("{")]
        return [event for event in found if name in (None, event["event"]) and fields.items() <= event.items()]

    def wait_event(self, name: str, timeout_s: float = DEADLINE_S, **fields: Any) -> dict[str, Any]:
        """Wait until it has logged ``name`` with these fields; return the last such event."""
        return wait_until(lambda: self.alive_or_fail() and self.events(name, **fields), timeout_s, f"event {name}")[-1]

    def alive_or_fail(self) -> bool:
        """Return True; fail with the log when the process has ended."""
        code = self.process.poll()
        if code is not None:
            raise AssertionError(f"the daemon ended with {code}:\n{self.log.read_text(errors='replace')[-4000:]}")
        return True

    def wait_ready(self) -> None:
        """Wait until it is at work."""
        wait_until(lambda: self.alive_or_fail() and self.get("/readyz")[0] == 200, DEADLINE_S, "readiness")

    def get(self, path: str) -> tuple[int, str]:
        """Ask its HTTP side; (0, reason) when nobody listens."""
        port = self.wait_event("started")["metrics_port"]
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError as error:
            return 0, str(error)

    def metric(self, name: str) -> float:
        """Sum of a metric over its labels."""
        lines = self.get("/metrics")[1].splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.split("{")[0].split(" ")[0] == name)

    @contextlib.contextmanager
    def growing(self, name: str) -> Iterator[None]:
        """Wait at the end of the context until a metric is greater than at its beginning."""
        before = self.metric(name)
        yield
        wait_until(lambda: self.alive_or_fail() and self.metric(name) > before, DEADLINE_S, f"more {name}")

    def signal(self, number: signal.Signals) -> None:
        """Send a signal."""
        os.kill(self.process.pid, number)

    def wait(self, timeout_s: float = DEADLINE_S) -> int:
        """Wait for its end; return its exit code."""
        return self.process.wait(timeout_s)

    def stop(self, timeout_s: float = DEADLINE_S) -> int:
        """Ask it to stop and wait; return its exit code."""
        self.signal(signal.SIGTERM)
        return self.wait(timeout_s)

    def kill(self) -> None:
        """Kill it at once."""
        self.process.kill()
        self.process.wait()


def streamdedup(*arguments: object, text: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command of the installed program to its end; ``text`` is its standard input."""
    command = [sys.executable, "-m", "streamdedup", *map(str, arguments)]
    return subprocess.run(command, input=text, capture_output=True, text=True, timeout=900, check=False)


def values_of(documents: Iterable[tuple[str, str]]) -> list[tuple[bytes, bytes]]:
    """Keys and values of documents (id, text) as records."""
    return [(i.encode(), msgspec.json.encode({"id": i, "text": text})) for i, text in documents]


def produce_keyed(
    bootstrap: str,
    topic: str,
    records: Iterable[tuple[bytes | None, bytes | None]],
    headers_of: Callable[[bytes | None], list[tuple[str, bytes]]] = lambda _key: [],
    **fields: Any,
) -> None:
    """Append records (key, value) and wait until all are acknowledged; ``fields`` (timestamp_ms...) go to each."""
    with contextlib.closing(KafkaProducer(bootstrap_servers=bootstrap.split(","), linger_ms=5)) as producer:
        futures = [
            producer.send(topic, key=key, value=value, headers=headers_of(key), **fields) for key, value in records
        ]
        producer.flush(DEADLINE_S)
        for future in futures:
            future.get(0)


def wait_no_members(bootstrap: str, group: str) -> None:
    """Wait until a group has no members: a daemon that ends waits 1.5 s at most for the answer of the group."""
    with contextlib.closing(admin_client(bootstrap)) as admin:
        wait_until(lambda: not admin.describe_groups([group])[group]["members"], what=f"the end of {group}")


def delete_offsets(bootstrap: str, group: str, topic: str, partitions: int) -> None:
    """Delete what a group whose members have gone has committed for the first partitions of a topic."""
    wait_no_members(bootstrap, group)
    with contextlib.closing(admin_client(bootstrap)) as admin:
        done = admin.delete_group_offsets(group, [TopicPartition(topic, number) for number in range(partitions)])
    assert set(done.values()) == {NoError}, done


def set_offsets(
    bootstrap: str,
    group: str,
    offsets: Mapping[tuple[str, int], int],
    metadata: Mapping[tuple[str, int], str] = MappingProxyType({}),
) -> None:
    """Set the committed offsets of a group whose members have gone, and their metadata, by topic and partition."""
    wanted = {
        TopicPartition(*partition): OffsetAndMetadata(offset, metadata.get(partition, ""), -1)
        for partition, offset in offsets.items()
    }
    wait_no_members(bootstrap, group)
    with contextlib.closing(admin_client(bootstrap)) as admin:
        done = admin.alter_group_offsets(group, wanted)
    assert set(done.values()) == {NoError}, done
