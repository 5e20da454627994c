"""A small process between this program and a server, so that no server outlives the program.

``process.ManagedProcess`` runs it as a script: ``python -I -S keeper.py PARENT_PID SCRATCH COMMAND [ARGUMENT...]``,
with a pipe from the parent as standard input. The keeper starts the command, prints its process id, waits for its end,
and exits with its exit code. When the parent ends, also by kill -9, the pipe closes; the keeper then kills the process
group of the command, and removes the folder SCRATCH, unless SCRATCH is empty. If the keeper is killed, Linux kills the
command (``PR_SET_PDEATHSIG``).

The parent itself cannot rely on that signal: it is sent when the *thread* that started the child ends, the hook that
sets it (``preexec_fn``) may deadlock in a program with threads, and other systems do not have it. The keeper has one
thread, and imports only the standard library, to start quickly.
"""

import contextlib
import ctypes
import os
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable

#: Option of Linux' prctl(2): a signal to this process when the thread that started it ends.
PR_SET_PDEATHSIG = 1
#: Seconds between two checks of the parent: a process that it forked without exec may keep the pipe open after its end.
PARENT_CHECK_S = 1.0
#: The pipes to the parent.
STDIN, STDOUT = 0, 1
#: Exit code when the command could not be started, as in a shell.
EXIT_NOT_STARTED = 127


def _death_hook() -> Callable[[], None] | None:
    """Return the function by which the command's process, before exec, asks to end with the keeper; None elsewhere."""
    if not sys.platform.startswith("linux"):
        return None
    prctl = ctypes.CDLL(None).prctl
    keeper_pid = os.getpid()

    def die_with_keeper() -> None:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != keeper_pid:
            os._exit(EXIT_NOT_STARTED)  # the keeper ended between fork and prctl

    return die_with_keeper


def _kill_group(leader_pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader_pid, signal.SIGKILL)


def keep(parent_pid: int, scratch: str, command: list[str]) -> int:
    """Run ``command`` until it or the parent ends; return its exit code (128 + signal if a signal ended it)."""
    # When the command ends, SIGCHLD writes a byte into this pipe, which ends the ``select`` below.
    wake_reader, wake_writer = os.pipe()
    os.set_blocking(wake_writer, False)  # ``set_wakeup_fd`` requires it
    signal.set_wakeup_fd(wake_writer)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)  # without a handler there is no wake-up
    # In a process group of its own, which can be killed without the keeper. Both outputs go to the log of the server:
    # the standard output of the keeper is the pipe to the parent.
    server = subprocess.Popen(  # noqa: S603  the command is the parent's, no shell is involved
        command,
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr.fileno(),
        process_group=0,
        preexec_fn=_death_hook(),  # noqa: PLW1509  the keeper has one thread only
    )
    os.write(STDOUT, f"{server.pid}\n".encode())
    os.close(STDOUT)
    while server.poll() is None:
        readable, _, _ = select.select([STDIN, wake_reader], [], [], PARENT_CHECK_S)
        if wake_reader in readable:
            os.read(wake_reader, 4096)  # empties the pipe
        parent_closed_pipe = STDIN in readable and not os.read(STDIN, 4096)
        if parent_closed_pipe or os.getppid() != parent_pid:
            _kill_group(server.pid)
            server.wait()  # the folder may be in use until then
            if scratch:
                shutil.rmtree(scratch, ignore_errors=True)
    _kill_group(server.pid)  # processes that the command left behind
    # A signal is a negative return code in Python, and 128 + signal in a shell.
    return server.returncode if server.returncode >= 0 else 128 - server.returncode


def main(arguments: list[str]) -> int:
    try:
        return keep(int(arguments[0]), arguments[1], arguments[2:])
    except OSError as error:
        sys.stderr.write(f"cannot start {arguments[2]}: {error}\n")
        return EXIT_NOT_STARTED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
