"""The documents of all benchmarks: Reuters-21578 if present, otherwise the project's sample with variations.

Reuters is taken from ../shared/data/reuters21578.tar.gz beside the repository: the 19,043 articles that have a body.
Beyond that come copies of all articles in which every letter and digit is replaced by another one, by the same rule
within a copy: lengths, words in common and near-duplicate pairs stay within a copy, and no two copies resemble each
other.
"""

import random
import string
from collections.abc import Iterator
from itertools import count, islice
from typing import NamedTuple

from benchmarks.places import REPOSITORY
from streamdedup.corpora import CorpusReader

REUTERS = REPOSITORY.parent / "shared" / "data" / "reuters21578.tar.gz"
SAMPLE = REPOSITORY / "streamdedup" / "sample"
#: Documents made of the sample by default: about as many as Reuters has.
SAMPLE_DOCUMENTS = 19_000
#: Share of a variation's words (of its characters, where a text has no spaces) that are replaced. Two variations of
#: one text are then far from being near-duplicates.
REPLACED = 0.1


class Text(NamedTuple):
    """One document."""

    id: str
    text: str


class Corpus(NamedTuple):
    """Documents of a benchmark, and the name of their collection."""

    name: str
    documents: list[Text]

    @property
    def texts(self) -> list[str]:
        """The texts without ids."""
        return [document.text for document in self.documents]


def load(wanted: int = 0) -> Corpus:
    """Return so many documents; 0 for each of the collection once."""
    if not REUTERS.exists():
        return Corpus("sample with variations", list(islice(variations(sample()), wanted or SAMPLE_DOCUMENTS)))
    articles = reuters()
    copies = -(-wanted // len(articles))
    name = "Reuters-21578" if copies <= 1 else f"Reuters-21578, {copies} copies in other letters"
    return Corpus(name, list(islice(in_other_letters(articles), wanted or len(articles))))


def reuters() -> list[Text]:
    """Return the articles that have a body."""
    return [Text(entry.id, entry.text) for entry in CorpusReader(REUTERS) if entry.text]


def sample() -> list[Text]:
    """Return the documents of the sample, which holds damaged records on purpose."""
    entries = (entry for file in sorted(SAMPLE.glob("*.jsonl")) for entry in CorpusReader(file, on_bad="pass"))
    return [Text(entry.id, entry.text) for entry in entries if entry.text and entry.op == "upsert"]


def in_other_letters(documents: list[Text]) -> Iterator[Text]:
    """Yield the documents, then all of them again in other letters, for ever."""
    for copy in count():
        table = str.maketrans(_turned(copy))
        for document in documents:
            yield Text(f"{document.id}-{copy}", document.text.translate(table)) if copy else document


def _turned(by: int) -> dict[str, str]:
    """Return the replacement of each letter and digit when their alphabets are rotated by so many places."""
    alphabets = (string.ascii_lowercase, string.ascii_uppercase, string.digits)
    return {
        character: alphabet[(at + by) % len(alphabet)]
        for alphabet in alphabets
        for at, character in enumerate(alphabet)
    }


def variations(documents: list[Text]) -> Iterator[Text]:
    """Yield each document again and again, with other parts replaced each time, for ever."""
    source = random.Random(1)
    for number in count():
        for document in documents:
            gap = " " if " " in document.text else ""
            words = document.text.split(gap) if gap else list(document.text)
            kept = (str(source.randrange(10**6)) if source.random() < REPLACED else word for word in words)
            yield Text(f"{document.id}-{number}", gap.join(kept))
