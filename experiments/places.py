"""Folders of open sets and of results."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from streamdedup.corpora import CorpusReader

REPOSITORY = Path(__file__).resolve().parents[1]
#: Results and pictures of the experiments.
RESULTS = REPOSITORY / "build" / "experiments"
#: Pages and their pictures.
DOCS = REPOSITORY / "docs"
#: Environment variable with another folder of texts.
VARIABLE = "EXPERIMENTS_DATA"
#: File names of a set.
_FORMS = ("{}.jsonl.gz", "{}.jsonl", "{}.tar.gz", "{}")


class Absent(Exception):
    """A set of texts is missing."""


class Text(NamedTuple):
    """One document."""

    id: str
    text: str


def data_folder() -> Path:
    """Return the folder of the texts: EXPERIMENTS_DATA, or ../shared/data beside the repository."""
    return Path(os.environ.get(VARIABLE) or REPOSITORY.parent / "shared" / "data")


def find(data: Path, name: str) -> Path:
    """Return the path of a set.

    Raises:
        Absent: It is not there.
    """
    for form in _FORMS:
        if (path := data / form.format(name)).exists():
            return path
    raise Absent(f"{name} is not in {data}; {VARIABLE}= names another folder")


def read(data: Path, name: str) -> Iterator[Text]:
    """Yield all documents of a set, those without a text included.

    Raises:
        Absent: The set is not there.
    """
    for entry in CorpusReader(find(data, name)):
        yield Text(entry.id, entry.text or "")


def sample(kind: str) -> list[Text]:
    """Return the articles or the reviews of the project's sample, which holds damaged records on purpose."""
    reader = CorpusReader(REPOSITORY / "streamdedup" / "sample" / f"{kind}.jsonl", on_bad="pass")
    return [Text(entry.id, entry.text) for entry in reader if entry.text and entry.op == "upsert"]
