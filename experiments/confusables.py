"""Use and harm of folding letters that look alike.

Two ways are tried (`experiments.glyphs`): only in words that also have a Latin letter, and in every word. Copies are
made with Cyrillic look-alikes; harm is a change in real texts: words that become the same, and pairs that appear or
vanish.
"""

import random
import re
from collections.abc import Callable, Sequence

from experiments import edits, glyphs
from experiments.exact import all_pairs, as_set
from experiments.findings import Results, Scale, Table, percent, table
from experiments.places import read, sample
from experiments.profiles import profile
from experiments.robustness import outcome
from experiments.trials import Judge, long_enough
from streamdedup.text.shingles import Shingler, normalise

#: Ways of folding; the first is that of the product.
FOLDS: dict[str, Callable[[str], str]] = {
    "none": str,
    "mixed words": glyphs.fold_mixed,
    "every word": glyphs.fold,
}
#: Shares of the letters that copies have look-alikes for.
STRENGTHS = (0.02, 0.1, 0.5, 1.0)
#: Real texts in many scripts, and the profile that they are read with.
SETS = (("udhr", "articles"), ("masakhane_news", "articles"), ("sms_spam", "reviews"))
_WORD = re.compile(r"\w+")
_SEED = 39


def run(scale: Scale) -> Results:
    """Measure the use on the sample and the harm on real texts.

    Raises:
        Absent: A set is not there.
    """
    harm = []
    for name, kind in SETS:
        harm += harm_on(name, kind, [entry.text for entry in read(scale.data, name)])
    columns = ("set", "fold", "texts", "changed", "distinct words", "fewer", "pairs from 0.8", "new", "gone")
    return Results("confusables", {"use": use(), "harm": table(columns, harm)})


def use() -> Table:
    """Return similarity and share found of copies of the sample with look-alikes, by way of folding."""
    rows = []
    for kind in ("articles", "reviews"):
        texts = [text for text in long_enough(sample(kind), 1000) if text.isascii()]
        for name, fold in FOLDS.items():
            row: list[object] = [f"{kind} ({len(texts)})", name]
            for strength in STRENGTHS:
                tools = edits.Tools(random.Random(_SEED), texts)
                copies = [fold(edits.look_alike(text, strength, tools)) for text in texts]
                row.append(outcome(Judge(kind), [fold(text) for text in texts], copies))
            rows.append(row)
    return table(("sample, in ASCII", "fold", *(percent(strength, 0) for strength in STRENGTHS)), rows)


def harm_on(name: str, kind: str, texts: Sequence[str]) -> list[list[object]]:
    """Return the changes by folding in texts without disguise."""
    plain_pairs: set[tuple[int, int]] = set()
    plain_words = 0
    rows: list[list[object]] = []
    for title, fold in FOLDS.items():
        folded = [fold(text) for text in texts]
        words = len({word for text in folded for word in _WORD.findall(normalise(text))})
        batch = Shingler(profile(kind).shingle_options()).shingle(folded)
        pairs = as_set(all_pairs(batch.hashes, batch.offsets, profile(kind).threshold))
        if title == "none":
            plain_pairs, plain_words = pairs, words
        changed = sum(one != other for one, other in zip(texts, folded, strict=True))
        difference = [len(pairs - plain_pairs), len(plain_pairs - pairs)]
        rows.append([name, title, len(texts), changed, words, plain_words - words, len(pairs), *difference])
    return rows
