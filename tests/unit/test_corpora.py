"""Corpora: every format, every way to compress and to deliver it, and every way in which a file can be wrong."""

import gzip
import io
import json
import os
import sys
import tarfile
import tracemalloc
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamdedup.corpora import FORMAT_TITLES, CorpusReader, Entry, Format, sources
from streamdedup.corpora.entries import line_id
from streamdedup.corpora.formats import FORMATS, FileFormat
from streamdedup.corpora.sources import open_file
from streamdedup.errors import EXIT_USAGE, CorpusError, UnknownFormat, exit_code
from streamdedup.position import Position
from streamdedup.wire import Decoder
from tests.thoroughness import examples

#: An invented file with every trap of the Reuters-21578 collection.
SGML = b"""<!DOCTYPE lewis SYSTEM "lewis.dtd">
<REUTERS TOPICS="YES" LEWISSPLIT="TRAIN" CGISPLIT="TRAINING-SET" OLDID="702" NEWID="1">
<DATE> 3-MAR-1987  09:15:05.40</DATE>
<TOPICS><D>wool</D></TOPICS>
<UNKNOWN>
&#5;&#5;&#5;C T
&#22;&#22;&#1;f0704&#31;reute</UNKNOWN>
<TEXT>&#2;
<TITLE>SHEEP &amp; SHEARERS</TITLE>
<DATELINE>    TOLVEN, March 3 - </DATELINE><BODY>Wool prices &lt;WOOL> rose to a 5&#127;year
high, said A&amp;lt;B.
    Bales of R&D grade & others were scarce.&#5;&#30;side note
 Reuter
&#3;</BODY></TEXT>
</REUTERS>
<REUTERS TOPICS="NO" LEWISSPLIT="TEST" CGISPLIT="TRAINING-SET" CSECS="539010540" OLDID="16" NEWID="2">
<DATE>27-MAR-1987 00:02:59.13&#5;&#5;&#5;RM</DATE>
<TEXT TYPE="BRIEF">&#2;
******<TITLE>MILL SAYS LOOMS STAND STILL
</TITLE>Blah blah blah.
&#3;
</TEXT>
</REUTERS>
<REUTERS TOPICS="NO" LEWISSPLIT="TEST" CGISPLIT="TRAINING-SET" OLDID="9" NEWID="3">
<DATE>27-MAR-1987 00:03:00.00</DATE>
<TEXT TYPE="UNPROC">&#2;
WEEKLY TABLE 1 - MAR 27
 Looms.............644 vs.....1,337
</TEXT>
</REUTERS>
<REUTERS TOPICS="YES" LEWISSPLIT="TRAIN" CGISPLIT="TRAINING-SET" OLDID="10" NEWID="4">
<DATE>27-MAR-1987 00:04:00.00</DATE>
<TEXT>&#2;
<TITLE>GROWTH</TITLE>
<BODY>Conditions for growth.\xfcside measures.</BODY></TEXT>
</REUTERS>
"""
LINES = (
    b'{"id": "a", "text": "one"}\n\n{"id": 7, "text": "two", "source": "s", "published_at": "now"}\n{"text": "three"}\n'
)


def write(folder, name, content):
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def tar(members, *, compress=True):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz" if compress else "w") as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def header_of(name, size):
    """Return the header of a member of a tar archive."""
    member = tarfile.TarInfo(name)
    member.size = size
    return member.tobuf(tarfile.GNU_FORMAT)


def stdin(monkeypatch, content):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(content))))


def failure(path, **options):
    """Return the error of a file, or of its first malformed line."""
    try:
        entries = list(CorpusReader(path, **options))
    except CorpusError as error:
        return str(error)
    return next(f"{entry.file}:{entry.line}: {entry.problem}" for entry in entries if entry.problem is not None)


def assert_accounted_for(path, **options):
    """Any bytes: entries that are sent as the same documents, or one error of a line that names the file."""
    entries, message = [], str(path)
    try:
        entries = list(CorpusReader(path, **options))
    except CorpusError as error:
        message = str(error)
    assert message.startswith(str(path))
    assert "\n" not in message
    for entry in entries:
        value = entry.value()
        if entry.problem is None:
            document = Decoder().decode(Position("corpus", 0, 0), 0, entry.key, value)
            assert (document.id, document.text) == (entry.id, "" if entry.op == "delete" else entry.text)


def test_every_format_that_can_be_named_has_a_parser_and_appears_in_help_texts():
    assert {"auto", *FORMATS} == set(get_args(Format))
    assert FORMAT_TITLES == "JSON lines, CSV, TSV, plain text, Reuters-21578"


# JSON lines


def test_json_lines_give_their_fields_and_keep_the_raw_line(tmp_path):
    path = write(tmp_path, "docs.jsonl", LINES)
    assert list(CorpusReader(path)) == [
        Entry("a", "one", str(path), 1, b'{"id": "a", "text": "one"}'),
        Entry("7", "two", str(path), 3, LINES.splitlines()[2], "s", "now"),
        Entry("docs.jsonl:4", "three", str(path), 4, b'{"text": "three"}'),
    ]


def test_field_names_and_operations_are_those_of_the_decoder(tmp_path):
    path = write(tmp_path, "d.jsonl", b'{"nr": "x", "title": "t", "body": "b", "op": "append"}\r\n')
    (entry,) = CorpusReader(path, decoder=Decoder(id_field="nr", text_fields=("title", "body")))
    assert (entry.id, entry.text, entry.op) == ("x", "t\nb", "append")
    assert entry.raw == b'{"nr": "x", "title": "t", "body": "b", "op": "append"}'


def test_an_unreadable_line_is_an_error_that_names_file_and_line_but_no_text(tmp_path):
    path = write(tmp_path, "d.jsonl", b'{"text": "fine"}\n{"text": "secret words\n')
    message = failure(path)
    assert message.startswith(f"{path}:2: the value is not JSON")
    assert "secret" not in message


def test_malformed_lines_are_passed_on_unchanged_on_request(tmp_path):
    lines = [b'{"text": "ok"}', b"[1]", b'{"text": 1}', b'{"text": "\xff"}', b"  {", b'{"text": ""}']
    entries = list(CorpusReader(write(tmp_path, "d.jsonl", b"\n".join(lines))))
    assert [entry.value() for entry in entries] == lines
    assert [entry.problem is None for entry in entries] == [True, False, False, False, False, True]
    assert [entry.key for entry in entries] == [b"d.jsonl:1", None, None, None, None, b"d.jsonl:6"]


@pytest.mark.parametrize(
    ("line", "key"),
    [
        (b'{"payload": {"nr": 7}}', b"7"),
        (b'{"payload": {"nr": "x"}, "text": 1}', b"x"),
        (b'{"payload": {"nr": "x"}, "text": "far too long"}', b"x"),
        (b'{"payload": {"nr": "x"}, "op": "?"}', b"x"),
        (b'{"payload": {"nr": [1]}, "text": "ok"}', None),
        (b'{"payload": {"nr": "a\\nb"}, "text": "ok"}', None),
        (b'{"payload": {"nr": "\\ud800"}, "text": "ok"}', None),
        (b'{"payload": {"nr": "x"}, "text": "ok"', None),
    ],
)
def test_a_line_that_the_settings_refuse_has_its_id_as_key_if_it_can_be_read(tmp_path, line, key):
    decoder = Decoder(id_field="payload.nr", max_text_bytes=4)
    (entry,) = CorpusReader(write(tmp_path, "d.jsonl", line), decoder=decoder, format="jsonl")
    assert entry.problem is not None
    assert (entry.key, entry.id) == (key, "d.jsonl:1" if key is None else key.decode())


def test_json_lines_are_known_by_name_even_if_the_first_line_is_poison(tmp_path):
    assert "JSON" in failure(write(tmp_path, "d.ndjson", b"poison\n" + LINES))


def test_a_byte_order_mark_is_no_part_of_the_first_line(tmp_path):
    (entry,) = CorpusReader(write(tmp_path, "d", b'\xef\xbb\xbf{"id": "a", "text": "one"}'))
    assert entry.raw == b'{"id": "a", "text": "one"}'
    (entry,) = CorpusReader(write(tmp_path, "d.txt", b"\xef\xbb\xbfone"))
    assert entry.text == "one"
    assert list(CorpusReader(write(tmp_path, "d.txt", b"\xef\xbb\xbf"))) == []


# Plain text


def test_plain_text_is_one_document_a_line_with_its_place_as_id(tmp_path):
    path = write(tmp_path, "notes.txt", "first\r\n \t\nzweite Zeile – ü\nlast".encode())
    entries = list(CorpusReader(path))
    assert [(e.id, e.text, e.line) for e in entries] == [
        ("notes.txt:1", "first", 1),
        ("notes.txt:3", "zweite Zeile – ü", 3),
        ("notes.txt:4", "last", 4),
    ]
    assert json.loads(entries[1].value()) == {"id": "notes.txt:3", "text": "zweite Zeile – ü"}
    assert entries[1].key == b"notes.txt:3"


def test_text_that_is_not_utf8_is_an_error_or_passed_on(tmp_path):
    path = write(tmp_path, "latin1.txt", b"gut\nf\xfcr alle\n")
    assert failure(path) == f"{path}:2: not UTF-8: invalid byte at position 1"
    good, bad = CorpusReader(path)
    assert good.problem is None
    assert (bad.value(), bad.key) == (b"f\xfcr alle", None)


def test_a_document_is_sent_under_the_field_names_that_the_daemon_reads(tmp_path):
    names = Decoder(id_field="nr", text_fields=("title", "body"), source_field="from")
    for path in (write(tmp_path, "notes.txt", b"one two"), write(tmp_path, "r.sgm", SGML)):
        entry = next(iter(CorpusReader(path)))
        document = names.decode(Position("t", 0, 0), 0, None, entry.value(names))
        assert (document.id, document.text, document.source) == (entry.id, entry.text, entry.source)


def test_json_can_be_read_as_text(tmp_path):
    entries = list(CorpusReader(write(tmp_path, "d.jsonl", LINES), format="text"))
    assert entries[0].text == '{"id": "a", "text": "one"}'


# Binary formats


def _read_pairs(stream, decoder, columns):
    """Yield the documents of an invented binary format: a mark, then length and text of each."""
    content = io.BytesIO(stream.read())
    assert content.read(4) == b"BIN1"
    for line, size in enumerate(iter(lambda: content.read(1), b""), 1):
        yield Entry(line_id(stream.name, line), content.read(size[0]).decode(), stream.name, line)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("corpus_format", ["auto", "pairs"])
def test_a_parser_of_a_binary_format_gets_bytes(tmp_path, monkeypatch, packed, corpus_format):
    monkeypatch.setitem(FORMATS, "pairs", FileFormat(_read_pairs, "pairs", starts=(b"bin1",)))
    content = b"BIN1\x04a\0\nb\x02\r\n"
    path = write(tmp_path, "d.bin", gzip.compress(content) if packed else content)
    reader = CorpusReader(path, format=corpus_format)
    assert [(entry.id, entry.text) for entry in reader] == [("d.bin:1", "a\0\nb"), ("d.bin:2", "\r\n")]
    assert reader.bytes_read == reader.total_bytes


# Formats that are not read


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("feed.xml", b'<?xml version="1.0"?>\n<rss version="2.0">', "an RSS feed; write each item"),
        ("feed.xml", b"\xef\xbb\xbf\n<feed xmlns='http://www.w3.org/2005/Atom'>", "an Atom feed"),
        ("page.HTM", b"<!DOCTYPE html>\n<html>", "HTML; write its text as a line of JSON: pandoc"),
        ("page", b"<?xml version='1.0'?><!DOCTYPE html PUBLIC '-//W3C//DTD XHTML 1.0//EN'>", "HTML"),
        ("dump.jsonl", b"<!doctype html><title>404</title>", "HTML"),
        ("wiki.csv", b"<mediawiki>", "XML or other markup; write each item, as here of a feed, as"),
        ("a.warc.gz", gzip.compress(b"WARC/1.0\r\nWARC-Type: warcinfo"), "a web archive (WARC)"),
        ("inbox", b"From a@b.example Mon Jan  5 09:15:00 2026\nSubject: x", "mails (mbox)"),
        ("d.yml", b"---\n- id: 1", "YAML; write its list as JSON lines: yq"),
        ("d", b"- id: 1\n  text: one", "YAML"),
        ("dump.sql", b"--\n-- PostgreSQL database dump", "SQL; load it"),
        ("dump", b"INSERT INTO d VALUES (1, 'one')", "SQL"),
        ("d.pdf", b"%PDF-1.7", "PDF; write its text as a line of JSON: pdftotext"),
        ("d.rtf", rb"{\rtf1\ansi one}", "RTF"),
        ("d.docx", b"PK\x03\x04", "a zip archive or an office document"),
        ("d.doc", b"\xd0\xcf\x11\xe0", "a zip archive or an office document"),
        ("d.parquet", b"PAR1\x15\0", "Parquet; convert it in DuckDB: COPY"),
        ("d.avro", b"Obj\x01\x04", "Avro; write its records as JSON lines: fastavro FILE"),
        ("d.db", b"SQLite format 3\0", "SQLite; export a query as CSV: sqlite3 -csv -header"),
        ("d.json", b' [{"text": "one"}]', "a JSON array; write one object on each line: jq -c '.[]' FILE"),
        ("d", b'\xef\xbb\xbf[\n{"text": "one"}]', "a JSON array"),
        ("d.json", b'{\n  "text": "one"\n}', "JSON over several lines; write each object on one: jq -c . FILE"),
        ("d.jsonl", b'{ "articles": [\r\n', "JSON over several lines"),
        ("notes", b"Create a poem. Drop a line.", "its format is not recognised"),
        ("notes.md", b"one two", "its format is not recognised by name or first bytes; say it with --format"),
        ("d.psv", b"id|text\n1|one", "its format is not recognised"),
    ],
)
def test_a_format_that_is_not_read_is_named_with_a_way_to_convert_it(tmp_path, name, content, said):
    path = write(tmp_path, name, content)
    with pytest.raises(UnknownFormat) as raised:
        list(CorpusReader(path))
    assert str(raised.value).startswith(f"{path}: {said}")
    assert exit_code(raised.value) == EXIT_USAGE


def test_a_named_format_is_read_and_so_is_plain_text_by_its_name(tmp_path):
    for content in (b"one two", b"<html>", b"--- ", b"From a b 09:15"):
        assert len(list(CorpusReader(write(tmp_path, "notes.md", content), format="text"))) == 1
        assert len(list(CorpusReader(write(tmp_path, "notes.TXT.gz", gzip.compress(content))))) == 1
    array = write(tmp_path, "d", b'[{"text": "one"}]')
    assert "a JSON array" in failure(array, format="jsonl")


def test_a_line_of_json_that_is_cut_short_is_no_format_of_its_own(tmp_path):
    lines = b'{"text": "one"\n{"text": "two"}\n'
    first, second = CorpusReader(write(tmp_path, "d.jsonl", lines))
    assert first.problem is not None
    assert second.text == "two"


def test_plain_text_from_standard_input_is_read_where_the_format_is_named(monkeypatch):
    stdin(monkeypatch, b"one two\n")
    assert failure("-").startswith("stdin: its format is not recognised")
    stdin(monkeypatch, b"one two\n")
    assert [entry.text for entry in CorpusReader("-", format="text")] == ["one two"]


def test_a_closed_standard_input_is_named(monkeypatch):
    monkeypatch.setattr(sys, "stdin", None)
    assert failure("-") == "stdin: closed, so there is nothing to read"


@pytest.mark.parametrize("url", ["https://user:secret@example.org/d.jsonl?token=secret", "s3://secret/d.csv"])
def test_a_url_in_place_of_a_file_is_named_without_its_secrets(url):
    message = failure(url)
    assert message.startswith(f"{url.partition(':')[0]}://...: a URL; only files are read")
    assert "secret" not in message


# Reuters-21578


def test_reuters_articles_have_their_body_as_text_and_oldid_as_id(tmp_path):
    path = write(tmp_path, "reut2-000.sgm", SGML)
    entries = list(CorpusReader(path))
    assert [e.id for e in entries] == ["702", "16", "9", "10"]
    assert [e.line for e in entries] == [2, 16, 24, 31]
    assert [e.published_at for e in entries] == [
        "3-MAR-1987  09:15:05.40",
        "27-MAR-1987 00:02:59.13   RM",
        "27-MAR-1987 00:03:00.00",
        "27-MAR-1987 00:04:00.00",
    ]
    assert entries[0].text == (
        "Wool prices <WOOL> rose to a 5 year\nhigh, said A&lt;B.\n"
        "    Bales of R&D grade & others were scarce.  side note\n Reuter"
    )
    assert [e.text for e in entries[1:3]] == ["", ""]
    assert entries[3].text == "Conditions for growth.\ufffdside measures."
    assert {e.source for e in entries} == {"Reuters-21578"}
    assert all(e.raw is None for e in entries)


@pytest.mark.parametrize("oldid", [b"702", b"\x08=", b"9" * 2_000, b"a number"])
def test_a_reuters_document_survives_being_sent(tmp_path, oldid):
    for entry in CorpusReader(write(tmp_path, "r", SGML.replace(b"702", oldid))):
        document = Decoder().decode(Position("t", 0, 0), 0, entry.key, entry.value())
        assert (document.id, document.text, document.published_at) == (entry.id, entry.text, entry.published_at)


@pytest.mark.parametrize(
    ("number", "character"), [("38", "&"), ("65", "A"), ("10", ""), ("55296", "\ufffd"), ("1114112", "\ufffd")]
)
def test_numeric_entities_stand_for_characters(tmp_path, number, character):
    article = f'<REUTERS OLDID="1">\n<BODY>&#{number};</BODY>\n</REUTERS>\n'.encode()
    (entry,) = CorpusReader(write(tmp_path, "r.sgm", article))
    assert entry.text == character


def test_an_article_without_a_number_is_named_by_its_place(tmp_path):
    (entry,) = CorpusReader(write(tmp_path, "r.sgm", b"\n<REUTERS>\n<BODY>text</BODY>\n</REUTERS>\n"))
    assert (entry.id, entry.published_at) == ("r.sgm:2", None)


def test_a_folder_is_read_file_by_file_in_the_order_of_names(tmp_path):
    write(tmp_path, "reut2-001.sgm", SGML.replace(b'OLDID="', b'OLDID="1'))
    write(tmp_path, "reut2-000.SGM.gz", gzip.compress(SGML))
    write(tmp_path, "README.txt", b"not a document")
    (tmp_path / "old.sgm").mkdir()
    reader = CorpusReader(tmp_path)
    assert [e.id for e in reader] == ["702", "16", "9", "10", "1702", "116", "19", "110"]
    assert reader.bytes_read == reader.total_bytes == sum(f.stat().st_size for f in tmp_path.glob("reut2*"))


@pytest.mark.parametrize("compress", [True, False])
def test_an_archive_is_read_in_place(tmp_path, compress, monkeypatch):
    members = {"README.txt": b"x" * 700, "a/reut2-000.sgm": SGML, "lewis.dtd": b"", "bare": SGML}
    members |= {"b.sgm": SGML, "c.sgm.gz": gzip.compress(SGML)}
    path = write(tmp_path, "corpus.bin", tar(members, compress=compress))
    monkeypatch.chdir(tmp_path)
    reader = CorpusReader("corpus.bin")
    entries = list(reader)
    assert [e.id for e in entries] == ["702", "16", "9", "10"] * 4
    assert entries[0].file == "corpus.bin:a/reut2-000.sgm"
    assert reader.bytes_read == reader.total_bytes == path.stat().st_size
    assert [p.name for p in tmp_path.iterdir()] == ["corpus.bin"]


def test_links_and_devices_in_an_archive_are_passed_over(tmp_path):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.DIRTYPE):
            member = tarfile.TarInfo("evil.sgm")
            member.type, member.linkname = kind, "/etc/passwd"
            archive.addfile(member)
    assert failure(write(tmp_path, "a.tar", buffer.getvalue())).endswith("an archive without .sgm files")


@pytest.mark.parametrize("kind", [tarfile.LNKTYPE, tarfile.DIRTYPE])
def test_a_link_or_a_folder_has_no_content_in_an_archive_in_spite_of_its_size(tmp_path, kind):
    member = tarfile.TarInfo("link.sgm")
    member.type, member.size = kind, 1_234  # of the target, or of the entries
    content = member.tobuf(tarfile.USTAR_FORMAT) + tar({"r.sgm": SGML}, compress=False)
    assert len(list(CorpusReader(write(tmp_path, "a.tar", content)))) == 4


@pytest.mark.parametrize("content", [bytes(8 << 20), b"22 GNU.sparse.map=x,y\n"])
def test_the_extended_header_of_a_member_in_an_archive_is_skipped(tmp_path, content):
    member = tarfile.TarInfo("header")
    member.type, member.size = tarfile.XHDTYPE, len(content)
    extended = member.tobuf(tarfile.USTAR_FORMAT) + content + bytes(-len(content) % 512)
    path = write(tmp_path, "a.tgz", gzip.compress(extended + tar({"r.sgm": SGML}, compress=False)))
    tracemalloc.start()
    assert len(list(CorpusReader(path))) == 4
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak_bytes < 2_000_000


# Compression and standard input


@pytest.mark.parametrize("name", ["d.jsonl", "d.jsonl.gz", "d"])
def test_gzip_is_detected_by_its_first_bytes_and_not_by_the_name(tmp_path, name):
    packed = gzip.compress(LINES[:28]) + gzip.compress(LINES[28:])
    entries = list(CorpusReader(write(tmp_path, name, packed)))
    assert entries == list(CorpusReader(write(tmp_path, name, LINES)))
    assert [entry.id for entry in entries] == ["a", "7", f"{name}:4"]


@pytest.mark.parametrize("content", [LINES, gzip.compress(LINES)])
def test_standard_input_is_read_and_left_open(monkeypatch, content):
    stdin(monkeypatch, content)
    reader = CorpusReader("-")
    assert [(e.id, e.file) for e in reader] == [("a", "stdin"), ("7", "stdin"), ("stdin:4", "stdin")]
    assert (reader.total_bytes, reader.bytes_read) == (None, len(content))
    assert not sys.stdin.buffer.closed


def test_standard_input_is_read_beside_a_folder_with_its_name(tmp_path, monkeypatch):
    (tmp_path / "-").mkdir()
    monkeypatch.chdir(tmp_path)
    stdin(monkeypatch, LINES)
    assert [entry.id for entry in CorpusReader("-", format="jsonl")] == ["a", "7", "stdin:4"]


def test_standard_input_may_be_an_archive_or_empty(monkeypatch):
    stdin(monkeypatch, tar({"r.sgm": SGML}))
    assert len(list(CorpusReader("-"))) == 4
    stdin(monkeypatch, b"")
    assert list(CorpusReader("-")) == []


class Trickle(io.RawIOBase):
    """Delivers a byte at a time and remembers how many."""

    def __init__(self, content):
        super().__init__()
        self.content, self.count = content, 0

    def readable(self):
        return True

    def readinto(self, buffer):
        piece = self.content[self.count : self.count + 1]
        buffer[: len(piece)] = piece
        self.count += len(piece)
        return len(piece)


@pytest.mark.parametrize("content", [LINES, gzip.compress(LINES), tar({"r.sgm": SGML}, compress=False)])
def test_the_format_of_a_slow_stream_is_detected(monkeypatch, content):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(Trickle(content))))
    assert len(list(CorpusReader("-"))) in {3, 4}


def test_the_first_line_of_a_slow_stream_is_not_kept_waiting_for_the_second(monkeypatch):
    trickle = Trickle(LINES)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(trickle)))
    assert next(iter(CorpusReader("-"))).id == "a"
    assert trickle.count == LINES.index(b"\n") + 1


def test_progress_is_that_of_the_stored_bytes(tmp_path):
    content = gzip.compress(b"".join(b'{"id": %d, "text": "%032x"}\n' % (i, i**9) for i in range(20_000)))
    reader = CorpusReader(write(tmp_path, "d.gz", content))
    seen = [reader.bytes_read for _ in reader]
    assert seen == sorted(seen)
    assert 0 < seen[0] < len(content) // 2
    assert seen[-1] == reader.total_bytes == len(content)
    assert len(list(reader)) == 20_000
    assert reader.bytes_read == len(content)


def test_memory_holds_one_document_and_not_the_file(tmp_path):
    path = write(tmp_path, "d.gz", gzip.compress(b'{"text": "' + b"word " * 10_000 + b'"}\n', 1) * 400)
    tracemalloc.start()
    assert sum(1 for _ in CorpusReader(path)) == 400
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak_bytes < 2_000_000


# What can be wrong with a file


@pytest.mark.skipif(sys.platform == "darwin", reason="its file names are UTF-8")
def test_a_file_name_that_is_not_utf8_is_read_and_shown_with_escapes(tmp_path):
    path = tmp_path / os.fsdecode(b"caf\xe9.jsonl")
    path.write_text('{"text": "words without an id"}\nno JSON\n', encoding="utf-8")
    document, bad = CorpusReader(path)
    assert document.id == "caf\\udce9.jsonl:1"
    assert document.key == document.id.encode()
    assert (bad.file, bad.line) == (f"{tmp_path}/caf\\udce9.jsonl", 2)


@pytest.mark.parametrize(
    ("suffix", "content", "line"), [("txt", b"one", 1), ("jsonl", b'{"text": "one"}', 1), ("csv", b"text\none", 2)]
)
def test_a_control_character_in_a_file_name_is_escaped_in_ids(tmp_path, suffix, content, line):
    (entry,) = CorpusReader(write(tmp_path, f"a\t\x9f.{suffix}", content))
    assert entry.id == f"a\\t\\x9f.{suffix}:{line}"
    assert not entry.has_id


CODES = "\x1b]0;owned\x07\x1b[2J\nr.sgm"


@pytest.mark.parametrize("content", [SGML, SGML.replace(b"<BODY>", b"<REUTERS>", 1)], ids=["read", "refused"])
def test_control_codes_in_the_names_of_an_archive_are_escaped_in_entries_and_errors(tmp_path, content):
    path = write(tmp_path, "a.tar", tar({CODES: content}))
    try:
        shown = "".join(entry.file for entry in CorpusReader(path))
    except CorpusError as error:
        shown = str(error)
    assert r"a.tar:\x1b]0;owned\x07\x1b[2J\nr.sgm" in shown
    assert shown.isprintable()


def test_control_codes_in_the_name_of_a_missing_file_are_escaped(tmp_path):
    for refused in (lambda: CorpusReader(tmp_path / CODES), lambda: open_file(CODES)):
        with pytest.raises(CorpusError) as raised:
            refused()
        assert str(raised.value).isprintable()


def test_a_folder_without_sgml_files_is_an_error(tmp_path):
    with pytest.raises(CorpusError, match=r"a folder without \.sgm files"):
        CorpusReader(tmp_path)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"\x00\x01\x02", "a binary file"),
        (b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR", "a binary file"),
        (b"PK\x03\x04rest", "a zip archive"),
        (b"\x28\xb5\x2f\xfdrest", "compressed with zstd"),
        (b"\xfd7zXZ\x00rest", "compressed with xz"),
        (b"BZh91AY&SYrest", "compressed with bzip2"),
        (b"\xff\xfea\x00", "UTF-16"),
        ("a".encode("utf-32"), "UTF-32"),
        (b"\x00\x00\xfe\xff\x00\x00\x00a", "UTF-32"),
        (gzip.compress(b"PK\x03\x04rest"), "a zip archive"),
        (gzip.compress(LINES * 1_000)[:-100], "cut short"),
        (gzip.compress(LINES)[:-4], "cut short"),
        (gzip.compress(LINES)[:-8] + bytes(8), "damaged compressed data"),
        (gzip.compress(LINES) + b"more", "damaged compressed data"),
        (b"\x1f\x8b\x08", "cut short"),
        (b"\x1f\x8bgarbage...", "damaged compressed data"),
        (tar({"a.txt": b"text"}), "without .sgm files"),
        (tar({"r.sgm": SGML})[:-8], "cut short"),
        (tar({"r.sgm": SGML}, compress=False)[:1024], "cut short"),
        (tar({"a.txt": bytes(512)}, compress=False)[:1024], "no end mark"),
        (tar({"r.sgm": SGML}, compress=False)[:512] + bytes(512 * 4) + b"x" * 512, "no Reuters-21578 article"),
        (tar({"r.sgm": SGML}, compress=False)[:512].replace(b"r.sgm", b"s.sgm"), "damaged archive"),
        (tar({"r.sgm": SGML, "x.sgm": SGML}, compress=False).replace(b"x.sgm", b"y.sgm"), "damaged archive"),
        (header_of("r.sgm", -5) + bytes(1024), "a member of negative size"),
        (SGML.partition(b"</TEXT>")[0], "cut short: the article that begins on line 2 does not end"),
        (SGML.replace(b"</REUTERS>", b"", 1), "an article begins inside the one that begins on line 2"),
        (b'<!DOCTYPE lewis SYSTEM "lewis.dtd">\n', "no Reuters-21578 article"),
    ],
)
def test_a_wrong_file_is_an_error_that_names_it(tmp_path, content, reason):
    path = write(tmp_path, "input.dat", content)
    message = failure(path)
    assert message.startswith(str(path))
    assert reason in message


@pytest.mark.parametrize("wanted", ["jsonl", "csv", "text"])
def test_archives_and_folders_are_read_in_one_format(tmp_path, wanted):
    path = write(tmp_path, "a.tar", tar({"r.sgm": SGML}))
    assert failure(path, format=wanted) == f"{path}: a tar archive, of which only reuters is read, not {wanted}"
    write(tmp_path, "r.sgm", SGML)
    assert failure(tmp_path, format=wanted) == f"{tmp_path}: a folder, of which only reuters is read, not {wanted}"
    for source in (tmp_path, path):
        assert list(CorpusReader(source, format="reuters")) == list(CorpusReader(source))


def test_a_cut_gzip_file_gives_its_documents_first(tmp_path):
    entries = iter(CorpusReader(write(tmp_path, "d.gz", gzip.compress(LINES)[:-4])))
    assert [next(entries).id for _ in range(2)] == ["a", "7"]


@pytest.mark.parametrize(
    ("content", "place"),
    [
        (b"fine\n" + b"x" * 2_000, ":2: longer than 1,000 bytes"),
        (gzip.compress(bytes(5_000_000).replace(b"\0", b"x")), ":1: longer than 1,000 bytes"),
        (b"<REUTERS>\n" + b"word\n" * 300, ":200: the article that begins on line 1 is longer than 1,000 bytes"),
    ],
)
def test_lines_and_articles_have_a_greatest_length(tmp_path, monkeypatch, content, place):
    monkeypatch.setattr(sources, "MAX_LINE_BYTES", 1_000)
    name = "d.sgm" if content.startswith(b"<") else "d.txt"
    assert failure(write(tmp_path, name, content)).endswith(place)


def test_a_line_of_the_greatest_length_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "MAX_LINE_BYTES", 10)
    assert [e.text for e in CorpusReader(write(tmp_path, "d.txt", b"123456789\n123456789"))] == ["123456789"] * 2


def test_articles_within_the_greatest_length_may_be_longer_together(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "MAX_LINE_BYTES", len(SGML))
    assert len(list(CorpusReader(write(tmp_path, "r.sgm", SGML * 2)))) == 8


@settings(max_examples=examples(150))
@given(
    st.binary(max_size=700),
    st.sampled_from(["auto", "jsonl", "csv", "tsv", "tsv-unquoted", "text", "reuters"]),
    st.sampled_from(["raw", "gz", "tar", "sgml"]),
)
def test_any_bytes_are_entries_or_a_corpus_error(tmp_path_factory, content, form, wrapping):
    if wrapping == "gz":
        content = gzip.compress(content)
    elif wrapping == "tar":
        content = tar({"r.sgm": content}, compress=False)
    elif wrapping == "sgml":
        content = b'<REUTERS OLDID="1">\n<BODY>' + content + b"</BODY>\n</REUTERS>\n"
    path = write(tmp_path_factory.getbasetemp(), "any", content)
    assert_accounted_for(path, format=form)


@settings(max_examples=examples(100))
@given(st.data())
def test_damaged_archives_never_end_in_anything_but_a_corpus_error(tmp_path_factory, data):
    content = bytearray(tar({"r.sgm": SGML[:600], "s.sgm": SGML[:900]}, compress=data.draw(st.booleans()))[:6_000])
    for _ in range(data.draw(st.integers(1, 6))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path = write(tmp_path_factory.getbasetemp(), "damaged", bytes(content))
    assert_accounted_for(path)
