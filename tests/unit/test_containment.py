"""Containment of sets, bags and signatures, its standard error, and the rule by which pairs are alerted."""

from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from streamdedup.similarity.containment import ContainmentRule, drawn_overlaps
from streamdedup.similarity.minhash import HashFamily, estimate
from streamdedup.similarity.sketch import Sketcher
from streamdedup.text.runs import offsets_of
from streamdedup.text.shingles import ShingleOptions, Shingler
from tests.thoroughness import examples

SETS = st.frozensets(st.integers(0, 14) | st.integers(2**32 - 3, 2**32 - 1), max_size=12)
WORDS = st.lists(st.sampled_from(["red", "green", "blue"]), min_size=1, max_size=12)
#: Sizes of the common part and of both rests; the sets of a pair that is estimated.
SIZES = st.tuples(st.integers(100, 400), st.integers(0, 100), st.integers(0, 400))


def compared(sketcher, *sets):
    """Compare two sets."""
    hashes = np.array([value for one in sets for value in sorted(one)], np.uint32)
    offsets = offsets_of(np.array([len(one) for one in sets], np.int64))
    (left, right), _ = sketcher.sketch(hashes, offsets)
    return sketcher.similarities([left], [right], [(0, 0)])


def standard_error(containment, similarity, permutations):
    """Return the standard error of a containment that is estimated by signatures: C sqrt((1 - C) / (K J))."""
    return float(containment * np.sqrt((1.0 - containment) / (permutations * similarity))) if similarity else 0.0


class TestExact:
    @given(SETS, SETS)
    def test_it_is_the_share_of_the_smaller_set_correctly_rounded_and_never_below_the_similarity(self, a, b):
        found = compared(Sketcher(HashFamily(8), None, 8), a, b)
        smaller, containment = min(len(a), len(b)), found.overlaps.containments()[0]
        assert containment == (float(Fraction(len(a & b), smaller)) if smaller else 0.0)
        assert found.smaller_counts[0] == smaller
        assert containment >= found.values[0]
        side = "both" if len(a) == len(b) else "left" if len(a) < len(b) else "right"
        assert found.overlaps.smaller_sides() == [side]

    @given(WORDS, WORDS)
    def test_in_bags_it_is_the_sum_of_the_minima_over_the_size_of_the_smaller_bag(self, a, b):
        batch = Shingler(ShingleOptions(unit="word", size=1, bag=True)).shingle([" ".join(a), " ".join(b)])
        sketcher = Sketcher(HashFamily(8), None, 8)
        (left, right), _ = sketcher.sketch(batch.hashes, batch.offsets)
        common = (Counter(a) & Counter(b)).total()
        found = sketcher.similarities([left], [right], [(0, 0)]).overlaps.containments()[0]
        assert found == common / min(len(a), len(b))


class TestEstimated:
    @given(SETS, SETS)
    @example(frozenset({1, 4, 12, 13, 4294967293}), frozenset({8}))
    def test_it_is_the_share_of_the_drawn_elements_of_the_smaller_set(self, a, b):
        family = HashFamily(32)
        found = compared(Sketcher(family, 0, 8), a, b)
        if not a or not b:
            assert (found.overlaps.containments()[0], found.overlaps.standard_errors()[0]) == (0.0, 0.0)
            return
        signatures = [family.sign(np.array(sorted(one), np.uint32), np.array([0, len(one)])) for one in (a, b)]
        union = np.minimum(*signatures)
        drawn = [int((signature == union).sum()) for signature in signatures]
        both = int((signatures[0] == signatures[1]).sum())
        assert [part.tolist() for part in found.overlaps] == [[both], [drawn[0]], [drawn[1]]]
        # Where no element of a small set was drawn, nothing is known of it.
        share = both / min(drawn) if min(drawn) else 0.0
        assert found.overlaps.containments()[0] == share
        assert found.values[0] == estimate(*signatures)[0]
        error = standard_error(share, float(found.values[0]), 32)
        assert found.overlaps.standard_errors()[0] == pytest.approx(error)
        assert found.overlaps.containments()[0] >= 2 * found.values[0] / (1 + found.values[0]) - 1e-12

    def test_a_contained_set_has_the_containment_one_and_no_error(self):
        found = compared(Sketcher(HashFamily(64), 0, 8), range(0, 1000, 3), range(1000))
        assert found.overlaps.containments()[0] == 1.0
        assert found.overlaps.smaller_sides()[0] == "left"
        assert found.overlaps.standard_errors()[0] == standard_error(1.0, float(found.values[0]), 64) == 0.0

    def test_the_smaller_count_is_that_of_the_set_and_not_of_its_drawn_elements(self):
        found = compared(Sketcher(HashFamily(64), 400, 8), range(334), range(1000))
        assert (found.exact[0], found.smaller_counts[0]) == (False, 334)

    @settings(max_examples=examples(25))
    @given(SIZES, st.integers(0, 2**32))
    def test_estimates_differ_from_the_exact_value_by_their_standard_error(self, sizes, seed):
        """Over many hash families: mean within its own error, and the spread that the formula states."""
        permutations, families = 128, 100
        common, left_only, right_only = sizes
        values = np.random.default_rng(seed).choice(2**32, common + left_only + right_only, replace=False)
        left = np.sort(values[: common + left_only]).astype(np.uint32)
        right = np.sort(np.concatenate((values[:common], values[common + left_only :]))).astype(np.uint32)
        similarity, smaller = common / len(values), min(len(left), len(right))
        exact = common / smaller
        error = standard_error(exact, similarity, permutations)
        found = []
        for family in (HashFamily(permutations, seed + number) for number in range(families)):
            signed = [family.sign(one, np.array([0, len(one)])) for one in (left, right)]
            found.append(float(drawn_overlaps(*signed).containments()[0]))
        # The side with fewer drawn elements is taken for the smaller one: between equal sizes up to one error too much.
        assert -5 * error / np.sqrt(families) - 1e-9 <= np.mean(found) - exact <= error + 1e-9
        assert 0.5 * error - 1e-9 <= np.std(found) <= 1.5 * error + 1e-9


class TestRule:
    @pytest.mark.parametrize(
        ("containment", "size", "held"),
        [(0.8, 10, True), (0.79, 10, False), (0.8, 9, False), (0.95, 1000, True)],
    )
    def test_it_needs_containment_and_size(self, containment, size, held):
        assert ContainmentRule(0.8, 10).holds(np.array([containment]), np.array([size])).tolist() == [held]
