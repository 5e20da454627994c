"""Look-ups over HTTP: times at a steady rate and texts a second in batches, beside a service with datasketch.

One process of `streamdedup serve` over an index of that many documents (`benchmarks.growth`: copies of Reuters that do
not resemble each other), first alone, then while a daemon indexes 2,000 documents a second from Kafka into the same
index. Beside it a service of one process written with datasketch, FastAPI and uvicorn (`benchmarks.lookup_peer`): the
same documents, the same bands, an index in Redis, and nothing that writes. The load comes from `vegeta`
(`benchmarks.vegeta`), at a rate and then from clients without pause. A fourth of the texts are near-duplicates of an
indexed document, the others resemble none.

All processes share the machine: generator, service, Redis, and with a daemon Kafka, producer and daemon.
"""

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import astuple, dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any, NamedTuple

import redis

from benchmarks import datasets, growth, latency, load, report, servers, vegeta
from benchmarks.datasets import Text
from benchmarks.ours import default_banding, index_on, needed_keys
from benchmarks.world import Job, World
from streamdedup.cli.demo_servers import HttpProcess
from streamdedup.embedded import ManagedProcess

OURS, BESIDE, PEER = "streamdedup", "streamdedup, beside a daemon", "datasketch + FastAPI"
#: Numbers of the usual run and of a quick one.
USUAL = {"documents": 1_000_000, "rate": 300, "daemon_rate": 2_000, "seconds": 20, "rounds": 3, "lookups": 4_000}
QUICK = {"documents": 3_000, "rate": 50, "daemon_rate": 200, "seconds": 2, "rounds": 1, "lookups": 500}
#: One of so many looked-up texts is a near-duplicate of an indexed document.
KNOWN = 4
#: Shortest text, in characters, of which a near-duplicate is made: a few words more keep it one.
LEAST_CHARACTERS = 300
#: Texts of one batch: as many as the service takes.
BATCH_TEXTS = 500
#: Requests in progress while clients send without pause, and batches.
CLIENTS, BATCH_CLIENTS = 16, 2
#: Duration of the load before the first measurement, in seconds.
WARM_S = 2.0
#: Share of the duration of a round for which clients send without pause.
UNPAUSED_SHARE = 0.5
#: Time for which the producer beside the service collects records, in milliseconds: the default of Kafka's own client.
LINGER_MS = 5
#: Time that the producer beside the service needs beyond the measurements, in seconds.
SPARE_S = 30.0
#: Columns of the table, of all fields of a measurement but the last, and their formats.
COLUMNS = {
    "one process": "",
    "p50, ms": ".1f",
    "p99, ms": ".1f",
    "p99, median round": ".1f",
    "longest, ms": ".0f",
    "failed": "",
    "processor, ms a request": ".2f",
    "requests/s without pause": ",.0f",
    "texts/s in batches": ",.0f",
}


@dataclass(frozen=True)
class Measured:
    """One service under load; the median of p99 is far above the best where other programs use the machine."""

    name: str
    p50_ms: float
    p99_ms: float
    p99_median_ms: float
    longest_ms: float
    failed: int
    cpu_ms: float
    requests_per_s: float
    texts_per_s: float
    indexed_per_s: float


class Service(HttpProcess):
    """A service over HTTP."""

    def __init__(self, name: str, ready_path: str, *command: str) -> None:
        super().__init__(name)
        self._ready_path = ready_path
        self._command = command

    def command(self) -> list[str]:
        return [part.replace("{port}", str(self._port)) for part in self._command]


class Documents(NamedTuple):
    """Documents of a run: no two of different fields resemble each other."""

    name: str
    indexed: list[Text]
    fed: list[Text]
    unknown: list[Text]


def main(*, quick: bool) -> report.Report:
    arguments = SimpleNamespace(**(QUICK if quick else USUAL))
    fed_count = round((arguments.seconds * (arguments.rounds + 2 * UNPAUSED_SHARE) + SPARE_S) * arguments.daemon_rate)
    documents = documents_of(fed_count, arguments.lookups)
    with TemporaryDirectory(prefix="streamdedup-bench-") as folder:
        bench = Bench(arguments, documents, Path(folder))
        with World.started() as world:
            servers_name = world.servers()
            measured = bench.ours(world)
        measured.append(bench.peer())
    setting = {
        "documents": f"{documents.name}, in copies with other hashes: {arguments.documents:,} in each index",
        "load": f"{arguments.rate} requests/s for {arguments.seconds} s, {arguments.rounds} times",
        "without pause": f"{CLIENTS} clients; batches of {BATCH_TEXTS} texts: {BATCH_CLIENTS} clients",
        "servers": servers_name,
        "generator": "vegeta 12",
        "daemon": f"{measured[1].indexed_per_s:,.0f} documents/s indexed, {arguments.daemon_rate:,} produced",
    }
    tables = {"lookups": report.table(COLUMNS, [astuple(entry)[:-1] for entry in measured])}
    return report.Report(setting, tables)


def documents_of(fed_count: int, lookups_count: int) -> Documents:
    indexed = datasets.load()
    more = datasets.load(len(indexed.documents) + fed_count + lookups_count).documents[len(indexed.documents) :]
    return Documents(indexed.name, indexed.documents, more[:fed_count], more[fed_count:])


def lookup_texts(documents: Documents, count: int) -> Iterator[str]:
    """Yield texts to look up: each ``KNOWN``-th a near-duplicate of an indexed document."""
    near_duplicates = (text for _, text in documents.indexed if len(text) >= LEAST_CHARACTERS)
    unknown = (text for _, text in documents.unknown)
    for number in range(count):
        yield f"{next(near_duplicates)} repeated as number {number}" if number % KNOWN == 0 else next(unknown)


class Bench:
    """Measures services with the same requests."""

    def __init__(self, arguments: Any, documents: Documents, folder: Path) -> None:
        self._arguments = arguments
        self._documents = documents
        self._folder = folder
        self._texts = [{"text": text} for text in lookup_texts(documents, arguments.lookups)]

    def ours(self, world: World) -> list[Measured]:
        job = world.empty_job()
        fill(world.redis.url, world.redis.pid, self._documents, self._arguments.documents)
        keys = needed_keys(world.redis.url) | {"api.port": "{port}"}
        sets = [part for key, value in keys.items() for part in ("--set", f"{key}={value}")]
        path = "/v1/profiles/articles/lookup"
        with Service("serve", "/readyz", sys.executable, "-m", "streamdedup", "serve", *sets) as service:
            alone = self._measure(OURS, service, path, lambda: 0)
            with world.daemon(job) as daemon, self._producer(world, job):
                daemon.wait_until(lambda: world.committed_count(job) > 0, load.PATIENCE_S)
                return [alone, self._measure(BESIDE, service, path, lambda: world.committed_count(job))]

    def peer(self) -> Measured:
        from benchmarks import peers  # noqa: PLC0415  needs the extra "bench"

        banding = default_banding()
        with servers.make_redis() as server:
            index = peers.redis_index(server.url, banding)
            peers.fill(index, [text for _, text in self._documents.indexed], self._arguments.documents)
            given = {"redis_url": server.url, "bands": banding.bands, "rows": banding.rows}
            command = servers.call("lookup_peer", "serve", port="{port}", **given)
            with Service("peer", "/livez", *command) as service:
                return self._measure(PEER, service, "/lookup", lambda: 0)

    def _producer(self, world: World, job: Job) -> ManagedProcess:
        path = self._folder / "documents"
        load.write_documents(path, self._documents.fed)
        return latency.producer_of(world, job, path, self._arguments.daemon_rate, LINGER_MS)

    def _measure(self, name: str, service: Service, path: str, committed: Callable[[], int]) -> Measured:
        """Measure one service."""
        arguments, unpaused_s = self._arguments, self._arguments.seconds * UNPAUSED_SHARE
        single = vegeta.write_targets(self._folder / "single", service.url(path), self._texts)
        firsts = range(0, len(self._texts), BATCH_TEXTS)
        bodies = [{"texts": self._texts[first : first + BATCH_TEXTS]} for first in firsts]
        batches = vegeta.write_targets(self._folder / "batches", service.url(f"{path}:batch"), bodies)
        vegeta.attack(single, WARM_S, rate=arguments.rate)
        begun_s, committed_before, cpu_s = time.monotonic(), committed(), servers.cpu_s(service.pid)
        rounds = [vegeta.attack(single, arguments.seconds, rate=arguments.rate) for _ in range(arguments.rounds)]
        cpu_s = servers.cpu_s(service.pid) - cpu_s
        indexed_per_s = (committed() - committed_before) / (time.monotonic() - begun_s)
        best = min(rounds, key=lambda load_: load_.p99_ms)
        measured = Measured(
            name,
            best.p50_ms,
            best.p99_ms,
            median(load_.p99_ms for load_ in rounds),
            max(load_.longest_ms for load_ in rounds),
            sum(load_.failed for load_ in rounds),
            1000 * cpu_s / sum(load_.requests for load_ in rounds),
            vegeta.attack(single, unpaused_s, clients=CLIENTS).answered_per_s,
            BATCH_TEXTS * vegeta.attack(batches, unpaused_s, clients=BATCH_CLIENTS).answered_per_s,
            indexed_per_s,
        )
        print(measured, rounds, file=sys.stderr, flush=True)
        return measured


def fill(url: str, pid: int, documents: Documents, count: int) -> None:
    """Index documents: copies of the texts with other shingle hashes, of which the first has those of the texts."""
    shingler = growth.CopyShingler([text for _, text in documents.indexed])
    with redis.Redis.from_url(url) as client, index_on(url) as index:
        growth.IndexGrowth(client, pid, "sets", index, shingler).fill(count)
        if client.dbsize() < count:
            raise RuntimeError(f"{client.dbsize():,} keys in place of an index of {count:,} documents")
