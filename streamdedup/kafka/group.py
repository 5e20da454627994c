"""The consumer group: membership, committed offsets, and the topics that the offsets belong to.

Four watches check for ``consumer.KafkaSource`` whether Kafka answers, whether the membership is still held, whether
topics are missing or were created again, and whether other members use other indexes; ``fetch_committed`` and
``offsets_of`` read and write the offsets of the source. ``producer.KafkaTransport`` also calls
``refuse_other_indexes``. The other functions and ``GroupOffsets`` ask about a group without joining it, for the
commands; of these, ``committed_offsets`` alone compares topic ids.

The metadata of a committed offset is the attempt id (``daemon.attempts``), the topic incarnation and the topic id. A
deleted topic may leave its offsets to a new topic of the same name; and an index that is lost counts incarnations anew.
"""

import logging
import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self, TypeVar
from uuid import UUID

from kafka import KafkaAdminClient, OffsetSpec
from kafka import errors as kafka_errors
from kafka.admin import MemberToRemove
from kafka.structs import MemberState, OffsetAndMetadata, TopicPartition

from streamdedup.errors import BrokerSilent, BrokerUnavailable, GroupHasOtherIndex, Rejoin
from streamdedup.kafka import compat
from streamdedup.kafka.admin import admin_client
from streamdedup.kafka.errors import (
    CLIENT_ERRORS,
    close_quietly,
    is_missing,
    is_retriable,
    missing_topics_text,
    translated,
)
from streamdedup.kafka.options import CLIENT_ID, KafkaOptions
from streamdedup.kafka.protocols import Batch, CommittedOffset
from streamdedup.position import Partition

logger = logging.getLogger(__name__)

Answer = TypeVar("Answer")

#: An answer that is overdue for this long makes Kafka count as away, in seconds. A new leader is found in less time.
SILENT_S = 5.0
#: Longest silence with the same clients, in seconds. Only new clients find brokers under other addresses. But after the
#: restart of a broker, old clients go on sooner, because new ones wait for the end of the old session.
RENEW_S = 300.0
#: Time limit for an answer, in seconds; a later answer is overdue.
ANSWER_S = 1.0
#: Largest silence that one check adds, in seconds: a process that was frozen, or that worked on a long batch, gets the
#: time to read the answers that have arrived. A waiting loop checks more often.
LONGEST_CHECK_S = 3.0

#: Metadata of a committed offset: the attempt id or another text, then the topic incarnation and the topic id.
_METADATA = re.compile(
    r"(?P<text>.*?) ?(?P<incarnation>[0-9]+) (?P<topic_id>[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})"
)
#: Topic id in the metadata of a topic that does not exist.
_NO_ID = str(UUID(int=0))
#: Number of an error in a text of the client.
_ERROR_NUMBER = re.compile(r"\[Error (-?[0-9]+)\]")
#: Pause before a group coordinator that is not ready is asked again, in seconds.
_RETRY_PAUSE_S = 0.2


class SilenceWatch:
    """Detects that Kafka has stopped answering a consumer whose polls return nothing; checked after each such poll.

    A poll returns no records from an absent broker, as from an empty topic. The answers to the heartbeats of a member
    show whether Kafka is there. Joining the group may take minutes without an answer; meanwhile the broker is asked for
    metadata.
    """

    def __init__(self, consumer: Any, options: KafkaOptions, clock: Callable[[], float] = time.monotonic) -> None:
        self._consumer = consumer
        self._options = options
        self._clock = clock
        self._checked_at = clock()
        self._silent_s = 0.0
        #: Time of the first metadata request without an answer, and the last such request; for a consumer that joins.
        self._asked_at = 0.0
        self._request: Any = None

    def answered(self) -> None:
        """Reset the silence after a poll that returned something."""
        self._checked_at = self._clock()
        self._silent_s = 0.0
        self._request = None

    def check(self) -> None:
        """Raise ``BrokerSilent`` after ``SILENT_S`` without an answer, ``BrokerUnavailable`` after ``RENEW_S``."""
        now_s = self._clock()
        passed_s = now_s - self._checked_at
        self._checked_at = now_s
        is_answered = self._is_answered(now_s)
        if is_answered:
            self._silent_s = 0.0
        elif is_answered is False:  # None leaves the silence as it is
            self._silent_s += min(passed_s, LONGEST_CHECK_S)
        if self._silent_s >= SILENT_S:
            text = f"Kafka at {self._options.bootstrap_servers} does not answer"
            if self._silent_s > RENEW_S:
                raise BrokerUnavailable(f"{text}, and has not for {RENEW_S / 60:g} minutes")
            raise BrokerSilent(text)

    def _is_answered(self, now_s: float) -> bool | None:
        """Return whether the last answer came in time; None while the answer is not due."""
        if self._consumer.group_metadata().state == MemberState.STABLE:
            self._request = None
            answered_at = compat.heartbeat_answered_at(self._consumer)  # the next heartbeat follows after the interval
            return now_s - answered_at <= self._options.heartbeat_interval_s + ANSWER_S
        if self._request is None:
            self._asked_at = now_s
        elif self._request.succeeded():
            self._request = None
            return True
        if self._request is None or self._request.failed():
            # A refused request counts as unanswered: `_asked_at` stays the time of the first request.
            self._request = compat.request_metadata(self._consumer)
        return False if now_s - self._asked_at > ANSWER_S else None


class FencingWatch:
    """Detects that another process has taken over the static membership; dynamic members have nothing to check."""

    def __init__(self, consumer: Any, options: KafkaOptions) -> None:
        self._consumer = consumer
        self._options = options
        self._error: kafka_errors.FencedInstanceIdError | None = None  # set on the network thread, raised by `check`
        if options.group_instance_id is not None:
            compat.watch_fencing(consumer, self._fenced)

    def _fenced(self, error: kafka_errors.FencedInstanceIdError) -> None:
        self._error = error

    def check(self) -> None:
        """Raise ``BrokerMisconfigured`` if another process holds the static membership; this is final."""
        if self._error is not None:
            raise translated(self._error, "stay in the group", self._options.secrets())

    def confirm(self) -> None:
        """Ask the group by a heartbeat whether this process holds the static membership; raise if not."""
        if self._options.group_instance_id is None:
            return
        try:
            compat.send_heartbeat(self._consumer)
        except kafka_errors.RebalanceInProgressError:
            return  # only a member gets this answer
        except CLIENT_ERRORS as error:
            raise translated(error, "stay in the group", self._options.secrets()) from error


class TopicWatch:
    """Detects input topics that do not exist, and topics that are created again.

    kafka-python 3.0.12 fetches by name: after a topic was created again a consumer goes on at its old offset, or at the
    oldest record when that offset does not exist, and returns records of either topic from its buffers. A topic that is
    created again has another id, and new clients know the new id before they fetch anything. The client revokes the
    partitions of a deleted topic and does not tell that the topic is gone.

    Constructed before the consumer subscribes, so that the watch sees the first metadata of the topics.
    """

    def __init__(self, consumer: Any, options: KafkaOptions) -> None:
        self._options = options
        self._ids: dict[str, str] = {}
        self._missing: frozenset[str] = frozenset()
        self._recreated: str | None = None
        compat.watch_topics(consumer, self._observe)

    def ids(self) -> dict[str, str]:
        """Return the first observed topic ids."""
        return dict(self._ids)

    def missing(self) -> frozenset[str]:
        return self._missing

    def _observe(self, topic: Any) -> None:
        """Compare a topic in new metadata with the earlier metadata; on the network thread, so ``check`` raises."""
        name, topic_id = topic.name, topic_id_of(topic.topic_id)
        if name not in self._options.topics:
            return
        if topic_id and self._ids.setdefault(name, topic_id) != topic_id:
            self._recreated = name
        if is_missing(topic.error_code):
            if name not in self._missing:
                event = {"event": "topic_missing", "topic": name}
                logger.warning(missing_topics_text([name], self._options.create_command), extra=event)
            self._missing |= {name}
        elif name in self._missing and topic.error_code == kafka_errors.NoError.errno:
            logger.info("The topic exists", extra={"event": "topic_found", "topic": name})
            self._missing -= {name}

    def check(self) -> None:
        if self._recreated is not None:
            raise Rejoin(f"topic {self._recreated} was deleted and created again: the group is joined anew")


class IndexWatch:
    """Detects members that use indexes with another name, whenever this process has joined the group.

    A process that was frozen beyond its session joins again by itself; daemons with another index may have taken over
    meanwhile. Of processes that join at the same moment the later one sees the earlier one, or both see each other.
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


def topic_id_of(topic_id: UUID | str | None) -> str:
    """Return a topic id as text; empty for a topic that does not exist, and from a broker before Kafka 2.8."""
    text = "" if topic_id is None else str(topic_id)
    return "" if text == _NO_ID else text


def partitions_of(consumer: Any, topics: Collection[str]) -> list[Partition]:
    """Return all partitions of topics that exist; raise ``BrokerUnavailable`` where they are unknown."""
    numbers = {topic: consumer.partitions_for_topic(topic) for topic in topics}
    if unknown := [topic for topic in topics if not numbers[topic]]:
        # Otherwise their offsets would count as never committed.
        raise BrokerUnavailable(f"Kafka does not say at the moment which partitions {', '.join(unknown)} has")
    return [Partition(topic, number) for topic in topics for number in numbers[topic]]


def fetch_committed(
    consumer: Any,
    options: KafkaOptions,
    topic_ids: Mapping[str, str],
    partitions: Sequence[Partition],
    *,
    stable: bool = True,
) -> tuple[dict[Partition, CommittedOffset], frozenset[Partition]]:
    """Return the group's committed offsets, and the partitions whose offset belongs to a deleted topic.

    Kafka deletes the offsets of a deleted topic, but a group coordinator may delete late, and a batch that was polled
    before the deletion may be committed afterwards.

    ``topic_ids`` are the present ones, as far as known; ``stable`` is as of ``Source.all_committed``.
    """
    client_partitions = [TopicPartition(*partition) for partition in partitions]
    try:
        timeout_ms = round(options.fetch_timeout_s * 1000)
        fetched = compat.fetch_committed_offsets(consumer, client_partitions, timeout_ms, stable=stable)
    except CLIENT_ERRORS as error:
        subject = partitions[0] if len(partitions) == 1 else "all partitions"
        raise translated(error, f"read the committed offset of {subject}", options.secrets()) from error
    offsets, outdated = {}, set()
    for client_partition, committed in fetched.items():
        partition = Partition(*client_partition)
        offset = _with_parsed_metadata(committed.offset, committed.metadata or "")
        if _is_outdated(offset.topic_id, topic_ids.get(partition.topic, "")):
            outdated.add(partition)
        else:
            offsets[partition] = offset
    return offsets, frozenset(outdated)


def offsets_of(batch: Batch) -> dict[Any, Any]:
    """Return the offsets to commit for ``batch``, as the client takes them."""
    offsets = {}
    for partition, offset in batch.ends.items():
        metadata, topic_id = batch.metadata, batch.topic_ids.get(partition.topic, "")
        if topic_id:
            metadata = f"{metadata} {batch.incarnations[partition]} {topic_id}".lstrip()  # as `_METADATA`
        offsets[TopicPartition(*partition)] = OffsetAndMetadata(offset, metadata, leader_epoch=-1)  # epoch unknown
    return offsets


def _is_outdated(topic_id: str, present_id: str) -> bool:
    """Tell whether an offset was committed for another topic id; unknown (empty) ids count as equal."""
    return bool(topic_id and present_id) and topic_id != present_id


def _with_parsed_metadata(offset: int, metadata: str) -> CommittedOffset:
    """Return a committed offset; metadata of another program has neither incarnation nor topic id."""
    match = _METADATA.fullmatch(metadata)
    if match is None:
        return CommittedOffset(offset, metadata)
    return CommittedOffset(offset, match["text"], match["topic_id"], int(match["incarnation"]))


@dataclass(frozen=True, slots=True)
class GroupState:
    """State of a consumer group, from ``describe_group``.

    Attributes:
        members: A text for each member: client id, ``group.instance.id`` if static, address. A killed member, and a
            static member that ended, stays for the session timeout.
        topic_ids: Kafka's present ids by input topic, as far as the broker returns them.
        ends: Offset behind the last record, by partition that has a leader.
    """

    members: tuple[str, ...] = ()
    committed: Mapping[Partition, int] = field(default_factory=dict)
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    missing_topics: frozenset[str] = frozenset()
    ends: Mapping[Partition, int] = field(default_factory=dict)


def describe_group(options: KafkaOptions) -> GroupState:
    """Return the group state; an unknown group has no members and no offsets."""
    with admin_client(options) as admin:
        return _retrying(options, f"look up the group {options.group_id}", lambda: _describe(admin, options))


def committed_offsets(options: KafkaOptions) -> dict[Partition, CommittedOffset]:
    """Return the group's committed offsets in the existing input topics, by partition."""
    with admin_client(options) as admin:
        doing = f"look up the group {options.group_id}"
        committed = _retrying(options, doing, lambda: _committed_offsets(admin, options.group_id))
        topics = {topic["name"]: topic for topic in admin.describe_topics(list(options.topics))}
    offsets = {}
    for partition, commit in committed.items():
        topic = topics.get(partition.topic)
        if topic is None or is_missing(topic["error_code"]):
            continue
        offset = _with_parsed_metadata(commit.offset, commit.metadata)
        if not _is_outdated(offset.topic_id, topic_id_of(topic["topic_id"])):
            offsets[partition] = offset
    return offsets


def refuse_other_indexes(options: KafkaOptions) -> None:
    """Raise ``GroupHasOtherIndex`` unless all members use indexes with the same name (``KafkaOptions.index_name``).

    Called before joining and after. Documents that two members insert in different indexes are never compared. The name
    is a part of the client id (``KafkaOptions.member_client_id``); a member without a name may use any index, or be
    another program.

    The static member that this process replaces is removed if its name is another one: Kafka would keep its client id.
    """
    if not options.index_name or options.api_version is not None:
        return  # brokers without negotiation of versions may not describe groups
    with admin_client(options) as admin:

        def strangers_after_removal() -> list[str]:
            group = admin.describe_groups([options.group_id])[options.group_id]
            _raise_error(group.get("error"))
            strangers = [member for member in group["members"] if member["client_id"] != options.member_client_id]
            own_id = options.group_instance_id  # brokers before 2.4 do not tell the ids of members
            replaced = [member for member in strangers if own_id and member.get("group_instance_id") == own_id]
            if replaced:
                admin.remove_group_members(options.group_id, [MemberToRemove(group_instance_id=own_id)])
            return [_named(member) for member in strangers if member not in replaced]

        strangers = _retrying(options, f"look up the group {options.group_id}", strangers_after_removal)
    if strangers:
        raise GroupHasOtherIndex(
            f"members of the group {options.group_id} have another index, by their redis.key_prefix, than this daemon "
            f"({options.member_client_id}), or their client id names none: {', '.join(sorted(strangers))}. Stop them "
            "first; one that ended without leaving the group stays a member for kafka.session_timeout"
        )


def members_of_index(options: KafkaOptions, *, unnamed: bool) -> tuple[str, ...]:
    """Return the members whose client id has the same index name; with ``unnamed`` also those that name no index."""
    prefix = f"{CLIENT_ID}-"  # of a client id with an index name
    return tuple(
        member
        for member in describe_group(options).members
        if member.startswith((f"{options.member_client_id} ", f"{options.member_client_id},"))  # see `_named`
        or (unnamed and not member.startswith(prefix))
    )


def committed_if_listed(options: KafkaOptions) -> dict[Partition, int]:
    """Return the group's committed offsets, and change nothing at a Kafka that has never had a group.

    A request for a group coordinator makes Kafka create its internal topic of offsets. A group with offsets is listed,
    so the coordinator is looked up for a listed group only.
    """
    with admin_client(options) as admin:
        if not any(listed["group_id"] == options.group_id for listed in admin.list_groups()):
            return {}
        doing = f"look up the group {options.group_id}"
        committed = _retrying(options, doing, lambda: _committed_offsets(admin, options.group_id))
    return {partition: commit.offset for partition, commit in committed.items()}


def _committed_offsets(
    admin: Any, group: str, partitions: Collection[Partition] | None = None
) -> dict[Partition, CommittedOffset]:
    client_partitions = None if partitions is None else [TopicPartition(*partition) for partition in partitions]
    offsets = admin.list_group_offsets({group: client_partitions})[group]
    return {
        Partition(*partition): CommittedOffset(committed.offset, committed.metadata or "")
        for partition, committed in offsets.items()
        if committed.offset >= 0  # -1: nothing is committed
    }


def _describe(admin: Any, options: KafkaOptions) -> GroupState:
    group = admin.describe_groups([options.group_id])[options.group_id]
    _raise_error(group.get("error"))
    committed = _committed_offsets(admin, options.group_id)
    topics = admin.describe_topics(list(options.topics))
    latest = {
        TopicPartition(topic["name"], partition["partition_index"]): OffsetSpec.LATEST
        for topic in topics
        for partition in topic["partitions"]
        if partition["leader_id"] >= 0
    }
    return GroupState(
        members=tuple(sorted(map(_named, group["members"]))),
        committed={partition: commit.offset for partition, commit in committed.items()},
        topic_ids={topic["name"]: topic_id for topic in topics if (topic_id := topic_id_of(topic["topic_id"]))},
        missing_topics=frozenset(topic["name"] for topic in topics if is_missing(topic["error_code"])),
        ends={Partition(*partition): end.offset for partition, end in admin.list_partition_offsets(latest).items()},
    )


def _named(member: Mapping[str, Any]) -> str:
    """Return a text that names a member, for the operator; brokers before 2.4 return no ``group.instance.id``.

    ``members_of_index`` relies on the beginning of the text: the client id, then a blank or a comma.
    """
    instance = member.get("group_instance_id")
    static = f", group_instance_id {instance}," if instance else ""
    return f"{member['client_id']}{static} at {member['client_host']}"


def _raise_error(text: str | None) -> None:
    if not text:
        return
    number = _ERROR_NUMBER.search(text)
    kind = kafka_errors.for_code(int(number[1])) if number else kafka_errors.UnknownError
    if kind is not kafka_errors.GroupIdNotFoundError:
        raise kind(text)


class GroupOffsets:
    """The offsets of a group without members, the progress of ``dlq replay``; a context manager, for one thread."""

    def __init__(self, options: KafkaOptions, group: str) -> None:
        self._options = options
        self._admin = compat.build(KafkaAdminClient, options.admin(), options)
        self._group = group

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        close_quietly("close the admin client", self._admin.close, self._options.close_timeout_s)

    def read(self, partitions: Collection[Partition]) -> dict[Partition, CommittedOffset]:
        doing = f"read the offsets of the consumer group {self._group}"
        return _retrying(self._options, doing, lambda: _committed_offsets(self._admin, self._group, partitions))

    def write(self, offsets: Mapping[Partition, CommittedOffset]) -> None:
        """Commit offsets; those of other partitions stay. Raise ``BrokerUnavailable`` also if the group has members."""
        client_offsets = {
            TopicPartition(*partition): OffsetAndMetadata(committed.offset, committed.metadata, leader_epoch=-1)
            for partition, committed in offsets.items()
        }

        def write() -> None:
            for kind in self._admin.alter_group_offsets(self._group, client_offsets).values():
                if kind is not kafka_errors.NoError:
                    raise kind(kind.description)

        _retrying(self._options, f"write the offsets of the consumer group {self._group}", write)


def _retrying(options: KafkaOptions, doing: str, ask: Callable[[], Answer]) -> Answer:
    """Return the result of ``ask``, repeated for ``connect_timeout_s`` while the group coordinator is not ready.

    A broker that has never had a group first creates the topic of offsets.
    """
    deadline = time.monotonic() + options.connect_timeout_s
    while True:
        try:
            return ask()
        except CLIENT_ERRORS as error:
            if not is_retriable(error) or time.monotonic() > deadline:
                raise translated(error, doing, options.secrets()) from error
        time.sleep(_RETRY_PAUSE_S)
