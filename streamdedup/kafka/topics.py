"""Topics: whether they exist and may be used, and creating them. Their settings: ``topic_settings``."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kafka import errors as kafka_errors

from streamdedup.errors import BrokerMisconfigured
from streamdedup.kafka.client import admin_client
from streamdedup.kafka.errors import missing_topics, translated
from streamdedup.kafka.options import KafkaOptions
from streamdedup.kafka.topic_settings import RETENTION, UNLIMITED

#: Replication factor that stands for the broker's ``default.replication.factor``.
BROKERS_DEFAULT = -1


@dataclass(frozen=True, slots=True)
class CreatedTopics:
    """What ``create_topics`` did.

    Attributes:
        created: Names of the topics that are new.
        existed: Names of the topics that were there, and were left as they are.
        partition_counts: Number of partitions of those that were there, as far as we may know it.
    """

    created: tuple[str, ...]
    existed: tuple[str, ...]
    partition_counts: Mapping[str, int] = field(default_factory=dict)


def check_topics(options: KafkaOptions, outputs: Iterable[str] = ()) -> dict[str, int]:
    """Check that input and output topics exist and may be used.

    Args:
        options: Where Kafka is, and the input topics.
        outputs: Topics that are written to.

    Returns:
        Number of partitions of each topic.

    Raises:
        BrokerUnavailable: Nothing answers.
        BrokerMisconfigured: A topic is missing, or a right on it.
    """
    needed = dict.fromkeys(options.topics, "READ") | dict.fromkeys(sorted(set(outputs)), "WRITE")
    with admin_client(options) as admin:
        return partition_counts(admin, needed)


def refuse_missing(options: KafkaOptions, topics: Iterable[str]) -> None:
    """Raise when one of ``topics`` does not exist; for finding the reason of a failure.

    Raises:
        BrokerUnavailable: Nothing answers.
        BrokerMisconfigured: A topic is missing, or we may not see it.
    """
    with admin_client(options) as admin:
        partition_counts(admin, dict.fromkeys(topics, "DESCRIBE"))


def create_topics(
    options: KafkaOptions,
    partition_counts: Mapping[str, int],
    replication_factor: int,
    configs: Mapping[str, Mapping[str, str]] | None = None,
    kept_ms: Mapping[str, int] | None = None,
) -> CreatedTopics:
    """Create the topics that do not exist, and wait until they can be used.

    Args:
        options: Where Kafka is.
        partition_counts: Number of partitions of each topic.
        replication_factor: Copies of each partition; ``BROKERS_DEFAULT`` leaves the number to the broker.
        configs: Settings of those topics that need any, by topic, such as ``{"max.message.bytes": "4194304"}``.
        kept_ms: Least retention of further topics, in milliseconds, for brokers whose own default is shorter.

    Raises:
        BrokerUnavailable: Nothing answers, or the topics did not come into being in time.
        BrokerMisconfigured: Kafka refuses (rights, replication factor, settings).
    """
    created: list[str] = []
    existed: list[str] = []
    with admin_client(options) as admin:
        wanted = {
            name: {
                "num_partitions": count,
                "replication_factor": replication_factor,
                "configs": dict((configs or {}).get(name, {})),
            }
            for name, count in partition_counts.items()
        }
        _keep_longer(admin, wanted, kept_ms or {})
        answer = admin.create_topics(wanted, raise_errors=False)
        for topic in answer["topics"]:
            kind = kafka_errors.for_code(topic["error_code"])
            if kind is kafka_errors.NoError:
                created.append(topic["name"])
            elif kind is kafka_errors.TopicAlreadyExistsError:
                existed.append(topic["name"])
            else:
                raise _not_created(kind, topic)
        admin.wait_for_topics(created, timeout_ms=round(options.connect_timeout_s * 1000))
        known = {
            topic["name"]: len(topic["partitions"])
            for topic in (admin.describe_topics(existed) if existed else ())
            if kafka_errors.for_code(topic["error_code"]) is kafka_errors.NoError
        }
    return CreatedTopics(tuple(sorted(created)), tuple(sorted(existed)), known)


def _keep_longer(admin: Any, wanted: Mapping[str, dict[str, Any]], kept_ms: Mapping[str, int]) -> None:
    """Give topics a retention of their own where the broker's default is shorter than ``kept_ms``.

    Asked to validate the creation of a topic, a broker tells the settings that the topic would have, if the user may
    read them.
    """
    asked = {name: wanted[name] for name in kept_ms}
    answer = admin.create_topics(asked, validate_only=True, raise_errors=False) if asked else {"topics": ()}
    for topic in answer["topics"]:
        default = (topic.get("configs") or {}).get(RETENTION)
        needed_ms = kept_ms[topic["name"]]
        if default is not None and UNLIMITED < int(default["value"]) < needed_ms:
            wanted[topic["name"]]["configs"][RETENTION] = str(needed_ms)


def _not_created(kind: Any, topic: Mapping[str, Any]) -> Exception:
    """Why Kafka refused to create ``topic``."""
    text = topic.get("error_message") or kind.description or kind.__name__
    if issubclass(kind, (kafka_errors.InvalidReplicationFactorError, kafka_errors.InvalidConfigurationError)):
        return BrokerMisconfigured(f"cannot create topic {topic['name']}: {text}")
    return translated(kind(text), f"create topic {topic['name']}")


def partition_counts(admin: Any, needed: Mapping[str, str]) -> dict[str, int]:
    """Return the number of partitions of topics.

    Args:
        admin: An open admin client.
        needed: The operation that each topic is needed for, such as ``READ``, by topic.

    Raises:
        BrokerMisconfigured: A topic is missing, or a right on it.
    """
    counts: dict[str, int] = {}
    missing, refused = split_topics(admin, needed, counts)
    if refused:
        raise lacking_rights({name: needed[name] for name in refused})
    if missing:
        raise missing_topics(missing)
    return counts


def split_topics(admin: Any, needed: Mapping[str, str], counts: dict[str, int]) -> tuple[list[str], list[str]]:
    """Look up topics; return the names of those that are missing, and of those that the user has no right to use.

    Args:
        admin: An open admin client.
        needed: The operation that each topic is needed for, such as ``READ``, by topic.
        counts: Gets the number of partitions of each of the others.
    """
    missing: list[str] = []
    refused: list[str] = []
    for topic in admin.describe_topics(sorted(needed)):
        name, kind = topic["name"], kafka_errors.for_code(topic["error_code"])
        if kind in {kafka_errors.UnknownTopicOrPartitionError, kafka_errors.InvalidTopicError}:
            missing.append(name)
        elif kind is kafka_errors.TopicAuthorizationFailedError or not _granted(topic, needed[name]):
            refused.append(name)
        elif kind is not kafka_errors.NoError:
            raise translated(kind(kind.description), "look up a topic", topic=name)
        else:
            counts[name] = len(topic["partitions"])
    missing += [name for name in needed if name not in {*counts, *missing, *refused}]
    return missing, refused


def lacking_rights(needed: Mapping[str, str]) -> BrokerMisconfigured:
    """Return the error for topics that the user has no right to use: the operation needed, by topic."""
    rights = ", ".join(f"{operation} on topic {name}" for name, operation in needed.items())
    return BrokerMisconfigured(f"Kafka refuses us: the user lacks rights; grant {rights} (if it exists)")


def _granted(topic: Mapping[str, Any], operation: str) -> bool:
    """Whether we may do ``operation`` with ``topic``; true where the broker does not tell."""
    operations = topic.get("authorized_operations")
    return operations is None or operation in operations
