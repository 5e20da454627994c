"""A text, and decoys that fill its buckets although they resemble it, and each other, too little for a pair."""

import random


def a_story(length: int = 400) -> str:
    """Return a text without a repeated word."""
    return " ".join(f"word{at}" for at in range(length))


def edited(text: str, changed: int, seed: int) -> str:
    """Return the text with ``changed`` of its words replaced by words that no other text has."""
    rng, words = random.Random(seed), text.split()
    for at in rng.sample(range(len(words)), changed):
        words[at] = f"edit{seed}x{at}"
    return " ".join(words)


def decoys(text: str, count: int, changed: int) -> list[tuple[str, str]]:
    """Return edits of a text, as id and text."""
    return [(f"decoy-{number}", edited(text, changed, number)) for number in range(count)]
