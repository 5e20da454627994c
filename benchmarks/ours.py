"""The detector on a Redis server, put together as the daemon does, without Kafka."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from benchmarks.datasets import Text
from streamdedup.detection.detector import Detector
from streamdedup.detection.model import DetectionResult, Prepared
from streamdedup.index import contract as index_contract
from streamdedup.indexes import connect_backend, detector_options
from streamdedup.position import Partition, Position
from streamdedup.settings import Profile, Settings
from streamdedup.similarity.lsh import Banding
from streamdedup.wire import Document

#: Documents that are prepared and indexed at once: one chunk of the daemon.
BATCH_DOCUMENTS = 1_000
PROFILE = "articles"
PARTITION = Partition(PROFILE, 0)


class Index:
    """One empty index, and the detector that fills it."""

    def __init__(self, settings: Settings, store: index_contract.Index) -> None:
        profile = settings.profiles[PROFILE]
        self.detector = Detector(detector_options(PROFILE, profile), store)
        self._store = store
        store.open(profile.fingerprint())
        self._fence = store.fence(PARTITION, 1, 0)

    def prepare(self, documents: Sequence[Text], first_offset: int = 0) -> list[Prepared]:
        """Return the documents in batches, computed and not yet indexed; the first has the first offset."""
        now_ms = time.time_ns() // 1_000_000
        made = [
            Document(document.id, document.text, Position(*PARTITION, offset), now_ms)
            for offset, document in enumerate(documents, first_offset)
        ]
        firsts = range(0, len(made), BATCH_DOCUMENTS)
        return [self.detector.prepare(made[first : first + BATCH_DOCUMENTS]) for first in firsts]

    def index(self, prepared: Prepared) -> DetectionResult:
        """Index a batch and find its pairs; then raise the high-water mark, as after a commit."""
        result = self.detector.index(prepared, {PARTITION: self._fence})
        end = prepared.documents[-1].position.offset + 1
        self._store.finish({PARTITION: end}, result.pending_positions, [self._fence])
        return result


def settings_for(url: str = "redis://localhost:6379/0", **keys: object) -> Settings:
    """Return the default settings with some changed: keys of the profile, or of another section by their full name."""
    prefixed = {key if "." in key else f"profiles.{PROFILE}.{key}": value for key, value in keys.items()}
    return Settings.load(None, needed_keys(url) | prefixed, environ={})


def needed_keys(url: str) -> dict[str, object]:
    """Return the keys without a default; nothing connects to this Kafka."""
    return {"kafka.bootstrap_servers": "localhost:9092", "redis.url": url, f"profiles.{PROFILE}.topics": PROFILE}


def default_banding() -> Banding:
    return default_profile().banding()


def default_profile() -> Profile:
    return settings_for().profiles[PROFILE]


@contextmanager
def index_on(url: str, **keys: object) -> Iterator[Index]:
    """Open an index on a server that is empty; ``keys`` as for ``settings_for``."""
    settings = settings_for(url, **keys)
    with connect_backend(settings) as backend:
        yield Index(settings, backend.index(PROFILE))
