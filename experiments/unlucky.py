"""Documents that miss all of their pairs at once, over 200 seeds, and the remedies.

A document of a cluster differs from all others of the cluster in the same shingles. So the rows of its signature that
disagree with one of them disagree with all, and one unlucky signature misses all of its pairs: with the chance
(1 - s^r)^b of a single pair of similarity s. The mean over seeds is as theory says; one seed may be far below.

Remedies: one to three bands more than the formula asks for, other numbers of rows, and a second look for documents with
few distinct shingles: three more bands that only these documents have.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from experiments.exact import all_pairs
from experiments.findings import Results, Scale, Table, table
from experiments.places import read
from experiments.profiles import profile
from streamdedup.evaluation.by_document import by_document
from streamdedup.evaluation.truth import Pairs
from streamdedup.similarity.lsh import Banding, false_candidates
from streamdedup.similarity.minhash import DEFAULT_SEED, HashFamily
from streamdedup.text.hashing import offsets_of, ranges
from streamdedup.text.shingles import Shingler
from streamdedup.tuning.candidates import first_shared_bands
from streamdedup.tuning.rows import BAND_US

#: Sets with clusters of near-duplicates, and the profile that they are read with.
SETS: Final = ("ota_pga", "wiki_bips", "spdx_licenses", "sms_spam")
KIND: Final = "articles"
#: Documents of at most so many distinct shingles have a second look.
FEW_SHINGLES: Final = 64
#: Memory of a band of a document in Redis, bytes (`lsh`).
BAND_BYTES: Final = 30
#: Recall that a seed should reach.
LEAST_RECALL: Final = 0.99


class Remedy(NamedTuple):
    """Bands and rows, and further bands of documents with few shingles."""

    banding: Banding
    second_look: int = 0

    def __str__(self) -> str:
        more = f" + {self.second_look} up to {FEW_SHINGLES} shingles" if self.second_look else ""
        return f"{self.banding}{more}"


CHOSEN: Final = Remedy(profile(KIND).banding())
REMEDIES: Final = (
    CHOSEN,
    Remedy(CHOSEN.banding, 3),
    *(Remedy(Banding(CHOSEN.banding.bands + more, CHOSEN.banding.rows)) for more in (1, 2, 3)),
    Remedy(Banding(12, 5)),
    Remedy(Banding(15, 5)),
    Remedy(Banding(16, 6)),
)


class Outcome(NamedTuple):
    """Recall of one seed, and documents that miss at least half of at least three pairs."""

    recall: float
    lost: int


def run(scale: Scale) -> Results:
    """Measure every remedy on every set, over twice the seeds of the scale; the first is the default seed.

    Raises:
        Absent: A set is not there.
    """
    rows: list[list[object]] = []
    for name in SETS:
        documents = Documents(scale, name)
        outcomes: dict[Remedy, list[Outcome]] = {remedy: [] for remedy in REMEDIES}
        for seed in (DEFAULT_SEED, *range(1, 2 * scale.seeds)):
            for remedy, outcome in documents.outcomes(seed):
                outcomes[remedy].append(outcome)
        pairs = f"{len(documents.pairs.left):,}"
        rows += [[name, pairs, str(remedy), *_cells(found)] for remedy, found in outcomes.items()]
    head = ("set", "pairs", "bands x rows", "mean recall", "default seed", "1 % of seeds below", "lowest")
    columns = (*head, f"seeds below {LEAST_RECALL:g}", "documents lost by a seed", "most")
    return Results("unlucky", {"seeds": table(columns, rows), "cost": cost_table()})


class Documents:
    """The documents of a set that are in a pair.

    Args:
        scale: Folder of the texts.
        name: Name of the set.
    """

    def __init__(self, scale: Scale, name: str) -> None:
        batch = Shingler(profile(KIND).shingle_options()).shingle([one.text for one in read(scale.data, name)])
        found = all_pairs(batch.hashes, batch.offsets, profile(KIND).threshold)
        own, places = np.unique(np.concatenate((found.left, found.right)), return_inverse=True)
        left, right = np.split(places, 2)
        self.pairs = Pairs(left, right, found.similarities)
        self._sizes = np.diff(batch.offsets)[own]
        self._hashes = batch.hashes[ranges(batch.offsets[own], self._sizes)]
        self._offsets = offsets_of(self._sizes)
        few = self._sizes <= FEW_SHINGLES
        self._both_few = few[left] & few[right]

    def outcomes(self, seed: int) -> Iterator[tuple[Remedy, Outcome]]:
        """Yield the outcome of each remedy with one seed."""
        longest = max(self._permutations(remedy) for remedy in REMEDIES)
        signatures = HashFamily(longest, seed).sign(self._hashes, self._offsets)
        first = {rows: self._first_shared(signatures, rows) for rows in {one.banding.rows for one in REMEDIES}}
        for remedy in REMEDIES:
            bands = np.where(self._both_few, remedy.banding.bands + remedy.second_look, remedy.banding.bands)
            found = first[remedy.banding.rows] < bands
            lost = by_document(self.pairs, found, len(self._sizes)).lost_count
            yield remedy, Outcome(float(found.mean()) if found.size else 1.0, lost)

    def _first_shared(self, signatures: NDArray[np.uint32], rows: int) -> NDArray[np.int64]:
        most = max(one.banding.bands + one.second_look for one in REMEDIES if one.banding.rows == rows)
        keys = Banding(most, rows).band_keys(signatures)
        first = first_shared_bands(keys, self.pairs.left, self.pairs.right)
        # A pair that shares none of these bands shares none of any remedy.
        return np.where(first == most, np.iinfo(np.int64).max, first)

    @staticmethod
    def _permutations(remedy: Remedy) -> int:
        return (remedy.banding.bands + remedy.second_look) * remedy.banding.rows


def _cells(found: list[Outcome]) -> list[object]:
    """Return the cells of a row: the distribution over seeds."""
    recalls = np.array([one.recall for one in found])
    lost = np.array([one.lost for one in found])
    return [
        f"{recalls.mean():.4f}",
        f"{recalls[0]:.4f}",
        f"{np.quantile(recalls, 0.01):.4f}",
        f"{recalls.min():.4f}",
        f"{np.count_nonzero(recalls < LEAST_RECALL)} of {len(recalls)}",
        f"{lost.mean():.2f}",
        int(lost.max()),
    ]


def cost_table() -> Table:
    """Return the cost of each remedy beyond that of the chosen bands, for a document in an index of 300,000."""
    threshold, chosen = profile(KIND).threshold, CHOSEN.banding
    rows = []
    for remedy in REMEDIES:
        banding = remedy.banding
        more = banding.bands - chosen.bands + remedy.second_look
        rows.append(
            [
                str(remedy),
                f"{banding.probability(threshold):.4f}",
                f"{more * BAND_BYTES:+,}",
                f"{more * BAND_US:+.1f}",
                f"{false_candidates(banding, threshold):.2f}",
            ]
        )
    return table(("bands x rows", "P(0.8)", "bytes", "microseconds", "false candidates"), rows)
