"""Builds indexes for ``index rebuild`` (with the daemons stopped) and ``index prepare`` (beside daemons, in rounds)."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from streamdedup import clock
from streamdedup.cli.assembly import kafka_options, rebuilder
from streamdedup.cli.output import tell
from streamdedup.counts import counted
from streamdedup.daemon.losses import Loss, find_losses
from streamdedup.daemon.rebuild import Rebuilt, fillable_gaps, keeping_membership
from streamdedup.daemon.rebuild_run import Progress
from streamdedup.errors import BrokerUnavailable, StreamdedupError
from streamdedup.index.backend import Backend
from streamdedup.index.fingerprints import mismatches
from streamdedup.indexes import lifetime_ms
from streamdedup.kafka.group_admin import describe_group, read_committed_offsets
from streamdedup.kafka.producer import KafkaTransport
from streamdedup.kafka.protocols import CommittedOffset, Source, offsets_in
from streamdedup.position import Partition
from streamdedup.settings import Profile, Settings

_POLL_S = 0.2  # longest wait of one poll while joining the group, in seconds
#: A round of ``index prepare`` is the last if it takes at most this time, in seconds. The replay at the start of the
#: daemons with the new settings takes about as long.
_SHORT_ROUND_S = 5.0
#: A round is also the last if it takes more than this share of the previous round's time: daemons commit as fast as the
#: command reads.
_MAX_ROUND_SHARE = 0.8
#: Generation of fences that a command sets without joining the group; each member of the group has a later one.
_NO_GENERATION = 0


def losses_by_profile(
    settings: Settings, names: Sequence[str], backend: Backend, committed_offsets: Mapping[Partition, CommittedOffset]
) -> dict[str, list[Loss]]:
    """Return the losses of each index that fits the settings; an empty list for any other index, also a missing one."""
    losses: dict[str, list[Loss]] = {}
    for name in names:
        offsets = offsets_in(committed_offsets, settings.profiles[name].topics)
        losses[name] = find_losses(backend.index(name), offsets) if fits(backend, name) else []
    return losses


def fits(backend: Backend, name: str) -> bool:
    """Tell whether a profile has an index, built with the parameters of the settings."""
    fingerprint = backend.inspector(name).fingerprint()
    return fingerprint is not None and not mismatches(fingerprint, backend.configured_fingerprint(name))


def are_fillable(losses: Sequence[Loss], profile: Profile) -> bool:
    """Return whether to keep an index and fill its gaps; False without losses, too: a rebuild of it was asked for."""
    # The replay may still show that the records of the gap are not enough: `RebuildRun` then replaces the index.
    return bool(losses) and fillable_gaps(losses, lifetime_ms(profile), clock.now_ms()) is not None


def rebuild_indexes(
    settings: Settings,
    losses_to_fill: Mapping[str, list[Loss] | None],
    backend: Backend,
    on_keys: Callable[[int], None],
    progress: Progress,
) -> dict[str, Rebuilt]:
    """Rebuild the indexes of profiles up to the committed offsets; return the results by profile.

    ``losses_to_fill`` has for each profile the losses of an index that stays; None to replace the index.
    ``on_keys`` is called with the count of newly deleted keys of the old index.
    """
    builder = rebuilder(settings, backend, on_keys)
    try:
        for name, losses in losses_to_fill.items():
            # `begin` calls ``find`` under its lease: the losses are known, only their age is checked again.
            find = None if losses is None else partial(_require_fillable, losses, name, settings.profiles[name])
            builder.begin(name, find_losses=find)
        # Joined after each `begin`: a process that joined before has a lower generation, so the fences that `rebuild`
        # writes refuse its writes, also where `begin` has deleted the earlier fences with the index.
        with _joined_group(settings) as (source, generation):
            committed_offsets = source.committed_offsets()
            tick = keeping_membership(source, tick=lambda: None)  # for `rebuild` to call during the replay
            missing = source.missing_topics()
            return {
                name: builder.rebuild(name, committed_offsets, generation, tick, progress, missing)
                for name in losses_to_fill
            }
    finally:
        builder.abandon()  # leases of rebuilds begun and not completed, as when the group cannot be joined


def _require_fillable(losses: list[Loss], name: str, profile: Profile) -> list[Loss]:
    if not are_fillable(losses, profile):
        raise StreamdedupError(f"the gap of {name} is too old by now: run the command again to replace the index")
    return losses


@contextmanager
def _joined_group(settings: Settings) -> Iterator[tuple[Source, int]]:
    # A static member would stay in the group after the end of this process.
    options = replace(kafka_options(settings), group_instance_id=None)
    source, sink = KafkaTransport(options).open()
    try:
        # Kafka may answer the request to join only when the session of an earlier member has ended.
        deadline = time.monotonic() + options.session_timeout_s + options.fetch_timeout_s
        while (generation := source.generation()) is None or not source.assigned():
            if time.monotonic() > deadline:
                raise BrokerUnavailable(
                    f"the group {options.group_id} assigned no partitions in time; is a daemon still a member?"
                )
            source.keep_membership(_POLL_S)
        yield source, generation
    finally:
        sink.close()
        source.close()


def prepare_indexes(settings: Settings, names: Sequence[str], backend: Backend, progress: Progress) -> float:
    """Build indexes up to the committed offsets in rounds; return the duration of the last round in seconds."""
    builder = rebuilder(settings, backend)
    options = kafka_options(settings)
    previous_round_s = float("inf")
    while True:
        round_began_at = time.monotonic()
        records_count = 0
        committed_offsets, missing = read_committed_offsets(options), describe_group(options).missing_topics
        for name in names:
            # Losses are the whole index in the first round, if it is missing, and in later rounds a gap: the records
            # committed during the round before. Without losses `begin` starts nothing. `rebuild` gives the lease up.
            offsets = offsets_in(committed_offsets, settings.profiles[name].topics)
            if builder.begin(name, find_losses=partial(find_losses, backend.index(name), offsets)):
                rebuilt = builder.rebuild(name, committed_offsets, _NO_GENERATION, lambda: None, progress, missing)
                records_count += rebuilt.records_count
        round_s = time.monotonic() - round_began_at
        tell(f"read {counted(records_count, 'record')} in {round_s:.1f} s")
        if round_s <= _SHORT_ROUND_S or round_s > _MAX_ROUND_SHARE * previous_round_s:
            return round_s
        previous_round_s = round_s
