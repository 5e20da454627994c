"""Shrinks a history that fails to a short one that fails in the same way."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from tests.simulation.story import Setup, Step, Story

#: Tells whether a history fails in the way that is looked for.
Fails = Callable[[Story], bool]


def shrunk(story: Story, fails: Fails) -> Story:
    """Return a history of which no step can be left out, with simpler steps and setup where they fail as well."""
    while True:
        before = story
        story = replace(story, steps=_fewer(story, fails))
        for simpler in _simpler_setups(story):
            if fails(simpler):
                story = simpler
        for number in range(len(story.steps)):
            for step in _simpler_steps(story.steps[number]):
                steps = [*story.steps[:number], step, *story.steps[number + 1 :]]
                if fails(replace(story, steps=steps)):
                    story = replace(story, steps=steps)
                    break
        if story == before:
            return story


def _fewer(story: Story, fails: Fails) -> Sequence[Step]:
    """Leave out as many steps as possible, in ever smaller pieces."""
    steps = list(story.steps)
    size = max(1, len(steps) // 2)
    while size:
        start = 0
        while start < len(steps):
            candidate = steps[:start] + steps[start + size :]
            if fails(replace(story, steps=candidate)):
                steps = candidate
            else:
                start += size
        size //= 2
    return steps


def _simpler_setups(story: Story) -> Iterator[Story]:
    """Yield the story with each part of its setup as by default, and with fewer daemons."""
    default = Setup()
    for name in ("static", "grown", "batch", "window_s", "bucket_cap", "contained", "min_shingles"):
        if getattr(story.setup, name) != getattr(default, name):
            yield replace(story, setup=replace(story.setup, **{name: getattr(default, name)}))
    for daemons in (("a",), ("a", "b")):
        if len(daemons) < len(story.setup.daemons):
            yield replace(story, setup=replace(story.setup, daemons=daemons))
    for partitions in (1, 2):
        if partitions < story.setup.partitions:
            yield replace(story, setup=replace(story.setup, partitions=partitions))


def _simpler_steps(step: Step) -> Iterator[Step]:
    if step[0] == "run" and step[2] != "until":
        count = int(step[2])
        yield from (("run", step[1], str(fewer)) for fewer in (1, 2, 3, 5, 8, 12, count - 1) if fewer < count)
    if step[0] in {"send", "append"} and len(step) > 4:
        yield (*step[:3], step[3])
        yield (*step[:3], *step[3:5])
