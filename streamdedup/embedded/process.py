"""A server process that ends with the process that started it, the parent: start, stop, kill, start again.

Every end of the parent, also by kill -9, ends the server, because it runs under a keeper (``keeper.py``, which defines
the arguments and the output that ``spawn`` uses). A server has a session of its own, so that Ctrl-C in a terminal
reaches the parent only, and the parent chooses the order of stopping.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Self

from streamdedup.errors import StreamdedupError

#: Address of embedded servers: this machine only.
LOOPBACK = "127.0.0.1"
#: Time limit from the start of a server to its first answer, in seconds.
START_DEADLINE_S = 60.0
#: Seconds between SIGTERM and SIGKILL.
STOP_DEADLINE_S = 10.0
POLL_INTERVAL_S = 0.02
#: Bytes from the end of a server's log in an error message.
LOG_TAIL_BYTES = 3000
#: Most attempts to start a server, each with new ports; another attempt follows where the ports were taken.
PORT_ATTEMPTS = 3
#: Text in the log of every server whose port is taken; some servers write a capital A.
PORT_TAKEN = "ddress already in use"
_KEEPER = Path(__file__).with_name("keeper.py")


class ServerError(StreamdedupError):
    """An embedded server did not start, or ended by itself; the text ends with the last lines of its log, if any."""


class MissingToolError(ServerError):
    """A program that an embedded server needs is not installed; the text contains the command to install it."""


class ServerContext(ABC):
    """Servers that a ``with`` block starts at its beginning, and closes at its end or when the start fails."""

    @abstractmethod
    def start(self) -> None:
        """Start the servers, and wait until they answer."""

    @abstractmethod
    def close(self) -> None:
        """End the servers."""

    def __enter__(self) -> Self:
        # Closes unless the start succeeds, also when Ctrl-C interrupts the start.
        with contextlib.ExitStack() as on_failure:
            on_failure.callback(self.close)
            self.start()
            on_failure.pop_all()
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


class ManagedProcess(ServerContext):
    """One server process, with a directory and a log; a context manager that starts and stops it.

    A subclass implements ``command`` and ``is_ready``, and ``choose_ports`` if it has ports. Used from one thread at a
    time. A ``directory`` that the caller names is kept; a private one is made and removed by ``close``. The keeper
    removes ``scratch``, the private directory or another one that is set, if the parent ends without ``close``.
    """

    def __init__(self, name: str, directory: Path | None = None) -> None:
        self.name = name
        self.directory = Path(tempfile.mkdtemp(prefix=f"streamdedup-{name}-")) if directory is None else directory
        self._is_private = directory is None
        self.scratch = self.directory if self._is_private else None
        self.directory.mkdir(parents=True, exist_ok=True)
        #: The keeper of the last run; None before the first start.
        self._keeper: subprocess.Popen[bytes] | None = None
        #: Process id of the server; None if no keeper is left to be reaped.
        self._pid: int | None = None
        #: Size of the log in bytes at the start of the last run.
        self._log_start = 0
        #: Whether the server has answered on its ports, which it then keeps: clients know them.
        self._keeps_ports = False

    @abstractmethod
    def command(self) -> list[str]:
        """Return program and arguments; called at each start, after the ports were chosen."""

    @abstractmethod
    def is_ready(self) -> bool:
        """Return whether the server answers; called every ``POLL_INTERVAL_S`` during the start."""

    def choose_ports(self) -> None:
        """Choose ports, if the server needs any; called at the first start, and again if they are taken."""

    @property
    def log_path(self) -> Path:
        """File of the server's standard output and error; restarts append."""
        return self.directory / f"{self.name}.log"

    @property
    def pid(self) -> int:
        """Process id of the server itself, not of its keeper; ``ServerError`` if the server is not running."""
        if self._pid is None or not self.is_running():
            raise ServerError(f"{self.name} is not running{self.log_tail()}")
        return self._pid

    def is_running(self) -> bool:
        """Return whether the keeper runs, which ends right after the server; a paused server counts as running."""
        return self._keeper is not None and self._keeper.poll() is None

    def start(self, deadline_s: float = START_DEADLINE_S) -> None:
        """Start the server unless it runs, and wait until it answers; kill it after an error.

        If its ports were taken, it is started again with new ones. Once it has answered, later starts keep the ports.
        """
        for attempt in range(1, PORT_ATTEMPTS + 1):
            if not self._keeps_ports:
                self.choose_ports()
            try:
                self.spawn()
                self.wait_ready(deadline_s)
            except ServerError as error:
                self.kill()
                # The text of the error ends with the log of the server.
                if self._keeps_ports or PORT_TAKEN not in str(error) or attempt == PORT_ATTEMPTS:
                    raise
            else:
                self._keeps_ports = True
                return

    def spawn(self) -> None:
        """Start the process unless it is running, and do not wait until it answers."""
        if self.is_running():
            return
        self._reap_keeper()  # the keeper of an earlier run
        # -I keeps environment and folder of the script out of the imports, -S makes the start quick.
        keeper = [sys.executable, "-I", "-S", str(_KEEPER), str(os.getpid()), str(self.scratch or "")]
        with self.log_path.open("ab") as log:
            self._log_start = log.tell()
            self._keeper = subprocess.Popen(  # noqa: S603  the command is built here, no shell is involved
                [*keeper, *self.command()],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=self.directory,
                start_new_session=True,
            )
        assert self._keeper.stdout is not None
        try:
            line = self._keeper.stdout.readline()  # the process id of the server
        except BaseException:
            # Interrupted, as by Ctrl-C: closing the pipe makes the keeper end the server.
            assert self._keeper.stdin is not None
            self._keeper.stdin.close()
            self._reap_keeper()
            raise
        if not line.strip().isdigit():
            self._reap_keeper()
            raise ServerError(f"{self.name} could not be started{self.log_tail()}")
        self._pid = int(line)

    def wait_ready(self, deadline_s: float = START_DEADLINE_S) -> None:
        self.wait_until(self.is_ready, deadline_s)

    def wait_until(self, condition: Callable[[], bool], deadline_s: float) -> None:
        """Wait during the start for ``condition``; ``ServerError`` if the server ends, or after ``deadline_s``."""
        end = time.monotonic() + deadline_s
        while not condition():
            if not self.is_running():
                raise ServerError(f"{self.name} ended with code {self.exit_code} while starting{self.log_tail()}")
            if time.monotonic() > end:
                raise ServerError(f"{self.name} did not answer within {deadline_s:g} s{self.log_tail()}")
            time.sleep(POLL_INTERVAL_S)

    @property
    def exit_code(self) -> int | None:
        """Exit code of the last run, 128 + signal when a signal ended it; None while running or before any start."""
        return None if self._keeper is None else self._keeper.poll()

    def wait_exit(self, deadline_s: float) -> bool:
        """Wait until the process has ended; return False if it still runs after the deadline."""
        if self._keeper is None:
            return True
        try:
            self._keeper.wait(deadline_s)
        except subprocess.TimeoutExpired:
            return False
        return True

    def ask_to_stop(self) -> None:
        """Send SIGTERM and return at once."""
        self._signal(signal.SIGTERM)
        self._signal(signal.SIGCONT)  # a paused process acts on nothing but SIGKILL

    def stop(self, deadline_s: float = STOP_DEADLINE_S) -> None:
        """End the server with SIGTERM, or with SIGKILL after the deadline, and wait until it has ended."""
        self.ask_to_stop()
        if not self.wait_exit(deadline_s):
            self.kill()
        self._reap_keeper()

    def kill(self) -> None:
        """End the server with SIGKILL, as a crash would, and wait until it has ended."""
        self._signal(signal.SIGKILL)
        self._reap_keeper()

    def close(self) -> None:
        """Stop the server and remove a private directory."""
        self.stop()
        if self._is_private:
            shutil.rmtree(self.directory, ignore_errors=True)

    def log_tail(self) -> str:
        """Return a clause for errors: "; ", the path of the log, and the last lines of this run."""
        if not self.log_path.exists():
            return ""
        with self.log_path.open("rb") as log:
            log.seek(max(self._log_start, self.log_path.stat().st_size - LOG_TAIL_BYTES))
            tail = log.read().decode(errors="replace").strip()
        return f"; the end of {self.log_path}:\n{tail}" if tail else f"; {self.log_path} is empty"

    def _signal(self, signal_number: signal.Signals) -> None:
        if self._pid is not None and self.is_running():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal_number)

    def _reap_keeper(self) -> None:
        """Wait for the keeper, which ends right after the server, and close the pipes to it."""
        if self._keeper is None:
            return
        self._pid = None
        self._keeper.wait()  # first: closing the pipe means to the keeper that this process has ended
        for pipe in (self._keeper.stdin, self._keeper.stdout):
            if pipe is not None:
                pipe.close()
