r"""Texts of arbitrary senders made safe for a terminal, because such texts may hold control codes.

Called by commands and the other modules of ``rendering``. The use decides the function; the last two columns
show what becomes of a zero-width space and of an escape character:

    function    use                                               U+200B       U+001B
    printable   ids, labels and other names                       unchanged    a blank
    visible     texts that are compared (``differences``)         ⟦U+200B⟧     replaced before, by the caller
    escaped     content of dead letters, in unknown encoding      \u200b       \x1b
"""

import re
import unicodedata
from functools import lru_cache

# The patterns of `visible`; a test compares them with those of the page (`serve/static/dom.js`).
#: Always shown as code points: characters that are invisible or reorder the text beside them.
HIDDEN = re.compile(r"[\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]")
#: Shown only in a changed part: invisible characters of ordinary texts (soft hyphen, joiners, variation selectors).
UNSEEN = re.compile(r"[\u00ad\u034f\u200c\u200d\ufe00-\ufe0f]")
#: Shown only in a changed part: spaces that look like a blank.
ODD_SPACES = re.compile(r"[\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000]")
#: Unicode categories that ``escaped`` writes as code points: control, format (direction of writing), surrogate,
#: private-use and unassigned characters, line and paragraph separators.
_ESCAPED_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def printable(text: str) -> str:
    """Return text in one line without characters that could change the output beside it (``printable_character``)."""
    return "".join(map(printable_character, text))


@lru_cache(maxsize=4096)
def printable_character(character: str) -> str:
    """Return a character; a blank for a control character or line end, nothing for a control of direction."""
    category = unicodedata.category(character)
    if category in {"Cc", "Zl", "Zp"}:
        return " "
    if category == "Cs":  # half of a surrogate pair cannot be encoded
        return "\N{REPLACEMENT CHARACTER}"
    is_direction_control = "\u202a" <= character <= "\u202e" or "\u2066" <= character <= "\u2069"
    return "" if is_direction_control else character


def visible(text: str, *, differs: bool) -> str:
    """Return text with the characters of ``HIDDEN`` as code points, such as ``⟦U+200B⟧``.

    In a part that ``differs``, the characters of ``UNSEEN`` and ``ODD_SPACES`` become code points too; in a part that
    both texts have, odd spaces become blanks. Control characters stay.
    """
    shown = HIDDEN.sub(_code_point_name, text)
    if not differs:
        return ODD_SPACES.sub(" ", shown)
    return ODD_SPACES.sub(_code_point_name, UNSEEN.sub(_code_point_name, shown))


def _code_point_name(match: re.Match[str]) -> str:
    return f"⟦U+{ord(match[0]):04X}⟧"


def escaped(text: str | bytes, limit: int) -> str:
    r"""Return the first ``limit`` characters of the escaped text, and an ellipsis if there are more.

    Bytes are read as UTF-8, and invalid ones are written as ``\xff``. No escape of a character is cut.
    """
    if isinstance(text, bytes):
        # `limit` characters have at most `limit * 4` bytes: the rest need not be decoded.
        head, is_cut = text[: limit * 4].decode("utf-8", "backslashreplace"), len(text) > limit * 4
    else:
        head, is_cut = text[: limit + 1], False  # with one character beyond the limit, the loop finds a longer text
    shown = ""
    for character in head:
        needs_escape = unicodedata.category(character) in _ESCAPED_CATEGORIES
        piece = character.encode("unicode_escape").decode() if needs_escape else character
        if len(shown) + len(piece) > limit:
            return f"{shown}…"
        shown += piece
    return f"{shown}…" if is_cut else shown
