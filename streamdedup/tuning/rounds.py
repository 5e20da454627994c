"""Rounds of ``tune``: results on a small part of the sample first, then on larger parts, within a time."""

import time
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from streamdedup.errors import SettingsError
from streamdedup.tuning.comparison import Question, compare_settings
from streamdedup.tuning.progress import Progress
from streamdedup.tuning.results import results_of
from streamdedup.tuning.sample import Sample, chosen_documents

#: Time for all rounds, in seconds.
TIME_S: Final = 50.0
#: Characters of the first round, which takes some seconds.
FIRST_CHARACTERS: Final = 400_000
#: A round has at most so many times the documents of the round before, and at least so many.
_GROWTH, _LEAST_GROWTH = 5.0, 1.5
#: Time of a document in a round compared with the round before, at most.
_SLOWER: Final = 1.5


class Round(NamedTuple):
    """A round: its results, the seconds since the beginning, and whether another round follows."""

    results: dict[str, Any]
    elapsed_s: float
    is_last: bool


def rounds(
    question: Question, sample: Sample, progress: Progress, clock: Callable[[], float] = time.perf_counter
) -> Iterator[Round]:
    """Yield the results of each round; at least one round, and no further one that would end after ``TIME_S``.

    Raises:
        SettingsError: The last round recommends nothing.
    """
    beginning = clock()
    whole = chosen_documents(sample.texts, {kind.unit for kind in question.kinds}).tolist()
    share = min(1.0, FIRST_CHARACTERS / max(sum(len(sample.texts[number]) for number in whole), 1))
    while True:
        begun = clock()
        results: dict[str, Any] | None = None
        problem: SettingsError | None = None
        try:
            results = results_of(compare_settings(question, sample, progress, share), progress)
        except SettingsError as error:
            problem = error
        ended = clock()
        growth = min(_GROWTH, (TIME_S - ended + beginning) / max((ended - begun) * _SLOWER, 1e-9))
        is_last = share >= 1.0 or growth < _LEAST_GROWTH
        if problem is not None and is_last:
            raise problem
        if results is not None:
            yield Round(results, ended - beginning, is_last)
        if is_last:
            return
        share = min(1.0, share * growth)
