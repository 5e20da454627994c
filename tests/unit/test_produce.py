"""What ``produce`` makes of the lines of a file, without a server."""

import json

import pytest

from streamdedup.cli import produce
from streamdedup.cli.collection import FileEntries
from streamdedup.cli.produce import _records
from streamdedup.corpora.reader import CorpusReader
from streamdedup.errors import CorpusError, DecodeError, SettingsError
from streamdedup.wire import Decoder, ErrorCode

SETTINGS = ["kafka.bootstrap_servers=h:2", "redis.url=redis://localhost:1", "profiles.articles.topics=articles"]


def a_key_of_digits(document_id):
    if not document_id.isdigit():
        raise DecodeError(ErrorCode.INVALID_ID, "it does not fit the schema: id")
    return document_id.encode()


def keys_of(path, *lines):
    """Return the keys of the records of a file, in a topic whose keys are numbers."""
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    decoder = Decoder()
    readers = [(str(path), CorpusReader(str(path), decoder=decoder))]
    return [key for _, key, _ in _records(readers, FileEntries(), decoder, a_key_of_digits, None)]


def test_a_refused_line_whose_id_fits_no_schema_is_sent_without_a_key(tmp_path):
    refused = [{"id": "abc", "text": 1}, {"id": "2", "text": 1}]
    assert keys_of(tmp_path / "d.jsonl", {"id": "1", "text": "x"}, *refused) == [b"1", None, b"2"]


def test_a_document_whose_id_fits_no_schema_is_an_error(tmp_path):
    with pytest.raises(CorpusError, match=r"d\.jsonl:2: it does not fit the schema: id"):
        keys_of(tmp_path / "d.jsonl", {"id": "1", "text": "x"}, {"id": "abc", "text": "x"})


def test_a_limit_may_be_any_number(tmp_path, monkeypatch):
    path = tmp_path / "d.jsonl"
    path.write_text('{"id": "1", "text": "x"}\n')
    sent = []
    monkeypatch.setattr(produce, "_send", lambda _options, _topic, records, *_, **__: sent.extend(records))
    produce.produce([str(path)], topic="articles", assignments=SETTINGS, limit=10**20)
    assert len(sent) == 1


@pytest.mark.parametrize(
    "option",
    [{"rate": 1.0}, {"limit": 1}, {"corpus_format": "csv"}, {"published_at_column": "a"}],
)
def test_options_for_files_are_refused_beside_an_erasure(option):
    with pytest.raises(SettingsError, match="--erase-scope goes with"):
        produce.produce(topic="articles", assignments=SETTINGS, erase_scope="x", **option)
