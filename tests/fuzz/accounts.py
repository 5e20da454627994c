"""Messages through the daemon's loop, decoder and detector in this process, and the account of what became of each.

The loop is the real one, and so are decoder and detector; broker and index are those in memory.
A message must end in exactly one way: processed, deleted, skipped, or as a dead letter with its bytes as they were; and
a second reading of it (``reading``) must agree.
"""

import logging
import os
import re
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256

import structlog

from streamdedup.cli.assembly import loop_options, pipeline
from streamdedup.daemon.loop import Loop
from streamdedup.daemon.metrics import Metrics
from streamdedup.daemon.rebuild import Rebuilder
from streamdedup.index.memory import MemoryIndex
from streamdedup.kafka.protocols import Message, Record
from streamdedup.position import Position
from streamdedup.settings import Settings
from streamdedup.wire import ErrorCode, decode_alert
from streamdedup.wire.dead_letters import MAX_HEADER_BYTES, PREFIX, read_headers
from tests.fuzz.memory import rss_bytes
from tests.fuzz.messages import TOPICS, Fuzzed, fuzzed_messages
from tests.fuzz.reading import read
from tests.simulation.transport import MemoryBroker, MemoryHistory, MemoryTransport

#: Messages of a batch.
BATCH_RECORDS = 500
GROUP = "fuzz"
#: Greatest length of a text, so short that a few thousand words are too many.
MAX_TEXT_BYTES = 20_000
#: The settings of the profiles: texts of one field and of two, short ones skipped, characters, bags.
PROFILES = {
    "plain": {},
    "titled": {"text_fields": ["title", "body"]},
    "strict": {"short_texts": "skip", "min_words": 3, "shingle_size": 5},
    "reviews": {"shingle_unit": "char", "threshold": 0.7},
    "bags": {"similarity": "bag", "exact_limit": 100},
}
_OVERRIDES = {
    "kafka.bootstrap_servers": "nowhere:9092",
    # Dead letters are cut to this, so that some must be.
    "kafka.max_message_bytes": "64KiB",
    "redis.url": "redis://nowhere",
    "service.dead_letter_limit": "none",
    **{f"profiles.{name}.topics": name for name in TOPICS},
    **{f"profiles.{name}.max_text_bytes": MAX_TEXT_BYTES for name in TOPICS},
    **{f"profiles.{name}.{key}": value for name, keys in PROFILES.items() for key, value in keys.items()},
}


class Unaccounted(Exception):
    """A message that came to no end, or to a wrong one; the text has the message, if it is a single one."""


class _AllCommitted:
    """Stands in for ``StopSignals``: the loop ends when it has committed every message, and never waits."""

    def __init__(self, broker: MemoryBroker) -> None:
        self._broker = broker
        self._partitions = [partition for topic in TOPICS for partition in broker.partitions(topic)]

    @property
    def stopping(self) -> bool:
        offsets = self._broker.offsets_of(GROUP)
        return all(offsets.get(each, 0) == self._broker.end_of(each) for each in self._partitions)

    def wait(self, timeout_s: float) -> bool:
        raise AssertionError(f"the loop waits for {timeout_s} s")


@dataclass
class Account:
    """What became of messages.

    Attributes:
        outcomes: How many ended how: ``processed``, ``deleted``, ``skipped REASON``, ``dead letter CODE``.
        cut_count: Dead letters that did not fit and were cut.
        judged_count: Messages about which the second reading had an opinion.
    """

    outcomes: Counter[str] = field(default_factory=Counter)
    pairs_count: int = 0
    cut_count: int = 0
    judged_count: int = 0

    def add(self, other: "Account") -> None:
        self.outcomes += other.outcomes
        self.pairs_count += other.pairs_count
        self.cut_count += other.cut_count
        self.judged_count += other.judged_count


class Accountant:
    """Takes messages through the loop; decoders and detectors are kept, the index is a new one each time."""

    def __init__(self) -> None:
        structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
        self._settings = Settings.load(overrides=_OVERRIDES, environ={})
        self._stores = {name: MemoryIndex(bucket_cap=p.bucket_cap) for name, p in self._settings.profiles.items()}
        self._pipelines = {name: pipeline(self._settings, name, self._stores[name]) for name in self._settings.profiles}

    def settle(self, messages: Sequence[Fuzzed]) -> Account:
        """Take messages through and account for each; ``Unaccounted`` names a single message that fails alone too."""
        try:
            return self._settle(messages)
        except Exception as error:
            for message in messages if len(messages) > 1 and not isinstance(error, Unaccounted) else ():
                self._settle_alone(message)
            raise

    def _settle_alone(self, message: Fuzzed) -> None:
        try:
            self._settle([message])
        except Exception as error:
            raise Unaccounted(f"{type(error).__name__}: {error}: {message}") from error

    def _settle(self, messages: Sequence[Fuzzed]) -> Account:
        for name, store in self._stores.items():
            store.__init__(bucket_cap=self._settings.profiles[name].bucket_cap)  # type: ignore[misc]  empty it
        metrics = Metrics()
        outputs = (self._settings.kafka.duplicates_topic, self._settings.kafka.dead_letter_topic)
        broker = MemoryBroker(dict.fromkeys((*TOPICS, *outputs), 1))
        sent = {
            broker.produce(m.topic, m.value, m.key, partition=0, timestamp_ms=m.timestamp_ms, headers=m.headers): m
            for m in messages
        }
        transport = MemoryTransport(broker, GROUP, TOPICS, max_poll_records=BATCH_RECORDS)
        options, stop = loop_options(self._settings), _AllCommitted(broker)
        rebuilder = Rebuilder(self._stores.get, MemoryHistory(broker), outputs[0])  # nothing is lost
        Loop(
            transport=transport,
            pipelines=self._pipelines,
            options=options,
            metrics=metrics,
            stop=stop,
            rebuilder=rebuilder,
        ).run()
        account = Account()
        account.pairs_count = sum(len(decode_alert(alert.value or b"").matches) for alert in broker.records(outputs[0]))
        dead = self._dead_letters(sent, broker.records(outputs[1]), account)
        self._count(metrics, len(messages), account)
        for position, message in sent.items():
            is_dead = position in dead
            fields = self._settings.profiles[message.topic].text_fields
            verdict = read(message.key, message.value, tuple(fields), MAX_TEXT_BYTES)
            account.judged_count += verdict != "either"
            if (verdict == "dead letter" and not is_dead) or (verdict == "no dead letter" and is_dead):
                became = f"a dead letter {dead[position]}" if is_dead else "none"
                raise Unaccounted(f"a second reading expects {verdict}; it became {became}: {message}")
        return account

    @staticmethod
    def _dead_letters(
        sent: Mapping[Position, Fuzzed], letters: Iterable[Record], account: Account
    ) -> dict[Position, str]:
        """Check all dead letters; return their codes by the position of their records."""
        dead: dict[Position, str] = {}
        for published in letters:
            headers = read_headers(published.headers)
            position = Position(headers["topic"], int(headers["partition"]), int(headers["offset"]))
            message = sent[position]
            if position in dead:
                raise Unaccounted(f"two dead letters of one message: {message}")
            dead[position] = code = headers["error.code"]
            account.outcomes[f"dead letter {code}"] += 1
            account.cut_count += "truncated" in headers and len(published.value or b"") < len(message.value or b"")
            if wrong := wrong_letter(message, published):
                raise Unaccounted(f"{wrong}: {message}")
        return dead

    @staticmethod
    def _count(metrics: Metrics, consumed: int, account: Account) -> None:
        """Take what the loop counted, and check that it is everything."""
        figures: Counter[str] = Counter()
        for family in metrics.registry.collect():
            for sample in family.samples:
                name = sample.name.removeprefix("streamdedup_").removesuffix("_total")
                if name == "skipped":
                    account.outcomes[f"skipped {sample.labels['reason']}"] += int(sample.value)
                figures[name] += int(sample.value) if sample.name.endswith("_total") else 0
        account.outcomes["processed"] = figures["documents_indexed"]
        account.outcomes["deleted"] = figures["documents_deleted"]
        account.outcomes = +account.outcomes
        letters = sum(n for outcome, n in account.outcomes.items() if outcome.startswith("dead letter"))
        if not figures["records"] == consumed == account.outcomes.total() or letters != figures["dead_letters"]:
            raise ValueError(f"{consumed} sent, {figures['records']} consumed, but {dict(account.outcomes)}")


_accountant = cache(Accountant)  # one for each process


def settle_chunk(order: tuple[str, int]) -> tuple[Account, int, int]:
    """Account for so many messages of a seed; return also the id and the memory of this process."""
    messages = list(fuzzed_messages(*order, time.time_ns() // 1_000_000))
    return _accountant().settle(messages), os.getpid(), rss_bytes()


def wrong_letter(message: Fuzzed, letter: Message | Record) -> str:
    """Say what is wrong with a dead letter; "" for nothing."""
    facts = read_headers(letter.headers)
    if facts["error.code"] == ErrorCode.INTERNAL:
        return f"a mistake of ours: {facts['error.message']}"
    if facts["error.code"] not in set(ErrorCode):
        return f"an error code that is none: {facts['error.code']}"
    if any(len(value) > MAX_HEADER_BYTES for name, value in letter.headers if name.startswith(PREFIX)):
        return "a header of ours is too long"
    whole = message.value if message.key is not None else message.value or b""
    earlier = read_headers(message.headers)
    # A replayed dead letter brings the digest of the value that the first letter had; other headers are ignored.
    digest = earlier.get("sha256", _sha(message)) if _is_replay(earlier, facts) else _sha(message)
    cut = "truncated" in facts and facts.get("sha256") == digest
    if letter.value != whole and not (cut and (whole or b"").startswith(letter.value or b"")):
        return "its value is another one"
    if letter.key != message.key and not (facts.get("truncated-key") and (message.key or b"").startswith(letter.key)):
        return "its key is another one"
    theirs = [(name, value or b"") for name, value in message.headers if not name.startswith(PREFIX)]
    kept = [(name, value) for name, value in letter.headers if not name.startswith(PREFIX)]
    return "" if kept == theirs or facts.get("dropped-headers") == str(len(theirs)) else "its headers are others"


def _is_replay(earlier: dict[str, str], facts: dict[str, str]) -> bool:
    """Return whether headers of an earlier dead letter name an earlier position in the partition of this one."""
    partition = ("topic", "partition")
    return (
        all(earlier.get(name) == facts[name] for name in partition)
        and re.fullmatch("[0-9]{1,18}", earlier.get("offset", "")) is not None
        and int(earlier["offset"]) < int(facts["offset"])
    )


def _sha(message: Fuzzed) -> str:
    return sha256(message.value or b"").hexdigest()
