"""The dead-letter breaker: raises when too many records of a topic would become dead letters.

``publisher`` calls ``check`` before a batch is published, ``loop`` calls ``remember`` after its commit, and halts when
``check`` raises. A change touches ``settings.service`` (the limit) and docs/operating.md (an open breaker).
"""

from collections import Counter, defaultdict, deque
from collections.abc import Collection, Sequence

from streamdedup.daemon.batch import FailedRecord
from streamdedup.errors import DeadLetterBurst
from streamdedup.kafka.protocols import Batch
from streamdedup.position import Position

#: Number of a topic's last records among which dead letters are counted: half the default batch size. A lasting fault
#: halts the daemon within a batch, and a short fault of a producer passes.
LAST_RECORDS = 1_000


class DeadLetterBreaker:
    """Raises for more than ``limit`` dead letters among the last ``last_records`` of a topic; None for no limit."""

    def __init__(self, limit: int | None, last_records: int = LAST_RECORDS) -> None:
        self._limit = limit
        self._last_records = last_records
        #: For each of a topic's last committed records, whether it became a dead letter.
        self._recent: dict[str, deque[bool]] = defaultdict(lambda: deque(maxlen=last_records))

    def check(self, batch: Batch, dead_letters: Sequence[FailedRecord]) -> None:
        """Raise ``DeadLetterBurst`` if, at some record of this batch, its topic has more than ``limit`` of them."""
        limit = self._limit
        if limit is None or not dead_letters:
            return
        failed = {letter.record.position for letter in dead_letters}
        for topic in {position.topic for position in failed}:
            count = self._largest_count(topic, batch, failed)
            if count > limit:
                of_topic = [letter for letter in dead_letters if letter.record.position.topic == topic]
                example, codes = of_topic[0], Counter(letter.failure.code for letter in of_topic)
                by_code = ", ".join(f"{code_count} {code}" for code, code_count in codes.most_common())
                raise DeadLetterBurst(
                    f"{count} of the last {self._last_records} records of {topic} would be dead letters "
                    f"({by_code} in this batch; {example.record.position}: {example.failure.message}). Nothing more is "
                    "published. Correct the sender or the settings. Bad records that are already in the topic become "
                    'dead letters after a restart with service.dead_letter_limit = "none"'
                )

    def remember(self, batch: Batch, dead_letters: Sequence[FailedRecord]) -> None:
        if self._limit is None:
            return
        failed = {letter.record.position for letter in dead_letters}
        for position in batch.positions():
            self._recent[position.topic].append(position in failed)

    def _largest_count(self, topic: str, batch: Batch, failed: Collection[Position]) -> int:
        """Return the largest count of dead letters among a topic's last records, up to any record of this batch."""
        recent = self._recent[topic].copy()
        largest, count = 0, sum(recent)
        for position in batch.positions():
            if position.topic == topic:
                if len(recent) == recent.maxlen:
                    count -= recent[0]  # the oldest record, which `append` drops
                recent.append(position in failed)
                count += recent[-1]
                largest = max(largest, count)
        return largest
