"""The chaos harness itself: a short run at every `make test`, long ones and the broken loops at `make test-all`."""

import pytest

from tests.chaos.storm import Options, Storm
from tests.chaos.traps import TRAPS, spring
from tests.chaos.world import a_world


@pytest.fixture(scope="module")
def world():
    with a_world() as world:
        yield world


def test_a_short_storm_loses_and_doubles_nothing(world):
    options = Options(seed=4, kills=6, kinds=("redis-scripts-forgotten", "redis-cut"))
    report = Storm(world, options).run()
    assert report.good, "\n".join(report.lines())
    assert report.verdict.expected_count > 100
    assert sum(one.kind == "kill" for one in report.struck) == 6


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_a_storm_of_every_kind_of_fault_loses_and_doubles_nothing(world):
    report = Storm(world, Options(seed=5, kills=12)).run()
    assert report.good, "\n".join(report.lines())


@pytest.mark.long
@pytest.mark.timeout(600)
def test_leaders_move_and_nothing_is_lost_or_doubled():
    with a_world(broker_count=3) as world:
        report = Storm(world, Options(seed=6, kills=6, kinds=("broker-killed", "freeze", "kafka-cut"))).run()
    assert report.good, "\n".join(report.lines())


@pytest.mark.long
@pytest.mark.parametrize("trap", TRAPS, ids=lambda trap: trap.name)
class TestTraps:
    def test_the_right_loop_passes(self, world, trap):
        verdict = spring(trap, world)
        assert verdict.good, verdict
        assert verdict.expected_count > 0

    def test_the_loop_that_breaks_the_rule_is_caught(self, world, trap):
        verdict = spring(trap, world, trap.broken)
        assert (verdict.lost_count if trap.loses else verdict.doubled_count) > 0, verdict
