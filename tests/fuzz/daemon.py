"""Messages through a real Kafka and the command ``streamdedup run``, and the account of the topics and the metrics."""

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from streamdedup.kafka.protocols import Message
from streamdedup.wire.dead_letters import read_headers
from tests.bad_input import FUTURE_MS
from tests.bombs import BOMBS
from tests.daemons import DEADLINE_S, Daemon, Installation
from tests.fuzz import schemas
from tests.fuzz.accounts import MAX_TEXT_BYTES, PROFILES, wrong_letter
from tests.fuzz.memory import growth, peak_bytes, rss_bytes
from tests.fuzz.messages import Fuzzed, fuzzed_messages
from tests.fuzz.schemas import WHOLE, fuzzed_values, register
from tests.raw_batches import RawRecord, record_batch, send_batch
from tests.servers import create_topics, fresh_name, read_topic, wait_no_transaction, wait_until

#: Into so many parts the messages are cut; after each the memory is looked at.
_PARTS = 16
#: Seconds that the daemon may take for all of them.
_DEADLINE_S = 600.0
#: Largest message that the daemon sends, and so the size to which a dead letter is cut.
_MAX_MESSAGE_BYTES = 65_536

#: Of an input topic: times in the future are taken, and so is a whole part in one batch.
_TOPIC = {"message.timestamp.after.max.ms": str(2**62), "max.message.bytes": str(8 * 1024 * 1024)}

Place = tuple[str, int, int]


@dataclass
class Report:
    """What became of the messages.

    Attributes:
        figures: The daemon's own counts: consumed, processed, deleted, skipped, dead letters.
        letters: Dead letters found in their topic, by code.
        wrong: What is wrong; empty for nothing.
        rss, peak: Memory of the daemon over time, and the most of it, in bytes.
    """

    sent_count: int
    figures: dict[str, int] = field(default_factory=dict)
    letters: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    rss: list[int] = field(default_factory=list)
    peak: int = 0
    seconds: float = 0.0

    def lines(self) -> Iterator[str]:
        yield f"{self.sent_count:,} messages through the daemon in {self.seconds:.0f} s"
        yield "  " + ", ".join(f"{name} {count:,}" for name, count in self.figures.items())
        yield f"  {self.letters.total():,} dead letters in the topic: " + ", ".join(
            f"{count:,} {code}" for code, count in self.letters.most_common()
        )
        first, last, peak = self.rss[0] / 1e6, self.rss[-1] / 1e6, self.peak / 1e6
        yield f"  RSS {first:.1f} to {last:.1f} MB, {growth(self.rss):+.1%} after warming up; peak {peak:.1f} MB"
        yield from (f"  WRONG: {each}" for each in self.wrong[:20])


def run(seed: str, count: int, folder: Path, *, kafka: str, redis: str) -> Report:
    """Send JSON messages of a seed, let one daemon work through them, and account for each."""
    made = list(fuzzed_messages(seed, count, time.time_ns() // 1_000_000))
    return _run(made, PROFILES, "", folder, kafka=kafka, redis=redis)


def run_schemas(seed: str, count: int, folder: Path, *, kafka: str, redis: str, registry: str) -> Report:
    """Do the same with values whose schemas are in the registry at a URL."""
    made = list(fuzzed_values(seed, count, time.time_ns() // 1_000_000, register(registry)))
    section = f'[schema_registry]\nurl = "{registry}"\n'
    return _run(made, schemas.PROFILES, section, folder, kafka=kafka, redis=redis)


def _run(
    made: Sequence[Fuzzed],
    profiles: Mapping[str, Mapping[str, Any]],
    section: str,
    folder: Path,
    *,
    kafka: str,
    redis: str,
) -> Report:
    names = {topic: fresh_name(topic) for topic in profiles}
    duplicates = fresh_name("duplicates")
    create_topics(kafka, [duplicates, f"{duplicates}.dlq"])
    create_topics(kafka, names.values(), 1, _TOPIC)
    installation = _install(folder, names, duplicates, profiles, kafka=kafka, redis=redis)
    with installation.config.open("a", encoding="utf-8") as config:
        config.write(section)
    report, began = Report(len(made)), time.monotonic()
    with installation.daemon() as daemon:
        daemon.wait_ready()
        placed: dict[Place, Fuzzed] = {}
        size = -(-len(made) // _PARTS)
        for first in range(0, len(made), size):
            placed |= _send(kafka, names, made[first : first + size])
            _wait_consumed(daemon, len(placed))
            report.rss.append(rss_bytes(daemon.process.pid))
        report.figures, report.peak = _figures(daemon), peak_bytes(daemon.process.pid)
        code = daemon.stop()
    if code != 0:
        report.wrong.append(f"the daemon ended with {code}")
    report.seconds = time.monotonic() - began
    _look(kafka, f"{duplicates}.dlq", placed, report)
    return report


def _install(
    folder: Path,
    names: dict[str, str],
    duplicates: str,
    profiles: Mapping[str, Mapping[str, Any]],
    *,
    kafka: str,
    redis: str,
) -> Installation:
    installation = Installation(
        folder,
        kafka=kafka,
        redis=redis,
        topic=next(iter(names.values())),
        duplicates=duplicates,
        group=fresh_name("group"),
        batch_records=500,
        shingle_size=3,
        threshold=0.8,
    )
    text = installation.config.read_text(encoding="utf-8").partition("[profiles.")[0]
    text = text.replace("[redis]", f"max_message_bytes = {_MAX_MESSAGE_BYTES}\n\n[redis]")
    text = text.replace("[service]", '[service]\ndead_letter_limit = "none"')
    for topic, options in profiles.items():
        keys = {"topics": [names[topic]], "max_text_bytes": MAX_TEXT_BYTES, **options}
        text += f"\n[profiles.{topic}]\n" + "".join(f"{name} = {_toml(value)}\n" for name, value in keys.items())
    installation.config.write_text(text, encoding="utf-8")
    return installation


def _toml(value: object) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return f'"{value}"' if isinstance(value, str) else str(value)


def _send(kafka: str, names: dict[str, str], messages: Sequence[Fuzzed]) -> dict[Place, Fuzzed]:
    """Append messages, in batches built by hand, for no client writes all of them; return each by its place."""
    placed: dict[Place, Fuzzed] = {}
    for topic, name in names.items():
        those = [message for message in messages if message.topic == topic]
        if those:
            offset = send_batch(kafka, name, 0, record_batch([_raw(message) for message in those]))
            placed |= {(name, 0, at): message for at, message in enumerate(those, offset)}
    return placed


def _raw(message: Fuzzed) -> RawRecord:
    headers = tuple((name.encode(), value) for name, value in message.headers)
    return RawRecord(message.value, message.key, headers, max(-1, min(message.timestamp_ms, FUTURE_MS)))


def _wait_consumed(daemon: Daemon, count: int) -> None:
    wait_until(
        lambda: daemon.alive_or_fail() and daemon.metric("streamdedup_records_total") >= count,
        _DEADLINE_S,
        f"{count} messages consumed",
    )


def _figures(daemon: Daemon) -> dict[str, int]:
    names = {
        "consumed": "records",
        "processed": "documents_indexed",
        "deleted": "documents_deleted",
        "skipped": "skipped",
        "dead letters": "dead_letters",
    }
    return {name: round(daemon.metric(f"streamdedup_{metric}_total")) for name, metric in names.items()}


def _look(kafka: str, topic: str, placed: dict[Place, Fuzzed], report: Report) -> None:
    """Compare the dead-letter topic with what was sent and with what the daemon has counted."""
    seen: Counter[Place] = Counter()
    expected = {place: BOMBS[sent.made_by].outcome for place, sent in placed.items() if sent.made_by in BOMBS}
    wait_no_transaction(kafka, [topic])
    for record in read_topic(kafka, topic, timeout_s=DEADLINE_S):
        letter = Message(topic, record.key, record.value, tuple(record.headers))
        facts = read_headers(letter.headers)
        place = facts["topic"], int(facts["partition"]), int(facts["offset"])
        seen[place] += 1
        report.letters[facts["error.code"]] += 1
        if place not in placed:
            report.wrong.append(f"a dead letter of {place}, where nothing was sent")
        elif placed[place].made_by == WHOLE:
            report.wrong.append(f"{place}: a dead letter of a whole value: {facts['error.message']}")
        elif facts["error.code"] != expected.get(place, facts["error.code"]):
            report.wrong.append(f"{place}: {facts['error.code']} of {placed[place].made_by}, not {expected[place]}")
        elif wrong := wrong_letter(placed[place], letter):
            report.wrong.append(f"{place}: {wrong}: {str(placed[place])[:300]}")
    report.wrong += [f"{place} became {count} dead letters" for place, count in seen.items() if count > 1]
    report.wrong += [
        f"{place}: no dead letter {code}"
        for place, code in expected.items()
        if not BOMBS[placed[place].made_by].is_read and not seen[place]
    ]
    figures = report.figures
    parts = [figures[name] for name in ("processed", "deleted", "skipped", "dead letters")]
    if not figures["consumed"] == report.sent_count == sum(parts):
        report.wrong.append(f"{report.sent_count} sent, but {figures}")
    if figures["dead letters"] != report.letters.total():
        report.wrong.append(f"{report.letters.total()} dead letters in the topic, but {figures}")
