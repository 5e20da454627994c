"""What ``produce`` makes of the lines of a file, without a server."""

import json
import signal
from types import SimpleNamespace

import pytest

from streamdedup.cli import produce
from streamdedup.cli.collection import FileEntries
from streamdedup.cli.produce import _records
from streamdedup.corpora.reader import CorpusReader
from streamdedup.errors import CorpusError, DecodeError, SettingsError
from streamdedup.kafka import compat
from streamdedup.kafka.options import KafkaOptions
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


@pytest.mark.parametrize(("limit", "said"), [(2, "2 records sent"), (10**20, "3 records sent")])
def test_no_more_records_than_the_limit_are_sent(tmp_path, monkeypatch, capsys, limit, said):
    path = tmp_path / "d.jsonl"
    path.write_text('{"id": "1", "text": "x"}\n' * 3)
    monkeypatch.setattr(produce, "_send", lambda _options, _topic, records, _pace: (len(list(records)), 0, False))
    produce.produce([str(path)], topic="articles", assignments=SETTINGS, limit=limit)
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    "option",
    [{"rate": 1.0}, {"limit": 1}, {"corpus_format": "csv"}, {"published_at_column": "a"}],
)
def test_options_for_files_are_refused_beside_an_erasure(option):
    with pytest.raises(SettingsError, match="--erase-scope goes with"):
        produce.produce(topic="articles", assignments=SETTINGS, erase_scope="x", **option)


@pytest.mark.parametrize(("where", "stored_count"), [("send", 1), ("read", 0), ("flush", 3)])
def test_ctrl_c_ends_it_at_once_and_a_record_that_the_client_has_taken_is_counted(monkeypatch, where, stored_count):
    def stop(place):
        if place == where:
            signal.raise_signal(signal.SIGINT)

    def send(_topic, **_):
        stop("send")  # when the record is in the client's queue
        return SimpleNamespace(is_done=True, get=lambda timeout: None, succeeded=lambda: True)

    def records():
        for at in range(3):
            stop("read")
            yield f"{at}", None, b"x"

    client = SimpleNamespace(send=send, flush=lambda **_: stop("flush"), close=lambda **_: None)
    monkeypatch.setattr(compat, "build", lambda *_: client)
    monkeypatch.setattr(produce, "require_topics", lambda *_: None)
    options = KafkaOptions(bootstrap_servers="h:1", group_id="g", topics=("t",), transactional_id="x")
    earlier_handler = signal.getsignal(signal.SIGINT)
    paces = []
    pace = SimpleNamespace(wait=lambda: paces.append(1))
    assert produce._send(options, "t", records(), pace) == (stored_count, 0, True)
    assert len(paces) >= stored_count  # the pace is kept before each record
    assert signal.getsignal(signal.SIGINT) is earlier_handler
