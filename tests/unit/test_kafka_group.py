"""Committed offsets and members of a consumer group, and waiting for the members to leave."""

import sys
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from uuid import UUID

import pytest
from kafka.admin import MemberToRemove
from kafka.errors import CoordinatorNotAvailableError, GroupAuthorizationFailedError, NoError
from kafka.protocol.metadata import MetadataResponse
from kafka.structs import OffsetAndMetadata, TopicPartition

from streamdedup.cli import guards
from streamdedup.cli import index as index_commands
from streamdedup.errors import BrokerMisconfigured, BrokerUnavailable, SettingsError, StreamdedupError
from streamdedup.kafka import admin, compat, consumer, group_admin
from streamdedup.kafka.group_admin import GroupState, _member_text, read_committed_offsets_if_listed
from streamdedup.kafka.offsets import fetch_committed, partitions_of
from streamdedup.kafka.options import KafkaOptions
from streamdedup.kafka.protocols import CommittedOffset
from streamdedup.position import Partition
from streamdedup.settings import Settings
from tests.support.clock import ManualClock

OPTIONS = KafkaOptions(bootstrap_servers="localhost:1", group_id="g", topics=("a", "b"), transactional_id="t")


@pytest.fixture
def client(monkeypatch):
    """The admin client, for which a test replaces the answers that it is about: a group without members and offsets."""
    client = SimpleNamespace(
        list_groups=lambda: [{"group_id": "g"}],
        describe_groups=lambda groups: {group: {"error": None, "members": []} for group in groups},
        list_group_offsets=lambda groups: {group: {} for group in groups},
        describe_topics=lambda _names: [{"name": "a", "error_code": 0, "topic_id": None, "partitions": []}],
        list_partition_offsets=lambda _partitions: {},
        close=lambda **_: None,
    )
    for module in (admin, group_admin):
        monkeypatch.setattr(module, "admin_client", lambda _options: nullcontext(client))
    monkeypatch.setattr(compat, "build", lambda *_: client)
    return client


def a_consumer(partitions: dict[str, set[int]]) -> SimpleNamespace:
    committed_offsets = {TopicPartition("a", 1): OffsetAndMetadata(7, "note", -1)}

    def fetch_committed_offsets(wanted, timeout_ms):
        return {place: mark for place, mark in committed_offsets.items() if place in wanted}

    return SimpleNamespace(
        _cluster=SimpleNamespace(partitions_for_topic=partitions.get),
        _coordinator=SimpleNamespace(fetch_committed_offsets=fetch_committed_offsets),
    )


def test_committed_offsets_are_fetched_for_all_partitions_of_all_topics():
    consumer = a_consumer({"a": {0, 1}, "b": {0}})
    partitions = partitions_of(consumer, OPTIONS.topics)
    assert sorted(partitions) == [Partition("a", 0), Partition("a", 1), Partition("b", 0)]
    expected = {Partition("a", 1): CommittedOffset(7, "note")}
    assert fetch_committed(consumer, OPTIONS, {}, partitions) == (expected, frozenset())


def test_the_progress_of_a_replay_is_read_and_written_in_a_group_of_its_own(client):
    stored: dict[str, dict[TopicPartition, OffsetAndMetadata]] = {}

    def alter_group_offsets(group, offsets):
        stored.setdefault(group, {}).update(offsets)
        return dict.fromkeys(offsets, NoError)

    client.alter_group_offsets = alter_group_offsets
    client.list_group_offsets = lambda asked: {group: stored.get(group, {}) for group in asked}
    progress = {Partition("dlq", 0): CommittedOffset(7, "note")}
    with group_admin.GroupOffsets(OPTIONS, "g.replay") as offsets:
        offsets.write(progress)
        assert offsets.read(progress) == progress
        client.alter_group_offsets = lambda _group, asked: dict.fromkeys(asked, GroupAuthorizationFailedError)
        with pytest.raises(BrokerMisconfigured, match=r"g\.replay"):
            offsets.write(progress)
    assert stored == {"g.replay": {TopicPartition("dlq", 0): OffsetAndMetadata(7, "note", -1)}}


# Partition 2: of an earlier topic of this name.
@pytest.mark.parametrize(("other_partitions", "is_removed"), [([1], False), ([1, 2], False), ([], True)])
def test_a_static_member_is_removed_where_no_member_has_a_partition_of_its_topics(client, other_partitions, is_removed):
    def member(static, partitions):
        assigned = [{"topic": "a", "partitions": partitions}]
        return {
            "client_id": OPTIONS.member_client_id,
            "group_instance_id": static,
            "member_metadata": {"topics": ["a", "b"]},
            "member_assignment": {"assigned_partitions": assigned},
        }

    members, removed = [member("a-0", [0]), member("a-1", other_partitions)], []
    topic = {"name": "a", "error_code": 0, "partitions": [{"partition_index": at, "error_code": 0} for at in (0, 1)]}
    client.describe_groups = lambda groups: {key: {"error": None, "members": members} for key in groups}
    client.describe_topics = lambda _topics: [topic]
    client.remove_group_members = lambda _key, gone: removed.append(gone)
    group_admin.remove_outdated_membership(replace(OPTIONS, group_instance_id="a-0"))
    assert removed == [[MemberToRemove(group_instance_id="a-0")]] * is_removed


def test_offset_0_is_a_committed_offset_and_a_partition_without_one_is_left_out(client):
    offsets = {
        TopicPartition("a", number): OffsetAndMetadata(offset, "", -1) for number, offset in enumerate((0, -1, 5))
    }
    client.list_group_offsets = lambda asked: dict.fromkeys(asked, offsets)
    assert read_committed_offsets_if_listed(OPTIONS) == {
        Partition("a", 0): CommittedOffset(0),
        Partition("a", 2): CommittedOffset(5),
    }


def test_a_list_of_groups_that_is_refused_names_the_group_and_one_that_is_not_ready_is_asked_again(client, monkeypatch):
    answers = iter([CoordinatorNotAvailableError(), [{"group_id": "other"}], GroupAuthorizationFailedError()])

    def list_groups():
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(group_admin, "_RETRY_PAUSE_S", 0)
    client.list_groups = list_groups
    assert read_committed_offsets_if_listed(OPTIONS) == {}
    with pytest.raises(BrokerMisconfigured, match="cannot look up the group g: "):
        read_committed_offsets_if_listed(OPTIONS)


def test_a_broker_before_kafka_2_8_returns_no_topic_ids(client):
    answer = MetadataResponse(topics=[MetadataResponse.MetadataResponseTopic(name="a", partitions=[])], brokers=[])
    topics = MetadataResponse.decode(answer.encode(version=9), version=9).to_dict()["topics"]
    client.list_group_offsets = lambda _asked: {"g": {TopicPartition("a", 0): OffsetAndMetadata(5, "", -1)}}
    client.describe_topics = lambda _names: topics
    assert read_committed_offsets_if_listed(OPTIONS) == {Partition("a", 0): CommittedOffset(5)}
    assert group_admin.read_committed_offsets(OPTIONS) == {Partition("a", 0): CommittedOffset(5)}
    assert group_admin.describe_group(OPTIONS).topic_ids == {}
    assert admin.topic_ids(OPTIONS) == {"a": ""}


def test_ends_are_asked_of_partitions_with_a_leader_which_may_be_broker_0(client):
    partitions = [{"partition_index": number, "leader_id": leader} for number, leader in enumerate((-1, 0, 5))]
    client.describe_topics = lambda _names: [{"name": "a", "error_code": 0, "partitions": partitions}]
    client.list_partition_offsets = lambda asked: {place: SimpleNamespace(offset=9) for place in asked}
    assert group_admin.describe_group(OPTIONS).ends == {Partition("a", 1): 9, Partition("a", 2): 9}


def test_offsets_of_a_topic_that_is_gone_or_of_an_earlier_topic_of_its_name_are_no_offsets_for_a_command(client):
    present, earlier = UUID(int=1), UUID(int=2)
    metadata = {TopicPartition("a", 0): f"note 3 {present}", TopicPartition("a", 1): f"note 3 {earlier}"}
    metadata |= {TopicPartition("a", 2): "by hand", TopicPartition("b", 0): "", TopicPartition("gone", 0): ""}
    offsets = {partition: OffsetAndMetadata(7, text, -1) for partition, text in metadata.items()}
    topics = [{"name": "a", "error_code": 0, "topic_id": present}, {"name": "b", "error_code": 3, "topic_id": None}]
    client.list_group_offsets = lambda asked: dict.fromkeys(asked, offsets)
    client.describe_topics = lambda _names: [{"partitions": [], **topic} for topic in topics]
    expected = {
        Partition("a", 0): CommittedOffset(7, "note", str(present), 3),
        Partition("a", 2): CommittedOffset(7, "by hand"),
    }
    assert (
        group_admin.read_committed_offsets(OPTIONS) == group_admin.describe_group(OPTIONS).committed_offsets == expected
    )
    assert read_committed_offsets_if_listed(OPTIONS) == expected


def test_a_member_is_named_by_its_client_its_static_id_and_its_host():
    dynamic = {"client_id": "streamdedup", "client_host": "/10.0.0.7", "group_instance_id": None}
    assert _member_text(dynamic) == "streamdedup at /10.0.0.7"
    assert _member_text(dynamic | {"group_instance_id": "a-0"}) == "streamdedup, group_instance_id a-0, at /10.0.0.7"
    del dynamic["group_instance_id"]
    assert _member_text(dynamic) == "streamdedup at /10.0.0.7"


@pytest.fixture
def settings():
    profile = {"topics": ["a"]}
    kafka = {"bootstrap_servers": "localhost:1", "group_id": "dedup", "session_timeout": "45s"}
    return Settings.model_validate(
        {"kafka": kafka, "redis": {"url": "redis://localhost:1/0"}, "profiles": {"articles": profile}}
    )


def leaving_at(monkeypatch, time, leaves_s):
    """A group with one member, which is gone from a time on."""

    def describe(_options):
        return GroupState(("streamdedup at /10.0.0.7",) if time() < leaves_s else ())

    monkeypatch.setattr(guards, "describe_group", describe)


def test_an_empty_group_is_not_waited_for(monkeypatch, settings, capsys):
    time = ManualClock()
    leaving_at(monkeypatch, time, 0)
    guards.await_no_members(settings)
    guards.refuse_members(settings)
    assert capsys.readouterr().err == ""


def test_a_member_whose_session_ends_is_waited_for_and_named(monkeypatch, settings, capsys):
    time = ManualClock()
    leaving_at(monkeypatch, time, 130)
    guards.await_no_members(settings, time, time.sleep)
    assert time() == 130
    said = capsys.readouterr().err
    assert "the group dedup has members: streamdedup at /10.0.0.7; waiting at most 60 s" in said


def test_a_member_that_stays_is_refused_after_a_session_and_named(monkeypatch, settings):
    time = ManualClock()
    leaving_at(monkeypatch, time, 1e9)
    with pytest.raises(StreamdedupError, match=r"dedup are running: streamdedup at /10\.0\.0\.7\n.*Waited 60 s"):
        guards.await_no_members(settings, time, time.sleep)
    assert time() == 160


def test_without_waiting_a_member_is_refused_at_once(monkeypatch, settings):
    leaving_at(monkeypatch, ManualClock(), 1e9)
    with pytest.raises(StreamdedupError, match=r"are running: streamdedup at .*\nstop them first"):
        guards.refuse_members(settings)


@pytest.mark.parametrize(("policy", "members"), [("continue", ()), ("rebuild", ("streamdedup at /10.0.0.7",))])
def test_an_index_is_prepared_for_daemons_that_will_rebuild_and_not_for_those_that_use_it(monkeypatch, policy, members):
    monkeypatch.setattr(index_commands, "members_of_index", lambda _options, *, unnamed: members)
    servers = ["kafka.bootstrap_servers=localhost:1", "redis.url=redis://localhost:1", "profiles.articles.topics=a"]
    said = 'must be "rebuild"' if policy == "continue" else "daemons use the indexes of this prefix"
    with pytest.raises(SettingsError, match=said):
        index_commands.prepare(assignments=[*servers, f"service.on_index_lost={policy}"])


def test_a_closed_standard_input_is_no_terminal_to_confirm_in(monkeypatch):
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(SettingsError, match="--yes: required without a terminal, because this deletes the index"):
        guards.require_confirmable("deletes the index", yes=False)
    guards.require_confirmable("deletes the index", yes=True)


class TestMembersByIndex:
    """Which members use the index "next", by their client ids."""

    OPTIONS = replace(OPTIONS, index_name="next")
    SAME = "streamdedup-next"
    OTHERS = ("streamdedup", "streamdedup-next2", "streamdedup-old", "console-consumer", "rdkafka", "")

    @pytest.fixture(autouse=True)
    def group_of(self, client):
        """Set the client ids of the members of the group."""

        def set_members(*client_ids: str, static: str | None = None, topics: tuple[str, ...] | None = None) -> None:
            set_members.removed = []
            member = {"client_host": "/10.0.0.7", "group_instance_id": static, "member_assignment": b""}
            member["member_metadata"] = b"" if topics is None else {"topics": list(topics)}
            members = [member | {"client_id": client_id} for client_id in client_ids]
            client.describe_groups = lambda groups: {key: {"error": None, "members": members} for key in groups}
            client.describe_topics = lambda _topics: []
            client.remove_group_members = lambda key, removed: set_members.removed.append((key, removed))

        return set_members

    @pytest.mark.parametrize("other", OTHERS)
    def test_a_daemon_waits_while_a_member_has_another_index_or_names_none(self, group_of, other):
        group_of(self.SAME, other, self.SAME)
        with pytest.raises(BrokerUnavailable) as raised:
            group_admin.refuse_other_indexes(self.OPTIONS)
        assert f"(streamdedup-next), or their client id names none: {other} at /10.0.0.7. Stop" in str(raised.value)

    def test_a_daemon_joins_members_of_its_index_and_without_a_name_any_members(self, group_of):
        group_of()
        group_admin.refuse_other_indexes(self.OPTIONS)
        group_of(self.SAME, self.SAME, static="a-0")
        group_admin.refuse_other_indexes(self.OPTIONS)
        group_of(*self.OTHERS)
        group_admin.refuse_other_indexes(OPTIONS)
        group_admin.refuse_other_indexes(replace(self.OPTIONS, api_version=(2, 0)))

    @pytest.mark.parametrize(
        ("former", "topics", "is_removed"),
        [
            (SAME, ("b", "a"), False),
            (SAME, None, False),  # the group rebalances
            ("streamdedup-old", None, True),
            (SAME, ("a",), True),
            (SAME, ("a", "b", "c"), True),
        ],
    )
    def test_the_static_member_that_a_daemon_replaces_is_removed_if_it_has_another_index_or_other_topics(
        self, group_of, former, topics, is_removed
    ):
        group_of(former, static="a-0", topics=topics)
        group_admin.remove_outdated_membership(replace(self.OPTIONS, group_instance_id="a-0"))
        assert group_of.removed == [("g", [MemberToRemove(group_instance_id="a-0")])] * is_removed

    @pytest.mark.parametrize(("own", "static"), [("a-0", "a-1"), ("a-0", None), (None, None), (None, "a-0")])
    def test_no_other_member_is_removed(self, group_of, own, static):
        group_of("streamdedup-old", static=static)
        group_admin.remove_outdated_membership(replace(self.OPTIONS, group_instance_id=own))
        assert group_of.removed == []

    @pytest.mark.parametrize("static", [None, "a-0"])
    def test_a_member_that_names_no_index_may_have_this_one_for_a_deletion_only(self, group_of, static):
        group_of(self.SAME, *self.OTHERS, static=static)

        def client_ids(*, unnamed: bool) -> list[str]:
            members = group_admin.members_of_index(self.OPTIONS, unnamed=unnamed)
            return [member.partition(" at ")[0].partition(",")[0] for member in members]

        assert client_ids(unnamed=False) == [self.SAME]
        assert client_ids(unnamed=True) == ["", "console-consumer", "rdkafka", "streamdedup", self.SAME]

    def test_an_index_is_prepared_beside_a_member_that_names_none_and_dropped_beside_members_of_others_only(
        self, group_of, monkeypatch, settings
    ):
        class Reached(Exception):
            """The check of the members has passed."""

        def connect(_settings):
            raise Reached

        monkeypatch.setattr(index_commands, "connect_backend", connect)
        monkeypatch.setattr(index_commands, "load_settings", lambda _config, _assignments: settings)
        group_of("streamdedup")
        with pytest.raises(Reached):
            index_commands.prepare()
        with pytest.raises(StreamdedupError, match="are running: streamdedup at"):
            index_commands.drop(yes=True)
        group_of(f"streamdedup-{settings.redis.key_prefix}")
        with pytest.raises(SettingsError, match="daemons use the indexes of this prefix"):
            index_commands.prepare()
        group_of("streamdedup-other")
        with pytest.raises(Reached):
            index_commands.drop(yes=True)


@pytest.mark.parametrize(("answers", "requests"), [([{"a", "b"}], 1), ([set(), {"a", "b"}], 2), ([{"a"}] * 9, 3)])
def test_a_consumer_joins_once_its_client_knows_the_topics_or_an_answer_lacks_them_again(
    monkeypatch, answers, requests
):
    known, asked = set(), []

    class Answered:
        """An event that comes while it is waited for."""

        def wait(self, _timeout_s):
            known.update(answers[len(asked) - 1])

    def request_update():
        asked.append(True)
        return SimpleNamespace(add_both=lambda _done: None)

    monkeypatch.setattr(consumer, "threading", SimpleNamespace(Event=Answered))
    cluster = SimpleNamespace(partitions_for_topic=lambda topic: {0} if topic in known else None)
    net = SimpleNamespace(cluster=SimpleNamespace(request_update=request_update))
    consumer._await_metadata(SimpleNamespace(_client=net, _cluster=cluster), OPTIONS)
    assert len(asked) == requests


@pytest.mark.parametrize(("kind", "tries"), [(CoordinatorNotAvailableError, 3), (GroupAuthorizationFailedError, 1)])
def test_a_coordinator_that_is_not_ready_is_asked_until_the_time_is_over_and_one_that_refuses_once(
    monkeypatch, kind, tries
):
    clock, asked = ManualClock(), []

    def ask():
        clock.now_s += OPTIONS.connect_timeout_s / 2
        asked.append(kind)
        assert len(asked) < 5
        raise kind

    monkeypatch.setattr(group_admin, "time", SimpleNamespace(monotonic=clock, sleep=lambda _seconds: None))
    with pytest.raises(StreamdedupError):
        group_admin._retrying(OPTIONS, "ask", ask)
    assert len(asked) == tries
