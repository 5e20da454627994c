"""``streamdedup config``: check settings, show the effective ones.

Also the options with which every command takes its settings.
"""

from pathlib import Path
from typing import Annotated

import typer

from streamdedup.errors import SettingsError
from streamdedup.settings import Settings, describe_banding, show
from streamdedup.settings.base import is_secret
from streamdedup.settings.kafka import SERVERS_ALLOWED, check_server
from streamdedup.settings.mistakes import shown
from streamdedup.settings.schema import field_at
from streamdedup.settings.units import counted

#: Option of every command that reads settings: the file.
ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", "-c", metavar="FILE", help="Settings file (TOML); else the one STREAMDEDUP_CONFIG names."),
]
#: Option of every command that reads settings: single values.
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="One setting, over file and environment: --set kafka.batch_records=1000"
    ),
]


def check_bootstrap_servers(servers: str | None) -> str | None:
    """Return the value of ``BootstrapServersOption``.

    Raises:
        SettingsError: Something in it is no server.
    """
    if servers is None:
        return None
    try:
        return ",".join(check_server(name.strip()) for name in servers.split(","))
    except ValueError:
        raise SettingsError(
            f"--bootstrap-servers {shown(servers)}: not valid; allowed: {SERVERS_ALLOWED}, with commas between them"
        ) from None


#: Option of commands that need no more of the settings than the brokers.
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
    """Load settings for a command.

    Args:
        config: Value of ``ConfigOption``.
        assignments: Values of ``SetOption``.

    Raises:
        SettingsError: Something is wrong with them, or the command line holds a secret.
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

    A secret is a mistake, because every user can list processes. Its value is returned like the others, so that the
    settings can be checked for further mistakes; none of these repeats it.

    Args:
        assignments: The texts.

    Returns:
        Values by key, and one line for each mistake: a text without ``=``, or a secret.
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
    """Tell whether an assignment would put a secret on the command line; a URL without a password is none."""
    declared = field_at(tuple(key.split(".")))
    return declared is not None and is_secret(declared) and (key != "redis.url" or "@" in value)


def check(config: ConfigOption = None, assignments: SetOption = None) -> None:
    """Check settings without connecting anywhere; exit code 2 and a line for each mistake.

    Example: streamdedup config check --config streamdedup.toml
    """
    settings = load_settings(config, assignments)
    typer.echo(f"settings are valid: {counted(len(settings.profiles), 'profile')}, {settings.kafka.delivery} delivery")
    for name, profile in settings.profiles.items():
        typer.echo(f"profile {name}: topics {', '.join(profile.topics)}")
        for line in describe_banding(profile):
            typer.echo(f"  {line}")
    for hint in settings.hints():
        typer.echo(f"hint: {hint}")


def show_settings(config: ConfigOption = None, assignments: SetOption = None) -> None:
    """Show the settings in effect, defaults included, as TOML; secrets are shown as ***.

    Example: streamdedup config show --config streamdedup.toml --set profiles.articles.threshold=0.7
    """
    typer.echo(show(load_settings(config, assignments)), nl=False)


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    group = typer.Typer(no_args_is_help=True, help="Check settings, or show the effective ones.")
    group.command("check")(check)
    group.command("show")(show_settings)
    app.add_typer(group, name="config")
