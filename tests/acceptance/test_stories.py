"""The table of documents and stories of examples/stories.py after kills, deletions and updates."""

import contextlib
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import psycopg
import pytest
from kafka import KafkaProducer

from tests.daemons import DEADLINE_S
from tests.made_corpus import a_corpus, the_expected, twins
from tests.servers import wait_until

ROOT = Path(__file__).parents[2]
PROGRAM = ROOT / "examples" / "stories.py"
#: Milliseconds between two records.
STEP_MS = 1_000


class Sent:
    """What was sent, and ``documents``: text, time and source of each document that is left of it."""

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
        """Wait until all records and all alerts are in the table."""
        installation = self.installation
        installation.wait_committed(self.sent.count)
        end = max(record.offset for record in installation.published(installation.duplicates)) + 1

        def stored() -> bool:
            topics = (installation.topic, installation.duplicates)
            ends = [next_offset(self.database, topic) for topic in topics]
            return self.subscriber.runs() and ends == [self.sent.count, end]

        wait_until(stored, DEADLINE_S, "the table")

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
