"""The error of an estimate against the number of functions: measured, and sqrt(J (1 - J) / K).

Both families are measured, the product's and the source's: `streamdedup.similarity.minhash` and `experiments.source`.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from experiments import constructed, source
from experiments.findings import Results, Scale, Table, table
from experiments.plots import SERIES, Picture
from streamdedup.similarity.minhash import HashFamily, standard_error

#: Lengths of signatures K.
FUNCTIONS = tuple(2**power for power in range(3, 11))
#: Similarities of the constructed pairs.
SIMILARITIES = (0.2, 0.5, 0.8, 0.95)
#: Similarities in the picture: an error is the same for J and 1 - J.
DRAWN = (0.5, 0.8, 0.95)
#: Distinct shingles that the source's family is made for: as many as Reuters has 3-shingles.
DISTINCT = 1_354_267
_SEED = 1997


class Errors(NamedTuple):
    """Errors of the estimates of pairs of one similarity by one length of signature: mean and root of mean square."""

    similarity: float
    functions: int
    family: str
    bias: float
    error: float

    @property
    def theory(self) -> float:
        """The standard error that theory gives."""
        return standard_error(self.similarity, self.functions)


def run(scale: Scale) -> Results:
    """Measure both families."""
    measured = list(measure(scale.trials))
    return Results("estimates", {"errors": errors_table(measured)}, {"estimate-error": draw(measured)})


def measure(trials: int) -> Iterator[Errors]:
    """Measure each family at each similarity and length."""
    for similarity in SIMILARITIES:
        sets = constructed.pairs(similarity, trials, _SEED + round(100 * similarity))
        for family, signatures in (("product", by_product(sets)), ("source", by_source(sets))):
            agreed = signatures[::2] == signatures[1::2]
            for functions in FUNCTIONS:
                off = agreed[:, :functions].mean(axis=1) - sets.similarity
                yield Errors(sets.similarity, functions, family, float(off.mean()), float(np.sqrt(np.mean(off**2))))


def by_product(sets: constructed.Sets) -> NDArray[np.uint32]:
    """Sign by the product's family."""
    return HashFamily(max(FUNCTIONS)).sign(sets.hashes, sets.offsets)


def by_source(sets: constructed.Sets) -> NDArray[np.int64]:
    """Sign by the source's family."""
    family = source.draw_family(max(FUNCTIONS), DISTINCT, _SEED)
    return source.sign(family, sets.hashes.astype(np.int64), sets.offsets)


def errors_table(measured: Sequence[Errors]) -> Table:
    """Return errors and theory, a row for each similarity and length."""
    by_place = {(one.similarity, one.functions, one.family): one for one in measured}
    rows = []
    for similarity in SIMILARITIES:
        for functions in FUNCTIONS:
            own, other = (by_place[similarity, functions, family] for family in ("product", "source"))
            cells = (own.theory, own.error, other.error, own.bias, other.bias)
            rows.append((f"{similarity:g}", functions, *(f"{one:.4f}" for one in cells)))
    names = ("theory", "product", "source", "mean error, product", "mean error, source")
    return table(("J", "K", *names), rows)


def draw(measured: Sequence[Errors]) -> str:
    """Draw theory as lines and both families as points."""
    picture = Picture(
        "Error of an estimated similarity", "functions in the signature, K", "root of the mean squared error"
    )
    line = np.geomspace(FUNCTIONS[0], FUNCTIONS[-1], 50)
    for similarity, (colour, marker) in zip(DRAWN, SERIES, strict=False):
        theory = np.sqrt(similarity * (1 - similarity) / line)
        picture.axes.plot(line, theory, color=colour, linewidth=1.5, label=f"J = {similarity:g}: sqrt(J (1 - J) / K)")
        for family, fill, size in (("product", colour, 5), ("source", "none", 9)):
            own = [one for one in measured if one.similarity == similarity and one.family == family]
            picture.axes.plot(
                [one.functions for one in own],
                [one.error for one in own],
                marker,
                color=colour,
                markerfacecolor=fill,
                markersize=size,
                label=f"measured, the {family}'s functions",
            )
    picture.axes.set(xscale="log", yscale="log")
    picture.axes.set_xticks(FUNCTIONS, labels=[str(functions) for functions in FUNCTIONS])
    ticks = (0.01, 0.02, 0.05, 0.1, 0.2)
    picture.axes.set_yticks(ticks, labels=[f"{tick:g}" for tick in ticks])
    picture.axes.minorticks_off()
    picture.legend("upper right")
    return picture.svg()
