"""Profiles for the comparison of files: from a settings file, or built in."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from streamdedup.errors import SettingsError
from streamdedup.settings.profile import Profile
from streamdedup.settings.root import Settings

#: Settings of the profiles that need no settings file.
_PRESETS: Final[Mapping[str, Mapping[str, object]]] = {
    "articles": {"shingle_unit": "word"},
    "reviews": {"shingle_unit": "char"},
}
#: Settings that every settings file has, and that no comparison of files uses.
_SERVERS: Final = {"kafka.bootstrap_servers": "localhost:9092", "redis.url": "redis://localhost:6379/0"}


def named_profile(config: Path | None, name: str, overrides: Mapping[str, Any]) -> Profile:
    """Return a profile from a settings file, or a preset, with overrides from the command line.

    Raises:
        SettingsError: There is no such profile, or an override is wrong.
    """
    changes = {f"profiles.{name}.{key}": value for key, value in overrides.items() if value is not None}
    if config is not None:
        settings = Settings.load(config, changes)
        if name not in settings.profiles:
            raise SettingsError(f"{config} has no profile {name}; it has {', '.join(sorted(settings.profiles))}")
        return settings.profiles[name]
    if name not in _PRESETS:
        raise SettingsError(f"--profile {name}: without --config it is one of {', '.join(_PRESETS)}")
    preset = {f"profiles.{name}.{key}": value for key, value in _PRESETS[name].items()}
    needed = _SERVERS | {f"profiles.{name}.topics": "scan"}
    return Settings.load(None, needed | preset | changes, environ={}).profiles[name]
