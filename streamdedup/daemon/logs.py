"""Logging of the process: structured events, readable on a terminal and as JSON lines elsewhere.

``streamdedup run`` and ``serve`` call ``configure`` once, and ``cli.fatal`` writes ``last_line`` before it ends a stuck
process. Events and their fields are listed in ``docs/metrics.md``.

An event is a stable name with fields, ``log.info("batch_committed", records=500)`` with structlog or
``logger.info("A sentence", extra={"event": "batch_committed", "records": 500})`` with the standard library; the output
of both is the same.

While a server is away the clients of Kafka and Redis log the same warning several times a second: ``ClientRepeats``
lets one pass in a minute.
"""

import json
import logging
import math
import re
import sys
import threading
import time
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, TextIO

import structlog

#: Lowest level by logger of a library: below it, ``kafka`` and ``redis`` log secrets and documents. ``kafka.net.sasl``
#: warns at each connection about a password without TLS, although the settings allow it; ``uvicorn`` at each request
#: that is not HTTP or offers another protocol, as some clients always do. A logger precedes its sub-loggers, because
#: ``_limit_clients`` resets the levels of all sub-loggers.
CLIENT_LEVELS: Final = {
    "kafka": logging.WARNING,
    "redis": logging.WARNING,
    "kafka.net.sasl": logging.ERROR,
    "uvicorn": logging.ERROR,
}
LEVELS: Final = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
#: Interval between two equal lines of a client, in seconds.
REPEAT_S: Final = 60.0
#: Largest number of different lines of clients that are remembered.
_REMEMBERED_LINES: Final = 1000
#: Event of a log record of a library, which names none.
FOREIGN_EVENT: Final = "library_message"
#: Beginnings of lines of the Kafka client that nobody can act on: while the processor works on a batch, the task of a
#: connection starts late, and the client reports that the task blocked.
_USELESS_LINES: Final = re.compile(r"Task .* blocking the event loop", re.DOTALL)
#: Part of a line that is ignored when lines are compared.
_DIGITS: Final = re.compile(r"\d+")
#: First fields of every JSON line.
_FIRST_FIELDS: Final = ("timestamp", "level", "event", "logger")


class ClientRepeats(logging.Filter):
    """Filters the lines of clients: equal lines pass once in ``REPEAT_S``, ``_USELESS_LINES`` never.

    Two lines are equal if they have the same logger, level and unformatted message, apart from digits.
    """

    #: Drops all lines of clients. Set by a signal handler when the process stops: clients that are closed log errors
    #: about their last requests.
    is_stopping = False

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._lock = threading.Lock()
        #: For each line the time when it last passed, and the number of lines omitted since then.
        self._lines: dict[tuple[str, int, str], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Tell whether a log record passes; set its attribute ``left_out`` if equal lines before were omitted.

        Errors of the network and of Kafka lose their traceback.
        """
        if record.name.partition(".")[0] not in CLIENT_LEVELS:
            return True
        if self.is_stopping or _USELESS_LINES.match(str(record.msg)):
            return False
        line = (record.name, record.levelno, _DIGITS.sub("#", str(record.msg)))
        time_s = self._clock()
        with self._lock:
            passed_at, left_out_count = self._lines.get(line, (-math.inf, 0))
            if time_s - passed_at < REPEAT_S:
                self._lines[line] = passed_at, left_out_count + 1
                return False
            if len(self._lines) >= _REMEMBERED_LINES:
                self._lines.clear()  # equal lines may then pass once more, with a smaller count
            self._lines[line] = time_s, 0
        if left_out_count:
            record.left_out = left_out_count
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, OSError) or type(error).__module__ == "kafka.errors":
            record.msg, record.args, record.exc_info = f"{record.getMessage()} [{error!r}]", (), None
        return True


class _LogHandler(logging.StreamHandler[TextIO]):
    """Handler of the configured log, which ``writes_json`` finds."""

    json_lines = False


def configure(level: str = "info", stream: TextIO | None = None, fit: Callable[[str], str] = str) -> None:
    """Configure all logging of the process to one stream, anew at a further call; ``level`` is a key of ``LEVELS``.

    ``stream`` is standard error by default: a terminal gets lines for people, broken by ``fit``, any other stream
    JSON lines.
    """
    target = sys.stderr if stream is None else stream
    json_lines = not target.isatty()
    shared: list[structlog.typing.Processor] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso" if json_lines else "%H:%M:%S%z", utc=json_lines),
    ]
    handler = _LogHandler(target)
    handler.json_lines = json_lines
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, _name_foreign_event, structlog.stdlib.ExtraAdder()],
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                *_renderers(json_lines=json_lines, fit=fit),
            ],
        )
    )
    handler.addFilter(ClientRepeats())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(LEVELS[level])
    _limit_clients(LEVELS[level])
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.contextvars.merge_contextvars,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,  # a further call of `configure` has effect on all loggers
    )


def writes_json() -> bool:
    return any(isinstance(handler, _LogHandler) and handler.json_lines for handler in logging.getLogger().handlers)


def last_line(event: str, *, logger: str, reason: str, exit_code: int, threads: Mapping[str, Sequence[str]]) -> str:
    """Return the last log line of a process that may be stuck, without taking a lock of ``logging``.

    Where the log is not JSON, the calls of each thread precede the line, one on each line.
    """
    if not writes_json():
        calls = [line for name, stack in threads.items() for line in (f"thread {name}:", *(f"  {c}" for c in stack))]
        return "\n".join([*calls, f"streamdedup: {reason}; exiting with {exit_code}"])
    timestamp = datetime.now(UTC).isoformat().replace("+00:00", "Z")
    first_fields = {"timestamp": timestamp, "level": "critical", "event": event, "logger": logger}
    return json.dumps({**first_fields, "exit_code": exit_code, "reason": reason, "threads": threads})


def _renderers(*, json_lines: bool, fit: Callable[[str], str]) -> list[structlog.typing.Processor]:
    """Return the processors that render events. Tracebacks have no local variables, which may contain secrets."""
    if json_lines:
        return [structlog.processors.format_exc_info, _order_fields, structlog.processors.JSONRenderer(default=str)]
    console = structlog.dev.ConsoleRenderer(pad_event_to=0, exception_formatter=structlog.dev.plain_traceback)
    return [lambda logger, method, fields: fit(console(logger, method, fields))]


def _name_foreign_event(_logger: object, _method: str, fields: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Move the sentence of a standard-library record to a field; ``ExtraAdder``, which follows, may set the event."""
    fields["message"] = fields["event"]
    fields["event"] = FOREIGN_EVENT
    return fields


def _order_fields(_logger: object, _method: str, fields: MutableMapping[str, Any]) -> Mapping[str, Any]:
    first_fields = {name: fields.pop(name) for name in _FIRST_FIELDS if name in fields}
    return {**first_fields, **fields}


def _limit_clients(level: int) -> None:
    """Set the levels of the clients' loggers; reset those of their sub-loggers, which may have been set lower."""
    for client, lowest in CLIENT_LEVELS.items():
        logging.getLogger(client).setLevel(max(level, lowest))
        for name in list(logging.root.manager.loggerDict):
            if name.startswith(f"{client}."):
                logging.getLogger(name).setLevel(logging.NOTSET)
