"""Samples, distinct sets, candidates, rows, templates and advice of ``tune``, compared with plain counting."""

import contextlib
import io
import itertools
import math
import random
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from streamdedup.cli.rendering.tuning_tables import count_text, share_text, tables_text
from streamdedup.detection.model import DetectorOptions
from streamdedup.errors import SettingsError
from streamdedup.evaluation.pairs import shingle_sets
from streamdedup.evaluation.trial import DetectorRun, document_at
from streamdedup.index.memory import MemoryIndex
from streamdedup.settings.presets import named_profile
from streamdedup.similarity.containment import ContainmentRule
from streamdedup.similarity.lsh import Banding
from streamdedup.similarity.minhash import HashFamily
from streamdedup.text.shingles import ShingleOptions, Shingler
from streamdedup.text.stop_shingles import parse_stop_shingles
from streamdedup.tuning.advice import SERVERS, least_words, recommend, tuned_profile
from streamdedup.tuning.buckets import candidates_by_bands, first_shared_bands, largest_bucket_of_each
from streamdedup.tuning.comparison import TuningPlan, compare_in_budget, compare_settings
from streamdedup.tuning.distinct import distinct_sets, estimate_growth
from streamdedup.tuning.memory import bytes_per_document
from streamdedup.tuning.passages import frequent_passages
from streamdedup.tuning.recall import found_share, measured_recall, share_without_alert
from streamdedup.tuning.results import results_of
from streamdedup.tuning.rows import MOST_UNCOMPARED, Workload, table_rows
from streamdedup.tuning.sample import MOST_CHARACTERS, BoundedTexts, Sample, draw_sample, used_text_rows
from streamdedup.tuning.storm_limits import Scales, StormLimits, compared_shares, find_chance
from streamdedup.tuning.study import Study

WORDS = ShingleOptions("word", 3)
FAMILY = HashFamily(128)
#: A profile that stores every document as a set, without captions.
SETS = named_profile(None, "articles", {"exact_limit": "none", "label_bytes": 0})


def made_texts(count: int, words: int = 40) -> list[str]:
    """Texts of random words; every third is the one before with a word changed, every tenth an exact copy."""
    chance = random.Random(1)
    texts: list[str] = []
    for at in range(count):
        if at % 10 == 9:
            texts.append(texts[-1])
        elif at % 3 == 2:
            changed = texts[-1].split()
            changed[chance.randrange(len(changed))] = f"changed{at}"
            texts.append(" ".join(changed))
        else:
            texts.append(" ".join(f"w{chance.randrange(3_000)}" for _ in range(words)))
    return texts


def workload(**changes: object) -> Workload:
    given = {
        "index_size": 1_000.0, "collection_size": 1_000, "sample_share": 1.0, "permutations": 128,
        "most_permutations": 128, "limits": StormLimits(500, 500), "recall_from": 0.5,
    }  # fmt: skip
    return Workload(**{**given, **changes})


@pytest.fixture(scope="module")
def study() -> Study:
    return Study(WORDS, made_texts(300), FAMILY, floor=0.5)


class TestSample:
    def test_a_random_sample_is_bounded_in_order_and_the_same_every_time(self):
        stream = [(f"d{at:04}", f"text {at}", f"source {at}", f"scope {at}") for at in range(1_000)]
        one, again = draw_sample(iter(stream), 50), draw_sample(iter(stream), 50)
        assert one == again
        assert len(one.ids) == 50
        assert one.ids == sorted(one.ids)
        assert one.read_count == 1_000
        assert one.sampled_share == 0.05
        assert [text.split()[1] for text in one.texts] == [source.split()[1] for source in one.sources]
        assert [text.split()[1] for text in one.texts] == [scope.split()[1] for scope in one.scopes]
        assert one.ids[-1] > "d0500"

    def test_each_document_has_the_same_chance(self, monkeypatch):
        counts, stream = Counter(), [(str(at), "", None, None) for at in range(60)]
        for seed in range(300):
            monkeypatch.setattr("streamdedup.tuning.sample._SEED", seed)
            counts.update(draw_sample(stream, 20).ids)
        # Each is in a third of the samples: 100, with a standard deviation of 8.
        assert len(counts) == 60
        assert 60 < min(counts.values()) < max(counts.values()) < 140


class TestGrowth:
    def test_pairs_across_the_halves_grow_and_the_others_stay(self):
        near_only = estimate_growth(np.array([100.0, 0.0]), 1_000, 1.0)
        assert near_only.expected(10**9) == pytest.approx(0.1)
        # Any two documents meet with the chance 0.001: 499,500 pairs, half of them across.
        chance_only = estimate_growth(np.array([499.5, 250.0]), 1_000, 1.0)
        assert chance_only.expected(1_000_000) == pytest.approx(1_000.0, rel=0.01)

    def test_a_sample_has_lost_neighbours_but_no_chance_candidates(self):
        assert estimate_growth(np.array([100.0, 0.0]), 1_000, 0.1).near == pytest.approx(1.0)


class TestCandidates:
    def test_candidates_are_those_of_the_band_keys_for_every_number_of_bands(self, study):
        keys = study.band_keys(Banding(12, 3))
        counts = candidates_by_bands(keys, study.distinct)
        documents = np.repeat(np.arange(len(keys)), study.distinct.copies)
        for bands in (1, 5, 12):
            pairs = itertools.combinations(documents, 2)
            assert counts[bands, 0] == sum((keys[a, :bands] == keys[b, :bands]).any() for a, b in pairs)
            buckets = Counter((band, key) for row in keys[documents] for band, key in enumerate(row[:bands].tolist()))
            assert largest_bucket_of_each(keys[:, :bands], study.distinct).max() == max(buckets.values())

    def test_too_many_candidates_are_counted_as_infinite(self, monkeypatch):
        monkeypatch.setattr("streamdedup.tuning.buckets.MOST_CANDIDATES", 10)
        study = Study(WORDS, made_texts(300), FAMILY, floor=0.5)
        assert math.isinf(study.candidate_counts(Banding(8, 1))[8, 0])

    def test_the_first_shared_band_is_the_first(self):
        keys = np.array([[1, 2, 3], [9, 2, 3], [7, 8, 9]], np.uint32)
        assert first_shared_bands(keys, np.array([0, 0, 1]), np.array([1, 2, 1])).tolist() == [1, 3, 0]


class TestStudy:
    def test_recall_is_that_of_all_pairs_compared_one_by_one(self, study):
        sets = [frozenset(study.sets.shingles_of(at).tolist()) for at in range(300)]
        keys = study.band_keys(Banding(4, 6))
        keys_of = {
            sets[first]: keys[number]
            for number, first in enumerate(distinct_sets(study.sets, 0).first_documents.tolist())
        }
        true = found = 0
        for a, b in itertools.combinations(sets, 2):
            if len(a & b) / len(a | b) >= 0.7:
                true += 1
                found += bool((keys_of[a] == keys_of[b]).any())
        recall = measured_recall(study, Banding(4, 6), 0.7)
        assert study.alerted_count(0.7) == true
        assert recall.measured == pytest.approx(found / true)
        assert 0 < recall.edited.total < true

    def test_the_histogram_holds_every_pair(self, study):
        sets = [set(study.sets.shingles_of(at).tolist()) for at in range(300)]
        pairs = [len(a & b) / len(a | b) for a, b in itertools.combinations(sets, 2)]
        assert study.histogram.sum() == sum(one >= 0.5 for one in pairs)
        assert study.histogram[-1] == sum(one >= 0.95 for one in pairs)

    def test_long_texts_are_looked_at_in_part_and_in_stretches(self, monkeypatch):
        monkeypatch.setitem(MOST_CHARACTERS, "word", 20_000)
        documents = used_text_rows(made_texts(300), {"word"})
        assert 50 < len(documents) < 150
        assert documents[-1] > 250
        assert np.count_nonzero(np.diff(documents) == 1) > len(documents) / 2
        study = Study(WORDS, made_texts(300), FAMILY, floor=0.5, text_rows=documents)
        assert study.documents_count == len(documents)

    def test_all_kinds_of_shingles_of_one_table_use_the_same_texts(self, monkeypatch):
        monkeypatch.setitem(MOST_CHARACTERS, "char", 20_000)
        texts = made_texts(300)
        assert len(used_text_rows(texts, {"word"})) == 300
        both = used_text_rows(texts, {"word", "char"}).tolist()
        assert both == used_text_rows(texts, {"char"}).tolist()
        assert len(both) < 150


class TestContainment:
    """Texts with a longer version each, some of them twice: pairs by containment below the threshold."""

    RULE = ContainmentRule(0.8, 20)

    @staticmethod
    def texts() -> list[str]:
        made = [f"{words(40, at)} {words(at, 500 + at)}" for at in range(60)] + [words(40, at) for at in range(60)]
        return [*made, *made[60:80], words(15, 900), f"{words(15, 900)} {words(10, 901)}"]

    def expected(self, threshold: float) -> tuple[set[tuple[int, int]], set[tuple[int, int]]]:
        """Pairs from the threshold on, and those below it by the rule, compared one by one."""
        sets = shingle_sets(Shingler(WORDS), self.texts())
        members = [frozenset(sets.shingles_of(at).tolist()) for at in range(len(sets.sizes))]
        similar, by_rule = set(), set()
        for a, b in itertools.combinations(range(len(members)), 2):
            common, smaller = len(members[a] & members[b]), min(len(members[a]), len(members[b]))
            jaccard = common / len(members[a] | members[b])
            if jaccard >= threshold:
                similar.add((a, b))
            elif jaccard >= 0.5 and common >= 0.8 * smaller and smaller >= 20:
                by_rule.add((a, b))
        return similar, by_rule

    def test_the_pairs_of_a_row_include_those_by_the_rule_and_its_recall_those_from_a_similarity_on(self):
        with_rule = Study(WORDS, self.texts(), FAMILY, floor=0.5, rule=self.RULE)
        without = Study(WORDS, self.texts(), FAMILY, floor=0.5)
        similar, by_rule = self.expected(0.8)
        few, many = Banding(6, 6), Banding(35, 3)
        assert without.alerted_count(0.8) == len(similar)
        assert with_rule.alerted_count(0.8) == len(similar | by_rule)
        assert measured_recall(with_rule, few, 0.8) == measured_recall(without, few, 0.8)
        assert measured_recall(with_rule, few, 0.5).measured < 0.8 < measured_recall(with_rule, many, 0.5).measured
        shares = np.ones((len(with_rule.distinct.first_documents), few.bands + 1))
        assert found_share(with_rule, few, 0.5, shares) == pytest.approx(measured_recall(with_rule, few, 0.5).measured)
        assert found_share(with_rule, few, 0.8, shares) == found_share(without, few, 0.8, shares)
        assert (
            share_without_alert(with_rule, few, 0.8)
            == share_without_alert(without, few, 0.8)
            < 0.01
            < share_without_alert(with_rule, few, 0.5)
        )
        copies = with_rule.distinct.copy_pairs()[0]
        found = with_rule.candidate_mask(many) & with_rule.alerted_mask(0.8)
        assert with_rule.alerted_candidates(0.8, many)[0] == with_rule.counts[found, 0].sum() + copies

    @pytest.mark.parametrize("recall_from", [0.5, 0.65, 0.75])
    def test_bands_are_chosen_for_recall_from_or_the_threshold_where_it_is_higher(self, recall_from):
        with_rule = Study(WORDS, self.texts(), FAMILY, floor=0.5, rule=self.RULE)
        rows = table_rows(with_rule, workload(recall_from=recall_from), [0.6, 0.7, 0.8], [0.9, 0.99])
        assert len(rows) == 6
        for row in rows:
            similarity = max(recall_from, row.threshold)
            assert row.recall_from == similarity
            assert row.banding.probability(similarity) >= row.min_recall
            assert Banding(row.banding.bands - 1, row.banding.rows).probability(similarity) < row.min_recall
            assert row.chance == pytest.approx(row.banding.probability(similarity))
            assert row.recall == measured_recall(with_rule, row.banding, similarity)
            assert row.reaches_recall


class TestRows:
    def test_each_row_reaches_the_recall_by_theory_and_no_fewer_bands_would(self, study):
        rows = table_rows(study, workload(), [0.6, 0.8], [0.9, 0.99])
        assert len(rows) == 4
        for row in rows:
            banding = row.banding
            assert banding.probability(row.threshold) >= row.min_recall
            assert type(banding)(banding.bands - 1, banding.rows).probability(row.threshold) < row.min_recall

    def test_runs_of_texts_keep_their_neighbours_and_a_random_sample_a_share_of_them(self):
        texts = [words(40, at) for at in range(100) for _ in range(10)]
        whole = Study(WORDS, texts, FAMILY, floor=0.5)
        runs = Study(WORDS, texts, FAMILY, floor=0.5, text_rows=used_text_rows(texts, {"word"}, share=0.5))
        assert (whole.documents_count, runs.documents_count) == (1_000, 500)
        for sample_share in (1.0, 0.25):
            given = workload(sample_share=sample_share)
            (expected,), (row,) = (table_rows(study, given, [0.8], [0.9]) for study in (whole, runs))
            assert row.candidates == expected.candidates
            assert row.candidates.matches.near == pytest.approx(4.5 / sample_share)

    def test_a_recall_of_1_is_reached_by_one_band_for_copies_and_by_no_bands_below(self, study):
        (row,) = table_rows(study, workload(), [0.8, 1.0], [1.0])
        assert (row.threshold, row.banding.bands, row.reaches_recall) == (1.0, 1, True)

    def test_a_recall_near_0_is_reached_by_one_band(self, study):
        (row,) = table_rows(study, workload(), [0.8], [1e-12])
        assert row.banding.bands == 1

    def test_no_band_has_a_single_row(self):
        study = Study(WORDS, made_texts(300), FAMILY, floor=0.3)
        (row,) = table_rows(study, workload(index_size=1.0, recall_from=0.3, most_permutations=32), [0.3], [0.5])
        assert row.banding.rows == 2

    def test_more_documents_ask_for_bands_with_fewer_chance_candidates(self):
        study = Study(WORDS, [f"the report says that {text}" for text in made_texts(300, words=12)], FAMILY, floor=0.5)
        small, large = (table_rows(study, workload(index_size=n), [0.8], [0.99])[0] for n in (100.0, 10_000_000.0))
        assert large.banding.rows > small.banding.rows


class TestDocumentsWithoutAlert:
    def test_documents_that_find_none_of_their_pairs_are_counted_one_by_one(self, study):
        banding, alone, paired = Banding(4, 8), 0, 0
        alerted = study.pairs.where(study.alerted_mask(0.7))
        for part in range(4):
            keys = banding.band_keys(study.signatures[:, part * 32 : part * 32 + 32])
            for number, copies in enumerate(study.distinct.copies.tolist()):
                ends = zip(alerted.left.tolist(), alerted.right.tolist(), strict=True)
                partners = [left + right - number for left, right in ends if number in (left, right)]
                found = any((keys[number] == keys[partner]).any() for partner in partners)
                paired += copies if partners or copies > 1 else 0
                alone += copies if partners and copies == 1 and not found else 0
        assert 0 < alone < paired
        assert share_without_alert(study, banding, 0.7) == pytest.approx(alone / paired)

    def test_more_bands_leave_fewer_documents_without_an_alert(self):
        """A cluster around one text: it misses most of its pairs at once, or none."""
        study = Study(WORDS, made_texts(900), HashFamily(512), floor=0.5)
        shares = [share_without_alert(study, Banding(bands, 4), 0.7) for bands in (4, 9, 12)]
        assert shares[0] > shares[1] > shares[2] >= 0
        assert share_without_alert(Study(WORDS, [words(20, 1)], FAMILY, floor=0.5), Banding(9, 4), 0.8) is None


class TestMemory:
    def test_a_document_takes_its_entry_its_shingles_its_bands_and_its_claims(self):
        study = Study(WORDS, [words(22, seed) for seed in range(50)], FAMILY, floor=0.5)
        (row,) = table_rows(study, workload(), [0.8], [0.99])
        expected = 300 + 20 * 3.3 + row.banding.bands * 145
        assert bytes_per_document(row, workload(), "sets", SETS) == pytest.approx(expected)
        packed = bytes_per_document(row, workload(), "packed", SETS)
        assert packed == pytest.approx(300 + 20 * 3.3 + row.banding.bands * 1.5 * 18)
        # 128 values of a signature in place of 20 shingles.
        signatures = bytes_per_document(row, workload(), "sets", SETS.model_copy(update={"exact_limit": 19}))
        assert signatures - expected == pytest.approx(128 * 4 - 20 * 3.3)

    def test_claims_are_those_of_the_pairs_up_to_the_limit_of_candidates(self):
        study = Study(WORDS, [words(22, 1)] * 40, FAMILY, floor=0.5)
        load = workload(index_size=40.0, collection_size=40)
        (row,) = table_rows(study, load, [0.8], [0.99])
        sizes = [
            bytes_per_document(row._replace(limits=StormLimits(None, most)), load, "sets", SETS) for most in (None, 7)
        ]
        assert row.candidates.matches.expected(40) == pytest.approx(39, rel=0.05)
        assert sizes[0] - sizes[1] == pytest.approx(30 * 2.5 * (row.candidates.matches.expected(40) - 7))

    def test_texts_without_words_take_an_entry(self):
        study = Study(WORDS, ["...", "!!!"], FAMILY, floor=0.5)
        (row,) = table_rows(study, workload(), [0.8], [0.99])
        assert bytes_per_document(row, workload(), "sets", SETS) == 300 + row.banding.bands * 145


def words(count: int, seed: int) -> str:
    chance = random.Random(seed)
    return " ".join(f"x{chance.randrange(99_999)}" for _ in range(count))


class TestBoundedTexts:
    def test_texts_are_kept_up_to_the_characters_each_with_the_same_chance(self):
        kept = BoundedTexts(1_000)
        for at in range(10_000):
            kept.add(f"{at:010}")
        assert 20 <= len(kept.texts) <= 100
        assert kept.texts == sorted(kept.texts)
        assert min(map(int, kept.texts)) < 3_000
        assert max(map(int, kept.texts)) > 7_000

    def test_all_texts_are_kept_where_they_are_few(self):
        kept = BoundedTexts(1_000)
        for text in ("a", "b", "a"):
            kept.add(text)
        assert kept.texts == ["a", "b", "a"]


class TestSamplePairs:
    def test_of_too_many_pairs_some_represent_the_others(self, monkeypatch):
        monkeypatch.setattr("streamdedup.tuning.study.MOST_PAIRS", 300)
        found = Study(WORDS, [f"{words(60, 1)} end{at}" for at in range(60)], FAMILY, floor=0.8)
        assert len(found.pairs.left) <= 300
        assert found.histogram.sum() == 60 * 59 / 2
        assert found.counts[:, 0].sum() == pytest.approx(60 * 59 / 2, rel=0.25)


class TestLimits:
    @pytest.mark.parametrize(
        "limits", [StormLimits(None, 3), StormLimits(6, 40), StormLimits(4, None), StormLimits(None, None)]
    )
    def test_the_chance_to_be_compared_is_that_of_ranking_the_candidates_of_each_document(self, study, limits):
        banding, scales = Banding(12, 3), Scales(2.0, 0.5)
        keys = study.band_keys(banding)
        copies = study.distinct.copies.tolist()
        related = set(zip(study.pairs.left.tolist(), study.pairs.right.tolist(), strict=True))
        shares = study.compared_shares(banding, scales, limits, 0.0)
        for one in range(len(keys)):
            weights, in_sample, largest = Counter(), copies[one] - 1, 0
            weights[12] += (copies[one] - 1) * scales.related
            for other in range(len(keys)):
                common = int((keys[one] == keys[other]).sum())
                if other != one and common:
                    is_related = (min(one, other), max(one, other)) in related
                    weights[common] += copies[other] * (scales.related if is_related else scales.unrelated)
                    in_sample += copies[other]
            for band in range(12):
                members = np.flatnonzero(keys[:, band] == keys[one, band]).tolist()
                largest = max(largest, sum(copies[member] for member in members))
            scale = weights.total() / in_sample if in_sample else 1.0
            limit = math.inf if limits.max_candidates is None else limits.max_candidates
            if limits.bucket_cap is not None and (largest - 1) * scale >= limits.bucket_cap:
                limit = min(limit, 3)
            for common in range(1, 13):
                room = limit - sum(weights[more] for more in range(common + 1, 13))
                expected = min(max(room / weights[common], 0), 1) if weights[common] else float(room > 0)
                assert shares[one, common] == pytest.approx(expected)

    @pytest.mark.parametrize(
        "limits", [StormLimits(None, 2), StormLimits(None, 4), StormLimits(6, 500), StormLimits(500, 500)]
    )
    def test_the_forecast_of_recall_is_that_of_the_detector_with_these_limits(self, limits):
        """The last 80 of 400 documents are compared with 90 % of the others, in the mean."""
        notice = " ".join(f"notice{at}" for at in range(24))
        chance = random.Random(5)
        originals = [[f"w{chance.randrange(3_000)}" for _ in range(24)] for _ in range(60)]
        texts = []
        for at in range(400):
            changed = list(originals[at % 60])
            changed[chance.randrange(24)] = f"changed{at}"
            texts.append(f"{notice} {' '.join(changed)}")
        banding, threshold = Banding(24, 3), 0.7
        study = Study(WORDS, texts, FAMILY, floor=threshold)
        shares = study.compared_shares(banding, Scales(0.9, 0.9), limits, 0.0)
        forecast = found_share(study, banding, threshold, shares)
        settings = {"permutations": 128, "seed": FAMILY.seed, "max_candidates": limits.max_candidates}
        options = DetectorOptions("t", WORDS, banding, threshold=threshold, **settings)
        store = MemoryIndex(bucket_cap=limits.bucket_cap)
        store.open({})
        run, found = DetectorRun(options, store), 0
        for at, text in enumerate(texts):
            matches = sum(len(one.matches) for one in run.add([document_at(at, f"d{at}", text)]).detections)
            found += matches if at >= 320 else 0
        true = np.count_nonzero(np.maximum(study.pairs.left, study.pairs.right) >= 320)
        assert len(study.distinct.first_documents) == 400
        assert forecast == pytest.approx(found / true, abs=0.1)
        assert (forecast > 0.99) == (limits == StormLimits(500, 500))

    def test_without_limits_the_chance_is_the_curve(self, study):
        banding = Banding(9, 4)
        shares = study.compared_shares(banding, Scales(1.0, 1.0), StormLimits(None, None), 0.0)
        for similarity in (0.1, 0.5, 0.8, 1.0):
            assert find_chance(similarity, banding, shares) == pytest.approx(banding.probability(similarity))
        assert find_chance(0.8, banding, np.empty((0, 10))) == pytest.approx(banding.probability(0.8))
        assert found_share(study, banding, 0.7, shares) == pytest.approx(measured_recall(study, banding, 0.7).measured)

    def test_more_candidates_than_can_be_listed_find_nothing(self, study, monkeypatch):
        monkeypatch.setattr("streamdedup.tuning.buckets.MOST_CANDIDATES", 10)
        keys = study.band_keys(Banding(8, 1))
        none = np.empty(0, np.int64)
        shares = compared_shares(keys, study.distinct, none, Scales(1.0, 1.0), StormLimits(500, 500))
        assert not shares.any()

    @pytest.mark.parametrize("limits", [{}, {"bucket_cap": "none", "max_candidates": "none"}])
    def test_more_candidates_than_can_be_listed_are_the_reason_and_no_limits_the_cure(self, limits, monkeypatch):
        plan, sample = asked(made_texts(300))
        plan = replace(plan, profile=named_profile(None, "articles", limits))
        monkeypatch.setattr("streamdedup.tuning.buckets.MOST_CANDIDATES", 10)
        with pytest.raises(SettingsError, match="candidate pairs, too many to list") as raised:
            compare_settings(plan, sample, no_progress)
        assert "limits" not in str(raised.value)
        assert "max_candidates" not in str(raised.value)

    def test_a_recall_that_the_limits_prevent_is_not_recommended(self):
        texts = ["one notice that all share " * 9 + f"own{at}" for at in range(200)]
        plan, sample = asked(texts)
        limits = named_profile(None, "articles", {"bucket_cap": 1, "max_candidates": 1})
        tight = replace(plan, profile=limits, kinds=(ShingleOptions("word", 1),))
        with pytest.raises(SettingsError, match="no bands within 512 permutations reach a recall") as raised:
            compare_settings(tight, sample, no_progress)
        cures = ("recall_from", "min_recall", "permutations", "stop-shingles", 'both limits to "none"')
        assert [cure for cure in cures if cure not in str(raised.value)] == []
        lifted = named_profile(None, "articles", {"bucket_cap": "none", "max_candidates": "none"})
        assert compare_settings(replace(tight, profile=lifted), sample, no_progress).recommendation

    def test_a_row_has_as_many_more_bands_or_higher_limits_as_the_recall_needs(self):
        notice = " ".join(f"notice{at}" for at in range(20))
        texts = [f"{notice} {text}" for text in made_texts(2_000, words=24)]
        study = Study(WORDS, texts, HashFamily(512), floor=0.5)
        wide = workload(index_size=60_000.0, collection_size=2_000, most_permutations=512)
        for row in table_rows(study, wide, [0.6, 0.8], [0.95]):
            assert row.chance <= row.banding.probability(row.threshold) + 1e-9
            assert row.reaches_recall == (row.chance >= row.min_recall)
            assert row.permutations == max(128, row.banding.permutations)
        tight = workload(index_size=60_000.0, collection_size=2_000, limits=StormLimits(2, 2))
        (row,) = table_rows(study, tight, [0.6], [0.95])
        assert not row.reaches_recall
        assert row.chance < 0.95


def test_passages_of_stop_shingles_are_whole_and_the_most_frequent_comes_first():
    notice, footer = words(60, 7), words(12, 8)
    texts = [f"{words(10, at)} {notice}" for at in range(100, 130)]
    texts += [f"{words(60, at)} {footer}" for at in range(200, 300)]
    counts = dict.fromkeys(Shingler(WORDS).shingle([notice]).hashes.tolist(), 30)
    counts |= dict.fromkeys(Shingler(WORDS).shingle([footer]).hashes.tolist(), 100)
    counts |= {7: 50}  # in none of the texts
    assert list(frequent_passages(texts, counts, WORDS)) == [(footer, 100, 10), (notice, 30, 58)]


def test_a_passage_ends_where_the_shingles_are_half_as_frequent():
    counts = {int(Shingler(WORDS).shingle([text]).hashes[0]): count for text, count in [("a b c", 9), ("b c d", 4)]}
    assert list(frequent_passages(["x a b c d"], counts, WORDS)) == [("a b c", 9, 1), ("b c d", 4, 1)]


def asked(
    texts: list[str], *kinds: ShingleOptions, containment: float | str = "none", sources: list[str | None] | None = None
) -> tuple[TuningPlan, Sample]:
    """A plan with words by 3 and further kinds of shingles, and a sample of all texts."""
    profile = named_profile(None, "articles", {"containment_threshold": containment})
    kinds, thresholds, stops = (WORDS, *kinds), (0.5, 0.7, 0.8), Path("/settings/stops.txt")
    plan = TuningPlan("articles", profile, kinds, thresholds, (0.99,), 1_000.0, "sets", False, stops)
    columns = zip(texts, sources or [None] * len(texts), strict=True)
    documents = ((f"d{at}", text, source, None) for at, (text, source) in enumerate(columns))
    return plan, draw_sample(documents, len(texts))


def tuned(texts: list[str], *kinds: ShingleOptions, time_s: float = 50.0, **options: object) -> dict:
    """The results for texts."""
    return results_of(compare_in_budget(*asked(texts, *kinds, **options), no_progress, time_s), no_progress)


def proposed(texts: list[str], **options: object) -> dict[str, dict]:
    """The proposals for texts by their names."""
    return {trial["name"]: trial for trial in tuned(texts, **options)["proposals"]}


@contextlib.contextmanager
def no_progress(_title: str, _total: int):
    yield lambda _: None


class TestProposals:
    """Each proposal counts the pairs that a comparison of all pairs counts."""

    PLAIN = "كتب الولد رسالة طويلة إلى صديقه في المدينة البعيدة قبل العيد"

    OTHERS = tuple(words(40, 1_000 + at) for at in range(40))

    def vowelled(self) -> str:
        """The text with a vowel sign behind the first letter of each word."""
        return " ".join(f"{word[0]}\u064e{word[1:]}" for word in self.PLAIN.split())

    def test_folded_marks_and_variants_gain_the_pairs_of_their_forms(self):
        marks = proposed([self.PLAIN, self.vowelled(), *self.OTHERS])
        assert (marks["fold_marks = true"]["pairs"], marks["fold_marks = true"]["gained"]) == (1, 1)
        (pair,) = marks["fold_marks = true"]["examples"]  # one text, once the marks are folded
        assert (pair["left"], pair["right"], pair["common_words"], pair["passage_words"]) == ("d1", "d0", 11, 11)
        old, new = "國語學習書店東門車站電話號碼風雲萬里", "国语学习书店东门车站电话号码风云万里"
        variants = proposed([old, new, *self.OTHERS])
        assert variants["as recommended"]["pairs"] == 0
        assert (variants["fold_variants = true"]["gained"], variants["fold_variants = true"]["lost"]) == (1, 0)

    def test_folded_look_alikes_and_urls_left_out_gain_the_pairs_of_their_forms(self):
        plain = "buy cheap medicines here without any prescription and act soon"
        disguised = proposed([plain, plain.replace("e", "\u0435"), *self.OTHERS])
        assert disguised["fold_look_alikes = true"]["gained"] == 1
        linked = proposed([plain, plain.replace("here", "here https://example.org/a/b"), *self.OTHERS])
        assert linked["keep_urls = false"]["gained"] == 1

    def test_containment_gains_the_pairs_of_its_rule(self):
        base = TestContainment()
        similar, by_rule = base.expected(0.8)
        trials = proposed(base.texts())
        trial = trials["containment_threshold = 0.8"]
        assert trials["as recommended"]["pairs"] == len(similar)
        assert (trial["pairs"], trial["gained"], trial["lost"]) == (len(similar | by_rule), len(by_rule), 0)
        assert trial["bytes_per_document"] > trials["as recommended"]["bytes_per_document"]

    def test_the_printed_section_has_all_proposals_as_the_applied_one(self, monkeypatch):
        texts = [*["ok thanks"] * 5, *self.OTHERS, f"{self.OTHERS[0]} end"]
        monkeypatch.setattr("streamdedup.tuning.results.LEAST_COMPARED", len(texts))
        results = tuned(texts, ShingleOptions("char", 5))
        proposed = results["proposed"]
        assert "min_words = 3\n" in proposed["toml"]
        shown = tables_text(results, io.StringIO())
        assert shown.endswith(f"{SERVERS}\n{proposed['toml']}\n")
        assert "Kinds of shingles" not in shown

    @pytest.mark.parametrize(
        ("value", "shown"),
        [(None, "too many"), (0.0, "0"), (0.406, "0.41"), (9.96, "10"), (104.0, "100"), (8488.0, "8,500")],
    )
    def test_estimated_numbers_have_two_digits(self, value, shown):
        assert count_text(value) == shown

    def test_min_words_loses_the_pairs_of_texts_of_one_shingle(self):
        trials = proposed([*["ok thanks"] * 5, *self.OTHERS, f"{self.OTHERS[0]} end"])
        assert (trials["min_words = 3"]["pairs"], trials["min_words = 3"]["lost"]) == (1, 10)

    def test_all_together_has_every_proposal_and_boilerplate_is_told_apart(self):
        notice = words(60, 7)
        texts = [f"{words(3, at)} {notice}" for at in range(100, 112)]
        texts += [*self.OTHERS, f"{self.OTHERS[0]} {words(16, 9)}", *["ok thanks"] * 5]
        texts += [words(40, 5_000 + at) for at in range(150)]
        trials = proposed(texts)
        assert trials["as recommended"]["boilerplate"] == 66
        assert (trials["stop_shingles"]["lost"], trials["stop_shingles"]["boilerplate"]) == (66, 0)
        assert list(trials)[-1] == "all together"
        assert {"stop_shingles", "min_words = 3"} < set(trials)
        assert trials["all together"]["lost"] == 76

    @pytest.mark.parametrize("is_linked", [False, True])
    def test_boilerplate_is_learnt_with_the_other_proposals(self, is_linked, monkeypatch):
        """Links that are left out change the shingles."""
        texts = [f"{words(3, at)} {words(60, 7)}" for at in range(100, 120)]
        texts += [*self.OTHERS, *(words(40, 5_000 + at) for at in range(150))]
        if is_linked:
            links = ["/".join(words(12, 9_000 + at).split()) for at in range(40)]
            texts += [f"{text} https://example.org/{link}" for text, link in zip(self.OTHERS, links, strict=True)]
        monkeypatch.setattr("streamdedup.tuning.results.LEAST_COMPARED", 100)
        results = tuned(texts)
        proposed, shown = results["proposed"], tables_text(results, io.StringIO())
        assert parse_stop_shingles(proposed["stop_shingles"]).options["keep_urls"] == str(not is_linked).lower()
        assert ("keep_urls = false" in proposed["toml"]) == is_linked
        assert "which --apply FILE.toml writes" in shown

    def test_stop_shingles_that_lose_real_pairs_are_not_proposed(self):
        """Pairs of versions fall below the threshold without a short notice that many documents have."""
        notice = words(14, 7)
        pairs = [(words(26, at), f"{words(26, at)} {words(3, 900 + at)}") for at in range(30)]
        texts = [f"{text} {notice}" for pair in pairs for text in pair]
        trials = proposed([*texts, *self.OTHERS, *(words(40, 5_000 + at) for at in range(150))])
        assert "stop_shingles" not in trials

    def test_nothing_is_proposed_that_changes_no_pair(self):
        assert proposed(self.OTHERS) == {}

    def test_gained_pairs_of_boilerplate_are_no_reason_for_containment(self):
        notice = words(60, 7)
        texts = [*(f"{words(40, at)} {notice}" for at in range(100, 112)), *self.OTHERS]
        texts += [words(40, 5_000 + at) for at in range(150)]
        assert "containment_threshold = 0.8" not in proposed([*texts, notice])


class TestTime:
    """``--time`` chooses the documents, and no clock does."""

    def test_a_slow_machine_proposes_the_same_as_a_fast_one(self, monkeypatch):
        def results(step_s: float) -> dict:
            monkeypatch.setattr("time.perf_counter", itertools.count(0.0, step_s).__next__)
            texts = [*made_texts(300), *TestSteps.edited()]
            sources = ["one", "two"] * (len(texts) // 2)
            return tuned(texts, ShingleOptions("char", 5), time_s=1.0, sources=sources)

        fast, slow = results(1e-6), results(60.0)
        assert "threshold = 0.5, recall_from = 0.6" in {trial["name"] for trial in fast["proposals"]}
        assert fast["recommendation"]["documents_per_s"] > slow["recommendation"]["documents_per_s"]
        for found in (fast, slow):
            for row in (*found["rows"], *found["kinds"], *found["recalls"], *found["proposals"]):
                row["documents_per_s"] = row["prepare_us"] = 0
            found["recommendation"] |= {"documents_per_s": 0, "prepare_us": 0, "daemons": 0}
        assert fast == slow

    def test_kinds_of_shingles_are_compared_on_the_same_documents_and_the_best_on_more(self):
        results = tuned(made_texts(300), ShingleOptions("char", 5), time_s=0.25)
        counts = results["sample"]["looked_at"]
        assert counts["char 5"] < 100 < counts["word 3"] == 300
        assert {(row["unit"], row["size"]) for row in results["rows"]} == {("word", 3)}
        kinds = [(row["unit"], row["threshold"], row["documents"]) for row in results["kinds"]]
        assert kinds == [("word", 0.8, counts["char 5"]), ("char", 0.8, counts["char 5"])]
        shown = tables_text(results, io.StringIO())
        assert f"Kinds of shingles, all with the same {counts['char 5']} documents, from 0.8" in shown
        assert shown.index("char 5    0.8") < shown.index("Settings by kind") < shown.index("Minimum recall R")

    def test_a_narrow_terminal_names_below_each_table_the_columns_that_the_table_lacks(self, monkeypatch):
        monkeypatch.setenv("COLUMNS", "50")
        terminal = io.StringIO()
        terminal.isatty = lambda: True
        shown = tables_text(tuned(made_texts(300), ShingleOptions("char", 5), time_s=0.25), terminal)
        _, kinds, settings, recalls = re.split("Kinds of shingles,|Settings by kind|Minimum recall R", shown)
        plain = [" ".join(re.sub("\x1b.*?m", "", text).split()) for text in (kinds, settings, recalls)]
        names = [re.findall("Not shown at this width: ([^.]*)", text) for text in plain]
        assert names == [*[["expected, + /million, memory, docs/s, R"]] * 2, ["docs/s"]]

    @pytest.mark.parametrize("kinds", [(), (ShingleOptions("char", 5),)])
    @pytest.mark.parametrize(("time_s", "is_cut"), [(0.05, True), (50.0, False)])
    def test_a_longer_time_compares_more_documents(self, time_s, is_cut, kinds):
        sample = tuned(made_texts(300), *kinds, time_s=time_s)["sample"]
        assert (sample["looked_at"]["word 3"] < 150) == is_cut
        assert sample["cut_by_time"] == is_cut


class TestSources:
    """What proposals gain, told apart by the sources of the texts."""

    @staticmethod
    def notices(count: int, total: int = 1_000) -> tuple[list[str], list[str]]:
        """Texts of which the first ones, of the source "paid", share a notice."""
        notice = words(60, 7)
        texts = [f"{words(3, at)} {notice}" if at < count else words(40, at) for at in range(total)]
        return texts, ["paid" if at < 2 * count else "free" for at in range(total)]

    def test_boilerplate_is_learnt_from_the_whole_sample_however_few_texts_are_compared(self):
        texts, sources = self.notices(100)
        results = tuned(texts, time_s=0.02, sources=sources)
        assert results["sample"]["looked_at"]["word 3"] < 60
        trials = {trial["name"]: trial for trial in results["proposals"]}
        assert trials["as recommended"]["boilerplate"] == trials["as recommended"]["pairs"] > 0
        assert trials["stop_shingles"]["pairs"] == 0

    def test_boilerplate_of_a_source_of_few_documents_is_not_judged(self):
        texts, sources = self.notices(20)
        results = tuned([*texts, *["ok thanks"] * 5], sources=[*sources, *["free"] * 5])
        assert results["proposals"][0]["pairs"] > 100
        assert results["proposals"][0]["boilerplate"] is None
        assert "not judged" in tables_text(results, io.StringIO())

    def test_a_passage_of_a_hundred_documents_is_named_where_sources_are_absent(self):
        texts, sources = self.notices(100, 2_100)
        (warning,) = [text for text in tuned(texts)["warnings"] if "share the passage" in text]
        assert warning.startswith(f"100 documents share the passage '{words(60, 7)[:40]}")
        for fewer in (tuned(texts, sources=sources), tuned(self.notices(99, 2_100)[0])):
            assert not any("share the passage" in text for text in fewer["warnings"])

    @pytest.mark.parametrize(
        ("of_pair", "lowered"),
        [(lambda at: f"s{at % 2}", True), (lambda at: f"s{at // 2 % 2}", False), (lambda _: None, False)],
    )
    def test_the_threshold_is_lowered_where_the_gained_pairs_are_across_sources(self, of_pair, lowered):
        texts = TestSteps.edited()
        results = tuned(texts, sources=[of_pair(at) for at in range(len(texts))])
        trials = {trial["name"]: trial for trial in results["proposals"]}
        assert ("threshold = 0.5, recall_from = 0.6" in trials) == lowered
        if lowered:
            trial = trials["threshold = 0.5, recall_from = 0.6"]
            step = {step["threshold"]: step["pairs"] for step in results["thresholds"]}
            assert (trial["across"], trial["pairs"], trial["gained"]) == (1.0, step[0.5], step[0.5] - step[0.8])
            assert 1 - (1 - 0.6 ** trial["rows"]) ** trial["bands"] >= 0.99
            assert trial["bytes_per_document"] > trials["as recommended"]["bytes_per_document"]
            assert len(trial["examples"]) == 10
            assert all(pair["similarity"] < 0.8 for pair in trial["examples"])
            assert {(pair["left_source"], pair["right_source"]) for pair in trial["examples"]} == {("s1", "s0")}
            assert "(s1) ~ d" in tables_text(results, io.StringIO())

    def test_too_few_added_pairs_lower_no_threshold(self):
        names = proposed(TestSteps.edited()[:20], sources=["a", "b"] * 10)
        assert not any(name.startswith("threshold") for name in names)

    @pytest.mark.parametrize(("count", "is_family"), [(9, False), (12, True)])
    def test_gained_families_of_a_template_are_named_and_left_out(self, count, is_family, monkeypatch):
        monkeypatch.setattr("streamdedup.tuning.results.LEAST_COMPARED", 100)
        template = words(44, 7)
        texts = [f"{template} {words(8, 100 + at)}" for at in range(count)]
        texts += [*TestProposals.OTHERS, *(words(40, 5_000 + at) for at in range(250)), *["ok thanks"] * 5]
        results = tuned(texts, sources=["shop"] * len(texts))
        (trial,) = [one for one in results["proposals"] if one["name"] == "containment_threshold = 0.8"]
        pairs = count * (count - 1) // 2
        assert (trial["gained"], trial["families"], trial["across"]) == (pairs, pairs if is_family else 0, 0.0)
        assert trial["is_advised"] != is_family
        assert ("containment_threshold = 0.8" in results["proposed"]["toml"]) != is_family
        assert ("not: containment_threshold = 0.8" in tables_text(results, io.StringIO())) == is_family

    def test_pairs_of_a_family_are_those_within_one_source(self):
        texts = [f"{words(44, 7)} {words(8, 100 + at)}" for at in range(12)]
        texts += [words(40, 5_000 + at) for at in range(250)]
        own = [f"s{at}" for at in range(12)]
        trial = proposed(texts, sources=[*own, *["x"] * 250])["containment_threshold = 0.8"]
        assert (trial["families"], trial["across"]) == (0, 1.0)
        trials = tuned(texts, sources=[*["shop"] * 11, "other", *["shop"] * 250])["proposals"]
        (trial,) = [one for one in trials if one["name"] == "containment_threshold = 0.8"]
        assert (trial["gained"], trial["families"]) == (66, 55)


class TestFewDocuments:
    def test_the_bins_of_similarity_reach_from_the_lowest_threshold_to_equal_texts(self):
        bins = tuned([*(words(20, at) for at in range(20)), words(20, 0)])["similarities"]
        assert (bins[0]["from"], bins[0]["to"]) == (0.5, 0.55)  # the lowest threshold is 0.5
        assert bins[-1] == {"from": 0.95, "to": 1.0, "pairs": 1}

    def test_nothing_is_recommended_below_a_thousand_documents(self):
        for count in (999, 1_000):
            results = tuned([words(5, at) for at in range(count)])
            assert (results["proposed"] is not None) == (count == 1_000)
            refused = "nothing is recommended: of 999 documents compared, 1,000 are the least"
            assert (refused in results["warnings"]) == (count < 1_000)
            shown = tables_text(results, io.StringIO())
            assert ("\nRecommended: word 3" in shown) == ("[profiles.articles]" in shown) == (count == 1_000)

    def test_documents_that_are_skipped_do_not_count(self):
        results = tuned([words(5, at) for at in range(999)] + ["", "..."])
        assert results["proposed"] is None
        assert "nothing is recommended: of 999 documents compared, 1,000 are the least" in results["warnings"]

    def test_a_pair_without_a_common_word_has_no_passage(self):
        texts = [words(10, 0).replace(" ", "x"), words(8, 0).replace(" ", "x")]
        shown = tables_text(tuned(texts, ShingleOptions("char", 5)), io.StringIO())
        assert "0 words in common, of 1 and 1\n" in shown

    @pytest.mark.parametrize(("pairs", "shown"), [(7, "0.9"), (26, "0.86"), (300, "0.857"), (90_000, "0.8571")])
    def test_a_share_of_few_pairs_has_few_decimals(self, pairs, shown):
        assert share_text(6 / 7, pairs) == shown
        assert share_text(None, pairs) == "none"


class TestSteps:
    @staticmethod
    def edited() -> list[str]:
        """Texts of 60 words, each with a copy in which one to nine words are changed."""
        chance, texts = random.Random(3), []
        for at in range(60):
            text = words(60, at).split()
            changed = list(text)
            for place in chance.sample(range(60), 1 + at % 9):
                changed[place] = f"changed{at}x{place}"
            texts += [" ".join(text), " ".join(changed)]
        return texts

    @pytest.mark.parametrize(
        ("containment", "ranges"),
        # Of two texts of one length a pair of the similarity 2/3 has the containment 0.8.
        [("none", {0.7: (0.7, 0.8), 0.5: (0.5, 0.7)}), (0.8, {0.7: (0.7, 0.7), 0.5: (0.5, 2 / 3)})],
    )
    def test_steps_below_the_recommendation_have_ten_added_pairs_in_text_spread_over_the_step(
        self, containment, ranges
    ):
        texts = self.edited()
        steps = {step["threshold"]: step for step in tuned(texts, containment=containment)["thresholds"]}
        assert list(steps) == [0.8, 0.7, 0.5]
        assert steps[0.8]["examples"] == []
        assert steps[0.5]["added"] > 10
        for threshold, (low, high) in ranges.items():
            examples = steps[threshold]["examples"]
            assert len(examples) == min(10, steps[threshold]["added"])
            assert (steps[threshold]["found"] is None) == (not examples)
            similarities = [pair["similarity"] for pair in examples]
            assert similarities == sorted(similarities, reverse=True)
            assert all(low <= similarity < high for similarity in similarities)
            for pair in examples:
                assert int(pair["left"][1:]) > int(pair["right"][1:])
                new, old = (texts[int(pair[side][1:])] for side in ("left", "right"))
                assert pair["common_words"] == len(set(new.split()) & set(old.split()))
                passage = pair["passage"].removesuffix("...")
                assert passage in new
                assert passage in old
                assert (pair["left_words"], pair["right_words"]) == (60, 60)

    def test_a_profile_with_a_higher_threshold_is_compared_at_the_bands_of_lower_ones(self):
        plan, sample = asked(self.edited())
        strict = replace(plan, profile=named_profile(None, "articles", {"threshold": 0.9}))
        assert compare_settings(strict, sample, no_progress).recommendation.row.recall_from == 0.8
        loose = named_profile(None, "articles", {"threshold": 0.5, "recall_from": 0.6})
        rows = compare_settings(replace(plan, profile=loose), sample, no_progress).rows
        assert [(row.threshold, row.recall_from) for row in rows] == [(0.5, 0.6), (0.7, 0.7), (0.8, 0.8)]

    def test_a_step_has_the_share_of_its_pairs_that_the_recommended_bands_find(self):
        texts = self.edited()
        results = tuned(texts)
        best, steps = results["recommendation"], results["thresholds"]
        assert steps[0]["threshold"] == best["threshold"] == best["recall_from"] == 0.8
        assert steps[0]["found"] == pytest.approx(best["edited_pairs_found"] / best["edited_pairs"])
        profile = named_profile(None, "articles", {})
        study = Study(WORDS, texts, HashFamily(512, profile.seed), floor=0.5)
        is_found = study.candidate_mask(Banding(best["bands"], best["rows"]))
        similarities, weights = study.pairs.similarities, study.counts[:, 0]
        added = (similarities >= 0.5) & (similarities < 0.7)
        assert steps[2]["found"] == pytest.approx(weights[added & is_found].sum() / weights[added].sum())


class TestCaps:
    def test_limits_that_hide_pairs_are_raised(self):
        """A cluster of 60 texts that differ in one word: limits of 10 hide most of its pairs."""
        text = words(80, 1).split()
        texts = [" ".join([*text[:at], f"new{at}", *text[at + 1 :]]) for at in range(60)] + made_texts(200)
        study = Study(WORDS, texts, FAMILY, floor=0.5)
        (row,) = table_rows(
            study, workload(index_size=260.0, collection_size=260, limits=StormLimits(10, 10)), [0.8], [0.9]
        )
        assert row.reaches_recall
        assert row.limits.max_candidates > 10
        assert row.recall.measured - row.found_share <= MOST_UNCOMPARED


class TestAdvice:
    @pytest.mark.parametrize(("kind", "kept"), [(WORDS, "stops.txt"), (ShingleOptions("word", 2), "none"),
                                                (ShingleOptions("char", 3), "none")])  # fmt: skip
    def test_a_file_of_stop_shingles_is_kept_for_the_same_kind_of_shingles_only(self, kind, kept):
        profile = named_profile(None, "articles", {}).model_copy(update={"stop_shingles": "stops.txt"})
        assert (profile.shingle_unit, profile.shingle_size) == (WORDS.unit, WORDS.size)
        (row,) = table_rows(Study(kind, made_texts(30), FAMILY, floor=0.5), workload(), [0.8], [0.9])
        assert tuned_profile(profile, row).stop_shingles == kept

    @pytest.mark.parametrize(("count", "reason"), [(40, "half of the texts have 40 words or more"),
                                                   (10, "half of the texts have 10 words or fewer")])  # fmt: skip
    def test_texts_that_are_too_short_are_named_also_where_one_kind_of_shingles_was_tried(self, count, reason):
        study = Study(WORDS, made_texts(30, count), FAMILY, floor=0.5)
        chosen = recommend(table_rows(study, workload(), [0.8], [0.9]), WORDS)
        assert chosen.row.options == WORDS
        assert reason in chosen.reason

    @pytest.mark.parametrize("threshold", [0.5, 0.7, 0.8, 0.9])
    @pytest.mark.parametrize("size", [1, 3, 5])
    def test_a_text_of_that_many_words_bears_one_changed_word(self, threshold, size):
        words = least_words(ShingleOptions("word", size), threshold)

        def similarity_of(count: int) -> float:
            text = [f"w{at}" for at in range(count)]
            changed = [*text[: count // 2], "other", *text[count // 2 + 1 :]]
            sets = shingle_sets(Shingler(ShingleOptions("word", size)), [" ".join(text), " ".join(changed)])
            left, right = (set(sets.shingles_of(number).tolist()) for number in (0, 1))
            return len(left & right) / len(left | right)

        assert similarity_of(words) >= threshold
        assert similarity_of(words - 1) < threshold
