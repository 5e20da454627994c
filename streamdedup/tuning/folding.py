"""The effect of ``fold_marks`` on the pairs of a sample with vowel signs."""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from streamdedup.evaluation.truth import shingle_sets
from streamdedup.text.shingles import ShingleOptions, Shingler
from streamdedup.tuning.pair_change import PairChange, compare, sample_pairs

#: Points and vowel signs of Hebrew, Arabic and Syriac, which a writer may leave out.
_SIGNS: Final = re.compile(
    "[\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061a\u064b-\u065f\u0670\u06d6-\u06dc\u06df-\u06e8"
    "\u06ea-\u06ed\u0711\u0730-\u074a]"
)
#: Least share of documents with a vowel sign.
_LEAST_SHARE: Final = 0.001


class Folding(NamedTuple):
    """Pairs of a sample without and with ``fold_marks``.

    Attributes:
        documents: Documents with a vowel sign.
        share: Their share of the documents.
        change: Pairs without ``fold_marks``, and with it.
    """

    documents: int
    share: float
    change: PairChange


def study_folding(
    texts: Sequence[str],
    options: ShingleOptions,
    threshold: float,
    *,
    min_words: int = 0,
    progress: Callable[[int], None] = lambda _: None,
) -> Folding | None:
    """Compare the pairs of texts without and with ``fold_marks``; None where it is set or vowel signs are rare.

    Args:
        texts: Texts of the sample.
        options: Shingles of the profile. Repetitions do not count here, and similarity is that of sets.
        threshold: Least similarity of a pair.
        min_words: Documents with fewer words are skipped.
        progress: Called with the number of texts compared since the last call, each twice.
    """
    count = sum(not text.isascii() and _SIGNS.search(text) is not None for text in texts)
    if options.fold_marks or not count or count < _LEAST_SHARE * len(texts):
        return None
    plain = replace(options, bag=False, stop_shingles=frozenset())
    before = sample_pairs(shingle_sets(Shingler(plain), texts), threshold, min_words, progress)
    folded = shingle_sets(Shingler(replace(plain, fold_marks=True)), texts)
    change, _ = compare(before, folded, min_words, progress)
    return Folding(count, count / len(texts), change)
