"""A clock that a test sets."""


class ManualClock:
    """Seconds that pass only by sleeping, or by hand.

    Attributes:
        now_s: The present, in seconds.

    Args:
        late_s: How much later than asked a sleep ends.
    """

    def __init__(self, late_s: float = 0.0) -> None:
        self.now_s = 100.0
        self._late_s = late_s

    def __call__(self) -> float:
        return self.now_s

    def sleep(self, duration_s: float) -> None:
        """Let time pass."""
        assert duration_s > 0
        self.now_s += duration_s + self._late_s
