"""Effect of each setting against boilerplate on open collections: pairs of boilerplate only, and lost copies.

    python -m benchmarks.boilerplate [--quick] [--threshold 0.8] [NAME ...]

For each collection of ../shared/data all pairs at the threshold are found as `streamdedup scan` finds them, with all
comparisons exact: as the profile is by default, then with one option changed at a time. A pair is called

- the same text: equal after normalisation;
- a copy: revisions of one page, where the collection says which these are; in `paywall`, a pair of the articles
  without the notice;
- boilerplate only: revisions of different pages; in Reuters, articles with three numbers or more, most of which differ;
  in `paywall`, two articles with the notice that are no copies.

Where a collection says the source of each document, stop shingles are learnt from all documents, and by source.

`made boilerplate` is made of BBC news: 300 stories of 60 words, each followed by the same notice of 1,280 words, which
was written for this benchmark, and a copy of each with one word changed, without the notice for every second one.
`paywall` is news with a paywall notice of one source, see `benchmarks.paywall`.
"""

import gzip
import itertools
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from benchmarks import paywall, report
from benchmarks.open_sets import SOURCE_FIELDS
from benchmarks.places import REPOSITORY
from streamdedup.cli.collection import temporary_store
from streamdedup.cli.scan import find_pairs
from streamdedup.corpora import CorpusReader
from streamdedup.evaluation.trial import DetectorRun, document_at
from streamdedup.evaluation.truth import gathered, join, shingle_sets
from streamdedup.indexes import detector_options
from streamdedup.settings import Profile
from streamdedup.text.shingles import ShingleOptions, Shingler, normalise
from streamdedup.text.stop_shingles import learn_stop_shingles
from streamdedup.wire import Decoder

DATA = REPOSITORY.parent / "shared" / "data"
#: Collections, and whether they are reviews (characters) or articles (words).
NAMES = {
    "spdx_licenses": "word",
    "reuters21578": "word",
    "bbc_news": "word",
    "masakhane_news": "word",
    "wiki_bips": "word",
    "ota_pga": "word",
    "sms_spam": "char",
    "playstore_reviews": "char",
    "made boilerplate": "word",
    "paywall": "word",
}
#: Collections that are made.
MADE = ("made boilerplate", "paywall")
#: Collections that say which documents belong together.
GROUPED = ("wiki_bips", "ota_pga")
#: Shares of documents from which on a shingle is a stop shingle.
SHARES = (0.01, 0.02, 0.05)
#: Documents of a short run.
QUICK_DOCUMENTS = 300
#: Least similarity of two articles of `paywall` without the notice that are copies.
PAYWALL_THRESHOLD = 0.8
#: Stories of the made collection, words of each, and sentences of the notice.
STORIES, STORY_WORDS, SENTENCES = 300, 60, 80
#: A pair of numbers of documents, the smaller one first.
Pair = tuple[int, int]


class Collection(NamedTuple):
    """Texts, a judge of pairs ("same text", "copy", "boilerplate only" or "unknown"), and sources if they are known."""

    texts: list[str]
    judge: Callable[[Pair], str]
    sources: list[str | None] | None = None


def main() -> None:
    """Measure, print, write."""
    parser = report.parser(__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)}; all of them unless named")
    parser.add_argument("--threshold", type=float, default=0.8, help="least similarity of a pair")
    arguments = parser.parse_args()
    rows = []
    for name in arguments.names or NAMES:
        if name not in MADE and path_of(name) is None:
            print(f"{name} is not there", file=sys.stderr)
            continue
        collection = load(name)
        if arguments.quick:
            texts, sources = collection.texts[:QUICK_DOCUMENTS], collection.sources
            collection = collection._replace(texts=texts, sources=sources and sources[:QUICK_DOCUMENTS])
        rows += list(rows_of(name, collection, arguments.threshold))
    columns = [
        "collection, option",
        "pairs",
        "boilerplate only",
        "same text",
        "copies",
        "lost: same",
        "copies",
        "unknown",
    ]
    table = report.Table([*columns, "gained"], rows)
    setting = {"threshold": arguments.threshold}
    report.Report("boilerplate", arguments.quick, setting, rows, {"options": table}).show(arguments.output)


def path_of(name: str) -> Any:
    """Return the file of a collection, None if it is not there."""
    found = (path for path in (DATA / f"{name}.jsonl.gz", DATA / f"{name}.tar.gz") if path.exists())
    return next(found, None)


def load(name: str) -> Collection:
    """Read a collection that is there, or make one."""
    if name == "made boilerplate":
        return made_boilerplate()
    if name == "paywall":
        return made_paywall()
    field = SOURCE_FIELDS.get(name) if NAMES[name] == "word" else None
    entries = CorpusReader(path_of(name), decoder=Decoder(source_field=field or "source"))
    documents = [(entry.text, entry.source) for entry in entries if entry.text]
    texts, sources = [text for text, _ in documents], [source for _, source in documents]
    known = [normalise(text) for text in texts]
    groups: list[Any] = []
    if name in GROUPED:
        with gzip.open(path_of(name), "rt", encoding="utf-8") as lines:
            groups = [json.loads(line)["group"] for line in lines]
    numbers = [frozenset(filter(str.isdigit, text.split())) for text in known] if name == "reuters21578" else []

    def judge(pair: Pair) -> str:
        one, other = pair
        if known[one] == known[other]:
            return "same text"
        if groups:
            return "copy" if groups[one] == groups[other] else "boilerplate only"
        if numbers and min(len(numbers[one]), len(numbers[other])) >= 3:
            common, every = numbers[one] & numbers[other], numbers[one] | numbers[other]
            return "boilerplate only" if 2 * len(common) < len(every) else "unknown"
        return "unknown"

    return Collection(texts, judge, sources if field else None)


def made_paywall() -> Collection:
    """Return news with the paywall notice of one source; the pairs of the articles without the notice are copies."""
    articles = paywall.articles()
    sets = shingle_sets(Shingler(ShingleOptions()), [one.original for one in articles])
    real = gathered(join(sets.hashes, sets.offsets, PAYWALL_THRESHOLD))
    copies = set(zip(real.left.tolist(), real.right.tolist(), strict=True))

    def judge(pair: Pair) -> str:
        if pair in copies:
            return "copy"
        with_notice = all(articles[nth].text != articles[nth].original for nth in pair)
        return "boilerplate only" if with_notice else "unknown"

    return Collection([one.text for one in articles], judge, [one.source for one in articles])


def made_boilerplate() -> Collection:
    """Return stories with a notice, then a copy of each with a word changed."""
    path = path_of("bbc_news")
    if path is None:
        return Collection([], lambda _: "unknown")
    notice = " ".join(
        f"By choosing option {nth} you let partner {nth} store cookies on your device for purpose {nth + 7}."
        for nth in range(SENTENCES)
    )
    starts = dict.fromkeys(tuple(entry.text.split()[:STORY_WORDS]) for entry in CorpusReader(path))
    stories = [list(words) for words in itertools.islice(starts, STORIES)]
    texts = [f"{' '.join(words)}\n{notice}" for words in stories]
    for nth, words in enumerate(stories):
        words[len(words) // 2] = "elsewhere"
        texts.append(" ".join(words) if nth % 2 else f"{' '.join(words)}\n{notice}")

    def judge(pair: Pair) -> str:
        return "copy" if pair[0] + STORIES == pair[1] else "boilerplate only"

    return Collection(texts, judge)


def rows_of(name: str, collection: Collection, threshold: float) -> Iterator[list[str]]:
    """Yield a row for each option."""
    plain = {"topics": ["t"], "shingle_unit": NAMES[name], "threshold": threshold, "exact_limit": "none"}
    profile = Profile.model_validate(plain)
    before = pairs(profile, collection.texts)
    yield row(f"{name}, default", collection, before, before)
    options: dict[str, dict[str, object]] = {"letters only": {"letters_only": True}}
    options |= {f"min_words {least}": {"min_words": least} for least in (3, 8)}
    for option, changed in options.items():
        yield row(
            f"{name}, {option}", collection, before, pairs(Profile.model_validate(plain | changed), collection.texts)
        )
    sources = collection.sources
    for share, by_source in itertools.product(SHARES, (False, True) if sources else (False,)):
        documents = zip(collection.texts, sources or itertools.repeat(None), strict=False)
        stops = learn_stop_shingles(documents, profile.shingle_options(), share, by_source=by_source).stops
        path = REPOSITORY / "build" / "bench" / "stop_shingles.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(stops.encoded(), encoding="utf-8")
        if stops.counts:
            after = pairs(Profile.model_validate(plain | {"stop_shingles": str(path)}), collection.texts)
            option = f"stop shingles {share:.0%}{' by source' if by_source else ''}"
            yield row(f"{name}, {option}", collection, before, after)


def pairs(profile: Profile, texts: list[str]) -> set[Pair]:
    """Return the pairs that a scan finds."""
    documents = (document_at(nth, str(nth), text) for nth, text in enumerate(texts))
    with temporary_store(None, profile, None) as store:
        options = detector_options("scan", profile.model_copy(update={"max_candidates": None}))
        found = list(find_pairs(DetectorRun(options, store), documents))
    return {(min(ids), max(ids)) for ids in ((int(pair.id1), int(pair.id2)) for pair in found)}


def row(name: str, collection: Collection, before: set[Pair], after: set[Pair]) -> list[str]:
    """Return the number of pairs of each kind, and of those that an option loses and gains."""
    now, lost = counted(collection, after), counted(collection, before - after)
    kinds = [now["boilerplate only"], now["same text"], now["copy"], lost["same text"], lost["copy"], lost["unknown"]]
    return [name, *(f"{count:,}" for count in (len(after), *kinds, len(after - before)))]


def counted(collection: Collection, found: Iterable[Pair]) -> dict[str, int]:
    """Return the number of pairs of each kind."""
    counts = dict.fromkeys(("same text", "copy", "boilerplate only", "unknown"), 0)
    for pair in found:
        counts[collection.judge(pair)] += 1
    return counts


if __name__ == "__main__":
    main()
