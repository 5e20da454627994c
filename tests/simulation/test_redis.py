"""A sample of histories with the indexes in a real Redis: the alerts and the schedule are those in memory."""

from itertools import count, islice
from typing import Any

import pytest
import redis

from tests.simulation.faults import play
from tests.simulation.generate import random_story
from tests.simulation.redis_server import RedisServer, RedisSimulation
from tests.simulation.simulation import Simulation, simulated
from tests.simulation.story import STORIES, Story, parse
from tests.simulation.verdict import Verdict
from tests.simulation.world import DEAD_LETTERS, DUPLICATES

#: Histories of the sample in `make test`, in `make test-all`, and in one test.
QUICK, ALL, PART = 40, 200, 10


def has_no_limits(story: Story) -> bool:
    """Tell whether no key expires, since the server has a clock of its own, and no bucket is full.

    A full bucket of the server keeps other members.
    """
    return story.setup.window_s is None and story.setup.bucket_cap is None


def is_comparable(story: Story) -> bool:
    """Tell whether a history has no limits and no clock jump, which the server does not see."""
    return has_no_limits(story) and all(step[0] != "clock" for step in story.steps)


SAMPLE = list(islice((seed for seed in count() if is_comparable(random_story(seed))), ALL))
PARTS = [
    pytest.param(SAMPLE[first : first + PART], marks=[pytest.mark.long] if first >= QUICK else [], id=str(first))
    for first in range(0, ALL, PART)
]


@pytest.fixture(autouse=True)
def time_and_commands():
    with simulated():
        yield


def course(simulation: Simulation, story: Story) -> tuple[Any, ...]:
    """Play a story; return what was published, all effects with the names of errors, and the mistakes."""
    try:
        play(simulation, story.steps)
    finally:
        simulation.close()
    records = [record for topic in (DUPLICATES, DEAD_LETTERS) for record in simulation.broker.records(topic)]
    return records, [line.partition("(")[0] for line in simulation.trace], simulation.wrong


def assert_same(story: Story, client: redis.Redis, layout: str) -> None:
    assert course(RedisSimulation(story.setup, client, layout), story) == course(Simulation(story.setup), story)


@pytest.mark.parametrize("seeds", PARTS)
def test_redis_gives_the_alerts_of_the_index_in_memory_for_the_same_schedule(seeds, redis_client):
    for seed in seeds:
        assert_same(random_story(seed), redis_client, ("sets", "packed")[seed % 2])


@pytest.mark.parametrize("path", sorted(STORIES.rglob("*.story")), ids=lambda path: path.stem)
def test_a_story_that_was_kept_has_the_same_course_in_redis(path, redis_client):
    story = parse(path.read_text())
    if has_no_limits(story):
        assert_same(story, redis_client, "sets")


class OneSlot(RedisServer):
    """A server of which only the keys of one slot go back."""

    def go_back(self, name: str | None, *, restarts: bool = True) -> None:
        assert name is not None
        for key in self._client.scan_iter(match="*:1}*"):
            self._client.delete(key)
        for key, value in self.copies[name]["values"].items():
            if b":1}" in key:
                self._client.restore(key, *value)
        self.epoch += restarts


@pytest.mark.parametrize("path", sorted((STORIES / "slots").glob("*.story")), ids=lambda path: path.stem)
def test_an_index_of_which_one_slot_goes_back_is_used_again(path, redis_client):
    story = parse(path.read_text())
    simulation = RedisSimulation(story.setup, redis_client, "sets")
    simulation.server = OneSlot(redis_client, "sets", lambda: simulation.now_ms)
    course(simulation, story)
    assert Verdict(simulation).wrong() == []
