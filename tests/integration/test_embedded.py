"""The servers of the demo and of all other integration tests."""

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import redis
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import OffsetOutOfRangeError

from streamdedup.embedded import (
    MOCK_API_VERSION,
    ManagedProcess,
    MissingToolError,
    MockBroker,
    RedisServer,
    ServerError,
    find_redis,
    free_ports,
    ports,
)
from streamdedup.testing.kafka import KafkaServer, count_brokers
from tests.servers import (
    DEADLINE_S,
    PERSISTENT,
    committed_offsets,
    create_topics,
    fresh_name,
    make_redis,
    produce,
    read_topic,
    wait_until,
)

linux_only = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")

StartRedis = Callable[..., RedisServer]


class Script(ManagedProcess):
    """A Python program given as text, in the place of a server; ready when it has made the file ``ready``."""

    def __init__(self, text: str, directory: Path) -> None:
        super().__init__("script", directory)
        self.text = text

    def command(self) -> list[str]:
        return [sys.executable, "-c", self.text]

    def is_ready(self) -> bool:
        return (self.directory / "ready").exists()


def is_alive(pid: int) -> bool:
    """Tell whether the process exists and is more than an entry that its parent has not collected."""
    try:
        return state_of(pid) != "Z"
    except (FileNotFoundError, ProcessLookupError):  # there was none, or it went between opening and reading
        return False


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


# --- processes


def test_a_server_that_ends_while_starting_is_reported_with_the_end_of_its_log(tmp_path):
    script = Script("import sys; print('one'); sys.exit('the disk is full')", tmp_path)
    with pytest.raises(ServerError, match=r"ended with code 1 while starting(?s:.*)the disk is full"):
        script.start()
    assert not script.is_running()


def test_a_server_that_never_answers_is_killed_after_its_deadline(tmp_path):
    script = Script("import time; time.sleep(600)", tmp_path)
    with pytest.raises(ServerError, match=r"did not answer within 0\.2 s"):
        script.start(deadline_s=0.2)
    assert not script.is_running()


def test_a_program_that_does_not_exist_is_reported(tmp_path):
    class Missing(Script):
        def command(self) -> list[str]:
            return ["/nowhere/to-be-found"]

    with pytest.raises(ServerError, match=r"could not be started(?s:.*)/nowhere/to-be-found"):
        Missing("", tmp_path).start()


def test_an_error_quotes_only_the_log_of_the_last_run(tmp_path):
    script = Script("import sys; sys.exit('first')", tmp_path)
    with pytest.raises(ServerError, match="first"):
        script.start()
    script.text = "import sys; sys.exit('second')"
    with pytest.raises(ServerError, match="second") as raised:
        script.start()
    assert "first" not in str(raised.value)
    assert "first" in script.log_path.read_text()


def test_a_server_that_ignores_sigterm_is_killed_after_the_deadline(tmp_path):
    text = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); open('ready', 'w').close(); signal.pause()"
    script = Script(text, tmp_path)
    script.start()
    script.stop(deadline_s=0.2)
    assert script.exit_code == 128 + signal.SIGKILL


def test_a_paused_server_can_be_stopped(tmp_path):
    script = Script("import signal; open('ready', 'w').close(); signal.pause()", tmp_path)
    script.start()
    script.pause()
    script.stop()
    assert script.exit_code == 128 + signal.SIGTERM


def test_the_end_of_the_thread_that_started_a_server_does_not_end_the_server(start_redis):
    started = []
    thread = threading.Thread(target=lambda: started.append(start_redis()))
    thread.start()
    thread.join()
    # A second server, started and answered in between, gives a signal sent at the thread's end time to arrive.
    start_redis()
    with redis.Redis.from_url(started[0].url) as client:
        assert client.ping()


def test_ports_are_chosen_again_when_another_process_was_faster(monkeypatch):
    with socket.socket() as squatter, contextlib.closing(make_redis(None)) as server:
        squatter.bind(("127.0.0.1", 0))
        squatter.listen()
        offers = iter([[squatter.getsockname()[1]], free_ports()])
        monkeypatch.setattr("streamdedup.embedded.redis.free_ports", lambda: next(offers))
        # The squatter's port accepts connections, so only the answer to PING tells that it is not the server's.
        server.start()
        with redis.Redis.from_url(server.url) as client:
            assert client.ping()


def test_free_ports_are_distinct():
    assert len(set(free_ports(40))) == 40


def test_a_port_belongs_to_one_process_until_it_ends_although_nothing_listens_there(monkeypatch):
    first = random.randrange(10_000, 19_000)
    two_blocks = range(first, first + 20)
    monkeypatch.setattr(ports, "PORTS", two_blocks)
    monkeypatch.setattr(ports, "BLOCK_PORTS", 10)
    monkeypatch.setattr(ports, "_RESERVATIONS", ports._Reservations())
    script = f"""
        import time
        from streamdedup.embedded import ports
        ports.PORTS, ports.BLOCK_PORTS = {two_blocks}, 10
        print(*ports.free_ports(4), flush=True)
        time.sleep(600)
    """
    command = [sys.executable, "-c", textwrap.dedent(script)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as other:
        try:
            taken = {int(port) for port in other.stdout.readline().split()}
            own = set(free_ports(9))
            with pytest.raises(ServerError, match=f"all ports from {first} to {first + 19} are in use or reserved"):
                free_ports()
        finally:
            other.kill()
    assert len(taken) == 4
    assert not taken & own
    assert taken <= set(free_ports(9))


PARENT = """
import sys, time
from streamdedup.embedded import MockBroker, RedisServer
redis, broker = RedisServer(), MockBroker()
redis.start()
broker.start()
if {paused}:
    redis.pause()
print(redis.pid, broker.pid, redis.directory, broker.directory, flush=True)
time.sleep(600)
"""


@linux_only
@pytest.mark.parametrize("paused", [False, True])
@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_no_server_outlives_the_program_that_started_it(ending, paused):
    program = [sys.executable, "-c", PARENT.format(paused=paused)]
    with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as parent:
        words = parent.stdout.readline().split()
        pids, folders = [int(pid) for pid in words[:2]], words[2:]
        assert len(folders) == 2
        assert all(is_alive(pid) for pid in pids)
        parent.send_signal(ending)
    wait_until(lambda: not any(is_alive(pid) for pid in pids), what="the end of the servers")
    wait_until(lambda: not any(Path(folder).exists() for folder in folders), what="the end of their folders")


@linux_only
def test_a_server_dies_with_its_keeper(start_redis):
    server = start_redis()
    pid = server.pid
    os.kill(server._keeper.pid, signal.SIGKILL)
    wait_until(lambda: not is_alive(pid), what="the end of the server")


@linux_only
def test_ctrl_c_in_the_terminal_reaches_the_parent_alone(start_redis):
    server = start_redis()
    assert os.getsid(server.pid) != os.getsid(0)
    assert os.getpgid(server.pid) != os.getpgid(0)


# --- Redis


def test_redis_answers_on_loopback_only_and_refuses_rather_than_evicts(redis_server, redis_client):
    assert redis_server.url.startswith("redis://127.0.0.1:")
    assert redis_client.ping()
    assert redis_client.config_get("bind") == {"bind": "127.0.0.1"}
    assert redis_client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
    assert redis_client.config_get("save") == {"save": ""}


@pytest.mark.parametrize("end", ["kill", "stop"])
def test_redis_with_persistence_keeps_data_and_port_over_a_restart(start_redis, end):
    server = start_redis(options=PERSISTENT)
    url = server.url
    with redis.Redis.from_url(url) as client:
        client.mset({f"key{number}": number for number in range(1000)})
    getattr(server, end)()
    assert not server.is_running()
    server.start()
    assert server.url == url
    with redis.Redis.from_url(url) as client:
        assert client.dbsize() == 1000


def test_redis_without_persistence_is_empty_after_a_restart(start_redis):
    server = start_redis()
    with redis.Redis.from_url(server.url) as client:
        client.set("key", "value")
    server.kill()
    server.start()
    with redis.Redis.from_url(server.url) as client:
        assert client.dbsize() == 0


def test_paused_redis_keeps_connections_and_answers_nothing_until_resumed(start_redis):
    server = start_redis()
    with socket.create_connection(("127.0.0.1", server.port), timeout=DEADLINE_S) as connection:
        server.pause()
        connection.settimeout(0.3)
        connection.sendall(b"PING\r\n")
        with pytest.raises(TimeoutError):
            connection.recv(10)
        server.resume()
        connection.settimeout(DEADLINE_S)
        assert connection.recv(10) == b"+PONG\r\n"


def test_redis_beyond_its_memory_refuses_writes_and_keeps_its_data(start_redis):
    server = start_redis(options={"maxmemory": "16000000"})
    with redis.Redis.from_url(server.url) as client:

        def fill() -> None:
            for number in range(100):
                client.set(f"key{number}", b"x" * 1_000_000)

        with pytest.raises(redis.exceptions.OutOfMemoryError):
            fill()
        count = client.dbsize()
        assert 5 < count < 16
        assert all(client.exists(f"key{number}") for number in range(count))


def test_private_directory_is_removed_and_a_named_one_is_kept(tmp_path):
    with make_redis(None) as private, make_redis(None, directory=tmp_path / "kept") as named:
        assert private.directory.is_dir()
    assert not private.directory.exists()
    assert named.log_path.exists()


def test_an_unknown_redis_program_is_refused_with_advice():
    with pytest.raises(MissingToolError, match="no server program 'no-such-redis': install it"):
        find_redis("no-such-redis")


# --- Kafka


def test_kafka_takes_records_and_gives_them_back_in_order(kafka, new_topic):
    topic = new_topic(partitions=3)
    for partition in range(3):
        produce(kafka, topic, [f"{partition}/{number}".encode() for number in range(100)], partition=partition)
    values = [record.value.decode() for record in read_topic(kafka, topic)]
    assert values == [f"{partition}/{number}" for partition in range(3) for number in range(100)]


def test_an_aborted_transaction_is_invisible_to_read_committed_alone(kafka, new_topic):
    topic = new_topic()
    options = {"bootstrap_servers": kafka, "retry_backoff_ms": 20}
    with contextlib.closing(KafkaProducer(transactional_id=fresh_name("writer"), **options)) as producer:
        producer.init_transactions()
        for value, commit in [(b"kept", True), (b"dropped", False), (b"kept too", True), (b"dropped last", False)]:
            producer.begin_transaction()
            producer.send(topic, value).get(DEADLINE_S)
            (producer.commit_transaction if commit else producer.abort_transaction)()
    assert [record.value for record in read_topic(kafka, topic)] == [b"kept", b"kept too"]
    everything = read_topic(kafka, topic, isolation="read_uncommitted")
    assert [record.value for record in everything] == [b"kept", b"dropped", b"kept too", b"dropped last"]


def test_an_open_transaction_does_not_keep_a_reader_waiting(kafka, new_topic):
    topic = new_topic()
    produce(kafka, topic, [b"before"])
    options = {"bootstrap_servers": kafka, "retry_backoff_ms": 20}
    with contextlib.closing(KafkaProducer(transactional_id=fresh_name("writer"), **options)) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"pending").get(DEADLINE_S)
        assert [record.value for record in read_topic(kafka, topic)] == [b"before"]
        producer.abort_transaction()


def test_committed_offsets_of_a_group_can_be_asked_for(kafka, new_topic, new_group):
    topic, group = new_topic(), new_group()
    produce(kafka, topic, [b"a", b"b"])
    options = {"group_id": group, "auto_offset_reset": "earliest", "enable_auto_commit": False}
    with contextlib.closing(KafkaConsumer(topic, bootstrap_servers=kafka, **options)) as consumer:
        wait_until(lambda: consumer.poll(timeout_ms=200), what="records")
        consumer.commit()
    assert committed_offsets(kafka, group) == {(topic, 0): 2}


@pytest.mark.long
def test_a_killed_broker_comes_back_on_its_port_with_its_data(start_kafka: Callable[..., KafkaServer]):
    server = start_kafka()
    bootstrap = server.bootstrap_servers
    create_topics(bootstrap, ["topic"])
    produce(bootstrap, "topic", [b"before"])
    server.kill()
    assert count_brokers(bootstrap) == 0
    server.start()
    assert server.bootstrap_servers == bootstrap
    produce(bootstrap, "topic", [b"after"])
    assert [record.value for record in read_topic(bootstrap, "topic")] == [b"before", b"after"]
    server.stop()
    server.start()
    assert len(read_topic(bootstrap, "topic")) == 2


@pytest.mark.long
def test_three_brokers_do_without_one_of_them(start_kafka: Callable[..., KafkaServer]):
    server = start_kafka(broker_count=3)
    bootstrap = server.bootstrap_servers
    create_topics(bootstrap, ["topic"], partitions=6)
    produce(bootstrap, "topic", [b"%d" % number for number in range(600)])
    server.brokers[1].kill()
    wait_until(lambda: count_brokers(bootstrap) == 2, what="the cluster to miss the killed broker")
    produce(bootstrap, "topic", [b"%d" % number for number in range(600, 1200)])
    assert len(read_topic(bootstrap, "topic")) == 1200
    server.start()
    assert count_brokers(bootstrap) == 3
    server.brokers[2].pause()
    awake = [f"127.0.0.1:{broker.port}" for broker in server.brokers[:2]]
    wait_until(lambda: all(count_brokers(address) == 2 for address in awake), what="both to miss the paused broker")
    produce(",".join(awake), "topic", [b"paused"])
    server.brokers[2].resume()
    server.wait_ready()


def test_kafka_without_java_names_the_package_to_install(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingToolError, match="'java' was not found on the PATH: install Java 17"):
        KafkaServer(tmp_path, tmp_path)


# --- the demo's broker


@pytest.fixture
def mock_broker():
    with MockBroker({"documents": 6}) as broker:
        yield broker


def test_mock_broker_makes_topics_with_the_partitions_asked_for_and_others_on_demand(mock_broker):
    options = {"bootstrap_servers": mock_broker.bootstrap_servers, "api_version": MOCK_API_VERSION}
    with contextlib.closing(KafkaProducer(**options)) as client:
        assert client.partitions_for("documents") == set(range(6))
        assert client.partitions_for("other") == set(range(4))


def test_mock_broker_tells_no_offset_for_a_time(mock_broker):
    options = {"bootstrap_servers": mock_broker.bootstrap_servers, "api_version": MOCK_API_VERSION}
    with contextlib.closing(KafkaProducer(**options)) as producer:
        producer.send("documents", b"value", partition=0).get(DEADLINE_S)
    with contextlib.closing(KafkaConsumer(**options)) as consumer:
        partition = TopicPartition("documents", 0)
        assert consumer.end_offsets([partition]) == {partition: 1}
        assert consumer.offsets_for_times({partition: 0}) == {partition: None}


def test_mock_broker_carries_records_between_members_of_a_group(mock_broker):
    options = {"bootstrap_servers": mock_broker.bootstrap_servers, "api_version": MOCK_API_VERSION}
    with contextlib.closing(KafkaProducer(**options)) as producer:
        for number in range(100):
            producer.send("documents", b"%d" % number, key=b"%d" % number)
        producer.flush(DEADLINE_S)
    # A member that joins again is kept waiting for the session timeout.
    options |= {"session_timeout_ms": 3000, "heartbeat_interval_ms": 500, "auto_offset_reset": "earliest"}
    with contextlib.closing(KafkaConsumer(group_id="group", **options)) as consumer:
        # A leader that learns of the topic's partitions only after it has joined joins again, and kafka-python may then
        # wait for ever: this test is of the broker, so the partitions are known before.
        assert consumer.partitions_for_topic("documents") is not None
        consumer.subscribe(["documents"])
        values: list[bytes] = []

        def all_read() -> bool:
            for records in consumer.poll(timeout_ms=200).values():
                values.extend(record.value for record in records)
            return len(values) >= 100

        wait_until(all_read, what="all records")
    assert sorted(values, key=int) == [b"%d" % number for number in range(100)]


def test_mock_broker_keeps_the_last_five_megabytes_of_a_partition(mock_broker):
    options = {"bootstrap_servers": mock_broker.bootstrap_servers, "api_version": MOCK_API_VERSION}
    partition = TopicPartition("documents", 0)
    with (
        contextlib.closing(KafkaProducer(**options)) as producer,
        contextlib.closing(KafkaConsumer(auto_offset_reset="none", **options)) as consumer,
    ):
        consumer.assign([partition])
        consumer.seek(partition, 0)
        for _ in range(7_000):
            producer.send("documents", b"x" * 1000, partition=0)
        producer.flush(DEADLINE_S)
        first = consumer.beginning_offsets([partition])[partition]
        assert 1_500 < first < 2_500
        with pytest.raises(OffsetOutOfRangeError):
            wait_until(lambda: consumer.poll(timeout_ms=200), what="records")
