"""From the producer of a document to a subscriber of its alert, in milliseconds, at several steady rates.

Some documents are near-duplicates of one sent a second before, and their alerts are awaited: the time counts from the
moment at which the producer's schedule wanted to send the document (`benchmarks.load`) to the moment at which a
subscriber that reads committed records only has the alert. Beside the daemon the *bare loop* of `benchmarks.consumers`
runs at the same rates: it forwards the same records in transactions and computes nothing. Producer, contender and
subscriber are processes of their own on the same machine as broker and Redis.

First the bare loop runs once at the highest rate, uncounted: the code of a broker that has just started is not yet
compiled, so that its transactions take twice as long.
"""

import json
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import consumers, datasets, load, report, servers
from benchmarks.called import RESULT
from benchmarks.servers import ModuleProcess
from benchmarks.world import Job, World
from streamdedup.embedded import ManagedProcess, ServerError

OURS, BARE = "streamdedup", "bare loop"
#: Seconds of each run that are not counted.
WARM_S = 3.0
#: Seconds between a near-duplicate and its original.
LAG_S = 1.0
#: Shortest text, in characters: a few words more keep it a near-duplicate.
LEAST_CHARACTERS = 300
#: By the highest rate: one document of so many is a near-duplicate. In Reuters it is one of 40; more of them at low
#: rates, for the sake of the 99th percentile.
SHARES = {100: 2, 100_000: 20}
#: By the highest rate: time for which the producer collects records, in milliseconds. A producer that sends a thousand
#: requests in a second takes 0.4 of a core from the daemon, and from the broker as much; Kafka's own client collects
#: for 5 ms by default.
LINGERS_MS = {100: 0, 100_000: 5}
#: Fewest alerts awaited at a low rate, where the run is made longer for it.
LEAST_ALERTS = 600


@dataclass(frozen=True)
class Measured:
    """One run of one contender at one rate."""

    name: str
    rate: int
    missing: int
    p50_ms: float
    p99_ms: float
    late_p99_ms: float
    others_share: float


class End(ModuleProcess):
    def __init__(self, end: str, kafka: str, topic: str, **more: object) -> None:
        super().__init__("load", end, kafka=kafka, topic=topic, **more)
        self.name = end

    def is_ready(self) -> bool:
        return load.READY in self.log_path.read_text(encoding="utf-8")

    def result(self, deadline_s: float) -> Any:
        """Return the result of a process that ends by itself."""
        # A process works in its own directory.
        path = self.directory / RESULT
        if not self.wait_exit(deadline_s) or not path.exists():
            raise ServerError(f"{self.name} left no result{self.log_tail()}")
        return json.loads(path.read_text(encoding="utf-8"))


def producer_of(world: World, job: Job, documents: Path, rate: int, linger_ms: int) -> End:
    path = str(documents.resolve())
    return End("produce", world.address, job.topic, documents=path, rate=rate, linger_ms=linger_ms)


def main(*, quick: bool) -> report.Report:
    rates, seconds = ([20, 1_000], 2.0) if quick else ([20, 1_000, 3_500], 15.0)
    measurements: list[Measured] = []
    with World.started() as world:
        makers: dict[str, Callable[[Job], ManagedProcess]] = {
            BARE: lambda job: world.consumer(job, "bare", copies=True),
            OURS: world.daemon,
        }
        highest = max(rates)
        path = world.folder / "documents"
        measure(world, BARE, makers[BARE], highest, path, documents_of(highest, seconds, path))
        for rate in rates:
            count = documents_of(rate, seconds, path)
            for name, make in makers.items():
                measurements.append(measure(world, name, make, rate, path, count))
                print(measurements[-1], file=sys.stderr, flush=True)
        setting = {
            "documents": "Reuters" if datasets.path_of(datasets.REUTERS) else "sample",
            "servers": world.servers(),
            "other programs": f"{max(run.others_share for run in measurements):.0%} of the machine at most",
            "missing alerts": sum(run.missing for run in measurements),
            "producer": f"late by at most {max(run.late_p99_ms for run in measurements):.1f} ms (99 of 100 records)",
        }
    return report.Report(setting, {"rates": table(measurements)})


def documents_of(rate: int, seconds: float, path: Path) -> int:
    """Write the documents of a run, one a line; return their number."""
    count = round((WARM_S + max(seconds, min(LEAST_ALERTS * 2 / rate, seconds * 4))) * rate)
    texts = (text for text in datasets.load(2 * count).texts if len(text) >= LEAST_CHARACTERS)
    load.write_documents(path, ((key_of(number, rate), text) for number, text in in_pairs(texts, rate, count)))
    return count


def in_pairs(texts: Iterator[str], rate: int, count: int) -> Iterator[tuple[int, str]]:
    """Yield numbered texts, among them near-duplicates of the text ``LAG_S`` before, as soon as there is one."""
    lag = lag_of(rate)
    sent: deque[str] = deque(maxlen=lag)
    for number in range(count):
        text = f"{sent[0]} repeated as number {number}" if is_copy(number, rate) else next(texts)
        sent.append(text)
        yield number, text


def is_copy(number: int, rate: int) -> bool:
    """Tell whether a document is a near-duplicate of an earlier one, so that an alert is awaited."""
    interval = of_rate(SHARES, rate)
    return number % interval == interval - 1 and number >= lag_of(rate)


def of_rate(values: Mapping[int, int], rate: int) -> int:
    """Return the value of the lowest limit that a rate does not exceed."""
    return values[min(limit for limit in values if rate <= limit)]


def key_of(number: int, rate: int) -> str:
    return f"{load.AWAITED.decode() if is_copy(number, rate) else ''}{number}"


def lag_of(rate: int) -> int:
    """Return the distance of a near-duplicate from its original: an odd number, so that the original is no copy."""
    return max(1, round(rate * LAG_S)) // 2 * 2 + 1


def measure(
    world: World, name: str, make: Callable[[Job], ManagedProcess], rate: int, documents: Path, count: int
) -> Measured:
    """Run one contender at one rate."""
    job = world.empty_job()
    copies = [number for number in range(count) if is_copy(number, rate)]
    limit_s = load.PATIENCE_S + 2 * count / rate
    with ExitStack() as stack:
        process = stack.enter_context(make(job))
        if name == BARE:
            process.wait_until(lambda: consumers.is_at_work(process), load.PATIENCE_S)
        producer = producer_of(world, job, documents, rate, of_rate(LINGERS_MS, rate))
        subscriber = End("subscribe", world.address, job.output, count=len(copies))
        for end in (subscriber, producer):
            stack.enter_context(end)
        pids = [process.pid, world.redis.pid, world.kafka_pid, os.getpid()]
        begun_s, busy_s, cpu_s = time.monotonic(), servers.busy_s(), sum(map(servers.cpu_s, pids))
        sent, seen = producer.result(limit_s), subscriber.result(limit_s)
        used_s = sum(map(servers.cpu_s, pids)) - cpu_s + sent["cpu_s"] + seen["cpu_s"]
        all_s = (time.monotonic() - begun_s) * (os.cpu_count() or 1)
        others = max(0.0, servers.busy_s() - busy_s - used_s) / all_s
    awaited = [number for number in copies if number >= WARM_S * rate]
    taken = taken_ms(sent, seen, awaited, rate)
    if not taken:
        raise ServerError(f"{name}: no alert arrived")
    p50, p99 = np.percentile(taken, [50, 99]).tolist()
    late = float(np.percentile(sent["late_ms"], 99))
    return Measured(name, rate, len(awaited) - len(taken), p50, p99, late, others)


def taken_ms(sent: Mapping[str, Any], seen: Mapping[str, Any], awaited: Iterable[int], rate: int) -> list[float]:
    """Return the time from the schedule of each awaited document to its alert, of those that have one."""
    arrived_s = {number: seen["arrived_s"].get(key_of(number, rate)) for number in awaited}
    return [1000 * (at_s - sent["begin_s"] - number / rate) for number, at_s in arrived_s.items() if at_s is not None]


def table(measurements: Sequence[Measured]) -> report.Table:
    """Return the table of latencies, a row for each rate; the measurements of a rate follow each other."""
    rows = [
        [f"{bare.rate:,}/s", bare.p50_ms, bare.p99_ms, ours.p50_ms, ours.p99_ms]
        for bare, ours in zip(measurements[::2], measurements[1::2], strict=True)
    ]
    columns = [f"{name}, {part}" for name in (BARE, OURS) for part in ("p50", "p99")]
    return report.table({"produce to subscriber, ms": "", **dict.fromkeys(columns, ".0f")}, rows)
