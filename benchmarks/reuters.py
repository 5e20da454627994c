"""The experiment of the source material on Reuters-21578.

Letters only, articles of at least eight words, word k-shingles for k from 1 to 7, signatures of 100 functions in bands,
candidates verified by signature and by the original sets, the nearest neighbours of a chosen article.

``--quick`` takes two shingle sizes and a thousand articles, and the project's sample where the collection is absent.
"""

from collections import defaultdict
from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks import datasets, report
from benchmarks import reuters_source as source
from benchmarks.report import Table, percent, table
from benchmarks.scans import all_pairs, as_set
from streamdedup.corpora import CorpusReader
from streamdedup.evaluation.pairs import Pairs
from streamdedup.similarity.lsh import Banding

#: Shingle sizes, and those of a quick run.
SIZES, QUICK_SIZES = (1, 2, 3, 4, 5, 6, 7), (2, 3)
#: Articles of a quick run.
QUICK_ARTICLES = 1_000
#: Fewest words of an article.
MIN_WORDS = 8
#: Functions of the signatures, and the shingle size where bands are varied.
FUNCTIONS, SIZE = 100, 3
#: Bands and rows of the comparison over shingle sizes, and the others at `SIZE`.
BANDING = Banding(20, 5)
BANDINGS = (Banding(25, 4), BANDING, Banding(16, 6), Banding(12, 8), Banding(10, 10), Banding(5, 20))
#: Similarities at which candidates are counted as found.
NEAR, RELATED = 0.8, 0.5
#: Neighbours asked for.
TOP = 5
#: Seed of the functions.
SEED = 21578


class Cleaned(NamedTuple):
    """Ids and words of the articles that are left, the number of all articles, and of those with a body."""

    ids: list[str]
    words: list[list[str]]
    articles: int
    with_body: int


class Signed(NamedTuple):
    """The articles as shingles of one size; ``truth`` has all pairs from `RELATED` on."""

    sets: list[frozenset[str]]
    distinct: int
    family: source.Family
    signatures: NDArray[np.int64]
    truth: Pairs


class Verified(NamedTuple):
    """Candidates with the number of shared bands and both similarities, in one order."""

    pairs: list[source.Pair]
    shared: NDArray[np.int64]
    by_signature: NDArray[np.float64]
    by_original: NDArray[np.float64]


def main(*, quick: bool) -> report.Report:
    cleaned = clean(*_articles(quick=quick))
    tables = {"articles": counts(cleaned)}
    by_size = []
    for size in QUICK_SIZES if quick else SIZES:
        signed = prepare(cleaned.words, size)
        candidates = verify(signed, BANDING)
        by_size.append(_size_row(size, signed, candidates))
        if size == SIZE:
            tables["bands"] = over_bandings(signed)
            tables["neighbours"] = neighbours_table(cleaned.ids, candidates)
            tables["forms"] = forms(signed)
    columns = ("k", "distinct shingles", "c", "shingles an article", "pairs from 0.5", "pairs from 0.8", "candidates")
    checks = ("from 0.8 by signature", "from 0.8 by original", "found of those from 0.8", "found of those from 0.5")
    tables["sizes"] = table(columns + checks, by_size)
    return report.Report({"functions": FUNCTIONS, "seed": SEED}, tables)


def _articles(*, quick: bool) -> tuple[list[str], list[str]]:
    """Return ids and texts of all articles, the text of one without a body empty."""
    if quick and datasets.path_of(datasets.REUTERS) is None:
        documents = datasets.sample("articles").documents
        return [document.id for document in documents], [document.text for document in documents]
    entries = list(islice(CorpusReader(datasets.find(datasets.REUTERS)), QUICK_ARTICLES if quick else None))
    return [entry.id for entry in entries], [entry.text or "" for entry in entries]


def clean(ids: Sequence[str], texts: Sequence[str]) -> Cleaned:
    """Keep the letters of the articles that have enough words."""
    words = [source.words_of(text) for text in texts]
    enough = [number for number, text_words in enumerate(words) if len(text_words) >= MIN_WORDS]
    with_body = sum(map(bool, texts))
    return Cleaned([ids[number] for number in enough], [words[number] for number in enough], len(ids), with_body)


def counts(cleaned: Cleaned) -> Table:
    """Return the number of articles at each step, beside the known numbers."""
    left = len(cleaned.ids)
    rows = [
        ("articles", cleaned.articles, 21_578),
        ("without BODY", cleaned.articles - cleaned.with_body, 2_535),
        ("with BODY", cleaned.with_body, 19_043),
        (f"fewer than {MIN_WORDS} words of letters", cleaned.with_body - left, 25),
        ("left", left, 19_018),
    ]
    return table(("", "counted", "known answer"), rows)


def prepare(words: Sequence[Sequence[str]], size: int) -> Signed:
    """Make shingles, signatures and the truth for one shingle size."""
    sets = [source.shingles_of(text_words, size) for text_words in words]
    hashes, offsets = source.hash_sets(sets)
    distinct = len(set().union(*sets))
    family = source.draw_family(FUNCTIONS, distinct, SEED)
    return Signed(sets, distinct, family, source.sign(family, hashes, offsets), all_pairs(hashes, offsets, RELATED))


def verify(signed: Signed, banding: Banding) -> Verified:
    """Find the candidates of a banding and compare each in both ways."""
    shared = source.shared_bands(source.band_keys(signed.signatures, banding.bands, banding.rows))
    pairs = sorted(shared)
    return Verified(
        pairs,
        np.array([shared[pair] for pair in pairs], np.int64),
        source.by_signature(signed.signatures, pairs),
        source.by_original(signed.sets, pairs),
    )


def _size_row(size: int, signed: Signed, candidates: Verified) -> list[object]:
    mean = np.mean([len(shingles) for shingles in signed.sets])
    return [
        size,
        signed.distinct,
        signed.family.c,
        f"{mean:.1f}",
        len(signed.truth.left),
        int(np.sum(signed.truth.similarities >= NEAR)),
        len(candidates.pairs),
        int(np.sum(candidates.by_signature >= NEAR)),
        int(np.sum(candidates.by_original >= NEAR)),
        recall(signed.truth, candidates, NEAR),
        recall(signed.truth, candidates, RELATED),
    ]


def recall(truth: Pairs, candidates: Verified, threshold: float, least_shared: int = 1) -> str:
    """Return the share of the true pairs from a similarity on that share enough bands."""
    expected = as_set(truth.where(truth.similarities >= threshold))
    selected = (candidates.shared >= least_shared) & (candidates.by_original >= threshold)
    matching = {pair for pair, is_selected in zip(candidates.pairs, selected.tolist(), strict=True) if is_selected}
    return percent(len(expected & matching) / len(expected) if expected else None)


def over_bandings(signed: Signed) -> Table:
    """Return recall and candidates with one and two shared bands, for each banding."""
    rows = []
    for banding in BANDINGS:
        candidates = verify(signed, banding)
        for minimum in (1, 2):
            enough = candidates.shared >= minimum
            near = candidates.by_original[enough] >= NEAR
            true = signed.truth.similarities[signed.truth.similarities >= NEAR]
            expected = [banding.probability(similarity, minimum) for similarity in true.tolist()]
            rows.append(
                [
                    f"{banding.bands} x {banding.rows}",
                    f"{banding.steepest_similarity:.3f}",
                    minimum,
                    int(enough.sum()),
                    percent(float(near.mean()) if near.size else None),
                    percent(banding.probability(NEAR, minimum)),
                    percent(float(np.mean(expected)) if expected else None),
                    recall(signed.truth, candidates, NEAR, minimum),
                    recall(signed.truth, candidates, RELATED, minimum),
                ]
            )
    columns = ("bands x rows", "(1/b)^(1/r)", "shared bands", "candidates", "of these from 0.8", "theory at 0.8")
    return table((*columns, "theory from 0.8", "found from 0.8", "found from 0.5"), rows)


def neighbours_table(ids: Sequence[str], candidates: Verified) -> Table:
    """Return the nearest neighbours of four articles: the first ones in each situation."""
    neighbours: dict[int, list[tuple[int, float, float]]] = defaultdict(list)
    similarities = zip(candidates.by_original.tolist(), candidates.by_signature.tolist(), strict=True)
    for (left, right), (original, estimated) in zip(candidates.pairs, similarities, strict=True):
        if original >= RELATED:
            neighbours[left].append((right, original, estimated))
            neighbours[right].append((left, original, estimated))
    degrees = np.array([len(neighbours[document]) for document in range(len(ids))])
    situations = {
        f"{TOP} found": degrees >= TOP,
        f"fewer than {TOP}": (degrees > 1) & (degrees < TOP),
        "one": degrees == 1,
        "none": degrees == 0,
    }
    rows = []
    for situation, fits in situations.items():
        if not fits.any():
            continue
        document = int(np.argmax(fits))
        nearest = sorted(neighbours[document], key=lambda entry: (-entry[1], entry[0]))[:TOP]
        shown = [f"{ids[neighbour]}: {original:.3f} ({estimated:.2f})" for neighbour, original, estimated in nearest]
        rows.append([situation, ids[document], len(neighbours[document]), ", ".join(shown) or "none"])
    return table(("situation", "article", "neighbours", f"nearest {TOP}: similarity (estimate)"), rows)


def forms(signed: Signed) -> Table:
    """Compare bands hashed as text with bands hashed as octets."""
    text = source.band_keys(signed.signatures, BANDING.bands, BANDING.rows)
    octets = BANDING.band_keys(signed.signatures.astype(np.uint32)).astype(np.int64)
    by_text, by_octets = source.shared_bands(text), source.shared_bands(octets)
    rows = [
        ("text: 15_355_89_2", len(np.unique(text)), len(by_text)),
        ("octets: 4 for each value", len(np.unique(octets)), len(by_octets)),
        ("pairs in both", "", len(by_text.keys() & by_octets.keys())),
    ]
    return table(("CRC-32 of a band's values as", "distinct keys", "candidates"), rows)
