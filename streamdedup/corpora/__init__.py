"""Corpora: files of documents, read one document at a time whatever their size.

Four formats: JSON lines, tables with named columns (CSV, TSV), plain text with one document a line, and the SGML of
Reuters-21578 (a folder of ``.sgm`` files, one of them, or a tar archive). Each may be gzip-compressed, which its first
bytes tell and not its name, and each may come from standard input. Memory holds one document; a line, a row or an
article has a greatest length, so neither a bomb of compressed zeros nor a file without line ends can fill it. Members
of an archive are read, never extracted.

What is wrong with a file as a whole (absent, cut short, binary) is a ``CorpusError``. A line that is no document is a
matter of ``on_bad``: an error that names it, or an entry with its raw bytes and the reason.
"""

from streamdedup.corpora.detection import Format
from streamdedup.corpora.formats import Entry, ReutersId
from streamdedup.corpora.reader import CorpusReader, OnBad, read_corpus
from streamdedup.corpora.sources import MAX_LINE_BYTES, STDIN
from streamdedup.corpora.tables import Columns

__all__ = ["MAX_LINE_BYTES", "STDIN", "Columns", "CorpusReader", "Entry", "Format", "OnBad", "ReutersId", "read_corpus"]
