"""What ``streamdedup index status`` says about what it found."""

import contextlib
import json
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from streamdedup.cli import index, index_status
from streamdedup.cli import main as cli
from streamdedup.cli.index_status import _partition_state, has_lost_partition, render_status
from streamdedup.errors import BrokerUnavailable
from streamdedup.index.backend import PartitionFacts
from streamdedup.index.memory import MemoryIndex
from streamdedup.index.redis.inspection import KINDS, OTHER_KIND
from streamdedup.kafka.group_admin import GroupState
from streamdedup.kafka.protocols import CommittedOffset
from streamdedup.position import Partition


def a_profile(**changed):
    return {
        "name": "articles",
        "exists": True,
        "staging": False,
        "half_dropped": False,
        "differences": [],
        "advisories": [],
        "documents": 1_234_567,
        "claims": 98_765,
        "exact_documents": None,
        "missing_topics": [],
        "partitions": [],
        "keys": None,
        **changed,
    }


def a_partition(**changed):
    return {
        "topic": "articles", "partition": 0, "mark": 10, "committed": 10, "end": 460, "lag": 450, "generation": 3,
        "state": None, **changed,
    }  # fmt: skip


def rendered(profile, *, members=(), problem=None, masters=None, mode="single"):
    master = {
        "address": "h:1", "software": "Redis 7.0.15", "used_bytes": 3 * 2**20, "limit_bytes": 2**30,
        "eviction_policy": "noeviction",
    }  # fmt: skip
    found = {
        "store": {"address": "redis://h:1/0", "mode": mode, "masters": masters or [master]},
        "group": {"id": "g", "members": None if problem else list(members), "problem": problem},
        "profiles": [profile],
    }
    return list(render_status(found, "streamdedup topics create --config /etc/a.toml"))


class TestStore:
    def test_memory_is_shown_against_its_limit(self):
        assert "         Redis 7.0.15, 3.0 MiB of 1.0 GiB (0%), maxmemory-policy noeviction" in rendered(a_profile())

    def test_without_a_limit_it_says_so_and_each_master_of_a_cluster_is_named(self):
        masters = [
            {"address": f"h:{at}", "software": "Valkey 9.1.2", "used_bytes": 512, "limit_bytes": None,
             "eviction_policy": "allkeys-lru"}
            for at in (1, 2)
        ]  # fmt: skip
        lines = rendered(a_profile(), masters=masters, mode="cluster")
        assert "         h:2: Valkey 9.1.2, 512 B, no limit, maxmemory-policy allkeys-lru" in lines

    def test_the_members_of_the_group_are_named_or_why_they_are_not_known(self):
        assert "group    g, members: none" in rendered(a_profile())
        assert "group    g, members: 2 (a at /h, b at /h)" in rendered(a_profile(), members=["a at /h", "b at /h"])
        assert "group    g, members: unknown: no answer" in rendered(a_profile(), problem="no answer")


class TestProfile:
    @pytest.mark.parametrize(
        ("changed", "said"),
        [
            ({}, "  index      fits the settings"),
            ({"exists": False}, "  index      none"),
            ({"exists": False, "staging": True}, "  index      being rebuilt or deleted"),
            ({"half_dropped": True, "exists": False}, "  index      half deleted: call streamdedup index drop again"),
            (
                {"half_dropped": True, "exists": False, "partitions": [a_partition(state="lost")]},
                "  index      half deleted: call streamdedup index drop again, or streamdedup index rebuild",
            ),
            ({"differences": ["rows is 4 ..."]}, "             rows is 4 ..."),
            ({"advisories": ["unicode is ..."]}, "             unicode is ..."),
            ({}, "  documents  about 1,234,567"),
            ({}, "  claims     about 98,765"),
            ({"exact_documents": 1_234_500}, "  documents  about 1,234,567, counted 1,234,500"),
            ({}, "  partitions none known"),
            (
                {"partitions": [a_partition()]},
                "  articles:0              10            10           460           450             3",
            ),
            (
                {"partitions": [a_partition(mark=None, end=None, lag=None)]},
                "  articles:0               -            10             -             -             3",
            ),
            ({"keys": {"records": {"count": 12_345, "bytes": 3000}}}, "  records             12,345       2.9 KiB"),
        ],
    )
    def test_a_line_says(self, changed, said):
        assert said in rendered(a_profile(**changed))

    def test_the_table_of_keys_is_aligned_with_its_longest_name(self):
        keys = {kind: {"count": 3, "bytes": 10} for kind in (*KINDS.values(), OTHER_KIND)}
        lines = rendered(a_profile(keys=keys))
        table = lines[next(number for number, line in enumerate(lines) if line.startswith("  keys ")) :]
        assert len(table) == 1 + len(keys)
        assert len({len(line) for line in table}) == 1

    def test_an_index_that_differs_does_not_fit(self):
        lines = rendered(a_profile(differences=["rows is 4 ..."]))
        assert any(line.startswith("  index      does not fit the settings") for line in lines)

    def test_an_unusual_state_is_explained_once_with_its_partitions(self):
        rows = [a_partition(partition=number, state="behind") for number in (0, 1)]
        (line,) = [line for line in rendered(a_profile(partitions=rows)) if "the committed offset is higher" in line]
        assert line.startswith("  articles:0, articles:1: ")

    def test_a_topic_that_does_not_exist_is_named_with_the_command_that_creates_it(self):
        line = "  no such topic: b, c; create with: streamdedup topics create --config /etc/a.toml"
        assert line in rendered(a_profile(missing_topics=["c", "b"]))
        without_kafka = rendered(a_profile(missing_topics=None), problem="no answer")
        assert not any("no such topic" in line for line in without_kafka)

    def test_without_kafka_committed_offsets_are_unknown(self):
        lines = rendered(a_profile(partitions=[a_partition(committed=None)]), problem="no answer")
        assert "  articles:0              10             ?             ?             ?             3" in lines


class TestLag:
    @pytest.mark.parametrize(
        ("offset", "end", "lag"),
        [(10, 460, 450), (10, 10, 0), (10, None, None), (None, 460, None), (10, 4, 0)],
    )
    def test_it_is_the_end_less_the_committed_offset_where_both_are_known(self, offset, end, lag):
        partition, other = Partition("articles", 0), Partition("reviews", 0)
        committed_offsets = {} if offset is None else {partition: CommittedOffset(offset)}
        ends = {} if end is None else {partition: end, other: 7}
        inspector = SimpleNamespace(partitions=lambda _topics, also: dict.fromkeys(also, PartitionFacts(10, 3)))
        rows = list(index_status._partition_rows(["articles"], committed_offsets, inspector, GroupState(ends=ends), {}))
        assert [(row["end"], row["lag"]) for row in rows] == ([(end, lag)] if offset is not None else [])


INSPECTOR = SimpleNamespace(
    fingerprint=lambda: None,
    is_half_dropped=lambda: False,
    is_staging=lambda: False,
    partitions=lambda _topics, _also: {},
)
FACTS = PartitionFacts(high_water_mark=10, generation=1)
#: A store without indexes.
BACKEND = SimpleNamespace(
    address="redis://h:1/0",
    mode="single",
    servers=list,
    inspector=lambda _name: INSPECTOR,
    index=lambda _name: MemoryIndex(),
)


class TestMissingTopics:
    @pytest.fixture
    def missing(self, monkeypatch):
        """Return a function that runs ``index status --json``: the missing topics of each profile by name."""
        keys = {
            "kafka.bootstrap_servers": "h:2",
            "redis.url": "redis://h:1",
            "redis.allow_plaintext": "true",
            "profiles.articles.topics": "b,articles,a",
            "profiles.reviews.topics": "reviews",
        }
        words = [word for key, value in keys.items() for word in ("--set", f"{key}={value}")]
        monkeypatch.setattr(index, "connect_backend", lambda _settings: contextlib.nullcontext(BACKEND))

        def run(code=0):
            result = CliRunner().invoke(cli.app, ["index", "status", "--json", *words])
            assert result.exit_code == code, result.output
            return {profile["name"]: profile["missing_topics"] for profile in json.loads(result.stdout)["profiles"]}

        return run

    def test_each_profile_has_those_of_its_own_topics_in_order(self, missing, monkeypatch):
        group = GroupState(missing_topics=frozenset({"b", "a", "foreign"}))
        monkeypatch.setattr(index_status, "describe_group", lambda _options: group)
        assert missing() == {"articles": ["a", "b"], "reviews": []}

    def test_without_kafka_they_are_unknown_and_the_command_fails(self, missing, monkeypatch):
        def describe_group(_options):
            raise BrokerUnavailable("no answer")

        monkeypatch.setattr(index_status, "describe_group", describe_group)
        assert missing(code=1) == {"articles": None, "reviews": None}


def settings_of(policy: str) -> SimpleNamespace:
    """Settings with a lifetime that is longer than all times."""
    profile = SimpleNamespace(topics=["articles"], retention_s=1e13, retention_slack_s=0)
    return SimpleNamespace(profiles={"articles": profile}, service=SimpleNamespace(on_index_lost=policy))


def attempt_id(number: int, lineage: int = 1) -> str:
    return f"{lineage:013d}.{number:010d}.{number:017d}"


@pytest.mark.parametrize("is_staging", [False, True])  # true while daemons fill a gap of the index
@pytest.mark.parametrize(
    ("announced", "known", "lineage", "bands", "policy", "states"),
    [
        (2, 1, 1, 6, "rebuild", [None, "lost"]), (1, 0, 1, 6, "rebuild", ["lost"] * 2),
        (1, 1, 1, 6, "rebuild", ["lost"] * 2), (1, 1, 2, 6, "rebuild", [None, None]),
        (1, 1, 2, 6, "fail", ["lost"] * 2), (1, 0, 1, 7, "rebuild", [None, "lost"]),
    ],
    ids=["whole", "gone back", "gone back to a rebuild in place", "prepared", "prepared, not filled", "other settings"],
)  # fmt: skip
def test_an_index_that_has_gone_back_or_has_not_seen_a_partition_is_lost(
    announced, known, lineage, bands, policy, states, is_staging
):
    partition, unseen, stored = Partition("articles", 0), Partition("articles", 1), MemoryIndex()
    stored.open({"bands": 6})
    fence, committed_id = stored.fence(partition, 1, 3), attempt_id(known)
    stored.announce(attempt_id(announced, lineage), [fence], {partition: 0}, committed_id=committed_id)
    inspector = SimpleNamespace(
        fingerprint=lambda: {"bands": 6},
        is_half_dropped=lambda: False,
        is_staging=lambda: is_staging,
        partitions=lambda *_: {partition: FACTS},
    )
    backend = SimpleNamespace(
        inspector=lambda _: inspector, index=lambda _: stored, configured_fingerprint=lambda _: {"bands": bands}
    )
    committed_offsets = dict.fromkeys((partition, unseen), CommittedOffset(10, attempt_id(2)))
    group = GroupState(committed_offsets={**committed_offsets, Partition("foreign", 0): 7})
    rows = index_status._profile_status(settings_of(policy), "articles", backend, group, None)["partitions"]
    assert [row["state"] for row in rows] == states


@pytest.mark.parametrize("has_marks", [True, False])
@pytest.mark.parametrize(("is_staging", "state"), [(False, "lost"), (True, None)])
def test_a_half_deleted_index_is_lost_unless_it_is_being_built(is_staging, state, has_marks):
    partition = Partition("articles", 0)
    facts = {partition: FACTS} if has_marks else {}
    changes = {"partitions": lambda *_: facts, "is_staging": lambda: is_staging}
    backend = SimpleNamespace(
        inspector=lambda _: SimpleNamespace(**vars(INSPECTOR) | changes), index=lambda _: MemoryIndex()
    )
    group = GroupState(committed_offsets={partition: CommittedOffset(10)})
    (row,) = index_status._profile_status(settings_of("rebuild"), "articles", backend, group, None)["partitions"]
    assert row["state"] == state


@pytest.mark.parametrize(("state", "lost"), [("lost", True), ("behind", False), ("ahead", False), (None, False)])
def test_an_index_is_lost_when_it_does_not_know_a_partition_with_offsets(state, lost):
    rows = [a_partition(), a_partition(partition=1, state=state)]
    assert has_lost_partition(a_profile(partitions=rows)) is lost


@pytest.mark.parametrize(
    ("mark", "is_running", "state"),
    [(10, False, None), (9, False, "behind"), (11, False, "ahead"), (None, False, "lost"),
     (9, True, None), (11, True, None), (None, True, "lost")],
)  # fmt: skip
def test_a_high_water_mark_is_compared_with_the_committed_offset_unless_daemons_run(mark, is_running, state):
    assert _partition_state(PartitionFacts(mark, 1, "5f2d"), 10, "5f2d", is_running=is_running) == state


def test_an_index_that_has_not_seen_a_partition_is_not_lost_where_an_operator_committed_offset_0():
    assert _partition_state(PartitionFacts(None, None), 0, "", is_running=False) is None


@pytest.mark.parametrize(("noted", "present", "state"), [
    ("5f2d", "9c41", "recreated"), ("5f2d", "5f2d", None), ("", "9c41", None), ("5f2d", "", None),
])  # fmt: skip
@pytest.mark.parametrize("offset", [None, 10])
def test_a_topic_with_another_id_was_created_again_independent_of_committed_offsets(noted, present, state, offset):
    assert _partition_state(PartitionFacts(10, 1, noted), offset, present, is_running=False) == state
