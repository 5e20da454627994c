"""The exact join against a comparison of all pairs, written out."""

import itertools
from collections import Counter
from fractions import Fraction
from importlib import resources

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamdedup.corpora import CorpusReader
from streamdedup.evaluation import join as join_module
from streamdedup.evaluation.join import join
from streamdedup.evaluation.pairs import Pairs, ShingleSets, shingle_sets, similarities
from streamdedup.text.shingles import ShingleOptions, Shingler


def arrays_of(sets):
    hashes = [np.array(sorted(one), np.uint32) for one in sets]
    offsets = np.append(0, np.cumsum([len(one) for one in sets])).astype(np.int64)
    return np.concatenate([np.empty(0, np.uint32), *hashes]), offsets


def brute_force(sets, threshold):
    pairs = {}
    for (i, a), (j, b) in itertools.combinations(enumerate(sets), 2):
        similarity = float(Fraction(len(a & b), len(a | b))) if a and b else 0.0
        if similarity >= threshold:
            pairs[i, j] = similarity
    return pairs


def joined(sets, threshold):
    hashes, offsets = arrays_of(sets)
    pairs = Pairs.concatenated(join(hashes, offsets, threshold))
    found = list(zip(pairs.left.tolist(), pairs.right.tolist(), strict=True))
    assert len(set(found)) == len(found)
    return dict(zip(found, pairs.similarities.tolist(), strict=True))


#: Few elements, so that sets overlap; large ones among them, so that nothing is read as signed or small.
ELEMENTS = st.one_of(st.integers(0, 12), st.integers(2**32 - 4, 2**32 - 1))
THRESHOLDS = st.sampled_from([0.05, 0.3, 0.5, 2 / 3, 0.7, 0.75, 0.8, 0.9, 1.0])


@given(st.lists(st.frozensets(ELEMENTS, max_size=14), max_size=25), THRESHOLDS)
def test_the_join_is_the_comparison_of_all_pairs(sets, threshold):
    assert joined(sets, threshold) == brute_force(sets, threshold)


@given(st.lists(st.frozensets(ELEMENTS, max_size=14), max_size=25), THRESHOLDS, st.integers(1, 5), st.integers(1, 50))
def test_it_is_so_however_many_elements_the_prefixes_must_share(sets, threshold, per_need, few):
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(join_module, "_ELEMENTS_PER_NEED", per_need)
        patched.setattr(join_module, "_COUNT_IN_ARRAY_FROM", 1 / few)
        assert joined(sets, threshold) == brute_force(sets, threshold)


@pytest.mark.parametrize("threshold", [0.3, 0.5, 0.8])
def test_it_is_so_however_small_the_steps_are(monkeypatch, threshold):
    monkeypatch.setattr(join_module, "_STEP_ELEMENTS", 3)
    monkeypatch.setattr(join_module, "_LOOKUP_SETS", 2)
    monkeypatch.setattr(join_module, "_BLOCK_PAIRS", 2)
    draw = np.random.default_rng(4)
    sets = [frozenset(draw.choice(30, draw.integers(0, 12), replace=False).tolist()) for _ in range(80)]
    sets += sets[:10]
    expected = brute_force(sets, threshold)
    assert joined(sets, threshold) == expected
    assert len(expected) >= 10
    hashes, offsets = arrays_of(sets)
    blocks = [len(block.left) for block in join(hashes, offsets, threshold)]
    assert len(blocks) > 3


@pytest.mark.parametrize(
    ("threshold", "smaller", "larger"),
    [
        # In floating-point numbers 63 * (2 * 0.8 / 1.8) is above 56, and 100 * 0.55 above 55.
        (0.8, range(63), range(7, 70)),
        (0.55, range(55), range(100)),
    ],
)
def test_a_pair_exactly_at_the_threshold_is_found_where_the_bounds_are_rounded_up(threshold, smaller, larger):
    assert joined([frozenset(smaller), frozenset(larger)], threshold) == {(0, 1): threshold}


def test_progress_is_reported_until_all_sets_are_done():
    told = []
    hashes, offsets = arrays_of([frozenset({1, 2}), frozenset({2, 3}), frozenset({1, 2}), frozenset()])
    list(join(hashes, offsets, 0.5, told.append))
    assert sum(told) == 2


def sample_texts(name):
    path = str(resources.files("streamdedup").joinpath(f"sample/{name}.jsonl"))
    return [entry.text for entry in CorpusReader(path) if entry.problem is None and entry.op == "upsert"]


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("articles", ShingleOptions()),
        ("articles", ShingleOptions(unit="char", size=9)),
        ("reviews", ShingleOptions(unit="char", size=5)),
        ("reviews", ShingleOptions(unit="char", size=2, bag=True)),
    ],
)
def test_the_sample_has_the_pairs_that_comparing_all_texts_gives(name, options):
    texts = sample_texts(name)
    shingler = Shingler(options)
    sets = ShingleSets.concatenated(shingle_sets(shingler, texts[at : at + 50]) for at in range(0, len(texts), 50))
    plain = [frozenset(sets.shingles_of(i).tolist()) for i in range(len(texts))]
    for threshold in (0.5, 0.8):
        expected = brute_force(plain, threshold)
        pairs = Pairs.concatenated(join(sets.hashes, sets.offsets, threshold))
        found = zip(pairs.left.tolist(), pairs.right.tolist(), pairs.similarities.tolist(), strict=True)
        assert {(left, right): similarity for left, right, similarity in found} == expected
        assert expected
        assert similarities(sets, pairs.left, pairs.right).tolist() == pairs.similarities.tolist()


@given(st.lists(st.text("ab ", max_size=12), min_size=2, max_size=8))
def test_of_bags_it_is_the_similarity_of_multisets(texts):
    sets = shingle_sets(Shingler(ShingleOptions(unit="char", size=1, keep_white_space=False, bag=True)), texts)
    bags = [Counter(text.replace(" ", "")) for text in texts]
    for i, j in itertools.combinations(range(len(texts)), 2):
        union = (bags[i] | bags[j]).total()
        expected = (bags[i] & bags[j]).total() / union if union else 0.0
        assert similarities(sets, np.array([i]), np.array([j])).tolist() == [expected]
