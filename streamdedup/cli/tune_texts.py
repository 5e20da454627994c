"""The part of ``streamdedup tune`` about texts: boilerplate, vowel signs and contained texts, and the proposals."""

import shlex
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

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


class TextFindings(NamedTuple):
    """Results as plain values, the runs of boilerplate in them, and the reasons for missing results."""

    results: dict[str, Any]
    boilerplate: list[Boilerplate]
    warnings: list[str]


def study_texts(
    sample: Sample, options: ShingleOptions, threshold: float, profile: Profile, arguments: tuple[str, ...]
) -> TextFindings:
    """Study the texts of a sample with the recommended shingles and threshold.

    Args:
        sample: The sample.
        options: Recommended shingles. Boilerplate is looked for in words, which can be read, also for characters.
        threshold: Recommended threshold.
        profile: Profile of ``tune``.
        arguments: Arguments that name the corpus and the profile, for the proposed command.
    """
    looked_at = BoundedTexts(MOST_CHARACTERS)
    for text in sample.texts:
        looked_at.add(text)
    texts, least = looked_at.texts, profile.min_words
    words = options if options.unit == "word" else replace(options, unit="word", size=3)
    rule = profile.containment_rule() or ContainmentRule(
        _CONTAINMENT, profile.containment_min_similarity, profile.containment_min_shingles
    )
    command = _command(words, threshold, profile, arguments)
    study: BoilerplateStudy | None = None
    boilerplate: dict[str, Any] | None = None
    warnings: list[str] = []
    with steps("boilerplate, vowel signs, contained texts", 5 * len(texts)) as step:
        folding = study_folding(texts, options, threshold, min_words=least, progress=step)
        contained = study_contained(texts, options, threshold, rule, min_words=least, progress=step)
        try:
            learnt = learn_stop_shingles(zip(sample.texts, sample.sources, strict=True), words, DEFAULT_SHARE)
        except ValueError as error:
            warnings.append(f"boilerplate is not looked for: {error}")
        else:
            study = study_boilerplate(texts, learnt, words, threshold, min_words=least, progress=step)
            boilerplate = _boilerplate_results(study, learnt, words, threshold) | {"command": command}
    found = [] if study is None else study.found[:_SHOWN]
    results: dict[str, Any] = {
        "templates": [one._asdict() | {"sources": list(one.sources)} for one in found],
        "boilerplate": boilerplate,
        "folding": None if folding is None else _folding_results(folding),
        "containment": None if contained is None else _containment_results(contained, sample, texts),
        "proposals": _proposals(
            study if options.unit == "word" else None,
            folding,
            contained if profile.containment_threshold is None else None,
            threshold,
            command,
        ),
    }
    return TextFindings(results, found, warnings)


def _command(words: ShingleOptions, threshold: float, profile: Profile, arguments: tuple[str, ...]) -> str:
    """Return the command that learns the stop shingles."""
    command = ["streamdedup", "stop-shingles", *arguments]
    if (words.unit, words.size) != (profile.shingle_unit, profile.shingle_size):
        command += ["--unit", words.unit, "--size", str(words.size)]
    if threshold != profile.threshold:
        command += ["--threshold", f"{threshold:g}"]
    return shlex.join([*command, "--output", _FILE])


def _boilerplate_results(
    study: BoilerplateStudy, learnt: Learnt, words: ShingleOptions, threshold: float
) -> dict[str, Any]:
    return {
        "shingles": f"{words.unit} {words.size}",
        "threshold": threshold,
        "documents": study.documents,
        "stop_shingles": len(learnt.stops.counts),
        "removed_share": study.removed_share,
        **_change_results(study.change),
        "unexplained": study.unexplained,
    }


def _folding_results(folding: Folding) -> dict[str, Any]:
    return {"documents": folding.documents, "share": folding.share, **_change_results(folding.change)}


def _change_results(change: PairChange) -> dict[str, int]:
    return {
        "pairs": change.before,
        "pairs_after": change.after,
        "pairs_lost": change.lost,
        "pairs_gained": change.gained,
    }


def _containment_results(contained: ContainedPairs, sample: Sample, texts: Sequence[str]) -> dict[str, Any]:
    """Return the pairs by containment; of documents with equal texts the first is named."""
    rule = contained.rule
    ids = dict(zip(reversed(sample.texts), reversed(sample.ids), strict=True))
    examples: list[dict[str, Any]] = []
    for pair in contained.nearest:
        left, right = texts[pair.left], texts[pair.right]
        shares = {"similarity": pair.similarity, "containment": pair.containment}
        examples.append({**shares, **shown_pair(ids[left], left, ids[right], right)})
    return {
        "containment": rule.threshold,
        "min_similarity": rule.min_similarity,
        "min_shingles": rule.min_shingles,
        "pairs": contained.pairs,
        "examples": examples,
    }


def _proposals(
    boilerplate: BoilerplateStudy | None,
    folding: Folding | None,
    contained: ContainedPairs | None,
    threshold: float,
    command: str,
) -> list[str]:
    """Return a sentence for each setting that would change the pairs for the better."""
    found = []
    if boilerplate is not None and boilerplate.change.lost:
        found.append(
            f"stop_shingles: {_change_text(boilerplate.change, threshold)} without the text that {DEFAULT_SHARE:.0%} "
            f"of all documents or of one source share; read the templates, then: {command}"
        )
    if folding is not None and folding.change.gained > folding.change.lost:
        found.append(
            f"fold_marks = true: {_change_text(folding.change, threshold)}; {folding.documents:,} documents "
            f"({folding.share:.1%}) have vowel signs"
        )
    if contained is not None and contained.pairs:
        rule = contained.rule
        found.append(
            f"containment_threshold = {rule.threshold:g}: {contained.pairs:,} pairs more than the "
            f"{contained.total:,} from {threshold:g} on, in which the larger text has at least "
            f"{rule.threshold:g} of the smaller one, at similarities from {rule.min_similarity:g} on; for the "
            "price of the bands, repeat tune with the key in a settings file"
        )
    return found


def _change_text(change: PairChange, threshold: float) -> str:
    counts = f"{change.after:,} pairs instead of {change.before:,} at {threshold:g}"
    return f"{counts} ({change.gained:,} more, {change.lost:,} fewer)"


def shown_pair(left: str, left_text: str, right: str, right_text: str) -> dict[str, str]:
    """Return the ids of a pair and its texts in one line each, cut to the words around the first difference."""
    texts = [" ".join(text.split()) for text in (left_text, right_text)]
    same = next((place for place, (a, b) in enumerate(zip(*texts, strict=False)) if a != b), min(map(len, texts)))
    start = max(0, min(same - _PAIR_CHARS // 2, max(map(len, texts)) - _PAIR_CHARS))
    one, other = (f"{'...' * (start > 0)}{text[start : start + _PAIR_CHARS]}" for text in texts)
    return {"left": left, "left_text": one, "right": right, "right_text": other}
