"""Attempt ids: the names of attempts at batches, announced in the index and committed with the offsets (rule 11).

Called by ``partitions`` and ``rebuild_run``, which make ids with ``AttemptIds``, and by ``losses``, which reads them. A
change of the form also touches ``index.values.AnnouncedAttempt`` and the script ``announce_attempt``.

An id has the form ``LINEAGE.SEQUENCE.TIME``, such as ``1772409600500.0000000042.01772496000123456``. The digits have
fixed lengths, so that the order of texts is that of attempts:

=========  ======  ==========================================================================================
part       digits  content
=========  ======  ==========================================================================================
lineage    13      time at which the index was begun or rebuilt as a whole, milliseconds since the epoch
sequence   10      greater than that of any earlier attempt at a partition in the batch
time       17      time of the attempt by the clock of its daemon, microseconds since the epoch
=========  ======  ==========================================================================================

A lineage is later than all earlier ones that the process finds in index and group, whatever its clock is. A batch of
several profiles has one id, in the latest of their lineages. A *renewed* id has the time of the committed attempt, or
0 without one: a rebuild or the policy ``continue`` announces it to make the committed attempt known to the index.
"""

import random
import re
import time

from streamdedup import clock
from streamdedup.kafka.protocols import CommittedOffset

_ATTEMPT_ID = re.compile(r"[0-9]{13}\.[0-9]{10}\.[0-9]{17}")

#: Latest time that becomes a lineage, in the year 2248: a clock far in the future must not exceed the digits.
_LATEST_MS = 2**43


class AttemptIds:
    """Makes attempt ids; each is greater than all earlier and all observed ids."""

    def __init__(self) -> None:
        self._lineage = 0
        self._sequence = 0

    def observe(self, attempt_id: str) -> None:
        """Make the next ids greater than this id of another process; an empty text is no id."""
        lineage, sequence, _ = _parts(attempt_id)
        self._lineage, self._sequence = max(self._lineage, lineage), max(self._sequence, sequence)

    def begin_lineage(self, now_ms: int) -> None:
        """Begin the lineage of a new index: later than all observed lineages."""
        # With a clock that is behind, two indexes could begin the same lineage without the random part.
        following = self._lineage + 1 + random.randrange(1_000)  # noqa: S311  no secret depends on it
        self._lineage = max(min(now_ms, _LATEST_MS), following)

    def next(self) -> str:
        return self._next(time.time_ns() // 1000)

    def renewed(self, attempt_id: str) -> str:
        """Return the next id, with the time of the committed attempt ``attempt_id``, which may be empty."""
        return self._next(_parts(attempt_id)[2])

    def _next(self, time_us: int) -> str:
        if not self._lineage:  # an index without an attempt so far
            self.begin_lineage(clock.now_ms())
        self._sequence += 1
        return f"{self._lineage:013d}.{self._sequence:010d}.{time_us:017d}"


def attempt_id_of(committed_offset: CommittedOffset | None) -> str:
    """Return the attempt id that was committed with an offset; empty without one, and for another program's commit."""
    metadata = "" if committed_offset is None else committed_offset.metadata
    return metadata if _ATTEMPT_ID.fullmatch(metadata) else ""


def lineage_of(attempt_id: str) -> int:
    """Return the lineage of an attempt; 0 without an attempt."""
    return _parts(attempt_id)[0]


def is_renewed(announced: str, committed_id: str) -> bool:
    """Tell by the times whether an announced id renews a committed one; both may be empty."""
    return _parts(announced)[2] == _parts(committed_id)[2]


def attempt_ms(attempt_id: str) -> int:
    return _parts(attempt_id)[2] // 1000


def _parts(attempt_id: str) -> tuple[int, int, int]:
    """Return lineage, sequence and time of an attempt; zeros without an attempt (an empty id)."""
    lineage, sequence, time_us = map(int, (attempt_id or "0.0.0").split("."))
    return lineage, sequence, time_us
