"""More daemons, and Redis on more servers, Kafka to Kafka; and the speed with a core for each process.

    python -m benchmarks.scale [--quick] [--documents 190430] [--rounds 2] [--redis PROGRAM]

One, two and four daemons that share the partitions, with an index on one Redis server or spread over the masters of a
cluster, by one slot for each band or several. The beginning and the end, when not all processes are at work, do not
count (`COUNTED`). `benchmarks.world` defines a round. On a machine with fewer cores than processes the processes share
them, so that more of them are hardly faster. The processor time of each tells what they could do on a machine with a
core each.
"""

from contextlib import ExitStack
from typing import Any, NamedTuple

from benchmarks import datasets, report, servers
from benchmarks.world import Entry, Job, Round, World, best_of, in_turns, rates, results_of, setting_of
from tests.redis_sets import redis_cluster


class Setup(NamedTuple):
    """Numbers of daemons, of Redis masters, and of slots for each band; None without a cluster."""

    daemons: int
    masters: int
    shards: int | None

    def __str__(self) -> str:
        servers = "1 Redis" if self.shards is None else f"{self.masters} Redis, shards = {self.shards}"
        return f"{self.daemons} daemon{'s' * (self.daemons > 1)}, {servers}"


#: Shares of the documents between which the time counts: at first the consumer group assigns the partitions anew for
#: each daemon that joins, and at the end one daemon has no more documents.
COUNTED = (0.15, 0.8)
#: Masters of the cluster.
MASTERS = 3
SETUPS = (
    *(Setup(daemons, 1, None) for daemons in (1, 2, 4)),
    *(Setup(daemons, MASTERS, 1) for daemons in (1, 2, 4)),
    Setup(4, MASTERS, 4),
)


def main() -> None:
    """Measure, print, write."""
    quick, usual = {"documents": 60_000, "rounds": 1}, {"documents": 190_430, "rounds": 2}
    arguments = report.arguments_of(report.parser(__doc__), quick, usual)
    texts = datasets.load(arguments.documents)
    with ExitStack() as stack:
        world = World(stack, arguments.redis)
        cluster = stack.enter_context(redis_cluster(servers.redis_program(arguments.redis), MASTERS))
        world.add_cluster([(node, client) for node, client in zip(cluster.nodes, cluster.clients, strict=True)])
        world.fill("all", texts.documents)
        entries = [Entry(str(setup), "all", maker(world, setup), COUNTED) for setup in SETUPS]
        rounds = in_turns(world, "all", entries, arguments.rounds)
        setting = setting_of(world, f"{texts.name}: {arguments.documents:,}", rounds)
        setting["counted"] = f"from {COUNTED[0]:.0%} to {COUNTED[1]:.0%} of the documents"
    best = dict(zip(SETUPS, best_of(rounds).values(), strict=True))
    tables = {"rates": rates(rounds), "cores": cores(best)}
    report.Report("scale", arguments.quick, setting, results_of(rounds), tables).show(arguments.output)


def maker(world: World, setup: Setup) -> Any:
    """Return a factory of the daemons."""

    def make(job: Job) -> list[Any]:
        return [world.daemon(job, shards=setup.shards) for _ in range(setup.daemons)]

    return make


class Capacity(NamedTuple):
    """Speed of a setup with a core for each process, in documents a second.

    Attributes:
        daemons: All daemons, if they never wait.
        redis: All Redis servers, when the busiest is always at work.
        kafka: The broker.
        in_turns: All daemons, if each waits while Redis works for it.
    """

    daemons: float
    redis: float
    kafka: float
    in_turns: float

    @property
    def most(self) -> float:
        """Every process works all the time."""
        return min(self.daemons, self.redis, self.kafka)

    @property
    def least(self) -> float:
        """Daemons and Redis take turns."""
        return min(self.in_turns, self.redis, self.kafka)

    @property
    def limit(self) -> str:
        """The process that limits ``most``."""
        return min((self.daemons, "daemon"), (self.redis, "Redis"), (self.kafka, "Kafka"))[1]


def capacity(setup: Setup, measured: Round) -> Capacity:
    """Return the speed of a setup, from measured processor times.

    Args:
        setup: The setup.
        measured: Processor time of each process for a document, all daemons and all Redis servers together.
    """
    daemon_us, redis_us, kafka_us = (measured.cpu_us[name] for name in ("consumer", "Redis", "Kafka"))
    return Capacity(
        daemons=1e6 * setup.daemons / daemon_us,
        redis=1e6 / measured.busiest_us,
        kafka=1e6 / kafka_us,
        in_turns=1e6 * setup.daemons / (daemon_us + redis_us),
    )


def cores(best: dict[Setup, Round]) -> report.Table:
    """Return the table of speeds with a core for each process."""
    rows = []
    for setup, measured in best.items():
        limits = capacity(setup, measured)
        shown = [f"{value:,.0f}" for value in (limits.daemons, limits.redis, limits.kafka)]
        busiest = report.percent(measured.busiest_us / measured.cpu_us["Redis"], 0)
        rows.append([str(setup), busiest, *shown, f"{limits.least:,.0f} to {limits.most:,.0f}", limits.limit])
    columns = ["with a core each", "busiest Redis", "daemons", "Redis", "Kafka", "documents/s", "limited by"]
    return report.Table(columns, rows)


if __name__ == "__main__":
    main()
