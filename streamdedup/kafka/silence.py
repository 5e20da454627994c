"""Notices that Kafka has stopped answering a consumer to which nothing comes.

The consumer's poll says nothing about it: with a broker that is away, as with an empty topic, it returns no records.
"""

import time
from collections.abc import Callable
from typing import Any

from kafka.structs import MemberState

from streamdedup.errors import BrokerSilent, BrokerUnavailable
from streamdedup.kafka.options import KafkaOptions

#: How long an answer may be overdue before Kafka counts as away, in seconds. A leader's successor is found in less.
SILENT_S = 5.0

#: How long the same clients are kept in silence, in seconds. Only new ones find brokers under other addresses; after a
#: broker's restart they have to wait for the end of the old ones' session, while the old ones go on at once.
RENEW_S = 300.0

#: What an answer may take without being overdue, in seconds.
ANSWER_S = 1.0

#: How much time a single look counts for at most, in seconds: a process that was frozen as a whole, or has worked on a
#: long batch, is given the time to hear the answers that have come meanwhile. A loop that waits looks more often.
LONGEST_LOOK_S = 3.0


class SilenceWatch:
    """Looked at after each poll that brought nothing.

    A member of a group is sure of Kafka as long as its heartbeats are answered; they go on by themselves, whether or
    not it owns partitions, so nothing is sent for this. While the group is joined, which may take minutes in silence,
    the broker is asked about the topics.

    Args:
        consumer: The client's consumer.
        options: Its options.
        clock: Monotonic seconds.
    """

    def __init__(self, consumer: Any, options: KafkaOptions, clock: Callable[[], float] = time.monotonic) -> None:
        self._consumer = consumer
        self._options = options
        self._clock = clock
        self._looked_at = clock()
        self._silent_s = 0.0
        self._asked_at = 0.0
        self._question: Any = None

    def heard(self) -> None:
        """Note that something came."""
        self._looked_at = self._clock()
        self._silent_s = 0.0
        self._question = None

    def look(self) -> None:
        """Raise when answers have been overdue for too long.

        Raises:
            BrokerSilent: Kafka does not answer; go on polling, the client finds its way back.
            BrokerUnavailable: It has not answered for so long that new clients are to be tried.
        """
        now = self._clock()
        passed_s, self._looked_at = now - self._looked_at, now
        answered = self._answered(now)
        if answered:
            self._silent_s = 0.0
        elif answered is False:
            self._silent_s += min(passed_s, LONGEST_LOOK_S)
        if self._silent_s >= SILENT_S:
            text = f"Kafka at {self._options.address} does not answer"
            if self._silent_s > RENEW_S:
                raise BrokerUnavailable(f"{text}, and has not for {RENEW_S / 60:g} minutes")
            raise BrokerSilent(text)

    def _answered(self, now: float) -> bool | None:
        """Whether Kafka has answered lately; None when that cannot be told yet."""
        if self._consumer.group_metadata().state == MemberState.STABLE:
            self._question = None
            heartbeat = self._consumer._coordinator.heartbeat  # noqa: SLF001  public are only the times of sending
            answered_at = max(heartbeat.last_receive, heartbeat.last_reset)
            return bool(now - answered_at <= self._options.heartbeat_interval_s + ANSWER_S)
        if self._question is None:
            self._asked_at = now
        elif self._question.succeeded():
            self._question = None
            return True
        if self._question is None or self._question.failed():
            self._question = self._consumer._client.cluster.request_update()  # noqa: SLF001  the public methods wait
        return False if now - self._asked_at > ANSWER_S else None
