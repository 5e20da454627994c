"""Similarity measures: exact values, bounds, and a further measure in detection and evaluation."""

import itertools
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamdedup.evaluation.join import join
from streamdedup.evaluation.pairs import Pairs
from streamdedup.similarity.measures import MEASURES, OverlapBounds, intersection_size, jaccard
from streamdedup.similarity.minhash import HashFamily
from streamdedup.similarity.sketch import Sketch, Sketcher

SETS = st.frozensets(st.integers(0, 14) | st.integers(2**32 - 3, 2**32 - 1), max_size=12)
THRESHOLDS = st.sampled_from([0.05, 0.3, 0.5, 2 / 3, 0.75, 0.8, 0.9, 1.0])


def overlap(common, left, right):
    smaller = np.minimum(left, right)
    return np.divide(common, smaller, out=np.zeros(len(smaller)), where=smaller > 0)


OVERLAP = replace(
    MEASURES["set"],
    exact=overlap,
    bounds=lambda similarity: OverlapBounds(0.0, 0.0, similarity),
    least_jaccard=lambda _: 0.1,
)
ALL = [*MEASURES.values(), OVERLAP]


def array_of(elements):
    return np.array(sorted(elements), np.uint32)


def exact(measure, a, b):
    numbers = intersection_size(array_of(a), array_of(b)), len(a), len(b)
    return float(measure.exact(*(np.array([number]) for number in numbers))[0])


@given(SETS, SETS)
def test_jaccard_is_the_intersection_over_the_union_correctly_rounded(a, b):
    assert exact(MEASURES["set"], a, b) == (float(Fraction(len(a & b), len(a | b))) if a | b else 0.0)


@pytest.mark.parametrize("measure", ALL)
@given(a=SETS, b=SETS)
def test_a_measure_is_symmetric_and_one_for_equal_sets(measure, a, b):
    assert exact(measure, a, b) == exact(measure, b, a)
    assert exact(measure, a, a) == (1.0 if a else 0.0)


@pytest.mark.parametrize("measure", ALL)
@given(a=SETS, b=SETS)
def test_every_pair_keeps_to_the_bounds_of_its_similarity(measure, a, b):
    smaller, larger = sorted((a, b), key=len)
    similarity = exact(measure, a, b)
    if similarity:
        bounds = measure.bounds(similarity)
        assert len(smaller) >= bounds.size * len(larger) - 1e-9
        assert len(a & b) >= bounds.of_larger * len(larger) - 1e-9
        assert len(a & b) >= bounds.of_smaller * len(smaller) - 1e-9


@given(st.lists(SETS, max_size=20), THRESHOLDS)
def test_the_exact_join_finds_all_pairs_by_another_measure(sets, threshold):
    hashes = np.concatenate([np.empty(0, np.uint32), *map(array_of, sets)])
    offsets = np.append(0, np.cumsum([len(one) for one in sets])).astype(np.int64)
    pairs = Pairs.concatenated(join(hashes, offsets, threshold, measure=OVERLAP))
    found = dict(zip(zip(pairs.left.tolist(), pairs.right.tolist(), strict=True), pairs.similarities, strict=True))
    every = {(i, j): exact(OVERLAP, sets[i], sets[j]) for i, j in itertools.combinations(range(len(sets)), 2)}
    assert found == {pair: similarity for pair, similarity in every.items() if similarity >= threshold}


def test_sketches_are_compared_by_the_measure_of_the_sketcher():
    small, large = (Sketch(count, hashes=np.arange(count, dtype=np.uint32)) for count in (4, 16))
    sketcher = Sketcher(HashFamily(8), None, 8, OVERLAP)
    assert sketcher.similarities([small], [large], [(0, 0)]).values.tolist() == [1.0]


def test_the_bag_measure_counts_repetitions_and_is_jaccard_otherwise():
    assert [measure.bag for measure in MEASURES.values()] == [False, True]
    assert {measure.exact for measure in MEASURES.values()} == {jaccard}
