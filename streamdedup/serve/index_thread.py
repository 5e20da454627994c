"""The one thread that runs all calls of the indexes, because the Redis client blocks.

Texts of concurrent requests are gathered and looked up in one pass; other calls run one by one between the passes.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeVar

import structlog

from streamdedup.detection.lookup import IndexLookup, LookupQuery, LookupResult
from streamdedup.errors import FatalError, MessageError, StoreUnavailable, StreamdedupError
from streamdedup.index.contract import IndexReader
from streamdedup.index.documents import IndexEntry
from streamdedup.serve.gathering import Gatherer
from streamdedup.serve.metrics import ServeMetrics
from streamdedup.serve.outages import OutageLog
from streamdedup.serve.problems import IndexAbsentError, RequestProblem, place_of
from streamdedup.wire import Decoder, content_digest

T = TypeVar("T")

#: Most texts of one pass, and most characters. A pass with 128 short articles takes about 30 ms; a text that arrives
#: meanwhile waits until its end.
PASS_TEXTS: Final = 128
_PASS_CHARACTERS: Final = 1_048_576
#: Duration of a reader's call after which all waiting requests are told that Redis does not answer, in seconds. A call
#: to a silent Redis fails only after three time-outs of the client, and other calls wait behind it: without this limit,
#: such requests would reach ``access.Limits.timeout_s``, whose problem does not name Redis.
AWAY_S: Final = 4.0
_CHECK_INTERVAL_S: Final = 1.0  # interval at which a waiting request checks whether Redis is away, in seconds
#: Duration of a call after which ``/livez`` fails, in seconds; above the sum of the Redis client's time-outs.
STUCK_S: Final = 60.0

log = structlog.get_logger("streamdedup.serve")


class StoredDocument(NamedTuple):
    """A document of the index; ``cluster_id`` is that of ``IndexLookup.document``."""

    entry: IndexEntry
    cluster_id: str | None


class TimedReader:
    """Passes method calls on to an ``IndexReader``. ``waiting_since``: monotonic start of the running call, or None."""

    def __init__(self, reader: IndexReader) -> None:
        self._reader = reader
        self.waiting_since: float | None = None

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._reader, name)

        def timed(*arguments: object) -> Any:
            self.waiting_since = time.monotonic()
            try:
                return method(*arguments)
            finally:
                self.waiting_since = None

        return timed


@dataclass(frozen=True, slots=True)
class ServedProfile:
    """A profile and the means to look up its index, through ``reader``; ``decoder`` reads records for ``texts``."""

    name: str
    topics: tuple[str, ...]
    similarity: str
    retention_s: float
    max_text_bytes: int
    bucket_cap: int | None
    fingerprint: Mapping[str, object]
    decoder: Decoder
    reader: TimedReader
    lookup: IndexLookup

    def check_index(self) -> None:
        if self.reader.check(self.fingerprint) is None:
            raise IndexAbsentError(f"the index of profile {self.name} does not exist; a daemon creates it at its start")

    def document(self, document_id: str, field: str = "") -> StoredDocument:
        """Return a document of the index; ``field``: the request field that has the id, for the problem."""
        entry_and_cluster = self.lookup.document(document_id)
        if entry_and_cluster is None:
            raise RequestProblem("unknown-document", field=field)
        return StoredDocument(*entry_and_cluster)


class _ServedQuery(NamedTuple):
    served: ServedProfile
    query: LookupQuery


class IndexThread:
    """Runs look-ups and other calls of the indexes in one thread; ``now_ms`` is the clock, since the epoch."""

    def __init__(self, profiles: Mapping[str, ServedProfile], metrics: ServeMetrics, now_ms: Callable[[], int]) -> None:
        self.profiles = profiles
        self._metrics = metrics
        self.now_ms = now_ms
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="index")
        self._gatherer: Gatherer[_ServedQuery, LookupResult] = Gatherer(
            answer=lambda queries: self._run(lambda: self._answer(queries)),
            weigh=lambda query: len(query.query.text),
            max_count=PASS_TEXTS,
            max_weight=_PASS_CHARACTERS,
        )
        #: Monotonic start of the running call (`STUCK_S`), computing included, or None. Only the thread writes it.
        self._call_began_at: float | None = None
        self._outages: dict[str, OutageLog] = {}
        for name in profiles:  # each series begins with the value 0
            metrics.texts.labels(name)
            metrics.store_errors.labels(name)

    def close(self) -> None:
        self._thread.shutdown(wait=True, cancel_futures=True)

    def is_stuck(self) -> bool:
        began_at = self._call_began_at  # read once, because the thread may reset the attribute between two readings
        return began_at is not None and time.monotonic() - began_at > STUCK_S

    # In the event loop

    async def look_up(self, served: ServedProfile, query: LookupQuery) -> LookupResult:
        (answer,) = await self.look_up_all(served, [query])
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def look_up_all(
        self, served: ServedProfile, queries: Sequence[LookupQuery]
    ) -> list[LookupResult | Exception]:
        """Look up texts, each for itself, together with those of concurrent requests.

        A text whose look-up fails has the error as its result. ``StoreUnavailable`` is raised if Redis does not answer.
        """
        answers = self._gatherer.ask([_ServedQuery(served, query) for query in queries])
        return await self._answer_or_outage(served, answers)

    async def call(self, served: ServedProfile, function: Callable[[], T]) -> T:
        """Run a function that reads the index of a profile; errors of the function are raised."""
        return await self._answer_or_outage(served, self._run(lambda: self._call_and_report(served, function)))

    async def index_error(self, served: ServedProfile) -> StreamdedupError | None:
        """Return why the index of a profile cannot be looked up, or None."""
        try:
            # Each call checks the index before it runs the function.
            await self.call(served, lambda: None)
        except StreamdedupError as error:
            return error
        return None

    async def _answer_or_outage(self, served: ServedProfile, answer: Coroutine[Any, Any, T]) -> T:
        """Wait for an answer from the thread; ``StoreUnavailable`` if Redis is away.

        Redis is away if a reader's running call, perhaps of another request, takes longer than ``AWAY_S``, or after a
        failed call of the profile longer than ``_CHECK_INTERVAL_S``.
        """
        task = asyncio.create_task(answer)
        try:
            while not task.done():
                done, _ = await asyncio.wait({task}, timeout=_CHECK_INTERVAL_S)
                # After a failed call the outage is known, and no request waits `AWAY_S` again.
                is_outage_known = self._outages_of(served).error == StoreUnavailable.__name__
                if not done and (is_outage_known or self._silence_s() > AWAY_S):
                    raise StoreUnavailable("no answer")  # responses name the kind of error only
            return task.result()
        finally:
            # Drops a call that still waits, and texts in the queue of the `Gatherer`, which skips cancelled requests. A
            # running call ends in its thread, and its result is unused.
            task.cancel()

    def _silence_s(self) -> float:
        """Return how long the running call has been waiting for Redis; computing does not count."""
        readers = (served.reader for served in self.profiles.values())
        since = [time_s for reader in readers if (time_s := reader.waiting_since) is not None]
        return time.monotonic() - min(since) if since else 0.0

    async def _run(self, function: Callable[[], T]) -> T:
        """Run a function in the thread, without a check of any index."""

        def timed() -> T:
            self._call_began_at = time.monotonic()
            try:
                return function()
            finally:
                self._call_began_at = None

        return await asyncio.get_running_loop().run_in_executor(self._thread, timed)

    # In the thread

    def _answer(self, queries: Sequence[_ServedQuery]) -> list[LookupResult | Exception]:
        """Answer the queries of one pass, in order; those of each profile are looked up together."""
        began_at = time.monotonic()
        rows_by_profile: dict[str, list[int]] = {}
        for row, (served, _) in enumerate(queries):
            rows_by_profile.setdefault(served.name, []).append(row)
        answers: dict[int, LookupResult | Exception] = {}
        for name, rows in rows_by_profile.items():
            looked_up = self._look_up_together(self.profiles[name], [queries[row].query for row in rows])
            answers.update(zip(rows, looked_up, strict=True))
            self._metrics.texts.labels(name).inc(len(rows))
        self._metrics.pass_texts.observe(len(queries))
        self._metrics.pass_seconds.observe(time.monotonic() - began_at)
        return [answers[row] for row in range(len(queries))]

    def _look_up_together(
        self, served: ServedProfile, queries: Sequence[LookupQuery]
    ) -> Sequence[LookupResult | Exception]:
        try:
            return self._call_and_report(served, lambda: served.lookup.look_up(queries, self.now_ms()))
        except StreamdedupError as error:
            return [error] * len(queries)
        except Exception as error:  # noqa: BLE001  the request reports it
            # A defect that one text triggers fails that text alone: the texts are looked up again, one by one.
            if len(queries) > 1:
                return [answer for query in queries for answer in self._look_up_together(served, [query])]
            # Without the traceback, which could show the text.
            digest, place = content_digest(queries[0].text).hex(), place_of(error)
            fields = {"profile": served.name, "error": type(error).__name__, "place": place, "digest": digest}
            log.error("lookup_failed", **fields)  # noqa: TRY400
            return [RequestProblem("internal")]

    def _call_and_report(self, served: ServedProfile, function: Callable[[], T]) -> T:
        """Check an index and run a function; count errors and log outages."""
        outages = self._outages_of(served)
        try:
            served.check_index()
            result = function()
        except (RequestProblem, MessageError):  # the index answered, and refuses the id or the scope
            outages.succeeded()
            raise
        except (StoreUnavailable, FatalError, IndexAbsentError) as error:
            self._metrics.store_errors.labels(served.name).inc()
            outages.failed(error)
            raise
        outages.succeeded()
        return result

    def _outages_of(self, served: ServedProfile) -> OutageLog:
        return self._outages.setdefault(served.name, OutageLog("index", profile=served.name))
