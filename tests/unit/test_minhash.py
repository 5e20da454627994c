"""Signatures against their definition, the textbook's example, and the statistics that the docstring promises."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from streamdedup.similarity import minhash
from streamdedup.similarity.minhash import EMPTY, HashFamily, estimate, standard_error

FAMILY = HashFamily(16)
hash_lists = st.lists(st.integers(0, 2**32 - 1), max_size=40)
batches = st.lists(hash_lists, min_size=1, max_size=8)


def batch_of(documents):
    """Concatenate lists of hashes, the arguments of `sign`."""
    return np.array(list(itertools.chain(*documents)), np.uint32), np.cumsum([0, *map(len, documents)])


def sign(documents):
    return FAMILY.sign(*batch_of(documents))


def signature_by_definition(hashes):
    functions = zip(FAMILY.a.tolist(), FAMILY.b.tolist(), strict=True)
    return [min(((a * x + b) % 2**32 for x in hashes), default=EMPTY) for a, b in functions]


class TestFamily:
    def test_the_generator_gives_the_published_splitmix64_numbers(self):
        # First outputs for seed 1234567, as published with the generator's reference implementation.
        expected = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431]
        assert minhash._splitmix64(1234567, 4).tolist() == expected


class TestSign:
    @given(batches)
    @example([[]])
    @example([[], []])
    @example([[], [7]])
    @example([[7], []])
    @example([[], [7], [], [], [9, 8], []])
    @example([[3, 1, 2, 3, 3, 1], [1, 2, 3]])
    def test_it_is_the_minimum_of_each_function_over_each_document_or_the_neutral_value(self, documents):
        assert sign(documents).tolist() == [signature_by_definition(one) for one in documents]

    def test_a_batch_without_documents_has_no_signatures(self):
        assert sign([]).shape == (0, 16)

    def test_chunks_and_blocks_leave_no_trace(self, monkeypatch):
        random = np.random.default_rng(3)
        sizes = [1, 2, 3, 0, 500, 1, 40, 0, 0, 7, 300, 5]
        documents = [random.integers(0, 2**32, size, dtype=np.uint32).tolist() for size in sizes]
        expected = sign(documents)
        for chunk, block in itertools.product((1, 8, 400), (1, 50, 3000)):
            monkeypatch.setattr(minhash, "_CHUNK_SHINGLES", chunk)
            monkeypatch.setattr(minhash, "_BLOCK_PRODUCTS", block)
            assert np.array_equal(sign(documents), expected)

    def test_documents_may_be_a_part_of_the_hashes(self):
        hashes = np.arange(10, dtype=np.uint32)
        part = FAMILY.sign(hashes, np.array([3, 5, 5, 8]))
        assert np.array_equal(part, sign([[3, 4], [], [5, 6, 7]]))

    def test_a_range_of_functions_gives_that_range_of_the_signature(self):
        batch = batch_of([[1, 2, 3], [], [9]])
        whole = FAMILY.sign(*batch)
        assert np.array_equal(FAMILY.sign(*batch, permutations=5), whole[:, :5])
        assert np.array_equal(FAMILY.sign(*batch, skip=5), whole[:, 5:])
        assert np.array_equal(FAMILY.sign(*batch, permutations=9, skip=8), whole[:, 8:9])


class TestEstimate:
    def test_it_is_the_share_of_equal_positions(self):
        left = np.array([[1, 2, 3, 4, 5], [1, 1, 1, 1, 1]], dtype=np.uint32)
        right = np.array([[1, 2, 3, 4, 6], [2, 2, 2, 2, 2]], dtype=np.uint32)
        assert estimate(left, right).tolist() == [0.8, 0.0]

    def test_the_standard_error_is_binomial(self):
        assert standard_error(0.8, 128) == pytest.approx(0.0353553, abs=1e-6)
        assert standard_error(1.0, 128) == 0.0
        assert standard_error(0.0, 128) == 0.0

    @pytest.mark.parametrize("shingles", [20, 60, 200, 800])
    @pytest.mark.parametrize("similarity", [0.5, 0.6, 0.7, 0.8, 0.9])
    def test_it_is_unbiased_and_scatters_as_theory_says(self, similarity, shingles):
        # 400 pairs of sets of random hashes, each set of `shingles` elements, with exactly the similarity `true`.
        pairs, family = 400, HashFamily(128)
        random = np.random.default_rng([shingles, round(similarity * 10)])
        common = round(2 * shingles * similarity / (1 + similarity))
        true = common / (2 * shingles - common)
        drawn = random.integers(0, 2**32, (pairs, 2 * shingles - common), dtype=np.uint32)
        offsets = np.arange(pairs + 1) * shingles
        left = family.sign(np.ascontiguousarray(drawn[:, :shingles]).reshape(-1), offsets)
        right = family.sign(np.ascontiguousarray(drawn[:, -shingles:]).reshape(-1), offsets)
        estimates = estimate(left, right)
        error = standard_error(true, 128)
        assert abs(estimates.mean() - true) < 4 * error / math.sqrt(pairs)
        # The sample's standard deviation itself scatters by about 1 / sqrt(2 * pairs) = 3.5 %.
        assert estimates.std(ddof=1) == pytest.approx(error, rel=0.16)
