"""Pairs of a sample as ``tune`` shows them: sources, families of one template, and the words that two texts share.

Called by ``meter``, with all alerted pairs for ``in_families``, and by ``results``. The other pairs are those that a
lower threshold adds or a changed setting gains.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from difflib import SequenceMatcher
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from streamdedup.evaluation.pairs import Pairs
from streamdedup.text.shingles import ShingleOptions, Shingler
from streamdedup.tuning.sample import Sample

SHOWN_COUNT: Final = 10  # most pairs that ``shown_pairs`` returns
#: Least size of a family (``in_families``). A smaller group may be versions of one text, not copies of a template.
LEAST_FAMILY: Final = 10
_SEARCHED_WORDS: Final = 2_000  # words of a text that are searched for a common passage
_PASSAGE_CHARS: Final = 120  # characters of the passage that are shown


def across_share(sources: Sequence[str | None], pairs: Pairs) -> float | None:
    """Return the share with two sources among the pairs of known (not empty) sources; None without such pairs."""
    ends = [(sources[left], sources[right]) for left, right in _ends(pairs)]
    are_across = [left != right for left, right in ends if left and right]
    return sum(are_across) / len(are_across) if are_across else None


def in_families(sources: Sequence[str | None], pairs: Pairs) -> NDArray[np.bool_]:
    """Return whether each pair is of a family, bool (n,).

    A family is at least ``LEAST_FAMILY`` documents of one source, or all without a source, that pairs within it link,
    directly or through others. Copies of one text are no family: pass one document of each distinct text.
    """
    ends = _ends(pairs)
    within = [(left, right) for left, right in ends if sources[left] == sources[right]]  # two unknown ones are equal
    parents: dict[int, int] = {}  # a union-find structure: linked documents have one root

    def root(document: int) -> int:
        parents.setdefault(document, document)
        while parents[document] != document:
            parents[document] = parents[parents[document]]  # halves the path for later calls
            document = parents[document]
        return document

    for left, right in within:
        parents[root(left)] = root(right)
    sizes = Counter(map(root, parents))  # all keys exist, so ``root`` adds none during the iteration
    return np.array(
        [sources[left] == sources[right] and sizes[root(left)] >= LEAST_FAMILY for left, right in ends], np.bool_
    )


def shown_pairs(sample: Sample, options: ShingleOptions, pairs: Pairs) -> list[dict[str, Any]]:
    """Return at most ``SHOWN_COUNT`` pairs, evenly spread by similarity rank, the most similar first."""
    # Single words in text order, also stop words, so that counts and passages are those that a person sees.
    words = replace(options, unit="word", size=1, bag=False, stop_words=frozenset(), stop_shingles=frozenset())
    shingler = Shingler(words)
    ordered = np.argsort(-pairs.similarities, kind="stable")
    spread = np.linspace(0, len(ordered) - 1, min(len(ordered), SHOWN_COUNT)).round().astype(np.int64)
    chosen = pairs.where(ordered[spread])
    return [
        _shown(sample, shingler, pair, similarity)
        for pair, similarity in zip(_ends(chosen), chosen.similarities.tolist(), strict=True)
    ]


def _ends(pairs: Pairs) -> list[tuple[int, int]]:
    return list(zip(pairs.left.tolist(), pairs.right.tolist(), strict=True))


def _shown(sample: Sample, shingler: Shingler, pair: tuple[int, int], similarity: float) -> dict[str, Any]:
    """Return a pair for the JSON of ``tune`` and for ``tuning_tables``: left is the later document, the greater row."""
    earlier, later = sorted(pair)
    left_text, right_text = shingler.in_order(sample.texts[later]), shingler.in_order(sample.texts[earlier])
    left_words, right_words = left_text.hashes.tolist(), right_text.hashes.tolist()
    common = sum((Counter(left_words) & Counter(right_words)).values())
    searched = left_words[:_SEARCHED_WORDS], right_words[:_SEARCHED_WORDS]
    matcher = SequenceMatcher(None, *searched, autojunk=False)
    start, _, length = matcher.find_longest_match()
    passage = left_text.text(start, start + length) if length else ""
    return {
        "similarity": similarity,
        "left": sample.ids[later],
        "left_source": sample.sources[later],
        "left_words": len(left_words),
        "right": sample.ids[earlier],
        "right_source": sample.sources[earlier],
        "right_words": len(right_words),
        "common_words": common,
        "passage_words": length,
        "passage": passage if len(passage) <= _PASSAGE_CHARS else f"{passage[:_PASSAGE_CHARS]}...",
    }
