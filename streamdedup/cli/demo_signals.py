"""Signals that end the demo, by way of an exception, so that it ends all that it has started."""

import contextlib
import signal
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Self

#: Signals that ask the demo to end: Ctrl-C, a supervisor, a terminal that is closed.
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class EndingSignals:
    """Raises where the main thread is when a signal comes, while the context is open: KeyboardInterrupt or SystemExit.

    After the first one, and after ``ignore``, further signals do nothing: ending takes a second or so, and a second
    Ctrl-C must not leave a server behind. Only the main thread may open the context.
    """

    def __init__(self) -> None:
        self._found: dict[signal.Signals, Any] = {}
        self._held_count = 0
        self._received: int | None = None

    def __enter__(self) -> Self:
        for number in SIGNALS:
            self._found[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._found.items():
            signal.signal(number, handler)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Put signals off to the end of this context; for what must be done whole, as starting a process."""
        self._held_count += 1
        try:
            yield
        finally:
            self._held_count -= 1
        if self._received is not None:
            self._end(self._received)

    def ignore(self) -> None:
        """Do nothing about signals from now on."""
        self._held_count += 1

    def _handle(self, number: int, _frame: object) -> None:
        if self._received is None:
            self._received = number
            if not self._held_count:
                self._end(number)

    @staticmethod
    def _end(number: int) -> None:
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        raise SystemExit(128 + number)
