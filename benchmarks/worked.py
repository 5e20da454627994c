"""The worked examples of the source material, computed and put beside their known answers."""

import math
import struct
from collections import Counter
from collections.abc import Callable, Sequence
from zlib import crc32

import numpy as np

from benchmarks import report
from benchmarks import reuters_source as source
from streamdedup.similarity.lsh import Banding
from streamdedup.similarity.measures import MEASURES, intersection_size
from streamdedup.similarity.minhash import estimate
from streamdedup.text.shingles import ShingleOptions, Shingler, folded_text

#: The sets of the textbook over the rows 0 .. 4, and its two functions.
SETS = ({0, 3}, {2}, {1, 3, 4}, {0, 2, 3})
FUNCTIONS: tuple[Callable[[int], int], ...] = (lambda row: (row + 1) % 5, lambda row: (3 * row + 1) % 5)
ROWS = 5


def main(*, quick: bool) -> report.Report:  # noqa: ARG001  the examples take no time
    rows = [*shingles(), *bags(), *minhash(), *bands(), *arithmetic()]
    tables = {"examples": report.table(("example", "computed", "known answer"), rows)}
    wrong = [example for example, computed, answer in rows if computed != answer]
    return report.Report({}, tables, f"not the known answer: {', '.join(wrong)}" if wrong else None)


def windows(parts: Sequence[str], size: int, joint: str) -> list[str]:
    """Return the runs of so many parts, in order and with repetitions."""
    return [joint.join(parts[start : start + size]) for start in range(len(parts) - size + 1)]


def shingles() -> list[tuple[str, str, str]]:
    """Cut short texts; the product must agree about how many different shingles there are."""
    match = windows(folded_text("match"), 2, "")
    sunny = windows(folded_text("Its quite sunny today").split(), 2, " ")
    azart = windows(folded_text("azart azara"), 2, "")
    twice = sorted(part for part, times in Counter(azart).items() if times == 2)
    made = (
        _count("match", unit="char", size=2),
        _count("Its quite sunny today", size=2),
        _count("azart azara", unit="char", size=2),
        _count("azart azara", unit="char", size=2, bag=True),
    )
    return [
        ('character 2-shingles of "match"', " ".join(match), "ma at tc ch"),
        (
            'word 2-shingles of "Its quite sunny today"',
            ", ".join(sunny),
            "its quite, quite sunny, sunny today",
        ),
        (
            'character 2-shingles of "azart azara", each once',
            " ".join(dict.fromkeys(azart)).replace("t  ", "t_ ").replace("  a", " _a"),
            "az za ar rt t_ _a ra",
        ),
        ("those that occur twice", ", ".join(twice), "ar, az, za"),
        ("elements that the product makes of these four", ", ".join(map(str, made)), "4, 3, 7, 10"),
    ]


def _count(text: str, **options: object) -> int:
    return int(Shingler(ShingleOptions(**options)).shingle([text]).hashes.size)  # type: ignore[arg-type]


def bags() -> list[tuple[str, str, str]]:
    """Compare bags: minimum over maximum, and the textbook's division by the sum of the sizes."""
    left, right = Counter("aaab"), Counter("aabbc")
    common, largest = (left & right).total(), (left | right).total()
    batch = Shingler(ShingleOptions(size=1, bag=True)).shingle(["a a a b", "a a b b c"])
    first, second = np.split(batch.hashes, batch.offsets[1:-1])
    numbers = (np.array([n]) for n in (intersection_size(first, second), first.size, second.size))
    similarity = float(MEASURES["bag"].exact(*numbers)[0])
    total = left.total() + right.total()
    return [
        ("bag similarity of {a a a b} and {a a b b c}, minimum over maximum", f"{common}/{largest}", "3/6"),
        ("the product's similarity of these bags", f"{similarity:g}", "0.5"),
        ("the textbook's bag similarity of them, over the sum of the sizes", f"{common}/{total}", "3/9"),
        ("the same as s/(1+s)", f"{similarity / (1 + similarity):.4f}", f"{1 / 3:.4f}"),
    ]


def minhash() -> list[tuple[str, str, str]]:
    """Build the textbook's signatures row by row from infinity, by elementwise minima."""
    unseen = np.uint32(2**32 - 1)
    matrix = np.full((len(SETS), len(FUNCTIONS)), unseen)
    after = []
    for row in range(ROWS):
        values = np.array([function(row) for function in FUNCTIONS], np.uint32)
        members = [number for number, members_of_set in enumerate(SETS) if row in members_of_set]
        matrix[members] = np.minimum(matrix[members], values)
        after.append(matrix.tolist())
    estimates = [float(estimate(matrix[0], matrix[column])) for column in (1, 2, 3)]
    true = [len(SETS[0] & SETS[column]) / len(SETS[0] | SETS[column]) for column in (1, 2, 3)]
    return [
        ("x + 1 mod 5 of S1 .. S4: minima", _row(matrix[:, 0]), "1 3 0 1"),
        ("3x + 1 mod 5 of S1 .. S4: minima", _row(matrix[:, 1]), "0 2 0 0"),
        ("row by row: S1 and S4 after row 0", f"{after[0][0]} {after[0][3]}", "[1, 1] [1, 1]"),
        ("row by row: S3 after row 1", str(after[1][2]), "[2, 4]"),
        ("row by row: S2 after row 2", str(after[2][1]), "[3, 2]"),
        ("estimates of S1 with S2, S3, S4", ", ".join(f"{value:g}" for value in estimates), "0, 0.5, 1"),
        ("their true similarities", ", ".join(f"{value:.4g}" for value in true), "0, 0.25, 0.6667"),
    ]


def _row(values: np.ndarray) -> str:
    return " ".join(map(str, values.tolist()))


def bands() -> list[tuple[str, str, str]]:
    """Hash one band in both forms."""
    values = (15, 355, 89, 2)
    written = source.band_text(values)
    plain = int(source.band_keys(np.array([values], np.int64), 1, 4)[0, 0])
    octets = struct.pack("<4I", *values)
    key = int(Banding(1, 4).band_keys(np.array([values], np.uint32))[0, 0])
    return [
        ("the band (15, 355, 89, 2) as text", written, "15_355_89_2"),
        ("CRC-32 of that text", f"{plain:08x}", "556eecce"),
        ("CRC-32 of the values as the product writes them, 4 octets each", f"{key:08x}", f"{crc32(octets):08x}"),
    ]


def arithmetic() -> list[tuple[str, str, str]]:
    """Count pairs, and compute one value of the source's family in steps and, with Python's integers, at once."""
    pairs = math.comb(1_000_000, 2)
    c = source.first_prime_above(1_000_000)
    a, x, b = 999_999, 4_294_967_290, 11
    family = source.Family(np.array([a]), np.array([b]), c)
    in_steps = int(source.sign(family, np.array([x]), np.array([0, 1]))[0, 0])
    return [
        ("pairs among one million documents", f"{pairs:.0e}".replace("e+", " * 10^"), "5 * 10^11"),
        ("days at a million comparisons a second", f"{pairs / 1e6 / 86400:.1f}", "5.8"),
        ("first prime above 4, and above 1,000,000", f"{source.first_prime_above(4)}, {c:,}", "5, 1,000,003"),
        (f"({a:,} x + {b}) mod {c:,} of x = {x:,}, in steps", str(in_steps), str((a * x + b) % c)),
    ]
