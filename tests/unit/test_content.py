"""The content of an index entry: an append yields the content of the whole text, and no text is stored."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from streamdedup.detection.content import content_after_append, contents_of
from streamdedup.errors import MessageError
from streamdedup.index.documents import MAX_COUNT, Content, IndexEntry
from streamdedup.position import Position
from streamdedup.similarity.minhash import HashFamily
from streamdedup.similarity.sketch import Sketcher
from streamdedup.text.shingle_hashes import repetitions
from streamdedup.text.shingles import ShingleOptions, Shingler
from tests.entries import encode_entry
from tests.thoroughness import examples

FAMILY = HashFamily(16, 7)
#: Scripts with and without spaces, marks, digits, what separates, what is not seen, and halves of surrogate pairs.
PIECES = ["a", "b", "amber", "Birch", "42", " ", "  ", "\n", ", ", "ß", "é", "e\u0301", "\u0301", "\u00ad"]
PIECES += ["中", "文", "ไทย", "кот", "\u200d", "👩", "\ud83d", "\x00", "ك\u064e", "ﬁ", "①", "がぎ", "か\u3099"]
FEW = st.lists(st.sampled_from(["a", "b", "amber", " ", "42", "中"]), max_size=6).map("".join)
TEXTS = FEW | st.lists(st.sampled_from(PIECES), max_size=14).map("".join)
OPTIONS = st.builds(
    ShingleOptions,
    unit=st.sampled_from(["word", "char"]),
    size=st.integers(1, 5),
    letters_only=st.booleans(),
    fold_marks=st.booleans(),
    keep_white_space=st.booleans(),
    bag=st.booleans(),
    short_texts=st.sampled_from(["whole", "skip"]),
) | st.builds(ShingleOptions, stop_words=st.just(frozenset({"a", "amber"})), size=st.integers(1, 3))


def stops(unit: str, size: int) -> frozenset[int]:
    """Return the hashes of a few shingles that texts of these pieces often have."""
    texts = ["a", "amber b", "42 amber", "a a a a a", "b amber", "中文", "a42b", "ab", "ba 中"]
    return frozenset(Shingler(ShingleOptions(unit=unit, size=size)).shingle(texts).hashes.tolist())


#: With stop shingles, which take away most of a text, or all of it.
OPTIONS |= st.builds(
    lambda unit, size, bag: ShingleOptions(unit=unit, size=size, bag=bag, stop_shingles=stops(unit, size)),
    st.sampled_from(["word", "char"]),
    st.integers(1, 3),
    st.booleans(),
)


SHINGLER, SKETCHER = Shingler(ShingleOptions()), Sketcher(FAMILY, 512, 8)


def contents(shingler: Shingler, sketcher: Sketcher, texts: list[str]) -> list[Content]:
    shingles = shingler.shingle(texts)
    sketches, _ = sketcher.sketch(shingles.hashes, shingles.offsets)
    return contents_of(shingles, sketches)


@settings(max_examples=examples(600))
@given(
    OPTIONS,
    st.sampled_from([0, 3, 10, None]),
    st.lists(st.lists(TEXTS, min_size=1, max_size=4), min_size=1, max_size=3),
)
def test_a_document_that_is_continued_has_the_content_of_the_whole(options, limit, documents):
    shingler, sketcher = Shingler(options), Sketcher(FAMILY, limit, 8)
    kept = contents(shingler, sketcher, [parts[0] for parts in documents])
    for step in range(1, max(map(len, documents))):
        going = [at for at, parts in enumerate(documents) if step < len(parts)]
        try:
            more = [content_after_append(shingler, sketcher, kept[at], documents[at][step]) for at in going]
        except MessageError:
            assert options.bag
            assert any(kept[at].sketch.hashes is None for at in going)
            return
        for at, content in zip(going, more, strict=True):
            kept[at] = content
    assert kept == contents(shingler, sketcher, ["\n".join(parts) for parts in documents])


@pytest.mark.parametrize("parts", [("a", "a"), ("a a", "a b"), ("a", "b a a")])
def test_a_bag_counts_on_where_an_append_repeats_a_shingle(parts):
    shingler = Shingler(ShingleOptions(size=1, bag=True))
    (content,) = contents(shingler, SKETCHER, [parts[0]])
    assert [content_after_append(shingler, SKETCHER, content, parts[1])] == contents(
        shingler, SKETCHER, ["\n".join(parts)]
    )


@pytest.mark.parametrize("part", ["b " * 300, " ".join(f"w{word}" for word in range(300))])
def test_an_append_to_a_bag_takes_few_steps_however_many_shingles_it_has_and_repeats(part, monkeypatch):
    calls = []

    def counted(shingles, numbers):
        calls.append(numbers)
        return repetitions(shingles, numbers)

    monkeypatch.setattr("streamdedup.detection.content.repetitions", counted)
    shingler, first = Shingler(ShingleOptions(size=1, bag=True)), "a b " * 100 + "w7 w7"
    (content,) = contents(shingler, SKETCHER, [first])
    assert [content_after_append(shingler, SKETCHER, content, part)] == contents(
        shingler, SKETCHER, [f"{first}\n{part}"]
    )
    assert len(calls) < 10


@pytest.mark.parametrize("parts", [("grove", "amber b"), ("amber b", "grove"), ("amber", "b")])
def test_a_document_keeps_stop_shingles_only_while_it_has_no_others(parts):
    shingler = Shingler(ShingleOptions(size=1, stop_shingles=stops("word", 1)))
    (content,) = contents(shingler, SKETCHER, [parts[0]])
    assert [content_after_append(shingler, SKETCHER, content, parts[1])] == contents(
        shingler, SKETCHER, ["\n".join(parts)]
    )


def test_a_long_article_in_three_parts_keeps_the_signature_of_the_whole():
    rng = np.random.default_rng(3)
    parts = [" ".join(f"w{word}" for word in rng.integers(0, 5_000, 400)) for _ in range(3)]
    (kept,) = contents(SHINGLER, SKETCHER, parts[:1])
    assert kept.sketch.hashes is not None
    for part in parts[1:]:
        kept = content_after_append(SHINGLER, SKETCHER, kept, part)
    (whole,) = contents(SHINGLER, SKETCHER, ["\n".join(parts)])
    assert kept.sketch.signature is not None
    assert kept == whole


@pytest.mark.parametrize("first_digest", [None, b"v" * 16])
@pytest.mark.parametrize("incarnation", [None, b"i" * 8])
def test_an_append_keeps_first_digest_and_incarnation(first_digest, incarnation):
    (plain,) = contents(SHINGLER, SKETCHER, ["amber birch cedar delta"])
    returned = replace(plain, first_digest=first_digest, incarnation=incarnation)
    content = content_after_append(SHINGLER, SKETCHER, returned, "ember")
    assert (content.first_digest, content.incarnation) == (first_digest, incarnation)


def test_counts_of_long_texts_stay_storable():
    (content,) = contents(SHINGLER, SKETCHER, ["amber birch " * 40_000])
    assert (content.token_count, content.element_count) == (MAX_COUNT, MAX_COUNT)
    nearly_full = replace(content, token_count=MAX_COUNT - 1)
    content = content_after_append(SHINGLER, SKETCHER, nearly_full, "ember fjord grove")
    assert (content.token_count, content.element_count) == (MAX_COUNT, MAX_COUNT)


def test_no_text_is_stored():
    (kept,) = contents(Shingler(ShingleOptions(unit="char", size=5)), SKETCHER, ["zqxj"])
    data = encode_entry(IndexEntry(1, "1", bytes(16), Position("t", 0, 0), 0, 1, kept))
    assert not any(part in data for part in (b"z", b"q", b"x", b"j") if data.count(part) >= 4)
    assert b"zq" not in data
