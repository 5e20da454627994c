"""``streamdedup topics``: the topics that the daemon needs."""

from typing import Annotated

import typer

from streamdedup.commands.assembly import kafka_options
from streamdedup.commands.config import ConfigOption, SetOption, load_settings
from streamdedup.service.kafka import create_topics

topics = typer.Typer(no_args_is_help=True, help="Create the topics that the daemon needs.")


@topics.callback()
def _group() -> None:
    """Make a group of the single command, so that it is called by its name."""


@topics.command()
def create(
    config: ConfigOption = None,
    assignments: SetOption = None,
    partitions: Annotated[int, typer.Option(min=1, help="Partitions of each topic.")] = 4,
    replication: Annotated[int, typer.Option(min=1, help="Copies of each partition; 3 where nothing may be lost.")] = 1,
) -> None:
    """Create the input topics, the duplicates topic and the dead-letter topic, as far as they are missing.

    Example:  streamdedup topics create --config streamdedup.toml --partitions 6 --replication 3
    """
    settings = load_settings(config, assignments)
    inputs = [topic for profile in settings.profiles.values() for topic in profile.topics]
    names = [*inputs, settings.kafka.duplicates_topic, settings.kafka.dead_letter_topic]
    outcome = create_topics(kafka_options(settings), dict.fromkeys(names, partitions), replication)
    for name in names:
        typer.echo(f"{name}: {'created' if name in outcome.created else 'is there already'}")


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.add_typer(topics, name="topics")
