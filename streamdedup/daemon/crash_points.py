"""Crash points: steps of the daemon at which a test ends the process as ``kill -9`` does.

A step is a call in the tables below: those that open and fence an index, and take a batch to its commit. Calls that
look for a start or for losses, move positions, check the membership or count are no steps. A step has two points,
``before_<step>`` and ``after_<step>``. Wrappers around index, source and producer report the points; loop and detector
do not know the wrappers. ``cli.assembly`` makes the ``StepObserver`` that wraps them, and only if
``STREAMDEDUP_CRASH_AT`` names a point. A new method of ``Index`` gets a row in ``INDEX_STEPS``, or in
``INDEX_NO_STEPS`` of tests/unit/test_crash_points.py, which also counts the points; a new call of the source that is a
step gets one in ``SOURCE_STEPS``. A new step also touches docs/testing.md.
"""

import os
import signal
from collections.abc import Callable, Mapping
from typing import Any, cast

from streamdedup.errors import SettingsError
from streamdedup.index.contract import Index
from streamdedup.kafka.protocols import Source

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


class _Wrapper:
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


class StepObserver:
    """Wraps index, source and producer of a daemon, so that each of their steps is reported to ``on_point``."""

    def __init__(self, on_point: OnPoint) -> None:
        self._on_point = on_point

    def wrap_index(self, index: Index) -> Index:
        return cast(Index, _Wrapper(index, INDEX_STEPS, self._on_point))

    def wrap_producer(self, producer: Any) -> Any:
        return _Wrapper(producer, PRODUCER_STEPS, self._on_point)

    def wrap_source(self, source: Source) -> Source:
        return cast(Source, _Wrapper(source, SOURCE_STEPS, self._on_point))


class CrashPoint:
    """Ends the process at one point, without any cleanup.

    ``text`` is the name of the point, or ``POINT:N`` to end at the Nth passage. Raises ``SettingsError`` if there is no
    such point.
    """

    def __init__(self, text: str, end: Callable[[], None] | None = None) -> None:
        self._name, colon, passage = text.partition(":")
        is_positive = passage.isdecimal() and int(passage) > 0
        if self._name not in CRASH_POINTS or (colon and not is_positive):
            points = ", ".join(CRASH_POINTS)
            raise SettingsError(f"no such crash point: {text!r}; there are: {points}; each also as POINT:PASSAGE")
        self._passages_left = int(passage or 1)
        self._end = end or _kill_process

    def __call__(self, point: str) -> None:
        if point == self._name:
            self._passages_left -= 1
            if self._passages_left == 0:
                self._end()


def _kill_process() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
