"""The dead-letter breaker: halts the daemon when a topic turns bad, instead of draining it into dead letters."""

from collections import Counter, deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from streamdedup.daemon.batch_result import Failed
from streamdedup.errors import DeadLetterBurst
from streamdedup.kafka.protocols import Batch
from streamdedup.position import Position
from streamdedup.wire.dead_letters import Failure


@dataclass(frozen=True, slots=True)
class BreakerOptions:
    """When to halt.

    Attributes:
        limit: Most dead letters among the last ``window`` records of a topic; None for any number.
        window: How many records of a topic are looked back at, more than ``limit``.
    """

    limit: int | None = 500
    window: int = 1_000


class DeadLetterBreaker:
    """Remembers of the last records of each topic which became dead letters.

    Args:
        options: When to halt.
    """

    def __init__(self, options: BreakerOptions) -> None:
        self._options = options
        self._recent: dict[str, deque[bool]] = {}

    def check(self, batch: Batch, failures: Sequence[Failed]) -> None:
        """Look at a batch before its dead letters are published.

        Args:
            batch: What was polled.
            failures: Those of its records that are to become dead letters.

        Raises:
            DeadLetterBurst: With this batch, more than ``limit`` of the last ``window`` records of a topic would be
                dead letters.
        """
        limit = self._options.limit
        if limit is None or not failures:
            return
        failed = {failure.record.position for failure in failures}
        for topic in {position.topic for position in failed}:
            most = self._most(topic, batch, failed)
            if most > limit:
                codes = Counter(_code(failure) for failure in failures if failure.record.position.topic == topic)
                named = ", ".join(f"{count} {code}" for code, count in codes.most_common())
                raise DeadLetterBurst(
                    f"{most} of the last {self._options.window} records of {topic} would be dead letters ({named} in "
                    "this batch). Nothing more is published. Mend what produces them and restart; to let them pass, "
                    'restart with service.dead_letter_limit = "none"'
                )

    def committed(self, batch: Batch, failures: Sequence[Failed]) -> None:
        """Remember a batch that is committed."""
        if self._options.limit is None:
            return
        failed = {failure.record.position for failure in failures}
        for position in batch.positions():
            self._of(position.topic).append(position in failed)

    def _of(self, topic: str) -> deque[bool]:
        return self._recent.setdefault(topic, deque(maxlen=self._options.window))

    def _most(self, topic: str, batch: Batch, failed: Collection[Position]) -> int:
        """Greatest number of dead letters in any stretch of ``window`` records that ends in this batch."""
        window = self._of(topic).copy()
        most = count = sum(window)
        for position in batch.positions():
            if position.topic == topic:
                count += (position in failed) - (window[0] if len(window) == window.maxlen else False)
                window.append(position in failed)
                most = max(most, count)
        return most


def _code(failed: Failed) -> str:
    return Failure.of(failed.error, failed.stage).code
