"""The model of the delivery rules: all of them together lose and double nothing, and none of them can be left out."""

import pytest

from tests.model.breaking import BREAKING
from tests.model.rules import ALL, RULES
from tests.model.simulation import Simulation

#: Runs with all rules; each portion is one test.
PORTION = 1_000
PORTIONS = 3
#: Within so many runs of its kind the lack of a rule shows.
SOON = 1_000


def wrong(seed, rules=ALL, **climate):
    return Simulation(seed, rules, **climate).run().kinds()


@pytest.mark.parametrize("first", range(0, PORTIONS * PORTION, PORTION))
def test_with_all_rules_nothing_goes_wrong(first):
    assert {seed: kinds for seed in range(first, first + PORTION) if (kinds := wrong(seed))} == {}


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_with_all_rules_nothing_goes_wrong_in_many_more_runs():
    assert {seed: kinds for seed in range(10_000, 20_000) if (kinds := wrong(seed))} == {}


def test_every_rule_has_a_kind_of_run_that_shows_its_lack():
    assert set(BREAKING) == set(RULES)


@pytest.mark.parametrize("rule", RULES)
def test_without_one_rule_its_mistake_is_seen_soon(rule):
    breaking = BREAKING[rule]
    rules = ALL.without(rule)
    seed = next((seed for seed in range(SOON) if breaking.kind in wrong(seed, rules, **breaking.climate)), None)
    assert seed is not None
    # The run itself is a fair one: with the rule in force nothing is wrong with it.
    assert wrong(seed, **breaking.climate) == {}


def test_a_seed_is_always_the_same_run():
    def trace(seed):
        simulation = Simulation(seed)
        simulation.index.trace = []
        simulation.run()
        return simulation.index.trace

    assert all(trace(seed) == trace(seed) for seed in range(5))
