"""Attempt ids: the names of attempts at batches, announced in the index and committed with the offsets (rule 11).

Called by ``partitions``, which makes ids with ``AttemptIds``, and by ``losses`` and ``rebuild_run``, which read them.
A change of the form also touches the scripts ``set_fence`` and ``announce_attempt``, which compare ids as texts.

An id has the form ``LINEAGE.SEQUENCE.TIME``, such as ``1772409600.0000000042.01772496000123456``. The digits have fixed
lengths, so that the order of texts is that of attempts:

=========  ======  ==========================================================================================
part       digits  content
=========  ======  ==========================================================================================
lineage    10      second of the last rebuild of the whole index before the attempt; 0 before the first rebuild
sequence   10      greater than that of any earlier attempt at a partition in the batch
time       17      clock of the daemon, microseconds since the epoch
=========  ======  ==========================================================================================

Clocks may be set back, and a consumer group that was deleted counts its generations from 1 again; neither changes the
order of ids.
"""

import re
import time
from collections.abc import Iterable

from streamdedup.kafka.protocols import CommittedOffset

#: Committed metadata of any other form is by another program.
_ATTEMPT_ID = re.compile(r"[0-9]{10}\.[0-9]{10}\.[0-9]{17}")

#: Latest second that becomes a lineage, in the year 2106: a clock far in the future must not exceed the ten digits.
_LATEST_S = 2**32


class AttemptIds:
    """Makes attempt ids; each is greater than all earlier and all observed ids."""

    def __init__(self) -> None:
        self._lineage = 0
        self._sequence = 0

    def observe(self, attempt_id: str) -> None:
        """Make the next ids greater than this id of another process; an empty text is no id."""
        if attempt_id:
            self._lineage = max(self._lineage, lineage_of(attempt_id))
            self._sequence = max(self._sequence, int(attempt_id[11:21]))

    def next(self) -> str:
        self._sequence += 1
        return f"{self._lineage:010d}.{self._sequence:010d}.{time.time_ns() // 1000:017d}"


def attempt_id_of(committed: CommittedOffset | None) -> str:
    """Return the attempt id that was committed with an offset; empty when there is none."""
    return committed.metadata if committed is not None and _ATTEMPT_ID.fullmatch(committed.metadata) else ""


def lineage_of(attempt_id: str) -> int:
    """Return the lineage of an attempt; 0 without an attempt (an empty id)."""
    return int(attempt_id[:10]) if attempt_id else 0


def new_lineage(attempt_ids: Iterable[str], now_ms: int) -> int:
    """Return the lineage that a rebuild of the whole index begins: later than those of the committed attempts."""
    return max([min(now_ms // 1000, _LATEST_S), *(lineage_of(attempt_id) + 1 for attempt_id in attempt_ids)])


def in_lineage(attempt_id: str, lineage: int) -> str:
    """Return the id of the same attempt in a later lineage."""
    return f"{lineage:010d}{attempt_id[10:]}"


def attempt_ms(attempt_id: str) -> int:
    """Return the time of an attempt, milliseconds since the epoch."""
    return int(attempt_id[22:]) // 1000
