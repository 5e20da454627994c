"""`streamdedup.text.shingles` against the slow reference, for any Unicode, and against the textbook's answers."""

import random
import tracemalloc
import unicodedata
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamdedup.text import folding as folding_module
from streamdedup.text import mark_repair, unicode_tables
from streamdedup.text import normalise as normalise_module
from streamdedup.text.folding import FoldOptions, normalized
from streamdedup.text.shingles import ShingleOptions, Shingler
from streamdedup.text.stop_words import ENGLISH_STOP_WORDS, parse_stop_words
from tests.folded_text import folded_text
from tests.thoroughness import examples
from tests.unit import reference_shingles as reference

#: Characters at which the table and `unicodedata` could differ: marks of several classes, parts of compositions,
#: characters that fold to several, Hangul parts, solo scripts, invisible characters, code points without a character.
TRICKY = (
    "eEoOiIaAnN19 .-\n\0\ud800\udc00"
    "\u0301\u0300\u0323\u0327\u0308\u0345\u0338\u034f\u0316\u20e3\u3099"
    "\u00df\u1e9e\u0130\u0149\u0390\u03b0\u1fb3\u03c2\u00b4\u00a8\u00bd\u2026\ufb03\u2460\ufdfa\u2a74"
    "\u1100\u1161\u11a8\uac00\u314b\u3160\uffa0\u1160"
    "\u4e2d\u56fd\u306f\u30cf\u30fc\uff8a\uff9e\uff0c\u3002\u3007\U00020000\U0002f800"
    "\u0e40\u0e01\u0e33\u0e34\u0eb3\u1780\u17b4\u1000\u102d\u1025\u102e"
    "\u0915\u093c\u0958\u09c7\u09be\u0bc6\u0bbe\u0d4d\u200d\u200c\u00ad\ufe0f\ufeff\U0001f600\U0001f468"
    "\u0628\u064e\u0651\u0653\u0627\ufefb\u05d0\u05b8\ufb1d\u1ebd\u1eb9\u00e9"
    "I\u0131\u0307\u0130\u00a8\u0385\u1fbd\u203e\u309b\u02bc\u015f\u0163\u015es\u0456\u043e\u0451\u06cc\u06d5\u0654\u06f4"
    "\u0d7b\u0d28\u0d3c\u09ce\u09bc\u318d\u04d9\u0142\u0153\u0969"
)


def hashes_of_each(elements, unit):
    return frozenset(reference.shingle_hash((element,), unit) for element in elements)


OPTIONS = [
    {},
    {"size": 1, "letters_only": True},
    {"size": 2, "bag": True},
    {"size": 7, "short_texts": "skip"},
    {"size": 2, "stop_words": frozenset({"Don't", "\u7684", "e", "\u0301"})},
    {"size": 1, "fold_marks": True, "stop_words": frozenset({"\u0430\u0301"})},
    {"unit": "char", "size": 5},
    {"unit": "char", "size": 3, "fold_marks": True},
    {"size": 1, "fold_variants": True, "fold_marks": True, "stop_words": frozenset({"\u9762"})},
    {"unit": "char", "size": 2, "fold_variants": True},
    {"size": 1, "fold_look_alikes": True, "stop_words": frozenset({"\u0445"})},
    {"unit": "char", "size": 2, "fold_look_alikes": True, "fold_marks": True},
    {"unit": "char", "size": 1, "bag": True},
    {"unit": "char", "size": 9, "letters_only": True},
    {"unit": "char", "size": 2, "keep_white_space": False},
    {"unit": "char", "size": 40, "short_texts": "skip"},
    {"size": 1, "bag": True, "stop_shingles": hashes_of_each("ab\u4e2d", "word")},
    {"unit": "char", "size": 1, "stop_shingles": hashes_of_each("ab e\u00e9", "char")},
]
FOLDING = {"letters_only", "fold_marks", "fold_variants", "fold_look_alikes"}
SHINGLERS = [(options, Shingler(ShingleOptions(**options))) for options in OPTIONS]

any_character = st.characters(categories=None, exclude_categories=())
texts = st.one_of(
    st.text(st.sampled_from(TRICKY), max_size=40),
    st.text(any_character, max_size=30),
    st.text(st.characters(max_codepoint=127), max_size=200),
    st.text(st.sampled_from("ab "), max_size=60),
)


def hashes_of(batch, document):
    return batch.hashes[batch.offsets[document] : batch.offsets[document + 1]].tolist()


def assert_like_reference(batch, given_texts, options):
    counted = {key: value for key, value in options.items() if key in FOLDING | {"stop_words"}}
    for i, text in enumerate(given_texts):
        assert hashes_of(batch, i) == reference.shingle_hashes(text, **options), (options, ascii(text))
        assert batch.token_counts[i] == len(reference.without_stop_words(text, **counted)), (options, ascii(text))


#: Letters and marks of one script each: tokens of one character only, marks in any order, marks that compose or not.
ALPHABETS = (
    "\u4e2d\u56fd\u5927\u3002",
    "\u4e2d\U00020000a1 ",
    "\u304b\u306f\u30ab\u30fc\u3099\u309a\u3002",
    "\u0e01\u0e19\u0e40\u0e31\u0e34\u0e38\u0e3a\u0e48 ",
    "\u0628\u0643\u0627\u064a \u064e\u0650\u0651\u0652\u0654\u0653\u0670\u0660",
    "\u05d0\u05d1\ufb2a \u05b8\u05bc\u05c1\u05b0",
    "\u0915\u0928\u0958 \u093c\u093f\u094d\u0951\u0966",
    "ae\u00e9\u1eb9 \u0301\u0323\u0327\u0345",
    "aoO \u031b\u0323\u0302\u0301",
    "\u03b1\u03b7\u03c9\u0391\u03b9 \u0313\u0314\u0301\u0300\u0342\u0308\u0345",
    "\u0dd9\u0ddc\u0d9a \u0dcf\u0dca\u09c7\u09be\u09d7\u0bc6\u0bbe",
    "\u1100\uac00\u3131 \u1161\u11a8\u0301\u3099",
)


texts_in_one_script = st.sampled_from(ALPHABETS).flatmap(
    lambda letters: st.lists(st.text(st.sampled_from(letters), max_size=40), max_size=6)
)


@settings(max_examples=examples(600))
@given(st.lists(texts, max_size=8) | texts_in_one_script, st.sampled_from(SHINGLERS))
def test_a_batch_of_any_texts_has_the_hashes_of_the_reference(given_texts, chosen):
    options, shingler = chosen
    assert_like_reference(shingler.shingle(given_texts), given_texts, options)


@settings(max_examples=examples(200))
@given(texts)
def test_normalise_is_that_of_the_reference_and_idempotent(text):
    once = folded_text(text)
    assert once == reference.normalise(text)
    assert folded_text(once) == once
    for option in FOLDING:
        assert folded_text(text, **{option: True}) == reference.normalise(text, **{option: True})
        folded = folded_text(text, **{option: True})
        assert folded_text(folded, **{option: True}) == folded


#: Characters that decompose to marks only, in NFKD: among them some without a class of their own, such as U+FF9E.
MARKS = [c for c in map(chr, range(0x110000)) if unicodedata.combining(unicodedata.normalize("NFKD", c)[0])]


@pytest.mark.parametrize("form", ["NFC", "NFD", "NFKC"])
def test_texts_with_long_runs_of_marks_are_normalised_as_unicodedata_does(form):
    assert not [mark for mark in MARKS if not all(map(unicodedata.combining, unicodedata.normalize("NFKD", mark)))]
    rng = random.Random(form)
    letters = "ae\u00e9\u00a8\u1e69\u304b\uac00\u0f40 \u034f\U0001d15e\U0001109a\U0001f600"
    for _ in range(examples(1_000)):
        pieces = [[*rng.choices(letters, k=2), *rng.choices(MARKS, k=rng.choice((3, 31, 33, 60)))] for _ in range(3)]
        text = "".join(map("".join, pieces))
        assert normalized(form, text) == unicodedata.normalize(form, text), ascii(text)


@pytest.mark.parametrize(("options", "shingler"), SHINGLERS)
def test_texts_with_long_runs_of_marks_have_the_hashes_of_the_reference(options, shingler):
    rng = random.Random(1)
    runs = ["".join(rng.choices(rng.choice((MARKS, "\u0301\u0323\uff9e\u034f")), k=40)) for _ in range(60)]
    letters = rng.choices("e \u00e9\u00a8\u304b\u4e2d", k=len(runs))
    given_texts = [f"a{run}{letter}{after}b" for letter, (run, after) in zip(letters[1:], pairwise(runs), strict=True)]
    assert_like_reference(shingler.shingle(given_texts), given_texts, options)


@pytest.mark.parametrize("marks", ["\u0301\u0323", "\u0301\uff9e", "\u0f73\u0f71", "\U0001d165\u0323", "\u0345\u0301"])
@pytest.mark.parametrize("option", [None, *sorted(FOLDING - {"letters_only"})])
def test_unicodedata_whose_sort_is_quadratic_gets_long_runs_of_marks_in_order(marks, option, monkeypatch):
    def normalize(form, text, normalize=unicodedata.normalize):
        classes = [unicodedata.combining(normalize(form, c)[-1]) for c in text]
        assert not [pair for pair in pairwise(classes) if pair[0] > pair[1] > 0]
        return normalize(form, text)

    text, mixed = f"a{marks[0] * 100}{marks[1] * 100}b", f"a{marks * 100}b"
    folded = [folded_text(given_text, **({option: True} if option else {})) for given_text in (text, mixed)]
    monkeypatch.setattr(unicodedata, "normalize", normalize)
    assert folded == [folded_text(given_text, **({option: True} if option else {})) for given_text in (text, mixed)]


@pytest.mark.parametrize("start", ["i", "I", "\u0130", "\u0344 i", "\u0456"])
@pytest.mark.parametrize("option", [None, *sorted(FOLDING - {"letters_only"})])
def test_a_long_run_of_dots_on_an_i_is_folded_in_few_steps(start, option, monkeypatch):
    text, options = start + "\u0307" * 100 + "\u0301", {option: True} if option else {}
    steps = []
    for module, name in ((folding_module, "case_folded"), (mark_repair, "_entries")):
        step = getattr(module, name)
        monkeypatch.setattr(module, name, lambda *given, step=step: steps.append(step) or step(*given))
    assert folded_text(text, **options) == reference.normalise(text, **options)
    assert len(steps) < 20


#: Code points that are no separator in some version of Unicode, and a sample of the rest.
POINTS = [*range(0x33480), *range(0x33480, 0xE0000, 997), *range(0xE0000, 0xE0200), *range(0xE0200, 0x110000, 997)]
POINTS.remove(ord("\n"))


def words_by_table(given_texts, folding):
    folded = normalise_module.fold(given_texts, folding)
    inside = (folded.packed & (unicode_tables.LETTER | unicode_tables.NUMBER)) != 0
    points = np.where(inside, folded.packed & unicode_tables.CODE_POINT, 0x20).astype("<u4")
    pairs = zip(folded.starts[:-1], folded.starts[1:] - 1, strict=True)
    return [points[first:last].tobytes().decode("utf-32-le").split() for first, last in pairs]


def assert_folded_like_reference(given_texts, folding):
    """Fold texts, and their folded forms again."""
    # A line feed stays unchanged and nothing composes across it, so one call folds many texts.
    joined = "\n".join(given_texts)
    options = {f"fold_{option}": value for option, value in folding._asdict().items()}
    kept = [
        "".join(c if reference.is_kept(c) else " " for c in text)
        for text in reference.fold(joined, **options).split("\n")
    ]
    expected = [text.split() for text in kept]
    assert words_by_table(given_texts, folding) == expected
    assert words_by_table(kept, folding) == expected


@pytest.mark.parametrize(
    "folding",
    [
        FoldOptions(),
        pytest.param(FoldOptions(marks=True), marks=pytest.mark.long),
        pytest.param(FoldOptions(variants=True), marks=pytest.mark.long),
        pytest.param(FoldOptions(look_alikes=True), marks=pytest.mark.long),
    ],
)
@pytest.mark.parametrize("context", ["{}", pytest.param("a{}b", marks=pytest.mark.long), "e{}\u0301"])
def test_each_code_point_in_context_folds_by_table_as_in_the_reference_and_only_once(context, folding):
    for first in range(0, len(POINTS), 4096):
        assert_folded_like_reference([context.format(chr(point)) for point in POINTS[first : first + 4096]], folding)


#: All canonical decompositions in two parts, also of characters that are excluded from composition.
PAIRS = sorted(
    tuple(chr(int(part, 16)) for part in parts)
    for parts in (unicodedata.decomposition(chr(point)).split() for point in range(0x40000))
    if len(parts) == 2 and not parts[0].startswith("<")
)


@pytest.mark.parametrize("context", ["{}{}{}", pytest.param("{}{}\u094d{}", marks=pytest.mark.long), "{}{}\u0323{}"])
def test_each_composing_pair_and_each_mark_fold_by_table_as_in_the_reference(context):
    for third in sorted({mark for _, mark in PAIRS}):
        in_context = [context.format(letter, mark, third) for letter, mark in PAIRS]
        assert_folded_like_reference(in_context, FoldOptions())


@pytest.mark.parametrize(
    "text", ["Tất cả mọi người đều ĐƯỢC tự do", "Ἡ γάτα κοιμᾶται ἄ", "がぎぱ ヴ", "Ещё ёлка", "ǖ ṩ"]
)
def test_letters_with_several_marks_are_composed_in_the_arrays(text, monkeypatch):
    monkeypatch.delattr(normalise_module, "_fold_doubtful")
    plain = FoldOptions()
    assert words_by_table([unicodedata.normalize("NFD", text)], plain) == words_by_table([text], plain)


def test_no_code_point_outside_the_tabulated_planes_is_part_of_a_token():
    outside = [*range(0x40000, 0xE0000), *range(0xE1000, 0x110000)]
    assert {unicodedata.category(chr(point)) for point in outside} == {"Cn", "Co"}


def test_which_characters_are_tokens_of_their_own_agrees_with_their_names():
    packed = unicode_tables.tables(FoldOptions()).packed
    for point in range(0x40000):
        character = chr(point)
        if reference.is_kept(character, "LN") and packed[point] & unicode_tables.CODE_POINT == point:
            assert bool(packed[point] & unicode_tables.SOLO) == reference.stands_alone(character), hex(point)


@pytest.mark.parametrize(
    ("text", "options", "elements"),
    [
        ("match", {"unit": "char", "size": 2}, 4),
        ("Its quite sunny today", {"size": 2}, 3),
        ("azart azara", {"unit": "char", "size": 2}, 7),
        ("azart azara", {"unit": "char", "size": 2, "bag": True}, 10),
    ],
)
def test_known_examples_have_as_many_elements_as_the_source_says(text, options, elements):
    batch = Shingler(ShingleOptions(**options)).shingle([text])
    assert batch.hashes.size == elements
    assert_like_reference(batch, [text], options)


def test_a_bag_keeps_the_plain_hash_for_the_first_occurrence():
    plain = Shingler(ShingleOptions(size=1)).shingle(["a a a b"]).hashes
    bag = Shingler(ShingleOptions(size=1, bag=True)).shingle(["a a a b", "a a b b c"])
    left, right = set(hashes_of(bag, 0)), set(hashes_of(bag, 1))
    assert set(plain.tolist()) < left
    assert len(left & right) / len(left | right) == 0.5


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", []),
        ("\0\ud800 ...", []),
        ("co\u00adoper\u200bate", ["cooperate"]),
        ("\u4e2d\u56fd2024a", ["\u4e2d", "\u56fd", "2024a"]),
        ("\u0e01\u0e34x\u0e40", ["\u0e01\u0e34", "x", "\u0e40"]),
        ("A\u0301 \u0301b", ["\u00e1", "\u0301b"]),
    ],
)
def test_tokens_of_each_kind_of_writing(text, tokens):
    assert reference.tokens(text) == tokens
    assert Shingler(ShingleOptions()).shingle([text]).token_counts.tolist() == [len(tokens)]


#: Texts with many marks and few separators, of which some are many in a row, and tokens of any length.
FEW_SEPARATORS = {
    "a long gap": "\u0e01\u0e31\u0e48" * 50 + ", . " * 10 + "\u0e01\u0e34" * 50,
    "a gap at the end": "\u0e01\u0e34" * 50 + "." * 20,
    "a long token": "\u0e01" + "\u0e34" * 300 + " \u0e01, abcde \u0e19",
    "beyond the first plane": "\u304b\u0301\U00020000\u0323" * 40 + " \U00020000 . ab \u304b",
    "numbers": "\u0e01\u0e34" * 50 + " 1234567890 a1, \u0e51\u0e34",
}


@pytest.mark.parametrize("options", [{"size": 1}, {"size": 2}, {"size": 1, "letters_only": True}], ids=str)
@pytest.mark.parametrize("text", FEW_SEPARATORS.values(), ids=FEW_SEPARATORS)
def test_separators_behind_a_token_change_no_hash(text, options):
    batch = Shingler(ShingleOptions(**options)).shingle([text, "a b"])
    assert_like_reference(batch, [text, "a b"], options)


def test_no_texts_and_empty_texts_have_no_shingles():
    shingler = Shingler(ShingleOptions())
    assert shingler.shingle([]).offsets.tolist() == [0]
    batch = shingler.shingle(["", "...", ""])
    assert batch.offsets.tolist() == [0, 0, 0, 0]
    assert batch.token_counts.tolist() == [0, 0, 0]
    assert (batch.hashes.dtype, batch.offsets.dtype, batch.token_counts.dtype) == (np.uint32, np.int64, np.int64)


@pytest.mark.parametrize("options", [{}, {"unit": "char", "size": 5}])
def test_a_batch_longer_than_one_chunk_keeps_the_order_of_its_documents(options):
    some = [f"x {i} is number {i} \u00e9" if i % 3 else f"plain x {i}" for i in range(9000)]
    shingler = Shingler(ShingleOptions(**options))
    batch = shingler.shingle(some)
    for i in (0, 1, 2, 4000, 8998, 8999):
        assert hashes_of(batch, i) == reference.shingle_hashes(some[i], **options)


@pytest.mark.parametrize("options", [{}, {"unit": "char", "size": 5}])
@pytest.mark.parametrize("piece", ["word ", "x", "\u4e2d", "e\u0301\u0323", "\u00e9t\u00e9 "])
def test_a_text_of_one_megabyte_is_hashed_in_bounded_memory(options, piece):
    text = piece * (2**20 // len(piece))
    shingler = Shingler(ShingleOptions(**options))
    shingler.shingle(["\u00e9"])
    tracemalloc.start()
    try:
        batch = shingler.shingle([text, "short text here"])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 128 * 2**20
    assert batch.hashes.size > 0
    assert hashes_of(batch, 1) == reference.shingle_hashes("short text here", **options)


def test_stop_words_are_left_out_after_normalisation():
    shingler = Shingler(ShingleOptions(size=1, stop_words=frozenset({"The", "don't"})))
    batch = shingler.shingle(["THE cat don't", "the", "the caf\u00e9"])
    assert batch.token_counts.tolist() == [1, 0, 1]
    assert hashes_of(batch, 0) == reference.shingle_hashes("cat", size=1)
    assert hashes_of(batch, 2) == reference.shingle_hashes("caf\u00e9", size=1)


def test_the_english_stop_words_are_normalised_words():
    assert len(ENGLISH_STOP_WORDS) > 100
    assert all(folded_text(word) == word and " " not in word for word in ENGLISH_STOP_WORDS)


def test_a_stop_word_list_is_one_word_a_line_with_comments():
    assert parse_stop_words("# head\nthe\n\n  of  # often\r\nund\n") == {"the", "of", "und"}


ANY_OPTIONS = st.builds(
    ShingleOptions,
    unit=st.just("word"),
    size=st.integers(1, 4),
    letters_only=st.booleans(),
    fold_marks=st.booleans(),
    stop_words=st.sampled_from([frozenset(), frozenset({"the", "b"})]),
    short_texts=st.sampled_from(["whole", "skip"]),
) | st.builds(ShingleOptions, unit=st.just("char"), size=st.integers(1, 4), keep_white_space=st.booleans())


@given(
    st.text(max_size=30) | st.lists(st.sampled_from(["the", "b", "7", "渡し船", "cafe\u0301"])).map(" ".join),
    ANY_OPTIONS,
)
def test_the_shingles_in_order_are_those_of_the_set(text, options):
    shingler = Shingler(options)
    ordered = shingler.in_order(text)
    assert set(ordered.hashes.tolist()) == set(shingler.shingle([text]).hashes.tolist())
    for at in range(len(ordered.hashes)):
        # Characters at the ends of the text may be spaces, which are removed there.
        part = shingler.shingle([ordered.text(at, at + 1)]).hashes.tolist()
        assert ordered.hashes[at] in part or options.unit == "char"


def test_the_text_of_consecutive_shingles_is_that_between_their_ends():
    shingler = Shingler(ShingleOptions(size=2, stop_words=frozenset({"the"})))
    ordered = shingler.in_order("One, the TWO渡し船 the three. Four")
    shingles = [ordered.text(at, at + 1) for at in range(len(ordered.hashes))]
    assert shingles == ["one the two", "two渡", "渡し", "し船", "船 the three", "three four"]
    assert ordered.text(1, 4) == "two渡し船"
