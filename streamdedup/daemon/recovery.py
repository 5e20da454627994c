"""Opens the indexes, and reacts to a lost index: one that is gone or has gone back to an earlier time.

Called by ``loop``: in each turn ``open`` before the poll and ``recover_or_create`` after it, which finds losses by the
committed offsets; ``confirm_index`` before a batch is published. Where a write shows a loss first, ``loop`` calls
``report_loss``, and the next turn recovers. ``rebuild`` does the rebuilds. A new policy touches ``settings.service``.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial

from streamdedup.daemon.batch import Pipeline
from streamdedup.daemon.loop_log import log
from streamdedup.daemon.losses import Loss
from streamdedup.daemon.options import Policy
from streamdedup.daemon.partitions import PartitionOwnership, require_index
from streamdedup.daemon.rebuild import Rebuilder, keeping_membership
from streamdedup.daemon.statistics import Statistics
from streamdedup.errors import BatchRefused, IndexLost, Rejoin
from streamdedup.kafka.protocols import Batch, Source

#: Remedies for a lost index, for the error of the policy ``fail``.
_ADVICE = (
    "Build it anew from the topics with `streamdedup index rebuild` (all daemons stopped), or set "
    'service.on_index_lost to "rebuild" to have the daemon do so, or to "continue" to go on without the lost documents'
)


class Recovery:
    """Opens the index of each profile, and follows the policy when an index is lost.

    ``statistics`` is told which indexes are lost and complete. ``tick`` is called at every step of a rebuild.
    """

    def __init__(
        self,
        pipelines: Mapping[str, Pipeline],
        ownership: PartitionOwnership,
        policy: Policy,
        rebuilder: Rebuilder,
        statistics: Statistics,
        tick: Callable[[], None],
    ) -> None:
        self._by_topic = pipelines
        self._by_name = {pipeline.name: pipeline for pipeline in pipelines.values()}
        self._ownership = ownership
        self._policy = policy
        self._rebuilder = rebuilder
        self._statistics = statistics
        self._tick = tick
        self._opened: set[str] = set()
        #: Profiles whose present loss the statistics have; each turn of a waiting daemon finds the loss again.
        self._shown_lost: set[str] = set()
        #: Number of connections that each index had ever opened at the last check; None before a check.
        self._connection_counts: tuple[int, ...] | None = None
        #: Whether a write has detected a lost index since the last check.
        self._write_found_loss = False
        #: Generation in which the parameters of the open indexes were last compared.
        self._compared_generation: int | None = None

    def open(self) -> None:
        """Open the existing indexes that are not open yet; raise ``IndexMismatch`` for other parameters."""
        for name in self._by_name.keys() - self._opened:
            self._open_index(name, create=False)

    def _open_index(self, name: str, *, create: bool) -> None:
        """Open the index of a profile, if it exists or ``create`` is true, and log how its parameters differ."""
        if self._rebuilder.has_begun(name):
            return  # incomplete until this daemon has rebuilt it
        pipeline = self._by_name[name]
        opening = pipeline.index.open(pipeline.fingerprint, create=create)
        if opening is None:
            return
        self._opened.add(name)
        if opening.is_created and self._write_found_loss:
            # A write has detected the loss, which no committed offset shows, because nothing is committed yet.
            self._statistics.index_lost(name)
        log.info("index_open", profile=name, created=opening.is_created)
        if pipeline.silent_until_ms is not None:
            until = datetime.fromtimestamp(pipeline.silent_until_ms / 1000, UTC).isoformat()
            log.info("silent_until", profile=name, time=until)
        for text in opening.advisories:
            log.warning("index_differs", profile=name, reason=text)

    def ping(self) -> None:
        for pipeline in self._by_name.values():
            pipeline.index.ping()

    def recover_or_create(self, source: Source) -> bool:
        """Recover lost indexes, or else create the missing ones of the assigned partitions.

        Returns whether an index was lost: then the fences are void, and the polled batch must be undone. Raises
        ``IndexLost`` for the policy ``fail``, ``IndexMismatch`` if an index was rebuilt with other parameters, and
        ``Rejoin`` if a connection to an index was opened since the last check, or a rebuild has begun.
        """
        generation = source.generation()
        if generation is None:
            return False  # no partitions are assigned
        # Counts before the first call to an index, so that a connection opened by this check causes another check.
        self._check_connections()
        self._compare_parameters(generation)
        losses = self._check_if_due(source)
        if losses:
            self._recover(losses, source, generation)
        else:
            for name in {self._by_topic[partition.topic].name for partition in source.assigned()} - self._opened:
                self._open_index(name, create=True)
        self._write_found_loss = False
        return bool(losses)

    def _check_connections(self) -> None:
        """Raise ``Rejoin`` if a connection to an index was opened since the last check.

        A server that was restarted or replaced may have forgotten acknowledged writes of this daemon and of others. As
        the group is joined anew, Kafka refuses the batches that others indexed before the restart.
        """
        counts = tuple(pipeline.index.count_connections() for pipeline in self._by_name.values())
        earlier, self._connection_counts = self._connection_counts, counts
        if earlier not in {None, counts}:
            self._connection_counts = None  # the check after the new join covers connections opened until then
            raise Rejoin("a connection to the store was lost: the group is joined anew, and the index is checked")

    def _compare_parameters(self, generation: int) -> None:
        """In a new generation call ``require_index``: the index may have been rebuilt meanwhile."""
        if generation == self._compared_generation:
            return
        for name in self._opened:
            if not self._rebuilder.has_begun(name):
                require_index(self._by_name[name])
        self._compared_generation = generation

    def _check_if_due(self, source: Source) -> list[Loss]:
        """Check for losses if it is due, and return them; without any, end the reactions to an earlier loss."""
        if not self._ownership.is_check_due(source):
            return []
        losses = self._ownership.check_for_losses(source)
        if not losses:
            self._shown_lost.clear()
            # Nothing is lost any more: another daemon may have completed a rebuild that this daemon has begun.
            self._rebuilder.abandon()
            if self._policy == "rebuild":  # with "continue", documents stay lost although no offset shows it
                for name in self._by_name:
                    self._statistics.index_complete(name, None)
        return losses

    def _recover(self, losses: Sequence[Loss], source: Source, generation: int) -> None:
        """React to losses by the policy.

        A rebuild needs two turns, with a new generation in between. The first begins all rebuilds and raises
        ``Rejoin``; in the second nothing is left to begin, so it completes them.
        """
        is_rebuild = self._policy == "rebuild"
        names = sorted({self._by_topic[loss.partition.topic].name for loss in losses})
        for name in names:
            # A new index, as of `index prepare`, is not lost: a rebuild completes it.
            is_switch = is_rebuild and all(loss.is_switch for loss in self._of_profile(name, losses))
            if not is_switch and name not in self._shown_lost:
                self._shown_lost.add(name)
                self._statistics.index_lost(name)
            # Raises if another process rebuilds the index, or has rebuilt it with other parameters.
            self._open_index(name, create=False)
        if self._policy == "fail":
            raise IndexLost(losses[0].reason)  # `loop` passes it to `report_loss`, which adds the remedies
        if is_rebuild:
            if self._begin_rebuilds(names, source):
                raise Rejoin("the group is joined anew before the index is rebuilt")
            self._complete_rebuilds(names, source, generation)
            return
        for loss in losses:
            log.warning("index_lost", reason=loss.reason)
        for name in names:
            self._open_index(name, create=True)
        self._ownership.accept_losses(losses, generation)

    def _of_profile(self, name: str, losses: Iterable[Loss]) -> list[Loss]:
        return [loss for loss in losses if self._by_topic[loss.partition.topic].name == name]

    def _begin_rebuilds(self, names: Sequence[str], source: Source) -> bool:
        """Begin the rebuilds that this daemon has not begun; tell whether it has begun any."""
        try:
            kinds = {
                name: self._rebuilder.begin(name, partial(self._losses_of, name, source), self._tick) for name in names
            }
        except BaseException:
            # Abandon those that have begun, too: a later turn that begins no other raises no `Rejoin`, and would
            # complete them without a new join of the group.
            self._rebuilder.abandon()
            raise
        begun = [(name, kind) for name, kind in kinds.items() if kind is not None]
        for name, kind in begun:
            log.warning("index_rebuild_begun", profile=name, gap=kind != "lost")
        return bool(begun)

    def _losses_of(self, name: str, source: Source) -> list[Loss]:
        return self._of_profile(name, self._ownership.check_for_losses(source))

    def _complete_rebuilds(self, names: Sequence[str], source: Source, generation: int) -> None:
        """Complete the rebuilds that this daemon began before the present generation; if one fails, drop the others."""
        committed_offsets, missing = source.committed_offsets(), source.missing_topics()
        step = keeping_membership(source, self._tick)
        try:
            for name in names:
                if self._rebuilder.has_begun(name):
                    count, kind = self._rebuilder.rebuild(
                        name, committed_offsets, generation, step, missing_topics=missing
                    )
                    log.warning("index_rebuilt", profile=name, records=count, kind=kind)
                    self._shown_lost.discard(name)
                    self._statistics.index_complete(name, kind)
        finally:
            self._rebuilder.abandon()

    def refuse_revoked(self, batch: Batch) -> None:
        """Raise ``BatchRefused`` for a partition whose index is not open: it was revoked after the poll."""
        if any(self._by_topic[partition.topic].name not in self._opened for partition in batch.starts):
            raise BatchRefused("a partition of the batch is no longer assigned to this daemon")

    def confirm_index(self, source: Source) -> None:
        """Raise ``Rejoin`` if the index has gone back in time, or a connection was opened since the last check.

        The connections alone do not show keys that are put back under a running daemon.
        """
        if losses := self._check_if_due(source):
            raise Rejoin(f"{losses[0].reason}: the group is joined anew, and the index is checked")
        self._check_connections()

    def report_loss(self, error: IndexLost) -> None:
        """Record a loss for the next check; with the policy ``fail`` raise it with the remedies, to end the daemon."""
        if self._policy == "fail":
            raise IndexLost(f"{error}. {_ADVICE}") from error
        log.warning("index_lost", reason=str(error))
        self._write_found_loss = True
        self._opened.clear()  # the next turn opens the indexes again, or creates them
