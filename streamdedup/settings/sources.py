"""Where settings come from: one TOML file, below the environment, below the command line.

The only reader of the environment in the package. What is read is a tree of plain values and, beside it, where each
came from; what the values may be is the sections' business.
"""

import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from streamdedup.settings.base import keys_of, names_file, secrets_of
from streamdedup.settings.units import read_utf8

#: Beginning of the variables that are ours.
PREFIX = "STREAMDEDUP_"
#: What separates section, profile and key in a variable's name.
SEPARATOR = "__"
#: Variable that names the settings file.
CONFIG_VARIABLE = "STREAMDEDUP_CONFIG"
#: Variable that makes the daemon end as if killed.
CRASH_VARIABLE = "STREAMDEDUP_CRASH_AT"
#: Variables that are no settings, by what they are for; the last is a beginning.
NOT_SETTINGS = {
    CONFIG_VARIABLE: "the settings file, where `--config` does not say",
    CRASH_VARIABLE: "the point at which the daemon ends as if killed; for tests alone",
}
#: Beginning of the variables that the project's own tests read.
TEST_PREFIX = "STREAMDEDUP_TEST_"
#: Variables that Kubernetes sets in every pod when a service is called ``streamdedup`` or ``streamdedup-...``.
_SERVICE_LINK = re.compile(
    r"STREAMDEDUP_([A-Z0-9_]+_)?"
    r"(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)"
)

#: The way to a value: section and key, or ``profiles``, profile and key.
Steps = tuple[str, ...]


@dataclass(slots=True)
class Sources:
    """What all sources together say.

    Attributes:
        tree: Values by section and key, as they came.
        origins: Name of the variable, for values that came from the environment.
        mistakes: What is wrong with the sources themselves, one line each.
        settled: Ways whose mistake is among them already.
        has_file: Whether there is a settings file.
        is_unread: Whether it could not be read, so that nothing is known of what it says.
    """

    tree: dict[str, Any] = field(default_factory=dict)
    origins: dict[Steps, str] = field(default_factory=dict)
    mistakes: list[str] = field(default_factory=list)
    settled: set[Steps] = field(default_factory=set)
    has_file: bool = False
    is_unread: bool = False

    def put(self, path: Steps, value: object) -> None:
        """Set one value, over one that is there; a value in the way of a section is left for the sections to refuse."""
        node = self.tree
        for step in path[:-1]:
            below = node.setdefault(step, {})
            if not isinstance(below, dict):
                return
            node = below
        node[path[-1]] = value


@dataclass(frozen=True, slots=True)
class Schema:
    """Which sections there are.

    Attributes:
        sections: Model of each plain section, by name.
        profile: Model of a profile.
    """

    sections: Mapping[str, type[BaseModel]]
    profile: type[BaseModel]

    def section_at(self, path: Steps) -> type[BaseModel] | None:
        """Return the model of the section that a path leads into, or None when there is none."""
        if len(path) == 3 and path[0] == "profiles":
            return self.profile
        return self.sections.get(path[0]) if len(path) == 2 else None

    def variables(self) -> Iterator[str]:
        """Yield the variable of every key; in those of profiles, NAME stands for the profile."""
        for name, section in self.sections.items():
            yield from (variable_of((name, key)) for key in keys_of(section))
        yield from (variable_of(("profiles", "NAME", key)) for key in keys_of(self.profile))


def crash_point(environ: Mapping[str, str] | None = None) -> str | None:
    """Return the point at which the daemon shall end as if killed, or None.

    The environment alone can ask for it, so that no settings file carries it into service.

    Args:
        environ: The environment; the process's own if None.
    """
    return (os.environ if environ is None else environ).get(CRASH_VARIABLE) or None


def variable_of(path: Steps) -> str:
    """Return the environment variable of a key."""
    return PREFIX + SEPARATOR.join(step.upper().replace("-", "_") for step in path)


def read_sources(
    schema: Schema, path: Path | None, overrides: Mapping[str, Any], environ: Mapping[str, str]
) -> Sources:
    """Read file, environment and overrides, the later over the earlier, and then the files that hold secrets.

    Args:
        schema: The sections there are.
        path: The settings file; None for the one named by STREAMDEDUP_CONFIG, or none at all.
        overrides: Values by dotted key, or nested; None stands for "not given".
        environ: The environment.
    """
    sources = Sources()
    if path is None and environ.get(CONFIG_VARIABLE):
        path = Path(environ[CONFIG_VARIABLE])
    if path is not None:
        sources.has_file = True
        _read_file(sources, schema, path)
    _read_environment(sources, schema, environ)
    for dotted, value in _flatten(overrides):
        steps = tuple(".".join(dotted).split("."))
        sources.put(steps, value)
        sources.origins.pop(steps, None)
    for name in schema.sections:
        # So that a section left out is answered by the keys that it needs.
        sources.tree.setdefault(name, {})
    _read_secrets(sources, schema)
    return sources


def _read_file(sources: Sources, schema: Schema, path: Path) -> None:
    try:
        sources.tree = tomllib.loads(read_utf8(path))
    except tomllib.TOMLDecodeError as error:
        sources.mistakes.append(f"{path}: is not TOML: {error}")
        sources.is_unread = True
    except ValueError as error:
        sources.mistakes.append(f"{path}: {error}")
        sources.is_unread = True
    for steps, value in list(_flatten(sources.tree)):
        if isinstance(value, str) and _is_path(schema, steps, value):
            sources.put(steps, str(path.parent / value))


def _is_path(schema: Schema, steps: Steps, value: str) -> bool:
    """Tell whether a value is a path, which in the settings file counts from the file's own folder."""
    section = schema.section_at(steps)
    declared = keys_of(section).get(steps[-1]) if section else None
    return declared is not None and names_file(declared, value)


def _flatten(tree: Mapping[str, Any], above: Steps = ()) -> Iterator[tuple[Steps, Any]]:
    """Yield way and value of every leaf that is given."""
    for key, value in tree.items():
        path = (*above, key)
        if isinstance(value, Mapping):
            yield from _flatten(value, path)
        elif value is not None:
            yield path, value


def _read_environment(sources: Sources, schema: Schema, environ: Mapping[str, str]) -> None:
    for name in sorted(environ):
        if not name.startswith(PREFIX) or name in NOT_SETTINGS or name.startswith(TEST_PREFIX):
            continue
        if SEPARATOR not in name and _SERVICE_LINK.fullmatch(name):
            continue
        path = _path_of(name, schema, sources.tree)
        if path is None:
            sources.mistakes.append(f"{name}: unknown variable{_did_you_mean(name, schema)}")
        elif environ[name]:
            sources.put(path, environ[name])
            sources.origins[path] = name


def _path_of(name: str, schema: Schema, tree: Mapping[str, Any]) -> Steps | None:
    """Return the way to the key that a variable sets, or None when there is no such key."""
    section, _, rest = name.removeprefix(PREFIX).partition(SEPARATOR)
    if name != name.upper():
        return None
    if section != "PROFILES":
        path: Steps = (section.lower(), rest.lower())
    else:
        profile, _, key = rest.rpartition(SEPARATOR)
        path = ("profiles", _profile_called(profile.lower(), tree), key.lower())
    model = schema.section_at(path)
    return path if model is not None and path[-1] in keys_of(model) and path[-2] else None


def _profile_called(name: str, tree: Mapping[str, Any]) -> str:
    """Return the profile of the file that a variable means, in which a hyphen is written as an underscore."""
    profiles = tree.get("profiles")
    known = [profile for profile in profiles if profile.replace("-", "_") == name] if isinstance(profiles, dict) else []
    return name if name in known or not known else known[0]


def _did_you_mean(name: str, schema: Schema) -> str:
    known = list(schema.variables())
    section, _, rest = name.upper().removeprefix(PREFIX).partition(SEPARATOR)
    profile, _, _key = rest.rpartition(SEPARATOR)
    if section == "PROFILES" and profile:
        known = [variable.replace("NAME", profile, 1) if "__NAME__" in variable else variable for variable in known]
    close = get_close_matches(name.upper(), known, n=1, cutoff=0.8)
    return f"; did you mean {close[0]}?" if close else "; the documentation of the settings lists all"


def _read_secrets(sources: Sources, schema: Schema) -> None:
    """Replace each ``<key>_file`` of a secret by the secret it holds; the path stays beside it, to be shown."""
    profiles = sources.tree.get("profiles")
    names = profiles if isinstance(profiles, dict) else {}
    sections: list[tuple[Steps, type[BaseModel]]] = [((name,), model) for name, model in schema.sections.items()]
    sections += [(("profiles", name), schema.profile) for name in names]
    for above, model in sections:
        for key in secrets_of(model):
            _read_secret(sources, (*above, key), (*above, f"{key}_file"))


def _read_secret(sources: Sources, secret: Steps, file: Steps) -> None:
    node: Any = sources.tree
    for step in file[:-1]:
        node = node.get(step) if isinstance(node, dict) else None
    if not isinstance(node, dict) or not isinstance(node.get(file[-1]), str):
        return
    name = sources.origins.get(file, ".".join(file))
    problem = None
    if secret[-1] in node:
        problem = f"given beside {sources.origins.get(secret, '.'.join(secret))}; give one of them"
    else:
        try:
            node[secret[-1]] = read_utf8(Path(node[file[-1]])).rstrip("\r\n")
        except ValueError as error:
            problem = f"{node[file[-1]]} {error}"
        else:
            sources.origins[secret] = name
    if problem is not None:
        sources.mistakes.append(f"{name}: {problem}")
        sources.settled |= {secret, file}
