"""Shutdown: stop signals, and two threads that end a stuck process.

Called by ``cli.run``, which opens all three contexts, by ``cli.serve``, which starts a ``StopTimer``, and by ``loop``,
which asks ``StopSignals`` between batches and while waiting. A longer ``STOP_TIMEOUT_S`` may touch the grace periods in
``deploy/`` and ``docker-compose.yml``.

A signal handler interrupts the main thread at any point, even while the main thread holds a lock of ``threading`` or
``logging``. The handlers of this module therefore use only a flag and a ``SimpleQueue``, whose ``put`` is reentrant,
and start no thread.
"""

import contextlib
import os
import queue
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from itertools import islice
from types import FrameType
from typing import Any, NoReturn, Self

#: Time to end after a request to stop, in seconds: for the batch of ``run``, and the requests of ``serve``. Below the
#: ten seconds after which Docker kills a process, and below the limits of other supervisors.
STOP_TIMEOUT_S = 8.0
#: Number of checks of the watchdog within its limit. The watchdog counts checks, not seconds, so a process that was
#: frozen (SIGSTOP, a suspended laptop) gets the full limit again.
WATCHDOG_CHECKS = 10
#: Signals within this time after the first are one request, in seconds: a wrapper may signal process and group.
SAME_REQUEST_S = 0.5
#: Time to write the last line, in seconds; with ``STOP_TIMEOUT_S`` below the limits of supervisors.
_LAST_LINE_S = 1.0
#: Most calls that are shown of a thread.
MAX_CALLS = 40


class StopSignals:
    """Turns signals into a request to stop, while the context is open; for the main thread only.

    The first signal sets ``stopping``, ends a ``wait`` and calls ``on_stop``, inside the signal handler. A second
    signal, at least ``SAME_REQUEST_S`` later, raises KeyboardInterrupt, which also ends waits without a time limit. A
    third signal has its default action.
    """

    def __init__(self, on_stop: Callable[[], None] | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._on_stop = on_stop
        self._clock = clock
        self._requested_at_s = 0.0
        self._earlier_handlers: dict[signal.Signals, Any] = {}
        self.stopping = False
        self._wakeups: queue.SimpleQueue[None] = queue.SimpleQueue()

    def __enter__(self) -> Self:
        for number in (signal.SIGTERM, signal.SIGINT):
            self._earlier_handlers[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_error: object) -> None:
        for number, handler in self._earlier_handlers.items():
            signal.signal(number, handler)

    def stop(self) -> None:
        """Request a stop, as a first signal does; from any thread."""
        if not self.stopping:
            self._requested_at_s = self._clock()
            self.stopping = True
            self._wakeups.put(None)
            if self._on_stop is not None:
                self._on_stop()

    def wait(self, timeout_s: float) -> bool:
        """Wait up to ``timeout_s`` for a request to stop; tell whether there is one. For one thread at a time."""
        if not self.stopping:
            with contextlib.suppress(queue.Empty):
                self._wakeups.get(timeout=max(0.0, timeout_s))
        return self.stopping

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        if not self.stopping:
            self.stop()
        elif self._clock() - self._requested_at_s >= SAME_REQUEST_S:
            for number in self._earlier_handlers:
                signal.signal(number, signal.SIG_DFL)
            self._earlier_handlers.clear()
            raise KeyboardInterrupt


class Watchdog:
    """Calls ``action`` when ``tick`` was not called for ``limit_s``, while the context is open.

    ``action`` gets one line of text, in the thread of the watchdog, at most a tenth of the limit late. It may end the
    process at any point, because an interrupted batch is read again.
    """

    def __init__(self, limit_s: float, action: Callable[[str], None]) -> None:
        self._limit_s = limit_s
        self._action = action
        self._has_ticked = False  # since the last check
        #: Identifier of the thread that opens the context; the action gets the present call of this thread.
        self._watched = 0
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    def __enter__(self) -> Self:
        self._watched = threading.get_ident()
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._end.set()
        self._thread.join()

    def tick(self) -> None:
        self._has_ticked = True

    def _watch(self) -> None:
        idle_checks = 0
        while not self._end.wait(self._limit_s / WATCHDOG_CHECKS):
            idle_checks = 0 if self._has_ticked else idle_checks + 1
            self._has_ticked = False
            if idle_checks >= WATCHDOG_CHECKS:
                frame = _frames().get(self._watched)
                call = "a thread that has ended" if frame is None else _calls(frame)[0]
                self._action(f"no progress for {self._limit_s:g} s, at {call}")
                return


class StopTimer:
    """Calls ``action`` at ``timeout_s`` after ``begin``, in a thread, unless the context is closed before."""

    def __init__(self, timeout_s: float, action: Callable[[str], None]) -> None:
        self._timeout_s = timeout_s
        self._action = action
        self._events: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="stop timer", daemon=True)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._events.put("end")
        self._thread.join()

    def start(self) -> None:
        """Start the thread without a context, so that the timer also limits the end of the interpreter."""
        self._thread.start()

    def begin(self) -> None:
        """Start the timer; safe in a signal handler. Only the first call counts."""
        self._events.put("begin")

    def _run(self) -> None:
        event = self._events.get()  # waits for `begin` or the end of the context
        end_s = time.monotonic() + self._timeout_s
        while event != "end":
            try:
                event = self._events.get(timeout=max(0.0, end_s - time.monotonic()))
            except queue.Empty:
                self._action(f"stopping took longer than {self._timeout_s:g} s; nothing is lost")
                return


def exit_at_once(line: str, code: int) -> NoReturn:
    """Write one line to standard error and end the process without cleanup, because the cleanup may be stuck.

    Not for signal handlers, because it starts a thread: a full pipe that nobody reads blocks a write for ever.
    """

    def write() -> None:
        with contextlib.suppress(OSError):
            os.write(2, f"{line}\n".encode(errors="replace"))  # not `sys.stderr`, whose lock may be held

    try:
        writer = threading.Thread(target=write, name="last line", daemon=True)
        writer.start()
        writer.join(_LAST_LINE_S)
    except RuntimeError:  # the process may have no more threads
        write()
    finally:
        os._exit(code)


def thread_stacks() -> dict[str, list[str]]:
    """Return the calls of each thread, the innermost first, by its name and number."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    return {f"{names.get(number, '?')} {number}": _calls(frame) for number, frame in _frames().items()}


def _frames() -> dict[int, FrameType]:
    return sys._current_frames()  # noqa: SLF001  the documented way to look at another thread


def _calls(frame: FrameType) -> list[str]:
    """Describe a call and those around it, at most ``MAX_CALLS``."""
    calls = traceback.walk_stack(frame)
    return [f"{call.f_code.co_filename}:{line} in {call.f_code.co_name}" for call, line in islice(calls, MAX_CALLS)]
