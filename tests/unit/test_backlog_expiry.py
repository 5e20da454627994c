"""A backlog: documents too old for all partitions are evicted, and no document that may still match."""

import itertools
import json
import logging
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from types import SimpleNamespace

import pytest
import structlog

from streamdedup.daemon import backlog_expiry
from streamdedup.daemon.batch import Pipeline
from streamdedup.daemon.loop import Loop
from streamdedup.daemon.metrics import Metrics
from streamdedup.daemon.publisher import LoopOptions
from streamdedup.detection.detector import Detector
from streamdedup.index.memory import MemoryIndex
from streamdedup.position import Partition
from streamdedup.testing.memory_transport import MemoryBroker, MemorySource, MemoryTransport
from streamdedup.wire import Decoder
from streamdedup.wire.dead_letters import DaemonInfo
from tests.unit.loop_world import CLOCK, FINGERPRINT, OPTIONS, WORDS, Fate, Sent, World

#: Window and lifetime, in milliseconds; the backlog has ten windows, and all of it is long past.
WINDOW_MS, LIFETIME_MS, SPAN_MS = 1_000, 1_200, 10_000
NOW_MS = 10**9
TEXTS = ("amber birch cedar delta ember fjord", "grove heath inlet jetty knoll lagoon")


@pytest.fixture(autouse=True, scope="module")
def _no_log() -> Iterator[None]:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backlog_expiry, "time", CLOCK)
        yield
    structlog.reset_defaults()


def a_backlog(seed: int, count: int, partitions: int) -> list[Sent]:
    """Documents in the order of their times; each partition may lie far behind another in the order of reading."""
    rng = random.Random(f"backlog {seed}")
    times = sorted(rng.randrange(SPAN_MS) for _ in range(count))
    return [
        Sent(f"d{at}", rng.choice(TEXTS), rng.randrange(partitions), time_ms=time_ms)
        for at, time_ms in enumerate(times)
    ]


def a_world(records: list[Sent], now: Sequence[float] = (float(NOW_MS),), **options: object) -> World:
    return World(
        records,
        make_index=lambda _world: MemoryIndex(lifetime_ms=LIFETIME_MS, now_ms=lambda: now[0]),
        make_detector=lambda of, store: Detector(replace(of, window_ms=WINDOW_MS), store),
        **{"in_order": True, "lifetime_ms": LIFETIME_MS} | options,
    )


def settle(world: World, step_s: float = 2.0) -> None:
    """Let the daemons work, and time pass, until everything is committed and nothing more is evicted."""
    turns = 0
    while turns < 6 or not world.done:
        turns += 1
        for daemon in list(world.daemons):
            CLOCK.now_s += step_s
            world.turn(daemon)


def end(world: World) -> set[str]:
    """Let a much later document come in each partition, after which all before is too old; return their ids."""
    # A batch whose commit is done and not heard of is not counted: the next one is.
    world.plan = lambda _number: None
    for at in range(world.partitions):
        world.produce(Sent(f"end{at}", f"{WORDS[at]} alone", at, time_ms=3 * SPAN_MS))
    settle(world)
    return {f"end{at}" for at in range(world.partitions)}


def pairs_of(world: World) -> Counter[tuple[str, str]]:
    return Counter(tuple(sorted((a[0], b[0]))) for a, b in world.published().elements())


def expected(records: list[Sent]) -> Counter[tuple[str, str]]:
    return Counter(
        tuple(sorted((a.id, b.id)))
        for a, b in itertools.combinations(records, 2)
        if a.text == b.text and abs(a.time_ms - b.time_ms) <= WINDOW_MS
    )


def left(world: World) -> set[str]:
    """Ids of the documents in the index; the buckets have the same members."""
    index = world.index
    buckets = [index._buckets.get(key) or {} for key in index._buckets.all_keys()]
    numbers = set(index._entries.all_keys())
    assert {number for members in buckets for number in members} == numbers
    return {index._entries.get(number).id for number in numbers}


@pytest.mark.parametrize("seed", range(100))
def test_at_any_fault_the_pairs_of_a_backlog_are_alerted_once_and_the_backlog_leaves_nothing(seed):
    rng = random.Random(seed)
    partitions = rng.randint(1, 3)
    records = a_backlog(seed, rng.randint(10, 60), partitions)
    world = a_world(
        records,
        partitions=partitions,
        names="abc"[: rng.randint(1, 3)],
        batch_size=rng.randint(1, 8),
    )
    world.plan = Fate(seed)
    world.run()
    settle(world)
    assert pairs_of(world) == expected(records)
    ends = end(world)
    assert left(world) == ends
    assert not world.index._claims


def test_while_it_is_read_the_index_holds_little_more_than_a_lifetime():
    records = a_backlog(1, 600, 1)
    world = a_world(records, partitions=1, batch_size=10)
    (daemon,) = world.daemons
    sizes, claims = [], []
    while not world.done:
        CLOCK.now_s += 1
        world.turn(daemon)
        sizes.append(len(world.index._entries))
        claims.append(len(world.index._claims))
    pairs = expected(records)
    assert pairs_of(world) == pairs
    # Seventy documents a lifetime, and those of two batches; of claims those of two lifetimes.
    assert max(sizes) < 0.2 * len(records), sizes
    assert max(claims) < 0.35 * len(pairs), claims


def test_a_partition_that_is_not_read_keeps_everything_it_may_be_compared_with():
    slow, fast = Sent("slow", TEXTS[0], 0, time_ms=100), Sent("near", TEXTS[0], 1, time_ms=900)
    later = [Sent(f"far{at}", TEXTS[1], 1, time_ms=5_000 + at) for at in range(20)]
    world = a_world([fast, *later], names="ab")
    # The owner of the first partition is silent, but a member.
    owner = next(daemon for daemon in world.daemons if {p.number for p in daemon.source.assigned()} == {0})
    (other,) = [daemon for daemon in world.daemons if daemon is not owner]
    world.produce(slow)
    for _ in range(30):
        CLOCK.now_s += 2
        world.turn(other)
    assert other.metric("documents_outdated_total") == 0
    for _ in range(10):
        CLOCK.now_s += 2
        world.turn(owner)
    assert pairs_of(world)["near", "slow"] == 1
    assert end(world) == left(world)


@pytest.mark.parametrize("batch_size", [1, 4, 60])
def test_documents_that_come_in_no_order_of_time_live_for_their_whole_time(batch_size):
    """As where the record time is that of a text's writing, and old and new texts come together."""
    rng = random.Random(7)
    records = [Sent(f"d{at}", TEXTS[at % 2], 0, time_ms=rng.randrange(SPAN_MS)) for at in range(60)]
    # First of all one that is new, as of a partition that has long been at work.
    records.insert(0, Sent("new", f"{WORDS[3]} alone", 0, time_ms=SPAN_MS))
    world = a_world(records, partitions=1, batch_size=batch_size)
    settle(world, step_s=0.001)
    assert pairs_of(world) == expected(records)
    assert len(left(world)) == len(records)


def test_the_new_owner_of_a_partition_knows_its_watermark():
    # A backlog, then the present, in which nothing is listed.
    first, new = Sent("first", TEXTS[1], time_ms=0), Sent("new", f"{WORDS[3]} alone", time_ms=NOW_MS)
    world = a_world([first, new], partitions=1, batch_size=1)
    settle(world)
    assert left(world) == {"new"}
    world.daemons[0].leave_group()
    world.restart(world.daemons[0])
    for sent in (Sent("x", TEXTS[0], time_ms=5), Sent("y", TEXTS[0], time_ms=9)):
        world.produce(sent)
        settle(world)
    assert pairs_of(world) == {("x", "y"): 1}


def test_a_batch_of_several_documents_is_in_order_or_nothing_of_it_is_listed():
    records = [Sent(f"d{at}", TEXTS[0], 0, time_ms=time_ms) for at, time_ms in enumerate((0, 100, 900, 600, 1_000))]
    world = a_world(records, partitions=1, batch_size=5)
    settle(world)
    end(world)
    assert len(left(world)) == len(records) + 1


def test_a_partition_without_a_record_stops_evictions_of_others():
    records = a_backlog(4, 30, 1)
    world = a_world(records, partitions=2)
    settle(world)
    assert world.done
    assert len(left(world)) == len(records)


def test_a_stream_that_is_always_late_beside_an_empty_partition_lists_at_most_twice_the_live_documents():
    now = [float(NOW_MS)]
    world = a_world([], now, partitions=2, batch_size=12)
    claims, documents, step_ms = world.index._claims, world.index._entries, LIFETIME_MS // 48
    for number in range(33 * 48):
        now[0] += step_ms
        # Of one text are two in a row: a claim for every second document.
        words = f"{WORDS[number // 2 % 12]} text {number // 2} and {number // 2 * 7919} and {number // 2 * 104729}"
        world.produce(Sent(f"d{number}", words, 0, time_ms=int(now[0]) - LIFETIME_MS // 4))
        if number % 12 == 11:
            CLOCK.now_s += 1
            world.turn(world.daemons[0])
            for listed, alive in ((world.index._documents_listed, documents), (world.index._claims_listed, claims)):
                assert len(alive) / 2 <= len(listed) <= 2 * len(alive)
    assert len(documents) == 48
    # A claim lives for two lifetimes.
    assert len(claims) == 48


def test_a_partition_whose_times_go_back_holds_others_back_for_a_lifetime_and_not_for_ever():
    world = a_world([], partitions=2, batch_size=8)

    def read(first_ms: int, end_ms: int, *partitions: int) -> set[str]:
        """Read a document of each tenth of a second; return all that is in the index then."""
        for time_ms in range(first_ms, end_ms, 100):
            for partition in partitions:
                name = f"{partition}:{time_ms}"
                text = f"{WORDS[time_ms // 100 % 12]} {name} alone"
                position = world.produce(Sent(name, text, partition, time_ms=time_ms))
                world.ends[position.of] = position.offset + 1
        while not world.done:  # an idle poll would let a lifetime pass on the clock
            world.turn(world.daemons[0])
        return left(world)

    def names(partition: int, first_ms: int, end_ms: int) -> set[str]:
        return {f"{partition}:{time_ms}" for time_ms in range(first_ms, end_ms, 100)}

    assert not names(0, 0, 2_000) & read(0, 5_000, 0, 1)
    # One document goes back by three lifetimes; the documents of the other partition stay.
    read(1_300, 1_400, 1)
    assert names(0, 5_000, 8_000) <= read(5_000, 8_000, 0)
    # The second partition comes in order until a lifetime beyond the latest of all: then watermarks move again.
    assert names(0, 5_000, 6_000) <= read(5_000, 6_000, 1)
    remaining = read(8_000, 14_000, 0, 1)
    assert not (names(0, 0, 11_000) | names(1, 9_000, 11_000)) & remaining
    # Documents of the second partition were not listed while it was out of order.
    assert names(1, 5_000, 6_000) <= remaining


def test_archives_that_are_read_as_they_come_are_backlogs_too():
    """Each document is committed before the next one comes, and yet the next one is as old."""
    records = a_backlog(3, 40, 1)
    world = a_world([], partitions=1)
    for sent in records:
        world.produce(sent)
        settle(world)
    assert pairs_of(world) == expected(records)
    assert 0 < len(left(world)) < 20


def test_a_record_without_a_time_is_none_that_others_are_measured_by():
    """It is given the time of its processing."""
    records = [Sent("x", TEXTS[0], time_ms=0), Sent("timeless", TEXTS[1], time_ms=-1), Sent("y", TEXTS[0], time_ms=10)]
    for batch_size in (1, 2, 4):
        world = a_world(records, partitions=1, batch_size=batch_size)
        settle(world)
        assert pairs_of(world) == {("x", "y"): 1}


def test_more_than_one_chunk_of_expired_documents_is_evicted_before_the_next_batch(monkeypatch):
    monkeypatch.setattr(backlog_expiry, "_CHUNK", 7)
    records = a_backlog(5, 400, 1)
    world = a_world(records, partitions=1, batch_size=60)
    sizes = []
    while not world.done:
        CLOCK.now_s += 1
        world.turn(world.daemons[0])
        sizes.append(len(world.index._entries))
    assert max(sizes) < 0.5 * len(records), sizes


def test_a_topic_that_is_not_known_at_the_moment_holds_back_all(monkeypatch):
    monkeypatch.setattr(MemorySource, "partitions", lambda _source: frozenset())
    records = a_backlog(6, 40, 1)
    world = a_world(records, partitions=1)
    settle(world)
    assert len(left(world)) == len(records)


def test_without_the_promise_of_order_nothing_is_listed():
    records = a_backlog(7, 40, 1)
    world = a_world(records, partitions=1, in_order=False)
    settle(world)
    assert len(left(world)) == len(records)
    assert not any(moment.effect in {"list_expiring", "set_watermarks", "expired"} for moment in world.trace)


def test_where_records_are_new_nothing_is_listed():
    world = World(a_backlog(2, 20, 2), make_index=lambda _world: MemoryIndex(lifetime_ms=10**15))
    world.run()
    settle(world)
    assert world.index.watermarks() == {}
    assert not any(moment.effect in {"list_expiring", "set_watermarks", "expired"} for moment in world.trace)


def pass_time(seconds: float) -> None:
    CLOCK.now_s += seconds


def test_of_two_profiles_in_a_batch_each_lists_its_own():
    broker = MemoryBroker({"x": 1, "y": 1, "duplicates": 1, "dlq": 1}, pass_time)
    indexes = {name: MemoryIndex(lifetime_ms=LIFETIME_MS, now_ms=lambda: float(NOW_MS)) for name in ("x", "y")}
    pipelines = {
        name: Pipeline(
            name,
            Decoder(),
            Detector(replace(OPTIONS, profile=name, window_ms=WINDOW_MS), index),
            index,
            FINGERPRINT,
            0.5,
            100,
            in_order=name == "x",
            slack_ms=LIFETIME_MS - WINDOW_MS,
        )
        for name, index in indexes.items()
    }
    loop = Loop(
        transport=MemoryTransport(broker, "group", ["x", "y"], transactional_id="a", max_poll_records=4),
        pipelines=pipelines,
        options=LoopOptions("duplicates", "dlq", 10**6, DaemonInfo("group", "a", "1")),
        metrics=Metrics(),
        stop=SimpleNamespace(stopping=False, wait=pass_time),
    )
    for at, topic in enumerate("xyxy"):
        value = json.dumps({"id": f"d{at}", "text": TEXTS[0]}).encode()
        broker.produce(topic, value, None, partition=0, timestamp_ms=10 * at)
    for _ in range(20):
        loop._turn()
    ends = {Partition(topic, 0): 2 for topic in "xy"}
    assert broker.committed("group") == ends
    assert [bool(index._documents_listed) for index in indexes.values()] == [True, False]
