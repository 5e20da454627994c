"""What is kept of a content: its binary form, and that a continued document comes to the content of the whole text."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamdedup.detection import content
from streamdedup.detection.content import BagTooLarge, Content
from streamdedup.similarity.minhash import HashFamily
from streamdedup.similarity.sketch import Sketch, Sketcher
from streamdedup.text.shingles import ShingleOptions, Shingler
from tests.thoroughness import examples

FAMILY = HashFamily(16, 7)
#: Scripts with and without spaces, marks, digits, what separates, what is not seen, and halves of surrogate pairs.
PIECES = [
    "a",
    "b",
    "amber",
    "Birch",
    "42",
    " ",
    "  ",
    "\n",
    ", ",
    "ß",
    "é",
    "e\u0301",
    "\u0301",
    "\u00ad",
    "中",
    "文",
    "ไทย",
]
PIECES += ["кот", "\u200d", "👩", "\ud83d", "\x00", "ك\u064e", "ﬁ", "①", "がぎ", "か\u3099"]
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


def contents(shingler: Shingler, sketcher: Sketcher, texts: list[str]) -> list[Content]:
    shingles = shingler.shingle(texts)
    made, _ = sketcher.make(shingles.hashes, shingles.offsets)
    found = content.contents_of(shingles, made)
    assert content.encoded_contents(shingles, made) == [one.encoded() for one in found]
    return found


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
            more = content.grown(shingler, sketcher, [kept[at] for at in going], [documents[at][step] for at in going])
        except BagTooLarge:
            assert options.bag
            assert any(kept[at].sketch.hashes is None for at in going)
            return
        for at, grown in zip(going, more, strict=True):
            kept[at] = content.decode(grown.encoded())
    whole = contents(shingler, sketcher, ["\n".join(parts) for parts in documents])
    assert [one.encoded() for one in kept] == [one.encoded() for one in whole]


def test_a_long_article_in_three_parts_keeps_the_signature_of_the_whole():
    rng = np.random.default_rng(3)
    parts = [" ".join(f"w{word}" for word in rng.integers(0, 5_000, 400)) for _ in range(3)]
    shingler, sketcher = Shingler(ShingleOptions()), Sketcher(FAMILY, 512, 8)
    (kept,) = contents(shingler, sketcher, parts[:1])
    assert kept.sketch.hashes is not None
    for part in parts[1:]:
        (kept,) = content.grown(shingler, sketcher, [kept], [part])
    (whole,) = contents(shingler, sketcher, ["\n".join(parts)])
    assert kept.sketch.signature is not None
    assert kept.encoded() == whole.encoded()


def test_the_version_goes_with_the_document_and_costs_nothing_without():
    shingler, sketcher = Shingler(ShingleOptions()), Sketcher(FAMILY, 512, 8)
    (plain,) = contents(shingler, sketcher, ["amber birch cedar delta"])
    named = Content(plain.sketch, plain.token_count, plain.element_count, plain.tail, b"v" * 16)
    assert len(named.encoded()) == len(plain.encoded()) + 16
    (grown,) = content.grown(shingler, sketcher, [named], ["ember"])
    assert content.version_and_incarnation(grown.encoded()) == (b"v" * 16, None)
    assert content.version_and_incarnation(plain.encoded()) == (None, None)
    assert content.decode_sketch(grown.encoded()) == grown.sketch


@pytest.mark.parametrize("version", [None, b"v" * 16])
def test_so_does_the_life(version):
    shingler, sketcher = Shingler(ShingleOptions()), Sketcher(FAMILY, 512, 8)
    (plain,) = contents(shingler, sketcher, ["amber birch cedar delta"])
    again = replace(plain, version=version, life=b"l" * 8)
    (grown,) = content.grown(shingler, sketcher, [again], ["ember"])
    assert content.version_and_incarnation(grown.encoded()) == (version, b"l" * 8)
    assert content.decode(grown.encoded()).encoded() == grown.encoded()
    assert content.decode_sketch(grown.encoded()) == grown.sketch


def test_no_text_is_kept():
    shingler, sketcher = Shingler(ShingleOptions(unit="char", size=5)), Sketcher(FAMILY, 512, 8)
    (kept,) = contents(shingler, sketcher, ["zqxj"])
    data = kept.encoded()
    assert not any(part in data for part in (b"z", b"q", b"x", b"j") if data.count(part) >= 4)
    assert b"zq" not in data


@given(st.binary(max_size=80))
def test_octets_that_are_no_content_are_refused(data):
    try:
        decoded = content.decode(data)
    except ValueError:
        return
    assert content.decode(decoded.encoded()).encoded() == decoded.encoded()


@pytest.mark.parametrize("cut", range(1, 40))
def test_a_content_that_is_cut_off_is_refused(cut):
    whole = Content(Sketch(4, hashes=np.arange(4, dtype=np.uint32)), 5, 5, np.arange(2, dtype=np.uint64), b"v" * 16)
    data = whole.encoded()
    with pytest.raises(ValueError, match=r"cut off|at least|hashes"):
        content.decode(data[: len(data) - cut])
