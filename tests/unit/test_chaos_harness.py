"""The points and stories of the chaos harness, and the page that names its faults."""

import json
import re
from collections import Counter
from pathlib import Path

from tests.chaos.broken import BREAKS
from tests.chaos.faults import KINDS, POINTS
from tests.chaos.losses import LOSSES
from tests.chaos.report import Options, Report, Struck
from tests.chaos.storm import plan
from tests.chaos.traps import TRAPS
from tests.chaos.world import stage_of
from tests.crash_points import CRASH_POINTS


class TestPlan:
    def test_daemons_are_held_at_points_that_exist_and_lie_in_their_stage(self):
        for stage, points in POINTS.items():
            assert set(points) <= set(CRASH_POINTS)
            assert {stage_of(point) for point in points} == {stage}

    def test_the_documentation_names_every_fault_and_every_story(self):
        page = (Path(__file__).parents[2] / "docs" / "testing.md").read_text(encoding="utf-8")
        table = page.partition("| faults | effect |")[2].partition("\n\n")[0]
        named = {name for row in table.splitlines()[2:] for name in re.findall(r"`([a-z-]+)`", row.split("|")[1])}
        assert named == {*KINDS, *LOSSES}
        for trap in TRAPS:
            assert f"`{trap.broken}`" in page

    def test_every_break_has_a_story_that_shows_it(self):
        assert {trap.broken for trap in TRAPS} == set(BREAKS)

    def test_a_short_storm_has_every_kind_once_and_kills_and_the_others_in_every_stage(self):
        planned = plan(Options(seed=5, kills=3, every_stage=False))
        assert Counter(fault.kind for fault in planned) == {kind: 3 if kind == "kill" else 1 for kind in KINDS}
        assert {fault.stage for fault in planned if fault.kind == "kill"} == set(POINTS)
        assert {fault.stage for fault in planned if fault.kind != "kill"} == set(POINTS)

    def test_a_fault_without_effect_is_missing_in_its_stage_or_where_one_stage_is_enough_in_the_first(self):
        felt = Struck("kill", "sending", effects=["ended"])
        missed = Struck("freeze", "sending")
        short = Options(seed=5, kills=1, every_stage=False)
        assert Report(short, [felt, missed]).missing() == [("freeze", "index")]
        others = [("kill", "index"), ("kill", "commit"), *(("freeze", stage) for stage in POINTS)]
        assert Report(Options(seed=5, kills=1), [felt, missed]).missing() == others


def test_a_report_has_its_faults_and_what_it_does_not_prove(tmp_path):
    felt = Struck("kill", "index", at_s=1.5, victim="a", place="before_add", effects=["ended"])
    Report(Options(seed=5, kills=1, every_stage=False, losses=1), [felt]).write(tmp_path / "report.json")
    report = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
    (struck,) = report["struck"]
    assert (struck["kind"], struck["victim"], struck["effects"]) == ("kill", "a", ["ended"])
    assert (report["unproven"], report["good"]) == (["1 losses"], False)
