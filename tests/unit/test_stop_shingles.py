"""Stop shingles: learning from a sample, the file, and documents without their boilerplate."""

from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamdedup.cli import topic_reading
from streamdedup.settings import Settings
from streamdedup.text import stop_learning
from streamdedup.text.shingles import ShingleOptions, Shingler
from streamdedup.text.stop_learning import DocumentCounter, learn_stop_shingles
from streamdedup.text.stop_shingles import (
    StopShingles,
    described_options,
    digest_of_hashes,
    least_documents,
    option_differences,
    parse_stop_shingles,
)

OPTIONS = ShingleOptions(size=2)
BOILERPLATE = "We use cookies to improve your visit. Accept all cookies or change your settings."


def stories(count):
    """Different texts, each followed by the boilerplate."""
    return [" ".join(f"w{story}x{word}" for word in range(12)) + ". " + BOILERPLATE for story in range(count)]


def learn(texts, share=0.5):
    """Learn from texts without sources."""
    return learn_stop_shingles(((text, None) for text in texts), OPTIONS, share).stops


def hashes(text, options=OPTIONS):
    return set(Shingler(options).shingle([text]).hashes.tolist())


def jaccard(one, other, options):
    left, right = hashes(one, options), hashes(other, options)
    return len(left & right) / len(left | right)


def test_the_common_end_of_all_documents_of_a_sample_is_learnt_and_nothing_else():
    found = learn(stories(50), 0.5)
    assert found.hashes == hashes(BOILERPLATE)
    assert set(found.counts.values()) == {50}
    assert (found.documents_count, found.least_documents) == (50, 25)


def test_a_document_of_boilerplate_alone_is_compared_by_it():
    without = replace(OPTIONS, stop_shingles=frozenset(hashes(BOILERPLATE)))
    batch = Shingler(without).shingle([BOILERPLATE, "A text. " + BOILERPLATE, BOILERPLATE.upper(), ""])
    assert batch.stop_only.tolist() == [True, False, True, False]
    assert hashes(BOILERPLATE, without) == hashes(BOILERPLATE)
    assert jaccard(BOILERPLATE, BOILERPLATE.upper(), without) == 1
    assert jaccard(BOILERPLATE, "A text. " + BOILERPLATE, without) == 0


def test_in_a_bag_every_occurrence_of_a_stop_shingle_is_left_out():
    options = ShingleOptions(size=1, bag=True, stop_shingles=frozenset(hashes("a", ShingleOptions(size=1))))
    assert hashes("a a b b", options) == hashes("b b", options)
    assert len(hashes("a a b b", options)) == 2


def test_a_text_that_was_copied_often_is_no_boilerplate():
    copied = ["the very same words in each of these"] * 90
    found = learn([*copied, *stories(20)], 0.2)
    assert found.documents_count == 21
    assert found.hashes == hashes(BOILERPLATE)


def test_a_small_sample_needs_three_documents_for_boilerplate():
    assert not learn(["a b c", "a b d"], 0.01).counts
    assert learn(["a b c", "a b d", "a b e"], 0.01).hashes == hashes("a b")


def test_a_sample_without_a_text_has_no_stop_shingles():
    found = learn(["", "..."], 0.5)
    assert (found.counts, found.documents_count) == ({}, 0)
    assert parse_stop_shingles(found.encoded()) == found


@pytest.mark.parametrize("share", [0, -0.1, 1.1])
def test_a_share_that_cannot_be_is_refused(share):
    with pytest.raises(ValueError, match="share"):
        learn([], share)


class TestBySource:
    def documents(self, **counts):
        """Stories of each source, those of `paid` with the boilerplate."""
        ends = {"paid": BOILERPLATE}
        return [
            (" ".join(f"{source}{story}x{word}" for word in range(12)) + ends.get(source, ""), source)
            for source, count in counts.items()
            for story in range(count)
        ]

    def test_boilerplate_of_one_source_that_is_rare_overall_is_learnt_within_it(self):
        documents = self.documents(free=400, paid=20)
        assert learn([text for text, _ in documents], share=0.1).hashes == frozenset()
        learnt = learn_stop_shingles(documents, OPTIONS, 0.1, least_source_documents=20)
        # The first shingle joins the last word of a story and the first word of the boilerplate.
        assert learnt.stops.hashes == hashes(BOILERPLATE.removeprefix("We "))
        everything, free, paid = learnt.groups
        assert (everything.source, everything.documents_count, everything.counts) == (None, 420, {})
        assert (free.source, free.documents_count, free.counts) == ("free", 400, {})
        assert (paid.source, paid.documents_count, set(paid.counts.values())) == ("paid", 20, {20})
        # The union is written as one file.
        text = learnt.stops.encoded()
        assert text.splitlines()[11:13] == ["documents = 420", "share = 0.1"]
        assert parse_stop_shingles(text) == learnt.stops

    def test_a_source_of_few_documents_is_passed_over_and_counted(self):
        learnt = learn_stop_shingles(self.documents(free=400, paid=20), OPTIONS, 0.1, least_source_documents=21)
        assert learnt.stops.hashes == frozenset()
        assert [group.source for group in learnt.groups] == [None, "free"]
        assert (learnt.small_sources, learnt.least_source_documents) == (1, 21)

    def test_a_text_of_several_sources_counts_once_in_each_and_once_in_all(self):
        documents = [(text, source) for source in ("a", "b") for text in stories(10) * 2]
        learnt = learn_stop_shingles(documents, OPTIONS, 0.9, least_source_documents=10)
        assert [(group.source, group.documents_count) for group in learnt.groups] == [(None, 10), ("a", 10), ("b", 10)]
        assert set(learnt.stops.counts.values()) == {10}

    def test_a_document_without_a_source_counts_among_all_documents_alone(self):
        documents = [(text, source) for text, source in zip(stories(20), [None, ""] * 10, strict=True)]
        learnt = learn_stop_shingles(documents, OPTIONS, 0.5, least_source_documents=1)
        assert [group.source for group in learnt.groups] == [None]
        assert learnt.stops.hashes == hashes(BOILERPLATE)

    def test_with_little_memory_a_source_that_is_too_small_to_be_counted_is_passed_over(self, monkeypatch):
        monkeypatch.setattr(stop_learning, "MOST_COUNTED", 600)
        monkeypatch.setattr(stop_learning, "_BATCH_DOCUMENTS", 50)
        documents = [(f"{text} all of them", source) for text, source in self.documents(free=400, paid=40, small=5)]
        learnt = learn_stop_shingles(documents, OPTIONS, 0.5, least_source_documents=2)
        assert learnt.least_source_documents > 5
        assert "small" not in {group.source for group in learnt.groups}
        assert hashes("all of them") <= learnt.stops.hashes
        for group in learnt.groups:
            assert least_documents(0.5, group.documents_count) > 2


SOURCED = st.lists(
    st.tuples(
        st.lists(st.sampled_from("abcdefg"), min_size=1, max_size=8).map(" ".join),
        st.sampled_from(["one", "two", "three"]),
    ),
    max_size=60,
)


@given(SOURCED, st.floats(0.01, 1))
def test_the_union_holds_the_stop_shingles_of_each_source_alone_and_of_all_documents(documents, share):
    learnt = learn_stop_shingles(documents, OPTIONS, share, least_source_documents=1)
    of_sources = [[text for text, own in documents if own == source] for source in {own for _, own in documents}]
    parts = [learn(texts, share) for texts in ([text for text, _ in documents], *of_sources)]
    assert learnt.stops.hashes == frozenset().union(*(part.hashes for part in parts))
    expected: dict[int, int] = {}
    for part in parts:
        expected |= {value: max(count, expected.get(value, 0)) for value, count in part.counts.items()}
    assert learnt.stops.counts == expected


@given(SOURCED, st.floats(0.01, 1), st.integers(1, 100))
def test_by_source_of_one_source_is_the_same_as_overall(documents, share, least):
    one = [(text, "only") for text, _ in documents]
    by_source = learn_stop_shingles(one, OPTIONS, share, least_source_documents=least)
    assert by_source.stops == learn([text for text, _ in one], share=share)


DOCUMENTS = st.lists(st.sets(st.integers(0, 40), min_size=1), max_size=40)


@given(DOCUMENTS, st.integers(1, 7), st.integers(3, 50), st.integers(0, 10))
def test_with_little_memory_no_shingle_above_the_forgotten_count_is_missed_or_counted_too_low(
    documents, size, most, more
):
    counter = DocumentCounter(most)
    arrays = [np.array(sorted(document), np.uint64) for document in documents]
    for first in range(0, len(arrays), size):
        counter.add(arrays[first : first + size])
    least = counter.forgotten_bound + 1 + more
    found = counter.frequent(0, least, len(documents))
    true = {value: sum(value in document for document in documents) for value in range(41)}
    assert {value for value, count in true.items() if count >= least} <= found.keys()
    assert all(true[value] <= count <= len(documents) for value, count in found.items())
    if most >= 41:
        assert counter.forgotten_bound == 0
        assert found == {value: count for value, count in true.items() if count >= least}


def test_a_share_that_is_too_small_for_the_memory_is_refused(monkeypatch):
    monkeypatch.setattr(stop_learning, "MOST_COUNTED", 100)
    monkeypatch.setattr(stop_learning, "_BATCH_DOCUMENTS", 2)
    assert learn(stories(60), 0.5).hashes == hashes(BOILERPLATE)
    with pytest.raises(ValueError, match="a greater share or a smaller sample"):
        learn([" ".join(f"{n + m} x" for m in range(150)) for n in range(60)], 0.01)


def test_learning_in_several_batches_counts_the_same(monkeypatch):
    whole = learn(stories(30), 0.3)
    monkeypatch.setattr(stop_learning, "_BATCH_DOCUMENTS", 7)
    assert learn(iter(stories(30)), 0.3) == whole


# The file

CHARACTERS = ShingleOptions(unit="char", size=9, keep_white_space=False, fold_marks=True)


@given(
    st.dictionaries(st.integers(0, 2**32 - 1), st.integers(1, 900), max_size=20),
    st.floats(0, 1, exclude_min=True),
    st.sampled_from([replace(OPTIONS, fold_variants=True, fold_look_alikes=True, keep_urls=False), CHARACTERS]),
)
def test_a_file_is_read_as_it_was_written(counts, share, options):
    stops = StopShingles(counts, 900, share, described_options(options))
    assert parse_stop_shingles(stops.encoded()) == stops
    assert option_differences(parse_stop_shingles(stops.encoded()), options) == []


def test_a_file_looks_as_documented():
    stops = StopShingles({0xAB: 12, 0xFF00FF00: 7}, 300, 0.02, described_options(ShingleOptions()))
    assert stops.encoded().splitlines() == [
        "streamdedup stop shingles, version 1",
        "algorithm = 1",
        "unit = word",
        "size = 3",
        "letters_only = false",
        "fold_marks = false",
        "stop_words = none",
        "keep_white_space = true",
        "fold_variants = false",
        "fold_look_alikes = false",
        "keep_urls = true",
        "documents = 300",
        "share = 0.02",
        "",
        "000000ab 12",
        "ff00ff00 7",
    ]


GOOD = StopShingles({1: 2, 5: 3}, 9, 0.5, described_options(OPTIONS)).encoded()


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("version 1", "version 2", "no file of stop shingles"),
        ("unit = word\n", "", "line 3: the head must be"),
        ("size = 2", "size: 2", "line 4: the head must be"),
        ("\n\n", "\n", "line 14: the head must be"),
        ("documents = 9", "documents = many", "wrong head"),
        ("documents = 9", "documents = -9", "wrong head"),
        ("share = 0.5", "share = 2", "wrong head"),
        ("share = 0.5", "share = nan", "wrong head"),
        ("00000001 2", "00000001", "line 15: must be eight"),
        ("00000001 2", "0000001 2", "line 15: must be eight"),
        ("00000001 2", "00000001 0", "line 15: must be eight"),
        ("00000001 2", "00000001 10", "line 15: must be eight"),
        ("00000005 3", "00000001 3", "line 16: must be eight"),
        ("00000005 3", "00000000 3", "line 16: must be eight"),
        ("00000005 3\n", "\n00000005 3\n", "line 16: must be eight"),
    ],
)
def test_a_file_that_is_wrong_is_refused_with_the_line(old, new, said):
    assert old in GOOD
    with pytest.raises(ValueError, match=said):
        parse_stop_shingles(GOOD.replace(old, new, 1))


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (ShingleOptions(size=3), ["size 2, not 3"]),
        (ShingleOptions(unit="char", size=2), ["unit word, not char"]),
        (
            replace(OPTIONS, fold_marks=True, letters_only=True),
            ["letters_only false, not true", "fold_marks false, not true"],
        ),
        (replace(OPTIONS, fold_variants=True), ["fold_variants false, not opencc-1.4.1"]),
        (replace(OPTIONS, fold_look_alikes=True), ["fold_look_alikes false, not unicode-18.0.0"]),
        (replace(OPTIONS, keep_urls=False), ["keep_urls true, not false"]),
        (replace(OPTIONS, bag=True, short_texts="skip"), []),
    ],
)
def test_an_option_that_makes_other_shingles_is_named(other, said):
    assert option_differences(parse_stop_shingles(GOOD), other) == said


def test_a_stop_list_makes_other_shingles():
    (said,) = option_differences(parse_stop_shingles(GOOD), replace(OPTIONS, stop_words=frozenset({"the"})))
    assert said.startswith("stop_words none, not ")


@pytest.mark.parametrize("words", [set(), {"the"}])
def test_an_entry_of_a_stop_list_without_letters_makes_no_other_shingles(words):
    with_dash = replace(OPTIONS, stop_words=frozenset({*words, "-"}))
    assert described_options(with_dash) == described_options(replace(OPTIONS, stop_words=frozenset(words)))


def test_the_digest_does_not_depend_on_the_order_of_the_shingles():
    assert digest_of_hashes(frozenset()) == "none"
    assert digest_of_hashes(frozenset({3, 1, 2})) == digest_of_hashes(frozenset({2, 3, 1}))
    assert digest_of_hashes(frozenset({3, 1})) != digest_of_hashes(frozenset({3, 2}))


def test_no_time_before_1970_is_looked_up_in_a_topic(monkeypatch):
    asked = []

    def opened(_options, since_ms, **_):
        asked.append(since_ms)
        return nullcontext(SimpleNamespace(total_count=0, batches=lambda: iter(())))

    monkeypatch.setattr(topic_reading, "KafkaSpan", opened)
    keys = {"kafka.bootstrap_servers": "h:1", "redis.url": "redis://localhost", "profiles.a.topics": "t"}
    settings = Settings.load(None, keys, environ={})
    assert list(topic_reading.newest_documents(settings, settings.profiles["a"], -5.0, 10)) == []
    assert asked == [0]
