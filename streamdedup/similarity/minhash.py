"""MinHash: a set of shingle hashes becomes a short signature from which Jaccard similarities can be estimated.

Called by `sketch`, which signs documents, by `measures`, which estimates from signatures, and on corpora by `tuning`
and `evaluation`. A change to the functions needs a new `ALGORITHM`, and touches docs/format.md.

Source: A. Broder, "On the resemblance and containment of documents" (1997); J. Leskovec, A. Rajaraman, J. Ullman,
"Mining of Massive Datasets", chapter 3.3. A hash function h puts all shingles in an order; a set's smallest hash value
names its first shingle. Two sets have the same first shingle exactly when the first one of their union lies in both:

    P( min h(A) = min h(B) ) = |A and B| / |A or B| = J(A, B)

so the share of K hash functions on which two signatures agree estimates J without bias, with the binomial standard
error sqrt(J (1 - J) / K): 0.035 at J = 0.8 and K = 128. The k-th function here is

    h_k(x) = (a_k x + b_k) mod 2^32,    a_k odd

in uint32 arithmetic that wraps by design: a 32-bit bijection at the price of two vector instructions. It only permutes,
and keeps neighbouring x in arithmetic progression, so x must be well mixed already.

Worked example, with the textbook's h_1 = (x + 1) mod 5, h_2 = (3 x + 1) mod 5 and S1 = {0, 3}, S4 = {0, 2, 3}: S1
hashes to {1, 4} and {1, 0}, S4 to {1, 3, 4} and {1, 2, 0}. Both signatures are (1, 0), the estimate is 1, the true
similarity 2/3. The signature of a union is the elementwise minimum.

    a document with s shingles            cost
    multiply and add                      2 K s operations on vectors of 8 (AVX2) or 16 (AVX-512) values
    minimum                               K s such operations, and some 10 ns for each function to start
    signature                             4 K bytes
    s = 136, K = 60, 250 documents        2 microseconds each, half of it for the minimum
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

#: Name of the hash family. An index of another family holds other values and cannot be continued.
ALGORITHM: Final = "affine32-splitmix64-1"
#: Every value of a document without shingles: the neutral element of the minimum.
EMPTY: Final = 2**32 - 1
#: The first 64 bits of pi's fraction: a number that nobody chose for its results.
DEFAULT_SEED: Final = 0x243F6A8885A308D3
#: Shingles taken at once: 256 KiB, which with the products below stays in a second-level cache of 1 MiB (measured: 2^16
#: takes 1.8 microseconds a document, 2^14 takes 2.7, and 2^17 gains nothing).
_CHUNK_SHINGLES: Final = 1 << 16
#: Products a x held at once. With few shingles one NumPy call does several functions: its start is most of its cost.
_BLOCK_PRODUCTS: Final = 1 << 16

_MASK_32: Final = 2**32 - 1
_MASK_64: Final = 2**64 - 1


class HashFamily:
    """K hash functions, the same on every machine and in every version for the same seed.

    A family of fewer functions with the same seed is the beginning of one with more, and so are its signatures. The
    factors ``a``, odd, and the summands ``b`` are uint32 (K,). Threads may share a family.
    """

    __slots__ = ("a", "b", "permutations", "seed")

    def __init__(self, permutations: int = 128, seed: int = DEFAULT_SEED) -> None:
        drawn = _splitmix64(seed, permutations)
        self.permutations = permutations
        self.seed = seed
        self.a: NDArray[np.uint32] = (drawn >> np.uint64(32)).astype(np.uint32) | np.uint32(1)
        self.b: NDArray[np.uint32] = (drawn & np.uint64(_MASK_32)).astype(np.uint32)

    def sign(
        self, hashes: NDArray[np.uint32], offsets: NDArray[np.int64], *, permutations: int | None = None, skip: int = 0
    ) -> NDArray[np.uint32]:
        """Sign a document batch by the first so many ``permutations``, or all, but for the first ``skip``.

        Document i has the shingle hashes[offsets[i] : offsets[i + 1]], in any order. The signatures are uint32
        (n, permutations - skip); a document without shingles has EMPTY everywhere.
        """
        last = self.permutations if permutations is None else permutations
        # As columns: NumPy combines each function with all hashes, which are a row.
        a, b = self.a[skip:last, None], self.b[skip:last, None]
        filled = offsets[1:] > offsets[:-1]
        if filled.all():
            return _minima(hashes, offsets, a, b)
        # reduceat gives an empty segment the first value of the next one, so empty documents are left out. Without them
        # the offsets of the others still cover all hashes.
        signatures = np.full((len(filled), last - skip), EMPTY, dtype=np.uint32)
        if filled.any():
            signatures[filled] = _minima(hashes, np.append(offsets[:-1][filled], offsets[-1]), a, b)
        return signatures


def estimate(left: NDArray[np.uint32], right: NDArray[np.uint32]) -> NDArray[np.float64]:
    """Estimate Jaccard similarities as the share of equal values in signatures of one family, each uint32 (..., K)."""
    equal = np.asarray(np.count_nonzero(left == right, axis=-1), dtype=np.int64)
    return np.true_divide(equal, left.shape[-1])


def standard_error(similarity: float, permutations: int) -> float:
    """Return the standard error sqrt(s (1 - s) / K) of a similarity s, true or estimated, with K permutations."""
    return float(np.sqrt(similarity * (1.0 - similarity) / permutations))


def _splitmix64(seed: int, count: int) -> NDArray[np.uint64]:
    """Draw `count` 64-bit numbers (S. Vigna's splitmix64): fixed by its definition, unlike library streams."""
    drawn = []
    state = seed
    for _ in range(count):
        state = (state + 0x9E3779B97F4A7C15) & _MASK_64
        mixed = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK_64
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK_64
        drawn.append(mixed ^ (mixed >> 31))
    return np.array(drawn, dtype=np.uint64)


def _minima(
    hashes: NDArray[np.uint32], offsets: NDArray[np.int64], a: NDArray[np.uint32], b: NDArray[np.uint32]
) -> NDArray[np.uint32]:
    """Return min(a x + b) for each function and document, shape (n, functions); no document may be empty."""
    functions, n_documents = len(a), len(offsets) - 1
    signatures = np.empty((n_documents, functions), dtype=np.uint32)
    products = np.empty(0, dtype=np.uint32)
    first = 0
    while first < n_documents:
        # As many whole documents as fit in a chunk: the last offset within it is the end of the last one.
        end = int(np.searchsorted(offsets, offsets[first] + _CHUNK_SHINGLES, side="right")) - 1
        end = max(end, first + 1)  # a document beyond a chunk is taken alone
        chunk = hashes[offsets[first] : offsets[end]]
        starts = offsets[first:end] - offsets[first]
        block_functions = min(functions, max(1, _BLOCK_PRODUCTS // len(chunk)))
        if len(products) < block_functions * len(chunk):
            products = np.empty(block_functions * len(chunk), dtype=np.uint32)
        minima = np.empty((functions, end - first), dtype=np.uint32)
        for k in range(0, functions, block_functions):
            rows = slice(k, min(k + block_functions, functions))
            block = products[: (rows.stop - k) * len(chunk)].reshape(-1, len(chunk))
            np.multiply(a[rows], chunk, out=block)
            np.add(block, b[rows], out=block)
            np.minimum.reduceat(block, starts, axis=1, out=minima[rows])
        signatures[first:end] = minima.T
        first = end
    return signatures
