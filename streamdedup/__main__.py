"""Entry point of the command line, also as ``python -m streamdedup``."""

import os
import signal
import sys
from types import FrameType


def main() -> None:
    """Run a command; a signal that comes before the daemon or the service handles signals is a stop without work.

    Imports take the first half second. The default action would end the process with another exit code, and process 1
    of a container has no default action: the signal would be lost.
    """
    # prometheus-client would keep all metrics in files of this folder, which nobody reads, and refuse some operations.
    for name in ("PROMETHEUS_MULTIPROC_DIR", "prometheus_multiproc_dir"):
        os.environ.pop(name, None)  # noqa: TID251  no setting
    if sys.argv[1:2] in (["run"], ["serve"]):
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, _end)
    from streamdedup.cli.main import main as run_command  # noqa: PLC0415  after the handlers

    run_command()


def _end(_number: int, _frame: FrameType | None) -> None:
    os._exit(0)


if __name__ == "__main__":
    main()
