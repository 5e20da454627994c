"""Slow start: batches begin at one record and double with each commit, up to ``kafka.batch_records``.

``loop`` reports each commit (``grow``) and each batch that may have taken too long (``restart``); ``read_ahead``
reads the size of each poll and whether memory may hold a second batch.

A batch may be too large for the memory of the process, or take longer than the consumer group or a transaction allows.
The daemon cannot know either limit, and a killed process leaves no message. So the batch size begins at one record:

- in every process, because the process before may have been killed in the middle of a batch;
- after a batch that was undone because the daemon had lost its group membership or a partition, or because publishing
  failed: the batch may have taken too long, or have too many alerts for the time limit of a transaction. A batch that
  was undone for a reason outside the batch keeps the batch size: Redis was away, an index was lost.

Each commit counts, also of a batch below the limit. If a batch of some size always fails, the batches fail again each
time they grow to this size, but the smaller ones are committed. The lasting cure is a smaller ``kafka.batch_records``,
as the log says.
"""

from streamdedup.daemon.loop_log import log

# Reasons in the log lines `batch_repeated` and `batch_outlasted`.
_REPEATED = (
    "an earlier attempt at these records was not committed. If its process was killed for want of memory, set a "
    "smaller kafka.batch_records"
)
_OUTLASTED = (
    "the batch lost its group membership, or could not be published. If neither a rebalance nor an outage of Kafka "
    "explains this, batches take too long: set a smaller kafka.batch_records"
)


class SlowStart:
    """Limits the record count per batch; ``batch_records`` is the configured batch size, at least 1."""

    def __init__(self, batch_records: int) -> None:
        self._batch_records = batch_records
        #: Most records that the next batch may have.
        self.limit = 1
        #: Whether memory may hold the next batch beside the current one. This doubles the memory again, so it begins
        #: with the first commit at the limit ``batch_records``.
        self.may_read_ahead = False
        #: Undone batches since the last commit at the limit ``batch_records``.
        self._undone_count = 0
        self._is_repeat_logged = False

    def grow(self, replayed_count: int) -> None:
        """Double the batch size after a commit.

        Replayed documents show that an earlier process may have been killed in the middle of a batch, if this process
        has not undone a batch or reached ``batch_records`` itself.
        """
        if replayed_count and not (self.may_read_ahead or self._undone_count or self._is_repeat_logged):
            self._is_repeat_logged = True
            log.warning("batch_repeated", documents=replayed_count, reason=_REPEATED)
        if self.limit == self._batch_records:
            self.may_read_ahead, self._undone_count = True, 0
        self.limit = min(2 * self.limit, self._batch_records)

    def restart(self, records_count: int) -> None:
        """Begin at one record again after an undone batch of ``records_count``, which may have taken too long."""
        self.limit, self.may_read_ahead = 1, False
        self._undone_count += 1
        # An ordinary rebalance may undo one batch. A second one before a commit at full size points to the size.
        if self._undone_count == 1:
            log.info("batch_outlasted", records=records_count, count=1, reason=_OUTLASTED)
        else:
            log.warning("batch_outlasted", records=records_count, count=self._undone_count, reason=_OUTLASTED)
