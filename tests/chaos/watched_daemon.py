"""``streamdedup`` with a trace of its steps, which can be held at a step.

    python -m tests.chaos.watched_daemon TRACE [--break NAME] [--full-batches] -- run --config FILE

For the chaos harness only. Every point of a step (``tests.crash_points``) becomes a line of TRACE:
nanoseconds of the monotonic clock, and the point. The file ``TRACE.aim`` names a manner and a point. At the next
passage of that point the file is renamed to ``TRACE.held``, and the process freezes until SIGCONT (``freeze``), or the
step waits until the file is removed, while the client's heartbeats continue (``stall``). With ``--full-batches``
there is no slow start: a scenario may need several records in the first batch. The daemon then reads ahead from the
first commit on.
"""

import argparse
import os
import signal
import sys
import time
from pathlib import Path

from streamdedup.daemon.slow_start import SlowStart
from tests.chaos.broken import BREAKS
from tests.crash_points import run_streamdedup

#: Interval of the checks for the removal of the file, in seconds.
CHECK_S = 0.003


class Trace:
    """Writes the trace, and holds the process."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._aim = f"{path}.aim"
        self._held = f"{path}.held"

    def __call__(self, point: str) -> None:
        """Write a point, and hold the process if the point is aimed at."""
        self._write(point)
        if os.path.exists(self._aim):  # noqa: PTH110  at every step, so as cheap as it can be
            self._hold(point)

    def _hold(self, point: str) -> None:
        try:
            manner, aimed_at = Path(self._aim).read_text(encoding="utf-8").split()
        except (FileNotFoundError, ValueError):
            return  # the aim was removed
        if aimed_at != point:
            return
        # Before the file exists: a reader of the file can then wait for the matching "released".
        self._write(f"held {point}")
        try:
            os.rename(self._aim, self._held)  # noqa: PTH104  a name, not a path
        except FileNotFoundError:
            self._write(f"released {point}")
            return  # the aim was removed
        if manner == "freeze":
            os.kill(os.getpid(), signal.SIGSTOP)
        while os.path.exists(self._held):  # noqa: PTH110  see above
            time.sleep(CHECK_S)
        self._write(f"released {point}")

    def _write(self, text: str) -> None:
        os.write(self._file, b"%d %s\n" % (time.monotonic_ns(), text.encode()))


def main() -> None:
    at = sys.argv.index("--")
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("trace", type=Path)
    parser.add_argument("--break", dest="broken", choices=sorted(BREAKS))
    parser.add_argument("--full-batches", action="store_true")
    arguments = parser.parse_args(sys.argv[1:at])
    trace = Trace(arguments.trace)
    if arguments.full_batches:
        SlowStart.limit = property(lambda self: self._batch_records, lambda _self, _limit: None)
    if arguments.broken:
        BREAKS[arguments.broken](trace)
    run_streamdedup(sys.argv[at + 1 :], trace)


if __name__ == "__main__":
    main()
