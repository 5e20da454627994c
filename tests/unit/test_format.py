"""docs/format.md, its vectors and its tables agree with the code."""

import inspect
import json
import re
import unicodedata

import format_vectors
from test_docs import PAGES, blocks, named, rows, section

from streamdedup.index.redis.reading import RedisIndexOptions
from streamdedup.settings import Profile
from streamdedup.similarity import minhash
from streamdedup.text import element_hashes, shingle_hashes
from streamdedup.text.markup import without_urls

PAGE = PAGES["docs/format.md"]
VECTORS = [json.loads(line) for line in format_vectors.VECTORS.read_text(encoding="utf-8").splitlines()]
#: Constants, longer than a code point.
HEXADECIMAL = re.compile(r"0x[0-9A-Fa-f]{8,16}")
REWRITE = "rewrite it: python -m tests.format_vectors"


def test_the_vectors_are_those_of_the_code():
    for stored, computed in zip(VECTORS, map(json.loads, format_vectors.vectors().splitlines()), strict=True):
        assert stored == computed, REWRITE


def test_the_example_is_that_of_the_code():
    assert format_vectors.EXAMPLE.search(PAGE)
    assert format_vectors.render(PAGE) == PAGE, REWRITE


def test_the_tables_are_those_of_the_code():
    stored, computed = lines_of(format_vectors.TABLES.read_text(encoding="utf-8")), lines_of(format_vectors.tables())
    if f"# unicode = {unicodedata.unidata_version}" in stored:
        assert stored == computed, REWRITE
    # Another version of Unicode has further characters, which may join two ranges, and changes none.
    for name in {line.partition(" ")[0] for line in stored if not line.startswith("#")}:
        assert entries_of(name, stored) <= entries_of(name, computed)


def lines_of(table):
    return table.splitlines()


def entries_of(name, lines):
    """Return the code points in the ranges of a table, or its mappings."""
    entries = [line.split(" ")[1:] for line in lines if line.startswith(f"{name} ")]
    if name in {"casefold", "replaced", "simplified", "stop_word"}:
        return {tuple(entry) for entry in entries}
    return {point for first, last in entries for point in range(int(first, 16), int(last, 16) + 1)}


def test_the_tables_on_the_page_are_those_of_the_file():
    names = {line.partition(" ")[0] for line in lines_of(format_vectors.TABLES.read_text(encoding="utf-8"))} - {"#"}
    assert {name for row in rows(section(PAGE, "Tables")) for name in named(row[0])} == names


def test_the_fields_on_the_page_are_those_of_the_vectors():
    fields = [name for row in rows(section(PAGE, "Vectors")) for name in named(row[0])]
    assert sorted(fields) == sorted({field for vector in VECTORS for field in vector})


def test_the_parameters_on_the_page_are_those_of_a_fingerprint():
    names = {name for row in rows(section(PAGE, "Parameters")) for name in named(row[0])}
    profile = Profile(topics=("articles",))
    options = RedisIndexOptions(namespace="sd:articles", bands=9, lifetime_ms=1000, bucket_layout="packed")
    assert names == options.stored_fingerprint(profile.fingerprint()).keys()


def test_the_vectors_have_both_units_bags_and_scripts():
    assert len(VECTORS) == 200
    assert format_vectors.VECTORS.stat().st_size < 400_000
    assert {vector["profile"].get("shingle_unit", "word") for vector in VECTORS} == {"word", "char"}
    assert {field for vector in VECTORS for field in vector["profile"]} >= set(format_vectors.ALLOWED) - {
        "scope_field",
        "label_bytes",
    }
    assert format_vectors.SENTENCES.keys() | format_vectors.LATER.keys() <= {vector["name"] for vector in VECTORS}


def test_the_vectors_have_no_character_newer_than_unicode_13():
    # Python knows Unicode 3.2 beside its own version. Rows of 256 code points, of which all newer ones in the vectors
    # are of 5.0 (N'Ko) to 13.0 (Han of the third plane).
    newer = {
        0x07,
        0x09,
        0x0D,
        0x10,
        0x13,
        0x1A,
        0x1C,
        0xA7,
        0xAA,
        0xAB,
        0x104,
        0x118,
        0x16F,
        0x177,
        0x17F,
        0x188,
        0x1B1,
        0x1E9,
    }
    newer |= {0x1EE, 0x1F1, 0x1F4, 0x1F6, 0x2B8, 0x300}
    characters = "".join(vector.get("text", "") for vector in VECTORS)
    assert {ord(c) >> 8 for c in characters if unicodedata.ucd_3_2_0.category(c) == "Cn"} <= newer


def test_the_constants_on_the_page_are_those_of_the_code():
    modules = (element_hashes, shingle_hashes, minhash)
    code = {int(number, 16) for module in modules for number in HEXADECIMAL.findall(inspect.getsource(module))}
    assert {int(number, 16) for number in HEXADECIMAL.findall(PAGE)} <= code | {minhash.EMPTY}


def test_the_expression_for_links_on_the_page_finds_those_of_the_code():
    (expression,) = blocks(section(PAGE, "Links"), "text")
    (characters,) = re.findall(r"`C` is the class `(.+?)`", section(PAGE, "Links"))
    link = re.compile(expression.strip().replace("C", characters), re.ASCII | re.IGNORECASE)
    texts = [format_vectors.LINKS, "(www.a.b)", "see WWW.a", "xwww.a", "](/ü)", "](a)b", "HTTPS://a(b"]
    for text in [*texts, *map(chr, range(128))]:
        joined = text if len(text) > 1 else f"http://a{text}b ](c{text}d) "
        assert link.sub(" ", joined) == without_urls(joined)
