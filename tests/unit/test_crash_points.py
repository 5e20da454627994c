"""Points at which the daemon ends as if killed: which there are, and that they are passed where they say."""

import inspect
import re
from pathlib import Path

import pytest

from streamdedup.cli import assembly
from streamdedup.daemon.crash_points import CRASH_POINTS, INDEX_STEPS, CrashPoint, StepObserver
from streamdedup.errors import IndexLost, SettingsError
from streamdedup.index.contract import Index
from streamdedup.index.memory import MemoryIndex
from streamdedup.index.values import Fence
from streamdedup.position import Partition
from streamdedup.settings import Settings
from streamdedup.settings.sources import CRASH_VARIABLE

#: Methods of a store that take no batch to its commit: they count, look for losses, or serve an operator.
INDEX_NO_STEPS = {
    "ping", "stats", "count_claims", "count_documents", "close", "encode_entries", "unfence", "partition_states",
    "count_connections",
}  # fmt: skip


class Producer:
    """Has every method that a transaction needs."""

    def __init__(self):
        self.calls = []
        self._closed = False

    def __getattr__(self, name):
        return lambda *arguments, **named: self.calls.append((name, arguments, named))


def test_every_call_to_the_store_is_a_step():
    methods = {name for name, _ in inspect.getmembers(Index, inspect.isfunction) if not name.startswith("_")}
    assert set(INDEX_STEPS) | INDEX_NO_STEPS == methods


def test_the_documentation_names_every_step():
    page = (Path(__file__).parents[2] / "docs" / "testing.md").read_text(encoding="utf-8")
    steps = re.findall(r"`(\w+)`", page.partition("| where | steps |")[2].partition("\n\n")[0])
    assert {f"{when}_{step}" for step in steps for when in ("before", "after")} == set(CRASH_POINTS)


def test_every_point_has_a_name_of_its_own():
    assert len(set(CRASH_POINTS)) == len(CRASH_POINTS) == 54


def test_a_watched_store_does_the_same_and_tells_of_its_steps():
    passed = []
    inner = MemoryIndex()
    store = StepObserver(passed.append).wrap_index(inner)
    store.open({"a": 1})
    fence = store.fence(Partition("t", 0), 1, 7)
    assert inner.partition_states([Partition("t", 0)])[Partition("t", 0)].high_water_mark == fence.high_water_mark == 7
    store.ping()
    assert passed == ["before_open", "after_open", "before_fence", "after_fence"]


def test_a_step_that_fails_has_no_end():
    passed = []
    store = StepObserver(passed.append).wrap_index(MemoryIndex())
    with pytest.raises(IndexLost):
        store.insert_entries([], [Fence(Partition("t", 0), 1, 0)])
    assert passed == ["before_insert_entries"]


def test_a_watched_producer_does_the_same_and_takes_attributes():
    passed = []
    inner = Producer()
    producer = StepObserver(passed.append).wrap_producer(inner)
    producer.begin_transaction()
    producer.send("topic", value=b"v")
    producer._closed = True
    producer.close(timeout=0)
    assert inner.calls == [
        ("begin_transaction", (), {}),
        ("send", ("topic",), {"value": b"v"}),
        ("close", (), {"timeout": 0}),
    ]
    assert inner._closed
    assert passed == ["before_begin", "after_begin", "before_send", "after_send"]


@pytest.mark.parametrize(("text", "ends_at"), [("after_send", 1), ("after_send:1", 1), ("after_send:3", 3)])
def test_the_process_ends_at_the_passage_asked_for_and_not_again(text, ends_at):
    ended = []
    point = CrashPoint(text, lambda: ended.append(at))
    for at in range(1, 6):  # noqa: B007  used by the point
        point("before_send")
        point("after_send")
    assert ended == [ends_at]


@pytest.mark.parametrize("text", ["", "send", "after_sendd", "after_send:", "after_send:0", "after_send:-1", "x:1"])
def test_a_point_that_does_not_exist_is_refused_with_all_that_do(text):
    with pytest.raises(SettingsError, match=r"no such crash point.*before_commit, after_commit"):
        CrashPoint(text)


def test_without_the_variable_nothing_is_watched(monkeypatch):
    monkeypatch.delenv(CRASH_VARIABLE, raising=False)
    assert assembly.crash_observer() is None
    monkeypatch.setenv(CRASH_VARIABLE, "")
    assert assembly.crash_observer() is None
    monkeypatch.setenv(CRASH_VARIABLE, "before_commit:2")
    assert assembly.crash_observer() is not None


def test_only_the_environment_asks_for_a_point():
    given = {"kafka.bootstrap_servers": "h:1", "redis.url": "redis://h", "profiles.articles.topics": "t"}
    Settings.load(None, given, {CRASH_VARIABLE: "before_commit"})
    with pytest.raises(SettingsError, match="crash_at"):
        Settings.load(None, {**given, "service.crash_at": "before_commit"}, {})
