"""Memory of a process over a run, and whether it grows."""

import os
from collections.abc import Sequence
from pathlib import Path
from statistics import median


def rss_bytes(pid: int | str = "self") -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def peak_bytes(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def growth(samples: Sequence[float]) -> float:
    """Return by what share the last quarter of samples lies above the second; 0.0 for fewer than eight samples.

    The first quarter is the time of warming up. Medians, so that one sample decides nothing.
    """
    quarter = len(samples) // 4
    if quarter < 2:
        return 0.0
    return median(samples[-quarter:]) / median(samples[quarter : 2 * quarter]) - 1
