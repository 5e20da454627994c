"""Reads one batch ahead in a backlog: a thread prepares the next batch while the current one is indexed.

For each batch ``loop`` calls ``poll`` and ``take_prepared``, and in a backlog (``may_read_ahead``) ``poll_ahead`` and
``prepare_ahead``; when it undoes a batch it calls ``discard``.

The thread only calls the decoders and ``Detector.prepare``. All requests to Kafka and to the index stay in the loop's
thread, so that no client is used by two threads.

The batch ahead is polled before the current batch is indexed. Most of its records have arrived by then, because the
client fetches in the background, and a rebalance that the poll joins is known before anything is written.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager

from streamdedup.daemon.batch import BatchProcessor, Chunk, DecodedBatch
from streamdedup.daemon.loop_log import log
from streamdedup.daemon.slow_start import SlowStart
from streamdedup.detection.chunks import CHUNK_CHARACTERS
from streamdedup.errors import StreamdedupError
from streamdedup.index.values import Fence
from streamdedup.kafka.batch_limits import content_bytes
from streamdedup.kafka.protocols import Batch, Source
from streamdedup.position import Partition

#: Longest time that a poll waits for records, in seconds.
POLL_S = 0.5
#: Longest wait of a poll before the first assignment, in seconds: shorter polls finish joining the group sooner.
JOINING_POLL_S = 0.1
#: A batch with this many bytes of values is full. The size of a fetch limits a batch too, so a batch of large records
#: never has the configured number of records.
FULL_BYTES = 2**20
#: Most bytes of values in each of two batches that memory holds at once. A larger batch is alone in memory: it may have
#: ``batch_limits.POLL_BYTES`` and one decompressed record batch of 64 MiB.
MAX_BYTES = 32 * 2**20
#: Limit on the characters of text that are prepared ahead; the loop prepares further chunks when it indexes the
#: batch. A character takes at most eight bytes in shingles, and four in the encoded entries.
MAX_CHARACTERS = 8 * 2**20
THREAD_NAME = "read-ahead"


class ReadAhead:
    """Polls and prepares batches, at most one ahead of the current batch.

    ``timed`` measures a stage: ``poll``, ``prepare`` (the loop waits for the thread) or ``ahead`` (the thread).
    """

    def __init__(
        self,
        processor: BatchProcessor,
        slow_start: SlowStart,
        held_fences: Callable[[Iterable[Partition], int], Mapping[Partition, Fence]],
        timed: Callable[[str], AbstractContextManager[None]],
    ) -> None:
        self._processor = processor
        self._slow_start = slow_start
        self._held_fences = held_fences
        self._timed = timed
        #: Set to end the computation before its next chunk.
        self._is_discarded = threading.Event()
        self._batch: Batch | None = None  # the batch ahead
        #: The error of the poll for the batch ahead, until the next ``poll`` raises it.
        self._poll_error: StreamdedupError | None = None
        #: Becomes the decoded batch ahead, and those of its chunks that are prepared.
        self._computation: Future[tuple[DecodedBatch, deque[Chunk]]] | None = None
        #: Starts its thread with the first batch and keeps it: the loop would wait for the start of a new one.
        self._thread = ThreadPoolExecutor(1, THREAD_NAME)

    def poll(self, source: Source, timeout_s: float) -> Batch:
        """Return the batch ahead or raise the error of its poll; without either, poll for at most ``timeout_s``."""
        error, self._poll_error = self._poll_error, None
        if error is not None:
            raise error
        batch, self._batch = self._batch, None
        if batch is not None:
            return batch
        with self._timed("poll"):
            return source.poll(timeout_s, self._slow_start.limit)

    def batch_ahead(self) -> Batch | None:
        return self._batch

    def take_prepared(self, batch: Batch) -> tuple[DecodedBatch, deque[Chunk]]:
        """Return the decoded batch and the chunks that were prepared ahead; decode it if it was not decoded ahead."""
        if self._computation is not None:
            with self._timed("prepare"):
                computed = self._await_preparation()
            # If an incarnation has changed since `prepare_ahead`, the batch of the thread has other positions.
            if computed is not None and computed[0].batch == batch:
                return computed
            computed = None  # frees this batch before the other is decoded
        return self._processor.decode(batch), deque()

    def _await_preparation(self) -> tuple[DecodedBatch, deque[Chunk]] | None:
        """Wait for the preparation ahead; None after a ``MemoryError``: alone in memory, the batch may fit."""
        computation, self._computation = self._computation, None
        assert computation is not None
        try:
            return computation.result()
        except MemoryError:
            return None
        finally:
            # The error's traceback has this frame, and the future the error: a cycle that would keep the memory full.
            computation = None

    def may_read_ahead(self, source: Source, batch: Batch) -> bool:
        """Tell whether a batch is full, memory may hold another, and enough records for another full batch wait.

        Waiting records alone do not show a backlog: they may be unreadable at present, because a transaction is open or
        a leader is away, and a poll would wait for them. After a full batch alone, the next one may be empty.
        """
        if not self._slow_start.may_read_ahead:
            return False
        limit, size = self._slow_start.limit, content_bytes(batch.records)
        is_full = len(batch.records) >= limit or size >= FULL_BYTES
        return is_full and size <= MAX_BYTES and sum(source.stats().lags.values()) >= limit

    def poll_ahead(self, source: Source) -> None:
        """Poll the next batch; the next ``poll`` raises an error of this poll, after the current batch is committed."""
        try:
            with self._timed("poll"):
                self._batch = source.poll_ahead(self._slow_start.limit) or None  # None for an empty batch
        except StreamdedupError as error:
            self._poll_error = error

    def prepare_ahead(self) -> None:
        """Begin to prepare the batch ahead in the thread, if memory suffices and all of its partitions have a fence."""
        if self._batch is None or content_bytes(self._batch.records) > MAX_BYTES:
            return
        fences = self._held_fences(self._batch.starts, self._batch.generation)
        # Positions are complete only with the incarnation of the topic, which is in the fence.
        if fences.keys() == self._batch.starts.keys():
            batch = self._batch.in_incarnations({partition: fence.incarnation for partition, fence in fences.items()})
            self._is_discarded.clear()
            try:
                self._computation = self._thread.submit(self._prepare, batch)
            except RuntimeError as error:  # the limit of threads is reached; the loop prepares the batch
                log.info("thread_not_started", reason=str(error))
                self._end_thread()  # the executor has queued the batch; a new executor has an empty queue

    def _prepare(self, batch: Batch) -> tuple[DecodedBatch, deque[Chunk]]:
        """Decode a batch, and prepare its chunks up to ``MAX_CHARACTERS``."""
        with self._timed("ahead"):
            decoded, prepared = self._processor.decode(batch, is_ahead=True), deque[Chunk]()
            characters_count = 0
            for chunk in decoded.chunks:
                prepared.append(self._processor.prepare(chunk, batch))
                characters_count += sum(len(document.text) for document in chunk.documents)
                # The next chunk may have CHUNK_CHARACTERS.
                if characters_count > MAX_CHARACTERS - CHUNK_CHARACTERS or self._is_discarded.is_set():
                    break
        return decoded, prepared

    def discard(self) -> Batch | None:
        """Drop the batch ahead and wait until the thread has left it; return the batch, to be rewound.

        An error of polling ahead stays, and the next ``poll`` raises it: the failed poll may have moved positions, and
        only the reaction to the error sets them right.
        """
        computation, self._computation = self._computation, None
        if computation is not None:
            self._is_discarded.set()
            wait([computation])
        batch, self._batch = self._batch, None
        return batch

    def close(self) -> None:
        """Drop the batch ahead or the error of its poll, because the source is closed, and end the thread."""
        self.discard()
        self._poll_error = None
        self._end_thread()

    def _end_thread(self) -> None:
        """End the thread; a batch ahead starts the next one."""
        self._thread.shutdown(cancel_futures=True)
        self._thread = ThreadPoolExecutor(1, THREAD_NAME)
