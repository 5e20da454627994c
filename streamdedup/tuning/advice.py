"""The recommended row of the table, and warnings about the sample."""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np

from streamdedup.text.shingles import ShingleOptions
from streamdedup.tuning.boilerplate import Boilerplate
from streamdedup.tuning.rows import LEAST_PAIRS, TuningRow
from streamdedup.tuning.study import Study

#: Characters of a word and the following space, roughly, to compare words with characters.
_WORD_CHARACTERS: Final = 6
#: Least shares of the documents for a warning.
_SHORT_SHARE, _BOILERPLATE_SHARE, _EMPTY_SHARE, _ESTIMATED_SHARE = 0.02, 0.10, 0.01, 0.10
#: A forecast of an index of more than so many times the sample has a warning.
_FAR: Final = 50
#: Characters of boilerplate in a warning.
_SHOWN: Final = 80


class Recommendation(NamedTuple):
    """A row, the study of its shingles, and the reason for its kind of shingles."""

    row: TuningRow
    study: Study
    reason: str


def least_words(options: ShingleOptions, threshold: float) -> int:
    """Return the least number of words of a text that stays at the threshold when one word changes.

    A word is part of k shingles of words; of s shingles s - k stay, and (s - k) / (s + k) >= t holds from
    s = k (1 + t) / (1 - t) on. A word of w characters is part of w + k - 1 shingles of k characters.
    """
    if threshold >= 1.0:
        return 0
    per_word = options.size if options.unit == "word" else _WORD_CHARACTERS + options.size - 1
    shingles = per_word * (1 + threshold) / (1 - threshold)
    if options.unit == "word":
        return int(np.ceil(shingles - 1e-9)) + options.size - 1
    return int(np.ceil(shingles / _WORD_CHARACTERS))


def recommend(rows: Sequence[tuple[TuningRow, Study]], preferred: ShingleOptions) -> Recommendation:
    """Recommend one of the rows of one threshold and one minimum recall.

    The preferred kind of shingles, unless half of the texts are so short that one changed word takes a pair below the
    threshold: then the kind that bears the shortest texts.

    Args:
        rows: At least one, each with the study of its kind of shingles.
        preferred: Shingles of the profile.
    """
    row, study = next((one for one in rows if one[0].options == preferred), rows[0])
    threshold, name = row.threshold, f"{row.options.unit} {row.options.size}"
    counts = study.sets.token_counts
    median = int(np.median(counts)) if counts.size else 0
    needed = least_words(row.options, threshold)
    if threshold >= 1.0:
        reason = f"{name}: at a threshold of 1 any kind of shingles finds texts of the same words"
    elif median >= needed or len(rows) == 1:
        reason = (
            f"{name}: half of the texts have {median:,} words or more; from {needed} words on, one "
            f"changed word leaves a pair above {threshold:g}"
        )
    else:
        shortest, of_shortest = min(rows, key=lambda one: least_words(one[0].options, threshold))
        fewer = least_words(shortest.options, threshold)
        if fewer < needed:
            return Recommendation(
                shortest,
                of_shortest,
                f"{shortest.options.unit} {shortest.options.size}: half of the texts have {median:,} words or fewer; "
                f"in {name} shingles a pair that differs in one word needs {needed} words to stay above {threshold:g}, "
                f"in these {fewer}",
            )
        reason = (
            f"{name}: no kind of shingles bears shorter texts; half of the texts have {median:,} words or fewer, and a "
            f"pair that differs in one word needs {needed} to stay above {threshold:g}: think of a lower threshold"
        )
    return Recommendation(row, study, reason)


def warnings(
    row: TuningRow,
    study: Study,
    boilerplate: Sequence[Boilerplate],
    documents_kept: float,
    *,
    exact_limit: int | None,
) -> Iterator[str]:
    """Yield warnings about the sample and the forecast.

    Args:
        row: The recommended row.
        study: The sample with its shingles.
        boilerplate: Runs of stop shingles.
        documents_kept: Documents of the forecast.
        exact_limit: Distinct shingles up to which a document is stored as a set.
    """
    yield from _text_warnings(study, boilerplate, exact_limit)
    if row.recall.edited.total < LEAST_PAIRS:
        yield (
            f"the sample has {row.recall.edited.total} pairs of different texts from {row.threshold:g} on: too few to "
            f"measure recall by; theory decides"
        )
    bucket_cap = row.limits.bucket_cap
    largest = study.buckets(row.banding, bucket_cap).largest
    if bucket_cap is not None and largest >= bucket_cap:
        yield (
            f"{largest:,} documents of the sample share one bucket, which takes {bucket_cap} (bucket_cap): "
            f"of such pairs the most are missed, though never all of an exact copy's; raise bucket_cap, or leave "
            f"boilerplate out with a file of streamdedup stop-shingles"
        )
    if documents_kept > _FAR * study.documents_count:
        yield (
            f"the forecast goes from {study.documents_count:,} documents to {documents_kept:,.0f}: of what grows with "
            f"the index it says the order of magnitude; take a larger sample"
        )


def _text_warnings(study: Study, boilerplate: Sequence[Boilerplate], exact_limit: int | None) -> Iterator[str]:
    documents = max(study.documents_count, 1)
    tokens, options = study.sets.token_counts, study.options
    empty = np.count_nonzero(tokens == 0) / documents
    if empty >= _EMPTY_SHARE:
        yield f"{empty:.1%} of the documents have no word: they are skipped"
    if options.unit == "word":
        short = np.count_nonzero((tokens > 0) & (tokens < options.size)) / documents
        if short >= _SHORT_SHARE:
            yield f"{short:.1%} of the documents have fewer than {options.size} words and are one shingle as a whole"
    shares = [(one.documents / study.sample_count if one.sources else one.share, one.text) for one in boilerplate]
    share, text = max(shares, default=(0.0, ""))
    if share >= _BOILERPLATE_SHARE:
        yield f"a template covers {share:.0%} of the sample: {text if len(text) <= _SHOWN else text[:_SHOWN] + '...'}"
    estimated = 1.0 - study.exact_share(exact_limit) if study.indexed_count else 0.0
    if estimated >= _ESTIMATED_SHARE:
        yield (
            f"{estimated:.0%} of the documents have more than {exact_limit} shingles and are compared by estimate; the "
            f"recall here is that of the candidates"
        )
