"""Proposals by ``streamdedup tune``: settings that change which documents are alike, each alone and all together.

Each proposal is measured like the recommended row: by an exact join of the same documents, and with its own cheapest
bands. A pair is *of boilerplate* if more than half of the word shingles that its two texts share are stop shingles.
"""

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamdedup.evaluation.pairs import contained, overlaps_of, shingle_sets, similarities
from streamdedup.settings import Profile
from streamdedup.similarity.minhash import HashFamily
from streamdedup.text.shingles import ShingleOptions, Shingler
from streamdedup.text.stop_shingles import DEFAULT_SHARE, Learnt, learn_stop_shingles
from streamdedup.tuning.advice import settings_section, tuned_profile
from streamdedup.tuning.comparison import ComparedSettings, Progress
from streamdedup.tuning.rows import TuningRow, rows_of
from streamdedup.tuning.study import Study

#: Names of the proposal to leave stop shingles out, and of all proposals together.
STOPS, ALL = "stop_shingles", "all together"
#: Proposed least containment.
_CONTAINMENT: Final = 0.8
#: Least share of the pairs that a proposal changes, and of the documents that a folding concerns.
_LEAST_CHANGE, _LEAST_SHARE = 0.01, 0.001
#: Points and vowel signs of Hebrew, Arabic and Syriac, which a writer may leave out; Han characters.
_SIGNS: Final = re.compile(
    "[\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061a\u064b-\u065f\u0670\u06d6-\u06dc\u06df-\u06e8"
    "\u06ea-\u06ed\u0711\u0730-\u074a]"
)
_HAN: Final = re.compile("[\u3400-\u9fff]")


class MeasuredProposal(NamedTuple):
    """A changed profile, measured.

    Attributes:
        name: What is changed.
        profile: The profile without stop shingles.
        learnt: Stop shingles of the profile; None unless they are a part of the change.
        row: Its cheapest bands.
        pairs: Alerted document pairs.
        gained: Those that the recommendation does not alert.
        lost: Pairs that only the recommendation alerts.
        boilerplate: Those of ``pairs`` that are of boilerplate.
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
    """The recommendation first, then the proposals, all of them together last; and reasons for missing ones."""

    measured: list[MeasuredProposal]
    warnings: list[str]

    def section(self, name: str) -> str:
        """Return the settings-file section of the last proposal; its stop shingles are in ``stops_file``."""
        proposal = self.measured[-1]
        stops = {} if proposal.learnt is None else {"stop_shingles": stops_file(name)}
        return settings_section(name, proposal.profile.model_copy(update=stops), proposal.row)


def stops_file(profile: str) -> str:
    """Return the name of a profile's file of stop shingles, beside the settings file."""
    return f"boilerplate-{profile}.txt"


def study_proposals(compared: ComparedSettings, progress: Progress) -> Proposals:
    """Measure each setting that may help, and all together that do."""
    question, row = compared.question, compared.recommendation.row
    with progress("boilerplate", 1) as step:
        bench = _Bench(compared)
        step(1)
    base = tuned_profile(question.profile, row)
    first = bench.proposal("as recommended", base, None, row)
    changes = dict(_changes(base, row.study, bench))
    count = row.study.documents_count
    with progress("proposals", len(changes) * count) as bench.step:
        measured = [
            bench.measured(name, base.model_copy(update=change), stops=name == STOPS)
            for name, change in changes.items()
        ]
    helpful = _helpful([proposal for proposal in measured if proposal is not None], first)
    if len(helpful) < 2:
        return Proposals([first, *helpful], bench.warnings)
    update = {key: value for proposal in helpful for key, value in changes[proposal.name].items()}
    with progress(ALL, count) as bench.step:
        stops = any(proposal.learnt is not None for proposal in helpful)
        together = bench.measured(ALL, base.model_copy(update=update), stops=stops)
    if together is None:
        bench.warnings.append("all proposals together reach the minimum recall with no bands")
        return Proposals([first, *helpful], bench.warnings)
    return Proposals([first, *helpful, together], bench.warnings)


def _changes(base: Profile, study: Study, bench: "_Bench") -> Iterator[tuple[str, dict[str, object]]]:
    """Yield the changes of the profile to measure; ``_Bench.measured`` adds the stop shingles of ``STOPS``."""
    if base.shingle_unit == "word" and base.stop_shingles == "none" and bench.learnt is not None:
        yield STOPS, {}
    if base.containment_threshold is None and base.containment_min_similarity < base.threshold:
        yield f"containment_threshold = {_CONTAINMENT:g}", {"containment_threshold": _CONTAINMENT}
    for key, pattern in (("fold_marks", _SIGNS), ("fold_variants", _HAN)):
        count = sum(not text.isascii() and pattern.search(text) is not None for text in bench.texts)
        if not getattr(base, key) and count and count >= _LEAST_SHARE * len(bench.texts):
            yield f"{key} = true", {key: True}
    if base.shingle_unit == "word" and base.min_words < base.shingle_size:
        short = (study.sets.token_counts > 0) & (study.sets.token_counts < base.shingle_size)
        if short.any():
            yield f"min_words = {base.shingle_size}", {"min_words": base.shingle_size}


def _helpful(measured: Sequence[MeasuredProposal], first: MeasuredProposal) -> list[MeasuredProposal]:
    """Return the improvements; stop shingles among them remove the boilerplate of the others."""
    learns = any(proposal.learnt is not None and _is_helpful(proposal, first) for proposal in measured)
    return [proposal for proposal in measured if _is_helpful(proposal, first, without_boilerplate=learns)]


def _is_helpful(proposal: MeasuredProposal, first: MeasuredProposal, *, without_boilerplate: bool = False) -> bool:
    """Tell whether a proposal is an improvement that concerns at least ``_LEAST_CHANGE`` of the recommended pairs.

    - ``stop_shingles``: counts the boilerplate pairs that disappear; at least half of the lost pairs must be such.
    - ``min_words``: counts the lost pairs.
    - Others: count gained minus lost pairs; at most half of the gained pairs may be boilerplate.

    ``without_boilerplate``: ignore boilerplate among gained pairs; proposed stop shingles remove it.
    """
    if proposal.name == STOPS:
        removed = first.boilerplate - proposal.boilerplate
        changed = removed if 2 * removed >= proposal.lost else 0
    elif proposal.name.startswith("min_words"):
        changed = proposal.lost
    else:
        boilerplate = 0 if without_boilerplate else max(proposal.boilerplate - first.boilerplate, 0)
        changed = proposal.gained - proposal.lost - 2 * boilerplate
    return changed > 0 and changed >= _LEAST_CHANGE * first.pairs


class _Bench:
    """Measures changed profiles on the documents of the recommended study.

    Attributes:
        texts: The texts.
        learnt: Stop shingles of words; None without any.
        warnings: Reasons for missing proposals.
        step: Called with the newly joined documents' count.
    """

    def __init__(self, compared: ComparedSettings) -> None:
        self._compared = compared
        self.step: Any = lambda _: None
        self._row = compared.recommendation.row
        numbers = self._row.study.text_numbers.tolist()
        sample = compared.sample
        self.texts = [sample.texts[number] for number in numbers]
        self._sources = [sample.sources[number] for number in numbers]
        self.warnings: list[str] = []
        options = self._row.options
        words = replace(options, bag=False) if options.unit == "word" else ShingleOptions("word", 3)
        self._learnt = cache(self._newly_learnt)
        self.learnt = self._learnt(words)
        self._words = self._row.study.sets if words == options else shingle_sets(Shingler(words), self.texts)
        self._without = self._words
        if self.learnt is not None:
            self._without = shingle_sets(Shingler(_without(words, self.learnt.stops.hashes)), self.texts)

    def _newly_learnt(self, options: ShingleOptions) -> Learnt | None:
        try:
            learnt = learn_stop_shingles(zip(self.texts, self._sources, strict=True), options, DEFAULT_SHARE)
        except ValueError as error:
            self.warnings.append(f"boilerplate is not looked for: {error}")
            return None
        return learnt if learnt.stops.counts else None

    def measured(self, name: str, profile: Profile, *, stops: bool) -> MeasuredProposal | None:
        """Measure a changed profile; None where no bands reach the minimum recall.

        Args:
            name: Name of the proposal.
            profile: The changed profile.
            stops: Whether to leave out the learnt stop shingles.
        """
        options = replace(self._row.options, fold_marks=profile.fold_marks, fold_variants=profile.fold_variants)
        learnt = None
        if stops:
            learnt = self._learnt(options)
            options = options if learnt is None else _without(options, learnt.stops.hashes)
        sample, study = self._compared.sample, self._row.study
        rule, threshold, workload = profile.containment_rule(), self._row.threshold, self._compared.workload
        if rule == study.rule:  # as many values suffice as for the recommendation
            workload = replace(workload, most_permutations=self._row.permutations)
        changed = Study(
            options,
            sample.texts,
            HashFamily(workload.most_permutations, profile.seed),
            floor=study.floor if rule is None else min(study.floor, rule.min_similarity),
            rule=rule,
            scopes=sample.scopes,
            text_numbers=study.text_numbers,
            min_words=profile.min_words,
            progress=self.step,
            sets=study.sets if options == self._row.options else None,
        )
        rows = rows_of(changed, workload, (threshold,), (self._row.min_recall,))
        return self.proposal(name, profile, learnt, rows[0]) if rows and rows[0].reached else None

    def proposal(self, name: str, profile: Profile, learnt: Learnt | None, row: TuningRow) -> MeasuredProposal:
        """Return a row as a proposal, with the pairs that it adds to and removes from the recommended ones."""
        before, after, threshold = self._row.study, row.study, self._row.threshold
        left, right, weights = _alerted(before, threshold)
        lost = float(weights[~_alerts(after, left, right, threshold)].sum())
        total = float(weights.sum())
        left, right, weights = _alerted(after, threshold)
        pairs = float(weights.sum())
        common, without = (overlaps_of(sets, left, right).common for sets in (self._words, self._without))
        boilerplate = float(weights[2 * without < common].sum())
        gained = max(pairs - (total - lost), 0.0)
        return MeasuredProposal(
            name, profile, learnt, row, round(pairs), round(gained), round(lost), round(boilerplate)
        )


def _without(options: ShingleOptions, stops: frozenset[int]) -> ShingleOptions:
    return replace(options, stop_shingles=options.stop_shingles | stops)


def _alerted(study: Study, threshold: float) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Return the alerted pairs by document numbers, and the pairs that each represents; copies as pairs with itself."""
    alerted, first = study.alerted(threshold), study.distinct.first_documents
    copies = study.distinct.copies * (study.distinct.copies - 1) / 2
    several = np.flatnonzero(copies)
    return (
        np.concatenate((first[study.pairs.left[alerted]], first[several])),
        np.concatenate((first[study.pairs.right[alerted]], first[several])),
        np.concatenate((study.counts[alerted, 0], copies[several])),
    )


def _alerts(study: Study, left: NDArray[np.int64], right: NDArray[np.int64], threshold: float) -> NDArray[np.bool_]:
    """Return which document pairs a study alerts, bool (n,)."""
    sets = study.sets
    alerted = similarities(sets, left, right) >= threshold
    if study.rule is not None:
        alerted |= contained(sets, left, right, study.rule)
    enough = sets.token_counts >= study.min_words
    alerted &= enough[left] & enough[right]
    return alerted


def learning_command(row: TuningRow, name: str, profile: Profile, arguments: tuple[str, ...]) -> str:
    """Return the command that learns the stop shingles, writes them to a file and shows the most frequent ones."""
    command = ["streamdedup", "stop-shingles", *arguments]
    if (row.options.unit, row.options.size) != (profile.shingle_unit, profile.shingle_size):
        command += ["--unit", row.options.unit, "--size", str(row.options.size)]
    return shlex.join([*command, "--output", stops_file(name)])
