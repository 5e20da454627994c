"""The index on Redis as it is run: clusters whose slots move, Sentinel, rights, TLS; each with servers of its own."""

import re
from functools import partial

import numpy as np
import pytest
import redis

from streamdedup.embedded.process import LOOPBACK
from streamdedup.errors import IndexLost, StoreMisconfigured, StoreUnavailable
from streamdedup.index.contract import delete_index
from streamdedup.index.documents import InsertState
from streamdedup.index.redis.checks import require_usable
from streamdedup.index.redis.connection import connect, connect_cluster, connect_sentinel
from streamdedup.index.redis.inspection import RedisInspector
from streamdedup.index.redis.keys import Keys
from streamdedup.index.redis.reading import RedisIndexOptions
from streamdedup.index.redis.staging import RedisStagingIndex
from streamdedup.index.redis.store import RedisIndex
from streamdedup.position import Partition, Position
from tests import redis_sets
from tests.canaries import TLS
from tests.entries import an_entry, pending_of
from tests.servers import wait_until
from tests.support.ports import free_ports
from tests.support.processes import pause, resume

BANDS = 4
PARTITION = Partition("articles", 0)
NAMESPACE = "sd:articles"
FINGERPRINT = {"bands": BANDS}


def keys_of(number):
    """Band keys that a document shares with every other of the same parity."""
    return [number % 2] * BANDS


def exercise(store, numbers, generation=1):
    """Do everything that the daemon does with a batch; return whom the documents met."""
    fence = store.fence(PARTITION, generation, 0)
    records = [an_entry(number, offset=number) for number in numbers]
    states = [result.state for result in store.insert_entries(records, [fence])]
    assert set(states) <= {InsertState.CREATED, InsertState.REPLAYED}
    band_keys = np.array([keys_of(number) for number in numbers], dtype=np.uint32)
    hits = store.insert_and_look_up(numbers, band_keys, [fence])
    assert store.get_entries(numbers) == {record.number: record for record in records}
    store.insert_copies([(record.number, record.digest) for record in records], [fence])
    pairs = [bytes([number]) * 16 for number in numbers]
    pending = pending_of(pairs)
    positions = [record.position for record in records]
    assert store.save_pending_matches([(positions[0], pending)], [fence]) == [pending]
    assert all(store.claim_pairs([(pair, positions[0]) for pair in pairs], [fence]))
    store.set_clusters([(record.number, record.position, record.number) for record in records], [fence])
    # Nobody is in these; a document that changes leaves such ones.
    store.remove_from_buckets(numbers, band_keys ^ np.uint32(0xFFFFFFFF), [fence])
    store.remove_copies([(10**6, bytes(16))], [fence])
    nobody = Position(*PARTITION, 10**6)
    assert store.claim_pairs([(b"z" * 16, nobody)], [fence]) == [True]
    store.announce(f"{generation:010d}.{max(numbers):017d}", [fence], {PARTITION: min(numbers)})
    store.finish({PARTITION: max(numbers) + 1}, positions, [fence])
    assert store.partition_states([PARTITION])[PARTITION].high_water_mark == max(numbers) + 1
    return hits.candidates


def open_store(servers, namespace=NAMESPACE, **options):
    store = RedisIndex(servers, RedisIndexOptions(namespace=namespace, bands=BANDS, lifetime_ms=3_600_000, **options))
    store.open(FINGERPRINT)
    return store


@pytest.fixture
def own_cluster(redis_program):
    """A cluster of two masters and a node without slots, as before a cluster is extended."""
    with redis_sets.redis_cluster(redis_program, masters=2, spares=1) as cluster:
        cluster.be_patient()
        yield cluster


def failure_of(ask):
    """Return the text of the error of a call; empty without one."""
    try:
        ask()
    except StoreUnavailable as error:
        return str(error)
    return ""


class TestCluster:
    def test_keys_of_one_index_are_on_several_masters(self, cluster_of_redis, cluster_servers):
        exercise(open_store(cluster_servers), [1, 2, 3])
        assert sum(client.dbsize() > 0 for client in cluster_of_redis.clients) > 1

    def test_while_a_slot_moves_nothing_is_written_to_it_on_either_side_and_afterwards_nothing_is_missing(
        self, own_cluster
    ):
        keys = Keys(NAMESPACE, BANDS)
        spare = len(own_cluster.nodes) - 1
        with connect_cluster(own_cluster.addresses[:1], timeout_s=3.0) as servers:
            store = open_store(servers)
            exercise(store, [1, 2])
            slot = own_cluster.slot(keys.buckets_prefix(1))
            before = sorted(own_cluster.all_keys())
            own_cluster.begin_move(slot, spare)
            with pytest.raises(StoreUnavailable):
                exercise(store, [3])
            own_cluster.move_keys(slot, spare, count=2)
            with pytest.raises(StoreUnavailable):
                exercise(store, [3])
            with pytest.raises(StoreUnavailable):
                store.fence(PARTITION, 2, 0)
            of_slot = [key for key in own_cluster.all_keys() if own_cluster.slot(key) == slot]
            assert sorted(of_slot) == sorted(key for key in before if own_cluster.slot(key) == slot)
            own_cluster.move_keys(slot, spare)
            own_cluster.end_move(slot, spare)
            # The new owner has never seen a script.
            assert exercise(store, [3, 4], generation=2) == [{1: BANDS}, {2: BANDS}]

    def test_a_slot_that_moves_as_a_whole_holds_up_nothing(self, own_cluster):
        with connect_cluster(own_cluster.addresses[:1]) as servers:
            store = open_store(servers)
            exercise(store, [1])
            slot, spare = own_cluster.slot(Keys(NAMESPACE, BANDS).buckets_prefix(1)), len(own_cluster.nodes) - 1
            source, target = own_cluster.clients[own_cluster.owner(slot)], own_cluster.clients[spare].cluster("MYID")
            try:
                source.cluster("MIGRATESLOTS", "SLOTSRANGE", slot, slot, "NODE", target)
            except redis.ResponseError:
                pytest.skip("this server moves slots key by key only")
            wait_until(lambda: exercise(store, [3]) and own_cluster.owner(slot) == spare, what="the slot to arrive")
            assert exercise(store, [5], generation=2) == [{1: BANDS, 3: BANDS}]

    @pytest.mark.long
    def test_a_master_that_is_away_is_waited_for(self, own_cluster):
        with connect_cluster(own_cluster.addresses[:1], timeout_s=2.0, connect_timeout_s=2.0) as servers:
            store = open_store(servers)
            own_cluster.be_quick()
            pause(own_cluster.nodes[1])
            with pytest.raises(StoreUnavailable):
                exercise(store, [1, 2, 3, 4, 5, 6])
            # By now the cluster itself says that it is down.
            wait_until(lambda: own_cluster.clients[0].cluster("INFO")["cluster_state"] == "fail", what="a lost master")
            with pytest.raises(StoreUnavailable):
                exercise(store, [1, 2, 3, 4, 5, 6])
            with pytest.raises(StoreUnavailable):
                store.ping()
            resume(own_cluster.nodes[1])
            wait_until(own_cluster.is_settled, what="the cluster")
            own_cluster.be_patient()
            exercise(store, [1, 2, 3, 4, 5, 6])

    def test_a_time_out_names_the_master(self, own_cluster):
        with connect_cluster(own_cluster.addresses[:1], timeout_s=0.5) as servers:
            paused = f"{LOOPBACK}:{own_cluster.nodes[1].port}"
            asks = [partial(servers.ask_master, paused, "PING"), partial(servers.ask_masters, "PING")]
            # On a busy machine the others may not answer in time either.
            wait_until(lambda: not failure_of(asks[0]), what="an answer")
            pause(own_cluster.nodes[1])
            named = re.compile(rf"Timeout .*\(({LOOPBACK}:\d+ or )*{paused}( or .*)?\)$")
            for ask in asks:
                wait_until(lambda ask=ask: named.search(failure_of(ask)), what="a time-out with the name")

    def test_a_cluster_that_is_gone_as_a_whole_is_found_again_by_the_nodes_of_the_settings(self, redis_program):
        with redis_sets.redis_cluster(redis_program, masters=1) as cluster:
            node = cluster.nodes[0]
            with connect_cluster(cluster.addresses, timeout_s=2.0, connect_timeout_s=2.0) as servers:
                store = open_store(servers)
                node.kill()
                for _ in range(2):
                    with pytest.raises(StoreUnavailable):
                        store.ping()
                node.start()
                wait_until(cluster.is_settled, what="the cluster")
                with pytest.raises(IndexLost):
                    store.fence(PARTITION, 1, 0)

    def test_nodes_without_hash_slots_are_waited_for_at_the_start_and_later(self, redis_program):
        with (
            redis_sets.ClusterNode(redis_program) as node,
            redis.Redis(port=node.port) as client,
            connect_cluster([(LOOPBACK, node.port)]) as servers,
        ):
            ask = partial(servers.ask, b"key", "EXISTS", b"key")
            without_slots = pytest.raises(StoreUnavailable, match="no node that answers knows a hash slot")
            with without_slots:
                ask()
            client.cluster("ADDSLOTSRANGE", 0, redis_sets.SLOTS_COUNT - 1)
            wait_until(lambda: not failure_of(ask), what="the cluster")
            client.cluster("DELSLOTSRANGE", 0, redis_sets.SLOTS_COUNT - 1)
            with without_slots:
                ask()

    def test_the_memory_told_is_that_of_the_fullest_master(self, cluster_of_redis, cluster_servers):
        fullest = cluster_of_redis.clients[2]
        for at, client in enumerate(cluster_of_redis.clients):
            client.config_set("maxmemory", f"{2000 - 500 * at}mb")
        try:
            stats = open_store(cluster_servers).stats()
            assert stats.limit_bytes == fullest.info("memory")["maxmemory"]
            assert stats.used_bytes > 0
        finally:
            for client in cluster_of_redis.clients:
                client.config_set("maxmemory", 0)

    def test_a_single_master_that_would_drop_keys_is_named(self, cluster_of_redis, cluster_servers):
        assert require_usable(cluster_servers) == []
        client = cluster_of_redis.clients[1]
        client.config_set("maxmemory-policy", "allkeys-lru")
        try:
            (warning,) = require_usable(cluster_servers)
            assert f"the store {LOOPBACK}:{cluster_of_redis.nodes[1].port} would drop keys" in warning
            client.config_set("maxmemory", "500mb")
            with pytest.raises(StoreMisconfigured, match="set it to noeviction"):
                require_usable(cluster_servers)
        finally:
            client.config_set("maxmemory", 0)
            client.config_set("maxmemory-policy", "noeviction")


def let_in(clients, *rules):
    """Make the user anew, with these rules, on each server."""
    for client in clients:
        redis_sets.let_in(client, "streamdedup", *rules)
        client.flushall()


LOGIN = {"username": "streamdedup", "password": "secret"}


class TestEviction:
    @pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-lru", "allkeys-random", "volatile-ttl", "allkeys-lfu"])
    def test_a_policy_that_loses_keys_is_warned_of_refused_with_a_limit_and_seen_while_the_store_is_used(
        self, own_redis, policy
    ):
        server, client = own_redis
        with connect(server.url) as servers:
            store = open_store(servers)
            assert store.stats().used_bytes
            client.config_set("maxmemory-policy", policy)
            assert [policy in warning for warning in require_usable(servers)] == [True]
            assert store.stats().used_bytes
            client.config_set("maxmemory", "500mb")
            for look in (lambda: require_usable(servers), store.stats):
                with pytest.raises(StoreMisconfigured, match=rf"{policy}: set it to noeviction"):
                    look()


class TestRights:
    @staticmethod
    def work(servers):
        assert require_usable(servers) == []
        # The last document finds full buckets.
        numbers = list(range(2, 24, 2))
        packed = open_store(servers, f"{NAMESPACE}-packed", bucket_cap=10, bucket_layout="packed")
        store = open_store(servers, bucket_cap=10)
        for each in (packed, store):
            exercise(each, [1, *numbers])
            fence = each.fence(PARTITION, 1, 0)
            each.remove_from_buckets([1, 2], np.array([keys_of(1), keys_of(2)], dtype=np.uint32), [fence])
        store.ping()
        assert store.stats().used_bytes
        assert store.count_documents() == len(numbers) + 1
        store.unfence(PARTITION)

    @staticmethod
    def delete(servers, namespace):
        options = RedisIndexOptions(namespace=namespace, bands=BANDS, lifetime_ms=3_600_000)
        return delete_index(RedisStagingIndex(servers, RedisIndex(servers, options, in_staging=True)))

    def live(self, servers):
        """Do all work of a daemon, the deletion of a lost index with it."""
        self.work(servers)
        assert self.delete(servers, NAMESPACE) > 0

    def test_the_rights_of_the_page_are_enough(self, own_redis):
        server, client = own_redis
        let_in([client], *redis_sets.acl_line("daemon"))
        with connect(server.url, security=LOGIN) as servers:
            self.live(servers)

    @pytest.mark.parametrize("right", [rule for rule in redis_sets.acl_line("daemon") if rule[0] in "+~"])
    def test_none_of_them_is_too_many_and_a_missing_one_is_named(self, own_redis, right):
        server, client = own_redis
        let_in([client], *(rule for rule in redis_sets.acl_line("daemon") if rule != right))
        # Redis 7.0 does not name what a script may not call.
        name = rf"({re.escape(right.removeprefix('+'))}|executing the script)" if right[0] == "+" else "(a|the) key"
        refused = rf"refuses us: the user \(redis\.username\) lacks rights.*{name}"
        if right[0] == "~":
            refused = rf"lacks rights on the keys.*redis\.key_prefix.*{name}"
        with connect(server.url, security=LOGIN) as servers, pytest.raises(StoreMisconfigured, match=refused):
            self.live(servers)

    def test_a_cluster_needs_its_two_more(self, cluster_of_redis):
        let_in(cluster_of_redis.clients, *redis_sets.acl_line("daemon"), *redis_sets.acl_line("cluster"))
        with connect_cluster(cluster_of_redis.addresses[:1], security=LOGIN) as servers:
            self.work(servers)
        refused = pytest.raises(StoreMisconfigured, match="refuses us")
        for right in redis_sets.acl_line("cluster"):
            rest = [rule for rule in redis_sets.acl_line("cluster") if rule != right]
            let_in(cluster_of_redis.clients, *redis_sets.acl_line("daemon"), *rest)
            with connect_cluster(cluster_of_redis.addresses[:1], security=LOGIN) as servers, refused:
                self.work(servers)

    def test_an_operator_needs_two_more_to_look_in_and_to_delete(self, own_redis):
        server, client = own_redis
        let_in([client], *redis_sets.acl_line("daemon"), *redis_sets.acl_line("operator"))
        with connect(server.url, security=LOGIN) as servers:
            self.work(servers)
            assert RedisInspector(servers, NAMESPACE).survey().documents_count == 12
            assert self.delete(servers, NAMESPACE) > 0
            assert self.delete(servers, f"{NAMESPACE}-packed") > 0
            assert client.dbsize() == 0

    def test_a_wrong_password_is_told_without_repeating_it(self, own_redis):
        server, client = own_redis
        let_in([client], *redis_sets.acl_line("daemon"))
        for open_servers in (
            lambda login: connect(server.url, security=login),
            lambda login: connect_cluster([(LOOPBACK, server.port)], security=login),
        ):
            wrong = {"username": "streamdedup", "password": "canary"}
            with open_servers(wrong) as servers, pytest.raises(StoreMisconfigured, match="refuses the login") as caught:
                self.work(servers)
            assert "canary" not in str(caught.value)


@pytest.fixture
def tls_server():
    with redis_sets.TlsServer() as server:
        yield server


#: What a client of these servers needs.
OURS = {
    "ssl_ca_certs": str(TLS / "certificate.pem"),
    "ssl_certfile": str(TLS / "certificate.pem"),
    "ssl_keyfile": str(TLS / "plain.key"),
}


@pytest.mark.long
class TestTls:
    def test_a_server_is_reached_by_tls_and_its_name_is_checked(self, tls_server):
        with connect(f"rediss://localhost:{tls_server.port}/0", security=OURS) as servers:
            exercise(open_store(servers), [1])
        elsewhere = f"rediss://{redis_sets.OTHER_LOOPBACK}:{tls_server.port}/0"
        refused = pytest.raises(StoreMisconfigured, match=r"redis\.ssl_ca_file")
        with connect(elsewhere, security=OURS) as servers, refused:
            servers.ask_masters("PING")
        # Any server with this certificate does as a Sentinel; another one is away.
        sentinels = [(redis_sets.OTHER_LOOPBACK, tls_server.port), (LOOPBACK, free_ports()[0])]
        servers = connect_sentinel(sentinels, "index", sentinel_security={"ssl": True, **OURS})
        check_refused(servers, r"redis\.ssl_ca_file")
        with connect(elsewhere, security={**OURS, "ssl_check_hostname": False}) as servers:
            servers.ask_masters("PING")

    def test_without_tls_or_without_a_certificate_nobody_gets_in(self, tls_server):
        with connect(f"redis://localhost:{tls_server.port}/0") as servers, pytest.raises(StoreUnavailable):
            servers.ask_masters("PING")
        url, stranger = f"rediss://localhost:{tls_server.port}/0", {"ssl_ca_certs": OURS["ssl_ca_certs"]}
        with connect(url, security=stranger) as servers, pytest.raises(StoreUnavailable):
            servers.ask_masters("PING")

    def test_a_cluster_is_reached_by_tls(self):
        options = {"cluster-enabled": "yes", "cluster-port": str(free_ports()[0]), "tls-cluster": "yes"}
        security = {"ssl": True, "ssl_check_hostname": True, **OURS}
        with redis_sets.TlsServer(**options) as server:
            with redis.Redis(LOOPBACK, server.port, **security) as client:
                client.cluster("ADDSLOTSRANGE", 0, redis_sets.SLOTS_COUNT - 1)
                wait_until(lambda: client.cluster("INFO")["cluster_state"] == "ok", what="the cluster")
            with connect_cluster([(LOOPBACK, server.port)], security=security) as servers:
                assert require_usable(servers) == []
                exercise(open_store(servers), [1, 2])


def check_refused(servers, words):
    with servers, pytest.raises(StoreMisconfigured, match=words):
        require_usable(servers)


class TestModes:
    """What the settings say is not what is there."""

    def test_a_single_server_is_no_cluster(self, redis_server):
        check_refused(connect_cluster([(LOOPBACK, redis_server.port)]), r'set it to "single"')

    def test_a_server_is_no_sentinel(self, redis_server):
        check_refused(connect_sentinel([(LOOPBACK, redis_server.port)], "index"), "no Sentinel")

    @pytest.mark.parametrize("open_servers", [connect_cluster, lambda nodes: connect_sentinel(nodes, "index")])
    def test_nobody_there_is_waited_for(self, open_servers):
        with open_servers([(LOOPBACK, free_ports()[0])]) as servers, pytest.raises(StoreUnavailable):
            require_usable(servers)


@pytest.fixture
def watched(redis_program):
    with redis_sets.redis_sentinel(redis_program) as found:
        yield found


def serves(store):
    try:
        store.fence(PARTITION, 1, 0)
    except StoreUnavailable:
        return False
    return True


def test_a_single_server_that_became_a_replica_is_left_for_the_master_that_its_address_now_leads_to(start_redis):
    old = start_redis(options={"repl-diskless-sync-delay": "0"})
    new = start_redis(options={"replicaof": f"{LOOPBACK} {old.port}"})
    with connect(old.url) as servers, redis.Redis(port=old.port) as old_client, redis.Redis(port=new.port) as client:
        wait_until(lambda: client.info("replication")["master_link_status"] == "up", what="the first copy")
        store = open_store(servers)
        exercise(store, [1, 2])
        old_client.set("w", 1)  # WAIT waits for the writes of its own client, and so for all earlier ones
        assert old_client.wait(1, 60_000) == 1
        count = store.count_connections()
        old_client.replicaof(LOOPBACK, new.port)
        for ask in (lambda: exercise(store, [3]), store.ping):
            with pytest.raises(StoreUnavailable, match=r"read ?only replica"):
                ask()
        client.replicaof("NO", "ONE")
        (connection,) = servers.client.connection_pool._available_connections
        connection.port = new.port  # as the address of a host name changes
        store.ping()
        assert store.count_connections() > count
        assert exercise(store, [3]) == [{1: BANDS}]


class TestSentinel:
    def test_a_call_that_is_interrupted_leaves_no_reply_to_the_next(self, watched, monkeypatch):
        def interrupted(**_options):
            raise KeyboardInterrupt

        with connect_sentinel([(LOOPBACK, watched.sentinel.port)], redis_sets.SERVICE) as servers:
            servers.ask(b"k", "SET", b"k", b"v")
            for ask in (lambda: servers.ask(b"o", "GET", b"o"), lambda: servers.ask_masters("DBSIZE")):
                (connection,) = servers.client.connection_pool._available_connections
                with monkeypatch.context() as patch:
                    patch.setattr(connection._parser, "read_response", interrupted)
                    with pytest.raises(KeyboardInterrupt):
                        ask()
                assert servers.ask(b"k", "GET", b"k") == b"v"

    def test_after_a_failover_the_index_goes_on_at_the_new_master(self, watched):
        # The first Sentinel is away.
        sentinels = [(LOOPBACK, free_ports()[0]), (LOOPBACK, watched.sentinel.port)]
        with connect_sentinel(sentinels, redis_sets.SERVICE, timeout_s=2.0, connect_timeout_s=2.0) as servers:
            assert require_usable(servers) == []
            store = open_store(servers)
            exercise(store, [1, 2])
            with redis.Redis(port=watched.master.port) as client:
                client.set("w", 1)  # see above
                assert client.wait(1, 60_000) == 1
            watched.master.kill()
            with pytest.raises(StoreUnavailable):
                exercise(store, [3])
            watched.be_quick()
            wait_until(lambda: serves(store), what="the new master")
            assert exercise(store, [3]) == [{1: BANDS}]
            assert servers.ask_masters("PING") == {f"{LOOPBACK}:{watched.replica.port}": True}

    @pytest.mark.long
    def test_the_old_master_comes_back_as_a_replica_and_changes_nothing(self, watched):
        with connect_sentinel([(LOOPBACK, watched.sentinel.port)], redis_sets.SERVICE, timeout_s=2.0) as servers:
            store = open_store(servers)
            exercise(store, [1])
            with redis.Redis(port=watched.master.port) as client:
                client.set("w", 1)  # see above
                assert client.wait(1, 60_000) == 1
            pause(watched.master)
            watched.be_quick()
            wait_until(lambda: serves(store), what="the new master")
            watched.be_patient()
            resume(watched.master)
            with redis.Redis(port=watched.master.port) as client:
                wait_until(lambda: client.role()[0] in (b"slave", "slave"), what="the old master's new role")
            assert exercise(store, [3]) == [{1: BANDS}]

    def test_a_wrong_name_of_the_master_is_told_from_one_that_is_away(self, watched):
        nodes = [(LOOPBACK, watched.sentinel.port)]
        check_refused(connect_sentinel(nodes, "indx"), "no Sentinel knows indx; they know: index")
        check_refused(connect(f"redis://{LOOPBACK}:{watched.sentinel.port}/0"), r"redis\.nodes")
        check_refused(connect(watched.replica.url), "is a replica")

    def test_a_master_that_has_become_a_replica_is_waited_for(self, watched):
        nodes = [(LOOPBACK, watched.sentinel.port)]
        with (
            connect_sentinel(nodes, redis_sets.SERVICE, from_replicas=True) as servers,
            pytest.raises(StoreUnavailable, match="a failover is under way"),
        ):
            require_usable(servers)

    def test_a_sentinel_that_refuses_us_is_told_from_one_that_is_away(self, watched):
        with redis.Redis(port=watched.sentinel.port) as client:
            client.execute_command("ACL", "SETUSER", "default", "resetpass", ">secret")
        nodes = [(LOOPBACK, watched.sentinel.port)]
        check_refused(connect_sentinel(nodes, "index"), r"redis\.sentinel_username")
        with connect_sentinel(nodes, "index", sentinel_security={"password": "secret"}) as servers:
            exercise(open_store(servers), [1])
