"""The rows of the table: the cheapest banding for each kind of shingles, threshold and minimum recall.

A banding qualifies by theory, P(t) >= minimum recall, t the threshold, or the least similarity of the rule of
containment where the profile has one; or on the sample: of at least a hundred pairs of
different sets it found so many that the lower 95 % bound of the share is at least the minimum recall, and so is the
share expected by theory. Cost is counted in bands, as in `lsh`, but with the false candidates of the sample instead of
those of Reuters-21578, and with the signature values beyond those of the profile:

    cost(b, r) = b + w F(b, r) + v max(b r - permutations, 0)

F(b, r) is the number of false candidates of a new document in an index of N documents. The cheapest banding that also
reaches the recall with the limits for storms (``capped``) is chosen: first with the limits of the profile, with some
more bands where these are enough, then with higher limits. A row that never reaches it says so. Of a sample too small
to show false candidates, signatures longer than those of the profile are tried only where these miss the recall.
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
from streamdedup.tuning.capped import Scales, StormLimits, found_at
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
#: Price of a signature value in bands: 0.02 microseconds for a document of 130 shingles (`minhash`), with a reserve for
#: longer ones.
PERMUTATION_WEIGHT: Final = 0.01
#: Factors of the profile's limits for storms that are tried, and bandings that are tried with each.
LIMIT_FACTORS: Final = (1, 4, 16)
MOST_TRIED: Final = 6
#: The limits are judged in an index of at most so many times the sample: beyond, candidates are not known well enough.
JUDGED_TIMES: Final = 50
#: Least chance that a band of a pair at the threshold agrees; with a smaller one a million bands would be needed.
_LEAST_AGREEMENT: Final = 1e-6


@dataclass(frozen=True, slots=True)
class Workload:
    """Size of the index, and the settings that all rows share.

    Attributes:
        documents: Documents in the index, in the steady state.
        collection: Documents of the collection from which the sample was drawn.
        share: Share of the collection in the sample, above 0, at most 1.
        permutations: Values of a signature in the profile.
        most_permutations: Most values of a signature to try, as many as the signatures of the studies have.
        limits: StormLimits for storms of the profile.
        basis: Where bands and rows must reach the recall.
    """

    documents: float
    collection: int
    share: float
    permutations: int
    most_permutations: int
    limits: StormLimits
    basis: Basis = "theory"

    def judged_documents(self, study: Study) -> float:
        """Return the size of the index for which the limits for storms are judged."""
        return min(self.documents, float(JUDGED_TIMES * study.documents_count))


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

    def false_at(self, documents: float) -> float:
        """Return the number of candidates below the threshold."""
        return self.at(documents) - self.matches.at(min(documents, self.collection))


class TuningRow(NamedTuple):
    """One row of the table.

    Attributes:
        options: Kind of shingles.
        threshold: Least similarity.
        min_recall: Minimum recall.
        basis: Where the recall is reached.
        banding: Bands and rows.
        recall: Recall of the candidates on the sample.
        limits: StormLimits for storms of the row.
        found: Chance to find a pair of the least similarity with these limits, in an index as large as the forecast.
        found_share: Share of the sample's pairs that is found with these limits; None without pairs.
        reached: ``found``, or on the sample ``found_share``, is at least the minimum recall.
        permutations: Values of a signature.
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
    limits: StormLimits
    found: float
    found_share: float | None
    reached: bool
    permutations: int
    candidates: Candidates
    prepare_us: float
    index_us: float

    @property
    def documents_per_s(self) -> float:
        """Documents a second of one daemon."""
        return 1e6 / (self.prepare_us + self.index_us + KAFKA_US)


class _Priced(NamedTuple):
    """A banding that reaches a recall without limits for storms, with its cost in bands and its candidates."""

    cost: float
    banding: Banding
    basis: Basis
    candidates: Candidates
    scales: Scales


class _Judged(NamedTuple):
    """A banding with limits for storms, judged as in ``TuningRow``."""

    priced: _Priced
    limits: StormLimits
    found: float
    found_share: float | None
    reached: bool


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
        progress: Called once for each of the ``workload.most_permutations`` numbers of rows.
    """
    searches = [_Search(study, workload, threshold, recall) for threshold in thresholds for recall in recalls]
    for rows in range(1, workload.most_permutations + 1):
        fewest = [(search, *found) for search in searches if (found := search.fewest_bands(rows))]
        if fewest:
            candidates = study.candidates(Banding(max(bands for _, bands, _ in fewest), rows))
        for search, bands, basis in fewest:
            search.priced.append(search.price(Banding(bands, rows), basis, candidates[bands]))
        progress(1)
    return [search.row() for search in searches if search.priced]


class _Search:
    """The search for the row of one threshold and minimum recall; ``priced`` are the bandings that reach the recall."""

    def __init__(self, study: Study, workload: Workload, threshold: float, min_recall: float) -> None:
        self._study = study
        self._workload = workload
        self._threshold = threshold
        self._min_recall = min_recall
        self._least = study.least_similarity(threshold)
        self.priced: list[_Priced] = []

    def fewest_bands(self, rows: int) -> tuple[int, Basis] | None:
        """Return the fewest bands of so many rows that reach the recall, and where they do; None if none do."""
        bands = _bands_for(self._least, self._min_recall, rows)
        most = self._workload.most_permutations // rows
        if self._workload.basis == "sample":
            for fewer in range(1, min(bands, most) + 1):
                recall = self._study.recall(Banding(fewer, rows), self._threshold)
                bounds = recall.edited.bounds()
                if bounds is None or recall.expected is None or recall.edited.total < LEAST_PAIRS:
                    break
                if min(bounds[0], recall.expected) >= self._min_recall:
                    return fewer, "sample"
        return (bands, "theory") if bands <= most else None

    def price(self, banding: Banding, basis: Basis, candidates: NDArray[np.float64]) -> _Priced:
        """Return a banding with its cost; ``candidates``: pair count of its candidates in the sample."""
        study, workload, documents = self._study, self._workload, self._study.documents_count
        share = workload.share * documents / max(study.sample_count, 1)
        related, matches = study.true_pairs(0.0, banding), study.true_pairs(self._threshold, banding)
        found = Candidates(
            unrelated=growth(np.maximum(candidates - related, 0.0), documents, share),
            related=growth(related, documents, share),
            matches=growth(matches, documents, share),
            collection=workload.collection,
        )
        false = found.false_at(workload.documents)
        if documents < LEAST_DOCUMENTS:
            false = max(false, false_candidates(banding, self._threshold, round(workload.documents)))
        cost = banding.bands + FALSE_CANDIDATE_WEIGHT * false
        cost += PERMUTATION_WEIGHT * max(banding.permutations - workload.permutations, 0)
        judged = workload.judged_documents(study)
        scales = Scales(
            unrelated=_scale(found.unrelated.at(judged), candidates[0] - related[0], documents),
            related=_scale(found.related.at(min(judged, workload.collection)), related[0], documents),
        )
        return _Priced(cost, banding, basis, found, scales)

    def row(self) -> TuningRow:
        """Return the row of the chosen banding."""
        study, workload, judged = self._study, self._workload, self._chosen()
        choice = judged.priced
        banding, documents = choice.banding, max(study.documents_count, 1)
        signing_s = study.sign_s * banding.permutations / workload.most_permutations
        compared = min(choice.candidates.at(workload.documents), judged.limits.max_candidates or math.inf)
        return TuningRow(
            options=study.options,
            threshold=self._threshold,
            min_recall=self._min_recall,
            basis=choice.basis,
            banding=banding,
            recall=study.recall(banding, self._threshold),
            limits=judged.limits,
            found=judged.found,
            found_share=judged.found_share,
            reached=judged.reached,
            permutations=max(workload.permutations, banding.permutations),
            candidates=choice.candidates,
            prepare_us=(study.shingle_s + signing_s) / documents * 1e6,
            index_us=banding.bands * BAND_US + compared * CANDIDATE_US,
        )

    def _chosen(self) -> _Judged:
        """Return the cheapest banding that reaches the recall with limits for storms; else the best one tried."""
        ordered = sorted(self.priced, key=lambda one: (one.cost, one.banding.permutations))
        cheapest = ordered[:MOST_TRIED]
        if self._study.documents_count < LEAST_DOCUMENTS:
            own = [one for one in ordered if one.banding.permutations <= self._workload.permutations]
            cheapest = [*own[:MOST_TRIED], *(one for one in cheapest if one not in own)]
        tried: list[_Judged] = []
        for factor in LIMIT_FACTORS:
            limits = self._workload.limits.times(factor)
            for one in cheapest:
                judged = self._judged(one, limits)
                tried.append(judged)
                if not judged.reached and judged.found > 0.0 and one.basis == "theory":
                    tried.append(judged := self._with_more_bands(judged))
                if judged.reached:
                    return judged
            if limits == (None, None):
                break
        return max(tried, key=lambda one: one.found)

    def _judged(self, one: _Priced, limits: StormLimits) -> _Judged:
        """Judge a banding with limits for storms."""
        shares = self._study.compared_shares(one.banding, one.scales, limits)
        found = found_at(self._least, one.banding, shares)
        found_share = self._study.found_share(one.banding, self._threshold, shares)
        judged = found if one.basis == "theory" else found_share or 0.0
        return _Judged(one, limits, found, found_share, judged >= self._min_recall)

    def _with_more_bands(self, judged: _Judged) -> _Judged:
        """Judge the same rows with as many bands more as outweigh the candidates that are not compared."""
        one, most = judged.priced, self._workload.most_permutations
        compared = judged.found / one.banding.probability(self._least)
        rows, needed = one.banding.rows, self._min_recall / compared
        if needed >= 1.0 or (bands := _bands_for(self._least, needed, rows)) > most // rows:
            return judged
        more = Banding(bands + 1, rows)
        if more.permutations > most:
            more = Banding(bands, rows)
        candidates = self._study.candidates(more)[more.bands]
        return self._judged(self.price(more, one.basis, candidates), judged.limits)


def _bands_for(threshold: float, recall: float, rows: int) -> int:
    """Return the fewest bands of so many rows with a chance of at least the recall at the threshold; recall below 1."""
    agree = threshold**rows
    if agree < _LEAST_AGREEMENT:
        return round(1 / _LEAST_AGREEMENT)
    bands = 1 if agree >= 1.0 else math.ceil(math.log1p(-recall) / math.log1p(-agree) - 1e-9)
    # The settings compare the probability with the recall exactly.
    return bands if Banding(bands, rows).probability(threshold) >= recall else bands + 1


def _scale(candidates: float, pairs: float, documents: int) -> float:
    """Return the candidates of a new document for each one of a document of the sample; 1 where none are known."""
    in_sample = 2 * pairs / max(documents, 1)
    return candidates / in_sample if 0.0 < in_sample < math.inf else 1.0
