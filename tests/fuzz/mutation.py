"""Bytes made worse: what all fuzzers of stored forms and files share."""

import random
from collections.abc import Sequence


def mutated(rng: random.Random, data: bytes, others: Sequence[bytes] = ()) -> bytes:
    """Return ``data`` with one to three changes: bits, pieces, ends, and the beginning of one of ``others``."""
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        data = _changed(rng, data, others)
    return data


def _changed(rng: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    at = rng.randrange(len(data) + 1)
    to = min(len(data), at + rng.choice((1, 2, 8, 100)))
    kind = rng.randrange(7)
    if kind == 0 and data:
        return data[:at] + bytes(byte ^ 1 << rng.randrange(8) for byte in data[at : at + 1]) + data[at + 1 :]
    if kind == 1:
        return data[:at]
    if kind == 2:
        return data[:at] + data[to:]
    if kind == 3:
        return data[:at] + data[at:to] * 2 + data[to:]
    if kind == 4:
        return data[:at] + rng.randbytes(rng.choice((1, 4, 20))) + data[to:]
    if kind == 5:
        return data[:at] + bytes([rng.choice((0, 255, 0x22, 0x0A, 0x2C))]) * rng.choice((1, 3, 8)) + data[to:]
    other = rng.choice(others) if others else rng.randbytes(30)
    return other[: rng.randrange(len(other) + 1)] + data[at:]
