"""Lag of each assigned partition: its end offset less the first offset that is not committed.

Offsets without a record (ends of transactions, aborted and compacted records) have no commit. Where no batch is in
progress, the offset to read next therefore counts as the first one that is not committed.

``statistics`` calls ``observe`` after each poll and commit, which sends no request, and ``refresh`` while the daemon
waits: it fetches nothing then, so Kafka is asked for the ends.
"""

import contextlib
import math
import time
from collections.abc import Callable, Mapping

from streamdedup.daemon.batch import now_ms
from streamdedup.daemon.metrics import Metrics
from streamdedup.errors import StreamdedupError
from streamdedup.kafka.protocols import Batch, Source
from streamdedup.position import Partition

#: Interval of the requests for ends while the daemon waits, in seconds.
REFRESH_S = 5.0


class Lags:
    """Shows the lags. Without an answer of Kafka the last lags stay, and their time in the metric shows the age.

    Args:
        metrics: Metrics to update.
        clock: Monotonic seconds.
    """

    def __init__(self, metrics: Metrics, clock: Callable[[], float] = time.monotonic) -> None:
        self._metrics = metrics
        self._clock = clock
        self._shown: dict[Partition, int] = {}
        #: First offset by partition of the batch in progress.
        self._starts: Mapping[Partition, int] = {}
        self._asked_at_s = -math.inf

    def total(self) -> int:
        """Return the sum of the lags."""
        return sum(self._shown.values())

    def observe(self, source: Source, in_progress: Batch | None) -> None:
        """Show the lags; ``in_progress`` is the batch that is polled and not committed, if there is one."""
        self._starts = {} if in_progress is None else in_progress.starts
        self._show(source)

    def rewound(self) -> None:
        """Forget the batch in progress, which the source will return again."""
        self._starts = {}

    def refresh(self, source: Source) -> None:
        """Ask Kafka for the ends, at most every ``REFRESH_S``, and show the lags."""
        now_s = self._clock()
        if now_s - self._asked_at_s < REFRESH_S:
            return
        self._asked_at_s = now_s
        with contextlib.suppress(StreamdedupError):  # the next poll raises what cannot be cured by waiting
            source.request_ends()
            self._show(source)

    def _show(self, source: Source) -> None:
        stats, assigned = source.stats(), source.assigned()
        if not assigned and not stats.rebalances_count:
            return  # new clients that have not joined the group yet
        for partition in self._shown.keys() - assigned:
            self._metrics.lag_records.remove(partition.topic, str(partition.number))
            del self._shown[partition]
        for partition, unread in stats.lags.items():
            end = stats.ends[partition]
            lag = max(unread, end - self._starts.get(partition, end))
            if self._shown.get(partition) != lag:
                self._metrics.lag_records.labels(partition.topic, str(partition.number)).set(lag)
                self._shown[partition] = lag
        self._metrics.lag_timestamp_seconds.set(now_ms() / 1000)
