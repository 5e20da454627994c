"""Every row of `tests/bad_input.py`, through a real Kafka, a real Redis and one daemon.

All records are sent once, each between two good documents, and every test looks at what became of one row.
"""

import contextlib
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

import pytest
import redis
from jsonschema import Draft202012Validator
from kafka import KafkaProducer
from prometheus_client.parser import text_string_to_metric_families

from streamdedup.wire import decode_alert, schema
from streamdedup.wire.dead_letters import PREFIX
from tests import servers
from tests.bad_input import ROWS, STRICT_SHINGLE, STRICT_WORDS, Row, Sent, json_of, words
from tests.daemons import PATIENT, Daemon, Installation
from tests.raw_batches import RawRecord, record_batch, send_batch

#: Where a record stands: topic, partition, offset.
Place = tuple[str, int, int]

#: Largest message that the daemon may send, and so the size to which a dead letter is cut.
MAX_MESSAGE_BYTES = 1024 * 1024
#: Largest message that the input topics take.
MAX_INPUT_BYTES = 8 * 1024 * 1024

PROFILES = """
[profiles.titled]
topics = ["{titled}"]
text_fields = ["title", "body"]

[profiles.strict]
topics = ["{strict}"]
shingle_size = {shingle}
short_texts = "skip"
min_words = {words}
"""


@dataclass
class Record:
    """A record that was sent, and the good documents around it.

    Attributes:
        sent: What was sent.
        place: Where it stands.
        before: Id of a good document just before it.
        after: Id of a near-duplicate of that just behind it.
        probe: Id of a near-duplicate of the record itself; "" where nothing is to be found.
    """

    sent: Sent
    place: Place
    before: str
    after: str
    probe: str


@dataclass
class Session:
    """All rows sent, and what the daemon has made of them."""

    installation: Installation
    daemon: Daemon
    topics: dict[str, str]
    sent_count: int = 0
    records: dict[str, list[Record]] = field(default_factory=dict)
    letters: dict[Place, object] = field(default_factory=dict)
    matches: dict[str, set[str]] = field(default_factory=dict)
    metrics: dict[tuple[str, tuple[tuple[str, str], ...]], float] = field(default_factory=dict)

    @property
    def dead_letters(self) -> str:
        """Name of the dead-letter topic."""
        return f"{self.installation.duplicates}.dlq"

    def total(self, name: str, **labels: str) -> float:
        """Sum of a metric over all labels but those given."""
        wanted = set(labels.items())
        return sum(value for (found, having), value in self.metrics.items() if found == name and wanted <= set(having))

    def wait_committed(self) -> None:
        """Wait until all that was sent is committed."""

        def committed() -> bool:
            return self.installation.committed_count(*self.topics.values()) >= self.sent_count

        servers.wait_until(lambda: self.daemon.alive_or_fail() and committed(), what="the commit of all records")

    def look(self) -> None:
        """Take what the daemon has published and counted so far."""
        self.wait_committed()
        self.letters = {place_of(letter): letter for letter in self.installation.published(self.dead_letters)}
        self.matches.clear()
        for record in self.installation.published(self.installation.duplicates):
            alert = decode_alert(record.value)
            self.matches.setdefault(alert.document.id, set()).update(match.id for match in alert.matches)
        # The last batch is counted just after its commit.
        servers.wait_until(lambda: self._scrape() and self.total("streamdedup_records_total") >= self.sent_count)

    def _scrape(self) -> bool:
        families = text_string_to_metric_families(self.daemon.get("/metrics")[1])
        samples = [sample for family in families for sample in family.samples]
        self.metrics = {(sample.name, tuple(sorted(sample.labels.items()))): sample.value for sample in samples}
        return bool(samples)


class Sender:
    """Sends records to partitions, in order."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._kafka = session.installation.kafka
        self._producer = KafkaProducer(
            bootstrap_servers=self._kafka.split(","), max_request_size=MAX_INPUT_BYTES, linger_ms=5
        )

    def send(self, topic: str, sent: Sent, partition: int = 0) -> object:
        """Append a record; return what knows its offset."""
        self._session.sent_count += 1
        if sent.by_hand is None:
            return self._producer.send(
                topic,
                value=sent.value,
                key=sent.key,
                headers=[(name.decode(), value) for name, value in sent.headers],
                timestamp_ms=sent.timestamp_ms,
                partition=partition,
            )
        self._producer.flush()  # what was sent before must stand before it
        timestamp_ms = -1 if sent.timestamp_ms is None else sent.timestamp_ms
        raw = RawRecord(sent.value, sent.key, sent.headers, timestamp_ms)
        return send_batch(self._kafka, topic, partition, record_batch([raw], sent.by_hand))

    def document(self, topic: str, name: str, text: str, like: Sent | None = None) -> None:
        """Append a good document, at the record time of another one."""
        timed = like.timestamp_ms if like is not None and like.by_hand is None else None
        self.send(topic, Sent(document(topic, name, text), name.encode(), timestamp_ms=timed))

    def close(self) -> None:
        """Wait until all is stored."""
        self._producer.flush()
        self._producer.close()


def document(topic: str, name: str, text: str) -> bytes:
    """Return a good document in the fields of its topic's profile."""
    return json_of(**{"id": name, ("body" if topic.startswith("titled") else "text"): text})


def place_of(letter: object) -> Place:
    """Where the record of a dead letter stands."""
    headers = headers_of(letter)
    return headers["topic"], int(headers["partition"]), int(headers["offset"])


def headers_of(letter: object) -> dict[str, str]:
    """Return our headers of a dead letter."""
    return {name.removeprefix(PREFIX): value.decode() for name, value in letter.headers if name.startswith(PREFIX)}


def near(text: str) -> str:
    """Return a near-duplicate; of a text too short for that the same in other letters."""
    return f"{text} {words(text, 1)}" if text.count(" ") > 10 else f"{text.upper()}!"


def send_row(session: Session, sender: Sender, name: str, row: Row) -> None:
    """Send the examples of a row, each between a good document and a near-duplicate of that."""
    topic = session.topics[row.profile]
    for number, sent in enumerate(row.records):
        before, after, probe = (f"{name}.{number}.{kind}" for kind in ("before", "after", "probe"))
        text = words(before)
        sender.document(topic, before, text)
        offset = sender.send(topic, sent)
        sender.document(topic, after, near(text))
        if sent.like:
            sender.document(topic, probe, near(sent.like), like=sent)
        at = offset if isinstance(offset, int) else offset.get(servers.DEADLINE_S).offset
        record = Record(sent, (topic, 0, at), before, after, probe if sent.like else "")
        session.records.setdefault(name, []).append(record)


def send_twins(session: Session, sender: Sender) -> None:
    """Send the earlier versions of documents into the other partition."""
    for row in ROWS.values():
        for sent in row.records:
            if sent.twin is not None:
                sender.send(session.topics[row.profile], sent.twin, partition=1)


@pytest.fixture(scope="module")
def session(tmp_path_factory, kafka, redis_url) -> Iterator[Session]:
    """A daemon that has worked through every row."""
    duplicates = servers.fresh_name("duplicates")
    topics = {name: servers.fresh_name(name) for name in ("plain", "titled", "strict")}
    servers.create_topics(kafka, [duplicates, f"{duplicates}.dlq"])
    limits = {"max.message.bytes": str(MAX_INPUT_BYTES), "message.timestamp.after.max.ms": str(2**62)}
    servers.create_topics(kafka, topics.values(), 2, limits)
    folder = tmp_path_factory.mktemp("bad-input")
    installation = install(folder, kafka, redis_url, topics, duplicates)
    with installation.running(**PATIENT) as daemon:
        session = Session(installation, daemon, topics)
        sender = Sender(session)
        with contextlib.closing(sender):
            send_twins(session, sender)
            session.wait_committed()
            for name, row in ROWS.items():
                send_row(session, sender, name, row)
        session.look()
        yield session
    with redis.Redis.from_url(redis_url) as client:
        client.flushdb()


def install(folder: Path, kafka: str, redis_url: str, topics: dict[str, str], duplicates: str) -> Installation:
    """Return an installation with three profiles."""
    installation = Installation(
        folder,
        kafka=kafka,
        redis=redis_url,
        topic=topics["plain"],
        duplicates=duplicates,
        group=servers.fresh_name("group"),
        batch_records=100,
        shingle_size=3,
        threshold=0.8,
    )
    extra = PROFILES.format(
        titled=topics["titled"], strict=topics["strict"], shingle=STRICT_SHINGLE, words=STRICT_WORDS
    )
    with installation.config.open("a", encoding="utf-8") as config:
        config.write(extra)
    return installation


@pytest.mark.parametrize("name", ROWS)
def test_a_row_has_its_outcome(session, name):
    outcome, _, detail = ROWS[name].outcome.partition(":")
    for record in session.records[name]:
        assert record.before in session.matches.get(record.after, ()), "its good neighbours were not found"
        if outcome == "processed":
            check_processed(session, record)
        elif outcome == "deleted":
            assert record.place not in session.letters
        elif outcome == "skipped":
            check_skipped(session, record, detail, ROWS[name].profile)
        else:
            check_dead_letter(session, record, detail)


def check_processed(session: Session, record: Record) -> None:
    """It is in the index: a near-duplicate of it was told so."""
    assert record.place not in session.letters
    expected = record.sent.found_as or ":".join(map(str, record.place))
    assert expected in session.matches.get(record.probe, ())


def check_skipped(session: Session, record: Record, reason: str, profile: str) -> None:
    """It is counted by its reason, as often as records were sent for it."""
    assert record.place not in session.letters
    rows = [row for row in ROWS.values() if (row.outcome, row.profile) == (f"skipped:{reason}", profile)]
    name = "articles" if profile == "plain" else profile
    counted = session.total("streamdedup_skipped_total", profile=name, reason=reason)
    assert counted == sum(len(row.records) for row in rows)


def check_dead_letter(session: Session, record: Record, code: str) -> None:
    """It is in the dead-letter topic, untouched, with headers that say why and where."""
    letter = session.letters[record.place]
    headers = headers_of(letter)
    Draft202012Validator(json.loads(schema("dead-letter"))).validate({PREFIX + n: v for n, v in headers.items()})
    assert headers["error.code"] == code
    stages = {"unreadable": "read", "too_large": "size", "unknown_document": "process"}
    if record.sent in ROWS["key-in-another-form"].records:
        stages["invalid_id"] = "process"
    assert headers["stage"] == stages.get(code, "decode")
    assert headers["group"] == session.installation.group
    assert headers["attempts"] == "1"
    assert len([name for name, _ in letter.headers if name.startswith(PREFIX)]) == len(headers)
    sent = record.sent
    if code == "unreadable":
        assert (letter.key, letter.value, headers["unread"]) == (None, b"", "true")
    elif code == "too_large":
        assert letter.key == sent.key
        assert MAX_MESSAGE_BYTES * 0.99 < len(letter.value) <= MAX_MESSAGE_BYTES
        assert sent.value.startswith(letter.value)
        assert headers["truncated"] == "true"
        assert headers["original-length"] == str(len(sent.value))
        assert headers["sha256"] == sha256(sent.value).hexdigest()
    else:
        assert letter.key == sent.key
        assert letter.value == (b"" if sent.value is None and sent.key is None else sent.value)
        assert ("null-value" in headers) == (sent.value is None and sent.key is None)
    theirs = [(name.encode(), value) for name, value in letter.headers if not name.startswith(PREFIX)]
    assert theirs == [(name, value or b"") for name, value in sent.headers if code != "unreadable"]
    assert json.loads(headers.get("null-headers", "[]")) == [
        name.decode() for name, value in sent.headers if value is None and code != "unreadable"
    ]


def test_what_was_consumed_is_what_was_processed_skipped_or_made_a_dead_letter(session):
    session.look()
    processed = session.total("streamdedup_documents_indexed_total")
    skipped = session.total("streamdedup_skipped_total")
    letters = session.total("streamdedup_dead_letters_total")
    deleted = session.total("streamdedup_documents_deleted_total")
    assert session.total("streamdedup_records_total") == session.sent_count == processed + deleted + skipped + letters
    assert deleted == sum(len(row.records) for row in ROWS.values() if row.outcome == "deleted")
    assert letters == len(session.letters) == len(servers.read_topic(session.installation.kafka, session.dead_letters))
    assert min(processed, skipped, letters) > 0


def test_dead_letters_are_counted_by_code(session):
    expected = Counter()
    for row in ROWS.values():
        kind, _, code = row.outcome.partition(":")
        expected[code] += len(row.records) * (kind == "dead letter")
    counted = {code: session.total("streamdedup_dead_letters_total", code=code) for code in +expected}
    assert counted == +expected


def test_times_in_the_future_are_counted(session):
    assert session.total("streamdedup_future_times_total") == 2  # the document and its near-duplicate


def test_a_dead_letter_that_is_replayed_and_fails_again_keeps_its_bytes_and_counts_its_attempts(session):
    session.look()
    (record, *_) = session.records["not-json"]
    letter = session.letters[record.place]
    for attempts in ("2", "3"):
        with contextlib.closing(Sender(session)) as sender:
            headers = tuple((name.encode(), value) for name, value in letter.headers)
            future = sender.send(record.place[0], Sent(letter.value, letter.key, headers))
            place = (*record.place[:2], future.get(servers.DEADLINE_S).offset)
        session.look()
        letter = session.letters[place]
        assert (letter.key, letter.value) == (record.sent.key, record.sent.value)
        assert headers_of(letter)["attempts"] == attempts
        assert len(letter.headers) == len(headers_of(letter))


def test_the_daemon_has_ended_no_connection_and_waited_for_nothing(session):
    assert session.total("streamdedup_rebuilds_total") == 0
    assert session.total("streamdedup_ready") == 1
    assert not [event for event in session.daemon.events("waiting") if event["level"] == "warning"]
