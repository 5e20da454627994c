"""Suppressed pairs: the rules about sources and short texts, symmetric and independent of the order of arrival."""

import itertools
import random
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from streamdedup.detection import entry_chunks
from streamdedup.detection.detector import Detector
from streamdedup.detection.lookup import IndexLookup, LookupQuery
from streamdedup.detection.model import DetectorOptions, document_number
from streamdedup.detection.suppression import Suppression, SuppressionRule, source_key, suppression_of
from streamdedup.position import Position
from streamdedup.wire import Document
from tests import streams
from tests.entries import content_of
from tests.streams import Stream
from tests.thoroughness import examples

OPTIONS = streams.OPTIONS
TEXT = "amber birch cedar delta ember fjord grove heath"
WORDS = TEXT.split()
NAMES = ("a", "b", "c", "d")

names = st.sampled_from(NAMES)
any_rules = st.fixed_dictionaries(
    {
        "min_shingles": st.sampled_from([0, 0, 1, 3, 6]),
        "only_sources": st.lists(names, max_size=2),
        "ignore_same_source": st.booleans(),
        "ignore_sources": st.lists(st.tuples(names, names), max_size=3),
    }
)
suppressions = any_rules.map(lambda rules: suppression_of(**rules) or Suppression())
contents = st.builds(
    lambda source, count, stop_only: structs.replace(content_from(source, count), stop_only=stop_only),
    st.sampled_from([None, *NAMES]),
    st.integers(0, 9),
    st.booleans(),
)


def options_of(**rules) -> DetectorOptions:
    given_rules = {"min_shingles": 0, "only_sources": (), "ignore_same_source": False, "ignore_sources": ()} | rules
    return replace(OPTIONS, suppression=suppression_of(**given_rules))


def content_from(source: str | None, count: int = 4):
    return structs.replace(content_of(hashes_count=count), source=source and source_key(source))


def document(name, text=TEXT, offset=0, source=None, op="upsert") -> Document:
    return Document(name, text, Position("articles", 0, offset), 0, op, source)


# The rules


@pytest.mark.parametrize(
    ("rules", "a", "b", "expected"),
    [
        ({"ignore_same_source": True}, "a", "a", SuppressionRule.IGNORE_SAME_SOURCE),
        ({"ignore_same_source": True}, "a", "A", None),
        ({"ignore_same_source": True}, None, None, None),
        ({"ignore_same_source": True}, "a", None, None),
        ({"ignore_sources": [("a", "b")]}, "a", "b", SuppressionRule.IGNORE_SOURCES),
        ({"ignore_sources": [("a", "b")]}, "a", "a", None),
        ({"ignore_sources": [("a", "a")]}, "a", "a", SuppressionRule.IGNORE_SOURCES),
        ({"ignore_sources": [("a", "b"), ("b", "c")]}, "a", "c", None),
        ({"ignore_sources": [("a", "b")]}, "a", None, None),
        ({"only_sources": ["a"]}, "b", "c", SuppressionRule.ONLY_SOURCES),
        ({"only_sources": ["a"]}, "b", "b", SuppressionRule.ONLY_SOURCES),
        ({"only_sources": ["a"]}, "a", "b", None),
        ({"only_sources": ["a"]}, "b", None, None),
        ({"only_sources": ["a"], "ignore_same_source": True}, "b", "b", SuppressionRule.ONLY_SOURCES),
        ({"min_shingles": 5}, "a", "b", SuppressionRule.MIN_SHINGLES),
        ({"min_shingles": 4}, None, None, None),
    ],
)
def test_each_rule_suppresses_the_pairs_it_names_in_either_order(rules, a, b, expected):
    suppression = options_of(**rules).suppression
    for one, other in ((a, b), (b, a)):
        assert suppression.rule(content_from(one), content_from(other)) is expected


def test_one_short_document_is_enough_for_min_shingles_and_stop_shingles_do_not_count():
    suppression = options_of(min_shingles=4).suppression
    assert suppression.rule(content_from("a", 3), content_from("b", 9)) is SuppressionRule.MIN_SHINGLES
    assert suppression.rule(content_from("a", 4), content_from("b", 9)) is None
    suppression = options_of(min_shingles=1).suppression
    only_boilerplate = structs.replace(content_from("a", 9), stop_only=True)
    assert suppression.rule(only_boilerplate, content_from("b", 9)) is SuppressionRule.MIN_SHINGLES


def test_no_rule_is_none():
    assert options_of().suppression is None
    assert options_of(min_shingles=1).suppression is not None


# The detector


def a_world(rng: random.Random, count: int) -> list[tuple[str, str, str | None]]:
    """Return id, text and source of documents, of which many resemble others."""
    texts = [" ".join(rng.choices(WORDS, k=rng.randint(2, 12))) for _ in range(count // 3)]
    while len(texts) < count:
        words = rng.choice(texts).split()
        words[rng.randrange(len(words))] = rng.choice(WORDS)
        texts.append(" ".join(words))
    return [(f"d{at}", text, rng.choice((None, "", *NAMES))) for at, text in enumerate(texts)]


def sent(world, order) -> list[Document]:
    return [document(*world[at][:2], offset, world[at][2]) for offset, at in enumerate(order)]


def allowed(pair, world, rules) -> bool:
    """The definition of the rules in other words."""
    documents = [world[int(name[1:])] for name in pair]
    if min(len(set(itertools.pairwise(text.split()))) for _, text, _ in documents) < rules["min_shingles"]:
        return False
    source_a, source_b = (source for _, _, source in documents)
    if not source_a or not source_b:
        return True
    is_listed = not rules["only_sources"] or source_a in rules["only_sources"] or source_b in rules["only_sources"]
    is_same = rules["ignore_same_source"] and source_a == source_b
    return is_listed and not is_same and {source_a, source_b} not in [set(pair) for pair in rules["ignore_sources"]]


@settings(max_examples=examples(60), deadline=None)
@given(seed=st.integers(0, 10**6), size=st.integers(1, 20), rules=any_rules)
def test_in_any_order_exactly_the_allowed_pairs_are_alerted_and_the_others_counted_once(seed, size, rules):
    rng = random.Random(seed)
    world = a_world(rng, 30)
    unruled = Stream(OPTIONS)
    unruled.index(*sent(world, range(len(world))))
    expected = {pair for pair in unruled.pairs if allowed(pair, world, rules)}
    counts = []
    for _ in range(3):
        order = rng.sample(range(len(world)), len(world))
        stream, documents = Stream(options_of(**rules)), sent(world, order)
        for first in range(0, len(documents), size):
            stream.index(*documents[first : first + size])
        assert stream.pairs == Counter(expected)
        counts.append(stream.suppressed)
    # Within a batch, both documents of a pair find each other, and count the pair.
    if size == 1:
        assert counts[0] == counts[1] == counts[2]
        assert counts[0].total() == len(unruled.pairs) - len(expected)


def test_a_look_up_without_a_source_ignores_the_rules_that_need_one():
    options = options_of(ignore_same_source=True, min_shingles=3)
    stream = Stream(options)
    stream.index(document("one", source="a"), document("two", "amber birch", 1, source="a"))
    lookup = IndexLookup(options, stream.store)
    known, unknown, short = lookup.look_up(
        [LookupQuery(TEXT, source="a"), LookupQuery(TEXT), LookupQuery("amber birch")], 0
    )
    assert (known.matches, known.suppressed) == ((), {"ignore_same_source": 1})
    assert [match.id for match in unknown.matches] == ["one"]
    assert (short.matches, short.suppressed) == ((), {"min_shingles": 1})


def test_a_look_up_counts_what_is_suppressed_from_its_own_threshold_on():
    options = options_of(ignore_same_source=True)
    stream = Stream(options)
    stream.index(document("one", source="a"), document("two", f"{TEXT} inlet jetty", 1, source="a"))
    lookup = IndexLookup(options, stream.store)
    near, exact = lookup.look_up([LookupQuery(TEXT, source="a"), LookupQuery(TEXT, threshold=1.0, source="a")], 0)
    assert (near.suppressed.total(), exact.suppressed.total()) == (2, 1)


def test_stored_documents_are_compared_under_the_rules():
    options = options_of(ignore_same_source=True)
    stream = Stream(options)
    stream.index(document("one", source="a"), document("two", offset=1, source="a"), document("three", offset=2))
    lookup = IndexLookup(options, stream.store)
    (one, _), (two, _), (three, _) = (lookup.document(name) for name in ("one", "two", "three"))
    assert [match.id for match in lookup.matches_of(one).matches] == ["three"]
    comparison = lookup.compare(one, two)
    assert (comparison.is_match, comparison.suppressed_by) == (False, SuppressionRule.IGNORE_SAME_SOURCE)
    comparison = lookup.compare(one, three)
    assert (comparison.is_match, comparison.suppressed_by) == (True, None)


def test_an_append_keeps_the_source_and_may_end_the_suppression_of_a_short_text():
    stream = Stream(options_of(ignore_same_source=True, min_shingles=7))
    stream.index(document("one", source="a"), document("two", "amber birch cedar delta ember", 1, "b"))
    assert not stream.pairs
    assert set(stream.suppressed) == {SuppressionRule.MIN_SHINGLES}
    stream.index(document("two", "fjord grove heath", 2, "a", "append"))
    assert stream.pairs == Counter([("one", "two")])
    stream.index(document("three", "amber birch cedar", 3, "a"))
    stream.index(document("three", "delta ember fjord grove heath", 4, "c", "append"))
    assert stream.pairs == Counter([("one", "two"), ("three", "two")])


def test_a_record_that_repeats_the_text_does_not_change_the_source():
    stream = Stream(options_of(ignore_same_source=True))
    stream.index(document("one", source="a"))
    stream.index(document("one", offset=1, source="b"))
    stream.index(document("two", offset=2, source="b"), document("three", offset=3, source="a"))
    assert set(stream.pairs) == {("one", "two"), ("three", "two")}


def test_a_suppressed_pair_has_no_claim_and_no_pending_match():
    stream = Stream(options_of(ignore_same_source=True))
    stream.index(document("one", source="a"))
    result = stream.index(document("two", offset=1, source="a"))
    assert (result.pending_positions, result.detections) == ((), ())
    assert stream.store.count_claims() == 0
    assert (result.accepted_count, result.rejected_count, result.candidates_count) == (1, 0, 1)
    stream.detector = Detector(OPTIONS, stream.store)
    again = stream.index(document("two", offset=1, source="a"))
    assert [match.id for detection in again.detections for match in detection.matches] == ["one"]


def test_a_suppressed_pair_joins_no_cluster():
    stream = Stream(options_of(ignore_same_source=True))
    stream.index(document("first", source="a"))
    stream.index(document("second", offset=1, source="b"))
    stream.index(document("third", offset=2, source="a"))
    assert stream.clusters == {"second": "first", "third": "third"}
    stream.index(document("fourth", offset=3, source="c"))
    assert stream.clusters["fourth"] == "first"


@pytest.mark.parametrize("budget_bytes", [entry_chunks.BUDGET_BYTES, 1], ids=["one-chunk", "chunk-per-candidate"])
def test_a_detection_tells_how_many_further_near_duplicates_are_suppressed(budget_bytes, monkeypatch):
    monkeypatch.setattr(entry_chunks, "BUDGET_BYTES", budget_bytes)
    stream = Stream(options_of(ignore_same_source=True))
    stream.index(document("one", source="a"), document("two", offset=1, source="a"), document("three", offset=2))
    result = stream.index(document("four", offset=3, source="a"))
    (detection,) = result.detections
    assert [match.id for match in detection.matches] == ["three"]
    assert detection.suppressed == {SuppressionRule.IGNORE_SAME_SOURCE: 2} == result.suppressed


def test_the_index_keeps_a_hash_of_each_source_without_rules_and_labels_too():
    assert OPTIONS.suppression is None
    assert not OPTIONS.label_bytes
    stream = Stream(OPTIONS)
    stream.index(document("one", source="a"), document("two", offset=1, source=""))
    found = stream.store.get_entries([document_number("articles", name) for name in ("one", "two")])
    sources = [found[document_number("articles", name)].content.source for name in ("one", "two")]
    assert sources == [source_key("a"), None]


def test_suppressed_pairs_of_the_chunks_of_a_batch_add_up():
    stream = Stream(options_of(ignore_same_source=True))
    results = [stream.index(document(f"d{at}", offset=at, source="a")) for at in range(4)]
    whole = results[0] + results[1] + results[2] + results[3]
    assert whole.suppressed == Counter({SuppressionRule.IGNORE_SAME_SOURCE: sum(range(4))})
    assert list(itertools.chain(*(result.detections for result in results))) == []
