"""Counts refused batches, and ends the daemon when a fence stays stale. Called by ``loop``."""

import math
from collections.abc import Callable

from streamdedup.errors import BatchRefused, StaleFence

#: Refusals for longer than this, in seconds, are no rebalance in progress: the fence is of a consumer group that was
#: deleted, in a later generation than that of the new group, which counts from 1 again.
_STALE_FENCE_S = 60.0


class RefusalCount:
    """Measures for how long all batches of one generation were refused."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._generation: int | None = None  # of the refused batches
        self._first_s = self._last_s = -math.inf

    def count(self, error: BatchRefused, generation: int) -> None:
        """Raise ``StaleFence`` when all batches of a generation were refused for ``_STALE_FENCE_S``.

        Refusals further apart than that, as in an idle daemon, do not count together.
        """
        now_s = self._clock()
        if generation != self._generation or now_s - self._last_s > _STALE_FENCE_S:
            self._generation, self._first_s = generation, now_s
        self._last_s = now_s
        if now_s - self._first_s > _STALE_FENCE_S:
            raise StaleFence(
                f"{error}, and has been for {_STALE_FENCE_S:.0f} s. If the consumer group was deleted it counts from 1 "
                "again: stop all daemons of the group and run `streamdedup index unfence`"
            )

    def reset(self) -> None:
        self._last_s = -math.inf
