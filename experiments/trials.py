"""Judges whether the daemon would find pairs of texts, without other documents in the index.

A pair is found when it shares a band of the profile and the similarity of its sketches reaches the threshold:
`detector.Detector` reports the same, with any other documents in the index, below the caps.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from experiments.places import Text
from experiments.profiles import profile
from streamdedup.settings import Profile
from streamdedup.similarity.lsh import shared_bands
from streamdedup.similarity.minhash import HashFamily
from streamdedup.similarity.sketch import Sketch, Sketcher
from streamdedup.text.shingles import Shingler

#: Fewest words of a tried text: a shorter one has too few shingles to be edited a little.
MIN_WORDS = 8


class Verdicts(NamedTuple):
    """Judged pairs: their similarities, and which are found; float64 and bool, shape (n,)."""

    similarities: NDArray[np.float64]
    found: NDArray[np.bool_]


class Judge:
    """Judges pairs of texts by one of the default profiles.

    Args:
        kind: Name of the profile.
        settings: Settings that differ from the default.
    """

    def __init__(self, kind: str, **settings: object) -> None:
        self.profile: Profile = profile(kind, **settings)
        self._banding = self.profile.banding()
        self._shingler = Shingler(self.profile.shingle_options())
        family = HashFamily(self.profile.permutations, self.profile.seed)
        self._sketcher = Sketcher(family, self.profile.exact_limit, self._banding.permutations)

    def judge(self, originals: Sequence[str], copies: Sequence[str]) -> Verdicts:
        """Compare originals[i] with copies[i] for every i."""
        left, left_keys = self._prepare(originals)
        right, right_keys = self._prepare(copies)
        similarities = self._sketcher.similarities(left, right).values
        shared = shared_bands(left_keys, right_keys) >= self.profile.min_shared_bands
        return Verdicts(similarities, shared & (similarities >= self.profile.threshold))

    def _prepare(self, texts: Sequence[str]) -> tuple[list[Sketch], NDArray[np.uint32]]:
        batch = self._shingler.shingle(texts)
        sketches, values = self._sketcher.make(batch.hashes, batch.offsets)
        return sketches, self._banding.band_keys(values)


def long_enough(texts: Sequence[Text], count: int) -> list[str]:
    """Return so many texts of at least MIN_WORDS words, evenly spread over the set."""
    tokens = Shingler(profile("articles").shingle_options()).shingle([entry.text for entry in texts]).token_counts
    usable = [entry.text for entry, words in zip(texts, tokens.tolist(), strict=True) if words >= MIN_WORDS]
    step = max(1, len(usable) // count)
    return usable[::step][:count]
