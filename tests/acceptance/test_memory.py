"""Peak memory of a daemon on a real Kafka, compared with the limit of the files for Kubernetes."""

import contextlib
import re
from pathlib import Path

import pytest
from kafka import KafkaProducer

from streamdedup.wire.formats.protobuf import PROTOC_BYTES
from tests.daemons import PATIENT
from tests.deployed import resources
from tests.made_corpus import a_corpus
from tests.servers import DEADLINE_S

LIMIT = resources()["StatefulSet", "streamdedup"]["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]
#: A value of 59 MiB, which takes some kilobytes when compressed. Python needs four bytes for each character of the text
#: that begins with one beyond the first 65,536.
WORDS = "harbour lamp " * (59 * 2**20 // 13)
VALUES = {"text": f'{{"text": "{WORDS}"}}', "wide text": f'{{"text": "\U0001f600{WORDS}"}}', "no JSON": WORDS}


def peak_bytes(pid):
    return 1024 * int(re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(encoding="ascii"))[1])


@pytest.mark.parametrize("kind", VALUES)
def test_records_of_sixty_megabytes_in_a_backlog_stay_below_the_shipped_limit(install, kind):
    installation = install(1, batch_records=500)
    corpus = a_corpus(67, 3_000)
    installation.send(corpus)
    options = {"compression_type": "zstd", "max_request_size": 2**30}
    with contextlib.closing(KafkaProducer(bootstrap_servers=installation.kafka.split(","), **options)) as producer:
        for _ in range(4):
            producer.send(installation.topic, key=b"k", value=VALUES[kind].encode()).get(DEADLINE_S)
    installation.send(corpus[:600])
    with installation.daemon(**PATIENT) as daemon:
        installation.wait_committed(3_604)
        peak = peak_bytes(daemon.process.pid)
        assert daemon.stop() == 0
    assert len(installation.published(f"{installation.duplicates}.dlq")) == 4
    assert LIMIT["memory"].endswith("Mi")
    assert peak + PROTOC_BYTES < int(LIMIT["memory"].removesuffix("Mi")) * 2**20
