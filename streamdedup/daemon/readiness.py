"""Whether the daemon is at work, and what it waits for: asked by probes and metrics while the loop's thread is busy."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from streamdedup.daemon.metrics import Metrics

#: Time that a request to Kafka may take before Kafka counts as away, in seconds. As long as an idle consumer hears
#: nothing (``kafka.silence``), and less than the 10 s within which readiness has to follow.
OVERDUE_S = 5.0


class Readiness:
    """What the daemon waits for; noted by the loop, read from any thread.

    The loop notes a wait when a call has failed. Calls of the Kafka client may take as long as the transaction timeout
    before they fail, so the loop also notes when a request to Kafka begins and ends: one that is overdue counts as a
    wait. Computing and writing to the index are no such requests, however long they take.

    Args:
        metrics: Shows the state whenever the metrics are asked for.
        clock: Monotonic seconds.

    Attributes:
        halted: Why the daemon publishes nothing further; None while it does.
        noted: What the loop has noted as awaited, one of ``metrics.WAITING_FOR``; None while it is at work.
    """

    def __init__(self, metrics: Metrics, clock: Callable[[], float] = time.monotonic) -> None:
        self.halted: str | None = None
        self.noted: str | None = "the store"
        self._clock = clock
        self._asked_at: float | None = None
        metrics.observe_readiness(self.waiting_for, lambda: self.problem() is None)

    @contextmanager
    def asking_kafka(self) -> Iterator[None]:
        """Note that a request to Kafka is under way."""
        self._asked_at = self._clock()
        try:
            yield
        finally:
            self._asked_at = None

    def waiting_for(self) -> str | None:
        """Return what the daemon waits for, one of ``metrics.WAITING_FOR``; None while it is at work or halted."""
        if self.halted is not None:
            return None
        asked_at = self._asked_at
        if self.noted is None and asked_at is not None and self._clock() - asked_at > OVERDUE_S:
            return "Kafka"
        return self.noted

    def problem(self) -> str | None:
        """Say why the daemon is not at work; None while it is."""
        if self.halted is not None:
            return f"halted: {self.halted}"
        awaited = self.waiting_for()
        return None if awaited is None else f"waiting for {awaited}"
