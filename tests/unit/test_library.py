"""The Python API on an index in memory, and the examples of its documentation."""

import doctest
import itertools
import re
import subprocess
import sys
import threading
from pathlib import Path
from urllib.parse import urlencode

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import streamdedup
from streamdedup import Index, Profile
from streamdedup.cli.scan import find_pairs
from streamdedup.errors import DecodeError, DocumentTooLarge, MessageError, SettingsError, StoreUnavailable
from streamdedup.evaluation.trial import DetectorRun, document_at
from streamdedup.index.memory import MemoryIndex
from streamdedup.indexes import backend_at, detector_options
from streamdedup.library import ProfileKeys
from streamdedup.settings import Profile as ProfileSection
from streamdedup.settings.base import keys_of
from streamdedup.wire import ErrorCode
from tests.canaries import TLS
from tests.floods import a_story, decoys, edited
from tests.thoroughness import examples

ROOT = Path(__file__).parents[2]
TEXT = "amber birch cedar delta ember fjord grove heath"
WORDS = ["amber", "birch", "cedar", "delta", "ember", "fjord"]
#: Keys of a profile that are about records of Kafka.
RECORD_KEYS = {
    "topics", "format", "id_field", "text_fields", "published_at_field", "source_field", "op_field",
    "key_format", "key_field", "op_values", "deleted_field", "index_silently_until",
}  # fmt: skip


def ids(matches):
    return [[match.id for match in own] for own in matches]


def pairs_of(documents, matches):
    return sorted(
        (*sorted((document_id, match.id)), match.similarity)
        for (document_id, _), own in zip(documents, matches, strict=True)
        for match in own
    )


@pytest.fixture
def index():
    with Index.in_memory(Profile(threshold=0.5, shingle_size=2)) as opened:
        yield opened


#: Texts of few words have a containment too: the index counts at most two shingles.
CONTAINMENT = {"containment_threshold": 0.9, "exact_limit": 1}


class TestAdd:
    @settings(max_examples=examples(200))
    @given(
        texts=st.lists(st.lists(st.sampled_from(WORDS), max_size=8).map(" ".join), max_size=20),
        cuts=st.sets(st.integers(0, 20)),
        threshold=st.sampled_from([0.3, 0.5, 0.8]),
        containment=st.sampled_from([{}, CONTAINMENT]),
        bucket_cap=st.sampled_from(["none", 500]),
    )
    def test_the_pairs_are_those_of_scan_in_any_split_into_calls(self, texts, cuts, threshold, containment, bucket_cap):
        profile = Profile(threshold=threshold, shingle_size=2, bucket_cap=bucket_cap, min_recall=0.9, **containment)
        store = MemoryIndex(bucket_cap=profile.section.bucket_cap)
        store.open(profile.section.fingerprint())
        run = DetectorRun(detector_options("scan", profile.section), store)
        documents = [(f"d{at:02}", text) for at, text in enumerate(texts)]
        scanned = find_pairs(run, [document_at(at, *document) for at, document in enumerate(documents)])
        expected = sorted((pair.id1, pair.id2, pair.similarity) for pair in scanned)
        bounds = sorted({0, len(documents), *(cut for cut in cuts if cut < len(documents))})
        matches = []
        with Index.in_memory(profile) as index:
            for first, last in itertools.pairwise(bounds):
                matches += index.add(documents[first:last])
        assert pairs_of(documents, matches) == expected

    def test_each_version_in_a_call_is_compared(self, index):
        versions = [
            ("b", TEXT),
            ("a", TEXT),
            ("a", "something else entirely here"),
            ("c", "something else entirely here"),
        ]
        assert ids(index.add(versions)) == [[], ["b"], [], ["a"]]

    def test_each_pair_belongs_to_the_document_that_is_inserted_later(self, index):
        assert ids(index.add([("a", TEXT), ("b", TEXT), ("other", "something else entirely here")])) == [[], ["a"], []]
        assert ids(index.add([("c", TEXT + " iris")])) == [["a", "b"]]

    def test_a_changed_text_replaces_the_earlier_version_and_the_same_text_changes_nothing(self, index):
        index.add([("a", TEXT), ("b", "something else entirely here")])
        assert ids(index.add([("a", TEXT)])) == [[]]
        assert ids(index.add([("b", TEXT)])) == [["a"]]
        assert ids(index.lookup(["something else entirely here"])) == [[]]

    def test_a_document_twice_in_a_call_after_its_removal_returns_each_pair_once(self, index):
        index.remove(["x"])
        index.add([("z", TEXT)])
        assert ids(index.add([("x", TEXT)] * 2)) == [["z"], []]
        assert ids(index.add([("x", TEXT)] * 2)) == [[], []]

    def test_the_answers_about_a_text_whose_buckets_decoys_fill_are_not_complete(self):
        story, calm = a_story(), "something else entirely here"
        with Index.in_memory(Profile(bucket_cap=10, containment_threshold="none")) as index:
            assert not any(index.add(decoys(story, 300, 22)))
            added = index.add([("story", story), ("calm", calm), ("copy", story)])
            assert ids(added) == [[], [], ["story"]]
            assert [matches.complete for matches in added] == [False, True, False]
            found = index.lookup([edited(story, 1, 999), story, calm])
            assert ids(found) == [[], ["copy", "story"], ["calm"]]
            assert [matches.complete for matches in found] == [False, False, True]

    def test_more_candidates_than_are_compared_make_an_answer_incomplete(self):
        with Index.in_memory(Profile(max_candidates=2)) as index:
            added = index.add([(f"d{at}", TEXT) for at in range(4)])
            assert [matches.complete for matches in added] == [True, True, True, False]
            assert not index.lookup([TEXT])[0].complete
            again = index.add([(f"d{at}", TEXT) for at in range(4)])
            assert [matches.complete for matches in again] == [False] * 4
            twice = index.add([("d4", TEXT)] * 2)
            assert [(len(matches), matches.complete) for matches in twice] == [(2, False), (0, False)]

    def test_an_index_without_documents_answers_completely(self, index):
        assert [matches.complete for matches in index.lookup([TEXT])] == [True]

    def test_many_documents_are_added_in_one_call(self, index):
        documents = [(f"d{at}", f"one{at} two{at} three{at} four{at}") for at in range(2_500)]
        assert not any(index.add(documents))
        assert ids(index.lookup([text for _, text in documents])) == [[document_id] for document_id, _ in documents]

    def test_no_documents_and_empty_texts_have_no_matches(self, index):
        assert index.add([]) == []
        assert index.add([("a", ""), ("b", " ... ")]) == [(), ()]

    @pytest.mark.parametrize("renewal_s", [3600.0, 0.0])
    def test_a_failed_call_is_repeated_without_a_lost_or_a_doubled_pair(self, index, monkeypatch, renewal_s):
        monkeypatch.setattr("streamdedup.detection.writing._RENEWAL_S", renewal_s)
        index.add([("a", TEXT)])
        calls = iter([StoreUnavailable("away"), None])
        joined = MemoryIndex.set_clusters

        def failing(self, *arguments):
            # Entries, pending matches and claims are written by now.
            if (error := next(calls, None)) is not None:
                raise error
            return joined(self, *arguments)

        monkeypatch.setattr(MemoryIndex, "set_clusters", failing)
        with pytest.raises(StoreUnavailable):
            index.add([("b", TEXT), ("c", TEXT)])
        assert ids(index.add([("b", TEXT), ("c", TEXT)])) == [["a"], ["a", "b"]]

    def test_a_repeated_call_does_not_compare_a_repeated_document_that_the_call_replaces(self, index, monkeypatch):
        index.add([("y", TEXT), ("x", "a text before its removal")])
        index.remove(["x"])
        call = [("x", TEXT), ("x", TEXT), ("x", "something else entirely here")]
        finish, calls = MemoryIndex.finish, itertools.count()

        def failing_once(self, ends, positions, fences):
            if positions and next(calls) == 0:  # without positions: at the beginning of a call
                raise StoreUnavailable("away")
            return finish(self, ends, positions, fences)

        monkeypatch.setattr(MemoryIndex, "finish", failing_once)
        with pytest.raises(StoreUnavailable):
            index.add(call)
        assert ids(index.add(call)) == [["y"], [], []]
        assert ids(index.lookup([TEXT])) == [["y"]]

    def test_a_call_that_failed_after_some_thousand_documents_is_repeated_as_a_whole(self, index, monkeypatch):
        documents = [(f"d{at}", f"one{at % 1_200} two{at % 1_200} three{at % 1_200}") for at in range(2_400)]
        look_up, calls = MemoryIndex.insert_and_look_up, itertools.count()

        def failing_once(self, *arguments):
            found = look_up(self, *arguments)
            if next(calls) == 2:
                raise StoreUnavailable("away")
            return found

        monkeypatch.setattr(MemoryIndex, "insert_and_look_up", failing_once)
        with pytest.raises(StoreUnavailable):
            index.add(documents)
        # A pair may be returned for its earlier document now: the failed attempt has inserted the later one.
        expected = sorted((*sorted((f"d{at}", f"d{at + 1_200}")), 1.0) for at in range(1_200))
        assert pairs_of(documents, index.add(documents)) == expected

    def test_a_document_whose_number_belongs_to_another_id_is_refused_and_the_others_are_inserted(
        self, index, monkeypatch
    ):
        numbers = {"a": 7, "b": 7, "c": 8, "": 9}  # "" is a text that is looked up
        monkeypatch.setattr("streamdedup.detection.preparation.document_number", lambda _profile, name: numbers[name])
        index.add([("a", TEXT)])
        for _ in range(2):
            with pytest.raises(MessageError, match="'a'") as caught:
                index.add([("b", TEXT), ("c", TEXT)])
            assert caught.value.code == ErrorCode.ID_COLLISION
        assert [sorted(found) for found in ids(index.lookup([TEXT]))] == [["a", "c"]]


class TestValues:
    @pytest.mark.parametrize("document_id", ["", "x" * 1_025, "a\nb", "\ud800"])
    def test_an_id_that_is_not_valid_is_refused_before_anything_is_inserted(self, index, document_id):
        with pytest.raises(DecodeError, match="a document id"):
            index.add([("a", TEXT), (document_id, TEXT)])
        assert ids(index.lookup([TEXT])) == [[]]

    def test_a_text_above_the_limit_is_refused(self):
        with Index.in_memory(Profile(max_text_bytes=10)) as index:
            with pytest.raises(DocumentTooLarge, match="the text of a is 12 bytes long; max_text_bytes is 10"):
                index.add([("a", "ä" * 6)])
            with pytest.raises(DocumentTooLarge, match=re.escape("texts[1] is 11 bytes long; max_text_bytes is 10")):
                index.lookup(["a", "a" * 11])

    @pytest.mark.parametrize(
        ("document", "kind", "said"),
        [
            (("b", float("nan")), TypeError, "the text of documents[1] (id 'b'): Expected `str`, got `float`"),
            (("b", None), TypeError, "the text of documents[1] (id 'b'): Expected `str`, got `None`"),
            ((7, b"text"), TypeError, "the text of documents[1] (id 7): Expected `str`, got `bytes`"),
            ((b"b", TEXT), TypeError, "the id of documents[1]: Expected `int | str`, got `bytes`"),
            ((None, TEXT), TypeError, "the id of documents[1]: Expected `int | str`, got `None`"),
            ((True, TEXT), TypeError, "the id of documents[1]: Expected `int | str`, got `bool`"),
            (("b", TEXT, float("nan")), TypeError, "the source of documents[1] (id 'b'): Expected"),
            (("b", TEXT, None, 1.5), TypeError, "the scope of documents[1] (id 'b'): Expected"),
            (("x" * 99, None), TypeError, "the text of documents[1] (id 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx): "),
            (("b",), ValueError, "documents[1]: Expected tuple of at least length 2, got 1"),
            (("b", TEXT, None, None, 1), ValueError, "documents[1]: Expected tuple of at most length 4, got 5"),
            ("ab", TypeError, "documents[1]: Expected tuple, got `str`"),
            ({"id": "b", "text": TEXT}, TypeError, "documents[1]: Expected tuple, got `dict`"),
        ],
    )
    def test_a_value_of_a_wrong_type_is_named_and_nothing_is_inserted(self, index, document, kind, said):
        with pytest.raises(kind) as raised:
            index.add([("a", TEXT), document])
        assert str(raised.value).startswith(said)
        assert ids(index.lookup([TEXT])) == [[]]

    @pytest.mark.parametrize(
        ("call", "said"),
        [
            (lambda index: index.lookup([TEXT, None]), "texts[1]: Expected `str`, got `None`"),
            (lambda index: index.lookup([TEXT], sources=[1.5]), "sources[0]: Expected"),
            (lambda index: index.lookup([TEXT], scopes=[b"x"]), "scopes[0]: Expected"),
            (lambda index: index.remove(["a", None]), "ids[1]: Expected `int | str`, got `None`"),
            (lambda index: index.remove(b"ab"), "ids: a list of texts is needed, not one text"),
            (lambda index: index.add(("a", TEXT)), "documents[0]: Expected tuple, got `str`"),
            (lambda index: index.cluster(None), "document_id: Expected `int | str`, got `None`"),
        ],
    )
    def test_an_item_of_a_wrong_type_is_named_by_its_index(self, index, call, said):
        with pytest.raises(TypeError) as raised:
            call(index)
        assert str(raised.value).startswith(said)

    @pytest.mark.parametrize(
        ("document", "noun", "code"),
        [
            ((10**5000, TEXT), "document id", ErrorCode.INVALID_ID),
            (("a", TEXT, 10**5000), "source", ErrorCode.INVALID_FIELD),
            (("a", TEXT, None, 10**5000), "scope", ErrorCode.INVALID_FIELD),
        ],
    )
    def test_an_integer_of_more_digits_than_python_writes_is_refused_by_its_name(self, index, document, noun, code):
        with pytest.raises(DecodeError, match=f"^a {noun} has too many digits; at most 1,024 bytes") as raised:
            index.add([document])
        assert raised.value.code == code

    def test_a_wrong_number_of_scopes_is_named(self, index):
        with pytest.raises(ValueError, match="scopes: 2 in place of 1; each text needs one"):
            index.lookup([TEXT], scopes=["north", "south"])

    def test_an_integer_is_its_decimal_text_as_in_a_record(self, index):
        index.add([(42, TEXT, 7), ("b", TEXT)])
        assert ids(index.lookup([TEXT])) == [["42", "b"]]
        assert index.lookup([TEXT], sources=[7])[0][0].source == "7"
        assert ids(index.add([("42", TEXT, "7")])) == [[]]
        index.remove([42])
        assert ids(index.lookup([TEXT])) == [["b"]]

    def test_half_of_a_surrogate_pair_is_replaced(self, index):
        index.add([("a", f"{TEXT} \ud800")])
        assert ids(index.lookup([f"{TEXT} \ufffd"])) == [["a"]]


class TestLookup:
    def test_a_lookup_inserts_nothing_and_texts_do_not_find_each_other(self, index):
        assert index.lookup([TEXT, TEXT]) == [(), ()]
        index.add([("a", TEXT)])
        (first, second) = index.lookup([TEXT, f"{TEXT} iris"])
        assert (first[0].id, first[0].similarity, first[0].method) == ("a", 1.0, "exact")
        assert second[0].similarity == pytest.approx(7 / 8)
        assert index.lookup([]) == []

    def test_rules_about_sources_apply_to_documents_and_texts_with_a_source(self):
        rules = {"ignore_same_source": True, "ignore_sources": [("daily", "evening")]}
        with Index.in_memory(Profile(threshold=0.5, shingle_size=2, **rules)) as index:
            added = [("a", TEXT, "daily"), ("b", TEXT, "daily"), ("c", TEXT, "evening"), ("d", TEXT), ("e", TEXT, None)]
            assert ids(index.add(added)) == [[], [], [], ["a", "b", "c"], ["a", "b", "c", "d"]]
            assert ids(index.lookup([TEXT, TEXT], sources=["daily", None])) == [["d", "e"], ["a", "b", "c", "d", "e"]]
            assert ids(index.lookup([TEXT])) == [["a", "b", "c", "d", "e"]]
            with pytest.raises(ValueError, match="sources: 1 in place of 2; each text needs one"):
                index.lookup([TEXT, TEXT], sources=["daily"])
            with pytest.raises(TypeError, match="a list of texts is needed"):
                index.lookup([TEXT], sources="daily")
            with pytest.raises(DecodeError, match="a source is 1,025 bytes long; at most 1,024 are allowed"):
                index.add([("f", TEXT, "x" * 1_025)])
            assert ids(index.lookup([TEXT], sources=["\ud800"])) == [["a", "b", "c", "d", "e"]]

    def test_a_scope_is_needed_and_compared_where_the_profile_has_a_scope_field(self):
        with Index.in_memory(Profile(threshold=0.5, shingle_size=2, scope_field="tenant")) as index:
            with pytest.raises(MessageError, match="field `tenant`"):
                index.lookup([TEXT])  # also before the first document
            added = [("a", TEXT, None, "x"), ("b", TEXT, "daily", "y"), ("c", TEXT, None, "x")]
            assert ids(index.add(added)) == [[], [], ["a"]]
            assert ids(index.add(added)) == [[], [], []]
            assert ids(index.lookup([TEXT, TEXT], scopes=["x", "y"])) == [["a", "c"], ["b"]]
            index.remove(["a"])
            assert ids(index.lookup([TEXT], scopes=["x"])) == [["c"]]
            for call in (lambda: index.add([("d", TEXT)]), lambda: index.lookup([TEXT])):
                with pytest.raises(MessageError, match="field `tenant`"):
                    call()
            with pytest.raises(DecodeError, match="a scope is 1,025 bytes long; at most 1,024 are allowed"):
                index.add([("d", TEXT, None, "x" * 1_025)])
            with pytest.raises(TypeError, match="a list of texts is needed"):
                index.lookup([TEXT], scopes="x")
        with Index.in_memory(Profile(scope_field="tenant", default_scope="x")) as index:
            assert ids(index.add([("a", TEXT, None, "x"), ("b", TEXT)])) == [[], ["a"]]
        with Index.in_memory(Profile()) as index, pytest.raises(MessageError, match="this one has none"):
            index.add([("a", TEXT, None, "x")])


class TestRemove:
    def test_a_removed_document_is_not_found_and_may_be_added_again(self, index):
        index.add([("a", TEXT), ("b", TEXT)])
        index.remove(["a", "unknown"])
        index.remove([])
        assert ids(index.lookup([TEXT])) == [["b"]]
        assert ids(index.add([("a", TEXT)])) == [["b"]]

    def test_a_call_that_is_repeated_after_a_removal_adds_its_documents(self, index, monkeypatch):
        index.add([("a", TEXT)])
        documents = [("b", TEXT), ("c", TEXT)]

        def failing(*_arguments):
            raise StoreUnavailable("away")

        with monkeypatch.context() as patch:
            patch.setattr(MemoryIndex, "set_clusters", failing)
            with pytest.raises(StoreUnavailable):
                index.add(documents)
        index.remove(["b"])
        assert ids(index.lookup([TEXT])) == [["a", "c"]]
        (b, c) = ids(index.add(documents))
        assert "a" in b
        assert "a" in c
        assert ids(index.lookup([TEXT])) == [["a", "b", "c"]]


class TestThreads:
    def test_threads_share_an_index(self, index):
        def add(thread):
            for at in range(20):
                index.add([(f"{thread}-{at}", f"{TEXT} {thread}x{at}")])

        threads = [threading.Thread(target=add, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(index.lookup([TEXT])[0]) == 80


class TestProfile:
    def test_it_has_the_keys_of_the_settings_file_that_are_not_about_records(self):
        assert set(ProfileKeys.__annotations__) == set(keys_of(ProfileSection)) - RECORD_KEYS

    def test_values_and_defaults_are_those_of_the_settings_file(self):
        profile = Profile(threshold=0.7, retention="2d", exact_limit="none")
        section = ProfileSection(topics=("t",), threshold=0.7, retention="2d", exact_limit="none")
        assert profile.section.model_dump(exclude={"topics"}) == section.model_dump(exclude={"topics"})
        assert repr(profile) == "Profile(threshold=0.7, retention='2d', exact_limit='none')"

    @pytest.mark.parametrize("bands", [np.int64(3), np.array([3])])
    def test_a_value_of_another_library_is_a_mistake(self, bands):
        with pytest.raises(SettingsError, match="bands: the value is not valid; allowed: a whole number"):
            Profile(bands=bands, rows=4)

    def test_each_mistake_is_a_line(self):
        with pytest.raises(SettingsError) as caught:
            Profile(threshold=2, shingel_size=3, topics="articles", bands=4)
        assert sorted(str(caught.value).splitlines()) == [
            "rows: is missing; bands needs it",
            "shingel_size: unknown key; did you mean shingle_size?",
            "threshold: 2.0 is not valid; allowed: a number above 0 up to 1",
            "topics: is about records of Kafka; a program gives ids and texts itself",
        ]

    def test_mistakes_are_in_the_order_of_the_keywords(self):
        keys = ["topics", "op_field", "format", "key_format", "text_fields", "id_field"]
        with pytest.raises(SettingsError) as caught:
            Profile(**dict.fromkeys(keys, "a"))
        assert [line.partition(":")[0] for line in str(caught.value).splitlines()] == keys

    @pytest.mark.parametrize("exact_limit", [0, 4, 100])
    def test_the_largest_min_shingles_suppresses_no_pair_of_long_texts(self, exact_limit):
        text = " ".join(f"word{number}" for number in range(300))
        with Index.in_memory(Profile(exact_limit=exact_limit, min_shingles=exact_limit + 1)) as index:
            assert ids(index.add([("a", text), ("b", f"{text} tail")])) == [[], ["a"]]
        with pytest.raises(SettingsError, match=rf"min_shingles: is {exact_limit + 2}; it may be {exact_limit + 1} at"):
            Profile(exact_limit=exact_limit, min_shingles=exact_limit + 2)


class TestImport:
    def test_the_names_are_imported_when_they_are_used(self):
        program = (
            "import sys, streamdedup; assert 'numpy' not in sys.modules; "
            "streamdedup.Index; assert 'kafka' not in sys.modules"
        )
        subprocess.run([sys.executable, "-c", program], check=True, timeout=120)

    def test_an_unknown_name_is_an_attribute_error(self):
        assert set(streamdedup.__all__) <= set(dir(streamdedup))
        with pytest.raises(AttributeError, match="Indexx"):
            streamdedup.Indexx  # noqa: B018


def test_the_examples_do_what_the_page_shows():
    page = "docs/library.md"
    text = (ROOT / page).read_text(encoding="utf-8")
    examples_of = "\n".join(re.findall(r"^```pycon\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))
    assert examples_of
    test = doctest.DocTestParser().get_doctest(examples_of, {}, page, page, 0)
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    output = []
    runner.run(test, out=output.append)
    assert runner.summarize(verbose=False).failed == 0, "".join(output)


@pytest.mark.parametrize(
    ("url", "part"),
    [
        ("redis://:secret@localhost/0?sockettimeout=5", "it has an option behind ? other than db;"),
        ("redis://:secret@localhost/0?ssl_ca_certs=a.pem", "it has an option behind ? other than db;"),
        (
            "rediss://:secret@localhost/0?ssl=1",
            "it has an option behind ? other than db, ssl_ca_certs, ssl_certfile, ssl_",
        ),
        ("rediss://:secret@localhost/0?ssl_ca_certs=1&db=a", "its database is not a number"),
        ("redis://:secret@localhost/0?decode_responses=true", "it has an option behind ? other than db"),
        ("redis://:secret@localhost/articles", "its database is not a number"),
        ("redis://:secret@localhost/0/1", "its database is not a number"),
        ("redis://:secret@localhost:99999/0", "its host or port is not valid"),
        ("redis://secret@localhost/0", "it has a user and no password; write redis://:PASSWORD@HOST"),
    ],
)
@pytest.mark.parametrize("use", [lambda url: Index.connect(url, Profile()), Index.delete], ids=["connect", "delete"])
def test_the_refused_part_of_a_url_is_named_and_not_shown(use, url, part):
    with pytest.raises(SettingsError, match=rf"^url: .*{re.escape(part)}.*allowed: \"redis://HOST") as caught:
        use(url)
    assert "secret" not in str(caught.value)


def test_the_url_of_a_program_may_name_a_user_that_needs_no_password():
    with backend_at("redis://app:@h/0", "prefix", {}) as backend:
        assert backend.shared_servers.client.connection_pool.make_connection().username == "app"


def test_the_url_of_a_program_may_name_the_files_of_tls():
    cert, key = str(TLS / "certificate.pem"), str(TLS / "plain.key")
    files = {"ssl_ca_certs": cert, "ssl_certfile": cert, "ssl_keyfile": key}
    with backend_at(f"rediss://h/0?db=2&ssl_check_hostname=false&{urlencode(files)}", "prefix", {}) as backend:
        made = backend.shared_servers.client.connection_pool.make_connection()
    assert (made.db, made.ca_certs, made.certfile, made.keyfile) == (2, cert, cert, key)
    assert made.check_hostname is False
    for name in files:
        wrong = urlencode(files | {name: "absent.pem"})
        with pytest.raises(SettingsError, match=r"^url: a file of TLS .* names no file that can be read: absent\.pem"):
            backend_at(f"rediss://:secret@h/0?{wrong}", "prefix", {})


class TestBesideDatasketch:
    SECTION = (ROOT / "docs" / "library.md").read_text(encoding="utf-8").partition("\n## Beside datasketch\n")[2]
    PROGRAMS = re.findall(r"^```python\n(.*?)^```$", SECTION, re.MULTILINE | re.DOTALL)
    # The second program needs datasketch, which `make test-all` installs with the extra bench.
    CASES = pytest.mark.parametrize("program", [PROGRAMS[0], pytest.param(PROGRAMS[1], marks=pytest.mark.long)])

    @CASES
    def test_a_program_prints_the_pairs(self, program):
        printed = []
        longer = (
            f"{TEXT} with as many words again, which are no part of the others, so that it is similar only to itself"
        )
        documents = [("a", TEXT), ("b", TEXT), ("c", "something else entirely here"), ("d", longer)]
        exec(program, {"documents": documents, "print": lambda *pair: printed.append({*pair[:2]})})
        assert printed == [{"a", "b"}]

    def test_the_page_counts_the_lines_of_the_programs(self):
        shown = re.findall(r"<th>\w+: (\d+) lines</th>", self.SECTION)
        assert shown == [str(sum(map(bool, program.splitlines()))) for program in self.PROGRAMS]
