"""A bounded sample of a stream of texts."""

import random
from collections.abc import Iterable
from typing import Final, Literal, NamedTuple

#: How to take a sample: each text with the same chance, or the first ones.
Sampling = Literal["random", "first"]
#: What the choice is drawn from: the same collection gives the same sample.
_SEED: Final = 1


class Sample(NamedTuple):
    """Some texts of a collection, in its order.

    Attributes:
        ids: Their ids.
        texts: The texts.
        read_count: Documents that were read.
        method: How they were chosen.
    """

    ids: list[str]
    texts: list[str]
    read_count: int
    method: Sampling

    @property
    def share(self) -> float:
        """What part of the stretch that it was taken from the sample is; 1 for the first texts, which lack nobody."""
        return len(self.ids) / self.read_count if self.method == "random" and self.read_count else 1.0


def take(documents: Iterable[tuple[str, str]], size: int, method: Sampling) -> Sample:
    """Return a sample of a stream; memory holds the sample, whatever else comes.

    "random" reads the whole stream and keeps a reservoir (J. S. Vitter, 1985, algorithm R): document number i takes the
    place of a random one with the chance size / i. "first" stops reading when it has enough.

    Args:
        documents: Ids and texts.
        size: Most documents to keep, at least 1.
        method: How to choose.
    """
    chance = random.Random(_SEED)  # noqa: S311  no secret depends on it
    kept: list[tuple[int, str, str]] = []
    count = 0
    for count, (document_id, text) in enumerate(documents, start=1):
        if len(kept) < size:
            kept.append((count, document_id, text))
        elif (place := chance.randrange(count)) < size:
            kept[place] = (count, document_id, text)
        if method == "first" and count == size:
            break
    kept.sort(key=lambda one: one[0])
    return Sample([one[1] for one in kept], [one[2] for one in kept], count, method)
