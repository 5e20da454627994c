"""More daemons, and Redis on more servers, Kafka to Kafka; and the speed with a core for each process.

    python -m benchmarks.scale [--quick] [--documents 190430] [--rounds 2] [--redis PROGRAM]

One, two and four daemons that share the partitions, with an index on one Redis server or spread over the masters of a
cluster, by one slot for each band or several. The beginning and the end, when not all processes are at work, do not
count (`COUNTED`). `benchmarks.world` defines a round. On a machine with fewer cores than processes the processes share
them, so that more of them are hardly faster. The processor time of each tells what they could do on a machine with a
core each.
"""

from typing import NamedTuple

from benchmarks import datasets, report, servers
from benchmarks.world import Entry, Make, Round, World, best_of, in_turns, rates, results_of, setting_of
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
    program = servers.redis_programs(arguments.redis)[0]
    with World.started(program) as world, redis_cluster(program, MASTERS) as cluster:
        world.add_cluster(cluster.nodes, cluster.clients)
        world.fill("all", texts.documents)
        entries = [Entry(str(setup), "all", maker(world, setup), COUNTED) for setup in SETUPS]
        rounds = in_turns(world, "all", entries, arguments.rounds)
        setting = setting_of(world, f"{texts.name}: {arguments.documents:,}", rounds)
        setting["counted"] = f"from {COUNTED[0]:.0%} to {COUNTED[1]:.0%} of the documents"
    best = dict(zip(SETUPS, best_of(rounds).values(), strict=True))
    tables = {"rates": rates(rounds), "cores": cores(best)}
    report.Report("scale", arguments.quick, setting, results_of(rounds), tables).show(arguments.output)


def maker(world: World, setup: Setup) -> Make:
    """Return a factory of the daemons."""
    return lambda job: [world.daemon(job, shards=setup.shards) for _ in range(setup.daemons)]


def cores(best: dict[Setup, Round]) -> report.Table:
    """Return the table of speeds with a core for each process, from measured processor times.

    The most documents a second are those of the slowest process if every process works all the time, the busiest of
    the Redis servers for all of them. The least are those of daemons that wait while Redis works for them.
    """
    rows = []
    for setup, measured in best.items():
        daemon_us, redis_us, kafka_us = (measured.cpu_us[name] for name in ("consumer", "Redis", "Kafka"))
        limits = {"daemon": setup.daemons / daemon_us, "Redis": 1 / measured.busiest_us, "Kafka": 1 / kafka_us}
        most = min(limits.values())
        least = min(setup.daemons / (daemon_us + redis_us), limits["Redis"], limits["Kafka"])
        rows.append(
            [
                setup,
                report.percent(measured.busiest_us / redis_us, 0),
                *(1e6 * limit for limit in limits.values()),
                f"{1e6 * least:,.0f} to {1e6 * most:,.0f}",
                min(limits, key=limits.__getitem__),
            ]
        )
    columns = {"with a core each": "", "busiest Redis": "", "daemons": ",.0f", "Redis": ",.0f", "Kafka": ",.0f"}
    return report.table(columns | {"documents/s": "", "limited by": ""}, rows)


if __name__ == "__main__":
    main()
