"""One run of ``streamdedup demo``: sends the sample, shows alerts and dead letters, and accounts for every record.

Reads counters of the daemon's metrics by their names (``daemon.metrics``).
"""

import csv
import time
from collections import Counter, defaultdict
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from importlib import resources
from itertools import zip_longest
from pathlib import Path
from typing import Final, Self

from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console

from streamdedup.cli.assembly import kafka_options
from streamdedup.cli.demo_servers import DEAD_LETTER_TOPIC, DUPLICATES_TOPIC, PROFILES, DemoServers
from streamdedup.cli.rendering.dead_letters import dead_letter_notice
from streamdedup.cli.rendering.pairs import AlertView, Fetch
from streamdedup.cli.rendering.terminal import CLOCK_FORMAT, print_line, print_rows
from streamdedup.cli.topic_reading import text_fetcher
from streamdedup.corpora import CorpusReader, Entry
from streamdedup.counts import counted, listed_counts
from streamdedup.errors import MessageError, StreamdedupError
from streamdedup.kafka.pace import Pace
from streamdedup.kafka.producer import Feeder
from streamdedup.kafka.protocols import Batch
from streamdedup.kafka.reader import TopicReader
from streamdedup.settings import Settings
from streamdedup.wire import decode_alert
from streamdedup.wire.dead_letters import DeadLetter

_METRICS_INTERVAL_S = 0.1  # interval of reading the daemon's metrics, in seconds
_FETCH_TIMEOUT_S = 10.0  # time limit for fetching a text, in seconds
_POLL_S = 0.05  # longest wait of one poll for alerts and dead letters, in seconds
#: Time without any change after which the demo fails, in seconds; the time between two records is added.
_STALL_S = 60.0
#: Folder of the sample: a corpus for each profile, and a file with the pairs that the daemon must find.
SAMPLE: Final = Path(str(resources.files("streamdedup") / "sample"))


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    """Options of ``streamdedup demo``; ``pace`` is in documents per second, 0 for no limit."""

    pace: float
    diff: bool
    keep: bool
    open_page: bool


@dataclass(frozen=True, slots=True)
class DaemonCounters:
    """Counters in the daemon's metrics; ``skipped`` is by reason, ``dead_letters`` by code."""

    consumed: int = 0
    indexed: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    dead_letters: Counter[str] = field(default_factory=Counter)
    alerts: int = 0
    pairs: int = 0

    @classmethod
    def parse(cls, metrics: str) -> Self:
        counts: dict[str, Counter[str]] = defaultdict(Counter)
        for family in text_string_to_metric_families(metrics):
            for sample in family.samples:
                if sample.name.endswith("_total"):
                    label = sample.labels.get("reason") or sample.labels.get("code") or ""
                    counts[sample.name.removeprefix("streamdedup_")][label] += round(sample.value)
        return cls(
            consumed=counts["records_total"].total(),
            indexed=counts["documents_indexed_total"].total(),
            skipped=+counts["skipped_total"],  # without zeros
            dead_letters=+counts["dead_letters_total"],
            alerts=counts["alerts_total"].total(),
            pairs=counts["pairs_total"].total(),
        )

    @property
    def is_balanced(self) -> bool:
        return self.consumed == self.indexed + self.skipped.total() + self.dead_letters.total()

    def balance(self) -> str:
        sign = "=" if self.is_balanced else "≠"
        return (
            f"{self.consumed:,} consumed {sign} {self.indexed:,} indexed + {self.skipped.total():,} skipped"
            f" + {counted(self.dead_letters.total(), 'dead letter')}"
        )


def sample_records() -> list[tuple[str, Entry]]:
    """Return the records of the sample with their topics, one from each corpus in turn."""
    readers = [CorpusReader(SAMPLE / f"{topic}.jsonl") for topic in PROFILES]
    rows = zip_longest(*readers)
    return [(topic, entry) for row in rows for topic, entry in zip(PROFILES, row, strict=True) if entry is not None]


def known_pairs() -> frozenset[tuple[str, ...]]:
    """Return the pairs of sorted ids that the daemon must find in the sample."""
    with (SAMPLE / "expected_pairs.tsv").open(encoding="utf-8", newline="") as lines:
        rows = csv.DictReader(lines, delimiter="\t")
        return frozenset(tuple(sorted((row["id1"], row["id2"]))) for row in rows)


class DocumentFeed:
    """Sends the sample at a pace; ``sent_count`` records are sent."""

    def __init__(self, feeder: Feeder, pace: float) -> None:
        self._feeder = feeder
        self._records = sample_records()
        self._pace = Pace(pace)
        self.sent_count = 0

    @property
    def is_finished(self) -> bool:
        return self.sent_count == len(self._records)

    @property
    def wait_s(self) -> float:
        return max(0.0, self._pace.until_due_s())

    def send_due(self) -> None:
        while not self.is_finished and not self.wait_s:
            topic, entry = self._records[self.sent_count]
            self._pace.wait()  # counts the record; does not wait, because the record is due
            self._feeder.send(topic, entry.key, entry.value())
            self.sent_count += 1
            if self.is_finished:
                self._feeder.flush()


class OutputView:
    """Shows alerts and dead letters, and collects the pairs; ``pairs_count`` counts a pair in two alerts twice."""

    def __init__(self, console: Console, fetch: Fetch | None) -> None:
        self._console = console
        self._view = AlertView(console, fetch, CLOCK_FORMAT)
        self.pairs: set[tuple[str, ...]] = set()
        self.pairs_count = 0
        self.dead_letters_count = 0

    def show(self, batch: Batch) -> None:
        """Show records from both output topics; an unreadable record or alert raises ``StreamdedupError``."""
        if batch.unreadable:
            unreadable = batch.unreadable[0]
            raise StreamdedupError(f"{unreadable.position} cannot be read: {unreadable.reason}")
        for record in batch.records:
            if record.position.topic == DUPLICATES_TOPIC:
                self._show_alert(record.value or b"")
            else:
                print_line(self._console, dead_letter_notice(DeadLetter(record)))
                self.dead_letters_count += 1

    def _show_alert(self, value: bytes) -> None:
        try:
            alert = decode_alert(value)
        except MessageError as error:
            raise StreamdedupError(f"the daemon published a record that is not an alert: {error}") from error
        self.pairs.update(tuple(sorted((alert.document.id, match.id))) for match in alert.matches)
        self.pairs_count += len(alert.matches)
        self._view.show(alert)


class DemoRun:
    """One demo run on running servers; ``stack`` closes the Kafka clients."""

    def __init__(self, options: DemoOptions, console: Console, servers: DemoServers, stack: ExitStack) -> None:
        self._options = options
        self._console = console
        self._servers = servers
        settings = Settings.load(servers.daemon.config_path)
        kafka = replace(
            kafka_options(settings),
            topics=(DUPLICATES_TOPIC, DEAD_LETTER_TOPIC),
            compression=None,  # as `KafkaOptions` requires for a broker in memory
            fetch_timeout_s=_FETCH_TIMEOUT_S,
        )
        self._reader = stack.enter_context(TopicReader(kafka))
        self._view = OutputView(console, text_fetcher(stack, kafka, settings) if options.diff else None)
        self._feed = DocumentFeed(stack.enter_context(Feeder(kafka)), options.pace)
        self._counters = DaemonCounters()
        self._metrics_due_at = 0.0
        self._stall_s = _STALL_S + (1 / options.pace if options.pace else 0.0)
        self._started_at = self._changed_at = time.monotonic()

    def run(self) -> float:
        """Send all documents, show the output, and return the time until the last change, in seconds."""
        while not self._is_complete():
            previous_state = self._state()
            self._feed.send_due()
            self._view.show(self._reader.poll(_POLL_S if self._feed.is_finished else min(_POLL_S, self._feed.wait_s)))
            self._update_counters()
            if self._state() != previous_state:
                self._changed_at = time.monotonic()
            elif time.monotonic() - self._changed_at > self._stall_s:
                log = self._servers.daemon.log_tail()
                raise StreamdedupError(f"no progress for {self._stall_s:.0f} s: {self._account()}{log}")
        return self._changed_at - self._started_at

    def summarise(self, duration_s: float) -> None:
        """Print the account of all records; ``StreamdedupError`` if it does not balance, or the pairs are wrong."""
        options, counters, sent = self._options, self._counters, self._feed.sent_count
        pace = f", held back to {options.pace:g} a second (--pace 0 lets go)" if options.pace else ""
        availability = "until you end this" if options.keep else "gone in a moment; --keep leaves all running"
        expected, pairs = known_pairs(), self._view.pairs
        rows = {
            "documents": self._account(),
            "alerts": f"{counters.alerts:,} documents that resemble earlier ones, {counted(counters.pairs, 'pair')}",
            "skipped": listed_counts(counters.skipped),
            "dead letters": listed_counts(counters.dead_letters),
            "speed": f"{sent / duration_s:,.0f} documents/s in {duration_s:.1f} s{pace}",
            "metrics": f"{self._servers.daemon.url('/metrics')}  ({availability})",
            "expected": f"{len(expected & pairs)} of {len(expected)} known pairs found, {len(pairs - expected)} others",
        }
        print_rows(self._console, rows)
        if counters.consumed != sent or not counters.is_balanced:
            raise StreamdedupError(f"the account does not add up: {self._account()}")
        if self._view.pairs_count != counters.pairs:
            raise StreamdedupError(f"pairs published: {counters.pairs:,}, arrived: {self._view.pairs_count:,}")
        if pairs != expected:
            raise StreamdedupError("the pairs are not the expected ones")

    def _state(self) -> tuple[int, ...]:
        return self._feed.sent_count, self._counters.consumed, self._view.pairs_count, self._view.dead_letters_count

    def _is_complete(self) -> bool:
        sent, consumed, pairs, dead_letters = self._state()
        # More may be shown than counted, because the counters are those of the last reading of the metrics.
        are_shown = pairs >= self._counters.pairs and dead_letters >= self._counters.dead_letters.total()
        return self._feed.is_finished and consumed >= sent and are_shown

    def _update_counters(self) -> None:
        """Check the servers and read the metrics, at most once in ``_METRICS_INTERVAL_S``."""
        if time.monotonic() < self._metrics_due_at:
            return
        self._counters = DaemonCounters.parse(self._servers.metrics())
        self._metrics_due_at = time.monotonic() + _METRICS_INTERVAL_S

    def _account(self) -> str:
        return f"{self._feed.sent_count:,} sent; {self._counters.balance()}"
