"""Comparisons with the texts of records on a real Kafka, by the installed command."""

import contextlib
import json
import time

import pytest
from kafka import KafkaAdminClient
from kafka.structs import TopicPartition

from streamdedup import indexes
from streamdedup.detection.detector import Detector
from streamdedup.position import Partition, Position
from streamdedup.settings import Settings
from streamdedup.wire import Decoder
from tests.servers import create_topics, produce, wait_until
from tests.serving import ServeProcess

TEXT = "amber birch cedar delta ember fjord grove heath"
DOCUMENTS = [("a", TEXT), ("b", TEXT.replace("cedar", "cactus") + " iris"), ("c", "kelp lime moss nettle oak")]
COMPARE = "/v1/profiles/articles/compare"


def values_of(documents) -> list[bytes]:
    return [
        json.dumps({"nr": document_id, "title": "On trees", "body": text}).encode() for document_id, text in documents
    ]


@pytest.fixture
def topic(kafka, new_topic):
    """A topic with documents whose fields have names of their own."""
    name = new_topic("articles")
    produce(kafka, name, values_of(DOCUMENTS))
    return name


@pytest.fixture
def config(kafka, topic, tmp_path, redis_url, redis_client):
    """Settings of an index that has the documents of the topic."""
    path = tmp_path / "streamdedup.toml"
    path.write_text(
        f'[kafka]\nbootstrap_servers = "{kafka}"\n[redis]\nurl = "{redis_url}"\n[profiles.articles]\n'
        f'topics = ["{topic}"]\nshingle_size = 2\nthreshold = 0.4\nid_field = "nr"\ntext_fields = ["title", "body"]\n',
        encoding="utf-8",
    )
    settings = Settings.load(path, {}, {})
    profile = settings.profiles["articles"]
    with indexes.connect_backend(settings) as backend:
        index = backend.index("articles")
        index.open(profile.fingerprint())
        fence = index.fence(Partition(topic, 0), 1, 0)
        decoder = Decoder(id_field="nr", text_fields=["title", "body"])
        now_ms = int(time.time() * 1000)
        documents = [
            decoder.decode(Position(topic, 0, offset), now_ms, None, value)
            for offset, value in enumerate(values_of(DOCUMENTS))
        ]
        detector = Detector(indexes.detector_options("articles", profile), index)
        detector.index(detector.prepare(documents), {Partition(topic, 0): fence})
    return path


def compare(service, a="a", b="b"):
    status, _, body = service.request("GET", f"{COMPARE}?a={a}&b={b}")
    assert status == 200, body
    return body


def in_time(ask):
    """Ask until Kafka has answered within three seconds, in which a busy machine may not even connect."""

    def answered():
        body = ask()
        late = (body["texts_missing"] or "").startswith(("Kafka did not answer", "Kafka cannot be read"))
        return None if late else body

    return wait_until(answered, what="an answer of Kafka in time")


def test_the_texts_of_two_documents_are_aligned_until_kafka_has_lost_one(kafka, topic, config, tmp_path):
    with ServeProcess(config, tmp_path) as service:
        expected = [
            ("equal", "On trees\namber birch ", "On trees\namber birch "),
            ("changed", "cedar", "cactus"),
            ("equal", " delta ember fjord grove heath", " delta ember fjord grove heath"),
            ("changed", "", " iris"),
        ]
        body = in_time(lambda: compare(service))
        assert [(each["kind"], each["a"], each["b"]) for each in body["segments"]] == expected
        assert body["texts_missing"] is None
        given = {"text": f"On trees\n{TEXT}", "id": "b"}
        posted = in_time(lambda: service.request("POST", COMPARE, given)[2])
        assert (posted["a"], posted["segments"]) == (None, body["segments"])
        assert posted["similarity"] == body["similarity"]
        with contextlib.closing(KafkaAdminClient(bootstrap_servers=kafka)) as admin:
            admin.delete_records({TopicPartition(topic, 0): 1})
        lost = in_time(lambda: compare(service))
        assert lost["segments"] is None
        assert lost["texts_missing"] == f"Kafka no longer has the record of a, {topic}:0:0: expired or compacted"
        assert lost["similarity"] == body["similarity"]
        assert in_time(lambda: compare(service, "b", "c"))["segments"] is not None
        assert service.stop() == 0
        log = service.log.read_text(encoding="utf-8")
    assert "amber" not in log
    assert [name for name in service.names() if not name.startswith("texts_")] == ["serving", "stopped"]


@pytest.mark.long
def test_the_records_of_a_topic_that_was_created_again_are_others(kafka, topic, config, tmp_path):
    with ServeProcess(config, tmp_path) as service:
        assert in_time(lambda: compare(service))["segments"]
        with contextlib.closing(KafkaAdminClient(bootstrap_servers=kafka)) as admin:
            admin.delete_topics([topic])
            wait_until(lambda: topic not in admin.list_topics(), what="the deletion")
        create_topics(kafka, [topic], 1)
        produce(kafka, topic, values_of([("x", "other words"), ("y", "more words"), ("c", DOCUMENTS[2][1])]))

        def reason() -> bool:
            missing = compare(service)["texts_missing"]
            return missing is not None and missing.startswith(f"the record of a, {topic}:0:0, was replaced")

        wait_until(reason, what="the record of the new topic")


def test_without_kafka_a_comparison_has_no_texts(config, tmp_path):
    with ServeProcess(config, tmp_path, **{"kafka.bootstrap_servers": "127.0.0.1:9"}) as service:
        for _ in range(2):
            body = compare(service)
            assert (body["segments"], "Kafka" in body["texts_missing"]) == (None, True)
            assert 0 < body["similarity"] < 1
        assert service.stop() == 0
        assert service.names() == ["serving", "texts_unavailable", "stopped"]
