"""The probability of becoming a candidate: measured on pairs of known similarity, and by theory."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from experiments import constructed, places
from experiments.exact import Pairs, all_pairs
from experiments.findings import Results, Scale, Table, percent, table
from experiments.plots import GREY, SERIES, Picture
from experiments.profiles import profile
from streamdedup.similarity.lsh import Banding, shared_bands
from streamdedup.similarity.minhash import HashFamily
from streamdedup.text.hashing import offsets_of, ranges
from streamdedup.text.shingles import ShingleBatch, Shingler

#: Bands and rows that are drawn: those of the default settings, and those for larger indexes.
BANDINGS = (profile("articles").banding(), Banding(12, 5), Banding(16, 6))
#: Similarities of the constructed pairs.
SIMILARITIES = tuple(step / 20 for step in range(1, 20))
#: Real sets, the profile that they are read with, and the similarities between which their pairs are counted.
SETS = (("reuters21578", "articles"), ("ar_reviews", "reviews"))
BINS = tuple((tenth / 10, tenth / 10 + 0.1) for tenth in range(2, 10))
_SEED = 36


class Point(NamedTuple):
    """Pairs of one similarity: the share of candidates, by theory, and the interval of chance."""

    banding: Banding
    similarity: float
    measured: float
    theory: float
    low: float
    high: float

    @property
    def inside(self) -> bool:
        """Whether chance explains the difference."""
        return self.low <= self.measured <= self.high


def run(scale: Scale) -> Results:
    """Measure both kinds of pairs.

    Raises:
        Absent: A set is not there.
    """
    points = list(on_constructed(scale.trials))
    real = {name: list(on_real(scale, name, kind)) for name, kind in SETS}
    return Results(
        "curve",
        {"constructed": constructed_table(points), "within": within(points, scale.trials), "real": real_table(real)},
        {"probability": draw(points, scale.trials, real[SETS[0][0]])},
    )


def on_constructed(trials: int) -> Iterator[Point]:
    """Measure constructed pairs; the functions are those of the product, in its default order."""
    family = HashFamily(max(banding.permutations for banding in BANDINGS))
    for similarity in SIMILARITIES:
        sets = constructed.pairs(similarity, trials, _SEED + round(100 * similarity))
        signatures = family.sign(sets.hashes, sets.offsets)
        for banding in BANDINGS:
            keys = banding.band_keys(signatures)
            measured = float(np.mean(shared_bands(keys[::2], keys[1::2]) > 0))
            theory = banding.probability(sets.similarity)
            yield Point(banding, sets.similarity, measured, theory, *constructed.chance(theory, trials))


class Bin(NamedTuple):
    """Real pairs between two similarities: their number, and the share of candidates by theory and over seeds."""

    pairs: int
    similarity: float
    theory: float
    measured: float
    error: float


def on_real(scale: Scale, name: str, kind: str) -> Iterator[Bin]:
    """Measure all pairs of a set by their true similarity, over families of several seeds."""
    texts = [entry.text for entry in places.read(scale.data, name) if entry.text]
    batch = Shingler(profile(kind).shingle_options()).shingle(texts)
    found = all_pairs(batch.hashes, batch.offsets, BINS[0][0])
    paired = Paired(batch, found)
    candidates = np.stack([paired.candidates(seed) for seed in range(1, scale.seeds + 1)])
    for low, high in BINS:
        inside = (found.similarities >= low) & (found.similarities < high)
        if not inside.any():
            continue
        by_seed = candidates[:, inside].mean(axis=1)
        similarities = found.similarities[inside]
        expected = np.mean([BANDINGS[0].probability(one) for one in similarities.tolist()])
        error = float(by_seed.std(ddof=1) / np.sqrt(len(by_seed)))
        yield Bin(int(inside.sum()), float(similarities.mean()), float(expected), float(by_seed.mean()), error)


class Paired:
    """The documents of a batch that are in a pair; the others need no signatures.

    Args:
        batch: All documents.
        found: The pairs.
    """

    def __init__(self, batch: ShingleBatch, found: Pairs) -> None:
        own, places_of = np.unique(np.concatenate((found.left, found.right)), return_inverse=True)
        self._left, self._right = np.split(places_of, 2)
        counts = np.diff(batch.offsets)[own]
        self._hashes = batch.hashes[ranges(batch.offsets[own], counts)]
        self._offsets = offsets_of(counts)

    def candidates(self, seed: int) -> NDArray[np.bool_]:
        """Return which pairs share a band of the default banding under one seed, shape (n_pairs,)."""
        banding = BANDINGS[0]
        keys = banding.band_keys(HashFamily(banding.permutations, seed).sign(self._hashes, self._offsets))
        shared: NDArray[np.bool_] = shared_bands(keys[self._left], keys[self._right]) > 0
        return shared


def constructed_table(points: Sequence[Point]) -> Table:
    """Return measured and expected shares, a row a similarity."""
    rows = []
    for similarity in sorted({point.similarity for point in points}):
        row: list[object] = [f"{similarity:g}"]
        for point in points:
            if point.similarity == similarity:
                row += [f"{point.measured:.4f}{'' if point.inside else ' *'}", f"{point.theory:.4f}"]
        rows.append(row)
    columns = [name for banding in BANDINGS for name in (f"{banding}, measured", "theory")]
    return table(("similarity", *columns), rows)


def within(points: Sequence[Point], trials: int) -> Table:
    """Return the number of points that chance explains."""
    inside = sum(point.inside for point in points)
    rows = [
        ("pairs of each similarity", trials),
        ("points", len(points)),
        ("within the 95 % that chance allows", inside),
        ("the same, as a share", percent(inside / len(points))),
    ]
    return table(("", "number"), rows)


def real_table(real: dict[str, list[Bin]]) -> Table:
    """Return the shares of real pairs."""
    rows = [
        (
            f"{name}, {kind}",
            one.pairs,
            f"{one.similarity:.3f}",
            f"{one.measured:.4f}",
            f"{one.error:.4f}",
            f"{one.theory:.4f}",
        )
        for name, kind in SETS
        for one in real[name]
    ]
    return table(("set, profile", "pairs", "mean similarity", "measured", "standard error", "theory"), rows)


def draw(points: Sequence[Point], trials: int, real: Sequence[Bin]) -> str:
    """Draw curves, their intervals, and the measured points."""
    picture = Picture(
        "Probability of becoming a candidate", "Jaccard similarity of the pair", "share of pairs that share a band"
    )
    line = np.linspace(0, 1, 201).tolist()
    for banding, (colour, marker) in zip(BANDINGS, SERIES, strict=False):
        theory = [banding.probability(similarity) for similarity in line]
        intervals = [constructed.chance(one, trials) for one in theory]
        picture.band(line, [low for low, _ in intervals], [high for _, high in intervals], colour)
        name = f"{banding.bands} bands of {banding.rows} rows"
        picture.axes.plot(line, theory, color=colour, linewidth=1.5, label=f"{name}: theory, and 95 % of all cases")
        own = [point for point in points if point.banding == banding]
        picture.axes.plot(
            [point.similarity for point in own],
            [point.measured for point in own],
            marker,
            color=colour,
            markersize=5,
            label=f"measured on {trials:,} made pairs each",
        )
    picture.axes.plot(
        [one.similarity for one in real],
        [one.measured for one in real],
        "x",
        color=GREY,
        markersize=9,
        markeredgewidth=2,
        label=f"{BANDINGS[0].bands} x {BANDINGS[0].rows}, pairs of Reuters articles",
    )
    picture.axes.set(xlim=(0, 1), ylim=(0, 1.02))
    picture.legend("upper left")
    return picture.svg()
