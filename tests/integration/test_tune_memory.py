"""The forecast of memory against what a server says that it uses."""

import random
import shutil
from dataclasses import replace

import pytest
import redis

from streamdedup.cli.tune_server import PRIVATE_OPTIONS, TuneServer
from streamdedup.detection.detector import Detector
from streamdedup.index.redis.connection import connect
from streamdedup.indexes import connect_store, detector_options, redis_store
from streamdedup.position import Partition, Position
from streamdedup.settings import Settings
from streamdedup.similarity.minhash import HashFamily
from streamdedup.tuning.capped import StormLimits
from streamdedup.tuning.memory import Measurement, MemoryForecast, contents_of
from streamdedup.tuning.rows import Workload, rows_of
from streamdedup.tuning.sample import Sample
from streamdedup.tuning.study import Study
from streamdedup.wire import Document
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
    """Return how much memory of a server the deletion of an index of texts frees.

    What a server keeps when its last key is gone, such as scripts and buffers, is no part of an index.
    """
    settings = settings_of(url, **keys)
    profile = settings.profiles["articles"]
    used_bytes = TuneServer(None, client, profile, 0, private=True).used_bytes
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
            store.finish({PARTITION: low + len(batch)}, outcome.pending_positions, [fence])
    filled = used_bytes()
    client.execute_command("FLUSHALL", "SYNC")
    return filled - used_bytes()


def forecast_error(program: str | None, count: int, sample_size: int, **keys: object) -> float:
    """Return by which share the forecast, from a sample only, exceeds what a server takes; two servers are started."""
    texts = texts_of(count, seed=5)
    layout = str(keys.get("bucket_layout", "sets"))
    with servers.make_redis(program, options=PRIVATE_OPTIONS) as server:
        settings = settings_of(server.url, **keys)
        profile = settings.profiles["articles"]
        study = Study(profile.shingle_options(), texts[:sample_size], HashFamily(profile.permutations), floor=0.5)
        workload = Workload(
            documents=float(count),
            collection=sample_size,
            share=1.0,
            permutations=profile.permutations,
            most_permutations=profile.permutations,
            limits=StormLimits(profile.bucket_cap, profile.max_candidates),
        )
        (row,) = rows_of(study, workload, [profile.threshold], [0.99])
        options = replace(detector_options("articles", profile), banding=row.banding)
        sample = Sample(
            [id_of(at) for at in range(sample_size)], texts[:sample_size], [None] * sample_size, sample_size, "first"
        )
        with connect(server.url) as connection, redis.Redis.from_url(server.url) as client:
            namespace_bytes = len(f"{settings.redis.key_prefix}:articles")
            measured_on = TuneServer(connection, client, profile, namespace_bytes, private=True)
            measurement = Measurement(measured_on, options, sample, PARTITION)
            contents = contents_of(study, workload, row, workload.documents)
            costs = measurement.costs(contents, study.buckets(row.banding, row.limits.bucket_cap).members, layout)
    form = measurement.form
    forecast = MemoryForecast(workload, {layout: costs}, {form: 0.0}, form)
    # Another server: the tables of one that was filled before keep their size.
    with servers.make_redis(program, options=PRIVATE_OPTIONS) as server, redis.Redis.from_url(server.url) as client:
        taken = taken_bytes(server.url, client, texts, bands=row.banding.bands, rows=row.banding.rows, **keys)
    return forecast.total(study, row, layout, profile.exact_limit, filled_with=float(count)) / taken - 1


@pytest.mark.parametrize(
    "keys",
    [
        {"bucket_layout": "packed"},
        {"shingle_unit": "char", "exact_limit": "none"},
        {"exact_limit": 0, "threshold": 0.5},
    ],
)
def test_it_is_within_ten_percent_of_what_the_server_uses(keys):
    assert abs(forecast_error(None, 4_000, 1_000, **keys)) < TOLERANCE


@pytest.mark.long
@pytest.mark.parametrize("layout", ["sets", "packed"])
@pytest.mark.parametrize("program", [None, "redis-server"])
def test_it_is_for_a_hundred_thousand_documents_from_a_sample_of_two_thousand(program, layout):
    if program is not None and shutil.which(program) is None:
        servers.unavailable(FileNotFoundError(f"{program}: make tools installs it"))
    assert abs(forecast_error(program, 100_000, 2_000, bucket_layout=layout)) < TOLERANCE
