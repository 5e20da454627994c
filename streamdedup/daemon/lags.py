"""Lag of each assigned partition: its end offset less the first offset that is not committed.

Called by ``loop`` and ``statistics``: ``observe`` after each poll and commit, ``refresh`` while the daemon waits.

Offsets without a record (ends of transactions, aborted and compacted records) have no commit. So without a batch in
progress the offset to read next counts as the first one that is not committed. For example with the end 100 and the
next offset 90 the lag is 10; while a batch from offset 70 on is in progress it is 30.
"""

import math
from collections.abc import Callable, Mapping
from contextlib import suppress

from streamdedup import clock
from streamdedup.daemon.metrics import Metrics
from streamdedup.errors import StreamdedupError
from streamdedup.kafka.protocols import Batch, Source
from streamdedup.position import Partition

#: Interval of the requests for ends while the daemon waits, in seconds.
REFRESH_S = 5.0


class Lags:
    """Shows the lags; without Kafka the last ones stay."""

    def __init__(self, metrics: Metrics, monotonic: Callable[[], float]) -> None:
        self._metrics = metrics
        self._monotonic = monotonic
        self.shown: dict[Partition, int] = {}  # lag by partition
        #: First offset by partition of the batch in progress.
        self._starts: Mapping[Partition, int] = {}
        #: Ends of the last ``refresh``. The client may read the answer to an earlier fetch after it, with a lower end.
        self._requested_ends: dict[Partition, int | None] = {}
        self._asked_at_s = -math.inf

    def observe(self, source: Source, in_progress: Batch | None) -> None:
        """Show the lags without a request; ``in_progress`` is the batch that is polled and not committed.

        While the group rebalances, polls bring no ends, so ``lag_timestamp_seconds`` stays.
        """
        self._starts = {} if in_progress is None else in_progress.starts
        self._show(source, is_current=source.generation() is not None)

    def forget_batch(self) -> None:
        """Forget the batch in progress, which the source will return again."""
        self._starts = {}

    def forget_ends(self) -> None:
        """Forget the ends of ``refresh``: a topic that was created again may have lower ends."""
        self._requested_ends = {}

    def refresh(self, source: Source) -> bool:
        """Ask for the ends and show the lags, as no polls bring ends; return whether ``REFRESH_S`` have passed."""
        now_s = self._monotonic()
        if now_s - self._asked_at_s < REFRESH_S:
            return False
        self._asked_at_s = now_s
        with suppress(StreamdedupError):  # the next poll raises an error that waiting does not cure
            source.request_ends()
            self._requested_ends = {partition: source.end(partition) for partition in source.assigned()}
            self._show(source, is_current=True)
        return True

    def _show(self, source: Source, *, is_current: bool) -> None:
        """Show the lags, and if ends have arrived (``is_current``) the present as their time."""
        stats, assigned = source.stats(), source.assigned()
        if not assigned and source.generation() is None:
            return  # new clients that have not joined the group yet
        for partition in self.shown.keys() - assigned:
            self._metrics.lag_records.remove(partition.topic, str(partition.partition))
            del self.shown[partition]
        for partition, unread in stats.lags.items():
            end = source.end(partition) or 0
            lag = max(unread, end - self._starts.get(partition, end))
            # The last request may have found a later end than the last fetch.
            lag += max(0, (self._requested_ends.get(partition) or 0) - end)
            if self.shown.get(partition) != lag:
                self._metrics.lag_records.labels(partition.topic, str(partition.partition)).set(lag)
                self.shown[partition] = lag
        if is_current:
            self._metrics.lag_timestamp_seconds.set(clock.now_ms() / 1000)
