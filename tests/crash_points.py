"""Crash points: steps of a daemon at which a test ends it as ``kill -9`` does, or traces and holds it.

    python -m tests.crash_points POINT[:PASSAGE] run --config FILE

A step is a call in the tables below: those that open and fence an index, and take a batch to its commit. Calls that
look for a start or for losses, move positions, check the membership or count are no steps. A step has two points,
``before_<step>`` and ``after_<step>``. The daemon is ``streamdedup run`` with wrappers around its indexes, its source
and its producer, of which it knows nothing. A new method of ``Index`` gets a row in ``INDEX_STEPS``, or in
``INDEX_NO_STEPS`` of tests/unit/test_crash_points.py.
"""

import os
import signal
import sys
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

from streamdedup.cli import assembly
from streamdedup.cli import main as cli
from streamdedup.daemon import shutdown
from streamdedup.kafka import producer

#: Called with the name of each point when the daemon reaches it.
OnPoint = Callable[[str], None]

#: Step by method of the source; ``commit_offsets`` is the commit of at-least-once delivery, without a transaction.
SOURCE_STEPS = {"poll": "poll", "poll_ahead": "poll_ahead", "committed_offset": "committed", "commit": "commit_offsets"}
#: Step by method of the index, in the order of the loop.
INDEX_STEPS = {
    name: name
    for name in (
        "open",
        "fence",
        "insert_entries",
        "get_entries",
        "read_entries",
        "remove_from_buckets",
        "remove_copies",
        "leave_clusters",
        "replace_entries",
        "insert_and_look_up",
        "copy_removals",
        "insert_copies",
        "save_pending_matches",
        "claim_pairs",
        "set_clusters",
        "announce",
        "finish",
    )
}
#: Step by method of the Kafka client's producer, in the order of a transaction; ``commit`` is its end.
PRODUCER_STEPS = {
    "init_transactions": "init_transactions",
    "begin_transaction": "begin",
    "send": "send",
    "flush": "flush",
    "send_offsets_to_transaction": "send_offsets",
    "commit_transaction": "commit",
}
#: Names of all points.
CRASH_POINTS = tuple(
    f"{when}_{step}"
    for step in (*SOURCE_STEPS.values(), *INDEX_STEPS.values(), *PRODUCER_STEPS.values())
    for when in ("before", "after")
)


class Observed:
    """Delegates to an object; calls ``on_point`` before each method in ``steps``, and after its success."""

    def __init__(self, inner: object, steps: Mapping[str, str], on_point: OnPoint) -> None:
        # Not by assignment, which `__setattr__` passes on to the inner object.
        self.__dict__.update(_inner=inner, _steps=steps, _on_point=on_point)

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)
        step = self._steps.get(name)
        if step is None:
            return method

        def call(*arguments: object, **named: object) -> object:
            self._on_point(f"before_{step}")
            result = method(*arguments, **named)
            self._on_point(f"after_{step}")
            return result

        return call

    def __setattr__(self, name: str, value: object) -> None:  # `kafka.compat` sets an attribute of the producer
        setattr(self._inner, name, value)


def observe_daemon(on_point: OnPoint) -> None:
    """Report each step of the daemon of this process to ``on_point``; its rebuilds take no steps."""
    pipelines, make_producer, open_source = assembly.pipelines, producer.KafkaProducer, producer.KafkaSource.open

    def observed_pipelines(settings: Any, backend: Any) -> Any:
        indexes = SimpleNamespace(index=lambda name: Observed(backend.index(name), INDEX_STEPS, on_point))
        return pipelines(settings, indexes)

    assembly.pipelines = observed_pipelines
    producer.KafkaProducer = lambda **config: Observed(make_producer(**config), PRODUCER_STEPS, on_point)
    producer.KafkaSource.open = lambda options: Observed(open_source(options), SOURCE_STEPS, on_point)


def crash_at(text: str) -> OnPoint:
    """Return what ends the process at a point, without any cleanup; ``POINT:N`` ends it at the Nth passage."""
    name, _, passage = text.partition(":")
    assert name in CRASH_POINTS, f"no such crash point: {text}"
    passages_left = int(passage or 1)

    def reached(point: str) -> None:
        nonlocal passages_left
        if point == name:
            passages_left -= 1
            if passages_left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    return reached


def run_streamdedup(arguments: list[str], on_point: OnPoint) -> None:
    """Run ``streamdedup`` in this process, with its steps reported, and with more time to stop than it needs."""
    shutdown.STOP_TIMEOUT_S = 120.0
    observe_daemon(on_point)
    sys.argv = ["streamdedup", *arguments]
    cli.main()


if __name__ == "__main__":
    run_streamdedup(sys.argv[2:], crash_at(sys.argv[1]))
