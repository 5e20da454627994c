"""Trial of the adviser: what the default settings alert, and what the settings alert that ``tune`` would apply.

Pairs are those of an exact join. A pair is *of boilerplate* where more than half of the word shingles that its texts
share are stop shingles; a *cross-source copy* is another pair of two sources. *Found* is the share of the pairs that
the profile's bands find.
"""

import tempfile
import tomllib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import datasets, report
from benchmarks.datasets import Corpus
from benchmarks.scans import Pair, all_pairs, as_set, scan
from streamdedup.cli.tune import RECALLS, SIZES, THRESHOLDS
from streamdedup.evaluation.pairs import Pairs, ShingleSets, contained, shingle_sets
from streamdedup.evaluation.scores import LEAST_CONTAINED_SIMILARITY
from streamdedup.settings import Profile
from streamdedup.settings.presets import named_profile
from streamdedup.text.shingles import ShingleOptions, Shingler
from streamdedup.text.stop_learning import DEFAULT_SHARE, learn_stop_shingles
from streamdedup.tuning.comparison import TIME_S, TuningPlan, compare_in_budget
from streamdedup.tuning.results import results_of
from streamdedup.tuning.sample import draw_sample

SETS = ("fnc1_bodies", "sms_spam", "masakhane_news", "playstore_reviews", "saudi_news_july", "shop_listings")
#: Keys that decide which documents are alike.
KEYS = (
    "shingle_unit", "shingle_size", "threshold", "containment_threshold", "recall_from", "fold_marks", "fold_variants",
    "fold_look_alikes", "keep_urls", "min_words",
)  # fmt: skip
SAMPLE_DOCUMENTS, QUICK_DOCUMENTS = 20_000, 1_000
WORDS = ShingleOptions("word", 3)


def main(*, quick: bool) -> report.Report:
    rows: list[list[object]] = []
    for name in SETS[: 1 if quick else None]:
        documents = datasets.read(name)
        if quick:
            documents = Corpus(name, documents.documents[:QUICK_DOCUMENTS], documents.sources[:QUICK_DOCUMENTS])
        rows += trial(documents)
    columns = ["set, settings", "pairs", "of boilerplate", "cross-source copies", "found", "changed keys"]
    tables = {"trial": report.table(columns, rows)}
    setting = {"time": f"{TIME_S:g} s for each set", "boilerplate": f"share {DEFAULT_SHARE:g}"}
    return report.Report(setting, tables)


def trial(documents: Corpus) -> list[list[object]]:
    default = named_profile(None, documents.profiles[0], {"topics": documents.name})
    results = tuned(documents, default)
    judge = Judge(documents)
    with tempfile.TemporaryDirectory() as folder:
        proposed = dict(tomllib.loads(results["proposed"]["toml"])["profiles"][documents.name])
        if results["proposed"]["stop_shingles"] is not None:
            proposed["stop_shingles"] = str(Path(folder) / "stops.txt")
            Path(proposed["stop_shingles"]).write_text(results["proposed"]["stop_shingles"], encoding="utf-8")
        applied = Profile.model_validate(proposed)
        changed = ", ".join(changed_keys(default, applied)) or "none"
        return [
            judge.row(f"{documents.name}, default", default, ""),
            judge.row(f"{documents.name}, tuned", applied, changed),
        ]


def tuned(documents: Corpus, profile: Profile) -> dict[str, Any]:
    own = profile.shingle_options()
    kinds = (own, *(replace(own, unit=unit, size=size) for unit in SIZES for size in SIZES[unit]))
    columns = zip(documents.documents, documents.sources, strict=True)
    sample = draw_sample(((text.id, text.text, source, None) for text, source in columns), SAMPLE_DOCUMENTS)
    stops = Path("stops.txt").absolute()
    plan = TuningPlan(
        documents.name, profile, tuple(dict.fromkeys(kinds)), THRESHOLDS, RECALLS, 10_000, "sets", True, stops
    )

    def progress(_title: str, _total: int) -> AbstractContextManager[Callable[[int], None]]:
        return nullcontext(lambda _count: None)

    return results_of(compare_in_budget(plan, sample, progress, TIME_S), progress)


def changed_keys(before: Profile, after: Profile) -> Iterator[str]:
    """Yield the keys that decide which documents are alike and have another value."""
    for key in KEYS:
        if getattr(before, key) != getattr(after, key):
            yield f"{key} {getattr(after, key)}"
    if after.stop_shingles != before.stop_shingles:
        yield "stop_shingles"


class Judge:
    """Counts the pairs of a set by a profile, with those of boilerplate and the cross-source copies."""

    def __init__(self, documents: Corpus) -> None:
        self._documents = documents
        learnt = learn_stop_shingles(zip(documents.texts, documents.sources, strict=True), WORDS, DEFAULT_SHARE)
        self._words = shingle_sets(Shingler(WORDS), documents.texts)
        self._stops = np.array(sorted(learnt.stops.hashes), np.uint32)

    def row(self, name: str, profile: Profile, changed: str) -> list[object]:
        sets = shingle_sets(Shingler(profile.shingle_options()), self._documents.texts)
        pairs = pairs_of(sets, profile)
        found = scan(profile, zip(self._documents.texts, self._documents.sources, strict=True))
        boilerplate = {pair for pair in pairs if self._is_boilerplate(pair)}
        sources = self._documents.sources
        across = sum(
            None not in (sources[left], sources[right]) and sources[left] != sources[right]
            for left, right in pairs - boilerplate
        )
        share = report.percent(len(boilerplate) / len(pairs) if pairs else None)
        recall = report.percent(len(found & pairs) / len(pairs) if pairs else None, 2)
        return [name, len(pairs), share, across if any(sources) else None, recall, changed]

    def _is_boilerplate(self, pair: Pair) -> bool:
        common = np.intersect1d(*map(self._words.shingles_of, pair), assume_unique=True)
        return 2 * int(np.isin(common, self._stops).sum()) > len(common)


def pairs_of(sets: ShingleSets, profile: Profile) -> set[Pair]:
    """Return the pairs that a profile alerts, by an exact join."""
    rule = profile.containment_rule()
    joined: Pairs = all_pairs(sets.hashes, sets.offsets, min(profile.threshold, LEAST_CONTAINED_SIMILARITY))
    is_alerted = joined.similarities >= profile.threshold
    if rule is not None:
        is_alerted |= contained(sets, joined.left, joined.right, rule)
    enough = (sets.token_counts >= profile.min_words) & (sets.sizes > 0)
    return as_set(joined.where(is_alerted & enough[joined.left] & enough[joined.right]))
