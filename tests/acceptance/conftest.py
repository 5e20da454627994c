"""Installations of the daemon for one test: topics, a group, a settings file."""

import contextlib
import functools
import io
import subprocess
import sys

import pytest

from streamdedup.cli import assembly
from streamdedup.cli import main as cli
from streamdedup.kafka.options import KafkaOptions
from tests import canaries, servers
from tests.daemons import Daemon, Installation
from tests.guarded import guarded


@pytest.fixture
def install(tmp_path, kafka, redis_client, redis_url, new_topic, new_group):
    def make(partitions: int = 3, **options) -> Installation:
        duplicates = new_topic("duplicates")
        servers.create_topics(kafka, [f"{duplicates}.dlq"])
        topic = new_topic("articles", partitions)
        return Installation(
            tmp_path, kafka=kafka, redis=redis_url, topic=topic, duplicates=duplicates, group=new_group(), **options
        )

    return make


@pytest.fixture
def lift_stop_limit(monkeypatch):
    """Start daemons with the time limit of a stop that they have in service, until the test calls this function."""
    monkeypatch.setattr(Daemon, "program", lambda self: [sys.executable, "-m", "streamdedup"])
    return monkeypatch.undo


@pytest.fixture
def install_on(tmp_path, redis_client, redis_url, new_group):
    """Install on a Kafka of the test's own."""

    def make(kafka) -> Installation:
        bootstrap = kafka.bootstrap_servers
        servers.create_topics(bootstrap, ["articles"], 2)
        servers.create_topics(bootstrap, ["duplicates", "duplicates.dlq"])
        return Installation(
            tmp_path, kafka=bootstrap, redis=redis_url, topic="articles", duplicates="duplicates", group=new_group()
        )

    return make


@pytest.fixture(scope="session")
def guarded_servers(tmp_path_factory, redis_program):
    """Servers that ask for passwords and grant rights one by one; no test may leave them changed."""
    with contextlib.ExitStack() as stack:
        yield stack.enter_context(guarded(tmp_path_factory.mktemp("guarded"), canaries.PASSWORDS, redis_program))


@pytest.fixture
def index(capsys, monkeypatch):
    """Call ``streamdedup index`` in this process, without a terminal."""
    monkeypatch.setattr(assembly, "KafkaOptions", functools.partial(KafkaOptions, connect_timeout_s=60.0))
    monkeypatch.setattr(sys, "stdin", io.StringIO())

    def call(*arguments):
        with pytest.raises(SystemExit) as ended:
            cli.main(["index", *map(str, arguments)])
        captured = capsys.readouterr()
        return subprocess.CompletedProcess(arguments, ended.value.code or 0, captured.out, captured.err)

    return call
