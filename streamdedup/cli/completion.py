"""What the shell offers for options whose values stand in the settings file: names of profiles and of input topics."""

from pathlib import Path

import typer

from streamdedup.errors import SettingsError
from streamdedup.settings import Settings


def profile_names(ctx: typer.Context) -> list[str]:
    """Return the names of the profiles: those of the settings file, or those that need none."""
    settings = _settings(ctx)
    return ["articles", "reviews"] if settings is None else sorted(settings.profiles)


def topic_names(ctx: typer.Context) -> list[str]:
    """Return the input topics of the settings file."""
    settings = _settings(ctx)
    return [] if settings is None else sorted(t for profile in settings.profiles.values() for t in profile.topics)


def _settings(ctx: typer.Context) -> Settings | None:
    """Return the settings that the command line so far names, or None when there are none or they are wrong.

    A shell that is completing a line has no place for a message; the command itself will say what is wrong.
    """
    config = ctx.params.get("config")
    try:
        return Settings.load(None if config is None else Path(config))
    except SettingsError:
        return None
