"""Options ``--config`` and ``--set`` of commands with servers, the parser of ``--since``, and loading of settings."""

import shlex
import time
from collections.abc import Mapping
from contextvars import ContextVar
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from streamdedup.errors import SettingsError
from streamdedup.settings import Settings, settings_file
from streamdedup.settings.base import is_secret
from streamdedup.settings.kinds import parse_duration
from streamdedup.settings.schema import field_at

#: ``--config`` and ``--set`` of the settings that were loaded last, for commands proposed to the user.
_options_in_use: ContextVar[tuple[str, ...]] = ContextVar("options_in_use", default=())


def parse_since(text: str) -> float:
    """Parse ``--since`` as seconds since the epoch: a time (without a zone: local), or a duration before now."""
    try:
        return time.time() - parse_duration(text)
    except ValueError:
        pass
    try:
        return datetime.fromisoformat(text.strip()).timestamp()
    except (ValueError, OverflowError):
        raise SettingsError(
            f"--since {text}: must be a time, such as 2026-05-01T09:00, or how long ago, such as 2h"
        ) from None


ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config", "-c", metavar="FILE", readable=False, help="Settings file (TOML); default: $STREAMDEDUP_CONFIG."
    ),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Override one setting of file and environment: --set kafka.batch_records=1000",
    ),
]


def load_settings(
    config: Path | None, assignments: list[str] | None = None, overrides: Mapping[str, str] | None = None
) -> Settings:
    """Load settings, and remember ``--config`` and ``--set`` for ``with_same_settings``.

    ``overrides`` are settings, by dotted key, that the command sets itself; ``with_same_settings`` leaves them out.
    """
    parsed, mistakes = parse_assignments(assignments or [])
    try:
        settings = Settings.load(config, parsed | dict(overrides or {}))
    except SettingsError as error:
        raise SettingsError("\n".join([*mistakes, str(error)])) from error
    if mistakes:
        raise SettingsError("\n".join(mistakes))
    file = settings_file(config)
    config_words = [] if file is None else ["--config", str(file.absolute())]
    set_words = [word for text in assignments or () for word in ("--set", text)]
    _options_in_use.set((*config_words, *set_words))
    return settings


def with_same_settings(*words: str) -> str:
    """Return a command line with the last loaded options, in which ``parse_assignments`` allows no secret."""
    return shlex.join(["streamdedup", *words, *_options_in_use.get()])


def parse_assignments(assignments: list[str]) -> tuple[dict[str, str], list[str]]:
    """Parse ``KEY=VALUE`` texts; return the values by key, and one line per mistake: a text without ``=``, or a secret.

    A secret is a mistake, because all users can list processes. Its value is returned with the other ones, so that the
    remaining checks of the settings still run; no mistake repeats the value.
    """
    parsed: dict[str, str] = {}
    mistakes: list[str] = []
    for number, text in enumerate(assignments, 1):
        key, equals, value = text.partition("=")
        key = key.strip()
        if not equals or not key:
            mistakes.append(f"--set (number {number}): not KEY=VALUE, as in kafka.batch_records=1000")
            continue
        if _is_secret(key, value):
            mistakes.append(f"--set {key}: a secret, and every user can list the command line; use {key}_file")
        parsed[key] = value
    return parsed, mistakes


def _is_secret(key: str, value: str) -> bool:
    """Return whether an assignment holds a secret; a URL without a password does not."""
    declared = field_at(tuple(key.split(".")))
    # redis.url is declared as a secret because a URL may have a password, before an "@".
    return declared is not None and is_secret(declared) and (key != "redis.url" or "@" in value)
