"""Captions: the label, source and publication time in an index entry, by which people recognise a document.

``preparation`` makes captions; alerts and replies show them. The stored form is in docs/format.md.

A label is the first line of the text, which is the first text field, usually the title; further lines are added while
the label is short. Line breaks separate the three parts. No part contains an invisible character, except joiners
between letters. A caption has at most ``label_bytes`` + 66 bytes in UTF-8 (two parts of ``PART_BYTES`` and two line
breaks), however long the fields are.
"""

import unicodedata
from functools import lru_cache
from typing import Final, NamedTuple

from streamdedup.wire import Document

#: Largest number of bytes in a stored source or publication time.
PART_BYTES: Final = 32
#: A first line that fills less than this share of a label is continued by the next line.
_SHORT_LINE: Final = 0.15
#: Invisible characters that belong to the spelling of words in many scripts.
_JOINERS: Final = frozenset("\u200c\u200d")
#: Characters of a text that are read for each byte of its label. Long runs of white space among them shorten the label.
_READ_CHARACTERS: Final = 4


class Caption(NamedTuple):
    """The parts of a caption; an absent one is empty.

    A source longer than ``PART_BYTES`` is cut and ends in an ellipsis; such a time is left out.
    """

    label: str = ""
    source: str = ""
    published_at: str = ""


def caption_of(document: Document, label_bytes: int) -> bytes | None:
    """Return the stored form of a document's caption; None where nothing is to be stored, as with ``label_bytes`` 0."""
    if not label_bytes:
        return None
    caption = label_of(document.text, label_bytes)
    source = _stored_source(document.source) if document.source else ""
    published_at = _visible(document.published_at) if document.published_at else ""
    if published_at and _utf8_size(published_at) <= PART_BYTES:
        caption = f"{caption}\n{source}\n{published_at}"
    elif source:
        caption = f"{caption}\n{source}"
    return caption.encode() or None


@lru_cache(maxsize=4096)  # many documents have the same source
def _stored_source(source: str) -> str:
    source = _visible(source)
    if _utf8_size(source) <= PART_BYTES:
        return source
    return _cut(source, PART_BYTES - len("…".encode())) + "…"


def read_caption(stored: bytes | None, label_bytes: int) -> Caption:
    return Caption(*stored.decode().split("\n")) if stored and label_bytes else Caption()


def label_of(text: str, limit_bytes: int) -> str:
    """Return the first line of a text, and further lines while it is short, at most ``limit_bytes`` in UTF-8.

    A label is cut between two words, unless that would leave less than half of the limit; then within a word.
    """
    label, unread = "", text.lstrip()[: _READ_CHARACTERS * limit_bytes]
    while unread and _utf8_size(label) < _SHORT_LINE * limit_bytes:
        line, _, unread = unread.partition("\n")
        label = f"{label} {_visible(line)}".strip() if label else _visible(line)
    if _utf8_size(label) <= limit_bytes:
        return label
    # One byte more: a word that ends at the limit is whole if a blank follows.
    words = label.encode()[: limit_bytes + 1].rpartition(b" ")[0]
    return words.decode() if len(words) > limit_bytes // 2 else _cut(label, limit_bytes)


def _utf8_size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


def _visible(text: str) -> str:
    """Return a text with a blank for each run of white space; of other invisible characters only joiners stay."""
    if not text.isprintable():
        text = "".join(
            [
                character
                for offset, character in enumerate(text)
                if character.isprintable() or character.isspace() or _joins(text, offset)
            ]
        )
    elif "  " not in text and text[:1] != " " and text[-1:] != " ":
        return text  # as most texts are: to split and join takes three times as long
    return " ".join(text.split())


def _joins(text: str, offset: int) -> bool:
    """Tell whether a character is a joiner between two letters or their marks."""
    if text[offset] not in _JOINERS or not 0 < offset < len(text) - 1:
        return False
    return all(unicodedata.category(text[beside])[0] in "LM" for beside in (offset - 1, offset + 1))


def _cut(text: str, limit_bytes: int) -> str:
    """Return the beginning of a text, at most so many bytes; it splits no combining sequence and ends in no blank."""
    beginning = text.encode()[:limit_bytes].decode(errors="ignore")
    end = len(beginning)
    while 0 < end < len(text) and (
        text[end] in _JOINERS or text[end - 1] in _JOINERS or unicodedata.category(text[end])[0] == "M"
    ):
        end -= 1
    # ``text[:end]`` is empty if the text begins with a combining sequence longer than the limit: the sequence is cut.
    return (text[:end] or beginning.rstrip("\u200c\u200d")).rstrip()
