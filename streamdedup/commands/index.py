"""``streamdedup index``: operate on the index in Redis."""

from typing import Annotated

import typer

from streamdedup.commands.assembly import connect_store, kafka_options, redis_store
from streamdedup.commands.config import ConfigOption, SetOption, load_settings
from streamdedup.position import Partition
from streamdedup.service.kafka import check_topics

index = typer.Typer(no_args_is_help=True, help="Operate on the index in Redis.")


@index.callback()
def _group() -> None:
    """Make a group of the single command, so that it is called by its name."""


@index.command()
def unfence(
    config: ConfigOption = None,
    assignments: SetOption = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Let a consumer group that was deleted, and counts its generations anew, write to the index again.

    Stop all daemons of the group first: one that is still running could no longer be told from its successor.

    Example:  streamdedup index unfence --config streamdedup.toml
    """
    settings = load_settings(config, assignments)
    if not yes:
        typer.confirm(f"Are all daemons of the group {settings.kafka.group_id} stopped?", abort=True, err=True)
    counts = check_topics(kafka_options(settings), ())
    with connect_store(settings) as servers:
        for name, profile in settings.profiles.items():
            store = redis_store(settings, name, servers)
            for topic in profile.topics:
                for number in range(counts[topic]):
                    store.unfence(Partition(topic, number))
                typer.echo(f"{name}: {topic}: {counts[topic]} partitions unfenced")


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.add_typer(index, name="index")
