"""Sketches: their content, exact and estimated similarity."""

import copy
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamdedup.similarity.minhash import EMPTY, HashFamily, estimate
from streamdedup.similarity.sketch import Sketch, Sketcher

FAMILY = HashFamily(32)
hash_sets = st.frozensets(st.integers(0, 60) | st.integers(0, 2**32 - 1), max_size=25)
limits = st.none() | st.integers(0, 12)


def batch_of(sets):
    return np.array([value for one in sets for value in sorted(one)], np.uint32), np.cumsum([0, *map(len, sets)])


def sketches_of(sets, limit):
    return list(Sketcher(FAMILY, limit, 8).sketch(*batch_of(sets))[0])


def one_by_one(side):
    return [(i, i) for i in range(len(side))]


def by_hashes(*hashes):
    return Sketch(len(hashes), hashes=np.array(hashes, dtype=np.uint32))


def by_signature(count, *values):
    return Sketch(count, signature=np.array(values, dtype=np.uint32))


def true_similarity(left, right):
    return len(left & right) / len(left | right) if left | right else 0.0


class TestMake:
    @given(st.lists(hash_sets, min_size=1, max_size=8), limits, st.integers(1, 32))
    def test_sets_within_the_limit_are_kept_and_larger_ones_signed(self, sets, limit, banded):
        sketches, prefixes = Sketcher(FAMILY, limit, banded).sketch(*batch_of(sets))
        signatures = FAMILY.sign(*batch_of(sets))
        assert np.array_equal(prefixes, signatures[:, :banded])
        for one, sketch, signature in zip(sets, sketches, signatures, strict=True):
            assert sketch.count == (len(one) if limit is None else min(len(one), limit + 1))
            if limit is None or (limit > 0 and len(one) <= limit):
                assert sketch.hashes.tolist() == sorted(one)
                assert sketch.signature is None
            else:
                assert sketch.hashes is None
                assert np.array_equal(sketch.signature, signature)

    def test_a_limit_of_zero_keeps_the_signature_of_a_document_without_shingles_too(self):
        (sketch,) = sketches_of([set()], 0)
        assert sketch == by_signature(0, *[EMPTY] * 32)

    def test_an_empty_batch_makes_nothing(self):
        sketches, prefixes = Sketcher(FAMILY, 10, 8).sketch(np.zeros(0, np.uint32), np.zeros(1, np.int64))
        assert list(sketches) == []
        assert prefixes.shape == (0, 8)

    @pytest.mark.parametrize("limit", [None, 0])
    def test_a_sketch_keeps_none_of_the_batchs_memory(self, limit):
        hashes, offsets = batch_of([{1, 2, 3}, {4}])
        sketches, prefixes = Sketcher(FAMILY, limit, 32).sketch(hashes, offsets)
        before = copy.deepcopy([(one.hashes, one.signature) for one in sketches])
        hashes[:] = 9
        prefixes[:] = 9
        assert repr([(one.hashes, one.signature) for one in sketches]) == repr(before)
        for one in sketches:
            values = one.signature if one.hashes is None else one.hashes
            assert values.base is None


class TestSignatures:
    @given(st.lists(hash_sets, max_size=6), limits, st.integers(1, 32))
    def test_they_are_the_same_whether_kept_or_computed(self, sets, limit, permutations):
        sketches = sketches_of(sets, limit)
        computed = Sketcher(FAMILY, limit, 8).signatures(sketches, permutations)
        assert np.array_equal(computed, FAMILY.sign(*batch_of(sets), permutations=permutations))

    def test_a_signature_of_another_length_is_refused(self):
        with pytest.raises(ValueError, match="3 values in an index of 32"):
            Sketcher(FAMILY, 0, 8).signatures([by_signature(5, 1, 2, 3)], 2)


class TestSimilarities:
    @staticmethod
    def sides(pairs):
        """Return the sketches of two sets, under a limit each, for every pair."""
        left = [sketches_of([one], limit)[0] for one, _, limit, _ in pairs]
        return left, [sketches_of([other], limit)[0] for _, other, _, limit in pairs]

    @given(st.lists(st.tuples(hash_sets, hash_sets, limits, limits), max_size=8))
    def test_any_other_pair_is_estimated_from_both_signatures(self, pairs):
        left, right = self.sides(pairs)
        result = Sketcher(FAMILY, None, 8).similarities(left, right, one_by_one(left))
        for i, (one, other, *_) in enumerate(pairs):
            if left[i].hashes is not None and right[i].hashes is not None:
                assert result.exact[i]
                assert result.values[i] == true_similarity(one, other)
            else:
                signatures = FAMILY.sign(*batch_of([one, other]))
                assert not result.exact[i]
                assert result.values[i] == (estimate(*signatures) if one and other else 0.0)

    @given(st.lists(st.tuples(hash_sets, hash_sets, limits, limits), min_size=1, max_size=6))
    def test_neither_the_sides_nor_the_batch_change_a_value(self, pairs):
        sketcher = Sketcher(FAMILY, None, 8)
        left, right = self.sides(pairs)
        whole = sketcher.similarities(left, right, one_by_one(left))
        swapped = sketcher.similarities(right, left, one_by_one(left))
        single = [sketcher.similarities([one], [other], [(0, 0)]) for one, other in zip(left, right, strict=True)]
        assert swapped.values.tolist() == whole.values.tolist()
        assert swapped.overlaps.containments().tolist() == whole.overlaps.containments().tolist()
        assert swapped.smaller_counts.tolist() == whole.smaller_counts.tolist()
        other_side = {"left": "right", "right": "left", "both": "both"}
        assert [other_side[side] for side in swapped.overlaps.smaller_sides()] == whole.overlaps.smaller_sides()
        assert [one.values[0] for one in single] == whole.values.tolist()
        assert [one.overlaps.containments()[0] for one in single] == whole.overlaps.containments().tolist()
        assert [one.exact[0] for one in single] == whole.exact.tolist()

    def test_one_sketch_in_many_pairs_is_signed_once(self):
        one, *others = sketches_of([range(20), range(2, 22), range(4, 24)], None)
        long = sketches_of([range(21)], 0)[0]
        sketcher = Sketcher(FAMILY, None, 8)
        asked = []
        sketcher.signatures = lambda sketches, permutations: (
            asked.append(len(sketches)) or Sketcher.signatures(sketcher, sketches, permutations)
        )
        sketcher.similarities([long], [one, *others], [(0, 0), (0, 1), (0, 2), (0, 0)])
        assert asked == [4]

    def test_many_estimated_pairs_take_bounded_memory_and_get_the_values_of_single_pairs(self):
        family = HashFamily(1_024, 7)
        sketcher = Sketcher(family, 0, 8)
        sketches, _ = sketcher.sketch(*batch_of([range(i, i + 50) for i in range(100)]))
        pairs = [(i, j) for i in range(100) for j in range(100)]
        sketcher.similarities(sketches[:1], sketches[:1], [(0, 0)])
        tracemalloc.start()
        result = sketcher.similarities(sketches, sketches, pairs)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 25_000_000
        for row in range(0, len(pairs), 999):
            i, j = pairs[row]
            single = sketcher.similarities([sketches[i]], [sketches[j]], [(0, 0)])
            assert single.values[0] == result.values[row]
            assert [numbers[0] for numbers in single.overlaps] == [numbers[row] for numbers in result.overlaps]

    @pytest.mark.parametrize("limits", [(None, None), (None, 0), (0, None), (0, 0)], ids=str)
    def test_documents_without_shingles_have_nothing_in_common(self, limits):
        left, right = (sketches_of([set()], limit) for limit in limits)
        assert Sketcher(FAMILY, None, 8).similarities(left, right, one_by_one(left)).values.tolist() == [0.0]
