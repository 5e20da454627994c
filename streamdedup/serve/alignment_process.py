"""Alignment of long texts in a process of its own.

Two texts of 1 MB take up to 2.5 s of Python. In a thread of the service, every other thread would wait 5 ms for each of
its turns meanwhile, and a look-up takes many turns. A process has an interpreter of its own, a lower priority, and can
be ended after a time limit. Short texts are aligned at once: they take less time than the start of a process.

The process gets the texts by its standard input and returns the segments by its standard output.
"""

import contextlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import msgspec

import streamdedup
from streamdedup.serve.alignment import Segment, align

#: Most characters of two texts together that are aligned in the thread of the caller, in about 30 ms.
MAX_SHORT: Final = 65_536
#: Lower priority of the process; 0 is that of the service, 19 the lowest.
_NICENESS: Final = 10
#: Folder from which the process imports the package, wherever the service was started.
_IMPORT_FOLDER: Final = Path(streamdedup.__file__).parents[1]


class AlignmentError(Exception):
    """Two texts were not aligned; the message is the reason, for the client."""


def align_within(a: str, b: str, timeout_s: float) -> list[Segment]:
    """Align two texts; see ``alignment.align``.

    Args:
        a: A text.
        b: Another text.
        timeout_s: Longest time for long texts, in seconds.

    Raises:
        AlignmentError: Long texts took longer, or the process failed.
    """
    if len(a) + len(b) <= MAX_SHORT:
        return align(a, b)
    command = [sys.executable, "-m", "streamdedup.serve.alignment_process"]
    content = msgspec.msgpack.encode((a, b))
    try:
        # Standard error is not read: a traceback could show a text.
        ended = subprocess.run(  # noqa: S603  this interpreter
            command,
            input=content,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=_IMPORT_FOLDER,
            timeout=timeout_s,
            check=True,
        )
    except subprocess.TimeoutExpired:
        raise AlignmentError(f"the alignment of the texts took longer than {timeout_s:g} s") from None
    except (OSError, subprocess.CalledProcessError) as error:
        raise AlignmentError(f"the process that aligns long texts failed: {_reason(error)}") from None
    return msgspec.msgpack.decode(ended.stdout, type=list[Segment])


def _reason(error: OSError | subprocess.CalledProcessError) -> str:
    if isinstance(error, subprocess.CalledProcessError):
        return f"exit code {error.returncode}"
    return error.strerror or type(error).__name__


def main() -> None:
    """Align the texts of standard input."""
    # A sandbox may forbid it, as the unit for systemd does.
    with contextlib.suppress(PermissionError):
        os.nice(_NICENESS)
    a, b = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=tuple[str, str])
    sys.stdout.buffer.write(msgspec.msgpack.encode(align(a, b)))


if __name__ == "__main__":
    main()
