"""The window of comparison, to the millisecond: through the detector, on either store, in any order of arrival."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamdedup.index.contract import Index
from streamdedup.index.memory import MemoryIndex
from streamdedup.index.redis.reading import RedisIndexOptions
from streamdedup.index.redis.servers import OneServer
from streamdedup.index.redis.store import RedisIndex
from streamdedup.position import Position
from streamdedup.similarity.lsh import Banding
from streamdedup.wire import Document
from tests import streams
from tests.thoroughness import examples

OPTIONS = replace(streams.OPTIONS, banding=Banding(4, 2), permutations=8, threshold=0.8)
TEXT = "amber birch cedar delta ember fjord grove heath"
#: The default retention, 30 days, and a year, in milliseconds.
MONTH_MS, YEAR_MS = 30 * 86_400_000, 365 * 86_400_000
MakeStore = Callable[[], Index]

_namespaces = itertools.count()


@pytest.fixture(params=["memory", "server"])
def make_store(request: pytest.FixtureRequest) -> Iterator[MakeStore]:
    if request.param == "memory":
        yield MemoryIndex
        return
    with OneServer(request.getfixturevalue("redis_client")) as servers:
        yield lambda: RedisIndex(
            servers, RedisIndexOptions(namespace=f"window:{next(_namespaces)}", bands=4, lifetime_ms=60_000)
        )


def arrivals(times_ms: Sequence[int], partitions: Sequence[int]) -> list[Document]:
    """Copies of one text, in this order of arrival."""
    offsets = [itertools.count() for _ in streams.PARTITIONS]
    return [
        Document(f"d{at}", TEXT, Position("articles", partition, next(offsets[partition])), time_ms)
        for at, (time_ms, partition) in enumerate(zip(times_ms, partitions, strict=True))
    ]


def pairs_of(store: Index, window_ms: int, batches: Sequence[Sequence[Document]]) -> list[tuple[str, str]]:
    """Take batches through a detector; return the pairs found."""
    stream = streams.Stream(replace(OPTIONS, window_ms=window_ms), store)
    for batch in batches:
        stream.index(*batch)
    return sorted(stream.pairs.elements())


def pairs_within(window_ms: int, times: Sequence[int]) -> list[tuple[str, str]]:
    near = ((a, b) for a, b in itertools.combinations(range(len(times)), 2) if abs(times[a] - times[b]) <= window_ms)
    return sorted(tuple(sorted((f"d{a}", f"d{b}"))) for a, b in near)


@settings(max_examples=examples(40), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    window_ms=st.sampled_from([1, 1_000, MONTH_MS, YEAR_MS]),
    # Now, long past, and the beginning of time.
    first_ms=st.sampled_from([1_777_618_931_480, 1_000_000_000_000, 0]),
    beyond_ms=st.sampled_from([-1, 0, 1]) | st.integers(-(10**9), 10**9),
    older_first=st.booleans(),
    together=st.booleans(),
    partitions=st.tuples(st.integers(0, 1), st.integers(0, 1)),
)
def test_two_documents_match_while_their_record_times_differ_by_at_most_the_window(
    make_store, window_ms, first_ms, beyond_ms, older_first, together, partitions
):
    apart_ms = max(0, window_ms + beyond_ms)
    times = (first_ms, first_ms + apart_ms)
    documents = arrivals(times if older_first else times[::-1], partitions)
    batches = [documents] if together else [[document] for document in documents]
    assert pairs_of(make_store(), window_ms, batches) == ([("d0", "d1")] if apart_ms <= window_ms else [])


@settings(max_examples=examples(25), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(times=st.lists(st.integers(0, 300), min_size=2, max_size=12), batch_size=st.integers(1, 12), data=st.data())
def test_a_backlog_read_at_once_yields_the_pairs_within_the_window_and_no_others(make_store, times, batch_size, data):
    """Record times as they come from several producers, in no order; windows of 100 ms, three of them."""
    partitions = data.draw(st.lists(st.integers(0, 1), min_size=len(times), max_size=len(times)))
    documents = arrivals(times, partitions)
    batches = [documents[first : first + batch_size] for first in range(0, len(documents), batch_size)]
    assert pairs_of(make_store(), 100, batches) == pairs_within(100, times)


@settings(max_examples=examples(40))
@given(gaps=st.lists(st.integers(0, 150), min_size=1, max_size=15), lags=st.data(), slack_ms=st.integers(1, 60))
def test_as_long_as_nobody_lags_behind_by_more_than_the_slack_nothing_expires_too_early(gaps, lags, slack_ms):
    """Documents arrive at their record time and some lag later, and the store forgets them by its clock."""
    window_ms = 100
    times = list(itertools.accumulate(gaps))
    late = [lags.draw(st.integers(0, slack_ms - 1)) for _ in times]
    clock = {"ms": 0}
    store = MemoryIndex(lifetime_ms=window_ms + slack_ms, now_ms=lambda: clock["ms"])
    stream = streams.Stream(replace(OPTIONS, window_ms=window_ms), store)
    # Each producer may be late, and so they overtake each other.
    arriving = sorted(range(len(times)), key=lambda at: times[at] + late[at])
    for offset, at in enumerate(arriving):
        clock["ms"] = times[at] + late[at]
        stream.index(Document(f"d{at}", TEXT, Position("articles", 0, offset), times[at]))
    assert sorted(stream.pairs) == pairs_within(window_ms, times)
