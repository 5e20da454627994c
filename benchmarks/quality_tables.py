"""The measurements of `benchmarks.quality`, and their tables."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from benchmarks.report import Table
from streamdedup.cli.rendering.scores import Evaluation, as_object
from streamdedup.evaluation.rates import Rate
from streamdedup.evaluation.scores import Scores

#: Least pairs of a set with a line of its own; the others are pooled.
ENOUGH_PAIRS = 100
#: Bytes of a value of a sketch.
VALUE_BYTES = 4


@dataclass(frozen=True)
class Measured:
    """One set, compared by one profile at one threshold.

    Attributes:
        name: Name of the set.
        profile: Name of the profile.
        threshold: The threshold.
        evaluation: Findings and scores.
        daemon_pairs: Pairs alerted by the daemon, repetitions included; None without a daemon.
        differing: Pairs that only one of the two found, or that were alerted twice.
    """

    name: str
    profile: str
    threshold: float
    evaluation: Evaluation
    daemon_pairs: int | None = None
    differing: int = 0

    @property
    def sketch_bytes(self) -> int:
        """Mean size of the stored sketch of a document."""
        options, counts = self.evaluation.options, self.evaluation.shingle_counts
        if options.exact_limit is not None:
            counts = np.where(counts > options.exact_limit, options.permutations, counts)
        return round(float(counts.mean()) * VALUE_BYTES)

    def plain(self) -> dict[str, Any]:
        """Return everything as plain values that JSON can hold."""
        return {
            "set": self.name,
            "profile": self.profile,
            "sketch_bytes": self.sketch_bytes,
            "daemon_pairs": self.daemon_pairs,
            "daemon_differs_in": self.differing,
            **as_object(self.evaluation),
        }


class Limited(NamedTuple):
    """One set compared with one value of `exact_limit`."""

    limit: str
    measured: Measured


def all_tables(measured: Sequence[Measured]) -> dict[str, Table]:
    """Return every table by its name."""
    return {
        "exact": _rates(measured, lambda one: (one.exact_recall, one.exact_precision)),
        "estimated": _rates(measured, lambda one: (one.estimated_recall, one.estimated_precision)),
        "whole": _whole(measured),
        "daemon": _daemon(measured),
    }


def _rates(measured: Sequence[Measured], rates_of: Callable[[Scores], tuple[Rate, Rate]]) -> Table:
    """Return recall and precision of one kind of pairs; small sets of one threshold together."""
    rows: list[list[str]] = []
    pooled: dict[float, tuple[int, Rate, Rate]] = {}
    for one in measured:
        recall, precision = rates_of(one.evaluation.scores)
        if recall.total >= ENOUGH_PAIRS:
            rows.append([one.name, one.profile, f"{one.threshold}", *_cells(recall, precision)])
        else:
            count, pooled_recall, pooled_precision = pooled.get(one.threshold, (0, Rate(0, 0), Rate(0, 0)))
            pooled[one.threshold] = count + 1, pooled_recall + recall, pooled_precision + precision
    for threshold, (count, recall, precision) in pooled.items():
        rows.append([f"{count} with fewer than {ENOUGH_PAIRS}", "", f"{threshold}", *_cells(recall, precision)])
    head = ["set", "profile", "threshold", "true pairs", "recall", "95 % by document", "found pairs", "precision"]
    return Table(head, rows)


def _cells(recall: Rate, precision: Rate) -> list[str]:
    found = [f"{recall.total:,}", share_text(recall), bounds_text(recall)]
    return [*found, f"{precision.total:,}", share_text(precision)]


def share_text(rate: Rate) -> str:
    """Return a share; empty for no pairs."""
    return "" if rate.share is None else f"{rate.share:.4f}"


def bounds_text(rate: Rate) -> str:
    """Return the bounds of a share; empty for no pairs."""
    bounds = rate.bounds()
    return "" if bounds is None else f"{bounds[0]:.4f} - {bounds[1]:.4f}"


def _whole(measured: Sequence[Measured]) -> Table:
    """Return recall and precision of all pairs, and the reasons of missed ones."""
    rows = []
    for one in measured:
        scores = one.evaluation.scores
        missed = "; ".join(f"{count:,} {reason.value}" for reason, count in scores.missed.items())
        speed = one.evaluation.documents_per_second
        rows.append(
            [
                one.name,
                one.profile,
                f"{one.threshold}",
                f"{len(one.evaluation.ids):,}",
                f"{scores.recall.total:,}",
                share_text(scores.recall),
                share_text(scores.precision),
                missed,
                "" if speed is None else f"{speed:,.0f}",
                f"{one.evaluation.truth_seconds:.1f}",
            ]
        )
    head = ["set", "profile", "threshold", "documents", "true pairs", "recall", "precision", "missed"]
    return Table([*head, "documents/s", "join, s"], rows)


def _daemon(measured: Sequence[Measured]) -> Table:
    """Return the pairs of the daemon beside those of a scan."""
    rows = []
    for one in measured:
        if one.daemon_pairs is not None:
            pairs = [f"{len(one.evaluation.findings.pairs.left):,}", f"{one.daemon_pairs:,}"]
            same = "equal" if not one.differing else f"{one.differing:,} differ"
            rows.append([one.name, one.profile, f"{one.threshold}", *pairs, same])
    return Table(["set", "profile", "threshold", "pairs of scan", "pairs of the daemon", ""], rows)


def limits(limited: Sequence[Limited]) -> Table:
    """Return recall and cost of other values of `exact_limit`."""
    rows = []
    for limit, one in limited:
        scores, speed = one.evaluation.scores, one.evaluation.documents_per_second
        rows.append(
            [
                one.name,
                limit,
                f"{scores.recall.total:,}",
                share_text(scores.recall),
                share_text(scores.precision),
                f"{one.sketch_bytes:,}",
                "" if speed is None else f"{speed:,.0f}",
            ]
        )
    head = ["set", "exact_limit", "true pairs", "recall", "precision", "sketch, bytes a document", "documents/s"]
    return Table(head, rows)
