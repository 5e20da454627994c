"""The part of ``streamdedup tune`` about texts: boilerplate, vowel signs and contained texts, and the proposals."""

import shlex
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from streamdedup.cli.output import steps
from streamdedup.settings import Profile
from streamdedup.similarity.containment import ContainmentRule
from streamdedup.text.shingles import ShingleOptions
from streamdedup.text.stop_shingles import DEFAULT_SHARE, Learnt, learn_stop_shingles
from streamdedup.tuning.boilerplate import MOST_CHARACTERS, Boilerplate, BoilerplateStudy, study_boilerplate
from streamdedup.tuning.pair_change import ContainedPairs, Folding, PairChange, study_contained, study_folding
from streamdedup.tuning.sample import BoundedTexts, Sample

#: Runs of boilerplate in the results.
_SHOWN: Final = 10
#: File of the proposed command.
_FILE: Final = "boilerplate.txt"
#: Proposed least containment.
_CONTAINMENT: Final = 0.8
#: Characters of each text of a pair that is shown.
_PAIR_CHARS: Final = 100


class TextStudy:
    """Studies the texts of a sample with the recommended shingles and threshold.

    Args:
        sample: The sample.
        options: Recommended shingles. Boilerplate is looked for in words, which can be read, also for characters.
        threshold: Recommended threshold.
        profile: Profile of ``tune``.
        arguments: Arguments that name the corpus and the profile, for the proposed command.
    """

    def __init__(
        self, sample: Sample, options: ShingleOptions, threshold: float, profile: Profile, arguments: tuple[str, ...]
    ) -> None:
        self._options = options
        self._words = options if options.unit == "word" else replace(options, unit="word", size=3)
        self._threshold = threshold
        self._profile = profile
        self._arguments = arguments
        looked_at = BoundedTexts(MOST_CHARACTERS)
        for text in sample.texts:
            looked_at.add(text)
        with steps("boilerplate, vowel signs, contained texts", 5 * len(looked_at.texts)) as step:
            least = profile.min_words
            self._folding = study_folding(looked_at.texts, options, threshold, min_words=least, progress=step)
            rule = profile.containment_rule() or ContainmentRule(
                _CONTAINMENT, profile.containment_min_similarity, profile.containment_min_shingles
            )
            self._contained = study_contained(looked_at.texts, options, threshold, rule, min_words=least, progress=step)
            self._contained_texts = self._contained_examples(sample, looked_at.texts)
            self._learnt, self._problem = self._learn(sample)
            self._study: BoilerplateStudy | None = None
            if self._learnt is not None:
                self._study = study_boilerplate(
                    looked_at.texts, self._learnt, self._words, threshold, min_words=least, progress=step
                )

    def _learn(self, sample: Sample) -> tuple[Learnt | None, list[str]]:
        try:
            documents = zip(sample.texts, sample.sources, strict=True)
            return learn_stop_shingles(documents, self._words, DEFAULT_SHARE), []
        except ValueError as error:
            return None, [f"boilerplate is not looked for: {error}"]

    def _contained_examples(self, sample: Sample, texts: Sequence[str]) -> list[dict[str, Any]]:
        """Return the nearest pairs by containment; of documents with equal texts the first is named."""
        if self._contained is None:
            return []
        ids = dict(zip(reversed(sample.texts), reversed(sample.ids), strict=True))
        shown = []
        for pair in self._contained.nearest:
            left, right = cut_texts(texts[pair.left], texts[pair.right])
            shown.append(
                {
                    "similarity": pair.similarity,
                    "containment": pair.containment,
                    "left": ids[texts[pair.left]],
                    "left_text": left,
                    "right": ids[texts[pair.right]],
                    "right_text": right,
                }
            )
        return shown

    @property
    def boilerplate(self) -> list[Boilerplate]:
        """Runs of boilerplate, the one that causes most pairs first."""
        return [] if self._study is None else self._study.found[:_SHOWN]

    def warnings(self) -> list[str]:
        """Return the reasons for missing results."""
        return self._problem

    def results(self) -> dict[str, Any]:
        """Return the results as plain values."""
        return {
            "templates": [one._asdict() | {"sources": list(one.sources)} for one in self.boilerplate],
            "boilerplate": self._boilerplate_results(),
            "folding": _folding_results(self._folding),
            "containment": _containment_results(self._contained, self._contained_texts),
            "proposals": self._proposals(),
        }

    def _boilerplate_results(self) -> dict[str, Any] | None:
        learnt, study = self._learnt, self._study
        if learnt is None or study is None:
            return None
        return {
            "shingles": f"{self._words.unit} {self._words.size}",
            "threshold": self._threshold,
            "documents": study.documents,
            "stop_shingles": len(learnt.stops.counts),
            "removed_share": study.removed_share,
            **_change_results(study.change),
            "unexplained": study.unexplained,
            "command": self._command(),
        }

    def _command(self) -> str:
        words, profile = self._words, self._profile
        arguments = ["streamdedup", "stop-shingles", *self._arguments]
        if (words.unit, words.size) != (profile.shingle_unit, profile.shingle_size):
            arguments += ["--unit", words.unit, "--size", str(words.size)]
        if self._threshold != profile.threshold:
            arguments += ["--threshold", f"{self._threshold:g}"]
        return shlex.join([*arguments, "--output", _FILE])

    def _proposals(self) -> list[str]:
        """Return a sentence for each setting that would change the pairs for the better."""
        found = []
        if self._study is not None and self._options.unit == "word" and self._study.change.lost:
            change = self._study.change
            found.append(
                f"stop_shingles: {change.after:,} pairs instead of {change.before:,} at {self._threshold:g} "
                f"({change.gained:,} more, {change.lost:,} fewer) without the text that {DEFAULT_SHARE:.0%} of all "
                f"documents or of one source share; read the templates, then: {self._command()}"
            )
        folding = self._folding
        if folding is not None and folding.change.gained > folding.change.lost:
            change = folding.change
            found.append(
                f"fold_marks = true: {change.after:,} pairs instead of {change.before:,} at {self._threshold:g} "
                f"({change.gained:,} more, {change.lost:,} fewer); {folding.documents:,} documents "
                f"({folding.share:.1%}) have vowel signs"
            )
        contained = self._contained
        if contained is not None and contained.pairs and self._profile.containment_threshold is None:
            rule = contained.rule
            found.append(
                f"containment_threshold = {rule.threshold:g}: {contained.pairs:,} pairs more than the "
                f"{contained.total:,} from {self._threshold:g} on, in which the larger text has at least "
                f"{rule.threshold:g} of the smaller one, at similarities from {rule.min_similarity:g} on; for the "
                "price of the bands, repeat tune with the key in a settings file"
            )
        return found


def cut_texts(left: str, right: str) -> tuple[str, str]:
    """Return both texts of a pair in one line each, cut to the words around the first difference."""
    texts = [" ".join(text.split()) for text in (left, right)]
    same = next((place for place, (a, b) in enumerate(zip(*texts, strict=False)) if a != b), min(map(len, texts)))
    start = max(0, min(same - _PAIR_CHARS // 2, max(map(len, texts)) - _PAIR_CHARS))
    one, other = (f"{'...' * (start > 0)}{text[start : start + _PAIR_CHARS]}" for text in texts)
    return one, other


def _containment_results(contained: ContainedPairs | None, examples: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    if contained is None:
        return None
    rule = contained.rule
    return {
        "containment": rule.threshold,
        "min_similarity": rule.min_similarity,
        "min_shingles": rule.min_shingles,
        "pairs": contained.pairs,
        "examples": examples,
    }


def _folding_results(folding: Folding | None) -> dict[str, Any] | None:
    if folding is None:
        return None
    return {"documents": folding.documents, "share": folding.share, **_change_results(folding.change)}


def _change_results(change: PairChange) -> dict[str, int]:
    return {
        "pairs": change.before,
        "pairs_after": change.after,
        "pairs_lost": change.lost,
        "pairs_gained": change.gained,
    }
