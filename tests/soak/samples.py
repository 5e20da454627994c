"""What is looked at while the daemon runs: one sample, and what a row of them says."""

from collections import Counter
from collections.abc import Iterator, Sequence
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
    """One look at daemon and Redis; ``documents_per_s`` counts from the sample before."""

    seconds: float  # since the first document
    consumed_count: int
    documents_per_s: float
    lag_count: int
    rss_bytes: int
    descriptors_count: int
    redis_bytes: int
    redis_keys_count: int


class Looker:
    """Takes samples of one daemon and one Redis."""

    def __init__(self, pid: int, client: "redis.Redis") -> None:
        self._pid = pid
        self._client = client
        self._before = 0.0, 0

    def look(self, seconds: float, metrics: str) -> Sample:
        """Take a sample; ``metrics`` is the text of ``/metrics``."""
        figures = _read(metrics)
        consumed = int(figures["streamdedup_records_total"])
        before_s, before_count = self._before
        self._before = seconds, consumed
        memory = self._client.info("memory")
        return Sample(
            seconds=round(seconds, 1),
            consumed_count=consumed,
            documents_per_s=round((consumed - before_count) / max(seconds - before_s, 1e-9), 1),
            lag_count=int(figures["streamdedup_lag_records"]),
            rss_bytes=rss_bytes(self._pid),
            descriptors_count=sum(1 for _ in Path(f"/proc/{self._pid}/fd").iterdir()),
            redis_bytes=int(memory["used_memory"]),
            redis_keys_count=int(self._client.dbsize()),
        )


def _read(metrics: str) -> Counter[str]:
    figures: Counter[str] = Counter()
    for family in text_string_to_metric_families(metrics):
        for sample in family.samples:
            figures[sample.name] += sample.value
    return figures


def judged(samples: Sequence[Sample], window_s: float) -> Iterator[tuple[str, bool]]:
    """Say what a run shows, and whether that is as it should be; documents are kept for ``window_s``."""
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
