"""The sample corpus keeps what the demo promises: which documents are copies, and which only look like it.

Similarities are computed here by comparing all pairs, with the slow reference for shingles.
"""

import itertools
import json
from collections import Counter
from importlib import resources

import pytest
from reference_shingles import shingle_texts

from streamdedup.corpora import CorpusReader
from streamdedup.wire import ErrorCode

SAMPLE = resources.files("streamdedup") / "sample"
#: Shingle unit and size of each profile, as in the demo's settings.
PROFILES = {"articles": ("word", 3), "reviews": ("char", 5)}
THRESHOLD = 0.8
#: Rule of containment for articles: least containment, and fewest shingles of the smaller text.
CONTAINMENT, MIN_SHINGLES = 0.8, 20


def documents(profile):
    """Id and text of every line that is a document, without the project's own reader."""
    found = {}
    for line in (SAMPLE / f"{profile}.jsonl").read_bytes().splitlines():
        try:
            value = json.loads(line)
        except ValueError:
            continue
        if isinstance(value, dict) and isinstance(value.get("text"), str) and "op" not in value:
            assert value["id"] not in found
            found[value["id"]] = value["text"]
    return found


def similarities(texts, unit, size):
    sets = {name: set(shingle_texts(text, unit=unit, size=size)) for name, text in texts.items()}
    for (a, left), (b, right) in itertools.combinations(sets.items(), 2):
        if left and right:
            yield a, b, len(left & right) / len(left | right), len(left & right), min(len(left), len(right))


def test_the_expected_pairs_are_all_pairs_at_the_threshold_and_by_containment():
    computed = [
        f"{profile}\t{a}\t{b}\t{similarity:.4f}"
        for profile, (unit, size) in PROFILES.items()
        for a, b, similarity, common, smaller in similarities(documents(profile), unit, size)
        if similarity >= THRESHOLD
        or (profile == "articles" and smaller >= MIN_SHINGLES and common >= CONTAINMENT * smaller)
    ]
    header, *expected = (SAMPLE / "expected_pairs.tsv").read_text(encoding="utf-8").splitlines()
    assert header == "profile\tid1\tid2\tsimilarity"
    assert expected == sorted(computed)
    assert Counter(line.split("\t")[0] for line in expected) == {"articles": 37, "reviews": 46}


def test_poison_is_six_lines_each_of_another_kind():
    problems = [
        entry
        for profile in PROFILES
        for entry in CorpusReader(SAMPLE / f"{profile}.jsonl")
        if entry.problem is not None
    ]
    assert [entry.raw is not None for entry in problems] == [True] * 6
    assert len({entry.problem for entry in problems}) == 6
    assert [entry.code for entry in problems] == [
        ErrorCode.NOT_JSON,
        ErrorCode.INVALID_FIELD,
        ErrorCode.UNKNOWN_OP,
        ErrorCode.MISSING_TEXT,
        ErrorCode.NOT_AN_OBJECT,
        ErrorCode.NOT_UTF8,
    ]


@pytest.mark.parametrize("profile", PROFILES)
def test_the_reader_finds_the_same_documents_as_plain_json(profile):
    entries = [e for e in CorpusReader(SAMPLE / f"{profile}.jsonl") if e.problem is None]
    assert {entry.id: entry.text for entry in entries} == documents(profile)
    assert all(entry.source and entry.published_at for entry in entries)
    times = [entry.published_at for entry in entries]
    assert times == sorted(times)
