"""``streamdedup config``: check settings, show the effective ones, or print an example; needs no server."""

from typing import Annotated

import typer

from streamdedup.cli.output import tell
from streamdedup.cli.settings_options import ConfigOption, SetOption, load_settings
from streamdedup.counts import counted
from streamdedup.errors import SettingsError
from streamdedup.settings import describe_banding, describe_suppression, show
from streamdedup.settings.presets import EXAMPLES, example_section

#: The group of commands; in a command, ``config`` is the settings file.
config = typer.Typer(no_args_is_help=True, help="Check settings, show the effective ones, or print an example.")


@config.command()
def check(config: ConfigOption = None, assignments: SetOption = None) -> None:
    """Check settings without any connection; a mistake gives exit code 2 and a line of its own.

    Example: streamdedup config check --config streamdedup.toml
    """
    settings = load_settings(config, assignments)
    tell(f"settings are valid: {counted(len(settings.profiles), 'profile')}, {settings.kafka.delivery} delivery")
    for name, profile in settings.profiles.items():
        tell(f"profile {name}: topics {', '.join(profile.topics)}")
        for line in (*describe_banding(profile), *describe_suppression(profile)):
            tell(f"  {line}")
    for hint in settings.hint_lines():
        tell(f"hint: {hint}")


@config.command("show")
def show_settings(config: ConfigOption = None, assignments: SetOption = None) -> None:
    """Show the effective settings, defaults included, as TOML; secrets are shown as ***.

    Example: streamdedup config show --config streamdedup.toml --set profiles.articles.threshold=0.7
    """
    typer.echo(show(load_settings(config, assignments)), nl=False)


@config.command()
def example(name: Annotated[str, typer.Argument(help=f"Kind of texts: {', '.join(EXAMPLES)}.")]) -> None:
    """Print a profile for a kind of texts, to paste into a settings file.

    Example: streamdedup config example news
    """
    if name not in EXAMPLES:
        raise SettingsError(f"{name}: there is no such example; there are {', '.join(EXAMPLES)}")
    typer.echo(example_section(name), nl=False)
