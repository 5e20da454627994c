"""Costs of a document as the index grows: processor time of Redis and of the client, memory, for both bucket layouts.

The index stage alone, without Kafka. The documents are the articles of the collection again and again. Copy k has the
shingle hashes of the first, each exclusive-or a number of the copy: the similarities within a copy are those of the
articles, and no two copies resemble each other. Signatures, band keys, index entries, candidates and claims follow
from the hashes as they do for any text. The processor time of Redis is the mean of all documents since the size before:
now and then the server moves all its keys to a table of twice the size, and few documents pay for all. The client is
measured by the last documents before each size, because the next documents are prepared while the others are indexed.
Sizes for which the memory of the machine is too small are left out. The usual sizes take some 20 minutes on two
cores, and 7 GB. Each layout on the installed Redis and on Valkey of the extra "demo".
"""

import itertools
import math
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import astuple, dataclass
from typing import Any

import numpy as np
import redis

from benchmarks import datasets, report, servers
from benchmarks.ours import Index, default_profile, index_on
from streamdedup.embedded import RedisServer
from streamdedup.index.redis.buckets import LAYOUTS
from streamdedup.text.runs import offsets_of, ranges
from streamdedup.text.shingles import ShingleBatch, Shingler

#: Documents in the index, ascending.
SIZES = (100_000, 300_000, 450_000, 600_000, 1_000_000, 1_500_000, 2_000_000, 3_000_000)
#: Documents before each size that are measured.
MEASURED = 20_000
#: Documents that are prepared at once, while those before are indexed.
CHUNK = 10_000
#: Share of the available memory that an index may take.
MEMORY_SHARE = 0.8
#: Factor of the number of a copy; odd, so that different numbers below 2^32 have different products.
SPREAD = 0x9E3779B1
#: Columns of the table, and their formats.
COLUMNS = {
    "server": "",
    "bucket_layout": "",
    "documents": "",
    "server, µs, mean": ".1f",
    "client, µs": ".1f",
    "documents/s": ",.0f",
    "bytes a document": ",.0f",
}


@dataclass(frozen=True)
class Point:
    """Costs of a document up to a size."""

    server: str
    layout: str
    documents: int
    redis_us: float
    client_us: float
    documents_per_s: float
    bytes_a_document: float


class CopyShingler:
    """Replaces the shingler of a detector: the text of a document is the number of its copy and of its article."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._articles = Shingler(default_profile().shingle_options()).shingle(texts)
        self.articles_count = len(texts)

    def shingle(self, texts: Sequence[str]) -> ShingleBatch:
        copies, articles = np.array([text.split() for text in texts]).astype(np.int64).reshape(-1, 2).T
        all_of = self._articles
        counts = np.diff(all_of.offsets)[articles]
        numbers = (copies * SPREAD % 2**32).astype(np.uint32)
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


def main(*, quick: bool) -> report.Report:
    sizes = (1_000, 3_000) if quick else SIZES
    texts = datasets.load()
    shingler = CopyShingler(texts.texts)
    points = []
    for program, layout in itertools.product(servers.redis_programs(), LAYOUTS):
        for point in measured(program, layout, sizes, shingler):
            print(point, file=sys.stderr, flush=True)
            points.append(point)
    setting = {
        "documents": f"{texts.name}, copies with other shingle hashes",
        "server": "the mean of all documents since the size before",
        "client": f"the last {last_count(sizes):,} documents before each size",
    }
    return report.Report(setting, {"costs": costs(points)})


def measured(program: str, layout: str, sizes: Sequence[int], shingler: CopyShingler) -> Iterator[Point]:
    with (
        RedisServer(program) as server,
        redis.Redis.from_url(server.url) as client,
        index_on(server.url, **{"redis.bucket_layout": layout}) as index,
    ):
        yield from IndexGrowth(client, server.pid, layout, index, shingler).points(sizes)


def last_count(sizes: Sequence[int]) -> int:
    """Return the number of documents before each size that are measured."""
    return min(MEASURED, min(sizes) // 2)


class IndexGrowth:
    """Fills one index with copies of the articles of a shingler, and measures server and client between two sizes."""

    def __init__(self, client: "redis.Redis", pid: int, layout: str, index: Index, shingler: CopyShingler) -> None:
        self._client = client
        self._pid = pid
        self._layout = layout
        self._index = index
        index.detector._preparer.shingler = shingler  # type: ignore[assignment]  # noqa: SLF001  has the one method used
        self._articles_count = shingler.articles_count
        self._empty_bytes = servers.used_bytes(client)
        self._filled = 0

    def points(self, sizes: Sequence[int]) -> Iterator[Point]:
        """Measure at each size that the machine has memory for."""
        count, before, before_s = last_count(sizes), 0, servers.cpu_s(self._pid)
        for size in sizes:
            if not self._fits(size):
                print(f"{self._layout}: no memory for {size:,} documents or more", file=sys.stderr)
                return
            self.fill(size - count)
            prepared = self.prepare(self._filled, size)
            client_s, begun_s = time.process_time(), time.monotonic()
            self.insert(prepared)
            seconds = time.monotonic() - begun_s
            client_us = 1e6 * (time.process_time() - client_s) / count
            used_s = servers.cpu_s(self._pid)
            redis_us = 1e6 * (used_s - before_s) / (size - before)
            name, size_bytes = servers.name_of_redis(self._client), self._used_bytes() / size
            yield Point(name, self._layout, size, redis_us, client_us, count / seconds, size_bytes)
            self._filled, before, before_s = size, size, used_s

    def fill(self, size: int) -> None:
        """Index documents until there are so many; the next ones are prepared meanwhile."""
        with ThreadPoolExecutor(max_workers=1) as thread:
            following: Future[list[Any]] | None = None
            for first in [*range(self._filled, size, CHUNK), None]:
                batches = following.result() if following else []
                following = None if first is None else thread.submit(self.prepare, first, min(first + CHUNK, size))
                self.insert(batches)
        self._filled = size

    def insert(self, batches: Iterable[Any]) -> None:
        for batch in batches:
            self._index.index(batch)

    def prepare(self, first: int, last: int) -> list[Any]:
        """Return the documents from ``first`` on, below ``last``, in batches."""
        members = (divmod(number, self._articles_count) for number in range(first, last))
        documents = [datasets.Text(f"{copy}-{article}", f"{copy} {article}") for copy, article in members]
        return self._index.prepare(documents, first)

    def _used_bytes(self) -> int:
        return servers.used_bytes(self._client) - self._empty_bytes

    def _fits(self, size: int) -> bool:
        if not self._filled:
            return True
        return self._used_bytes() * (size / self._filled - 1) < MEMORY_SHARE * available_bytes()


def available_bytes() -> float:
    """Return the available memory of the machine; infinite where the system does not report it."""
    memory = report.first_after("/proc/meminfo", "MemAvailable")
    return math.inf if memory is None else 1024.0 * int(memory.split()[0])


def costs(points: Sequence[Point]) -> report.Table:
    rows = [[point.server, f'"{point.layout}"', *astuple(point)[2:]] for point in points]
    return report.table(COLUMNS, rows)
