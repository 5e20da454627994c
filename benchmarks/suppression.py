"""Stop shingles and rules about suppressed pairs on news of which many articles are behind one paywall notice.

    python -m benchmarks.suppression [--quick]

The collection is that of `benchmarks.paywall`, with what a scraper also finds: of 100 articles nothing but the notice
(half of them in the same publisher's weekend paper), and 60 articles once more as print views of the same source.

A pair is real if the two articles without the notice are near-duplicates. For each setting the table has the pairs that
`streamdedup scan` finds at the threshold 0.8: those that share the notice only, the real ones within one source
(print views, repeated teasers), and the real ones of two sources.
"""

import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from benchmarks import report
from benchmarks.paywall import NOTICE, SOURCE, Article, articles
from benchmarks.scans import scan
from streamdedup.settings import Profile
from streamdedup.settings.presets import named_profile
from streamdedup.text.stop_shingles import learn_stop_shingles

#: Articles of which only the notice is there, and those that are printed again, and the second source of the former.
LOCKED, PRINTED, WEEKEND = 100, 60, "weekend"
#: Share of the documents of a source from which on a shingle is a stop shingle.
SHARE = 0.05
#: Rules by name; the settings of the table combine them with stop shingles.
RULES: dict[str, Mapping[str, object]] = {
    "no rule": {},
    "`min_shingles = 1`": {"min_shingles": 1},
    "`ignore_same_source`": {"ignore_same_source": True},
    "both rules": {"min_shingles": 1, "ignore_same_source": True},
}


def main() -> None:
    """Measure, print, write."""
    arguments = report.parser(__doc__).parse_args()
    made = collection()[: 300 if arguments.quick else None]
    with tempfile.TemporaryDirectory() as folder:
        rows = list(measure(made, Path(folder)))
    setting = {"articles": f"{len(made):,} of {len({article.source for article in made})} sources"}
    columns = ["stop shingles", "rules", "of the notice only", "real, one source", "real, two sources", "suppressed"]
    tables = {"rules": report.table(columns, rows)}
    report.Report("suppression", arguments.quick, setting, rows, tables).show(arguments.output)


def collection() -> list[Article]:
    """Return the articles with the locked ones and the print views."""
    base = articles()
    plain = [article for article in base if article.source == SOURCE and article.text == article.original]
    locked = [Article(NOTICE, (SOURCE, WEEKEND)[number % 2], "") for number in range(min(LOCKED, len(plain)))]
    return base + locked + plain[LOCKED : LOCKED + PRINTED]


def measure(made: list[Article], folder: Path) -> Iterator[list[object]]:
    """Yield stop shingles, rules, and the number of pairs of each kind; stop shingles are written to the folder."""
    real = scan(_profile({}), ((article.original, article.source) for article in made)).pairs
    texts = [(article.text, article.source) for article in made]
    learnt = learn_stop_shingles(texts, _profile({}).shingle_options(), SHARE)
    path = folder / "boilerplate.txt"
    path.write_text(learnt.stops.encoded(), encoding="utf-8")
    for stop, keys in (("none", {}), (f"{SHARE:.0%} within each source", {"stop_shingles": str(path)})):
        for name, rules in RULES.items():
            pairs, suppressed = scan(_profile(keys | dict(rules)), texts)
            kinds = Counter(
                "notice" if pair not in real else len({made[number].source for number in pair}) for pair in pairs
            )
            counts = ", ".join(f"{count:,} {rule}" for rule, count in sorted(suppressed.items())) or "none"
            yield [stop, name, kinds["notice"], kinds[1], kinds[2], counts]


def _profile(keys: Mapping[str, object]) -> Profile:
    """Return a profile that compares by similarity alone, as the table counts pairs."""
    return named_profile(None, "articles", {"containment_threshold": "none", **keys})


if __name__ == "__main__":
    main()
