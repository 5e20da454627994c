"""P, the pairs that must be alerted, computed by comparing all pairs.

Shares no bucket, candidate or store code with the daemon: shingles and signatures come from the core, everything
after them is written out here the slow and obvious way.
"""

import itertools
from collections.abc import Sequence
from fractions import Fraction
from zlib import crc32

import numpy as np

from streamdedup.detection.model import DetectorOptions
from streamdedup.similarity.containment import ContainmentRule
from streamdedup.similarity.lsh import Banding
from streamdedup.similarity.minhash import HashFamily
from streamdedup.text.shingles import Shingler

Pair = tuple[str, str]


def expected_pairs(documents: Sequence[tuple[str, str]], options: DetectorOptions) -> set[Pair]:
    """Return the pairs of ids, sorted, of documents (id, text) that share enough band keys and are similar enough.

    With a rule of containment, also those of which the larger one has enough of the smaller one.
    """
    batch = Shingler(options.shingles).shingle([text for _, text in documents])
    family = HashFamily(options.permutations, options.seed)
    sets, keys = [], []
    for start, end in itertools.pairwise(batch.offsets.tolist()):
        hashes = batch.hashes[start:end]
        sets.append(frozenset(hashes.tolist()))
        (signature,) = family.sign(hashes, np.array([0, len(hashes)])) if len(hashes) else (None,)
        keys.append(_band_keys(signature, options.banding) if signature is not None else [])
    found = set()
    compared = np.array([row or [0] * options.banding.bands for row in keys], np.int64)
    for a in range(len(documents)):
        shared = (compared[a + 1 :] == compared[a]).sum(axis=1)
        for b in (a + 1 + np.flatnonzero(shared >= options.min_shared_bands)).tolist():
            if not sets[a] or not sets[b]:
                continue
            similarity = Fraction(len(sets[a] & sets[b]), len(sets[a] | sets[b]))
            rule = options.containment
            if float(similarity) >= options.threshold or (rule and _is_contained(sets[a], sets[b], rule)):
                found.add(tuple(sorted((documents[a][0], documents[b][0]))))
    return found


def _is_contained(a: frozenset[int], b: frozenset[int], rule: ContainmentRule) -> bool:
    smaller = min(len(a), len(b))
    share = float(Fraction(len(a & b), smaller))
    return share >= rule.threshold and smaller >= rule.min_shingles


def _band_keys(signature: np.ndarray, banding: Banding) -> list[int]:
    rows = banding.rows
    return [crc32(signature[band * rows : (band + 1) * rows].astype("<u4").tobytes()) for band in range(banding.bands)]
