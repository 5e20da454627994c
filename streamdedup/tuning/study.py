"""All sample pairs for one shingle kind, and any banding's recall and candidates.

The truth is the exact join; candidates come from the real band keys. The texts are shingled and signed once, the sets
joined once, and the band keys computed once for each row count.
"""

import time
from collections.abc import Callable, Sequence
from functools import cache
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamdedup.detection.scope import band_mask
from streamdedup.evaluation.join import join
from streamdedup.evaluation.pairs import Pairs, ShingleSets, gathered, shingle_sets
from streamdedup.evaluation.rates import Rate
from streamdedup.similarity.containment import ContainmentRule
from streamdedup.similarity.lsh import Banding
from streamdedup.similarity.minhash import HashFamily
from streamdedup.similarity.sketch import keeps_hashes
from streamdedup.text.shingles import ShingleOptions, Shingler
from streamdedup.tuning.candidates import (
    DistinctSets,
    candidate_counts,
    distinct_sets,
    first_shared_bands,
    largest_bucket_of_each,
)
from streamdedup.tuning.capped import Scales, StormLimits, compared_shares

#: Bins of the distribution of similarity between 0 and 1.
BINS: Final = 20
#: Pairs of different sets that are kept to measure recall; of more, each is kept with the same chance.
MOST_PAIRS: Final = 400_000
_SEED: Final = 1
#: Parts of the signatures with which unlucky documents are counted, at most.
_MOST_PARTS: Final = 8
#: Sets that are signed at once.
_BATCH: Final = 500


class Recall(NamedTuple):
    """A banding's recall on the sample.

    Attributes:
        pairs: Document pairs from the threshold on or by the containment rule, equal sets included.
        edited: Found pairs between different sets; a set pair counts once for all its documents.
        measured: Found share of ``pairs``; None without pairs.
        expected: The same by theory: the mean of P(s) over ``pairs``.
    """

    pairs: float
    edited: Rate
    measured: float | None
    expected: float | None


class Study:
    """A sample with one shingle kind.

    Args:
        options: Shingle kind.
        texts: The sample, in the order of arrival.
        scopes: Their scopes; empty without scopes.
        family: Signature hash functions.
        documents: int64 (n,); numbers of the texts that are used, ascending; None for all.
        floor: Least pair similarity, above 0, at most 1.
        rule: Containment rule, with a least similarity from the floor on; None for no rule.
        min_words: Documents with fewer words are skipped.
        progress: Called with the newly joined documents' count.
        sets: The shingles of the used texts, where they are known.

    Attributes:
        options, rule, floor, min_words: The same.
        sample_count: Sample texts.
        documents: int64 (n,); numbers of the texts that are used.
        sets: Their shingles.
        distinct: The distinct sets among them.
        pairs: Pairs between different sets, by their numbers in ``distinct``.
        counts: float64 (n_pairs, 2); pair count that each pair represents.
        histogram: float64 (BINS,); document pairs by similarity, equal sets in the last bin.
        shingle_s: Seconds for the shingles.
        sign_s: Seconds for all documents' signature values.
    """

    def __init__(  # noqa: PLR0913  the sample has three columns
        self,
        options: ShingleOptions,
        texts: Sequence[str],
        family: HashFamily,
        *,
        floor: float,
        rule: ContainmentRule | None = None,
        scopes: Sequence[str | None] = (),
        documents: NDArray[np.int64] | None = None,
        min_words: int = 0,
        progress: Callable[[int], None] = lambda _: None,
        sets: ShingleSets | None = None,
    ) -> None:
        self.options = options
        self.rule = rule
        self.floor = floor
        self.min_words = min_words
        self.sample_count = len(texts)
        self.documents = np.arange(len(texts)) if documents is None else documents
        started = time.perf_counter()
        numbers = self.documents.tolist()
        used_scopes = [scopes[number] for number in numbers] if scopes else ()
        if sets is None:
            sets = shingle_sets(Shingler(options), [texts[number] for number in numbers], used_scopes)
        self.sets = sets
        self.shingle_s = time.perf_counter() - started
        self.distinct = distinct_sets(self.sets, min_words)
        self.pairs, self.counts, self.histogram = _sample_pairs(self.distinct, floor, progress)
        progress(self.documents_count - len(self.distinct.first))
        started = time.perf_counter()
        self._signatures = self._signed(family)
        # Equal sets are signed once here; the daemon signs each document.
        self.sign_s = (time.perf_counter() - started) * self.indexed_count / max(len(self.distinct.first), 1)
        self._by_rule = np.zeros(len(self.pairs.left), np.bool_)
        if rule is not None:
            self._by_rule = self.distinct.contained(self.pairs, rule)
        #: The last number of rows, and the keys of as many such bands as the signature has.
        self._last_keys: tuple[int, NDArray[np.uint32]] | None = None
        self._first_shared = cache(self._first_shared_of)

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
        """Return the least similarity for an alert: the threshold's, or the containment rule's."""
        return threshold if self.rule is None else min(threshold, self.rule.min_similarity)

    def alerted(self, threshold: float) -> NDArray[np.bool_]:
        """Return the pairs from a threshold on, and those by the containment rule, bool (n_pairs,)."""
        mask: NDArray[np.bool_] = (self.pairs.similarities >= threshold) | self._by_rule
        return mask

    def exact_share(self, limit: int | None) -> float:
        """Return the share of the indexed documents that are stored as sets and compared exactly.

        Args:
            limit: Distinct shingles up to which a document is stored as a set; None for any number.
        """
        stored = keeps_hashes(np.diff(self.distinct.offsets), limit)
        return float(self.distinct.copies[stored].sum() / max(self.indexed_count, 1))

    def band_keys(self, banding: Banding) -> NDArray[np.uint32]:
        """Return the band keys for all distinct sets within their scopes, uint32 (n_sets, bands)."""
        if self._last_keys is not None:
            rows, last_keys = self._last_keys
            if rows == banding.rows and banding.bands <= last_keys.shape[1]:
                return last_keys[:, : banding.bands]
        parts = [np.empty((0, banding.bands), np.uint32)]
        parts += [
            banding.band_keys(self._signatures[low : low + _BATCH]) for low in range(0, len(self._signatures), _BATCH)
        ]
        keys = np.concatenate(parts)
        scopes, numbers = np.unique(self.distinct.scopes, return_inverse=True)
        if scopes.any():
            keys ^= np.stack([band_mask(scope.tobytes(), banding.bands) for scope in scopes])[numbers]
        return keys

    def _first_shared_of(self, rows: int) -> NDArray[np.int64]:
        keys = self.band_keys(Banding(self._signatures.shape[1] // rows, rows))
        self._last_keys = rows, keys
        return first_shared_bands(keys, self.pairs.left, self.pairs.right)

    def candidates(self, banding: Banding) -> NDArray[np.float64]:
        """Return the candidates' pair counts by the band count, float64 (bands + 1, 2)."""
        self._first_shared(banding.rows)
        return candidate_counts(self.band_keys(banding), self.distinct)

    def recall(self, banding: Banding, threshold: float) -> Recall:
        """Return the share of the alerted pairs that become candidates."""
        alerted = self.alerted(threshold)
        is_candidate = (self._first_shared(banding.rows) < banding.bands)[alerted]
        weights = self.counts[alerted, 0]
        chances = 1.0 - (1.0 - self.pairs.similarities[alerted] ** banding.rows) ** banding.bands
        copies = float(self.distinct.copy_pairs()[0])
        total = float(weights.sum()) + copies
        edited = Rate.of(is_candidate)
        if not total:
            return Recall(0.0, edited, None, None)
        measured, expected = ((float(weights @ share) + copies) / total for share in (is_candidate, chances))
        return Recall(total, edited, measured, expected)

    def unlucky_share(self, banding: Banding, threshold: float) -> float | None:
        """Return the share of unlucky documents among those with alerted pairs; None without pairs.

        A document is unlucky if the banding finds none of its alerted pairs. The pairs of a document are missed
        together, because they share its signature. So the share is the mean over disjoint parts of the signatures,
        each as long as ``banding`` needs, at most ``_MOST_PARTS``.
        """
        pairs, copies, width = self.pairs.where(self.alerted(threshold)), self.distinct.copies, banding.permutations
        paired = copies > 1
        paired[pairs.left] = paired[pairs.right] = True
        part_count = min(_MOST_PARTS, self._signatures.shape[1] // width)
        unlucky_count = 0
        for part in range(part_count):
            is_found = np.zeros(len(pairs.left), np.bool_)
            for column in banding.band_keys(self._signatures[:, part * width : (part + 1) * width]).T:
                is_found |= column[pairs.left] == column[pairs.right]
            has_found = copies > 1
            has_found[pairs.left[is_found]] = has_found[pairs.right[is_found]] = True
            unlucky_count += int(copies[paired & ~has_found].sum())
        paired_count = int(copies[paired].sum())
        return unlucky_count / part_count / paired_count if paired_count else None

    def compared_shares(
        self, banding: Banding, scales: Scales, limits: StormLimits, related_from: float = 0.0
    ) -> NDArray[np.float64]:
        """Return ``capped.compared_shares`` of the sets; ``related_from``: least similarity of related pairs."""
        pairs = self.pairs.where(self.alerted(related_from))
        related = pairs.left * len(self.distinct.first) + pairs.right
        return compared_shares(self.band_keys(banding), self.distinct, related, scales, limits)

    def found_share(self, banding: Banding, threshold: float, shares: NDArray[np.float64]) -> float | None:
        """Return the share of the alerted pairs that become candidates and are compared.

        Args:
            banding: Bands and rows.
            threshold: Least similarity.
            shares: float64 (n_sets, bands + 1), by ``compared_shares``; the later document of a pair may be either.

        Returns:
            None without pairs.
        """
        is_alerted = self.alerted(threshold)
        alerted, weights = self.pairs.where(is_alerted), self.counts[is_alerted, 0]
        keys, common = self.band_keys(banding), np.zeros(len(alerted.left), np.int64)
        for column in keys.T:
            common += column[alerted.left] == column[alerted.right]
        compared = (shares[alerted.left, common] + shares[alerted.right, common]) / 2 * (common > 0)
        copies = self.distinct.copies * (self.distinct.copies - 1) / 2
        total = float(weights.sum() + copies.sum())
        return float(weights @ compared + copies @ shares[:, -1]) / total if total else None

    def true_pairs(self, threshold: float, banding: Banding) -> NDArray[np.float64]:
        """Return the pair count for the alerted pairs that the banding finds."""
        is_found = self.alerted(threshold) & (self._first_shared(banding.rows) < banding.bands)
        pairs: NDArray[np.float64] = self.distinct.copy_pairs() + self.counts[is_found].sum(axis=0)
        return pairs

    def found_by_similarity(self, banding: Banding, bins: int) -> list[tuple[float, Rate]]:
        """Return the middle of each similarity bin that has pairs between different sets, and the share found."""
        is_found = self._first_shared(banding.rows) < banding.bands
        bin_of = np.minimum((self.pairs.similarities * bins).astype(np.int64), bins - 1)
        return [((number + 0.5) / bins, Rate.of(is_found[bin_of == number])) for number in np.unique(bin_of).tolist()]

    def largest_bucket(self, banding: Banding) -> int:
        """Return the document count in the largest bucket, beyond any cap."""
        return int(largest_bucket_of_each(self.band_keys(banding), self.distinct).max(initial=0))

    @property
    def median_words(self) -> int:
        """Median words per document."""
        counts = self.sets.token_counts
        return int(np.median(counts)) if counts.size else 0


def _sample_pairs(
    sets: DistinctSets, threshold: float, progress: Callable[[int], None]
) -> tuple[Pairs, NDArray[np.float64], NDArray[np.float64]]:
    """Find the pairs by an exact join; return them, their counts and the histogram, as ``Study`` has them."""
    chance = np.random.default_rng(_SEED)
    pairs, share, histogram = gathered([]), 1.0, np.zeros(BINS)
    for joined in join(sets.hashes, sets.offsets, threshold, progress):
        block = joined.within(sets.scopes)
        weights = sets.pair_counts(block.left, block.right)[:, 0]
        bins = np.minimum((block.similarities * BINS + 1e-9).astype(np.int64), BINS - 1)
        histogram += np.bincount(bins, weights=weights, minlength=BINS)
        part = block if share == 1.0 else block.where(chance.random(len(block.left)) < share)
        pairs = gathered([pairs, part])
        while len(pairs.left) > MOST_PAIRS:
            pairs = pairs.where(chance.random(len(pairs.left)) < 0.5)
            share /= 2
    histogram[-1] += sets.copy_pairs()[0]
    return pairs, sets.pair_counts(pairs.left, pairs.right) / share, histogram
