"""What ``produce`` makes of the lines of a file, without a server."""

import json

import pytest

from streamdedup.cli import produce
from streamdedup.cli.collection import FileEntries
from streamdedup.cli.produce import _records, _Writers
from streamdedup.corpora.reader import CorpusReader
from streamdedup.errors import CorpusError, DecodeError
from streamdedup.wire import Decoder, ErrorCode


def a_key_of_digits(document_id):
    if not document_id.isdigit():
        raise DecodeError(ErrorCode.INVALID_ID, "it does not fit the schema: id")
    return document_id.encode()


def keys_of(path, *lines):
    """Return the keys of the records of a file, in a topic whose keys are numbers."""
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    decoder, writers = Decoder(), _Writers(a_key_of_digits, None)
    readers = [(str(path), CorpusReader(str(path), decoder=decoder))]
    return [key for _, key, _ in _records(readers, FileEntries(), decoder, writers, leaves_out_malformed=False)]


def test_a_refused_line_whose_id_fits_no_schema_is_sent_without_a_key(tmp_path):
    refused = [{"id": "abc", "text": 1}, {"id": "2", "text": 1}]
    assert keys_of(tmp_path / "d.jsonl", {"id": "1", "text": "x"}, *refused) == [b"1", None, b"2"]


def test_a_document_whose_id_fits_no_schema_is_an_error(tmp_path):
    with pytest.raises(CorpusError, match=r"d\.jsonl:2: it does not fit the schema: id"):
        keys_of(tmp_path / "d.jsonl", {"id": "1", "text": "x"}, {"id": "abc", "text": "x"})


def test_a_limit_may_be_any_number(tmp_path, monkeypatch, capsys):
    path = tmp_path / "d.jsonl"
    path.write_text('{"id": "1", "text": "x"}\n')
    monkeypatch.setattr(produce, "_send", lambda _options, _topic, records, _pace: (len(list(records)), 0, False))
    settings = ["kafka.bootstrap_servers=h:2", "redis.url=redis://localhost:1", "profiles.articles.topics=articles"]
    produce.produce([str(path)], topic="articles", assignments=settings, limit=10**20)
    assert "1 record sent" in capsys.readouterr().err
