"""Locality-sensitive hashing: band keys of signatures, the probability of a shared bucket, and the cheapest banding.

`detection`, `tuning` and `evaluation` compute and compare band keys; `settings.profile` chooses a banding, `tuning`
estimates its costs. A change to the keys also touches docs/format.md, and the fingerprint: indexes store the keys.

Source: J. Leskovec, A. Rajaraman, J. Ullman, "Mining of Massive Datasets", chapter 3.4. A signature is cut into b bands
of r rows; documents that agree on a whole band share that band's bucket and become a candidate pair. A pair of
similarity s agrees on one row with probability s, on one band with s^r, and on at least m of b bands with

    P(s) = 1 - sum over i < m of C(b, i) (s^r)^i (1 - s^r)^(b - i),    for m = 1: 1 - (1 - s^r)^b

an S-shaped curve that is steepest near (1/b)^(1/r). Worked example: 20 bands of 5 rows turn s = 0.8 into
1 - (1 - 0.32768)^20 = 0.9996 and s = 0.3 into 0.047.

A band has a key, the CRC-32 of its r values as little-endian uint32: 4 bytes, the same in every language. One pair of
different bands in 2^32 has equal keys by chance; verification removes it. The CRC register c takes in a value v as

    c  <-  T0[u & 255] ^ T1[(u >> 8) & 255] ^ T2[(u >> 16) & 255] ^ T3[u >> 24],    u = c ^ v

because CRC is linear over XOR ("slicing by four"). Each value needs four look-ups in 4 KiB of tables, which NumPy does
for all documents and bands at once: 0.3 microseconds a document for 12 bands of 5 rows, against 2.2 for calls of zlib.
"""

import math
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

#: Index size N that a banding is chosen for: 10,000 documents a day, kept for 30 days.
REFERENCE_DOCUMENTS: Final = 300_000
#: Price w of one false candidate in bands (`banding_cost`).
FALSE_CANDIDATE_WEIGHT: Final = 2.0
#: Memory of one band of a document in Redis, in bytes, by bucket layout: mean of indexes of 12,000 and of 19,043
#: articles of Reuters-21578 on Redis 7.0.15. The server's tables double as they grow, so single indexes differ by 10 %.
BAND_BYTES: Final = {"sets": 145, "packed": 18}
#: Articles of Reuters-21578 that have a body: the index in which the neighbours below were counted.
_MEASURED_DOCUMENTS: Final = 19_043
#: The reversed polynomial of CRC-32 as in zlib, gzip and Ethernet.
_CRC_POLYNOMIAL: Final = 0xEDB88320
#: Neighbours of a document by similarity: (from, to, mean number), measured on Reuters-21578 (`banding_cost`);
#: exact copies, which are never false candidates, are left out.
_NEIGHBOURS: Final = (
    (0.00, 0.01, 1960.0),
    (0.01, 0.02, 256.0),
    (0.02, 0.03, 53.4),
    (0.03, 0.05, 29.3),
    (0.05, 0.10, 10.1),
    (0.10, 0.15, 1.68),
    (0.15, 0.20, 0.746),
    (0.20, 0.25, 0.378),
    (0.25, 0.30, 0.173),
    (0.30, 0.40, 0.268),
    (0.40, 0.50, 0.0777),
    (0.50, 0.60, 0.0236),
    (0.60, 0.70, 0.0141),
    (0.70, 0.80, 0.0131),
    (0.80, 0.90, 0.0092),
    (0.90, 1.00, 0.0087),
)
#: The same with character 5-shingles, of 250 articles against all: their alphabet makes all texts a little similar.
_CHARACTER_NEIGHBOURS: Final = (
    (0.00, 0.02, 5570.0),
    (0.02, 0.03, 3440.0),
    (0.03, 0.05, 6490.0),
    (0.05, 0.10, 3330.0),
    (0.10, 0.15, 150.0),
    (0.15, 0.20, 24.2),
    (0.20, 0.25, 8.89),
    (0.25, 0.30, 6.86),
    (0.30, 0.40, 6.30),
    (0.40, 0.50, 1.64),
    (0.50, 0.60, 0.396),
    (0.60, 0.70, 0.172),
    (0.70, 0.80, 0.052),
    (0.80, 1.00, 0.016),
)


@dataclass(frozen=True, slots=True)
class Banding:
    """How a signature is cut into bands: their number b, and the signature values r of each."""

    bands: int
    rows: int

    def __str__(self) -> str:
        return f"{self.bands} x {self.rows}"

    @property
    def permutations(self) -> int:
        return self.bands * self.rows

    @property
    def steepest_similarity(self) -> float:
        return float((1.0 / self.bands) ** (1.0 / self.rows))

    def probability(self, similarity: float, shared: int = 1) -> float:
        """Return the probability that a pair shares at least ``shared`` bands."""
        return 1.0 - self.miss(similarity, shared)

    def miss(self, similarity: float, shared: int = 1) -> float:
        """Return the probability that a pair shares fewer than ``shared`` bands: 1 - `probability`, exact if tiny."""
        agree = similarity**self.rows
        return math.fsum(math.comb(self.bands, i) * agree**i * (1.0 - agree) ** (self.bands - i) for i in range(shared))

    def band_keys(self, signatures: NDArray[np.uint32]) -> NDArray[np.uint32]:
        """Return the band keys, uint32 (n, bands), of signatures, uint32 (n, K) with K >= bands * rows."""
        count = len(signatures)
        # A row of (rows, n * bands) has one value of each band of each signature.
        by_row = signatures[:, : self.permutations].reshape(count * self.bands, self.rows).T
        # CRC-32 begins with all bits set and ends with the inverse of the register.
        register = np.full(count * self.bands, 0xFFFFFFFF, dtype=np.uint32)
        for values in by_row:
            register ^= values  # now u of the module's header
            octets = register.astype("<u4").view(np.uint8).reshape(-1, 4)
            # "clip" skips the range check; an octet is always within the table.
            register = _CRC_TABLES[0].take(octets[:, 0], mode="clip")
            for octet in (1, 2, 3):
                register ^= _CRC_TABLES[octet].take(octets[:, octet], mode="clip")
        return np.invert(register).reshape(count, self.bands)


def shared_bands(left: NDArray[np.uint32], right: NDArray[np.uint32]) -> NDArray[np.int64]:
    """Count the bands on which n pairs agree, int64 (n,), from the band keys of both sides, each uint32 (n, bands)."""
    agreed: NDArray[np.int64] = np.sum(left == right, axis=1, dtype=np.int64)
    return agreed


def false_candidates(
    banding: Banding,
    threshold: float,
    index_documents: int = REFERENCE_DOCUMENTS,
    unit: Literal["word", "char"] = "word",
) -> float:
    """Estimate the candidates below the threshold for a new document: word 3-shingles, or character 5-shingles."""
    total = 0.0
    neighbours = _NEIGHBOURS if unit == "word" else _CHARACTER_NEIGHBOURS
    for low, high, number in neighbours:
        # The row that contains the threshold counts with its part below the threshold.
        share_below = min(1.0, max(0.0, (threshold - low) / (high - low)))
        total += number * share_below * banding.probability((low + high) / 2)
    return total * index_documents / _MEASURED_DOCUMENTS


def banding_cost(banding: Banding, threshold: float) -> float:
    """Return a banding's cost in bands.

        cost(b, r) = b + w F(b, r),    F(b, r) = (N / 19,043) * sum over i of n_i (1 - (1 - s_i^r)^b)

    F is the number of false candidates of a document in an index of N others. A Reuters-21578 article has n_i
    neighbours of similarity s_i, below the threshold, among all 19,043 articles (word 3-shingles, every pair compared;
    the sum is within 6 % of the exact figure). One shared band makes a candidate, however large m is, so m is not in F.

    w is the price of a false candidate in bands. A false candidate takes 4.5 microseconds to decode and compare, and
    some 2.5 to fetch; a band takes 5.3 to look up and insert (84 for 16 bands, Python and Redis together). The ratio is
    1.3. w is 2, to stay on the safe side in indexes above N: F grows with the index, b does not. At threshold 0.8,
    recall 0.99 and N = 300,000; the columns of candidates and found are pairs of Reuters articles, mean over five
    seeds, and F counts a pair for both documents:

        bands x rows   permutations   P(0.8)   candidates below 0.8   found, of 540 from 0.8 on   F      cost
        9 x 4          36             0.9913   1,188                  539.8                       2.01   13.0
        12 x 5         60             0.9915   643                    539.6                       1.18   14.4
        16 x 6         96             0.9923   446                    540.0                       0.80   17.6

    Bands also cost memory (`BAND_BYTES`), so few bands win until false candidates outweigh them: 12 x 5 is cheapest
    from N = 540,000, 16 x 6 from 1.6 million on. Other corpora have other neighbours.
    """
    return banding.bands + FALSE_CANDIDATE_WEIGHT * false_candidates(banding, threshold)


def choose_banding(recall_from: float, min_recall: float, max_permutations: int = 128, shared: int = 1) -> Banding:
    """Choose the cheapest banding that reaches the recall; at equal cost the one with fewer permutations.

    ``recall_from`` is the Jaccard similarity at which the recall is promised; candidates below it count as false.
    ``shared`` is the number m of bands that a pair must share.

    Raises ValueError if no banding reaches the recall; the text names remedies.
    """
    # At least ``shared`` bands within the permutations; ``miss`` is exact also for a recall near 1.
    bandings = (
        Banding(bands, rows)
        for rows in range(1, max_permutations // shared + 1)
        for bands in range(shared, max_permutations // rows + 1)
    )
    reaching = [banding for banding in bandings if banding.miss(recall_from, shared) <= 1.0 - min_recall]
    if not reaching:
        raise ValueError(
            f"no bands within {max_permutations} permutations find {min_recall:g} of the pairs at similarity "
            f"{recall_from:g} by {shared} shared band(s): lower min_recall, or raise recall_from or permutations"
        )
    return min(reaching, key=lambda banding: (banding_cost(banding, recall_from), banding.permutations))


def _crc_tables() -> NDArray[np.uint32]:
    """Return T0 .. T3: what octet 0 .. 3 in a 4-octet value contributes to the register, uint32, (4, 256)."""
    # T3 shifts eight bits out. T2, T1 and T0 shift the result of the table after them by one octet more.
    table_3 = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table_3 = (table_3 >> np.uint32(1)) ^ (table_3 & np.uint32(1)) * np.uint32(_CRC_POLYNOMIAL)
    tables = [table_3]
    for _ in range(3):
        tables.append((tables[-1] >> np.uint32(8)) ^ table_3[tables[-1] & np.uint32(255)])
    return np.stack(tables[::-1])


_CRC_TABLES: Final = _crc_tables()
