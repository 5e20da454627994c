"""Stop words: an English list, and files of words. Read by `settings.profile`; `shingles` leaves the words out."""

_ENGLISH = """
a about above after again against all also am among an and any are as at be because been before being below between
both but by can cannot could did do does doing down during each either else ever every few for from further had has
have having he her here hers herself him himself his how however i if in into is it its itself just may me might more
most must my myself neither no nor not now of off on once only or other our ours ourselves out over own per same shall
she should since so some such than that the their theirs them themselves then there these they this those though
through thus to too under until up upon us very was we were what when where whether which while who whom whose why
will with within without would yet you your yours yourself yourselves
"""
#: English function words: they carry style, not content.
ENGLISH_STOP_WORDS = frozenset(_ENGLISH.split())


def parse_stop_words(text: str) -> frozenset[str]:
    """Return the words from a list with one word a line; # begins a comment, empty lines are skipped."""
    words = (line.partition("#")[0].strip() for line in text.splitlines())
    return frozenset(word for word in words if word)
