"""Polls a consumer once more where the first poll returns old records only.

The client sends the next fetch while a poll returns, and the broker answers it as soon as it has one record. So when
the daemon comes back after a cycle, the client holds the few records that arrived at the beginning of that cycle, and
the broker holds the others. A second poll fetches these: they are processed one cycle earlier.
"""

from collections.abc import Mapping
from typing import Any

from kafka.errors import KafkaError

from streamdedup.kafka.repeats import RepeatLimit
from streamdedup.kafka.unreadable import may_be_unreadable

#: Longest wait of the second poll, in seconds. A broker that has records answers within a few milliseconds.
SECOND_POLL_S = 0.01

#: The second poll is left out while two polls in a row bring fewer records: the broker then holds none as a rule, and
#: waiting for it would delay the records at hand.
FEW_RECORDS = 4

#: The second poll is left out from so many bytes of values on, so that a batch has at most what one fetch brings and
#: this.
ENOUGH_BYTES = 1_048_576

#: Records by partition, as the client returns them.
Polled = Mapping[Any, list[Any]]


class FreshPoll:
    """Polls a consumer of the group.

    Args:
        consumer: The client's consumer.
        repeats: Limits what is logged.
    """

    def __init__(self, consumer: Any, repeats: RepeatLimit) -> None:
        self._consumer = consumer
        self._repeats = repeats
        self._last_count = 0

    def poll(self, timeout_s: float, limit: int) -> Polled:
        """Return the next records of partitions that have been ours all the time since they were fetched.

        Args:
            timeout_s: Longest wait for the first record.
            limit: Most records, at least 1.

        Raises:
            Exception: Anything that the client raises in its first poll, or in the second one where it ends the
                consumer. Positions are then those of before.
        """
        was_fetched = self._has_fetched()
        polled: Polled = self._consumer.poll(timeout_ms=round(timeout_s * 1000), max_records=limit)
        if was_fetched and self._is_worth_another(polled, limit):
            polled = self._with_newer(polled, limit)
        self._last_count = _count(polled)
        return polled

    def _has_fetched(self) -> bool:
        """Return whether the client holds records that it has fetched and not returned.

        A poll without waiting would tell as well, but in kafka-python 3.0 a poll that follows while its fetch is under
        way sleeps for ``retry_backoff_ms``, 100 ms, if the answer arrives just as it begins: it then finds nothing to
        wait for.
        """
        fetcher = self._consumer._fetcher  # noqa: SLF001  no public method tells
        return bool(fetcher._completed_fetches or fetcher._next_partition_records)  # noqa: SLF001  see above

    def _is_worth_another(self, polled: Polled, limit: int) -> bool:
        count = _count(polled)
        if count >= limit or count + self._last_count < FEW_RECORDS:
            return False
        values = (record.value for records in polled.values() for record in records)
        return sum(len(value) for value in values if value is not None) < ENOUGH_BYTES

    def _with_newer(self, polled: Polled, limit: int) -> Polled:
        """Poll again, and return both; a rebalance meanwhile may have taken partitions away."""
        before = self._states(polled)
        try:
            newer: Polled = self._consumer.poll(
                timeout_ms=round(SECOND_POLL_S * 1000), max_records=limit - _count(polled)
            )
        except Exception as error:
            if not may_be_unreadable(error) and not is_retriable(error):
                self._rewind(polled, before)
                raise
            # Left to the next poll, which meets it again.
            forget_fetched(self._consumer)
            self._repeats.info("poll_retried", message="A second poll failed and is left out", error=repr(error))
            newer = {}
        kept = self._kept(polled, before)
        return {partition: [*kept.get(partition, ()), *newer.get(partition, ())] for partition in {**kept, **newer}}

    def _states(self, polled: Polled) -> dict[Any, Any]:
        """Return the client's state of each partition that is ours."""
        assignment = self._consumer._subscription.assignment  # noqa: SLF001  no public method tells
        return {partition: assignment.get(partition) for partition in polled}

    def _kept(self, polled: Polled, before: Mapping[Any, Any]) -> Polled:
        """Return the records of partitions that have not been taken away since.

        kafka-python 3.0 keeps the state object of a partition as long as it is assigned. A partition that was taken
        away and given back has a new one, and begins at the committed offset: its earlier records come again, or have
        been processed by another daemon.
        """
        now = self._states(polled)
        return {
            partition: records
            for partition, records in polled.items()
            if before[partition] is not None and now[partition] is before[partition]
        }

    def _rewind(self, polled: Polled, before: Mapping[Any, Any]) -> None:
        """Make the next poll start again at the first poll's records."""
        for partition, records in self._kept(polled, before).items():
            self._consumer.seek(partition, records[0].offset)


def forget_fetched(consumer: Any) -> None:
    """Throw away what was fetched and not yet returned; it is fetched again.

    After an exception from its parser the client holds a generator that is exhausted without its knowledge, and polls
    it for ever. This is how the client itself drops it, and spares the group a rebalance for each bad record.
    """
    consumer._fetcher.close()  # noqa: SLF001  no public method drops it


def is_retriable(error: Exception) -> bool:
    """Whether the client goes on by itself when polled again."""
    return isinstance(error, KafkaError) and bool(error.retriable)


def _count(polled: Polled) -> int:
    return sum(map(len, polled.values()))
