"""One run of the demo: what goes in, what comes out, and the account at the end."""

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

from rich.console import Console
from rich.progress import Progress, TaskID
from rich.text import Text

from streamdedup.cli.assembly import kafka_options
from streamdedup.cli.demo_figures import Figures, listed
from streamdedup.cli.demo_replay import MAX_RECORD_BYTES, Audience, Replay
from streamdedup.cli.demo_servers import DEAD_LETTER_TOPIC, DUPLICATES_TOPIC, Servers
from streamdedup.cli.output import Output
from streamdedup.cli.scan import Pair, write_pairs
from streamdedup.cli.tail import Texts, decoders_of
from streamdedup.corpora import CorpusReader, Entry
from streamdedup.errors import StreamdedupError
from streamdedup.kafka.feeder import Feeder
from streamdedup.kafka.reader import RecordFetcher, TopicReader
from streamdedup.settings import Settings
from streamdedup.settings.units import counted

#: Between two looks at the daemon's metrics and at the servers, in seconds.
_LOOK_S = 0.1
#: How long fetching a text may take, in seconds.
_FETCH_TIMEOUT_S = 10.0
#: Longest wait for alerts before the next turn, in seconds.
_POLL_S = 0.05
#: The demo gives up when nothing has moved for so long, in seconds.
_STALL_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Show:
    """What the user asked to see.

    Attributes:
        readers: The corpus of each profile; its name is also the topic.
        profiles: Settings of each profile.
        total_count: How many records there are; None where nobody knows before the end.
        pace: Documents a second; 0 for as many as the daemon takes.
        diff: Whether to show texts side by side.
        expected: The pairs that must come out, by their ids in order; None where nobody knows them.
        keep: Whether to leave everything running at the end.
    """

    readers: Mapping[str, CorpusReader]
    profiles: Mapping[str, Mapping[str, Any]]
    total_count: int | None
    pace: float
    diff: bool
    expected: frozenset[tuple[str, str]] | None
    keep: bool


class Demo:
    """One run: servers, what goes in, what comes out, and the account at the end.

    Args:
        show: What the user asked to see.
        console: Where to.
        servers: Running.
        stack: Closes what is opened here.

    Raises:
        BrokerUnavailable: The broker does not answer.
    """

    def __init__(self, show: Show, console: Console, servers: Servers, stack: ExitStack) -> None:
        self._show = show
        self._console = console
        self._servers = servers
        settings = Settings.load(servers.daemon.config_path)
        options = replace(
            kafka_options(settings),
            topics=(DUPLICATES_TOPIC, DEAD_LETTER_TOPIC),
            max_request_bytes=MAX_RECORD_BYTES * 5 // 4,  # frames and lengths included
            compression=None,
            fetch_timeout_s=_FETCH_TIMEOUT_S,
        )
        self._reader = stack.enter_context(TopicReader(options, from_beginning=True))
        texts = Texts(stack.enter_context(RecordFetcher(options)), decoders_of(settings)) if show.diff else None
        self._audience = Audience(console, texts)
        feeder = stack.enter_context(Feeder(options))
        self._replay = Replay(feeder, interleaved(show.readers), show.pace)
        self._figures = Figures()
        self._look_at = 0.0
        self._start = self._moved_at = time.monotonic()

    def run(self, progress: Progress, task: TaskID) -> float:
        """Send everything, show what comes out, and return how long it took in seconds.

        Raises:
            StreamdedupError: A server has ended, or nothing moves any more.
        """
        while not self._is_complete():
            before = self._state()
            self._replay.send_due()
            self._audience.show(self._reader.poll(self._patience_s()))
            self._look()
            progress.update(task, **self._progress())
            if self._state() != before:
                self._moved_at = time.monotonic()
            elif time.monotonic() - self._moved_at > max(_STALL_S, self._replay.wait_s):
                log = self._servers.daemon.log_tail()
                raise StreamdedupError(f"nothing has moved for {_STALL_S:.0f} s: {self._account()}{log}")
        return self._moved_at - self._start

    def summarise(self, duration_s: float) -> None:
        """Print the account, and check it.

        Raises:
            StreamdedupError: It does not add up.
        """
        figures = self._figures
        speed = f"{self._replay.sent_count / duration_s:,.0f} documents/s in {duration_s:.1f} s"
        pace = f", held back to {self._show.pace:g} a second (--pace 0 lets go)" if self._show.pace else ""
        lifetime = "until you end this" if self._show.keep else "gone in a moment; --keep leaves all running"
        alerts = f"{figures.alerts_count:,} documents that resemble earlier ones"
        if figures.alerts_count == 1:
            alerts = "1 document that resembles an earlier one"
        rows = {
            "documents": f"{self._replay.sent_count:,} sent; {figures.balance()}",
            "alerts": f"{alerts}, {counted(figures.pairs_count, 'pair')}",
            "skipped": listed(figures.skipped),
            "dead letters": listed(figures.dead_letters),
            "speed": speed + pace,
            "metrics": f"{self._servers.daemon.metrics_url}  ({lifetime})",
        }
        if self._show.expected is not None:
            found = self._show.expected & self._audience.pairs.keys()
            others = len(self._audience.pairs) - len(found)
            rows["expected"] = f"{len(found):,} of {len(self._show.expected):,} known pairs found, {others:,} others"
        if self._replay.too_large_count:
            rows["left out"] = (
                f"{counted(self._replay.too_large_count, 'document')} larger than the demo's broker takes"
            )
        print_rows(self._console, rows)
        problem = self._problem()
        if problem:
            raise StreamdedupError(problem)

    def write_pairs(self, output: Output) -> None:
        """Write the pairs seen, in the format of ``streamdedup scan``."""
        pairs = [Pair(id1, id2, value, "", 0) for (id1, id2), value in self._audience.pairs.items()]
        write_pairs(pairs, output, as_json=False)

    def _is_complete(self) -> bool:
        seen = self._audience.pairs_count, self._audience.dead_letters.total()
        published = self._figures.pairs_count, self._figures.dead_letters.total()
        return (
            self._replay.is_finished and self._figures.consumed_count >= self._replay.sent_count and seen >= published
        )

    def _state(self) -> tuple[int, ...]:
        return (
            self._replay.sent_count,
            self._figures.consumed_count,
            self._audience.pairs_count,
            self._audience.dead_letters.total(),
        )

    def _patience_s(self) -> float:
        """How long the next poll may wait: not at all while there is more to send."""
        if self._replay.is_finished or not self._replay.has_room:
            return _POLL_S
        return min(_POLL_S, self._replay.wait_s)

    def _look(self) -> None:
        """See that all servers run, and what the daemon has done; at times only, for it costs the daemon something."""
        now = time.monotonic()
        if now < self._look_at:
            return
        self._figures = Figures.parse(self._servers.metrics())
        self._replay.note_consumed(self._figures.consumed_count)
        self._look_at = time.monotonic() + _LOOK_S

    def _progress(self) -> dict[str, Any]:
        consumed = self._figures.consumed_count
        speed = consumed / max(time.monotonic() - self._start, _LOOK_S)
        return {
            "completed": self._share() if consumed else 0.0,
            "figures": f"{consumed:,} documents  {self._audience.pairs_count:,} pairs  {speed:,.0f}/s",
        }

    def _share(self) -> float:
        """Return how much of all is done; what is read of the files tells how much is sent, where nobody knows."""
        if self._show.total_count is not None:
            return self._figures.consumed_count / max(self._show.total_count, 1)
        sizes = [(reader.bytes_read, reader.total_bytes or 0) for reader in self._show.readers.values()]
        total_bytes = sum(total for _, total in sizes)
        read_share = sum(read for read, _ in sizes) / total_bytes if total_bytes else 0.0
        return read_share * self._figures.consumed_count / max(self._replay.sent_count, 1)

    def _account(self) -> str:
        return f"{self._replay.sent_count:,} sent; {self._figures.balance()}"

    def _problem(self) -> str | None:
        """Return what does not add up."""
        if self._figures.consumed_count != self._replay.sent_count or not self._figures.is_balanced:
            return f"the account does not add up: {self._account()}"
        if self._audience.pairs_count != self._figures.pairs_count:
            return f"pairs published: {self._figures.pairs_count:,}, arrived: {self._audience.pairs_count:,}"
        if self._show.expected is not None and self._show.expected != self._audience.pairs.keys():
            return "the pairs are not the expected ones"
        return None


def interleaved(readers: Mapping[str, CorpusReader]) -> Iterator[tuple[str, Entry]]:
    """Yield the entries of all corpora in turn, each with the name of its corpus."""
    waiting = {name: iter(reader) for name, reader in readers.items()}
    while waiting:
        for name, entries in list(waiting.items()):
            entry = next(entries, None)
            if entry is None:
                del waiting[name]
            else:
                yield name, entry


def print_rows(console: Console, rows: Mapping[str, str]) -> None:
    """Print names and texts as a block of lines."""
    console.print()
    for name, text in rows.items():
        console.print(Text.assemble((f"  {name:<13}", "bold"), text), soft_wrap=True)
