"""Texts to shingles in each script, on one core: cost of a character, an octet, a shingle and a document.

    python -m benchmarks.scripts [--quick] [--documents 500] [--characters 800] [--rounds 9]

Texts are made of small vocabularies drawn at random from the letters of a script (Vietnamese: from the syllables of a
text), all of the same number of characters; beside them the collections of ../shared/data that exist. All scripts take
turns, and the best round of each counts, in processor time, so that other programs matter little.
"""

import argparse
import random
import time
import unicodedata
from collections.abc import Callable, Sequence
from itertools import islice
from typing import NamedTuple

from benchmarks import report
from benchmarks.ours import use_one_core
from benchmarks.places import REPOSITORY
from streamdedup.corpora import CorpusReader
from streamdedup.text.shingles import ShingleOptions, Shingler

DATA = REPOSITORY.parent / "shared" / "data"
#: Collections by the name of their file.
COLLECTIONS = {
    "bbc_news": "English news",
    "ar_reviews": "Arabic reviews",
    "zh_shopping_reviews": "Chinese reviews",
    "masakhane_news": "news, 16 languages of Africa",
    "udhr": "one text in 382 languages",
}
#: Words in a vocabulary.
WORDS = 2_000
#: Options of the shingles, by name.
OPTIONS = {"words": ShingleOptions(), "characters": ShingleOptions(unit="char", size=5)}


class Script(NamedTuple):
    """Recipe of the texts of a script.

    Attributes:
        letters: Letters of words, or whole words if the longest word has one letter.
        marks: Marks that may follow a letter.
        marked: Share of the letters that a mark follows.
        gap: Separator of words.
        shortest: Letters of the shortest word.
        longest: Letters of the longest one.
    """

    letters: Sequence[str]
    marks: tuple[str, ...] = ("",)
    marked: float = 0.0
    gap: str = " "
    shortest: int = 2
    longest: int = 8


def letters(*ranges: tuple[int, int]) -> str:
    """Return the letters of ranges of code points that normalisation leaves alone."""
    points = (chr(point) for first, last in ranges for point in range(first, last + 1))
    return "".join(c for c in points if unicodedata.category(c)[0] == "L" and unicodedata.is_normalized("NFKC", c))


#: Syllables of a text in Vietnamese; marks are code points of their own, up to two on a letter.
VIETNAMESE = unicodedata.normalize(
    "NFD",
    "tất cả mọi người sinh ra đều được tự do và bình đẳng về nhân phẩm và quyền mọi con người đều được tạo hóa ban cho "
    "lý trí và lương tâm và cần phải đối xử với nhau trong tình bằng hữu mèo ngủ trên ghế quyền không phân biệt "
    "chủng tộc màu da giới tính ngôn ngữ tôn giáo chính kiến quốc tịch nguồn gốc xã hội tài sản",
).split()

#: The first one is the basis of comparison.
SCRIPTS = {
    "Latin, English letters": Script(letters((0x61, 0x7A))),
    "Latin, accents": Script(letters((0x61, 0x7A), (0xE0, 0xFF))),
    "Latin, separate accents": Script(letters((0x61, 0x65), (0x69, 0x6F), (0x75, 0x75)), ("\u0301",), 0.15),
    "Vietnamese, separate accents": Script(VIETNAMESE, shortest=1, longest=1),
    "Cyrillic": Script(letters((0x430, 0x44F))),
    "Greek": Script(letters((0x3B1, 0x3C9), (0x1F00, 0x1F07))),
    "Arabic": Script(letters((0x628, 0x63A), (0x641, 0x64A))),
    "Arabic, vowel signs": Script(letters((0x628, 0x63A), (0x641, 0x64A)), ("\u064e", "\u0650", "\u0651\u064e"), 0.8),
    "Devanagari": Script(letters((0x915, 0x928), (0x92A, 0x939)), ("\u093e", "\u093f", "\u0941", "\u094d"), 0.5),
    "Amharic": Script(letters((0x1200, 0x1240)), longest=6),
    "Hangul": Script(letters((0xAC00, 0xB000)), shortest=1, longest=5),
    "Han": Script(letters((0x4E00, 0x5200)), gap="", shortest=1, longest=3),
    "Kana": Script(letters((0x3042, 0x3093)), gap="", shortest=1, longest=5),
    "Thai": Script(letters((0xE01, 0xE2E)), ("\u0e34", "\u0e31\u0e48", "\u0e49"), 0.3, gap="", longest=6),
}


class Timing(NamedTuple):
    """Cost of a set of texts.

    Attributes:
        seconds: Processor time of the best round.
        characters: Characters of all texts.
        octets: Octets of all texts in UTF-8.
        shingles: Shingles of all texts, distinct within each.
        documents: Number of texts.
    """

    seconds: float
    characters: int
    octets: int
    shingles: int
    documents: int


def main() -> None:
    """Measure, print, write."""
    arguments = parse_arguments()
    use_one_core()
    texts = {name: made(script, arguments.documents, arguments.characters) for name, script in SCRIPTS.items()}
    texts["mixed"] = mixed(list(texts.values()))
    texts |= collections(arguments.documents)
    setting = {"documents": arguments.documents, "characters": arguments.characters, "rounds": arguments.rounds}
    results, tables = {}, {}
    for unit, options in OPTIONS.items():
        timings = measure(Shingler(options), texts, arguments.rounds)
        results[unit] = {name: timing._asdict() for name, timing in timings.items()}
        tables[unit] = table(f"shingles of {unit}", timings)
    report.Report("scripts", arguments.quick, setting, results, tables).show(arguments.output)


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = report.parser(__doc__)
    parser.add_argument("--documents", type=int, help="texts of each script")
    parser.add_argument("--characters", type=int, default=800, help="characters of each text")
    parser.add_argument("--rounds", type=int, help="rounds of which the best counts")
    arguments = parser.parse_args()
    arguments.documents = arguments.documents or (50 if arguments.quick else 500)
    arguments.rounds = arguments.rounds or (2 if arguments.quick else 9)
    return arguments


def made(script: Script, documents: int, characters: int) -> list[str]:
    """Return texts of a script; always the same ones."""
    source = random.Random(1)

    def word() -> str:
        drawn = source.choices(script.letters, k=source.randint(script.shortest, script.longest))
        return "".join(c + (source.choice(script.marks) if source.random() < script.marked else "") for c in drawn)

    return text_of([word() for _ in range(WORDS)], script.gap, documents, characters, source.choices)


def text_of(
    vocabulary: list[str], gap: str, documents: int, characters: int, choose: Callable[..., list[str]]
) -> list[str]:
    """Return texts of words, with a comma or a full stop after every tenth."""
    texts = []
    for _ in range(documents):
        words = choose(vocabulary, k=characters)
        parts = (gap.join(words[at : at + 10]) for at in range(0, characters, 10))
        texts.append(", ".join(parts)[:characters])
    return texts


def mixed(scripts: list[list[str]]) -> list[str]:
    """Return texts, each of which has parts of four scripts."""
    texts = []
    for at in range(len(scripts[0])):
        parts = [scripts[(at + 3 * nth) % len(scripts)][at] for nth in range(4)]
        texts.append(" ".join(part[: len(part) // 4] for part in parts))
    return texts


def collections(documents: int) -> dict[str, list[str]]:
    """Return the first texts of each collection that exists, by name."""
    found = {}
    for name, called in COLLECTIONS.items():
        path = DATA / f"{name}.jsonl.gz"
        if path.exists():
            found[called] = [entry.text for entry in islice(CorpusReader(path), documents)]
    return found


def measure(shingler: Shingler, texts: dict[str, list[str]], rounds: int) -> dict[str, Timing]:
    """Return the best round of each set of texts; a first round that does not count builds tables."""
    best: dict[str, Timing] = {}
    for nth in range(rounds + 1):
        for name, own in texts.items():
            start = time.process_time()
            made = shingler.shingle(own)
            seconds = time.process_time() - start
            if nth and (name not in best or seconds < best[name].seconds):
                characters, octets = sum(map(len, own)), sum(len(text.encode()) for text in own)
                best[name] = Timing(seconds, characters, octets, made.hashes.size, len(own))
    return best


def table(title: str, timings: dict[str, Timing]) -> report.Table:
    """Return the cost of each, also as a multiple of the first."""
    first = next(iter(timings.values()))
    columns = [title, "ns a character", "ns an octet", "ns a shingle", "µs a document"]
    columns += ["times Latin, a character", "an octet"]
    rows = []
    for name, timing in timings.items():
        nanoseconds = 1e9 * timing.seconds
        a_character, an_octet = nanoseconds / timing.characters, nanoseconds / timing.octets
        costs = [a_character, an_octet, nanoseconds / timing.shingles, nanoseconds / timing.documents / 1e3]
        base = 1e9 * first.seconds
        ratios = [a_character / (base / first.characters), an_octet / (base / first.octets)]
        rows.append([name, *(f"{cost:.1f}" for cost in costs), *(f"{ratio:.1f}" for ratio in ratios)])
    return report.Table(columns, rows)


if __name__ == "__main__":
    main()
