"""Proposals of ``streamdedup tune``: settings that change which documents are near-duplicates, alone and together.

Called by ``results``. ``meter`` measures each proposal, and defines pairs of boilerplate and of families. Add a new
proposal to ``_changes`` and docs/tuning.md, and if it changes an option of shingles, also to ``meter._TEXT_KEYS``.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from streamdedup.settings import Profile
from streamdedup.text.markup import has_url
from streamdedup.tuning.advice import tuned_profile
from streamdedup.tuning.comparison import ComparedSettings, Progress
from streamdedup.tuning.meter import MeasuredProposal, ProposalMeter
from streamdedup.tuning.study import Study

ALL: Final = "all together"  # name of all proposals together
_CONTAINMENT: Final = 0.8  # proposed ``containment_threshold``
#: ``recall_from`` is not lowered below this, the value of the preset ``news``: at 0.5 twice the bands are needed.
_LEAST_RECALL_FROM: Final = 0.6
_LEAST_CHANGE: Final = 0.01  # least benefit of a proposal that is shown, as a share of the recommended pairs
_LEAST_SHARE: Final = 0.001  # a text option is measured if at least this share of the texts may change
#: Points and vowel signs of Hebrew, Arabic and Syriac, which a writer may leave out, dotless i, and letters of Persian
#: and Urdu keyboards (``fold_marks``).
_SIGNS: Final = re.compile(
    "[\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061a\u064b-\u065f\u0670\u06d6-\u06dc\u06df-\u06e8"
    "\u06ea-\u06ed\u0711\u0730-\u074a\u0131\u06a9\u06cc\u06c1\u06be\u06d5\u06c3]"
)
#: Latin letters beside Greek or Cyrillic letters, which may look like them (``fold_look_alikes``).
_MIXED: Final = re.compile("[a-z][\u0370-\u052f]|[\u0370-\u052f][a-z]", re.IGNORECASE)
_HAN: Final = re.compile("[\u3400-\u9fff]")  # Han characters, of which some have variants (``fold_variants``)


class Proposals(NamedTuple):
    """Measured proposals.

    ``measured``: the recommendation, the helpful proposals, and all of these together. ``tune`` advises the last item.
    All together is missing for a single proposal, and, with a warning, where no bands reach the minimum recall.
    """

    measured: list[MeasuredProposal]
    rejected: list[MeasuredProposal]  # would help if gained pairs of families did not count as unwanted
    warnings: list[str]  # reasons for missing proposals


class _Change(NamedTuple):
    """Changed keys of the profile; ``loss_is_benefit``: the pairs that the change loses are its benefit."""

    keys: dict[str, object]
    learns_stops: bool = False
    loss_is_benefit: bool = False


def study_proposals(compared: ComparedSettings, progress: Progress) -> Proposals:
    """Measure each setting that may help, and together all that do help."""
    plan, row = compared.plan, compared.recommendation.row
    with progress("boilerplate", 1) as step:
        meter = ProposalMeter(compared)
        step(1)
    base = tuned_profile(plan.profile, row)
    recommended = meter.as_proposal("as recommended", base, None, row)
    changes = dict(_changes(base, row.study, meter))
    document_count = row.study.documents_count
    with progress("proposals", len(changes) * document_count) as step:
        measured = [
            meter.measure(name, base.model_copy(update=change.keys), step, learns_stops=change.learns_stops)
            for name, change in changes.items()
        ]
    usable = [(proposal, changes[proposal.name]) for proposal in measured if proposal is not None]
    stops_help = any(change.learns_stops and _is_helpful(proposal, change, recommended) for proposal, change in usable)
    helpful, rejected = [], []
    for proposal, change in usable:
        # If stop shingles help, they remove the boilerplate that another proposal gains.
        if _is_helpful(proposal, change, recommended, ignored="boilerplate" if stops_help else ""):
            helpful.append(proposal)
        elif _is_helpful(proposal, change, recommended, ignored="families"):
            rejected.append(proposal)
    if len(helpful) < 2:  # nothing to put together
        return Proposals([recommended, *helpful], rejected, meter.warnings)
    update = {key: value for proposal in helpful for key, value in changes[proposal.name].keys.items()}
    with progress(ALL, document_count) as step:
        together = meter.measure(ALL, base.model_copy(update=update), step, learns_stops=stops_help)
    failures = [] if together else ["all proposals together reach the minimum recall with no bands"]
    return Proposals([recommended, *helpful, *([together] if together else [])], rejected, meter.warnings + failures)


def _changes(base: Profile, study: Study, meter: ProposalMeter) -> Iterator[tuple[str, _Change]]:
    """Yield name and change of each proposal to measure; ``measure`` adds the learnt stop shingles."""
    if base.shingle_unit == "word" and base.stop_shingles == "none" and meter.learnt is not None:
        yield "stop_shingles", _Change({}, learns_stops=True)
    if (threshold := meter.lowered_threshold()) is not None:
        recall_from = max(threshold, min(base.recall_from, _LEAST_RECALL_FROM))
        name = f"threshold = {threshold:g}, recall_from = {recall_from:g}"
        yield name, _Change({"threshold": threshold, "recall_from": recall_from})
    if base.containment_threshold is None:
        yield f"containment_threshold = {_CONTAINMENT:g}", _Change({"containment_threshold": _CONTAINMENT})
    for key, pattern in (("fold_marks", _SIGNS), ("fold_variants", _HAN), ("fold_look_alikes", _MIXED)):
        # The check for ASCII is faster than the search, and leaves out most texts.
        count = sum(not text.isascii() and pattern.search(text) is not None for text in meter.texts)
        if not getattr(base, key) and _are_enough(count, meter.texts):
            yield f"{key} = true", _Change({key: True})
    if base.keep_urls and _are_enough(sum(map(has_url, meter.texts)), meter.texts):
        yield "keep_urls = false", _Change({"keep_urls": False})
    # A text shorter than a shingle becomes one shingle, and matches nothing but its copies.
    if base.shingle_unit == "word" and base.min_words < base.shingle_size:
        short = (study.sets.token_counts > 0) & (study.sets.token_counts < base.shingle_size)
        if short.any():
            yield f"min_words = {base.shingle_size}", _Change({"min_words": base.shingle_size}, loss_is_benefit=True)


def _are_enough(count: int, texts: Sequence[str]) -> bool:
    return count > 0 and count >= _LEAST_SHARE * len(texts)


def _is_helpful(proposal: MeasuredProposal, change: _Change, recommended: MeasuredProposal, ignored: str = "") -> bool:
    """Tell whether the benefit is above 0 and at least ``_LEAST_CHANGE`` of the pairs of the recommendation.

    ``ignored``: kind of gained pairs that does not count as unwanted, ``boilerplate`` or ``families``.
    """
    # Boilerplate that cannot be judged, None, counts as no pairs.
    gained_boilerplate = (proposal.boilerplate or 0) - (recommended.boilerplate or 0)
    if change.loss_is_benefit:
        benefit = proposal.lost_count
    elif change.learns_stops:  # of the lost pairs at least half must be boilerplate
        benefit = -gained_boilerplate if -gained_boilerplate >= proposal.lost_count / 2 else 0
    else:  # an unwanted pair cancels a wanted one: a gain of which half is unwanted is no benefit
        gained = {"boilerplate": gained_boilerplate, "families": proposal.families - recommended.families}
        unwanted = max(0, *(count for kind, count in gained.items() if kind != ignored))
        benefit = proposal.gained_count - proposal.lost_count - 2 * unwanted
    return benefit > 0 and benefit >= _LEAST_CHANGE * recommended.pairs
