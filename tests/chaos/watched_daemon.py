"""``streamdedup`` with a watch on its steps: it writes a trace, and waits at a step when told to.

    python -m tests.chaos.watched_daemon TRACE [--break NAME] -- run --config FILE

For the chaos harness alone. Every point that is passed (``streamdedup.testing.crash_points``) becomes a line of TRACE:
nanoseconds of the monotonic clock, and the point. While a file ``TRACE.aim`` exists, the first passage of the
point that it names, behind the manner, becomes ``TRACE.held``: the process freezes as a whole (``freeze``, until
SIGCONT), or the step alone waits until the file is gone (``stall``), while the client's heartbeats go on.
"""

import argparse
import os
import signal
import sys
import time
from pathlib import Path

from streamdedup.cli import assembly
from streamdedup.cli import main as cli
from streamdedup.daemon import batch_limits
from streamdedup.testing.crash_points import Steps
from tests.chaos.broken import BREAKS

#: Between two looks whether to go on, in seconds.
LOOK_S = 0.003


class Trace:
    """Told of every point that is passed.

    Args:
        path: The trace.
    """

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._aim = f"{path}.aim"
        self._held = f"{path}.held"

    def __call__(self, point: str) -> None:
        """Pass a point."""
        self._note(point)
        if os.path.exists(self._aim):  # noqa: PTH110  at every step, so as cheap as it can be
            self._look(point)

    def _look(self, point: str) -> None:
        try:
            manner, aimed_at = Path(self._aim).read_text(encoding="utf-8").split()
        except (FileNotFoundError, ValueError):
            return  # disarmed at this moment
        if aimed_at != point:
            return
        # Noted before it can be seen, so that whoever sees it knows that it will be noted when it is over.
        self._note(f"held {point}")
        try:
            os.rename(self._aim, self._held)  # noqa: PTH104  a name, not a path
        except FileNotFoundError:
            self._note(f"released {point}")
            return  # disarmed at this moment
        if manner == "freeze":
            os.kill(os.getpid(), signal.SIGSTOP)
        while os.path.exists(self._held):  # noqa: PTH110  see above
            time.sleep(LOOK_S)
        self._note(f"released {point}")

    def _note(self, text: str) -> None:
        os.write(self._file, b"%d %s\n" % (time.monotonic_ns(), text.encode()))


def main() -> None:
    """Run ``streamdedup`` with the watch on."""
    at = sys.argv.index("--")
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("trace", type=Path)
    parser.add_argument("--break", dest="broken", choices=sorted(BREAKS))
    arguments = parser.parse_args(sys.argv[1:at])
    trace = Trace(arguments.trace)
    # Daemons are killed every few seconds: with the usual number hardly a batch would be read ahead.
    batch_limits.CAREFUL_BATCHES = 1
    assembly.crash_steps = lambda: Steps(trace)
    if arguments.broken:
        BREAKS[arguments.broken](trace)
    sys.argv = ["streamdedup", *sys.argv[at + 1 :]]
    cli.main()


if __name__ == "__main__":
    main()
