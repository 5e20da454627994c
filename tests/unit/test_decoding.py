"""Decoding: records become documents of their profile, with a usable time, and documents become chunks."""

import gc
import tracemalloc
from collections import Counter, deque
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
from prometheus_client import generate_latest

from streamdedup import clock
from streamdedup.daemon.batch import BatchProcessor, BatchResult, Chunk, DecodedBatch
from streamdedup.daemon.metrics import Metrics
from streamdedup.daemon.statistics import Statistics
from streamdedup.detection.chunks import split_documents
from streamdedup.detection.model import DetectionResult
from streamdedup.errors import DecodeError, RegistryMisconfigured, RegistryUnavailable
from streamdedup.index.values import Fence
from streamdedup.kafka.protocols import Batch, Record
from streamdedup.position import Partition, Position
from streamdedup.wire import Decoder, Document, ErrorCode
from streamdedup.wire.dead_letters import Stage
from tests.streams import decode_batch

NOW_MS = 1_777_618_931_480


@pytest.fixture(autouse=True)
def _clock(monkeypatch):
    monkeypatch.setattr(clock, "now_ms", lambda: NOW_MS)


def decoded_batch(timestamp_ms):
    record = Record(Position("articles", 0, 7), timestamp_ms, b"a", b'{"text":"one two"}', ())
    return decode_batch(Batch((record,)), {"articles": SimpleNamespace(name="p", decoder=Decoder())})


@pytest.mark.parametrize(
    ("timestamp_ms", "time_ms", "future_count"),
    [
        (NOW_MS, NOW_MS, 0),
        (NOW_MS + 1, NOW_MS, 1),
        (2**62, NOW_MS, 1),
        (0, 0, 0),
        (-1, NOW_MS, 0),
        (-(2**62), NOW_MS, 0),
    ],
)
def test_the_present_replaces_a_time_in_the_future_and_a_missing_time(timestamp_ms, time_ms, future_count):
    decoded = decoded_batch(timestamp_ms)
    ((document,),) = (chunk.documents for chunk in decoded.chunks)
    assert document.time_ms == time_ms
    assert decoded.future_count == future_count


@pytest.mark.parametrize("error", [RegistryUnavailable("made to fail"), RegistryMisconfigured("made to fail")])
def test_an_error_of_a_server_is_no_failure_of_the_record(monkeypatch, error):
    def decode(*_arguments):
        raise error

    monkeypatch.setattr(Decoder, "decode", decode)
    with pytest.raises(type(error)):
        decoded_batch(NOW_MS)


def test_an_unexpected_error_is_a_failure_of_its_record(monkeypatch):
    def decode(*_arguments):
        raise KeyError("made to fail")

    monkeypatch.setattr(Decoder, "decode", decode)
    ((_, failure),) = decoded_batch(NOW_MS).failures
    assert (failure.stage, failure.code) == (Stage.DECODE, ErrorCode.INTERNAL)


@pytest.mark.parametrize(("code", "stage"), [(ErrorCode.TOO_LARGE, Stage.SIZE), (ErrorCode.NOT_JSON, Stage.DECODE)])
def test_a_failure_has_its_stage(monkeypatch, code, stage):
    def decode(*_arguments):
        raise DecodeError(code, "made to fail")

    monkeypatch.setattr(Decoder, "decode", decode)
    ((_, failure),) = decoded_batch(NOW_MS).failures
    assert (failure.stage, failure.code) == (stage, code)


@pytest.mark.parametrize(
    ("timestamp_ms", "count", "sum_s"), [(NOW_MS - 1_500, 1, 1.5), (NOW_MS + 9, 1, 0.0), (-1, 0, 0)]
)
def test_the_latency_of_a_record_without_a_time_is_not_counted(timestamp_ms, count, sum_s):
    metrics = Metrics()
    Statistics(metrics, {}).count_batch(BatchResult(decoded_batch(timestamp_ms), {}, []), [])
    text = generate_latest(metrics.registry).decode()
    assert f'streamdedup_latency_seconds_count{{topic="articles"}} {float(count)}' in text
    assert f'streamdedup_latency_seconds_sum{{topic="articles"}} {float(sum_s)}' in text


@pytest.mark.parametrize(
    ("documents", "chunks"),
    [
        pytest.param([("a", "one"), ("b", "one")], [2], id="two documents"),
        pytest.param([("a", "one"), ("b", "one"), ("a", "two")], [2, 1], id="another version"),
        pytest.param([("a", "one"), ("a", "one")], [2], id="the same version again"),
        pytest.param([("a", "one"), ("a", "one", "upsert", 1)], [1, 1], id="the same version in another partition"),
        pytest.param([("a", "one", "append"), ("a", "one", "append")], [1, 1], id="the same text appended twice"),
        pytest.param([("a", "one"), ("b", "", "delete"), ("a", "", "delete"), ("b", "one")], [1, 2, 1], id="deletions"),
        pytest.param([("a", "12345"), ("b", "67890")], [2], id="as many characters as allowed"),
        pytest.param([("a", "12345"), ("b", "678901"), ("c", "2345")], [1, 2], id="too many characters"),
        pytest.param([("a", ""), ("b", ""), ("c", ""), ("d", "")], [3, 1], id="too many documents"),
    ],
)
def test_documents_are_split_in_chunks_without_two_versions_and_with_deletions_apart(documents, chunks):
    made = []
    for offset, (document_id, text, *rest) in enumerate(documents):
        op, partition = (*rest, *("upsert", 0)[len(rest) :])
        made.append(Document(document_id, text, Position("articles", partition, offset), NOW_MS, op))
    split = list(split_documents(made, size=3, characters=10))
    assert [document for chunk in split for document in chunk] == made
    assert [len(chunk) for chunk in split] == chunks


@pytest.mark.parametrize(
    ("end", "code"), [(b'"}', ErrorCode.TOO_LARGE), (b"", ErrorCode.NOT_JSON), (b"\xff", ErrorCode.NOT_UTF8)]
)
def test_of_a_failed_record_nothing_but_its_value_stays_in_memory(end, code):
    pipelines = {"a": SimpleNamespace(name="p", decoder=Decoder())}

    def failure_of(size):
        value = b'{"text": "' + b"x" * size + end
        (failed,) = decode_batch(Batch((Record(Position("a", 0, 0), 5, b"k", value),)), pipelines).failures
        return failed.failure

    failure_of(4_000_000)
    gc.disable()  # Python searches for reference cycles seldom
    tracemalloc.start()
    try:
        failure = failure_of(4_000_000)
        kept_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        gc.enable()
    assert (failure.code, kept_bytes < 1_000_000) == (code, True)


def processor_of(*detectors):
    """A processor of a topic and a profile for each detector, with the names of the alphabet."""
    pipelines = {n: SimpleNamespace(name=n, detector=detector) for n, detector in zip("ab", detectors, strict=False)}
    return BatchProcessor(pipelines, lambda _stage: nullcontext(), lambda: None)


def test_a_lack_of_memory_for_a_chunk_of_one_document_beside_others_is_no_failure_of_a_record():
    def prepare(documents):
        if documents:
            raise MemoryError

    documents = [Document("a", "one", Position(topic, 0, 0), NOW_MS) for topic in "ab"]
    records = tuple(Record(document.position, NOW_MS, None, b"") for document in documents)
    decoded = DecodedBatch(Batch(records), [Chunk("a", documents[:1])], [], Counter(), 0)
    processor = processor_of(SimpleNamespace(prepare=prepare))
    with pytest.raises(MemoryError):
        processor.index(decoded, deque(), {})


def test_deletions_get_the_fences_of_their_own_partitions_alone():
    seen = []
    detector = SimpleNamespace(delete=lambda _documents, fences: seen.append(dict(fences)) or DetectionResult())
    deletion = Document("a", "", Position("a", 0, 0), NOW_MS, "delete")
    fences = {Partition(topic, 0): Fence(Partition(topic, 0), 1, 0) for topic in "ab"}
    decoded = DecodedBatch(Batch(()), [Chunk("a", [deletion])], [], Counter(), 0)
    processor_of(detector, detector).index(decoded, deque(), fences)
    assert [set(given) for given in seen] == [{Partition("a", 0)}]
