"""Similarity of edited copies, and the share of them that the default profiles find.

Each edit is tried on the open sets that are available, or without any on the project's sample. A pair of text and
copy is judged without other documents in the index: it is found when it shares a band of the profile and the similarity
of its sketches reaches the threshold, as the detector does below the caps. All random choices have fixed seeds.
"""

import random
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks import datasets, report
from benchmarks.edits import EDITS, Edit, Tools
from benchmarks.report import Table, percent, table
from streamdedup.settings.presets import named_profile
from streamdedup.similarity.lsh import shared_bands
from streamdedup.similarity.minhash import HashFamily
from streamdedup.similarity.sketch import Sketch, Sketcher
from streamdedup.text.shingles import Shingler

#: The project's sample: its articles and its reviews, each by both profiles.
SAMPLES = (("articles", "articles"), ("articles", "reviews"), ("reviews", "reviews"), ("reviews", "articles"))
#: Open sets, each with its profile.
SETS = (
    ("reuters21578", "articles"),
    ("bbc_news", "articles"),
    ("masakhane_news", "articles"),
    ("playstore_reviews", "reviews"),
    ("zh_shopping_reviews", "reviews"),
    ("ar_reviews", "reviews"),
)
#: Texts tried of each set, and in a quick run.
TRIALS, QUICK_TRIALS = 250, 20
#: Fewest words of a tried text: a shorter one has too few shingles to be edited a little.
MIN_WORDS = 8
#: Least share of the texts of a set that an edit must change.
LEAST_CHANGED = 0.1
_SEED = 20


class Outcome(NamedTuple):
    """Mean similarity of copies, and the share of them that is found."""

    similarity: float
    is_found: float

    def __str__(self) -> str:
        return f"{self.similarity:.2f}, {percent(self.is_found, 0)}"


class Judge:
    """Judges pairs of texts by one of the default profiles."""

    def __init__(self, kind: str) -> None:
        self.profile = named_profile(None, kind, {})
        self._banding = self.profile.banding()
        self._shingler = Shingler(self.profile.shingle_options())
        family = HashFamily(self.profile.permutations)
        self._sketcher = Sketcher(family, self.profile.exact_limit, self._banding.permutations)

    def judge(self, originals: Sequence[str], copies: Sequence[str]) -> Outcome:
        """Compare originals[i] with copies[i] for every i."""
        left, left_keys = self._prepare(originals)
        right, right_keys = self._prepare(copies)
        similarities = self._sketcher.similarities(left, right, [(i, i) for i in range(len(left))]).values
        shared = shared_bands(left_keys, right_keys) >= self.profile.min_shared_bands
        is_found = shared & (similarities >= self.profile.threshold)
        return Outcome(float(np.mean(similarities)), float(np.mean(is_found)))

    def _prepare(self, texts: Sequence[str]) -> tuple[list[Sketch], NDArray[np.uint32]]:
        batch = self._shingler.shingle(texts)
        sketches, values = self._sketcher.sketch(batch.hashes, batch.offsets)
        return sketches, self._banding.band_keys(values)


class Column(NamedTuple):
    """One column of a table: a set of texts, judged by a profile."""

    title: str
    texts: list[str]
    judge: Judge


def main(*, quick: bool) -> report.Report:
    trials = QUICK_TRIALS if quick else TRIALS
    others = [
        column(name, datasets.read(name).texts, profile, trials)
        for name, profile in ([] if quick else SETS)
        if datasets.path_of(name)
    ]
    sample = [column(kind, datasets.sample(kind).texts, profile, trials) for kind, profile in SAMPLES if not others]
    tables = {"sets": edits_table(others)} if others else {"sample": edits_table(sample)}
    setting = {"texts": f"at most {trials} of each set, of at least {MIN_WORDS} words", "seed": _SEED}
    return report.Report(setting, tables)


def column(name: str, texts: Sequence[str], profile: str, trials: int) -> Column:
    """Return the column of a set, with texts that are long enough, evenly spread over the set."""
    words = Shingler(named_profile(None, "articles", {}).shingle_options()).shingle(texts).token_counts
    usable = [text for text, count in zip(texts, words.tolist(), strict=True) if count >= MIN_WORDS]
    judge = Judge(profile)
    unit = "words" if judge.profile.shingle_unit == "word" else "characters"
    step = max(1, len(usable) // trials)
    return Column(f"{name}, {unit} {judge.profile.shingle_size}", usable[::step][:trials], judge)


def edits_table(columns: Sequence[Column]) -> Table:
    """Return mean similarity and share found, a row for each edit and strength."""
    rows = [
        [edit.name, label, *(tried(column, edit, strength) for column in columns)]
        for edit in EDITS
        for label, strength in edit.strengths
    ]
    return table(("edit", "strength", *(f"{column.title} ({len(column.texts)})" for column in columns)), rows)


def tried(column: Column, edit: Edit, strength: float) -> Outcome | None:
    """Return the result for copies of the texts that the edit changes; None if the edit changes too few."""
    tools = Tools(random.Random(_SEED), column.texts)
    copies = [edit.apply(text, strength, tools) for text in column.texts]
    changed = [(text, copy) for text, copy in zip(column.texts, copies, strict=True) if text != copy]
    if len(changed) < max(2, LEAST_CHANGED * len(copies)):
        return None
    return column.judge.judge(*zip(*changed, strict=True))
