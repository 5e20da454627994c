"""Looks up topics, their settings and offsets, and creates topics; ``checks`` judges them before the first record."""

import contextlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from kafka import KafkaAdminClient
from kafka import errors as kafka_errors
from kafka.admin import ConfigResource, ConfigResourceType, OffsetSpec
from kafka.structs import TopicPartition

from streamdedup.errors import BrokerMisconfigured
from streamdedup.kafka import compat
from streamdedup.kafka.errors import CLIENT_ERRORS, close_quietly, is_topic_missing, missing_topics_text, translated
from streamdedup.kafka.offsets import topic_id_text
from streamdedup.kafka.options import KafkaOptions
from streamdedup.position import Partition

#: Replication factor that selects the broker's ``default.replication.factor``.
BROKERS_DEFAULT = -1
#: Whether the topic drops old records (``delete``), or all but the last record of each key (``compact``), or both.
CLEANUP = "cleanup.policy"
#: Age in milliseconds beyond which ``delete`` drops records; ``UNLIMITED`` for none.
RETENTION = "retention.ms"
UNLIMITED = -1


@contextlib.contextmanager
def admin_client(options: KafkaOptions) -> Iterator[Any]:
    admin = compat.build(KafkaAdminClient, options.admin(), options)
    try:
        yield admin
    except CLIENT_ERRORS as error:
        raise translated(error, "ask Kafka about its topics", options) from error
    finally:
        close_quietly("close the admin client", admin.close)


def require_topics(options: KafkaOptions, needed: Mapping[str, tuple[str, ...]] | None = None) -> dict[str, int]:
    """Return the partition counts of topics; raise ``BrokerMisconfigured`` if one is missing or may not be used.

    ``needed`` has the needed rights by topic, as ``TopicNeed.operations``; None for ``READ`` on the input topics.
    """
    if needed is None:
        needed = dict.fromkeys(options.topics, ("READ",))
    with admin_client(options) as admin:
        counts, missing, refused = look_up_topics(admin, needed)
    if refused:
        raise rights_error({name: needed[name] for name in refused})
    if missing:
        raise BrokerMisconfigured(missing_topics_text(missing, options.create_command))
    return counts


class LookedUpTopics(NamedTuple):
    """Partition counts of the usable topics, missing topics, and topics without a needed right."""

    counts: dict[str, int]
    missing: list[str]
    refused: list[str]


def look_up_topics(admin: Any, needed: Mapping[str, tuple[str, ...]]) -> LookedUpTopics:
    counts: dict[str, int] = {}
    missing: list[str] = []
    refused: list[str] = []
    for topic in admin.describe_topics(sorted(needed)):
        name, error_class = topic["name"], kafka_errors.for_code(topic["error_code"])
        granted = topic.get("authorized_operations")  # None where the broker does not tell
        lacks_right = granted is not None and not set(needed[name]) <= set(granted)
        if is_topic_missing(topic["error_code"]):
            missing.append(name)
        elif error_class is kafka_errors.TopicAuthorizationFailedError or lacks_right:
            refused.append(name)
        elif error_class is not kafka_errors.NoError:
            raise translated(error_class(error_class.description), "look up a topic", topic=name)
        else:
            counts[name] = len(topic["partitions"])
    missing += [name for name in needed if name not in {*counts, *missing, *refused}]  # those without any answer
    return LookedUpTopics(counts, missing, refused)


def rights_error(needed: Mapping[str, tuple[str, ...]]) -> BrokerMisconfigured:
    rights = ", ".join(f"{', '.join(operations)} on topic {name}" for name, operations in needed.items())
    # Kafka also refuses a topic that does not exist, if the user lacks rights on it.
    return BrokerMisconfigured(f"Kafka refuses us: the user lacks rights; grant {rights} (if it exists)")


def topic_ids(options: KafkaOptions) -> dict[str, str]:
    """Return Kafka's ids of ``options.topics``; empty where the broker does not return them."""
    with admin_client(options) as admin:
        topics = admin.describe_topics(list(options.topics))
    return {topic["name"]: topic_id_text(topic.get("topic_id")) for topic in topics}


def latest_offsets(options: KafkaOptions, partitions: Collection[Partition]) -> dict[Partition, int]:
    """Return the offset after the last record by partition, open transactions included."""
    with admin_client(options) as admin:
        specs = {TopicPartition(*partition): OffsetSpec.LATEST for partition in partitions}
        offsets = admin.list_partition_offsets(specs)
    return {Partition(*partition): latest.offset for partition, latest in offsets.items()}


def may_be_compacted(options: KafkaOptions) -> bool:
    """Return whether an input topic may be compacted: it is, or its settings cannot be read."""
    policies = cleanup_policies(options)
    return any(name not in policies or "compact" in policies[name] for name in options.topics)


def cleanup_policies(options: KafkaOptions) -> dict[str, str]:
    """Return the cleanup policy by input topic, as far as it can be read; none for brokers with ``api_version``."""
    if options.api_version is not None:
        return {}
    resources = [ConfigResource(ConfigResourceType.TOPIC, name, {CLEANUP: None}) for name in options.topics]
    with admin_client(options) as admin:
        configs = admin.describe_configs(resources, config_filter="all")["topic"]  # defaults too
    return {name: settings[CLEANUP]["value"] for name, settings in configs.items() if CLEANUP in settings}


@dataclass(frozen=True, slots=True)
class CreatedTopics:
    """Names of the new topics, and partition counts of the others if the user may describe them."""

    created: tuple[str, ...]
    partition_counts: Mapping[str, int]


def create_topics(
    options: KafkaOptions,
    partition_counts: Mapping[str, int],
    replication_factor: int,
    configs: Mapping[str, Mapping[str, str]],
    kept_ms: Mapping[str, int],
) -> CreatedTopics:
    """Create the missing topics, and wait until the new ones can be used.

    ``configs``: settings by topic. ``kept_ms``: least retention by topic, which becomes ``retention.ms`` where the
    broker's default is shorter; only for topics without that setting in ``configs``.
    """
    created: list[str] = []
    existed: list[str] = []
    with admin_client(options) as admin:
        shared = {"replication_factor": replication_factor}
        requests = {
            name: shared | {"num_partitions": count, "configs": dict(configs.get(name, {}))}
            for name, count in partition_counts.items()
        }
        _extend_retention(admin, requests, kept_ms)
        for topic in admin.create_topics(requests, raise_errors=False)["topics"]:
            error_class = kafka_errors.for_code(topic["error_code"])
            if error_class is kafka_errors.NoError:
                created.append(topic["name"])
            elif error_class is kafka_errors.TopicAlreadyExistsError:
                existed.append(topic["name"])
            else:
                raise _creation_error(error_class, topic)
        admin.wait_for_topics(created, timeout_ms=round(options.connect_timeout_s * 1000))
        existing_counts = {
            topic["name"]: len(topic["partitions"])
            for topic in (admin.describe_topics(existed) if existed else ())
            if kafka_errors.for_code(topic["error_code"]) is kafka_errors.NoError
        }
    return CreatedTopics(tuple(sorted(created)), existing_counts)


def _extend_retention(admin: Any, requests: Mapping[str, dict[str, Any]], kept_ms: Mapping[str, int]) -> None:
    """Request the least retention for topics whose broker default is shorter, which a validating request tells."""
    with_minimum = {name: requests[name] for name in kept_ms}
    if not with_minimum:
        return
    for topic in admin.create_topics(with_minimum, validate_only=True, raise_errors=False)["topics"]:
        name, described = topic["name"], (topic.get("configs") or {}).get(RETENTION)
        default_ms = UNLIMITED if described is None else int(described["value"])  # unreadable: left to the broker
        if default_ms != UNLIMITED and default_ms < kept_ms[name]:
            requests[name]["configs"][RETENTION] = str(kept_ms[name])


def _creation_error(error_class: Any, topic: Mapping[str, Any]) -> Exception:
    text = topic.get("error_message") or error_class.description or error_class.__name__
    if issubclass(error_class, (kafka_errors.InvalidReplicationFactorError, kafka_errors.InvalidConfigurationError)):
        return BrokerMisconfigured(f"cannot create topic {topic['name']}: {text}")
    return translated(error_class(text), f"create topic {topic['name']}")
