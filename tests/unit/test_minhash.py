"""Signatures against their definition, the textbook's example, and the statistics that the docstring promises."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from streamdedup.similarity import minhash
from streamdedup.similarity.minhash import DEFAULT_SEED, EMPTY, HashFamily, estimate, merge, standard_error

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
    def test_the_functions_of_the_default_seed_never_change(self):
        # High halves (made odd) and low halves of the generator's first three numbers.
        family = HashFamily(3)
        assert family.a.tolist() == [0x2CB0F69F, 0x94170347, 0xDD555951]
        assert family.b.tolist() == [0x4ABEA221, 0x23148989, 0x609DFE03]

    def test_the_generator_gives_the_published_splitmix64_numbers(self):
        # First outputs for seed 1234567, as published with the generator's reference implementation.
        expected = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431]
        assert minhash._splitmix64(1234567, 4).tolist() == expected

    def test_every_factor_is_odd_so_that_the_function_permutes(self):
        assert np.all(HashFamily(1000).a % 2 == 1)

    def test_a_smaller_family_is_the_beginning_of_a_larger_one(self):
        assert np.array_equal(HashFamily(5).a, FAMILY.a[:5])
        assert np.array_equal(HashFamily(5).b, FAMILY.b[:5])

    def test_another_seed_gives_other_functions(self):
        assert not np.array_equal(HashFamily(16, DEFAULT_SEED + 1).a, FAMILY.a)

    def test_the_functions_cannot_be_overwritten(self):
        with pytest.raises(ValueError, match="read-only"):
            FAMILY.a[0] = 1

    @pytest.mark.parametrize(
        ("arguments", "said"), [((0,), "at least 1"), ((-1,), "at least 1"), ((4, -1), "seed"), ((4, 2**64), "seed")]
    )
    def test_a_family_without_functions_and_a_seed_outside_64_bits_are_refused(self, arguments, said):
        with pytest.raises(ValueError, match=said):
            HashFamily(*arguments)


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

    @pytest.mark.parametrize(("permutations", "skip"), [(17, 0), (0, 0), (5, 5), (5, 6), (None, 16), (3, -1)])
    def test_functions_that_the_family_does_not_have_are_refused(self, permutations, skip):
        with pytest.raises(ValueError, match="family of 16"):
            FAMILY.sign(*batch_of([[1]]), permutations=permutations, skip=skip)

    @pytest.mark.parametrize("dtype", [np.int64, np.uint64, np.int32, np.float64])
    def test_hashes_of_another_type_are_refused(self, dtype):
        with pytest.raises(ValueError, match="uint32"):
            FAMILY.sign(np.zeros(3, dtype=dtype), np.array([0, 3]))

    @pytest.mark.parametrize("offsets", [[0, 4], [-1, 3], [0, 2, 1, 3], [], [0.0, 3.0], [[0, 3]]], ids=str)
    def test_offsets_that_do_not_fit_are_refused(self, offsets):
        with pytest.raises(ValueError, match="offsets"):
            FAMILY.sign(np.zeros(3, dtype=np.uint32), np.array(offsets))


class TestIncremental:
    @given(st.lists(st.tuples(hash_lists, hash_lists), min_size=1, max_size=6))
    def test_merging_gives_the_signatures_of_the_unions(self, pairs):
        known, more = zip(*pairs, strict=True)
        whole = sign([first + second for first, second in pairs])
        assert np.array_equal(merge(sign(known), sign(more)), whole)

    @given(hash_lists, hash_lists, hash_lists)
    def test_merging_is_the_union_in_any_order(self, first, second, third):
        a, b, c = sign([first]), sign([second]), sign([third])
        assert np.array_equal(merge(a, b), sign([first + second]))
        assert np.array_equal(merge(a, b), merge(b, a))
        assert np.array_equal(merge(merge(a, b), c), merge(a, merge(b, c)))
        assert np.array_equal(merge(a, a), a)

    def test_another_number_of_documents_is_refused(self):
        with pytest.raises(ValueError, match="cannot be compared"):
            merge(sign([[1], [2]]), sign([[3]]))


class TestTextbook:
    """S1 .. S4 over the rows 0 .. 4 under h1 = x + 1 mod 5 and h2 = 3x + 1 mod 5 (Leskovec/Rajaraman/Ullman, 3.3.5)."""

    SETS = ({0, 3}, {2}, {1, 3, 4}, {0, 2, 3})
    FUNCTIONS = (lambda x: (x + 1) % 5, lambda x: (3 * x + 1) % 5)

    def row_by_row(self):
        """Yield the signature matrix after each row: at first infinity, then the minimum with the row's hash values."""
        matrix = np.full((len(self.SETS), len(self.FUNCTIONS)), np.inf)
        for row in range(5):
            values = [function(row) for function in self.FUNCTIONS]
            for column, members in enumerate(self.SETS):
                if row in members:
                    matrix[column] = np.minimum(matrix[column], values)
            yield matrix.copy()

    def test_the_matrix_grows_as_the_book_shows(self):
        nothing = [math.inf, math.inf]
        after = [matrix.tolist() for matrix in self.row_by_row()]
        assert after[0] == [[1, 1], nothing, nothing, [1, 1]]
        assert after[1] == [[1, 1], nothing, [2, 4], [1, 1]]
        assert after[2] == [[1, 1], [3, 2], [2, 4], [1, 1]]
        assert after[3] == [[1, 0], [3, 2], [2, 0], [1, 0]]
        assert after[4] == [[1, 0], [3, 2], [0, 0], [1, 0]]

    @pytest.mark.parametrize(("other", "estimated", "true"), [(1, 0.0, 0.0), (2, 0.5, 1 / 4), (3, 1.0, 2 / 3)])
    def test_the_estimates_are_the_books(self, other, estimated, true):
        *_, matrix = self.row_by_row()
        signatures = matrix.astype(np.uint32)
        assert estimate(signatures[0], signatures[other]) == estimated
        assert len(self.SETS[0] & self.SETS[other]) / len(self.SETS[0] | self.SETS[other]) == true


class TestEstimate:
    def test_it_is_the_share_of_equal_positions(self):
        left = np.array([[1, 2, 3, 4, 5], [1, 1, 1, 1, 1]], dtype=np.uint32)
        right = np.array([[1, 2, 3, 4, 6], [2, 2, 2, 2, 2]], dtype=np.uint32)
        assert estimate(left, right).tolist() == [0.8, 0.0]

    def test_signatures_of_unequal_lengths_are_refused(self):
        with pytest.raises(ValueError, match="cannot be compared"):
            estimate(*(np.zeros((1, length), np.uint32) for length in (4, 5)))

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
