"""The model of the delivery rules: all of them together lose and double nothing, and none of them can be left out."""

import pytest

from tests.model.breaking import BREAKING
from tests.model.rules import ALL, RULES
from tests.model.simulation import Simulation

#: Runs with all rules in `make test` and in `make test-all`; each range of seeds is one test.
FEW = [range(first, first + 100) for first in range(0, 300, 100)]
MANY = [range(first, first + 1_000) for first in range(300, 13_300, 1_000)]
#: Within so many runs of its kind the lack of a rule shows.
SOON = 1_000
#: Rules whose lack shows after hundreds of runs.
LATE = {"announced_in_turn", "all_looked_at", "purged_when_taken_over"}


def wrong(seed, rules=ALL, **climate):
    return Simulation(seed, rules, **climate).run().kinds()


@pytest.mark.parametrize(
    "seeds", [*FEW, *(pytest.param(seeds, marks=pytest.mark.long) for seeds in MANY)], ids=lambda seeds: seeds.start
)
def test_with_all_rules_nothing_goes_wrong(seeds):
    assert {seed: kinds for seed in seeds if (kinds := wrong(seed))} == {}


def test_every_rule_has_a_kind_of_run_that_shows_its_lack():
    assert set(BREAKING) == set(RULES)


@pytest.mark.parametrize(
    "rule", [pytest.param(rule, marks=pytest.mark.long) if rule in LATE else rule for rule in RULES]
)
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
