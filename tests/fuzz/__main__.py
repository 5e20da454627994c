"""``python -m tests.fuzz messages``, ``requests``, ``daemon`` and ``schemas``: see docs/testing.md."""

import argparse
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from streamdedup.embedded import RedisServer
from tests.fuzz import daemon as through_daemon
from tests.fuzz.accounts import Account, Accountant, Unaccounted
from tests.fuzz.fuzzed import Fuzzed
from tests.fuzz.memory import growth
from tests.fuzz.requests import Defect, fuzz_requests
from tests.fuzz.workers import CHUNK, Failed, begin, chunk
from tests.servers import make_kafka, make_registry

#: Growth of memory from the second quarter of a run to the last that is none.
MOST_GROWTH = 0.05
#: First chunks of a process that count as warming up, however short the run: the allocator and the caches fill.
_WARM_UP_CHUNKS = 10


def messages(arguments: argparse.Namespace) -> bool:
    """Take messages through loop, decoder and detector."""
    if arguments.replay:
        return _replay(arguments.replay)
    began, told = time.monotonic(), 0
    total, rss = Account(), {}
    for account, worker, rss_of_worker in _accounts(arguments):
        total.add(account)
        rss.setdefault(worker, []).append(rss_of_worker)
        done, seconds = total.outcomes.total(), time.monotonic() - began
        if seconds // 10 > told:
            told = seconds // 10
            print(f"  {done:,} of {arguments.count:,}, {done / seconds:,.0f}/s", flush=True)
    seconds = time.monotonic() - began
    done = total.outcomes.total()
    print(f"seed {arguments.seed}: {done:,} messages in {seconds:.0f} s, {done / seconds:,.0f}/s")
    print(*_lines(total), sep="\n")
    grown = {worker: growth(samples[_WARM_UP_CHUNKS:]) for worker, samples in rss.items()}
    for worker, samples in rss.items():
        first, last = samples[0] / 1e6, samples[-1] / 1e6
        print(f"  RSS of process {worker}: {first:.1f} to {last:.1f} MB, {grown[worker]:+.1%} after warming up")
    return done == arguments.count and all(each <= MOST_GROWTH for each in grown.values())


def _accounts(arguments: argparse.Namespace) -> Iterator[tuple[Account, int, int]]:
    """Yield the account of each chunk, the worker that made it, and its memory in bytes."""
    firsts = range(0, arguments.count, CHUNK)
    chunks = [(f"{arguments.seed}-{first}", min(CHUNK, arguments.count - first)) for first in firsts]
    with multiprocessing.get_context("spawn").Pool(arguments.jobs, begin) as pool:
        yield from pool.imap_unordered(chunk, chunks)


def _lines(account: Account) -> Iterator[str]:
    total = account.outcomes.total()
    letters = sum(count for name, count in account.outcomes.items() if name.startswith("dead letter"))
    skipped = sum(count for name, count in account.outcomes.items() if name.startswith("skipped"))
    processed, deleted = account.outcomes["processed"], account.outcomes["deleted"]
    yield (
        f"  consumed {total:,} = processed {processed:,} + deleted {deleted:,} + skipped {skipped:,} "
        f"+ dead letters {letters:,}"
    )
    for name, count in account.outcomes.most_common():
        yield f"  {count:9,}  {name}"
    yield f"  {account.pairs_count:,} pairs, {account.cut_count:,} letters cut, {account.judged_count:,} read twice"
    kinds = sorted({name for name, _ in account.made_by})
    shares = {name: (account.made_by[name, True], account.made_by[name, False]) for name in kinds}
    yield "  dead letters by what was done: " + ", ".join(f"{n} {d / (d + o):.0%}" for n, (d, o) in shares.items())


def _replay(path: Path) -> bool:
    """Take the messages of a file through again, and say what becomes of them."""
    again = [Fuzzed.from_json(line) for line in path.read_text(encoding="utf-8").splitlines()]
    try:
        account = Accountant().settle(again)
    except Unaccounted as error:
        print(f"{len(again)} messages: {error.reason}")
        cause = error.__cause__
        if cause is not None:
            raise cause from None
        return False
    print(*_lines(account), sep="\n")
    return True


def requests(arguments: argparse.Namespace) -> bool:
    """Send damaged requests to the HTTP service, without a socket."""
    began = time.monotonic()
    statuses, rss = fuzz_requests(arguments.seed, arguments.count)
    seconds = time.monotonic() - began
    print(f"seed {arguments.seed}: {arguments.count:,} requests in {seconds:.0f} s, {arguments.count / seconds:,.0f}/s")
    for status, count in sorted(statuses.items()):
        print(f"  {count:9,}  {status}")
    grown = growth(rss)
    print(f"  RSS: {rss[0] / 1e6:.1f} to {rss[-1] / 1e6:.1f} MB, {grown:+.1%}")
    return grown <= MOST_GROWTH


def daemon(arguments: argparse.Namespace) -> bool:
    """Send messages through a real Kafka to a real daemon, and compare the topics with what was sent."""
    with tempfile.TemporaryDirectory() as folder, make_kafka() as kafka, RedisServer(None) as redis:
        report = through_daemon.run(
            arguments.seed, arguments.count, Path(folder), kafka=kafka.bootstrap_servers, redis=redis.url
        )
    print(*report.lines(), sep="\n")
    return report.good


def schemas(arguments: argparse.Namespace) -> bool:
    """Do the same with Avro and Protobuf values, whose schemas are in a real registry."""
    with (
        tempfile.TemporaryDirectory() as folder,
        make_kafka() as kafka,
        RedisServer(None) as redis,
        make_registry() as registry,
    ):
        servers = {"kafka": kafka.bootstrap_servers, "redis": redis.url, "registry": registry.url}
        report = through_daemon.run_schemas(arguments.seed, arguments.count, Path(folder), **servers)
    print(*report.lines(), sep="\n")
    return report.good


def main() -> None:
    """Run a command; exit with 1 when something was not accounted for."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    commands = parser.add_subparsers(required=True)
    for command, count in ((messages, 1_000_000), (requests, 200_000), (daemon, 20_000), (schemas, 20_000)):
        sub = commands.add_parser(command.__name__, help=command.__doc__)
        sub.add_argument("--count", type=int, default=count)
        sub.add_argument("--seed", default="1")
        sub.set_defaults(do=command)
        if command is messages:
            sub.add_argument("--jobs", type=int, default=multiprocessing.cpu_count())
            sub.add_argument("--save", type=Path, default=Path("fuzz-failure.jsonl"), help="where to write what failed")
            sub.add_argument("--replay", type=Path, metavar="FILE", help="take the messages of such a file through")
    arguments = parser.parse_args()
    try:
        good = arguments.do(arguments)
    except Failed as error:
        arguments.save.write_text("\n".join(error.lines), encoding="utf-8")
        raise SystemExit(
            f"seed {error.seed}: {error.reason}\n{len(error.lines)} messages in {arguments.save}"
        ) from error
    except Defect as error:
        raise SystemExit(f"seed {arguments.seed}: {error}") from error
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
