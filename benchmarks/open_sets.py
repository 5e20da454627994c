"""The open sets that quality is measured on: the files of a folder, or the project's sample where there is none.

A set is a file NAME.jsonl.gz or an archive of Reuters-21578. Texts that are short as a rule are compared by both
profiles, long ones as articles. Documents have a source where a field of the set names one.
"""

from pathlib import Path
from statistics import median
from typing import NamedTuple

from benchmarks.corpus import SAMPLE, Text
from benchmarks.places import REPOSITORY
from streamdedup.corpora import CorpusReader
from streamdedup.wire import Decoder

#: Where the sets are looked for, beside the repository.
DATA = REPOSITORY.parent / "shared" / "data"
#: Characters of the median text, below which a set is one of short texts.
SHORT_CHARACTERS = 500
#: Sets whose documents name a source, and the field: origin, language, app, and category of the product.
SOURCE_FIELDS = {
    "ar_reviews": "source",
    "masakhane_news": "lang",
    "playstore_reviews": "app",
    "zh_shopping_reviews": "cat",
}


class Set(NamedTuple):
    """A set of documents.

    Attributes:
        name: Its name.
        file: Where it is.
        documents: Those that have a text.
        sources: The source of each document; None without one.
    """

    name: str
    file: Path
    documents: list[Text]
    sources: list[str | None]

    @property
    def profiles(self) -> tuple[str, ...]:
        """The profiles that suit the texts."""
        short = median(len(document.text) for document in self.documents) < SHORT_CHARACTERS
        return ("reviews", "articles") if short else ("articles",)


def files(folder: Path) -> list[Path]:
    """Return the files of the sets in a folder, in the order of their names."""
    if not folder.is_dir():
        return []
    return sorted([*folder.glob("*.jsonl.gz"), *folder.glob("reuters21578.tar.gz")])


def sample_files() -> list[Path]:
    """Return the files of the project's sample."""
    return sorted(SAMPLE.glob("*.jsonl"))


def read(file: Path) -> Set:
    """Return a set, of documents with one id the first only."""
    name = file.name.partition(".")[0]
    decoder = Decoder(source_field=SOURCE_FIELDS.get(name, "source"))
    documents: dict[str, Text] = {}
    sources: list[str | None] = []
    for entry in CorpusReader(file, on_bad="pass", decoder=decoder):
        if entry.problem is None and entry.op == "upsert" and entry.text and entry.id not in documents:
            documents[entry.id] = Text(entry.id, entry.text)
            sources.append(entry.source or None)
    return Set(name, file, list(documents.values()), sources)
