"""``streamdedup config``: check settings, or show the effective ones."""

import typer

from streamdedup.cli.settings_options import ConfigOption, SetOption, load_settings
from streamdedup.settings import describe_banding, describe_suppression, show
from streamdedup.settings.units import counted

config = typer.Typer(no_args_is_help=True, help="Check settings, or show the effective ones.")


@config.command()
def check(config: ConfigOption = None, assignments: SetOption = None) -> None:
    """Check settings without any connection; exit code 2 and one line per mistake.

    Example: streamdedup config check --config streamdedup.toml
    """
    settings = load_settings(config, assignments)
    typer.echo(f"settings are valid: {counted(len(settings.profiles), 'profile')}, {settings.kafka.delivery} delivery")
    for name, profile in settings.profiles.items():
        typer.echo(f"profile {name}: topics {', '.join(profile.topics)}")
        for line in (*describe_banding(profile), *describe_suppression(profile)):
            typer.echo(f"  {line}")
    for hint in settings.hints():
        typer.echo(f"hint: {hint}")


@config.command("show")
def show_settings(config: ConfigOption = None, assignments: SetOption = None) -> None:
    """Show the effective settings, defaults included, as TOML; secrets are shown as ***.

    Example: streamdedup config show --config streamdedup.toml --set profiles.articles.threshold=0.7
    """
    typer.echo(show(load_settings(config, assignments)), nl=False)
