"""``streamdedup index status`` and ``index drop`` as an operator types them, and a daemon on a Redis Cluster."""

import functools
import json
import os
import pty
import signal
import subprocess
import sys

import pytest

from streamdedup.cli import assembly
from streamdedup.cli import main as cli
from streamdedup.errors import EXIT_INDEX_LOST
from streamdedup.kafka.options import KafkaOptions
from tests.daemons import PATIENT, wait_no_members
from tests.support.ports import free_ports

CORPUS = [(f"d{at}", f"text number {at // 2} of a corpus in which every text comes twice") for at in range(10)]
PAIRS = [(f"d{at}", f"d{at + 1}") for at in range(0, 10, 2)]


def index_with_answer(answer, *arguments):
    """Call the command from a terminal and answer its question."""
    command = [sys.executable, "-m", "streamdedup", "index", *map(str, arguments)]
    ours, theirs = pty.openpty()
    with os.fdopen(ours, "wb", buffering=0) as terminal:
        terminal.write(answer.encode() + b"\n")
        return subprocess.run(command, stdin=theirs, capture_output=True, text=True, timeout=900, check=False)


def index_interrupted_at_its_question(*arguments):
    """Call the command from a terminal, press Ctrl-C instead of an answer, and return the exit code and the rest."""
    command = [sys.executable, "-m", "streamdedup", "index", *map(str, arguments)]
    ours, theirs = pty.openpty()
    with (
        os.fdopen(ours, "wb", buffering=0),
        os.fdopen(theirs, "rb", buffering=0) as terminal,
        subprocess.Popen(command, stdin=terminal, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process,
    ):
        asked = b""
        while not asked.endswith(b"[y/N]:"):
            asked += process.stderr.read(1) or pytest.fail(f"ended without a question: {asked}")
        process.send_signal(signal.SIGINT)
        _, rest = process.communicate(timeout=900)
        return process.returncode, rest.decode()


@pytest.fixture
def installation(install):
    made = install(2, threshold=0.9)
    made.send(CORPUS)
    return made


def test_an_index_is_looked_at_deleted_and_missed(installation, redis_client, index):
    config = ("--config", installation.config)
    with installation.running(**PATIENT):
        installation.wait_committed(len(CORPUS))
        looked = index("status", "--json", *config)
        assert looked.returncode == 0, looked.stderr
        found = json.loads(looked.stdout)
        assert len(found["group"]["members"]) == 1
        refused = index("drop", "--yes", *config)
        assert refused.returncode == 1
        assert f"daemons of the group {installation.group} are running: streamdedup-" in refused.stderr
        refused = index("unfence", "--yes", *config)
        assert refused.returncode == 1
        assert f"daemons of the group {installation.group} are running: streamdedup-" in refused.stderr
        assert "--force" not in refused.stderr
    wait_no_members(installation.kafka, installation.group)

    found = json.loads(index("status", "--json", "--exact", *config).stdout)
    (profile,) = found["profiles"]
    assert found["group"]["members"] == []
    assert (profile["exists"], profile["differences"]) == (True, [])
    assert (profile["documents"], profile["exact_documents"]) == (10, 10)
    assert sum(row["mark"] for row in profile["partitions"]) == 10
    assert [row["committed"] - row["mark"] for row in profile["partitions"]] == [0] * len(profile["partitions"])
    assert {row["state"] for row in profile["partitions"]} == {None}
    assert {(row["end"] - row["committed"], row["lag"]) for row in profile["partitions"]} == {(0, 0)}
    more = [(f"more-{number}", "words that came later") for number in range(7)]
    installation.send(more)
    (later,) = json.loads(index("status", "--json", *config).stdout)["profiles"]
    assert sum(row["lag"] for row in later["partitions"]) == 7
    heading = next(line for line in index("status", *config).stdout.splitlines() if " committed " in line)
    assert heading.split() == ["partition", "mark", "committed", "end", "lag", "generation"]
    assert profile["keys"]["index entries"]["count"] == 10
    assert sum(kind["count"] for kind in profile["keys"].values()) == redis_client.dbsize()

    other = index("status", *config, "--set", "profiles.articles.shingle_size=7")
    assert "shingle_size is" in other.stdout
    assert "does not fit the settings" in other.stdout

    declined = index_with_answer("n", "drop", *config)
    assert declined.returncode == 1
    assert "Delete the index of articles (about 10 documents)" in declined.stderr
    assert redis_client.dbsize() > 0
    code, rest = index_interrupted_at_its_question("drop", *config)
    assert code == cli.EXIT_INTERRUPTED, rest
    assert "Abort" not in rest
    assert redis_client.dbsize() > 0
    done = index_with_answer("y", "drop", "--profile", "articles", *config)
    assert done.returncode == 0, done.stderr
    assert redis_client.dbsize() == 0
    assert "another kafka.group_id and kafka.duplicates_topic" in done.stdout
    assert "A daemon with these settings rebuilds the index" in done.stdout

    lost = index("status", *config)
    assert "the index does not know them: it was lost, has gone back" in lost.stdout
    assert lost.returncode == index("status", "--json", *config).returncode == EXIT_INDEX_LOST
    with installation.daemon(**{"service.on_index_lost": "fail"}) as daemon:
        assert daemon.wait() == 78


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["status", "--profile", "reviews"], 2, "--profile reviews: the settings have no such profile; they have art"),
        (["drop", "--profile", "reviews", "--yes"], 2, "they have articles"),
        (["drop"], 2, "--yes: required without a terminal"),
        (["unfence"], 2, "--yes: required without a terminal"),
        (["status", "--set", "redis.mode=cluster"], 2, "redis.nodes: is missing"),
        (["status", "--set", "redis.url=redis://127.0.0.1:{port}/0"], 1, "the store does not serve us now"),
        (["drop", "--yes", "--force", "--set", "redis.url=redis://127.0.0.1:{port}/0"], 1, "does not serve us now"),
        (["drop", "--yes", "--set", "kafka.bootstrap_servers=127.0.0.1:{port}"], 1, "if none does, add --force"),
        (["status", "--set", "kafka.bootstrap_servers=127.0.0.1:{port}"], 1, ""),
        (["drop", "--yes", "--force", "--set", "kafka.bootstrap_servers=127.0.0.1:{port}"], 0, ""),
        (["status", "--exakt"], 2, "--exakt"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_use_is_answered_in_words(index, monkeypatch, tmp_path, redis_client, redis_url, arguments, code, said):
    # What is not there is noticed sooner.
    monkeypatch.setattr(assembly, "KafkaOptions", functools.partial(KafkaOptions, connect_timeout_s=2.0))
    config = tmp_path / "streamdedup.toml"
    (port,) = free_ports()
    config.write_text(
        f'[kafka]\nbootstrap_servers = "127.0.0.1:{port}"\n[redis]\nurl = "{redis_url}"\n'
        '[profiles.articles]\ntopics = ["articles"]\n',
        encoding="utf-8",
    )
    done = index(*(word.format(port=port) for word in arguments), "--config", config)
    assert done.returncode == code, done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert ("unknown: " in done.stdout) is ("status" in arguments and "kafka" in arguments[-1])


def test_a_daemon_works_on_a_cluster_as_on_one_server(installation, cluster_of_redis, index):
    nodes = ", ".join(f'"{host}:{port}"' for host, port in cluster_of_redis.addresses[:2])
    text = installation.config.read_text(encoding="utf-8")
    url = next(line for line in text.splitlines() if line.startswith("url ="))
    text = text.replace(url, f'mode = "cluster"\nnodes = [{nodes}]\nshards = 2')
    installation.config.write_text(text, encoding="utf-8")
    with installation.running() as daemon:
        installation.wait_committed(len(CORPUS))
        assert daemon.metric("streamdedup_store_used_bytes") > 0
    assert installation.pairs() == PAIRS
    wait_no_members(installation.kafka, installation.group)
    assert len(json.loads(index("status", "--json", "--config", installation.config).stdout)["store"]["masters"]) == 3
    done = index("drop", "--yes", "--config", installation.config)
    assert done.returncode == 0, done.stderr
    assert cluster_of_redis.all_keys() == []
