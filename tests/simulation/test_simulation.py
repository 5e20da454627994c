"""Random histories, kept stories, and the notice of each rule that is switched off."""

import pytest

from tests.simulation.generate import random_story
from tests.simulation.rules import BRANCHES, RULES, without
from tests.simulation.simulation import simulated
from tests.simulation.story import STORIES, parse
from tests.simulation.verdict import FORGOTTEN, judged, kinds

#: Histories of `make test`; `make simulate` runs more.
SEEDS = [range(first, first + 50) for first in range(0, 300, 50)]
#: Histories within which the lack of a rule or of a branch shows.
SOON = 1_000
#: Branches whose lack shows in their stories only: moments that random histories hit less often.
RARE = {
    "drop-slow",
    "mark-of-an-idle-partition",
    "redelivery-by-another-partition",
    "restart-between-batches",
    "stale-end",
}


@pytest.fixture(autouse=True)
def time_and_servers():
    with simulated():
        yield


@pytest.mark.parametrize("seeds", SEEDS, ids=lambda seeds: seeds.start)
def test_no_history_loses_doubles_or_invents_a_pair(seeds):
    assert {seed: wrong for seed in seeds if (wrong := judged(random_story(seed))[0])} == {}


def test_a_seed_is_always_the_same_history():
    def trace(seed):
        return judged(random_story(seed))[1].trace

    assert all(trace(seed) == trace(seed) for seed in range(5))


def test_a_story_survives_its_text():
    stories = [random_story(seed) for seed in range(20)]
    assert [parse(story.text()) for story in stories] == stories


@pytest.mark.long
@pytest.mark.parametrize("name", sorted({**RULES, **BRANCHES}.keys() - RARE))
def test_a_rule_that_is_switched_off_is_noticed_soon(name):
    with without(name):
        seed = next((seed for seed in range(SOON) if kinds(random_story(seed))), None)
    assert seed is not None
    assert judged(random_story(seed))[0] == []


@pytest.mark.parametrize("path", sorted(STORIES.glob("*.story")), ids=lambda path: path.stem)
def test_a_story_that_was_kept_ends_well(path):
    assert judged(parse(path.read_text()))[0] == []


@pytest.mark.parametrize("name", ["drop-forced", "prepare-and-switch"])
def test_a_command_prints_nothing(name, capsys):
    judged(parse((STORIES / f"{name}.story").read_text()))
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("name", "count"),
    [("deletion-removed", 1), ("match-saved-before-a-deletion", 0), ("match-saved-by-a-partition-behind", 0)],
)
def test_a_pair_of_a_forgotten_incarnation_is_counted(name, count):
    _, simulation = judged(parse((STORIES / f"{name}.story").read_text()))
    assert simulation.excused[FORGOTTEN] == count


@pytest.mark.parametrize("name", BRANCHES)
def test_a_story_that_was_kept_ends_badly_without_its_branch(name):
    with without(name):
        assert judged(parse((STORIES / f"{name}.story").read_text()))[0] != []


@pytest.mark.parametrize("rule", RULES)
def test_a_story_ends_badly_only_without_its_rule(rule):
    story = parse((STORIES / "rules" / f"{rule.replace(' ', '-')}.story").read_text())
    assert judged(story)[0] == []
    with without(rule):
        assert judged(story)[0] != []
