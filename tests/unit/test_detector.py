"""The detector over the memory store: pairs, order, replays, versions, clusters."""

import itertools
import random
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamdedup.detection import appending, comparison, copy_buckets, entry_chunks, lifecycle, preparation
from streamdedup.detection.candidates import STORM_CANDIDATES, BucketHits, promising_candidates
from streamdedup.detection.entry_chunks import read_chunks, weight_bytes
from streamdedup.detection.limits import ReachedLimits
from streamdedup.detection.lookup import IndexLookup, LookupQuery
from streamdedup.detection.model import Skip, document_number, incarnation_after
from streamdedup.detection.suppression import Suppression
from streamdedup.index.documents import InsertResult, InsertState
from streamdedup.index.entries import decode_entries, encode_entries
from streamdedup.index.memory import MemoryIndex
from streamdedup.index.values import hits_of_members
from streamdedup.position import Position
from streamdedup.similarity.containment import ContainmentRule
from streamdedup.similarity.lsh import Banding
from streamdedup.similarity.sketch import Sketcher
from streamdedup.text.shingles import ShingleOptions
from streamdedup.wire import Document, content_digest
from streamdedup.wire.error_codes import ErrorCode
from tests.floods import a_story, decoys
from tests.floods import edited as edited_by
from tests.reference_pairs import expected_pairs
from tests.simulation.world import a_text, edited
from tests.streams import OPTIONS, Stream
from tests.thoroughness import examples

TEXT = "amber birch cedar delta ember fjord grove heath"
OTHER_TEXT = "inlet jetty knoll lagoon maple north ocean pearl"


@pytest.fixture
def stream() -> Stream:
    return Stream()


def a_document(document_id: str, text: str, offset: int, *, partition: int = 0, time_ms: int = 0, **more) -> Document:
    return Document(document_id, text, Position("articles", partition, offset), time_ms, **more)


def a_corpus(seed: int, count: int) -> list[tuple[str, str]]:
    rng = random.Random(seed)
    texts = [a_text(rng, 12) for _ in range(count // 3)]
    while len(texts) < count:
        texts.append(edited(rng, rng.choice(texts)))
    rng.shuffle(texts)
    return [(f"d{i}", text) for i, text in enumerate(texts)]


class EncodingIndex(MemoryIndex):
    """An index that stores the entries encoded ahead, as Redis does."""

    def encode_entries(self, entries):
        return encode_entries(entries)

    def insert_entries(self, entries, fences, encoded):
        return super().insert_entries(decode_entries([entry.number for entry in entries], encoded), fences)


@settings(max_examples=examples(40))
@given(seed=st.integers(0, 10**6), cuts=st.lists(st.integers(1, 20), min_size=1, max_size=8))
def test_any_split_of_a_stream_into_batches_gives_exactly_the_pairs_of_the_reference(seed, cuts):
    corpus = a_corpus(seed, 45)
    stream = Stream()
    documents = [a_document(i, text, offset) for offset, (i, text) in enumerate(corpus)]
    sizes = itertools.cycle(cuts)
    while documents:
        size = next(sizes)
        stream.index(*documents[:size])
        documents = documents[size:]
    assert sorted(stream.pairs.elements()) == sorted(expected_pairs(corpus, OPTIONS))
    assert len(stream.pairs) > 3


@pytest.mark.parametrize("exact_limit", [512, None])
@pytest.mark.parametrize(("shared", "block_keys"), [(1, 2**20), (3, 2**20), (3, 1)])
def test_options_of_the_comparison_keep_to_the_reference(exact_limit, shared, block_keys, monkeypatch):
    monkeypatch.setattr(comparison, "_BLOCK_KEYS", block_keys)
    options = replace(OPTIONS, exact_limit=exact_limit, min_shared_bands=shared)
    corpus = a_corpus(11, 60)
    stream = Stream(options)
    stream.index(*(a_document(i, text, offset) for offset, (i, text) in enumerate(corpus)))
    assert sorted(stream.pairs.elements()) == sorted(expected_pairs(corpus, options))


def with_paragraphs(corpus: list[tuple[str, str]], seed: int) -> list[tuple[str, str]]:
    """Return a corpus with longer copies of some of its texts, before or after them."""
    rng = random.Random(seed)
    copies = [(f"{i} and more", f"{text} {a_text(rng, rng.randint(3, 15))}") for i, text in corpus[::3]]
    longer = [*corpus, *copies]
    rng.shuffle(longer)
    return longer


@settings(max_examples=examples(40))
@given(
    seed=st.integers(0, 10**6),
    size=st.integers(1, 30),
    bag=st.booleans(),
    rule=st.builds(ContainmentRule, st.sampled_from([0.7, 0.9, 1.0]), st.sampled_from([1, 10])),
)
def test_with_a_rule_of_containment_the_pairs_are_those_of_the_reference(seed, size, bag, rule):
    options = replace(OPTIONS, shingles=ShingleOptions(unit="word", size=2, bag=bag), threshold=0.75, containment=rule)
    corpus = with_paragraphs(a_corpus(seed, 30), seed)
    stream = Stream(options)
    documents = [a_document(i, text, offset) for offset, (i, text) in enumerate(corpus)]
    matches = []
    for first in range(0, len(documents), size):
        for detection in stream.index(*documents[first : first + size]).detections:
            matches += detection.matches
    assert sorted(stream.pairs.elements()) == sorted(expected_pairs(corpus, options))
    assert len(stream.pairs) > 3
    for match in matches:
        assert match.containment >= match.similarity
        assert match.reason == ("similarity" if match.similarity >= options.threshold else "containment")


class TestContainment:
    RULE = ContainmentRule(0.9, 5)
    ADDED = " inlet jetty knoll lagoon inlet knoll jetty inlet"

    def matches(self, *texts, **options):
        stream = Stream(replace(OPTIONS, **{"threshold": 0.8, **options}))
        result = stream.index(*(a_document(f"d{at}", text, at) for at, text in enumerate(texts)))
        return [match for detection in result.detections for match in detection.matches]

    def long_texts(self):
        """Return a long text, and a changed one with more added."""
        rng = random.Random(3)
        text = a_text(rng, 60)
        return text, edited(rng, text) + a_text(rng, 20)

    @pytest.mark.parametrize(("longer_first", "contained"), [(True, "document"), (False, "match")])
    def test_a_text_with_more_added_is_found_in_either_order(self, longer_first, contained):
        texts = [TEXT + self.ADDED, TEXT][:: 1 if longer_first else -1]
        (match,) = self.matches(*texts, containment=self.RULE)
        assert (match.containment, match.contained, match.reason) == (1.0, contained, "containment")
        assert match.similarity == pytest.approx(7 / 15)
        assert self.matches(*texts) == []

    def test_a_short_text_is_no_copy_of_a_longer_one(self):
        assert self.matches(TEXT, TEXT + self.ADDED, containment=replace(self.RULE, min_shingles=8)) == []
        assert len(self.matches(TEXT, TEXT + self.ADDED, containment=replace(self.RULE, min_shingles=7))) == 1

    def test_a_pair_by_similarity_has_a_containment_too(self):
        (match,) = self.matches(TEXT, TEXT + " inlet")
        assert (match.containment, match.containment_error, match.contained) == (1.0, None, "match")
        assert match.reason == "similarity"

    def test_an_estimated_containment_has_the_error_of_its_estimate(self):
        (match,) = self.matches(*self.long_texts(), exact_limit=3, containment=ContainmentRule(0.6))
        assert match.method == "estimated"
        variance = (1 - match.containment) / (64 * match.similarity)
        assert match.containment_error == pytest.approx(match.containment * variance**0.5)

    def test_a_contained_document_joins_the_cluster_of_the_longer_one(self):
        stream = Stream(replace(OPTIONS, threshold=0.8, containment=self.RULE))
        longer = TEXT + self.ADDED
        documents = [a_document("longer", longer, 0), a_document("copy", longer, 1), a_document("shorter", TEXT, 2)]
        result = stream.index(*documents)
        assert {one.document.id: one.cluster_id for one in result.detections} == {"copy": "longer", "shorter": "longer"}


def test_beyond_the_exact_limit_similarities_are_estimates_and_say_so():
    stream = Stream(replace(OPTIONS, exact_limit=3, threshold=0.3))
    text = a_text(random.Random(1), 40)
    stream.index(a_document("a", text, 0))
    (detection,) = stream.index(a_document("b", edited(random.Random(2), text), 1)).detections
    (match,) = detection.matches
    assert match.method == "estimated"
    assert match.standard_error == pytest.approx((match.similarity * (1 - match.similarity) / 64) ** 0.5)


@pytest.mark.parametrize("returned_name", "ab")
def test_each_of_two_copies_has_its_own_incarnation_in_a_match(stream, returned_name):
    stream.index(a_document("a", TEXT, 0))
    stream.index(a_document("b", TEXT, 1))
    stream.delete([a_document(returned_name, "", 2, op="delete")])
    stream.index(a_document(returned_name, TEXT, 3))
    (detection,) = stream.index(a_document("c", TEXT, 4)).detections
    has_incarnation = {match.id: bool(match.incarnation) for match in detection.matches}
    assert has_incarnation == {"a": returned_name == "a", "b": returned_name == "b"}


class TestSkips:
    @pytest.mark.parametrize(
        ("text", "options", "reason"),
        [
            ("", OPTIONS, Skip.EMPTY),
            ("!? -- 🙂", OPTIONS, Skip.EMPTY),
            ("amber", replace(OPTIONS, shingles=ShingleOptions(size=2, short_texts="skip")), Skip.TOO_SHORT),
            ("amber birch cedar", replace(OPTIONS, min_words=4), Skip.TOO_FEW_WORDS),
            ("amber birch", replace(OPTIONS, shingles=ShingleOptions("char", 3), min_words=4), Skip.TOO_FEW_WORDS),
        ],
    )
    def test_a_document_that_cannot_be_compared_is_skipped_with_its_reason(self, text, options, reason):
        stream = Stream(options)
        neighbours = [a_document("n1", TEXT, 1), a_document("n2", TEXT, 2)]
        result = stream.index(neighbours[0], a_document("odd", text, 0), neighbours[1])
        assert [(document.id, why) for document, why in result.skipped] == [("odd", reason)]
        assert result.indexed_count == 2
        assert stream.pairs == Counter([("n1", "n2")])

    def test_a_document_that_an_append_leaves_too_short_is_not_compared(self):
        stream = Stream(replace(OPTIONS, min_words=4))
        for offset, (document_id, op) in enumerate(itertools.product("ab", ("upsert", "append"))):
            (skipped,) = stream.index(a_document(document_id, "amber", offset, op=op)).skipped
            assert (skipped[0].id, skipped[1]) == (document_id, Skip.TOO_FEW_WORDS)
        assert not stream.pairs


class TestReplays:
    def test_a_replay_emits_the_same_pairs_from_the_same_positions(self, stream):
        corpus = a_corpus(3, 30)
        documents = [a_document(i, text, offset) for offset, (i, text) in enumerate(corpus)]
        first = stream.index(*documents)
        assert stream.index(*documents).detections == first.detections

    @pytest.mark.parametrize("names", ["ab", "aab", "abab", "abbcac"])
    def test_each_document_is_stored_with_its_own_entry_also_beside_redeliveries(self, names):
        stream = Stream(store=EncodingIndex())
        text_of = {name: TEXT.replace("e", name) for name in names}
        documents = [a_document(name, text_of[name], offset) for offset, name in enumerate(names)]
        stream.index(*documents)
        first = {document.id: document for document in reversed(documents)}
        expected = stream.detector.prepare(list(first.values())).entries
        stored = stream.store.get_entries([entry.number for entry in expected])
        assert encode_entries([stored[entry.number] for entry in expected]) == encode_entries(expected)

    def test_a_redelivery_of_a_document_that_another_partition_did_not_finish_finds_its_pairs(self, stream):
        stream.index(a_document("a", TEXT, 0))
        cut_short = stream.detector.prepare([a_document("b", TEXT, 2, partition=1)])
        stream.store.insert_entries(cut_short.entries, list(stream.fences.values()))
        here, there = a_document("b", TEXT, 4), a_document("b", TEXT, 2, partition=1)
        result = stream.index(here)
        assert [(found.document, found.matches[0].id) for found in result.detections] == [(here, "a")]
        assert [why for _, why in result.skipped] == [Skip.REDELIVERED]
        assert stream.index(here).detections == result.detections
        assert stream.index(there).detections == ()

    def test_below_the_high_water_mark_a_record_is_indexed_and_emits_nothing(self, stream):
        stream.fence(generation=2, start=10)
        result = stream.index(a_document("a", TEXT, 8), a_document("b", TEXT, 9))
        assert (result.detections, result.silent_count) == ((), 2)
        stream.index(a_document("c", TEXT, 10), a_document("a", TEXT, 11))
        assert sorted(stream.pairs.elements()) == [("a", "c"), ("b", "c")], "a redelivery is not compared"

    def test_matches_found_before_a_crash_are_emitted_although_they_have_changed_since(self, stream):
        stream.index(a_document("a", TEXT, 0))
        attempt = [a_document("b", TEXT, 1, partition=1)]
        first = stream.index(*attempt)
        stream.index(a_document("a", OTHER_TEXT, 1))
        assert stream.index(*attempt).detections[0].matches == first.detections[0].matches

    def test_a_replay_keeps_the_time_of_the_first_attempt(self):
        stream = Stream(replace(OPTIONS, window_ms=1000))
        stream.index(a_document("a", TEXT, 0, time_ms=5000))
        stream.index(a_document("b", TEXT, 0, partition=1, time_ms=4500))
        replayed = stream.index(a_document("a", TEXT, 0, time_ms=9000))
        assert [match.id for detection in replayed.detections for match in detection.matches] == []
        assert replayed.accepted_count == 1

    def test_a_redelivery_in_another_partition_has_the_time_of_the_stored_document(self):
        stream = Stream(replace(OPTIONS, window_ms=1000))
        stream.index(a_document("a", TEXT, 0, time_ms=5000), a_document("b", TEXT, 1, time_ms=7000))
        stream.index(a_document("a", TEXT, 0, partition=1, time_ms=7100))
        assert not stream.pairs

    def test_deletions_at_one_offset_of_two_incarnations_of_a_topic_begin_two_incarnations(self):
        deletion = Position("articles", 0, 7)
        assert incarnation_after(deletion) != incarnation_after(deletion._replace(incarnation=1))

    def test_pairs_claimed_at_a_position_are_emitted_although_another_partition_has_inserted_its_content(self, stream):
        stream.index(a_document("x", TEXT, 0))
        attempt = a_document("d", TEXT, 1, time_ms=1)
        first = stream.index(attempt)
        elsewhere = [("d", OTHER_TEXT, 0, 2), ("d", TEXT, 1, 3)]
        stream.index(*(a_document(i, t, at, partition=1, time_ms=time) for i, t, at, time in elsewhere))
        assert stream.index(attempt).detections[0].matches == first.detections[0].matches

    @pytest.mark.parametrize("is_deleted", [False, True])
    def test_an_append_that_is_processed_again_shows_nothing_of_a_later_version(self, is_deleted):
        stream = Stream(replace(OPTIONS, label_bytes=80))
        stream.index(a_document("x", TEXT, 0, partition=1), a_document("a", "amber birch cedar", 0))
        append = a_document("a", "delta ember fjord grove heath", 1, op="append")
        (first,) = stream.index(append).detections
        if is_deleted:
            stream.delete([a_document("a", "", 2, op="delete")])
        stream.index(a_document("a", OTHER_TEXT, 3))
        (again,) = stream.index(append).detections
        assert (again.digest, again.matches) == (first.digest, first.matches)
        assert (first.label, again.label, bool(again.incarnation)) == ("amber birch cedar", "", is_deleted)

    def test_an_append_that_is_processed_again_is_made_once(self, stream):
        stream.index(a_document("a", "amber birch cedar", 1, partition=1))  # the same offset is no earlier attempt
        append = a_document("a", "delta ember fjord grove heath", 1, time_ms=1, op="append")
        numbers = [document_number("articles", "a")]
        before = stream.store.get_entries(numbers)
        stream.index(append)
        entries = stream.store.get_entries(numbers)
        stream.index(append)
        assert stream.store.get_entries(numbers) == entries != before

    def test_a_superseded_append_hides_no_copies_of_the_later_version_in_its_batch(self, stream):
        stream.index(a_document("a", "amber birch cedar", 0))
        append = a_document("a", "delta ember fjord grove heath", 1, op="append")
        stream.index(append, a_document("a", OTHER_TEXT, 2))
        stream.index(append, a_document("x", OTHER_TEXT, 0, partition=1))
        assert stream.pairs == {("a", "x"): 1}

    def test_a_superseded_version_keeps_no_copy_of_the_later_one_out_of_its_cluster(self, stream):
        earlier = a_document("x", f"{TEXT} quartz", 0)
        stream.index(a_document("f", TEXT, 0, partition=2), earlier)
        stream.index(a_document("x", OTHER_TEXT, 1))
        of_earlier, of_copy = stream.index(earlier, a_document("y", OTHER_TEXT, 0, partition=1)).detections
        assert (of_earlier.cluster_id, of_copy.cluster_id, of_copy.cluster_size) == ("f", "x", 2)

    @pytest.mark.parametrize("call", ["remove_from_buckets", "remove_copies", "leave_clusters", "replace_entries"])
    @pytest.mark.parametrize("op", ["upsert", "delete"])
    def test_a_replay_takes_a_document_out_of_its_cluster_wherever_the_first_attempt_ended(self, stream, op, call):
        def attempt():
            change = a_document("b", OTHER_TEXT, 3)
            return stream.delete([change]) if op == "delete" else stream.index(change)

        stream.index(*(a_document(name, TEXT, offset) for offset, name in enumerate("abc")))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(stream.store, call, None)
            with pytest.raises(TypeError):
                attempt()
        attempt()
        assert stream.index(a_document("d", TEXT, 4)).detections[0].cluster_size == 3

    def test_an_append_without_a_document_is_made_to_one_that_another_partition_has_inserted_since(self, stream):
        append = a_document("a", "inlet jetty knoll", 5, time_ms=2, op="append")
        assert [document for document, _ in stream.index(append).refused] == [append]
        stream.index(a_document("a", TEXT, 0, partition=1, time_ms=1))
        result = stream.index(append)
        assert (result.refused, result.indexed_count) == ((), 1)
        stream.index(a_document("b", f"{TEXT} inlet jetty knoll", 6))
        assert stream.pairs == Counter([("a", "b")])

    def test_a_doubtful_deletion_deletes_a_document_that_another_partition_has_inserted_since(self, stream):
        deletion = a_document("a", "", 5, time_ms=2, op="delete", doubtful=True)
        assert [document for document, _ in stream.delete([deletion]).refused] == [deletion]
        stream.index(a_document("a", TEXT, 0, partition=1, time_ms=1))
        assert not stream.delete([deletion]).refused

    def test_a_silent_append_without_a_document_leaves_nothing_to_be_cleared_up(self, stream):
        stream.fence(generation=2, start=9)
        append = a_document("a", "inlet jetty knoll", 5, op="append")
        for _ in range(2):
            result = stream.index(append)
            assert [(document, error.code) for document, error in result.refused] == [
                (append, ErrorCode.UNKNOWN_DOCUMENT)
            ]
            assert (result.pending_positions, len(stream.store._pending_matches)) == ((), 0)

    def test_an_append_to_a_document_without_words_is_skipped_and_no_other_document_of_the_batch(self, stream):
        stream.index(a_document("first", TEXT, 1), a_document("empty", "", 2))
        result = stream.index(a_document("second", TEXT, 3), a_document("empty", "...", 4, op="append"))
        assert [(document.id, skip) for document, skip in result.skipped] == [("empty", Skip.EMPTY)]
        assert stream.pairs == {("first", "second"): 1}

    def test_an_append_to_a_bag_beyond_exact_limit_is_refused_and_changes_nothing(self):
        stream = Stream(replace(OPTIONS, shingles=ShingleOptions(unit="word", size=2, bag=True), exact_limit=5))
        stream.index(a_document("a", TEXT, 0), a_document("short", "amber birch cedar", 1))
        appends = [a_document("a", "inlet", 2, op="append"), a_document("short", "inlet", 3, op="append")]
        result = stream.index(*appends)
        ((document, error),) = result.refused
        assert (document, error.code) == (appends[0], ErrorCode.BAG_TOO_LARGE)
        assert "more than 5 shingles" in str(error)
        assert result.indexed_count == 1
        stream.index(a_document("b", TEXT, 4))
        assert stream.pairs == Counter([("a", "b")])


class TestVersions:
    def test_a_document_is_never_a_near_duplicate_of_its_own_earlier_version(self, stream):
        stream.index(a_document("a", TEXT, 0), a_document("a", f"{TEXT} inlet", 1))
        assert not stream.pairs

    def test_a_pair_alerted_before_is_not_alerted_again_on_return_to_the_old_content(self, stream):
        stream.index(a_document("a", TEXT, 0), a_document("b", TEXT, 1))
        stream.index(a_document("b", OTHER_TEXT, 2))
        stream.index(a_document("b", TEXT, 3))
        assert stream.pairs == Counter([("a", "b")])

    def test_a_deletion_that_comes_after_a_later_version_leaves_that_version_in_the_index(self, stream):
        stream.index(a_document("a", TEXT, 2))
        stream.delete([a_document("a", "", 1, op="delete")])
        stream.index(a_document("b", TEXT, 3))
        assert stream.pairs == Counter([("a", "b")])


class TestWindow:
    @pytest.mark.parametrize(("difference_ms", "pairs"), [(1000, [("a", "b")]), (1001, [])])
    def test_two_documents_match_while_their_times_differ_by_at_most_the_window(self, difference_ms, pairs):
        stream = Stream(replace(OPTIONS, window_ms=1000))
        stream.index(a_document("a", TEXT, 0, time_ms=5000 + difference_ms), a_document("b", TEXT, 1, time_ms=5000))
        assert stream.pairs == Counter(pairs)


class TestCandidates:
    def test_beyond_the_limit_the_candidates_with_most_shared_bands_are_compared(self):
        stream = Stream(replace(OPTIONS, max_candidates=2))
        rng = random.Random(4)
        text = a_text(rng, 20)
        copies = [a_document(f"copy{i}", text, i) for i in range(2)]
        near = [a_document(f"near{i}", edited(rng, edited(rng, edited(rng, text))), 10 + i) for i in range(4)]
        stream.index(*near, *copies, a_document("calm", OTHER_TEXT, 20))
        result = stream.index(a_document("new", text, 21), a_document("calm copy", OTHER_TEXT, 22))
        assert {match.id for match in result.detections[0].matches} == {"copy0", "copy1"}
        assert result.dropped_candidates_count > 0
        assert [detection.complete for detection in result.detections] == [False, True]

    def test_a_number_that_belongs_to_another_id_is_reported(self, stream, monkeypatch):
        stream.index(a_document("a", TEXT, 0))
        stranger = stream.store.get_entries([document_number("articles", "a")])

        def collide(entries, fences, encoded):
            return [InsertResult(InsertState.COLLIDED, *stranger.values()) for _ in entries]

        monkeypatch.setattr(stream.store, "insert_entries", collide)
        result = stream.index(a_document("b", TEXT, 1))
        ((document, error),) = result.refused
        assert (document.id, error.code) == ("b", "id_collision")
        assert "'a'" in str(error)
        assert result.detections == ()

    def test_each_delivery_under_the_number_of_another_id_is_reported(self, monkeypatch):
        monkeypatch.setattr(preparation, "document_number", lambda _profile, _id: 7)
        stream = Stream()
        stream.index(a_document("a", TEXT, 0))
        refused = stream.index(a_document("b", TEXT, 1), a_document("b", TEXT, 2)).refused
        assert [document.position.offset for document, _ in refused] == [1, 2]
        assert all("'a'" in str(error) for _, error in refused)

    @pytest.mark.parametrize("op", ["append", "delete"])
    def test_an_append_or_a_deletion_under_the_number_of_another_id_changes_nothing(self, monkeypatch, op):
        for module in (preparation, appending, lifecycle):
            monkeypatch.setattr(module, "document_number", lambda _profile, _id: 7)
        stream = Stream()
        stream.index(a_document("a", TEXT, 0))
        before = stream.store.get_entries([7])
        if op == "append":
            (refusal,) = stream.index(a_document("b", "knoll", 1, op=op)).refused
            assert refusal[1].code == "id_collision"
        else:
            assert stream.delete([a_document("b", "", 1, op=op)]).deleted_unknown_count == 1
        assert stream.store.get_entries([7]) == before


class Weighed(MemoryIndex):
    """Keeps the weight of each chunk of entries."""

    def __init__(self):
        super().__init__()
        self.weights = []

    def get_entries(self, numbers):
        return self._weighed(super().get_entries(numbers))

    def read_entries(self, numbers, limit_bytes):
        return self._weighed(super().read_entries(numbers, limit_bytes))

    def _weighed(self, read):
        self.weights.append(weight_bytes(entry for entry in read.values() if entry is not None))
        return read


@settings(max_examples=20)
@given(
    seed=st.integers(0, 2**32),
    budget_bytes=st.integers(1, 600),
    cap=st.sampled_from([None, 6, 12]),
    exact_limit=st.sampled_from([0, 6, None]),
    max_candidates=st.sampled_from([None, 3]),
)
def test_the_budget_of_a_chunk_does_not_change_the_result(seed, budget_bytes, cap, exact_limit, max_candidates):
    options = replace(OPTIONS, exact_limit=exact_limit, max_candidates=max_candidates, window_ms=40)
    results = []
    for budget in (budget_bytes, 10**9):
        rng = random.Random(seed)
        stream = Stream(options, MemoryIndex(bucket_cap=cap))
        texts = [a_text(rng, 12) for _ in range(4)]
        results.append([])
        for first in range(0, 80, 20):
            sent = [edited(rng, rng.choice(texts)) if rng.random() < 0.6 else rng.choice(texts) for _ in range(20)]
            ids = [f"d{rng.randrange(60)}" for _ in sent]
            batch = {i: a_document(i, sent[at], first + at, time_ms=first + at) for at, i in enumerate(ids)}
            with pytest.MonkeyPatch.context() as patch:
                for module in (copy_buckets, entry_chunks):
                    patch.setattr(module, "BUDGET_BYTES", budget)
                results[-1].append(stream.index(*batch.values()))
        results[-1].append((stream.store._copies, stream.store._pending_matches, stream.store._claims))
    small, large = ([*map(_comparable, each)] for each in results)
    assert small == large


def _comparable(part):
    return [list(entries._entries.items()) for entries in part] if isinstance(part, tuple) else part


def test_entries_of_candidates_are_held_in_chunks_of_the_budget(monkeypatch):
    store = Weighed()
    stream = Stream(OPTIONS, store)
    rng = random.Random(7)
    text = a_text(rng, 200)
    for at in range(40):
        stream.index(a_document(f"d{at}", edited(rng, text), at))
    each = weight_bytes(store.get_entries([document_number("articles", "d0")]).values())
    monkeypatch.setattr(entry_chunks, "BUDGET_BYTES", 4 * each)
    store.weights.clear()
    result = stream.index(a_document("new", text, 99))
    assert result.accepted_count == 40
    assert sum(store.weights) >= 40 * each * 0.9, "all were read"
    assert max(store.weights) <= 5 * each * 1.1


@pytest.mark.parametrize("stride", [1, 3])
def test_of_more_entries_than_a_reply_takes_each_is_read_once(stride):
    """With a stride, a reply is no prefix of its request, as where each of several slots ends its reply by itself."""
    read = []

    def read_entries(numbers, _limit_bytes):
        read.extend(numbers[::stride])
        return {number: number for number in numbers[::stride]}

    store = SimpleNamespace(read_entries=read_entries)
    assert [number for chunk in read_chunks(store, range(4_001)) for number in chunk] == read
    assert sorted(read) == list(range(4_001))


def test_only_the_bands_of_contents_outside_the_batch_are_signed(monkeypatch):
    signed = []
    signatures = Sketcher.signatures

    def counting(sketcher, sketches, permutations):
        signed.append(len(sketches))
        return signatures(sketcher, sketches, permutations)

    monkeypatch.setattr(Sketcher, "signatures", counting)
    stream = Stream()
    stream.index(a_document("a", TEXT, 0), a_document("b", f"{TEXT} inlet", 1), a_document("c", TEXT, 2))
    result = stream.index(a_document("d", TEXT, 3))
    assert {match.shared_bands for match in result.detections[0].matches if match.id != "b"} == {OPTIONS.banding.bands}
    assert signed == [1]


class TestClusters:
    def test_no_entries_are_requested_without_a_number(self, stream, monkeypatch):
        requests, read = [], stream.store.get_entries
        monkeypatch.setattr(stream.store, "get_entries", lambda numbers: requests.append(numbers) or read(numbers))
        stream.index(a_document("a", TEXT, 0))
        stream.index(a_document("b", TEXT, 1))
        assert stream.index(a_document("c", TEXT, 2)).detections[0].cluster_id == "a"
        assert IndexLookup(OPTIONS, stream.store).look_up([LookupQuery(TEXT)], 0)[0].matches
        assert len(requests) == 2
        assert all(requests)

    def test_a_chain_of_small_edits_does_not_become_one_cluster(self):
        stream = Stream(replace(OPTIONS, threshold=0.6, banding=Banding(16, 2)))
        words = [f"w{i}" for i in range(40)]
        clusters = []
        for step in range(6):
            text = " ".join(words[step * 4 : step * 4 + 20])
            clusters += [d.cluster_id for d in stream.index(a_document(f"d{step}", text, step)).detections]
        assert len(set(clusters)) > 1

    def test_a_cluster_is_counted_as_long_as_its_documents_are_continued(self):
        now_ms = 0
        stream = Stream(store=MemoryIndex(lifetime_ms=1_000, now_ms=lambda: now_ms))
        stream.index(*(a_document(f"d{at}", TEXT, at) for at in range(3)))
        for at in range(4):
            now_ms += 400
            stream.index(*(a_document(f"d{n}", "zinc", 10 + 3 * at + n, op="append") for n in range(3)))
        (detection,) = stream.index(a_document("new", f"{TEXT} zinc", 30)).detections
        assert (detection.cluster_id, detection.cluster_size) == ("d0", 4)


# Storms


@settings(max_examples=examples(40))
@given(st.integers(0, 2**32), st.integers(12, 40), st.lists(st.integers(1, 60), min_size=3, max_size=8), st.booleans())
def test_in_a_storm_every_exact_copy_is_reported_with_an_exact_copy(seed, cap, sizes, silent):
    rng = random.Random(seed)
    stream = Stream(store=MemoryIndex(bucket_cap=cap))
    boilerplate = a_text(rng, 30)
    texts = [boilerplate, *[edited(rng, boilerplate) for _ in range(20)]]
    total = sum(sizes)
    sent = [rng.choice(texts) if rng.random() < 0.9 else edited(rng, boilerplate) for _ in range(total)]
    first_emitting = total // 2 if silent else 0
    stream.fence(2, start=first_emitting)
    found: dict[str, bool] = {}
    offset = 0
    for size in sizes:
        documents = [a_document(f"d{at}", sent[at], at) for at in range(offset, offset + size)]
        for detection in stream.index(*documents).detections:
            found[detection.document.id] = any(match.digest == detection.digest.hex() for match in detection.matches)
        offset += size
    copies = {f"d{at}" for at, text in enumerate(sent) if text in sent[:at] and at >= first_emitting}
    assert {document for document in copies if not found.get(document)} == set()


def test_in_a_storm_longer_than_a_lifetime_copies_are_reported_with_the_latest_copy():
    now_ms = 0
    stream = Stream(store=MemoryIndex(lifetime_ms=1_000, bucket_cap=4, now_ms=lambda: now_ms))
    unreported = []
    for at in range(60):
        now_ms += 100
        matches = {
            match.id for each in stream.index(a_document(f"d{at}", TEXT, at)).detections for match in each.matches
        }
        if f"d{at - 1}" not in matches:
            unreported.append(at)
    assert unreported == [0]


def test_of_the_copies_near_capacity_those_of_the_latest_time_are_kept():
    stream = Stream(store=MemoryIndex(bucket_cap=20))
    for at in range(11):
        stream.index(a_document(f"d{at}", TEXT, at, time_ms=100 - at))
    (copies,) = stream.store.look_up_copies([(0, content_digest(TEXT))])
    assert copies == [document_number("articles", f"d{at}") for at in (10, *range(7))]


def index_with_band_keys(stream: Stream, offset: int, text: str, *keys: int) -> list[str]:
    """Index a document whose buckets are chosen, behind one that is in no bucket; return the ids of its matches."""
    documents = [a_document("empty", "", offset, partition=1), a_document(f"d{offset}", text, offset)]
    prepared = stream.detector.prepare(documents)
    prepared = replace(prepared, band_keys=np.array([keys, keys], np.uint32))
    return [match.id for each in stream.detector.index(prepared, stream.fences).detections for match in each.matches]


def test_a_copy_is_found_also_if_documents_with_another_full_bucket_filled_the_buckets():
    stream = Stream(replace(OPTIONS, banding=Banding(2, 2)), MemoryIndex(bucket_cap=5))
    rng, full, own = random.Random(1), [7, 8], [1, 2]
    fillers = [[7, 2], [1, 8]] * 4
    for offset, keys in enumerate([full] * 5 + fillers[:4] + [own] + fillers[4:]):
        text = TEXT if keys == own else a_text(rng, 12)
        assert index_with_band_keys(stream, offset, text, *keys) == []
    assert index_with_band_keys(stream, 14, TEXT, *own) == ["d9"]


def test_members_are_read_again_only_from_buckets_that_are_half_full_and_not_full():
    store = MemoryIndex(bucket_cap=4)
    stream, read = Stream(replace(OPTIONS, banding=Banding(2, 2)), store), []
    store.copy_removals = lambda: read.append(offset) or {0: 0}
    for offset in range(7):
        index_with_band_keys(stream, offset, a_text(random.Random(offset), 12), 1, 10 + offset)
    assert read == [2, 3]


class Interrupted(MemoryIndex):
    """Before one of its calls another daemon acts."""

    at: int | None = None
    calls = 0

    def __getattribute__(self, name):
        found = super().__getattribute__(name)
        if name.startswith("_") or not callable(found) or self.at is None:
            return found
        self.calls += 1
        if self.calls == self.at:
            self.at = None
            self.act()
        return found


@pytest.mark.parametrize("how", ["deleted", "changed and deleted", "deleted but for the entry, which follows"])
def test_a_document_deleted_while_others_are_inserted_in_its_buckets_near_capacity_is_in_no_bucket(how):
    """Between any two calls of the store: only the deletion marker remains."""
    near_capacity = 0
    for at in itertools.count(1):
        store = Interrupted(bucket_cap=10)
        stream, other = Stream(store=store), Stream(store=store)
        text = a_text(random.Random(2), 20)
        stream.index(*[a_document(f"d{i}", text, i) for i in range(5)])
        gone = a_document("d0", "", 20)
        number = document_number("articles", "d0")
        last_calls = []

        def act(stream=other, gone=gone, text=text, last_calls=last_calls) -> None:
            if how.startswith("changed"):
                stream.index(a_document("d0", f"{text} anew", 10))
            with pytest.MonkeyPatch.context() as patch:
                if how.endswith("follows"):
                    patch.setattr(stream.store, "replace_entries", lambda *call: last_calls.append(call))
                stream.delete([gone])

        store.act, store.at = act, at
        stream.index(*[a_document(f"n{i}", text, i, partition=1) for i in range(4)])
        for call_arguments in last_calls:
            store.replace_entries(*call_arguments)
        if store.at is not None:
            break
        assert store.get_entries([number])[number].deleted
        copies = [members for members, _ in store._copies._entries.values()]
        assert [members for members in copies if number in members] == [], f"before call {at}"
        assert [members for members, _ in store._buckets._entries.values() if number in members] == []
        near_capacity += any(len(members) > 4 for members in copies)
    assert at > 5
    assert near_capacity, "without the deletion in between the document would be in these buckets"


@pytest.mark.parametrize(("members", "is_near"), [(1, False), (2, True), (3, True)])
def test_a_bucket_with_half_of_its_cap_is_near_capacity(members, is_near):
    assert bool(hits_of_members([99], [[range(members)]], bucket_cap=4).near_capacity) is is_near


@pytest.mark.parametrize("bucket_cap", [None, 1])
def test_changed_and_deleted_documents_leave_no_empty_buckets(bucket_cap):
    stream = Stream(store=MemoryIndex(bucket_cap=bucket_cap))
    stream.index(a_document("d0", TEXT, 0), a_document("d1", TEXT, 1))
    assert bool(len(stream.store._copies)) is (bucket_cap == 1)
    stream.index(a_document("d0", OTHER_TEXT, 2))
    stream.index(a_document("d2", TEXT, 3), a_document("d3", TEXT, 4))
    stream.index(a_document("d3", "more", 5, op="append"))
    stream.delete([a_document(f"d{number}", "", 6 + number) for number in range(4)])
    assert (len(stream.store._buckets), len(stream.store._copies)) == (0, 0)


def test_in_a_storm_a_document_is_compared_with_few_of_any_number_of_earlier_ones():
    stream = Stream(store=MemoryIndex(bucket_cap=20))
    empty = a_document("empty", "", 400)  # in no bucket
    result = stream.index(empty, *[a_document(f"d{at}", TEXT, at) for at in range(400)])
    by_id = {detection.document.id: len(detection.matches) for detection in result.detections}
    assert len(by_id) == 399
    assert all(by_id[f"d{at}"] == at for at in range(1, 20))
    assert all(1 <= by_id[f"d{at}"] <= STORM_CANDIDATES for at in range(20, 400))
    assert {one.document.id for one in result.detections if one.complete} == {f"d{at}" for at in range(1, 20)}
    reached = ReachedLimits.of(result)
    assert (reached.documents, reached.in_full_buckets, reached.over_candidates) == (380, 380, 0)
    assert result.full_buckets_count == 380 * OPTIONS.banding.bands
    assert [position.offset for position in result.full_bucket_positions] == list(range(20, 400))
    assert result.rejected_count == 0


@pytest.mark.parametrize("max_candidates", [None, 2])
@pytest.mark.parametrize("bucket_cap", [4, 20])
def test_each_candidate_is_accepted_rejected_or_dropped_once(bucket_cap, max_candidates):
    stream = Stream(replace(OPTIONS, max_candidates=max_candidates), MemoryIndex(bucket_cap=bucket_cap))
    for at in range(15):
        result = stream.index(a_document(f"d{at}", TEXT, at))
        compared_count = result.accepted_count + result.rejected_count
        assert compared_count + result.dropped_candidates_count == result.candidates_count
        # Of a full bucket the index returns some members.
        assert result.candidates_count == at or (result.full_buckets_count and result.candidates_count < at)


def test_a_document_with_a_full_bucket_is_not_counted_again_for_its_dropped_candidates():
    stream = Stream(OPTIONS, MemoryIndex(bucket_cap=20))
    storm, calm = "amber birch cedar delta ember fjord", "grove heath inlet jetty knoll lagoon"
    stream.index(*[a_document(f"d{at}", storm, at) for at in range(20)])
    stream.index(*[a_document(f"e{at}", calm, 20 + at) for at in range(8)])
    result = stream.index(a_document("x", f"{storm} {calm}", 28))
    reached = ReachedLimits.of(result)
    assert result.dropped_candidates_count > 0
    assert (reached.documents, reached.in_full_buckets, reached.over_candidates) == (1, 1, 0)


class TestHidden:
    """A text whose buckets are full in all bands; the decoys in them are below the threshold."""

    STORY = a_story()
    EDITS = decoys(STORY, 150, 85)

    def flooded(self, **options) -> Stream:
        """Return a stream with these options, to an index that holds the decoys."""
        stream = Stream(replace(OPTIONS), MemoryIndex(bucket_cap=5))
        result = stream.index(*(a_document(i, text, at, source="press") for at, (i, text) in enumerate(self.EDITS)))
        assert not result.detections
        assert not result.hidden
        return Stream(replace(OPTIONS, **options), stream.store)

    def story(self, offset: int, text: str | None = None, **fields) -> Document:
        return a_document(f"story-{offset}", self.STORY if text is None else text, offset, **fields)

    def test_a_text_without_a_match_is_hidden_and_its_exact_copy_names_it(self):
        stream = self.flooded()
        story, near, copy = self.story(150), self.story(151, edited_by(self.STORY, 1, 7)), self.story(152)
        assert stream.index(story).hidden == (story,)
        assert not stream.index(near).detections
        result = stream.index(copy)
        assert [match.id for match in result.detections[0].matches] == ["story-150"]
        assert not result.hidden

    def test_a_pair_by_containment_counts_as_a_match_and_a_suppressed_pair_does_not(self):
        assert not self.flooded(containment=ContainmentRule(0.3, 5)).index(self.story(150)).hidden
        suppression = Suppression(ignore_same_source=True)
        stream = self.flooded(threshold=0.35, suppression=suppression)
        result = stream.index(self.story(150, source="press"))
        assert result.suppressed.total()
        assert result.hidden

    def test_each_attempt_at_a_text_finds_it_hidden_and_a_redelivery_or_a_silent_one_does_not(self):
        stream = self.flooded()
        assert [len(stream.index(self.story(150)).hidden) for _ in range(2)] == [1, 1]
        assert not stream.index(a_document("story-150", self.STORY, 151)).hidden
        stream.fence(generation=2, start=160)
        assert not stream.index(self.story(159)).hidden
        assert stream.index(self.story(160, f"{self.STORY} .")).hidden

    def test_a_text_is_hidden_by_the_append_that_completes_it_and_by_an_update(self):
        stream = self.flooded()
        words = self.STORY.split()
        assert not stream.index(self.story(150, " ".join(words[:200]))).hidden
        rest = a_document("story-150", " ".join(words[200:]), 151, op="append")
        assert stream.index(rest).hidden == (rest,)
        stream.index(a_document("changed", OTHER_TEXT, 152))
        changed = a_document("changed", self.STORY.upper(), 153)
        assert stream.index(changed).hidden == (changed,)


@pytest.mark.parametrize(("limit", "count"), [(None, 3), (500, 3), (3, 3), (2, 2), (1, 1)])
def test_a_full_bucket_never_raises_the_limit_on_candidates(limit, count):
    candidates = {number: number % 3 for number in range(1, 11)}
    promising = promising_candidates(BucketHits(candidates, is_near_capacity=True, full_count=1), limit)
    assert promising == [2, 5, 8][:count]
