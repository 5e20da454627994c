"""One line for each set, profile and seed: pairs by similarity and by containment, recall, share of boilerplate."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from benchmarks.boilerplate_share import PROFILE, BoilerplateShare, Shares
from benchmarks.containment import Contained
from benchmarks.quality_tables import Measured, bounds_text, share_text
from benchmarks.report import Table
from streamdedup.cli.rendering.scores import rate_object
from streamdedup.evaluation.rates import Rate
from streamdedup.similarity.minhash import DEFAULT_SEED


class Summary(NamedTuple):
    """One set, compared by one profile with one seed.

    Attributes:
        name: Name of the set.
        profile: Name of the profile.
        seed: Seed of the hash functions.
        similarity: Found ones of the pairs from the threshold on.
        containment: Found ones of the pairs that the rule of containment adds.
        boilerplate: Pairs of boilerplate among the alerted pairs; None for shingles of characters.
    """

    name: str
    profile: str
    seed: int
    similarity: Rate
    containment: Rate
    boilerplate: Shares | None

    def plain(self) -> dict[str, Any]:
        """Return everything as plain values that JSON can hold."""
        return {
            "set": self.name,
            "profile": self.profile,
            "seed": self.seed,
            "similarity": rate_object(self.similarity),
            "containment": rate_object(self.containment),
            "boilerplate": self.boilerplate
            and {name: rate_object(rate) for name, rate in self.boilerplate._asdict().items()},
        }


def summaries(
    measured: Mapping[int, Sequence[Measured]], contained: Iterable[Contained], boilerplate: BoilerplateShare
) -> list[Summary]:
    """Return the lines of one set.

    Args:
        measured: By seed, the measurements with each profile at the default threshold, in one order.
        contained: Pairs by containment with each profile.
        boilerplate: The boilerplate.
    """
    recalls = {one.profile: one.recalls for one in contained}
    return [
        Summary(
            one.name,
            one.profile,
            seed,
            one.evaluation.scores.recall,
            recalls[one.profile][seed],
            boilerplate.shares[seed] if one.profile == PROFILE else None,
        )
        for of_profile in zip(*measured.values(), strict=True)
        for seed, one in zip(measured, of_profile, strict=True)
    ]


def table(found: Sequence[Summary]) -> Table:
    """Return a row for each set, profile and seed."""
    rows = [
        [
            one.name,
            one.profile,
            "default" if one.seed == DEFAULT_SEED else f"{one.seed}",
            *_recall_cells(one.similarity),
            *_recall_cells(one.containment),
            *(["", ""] if one.boilerplate is None else map(_part, one.boilerplate)),
        ]
        for one in found
    ]
    recall = ["recall", "95 % by document"]
    head = ["set", "profile", "seed", "pairs by similarity", *recall, "pairs by containment", *recall]
    return Table([*head, "of boilerplate", "after stop shingles"], rows)


def _recall_cells(rate: Rate) -> list[str]:
    return [f"{rate.total:,}", share_text(rate), bounds_text(rate)]


def _part(rate: Rate) -> str:
    return f"{rate.hits:,} of {rate.total:,}" + ("" if rate.share is None else f" ({rate.share:.1%})")
