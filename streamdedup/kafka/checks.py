"""Checks brokers, group, transactions and topics before the first record.

A new check is a ``Finding`` of ``check_kafka``; one of topic settings is a function that ``judge_topic`` calls.

The checks change nothing. Rights on the group are checked with a heartbeat of a member that does not exist, rights on
the transactional id with a request of a producer that does not exist. Without the right, the broker refuses such a
request before reading the content; with the right, the request has no effect. The requests go to any broker: a request
for the coordinator would create Kafka's internal topics if these do not exist yet.
"""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kafka import errors as kafka_errors
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.protocol.consumer import HeartbeatRequest
from kafka.protocol.producer import AddOffsetsToTxnRequest

from streamdedup.counts import counted
from streamdedup.errors import BrokerMisconfigured
from streamdedup.findings import Finding
from streamdedup.kafka import compat
from streamdedup.kafka.admin import CLEANUP, RETENTION, UNLIMITED, admin_client, look_up_topics, rights_error
from streamdedup.kafka.errors import translated
from streamdedup.kafka.options import KafkaOptions

#: The topic's limit on the size of a record batch, in bytes.
SIZE_LIMIT = "max.message.bytes"
#: Bytes of a partition beyond which ``delete`` drops records; ``UNLIMITED`` for none.
RETENTION_BYTES = "retention.bytes"
#: First version whose transactions are fenced by the generation of the consumer group (KIP-447).
_TRANSACTIONS_SINCE = (2, 5)
#: The broker's limits on what a client may ask for, in milliseconds.
_MAX_TRANSACTION_KEY = "transaction.max.timeout.ms"
_MIN_SESSION_KEY, _MAX_SESSION_KEY = "group.min.session.timeout.ms", "group.max.session.timeout.ms"
#: Milliseconds in each unit of a duration, longest first.
_UNITS_MS = {"day": 86_400_000, "hour": 3_600_000, "minute": 60_000, "second": 1000}


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicNeed:
    """Requirements on one topic: rights (``READ``, ``WRITE``), the largest written message, the least retention.

    ``compaction_loss`` is the consequence of compaction, such as "drops parts of alerts"; None if it is harmless.
    """

    name: str
    operations: tuple[str, ...]
    message_bytes: int | None = None
    compaction_loss: str | None = None
    kept_ms: int | None = None


def check_kafka(options: KafkaOptions, needs: Sequence[TopicNeed]) -> Iterator[Finding]:
    """Yield the results of all checks; raise ``BrokerUnavailable`` if Kafka does not answer a request.

    The number of requests is fixed, and each takes at most ``connect_timeout_s``. With ``api_version`` set, settings of
    brokers and topics are not requested, because such a broker may not support these requests.
    """
    with admin_client(options) as admin:
        brokers = counted(len(admin.describe_cluster()["brokers"]), "broker")
        version = ".".join(map(str, compat.broker_version(admin)))
        answer = f"{brokers}, version {version}, {options.security_protocol}"
        yield Finding.ok("kafka", f"Kafka at {options.bootstrap_servers} answers: {answer}")
        yield _check_group(admin, options)
        if options.delivery == "exactly-once":
            yield _check_transactions(admin, options)
        yield from _topic_findings(admin, options, needs)


def _check_group(admin: Any, options: KafkaOptions) -> Finding:
    reply = compat.send_request(admin, HeartbeatRequest(group_id=options.group_id, generation_id=-1, member_id=""))
    # With the right to use the group, the reply is also an error, because no such member exists.
    error_class = kafka_errors.for_code(reply.error_code)
    if issubclass(error_class, kafka_errors.AuthorizationError):
        return Finding.failure("group", translated(error_class(), f"use the consumer group {options.group_id}"))
    limits = _broker_limits(admin, options, (_MIN_SESSION_KEY, _MAX_SESSION_KEY))
    session_ms = round(options.session_timeout_s * 1000)
    # An unreadable limit counts as met.
    shortest_ms, longest_ms = limits.get(_MIN_SESSION_KEY, session_ms), limits.get(_MAX_SESSION_KEY, session_ms)
    if not shortest_ms <= session_ms <= longest_ms:
        allowed = f"{shortest_ms} to {longest_ms} ({_MIN_SESSION_KEY}, {_MAX_SESSION_KEY})"
        text = f"kafka.session_timeout is {session_ms} ms; the broker allows {allowed}"
        return Finding.failure("group", BrokerMisconfigured(text))
    return Finding.ok("group", f"group {options.group_id}: READ granted")


def _check_transactions(admin: Any, options: KafkaOptions) -> Finding:
    name = str(options.transactional_id)
    if compat.broker_version(admin) < _TRANSACTIONS_SINCE:
        text = 'Kafka is older than 2.5, which exactly-once delivery needs; set kafka.delivery = "at-least-once"'
        return Finding.failure("transactions", BrokerMisconfigured(text))
    request = AddOffsetsToTxnRequest(
        transactional_id=name, producer_id=-1, producer_epoch=-1, group_id=options.group_id
    )
    error_class = kafka_errors.for_code(compat.send_request(admin, request).error_code)
    # `_check_group` reports a missing right on the group; other errors only say that there is no such producer.
    if issubclass(error_class, kafka_errors.TransactionalIdAuthorizationFailedError):
        return Finding.failure("transactions", translated(error_class(), "use transactions"))
    timeout_ms = round(options.transaction_timeout_s * 1000)
    longest_ms = _broker_limits(admin, options, (_MAX_TRANSACTION_KEY,)).get(_MAX_TRANSACTION_KEY)
    if longest_ms is not None and longest_ms < timeout_ms:
        limits = f"is {timeout_ms} ms, the broker's {_MAX_TRANSACTION_KEY} {longest_ms}"
        error = BrokerMisconfigured(f"kafka.transaction_timeout {limits}: lower the one or raise the other")
        return Finding.failure("transactions", error)
    unknown = "" if longest_ms is not None else f" ({_MAX_TRANSACTION_KEY} is not readable with these rights)"
    return Finding.ok("transactions", f"transactions: WRITE granted on {name}{unknown}")


def _broker_limits(admin: Any, options: KafkaOptions, names: Sequence[str]) -> dict[str, int]:
    """Return settings of the first broker, as a sample of all, without those that the user may not read."""
    if options.api_version is not None:
        return {}
    broker = str(admin.describe_cluster()["brokers"][0]["broker_id"])
    resource = ConfigResource(ConfigResourceType.BROKER, broker, dict.fromkeys(names))
    # Without the right to read settings, the client returns none and raises no error.
    described = admin.describe_configs([resource], config_filter="all")
    settings = described.get("broker", {}).get(broker, {})
    return {name: int(settings[name]["value"]) for name in names if name in settings}


def _topic_findings(admin: Any, options: KafkaOptions, needs: Sequence[TopicNeed]) -> Iterator[Finding]:
    """Yield findings about rights and missing topics, then about the settings of the usable topics."""
    needed = {need.name: need.operations for need in needs}
    counts, missing, refused = look_up_topics(admin, needed)
    for name in refused:
        yield Finding.failure("topic_rights", rights_error({name: needed[name]}))
    yield from _missing_topics(options, needs, missing)
    usable = [need for need in needs if need.name in counts]
    if options.api_version is not None or not usable:
        for need in usable:
            text = f"{', '.join(need.operations)} granted; its settings are not asked for (kafka.api_version)"
            yield Finding.ok("topic", f"topic {need.name}: {text}")
        return
    keys = dict.fromkeys((SIZE_LIMIT, CLEANUP, RETENTION, RETENTION_BYTES))
    resources = [ConfigResource(ConfigResourceType.TOPIC, need.name, keys) for need in usable]
    configs = admin.describe_configs(resources, config_filter="all")["topic"]
    for need in usable:
        settings = {key: str(entry["value"]) for key, entry in configs.get(need.name, {}).items()}
        yield from judge_topic(options, need, counts[need.name], settings)


def _missing_topics(options: KafkaOptions, needs: Sequence[TopicNeed], missing: Sequence[str]) -> Iterator[Finding]:
    """Yield a finding for each missing topic: a warning for an input topic while another input topic exists."""
    inputs = {need.name for need in needs if "WRITE" not in need.operations}
    some_input_exists = bool(inputs - set(missing))
    for name in missing:
        text = f"no such topic: {name}"
        cure = "; create with" if options.create_command else ""  # `Finding.sentence` adds `: ` and the command
        if name in inputs and some_input_exists:
            text = f"{text}; the daemon reads its other topics, and this one once it exists{cure}"
            yield Finding.warning("topic_exists", text, options.create_command)
        else:
            yield Finding.failure("topic_exists", BrokerMisconfigured(text + cure), options.create_command)


def judge_topic(options: KafkaOptions, need: TopicNeed, count: int, settings: Mapping[str, str]) -> Iterator[Finding]:
    """Yield problems in a topic's settings, or that there are none; empty settings: the user may not read them."""
    subject = f"topic {need.name}"
    if not settings:
        cure = f"grant DESCRIBE_CONFIGS on {subject} to have them checked"
        text = f"{subject}: size of messages, retention and compaction cannot be checked; {cure}"
        yield Finding.warning("topic_settings", text)
        return
    checks = (_check_size, _check_cleanup, _check_retention)
    problems = [finding for check in checks for finding in check(options, need, settings)]
    if not problems:
        yield Finding.ok("topic", f"{subject}: {', '.join(need.operations)} granted, {counted(count, 'partition')}")
    yield from problems


def _check_size(options: KafkaOptions, need: TopicNeed, settings: Mapping[str, str]) -> Iterator[Finding]:
    limit_bytes = int(settings[SIZE_LIMIT])
    if need.message_bytes is None or limit_bytes >= need.message_bytes:
        return
    error = BrokerMisconfigured(
        f"topic {need.name} takes messages of {limit_bytes} bytes, the daemon may send {need.message_bytes}: raise its "
        f"{SIZE_LIMIT}, or lower kafka.max_message_bytes"
    )
    command = alter_topic_command(options, need.name, {SIZE_LIMIT: str(need.message_bytes)})
    yield Finding.failure("topic_size", error, command)


def _check_cleanup(options: KafkaOptions, need: TopicNeed, settings: Mapping[str, str]) -> Iterator[Finding]:
    if need.compaction_loss is None or "compact" not in settings[CLEANUP]:
        return
    text = f"topic {need.name} is compacted, which {need.compaction_loss}: set its {CLEANUP} to delete"
    command = alter_topic_command(options, need.name, {CLEANUP: "delete"})
    yield Finding.failure("topic_cleanup", BrokerMisconfigured(text), command)


def _check_retention(options: KafkaOptions, need: TopicNeed, settings: Mapping[str, str]) -> Iterator[Finding]:
    if need.kept_ms is None or "delete" not in settings[CLEANUP]:  # without `delete` no record is dropped
        return
    changes: dict[str, str] = {}
    limits: list[str] = []
    retention_ms, retention_bytes = int(settings[RETENTION]), int(settings[RETENTION_BYTES])
    if retention_ms != UNLIMITED and retention_ms < need.kept_ms:
        limits.append(f"for {_duration_text(retention_ms)} only")
        changes[RETENTION] = str(need.kept_ms)
    if retention_bytes != UNLIMITED:  # bytes say nothing about the age, so any limit may be too small
        limits.append(f"at most {retention_bytes:,} bytes of a partition")
        changes[RETENTION_BYTES] = str(UNLIMITED)
    if limits:
        text = (
            f"topic {need.name} keeps records {' and '.join(limits)}; a rebuild of the index needs all records of the "
            f"last {_duration_text(need.kept_ms)}"
        )
        command = alter_topic_command(options, need.name, changes)
        yield Finding.warning("topic_retention", text, command)


def _duration_text(duration_ms: int) -> str:
    """Return a duration in the largest unit that divides it: ``31 days``, ``49 hours``."""
    for unit, length_ms in _UNITS_MS.items():
        count, remainder_ms = divmod(duration_ms, length_ms)
        if count and not remainder_ms:
            return counted(count, unit)
    return f"{duration_ms:,} ms"


def alter_topic_command(options: KafkaOptions, topic: str, configs: Mapping[str, str]) -> str:
    """Return Kafka's command line that changes topic settings. Public for tests."""
    # A placeholder: the program reads TLS and login from a file of the administrator.
    login = () if options.security_protocol == "PLAINTEXT" else ("--command-config", "admin.properties")
    words = ("kafka-configs.sh", "--bootstrap-server", options.bootstrap_servers, *login, "--alter")
    added = ",".join(f"{key}={value}" for key, value in configs.items())
    return shlex.join((*words, "--entity-type", "topics", "--entity-name", topic, "--add-config", added))
