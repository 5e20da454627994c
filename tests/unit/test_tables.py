"""Tables: columns by their names, quotation marks as RFC 4180 has them, and every way in which a row can be wrong."""

import csv
import gzip
import io
import json
import sys
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_corpora import failure, write

from streamdedup.corpora import Columns, CorpusReader, Entry, sources
from streamdedup.errors import CorpusError
from streamdedup.wire import Decoder
from tests.thoroughness import examples

TABLE = (
    b"id,text,source,other\r\n"
    b"a1,plain words,here,x\r\n"
    b'a2,"two\r\nlines, a comma and a ""quotation""",,x\r\n'
    b"\r\n"
    b",no id,there,x\r\n"
    b"a4,last,here,x"
)


def texts(path, **options):
    return [entry.text for entry in CorpusReader(path, **options)]


def test_rows_are_documents_with_the_fields_that_the_header_names(tmp_path):
    path = write(tmp_path, "t.csv", TABLE)
    two = 'two\r\nlines, a comma and a "quotation"'
    entries = list(CorpusReader(path))
    assert [(e.id, e.text, e.source, e.line) for e in entries] == [
        ("a1", "plain words", "here", 2),
        ("a2", two, None, 3),
        ("t.csv:6", "no id", "there", 6),
        ("a4", "last", "here", 7),
    ]
    assert json.loads(entries[1].value()) == {"id": "a2", "text": two}
    assert [entry.key for entry in entries] == [b"a1", b"a2", b"t.csv:6", b"a4"]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("t.csv", "id,text\n1,one\n"),
        ("t.CSV.gz", gzip.compress(b"id,text\n1,one\n")),
        ("t.tsv", "id\ttext\n1\tone\n"),
        ("t.tab", b"\xef\xbb\xbfid\ttext\n1\tone"),
        ("t.csv", b'\xef\xbb\xbf"id" , "text"\n1,one\n'.replace(b'" , "', b'","')),
        ("t.csv", " id ,text \n1,one\n"),
    ],
)
def test_tables_are_known_by_their_names(tmp_path, name, content):
    (entry,) = CorpusReader(write(tmp_path, name, content))
    assert (entry.id, entry.text) == ("1", "one")


def test_a_table_from_standard_input_is_read_with_a_format_option(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(TABLE))))
    assert [entry.id for entry in CorpusReader("-", format="csv")] == ["a1", "a2", "stdin:6", "a4"]


def test_columns_may_have_other_names_and_several_may_hold_the_text(tmp_path):
    path = write(tmp_path, "t.csv", "nr,head,body,from,when\n7,Title,Words,x,2026\n8,,Only body,,\n9,,,,\n")
    columns = Columns("nr", ("head", "body"), "from", "when")
    entries = list(CorpusReader(path, columns=columns))
    assert [(e.id, e.text, e.source, e.published_at) for e in entries] == [
        ("7", "Title\nWords", "x", "2026"),
        ("8", "Only body", None, None),
        ("9", "", None, None),
    ]
    assert json.loads(entries[0].value()) == {"id": "7", "text": "Title\nWords", "source": "x", "published_at": "2026"}


def test_without_names_the_columns_are_called_like_the_fields_of_the_profile(tmp_path):
    path = write(tmp_path, "t.csv", "nr,title,body,text\n7,Title,Words,unused\n8,,,\n")
    decoder = Decoder(id_field="nr", text_fields=("title", "lead", "body"))
    entries = list(CorpusReader(path, decoder=decoder))
    assert [(e.id, e.text) for e in entries] == [("7", "Title\nWords"), ("8", "")]
    assert json.loads(entries[0].value()) == {"nr": "7", "title": "Title", "body": "Words"}


def test_in_a_tsv_without_quoting_every_quotation_mark_is_text(tmp_path):
    path = write(tmp_path, "t.tsv", 'id\ttext\n1\t"Great" film\n2\tsix " tall\n3\t"unclosed\n')
    assert texts(path, format="tsv-unquoted") == ['"Great" film', 'six " tall', '"unclosed']
    assert "say tsv-unquoted" in failure(path)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "empty; a table begins with a row that names its columns"),
        ("\n \n", "empty"),
        (
            "nr,body\n1,x\n",
            ":1: there is no column `text`; the columns are `nr`, `body`; name those of the text (--text-column)",
        ),
        ("nr;body\n1;x\n", ":1: there is no column `text`; the columns are `nr`, `body`; name those of the text"),
        ("id,text,text\n", ":1: two columns are called `text`"),
        ('"id,text\n1,one\n', ":1: the names of the columns cannot be read: a quotation mark is not closed"),
        (b"id,te\xffxt\n", ":1: the names of the columns cannot be read: not UTF-8"),
        ("i\x1bd" + ",c" * 30 + "\n", "`i\ufffdd`, `c`"),
    ],
)
def test_a_header_that_does_not_do_is_an_error_that_lists_the_columns(tmp_path, content, reason):
    path = write(tmp_path, "t.csv", content)
    assert failure(path).startswith(str(path))
    assert reason in failure(path)


def test_a_named_column_must_exist(tmp_path):
    path = write(tmp_path, "t.csv", "id,text\n1,one\n")
    for columns in (Columns(id="nr"), Columns(text=("text", "nr")), Columns(source="nr"), Columns(published_at="nr")):
        assert "there is no column `nr`; the columns are `id`, `text`" in failure(path, columns=columns)


def test_naming_columns_of_what_is_no_table_is_an_error(tmp_path):
    path = write(tmp_path, "t.jsonl", '{"text": "x"}\n')
    assert "columns are named, but it is read as jsonl" in failure(path, columns=Columns(id="nr"))
    assert texts(path, columns=Columns(id="nr", tables_only=False)) == ["x"]


def test_the_list_of_columns_in_an_error_is_short(tmp_path):
    message = failure(write(tmp_path, "t.csv", ",".join(["secret " * 50] * 100) + "\n"))
    assert len(message) < 2_000
    assert "and 80 more" in message


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        (b"2", "1 field, but the header has 2 fields"),
        (b"2,two,too much", "3 fields, but the header has 2 fields"),
        (b'2,"two"words', "text behind a closing quotation mark"),
        (b"2,t\xfco", "not UTF-8"),
        (b"2,two\rthree", "a carriage return without a line feed"),
        (b"a\x07b,two", "contains a control character"),
        (b'"line\nbreak",two', "contains a control character"),
        (b"2" * 1025 + b",two", "1,025 bytes long"),
    ],
)
def test_a_bad_row_is_named_by_file_and_line_and_the_rest_is_read(tmp_path, row, problem):
    path = write(tmp_path, "t.csv", b"id,text\n1,one\n" + row + b"\n3,three\n")
    message = failure(path)
    assert message.startswith(f"{path}:3: ")
    assert problem in message
    first, bad, last = CorpusReader(path)
    assert (first.text, last.text, bad.key) == ("one", "three", None)
    assert problem in bad.problem
    assert bad.code is not None


def test_a_malformed_row_is_passed_on_unchanged(tmp_path):
    path = write(tmp_path, "t.csv", b'id,text\n2,"t\xfco\nlines"\n')
    assert list(CorpusReader(path)) == [
        Entry("t.csv:2", "", str(path), 2, b'2,"t\xfco\nlines"', problem="not UTF-8", code="not_utf8")
    ]


def test_an_unclosed_quotation_mark_invalidates_the_following_rows_and_its_line_is_named(tmp_path):
    path = write(tmp_path, "t.csv", 'id,text\n1,one\n2,"two\n' + "3,three\n" * 1_000)
    entries = list(CorpusReader(path))
    assert [entry.line for entry in entries] == [2, 3]
    assert entries[1].problem.startswith("a quotation mark that opens here swallows the 1,000 rows below it")


@pytest.mark.parametrize(
    ("last", "rows"), [('53,closed"\n', 51), ('53,"closed"\n', 51), ('53,"closed",x\n', 51), ("", 50)]
)
def test_a_quotation_mark_that_swallows_rows_is_named_by_the_line_on_which_it_opens(tmp_path, last, rows):
    swallowed = "".join(f"{number},row\n" for number in range(3, 53))
    path = write(tmp_path, "t.csv", f'id,text\n1,one\n2,"two\n{swallowed}{last}')
    one, bad = CorpusReader(path)
    assert (one.text, bad.line, bad.key) == ("one", 3, None)
    assert bad.problem == (
        f"a quotation mark that opens here swallows the {rows} rows below it; close it, or write it twice"
    )


@pytest.mark.parametrize(
    "lines",
    [
        ["a verse, and", "another"] * 20,
        ["a verse, and"] * 10,
        ["no comma"] * 40,
        ["2, cups"] * 40,
        ["Paris,France", "Rome,Italy"] * 20,
    ],
)
def test_a_long_text_of_many_lines_is_no_row_that_swallows_others(tmp_path, lines):
    verses = "\n".join(lines)
    assert texts(write(tmp_path, "t.csv", f'id,text\n1,"{verses}"\n')) == [verses]
    assert texts(write(tmp_path, "u.csv", f'text\n"{verses}"\n')) == [verses]
    assert texts(write(tmp_path, "v.csv", f'text,source\n"{verses}",wire\n')) == [verses]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("id;text;n\n1;one, two;x\n", ("1", "one, two")),
        ("id|text\n1|one;two\n", ("1", "one;two")),
        ("id\ttext\n1\tone\n", ("1", "one")),
        ('\ufeff"id";"text"\r\n1;"one;two"\r\n', ("1", "one;two")),
        ("\n\nid;text\n1;one\n", ("1", "one")),
        # The columns of documents decide, before the number of columns.
        ("id,text,tags;a;b;c\n1,one,x\n", ("1", "one")),
        ('id,text,"a;b;c;d;e"\n1,one,x\n', ("1", "one")),
        ("text\none\n", ("t.csv:2", "one")),
        ("sep=;\r\nid;text\r\n1;one\r\n", ("1", "one")),
        ('"sep=^"\nid^text\n1^one, two\n', ("1", "one, two")),
        ("\ufeffSEP=\t\nid\ttext\n1\tone\n", ("1", "one")),
    ],
)
def test_the_delimiter_is_that_of_the_header(tmp_path, content, expected):
    (entry,) = CorpusReader(write(tmp_path, "t.csv", content))
    assert (entry.id, entry.text) == expected


def test_the_delimiter_fits_the_columns_that_options_name(tmp_path):
    path = write(tmp_path, "t.csv", "nr,body,a;b;c;d\n7,one,x\n")
    for columns, expected in ((Columns("nr", ("body",)), "7"), (Columns(text=("body",)), "t.csv:2")):
        (entry,) = CorpusReader(path, columns=columns)
        assert (entry.id, entry.text) == (expected, "one")


def test_a_row_has_a_greatest_length_like_a_line(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "MAX_LINE_BYTES", 1_000)
    path = write(tmp_path, "t.csv", 'id,text\n1,one\n2,"two\n' + "3,three\n" * 1_000)
    assert f"{path}:3: the row that begins here is longer than 1,000 bytes" in failure(path)
    assert texts(write(tmp_path, "u.csv", "id,text\n1," + "x" * 900 + "\n")) == ["x" * 900]


def test_a_field_may_be_longer_than_the_parser_usually_allows(tmp_path):
    long = "word " * 100_000
    assert texts(write(tmp_path, "t.csv", f"id,text\n1,{long}\n")) == [long]


def test_a_nul_in_a_text_is_a_character_like_any_other(tmp_path):
    path = write(tmp_path, "t.csv", b"id,text\n" + b"1,one\n" * 200 + b"2,tw\x00o\n")
    assert texts(path)[-1] == "tw\0o"


def test_memory_holds_one_row_and_not_the_file(tmp_path):
    path = write(tmp_path, "t.csv.gz", gzip.compress(b"id,text\n" + (b'1,"' + b"word " * 20_000 + b'\n"\n') * 400, 1))
    tracemalloc.start()
    assert sum(1 for _ in CorpusReader(path)) == 400
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # A row takes 1.6 MB, the file 40; other work of the process may fall into the measurement.
    assert peak_bytes < 12_000_000


#: Texts without halves of surrogate pairs, which UTF-8 cannot carry.
CELLS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


@given(st.lists(st.tuples(CELLS, CELLS), max_size=12), st.sampled_from([",", "\t"]), st.sampled_from(["\n", "\r\n"]))
def test_what_a_writer_of_tables_writes_is_read_back(tmp_path_factory, rows, delimiter, line_end):
    buffer = io.StringIO()
    writer = csv.writer(buffer, delimiter=delimiter, lineterminator=line_end, quoting=csv.QUOTE_ALL)
    writer.writerows([("source", "text"), *rows])
    name = "any.csv" if delimiter == "," else "any.tsv"
    path = write(tmp_path_factory.getbasetemp(), name, buffer.getvalue())
    read = [(e.source or "", e.text) for e in CorpusReader(path, format="csv" if delimiter == "," else "tsv")]
    assert read == [row for row in rows if "".join(row).strip()]


@settings(max_examples=examples(150))
@given(st.data())
def test_a_damaged_table_gives_entries_or_a_corpus_error(tmp_path_factory, data):
    content = bytearray(TABLE)
    for _ in range(data.draw(st.integers(1, 5))):
        at = data.draw(st.integers(0, len(content) - 1))
        content[at : at + data.draw(st.integers(0, 2))] = data.draw(
            st.sampled_from([b'"', b",", b"\n", b"\r", b"\xff"])
        )
    path = write(tmp_path_factory.getbasetemp(), "damaged.csv", bytes(content))
    try:
        outcome = [entry.value() for entry in CorpusReader(path)]
    except CorpusError as error:
        outcome = str(error)
    assert isinstance(outcome, list) or outcome.startswith(str(path))
