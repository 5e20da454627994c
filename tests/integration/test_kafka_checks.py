"""The checks of Kafka on a real broker, and the settings of the topics that are created."""

import contextlib
import re

import pytest
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import CoordinatorNotAvailableError, NoError, NotCoordinatorError
from kafka.structs import OffsetAndMetadata, TopicPartition

from streamdedup.errors import BrokerMisconfigured, BrokerUnavailable
from streamdedup.findings import Level, warnings_or_raise
from streamdedup.kafka.admin import BROKERS_DEFAULT, create_topics
from streamdedup.kafka.checks import TopicNeed, check_kafka
from streamdedup.kafka.group_admin import read_committed_offsets_if_listed
from streamdedup.kafka.protocols import CommittedOffset
from tests import servers
from tests.servers import kafka_options
from tests.support.ports import free_ports

DAY_MS = 86_400_000


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


def test_new_topics_are_kept_as_long_as_asked_unless_the_broker_keeps_them_longer(kafka):
    plain, ours, short = (servers.fresh_name("topic") for _ in range(3))
    servers.create_topics(kafka, [plain])
    kept_ms, configs = {ours: 31 * DAY_MS, short: 31 * DAY_MS}, {short: {"retention.ms": str(DAY_MS)}}
    create_topics(kafka_options(kafka), {ours: 1, short: 1}, BROKERS_DEFAULT, configs, kept_ms)
    default_ms = int(settings_of(kafka, plain)["retention.ms"])
    kept_ms = default_ms if default_ms == -1 else max(default_ms, 31 * DAY_MS)
    assert settings_of(kafka, ours)["retention.ms"] == str(kept_ms)
    assert settings_of(kafka, short)["retention.ms"] == str(31 * DAY_MS)


@pytest.mark.parametrize(
    ("changes", "check", "named"),
    [
        ({"transaction_timeout_s": 3600.0, "delivery_timeout_s": 60.0}, "transactions", "transaction.max.timeout.ms"),
        ({"session_timeout_s": 3601.0}, "group", "group.max.session.timeout.ms"),
    ],
)
def test_times_beyond_a_limit_of_the_broker_are_reported_with_the_limit(kafka, changes, check, named):
    found = {finding.check: finding for finding in check_kafka(kafka_options(kafka, **changes), [])}
    assert found[check].error is BrokerMisconfigured
    assert named in found[check].text


def test_an_absent_broker_is_one_temporary_failure():
    address = f"127.0.0.1:{free_ports()[0]}"
    options = kafka_options(address, connect_timeout_s=0.5)
    with pytest.raises(BrokerUnavailable, match=re.escape(address)):
        list(check_kafka(options, [TopicNeed(name="input", operations=("READ",))]))


@pytest.mark.long
def test_a_kafka_that_was_only_checked_has_none_of_its_internal_topics():
    with servers.make_kafka() as server:
        servers.create_topics(server.bootstrap_servers, ["input", "output"])
        asked = kafka_options(server.bootstrap_servers)
        needs = [TopicNeed(name="input", operations=("READ",)), TopicNeed(name="output", operations=("WRITE",))]
        assert {finding.level for finding in check_kafka(asked, needs)} == {Level.OK}
        assert read_committed_offsets_if_listed(asked) == {}
        with contextlib.closing(servers.admin_client(server.bootstrap_servers)) as admin:
            assert set(admin.list_topics()) == {"input", "output"}

            def commit():
                # Asking for the coordinator makes the topic of offsets: the check above must not.
                with contextlib.suppress(CoordinatorNotAvailableError, NotCoordinatorError):
                    offsets = {TopicPartition("input", 0): OffsetAndMetadata(5, "", -1)}
                    return set(admin.alter_group_offsets(asked.group_id, offsets).values()) == {NoError}
                return False

            servers.wait_until(commit, what="the coordinator of groups")
            assert "__consumer_offsets" in admin.list_topics()
        assert read_committed_offsets_if_listed(asked) == {("input", 0): CommittedOffset(5)}
