"""Made-up texts with many near-copies, and the pairs that the daemons of these tests must find among them."""

import random

from streamdedup.detection.model import DetectorOptions
from streamdedup.similarity.lsh import choose_banding
from streamdedup.similarity.minhash import DEFAULT_SEED
from streamdedup.text.shingles import ShingleOptions
from tests.reference_pairs import Pair, expected_pairs

WORDS = [
    f"{a}{b}" for a in ("bra", "cor", "dun", "fel", "gar", "hol", "kin") for b in ("ter", "mo", "shire", "wick", "ley")
]


def a_corpus(seed: int, count: int) -> list[tuple[str, str]]:
    """Texts of which many are edits of others, near and not so near the threshold."""
    rng = random.Random(seed)
    texts = [" ".join(rng.choices(WORDS, k=rng.randint(8, 40))) for _ in range(count // 3)]
    while len(texts) < count:
        words = rng.choice(texts).split()
        for _ in range(rng.randint(0, 4)):
            words[rng.randrange(len(words))] = rng.choice(WORDS)
        texts.append(" ".join(words))
    rng.shuffle(texts)
    return [(f"doc-{i}", text) for i, text in enumerate(texts)]


def the_expected(corpus: list[tuple[str, str]]) -> list[Pair]:
    """The pairs under the settings of ``daemons.SETTINGS`` with shingles of two words and a threshold of 0.5."""
    banding = choose_banding(0.5, 0.99, 128)
    options = DetectorOptions("articles", ShingleOptions(size=2), banding, 128, DEFAULT_SEED, threshold=0.5)
    return sorted(expected_pairs(corpus, options))


def twins(name: str, count: int) -> list[tuple[str, str]]:
    """Documents (id, text), two of each text; texts of different names have no word in common."""
    texts = [" ".join(f"{word}{name}{number}" for word in WORDS[:12]) for number in range(count)]
    return [(f"{name}-{number}-{side}", text) for number, text in enumerate(texts) for side in "ab"]


def pairs_of(name: str, count: int) -> list[tuple[str, str]]:
    """The pairs of twins."""
    return [(f"{name}-{number}-a", f"{name}-{number}-b") for number in range(count)]
