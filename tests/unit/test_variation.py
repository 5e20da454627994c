import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamdedup.cli.variation import Variation, vary
from streamdedup.corpora import Entry
from streamdedup.position import Position
from streamdedup.wire import Decoder

TEXT = "one two three four five six seven eight nine ten"
ENTRY = Entry("a", TEXT, "f.jsonl", 7, b'{"id": "a", "text": "...", "lang": "en"}', "here", "now")


def decoded(entry, decoder=None):
    decoder = decoder or Decoder()
    return decoder.decode(Position("t", 0, 0), 0, entry.key, entry.value(decoder))


def changed_count(text, other):
    return sum(a != b for a, b in zip(text.split(), other.split(), strict=True))


def test_nothing_is_changed_unless_it_is_asked_for():
    assert Variation().of(ENTRY, 1) is ENTRY
    assert Variation(same_ids=True).of(ENTRY, 5) is ENTRY


def test_later_passes_have_ids_of_their_own():
    later = Variation().of(ENTRY, 3)
    document = decoded(later)
    assert (document.id, document.text, document.source, document.published_at) == ("a#3", TEXT, "here", "now")
    assert later.key == b"a#3"


def test_changed_documents_use_the_field_names_of_the_profile_and_keep_their_operation():
    names = Decoder(id_field="nr", text_fields=("title", "body"), op_field="do")
    document = decoded(Variation().of(Entry("a", "more", "f", 1, b"{}", op="append"), 2), names)
    assert (document.id, document.text, document.op) == ("a#2", "more", "append")


def test_lines_that_are_no_documents_are_sent_unchanged_in_every_pass():
    bad = Entry("f:1", "", "f", 1, b"[1]", problem="no object", code="not_an_object")
    assert Variation(0.5).of(bad, 4) is bad


@pytest.mark.parametrize(("share", "count"), [(0.1, 1), (0.5, 5), (1.0, 10)])
def test_the_share_of_words_is_replaced(share, count):
    varied = Variation(share).of(ENTRY, 1)
    assert changed_count(TEXT, varied.text) == count
    assert varied.id == "a"


def test_a_share_of_a_word_is_one_word_so_often():
    changed = sum(changed_count("one two three", vary("one two three", 0.1, random.Random(n))) for n in range(2_000))
    assert changed / 2_000 == pytest.approx(0.3, abs=0.04)


def test_the_same_seed_gives_the_same_texts_and_each_pass_and_line_others():
    def text(seed=1, number=1, line=7):
        return Variation(0.5, seed).of(Entry("a", TEXT, "f.jsonl", line), number).text

    assert text() == text()
    assert len({text(), text(seed=2), text(number=2), text(line=8)}) == 4


def test_in_scripts_without_spaces_single_characters_are_replaced():
    varied = vary("老茶馆停业三年之后，上周", 0.5, random.Random(1))
    assert len(varied) == len("老茶馆停业三年之后，上周")
    assert sum(a != b for a, b in zip(varied, "老茶馆停业三年之后，上周", strict=True)) in {5, 6}


@given(st.text(), st.floats(0, 1), st.integers())
def test_any_text_can_be_varied_and_keeps_its_blanks(text, share, seed):
    varied = vary(text, share, random.Random(seed))
    assert [c for c in varied if c.isspace()] == [c for c in text if c.isspace()]
    assert vary(text, 0.0, random.Random(seed)) == text
