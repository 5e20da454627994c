"""Looks up a consumer group without joining it, removes an outdated membership, and sets offsets of ``dlq replay``.

Committed offsets of input topics are returned without those of deleted topics.
"""

import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self, TypeVar

from kafka import KafkaAdminClient, OffsetSpec
from kafka import errors as kafka_errors
from kafka.admin import MemberToRemove
from kafka.structs import TopicPartition

from streamdedup.errors import GroupHasOtherIndex
from streamdedup.kafka import compat
from streamdedup.kafka.admin import admin_client
from streamdedup.kafka.errors import CLIENT_ERRORS, close_quietly, is_retriable, is_topic_missing, translated
from streamdedup.kafka.offsets import client_offset, committed_offset_of, is_outdated, topic_id_text
from streamdedup.kafka.options import CLIENT_ID, KafkaOptions
from streamdedup.kafka.protocols import CommittedOffset
from streamdedup.position import Partition

Answer = TypeVar("Answer")

#: Number of an error in a text of the client.
_ERROR_NUMBER = re.compile(r"\[Error (-?[0-9]+)\]")
#: Pause before a group coordinator that is not ready is asked again, in seconds.
_RETRY_PAUSE_S = 0.2


@dataclass(frozen=True, slots=True)
class GroupState:
    """State of a consumer group and its topics; ``ends`` are offsets behind the last records.

    ``members`` are texts (``_member_text``). A killed member, and a static member that ended, stays for the session
    timeout. Topic ids are absent where the broker returns none, ends where a partition has no leader.
    """

    members: tuple[str, ...] = ()
    committed_offsets: Mapping[Partition, CommittedOffset] = field(default_factory=dict)
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    missing_topics: frozenset[str] = frozenset()
    ends: Mapping[Partition, int] = field(default_factory=dict)


def describe_group(options: KafkaOptions) -> GroupState:
    """Return the state of the group; an unknown group has no members and no offsets."""
    with admin_client(options) as admin:
        return _ask(options, lambda: _group_state(admin, options))


def read_committed_offsets_if_listed(options: KafkaOptions) -> dict[Partition, CommittedOffset]:
    """Return the group's committed offsets; ask nothing about a group that is not listed, as one without offsets is.

    Such a request makes Kafka create its internal topic of offsets, if it has never had a group.
    """
    with admin_client(options) as admin:
        listed = _ask(options, admin.list_groups)
    if not any(group["group_id"] == options.group_id for group in listed):
        return {}
    return read_committed_offsets(options)


def read_committed_offsets(options: KafkaOptions) -> dict[Partition, CommittedOffset]:
    """Return the group's committed offsets in the existing input topics, by partition."""
    with admin_client(options) as admin:
        committed_offsets = _ask(options, lambda: _committed_offsets(admin, options.group_id))
        return _of_present_topics(committed_offsets, admin.describe_topics(list(options.topics)))


def refuse_other_indexes(options: KafkaOptions) -> None:
    """Raise ``GroupHasOtherIndex`` unless all members use indexes with the same name, a part of their client ids.

    Documents in different indexes are never compared. A member without a name is refused, too: it may use any.
    """
    if not options.index_name or options.api_version is not None:
        return  # a broker without negotiation of versions may not describe groups
    members = _present_members(options)
    strangers = [_member_text(member) for member in members if member["client_id"] != options.member_client_id]
    if strangers:
        raise GroupHasOtherIndex(
            f"members of the group {options.group_id} have another index, by their redis.key_prefix, than this daemon "
            f"({options.member_client_id}), or their client id names none: {', '.join(sorted(strangers))}. Stop them "
            "first; one that ended without leaving the group stays a member for kafka.session_timeout"
        )


def members_of_index(options: KafkaOptions, *, unnamed: bool) -> tuple[str, ...]:
    """Return texts for the members with the same index name; with ``unnamed`` also for those that name no index."""
    members = [
        member
        for member in _present_members(options)
        if member["client_id"] == options.member_client_id
        or (unnamed and not member["client_id"].startswith(f"{CLIENT_ID}-"))  # begins an id with an index name
    ]
    return tuple(sorted(map(_member_text, members)))


def remove_outdated_membership(options: KafkaOptions) -> None:
    """Remove the static member that this process replaces if client id, topics or partitions have changed since.

    Kafka gives a static member that returns its former client id and assignment, without a rebalance. So
    ``refuse_other_indexes`` would find the name of the former index, and no member would read a topic or partition that
    is new. An assignment with a topic that was removed is rejected by the client, which joins again, forever.
    """
    own_id = options.group_instance_id
    if own_id is None or options.api_version is not None:
        return  # a broker without negotiation of versions may not describe groups
    with admin_client(options) as admin:

        def remove() -> None:
            members = _members(admin, options)
            own = [member for member in members if member.get("group_instance_id") == own_id]
            if own and (_has_changed(own[0], options) or _has_unassigned(admin, members, options)):
                admin.remove_group_members(options.group_id, [MemberToRemove(group_instance_id=own_id)])

        _ask(options, remove)


def _has_changed(member: Mapping[str, Any], options: KafkaOptions) -> bool:
    subscription = member["member_metadata"]  # empty while the group rebalances
    has_other_topics = bool(subscription) and set(subscription["topics"]) != set(options.topics)
    return bool(member["client_id"] != options.member_client_id or has_other_topics)


def _has_unassigned(admin: Any, members: Sequence[Mapping[str, Any]], options: KafkaOptions) -> bool:
    """Return whether a partition of the topics is assigned to no member; not while the group rebalances."""
    assignments = [member["member_assignment"] for member in members if member["member_assignment"]]
    assigned = {
        (topic["topic"], partition)
        for assignment in assignments
        for topic in assignment["assigned_partitions"]
        for partition in topic["partitions"]
    }
    topics = admin.describe_topics(list(options.topics))
    existing = {(topic["name"], partition["partition_index"]) for topic in topics for partition in topic["partitions"]}
    return bool(assignments) and not existing <= assigned


class GroupOffsets:
    """The offsets of a group without members, the progress of ``dlq replay``; a context manager, for one thread."""

    def __init__(self, options: KafkaOptions, group: str) -> None:
        self._options = options
        self._admin = compat.build(KafkaAdminClient, options.admin(), options)
        self._group = group

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        close_quietly("close the admin client", self._admin.close)

    def read(self, partitions: Collection[Partition]) -> dict[Partition, CommittedOffset]:
        doing = f"read the offsets of the consumer group {self._group}"
        return _retrying(self._options, doing, lambda: _committed_offsets(self._admin, self._group, partitions))

    def write(self, offsets: Mapping[Partition, CommittedOffset]) -> None:
        """Commit offsets; those of other partitions stay. Raise ``BrokerUnavailable`` also if the group has members."""
        client_offsets = {
            TopicPartition(*partition): client_offset(offset.offset, offset.metadata)
            for partition, offset in offsets.items()
        }

        def write() -> None:
            for kind in self._admin.alter_group_offsets(self._group, client_offsets).values():
                if kind is not kafka_errors.NoError:
                    raise kind(kind.description)

        _retrying(self._options, f"write the offsets of the consumer group {self._group}", write)


def _group_state(admin: Any, options: KafkaOptions) -> GroupState:
    members = _members(admin, options)
    committed_offsets = _committed_offsets(admin, options.group_id)
    topics = admin.describe_topics(list(options.topics))
    latest = {
        TopicPartition(topic["name"], partition["partition_index"]): OffsetSpec.LATEST
        for topic in topics
        for partition in topic["partitions"]
        if partition["leader_id"] >= 0
    }
    return GroupState(
        members=tuple(sorted(map(_member_text, members))),
        committed_offsets=_of_present_topics(committed_offsets, topics),
        topic_ids={topic["name"]: topic_id for topic in topics if (topic_id := topic_id_text(topic.get("topic_id")))},
        missing_topics=frozenset(topic["name"] for topic in topics if is_topic_missing(topic["error_code"])),
        ends={Partition(*partition): end.offset for partition, end in admin.list_partition_offsets(latest).items()},
    )


def _committed_offsets(
    admin: Any, group: str, partitions: Collection[Partition] | None = None
) -> dict[Partition, CommittedOffset]:
    client_partitions = None if partitions is None else [TopicPartition(*partition) for partition in partitions]
    offsets = admin.list_group_offsets({group: client_partitions})[group]
    return {
        Partition(*partition): committed_offset_of(offset)
        for partition, offset in offsets.items()
        if offset.offset >= 0  # -1: nothing is committed
    }


def _of_present_topics(
    committed_offsets: Mapping[Partition, CommittedOffset], topics: Sequence[Mapping[str, Any]]
) -> dict[Partition, CommittedOffset]:
    """Leave out the offsets of missing topics, and those committed for an earlier topic of the same name."""
    by_name = {topic["name"]: topic for topic in topics}
    offsets = {}
    for partition, offset in committed_offsets.items():
        topic = by_name.get(partition.topic)
        if topic is None or is_topic_missing(topic["error_code"]):
            continue
        if not is_outdated(offset.topic_id, topic_id_text(topic.get("topic_id"))):
            offsets[partition] = offset
    return offsets


def _present_members(options: KafkaOptions) -> list[Mapping[str, Any]]:
    with admin_client(options) as admin:
        return _ask(options, lambda: _members(admin, options))


def _members(admin: Any, options: KafkaOptions) -> list[Mapping[str, Any]]:
    group = admin.describe_groups([options.group_id])[options.group_id]
    _raise_if_failed(group.get("error"))
    members: list[Mapping[str, Any]] = group["members"]
    return members


def _raise_if_failed(text: str | None) -> None:
    """Raise the client's error that ``text`` names, if any, except for a group that does not exist."""
    if not text:
        return
    number = _ERROR_NUMBER.search(text)
    kind = kafka_errors.for_code(int(number[1])) if number else kafka_errors.UnknownError
    if kind is not kafka_errors.GroupIdNotFoundError:
        raise kind(text)


def _member_text(member: Mapping[str, Any]) -> str:
    """Return a text that names a member, for the operator; brokers before 2.4 return no ``group.instance.id``."""
    instance = member.get("group_instance_id")
    static = f", group_instance_id {instance}," if instance else ""
    return f"{member['client_id']}{static} at {member['client_host']}"


def _ask(options: KafkaOptions, ask: Callable[[], Answer]) -> Answer:
    return _retrying(options, f"look up the group {options.group_id}", ask)


def _retrying(options: KafkaOptions, doing: str, ask: Callable[[], Answer]) -> Answer:
    """Return the result of ``ask``, repeated for ``connect_timeout_s`` after retriable errors.

    A group coordinator may not be ready: a broker that has never had a group first creates the topic of offsets.
    """
    deadline = time.monotonic() + options.connect_timeout_s
    while True:
        try:
            return ask()
        except CLIENT_ERRORS as error:
            if not is_retriable(error) or time.monotonic() > deadline:
                raise translated(error, doing, options) from error
        time.sleep(_RETRY_PAUSE_S)
