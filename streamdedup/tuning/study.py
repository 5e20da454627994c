"""All pairs of a sample for one kind of shingles, and the recall and candidates of any banding.

The truth is the exact join; candidates come from the real band keys. The texts are shingled and signed once, the sets
joined once, and the band keys computed once for each number of rows.
"""

import time
from collections.abc import Callable, Sequence
from functools import cache
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamdedup.evaluation.rates import Rate
from streamdedup.evaluation.truth import shingle_sets
from streamdedup.similarity.containment import ContainmentRule
from streamdedup.similarity.lsh import Banding
from streamdedup.similarity.minhash import HashFamily
from streamdedup.similarity.sketch import keeps_hashes
from streamdedup.text.shingles import ShingleOptions, Shingler
from streamdedup.tuning.candidates import (
    FullBucket,
    candidate_counts,
    fill_buckets,
    first_shared_bands,
    largest_buckets,
)
from streamdedup.tuning.capped import Scales, StormLimits, compared_shares
from streamdedup.tuning.pair_change import sample_pairs

#: Pairs of different sets that are kept to measure recall.
MOST_PAIRS: Final = 400_000
#: Sets that are signed at once.
_BATCH: Final = 500


class Recall(NamedTuple):
    """Recall of a banding on the sample.

    Attributes:
        pairs: Pairs of documents from the threshold on or by the rule of containment, equal sets included.
        edited: Found pairs of different sets; a pair of sets counts once for all of its documents.
        measured: Share of ``pairs`` that is found; None without pairs.
        expected: The same by theory: the mean of P(s) over ``pairs``.
    """

    pairs: float
    edited: Rate
    measured: float | None
    expected: float | None


class Study:
    """A sample with one kind of shingles.

    Args:
        options: Kind of shingles.
        texts: The sample, in the order of arrival.
        family: Hash functions of the signatures.
        documents: int64 (n,); numbers of the texts that are used, ascending; None for all.
        floor: Least similarity of the pairs, above 0, at most 1.
        rule: Rule of containment, with a least similarity from the floor on; None for no rule.
        min_words: Documents with fewer words are skipped.
        progress: Called with the number of documents joined since the last call.

    Attributes:
        options: The same.
        rule: The same.
        sample_count: Texts of the sample.
        documents: int64 (n,); numbers of the texts that are used.
        sets: Their shingles.
        distinct: The distinct sets among them.
        pairs: Pairs of different sets, by their numbers in ``distinct``.
        counts: float64 (n_pairs, 2); pair count of the documents that each of ``pairs`` represents.
        histogram: float64 (BINS,); pairs of documents by similarity, equal sets in the last bin.
        shingle_s: Seconds for the shingles.
        sign_s: Seconds for all values of the signatures of all documents.
    """

    def __init__(
        self,
        options: ShingleOptions,
        texts: Sequence[str],
        family: HashFamily,
        *,
        floor: float,
        rule: ContainmentRule | None = None,
        documents: NDArray[np.int64] | None = None,
        min_words: int = 0,
        progress: Callable[[int], None] = lambda _: None,
    ) -> None:
        self.options = options
        self.rule = rule
        self.sample_count = len(texts)
        self.documents = np.arange(len(texts)) if documents is None else documents
        started = time.perf_counter()
        self.sets = shingle_sets(Shingler(options), [texts[number] for number in self.documents.tolist()])
        self.shingle_s = time.perf_counter() - started
        self.distinct, self.pairs, self.counts, self.histogram, _ = sample_pairs(
            self.sets, floor, min_words, progress, MOST_PAIRS
        )
        started = time.perf_counter()
        self._signatures = self._signed(family)
        # Equal sets are signed once here; the daemon signs each document.
        self.sign_s = (time.perf_counter() - started) * self.indexed_count / max(len(self.distinct.first), 1)
        self._by_rule = np.zeros(len(self.pairs.left), np.bool_)
        if rule is not None:
            self._by_rule = self.distinct.contained(self.pairs, rule)
        self._first_shared = cache(self._first_shared_of)
        self.buckets = cache(lambda banding, cap: fill_buckets(self.band_keys(banding), self.distinct, cap))

    @property
    def documents_count(self) -> int:
        """Documents that are used."""
        return len(self.documents)

    @property
    def indexed_count(self) -> int:
        """Documents with shingles and enough words."""
        return int(self.distinct.copies.sum())

    def _signed(self, family: HashFamily) -> NDArray[np.uint32]:
        signed = [np.empty((0, family.permutations), np.uint32)]
        for low in range(0, len(self.distinct.first), _BATCH):
            part = self.distinct.offsets[low : low + _BATCH + 1]
            signed.append(family.sign(self.distinct.hashes[part[0] : part[-1]], part - part[0]))
        return np.concatenate(signed)

    def least_similarity(self, threshold: float) -> float:
        """Return the least similarity of a wanted pair: the threshold, or that of the rule of containment."""
        return threshold if self.rule is None else min(threshold, self.rule.min_similarity)

    def wanted(self, threshold: float) -> NDArray[np.bool_]:
        """Return the pairs from a threshold on, and those by the rule of containment, bool (n_pairs,)."""
        wanted: NDArray[np.bool_] = (self.pairs.similarities >= threshold) | self._by_rule
        return wanted

    def exact_share(self, limit: int | None) -> float:
        """Return the share of the indexed documents that are stored as sets and compared exactly.

        Args:
            limit: Distinct shingles up to which a document is stored as a set; None for any number.
        """
        stored = keeps_hashes(np.diff(self.distinct.offsets), limit)
        return float(self.distinct.copies[stored].sum() / max(self.indexed_count, 1))

    def band_keys(self, banding: Banding) -> NDArray[np.uint32]:
        """Return the band keys of all distinct sets, uint32 (n_sets, bands)."""
        keys = [np.empty((0, banding.bands), np.uint32)]
        keys += [
            banding.band_keys(self._signatures[low : low + _BATCH]) for low in range(0, len(self._signatures), _BATCH)
        ]
        return np.concatenate(keys)

    def _first_shared_of(self, rows: int) -> NDArray[np.int64]:
        keys = self.band_keys(Banding(self._signatures.shape[1] // rows, rows))
        return first_shared_bands(keys, self.pairs.left, self.pairs.right)

    def candidates(self, banding: Banding) -> NDArray[np.float64]:
        """Return the pair counts of the candidates by the number of bands, float64 (bands + 1, 2)."""
        return candidate_counts(self.band_keys(banding), self.distinct)

    def recall(self, banding: Banding, threshold: float) -> Recall:
        """Return the share of the wanted pairs that become candidates."""
        wanted = self.wanted(threshold)
        found = (self._first_shared(banding.rows) < banding.bands)[wanted]
        weights = self.counts[wanted, 0]
        chances = 1.0 - (1.0 - self.pairs.similarities[wanted] ** banding.rows) ** banding.bands
        copies = float(self.distinct.copy_pairs()[0])
        total = float(weights.sum()) + copies
        edited = Rate.of(found)
        if not total:
            return Recall(0.0, edited, None, None)
        measured, expected = ((float(weights @ share) + copies) / total for share in (found, chances))
        return Recall(total, edited, measured, expected)

    def compared_shares(self, banding: Banding, scales: Scales, limits: StormLimits) -> NDArray[np.float64]:
        """Return the chance of each distinct set to compare a candidate, see ``capped.compared_shares``."""
        related = self.pairs.left * len(self.distinct.first) + self.pairs.right
        return compared_shares(self.band_keys(banding), self.distinct, related, scales, limits)

    def found_share(self, banding: Banding, threshold: float, shares: NDArray[np.float64]) -> float | None:
        """Return the share of the wanted pairs that become candidates and are compared.

        Args:
            banding: Bands and rows.
            threshold: Least similarity.
            shares: float64 (n_sets, bands + 1), by ``compared_shares``; the later document of a pair may be either.

        Returns:
            None without pairs.
        """
        chosen = self.wanted(threshold)
        wanted, weights = self.pairs.where(chosen), self.counts[chosen, 0]
        keys, common = self.band_keys(banding), np.zeros(len(wanted.left), np.int64)
        for column in keys.T:
            common += column[wanted.left] == column[wanted.right]
        compared = (shares[wanted.left, common] + shares[wanted.right, common]) / 2 * (common > 0)
        copies = self.distinct.copies * (self.distinct.copies - 1) / 2
        total = float(weights.sum() + copies.sum())
        return float(weights @ compared + copies @ shares[:, -1]) / total if total else None

    def true_pairs(self, threshold: float, banding: Banding) -> NDArray[np.float64]:
        """Return the pair count of the wanted pairs that the banding finds."""
        found = self.wanted(threshold) & (self._first_shared(banding.rows) < banding.bands)
        pairs: NDArray[np.float64] = self.distinct.copy_pairs() + self.counts[found].sum(axis=0)
        return pairs

    def found_by_similarity(self, banding: Banding, bins: int) -> list[tuple[float, Rate]]:
        """Return the middle of each bin of similarity that has pairs of different sets, and the share found."""
        found = self._first_shared(banding.rows) < banding.bands
        bin_of = np.minimum((self.pairs.similarities * bins).astype(np.int64), bins - 1)
        return [((at + 0.5) / bins, Rate.of(found[bin_of == at])) for at in np.unique(bin_of).tolist()]

    def largest_buckets(self, banding: Banding, most: int) -> list[FullBucket]:
        """Return at most so many of the largest buckets, see ``candidates.largest_buckets``."""
        return largest_buckets(self.band_keys(banding), self.distinct, most)
