"""The forecast of memory against what a server says that it uses."""

import random
import shutil

import pytest
import redis

from streamdedup.commands.assembly import connect_store, detector_options, redis_store
from streamdedup.commands.tune_server import _name, _settled_bytes, _used_bytes
from streamdedup.detector import Detector
from streamdedup.evaluation.study import Study
from streamdedup.evaluation.tuning import Demand, memory_bytes, rows_of
from streamdedup.messages import Document
from streamdedup.minhash import HashFamily
from streamdedup.position import Partition, Position
from streamdedup.settings import Settings
from streamdedup.store.footprint import model_of
from tests import servers

PARTITION = Partition("articles", 0)
#: How far the forecast may be off.
TOLERANCE = 0.10


def texts_of(count: int, seed: int) -> list[str]:
    """Random texts of 4 to 900 words, every eighth nearly the one before."""
    chance = random.Random(seed)
    texts: list[str] = []
    for at in range(count):
        if at % 8 == 7:
            texts.append(f"{texts[-1]} afterword")
        else:
            words = int(chance.lognormvariate(4.3, 0.9))
            texts.append(" ".join(f"w{chance.randrange(50_000)}" for _ in range(min(max(words, 4), 900))))
    return texts


def id_of(place: int) -> str:
    return f"document-{place:07}"


def settings_of(url: str, **keys: object) -> Settings:
    layout = keys.pop("bucket_layout", "sets")
    needed = {"kafka.bootstrap_servers": "localhost:9092", "redis.url": url, "profiles.articles.topics": "articles"}
    given = {f"profiles.articles.{key}": value for key, value in keys.items()} | {"redis.bucket_layout": layout}
    return Settings.load(None, needed | given, environ={})


def taken_bytes(url: str, client: redis.Redis, texts: list[str], **keys: object) -> int:
    """Return by how much an index of texts lets the server's memory grow."""
    settings = settings_of(url, **keys)
    profile = settings.profiles["articles"]
    before = _used_bytes(client)
    with connect_store(settings) as connection:
        store = redis_store(settings, "articles", connection)
        store.open(profile.fingerprint())
        detector = Detector(detector_options("articles", profile), store)
        fence = store.fence(PARTITION, 1, 0)
        for low in range(0, len(texts), 500):
            batch = [
                Document(id_of(low + at), text, Position(*PARTITION, low + at), 1_700_000_000_000)
                for at, text in enumerate(texts[low : low + 500])
            ]
            outcome = detector.index(detector.prepare(batch), {PARTITION: fence})
            store.finish({PARTITION: low + len(batch)}, outcome.saved_positions, [fence])
    return _settled_bytes(client) - before


def forecast_error(url: str, client: redis.Redis, count: int, sample: int, **keys: object) -> float:
    """Return by which share the forecast, from a sample only, exceeds what the server took."""
    texts = texts_of(count, seed=5)
    profile = settings_of(url, **keys).profiles["articles"]
    study = Study(
        profile.shingle_options(), texts[:sample], HashFamily(profile.permutations), floor=0.5, bucket_cap=500
    )
    demand = Demand(
        documents=float(count),
        collection=sample,
        share=1.0,
        permutations=profile.permutations,
        exact_limit=profile.exact_limit,
        max_candidates=profile.max_candidates,
        id_bytes=float(len(id_of(0))),
        namespace_bytes=len("streamdedup:articles"),
        partition_bytes=len(str(PARTITION)),
        bucket_layout=str(keys.get("bucket_layout", "sets")),
    )
    (row,) = rows_of(study, demand, [profile.threshold], [0.99])
    name, allocator = _name(client)
    modelled = memory_bytes(
        study, demand, row, model_of(name, allocator), documents=count, exact_limit=profile.exact_limit, filling=True
    )
    measured = taken_bytes(url, client, texts, bands=row.banding.bands, rows=row.banding.rows, **keys)
    return modelled / measured - 1


@pytest.mark.parametrize(
    "keys",
    [
        {"bucket_layout": "packed"},
        {"shingle_unit": "char", "exact_limit": "none"},
        {"exact_limit": 0, "threshold": 0.5},
    ],
)
def test_it_is_within_ten_percent_of_what_the_server_uses(start_redis, keys):
    # A server of its own: the tables of one that others have filled keep their size.
    server = start_redis()
    with redis.Redis.from_url(server.url) as client:
        assert abs(forecast_error(server.url, client, 4_000, 1_000, **keys)) < TOLERANCE


@pytest.mark.long
@pytest.mark.parametrize("layout", ["sets", "packed"])
@pytest.mark.parametrize("program", [None, "redis-server"])
def test_it_is_for_a_hundred_thousand_documents_from_a_sample_of_two_thousand(program, layout):
    if program is not None and shutil.which(program) is None:
        servers.unavailable(FileNotFoundError(f"{program}: make tools installs it"))
    with servers.make_redis(program) as server, redis.Redis.from_url(server.url) as client:
        error = forecast_error(server.url, client, 100_000, 2_000, bucket_layout=layout)
    assert abs(error) < TOLERANCE
