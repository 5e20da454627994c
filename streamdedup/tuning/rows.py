"""The rows of the table: the cheapest banding for each kind of shingles, threshold and minimum recall.

A banding qualifies by theory, P(threshold) >= minimum recall, or on the sample: of at least a hundred pairs of
different sets it found so many that the lower 95 % bound of the share is at least the minimum recall, and so is the
share expected by theory. Cost is counted in bands, as in `lsh`, but with the false candidates of the sample instead of
those of Reuters-21578:

    cost(b, r) = b + w F(b, r),    F(b, r) = false candidates of a new document in an index of N documents
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamdedup.similarity.lsh import FALSE_CANDIDATE_WEIGHT, Banding, false_candidates
from streamdedup.text.shingles import ShingleOptions
from streamdedup.tuning.candidates import Growth, growth
from streamdedup.tuning.study import Recall, Study

#: Where the minimum recall must be reached.
Basis = Literal["theory", "sample"]

#: Fewest pairs of different sets with which the sample decides on a recall.
LEAST_PAIRS: Final = 100
#: Fewest documents that show false candidates. With fewer, a banding costs at least as much as on Reuters-21578.
LEAST_DOCUMENTS: Final = 2_000
#: Microseconds of look-up and insert for a band, Python and Redis together, and for a candidate; Kafka's part of a
#: document in the daemon: docs/performance.md and `lsh`, measured on one machine and not on this one.
BAND_US: Final = 5.3
CANDIDATE_US: Final = 7.0
KAFKA_US: Final = 44.0


@dataclass(frozen=True, slots=True)
class Workload:
    """Size of the index, and the settings that all rows share.

    Attributes:
        documents: Documents in the index, in the steady state.
        collection: Documents of the collection from which the sample was drawn.
        share: Share of the collection in the sample, above 0, at most 1.
        permutations: Values of a signature.
        max_candidates: Most candidates that a document is compared with; None for no limit.
        basis: Where bands and rows must reach the recall.
    """

    documents: float
    collection: int
    share: float
    permutations: int
    max_candidates: int | None
    basis: Basis = "theory"


class Candidates(NamedTuple):
    """Candidates of a new document.

    How many documents resemble one is known within the collection only: ``related`` and ``matches`` do not grow beyond.

    Attributes:
        unrelated: Those below the lowest threshold of the table.
        related: The others.
        matches: Those of the related ones that reach the row's threshold.
        collection: Documents of the collection.
    """

    unrelated: Growth
    related: Growth
    matches: Growth
    collection: int

    def at(self, documents: float) -> float:
        """Return the number of candidates in an index of so many documents."""
        return self.unrelated.at(documents) + self.related.at(min(documents, self.collection))

    def matches_at(self, documents: float) -> float:
        """Return the number of candidates from the threshold on."""
        return self.matches.at(min(documents, self.collection))

    def false_at(self, documents: float) -> float:
        """Return the number of candidates below the threshold."""
        return self.at(documents) - self.matches_at(documents)


class TuningRow(NamedTuple):
    """One row of the table.

    Attributes:
        options: Kind of shingles.
        threshold: Least similarity.
        min_recall: Minimum recall.
        basis: Where the recall is reached.
        banding: Bands and rows.
        recall: Recall on the sample.
        candidates: Candidates of a new document.
        prepare_us: Microseconds of one core for shingles and signature of a document, measured on this machine.
        index_us: Microseconds for buckets and comparisons of a document; from constants unless measured.
    """

    options: ShingleOptions
    threshold: float
    min_recall: float
    basis: Basis
    banding: Banding
    recall: Recall
    candidates: Candidates
    prepare_us: float
    index_us: float

    @property
    def documents_per_s(self) -> float:
        """Documents a second of one daemon."""
        return 1e6 / (self.prepare_us + self.index_us + KAFKA_US)


class _Priced(NamedTuple):
    """A banding that reaches a recall, with its cost in bands."""

    cost: float
    banding: Banding
    basis: Basis
    candidates: Candidates


def rows_of(
    study: Study,
    workload: Workload,
    thresholds: Sequence[float],
    recalls: Sequence[float],
    progress: Callable[[int], None] = lambda _: None,
) -> list[TuningRow]:
    """Return a row for each threshold and minimum recall that any banding reaches.

    Args:
        study: The sample with one kind of shingles.
        workload: Size of the index.
        thresholds: Each above 0, at most 1, none below the floor of the study.
        recalls: Each above 0, below 1.
        progress: Called once for each of the ``workload.permutations`` numbers of rows.
    """
    best: dict[tuple[float, float], _Priced] = {}
    wanted = [(threshold, recall) for threshold in thresholds for recall in recalls]
    for rows in range(1, workload.permutations + 1):
        fewest = {key: found for key in wanted if (found := _fewest_bands(study, workload, *key, rows))}
        if fewest:
            candidates = study.candidates(Banding(max(bands for bands, _ in fewest.values()), rows))
        for key, (bands, basis) in fewest.items():
            choice = _priced(study, workload, Banding(bands, rows), basis, key[0], candidates[bands])
            best[key] = min(best.get(key, choice), choice, key=lambda one: (one.cost, one.banding.permutations))
        progress(1)
    return [_row(study, workload, *key, best[key]) for key in wanted if key in best]


def _fewest_bands(
    study: Study, workload: Workload, threshold: float, min_recall: float, rows: int
) -> tuple[int, Basis] | None:
    """Return the fewest bands of so many rows that reach the recall, and where they do; None if none do."""
    agree = threshold**rows
    bands = 1 if agree >= 1.0 else math.ceil(math.log1p(-min_recall) / math.log1p(-agree) - 1e-9)
    most = workload.permutations // rows
    if workload.basis == "sample":
        for fewer in range(1, min(bands, most) + 1):
            recall = study.recall(Banding(fewer, rows), threshold)
            bounds = recall.edited.bounds()
            if bounds is None or recall.expected is None or recall.edited.total < LEAST_PAIRS:
                break
            if min(bounds[0], recall.expected) >= min_recall:
                return fewer, "sample"
    return (bands, "theory") if bands <= most else None


def _priced(
    study: Study,
    workload: Workload,
    banding: Banding,
    basis: Basis,
    threshold: float,
    candidates: NDArray[np.float64],
) -> _Priced:
    """Return a banding with its cost; ``candidates``: pair count of its candidates in the sample."""
    share = workload.share * study.documents_count / max(study.sample_count, 1)
    related, matches = study.true_pairs(0.0, banding), study.true_pairs(threshold, banding)
    found = Candidates(
        unrelated=growth(np.maximum(candidates - related, 0.0), study.documents_count, share),
        related=growth(related, study.documents_count, share),
        matches=growth(matches, study.documents_count, share),
        collection=workload.collection,
    )
    false = found.false_at(workload.documents)
    if study.documents_count < LEAST_DOCUMENTS:
        false = max(false, false_candidates(banding, threshold, round(workload.documents)))
    return _Priced(banding.bands + FALSE_CANDIDATE_WEIGHT * false, banding, basis, found)


def _row(study: Study, workload: Workload, threshold: float, min_recall: float, choice: _Priced) -> TuningRow:
    banding, documents = choice.banding, max(study.documents_count, 1)
    signing_s = study.sign_s * banding.permutations / workload.permutations
    compared = min(choice.candidates.at(workload.documents), workload.max_candidates or math.inf)
    return TuningRow(
        options=study.options,
        threshold=threshold,
        min_recall=min_recall,
        basis=choice.basis,
        banding=banding,
        recall=study.recall(banding, threshold),
        candidates=choice.candidates,
        prepare_us=(study.shingle_s + signing_s) / documents * 1e6,
        index_us=banding.bands * BAND_US + compared * CANDIDATE_US,
    )
