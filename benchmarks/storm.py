"""A storm of copies: what a document costs when one template arrives again and again, beside ordinary documents.

    python benchmarks/storm.py [--documents 100000] [--batch 500]

Each kind of storm goes through the detector into an empty index on a Redis-compatible server of the benchmark's own,
and its alerts are encoded; so does the same number of ordinary documents, all different. The ratio of the times per
document is what a storm costs. Of exact copies, every alert is checked to name an exact copy. Prints a table and writes
build/bench/storm.json.
"""

import argparse
import json
import random
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import redis

from streamdedup.commands.assembly import detector_options
from streamdedup.detections import Detection
from streamdedup.detector import Detector
from streamdedup.embedded import RedisServer
from streamdedup.messages import Alert, Document, encode_alert
from streamdedup.position import Partition, Position
from streamdedup.settings import Profile
from streamdedup.store.redis import RedisBucketStore
from streamdedup.store.redis_servers import OneServer

OUTPUT = Path(__file__).resolve().parents[1] / "build" / "bench"
#: Words of each text, and words to choose from.
WORDS, VOCABULARY = 150, 20_000
PARTITION = Partition("articles", 0)


@dataclass(frozen=True)
class Result:
    """Figures of one kind of stream."""

    documents: int
    seconds: float
    slowest_batch_s: float
    alerts: int
    pairs: int
    alerts_without_exact_copy: int
    used_bytes: int

    @property
    def microseconds(self) -> float:
        """Time of a document."""
        return self.seconds / self.documents * 1e6


def words(rng: random.Random, count: int) -> list[str]:
    """Draw words."""
    return [f"w{rng.randrange(VOCABULARY)}" for _ in range(count)]


def ordinary(rng: random.Random) -> Callable[[int], str]:
    """Texts that have nothing to do with each other."""
    return lambda _number: " ".join(words(rng, WORDS))


def copies(rng: random.Random) -> Callable[[int], str]:
    """One text."""
    text = " ".join(words(rng, WORDS))
    return lambda _number: text


def templates(rng: random.Random) -> Callable[[int], str]:
    """One text with three words that differ each time: similarity about 0.9."""
    frame = words(rng, WORDS)

    def text(number: int) -> str:
        filled = frame.copy()
        for place in (40, 41, 42):
            filled[place] = f"n{number}x{place}"
        return " ".join(filled)

    return text


def frames(rng: random.Random) -> Callable[[int], str]:
    """Texts of which four fifths are the same: similarity about 0.65, below the threshold."""
    frame = words(rng, WORDS * 4 // 5)
    return lambda _number: " ".join([*frame, *words(rng, WORDS // 5)])


KINDS = {"ordinary": ordinary, "copies": copies, "templates": templates, "frames": frames}


def encoded(detection: Detection, profile: str, threshold: float) -> list[bytes]:
    """Encode the alert of a detection as the daemon does."""
    document = detection.document
    alert = Alert(
        profile=profile,
        document_id=document.id,
        digest=detection.digest.hex(),
        position=document.position,
        time_ms=document.time_ms,
        published_at=None,
        source=None,
        matches=detection.matches,
        cluster_id=detection.cluster_id,
        threshold=threshold,
        detected_at_ms=document.time_ms,
    )
    return encode_alert(alert, 100, 1_000_000)


def measure(make_text: Callable[[int], str], documents_count: int, batch: int) -> Result:
    """Send a stream through a detector with the default settings."""
    profile = Profile(topics=("articles",))
    with RedisServer() as server, redis.Redis.from_url(server.url) as client:
        store = RedisBucketStore(
            OneServer(client),
            namespace="storm:articles",
            bands=profile.banding().bands,
            lifetime_ms=86_400_000,
            bucket_cap=profile.bucket_cap,
        )
        store.open(profile.fingerprint())
        fence = store.fence(PARTITION, 1, 0)
        detector = Detector(detector_options("articles", profile), store)
        seconds = slowest = 0.0
        alerts = pairs = without = 0
        for start in range(0, documents_count, batch):
            documents = [
                Document(f"d{number}", make_text(number), Position("articles", 0, number), 1_700_000_000_000)
                for number in range(start, min(start + batch, documents_count))
            ]
            begin = time.perf_counter()
            outcome = detector.index(detector.prepare(documents), {PARTITION: fence})
            for detection in outcome.detections:
                encoded(detection, "articles", profile.threshold)
            store.finish({PARTITION: documents[-1].position.offset + 1}, outcome.saved_positions, [fence])
            took = time.perf_counter() - begin
            seconds, slowest = seconds + took, max(slowest, took)
            alerts += len(outcome.detections)
            pairs += sum(len(detection.matches) for detection in outcome.detections)
            without += sum(
                all(match.digest != detection.digest.hex() for match in detection.matches)
                for detection in outcome.detections
            )
        used = int(client.info("memory")["used_memory"])
    return Result(documents_count, seconds, slowest, alerts, pairs, without, used)


def main() -> None:
    """Measure all kinds and print them beside the ordinary."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=100_000)
    parser.add_argument("--batch", type=int, default=500)
    parser.add_argument("--output", type=Path, default=OUTPUT, help="folder for storm.json")
    options = parser.parse_args()
    results = {}
    print("stream      µs/document  ratio  slowest batch   alerts     pairs bytes/doc")
    for name, kind in KINDS.items():
        result = results[name] = measure(kind(random.Random(name)), options.documents, options.batch)
        ratio = result.microseconds / results["ordinary"].microseconds
        print(
            f"{name:10} {result.microseconds:12.0f} {ratio:6.2f} {result.slowest_batch_s:12.2f} s {result.alerts:8,}"
            f" {result.pairs:9,} {result.used_bytes / result.documents:9.0f}"
        )
    print(f"alerts of exact copies that name none: {results['copies'].alerts_without_exact_copy}")
    options.output.mkdir(parents=True, exist_ok=True)
    figures = {name: asdict(result) for name, result in results.items()}
    (options.output / "storm.json").write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
