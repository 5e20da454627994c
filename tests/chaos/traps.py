"""Faults at the step where they do most harm: one scenario for each rule, with documents that show a breach.

Random faults would seldom produce these schedules. Each scenario has topics of its own and ends when all records are
committed; the verdict comes from the topics. With the correct loop no pair is lost or doubled. The loop that breaks the
rule must lose or double a pair.
"""

import contextlib
import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from kafka import KafkaProducer

from tests import servers
from tests.chaos.stream import KeyValue, a_record, endless
from tests.chaos.verdict import Verdict, judge_topics
from tests.chaos.world import WatchedDaemon, World
from tests.daemons import Installation, set_offsets

#: A text, a near-duplicate of it, and a different text.
TEXT = "the ferry to kestrel bay runs again from the first week of may with six crossings a day"
NEAR = "the ferry to kestrel bay runs again from the first week of may with six crossings at noon"
FAR = "nobody has seen the northern lights this far south since the winter of the great comet"
#: Redis is never away here; a daemon that repeats its batch, after a time-out on a busy machine, finds what the broken
#: loop missed.
PATIENT_WITH_REDIS = {"redis.timeout": "30s"}
#: The same for Kafka: of daemons that nothing happens to, and whose place no other daemon must take soon.
PATIENT = {
    "session_timeout": "60s",
    "transaction_timeout": "180s",
    "max_poll_interval": "300s",
}
#: Settings of daemons that keep their partitions while they are held at a step (heartbeats go on), and lose them soon
#: after a kill.
HELD = {
    "session_timeout": "20s",
    "transaction_timeout": "30s",
    "max_poll_interval": "300s",
}
#: API key of the produce request.
PRODUCE = 0
#: Retention and slack of scenarios in which the index is lost, in seconds.
RETENTION_S, SLACK_S = 40, 40
#: Longest time until all records are committed at the end of a scenario, in seconds.
DRAIN_S = 180.0


@dataclass
class Scene:
    """Servers, topics with two partitions, and daemons of a scenario, all with one broken loop or the correct one."""

    world: World
    installation: Installation
    broken: str | None
    daemons: list[WatchedDaemon] = field(default_factory=list)
    produced: int = 0
    settings: dict[str, str] = field(default_factory=dict)

    def daemon(self, name: str, **settings: str) -> WatchedDaemon:
        """Return a daemon that is not started yet, with its settings of Kafka."""
        keyed = PATIENT_WITH_REDIS | self.settings | {f"kafka.{key}": value for key, value in settings.items()}
        daemon = WatchedDaemon(self.installation, name, keyed, self.broken, full_batches=True)
        self.daemons.append(daemon)
        return daemon

    def produce(self, partition: int, *records: KeyValue) -> None:
        with contextlib.closing(KafkaProducer(bootstrap_servers=self.installation.kafka.split(","))) as producer:
            futures = [producer.send(self.installation.topic, v, key=k, partition=partition) for k, v in records]
            producer.flush(servers.DEADLINE_S)
            for future in futures:
                future.get(0)
        self.produced += len(records)

    def pair_of_owners(self, **settings: str) -> tuple[WatchedDaemon, WatchedDaemon]:
        """Start two daemons with one partition each, and settings of Kafka."""
        a, b = self.daemon("a", **settings), self.daemon("b", **settings)
        a.start()
        b.start()
        servers.wait_until(lambda: len(a.owned()) == len(b.owned()) == 1, what="one partition for each daemon")
        return a, b

    def hold_owner(self, point: str, partition: int, *records: KeyValue) -> tuple[WatchedDaemon, WatchedDaemon]:
        """Append to a partition and hold its owner at a point; return the owner and the other daemon.

        The owner stays a member of the group: otherwise the other daemon would process the records while they are held.
        """
        for daemon in self.daemons:
            daemon.aim(point, "stall")
        self.produce(partition, *records)
        servers.wait_until(lambda: any(d.held for d in self.daemons), what="a daemon to be held")
        (owner,) = [d for d in self.daemons if d.held]
        (other,) = [d for d in self.daemons if not d.held]
        other.disarm()
        return owner, other

    def finish(self) -> Verdict:
        """Wait until all records are committed, stop the daemons, and judge."""
        for daemon in self.daemons:
            daemon.release()
        self.installation.wait_committed(self.produced, DRAIN_S)
        for daemon in self.daemons:
            if daemon.running:
                daemon.stop()
        topics = self.installation
        return judge_topics(topics.kafka, topics.topic, topics.duplicates)


def message_given_up(scene: Scene) -> None:
    """The partition of the alerts does not answer until the client gives the alerts up; the coordinators answer."""
    # The alerts are given up after 25 s, and the broker aborts the transaction after 30 s: the broken loop commits in
    # between.
    a = scene.daemon("a", **{**PATIENT, "transaction_timeout": "30s"})
    a.start()
    # After a first transaction the client knows all coordinators.
    scene.produce(0, a_record("v", FAR), a_record("w", FAR))
    scene.installation.wait_committed(2)
    proxies = scene.world.kafka.proxies
    for proxy in proxies:
        proxy.swallowed_request = PRODUCE
    since = time.monotonic_ns()
    scene.produce(0, a_record("x", TEXT), a_record("y", NEAR))
    a.wait_passed("after_send", since)
    since = next(passage.at_ns for passage in a.passages(since) if passage.point == "after_send")
    given_up = ("before_send_offsets", "before_init_transactions")
    servers.wait_until(lambda: any(a.passed(point, since) for point in given_up), what="the alerts to be given up")
    for proxy in proxies:
        proxy.swallowed_request = None


def late_commit(scene: Scene) -> None:
    """A daemon sleeps before its transaction until another daemon has taken over and processed its records."""
    # Within these limits the first must commit, and after the last of them the second takes over.
    late = {"transaction_timeout": "12s", "max_poll_interval": "13s"}
    a, b = scene.daemon("a", **late), scene.daemon("b", **PATIENT)
    a.aim_at_start("before_begin", "stall")
    scene.produce(0, a_record("x", TEXT), a_record("y", NEAR))
    a.start()
    a.wait_held()
    b.start()
    scene.installation.wait_committed(scene.produced)
    a.release()
    # Its commit has ended when it polls again or opens new clients.
    since = time.monotonic_ns()
    over = ("before_poll", "before_init_transactions")
    servers.wait_until(lambda: any(a.passed(point, since) for point in over), what="the end of the late commit")


def found_from_both_sides(scene: Scene) -> None:
    """A document is indexed and its daemon killed; another document matches it; then the first is processed again."""
    scene.pair_of_owners(**HELD)
    owner, _ = scene.hold_owner("before_begin", 0, a_record("x", TEXT))
    before = scene.installation.committed_count()
    scene.produce(1, a_record("y", NEAR))
    scene.installation.wait_committed(before + 1)
    owner.kill()
    owner.release()
    owner.start()


def race(scene: Scene) -> None:
    """Two daemons insert near-duplicates into the same buckets at the same time."""
    point = "between_read_and_add" if scene.broken == "read-then-add" else "before_insert_and_look_up"
    a, b = scene.pair_of_owners(**PATIENT)
    a.aim(point, "stall")
    b.aim(point, "stall")
    scene.produce(0, a_record("x", TEXT))
    scene.produce(1, a_record("y", NEAR))
    a.wait_held()
    b.wait_held()
    a.release()
    b.release()


def offsets_of_others(scene: Scene) -> None:
    """A transaction fails because its partitions have a new owner; the next transaction must not commit their offsets.

    The first daemon polls many records, and is frozen before its offsets. The second takes over, and processes one
    document at a time. The first continues, gets one partition, and is held before the offsets of its first batch; then
    the second is killed. The first must process the rest.
    """
    # The transaction of the first outlasts the start of the second; the session of the second outlasts its end by so
    # much that the first commits before the group notices.
    a = scene.daemon(
        "a", batch_records="1000", session_timeout="10s", transaction_timeout="120s", max_poll_interval="300s"
    )
    b = scene.daemon("b", batch_records="1", **{**HELD, "transaction_timeout": "20s"})
    documents = [record for record in itertools.islice(endless(5), 700) if not record[0].startswith(b"poison")]
    scene.produce(0, *documents[::2])
    scene.produce(1, *documents[1::2])
    a.aim_at_start("before_send_offsets")
    a.start()
    a.wait_held()
    b.aim_at_start("before_insert_entries", "stall")
    b.start()
    b.wait_held()
    a.release()
    a.aim("before_send_offsets", "stall")
    b.release()
    a.wait_held()
    b.kill()
    a.release()


def awake_too_late(scene: Scene) -> None:
    """A daemon is frozen before the buckets, and continues when its document is committed and a match is inserted."""
    a, b = scene.daemon("a"), scene.daemon("b", **PATIENT)
    a.aim_at_start("before_insert_and_look_up")
    scene.produce(0, a_record("x", TEXT))
    a.start()
    a.wait_held()
    b.start()
    scene.installation.wait_committed(1)
    b.aim("after_insert_and_look_up", "stall")
    scene.produce(1, a_record("y", NEAR))
    b.wait_held()
    since = time.monotonic_ns()
    a.release()
    over = ("after_claim_pairs", "before_poll", "before_init_transactions")
    servers.wait_until(lambda: any(a.passed(point, since) for point in over), what="the late daemon to end its batch")
    b.release()


def match_gone(scene: Scene) -> None:
    """A pair is claimed and its daemon killed; the match changes, the document is replayed, the match returns."""
    scene.pair_of_owners(**HELD)
    before = scene.installation.committed_count()
    scene.produce(1, a_record("y", NEAR))
    scene.installation.wait_committed(before + 1)
    owner, _ = scene.hold_owner("before_begin", 0, a_record("x", TEXT))
    scene.produce(1, a_record("y", FAR))
    scene.installation.wait_committed(before + 2)
    owner.kill()
    owner.release()
    owner.start()
    scene.installation.wait_committed(before + 3)
    scene.produce(1, a_record("y", NEAR))


def flushed_in_flight(scene: Scene) -> None:
    """The index is lost while a document is in progress, and an alert names two matches: the document is the second."""
    _lose_in_flight(scene, 0.0)


def flushed_later(scene: Scene) -> None:
    """The same, more than half a window after the alert."""
    _lose_in_flight(scene, (RETENTION_S + SLACK_S) / 2 + 5)


def _lose_in_flight(scene: Scene, pause_s: float) -> None:
    scene.settings = {
        "profiles.articles.retention": f"{RETENTION_S}s",
        "profiles.articles.retention_slack": f"{SLACK_S}s",
    }
    scene.pair_of_owners(**HELD)
    before = scene.installation.committed_count()
    scene.produce(1, a_record("a", TEXT))
    scene.installation.wait_committed(before + 1)
    owner, _ = scene.hold_owner("before_begin", 0, a_record("x", TEXT))
    scene.produce(1, a_record("y", NEAR))
    scene.installation.wait_committed(before + 2)
    time.sleep(pause_s)
    with scene.world.redis_client() as client:
        client.flushall()
    owner.kill()
    owner.release()
    owner.start()


def flushed_and_set_back(scene: Scene) -> None:
    """The index is lost, and an operator sets the offsets back behind an alert."""
    a = scene.daemon("a", **HELD)
    a.start()
    scene.produce(0, a_record("x", TEXT), a_record("y", NEAR))
    scene.installation.wait_committed(2)
    a.stop()
    with scene.world.redis_client() as client:
        client.flushall()
    topics = scene.installation
    set_offsets(topics.kafka, topics.group, {(topics.topic, 0): 1})
    a.start()


@dataclass(frozen=True, slots=True)
class Trap:
    """A scenario, and the broken loop that must be caught because it loses a pair, or else doubles one."""

    story: Callable[[Scene], None]
    broken: str
    loses: bool

    @property
    def name(self) -> str:
        return self.story.__name__.replace("_", " ")


#: All traps.
TRAPS = (
    Trap(message_given_up, "unchecked", loses=True),
    Trap(late_commit, "late-metadata", loses=False),
    Trap(found_from_both_sides, "no-claim", loses=False),
    Trap(race, "read-then-add", loses=True),
    Trap(offsets_of_others, "reused-producer", loses=True),
    Trap(awake_too_late, "no-fence", loses=True),
    Trap(match_gone, "no-partners", loses=True),
    Trap(flushed_in_flight, "not-seeded", loses=False),
    Trap(flushed_in_flight, "first-match", loses=False),
    Trap(flushed_later, "half-window", loses=False),
    Trap(flushed_and_set_back, "own-position", loses=False),
)


@contextlib.contextmanager
def scene_of(world: World, broken: str | None) -> Iterator[Scene]:
    """Open a scene; its daemons end with it."""
    scene = Scene(world, world.install(2, outputs=1, batch_records=50), broken)
    try:
        yield scene
    finally:
        for daemon in scene.daemons:
            daemon.__exit__(None, None, None)


def spring(trap: Trap, world: World, broken: str | None = None) -> Verdict:
    """Run a scenario with the correct loop or with a broken one, and judge it."""
    with scene_of(world, broken) as scene:
        trap.story(scene)
        return scene.finish()
