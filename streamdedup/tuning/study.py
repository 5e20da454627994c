"""A study: all pairs of a sample in one kind of shingles, and from them the recall and the candidates of any banding.

``comparison`` makes one study for each shingle kind, ``meter`` one for each changed profile; ``rows`` searches
bandings with it. The pairs come from the exact join, the candidates from the real band keys.

Texts with equal shingles share a distinct set, and pairs are pairs of distinct sets. Of the texts A, A, A, B, with A
similar to B, the only pair is A and B; it represents 3 document pairs, and the copies of A are 3 more.
"""

import time
from collections.abc import Callable, Sequence
from functools import cache
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamdedup.detection.scope import band_mask
from streamdedup.evaluation.join import join
from streamdedup.evaluation.pairs import Pairs, ShingleSets, shingle_sets
from streamdedup.evaluation.rates import Rate
from streamdedup.similarity.containment import ContainmentRule
from streamdedup.similarity.lsh import Banding
from streamdedup.similarity.minhash import HashFamily
from streamdedup.similarity.sketch import keeps_hashes
from streamdedup.text.shingles import ShingleOptions, Shingler
from streamdedup.tuning.candidates import (
    ALL_PAIRS,
    DistinctSets,
    candidate_counts,
    distinct_sets,
    first_shared_bands,
    largest_bucket_of_each,
)
from streamdedup.tuning.capped import Scales, StormLimits, compared_shares

#: Bins of the distribution of similarity between 0 and 1.
BINS: Final = 20
#: Most pairs that are kept to measure recall; of more, each is kept with the same chance.
MOST_PAIRS: Final = 400_000
#: Seed of that chance: the same sample keeps the same pairs.
_SEED: Final = 1
#: Parts of the signatures with which documents without an alert are counted, at most.
_MOST_PARTS: Final = 8
#: Sets that are signed, or whose band keys are computed, at once.
_BATCH: Final = 500


class Recall(NamedTuple):
    """A banding's recall on the sample, of the pairs from a similarity on.

    Attributes:
        edited: Pairs of different sets, so of edited texts, and how many of these are candidates. A set pair counts
            once, however many documents have the sets.
        measured: Share of the document pairs, equal sets included, that become candidates; None without pairs.
        expected: The same share in theory: the mean over the pairs of P(s), the chance that a pair of similarity s
            becomes a candidate.
    """

    edited: Rate
    measured: float | None
    expected: float | None


class Study:
    """A sample with one shingle kind. A pair is *alerted* if it reaches the threshold or fulfils the containment rule.

    Args:
        texts: The sample, in the order of arrival.
        scopes: Scope of each text; empty without scopes.
        text_numbers: int64 (n,); numbers of the texts that are used, ascending; None for all.
        floor: Least similarity of joined pairs, above 0, at most 1. Pairs below it are unknown at any threshold.
        rule: Containment rule; None for no rule.
        min_words: Documents with fewer words are skipped.
        progress: Called with the count of newly joined documents.
        sets: The shingles of the used texts, if they are computed already; else None.

    Attributes:
        options, rule, floor, min_words, text_numbers: As passed; ``text_numbers`` is never None.
        sets, distinct: The shingles of the used texts, and the distinct sets among them.
        pairs: The kept pairs, at most ``MOST_PAIRS``, by the numbers of their sets in ``distinct``.
        counts: float64 (n_pairs, 2); document pairs that each kept pair represents: all, and those with one document in
            each half of the sample (a pair count, ``candidates``).
        histogram: float64 (BINS,); document pairs by similarity, equal sets in the last bin.
        shingle_s: Seconds to shingle the texts; 0 with known ``sets``.
        sign_s: Seconds that the daemon would take to sign all documents with all values of ``family``.
    """

    def __init__(  # noqa: PLR0913  ``texts``, ``scopes`` and ``text_numbers`` are one sample
        self,
        options: ShingleOptions,
        texts: Sequence[str],
        family: HashFamily,
        *,
        floor: float,
        rule: ContainmentRule | None = None,
        scopes: Sequence[str | None] = (),
        text_numbers: NDArray[np.int64] | None = None,
        min_words: int = 0,
        progress: Callable[[int], None] = lambda _: None,
        sets: ShingleSets | None = None,
    ) -> None:
        self.options = options
        self.rule = rule
        self.floor = floor
        self.min_words = min_words
        self.text_numbers = np.arange(len(texts)) if text_numbers is None else text_numbers
        started = time.perf_counter()
        numbers = self.text_numbers.tolist()
        used_scopes = [scopes[number] for number in numbers] if scopes else ()
        if sets is None:
            sets = shingle_sets(Shingler(options), [texts[number] for number in numbers], used_scopes)
        self.sets = sets
        self.shingle_s = time.perf_counter() - started
        self.distinct = distinct_sets(self.sets, min_words)
        distinct_count = len(self.distinct.first_documents)
        self.pairs, self.counts, self.histogram = _sample_pairs(self.distinct, floor, progress)
        # The join reported the distinct sets; copies and skipped documents need no join.
        progress(self.documents_count - distinct_count)
        started = time.perf_counter()
        self._signatures = self._signed(family)
        # Equal sets are signed once here; the daemon signs each document.
        self.sign_s = (time.perf_counter() - started) * self.indexed_count / max(distinct_count, 1)
        no_pair = np.zeros(len(self.pairs.left), np.bool_)
        self._by_rule = no_pair if rule is None else self.distinct.contained(self.pairs, rule)
        # By row count: the first band that each kept pair shares, or the number of all bands if it shares none.
        self._first_shared = cache(self._compute_first_shared)
        # The row count for which ``_first_shared`` was computed last, and its band keys, as many as the signature has
        # room for; ``band_keys`` takes a part of them. Keys of all row counts would take too much memory.
        self._last_keys: tuple[int, NDArray[np.uint32]] | None = None

    @property
    def documents_count(self) -> int:
        """Texts that are used."""
        return len(self.text_numbers)

    @property
    def indexed_count(self) -> int:
        """Used documents with shingles and at least ``min_words`` words: those that the daemon would index."""
        return int(self.distinct.copies.sum())

    @property
    def median_words(self) -> int:
        counts = self.sets.token_counts
        return int(np.median(counts)) if counts.size else 0

    @property
    def first_texts(self) -> NDArray[np.int64]:
        """Number in the sample of the first text with each distinct set, int64 (n_sets,)."""
        return self.text_numbers[self.distinct.first_documents]

    def as_text_pairs(self, pairs: Pairs) -> Pairs:
        """Return pairs of distinct sets as pairs of used texts: of the first text with each set."""
        documents = self.distinct.first_documents
        return pairs._replace(left=documents[pairs.left], right=documents[pairs.right])

    def alerted_mask(self, threshold: float) -> NDArray[np.bool_]:
        """Return whether each kept pair is alerted at a threshold, bool (n_pairs,)."""
        mask: NDArray[np.bool_] = (self.pairs.similarities >= threshold) | self._by_rule
        return mask

    def alerted_count(self, threshold: float) -> float:
        """Return the number of alerted document pairs, equal sets included."""
        return float(self.counts[self.alerted_mask(threshold), ALL_PAIRS].sum() + self.distinct.copy_pairs()[ALL_PAIRS])

    def exact_share(self, exact_limit: int | None) -> float:
        """Return the share of the indexed documents with at most ``exact_limit`` shingles; None for no limit."""
        stored = keeps_hashes(np.diff(self.distinct.offsets), exact_limit)
        return float(self.distinct.copies[stored].sum() / max(self.indexed_count, 1))

    def candidate_counts(self, banding: Banding) -> NDArray[np.float64]:
        """Return the pair count of the candidates with 0, 1, ... and all bands of a banding, float64 (bands + 1, 2)."""
        self._first_shared(banding.rows)  # for its side effect: it keeps the keys of these rows for ``band_keys``
        return candidate_counts(self.band_keys(banding), self.distinct)

    def candidate_mask(self, banding: Banding) -> NDArray[np.bool_]:
        """Return whether each kept pair becomes a candidate, bool (n_pairs,)."""
        mask: NDArray[np.bool_] = self._first_shared(banding.rows) < banding.bands
        return mask

    def recall(self, banding: Banding, recall_from: float) -> Recall:
        """Return the share of the pairs from a similarity on that become candidates, without limits for storms."""
        is_promised = self.pairs.similarities >= recall_from
        is_candidate = self.candidate_mask(banding)[is_promised]
        weights = self.counts[is_promised, ALL_PAIRS]
        chances = 1.0 - (1.0 - self.pairs.similarities[is_promised] ** banding.rows) ** banding.bands  # P(s)
        copy_pairs = float(self.distinct.copy_pairs()[ALL_PAIRS])  # equal sets share all bands
        total = float(weights.sum()) + copy_pairs
        edited = Rate.of_items(is_candidate)
        if not total:
            return Recall(edited, None, None)
        measured = (float(weights @ is_candidate) + copy_pairs) / total
        expected = (float(weights @ chances) + copy_pairs) / total
        return Recall(edited, measured, expected)

    def share_without_alert(self, banding: Banding, recall_from: float) -> float | None:
        """Return the share of documents without an alert: the banding finds none of their pairs from a similarity on.

        The share is of the documents with such pairs; None without pairs. All pairs of a document depend on one
        signature and are missed together, so one signature gives a coarse share. The result is the mean over several:
        signatures of 512 values are cut into 4 for a banding that needs 128, into ``_MOST_PARTS`` at most.
        """
        pairs, copies = self.pairs.where(self.pairs.similarities >= recall_from), self.distinct.copies
        width = banding.permutations
        is_paired = copies > 1  # a document and its copy are a pair
        is_paired[pairs.left] = is_paired[pairs.right] = True
        part_count = min(_MOST_PARTS, self._signatures.shape[1] // width)
        missed_count = 0
        for part in range(part_count):
            is_found = np.zeros(len(pairs.left), np.bool_)
            # Without the scopes: the documents of a kept pair have one scope, which changes their keys alike.
            for column in banding.band_keys(self._signatures[:, part * width : (part + 1) * width]).T:
                is_found |= column[pairs.left] == column[pairs.right]
            is_alerted = copies > 1  # copies of a text always find each other
            is_alerted[pairs.left[is_found]] = is_alerted[pairs.right[is_found]] = True
            missed_count += int(copies[is_paired & ~is_alerted].sum())
        paired_count = int(copies[is_paired].sum())
        return missed_count / part_count / paired_count if paired_count else None

    def compared_shares(
        self, banding: Banding, scales: Scales, limits: StormLimits, related_from: float = 0.0
    ) -> NDArray[np.float64]:
        """Return the chance S(j) of ``capped`` for each set, float64 (n_sets, bands + 1).

        ``scales.related`` is for copies and for the kept pairs that are alerted with ``related_from`` as the threshold,
        0 for all; ``scales.unrelated`` for all other candidates.
        """
        pairs = self.pairs.where(self.alerted_mask(related_from))
        # ``candidates`` codes a set pair as one number in this way.
        related = pairs.left * len(self.distinct.first_documents) + pairs.right
        return compared_shares(self.band_keys(banding), self.distinct, related, scales, limits)

    def found_share(self, banding: Banding, recall_from: float, shares: NDArray[np.float64]) -> float | None:
        """Return the share of the pairs from a similarity on that are candidates and compared; None without pairs.

        ``shares``: float64 (n_sets, bands + 1), from ``compared_shares``.
        """
        is_promised = self.pairs.similarities >= recall_from
        promised, weights = self.pairs.where(is_promised), self.counts[is_promised, ALL_PAIRS]
        keys, shared = self.band_keys(banding), np.zeros(len(promised.left), np.int64)
        for column in keys.T:
            shared += column[promised.left] == column[promised.right]
        # Either document may be the later one, which looks the other one up. A pair that shares no band is not found.
        compared = (shares[promised.left, shared] + shares[promised.right, shared]) / 2 * (shared > 0)
        copy_pairs = self.distinct.copies * (self.distinct.copies - 1) / 2
        total = float(weights.sum() + copy_pairs.sum())
        # Copies share all bands, the last column.
        return float(weights @ compared + copy_pairs @ shares[:, -1]) / total if total else None

    def alerted_candidates(self, threshold: float, banding: Banding) -> NDArray[np.float64]:
        """Return how many alerted pairs become candidates, as a pair count, float64 (2,); equal sets included."""
        is_alerted_candidate = self.alerted_mask(threshold) & self.candidate_mask(banding)
        pairs: NDArray[np.float64] = self.distinct.copy_pairs() + self.counts[is_alerted_candidate].sum(axis=0)
        return pairs

    def found_by_similarity(self, banding: Banding, bins: int) -> list[tuple[float, Rate]]:
        """Return the middle of each similarity bin with kept pairs, and the rate at which these become candidates."""
        is_candidate = self.candidate_mask(banding)
        bin_of = np.minimum((self.pairs.similarities * bins).astype(np.int64), bins - 1)
        return [
            ((number + 0.5) / bins, Rate.of_items(is_candidate[bin_of == number]))
            for number in np.unique(bin_of).tolist()
        ]

    def largest_bucket(self, banding: Banding) -> int:
        """Return the document count of the largest bucket, as if no ``bucket_cap`` limited it."""
        return int(largest_bucket_of_each(self.band_keys(banding), self.distinct).max(initial=0))

    def band_keys(self, banding: Banding) -> NDArray[np.uint32]:
        """Return the band keys of the distinct sets, uint32 (n_sets, bands); those of two scopes never agree."""
        if self._last_keys is not None:
            rows, last_keys = self._last_keys
            if rows == banding.rows and banding.bands <= last_keys.shape[1]:
                return last_keys[:, : banding.bands]
        parts = [np.empty((0, banding.bands), np.uint32)]
        parts += [
            banding.band_keys(self._signatures[low : low + _BATCH]) for low in range(0, len(self._signatures), _BATCH)
        ]
        keys = np.concatenate(parts)
        # The same mask as in the daemon. Without scopes all scope hashes are 0.
        scopes, numbers = np.unique(self.distinct.scopes, return_inverse=True)
        if scopes.any():
            keys ^= np.stack([band_mask(scope.tobytes(), banding.bands) for scope in scopes])[numbers]
        return keys

    def _compute_first_shared(self, rows: int) -> NDArray[np.int64]:
        keys = self.band_keys(Banding(self._signatures.shape[1] // rows, rows))
        self._last_keys = rows, keys
        return first_shared_bands(keys, self.pairs.left, self.pairs.right)

    def _signed(self, family: HashFamily) -> NDArray[np.uint32]:
        signed = [np.empty((0, family.permutations), np.uint32)]
        for low in range(0, len(self.distinct.first_documents), _BATCH):
            part = self.distinct.offsets[low : low + _BATCH + 1]
            signed.append(family.sign(self.distinct.hashes[part[0] : part[-1]], part - part[0]))
        return np.concatenate(signed)


def _sample_pairs(
    sets: DistinctSets, floor: float, progress: Callable[[int], None]
) -> tuple[Pairs, NDArray[np.float64], NDArray[np.float64]]:
    """Find the pairs by an exact join; return the attributes ``pairs``, ``counts`` and ``histogram`` of ``Study``.

    The histogram counts all pairs. Whenever more than ``MOST_PAIRS`` are kept, each is dropped with a chance of one
    half, and later pairs are kept with half the chance as before; so each kept pair represents some dropped ones.
    """
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
        while len(pairs.left) > MOST_PAIRS:
            pairs = pairs.where(random.random(len(pairs.left)) < 0.5)
            kept_share /= 2
    histogram[-1] += sets.copy_pairs()[ALL_PAIRS]
    return pairs, sets.pair_counts(pairs.left, pairs.right) / kept_share, histogram
