"""The documents of all benchmarks: open sets, the project's sample, and copies of a set for large indexes.

Open sets are read from the folder BENCH_DATA, by default ../shared/data beside the repository: NAME.jsonl.gz, and the
archive of Reuters-21578. Benchmarks of speed take the 19,043 Reuters articles that have a body, or the sample with
variations where the archive is absent. Beyond that come copies of all articles in which every letter and digit is
replaced by another one, by the same rule within a copy: lengths, common words and near-duplicate pairs stay within a
copy, and no two copies resemble each other.
"""

import os
import random
import string
import sys
from collections.abc import Iterator, Sequence
from itertools import count, islice
from pathlib import Path
from statistics import median
from typing import NamedTuple

from streamdedup.corpora import CorpusReader
from streamdedup.wire import Decoder

REPOSITORY = Path(__file__).resolve().parents[1]
#: Environment variable that names another folder of open sets.
VARIABLE = "BENCH_DATA"
#: Folder of the open sets.
DATA = Path(os.environ.get(VARIABLE) or REPOSITORY.parent / "shared" / "data")
SAMPLE = REPOSITORY / "streamdedup" / "sample"
REUTERS = "reuters21578"
#: Exit code of a benchmark whose open set is absent.
EXIT_ABSENT = 3
#: Number of documents made of the sample by default: about as many as Reuters has.
SAMPLE_DOCUMENTS = 19_000
#: Share of a variation's words (of its characters, where a text has no spaces) that are replaced. Two variations of
#: one text are then far from being near-duplicates.
REPLACED = 0.1
#: Characters of the median text, below which a set is one of short texts.
SHORT_CHARACTERS = 500
#: Sets whose documents name a source, and the field: origin, language, app, and category of the product.
SOURCE_FIELDS = {
    "ar_reviews": "source",
    "masakhane_news": "lang",
    "playstore_reviews": "app",
    "zh_shopping_reviews": "cat",
}


class Text(NamedTuple):
    id: str
    text: str


class Corpus(NamedTuple):
    """Documents that have a text, and the name of their collection; a source is None where a document names none."""

    name: str
    documents: list[Text]
    sources: Sequence[str | None] = ()

    @property
    def texts(self) -> list[str]:
        return [document.text for document in self.documents]

    @property
    def profiles(self) -> tuple[str, ...]:
        """The profiles that suit the texts: both for short ones, else articles."""
        short = median(len(document.text) for document in self.documents) < SHORT_CHARACTERS
        return ("reviews", "articles") if short else ("articles",)


def path_of(name: str) -> Path | None:
    """Return the file of an open set; None if the file is absent."""
    paths = (DATA / f"{name}.jsonl.gz", DATA / f"{name}.tar.gz")
    return next((path for path in paths if path.exists()), None)


def find(name: str) -> Path:
    """Return the file of an open set; end the process with ``EXIT_ABSENT`` if the file is absent."""
    path = path_of(name)
    if path is None:
        print(f"{name} is not in {DATA}; {VARIABLE}= names another folder", file=sys.stderr)
        raise SystemExit(EXIT_ABSENT)
    return path


def names() -> list[str]:
    """Return the names of all open sets, sorted."""
    files = [*DATA.glob("*.jsonl.gz"), *DATA.glob(f"{REUTERS}.tar.gz")]
    return sorted(file.name.partition(".")[0] for file in files)


def read(name: str) -> Corpus:
    """Return an open set; of documents with the same id the first only."""
    return read_file(name, find(name))


def read_file(name: str, path: Path) -> Corpus:
    """Return the documents of a file that have a text; of documents with the same id the first only."""
    decoder = Decoder(source_field=SOURCE_FIELDS.get(name, "source"))
    documents: dict[str, Text] = {}
    sources: list[str | None] = []
    for entry in CorpusReader(path, decoder=decoder):
        if entry.problem is None and entry.op == "upsert" and entry.text and entry.id not in documents:
            documents[entry.id] = Text(entry.id, entry.text)
            sources.append(entry.source or None)
    return Corpus(name, list(documents.values()), sources)


def sample(kind: str) -> Corpus:
    """Return the articles or the reviews of the project's sample, which holds damaged records on purpose."""
    return read_file(kind, SAMPLE / f"{kind}.jsonl")


def load(size: int = 0) -> Corpus:
    """Return ``size`` documents for a benchmark of speed; 0 for each document of the collection once."""
    path = path_of(REUTERS)
    if path is None:
        documents = [document for kind in ("articles", "reviews") for document in sample(kind).documents]
        return Corpus("sample with variations", list(islice(variations(documents), size or SAMPLE_DOCUMENTS)))
    articles = [Text(entry.id, entry.text) for entry in CorpusReader(path) if entry.text]
    copies = -(-size // len(articles))
    name = "Reuters-21578" if copies <= 1 else f"Reuters-21578, {copies} copies in other letters"
    return Corpus(name, list(islice(in_other_letters(articles), size or len(articles))))


def in_other_letters(documents: list[Text]) -> Iterator[Text]:
    """Yield the documents, then all of them again in other letters, for ever."""
    for copy in count():
        table = str.maketrans(_rotated(copy))
        for document in documents:
            yield Text(f"{document.id}-{copy}", document.text.translate(table)) if copy else document


def _rotated(by: int) -> dict[str, str]:
    """Return the replacement of each letter and digit when their alphabets are rotated by ``by`` places."""
    alphabets = (string.ascii_lowercase, string.ascii_uppercase, string.digits)
    return {
        character: alphabet[(index + by) % len(alphabet)]
        for alphabet in alphabets
        for index, character in enumerate(alphabet)
    }


def variations(documents: list[Text]) -> Iterator[Text]:
    """Yield each document again and again, with other parts replaced each time, for ever."""
    chance = random.Random(1)
    for number in count():
        for document in documents:
            gap = " " if " " in document.text else ""
            words = document.text.split(gap) if gap else list(document.text)
            replaced = (str(chance.randrange(10**6)) if chance.random() < REPLACED else word for word in words)
            yield Text(f"{document.id}-{number}", gap.join(replaced))
