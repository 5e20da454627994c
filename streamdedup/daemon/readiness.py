"""Readiness of the daemon: whether it is at work for all of its topics, or for which server or event it waits.

``loop`` and, until the loop runs, ``cli.run`` set ``Readiness``; ``health`` serves it as ``/readyz``, ``metrics`` as
``ready`` and ``waiting``. A new wait is added to ``metrics.Awaited``.
"""

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from streamdedup.daemon.loop_log import log
from streamdedup.daemon.metrics import Awaited, Metrics

#: Time after which Kafka counts as away during a request, in seconds. The same as for an idle consumer
#: (``kafka.watches.SilenceWatch``), and less than the 10 s within which readiness must show an outage.
OVERDUE_S = 5.0
#: Time without membership after which the reason is logged, in seconds, and after which a daemon that was at work
#: counts as waiting. An ordinary rebalance takes up to 3 s: members learn of it by their heartbeats.
JOINING_S = 5.0
#: Time after which a new member without partitions counts as a spare, in seconds: others that give partitions away, and
#: then the new member, join again after a heartbeat of 3 s.
SPARE_S = 10.0
_JOINING_REASON = (
    "the group assigns partitions once all its members have answered; one that was killed counts as a member for "
    "kafka.session_timeout. To list the members: streamdedup index status"
)
#: Shortest and longest delay between two tries of a server that is away, in seconds. With the longest delay the
#: daemon is at work again well within 10 s of the server's return.
_FIRST_DELAY_S, _LONGEST_DELAY_S = 0.1, 2.0


class Readiness:
    """Readiness of the daemon; set by the loop, read from any thread.

    The loop sets a wait when a call has failed, which may take until the transaction timeout. So the loop also marks
    its requests to Kafka (``asking_kafka``): one without an answer for ``OVERDUE_S`` counts as a wait. Polls are not
    marked: ``kafka.watches.SilenceWatch`` watches them.

    ``awaited`` is the server or event that the loop awaits; None while the daemon is at work. ``halted`` says why
    nothing further is published.
    """

    def __init__(
        self,
        metrics: Metrics,
        clock: Callable[[], float] = time.monotonic,
        missing_topics: Callable[[], frozenset[str]] = frozenset,
    ) -> None:
        self.halted: str | None = None
        self.awaited: Awaited | None = Awaited.STORE  # the first server that `cli.run` waits for
        self._clock = clock
        self._missing_topics = missing_topics
        self._request_began_at_s: float | None = None
        self._delay_s = _FIRST_DELAY_S  # of the next failure
        #: The wait that was logged last.
        self._logged: Awaited | None = None
        self._logged_request_s: float | None = None  # the beginning of the overdue request that was logged last
        self._state_since_s = clock()  # of the present wait; of a daemon at work: of its last turn as a member
        self._outside_at_s = clock()  # the last turn without membership
        metrics.connect_readiness(self.waiting_for, lambda: self.problem() is None)

    @contextmanager
    def asking_kafka(self) -> Iterator[None]:
        self._request_began_at_s = self._clock()
        try:
            yield
        finally:
            self._request_began_at_s = None

    def set_awaited(self, awaited: Awaited) -> None:
        """Show a wait for a server or event, until ``end_wait``; returns at once."""
        if awaited is not self.awaited:
            self._state_since_s = self._clock()
        self.awaited = awaited

    def record_joining(self, *, is_member: bool) -> None:
        """Record a turn without membership, or as a new member without partitions.

        A daemon that was at work waits for partitions once ``JOINING_S`` have passed, another one from now on.
        """
        if not is_member:
            self._outside_at_s = self._clock()
        if self.awaited is not None:  # the server has answered
            self.set_awaited(Awaited.PARTITIONS)
        if self._clock() - self._state_since_s < JOINING_S:
            return
        self.set_awaited(Awaited.PARTITIONS)
        if self._logged is not Awaited.PARTITIONS:
            self._logged = Awaited.PARTITIONS
            log.info("waiting", what=Awaited.PARTITIONS.value, reason=_JOINING_REASON)

    def is_spare(self) -> bool:
        """Tell whether a member without partitions is a spare: it was at work, or ``SPARE_S`` have passed."""
        since_s = max(self._state_since_s, self._outside_at_s)
        return self.awaited is None or self._clock() - since_s >= SPARE_S

    def end_wait(self) -> None:
        """Record a turn at work: the daemon has partitions, or is a spare."""
        self.awaited = self._logged = None
        self._state_since_s = self._clock()

    def record_failure(self, awaited: Awaited, error: Exception) -> float:
        """Record a failure and the wait that follows; return the delay until the next try, in seconds.

        The delay doubles with each failure. A random part spreads the tries of several daemons.
        """
        if self._logged is not awaited:
            log.warning("waiting", what=awaited.value, reason=str(error))
            self._logged = awaited
        self.set_awaited(awaited)
        delay_s, self._delay_s = self._delay_s, min(_LONGEST_DELAY_S, 2 * self._delay_s)
        return delay_s * random.uniform(0.5, 1.0)  # noqa: S311  no secret depends on it

    def forget_failures(self) -> None:
        """Begin again with the shortest delay, after a turn without an error; a wait for partitions may go on."""
        self._delay_s = _FIRST_DELAY_S

    def waiting_for(self) -> Awaited | None:
        """Return ``awaited``, or Kafka during an overdue request, which is logged; None while at work or halted."""
        if self.halted is not None:
            return None
        began_at_s = self._request_began_at_s
        if self.awaited is None and began_at_s is not None and self._clock() - began_at_s > OVERDUE_S:
            if began_at_s != self._logged_request_s:  # the loop logs the outage only when the request fails
                self._logged_request_s = began_at_s
                log.warning(
                    "waiting", what=Awaited.KAFKA.value, reason=f"a request has had no answer for {OVERDUE_S:g} s"
                )
            return Awaited.KAFKA
        return self.awaited

    def problem(self) -> str | None:
        """Describe why the daemon is not at work, or not for all topics; None while the daemon is at work."""
        if self.halted is not None:
            return f"halted: {self.halted}"
        problems = []
        if (awaited := self.waiting_for()) is not None:
            problems.append(f"waiting for {awaited}")
        if missing := sorted(self._missing_topics()):
            problems.append(f"no such topic: {', '.join(missing)}")
        return "; ".join(problems) or None
