"""Watches of a ``consumer.KafkaSource``, which constructs them in ``__init__`` and checks them in ``poll``."""

import logging
import time
from collections.abc import Callable
from typing import Any, Literal

from kafka import errors as kafka_errors
from kafka.structs import MemberState

from streamdedup.errors import BrokerSilent, BrokerUnavailable, Rejoin
from streamdedup.kafka import compat
from streamdedup.kafka.errors import CLIENT_ERRORS, is_topic_missing, missing_topics_text, translated
from streamdedup.kafka.group_admin import refuse_other_indexes
from streamdedup.kafka.offsets import topic_id_text
from streamdedup.kafka.options import KafkaOptions

logger = logging.getLogger(__name__)

#: An answer that is overdue for this long makes Kafka count as away, in seconds. A new leader is found in less time.
SILENT_S = 5.0
#: Longest silence with the same clients, in seconds. Only new clients find brokers under other addresses. Not shorter:
#: after the restart of a broker old clients go on at once, while new ones wait for the end of the old session.
RENEW_S = 300.0
#: Time limit for an answer, in seconds; a later answer is overdue.
ANSWER_S = 1.0
#: Largest silence that one check adds, in seconds: after a freeze or a long batch there is time to read answers.
MAX_ADDED_SILENCE_S = 3.0

_Answer = Literal["in time", "overdue", "awaited"]


class SilenceWatch:
    """Detects that Kafka has stopped answering a consumer whose polls return nothing; checked after each such poll.

    The answers to the heartbeats of a member show whether Kafka is there. Joining the group may take minutes without an
    answer; meanwhile the broker is asked for metadata.
    """

    def __init__(self, consumer: Any, options: KafkaOptions, clock: Callable[[], float] = time.monotonic) -> None:
        self._consumer = consumer
        self._options = options
        self._clock = clock
        self._checked_at = clock()
        self._silent_s = 0.0
        self._request: Any = None  # last metadata request, while the consumer joins; None after its answer
        self._unanswered_since = 0.0  # time of the first metadata request since the last answer

    def reset(self) -> None:
        """End the silence, after a poll that returned something."""
        self._checked_at = self._clock()
        self._silent_s = 0.0
        self._request = None

    def check(self) -> None:
        """Raise ``BrokerSilent`` after ``SILENT_S`` without an answer, ``BrokerUnavailable`` after ``RENEW_S``."""
        now_s = self._clock()
        passed_s = now_s - self._checked_at
        self._checked_at = now_s
        answer = self._answer(now_s)
        if answer == "in time":
            self._silent_s = 0.0
        elif answer == "overdue":
            self._silent_s += min(passed_s, MAX_ADDED_SILENCE_S)
        if self._silent_s >= SILENT_S:
            text = f"Kafka at {self._options.bootstrap_servers} does not answer"
            if self._silent_s > RENEW_S:
                raise BrokerUnavailable(f"{text}, and has not for {RENEW_S / 60:g} minutes")
            raise BrokerSilent(text)

    def _answer(self, now_s: float) -> _Answer:
        if self._consumer.group_metadata().state == MemberState.STABLE:
            self._request = None
            return self._heartbeat_answer(now_s)
        return self._metadata_answer(now_s)

    def _heartbeat_answer(self, now_s: float) -> _Answer:
        due_at = compat.heartbeat_answered_at(self._consumer) + self._options.heartbeat_interval_s
        is_overdue = now_s > due_at + ANSWER_S
        return "overdue" if is_overdue else "in time"

    def _metadata_answer(self, now_s: float) -> _Answer:
        """Send a metadata request unless one is unanswered; return the state of the last answer."""
        request = self._request
        if request is not None and request.succeeded():
            self._request = None
            return "in time"
        if request is None:
            self._unanswered_since = now_s
        if request is None or request.failed():
            # A refused request counts as unanswered: `_unanswered_since` stays the time of the first request.
            self._request = compat.request_metadata(self._consumer)
        return "overdue" if now_s - self._unanswered_since > ANSWER_S else "awaited"


class StaticMembershipWatch:
    """Detects that another process has taken over the static membership; dynamic members have nothing to check."""

    def __init__(self, consumer: Any, options: KafkaOptions) -> None:
        self._consumer = consumer
        self._options = options
        self._error: kafka_errors.FencedInstanceIdError | None = None  # set on the network thread, raised by `check`
        if options.group_instance_id is not None:
            compat.watch_fencing(consumer, self._taken_over)

    def _taken_over(self, error: kafka_errors.FencedInstanceIdError) -> None:
        self._error = error

    def check(self) -> None:
        """Raise ``BrokerMisconfigured`` (by ``translated``) if another process holds the static membership: final."""
        if self._error is not None:
            raise translated(self._error, "stay in the group", self._options)

    def confirm(self) -> None:
        """Ask the group by a heartbeat whether this process holds the static membership; raise if not."""
        if self._options.group_instance_id is None:
            return
        try:
            compat.send_heartbeat(self._consumer)
        except kafka_errors.RebalanceInProgressError:
            return  # only a member gets this answer
        except CLIENT_ERRORS as error:
            raise translated(error, "stay in the group", self._options) from error


class TopicWatch:
    """Detects input topics that do not exist, that the user may not read, and that are created again.

    kafka-python 3.0.12 fetches by name: after a topic was created again a consumer goes on at its old offset, or at the
    oldest record, and returns records of both topics from its buffers; new clients know the new id before they fetch.
    The client revokes the partitions of a deleted topic without a word, and stops fetching a refused topic.

    Constructed before the consumer subscribes, so that the watch sees the first metadata of the topics.
    """

    def __init__(self, consumer: Any, options: KafkaOptions) -> None:
        self._options = options
        self._ids: dict[str, str] = {}
        self._missing: frozenset[str] = frozenset()
        self._refused: frozenset[str] = frozenset()
        self._recreated: str | None = None
        compat.watch_topics(consumer, self._observe)

    def ids(self) -> dict[str, str]:
        """Return the id of each topic in the first metadata that had one."""
        return dict(self._ids)

    def missing(self) -> frozenset[str]:
        return self._missing

    def _observe(self, topic: Any) -> None:
        """Compare a topic in new metadata with the earlier metadata; on the network thread, where nothing may raise."""
        name, topic_id = topic.name, topic_id_text(topic.topic_id)
        if name not in self._options.topics:
            return
        if topic_id and self._ids.setdefault(name, topic_id) != topic_id:
            self._recreated = name
        # The rights of a topic that is gone may go, too: the other topics are read all the same.
        if topic.error_code == kafka_errors.TopicAuthorizationFailedError.errno and name not in self._missing:
            self._refused |= {name}
        else:
            self._refused -= {name}
        if is_topic_missing(topic.error_code):
            if name not in self._missing:
                event = {"event": "topic_missing", "topic": name}
                logger.warning(missing_topics_text([name], self._options.create_command), extra=event)
            self._missing |= {name}
        elif name in self._missing and topic.error_code == kafka_errors.NoError.errno:
            logger.info("The topic exists", extra={"event": "topic_found", "topic": name})
            self._missing -= {name}

    def check(self) -> None:
        """Raise ``BrokerMisconfigured`` (by ``translated``) for refused topics, ``Rejoin`` for one created again."""
        if refused := self._refused:
            doing = f"read {', '.join(sorted(refused))}"
            raise translated(kafka_errors.TopicAuthorizationFailedError(), doing, self._options)
        if self._recreated is not None:
            raise Rejoin(f"topic {self._recreated} was deleted and created again: the group is joined anew")


class OtherIndexWatch:
    """Detects members that use indexes with another name, whenever this process has joined the group.

    At least the later of two that join at the same moment sees the other now. A process that was frozen beyond its
    session joins again by itself, perhaps beside daemons with another index.
    """

    def __init__(self, consumer: Any, options: KafkaOptions) -> None:
        self._consumer = consumer
        self._options = options
        self._member_id = ""  # at the last check; a process that was no member for a while has another one

    def check(self) -> None:
        """Raise ``GroupHasOtherIndex`` if other members use other indexes: new clients wait until those have left."""
        membership = self._consumer.group_metadata()
        if membership.state == MemberState.STABLE and membership.member_id != self._member_id:
            refuse_other_indexes(self._options)
            self._member_id = membership.member_id
