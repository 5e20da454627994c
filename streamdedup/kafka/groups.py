"""The consumer group as Kafka sees it: who is a member, and what is committed."""

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kafka import errors as kafka_errors
from kafka.structs import TopicPartition

from streamdedup.errors import BrokerUnavailable
from streamdedup.kafka.client import admin_client
from streamdedup.kafka.errors import CLIENT_ERRORS, translated
from streamdedup.kafka.incarnations import of_present_topics, topic_id_of
from streamdedup.kafka.options import KafkaOptions
from streamdedup.kafka.protocols import Bookmark
from streamdedup.position import Partition

#: Pause before a broker is asked again that is not ready to answer for the group, in seconds.
_RETRY_PAUSE_S = 0.2
#: How the client writes the number of an error.
_ERROR_NUMBER = re.compile(r"\[Error (-?[0-9]+)\]")


@dataclass(frozen=True, slots=True)
class GroupState:
    """A consumer group.

    Attributes:
        members: The client id, the ``group.instance.id`` of a static member, and the address of each member. One that
            was killed, and a static one that ended, stays for the session timeout.
        committed: Committed offset of each partition that has one.
        topic_ids: Kafka's present id of each input topic, as far as the broker tells it.
    """

    members: tuple[str, ...] = ()
    committed: Mapping[Partition, int] = field(default_factory=dict)
    topic_ids: Mapping[str, str] = field(default_factory=dict)


def describe_group(options: KafkaOptions) -> GroupState:
    """Return the state of the group; one that Kafka does not know has no members and nothing committed.

    Raises:
        BrokerUnavailable: Nothing answers, or nobody answers for the group.
        BrokerMisconfigured: Kafka refuses us.
    """
    deadline = time.monotonic() + options.connect_timeout_s
    with admin_client(options) as admin:
        while True:
            try:
                return _describe(admin, options)
            except kafka_errors.KafkaError as error:
                # A broker that has never had a group makes the place for groups now.
                if not error.retriable or time.monotonic() > deadline:
                    raise translated(error, f"look up the group {options.group_id}", options.secrets()) from error
            time.sleep(_RETRY_PAUSE_S)


def committed_quietly(options: KafkaOptions) -> dict[Partition, int]:
    """Return the committed offsets of the group, and change nothing at a Kafka that has never had a group.

    Asking for the coordinator of a group makes Kafka create its topic of offsets. A group with offsets is on the list
    of groups, so the coordinator is asked for only when the group is listed.

    Raises:
        BrokerUnavailable: Nothing answers.
        BrokerMisconfigured: Kafka refuses us.
    """
    with admin_client(options) as admin:
        if all(group["group_id"] != options.group_id for group in admin.list_groups()):
            return {}
    return dict(describe_group(options).committed)


def _describe(admin: Any, options: KafkaOptions) -> GroupState:
    group = admin.describe_groups([options.group_id])[options.group_id]
    _refuse_error(group.get("error"))
    offsets = admin.list_group_offsets(options.group_id)[options.group_id]
    return GroupState(
        members=tuple(sorted(map(_named, group["members"]))),
        committed={
            Partition(place.topic, place.partition): offset.offset
            for place, offset in offsets.items()
            if offset.offset >= 0
        },
        topic_ids={
            topic["name"]: topic_id
            for topic in admin.describe_topics(list(options.topics))
            if (topic_id := topic_id_of(topic["topic_id"]))
        },
    )


def _named(member: Mapping[str, Any]) -> str:
    """Name a member for the operator; brokers before 2.4 tell no ``group.instance.id``."""
    instance = member.get("group_instance_id")
    static = f", group_instance_id {instance}," if instance else ""
    return f"{member['client_id']}{static} at {member['client_host']}"


def fetch_committed(
    consumer: Any,
    options: KafkaOptions,
    topic_ids: Mapping[str, str],
    partitions: Sequence[Partition] | None = None,
) -> tuple[dict[Partition, Bookmark], frozenset[Partition]]:
    """Return what the group of a consumer has committed, and for which partitions it was for an earlier topic.

    Args:
        consumer: A consumer with a group.
        options: How it was made.
        topic_ids: Present id of each topic, as far as known.
        partitions: Of which; None for all of the options' topics. Those without anything committed are left out.

    Raises:
        BrokerUnavailable: Kafka did not answer in time, or does not know the partitions of a topic.
        FatalError: The broker refuses us for good.
    """
    if partitions is None:
        of_topic = {topic: consumer.partitions_for_topic(topic) for topic in options.topics}
        if unknown := [topic for topic, numbers in of_topic.items() if not numbers]:
            # What is committed of them would be taken for nothing.
            raise BrokerUnavailable(f"Kafka does not say at the moment which partitions {', '.join(unknown)} has")
        partitions = [Partition(topic, number) for topic, numbers in of_topic.items() for number in numbers]
    wanted = [TopicPartition(*partition) for partition in partitions]
    timeout_ms = round(options.fetch_timeout_s * 1000)
    try:
        # The public method asks for one partition at a time.
        found = consumer._coordinator.fetch_committed_offsets(wanted, timeout_ms=timeout_ms)  # noqa: SLF001
    except CLIENT_ERRORS as error:
        where = partitions[0] if len(partitions) == 1 else "all partitions"
        raise translated(error, f"read the committed offset of {where}", options.secrets()) from error
    return of_present_topics(found, topic_ids)


def _refuse_error(text: str | None) -> None:
    """Raise the error that the client returned as text, unless it says that there is no such group."""
    if not text:
        return
    number = _ERROR_NUMBER.search(text)
    kind = kafka_errors.for_code(int(number[1])) if number else kafka_errors.UnknownError
    if kind is not kafka_errors.GroupIdNotFoundError:
        raise kind(text)
