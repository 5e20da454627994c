"""Boilerplate of a sample: runs of stop shingles, and the pairs that each of them causes.

Stop shingles are learnt from a sample, of all documents and of each source (``text.stop_shingles``). A *run* is a
sequence of stop shingles that are consecutive in a document and about equally frequent, such as one notice. A run
causes a pair when the two documents are a pair with the shingles of the run and no pair without them.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamdedup.evaluation.truth import shingle_sets
from streamdedup.text.shingles import OrderedShingles, ShingleOptions, Shingler
from streamdedup.text.stop_shingles import Learnt
from streamdedup.tuning.pair_change import PairChange, SamplePairs, compare, sample_pairs

#: Characters of the texts whose pairs are compared, at most: some ten million shingles of words, 400 MB.
MOST_CHARACTERS: Final = 50_000_000
#: A run ends at a shingle that is more than so many times as frequent as its first one, or the first one as it.
_AS_FREQUENT: Final = 2
#: Fewest shingles of a run that causes no pair and is not a whole text; shorter ones are turns of phrase.
_LEAST_RUN: Final = 4
#: Runs that are found, and stop shingles that are tried as the first one of a run, at most.
_MOST_RUNS, _MOST_TRIED = 40, 1_000
#: Pairs that are no pairs any more whose common stop shingles are counted.
_MOST_COUNTED: Final = 2_000
#: Least share of the documents with a stop shingle in the sources that are named for it.
_MOSTLY: Final = 0.9
#: Shingles of a run that are compared at once, for one document or for all, at most.
_STEP, _STEP_CELLS = 512, 1 << 25


class Boilerplate(NamedTuple):
    """A run of stop shingles.

    Attributes:
        text: Its words, or characters, normalised.
        shingles: Number of its shingles.
        sources: Sources where its most important shingle is a stop shingle, the one with most documents first; empty
            where it is one in all sources, or many documents of other sources have it.
        documents: Documents of these sources, or of all, that have this shingle.
        share: Their share of the documents of these sources, or of all.
        pairs: Pairs of the sample that the run causes.
    """

    text: str
    shingles: int
    sources: tuple[str, ...]
    documents: int
    share: float
    pairs: int


class BoilerplateStudy(NamedTuple):
    """Boilerplate of a sample.

    Attributes:
        found: Runs, the one that causes most pairs first.
        documents: Documents of the sample.
        change: Pairs with the shingles of the profile, and without the learnt stop shingles.
        unexplained: Pairs lost without the stop shingles that no single one of ``found`` causes.
        removed_share: Share of the shingles of the sample that are stop shingles.
    """

    found: list[Boilerplate]
    documents: int
    change: PairChange
    unexplained: int
    removed_share: float


class _StopPlaces(NamedTuple):
    """Occurrences of stop shingles in distinct sets.

    Attributes:
        stops: uint32 (n_stops,), ascending; the stop shingles.
        sets: int64 (n,); number of the set of each occurrence.
        numbers: int64 (n,); number of the stop shingle of each occurrence in ``stops``.
    """

    stops: NDArray[np.uint32]
    sets: NDArray[np.int64]
    numbers: NDArray[np.int64]


def study_boilerplate(
    texts: Sequence[str],
    learnt: Learnt,
    options: ShingleOptions,
    threshold: float,
    *,
    min_words: int = 0,
    progress: Callable[[int], None] = lambda _: None,
) -> BoilerplateStudy:
    """Find runs of stop shingles in texts, and the pairs at the threshold that they cause.

    Args:
        texts: Texts of the sample, about ``MOST_CHARACTERS`` in all at most.
        learnt: The stop shingles.
        options: Shingles of the profile. Repetitions do not count here, and similarity is that of sets.
        threshold: Least similarity of a pair.
        min_words: Documents with fewer words are skipped.
        progress: Called with the number of texts compared since the last call, each twice.
    """
    plain = replace(options, bag=False)
    shingler = Shingler(plain)
    sets = shingle_sets(shingler, texts)
    stops = options.stop_shingles | learnt.stops.hashes
    without = shingle_sets(Shingler(replace(plain, stop_shingles=stops)), texts)
    before = sample_pairs(sets, threshold, min_words, progress)
    change, lost = compare(before, without, min_words, progress)
    places = _stop_places(before, learnt)
    explained = np.zeros(len(lost), np.bool_)
    found: list[Boilerplate] = []
    for first, run, text, is_long in _runs(shingler, texts, before, places, lost):
        caused = _caused(before, places, run)
        explained |= caused
        if not (is_long or caused.any()):
            continue
        sources, documents, share = _where(learnt, int(places.stops[first]))
        pairs = round(float(before.weights[caused].sum()))
        found.append(Boilerplate(text, len(run), sources, documents, share, pairs))
        if len(found) == _MOST_RUNS:
            break
    found.sort(key=lambda one: (-one.pairs, -one.documents))
    unexplained = round(float(before.weights[lost & ~explained].sum()))
    removed_share = 1.0 - len(without.hashes) / max(len(sets.hashes), 1)
    return BoilerplateStudy(found, len(texts), change, unexplained, removed_share)


def _stop_places(pairs: SamplePairs, learnt: Learnt) -> _StopPlaces:
    stops = np.array(sorted(learnt.stops.hashes), np.uint32)
    at = np.flatnonzero(np.isin(pairs.sets.hashes, stops))
    sets = np.searchsorted(pairs.sets.offsets, at, side="right") - 1
    return _StopPlaces(stops, sets, np.searchsorted(stops, pairs.sets.hashes[at]))


def _runs(
    shingler: Shingler, texts: Sequence[str], pairs: SamplePairs, places: _StopPlaces, lost: NDArray[np.bool_]
) -> Iterator[tuple[int, NDArray[np.int64], str, bool]]:
    """Yield the number of a stop shingle, and the run around it: the numbers of its stop shingles, text, is it long.

    The shingles that most of the lost pairs share come first, then the most frequent ones. Short runs of shingles that
    no lost pair shares are left out.
    """
    frequency = np.bincount(places.numbers, minlength=len(places.stops))
    _, first_place = np.unique(places.numbers, return_index=True)
    set_of = np.full(len(places.stops), -1)
    set_of[places.numbers[first_place]] = places.sets[first_place]
    in_order = cache(lambda number: shingler.in_order(texts[int(pairs.sets.first[number])]))
    explained = np.zeros(len(places.stops), np.bool_)
    shared = _shared_counts(pairs, places.stops, lost)
    order = np.lexsort((-frequency, -shared))
    for first in order[frequency[order] > 0][:_MOST_TRIED].tolist():
        if explained[first]:
            continue
        shingles: OrderedShingles = in_order(int(set_of[first]))
        low, high = _run(shingles.hashes, places.stops, frequency, first)
        run = np.unique(np.searchsorted(places.stops, shingles.hashes[low:high]))
        explained[run] = True
        is_long = high - low >= _LEAST_RUN or high - low == len(shingles.hashes)
        if is_long or shared[first]:
            yield first, run, shingles.text(low, high), is_long


def _shared_counts(pairs: SamplePairs, stops: NDArray[np.uint32], lost: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return the number of lost pairs that share each stop shingle, int64 (n_stops,); of some of the pairs."""
    counts = np.zeros(len(stops), np.int64)
    numbers = np.flatnonzero(lost)
    some = numbers[:: max(1, len(numbers) // _MOST_COUNTED)]
    for left, right in zip(pairs.pairs.left[some].tolist(), pairs.pairs.right[some].tolist(), strict=True):
        common = np.intersect1d(_elements(pairs, left), _elements(pairs, right), assume_unique=True)
        counts += np.isin(stops, common, assume_unique=True)
    return counts


def _elements(pairs: SamplePairs, number: int) -> NDArray[np.uint32]:
    return pairs.sets.hashes[pairs.sets.offsets[number] : pairs.sets.offsets[number + 1]]


def _run(
    hashes: NDArray[np.uint32], stops: NDArray[np.uint32], frequency: NDArray[np.int64], first: int
) -> tuple[int, int]:
    """Return start and end of the run around the first occurrence of a stop shingle in the shingles of a text."""
    numbers = np.searchsorted(stops, hashes).clip(max=len(stops) - 1)
    least, most = frequency[first] / _AS_FREQUENT, frequency[first] * _AS_FREQUENT
    is_in = (stops[numbers] == hashes) & (frequency[numbers] >= least) & (frequency[numbers] <= most)
    at = int(np.flatnonzero(hashes == stops[first])[0])
    before, after = np.flatnonzero(~is_in[:at]), np.flatnonzero(~is_in[at:])
    return int(before[-1]) + 1 if before.size else 0, at + int(after[0]) if after.size else len(hashes)


def _caused(pairs: SamplePairs, places: _StopPlaces, run: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which pairs are no pairs without the shingles of a run; a set of these alone keeps them."""
    column = np.full(len(places.stops), -1)
    column[run] = np.arange(len(run))
    chosen = column[places.numbers] >= 0
    columns = column[places.numbers[chosen]]
    having, rows = np.unique(places.sets[chosen], return_inverse=True)
    sizes = np.diff(pairs.sets.offsets)
    rest = sizes.copy()
    rest[having] -= np.bincount(rows, minlength=len(having))
    # The last row is that of all sets without a shingle of the run.
    row_of = np.full(len(sizes), len(having))
    row_of[having] = np.arange(len(having))
    left, right, _ = pairs.pairs
    common = pairs.sets.overlaps(pairs.pairs).common
    step = max(8, min(_STEP, _STEP_CELLS // (len(having) + 1)))
    for low in range(0, len(run), step):
        present = np.zeros((len(having) + 1, min(step, len(run) - low)), np.bool_)
        part = (columns >= low) & (columns < low + step)
        present[rows[part], columns[part] - low] = True
        bits = np.packbits(present, axis=1)
        common -= np.bitwise_count(bits[row_of[left]] & bits[row_of[right]]).sum(axis=1, dtype=np.int64)
    union = rest[left] + rest[right] - common
    after = np.divide(common, union, out=np.ones(len(union)), where=union > 0)
    caused: NDArray[np.bool_] = after < pairs.threshold
    return caused


def _where(learnt: Learnt, shingle: int) -> tuple[tuple[str, ...], int, float]:
    """Return the sources of a stop shingle, their documents with it, and the share of these documents.

    All documents, and no sources, where it is a stop shingle in each source, or where the sources in which it is one
    have too few of its documents.
    """
    everything, *sources = learnt.groups
    having = sorted((one for one in sources if shingle in one.counts), key=lambda one: -one.counts[shingle])
    documents = sum(one.counts[shingle] for one in having)
    overall = everything.counts.get(shingle, 0)
    if documents < _MOSTLY * overall or (overall and len(having) == len(sources) > 1):
        return (), overall, overall / everything.documents
    return tuple(one.source or "" for one in having), documents, documents / sum(one.documents for one in having)
