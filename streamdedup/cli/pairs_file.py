"""Reads id pairs from a file, written by ``scan`` or judged by people, for ``evaluate --truth``."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from streamdedup.corpora.sources import ByteStream, Lines, open_file, unzipped
from streamdedup.errors import CorpusError
from streamdedup.evaluation.pairs import Pairs

#: Columns of a line of ``scan`` with a containment rule: id, id, similarity, containment, reason.
_SCAN_COLUMNS: Final = 5


class JudgedPairs(NamedTuple):
    """Document pairs that were read from a file.

    Attributes:
        pairs: Pairs of known documents, each once.
        has_similarities: Whether a line has a similarity. A pair of a line without one has the similarity 1.
        unknown_count: Count of lines with an unknown id, which are left out.
    """

    pairs: Pairs
    has_similarities: bool
    unknown_count: int


def read_pairs(path: Path, numbers: Mapping[str, int]) -> JudgedPairs:
    """Read pairs: id, id and perhaps a similarity, with tabs between them; gzip-compressed or not.

    A first line whose third column is no number is a header. Of several lines with one pair, the last counts. The
    containment and the reason in a line of ``scan`` are not read. ``numbers`` has the number of each known document.
    """
    similarities: dict[tuple[int, int], float] = {}
    unknown_count = 0
    column_counts: set[int] = set()
    for number, line in _lines(path):
        fields = line.split("\t")
        if len(fields) == _SCAN_COLUMNS:
            fields = fields[:3]
        similarity = 1.0 if len(fields) == 2 else None
        if len(fields) == 3:
            similarity = _number(fields[2])
        if number == 1 and len(fields) == 3 and similarity is None:
            continue  # the header
        if similarity is None or not 0.0 <= similarity <= 1.0 or fields[0] == fields[1]:
            raise CorpusError(
                f"{path}:{number}: not a pair: wanted are two different ids and perhaps a similarity from 0 to 1, "
                f"with tabs between them"
            )
        column_counts.add(len(fields))
        known_numbers = [numbers[name] for name in fields[:2] if name in numbers]
        if len(known_numbers) == 2:
            similarities[min(known_numbers), max(known_numbers)] = similarity
        else:
            unknown_count += 1
    left, right = np.array(list(similarities), np.int64).reshape(-1, 2).T  # reshaped, because there may be no pair
    pairs = Pairs(left, right, np.array(list(similarities.values()), np.float64))
    return JudgedPairs(pairs, has_similarities=3 in column_counts, unknown_count=unknown_count)


def _number(field: str) -> float | None:
    try:
        return float(field)
    except ValueError:
        return None


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    with open_file(str(path)) as stored:
        for number, line in Lines(unzipped(ByteStream(stored.read1, str(path)))).filled():
            try:
                text = line.decode()
            except UnicodeDecodeError as error:
                raise CorpusError(f"{path}:{number}: not UTF-8 text") from error
            yield number, text
