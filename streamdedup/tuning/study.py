"""What a sample shows with one kind of shingles: its pairs, which bands find them, and what they cost.

The truth is the exact join, the candidates are those of the real band keys. Everything about thresholds and bandings
is told from three passes: one that shingles and signs, one that joins, and one for each number of rows.
"""

import itertools
import math
import time
from collections.abc import Callable, Sequence
from functools import cache
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamdedup.evaluation.rates import Rate
from streamdedup.evaluation.sets import SetCollector, ShingleSets
from streamdedup.evaluation.truth import Pairs, gathered, join
from streamdedup.similarity.lsh import Banding
from streamdedup.similarity.minhash import HashFamily
from streamdedup.text.shingles import ShingleOptions
from streamdedup.tuning.distinct import DistinctSets, Weights, distinct
from streamdedup.tuning.meetings import Meetings, band_keys, first_shared, hottest, meet

#: Pairs of different sets that are kept to measure recall with; of more, each is kept with the same chance.
MOST_PAIRS: Final = 400_000
#: Documents that are shingled, and sets that are signed, at once.
_BATCH: Final = 500
#: Characters of the texts that one kind of shingles looks at, by unit: some two million shingles, which are joined in
#: seconds. Of a larger sample it takes stretches of neighbours, evenly spread.
MOST_CHARACTERS: Final = {"word": 15_000_000, "char": 4_000_000}
_STRETCHES: Final = 10
#: Bins of the distribution of similarity between 0 and 1.
BINS: Final = 20
#: What the choice of pairs is drawn from.
_SEED: Final = 1


class Recall(NamedTuple):
    """How many of the pairs from a threshold on bands find.

    Attributes:
        pairs: Pairs of documents from the threshold on, those with equal sets included.
        edited: Of those with different sets, found ones among all that were looked at; each stands once, however many
            documents have its sets.
        measured: Share of the pairs of documents that is found; None without any.
        expected: The same by theory: the mean of P(s) over the same pairs.
    """

    pairs: float
    edited: Rate
    measured: float | None
    expected: float | None


class Study:
    """One kind of shingles on one sample.

    Args:
        options: What counts as a shingle.
        texts: The sample, in the order of arrival.
        family: Hash functions of the signatures.
        floor: Similarity from which on pairs are looked for, above 0, at most 1.
        min_words: Documents with fewer words are passed over.
        bucket_cap: Most members of a bucket; None for no limit.
        progress: Told how many documents more were joined.

    Attributes:
        options: The same.
        sample_count: Texts of the sample.
        places: int64 (n,); which texts of the sample are looked at, see ``MOST_CHARACTERS``.
        sets: Shingles of these.
        distinct: Those that differ.
        pairs: Pairs of different sets, from the floor on; places of sets.
        factor: How many pairs each of them stands for.
        histogram: float64 (BINS,); pairs of documents by similarity, equal sets in the last bin.
        shingle_s: Seconds for their shingles.
        sign_s: Seconds for all values of all their signatures.
    """

    def __init__(
        self,
        options: ShingleOptions,
        texts: Sequence[str],
        family: HashFamily,
        *,
        floor: float,
        min_words: int = 0,
        bucket_cap: int | None = None,
        progress: Callable[[int], None] = lambda _: None,
    ) -> None:
        self.options = options
        self._cap = bucket_cap
        self.sample_count = len(texts)
        self.places = _places(texts, MOST_CHARACTERS[options.unit])
        started = time.perf_counter()
        self.sets = _collected(options, [texts[place] for place in self.places.tolist()])
        self.shingle_s = time.perf_counter() - started
        self.distinct = distinct(self.sets, min_words)
        started = time.perf_counter()
        self._signatures = _signed(family, self.distinct)
        # Copies were signed once here; the daemon signs each.
        indexed = max(int(self.distinct.copies.sum()), 1)
        self.sign_s = (time.perf_counter() - started) * indexed / max(len(self.distinct.first), 1)
        self.histogram = np.zeros(BINS)
        self.pairs, self.factor = self._joined(floor, progress)
        self._first_shared = cache(self._first_shared_uncached)
        self.meetings = cache(self._meetings_uncached)

    @property
    def documents_count(self) -> int:
        """Documents that are looked at."""
        return len(self.places)

    @property
    def indexed_count(self) -> int:
        """Documents with shingles, and words enough."""
        return int(self.distinct.copies.sum())

    def exact_share(self, limit: int | None) -> float:
        """Return the share of the indexed documents that is stored as a set, so that two of them compare exactly.

        Args:
            limit: Distinct shingles up to which a document is stored as a set; None for any number.
        """
        stored = np.diff(self.distinct.offsets) <= (math.inf if limit is None else limit or -1)
        return float(self.distinct.copies[stored].sum() / max(self.indexed_count, 1))

    def _joined(self, floor: float, progress: Callable[[int], None]) -> tuple[Pairs, float]:
        """Return the pairs of different sets, or a random part of them, and how many each stands for."""
        chance = np.random.default_rng(_SEED)
        kept, share = gathered([]), 1.0
        for block in join(self.distinct.hashes, self.distinct.offsets, floor, progress):
            weights = self.distinct.weights(block.left, block.right)[:, 0]
            bins = np.minimum((block.similarities * BINS + 1e-9).astype(np.int64), BINS - 1)
            self.histogram += np.bincount(bins, weights=weights, minlength=BINS)
            part = block if share == 1.0 else block.where(chance.random(len(block.left)) < share)
            kept = gathered([kept, part])
            while len(kept.left) > MOST_PAIRS:
                kept = kept.where(chance.random(len(kept.left)) < 0.5)
                share /= 2
        self.histogram[-1] += self.distinct.pairs_of_copies().all
        return kept, 1 / share

    def band_keys(self, rows: int, bands: int) -> NDArray[np.uint32]:
        """Return the band keys of all distinct sets, uint32 (n_sets, bands)."""
        return band_keys(self._signatures, Banding(bands, rows))

    def _most_bands(self, rows: int) -> int:
        return int(self._signatures.shape[1]) // rows

    def _first_shared_uncached(self, rows: int) -> NDArray[np.int64]:
        keys = self.band_keys(rows, self._most_bands(rows))
        return first_shared(keys, self.pairs.left, self.pairs.right)

    def _meetings_uncached(self, rows: int, bands: int) -> Meetings:
        return meet(self.band_keys(rows, bands), self.distinct, self._cap)

    def recall(self, banding: Banding, threshold: float) -> Recall:
        """Return what share of the pairs from the threshold on become candidates."""
        wanted = self.pairs.similarities >= threshold
        found = (self._first_shared(banding.rows) < banding.bands)[wanted]
        weights = self.distinct.weights(self.pairs.left[wanted], self.pairs.right[wanted])[:, 0] * self.factor
        copies = self.distinct.pairs_of_copies().all
        total = float(weights.sum()) + copies
        agree = self.pairs.similarities[wanted] ** banding.rows
        chances = 1.0 - (1.0 - agree) ** banding.bands
        edited = Rate(int(np.count_nonzero(found)), len(found))
        if not total:
            return Recall(0.0, edited, None, None)
        measured = (float(weights[found].sum()) + copies) / total
        return Recall(total, edited, measured, (float((weights * chances).sum()) + copies) / total)

    def true_pairs(self, threshold: float, banding: Banding | None = None) -> Weights:
        """Return the pairs of documents from the threshold on; of a banding those that it finds."""
        wanted = self.pairs.similarities >= threshold
        if banding is not None:
            wanted &= self._first_shared(banding.rows) < banding.bands
        weights = self.distinct.weights(self.pairs.left[wanted], self.pairs.right[wanted]).sum(axis=0) * self.factor
        return self.distinct.pairs_of_copies() + Weights(*weights.tolist())

    def found_by_similarity(self, banding: Banding, bins: int) -> list[tuple[float, Rate]]:
        """Return for each bin that has pairs of different sets its middle, and how many of them become candidates."""
        found = self._first_shared(banding.rows) < banding.bands
        places = np.minimum((self.pairs.similarities * bins).astype(np.int64), bins - 1)
        totals = np.bincount(places, minlength=bins)
        hits = np.bincount(places[found], minlength=bins)
        return [((at + 0.5) / bins, Rate(int(hits[at]), int(totals[at]))) for at in np.flatnonzero(totals).tolist()]

    def hottest(self, banding: Banding, count: int) -> list[tuple[int, int, int]]:
        """Return the fullest buckets: band, documents, place of a set in it."""
        return hottest(self.band_keys(banding.rows, banding.bands), self.distinct, count)

    def signatures(self, places: NDArray[np.int64]) -> NDArray[np.uint32]:
        """Return the signatures of distinct sets, uint32 (n, K)."""
        chosen: NDArray[np.uint32] = self._signatures[places]
        return chosen


def _places(texts: Sequence[str], most_characters: int) -> NDArray[np.int64]:
    """Return which texts to look at: all, or stretches that together have about so many characters."""
    lengths = np.fromiter(map(len, texts), np.int64, len(texts))
    part = most_characters / max(int(lengths.sum()), 1)
    if part >= 1.0:
        return np.arange(len(texts))
    edges = np.linspace(0, len(texts), _STRETCHES + 1).astype(np.int64)
    spans = [np.arange(low, low + max(1, int((high - low) * part))) for low, high in itertools.pairwise(edges.tolist())]
    return np.unique(np.concatenate(spans).clip(max=len(texts) - 1))


def _collected(options: ShingleOptions, texts: Sequence[str]) -> ShingleSets:
    collector = SetCollector(options)
    for low in range(0, len(texts), _BATCH):
        collector.add(texts[low : low + _BATCH])
    return collector.sets()


def _signed(family: HashFamily, sets: DistinctSets) -> NDArray[np.uint32]:
    signed = [np.empty((0, family.permutations), np.uint32)]
    for low in range(0, len(sets.first), _BATCH):
        part = sets.offsets[low : low + _BATCH + 1]
        signed.append(family.sign(sets.hashes[part[0] : part[-1]], part - part[0]))
    return np.concatenate(signed)
