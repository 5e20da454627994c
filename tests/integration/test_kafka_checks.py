"""The checks of Kafka on a real broker: wrong topic settings, and no change by a check."""

import contextlib
import re

import pytest
from kafka.admin import ConfigResource, ConfigResourceType

from streamdedup.errors import BrokerMisconfigured, BrokerUnavailable
from streamdedup.findings import Level, warnings_or_raise
from streamdedup.kafka.admin import BROKERS_DEFAULT, TopicNeed, check_kafka, create_topics
from tests import servers
from tests.servers import kafka_options
from tests.support.ports import free_ports

DAY_MS = 86_400_000


def checked(kafka, need, **changes):
    """Return the findings about the topic of a need."""
    found = check_kafka(kafka_options(kafka, need.name, **changes), [need])
    return [finding for finding in found if f"topic {need.name}" in finding.text]


def settings_of(kafka, topic):
    with contextlib.closing(servers.admin_client(kafka)) as admin:
        described = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)], config_filter="all")
    return {key: entry["value"] for key, entry in described["topic"][topic].items()}


def test_a_missing_topic_hides_nothing_of_the_others(kafka, new_topic):
    small, missing = new_topic("output", max_message_bytes="1000"), servers.fresh_name("missing")
    small_need = TopicNeed(name=small, operations=("WRITE",), message_bytes=1_048_576)
    found = list(check_kafka(kafka_options(kafka), [TopicNeed(name=missing, operations=("READ",)), small_need]))
    assert [finding.check for finding in found] == ["kafka", "group", "transactions", "topic_exists", "topic_size"]
    told = rf"{missing}[^\n]*\n.*1000 bytes, the daemon may send 1048576"
    with pytest.raises(BrokerMisconfigured, match=told) as caught:
        warnings_or_raise(found)
    assert f"--entity-name {small} --add-config max.message.bytes=1048576" in str(caught.value)


@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
def test_a_compacted_topic_is_refused_where_compaction_loses_something(kafka, new_topic, policy):
    compacted = new_topic("output", cleanup_policy=policy)
    (failed,) = checked(kafka, TopicNeed(name=compacted, operations=("WRITE",), compaction_loss="drops alerts"))
    assert (failed.check, failed.error) == ("topic_cleanup", BrokerMisconfigured)
    assert failed.text == f"topic {compacted} is compacted, which drops alerts: set its cleanup.policy to delete"
    assert failed.command.endswith(f"--entity-name {compacted} --add-config cleanup.policy=delete")
    (fine,) = checked(kafka, TopicNeed(name=compacted, operations=("READ",)))
    assert fine.level is Level.OK


def test_a_topic_with_short_retention_is_a_warning_with_the_command_that_extends_it(kafka, new_topic):
    short = new_topic("input", retention_ms=str(7 * DAY_MS), retention_bytes="1000000")
    need = TopicNeed(name=short, operations=("READ",), kept_ms=31 * DAY_MS)
    (warned,) = checked(kafka, need)
    assert (warned.check, warned.level) == ("topic_retention", Level.WARNING)
    assert "for 7 days only and at most 1,000,000 bytes of a partition" in warned.text
    assert "31 days" in warned.text
    # The broker accepts the values of the command.
    assert warned.command.startswith(f"kafka-configs.sh --bootstrap-server {kafka} --alter --entity-type topics ")
    changes = dict(pair.split("=") for pair in warned.command.rpartition(" ")[2].split(","))
    with contextlib.closing(servers.admin_client(kafka)) as admin:
        admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, short, changes)])
    servers.wait_until(lambda: checked(kafka, need)[0].level is Level.OK, what="the settings of the topic")


def test_new_topics_are_kept_as_long_as_asked_unless_the_broker_keeps_them_longer(kafka):
    plain, ours, short = (servers.fresh_name("topic") for _ in range(3))
    servers.create_topics(kafka, [plain])
    kept_ms, configs = {ours: 31 * DAY_MS, short: 31 * DAY_MS}, {short: {"retention.ms": str(DAY_MS)}}
    create_topics(kafka_options(kafka), {ours: 1, short: 1}, BROKERS_DEFAULT, configs, kept_ms)
    default_ms = int(settings_of(kafka, plain)["retention.ms"])
    kept_ms = default_ms if default_ms == -1 else max(default_ms, 31 * DAY_MS)
    assert settings_of(kafka, ours)["retention.ms"] == str(kept_ms)
    assert settings_of(kafka, short)["retention.ms"] == str(31 * DAY_MS)


def test_an_absent_broker_is_one_temporary_failure():
    address = f"127.0.0.1:{free_ports()[0]}"
    options = kafka_options(address, connect_timeout_s=0.5)
    with pytest.raises(BrokerUnavailable, match=re.escape(address)):
        list(check_kafka(options, [TopicNeed(name="input", operations=("READ",))]))
