"""The table of documents and stories of examples/stories.py: kills, deletions, updates, and the recipe of the page."""

import contextlib
import os
import random
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import psycopg
import pytest
from kafka import KafkaProducer

from tests.daemons import DEADLINE_S, PATIENT
from tests.made_corpus import a_corpus, pairs_of, the_expected, twins
from tests.servers import wait_until

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "deployment.md").read_text(encoding="utf-8")
PROGRAM = ROOT / "examples" / "stories.py"
#: Milliseconds between two records.
STEP_MS = 1_000


class Sent:
    """What was sent, and the documents that are left of it.

    Attributes:
        documents: Text, time and source of each document.
        records: Keys, values and times that are not sent yet.
        count: All records.
    """

    def __init__(self) -> None:
        self.documents: dict[str, tuple[str, int, str | None]] = {}
        self.records: list[tuple[bytes, bytes | None, int]] = []
        self.count = 0
        self._begin_ms = time.time_ns() // 1_000_000 - 86_400_000

    def _add(self, identity: str, value: object) -> int:
        time_ms = self._begin_ms + self.count * STEP_MS
        encoded = value if value is None or isinstance(value, bytes) else msgspec.json.encode(value)
        self.records.append((identity.encode(), encoded, time_ms))
        self.count += 1
        return time_ms

    def upsert(self, identity: str, text: str, source: str | None = None) -> None:
        time_ms = self._add(identity, {"id": identity, "text": text, "source": source})
        before = self.documents.get(identity)
        kept_ms = before[1] if before and before[0] == text else time_ms
        self.documents[identity] = (text, kept_ms, source)

    def append(self, identity: str, text: str) -> None:
        self._add(identity, {"id": identity, "text": text, "op": "append"})
        before, time_ms, source = self.documents[identity]
        self.documents[identity] = (f"{before}\n{text}", time_ms, source)

    def delete(self, identity: str, *, tombstone: bool) -> None:
        self._add(identity, None if tombstone else {"id": identity, "op": "delete"})
        self.documents.pop(identity, None)

    def bad(self) -> None:
        self._add("bad", b"no JSON")

    def flush(self, installation) -> None:
        with contextlib.closing(
            KafkaProducer(bootstrap_servers=installation.kafka.split(","), linger_ms=5)
        ) as producer:
            for key, value, time_ms in self.records:
                producer.send(installation.topic, value, key=key, timestamp_ms=time_ms)
            producer.flush(DEADLINE_S)
        self.records.clear()

    def pairs(self) -> list[tuple[str, str]]:
        """Return the pairs of the documents that are left, by comparing all of them."""
        return the_expected([(identity, text) for identity, (text, _, _) in self.documents.items()])

    def stories(self) -> list[tuple[str, int, list[str] | None, int]]:
        """Return cluster, size, sources and first time of each story."""
        rank = {identity: (time_ms, identity) for identity, (_, time_ms, _) in self.documents.items()}
        earlier: dict[str, list[str]] = {}
        for a, b in self.pairs():
            first, second = sorted((a, b), key=rank.__getitem__)
            earlier.setdefault(second, []).append(first)
        members: dict[str, list[str]] = {}
        for identity in rank:
            cluster = identity
            while cluster in earlier:
                cluster = min(earlier[cluster], key=rank.__getitem__)
            members.setdefault(cluster, []).append(identity)
        found = []
        for cluster, names in members.items():
            sources = sorted({source for name in names if (source := self.documents[name][2])})
            found.append((cluster, len(names), sources or None, rank[cluster][0]))
        return sorted(story for story in found if story[1] > 1)


class Subscriber:
    """The program as a process."""

    def __init__(self, config: Path, address: str, **environ: str) -> None:
        self._command = [sys.executable, str(PROGRAM), str(config), address]
        self._environ = {**os.environ, **environ}
        self.log = config.with_name("stories.log")
        self.process: subprocess.Popen[bytes] | None = None

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.kill()

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(self._command, stdout=log, stderr=log, env=self._environ, cwd=ROOT)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def runs(self) -> bool:
        """Return True; fail with the log where the process has ended."""
        assert self.process.poll() is None, self.log.read_text(encoding="utf-8")
        return True


def query(database: psycopg.Connection, text: str) -> list[tuple]:
    """Return rows; none before the tables are there."""
    try:
        return database.execute(text).fetchall()
    except psycopg.errors.UndefinedTable:
        return []


def next_offset(database: psycopg.Connection, topic: str) -> int:
    """Sum of the stored offsets of a topic."""
    return sum(row[0] for row in query(database, f"SELECT next FROM offsets WHERE topic = '{topic}'"))


def wait_stored(installation, subscriber: Subscriber, database: psycopg.Connection, count: int) -> None:
    """Wait until a number of records and all alerts are in the table."""
    installation.wait_committed(count)
    end = max(record.offset for record in installation.published(installation.duplicates)) + 1

    def stored() -> bool:
        ends = (next_offset(database, installation.topic), next_offset(database, installation.duplicates))
        return subscriber.runs() and ends == (count, end)

    wait_until(stored, DEADLINE_S, "the table")


def content(database: psycopg.Connection) -> list[list[tuple]]:
    """Return the rows of all tables."""
    return [sorted(query(database, f"TABLE {table}")) for table in ("documents", "pairs", "offsets")]


@contextlib.contextmanager
def killed_in_a_transaction(
    subscriber: Subscriber, database: psycopg.Connection, address: str, table: str
) -> Iterator[None]:
    """Kill the subscriber in a transaction, which waits to change a table; the body sends records."""
    waiting = "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    with psycopg.connect(address) as holder:
        holder.execute(f"LOCK TABLE {table} IN SHARE MODE")
        yield
        wait_until(lambda: subscriber.runs() and query(database, waiting), DEADLINE_S, "a transaction that waits")
        committed = content(database)
        subscriber.kill()
    wait_until(lambda: not query(database, waiting), DEADLINE_S, "the end of the transaction")
    assert content(database) == committed


class Changes:
    """Random changes of documents, each of which has a few texts that are near to texts of others."""

    def __init__(self, sent: Sent) -> None:
        self._rng = random.Random(97)
        self._sent = sent
        texts = [text for _, text in a_corpus(97, 120)]
        self._texts = {f"doc-{number}": self._rng.sample(texts, 3) for number in range(100)}
        self._growing = iter(zip(*[iter(twins("grown", 60))] * 2, strict=True))

    def make(self, count: int) -> None:
        """Add so many changes, and documents that are continued until they are copies."""
        for _ in range(count):
            self._change()
        for _ in range(count // 20):
            (whole, text), (grown, _) = next(self._growing)
            words = text.split()
            self._sent.upsert(whole, text)
            for _ in range(self._rng.randint(1, 2)):
                self._sent.upsert(grown, " ".join(words[:4]))
                self._sent.append(grown, " ".join(words[4:6]))
                self._sent.append(grown, " ".join(words[6:]))
                if self._rng.random() < 0.3:
                    self._sent.delete(grown, tombstone=True)
                    self._sent.upsert(grown, text)

    def _change(self) -> None:
        rng, sent = self._rng, self._sent
        draw, identity = rng.random(), rng.choice(list(self._texts))
        if draw < 0.03:
            sent.bad()
        elif draw < 0.2:
            sent.delete(identity, tombstone=rng.random() < 0.5)
        elif draw < 0.3 and identity in sent.documents:
            sent.upsert(identity, sent.documents[identity][0], "again")
        else:
            sent.upsert(identity, rng.choice(self._texts[identity]), rng.choice([None, "s0", "s1", "s2"]))


class World:
    """An installation, its table, and what was sent."""

    def __init__(self, installation, address: str, database: psycopg.Connection) -> None:
        self.installation = installation
        self.database = database
        self.sent = Sent()
        self._changes = Changes(self.sent)
        self.subscriber = Subscriber(installation.config, address)
        self.daemon = installation.daemon(**{"kafka.session_timeout": "2s"})

    def send(self) -> None:
        self._changes.make(100)
        self.sent.flush(self.installation)

    @contextlib.contextmanager
    def progress(self, topic: str) -> Iterator[None]:
        """Wait at the end of the context until more of a topic is stored than at its beginning."""
        before = next_offset(self.database, topic)
        yield
        wait_until(lambda: self.subscriber.runs() and next_offset(self.database, topic) > before, what="progress")

    def wait_stored(self) -> None:
        wait_stored(self.installation, self.subscriber, self.database, self.sent.count)

    def verify(self) -> None:
        """Compare the table with a comparison of all documents."""
        pairs = sorted(tuple(sorted(row)) for row in query(self.database, "SELECT id, earlier FROM live_pairs"))
        assert pairs == self.sent.pairs()
        alerted = query(self.database, "SELECT count(*) FROM pairs")[0][0]
        assert 30 < len(pairs) < alerted - 30
        ms = "(extract(epoch FROM {}) * 1000)::bigint"
        documents = query(self.database, f"SELECT id, {ms.format('time')}, source FROM documents")
        assert sorted(documents) == sorted((name, at, source) for name, (_, at, source) in self.sent.documents.items())
        stories = query(self.database, f"SELECT cluster, size, sources, {ms.format('first')} FROM stories")
        assert sorted(stories, key=lambda story: story[0]) == self.sent.stories()


@pytest.fixture
def world(install, postgres):
    installation = install(3, batch_records=25)
    with psycopg.connect(postgres, autocommit=True) as database:
        made = World(installation, postgres, database)
        with made.daemon, made.subscriber:
            yield made
            assert made.daemon.stop() == 0


def test_the_table_is_an_exact_join_after_kills_deletions_and_updates(world):
    for topic in (world.installation.topic, world.installation.duplicates):
        with world.progress(topic):
            world.send()
        world.subscriber.kill()
        world.subscriber.start()
    for victims in ([world.daemon], [world.daemon, world.subscriber]):
        committed = world.installation.committed_count()
        world.send()
        world.installation.wait_committed(committed + 50)
        for victim in victims:
            victim.kill()
        for victim in victims:
            victim.start()
    world.wait_stored()
    world.verify()


def test_the_table_is_an_exact_join_after_kills_in_transactions_of_the_database(world, postgres):
    world.send()
    for table in ("documents", "pairs", "offsets"):
        world.wait_stored()
        with killed_in_a_transaction(world.subscriber, world.database, postgres, table):
            world.send()
        world.subscriber.start()
    world.wait_stored()
    world.verify()


def commands() -> list[list[str]]:
    """Return the commands of the section of the page."""
    section = re.search(r"^## From alerts to a table\n(.*?)^## ", PAGE, re.DOTALL | re.MULTILINE)[1]
    blocks = re.findall(r"^```bash\n(.*?)^```", section, re.DOTALL | re.MULTILINE)
    return [shlex.split(command) for block in blocks for command in re.split(r"\n(?=\S)", block.strip())]


def test_the_recipe_of_the_page(install, postgres_server):
    installation = install(1)
    environ = {"PGHOST": "127.0.0.1", "PGPORT": str(postgres_server.port), "PGUSER": "postgres"}

    def run(command: list[str]) -> str:
        done = subprocess.run(
            command, env={**os.environ, **environ}, cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    pip, createdb, (_, program, _, address), select, *cleaning = commands()
    assert ROOT / program == PROGRAM
    run([sys.executable, "-m", *pip])
    run(createdb)
    own = psycopg.connect(postgres_server.url, dbname="stories", autocommit=True)
    for name, days in (("new", 0), ("old", 70)):
        time_ms = time.time_ns() // 1_000_000 - days * 86_400_000
        installation.send(twins(name, 2), timestamp_ms=time_ms)
    subscriber = Subscriber(installation.config, address, **environ)
    with own, installation.running(**PATIENT), subscriber:
        wait_stored(installation, subscriber, own, 8)
        shown = run(select)
        assert re.findall(r"^ (\S+) +\| +2 \|", shown, re.MULTILINE) == [
            f"{n}-{i}-a" for n in ("new", "old") for i in "01"
        ]
        for command in cleaning:
            run(command)
        assert sorted(query(own, "SELECT least(id, other), greatest(id, other) FROM pairs")) == pairs_of("new", 2)
        assert query(own, "SELECT count(*) FROM documents") == [(4,)]
