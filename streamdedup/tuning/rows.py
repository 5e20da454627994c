"""The rows of the table: the cheapest banding for each shingle kind, threshold and minimum recall.

A banding qualifies if P(t) is at least the minimum recall; t is the threshold, or the least similarity of the
containment rule where the profile has one. Cost is counted in bands, as in `lsh`, but with the false candidates of the
sample instead of those of Reuters-21578, and with the signature values beyond the profile's:

    cost(b, r) = b + w F(b, r) + v max(b r - permutations, 0)

F(b, r) is a new document's false candidate count in an index with N documents, w is ``FALSE_CANDIDATE_WEIGHT``, v is
``PERMUTATION_WEIGHT``. The limits for storms (``capped``) hide some candidates, so the cheapest bandings are judged
with these limits: first with the profile's, then with higher ones. A banding that misses the recall is judged once more
with more bands. The first banding that reaches the recall, and whose limits hide at most ``MOST_HIDDEN`` of the pairs,
is chosen; ``reached`` is False where none reaches the recall. Where a sample is too small to show false candidates,
bandings within the profile's signature length are tried before longer ones.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamdedup.similarity.lsh import FALSE_CANDIDATE_WEIGHT, Banding, false_candidates
from streamdedup.text.shingles import ShingleOptions
from streamdedup.tuning.candidates import Growth, growth
from streamdedup.tuning.capped import Scales, StormLimits, found_at
from streamdedup.tuning.study import Recall, Study

#: Fewest documents that show false candidates. With fewer, a banding costs at least as much as on Reuters-21578.
LEAST_DOCUMENTS: Final = 2_000
#: Microseconds of look-up and insert for a band, Python and Redis together, and for a candidate; Kafka's part of a
#: document in the daemon: docs/measurements.md and `lsh`, measured on one machine and not on this one.
BAND_US: Final = 5.3
CANDIDATE_US: Final = 7.0
KAFKA_US: Final = 44.0
#: Price of a signature value in bands: 0.02 microseconds for a document of 130 shingles (`minhash`), with a reserve for
#: longer ones.
PERMUTATION_WEIGHT: Final = 0.01
#: Factors of the profile's limits for storms that are tried, and bandings that are tried with each.
LIMIT_FACTORS: Final = (1, 4, 16, 64)
#: Greatest share of the sample's pairs that the limits may hide.
MOST_HIDDEN: Final = 0.005
MOST_TRIED: Final = 6
#: The limits are judged in an index of at most so many times the sample: beyond, candidates are not known well enough.
JUDGED_TIMES: Final = 50
#: Least similarity of related documents, or the row's threshold below it: versions of one text, whose number does not
#: grow with the index. Texts with common boilerplate alone are mostly less similar, and their number grows.
RELATED_FROM: Final = 0.7
#: Least chance that a band of a pair at the threshold agrees; with a smaller one a million bands would be needed.
_LEAST_AGREEMENT: Final = 1e-6


@dataclass(frozen=True, slots=True)
class Workload:
    """Index size, and the settings that all rows share.

    Attributes:
        documents: Documents in the index, in the steady state.
        collection: Documents in the collection from which the sample was drawn.
        share: Share of the collection in the sample, above 0, at most 1.
        permutations: Signature values in the profile.
        most_permutations: Largest number of signature values to try, as many as the studies' signatures have.
        limits: The profile's limits for storms.
    """

    documents: float
    collection: int
    share: float
    permutations: int
    most_permutations: int
    limits: StormLimits

    def judged_documents(self, study: Study) -> float:
        """Return the index size for which the limits for storms are judged."""
        return min(self.documents, float(JUDGED_TIMES * study.documents_count))


class Candidates(NamedTuple):
    """A new document's candidates.

    How many documents resemble one is known within the collection only: ``related`` and ``matches`` do not grow beyond.

    Attributes:
        unrelated: Those less similar than ``RELATED_FROM`` and the row's threshold.
        related: The others.
        matches: Related ones that reach the row's threshold.
        collection: Documents in the collection.
    """

    unrelated: Growth
    related: Growth
    matches: Growth
    collection: int

    def at(self, documents: float) -> float:
        """Return the candidate count in an index with so many documents."""
        return self.unrelated.at(documents) + self.related.at(min(documents, self.collection))

    def false_at(self, documents: float) -> float:
        """Return the candidate count below the threshold."""
        return self.at(documents) - self.matches.at(min(documents, self.collection))


class TuningRow(NamedTuple):
    """One row.

    Attributes:
        study: The sample with one shingle kind.
        threshold: Least similarity.
        min_recall: Minimum recall.
        banding: Bands and rows.
        recall: Candidate recall on the sample.
        limits: The row's limits for storms.
        chance: Chance to find a pair that has just the least similarity, with these limits, in an index of
            ``Workload.judged_documents``.
        found_share: Share of the sample's pairs that is found with these limits; None without pairs.
        permutations: Signature values.
        candidates: A new document's candidates.
        prepare_us: Microseconds of one core for a document's shingles and signature, measured on this machine.
        index_us: Microseconds for a document's buckets and comparisons, from constants.
    """

    study: Study
    threshold: float
    min_recall: float
    banding: Banding
    recall: Recall
    limits: StormLimits
    chance: float
    found_share: float | None
    permutations: int
    candidates: Candidates
    prepare_us: float
    index_us: float

    @property
    def options(self) -> ShingleOptions:
        """Shingle kind."""
        return self.study.options

    @property
    def reached(self) -> bool:
        """``chance`` is at least the minimum recall."""
        return self.chance >= self.min_recall

    @property
    def hidden(self) -> float:
        """Share of the sample's pairs that the limits hide."""
        return 0.0 if self.found_share is None else (self.recall.measured or 0.0) - self.found_share

    @property
    def documents_per_s(self) -> float:
        """Documents per second and daemon."""
        return 1e6 / (self.prepare_us + self.index_us + KAFKA_US)


class _Priced(NamedTuple):
    """A banding that reaches a recall without limits for storms, with its cost in bands and its candidates."""

    cost: float
    banding: Banding
    candidates: Candidates
    scales: Scales


def rows_of(
    study: Study,
    workload: Workload,
    thresholds: Sequence[float],
    recalls: Sequence[float],
    progress: Callable[[int], None] = lambda _: None,
) -> list[TuningRow]:
    """Return a row for each threshold and minimum recall that any banding reaches.

    Args:
        study: The sample with one shingle kind.
        workload: Index size.
        thresholds: Each above 0, at most 1, none below the study's floor.
        recalls: Each above 0, below 1.
        progress: Called once for each of the ``workload.most_permutations`` numbers of rows.
    """
    searches = [_Search(study, workload, threshold, recall) for threshold in thresholds for recall in recalls]
    for rows in range(1, workload.most_permutations + 1):
        fewest = [(search, bands) for search in searches if (bands := search.fewest_bands(rows))]
        if fewest:
            candidates = study.candidates(Banding(max(bands for _, bands in fewest), rows))
        for search, bands in fewest:
            search.priced.append(search.price(Banding(bands, rows), candidates[bands]))
        progress(1)
    return [search.row() for search in searches if search.priced]


class _Search:
    """The search for the row at one threshold and minimum recall; ``priced`` are the bandings that reach the recall."""

    def __init__(self, study: Study, workload: Workload, threshold: float, min_recall: float) -> None:
        self._study = study
        self._workload = workload
        self._threshold = threshold
        self._min_recall = min_recall
        self._least = study.least_similarity(threshold)
        self._related_from = min(RELATED_FROM, threshold)
        self.priced: list[_Priced] = []

    def fewest_bands(self, rows: int) -> int | None:
        """Return the fewest bands with so many rows that reach the recall; None if none do."""
        bands = _bands_for(self._least, self._min_recall, rows)
        return bands if bands <= self._workload.most_permutations // rows else None

    def price(self, banding: Banding, pairs: NDArray[np.float64]) -> _Priced:
        """Return a banding with its cost; ``pairs``: pair count for its candidates in the sample."""
        study, workload, documents = self._study, self._workload, self._study.documents_count
        share = workload.share * documents / max(study.sample_count, 1)
        related = study.true_pairs(self._related_from, banding)
        matches = study.true_pairs(self._threshold, banding)
        candidates = Candidates(
            unrelated=growth(np.maximum(pairs - related, 0.0), documents, share),
            related=growth(related, documents, share),
            matches=growth(matches, documents, share),
            collection=workload.collection,
        )
        false = candidates.false_at(workload.documents)
        if documents < LEAST_DOCUMENTS:
            false = max(false, false_candidates(banding, self._threshold, round(workload.documents)))
        cost = banding.bands + FALSE_CANDIDATE_WEIGHT * false
        cost += PERMUTATION_WEIGHT * max(banding.permutations - workload.permutations, 0)
        judged = workload.judged_documents(study)
        scales = Scales(
            unrelated=_scale(candidates.unrelated.at(judged), pairs[0] - related[0], documents),
            related=_scale(candidates.related.at(min(judged, workload.collection)), related[0], documents),
        )
        return _Priced(cost, banding, candidates, scales)

    def row(self) -> TuningRow:
        """Return the row of the first banding that reaches the recall and whose limits hide at most ``MOST_HIDDEN``.

        Else, of those that reach the recall, the one with the fewest hidden pairs; else the one with the best chance.
        """
        ordered = sorted(self.priced, key=lambda priced: (priced.cost, priced.banding.permutations))
        cheapest = ordered[:MOST_TRIED]
        if self._study.documents_count < LEAST_DOCUMENTS:
            short = [priced for priced in ordered if priced.banding.permutations <= self._workload.permutations]
            cheapest = [*short[:MOST_TRIED], *(priced for priced in cheapest if priced not in short)]
        tried: list[TuningRow] = []
        reaching: list[TuningRow] = []
        for factor in LIMIT_FACTORS:
            limits = self._workload.limits.times(factor)
            for priced in cheapest:
                row = self._judged(priced, limits)
                tried.append(row)
                if not row.reached and row.chance > 0.0:
                    tried.append(row := self._with_more_bands(row))
                if row.reached and row.hidden <= MOST_HIDDEN:
                    return row
                reaching += [row] if row.reached else []
            if limits == (None, None):
                break
        if reaching:
            return min(reaching, key=lambda row: row.hidden)
        return max(tried, key=lambda row: row.chance)

    def _judged(self, priced: _Priced, limits: StormLimits) -> TuningRow:
        """Return the row of a banding with limits for storms."""
        study, workload, banding = self._study, self._workload, priced.banding
        shares = study.compared_shares(banding, priced.scales, limits, self._related_from)
        signing_s = study.sign_s * banding.permutations / workload.most_permutations
        compared = min(priced.candidates.at(workload.documents), limits.max_candidates or math.inf)
        return TuningRow(
            study=study,
            threshold=self._threshold,
            min_recall=self._min_recall,
            banding=banding,
            recall=study.recall(banding, self._threshold),
            limits=limits,
            chance=found_at(self._least, banding, shares),
            found_share=study.found_share(banding, self._threshold, shares),
            permutations=max(workload.permutations, banding.permutations),
            candidates=priced.candidates,
            prepare_us=(study.shingle_s + signing_s) / max(study.documents_count, 1) * 1e6,
            index_us=banding.bands * BAND_US + compared * CANDIDATE_US,
        )

    def _with_more_bands(self, row: TuningRow) -> TuningRow:
        """Judge the same number of rows with more bands, which make up for the candidates that are not compared."""
        max_permutations = self._workload.most_permutations
        compared = row.chance / row.banding.probability(self._least)
        rows, needed = row.banding.rows, self._min_recall / compared
        if needed >= 1.0 or (bands := _bands_for(self._least, needed, rows)) > max_permutations // rows:
            return row
        more = Banding(bands + 1, rows)
        if more.permutations > max_permutations:
            more = Banding(bands, rows)
        return self._judged(self.price(more, self._study.candidates(more)[more.bands]), row.limits)


def _bands_for(threshold: float, recall: float, rows: int) -> int:
    """Return the fewest bands with so many rows whose chance reaches the recall at the threshold; recall below 1."""
    agree = threshold**rows
    if agree < _LEAST_AGREEMENT:
        return round(1 / _LEAST_AGREEMENT)
    bands = 1 if agree >= 1.0 else math.ceil(math.log1p(-recall) / math.log1p(-agree) - 1e-9)
    # The settings compare the probability with the recall exactly.
    return bands if Banding(bands, rows).probability(threshold) >= recall else bands + 1


def _scale(candidates: float, pairs: float, documents: int) -> float:
    """Return a new document's candidates for each candidate within the sample; 1 where none are known."""
    in_sample = 2 * pairs / max(documents, 1)
    return candidates / in_sample if 0.0 < in_sample < math.inf else 1.0
