"""The two programs of docs/library.md, with streamdedup and with datasketch: lines, recall and seconds.

    python -m benchmarks.library [--quick] [--documents 0]

Both programs get the same documents in one run, one after the other, and print pairs. The truth is an exact join of the
word 3-shingles as streamdedup makes them. The other program splits words by a plain expression, so a few of its
shingles differ; pairs that it prints beyond the truth are counted as such.
"""

import re
import time
from collections.abc import Sequence
from typing import NamedTuple

from benchmarks import datasets, report
from benchmarks.datasets import REPOSITORY
from benchmarks.scans import all_pairs, as_set
from streamdedup import Profile
from streamdedup.evaluation.pairs import shingle_sets
from streamdedup.text.shingles import Shingler

#: The page that has both programs.
LIBRARY_PAGE = REPOSITORY / "docs" / "library.md"
NAMES = ("streamdedup", "datasketch")
#: A pair of ids, the smaller one first.
Pair = tuple[str, str]


class Outcome(NamedTuple):
    """Pairs that a program printed, and its time, imports included."""

    pairs: set[Pair]
    seconds: float


def main() -> None:
    """Measure, print, write."""
    arguments = report.arguments_of(report.parser(__doc__), {"documents": 1_000}, {"documents": 0})
    texts = datasets.load(arguments.documents)
    truth = true_pairs(texts.documents)
    rows = []
    for name, program in zip(NAMES, programs(LIBRARY_PAGE.read_text(encoding="utf-8")), strict=True):
        pairs, seconds = run(program, texts.documents)
        recall = len(pairs & truth) / len(truth) if truth else "no pairs"
        rows.append([name, lines_of(program), recall, len(pairs - truth), seconds])
    setting = {"documents": f"{texts.name}: {len(texts.documents):,}", "pairs": len(truth)}
    columns = {"program": "", "lines of code": "", "recall": ".4f", "other pairs": "", "seconds": ".1f"}
    tables = {"programs": report.table(columns, rows)}
    report.Report("library", arguments.quick, setting, rows, tables).show(arguments.output)


def programs(page: str) -> tuple[str, str]:
    """Return the program with streamdedup and the one with datasketch, which are beside each other on the page."""
    section = page.partition("\n## Beside datasketch\n")[2]
    ours, theirs = re.findall(r"^```python\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    return ours, theirs


def lines_of(program: str) -> int:
    """Return the number of lines that are not blank."""
    return sum(bool(line.strip()) for line in program.splitlines())


def run(program: str, documents: Sequence[tuple[str, str]]) -> Outcome:
    """Run a program, and collect the pairs that it prints."""
    printed: set[Pair] = set()

    def collect(left: str, right: str, _similarity: float) -> None:
        printed.add((min(left, right), max(left, right)))

    started = time.perf_counter()
    exec(program, {"documents": documents, "print": collect})
    return Outcome(printed, time.perf_counter() - started)


def true_pairs(documents: Sequence[tuple[str, str]]) -> set[Pair]:
    """Return all pairs at the threshold of the profile."""
    profile = Profile().section
    sets = shingle_sets(Shingler(profile.shingle_options()), [text for _, text in documents])
    ids = [document_id for document_id, _ in documents]
    pairs = as_set(all_pairs(sets.hashes, sets.offsets, profile.threshold))
    return {(min(ids[left], ids[right]), max(ids[left], ids[right])) for left, right in pairs}


if __name__ == "__main__":
    main()
