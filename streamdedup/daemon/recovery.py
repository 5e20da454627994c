"""Opening the indexes, and what to do when one of them is gone or has gone back in time."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Literal

import structlog

from streamdedup.daemon.partitions import Loss, PartitionOwnership
from streamdedup.daemon.publisher import Profile
from streamdedup.daemon.rebuild import Rebuilder, keeping_membership
from streamdedup.errors import BatchRefused, IndexLost, Rejoin
from streamdedup.kafka.protocols import Batch, Source

#: What to do when an index is lost.
Policy = Literal["fail", "continue", "rebuild"]

#: What cures a lost index.
_ADVICE = (
    "Build it anew from the topics with `streamdedup index rebuild` (all daemons stopped), or set "
    'service.on_index_lost to "rebuild" to have the daemon do so, or to "continue" to go on without the older ones'
)

log = structlog.get_logger("streamdedup.loop")


class Recovery:
    """Opens the index of each profile and does what the policy says when one is lost.

    Args:
        profiles: The profile of each topic.
        holdings: Notices losses.
        policy: What to do.
        rebuilder: Builds an index anew; needed for that policy.
        note_lost: Called with the name of a profile and whether its index is lost (true) or complete again (false).
    """

    def __init__(
        self,
        profiles: Mapping[str, Profile],
        holdings: PartitionOwnership,
        policy: Policy,
        rebuilder: Rebuilder | None,
        note_lost: Callable[[str, bool], None] = lambda _name, _lost: None,
    ) -> None:
        self._by_topic = profiles
        self._profiles = {profile.name: profile for profile in profiles.values()}
        self._ownership = holdings
        self._policy = policy
        self._rebuilder = rebuilder
        self._note_lost = note_lost
        self._opened: set[str] = set()
        self._seen: tuple[int, ...] | None = None
        self._loss_met = False

    def open(self) -> None:
        """Look whether the index of each profile fits, where there is one.

        Raises:
            IndexMismatch: One was built with other parameters.
        """
        for name in self._profiles.keys() - self._opened:
            self._open(name, create=False)

    def _open(self, name: str, *, create: bool) -> None:
        if self._rebuilder is not None and self._rebuilder.has_begun(name):
            return
        profile = self._profiles[name]
        opening = profile.detector.store.open(profile.fingerprint, create=create)
        if opening is None:
            return
        self._opened.add(name)
        if opening.created and self._loss_met:
            # Nothing may be committed of the present topics, so that no offset tells the loss.
            self._note_lost(name, True)
        log.info("index_open", profile=name, created=opening.created)
        if profile.silent_until_ms is not None:
            until = datetime.fromtimestamp(profile.silent_until_ms / 1000, UTC).isoformat()
            log.info("silent_until", profile=name, time=until)
        for text in opening.advisories:
            log.warning("index_differs", profile=name, reason=text)

    def look(self, source: Source, batch: Batch, tick: Callable[[], None]) -> None:
        """Notice losses as soon as partitions are ours, do something about them, and create what never was.

        Args:
            source: Knows what is ours and what is committed.
            batch: What is about to be worked on.
            tick: Called at every step of a rebuild.

        Raises:
            IndexLost: The policy is to fail.
            Rejoin: The store may have gone back in time since the last look, or an index is about to be rebuilt.
            StoreUnavailable: Somebody else rebuilds an index; wait.
            BatchRefused: Our partitions are no longer ours.
        """
        generation = source.generation()
        if generation is not None:
            self._look(source, generation, tick)
        # Ours when it was polled, and not any more: whether its index never was or is lost, its owner finds out.
        if any(self._by_topic[partition.topic].name not in self._opened for partition in batch.starts()):
            raise BatchRefused("a partition of the batch is no longer ours")

    def _look(self, source: Source, generation: int, tick: Callable[[], None]) -> None:
        if self._seen is not None:
            self.check_connections()
        # Seen before the look: whatever is opened in the course of it counts as later.
        self._seen = self._connections()
        losses = self._ownership.look_for_losses(source)
        if losses:
            self._mend(losses, source, generation, tick)
        elif source.assigned() and self._rebuilder is not None:
            # What we may have begun and not come back to, somebody else has built meanwhile.
            self._rebuilder.abandon()
            if self._policy == "rebuild":
                self._note_complete()
        for topic in {partition.topic for partition in source.assigned()}:
            if self._by_topic[topic].name not in self._opened:
                # What was mended is there; if it is gone again, the next look finds out.
                self._open(self._by_topic[topic].name, create=not losses)
        self._loss_met = False

    def _note_complete(self) -> None:
        """Note that no index lacks anything: what was lost was built anew, here or by another daemon."""
        for name in self._profiles:
            self._note_lost(name, False)

    def _connections(self) -> tuple[int, ...]:
        return tuple(profile.detector.store.connections_count() for profile in self._profiles.values())

    def check_connections(self) -> None:
        """Make sure that the store was reached over the same connections since the last look.

        A server that was restarted or replaced in between may have forgotten what it had acknowledged: a part of the
        batch at hand, or what neighbours have written. These may have batches that were indexed before, which the group
        refuses once it was joined anew; then everything is looked at.

        Raises:
            Rejoin: A connection had to be opened.
        """
        if self._seen is not None and self._connections() != self._seen:
            self._seen = None
            self._ownership.begin_anew()
            raise Rejoin("a connection to the store was lost: the group is joined anew, and the index looked at")

    def _mend(self, losses: Sequence[Loss], source: Source, generation: int, tick: Callable[[], None]) -> None:
        names = sorted({self._by_topic[loss.partition.topic].name for loss in losses})
        for name in names:
            self._note_lost(name, True)
            # Says so when somebody builds it anew at this moment.
            self._open(name, create=False)
        if self._policy == "fail":
            raise IndexLost(losses[0].reason)
        if self._policy == "rebuild" and self._rebuilder is not None:
            if self._begin(self._rebuilder, names, source, tick):
                raise Rejoin("the group is joined anew before the index is rebuilt")
            begun = [name for name in names if self._rebuilder.has_begun(name)]
            self._rebuild(self._rebuilder, begun, source, generation, tick)
            return
        for loss in losses:
            log.warning("index_lost", reason=loss.reason)
        for name in names:
            self._open(name, create=True)
        self._ownership.give_up(losses, generation)

    def _begin(self, rebuilder: Rebuilder, names: Sequence[str], source: Source, tick: Callable[[], None]) -> bool:
        """Begin to rebuild; tell whether any index was begun just now."""

        def is_lost(name: str) -> bool:
            lost = {loss.partition.topic for loss in self._ownership.look_for_losses(source)}
            return any(self._by_topic[topic].name == name for topic in lost)

        try:
            begun = [name for name in names if rebuilder.begin(name, partial(is_lost, name), tick)]
        except BaseException:
            # None of them may be built before the group was joined anew.
            rebuilder.abandon()
            raise
        for name in begun:
            log.warning("index_rebuild_begun", profile=name)
        return bool(begun)

    def _rebuild(
        self, rebuilder: Rebuilder, names: Sequence[str], source: Source, generation: int, tick: Callable[[], None]
    ) -> None:
        committed = source.all_committed()
        step = keeping_membership(source, tick)
        try:
            for name in names:
                count = rebuilder.rebuild(name, committed, generation, step)
                log.warning("index_rebuilt", profile=name, records=count)
        finally:
            rebuilder.abandon()
        self._ownership.begin_anew()

    def lost(self, error: IndexLost) -> None:
        """Take note of a loss that was met on the way; the next look does something about it.

        Raises:
            IndexLost: The policy is to fail.
        """
        if self._policy == "fail":
            raise IndexLost(f"{error}. {_ADVICE}") from error
        log.warning("index_lost", reason=str(error))
        self._loss_met = True
        self._opened.clear()
        self._ownership.begin_anew()
