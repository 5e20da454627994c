"""The sample corpus keeps what the demo promises: which documents are copies, and which only look like it.

Similarities are computed here by comparing all pairs, with the slow reference for shingles.
"""

import itertools
import json
import re
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
#: How the headlines of the three template families begin.
TEMPLATES = ("Quarterly results:", "Weather for", "Fish hall prices,")


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
            yield a, b, len(left & right) / len(left | right)


def test_the_expected_pairs_are_all_pairs_at_the_threshold():
    computed = [
        f"{profile}\t{a}\t{b}\t{similarity:.4f}"
        for profile, (unit, size) in PROFILES.items()
        for a, b, similarity in similarities(documents(profile), unit, size)
        if similarity >= THRESHOLD
    ]
    header, *expected = (SAMPLE / "expected_pairs.tsv").read_text(encoding="utf-8").splitlines()
    assert header == "profile\tid1\tid2\tsimilarity"
    assert expected == sorted(computed)
    assert Counter(line.split("\t")[0] for line in expected) == {"articles": 34, "reviews": 46}


@pytest.mark.parametrize("profile", PROFILES)
def test_near_misses_are_there_and_stay_below_the_threshold(profile):
    texts = {name: text for name, text in documents(profile).items() if not text.startswith(TEMPLATES)}
    near = [s for _, _, s in similarities(texts, *PROFILES[profile]) if 0.5 <= s < THRESHOLD]
    assert len(near) >= 9
    # No pair lies so close to the threshold that another rounding could tip it.
    assert all(abs(s - THRESHOLD) > 0.001 for _, _, s in similarities(texts, *PROFILES[profile]))


@pytest.mark.parametrize("template", TEMPLATES)
def test_texts_of_one_template_look_alike_and_still_stay_below_the_threshold(template):
    family = {name: text for name, text in documents("articles").items() if text.startswith(template)}
    assert len(family) >= 6
    kept = [s for _, _, s in similarities(family, "word", 3)]
    assert max(kept) < 0.75
    assert min(kept) > 0.5
    # Without their figures most of them would be reported: that is the trap.
    blank = {name: re.sub("[0-9]+", " ", text) for name, text in family.items()}
    assert max(s for _, _, s in similarities(blank, "word", 3)) > THRESHOLD - 0.01


def test_poison_is_six_lines_each_of_another_kind():
    problems = [
        entry
        for profile in PROFILES
        for entry in CorpusReader(SAMPLE / f"{profile}.jsonl", on_bad="pass")
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
    entries = [e for e in CorpusReader(SAMPLE / f"{profile}.jsonl", on_bad="pass") if e.problem is None]
    assert {entry.id: entry.text for entry in entries} == documents(profile)
    assert all(entry.source and entry.published_at for entry in entries)
    times = [entry.published_at for entry in entries]
    assert times == sorted(times)


def test_one_article_is_empty_and_one_too_short_for_a_shingle():
    lengths = sorted(len(text.split()) for text in documents("articles").values())
    assert lengths[:2] == [0, 2]
    assert lengths[-1] <= 250


def test_ten_scripts_occur_in_both_files():
    scripts = {
        "Latin": "[a-z]",
        "Arabic": "[\u0621-\u064a]",
        "Han": "[\u4e00-\u9fff]",
        "Kana": "[\u3041-\u30ff]",
        "Devanagari": "[\u0904-\u0939]",
        "Thai": "[\u0e01-\u0e2e]",
        "Cyrillic": "[\u0430-\u044f]",
        "Greek": "[\u03b1-\u03c9]",
        "Ethiopic": "[\u1200-\u1357]",
        "Hangul": "[\uac00-\ud7a3]",
    }
    for profile in PROFILES:
        texts = documents(profile).values()
        counts = {script: sum(bool(re.search(range_, text)) for text in texts) for script, range_ in scripts.items()}
        assert all(counts.values()), counts
    vowelled = [text for text in documents("articles").values() if len(re.findall("[\u064b-\u0652]", text)) > 50]
    assert len(vowelled) == 2
