"""The wall clock of daemon, detection, index, library and cli; called as ``clock.now_ms()``, which tests replace."""

import time


def now_ms() -> int:
    """Return the present in milliseconds since the epoch."""
    return time.time_ns() // 1_000_000
