"""``streamdedup index prepare``: new parameters without a pause, under a stream of documents."""

import random
import threading
from contextlib import contextmanager

import pytest

from tests.daemons import PATIENT, Installation, wait_no_members

pytestmark = pytest.mark.long

WORDS = [f"word{at}" for at in range(3_000)]


class Stream:
    """Texts of 30 words, each of which comes twice, 2 to 60 documents apart, sent in the background."""

    def __init__(self, installation: Installation, seed: int = 1) -> None:
        self._installation = installation
        self._random = random.Random(seed)
        self._stopped = threading.Event()
        self._waiting: list[tuple[int, str, str]] = []
        self._count = 0
        #: Expected pairs.
        self.pairs: set[tuple[str, str]] = set()

    def batch(self, count: int) -> list[tuple[str, str]]:
        """Return the next documents (id, text)."""
        documents = []
        for _ in range(count):
            self._count += 1
            number = f"{self._count:06d}"
            if self._waiting and self._waiting[0][0] <= self._count:
                _, first, text = self._waiting.pop(0)
                self.pairs.add((first, number))
            else:
                text = " ".join(self._random.choices(WORDS, k=30))
                self._waiting.append((self._count + self._random.randint(2, 60), number, text))
                self._waiting.sort()
            documents.append((number, text))
        return documents

    @contextmanager
    def flowing(self):
        """Send documents until the end of the context."""

        def send() -> None:
            while not self._stopped.is_set():
                self._installation.send(self.batch(20))
                self._stopped.wait(0.1)

        sender = threading.Thread(target=send)
        sender.start()
        try:
            yield
        finally:
            self._stopped.set()
            sender.join()

    def finish(self) -> int:
        """Send the second one of each pair; return the number of all documents."""
        documents = []
        for _, first, text in self._waiting:
            self._count += 1
            self.pairs.add((first, f"{self._count:06d}"))
            documents.append((f"{self._count:06d}", text))
        self._waiting.clear()
        self._installation.send(documents)
        return self._count


@pytest.fixture
def installation(install):
    return install(2, threshold=0.9)


#: Thresholds, shingles, bands and seed change.
CHANGES = {
    "redis.key_prefix": "next",
    "profiles.articles.threshold": "0.7",
    "profiles.articles.recall_from": "0.7",
    "profiles.articles.shingle_size": "3",
    "profiles.articles.seed": "7",
}
#: The same as options.
CHANGE_OPTIONS = [word for item in CHANGES.items() for word in ("--set", "=".join(item))]


def test_parameters_change_without_a_pair_lost_or_doubled_while_documents_flow(installation, index):
    stream = Stream(installation)
    installation.send(stream.batch(400))
    with stream.flowing():
        with installation.daemon("old", **PATIENT) as old:
            installation.wait_committed(400)
            prepared = index("prepare", "--config", installation.config, *CHANGE_OPTIONS)
            assert prepared.returncode == 0, prepared.stderr
            assert "Now stop the daemons of the group" in prepared.stdout
            with installation.daemon("new", **PATIENT, **CHANGES) as new:
                waiting = new.wait_event("waiting")
                while "have another index, by their redis.key_prefix" not in waiting["reason"]:
                    waiting = new.wait_event("waiting")
                assert waiting["what"] == "the group"
                assert "streamdedup-" in waiting["reason"]
                assert new.get("/readyz") == (503, "waiting for the group\n")
                assert old.stop() == 0
                new.wait_ready()
                (begun,) = new.events("index_rebuild_begun")
                assert begun["gap"]
                assert new.events("index_rebuilt")[-1]["kind"] == "switch"
                assert 'index_rebuilds_total{kind="switch",profile="articles"} 1.0' in new.get("/metrics")[1]
                assert new.metric("streamdedup_index_lost_timestamp_seconds") == 0
                assert new.stop() == 0
        wait_no_members(installation.kafka, installation.group)
    with installation.running("last", **PATIENT, **CHANGES):
        installation.wait_committed(stream.finish())
        # The old index stays until it is dropped, which leaves the new one and its daemons alone.
        refused = index("drop", "--yes", "--config", installation.config, *CHANGE_OPTIONS)
        assert "are running" in refused.stderr
        assert index("drop", "--yes", "--config", installation.config).returncode == 0
        running = index("prepare", "--config", installation.config, *CHANGE_OPTIONS)
        assert "redis.key_prefix: daemons use the indexes of this prefix" in running.stderr
    seen = installation.pairs()
    assert sorted(stream.pairs) == seen
    assert sorted(set(seen)) == seen
    status = index("status", "--config", installation.config, *CHANGE_OPTIONS)
    assert "fits the settings" in status.stdout
