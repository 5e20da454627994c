"""What settings bring and cost on a sample: one row for each kind of shingles, threshold and minimum recall.

For each row the cheapest bands and rows that reach the recall, either by theory (P(threshold), so for the pairs exactly
at the threshold) or on the sample (of its pairs from the threshold on). Cost is counted in bands, as in `lsh`, but with
the false candidates of the sample instead of those of Reuters:

    cost(b, r) = b + w F(b, r),    F(b, r) = false candidates of a new document in an index of N, by `distinct`

On the sample a banding reaches the recall if it found so many of the pairs of different sets, of which there are
at least a hundred, that its lower bound with 95 % lies there (`rates`), and theory expects as many of them.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from streamdedup.similarity.lsh import FALSE_CANDIDATE_WEIGHT, Banding, false_candidates
from streamdedup.text.shingles import ShingleOptions
from streamdedup.tuning.distinct import Growth, Weights, growth
from streamdedup.tuning.meetings import Meetings
from streamdedup.tuning.study import Recall, Study

Basis = Literal["theory", "sample"]

#: Pairs of different sets that the recall on a sample needs, at least, to decide anything.
LEAST_PAIRS: Final = 100
#: Documents that it takes to see who meets by chance; with fewer, a banding costs as much as among Reuters articles at
#: least.
LEAST_DOCUMENTS: Final = 2_000
#: Microseconds of look-up and insert for a band, Python and Redis together, and for a candidate; Kafka's part of a
#: document in the daemon: docs/performance.md and `lsh`, measured on one machine and not on this one.
BAND_US: Final = 5.3
CANDIDATE_US: Final = 7.0
KAFKA_US: Final = 44.0


@dataclass(frozen=True, slots=True)
class Demand:
    """Size of the index, and the settings that all rows have in common.

    Attributes:
        documents: Documents in the index, in its steady state.
        collection: Documents of the collection that the sample was taken from.
        share: Part of the collection that is in the sample, above 0, at most 1.
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


class Speed(NamedTuple):
    """Microseconds of one core for a document.

    Attributes:
        prepare_us: Shingles and signature, measured on this machine.
        index_us: Buckets and comparisons; by constants unless it was measured.
        kafka_us: Reading, writing and committing; a constant.
    """

    prepare_us: float
    index_us: float
    kafka_us: float = KAFKA_US

    @property
    def documents_per_s(self) -> float:
        """What one daemon does in a second."""
        return 1e6 / (self.prepare_us + self.index_us + self.kafka_us)


class Row(NamedTuple):
    """One row of the table.

    Attributes:
        options: Kind of shingles.
        threshold: Least similarity.
        min_recall: Recall that was asked for.
        basis: Where it is reached.
        banding: Bands and rows.
        probability: P(threshold), of a pair exactly at the threshold.
        recall: Measured on the sample, and expected there.
        unrelated: Candidates of a new document whose similarity lies below the lowest threshold of the table.
        related: The others.
        matches: Those of the related ones that reach the row's threshold.
        largest_bucket: Documents of the sample that have the key of the fullest bucket.
        speed: Of one daemon.
    """

    options: ShingleOptions
    threshold: float
    min_recall: float
    basis: Basis
    banding: Banding
    probability: float
    recall: Recall
    unrelated: Growth
    related: Growth
    matches: Growth
    largest_bucket: int
    speed: Speed

    def candidates_at(self, documents: float, collection: int) -> float:
        """Return how many candidates a new document meets in an index of so many documents; see ``_met``."""
        return _met(self.unrelated, self.related, documents, collection)

    def false_candidates_at(self, documents: float, collection: int) -> float:
        """Return how many of them lie below the threshold."""
        return self.candidates_at(documents, collection) - self.matches.at(min(documents, collection))


class _Priced(NamedTuple):
    cost: float
    banding: Banding
    basis: Basis


def rows_of(
    study: Study,
    demand: Demand,
    thresholds: Sequence[float],
    recalls: Sequence[float],
    progress: Callable[[int], None] = lambda _: None,
) -> Iterator[Row]:
    """Yield a row for each threshold and minimum recall that any bands reach.

    Args:
        study: The sample with one kind of shingles.
        demand: What is to be held.
        thresholds: Each above 0, at most 1, none below the floor of the study.
        recalls: Each above 0, below 1.
        progress: Told of each row, once.
    """
    wanted = [(threshold, recall) for threshold in thresholds for recall in recalls]
    reaching = {key: dict(_reaching(study, demand, *key)) for key in wanted}
    most: dict[int, int] = {}
    for banding in (banding for found in reaching.values() for banding in found):
        most[banding.rows] = max(banding.bands, most.get(banding.rows, 0))
    for (threshold, min_recall), found in reaching.items():
        if found:
            priced = [
                _Priced(_cost(study, demand, banding, threshold, most[banding.rows]), banding, basis)
                for banding, basis in found.items()
            ]
            best = min(priced, key=lambda one: (one.cost, one.banding.permutations))
            yield _row(
                study, demand, threshold, min_recall, best, study.meetings(best.banding.rows, most[best.banding.rows])
            )
        progress(1)


def _reaching(study: Study, demand: Demand, threshold: float, min_recall: float) -> Iterator[tuple[Banding, Basis]]:
    """Yield for each number of rows the fewest bands that reach the recall, and where they do."""
    for rows in range(1, demand.permutations + 1):
        agree = threshold**rows
        least = 1 if agree >= 1.0 else math.ceil(math.log1p(-min_recall) / math.log1p(-agree) - 1e-9)
        fits = least * rows <= demand.permutations
        basis: Basis = "theory"
        if demand.basis == "sample":
            fewer = _fewest_on_sample(study, threshold, min_recall, rows, min(least, demand.permutations // rows))
            if fewer is not None:
                least, fits, basis = fewer, True, "sample"
        if fits:
            yield Banding(least, rows), basis


def _fewest_on_sample(study: Study, threshold: float, min_recall: float, rows: int, most: int) -> int | None:
    for bands in range(1, most + 1):
        recall = study.recall(Banding(bands, rows), threshold)
        bounds = recall.edited.bounds()
        if bounds is None or recall.edited.total < LEAST_PAIRS:
            return None
        assert recall.expected is not None
        if bounds[0] >= min_recall and recall.expected >= min_recall:
            return bands
    return None


def _cost(study: Study, demand: Demand, banding: Banding, threshold: float, most_bands: int) -> float:
    """Return what a banding costs, in bands."""
    unrelated, related = _candidates(study, demand, banding, study.meetings(banding.rows, most_bands))
    matches = _grows(study, demand, study.true_pairs(threshold, banding))
    met = _met(unrelated, related, demand.documents, demand.collection)
    false = met - matches.at(min(demand.documents, demand.collection))
    if study.documents_count < LEAST_DOCUMENTS:
        false = max(false, false_candidates(banding, threshold, round(demand.documents)))
    return banding.bands + FALSE_CANDIDATE_WEIGHT * false


def _grows(study: Study, demand: Demand, pairs: Weights) -> Growth:
    return growth(pairs, study.documents_count, demand.share * study.documents_count / max(study.sample_count, 1))


def _candidates(study: Study, demand: Demand, banding: Banding, meetings: Meetings) -> tuple[Growth, Growth]:
    """Return the candidates that have nothing to do with a document, and those that resemble it."""
    met, related = meetings.met(banding.bands), study.true_pairs(0.0, banding)
    unrelated = _grows(study, demand, met - related) if math.isfinite(met.all) else Growth(math.inf, 0.0)
    return unrelated, _grows(study, demand, related)


def _met(unrelated: Growth, related: Growth, documents: float, collection: int) -> float:
    """Return how many candidates a document meets.

    Chance meetings grow with the index. How many documents resemble one is known within the collection only: beyond,
    it is taken that other documents bring as many of their own.
    """
    return unrelated.at(documents) + related.at(min(documents, collection))


def _row(study: Study, demand: Demand, threshold: float, min_recall: float, best: _Priced, meetings: Meetings) -> Row:
    unrelated, related = _candidates(study, demand, best.banding, meetings)
    met = _met(unrelated, related, demand.documents, demand.collection)
    documents = max(study.documents_count, 1)
    signing = study.sign_s * best.banding.permutations / demand.permutations
    return Row(
        options=study.options,
        threshold=threshold,
        min_recall=min_recall,
        basis=best.basis,
        banding=best.banding,
        probability=best.banding.probability(threshold),
        recall=study.recall(best.banding, threshold),
        unrelated=unrelated,
        related=related,
        matches=_grows(study, demand, study.true_pairs(threshold, best.banding)),
        largest_bucket=int(meetings.largest[best.banding.bands]),
        speed=Speed(
            (study.shingle_s + signing) / documents * 1e6,
            best.banding.bands * BAND_US + min(met, demand.max_candidates or met) * CANDIDATE_US,
        ),
    )
