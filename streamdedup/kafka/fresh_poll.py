"""A poll of the consumer that adds the records which the broker holds to those that the client has fetched earlier."""

from collections.abc import Mapping
from itertools import chain
from typing import Any

from streamdedup.kafka import compat
from streamdedup.kafka.batch_limits import content_bytes
from streamdedup.kafka.errors import is_retriable
from streamdedup.kafka.unreadable import Polled
from streamdedup.repeats import RepeatLimit

#: Longest wait of the second poll, in seconds. A broker that has records answers within a few milliseconds.
SECOND_POLL_S = 0.01
#: Fewest records of the last result and this first poll together for a second poll: else the broker rarely has more.
FEW_RECORDS = 4
#: Bytes of values in a first poll after which there is no second: a batch has at most these and those of a fetch.
ENOUGH_BYTES = 1_048_576


class FreshPoll:
    """Polls a second time where the first poll returns only records that were fetched earlier.

    The client sends the next fetch while a poll returns, and the broker answers it as soon as it has one record. So
    after a batch the client holds the few records that arrived at first, and the second poll fetches the later ones.
    """

    def __init__(self, consumer: Any, repeats: RepeatLimit) -> None:
        self._consumer = consumer
        self._repeats = repeats
        self._last_count = 0  # records, and unreadable ranges, in the last result

    def poll(self, timeout_s: float, limit: int) -> Polled:
        """Return at most ``limit`` records, waiting ``timeout_s`` for the first; an error leaves positions alone."""
        # Asked before the poll: a client that holds nothing fetches in the first poll, and needs no second.
        has_fetched = compat.has_fetched(self._consumer)
        polled: Polled = self._consumer.poll(timeout_ms=round(timeout_s * 1000), max_records=limit)
        if has_fetched and self._is_worth_another(polled, limit):
            polled = self._with_newer(polled, limit)
        self._last_count = _count(polled)
        return polled

    def _is_worth_another(self, polled: Polled, limit: int) -> bool:
        count = _count(polled)
        if count >= limit or count + self._last_count < FEW_RECORDS:
            return False
        return content_bytes(chain.from_iterable(polled.values())) < ENOUGH_BYTES

    def _with_newer(self, polled: Polled, limit: int) -> Polled:
        """Poll again and return the records of both polls, without those of partitions revoked in between."""
        states_before = dict(compat.assigned_states(self._consumer))
        try:
            newer: Polled = self._consumer.poll(round(SECOND_POLL_S * 1000), max_records=limit - _count(polled))
        except Exception as error:
            if not is_retriable(error):
                # The caller gets no records, so the first poll is undone.
                for partition, records in self._still_assigned(polled, states_before).items():
                    self._consumer.seek(partition, records[0].offset)
                raise
            self._repeats.info("poll_retried", message="A second poll failed and is left out", error=repr(error))
            newer = {}
        older = self._still_assigned(polled, states_before)
        return {partition: [*older.get(partition, ()), *newer.get(partition, ())] for partition in {**older, **newer}}

    def _still_assigned(self, polled: Polled, states_before: Mapping[Any, Any]) -> Polled:
        """Return the records of partitions that were not revoked in between: their state objects are the same."""
        states = compat.assigned_states(self._consumer)
        return {
            partition: records
            for partition, records in polled.items()
            if partition in states and states[partition] is states_before.get(partition)
        }


def _count(polled: Polled) -> int:
    return sum(map(len, polled.values()))
