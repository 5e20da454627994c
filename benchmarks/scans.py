"""Pairs of texts: by an exact join that uses no band, and by a scan with a profile on an index in memory."""

from collections.abc import Iterable
from typing import Any

from numpy.typing import NDArray

from streamdedup.cli.collection import empty_index
from streamdedup.cli.scan import find_pairs
from streamdedup.evaluation.join import join
from streamdedup.evaluation.pairs import Pairs
from streamdedup.evaluation.trial import DetectorRun, document_at
from streamdedup.indexes import detector_options
from streamdedup.settings import Profile

#: Numbers of two documents, the smaller one first.
Pair = tuple[int, int]


def all_pairs(hashes: NDArray[Any], offsets: NDArray[Any], threshold: float) -> Pairs:
    """Return every pair of sets with a Jaccard similarity of at least the threshold, which is above 0."""
    return Pairs.concatenated(join(hashes, offsets, threshold))


def as_set(pairs: Pairs) -> set[Pair]:
    return set(zip(pairs.left.tolist(), pairs.right.tolist(), strict=True))


def scan(profile: Profile, documents: Iterable[tuple[str, str | None]]) -> set[Pair]:
    """Return the pairs of documents (text, source) that a profile finds without limits of buckets and candidates."""
    made = (document_at(number, str(number), text, source) for number, (text, source) in enumerate(documents))
    unlimited = profile.model_copy(update={"bucket_cap": None, "max_candidates": None})
    run = DetectorRun(detector_options("scan", unlimited), empty_index(unlimited))
    return {(min(ids), max(ids)) for ids in ((int(pair.id1), int(pair.id2)) for pair in find_pairs(run, made))}
