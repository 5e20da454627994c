"""One run of the demo: send documents, show alerts and dead letters, and check that every record is accounted for."""

import time
from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Any, Self, TextIO

from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console
from rich.progress import Progress, TaskID

from streamdedup.cli.assembly import kafka_options
from streamdedup.cli.dead_letters import DeadLetter
from streamdedup.cli.demo_servers import DEAD_LETTER_TOPIC, DUPLICATES_TOPIC, DemoServers
from streamdedup.cli.pace import Pace
from streamdedup.cli.rendering.dead_letters import dead_letter_notice
from streamdedup.cli.rendering.pairs import AlertView, Fetch, Pair, write_pairs
from streamdedup.cli.rendering.terminal import CLOCK_FORMAT, print_rows
from streamdedup.cli.topic_reading import KafkaTexts, decoders_of
from streamdedup.corpora import CorpusReader, Entry
from streamdedup.errors import MessageError, StreamdedupError
from streamdedup.kafka.producer import Feeder
from streamdedup.kafka.protocols import Batch
from streamdedup.kafka.reader import RecordFetcher, TopicReader
from streamdedup.settings import Settings
from streamdedup.settings.units import counted
from streamdedup.wire import decode_alert

#: Interval of reading the daemon's metrics, in seconds.
_METRICS_INTERVAL_S = 0.1
#: Time limit for fetching a text, in seconds.
_FETCH_TIMEOUT_S = 10.0
#: Longest wait for alerts, in seconds.
_POLL_S = 0.05
#: The demo fails after this time without progress, in seconds.
_STALL_S = 60.0
#: Bytes and records that may wait for the daemon. The broker keeps about the last 5 MB of each partition.
_MAX_AHEAD_BYTES, _MAX_AHEAD_RECORDS = 3_000_000, 8_000
#: Largest record that the broker keeps reliably.
_MAX_RECORD_BYTES = 4_000_000
#: Records sent before alerts are shown again.
_SEND_RECORDS = 250
#: Pairs of one alert that are shown; an alert in a spam storm has hundreds.
_MAX_PAIRS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    """Options of the demo.

    Attributes:
        readers: Corpus of each profile; its name is also the topic.
        profiles: Settings of each profile.
        total_count: Number of records, if known.
        pace: Documents per second; 0 for no limit.
        diff: Show texts side by side.
        expected: Expected pairs, by their sorted ids, if known.
        keep: Leave the servers running at the end.
        open_page: Open the page in the browser.
    """

    readers: Mapping[str, CorpusReader]
    profiles: Mapping[str, Mapping[str, Any]]
    total_count: int | None = None
    pace: float = 0.0
    diff: bool = False
    expected: frozenset[tuple[str, ...]] | None = None
    keep: bool = False
    open_page: bool = False


@dataclass(frozen=True, slots=True)
class DaemonCounters:
    """Counters in the metrics of the daemon; ``skipped`` is by reason, ``dead_letters`` by code."""

    consumed: int = 0
    indexed: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    dead_letters: Counter[str] = field(default_factory=Counter)
    alerts: int = 0
    pairs: int = 0

    @classmethod
    def parse(cls, metrics: str) -> Self:
        """Read the counters from Prometheus' text format."""
        counts: dict[str, Counter[str]] = defaultdict(Counter)
        for family in text_string_to_metric_families(metrics):
            for sample in family.samples:
                if sample.name.endswith("_total"):
                    label = sample.labels.get("reason") or sample.labels.get("code") or ""
                    counts[sample.name.removeprefix("streamdedup_")][label] += round(sample.value)
        return cls(
            consumed=counts["records_total"].total(),
            indexed=counts["documents_indexed_total"].total(),
            skipped=counts["skipped_total"],
            dead_letters=counts["dead_letters_total"],
            alerts=counts["alerts_total"].total(),
            pairs=counts["pairs_total"].total(),
        )

    @property
    def is_balanced(self) -> bool:
        """Whether every consumed record was indexed, skipped or dead-lettered."""
        return self.consumed == self.indexed + self.skipped.total() + self.dead_letters.total()

    def balance(self) -> str:
        """Return the account as one line."""
        sign = "=" if self.is_balanced else "≠"
        return (
            f"{self.consumed:,} consumed {sign} {self.indexed:,} indexed + {self.skipped.total():,} skipped"
            f" + {counted(self.dead_letters.total(), 'dead letter')}"
        )


def listed(counts: Counter[str]) -> str:
    """Return counts by name as one line, the largest first, without zeros."""
    ordered = sorted((+counts).items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{count:,} {name}" for name, count in ordered) or "none"


class DocumentFeed:
    """Sends the corpora of all profiles alternately, at a pace and never too far ahead of the daemon.

    Attributes:
        sent_count: Records sent.
        too_large_count: Records left out, because the broker of the demo does not keep their size.
        is_finished: Whether all records are sent and stored.
    """

    def __init__(self, feeder: Feeder, options: DemoOptions) -> None:
        self._feeder = feeder
        self._entries = _alternating(options.readers)
        self._pace = Pace(options.pace)
        self._ahead_sizes: deque[int] = deque()
        self._ahead_bytes = 0
        self.sent_count = 0
        self.too_large_count = 0
        self.is_finished = False

    @property
    def wait_s(self) -> float:
        """Time until the next record is due, in seconds."""
        return max(0.0, self._pace.ahead_s())

    @property
    def has_room(self) -> bool:
        """Whether the daemon is close enough behind."""
        return self._ahead_bytes < _MAX_AHEAD_BYTES and len(self._ahead_sizes) < _MAX_AHEAD_RECORDS

    def update_consumed(self, count: int) -> None:
        """Set the number of records that the daemon has consumed."""
        while len(self._ahead_sizes) > self.sent_count - count:
            self._ahead_bytes -= self._ahead_sizes.popleft()

    def send_due(self) -> None:
        """Send at most 250 of the records that are due."""
        for _ in range(_SEND_RECORDS):
            if self.is_finished or not self.has_room or self.wait_s > 0:
                return
            topic, entry = next(self._entries, (None, None))
            if topic is None or entry is None:
                self._feeder.flush()
                self.is_finished = True
                return
            self._send(topic, entry)

    def _send(self, topic: str, entry: Entry) -> None:
        key, value = entry.key, entry.value()
        size_bytes = len(key or b"") + len(value)
        if size_bytes > _MAX_RECORD_BYTES:
            self.too_large_count += 1
            return
        self._pace.wait()
        self._feeder.send(topic, key, value)
        self.sent_count += 1
        self._ahead_sizes.append(size_bytes)
        self._ahead_bytes += size_bytes


def _alternating(readers: Mapping[str, CorpusReader]) -> Iterator[tuple[str, Entry]]:
    """Yield one entry of each corpus in turn, with the name of the corpus."""
    for entries in zip_longest(*readers.values()):
        yield from ((name, entry) for name, entry in zip(readers, entries, strict=True) if entry is not None)


class OutputView:
    """Shows alerts and dead letters, with both texts of each pair if ``fetch`` is given, and collects the pairs.

    Attributes:
        pairs: Similarity of each pair, by the sorted ids.
        pairs_count: Number of pairs, repeated ones included.
        dead_letters_count: Number of dead letters.
    """

    def __init__(self, console: Console, fetch: Fetch | None) -> None:
        self._console = console
        self._view = AlertView(console, fetch, CLOCK_FORMAT, _MAX_PAIRS)
        self.pairs: dict[tuple[str, str], float] = {}
        self.pairs_count = 0
        self.dead_letters_count = 0

    def show(self, batch: Batch) -> None:
        """Show records of both output topics; one that is unreadable or not an alert raises ``StreamdedupError``."""
        for unreadable in batch.unreadable:
            raise StreamdedupError(f"{unreadable.position} cannot be read: {unreadable.reason}")
        for record in batch.records:
            if record.position.topic == DUPLICATES_TOPIC:
                self._show_alert(record.value or b"")
            else:
                self._console.print(dead_letter_notice(DeadLetter(record)), soft_wrap=True)
                self.dead_letters_count += 1

    def _show_alert(self, value: bytes) -> None:
        try:
            alert = decode_alert(value).alert
        except MessageError as error:
            raise StreamdedupError(f"the daemon published a record that is not an alert: {error}") from error
        for match in alert.matches:
            first, second = sorted((alert.document_id, match.id))
            self.pairs[first, second] = match.similarity
        self.pairs_count += len(alert.matches)
        self._view.show(alert)


class DemoRun:
    """One run of the demo on running servers; ``stack`` closes its clients."""

    def __init__(self, options: DemoOptions, console: Console, servers: DemoServers, stack: ExitStack) -> None:
        self._options = options
        self._console = console
        self._servers = servers
        settings = Settings.load(servers.daemon.config_path)
        kafka = replace(
            kafka_options(settings),
            topics=(DUPLICATES_TOPIC, DEAD_LETTER_TOPIC),
            max_request_bytes=_MAX_RECORD_BYTES * 5 // 4,  # with the overhead of the protocol
            compression=None,
            fetch_timeout_s=_FETCH_TIMEOUT_S,
        )
        self._reader = stack.enter_context(TopicReader(kafka, from_beginning=True))
        fetch = None
        if options.diff:
            fetch = KafkaTexts(stack.enter_context(RecordFetcher(kafka)), decoders_of(settings)).side
        self._view = OutputView(console, fetch)
        self._feed = DocumentFeed(stack.enter_context(Feeder(kafka)), options)
        self._counters = DaemonCounters()
        self._metrics_due_at = 0.0
        self._start = self._moved_at = time.monotonic()

    def run(self, progress: Progress, task: TaskID) -> float:
        """Send all documents, show the output, and return the duration in seconds.

        Raises:
            StreamdedupError: A server has ended, or nothing happened for 60 seconds.
        """
        while not self._is_complete():
            before = self._state()
            self._feed.send_due()
            can_send = self._feed.has_room and not self._feed.is_finished
            self._view.show(self._reader.poll(min(_POLL_S, self._feed.wait_s) if can_send else _POLL_S))
            self._update_counters()
            progress.update(task, **self._progress())
            if self._state() != before:
                self._moved_at = time.monotonic()
            elif time.monotonic() - self._moved_at > max(_STALL_S, self._feed.wait_s):
                log = self._servers.daemon.log_tail()
                raise StreamdedupError(f"no progress for {_STALL_S:.0f} s: {self._account()}{log}")
        return self._moved_at - self._start

    def summarise(self, duration_s: float) -> None:
        """Print the account.

        Raises:
            StreamdedupError: It does not balance, or the pairs are not the expected ones.
        """
        options, counters, sent = self._options, self._counters, self._feed.sent_count
        pace = f", held back to {options.pace:g} a second (--pace 0 lets go)" if options.pace else ""
        # Nothing moves when there is nothing to send.
        speed = sent / duration_s if duration_s else 0.0
        lifetime = "until you end this" if options.keep else "gone in a moment; --keep leaves all running"
        alerts = f"{counters.alerts:,} documents that resemble earlier ones"
        if counters.alerts == 1:
            alerts = "1 document that resembles an earlier one"
        rows = {
            "documents": self._account(),
            "alerts": f"{alerts}, {counted(counters.pairs, 'pair')}",
            "skipped": listed(counters.skipped),
            "dead letters": listed(counters.dead_letters),
            "speed": f"{speed:,.0f} documents/s in {duration_s:.1f} s{pace}",
            "metrics": f"{self._servers.daemon.url('/metrics')}  ({lifetime})",
        }
        if options.expected is not None:
            found = options.expected & self._view.pairs.keys()
            others = len(self._view.pairs) - len(found)
            rows["expected"] = f"{len(found):,} of {len(options.expected):,} known pairs found, {others:,} others"
        if too_large := self._feed.too_large_count:
            rows["left out"] = f"{counted(too_large, 'document')} larger than the demo's broker takes"
        print_rows(self._console, rows)
        if problem := self._problem():
            raise StreamdedupError(problem)

    def write_pairs(self, output: TextIO) -> None:
        """Write the pairs in the format of ``streamdedup scan``."""
        pairs = [Pair(id1, id2, value, "", 0) for (id1, id2), value in self._view.pairs.items()]
        write_pairs(pairs, output, as_json=False)

    def _state(self) -> tuple[int, ...]:
        return self._feed.sent_count, self._counters.consumed, self._view.pairs_count, self._view.dead_letters_count

    def _is_complete(self) -> bool:
        sent, consumed, pairs, dead_letters = self._state()
        shown = pairs >= self._counters.pairs and dead_letters >= self._counters.dead_letters.total()
        return self._feed.is_finished and consumed >= sent and shown

    def _update_counters(self) -> None:
        """Check the servers and read the metrics, at most every 0.1 seconds."""
        if time.monotonic() < self._metrics_due_at:
            return
        self._counters = DaemonCounters.parse(self._servers.metrics())
        self._feed.update_consumed(self._counters.consumed)
        self._metrics_due_at = time.monotonic() + _METRICS_INTERVAL_S

    def _progress(self) -> dict[str, Any]:
        consumed = self._counters.consumed
        speed = consumed / max(time.monotonic() - self._start, _METRICS_INTERVAL_S)
        return {
            "completed": self._share() if consumed else 0.0,
            "counts": f"{consumed:,} documents  {self._view.pairs_count:,} pairs  {speed:,.0f}/s",
        }

    def _share(self) -> float:
        """Return the share of the work that is done; without a count of records, by the bytes read of the files."""
        consumed, readers = self._counters.consumed, self._options.readers.values()
        if self._options.total_count is not None:
            return consumed / max(self._options.total_count, 1)
        total_bytes = sum(reader.total_bytes or 0 for reader in readers)
        read_share = sum(reader.bytes_read for reader in readers) / total_bytes if total_bytes else 0.0
        return read_share * consumed / max(self._feed.sent_count, 1)

    def _account(self) -> str:
        return f"{self._feed.sent_count:,} sent; {self._counters.balance()}"

    def _problem(self) -> str | None:
        if self._counters.consumed != self._feed.sent_count or not self._counters.is_balanced:
            return f"the account does not add up: {self._account()}"
        if self._view.pairs_count != self._counters.pairs:
            return f"pairs published: {self._counters.pairs:,}, arrived: {self._view.pairs_count:,}"
        if self._options.expected is not None and self._options.expected != self._view.pairs.keys():
            return "the pairs are not the expected ones"
        return None
