"""The rounds of ``tune``: results on a small part of the sample first, then on larger parts, within a time.

The command iterates over ``rounds``, shows the results of each round, and prints the last ones. The first rounds
compare all kinds of shingles; later rounds, on more of the sample, only the recommended kind. Each round also measures
the proposals.
"""

import math
import time
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from streamdedup.errors import SettingsError
from streamdedup.tuning.comparison import ComparedSettings, Progress, Question, compare_settings
from streamdedup.tuning.results import results_of
from streamdedup.tuning.sample import Sample, used_characters

#: Default time for all rounds, in seconds.
TIME_S: Final = 50.0
#: Characters of the first round, which takes some seconds.
FIRST_CHARACTERS: Final = 400_000
#: Most characters of a round with all kinds of shingles, and share of the time after which no such round begins.
ALL_KINDS_CHARACTERS: Final = 2_000_000
_ALL_KINDS_SHARE: Final = 0.2
#: Time of a round with one kind of shingles, as a share of that with all, at most.
_ONE_KIND_SHARE: Final = 0.5
#: Most and fewest characters of a round, as multiples of the characters of the round before.
_GROWTH, _LEAST_GROWTH = 5.0, 1.3
#: The time of a round grows as a power of the characters: the exponent until two rounds can be compared, and bounds for
#: the exponent that two rounds show.
_POWER, _LEAST_POWER, _GREATEST_POWER = 1.25, 1.05, 1.6


class Round(NamedTuple):
    """A round: its results, the seconds since the beginning, and whether another round follows."""

    results: dict[str, Any]
    elapsed_s: float
    is_last: bool


class RoundTime(NamedTuple):
    """The number of shingle kinds and of characters in a round, and the seconds that the round took."""

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

    A round that recommends nothing yields no results; a later round, on more texts, may.

    Raises:
        SettingsError: The last round recommends nothing.
    """
    started_s = clock()
    # The last comparison that recommended a row; None before any did.
    latest: ComparedSettings | None = None
    # The comparison whose recommended kind this round studies further; None for a round with all kinds.
    earlier: ComparedSettings | None = None
    round_times: list[RoundTime] = []
    characters = float(FIRST_CHARACTERS)
    while True:
        round_started_s = clock()
        kinds = question.kinds if earlier is None else (earlier.recommendation.row.options,)
        usable_characters = used_characters(sample.texts, {kind.unit for kind in kinds})
        characters = min(characters, usable_characters)
        results: dict[str, Any] | None = None
        problem: SettingsError | None = None
        try:
            latest = compare_settings(question, sample, progress, characters / max(usable_characters, 1), earlier)
            results = results_of(latest, progress)
        except SettingsError as error:
            problem = error
        elapsed_s = clock() - started_s
        round_times.append(RoundTime(len(kinds), characters, clock() - round_started_s))
        next_has_all_kinds = characters < ALL_KINDS_CHARACTERS and elapsed_s < _ALL_KINDS_SHARE * time_s
        # Before any recommendation ``latest`` is None, so the next round has all kinds in any case.
        earlier = None if next_has_all_kinds else latest
        next_kinds_count = len(question.kinds) if earlier is None else 1
        growth = min(_GROWTH, affordable_growth(round_times, next_kinds_count, time_s - elapsed_s))
        if next_has_all_kinds:
            growth = min(growth, ALL_KINDS_CHARACTERS / max(characters, 1))
        # After a round with several kinds, one with a single kind may use more characters (``used_characters``).
        is_last = (
            characters >= sum(map(len, sample.texts))
            or growth < _LEAST_GROWTH
            or (len(kinds) == 1 and characters >= usable_characters)
        )
        if problem is not None and is_last:
            raise problem
        if results is not None:
            yield Round(results, elapsed_s, is_last)
        if is_last:
            return
        characters *= growth


def affordable_growth(round_times: list[RoundTime], kinds_count: int, left_s: float) -> float:
    """Return how many times the last round's characters fit into ``left_s`` seconds, with ``kinds_count`` kinds.

    The time grows as characters ** power; two rounds with as many kinds show the power.
    """
    last, power = round_times[-1], _POWER
    expected_s = last.seconds * (_ONE_KIND_SHARE if kinds_count < last.kinds_count else 1.0)
    if len(round_times) > 1:
        previous = round_times[-2]
        if previous.kinds_count == last.kinds_count and last.characters > previous.characters:
            ratio = max(last.seconds, 1e-9) / max(previous.seconds, 1e-9)
            power = math.log(ratio) / math.log(last.characters / previous.characters)
    power = min(max(power, _LEAST_POWER), _GREATEST_POWER)
    return math.pow(max(left_s, 0.0) / max(expected_s, 1e-9), 1 / power)
