"""The state of pipeline and index, sampled by one background task while the service runs."""

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from streamdedup.errors import StreamdedupError
from streamdedup.serve.engine import Engine
from streamdedup.serve.pipeline import PipelineReading, PipelineSource
from streamdedup.serve.problems import OutageLog
from streamdedup.serve.schemas import HistoryBody, ProfileStateBody, StateBody, StoreBody
from streamdedup.wire import rfc_3339

#: Time between two samples, in seconds.
INTERVAL_S: Final = 10.0
#: Samples that are kept: one hour.
MAX_SAMPLES: Final = 360


class StateSampler:
    """Samples the state. Used by the event loop; the source and Redis are asked in threads.

    Args:
        source: Reads the pipeline.
        engine: Counts documents.
        read_memory: Reads the memory of Redis, where the source does not know it.
        now_ms: The clock, in milliseconds since the epoch.
    """

    def __init__(
        self,
        source: PipelineSource,
        engine: Engine,
        read_memory: Callable[[], StoreBody],
        now_ms: Callable[[], float],
    ) -> None:
        self._source = source
        self._engine = engine
        self._read_memory = read_memory
        self._now_ms = now_ms
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="state")
        self._history: deque[HistoryBody] = deque(maxlen=MAX_SAMPLES)
        self._reading = PipelineReading(None, None, None)
        self._memory = StoreBody(None, None)
        self._profiles = [ProfileStateBody(name, None) for name in engine.profiles]
        self._read_at: float | None = None
        self._outages = OutageLog("state", source=source.name)

    async def run(self) -> None:
        """Sample until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            began_at = loop.time()
            await self.sample()
            await asyncio.sleep(max(0.0, INTERVAL_S - (loop.time() - began_at)))

    async def sample(self) -> None:
        """Take one sample."""
        loop = asyncio.get_running_loop()
        rates: tuple[float | None, float | None] = (None, None)
        try:
            reading = await loop.run_in_executor(self._thread, self._source.read)
        except Exception as error:  # noqa: BLE001  the next sample may succeed
            reading = PipelineReading(None, None, None)
            self._outages.failed(error)
        else:
            self._outages.succeeded()
            now_s = loop.time()
            if self._read_at is not None:
                passed_s = now_s - self._read_at
                rates = _rate(reading.documents, passed_s), _rate(reading.alerts, passed_s)
            self._read_at = now_s
        profiles = [ProfileStateBody(name, await self._count(name)) for name in self._engine.profiles]
        memory = reading.memory or await self._store_memory()
        counts = [profile.documents for profile in profiles if profile.documents is not None]
        # From here on nothing is awaited, so that no request gets parts of two samples.
        self._reading, self._profiles, self._memory = reading, profiles, memory
        self._history.append(
            HistoryBody(
                at=self._now(),
                documents_per_second=rates[0],
                alerts_per_second=rates[1],
                lag=reading.lag,
                documents=sum(counts) if len(counts) == len(profiles) else None,
                used_bytes=memory.used_bytes,
            )
        )

    def state(self) -> StateBody:
        """Return the last sample with the history; without numbers before the first sample."""
        last = self._history[-1] if self._history else HistoryBody(self._now(), None, None, None, None, None)
        return StateBody(
            at=last.at,
            source=self._source.name,
            documents_per_second=last.documents_per_second,
            alerts_per_second=last.alerts_per_second,
            lag=last.lag,
            daemons=list(self._reading.daemons),
            profiles=self._profiles,
            redis=self._memory,
            history=list(self._history),
        )

    def close(self) -> None:
        """Wait for the call in progress and close the source."""
        self._thread.shutdown(wait=True, cancel_futures=True)
        self._source.close()

    async def _count(self, name: str) -> int | None:
        """Return about how many documents an index has; None where it cannot be looked up."""
        served = self._engine.profiles[name]
        try:
            return await self._engine.call(served, served.reader.count_documents)
        except StreamdedupError:
            return None

    async def _store_memory(self) -> StoreBody:
        try:
            return await self._engine.run(self._read_memory)
        except StreamdedupError:
            return StoreBody(None, None)  # Redis is away, or the user may not call INFO

    def _now(self) -> str:
        return rfc_3339(round(self._now_ms()))


def _rate(increase: float | None, passed_s: float) -> float | None:
    return None if increase is None or passed_s <= 0 else round(increase / passed_s, 3)
