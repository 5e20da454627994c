"""Proposals of ``streamdedup tune``: settings that change which documents are near-duplicates, alone and together.

``results`` calls ``study_proposals``. Each proposal is measured like the recommended row: by an exact join of the same
documents (``study``), and with its own cheapest bands (``rows``). A pair is *boilerplate* if more than half of the word
shingles that its two texts share are stop shingles, which are learnt from the whole sample. A pair is of a *family* if
pairs link its texts with others of the same source (``shown_pairs``): they are made from one template.
"""

import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamdedup.evaluation.pairs import Pairs, contained, gathered, overlaps_of, shingle_sets, similarities
from streamdedup.settings import Profile
from streamdedup.similarity.minhash import HashFamily
from streamdedup.text.markup import has_url
from streamdedup.text.shingles import ShingleOptions, Shingler
from streamdedup.text.stop_shingles import DEFAULT_SHARE, Learnt, learn_stop_shingles
from streamdedup.tuning.advice import settings_section, tuned_profile
from streamdedup.tuning.candidates import ALL_PAIRS
from streamdedup.tuning.comparison import ComparedSettings, Progress, Question
from streamdedup.tuning.passages import frequent_passages
from streamdedup.tuning.rows import TuningRow, rows_of
from streamdedup.tuning.shown_pairs import SHOWN_COUNT, across_share, in_families
from streamdedup.tuning.study import Study

#: Names of the proposal to leave stop shingles out, and of all proposals together.
STOPS, ALL = "stop_shingles", "all together"
#: Kinds of unwanted pairs.
BOILERPLATE, FAMILIES = "boilerplate", "families"
#: Proposed ``containment_threshold``.
_CONTAINMENT: Final = 0.8
#: A lower threshold is proposed while at least this share of the pairs that each step adds are of two sources. On news
#: it is 94 % or more, on listings made from templates 2 %.
_LEAST_ACROSS: Final = 0.8
#: Least ``recall_from`` that is proposed with a lower threshold, as that of the profile ``news``: 0.5 needs twice the
#: bands.
_LEAST_RECALL_FROM: Final = 0.6
#: Where no document has a source, a passage of at least so many shingles in so many documents is named; characters of
#: it that are shown.
_PASSAGE_SHINGLES, _PASSAGE_DOCUMENTS, _PASSAGE_CHARS = 10, 100, 120
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
        name: The change, for people; ``STOPS`` or ``ALL``, or the lines of the settings file.
        profile: The changed profile, without the learnt stop shingles.
        learnt: Stop shingles that the change adds; None if it adds none.
        row: The cheapest bands for the changed profile.
        pairs: Alerted document pairs.
        gained: Alerted pairs that the recommendation does not alert.
        lost: Pairs that only the recommendation alerts.
        boilerplate: Alerted pairs that are boilerplate; None if none is, but a source has too few documents to tell.
        families: Alerted pairs of families.
        gained_pairs: Gained pairs of different texts, by numbers of the used texts.
        across: Share of ``gained_pairs`` that are of two sources; None without such pairs or without sources.
    """

    name: str
    profile: Profile
    learnt: Learnt | None
    row: TuningRow
    pairs: int
    gained: int
    lost: int
    boilerplate: int | None
    families: int
    gained_pairs: Pairs
    across: float | None


class Proposals(NamedTuple):
    """Measured proposals.

    Attributes:
        measured: The recommendation and the helpful proposals; last, if several help and bands reach the minimum recall
            with all of them, all together. The last is what ``tune`` advises.
        rejected: Proposals that would help, if the pairs that they gain were not of families.
        warnings: Reasons for missing proposals, and passages that sources would tell apart.
    """

    measured: list[MeasuredProposal]
    rejected: list[MeasuredProposal]
    warnings: list[str]

    def section(self, name: str, stops_path: Path) -> str:
        """Return the settings-file section of the last proposal; ``stops_path`` is to hold its stop shingles."""
        proposal = self.measured[-1]
        stops = {} if proposal.learnt is None else {"stop_shingles": str(stops_path)}
        return settings_section(name, proposal.profile.model_copy(update=stops), proposal.row)


def stops_file(profile: str) -> str:
    """Return the name of a profile's file of stop shingles."""
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
    found = [proposal for proposal in measured if proposal is not None]
    helpful = _helpful(found, recommended)
    names = {proposal.name for proposal in helpful}
    rejected = [trial for trial in found if trial.name not in names and _is_helpful(trial, recommended, FAMILIES)]
    if len(helpful) < 2:  # nothing to put together
        return Proposals([recommended, *helpful], rejected, meter.warnings)
    update = {key: value for proposal in helpful for key, value in changes[proposal.name].items()}
    with progress(ALL, count) as step:
        stops = any(proposal.learnt is not None for proposal in helpful)
        together = meter.measure(ALL, base.model_copy(update=update), step, stops=stops)
    if together is None:
        meter.warnings.append("all proposals together reach the minimum recall with no bands")
    return Proposals([recommended, *helpful, *([together] if together else [])], rejected, meter.warnings)


def _changes(base: Profile, study: Study, meter: "_ProposalMeter") -> Iterator[tuple[str, dict[str, object]]]:
    """Yield name and changed keys of each proposal to measure; ``measure`` adds the stop shingles of ``STOPS``."""
    if base.shingle_unit == "word" and base.stop_shingles == "none" and meter.learnt is not None:
        yield STOPS, {}
    if (threshold := meter.lowered_threshold()) is not None:
        recall_from = max(threshold, min(base.recall_from, _LEAST_RECALL_FROM))
        name = f"threshold = {threshold:g}, recall_from = {recall_from:g}"
        yield name, {"threshold": threshold, "recall_from": recall_from}
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
    ignored = BOILERPLATE if learns else ""
    return [proposal for proposal in measured if _is_helpful(proposal, recommended, ignored)]


def _is_helpful(proposal: MeasuredProposal, recommended: MeasuredProposal, ignored: str = "") -> bool:
    """Tell whether a proposal is an improvement that concerns at least ``_LEAST_CHANGE`` of the recommended pairs.

    - ``stop_shingles``: counts the boilerplate pairs that disappear; at least half of the lost pairs must be such.
    - ``min_words``: counts the lost pairs.
    - Other proposals: count gained minus lost pairs, minus two for each pair of boilerplate or of families gained. So
      fewer than half of the gained pairs may be such. ``ignored``: the kind that does not count.
    """
    boilerplate = (proposal.boilerplate or 0) - (recommended.boilerplate or 0)
    if proposal.name == STOPS:
        changed = -boilerplate if -2 * boilerplate >= proposal.lost else 0
    elif proposal.name.startswith("min_words"):
        changed = proposal.lost
    else:
        unwanted = {BOILERPLATE: boilerplate, FAMILIES: proposal.families - recommended.families}
        counted = [max(pairs, 0) for kind, pairs in unwanted.items() if kind != ignored]
        changed = proposal.gained - proposal.lost - 2 * max(counted)
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
        self._sources = [sample.sources[number] or None for number in numbers]
        self.warnings: list[str] = []
        options = self._row.options
        # Boilerplate is judged by sets of word shingles: for a profile of characters by those of the default size.
        words = replace(options, bag=False) if options.unit == "word" else ShingleOptions("word", 3)
        self._learn = cache(self._learn_uncached)
        learnt = self._learn(words)
        self.learnt = _if_any(learnt)
        if not any(sample.sources):
            self.warnings += self._shared_passage(words)
        # Sources with too few documents to learn their boilerplate.
        judged = set() if learnt is None else {group.source for group in learnt.groups}
        self._unjudged = np.array([bool(source) and source not in judged for source in self._sources], np.bool_)
        self._word_sets = self._row.study.sets if words == options else shingle_sets(Shingler(words), self.texts)
        self._word_sets_without_stops = self._word_sets
        if self.learnt is not None:
            left_out = _with_stops(words, self.learnt.stops.hashes)
            self._word_sets_without_stops = shingle_sets(Shingler(left_out), self.texts)

    def _learn_uncached(self, options: ShingleOptions) -> Learnt | None:
        """Learn from the whole sample, however few of its texts are studied."""
        sample = self._compared.sample
        try:
            return learn_stop_shingles(zip(sample.texts, sample.sources, strict=True), options, DEFAULT_SHARE)
        except ValueError as error:
            self.warnings.append(f"boilerplate is not looked for: {error}")
            return None

    def _shared_passage(self, options: ShingleOptions) -> Iterator[str]:
        """Yield a warning about the most frequent long passage below the share of stop shingles, if there is one."""
        texts = self._compared.sample.texts
        share = _PASSAGE_DOCUMENTS / max(len(texts), 1)
        if share >= DEFAULT_SHARE:
            return
        with suppress(ValueError):  # too many shingles to count those of so few documents
            counts = learn_stop_shingles(((text, None) for text in texts), options, share).stops.counts
            stops = frozenset() if self.learnt is None else self.learnt.stops.hashes
            rare = {shingle: count for shingle, count in counts.items() if shingle not in stops}
            for passage in frequent_passages(texts, rare, options):
                if passage.shingles >= _PASSAGE_SHINGLES:
                    yield (
                        f"{passage.documents:,} documents share the passage {passage.text[:_PASSAGE_CHARS]!r}: if it "
                        "is boilerplate, name the field of the source with --source-field, so that tune learns it"
                    )
                    return

    def lowered_threshold(self) -> float | None:
        """Return the lowest threshold down to which each step adds pairs across sources; None without such a step.

        A step that adds fewer than ``SHOWN_COUNT`` pairs of different texts decides nothing.
        """
        study, lowest, alerted = self._row.study, None, self._row.study.alerted(self._row.threshold)
        lower = [threshold for threshold in self._compared.question.thresholds if threshold < self._row.threshold]
        for threshold in sorted(lower, reverse=True):
            added = study.first_of(study.pairs.where(study.alerted(threshold) & ~alerted))
            if len(added.left) >= SHOWN_COUNT:
                share = across_share(self._sources, added)
                if share is None or share < _LEAST_ACROSS:
                    break
                lowest, alerted = threshold, study.alerted(threshold)
        return lowest

    def measure(
        self, name: str, profile: Profile, progress: Callable[[int], None], *, stops: bool
    ) -> MeasuredProposal | None:
        """Measure a changed profile; None where no bands reach the minimum recall.

        ``stops``: whether to learn stop shingles with the changed options, and to leave them out.
        """
        options = replace(self._row.options, **{key: getattr(profile, key) for key in _TEXT_KEYS})
        learnt = _if_any(self._learn(options)) if stops else None
        if learnt is not None:
            options = _with_stops(options, learnt.stops.hashes)
        sample, study = self._compared.sample, self._row.study
        # As many signature values suffice as for the recommendation.
        workload = replace(
            self._compared.workload,
            most_permutations=self._row.permutations,
            recall_from=profile.recall_from,
        )
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
        rows = rows_of(changed, workload, (profile.threshold,), (self._row.min_recall,))
        if not rows or not rows[0].reached:  # at most one row: one threshold and one minimum recall
            return None
        return self.as_proposal(name, profile, learnt, rows[0])

    def as_proposal(self, name: str, profile: Profile, learnt: Learnt | None, row: TuningRow) -> MeasuredProposal:
        """Return a row as a proposal, with the pairs that it adds to and removes from the recommended ones."""
        before, weights = _alerted_pairs(self._row.study, self._row.threshold)
        lost = float(weights[~_alerts(row.study, before, row.threshold)].sum())
        common_pairs = float(weights.sum()) - lost
        alerted, weights = _alerted_pairs(row.study, row.threshold)  # from here on the pairs of the proposal
        pairs = float(weights.sum())
        is_of_family = in_families(self._sources, alerted)
        # Texts that only the proposal makes equal are pairs as well.
        edited = gathered([alerted.where(alerted.left != alerted.right), self._made_equal(row.study)])
        gained_pairs = edited.where(~_alerts(self._row.study, edited, self._row.threshold))
        return MeasuredProposal(
            name,
            profile,
            learnt,
            row,
            pairs=round(pairs),
            # The difference is below 0 where the kept pairs of the proposal's study represent too few dropped ones.
            gained=round(max(pairs - common_pairs, 0.0)),
            lost=round(lost),
            boilerplate=self._boilerplate(alerted, weights),
            families=round(float(weights[is_of_family].sum())),
            gained_pairs=gained_pairs,
            across=across_share(self._sources, gained_pairs),
        )

    def _boilerplate(self, pairs: Pairs, weights: NDArray[np.float64]) -> int | None:
        shared = overlaps_of(self._word_sets, pairs.left, pairs.right).common
        shared_without_stops = overlaps_of(self._word_sets_without_stops, pairs.left, pairs.right).common
        # More than half of the shared shingles are stop shingles.
        count = round(float(weights[2 * shared_without_stops < shared].sum()))
        is_unjudged = (self._unjudged[pairs.left] & self._unjudged[pairs.right]).any()
        return None if not count and is_unjudged else count

    def _made_equal(self, study: Study) -> Pairs:
        """Return pairs of texts that are equal in a study and different in the recommended one, a chain of each."""
        firsts = self._row.study.distinct.first_documents
        numbers = study.distinct.set_numbers[firsts]
        order = np.argsort(numbers, kind="stable")
        is_equal = (numbers[order][1:] == numbers[order][:-1]) & (numbers[order][1:] >= 0)
        left, right = firsts[order[:-1]][is_equal], firsts[order[1:]][is_equal]
        return Pairs(left, right, np.ones(len(left)))


def _if_any(learnt: Learnt | None) -> Learnt | None:
    return learnt if learnt is not None and learnt.stops.counts else None


def _with_stops(options: ShingleOptions, stops: frozenset[int]) -> ShingleOptions:
    """Return options that leave further stop shingles out."""
    return replace(options, stop_shingles=options.stop_shingles | stops)


def _alerted_pairs(study: Study, threshold: float) -> tuple[Pairs, NDArray[np.float64]]:
    """Return the alerted pairs by numbers of the used texts, and how many document pairs each represents.

    A set with copies is paired with itself, and represents the pairs of its copies.
    """
    alerted, copies = study.alerted(threshold), study.distinct.copies
    copied = np.flatnonzero(copies > 1)
    pairs = gathered([study.pairs.where(alerted), Pairs(copied, copied, np.ones(len(copied)))])
    copy_pairs = copies[copied] * (copies[copied] - 1) / 2
    return study.first_of(pairs), np.concatenate((study.counts[alerted, ALL_PAIRS], copy_pairs))


def _alerts(study: Study, pairs: Pairs, threshold: float) -> NDArray[np.bool_]:
    """Return whether a study alerts document pairs, bool (n,), computed anew: the study may have dropped the pairs."""
    sets, left, right = study.sets, pairs.left, pairs.right
    alerted = similarities(sets, left, right) >= threshold
    if study.rule is not None:
        alerted |= contained(sets, left, right, study.rule)
    has_enough_words = sets.token_counts >= study.min_words
    alerted &= has_enough_words[left] & has_enough_words[right]
    return alerted


def learning_command(row: TuningRow, question: Question) -> str:
    """Return the command that writes and shows the stop shingles."""
    command, profile = ["streamdedup", "stop-shingles", *question.arguments], question.profile
    if (row.options.unit, row.options.size) != (profile.shingle_unit, profile.shingle_size):
        command += ["--unit", row.options.unit, "--size", str(row.options.size)]
    return shlex.join([*command, "--output", str(question.stops_path)])
