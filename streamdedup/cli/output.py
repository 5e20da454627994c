"""Where a command writes its outcome to, and what is said when that cannot be written."""

import contextlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from streamdedup.errors import OutputError


class Output:
    """A file that is written, or standard output. A reader that has gone is left to the command line.

    Args:
        path: Path of the file; None or ``-`` is standard output.

    Raises:
        OutputError: It cannot be written.
    """

    def __init__(self, path: str | None) -> None:
        self._path = None if path is None or path == "-" else Path(path)
        with self._named():
            self._file = sys.stdout if self._path is None else self._path.open("w", encoding="utf-8")

    def write(self, text: str) -> None:
        """Write a text.

        Raises:
            OutputError: It cannot be written.
        """
        with self._named():
            self._file.write(text)

    def close(self) -> None:
        """Write what is not written yet, and close a file.

        Raises:
            OutputError: It cannot be written.
        """
        with self._named():
            if self._path is None:
                self._file.flush()
            else:
                self._file.close()

    @contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except BrokenPipeError:
            raise
        except OSError as error:
            raise OutputError(f"{self._path or 'standard output'}: {error.strerror or error}") from error


@contextmanager
def output_to(path: str | None) -> Iterator[Output]:
    """Open a file to write, or standard output; see ``Output``.

    Raises:
        OutputError: It cannot be written.
    """
    output = Output(path)
    try:
        yield output
    except BaseException:
        with contextlib.suppress(OSError, OutputError):
            output.close()
        raise
    output.close()
