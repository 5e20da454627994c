"""Rounds of ``tune``: results on a small part of the sample first, then on larger parts, within a time.

All kinds of shingles are compared on a part of the sample; the rest of the time is for the recommended kind and the
proposals.
"""

import math
import time
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from streamdedup.errors import SettingsError
from streamdedup.tuning.comparison import ComparedSettings, Progress, Question, compare_settings
from streamdedup.tuning.results import results_of
from streamdedup.tuning.sample import Sample, used_characters

#: Time for all rounds, in seconds, unless an option tells it.
TIME_S: Final = 50.0
#: Characters of the first round, which takes some seconds, and of the last round with all kinds of shingles. Rounds
#: with all kinds begin within a share of the time.
FIRST_CHARACTERS: Final = 400_000
ALL_KINDS_CHARACTERS: Final = 2_000_000
_ALL_KINDS_SHARE: Final = 0.2
#: Time of a round with one kind of shingles, as a share of that with all, at most.
_ONE_KIND_SHARE: Final = 0.5
#: A round has at most so many times the characters of the round before, and at least so many.
_GROWTH, _LEAST_GROWTH = 5.0, 1.3
#: Power of its characters with which the time of a round grows: until two rounds tell it, and bounds of what they tell.
_POWER, _LEAST_POWER, _GREATEST_POWER = 1.25, 1.05, 1.6


class Round(NamedTuple):
    """A round: its results, the seconds since the beginning, and whether another round follows."""

    results: dict[str, Any]
    elapsed_s: float
    is_last: bool


class Taken(NamedTuple):
    """A round with so many kinds of shingles and characters, and its seconds."""

    kinds_count: int
    characters: float
    seconds: float


def rounds(
    question: Question,
    sample: Sample,
    progress: Progress,
    time_s: float = TIME_S,
    clock: Callable[[], float] = time.perf_counter,
) -> Iterator[Round]:
    """Yield the results of each round; at least one round, and no further one that would end after ``time_s``.

    Raises:
        SettingsError: The last round recommends nothing.
    """
    beginning = clock()
    best: ComparedSettings | None = None
    earlier: ComparedSettings | None = None
    taken: list[Taken] = []
    characters = float(FIRST_CHARACTERS)
    while True:
        begun = clock()
        kinds = question.kinds if earlier is None else (earlier.recommendation.row.options,)
        whole = used_characters(sample.texts, {kind.unit for kind in kinds})
        characters = min(characters, whole)
        results: dict[str, Any] | None = None
        problem: SettingsError | None = None
        try:
            best = compare_settings(question, sample, progress, characters / max(whole, 1), earlier)
            results = results_of(best, progress)
        except SettingsError as error:
            problem = error
        elapsed_s = clock() - beginning
        taken.append(Taken(len(kinds), characters, clock() - begun))
        # Without a recommendation all kinds are compared again.
        has_all_kinds = characters < ALL_KINDS_CHARACTERS and elapsed_s < _ALL_KINDS_SHARE * time_s
        earlier = None if has_all_kinds else best
        next_count = len(question.kinds) if earlier is None else 1
        growth = min(_GROWTH, affordable_growth(taken, next_count, time_s - elapsed_s))
        if has_all_kinds:
            growth = min(growth, ALL_KINDS_CHARACTERS / max(characters, 1))
        is_last = characters >= sum(map(len, sample.texts)) or growth < _LEAST_GROWTH
        is_last = is_last or (len(kinds) == 1 and characters >= whole)
        if problem is not None and is_last:
            raise problem
        if results is not None:
            yield Round(results, elapsed_s, is_last)
        if is_last:
            return
        characters *= growth


def affordable_growth(taken: list[Taken], kinds_count: int, left_s: float) -> float:
    """Return how many times the characters of the last round can be looked at in a time, with so many kinds."""
    last, power = taken[-1], _POWER
    expected_s = last.seconds * (_ONE_KIND_SHARE if kinds_count < last.kinds_count else 1.0)
    if len(taken) > 1 and taken[-2].kinds_count == last.kinds_count and last.characters > taken[-2].characters:
        ratio = max(last.seconds, 1e-9) / max(taken[-2].seconds, 1e-9)
        power = math.log(ratio) / math.log(last.characters / taken[-2].characters)
    power = min(max(power, _LEAST_POWER), _GREATEST_POWER)
    return math.pow(max(left_s, 0.0) / max(expected_s, 1e-9), 1 / power)
