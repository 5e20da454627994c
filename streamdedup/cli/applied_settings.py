"""Recommended settings in a settings file: ``streamdedup tune --apply``."""

import json
import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from streamdedup.cli.output import say
from streamdedup.settings import Settings
from streamdedup.tuning.proposals import STOPS_FILE
from streamdedup.tuning.section import SERVERS


def apply_section(path: Path, profile: str, proposed: Mapping[str, Any]) -> None:
    """Replace a profile's section in a settings file, and write its stop shingles beside the file.

    A missing file is written with servers to replace. Other sections and comments stay as they are; a file that is no
    longer valid is not written.

    Args:
        path: Settings file.
        profile: Profile name.
        proposed: ``toml`` is the section; ``stop_shingles`` the content of its file, or None.

    Raises:
        SettingsError: The new settings are not valid.
        OSError: A file cannot be written.
    """
    text = path.read_text(encoding="utf-8") if path.exists() else SERVERS
    section, files = str(proposed["toml"]), [str(path)]
    if proposed["stop_shingles"] is not None:
        section = "\n".join(line for line in section.split("\n") if not line.startswith("stop_shingles = "))
    _write(path, with_section(text, profile, section))
    if proposed["stop_shingles"] is not None:
        stops = path.absolute().with_name(STOPS_FILE)
        _write(stops, proposed["stop_shingles"], check=False)
        _write(path, with_section(text, profile, f"{section}\nstop_shingles = {json.dumps(str(stops))}"))
        files.append(str(stops))
    say(f"written: {', '.join(files)}")


def with_section(text: str, profile: str, section: str) -> str:
    """Return a settings file with a profile's section replaced, or added at the end."""
    heading = re.compile(rf"^\[profiles\.(?:{re.escape(profile)}|\"{re.escape(profile)}\")\][^\n]*\n", re.MULTILINE)
    found = heading.search(text)
    if found is None:
        return f"{text.rstrip()}\n\n{section}\n"
    following = re.compile(r"^\[", re.MULTILINE).search(text, found.end())
    rest = "" if following is None else f"\n{text[following.start() :]}"
    return f"{text[: found.start()]}{section}\n{rest}"


def _write(path: Path, text: str, *, check: bool = True) -> None:
    """Write a file as a whole, with the rights of the file that it replaces; ``check``: only valid settings."""
    descriptor, name = tempfile.mkstemp(dir=path.absolute().parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        if check:
            Settings.load(Path(name))
        mode = path.stat().st_mode & 0o777 if path.exists() else 0o644
        Path(name).chmod(mode)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
