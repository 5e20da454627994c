"""Everything about Kafka that can be verified before the first record, without changing anything there.

Rights on the group and on the transactional id are asked by requests that a broker refuses for want of the right before
it looks at what they say; what they say is of no member and of no producer, so they have no effect. They go to any
broker: one that is asked for the coordinator creates Kafka's internal topics where these do not exist yet.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from kafka import errors as kafka_errors
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.protocol.consumer import HeartbeatRequest
from kafka.protocol.producer import AddOffsetsToTxnRequest

from streamdedup.errors import BrokerMisconfigured, BrokerUnavailable
from streamdedup.findings import Finding
from streamdedup.kafka.client import admin_client
from streamdedup.kafka.errors import missing_topics, translated
from streamdedup.kafka.options import KafkaOptions
from streamdedup.kafka.topic_settings import TopicNeed, judge_topic, read_topic_settings
from streamdedup.kafka.topics import lacking_rights, split_topics

#: First version whose transactions are fenced by the generation of the consumer group (KIP-447).
_TRANSACTIONS_SINCE = (2, 5)
#: The broker's limits on what a client may ask for, in milliseconds.
_LONGEST_TRANSACTION = "transaction.max.timeout.ms"
_SHORTEST_SESSION, _LONGEST_SESSION = "group.min.session.timeout.ms", "group.max.session.timeout.ms"


def check_kafka(options: KafkaOptions, needs: Sequence[TopicNeed]) -> Iterator[Finding]:
    """Yield the result of each check; nothing is written.

    The number of requests is fixed, each takes at most ``connect_timeout_s``, and the first that is not answered ends
    the checks. Settings of brokers and topics are left out where ``api_version`` is set, as such a broker may not tell
    them.

    Args:
        options: Where Kafka is, and as whom.
        needs: The topics.
    """
    try:
        with admin_client(options) as admin:
            yield _cluster(admin, options)
            yield from _group(admin, options)
            if options.delivery == "exactly-once":
                yield from _transactions(admin, options)
            yield from _topics(admin, options, needs)
    except (BrokerUnavailable, BrokerMisconfigured) as error:
        yield Finding.failure("kafka", "Kafka", error)


def _cluster(admin: Any, options: KafkaOptions) -> Finding:
    count = len(admin.describe_cluster()["brokers"])
    brokers = "1 broker" if count == 1 else f"{count} brokers"
    version = ".".join(map(str, _version(admin)))
    return Finding.ok(
        "kafka",
        "Kafka",
        f"Kafka at {options.address} answers: {brokers}, version {version}, {options.security_protocol}",
    )


def _version(admin: Any) -> tuple[int, ...]:
    """Version of the broker, as far as its requests tell; later ones may look like an earlier one."""
    version: tuple[int, ...] = admin._manager.broker_version  # noqa: SLF001  no public method tells
    return version


def _send(admin: Any, request: Any) -> Any:
    """Send a request to any broker."""
    return admin._manager.run(admin._manager.send, request)  # noqa: SLF001  no public method sends these


def _group(admin: Any, options: KafkaOptions) -> Iterator[Finding]:
    subject = f"group {options.group_id}"
    reply = _send(admin, HeartbeatRequest(group_id=options.group_id, generation_id=-1, member_id=""))
    kind = kafka_errors.for_code(reply.error_code)
    if issubclass(kind, kafka_errors.AuthorizationError):
        yield Finding.failure("group", subject, translated(kind(), f"use the consumer group {options.group_id}"))
        return
    limits = _broker_limits(admin, options, (_SHORTEST_SESSION, _LONGEST_SESSION))
    session_ms = round(options.session_timeout_s * 1000)
    shortest_ms, longest_ms = limits.get(_SHORTEST_SESSION, session_ms), limits.get(_LONGEST_SESSION, session_ms)
    if not shortest_ms <= session_ms <= longest_ms:
        error = BrokerMisconfigured(
            f"kafka.session_timeout is {session_ms} ms; the broker allows {shortest_ms} to {longest_ms} "
            f"({_SHORTEST_SESSION}, {_LONGEST_SESSION})"
        )
        yield Finding.failure("group", subject, error)
        return
    yield Finding.ok("group", subject, f"group {options.group_id}: READ granted")


def _transactions(admin: Any, options: KafkaOptions) -> Iterator[Finding]:
    name = str(options.transactional_id)
    subject = f"transactional id {name}"
    if _version(admin) < _TRANSACTIONS_SINCE:
        error = BrokerMisconfigured(
            'Kafka is older than 2.5, which exactly-once delivery needs; set kafka.delivery = "at-least-once"'
        )
        yield Finding.failure("transactions", subject, error)
        return
    reply = _send(
        admin,
        AddOffsetsToTxnRequest(transactional_id=name, producer_id=-1, producer_epoch=-1, group_id=options.group_id),
    )
    kind = kafka_errors.for_code(reply.error_code)
    # A missing right on the group is that of the check of the group.
    if issubclass(kind, kafka_errors.TransactionalIdAuthorizationFailedError):
        yield Finding.failure("transactions", subject, translated(kind(), "use transactions"))
        return
    ours_ms = round(options.transaction_timeout_s * 1000)
    longest_ms = _broker_limits(admin, options, (_LONGEST_TRANSACTION,)).get(_LONGEST_TRANSACTION)
    if longest_ms is not None and longest_ms < ours_ms:
        error = BrokerMisconfigured(
            f"kafka.transaction_timeout is {ours_ms} ms, the broker's {_LONGEST_TRANSACTION} {longest_ms}: lower ours "
            "or raise the broker's"
        )
        yield Finding.failure("transactions", subject, error)
        return
    unknown = "" if longest_ms is not None else f" ({_LONGEST_TRANSACTION} is not readable with these rights)"
    yield Finding.ok("transactions", subject, f"transactions: WRITE granted on {name}{unknown}")


def _broker_limits(admin: Any, options: KafkaOptions, names: Sequence[str]) -> dict[str, int]:
    """Return settings of one broker, as far as the user may read them."""
    if options.api_version is not None:
        return {}
    broker = str(admin.describe_cluster()["brokers"][0]["broker_id"])
    resource = ConfigResource(ConfigResourceType.BROKER, broker, dict.fromkeys(names))
    try:
        described = admin.describe_configs([resource], config_filter="all")
    except kafka_errors.AuthorizationError:
        return {}
    found = described.get("broker", {}).get(broker, {})
    return {name: int(found[name]["value"]) for name in names if name in found}


def _topics(admin: Any, options: KafkaOptions, needs: Sequence[TopicNeed]) -> Iterator[Finding]:
    operations = {need.name: need.operation for need in needs}
    counts: dict[str, int] = {}
    missing, refused = split_topics(admin, operations, counts)
    for name in refused:
        error = lacking_rights({name: operations[name]})
        yield Finding.failure("topic_rights", f"topic {name}", error)
    for name in missing:
        yield Finding.failure("topic_exists", f"topic {name}", missing_topics([name]), None)
    there = [need for need in needs if need.name in counts]
    if options.api_version is not None or not there:
        for need in there:
            text = f"topic {need.name}: {need.operation} granted; its settings are not asked for (kafka.api_version)"
            yield Finding.ok("topic", f"topic {need.name}", text)
        return
    settings = read_topic_settings(admin, [need.name for need in there])
    for need in there:
        yield from judge_topic(options, need, counts[need.name], settings.get(need.name, {}))
