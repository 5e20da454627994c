"""Records that the parser refuses: damage is stepped past, a codec whose library is missing stops the reader."""

from types import SimpleNamespace

import kafka.codec
import pytest
from kafka.errors import CorruptRecordError, UnsupportedCodecError

from streamdedup.errors import BrokerUnavailable, CodecMissing
from streamdedup.kafka.errors import codec_missing, described, translated
from streamdedup.kafka.unreadable import _range
from streamdedup.position import Partition
from tests.raw_batches import RawRecord, record_batch

PARTITION = Partition("articles", 2)
#: Numbers of the codecs in the attributes of a record batch, and one that Kafka does not define.
CODECS = {"gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
UNDEFINED_CODEC = 6
RECORDS = [RawRecord(b"value %d" % number * 20) for number in range(3)]


def fetched(batch):
    """The answer to a fetch that holds one record batch."""
    return SimpleNamespace(error_code=0, records=batch, aborted_transactions=[])


@pytest.mark.parametrize(
    ("codec", "package"), [("gzip", "gzip"), ("snappy", "python-snappy"), ("lz4", "lz4"), ("zstd", "zstandard")]
)
def test_a_codec_without_its_library_stops_the_reader_and_names_the_package(monkeypatch, codec, package):
    monkeypatch.setattr(kafka.codec, f"has_{codec}", lambda: False)
    with pytest.raises(CodecMissing) as raised:
        _range(PARTITION, 1, fetched(record_batch(RECORDS, CODECS[codec])))
    text = str(raised.value)
    assert text.startswith(f"cannot read articles:2 from offset 1 on: the records are compressed with {codec}, ")
    assert f"`pip install {package}`" in text


def test_a_codec_that_kafka_does_not_define_is_stepped_past_and_told_once():
    found = _range(PARTITION, 1, fetched(record_batch(RECORDS, UNDEFINED_CODEC)))
    assert (found.first, found.last) == (1, 2)
    assert found.reason.count("UnsupportedCodecError") == 1
    assert "6" in found.reason


def test_a_damaged_batch_is_stepped_past_and_told_once():
    whole = record_batch(RECORDS)
    found = _range(PARTITION, 0, fetched(whole[:-1] + bytes([whole[-1] ^ 1])))
    assert (found.first, found.last) == (0, 2)
    assert found.reason.count("CorruptRecordError") == 1


def test_what_can_be_read_is_no_unreadable_range():
    assert _range(PARTITION, 0, fetched(record_batch(RECORDS))) is None


def test_the_class_of_an_error_is_told_once_whether_its_text_names_it_or_not():
    assert described(UnsupportedCodecError("Unrecognized compression type: 6")).count("UnsupportedCodecError") == 1
    assert described(ValueError("no such thing")) == "ValueError: no such thing"


def test_only_a_missing_library_is_a_missing_codec():
    assert codec_missing(UnsupportedCodecError("Unrecognized compression type: 6"), "") is None
    assert codec_missing(CorruptRecordError("Libraries for zstd compression codec not found"), "") is None
    assert isinstance(translated(CorruptRecordError("x"), "fetch"), BrokerUnavailable)
    missing = translated(UnsupportedCodecError("Libraries for zstd compression codec not found"), "fetch articles:0:1")
    assert isinstance(missing, CodecMissing)
    assert str(missing).startswith("cannot fetch articles:0:1: ")
