"""An index that has gone back, and an empty one: how long a daemon takes from its start until the index is complete.

A daemon indexes the documents, of which the last ones arrive after a copy of the server's data was made. Then the copy
is put back, and a daemon fills the gap; then the server is emptied, and a daemon rebuilds the whole index. Both have
their default settings. Texts are random words; one of 40 is a near-duplicate of the text before.
"""

import json
import random
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from itertools import count, islice
from typing import Any

import msgspec
import redis

from benchmarks import report, servers
from benchmarks.datasets import Text
from benchmarks.world import Job, World
from streamdedup.cli.demo_servers import DaemonProcess
from streamdedup.embedded import ServerError

#: Words of a text, words to choose from, and how many texts there are for each near-duplicate of the text before.
WORDS, VOCABULARY, COPY_EVERY = 120, [f"w{number}" for number in range(20_000)], 40
#: Documents that the earlier copy of the data lacks.
BEHIND = 20_000
#: Longest wait for a daemon to be ready, and for a command of Redis, in seconds.
PATIENCE_S = 3600.0


@dataclass(frozen=True)
class Rebuilt:
    """What was lost, whether only a gap was filled, the records read, and seconds since the start of the daemon."""

    name: str
    is_gap: bool
    records: int
    begun_s: float
    complete_s: float
    ready_s: float


def main(*, quick: bool) -> report.Report:
    size = 50_000 if quick else 1_000_000
    with (
        World.started() as world,
        redis.Redis.from_url(world.redis.url, socket_timeout=PATIENCE_S) as client,
    ):
        job, texts = world.empty_job(), documents(random.Random(1))
        index(world, job, texts, size - BEHIND)
        client.save()
        copy = shutil.copy(world.redis.directory / "dump.rdb", world.folder)
        index(world, job, texts, BEHIND)
        world.redis.kill()
        shutil.copy(copy, world.redis.directory / "dump.rdb")
        world.redis.start(PATIENCE_S)
        gap = rebuilt(world, job, f"the last {BEHIND:,} documents")
        servers.empty(client)
        whole = rebuilt(world, job, "everything")
        setting = {"documents": f"{size:,} of {WORDS} words", "servers": world.servers()}
    if (gap.is_gap, whole.is_gap) != (True, False):
        raise ServerError(f"not a gap and a whole rebuild, but {gap} and {whole}")
    return report.Report(setting, {"times": times([gap, whole])})


def documents(rng: random.Random) -> Iterator[Text]:
    words: list[str] = []
    for number in count():
        same = words[3:] if number % COPY_EVERY == 1 else []
        words = [*same, *rng.choices(VOCABULARY, k=WORDS - len(same))]
        yield Text(f"d{number}", " ".join(words))


def index(world: World, job: Job, texts: Iterator[Text], further: int) -> None:
    """Send documents, and run a daemon until they are committed."""
    wanted = world.committed_count(job) + further
    servers.fill(world.address, job.topic, islice(texts, further), msgspec.json.encode)
    with world.daemon(job) as daemon:
        daemon.wait_until(lambda: world.committed_count(job) >= wanted, PATIENCE_S)


def rebuilt(world: World, job: Job, name: str) -> Rebuilt:
    """Run a daemon until it is ready, and return its times."""
    with closing(world.daemon(job)) as daemon:
        begun_s = time.time()
        daemon.start(PATIENCE_S)
        ready_s = time.time() - begun_s
        (begin,), (end,) = (events(daemon, f"index_{step}") for step in ("rebuild_begun", "rebuilt"))
    begin_s, end_s = (seconds_of(event) - begun_s for event in (begin, end))
    return Rebuilt(name, begin["gap"], end["records"], begin_s, end_s, ready_s)


def events(daemon: DaemonProcess, name: str) -> list[dict[str, Any]]:
    """Return the events with a name in the log of a daemon."""
    lines = daemon.log_path.read_text(encoding="utf-8").splitlines()
    return [event for line in lines if line.startswith("{") and (event := json.loads(line))["event"] == name]


def seconds_of(event: Mapping[str, Any]) -> float:
    return datetime.fromisoformat(event["timestamp"]).timestamp()


def times(rows: list[Rebuilt]) -> report.Table:
    """Return the table of times, and how many times faster an index is complete than after a whole rebuild."""
    cells = [
        [row.name, row.records, row.begun_s, row.complete_s, row.ready_s, rows[-1].complete_s / row.complete_s]
        for row in rows
    ]
    titles = ("begun after, s", "complete, s", "ready, s", "times faster")
    return report.table({"lost": "", "records read": "", **dict.fromkeys(titles, ".1f")}, cells)
