"""Costs of a document as the index grows: processor time of Redis and of the client, memory, for both bucket layouts.

    python -m benchmarks.growth [--quick] [--sizes 100000 1000000 3000000] [--redis PROGRAM]

The index stage alone, without Kafka. The documents are the articles of the collection again and again. Copy k has the
shingle hashes of the first, each exclusive-or a number of the copy: the similarities within a copy are those of the
articles, and no two copies resemble each other. Signatures, band keys, index entries, candidates and claims follow
from the hashes as they do for any text. The processor time of Redis is the mean of all documents since the size before:
now and then the server moves all its keys to a table of twice the size, and few documents pay for all. The client is
measured by the last documents before each size, because the next documents are prepared while the others are indexed.
Sizes for which the memory of the machine is too small are left out. The
usual sizes take some 20 minutes on two cores, and 7 GB.

Each layout on the installed Redis and on Valkey of the extra "demo", or on PROGRAM alone. Beside them on the first of
the servers: *bare commands*, the two of layout "sets" alone (SADD and PEXPIREAT for each band), pipelined, with keys of
equal length. Their cost grows with the index as well: more keys than the caches of the processor hold.
"""

import argparse
import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import redis

from benchmarks import datasets, report, servers
from benchmarks.ours import Index, index_on, settings_for
from streamdedup.index.redis.buckets import LAYOUTS
from streamdedup.text.runs import offsets_of, ranges
from streamdedup.text.shingles import ShingleBatch, Shingler

SIZES = (100_000, 300_000, 450_000, 600_000, 1_000_000, 1_500_000, 2_000_000, 3_000_000)
#: Documents before each size that are measured.
MEASURED = 20_000
#: Documents that are prepared at once, while those before are indexed.
CHUNK = 10_000
#: Name of the rows without an index.
BARE = "bare commands"
#: Documents of one pipeline of bare commands.
BARE_DOCUMENTS = 500
#: Share of the available memory that an index may take.
MEMORY_SHARE = 0.8
#: Factor of the number of a copy; odd, so that different numbers below 2^32 have different products.
SPREAD = 0x9E3779B1


@dataclass(frozen=True)
class Point:
    """Costs of a document up to a size.

    Attributes:
        server: Name and version of the server.
        layout: Bucket layout.
        documents: Documents in the index.
        redis_us: Processor time of Redis for a document since the size before, in microseconds.
        client_us: Processor time of the client for each of the last documents, in microseconds, without shingles and
            signatures.
        documents_per_s: Documents indexed in a second, measured with the last ones.
        bytes_a_document: Memory of Redis, by document.
    """

    server: str
    layout: str
    documents: int
    redis_us: float
    client_us: float
    documents_per_s: float
    bytes_a_document: float

    @property
    def contender(self) -> tuple[str, str]:
        """Server and layout."""
        return self.server, self.layout


class Member(NamedTuple):
    """A document: article ``article`` in copy ``copy``."""

    copy: int
    article: int


class CopyShingler:
    """Replaces the shingler of a detector: the text of a document is the number of its copy and of its article.

    Args:
        articles: Shingles of all articles.
    """

    def __init__(self, articles: ShingleBatch) -> None:
        self._articles = articles

    def shingle(self, texts: Sequence[str]) -> ShingleBatch:
        """Return the shingles of each document."""
        members = [Member(*map(int, text.split())) for text in texts]
        articles = np.array([member.article for member in members], np.int64)
        numbers = np.array([member.copy * SPREAD % 2**32 for member in members], np.uint32)
        all_of = self._articles
        counts = np.diff(all_of.offsets)[articles]
        hashes = all_of.hashes[ranges(all_of.offsets[articles], counts)] ^ np.repeat(numbers, counts)
        places = np.repeat(np.arange(len(texts), dtype=np.uint64), counts)
        ordered = np.sort((places << np.uint64(32)) | hashes)
        tail_counts = np.diff(all_of.tail_offsets)[articles]
        return ShingleBatch(
            ordered.astype(np.uint32),
            offsets_of(counts),
            all_of.token_counts[articles],
            all_of.element_counts[articles],
            all_of.tails[ranges(all_of.tail_offsets[articles], tail_counts)],
            offsets_of(tail_counts),
            all_of.stop_only[articles],
        )


def main() -> None:
    """Measure, print, write."""
    arguments = parse_arguments()
    texts = datasets.load()
    options = settings_for().profiles["articles"].shingle_options()
    shingler = CopyShingler(Shingler(options).shingle(texts.texts))
    programs = servers.redis_programs(arguments.redis)
    points = list(shown(measured_bare(programs[0], arguments.sizes)))
    for program in programs:
        for layout in LAYOUTS:
            points += shown(measured(program, layout, arguments.sizes, shingler, len(texts.documents)))
    setting = {
        "documents": f"{texts.name}, copies with other shingle hashes",
        "server": "the mean of all documents since the size before",
        "client": f"the last {min(MEASURED, min(arguments.sizes) // 2):,} documents before each size",
        "left out": ", ".join(left_out(points, arguments.sizes)) or "nothing",
    }
    results = [asdict(point) for point in points]
    report.Report("growth", arguments.quick, setting, results, {"costs": costs(points)}).show(arguments.output)


def shown(points: Iterable[Point]) -> Iterator[Point]:
    """Yield points, each printed when it has been measured."""
    for point in points:
        print(point, file=sys.stderr, flush=True)
        yield point


def measured_bare(program: str, sizes: Sequence[int]) -> Iterator[Point]:
    """Measure the two commands of layout "sets" alone."""
    with servers.make_redis(program) as server, redis.Redis.from_url(server.url) as client:
        bands = settings_for().profiles["articles"].banding().bands
        yield from BareGrowth(client, server.pid, bands).points(sizes)


def measured(program: str, layout: str, sizes: Sequence[int], shingler: CopyShingler, articles: int) -> Iterator[Point]:
    """Measure one layout on one server."""
    with ExitStack() as stack:
        server = stack.enter_context(servers.make_redis(program))
        client = stack.enter_context(redis.Redis.from_url(server.url))
        index = stack.enter_context(index_on(server.url, **{"redis.bucket_layout": layout}))
        index.detector._preparer.shingler = shingler  # type: ignore[assignment]  # noqa: SLF001  has the one method used
        yield from IndexGrowth(index, client, server.pid, layout, articles).points(sizes)


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = report.parser(__doc__ or "")
    parser.add_argument("--sizes", type=int, nargs="+", help="documents in the index, ascending")
    parser.add_argument("--redis", metavar="PROGRAM", help="Redis server program")
    arguments = parser.parse_args()
    arguments.sizes = arguments.sizes or ([1_000, 3_000] if arguments.quick else [*SIZES])
    return arguments


class Meter:
    """Measures a server and its client between two sizes of the index.

    Args:
        client: A client of the server, empty.
        pid: Process id of the server.
        layout: Bucket layout, for the results.
    """

    def __init__(self, client: "redis.Redis", pid: int, layout: str) -> None:
        self._client = client
        self._pid = pid
        self._layout = layout
        self._empty_bytes = servers.used_bytes(client)
        self._documents = 0
        self._used_s = servers.cpu_s(pid)

    def used_bytes(self) -> int:
        """Return the memory of the index."""
        return servers.used_bytes(self._client) - self._empty_bytes

    def point(self, size: int, count: int, insert: Callable[[], None]) -> Point:
        """Call ``insert``, which inserts the last ``count`` documents before a size, and return the costs."""
        client_s, begun_s = time.process_time(), time.monotonic()
        insert()
        seconds = time.monotonic() - begun_s
        client_us = 1e6 * (time.process_time() - client_s) / count
        used_s = servers.cpu_s(self._pid)
        redis_us = 1e6 * (used_s - self._used_s) / (size - self._documents)
        self._documents, self._used_s = size, used_s
        name, each_bytes = servers.name_of_redis(self._client), self.used_bytes() / size
        return Point(name, self._layout, size, redis_us, client_us, count / seconds, each_bytes)


class BareGrowth:
    """Fills one server with sets of one member each, without scripts.

    Args:
        client: A client of the server, empty.
        pid: Process id of the server.
        bands: Sets for each document.
    """

    def __init__(self, client: "redis.Redis", pid: int, bands: int) -> None:
        self._client = client
        self._bands = bands
        self._filled = 0
        self._meter = Meter(client, pid, BARE)
        self._keys = np.random.default_rng(1)

    def points(self, sizes: Sequence[int]) -> Iterator[Point]:
        """Measure at each size."""
        for size in sizes:
            measured = min(MEASURED, min(sizes) // 2)
            self._fill(size - measured)
            yield self._meter.point(size, measured, partial(self._fill, size))

    def _fill(self, size: int) -> None:
        """Insert documents until there are so many."""
        expiry = int(time.time() * 1000) + 86_400_000
        for first in range(self._filled, size, BARE_DOCUMENTS):
            last = min(first + BARE_DOCUMENTS, size)
            pipeline = self._client.pipeline(transaction=False)
            for number in range(first, last):
                for band, key in enumerate(self._keys.integers(0, 2**32, self._bands, np.uint32)):
                    name = b"sd:{0}:b:%d:%s" % (band, key.tobytes())
                    pipeline.sadd(name, number)
                    pipeline.pexpireat(name, expiry)
            pipeline.execute()
        self._filled = size


class IndexGrowth:
    """Fills one index.

    Args:
        index: The index, empty.
        client: A client of its server.
        pid: Process id of the server.
        layout: Bucket layout.
        articles: Documents in one copy.
    """

    def __init__(self, index: Index, client: "redis.Redis", pid: int, layout: str, articles: int) -> None:
        self._index = index
        self._articles = articles
        self._filled = 0
        self._meter = Meter(client, pid, layout)

    def points(self, sizes: Sequence[int]) -> Iterator[Point]:
        """Measure at each size that the machine has memory for."""
        for size in sizes:
            if not self._fits(size):
                return
            measured = min(MEASURED, min(sizes) // 2)
            self.fill(size - measured)
            batches = self._prepare(size - measured, size)
            yield self._meter.point(size, measured, partial(self._insert, batches))
            self._filled = size

    def _fits(self, size: int) -> bool:
        if not self._filled:
            return True
        return self._meter.used_bytes() * (size / self._filled - 1) < MEMORY_SHARE * available_bytes()

    def fill(self, size: int) -> None:
        """Index documents until there are so many; the next ones are prepared meanwhile."""
        firsts = range(self._filled, size, CHUNK)
        with ThreadPoolExecutor(max_workers=1) as thread:
            made = [thread.submit(self._prepare, first, min(first + CHUNK, size)) for first in firsts[:1]]
            for number in range(len(firsts)):
                batches = made.pop().result()
                made = [
                    thread.submit(self._prepare, first, min(first + CHUNK, size))
                    for first in firsts[number + 1 : number + 2]
                ]
                self._insert(batches)
        self._filled = size

    def _insert(self, batches: Iterable[Any]) -> None:
        for batch in batches:
            self._index.index(batch)

    def _prepare(self, first: int, last: int) -> list[Any]:
        members = (Member(*divmod(number, self._articles)) for number in range(first, last))
        documents = [datasets.Text(f"{copy}-{article}", f"{copy} {article}") for copy, article in members]
        return self._index.prepare(documents, first)


def available_bytes() -> float:
    """Return the available memory of the machine; infinite where the system does not report it."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return float("inf")
    (line,) = (line for line in lines if line.startswith("MemAvailable:"))
    return 1024.0 * int(line.split()[1])


def left_out(points: Sequence[Point], sizes: Sequence[int]) -> list[str]:
    """Return the sizes that were not measured."""
    done = {(point.contender, point.documents) for point in points}
    return [
        f"{layout} at {size:,} on {server}"
        for server, layout in dict.fromkeys(point.contender for point in points)
        for size in sizes
        if ((server, layout), size) not in done
    ]


def costs(points: Sequence[Point]) -> report.Table:
    """Return the table."""
    first: dict[tuple[str, str], Point] = {}
    rows = []
    for point in points:
        first_point = first.setdefault(point.contender, point)
        # A quick run may take less than one tick of the clock of processor time.
        times = point.redis_us / first_point.redis_us if first_point.redis_us else math.nan
        values = [f"{point.redis_us:.1f}", f"{times:.2f}", f"{point.client_us:.1f}"]
        rates = [f"{point.documents_per_s:,.0f}", f"{point.bytes_a_document:,.0f}"]
        name = BARE if point.layout == BARE else f'"{point.layout}"'
        rows.append([point.server, name, f"{point.documents:,}", *values, *rates])
    columns = [
        "server",
        "bucket_layout",
        "documents",
        "server, µs, mean",
        "times the first",
        "client, µs",
        "documents/s",
        "bytes a document",
    ]
    return report.Table(columns, rows)


if __name__ == "__main__":
    main()
