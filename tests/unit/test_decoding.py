"""Decoding: records become documents of their profile, with a usable time."""

from types import SimpleNamespace

import pytest
from prometheus_client import generate_latest

from streamdedup.daemon import batch as batches
from streamdedup.daemon import statistics
from streamdedup.daemon.batch import BatchResult, decode_batch
from streamdedup.daemon.metrics import Metrics
from streamdedup.daemon.publisher import Publication
from streamdedup.daemon.statistics import Statistics
from streamdedup.kafka.protocols import Batch, Record
from streamdedup.position import Position
from streamdedup.wire import Decoder

NOW_MS = 1_777_618_931_480


@pytest.fixture(autouse=True)
def _clock(monkeypatch):
    for module in (statistics, batches):
        monkeypatch.setattr(module, "now_ms", lambda: NOW_MS)


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
    (document,) = decoded.documents["p"]
    assert document.time_ms == time_ms
    assert decoded.future_count == future_count


@pytest.mark.parametrize(
    ("timestamp_ms", "count", "sum_s"), [(NOW_MS - 1_500, 1, 1.5), (NOW_MS + 9, 1, 0.0), (-1, 0, 0)]
)
def test_the_latency_of_a_record_without_a_time_is_not_counted(timestamp_ms, count, sum_s):
    metrics = Metrics()
    Statistics(metrics, {}).committed(BatchResult(decoded_batch(timestamp_ms), {}, []), Publication([], [], 0))
    text = generate_latest(metrics.registry).decode()
    assert f'streamdedup_latency_seconds_count{{topic="articles"}} {float(count)}' in text
    assert f'streamdedup_latency_seconds_sum{{topic="articles"}} {float(sum_s)}' in text
