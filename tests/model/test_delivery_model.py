"""The model of the delivery rules: all rules together lose and double nothing, and no rule is superfluous.

The model imports nothing of the package, so its runs belong to `make test-all` and `make model`.
"""

import pytest

from tests.model.breaking import BREAKING
from tests.model.rules import ALL, RULES
from tests.model.simulation import Simulation

pytestmark = pytest.mark.long

#: Runs with all rules; each range of seeds is one test.
RUNS = [range(first, first + 1_000) for first in range(0, 13_000, 1_000)]
#: Number of runs within which the absence of a rule shows.
SOON = 1_000


def wrong(seed, rules=ALL, **scenario):
    return Simulation(seed, rules, **scenario).run().kinds()


@pytest.mark.parametrize("seeds", RUNS, ids=lambda seeds: seeds.start)
def test_with_all_rules_nothing_goes_wrong(seeds):
    assert {seed: kinds for seed in seeds if (kinds := wrong(seed))} == {}


def test_every_rule_has_a_kind_of_run_that_shows_its_lack():
    assert set(BREAKING) == set(RULES)


@pytest.mark.parametrize("rule", RULES)
def test_without_one_rule_its_mistake_is_seen_soon(rule):
    breaking = BREAKING[rule]
    rules = ALL.without(rule)
    seeds = range(breaking.first, breaking.first + SOON)
    seed = next((seed for seed in seeds if breaking.kind in wrong(seed, rules, **breaking.scenario)), None)
    assert seed is not None
    # The scenario is fair: with the rule there is no mistake.
    assert wrong(seed, **breaking.scenario) == {}


def test_a_seed_is_always_the_same_run():
    def trace(seed):
        simulation = Simulation(seed)
        simulation.index.trace = []
        simulation.run()
        return simulation.index.trace

    assert all(trace(seed) == trace(seed) for seed in range(5))
