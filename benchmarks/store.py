"""Look up and insert documents in Redis: streamdedup's index stage beside datasketch's LSH on the same server.

    python -m benchmarks.store [--quick] [--documents 0] [--peer-documents 1000] [--rounds 3] [--redis PROGRAM]

Signatures are made beforehand and not timed. streamdedup runs the index stage of the daemon: it inserts entries,
inserts into buckets and looks up, compares candidates, claims pairs and finishes the batch. The peers look up and
insert, and verify nothing. Contenders take turns, each on an empty server, and the best round of each counts. The peers
get fewer documents, because they are slower.
"""

import argparse
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from typing import Any

import redis

from benchmarks import corpus, peers, report, servers
from benchmarks.ours import BATCH_DOCUMENTS, default_banding, index_on
from streamdedup.similarity.lsh import Banding


@dataclass(frozen=True)
class Round:
    """Duration of one round, and its processor time in microseconds for each document."""

    documents: int
    seconds: float
    documents_per_s: float
    client_cpu_us: float
    server_cpu_us: float


@dataclass(frozen=True)
class Contender:
    """A name, its bands, whether it reports similar documents, its number of documents, and a function to run it."""

    name: str
    banding: Banding
    looks_up: bool
    documents: int
    run: Callable[[Callable[[], Any]], None]


def main() -> None:
    """Measure, print, write."""
    arguments = parse_arguments()
    texts = corpus.load(arguments.documents)
    few = texts.documents[: arguments.peer_documents]
    with ExitStack() as stack:
        server = stack.enter_context(servers.make_redis(arguments.redis))
        client = stack.enter_context(redis.Redis.from_url(server.url))
        contenders = [
            ours(server.url, texts.documents, banding) for banding in (default_banding(), peers.own_banding())
        ]
        contenders += peers_of(server.url, few)
        rounds = measure(client, contenders, arguments.rounds)
        setting = {
            "documents": f"{texts.name}: {len(texts.documents):,}, for the peers the first {len(few):,}",
            "server": servers.name_of_redis(client),
            "batch": BATCH_DOCUMENTS,
            "rounds": arguments.rounds,
        }
    show(arguments, setting, contenders, rounds)


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = report.parser(__doc__)
    parser.add_argument("--documents", type=int, help="for streamdedup (0: each of the collection once)")
    parser.add_argument("--peer-documents", type=int)
    parser.add_argument("--rounds", type=int, help="rounds of which the best counts")
    parser.add_argument("--redis", metavar="PROGRAM", help="Redis server program")
    arguments = parser.parse_args()
    usual = (2_000, 200, 1) if arguments.quick else (0, 1_000, 3)
    for name, value in zip(("documents", "peer_documents", "rounds"), usual, strict=True):
        if getattr(arguments, name) is None:
            setattr(arguments, name, value)
    return arguments


def ours(url: str, documents: list[corpus.Text], banding: Banding) -> Contender:
    """Return the index stage of the daemon."""

    def run(start: Callable[[], Any]) -> None:
        with index_on(url, bands=banding.bands, rows=banding.rows) as index:
            prepared = index.prepare(documents)
            start()
            for batch in prepared:
                index.index(batch)

    return Contender("streamdedup", banding, True, len(documents), run)


def peers_of(url: str, documents: list[corpus.Text]) -> list[Contender]:
    """Return datasketch with its own bands and with those of the daemon, and its insertion alone."""
    ids = [document.id for document in documents]
    signed = peers.sign(document.text for document in documents)

    def contender(name: str, step: peers.Step, banding: Banding, *, looks_up: bool) -> Contender:
        def run(start: Callable[[], Any]) -> None:
            index = peers.redis_index(url, banding)
            start()
            for first in range(0, len(ids), BATCH_DOCUMENTS):
                batch = slice(first, first + BATCH_DOCUMENTS)
                step(index, banding, ids[batch], signed[batch])

        return Contender(f"datasketch, {name}", banding, looks_up, len(ids), run)

    bandings = (peers.own_banding(), default_banding())
    found = [contender(name, step, one, looks_up=True) for name, step in peers.STEPS.items() for one in bandings]
    return [*found, *(contender("inserts only", peers.insert_all, one, looks_up=False) for one in bandings)]


def measure(client: "redis.Redis", contenders: list[Contender], rounds: int) -> list[list[Round]]:
    """Run all contenders in turns; return the rounds of each."""
    found: list[list[Round]] = [[] for _ in contenders]
    for _ in range(rounds):
        for contender, own in zip(contenders, found, strict=True):
            own.append(measured(client, contender))
    return found


def measured(client: "redis.Redis", contender: Contender) -> Round:
    """Run one round on an empty server."""
    servers.empty(client)
    began: list[tuple[float, float, float]] = []

    def now() -> tuple[float, float, float]:
        return time.perf_counter(), time.process_time(), server_cpu_s(client)

    contender.run(lambda: began.append(now()))
    seconds, client_s, server_s = (end - start for start, end in zip(began[0], now(), strict=True))
    count = contender.documents
    return Round(count, seconds, count / seconds, 1e6 * client_s / count, 1e6 * server_s / count)


def server_cpu_s(client: "redis.Redis") -> float:
    """Return the processor time of the server, in seconds."""
    cpu: dict[str, Any] = client.info("cpu")
    return float(cpu["used_cpu_user"]) + float(cpu["used_cpu_sys"])


def show(
    arguments: argparse.Namespace, setting: dict[str, Any], contenders: list[Contender], rounds: list[list[Round]]
) -> None:
    """Print and write everything."""
    best = [max(own, key=lambda one: one.documents_per_s) for own in rounds]
    columns = ["", "bands x rows", "finds at 0.8", "documents/s", "times slower", "client, µs", "Redis, µs"]
    rows, results = [], []
    for contender, one, own in zip(contenders, best, rounds, strict=True):
        ratio = best[0].documents_per_s / one.documents_per_s
        chance = f"{contender.banding.probability(peers.THRESHOLD):.2f}" if contender.looks_up else "nothing"
        cells = [
            f"{one.documents_per_s:,.0f}",
            f"{ratio:.1f}",
            f"{one.client_cpu_us:,.0f}",
            f"{one.server_cpu_us:,.0f}",
        ]
        rows.append([contender.name, str(contender.banding), chance, *cells])
        facts = {"name": contender.name, **asdict(contender.banding), "times_slower": ratio}
        results.append({**facts, "best": asdict(one), "rounds": [asdict(each) for each in own]})
    tables = {"rates": report.Table(columns, rows)}
    report.Report("store", arguments.quick, setting, results, tables).show(arguments.output)


if __name__ == "__main__":
    main()
