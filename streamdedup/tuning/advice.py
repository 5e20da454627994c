"""Which row of the table to take, and what in a sample a user should know before."""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np

from streamdedup.text.shingles import ShingleOptions
from streamdedup.tuning.rows import LEAST_PAIRS, Row
from streamdedup.tuning.study import Study
from streamdedup.tuning.templates import Template

#: Characters of a word with the blank that follows, roughly, where words are compared with characters.
_WORD_CHARACTERS: Final = 6
#: Shares of the documents from which on something is worth a warning.
_SHORT_SHARE, _TEMPLATE_SHARE, _EMPTY_SHARE, _ESTIMATED_SHARE = 0.02, 0.10, 0.01, 0.10
#: Size of a forecast, in samples, from which on there is a warning.
_FAR: Final = 50
#: Characters of a template in a warning.
_SHOWN: Final = 80


class Choice(NamedTuple):
    """A row, and why this one."""

    row: Row
    reason: str


def least_words(options: ShingleOptions, threshold: float) -> int:
    """Return how many words a text must have so that one changed word leaves it at the threshold.

    A word stands in k shingles of words: of s shingles s - k stay; (s - k) / (s + k) >= t from
    s = k (1 + t) / (1 - t) on.
    In k-character shingles a word of w characters stands in w + k - 1 of them.
    """
    if threshold >= 1.0:
        return 0
    per_word = options.size if options.unit == "word" else _WORD_CHARACTERS + options.size - 1
    shingles = per_word * (1 + threshold) / (1 - threshold)
    if options.unit == "word":
        return int(np.ceil(shingles - 1e-9)) + options.size - 1
    return int(np.ceil(shingles / _WORD_CHARACTERS))


def choose(rows: Sequence[Row], studies: Sequence[Study], preferred: ShingleOptions) -> Choice:
    """Choose the kind of shingles, among rows of one threshold and one minimum recall.

    The preferred kind, unless half of the texts are so short that a single changed word would take a pair below the
    threshold: then the kind that bears the shortest texts.

    Args:
        rows: At least one.
        studies: All kinds.
        preferred: What the profile says.
    """
    threshold = rows[0].threshold
    counts = studies[0].sets.token_counts
    median = int(np.median(counts)) if counts.size else 0
    row = next((row for row in rows if row.options == preferred), rows[0])
    needed = least_words(row.options, threshold)
    name = f"{row.options.unit} {row.options.size}"
    if threshold >= 1.0:
        return Choice(row, f"{name}: at a threshold of 1 any kind of shingles finds texts of the same words")
    if median >= needed or len(rows) == 1:
        return Choice(
            row,
            f"{name}: half of the texts have {median:,} words or more; from {needed} words on, one "
            f"changed word leaves a pair above {threshold:g}",
        )
    shortest = min(rows, key=lambda one: least_words(one.options, threshold))
    fewer = least_words(shortest.options, threshold)
    if fewer == needed:
        return Choice(
            row,
            f"{name}: no kind of shingles bears shorter texts; half of the texts have {median:,} words or fewer, and a "
            f"pair that differs in one word needs {needed} to stay above {threshold:g}: think of a lower threshold",
        )
    return Choice(
        shortest,
        f"{shortest.options.unit} {shortest.options.size}: half of the texts have {median:,} words or fewer; in {name} "
        f"shingles a pair that differs in one word needs {needed} words to stay above {threshold:g}, in these {fewer}",
    )


def warnings(
    study: Study,
    row: Row,
    found: Sequence[Template],
    documents_kept: float,
    *,
    exact_limit: int | None,
    bucket_cap: int | None,
) -> Iterator[str]:
    """Yield what a user should know.

    Args:
        study: The sample with the recommended shingles.
        row: The recommendation.
        found: Templates, the most frequent first.
        documents_kept: Documents of the forecast.
        exact_limit: Distinct shingles up to which a document is kept as a set.
        bucket_cap: Most members of a bucket.
    """
    documents = max(study.documents_count, 1)
    tokens, options = study.sets.token_counts, row.options
    empty = np.count_nonzero(tokens == 0) / documents
    if empty >= _EMPTY_SHARE:
        yield f"{empty:.1%} of the documents have no word: they are skipped"
    if options.unit == "word":
        short = np.count_nonzero((tokens > 0) & (tokens < options.size)) / documents
        if short >= _SHORT_SHARE:
            yield f"{short:.1%} of the documents have fewer than {options.size} words and are one shingle as a whole"
    if found and found[0].share >= _TEMPLATE_SHARE:
        shown = " ".join(found[0].words)
        shown = shown if len(shown) <= _SHOWN else shown[:_SHOWN] + "..."
        yield f"a template covers {found[0].share:.0%} of the sample: {shown}"
    estimated = 1.0 - study.exact_share(exact_limit) if study.indexed_count else 0.0
    if estimated >= _ESTIMATED_SHARE:
        yield (
            f"{estimated:.0%} of the documents have more than {exact_limit} shingles and are compared by estimate; the "
            f"recall here is that of the candidates"
        )
    if row.recall.edited.total < LEAST_PAIRS:
        yield (
            f"the sample has {row.recall.edited.total} pairs of different texts from {row.threshold:g} on: too few to "
            f"measure recall by; theory decides"
        )
    if bucket_cap is not None and row.largest_bucket >= bucket_cap:
        yield (
            f"{row.largest_bucket:,} documents of the sample share one bucket, which takes {bucket_cap} (bucket_cap): "
            f"of such pairs the most are missed, though never all of an exact copy's"
        )
    if documents_kept > _FAR * study.documents_count:
        yield (
            f"the forecast goes from {study.documents_count:,} documents to {documents_kept:,.0f}: of what grows with "
            f"the index it says the order of magnitude; take a larger sample"
        )
