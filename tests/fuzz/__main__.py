"""``python -m tests.fuzz messages``, ``requests``, ``daemon`` and ``schemas``: see docs/testing.md."""

import argparse
import multiprocessing
import sys
import tempfile
import time
from pathlib import Path

from streamdedup.embedded import RedisServer
from tests.fuzz import daemon as through_daemon
from tests.fuzz.accounts import Account, settle_chunk
from tests.fuzz.memory import growth
from tests.fuzz.requests import fuzz_requests
from tests.servers import make_kafka, make_registry

#: Growth of memory from the second quarter of a run to the last that is none.
MOST_GROWTH = 0.05
#: First chunks of a process that count as warming up, however short the run: the allocator and the caches fill.
_WARM_UP_CHUNKS = 10
#: Messages that are accounted for at a time: so many that an index of theirs takes little memory.
_CHUNK = 2_000


def messages(seed: str, count: int) -> bool:
    """Take messages through loop, decoder and detector."""
    began, total, rss = time.monotonic(), Account(), {}
    chunks = [(f"{seed}-{first}", min(_CHUNK, count - first)) for first in range(0, count, _CHUNK)]
    with multiprocessing.get_context("spawn").Pool() as pool:
        for account, worker, rss_of_worker in pool.imap_unordered(settle_chunk, chunks):
            total.add(account)
            rss.setdefault(worker, []).append(rss_of_worker)
    done, seconds = total.outcomes.total(), time.monotonic() - began
    print(f"seed {seed}: {done:,} messages in {seconds:.0f} s, {done / seconds:,.0f}/s")
    for name, number in total.outcomes.most_common():
        print(f"  {number:9,}  {name}")
    print(f"  {total.pairs_count:,} pairs, {total.cut_count:,} letters cut, {total.judged_count:,} read twice")
    grown = [growth(samples[_WARM_UP_CHUNKS:]) for samples in rss.values()]
    print("  RSS of each process after warming up:", *(f"{share:+.1%}" for share in grown))
    return done == count and max(grown) <= MOST_GROWTH


def requests(seed: str, count: int) -> bool:
    """Send damaged requests to the HTTP service, without a socket."""
    began = time.monotonic()
    statuses, rss = fuzz_requests(seed, count)
    grown = growth(rss)
    print(f"seed {seed}: {count:,} requests in {time.monotonic() - began:.0f} s, RSS {grown:+.1%}: {dict(statuses)}")
    return grown <= MOST_GROWTH


def daemon(seed: str, count: int) -> bool:
    """Send messages through a real Kafka to a real daemon, and compare the topics with what was sent."""
    with tempfile.TemporaryDirectory() as folder, make_kafka() as kafka, RedisServer(None) as redis:
        report = through_daemon.run(seed, count, Path(folder), kafka=kafka.bootstrap_servers, redis=redis.url)
    print(*report.lines(), sep="\n")
    return not report.wrong


def schemas(seed: str, count: int) -> bool:
    """Do the same with Avro and Protobuf values, whose schemas are in a real registry."""
    with (
        tempfile.TemporaryDirectory() as folder,
        make_kafka() as kafka,
        RedisServer(None) as redis,
        make_registry() as registry,
    ):
        servers = {"kafka": kafka.bootstrap_servers, "redis": redis.url, "registry": registry.url}
        report = through_daemon.run_schemas(seed, count, Path(folder), **servers)
    print(*report.lines(), sep="\n")
    return not report.wrong


def main() -> None:
    """Run a command; exit with 1 when something was not accounted for."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    commands = parser.add_subparsers(required=True)
    for command, count in ((messages, 1_000_000), (requests, 200_000), (daemon, 20_000), (schemas, 20_000)):
        sub = commands.add_parser(command.__name__, help=command.__doc__)
        sub.add_argument("--count", type=int, default=count)
        sub.add_argument("--seed", default="1")
        sub.set_defaults(do=command)
    arguments = parser.parse_args()
    sys.exit(0 if arguments.do(arguments.seed, arguments.count) else 1)


if __name__ == "__main__":
    main()
