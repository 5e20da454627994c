"""The logger of all modules of the loop: one name, which each log line shows."""

import structlog

log = structlog.get_logger("streamdedup.loop")
