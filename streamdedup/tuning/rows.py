"""The rows of the table of ``tune``: the cheapest banding for each shingle kind, threshold and minimum recall.

``comparison`` and ``meter`` call ``table_rows`` with a study. A ``TuningRow`` is a row of the table, not one of the
rows r of a band.

1. For each r, the fewest bands b are taken with which P(s), the chance to find a pair with the similarity s (``lsh``),
   is at least the minimum recall; s is ``recall_from`` of the profile, or the threshold where it is higher. For
   r = 4, s = 0.8 and a minimum recall of 0.99, b is 9.
2. These bandings are ordered by cost. It is counted in bands, as in ``lsh``, but with the false candidates of the
   sample instead of those of Reuters-21578, and with a price for signature values beyond the profile's:

       cost(b, r) = b + w F(b, r) + v max(b r - permutations, 0)

   F(b, r) is a new document's false candidate count in an index with N documents, w is ``FALSE_CANDIDATE_WEIGHT``, v is
   ``PERMUTATION_WEIGHT``.
3. The cheapest are judged with the limits for storms (``storm_limits``), which leave some candidates uncompared: first
   with the profile's limits, then with higher ones. A banding that misses the recall with them is judged once more with
   more bands.
4. The first banding that reaches the recall, with at most ``MOST_UNCOMPARED`` of the pairs uncompared, is chosen;
   ``reaches_recall`` is False if none reaches the recall.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamdedup.similarity.lsh import FALSE_CANDIDATE_WEIGHT, Banding, false_candidates
from streamdedup.text.shingles import ShingleOptions
from streamdedup.tuning.distinct import ALL_PAIRS, Growth, estimate_growth
from streamdedup.tuning.recall import Recall, found_share, measured_recall
from streamdedup.tuning.storm_limits import Scales, StormLimits, find_chance
from streamdedup.tuning.study import Study

#: Fewest documents that show false candidates. With fewer, a banding costs at least as much as on Reuters-21578.
LEAST_PRICED: Final = 2_000
#: Microseconds of look-up and insert for a band and for a candidate, Python and Redis together, and of Kafka for a
#: document in the daemon. Measured for docs/measurements.md and ``lsh`` on one machine, not on the user's.
BAND_US: Final = 5.3
CANDIDATE_US: Final = 7.0
KAFKA_US: Final = 44.0
#: Price of a signature value in bands: 0.02 microseconds for a document of 130 shingles (``minhash``), with a reserve
#: for longer documents.
PERMUTATION_WEIGHT: Final = 0.01
LIMIT_FACTORS: Final = (1, 4, 16, 64)  # factors of the profile's limits for storms that are tried
MOST_TRIED: Final = 6  # bandings that are tried with each factor
MOST_UNCOMPARED: Final = 0.005  # greatest share of the sample's pairs that the limits may leave uncompared
#: The limits are judged in an index of at most this many times the sample: beyond it, forecasts are coarse.
JUDGED_TIMES: Final = 50
#: Least similarity of related documents, or the row's threshold where lower. Related documents are versions of one
#: text, whose number does not grow with the index. The number of texts that share only boilerplate, which are mostly
#: less similar, grows with it.
RELATED_FROM: Final = 0.7
#: Least chance s^r that a pair of similarity s shares a band; with a smaller one a million bands would be needed.
_LEAST_AGREEMENT: Final = 1e-6


@dataclass(frozen=True, slots=True)
class Workload:
    """Index size, and the settings that all rows share; ``permutations``, ``limits``: those of the profile."""

    index_size: float  # documents in the steady state
    collection_size: int  # documents in the collection from which the sample was drawn
    sample_share: float  # share of the collection in the random sample
    permutations: int
    most_permutations: int  # most signature values to try, as many as the studies' signatures have
    limits: StormLimits
    recall_from: float  # least similarity for which bandings are chosen; a higher threshold takes its place

    def judged_index_size(self, study: Study) -> float:
        """Return the index size for which the limits for storms are judged: ``index_size``, or less."""
        return min(self.index_size, float(JUDGED_TIMES * study.documents_count))


class Candidates(NamedTuple):
    """The growth of a new document's candidates with the index.

    Only the collection shows how many versions a text has, so ``related`` and ``matches`` do not grow in an index
    larger than the collection.
    """

    unrelated: Growth  # below the similarity ``RELATED_FROM``, and below the row's threshold
    related: Growth  # all other candidates
    matches: Growth  # related candidates that are alerted at the row's threshold
    collection_size: int

    def expected(self, index_size: float) -> float:
        return self.unrelated.expected(index_size) + self.related.expected(min(index_size, self.collection_size))

    def expected_false(self, index_size: float) -> float:
        return self.expected(index_size) - self.matches.expected(min(index_size, self.collection_size))


class TuningRow(NamedTuple):
    """One row of the table: the banding and the limits for a threshold and a minimum recall, with quality and cost."""

    study: Study
    threshold: float
    recall_from: float  # similarity for which the banding is chosen
    min_recall: float
    banding: Banding
    recall: Recall  # of the bands alone, on the sample's pairs from ``recall_from`` on, without the limits for storms
    limits: StormLimits
    #: Chance to find a pair that has just the similarity ``recall_from``: to have it as a candidate, and to compare it
    #: in spite of ``limits`` in an index of ``Workload.judged_index_size``.
    chance: float
    found_share: float | None  # as ``recall.measured``, of candidates that are compared in spite of ``limits``
    permutations: int  # signature values: the profile's, or more if the banding needs more
    candidates: Candidates
    prepare_us: float  # microseconds of one core for a document's shingles and signature, measured on this machine
    index_us: float  # microseconds for a document's buckets and comparisons, from constants

    @property
    def options(self) -> ShingleOptions:
        return self.study.options

    @property
    def reaches_recall(self) -> bool:
        return self.chance >= self.min_recall

    @property
    def uncompared_share(self) -> float:
        """Share of the sample's pairs that are candidates and, because of the limits, not compared."""
        if self.found_share is None or self.recall.measured is None:  # without pairs both are None
            return 0.0
        return self.recall.measured - self.found_share

    @property
    def documents_per_s(self) -> float:
        return 1e6 / (self.prepare_us + self.index_us + KAFKA_US)


class _PricedBanding(NamedTuple):
    cost: float
    banding: Banding
    candidates: Candidates
    scales: Scales


def table_rows(
    study: Study,
    workload: Workload,
    thresholds: Sequence[float],
    recalls: Sequence[float],
    progress: Callable[[int], None] = lambda _: None,
) -> list[TuningRow]:
    """Return a row for each threshold and minimum recall that any banding reaches without limits for storms.

    No threshold is below the study's floor. ``progress`` is called with 1 for each row count r from 2 on.
    """
    searches = [_Search(study, workload, threshold, recall) for threshold in thresholds for recall in recalls]
    for rows_per_band in range(2, workload.most_permutations + 1):
        reaching = [(search, bands) for search in searches if (bands := search.fewest_bands(rows_per_band))]
        if reaching:
            # Counted once for the most bands: the result has a count for each smaller number of bands.
            counts = study.candidate_counts(Banding(max(bands for _, bands in reaching), rows_per_band))
        for search, bands in reaching:
            search.add(Banding(bands, rows_per_band), counts[bands])
        progress(1)
    return [row for search in searches if (row := search.best_row()) is not None]


class _Search:
    """The search for the row at one threshold and minimum recall."""

    def __init__(self, study: Study, workload: Workload, threshold: float, min_recall: float) -> None:
        self._study = study
        self._workload = workload
        self._threshold = threshold
        self._min_recall = min_recall
        self._recall_from = max(threshold, workload.recall_from)
        # At most the threshold, so that all alerted pairs are related. A study lacks the pairs below its floor.
        self._related_from = min(RELATED_FROM, threshold)
        self._bandings: list[_PricedBanding] = []

    def fewest_bands(self, rows_per_band: int) -> int | None:
        """Return the fewest bands that reach the recall; None if the signature is too short."""
        bands = _bands_needed(self._recall_from, self._min_recall, rows_per_band)
        return bands if bands <= self._workload.most_permutations // rows_per_band else None

    def add(self, banding: Banding, pairs: NDArray[np.float64]) -> None:
        """Add a banding that reaches the recall; ``pairs``: its candidates in the sample, a pair count."""
        self._bandings.append(self._priced(banding, pairs))

    def _priced(self, banding: Banding, pairs: NDArray[np.float64]) -> _PricedBanding:
        study, workload, document_count = self._study, self._workload, self._study.documents_count
        # A study of a part of the sample uses runs of consecutive texts, which keep their neighbours in time.
        share = workload.sample_share
        related = study.alerted_candidates(self._related_from, banding)
        matches = study.alerted_candidates(self._threshold, banding)
        candidates = Candidates(
            # ``related`` is estimated if the study keeps only a part of the pairs, and may exceed ``pairs``.
            unrelated=estimate_growth(np.maximum(pairs - related, 0.0), document_count, share),
            related=estimate_growth(related, document_count, share),
            matches=estimate_growth(matches, document_count, share),
            collection_size=workload.collection_size,
        )
        false_count = candidates.expected_false(workload.index_size)
        if document_count < LEAST_PRICED:
            false_count = max(false_count, false_candidates(banding, self._threshold, round(workload.index_size)))
        cost = banding.bands + FALSE_CANDIDATE_WEIGHT * false_count
        cost += PERMUTATION_WEIGHT * max(banding.permutations - workload.permutations, 0)
        judged_size = workload.judged_index_size(study)
        judged_unrelated = candidates.unrelated.expected(judged_size)
        judged_related = candidates.related.expected(min(judged_size, workload.collection_size))
        scales = Scales(
            unrelated=_scale(judged_unrelated, pairs[ALL_PAIRS] - related[ALL_PAIRS], document_count),
            related=_scale(judged_related, related[ALL_PAIRS], document_count),
        )
        return _PricedBanding(cost, banding, candidates, scales)

    def best_row(self) -> TuningRow | None:
        """Return the row of the first banding that reaches the recall and leaves few pairs uncompared (step 4).

        Without such a banding: of the rows that reach the recall, the one with the fewest uncompared pairs. If no row
        reaches the recall: the one with the best chance. None without bandings.
        """
        if not self._bandings:
            return None
        tried: list[TuningRow] = []
        for factor in LIMIT_FACTORS:
            limits = self._workload.limits.times(factor)
            for priced in self._bandings_to_try():
                row = self._row_with_limits(priced, limits)
                tried.append(row)
                # More bands do not help where no candidate is compared, because there are too many to list.
                if not row.reaches_recall and row.chance > 0.0:
                    row = self._with_more_bands(row)
                    tried.append(row)
                if row.reaches_recall and row.uncompared_share <= MOST_UNCOMPARED:
                    return row
            if limits == StormLimits(None, None):
                break  # a factor changes nothing
        reaching = [row for row in tried if row.reaches_recall]
        if reaching:
            return min(reaching, key=lambda row: row.uncompared_share)
        return max(tried, key=lambda row: row.chance)

    def _bandings_to_try(self) -> list[_PricedBanding]:
        """Return the cheapest bandings; of a small sample, first those that fit the profile's signature."""
        ordered = sorted(self._bandings, key=lambda priced: (priced.cost, priced.banding.permutations))
        cheapest = ordered[:MOST_TRIED]
        if self._study.documents_count >= LEAST_PRICED:
            return cheapest
        # A small sample does not justify a longer signature.
        short = [priced for priced in ordered if priced.banding.permutations <= self._workload.permutations]
        return [*short[:MOST_TRIED], *(priced for priced in cheapest if priced not in short)]

    def _row_with_limits(self, priced: _PricedBanding, limits: StormLimits) -> TuningRow:
        study, workload, banding = self._study, self._workload, priced.banding
        shares = study.compared_shares(banding, priced.scales, limits, self._related_from)
        # ``sign_s`` is the time for ``most_permutations`` signature values.
        signing_s = study.sign_s * banding.permutations / workload.most_permutations
        most_compared = math.inf if limits.max_candidates is None else limits.max_candidates
        compared = min(priced.candidates.expected(workload.index_size), most_compared)
        return TuningRow(
            study=study,
            threshold=self._threshold,
            recall_from=self._recall_from,
            min_recall=self._min_recall,
            banding=banding,
            recall=measured_recall(study, banding, self._recall_from),
            limits=limits,
            chance=find_chance(self._recall_from, banding, shares),
            found_share=found_share(study, banding, self._recall_from, shares),
            permutations=max(workload.permutations, banding.permutations),
            candidates=priced.candidates,
            prepare_us=(study.shingle_s + signing_s) / max(study.documents_count, 1) * 1e6,
            index_us=banding.bands * BAND_US + compared * CANDIDATE_US,
        )

    def _with_more_bands(self, row: TuningRow) -> TuningRow:
        """Judge a row with more bands, which make up for candidates that are not compared, or return it unchanged."""
        rows_per_band = row.banding.rows
        most_bands = self._workload.most_permutations // rows_per_band
        compared_share = row.chance / row.banding.probability(self._recall_from)
        candidate_recall = self._min_recall / compared_share  # this share of pairs must become candidates
        if candidate_recall >= 1.0:
            return row
        bands = _bands_needed(self._recall_from, candidate_recall, rows_per_band)
        if bands > most_bands:
            return row
        # One band in reserve, because more bands have more candidates, of which a smaller share is compared.
        banding = Banding(min(bands + 1, most_bands), rows_per_band)
        pairs = self._study.candidate_counts(banding)[banding.bands]
        return self._row_with_limits(self._priced(banding, pairs), row.limits)


def _bands_needed(similarity: float, recall: float, rows_per_band: int) -> int:
    """Return the fewest bands that find pairs of a similarity with the chance ``recall``."""
    agree = similarity**rows_per_band
    if agree >= 1.0:
        return 1
    if agree < _LEAST_AGREEMENT or recall >= 1.0:
        return round(1 / _LEAST_AGREEMENT)  # more than any signature has
    # Solves 1 - (1 - agree)^bands >= recall; the tolerance is for a quotient that should be a whole number.
    bands = max(math.ceil(math.log1p(-recall) / math.log1p(-agree) - 1e-9), 1)
    # The settings compare the probability with the recall exactly.
    return bands if Banding(bands, rows_per_band).probability(similarity) >= recall else bands + 1


def _scale(candidates: float, pairs: float, document_count: int) -> float:
    """Return ``candidates``, of a document in the index, as a multiple of a document's candidates in the sample."""
    in_sample = 2 * pairs / max(document_count, 1)  # a pair is a candidate of both its documents
    # 1 where the sample has no candidate pairs, too many to list, or by an estimate fewer than none.
    return candidates / in_sample if 0.0 < in_sample < math.inf else 1.0
