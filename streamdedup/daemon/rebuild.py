"""Building a lost index anew: what the group has committed is read again from the topics, and nothing is published.

The new index is a draft (``index.staging.Draft``) until it is whole, and nobody can take over a partition meanwhile: a
document that was compared with half of an index would miss its partners in the other half for ever.

Steps, for each profile:
    1. Begin the draft. From now on daemons are refused.
    2. Join the group anew, so that a batch which was indexed before is refused by Kafka. (The caller's part.)
    3. Take over all partitions, with the mark at what is committed; replay the topics up to there, in silence, from the
       beginning of the window that the next record needs (``daemon.rebuild_window``).
    4. Seed: the duplicates topic says which pairs were published, and in which clusters the documents are.
    5. Announce what is committed, and complete the draft.
"""

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from streamdedup.daemon.indexing import Indexer
from streamdedup.daemon.partitions import announced_attempt
from streamdedup.daemon.preparation import Preparer
from streamdedup.daemon.publisher import Profile
from streamdedup.daemon.rebuild_window import RebuildWindow, rebuild_window
from streamdedup.daemon.statistics import now_ms
from streamdedup.detection.model import document_number, published_pair_key
from streamdedup.errors import DecodeError, StoreUnavailable
from streamdedup.index.contract import BucketStore, Fence
from streamdedup.index.staging import StagingIndex
from streamdedup.kafka.protocols import Batch, Bookmark, History, Source
from streamdedup.position import Partition, Position
from streamdedup.wire import Alert, decode_alert

#: How often the group is shown that we are alive, and for how long, in seconds.
_HOLD_EVERY_S, _HOLD_S = 1.0, 0.01
#: How often drafts that wait for their turn are kept, in seconds; within a minute is enough.
_KEEP_EVERY_S = 10.0
#: Incarnation of the positions that own seeded claims.
_NO_INCARNATION = -1
#: Claims that are seeded at once.
_SEED_PAIRS = 5_000

#: Called with what is being read, how many offsets of it are done, and how many there are.
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class RebuildTarget:
    """Where the index of a profile is built.

    Attributes:
        draft: The new index.
        profile: The profile, at work on it.
        topics: Its input topics.
        kept_ms: Retention plus slack, in milliseconds: how much older than the next record a document may be that is
            replayed; None for all.
    """

    draft: StagingIndex
    profile: Profile
    topics: Sequence[str]
    kept_ms: int | None


class Rebuilder:
    """Builds indexes anew.

    Args:
        open_target: Makes the place where the index of a profile is built.
        history: Reads topics.
        duplicates_topic: Where alerts were published.
        now_ms: The present, in milliseconds since the epoch.
    """

    def __init__(
        self,
        open_target: Callable[[str], RebuildTarget],
        history: History,
        duplicates_topic: str,
        now_ms: Callable[[], int] = now_ms,
    ) -> None:
        self._open_target = open_target
        self._history = history
        self._duplicates_topic = duplicates_topic
        self._now_ms = now_ms
        self._targets: dict[str, RebuildTarget] = {}

    def begin(
        self, name: str, is_lost: Callable[[], bool] = lambda: True, tick: Callable[[], None] = lambda: None
    ) -> bool:
        """Begin to build the index of a profile; what is there of it is deleted.

        Args:
            name: Name of the profile.
            is_lost: See ``StagingIndex.begin``.
            tick: Called at every step.

        Returns:
            Whether it was begun just now.

        Raises:
            StoreUnavailable: Somebody else builds it.
        """
        if name in self._targets:
            return False
        target = self._open_target(name)
        if not target.draft.begin(is_lost, self._keeping_others(tick)):
            return False
        self._targets[name] = target
        return True

    def has_begun(self, name: str) -> bool:
        """Tell whether the index of a profile is being built here."""
        return name in self._targets

    def rebuild(
        self,
        name: str,
        committed: Mapping[Partition, Bookmark],
        generation: int,
        tick: Callable[[], None],
        progress: Progress = lambda _what, _done, _total: None,
    ) -> int:
        """Build the index of a profile that was begun.

        Args:
            name: Name of the profile.
            committed: What the group has committed, of all partitions.
            generation: Generation of the group, which began after the draft.
            tick: Called at every step.
            progress: Told how far it is.

        Returns:
            How many records were replayed.

        Raises:
            StoreUnavailable: The store is away; begin again.
            BrokerUnavailable: Kafka is; begin again.
            BatchRefused: Somebody else builds the index by now.
        """
        target = self._targets.pop(name)
        step = self._keeping_others(tick)
        try:
            building = _Building(target, self._history, committed, generation, step, progress)
            count = building.build(self._duplicates_topic, self._now_ms())
        except BaseException:
            target.draft.abandon()
            raise
        return count

    def _keeping_others(self, tick: Callable[[], None]) -> Callable[[], None]:
        """Return a tick that also keeps the drafts that were begun and wait for their turn."""
        kept_at = time.monotonic()

        def step() -> None:
            nonlocal kept_at
            tick()
            if time.monotonic() - kept_at > _KEEP_EVERY_S:
                for target in self._targets.values():
                    target.draft.keep()
                kept_at = time.monotonic()

        return step

    def abandon(self) -> None:
        """Give up what was begun; never raises."""
        while self._targets:
            self._targets.popitem()[1].draft.abandon()


def keeping_membership(source: Source, tick: Callable[[], None]) -> Callable[[], None]:
    """Return what to call at every step of a rebuild, so that the group takes us for alive.

    Args:
        source: Our membership.
        tick: Called each time.
    """
    held_at = time.monotonic()

    def step() -> None:
        nonlocal held_at
        tick()
        if time.monotonic() - held_at > _HOLD_EVERY_S:
            source.hold(_HOLD_S)
            held_at = time.monotonic()

    return step


def _untimed(_stage: str) -> contextlib.nullcontext[None]:
    return contextlib.nullcontext()


class _Building:
    """One index while it is built."""

    def __init__(
        self,
        target: RebuildTarget,
        history: History,
        committed: Mapping[Partition, Bookmark],
        generation: int,
        tick: Callable[[], None],
        progress: Progress,
    ) -> None:
        self._target = target
        self._history = history
        self._committed = {each: mark for each, mark in committed.items() if each.topic in target.topics}
        self._generation = generation
        self._tick = tick
        self._progress = progress
        self._store: BucketStore = target.draft.store
        self._connections_count = self._store.connections_count()

    def build(self, duplicates_topic: str, now_ms: int) -> int:
        # Before anything is written: by now it may be that of somebody else.
        self._target.draft.keep()
        fences = {
            partition: self._target.draft.take_over(partition, self._generation, mark.offset)
            for partition, mark in self._committed.items()
        }
        count = 0
        if fences:
            window = self._window(now_ms)
            count = self._replay(fences, window)
            rights = list(fences.values())
            self._seed(duplicates_topic, window, rights)
            self._target.draft.settle({each: announced_attempt(mark) for each, mark in self._committed.items()}, rights)
        self._refuse_other_connections()
        self._target.draft.complete(self._target.profile.fingerprint)
        return count

    def _refuse_other_connections(self) -> None:
        if self._store.connections_count() != self._connections_count:
            raise StoreUnavailable(
                "a connection to the store was lost while the index was rebuilt, and with it perhaps what was written"
            )

    def _window(self, now_ms: int) -> RebuildWindow:
        if self._target.kept_ms is None:
            return RebuildWindow({}, None)
        offsets = {partition: mark.offset for partition, mark in self._committed.items()}
        progress = self._history.progress(self._target.topics, offsets, now_ms)
        return rebuild_window(progress, self._target.kept_ms, now_ms)

    def _batches(
        self,
        topics: Sequence[str],
        since_ms: Mapping[Partition, int | None] | int | None,
        ends: Mapping[Partition, int] | None,
    ) -> Iterator[Batch]:
        """Yield what stands in topics since the beginning of the window, and say how far it is."""
        what = ", ".join(topics)
        with self._history.open(topics, since_ms, ends) as span:
            self._progress(what, 0, span.total_count)
            for batch in span.batches():
                self._tick()
                self._target.draft.keep()
                self._refuse_other_connections()
                yield batch
                self._progress(what, span.done_count(), span.total_count)

    def _replay(self, fences: Mapping[Partition, Fence], window: RebuildWindow) -> int:
        profile = self._target.profile
        preparer = Preparer(dict.fromkeys(self._target.topics, profile), self._tick)
        indexer = Indexer({profile.name: profile}, _untimed, self._tick)
        ends = {partition: mark.offset for partition, mark in self._committed.items()}
        count = 0
        for batch in self._batches(self._target.topics, window.inputs, ends):
            indexer.index(preparer.prepare(batch), fences)
            count += len(batch.records)
        return count

    def _seed(self, topic: str, window: RebuildWindow, rights: list[Fence]) -> None:
        claims: dict[bytes, Position] = {}
        alerts: dict[int, Alert] = {}
        for batch in self._batches([topic], window.alerts, None):
            for alert in self._alerts(batch):
                for match in alert.matches:
                    # No record asks for a claim in the name of this position: the alert does not tell the incarnation.
                    owner = alert.position._replace(incarnation=_NO_INCARNATION)
                    claims[published_pair_key(alert.profile, alert, match)] = owner
                alerts[document_number(alert.profile, alert.document_id)] = alert
            if len(claims) >= _SEED_PAIRS:
                self._note(claims, alerts, rights)
                claims.clear()
                alerts.clear()
        if claims:
            self._note(claims, alerts, rights)

    def _alerts(self, batch: Batch) -> Iterator[Alert]:
        for record in batch.records:
            try:
                alert = decode_alert(record.value or b"").alert
            except DecodeError:
                continue  # somebody else writes to the topic, too
            if alert.profile == self._target.profile.name:
                yield alert

    def _note(self, claims: Mapping[bytes, Position], alerts: Mapping[int, Alert], rights: list[Fence]) -> None:
        self._store.claim_pairs(list(claims.items()), rights)
        found = self._store.get_entries(list(alerts))
        self._store.set_clusters(
            [
                (number, record.position, document_number(alert.profile, alert.cluster_id))
                for number, record in found.items()
                if not record.deleted
                for alert in [alerts[number]]
                # What was appended since leaves a document in its cluster, a new version does not.
                if alert.position == record.position or alert.digest == record.version.hex()
            ],
            rights,
        )
