"""Corpora: document files, read one document at a time, for commands and benchmarks.

Every format may be gzip-compressed and may come from standard input. ``MAX_LINE_BYTES`` limits lines, rows and
articles, so that neither a decompression bomb nor a file without line ends exhausts the memory.

A defect of a whole file (missing, truncated, binary) raises ``CorpusError``; a malformed line is an entry.
"""

from streamdedup.corpora.entries import Entry
from streamdedup.corpora.formats import FORMAT_TITLES, Format
from streamdedup.corpora.reader import CorpusReader, corpus_files
from streamdedup.corpora.sources import STDIN, shown_name
from streamdedup.corpora.tables import Columns

__all__ = ["FORMAT_TITLES", "STDIN", "Columns", "CorpusReader", "Entry", "Format", "corpus_files", "shown_name"]
