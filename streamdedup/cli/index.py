"""``streamdedup index``: operate on the indexes in Redis."""

import json
from collections.abc import Sequence
from typing import Annotated

import typer

from streamdedup.cli.assembly import kafka_options
from streamdedup.cli.guards import (
    YesOption,
    await_no_members,
    confirm,
    explaining_absent_kafka,
    refuse_members,
    require_confirmable,
)
from streamdedup.cli.index_building import are_fillable, fits, losses_by_profile, prepare_indexes, rebuild_indexes
from streamdedup.cli.index_status import collect_status, has_lost_partition, render_status
from streamdedup.cli.output import showing_keys, showing_parts, tell
from streamdedup.cli.settings_options import ConfigOption, SetOption, load_settings, with_same_settings
from streamdedup.counts import counted
from streamdedup.daemon.losses import is_lost_as_a_whole
from streamdedup.errors import EXIT_FAILED, EXIT_INDEX_LOST, SettingsError
from streamdedup.index.contract import delete_index
from streamdedup.indexes import connect_backend
from streamdedup.kafka.admin import require_topics
from streamdedup.kafka.group_admin import members_of_index, read_committed_offsets
from streamdedup.kafka.protocols import offsets_in
from streamdedup.position import Partition
from streamdedup.settings import Settings

index = typer.Typer(no_args_is_help=True, help="Operate on the index in Redis.")

ProfileOption = Annotated[
    list[str] | None, typer.Option("--profile", "-p", metavar="NAME", help="Only this profile; may be repeated.")
]


def _profile_names(settings: Settings, names: Sequence[str] | None) -> list[str]:
    """Return the names of ``--profile``, or of all profiles; ``SettingsError`` if a profile does not exist."""
    for name in names or ():
        if name not in settings.profiles:
            existing = ", ".join(sorted(settings.profiles))
            raise SettingsError(f"--profile {name}: the settings have no such profile; they have {existing}")
    return list(dict.fromkeys(names or settings.profiles))


@index.command()
def status(
    config: ConfigOption = None,
    assignments: SetOption = None,
    profile: ProfileOption = None,
    exact: Annotated[
        bool, typer.Option("--exact", help="Scan all keys: count documents and keys, and estimate their memory.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show the content of the index, how it fits settings and Kafka, and the memory of the store.

    Exit code 3 when an index is lost: offsets are committed, and the index does not know them; 1 when Kafka does not
    tell the offsets.

    Example:  streamdedup index status --config streamdedup.toml --exact
    """
    settings = load_settings(config, assignments)
    names = _profile_names(settings, profile)
    with connect_backend(settings) as backend, showing_keys("counting keys") as on_keys:
        collected = collect_status(settings, names, backend, on_keys if exact else None)
    if as_json:
        typer.echo(json.dumps(collected, indent=2))
    else:
        for line in render_status(collected, with_same_settings("topics", "create")):
            tell(line)
    if any(map(has_lost_partition, collected["profiles"])):
        raise typer.Exit(EXIT_INDEX_LOST)
    if collected["group"]["problem"]:
        raise typer.Exit(EXIT_FAILED)


@index.command()
def drop(
    config: ConfigOption = None,
    assignments: SetOption = None,
    profile: ProfileOption = None,
    yes: YesOption = False,
    force: Annotated[
        bool, typer.Option("--force", help="Even while daemons run, or while Kafka does not answer.")
    ] = False,
) -> None:
    """Delete the index of all profiles, or of some.

    Stop all daemons of the group first; one that starts meanwhile waits. Nothing in Kafka is changed.

    Example:  streamdedup index drop --config streamdedup.toml --profile reviews
    """
    settings = load_settings(config, assignments)
    names = _profile_names(settings, profile)
    require_confirmable("deletes", yes=yes)
    if not force:
        with explaining_absent_kafka(settings, advice="if none does, add --force"):
            # Only members that use this index count: after `index prepare`, the group's daemons use another prefix.
            advice = "Or add --force: then service.on_index_lost decides what they do without the index"
            refuse_members(settings, advice, of_index=True)
    with connect_backend(settings) as backend:
        backend.servers()  # raises if the servers are not as in the settings (`redis.mode`)
        counts = {name: backend.index(name).count_documents() for name in names}
        indexes = ", ".join(f"{name} (about {counted(count, 'document')})" for name, count in counts.items())
        confirm(f"Delete the index of {indexes} at {backend.address}?", yes=yes)
        for name in names:
            with showing_keys(f"deleting {name}") as on_keys:
                deleted = delete_index(backend.staging(name, on_keys))
            tell(f"{name}: {counted(deleted, 'key')} deleted" if deleted else f"{name}: there was no index")
    tell(
        f"The offsets of the group {settings.kafka.group_id} stay. A daemon with these settings rebuilds the index "
        'from the topics, publishing nothing, unless service.on_index_lost is "fail" (it ends) or "continue" (the '
        "index stays empty).\n"
        "To rebuild it and publish all pairs again: another kafka.group_id and kafka.duplicates_topic.\n"
        "To begin with an empty index: --set service.on_index_lost=continue, once."
    )


@index.command()
def rebuild(
    config: ConfigOption = None,
    assignments: SetOption = None,
    profile: ProfileOption = None,
    yes: YesOption = False,
    wait: Annotated[
        bool, typer.Option("--wait/--no-wait", help="Wait for members' sessions to end; --no-wait refuses at once.")
    ] = True,
) -> None:
    """Rebuild the index of all profiles, or of some, from the topics.

    Stop all daemons of the group first. A killed daemon, or one with kafka.group_instance_id, stays a member of the
    group until its session ends; the command waits for that. The committed records of the profile's window are read
    again, and nothing is published. An index that has gone back to an earlier time is kept, and only the records since
    then are read, unless these records cannot make it whole. An interrupted rebuild can be run again.

    Example:  streamdedup index rebuild --config streamdedup.toml --profile reviews
    """
    settings = load_settings(config, assignments)
    names = _profile_names(settings, profile)
    with explaining_absent_kafka(settings):
        if wait:
            await_no_members(settings)
        else:
            refuse_members(settings)
    with connect_backend(settings) as backend:
        backend.require_usable()
        committed_offsets = read_committed_offsets(kafka_options(settings))
        losses = losses_by_profile(settings, names, backend, committed_offsets)
        # None: the whole index is rebuilt.
        losses_to_fill = {
            name: index_losses if are_fillable(index_losses, settings.profiles[name]) else None
            for name, index_losses in losses.items()
        }
        rebuilt_whole = [name for name, index_losses in losses_to_fill.items() if index_losses is None]
        to_replace = [name for name in rebuilt_whole if backend.inspector(name).fingerprint() is not None]
        uncommitted = [name for name in to_replace if not offsets_in(committed_offsets, settings.profiles[name].topics)]
        if uncommitted:
            tell(
                f"The group {settings.kafka.group_id} has no committed offsets in the topics of "
                f"{', '.join(uncommitted)}: the new index will be empty, and the daemons read these topics anew.",
                err=True,
            )
        if to_replace:
            require_confirmable("replaces an index", yes=yes)
            confirm(f"Replace the index of {', '.join(to_replace)} at {backend.address}?", yes=yes)
        with showing_keys("deleting") as on_keys, showing_parts("offsets") as progress:
            rebuilt = rebuild_indexes(settings, losses_to_fill, backend, on_keys, progress)
    for name, (count, kind) in rebuilt.items():
        tell(f"{name}: {'rebuilt' if kind == 'lost' else 'complete again'} from {counted(count, 'record')}")


@index.command()
def prepare(config: ConfigOption = None, assignments: SetOption = None, profile: ProfileOption = None) -> None:
    """Build the index for changed settings beside the old one, while the daemons with the old settings go on.

    The settings name another redis.key_prefix and the same group. The command reads the committed records, publishes
    nothing, and repeats this for the records committed meanwhile, until a round is short or hardly shorter than the one
    before. Then stop the old daemons and start those with these settings; they replay the rest before their first
    batch. Delete the old index with index drop and the old settings. An interrupted command can be run again.

    Example:  streamdedup index prepare --config new.toml
    """
    settings = load_settings(config, assignments)
    names = _profile_names(settings, profile)
    options = kafka_options(settings)
    if settings.service.on_index_lost != "rebuild":
        raise SettingsError('service.on_index_lost: must be "rebuild", by which daemons replay the rest at the switch')
    if members := members_of_index(options, unnamed=False):  # members that name no index do not count
        raise SettingsError(
            f"redis.key_prefix: daemons use the indexes of this prefix: {', '.join(members)}; choose another one "
            "for the settings to come"
        )
    with connect_backend(settings) as backend:
        backend.require_usable()
        committed_offsets = read_committed_offsets(options)
        losses = losses_by_profile(settings, names, backend, committed_offsets)
        for name in names:
            # An index of an earlier call of this command fits, and has gaps at most. Any other one is refused.
            exists = backend.inspector(name).fingerprint() is not None
            if exists and (not fits(backend, name) or is_lost_as_a_whole(losses[name])):
                raise SettingsError(
                    f"redis.key_prefix: there is an index of {name} with other parameters or offsets at "
                    f"{backend.where(name)}; choose another prefix, so that both indexes exist side by side, or delete "
                    "that index: streamdedup index drop"
                )
        if not committed_offsets:
            raise SettingsError(f"kafka.group_id: the group {options.group_id} has no committed offsets to prepare for")
        with showing_parts("offsets") as progress:
            last_round_s = prepare_indexes(settings, names, backend, progress)
    tell(
        f"ready: the last round took {last_round_s:.0f} s; records committed since it began are replayed at the switch"
    )
    tell(f"Now stop the daemons of the group {options.group_id}, and start those with these settings.")
    tell("Afterwards delete the old index: streamdedup index drop with the old settings.")


@index.command()
def unfence(config: ConfigOption = None, assignments: SetOption = None, yes: YesOption = False) -> None:
    """Let a consumer group write to the index again after the group was deleted, which resets its generations.

    Stop all daemons of the group first: the index could not tell a running daemon from its successor. The command
    refuses while the group has members.

    Example:  streamdedup index unfence --config streamdedup.toml
    """
    settings = load_settings(config, assignments)
    require_confirmable("lets a daemon that still runs write beside its successor", yes=yes)
    partition_counts = require_topics(kafka_options(settings))
    confirm(f"Let the group {settings.kafka.group_id} write to its index again, with generations from 1?", yes=yes)
    # Last, because a supervisor may start a daemon while the user is asked.
    refuse_members(settings, "There is no way around: the index could not tell a daemon from its successor")
    with connect_backend(settings) as backend:
        for name, profile in settings.profiles.items():
            profile_index = backend.index(name)
            for topic in profile.topics:
                for partition in range(partition_counts[topic]):
                    profile_index.unfence(Partition(topic, partition))
                tell(f"profile {name}, topic {topic}: {counted(partition_counts[topic], 'partition')} unfenced")
