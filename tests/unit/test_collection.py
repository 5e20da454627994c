"""Documents of files, for commands that compare them without Kafka."""

import pytest

from streamdedup.cli.options import CorpusOptions
from streamdedup.errors import EXIT_FAILED, CorpusError, exit_code
from streamdedup.settings import Profile


def ids_of(*paths):
    options = CorpusOptions(list(map(str, paths)))
    return [entry.id for entry in options.entries(Profile(topics=["t"]), "scan")]


def written(path, *lines):
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def test_lines_that_are_no_documents_are_left_out_named_and_counted(tmp_path, capsys):
    path = written(
        tmp_path / "bad.jsonl", '{"id": "a", "text": "one"}', *["not JSON"] * 7, '{"id": "b", "text": "two"}'
    )
    assert ids_of(path) == ["a", "b"]
    said = capsys.readouterr().err
    assert f"no document: {path}:2: the value is not JSON" in said
    assert said.count("the value is not JSON") == 5
    assert "no document: further ones are only counted" in said
    assert "7 lines left out: no documents" in said


@pytest.mark.parametrize("line", ["not JSON", '{"id": "a"}', '{"id": "a", "text": 1}'])
def test_files_of_which_no_document_is_left_are_a_failure(tmp_path, line):
    with pytest.raises(CorpusError, match="no document is left: 3 lines, all malformed") as raised:
        ids_of(written(tmp_path / "bad.jsonl", line, line), written(tmp_path / "more.jsonl", line))
    assert exit_code(raised.value) == EXIT_FAILED
    assert ids_of(written(tmp_path / "empty.jsonl")) == []


def test_ids_that_two_files_have_are_named(tmp_path, capsys):
    first, second = (written(tmp_path / name, "id,text", "1,one", "2,two") for name in ("a.csv", "b.csv"))
    assert ids_of(first, second) == ["1", "2"] * 2
    said = capsys.readouterr().err
    assert f"same id: {second}:2: 1 is an id in {first} too" in said
    # Files without ids, called alike in two folders: their line numbers are ids.
    first, second = (written(tmp_path / folder / "d.txt", "one", "two") for folder in ("x", "y"))
    ids_of(first, second)
    assert f"same id: {second}:1: d.txt:1 is an id in {first} too" in capsys.readouterr().err


def test_ids_that_one_file_repeats_are_its_own_matter(tmp_path, capsys):
    ids_of(written(tmp_path / "a.csv", "id,text", "1,one", "1,two"), written(tmp_path / "b.csv", "id,text", "2,two"))
    assert "same id" not in capsys.readouterr().err
