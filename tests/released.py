"""What the last release stores and sends, kept in ``tests/releases``: indexes, and the schemas of alerts.

``python -m tests.released`` writes the folder of the present version, as a step of a release.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import redis

from streamdedup import __version__
from streamdedup.detection.detector import Detector
from streamdedup.detection.model import DetectionResult
from streamdedup.embedded import RedisServer, find_redis
from streamdedup.index.contract import Index
from streamdedup.index.redis.buckets import LAYOUTS
from streamdedup.indexes import connect_backend, detector_options
from streamdedup.position import Partition, Position
from streamdedup.settings import Settings
from streamdedup.wire import Document, schema
from streamdedup.wire.avro_alerts import ALERT_SCHEMA

RELEASES = Path(__file__).parent / "releases"
PROFILE, PARTITION = "articles", Partition("articles", 0)
#: Record time of the first document, in milliseconds since 1970: in the future, so that no entry is too old.
BEGIN_MS = 4_102_444_800_000
TEXT = "The harbour board voted on Tuesday to lease two second-hand catamarans and to rebuild the wooden landing stage"
#: Text and source by id.
DOCUMENTS = {
    "first": (TEXT, "coast"),
    "copy": (f"{TEXT} again", "valley"),
    "other": ("Farmers along the river expect the earliest harvest since records began", None),
}


def last() -> Path:
    return max(RELEASES.iterdir(), key=lambda folder: [int(part) for part in folder.name.split(".")])


class Stored(NamedTuple):
    index: Index
    detector: Detector


@contextmanager
def opened(url: str, layout: str) -> Iterator[Stored]:
    keys = {
        "kafka.bootstrap_servers": "localhost:9092",
        "redis.url": url,
        "redis.bucket_layout": layout,
        f"profiles.{PROFILE}.topics": PROFILE,
        f"profiles.{PROFILE}.retention": "36500d",
    }
    settings = Settings.load(None, keys, environ={})
    profile = settings.profiles[PROFILE]
    with connect_backend(settings) as backend:
        index = backend.index(PROFILE)
        index.open(profile.fingerprint())
        yield Stored(index, Detector(detector_options(PROFILE, profile), index))


def insert(stored: Stored, documents: dict[str, tuple[str, str | None]], first_offset: int) -> DetectionResult:
    """Insert documents as a batch of generation one, and finish the batch."""
    fence = stored.index.fence(PARTITION, 1, first_offset)
    made = [
        Document(document_id, text, Position(*PARTITION, offset), BEGIN_MS + offset, source=source)
        for offset, (document_id, (text, source)) in enumerate(documents.items(), first_offset)
    ]
    result = stored.detector.index(stored.detector.prepare(made), {PARTITION: fence})
    stored.index.announce("0000000000000001", [fence], {PARTITION: first_offset})
    stored.index.finish({PARTITION: first_offset + len(made)}, result.pending_positions, [fence])
    return result


def saved(client: "redis.Redis") -> dict[str, Any]:
    """Return all keys of a server with their values, as text in which a character is a byte."""
    readers = {"string": client.get, "set": client.smembers, "hash": client.hgetall}
    readers["zset"] = lambda key: client.zrange(key, 0, -1, withscores=True)
    return {_text(key): [kind := client.type(key).decode(), _text(readers[kind](key))] for key in client.scan_iter()}


def restore(client: "redis.Redis", values: dict[str, Any]) -> None:
    """Store keys that ``saved`` has returned."""
    for name, (kind, value) in values.items():
        key = name.encode("latin-1")
        match kind:
            case "string":
                client.set(key, value.encode("latin-1"))
            case "set":
                client.sadd(key, *(member.encode("latin-1") for member in value))
            case "hash":
                client.hset(key, mapping={k.encode("latin-1"): v.encode("latin-1") for k, v in value.items()})
            case "zset":
                client.zadd(key, {member.encode("latin-1"): score for member, score in value})
        client.expire(key, 86_400)  # a bucket without an expiry is a new one


def _text(value: Any) -> Any:
    match value:
        case bytes():
            return value.decode("latin-1")
        case dict():
            return {_text(name): _text(each) for name, each in sorted(value.items())}
        case set() | list() | tuple():
            return [_text(each) for each in (sorted(value) if isinstance(value, set) else value)]
    return value


def main() -> None:
    folder = RELEASES / __version__
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "alert.schema.json").write_text(
        json.dumps(json.loads(schema("alert")), indent=1) + "\n", encoding="utf-8"
    )
    (folder / "alert.avsc").write_text(json.dumps(json.loads(ALERT_SCHEMA), indent=1) + "\n", encoding="utf-8")
    for layout in LAYOUTS:
        with RedisServer(find_redis()) as server, redis.Redis.from_url(server.url) as client:
            with opened(server.url, layout) as stored:
                insert(stored, DOCUMENTS, 0)
            values = json.dumps(saved(client), indent=1, sort_keys=True)
        (folder / f"{layout}.json").write_text(f"{values}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
