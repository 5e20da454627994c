"""How the process logs: structured events, for people on a terminal and as JSON lines everywhere else.

An event is a stable name with fields, ``log.info("batch_committed", records=500)`` with structlog or
``logger.info("A sentence", extra={"event": "batch_committed", "records": 500})`` with the standard library; both come
out alike. A library's record without a name is the event ``library_message``. The clients of Kafka and Redis log what
they send at debug, passwords and documents included, so they are never heard below ``warning``, whatever level is asked
for. While a server is away they repeat themselves several times a second; of lines that differ in figures alone one a
minute is let through, and says as ``left_out`` how many were not.
"""

import json
import logging
import math
import re
import sys
import threading
import time
from collections.abc import Callable, Mapping, MutableMapping
from datetime import UTC, datetime
from typing import Any, Final, Literal, TextIO

import structlog

#: Libraries that put secrets or documents into their logs below this level; their sub-loggers inherit it. The last one
#: warns at every connection of a password in the clear, which the settings have asked about once.
CLIENT_LEVELS: Final = {"kafka": logging.WARNING, "redis": logging.WARNING, "kafka.net.sasl": logging.ERROR}
#: Levels by the names that settings use.
LEVELS: Final = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}
#: Between two lines of a client that say the same, in seconds.
REPEAT_S: Final = 60.0
#: Most different lines of the clients that are remembered.
_REMEMBERED_LINES: Final = 1000
#: Event of a record that has none of its own.
FOREIGN_EVENT: Final = "library_message"
#: What differs between two lines that say the same.
_FIGURES: Final = re.compile(r"\d+")
#: Fields that begin every JSON line.
_FIRST_FIELDS: Final = ("timestamp", "level", "event", "logger")


class ClientRepeats(logging.Filter):
    """Lets a line of a client through once in ``REPEAT_S``; what others log is let through always.

    Two lines are the same if they come from one place: logger, level and text without figures and arguments.

    Args:
        clock: Monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._lock = threading.Lock()
        # When each line was let through last, and how many like it were not since then.
        self._lines: dict[tuple[str, int, str], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to log ``record``; one that stands for others gets the attribute ``left_out``."""
        if record.name.partition(".")[0] not in CLIENT_LEVELS:
            return True
        line = (record.name, record.levelno, _FIGURES.sub("#", str(record.msg)))
        now = self._clock()
        with self._lock:
            shown_at, left_out_count = self._lines.get(line, (-math.inf, 0))
            if now - shown_at < REPEAT_S:
                self._lines[line] = shown_at, left_out_count + 1
                return False
            if len(self._lines) >= _REMEMBERED_LINES:
                self._lines.clear()
            self._lines[line] = now, 0
        if left_out_count:
            record.left_out = left_out_count
        return True


class _Output(logging.StreamHandler[TextIO]):
    """Where the log goes, and whether as JSON lines."""

    json_lines = False


def configure(
    level: Literal["debug", "info", "warning", "error"] = "info",
    log_format: Literal["auto", "json", "console"] = "auto",
    stream: TextIO | None = None,
) -> None:
    """Send all logging of the process, the libraries' included, to one stream; a further call replaces the setup.

    Args:
        level: Least level to log.
        log_format: ``auto`` is ``console`` on a terminal and ``json`` elsewhere.
        stream: Where to; standard error if None.
    """
    target = sys.stderr if stream is None else stream
    terminal = target.isatty()
    json_lines = log_format == "json" or (log_format == "auto" and not terminal)
    shared = _shared_processors(json_lines=json_lines)
    handler = _Output(target)
    handler.json_lines = json_lines
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, _name_foreign_event, structlog.stdlib.ExtraAdder()],
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                *_renderers(json_lines=json_lines, colors=terminal),
            ],
        )
    )
    handler.addFilter(ClientRepeats())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(LEVELS[level])
    _hold_clients(LEVELS[level])
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.contextvars.merge_contextvars,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )


def writes_json() -> bool:
    """Tell whether the log is JSON lines."""
    return any(isinstance(handler, _Output) and handler.json_lines for handler in logging.getLogger().handlers)


def last_line(event: str, *, level: str, logger: str, reason: str, exit_code: int) -> str:
    """Return the line with which a process ends that may be stuck: nothing is logged and no lock is taken.

    Args:
        event: Name of the event.
        level: Its level.
        logger: Who says it.
        reason: Why the process ends.
        exit_code: With which code.
    """
    if not writes_json():
        return f"streamdedup: {reason}; exiting with {exit_code}"
    now = datetime.now(UTC).isoformat().replace("+00:00", "Z")
    first = {"timestamp": now, "level": level, "event": event, "logger": logger}
    return json.dumps({**first, "exit_code": exit_code, "reason": reason})


def _shared_processors(*, json_lines: bool) -> list[structlog.typing.Processor]:
    """Return what is added to every event, ours and the libraries'."""
    return [
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso" if json_lines else "%H:%M:%S", utc=json_lines),
    ]


def _renderers(*, json_lines: bool, colors: bool) -> list[structlog.typing.Processor]:
    """Return what turns an event into text. Tracebacks are plain: those with local variables would print secrets."""
    if json_lines:
        return [structlog.processors.format_exc_info, _order_fields, structlog.processors.JSONRenderer(default=str)]
    return [
        structlog.dev.ConsoleRenderer(colors=colors, pad_event_to=0, exception_formatter=structlog.dev.plain_traceback)
    ]


def _name_foreign_event(_logger: object, _method: str, fields: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Keep the sentence of a standard-library record as a field; its extras may replace the event's name."""
    fields["message"] = fields["event"]
    fields["event"] = FOREIGN_EVENT
    return fields


def _order_fields(_logger: object, _method: str, fields: MutableMapping[str, Any]) -> Mapping[str, Any]:
    """Put what every line has before what only this event has."""
    first = {name: fields.pop(name) for name in _FIRST_FIELDS if name in fields}
    return {**first, **fields}


def _hold_clients(level: int) -> None:
    """Hold the clients' loggers at their own levels, also those below them that somebody has set one by one."""
    for client, least in CLIENT_LEVELS.items():
        logging.getLogger(client).setLevel(max(level, least))
        for name in list(logging.root.manager.loggerDict):
            if name.startswith(f"{client}."):
                logging.getLogger(name).setLevel(logging.NOTSET)
