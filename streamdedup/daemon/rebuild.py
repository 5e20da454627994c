"""Rebuilds a lost index, or fills the gap of an index that has gone back: replays committed records, publishes nothing.

Called by ``recovery`` (policy ``rebuild``) and ``cli.index_building``: ``begin`` for each profile, then ``rebuild``. A
caller in the group passes a tick of ``keeping_membership``. ``index prepare`` builds an index beside daemons at work,
outside the group: it skips step 2 below, and passes generation 0. ``cli.checks`` calls ``fillable_gaps``.

Until a rebuild ends no daemon takes over a partition: a document that is compared with half of an index would never
find its pairs with the other half. A lost index is built anew as a staging index (``index.contract``), which no daemon
can open. An index with a gap keeps its entries; its announced attempts show the gap to every daemon until all of it is
replayed. The lease on the staging index is the right to rebuild; a process that does not extend it for a minute has
lost it.

Steps, for each profile (3 to 5 are those of ``rebuild_run``):
    1. ``begin``: take the lease, and look for the losses under it. Delete the index unless it has a fillable gap.
    2. The caller joins the group anew, so that Kafka refuses to commit batches that were indexed before step 1.
    3. ``rebuild``: take over all partitions, with the committed offsets as high-water marks. Replay the topics up to
       these offsets, silently. A gap is replayed from the starts of the last announced attempts. A lost index is
       replayed from one lifetime before the next record (``rebuild_window``), deletions from one life of their markers.
    4. Seed claims (rule 8), clusters and incarnations from the alert topic. For a gap, read alerts from the last commit
       that the index knows on, or from the earliest record of the gap. For a lost index, read all alerts: each request
       for a claim extends its life, so claims may be much older than their documents.
    5. Announce new attempts beside the committed ones, and complete the index.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from streamdedup import clock
from streamdedup.daemon.losses import Gap, Loss, is_lost_as_a_whole
from streamdedup.daemon.rebuild_run import BegunRebuild, Progress, RebuildRun, RebuildTarget
from streamdedup.kafka.protocols import CommittedOffset, History, Source
from streamdedup.position import Partition

#: Interval and duration of the calls that keep the group membership, in seconds.
_MEMBERSHIP_EVERY_S, _MEMBERSHIP_S = 1.0, 0.01
#: Interval at which leases on staging indexes are extended and all servers asked, in seconds. A lease lasts 60.
_LEASES_EVERY_S = 10.0


class Rebuilt(NamedTuple):
    """A complete rebuild: the number of replayed records, and the kind in the end, one of ``metrics.REBUILD_KINDS``."""

    records_count: int
    kind: str


class Rebuilder:
    """Rebuilds indexes, one profile after the other; ``open_target`` returns the target for a profile name."""

    def __init__(
        self,
        open_target: Callable[[str], RebuildTarget],
        history: History,
        duplicates_topic: str,
        now_ms: Callable[[], int] = clock.now_ms,
    ) -> None:
        self._open_target = open_target
        self._history = history
        self._duplicates_topic = duplicates_topic
        self._now_ms = now_ms
        self._begun: dict[str, BegunRebuild] = {}  # by profile

    def begin(
        self,
        name: str,
        find_losses: Callable[[], Sequence[Loss]] | None = None,
        tick: Callable[[], None] = lambda: None,
    ) -> str | None:
        """Take the lease on a profile's index, and delete the index unless it has a fillable gap.

        ``find_losses`` is called under the lease; None to rebuild the whole index in any case.

        Returns the kind of the rebuild, one of ``metrics.REBUILD_KINDS``; None if this call has begun none, because one
        had begun before, or the index has no losses. Raises ``IndexBusy`` where another process has the lease, and
        ``RegistryUnavailable``: alerts may need the schema registry.
        """
        if name in self._begun:
            return None
        target = self._open_target(name)
        target.alert_reader.ping()  # now, because alerts are read last
        target.staging.take_lease()
        try:
            target.pipeline.index.ping()  # opens the connections to all servers
            connections_count = target.pipeline.index.count_connections()
            losses = None if find_losses is None else find_losses()
            if losses is not None and not losses:  # another process has completed a rebuild meanwhile
                target.staging.abandon()
                return None
            gaps = None if losses is None else fillable_gaps(losses, target.lifetime_ms, self._now_ms())
            if losses is None or gaps is None:
                kind = "lost"
                target.staging.clear(self._extending_leases(tick, target))
            else:  # "switch": from another index to this one, which `index prepare` made
                kind = "switch" if all(loss.is_switch for loss in losses) else "gap"
        except BaseException:
            target.staging.abandon()
            raise
        self._begun[name] = BegunRebuild(target, gaps, connections_count, kind)
        return kind

    def has_begun(self, name: str) -> bool:
        return name in self._begun

    def rebuild(
        self,
        name: str,
        committed_offsets: Mapping[Partition, CommittedOffset],
        generation: int,
        tick: Callable[[], None],
        progress: Progress = lambda _topics, _done, _total: None,
        missing_topics: frozenset[str] = frozenset(),
    ) -> Rebuilt:
        """Rebuild a profile's index; the generation began after ``begin``, and is 0 beside daemons at work.

        Raises ``BatchRefused`` if another process has taken over the rebuild, and ``RegistryMisconfigured`` if the
        registry lacks the schema of an alert. After any error the rebuild is to begin again.
        """
        begun = self._begun.pop(name)
        target = replace(begun.target, topics=[topic for topic in begun.target.topics if topic not in missing_topics])
        begun = replace(begun, target=target)
        step = self._extending_leases(tick, target)
        try:
            run = RebuildRun(begun, self._history, committed_offsets, generation, step, progress)
            count = run.run(self._duplicates_topic, self._now_ms())
        except BaseException:
            target.staging.abandon()
            raise
        return Rebuilt(count, "lost" if run.is_whole else begun.kind)

    def _extending_leases(self, tick: Callable[[], None], target: RebuildTarget) -> Callable[[], None]:
        """Return a tick that also extends the lease on ``target``, and those of the rebuilds that wait."""

        def extend() -> None:
            target.pipeline.index.ping()  # a server may close idle connections, and a closed one counts as lost
            target.staging.extend_lease()
            for begun in self._begun.values():
                begun.target.staging.extend_lease()

        return _at_intervals(tick, extend, _LEASES_EVERY_S)

    def abandon(self) -> None:
        """Give up the leases of all rebuilds that have begun; never raises."""
        while self._begun:
            self._begun.popitem()[1].target.staging.abandon()


def fillable_gaps(losses: Sequence[Loss], lifetime_ms: int | None, now_ms: int) -> Mapping[Partition, Gap] | None:
    """Return the gap by partition; None if the whole index is to be rebuilt.

    A gap that begins more than half a lifetime ago is not filled: the index has lost requests that extended claims,
    which the replay does not repeat, so claims could expire too early.
    """
    if is_lost_as_a_whole(losses):
        return None
    gaps = {loss.partition: loss.gap for loss in losses if loss.gap is not None}  # all have one
    begin_ms = min(gap.since_ms for gap in gaps.values())
    is_too_old = lifetime_ms is not None and begin_ms < now_ms - lifetime_ms // 2
    return None if is_too_old else gaps


def keeping_membership(source: Source, tick: Callable[[], None]) -> Callable[[], None]:
    return _at_intervals(tick, lambda: source.keep_membership(_MEMBERSHIP_S), _MEMBERSHIP_EVERY_S)


def _at_intervals(tick: Callable[[], None], action: Callable[[], None], interval_s: float) -> Callable[[], None]:
    """Return a tick that also calls ``action`` at intervals."""
    acted_at_s = time.monotonic()

    def step() -> None:
        nonlocal acted_at_s
        tick()
        if time.monotonic() - acted_at_s > interval_s:
            action()
            acted_at_s = time.monotonic()

    return step
