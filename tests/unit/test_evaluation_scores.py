"""Recall, precision and reasons, on small collections of which the answer is known."""

from dataclasses import replace

import numpy as np
import pytest

from streamdedup.detection.model import DetectorOptions
from streamdedup.detection.suppression import Suppression
from streamdedup.evaluation.join import join
from streamdedup.evaluation.misses import Miss, near_duplicates
from streamdedup.evaluation.pairs import Pairs, shingle_sets
from streamdedup.evaluation.rates import Rate
from streamdedup.evaluation.scores import least_joined_similarity, score, without_suppressed
from streamdedup.evaluation.trial import FoundPairs, Trial, document_at
from streamdedup.index.memory import MemoryIndex
from streamdedup.similarity.containment import ContainmentRule
from streamdedup.similarity.lsh import Banding
from streamdedup.text.shingles import ShingleOptions, Shingler

OPTIONS = DetectorOptions(
    profile="trial",
    shingles=ShingleOptions(size=1),
    banding=Banding(32, 4),
    permutations=128,
    seed=1,
    threshold=0.5,
    recall_from=0.5,
)


def words(*numbers):
    return " ".join(f"w{number}" for number in numbers)


def evaluated(texts, options=OPTIONS, *, bucket_cap=None, truth=None):
    store = MemoryIndex(bucket_cap=bucket_cap)
    store.open({})
    trial = Trial(options, store)
    ids = [f"d{place:04}" for place in range(len(texts))]
    documents = [document_at(place, *one) for place, one in enumerate(zip(ids, texts, strict=True))]
    for at in range(0, len(documents), 7):
        trial.add(documents[at : at + 7])
    sets = shingle_sets(Shingler(options.shingles), texts)
    joined = Pairs.concatenated(join(sets.hashes, sets.offsets, least_joined_similarity(options)))
    true = truth or joined.where(near_duplicates(joined, options, sets))
    scores = score(true, trial.found_pairs(), options, sets, ids, is_computed=truth is None)
    return scores, trial.found_pairs()


def edited(count, *, of, seed=3):
    """Return texts of 40 words, each a copy of one of a few with some words replaced."""
    draw = np.random.default_rng(seed)
    originals = [draw.integers(0, 5000, 40) for _ in range(of)]
    texts = []
    for at in range(count):
        text = originals[at % of].copy()
        text[draw.choice(40, draw.integers(0, 9), replace=False)] = draw.integers(0, 5000)
        texts.append(words(*text))
    return texts


def test_all_is_found_where_the_bands_are_many():
    scores, found = evaluated(edited(60, of=6))
    assert scores.recall.share == 1.0
    assert scores.recall.total == len(found.pairs.left) > 100
    assert scores.precision == Rate(scores.recall.total, scores.recall.total)
    assert scores.missed == {}


def with_additions(count, lost=0):
    """Return texts of 40 words, each with a longer copy that has 30 words more and some words less."""
    texts = [words(*range(100 * at + lost, 100 * at + 40)) for at in range(count)]
    return [words(*range(100 * at, 100 * at + 40)) for at in range(count)] + [
        f"{text} {words(*range(100 * at + 50, 100 * at + 80))}" for at, text in enumerate(texts)
    ]


def test_pairs_by_containment_are_true_and_found():
    options = replace(OPTIONS, threshold=0.7, containment=ContainmentRule(0.9, 20))
    scores, found = evaluated(with_additions(30), options)
    assert len(found.pairs.left) == 30
    assert scores.recall == scores.precision == Rate(30, 30)
    assert (scores.containment_recall, scores.containment_precision) == (Rate(30, 30), Rate(30, 30))
    assert scores.missed == {}
    without, _ = evaluated(with_additions(30), replace(options, containment=None))
    assert (without.recall, without.precision, without.containment_recall) == (Rate(0, 0),) * 3


def test_a_missed_pair_by_containment_has_its_reason():
    rule = ContainmentRule(0.9, 20)
    few_bands = replace(OPTIONS, threshold=0.7, banding=Banding(2, 8), containment=rule)
    scores, _ = evaluated(with_additions(30), few_bands)
    assert scores.missed == {Miss.NO_SHARED_BAND: 30 - scores.recall.hits}
    assert scores.recall.hits < 15
    estimated = replace(OPTIONS, threshold=0.7, exact_limit=0, containment=ContainmentRule(0.9, 1))
    scores, _ = evaluated(with_additions(60, lost=3), estimated)
    assert set(scores.missed) <= {Miss.ESTIMATE, Miss.NO_SHARED_BAND}
    assert scores.missed[Miss.ESTIMATE]


@pytest.mark.parametrize(("source", "count"), [("a", 0), ("", 1), (None, 1)])
def test_pairs_of_one_source_are_left_out_where_the_source_is_known(source, count):
    sets = shingle_sets(Shingler(OPTIONS.shingles), [words(1, 2, 3)] * 2)
    pair = Pairs(np.array([0]), np.array([1]), np.array([1.0]))
    assert len(without_suppressed(pair, Suppression(ignore_same_source=True), [source] * 2, sets).left) == count


def test_recall_counts_from_recall_from_on():
    texts = edited(60, of=6)
    whole, _ = evaluated(texts)
    scores, _ = evaluated(texts, replace(OPTIONS, recall_from=0.75, exact_limit=0))
    assert 0 < scores.recall.total < whole.recall.total


def test_a_pair_without_a_shared_band_has_this_reason():
    options = replace(OPTIONS, banding=Banding(1, 40))
    scores, _ = evaluated([words(*range(40)), words(*range(8, 48)), words(*range(40))], options)
    assert scores.missed == {Miss.NO_SHARED_BAND: 2}
    assert scores.recall == Rate(1, 3)
    assert [(one.left, one.right) for one in scores.examples] == [(0, 1), (1, 2)]
    assert scores.examples[0].similarity == 32 / 48


def test_a_full_bucket_is_the_reason():
    texts = [words(*range(20), 100 + at) for at in range(30)]
    scores, found = evaluated(texts, bucket_cap=5)
    assert set(scores.missed) == {Miss.FULL_BUCKET}
    assert scores.missed[Miss.FULL_BUCKET] == scores.recall.total - scores.recall.hits > 100
    assert found.full_bucket.any()


def test_too_many_candidates_are_the_reason():
    texts = [words(*range(20), 100 + at) for at in range(30)]
    scores, found = evaluated(texts, replace(OPTIONS, max_candidates=3))
    assert set(scores.missed) == {Miss.CANDIDATE_CAP}
    assert np.count_nonzero(found.over_candidates) == 26


@pytest.mark.parametrize("seed", range(4))
def test_every_missed_pair_has_a_reason(seed):
    options = replace(OPTIONS, banding=Banding(4, 6), max_candidates=4, exact_limit=38, permutations=64)
    scores, _ = evaluated(edited(150, of=3, seed=seed), options, bucket_cap=12)
    assert sum(scores.missed.values()) == scores.recall.total - scores.recall.hits > 100
    assert Miss.UNEXPLAINED not in scores.missed
    assert len(scores.missed) >= 3


def test_a_judgement_from_elsewhere_is_taken_as_it_is():
    texts = [words(*range(20)), words(*range(20)), words(*range(50, 70)), words(*range(80, 99))]
    judged = Pairs(np.array([0, 2]), np.array([2, 3]), np.array([1.0, 1.0]))
    scores, _ = evaluated(texts, truth=judged)
    assert scores.recall == Rate(0, 2)
    assert scores.precision == Rate(0, 1)
    assert scores.missed == {Miss.DISSIMILAR: 2}


def test_a_pair_with_one_stored_signature_is_not_called_dissimilar():
    judged = Pairs(np.array([0]), np.array([1]), np.array([0.32]))
    scores, _ = evaluated([words(*range(20)), words(*range(8, 38))], replace(OPTIONS, exact_limit=25), truth=judged)
    assert scores.missed.keys() <= {Miss.NO_SHARED_BAND, Miss.ESTIMATE}


def test_a_wrong_pair_lowers_precision():
    sets = shingle_sets(Shingler(OPTIONS.shingles), [words(1, 2, 3), words(1, 2, 3), words(7, 8)])
    none = np.zeros(3, np.bool_)
    pairs = Pairs(np.array([0, 1]), np.array([1, 2]), np.array([1.0, 0.9]))
    found = FoundPairs(pairs, none, none, none)
    truth = Pairs(np.array([0]), np.array([1]), np.array([1.0]))
    scores = score(truth, found, OPTIONS, sets, ["a", "b", "c"], is_computed=True)
    assert scores.precision == Rate(1, 2)


def test_nothing_at_all_is_judged_without_a_figure():
    scores, _ = evaluated([words(1, 2, 3), words(7, 8, 9)])
    assert scores.recall.share is scores.precision.share is scores.recall.bounds() is None


@pytest.mark.parametrize(
    ("rate", "bounds"),
    [
        (Rate(99, 100), (0.9455, 0.9982)),
        (Rate(100, 100), (0.9630, 1.0)),
        (Rate(0, 10), (0.0, 0.2775)),
        (Rate(5, 10), (0.2366, 0.7634)),
    ],
)
def test_bounds_are_those_of_wilson(rate, bounds):
    assert rate.bounds() == pytest.approx(bounds, abs=1e-4)


def test_a_document_that_misses_its_pairs_as_a_whole_is_counted():
    text = list(range(40))
    texts = [words(*text, 100 + at) for at in range(6)] + [words(*range(300, 312), *text[12:])]
    options = replace(OPTIONS, banding=Banding(8, 8), threshold=0.4)
    scores, _ = evaluated([*texts, words(900, 901), words(900, 901)], options)
    assert scores.documents_without_alert == Rate(1, 9)
