"""Nothing in an index expires before its time.

Time passes by the servers' own times to live, which are shortened, so that no test waits for a lifetime.
"""

import itertools

import numpy as np
import pytest
import redis

from streamdedup import indexes
from streamdedup.detection.detector import Detector
from streamdedup.detection.model import document_number
from streamdedup.index.contract import Index
from streamdedup.index.documents import PendingMatches
from streamdedup.index.expiring import ExpiringDict
from streamdedup.index.memory import MemoryIndex
from streamdedup.index.redis.servers import OneServer
from streamdedup.index.values import Fence
from streamdedup.position import Partition, Position
from streamdedup.settings import Settings
from streamdedup.wire import Document, Op
from tests import streams
from tests.entries import an_entry, pending_of
from tests.streams import Stream

RETENTION_MS, SLACK_MS = 3_600_000, 1_800_000
#: For how long everything is kept that is written once.
LIFETIME_MS = RETENTION_MS + SLACK_MS
PARTITION = Partition("articles", 0)
PAIR = b"pair of versions"
FIRST, SECOND = (Position(*PARTITION, offset) for offset in (1, 2))
BANDS = 8
TEXT = "amber birch cedar delta ember fjord grove heath"


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


class TimedRedisIndex:
    """An index on a server, made of settings as the daemon makes it."""

    def __init__(self, client: redis.Redis) -> None:
        self._client = client
        self._settings = Settings(
            kafka={"bootstrap_servers": "localhost:9092"},
            redis={"url": "redis://localhost:6379/0", "key_prefix": "lifetimes"},
            profiles={
                "articles": {
                    "topics": ["articles"],
                    "retention": f"{RETENTION_MS}ms",
                    "retention_slack": f"{SLACK_MS}ms",
                    "bands": BANDS,
                    "rows": 2,
                }
            },
        )

    def open(self) -> Index:
        """Return a store of the index, as another process would open it."""
        store = indexes.redis_backend(self._settings, OneServer(self._client)).index("articles")
        store.open({})
        return store

    def pass_time(self, milliseconds: int) -> None:
        """Shorten all times to live, and move back the times in the catalogues of claims."""
        for key in self._client.scan_iter(match="{lifetimes:*", count=1000):
            if b"}o" in key:
                continue  # a store that is at work writes the number of its last call anew within minutes
            rest = self._client.pttl(key)
            if 0 <= rest <= milliseconds:
                self._client.delete(key)
            elif rest > 0:
                self._client.pexpire(key, rest - milliseconds)
        for key in self._client.scan_iter(match="{lifetimes:*}k", count=1000):
            moved = []
            for entry in self._client.get(key).split(b","):
                *head, begun, ended = (int(number) for number in entry.split())
                moved.append([*head, begun - milliseconds, ended and ended - milliseconds])
            self._client.set(key, ",".join(" ".join(map(str, entry)) for entry in moved), keepttl=True)


def _saved(store: Index, fence: Fence) -> PendingMatches:
    (saved,) = store.save_pending_matches([(FIRST, PendingMatches())], [fence])
    return saved


@pytest.fixture(params=["memory", "server"])
def index(request):
    return TimedMemoryIndex() if request.param == "memory" else TimedRedisIndex(request.getfixturevalue("redis_client"))


def test_what_is_written_once_lives_for_a_lifetime_and_a_replaced_entry_for_one_from_then_on(index):
    store = index.open()
    fence = store.fence(PARTITION, 1, 0)
    store.insert_entries([an_entry(1, offset=1), an_entry(2, offset=2)], [fence])
    store.insert_and_look_up([1], np.full((1, BANDS), 7, np.uint32), [fence])
    store.save_pending_matches([(FIRST, pending_of([PAIR]))], [fence])
    index.pass_time(LIFETIME_MS * 6 // 10)
    assert _saved(store, fence) == pending_of([PAIR]), "pending matches: gone too early"
    # Half a lifetime and a lifetime without the slack are over for the first at the second look.
    assert set(store.get_entries([1, 2])) == {1, 2}, "index entries: gone too early"
    store.replace_entries([an_entry(2, offset=3, content=b"b")], [fence])
    index.pass_time(LIFETIME_MS * 3 // 10)
    assert set(store.get_entries([1, 2])) == {1, 2}, "index entries: gone before retention and slack are over"
    assert _saved(store, fence) == pending_of([PAIR]), "pending matches: gone too early"
    hits = store.insert_and_look_up([3], np.full((1, BANDS), 7, np.uint32), [fence])
    assert hits.candidates == [{1: BANDS}], "buckets: members gone too early"
    index.pass_time(LIFETIME_MS * 5 // 10)
    assert set(store.get_entries([1, 2])) == {2}, "replaced index entries: keep the lifetime of the version before"


def test_a_claim_lives_for_two_lifetimes_after_it_was_last_asked_for_whichever_store_asks(index):
    store, other = index.open(), index.open()
    assert store.claim_pairs([(PAIR, FIRST)], [store.fence(PARTITION, 2, 0)]) == [True]
    assert other.claim_pairs([(PAIR, SECOND)], [other.fence(PARTITION, 3, 0)]) == [False], "claims: unknown to others"
    for _ in range(3):
        index.pass_time(LIFETIME_MS * 19 // 10)
        # A store of its own each time: what one process remembers is not what the index knows.
        store = index.open()
        fence = store.fence(PARTITION, 3, 0)
        assert store.claim_pairs([(PAIR, SECOND)], [fence]) == [False], "claims: gone too early"


def test_a_deleted_document_is_in_no_bucket_and_its_marker_outlives_its_claims(index):
    store = index.open()
    detector = Detector(streams.OPTIONS, store)
    fences = {PARTITION: store.fence(PARTITION, 4, 0)}
    one, marker, other = (
        Document("one", TEXT, Position(*PARTITION, 10), 1000),
        Document("one", "", Position(*PARTITION, 11), 1001, op="delete"),
        Document("other", TEXT, Position(*PARTITION, 12), 1002),
    )
    detector.index(detector.prepare([one]), fences)
    detector.delete([marker], fences)
    outcome = detector.index(detector.prepare([other]), fences)
    assert outcome.candidates_count == 0, "buckets: a deleted document is still a member"
    # A claim that was asked for a lifetime after the deletion may live for three.
    index.pass_time(LIFETIME_MS * 39 // 10)
    number = document_number(streams.OPTIONS.profile, "one")
    assert set(index.open().get_entries([number])) == {number}, "deletion markers: gone before the claims"


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
