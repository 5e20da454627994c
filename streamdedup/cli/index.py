"""``streamdedup index``: operate on the indexes in Redis."""

import json
from collections.abc import Sequence
from typing import Annotated

import typer

from streamdedup.cli.asking import YesOption, ask, refuse_unasked
from streamdedup.cli.assembly import connect_store, index_upkeep, kafka_options, redis_store
from streamdedup.cli.completion import profile_names
from streamdedup.cli.config import ConfigOption, SetOption, load_settings
from streamdedup.cli.index_rebuild import rebuild_indexes
from streamdedup.cli.index_status import collect_status, is_lost, render_status
from streamdedup.cli.members import refuse_members, refuse_while_daemons_run
from streamdedup.cli.progress import counting, measuring
from streamdedup.errors import EXIT_INDEX_LOST, SettingsError
from streamdedup.index.redis.connection import check_server, read_facts
from streamdedup.kafka import check_topics
from streamdedup.position import Partition
from streamdedup.settings import Settings
from streamdedup.settings.units import counted

index = typer.Typer(no_args_is_help=True, help="Operate on the index in Redis.")

#: Option of the commands that may work on some of the profiles.
ProfileOption = Annotated[
    list[str] | None,
    typer.Option(
        "--profile", "-p", metavar="NAME", help="Only this profile; may be repeated.", autocompletion=profile_names
    ),
]


def chosen_profiles(settings: Settings, names: Sequence[str] | None) -> list[str]:
    """Return the profiles to work on, each once: those named, or all.

    Raises:
        SettingsError: There is no profile of such a name.
    """
    for name in names or ():
        if name not in settings.profiles:
            known = ", ".join(sorted(settings.profiles))
            raise SettingsError(f"--profile {name}: the settings have no such profile; they have {known}")
    return list(dict.fromkeys(names or settings.profiles))


@index.command()
def status(
    config: ConfigOption = None,
    assignments: SetOption = None,
    profile: ProfileOption = None,
    exact: Annotated[
        bool, typer.Option("--exact", help="Walk over all keys: count documents and keys, and estimate their memory.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show what is in the index, how it fits the settings and Kafka, and how full the store is.

    Exit code 3 when an index is lost: offsets are committed, and the index does not know them.

    Example:  streamdedup index status --config streamdedup.toml --exact
    """
    settings = load_settings(config, assignments)
    names = chosen_profiles(settings, profile)
    with connect_store(settings) as servers, counting("counting keys") as on_keys:
        found = collect_status(settings, names, servers, on_keys if exact else None)
    if as_json:
        typer.echo(json.dumps(found, indent=2))
    else:
        for line in render_status(found):
            typer.echo(line)
    if is_lost(found):
        raise typer.Exit(EXIT_INDEX_LOST)


@index.command()
def drop(
    config: ConfigOption = None,
    assignments: SetOption = None,
    profile: ProfileOption = None,
    yes: YesOption = False,
    force: Annotated[
        bool, typer.Option("--force", help="Also while daemons run, or while Kafka does not say whether any do.")
    ] = False,
) -> None:
    """Delete the index of all profiles, or of some.

    Stop all daemons of the group first. Nothing in Kafka is changed.

    Example:  streamdedup index drop --config streamdedup.toml --profile reviews
    """
    settings = load_settings(config, assignments)
    names = chosen_profiles(settings, profile)
    refuse_unasked("deletes", yes=yes)
    if not force:
        refuse_while_daemons_run(settings, "Or add --force, and they end by themselves")
    with connect_store(settings) as servers:
        read_facts(servers)
        counts = {name: redis_store(settings, name, servers).count_documents() for name in names}
        what = ", ".join(f"{name} (about {counted(count, 'document')})" for name, count in counts.items())
        ask(f"Delete the index of {what} at {settings.redis.shown_url}?", yes=yes)
        for name in names:
            with counting(f"deleting {name}") as on_keys:
                deleted = index_upkeep(settings, name, servers).drop(on_keys)
            typer.echo(f"{name}: {counted(deleted, 'key')} deleted" if deleted else f"{name}: there was no index")
    group = settings.kafka.group_id
    typer.echo(f"What the group {group} has committed stays. A daemon that finds no index beside it stops at once.")
    typer.echo("To build the index anew from the topics, publishing nothing: streamdedup index rebuild.")
    typer.echo("To build it anew and publish all pairs again: another kafka.group_id.")
    typer.echo("To begin with an empty index: --set service.on_index_lost=continue, once.")


@index.command()
def rebuild(
    config: ConfigOption = None,
    assignments: SetOption = None,
    profile: ProfileOption = None,
    yes: YesOption = False,
    wait: Annotated[
        bool,
        typer.Option("--wait/--no-wait", help="Wait for members of the group to leave, up to a session, or refuse."),
    ] = True,
) -> None:
    """Build the index of all profiles, or of some, anew from the topics.

    Stop all daemons of the group first. One that was killed, or has a kafka.group_instance_id, stays a member of the
    group until its session has ended, which is waited for. What the group has committed is read again, from the
    beginning of the profile's window on, and nothing is published. A rebuild that was interrupted can be run again.

    Example:  streamdedup index rebuild --config streamdedup.toml --profile reviews
    """
    settings = load_settings(config, assignments)
    names = chosen_profiles(settings, profile)
    refuse_while_daemons_run(settings, wait=wait)
    with connect_store(settings) as servers:
        check_server(servers)
        there = [name for name in names if index_upkeep(settings, name, servers).fingerprint() is not None]
        if there:
            refuse_unasked("replaces an index", yes=yes)
            ask(f"Replace the index of {', '.join(there)} at {settings.redis.shown_url}?", yes=yes)
        with counting("deleting") as on_keys, measuring("offsets") as progress:
            counts = rebuild_indexes(settings, names, servers, on_keys, progress)
    for name, count in counts.items():
        typer.echo(f"{name}: built anew from {counted(count, 'record')}")


@index.command()
def unfence(
    config: ConfigOption = None,
    assignments: SetOption = None,
    yes: YesOption = False,
) -> None:
    """Let a consumer group that was deleted, and counts its generations anew, write to the index again.

    Stop all daemons of the group first: one that is still running could no longer be told from its successor. It
    refuses while the group has members.

    Example:  streamdedup index unfence --config streamdedup.toml
    """
    settings = load_settings(config, assignments)
    refuse_unasked("lets a daemon that still runs write beside its successor", yes=yes)
    counts = check_topics(kafka_options(settings), ())
    refuse_members(settings, "There is no way around: it could no longer be told from its successor")
    ask(f"Let the group {settings.kafka.group_id} begin anew in its index?", yes=yes)
    with connect_store(settings) as servers:
        for name, profile in settings.profiles.items():
            store = redis_store(settings, name, servers)
            for topic in profile.topics:
                for number in range(counts[topic]):
                    store.unfence(Partition(topic, number))
                typer.echo(f"profile {name}, topic {topic}: {counted(counts[topic], 'partition')} unfenced")


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.add_typer(index, name="index")
