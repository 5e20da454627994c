"""Processor time of the daemon's prepare and index stages, beside that of Redis, for both bucket layouts and a peer.

Documents are decoded beforehand and not counted. Each round indexes all documents in an empty index on a server of its
own, to the high-water mark that follows the commit, without Kafka. Processor time depends less on other work of the
machine than elapsed time does; the least of the rounds counts. Commands are those that Redis has counted, within
scripts too. The peer is datasketch, pipelined, on as many documents in batches of the same size; the rate at the store
is that of the index stage alone, in elapsed time.
"""

import time
from collections.abc import Callable
from dataclasses import astuple, dataclass
from typing import Any, TypeVar

import redis
from datasketch import MinHash  # type: ignore[import-untyped]

from benchmarks import datasets, peers, report, servers
from benchmarks.ours import BATCH_DOCUMENTS, default_banding, index_on
from streamdedup.detection.model import Prepared
from streamdedup.index.redis.buckets import LAYOUTS

PEER = "datasketch, pipelined"
#: Columns of the table, and their formats.
COLUMNS = {
    "": "",
    **dict.fromkeys(("prepare, µs", "index, µs", "Redis, µs", "elapsed, µs"), ".1f"),
    "documents/s": ",.0f",
    "commands": ".1f",
    "bytes a document": ",.0f",
}
T = TypeVar("T")


@dataclass(frozen=True)
class Round:
    """Costs of a document: processor time in microseconds, commands of Redis, bytes of its memory; elapsed time."""

    prepare_us: float
    index_us: float
    redis_us: float
    elapsed_us: float
    commands: float
    memory_bytes: float


def main(*, quick: bool) -> report.Report:
    count, rounds_count = (2_000, 1) if quick else (0, 3)
    texts = datasets.load(count)
    rounds: dict[str, list[Round]] = {name: [] for name in (*LAYOUTS, PEER)}
    server_name = ""
    for _ in range(rounds_count):
        for name, measured_rounds in rounds.items():
            with servers.make_redis() as server, redis.Redis.from_url(server.url) as client:
                server_name = servers.name_of_redis(client)
                measure = measured_peer if name == PEER else measured
                measured_rounds.append(measure(server.url, client, name, texts.documents))
    setting = {
        "documents": f"{texts.name}: {len(texts.documents):,}",
        "server": server_name,
        "rounds": rounds_count,
    }
    least = {name: Round(*map(min, zip(*map(astuple, made), strict=True))) for name, made in rounds.items()}
    rows = []
    for name, lowest in least.items():
        *times_us, commands, memory_bytes = astuple(lowest)
        rows.append([name, *times_us, 1e6 / lowest.elapsed_us, commands, memory_bytes])
    return report.Report(setting, {"stages": report.table(COLUMNS, rows)})


def measured(url: str, client: "redis.Redis", layout: str, documents: list[datasets.Text]) -> Round:
    """Index all documents on an empty server."""
    with index_on(url, **{"redis.bucket_layout": layout}) as index:
        index.prepare(documents[:10])  # tables that are built at the first text

        def index_all(prepared: list[Prepared]) -> None:
            for batch in prepared:
                index.index(batch)

        return costs(client, len(documents), lambda: index.prepare(documents), index_all)


def measured_peer(url: str, client: "redis.Redis", _: str, documents: list[datasets.Text]) -> Round:
    """Look up and insert all documents with datasketch on an empty server, in batches."""
    index = peers.redis_index(url, default_banding())
    ids = [document.id for document in documents]

    def index_all(signed: list[MinHash]) -> None:
        for first in range(0, len(ids), BATCH_DOCUMENTS):
            batch = slice(first, first + BATCH_DOCUMENTS)
            peers.pipelined(index, ids[batch], signed[batch])

    return costs(client, len(ids), lambda: peers.sign(document.text for document in documents), index_all)


def costs(client: "redis.Redis", count: int, prepare: Callable[[], T], index: Callable[[T], None]) -> Round:
    """Return the costs of preparing and indexing documents."""
    before_bytes = servers.used_bytes(client)
    started_s = time.process_time()
    prepared = prepare()
    prepared_s = time.process_time()
    server_s, commands = server_cpu_s(client), commands_count(client)
    clock_s, index_s = time.perf_counter(), time.process_time()
    index(prepared)
    indexed_s, stopped_s = time.process_time(), time.perf_counter()
    return Round(
        1e6 * (prepared_s - started_s) / count,
        1e6 * (indexed_s - index_s) / count,
        1e6 * (server_cpu_s(client) - server_s) / count,
        1e6 * (stopped_s - clock_s) / count,
        (commands_count(client) - commands) / count,
        (servers.used_bytes(client) - before_bytes) / count,
    )


def server_cpu_s(client: "redis.Redis") -> float:
    cpu: dict[str, Any] = client.info("cpu")
    return float(cpu["used_cpu_user"]) + float(cpu["used_cpu_sys"])


def commands_count(client: "redis.Redis") -> int:
    """Return how many commands the server has executed, those of scripts included."""
    statistics: dict[str, Any] = client.info("commandstats")
    return sum(int(command["calls"]) for command in statistics.values())
