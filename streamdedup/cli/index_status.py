"""The status of the indexes for ``index status`` (``cli.index``): collected as JSON values, and rendered as lines."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from streamdedup.cli.assembly import kafka_options
from streamdedup.cli.checks import is_fillable_switch
from streamdedup.daemon.losses import find_losses
from streamdedup.errors import BrokerMisconfigured, BrokerUnavailable
from streamdedup.index.backend import Backend, IndexInspector, PartitionFacts
from streamdedup.index.fingerprints import ADVISORY_PARAMETERS, differences
from streamdedup.index.values import BrokerState, is_recreated
from streamdedup.kafka.errors import missing_topics_text
from streamdedup.kafka.group_admin import GroupState, describe_group
from streamdedup.kafka.protocols import CommittedOffset, offsets_in
from streamdedup.position import Partition
from streamdedup.settings import Settings

#: Explanations of the states of a partition (``_partition_state``).
_STATE_TEXTS = {
    "lost": "offsets are committed, but the index does not know them: it was lost, has gone back to an earlier time, "
    "or is another one. If settings of the store or the name of the profile changed, restore them. Otherwise running "
    "daemons do what service.on_index_lost says (default: rebuild it); without daemons: streamdedup index rebuild",
    "behind": "the committed offset is higher: a daemon ended right after a commit",
    "recreated": "the topic was deleted and created again; a daemon begins at its oldest record and emits as usual",
    "ahead": "the committed offset was reset; records below the mark publish nothing again",
}


def collect_status(
    settings: Settings, names: Sequence[str], backend: Backend, on_keys: Callable[[int], None] | None
) -> dict[str, Any]:
    """Return the status of profiles as JSON values, None where unknown.

    ``on_keys`` gets the count of scanned keys. Without it no key is scanned: "exact_documents" and "keys" are None.
    """
    servers = backend.servers()
    group: GroupState | None = None
    problem = None  # why Kafka does not tell the group
    try:
        group = describe_group(kafka_options(settings))
    except (BrokerUnavailable, BrokerMisconfigured) as error:
        problem = str(error)
    return {
        "store": {"address": backend.address, "mode": backend.mode, "masters": [asdict(server) for server in servers]},
        "group": {
            "id": settings.kafka.group_id,
            "members": None if group is None else list(group.members),
            "problem": problem,
        },
        "profiles": [_profile_status(settings, name, backend, group, on_keys) for name in names],
    }


def _profile_status(
    settings: Settings, name: str, backend: Backend, group: GroupState | None, on_keys: Callable[[int], None] | None
) -> dict[str, Any]:
    inspector, index = backend.inspector(name), backend.index(name)
    fingerprint, is_staging = inspector.fingerprint(), inspector.is_staging()
    topics = settings.profiles[name].topics
    all_differences = {} if fingerprint is None else differences(fingerprint, backend.configured_fingerprint(name))
    # Differences in advisory parameters do not keep a daemon from working.
    blocking = [text for parameter, text in all_differences.items() if parameter not in ADVISORY_PARAMETERS]
    survey, keys = None, None
    if on_keys is not None:
        survey = inspector.survey(on_keys)
        keys = {kind: {"count": counts.count, "bytes": counts.used_bytes} for kind, counts in survey.kinds.items()}
    missing = None if group is None else sorted(group.missing_topics.intersection(topics))
    committed_offsets = {} if group is None else offsets_in(group.committed_offsets, topics)
    # `find_losses` cannot read an index with other parameters, which may have other slots; `_partition_state` reports
    # as lost the partitions that such an index has never seen.
    losses = [] if blocking else find_losses(index, committed_offsets)
    # A switch to a prepared index is no loss: daemons fill its gaps.
    loss_state = None if is_fillable_switch(settings, name, losses) else "lost"
    loss_states = dict.fromkeys((loss.partition for loss in losses), loss_state)
    partitions = list(_partition_rows(topics, committed_offsets, inspector, group, loss_states))
    if fingerprint is None and is_staging:  # it is being built, and knows of no partition before the end
        partitions = [{**partition, "state": None} for partition in partitions]
    return {
        "name": name,
        "exists": fingerprint is not None,
        "staging": is_staging,
        "half_dropped": inspector.is_half_dropped() and not is_staging,
        "differences": blocking,
        "advisories": [text for parameter, text in all_differences.items() if parameter in ADVISORY_PARAMETERS],
        "documents": index.count_documents(),
        "claims": index.count_claims(),
        "exact_documents": None if survey is None else survey.documents_count,
        "missing_topics": missing,
        "partitions": partitions,
        "keys": keys,
    }


def _partition_rows(
    topics: Sequence[str],
    committed_offsets: Mapping[Partition, CommittedOffset],
    inspector: IndexInspector,
    group: GroupState | None,
    loss_states: Mapping[Partition, str | None],
) -> Iterator[dict[str, Any]]:
    offsets = {partition: committed_offset.offset for partition, committed_offset in committed_offsets.items()}
    facts_by_partition = inspector.partitions(topics, offsets)  # only of partitions that the index has seen
    is_running = group is not None and bool(group.members)
    for partition in sorted(facts_by_partition.keys() | offsets.keys()):
        facts = facts_by_partition.get(partition, PartitionFacts(high_water_mark=None, generation=None))
        offset = offsets.get(partition)
        end = None if group is None else group.ends.get(partition)
        topic_id = "" if group is None else group.topic_ids.get(partition.topic, "")
        state = _partition_state(facts, offset, topic_id, is_running=is_running)
        yield {
            "topic": partition.topic,
            "partition": partition.partition,
            "mark": facts.high_water_mark,
            "committed": offset,
            "end": end,
            "lag": None if offset is None or end is None else max(0, end - offset),
            "generation": facts.generation,
            "state": loss_states.get(partition, state),  # a loss, or a switch (None), outranks the offsets
        }


def _partition_state(facts: PartitionFacts, offset: int | None, topic_id: str, *, is_running: bool) -> str | None:
    """Return the state of a partition if it is unusual, a key of ``_STATE_TEXTS``; else None."""
    mark = facts.high_water_mark
    # Only the topic ids are compared, not the end: a daemon may have raised the mark above an end that was read before.
    if mark is not None and is_recreated(mark, facts.topic_id, BrokerState(topic_id)):
        return "recreated"
    if offset is None:
        return None
    if mark is None:
        # Offset 0 was set by an operator: no record was read, so nothing is lost.
        return "lost" if offset else None
    # While daemons run, a batch may be committed between the two requests that read mark and committed offset.
    if mark == offset or is_running:
        return None
    return "behind" if mark < offset else "ahead"


def has_lost_partition(profile: Mapping[str, Any]) -> bool:
    return any(row["state"] == "lost" for row in profile["partitions"])


def render_status(status: Mapping[str, Any], create_command: str) -> Iterator[str]:
    """Yield the status of ``collect_status`` as lines; ``create_command`` creates missing topics."""
    store, group = status["store"], status["group"]
    yield f"store    {store['address']}"
    for master in store["masters"]:
        address = f"{master['address']}: " if store["mode"] != "single" else ""
        yield f"         {address}{master['software']}, {_memory(master)}, maxmemory-policy {master['eviction_policy']}"
    if group["members"] is None:
        members = f"unknown: {group['problem']}"
    else:
        members = f"{len(group['members'])} ({', '.join(group['members'])})" if group["members"] else "none"
    yield f"group    {group['id']}, members: {members}"
    for profile in status["profiles"]:
        yield ""
        yield from _profile_lines(profile, offsets_are_known=group["members"] is not None)
        if profile["missing_topics"]:
            yield f"  {missing_topics_text(profile['missing_topics'], create_command)}"


def _memory(master: Mapping[str, Any]) -> str:
    used, limit = master["used_bytes"], master["limit_bytes"]
    if used is None:
        return "memory unknown"
    return f"{_size(used)} of {_size(limit)} ({used / limit:.0%})" if limit else f"{_size(used)}, no limit"


def _size(size_bytes: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if size_bytes < 1024:
            return f"{size_bytes:.0f} {unit}" if unit == "B" else f"{size_bytes:.1f} {unit}"
        size_bytes /= 1024
    return f"{size_bytes:.1f} GiB"


def _profile_lines(profile: Mapping[str, Any], *, offsets_are_known: bool) -> Iterator[str]:
    yield f"profile  {profile['name']}"
    if profile["half_dropped"]:
        rebuild = ", or streamdedup index rebuild" if has_lost_partition(profile) else ""
        yield f"  index      half deleted: call streamdedup index drop again{rebuild}"
    elif not profile["exists"]:
        yield f"  index      {'being rebuilt or deleted' if profile['staging'] else 'none'}"
    elif profile["differences"]:
        yield "  index      does not fit the settings; a daemon with these settings does not start"
    else:
        yield "  index      fits the settings"
    for text in (*profile["differences"], *profile["advisories"]):
        yield f"             {text}"
    exact = profile["exact_documents"]
    yield f"  documents  about {profile['documents']:,}" + (f", counted {exact:,}" if exact is not None else "")
    yield f"  claims     about {profile['claims']:,}"
    yield from _partition_lines(profile["partitions"], offsets_are_known=offsets_are_known)
    if profile["keys"] is not None:
        width = max([10, *map(len, profile["keys"])]) + 2
        yield f"  {'keys':<{width}}{'count':>14}{'memory':>14}"
        for kind, keys in profile["keys"].items():
            yield f"  {kind:<{width}}{keys['count']:>14,}{_size(keys['bytes']):>14}"


def _partition_lines(partitions: Sequence[Mapping[str, Any]], *, offsets_are_known: bool) -> Iterator[str]:
    if not partitions:
        yield "  partitions none known"
        return
    names = [str(Partition(row["topic"], row["partition"])) for row in partitions]
    width = max(len("partition"), *map(len, names)) + 2
    yield f"  {'partition':<{width}}{'mark':>14}{'committed':>14}{'end':>14}{'lag':>14}{'generation':>14}"
    for name, row in zip(names, partitions, strict=True):
        of_kafka = [_number(row[key]) if offsets_are_known else "?" for key in ("committed", "end", "lag")]
        cells = (_number(row["mark"]), *of_kafka, _number(row["generation"]))
        yield f"  {name:<{width}}" + "".join(f"{cell:>14}" for cell in cells)
    for state in sorted({row["state"] for row in partitions if row["state"]}):
        affected = ", ".join(name for name, row in zip(names, partitions, strict=True) if row["state"] == state)
        yield f"  {affected}: {_STATE_TEXTS[state]}"


def _number(value: int | None) -> str:
    return "-" if value is None else str(value)
