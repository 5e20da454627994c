"""The points and stories of the chaos harness, and the page that names its faults."""

import re
from pathlib import Path

from tests.chaos.broken import BREAKS
from tests.chaos.faults import KINDS, POINTS
from tests.chaos.losses import LOSSES
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
