"""Effect of each setting against boilerplate on open sets: pairs of boilerplate only, and lost copies.

    python -m benchmarks.boilerplate [--quick] [--threshold 0.8] [NAME ...]

All pairs of a set at the threshold are found as `streamdedup scan` finds them, with all comparisons exact: as the
profile is by default, then with one option changed at a time. A pair is called

- the same text: equal after normalisation;
- a copy: revisions of one page, where the set says which these are; in `paywall`, a pair of the articles without the
  notice;
- boilerplate only: revisions of different pages; in Reuters, articles with three numbers or more, most of which differ;
  in `paywall`, two articles with the notice that are no copies.

Where a set says the source of each document, stop shingles are learnt from all documents, and by source. `paywall` is
news with a paywall notice of one source, see `benchmarks.paywall`.
"""

import gzip
import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from benchmarks import datasets, paywall, report
from benchmarks.scans import Pair, all_pairs, as_set, scan
from streamdedup.evaluation.pairs import shingle_sets
from streamdedup.settings import Profile
from streamdedup.text.shingles import ShingleOptions, Shingler, normalise
from streamdedup.text.stop_shingles import learn_stop_shingles

#: Sets, and whether they are reviews (characters) or articles (words).
UNITS = {
    "paywall": "word",
    "reuters21578": "word",
    "masakhane_news": "word",
    "spdx_licenses": "word",
    "wiki_bips": "word",
    "ota_pga": "word",
    "sms_spam": "char",
    "playstore_reviews": "char",
}
#: Sets that say which documents belong together.
GROUPED = ("wiki_bips", "ota_pga")
#: Shares of documents from which on a shingle is a stop shingle.
SHARES = (0.01, 0.05)
#: Documents of a short run.
QUICK_DOCUMENTS = 300
#: Least similarity of two articles of `paywall` without the notice that are copies.
PAYWALL_THRESHOLD = 0.8


class Judged(NamedTuple):
    """Texts with their sources, and a judge of pairs: "same text", "copy", "boilerplate only" or "unknown"."""

    texts: Sequence[str]
    judge: Callable[[Pair], str]
    sources: Sequence[str | None]


def main() -> None:
    """Measure, print, write."""
    parser = report.parser(__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(UNITS)}; all of them unless named")
    parser.add_argument("--threshold", type=float, default=0.8, help="least similarity of a pair")
    arguments = parser.parse_args()
    rows: list[list[object]] = []
    for name in arguments.names or list(UNITS)[: 2 if arguments.quick else None]:
        judged = load(name)
        if arguments.quick:
            judged = judged._replace(texts=judged.texts[:QUICK_DOCUMENTS], sources=judged.sources[:QUICK_DOCUMENTS])
        rows += rows_of(name, judged, arguments.threshold)
    columns = ["set, option", "pairs", "boilerplate only", "same text", "copies"]
    lost = ["lost: same text", "lost: copies", "lost: unknown", "gained"]
    tables = {"options": report.table([*columns, *lost], rows)}
    setting = {"threshold": arguments.threshold}
    report.Report("boilerplate", arguments.quick, setting, rows, tables).show(arguments.output)


def load(name: str) -> Judged:
    """Read an open set, or make ``paywall``; end the process where the texts are absent."""
    if name == "paywall":
        return made_paywall()
    documents = datasets.read(name)
    normalised = [normalise(text) for text in documents.texts]
    groups: list[object] = []
    if name in GROUPED:
        with gzip.open(datasets.find(name), "rt", encoding="utf-8") as lines:
            groups = [json.loads(line)["group"] for line in lines]
    numbers = [frozenset(filter(str.isdigit, text.split())) for text in normalised] if name == datasets.REUTERS else []

    def judge(pair: Pair) -> str:
        left, right = pair
        if normalised[left] == normalised[right]:
            return "same text"
        if groups:
            return "copy" if groups[left] == groups[right] else "boilerplate only"
        if numbers and min(len(numbers[left]), len(numbers[right])) >= 3:
            few_common = 2 * len(numbers[left] & numbers[right]) < len(numbers[left] | numbers[right])
            return "boilerplate only" if few_common else "unknown"
        return "unknown"

    return Judged(documents.texts, judge, documents.sources)


def made_paywall() -> Judged:
    """Return news with the paywall notice of one source; the pairs of the articles without the notice are copies."""
    articles = paywall.articles()
    sets = shingle_sets(Shingler(ShingleOptions()), [article.original for article in articles])
    copies = as_set(all_pairs(sets.hashes, sets.offsets, PAYWALL_THRESHOLD))

    def judge(pair: Pair) -> str:
        if pair in copies:
            return "copy"
        with_notice = all(articles[number].text != articles[number].original for number in pair)
        return "boilerplate only" if with_notice else "unknown"

    return Judged([article.text for article in articles], judge, [article.source for article in articles])


def rows_of(name: str, judged: Judged, threshold: float) -> Iterator[list[object]]:
    """Yield a row for each option."""
    plain = {"topics": ["t"], "shingle_unit": UNITS[name], "threshold": threshold, "exact_limit": "none"}

    def pairs(**keys: object) -> set[Pair]:
        return scan(Profile.model_validate(plain | keys), ((text, None) for text in judged.texts)).pairs

    before = pairs()
    yield row(f"{name}, default", judged, before, before)
    yield row(f"{name}, letters only", judged, before, pairs(letters_only=True))
    yield row(f"{name}, min_words 3", judged, before, pairs(min_words=3))
    options = Profile.model_validate(plain).shingle_options()
    no_sources = [None] * len(judged.texts)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "stop_shingles.txt"
        for share, by_source in itertools.product(SHARES, (False, True) if any(judged.sources) else (False,)):
            sources = judged.sources if by_source else no_sources
            stops = learn_stop_shingles(zip(judged.texts, sources, strict=True), options, share).stops
            path.write_text(stops.encoded(), encoding="utf-8")
            if stops.counts:
                option = f"stop shingles {share:.0%}{' by source' if by_source else ''}"
                yield row(f"{name}, {option}", judged, before, pairs(stop_shingles=str(path)))


def row(name: str, judged: Judged, before: set[Pair], after: set[Pair]) -> list[object]:
    """Return the number of pairs of each kind, and of those that an option loses and gains."""
    present, lost = Counter(map(judged.judge, after)), Counter(map(judged.judge, before - after))
    present_counts = [present[kind] for kind in ("boilerplate only", "same text", "copy")]
    lost_counts = [lost[kind] for kind in ("same text", "copy", "unknown")]
    return [name, len(after), *present_counts, *lost_counts, len(after - before)]


if __name__ == "__main__":
    main()
