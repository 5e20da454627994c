"""Kafka to Kafka: one daemon with its default settings beside consumers with datasketch, on the same servers.

The input topic is filled beforehand; `benchmarks.world` defines a round. Contenders take turns, and the best round of
each counts. The peers get fewer documents, because they are slower; that their index stays small is to their advantage.
"""

from collections.abc import Mapping

from benchmarks import datasets, peers, report
from benchmarks.ours import default_banding
from benchmarks.world import Entry, Make, Round, Rounds, World, best_of, in_turns, setting_of
from streamdedup.similarity.lsh import Banding

STAGES = ("poll", "prepare", "index", "publish")
#: Stage of a thread beside the loop.
BESIDE = "ahead"
OURS, BARE = "streamdedup", "bare loop"


def main(*, quick: bool) -> report.Report:
    # More than one batch of a peer: a round needs two commits.
    count, peer_count, rounds_count = (20_000, 2_500, 1) if quick else (57_129, 3_000, 3)
    texts = datasets.load(count)
    with World.started() as world:
        world.fill("all", texts.documents)
        world.fill("few", texts.documents[:peer_count])
        entries, bandings = contenders(world)
        rounds = in_turns(world, "all", entries, rounds_count)
        documents = f"{texts.name}: {count:,}, for the peers the first {peer_count:,}"
        setting = setting_of(world, documents, rounds)
    best = best_of(rounds)
    tables = {"rates": rates(rounds, bandings), "processes": processes(best), "stages": stages(best[OURS])}
    return report.Report(setting, tables)


def contenders(world: World) -> tuple[list[Entry], dict[str, Banding]]:
    """Return all contenders, and the bands of those that have any."""
    entries = [
        Entry(BARE, "all", lambda job: [world.consumer(job, "bare")]),
        Entry(OURS, "all", lambda job: [world.daemon(job)]),
    ]
    bandings = {OURS: default_banding()}
    for way in peers.WAYS:
        for banding in (peers.own_banding(), default_banding()):
            name = f"datasketch {banding}, {way}"
            entries.append(Entry(name, "few", peer(world, way, banding)))
            bandings[name] = banding
    return entries, bandings


def peer(world: World, way: str, banding: Banding) -> Make:
    more = {"redis": world.redis.url, "way": way, "bands": banding.bands, "rows": banding.rows}
    return lambda job: [world.consumer(job, "datasketch", **more)]


def rates(rounds: Rounds, bandings: Mapping[str, Banding]) -> report.Table:
    """Return the table of rates: the best round of each contender, and the range of its rounds."""
    rows = []
    best = best_of(rounds)
    for name, measured in best.items():
        banding = bandings.get(name)
        shown = ["", ""] if banding is None else [banding, banding.probability(peers.THRESHOLD)]
        ratio = best[OURS].documents_per_s / measured.documents_per_s
        slowest = min(round_.documents_per_s for round_ in rounds[name])
        faster = "" if name in (OURS, BARE) else f"{ratio:.1f}x"
        rows.append([name, *shown, measured.documents_per_s, slowest, faster])
    columns = {"": "", "bands x rows": "", "finds at 0.8": ".2f", "documents/s": ",.0f", "slowest round": ",.0f"}
    return report.table(columns | {"streamdedup is faster": ""}, rows)


def processes(best: Mapping[str, Round]) -> report.Table:
    columns = {"processor time, µs a document": ""} | dict.fromkeys([*best[OURS].cpu_us, "together"], ",.0f")
    used = {name: measured.cpu_us.values() for name, measured in best.items()}
    return report.table(columns, [[name, *used_us, sum(used_us)] for name, used_us in used.items()])


def stages(ours: Round) -> report.Table:
    """Return the table of the daemon's stages: those of its loop, then the preparing beside the loop."""
    total_us = 1e6 / ours.documents_per_s
    spent = {name: ours.stages_us[name] for name in STAGES}
    spent |= {"the rest": total_us - sum(spent.values()), "together": total_us}
    rows = [[name, us, us / total_us] for name, us in spent.items()]
    beside = [BESIDE, ours.stages_us.get(BESIDE, 0), ""]
    return report.table({"stage": "", "µs a document": ".0f", "share": ".0%"}, [*rows, beside])
