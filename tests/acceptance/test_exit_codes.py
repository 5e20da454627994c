"""Every exit code of the README's table, by the command or the daemon as it is run; wrong use, as a newcomer has it.

The codes 0, 2 and 78 of the daemon are those of ``test_daemon``.
"""

import contextlib
import itertools
import json
import shlex
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from streamdedup.cli.main import EXIT_INTERRUPTED
from streamdedup.errors import EXIT_FAILED, EXIT_FATAL, EXIT_FORCED, EXIT_OK, EXIT_STALLED, EXIT_USAGE
from tests import servers
from tests.daemons import Daemon, streamdedup
from tests.support.processes import pause, resume

#: Settings under which a call to a store that is frozen outlasts everything else.
PATIENT = {"redis.timeout": "1m"}


class TimelessDaemon(Daemon):
    """A daemon that tells when it has taken a first signal, acts on any later one, and may take any time to end."""

    def program(self) -> list[str]:
        text = (
            "import os, sys\n"
            "from streamdedup.cli.main import main\n"
            "from streamdedup.daemon import shutdown\n"
            "shutdown.SAME_REQUEST_S = 0.0\n"
            "shutdown.StopTimer.begin = lambda self: os.write(2, b'asked to stop\\n')\n"
            "main(sys.argv[1:])\n"
        )
        return [sys.executable, "-c", text]


@pytest.fixture
def stuck(install, start_redis):
    """Run a daemon up to the moment when its store is frozen and it waits for an answer."""
    installation, redis, numbers = install(1), start_redis(), itertools.count()

    @contextlib.contextmanager
    def run(kind=Daemon):
        resume(redis)
        with kind(installation, "a", PATIENT | {"redis.url": redis.url}) as daemon:
            daemon.wait_ready()
            pause(redis)
            documents = [(f"d{next(numbers)}", "some text of a few words")]
            installation.send(documents)
            servers.wait_until(
                lambda: daemon.metric("streamdedup_loop_age_seconds") > 1, what="a loop that stands still"
            )
            yield daemon

    return run


@pytest.mark.long
def test_a_daemon_that_is_stuck_ends_with_the_code_of_what_ended_it(stuck, lift_stop_limit):
    with stuck() as daemon:
        assert daemon.stop() == EXIT_FORCED
        assert "stopping took longer than 8 s" in daemon.log.read_text()
    with stuck(TimelessDaemon) as daemon:
        daemon.signal(signal.SIGTERM)
        servers.wait_until(lambda: "asked to stop" in daemon.log.read_text(), what="the first signal to be taken")
        daemon.signal(signal.SIGINT)
        assert daemon.wait() == EXIT_INTERRUPTED


def test_a_loop_that_makes_no_step_ends_the_daemon_with_the_code_of_the_watchdog(install):
    program = (
        "import sys, threading\n"
        "from streamdedup.cli.main import main\n"
        "from streamdedup.daemon.loop import Loop\n"
        "from streamdedup.settings import Settings\n"
        "Settings.watchdog_s = 5.0\n"
        "Loop._turn = lambda self: threading.Event().wait()\n"
        "main(sys.argv[1:])\n"
    )
    command = [sys.executable, "-c", program, "run", "--config", str(install(1).config)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == EXIT_STALLED, done.stderr
    last = json.loads(done.stderr.splitlines()[-1])
    assert (last["event"], last["exit_code"]) == ("fatal", EXIT_STALLED)
    assert last["reason"].startswith("no progress for 5 s")
    (calls,) = [calls for name, calls in last["threads"].items() if name.startswith("MainThread ")]
    assert [call for call in calls if call.endswith(" in run_daemon")]


@pytest.mark.long
def test_a_server_that_is_away_is_named_by_every_command_that_needs_it(install):
    config = ("--config", install(1).config, "--set", "kafka.bootstrap_servers=127.0.0.1:9")
    topic = ("--set", "profiles.articles.topics=articles", "--topic", "articles")
    commands = [
        ("tail", *config),
        ("produce", "-", *config, *topic),
        ("dlq", "inspect", *config),
        ("dlq", "replay", "--yes", *config),
        ("topics", "create", *config),
        ("index", "unfence", "--yes", *config),
    ]
    with ThreadPoolExecutor(len(commands)) as threads:
        for done in threads.map(lambda arguments: streamdedup(*arguments), commands):
            assert (done.returncode, done.stdout) == (EXIT_FAILED, ""), done.args
            assert done.stderr.startswith("streamdedup: cannot connect to Kafka at 127.0.0.1:9 "), done.args
            assert len(done.stderr.splitlines()) == 1, done.stderr


def test_a_topic_that_is_missing_is_named_with_the_command_that_creates_it(install):
    config = ("--config", install(1).config, "--set", "kafka.duplicates_topic=nowhere")
    other = ("--set", "profiles.articles.topics=nowhere.in", "--topic", "nowhere.in")
    for arguments in (
        ("tail", *config),
        ("dlq", "inspect", *config),
        ("dlq", "replay", "--yes", *config),
        ("produce", "-", *config, *other),
    ):
        done = streamdedup(*arguments, text='{"text": "x"}\n')
        assert (done.returncode, done.stdout) == (EXIT_FATAL, "")
        assert done.stderr.startswith("streamdedup: no such topic: nowhere")
        sets = shlex.join(word for word in map(str, arguments) if "=" in word or word == "--set")
        assert done.stderr.endswith(f"create with: streamdedup topics create --config {config[1]} {sets}\n")


def test_a_foreign_topic_that_is_missing_is_named_without_a_command_that_would_not_create_it(install):
    done = streamdedup("dlq", "inspect", "--config", install(1).config, "--topic", "nosuch")
    assert (done.returncode, done.stdout) == (EXIT_FATAL, "")
    assert done.stderr == "streamdedup: no such topic: nosuch\n"


def test_empty_topics_and_files_are_nothing_wrong(install, tmp_path):
    config = ("--config", install(1).config)
    (tmp_path / "empty.jsonl").touch()
    for arguments, text in (
        (("dlq", "inspect", *config), "no dead letters"),
        (("dlq", "replay", "--yes", *config), "replayed: 0 dead letters"),
        (("scan", tmp_path / "empty.jsonl"), "0 documents"),
    ):
        done = streamdedup(*arguments)
        assert done.returncode == EXIT_OK, done.stderr
        assert text in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([], "Usage: "),
        (["dlq"], "Usage: "),
        (["dlq", "inspect"], "no settings file"),
        (["dlq", "replay", "--config", "nowhere.toml"], "nowhere.toml"),
        (["dlq", "inspect", "--code", "none"], "--code"),
        (["produce", "x.jsonl"], "--topic"),
        (["produce", "x.jsonl", "--topic", "t", "--limit", "0"], "--limit"),
        (["produce", "x.jsonl", "--topic", "t", "--config", "nowhere.toml"], "nowhere.toml"),
        (["run"], "kafka.bootstrap_servers"),
        (["tail", "--config", "nowhere.toml"], "nowhere.toml"),
        (["flight"], "flight"),
        (["scan"], "files"),
        (["scan", "x.jsonl", "--format", "xml"], "tsv-unquoted"),
        (["scan", "-", "--threshold", "1.5"], "profiles.articles.threshold"),
        (["scan", "-", "--unit", "sentence"], "profiles.articles.shingle_unit"),
        (["scan", "-", "--profile", "nothing"], "articles, reviews"),
        (["demo", "--pace", "-1"], "--pace"),
        (["topics", "create", "--partitions", "0"], "--partitions"),
        (["topics", "create", "--partitions", str(2**31)], "--partitions"),
        (["topics", "create", "--replication", str(2**15)], "--replication"),
        (["schema", "foo"], "dead-letter"),
        (["config", "check", "--set", "x"], "KEY=VALUE"),
    ],
)
def test_wrong_use_is_answered_in_words(arguments, text):
    done = streamdedup(*arguments)
    assert done.returncode == EXIT_USAGE
    assert text in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
