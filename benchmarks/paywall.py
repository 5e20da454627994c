"""A news collection in which one publisher adds a paywall notice to the teasers of some articles.

The articles are those of masakhane_news in ../shared/data, with the language as the source. English ones are
teasers of some 30 words there. The first 140 of these that differ from each other are followed by the same notice,
which was written for this benchmark. 40 of them are published without the notice by a second source. So all wrong pairs
are pairs of articles with the notice, and all real ones are known: those of the articles without the notice, and each
teaser with its second publication.
"""

from typing import NamedTuple

from benchmarks import datasets

NEWS = "masakhane_news"
#: Source of the notice, articles with it, and those that are published twice.
SOURCE, NOTICES, TWICE = "eng", 140, 40
#: Words of a teaser, from and to.
TEASER_WORDS = (20, 40)
#: Source of the second publications.
SECOND_SOURCE = "agency"
NOTICE = """
This article is for subscribers only. You have read all free articles of this month, and reporting like this one costs
money: correspondents on four continents, a desk that checks every claim, photographers, editors and printers. If you
order today, the first eight weeks are on us. After that you pay nine a month for the digital edition, or nineteen for
the newspaper at your door before breakfast, Sundays included. Students, apprentices and pensioners get a third off when
they send us a copy of their card. Companies with more than ten readers receive one invoice for everybody, and libraries
are served by a colleague who answers within two working days.

With your subscription you may open each section on any device, listen to the evening briefing, solve the crossword and
its archive back to nineteen sixty-four, and give three texts a week to friends who have not signed up yet. The app
stores whole editions, so that tunnels and long flights are no obstacle. Comments are open to subscribers too, under the
name with which they registered; our moderators remove insults, advertising and anything that a court would forbid.

You can end your contract at any time, without a reason, by a click in the settings, a letter or a call. Whatever you
have paid in advance for the remaining weeks comes back to the same account, usually by the following Friday. During a
holiday we hold the paper back, forward it to another address, or donate it to a school in your town: just tell the
reader service until noon of the day before. The lines are staffed from Monday to Saturday between six in the morning
and seven in the evening. Do you already have a subscription? Then sign in with the address that you gave when ordering,
and follow the link that we mail to you. Prices contain the statutory tax. The general terms, the rules on data
protection and the list of companies that deliver for us are linked at the foot of this page.
""".strip()


class Article(NamedTuple):
    """An article; ``original`` is the text without the notice."""

    text: str
    source: str
    original: str


def articles() -> list[Article]:
    """Return the collection; end the process where masakhane_news is absent."""
    documents = datasets.read(NEWS)
    made: list[Article] = []
    again: list[Article] = []
    teasers: set[str] = set()
    for text, language in zip(documents.texts, documents.sources, strict=True):
        source = language or ""
        is_teaser = source == SOURCE and TEASER_WORDS[0] <= len(text.split()) <= TEASER_WORDS[1]
        if not is_teaser or len(teasers) == NOTICES or text in teasers:
            made.append(Article(text, source, text))
            continue
        teasers.add(text)
        made.append(Article(f"{text}\n\n{NOTICE}", source, text))
        if len(again) < TWICE:
            again.append(Article(text, SECOND_SOURCE, text))
    return made + again
