"""Topics: are they there, may we use them, are they large enough, and creating them."""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kafka import errors as kafka_errors
from kafka.admin import ConfigResource, ConfigResourceType

from streamdedup.errors import BrokerMisconfigured
from streamdedup.service.kafka.client import admin_client
from streamdedup.service.kafka.failures import missing_topics, translated
from streamdedup.service.kafka.options import KafkaOptions

logger = logging.getLogger(__name__)

#: The topic's limit on the size of a record batch.
SIZE_LIMIT = "max.message.bytes"

#: Whether the topic drops old records, or all but the last record of each key.
CLEANUP = "cleanup.policy"


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


def check_topics(
    options: KafkaOptions, outputs: Iterable[str], message_bytes: int | None = None, keyless: str | None = None
) -> dict[str, int]:
    """Check that input and output topics exist, that we may use them, and that output topics take our messages.

    Settings of topics are not checked on a broker for which ``api_version`` is set, as it may not tell them, nor where
    we have no right to read them.

    Args:
        options: Where Kafka is, and the input topics.
        outputs: Topics that are written to.
        message_bytes: Size of our largest message, default ``options.max_request_bytes``.
        keyless: That one of ``outputs`` that must take messages without a key, and keep all messages of a key.

    Returns:
        Number of partitions of each topic.

    Raises:
        BrokerUnavailable: Nothing answers.
        BrokerMisconfigured: A topic is missing, too small or compacted, or we may not see it.
    """
    outputs = sorted(set(outputs))
    needed = dict.fromkeys(options.topics, "READ") | dict.fromkeys(outputs, "WRITE")
    with admin_client(options) as admin:
        counts = _partition_counts(admin, needed)
        if outputs and options.api_version is None:
            _check_settings(admin, outputs, message_bytes or options.max_request_bytes, keyless)
        return counts


def refuse_missing(options: KafkaOptions, topics: Iterable[str]) -> None:
    """Raise when one of ``topics`` does not exist; for finding the reason of a failure.

    Raises:
        BrokerUnavailable: Nothing answers.
        BrokerMisconfigured: A topic is missing, or we may not see it.
    """
    with admin_client(options) as admin:
        _partition_counts(admin, dict.fromkeys(topics, "DESCRIBE"))


def create_topics(
    options: KafkaOptions,
    partition_counts: Mapping[str, int],
    replication_factor: int,
    configs: Mapping[str, Mapping[str, str]] | None = None,
) -> CreatedTopics:
    """Create the topics that do not exist, and wait until they can be used.

    Args:
        options: Where Kafka is.
        partition_counts: Number of partitions of each topic.
        replication_factor: Copies of each partition.
        configs: Settings of those topics that need any, by topic, such as ``{"max.message.bytes": "4194304"}``.

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


def _not_created(kind: Any, topic: Mapping[str, Any]) -> Exception:
    """Why Kafka refused to create ``topic``."""
    text = topic.get("error_message") or kind.description or kind.__name__
    if issubclass(kind, (kafka_errors.InvalidReplicationFactorError, kafka_errors.InvalidConfigurationError)):
        return BrokerMisconfigured(f"cannot create topic {topic['name']}: {text}")
    return translated(kind(text), f"create topic {topic['name']}")


def _partition_counts(admin: Any, needed: Mapping[str, str]) -> dict[str, int]:
    """Number of partitions by topic; raises when one is missing, or refuses us what it is needed for."""
    missing: list[str] = []
    refused: list[str] = []
    counts: dict[str, int] = {}
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
    if refused:
        rights = ", ".join(f"{needed[name]} on topic {name}" for name in refused)
        raise BrokerMisconfigured(f"Kafka refuses us: the user lacks rights; grant {rights} (if it exists)")
    missing.extend(name for name in needed if name not in counts and name not in missing)
    if missing:
        raise missing_topics(missing)
    return counts


def _granted(topic: Mapping[str, Any], operation: str) -> bool:
    """Whether we may do ``operation`` with ``topic``; true where the broker does not tell."""
    operations = topic.get("authorized_operations")
    return operations is None or operation in operations


def _check_settings(admin: Any, outputs: list[str], message_bytes: int, keyless: str | None) -> None:
    """Raise when an output topic does not take a message of ``message_bytes``, or ``keyless`` none without a key."""
    asked = {SIZE_LIMIT: None, CLEANUP: None}
    resources = [ConfigResource(ConfigResourceType.TOPIC, name, asked) for name in outputs]
    described = admin.describe_configs(resources, config_filter="all")
    for name, settings in described["topic"].items():
        if not settings:
            event = {"event": "topic_settings_unknown", "topic": name, "missing_right": "DESCRIBE_CONFIGS"}
            logger.warning("The settings of a topic cannot be checked", extra=event)
            continue
        limit_bytes = int(settings[SIZE_LIMIT]["value"])
        if limit_bytes < message_bytes:
            raise BrokerMisconfigured(
                f"topic {name} takes messages of {limit_bytes} bytes, ours may have {message_bytes}: raise its "
                f"{SIZE_LIMIT}, or lower kafka.max_message_bytes"
            )
        if name == keyless and "compact" in settings[CLEANUP]["value"]:
            raise BrokerMisconfigured(
                f"topic {name} is compacted, so it refuses messages without a key and drops all but the last of each "
                f"key: set its {CLEANUP} to delete"
            )
