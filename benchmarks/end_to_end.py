"""Kafka to Kafka: one daemon with its default settings beside consumers with datasketch, on the same servers.

    python -m benchmarks.end_to_end [--quick] [--documents 57129] [--peer-documents 3000] [--rounds 3] [--redis PROGRAM]

The input topic is filled beforehand; `benchmarks.world` defines a round. Contenders take turns, and the best round of
each counts. The peers get fewer documents, because they are slower; that their index stays small is to their advantage.
"""

import argparse
from contextlib import ExitStack
from dataclasses import asdict
from typing import Any

from benchmarks import corpus, peers, report
from benchmarks.ours import default_banding
from benchmarks.world import Entry, Make, Round, World, arguments_of, best_of, in_turns, others
from streamdedup.similarity.lsh import Banding

STAGES = ("poll", "prepare", "index", "publish")
#: Stage of a thread beside the loop.
BESIDE = "ahead"
OURS = "streamdedup"


def main() -> None:
    """Measure, print, write."""
    quick = {"documents": 20_000, "peer_documents": 1_500, "rounds": 1}
    usual = {"documents": 57_129, "peer_documents": 3_000, "rounds": 3}
    arguments = arguments_of(report.parser(__doc__), quick, usual)
    texts = corpus.load(arguments.documents)
    with ExitStack() as stack:
        world = World(stack, arguments.redis)
        world.fill("all", texts.documents)
        world.fill("few", texts.documents[: arguments.peer_documents])
        entered = contenders(world)
        rounds = in_turns(world, "all", [entry for entry, _ in entered], arguments.rounds)
        best = best_of(rounds)
        setting = {
            "documents": f"{texts.name}: {arguments.documents:,}, for the peers the first {arguments.peer_documents:,}",
            "servers": world.servers(),
            "rounds": arguments.rounds,
            "other programs": others(best),
        }
    show(arguments, setting, [(entry.name, banding) for entry, banding in entered], rounds)


def contenders(world: World) -> list[tuple[Entry, Banding | None]]:
    """Return all contenders, with their bands if they have any."""
    found: list[tuple[Entry, Banding | None]] = [
        (Entry("bare loop", "all", lambda job: [world.consumer(job, "bare")]), None),
        (Entry(OURS, "all", lambda job: [world.daemon(job)]), default_banding()),
    ]
    bandings = (peers.own_banding(), default_banding())
    both = [(step, banding) for step in peers.WAYS for banding in bandings]
    found += [(Entry(f"datasketch, {step}", "few", peer(world, step, banding)), banding) for step, banding in both]
    return found


def peer(world: World, step: str, banding: Banding) -> Make:
    """Return a factory of a consumer with datasketch."""
    more = ["--step", step, "--bands", str(banding.bands), "--rows", str(banding.rows)]
    return lambda job: [world.consumer(job, "datasketch", *more)]


def show(
    arguments: argparse.Namespace,
    setting: dict[str, Any],
    names: list[tuple[str, Banding | None]],
    rounds: list[list[Round]],
) -> None:
    """Print and write everything."""
    best = best_of(rounds)
    (ours,) = (one for (name, _), one in zip(names, best, strict=True) if name == OURS)
    results = [
        {
            "name": name,
            "bands": banding and banding.bands,
            "rows": banding and banding.rows,
            "times_slower": ours.documents_per_s / one.documents_per_s,
            "best": asdict(one),
            "rounds": [asdict(each) for each in own],
        }
        for (name, banding), one, own in zip(names, best, rounds, strict=True)
    ]
    tables = {"rates": rates(names, best, ours), "processes": processes(names, best), "stages": stages(ours)}
    report.Report("end_to_end", arguments.quick, setting, results, tables).show(arguments.output)


def rates(names: list[tuple[str, Banding | None]], best: list[Round], ours: Round) -> report.Table:
    """Return the table of rates."""
    rows = []
    for (name, banding), one in zip(names, best, strict=True):
        shown = ["", ""] if banding is None else [str(banding), f"{banding.probability(peers.THRESHOLD):.2f}"]
        faster = "" if one is ours or banding is None else f"{ours.documents_per_s / one.documents_per_s:.1f}x"
        rows.append([name, *shown, f"{one.documents_per_s:,.0f}", faster])
    return report.Table(["", "bands x rows", "finds at 0.8", "documents/s", "streamdedup is faster"], rows)


def processes(names: list[tuple[str, Banding | None]], best: list[Round]) -> report.Table:
    """Return the table of the processor time of each process for a document."""
    rows = []
    for (name, banding), one in zip(names, best, strict=True):
        used = [f"{us:,.0f}" for us in one.cpu_us.values()]
        rows.append([name, "" if banding is None else str(banding), *used, f"{sum(one.cpu_us.values()):,.0f}"])
    return report.Table(["processor time, µs a document", "bands x rows", *best[0].cpu_us, "together"], rows)


def stages(ours: Round) -> report.Table:
    """Return the table of the daemon's stages: those of its loop, then the preparing beside the loop."""
    total_us = 1e6 / ours.documents_per_s
    spent = {name: ours.stages_us[name] for name in STAGES}
    spent["the rest"] = total_us - sum(spent.values())
    return report.Table(
        ["stage", "µs a document", "share"],
        [
            *([name, f"{us:.0f}", f"{us / total_us:.0%}"] for name, us in [*spent.items(), ("together", total_us)]),
            [BESIDE, f"{ours.stages_us[BESIDE]:.0f}", ""],
        ],
    )


if __name__ == "__main__":
    main()
