"""``python -m tests.chaos storm`` and ``python -m tests.chaos selftest``: see docs/testing.md."""

import argparse
import os
import sys
import time
import uuid
from dataclasses import replace
from pathlib import Path

from streamdedup.index.redis.buckets import LAYOUTS
from tests.chaos import losses
from tests.chaos.broken import BREAKS
from tests.chaos.report import PER_SECOND, Options
from tests.chaos.storm import SHORT, Storm
from tests.chaos.traps import TRAPS, Trap, spring
from tests.chaos.verdict import Verdict
from tests.chaos.world import World, a_world
from tests.support.processes import processes_with

#: Environment variable of every process of a run, by which processes that are left running can be found.
RUN_MARK = "CHAOS_RUN_OF_STREAMDEDUP"
#: Loops that the short run must distinguish. Random faults seldom show the breach of another rule.
STORMY = (None, "no-claim")
#: A trap for each story.
STORIES = {trap.story: trap for trap in TRAPS}


def storm(arguments: argparse.Namespace) -> bool:
    """Run every trap and the faults of a seed; print and write the report."""
    options = Options(
        arguments.seed,
        arguments.kills,
        changes=arguments.changes,
        ends=arguments.ends,
        broken=arguments.broken,
        suppressing=arguments.suppress,
        layout=arguments.layout,
        losses=arguments.losses,
        keep=arguments.keep,
        per_second=losses.PER_SECOND if arguments.losses else PER_SECOND,
    )
    print(f"seed {options.seed}: {options.kills} kills and {', '.join(options.kinds)}", flush=True)
    with a_world(arguments.brokers, "redis-server") as world:
        played = [_play(trap, world, None) for trap in STORIES.values()]
        report = Storm(world, options, lambda line: print(line, flush=True)).run()
    print(*report.lines(), sep="\n", flush=True)
    report.write(arguments.report)
    return all(played) and report.good


def selftest(_arguments: argparse.Namespace) -> bool:
    """Run each trap, and a short run of faults, with the correct loop and with a broken one."""
    with a_world(redis_program="redis-server") as world:
        passed = [_play(trap, world, broken) for trap in TRAPS for broken in (None, trap.broken)]
        passed += [_run_short(world, broken) for broken in STORMY]
    return all(passed)


def _play(trap: Trap, world: World, broken: str | None) -> bool:
    began = time.monotonic()
    verdict = spring(trap, world, broken)
    return _report(trap.name, broken, verdict, loses=trap.loses, seconds=time.monotonic() - began)


def _run_short(world: World, broken: str | None) -> bool:
    report = Storm(world, replace(SHORT, broken=broken), lambda _line: None).run()
    return _report(f"faults of seed {SHORT.seed}", broken, report.verdict, loses=False, seconds=report.seconds)


def _report(what: str, broken: str | None, verdict: Verdict, *, loses: bool, seconds: float) -> bool:
    caught = verdict.lost_count if loses else verdict.doubled_count
    right = verdict.good if broken is None else caught > 0
    expected = "nothing wrong" if broken is None else "lost" if loses else "doubled"
    print(
        f"{'ok  ' if right else 'FAIL'} {what:24} loop: {broken or 'right':16} expected: {expected:14} "
        f"lost {verdict.lost_count} doubled {verdict.doubled_count} of {verdict.expected_count}  ({seconds:.0f} s)",
        flush=True,
    )
    return right


def _share(text: str) -> float:
    value = float(text)
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"{text} is no share: give a number from 0 to 1")
    return value


def main() -> None:
    """Run a command; exit with 1 when a pair was lost or doubled, or a fault had no effect."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    commands = parser.add_subparsers(required=True)
    run = commands.add_parser("storm", help="faults of a seed while documents flow")
    run.add_argument("--seed", type=int, default=1)
    run.add_argument("--kills", type=int, default=12)
    run.add_argument("--brokers", type=int, choices=(1, 3), default=1)
    run.add_argument("--changes", type=_share, default=0.0, help="share of records that change a document")
    run.add_argument("--ends", type=_share, default=0.0, help="share of records that append to a document or delete it")
    run.add_argument("--break", dest="broken", choices=sorted(BREAKS), help="with a loop that is broken on purpose")
    run.add_argument("--losses", type=int, default=0, help="number of losses of the index")
    run.add_argument("--suppress", action="store_true", help="with rules of the profile about what is alerted")
    run.add_argument("--layout", choices=LAYOUTS, default="sets", help="bucket layout of the index")
    run.add_argument("--keep", type=Path, metavar="FOLDER", help="for the topics and logs of a bad run")
    run.add_argument("--report", type=Path, default=Path("chaos-report.json"), help="file for the report, as JSON")
    run.set_defaults(do=storm)
    commands.add_parser("selftest", help="broken loops must be caught").set_defaults(do=selftest)
    arguments = parser.parse_args()
    mark = os.environ[RUN_MARK] = uuid.uuid4().hex
    good = arguments.do(arguments)
    if remains := processes_with(RUN_MARK, mark):
        print("left running:", *remains, sep="\n    ")
    sys.exit(0 if good and not remains else 1)


if __name__ == "__main__":
    main()
