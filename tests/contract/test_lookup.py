"""A look-up of a text finds what the detector finds when the text arrives, on each implementation of the reader."""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from streamdedup.detection.detector import Detector
from streamdedup.detection.lookup import IndexLookup, LookupQuery, LookupResult
from streamdedup.detection.model import DetectorOptions, Skip, Spread, document_number
from streamdedup.detection.suppression import Suppression, source_key
from streamdedup.errors import IndexMismatch, MessageError, StoreUnavailable
from streamdedup.index.contract import Index, IndexReader
from streamdedup.index.documents import deletion_marker
from streamdedup.index.memory import MemoryIndex
from streamdedup.index.redis.connection import connect_cluster
from streamdedup.index.redis.reader import RedisIndexReader
from streamdedup.index.redis.reading import RedisIndexOptions
from streamdedup.index.redis.servers import OneServer, Servers
from streamdedup.index.redis.store import RedisIndex
from streamdedup.index.values import CLUSTER_SIZE_CAP, ClusterCounts
from streamdedup.position import Partition, Position
from streamdedup.similarity.containment import ContainmentRule
from streamdedup.wire import Document
from tests import served
from tests.floods import a_story, decoys, edited
from tests.thoroughness import examples

OPTIONS = replace(served.OPTIONS, window_ms=1_000)
FINGERPRINT = {"bands": 4, "threshold": 0.5}
PARTITIONS = [Partition("articles", number) for number in range(2)]
WORDS = ["amber", "birch", "cedar", "delta", "ember", "fjord"]
TEXT = "amber birch cedar delta ember fjord grove heath"

_namespaces = itertools.count()


#: Rules that suppress pairs of one source.
SAME_SOURCE = Suppression(ignore_same_source=True)


class World(NamedTuple):
    """An index, and a reader as another process would have."""

    index: Index
    reader: IndexReader


MakeWorld = Callable[..., World]


def _on_redis(servers: Servers, **options) -> World:
    where = {"namespace": f"lookup:{next(_namespaces)}", "bands": 4, "lifetime_ms": 3_600_000, **options}
    chosen = RedisIndexOptions(**where)
    return World(RedisIndex(servers, chosen), RedisIndexReader(servers, chosen))


PLACES = ["memory", "server", "server-packed-sharded", "cluster-sharded"]
MORE_PLACES = ["server-packed", "cluster", "cluster-packed"]


@pytest.fixture(params=[*PLACES, *(pytest.param(place, marks=pytest.mark.long) for place in MORE_PLACES)])
def make_world(request: pytest.FixtureRequest) -> Iterator[MakeWorld]:
    place, *forms = request.param.split("-")
    if place == "memory":

        def in_memory(**options) -> World:
            index = MemoryIndex(**options)
            return World(index, index)

        yield in_memory
        return
    if place == "cluster":
        servers = connect_cluster(request.getfixturevalue("cluster_of_redis").addresses[:1])
    else:
        servers = OneServer(request.getfixturevalue("redis_client"))
    given_options = {"shards": 4} if "sharded" in forms else {}
    given_options |= {"bucket_layout": "packed"} if "packed" in forms else {}
    with servers:
        yield lambda **options: _on_redis(servers, **given_options, **options)


class Daemon:
    """A detector that owns both partitions and claims every pair anew."""

    def __init__(self, world: World, options: DetectorOptions = OPTIONS) -> None:
        world.index.open(FINGERPRINT)
        self._fences = {partition: world.index.fence(partition, 1, 0) for partition in PARTITIONS}
        self._offsets = [itertools.count() for _ in PARTITIONS]
        self._detector = Detector(options, world.index)
        world.index.claim_pairs = lambda claims, _fences, _extended=(): [True] * len(claims)

    def document(self, document_id: str, text: str, time_ms: int = 0, partition: int = 0, **fields):
        position = Position("articles", partition, next(self._offsets[partition]))
        return Document(document_id, text, position, time_ms, **fields)

    def prepare(self, *documents: Document):
        return self._detector.prepare(documents)

    def index(self, *documents: Document):
        return self._detector.index(self.prepare(*documents), self._fences)

    def delete(self, *documents: Document):
        return self._detector.delete(documents, self._fences)


@pytest.fixture
def world(make_world: MakeWorld) -> World:
    return make_world()


@pytest.fixture
def daemon(world: World) -> Daemon:
    return Daemon(world)


@pytest.fixture
def lookup(world: World) -> IndexLookup:
    return IndexLookup(OPTIONS, world.reader)


def looked_up(world: World, *queries: LookupQuery, options=OPTIONS, time_ms=0) -> list[LookupResult | MessageError]:
    return IndexLookup(options, world.reader).look_up(queries, time_ms)


def of_one_text(*arrivals: tuple[str, str]) -> list[tuple[str, str, str, int, int, None]]:
    return [(name, TEXT, op, 0, 0, None) for name, op in arrivals]


@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@example(arrivals=of_one_text(*((name, "upsert") for name in "dab"), ("d", "delete"), ("a", "append"))).via("left")
@given(
    arrivals=st.lists(
        st.tuples(
            st.sampled_from(["a", "b", "c", "d", "e", "f"]),
            st.sampled_from([TEXT, TEXT + " iris", TEXT + " iris jade", "amber birch cedar delta kelp lark mill"]),
            st.sampled_from(["upsert", "upsert", "upsert", "append", "delete"]),
            st.integers(0, 3),
            st.integers(0, 1),
            st.sampled_from([None, "x", "y", "z"]),
        ),
        max_size=14,
    )
)
def test_a_detection_and_a_lookup_count_the_sources_of_the_documents_in_the_cluster(make_world, arrivals):
    world = make_world()
    daemon, lookup = Daemon(world), IndexLookup(OPTIONS, world.reader)
    sources, appended = {}, set()
    for name, text, op, time_ms, partition, source in arrivals:
        document = daemon.document(name, text if op != "delete" else "", time_ms, partition, source=source, op=op)
        if op == "delete":
            daemon.delete(document)
            continue
        if op == "append":
            appended.add(name)
        (entry, _) = lookup.document(name) or (None, None)
        detections = daemon.index(document).detections
        (after, _) = lookup.document(name) or (None, None)
        if op == "upsert" and after is not None and (entry is None or entry.digest != after.digest):
            sources[name] = source
        if after is not None and after.position.partition != partition:
            continue  # the index keeps the version of another partition, and the cluster of that version
        for detection in detections:
            if op == "append" and document_number("articles", detection.cluster_id) != after.cluster:
                continue  # the first document was deleted: the continued entry stays with those that it had
            cluster = lookup.cluster_of(after)
            assert (detection.cluster_size, detection.spread) == (cluster.size, cluster.spread)
            if detection.cluster_id not in {member.id for member in cluster.members}:
                continue  # the first document has left the index
            assert (0 if cluster.spread is None else cluster.spread.sources) == len(
                {sources[member.id] for member in cluster.members} - {None}
            )
            if cluster.spread is not None and not appended:
                times = [member.time_ms for member in cluster.members]
                assert cluster.spread[1:3] == (min(times), max(times))
                assert cluster.spread.earliest_source == sources[cluster.spread.earliest_id]


TEXTS = st.lists(st.sampled_from(WORDS), min_size=0, max_size=8).map(" ".join)
ARRIVALS = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "c", "d", "e"]),
        TEXTS,
        st.sampled_from(["upsert", "upsert", "upsert", "append", "delete"]),
        st.integers(0, 1_500),
        st.integers(0, 1),
        st.sampled_from([None, "x", "y"]),
    ),
    max_size=12,
)


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    arrivals=ARRIVALS,
    asked=st.lists(
        st.tuples(st.sampled_from(["a", "b", "new"]), TEXTS, st.sampled_from([None, "x", "y"])), min_size=1, max_size=4
    ),
    # Later than every other record, some of which are beyond the window.
    time_ms=st.integers(1_501, 2_600),
    max_candidates=st.sampled_from([None, 2]),
    threshold=st.sampled_from([0.3, 0.5, 0.9]),
    containment=st.sampled_from([None, ContainmentRule(0.7, 2)]),
    suppression=st.sampled_from([None, Suppression(3, frozenset([source_key("x")])), SAME_SOURCE]),
)
def test_a_lookup_finds_what_the_detector_finds_when_the_text_arrives(
    make_world, arrivals, asked, time_ms, max_candidates, threshold, containment, suppression
):
    """Texts are looked up together; then each text arrives in another world, without the other texts."""
    limits = {"max_candidates": max_candidates, "threshold": threshold}
    options = replace(OPTIONS, containment=containment, suppression=suppression, **limits)

    def the_world() -> tuple[World, Daemon]:
        world = make_world()
        daemon = Daemon(world, options)
        for document_id, text, op, at_ms, partition, source in arrivals:
            document = daemon.document(document_id, text, at_ms, partition, op=op, source=source)
            if op == "delete":
                daemon.delete(document)
            else:
                daemon.index(document)
        return world, daemon

    world, _ = the_world()
    queries = [LookupQuery(text, each, source=source) for each, text, source in asked]
    answers = looked_up(world, *queries, options=options, time_ms=time_ms)
    for (document_id, text, source), answer in zip(asked, answers, strict=True):
        _, daemon = the_world()
        result = daemon.index(daemon.document(document_id, text, time_ms, source=source))
        skipped = [reason for _, reason in result.skipped]
        if answer.redelivery:
            assert skipped == [Skip.REDELIVERED]
            continue
        assert skipped == ([] if answer.skipped is None else [answer.skipped])
        found = [match for detection in result.detections for match in detection.matches]
        assert list(answer.matches) == found
        assert answer.suppressed == result.suppressed
        assert answer.complete == (not result.dropped_candidates_count)


class TestBuckets:
    def test_a_full_bucket_shows_some_members_and_the_answer_is_not_complete(self, make_world):
        world = make_world(bucket_cap=4)
        daemon = Daemon(world)
        for at in range(6):
            daemon.index(daemon.document(f"d{at}", TEXT))
        (answer,) = looked_up(world, LookupQuery(TEXT))
        new = daemon.document("new", TEXT)
        assert world.reader.look_up([1], daemon.prepare(new).band_keys).full == {0: OPTIONS.banding.bands}
        result = daemon.index(new)
        assert not answer.complete
        assert {"d4", "d5"} <= {match.id for match in answer.matches}, "the latest copies"
        assert len(answer.matches) == result.accepted_count

    def test_a_document_in_a_bucket_at_its_cap_sees_all_other_members(self, make_world):
        world = make_world(bucket_cap=4)
        daemon = Daemon(world)
        for at in range(4):
            daemon.index(daemon.document(f"d{at}", f"{TEXT} {WORDS[at]}"))
        (answer,) = looked_up(world, LookupQuery(f"{TEXT} {WORDS[0]}", "d0"))
        assert ({match.id for match in answer.matches}, answer.complete) == ({"d1", "d2", "d3"}, True)

    def test_a_bucket_of_one_document_is_full_at_a_cap_of_one(self, make_world):
        world = make_world(bucket_cap=1)
        daemon = Daemon(world)
        daemon.index(daemon.document("d", TEXT))
        (answer,) = looked_up(world, LookupQuery(TEXT))
        assert ([match.id for match in answer.matches], answer.complete) == (["d"], False)

    def test_an_exact_copy_behind_full_buckets_is_found(self, make_world):
        world = make_world(bucket_cap=4)
        daemon = Daemon(world)
        for at in range(12):
            daemon.index(daemon.document(f"d{at}", f"{TEXT} {'iris' if at < 6 else 'jade'}"))
        (answer,) = looked_up(world, LookupQuery(f"{TEXT} jade"))
        assert answer.matches[0].similarity == 1.0

    def test_a_stored_document_finds_the_copies_that_its_full_buckets_refused(self, make_world):
        world = make_world(bucket_cap=4)
        daemon = Daemon(world)
        for at in range(6):
            daemon.index(daemon.document(f"d{at}", TEXT))
        lookup = IndexLookup(OPTIONS, world.reader)
        entry, _ = lookup.document("d0")
        assert {match.id for match in lookup.matches_of(entry).matches} == {f"d{at}" for at in range(1, 6)}

    def test_a_text_whose_buckets_decoys_fill_has_no_match_and_its_answer_is_not_complete(self, make_world):
        world = make_world(bucket_cap=4)
        daemon = Daemon(world)
        story = a_story()
        for document_id, text in decoys(story, 80, 85):
            daemon.index(daemon.document(document_id, text))
        before = looked_up(world, LookupQuery(story))[0]
        document = daemon.document("story", story)
        assert daemon.index(document).hidden == (document,)
        near, copy, stored = looked_up(
            world, LookupQuery(edited(story, 1, 99)), LookupQuery(story), LookupQuery(story, "story")
        )
        assert [match.id for match in copy.matches] == ["story"]
        assert not any(answer.matches or answer.complete for answer in (before, near, stored))
        assert not copy.complete
        entry, _ = IndexLookup(OPTIONS, world.reader).document("story")
        assert not IndexLookup(OPTIONS, world.reader).matches_of(entry).complete

    def test_a_lookup_changes_nothing(self, world, daemon):
        daemon.index(daemon.document("d0", TEXT))
        before = looked_up(world, LookupQuery(TEXT, "d1"))
        assert looked_up(world, LookupQuery(TEXT, "d1"), LookupQuery(TEXT, "d2"))[0] == before[0]
        assert world.reader.count_documents() == 1

    def test_reading_a_page_that_grows_past_its_size(self, world, daemon):
        """Packed: more buckets than the first pages hold, and members beyond the value of a page."""
        daemon.index(*(daemon.document(f"d{at}", f"{TEXT} {at}") for at in range(300)))
        answers = looked_up(world, *(LookupQuery(f"{TEXT} {at}") for at in range(0, 300, 50)))
        assert all(len(answer.matches) > 200 and answer.complete for answer in answers)


class TestAnswers:
    @pytest.mark.parametrize(("text", "redelivery"), [(TEXT + " iris", False), (TEXT, True)], ids=["changed", "same"])
    def test_the_document_itself_is_left_out_and_its_content_a_redelivery(self, world, daemon, text, redelivery):
        daemon.index(daemon.document("d0", TEXT), daemon.document("d1", TEXT))
        (answer,) = looked_up(world, LookupQuery(text, "d0"))
        assert [match.id for match in answer.matches] == ["d1"]
        assert answer.redelivery is redelivery

    def test_without_an_id_there_is_no_pair_key(self, world, daemon):
        daemon.index(daemon.document("d0", TEXT))
        without, with_id = looked_up(world, LookupQuery(TEXT), LookupQuery(TEXT, "d1"))
        assert [match.pair for match in without.matches] == [""]
        assert len(with_id.matches[0].pair) == 32

    @pytest.mark.parametrize(
        ("text", "reason"), [("", Skip.EMPTY), ("... !", Skip.EMPTY), ("one two", Skip.TOO_FEW_WORDS)]
    )
    def test_a_text_that_the_detector_skips_has_the_reason(self, world, daemon, text, reason):
        (answer,) = looked_up(world, LookupQuery(text))
        assert (answer.skipped, answer.matches, answer.complete) == (reason, (), True)

    def test_each_text_has_a_threshold_of_its_own_and_the_recall_that_belongs_to_it(self, world, daemon):
        daemon.index(
            daemon.document("near", TEXT), daemon.document("far", "amber birch cedar " + "iris jade kelp " * 2)
        )
        low, high = looked_up(world, LookupQuery(TEXT, threshold=0.01), LookupQuery(TEXT, threshold=1.0))
        assert [match.id for match in high.matches] == ["near"]
        assert low.recall == pytest.approx(1 - (1 - 0.01**2) ** 4)
        assert (low.threshold, high.threshold, high.recall) == (0.01, 1.0, 1.0)
        assert "near" in [match.id for match in low.matches]

    def test_a_threshold_of_the_text_replaces_the_rule_of_containment(self, world):
        options = replace(OPTIONS, threshold=0.8, containment=ContainmentRule(0.9))
        daemon = Daemon(world, options)
        daemon.index(daemon.document("longer", TEXT + " iris jade kelp lime"), daemon.document("equal", TEXT))
        queries = LookupQuery(TEXT), LookupQuery(TEXT, threshold=0.8), LookupQuery(TEXT, threshold=0.3)
        by_rule, high, low = looked_up(world, *queries, options=options)
        assert [(match.id, match.reason) for match in by_rule.matches] == [
            ("equal", "similarity"),
            ("longer", "containment"),
        ]
        assert [match.id for match in high.matches] == ["equal"]
        assert [(match.id, match.reason, match.contained) for match in low.matches] == [
            ("equal", "similarity", "both"),
            ("longer", "similarity", "document"),
        ]

    def test_two_texts_that_are_looked_up_together_do_not_find_each_other(self, world, daemon):
        answers = looked_up(world, LookupQuery(TEXT, "a"), LookupQuery(TEXT, "b"))
        assert [answer.matches for answer in answers] == [(), ()]

    def test_no_text_at_all_is_no_mistake(self, world, daemon):
        assert looked_up(world) == []


class TestDocuments:
    def test_a_stored_document_has_its_matches_and_its_cluster(self, world, daemon, lookup):
        daemon.index(daemon.document("first", TEXT))
        daemon.index(daemon.document("second", TEXT + " iris", 100))
        entry, cluster_id = lookup.document("second")
        assert (entry.id, entry.time_ms, cluster_id) == ("second", 100, "first")
        found = lookup.matches_of(entry)
        assert [match.id for match in found.matches] == ["first"]
        (alerted,) = looked_up(world, LookupQuery(TEXT + " iris", "second"))
        assert alerted.matches == found.matches

    def test_a_cluster_has_the_documents_that_are_in_it_now(self, daemon, lookup):
        def cluster(document_id):
            members, size, _ = lookup.cluster_of(lookup.document(document_id)[0])
            return [(member.id, member.time_ms, member.caption.label) for member in members], size

        daemon.index(daemon.document("first", TEXT, 100))
        assert cluster("first") == ([("first", 100, TEXT)], 1)
        daemon.index(daemon.document("late", TEXT, 300), daemon.document("early", TEXT, 200))
        three = [("first", 100, TEXT), ("early", 200, TEXT), ("late", 300, TEXT)]
        assert cluster("first") == cluster("late") == (three, 3)
        daemon.delete(daemon.document("early", "", op="delete"))
        assert cluster("late") == ([three[0], three[2]], 2)
        # The cluster keeps its name without its first document.
        daemon.delete(daemon.document("first", "", op="delete"))
        assert cluster("late") == ([three[2]], 2)

    def test_a_cluster_beyond_its_cap_has_as_many_members_as_the_cap(self, world, daemon, lookup):
        names = [f"d{at}" for at in range(CLUSTER_SIZE_CAP + 1)]
        daemon.index(*(daemon.document(name, f"{name}a {name}b {name}c {name}d") for name in names))
        first, *others = [lookup.document(name)[0] for name in names]
        members = [(entry.number, entry.position, first.number) for entry in others]
        world.index.set_clusters(members, list(daemon._fences.values()))
        members, size, _ = lookup.cluster_of(lookup.document(names[-1])[0])
        assert len(members) == size == CLUSTER_SIZE_CAP
        assert {names[0], names[-1]} <= {member.id for member in members}
        daemon.delete(daemon.document(names[1], "", op="delete"))
        members, size, _ = lookup.cluster_of(lookup.document(names[-1])[0])
        assert {member.id for member in members} == {*names} - {names[1]}
        assert size == CLUSTER_SIZE_CAP

    def test_a_document_counts_in_its_cluster_where_the_set_has_expired(self, world, daemon, lookup):
        daemon.index(daemon.document("first", TEXT))
        daemon.index(daemon.document("second", TEXT))
        entry, _ = lookup.document("second")
        # As after an append by a daemon that died before it renewed the set.
        world.index.leave_clusters([(entry.number, entry.cluster)], list(daemon._fences.values()))
        members, size, _ = lookup.cluster_of(entry)
        assert ([member.id for member in members], size) == (["first", "second"], 2)

    def test_the_spread_of_a_cluster_is_that_of_the_documents_that_are_in_it_now(self, world):
        daemon, lookup = Daemon(world), IndexLookup(OPTIONS, world.reader)

        def spread(document_id):
            return lookup.cluster_of(lookup.document(document_id)[0]).spread

        daemon.index(daemon.document("first", TEXT, 500, source="Tidewater"))
        assert spread("first") == Spread(1, 500, 500, "first", "Tidewater")
        (late, early) = daemon.index(
            daemon.document("late", TEXT, 900, source="Tidewater"), daemon.document("early", TEXT, 200, source="Coast")
        ).detections
        assert late.spread == early.spread == spread("first") == Spread(2, 200, 900, "early", "Coast")
        (entry, _) = lookup.document("late")
        assert IndexLookup(replace(OPTIONS, label_bytes=0), world.reader).cluster_of(entry).spread is None
        daemon.delete(daemon.document("early", "", op="delete"))
        assert spread("late") == Spread(1, 500, 900, "first", "Tidewater")
        daemon.index(daemon.document("first", "another text of an editor who changed it", 950, source="Coast"))
        assert spread("late") == Spread(2, 900, 950, "late", "Tidewater")
        daemon.delete(daemon.document("first", "", op="delete"))
        assert spread("late") == Spread(1, 900, 900, "late", "Tidewater")
        daemon.delete(daemon.document("late", "", op="delete"))
        assert world.reader.read_cluster(document_number("articles", "first")) == (ClusterCounts(1), [])

    def test_a_first_document_that_was_continued_and_joined_another_cluster_is_in_both_and_leaves_both(self, world):
        daemon, lookup = Daemon(world), IndexLookup(OPTIONS, world.reader)
        more = " ".join(f"more{number}" for number in range(40))
        daemon.index(daemon.document("long", f"{TEXT} {more}", 100, source="Hill"))
        daemon.index(daemon.document("first", TEXT, 500, source="Tidewater"))
        daemon.index(daemon.document("second", TEXT, 600, source="Coast"))
        (detection,) = daemon.index(daemon.document("first", more, 700, op="append")).detections
        assert detection.cluster_id == "long"
        for name, other in (("second", "second"), ("first", "long")):
            members, size, _ = lookup.cluster_of(lookup.document(name)[0])
            assert ({member.id for member in members}, size) == ({"first", other}, 2)
        daemon.delete(daemon.document("first", "", op="delete"))
        spreads = [lookup.cluster_of(lookup.document(name)[0]).spread for name in ("second", "long")]
        assert spreads == [Spread(1, 600, 600, "second", "Coast"), Spread(1, 100, 100, "long", "Hill")]

    def test_an_earliest_document_that_left_the_index_is_counted_and_not_named(self, world):
        daemon, lookup = Daemon(world), IndexLookup(OPTIONS, world.reader)
        daemon.index(daemon.document("first", TEXT, 500, source="Tidewater"))
        daemon.index(daemon.document("early", TEXT, 200, source="Coast"))
        entry, _ = lookup.document("early")
        # As after a crash before the new version had left the cluster.
        marker = deletion_marker(entry.number, entry.position._replace(offset=9), 300)
        world.index.replace_entries([marker], list(daemon._fences.values()))
        (detection,) = daemon.index(daemon.document("third", TEXT, 600, source="Coast")).detections
        assert detection.spread == Spread(2, 200, 600)
        assert lookup.cluster_of(lookup.document("third")[0]).spread == detection.spread

    def test_an_unknown_and_a_deleted_document_are_none(self, daemon, lookup):
        daemon.index(daemon.document("d0", TEXT))
        daemon.delete(daemon.document("d0", "", op="delete"))
        assert lookup.document("d0") is None
        assert lookup.document("never") is None

    def test_a_comparison_tells_similarity_bands_and_window(self, daemon, lookup):
        daemon.index(daemon.document("a", TEXT), daemon.document("b", TEXT, 1_001), daemon.document("c", TEXT, 1_000))
        a, b, c = (lookup.document(each)[0] for each in "abc")
        too_far, near = lookup.compare(a, b), lookup.compare(a, c)
        assert (near.similarity, near.exact, near.shared_bands, near.bands) == (1.0, True, 4, 4)
        assert (near.within_window, near.is_match) == (True, True)
        assert (too_far.within_window, too_far.is_match) == (False, False)
        assert not lookup.compare(a, a).is_match

    def test_a_skipped_document_is_no_match(self, world):
        options = replace(OPTIONS, min_words=9)
        daemon, lookup = Daemon(world, options), IndexLookup(options, world.reader)
        daemon.index(daemon.document("a", TEXT), daemon.document("b", TEXT))
        a, b = (lookup.document(each)[0] for each in "ab")
        assert lookup.compare(a, b).similarity == 1.0
        assert not lookup.compare(a, b).is_match
        assert not lookup.compare_text(LookupQuery(f"{TEXT} nine"), a, 0).is_match


class TestCheck:
    def test_there_is_no_index_until_a_daemon_creates_it(self, world):
        assert world.reader.check(FINGERPRINT) is None
        world.index.open(FINGERPRINT)
        assert world.reader.check(FINGERPRINT).advisories == ()

    def test_other_parameters_are_named(self, world):
        world.index.open(FINGERPRINT)
        with pytest.raises(IndexMismatch, match="bands"):
            world.reader.check({**FINGERPRINT, "bands": 5})

    def test_an_index_that_is_being_deleted_is_none_and_one_that_is_being_rebuilt_unavailable(self, redis_client):
        index, reader = _on_redis(OneServer(redis_client))
        index.open(FINGERPRINT)
        redis_client.set(reader._keys.dropping, b"1")
        assert reader.check(FINGERPRINT) is None
        redis_client.set(reader._keys.staging, b"a rebuild")
        with pytest.raises(StoreUnavailable, match="being rebuilt"):
            reader.check(FINGERPRINT)

    def test_hits_name_the_bands_that_are_shared(self, world, daemon, lookup):
        daemon.index(daemon.document("d0", TEXT))
        entry = lookup.document("d0")[0]
        keys = lookup._preparer.band_keys([entry.content] * 2)
        keys[1, 1:] = ~keys[1, 1:]
        hits = world.reader.look_up([1, 2], np.array(keys))
        assert hits.candidates == [{entry.number: 4}, {entry.number: 1}]
