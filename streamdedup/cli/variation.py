"""Changed copies of documents, for load tests: other ids, and texts in which some words are replaced at random."""

import random
import re
import string
from dataclasses import dataclass, replace
from typing import Final

from streamdedup.cli.rendering.differences import UNSPACED
from streamdedup.corpora import Entry

#: Shortest and longest word that is made up, in letters.
_WORD_LETTERS: Final = (3, 9)
#: First and last character that replaces one of a script without spaces: common Han.
_HAN: Final = (0x4E00, 0x9FA5)

_unspaced = "".join(f"{chr(first)}-{chr(last)}" for first, last in UNSPACED)
#: A word: a run of characters between spaces; in scripts without spaces a character.
_WORD: Final = re.compile(rf"[{_unspaced}]|[^\s{_unspaced}]+")


@dataclass(frozen=True, slots=True)
class Variation:
    """Changes documents before they are sent; the change depends on the seed and the document only.

    Attributes:
        share: Share of a text's words that are replaced by others, from 0 to 1.
        seed: Seed of the choice of words.
        same_ids: Keep the ids in every pass; else those of the second pass end in ``#2``, and so on.
    """

    share: float = 0.0
    seed: int = 1
    same_ids: bool = False

    def of(self, entry: Entry, number: int) -> Entry:
        """Return the entry to send in pass ``number``, counted from 1.

        A line that is no document is not changed. A changed document loses the fields that the daemon does not read.
        """
        if entry.problem is not None:
            return entry
        document_id = entry.id if number == 1 or self.same_ids else f"{entry.id}#{number}"
        text = entry.text
        if self.share and text:
            # The place in the file, so that a limit or another order changes nothing.
            place = f"{self.seed}/{number}/{entry.file}/{entry.line}"
            text = vary(text, self.share, random.Random(place))  # noqa: S311  no secret depends on it
        if (document_id, text) == (entry.id, entry.text):
            return entry
        return replace(entry, id=document_id, text=text, raw=None)


def vary(text: str, share: float, chance: random.Random) -> str:
    """Return ``text`` with ``share`` of its words replaced by made-up ones.

    Of n words, ``share`` * n are replaced; the fraction of this number is the chance of one more, so that short texts
    are changed as much as long ones in the mean.
    """
    words = list(_WORD.finditer(text))
    count = min(len(words), int(len(words) * share + chance.random()))
    pieces, end = list[str](), 0
    for at in sorted(chance.sample(range(len(words)), count)):
        pieces += [text[end : words[at].start()], _made_up(words[at].group(), chance)]
        end = words[at].end()
    return "".join(pieces) + text[end:]


def _made_up(word: str, chance: random.Random) -> str:
    if any(first <= ord(word[0]) <= last for first, last in UNSPACED):
        return chr(chance.randint(*_HAN))
    return "".join(chance.choices(string.ascii_lowercase, k=chance.randint(*_WORD_LETTERS)))
