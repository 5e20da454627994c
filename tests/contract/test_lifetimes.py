"""Nothing in an index expires before its time; indexes that are broken on purpose are noticed."""

import re

import pytest

from streamdedup.index.expiring import ExpiringDict
from streamdedup.index.memory import MemoryIndex
from streamdedup.index.redis.servers import OneServer
from tests.lifetimes import LIFETIME_MS, VARIANTS, TimedRedisIndex, check_lifetimes


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


def test_nothing_on_a_server_goes_before_its_time(index):
    check_lifetimes(index)


@pytest.mark.parametrize("name", VARIANTS)
def test_what_goes_too_early_is_noticed(index, monkeypatch, name):
    variant, text = VARIANTS[name]
    variant(monkeypatch)
    with pytest.raises(AssertionError, match=re.escape(text)):
        check_lifetimes(index)
