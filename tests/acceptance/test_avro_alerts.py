"""Alerts in Avro through a real Kafka and a real registry, read by the client and the deserializer of Confluent."""

import itertools
import json
import re
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

from tests import servers
from tests.daemons import PATIENT, streamdedup, wait_no_members
from tests.made_corpus import a_corpus, the_expected
from tests.servers import wait_until
from tests.serving import ServeProcess
from tests.support.connect import ConnectWorker


@pytest.fixture(scope="module")
def registry():
    with servers.make_registry() as server:
        yield server


def in_avro(registry, **more):
    return {"kafka.alert_format": "avro", "schema_registry.url": registry.url, **PATIENT, **more}


def command(installation, settings, *arguments):
    sets = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
    return streamdedup(*arguments, "--config", installation.config, *sets)


def consumed(installation):
    """Return the values of all alerts, as librdkafka reads committed ones."""
    options = {"group.id": servers.fresh_name("outside"), "auto.offset.reset": "earliest", "enable.partition.eof": True}
    consumer = Consumer({"bootstrap.servers": installation.kafka, **options})
    consumer.subscribe([installation.duplicates])
    servers.wait_no_transaction(installation.kafka, [installation.duplicates])
    values = []
    while True:
        message = consumer.poll(servers.DEADLINE_S)
        if message.error() is not None:
            assert message.error().code() == KafkaError._PARTITION_EOF
            consumer.close()
            return values
        values.append(message.value())


def read(installation, registry, values):
    with SchemaRegistryClient({"url": registry.url}) as client:
        deserialize = AvroDeserializer(client)
        context = SerializationContext(installation.duplicates, MessageField.VALUE)
        return [deserialize(value, context) for value in values]


def pairs_in(alerts):
    pairs = [(alert["document"]["id"], match["id"]) for alert in alerts for match in alert["matches"]]
    return sorted(tuple(sorted(pair)) for pair in pairs)


def there_and_back(corpus):
    """Documents that change their texts, and change them back: their pairs come again if nothing has their claims."""
    return [*((name, f"{name} alone {name}") for name, _ in corpus), *corpus]


def test_an_outside_consumer_of_avro_reads_each_pair_once_although_the_daemon_is_killed(install, registry):
    installation, corpus = install(2), a_corpus(61, 400)
    settings = in_avro(registry) | {"kafka.session_timeout": "6s", "kafka.transaction_timeout": "9s"}
    with installation.daemon(**settings) as daemon:
        daemon.wait_ready()
        installation.send(corpus[:200])
        installation.wait_committed(100)
        daemon.kill()
        installation.send(corpus[200:])
        daemon.start()
        installation.wait_committed(400)
        assert daemon.stop() == 0
    alerts = read(installation, registry, consumed(installation))
    assert pairs_in(alerts) == the_expected(corpus)
    assert all(alert["first_match"] == alert["matches"][0] for alert in alerts)


def test_a_topic_that_changes_its_format_midway_is_read_by_tail_service_and_rebuild(install, registry, redis_client):
    installation, corpus = install(1), a_corpus(67, 150)
    settings, expected = in_avro(registry), the_expected(corpus)
    for number, form in enumerate(["json", "avro", "json"]):
        with installation.running(**settings | {"kafka.alert_format": form}):
            installation.send(corpus[50 * number : 50 * (number + 1)])
            installation.wait_committed(50 * (number + 1))
    values = consumed(installation)
    kinds = [kind for kind, _ in itertools.groupby(value[:1] for value in values)]
    assert kinds == [b"{", b"\0", b"{"]
    shown = command(installation, settings, "tail", "--json", "--from-beginning", "--limit", len(values))
    assert shown.returncode == 0, shown.stderr
    alerts = [json.loads(line) for line in shown.stdout.splitlines()]
    assert pairs_in(alerts) == expected
    with ServeProcess(installation.config, installation.folder, **settings) as service:
        with service.alerts(path="/v1/alerts?recent=1000") as blocks:
            events = (json.loads(block["data"]) for block in blocks if block.get("event") == "alert")
            assert list(itertools.islice(events, len(values))) == alerts
        assert service.stop() == 0
    redis_client.flushdb()
    wait_no_members(installation.kafka, installation.group)
    with installation.running(**settings) as daemon:
        installation.send(there_and_back(corpus[:60]))
        installation.wait_committed(270)
        assert daemon.events("index_rebuilt")
    again = [value for value in consumed(installation) if value not in values]
    assert again == []


def test_a_registry_that_is_away_at_the_start_and_before_a_rebuild_is_waited_for(install, tmp_path, redis_client):
    installation, corpus = install(1), a_corpus(71, 60)
    with servers.make_registry(tmp_path / "schemas") as registry:
        registry.kill()
        with installation.daemon(**in_avro(registry)) as daemon:
            wait_until(lambda: "the schema registry" in daemon.get("/readyz")[1], what="the wait at the start")
            registry.start()
            installation.send(corpus)
            installation.wait_committed(60)
            registry.kill()
            redis_client.flushdb()
            wait_until(lambda: "the schema registry" in daemon.get("/readyz")[1], what="the wait of the rebuild")
            assert 'streamdedup_waiting{what="schema_registry"} 1.0' in daemon.get("/metrics")[1]
            installation.send(there_and_back(corpus))
            assert not daemon.events("index_rebuild_begun")
            registry.start()
            installation.wait_committed(180)
            assert daemon.stop() == 0
            assert daemon.events("index_rebuilt")
        assert pairs_in(read(installation, registry, consumed(installation))) == the_expected(corpus)


def test_kafka_connect_makes_a_column_of_each_field_by_the_documented_transformations(install, registry):
    """Those of docs/messages.md."""
    installation, corpus = install(1), a_corpus(73, 60)
    page = Path(__file__).parents[2].joinpath("docs", "messages.md").read_text(encoding="utf-8")
    lines = page.partition("```properties\n")[2].partition("```")[0].splitlines()
    sink = {"topics": installation.duplicates} | dict(line.split("=", 1) for line in lines)
    with installation.running(**in_avro(registry)):
        installation.send(corpus)
        installation.wait_committed(60)
    alerts = read(installation, registry, consumed(installation))
    folder = installation.folder / "connect"
    with ConnectWorker(servers.cache(), folder, installation.kafka, registry, **sink) as worker:
        wait_until(lambda: worker.file.exists() and len(worker.file.read_text().splitlines()) == len(alerts))
    rows = [re.findall(r"(\w+)=([^,}]*)", line) for line in worker.file.read_text().splitlines()]
    names = [name for name, _ in rows[0]]
    assert {"document_id", "document_record_time", "first_match_pair", "first_match_similarity", "part"} <= set(names)
    assert not {"matches", "suppressed", "document", "first_match"} & set(names)
    pairs = [(row["document_id"], row["first_match_id"]) for row in map(dict, rows)]
    assert pairs == [(alert["document"]["id"], alert["first_match"]["id"]) for alert in alerts]
