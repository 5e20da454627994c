"""The two ends of the demo: records going in, never too far ahead of the daemon, and what comes out, shown."""

import time
from collections import Counter, deque
from collections.abc import Iterable

from rich.console import Console

from streamdedup.cli.demo_servers import DUPLICATES_TOPIC
from streamdedup.cli.show import CLOCK_FORMAT, dead_letter_code, dead_letter_line
from streamdedup.cli.tail import AlertView, Texts
from streamdedup.corpora import Entry
from streamdedup.errors import MessageError, StreamdedupError
from streamdedup.kafka.feeder import Feeder
from streamdedup.kafka.protocols import Batch
from streamdedup.wire import decode_alert

#: Bytes and records that may wait for the daemon. The broker forgets all but about the last 5 MB of a partition, of
#: what it was sent and of the alerts about it.
_MAX_AHEAD_BYTES, _MAX_AHEAD_RECORDS = 3_000_000, 8_000
#: Largest record that the broker can be trusted with.
MAX_RECORD_BYTES = 4_000_000
#: Records sent in one turn, so that alerts are shown meanwhile.
_TURN_RECORDS = 250
#: Pairs of one alert that are shown; of a spam storm's hundreds, more would only hide everything else.
_MAX_PAIRS = 10


class Replay:
    """Sends a corpus at a pace.

    Args:
        feeder: Sends the records.
        entries: What to send, each with its topic.
        pace: Most documents in a second; 0 for as many as the daemon takes.

    Attributes:
        sent_count: Records sent.
        too_large_count: Entries left out because the demo's broker takes no record as large.
        is_finished: Whether all are sent and stored.
    """

    def __init__(self, feeder: Feeder, entries: Iterable[tuple[str, Entry]], pace: float) -> None:
        self._feeder = feeder
        self._entries = iter(entries)
        self._pace = pace
        self._waiting_bytes: deque[int] = deque()
        self._ahead_bytes = 0
        self._start = time.monotonic()
        self.sent_count = 0
        self.too_large_count = 0
        self.is_finished = False

    @property
    def has_room(self) -> bool:
        """Whether the daemon is close enough behind for more to be sent."""
        return self._ahead_bytes < _MAX_AHEAD_BYTES and len(self._waiting_bytes) < _MAX_AHEAD_RECORDS

    @property
    def wait_s(self) -> float:
        """How long until the next record is due at this pace, in seconds."""
        return max(0.0, self._start + self.sent_count / self._pace - time.monotonic()) if self._pace else 0.0

    def note_consumed(self, count: int) -> None:
        """Take note of how many records the daemon has consumed in all."""
        while len(self._waiting_bytes) > self.sent_count - count:
            self._ahead_bytes -= self._waiting_bytes.popleft()

    def send_due(self) -> None:
        """Send what is due and for which there is room, a turn's worth at most.

        Raises:
            CorpusError: The corpus cannot be read on.
            BrokerUnavailable: A record could not be delivered.
            FatalError: The same, for a reason that an operator must cure.
        """
        for _ in range(_TURN_RECORDS):
            if self.is_finished or not self.has_room or self.wait_s > 0:
                return
            topic_entry = next(self._entries, None)
            if topic_entry is None:
                self._feeder.flush()
                self.is_finished = True
                return
            self._send(*topic_entry)

    def _send(self, topic: str, entry: Entry) -> None:
        key, value = entry.key, entry.value()
        size_bytes = len(key or b"") + len(value)
        if size_bytes > MAX_RECORD_BYTES:
            self.too_large_count += 1
            return
        self._feeder.send(topic, key, value)
        self.sent_count += 1
        self._waiting_bytes.append(size_bytes)
        self._ahead_bytes += size_bytes


class Audience:
    """Shows alerts and dead letters as they arrive, and remembers the pairs.

    Args:
        console: Where to.
        texts: Fetches the texts to show side by side; None shows lines only.

    Attributes:
        pairs: Similarity of each pair seen, by the two ids in order.
        pairs_count: How many pairs were seen, repeated ones included.
        dead_letters: Dead letters seen, by code.
    """

    def __init__(self, console: Console, texts: Texts | None) -> None:
        self._console = console
        self._view = AlertView(console, texts, CLOCK_FORMAT, _MAX_PAIRS)
        self.pairs: dict[tuple[str, str], float] = {}
        self.pairs_count = 0
        self.dead_letters: Counter[str] = Counter()

    def show(self, batch: Batch) -> None:
        """Show what has arrived.

        Raises:
            StreamdedupError: It is no alert of ours, or cannot be read.
        """
        for unreadable in batch.unreadable:
            raise StreamdedupError(f"{unreadable.position} cannot be read: {unreadable.reason}")
        for record in batch.records:
            if record.position.topic == DUPLICATES_TOPIC:
                self._show_alert(record.value or b"")
            else:
                self._console.print(dead_letter_line(record, CLOCK_FORMAT), soft_wrap=True)
                self.dead_letters[dead_letter_code(record)] += 1

    def _show_alert(self, value: bytes) -> None:
        try:
            part = decode_alert(value)
        except MessageError as error:
            raise StreamdedupError(f"the daemon published no alert: {error}") from error
        for match in part.alert.matches:
            first, second = sorted((part.alert.document_id, match.id))
            self.pairs[first, second] = match.similarity
            self.pairs_count += 1
        self._view.show(part)
