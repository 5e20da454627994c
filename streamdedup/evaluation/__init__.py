"""How good the pairs are that the product finds: a truth without its short cuts, and the scores against it.

`sets` gathers the shingles of a collection, `truth` finds all pairs among them that are similar enough (with no
signature, band, bucket or store), `trial` runs the same documents through the detector, `scores` compares the two and
`misses` says of every missed pair why. `nearest` compares one document with all others. Plain data in and out; files,
servers and terminals belong to the commands.
"""

from streamdedup.evaluation.grouping import ClusterQuality
from streamdedup.evaluation.misses import Miss
from streamdedup.evaluation.nearest import NearestDocuments, Neighbour
from streamdedup.evaluation.rates import Rate
from streamdedup.evaluation.scores import BandScore, MissedPair, Scores, lowest_judged, score
from streamdedup.evaluation.sets import SetCollector, ShingleSets, similarities
from streamdedup.evaluation.trial import Findings, FoundPairs, Trial, document_at
from streamdedup.evaluation.truth import Pairs, Truth, gathered, join

__all__ = [
    "BandScore",
    "ClusterQuality",
    "Findings",
    "FoundPairs",
    "Miss",
    "MissedPair",
    "NearestDocuments",
    "Neighbour",
    "Pairs",
    "Rate",
    "Scores",
    "SetCollector",
    "ShingleSets",
    "Trial",
    "Truth",
    "document_at",
    "gathered",
    "join",
    "lowest_judged",
    "score",
    "similarities",
]
