"""Reads id pairs from a file, written by ``scan`` or judged by people, for ``evaluate --truth`` (``cli.evaluate``)."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from streamdedup.corpora.sources import ByteStream, Lines, open_file, unzipped
from streamdedup.errors import CorpusError


def read_pairs(path: Path, row_by_id: Mapping[str, int]) -> tuple[NDArray[np.int64], int]:
    """Read pairs of ids with a tab between them; the file may be gzip-compressed, and further columns are not read.

    ``row_by_id`` has the rows (``evaluation.pairs``) of all documents. Returns the pairs as rows, int64 (2, n), each
    pair once, the smaller row first; and the count of lines left out, because no document has one of their ids.
    """
    pairs: dict[tuple[int, int], None] = {}
    unknown_count = 0
    for line_number, line in _lines(path):
        ids = line.split("\t")[:2]
        if len(set(ids)) != 2:
            raise CorpusError(f"{path}:{line_number}: not a pair: expected two different ids, separated by a tab")
        rows = sorted(row_by_id[document_id] for document_id in ids if document_id in row_by_id)
        if len(rows) == 2:
            pairs[rows[0], rows[1]] = None
        else:
            unknown_count += 1
    return np.array(list(pairs), np.int64).reshape(-1, 2).T, unknown_count  # reshaped, because there may be no pair


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    with open_file(str(path)) as stored:
        for line_number, line in Lines(unzipped(ByteStream(stored.read1, str(path)))).filled():
            try:
                text = line.decode()
            except UnicodeDecodeError as error:
                raise CorpusError(f"{path}:{line_number}: not UTF-8 text") from error
            yield line_number, text
