"""Memory of Redis for each document, everything included: streamdedup beside datasketch's LSH on the same server.

    python -m benchmarks.memory [--quick] [--documents 0] [--redis PROGRAM]

The growth of `used_memory` of the server: for streamdedup index entries, buckets, claims, fences and times to live,
after every batch was finished as after its commit. The server's tables grow by doubling, so the result depends on the
number of documents. Also on Valkey, which the extra "demo" brings. The peer keeps band values and ids: no signature to
verify with, no position, no expiry.
"""

import argparse
from collections.abc import Callable
from functools import partial
from typing import Any
from zlib import crc32

import redis

from benchmarks import datasets, peers, report, servers
from benchmarks.ours import default_banding, index_on
from streamdedup.index.redis.buckets import LAYOUTS
from streamdedup.similarity.lsh import Banding

#: Settings that differ from the defaults, by the name of the row.
OURS: dict[str, dict[str, Any]] = {
    "streamdedup": {},
    'streamdedup, bucket_layout "packed"': {"redis.bucket_layout": "packed"},
    "streamdedup, exact_limit 0": {"exact_limit": 0},
    'streamdedup, exact_limit "none"': {"exact_limit": "none"},
    'streamdedup, shingle_unit "char"': {"shingle_unit": "char"},
    'streamdedup, "char", exact_limit 0': {"shingle_unit": "char", "exact_limit": 0},
    'streamdedup, "char", exact_limit "none"': {"shingle_unit": "char", "exact_limit": "none"},
    "streamdedup, label_bytes 0": {"label_bytes": 0},
}


def main() -> None:
    """Measure, print, write."""
    arguments = report.arguments_of(report.parser(__doc__), {"documents": 1_000}, {"documents": 0})
    texts = datasets.load(arguments.documents)
    default, theirs = default_banding(), peers.own_banding()
    fresh = Fresh(arguments.redis, len(texts.documents))

    def ours(**keys: Any) -> float:
        return fresh.bytes_after(lambda url: fill_ours(url, texts.documents, keys))

    sizes = [(name, default, ours(**keys)) for name, keys in OURS.items()]
    sizes.append(("streamdedup", theirs, ours(bands=theirs.bands, rows=theirs.rows)))
    sizes += peer_sizes(fresh, texts.documents, (default, theirs))
    setting = {"documents": f"{texts.name}: {len(texts.documents):,}", "server": fresh.name}
    for program in servers.redis_programs(arguments.redis)[1:]:
        fresh = Fresh(program, len(texts.documents))
        for layout in LAYOUTS:
            size = ours(**{"redis.bucket_layout": layout})
            sizes.append((f'streamdedup, "{layout}" on {fresh.name}', default, size))
    show(arguments, setting, sizes)


class Fresh:
    """A new server for each measurement: emptying one may free its memory later."""

    def __init__(self, program: str | None, count: int) -> None:
        self._program = program
        self._count = count
        self.name = ""

    def bytes_after(self, fill: Callable[[str], None]) -> float:
        """Return the bytes for each document that filling a server takes."""
        with servers.make_redis(self._program) as server, redis.Redis.from_url(server.url) as client:
            self.name = servers.name_of_redis(client)
            before = servers.used_bytes(client)
            fill(server.url)
            return (servers.used_bytes(client) - before) / self._count


def fill_ours(url: str, documents: list[datasets.Text], keys: dict[str, Any]) -> None:
    """Place documents in our index."""
    with index_on(url, **keys) as index:
        for prepared in index.prepare(documents):
            index.index(prepared)


def peer_sizes(
    fresh: Fresh, documents: list[datasets.Text], bandings: tuple[Banding, ...]
) -> list[tuple[str, Banding, float]]:
    """Return what datasketch takes: as it comes, and with ids and band values as small as it allows."""
    ids = [document.id for document in documents]
    signed = peers.sign(document.text for document in documents)
    small = {"prepickle": False, "hashfunc": lambda values: crc32(values).to_bytes(4)}
    sizes = []
    for name, names, options in (
        ("datasketch", ids, {}),
        ("datasketch, small keys", [document_id.encode() for document_id in ids], small),
    ):
        for banding in bandings:
            fill = partial(fill_peer, banding=banding, options=options, names=names, signed=signed)
            sizes.append((name, banding, fresh.bytes_after(fill)))
    return sizes


def fill_peer(url: str, banding: Banding, options: dict[str, Any], names: list[Any], signed: list[Any]) -> None:
    """Place documents in datasketch's index."""
    peers.insert_all(peers.redis_index(url, banding, **options), banding, names, signed)


def show(arguments: argparse.Namespace, setting: dict[str, Any], sizes: list[tuple[str, Banding, float]]) -> None:
    """Print and write everything; ratios are to streamdedup with the same bands and the default settings."""
    ours = {banding: size for name, banding, size in sizes if name == "streamdedup"}
    columns = ["", "bands x rows", "bytes a document", "times ours with the same bands"]
    rows = [[name, str(banding), f"{size:,.0f}", f"{size / ours[banding]:.1f}"] for name, banding, size in sizes]
    results = [
        {
            "name": name,
            "bands": banding.bands,
            "rows": banding.rows,
            "bytes_per_document": size,
            "times_ours": size / ours[banding],
        }
        for name, banding, size in sizes
    ]
    tables = {"bytes": report.Table(columns, rows)}
    report.Report("memory", arguments.quick, setting, results, tables).show(arguments.output)


if __name__ == "__main__":
    main()
