"""Points at which the daemon can be made to end as kill -9 would end it, for those who want to see that it recovers.

Each step of the loop that has an effect outside the process has two points, ``before_<step>`` and ``after_<step>``.
They are wrappers around the store, the source and the producer, put there by the command line when a point is asked for
and not otherwise: the loop and the detector do not know of them, and they cost a daemon in service nothing.
"""

import os
import signal
from collections.abc import Callable, Mapping
from typing import Any, cast

from streamdedup.errors import SettingsError
from streamdedup.index.contract import BucketStore
from streamdedup.kafka.protocols import Source

#: Called with the name of each point that is passed.
Passing = Callable[[str], None]

#: Method of the source -> step.
SOURCE_STEPS = {"poll": "poll", "poll_ahead": "poll_ahead", "committed": "committed", "commit": "commit_offsets"}
#: Method of the store -> step, in the order of the loop. What only asks the server how it is, is no step.
STORE_STEPS = {
    name: name
    for name in (
        "open",
        "fence",
        "save_read_start",
        "insert_entries",
        "get_entries",
        "read_entries",
        "remove_from_buckets",
        "remove_copies",
        "replace_entries",
        "insert_and_look_up",
        "departures",
        "insert_copies",
        "save_pending_matches",
        "claim_pairs",
        "set_clusters",
        "announce",
        "finish",
        "list_expiring",
        "set_watermarks",
        "evict",
    )
}
#: Method of the Kafka client's producer -> step, in the order of a transaction.
PRODUCER_STEPS = {
    "init_transactions": "init_transactions",
    "begin_transaction": "begin",
    "send": "send",
    "flush": "flush",
    "send_offsets_to_transaction": "send_offsets",
    "commit_transaction": "commit",
}
#: Every point there is.
CRASH_POINTS = tuple(
    f"{when}_{step}"
    for steps in (SOURCE_STEPS, STORE_STEPS, PRODUCER_STEPS)
    for step in steps.values()
    for when in ("before", "after")
)


class _Watched:
    """Hands everything on to an object, and tells of the calls of some methods.

    Args:
        inner: The object.
        steps: Name of the step, by method.
        passing: Told when a step begins and when it has succeeded.
    """

    def __init__(self, inner: object, steps: Mapping[str, str], passing: Passing) -> None:
        self.__dict__.update(_inner=inner, _steps=steps, _passing=passing)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        step = self._steps.get(name)
        if step is None:
            return found

        def call(*arguments: object, **named: object) -> object:
            self._passing(f"before_{step}")
            result = found(*arguments, **named)
            self._passing(f"after_{step}")
            return result

        return call

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self._inner, name, value)


class Steps:
    """Puts a watch on the parts of a daemon.

    Args:
        passing: Told of each point of ``CRASH_POINTS`` that is passed, in the thread that does the step.
    """

    def __init__(self, passing: Passing) -> None:
        self._passing = passing

    def of_store(self, store: BucketStore) -> BucketStore:
        """Return a store that does the same and tells of its steps."""
        return cast(BucketStore, _Watched(store, STORE_STEPS, self._passing))

    def of_producer(self, producer: Any) -> Any:
        """Return a producer of the Kafka client that does the same and tells of its steps."""
        return _Watched(producer, PRODUCER_STEPS, self._passing)

    def of_source(self, source: Source) -> Source:
        """Return a source that does the same and tells of its steps."""
        return cast(Source, _Watched(source, SOURCE_STEPS, self._passing))


class CrashPoint:
    """Ends the process at one point, without any cleaning up.

    Args:
        text: Name of the point, and behind a colon at which passage; without, at the first.
        end: Ends the process.

    Raises:
        SettingsError: There is no such point.
    """

    def __init__(self, text: str, end: Callable[[], None] | None = None) -> None:
        self._name, colon, passage = text.partition(":")
        if self._name not in CRASH_POINTS or (colon and not (passage.isdecimal() and int(passage))):
            points = ", ".join(CRASH_POINTS)
            raise SettingsError(f"no such crash point: {text!r}; there are: {points}; each also as POINT:PASSAGE")
        self._left = int(passage or 1)
        self._end = end or _kill_ourselves

    def __call__(self, point: str) -> None:
        """Pass a point."""
        if point == self._name:
            self._left -= 1
            if self._left == 0:
                self._end()


def _kill_ourselves() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
