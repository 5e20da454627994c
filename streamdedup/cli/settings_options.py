"""Options of the commands that read settings, and the completion of names from the settings file."""

from pathlib import Path
from typing import Annotated

import typer

from streamdedup.corpora import shown_name
from streamdedup.errors import SettingsError
from streamdedup.settings import Settings
from streamdedup.settings.base import is_secret
from streamdedup.settings.kafka import SERVERS_ALLOWED, TOPIC_ALLOWED, check_server, is_topic
from streamdedup.settings.schema import field_at
from streamdedup.settings.validation import shown


def check_bootstrap_servers(servers: str | None) -> str | None:
    """Return the value of ``BootstrapServersOption`` without blanks.

    Raises:
        SettingsError: A part is not ``host:port``.
    """
    if servers is None:
        return None
    try:
        return ",".join(check_server(name.strip()) for name in servers.split(","))
    except ValueError:
        raise SettingsError(
            f"--bootstrap-servers {shown(servers)}: not valid; allowed: {SERVERS_ALLOWED}, with commas between them"
        ) from None


def check_topic(option: typer.CallbackParam, name: str | None) -> str | None:
    """Return the value of an option that names a topic.

    With a name that is not UTF-8 the Kafka client (kafka-python 3.0) would never answer.

    Raises:
        SettingsError: Kafka accepts no such name.
    """
    if name is None or is_topic(name):
        return name
    given = shown(shown_name(name))
    raise SettingsError(f"{option.opts[0]} {given}: not valid; allowed: {TOPIC_ALLOWED}")


def profile_names(ctx: typer.Context) -> list[str]:
    """Complete names of profiles: those of the settings file, or the built-in ones."""
    settings = _settings_of(ctx)
    return ["articles", "reviews"] if settings is None else sorted(settings.profiles)


def topic_names(ctx: typer.Context) -> list[str]:
    """Complete input topics of the settings file."""
    settings = _settings_of(ctx)
    return [] if settings is None else sorted(t for profile in settings.profiles.values() for t in profile.topics)


def _settings_of(ctx: typer.Context) -> Settings | None:
    """Return the settings of an incomplete command line; None, without a message, if they are missing or wrong."""
    config = ctx.params.get("config")
    try:
        return Settings.load(None if config is None else Path(config))
    except SettingsError:
        return None


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
BootstrapServersOption = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-servers",
        "-b",
        metavar="SERVERS",
        callback=check_bootstrap_servers,
        help="Brokers as host:port, instead of settings.",
    ),
]


def load_settings(config: Path | None, assignments: list[str] | None = None) -> Settings:
    """Load the settings of ``ConfigOption`` and ``SetOption``.

    Raises:
        SettingsError: Settings are wrong, or the command line holds a secret; one line per mistake.
    """
    parsed, mistakes = parse_assignments(assignments or [])
    settings = None
    try:
        settings = Settings.load(config, parsed)
    except SettingsError as error:
        mistakes.append(str(error))
    if mistakes or settings is None:
        raise SettingsError("\n".join(mistakes))
    return settings


def parse_assignments(assignments: list[str]) -> tuple[dict[str, str], list[str]]:
    """Parse ``KEY=VALUE`` texts.

    A secret is a mistake, because all users can list processes. Its value is returned with the others, so that the
    remaining checks of the settings still run; no mistake repeats the value.

    Returns:
        Values by key, and one line per mistake: a text without ``=``, or a secret.
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
    return declared is not None and is_secret(declared) and (key != "redis.url" or "@" in value)
