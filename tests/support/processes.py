"""What only tests and benchmarks do with processes: pause and resume one, and find a program."""

import os
import shutil
import signal

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


def pause(server: ManagedProcess) -> None:
    """Freeze a server (SIGSTOP): its connections stay open and nothing answers."""
    os.kill(server.pid, signal.SIGSTOP)


def resume(server: ManagedProcess) -> None:
    """Continue a paused server."""
    os.kill(server.pid, signal.SIGCONT)
