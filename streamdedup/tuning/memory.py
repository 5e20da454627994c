"""Forecasts the index memory in Redis for a row of ``tune``, from measured constants.

    bytes per document = entry + caption + sketch + bands x band lifetimes x band + matches x claim lifetimes x claim

The constants were measured on Redis 7.0.15. ``tests/integration/test_index_memory.py`` compares bands, claims and a
whole document with a server; docs/tuning.md, docs/redis.md and docs/deployment.md state the same numbers. Buffers for
replication, fragmentation and snapshot copies come on top. A bucket with several members takes less than as many
buckets with one, so collections full of near-duplicates take less.
"""

from typing import Final

import numpy as np

from streamdedup.settings import Profile
from streamdedup.similarity.lsh import BAND_BYTES
from streamdedup.similarity.sketch import keeps_hashes
from streamdedup.tuning.rows import TuningRow, Workload

#: Bytes of an index entry besides its sketch: key, id, digest, position, and the server's entry for its expiry.
ENTRY_BYTES: Final = 300
CAPTION_BYTES: Final = 110  # bytes of a caption: label, source and publication time
SHINGLE_BYTES: Final = 3.3  # bytes of a stored shingle hash
VALUE_BYTES: Final = 4.0  # bytes of a value of a stored signature
#: Bytes of a claim; and its mean time in Redis, in lifetimes of an entry: a page of claims is filled during one
#: lifetime and kept for two more.
CLAIM_BYTES: Final = 30
CLAIM_LIFETIMES: Final = 2.5
#: Mean time of a bucket member in Redis, in lifetimes of an entry, by bucket layout. Pages of the layout "packed" are
#: deleted as a whole: the index has one full page generation and, in the mean, half of the current one.
BAND_LIFETIMES: Final = {"sets": 1.0, "packed": 1.5}


def bytes_per_document(row: TuningRow, workload: Workload, layout: str, profile: Profile) -> float:
    """Return one document's memory in the steady state, in bytes; ``layout``: name of the bucket layout."""
    # A pair has one claim and is a match of its later document. Matches do not grow in an index beyond the collection.
    matches = row.candidates.matches.expected(min(workload.index_size, workload.collection_size))
    if row.limits.max_candidates is not None:
        matches = min(matches, row.limits.max_candidates)
    bands = row.banding.bands * BAND_LIFETIMES[layout] * BAND_BYTES[layout]
    entry = ENTRY_BYTES + (CAPTION_BYTES if profile.label_bytes else 0)
    return entry + _sketch_bytes(row, profile.exact_limit) + bands + matches * CLAIM_LIFETIMES * CLAIM_BYTES


def _sketch_bytes(row: TuningRow, exact_limit: int | None) -> float:
    distinct = row.study.distinct
    if not distinct.sizes.size:
        return 0.0
    keeps = keeps_hashes(distinct.sizes, exact_limit)
    sizes = np.where(keeps, distinct.sizes * SHINGLE_BYTES, row.permutations * VALUE_BYTES)
    return float(np.average(sizes, weights=distinct.copies))
