"""The daemon's loop: poll, decode, detect, publish, commit, and what to do when one of them fails.

The loop performs the effects and counts them; what to conclude from a text is the detector's business. A batch is
either published and committed as a whole, or undone as a whole and read again, with the batch that was read ahead.

What an error means (``errors``): the store is away -> put the batch back, keep the group membership, try again; Kafka
is away or a publication failed -> its outcome is unknown, so open new clients and go on from the committed offset; a
write was refused -> somebody else owns the partition, drop the batch; too many dead letters -> publish nothing further
and hold the partitions until somebody has looked; a fatal error -> end, and say why.
"""

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import structlog

from streamdedup.daemon.backlog_expiry import BacklogExpiry
from streamdedup.daemon.batch_limits import BatchLimits
from streamdedup.daemon.batch_result import BatchResult
from streamdedup.daemon.breaker import DeadLetterBreaker
from streamdedup.daemon.indexing import Indexer
from streamdedup.daemon.metrics import Metrics
from streamdedup.daemon.partitions import AttemptIds, PartitionOwnership
from streamdedup.daemon.publisher import LoopOptions, Profile, Publisher
from streamdedup.daemon.read_ahead import POLL_S, ReadAhead
from streamdedup.daemon.readiness import Readiness
from streamdedup.daemon.rebuild import Rebuilder
from streamdedup.daemon.recovery import Recovery
from streamdedup.daemon.shutdown import StopSignals
from streamdedup.daemon.statistics import Statistics
from streamdedup.errors import (
    BatchRefused,
    BrokerSilent,
    BrokerUnavailable,
    DeadLetterBurst,
    IndexLost,
    ProducerFenced,
    Rejoin,
    StaleFence,
    StoreUnavailable,
    TransientError,
)
from streamdedup.index.contract import Fence
from streamdedup.kafka.protocols import Batch, Sink, Source, Transport
from streamdedup.position import Partition, Position

#: Shortest and longest wait between two attempts at a server that is away, in seconds. The longest is short enough
#: for the daemon to be back at work well within ten seconds of the server's return.
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.1, 2.0
#: A second fencing of our producer within this time means that two daemons share its transactional id, in seconds.
_FENCED_TWICE_S = 60.0
#: A fence above our generation for so long, in seconds, is no rebalance under way but left by a consumer group since
#: deleted.
_STALE_FENCE_S = 60.0

log = structlog.get_logger("streamdedup.loop")


class Loop:
    """Runs until it is asked to stop or meets a fatal error.

    Args:
        transport: Opens the Kafka clients.
        profiles: The profile of each input topic.
        options: Where the outcome goes.
        metrics: What is counted.
        stop: Whether to stop; looked at between batches and while waiting.
        tick: Called at every step, for the watchdog.
        rebuilder: Builds a lost index anew, where that is the policy.
    """

    def __init__(
        self,
        *,
        transport: Transport,
        profiles: Mapping[str, Profile],
        options: LoopOptions,
        metrics: Metrics,
        stop: StopSignals,
        tick: Callable[[], None] = lambda: None,
        rebuilder: Rebuilder | None = None,
    ) -> None:
        self._transport = transport
        self._by_topic = profiles
        self._profiles = {profile.name: profile for profile in profiles.values()}
        self._options = options
        self._publisher = Publisher(options, profiles)
        self._figures = Statistics(metrics)
        self._readiness = Readiness(metrics, time.monotonic)
        self._stop = stop
        self._tick = tick
        self._clients: tuple[Source, Sink] | None = None
        self._limits = BatchLimits(options.batch_records)
        self._ownership = PartitionOwnership(
            {topic: profile.detector.store for topic, profile in profiles.items()},
            options.daemon.group,
            self._limits,
            self._readiness.asking_kafka,
            self._figures.topic_recreated,
        )
        self._recovery = Recovery(profiles, self._ownership, options.on_index_lost, rebuilder, self._figures.index_lost)
        self._indexer = Indexer(self._profiles, self._figures.timed, tick)
        self._backlog = BacklogExpiry(profiles, self._ownership, self._figures, tick)
        self._attempts = AttemptIds()
        self._ahead = ReadAhead(profiles, self._limits, self._ownership.held, self._figures.timed, tick)
        self._breaker = DeadLetterBreaker(options.breaker)
        self._told: str | None = None
        self._attempts_count = 0
        self._fenced_at: float | None = None
        self._refused_since: tuple[int | None, float, float] | None = None

    def problem(self) -> str | None:
        """Say what the daemon waits for, or None while it is at work; may be asked from another thread."""
        return self._readiness.problem()

    def waits_for(self, what: str | None) -> None:
        """Note what the daemon waits for, one of ``metrics.WAITING_FOR``; None while it is at work."""
        self._readiness.noted = what
        if what is not None:
            self._figures.waiting()

    def run(self) -> None:
        """Work until asked to stop.

        Raises:
            FatalError: Going on would lose or double pairs, or cannot succeed.
        """
        try:
            while not self._stop.stopping:
                self._tick()
                self._turn()
        finally:
            self._figures.close()
            self._close_clients()

    # One turn

    def _turn(self) -> None:
        """Do one step, and on failure what the kind of failure asks for."""
        batch: Batch | None = None
        try:
            self._recovery.open()
            source, sink = self._open_clients()
            if self._readiness.halted is not None:
                source.hold(POLL_S)
                return
            self._backlog.run(source)
            batch = self._ahead.poll(source)
            self._figures.look_at(source, {name: profile.detector.store for name, profile in self._profiles.items()})
            self._recovery.look(source, batch, self._step_of_rebuild)
            if batch:
                self._work_on(batch, source, sink)
            self._at_work(source)
        except StoreUnavailable as error:
            self._put_back(batch, error)
        except BatchRefused as error:
            self._refused(batch, error)
        except IndexLost as error:
            self._index_lost(batch, error)
        except DeadLetterBurst as error:
            self._halt(batch, error)
        except ProducerFenced as error:
            self._producer_fenced(error)
        except (BrokerUnavailable, Rejoin) as error:
            self._join_anew(error)

    def _work_on(self, batch: Batch, source: Source, sink: Sink) -> None:
        """Take one batch through the stages.

        Steps:
            1. Fence the partitions that are new to us; the index tells the incarnations of their topics. A batch larger
               than ``BatchLimits`` allows is polled again, in parts.
            2. Prepare: documents, shingles, signatures, band keys; what cannot be decoded becomes a dead letter. In a
               backlog all of it is there, and the next batch is read ahead. A rebalance puts both batches back.
            3. Index: candidates, verified pairs, claims.
            4. Announce that everything is written; unless too many are dead letters.
            5. Publish alerts and dead letters and commit the offsets, all at once.
            6. Mark what is committed.
        """
        # 1. Fence.
        fences = self._ownership.take_over(batch, source)
        self._refused_since = None
        if len(batch.records) > self._limits.limit():
            self._rewind(batch)
            return
        batch = batch.in_incarnations({partition: fence.incarnation for partition, fence in fences.items()})
        # 2. Prepare.
        prepared = self._ahead.prepared(batch)
        work = prepared.work
        if not self._ahead.begin(source, batch):
            self._rewind(batch)
            return
        # 3. Index.
        self._indexer.index(prepared, fences)
        self._backlog.list_late(work, fences)
        self._publisher.describe(batch, work, fences)
        self._breaker.check(batch, work.letters)
        # 4. Announce.
        note = self._attempts.name(batch.generation)
        with self._figures.timed("index"):
            self._announce(note, fences)
            self._recovery.check_connections()
        # 5. Publish and commit.
        with self._figures.timed("publish"), self._readiness.asking_kafka():
            sink.publish(work.messages, replace(batch, note=note))
        self._ownership.committed(batch.ends(), note)
        self._limits.committed(len(batch.records))
        self._backlog.committed(work)
        # 6. Mark.
        self._mark(batch, work, fences)
        self._breaker.committed(batch, work.letters)
        self._figures.count(batch, work)

    # Steps

    def _announce(self, note: str, fences: Mapping[Partition, Fence]) -> None:
        """Note in every index, under the fences of its partitions, that the batch is completely written."""
        by_profile: dict[str, list[Fence]] = {}
        for partition, fence in fences.items():
            by_profile.setdefault(self._by_topic[partition.topic].name, []).append(fence)
        for name, rights in by_profile.items():
            self._profiles[name].detector.store.announce(note, rights)

    def _mark(self, batch: Batch, work: BatchResult, fences: Mapping[Partition, Fence]) -> None:
        """Note the commit in the index. Losing this note costs nothing: the next assignment brings it up to date."""
        by_profile: dict[str, dict[Partition, int]] = {}
        for partition, end in batch.ends().items():
            by_profile.setdefault(self._by_topic[partition.topic].name, {})[partition] = end
        for name, ends in by_profile.items():
            outcome = work.outcomes.get(name)
            positions: Sequence[Position] = outcome.pending_positions if outcome is not None else ()
            try:
                store = self._profiles[name].detector.store
                store.finish(ends, positions, [fences[partition] for partition in ends])
            except (StoreUnavailable, BatchRefused) as error:
                log.info("mark_missed", reason=str(error))
                self._ownership.forget_fences()

    # Servers

    def _open_clients(self) -> tuple[Source, Sink]:
        if self._clients is None:
            self.waits_for("Kafka")
            self._ownership.begin_anew()
            self._clients = self._transport.open()
            log.info("connected")
        return self._clients

    def _close_clients(self) -> None:
        if self._clients is not None:
            source, sink = self._clients
            self._clients = None
            # The sink goes first: its open transaction, if any, must not outlive our membership of the group.
            sink.close()
            source.close()
            self._ahead.close()
            self._figures.clients_closed()

    def _give_clients_up(self) -> None:
        """Close clients that new ones are to follow.

        Raises:
            FatalError: Another process has our place in the group: new clients would take it back, from him who was
                started because we had fallen silent.
        """
        if self._clients is not None:
            try:
                self._clients[0].confirm()
            except BrokerUnavailable as error:
                log.info("place_unconfirmed", reason=str(error))
        self._close_clients()

    def _at_work(self, source: Source) -> None:
        # A daemon beyond the number of partitions is at work too: it stands by with none.
        if self._readiness.noted is not None and (source.assigned() or source.stats().rebalances_count):
            log.info("at_work", partitions=sorted(str(p) for p in source.assigned()))
            self.waits_for(None)
            self._told = None
        elif self._readiness.noted is not None:
            self.waits_for("partitions")
        self._attempts_count = 0

    # Failures

    def _rewind(self, batch: Batch | None) -> None:
        """Make the next poll start again at the batch at work and the batch ahead."""
        ahead = self._ahead.discard()
        if self._clients is not None:
            for each in (ahead, batch):  # the batch at work last: it begins before the other
                if each is not None:
                    self._clients[0].rewind(each)

    def _put_back(self, batch: Batch | None, error: TransientError) -> None:
        """The store is away: undo the batch, keep the membership, wait."""
        self._figures.store_failed()
        self._rewind(batch)
        self._wait("the store", error)
        self._wait_for_store()

    def _wait_for_store(self) -> None:
        """Keep polling an empty hand until every store answers, so that the group keeps us."""
        while not self._stop.stopping:
            self._tick()
            try:
                for profile in self._profiles.values():
                    profile.detector.store.ping()
            except StoreUnavailable as error:
                self._wait("the store", error)
            else:
                return

    def _refused(self, batch: Batch | None, error: BatchRefused) -> None:
        """Somebody else owns a partition: drop the batch, and learn from the next poll what is ours."""
        self._figures.batch_refused()
        self._ownership.forget_fences()
        self._rewind(batch)
        now, generation = time.monotonic(), None if batch is None else batch.generation
        before, since, last = self._refused_since or (None, now, now)
        if before != generation or now - last > _STALE_FENCE_S:
            since = now
        self._refused_since = generation, since, now
        if now - since > _STALE_FENCE_S:
            raise StaleFence(
                f"{error}, and has been for {_STALE_FENCE_S:.0f} s. If the consumer group was deleted it counts from 1 "
                "again: stop all daemons of the group and run `streamdedup index unfence`"
            )
        self._wait("partitions", error)

    def _halt(self, batch: Batch | None, error: DeadLetterBurst) -> None:
        """Publish nothing further, and keep the partitions, so that no other daemon drains them either."""
        log.error("halted", reason=str(error))
        self._readiness.halted = str(error)
        self._figures.halted()
        self._rewind(batch)

    def _index_lost(self, batch: Batch | None, error: IndexLost) -> None:
        """The index is gone: end, and say what helps; or look into it in the next turn, if that was wished."""
        self._recovery.lost(error)
        self._rewind(batch)

    def _step_of_rebuild(self) -> None:
        """Show that the loop is at work while it builds an index anew, and stop when asked to."""
        self._tick()
        self.waits_for("the index")
        if self._stop.stopping:
            raise StoreUnavailable("the rebuilding of the index was interrupted; the next start begins it anew")

    def _join_anew(self, error: BrokerUnavailable | Rejoin) -> None:
        """Kafka is away, or the group is to be joined anew: open new clients."""
        self.waits_for("partitions" if isinstance(error, Rejoin) else "Kafka")  # to close the old ones takes seconds
        if not isinstance(error, BrokerSilent):  # then new ones would have to await the old membership's end
            self._give_clients_up()
        if isinstance(error, Rejoin):
            self._wait("partitions", error)
        else:
            self._figures.broker_failed()
            self._wait("Kafka", error)

    def _producer_fenced(self, error: ProducerFenced) -> None:
        self.waits_for("Kafka")
        self._give_clients_up()
        now = time.monotonic()
        if self._fenced_at is not None and now - self._fenced_at < _FENCED_TWICE_S:
            raise error
        self._fenced_at = now
        self._wait("Kafka", error)

    def _wait(self, what: str, error: Exception) -> None:
        """Wait a little longer than last time, keeping the group membership where there is one."""
        if self._told != what:
            log.warning("waiting", what=what, reason=str(error))
        self.waits_for(what)
        self._told = what
        longest = min(_LONGEST_WAIT_S, _FIRST_WAIT_S * 2**self._attempts_count)
        wait_s = longest * random.uniform(0.5, 1.0)  # noqa: S311  spreads the retries of several daemons
        self._attempts_count = min(self._attempts_count + 1, 10)
        if self._clients is None:
            self._stop.wait(wait_s)
            return
        try:
            self._clients[0].hold(wait_s)
        except BrokerUnavailable as lost:
            log.warning("clients_lost", reason=str(lost))
            self._give_clients_up()
