"""Band keys against zlib, the collision curve against the textbook and signatures, and the choice of a banding."""

import itertools
import math
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from streamdedup.similarity import lsh
from streamdedup.similarity.lsh import Banding, banding_cost, choose_banding, false_candidates, shared_bands
from streamdedup.similarity.minhash import HashFamily
from tests.thoroughness import examples

bandings = st.builds(Banding, bands=st.integers(1, 20), rows=st.integers(1, 8))


def keys_by_zlib(banding, signatures):
    width = 4 * banding.rows
    octets = [row[: banding.permutations].astype("<u4").tobytes() for row in signatures]
    return [[zlib.crc32(one[at : at + width]) for at in range(0, banding.bands * width, width)] for one in octets]


class TestBandKeys:
    @given(bandings, st.integers(0, 3), st.integers(0, 5), st.data())
    def test_they_are_zlibs_crc32_of_little_endian_values(self, banding, documents, unused, data):
        shape = (documents, banding.permutations + unused)
        signatures = data.draw(arrays.arrays(np.uint32, shape))
        keys = banding.band_keys(signatures)
        assert keys.dtype == np.uint32
        assert keys.shape == (documents, banding.bands)
        assert keys.tolist() == keys_by_zlib(banding, signatures)


class TestSharedBands:
    def test_equal_keys_of_the_same_band_are_counted(self):
        left = np.array([[1, 2, 3], [1, 2, 3], [1, 2, 3]], dtype=np.uint32)
        right = np.array([[1, 2, 3], [3, 1, 2], [9, 2, 3]], dtype=np.uint32)
        assert shared_bands(left, right).tolist() == [3, 0, 2]


class TestProbability:
    @pytest.mark.parametrize(
        ("similarity", "probability"),
        # "Mining of Massive Datasets", figure 3.8: 20 bands of 5 rows.
        [(0.2, 0.006), (0.3, 0.047), (0.4, 0.186), (0.5, 0.470), (0.6, 0.802), (0.7, 0.975), (0.8, 0.9996)],
    )
    def test_it_is_the_textbooks_table(self, similarity, probability):
        assert Banding(20, 5).probability(similarity) == pytest.approx(probability, abs=5e-4)

    @given(bandings, st.floats(0, 1), st.data())
    def test_at_least_m_bands_is_the_upper_tail_of_the_binomial(self, banding, similarity, data):
        shared = data.draw(st.integers(1, banding.bands))
        p = similarity**banding.rows
        tail = sum(
            math.comb(banding.bands, i) * p**i * (1 - p) ** (banding.bands - i)
            for i in range(shared, banding.bands + 1)
        )
        assert banding.probability(similarity, shared) == pytest.approx(tail, abs=1e-12)

    def test_a_tiny_miss_is_not_rounded_away(self):
        assert Banding(128, 1).miss(0.8) == pytest.approx(0.2**128)

    @pytest.mark.parametrize("shared", [1, 2, 3])
    @pytest.mark.parametrize("banding", [Banding(9, 4), Banding(12, 5), Banding(16, 6)], ids=str)
    @pytest.mark.parametrize("common", [50, 62, 70, 75])
    def test_as_many_pairs_become_candidates_as_the_curve_says(self, banding, common, shared):
        # 2,000 pairs of sets of random hashes: `common` in both, `apart` more in each.
        pairs, apart = 2000, (100 - common) // 2
        random = np.random.default_rng([common, banding.bands])
        drawn = random.integers(0, 2**32, (pairs, common + 2 * apart), dtype=np.uint32)
        offsets = np.arange(pairs + 1) * (common + apart)
        family = HashFamily(96)
        left = family.sign(drawn[:, : common + apart].ravel(), offsets)
        right = family.sign(drawn[:, apart:].ravel(), offsets)
        agreed = shared_bands(banding.band_keys(left), banding.band_keys(right))
        expected = banding.probability(common / (common + 2 * apart), shared)
        bound = 4 * math.sqrt(expected * (1 - expected) / pairs) + 1 / pairs
        assert abs((agreed >= shared).mean() - expected) < bound


class TestChoice:
    def test_the_default_settings_get_nine_bands_of_four_rows(self):
        assert choose_banding(0.8, 0.99) == Banding(9, 4)

    @pytest.mark.parametrize(
        ("documents", "banding"),
        [(50_000, Banding(7, 3)), (300_000, Banding(9, 4)), (1_000_000, Banding(12, 5)), (3_000_000, Banding(16, 6))],
    )
    def test_more_false_candidates_get_more_selective_bands(self, monkeypatch, documents, banding):
        # The false candidates of an index of so many documents.
        weight = lsh.FALSE_CANDIDATE_WEIGHT * documents / lsh.REFERENCE_DOCUMENTS
        monkeypatch.setattr(lsh, "FALSE_CANDIDATE_WEIGHT", weight)
        assert choose_banding(0.8, 0.99) == banding

    @settings(max_examples=examples(50))
    @given(st.floats(0.3, 1), st.floats(0.5, 0.999), st.integers(16, 64), st.integers(1, 3))
    def test_it_is_the_cheapest_one_of_all_that_reach_the_recall(self, threshold, min_recall, permutations, shared):
        reaching = [
            banding
            for bands, rows in itertools.product(range(shared, permutations + 1), range(1, permutations + 1))
            if (banding := Banding(bands, rows)).permutations <= permutations
            and banding.miss(threshold, shared) <= 1 - min_recall
        ]
        if not reaching:
            with pytest.raises(ValueError, match="no bands within"):
                choose_banding(threshold, min_recall, permutations, shared)
            return
        chosen = choose_banding(threshold, min_recall, permutations, shared)
        assert chosen in reaching
        assert chosen.probability(threshold, shared) >= min_recall - 1e-12
        costs = [one.bands + lsh.FALSE_CANDIDATE_WEIGHT * false_candidates(one, threshold) for one in reaching]
        assert banding_cost(chosen, threshold) == min(costs)

    def test_the_model_agrees_with_the_pairs_counted_in_reuters(self):
        # 2 x the candidate pairs below 0.8 among 19,043 articles / 19,043, as `banding_cost` lists them.
        for banding, pairs in ((Banding(9, 4), 1188), (Banding(12, 5), 643), (Banding(16, 6), 446)):
            counted = 2 * pairs / 19_043
            assert false_candidates(banding, 0.8, index_documents=19_043) == pytest.approx(counted, rel=0.15)

    def test_false_candidates_grow_with_the_index_and_the_threshold(self):
        banding = Banding(9, 4)
        assert false_candidates(banding, 0.8, 200) == pytest.approx(2 * false_candidates(banding, 0.8, 100))
        assert false_candidates(banding, 0.7) < false_candidates(banding, 0.75) < false_candidates(banding, 0.8)
        assert false_candidates(banding, 0.0) == 0.0

    def test_exact_copies_need_one_band(self):
        assert choose_banding(1.0, 1.0).bands == 1

    def test_an_unreachable_recall_is_refused_with_advice(self):
        with pytest.raises(ValueError, match=r"within 8 permutations.*0\.999.*0\.3.*raise recall_from or permutations"):
            choose_banding(0.3, 0.999, max_permutations=8)
