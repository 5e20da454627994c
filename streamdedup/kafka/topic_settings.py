"""Settings of topics that the guarantees depend on: size of messages, retention, compaction."""

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kafka.admin import ConfigResource, ConfigResourceType

from streamdedup.errors import BrokerMisconfigured
from streamdedup.findings import Finding
from streamdedup.kafka.options import KafkaOptions

#: The topic's limit on the size of a record batch, in bytes.
SIZE_LIMIT = "max.message.bytes"
#: Whether the topic drops old records (``delete``), or all but the last record of each key (``compact``), or both.
CLEANUP = "cleanup.policy"
#: Age in milliseconds, and bytes of a partition, beyond which ``delete`` drops records; ``UNLIMITED`` for none.
RETENTION, RETENTION_BYTES = "retention.ms", "retention.bytes"
#: Value of ``RETENTION`` and ``RETENTION_BYTES`` for no limit.
UNLIMITED = -1

_ASKED = (SIZE_LIMIT, CLEANUP, RETENTION, RETENTION_BYTES)
_DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicNeed:
    """What one topic must offer.

    Attributes:
        name: Name of the topic.
        operation: Right that the user needs: ``READ`` or ``WRITE``.
        message_bytes: Size of the largest message that is written, in bytes; None for a topic that is read.
        compaction_loss: What compaction breaks, as "it is compacted, which ..." continues; None where it is allowed.
        kept_ms: How long the topic must keep records, in milliseconds; None for any time.
        kept_for: What needs the records, for the operator.
    """

    name: str
    operation: str
    message_bytes: int | None = None
    compaction_loss: str | None = None
    kept_ms: int | None = None
    kept_for: str = "a rebuild of the index"


def read_topic_settings(admin: Any, names: Iterable[str]) -> dict[str, dict[str, str]]:
    """Return the settings of topics by name; those that the user has no right to read are empty."""
    resources = [ConfigResource(ConfigResourceType.TOPIC, name, dict.fromkeys(_ASKED)) for name in names]
    described = admin.describe_configs(resources, config_filter="all")
    return {
        name: {key: str(entry["value"]) for key, entry in settings.items()}
        for name, settings in described["topic"].items()
    }


def judge_topic(options: KafkaOptions, need: TopicNeed, count: int, settings: Mapping[str, str]) -> Iterator[Finding]:
    """Yield what is wrong with the settings of a topic, or one finding that says what they are.

    Args:
        options: Where Kafka is, for the commands that cure.
        need: What the topic must offer.
        count: Number of partitions.
        settings: What the topic offers; empty when the user has no right to read it.
    """
    subject = f"topic {need.name}"
    if not settings:
        yield Finding.warning(
            "topic_settings",
            subject,
            f"{subject}: size of messages, retention and compaction cannot be checked; grant DESCRIBE_CONFIGS on "
            f"topic {need.name} to have them checked",
        )
        return
    problems = [*_size(options, need, settings), *_cleanup(options, need, settings), *_kept(options, need, settings)]
    if not problems:
        partitions = "1 partition" if count == 1 else f"{count:,} partitions"
        yield Finding.ok("topic", subject, f"{subject}: {need.operation} granted, {partitions}, {_described(settings)}")
    yield from problems


def _size(options: KafkaOptions, need: TopicNeed, settings: Mapping[str, str]) -> Iterator[Finding]:
    limit_bytes = int(settings[SIZE_LIMIT])
    if need.message_bytes is None or limit_bytes >= need.message_bytes:
        return
    error = BrokerMisconfigured(
        f"topic {need.name} takes messages of {limit_bytes} bytes, ours may have {need.message_bytes}: raise its "
        f"{SIZE_LIMIT}, or lower kafka.max_message_bytes"
    )
    command = alter_topic(options, need.name, {SIZE_LIMIT: str(need.message_bytes)})
    yield Finding.failure("topic_size", f"topic {need.name}", error, command)


def _cleanup(options: KafkaOptions, need: TopicNeed, settings: Mapping[str, str]) -> Iterator[Finding]:
    if need.compaction_loss is None or "compact" not in settings[CLEANUP]:
        return
    error = BrokerMisconfigured(
        f"topic {need.name} is compacted, which {need.compaction_loss}: set its {CLEANUP} to delete"
    )
    command = alter_topic(options, need.name, {CLEANUP: "delete"})
    yield Finding.failure("topic_cleanup", f"topic {need.name}", error, command)


def _kept(options: KafkaOptions, need: TopicNeed, settings: Mapping[str, str]) -> Iterator[Finding]:
    if need.kept_ms is None or "delete" not in settings[CLEANUP]:
        return
    wanted: dict[str, str] = {}
    lacks: list[str] = []
    kept_ms, kept_bytes = int(settings[RETENTION]), int(settings[RETENTION_BYTES])
    if kept_ms != UNLIMITED and kept_ms < need.kept_ms:
        lacks.append(f"for {duration_text(kept_ms)} only")
        wanted[RETENTION] = str(need.kept_ms)
    if kept_bytes != UNLIMITED:
        lacks.append(f"at most {kept_bytes:,} bytes of a partition")
        wanted[RETENTION_BYTES] = str(UNLIMITED)
    if lacks:
        yield Finding.warning(
            "topic_retention",
            f"topic {need.name}",
            f"topic {need.name} keeps records {' and '.join(lacks)}; {need.kept_for} needs all records of the last "
            f"{duration_text(need.kept_ms)}",
            alter_topic(options, need.name, wanted),
        )


def _described(settings: Mapping[str, str]) -> str:
    kept_ms, kept_bytes = int(settings[RETENTION]), int(settings[RETENTION_BYTES])
    kept = "kept for ever" if kept_ms == UNLIMITED else f"kept for {duration_text(kept_ms)}"
    if "delete" not in settings[CLEANUP]:
        kept = "compacted"
    elif "compact" in settings[CLEANUP]:
        kept += ", compacted"
    elif kept_bytes != UNLIMITED:
        kept += f", at most {kept_bytes:,} bytes of a partition"
    return f"messages of up to {int(settings[SIZE_LIMIT]):,} bytes, {kept}"


def duration_text(duration_ms: int) -> str:
    """Return a duration for people, in the largest unit that leaves a whole number."""
    for unit, length_ms in (("day", _DAY_MS), ("hour", 3_600_000), ("minute", 60_000), ("second", 1000)):
        count, rest = divmod(duration_ms, length_ms)
        if count and not rest:
            return f"{count:,} {unit}" + ("" if count == 1 else "s")
    return f"{duration_ms:,} ms"


def alter_topic(options: KafkaOptions, topic: str, configs: Mapping[str, str]) -> str:
    """Return the command line of Kafka that changes settings of a topic."""
    words: Sequence[str] = ("kafka-configs.sh", "--bootstrap-server", options.address)
    if options.security_protocol != "PLAINTEXT":
        # TLS and login, which that program reads from a file of the administrator.
        words = (*words, "--command-config", "admin.properties")
    added = ",".join(f"{key}={value}" for key, value in configs.items())
    return shlex.join((*words, "--alter", "--entity-type", "topics", "--entity-name", topic, "--add-config", added))
