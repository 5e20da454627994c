"""The batch ahead: when it is read, the order of effects, failures, threads and memory.

One daemon, one partition, batches of two records.
"""

import gc
import logging
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from types import SimpleNamespace

import numpy as np
import pytest
import structlog

from streamdedup.daemon import batch as stages
from streamdedup.daemon import read_ahead
from streamdedup.daemon.read_ahead import ReadAhead
from streamdedup.daemon.slow_start import SlowStart
from streamdedup.detection.detector import Detector
from streamdedup.errors import (
    BatchRefused,
    BrokerUnavailable,
    IndexLost,
    RegistryUnavailable,
    StoreUnavailable,
)
from streamdedup.index.values import Fence
from streamdedup.kafka.batch_limits import HEADER_BYTES, content_bytes
from streamdedup.kafka.protocols import Batch, Record, SourceStats
from streamdedup.position import Partition, Position
from streamdedup.wire import Decoder
from tests.turns import GROUP, INPUT, WORDS, Act, Daemon, Moment, Sent, World, once, raising, rebalanced

PARTITION = Partition(INPUT, 0)


@pytest.fixture(autouse=True, scope="module")
def _no_log() -> Iterator[None]:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.reset_defaults()


@pytest.fixture(autouse=True)
def _thread_names(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Name the threads after the test: daemons of other tests may have left a batch ahead."""
    monkeypatch.setattr(read_ahead, "THREAD_NAME", request.node.name)


def documents(count: int) -> list[Sent]:
    """Return documents of which each resembles the one before it."""
    return [Sent(f"d{at}", " ".join(WORDS[at % 3 : at % 3 + 8])) for at in range(count)]


def backlog(count: int = 12, **options) -> tuple[World, Daemon]:
    """Return a world with a backlog, and a daemon that has committed 0 and 1 and reads ahead from the next turn on."""
    options = {"partitions": 1, "batch_size": 2, "grown": False} | options
    world = World(documents(count), **options)
    (daemon,) = world.daemons
    daemon.loop._slow_start.grow(0)
    world.turn(daemon)
    return world, daemon


def ahead_of(daemon: Daemon) -> list[int]:
    """Return the offsets of the batch ahead."""
    batch = daemon.loop._read_ahead.batch_ahead()
    return [] if batch is None else [position.offset for position in batch.positions()]


def offsets_of(world: World) -> dict[int, int]:
    return {partition.partition: offset for partition, offset in world.broker.offsets_of(GROUP).items()}


def run(world: World, daemon: Daemon) -> None:
    world.active.append(daemon)
    try:
        daemon.loop.run()
    finally:
        world.active.pop()


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith(read_ahead.THREAD_NAME)]


def fail_poll(error: Exception) -> Act:
    def act(world: World, _moment: Moment) -> None:
        world.broker.poll_failures = [error]

    return act


# A source and a stage without a loop


def source_of(batch: Batch) -> SimpleNamespace:
    """Return a source with a backlog, all polls of which return this batch."""
    stats = SourceStats(0, {PARTITION: 1_000})
    return SimpleNamespace(
        stats=lambda: stats,
        generation=lambda: 0,
        poll=lambda _timeout_s, _max_records: batch,
        poll_ahead=lambda _max_records: batch,
    )


class Places(list):
    """Positions that can be referred to weakly."""


@dataclass
class Seen:
    """Calls of a ``ReadAhead``: the threads of documents by their offsets, and of ticks; the measured stages."""

    threads_of: dict[int, int] = field(default_factory=dict)
    ticks: list[int] = field(default_factory=list)
    stages: list[str] = field(default_factory=list)

    def prepare(self, documents):
        places = Places(document.position for document in documents)
        self.threads_of.update((place.offset, threading.get_ident()) for place in places)
        return places

    def timed(self, stage: str) -> nullcontext[None]:
        self.stages.append(stage)
        return nullcontext()

    def tick(self) -> None:
        self.ticks.append(threading.get_ident())


class Offsets(Decoder):
    """A decoder whose documents are named by the offset, whatever the record is."""

    def decode(self, position: Position, *_record: object) -> SimpleNamespace:
        fields = {"id": str(position.offset), "text": "ten letters", "time_ms": 1, "op": "upsert", "left_out": ()}
        return SimpleNamespace(position=position, **fields)


def an_ahead() -> tuple[ReadAhead, Seen]:
    """Return a stage that may read ahead, and holds the fence of ``PARTITION``."""
    seen, fences = Seen(), {PARTITION: Fence(PARTITION, 0, 0)}
    pipeline = SimpleNamespace(name="p", decoder=Offsets(), detector=seen)
    processor = stages.BatchProcessor({INPUT: pipeline}, seen.timed, seen.tick)
    slow_start = SlowStart(8)
    while not slow_start.may_read_ahead:
        slow_start.grow(0)
    return ReadAhead(processor, slow_start, lambda _partitions, _generation: fences, seen.timed), seen


def read_on(ahead: ReadAhead, source: SimpleNamespace, batch: Batch) -> None:
    """Read ahead where there is a backlog, as the loop does."""
    if ahead.may_read_ahead(source, batch):
        ahead.poll_ahead(source)
        ahead.prepare_ahead()


def prepared_chunks(ahead: ReadAhead, batch: Batch) -> Iterator[list[Position]]:
    """Take the chunks out of a batch, as the index does."""
    for chunk in ahead._processor._prepared_chunks(*ahead.take_prepared(batch)):
        yield chunk.prepared


def a_batch(*positions: Position) -> Batch:
    return Batch(tuple(Record(position, 1, None, b"") for position in positions))


#: A batch that fills the limit of ``an_ahead``.
FULL = a_batch(*(Position(INPUT, 0, offset) for offset in range(8)))


# When


def test_in_a_backlog_the_next_batch_is_polled_while_a_batch_is_at_work():
    world, daemon = backlog()
    assert (offsets_of(world), ahead_of(daemon)) == ({0: 2}, [])  # the first batch of a partition goes alone
    world.turn(daemon)
    assert (offsets_of(world), ahead_of(daemon)) == ({0: 4}, [4, 5])
    world.turn(daemon)
    assert (offsets_of(world), ahead_of(daemon)) == ({0: 6}, [6, 7])
    world.run()
    assert daemon.metric("batch_seconds_count", stage="ahead") == 4


def test_effects_keep_their_order():
    world, daemon = backlog()
    world.trace.clear()
    world.turn(daemon)
    world.turn(daemon)
    of_batch = ["poll_ahead", "insert_entries", "publish", "finish"]
    effects = [moment.effect for moment in world.trace]
    assert [effect for effect in effects if effect in {"poll", *of_batch}] == ["poll", *of_batch, *of_batch]


def test_without_a_full_batch_behind_it_a_batch_is_worked_on_alone():
    world, daemon = backlog(5)
    world.turn(daemon)
    assert (offsets_of(world), ahead_of(daemon)) == ({0: 4}, [])
    world.run()
    assert "poll_ahead" not in {moment.effect for moment in world.trace}
    assert daemon.metric("batch_seconds_count", stage="ahead") == 0


def test_behind_a_batch_that_is_not_full_nothing_is_polled_in_any_backlog():
    ahead, seen = an_ahead()
    small = a_batch(*(Position(INPUT, 0, offset) for offset in range(7)))
    read_on(ahead, source_of(small), small)
    large = Batch((*small.records, Record(Position(INPUT, 0, 7), 1, None, b"")))
    few = Batch((Record(Position(INPUT, 0, 0), 1, None, bytes(read_ahead.FULL_BYTES)),))
    assert seen.stages == []
    for count, full in enumerate((large, few), 1):
        read_on(ahead, source_of(Batch()), full)
        assert seen.stages == ["poll"] * count


def of_bytes(count):
    """Return a full batch whose values have ``count`` bytes together."""
    values = [bytes(count), b"", *[None] * 6]
    return Batch(tuple(Record(Position(INPUT, 0, at), 1, b"k", value) for at, value in enumerate(values)))


def test_beside_a_batch_of_large_records_nothing_is_polled_ahead(monkeypatch):
    monkeypatch.setattr(read_ahead, "MAX_BYTES", 100)
    ahead, seen = an_ahead()
    read_on(ahead, source_of(FULL), of_bytes(101))
    assert seen.stages == []
    read_on(ahead, source_of(Batch()), of_bytes(100))
    assert seen.stages == ["poll"]


def test_headers_count_as_bytes_of_a_record():
    record = Record(Position(INPUT, 0, 0), 0, None, b"12345", headers=(("h", b""),) * 3)
    assert content_bytes([record]) == 5 + 3 * HEADER_BYTES


def test_a_batch_ahead_of_large_records_is_prepared_when_memory_holds_it_alone(monkeypatch):
    monkeypatch.setattr(read_ahead, "MAX_BYTES", 100)
    for count, stages_of in ((101, ["poll"]), (100, ["ahead", "poll", "prepare"])):
        ahead, seen = an_ahead()
        polled = of_bytes(count)
        read_on(ahead, source_of(polled), FULL)
        assert ahead.poll(source_of(Batch()), 0.0) is polled
        ahead.take_prepared(polled)
        assert sorted(seen.stages) == stages_of


@pytest.mark.parametrize(
    ("effect", "act"),
    [
        ("insert_and_look_up", raising(StoreUnavailable("made to fail"))),
        ("insert_entries", raising(BatchRefused("made to fail"))),
        ("announce", raising(IndexLost("made to fail"))),
        ("poll_ahead", rebalanced),
        ("publish", raising(BrokerUnavailable("made to fail"))),
    ],
)
def test_a_failure_of_a_batch_undoes_both_and_forgets_the_fences(effect, act):
    """Of a rebalance that the poll ahead joins the loop knows before it writes anything."""
    world, daemon = backlog(on_index_lost="continue")
    world.turn(daemon)
    world.trace.clear()
    world.plan = once(effect, act)
    world.turn(daemon)
    assert (offsets_of(world), ahead_of(daemon), daemon.loop._ownership._fences) == ({0: 4}, [], {})
    assert act is not rebalanced or {moment.effect for moment in world.trace}.isdisjoint({"insert_entries", "publish"})
    world.run()
    assert world.total("records_total") == 12


@pytest.mark.parametrize("is_undone", [False, True])
def test_an_error_of_the_poll_ahead_opens_new_clients_after_the_batch_at_work(is_undone):
    """Also when that batch is undone: the poll may have taken records of another partition before it failed."""
    world, daemon = backlog()
    source, failures = daemon.source, {"poll_ahead": BrokerUnavailable("made to fail")}
    if is_undone:
        failures["insert_entries"] = StoreUnavailable("made to fail")

    def fail(_world: World, moment: Moment) -> None:
        if error := failures.pop(moment.effect, None):
            raise error

    world.plan = lambda _number: fail
    world.turn(daemon)
    assert (offsets_of(world), daemon.source) == ({0: 2 if is_undone else 4}, source)
    world.run()
    assert daemon.source is not source


def test_an_error_of_the_poll_ahead_goes_with_the_clients_that_the_batch_at_work_has_lost():
    world, _ = backlog()
    failures = dict.fromkeys(("poll_ahead", "publish"), BrokerUnavailable("made to fail"))

    def fail(_world: World, moment: Moment) -> None:
        if error := failures.pop(moment.effect, None):
            raise error

    world.plan = lambda _number: fail
    world.run()
    assert world.total("rebuilds_total") == 1


def test_dead_letters_of_both_batches_count_for_the_breaker_before_anything_of_the_second_is_published():
    records = [*documents(4), *(Sent("x", "", 0, "not_json") for _ in range(6)), *documents(4)]
    world = World(records, partitions=1, batch_size=2, dead_letter_limit=3)
    (daemon,) = world.daemons
    for _ in range(6):
        world.turn(daemon)
    assert daemon.loop.readiness.halted is not None
    assert (offsets_of(world), daemon.source._positions[PARTITION]) == ({0: 6}, 6)
    assert len(world.dead_letters()) == 2
    assert (ahead_of(daemon), daemon.loop._read_ahead._computation) == ([], None)


# Errors of the batch ahead


def preparing(act: Callable[[list[str]], None]) -> type[Detector]:
    """Return a detector that does something when it prepares documents of these ids."""

    class Acting(Detector):
        def prepare(self, documents):
            act([document.id for document in documents])
            return super().prepare(documents)

    return Acting


def fails_at_d5(error: Exception) -> Callable[[list[str]], None]:
    def act(ids: list[str]) -> None:
        if "d5" in ids:
            raise error

    return act


def test_an_error_while_the_batch_ahead_is_prepared_is_raised_when_the_batch_before_it_is_committed():
    world, daemon = backlog(make_detector=preparing(fails_at_d5(MemoryError("d5"))))
    world.turn(daemon)
    assert (offsets_of(world), ahead_of(daemon)) == ({0: 4}, [4, 5])
    with pytest.raises(MemoryError, match="d5"):
        world.turn(daemon)
    assert offsets_of(world) == {0: 4}


def test_a_record_that_does_not_fit_into_memory_beside_another_batch_is_decoded_alone(monkeypatch):
    decode, threads = Decoder.decode, []

    def fails_ahead(decoder, position, *rest):
        if position.offset == 5:
            threads.append(threading.current_thread())
            if threads[-1] is not threading.main_thread():
                raise MemoryError
        return decode(decoder, position, *rest)

    monkeypatch.setattr(Decoder, "decode", fails_ahead)
    world, daemon = backlog(batch_size=1)
    for _ in range(12):
        world.turn(daemon)
    assert offsets_of(world) == {0: 12}
    assert world.dead_letters() == []
    assert len(threads) == 2


def test_a_document_that_cannot_be_prepared_ahead_is_one_dead_letter():
    world, daemon = backlog(make_detector=preparing(fails_at_d5(ValueError("made to fail"))))
    for _ in range(6):
        world.turn(daemon)
    assert offsets_of(world) == {0: 12}
    assert world.dead_letters() == [("0", 5, "internal")]


def test_an_error_while_the_batch_ahead_is_prepared_goes_with_the_clients_that_polled_the_batch(monkeypatch):
    ahead, _ = an_ahead()
    decode = ahead._processor.decode

    def fails_ahead(batch, *, is_ahead=False):
        if is_ahead:
            raise RegistryUnavailable("made to fail")
        return decode(batch)

    monkeypatch.setattr(ahead._processor, "decode", fails_ahead)
    read_on(ahead, source_of(FULL), FULL)
    ahead.close()
    decoded, _ = ahead.take_prepared(FULL)
    assert decoded.batch is FULL


# Stopping


def test_a_stop_ends_behind_the_batch_at_work_and_leaves_no_thread():
    world, daemon = backlog()

    def asked_to_stop(_world: World, moment: Moment) -> None:
        moment.daemon.stop.stopping = True

    world.plan = once("publish", asked_to_stop)
    run(world, daemon)
    assert offsets_of(world) == {0: 4}
    assert (ahead_of(daemon), threads()) == ([], [])
    world.plan = lambda _number: None
    world.daemons.clear()
    world.start("b")
    world.run()


# Threads


class OneThread:
    """Forwards calls to an object, and refuses those of a second thread."""

    def __init__(self, inner: object, others: "list[OneThread]") -> None:
        self._inner = inner
        self._thread = threading.get_ident()
        others.append(self)

    def __getattr__(self, name: str) -> object:
        found = getattr(self._inner, name)
        if not callable(found) or name == "encode_entries":  # which computes and sends nothing
            return found

        def call(*arguments: object, **named: object) -> object:
            assert threading.get_ident() == self._thread, f"{name} is called by a second thread"
            return found(*arguments, **named)

        return call


def test_clients_and_index_are_used_by_the_thread_of_the_loop_alone():
    watched: list[OneThread] = []
    preparing_threads = set()

    def make_detector(options, store):
        detector = preparing(lambda _ids: preparing_threads.add(threading.get_ident()))
        return detector(options, OneThread(store, watched))

    world = World(documents(30), partitions=1, batch_size=2, make_detector=make_detector, joined=False)
    (daemon,) = world.daemons
    opened = daemon.open
    daemon.loop._clients._transport = SimpleNamespace(
        open=lambda: tuple(OneThread(client, watched) for client in opened())
    )
    world.run()
    assert len(watched) > 2
    assert preparing_threads - {threading.get_ident()}


def test_no_batch_is_prepared_twice_also_in_a_topic_that_was_created_again():
    prepared: list[str] = []
    world = World(documents(4), partitions=1, batch_size=2, make_detector=preparing(prepared.extend)).run()
    world.recreate(*documents(12))
    prepared.clear()
    world.run()
    assert sorted(prepared) == sorted(sent.id for sent in documents(12))
    assert any(daemon.metric("batch_seconds_count", stage="ahead") for daemon in world.everyone)


# Memory


def test_the_preparation_of_a_chunk_that_was_indexed_is_not_kept(monkeypatch):
    monkeypatch.setattr(stages, "CHUNK_DOCUMENTS", 2)
    ahead, _ = an_ahead()
    read_on(ahead, source_of(FULL), FULL)
    ahead.poll(source_of(FULL), 0.0)
    chunks, kept_counts = [], []
    for places in prepared_chunks(ahead, FULL):
        chunks.append(weakref.ref(places))
        del places
        gc.collect()
        kept_counts.append(sum(chunk() is not None for chunk in chunks))
    assert kept_counts == [1] * 4


def test_a_discarded_batch_is_prepared_no_further(monkeypatch):
    monkeypatch.setattr(stages, "CHUNK_DOCUMENTS", 1)
    ahead, seen = an_ahead()
    begun, go_on = threading.Event(), threading.Event()

    def prepare(documents):
        begun.set()
        assert go_on.wait(60)
        seen.threads_of.update(dict.fromkeys([document.position.offset for document in documents], 0))

    seen.prepare = prepare
    read_on(ahead, source_of(FULL), FULL)
    assert begun.wait(60)
    waiting = threading.Thread(target=ahead.discard)
    waiting.start()
    assert ahead._is_discarded.wait(60)
    go_on.set()
    waiting.join(60)
    assert not waiting.is_alive()
    assert list(seen.threads_of) == [0]
    read_on(ahead, source_of(FULL), FULL)
    assert not ahead._is_discarded.is_set(), "the next batch would be prepared no further, either"
    ahead.close()


def test_a_batch_that_does_not_fit_in_memory_beside_another_is_prepared_alone():
    batch = a_batch(Position(INPUT, 0, 0))
    ahead, seen = an_ahead()
    original, left = seen.prepare, []

    def prepare(documents):
        if threading.current_thread().name.startswith(read_ahead.THREAD_NAME):
            made = np.zeros(1)
            left.append(weakref.ref(made))
            raise MemoryError
        ahead._thread.submit(int).result()  # the thread has left the first attempt
        assert [made() for made in left] == [None]  # nothing of the first attempt is in memory
        return original(documents)

    seen.prepare = prepare
    read_on(ahead, source_of(batch), FULL)
    ahead.poll(source_of(batch), 0.0)
    gc.disable()
    try:
        assert list(prepared_chunks(ahead, batch)) == [[Position(INPUT, 0, 0)]]
    finally:
        gc.enable()


def test_without_another_thread_the_loop_prepares_the_batch(monkeypatch):
    def start(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    first, second = (a_batch(Position(INPUT, 0, offset)) for offset in (0, 1))
    ahead, seen = an_ahead()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        read_on(ahead, source_of(first), FULL)
    assert ahead.poll(source_of(first), 0.0) is first
    assert list(prepared_chunks(ahead, first)) == [[Position(INPUT, 0, 0)]]
    # With a thread again, the next batch is prepared ahead, and the first one is not prepared a second time.
    read_on(ahead, source_of(second), FULL)
    assert ahead.poll(source_of(second), 0.0) is second
    assert list(prepared_chunks(ahead, second)) == [[Position(INPUT, 0, 1)]]
    here = threading.get_ident()
    assert [thread == here for thread in seen.threads_of.values()] == [True, False]
    ahead.close()
    assert threads() == []


def test_a_batch_of_a_partition_without_a_fence_is_polled_ahead_and_prepared_afterwards():
    polled = a_batch(Position(INPUT, 0, 7), Position(INPUT, 1, 0))
    ahead, seen = an_ahead()
    read_on(ahead, source_of(polled), FULL)
    assert ahead.poll(source_of(polled), 0.0) is polled
    assert threads() == []
    batch = polled.in_incarnations({PARTITION: 0, Partition(INPUT, 1): 3})
    (chunk,) = prepared_chunks(ahead, batch)
    assert chunk == [Position(INPUT, 0, 7), Position(INPUT, 1, 0, 3)]
    assert set(seen.threads_of.values()) == {threading.get_ident()}
    assert seen.stages == ["poll", "prepare"]


def test_a_batch_ahead_is_prepared_again_in_another_incarnation_of_the_topic():
    ahead, _ = an_ahead()
    read_on(ahead, source_of(FULL), FULL)
    assert ahead.poll(source_of(FULL), 0.0) is FULL
    (chunk,) = prepared_chunks(ahead, FULL.in_incarnations({PARTITION: 3}))
    assert {position.incarnation for position in chunk} == {3}


def test_of_a_batch_ahead_only_so_much_text_is_prepared_ahead(monkeypatch):
    monkeypatch.setattr(read_ahead, "MAX_CHARACTERS", 44)
    monkeypatch.setattr(read_ahead, "CHUNK_CHARACTERS", 22)
    monkeypatch.setattr(stages, "CHUNK_DOCUMENTS", 2)
    ahead, seen = an_ahead()
    read_on(ahead, source_of(FULL), FULL)
    assert ahead.poll(source_of(FULL), 0.0) is FULL
    chunks = prepared_chunks(ahead, FULL)
    first = next(chunks)
    assert sorted(seen.threads_of) == [0, 1, 2, 3]
    assert [first, *chunks] == [[Position(INPUT, 0, offset + more) for more in (0, 1)] for offset in range(0, 8, 2)]
    here = threading.get_ident()
    assert [offset for offset, thread in sorted(seen.threads_of.items()) if thread == here] == [4, 5, 6, 7]
    # The watchdog hears of each record that is decoded and of each chunk, from the thread that computes it.
    assert [thread == here for thread in seen.ticks] == [False] * 8 + [False, False, True, True]
    assert sorted(seen.stages) == ["ahead", "poll", *["prepare"] * 5]  # the wait for the thread, and each chunk
