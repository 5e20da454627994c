"""Histories as text: a few lines of setup, then one line for each step; comments begin with ``#``.

    partitions 2
    daemons a b
    send 0 x amber birch cedar      # partition, id, text
    run a until claim_pairs         # or: run a 12, for twelve effects
    kill a

``faults`` has the steps.
"""

from ast import literal_eval
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

#: Folder of the stories that were kept.
STORIES = Path(__file__).parent / "stories"

#: Verb and arguments.
Step = tuple[str, ...]


@dataclass(frozen=True)
class Setup:
    """What does not change during a history: the topic at the beginning, the daemons that are to run, and options."""

    partitions: int = 2
    daemons: tuple[str, ...] = ("a", "b")
    batch: int = 3
    window_s: int | None = None  # the retention, and the slack
    grown: bool = True  # daemons begin with full batches, else by the slow start
    static: bool = False
    bucket_cap: int | None = None
    contained: bool = False  # documents are near-duplicates by containment, too
    min_shingles: int = 0
    scopes: bool = False  # documents are in two scopes


@dataclass(frozen=True)
class Story:
    """A history; after its last step everything settles."""

    setup: Setup = field(default_factory=Setup)
    steps: Sequence[Step] = ()

    def text(self) -> str:
        lines = []
        for each in fields(Setup):
            value = getattr(self.setup, each.name)
            if value != each.default:
                lines.append(f"{each.name} {' '.join(value) if isinstance(value, tuple) else value}")
        return "\n".join([*lines, "", *(" ".join(step) for step in self.steps)]) + "\n"


def parse(text: str) -> Story:
    names = {each.name for each in fields(Setup)}
    setup: dict[str, Any] = {}
    steps: list[Step] = []
    for line in text.splitlines():
        verb, *arguments = line.partition("#")[0].split() or [""]
        if verb in names and not steps:
            setup[verb] = tuple(arguments) if verb == "daemons" else literal_eval(*arguments)
        elif verb:
            steps.append((verb, *arguments))
    return Story(Setup(**setup), steps)
