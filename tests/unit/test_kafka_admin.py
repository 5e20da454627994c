"""Problems of topic settings, and the commands that solve them."""

import shlex
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import pytest
from kafka.errors import InvalidConfigurationError, InvalidReplicationFactorError

from streamdedup.errors import BrokerMisconfigured
from streamdedup.findings import Level
from streamdedup.kafka import admin, history
from streamdedup.kafka.admin import _creation_error, _extend_retention
from streamdedup.kafka.checks import TopicNeed, _missing_topics, alter_topic_command, judge_topic
from streamdedup.kafka.options import KafkaOptions
from streamdedup.position import Partition

DAY_MS = 86_400_000
OPTIONS = KafkaOptions(bootstrap_servers="a:1,b:2", group_id="g", topics=("t",), transactional_id="x")
SETTINGS = {
    "max.message.bytes": "1048588", "cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"
}  # fmt: skip


def judged(settings, **need):
    given = {key.replace("_", "."): value for key, value in settings.items()}
    return list(judge_topic(OPTIONS, TopicNeed(name="t", operations=("READ",), **need), 4, SETTINGS | given))


@pytest.mark.parametrize(
    ("settings", "level"),
    [
        ({}, Level.OK),
        ({"retention_ms": str(31 * DAY_MS)}, Level.OK),
        ({"retention_ms": str(31 * DAY_MS - 1)}, Level.WARNING),
        ({"retention_bytes": "1000"}, Level.WARNING),
        ({"cleanup_policy": "compact", "retention_ms": "1"}, Level.OK),
        ({"cleanup_policy": "compact,delete", "retention_ms": "1"}, Level.WARNING),
    ],
)
def test_retention_is_compared_with_the_needed_time(settings, level):
    (found,) = judged(settings, kept_ms=31 * DAY_MS)
    assert found.level is level


@pytest.mark.parametrize(
    ("policies", "may"),
    [
        ({"t": "delete", "u": "delete"}, False),
        ({"t": "delete", "u": "compact"}, True),
        ({"t": "compact,delete", "u": "delete"}, True),
        ({"t": "delete"}, True),
    ],
)
def test_a_topic_may_be_compacted_where_its_policy_says_so_or_is_not_told(monkeypatch, policies, may):
    described = {name: {"cleanup.policy": {"value": policy}} for name, policy in policies.items()} | {"v": {}}
    kafka = SimpleNamespace(describe_configs=lambda _resources, config_filter: {"topic": described})
    monkeypatch.setattr(admin, "admin_client", lambda _options: nullcontext(kafka))
    assert admin.may_be_compacted(replace(OPTIONS, topics=("t", "u"))) is may
    assert admin.cleanup_policies(replace(OPTIONS, topics=("t", "u"))) == policies
    assert admin.may_be_compacted(replace(OPTIONS, topics=("v",)))
    assert admin.may_be_compacted(replace(OPTIONS, topics=("t",), api_version=(2, 0)))


@pytest.mark.parametrize(("start", "is_compacted", "keeps"), [(4, False, False), (5, False, True), (5, True, False)])
def test_a_topic_keeps_all_records_from_its_oldest_on_unless_it_is_compacted(monkeypatch, start, is_compacted, keeps):
    oldest = SimpleNamespace(beginnings={Partition("t", 0): 5, Partition("t", 1): 9})
    opened = {("t",): nullcontext(oldest)}
    monkeypatch.setattr(history, "TopicReader", lambda options: opened[options.topics])
    monkeypatch.setattr(history, "may_be_compacted", lambda options: is_compacted and options.topics == ("t",))
    assert history.KafkaHistory(OPTIONS).keeps_all({Partition("t", 0): start, Partition("t", 1): 9}) is keeps


@pytest.mark.parametrize(
    ("missing", "levels"),
    [
        (["b"], [Level.WARNING]),
        (["a", "b"], [Level.FAILED, Level.FAILED]),
        (["b", "output"], [Level.WARNING, Level.FAILED]),
        (["output"], [Level.FAILED]),
    ],
)
def test_a_missing_input_topic_is_a_warning_while_another_one_exists(missing, levels):
    operations = {"a": ("READ",), "b": ("READ",), "output": ("WRITE",)}
    needs = [TopicNeed(name=name, operations=needed) for name, needed in operations.items()]
    findings = list(_missing_topics(replace(OPTIONS, create_command="create"), needs, missing))
    assert [finding.level for finding in findings] == levels
    assert all(finding.sentence.endswith("; create with: create") for finding in findings)
    assert all(
        finding.text.startswith(f"no such topic: {name}") for finding, name in zip(findings, missing, strict=True)
    )
    assert all("create" not in finding.sentence for finding in _missing_topics(OPTIONS, needs, ["output"]))


@pytest.mark.parametrize("kind", [InvalidConfigurationError, InvalidReplicationFactorError])
def test_a_topic_whose_settings_kafka_refuses_is_put_to_an_operator_in_the_words_of_kafka(kind):
    error = _creation_error(kind, {"name": "t", "error_message": "min.insync.replicas is 9"})
    assert isinstance(error, BrokerMisconfigured)
    assert str(error) == "cannot create topic t: min.insync.replicas is 9"


@pytest.mark.parametrize(
    ("duration_ms", "text"),
    [
        (DAY_MS, "1 day"),
        (3_600_000, "1 hour"),
        (49 * 3_600_000, "49 hours"),
        (90_000, "90 seconds"),
        (7001, "7,001 ms"),
    ],
)
def test_a_retention_is_written_in_its_largest_whole_unit(duration_ms, text):
    (found,) = judged({"retention_ms": str(duration_ms)}, kept_ms=31 * DAY_MS)
    assert f"keeps records for {text} only" in found.text


def test_the_command_mends_all_that_is_too_short_and_nothing_else():
    (found,) = judged({"retention_ms": "604800000", "retention_bytes": "5"}, kept_ms=31 * DAY_MS)
    assert "for 7 days only and at most 5 bytes of a partition; a rebuild of the index needs all" in found.text
    assert found.command == (
        "kafka-configs.sh --bootstrap-server a:1,b:2 --alter --entity-type topics --entity-name t "
        "--add-config retention.ms=2678400000,retention.bytes=-1"
    )
    (found,) = judged({"retention_ms": "604800000"}, kept_ms=31 * DAY_MS)
    assert found.command.endswith("--add-config retention.ms=2678400000")


@pytest.mark.parametrize(
    ("default_ms", "configs"),
    [("-1", {}), (str(DAY_MS), {}), (str(DAY_MS - 1), {"retention.ms": str(DAY_MS)}), (None, {})],
)
def test_only_a_default_retention_that_is_too_short_is_extended_in_a_new_topic(default_ms, configs):
    described = {} if default_ms is None else {"retention.ms": {"value": default_ms}}
    answer = {"topics": [{"name": "t", "configs": described}]}
    requests = {"t": {"configs": {}}}
    _extend_retention(SimpleNamespace(create_topics=lambda *_, **__: answer), requests, {"t": DAY_MS})
    assert requests == {"t": {"configs": configs}}


def test_a_listener_with_a_login_needs_a_file_of_the_administrators():
    options = replace(OPTIONS, security_protocol="SASL_SSL", sasl_password="canary")
    command = alter_topic_command(options, "t", {"cleanup.policy": "delete"})
    assert "--command-config admin.properties" in command
    assert "canary" not in command
    assert shlex.split(command)[-1] == "cleanup.policy=delete"


def test_several_problems_are_reported_and_settings_that_cannot_be_read():
    found = judged(
        {"cleanup_policy": "compact,delete", "max_message_bytes": "9", "retention_ms": "5"},
        message_bytes=10, compaction_loss="drops alerts", kept_ms=DAY_MS,
    )  # fmt: skip
    assert [(one.check, one.level) for one in found] == [
        ("topic_size", Level.FAILED),
        ("topic_cleanup", Level.FAILED),
        ("topic_retention", Level.WARNING),
    ]
    (unknown,) = judge_topic(OPTIONS, TopicNeed(name="t", operations=("READ",)), 4, {})
    assert unknown.level is Level.WARNING
    assert "DESCRIBE_CONFIGS on topic t" in unknown.text
