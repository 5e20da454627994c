"""Stop shingles and rules about suppressed pairs on news of which many articles are behind one paywall notice.

    python -m benchmarks.suppression

The collection is that of ``benchmarks.paywall``, with what a scraper also finds: of 100 articles nothing but the notice
(half of them in the same publisher's weekend paper), and 60 articles once more as print views of the same source.

A pair is real if the two articles without the notice are near-duplicates. For each setting the table has the pairs that
``streamdedup scan`` finds at the threshold 0.8: those that share the notice only, the real ones within one source
(print views, repeated teasers), and the real ones of two sources.
"""

import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from benchmarks.paywall import FILE, NOTICE, SOURCE, Article, articles
from streamdedup.cli.collection import scan_profile, temporary_store
from streamdedup.cli.scan import find_pairs
from streamdedup.evaluation.trial import DetectorRun, document_at
from streamdedup.indexes import detector_options
from streamdedup.settings import Profile
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


class Found(NamedTuple):
    """Pairs that a setting finds.

    Attributes:
        of_notice: Pairs that share the notice only.
        within: Real pairs of one source.
        between: Real pairs of two sources.
        suppressed: Suppressed pairs by rule.
    """

    of_notice: int
    within: int
    between: int
    suppressed: Mapping[str, int]


def collection(base: Iterable[Article]) -> list[Article]:
    """Return the articles with the locked ones and the print views."""
    base = list(base)
    plain = [one for one in base if one.source == SOURCE and one.text == one.original]
    locked = [
        Article(f"{one.id}/locked", NOTICE, (SOURCE, WEEKEND)[at % 2], "") for at, one in enumerate(plain[:LOCKED])
    ]
    printed = [one._replace(id=f"{one.id}/print") for one in plain[LOCKED : LOCKED + PRINTED]]
    return base + locked + printed


def measure(made: list[Article], folder: Path) -> Iterator[tuple[str, str, Found]]:
    """Yield stop shingles, rules and pairs of each setting; a file of stop shingles is written to the folder."""
    by_id = {one.id: one for one in made}
    originals, _ = _pairs([one._replace(text=one.original) for one in made], _profile({}))
    real = set(originals)
    learnt = learn_stop_shingles(((one.text, one.source) for one in made), _profile({}).shingle_options(), SHARE)
    path = folder / "boilerplate.txt"
    path.write_text(learnt.stops.encoded(), encoding="utf-8")
    for stop, keys in (("none", {}), (f"{SHARE:.0%} within each source", {"stop_shingles": str(path)})):
        for name, rules in RULES.items():
            pairs, suppressed = _pairs(made, _profile(keys | dict(rules)))
            kinds = Counter(
                "notice" if pair not in real else len({by_id[each].source for each in pair}) for pair in pairs
            )
            yield stop, name, Found(kinds["notice"], kinds[1], kinds[2], suppressed)


def _profile(keys: Mapping[str, object]) -> Profile:
    return scan_profile(None, "articles", keys).model_copy(update={"bucket_cap": None, "max_candidates": None})


def _pairs(made: list[Article], profile: Profile) -> tuple[list[tuple[str, str]], Mapping[str, int]]:
    """Return the pairs, and the number of suppressed ones by rule."""
    documents = (document_at(at, one.id, one.text, source=one.source) for at, one in enumerate(made))
    with temporary_store(None, profile, None) as store:
        run = DetectorRun(detector_options("scan", profile), store)
        return [(pair.id1, pair.id2) for pair in find_pairs(run, documents)], dict(run.suppressed)


def main() -> None:
    """Measure and print the table."""
    base = articles()
    if not base:
        sys.exit(f"{FILE} is not there")
    made = collection(base)
    print(f"{len(made):,} articles, {len({one.source for one in made})} sources\n")
    print("| stop shingles | rules | of the notice only | real, one source | real, two sources | suppressed |")
    print("|---|---|--:|--:|--:|---|")
    with tempfile.TemporaryDirectory() as folder:
        for stop, name, found in measure(made, Path(folder)):
            suppressed = ", ".join(f"{count:,} {rule}" for rule, count in sorted(found.suppressed.items())) or "none"
            print(f"| {stop} | {name} | {found.of_notice:,} | {found.within:,} | {found.between:,} | {suppressed} |")


if __name__ == "__main__":
    main()
