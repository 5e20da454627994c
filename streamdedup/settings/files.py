"""Reads the text files that settings name: lists, secrets, and the settings file itself."""

import functools
import stat
from pathlib import Path

from streamdedup.errors import SettingsError

#: A pipe is empty after it was read, and some commands load the settings twice.
_read_once = functools.cache(Path.read_bytes)


def read_utf8(path: Path, *, must_be_regular: bool = True) -> str:
    """Read a text file, without a byte order mark; the text of a ``ValueError`` follows the file name in messages.

    A pipe or a device, which may never end, is unreadable unless ``must_be_regular`` is false.
    """
    try:
        is_regular = stat.S_ISREG(path.stat().st_mode)
        if is_regular or not must_be_regular:
            read = Path.read_bytes if is_regular else _read_once
            return read(path).decode("utf-8").removeprefix("\ufeff")
    except OSError as error:
        raise ValueError(f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        is_utf16 = error.object.startswith((b"\xff\xfe", b"\xfe\xff"))
        raise ValueError("is UTF-16, not UTF-8" if is_utf16 else f"is not UTF-8 at byte {error.start}") from None
    except ValueError:  # a NUL character or a lone surrogate in the path
        raise ValueError("is not a path") from None
    raise ValueError("is no regular file")


def read_secret(path: Path) -> str:
    """Return the content of a file without line ends after it; ``SettingsError`` if it is empty or unreadable."""
    try:
        text = read_utf8(path).rstrip("\r\n")
    except ValueError as error:
        raise SettingsError(f"{path} {error}") from None
    if not text:
        raise SettingsError(f"{path} is empty")
    return text
