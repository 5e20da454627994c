"""Raw text to band keys on one core: streamdedup beside Python shingling with rensa and with datasketch.

Every contender gets the same texts in the same batches in the same run, in turns, and its best round counts. All make
word 3-shingles of the same tokens: NFKC, case folding, runs of letters and digits (for the peers one regular
expression, which is right for most scripts only). rensa is fed lists, which is cheaper than sets, and since neither
peer gives out band keys, both borrow ours. `rensa, rho` samples positions of a text instead of reading all of its
shingles, so it computes something cheaper than the MinHash signature of a set.

    python benchmarks/text_to_keys.py [--documents 0] [--rounds 3] [--bands 12] [--rows 5] [--batch 500]

Texts: Reuters-21578 if ../shared/data/reuters21578.tar.gz lies beside the repository, otherwise the sample corpus,
multiplied with variations. Prints a table and writes build/bench/text_to_keys.json.
"""

import argparse
import html
import importlib.metadata
import json
import os
import platform
import random
import re
import statistics
import tarfile
import time
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import rensa
from datasketch import MinHash

from streamdedup.lsh import Banding
from streamdedup.minhash import HashFamily
from streamdedup.text import ShingleOptions, Shingler

REPOSITORY = Path(__file__).resolve().parents[1]
REUTERS = REPOSITORY.parent / "shared" / "data" / "reuters21578.tar.gz"
SAMPLE = REPOSITORY / "streamdedup" / "sample"
RESULT = REPOSITORY / "build" / "bench" / "text_to_keys.json"
#: Variations made of each sample text.
VARIATIONS = 40
#: Share of a variation's words that are replaced.
REPLACED = 0.1
SHINGLE_SIZE = 3
WORD = re.compile(r"[^\W_]+")


@dataclass(frozen=True)
class Timing:
    """Seconds spent, by stage."""

    shingles_s: float = 0.0
    signatures_s: float = 0.0
    keys_s: float = 0.0

    def __add__(self, other: "Timing") -> "Timing":
        return Timing(
            self.shingles_s + other.shingles_s, self.signatures_s + other.signatures_s, self.keys_s + other.keys_s
        )

    @property
    def signed_s(self) -> float:
        return self.shingles_s + self.signatures_s

    @property
    def total_s(self) -> float:
        return self.signed_s + self.keys_s


#: Takes one batch of texts.
Contender = Callable[[list[str]], Timing]


def main() -> None:
    """Measure, print the table, write the JSON."""
    arguments = parse_arguments()
    use_one_core()
    corpus, texts = load_texts(arguments.documents)
    banding = Banding(arguments.bands, arguments.rows)
    contenders = {
        "streamdedup": streamdedup(banding),
        "Python + rensa": with_rensa(banding),
        "Python + rensa, rho": with_rensa_rho(banding),
        "Python + datasketch": with_datasketch(banding),
    }
    best = measure(contenders, texts, arguments.batch, arguments.rounds)
    lengths = [len(text) for text in texts]
    setting = {
        "corpus": corpus,
        "documents": len(texts),
        "characters_median": statistics.median(lengths),
        "bands": banding.bands,
        "rows": banding.rows,
        "batch": arguments.batch,
        "rounds": arguments.rounds,
        "python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in ("numpy", "rensa", "datasketch")},
    }
    report(setting, best, len(texts))


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--documents", type=int, default=0, help="use the first so many texts (0: all)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of which the best counts")
    parser.add_argument("--bands", type=int, default=12)
    parser.add_argument("--rows", type=int, default=5)
    parser.add_argument("--batch", type=int, default=500, help="documents in one batch")
    return parser.parse_args()


def use_one_core() -> None:
    """Keep every library to one thread, and the process to one core where the system can do that."""
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS"):
        os.environ[variable] = "1"
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def load_texts(limit: int) -> tuple[str, list[str]]:
    """Return the corpus' name and its texts; a limit of 0 takes all."""
    if REUTERS.exists():
        name, texts = "Reuters-21578", list(reuters_bodies(REUTERS))
    else:
        name, texts = "sample with variations", list(sample_variations())
    return name, texts[:limit] if limit else texts


def reuters_bodies(archive: Path) -> Iterator[str]:
    """Yield the body of every article that has one."""
    with tarfile.open(archive) as tar:
        for member in sorted(tar.getmembers(), key=lambda one: one.name):
            if member.name.endswith(".sgm"):
                content = tar.extractfile(member).read().decode("latin-1")
                for body in re.findall(r"<BODY>(.*?)</BODY>", content, re.DOTALL):
                    yield html.unescape(body)


def sample_texts() -> Iterator[str]:
    """Yield the texts of the sample, whose damaged records are there on purpose and have none."""
    for file in sorted(SAMPLE.glob("*.jsonl")):
        for line in file.read_bytes().splitlines():
            try:
                record = json.loads(line)
            except ValueError:
                continue
            if isinstance(record, dict) and isinstance(record.get("text"), str):
                yield record["text"]


def sample_variations() -> Iterator[str]:
    """Yield each sample text again and again, with other words replaced each time."""
    source = random.Random(1)
    for text in sample_texts():
        for _ in range(VARIATIONS):
            words = text.split(" ")
            yield " ".join(str(source.randrange(10**6)) if source.random() < REPLACED else word for word in words)


def streamdedup(banding: Banding) -> Contender:
    """Return ours: normalised word shingles, signatures and band keys."""
    shingler = Shingler(ShingleOptions(unit="word", size=SHINGLE_SIZE))
    family = HashFamily(banding.permutations)

    def run(texts: list[str]) -> Timing:
        start = time.perf_counter()
        shingles = shingler.shingle(texts)
        shingled = time.perf_counter()
        signatures = family.sign(shingles.hashes, shingles.offsets)
        signed = time.perf_counter()
        banding.band_keys(signatures)
        return Timing(shingled - start, signed - shingled, time.perf_counter() - signed)

    return run


def python_shingles(text: str) -> list[str]:
    """Return the word shingles of a text as Python makes them fastest, repetitions included."""
    words = WORD.findall(unicodedata.normalize("NFKC", text).casefold())
    return list(map(" ".join, zip(words, words[1:], words[2:], strict=False))) or [" ".join(words)]


def with_rensa(banding: Banding) -> Contender:
    """Return rensa's full MinHash in its fastest form, a matrix for the whole batch."""

    def sign(shingles: list[list[str]]) -> rensa.RMinHashDigestMatrix:
        return rensa.RMinHash.digest_matrix_from_token_sets(shingles, banding.permutations, 42)

    return in_python(banding, sign, rensa.RMinHashDigestMatrix.to_rows)


def with_rensa_rho(banding: Banding) -> Contender:
    """Return rensa's sampling pipeline."""

    def sign(shingles: list[list[str]]) -> rensa.RMinHashDigestMatrix:
        return rensa.RMinHash.digest_matrix_from_token_sets_rho(shingles, banding.permutations, 42)

    return in_python(banding, sign, rensa.RMinHashDigestMatrix.to_rows)


def with_datasketch(banding: Banding) -> Contender:
    """Return datasketch's bulk construction with its default hash function; it wants bytes, each once."""

    def sign(shingles: list[list[str]]) -> list[MinHash]:
        return MinHash.bulk(([one.encode() for one in set(own)] for own in shingles), num_perm=banding.permutations)

    return in_python(banding, sign, lambda signed: [one.hashvalues for one in signed])


def in_python(banding: Banding, sign: Callable[[list[list[str]]], Any], rows: Callable[[Any], list[Any]]) -> Contender:
    """Return a contender that makes shingles in Python and hands them to a library, whose rows get band keys."""

    def run(texts: list[str]) -> Timing:
        start = time.perf_counter()
        shingles = [python_shingles(text) for text in texts]
        shingled = time.perf_counter()
        signatures = sign(shingles)
        signed = time.perf_counter()
        banding.band_keys(np.array(rows(signatures), dtype=np.uint32))
        return Timing(shingled - start, signed - shingled, time.perf_counter() - signed)

    return run


def measure(contenders: dict[str, Contender], texts: list[str], batch: int, rounds: int) -> dict[str, Timing]:
    """Run all contenders in turns and return the best round of each; a short first run warms all of them up."""
    batches = [texts[first : first + batch] for first in range(0, len(texts), batch)]
    for run in contenders.values():
        run(batches[0])
    timings: dict[str, list[Timing]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, run in contenders.items():
            timings[name].append(sum(map(run, batches), Timing()))
    return {name: min(own, key=lambda one: one.total_s) for name, own in timings.items()}


def report(setting: dict[str, object], best: dict[str, Timing], documents: int) -> None:
    """Print the table and write the JSON."""
    print(", ".join(f"{key} {value}" for key, value in setting.items()))
    print(f"\n{'':<20}{'microseconds per document':>32}{'text to keys':>16}{'streamdedup is faster':>26}")
    print(f"{'one core':<20}{'shingles':>12}{'signature':>12}{'keys':>8}{'documents/s':>16}", end="")
    print(f"{'to signatures':>16}{'to keys':>10}")
    ours = best["streamdedup"]
    results = []
    for name, timing in best.items():
        stages = [1e6 * stage / documents for stage in (timing.shingles_s, timing.signatures_s, timing.keys_s)]
        rate = documents / timing.total_s
        to_signatures, to_keys = timing.signed_s / ours.signed_s, timing.total_s / ours.total_s
        print(f"{name:<20}{stages[0]:>12.1f}{stages[1]:>12.1f}{stages[2]:>8.1f}{rate:>16,.0f}", end="")
        print(f"{to_signatures:>15.1f}x{to_keys:>9.1f}x")
        ratios = {"times_slower_to_signatures": to_signatures, "times_slower_to_keys": to_keys}
        results.append({"name": name, "documents_per_s": rate, **ratios, **asdict(timing)})
    RESULT.parent.mkdir(parents=True, exist_ok=True)
    RESULT.write_text(json.dumps({"setting": setting, "results": results}, indent=2) + "\n", encoding="utf-8")
    print(f"\nwritten: {RESULT.relative_to(REPOSITORY)}")


if __name__ == "__main__":
    main()
