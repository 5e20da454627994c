"""Sample boilerplate: stop-shingle runs, and the pairs that each causes.

Stop shingles are learnt from a sample, for all documents and for each source (``text.stop_shingles``). A *run* is a
sequence with stop shingles that are consecutive in a document and about equally frequent, such as one notice. A run
causes a pair when the two documents are a pair with the run's shingles and no pair without them.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamdedup.evaluation.pairs import shingle_sets
from streamdedup.text.shingles import OrderedShingles, ShingleOptions, Shingler
from streamdedup.text.stop_shingles import Learnt
from streamdedup.tuning.pair_change import PairChange, SamplePairs, compare, sample_pairs

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
    """A stop-shingle run.

    Attributes:
        text: Its words, or characters, normalised.
        shingles: Its shingle count.
        sources: Sources where its most important shingle is a stop shingle, the one with most documents first; empty
            where it is one in all sources, or many documents from other sources have it.
        documents: Documents from these sources, or from all, that have this shingle.
        share: Their share among these sources' documents, or all documents.
        pairs: Sample pairs that the run causes.
    """

    text: str
    shingles: int
    sources: tuple[str, ...]
    documents: int
    share: float
    pairs: int


class BoilerplateStudy(NamedTuple):
    """Sample boilerplate.

    Attributes:
        templates: Runs, the one that causes most pairs first.
        documents: Sample documents.
        change: Pairs with the profile's shingles, and without the learnt stop shingles.
        unexplained: Pairs lost without the stop shingles that no single one of ``templates`` causes.
        removed_share: Share of the sample's shingles that are stop shingles.
    """

    templates: list[Boilerplate]
    documents: int
    change: PairChange
    unexplained: int
    removed_share: float


class _StopPlaces(NamedTuple):
    """Stop-shingle occurrences in distinct sets.

    Attributes:
        stops: uint32 (n_stops,), ascending; the stop shingles.
        sets: int64 (n,); each occurrence's set.
        numbers: int64 (n,); each occurrence's stop shingle, by its number in ``stops``.
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
    """Find stop-shingle runs in texts, and the pairs at the threshold that they cause.

    Args:
        texts: Sample texts, about ``MOST_CHARACTERS`` in all at most.
        learnt: The stop shingles.
        options: Profile shingles. Repetitions do not count here: similarity compares sets.
        threshold: Least pair similarity.
        min_words: Documents with fewer words are skipped.
        progress: Called with the newly compared texts' count, each twice.
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
    templates: list[Boilerplate] = []
    for first, run, text, is_long in _runs(shingler, texts, before, places, lost):
        caused = _caused(before, places, run)
        explained |= caused
        if not (is_long or caused.any()):
            continue
        sources, documents, share = _where(learnt, int(places.stops[first]))
        pairs = round(float(before.weights[caused].sum()))
        templates.append(Boilerplate(text, len(run), sources, documents, share, pairs))
        if len(templates) == _MOST_RUNS:
            break
    templates.sort(key=lambda template: (-template.pairs, -template.documents))
    unexplained = round(float(before.weights[lost & ~explained].sum()))
    removed_share = 1.0 - len(without.hashes) / max(len(sets.hashes), 1)
    return BoilerplateStudy(templates, len(texts), change, unexplained, removed_share)


def _stop_places(pairs: SamplePairs, learnt: Learnt) -> _StopPlaces:
    stops = np.array(sorted(learnt.stops.hashes), np.uint32)
    positions = np.flatnonzero(np.isin(pairs.sets.hashes, stops))
    sets = np.searchsorted(pairs.sets.offsets, positions, side="right") - 1
    return _StopPlaces(stops, sets, np.searchsorted(stops, pairs.sets.hashes[positions]))


def _runs(
    shingler: Shingler, texts: Sequence[str], pairs: SamplePairs, places: _StopPlaces, lost: NDArray[np.bool_]
) -> Iterator[tuple[int, NDArray[np.int64], str, bool]]:
    """Yield a stop shingle's number, and the run around it: stop-shingle numbers, text, is it long.

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
    """Count the lost pairs that share each stop shingle, int64 (n_stops,), over some pairs."""
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
    """Return start and end: the run around a stop shingle's first occurrence in a text's shingles."""
    numbers = np.searchsorted(stops, hashes).clip(max=len(stops) - 1)
    low_count, high_count = frequency[first] / _AS_FREQUENT, frequency[first] * _AS_FREQUENT
    is_in = (stops[numbers] == hashes) & (frequency[numbers] >= low_count) & (frequency[numbers] <= high_count)
    first_index = int(np.flatnonzero(hashes == stops[first])[0])
    before, after = np.flatnonzero(~is_in[:first_index]), np.flatnonzero(~is_in[first_index:])
    return int(before[-1]) + 1 if before.size else 0, first_index + int(after[0]) if after.size else len(hashes)


def _caused(pairs: SamplePairs, places: _StopPlaces, run: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which pairs are no pairs without a run's shingles; a set with these alone keeps them."""
    column = np.full(len(places.stops), -1)
    column[run] = np.arange(len(run))
    in_run = column[places.numbers] >= 0
    columns = column[places.numbers[in_run]]
    having, rows = np.unique(places.sets[in_run], return_inverse=True)
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
    """Return a stop shingle's sources, their documents with it, and these documents' share.

    All documents, and no sources, where it is a stop shingle in each source, or where the sources in which it is one
    have too few of its documents.
    """
    everything, *sources = learnt.groups
    having = sorted((group for group in sources if shingle in group.counts), key=lambda group: -group.counts[shingle])
    documents = sum(group.counts[shingle] for group in having)
    overall = everything.counts.get(shingle, 0)
    if documents < _MOSTLY * overall or (overall and len(having) == len(sources) > 1):
        return (), overall, overall / everything.documents
    return (
        tuple(group.source or "" for group in having),
        documents,
        documents / sum(group.documents for group in having),
    )
