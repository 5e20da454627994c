"""Plays and judges histories."""

from tests.simulation.faults import play
from tests.simulation.simulation import Simulation
from tests.simulation.story import Story
from tests.simulation.verdict import Verdict


def judged(story: Story) -> tuple[list[str], Simulation]:
    """Play a story; return its mistakes and the world at its end."""
    simulation = Simulation(story.setup)
    try:
        play(simulation, story.steps)
        return Verdict(simulation).wrong(), simulation
    finally:
        simulation.close()


def kinds(story: Story) -> set[str]:
    """Return the kinds of the mistakes of a story, such as ``lost``."""
    return {mistake.split()[0] for mistake in judged(story)[0]}
