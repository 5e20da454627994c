"""``python -m tests.soak``: one daemon under a steady load, and whether anything grows; see docs/testing.md."""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import redis

from streamdedup.embedded import RedisServer
from tests.servers import make_kafka, wait_until
from tests.soak.daemon import a_daemon
from tests.soak.samples import Looker, Sample, judged
from tests.soak.stream import Sender

#: Windows in a run: it shows whether memory levels off.
WINDOWS = 12
#: Most seconds between two samples, and least samples of a run.
SAMPLE_S, SAMPLES_COUNT = 5.0, 240
#: Seconds between two lines on the terminal.
LINE_S = 30.0
#: Seconds that the daemon may take for what is left when nothing more is sent.
CATCH_UP_S = 60.0

HEADINGS = ("min", "docs/s", "lag", "RSS MB", "fds", "Redis MB", "keys")


def line(sample: Sample) -> str:
    cells = (
        f"{sample.seconds / 60:.1f}",
        f"{sample.documents_per_s:,.0f}",
        f"{sample.lag_count:,}",
        f"{sample.rss_bytes / 1e6:.1f}",
        f"{sample.descriptors_count}",
        f"{sample.redis_bytes / 1e6:.1f}",
        f"{sample.redis_keys_count:,}",
    )
    return "".join(f"{cell:>10}" for cell in cells)


def soak(arguments: argparse.Namespace, folder: Path, kafka: str, redis_url: str) -> tuple[list[Sample], list[str]]:
    """Run; return the samples, and what went wrong besides."""
    window_s, total_s = arguments.minutes * 60 / WINDOWS, arguments.minutes * 60
    interval_s = min(SAMPLE_S, total_s / SAMPLES_COUNT)
    samples: list[Sample] = []
    print(f"seed {arguments.seed}: {arguments.rate:g} documents/s for {arguments.minutes:g} min, window {window_s:g} s")
    print("".join(f"{heading:>10}" for heading in HEADINGS), flush=True)
    with (
        a_daemon(folder, window_s, kafka, redis_url) as (installation, daemon),
        redis.Redis.from_url(redis_url) as client,
        Sender(kafka, installation.topic, arguments.seed, arguments.rate) as sender,
    ):
        looker = Looker(daemon.process.pid, client)
        began, told = time.monotonic(), -LINE_S
        while (seconds := time.monotonic() - began) < total_s:
            if sender.problem is not None:
                raise sender.problem
            daemon.alive_or_fail()
            samples.append(looker.look(seconds, daemon.get("/metrics")[1]))
            if seconds - told >= LINE_S:
                told = seconds
                print(line(samples[-1]), flush=True)
            time.sleep(max(0.0, began + len(samples) * interval_s - time.monotonic()))
        sender.end()
        wait_until(
            lambda: daemon.alive_or_fail() and daemon.metric("streamdedup_records_total") >= sender.sent_count,
            CATCH_UP_S,
            f"{sender.sent_count} records consumed",
        )
        consumed, dead = (round(daemon.metric(f"streamdedup_{name}_total")) for name in ("records", "dead_letters"))
        code = daemon.stop()
    print(f"{sender.sent_count:,} documents sent, {consumed:,} consumed, {len(installation.pairs()):,} pairs alerted")
    wrong = [f"{dead:,} dead letters"] if dead else []
    wrong += [f"{consumed:,} consumed of {sender.sent_count:,}"] if consumed != sender.sent_count else []
    return samples, wrong + ([f"the daemon ended with {code}"] if code else [])


def write(folder: Path, samples: Sequence[Sample], arguments: argparse.Namespace, verdict: Sequence[str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    run = {"minutes": arguments.minutes, "rate": arguments.rate, "seed": arguments.seed, "verdict": list(verdict)}
    rows = [asdict(sample) for sample in samples]
    (folder / "soak.json").write_text(json.dumps(run | {"samples": rows}, indent=1) + "\n", encoding="utf-8")
    print(f"written: {folder / 'soak.json'}")


def main() -> None:
    """Run; exit with 1 when something grew or went wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--rate", type=float, default=200.0, help="documents a second")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--redis",
        metavar="PROGRAM",
        default="redis-server",
        help="Redis server to start; empty for the one in the wheel",
    )
    parser.add_argument("--into", type=Path, default=Path("build/soak"), help="folder for what is written")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, make_kafka() as kafka, RedisServer(arguments.redis or None) as server:
        samples, wrong = soak(arguments, Path(folder), kafka.bootstrap_servers, server.url)
    found = list(judged(samples, arguments.minutes * 60 / WINDOWS))
    verdict = [f"{'ok  ' if good else 'FAIL'} {text}" for text, good in found] + [f"FAIL {text}" for text in wrong]
    print(*verdict, sep="\n")
    write(arguments.into, samples, arguments, verdict)
    sys.exit(0 if all(good for _, good in found) and not wrong else 1)


if __name__ == "__main__":
    main()
