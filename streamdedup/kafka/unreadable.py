"""Offsets that the Kafka client (kafka-python 3.0.12) cannot parse: an ``UnreadableRange`` in place of their records.

``guard_parsing`` makes a consumer return the ranges, ``unpack`` makes an ``UnreadableRecord`` of each offset. Uses
private parts of the client, as ``compat`` does.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import Any

from kafka.consumer.fetcher import Fetcher
from kafka.errors import KafkaError

from streamdedup.kafka.batch_limits import PollBudget, RecordBatches
from streamdedup.kafka.errors import codec_missing, described
from streamdedup.kafka.protocols import Record, UnreadableRecord
from streamdedup.position import Partition, Position

#: Records by partition, as the client returns them. An ``UnreadableRange`` takes the place of unreadable records.
Polled = Mapping[Any, list[Any]]
#: Longest error text of an unreadable range, in characters.
MAX_REASON_CHARS = 200


@dataclass(frozen=True, slots=True)
class UnreadableRange:
    """Offsets from ``offset`` to ``last`` that the client cannot parse; takes a record's place in the poll result.

    Attributes:
        batch_header: Header of the record batch, with offset and checksum, by which a later fetch of it is recognised.
        value: None, and ``headers`` empty, for ``fresh_poll``, which measures all entries of a poll.
    """

    topic: str
    partition: int
    offset: int
    last: int
    reason: str
    batch_header: bytes = b""
    value: None = None
    headers: tuple[()] = ()


@dataclass
class UnreadableReports:
    """The unreadable ranges that the polls of one consumer return.

    Attributes:
        max_offsets: Most unreadable offsets that one poll returns; the rest waits for the next polls.
        ranges: Those of the present poll.
        rests: By partition, the part of a range that did not fit in a poll. If the next fetch begins with the same
            record batch, the rest is returned without parsing, which takes up to 15 seconds (6 million records).
        keeps_rests: False for a reader of single positions, which may ask for a readable record within a rest.
    """

    max_offsets: int
    keeps_rests: bool = True
    ranges: list[UnreadableRange] = field(default_factory=list)
    rests: dict[Any, UnreadableRange] = field(default_factory=dict)

    def report(self, partition: Any, unreadable: UnreadableRange) -> list[UnreadableRange]:
        """Add the part of a range that fits in this poll to ``ranges``, and return it, if any.

        Keep the rest, if rests are kept.
        """
        free_count = self.max_offsets - sum(part.last + 1 - part.offset for part in self.ranges)
        rest_start = unreadable.offset + free_count
        if rest_start <= unreadable.last and self.keeps_rests:
            self.rests[partition] = replace(unreadable, offset=rest_start)
        parts = [replace(unreadable, last=min(unreadable.last, rest_start - 1))] if free_count > 0 else []
        self.ranges += parts
        return parts


def guard_parsing(consumer: Any, max_offsets: int, *, keeps_rests: bool = True) -> list[UnreadableRange]:
    """Make a consumer return unreadable offsets as ``UnreadableRange``, and limit the bytes of a poll (``PollBudget``).

    Returns a list to which each poll adds its ranges; the caller empties it before each poll whose records it uses.
    For ``max_offsets`` and ``keeps_rests`` see ``UnreadableReports``.

    Unreadable means: an unknown codec, a wrong checksum, a header name that is not UTF-8, a batch above the limits of
    ``limit_batches``. The first unreadable record also hides the records behind it in the same record batch. The client
    raises an error that names no offset and keeps the exhausted parser, so that no later poll returns, even with a
    timeout.
    """
    reports = UnreadableReports(max_offsets, keeps_rests)
    budget = PollBudget()
    consumer._fetcher.PartitionRecords = partial(_GuardedParser, reports, budget)
    _keep_unparsed(consumer._fetcher, budget)
    return reports.ranges


class _GuardedParser(Fetcher.PartitionRecords):  # type: ignore[misc]  # the client is untyped
    """The client's parser of one fetched partition; adds nothing to the work per record."""

    def __init__(self, reports: UnreadableReports, budget: PollBudget, *fetch: Any, **options: Any) -> None:
        offset, partition, records = fetch
        self._reports = reports
        self._batches = RecordBatches(records, budget, offset)
        super().__init__(offset, partition, self._batches, **options)

    def take(self, n: int | None = None) -> list[Any]:
        """Return up to ``n`` records, or one unreadable range, or nothing if the next fetch is to begin with the range.

        Raises ``CodecMissing`` if the library of a codec is not installed: the records become readable once it is.
        """
        # The rest of a range, if this fetch begins with the record batch of the last poll's range.
        rest = self._reports.rests.pop(self.topic_partition, None)
        if rest is not None and (rest.offset, rest.batch_header) == (self.fetch_offset, self._batches.next_header()):
            self.drain()
            return self._step_past(rest)
        try:
            records: list[Any] = super().take(n)
        except MemoryError:  # no record is to blame, so none is stepped past
            self.drain()
            raise
        except Exception as error:
            self.drain()  # otherwise the client polls the exhausted parser forever
            self._batches.charge_unreadable()
            attempt = f"cannot read {Partition(*self.topic_partition)} from offset {self._next_offset()} on"
            missing = codec_missing(error, attempt)
            if missing is not None:
                raise missing from error
            if self.next_fetch_offset > self.fetch_offset:
                return []  # earlier records were readable: the next fetch begins here
            return self._step_past(self._unreadable_range(error, attempt))
        return records

    def _next_offset(self) -> int:
        """Return the next offset to parse; ``next_fetch_offset`` is less while the client skips earlier records."""
        return int(max(self.next_fetch_offset, self.fetch_offset))

    def _step_past(self, unreadable: UnreadableRange) -> list[UnreadableRange]:
        """Return the part of the range that this poll returns, if any, and set the position behind it."""
        parts = self._reports.report(self.topic_partition, unreadable)
        if parts:
            self.next_fetch_offset = parts[0].last + 1
        return parts

    def _unreadable_range(self, error: Exception, attempt: str) -> UnreadableRange:
        """Return the range from the next offset to the end of the record batch."""
        batch = self._batches.current
        if batch is None or batch.magic < 2 or batch.last_offset < self._next_offset():
            # Formats before Kafka 0.11 have no header with the last offset, and the header itself may be damaged.
            advice = "move the group's offset behind the damaged record batch, whose header has no last offset"
            raise KafkaError(f"{attempt}: {advice} [{described(error)}]") from error
        start = max(self._next_offset(), batch.base_offset)  # compaction may have left a gap before the batch
        reason = described(error)[:MAX_REASON_CHARS]
        topic, partition = self.topic_partition
        header = batch.HEADER_STRUCT.pack(*batch._header_data)
        return UnreadableRange(topic, partition, start, batch.last_offset, reason, header)


def _keep_unparsed(fetcher: Any, budget: PollBudget) -> None:
    """Renew ``budget`` for each poll; when it is spent, keep the remaining fetches for the next poll.

    The client would begin such a fetch, get no record, drop the fetch and send it again. A broker keeps the order of
    the partitions in its answers, so no record of the partition would be read as long as an earlier partition has a
    backlog of large record batches.
    """
    fetched_records, parse = fetcher.fetched_records, fetcher._parse_fetched_data
    kept: list[Any] = []

    def parse_within_budget(fetch: Any) -> Any:
        if budget.left_bytes > 0:
            return parse(fetch)
        kept.append(fetch)
        return None  # as for an outdated fetch: the client takes the next one

    def records_within_budget(*arguments: Any, **options: Any) -> Any:
        budget.renew()
        try:
            records, is_partial = fetched_records(*arguments, **options)
            # While the second value is true, the client sends no new fetches; otherwise the kept ones would pile up.
            return records, is_partial or bool(kept)
        finally:
            fetcher._completed_fetches.extendleft(reversed(kept))
            kept.clear()

    fetcher._parse_fetched_data = parse_within_budget
    fetcher.fetched_records = records_within_budget


def unpack(polled: Polled, *, has_unreadable: bool) -> tuple[tuple[Record, ...], tuple[UnreadableRecord, ...]]:
    """Return records and unreadable positions; ``has_unreadable``: whether ``polled`` has an ``UnreadableRange``."""
    unreadable: tuple[UnreadableRecord, ...] = ()
    if has_unreadable:  # rare; otherwise no entry of `polled` is searched. The order in a partition is kept.
        unreadable = tuple(
            UnreadableRecord(Position(entry.topic, entry.partition, offset), entry.reason)
            for entry in chain.from_iterable(polled.values())
            if isinstance(entry, UnreadableRange)
            for offset in range(entry.offset, entry.last + 1)
        )
        polled = {
            partition: [record for record in records if not isinstance(record, UnreadableRange)]
            for partition, records in polled.items()
        }
    records = tuple(
        [  # faster than a generator, for each record
            Record(
                Position(record.topic, record.partition, record.offset),
                record.timestamp,
                record.key,
                record.value,
                tuple(record.headers),
            )
            for records in polled.values()
            for record in records
        ]
    )
    return records, unreadable
