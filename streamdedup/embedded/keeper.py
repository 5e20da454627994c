"""The small process that stands between this program and a server that it starts, so that no server outlives it.

Run as a script, by path: ``python -I -S keeper.py PARENT_PID SCRATCH COMMAND [ARGUMENT...]``. Its standard input is a
pipe from the parent. The keeper starts the command, prints the command's process id, and then waits: for the command to
end (it passes the exit code on) or for the parent to end, however it ended, kill -9 included: the pipe closes, and the
keeper kills the command and everything that the command started, and removes the folder SCRATCH, unless that is empty
text. Should the keeper itself be killed, Linux kills the command (``PR_SET_PDEATHSIG``).

``PR_SET_PDEATHSIG`` alone, set by the parent, would not do: the signal comes when the *thread* that started the child
ends, the hook that sets it (``preexec_fn``) may deadlock in a program with threads, and other systems do not know it.
The keeper has one thread, which lives exactly as long as it does, so here the hook is sound.

It imports nothing but the standard library and never anything of the package: it must start quickly, and its folder is
not on the module path.
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

#: ``PR_SET_PDEATHSIG`` of Linux' prctl(2): the signal that a process gets when the thread that started it ends.
PR_SET_PDEATHSIG = 1
#: Seconds between two looks at whether the parent is still there. Only a second line: a process that the parent forked
#: without exec may hold the pipe open after the parent's end.
PARENT_CHECK_S = 1.0
#: Exit code when the command could not be started, as in a shell.
EXIT_NOT_STARTED = 127


def _death_hook() -> Callable[[], None] | None:
    """Return what the command does before exec so that it dies with the keeper; None where the system cannot."""
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
    """Kill the command and everything it started; what has ended already is no error."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader_pid, signal.SIGKILL)


def keep(parent_pid: int, scratch: str, command: list[str]) -> int:
    """Run ``command`` until it or the parent ends, and return its exit code (128 + signal when a signal ended it).

    When it was the parent that ended, the folder ``scratch`` is removed too, unless the text is empty.
    """
    wake_reader, wake_writer = os.pipe()
    os.set_blocking(wake_writer, False)
    signal.set_wakeup_fd(wake_writer)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)  # without a handler there is no wake-up
    # The group is the command's own, so that it can be killed with all that it started while the keeper stays.
    server = subprocess.Popen(  # noqa: S603  the command is the parent's, no shell is involved
        command,
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr.fileno(),
        process_group=0,
        preexec_fn=_death_hook(),  # noqa: PLW1509  one thread only, see the module's text
    )
    os.write(1, f"{server.pid}\n".encode())
    os.close(1)
    while server.poll() is None:
        readable, _, _ = select.select([0, wake_reader], [], [], PARENT_CHECK_S)
        if wake_reader in readable:
            os.read(wake_reader, 4096)
        parent_gone = 0 in readable and not os.read(0, 4096)
        if parent_gone or os.getppid() != parent_pid:
            _kill_group(server.pid)
            server.wait()
            if scratch:
                shutil.rmtree(scratch, ignore_errors=True)
    _kill_group(server.pid)
    return server.returncode if server.returncode >= 0 else 128 - server.returncode


def main(arguments: list[str]) -> int:
    """Start the command line's command; say on standard error why, if it cannot be started."""
    try:
        return keep(int(arguments[0]), arguments[1], arguments[2:])
    except OSError as error:
        sys.stderr.write(f"cannot start {arguments[2]}: {error}\n")
        return EXIT_NOT_STARTED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
