"""Histories as text: a few lines of setup, then one line for each step; comments begin with ``#``.

    partitions 2
    daemons a b
    send 0 x amber birch cedar      # partition, id, text
    run a until claim_pairs         # or: run a 12, for twelve effects
    kill a

``faults`` has the steps.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path

#: Folder of the stories that were kept.
STORIES = Path(__file__).parent / "stories"

#: Verb and arguments.
Step = tuple[str, ...]


@dataclass(frozen=True)
class Setup:
    """What does not change during a history.

    Attributes:
        partitions: Partitions of the input topic at the beginning.
        daemons: Names of the daemons that the operator wants to run.
        batch: Most records in a batch.
        window_s: Retention and its slack in seconds; None for no window.
        grown: Whether daemons begin with full batches, else by the slow start.
        static: Whether daemons are static members.
        bucket_cap: Most members of a bucket.
        contained: Whether documents are near-duplicates by containment, too.
        min_shingles: Documents with fewer shingles form no pairs.
    """

    partitions: int = 2
    daemons: tuple[str, ...] = ("a", "b")
    batch: int = 3
    window_s: int | None = None
    grown: bool = True
    static: bool = False
    bucket_cap: int | None = None
    contained: bool = False
    min_shingles: int = 0


@dataclass(frozen=True)
class Story:
    """A history.

    Attributes:
        setup: What does not change.
        steps: The steps; after the last one everything settles.
        about: Comment lines at the beginning.
    """

    setup: Setup = field(default_factory=Setup)
    steps: Sequence[Step] = ()
    about: Sequence[str] = ()

    def text(self) -> str:
        """Return the lines."""
        default = Setup()
        lines = [f"# {line}" for line in self.about]
        for each in fields(Setup):
            value = getattr(self.setup, each.name)
            if value != getattr(default, each.name):
                lines.append(f"{each.name} {' '.join(value) if isinstance(value, tuple) else value}")
        return "\n".join([*lines, "", *(" ".join(step) for step in self.steps)]) + "\n"


def parse(text: str) -> Story:
    """Read the lines of a story."""
    names = {each.name for each in fields(Setup)}
    setup: dict[str, object] = {}
    steps: list[Step] = []
    about: list[str] = []
    for line in text.splitlines():
        if line.startswith("#") and not steps and not setup:
            about.append(line[1:].strip())
        verb, *arguments = line.partition("#")[0].split() or [""]
        if not verb:
            continue
        if verb in names and not steps:
            setup[verb] = _value(verb, arguments)
        else:
            steps.append((verb, *arguments))
    return Story(Setup(**setup), steps, tuple(about))  # type: ignore[arg-type]


def _value(name: str, arguments: Sequence[str]) -> object:
    if name == "daemons":
        return tuple(arguments)
    (value,) = arguments
    return value == "True" if value in {"True", "False"} else int(value)
