"""How ``run`` and ``serve`` end with an error: one log line, and an exit code."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import structlog
import typer

from streamdedup.daemon import logs
from streamdedup.daemon.shutdown import exit_at_once, thread_stacks
from streamdedup.errors import EXIT_FAILED, StreamdedupError, exit_code


@contextmanager
def fatal_errors_logged(log: structlog.stdlib.BoundLogger) -> Iterator[None]:
    """Log an error as the event ``fatal``, and exit; without a JSON log, ``cli.main`` prints project errors instead."""
    try:
        yield
    except StreamdedupError as error:
        if not logs.writes_json():
            raise
        log.critical("fatal", error=type(error).__name__, exit_code=exit_code(error), reason=str(error))
        raise typer.Exit(exit_code(error)) from error
    except Exception as error:
        name = type(error).__name__
        log.critical("fatal", error=name, exit_code=EXIT_FAILED, reason=str(error), exc_info=True)
        raise typer.Exit(EXIT_FAILED) from error


def ending_at_once(event: str, code: int, logger: str) -> Callable[[str], None]:
    """Return an action that ends the process even if its main thread is stuck, and logs ``event`` as ``logger``."""

    def end(reason: str) -> None:
        threads = thread_stacks()
        exit_at_once(logs.last_line(event, logger=logger, reason=reason, exit_code=code, threads=threads), code)

    return end
