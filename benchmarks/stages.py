"""Processor time of the daemon's prepare and index stages, beside that of Redis, for both bucket layouts.

    python -m benchmarks.stages [--quick] [--documents 0] [--rounds 3] [--redis PROGRAM]

Documents are decoded beforehand and not counted. Each round indexes all documents in an empty index on a server of its
own, to the high-water mark that follows the commit, without Kafka. Processor time depends less on other work of the
machine than elapsed time does; the least of the rounds counts. Commands are those that Redis has counted, within
scripts too.
"""

import argparse
import time
from dataclasses import asdict, dataclass, fields
from typing import Any

import redis

from benchmarks import corpus, report, servers
from benchmarks.ours import index_on
from streamdedup.index.redis.buckets import LAYOUTS


@dataclass(frozen=True)
class Round:
    """Costs of a document: processor time in microseconds, commands of Redis, bytes of its memory."""

    prepare_us: float
    index_us: float
    redis_us: float
    commands: float
    memory_bytes: float


def main() -> None:
    """Measure, print, write."""
    arguments = parse_arguments()
    texts = corpus.load(arguments.documents)
    rounds: dict[str, list[Round]] = {layout: [] for layout in LAYOUTS}
    name = ""
    for _ in range(arguments.rounds):
        for layout, own in rounds.items():
            with servers.make_redis(arguments.redis) as server, redis.Redis.from_url(server.url) as client:
                name = servers.name_of_redis(client)
                own.append(measured(server.url, client, layout, texts.documents))
    setting = {"documents": f"{texts.name}: {len(texts.documents):,}", "server": name, "rounds": arguments.rounds}
    show(arguments, setting, rounds)


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = report.parser(__doc__)
    parser.add_argument("--documents", type=int, help="how many (0: each of the collection once)")
    parser.add_argument("--rounds", type=int, help="rounds of which the least costs count")
    parser.add_argument("--redis", metavar="PROGRAM", help="Redis server program")
    arguments = parser.parse_args()
    for name, value in zip(("documents", "rounds"), (2_000, 1) if arguments.quick else (0, 3), strict=True):
        if getattr(arguments, name) is None:
            setattr(arguments, name, value)
    return arguments


def measured(url: str, client: "redis.Redis", layout: str, documents: list[corpus.Text]) -> Round:
    """Index all documents on an empty server."""
    with index_on(url, **{"redis.bucket_layout": layout}) as index:
        index.prepare(documents[:10])  # tables that are built at the first text
        before_bytes = servers.used_bytes(client)
        started_s = time.process_time()
        prepared = index.prepare(documents)
        prepared_s = time.process_time()
        server_s, commands = server_cpu_s(client), commands_count(client)
        index_s = time.process_time()
        for batch in prepared:
            index.index(batch)
        indexed_s = time.process_time()
        count = len(documents)
        return Round(
            1e6 * (prepared_s - started_s) / count,
            1e6 * (indexed_s - index_s) / count,
            1e6 * (server_cpu_s(client) - server_s) / count,
            (commands_count(client) - commands) / count,
            (servers.used_bytes(client) - before_bytes) / count,
        )


def server_cpu_s(client: "redis.Redis") -> float:
    """Return the processor time of the server, in seconds."""
    cpu: dict[str, Any] = client.info("cpu")
    return float(cpu["used_cpu_user"]) + float(cpu["used_cpu_sys"])


def commands_count(client: "redis.Redis") -> int:
    """Return how many commands the server has executed, those of scripts included."""
    statistics: dict[str, Any] = client.info("commandstats")
    return sum(int(each["calls"]) for each in statistics.values())


def show(arguments: argparse.Namespace, setting: dict[str, Any], rounds: dict[str, list[Round]]) -> None:
    """Print and write everything."""
    columns = ["layout", "prepare, µs", "index, µs", "Redis, µs", "commands", "bytes a document"]
    rows, results = [], []
    for layout, own in rounds.items():
        least = Round(*(min(getattr(each, field.name) for each in own) for field in fields(Round)))
        times = (least.prepare_us, least.index_us, least.redis_us, least.commands)
        rows.append([layout, *(f"{value:.1f}" for value in times), f"{least.memory_bytes:,.0f}"])
        results.append({"layout": layout, "least": asdict(least), "rounds": [asdict(each) for each in own]})
    tables = {"stages": report.Table(columns, rows)}
    report.Report("stages", arguments.quick, setting, results, tables).show(arguments.output)


if __name__ == "__main__":
    main()
