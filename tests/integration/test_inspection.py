"""Looking into an index and deleting it, on one server and on a cluster."""

import numpy as np
import pytest

from streamdedup.errors import StoreMisconfigured, StoreUnavailable
from streamdedup.index.backend import PartitionFacts
from streamdedup.index.contract import delete_index
from streamdedup.index.documents import IndexEntry, deletion_marker
from streamdedup.index.redis import staging as staging_module
from streamdedup.index.redis.connection import connect
from streamdedup.index.redis.inspection import RedisInspector
from streamdedup.index.redis.reading import RedisIndexOptions
from streamdedup.index.redis.staging import RedisStagingIndex
from streamdedup.index.redis.store import RedisIndex
from streamdedup.position import Partition, Position
from tests.entries import content_of, pending_of

BANDS = 3
PARTITION = Partition("articles", 0)
FINGERPRINT = {"bands": BANDS}
DOCUMENTS_COUNT = 1500


@pytest.fixture(params=["server", "cluster"])
def servers(request):
    """A connection to servers without keys, and what lists all keys."""
    if request.param == "cluster":
        yield request.getfixturevalue("cluster_servers"), request.getfixturevalue("cluster_of_redis").all_keys
    else:
        client = request.getfixturevalue("redis_client")
        with connect(request.getfixturevalue("redis_url")) as connection:
            yield connection, client.keys


def staging_of(connection, namespace="sd:articles", on_keys=lambda _count: None):
    options = RedisIndexOptions(namespace=namespace, bands=BANDS, lifetime_ms=3_600_000)
    return RedisStagingIndex(connection, RedisIndex(connection, options, in_staging=True), on_keys)


def fill(connection, namespace="sd:articles", documents_count=3):
    """Build an index; return its store and the right to write."""
    store = RedisIndex(connection, RedisIndexOptions(namespace=namespace, bands=BANDS, lifetime_ms=3_600_000))
    store.open(FINGERPRINT)
    fence = store.fence(PARTITION, 7, 0)
    numbers = list(range(1, documents_count + 1))
    # Sizes from 1 to 1,000 bytes, so that a sample must be a fair one.
    entries = [
        IndexEntry(n, f"doc-{n}", b"d" * 16, Position(*PARTITION, n), 1000, n, content_of(hashes_count=n % 250))
        for n in numbers
    ]
    store.insert_entries(entries, [fence])
    store.insert_and_look_up(numbers, np.array([[n] * BANDS for n in numbers], dtype=np.uint32), [fence])
    store.insert_copies([(1, b"d" * 16)], [fence])
    store.remove_copies([(9, b"d" * 16)], [fence])
    store.set_clusters([(2, Position(*PARTITION, 2), 1)], [fence])
    store.claim_pairs([(b"p" * 16, Position(*PARTITION, 1)), (b"q" * 16, Position(*PARTITION, 2))], [fence])
    store.save_pending_matches([(Position(*PARTITION, 3), pending_of([b"p" * 16]))], [fence])
    store.announce(f"{0:013d}.{7:010d}.{1:017d}", [fence], {PARTITION: 0})
    store.finish({PARTITION: documents_count}, [], [fence])
    return store, fence


class TestLookingIn:
    def test_keys_are_counted_by_their_kind(self, servers):
        connection, all_keys = servers
        fill(connection)
        fill(connection, "sd:articles2")
        fill(connection, "sd2:articles")
        figures = RedisInspector(connection, "sd:articles").survey().kinds
        counts = {kind: found.count for kind, found in figures.items()}
        assert counts == {
            "index entries": 3,
            "deletion markers": 0,
            "buckets": 9,
            "buckets of exact copies": 1,
            "removals of exact copies": 1,
            # The two pairs are in different slots.
            "cluster sets": 1,
            "claim pages": 2,
            "claim catalogues": 2,
            "pending matches": 1,
            "fences": BANDS,
            "high-water marks": 1,
            "last calls": BANDS if connection.mode == "cluster" else 1,
            "announced attempts": BANDS,
            # The fingerprint, and the documents of the present slice of time.
            "other": 2,
        }
        assert sum(counts.values()) == len(all_keys()) / 3
        assert all(found.used_bytes > 0 for found in figures.values() if found.count)

    def test_deletion_markers_are_no_documents(self, servers):
        connection, _ = servers
        store, fence = fill(connection)
        store.replace_entries([deletion_marker(2, Position(*PARTITION, 4), 2000)], [fence])
        survey = RedisInspector(connection, "sd:articles").survey()
        counts = [survey.kinds[kind].count for kind in ("index entries", "deletion markers")]
        assert (survey.documents_count, counts) == (2, [2, 1])

    def test_memory_is_that_of_a_fair_sample(self, redis_client, redis_url):
        with connect(redis_url) as connection:
            fill(connection, documents_count=DOCUMENTS_COUNT)
            met = []
            survey = RedisInspector(connection, "sd:articles").survey(met.append)
        records = [redis_client.memory_usage(key) for key in redis_client.keys("*}r*")]
        assert survey.kinds["index entries"].count == survey.documents_count == DOCUMENTS_COUNT
        assert survey.kinds["index entries"].used_bytes == pytest.approx(sum(records), rel=0.15)
        assert sum(met) == redis_client.dbsize()
        assert len(met) > 1

    def test_partitions_are_those_that_were_fenced_or_marked(self, servers):
        connection, _ = servers
        store, _ = fill(connection)
        far = Partition("articles", 5000)
        store.fence(far, 9, 40)
        inspector = RedisInspector(connection, "sd:articles")
        assert inspector.partitions(["articles", "others"]) == {PARTITION: PartitionFacts(3, 7)}
        assert inspector.partitions(["articles"], [far])[far] == PartitionFacts(40, 9)
        store.unfence(PARTITION)
        assert inspector.partitions(["articles"]) == {PARTITION: PartitionFacts(3, None)}

    def test_the_fingerprint_is_what_the_index_was_built_with(self, servers):
        connection, _ = servers
        inspector = RedisInspector(connection, "sd:articles")
        assert inspector.fingerprint() is None
        fill(connection)
        place = RedisIndexOptions(namespace="any", bands=1, shards=1, bucket_layout="sets", lifetime_ms=3_600_000)
        assert inspector.fingerprint() == place.stored_fingerprint(FINGERPRINT)

    def test_a_key_of_somebody_else_is_named(self, redis_client, redis_url):
        redis_client.set("{sd:articles:0}fingerprint", "mine")
        with connect(redis_url) as connection, pytest.raises(StoreMisconfigured, match="another prefix"):
            RedisInspector(connection, "sd:articles").fingerprint()


class TestDeleting:
    def test_an_index_is_deleted_and_no_other(self, servers):
        connection, all_keys = servers
        fill(connection, "sd:articles2")
        fill(connection, "sd2:articles")
        others = set(all_keys())
        fill(connection, documents_count=DOCUMENTS_COUNT)
        count = len(all_keys()) - len(others)
        deleted = []
        assert delete_index(staging_of(connection, on_keys=deleted.append)) == count
        assert set(all_keys()) == others
        assert len(deleted) > 1

    def test_the_fences_of_all_slots_go_before_all_that_a_batch_reads(self, servers, monkeypatch):
        connection, _ = servers
        fill(connection, documents_count=DOCUMENTS_COUNT)
        staging, deleted = staging_of(connection), []
        delete = staging._delete
        monkeypatch.setattr(staging, "_delete", lambda keys, **last: deleted.extend(keys) or delete(keys, **last))
        delete_index(staging)
        kinds = [key.partition(b"}")[2][:1] for key in deleted[1:]]
        assert deleted[0].endswith(b"fingerprint")
        assert kinds[:BANDS] == [b"f"] * BANDS
        assert b"f" not in kinds[BANDS:]

    def test_an_index_is_deleted_that_fills_the_memory(self, servers):
        connection, all_keys = servers
        fill(connection)
        staging = staging_of(connection)
        connection.ask_masters("SCRIPT", "FLUSH")
        connection.ask_masters("CONFIG", "SET", "maxmemory", 1)
        try:
            with pytest.raises(StoreUnavailable, match="memory is full"):  # a rebuild, which would need memory
                staging.take_lease()
            assert delete_index(staging) > 0
        finally:
            connection.ask_masters("CONFIG", "SET", "maxmemory", 0)
        assert all_keys() == []

    def test_a_cluster_has_the_marker_of_a_deletion_only_without_the_fingerprint(self, cluster_servers, monkeypatch):
        fill(cluster_servers)
        ask_many = cluster_servers.ask_many

        def fail(commands):
            if any(command.parts[0] == "UNLINK" for command in commands):
                raise StoreUnavailable("a master fails over")
            return ask_many(commands)

        monkeypatch.setattr(cluster_servers, "ask_many", fail)
        with pytest.raises(StoreUnavailable, match="fails over"):
            delete_index(staging_of(cluster_servers))
        inspector = RedisInspector(cluster_servers, "sd:articles")
        assert inspector.is_half_dropped()
        assert inspector.fingerprint() is None

    def test_there_is_none_afterwards_and_a_new_one_can_be_begun(self, servers):
        connection, _ = servers
        store, _ = fill(connection)
        delete_index(staging_of(connection))
        assert RedisInspector(connection, "sd:articles").fingerprint() is None
        assert delete_index(staging_of(connection)) == 0
        assert store.open({"bands": BANDS, "seed": 2}).is_created

    def test_keys_that_a_scan_misses_are_deleted_by_the_next(self, servers, monkeypatch):
        """As where a failover interrupts a scan, which then goes on in the table of another process."""
        connection, all_keys = servers
        fill(connection, documents_count=DOCUMENTS_COUNT)
        scan, missed = staging_module.scan_keys, iter([2, 2, 3])

        def scan_in_part(*place):
            part = next(missed, 1)
            return (keys[::part] for keys in scan(*place))

        monkeypatch.setattr(staging_module, "scan_keys", scan_in_part)
        delete_index(staging_of(connection))
        assert all_keys() == []
