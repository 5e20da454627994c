"""Logs outages of the servers."""

import structlog

from streamdedup.errors import StreamdedupError
from streamdedup.serve.problems import place_of

log = structlog.get_logger("streamdedup.serve")


class OutageLog:
    """Logs each kind of failure of an outage once as ``SOURCE_unavailable``, and its end as ``SOURCE_available``."""

    def __init__(self, source: str, /, **fields: str) -> None:
        self._source = source
        self._fields = fields
        self.error: str | None = None  # class name of the last failure; None while there is no outage
        #: Class names of the failures since the last success: kinds may alternate, from request to request.
        self._logged: set[str] = set()

    def failed(self, error: Exception, reason: str | None = None) -> None:
        """Report a failure; ``reason`` is by default the error's text, or for a defect its place in the code."""
        self.error = type(error).__name__
        if self.error not in self._logged:
            self._logged.add(self.error)
            reason = reason or (str(error) if isinstance(error, StreamdedupError) else place_of(error))
            event = f"{self._source}_unavailable"
            log.warning(event, **self._fields, error=self.error, reason=reason)

    def succeeded(self) -> None:
        if self.error is not None:
            event = f"{self._source}_available"
            log.info(event, **self._fields)
        self.error = None
        self._logged.clear()
