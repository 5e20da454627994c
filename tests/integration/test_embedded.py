"""The servers of the demo and of all other integration tests."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import redis
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from streamdedup.embedded import ManagedProcess, MissingToolError, MockBroker, RedisServer, ServerError, find_redis
from streamdedup.embedded.mock_broker import MOCK_API_VERSION
from tests.servers import DEADLINE_S, make_redis, wait_until
from tests.support.ports import free_ports
from tests.support.processes import pause

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
    pause(script)
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


PARENT = """
import os, signal, sys, time
from streamdedup.embedded import MockBroker, RedisServer
redis, broker = RedisServer(), MockBroker()
redis.start()
broker.start()
if {paused}:
    os.kill(redis.pid, signal.SIGSTOP)
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


def test_private_directory_is_removed_and_a_named_one_is_kept(tmp_path):
    with make_redis(None) as private, make_redis(None, directory=tmp_path / "kept") as named:
        assert private.directory.is_dir()
    assert not private.directory.exists()
    assert named.log_path.exists()


def test_an_unknown_redis_program_is_refused_with_advice():
    with pytest.raises(MissingToolError, match="no server program 'no-such-redis': install it"):
        find_redis("no-such-redis")


# --- Kafka


# --- the demo's broker


@pytest.fixture
def mock_broker():
    """Options of clients of a broker."""
    with MockBroker({"documents": 6}) as broker:
        yield {"bootstrap_servers": broker.bootstrap_servers, "api_version": MOCK_API_VERSION}


def test_mock_broker_makes_topics_with_the_partitions_asked_for_and_others_on_demand(mock_broker):
    with contextlib.closing(KafkaProducer(**mock_broker)) as client:
        assert client.partitions_for("documents") == set(range(6))
        assert client.partitions_for("other") == set(range(4))


def test_mock_broker_tells_no_offset_for_a_time(mock_broker):
    with contextlib.closing(KafkaProducer(**mock_broker)) as producer:
        producer.send("documents", b"value", partition=0).get(DEADLINE_S)
    with contextlib.closing(KafkaConsumer(**mock_broker)) as consumer:
        partition = TopicPartition("documents", 0)
        assert consumer.end_offsets([partition]) == {partition: 1}
        assert consumer.offsets_for_times({partition: 0}) == {partition: None}
