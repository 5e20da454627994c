"""An index at its level, where as many documents expire as come, beside the same index while it fills.

The documents come at the rate ``documents / lifetime``, so that the index holds that many from the end of the first
lifetime on. *Fill* is the second half of the first lifetime; each following lifetime is a row.

Costs: the index stage alone, with the documents of `benchmarks.growth`, in each layout on the installed Redis and on
Valkey, and in the large size on the first of them. In the last lifetime the server also writes a copy of its data and
rewrites its log.

Times: Kafka, daemon, producer and subscriber as in `benchmarks.latency`, and look-ups over HTTP, of which one in four
has a near-duplicate in the index, in each layout on the first server. Then, while documents go on coming, an earlier
copy of the data is put back, and the data is deleted; the seconds are those of the daemon's log.
"""

import itertools
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import redis

from benchmarks import datasets, gap, growth, latency, load, report, serve, servers, vegeta
from benchmarks.ours import BATCH_DOCUMENTS, PROFILE, Index, index_on
from benchmarks.world import Job, World
from streamdedup.cli.demo_servers import DaemonProcess, ServiceProcess
from streamdedup.embedded import RedisServer, ServerError
from streamdedup.index.redis.buckets import LAYOUTS

#: Lifetimes at the level.
LIFETIMES = 3
#: The large index lives longer, since no server takes so many documents in the usual lifetime.
LARGE_FACTOR = 3
#: So does the index whose times are measured: producer, Kafka and daemon share the machine with its server.
TIMES_FACTOR = 1.5
#: Least number of batches that are prepared before they are due.
AHEAD = 4
#: Look-ups a second, and different texts of them.
LOOKUP_RATE, LOOKUP_TEXTS = 50, 1_000
#: Share of the level that comes between the copy of the data and its return.
BEHIND = 0.1
#: Lifetimes for which documents come after those that are measured.
SPARE_LIFETIMES = 1.5
#: Pause between two questions for the committed offsets, in seconds.
LOOK_S = 1.0
#: Longest wait for a copy, a log or a rebuilt index, in seconds.
PATIENCE_S = 900.0
COST_COLUMNS = {
    "server": "",
    "bucket_layout": "",
    "documents": "",
    "lifetime": "",
    "server, µs": ".1f",
    "times the fill": ".2f",
    "bytes a document": ",.0f",
    "of the system": ",.0f",
    "expired and kept": "",
    "late by, s": ".1f",
}
FORK_COLUMNS = {
    "server": "",
    "bucket_layout": "",
    "documents": "",
    "fork, ms": ".0f",
    "copy, s": "",
    "copied pages, MB": ",.0f",
    "log, s": "",
    "copied pages of the log, MB": ",.0f",
}
TIME_COLUMNS = {
    "bucket_layout": "",
    "alert p50, ms": ".0f",
    "p99, fill": ".0f",
    "p50, level": ".0f",
    "p99, level": ".0f",
    "look-up p50, ms": ".1f",
    "p99": ".1f",
    "gap, s": ".1f",
    "whole rebuild, s": ".1f",
}


@dataclass(frozen=True)
class Cost:
    """Costs of a document in one lifetime; ``kept_percent`` are the keys past their time, by the server's estimate."""

    server: str
    layout: str
    documents: int
    lifetime: str
    server_us: float
    times_fill: float
    bytes_a_document: float
    system_bytes_a_document: float
    kept_percent: str
    late_s: float


@dataclass(frozen=True)
class Fork:
    """A copy of the data and a rewritten log, while documents come; sizes in megabytes."""

    server: str
    layout: str
    documents: int
    fork_ms: float
    copy_s: int
    copy_mb: float
    log_s: int
    log_mb: float


@dataclass(frozen=True)
class Times:
    """Milliseconds from producer to subscriber in the fill and at the level, and of look-ups; seconds of rebuilds."""

    layout: str
    fill_p50_ms: float
    fill_p99_ms: float
    level_p50_ms: float
    level_p99_ms: float
    lookup_p50_ms: float
    lookup_p99_ms: float
    gap_s: float
    rebuild_s: float


def main(*, quick: bool) -> report.Report:
    documents, large, lifetime_s = (4_000, 0, 4) if quick else (200_000, 1_000_000, 60)
    programs = servers.redis_programs()
    levels = [(program, documents, lifetime_s) for program in programs]
    if large:
        levels.append((programs[0], large, LARGE_FACTOR * lifetime_s))
    shingler = growth.CopyShingler(datasets.load().texts)
    costs: list[Cost] = []
    forks: list[Fork] = []
    for (program, size, level_lifetime_s), layout in itertools.product(levels, LAYOUTS):
        with RedisServer(program) as server, redis.Redis.from_url(server.url) as client:
            name = servers.name_of_redis(client)
            with index_on(server.url, **keys_of(layout, level_lifetime_s)) as index:
                level = Level(index, client, server.pid, shingler, size, level_lifetime_s)
                costs += level.costs(name, layout)
                forks.append(level.fork(name, layout))
                print(forks[-1], file=sys.stderr, flush=True)
    times_lifetime_s = round(TIMES_FACTOR * lifetime_s)
    times = [times_of(layout, documents, times_lifetime_s) for layout in LAYOUTS]
    setting = {
        "lifetime": f"{lifetime_s} s, of the large index {LARGE_FACTOR * lifetime_s} s, of times {times_lifetime_s} s",
        "rate": f"{documents / lifetime_s:,.0f} documents/s, of times {documents / times_lifetime_s:,.0f}",
        "times": f"{documents:,} documents, {LOOKUP_RATE} look-ups a second",
    }
    tables = {
        "costs": report.table(COST_COLUMNS, map(astuple, costs)),
        "forks": report.table(FORK_COLUMNS, map(astuple, forks)),
        "times": report.table(TIME_COLUMNS, map(astuple, times)),
    }
    return report.Report(setting, tables)


def keys_of(layout: str, lifetime_s: int) -> dict[str, Any]:
    return {"redis.bucket_layout": layout, "retention": f"{lifetime_s}s", "retention_slack": "0s"}


class Level:
    """Brings documents at an even rate."""

    def __init__(
        self, index: Index, client: "redis.Redis", pid: int, shingler: growth.CopyShingler, size: int, lifetime_s: int
    ) -> None:
        self._client = client
        self._pid = pid
        self._size = size
        self._lifetime_s = lifetime_s
        self._growth = growth.IndexGrowth(client, pid, "", index, shingler)
        self._empty = self._memory()
        self._begun_s = time.monotonic()
        self._brought = 0
        self._late_s = 0.0

    def costs(self, name: str, layout: str) -> Iterator[Cost]:
        """Fill the index, and keep the level for some lifetimes."""
        self._bring(self._size // 2)
        fill_us = 0.0
        for number in range(LIFETIMES + 1):
            before, used_s = self._brought, servers.cpu_s(self._pid)
            self._bring((number + 1) * self._size)
            server_us = 1e6 * (servers.cpu_s(self._pid) - used_s) / (self._brought - before)
            fill_us = fill_us or server_us
            memory, system = (float(value) / self._size for value in self._memory() - self._empty)
            kept = f"{self._client.info('stats')['expired_stale_perc']} %"
            lifetime, times_fill = str(number or "fill"), server_us / fill_us if fill_us else float("nan")
            cost = Cost(name, layout, self._size, lifetime, server_us, times_fill, memory, system, kept, self._late_s)
            print(cost, file=sys.stderr, flush=True)
            yield cost

    def fork(self, name: str, layout: str) -> Fork:
        """Let the server copy its data and rewrite its log; documents come meanwhile."""
        self._client.bgsave()
        self._bring_while("rdb_bgsave_in_progress")
        fork_ms = self._client.info("stats")["latest_fork_usec"] / 1000
        self._client.bgrewriteaof()
        self._bring_while("aof_rewrite_in_progress")
        of = self._client.info("persistence")
        copy_s, log_s = (max(0, of[key]) for key in ("rdb_last_bgsave_time_sec", "aof_last_rewrite_time_sec"))
        copy_mb, log_mb = (of[key] / 1e6 for key in ("rdb_last_cow_size", "aof_last_cow_size"))
        return Fork(name, layout, self._size, fork_ms, copy_s, copy_mb, log_s, log_mb)

    def _bring_while(self, key: str) -> None:
        end_s = time.monotonic() + PATIENCE_S
        while self._client.info("persistence")[key]:
            if time.monotonic() > end_s:
                raise ServerError(f"{key} for {PATIENCE_S} s")
            self._bring(self._brought + BATCH_DOCUMENTS)

    def _bring(self, end: int) -> None:
        """Index documents, each batch when due, until there were so many; the next ones are prepared meanwhile."""
        batches = range(self._brought, end, BATCH_DOCUMENTS)
        with ThreadPoolExecutor(max_workers=1) as thread:
            due = ((first, min(first + BATCH_DOCUMENTS, end)) for first in batches)
            made = [thread.submit(self._growth.prepare, *part) for part in itertools.islice(due, AHEAD)]
            for first in batches:
                prepared = made.pop(0).result()
                made += [thread.submit(self._growth.prepare, *part) for part in itertools.islice(due, 1)]
                due_s = self._begun_s + first * self._lifetime_s / self._size
                time.sleep(max(0.0, due_s - time.monotonic()))
                self._late_s = max(0.0, time.monotonic() - due_s)
                self._growth.insert(prepared)
        self._brought = end

    def _memory(self) -> np.ndarray:
        memory: dict[str, Any] = self._client.info("memory")
        return np.array([memory["used_memory"], memory["used_memory_rss"]])


def times_of(layout: str, size: int, lifetime_s: int) -> Times:
    rate, level_end = round(size / lifetime_s), (LIFETIMES + 1) * size
    with World.started() as world, ExitStack() as stack:
        job, path = world.empty_job(), world.folder / "documents"
        copies = write_documents(path, rate, level_end + round(SPARE_LIFETIMES * size))
        keys = keys_of(layout, lifetime_s)
        store = {"bucket_layout": keys.pop("redis.bucket_layout")}
        daemon = stack.enter_context(world.daemon(job, profile=keys, store=store))
        service = stack.enter_context(ServiceProcess(world.folder, daemon))
        subscriber = latency.End("subscribe", world.address, job.output, count=len(copies))
        producer = latency.producer_of(world, job, path, rate, serve.LINGER_MS)
        for end in (subscriber, producer):
            stack.enter_context(end)
        wait_committed(world, job, daemon, 2 * size)
        lookups = lookups_of(world, service, path, 2 * size - LOOKUP_TEXTS, lifetime_s)
        wait_committed(world, job, daemon, level_end)
        seconds = rebuilds(world, job, daemon, round(BEHIND * size))
        limit_s = PATIENCE_S + SPARE_LIFETIMES * lifetime_s
        sent, seen = producer.result(limit_s), subscriber.result(limit_s)
    fill, level = (
        [number for number in copies if first <= number < last]
        for first, last in ((size // 2, size), (size, level_end))
    )
    alerts = [np.percentile(latency.taken_ms(sent, seen, part, rate), [50, 99]).tolist() for part in (fill, level)]
    times = Times(layout, *alerts[0], *alerts[1], lookups.p50_ms, lookups.p99_ms, *seconds)
    print(times, file=sys.stderr, flush=True)
    return times


def write_documents(path: Path, rate: int, count: int) -> list[int]:
    """Write the documents, one a line; return the numbers of the near-duplicates."""
    texts = (text for text in datasets.load(2 * count).texts if len(text) >= latency.LEAST_CHARACTERS)
    pairs = latency.in_pairs(texts, rate, count)
    load.write_documents(path, ((latency.key_of(number, rate), text) for number, text in pairs))
    return [number for number in range(count) if latency.is_copy(number, rate)]


def wait_committed(world: World, job: Job, daemon: DaemonProcess, count: int) -> None:
    def is_committed() -> bool:
        time.sleep(LOOK_S)  # each question takes time of the broker that is measured
        return world.committed_count(job) >= count

    daemon.wait_until(is_committed, PATIENCE_S)


def lookups_of(world: World, service: ServiceProcess, path: Path, first: int, seconds: int) -> vegeta.Load:
    """Look up edits of the documents from ``first`` on, and documents that are still to come, for some seconds."""
    lines = path.read_bytes().splitlines()
    documents = [msgspec.json.decode(line.partition(b"\t")[2])["text"] for line in lines[first:][:LOOKUP_TEXTS]]
    later = (msgspec.json.decode(line.partition(b"\t")[2])["text"] for line in reversed(lines))
    texts = (next(later) if number % serve.KNOWN else f"{text} repeated" for number, text in enumerate(documents))
    targets = world.folder / "targets"
    vegeta.write_targets(targets, service.url(f"/v1/profiles/{PROFILE}/lookup"), ({"text": text} for text in texts))
    return vegeta.attack(targets, seconds, rate=LOOKUP_RATE)


def rebuilds(world: World, job: Job, daemon: DaemonProcess, behind: int) -> Sequence[float]:
    """Put an earlier copy of the data back, then delete the data; return the seconds until each index is complete."""
    with redis.Redis.from_url(world.redis.url, socket_timeout=PATIENCE_S) as client:
        client.save()
        copy = shutil.copy(world.redis.directory / "dump.rdb", world.folder)
        wait_committed(world, job, daemon, world.committed_count(job) + behind)
        world.redis.kill()
        shutil.copy(copy, world.redis.directory / "dump.rdb")
        world.redis.start(PATIENCE_S)
        gap_s = rebuilt(daemon, 1)
        servers.empty(client)
        return gap_s, rebuilt(daemon, 2)


def rebuilt(daemon: DaemonProcess, number: int) -> float:
    """Wait for the end of the rebuild with a number, counted from one; return its seconds."""
    daemon.wait_until(lambda: len(gap.events(daemon, "index_rebuilt")) == number, PATIENCE_S)
    begun, complete = (gap.events(daemon, f"index_{step}")[-1] for step in ("rebuild_begun", "rebuilt"))
    return gap.seconds_of(complete) - gap.seconds_of(begun)
