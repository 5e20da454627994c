"""Reads settings from one TOML file, the environment and the command line; the later source replaces the earlier.

pydantic-settings 2.16 does not replace this module: it ignores unknown variables and an absent settings file, and has
neither profiles with a hyphen in their name nor secrets in named files.
"""

import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from streamdedup.errors import SettingsError
from streamdedup.settings.base import is_file_path, keys_of, secrets_of
from streamdedup.settings.files import read_secret, read_utf8
from streamdedup.settings.schema import PREFIX, SEPARATOR, KeyPath, describe_unknown, field_at, tables

#: Variable that names the settings file.
CONFIG_VARIABLE = "STREAMDEDUP_CONFIG"
#: Characters that would break a line or write into a terminal.
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")
_UNDERSCORES = re.compile("_+")
#: First line of the mistakes if keys are missing and no file is named.
_NO_FILE = f"no settings file; name one with --config or {CONFIG_VARIABLE}"


@dataclass(slots=True)
class Sources:
    """The values from all sources together, by section and key, not checked yet; and the mistakes, one line each.

    ``settled`` are keys of which no further mistake is reported. ``is_unread``: the file could not be read. Without
    ``needs_servers`` the sections of servers may lack keys, and no secret is read.
    """

    tree: dict[str, Any] = field(default_factory=dict)
    mistakes: list[str] = field(default_factory=list)
    settled: set[KeyPath] = field(default_factory=set)
    has_file: bool = False
    is_unread: bool = False
    needs_servers: bool = True

    def is_checked(self, path: KeyPath) -> bool:
        """Return whether absent keys and contradictions of a table, or of the whole tree, are mistakes."""
        # The path of the whole tree is (): with contradictions between sections only if all sections are needed.
        return not self.is_unread and (self.needs_servers or path[:1] == ("profiles",))

    def assign(self, path: KeyPath, value: object) -> None:
        """Set or replace one value, unless the file has a value in place of a table, which the validation refuses."""
        table = self.tree
        for step in path[:-1]:
            subtable = table.setdefault(step, {})
            if not isinstance(subtable, dict):
                return
            table = subtable
        table[path[-1]] = value

    def report(self, path: KeyPath, text: str, item: str = "") -> None:
        """Add a mistake about a key, or an item of its list (``[2]``), unless the key is settled."""
        if path not in self.settled:
            self.report_line(f"{'.'.join(path)}{item}: {text}")

    def report_missing(self, path: KeyPath, needed: str) -> None:
        """Add the mistake for an absent key, unless absent keys of its table are no mistakes."""
        if not self.is_checked(path):
            return
        if not self.has_file and _NO_FILE not in self.mistakes:
            self.mistakes.insert(0, _NO_FILE)
        self.report(path, f"is missing; needed: {needed}")

    def report_line(self, line: str) -> None:
        """Add a mistake whose text names its place."""
        self.mistakes.append(_CONTROLS.sub(" ", line))


def settings_file(path: Path | None, environ: Mapping[str, str] | None = None) -> Path | None:
    """Return the settings file: ``path`` from the command line, else the file that STREAMDEDUP_CONFIG names, if any."""
    name = (os.environ if environ is None else environ).get(CONFIG_VARIABLE)
    return Path(name) if name and path is None else path


def read_sources(
    path: Path | None, overrides: Mapping[str, Any] | None, environ: Mapping[str, str] | None, *, needs_servers: bool
) -> Sources:
    """Read file, environment and overrides, the later over the earlier, and then the files that hold secrets."""
    if environ is None:
        environ = os.environ
    sources = Sources(needs_servers=needs_servers)
    path = settings_file(path, environ)
    if path is not None:
        sources.has_file = True
        _read_file(sources, path)
    _read_environment(sources, environ)
    for nested_path, value in _leaves(overrides or {}):
        sources.assign(_undotted(nested_path), value)
    if needs_servers:
        _read_secrets(sources)
    return sources


def _read_file(sources: Sources, path: Path) -> None:
    problem = ""
    try:
        tree = tomllib.loads(read_utf8(path, must_be_regular=False))
        leaves = list(_leaves(tree))
    except RecursionError:
        problem = "is nested too deeply"
    except tomllib.TOMLDecodeError as error:
        problem = f"is not TOML: {error}"
    except ValueError as error:
        problem = str(error)
    if problem:
        sources.report_line(f"{path}: {problem}")
        sources.is_unread = True
        return
    sources.tree = tree
    for key_path, value in leaves:
        declared = field_at(key_path)
        if declared is not None and isinstance(value, str) and is_file_path(declared, value):
            # A relative path is relative to the folder of the settings file.
            sources.assign(key_path, str(path.parent / value))


def _undotted(path: KeyPath) -> KeyPath:
    """Split dotted names: overrides may be dotted, nested or both."""
    return tuple(".".join(path).split("."))


def _leaves(tree: Mapping[str, Any], above: KeyPath = ()) -> Iterator[tuple[KeyPath, Any]]:
    """Yield path and value for every leaf except None, which only overrides have: it counts as absent."""
    for key, value in tree.items():
        path = (*above, key)
        # A mapping at a declared key, such as ``op_values``, is the value of the key.
        if isinstance(value, Mapping) and field_at(_undotted(path)) is None:
            yield from _leaves(value, path)
        elif value is not None:
            yield path, value


def _read_environment(sources: Sources, environ: Mapping[str, str]) -> None:
    for name in sorted(environ):
        if not name.startswith(PREFIX) or name == CONFIG_VARIABLE:
            continue
        path = _path_of(name, sources.tree)
        if field_at(path) is None:
            similar = _similar_variable(name, sources.tree)
            sources.report_line(f"{name}: " + (f"did you mean {similar}?" if similar else describe_unknown(path)))
        elif value := environ[name]:  # an empty variable counts as absent
            sources.assign(path, value)
            if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'":
                sources.report(path, f"has {value[0]} around its value, as an env file leaves them; remove both")
                sources.settled.add(path)


def _similar_variable(name: str, tree: Mapping[str, Any]) -> str | None:
    """Return the variable of a key that differs from ``name`` in the number of underscores alone."""
    for above, model, _ in tables(tree):
        for key in keys_of(model):
            variable = PREFIX + SEPARATOR.join((*above, key)).upper().replace("-", "_")
            if _UNDERSCORES.sub("_", variable) == _UNDERSCORES.sub("_", name):
                return variable
    return None


def _path_of(name: str, tree: Mapping[str, Any]) -> KeyPath:
    """Return the path that a variable names, such as ``STREAMDEDUP_KAFKA__GROUP_ID``, also if no such key exists."""
    section, *steps = name.removeprefix(PREFIX).lower().split(SEPARATOR)
    if section == "profiles" and len(steps) > 1:
        return section, _profile_of(SEPARATOR.join(steps[:-1]), tree), steps[-1]  # a name may contain the separator
    return section, *steps


def _profile_of(name: str, tree: Mapping[str, Any]) -> str:
    """Return the profile called ``name``, else the one with hyphens where ``name`` has underscores, else ``name``."""
    profiles = tree.get("profiles")
    names = list(profiles) if isinstance(profiles, dict) else []
    return name if name in names else next((profile for profile in names if profile.replace("-", "_") == name), name)


def _read_secrets(sources: Sources) -> None:
    """Set each secret whose file is named; the key of the file stays, for ``config show`` and later reads."""
    for above, model, table in tables(sources.tree):
        for key in secrets_of(model):
            if isinstance(table, dict) and isinstance(table.get(f"{key}_file"), str):
                _read_secret(sources, table, (*above, key))


def _read_secret(sources: Sources, table: dict[str, Any], secret_path: KeyPath) -> None:
    *above, key = secret_path
    file_path = (*above, f"{key}_file")
    try:
        if key in table:
            raise SettingsError(f"given beside {'.'.join(secret_path)}; give one of them")  # noqa: TRY301  reported below
        table[key] = read_secret(Path(table[f"{key}_file"]))
    except SettingsError as error:
        sources.report(file_path, str(error))
        sources.settled |= {secret_path, file_path}
