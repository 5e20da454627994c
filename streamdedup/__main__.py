"""Entry point of the program ``streamdedup`` (pyproject.toml) and of ``python -m streamdedup``; calls ``cli.main``."""

import os
import signal
import sys
from types import FrameType


def main() -> None:
    """Run a command; until ``run`` and ``serve`` handle signals themselves, a signal ends the process with code 0.

    The imports before that take half a second. The default action of a signal has another exit code, and process 1 of a
    container has no default action: the signal would be lost.
    """
    # By these, prometheus-client keeps all metrics in files, which nobody reads, and refuses some operations.
    for name in ("PROMETHEUS_MULTIPROC_DIR", "prometheus_multiproc_dir"):
        os.environ.pop(name, None)  # noqa: TID251  no setting
    if sys.argv[1:2] in (["run"], ["serve"]):
        for signal_number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(signal_number, _end)
    from streamdedup.cli.main import main as run_command  # noqa: PLC0415  after the handlers

    run_command()


def _end(_signal_number: int, _frame: FrameType | None) -> None:
    os._exit(0)


if __name__ == "__main__":
    main()
