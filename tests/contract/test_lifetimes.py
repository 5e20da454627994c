"""Nothing in an index expires before its time; indexes that are broken on purpose are noticed."""

import itertools
import re

import numpy as np
import pytest

from streamdedup.index.expiring import ExpiringDict
from streamdedup.index.memory import MemoryIndex
from streamdedup.index.redis.servers import OneServer
from streamdedup.position import Partition, Position
from streamdedup.wire import Document, Op
from tests.lifetimes import LIFETIME_MS, VARIANTS, TimedRedisIndex, check_lifetimes
from tests.streams import Stream


class TimedMemoryIndex:
    """An index in memory, of which there is one store."""

    def __init__(self) -> None:
        self._now_ms = 0
        self._store = MemoryIndex(lifetime_ms=LIFETIME_MS, now_ms=lambda: float(self._now_ms))
        self._store.open({})

    def open(self):
        return self._store

    def pass_time(self, milliseconds):
        self._now_ms += milliseconds


@pytest.fixture
def index(redis_client):
    return TimedRedisIndex(redis_client, OneServer(redis_client))


def test_nothing_in_memory_goes_before_its_time():
    check_lifetimes(TimedMemoryIndex())


def test_a_value_in_memory_is_gone_when_its_time_is_over():
    now_ms = 0.0
    values = ExpiringDict(10, lambda: now_ms)
    values.set("a", 1)
    now_ms = 9.9
    assert (len(values), values.get("a")) == (1, 1)
    now_ms = 10.0
    assert (len(values), values.get("a")) == (0, None)


def test_only_expired_values_make_room_in_memory():
    now_ms = 0
    values = ExpiringDict(10, lambda: now_ms)
    values.set("long", 1, lifetime_ms=1_000)
    for now_ms in range(250):
        values.set(now_ms, 1)
        assert len(values) == 1 + min(now_ms + 1, 10)
    assert len(values.all_keys()) < 110


def test_values_in_memory_are_examined_each_time_that_they_have_doubled():
    now_ms = itertools.count()
    values = ExpiringDict(10_000, lambda: next(now_ms))
    for key in range(1_000):
        values.set(key, 1)
    assert next(now_ms) == 1_000 + 4  # at 100, 200, 400 and 800


def test_an_index_in_memory_stays_bounded_on_an_endless_stream():
    now_ms = 0
    store = MemoryIndex(lifetime_ms=1_000, bucket_cap=2, now_ms=lambda: now_ms)
    stream = Stream(store=store)
    offsets = itertools.count()

    def documents(op: Op) -> list[Document]:
        """Return 24 documents: eight texts, each three times."""
        texts = [" ".join(f"w{now_ms}{text}{word}" for word in range(6)) for text in range(8)] * 3
        positions = [Position("articles", 0, next(offsets)) for _ in texts]
        return [
            Document(f"{now_ms} {at}", text, position, now_ms, op)
            for at, (text, position) in enumerate(zip(texts, positions, strict=True))
        ]

    for _ in range(50):
        now_ms += 1_000
        stream.index(*documents("upsert"))
        assert all(len(part) for part in vars(store).values() if isinstance(part, ExpiringDict))
        stream.delete(documents("delete"))
    parts = {name: part for name, part in vars(store).items() if isinstance(part, ExpiringDict | dict)}
    assert max(len(getattr(part, "_entries", part)) for part in parts.values()) < 300, parts.keys()


def test_an_expired_document_counts_for_no_cap_in_memory():
    now_ms = 0
    store = MemoryIndex(lifetime_ms=1_000, bucket_cap=2, now_ms=lambda: now_ms)
    store.open({})
    fence, bucket = store.fence(Partition("articles", 0), 1, 0), np.array([[7], [7]], np.uint32)
    for number in range(10):
        now_ms = 600 * number
        hits = store.insert_and_look_up([number, number], bucket, [fence])
        assert (hits.full, set(hits.candidates[0])) == ({}, {number - 1} - {-1})
    now_ms += 300
    store.insert_and_look_up([8], bucket[:1], [fence])  # lives on
    now_ms += 701
    assert set(store.look_up([99], bucket[:1]).candidates[0]) == {8}


def test_nothing_on_a_server_goes_before_its_time(index):
    check_lifetimes(index)


@pytest.mark.parametrize("name", VARIANTS)
def test_what_goes_too_early_is_noticed(index, monkeypatch, name):
    variant, text = VARIANTS[name]
    variant(monkeypatch)
    with pytest.raises(AssertionError, match=re.escape(text)):
        check_lifetimes(index)
