"""Records compressed with a codec whose library is missing, on a real Kafka: the daemon stops, and goes on with it."""

import os

import pytest

from streamdedup.errors import EXIT_FATAL
from tests import servers
from tests.raw_batches import SNAPPY, RawRecord, record_batch, send_batch

TEXT = "the ferry to the island runs twice a day from the first week of may to the last of october"
RECORDS_COUNT = 200


@pytest.mark.long
def test_records_of_a_missing_codec_stop_the_daemon_and_are_all_processed_once_it_is_installed(
    install, tmp_path, monkeypatch
):
    installation = install()
    values = [f'{{"id": "d{at}", "text": "{TEXT} {at % 2}"}}'.encode() for at in range(RECORDS_COUNT)]
    records = [RawRecord(value, b"d%d" % at, timestamp_ms=1) for at, value in enumerate(values)]
    send_batch(installation.kafka, installation.topic, 0, record_batch(records, SNAPPY))
    # Hides the library from the daemon, whether the tests' environment has it or not.
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden" / "snappy.py").write_text("raise ImportError\n", encoding="utf-8")
    with monkeypatch.context() as hidden:
        path = os.pathsep.join(filter(None, (str(tmp_path / "hidden"), os.environ.get("PYTHONPATH"))))
        hidden.setenv("PYTHONPATH", path)
        with installation.daemon() as daemon:
            assert daemon.wait() == EXIT_FATAL
            log = daemon.log.read_text(encoding="utf-8")
    assert "compressed with snappy" in log
    assert "pip install python-snappy" in log
    assert installation.committed_count() == 0
    assert servers.read_topic(installation.kafka, f"{installation.duplicates}.dlq") == []
    installation.run_until_committed(RECORDS_COUNT)
    assert servers.read_topic(installation.kafka, f"{installation.duplicates}.dlq") == []
    assert len(installation.pairs()) == RECORDS_COUNT * (RECORDS_COUNT - 1) // 2
