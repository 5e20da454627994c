"""Scopes: documents are compared within one scope only, in buckets, in verification, in clusters and in look-ups."""

import itertools
import json
import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from streamdedup.cli.neighbours import find_neighbours
from streamdedup.cli.options import CorpusOptions, chosen_profile
from streamdedup.corpora import CorpusReader, Entry
from streamdedup.detection import scope as scopes
from streamdedup.detection.chunks import split_documents
from streamdedup.detection.lookup import IndexLookup, LookupQuery
from streamdedup.detection.model import DetectorOptions, document_number
from streamdedup.errors import CorpusError, DecodeError, MessageError
from streamdedup.index.memory import MemoryIndex
from streamdedup.position import Position
from streamdedup.serve.problems import request_problem_of
from streamdedup.settings import Profile
from streamdedup.settings.validation import read_profile
from streamdedup.similarity.lsh import Banding
from streamdedup.similarity.minhash import HashFamily
from streamdedup.tuning.study import Study
from streamdedup.wire import Decoder, Document, content_digest, scope_key, toggle_scope
from tests import streams
from tests.entries import encode_entry
from tests.thoroughness import examples

OPTIONS = replace(streams.OPTIONS, scope_field="tenant")
TEXT = "amber birch cedar delta ember fjord grove heath"
NEAR = "amber birch cedar delta ember fjord grove island"


class Stream(streams.Stream):
    """Documents by id, scope and text, and look-ups of them."""

    def __init__(self, options: DetectorOptions = OPTIONS, bucket_cap: int | None = None) -> None:
        super().__init__(options, MemoryIndex(bucket_cap=bucket_cap))
        self.lookup = IndexLookup(options, self.store)
        self.offset = 0

    def index(self, *documents: tuple[str, str | None, str], op: str = "upsert", source: str | None = None):
        records = []
        for name, scope, text in documents:
            position = Position("articles", 0, self.offset)
            records.append(Document(name, text, position, 0, op, source=source, scope=scope))
            self.offset += 1
        return self.delete(records) if op == "delete" else super().index(*records)

    def entry(self, name: str):
        return self.lookup.document(name)[0]


# Pairs

SCOPES, COPIES = 300, 5


def index_copies(stream: Stream) -> int:
    """Index equal texts, in batches that each have some of every scope; return the number of candidates."""
    documents = [(f"{copy}-{scope}", f"s{scope}", TEXT) for copy in range(COPIES) for scope in range(SCOPES)]
    batches = (documents[first : first + 500] for first in range(0, len(documents), 500))
    return sum(stream.index(*batch).candidates_count for batch in batches)


def pairs_within() -> Counter[tuple[str, str]]:
    names_of_scopes = ([f"{copy}-{scope}" for copy in range(COPIES)] for scope in range(SCOPES))
    return Counter(pair for names in names_of_scopes for pair in itertools.combinations(names, 2))


def test_of_a_million_pairs_of_equal_texts_across_scopes_none_is_found_and_all_within():
    stream = Stream()
    assert math.comb(SCOPES * COPIES, 2) - pairs_within().total() > 1_000_000
    candidates_count = index_copies(stream)
    assert stream.pairs == pairs_within()
    # Both documents of a pair are candidates of each other where one batch has both; no other bucket is shared.
    assert candidates_count <= 2 * pairs_within().total()


def test_verification_alone_keeps_scopes_apart_where_they_share_all_band_keys(monkeypatch):
    monkeypatch.setattr(scopes, "band_mask", lambda _scope, bands: np.zeros(bands, np.uint32))
    stream = Stream()
    assert index_copies(stream) > 1_000_000
    assert stream.pairs == pairs_within()


def test_band_keys_of_a_scope_differ_in_every_band_and_shared_bands_stay():
    stream = Stream()
    stream.index(("a", "x", TEXT), ("b", "y", TEXT), ("c", "x", NEAR))
    keys = [stream.lookup._preparer.band_keys([stream.entry(name).content])[0] for name in "abc"]
    assert not (keys[0] == keys[1]).any()
    unscoped = Stream(replace(OPTIONS, scope_field=None))
    unscoped.index(("a", None, TEXT), ("c", None, NEAR))
    expected = [unscoped.lookup._preparer.band_keys([unscoped.entry(name).content])[0] for name in "ac"]
    assert ((keys[0] == keys[2]) == (expected[0] == expected[1])).all()


# Changes


def indexed(versions, cuts):
    """Return the pairs of versions (id, scope, text; None deletes), with chunks as the daemon makes them."""
    stream, sizes = streams.Stream(OPTIONS), itertools.cycle(cuts)
    documents = [
        Document(name, text or "", Position("articles", 0, offset), 0, "upsert" if text else "delete", scope=scope)
        for offset, (name, scope, text) in enumerate(versions)
    ]
    while documents:
        size = next(sizes)
        for chunk in split_documents(documents[:size], 1_000, 10**6):
            if chunk[0].op == "delete":
                stream.delete(chunk)
            else:
                stream.index(*chunk)
        documents = documents[size:]
    return stream.pairs


VERSIONS = st.tuples(st.sampled_from("abc"), st.sampled_from("xy"), st.sampled_from([TEXT, NEAR, None]))


@pytest.mark.parametrize("between", [[], [("c", "y", TEXT)]])
def test_a_version_matches_its_scope_also_where_its_batch_has_the_next_version_in_another(between):
    versions = [("b", "x", TEXT), *between, ("a", "x", TEXT), ("a", "y", TEXT)]
    assert indexed(versions, [10]) == indexed(versions, [1])


@settings(max_examples=examples(100))
@given(
    versions=st.lists(VERSIONS, max_size=10),
    cuts=st.lists(st.integers(1, 10), min_size=1, max_size=4),
)
@example(versions=[("a", "x", TEXT), ("b", "y", TEXT), ("a", "y", TEXT), ("b", "x", TEXT)], cuts=[2])
def test_any_split_of_a_stream_into_batches_finds_the_pairs_of_the_last_versions(versions, cuts):
    pairs, one_by_one = indexed(versions, cuts), indexed(versions, [1])
    # A version that the same batch replaces may have a pair less: documents that come before it in time come after it.
    assert pairs <= one_by_one
    last = {name: scope for name, scope, text in versions if text}
    deleted = {name for name, _scope, text in versions if text is None}
    kept = sorted(last.keys() - deleted)
    assert {(a, b) for a, b in itertools.combinations(kept, 2) if last[a] == last[b]} <= pairs.keys()


def test_a_pair_that_was_alerted_is_known_after_both_documents_have_changed_their_scope():
    stream = Stream()
    stream.index(("a", "x", TEXT), ("b", "x", TEXT))
    stream.index(("a", "y", TEXT), ("b", "y", TEXT), ("c", "y", TEXT))
    assert stream.pairs == Counter({("a", "b"): 1, ("a", "c"): 1, ("b", "c"): 1})


@pytest.mark.parametrize("scope", ["x", "y", "all"])
def test_the_digest_of_a_text_in_a_scope_gives_the_digest_without_one(scope):
    digest = content_digest(TEXT, scope)
    assert digest != content_digest(TEXT) == toggle_scope(digest, scope_key(scope))
    assert len({content_digest(TEXT, other) for other in ("x", "y", "all")}) == 3


def test_an_append_keeps_the_scope_and_a_deletion_needs_none():
    stream = Stream()
    stream.index(("a", "x", "amber birch cedar delta"), ("b", "x", TEXT), ("c", "y", TEXT))
    (first,) = stream.store.get_entries([document_number("articles", "a")]).values()
    stream.index(("a", None, "ember fjord grove heath"), op="append")
    (continued,) = stream.store.get_entries([first.number]).values()
    assert continued.pair_digest == first.pair_digest  # the key of its published pairs
    assert stream.pairs == Counter({("a", "b"): 1})
    stream.index(("b", None, ""), op="delete")
    stream.index(("d", "x", TEXT))
    assert stream.pairs == Counter({("a", "b"): 1, ("a", "d"): 1})


def test_a_document_joins_no_cluster_whose_first_document_has_changed_its_scope():
    stream = Stream()
    stream.index(("a", "x", TEXT))
    stream.index(("b", "x", TEXT))
    stream.index(("a", "y", TEXT))
    stream.index(("c", "x", TEXT))
    assert stream.clusters == {"b": "a", "c": "c"}


@pytest.mark.parametrize("is_deleted", [False, True])
def test_alerts_and_look_ups_show_nothing_of_the_earlier_scope_of_the_first_document(is_deleted):
    stream = Stream(replace(OPTIONS, label_bytes=60))
    stream.index(("a", "x", TEXT), source="wire")
    stream.index(("b", "x", NEAR), source="secret")
    if is_deleted:
        stream.index(("a", None, ""), op="delete")
    stream.index(("a", "y", TEXT), source="wire")
    (detection,) = stream.index(("c", "y", TEXT), source="coast").detections
    assert (detection.cluster_id, detection.spread.earliest_id, detection.spread.earliest_source) == ("a", None, None)
    shown = {}
    for name in "abc":
        entry, first = stream.lookup.document(name)
        cluster = stream.lookup.cluster_of(entry)
        shown[name] = first, {member.id for member in cluster.members}, cluster.spread.earliest_id
    assert shown == {"a": ("a", {"a", "c"}, None), "b": (None, {"b"}, "b"), "c": ("a", {"a", "c"}, None)}


# Look-ups


def test_a_look_up_finds_the_documents_of_its_scope():
    stream = Stream()
    stream.index(("a", "x", TEXT), ("b", "y", TEXT), ("c", "y", NEAR))
    near = stream.lookup.look_up([LookupQuery(TEXT, scope="x"), LookupQuery(TEXT, "b", scope="y")], 0)
    assert [[match.id for match in result.matches] for result in near] == [["a"], ["c"]]
    assert [result.redelivery for result in near] == [False, True]
    assert stream.lookup.look_up([LookupQuery(TEXT, "b", scope="x")], 0)[0].redelivery is False
    assert [match.id for match in stream.lookup.matches_of(stream.entry("c")).matches] == ["b"]


def test_a_look_up_without_its_scope_is_refused_and_the_others_of_the_call_are_answered():
    stream = Stream()
    stream.index(("a", "x", TEXT))
    refused, answered, empty = stream.lookup.look_up(
        [LookupQuery(TEXT), LookupQuery(TEXT, scope="x"), LookupQuery(TEXT, scope="")], 0
    )
    assert (refused.code, empty.code) == ("missing_scope", "missing_scope")
    assert [match.id for match in answered.matches] == ["a"]
    with pytest.raises(MessageError, match="field `tenant`"):
        stream.lookup.compare_text(LookupQuery(TEXT), stream.entry("a"), 0)
    with_default = IndexLookup(replace(OPTIONS, default_scope="x"), stream.store)
    assert [match.id for match in with_default.look_up([LookupQuery(TEXT)], 0)[0].matches] == ["a"]
    without = IndexLookup(replace(OPTIONS, scope_field=None), stream.store)
    assert without.look_up([LookupQuery(TEXT, scope="x")], 0)[0].code == "invalid_field"


def test_a_comparison_tells_that_the_scopes_differ():
    stream = Stream()
    stream.index(("a", "x", TEXT), ("b", "y", TEXT), ("c", "x", TEXT))
    across = stream.lookup.compare(stream.entry("a"), stream.entry("b"))
    assert (across.similarity, across.shared_bands, across.within_scope, across.is_match) == (1.0, 0, False, False)
    within = stream.lookup.compare(stream.entry("a"), stream.entry("c"))
    assert (within.shared_bands, within.within_scope, within.is_match) == (8, True, True)
    text = stream.lookup.compare_text(LookupQuery(TEXT, scope="y"), stream.entry("a"), 0)
    assert (text.within_scope, text.is_match) == (False, False)


# Stored and sent forms


def test_a_scope_costs_eight_bytes_of_the_entry_and_a_profile_without_scopes_none():
    scoped, plain = Stream(), Stream(replace(OPTIONS, scope_field=None))
    scoped.index(("a", "a tenant with a name of any length", TEXT))
    plain.index(("a", None, TEXT))
    assert len(encode_entry(scoped.entry("a"))) == len(encode_entry(plain.entry("a"))) + 8
    assert len(scoped.entry("a").content.scope) == 8
    assert plain.entry("a").content.scope is None
    assert scoped.entry("a").number == plain.entry("a").number == document_number("articles", "a")


@pytest.mark.parametrize(
    ("value", "default", "expected"),
    [
        (b'{"text":"t","tenant":"x"}', None, "x"),
        (b'{"text":"t","tenant":7}', None, "7"),
        (b'{"text":"t","tenant":"x"}', "y", "x"),
        (b'{"text":"t"}', "y", "y"),
        (b'{"text":"t","tenant":null}', "y", "y"),
        (b'{"text":"t","tenant":""}', "y", "y"),
        (b'{"id":"a","text":"t","op":"append","tenant":"x"}', None, None),
        (b'{"id":"a","op":"delete"}', None, None),
        (None, None, None),
    ],
)
def test_a_record_has_the_scope_of_its_field_or_the_default(value, default, expected):
    decoder = Decoder(scope_field="tenant", default_scope=default)
    assert decoder.decode(Position("articles", 0, 0), 0, b"key", value).scope == expected


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (b'{"text":"t"}', "missing_scope"),
        (b'{"text":"t","tenant":null}', "missing_scope"),
        (b'{"text":"t","tenant":""}', "missing_scope"),
        (b'{"text":"t","tenant":["x"]}', "invalid_field"),
        (b'{"text":"t","tenant":"' + b"x" * 1_025 + b'"}', "invalid_field"),
    ],
)
def test_a_record_without_a_valid_scope_becomes_a_dead_letter(value, code):
    with pytest.raises(DecodeError) as raised:
        Decoder(scope_field="tenant").decode(Position("articles", 0, 0), 0, b"key", value)
    assert raised.value.code == code


# Samples


def test_pairs_and_candidates_of_a_study_are_those_within_scopes():
    texts, tenants = [TEXT, TEXT, NEAR, TEXT], ["x", "x", "x", "y"]
    unscoped = Study(OPTIONS.shingles, texts, HashFamily(16), floor=0.5)
    scoped, alone = (
        Study(OPTIONS.shingles, texts[:count], HashFamily(16), floor=0.5, scopes=tenants[:count]) for count in (4, 3)
    )
    assert (scoped.alerted_count(0.5), unscoped.alerted_count(0.5)) == (3, 6)
    assert scoped.candidate_counts(Banding(8, 2))[:, 0].tolist() == alone.candidate_counts(Banding(8, 2))[:, 0].tolist()
    assert scoped.largest_bucket(Banding(1, 2)) == 3


# Files


def test_neighbours_are_documents_of_the_same_scope():
    entries = [Entry(name, TEXT, "f", line, scope=name[0]) for line, name in enumerate(["x0", "y0", "x1", "y1", "x2"])]
    nearest = find_neighbours(entries, read_profile({}, Profile.model_fields.keys()), "x1", 10, 0.0)
    assert [neighbour.id for neighbour in nearest.nearest] == ["x0", "x2"]
    assert nearest.compared_count == 2


def test_a_table_has_a_column_for_the_scope_or_a_default(tmp_path):
    with_column, without = tmp_path / "with.csv", tmp_path / "without.csv"
    with_column.write_text("id,text,tenant\na,one,x\nb,two,7\n", encoding="utf-8")
    without.write_text("id,text\na,one\nb,two\n", encoding="utf-8")

    def read(file, default=None):
        decoder = Decoder(scope_field="tenant", default_scope=default)
        return [(entry.id, entry.scope) for entry in CorpusReader(str(file), decoder=decoder)]

    assert read(with_column) == read(with_column, "z") == [("a", "x"), ("b", "7")]
    with pytest.raises(CorpusError, match="there is no column `tenant`"):
        read(without)
    assert read(without, "z") == [("a", "z"), ("b", "z")]


def test_texts_in_files_without_fields_need_a_default_scope(tmp_path):
    file = tmp_path / "texts.txt"
    file.write_text(f"{TEXT}\n{TEXT}\n", encoding="utf-8")
    options = CorpusOptions([str(file)], scope_field="tenant")
    with pytest.raises(CorpusError, match="has no field tenant for the scope"):
        list(options.entries(chosen_profile(options), "scan"))
    read = options.entries(chosen_profile(options, default_scope="x"), "scan")
    assert [entry.scope for entry in read] == ["x", "x"]
    produced = Entry("a", TEXT, "f", 1, scope="x").value(Decoder(scope_field="tenant"))
    assert json.loads(produced)["tenant"] == "x"


# HTTP


def test_a_mistake_in_the_scope_of_a_request_is_a_problem_of_the_scope():
    stream = Stream()
    (missing,) = stream.lookup.look_up([LookupQuery(TEXT)], 0)
    unscoped = IndexLookup(replace(OPTIONS, scope_field=None), stream.store)
    (unused,) = unscoped.look_up([LookupQuery(TEXT, scope="x")], 0)
    problems = [request_problem_of(error).body for error in (missing, unused)]
    assert [(problem.type.rpartition(":")[2], problem.status, problem.field) for problem in problems] == [
        ("missing-scope", 422, "scope"),
        ("no-scopes", 409, "scope"),
    ]
