"""Logs outages of Kafka and the schema registry, which fail few requests."""

import structlog

from streamdedup.errors import StreamdedupError
from streamdedup.serve.problems import place_of

log = structlog.get_logger("streamdedup.serve")


class OutageLog:
    """Logs a source's first failure as ``SOURCE_unavailable``, and the next success as ``SOURCE_available``."""

    def __init__(self, source: str, /, **fields: str) -> None:
        self._source = source
        self._fields = fields
        self._is_failing = False

    def failed(self, error: Exception) -> None:
        reason = str(error) if isinstance(error, StreamdedupError) else place_of(error)
        self.failed_with(error=type(error).__name__, reason=reason)

    def failed_with(self, **facts: str) -> None:
        if not self._is_failing:
            event = f"{self._source}_unavailable"
            log.warning(event, **self._fields, **facts)
        self._is_failing = True

    def succeeded(self) -> None:
        if self._is_failing:
            event = f"{self._source}_available"
            log.info(event, **self._fields)
        self._is_failing = False
