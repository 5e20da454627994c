"""The Python API on an index in Redis: connections, one writer at a time, and the indexes of daemons."""

import itertools
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from streamdedup import Index, Profile, clock
from streamdedup.detection import writing
from streamdedup.errors import (
    IndexLost,
    IndexMismatch,
    IndexNotWritable,
    SettingsError,
    StoreMisconfigured,
    StoreUnavailable,
)
from streamdedup.index.redis import staging
from streamdedup.settings import Settings
from tests import redis_sets
from tests.servers import wait_until
from tests.serving import fill, settings_file

TEXT = "amber birch cedar delta ember fjord grove heath"
PROFILE = Profile(threshold=0.5, shingle_size=2)

pytestmark = pytest.mark.filterwarnings("ignore:the store:UserWarning")


def ids(matches):
    return [[match.id for match in own] for own in matches]


@pytest.fixture
def connect(redis_client, redis_url) -> Callable[..., Index]:
    opened = []

    def connected(profile=PROFILE, **options) -> Index:
        opened.append(Index.connect(redis_url, profile, **options))
        return opened[-1]

    yield connected
    for index in opened:
        index.close()


@pytest.fixture
def config(redis_client, redis_url, tmp_path):
    return settings_file(tmp_path, redis_url)


@pytest.fixture
def daemon_index(config):
    """An index as daemons fill it, with one document."""
    fill(Settings.load(config), TEXT, time_ms=1_800_000_000_000)


class TestConnect:
    def test_the_cluster_of_a_document_tells_how_many_sources_its_documents_have(self, connect):
        index = connect()
        assert index.cluster("a") is None
        index.add([("a", TEXT, "wire"), ("b", TEXT, "coast"), ("c", TEXT, "wire"), (4, "something else altogether")])
        members, size, spread = index.cluster("c")
        assert [member.id for member in members] == ["a", "b", "c"]
        assert (size, spread.sources, spread.earliest_id, spread.earliest_source) == (3, 2, "a", "wire")
        assert spread.since_ms == spread.until_ms == members[0].time_ms
        memory = Index.in_memory(PROFILE)
        memory.add([("a", TEXT, "wire"), ("b", TEXT, "coast"), ("c", TEXT, "wire")])
        assert memory.cluster("a").spread._replace(since_ms=0, until_ms=0) == spread._replace(since_ms=0, until_ms=0)
        assert index.cluster(4)[1:] == (1, None)
        index.remove(["b"])
        assert index.cluster("a").spread.sources == 1

    def test_what_one_connection_adds_the_next_one_finds(self, connect):
        assert ids(connect().lookup([TEXT])) == [[]]
        assert ids(connect().add([("a", TEXT), ("b", TEXT)])) == [[], ["a"]]
        assert ids(connect().lookup([TEXT])) == [["a", "b"]]
        later = connect()
        assert ids(later.add([("c", TEXT)])) == [["a", "b"]]
        later.remove(["a"])
        assert ids(connect().lookup([TEXT])) == [["b", "c"]]

    def test_indexes_of_different_names_are_separate(self, connect):
        connect(name="one").add([("a", TEXT)])
        assert ids(connect(name="two").lookup([TEXT])) == [[]]

    def test_the_pairs_are_those_of_an_index_in_memory(self, connect):
        documents = [(f"d{at}", " ".join(words)) for at, words in enumerate(itertools.permutations(TEXT.split()[:4]))]
        with Index.in_memory(PROFILE) as memory:
            assert ids(connect().add(documents)) == ids(memory.add(documents))

    def test_another_profile_is_refused_with_the_difference(self, connect):
        connect().add([("a", TEXT)])
        with pytest.raises(IndexMismatch, match=r"shingle_size is 2 in the index and 3 .* or give a new index another"):
            connect(Profile(threshold=0.5, shingle_size=3))

    def test_a_name_with_a_colon_and_an_url_of_another_kind_are_refused(self, connect):
        with pytest.raises(SettingsError, match="name: 'a:b' is not the name of an index"):
            connect(name="a:b")
        with pytest.raises(SettingsError, match=r"url: .* it does not begin with redis://"):
            Index.connect("http://localhost", PROFILE)

    def test_a_server_that_does_not_answer_is_unavailable(self):
        with pytest.raises(StoreUnavailable):
            Index.connect("redis://localhost:1", PROFILE)

    def test_a_deleted_index_is_lost(self, connect, redis_client):
        index = connect()
        index.add([("a", TEXT)])
        redis_client.flushdb()
        with pytest.raises(IndexLost):
            index.add([("b", TEXT)])
        assert ids(connect().add([("b", TEXT), ("c", TEXT)])) == [[], ["b"]]

    def test_a_closed_index_has_no_connection(self, connect, redis_client):
        def connections():
            return {client["id"] for client in redis_client.client_list()}

        others = connections()
        index = connect()
        index.add([("a", TEXT)])
        own = connections() - others
        index.close()
        wait_until(lambda: own.isdisjoint(connections()), what="the end of the connections")
        assert own


class TestDelete:
    def test_a_deleted_index_is_gone_and_its_writer_is_told(self, connect, redis_client, redis_url):
        index, other = connect(), connect(name="other")
        index.add([("a", TEXT)])
        other.add([("a", TEXT)])
        assert Index.delete(redis_url)
        assert {key.partition(b"}")[0].rpartition(b":")[0] for key in redis_client.scan_iter()} == {
            b"{streamdedup-library:other"
        }
        with pytest.raises(IndexLost):
            index.add([("b", TEXT)])
        assert ids(connect().add([("b", TEXT), ("c", TEXT)])) == [[], ["b"]]
        assert ids(other.lookup([TEXT])) == [["a"]]

    def test_an_index_of_another_profile_is_deleted_too_and_none_is_no_error(self, connect, redis_client, redis_url):
        assert not Index.delete(redis_url)
        connect().add([("a", TEXT)])
        assert Index.delete(redis_url)
        assert redis_client.keys() == []
        connect(Profile(threshold=0.5, shingle_size=3)).add([("a", TEXT)])

    def test_an_interrupted_deletion_is_finished_by_the_next_one(self, connect, redis_client, redis_url, monkeypatch):
        connect().add([("a", TEXT)])
        with monkeypatch.context() as patch:
            patch.setattr(staging, "scan_keys", lambda *_: (_ for _ in ()).throw(StoreUnavailable("away")))
            with pytest.raises(StoreUnavailable):
                Index.delete(redis_url)
        with pytest.raises(IndexMismatch, match=r"call again: streamdedup index drop, or Index\.delete"):
            connect().add([("b", TEXT)])
        assert Index.delete(redis_url)
        assert ids(connect().add([("b", TEXT)])) == [[]]

    def test_one_that_was_suspended_deletes_nothing_of_the_next_index(
        self, connect, redis_client, redis_url, monkeypatch
    ):
        connect().add([("a", TEXT)])

        def scanned_then_suspended(*place, scan=staging.scan_keys):
            keys = list(scan(*place))
            monkeypatch.undo()
            for refused in (lambda: Index.delete(redis_url), connect):
                with pytest.raises(StoreUnavailable, match="being rebuilt or deleted"):
                    refused()
            redis_client.delete("{streamdedup-library:default:0}staging")  # the lease has expired
            assert Index.delete(redis_url)
            connect().add([("b", TEXT)])
            return keys

        monkeypatch.setattr(staging, "scan_keys", scanned_then_suspended)
        with pytest.raises(StoreUnavailable, match="taken over"):
            Index.delete(redis_url)
        assert ids(connect().add([("c", TEXT)])) == [["b"]]

    def test_an_index_of_daemons_is_refused(self, config, daemon_index, redis_client, redis_url, monkeypatch):
        monkeypatch.setattr("streamdedup.library.PROGRAMS_PREFIX", Settings.load(config).redis.key_prefix)
        keys = sorted(redis_client.keys())
        with pytest.raises(IndexNotWritable, match=r"daemons maintain .* streamdedup index drop"):
            Index.delete(redis_url, name="articles")
        assert sorted(redis_client.keys()) == keys

    def test_a_name_that_could_be_a_pattern_is_refused(self, redis_url):
        with pytest.raises(SettingsError, match="is not the name of an index"):
            Index.delete(redis_url, name="*")


class TestRights:
    """The rights that docs/redis.md names for programs."""

    RIGHTS = (*redis_sets.acl_line("library"), *redis_sets.acl_line("library-delete"))

    @pytest.fixture
    def work(self, redis_client, redis_url, monkeypatch):
        """Do everything that a program can do with an index, as a user with some rights."""
        # Copies fill buckets, and their claims more than one page, so that all forms are used.
        profile = Profile(threshold=0.5, shingle_size=2, bucket_cap=100)
        where = redis_url.partition("://")[2]
        monkeypatch.setattr(writing, "_RENEWAL_S", 0.0)

        def worked(rights) -> None:
            redis_sets.let_in(redis_client, "streamdedup-library", *rights)
            url = f"redis://streamdedup-library:secret@{where}"
            with Index.connect(url, profile) as index, Index.connect(url, profile) as second:
                assert ids(index.add([("a", TEXT), ("b", TEXT)])) == [[], ["a"]]
                index.add([(f"copy-{at}", TEXT) for at in range(120)])
                index.add([("a", "something else entirely here"), ("copy-3", f"{TEXT} iris")])
                index.remove(["b", "copy-4"])
                redis_client.script_flush()
                assert ids(index.lookup(["something else entirely here"])) == [["a"]]
                assert ids(second.add([("later", "something else entirely here")])) == [["a"]]
                with pytest.raises(IndexNotWritable):
                    index.add([("c", TEXT)])
            assert Index.delete(url)

        yield worked
        redis_client.execute_command("ACL", "DELUSER", "streamdedup-library")

    def test_the_rights_of_the_page_are_enough(self, work, redis_client):
        work(self.RIGHTS)
        assert redis_client.keys() == []
        assert {entry["object"] for entry in redis_client.acl_log()} <= {"client|setinfo"}

    @pytest.mark.parametrize("right", [rule for rule in RIGHTS if rule[0] in "+~" and rule != "+ping"])
    def test_and_each_of_them_is_needed(self, work, right):
        with pytest.raises(StoreMisconfigured, match=r"refuses us|rights"):
            work([rule for rule in self.RIGHTS if rule != right])


class TestWriters:
    @staticmethod
    def die_in_add(index, *documents):
        """End a call of ``add`` when its matches are stored as pending, and not yet returned."""

        class Died(Exception):
            pass

        def dies(*_arguments):
            raise Died

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("streamdedup.index.redis.entries.RedisEntries.set_clusters", dies)
            with pytest.raises(Died):
                index.add(documents)

    def test_the_later_writer_takes_over_and_the_earlier_one_is_refused_and_may_look_up(self, connect):
        first, second = connect(), connect()
        first.add([("a", TEXT)])
        assert ids(second.add([("b", TEXT)])) == [["a"]]
        for _ in range(2):
            with pytest.raises(IndexNotWritable, match="another program has taken the right to write"):
                first.add([("c", TEXT)])
        with pytest.raises(IndexNotWritable):
            first.remove(["a"])
        assert ids(first.lookup([TEXT])) == [["a", "b"]]
        assert ids(second.add([("d", TEXT)])) == [["a", "b"]]

    def test_a_writer_renews_its_fence_while_it_owns_it(self, connect, redis_client, monkeypatch):
        now_s = [0.0]
        monkeypatch.setattr(writing, "time", SimpleNamespace(monotonic=lambda: now_s[0]))
        first, second = connect(), connect()
        first.add([("a", TEXT)])
        fence = first._writer._store._keys.fence(0, writing._PARTITION)
        for passed_s, is_renewed in ((86_401.0, True), (0.0, False)):
            now_s[0] += passed_s
            redis_client.pexpire(fence, 60_000)
            first.add([("b", TEXT)])
            assert (redis_client.pttl(fence) > 60_000) is is_renewed
        now_s[0] += 86_401.0
        second.add([("c", TEXT)])
        with pytest.raises(IndexNotWritable):
            first.add([("d", TEXT)])
        assert ids(second.add([("e", TEXT)])) == [["a", "b", "c"]]

    def test_the_writer_after_one_that_died_in_a_call_has_none_of_its_matches(self, connect):
        first, second = connect(), connect()
        first.add([("a", TEXT)])
        self.die_in_add(first, ("b", TEXT))
        assert ids(second.add([("other", "something else entirely here"), ("c", TEXT)])) == [[], ["a", "b"]]

    def test_a_writer_that_renews_its_fence_as_another_takes_over_gives_none_of_its_positions_again(
        self, connect, monkeypatch
    ):
        first, second = connect(), connect()
        first.add([("a", TEXT), ("other", "something else entirely here")])
        monkeypatch.setattr(writing, "_RENEWAL_S", 0.0)
        fence = first._writer._store.fence

        def taken_over_before(*arguments, **options):
            self.die_in_add(second, ("b", TEXT))
            return fence(*arguments, **options)

        monkeypatch.setattr(first._writer._store, "fence", taken_over_before)
        assert ids(first.add([("c", "something else entirely here")])) == [["other"]]
        with pytest.raises(IndexNotWritable):
            second.add([("b", TEXT)])

    def test_a_writer_suspended_before_its_fence_does_not_write_an_index_of_another_profile(
        self, connect, redis_url, monkeypatch
    ):
        suspended = connect()
        fence = suspended._writer._store.fence

        def begun_anew(*arguments, **options):
            Index.delete(redis_url)
            connect(Profile(threshold=0.5, shingle_size=3)).add([("a", TEXT)])
            return fence(*arguments, **options)

        monkeypatch.setattr(suspended._writer._store, "fence", begun_anew)
        with pytest.raises(IndexMismatch, match="shingle_size is 3 in the index and 2"):
            suspended.add([("b", TEXT)])


class TestFailedCalls:
    """Calls of ``add`` that fail or end half-way, and are not repeated at once."""

    OTHER = (("other", "something else entirely here"),)
    NEW = (("new", f"{TEXT} iris"),)

    @pytest.fixture(params=["memory", "redis"])
    def opened(self, request) -> Index:
        """An index with the document ``old``."""
        index = Index.in_memory(PROFILE) if request.param == "memory" else request.getfixturevalue("connect")()
        index.add([("old", TEXT)])
        return index

    @staticmethod
    def fail(index, step, *calls):
        """Let calls of ``add`` fail in a step of the store, which it does not carry out."""

        def failing(*_arguments):
            raise StoreUnavailable("away")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(index._writer._store, step, failing)
            for documents in calls:
                with pytest.raises(StoreUnavailable):
                    index.add(documents)

    @staticmethod
    def restart(index):
        """Continue as a program that is started after one was killed."""
        index._writer = writing.IndexWriter(index._options, index._writer._store, index._fingerprint)

    @pytest.mark.parametrize("step", ["insert_and_look_up", "claim_pairs", "set_clusters"])
    def test_one_that_is_repeated_after_other_calls_has_its_matches_and_is_found(self, opened, step):
        second = (("second", f"{TEXT} iris june"),)
        self.fail(opened, step, self.NEW, second)
        assert ids(opened.add(self.OTHER)) == [[]]
        ((of_new, of_second),) = zip(ids(opened.add(self.NEW)), ids(opened.add(second)), strict=True)
        pairs = [*({"new", match} for match in of_new), *({"second", match} for match in of_second)]
        assert sorted(map(sorted, pairs)) == [["new", "old"], ["new", "second"], ["old", "second"]]
        assert ids(opened.lookup([TEXT])) == [["old", "new", "second"]]
        assert ids(opened.add([("later", TEXT)])) == [["old", "new", "second"]]
        assert ids(opened.add([*self.NEW, *second])) == [[], []]

    def test_documents_that_a_killed_program_left_in_no_bucket_are_found_once_they_are_added_again(self, opened):
        changed = [("old", f"{TEXT} kelp")]
        self.fail(opened, "insert_and_look_up", [*self.NEW, *changed])
        self.restart(opened)
        assert ids(opened.add([*self.NEW, *changed])) == [[], ["new"]]
        assert ids(opened.lookup([TEXT])) == [["new", "old"]]
        assert ids(opened.add([("later", TEXT)])) == [["new", "old"]]
        assert ids(opened.add([*self.NEW, *changed])) == [[], []]

    def test_of_the_versions_of_failed_calls_the_one_that_is_repeated_last_stays(self, opened):
        first, second = [("a", "one two three four five")], [("a", "six seven eight nine ten")]
        self.fail(opened, "insert_and_look_up", first, second)
        for documents in (first, second, first):
            opened.add(documents)
            assert ids(opened.lookup([first[0][1], second[0][1]])) == [
                ["a"] * (documents is each) for each in (first, second)
            ]

    @pytest.mark.parametrize(("others_count", "matches"), [(15, ["old"]), (16, [])])
    def test_the_matches_of_the_last_sixteen_are_kept(self, opened, others_count, matches):
        others = [[(f"other {number}", f"text {number} of others alone")] for number in range(others_count)]
        self.fail(opened, "set_clusters", self.NEW)
        self.fail(opened, "insert_entries", *others)
        opened.add(self.OTHER)
        assert ids(opened.add(self.NEW)) == [matches]
        assert ids(opened.lookup([TEXT])) == [["old", "new"]]

    def test_a_call_that_failed_long_ago_adds_documents_of_the_present(self, opened, monkeypatch):
        self.fail(opened, "insert_entries", self.NEW)
        opened.add(self.OTHER)
        later_ms = clock.now_ms() + 20 * 86_400_000
        monkeypatch.setattr("streamdedup.clock.now_ms", lambda: later_ms)
        opened.add(self.NEW)
        assert {member.id: member.time_ms for member in opened.cluster("new")[0]}["new"] == later_ms


class TestIndexesOfDaemons:
    def test_it_is_looked_up_and_not_written(self, config, daemon_index, monkeypatch):
        monkeypatch.setattr("streamdedup.clock.now_ms", lambda: 1_800_000_000_000)
        with Index.of_daemons(config, "articles") as index:
            assert ids(index.lookup([TEXT, "something else entirely here"])) == [["d0"], []]
            text = r"daemons maintain the index .* Send the document to an input"
            for write in (lambda: index.add([("a", TEXT)]), lambda: index.remove(["d0"])):
                with pytest.raises(IndexNotWritable, match=text):
                    write()
            assert ids(index.lookup([TEXT])) == [["d0"]]

    def test_an_index_that_no_daemon_has_created_is_unavailable(self, config):
        with pytest.raises(StoreUnavailable, match="a daemon creates it at its start"):
            Index.of_daemons(config, "articles")

    def test_an_unknown_profile_is_named_with_the_known_ones(self, config):
        with pytest.raises(SettingsError, match="there is no profile reviews; the settings have articles"):
            Index.of_daemons(config, "reviews")

    def test_a_program_does_not_open_an_index_of_daemons_as_its_own(self, config, daemon_index, connect, monkeypatch):
        monkeypatch.setattr("streamdedup.library.PROGRAMS_PREFIX", Settings.load(config).redis.key_prefix)
        with pytest.raises(IndexMismatch, match="maintained_by is None in the index"):
            connect(name="articles")

    def test_a_daemon_does_not_open_an_index_of_a_program(self, config, connect, monkeypatch):
        settings = Settings.load(config)
        monkeypatch.setattr("streamdedup.library.PROGRAMS_PREFIX", settings.redis.key_prefix)
        connect(name="articles").add([("a", TEXT)])
        with pytest.raises(IndexMismatch, match="maintained_by is 'library'"):
            fill(settings)
