"""The run of a rebuild, for one profile: steps 3 to 5 of ``daemon.rebuild`` (replay, seed, announce and complete).

Read the steps there first. Called by ``rebuild`` only; ``cli.assembly`` makes the ``RebuildTarget``. ``rebuild_window``
chooses the records to replay, ``rebuild_seeds`` uses the alerts. A change of the writes also touches "The life of a
partition" in ``docs/architecture.md``.
"""

import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field

from streamdedup import clock
from streamdedup.daemon.attempts import AttemptIds, attempt_id_of, attempt_ms
from streamdedup.daemon.batch import BatchProcessor, FailedRecord, Pipeline, in_parts
from streamdedup.daemon.loop_log import log
from streamdedup.daemon.losses import Gap
from streamdedup.daemon.rebuild_seeds import OFFSETS_IN_PROGRESS, Seeds, alerts_in
from streamdedup.daemon.rebuild_window import WindowFilter, not_before, rebuild_window, with_credible_times
from streamdedup.detection.model import document_number
from streamdedup.errors import StoreUnavailable
from streamdedup.index.contract import StagingIndex
from streamdedup.index.documents import PendingMatches
from streamdedup.index.fingerprints import REBUILT_S
from streamdedup.index.values import BrokerState, Fence
from streamdedup.kafka.protocols import Batch, CommittedOffset, History, Since, offsets_in
from streamdedup.position import Partition, Position
from streamdedup.wire import AlertReader

#: Alerts are read from this long before a gap, in milliseconds, because the clocks of daemons may differ: an hour.
_CLOCKS_MS = 3_600_000

#: Called with the topic names joined by commas, the number of offsets read so far, and the number of all offsets.
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class RebuildTarget:
    """Index, profile and input topics in a rebuild; the pipeline is on the staging index.

    ``lifetime_ms`` is that of entries, ``markers_ms`` that of the markers of deletions; both None for no limit.
    """

    staging: StagingIndex
    pipeline: Pipeline
    topics: Sequence[str]
    lifetime_ms: int | None
    markers_ms: int | None
    alert_reader: AlertReader = field(default_factory=AlertReader)


@dataclass(frozen=True, slots=True)
class BegunRebuild:
    """A rebuild that has the lease on its target; ``kind`` is one of ``metrics.REBUILD_KINDS``.

    ``gaps`` are by partition; None where the index was deleted, to be rebuilt as a whole. ``connections_count``:
    connections to the store that were opened before the deletion.
    """

    target: RebuildTarget
    gaps: Mapping[Partition, Gap] | None
    connections_count: int
    kind: str


class RebuildRun:
    """Replays, seeds and announces, under the lease, which ``tick`` extends at intervals.

    ``generation`` is that of the group, 0 for ``index prepare``, which is no member.
    """

    def __init__(
        self,
        begun: BegunRebuild,
        history: History,
        committed_offsets: Mapping[Partition, CommittedOffset],
        generation: int,
        tick: Callable[[], None],
        progress: Progress,
    ) -> None:
        #: Whether the whole index is rebuilt; ``run`` sets it if it gives up gaps.
        self.is_whole = begun.gaps is None
        self._gaps = begun.gaps or {}
        target = begun.target
        self._staging = target.staging
        self._pipeline = target.pipeline
        self._target = target
        self._history = history
        self._committed_offsets = offsets_in(committed_offsets, target.topics)
        self._ends = {partition: committed.offset for partition, committed in self._committed_offsets.items()}
        #: Committed attempt by partition; empty where another program has committed.
        self._committed_ids = {
            partition: attempt_id_of(committed) for partition, committed in self._committed_offsets.items()
        }
        #: Time of the last commit by partition; the present where another program has committed.
        self._commit_ms = {
            partition: attempt_ms(attempt_id) if attempt_id else clock.now_ms()
            for partition, attempt_id in self._committed_ids.items()
        }
        #: Where the gap begins; without the gaps of partitions whose committed offset Kafka has deleted since.
        self._starts = {partition: gap.start for partition, gap in self._gaps.items() if partition in self._ends}
        #: Time from which on alerts are read for the gaps. As the clock behind ``since_ms`` may have been wrong,
        #: ``_survey_gaps`` lowers it to the earliest record time.
        self._alerts_ms = min((gap.since_ms for gap in self._gaps.values()), default=0)
        self._generation = generation
        self._attempt_ids = AttemptIds()
        self._tick = tick
        pipelines = dict.fromkeys(target.topics, target.pipeline)
        self._processor = BatchProcessor(pipelines, lambda _stage: nullcontext(), tick)
        self._progress = progress
        self._connections_count = begun.connections_count
        self._began_at_s = time.monotonic()

    def run(self, duplicates_topic: str, now_ms: int) -> int:
        """Take steps 3 to 5; return the number of replayed records."""
        self._check_connections()
        self._staging.extend_lease()  # raises if another process has taken the rebuild over
        # 3. Fence and replay.
        fences = self._fence_committed()
        count = None if self.is_whole else self._fill_gaps(fences, now_ms)
        if count is None:  # the whole index
            if not self.is_whole:
                fences = self._give_up_gaps()  # sets `is_whole`
            # Without fences nothing is committed, and nothing is to be replayed.
            count = self._replay_window(fences, now_ms) if fences else 0
        # 4. Seed. Also without commits: Kafka may have deleted the offsets of the group, and records are read again.
        self._seed(duplicates_topic, list(fences.values()))
        if fences:
            # 5. Announce and complete. After the announcement no process sees a gap.
            self._check_connections()
            self._announce(fences, now_ms)
        self._complete()
        return count

    # Step 3: fence

    def _fence_committed(self) -> dict[Partition, Fence]:
        """Fence all partitions with a committed offset, which becomes the high-water mark."""
        states = self._pipeline.index.partition_states(list(self._committed_offsets))
        fences = {}
        for partition, committed_offset in self._committed_offsets.items():
            self._tick()
            # Here a slot may lack the committed attempt, for which `fence` would raise `IndexLost`: pass one that all
            # slots know. The announced attempts do not change: if this process ends, the next one still sees the gap.
            known_id = states[partition].known_id
            in_kafka = BrokerState(committed_offset.topic_id, incarnation=committed_offset.incarnation)
            fences[partition] = self._fence(partition, committed_offset.offset, known_id, in_kafka)
            self._attempt_ids.observe(states[partition].latest_announced)
        return fences

    def _fence(self, partition: Partition, mark: int, known_id: str, in_kafka: BrokerState) -> Fence:
        if not self._generation:
            # `index prepare`: daemons may have used the index, before the operator went back to the old one.
            self._pipeline.index.unfence(partition)
        return self._pipeline.index.fence(partition, self._generation, mark, known_id, in_kafka)

    # Step 3: replay the gaps

    def _fill_gaps(self, fences: Mapping[Partition, Fence], now_ms: int) -> int | None:
        """Replay the gaps, and return the number of records; None if the gaps must be given up."""
        if not self._survey_gaps(fences, now_ms):
            return None
        count = self._replay(self._gap_batches(), fences)
        # Fewer records than offsets: transaction markers took offsets, which is harmless, or Kafka has dropped records
        # of the gap (retention, compaction), perhaps a request to delete a document. `keeps_all` excludes the latter.
        is_complete = count == sum(self._ends[partition] - start for partition, start in self._starts.items())
        return count if is_complete or self._history.keeps_all(self._starts) else None

    def _survey_gaps(self, fences: Mapping[Partition, Fence], now_ms: int) -> bool:
        """Read the gaps, lower ``_alerts_ms`` to their earliest record time, and return whether they can be replayed.

        A *batch in progress* is one that a daemon had begun to index, and not committed, when the store went back: the
        index may have its entries and pending matches. The gaps cannot be replayed in three cases:

        1. With ``auto_offset_reset = "window"``, a gap from offset 0 has a record older than ``max_start_age_ms``.
           Daemons skip such a record where they begin a partition, so the index may never have had it, and a replay
           would insert it. A whole rebuild leaves it out.
        2. A document of a gap has an entry from a batch in progress, in a partition with a commit. The batch may have
           appended to an older version, or missed a deletion. Only a version from a later position replaces an entry,
           so a replay does not help.
        3. A batch in progress has saved a match with a version that a gap replaces: an alert would name this version.
        """
        incarnations = {partition: fence.incarnation for partition, fence in fences.items()}
        replaced: set[int] = set()
        max_age_ms = self._pipeline.max_start_age_ms
        oldest_ms = 0 if max_age_ms is None else now_ms - max_age_ms
        for batch in self._gap_batches():
            timed = [record for record in batch.records if record.timestamp_ms >= 0]
            too_old = [record for record in timed if record.timestamp_ms < oldest_ms]
            if any(self._starts[record.position.topic_partition] == 0 for record in too_old):
                return False  # 1
            self._alerts_ms = min([self._alerts_ms, *(record.timestamp_ms for record in timed)])
            positions: dict[int, Position] = {}
            for part in in_parts(batch.in_incarnations(incarnations), self._positions):
                positions |= part
            entries = self._pipeline.index.get_entries(list(positions))
            if any(self._is_uncommitted(entry.position, fences) for entry in entries.values()):
                return False  # 2
            replaced.update(number for number, entry in entries.items() if entry.position != positions[number])
        if not replaced:
            return True
        all_fences = self._fence_uncommitted(fences)  # before the check: now no batch in progress saves a match
        return not self._are_matched(replaced, all_fences)  # 3

    def _is_uncommitted(self, position: Position, fences: Mapping[Partition, Fence]) -> bool:
        fence = fences.get(position.topic_partition)
        if fence is None or fence.incarnation != position.incarnation:
            return False  # another topic, a partition without a commit, or an earlier incarnation with other offsets
        return position.offset >= self._ends[position.topic_partition]

    def _positions(self, batch: Batch) -> dict[int, Position]:
        """Return the last position in a batch by document number."""
        documents = [document for chunk in self._processor.decode(batch).chunks for document in chunk.documents]
        return {document_number(self._pipeline.name, document.id): document.position for document in documents}

    def _fence_uncommitted(self, fences: Mapping[Partition, Fence]) -> list[Fence]:
        """Fence also partitions without a commit, so that the index refuses all batches in progress; return all."""
        index = self._pipeline.index
        # `progress` names all partitions with records, also those without a commit; its times are not used.
        partitions = self._history.progress(self._target.topics, {}, clock.now_ms(), self._tick).keys()
        all_fences = list(fences.values())
        for partition, state in index.partition_states(sorted(partitions - fences.keys())).items():
            self._tick()
            if state.high_water_mark is not None:  # otherwise no batch has begun
                mark, known_id, in_kafka = state.high_water_mark, state.known_id, BrokerState(state.topic_id)
                all_fences.append(self._fence(partition, mark, known_id, in_kafka))
        return all_fences

    def _are_matched(self, numbers: Collection[int], fences: Sequence[Fence]) -> bool:
        """Tell whether documents are among the pending matches of uncommitted records."""
        index, name, nothing = self._pipeline.index, self._pipeline.name, PendingMatches()
        for fence in fences:
            self._tick()
            first = fence.high_water_mark
            positions = map(fence.position_at, range(first, first + OFFSETS_IN_PROGRESS))
            # Saving nothing changes nothing, and returns the matches that were saved before.
            saved = index.save_pending_matches([(position, nothing) for position in positions], [fence])
            matches = (match for at_position in saved for match in at_position.matches.values())
            if any(document_number(name, match.id) in numbers for match in matches):
                return True
        return False

    def _gap_batches(self) -> Iterator[Batch]:
        """Yield the records of the gaps; none if all their topics were deleted since the losses were found."""
        ends = {partition: self._ends[partition] for partition in self._starts}
        topics = sorted({partition.topic for partition in ends})
        return self._batches(topics, since_ms=None, ends=ends, starts=self._starts) if topics else iter(())

    def _give_up_gaps(self) -> dict[Partition, Fence]:
        """Delete the index, to rebuild it as a whole; return new fences, because the old ones are deleted too."""
        log.warning("gap_given_up", profile=self._pipeline.name)
        self.is_whole = True
        self._staging.clear(self._tick)
        return self._fence_committed()

    # Step 3: replay the window

    def _replay_window(self, fences: Mapping[Partition, Fence], now_ms: int) -> int:
        """Replay the window, and older deletions; return the number of records."""
        window = self._window(now_ms)
        window_filter = WindowFilter(window, self._pipeline.decoder, self._tick)
        # A deletion is replayed from further back, because its marker outlives entries by this time. Without limits
        # (None) `window` is empty, and all is read.
        older_ms = (self._target.markers_ms or 0) - (self._target.lifetime_ms or 0)
        since = {partition: None if start is None else max(0, start - older_ms) for partition, start in window.items()}
        batches = self._batches(self._target.topics, since, self._ends)
        return self._replay(map(window_filter.filtered, batches), fences)

    def _window(self, now_ms: int) -> Mapping[Partition, int | None]:
        """Return the record time by partition at which the window begins; None or absent: at the oldest record."""
        if self._target.lifetime_ms is None:
            return {}
        read = self._history.progress(self._target.topics, self._ends, now_ms, self._tick)
        if self._pipeline.max_start_age_ms is not None:  # `auto_offset_reset = "window"`
            read = not_before(read, self._ends, now_ms - self._pipeline.max_start_age_ms)
        return rebuild_window(read, self._target.lifetime_ms, now_ms)

    def _replay(self, batches: Iterator[Batch], fences: Mapping[Partition, Fence]) -> int:
        """Index records silently, and return their number. Failures are only logged: they have dead letters already."""
        count = 0
        skipped: Counter[str] = Counter()
        incarnations = {partition: fence.incarnation for partition, fence in fences.items()}

        def replay(part: Batch) -> Sequence[FailedRecord]:
            decoded = self._processor.decode(part)
            return self._processor.index(decoded, deque(), fences).failures  # no chunk was prepared ahead

        for batch in with_credible_times(batches, self._commit_ms):
            for failures in in_parts(batch.in_incarnations(incarnations), replay):
                skipped.update(failed.failure.code for failed in failures)
            count += len(batch.records) + len(batch.unreadable)
        if skipped:
            codes = ", ".join(f"{code_count} {code}" for code, code_count in skipped.most_common())
            log.warning("index_rebuild_skipped", profile=self._pipeline.name, codes=codes)
        return count

    # Step 4: seed

    def _seed(self, duplicates_topic: str, fences: list[Fence]) -> None:
        """Read published alerts, and write what they show of claims, clusters and incarnations."""
        since_ms = None if self.is_whole else max(0, self._alerts_ms - _CLOCKS_MS)
        seeds = Seeds(self._pipeline, fences, self._target.lifetime_ms)
        for batch in self._batches([duplicates_topic], since_ms, ends=None):
            for alert in alerts_in(batch, self._target.alert_reader, self._pipeline.name):
                seeds.add(alert)
            if seeds.is_full:
                self._write(seeds)
        self._write(seeds)
        if self.is_whole:  # an index with gaps knows the incarnations, or learns them by the replay
            seeds.restore_incarnations(self._tick)

    def _write(self, seeds: Seeds) -> None:
        self._staging.extend_lease()  # without commits no fence refuses a frozen process, so check the lease
        seeds.write()

    # Step 5: announce and complete

    def _announce(self, fences: Mapping[Partition, Fence], now_ms: int) -> None:
        """Announce a new attempt in each replayed partition, beside the committed one.

        A rebuild of the whole index begins a lineage, and announces it also where no attempt was committed.
        """
        for committed_id in self._committed_ids.values():
            self._attempt_ids.observe(committed_id)
        if self.is_whole:
            self._attempt_ids.begin_lineage(now_ms)
        for partition, committed_id in self._committed_ids.items():
            if self.is_whole or partition in self._gaps:
                attempt_id = self._attempt_ids.renewed(committed_id)
                starts = {partition: self._ends[partition]}  # all earlier records are in the index
                self._pipeline.index.announce(attempt_id, [fences[partition]], starts, committed_id=committed_id)

    def _complete(self) -> None:
        self._check_connections()
        if self.is_whole:
            took_s = round(time.monotonic() - self._began_at_s, 1)
            self._staging.complete({**self._pipeline.fingerprint, REBUILT_S: took_s})
        else:
            self._staging.abandon()  # gives up the lease only: the gaps were filled in the index itself

    # All steps

    def _batches(
        self,
        topics: Sequence[str],
        since_ms: Since,
        ends: Mapping[Partition, int] | None,
        starts: Mapping[Partition, int] | None = None,
    ) -> Iterator[Batch]:
        names = ", ".join(topics)
        with self._history.open(topics, since_ms, ends, starts) as span:
            self._progress(names, 0, span.total_count)
            for batch in span.batches():
                self._tick()
                self._check_connections()
                yield batch
                self._progress(names, span.done_count(), span.total_count)

    def _check_connections(self) -> None:
        """Raise ``StoreUnavailable`` if a server may have gone back: a part of the deletion or replay may be undone."""
        if self._pipeline.index.count_connections() != self._connections_count:
            raise StoreUnavailable(
                "a connection to the store was lost since the rebuild began; acknowledged writes may be lost with it"
            )
