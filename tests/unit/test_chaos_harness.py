"""The parts of the chaos harness that need no server: plan, corpus, what a trace tells, when a run proves nothing."""

import itertools
import json
import re
import struct
from collections import Counter
from pathlib import Path

import pytest

from streamdedup.testing.crash_points import CRASH_POINTS
from tests.chaos.broken import BREAKS
from tests.chaos.faults import KINDS, POINTS, effects_of
from tests.chaos.proxy import _Requests
from tests.chaos.storm import Options, Report, Struck, plan
from tests.chaos.stream import endless
from tests.chaos.traps import TRAPS
from tests.chaos.verdict import Verdict
from tests.chaos.world import Passage, has_read_ahead, stage_of


class TestPlan:
    def test_a_seed_has_one_plan_and_one_corpus(self):
        options = Options(seed=3, kills=5)
        assert plan(options) == plan(options)
        assert plan(options) != plan(Options(seed=4, kills=5))
        first, again, other = (list(itertools.islice(endless(seed), 500)) for seed in (3, 3, 4))
        assert first == again != other

    def test_every_kind_strikes_in_every_stage(self):
        planned = plan(Options(seed=1, kills=100))
        strikes = Counter((one.kind, one.stage) for one in planned)
        assert set(strikes) == set(itertools.product(KINDS, POINTS))
        assert sum(strikes["kill", stage] for stage in POINTS) == 100

    def test_daemons_are_held_at_points_that_exist_and_lie_in_their_stage(self):
        for stage, points in POINTS.items():
            assert set(points) <= set(CRASH_POINTS)
            assert {stage_of(point) for point in points} == {stage}

    def test_the_documentation_names_every_fault_and_every_story(self):
        page = (Path(__file__).parents[2] / "docs" / "testing.md").read_text(encoding="utf-8")
        table = page.partition("| fault | effect |")[2].partition("\n\n")[0]
        named = {name for row in table.splitlines()[2:] for name in re.findall(r"`([a-z-]+)`", row.split("|")[1])}
        assert named == set(KINDS)
        for trap in TRAPS:
            assert f"| {trap.name}: " in page
            assert f"| `{trap.broken}`: " in page

    def test_every_break_has_a_story_that_shows_it(self):
        assert {trap.broken for trap in TRAPS} == set(BREAKS)


def test_the_corpus_has_copies_redeliveries_and_poison():
    records = list(itertools.islice(endless(1), 1000))
    poison = [value for key, value in records if key.startswith(b"poison")]
    good = [(key, value) for key, value in records if not key.startswith(b"poison")]
    texts = Counter(json.loads(value)["text"] for _, value in set(good))
    assert len(poison) > 5
    assert len(good) - len(set(good)) > 20
    assert max(texts.values()) > 1


class TestFelt:
    def told(self, *points):
        return list(effects_of([Passage(round(at_s * 1e9), point) for at_s, point in points]))

    def test_a_step_without_an_end_has_failed(self):
        assert self.told((0, "before_send"), (0.1, "before_poll"), (0.2, "after_poll")) == ["send failed"]

    def test_a_step_that_ends_late_was_slow(self):
        assert self.told((0, "before_commit"), (0.3, "after_commit")) == ["commit slow"]

    def test_work_as_always_is_nothing(self):
        assert self.told((0, "before_commit"), (0.1, "after_commit"), (1, "before_poll"), (2, "after_poll")) == []

    def test_a_new_generation_and_new_clients_are_noticed(self):
        assert self.told((0, "before_fence"), (0, "after_fence"), (0.1, "before_init_transactions")) == [
            "fence again",
            "init_transactions again",
        ]


def struck(kind, stage, effects=("ended",)):
    return Struck(0.0, kind, "a", "before_send", "before_send", stage, effects=list(effects))


class TestReport:
    GOOD = Verdict(expected_count=3, poison_count=0)

    def report(self, *strikes, verdict=GOOD):
        return Report(Options(seed=1, kills=3), list(strikes), verdict=verdict)

    def test_a_run_in_which_every_kind_struck_in_every_stage_is_good(self):
        report = self.report(*(struck("kill", stage) for stage in POINTS))
        assert report.good
        assert report.unproven() == []

    def test_a_run_without_faults_proves_nothing(self):
        assert not self.report().good

    def test_a_kind_that_missed_a_stage_proves_nothing(self):
        report = self.report(struck("kill", "index"), struck("kill", "sending"), struck("kill", "between"))
        assert report.unproven() == ["kill in commit"]
        assert not report.good
        assert any("PROVES NOTHING about: kill in commit" in line for line in report.lines())

    def test_a_fault_without_effect_does_not_count(self):
        strikes = [struck("redis-cut", stage) for stage in ("index", "sending")]
        assert self.report(*strikes, struck("redis-cut", "commit", effects=())).unproven() == ["redis-cut in commit"]

    @pytest.mark.parametrize("wrong", ["lost", "doubled", "invented", "letters_lost", "letters_doubled"])
    def test_a_bad_verdict_is_bad_however_much_was_proven(self, wrong):
        verdict = Verdict(expected_count=3, poison_count=0, **{wrong: [("in", 0, 1)]})
        assert not self.report(*(struck("kill", stage) for stage in POINTS), verdict=verdict).good

    def test_it_is_written_with_its_numbers(self, tmp_path):
        report = self.report(*(struck("kill", stage) for stage in POINTS))
        report.write(tmp_path / "report.json")
        told = json.loads((tmp_path / "report.json").read_text())
        assert (told["lost"], told["doubled"], told["good"], told["options"]["seed"]) == (0, 0, True, 1)
        assert len(told["struck"]) == 3


def frame(kind, body):
    return struct.pack(">ih", 2 + len(body), kind) + body


@pytest.mark.parametrize("size", [1, 2, 5, 6, 7, 100, 1000])
def test_requests_are_recognised_in_chunks_of_any_size(size):
    data = frame(3, b"x" * 40) + frame(0, b"") + frame(26, b"y" * 300)
    requests = _Requests()
    found = set()
    for start in range(0, len(data), size):
        found |= requests.kinds(data[start : start + size])
    assert found == {3, 0, 26}


@pytest.mark.parametrize(
    ("points", "ahead"),
    [
        ([], False),
        (["before_poll", "after_poll", "after_insert_entries"], False),
        (["after_poll", "before_poll_ahead"], False),
        (["after_poll", "after_poll_ahead", "after_insert_entries", "after_finish"], True),
        (["after_poll_ahead", "held after_finish", "before_poll", "after_poll"], False),
    ],
)
def test_a_trace_tells_whether_a_batch_is_ahead(tmp_path, points, ahead):
    trace = tmp_path / "a-0.trace"
    trace.write_text("".join(f"{number} {point}\n" for number, point in enumerate(points)), encoding="utf-8")
    assert has_read_ahead(trace) is ahead
