"""The experiment of the source material, written plainly and apart from the product.

Texts are cleaned to letters, cut into word k-shingles, and these hashed to 32 bits by CRC-32. A signature holds the
minimum of each of K functions

    h(x) = ((a mod c)(x mod c) mod c + b mod c) mod c

with a and b drawn without replacement from 1 .. N, N the number of distinct shingles, and c the first prime above N. In
this order no product exceeds c^2, and 64 bits hold that of any c below 3 * 10^9. The bands of a signature, written as
"15_355_89_2", are hashed by CRC-32 again; a pair that shares one is a candidate, and is verified by signature and by
the original sets.

The product uses nothing of this. Its hash family, band keys and comparison are in `streamdedup.similarity.minhash`,
`streamdedup.similarity.lsh` and `streamdedup.similarity.sketch`.
"""

import itertools
import random
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

#: Largest modulus whose square 64 bits with a sign can hold.
MAX_MODULUS = 3_037_000_499

_LETTERS = re.compile(r"[a-z]+")

#: A candidate pair: the numbers of its documents, the smaller one first.
Pair = tuple[int, int]


class Family(NamedTuple):
    """The functions of the experiment; a and b are int64, shape (K,)."""

    a: NDArray[np.int64]
    b: NDArray[np.int64]
    c: int


def words_of(text: str) -> list[str]:
    return _LETTERS.findall(text.lower())


def shingles_of(words: Sequence[str], size: int) -> frozenset[str]:
    """Return the distinct shingles of so many words; of a shorter text the whole."""
    windows = (words[start : start + size] for start in range(max(1, len(words) - size + 1)))
    return frozenset(" ".join(window) for window in windows)


def hash_sets(sets: Iterable[Iterable[str]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the 32-bit hashes of all sets, one behind the other, and the offsets of each; int64."""
    numbered = [[crc32(shingle.encode()) for shingle in sorted(shingles)] for shingles in sets]
    offsets = np.zeros(len(numbered) + 1, np.int64)
    np.cumsum([len(shingles) for shingles in numbered], out=offsets[1:])
    return np.fromiter(itertools.chain.from_iterable(numbered), np.int64, int(offsets[-1])), offsets


def first_prime_above(number: int) -> int:
    return next(candidate for candidate in itertools.count(number + 1) if _is_prime(candidate))


def _is_prime(number: int) -> bool:
    return number > 1 and all(number % divisor for divisor in range(2, int(number**0.5) + 1))


def draw_family(functions: int, distinct: int, seed: int) -> Family:
    """Draw the functions."""
    source = random.Random(seed)
    a = source.sample(range(1, distinct + 1), functions)
    b = source.sample(range(1, distinct + 1), functions)
    return Family(np.array(a, np.int64), np.array(b, np.int64), first_prime_above(distinct))


def sign(family: Family, hashes: NDArray[np.int64], offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the signatures of sets, none of them empty: int64, shape (n, K)."""
    a, b, c = family
    if c > MAX_MODULUS:
        raise ValueError(f"the square of {c} does not fit into 64 bits")
    below = hashes % c
    signatures = np.empty((len(offsets) - 1, len(a)), np.int64)
    for column, (factor, summand) in enumerate(zip((a % c).tolist(), (b % c).tolist(), strict=True)):
        values = (below * factor % c + summand) % c
        signatures[:, column] = np.minimum.reduceat(values, offsets[:-1])
    return signatures


def band_text(values: Iterable[int]) -> str:
    return "_".join(map(str, values))


def band_keys(signatures: NDArray[np.int64], bands: int, rows: int) -> NDArray[np.int64]:
    """Return the CRC-32 of each band, written as text: int64, shape (n, bands)."""
    cut = signatures[:, : bands * rows].reshape(-1, rows).tolist()
    keys = [crc32(band_text(values).encode()) for values in cut]
    return np.array(keys, np.int64).reshape(len(signatures), bands)


def shared_bands(keys: NDArray[np.int64]) -> dict[Pair, int]:
    """Return the number of common band keys of each pair that has any."""
    shared: dict[Pair, int] = defaultdict(int)
    for column in keys.T.tolist():
        buckets: dict[int, list[int]] = defaultdict(list)
        for document, key in enumerate(column):
            buckets[key].append(document)
        for bucket in buckets.values():
            for pair in itertools.combinations(bucket, 2):
                shared[pair] += 1
    return dict(shared)


def by_signature(signatures: NDArray[np.int64], pairs: Sequence[Pair]) -> NDArray[np.float64]:
    """Return the share of equal values of each pair."""
    left, right = np.array(pairs, np.int64).reshape(-1, 2).T
    shares: NDArray[np.float64] = np.mean(signatures[left] == signatures[right], axis=1)
    return shares


def by_original(sets: Sequence[frozenset[str]], pairs: Iterable[Pair]) -> NDArray[np.float64]:
    """Return the Jaccard similarity of each pair, of the shingles themselves."""
    return np.array([jaccard(sets[left], sets[right]) for left, right in pairs])


def jaccard(left: frozenset[str], right: frozenset[str]) -> float:
    """Return the Jaccard similarity of two sets of which one has a member."""
    common = len(left & right)
    return common / (len(left) + len(right) - common)
