"""Proposals of ``streamdedup tune``: settings that change which documents are near-duplicates, alone and together.

``results`` calls ``study_proposals``. Each proposal is measured like the recommended row: by an exact join of the same
documents (``study``), and with its own cheapest bands (``rows``). A pair is *boilerplate* if more than half of the word
shingles that its two texts share are stop shingles.
"""

import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamdedup.evaluation.pairs import contained, overlaps_of, shingle_sets, similarities
from streamdedup.settings import Profile
from streamdedup.similarity.minhash import HashFamily
from streamdedup.text.markup import has_url
from streamdedup.text.shingles import ShingleOptions, Shingler
from streamdedup.text.stop_shingles import DEFAULT_SHARE, Learnt, learn_stop_shingles
from streamdedup.tuning.advice import settings_section, tuned_profile
from streamdedup.tuning.candidates import ALL_PAIRS
from streamdedup.tuning.comparison import ComparedSettings, Progress
from streamdedup.tuning.rows import TuningRow, rows_of
from streamdedup.tuning.study import Study

#: Names of the proposal to leave stop shingles out, and of all proposals together.
STOPS, ALL = "stop_shingles", "all together"
#: Proposed ``containment_threshold``.
_CONTAINMENT: Final = 0.8
#: Keys of the profile, which are also shingle options, that proposals change.
_TEXT_KEYS: Final = ("fold_marks", "fold_variants", "fold_look_alikes", "keep_urls")
#: A proposal is shown if it changes at least this share of the pairs.
_LEAST_CHANGE: Final = 0.01
#: A folding is measured if at least this share of the texts has a character that it may fold.
_LEAST_SHARE: Final = 0.001
#: Points and vowel signs of Hebrew, Arabic and Syriac, which a writer may leave out, dotless i, and letters of Persian
#: and Urdu keyboards (``fold_marks``).
_SIGNS: Final = re.compile(
    "[\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061a\u064b-\u065f\u0670\u06d6-\u06dc\u06df-\u06e8"
    "\u06ea-\u06ed\u0711\u0730-\u074a\u0131\u06a9\u06cc\u06c1\u06be\u06d5\u06c3]"
)
#: Latin letters beside Greek or Cyrillic letters, which may look like them (``fold_look_alikes``).
_MIXED: Final = re.compile("[a-z][\u0370-\u052f]|[\u0370-\u052f][a-z]", re.IGNORECASE)
#: Han characters, of which some have variants (``fold_variants``).
_HAN: Final = re.compile("[\u3400-\u9fff]")


class MeasuredProposal(NamedTuple):
    """A changed profile, measured.

    Attributes:
        name: The change, for people; ``STOPS`` or ``ALL``, or the line of the settings file.
        profile: The changed profile, without the learnt stop shingles.
        learnt: Stop shingles that the change adds; None if it adds none.
        row: The cheapest bands for the changed profile.
        pairs: Alerted document pairs.
        gained: Alerted pairs that the recommendation does not alert.
        lost: Pairs that only the recommendation alerts.
        boilerplate: Alerted pairs that are boilerplate.
    """

    name: str
    profile: Profile
    learnt: Learnt | None
    row: TuningRow
    pairs: int
    gained: int
    lost: int
    boilerplate: int


class Proposals(NamedTuple):
    """The recommendation with the helpful proposals, and the reasons for missing proposals as ``warnings``.

    Last in ``measured``, if several help and bands reach the minimum recall with all of them: all together.
    """

    measured: list[MeasuredProposal]
    warnings: list[str]

    def section(self, name: str) -> str:
        """Return the settings-file section of the last proposal; ``stops_file`` is to hold its learnt stop shingles."""
        proposal = self.measured[-1]
        stops = {} if proposal.learnt is None else {"stop_shingles": stops_file(name)}
        return settings_section(name, proposal.profile.model_copy(update=stops), proposal.row)


def stops_file(profile: str) -> str:
    """Return the name of a profile's file of stop shingles, beside the settings file."""
    return f"boilerplate-{profile}.txt"


def study_proposals(compared: ComparedSettings, progress: Progress) -> Proposals:
    """Measure each setting that may help, and together all that do help."""
    question, row = compared.question, compared.recommendation.row
    with progress("boilerplate", 1) as step:
        meter = _ProposalMeter(compared)
        step(1)
    base = tuned_profile(question.profile, row)
    recommended = meter.as_proposal("as recommended", base, None, row)
    changes = dict(_changes(base, row.study, meter))
    count = row.study.documents_count
    with progress("proposals", len(changes) * count) as step:
        measured = [
            meter.measure(name, base.model_copy(update=change), step, stops=name == STOPS)
            for name, change in changes.items()
        ]
    helpful = _helpful([proposal for proposal in measured if proposal is not None], recommended)
    if len(helpful) < 2:  # nothing to put together
        return Proposals([recommended, *helpful], meter.warnings)
    update = {key: value for proposal in helpful for key, value in changes[proposal.name].items()}
    with progress(ALL, count) as step:
        stops = any(proposal.learnt is not None for proposal in helpful)
        together = meter.measure(ALL, base.model_copy(update=update), step, stops=stops)
    if together is None:
        meter.warnings.append("all proposals together reach the minimum recall with no bands")
        return Proposals([recommended, *helpful], meter.warnings)
    return Proposals([recommended, *helpful, together], meter.warnings)


def _changes(base: Profile, study: Study, meter: "_ProposalMeter") -> Iterator[tuple[str, dict[str, object]]]:
    """Yield name and changed keys of each proposal to measure; ``measure`` adds the stop shingles of ``STOPS``."""
    if base.shingle_unit == "word" and base.stop_shingles == "none" and meter.learnt is not None:
        yield STOPS, {}
    if base.containment_threshold is None:
        yield f"containment_threshold = {_CONTAINMENT:g}", {"containment_threshold": _CONTAINMENT}
    for key, pattern in (("fold_marks", _SIGNS), ("fold_variants", _HAN), ("fold_look_alikes", _MIXED)):
        # The check for ASCII is faster than the search, and leaves out most texts.
        count = sum(not text.isascii() and pattern.search(text) is not None for text in meter.texts)
        if not getattr(base, key) and count and count >= _LEAST_SHARE * len(meter.texts):
            yield f"{key} = true", {key: True}
    if base.keep_urls and sum(map(has_url, meter.texts)) > _LEAST_SHARE * len(meter.texts):
        yield "keep_urls = false", {"keep_urls": False}
    # A text shorter than a shingle becomes one shingle, and matches nothing but its copies.
    if base.shingle_unit == "word" and base.min_words < base.shingle_size:
        short = (study.sets.token_counts > 0) & (study.sets.token_counts < base.shingle_size)
        if short.any():
            yield f"min_words = {base.shingle_size}", {"min_words": base.shingle_size}


def _helpful(measured: Sequence[MeasuredProposal], recommended: MeasuredProposal) -> list[MeasuredProposal]:
    """Return the improvements. If stop shingles are one of them, they remove boilerplate that other proposals gain."""
    learns = any(proposal.learnt is not None and _is_helpful(proposal, recommended) for proposal in measured)
    return [proposal for proposal in measured if _is_helpful(proposal, recommended, ignores_boilerplate=learns)]


def _is_helpful(
    proposal: MeasuredProposal, recommended: MeasuredProposal, *, ignores_boilerplate: bool = False
) -> bool:
    """Tell whether a proposal is an improvement that concerns at least ``_LEAST_CHANGE`` of the recommended pairs.

    - ``stop_shingles``: counts the boilerplate pairs that disappear; at least half of the lost pairs must be such.
    - ``min_words``: counts the lost pairs.
    - Other proposals: count gained minus lost pairs, minus two for each boilerplate pair gained, unless
      ``ignores_boilerplate``. So fewer than half of the gained pairs may be boilerplate.
    """
    if proposal.name == STOPS:
        removed = recommended.boilerplate - proposal.boilerplate
        changed = removed if 2 * removed >= proposal.lost else 0
    elif proposal.name.startswith("min_words"):
        changed = proposal.lost
    else:
        boilerplate = 0 if ignores_boilerplate else max(proposal.boilerplate - recommended.boilerplate, 0)
        changed = proposal.gained - proposal.lost - 2 * boilerplate
    return changed > 0 and changed >= _LEAST_CHANGE * recommended.pairs


class _ProposalMeter:
    """Measures changed profiles on the ``texts`` of the recommended study.

    Attributes:
        learnt: Stop shingles of words, for any unit of the profile; None without any.
        warnings: Reasons why a proposal is missing.
    """

    def __init__(self, compared: ComparedSettings) -> None:
        self._compared = compared
        self._row = compared.recommendation.row
        numbers = self._row.study.text_numbers.tolist()
        sample = compared.sample
        self.texts = [sample.texts[number] for number in numbers]
        self._sources = [sample.sources[number] for number in numbers]
        self.warnings: list[str] = []
        options = self._row.options
        # Boilerplate is judged by sets of word shingles: for a profile of characters by those of the default size.
        words = replace(options, bag=False) if options.unit == "word" else ShingleOptions("word", 3)
        self._learn = cache(self._learn_uncached)
        self.learnt = self._learn(words)
        self._word_sets = self._row.study.sets if words == options else shingle_sets(Shingler(words), self.texts)
        self._word_sets_without_stops = self._word_sets
        if self.learnt is not None:
            left_out = _with_stops(words, self.learnt.stops.hashes)
            self._word_sets_without_stops = shingle_sets(Shingler(left_out), self.texts)

    def _learn_uncached(self, options: ShingleOptions) -> Learnt | None:
        try:
            learnt = learn_stop_shingles(zip(self.texts, self._sources, strict=True), options, DEFAULT_SHARE)
        except ValueError as error:
            self.warnings.append(f"boilerplate is not looked for: {error}")
            return None
        return learnt if learnt.stops.counts else None

    def measure(
        self, name: str, profile: Profile, progress: Callable[[int], None], *, stops: bool
    ) -> MeasuredProposal | None:
        """Measure a changed profile; None where no bands reach the minimum recall.

        ``stops``: whether to learn stop shingles with the changed options, and to leave them out.
        """
        options = replace(self._row.options, **{key: getattr(profile, key) for key in _TEXT_KEYS})
        learnt = self._learn(options) if stops else None
        if learnt is not None:
            options = _with_stops(options, learnt.stops.hashes)
        sample, study = self._compared.sample, self._row.study
        # As many signature values suffice as for the recommendation.
        workload = replace(self._compared.workload, most_permutations=self._row.permutations)
        changed = Study(
            options,
            sample.texts,
            HashFamily(workload.most_permutations, profile.seed),
            floor=study.floor,
            rule=profile.containment_rule(),
            scopes=sample.scopes,
            text_numbers=study.text_numbers,
            min_words=profile.min_words,
            progress=progress,
            sets=study.sets if options == self._row.options else None,
        )
        if changed.sets is study.sets:
            changed.shingle_s = study.shingle_s  # the daemon would shingle the texts in both cases
        rows = rows_of(changed, workload, (self._row.threshold,), (self._row.min_recall,))
        if not rows or not rows[0].reached:  # at most one row: one threshold and one minimum recall
            return None
        return self.as_proposal(name, profile, learnt, rows[0])

    def as_proposal(self, name: str, profile: Profile, learnt: Learnt | None, row: TuningRow) -> MeasuredProposal:
        """Return a row as a proposal, with the pairs that it adds to and removes from the recommended ones."""
        threshold = self._row.threshold
        left, right, weights = _alerted_pairs(self._row.study, threshold)
        lost = float(weights[~_alerts(row.study, left, right, threshold)].sum())
        common_pairs = float(weights.sum()) - lost
        left, right, weights = _alerted_pairs(row.study, threshold)  # from here on the pairs of the proposal
        pairs = float(weights.sum())
        shared = overlaps_of(self._word_sets, left, right).common
        shared_without_stops = overlaps_of(self._word_sets_without_stops, left, right).common
        # More than half of the shared shingles are stop shingles.
        boilerplate = float(weights[2 * shared_without_stops < shared].sum())
        # The difference is below 0 where the kept pairs of the proposal's study represent too few dropped ones.
        gained = max(pairs - common_pairs, 0.0)
        return MeasuredProposal(
            name, profile, learnt, row, round(pairs), round(gained), round(lost), round(boilerplate)
        )


def _with_stops(options: ShingleOptions, stops: frozenset[int]) -> ShingleOptions:
    """Return options that leave further stop shingles out."""
    return replace(options, stop_shingles=options.stop_shingles | stops)


def _alerted_pairs(study: Study, threshold: float) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Return the two document numbers of each alerted pair, and how many document pairs the pair represents.

    A set with copies is paired with itself, and represents the pairs of its copies. Numbers are those of used texts.
    """
    alerted, documents = study.alerted(threshold), study.distinct.first_documents
    copy_pairs = study.distinct.copies * (study.distinct.copies - 1) / 2
    copied = np.flatnonzero(copy_pairs)
    return (
        np.concatenate((documents[study.pairs.left[alerted]], documents[copied])),
        np.concatenate((documents[study.pairs.right[alerted]], documents[copied])),
        np.concatenate((study.counts[alerted, ALL_PAIRS], copy_pairs[copied])),
    )


def _alerts(study: Study, left: NDArray[np.int64], right: NDArray[np.int64], threshold: float) -> NDArray[np.bool_]:
    """Return whether a study alerts document pairs, bool (n,), computed anew: the study may have dropped the pairs."""
    sets = study.sets
    alerted = similarities(sets, left, right) >= threshold
    if study.rule is not None:
        alerted |= contained(sets, left, right, study.rule)
    has_enough_words = sets.token_counts >= study.min_words
    alerted &= has_enough_words[left] & has_enough_words[right]
    return alerted


def learning_command(row: TuningRow, name: str, profile: Profile, arguments: tuple[str, ...]) -> str:
    """Return the command that writes and shows the stop shingles; ``arguments``: corpus and profile (``Question``)."""
    command = ["streamdedup", "stop-shingles", *arguments]
    if (row.options.unit, row.options.size) != (profile.shingle_unit, profile.shingle_size):
        command += ["--unit", row.options.unit, "--size", str(row.options.size)]
    return shlex.join([*command, "--output", stops_file(name)])
