"""What only tests and benchmarks do with processes: pause and resume one, and find a program."""

import os
import shutil
import signal
from pathlib import Path

from streamdedup.embedded import ManagedProcess, MissingToolError


def find_tool(name: str, advice: str) -> str:
    """Return the path of the program ``name``.

    Raises:
        MissingToolError: The program is not on the PATH; the text ends with ``advice``.
    """
    path = shutil.which(name)
    if path is None:
        raise MissingToolError(f"the program '{name}' was not found on the PATH: {advice}")
    return path


def processes_with(variable: str, value: str) -> list[str]:
    """Return number and command line of all other processes that inherited a variable of this environment."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            has_inherited = f"{variable}={value}".encode() in (process / "environ").read_bytes().split(b"\0")
            command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue  # it has ended, or is somebody else's
        if has_inherited and int(process.name) != os.getpid():
            found.append(f"{process.name} {command}")
    return found


def pause(server: ManagedProcess) -> None:
    """Freeze a server (SIGSTOP): its connections stay open and nothing answers."""
    os.kill(server.pid, signal.SIGSTOP)


def resume(server: ManagedProcess) -> None:
    """Continue a paused server."""
    os.kill(server.pid, signal.SIGCONT)
