"""What is looked at while the daemon runs: one sample, and what a row of them says."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import redis
from prometheus_client.parser import text_string_to_metric_families

from tests.fuzz.memory import growth, rss_bytes

#: Growth from the second quarter of a run to the last that is none.
MOST_GROWTH = 0.05
#: Redis' bytes in the last window may be so many times those after two windows.
MOST_OF_REDIS = 1.1


@dataclass(frozen=True)
class Sample:
    """One look.

    Attributes:
        seconds: Since the first document.
        consumed_count: Records consumed so far.
        documents_per_s: Records consumed a second since the sample before.
        lag_count: Records still to read.
        rss_bytes: Resident memory of the daemon.
        descriptors_count: Its open file descriptors.
        threads_count: Its threads.
        redis_bytes: Memory that Redis has allocated.
        redis_keys_count: Keys in Redis.
        latency_p99_s: Of the records since the sample before, from record time to commit; None for no record.
    """

    seconds: float
    consumed_count: int
    documents_per_s: float
    lag_count: int
    rss_bytes: int
    descriptors_count: int
    threads_count: int
    redis_bytes: int
    redis_keys_count: int
    latency_p99_s: float | None


class Looker:
    """Takes samples of one daemon and one Redis.

    Args:
        pid: The daemon's process.
        client: Of Redis.
    """

    def __init__(self, pid: int, client: "redis.Redis") -> None:
        self._pid = pid
        self._client = client
        self._before: tuple[float, int, Counter[float]] = (0.0, 0, Counter())

    def look(self, seconds: float, metrics: str) -> Sample:
        """Take a sample.

        Args:
            seconds: Since the first document.
            metrics: The text of ``/metrics``.
        """
        figures, buckets = _read(metrics)
        consumed = int(figures["streamdedup_records_total"])
        before_s, before_count, before_buckets = self._before
        self._before = seconds, consumed, buckets
        memory = self._client.info("memory")
        return Sample(
            seconds=round(seconds, 1),
            consumed_count=consumed,
            documents_per_s=round((consumed - before_count) / max(seconds - before_s, 1e-9), 1),
            lag_count=int(figures["streamdedup_lag_records"]),
            rss_bytes=rss_bytes(self._pid),
            descriptors_count=sum(1 for _ in Path(f"/proc/{self._pid}/fd").iterdir()),
            threads_count=_threads_count(self._pid),
            redis_bytes=int(memory["used_memory"]),
            redis_keys_count=int(self._client.dbsize()),
            latency_p99_s=quantile(0.99, {le: count - before_buckets[le] for le, count in buckets.items()}),
        )


def _read(metrics: str) -> tuple[Counter[str], Counter[float]]:
    """Return the sum of each metric, and the cumulative buckets of the latency."""
    figures: Counter[str] = Counter()
    buckets: Counter[float] = Counter()
    for family in text_string_to_metric_families(metrics):
        for sample in family.samples:
            figures[sample.name] += sample.value
            if sample.name == "streamdedup_latency_seconds_bucket":
                buckets[float(sample.labels["le"])] += int(sample.value)
    return figures, buckets


def _threads_count(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    return int(re.findall(r"^Threads:\s*(\d+)", status, re.MULTILINE)[0])


def quantile(share: float, buckets: Mapping[float, int]) -> float | None:
    """Return a quantile of cumulative buckets, by their upper bounds; within a bucket by a straight line."""
    total = buckets.get(float("inf"), 0)
    lower_bound, lower_count = 0.0, 0
    for bound, count in sorted(buckets.items()):
        if total and count >= share * total:
            if bound == float("inf"):
                return lower_bound
            inside = (share * total - lower_count) / (count - lower_count) if count > lower_count else 1.0
            return lower_bound + (bound - lower_bound) * inside
        lower_bound, lower_count = bound, count
    return None


def judged(samples: Sequence[Sample], window_s: float) -> Iterator[tuple[str, bool]]:
    """Say what a run shows, and whether that is as it should be.

    Args:
        samples: In order of time.
        window_s: How long documents are kept, in seconds.
    """
    for name, values in (
        ("RSS", [sample.rss_bytes for sample in samples]),
        ("file descriptors", [sample.descriptors_count for sample in samples]),
    ):
        grown = growth(values)
        yield (
            f"{name} {grown:+.1%} from the second quarter to the last (at most {MOST_GROWTH:+.0%})",
            grown <= MOST_GROWTH,
        )
    end = samples[-1].seconds
    early = [s.redis_bytes for s in samples if 2 * window_s <= s.seconds < 3 * window_s]
    late = [s.redis_bytes for s in samples if s.seconds >= end - window_s]
    if not early or end < 5 * window_s:
        yield f"Redis: {end / window_s:.1f} windows are too few to tell whether it levels off", False
        return
    ratio = median(late) / median(early)
    yield (
        f"Redis {ratio:.3f} times as large in window {end / window_s:.0f} as after two (at most {MOST_OF_REDIS})",
        ratio <= MOST_OF_REDIS,
    )
