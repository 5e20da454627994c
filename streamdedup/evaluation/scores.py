"""Recall and precision of the pairs that a trial found, against a truth: the result of ``streamdedup evaluate``."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamdedup.corpora import shown_name
from streamdedup.detection.model import DetectorOptions
from streamdedup.detection.suppression import Suppression, source_key
from streamdedup.evaluation.misses import Miss, miss_reasons, near_duplicates
from streamdedup.evaluation.pairs import Pairs, ShingleSets, similarities
from streamdedup.evaluation.rates import Rate
from streamdedup.evaluation.trial import DetectorRun, FoundPairs

#: Similarity from which pairs by containment are part of a computed truth: bands find few pairs below it.
LEAST_CONTAINED_SIMILARITY: Final = 0.5
#: Examples of missed pairs for each reason.
_EXAMPLES: Final = 5


class MissedPair(NamedTuple):
    left: int
    right: int
    similarity: float
    reason: Miss


class Scores(NamedTuple):
    """Scores of a trial; *promised* are the pairs that the trial should have found (``score``).

    ``containment_recall`` and ``containment_precision`` are of pairs below the threshold. ``missed`` counts the missed
    pairs by reason, ``examples`` has the most similar ones of each reason. ``documents_without_alert`` is the share of
    documents of which no promised pair was found, among the documents that have one.
    """

    recall: Rate
    precision: Rate
    containment_recall: Rate
    containment_precision: Rate
    missed: Mapping[Miss, int]
    examples: Sequence[MissedPair]
    documents_without_alert: Rate


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The result of ``streamdedup evaluate``.

    ``truth_file`` is None for an exact join. The scores leave out ``unknown_pairs_count`` pairs of the file with a
    document that was not read, and ``suppressed_count`` true pairs that rules of the profile suppress.
    """

    options: DetectorOptions
    ids: Sequence[str]
    run: DetectorRun
    found_pairs: FoundPairs
    truth_file: Path | None
    truth_seconds: float
    unknown_pairs_count: int
    suppressed_count: int
    scores: Scores

    @property
    def truth(self) -> str:
        return "all pairs, by an exact join" if self.truth_file is None else shown_name(str(self.truth_file))

    @property
    def documents_per_second(self) -> float | None:
        return len(self.ids) / self.run.seconds if self.ids and self.run.seconds else None

    @property
    def candidates_per_document(self) -> float | None:
        return self.run.candidates_count / len(self.ids) if self.ids else None


def least_joined_similarity(options: DetectorOptions) -> float:
    return options.threshold if options.containment is None else min(options.threshold, LEAST_CONTAINED_SIMILARITY)


def without_suppressed(
    pairs: Pairs, suppression: Suppression | None, sources: Sequence[str | None], sets: ShingleSets
) -> Pairs:
    if suppression is None:
        return pairs
    # Stop shingles do not count for ``min_shingles``, but the set of a document that has nothing else keeps them.
    shingle_counts = np.where(sets.stop_only, 0, sets.sizes)
    is_short = np.minimum(shingle_counts[pairs.left], shingle_counts[pairs.right]) < suppression.min_shingles
    keys = [source_key(source) if source else None for source in sources]  # an empty source counts as none
    source_rule = cache(suppression.source_rule)  # there are few sources and many pairs
    ends = zip(pairs.left.tolist(), pairs.right.tolist(), strict=True)
    is_ignored = np.array([source_rule(keys[a], keys[b]) is not None for a, b in ends], np.bool_)
    return pairs.where(~(is_short | is_ignored))


def score(
    expected: Pairs,
    found_pairs: FoundPairs,
    options: DetectorOptions,
    sets: ShingleSets,
    ids: list[str],
    *,
    is_computed: bool,
) -> Scores:
    """Compare the pairs that a trial found with the true pairs ``expected``; ``sets`` and ``ids``: by row.

    - If ``is_computed``, the true pairs are from the exact join: those from ``recall_from`` on are promised, and a
      found pair is right if it is a near-duplicate by its exact similarity.
    - Else they are from a file: all are promised, and a found pair is right if it is in the file.
    """
    reported = found_pairs.pairs
    expected_found = np.isin(_codes(expected, ids), _codes(reported, ids))
    every = np.ones(len(expected_found), np.bool_)
    is_promised = expected.similarities >= options.recall_from if is_computed else every
    promised, promise_kept = expected.where(is_promised), expected_found[is_promised]
    missed = expected.where(~expected_found)
    reasons = miss_reasons(missed, options, sets, found_pairs)
    reason_counts = Counter(reasons)
    if is_computed:
        recomputed = reported._replace(similarities=similarities(sets, reported.left, reported.right, options.measure))
        reported_right = near_duplicates(recomputed, options, sets)
    else:
        reported_right = np.isin(_codes(reported, ids), _codes(expected, ids))
    return Scores(
        recall=Rate.of_items(promise_kept),
        precision=Rate.of_items(reported_right),
        containment_recall=Rate.of_items(expected_found[expected.similarities < options.threshold]),
        containment_precision=Rate.of_items(reported_right[reported.similarities < options.threshold]),
        missed={reason: reason_counts[reason] for reason in Miss if reason_counts[reason]},
        examples=_examples(missed, reasons),
        documents_without_alert=_documents_without_alert(promised, promise_kept, len(ids)),
    )


def _documents_without_alert(pairs: Pairs, is_found: NDArray[np.bool_], document_count: int) -> Rate:
    ends = np.stack((pairs.left, pairs.right))
    totals = np.bincount(ends.reshape(-1), minlength=document_count)
    missed = np.bincount(ends[:, ~is_found].reshape(-1), minlength=document_count)
    return Rate.of_items((missed == totals)[totals > 0])


def _codes(pairs: Pairs, ids: Sequence[str]) -> NDArray[np.int64]:
    """Return one number for each pair, by which pairs of two lists are compared."""
    return pairs.left * len(ids) + pairs.right


def _examples(missed: Pairs, reasons: Sequence[Miss]) -> list[MissedPair]:
    examples: list[MissedPair] = []
    counts: Counter[Miss] = Counter()
    for row in np.argsort(-missed.similarities, kind="stable").tolist():
        counts[reasons[row]] += 1
        if counts[reasons[row]] <= _EXAMPLES:
            pair = int(missed.left[row]), int(missed.right[row]), float(missed.similarities[row])
            examples.append(MissedPair(*pair, reasons[row]))
    return examples
