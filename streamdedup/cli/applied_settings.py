"""Writes recommended settings into a settings file, for ``streamdedup tune --apply``.

Only the section of one profile is replaced, as text, so that comments and other sections stay.
"""

import itertools
import os
import re
import tempfile
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from streamdedup.cli.output import tell_prefixed
from streamdedup.errors import SettingsError
from streamdedup.settings import Settings
from streamdedup.tuning.advice import SERVERS


def check_target(path: Path, profile: str, config: Path | None) -> None:
    """Check, before ``tune`` begins, that ``apply_section`` will be able to write the section of a profile.

    If the file already has the profile, ``config`` must be this file, and the profile must be below one heading.
    """
    if path.is_symlink():  # a new file would replace the link
        raise SettingsError(f"--apply {path}: is a symbolic link; name the file behind it, {path.resolve()}")
    try:
        text = _text_or_placeholders(path)
        profiles = tomllib.loads(text).get("profiles")
    except (ValueError, RecursionError) as error:  # also of a text that is not UTF-8
        reason = "nested too deeply" if isinstance(error, RecursionError) else error
        raise SettingsError(f"--apply {path}: no TOML: {reason}") from error
    has_profile = isinstance(profiles, dict) and profile in profiles
    # The recommendation is made from the profile in `config`. In another file it would replace a different profile.
    if has_profile and (config is None or not path.samefile(config)):
        raise SettingsError(
            f"--apply {path}: the file has a profile {profile!r}, which the recommendation would replace: take the "
            f"profile from it with --config {path}, or name another file"
        )
    if has_profile and _section_span(text, profile) is None:
        raise SettingsError(
            f"--apply {path}: write the profile below one heading, [profiles.{profile}], and tables as {{key = value}}"
        )
    if not has_profile:  # a new profile is validated with the least section
        text = with_section(text, profile, f'[profiles.{profile}]\ntopics = ["{profile}"]')
    # Validate a copy in the folder of the file, because the settings may have relative paths.
    with _temporary_file(path, text) as temporary:
        Settings.load(temporary, environ={}, needs_servers=False)


def apply_section(path: Path, profile: str, proposed: Mapping[str, Any]) -> None:
    """Write the proposed settings (``tuning.results``) into a settings file, and their stop shingles beside the file.

    A missing file is created with placeholder addresses of servers. Settings that are not valid are not written.
    """
    written_files = [path]
    if proposed["stop_shingles"] is not None:
        stops = Path(proposed["stops_path"])  # written first, because the validation of the settings reads it
        with _temporary_file(stops, proposed["stop_shingles"]) as temporary:
            temporary.replace(stops)
        written_files.append(stops)
    with _temporary_file(path, with_section(_text_or_placeholders(path), profile, proposed["toml"])) as temporary:
        Settings.load(temporary, environ={}, needs_servers=False)
        temporary.replace(path)
    tell_prefixed(f"written: {', '.join(map(str, written_files))}")


def with_section(text: str, profile: str, section: str) -> str:
    """Replace a profile's section, or add it at the end; comments and blank lines before the next section stay."""
    if (span := _section_span(text, profile)) is None:  # absent: ``check_target`` refuses a section in parts
        return f"{text.rstrip()}\n\n{section}\n"
    start, end = span
    return f"{text[:start]}{section}\n{text[end:]}"


def _section_span(text: str, profile: str) -> tuple[int, int] | None:
    """Return begin and end of a profile's only section, without comments and blank lines at its end, or None."""
    # The end of the text ends the last section, as a heading would.
    headings = [*_headings(text), (len(text), {})]
    # Another heading, such as [profiles.PROFILE.op_values], has a part of the section.
    if sum(profile in names.get("profiles", ()) for _, names in headings) > 1:
        return None
    for (start, names), (end, _) in itertools.pairwise(headings):
        if names == {"profiles": {profile: {}}}:  # the heading [profiles.PROFILE]
            lines = re.findall(r"[^\n]*\n|[^\n]+$", text[start:end])
            while len(lines) > 1 and (not lines[-1].strip() or lines[-1].lstrip().startswith("#")):
                lines.pop()
            return start, start + sum(map(len, lines))
    return None


def _headings(text: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the offset of each heading, and the heading parsed alone: ``{"a": {"b": {}}}`` for ``[a."b"]``."""
    for line in re.finditer(r"^[ \t]*\[[^\n]*", text, re.MULTILINE):
        # A line in an array or a multi-line text may also begin with a bracket; the text before it is no valid TOML.
        with suppress(tomllib.TOMLDecodeError):
            tomllib.loads(text[: line.start()])
            yield line.start(), tomllib.loads(line[0])


def _text_or_placeholders(path: Path) -> str:
    """Return the text of a settings file; for a missing file, sections with placeholder addresses of servers."""
    return path.read_text(encoding="utf-8-sig") if path.exists() else SERVERS


@contextmanager
def _temporary_file(path: Path, text: str) -> Iterator[Path]:
    """Yield a new file with ``text`` in the folder of ``path``, with the permissions of ``path``.

    At the end the file is deleted unless the caller has renamed it. A ``SettingsError`` names ``path`` instead.
    """
    descriptor, name = tempfile.mkstemp(dir=path.absolute().parent, prefix=f".{path.name}.")
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        temporary.chmod(path.stat().st_mode & 0o777 if path.exists() else 0o644)
        yield temporary
    except SettingsError as error:
        raise SettingsError(str(error).replace(str(temporary), f"{path} with the new section")) from error
    finally:
        temporary.unlink(missing_ok=True)
