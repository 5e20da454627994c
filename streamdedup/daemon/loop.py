"""The loop of the daemon: poll, decode, detect, publish, commit, and the reaction to each kind of failure.

Called by ``cli.run`` (``streamdedup run``), which makes one ``Loop`` and calls ``Loop.run``. ``Loop._process`` has the
stages of a batch, ``Loop._turn`` the reactions to errors, by their class. A new stage also touches
``docs/architecture.md``, a new reaction ``errors`` and ``docs/delivery.md``.

A batch is either published and committed as a whole, or undone as a whole and read again. Undoing a batch
(``Loop._undo``) also drops the batch that was read ahead and forgets all fences. A batch whose commit is unknown is not
undone: new clients read from the committed offsets. A ``FatalError`` without a clause ends the daemon.

``BatchRefused``, a rebalance during a batch and a failed publication may mean that the batch took too long or has too
many alerts: ``slow_start`` begins again at one record.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from streamdedup.daemon.batch import BatchProcessor, BatchResult, FailedRecord, Pipeline
from streamdedup.daemon.clients import KafkaClients
from streamdedup.daemon.loop_log import log
from streamdedup.daemon.metrics import Awaited, Metrics
from streamdedup.daemon.options import LoopOptions
from streamdedup.daemon.partitions import PartitionOwnership
from streamdedup.daemon.publisher import Publisher
from streamdedup.daemon.read_ahead import JOINING_POLL_S, POLL_S, ReadAhead
from streamdedup.daemon.readiness import Readiness
from streamdedup.daemon.rebuild import Rebuilder
from streamdedup.daemon.recovery import Recovery
from streamdedup.daemon.refusals import RefusalCount
from streamdedup.daemon.shutdown import StopSignals
from streamdedup.daemon.slow_start import SlowStart
from streamdedup.daemon.statistics import Statistics
from streamdedup.daemon.window_start import WindowStart
from streamdedup.errors import (
    BatchRefused,
    BrokerSilent,
    BrokerUnavailable,
    DeadLetterBurst,
    GroupHasOtherIndex,
    IndexBusy,
    IndexLost,
    ProducerFenced,
    RegistryUnavailable,
    Rejoin,
    StoreMisconfigured,
    StoreUnavailable,
)
from streamdedup.index.values import Fence
from streamdedup.kafka.protocols import Batch, Message, Sink, Source, Transport
from streamdedup.position import Partition

#: What the loop awaits after errors that close the clients, where it is not Kafka; by exact class.
_AWAITED: Mapping[type[Exception], Awaited] = {Rejoin: Awaited.PARTITIONS, GroupHasOtherIndex: Awaited.GROUP}


class Loop:
    """Processes batches until it is asked to stop or a fatal error occurs.

    ``pipelines`` are by topic. ``tick`` is called for the watchdog: in each turn, for each record and chunk, at each
    ping of absent indexes and at each step of a rebuild. ``readiness`` may be read from any thread.
    """

    def __init__(
        self,
        *,
        transport: Transport,
        pipelines: Mapping[str, Pipeline],
        options: LoopOptions,
        metrics: Metrics,
        stop: StopSignals,
        rebuilder: Rebuilder,
        tick: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        statistics = Statistics(metrics, {pipeline.name: pipeline.index for pipeline in pipelines.values()}, clock)
        self._stop = stop
        self._tick = tick
        self._metrics = metrics
        self._statistics = statistics
        self._slow_start = SlowStart(options.batch_records)
        self._clients = KafkaClients(transport, clock)
        self.readiness = Readiness(metrics, clock, self._clients.missing_topics)
        metrics.connect_missing_topics(pipelines, self._clients.missing_topics)
        self._ownership = PartitionOwnership(pipelines, self.readiness.asking_kafka, statistics.topic_recreated, clock)
        self._refusals = RefusalCount(clock)
        self._rebuilder = rebuilder
        self._recovery = Recovery(
            pipelines, self._ownership, options.on_index_lost, rebuilder, statistics, self._rebuild_step
        )
        self._processor = BatchProcessor(pipelines, statistics.timed, tick)
        self._read_ahead = ReadAhead(self._processor, self._slow_start, self._ownership.held_fences, statistics.timed)
        self._publisher = Publisher(options, pipelines)
        self._window_start = WindowStart(pipelines, self._ownership.held_fences, self.readiness.asking_kafka)

    def run(self) -> None:
        """Process batches until asked to stop; raise ``FatalError`` where continuing would lose or double pairs."""
        try:
            while not self._stop.stopping:
                self._tick()
                self._turn()
        finally:
            self._statistics.close()
            self._close_clients()
            self._rebuilder.abandon()  # so that another process can begin the rebuilds at once

    # One turn

    def _turn(self) -> None:
        """Poll and process one batch; react to an error by its class."""
        batch = Batch()  # empty until the poll
        try:
            self._recovery.open()
            source, sink = self._open_clients()
            if self.readiness.halted is not None:
                self._stay_halted(source)
                return
            # Without partitions, short polls finish joining the group sooner. With partitions, a short poll could end
            # before an undone batch is fetched again, and `_record_success` end the wait for a store not tried again.
            is_joining = self.readiness.awaited is not None and not source.assigned()
            batch = self._read_ahead.poll(source, JOINING_POLL_S if is_joining else POLL_S)
            # Asks the indexes at intervals, also in an idle daemon, and raises if they do not answer.
            self._statistics.observe(source, batch)
            index_was_lost = self._recovery.recover_or_create(source)
            if index_was_lost:
                self._undo(batch)  # the fences belong to the index that was lost
            elif batch:
                self._recovery.refuse_revoked(batch)
                self._process(batch, source, sink)
            self._record_success(source, batch)
        except StoreUnavailable as error:
            self._undo(batch)
            self._await_indexes(error)
        except BatchRefused as error:
            self._shrink_batches(batch)
            self._undo(batch)
            self._await_assignment(batch, error)
        except IndexLost as error:
            self._undo(batch)
            self._recovery.report_loss(error)
        except DeadLetterBurst as error:
            self._undo(batch)
            self._halt(error)
        except (BrokerSilent, RegistryUnavailable) as error:  # before the base class of BrokerSilent
            self._undo(batch)
            self._await_server(error)
        except (BrokerUnavailable, ProducerFenced, Rejoin) as error:
            self._replace_clients(error)

    # The pipeline

    def _process(self, batch: Batch, source: Source, sink: Sink) -> None:
        """Take one polled batch through all stages, in the order of their effects; ``_turn`` reacts to errors.

        =============  ===============================  ================================================
        stage          effect                           result
        =============  ===============================  ================================================
        1. take over   index: fences of new partitions  fences, topic incarnations
        2. prepare     none                             documents, sketches, band keys; undecodable records
        3. index       index: entries, buckets, claims  matches, the same when the batch is repeated
        4. announce    index: attempt id                the index is known to have the batch
        5. publish     Kafka: one transaction           alerts, dead letters, committed offsets
        6. finish      index: high-water marks          statistics
        =============  ===============================  ================================================
        """
        # Before the stages: a partition that begins with a window is moved to the first record of the window.
        if starts := self._window_start.later_starts(batch, source):
            self._undo(batch)
            source.seek(starts)  # last, because `_undo` rewinds these partitions to the batch
            return
        fences = self._ownership.take_over(batch, source)  # 1
        self._refusals.reset()
        batch = batch.in_incarnations({partition: fence.incarnation for partition, fence in fences.items()})
        decoded, prepared = self._read_ahead.take_prepared(batch)  # 2, as far as done ahead
        # In a backlog this thread polls the next batch, and a second thread prepares it.
        if self._read_ahead.may_read_ahead(source, batch):
            self._read_ahead.poll_ahead(source)
            if source.generation() != batch.generation:  # a rebalance: Kafka would refuse to commit this batch
                self._shrink_batches(batch)
                self._undo(batch)
                return
            self._read_ahead.prepare_ahead()
        # Only for its `DeadLetterBurst`, raised before the index has any of the batch: with corrected settings the same
        # records may have other texts. The second call, with the failures of the index, returns the dead letters.
        self._publisher.checked_dead_letters(batch, decoded.failures, fences)
        result = self._processor.index(decoded, prepared, fences)  # the rest of 2, and 3
        dead_letters = self._publisher.checked_dead_letters(batch, result.failures, fences)
        messages = self._publisher.messages(result, dead_letters)
        attempt_id = self._announce(batch, fences, source)  # 4
        self._publish(batch, messages, attempt_id, sink)  # 5
        self._finish(batch, fences, result, dead_letters)  # 6
        self._statistics.lags.forget_ends()  # an earlier incarnation of a topic may have had higher ends
        self._statistics.lags.observe(source, self._read_ahead.batch_ahead())

    def _announce(self, batch: Batch, fences: Mapping[Partition, Fence], source: Source) -> str:
        """Store the id of the attempt in every slot of the index, now that the batch is completely written; return it.

        Raises ``Rejoin`` if the index may have forgotten a part of the batch (``Recovery.confirm_index``).
        """
        with self._statistics.timed("index"):
            attempt_id = self._ownership.announce(fences, batch.starts)
            self._recovery.confirm_index(source)
        return attempt_id

    def _publish(self, batch: Batch, messages: Sequence[Message], attempt_id: str, sink: Sink) -> None:
        """Publish alerts and dead letters and commit the offsets, atomically."""
        try:
            with self._statistics.timed("publish"), self.readiness.asking_kafka():
                sink.publish(messages, replace(batch, metadata=attempt_id))
        except (BrokerUnavailable, ProducerFenced):
            self._shrink_batches(batch)
            raise
        self._ownership.remember_commit(batch.next_offsets, attempt_id)

    def _finish(
        self, batch: Batch, fences: Mapping[Partition, Fence], result: BatchResult, dead_letters: Sequence[FailedRecord]
    ) -> None:
        """Raise the high-water marks of the index to the committed offsets, and count the batch."""
        replayed_count = sum(detected.replayed_count for detected in result.detected.values())
        self._slow_start.grow(replayed_count)  # logs a repeated batch
        self._ownership.finish(batch.next_offsets, fences, result.detected)
        self._publisher.breaker.remember(batch, dead_letters)
        self._statistics.count_batch(result, dead_letters)

    def _undo(self, batch: Batch) -> None:
        """Undo the polled batch, whose publishing has not begun, and the batch ahead; forget all fences."""
        batch_ahead = self._read_ahead.discard()
        # The last rewind of a partition decides, and the current batch begins at lower offsets than the batch ahead.
        self._clients.rewind([undone for undone in (batch_ahead, batch) if undone])
        self._statistics.lags.forget_batch()
        self._ownership.forget_fences()

    def _shrink_batches(self, batch: Batch) -> None:
        """Begin with small batches again: the undone batch may have been too large."""
        if batch:
            self._slow_start.restart(len(batch.records))

    def _record_success(self, source: Source, batch: Batch) -> None:
        """Reset the retry delay after a turn without an error; end the wait of a member at work, else go on waiting.

        A turn that has undone its batch without an error counts, too.
        """
        self.readiness.forget_failures()
        is_member = bool(batch) or source.generation() is not None  # during a rebalance polls return nothing
        # A member without partitions is settled if it was assigned some before (`rebalances_count`), or is a spare. A
        # new member has none until others give partitions away; the client does not report this empty assignment.
        is_settled = bool(source.assigned() or source.stats().rebalances_count or self.readiness.is_spare())
        if is_member and is_settled:
            if self.readiness.awaited is not None:
                log.info("at_work", partitions=sorted(str(partition) for partition in source.assigned()))
            self.readiness.end_wait()
        else:
            self.readiness.record_joining(is_member=is_member)

    # Kafka clients

    def _open_clients(self) -> tuple[Source, Sink]:
        if self._clients.source is None and self.readiness.awaited is not Awaited.GROUP:
            self.readiness.set_awaited(Awaited.KAFKA)
        return self._clients.open()

    def _close_clients(self) -> None:
        source = self._clients.source
        if source is not None:
            self._statistics.observe_membership(source)
            self._clients.close()
            self._read_ahead.close()
            self._ownership.forget_fences()
            self._statistics.clients_closed()

    def _replace_clients(self, error: BrokerUnavailable | ProducerFenced | Rejoin) -> None:
        """Close the clients and wait; the next turn opens new ones, which read from the committed offsets.

        After ``Rejoin`` the group begins a new generation: Kafka refuses batches that were indexed in the old one.
        """
        awaited = _AWAITED.get(type(error), Awaited.KAFKA)
        self.readiness.set_awaited(awaited)  # before closing, which takes seconds
        # Raises if another process has replaced this one under the same static membership: new clients would evict it.
        self._clients.confirm_membership()
        self._close_clients()
        if isinstance(error, ProducerFenced):
            self._clients.count_fencing(error)  # raises the error if it is the second in a minute
        elif awaited is Awaited.KAFKA:
            self._metrics.broker_errors.inc()
        self._wait(awaited, error)

    # Failures

    def _await_server(self, error: BrokerSilent | RegistryUnavailable) -> None:
        """Wait with the same clients: new ones would have to wait for the end of the old group session."""
        if isinstance(error, RegistryUnavailable):
            self._wait(Awaited.SCHEMA_REGISTRY, error)
        else:
            self._metrics.broker_errors.inc()
            self._wait(Awaited.KAFKA, error)

    def _await_indexes(self, error: StoreUnavailable) -> None:
        """Ping all indexes until each answers; after ``IndexBusy`` wait once. Keep the group membership meanwhile."""
        if isinstance(error, IndexBusy):
            self._wait(Awaited.INDEX, error)
            return
        self._metrics.store_errors.inc()
        self._wait(Awaited.STORE, error)
        while not self._stop.stopping:
            self._tick()
            try:
                self._recovery.ping()
            except StoreUnavailable as still_away:
                self._metrics.store_errors.inc()
                self._wait(Awaited.STORE, still_away)
            else:
                return

    def _await_assignment(self, batch: Batch, error: BatchRefused) -> None:
        """Wait; the next poll learns the assignment. Refusals for a minute end the daemon (``StaleFence``)."""
        self._metrics.batches_refused.inc()
        self._refusals.count(error, batch.generation)
        self._wait(Awaited.PARTITIONS, error)

    def _halt(self, error: DeadLetterBurst) -> None:
        """Publish nothing further, and keep the partitions, so that no other daemon publishes the dead letters."""
        log.error("halted", reason=str(error))
        self.readiness.halted = str(error)
        self._statistics.halted()

    def _stay_halted(self, source: Source) -> None:
        source.keep_membership(POLL_S)  # keeps the partitions, and fetches nothing
        self._statistics.observe_wait(source)
        # No error of an index may end the halt: a daemon that starts anew would publish the dead letters.
        with suppress(StoreUnavailable, StoreMisconfigured):
            self._statistics.observe_indexes()

    def _rebuild_step(self) -> None:
        """The ``tick`` of ``Recovery``: show the wait for the index, and end the rebuild when asked to stop."""
        self._tick()
        self.readiness.set_awaited(Awaited.INDEX)
        self._statistics.observe_wait(self._clients.source)
        if self._stop.stopping:
            # `_turn` answers it with an undo and one wait; `run` then sees the request to stop.
            raise IndexBusy("the rebuild of the index was interrupted; the next start begins it again")

    def _wait(self, awaited: Awaited, error: Exception) -> None:
        """Wait before the next try, longer after each failure; keep the group membership if there is one."""
        delay_s = self.readiness.record_failure(awaited, error)
        source = self._clients.source
        self._statistics.observe_wait(None if awaited is Awaited.KAFKA else source)
        if source is None:
            self._stop.wait(delay_s)
            return
        try:
            source.keep_membership(delay_s)
        except BrokerUnavailable as lost:
            log.warning("clients_lost", reason=str(lost))
            # As in `_replace_clients`: the next turn opens new clients, which may evict a replacement of this process.
            self._clients.confirm_membership()
            self._close_clients()
