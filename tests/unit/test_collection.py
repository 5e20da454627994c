"""Documents of files, for commands that compare them without Kafka."""

import pytest

from streamdedup.cli.options import CorpusOptions
from streamdedup.errors import CorpusError
from streamdedup.settings import Profile

LINES = '{"id": "a", "text": "one"}\nnot JSON\n{"id": "b", "text": "two"}\n'


def entries_of(path, *, skip_unreadable):
    path.write_text(LINES, encoding="utf-8")
    options = CorpusOptions([str(path)], corpus_format="jsonl", skip_unreadable=skip_unreadable)
    return options.entries(Profile(topics=["t"]), "scan")


def test_a_line_that_is_no_document_is_named_with_the_option_that_leaves_it_out(tmp_path):
    entries = entries_of(tmp_path / "bad.jsonl", skip_unreadable=False)
    assert next(entries).id == "a"
    with pytest.raises(CorpusError, match=r"bad\.jsonl:2: .*not JSON.*; --skip-unreadable leaves such lines out"):
        next(entries)


def test_lines_that_are_no_documents_are_left_out_and_counted(tmp_path, capsys):
    entries = entries_of(tmp_path / "bad.jsonl", skip_unreadable=True)
    assert [entry.id for entry in entries] == ["a", "b"]
    assert "1 line left out: no documents" in capsys.readouterr().err
