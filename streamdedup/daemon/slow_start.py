"""Slow start: batches begin at one record and double with each commit, up to ``kafka.batch_records``.

A batch may be too large for the process's memory or for its time in the consumer group. The daemon cannot know
either limit, and a killed process leaves no message. So the batch size begins at one record:

- in every process, because the process before may have been killed in the middle of a batch;
- after a batch that was undone because its membership in the group had ended, its partition had another owner, or its
  transaction had timed out: the batch may have taken longer than any of these lasts.

A batch that was undone for another reason keeps the batch size: the store or Kafka was away, an index was lost, a store
was connected again. The cause lies outside the batch.

Every attempt that grows to the same size fails again, but the smaller batches before it are committed. A smaller
``kafka.batch_records`` is the lasting cure, which the log names. A start takes 11 commits up to 2,000 records.
"""

import structlog

_REPEATED = (
    "an earlier attempt at these records was not committed. If its process was killed for want of memory, set a "
    "smaller kafka.batch_records"
)
_OUTLASTED = (
    "the batch lost its group membership or its transaction. If no rebalance explains this, batches take too long: set "
    "a smaller kafka.batch_records"
)

log = structlog.get_logger("streamdedup.loop")


class SlowStart:
    """Limits the record count per batch.

    Args:
        batch_records: Configured batch size, at least 1.
    """

    def __init__(self, batch_records: int) -> None:
        self._batch_records = batch_records
        self._limit = 1
        #: Whether a batch was committed while the limit was ``batch_records``, since it last began at one record.
        self._is_grown = False
        #: Starts after undone batches; 0 again after a commit while the limit is ``batch_records``.
        self._undone_count = 0
        self._is_repeat_logged = False

    def limit(self) -> int:
        """Return the most records that the next batch may have, at least 1."""
        return self._limit

    def may_read_ahead(self) -> bool:
        """Tell whether the next batch may be read while a batch is at work, so that memory holds both.

        Reading ahead doubles the memory for the last time, so it begins after the first commit while the limit was
        ``batch_records``.
        """
        return self._is_grown

    def committed(self, replayed_count: int) -> None:
        """Double the batch size after a commit.

        Logs once in a process that an earlier process had inserted documents of this batch. After this process has
        undone a batch itself, or has reached the configured size, replayed documents do not point to an earlier one.

        Args:
            replayed_count: Documents that an earlier attempt had inserted without a commit.
        """
        if replayed_count and not (self._is_grown or self._undone_count or self._is_repeat_logged):
            self._is_repeat_logged = True
            log.warning("batch_repeated", documents=replayed_count, reason=_REPEATED)
        if self._limit == self._batch_records:
            self._is_grown, self._undone_count = True, 0
        self._limit = min(2 * self._limit, self._batch_records)

    def restart(self, records_count: int) -> None:
        """Begin at one record again after a batch that was undone for its time or its membership."""
        self._limit, self._is_grown = 1, False
        self._undone_count += 1
        if self._undone_count == 1:
            log.info("batch_outlasted", records=records_count, count=1, reason=_OUTLASTED)
        else:
            log.warning("batch_outlasted", records=records_count, count=self._undone_count, reason=_OUTLASTED)
