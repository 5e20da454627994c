"""The parts of ``make soak``: what it sends, reads, concludes and draws."""

import os
from dataclasses import replace
from itertools import islice
from types import SimpleNamespace
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from prometheus_client import generate_latest

from streamdedup.daemon.metrics import Metrics
from streamdedup.position import Position
from streamdedup.wire import Decoder
from tests.soak.picture import PANELS, draw
from tests.soak.samples import Looker, Sample, judged, quantile
from tests.soak.stream import COPIES, endless

FLAT = Sample(0.0, 0, 200.0, 3, 90_000_000, 15, 8, 4_000_000, 13_000, 0.1)
WINDOW_S = 10.0


def run_of(**changes):
    """Samples of twelve windows, one a second; a change is a function of the seconds."""
    times = [float(second) for second in range(121)]
    return [replace(FLAT, seconds=s, **{name: round(of(s)) for name, of in changes.items()}) for s in times]


def test_a_run_in_which_nothing_grows_is_good():
    assert [good for _, good in judged(run_of(), WINDOW_S)] == [True, True, True]


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("rss_bytes", lambda s: 90_000_000 * (1 + s / 1_000)),
        ("descriptors_count", lambda s: 15 + s // 40),
        ("redis_bytes", lambda s: 4_000_000 * (1 + s / 500)),
    ],
)
def test_what_grows_all_the_time_is_told_alone(name, values):
    verdicts = [good for _, good in judged(run_of(**{name: values}), WINDOW_S)]
    at = ["rss_bytes", "descriptors_count", "redis_bytes"].index(name)
    assert verdicts == [place != at for place in range(3)]


def test_what_grows_while_warming_up_is_no_growth():
    rise = run_of(
        rss_bytes=lambda s: 90_000_000 * (0.5 + min(s, 29) / 58),
        redis_bytes=lambda s: 4_000_000 * min(s, 11) / 11,
    )
    assert all(good for _, good in judged(rise, WINDOW_S))


def test_too_few_windows_prove_nothing():
    ((text, good),) = list(judged(run_of()[:40], WINDOW_S))[2:]
    assert "too few" in text
    assert not good


@pytest.mark.parametrize(
    ("buckets", "expected"),
    [
        ({0.1: 0, 0.5: 0, float("inf"): 0}, None),
        ({0.1: 100, 0.5: 100, float("inf"): 100}, 0.099),
        ({0.1: 98, 0.5: 100, float("inf"): 100}, 0.3),
        ({0.1: 50, 0.5: 50, float("inf"): 100}, 0.5),
    ],
)
def test_a_quantile_lies_on_the_line_through_its_bucket(buckets, expected):
    assert quantile(0.99, buckets) == pytest.approx(expected)


def test_a_sample_is_what_metrics_process_and_redis_say():
    metrics = Metrics()
    client = SimpleNamespace(info=lambda _section: {"used_memory": 5}, dbsize=lambda: 7)
    looker = Looker(os.getpid(), client)
    looker.look(1.0, generate_latest(metrics.registry).decode())
    metrics.records.labels("articles", "upsert").inc(40)
    metrics.lag_records.labels("articles", "0").set(2)
    metrics.lag_records.labels("articles", "1").set(3)
    metrics.latency_seconds.observe("articles", np.array([0.2]))
    sample = looker.look(3.0, generate_latest(metrics.registry).decode())
    assert (sample.consumed_count, sample.documents_per_s, sample.lag_count) == (40, 20.0, 5)
    assert (sample.redis_bytes, sample.redis_keys_count) == (5, 7)
    assert sample.rss_bytes > 10**6
    assert sample.descriptors_count > 2
    assert sample.threads_count >= 1
    assert 0 < sample.latency_p99_s < 1
    assert looker.look(4.0, generate_latest(metrics.registry).decode()).latency_p99_s is None


def test_the_picture_has_a_curve_for_every_figure():
    picture = ET.fromstring(draw(run_of(), "a run"))
    named = [element.text for element in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert set(PANELS) <= set(named)
    curves = [e for e in picture.iter("{http://www.w3.org/2000/svg}path") if e.get("class") == "curve"]
    assert [curve.get("d").count("L") for curve in curves] == [120] * len(PANELS)


def test_the_stream_follows_from_its_seed_and_has_documents_and_near_copies():
    some = list(islice(endless(1), 300))
    assert some == list(islice(endless(1), 300))
    assert some != list(islice(endless(2), 300))
    texts = [Decoder().decode(Position("a", 0, at), 0, *record).text.split() for at, record in enumerate(some)]
    copies = sum(
        any(len(a) == len(b) and sum(x != y for x, y in zip(a, b, strict=True)) == 1 for b in texts[:at])
        for at, a in enumerate(texts)
    )
    assert copies == pytest.approx(COPIES * 300, rel=0.4)
