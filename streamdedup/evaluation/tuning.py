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

import numpy as np

from streamdedup.evaluation.distinct import Growth, Weights, growth
from streamdedup.evaluation.meetings import Meetings
from streamdedup.evaluation.study import Recall, Study
from streamdedup.lsh import FALSE_CANDIDATE_WEIGHT, Banding, false_candidates
from streamdedup.store.footprint import Buckets, Layout, ServerModel, buckets_of, index_bytes, record_bytes
from streamdedup.text import ShingleOptions

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
#: Octets of a sketch before its values, and of a value.
_SKETCH_HEAD, _VALUE_BYTES = 5, 4


@dataclass(frozen=True, slots=True)
class Demand:
    """What the index has to hold, and the settings that are the same for all rows.

    Attributes:
        documents: Documents in the index, in its steady state.
        collection: Documents of the collection that the sample was taken from.
        share: What part of the collection the sample is, above 0, at most 1.
        permutations: Values of a signature.
        exact_limit: Distinct shingles up to which a document is kept as a set; None for any.
        max_candidates: Most candidates that a document is compared with; None for no limit.
        id_bytes: Mean length of an id, UTF-8.
        namespace_bytes: Length of prefix and profile of the keys, joined by a colon.
        partition_bytes: Length of a partition as text.
        basis: Where bands and rows must reach the recall.
        bucket_layout: Name of the layout of the buckets in Redis.
    """

    documents: float
    collection: int
    share: float
    permutations: int
    exact_limit: int | None
    max_candidates: int | None
    id_bytes: float
    namespace_bytes: int
    partition_bytes: int
    basis: Basis = "theory"
    bucket_layout: str = "sets"


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


def memory_bytes(
    study: Study,
    demand: Demand,
    row: Row,
    server: ServerModel,
    *,
    documents: float,
    exact_limit: int | None,
    filling: bool = False,
) -> float:
    """Return what an index of so many documents takes in Redis, bytes.

    Args:
        study: The sample with the row's shingles.
        demand: What is to be held.
        row: Whose bands.
        server: How keys are stored.
        documents: Documents in the index.
        exact_limit: Instead of the demand's.
        filling: It has just been filled for the first time, so that earlier documents met fewer others; else as many
            have expired as came.
    """
    indexed = documents * study.indexed_count / max(study.documents_count, 1)
    if indexed < 1:
        return 0.0
    packed = demand.bucket_layout == "packed"
    layout = Layout(demand.namespace_bytes, row.banding.bands, demand.partition_bytes, packed=packed)
    sizes = np.repeat(np.diff(study.distinct.offsets), study.distinct.copies)
    values = _sketch_bytes(sizes, exact_limit, demand.permutations)
    ids = np.full(len(sizes), round(demand.id_bytes), np.int64)
    matches = row.matches.at(min(documents, demand.collection) / (2 if filling else 1))
    claims = indexed * min(matches, demand.max_candidates or matches)
    buckets = _grown(study, demand, row, indexed)
    return index_bytes(server, layout, record_bytes(layout, ids, values), indexed, buckets, claims, filling=filling)


def _sketch_bytes(
    sizes: np.ndarray[tuple[int], np.dtype[np.int64]], limit: int | None, permutations: int
) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    kept = sizes <= limit if limit is not None else np.ones(len(sizes), np.bool_)
    if limit == 0:
        kept[:] = False
    return _SKETCH_HEAD + _VALUE_BYTES * np.where(kept, sizes, permutations)


def _grown(study: Study, demand: Demand, row: Row, indexed: float) -> Buckets:
    """Return the buckets of an index of another size.

    With twice the documents there are 2^g times the buckets, as from half of the sample to all of it; beyond the
    collection, documents bring buckets of their own.
    """
    meetings = study.meetings(row.banding.rows, row.banding.bands)
    here = buckets_of(meetings.members(row.banding.bands))
    halves = float(meetings.half_buckets[row.banding.bands])
    exponent = min(max(math.log2(here.count / halves), 0.0), 1.0) if halves else 1.0
    ratio = indexed / max(study.indexed_count, 1)
    known = min(ratio, demand.collection / max(study.documents_count, 1))
    count = here.count * (known**exponent * ratio / known if known > 1.0 else ratio)
    return Buckets(count, here.members_count * ratio, here.sizes)


def exact_share(study: Study, limit: int | None) -> float:
    """Return which share of the documents is kept as a set, so that two of them are compared exactly."""
    if limit is None:
        return 1.0
    sizes = np.diff(study.distinct.offsets)
    kept = study.distinct.copies[(sizes <= limit) & (limit > 0)].sum()
    return float(kept / max(study.indexed_count, 1))
