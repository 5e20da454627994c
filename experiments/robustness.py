"""Similarity of edited copies, and the share of them that both default profiles find."""

import math
import random
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from experiments import spinning
from experiments.edits import EDITS, Edit, Tools
from experiments.findings import Results, Scale, Table, percent, table
from experiments.places import Absent, read, sample
from experiments.plots import SERIES, Picture
from experiments.trials import Judge, long_enough

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
#: Texts written without spaces, and the edits that put separators into them or take them out.
SPACELESS = "zh_shopping_reviews"
SEPARATING = ("punctuation left out", "commas behind words", "lines broken behind words", "a typo in words")
#: Edits that are drawn, and the strengths at which.
DRAWN = ("end cut off", "words replaced", "a typo in words", "Cyrillic look-alikes of letters")
DRAWN_STRENGTHS = (0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.08, 0.1, 0.12, 0.15, 0.18, 0.2, 0.22, 0.25, 0.3)
#: Texts tried of each set are the pairs of a scale divided by this.
TRIALS_A_TEXT = 8
#: Least share of the texts of a set that an edit must change.
LEAST_CHANGED = 0.1
_SEED = 20


class Outcome(NamedTuple):
    """Mean similarity of copies, and the share of them that is found."""

    similarity: float
    found: float

    def __str__(self) -> str:
        return f"{self.similarity:.2f}, {percent(self.found, 0)}"


class Column(NamedTuple):
    """One column of a table: a set of texts, judged by a profile."""

    title: str
    texts: list[str]
    judge: Judge


def run(scale: Scale) -> Results:
    """Try all edits on the sample, and on the open sets that exist.

    Raises:
        Absent: None of the open sets is there.
    """
    trials = max(1, scale.trials // TRIALS_A_TEXT)
    own = [Column(f"{kind}, {unit(judge)}", long_enough(sample(kind), trials), Judge(judge)) for kind, judge in SAMPLES]
    tables = {"sample": edits_table(own), "spun": spun_table(trials)}
    others, absent = open_sets(scale, trials)
    if not others:
        raise Absent(absent)
    tables["sets"] = edits_table(others)
    for column in others:
        if column.title.startswith(SPACELESS):
            separating = [edit for edit in EDITS if edit.name in SEPARATING]
            tables["spaceless"] = edits_table(spaceless(column.texts), separating)
    return Results("robustness", tables, {"edits": draw(own[:2])})


def unit(kind: str) -> str:
    """Return the unit of the shingles of a profile."""
    chosen = Judge(kind).profile
    return f"{'words' if chosen.shingle_unit == 'word' else 'characters'} {chosen.shingle_size}"


def open_sets(scale: Scale, trials: int) -> tuple[list[Column], str]:
    """Return the open sets that exist, and the reason why the last other one is missing."""
    found, absent = [], ""
    for name, kind in SETS:
        try:
            texts = long_enough(list(read(scale.data, name)), trials)
        except Absent as reason:
            absent = str(reason)
        else:
            found.append(Column(f"{name}, {unit(kind)}", texts, Judge(kind)))
    return found, absent


def spaceless(texts: list[str]) -> list[Column]:
    """Return one set judged with white space, without, and by words."""
    return [
        Column("characters 5", texts, Judge("reviews")),
        Column("characters 5, keep_white_space = false", texts, Judge("reviews", keep_white_space=False)),
        Column("words 3", texts, Judge("articles")),
    ]


def edits_table(columns: Sequence[Column], edits: Sequence[Edit] = EDITS) -> Table:
    """Return mean similarity and share found, a row for each edit and strength."""
    rows = [
        [edit.name, label, *(tried(column, edit.apply, strength) for column in columns)]
        for edit in edits
        for label, strength in edit.strengths
    ]
    return table(("edit", "strength", *(f"{column.title} ({len(column.texts)})" for column in columns)), rows)


def tried(column: Column, edit: Callable[[str, float, Tools], str], strength: float) -> Outcome | None:
    """Return the result for copies of the texts that the edit changes; None if it changes too few."""
    tools = Tools(random.Random(_SEED), column.texts)
    copies = [edit(text, strength, tools) for text in column.texts]
    changed = [(text, copy) for text, copy in zip(column.texts, copies, strict=True) if text != copy]
    if len(changed) < max(2, LEAST_CHANGED * len(copies)):
        return None
    return outcome(column.judge, *zip(*changed, strict=True))


def outcome(judge: Judge, originals: Sequence[str], copies: Sequence[str]) -> Outcome:
    """Return the result for copies[i] of originals[i], all i together."""
    verdicts = judge.judge(originals, copies)
    return Outcome(float(np.mean(verdicts.similarities)), float(np.mean(verdicts.found)))


def spun_table(trials: int) -> Table:
    """Return the result for two texts of one pattern, by the share of slots drawn again."""
    rows = []
    for share in (0.1, 0.25, 0.5, 1.0):
        row: list[object] = [percent(share, 0)]
        for pattern in spinning.PATTERNS.values():
            chance = random.Random(_SEED)
            one, other = ([spinning.spin(pattern, share, chance) for _ in range(trials)] for _ in range(2))
            row += [outcome(Judge(judge), one, other) for judge in ("articles", "reviews")]
        rows.append(row)
    columns = [f"{text}, {unit(judge)}" for text in ("notice", "review") for judge in ("articles", "reviews")]
    return table(("slots drawn anew", *columns), rows)


def draw(columns: Sequence[Column]) -> str:
    """Draw the share of copies found by strength, for two columns of the same texts."""
    picture = Picture(
        f"Copies of the sample's {SAMPLES[0][0]} that are found at 0.8",
        "strength of the edit, %",
        "share found",
        height=5.6,
    )
    percents = [100 * strength for strength in DRAWN_STRENGTHS]
    for (colour, marker), edit in zip(SERIES, (one for one in EDITS if one.name in DRAWN), strict=True):
        for column, line in zip(columns, ("-", "--"), strict=True):
            found = [tried(column, edit.apply, strength) for strength in DRAWN_STRENGTHS]
            shares = [math.nan if one is None else one.found for one in found]
            label = f"{edit.name}: {column.title.partition(', ')[2]}"
            picture.axes.plot(percents, shares, line, color=colour, marker=marker, markersize=4, label=label)
    picture.axes.set(xlim=(0, 31), ylim=(-0.02, 1.02))
    picture.legend("below")
    return picture.svg()
