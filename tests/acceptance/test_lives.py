"""Documents that are changed, continued, deleted and placed again, through the daemon, a real Kafka and a real Redis.

Everything is sent in a few rounds, each committed before the next begins, so that a test looks at what became of the
documents of one story. What they say of the outcome is what docs/messages.md promises.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

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
from streamdedup.wire import content_digest, decode_alert
from tests import servers
from tests.daemons import PATIENT, Daemon, Installation, produce_keyed, set_offsets
from tests.entries import decode_entry

#: Words of a text.
LENGTH = 24
#: What is sent: key, value.
KeyValue = tuple[bytes, bytes | None]


def words(name: str, changed: int = 0) -> str:
    """A text of its own for each name, of which so many words at the end are others."""
    return " ".join(f"{name}{'q' * (at >= LENGTH - changed)}w{at}" for at in range(LENGTH))


def upsert(identity: str, text: str, **fields: str) -> KeyValue:
    return identity.encode(), msgspec.json.encode({"id": identity, "text": text, **fields})


def append(identity: str, text: str) -> KeyValue:
    return identity.encode(), msgspec.json.encode({"id": identity, "op": "append", "text": text})


def delete(identity: str) -> KeyValue:
    return identity.encode(), msgspec.json.encode({"id": identity, "op": "delete"})


def tombstone(identity: str) -> KeyValue:
    return identity.encode(), None


def halves(text: str) -> tuple[str, str]:
    parts = text.split()
    return " ".join(parts[: LENGTH // 2]), " ".join(parts[LENGTH // 2 :])


#: Ids of documents that are all alike, of which one is left.
SECRETS, SURVIVOR = [f"secret-{number}" for number in range(6)], "survivor"
SECRET_SOURCE = "secret daily"
GROWN_FIRST, GROWN_REST = halves(words("grown"))
#: What befalls the documents of each story, round by round.
STORIES: dict[str, list[list[KeyValue]]] = {
    "changed": [
        [upsert("changed-a", words("changed")), upsert("changed-b", words("other"))],
        [upsert("changed-a", words("other", 1))],
        [upsert("changed-c", words("changed", 2))],
    ],
    "same": [
        [upsert("same-a", words("same")), upsert("same-b", words("same", 1))],
        [upsert("same-b", words("same", 1)), upsert("same-a", words("same"))],
    ],
    "returned": [
        [upsert("returned-a", words("returned")), upsert("returned-b", words("returned", 1))],
        [upsert("returned-b", words("far"))],
        [upsert("returned-b", words("returned", 1))],
    ],
    "grown": [
        [upsert("grown-a", words("grown")), upsert("grown-b", GROWN_FIRST)],
        [append("grown-b", GROWN_REST)],
        [append("grown-b", "more"), upsert("grown-c", f"{words('grown')} more")],
    ],
    "twice": [
        [upsert("twice-a", words("twice"))],
        [append("twice-a", "and on"), append("twice-a", "and on")],
        [upsert("twice-b", f"{words('twice')} and on and on")],
    ],
    "nobody": [
        [append("nobody-a", words("nobody"))],
        [upsert("nobody-a", words("nobody")), append("nobody-a", "there")],
        [upsert("nobody-b", f"{words('nobody')} there")],
    ],
    "ended": [
        [upsert("ended-a", words("ended"))],
        [delete("ended-a")],
        [append("ended-a", "more"), upsert("ended-b", words("ended"))],
    ],
    "buried": [
        [upsert("buried-a", words("buried"))],
        [tombstone("buried-a")],
        [upsert("buried-b", words("buried"))],
    ],
    "at-once": [
        [upsert("at-once-a", words("atonce")), delete("at-once-a"), upsert("at-once-b", words("atonce"))],
    ],
    "never": [
        [delete("never-a"), tombstone("never-b")],
        [upsert("never-a", words("never")), upsert("never-b", words("never", 1))],
    ],
    "again": [
        [upsert("again-a", words("again")), upsert("again-b", words("again", 1))],
        [delete("again-a")],
        [upsert("again-a", words("again"))],
    ],
    "secret": [
        [upsert(identity, words("hushhush", at), source=SECRET_SOURCE) for at, identity in enumerate(SECRETS)],
        [append(SECRETS[0], "hushhushmore"), upsert(SECRETS[1], words("hushhush", 7)), upsert(SURVIVOR, words("own"))],
        [delete(identity) if at % 2 else tombstone(identity) for at, identity in enumerate(SECRETS)],
    ],
}
ROUNDS = max(map(len, STORIES.values()))

#: Id of a document, and of each of its matches how similar it is.
Found = dict[str, dict[str, float]]


@dataclass
class Told:
    """What came out.

    Attributes:
        installation: The installation.
        alerts: What was alerted in each round.
        letters: Code of each dead letter by round and key.
        metrics: Records by what became of them, when all rounds were over.
        contents: Every key of Redis with its type, what it holds and its time to live in milliseconds, likewise.
    """

    installation: Installation
    alerts: list[Found] = field(default_factory=list)
    letters: list[dict[bytes, str]] = field(default_factory=list)
    metrics: dict[str, float] = field(default_factory=dict)
    contents: dict[bytes, tuple[bytes, object, int]] = field(default_factory=dict)
    _seen: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    def look(self) -> None:
        """Add what has come out since."""
        alerts: Found = {}
        for record in self._new(self.installation.duplicates):
            alert = decode_alert(record.value)
            found = alerts.setdefault(alert.document.id, {})
            for match in alert.matches:
                assert match.id not in found, "a pair twice"
                found[match.id] = match.similarity
        self.alerts.append(alerts)
        letters = self._new(f"{self.installation.duplicates}.dlq")
        self.letters.append(
            {letter.key: dict(letter.headers)["streamdedup.dlq.error.code"].decode() for letter in letters}
        )

    def _new(self, topic: str) -> list:
        records = self.installation.published(topic)
        new = records[self._seen[topic] :]
        self._seen[topic] = len(records)
        return new

    def matches(self, identity: str) -> list[dict[str, float]]:
        """What was alerted of a document in each round."""
        return [alerts.get(identity, {}) for alerts in self.alerts]


@pytest.fixture(scope="module")
def told(tmp_path_factory, kafka, redis_url) -> Iterator[Told]:
    """A daemon that all rounds have gone through, that then read them all again, and met one document more."""
    names = {name: servers.fresh_name(name) for name in ("duplicates", "articles", "group")}
    servers.create_topics(kafka, [names["duplicates"], f"{names['duplicates']}.dlq", names["articles"]])
    installation = Installation(
        tmp_path_factory.mktemp("lives"), kafka=kafka, redis=redis_url, topic=names["articles"],
        duplicates=names["duplicates"], group=names["group"],
    )  # fmt: skip
    told = Told(installation)
    settings = {**PATIENT, "profiles.articles.bucket_cap": "8"}
    with redis.Redis.from_url(redis_url) as client, installation.daemon(**settings) as one:
        client.flushdb()
        sent = 0
        for number in range(ROUNDS):
            batch = [record for rounds in STORIES.values() for part in rounds[number : number + 1] for record in part]
            produce_keyed(kafka, installation.topic, batch)
            sent += len(batch)
            installation.wait_committed(sent)
            told.look()
        # The last batch is counted just after its commit, and when nothing more is written to the index for it.
        servers.wait_until(lambda: one.metric("streamdedup_records_total") >= sent, what="the last batch to be counted")
        told.metrics = figures(one)
        told.contents = everything(client)
        assert one.stop() == 0
        # All of it once more, and a document that tells what stands now.
        set_offsets(kafka, installation.group, {(installation.topic, 0): 0})
        produce_keyed(kafka, installation.topic, [upsert("grown-d", f"{words('grown')} more")])
        one.start()
        installation.wait_committed(sent + 1)
        told.look()
        assert one.stop() == 0
        client.flushdb()
    return told


def figures(daemon: Daemon) -> dict[str, float]:
    names = ("records", "documents_indexed", "documents_deleted", "skipped", "dead_letters")
    return {name: daemon.metric(f"streamdedup_{name}_total") for name in names}


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


class TestUpsert:
    def test_another_text_takes_the_place_of_the_old_one(self, told):
        assert told.matches("changed-a")[:2] == [{}, {"changed-b": pytest.approx(22 / 24)}]
        assert told.matches("changed-c")[:3] == [{}, {}, {}]

    def test_the_same_text_again_is_silent(self, told):
        assert [list(found) for found in told.matches("same-b")] == [["same-a"], [], [], []]
        assert told.matches("same-a") == [{}, {}, {}, {}]

    def test_a_return_to_an_older_text_repeats_no_pair(self, told):
        assert [list(found) for found in told.matches("returned-b")] == [["returned-a"], [], [], []]
        assert told.matches("returned-a") == [{}, {}, {}, {}]


class TestAppend:
    def test_what_comes_to_the_threshold_is_alerted_as_the_whole_text_would_be(self, told):
        first, second, third, _ = told.matches("grown-b")
        assert (first, second) == ({}, {"grown-a": 1.0})
        assert "grown-a" not in third

    def test_the_whole_of_it_is_what_later_documents_meet(self, told):
        # They came in one batch, so either may be the one that completes the pair.
        found = told.matches("grown-c")[2].get("grown-b"), told.matches("grown-b")[2].get("grown-c")
        assert sorted(map(str, found)) == ["1.0", "None"]

    def test_an_addition_that_is_read_again_is_made_once(self, told):
        assert told.matches("grown-d")[3] == {
            "grown-b": 1.0, "grown-c": 1.0, "grown-a": pytest.approx(23 / 24)
        }  # fmt: skip

    def test_an_addition_sent_twice_is_made_twice(self, told):
        assert told.matches("twice-b")[2] == {"twice-a": 1.0}

    def test_without_a_document_it_is_a_dead_letter_and_with_one_it_is_not(self, told):
        assert told.letters[0][b"nobody-a"] == "unknown_document"
        assert b"nobody-a" not in told.letters[1]
        assert told.matches("nobody-b")[2] == {"nobody-a": 1.0}

    def test_what_was_deleted_cannot_be_continued(self, told):
        assert told.letters[2] == {b"ended-a": "unknown_document"}


class TestDelete:
    @pytest.mark.parametrize("story", ["ended", "buried", "at-once"])
    def test_a_later_document_that_is_equal_gets_no_alert(self, told, story):
        assert told.matches(f"{story}-b") == [{}, {}, {}, {}]

    def test_of_what_is_not_there_it_does_nothing(self, told):
        assert [list(found) for found in told.matches("never-b")] == [[], ["never-a"], [], []]
        assert not any(key.startswith(b"never") for letters in told.letters for key in letters)

    def test_placed_again_a_document_is_a_new_one(self, told):
        assert [list(found) for found in told.matches("again-b")] == [["again-a"], [], [], []]
        assert [list(found) for found in told.matches("again-a")] == [[], [], ["again-b"], []]


class TestAll:
    def test_read_again_nothing_is_said_twice(self, told):
        assert told.alerts[3].keys() == {"grown-d"}
        assert told.letters[3] == {}

    def test_every_record_is_accounted_for(self, told):
        records = [record for rounds in STORIES.values() for part in rounds for record in part]
        assert told.metrics["records"] == len(records)
        assert told.metrics["documents_deleted"] == sum(value is None or b'"delete"' in value for _, value in records)
        assert told.metrics["dead_letters"] == 2
        assert sum(told.metrics.values()) == 2 * len(records)


class TestWhatIsLeftOfADeletedDocument:
    """Looked for in every key and value of Redis, as bytes and decoded."""

    def numbers(self) -> dict[int, str]:
        return {document_number("articles", identity): identity for identity in SECRETS}

    def test_they_were_alerted_and_one_that_is_left_is_in_its_buckets(self, told):
        assert len(told.alerts[0][SECRETS[5]]) == 5
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
        assert len(everywhere) > 500
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
