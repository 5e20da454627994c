"""What a real Redis holds of documents that a daemon has alerted, continued, changed and deleted."""

from collections.abc import Iterator
from dataclasses import dataclass

import msgspec
import pytest
import redis

from streamdedup.detection.content import contents_of
from streamdedup.detection.model import document_number
from streamdedup.detection.suppression import source_key
from streamdedup.index.documents import EMPTY_CONTENT
from streamdedup.index.entries import encode_number
from streamdedup.settings import Settings
from streamdedup.similarity.minhash import DEFAULT_SEED, HashFamily
from streamdedup.similarity.sketch import Sketcher
from streamdedup.text.shingles import ShingleOptions, Shingler
from streamdedup.wire import content_digest
from tests import servers
from tests.daemons import PATIENT, Installation, produce_keyed
from tests.entries import decode_entry

#: Words of a text.
LENGTH = 24
#: Ids of documents that are all alike, and of one that is left.
SECRETS, SURVIVOR = [f"secret-{number}" for number in range(6)], "survivor"
SECRET_SOURCE = "secret daily"


def words(name: str, changed: int = 0) -> str:
    """A text of its own for each name, of which so many words at the end are others."""
    return " ".join(f"{name}{'q' * (at >= LENGTH - changed)}w{at}" for at in range(LENGTH))


def record(identity: str, **fields: str) -> tuple[bytes, bytes]:
    return identity.encode(), msgspec.json.encode({"id": identity, **fields})


#: What is sent, round by round: key, value.
ROUNDS: list[list[tuple[bytes, bytes | None]]] = [
    [record(identity, text=words("hushhush", at), source=SECRET_SOURCE) for at, identity in enumerate(SECRETS)],
    [
        record(SECRETS[0], op="append", text="hushhushmore"),
        record(SECRETS[1], text=words("hushhush", 7)),
        record(SURVIVOR, text=words("own")),
    ],
    [record(identity, op="delete") if at % 2 else (identity.encode(), None) for at, identity in enumerate(SECRETS)],
]


@dataclass
class Told:
    """What came out: the alerted pairs, and every key of Redis with its type, content and time to live in ms."""

    installation: Installation
    pairs: list[tuple[str, str]]
    contents: dict[bytes, tuple[bytes, object, int]]


@pytest.fixture(scope="module")
def told(tmp_path_factory, kafka, redis_url) -> Iterator[Told]:
    """A daemon that all rounds have gone through."""
    names = {name: servers.fresh_name(name) for name in ("duplicates", "articles", "group")}
    servers.create_topics(kafka, [names["duplicates"], f"{names['duplicates']}.dlq", names["articles"]])
    installation = Installation(
        tmp_path_factory.mktemp("lives"), kafka=kafka, redis=redis_url, topic=names["articles"],
        duplicates=names["duplicates"], group=names["group"],
    )  # fmt: skip
    settings = {**PATIENT, "profiles.articles.bucket_cap": "8"}
    with redis.Redis.from_url(redis_url) as client:
        client.flushdb()
        with installation.running(**settings):
            sent = 0
            for records in ROUNDS:
                produce_keyed(kafka, installation.topic, records)
                sent += len(records)
                installation.wait_committed(sent)
        yield Told(installation, installation.pairs(), everything(client))
        client.flushdb()


def everything(client: redis.Redis) -> dict[bytes, tuple[bytes, object, int]]:
    """Read all of a database: by key the type, the members and the time to live in milliseconds."""
    reading = {
        b"string": client.get,
        b"set": lambda key: sorted(client.smembers(key)),
        b"hash": lambda key: sorted(client.hgetall(key).items()),
        b"zset": lambda key: client.zrange(key, 0, -1),
        b"list": lambda key: client.lrange(key, 0, -1),
    }
    kinds = {key: client.type(key) for key in client.scan_iter()}
    return {key: (kind, reading[kind](key), client.pttl(key)) for key, kind in kinds.items()}


class TestWhatIsLeftOfADeletedDocument:
    """Looked for in every key and value of Redis, as bytes and decoded."""

    def numbers(self) -> dict[int, str]:
        return {document_number("articles", identity): identity for identity in SECRETS}

    def test_they_were_alerted_and_one_that_is_left_is_in_its_buckets(self, told):
        assert {*told.pairs} >= {(other, SECRETS[5]) for other in SECRETS[:5]}
        number = b"%d" % document_number("articles", SURVIVOR)
        holding = [key for key, (kind, held, _) in told.contents.items() if kind == b"set" and number in held]
        assert len(holding) > 1
        assert all(b"}b" in key for key in holding)

    def test_neither_id_nor_text_nor_any_hash_of_the_text_is_there(self, told):
        texts = [words("hushhush", at) for at in range(LENGTH + 1)] + [f"{words('hushhush')} hushhushmore"]
        shingler = Shingler(ShingleOptions(size=2))
        shingles = shingler.shingle(texts)
        sketches, _ = Sketcher(HashFamily(128, DEFAULT_SEED), 512, 128).sketch(shingles.hashes, shingles.offsets)
        telling = {b"secret", b"hushhush", source_key(SECRET_SOURCE)[:5]} | {content_digest(text) for text in texts}
        for content in contents_of(shingles, sketches):
            # A sketch holds its hashes in order: two neighbours are eight bytes that nothing else comes to.
            values = content.sketch.hashes.astype("<u4")
            telling |= {values[at : at + 2].tobytes() for at in range(len(values) - 1)}
            telling |= {element.to_bytes(8, "little") for element in content.tail}
        everywhere = [bytes(part) for key, (_, held, _) in told.contents.items() for part in parts(key, held)]
        assert len(everywhere) > 200
        assert [(part, what) for part in everywhere for what in telling if what in part] == []

    def test_the_number_is_in_the_marker_alone(self, told):
        named = {
            key
            for key, (_, held, _) in told.contents.items()
            for part in parts(key, held)
            for number in self.numbers()
            if encode_number(number) in part or str(number).encode() == part
        }
        assert len(named) == len(SECRETS)
        assert {key.rpartition(b"}r")[2] for key in named} == {encode_number(number) for number in self.numbers()}

    def test_the_marker_holds_a_position_and_a_time_and_does_not_stay(self, told):
        profile = Settings.load(told.installation.config, {}, {}).profiles["articles"]
        for number in self.numbers():
            ((key, (kind, held, ttl_ms)),) = [
                item for item in told.contents.items() if item[0].endswith(b"}r" + encode_number(number))
            ]
            marker = decode_entry(number, held)
            assert (kind, marker.id, marker.digest, marker.content) == (b"string", "", bytes(16), EMPTY_CONTENT)
            assert marker.position.topic == told.installation.topic
            assert 0 < ttl_ms <= 4000 * (profile.retention_s + profile.retention_slack_s), key


def parts(key: bytes, held: object) -> Iterator[bytes]:
    """Yield a key and all that it holds, piece by piece."""
    yield key
    pieces = held if isinstance(held, list) else [held]
    for piece in pieces:
        yield from piece if isinstance(piece, tuple) else (piece,)
