"""How long an index keeps what it is told, checked from below: nothing goes before its time.

``check_lifetimes`` is one function for the index as it is, which must pass, and for each of ``VARIANTS``, an index that
is broken on purpose and must not. Time passes by the servers' own times to live, which are shortened, so that no test
waits for a lifetime.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
import pytest
import redis

from streamdedup import indexes
from streamdedup.detection import lifecycle
from streamdedup.detection.detector import Detector
from streamdedup.detection.model import document_number
from streamdedup.index.contract import Index
from streamdedup.index.documents import IndexEntry, PendingMatches
from streamdedup.index.redis import backend, scripts
from streamdedup.index.redis import entries as entries_module
from streamdedup.index.redis import pairs as pairs_module
from streamdedup.index.redis.entries import RedisEntries
from streamdedup.index.redis.store import RedisIndex
from streamdedup.index.values import Fence
from streamdedup.position import Partition, Position
from streamdedup.settings import Settings
from streamdedup.wire import Document
from tests import streams
from tests.entries import content_of, pending_of

RETENTION_MS, SLACK_MS = 3_600_000, 1_800_000
#: For how long everything is kept that is written once.
LIFETIME_MS = RETENTION_MS + SLACK_MS
PARTITION = Partition("articles", 0)
PAIR = b"pair of versions"
FIRST, SECOND = (Position(*PARTITION, offset) for offset in (1, 2))
BANDS = 8
TEXT = "amber birch cedar delta ember fjord grove heath"


class TimedIndex(Protocol):
    """An index whose time can pass."""

    def open(self) -> Index:
        """Return a store of it, as another process would open it."""

    def pass_time(self, milliseconds: int) -> None:
        """Let time pass."""


class TimedRedisIndex:
    """An index on a server, made of settings as the daemon makes it.

    Args:
        client: A client of the server.
        servers: The server, as stores know it.
    """

    def __init__(self, client: redis.Redis, servers: Any) -> None:
        self._client = client
        self._servers = servers
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
        """Return a store of the index."""
        store = indexes.redis_backend(self._settings, self._servers).index("articles")
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


def check_lifetimes(index: TimedIndex) -> None:
    """Make sure that nothing goes before its time, however an index is broken otherwise.

    Raises:
        AssertionError: Something does; the text begins with its name.
    """
    _check_entries(index)
    _check_claims(index)
    _check_deletion(index)


def _an_entry(number: int, offset: int, content: bytes = b"a") -> IndexEntry:
    position = Position(*PARTITION, offset)
    return IndexEntry(number, f"doc-{number}", content.ljust(16, b"\0"), position, 1000, number, content_of(content))


def _saved(store: Index, fence: Fence) -> PendingMatches:
    (saved,) = store.save_pending_matches([(FIRST, PendingMatches())], [fence])
    return saved


def _check_entries(index: TimedIndex) -> None:
    """What is written once lives for a lifetime, and a replaced index entry for one from then on."""
    store = index.open()
    fence = store.fence(PARTITION, 1, 0)
    store.insert_entries([_an_entry(1, 1), _an_entry(2, 2)], [fence])
    store.insert_and_look_up([1], np.full((1, BANDS), 7, np.uint32), [fence])
    store.save_pending_matches([(FIRST, pending_of([PAIR]))], [fence])
    index.pass_time(LIFETIME_MS * 6 // 10)
    assert _saved(store, fence) == pending_of([PAIR]), "pending matches: gone too early"
    # Half a lifetime and a lifetime without the slack are over for the first at the second look.
    assert set(store.get_entries([1, 2])) == {1, 2}, "index entries: gone too early"
    store.replace_entries([_an_entry(2, 3, b"b")], [fence])
    index.pass_time(LIFETIME_MS * 3 // 10)
    assert set(store.get_entries([1, 2])) == {1, 2}, "index entries: gone before retention and slack are over"
    assert _saved(store, fence) == pending_of([PAIR]), "pending matches: gone too early"
    hits = store.insert_and_look_up([3], np.full((1, BANDS), 7, np.uint32), [fence])
    assert hits.candidates == [{1: BANDS}], "buckets: members gone too early"
    index.pass_time(LIFETIME_MS * 5 // 10)
    assert set(store.get_entries([1, 2])) == {2}, "replaced index entries: keep the lifetime of the version before"


def _check_claims(index: TimedIndex) -> None:
    """A claim lives for two lifetimes after it was last asked for, whichever store asks."""
    store, other = index.open(), index.open()
    assert store.claim_pairs([(PAIR, FIRST)], [store.fence(PARTITION, 2, 0)]) == [True]
    assert other.claim_pairs([(PAIR, SECOND)], [other.fence(PARTITION, 3, 0)]) == [False], "claims: unknown to others"
    for _ in range(3):
        index.pass_time(LIFETIME_MS * 19 // 10)
        # A store of its own each time: what one process remembers is not what the index knows.
        store = index.open()
        fence = store.fence(PARTITION, 3, 0)
        assert store.claim_pairs([(PAIR, SECOND)], [fence]) == [False], "claims: gone too early"


def _check_deletion(index: TimedIndex) -> None:
    """A deleted document is in no bucket, and its marker outlives its claims."""
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


# Broken on purpose

#: Breaks something for the duration of a test.
Variant = Callable[[pytest.MonkeyPatch], None]


def _entries_live_half(patch: pytest.MonkeyPatch) -> None:
    store_records = RedisEntries._call_with_entries

    def halved(self: Any, script: str, lifetimes: Any, *more: Any) -> Any:
        return store_records(self, script, [b"%d" % (int(each) // 2) for each in lifetimes], *more)

    patch.setattr(RedisEntries, "_call_with_entries", halved)


def _markers_live_as_long_as_claims(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(entries_module, "marker_lifetime", lambda lifetime_ms: 3 * lifetime_ms)


def _claims_live_a_quarter(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(pairs_module, "claim_lifetime", lambda lifetime_ms: lifetime_ms // 2)


def _claims_are_not_extended(patch: pytest.MonkeyPatch) -> None:
    _rewrite(patch, "claim_pairs", "if generation ~= newest then", "if not generation then")


def _pending_matches_live_a_quarter(patch: pytest.MonkeyPatch) -> None:
    _rewrite(patch, "save_pending_matches", "redis.call('PEXPIRE', key, lifetime)",
             "redis.call('PEXPIRE', key, math.floor(lifetime / 4))")  # fmt: skip


def _replaced_entries_keep_their_lifetime(patch: pytest.MonkeyPatch) -> None:
    _rewrite(patch, "replace_entries", "redis.call('SET', key, entry, 'PX', lifetime)",
             "redis.call('SET', key, entry, 'KEEPTTL')")  # fmt: skip


def _lifetimes_without_slack(patch: pytest.MonkeyPatch) -> None:
    class Short(RedisIndex):
        def __init__(self, servers: Any, options: Any, **more: Any) -> None:
            super().__init__(servers, replace(options, lifetime_ms=options.lifetime_ms - SLACK_MS), **more)

    patch.setattr(backend, "RedisIndex", Short)


def _claims_in_process_memory(patch: pytest.MonkeyPatch) -> None:
    def claim_pairs(self: Any, claims: Any, _fences: Any, _met: Any = ()) -> list[bool]:
        owners = self.__dict__.setdefault("_owners", {})
        return [owners.setdefault(pair, position) == position for pair, position in claims]

    patch.setattr(RedisIndex, "claim_pairs", claim_pairs)


def _tombstones_leave_members(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(lifecycle.Lifecycle, "_remove_from_buckets", lambda *_arguments: None)


def _rewrite(patch: pytest.MonkeyPatch, name: str, old: str, new: str) -> None:
    """Change the text of a script."""
    read = scripts._read

    def rewritten(wanted: str) -> bytes:
        text = read(wanted)
        if wanted != name:
            return text
        assert old.encode() in text, f"{name}.lua has no {old!r} any more"
        return text.replace(old.encode(), new.encode())

    patch.setattr(scripts, "_read", rewritten)


#: Every variant, with what ``check_lifetimes`` must say of it.
VARIANTS: dict[str, tuple[Variant, str]] = {
    "index entries live half a lifetime": (_entries_live_half, "index entries: gone too early"),
    "deletion markers live only as long as claims": (_markers_live_as_long_as_claims, "deletion markers: gone before"),
    "claims live a quarter of theirs": (_claims_live_a_quarter, "claims: gone too early"),
    "claims are not extended": (_claims_are_not_extended, "claims: gone too early"),
    "pending matches live a quarter": (_pending_matches_live_a_quarter, "pending matches: gone too early"),
    "a replaced index entry keeps its lifetime": (
        _replaced_entries_keep_their_lifetime,
        "replaced index entries: keep",
    ),
    "a lifetime without retention_slack": (_lifetimes_without_slack, "index entries: gone before retention and slack"),
    "claims are in process memory only": (_claims_in_process_memory, "claims: unknown to others"),
    "a tombstone leaves members of buckets": (_tombstones_leave_members, "buckets: a deleted document"),
}
