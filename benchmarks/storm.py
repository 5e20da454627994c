"""Cost of a storm of near-copies, Kafka to Kafka: one daemon with its default settings on four streams.

A storm is one text, or one text with small changes, that arrives again and again: every document of it is a
near-duplicate of all before. `benchmarks.world` defines a round.
"""

import random
from collections.abc import Callable, Iterator
from itertools import islice

from benchmarks import report
from benchmarks.datasets import Text
from benchmarks.world import Entry, World, in_turns, rates, setting_of

#: Words of each text, and words to choose from.
WORDS, VOCABULARY = 150, 20_000


def main(*, quick: bool) -> report.Report:
    count = 6_000 if quick else 100_000
    with World.started() as world:
        entries = []
        for name, texts in STREAMS.items():
            topic = name.partition(":")[0]
            drawn = islice(texts(random.Random(1)), count)
            world.fill(topic, [Text(f"d{number}", text) for number, text in enumerate(drawn)])
            entries.append(Entry(name, topic, lambda job: [world.daemon(job)]))
        rounds = in_turns(world, "ordinary", entries, 1)
        setting = setting_of(world, f"{count:,} of about {WORDS} words in each stream", rounds)
    return report.Report(setting, {"rates": rates(rounds, "stream")})


def words(rng: random.Random, count: int) -> list[str]:
    return [f"w{rng.randrange(VOCABULARY)}" for _ in range(count)]


def ordinary(rng: random.Random) -> Iterator[str]:
    while True:
        yield " ".join(words(rng, WORDS))


def copies(rng: random.Random) -> Iterator[str]:
    text = " ".join(words(rng, WORDS))
    while True:
        yield text


def variants(rng: random.Random) -> Iterator[str]:
    """Yield a text with three words that differ each time, for ever."""
    text = words(rng, WORDS)
    while True:
        text[40:43] = words(rng, 3)
        yield " ".join(text)


def boilerplate(rng: random.Random) -> Iterator[str]:
    """Yield texts of which four fifths are the same, for ever."""
    shared = words(rng, WORDS * 4 // 5)
    while True:
        yield " ".join([*shared, *words(rng, WORDS // 5)])


STREAMS: dict[str, Callable[[random.Random], Iterator[str]]] = {
    "ordinary: nothing in common": ordinary,
    "copies: one text": copies,
    "variants: similarity 0.9": variants,
    "boilerplate: similarity 0.65": boilerplate,
}
