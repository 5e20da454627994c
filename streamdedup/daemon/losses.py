"""Losses: committed offsets that an index does not know, and the gap that such an offset leaves (rule 11).

Called by ``partitions``, ``cli.index_building``, ``cli.index_status`` and ``cli.checks``. Callers read the committed
offsets before the partition states: an attempt is announced before it is committed, so the states then know every
commit that was read. ``recovery`` and ``rebuild`` react to the losses. A change must pass ``tests/simulation``.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from streamdedup.daemon.attempts import attempt_id_of, attempt_ms, is_renewed, lineage_of
from streamdedup.index.contract import PartitionStore
from streamdedup.index.values import PartitionState
from streamdedup.kafka.protocols import CommittedOffset
from streamdedup.position import Partition


class Gap(NamedTuple):
    """The missing records of one partition, in an index that has gone back to an earlier time.

    Attributes:
        start: Offset from which on records may be missing.
        since_ms: Time of the latest commit, of any partition, that the index knows, milliseconds since the epoch. An
            announced attempt that is not committed proves nothing: it may be from after the index went back.
    """

    start: int
    since_ms: int


class Loss(NamedTuple):
    """A committed offset that the index does not know.

    Attributes:
        gap: The missing records; None where the index as a whole is lost.
        is_switch: Whether the gap shows a switch to an index that no daemon has used since ``index prepare``.
    """

    partition: Partition
    committed_offset: CommittedOffset
    reason: str
    gap: Gap | None = None
    is_switch: bool = False


def is_lost_as_a_whole(losses: Iterable[Loss]) -> bool:
    return any(loss.gap is None for loss in losses)


def find_losses(index: PartitionStore, committed_offsets: Mapping[Partition, CommittedOffset]) -> list[Loss]:
    """Read the partition states of an index, and return the committed offsets that it does not know."""
    return losses_between(committed_offsets, index.partition_states(sorted(committed_offsets)))


def losses_between(
    committed_offsets: Mapping[Partition, CommittedOffset], states: Mapping[Partition, PartitionState]
) -> list[Loss]:
    """Return the committed offsets that an index does not know; ``states`` are its states of the same partitions."""
    commits = _known_commits(states.values())
    losses = []
    for partition, state in states.items():
        committed_offset = committed_offsets[partition]
        reason = loss_reason(partition, committed_offset, state)
        if reason is not None:
            gap = _gap(committed_offset, state, commits)
            # An index that was just rebuilt in place is unused too, but its daemons commit in its own lineage. The
            # lineage of a prepared index is later than all commits.
            is_earlier = lineage_of(attempt_id_of(committed_offset)) < commits.lineage
            is_switch = commits.is_unused and gap is not None and is_earlier
            losses.append(Loss(partition, committed_offset, reason, gap, is_switch))
    return losses


class _KnownCommits(NamedTuple):
    """The traces of commits in an index.

    Attributes:
        lineage: The latest lineage that all slots of a partition have announced.
        latest_ms: Time of the latest commit, milliseconds since the epoch; None without one, or where the slots of a
            partition differ in lineage: a slot may have gone back to a time before the last rebuild.
        is_unused: Whether the index has only the attempts that ``index prepare`` or a rebuild announced.
    """

    lineage: int
    latest_ms: int | None
    is_unused: bool


def _known_commits(states: Collection[PartitionState]) -> _KnownCommits:
    lineage = max((lineage_of(state.least_announced) for state in states), default=0)
    times_ms = [attempt_ms(state.committed_id) for state in states if state.committed_id]
    is_mixed = any(lineage_of(state.least_announced) != lineage_of(state.latest_announced) for state in states)
    is_unused = all(is_renewed(state.least_announced, state.committed_id) for state in states)
    return _KnownCommits(lineage, None if is_mixed else max(times_ms, default=None), is_unused)


def loss_reason(partition: Partition, committed_offset: CommittedOffset, state: PartitionState) -> str | None:
    """Say in what way the index does not know the committed offset; None if the index knows it."""
    if not committed_offset.offset:
        return None  # nothing was read: an operator has set the offset to 0
    offset_text = f"offset {committed_offset.offset} of {partition} is committed, but the index"
    if state.high_water_mark is None:
        return f"{offset_text} has never seen this partition: it was lost, or it is another one"
    if not state.knows(attempt_id_of(committed_offset)):
        return (
            f"{offset_text} does not know of it: it has gone back to an earlier time, or another index was used since"
        )
    return None


def _gap(committed_offset: CommittedOffset, state: PartitionState, commits: _KnownCommits) -> Gap | None:
    """Return the gap; None if the index as a whole is lost.

    The gap begins at the least start of the attempts that were last announced in slots without the commit. Without such
    an attempt the slot has gone back to a time before the partition was read, and the gap begins at offset 0; so it
    does in a topic that was created again, to which the attempt may not belong.
    """
    attempt_id = attempt_id_of(committed_offset)
    # The index knows of no commit or has slots of different lineages, or another program has committed the offset.
    if commits.latest_ms is None or not attempt_id:
        return None
    if lineage_of(attempt_id) > commits.lineage:
        # The index is from before its last rebuild, or a later index was used since, whose claims are not in this one.
        return None
    if state.high_water_mark is None:
        return Gap(0, commits.latest_ms)
    if state.incarnation != committed_offset.incarnation:
        return None  # the high-water mark belongs to another incarnation of the topic
    # An announced attempt does not say of which incarnation of the topic its start is.
    start = 0 if state.incarnation else state.gap_start(attempt_id)
    if committed_offset.offset <= start:
        return None  # a gap without records, and still the index does not know the commit
    return Gap(start, commits.latest_ms)
