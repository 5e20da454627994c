"""Texts spun from a pattern: each slot [this|that] becomes one of its alternatives, drawn for each text.

Also a list of synonyms, to imitate tools that replace words of any text. Written for the project.
"""

import random
import re

_SLOT = re.compile(r"\[([^\]]+)\]")
_WORD = re.compile(r"[A-Za-z]+")

#: A notice of 112 words and a review of 43.
PATTERNS = {
    "articles": """
The [council|town council|assembly] of Marrowby has [decided|voted|agreed] to [close|shut|give up] the old swimming
bath on Mill Lane at the end of [summer|August|the season]. [Repairs|Mending the roof|New pumps] would have cost
[more than|over|upwards of] two million crowns, [said|according to|in the words of] the treasurer, and the number of
[visitors|bathers|guests] has [fallen|dropped|gone down] in [each|every one] of the last six years. A
[new|modern|larger] bath is to be [built|put up|raised] beside the railway station, where [there is room|land is
free] for a [car park|stop for buses] as well. [Work|Building|Construction] should [begin|start] in the [spring|new
year] and take [two|some two] years. Until then [schools|classes|pupils] will [use|go to|share] the pool in Tolven,
to which a bus will [run|go] [twice|three times] a day. [Swimmers|Members of the club|Some residents] have
[collected signatures|protested|written letters] against the plan and [want|hope|ask] for the old tiled hall to be
[kept|saved|listed].
""",
    "reviews": """
[Great|Lovely|Very good] kettle, [boils|heats] a full litre in [three|under four|about three] minutes and does not drip
when you pour. The [lid|handle] is a bit [stiff|tight] and the [cord|lead] could be longer, but for the [price|money]
I [would buy|recommend] it [again|any time]. [Came|Arrived] well packed after two days.
""",
}

_SYNONYMS = """
big large; small little; begin start; end finish; buy purchase; help assist; show display; say state; said stated;
get obtain; got obtained; give provide; need require; use employ; used employed; make produce; made produced; ask
request; answer reply; house building; street road; town city; year twelvemonth; good fine; bad poor; quick fast; slow
unhurried; old aged; new modern; many numerous; few scarce; often frequently; now currently; about around; after
following; before prior; because since; but yet; also too; only merely; first initial; last final; money funds; work
labour; worked laboured; people persons; children youngsters; firm company; price cost; rise increase; rose increased;
fall drop; fell dropped; more further; whole entire; next following; near close; week fortnight; day date; month moon
"""
#: Word -> the other word of its pair, both ways.
SYNONYMS = {
    one: other for pair in _SYNONYMS.replace("\n", " ").split(";") for one, other in (pair.split(), pair.split()[::-1])
}


def spin(pattern: str, share: float, chance: random.Random) -> str:
    """Return a text of a pattern.

    Args:
        pattern: Text with slots.
        share: Share of the slots that are drawn; the others have their first alternative.
        chance: Source of chance.
    """

    def choose(slot: re.Match[str]) -> str:
        alternatives = slot[1].split("|")
        return chance.choice(alternatives) if chance.random() < share else alternatives[0]

    return _SLOT.sub(choose, pattern).strip()


def with_synonyms(text: str, share: float, chance: random.Random) -> str:
    """Return a text with this share of the words of the list replaced."""

    def change(word: re.Match[str]) -> str:
        other = SYNONYMS.get(word[0].lower())
        return other if other and chance.random() < share else word[0]

    return _WORD.sub(change, text)
