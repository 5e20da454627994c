"""Raw text to band keys on one core: streamdedup beside Python shingling with rensa and with datasketch.

    python -m benchmarks.text_to_keys [--quick] [--documents 0] [--rounds 3] [--bands 9 --rows 4] [--batch 500]

Every contender gets the same texts in the same batches in the same run, in turns, and its best round counts. All make
word 3-shingles of the same tokens: NFKC, case folding, runs of letters and digits (for the peers one regular
expression, which is right for most scripts only). rensa gets lists, which is cheaper than sets. Neither peer returns
band keys, so both use those of streamdedup. `rensa, rho` samples positions of a text instead of reading all of its
shingles, so it computes something cheaper than the MinHash signature of a set.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import rensa  # type: ignore[import-untyped]

from benchmarks import datasets, peers, report
from benchmarks.ours import BATCH_DOCUMENTS, default_banding, use_one_core
from streamdedup.similarity.lsh import Banding
from streamdedup.similarity.minhash import HashFamily
from streamdedup.text.shingles import ShingleOptions, Shingler


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
    """Measure, print, write."""
    arguments = parse_arguments()
    use_one_core()
    texts = datasets.load(arguments.documents)
    banding = Banding(arguments.bands, arguments.rows)
    contenders = {
        "streamdedup": streamdedup(banding),
        "Python + rensa": with_rensa(banding),
        "Python + rensa, rho": with_rensa_rho(banding),
        "Python + datasketch": with_datasketch(banding),
    }
    best = measure(contenders, texts.texts, arguments.batch, arguments.rounds)
    setting = {
        "documents": f"{texts.name}: {len(texts.documents):,}",
        "characters, median": statistics.median(map(len, texts.texts)),
        "bands x rows": str(banding),
        "batch": arguments.batch,
        "rounds": arguments.rounds,
    }
    show(arguments, setting, best, len(texts.documents))


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    banding = default_banding()
    parser = report.parser(__doc__)
    parser.add_argument("--documents", type=int, help="how many (0: each of the collection once)")
    parser.add_argument("--rounds", type=int, help="rounds of which the best counts")
    parser.add_argument("--bands", type=int, default=banding.bands)
    parser.add_argument("--rows", type=int, default=banding.rows)
    parser.add_argument("--batch", type=int, default=BATCH_DOCUMENTS, help="documents in one batch")
    arguments = parser.parse_args()
    if arguments.documents is None:
        arguments.documents = 1_000 if arguments.quick else 0
    arguments.rounds = arguments.rounds or (1 if arguments.quick else 3)
    return arguments


def streamdedup(banding: Banding) -> Contender:
    """Return streamdedup: normalised word shingles, signatures and band keys."""
    shingler = Shingler(ShingleOptions(unit="word", size=peers.SHINGLE_SIZE))
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
    """Return datasketch's bulk construction with its default hash function."""

    def sign(shingles: list[list[str]]) -> list[Any]:
        return peers.sign_shingles(shingles, banding.permutations)

    return in_python(banding, sign, lambda signed: [signature.hashvalues for signature in signed])


def in_python(banding: Banding, sign: Callable[[list[list[str]]], Any], rows: Callable[[Any], list[Any]]) -> Contender:
    """Return a contender that makes shingles in Python, signs by a library, and computes band keys of its rows."""

    def run(texts: list[str]) -> Timing:
        start = time.perf_counter()
        shingles = [peers.python_shingles(text) for text in texts]
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
    return {name: min(measured, key=lambda timing: timing.total_s) for name, measured in timings.items()}


def show(arguments: argparse.Namespace, setting: dict[str, Any], best: dict[str, Timing], documents: int) -> None:
    """Print and write everything."""
    ours = best["streamdedup"]
    columns = ["one core", "shingles, µs", "signature, µs", "keys, µs", "documents/s", "times slower"]
    results, rows = [], []
    for name, timing in best.items():
        stages = [1e6 * stage / documents for stage in (timing.shingles_s, timing.signatures_s, timing.keys_s)]
        rate, slower = documents / timing.total_s, timing.total_s / ours.total_s
        rows.append([name, *(f"{stage:.1f}" for stage in stages), f"{rate:,.0f}", f"{slower:.1f}"])
        ratios = {"times_slower_to_signatures": timing.signed_s / ours.signed_s, "times_slower_to_keys": slower}
        results.append({"name": name, "documents_per_s": rate, **ratios, **asdict(timing)})
    tables = {"rates": report.Table(columns, rows)}
    report.Report("text_to_keys", arguments.quick, setting, results, tables).show(arguments.output)


if __name__ == "__main__":
    main()
