"""Measures a changed profile on the texts of the recommended study, for ``proposals``.

Each profile is measured like the recommended row: by an exact join of the same documents (``study``), and with its own
cheapest bands (``rows``). A study keeps at most ``MOST_PAIRS`` pairs, each with the number of document pairs that it
represents, so counts of pairs are estimates. Pairs have the rows of the used texts.

- A pair is *boilerplate* if more than half of the word shingles that its two texts share are stop shingles, which are
  learnt from the whole sample.
- A pair is of a *family* if its two texts belong to a group of at least ``shown_pairs.LEAST_FAMILY`` texts of one
  source (or all without a source) that pairs link: texts of one template.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import cache
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamdedup.evaluation.pairs import Pairs, overlaps_of, shingle_sets
from streamdedup.settings import Profile
from streamdedup.similarity.minhash import HashFamily
from streamdedup.text.shingles import ShingleOptions, Shingler
from streamdedup.text.stop_learning import DEFAULT_SHARE, Learnt, learn_stop_shingles
from streamdedup.tuning.comparison import ComparedSettings
from streamdedup.tuning.passages import frequent_passages
from streamdedup.tuning.rows import TuningRow, table_rows
from streamdedup.tuning.shown_pairs import SHOWN_COUNT, across_share, in_families
from streamdedup.tuning.study import Study

#: Keys of the profile, which are also shingle options, that proposals change.
_TEXT_KEYS: Final = ("fold_marks", "fold_variants", "fold_look_alikes", "keep_urls")
#: A lower threshold is proposed while at least this share of the pairs that each step adds are of two sources. On news
#: it is 94 % or more, on listings made from templates 2 %.
_LEAST_ACROSS: Final = 0.8
#: Fewest pairs of different texts that a step to a lower threshold adds: as many as can be shown.
_LEAST_ADDED: Final = SHOWN_COUNT
#: Least shingles and documents of a passage that a warning names where no document has a source.
_PASSAGE_SHINGLES, _PASSAGE_DOCUMENTS = 10, 100
_PASSAGE_CHARS: Final = 120  # characters of the passage that are shown


class MeasuredProposal(NamedTuple):
    """A changed profile, measured; ``pairs`` are all alerted document pairs."""

    name: str  # the change, for people
    profile: Profile  # without the learnt stop shingles
    learnt: Learnt | None  # stop shingles that the change adds; None if it adds none
    row: TuningRow
    pairs: int
    gained_count: int  # alerted pairs that the recommendation does not alert
    lost_count: int  # pairs that only the recommendation alerts
    #: Alerted pairs that are boilerplate; None if none is found and some sources have too few documents to tell.
    boilerplate: int | None
    families: int  # alerted pairs of families
    gained_pairs: Pairs  # kept gained pairs of different texts
    #: Share of pairs of two sources among the ``gained_pairs`` whose sources are known; None without any.
    across: float | None


class ProposalMeter:
    """Measures changed profiles on the ``texts`` of the recommended study."""

    def __init__(self, compared: ComparedSettings) -> None:
        self._compared = compared
        self._best = compared.recommendation.row  # the recommended row
        study, options = self._best.study, self._best.options
        self.texts = [compared.sample.texts[row] for row in study.text_rows.tolist()]
        self._sources = compared.sample.sources_of(study.text_rows)
        self._recommended_pairs, self._recommended_weights = study.alerted_text_pairs(self._best.threshold)
        #: Reasons why a proposal is missing, and a passage that may be boilerplate.
        self.warnings: list[str] = []
        self._learnt_with = cache(self._learn)  # by options
        # Boilerplate is judged by sets of word shingles: for a profile of characters by those of the default size.
        words = replace(options, bag=False) if options.unit == "word" else ShingleOptions("word", 3)
        learnt = self._learnt_with(words)
        #: Stop shingles learnt from word shingles, also where the profile's unit is characters; None without any.
        self.learnt = _none_if_empty(learnt)
        if not any(compared.sample.sources):
            self.warnings += self._shared_passage(words)
        self._word_sets = study.sets if words == options else shingle_sets(Shingler(words), self.texts)
        left_out = _with_stops(words, frozenset() if learnt is None else learnt.stops.hashes)
        without_stops = self._word_sets if left_out == words else shingle_sets(Shingler(left_out), self.texts)
        self._sets_without_stops = without_stops
        judged = set() if learnt is None else {group.source for group in learnt.groups}
        # Texts of sources with too few documents to learn their boilerplate, bool (n_texts,).
        self._unjudged = np.array([source is not None and source not in judged for source in self._sources], np.bool_)

    def lowered_threshold(self) -> float | None:
        """Return the threshold to propose instead of the recommended one; None for no other.

        Goes down the compared thresholds while at least ``_LEAST_ACROSS`` of the pairs with two known sources that a
        step adds are of two different ones. A step that adds fewer than ``_LEAST_ADDED`` pairs of different texts is
        passed over: its pairs count in the next step.
        """
        study, lowest = self._best.study, None
        alerted = study.alerted_mask(self._best.threshold)
        lower = [threshold for threshold in self._compared.plan.thresholds if threshold < self._best.threshold]
        for threshold in sorted(lower, reverse=True):
            added = study.as_text_pairs(study.pairs.where(study.alerted_mask(threshold) & ~alerted))
            if len(added.left) >= _LEAST_ADDED:
                share = across_share(self._sources, added)
                if share is None or share < _LEAST_ACROSS:
                    break
                lowest, alerted = threshold, study.alerted_mask(threshold)
        return lowest

    def measure(
        self, name: str, profile: Profile, progress: Callable[[int], None], *, learns_stops: bool
    ) -> MeasuredProposal | None:
        """Measure a changed profile; None where no bands reach the minimum recall."""
        options = replace(self._best.options, **{key: getattr(profile, key) for key in _TEXT_KEYS})
        learnt = _none_if_empty(self._learnt_with(options)) if learns_stops else None
        if learnt is not None:
            options = _with_stops(options, learnt.stops.hashes)
        sample, study = self._compared.sample, self._best.study
        # Bands are searched within the signature length of the recommendation.
        workload = replace(
            self._compared.workload, most_permutations=self._best.permutations, recall_from=profile.recall_from
        )
        changed = Study(
            options,
            sample.texts,
            HashFamily(workload.most_permutations, profile.seed),
            floor=study.floor,
            rule=profile.containment_rule(),
            scopes=sample.scopes,
            text_rows=study.text_rows,
            min_words=profile.min_words,
            progress=progress,
            same_shingles=study if options == self._best.options else None,
        )
        rows = table_rows(changed, workload, (profile.threshold,), (self._best.min_recall,))
        if not rows or not rows[0].reaches_recall:  # at most one row: one threshold and one minimum recall
            return None
        return self.as_proposal(name, profile, learnt, rows[0])

    def as_proposal(self, name: str, profile: Profile, learnt: Learnt | None, row: TuningRow) -> MeasuredProposal:
        """Return a row as a proposal, with the pairs that it adds to and removes from the recommended ones."""
        is_lost = ~row.study.alerts(self._recommended_pairs, row.threshold)
        lost_count = float(self._recommended_weights[is_lost].sum())
        common_count = float(self._recommended_weights.sum()) - lost_count
        alerted, weights = row.study.alerted_text_pairs(row.threshold)
        alerted_count = float(weights.sum())
        is_of_family = in_families(self._sources, alerted)
        # Texts that only the proposal makes equal are pairs as well.
        edited = Pairs.concatenated([alerted.where(alerted.left != alerted.right), self._made_equal(row.study)])
        gained_pairs = edited.where(~self._best.study.alerts(edited, self._best.threshold))
        return MeasuredProposal(
            name,
            profile,
            learnt,
            row,
            pairs=round(alerted_count),
            # Both are estimates, so the difference may be below 0.
            gained_count=round(max(alerted_count - common_count, 0.0)),
            lost_count=round(lost_count),
            boilerplate=self._boilerplate_count(alerted, weights),
            families=round(float(weights[is_of_family].sum())),
            gained_pairs=gained_pairs,
            across=across_share(self._sources, gained_pairs),
        )

    def _boilerplate_count(self, pairs: Pairs, weights: NDArray[np.float64]) -> int | None:
        shared = overlaps_of(self._word_sets, pairs.left, pairs.right).common
        shared_without_stops = overlaps_of(self._sets_without_stops, pairs.left, pairs.right).common
        # More than half of the shared shingles are stop shingles.
        count = round(float(weights[2 * shared_without_stops < shared].sum()))
        has_unjudged = (self._unjudged[pairs.left] & self._unjudged[pairs.right]).any()
        return None if not count and has_unjudged else count

    def _made_equal(self, study: Study) -> Pairs:
        """Return pairs of texts that a study makes equal and the recommended one keeps apart: n - 1 of n equal ones."""
        firsts = self._best.study.distinct.first_documents
        set_rows = study.distinct.set_rows[firsts]
        order = np.argsort(set_rows, kind="stable")
        ordered = set_rows[order]
        is_equal = (ordered[1:] == ordered[:-1]) & (ordered[1:] >= 0)
        left, right = firsts[order[:-1]][is_equal], firsts[order[1:]][is_equal]
        return Pairs(left, right, np.ones(len(left)))

    def _learn(self, options: ShingleOptions) -> Learnt | None:
        """Learn from the whole sample, however few of its texts are studied; None, with a warning, if that fails."""
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


def _none_if_empty(learnt: Learnt | None) -> Learnt | None:
    return learnt if learnt is not None and learnt.stops.counts else None


def _with_stops(options: ShingleOptions, stops: frozenset[int]) -> ShingleOptions:
    return replace(options, stop_shingles=options.stop_shingles | stops)
