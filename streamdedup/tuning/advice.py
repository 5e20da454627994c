"""The recommended row of ``tune``, its section of the settings file, and warnings about the sample and the forecast.

Called by ``comparison`` (``recommend``), ``results`` (``warnings``) and ``proposals`` (``tuned_profile``,
``settings_section``). "Documents" are those of a ``Study``: the texts that it uses.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np

from streamdedup.settings import Profile, profile_lines
from streamdedup.text.shingles import ShingleOptions
from streamdedup.tuning.rows import TuningRow
from streamdedup.tuning.study import Study

#: Characters of a word and the following space, roughly: so many shingles of characters begin in a word.
_WORD_CHARACTERS: Final = 6
_LEAST_PAIRS: Final = 100  # fewest pairs of different texts that say anything about recall
#: Least shares of the documents for a warning: without words, shorter than a shingle, compared by estimate.
_EMPTY_SHARE, _SHORT_SHARE, _ESTIMATED_SHARE = 0.01, 0.02, 0.10
_FAR: Final = 50  # a forecast for more than this many times the documents of the study has a warning
#: Attributes whose keys the printed section has even if they are at their default (``profile_lines``).
_ALWAYS: Final = ("shingle_unit", "threshold", "min_recall", "bands", "rows", "exact_limit", "retention_s")
#: Servers for a settings file that has none yet.
SERVERS: Final = """# Your servers:
[kafka]
bootstrap_servers = "localhost:9092"

[redis]
url = "redis://localhost:6379/0"
"""


class Recommendation(NamedTuple):
    row: TuningRow
    reason: str


def recommend(rows: Sequence[TuningRow], preferred: ShingleOptions) -> Recommendation:
    """Recommend the row of the profile's shingle kind, or of the kind that suits the shortest texts.

    The latter only if half of the texts are so short that a pair falls below the threshold when one word differs.
    ``rows``: at least one, one for each shingle kind that reaches the minimum recall, all with one threshold.
    """
    # The profile's kind is absent if the user named other kinds, or if it misses the recall.
    row = next((row for row in rows if row.options == preferred), rows[0])
    threshold, kind, words_needed = row.threshold, row.options.kind, _words_needed(row)
    if threshold >= 1.0:
        return Recommendation(row, f"{kind}: at a threshold of 1 any kind of shingles finds texts of the same words")
    median = row.study.median_words
    if median >= words_needed:
        return Recommendation(
            row,
            f"{kind}: half of the texts have {median:,} words or more; from {words_needed} words on, one changed word "
            f"leaves a pair above {threshold:g}",
        )
    shortest = min(rows, key=_words_needed)
    if _words_needed(shortest) == words_needed:
        return Recommendation(
            row,
            f"{kind}: no kind in this table suits shorter texts; half of the texts have {median:,} words or fewer, and "
            f"a pair that differs in one word needs {words_needed} to stay above {threshold:g}: think of a lower "
            "threshold",
        )
    return Recommendation(
        shortest,
        f"{shortest.options.kind}: half of the texts have {median:,} words or fewer; in {kind} shingles a pair that "
        f"differs in one word needs {words_needed} words to stay above {threshold:g}, in these "
        f"{_words_needed(shortest)}",
    )


def least_words(options: ShingleOptions, threshold: float) -> int:
    """Return the least word count with which a text stays at the threshold when one word changes.

    With s shingles, of which c change, the similarity is (s - c) / (s + c); it is at least t from
    s = c (1 + t) / (1 - t) on.

    - Shingles of k words: a word is part of c = k shingles; a text of n words has n - k + 1 shingles. With k = 3 and
      t = 0.8, s is 27 and n is 29.
    - Shingles of k characters: a word of w characters is part of c = w + k - 1 shingles; a text of n words has about
      w n shingles, because w includes the following space.
    """
    if threshold >= 1.0:
        return 0  # no word count is enough; ``recommend`` has a reason of its own for this threshold
    changed = options.size if options.unit == "word" else _WORD_CHARACTERS + options.size - 1
    shingles = changed * (1 + threshold) / (1 - threshold)
    if options.unit == "word":
        # The tolerance is for a result that rounding raises above a whole number.
        return math.ceil(shingles - 1e-9) + options.size - 1
    return math.ceil(shingles / _WORD_CHARACTERS)


def _words_needed(row: TuningRow) -> int:
    return least_words(row.options, row.threshold)


def tuned_profile(profile: Profile, row: TuningRow) -> Profile:
    """Return a profile with a row's settings; keys that the row's shingle kind would contradict have their defaults."""
    changes: dict[str, object] = {
        "shingle_unit": row.options.unit,
        "shingle_size": row.options.size,
        "threshold": row.threshold,
        "recall_from": row.recall_from,
        "min_recall": row.min_recall,
        "bands": row.banding.bands,
        "rows": row.banding.rows,
        "permutations": row.permutations,
        **row.limits._asdict(),  # bucket_cap and max_candidates
    }
    if row.options.unit != profile.shingle_unit:
        changes |= {"stop_words": "none", "keep_white_space": True}
    if (row.options.unit, row.options.size) != (profile.shingle_unit, profile.shingle_size):
        changes["stop_shingles"] = "none"
    return profile.model_copy(update=changes)


def settings_section(name: str, profile: Profile, row: TuningRow) -> str:
    """Return the section with a row's settings and all others that are not the default, to replace the old one."""
    return "\n".join([f"[profiles.{name}]", *profile_lines(tuned_profile(profile, row), _ALWAYS)])


def warnings(
    row: TuningRow, documents_kept: float, exact_limit: int | None, *, is_cut_by_time: bool = False
) -> Iterator[str]:
    """Yield warnings about the sample and the forecast, for the recommended row and an index of ``documents_kept``.

    ``exact_limit``: distinct shingles up to which a document is stored as a set; None for any number.
    ``is_cut_by_time``: whether there was no time for more documents.
    """
    yield from _text_warnings(row.study, exact_limit)
    if row.recall.edited.total < _LEAST_PAIRS:
        yield (
            f"the sample has {row.recall.edited.total} pairs of different texts from {row.recall_from:g} on: too few "
            "to check the recall by"
        )
    bucket_cap, largest = row.limits.bucket_cap, row.study.largest_bucket(row.banding)
    if bucket_cap is not None and largest >= bucket_cap:
        yield (
            f"{largest:,} documents of the sample share one bucket, which takes {bucket_cap} (bucket_cap): most pairs "
            "of such documents are missed, though never all of an exact copy's; raise bucket_cap, or leave boilerplate "
            "out with a file of streamdedup stop-shingles"
        )
    if documents_kept > _FAR * row.study.documents_count:
        yield (
            f"the forecast goes from {row.study.documents_count:,} documents to {documents_kept:,.0f}: numbers "
            "that grow with the index are right to the order of magnitude only; "
            + ("give it more --time" if is_cut_by_time else "take a larger sample")
        )


def _text_warnings(study: Study, exact_limit: int | None) -> Iterator[str]:
    count, size, word_counts = max(study.documents_count, 1), study.options.size, study.sets.token_counts
    empty = np.count_nonzero(word_counts == 0) / count
    if empty >= _EMPTY_SHARE:
        yield f"{empty:.1%} of the documents have no word: they are skipped"
    short = np.count_nonzero((word_counts > 0) & (word_counts < size)) / count
    if study.options.unit == "word" and short >= _SHORT_SHARE:
        yield f"{short:.1%} of the documents have fewer than {size} words and are one shingle as a whole"
    estimated = 1.0 - study.exact_share(exact_limit) if study.indexed_count else 0.0
    if estimated >= _ESTIMATED_SHARE:
        yield (
            f"{estimated:.0%} of the documents have more than {exact_limit} shingles and are compared by estimate; the "
            "recall here is that of the candidates"
        )
