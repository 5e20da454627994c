"""The stream of alerts on a real Kafka, by a process of the service: committed alerts once, aborted ones never."""

import contextlib
import json
import random
from itertools import islice

import pytest
from kafka import KafkaAdminClient, KafkaProducer
from kafka.admin import ACLOperation, ResourceType

from streamdedup.cli.serve import _open_fetcher
from streamdedup.errors import BrokerMisconfigured
from streamdedup.kafka.options import KafkaOptions
from streamdedup.kafka.protocols import Record
from streamdedup.kafka.reader import TopicReader
from streamdedup.position import Partition, Position
from streamdedup.wire.dead_letters import DaemonInfo, Failure, Stage, dead_letter
from tests.daemons import PROGRAM
from tests.event_stream import an_alert
from tests.guarded_kafka import GuardedKafka
from tests.servers import DEADLINE_S, fresh_name, wait_until
from tests.serving import STREAMING, ServeProcess, settings_file

TRANSACTIONS = 60
#: Alerts after which the client hangs up.
SESSIONS = 8


@pytest.fixture
def topic(new_topic):
    return new_topic(partitions=3)


@pytest.fixture
def start(kafka, topic, tmp_path):
    """Start processes of the service."""
    # Alerts need no Redis.
    config = settings_file(tmp_path, "redis://127.0.0.1:9", kafka)

    def started(number: int = 0, *, program=STREAMING, **settings) -> ServeProcess:
        folder = tmp_path / str(number)
        folder.mkdir()
        return ServeProcess(config, folder, program=program, **{"kafka.duplicates_topic": topic, **settings})

    return started


@pytest.fixture
def producer(kafka):
    # A transaction may be open while a process starts.
    options = {"transactional_id": fresh_name("alerts"), "retry_backoff_ms": 20, "transaction_timeout_ms": 600_000}
    with contextlib.closing(KafkaProducer(bootstrap_servers=kafka, **options)) as made:
        made.init_transactions()
        yield made


def send(producer, topic, *documents: str) -> None:
    """Send alerts to partitions by the number at the end of their names."""
    for document in documents:
        producer.send(topic, value=an_alert(document), partition=int(document.rpartition("-")[2]) % 3)
    producer.flush()


def transact(producer, topic, *documents: str, commit: bool = True) -> None:
    """Send alerts in a transaction, which is committed or aborted."""
    producer.begin_transaction()
    send(producer, topic, *documents)
    (producer.commit_transaction if commit else producer.abort_transaction)()


def documents_of(blocks, count: int) -> tuple[list[str], str | None]:
    """Return the documents of the next alerts, and the last id."""
    found = list(islice((block for block in blocks if "event" in block), count))
    assert [block["event"] for block in found] == ["alert"] * count, found
    return [json.loads(block["data"])["document"]["id"] for block in found], found[-1]["id"] if found else None


def test_alerts_come_once_after_the_commit_and_aborted_ones_never(start, topic, producer):
    with start() as service:
        producer.begin_transaction()
        send(producer, topic, "early-0")
        # The transaction is open when the stream begins.
        with service.alerts() as blocks:
            first = next(blocks)
            assert first["id"] == f"{topic}:0,0,0"
            send(producer, topic, "early-1")
            producer.commit_transaction()
            assert sorted(documents_of(blocks, 2)[0]) == ["early-0", "early-1"]
            transact(producer, topic, "aborted-0", "aborted-1", "aborted-2", commit=False)
            transact(producer, topic, "late-0", "late-1", "late-2")
            assert sorted(documents_of(blocks, 3)[0]) == ["late-0", "late-1", "late-2"]
            assert service.request("GET", "/livez")[0] == 200
            assert service.stop() == 0
            rest = [block for block in blocks if "event" in block]
        assert [(block["event"], block["data"]) for block in rest] == [("end", '{"reason":"stopping"}')]
    # Redis is away, which the sampler of the state has found.
    assert [name for name in service.names() if name != "index_unavailable"] == ["serving", "stopped"]


def test_a_client_that_comes_back_to_any_process_misses_and_doubles_nothing(start, topic, producer):
    order = random.Random(5)
    committed: list[str] = []

    def transactions(count: int) -> None:
        for _ in range(count):
            number = len(committed)
            documents = [f"d-{number + at}" for at in range(order.randint(1, 4))]
            if order.random() < 0.3:
                transact(producer, topic, *(f"aborted-{at}" for at in range(3)), commit=False)
            else:
                transact(producer, topic, *documents)
                committed.extend(documents)

    with start(0) as one, start(1) as other:
        with one.alerts() as blocks:
            last_id = next(blocks)["id"]
        seen: list[str] = []
        for session in range(SESSIONS):
            transactions(TRANSACTIONS // SESSIONS // 2)  # while no client is connected
            with (one, other)[session % 2].alerts(last_id) as blocks:
                transactions(TRANSACTIONS // SESSIONS // 2)
                documents, last = documents_of(blocks, order.randint(0, len(committed) - len(seen)))
                seen += documents
                last_id = last or last_id
        with other.alerts(last_id) as blocks:
            seen += documents_of(blocks, len(committed) - len(seen))[0]
            transact(producer, topic, "last-0")
            assert documents_of(blocks, 1)[0] == ["last-0"]
        assert len(committed) > TRANSACTIONS
        assert sorted(seen) == sorted(committed)


def test_new_partitions_end_a_stream_soon_and_their_alerts_come_after_it(kafka, start, topic, producer):
    with start() as service:
        with service.alerts() as blocks:
            next(blocks)
            with contextlib.closing(KafkaAdminClient(bootstrap_servers=kafka)) as admin:
                admin.create_partitions({topic: 5})
                # Before the producer, which asks for them once.
                wait_until(lambda: len(admin.describe_topics([topic])[0]["partitions"]) == 5, what="the partitions")
            producer.begin_transaction()
            producer.send(topic, value=an_alert("new"), partition=4).get(DEADLINE_S)
            producer.commit_transaction()
            end = next(block for block in blocks if "event" in block)
        assert (end["event"], end["data"]) == ("end", '{"reason":"alerts-unavailable"}')
        with service.alerts(end["id"]) as blocks:
            assert documents_of(blocks, 1)[0] == ["new"]


def test_dead_letters_come_after_the_commit_without_any_part_of_the_record(start, topic, new_topic, producer):
    letters = new_topic("letters")
    failed = Record(Position("articles", 1, 7), 0, b"amber", b"amber", (("amber", b"amber"),))
    failure = Failure(Stage.DECODE, "not_json", "DecodeError", "no JSON")
    made = dead_letter(letters, failed, failure, DaemonInfo("g", "i", "1"), time_ms=0)
    with start(**{"kafka.dead_letter_topic": letters}) as service, service.alerts(path="/v1/dead-letters") as blocks:
        assert next(blocks)["id"] == f"{letters}:0"
        for commit in (False, True):
            producer.begin_transaction()
            producer.send(letters, key=made.key, value=made.value, headers=list(made.headers))
            producer.flush()
            (producer.commit_transaction if commit else producer.abort_transaction)()
        block = next(block for block in blocks if "event" in block)
        # Behind the aborted letter and its marker, before the marker of the commit.
        assert (block["event"], block["id"]) == ("dead-letter", f"{letters}:3")
        assert json.loads(block["data"]) == {
            "topic": "articles",
            "partition": 1,
            "offset": 7,
            "reason": "not_json",
            "stage": "decode",
            "attempts": 1,
            "error": "no JSON",
            "time": "1970-01-01T00:00:00.000Z",
        }
        assert service.stop() == 0


def test_without_the_topic_or_kafka_there_is_a_problem_and_other_requests_are_answered(start):
    wrong = [
        {"kafka.duplicates_topic": "nowhere"},
        # With the usual time limits, because nothing will answer.
        {"kafka.bootstrap_servers": "127.0.0.1:9", "program": PROGRAM},
    ]
    for number, settings in enumerate(wrong):
        with start(number, **settings) as service:
            status, headers, problem = service.request("GET", "/v1/alerts")
            assert (status, int(headers["retry-after"]) > 0) == (503, True)
            assert problem["type"].rpartition(":")[2] == "alerts-unavailable"
            assert ("no such topic" if number == 0 else "Kafka does not answer") in problem["detail"]
            assert service.request("GET", "/livez")[0] == 200
            assert service.stop() == 0


@pytest.fixture
def guarded_kafka(tmp_path):
    """A Kafka whose user "subscriber" has no right yet."""
    made = GuardedKafka(tmp_path, {"subscriber": "only-for-tests"})
    with made.server:
        yield made


@pytest.mark.long
def test_the_right_to_read_a_topic_is_needed_and_enough_for_its_alerts_and_its_texts(guarded_kafka):
    guarded_kafka.create_topics("alerts")
    # The client's names of the options, but for one word.
    login = {name.replace("_plain_", "_"): value for name, value in guarded_kafka.login("subscriber").items()}
    place = {"bootstrap_servers": guarded_kafka.bootstrap_servers, "topics": ("alerts",)}
    options = KafkaOptions(group_id="unused", delivery="at-least-once", **place, **login)
    for opened in (TopicReader, _open_fetcher):
        with pytest.raises(BrokerMisconfigured, match="READ"):
            opened(options)
    guarded_kafka.grant("subscriber", [(ResourceType.TOPIC, "alerts", ACLOperation.READ)])
    producer = KafkaProducer(bootstrap_servers=guarded_kafka.bootstrap_servers, **guarded_kafka.login())
    with contextlib.closing(producer), TopicReader(options) as reader:
        reader.start_at(reader.ends)
        producer.send("alerts", value=an_alert("a")).get(60)
        records = wait_until(lambda: reader.poll(0.2).records, what="the alert")
        assert [record.value for record in records] == [an_alert("a")]
        assert reader.positions() == {Partition("alerts", 0): 1}
        assert not reader.has_new_partitions()
    with _open_fetcher(options) as fetcher:
        assert fetcher.fetch(Position("alerts", 0, 0)).value == an_alert("a")
