"""URLs, which a profile may leave out, and HTML, which nothing removes.

A change to `_URL` also changes docs/format.md ("Links") and needs a new `shingles.ALGORITHM`.
"""

import re
from typing import Final

#: A character of a URL. A bracket or a character beyond ASCII ends the URL.
_CHARACTERS: Final = r"[\w.~:/?#@!$&'*+,;=%-]"
#: URLs with their pairs of parentheses; and the link targets of Markdown, which may be relative.
_URL: Final = re.compile(
    rf"\b(?:(?:https?|ftp)://|www\.)(?:{_CHARACTERS}|\({_CHARACTERS}*\))*|(?<=\])\({_CHARACTERS}+\)",
    re.ASCII | re.IGNORECASE,
)
#: Entities, and the tags that texts most often have. Other words in angle brackets may be the text itself.
_HTML: Final = re.compile(
    r"&(?:#\d+|#x[\da-f]+|[a-z]{2,8});|</?(?:[abip]|br|div|em|font|h[1-6]|img|li|ol|span|strong|t[dr]|ul)\b[^<>]*>",
    re.ASCII | re.IGNORECASE,
)
#: Least share of the documents with HTML for a warning.
_HTML_SHARE: Final = 0.01


def has_url(text: str) -> bool:
    """Return whether `without_urls` changes a text."""
    # First a quick test, because the search is slower: each URL contains "://", "](" or, in either case, "www.".
    return ("://" in text or "](" in text or "www." in text.lower()) and _URL.search(text) is not None


def without_urls(text: str) -> str:
    """Return a text with a space for each URL with http, https, ftp or www., and for each link target of Markdown."""
    return _URL.sub(" ", text) if has_url(text) else text


def has_html(text: str) -> bool:
    return ("&" in text or "<" in text) and _HTML.search(text) is not None


def html_warning(html_count: int, document_count: int) -> str | None:
    if not html_count or html_count < _HTML_SHARE * document_count:
        return None
    share = html_count / document_count
    return f"{share:.1%} of the documents have entities or tags of HTML, which count as words: send plain text"
