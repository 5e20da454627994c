"""Memory of Redis for each document, everything included: streamdedup beside datasketch's LSH on the same server.

The growth of `used_memory` of the server: for streamdedup index entries, buckets, claims, fences and times to live,
after every batch was finished as after its commit. The server's tables grow by doubling, so the result depends on the
number of documents. Also on Valkey, which the extra "demo" brings. The peer keeps band values and ids: no signature to
verify with, no position, no expiry.
"""

from collections.abc import Callable
from functools import partial
from typing import Any
from zlib import crc32

import redis

from benchmarks import datasets, peers, report, servers
from benchmarks.ours import default_banding, index_on
from streamdedup.embedded import RedisServer
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
#: Columns of the table and their formats; ratios are to streamdedup with the same bands and the default settings.
COLUMNS = {"": "", "bands x rows": "", "bytes a document": ",.0f", "times ours with the same bands": ".1f"}
#: Fills the index on the server with a URL.
Fill = Callable[[str], None]


def main(*, quick: bool) -> report.Report:
    program, *others = servers.redis_programs()
    texts = datasets.load(1_000 if quick else 0)
    default, theirs = default_banding(), peers.own_banding()
    fills: list[tuple[str, Banding, Fill]] = [
        *((name, default, partial(fill_ours, texts.documents, keys)) for name, keys in OURS.items()),
        ("streamdedup", theirs, partial(fill_ours, texts.documents, {"bands": theirs.bands, "rows": theirs.rows})),
        *peer_fills(texts.documents, (default, theirs)),
    ]
    sizes: list[tuple[str, Banding, float]] = []
    for name, banding, fill in fills:
        server_name, size = measured(program, len(texts.documents), fill)
        sizes.append((name, banding, size))
    setting = {"documents": f"{texts.name}: {len(texts.documents):,}", "server": server_name}
    for program in others:
        for layout in LAYOUTS:
            fill = partial(fill_ours, texts.documents, {"redis.bucket_layout": layout})
            server_name, size = measured(program, len(texts.documents), fill)
            sizes.append((f'streamdedup, "{layout}" on {server_name}', default, size))
    ours = {banding: size for name, banding, size in sizes if name == "streamdedup"}
    rows = [[name, banding, size, size / ours[banding]] for name, banding, size in sizes]
    return report.Report(setting, {"bytes": report.table(COLUMNS, rows)})


def measured(program: str, count: int, fill: Fill) -> tuple[str, float]:
    """Return the name of a server, and the bytes for each of so many documents that filling the server takes."""
    with RedisServer(program) as server, redis.Redis.from_url(server.url) as client:
        # Asked first, so that the buffers of the client are no part of the growth.
        name = servers.name_of_redis(client)
        before = servers.used_bytes(client)
        fill(server.url)
        return name, (servers.used_bytes(client) - before) / count


def fill_ours(documents: list[datasets.Text], keys: dict[str, Any], url: str) -> None:
    with index_on(url, **keys) as index:
        for prepared in index.prepare(documents):
            index.index(prepared)


def peer_fills(documents: list[datasets.Text], bandings: tuple[Banding, ...]) -> list[tuple[str, Banding, Fill]]:
    """Return how datasketch is filled: as it comes, and with ids and band values as small as it allows."""
    signed = peers.sign(document.text for document in documents)
    ids = [document.id for document in documents]
    small = {"prepickle": False, "hashfunc": lambda values: crc32(values).to_bytes(4)}
    ways: tuple[tuple[str, list[Any], dict[str, Any]], ...] = (
        ("datasketch", ids, {}),
        ("datasketch, small keys", list(map(str.encode, ids)), small),
    )
    return [
        (name, banding, partial(fill_peer, list(zip(keys, signed, strict=True)), banding, options))
        for name, keys, options in ways
        for banding in bandings
    ]


def fill_peer(documents: list[tuple[Any, Any]], banding: Banding, options: dict[str, Any], url: str) -> None:
    peers.insert_all(peers.redis_index(url, banding, **options), documents)
