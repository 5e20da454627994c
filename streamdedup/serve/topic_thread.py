"""A reader of the alerts topic or the dead-letter topic in a thread of its own, for ``feed``."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from streamdedup.errors import BrokerMisconfigured, BrokerUnavailable, MessageError
from streamdedup.kafka.protocols import Record
from streamdedup.kafka.reader import TopicReader
from streamdedup.position import Partition
from streamdedup.serve.events import MAX_PARTITIONS, Offsets, ResumePlan
from streamdedup.serve.stream_kinds import StreamKind
from streamdedup.serve.subscriber import EventBatch

T = TypeVar("T")

_POLL_S: Final = 0.5  # longest wait for records in one call of a reader, in seconds


class ReaderThread:
    """A reader of a topic, and the one thread that uses the reader; makes events of ``kind``."""

    def __init__(self, kind: StreamKind, open_reader: Callable[[], TopicReader]) -> None:
        self._kind = kind
        self._open_reader = open_reader
        self._reader: TopicReader | None = None
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=kind.name)

    async def open(self, plan: Callable[[Offsets, Offsets], ResumePlan]) -> ResumePlan:
        """Open the reader at the offsets that ``plan`` makes of the first and end offset of each partition."""

        def open_and_start() -> ResumePlan:
            self._reader = reader = self._open_reader()
            if len(reader.ends) > MAX_PARTITIONS:
                raise BrokerMisconfigured(f"the topic of {self._kind.name} has more than {MAX_PARTITIONS} partitions")
            planned = plan(_as_offsets(reader.beginnings), _as_offsets(reader.ends))
            reader.start_at(dict(zip(sorted(reader.ends), planned.offsets, strict=True)))
            return planned

        return await self._run(open_and_start)

    async def read(self) -> EventBatch:
        """Return the next events, or none after ``_POLL_S``."""
        return await self._run(self._read)

    def _read(self) -> EventBatch:
        if self._reader is None:
            raise BrokerUnavailable("the reader is not open")
        batch = self._reader.poll(_POLL_S)
        # Every event id names an offset for each partition, so a reader keeps the partitions with which it began.
        if self._reader.has_new_partitions():
            raise BrokerUnavailable("the topic has new partitions; subscribers resume with all of them")
        events, unreadable_count = [], len(batch.unreadable)
        for record in by_time(batch.records):
            try:
                events.append(self._kind.event_of(record))
            except MessageError:
                unreadable_count += 1
        return EventBatch(tuple(events), _as_offsets(self._reader.positions()), unreadable_count)

    def close(self) -> None:
        """Close the reader in its thread, after the call in progress; return at once."""
        self._thread.submit(self._close)
        self._thread.shutdown(wait=False)

    def _close(self) -> None:
        if self._reader is not None:
            self._reader.close()

    async def _run(self, function: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, function)


def by_time(records: Sequence[Record]) -> list[Record]:
    """Return the records of several partitions sorted by time; the order within each partition is kept."""
    latest_times: dict[int, int] = {}
    # The latest time so far in the partition: a record with an earlier time than its predecessor stays behind it.
    sort_times = []
    for record in records:
        partition = record.position.partition
        latest_times[partition] = max(record.timestamp_ms, latest_times.get(partition, record.timestamp_ms))
        sort_times.append(latest_times[partition])
    return [records[row] for row in sorted(range(len(records)), key=sort_times.__getitem__)]


def _as_offsets(offsets: Mapping[Partition, int]) -> Offsets:
    return tuple(offset for _, offset in sorted(offsets.items()))
