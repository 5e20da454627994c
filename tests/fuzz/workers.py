"""What a process beside others does: makes messages by seed and accounts for them."""

import os
import time

from tests.fuzz.accounts import Account, Accountant, Unaccounted
from tests.fuzz.memory import rss_bytes
from tests.fuzz.messages import fuzzed_messages

#: Messages that are made, and accounted for, at a time: so many that an index of theirs takes little memory.
CHUNK = 2_000

_accountant: list[Accountant] = []


class Failed(Exception):
    """Messages that were not accounted for, as plain data that passes from one process to another.

    Args:
        seed: Of the chunk.
        reason: What is wrong.
        lines: The messages, as ``Fuzzed.as_json`` writes them.
    """

    def __init__(self, seed: str, reason: str, lines: list[str]) -> None:
        super().__init__(seed, reason, lines)
        self.seed = seed
        self.reason = reason
        self.lines = lines


def begin() -> None:
    """Make ready, once a process."""
    _accountant.append(Accountant())


def chunk(order: tuple[str, int]) -> tuple[Account, int, int]:
    """Account for the messages of a seed.

    Args:
        order: The seed, and how many messages.

    Returns:
        The account, the id of this process, and its memory in bytes.

    Raises:
        Failed: Some came to no end, or to a wrong one.
    """
    seed, count = order
    made = list(fuzzed_messages(seed, count, time.time_ns() // 1_000_000))
    try:
        account = _accountant[0].settle(made)
    except Unaccounted as error:
        raise Failed(seed, error.reason, [message.as_json() for message in error.messages]) from error
    return account, os.getpid(), rss_bytes()
