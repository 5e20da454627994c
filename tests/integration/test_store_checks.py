"""The checks of the store on real servers: rights one by one, clocks, settings, TLS."""

import shutil
import time

import pytest
import redis

from streamdedup.cli import checks as server_checks
from streamdedup.cli.checks import KAFKA, STORE, CheckRun, index_findings
from streamdedup.embedded.process import LOOPBACK
from streamdedup.errors import IndexLost, IndexMismatch, StoreMisconfigured, StoreUnavailable
from streamdedup.findings import Level
from streamdedup.index.redis import checks
from streamdedup.index.redis.keys import Keys
from streamdedup.indexes import connect_backend
from streamdedup.kafka.protocols import CommittedOffset
from streamdedup.position import Partition
from streamdedup.settings import Settings
from tests import redis_sets
from tests.canaries import TLS
from tests.servers import make_redis, wait_until
from tests.support.ports import free_ports
from tests.support.processes import pause, resume

PARTITION = Partition("articles", 0)
STARTED_S = int(time.time())


def settings_for(url, **changes):
    """Return settings with one profile; two underscores stand for a dot."""
    given = {
        "kafka.bootstrap_servers": f"{LOOPBACK}:{free_ports()[0]}",
        "profiles.articles.topics": "articles",
        **({"redis.url": url} if url else {}),
    }
    return Settings.load(None, given | {key.replace("__", "."): value for key, value in changes.items()}, {})


def checked(settings):
    """Return the findings about the store by the name of the check."""
    with connect_backend(settings) as backend:
        return {finding.check: finding for finding in STORE.findings(CheckRun(settings, backend))}


def let_in(client, *rules):
    redis_sets.let_in(client, "streamdedup", *rules)


def as_user(url, **changes):
    return settings_for(url, redis__username="streamdedup", redis__password="secret", **changes)


class TestRights:
    def test_the_rights_of_the_page_are_enough_and_nothing_is_written(self, own_redis):
        server, client = own_redis
        let_in(client, *redis_sets.acl_line("daemon"))
        assert checked(as_user(server.url))["redis_rights"].level is Level.OK
        assert client.dbsize() == 0
        assert {entry["object"] for entry in client.acl_log()} <= {"client|setinfo"}

    @pytest.mark.parametrize("right", [rule for rule in redis_sets.acl_line("daemon") if rule[0] in "+~"])
    def test_each_missing_one_is_found_and_nothing_is_written(self, own_redis, right):
        server, client = own_redis
        let_in(client, *(rule for rule in redis_sets.acl_line("daemon") if rule != right))
        found = checked(as_user(server.url))
        (failed,) = [finding for finding in found.values() if finding.level is Level.FAILED]
        assert failed.error is StoreMisconfigured
        name = right[1:].upper()
        if right[0] == "+" and name not in {"INFO", "TIME", "EVALSHA", "SCRIPT|LOAD"}:
            assert failed.check == "redis_rights"
            assert f" {name};" in failed.text
        assert "lacks rights" in failed.text
        assert client.dbsize() == 0

    @pytest.mark.parametrize("rule", ["~{other:*", "%R~{sd:*"])
    def test_other_keys_and_keys_that_can_only_be_read_are_told(self, own_redis, rule):
        server, client = own_redis
        rules = redis_sets.acl_line("daemon")
        let_in(client, *(rule if known[0] == "~" else known for known in rules))
        failed = checked(as_user(server.url))["redis_rights"]
        assert failed.level is Level.FAILED
        assert "~{sd:*" in failed.text

    def test_a_daemon_that_rebuilds_by_itself_needs_scan(self, own_redis):
        server, client = own_redis
        let_in(client, *redis_sets.acl_line("daemon"), "-scan")
        failed = checked(as_user(server.url))["redis_rights"]
        assert " SCAN;" in failed.text
        assert checked(as_user(server.url, service__on_index_lost="fail"))["redis_rights"].level is Level.OK
        let_in(client, *redis_sets.acl_line("daemon"))
        assert checked(as_user(server.url))["redis_rights"].level is Level.OK

    def test_on_a_cluster_every_slot_is_asked(self, cluster_of_redis):
        for client in cluster_of_redis.clients:
            let_in(client, *redis_sets.acl_line("daemon"), *redis_sets.acl_line("cluster"))
        nodes = ",".join(f"{host}:{port}" for host, port in cluster_of_redis.addresses)
        settings = as_user(None, redis__mode="cluster", redis__nodes=nodes)
        assert checked(settings)["redis_rights"].level is Level.OK
        cluster_of_redis.clients[1].execute_command("ACL", "SETUSER", "streamdedup", "-hlen")
        assert " HLEN;" in checked(settings)["redis_rights"].text


class TestServer:
    def test_nobody_there_is_a_failure_that_waiting_may_cure(self):
        found = checked(settings_for(f"redis://{LOOPBACK}:{free_ports()[0]}/0"))
        assert list(found) == ["redis"]
        assert found["redis"].error is StoreUnavailable

    def test_a_server_is_reached_by_its_socket_file(self, redis_program):
        with make_redis(redis_program, options={"unixsocket": "redis.sock"}) as server:
            path = server.directory / "redis.sock"
            found = checked(settings_for(f"unix://{path}?db=1"))
            assert found["redis_rights"].level is Level.OK
            assert found["redis_persistence"].command == f"redis-cli -s {path} CONFIG SET appendonly yes"

    def test_eviction_is_refused_with_a_limit_and_warned_of_without(self, own_redis):
        server, client = own_redis
        client.config_set("maxmemory-policy", "allkeys-lru")
        assert checked(settings_for(server.url))["redis_eviction"].level is Level.WARNING
        client.config_set("maxmemory", "100mb")
        failed = checked(settings_for(server.url))["redis_eviction"]
        assert failed.error is StoreMisconfigured
        assert failed.command == f"redis-cli -h {LOOPBACK} -p {server.port} CONFIG SET maxmemory-policy noeviction"

    def test_memory_is_told_against_its_limit_and_a_full_store_warned_of(self, own_redis):
        server, client = own_redis
        assert "no memory limit" in checked(settings_for(server.url))["redis_memory"].text
        client.config_set("maxmemory", "1gb")
        assert "1,024.0 MiB" in checked(settings_for(server.url))["redis_memory"].text
        client.config_set("maxmemory", "100kb")
        assert checked(settings_for(server.url))["redis_memory"].level is Level.WARNING

    def test_a_full_store_is_told_with_its_cure(self, own_redis):
        server, client = own_redis
        with connect_backend(settings_for(server.url)) as backend:
            store = backend.index("articles")
            store.open({"bands": 9})
            client.config_set("maxmemory", 1)
            with pytest.raises(StoreUnavailable, match=r"its memory is full; raise its limit \(maxmemory\).*indexes$"):
                store.fence(PARTITION, 1, 0)

    def test_a_store_without_a_disk_for_its_snapshots_is_told_as_such(self, redis_program, tmp_path):
        folder = tmp_path / "snapshots"
        folder.mkdir()
        with (
            make_redis(redis_program, directory=folder, options={"save": "3600 1"}) as server,
            redis.Redis(port=server.port) as client,
            connect_backend(settings_for(server.url)) as backend,
        ):
            store = backend.index("articles")
            store.open({"bands": 9})
            shutil.rmtree(folder)
            client.bgsave()
            wait_until(lambda: client.info("persistence")["rdb_last_bgsave_status"] == "err", 60, "a failed snapshot")
            with pytest.raises(StoreUnavailable, match=r"its snapshots cannot be written \(MISCONF\); its log.*disk$"):
                store.fence(PARTITION, 1, 0)
            assert "could not write its last snapshot" in checked(settings_for(server.url))["redis_persistence"].text
            client.config_set("save", "")

    def test_a_store_without_an_append_only_file_is_warned_of_until_it_has_one(self, own_redis):
        server, client = own_redis
        warned = checked(settings_for(server.url))["redis_persistence"]
        assert warned.level is Level.WARNING
        assert warned.command.endswith("CONFIG SET appendonly yes")
        client.config_set("appendonly", "yes")
        assert checked(settings_for(server.url))["redis_persistence"].level is Level.OK

    @pytest.mark.parametrize(("offset_s", "level"), [(0, Level.OK), (75, Level.WARNING), (-75, Level.WARNING)])
    def test_clocks_that_differ_are_warned_of(self, own_redis, monkeypatch, offset_s, level):
        server, _ = own_redis
        real = checks.time.time
        monkeypatch.setattr(checks.time, "time", lambda: real() + offset_s)
        found = checked(settings_for(server.url))["redis_clock"]
        assert found.level is level
        if offset_s:
            assert f"75 s {'behind' if offset_s > 0 else 'ahead of'} this machine's" in found.text


class TestTls:
    @pytest.mark.parametrize("password", ["", "secret"])
    def test_tls_to_a_server_without_it_is_told_as_such(self, own_redis, password):
        server, client = own_redis
        settings = settings_for(f"rediss://{LOOPBACK}:{server.port}/0", redis__timeout="500ms")
        client.config_set("requirepass", password)  # asks connections to come
        try:
            failed = checked(settings)["redis"]
        finally:
            client.config_set("requirepass", "")
        assert failed.error is StoreMisconfigured
        assert "TLS handshake against a server without TLS" in failed.text
        assert "write redis:// in redis.url" in failed.text

    def test_no_tls_to_a_server_that_wants_it_is_told_as_such(self):
        with redis_sets.TlsServer() as server:
            failed = checked(settings_for(f"redis://{LOOPBACK}:{server.port}/0"))["redis"]
            assert failed.error is StoreMisconfigured
            assert "write rediss:// in redis.url" in failed.text
            nodes = settings_for(None, redis__mode="cluster", redis__nodes=f"{LOOPBACK}:{server.port}")
            assert "set redis.tls = true" in checked(nodes)["redis"].text
            ca_file = str(TLS / "certificate.pem")
            stranger = settings_for(f"rediss://localhost:{server.port}/0", redis__ssl_ca_file=ca_file)
            # TLS is not what is wrong here: a certificate of ours is.
            assert "TLS handshake" not in checked(stranger)["redis"].text

    def test_a_server_that_is_frozen_is_not_taken_for_one_without_tls(self, start_redis):
        server = start_redis()
        pause(server)
        try:
            settings = settings_for(f"rediss://{LOOPBACK}:{server.port}/0", redis__timeout="200ms")
            assert checked(settings)["redis"].error is StoreUnavailable
        finally:
            resume(server)


def attempt_id(number, lineage=1, age_s=60):
    return f"{lineage:013d}.{number:010d}.{(STARTED_S - age_s) * 10**6 + number:017d}"


def use_index(settings, announced=None, committed=""):
    """Open the index as a daemon does; with ``announced``, announce this attempt when ``committed`` is committed."""
    with connect_backend(settings) as backend:
        store = backend.index("articles")
        store.open(settings.profiles["articles"].fingerprint())
        if announced is not None:
            store.announce(announced, [store.fence(PARTITION, 1, 3)], {PARTITION: 0}, committed_id=committed)


class TestIndex:
    @pytest.fixture
    def settings(self, redis_client, redis_url):
        return settings_for(redis_url)

    @pytest.fixture
    def look(self, monkeypatch):
        def found(settings, offsets=()):
            committed_offsets = {
                partition: CommittedOffset(offset) if isinstance(offset, int) else offset
                for partition, offset in dict(offsets or ()).items()
            }
            monkeypatch.setattr(server_checks, "read_committed_offsets_if_listed", lambda _options: committed_offsets)
            with connect_backend(settings) as backend:
                failed = {KAFKA} if offsets is None else set()
                (finding,) = index_findings(CheckRun(settings, backend, failed))
            return finding

        return found

    def test_none_yet_is_fine_and_stays_so(self, look, settings, redis_client):
        assert look(settings, {}).level is Level.OK
        assert redis_client.dbsize() == 0

    def test_none_beside_offsets_of_other_topics_or_an_offset_set_to_0_is_no_loss(self, look, settings):
        assert look(settings, {Partition("of-others", 0): 7, PARTITION: 0}).level is Level.OK

    def test_one_that_fits_and_one_that_differs_are_told_by_parameter(self, look, settings, redis_url):
        use_index(settings, attempt_id(2), attempt_id(1))
        assert look(settings, {PARTITION: CommittedOffset(7, attempt_id(2))}).level is Level.OK
        other = settings_for(redis_url, profiles__articles__shingle_size=4)
        differs = look(other)
        assert differs.error is IndexMismatch
        assert "shingle_size is 3 in the index and 4 in the settings" in differs.text

    @pytest.mark.parametrize(
        ("announced", "committed", "reason", "level", "reaction"),
        [
            (None, "", "never seen this partition", Level.WARNING, "rebuilds it from the topics"),
            (attempt_id(1), attempt_id(0), "gone back", Level.WARNING, "reads the missing records"),
            (attempt_id(1, 1, 10**7), attempt_id(0, 1, 10**7), "gone back", Level.WARNING, "rebuilds it"),
            (attempt_id(1, 2), attempt_id(1), "another index was used", Level.OK, "reads the committed records"),
        ],
        ids=["never seen", "gap", "old gap", "switch"],
    )
    def test_one_without_a_commit_is_told_with_the_reaction_of_a_daemon(
        self, look, redis_url, redis_client, announced, committed, reason, level, reaction
    ):
        def found(on_index_lost):
            settings = settings_for(redis_url, service__on_index_lost=on_index_lost)
            return look(settings, {PARTITION: CommittedOffset(7, attempt_id(2))})

        use_index(settings_for(redis_url), announced, committed)
        rebuilt, failed, continued = found("rebuild"), found("fail"), found("continue")
        assert (rebuilt.level, failed.error, continued.level) == (level, IndexLost, Level.WARNING)
        assert reaction in rebuilt.text
        assert "index of articles: lost: offset 7 of articles:0 is committed, but the index " in failed.text
        assert reason in failed.text
        assert "streamdedup index rebuild" in failed.text
        assert "goes on without the lost documents" in continued.text

    def test_without_kafka_a_loss_is_not_known(self, look, settings):
        use_index(settings)
        found = look(settings, None)
        assert found.level is Level.OK
        assert "not known without Kafka" in found.text

    def test_one_that_is_being_rebuilt_is_told(self, look, settings, redis_client):
        keys = Keys("sd:articles", 1)
        redis_client.set(keys.staging, b"somebody")
        assert look(settings).level is Level.WARNING
        redis_client.set(keys.dropping, b"1")
        assert look(settings).level is Level.WARNING

    @pytest.mark.parametrize(
        ("on_index_lost", "offset", "error", "cure"),
        [
            ("fail", 0, IndexMismatch, "streamdedup index drop"),
            ("fail", 7, IndexLost, "streamdedup index rebuild"),
            ("rebuild", 0, IndexMismatch, "streamdedup index drop"),
            ("rebuild", 7, None, "the first daemon rebuilds it"),
            ("continue", 7, IndexMismatch, "streamdedup index drop"),
        ],
    )
    def test_one_that_is_half_deleted_is_a_failure_unless_a_daemon_rebuilds_it(
        self, look, redis_url, redis_client, on_index_lost, offset, error, cure
    ):
        redis_client.set(Keys("sd:articles", 1).dropping, b"1")
        found = look(settings_for(redis_url, service__on_index_lost=on_index_lost), {PARTITION: offset})
        assert (found.level, found.error) == (Level.FAILED if error else Level.WARNING, error)
        assert cure in found.text
