"""The constants that users' forecasts of memory are made of, against what a server says that it uses."""

import hashlib
import random
import shutil

import pytest
import redis

from streamdedup.detection.detector import Detector
from streamdedup.index.redis.buckets import LAYOUTS
from streamdedup.index.redis.reading import RedisIndexOptions
from streamdedup.index.redis.servers import OneServer
from streamdedup.index.redis.store import RedisIndex
from streamdedup.indexes import connect_backend, detector_options
from streamdedup.position import Partition, Position
from streamdedup.settings import Settings
from streamdedup.similarity.lsh import BAND_BYTES
from streamdedup.tuning.memory import CAPTION_BYTES, CLAIM_BYTES, ENTRY_BYTES, SHINGLE_BYTES
from streamdedup.wire import Document
from tests import servers

PARTITION = Partition("articles", 0)
#: Documents of a measured index, and words of each.
DOCUMENTS, WORDS = 20_000, 20


def a_document(offset: int, chance: random.Random) -> Document:
    text = " ".join(f"w{chance.randrange(50_000)}" for _ in range(WORDS))
    caption = {"source": "Harbour Gazette", "published_at": "2026-03-02T06:24:00Z"}
    return Document(f"document-{offset:07}", text, Position(*PARTITION, offset), 1_700_000_000_000, **caption)


def bytes_per_document(program: str | None, layout: str, bands: int, rows: int) -> float:
    """Fill a new server with random texts; return its growth by document."""
    chance = random.Random(3)
    with servers.make_redis(program) as server, redis.Redis.from_url(server.url) as client:
        values = {
            "kafka.bootstrap_servers": "localhost:9092",
            "redis.url": server.url,
            "redis.bucket_layout": layout,
            "profiles.articles.topics": "articles",
            "profiles.articles.bands": bands,
            "profiles.articles.rows": rows,
        }
        settings = Settings.load(None, values, {})
        profile = settings.profiles["articles"]
        before = used_bytes(client)
        with connect_backend(settings) as backend:
            store = backend.index("articles")
            store.open(profile.fingerprint())
            detector = Detector(detector_options("articles", profile), store)
            fence = store.fence(PARTITION, 1, 0)
            for low in range(0, DOCUMENTS, 500):
                batch = [a_document(offset, chance) for offset in range(low, low + 500)]
                result = detector.index(detector.prepare(batch), {PARTITION: fence})
                store.finish({PARTITION: low + len(batch)}, result.pending_positions, [fence])
        return (used_bytes(client) - before) / DOCUMENTS


def used_bytes(client: redis.Redis) -> int:
    """Return the memory of a server without the buffers of its connections."""
    memory = client.info("memory")
    return int(memory["used_memory"]) - int(memory.get("mem_clients_normal", 0))


def test_each_layout_has_a_price():
    assert list(BAND_BYTES) == list(LAYOUTS)


#: A server, and bounds of its share of the constants: Valkey, of the wheel, takes less than Redis 7, whose figures the
#: constants are.
SERVERS = pytest.mark.parametrize(
    ("program", "least", "most"),
    [(None, 0.7, 1.1), pytest.param("redis-server", 0.88, 1.12, marks=pytest.mark.long)],
)


def need(program: str | None) -> None:
    if program is not None and shutil.which(program) is None:
        servers.unavailable(FileNotFoundError(f"{program}: make tools installs it"))


@SERVERS
def test_a_claim_takes_the_bytes_that_users_are_told(program, least, most):
    need(program)
    warm_up, count = 2_000, 40_000
    claims = [
        (hashlib.blake2b(b"%d" % number, digest_size=16).digest(), Position(*PARTITION, number))
        for number in range(warm_up + count)
    ]
    with servers.make_redis(program) as server, redis.Redis.from_url(server.url) as client:
        store = RedisIndex(OneServer(client), RedisIndexOptions(namespace="claims", bands=9, lifetime_ms=3_600_000))
        store.open({})
        fences = [store.fence(PARTITION, 1, 0)]
        store.claim_pairs(claims[:warm_up], fences, ())
        before = used_bytes(client)
        for low in range(warm_up, len(claims), 1_000):
            store.claim_pairs(claims[low : low + 1_000], fences, ())
        assert least < (used_bytes(client) - before) / count / CLAIM_BYTES < most


@pytest.mark.parametrize("layout", LAYOUTS)
@SERVERS
def test_a_band_takes_the_bytes_that_users_are_told(program, least, most, layout):
    need(program)
    few, many = (bytes_per_document(program, layout, *banding) for banding in ((9, 4), (35, 3)))
    assert least < (many - few) / (35 - 9) / BAND_BYTES[layout] < most


@pytest.mark.long
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_document_takes_the_bytes_that_tune_forecasts(layout):
    need("redis-server")
    forecast = ENTRY_BYTES + CAPTION_BYTES + (WORDS - 2) * SHINGLE_BYTES + 9 * BAND_BYTES[layout]
    assert bytes_per_document("redis-server", layout, 9, 4) == pytest.approx(forecast, rel=0.12)
