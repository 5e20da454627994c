"""Texts of stored documents, read from Kafka by ``kafka.texts``, and the word-by-word alignment of two texts.

Fetching and alignment run in two threads, each with its own consumer, so that neither the event loop nor the index
thread waits for them.
"""

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple, TypeVar

from streamdedup.errors import RegistryMisconfigured, RegistryUnavailable, StreamdedupError
from streamdedup.index.documents import IndexEntry
from streamdedup.kafka.reader import RecordFetcher
from streamdedup.kafka.texts import TextMissingError, fetch_text
from streamdedup.serve.outages import OutageLog
from streamdedup.text.alignment import Segment, align
from streamdedup.wire import Decoder

T = TypeVar("T")

_THREADS: Final = 2  # comparisons whose texts are read or aligned at the same time
_PAUSE_S: Final = 5.0  # time without attempts after Kafka or the schema registry could not be read, in seconds


class Alignment(NamedTuple):
    """Two texts as segments, or why a text is missing; texts with too many words are one segment and not aligned."""

    segments: list[Segment] | None
    texts_missing: str | None
    is_aligned: bool = False


class TextAligner:
    """Reads and aligns texts; ``timeout_s`` limits the time for the records of one comparison, in seconds."""

    def __init__(self, open_fetcher: Callable[[], RecordFetcher], timeout_s: float) -> None:
        self._open_fetcher = open_fetcher
        self._fetchers: dict[int, RecordFetcher] = {}  # by thread, because a fetcher is used from one thread
        self._timeout_s = timeout_s
        self._threads = ThreadPoolExecutor(max_workers=_THREADS, thread_name_prefix="texts")
        # A request waits here for a thread, and not in the queue of the pool: a request that gives up leaves no call
        # in that queue. A call that has begun keeps its thread until the call ends.
        self._free_threads = asyncio.Semaphore(_THREADS)
        self._paused_until = 0.0  # loop time until which no text is read after a failure, for the same reason
        self._failure = ""
        self._outages = OutageLog("texts")

    async def align(self, decoder: Decoder, a: IndexEntry | str, b: IndexEntry) -> Alignment:
        """Align the texts of two documents of the index, or the text ``a`` with that of a document."""
        entries = [b] if isinstance(a, str) else [a, b]
        for entry in entries:
            if entry.content.first_digest is not None:  # set by the first append
                return Alignment(None, f"the text of {entry.id} was continued by appends; no record has the whole")
        try:
            texts = await self._read(decoder, entries)
        except TextMissingError as error:
            return Alignment(None, str(error))
        text_a, text_b = [a, *texts] if isinstance(a, str) else texts
        return await self._in_thread(lambda: _aligned(text_a, text_b))

    def close(self) -> None:
        self._threads.shutdown(wait=True, cancel_futures=True)
        for fetcher in self._fetchers.values():
            fetcher.close()

    async def _read(self, decoder: Decoder, entries: Sequence[IndexEntry]) -> list[str]:
        """Return the texts of documents; ``TextMissingError`` says for people why one cannot be read."""
        now_s = asyncio.get_running_loop().time
        if now_s() < self._paused_until:
            raise TextMissingError(self._failure)
        try:
            async with asyncio.timeout(self._timeout_s):
                texts = await self._in_thread(lambda: self._texts_or_error(decoder, entries))
        except TimeoutError as error:
            # No pause: the time includes the wait for a thread, and calls that hang occupy the threads anyway.
            servers = "Kafka" if decoder.registry is None else "Kafka or the schema registry"
            reason = f"{servers} did not answer within {self._timeout_s:g} s, or earlier comparisons took this time"
            self._outages.failed(error, reason)
            raise TextMissingError(reason) from None
        if isinstance(texts, StreamdedupError):
            self._paused_until = now_s() + _PAUSE_S
            self._outages.failed(texts)
            is_registry = isinstance(texts, RegistryUnavailable | RegistryMisconfigured)
            server = "the schema registry" if is_registry else "Kafka"
            self._failure = f"{server} cannot be read; the reason is in the log of the service"
            raise TextMissingError(self._failure)
        self._outages.succeeded()
        if isinstance(texts, TextMissingError):
            raise texts
        return texts

    def _texts_or_error(
        self, decoder: Decoder, entries: Sequence[IndexEntry]
    ) -> list[str] | TextMissingError | StreamdedupError:
        """Fetch the texts in a thread; an error is returned, because a request may have given up and await nothing."""
        thread = threading.get_ident()
        try:
            if thread not in self._fetchers:
                self._fetchers[thread] = self._open_fetcher()
            fetcher = self._fetchers[thread]
            return [fetch_text(fetcher, decoder, entry.id, entry.digest.hex(), entry.position) for entry in entries]
        except TextMissingError as error:
            return error
        except Exception as error:
            # The client may be broken: the next call in this thread opens another one.
            if thread in self._fetchers:
                self._fetchers.pop(thread).close()
            if isinstance(error, StreamdedupError):
                return error
            raise

    async def _in_thread(self, function: Callable[[], T]) -> T:
        """Run a function in a free thread, which is free again when the call ends, not when the request gives up."""
        await self._free_threads.acquire()
        call = asyncio.get_running_loop().run_in_executor(self._threads, function)
        call.add_done_callback(lambda _: self._free_threads.release())
        # Without the shield, a request that gives up would mark the call as done while its thread still works.
        return await asyncio.shield(call)


def _aligned(a: str, b: str) -> Alignment:
    segments = align(a, b)
    if segments is None:
        return Alignment([Segment(is_equal=False, a=a, b=b)], texts_missing=None)
    return Alignment(segments, texts_missing=None, is_aligned=True)
