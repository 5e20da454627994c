"""The parts of the chaos harness that need no server: its plan and its corpus, and the page that names its faults."""

import json
import re
from collections import Counter
from pathlib import Path

from streamdedup.daemon.crash_points import CRASH_POINTS
from tests.chaos.broken import BREAKS
from tests.chaos.faults import KINDS, POINTS
from tests.chaos.losses import LOSSES, Rebuild, rebuild_lines, rebuilds
from tests.chaos.report import Options
from tests.chaos.storm import plan
from tests.chaos.traps import TRAPS
from tests.chaos.world import stage_of


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

    def test_all_kinds_of_losses_are_planned_among_the_faults_of_a_seed(self):
        planned = Counter(fault.kind for fault in plan(Options(seed=1, kills=2, kinds=(), losses=8)))
        assert planned == {"kill": 2, "index-flushed": 3, "index-put-back": 3, "index-writes-lost": 2}


def test_gaps_and_whole_rebuilds_are_counted_from_the_logs(tmp_path):
    events = [
        {"event": "index_rebuild_begun", "gap": True},
        {"event": "index_rebuild_begun", "gap": False},
        {"event": "index_rebuilt", "records": 7},
        {"event": "index_rebuild_begun", "gap": True},
        {"event": "index_rebuilt", "records": 2},
    ]
    lines = [json.dumps(event) for event in events]
    (tmp_path / "a-0.log").write_text("\n".join(["no event", *lines, '{"event": "index_rebuil']))
    found = rebuilds(tmp_path)
    assert found == [
        Rebuild(("a-0.log", 0), True, None),
        Rebuild(("a-0.log", 1), False, 7),
        Rebuild(("a-0.log", 2), True, 2),
    ]
    assert rebuild_lines(found) == [
        "gaps filled: 1, 2 records; interrupted: 1",
        "whole rebuilds: 1, 7 records; interrupted: 0",
    ]
