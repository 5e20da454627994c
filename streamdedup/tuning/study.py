"""A study: all pairs of a sample in one kind of shingles, and from them the candidates of any banding.

``comparison`` makes one study for each shingle kind, ``meter`` one for each changed profile. The pairs come from the
exact join, the candidates from the real band keys.

Texts with equal shingles share a distinct set, and pairs are pairs of distinct sets. Of the texts A, A, A, B, with A
similar to B, the only pair is A and B; it represents 3 document pairs, and the copies of A are 3 more.
"""

import time
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from streamdedup.detection.scope import band_mask
from streamdedup.evaluation.join import join
from streamdedup.evaluation.pairs import Pairs, contained, shingle_sets, similarities
from streamdedup.similarity.containment import ContainmentRule
from streamdedup.similarity.lsh import Banding
from streamdedup.similarity.minhash import HashFamily
from streamdedup.similarity.sketch import keeps_hashes
from streamdedup.text.shingles import ShingleOptions, Shingler
from streamdedup.tuning.buckets import candidates_by_bands, first_shared_bands, largest_bucket_of_each
from streamdedup.tuning.distinct import ALL_PAIRS, DistinctSets, distinct_sets
from streamdedup.tuning.storm_limits import Scales, StormLimits, compared_shares

BINS: Final = 20  # bins of the distribution of similarity between 0 and 1
#: Most pairs that are kept to measure recall; of more, each is kept with the same chance.
MOST_PAIRS: Final = 400_000
_SEED: Final = 1  # seed of that chance: the same sample keeps the same pairs
_BATCH: Final = 500  # sets that are signed, or whose band keys are computed, at once


class Study:
    """A sample with one shingle kind. A pair is *alerted* if it reaches the threshold or fulfils the containment rule.

    Args:
        scopes: Scope of each text; empty without scopes.
        text_rows: int64 (n,); rows of the texts that are used, ascending; None for all.
        floor: Least similarity of joined pairs, above 0, at most 1. Pairs below it are unknown at any threshold.
        progress: Called with the count of newly joined documents.
        same_shingles: A study of the same texts, rows and scopes with equal options, whose sets are used; or None.

    Attributes:
        sets, distinct: The shingles of the used texts, and the distinct sets among them.
        pairs: The kept pairs, at most ``MOST_PAIRS``, by the rows of their sets in ``distinct``.
        counts: float64 (n_pairs, 2); document pairs that each kept pair represents: all, and those with one document in
            each half of the sample (a pair count, ``distinct``).
        histogram: float64 (BINS,); document pairs by similarity, equal sets in the last bin.
        shingle_s: Seconds to shingle the texts.
        signatures: uint32 (n_sets, permutations); signatures of the distinct sets.
        sign_s: Seconds that the daemon would take to sign all documents with all values of ``family``.
    """

    def __init__(  # noqa: PLR0913  ``texts``, ``scopes`` and ``text_rows`` are one sample
        self,
        options: ShingleOptions,
        texts: Sequence[str],
        family: HashFamily,
        *,
        floor: float,
        rule: ContainmentRule | None = None,
        scopes: Sequence[str | None] = (),
        text_rows: NDArray[np.int64] | None = None,
        min_words: int = 0,
        progress: Callable[[int], None] = lambda _: None,
        same_shingles: "Study | None" = None,
    ) -> None:
        self.options = options
        self.rule = rule
        self.floor = floor
        self.min_words = min_words
        self.text_rows = np.arange(len(texts)) if text_rows is None else text_rows
        if same_shingles is None:
            started, rows = time.perf_counter(), self.text_rows.tolist()
            used_scopes = [scopes[row] for row in rows] if scopes else ()
            self.sets = shingle_sets(Shingler(options), [texts[row] for row in rows], used_scopes)
            self.shingle_s = time.perf_counter() - started
        else:
            self.sets, self.shingle_s = same_shingles.sets, same_shingles.shingle_s
        self.distinct = distinct_sets(self.sets, min_words)
        distinct_count = len(self.distinct.first_documents)
        self.pairs, self.counts, self.histogram = _sample_pairs(self.distinct, floor, progress)
        # The join reported the distinct sets; copies and skipped documents need no join.
        progress(self.documents_count - distinct_count)
        started = time.perf_counter()
        self.signatures = self._signed(family)
        # Equal sets are signed once here; the daemon signs each document.
        self.sign_s = (time.perf_counter() - started) * self.indexed_count / max(distinct_count, 1)
        no_pair = np.zeros(len(self.pairs.left), np.bool_)
        self._by_rule = no_pair if rule is None else self.distinct.contained_by_similarity(self.pairs, rule)
        # Keys of all row counts would take too much memory.
        self._keys_of = lru_cache(maxsize=1)(self._compute_keys)
        # The place of the first band that each kept pair shares, by rows.
        self._first_shared = cache(
            lambda rows: first_shared_bands(self._keys_of(rows), self.pairs.left, self.pairs.right)
        )

    @property
    def documents_count(self) -> int:
        return len(self.text_rows)

    @property
    def indexed_count(self) -> int:
        """Used documents with shingles and at least ``min_words`` words: those that the daemon would index."""
        return int(self.distinct.copies.sum())

    @property
    def median_words(self) -> int:
        counts = self.sets.token_counts
        return int(np.median(counts)) if counts.size else 0

    def as_text_pairs(self, pairs: Pairs) -> Pairs:
        """Return pairs of distinct sets as pairs of used texts: of the first text with each set."""
        documents = self.distinct.first_documents
        return pairs._replace(left=documents[pairs.left], right=documents[pairs.right])

    def alerted_mask(self, threshold: float) -> NDArray[np.bool_]:
        mask: NDArray[np.bool_] = (self.pairs.similarities >= threshold) | self._by_rule
        return mask

    def alerted_text_pairs(self, threshold: float) -> tuple[Pairs, NDArray[np.float64]]:
        """Return the alerted pairs of used texts, and how many document pairs each represents."""
        # A set with copies is paired with itself, and represents the pairs of its copies.
        alerted, copied = self.alerted_mask(threshold), np.flatnonzero(self.distinct.copies > 1)
        pairs = Pairs.concatenated([self.pairs.where(alerted), Pairs(copied, copied, np.ones(len(copied)))])
        weights = np.concatenate((self.counts[alerted, ALL_PAIRS], self.distinct.copy_pairs_of_each[copied]))
        return self.as_text_pairs(pairs), weights

    def alerts(self, pairs: Pairs, threshold: float) -> NDArray[np.bool_]:
        """Return whether pairs of used texts are alerted, bool (n,), computed anew: the study may have dropped them."""
        left, right, _ = pairs
        is_alerted = similarities(self.sets, left, right) >= threshold
        if self.rule is not None:
            is_alerted |= contained(self.sets, left, right, self.rule)
        has_enough_words = self.sets.token_counts >= self.min_words
        return is_alerted & has_enough_words[left] & has_enough_words[right]

    def alerted_count(self, threshold: float) -> float:
        return float(self.counts[self.alerted_mask(threshold), ALL_PAIRS].sum() + self.distinct.copy_pairs()[ALL_PAIRS])

    def exact_share(self, exact_limit: int | None) -> float:
        stored = keeps_hashes(self.distinct.sizes, exact_limit)
        return float(self.distinct.copies[stored].sum() / max(self.indexed_count, 1))

    def candidate_counts(self, banding: Banding) -> NDArray[np.float64]:
        """Return the pair count of the candidates with 0, 1, ... and all bands of a banding, float64 (bands + 1, 2)."""
        return candidates_by_bands(self.band_keys(banding), self.distinct)

    def candidate_mask(self, banding: Banding) -> NDArray[np.bool_]:
        mask: NDArray[np.bool_] = self._first_shared(banding.rows) < banding.bands
        return mask

    def compared_shares(
        self, banding: Banding, scales: Scales, limits: StormLimits, related_from: float
    ) -> NDArray[np.float64]:
        """Return the chance S(j) of ``storm_limits`` for each set, float64 (n_sets, bands + 1).

        ``scales.related`` is for copies and for the kept pairs that are alerted with ``related_from`` as the threshold,
        0 for all; ``scales.unrelated`` for all other candidates.
        """
        pairs = self.pairs.where(self.alerted_mask(related_from))
        related = self.distinct.pair_codes(pairs.left, pairs.right)
        return compared_shares(self.band_keys(banding), self.distinct, related, scales, limits)

    def alerted_candidates(self, threshold: float, banding: Banding) -> NDArray[np.float64]:
        """Return how many alerted pairs become candidates, as a pair count, float64 (2,); equal sets included."""
        is_alerted_candidate = self.alerted_mask(threshold) & self.candidate_mask(banding)
        pairs: NDArray[np.float64] = self.distinct.copy_pairs() + self.counts[is_alerted_candidate].sum(axis=0)
        return pairs

    def largest_bucket(self, banding: Banding) -> int:
        """Return the document count of the largest bucket, as if no ``bucket_cap`` limited it."""
        return int(largest_bucket_of_each(self.band_keys(banding), self.distinct).max(initial=0))

    def band_keys(self, banding: Banding) -> NDArray[np.uint32]:
        """Return the band keys of the distinct sets, uint32 (n_sets, bands); those of two scopes never agree."""
        return self._keys_of(banding.rows)[:, : banding.bands]

    def _compute_keys(self, rows: int) -> NDArray[np.uint32]:
        """Return the keys of all bands of ``rows`` rows for which the signature has room."""
        banding = Banding(self.signatures.shape[1] // rows, rows)
        parts = [np.empty((0, banding.bands), np.uint32)]
        parts += [
            banding.band_keys(self.signatures[low : low + _BATCH]) for low in range(0, len(self.signatures), _BATCH)
        ]
        keys = np.concatenate(parts)
        # The same mask as in the daemon. Without scopes all scope hashes are 0.
        scopes, places = np.unique(self.distinct.scopes, return_inverse=True)
        if scopes.any():
            keys ^= np.stack([band_mask(scope.tobytes(), banding.bands) for scope in scopes])[places]
        return keys

    def _signed(self, family: HashFamily) -> NDArray[np.uint32]:
        signed = [np.empty((0, family.permutations), np.uint32)]
        for low in range(0, len(self.distinct.first_documents), _BATCH):
            part = self.distinct.offsets[low : low + _BATCH + 1]
            signed.append(family.sign(self.distinct.hashes[part[0] : part[-1]], part - part[0]))
        return np.concatenate(signed)


def _sample_pairs(
    sets: DistinctSets, floor: float, progress: Callable[[int], None]
) -> tuple[Pairs, NDArray[np.float64], NDArray[np.float64]]:
    """Find the pairs by an exact join; return the attributes ``pairs``, ``counts`` and ``histogram`` of ``Study``."""
    random = np.random.default_rng(_SEED)
    pairs, kept_share, histogram = Pairs.concatenated([]), 1.0, np.zeros(BINS)
    for joined in join(sets.hashes, sets.offsets, floor, progress):
        block = joined.within(sets.scopes)
        weights = sets.pair_counts(block.left, block.right)[:, ALL_PAIRS]
        # A similarity on the edge of two bins belongs to the upper one, in spite of rounding; 1 belongs to the last.
        bins = np.minimum((block.similarities * BINS + 1e-9).astype(np.int64), BINS - 1)
        histogram += np.bincount(bins, weights=weights, minlength=BINS)
        if kept_share < 1.0:
            block = block.where(random.random(len(block.left)) < kept_share)
        pairs = Pairs.concatenated([pairs, block])
        # Each pair is dropped with a chance of one half, and later pairs are kept with half the chance as before; at
        # the end the counts are scaled up accordingly.
        while len(pairs.left) > MOST_PAIRS:
            pairs = pairs.where(random.random(len(pairs.left)) < 0.5)
            kept_share /= 2
    histogram[-1] += sets.copy_pairs()[ALL_PAIRS]
    return pairs, sets.pair_counts(pairs.left, pairs.right) / kept_share, histogram
