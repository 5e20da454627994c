"""Profiles for commands on files, such as ``scan``, ``evaluate`` and ``tune``: from a settings file, or built in."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from streamdedup.errors import SettingsError
from streamdedup.settings.examples import EXAMPLES
from streamdedup.settings.profile import Profile
from streamdedup.settings.root import Settings
from streamdedup.settings.sources import read_sources

#: Settings of the profiles that need no settings file.
_PRESETS: Final[Mapping[str, Mapping[str, object]]] = {
    "articles": {"shingle_unit": "word"},
    "reviews": {"shingle_unit": "char"},
    "news": EXAMPLES["news"].toml_values,
}


def default_profile_name(config: Path | None) -> str:
    """Return the profile's name for a command without ``--profile``: the only one of the file, else ``articles``."""
    profiles = {} if config is None else _unvalidated_profiles(config)
    return next(iter(profiles)) if len(profiles) == 1 else "articles"


def named_profile(config: Path | None, name: str, overrides: Mapping[str, Any]) -> Profile:
    """Return a profile of the settings file ``config``, or a preset without a file, with overrides by key."""
    changes = {f"profiles.{name}.{key}": value for key, value in overrides.items() if value is not None}
    if config is not None:
        if name not in _unvalidated_profiles(config):
            changes = {}  # the overrides would make the profile, and the error below would not be raised
        settings = Settings.load(config, changes, needs_servers=False)
        if name not in settings.profiles:
            names = ", ".join(sorted(settings.profiles))
            raise SettingsError(f"{config} has no profile {name}; name one with --profile: {names}")
        return settings.profiles[name]
    if name not in _PRESETS:
        raise SettingsError(f"--profile {name}: without --config it is one of {', '.join(_PRESETS)}")
    preset = {f"profiles.{name}.{key}": value for key, value in _PRESETS[name].items()}
    # The topic is a placeholder; the section that ``tune`` prints shows it.
    topics = {f"profiles.{name}.topics": "scan"}
    # Environment variables are for a daemon, so they do not change a preset.
    return Settings.load(None, topics | preset | changes, environ={}, needs_servers=False).profiles[name]


def _unvalidated_profiles(config: Path) -> dict[str, Any]:
    profiles = read_sources(config, overrides=None, environ=None, needs_servers=False).tree.get("profiles")
    return profiles if isinstance(profiles, dict) else {}
