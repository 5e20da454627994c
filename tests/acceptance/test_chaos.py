"""The chaos harness on a small scale: short storms, and one broken loop; `make chaos` and its self-test do the rest."""

import pytest

from tests.chaos.faults import KINDS
from tests.chaos.losses import PER_SECOND
from tests.chaos.report import Options
from tests.chaos.storm import Storm
from tests.chaos.traps import TRAPS, spring
from tests.chaos.world import a_world

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def world(redis_program):
    with a_world(redis_program=redis_program) as made:
        yield made


def test_a_short_storm_with_suppressed_pairs_publishes_all_others_once_and_none_of_them(world):
    report = Storm(world, Options(seed=4, kills=3, kinds=(), changes=0.1, ends=0.2, suppressing=True)).run()
    assert report.good, "\n".join(report.lines())
    assert report.verdict.expected_count


def test_a_short_storm_of_losses_loses_and_doubles_nothing(world):
    options = Options(seed=7, kills=0, kinds=(), per_second=PER_SECOND, changes=0.1, ends=0.1, losses=3)
    report = Storm(world, options).run()
    assert report.good, "\n".join(report.lines())
    assert any(rebuild.is_gap for rebuild in report.rebuilds)
    assert not all(rebuild.is_gap for rebuild in report.rebuilds)


def test_a_storm_of_every_kind_of_fault_loses_and_doubles_nothing(world):
    report = Storm(world, Options(seed=5, kills=3, every_stage=False)).run()
    assert report.good, "\n".join(report.lines())
    assert report.verdict.expected_count
    assert {one.kind for one in report.struck} == set(KINDS)


def test_leaders_move_and_nothing_is_lost_or_doubled(world, redis_program):
    with a_world(broker_count=3, redis_program=redis_program) as three:
        report = Storm(three, Options(seed=6, kills=0, kinds=("broker-killed",))).run()
    assert report.good, "\n".join(report.lines())


@pytest.mark.parametrize("broken", [None, "no-fence"])
def test_a_trap_is_passed_by_the_right_loop_alone(world, broken):
    (trap,) = (trap for trap in TRAPS if trap.broken == "no-fence")
    verdict = spring(trap, world, broken)
    assert verdict.expected_count > 0
    assert (verdict.lost_count > 0) == (broken is not None), verdict
    assert verdict.good == (broken is None), verdict
