"""Claims in Redis: how they are spread over pages, and how pages follow their number and expire.

Time passes by what the catalogue says: its times are moved back, as if the claims had been asked for so much earlier.
"""

import hashlib
import itertools

import pytest

from streamdedup.index.redis.reading import RedisIndexOptions
from streamdedup.index.redis.servers import OneServer
from streamdedup.index.redis.store import RedisIndex
from streamdedup.position import Partition, Position

PARTITION = Partition("articles", 0)
HOUR_MS = 3_600_000
#: A lifetime of claims is two of entries; a generation takes claims for one.
LIFETIME_MS = 2 * HOUR_MS
CATALOGUE = "{claims:test:0}k"
FIRST, SECOND = (Position(*PARTITION, offset) for offset in (1, 2))


def pairs(count: int, first: int = 0) -> list[bytes]:
    return [hashlib.blake2b(b"%d" % number, digest_size=16).digest() for number in range(first, first + count)]


class Lab:
    """An index, with one slot unless there are more bands, and the catalogue of its first slot."""

    def __init__(self, client, lifetime_ms=HOUR_MS, bands=1):
        self.client = client
        options = RedisIndexOptions(namespace="claims:test", bands=bands, lifetime_ms=lifetime_ms)
        self.store = RedisIndex(OneServer(client), options)
        self.store.open({})

    def ask(self, asked, position=FIRST, met=()):
        # Several stores take turns in some tests.
        fences = [self.store.fence(PARTITION, 1, 0)]
        return self.store.claim_pairs([(pair, position) for pair in asked], fences, met)

    def generations(self):
        """Return number, pages, claims, lifetime, begun, ended of each generation."""
        catalogue = self.client.get(CATALOGUE)
        return [tuple(map(int, entry.split())) for entry in catalogue.split(b",")] if catalogue else []

    def pages(self):
        return {key: self.client.hlen(key) for key in self.client.scan_iter(match="{claims:test:*}c*", count=1000)}

    def pass_time(self, milliseconds):
        """Move all times back; a page whose time to live is over goes."""
        moved = [
            [*facts, begun - milliseconds, ended and ended - milliseconds]
            for *facts, begun, ended in self.generations()
        ]
        self.client.set(CATALOGUE, ",".join(" ".join(map(str, entry)) for entry in moved), keepttl=True)
        for key in [*self.pages(), CATALOGUE]:
            time_to_live = self.client.pttl(key)
            if time_to_live > milliseconds:
                self.client.pexpire(key, time_to_live - milliseconds)
            elif time_to_live >= 0:
                self.client.delete(key)


@pytest.fixture
def lab(redis_client):
    return Lab(redis_client)


@pytest.mark.parametrize("slots", [1, 4])
def test_pages_follow_the_number_of_claims_and_stay_lists(redis_client, slots):
    lab, count = Lab(redis_client, bands=slots), 20_000
    assert lab.ask(pairs(count)) == [True] * count
    pages = lab.pages()
    assert count / 40 < len(pages) <= count / 32 + slots
    assert max(pages.values()) < 128
    assert sum(pages.values()) == lab.store.count_claims() == count
    assert {lab.client.object("encoding", key) for key in itertools.islice(pages, 50)} == {b"listpack"}
    assert lab.ask(pairs(count), SECOND) == [False] * count
    assert lab.ask(pairs(count)) == [True] * count
    assert lab.store.count_claims() == count


def test_a_claim_that_is_asked_for_now_and_then_never_expires(lab):
    lab.ask(pairs(100))
    for _ in range(12):
        lab.pass_time(LIFETIME_MS * 9 // 10)
        assert lab.ask(pairs(100), SECOND) == [False] * 100
        assert lab.store.count_claims() == 100
        assert len(lab.generations()) <= 3
    assert lab.ask(pairs(100), FIRST) == [True] * 100


def test_a_claim_that_is_only_met_is_extended_and_none_is_made(lab):
    known, unknown = pairs(2)
    lab.ask([known])
    for _ in range(3):
        lab.pass_time(LIFETIME_MS * 9 // 10)
        assert lab.ask([], SECOND, [known, unknown]) == []
    assert lab.store.count_claims() == 1
    assert lab.ask([known, unknown], SECOND) == [False, True]


@pytest.mark.parametrize(("lifetimes", "is_there"), [(0.99, True), (1.51, False)])
def test_a_claim_lives_for_one_to_one_and_a_half_of_its_lifetimes(lab, lifetimes, is_there):
    lab.ask(pairs(10))
    lab.pass_time(round(lifetimes * LIFETIME_MS))
    assert lab.ask(pairs(10), SECOND) == [not is_there] * 10


def test_claims_at_the_end_of_a_generation_live_as_long(lab):
    lab.ask(pairs(1))
    lab.pass_time(LIFETIME_MS // 2 - 1000)
    lab.ask(pairs(10, 1))
    for _ in range(3):
        # Others come meanwhile, so that generations are begun.
        lab.pass_time(LIFETIME_MS * 33 // 100)
        lab.ask(pairs(1, 100))
    assert lab.ask(pairs(10, 1), SECOND) == [False] * 10


def test_the_catalogue_lives_as_long_as_the_pages(lab):
    for first in (0, 100, 200):
        lab.ask(pairs(100, first))
        assert lab.client.pttl(CATALOGUE) >= max(map(lab.client.pttl, lab.pages()))
        lab.pass_time(LIFETIME_MS * 3 // 10)


def test_nothing_is_left_of_a_stream_that_has_ended(lab):
    lab.ask(pairs(1000))
    lab.pass_time(LIFETIME_MS * 3 // 2 + 1000)
    assert lab.pages() == {}
    assert lab.store.count_claims() == 0


def test_a_clock_that_goes_back_forgets_nothing(lab):
    lab.ask(pairs(10))
    lab.pass_time(-10 * LIFETIME_MS)
    assert lab.ask(pairs(10), SECOND) == [False] * 10
    assert len(lab.generations()) == 2  # the pages of the first one would live for ten times as long
    lab.pass_time(-1000)
    assert lab.ask(pairs(10), SECOND) == [False] * 10
    assert len(lab.generations()) <= 3


def test_a_clock_that_goes_back_a_little_begins_no_generation(lab):
    lab.ask(pairs(10))
    for _ in range(10):
        lab.pass_time(-1000)
        lab.ask(pairs(1, 100))
    assert len(lab.generations()) == 1


def test_a_longer_retention_holds_at_once_and_a_shorter_one_from_the_next_generation(redis_client):
    short, long = Lab(redis_client), Lab(redis_client, 10 * HOUR_MS)
    short.ask(pairs(10))
    assert long.ask(pairs(10), SECOND) == [False] * 10
    for _ in range(5):  # daemons with both settings, during an upgrade
        short.ask(pairs(10, 20))
        long.ask(pairs(10, 40))
    assert [generation[3] for generation in long.generations()] == [LIFETIME_MS, 10 * LIFETIME_MS]
    long.pass_time(9 * LIFETIME_MS)
    assert short.ask(pairs(10), SECOND) == [False] * 10
    assert short.generations()[-1][3] == LIFETIME_MS
    short.pass_time(2 * LIFETIME_MS)
    assert short.ask(pairs(10, 40), SECOND) == [False] * 10


def test_generations_are_bounded(redis_client):
    for hours in range(1, 30):
        Lab(redis_client, hours * HOUR_MS).ask(pairs(1))
    assert len(Lab(redis_client).generations()) <= 8


def test_a_quiet_generation_has_few_pages(lab):
    lab.ask(pairs(5000))
    for _ in range(8):
        lab.pass_time(LIFETIME_MS * 6 // 10)
        lab.ask(pairs(1))
    assert lab.generations()[-1][1] == 1
