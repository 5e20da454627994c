"""The open sets that quality is measured on: the files of a folder, or the project's sample where there is none.

A set is a file NAME.jsonl.gz or an archive of Reuters-21578. Texts that are short as a rule are compared by both
profiles, long ones as articles.
"""

from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import NamedTuple

from benchmarks.corpus import SAMPLE, Text
from benchmarks.places import REPOSITORY
from streamdedup.corpora import CorpusReader

#: Where the sets are looked for, beside the repository.
DATA = REPOSITORY.parent / "shared" / "data"
#: Characters of the median text, below which a set is one of short texts.
SHORT_CHARACTERS = 500


class Set(NamedTuple):
    """A set of documents.

    Attributes:
        name: Its name.
        file: Where it is.
        documents: Those that have a text.
    """

    name: str
    file: Path
    documents: list[Text]

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
    return Set(file.name.partition(".")[0], file, list(_documents(file)))


def _documents(file: Path) -> Iterator[Text]:
    known: set[str] = set()
    for entry in CorpusReader(file, on_bad="pass"):
        if entry.problem is None and entry.op == "upsert" and entry.text and entry.id not in known:
            known.add(entry.id)
            yield Text(entry.id, entry.text)
