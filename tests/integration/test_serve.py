"""Look-ups on a real Redis: with the rights of the page and no others, on a replica, and by the installed command."""

import contextlib
import http.client
import socket
import ssl
import time

import pytest
import redis

from streamdedup import indexes
from streamdedup.detection.lookup import IndexLookup, LookupQuery
from streamdedup.embedded.process import LOOPBACK
from streamdedup.errors import StoreMisconfigured
from streamdedup.index.redis.connection import connect, connect_cluster
from streamdedup.settings import Settings
from tests import redis_sets
from tests.canaries import TLS
from tests.servers import PERSISTENT, make_redis, wait_until
from tests.serving import STREAMING, ServeProcess, fill, settings_file

TEXT = "amber birch cedar delta ember fjord grove heath"
RIGHTS = redis_sets.acl_line("serve")
USER = "streamdedup-serve"
LOGIN = {"username": USER, "password": "secret"}
#: Commands that change keys, as the server counts them.
WRITING = {"set", "sadd", "srem", "hset", "hdel", "hsetnx", "unlink", "del", "pexpire", "pexpireat", "append", "pfadd"}


def settings_for(url: str | None, layout: str = "sets", **more) -> Settings:
    values = {
        "kafka.bootstrap_servers": "localhost:9",
        "redis.url": url,
        "redis.bucket_layout": layout,
        "profiles.articles.topics": "articles",
        "profiles.articles.shingle_size": 2,
        "profiles.articles.threshold": 0.5,
        "profiles.articles.recall_from": 0.5,
        "profiles.articles.containment_threshold": "none",
        **more,
    }
    return Settings.load(None, values, {})


def now_ms() -> int:
    return int(time.time() * 1000)


def reader_of(settings: Settings, servers):
    """Return the reader of a service that is connected to servers."""
    return indexes.redis_backend(settings, servers).reader("articles")


def everything(reader, settings: Settings) -> None:
    """Do everything that the service does with an index."""
    lookup = IndexLookup(indexes.detector_options("articles", settings.profiles["articles"]), reader)
    assert reader.check(settings.profiles["articles"].fingerprint()) is not None
    (answer,) = lookup.look_up([LookupQuery(TEXT, "new")], 0)
    assert [match.id for match in answer.matches] == ["d0", "d1"]
    (entry, cluster_id) = lookup.document("d1")
    assert cluster_id == "d0"
    assert [member.id for member in lookup.cluster_of(entry).members] == ["d0", "d1"]
    assert [match.id for match in lookup.matches_of(entry).matches] == ["d0"]
    assert reader.look_up_copies([(0, entry.digest)]) == [[]]
    assert reader.count_documents() == 3


@pytest.mark.parametrize("layout", ["sets", "packed"])
class TestRights:
    @pytest.fixture
    def settings(self, redis_client, redis_url, layout):
        settings = settings_for(redis_url, layout)
        fill(settings, TEXT, TEXT + " iris", "kelp lime moss nettle oak pine")
        yield settings
        redis_client.execute_command("ACL", "DELUSER", USER)

    def test_the_rights_of_the_page_are_enough(self, settings, redis_client, redis_url):
        redis_sets.let_in(redis_client, USER, *RIGHTS)
        keys = sorted(redis_client.keys())
        with connect(redis_url, security=LOGIN) as servers:
            reader = reader_of(settings, servers)
            everything(reader, settings)
            everything(reader, settings)
        assert sorted(redis_client.keys()) == keys
        assert {entry["object"] for entry in redis_client.acl_log()} <= {"client|setinfo"}

    @pytest.mark.parametrize("right", [rule for rule in RIGHTS if rule[0] in "+~" and rule != "+ping"])
    def test_and_each_of_them_is_needed(self, settings, redis_client, redis_url, layout, right):
        if right in ({"+hget", "+time"} if layout == "sets" else {"+smembers"}):
            pytest.skip("for the buckets of the other layout")
        redis_sets.let_in(redis_client, USER, *(rule for rule in RIGHTS if rule != right))
        with connect(redis_url, security=LOGIN) as servers, pytest.raises(StoreMisconfigured, match="rights"):
            everything(reader_of(settings, servers), settings)

    def test_they_do_not_allow_to_write(self, settings, redis_client, redis_url):
        redis_sets.let_in(redis_client, USER, *RIGHTS)
        key = redis_client.keys()[0]
        with redis.Redis.from_url(redis_url, **LOGIN) as user:
            for command in (["SET", key, "x"], ["DEL", key], ["EVAL", "return 1", 0], ["FLUSHDB"], ["KEYS", "*"]):
                with pytest.raises(redis.exceptions.NoPermissionError):
                    user.execute_command(*command)
        # Whatever the rights of a user are.
        with pytest.raises(redis.exceptions.ResponseError, match="read-only script"):
            redis_client.execute_command("EVAL_RO", "return redis.call('SET', KEYS[1], 'x')", 1, key)


class TestRightsOnACluster:
    @pytest.fixture
    def indexed(self, cluster_of_redis):
        nodes = ",".join(f"{host}:{port}" for host, port in cluster_of_redis.addresses)
        settings = settings_for(None, **{"redis.mode": "cluster", "redis.nodes": nodes})
        fill(settings, TEXT, TEXT + " iris", "kelp lime moss nettle oak pine")
        yield cluster_of_redis, settings
        for client in cluster_of_redis.clients:
            client.execute_command("ACL", "DELUSER", USER)

    @staticmethod
    def read_all(cluster, settings, *rules):
        for client in cluster.clients:
            redis_sets.let_in(client, USER, *rules)
        with connect_cluster(cluster.addresses, security=LOGIN, from_replicas=True) as servers:
            everything(reader_of(settings, servers), settings)

    def test_the_rights_of_the_page_are_enough(self, indexed):
        self.read_all(*indexed, *RIGHTS, *redis_sets.acl_line("serve-cluster"))

    @pytest.mark.parametrize("right", redis_sets.acl_line("serve-cluster"))
    def test_and_each_of_them_is_needed(self, indexed, right):
        rest = [rule for rule in redis_sets.acl_line("serve-cluster") if rule != right]
        with pytest.raises(StoreMisconfigured):
            self.read_all(*indexed, *RIGHTS, *rest)


def has_copied_all(replica: redis.Redis) -> bool:
    """Tell whether a replica has everything that its master has."""
    told = replica.info("replication")
    if told["master_link_status"] != "up" or told["master_sync_in_progress"]:
        return False
    with redis.Redis(told["master_host"], told["master_port"]) as master:
        return told["slave_repl_offset"] >= master.info("replication")["master_repl_offset"]


@pytest.mark.parametrize("layout", ["sets", "packed"])
def test_a_replica_is_read_and_nothing_is_written_there(redis_program, layout):
    with (
        make_redis(redis_program, options={"repl-diskless-sync-delay": "0"}) as master,
        make_redis(redis_program, options={"replicaof": f"{LOOPBACK} {master.port}"}) as replica,
        redis.Redis(port=replica.port) as client,
    ):
        settings = settings_for(f"redis://{LOOPBACK}:{master.port}/0", layout)
        fill(settings, TEXT, TEXT + " iris", "kelp lime moss nettle oak pine")
        wait_until(lambda: has_copied_all(client), what="the copy")
        client.config_resetstat()
        with connect(f"redis://{LOOPBACK}:{replica.port}/0") as servers:
            everything(reader_of(settings, servers), settings)
        assert client.info("replication")["role"] == "slave"
        calls = {name.removeprefix("cmdstat_") for name in client.info("commandstats")}
        assert "evalsha_ro" in calls
        assert not calls & WRITING


@pytest.mark.parametrize("mode", ["cluster", "sentinel"])
def test_replicas_of_a_cluster_and_of_sentinels_are_read(redis_program, mode):
    with contextlib.ExitStack() as stack:
        if mode == "cluster":
            servers = stack.enter_context(redis_sets.redis_cluster(redis_program, masters=2, replicated=True))
            servers.be_patient()
            replicas, nodes = servers.nodes[2:], servers.addresses[:1]
        else:
            servers = stack.enter_context(redis_sets.redis_sentinel(redis_program))
            replicas, nodes = [servers.replica], [(LOOPBACK, servers.sentinel.port)]
        given = {"redis.mode": mode, "redis.nodes": ",".join(f"{host}:{port}" for host, port in nodes)}
        given |= {"redis.sentinel_service": redis_sets.SERVICE} if mode == "sentinel" else {}
        settings = settings_for(None, **given)
        fill(settings, TEXT, TEXT + " iris", "kelp lime moss nettle oak pine")
        clients = [stack.enter_context(redis.Redis(port=replica.port)) for replica in replicas]
        backend = stack.enter_context(indexes.connect_backend(settings, from_replicas=True))
        wait_until(lambda: all(has_copied_all(client) for client in clients), what="the copies")
        for client in clients:
            client.config_resetstat()
        everything(backend.reader("articles"), settings)
        for client in clients:
            assert client.info("replication")["role"] == "slave"
            assert "cmdstat_evalsha_ro" in client.info("commandstats")


class TestCommand:
    @pytest.fixture
    def config(self, tmp_path, redis_url):
        return settings_file(tmp_path, redis_url)

    def test_it_answers_until_it_is_asked_to_stop(self, config, tmp_path, redis_client, redis_url):
        with ServeProcess(config, tmp_path) as service:
            assert service.request("POST", "/v1/profiles/articles/lookup", {"text": TEXT})[0] == 503
            assert service.request("GET", "/readyz")[0] == 503
            fill(settings_for(redis_url), TEXT, TEXT + " iris", time_ms=now_ms())
            assert [match["id"] for match in service.look_up(TEXT)["matches"]] == ["d0", "d1"]
            assert service.request("GET", "/readyz")[0] == 200
            assert service.request("GET", "/v1/profiles/articles/documents/d0")[2]["id"] == "d0"
            assert service.stop() == 0
        assert service.names() == ["serving", "index_unavailable", "index_available", "stopped"]
        assert "amber" not in service.log.read_text(encoding="utf-8")

    def test_a_client_that_is_slow_at_the_stop_logs_nothing(self, config, tmp_path, redis_client):
        head = b"POST /v1/profiles/articles/lookup HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n"
        with ServeProcess(config, tmp_path, program=STREAMING) as service:
            with socket.create_connection((LOOPBACK, service.port()), timeout=60) as client:
                client.sendall(head + b"content-type: application/json\r\nexpect: 100-continue\r\n\r\n")
                assert client.recv(100).startswith(b"HTTP/1.1 100")
                assert service.stop() == 0
            assert service.events("library_message") == []

    @pytest.mark.long
    def test_a_redis_that_is_away_is_unavailable_and_its_return_is_noticed(self, tmp_path, redis_program):
        with make_redis(redis_program, options=PERSISTENT) as server:
            url = f"redis://{LOOPBACK}:{server.port}/0"
            fill(settings_for(url), TEXT, time_ms=now_ms())
            with ServeProcess(settings_file(tmp_path, url), tmp_path) as service:
                assert [match["id"] for match in service.look_up(TEXT)["matches"]] == ["d0"]
                server.kill()
                status, headers, problem = service.request("POST", "/v1/profiles/articles/lookup", {"text": TEXT})
                assert (status, problem["title"]) == (
                    503,
                    "Redis does not answer, or the index is being rebuilt or deleted",
                )
                assert int(headers["retry-after"]) > 0
                server.start()
                wait_until(lambda: service.request("GET", "/readyz")[0] == 200, what="the return of the index")
                assert [match["id"] for match in service.look_up(TEXT)["matches"]] == ["d0"]
                assert service.stop() == 0

    def test_tokens_of_a_file_are_required_on_other_addresses(self, config, tmp_path, redis_client):
        tokens = tmp_path / "tokens"
        tokens.write_text("a-token-of-22-characters-at-least\n", encoding="ascii")
        settings = {"api.host": "0.0.0.0", "api.tokens_file": tokens}
        with ServeProcess(config, tmp_path, **settings) as service:
            status, headers, _ = service.request("GET", "/v1/profiles")
            assert (status, headers["www-authenticate"]) == (401, "Bearer")
            token = "Bearer a-token-of-22-characters-at-least"
            assert service.request("GET", "/v1/profiles", authorization=token)[0] == 200
        assert "a-token" not in service.log.read_text(encoding="utf-8")

    def test_without_tokens_other_addresses_answer_to_the_allowed_hosts(self, config, tmp_path, redis_client):
        settings = {"api.host": "0.0.0.0", "api.allow_anonymous": "true", "api.allowed_hosts": "dedup.example,serve"}
        with ServeProcess(config, tmp_path, **settings) as service:
            hosts = ("serve", "dedup.example:80", "localhost", "10.0.0.5:8080", "evil.example", "")
            answers = [service.request("GET", "/v1/profiles", host=host) for host in hosts]
            assert [status for status, _, _ in answers] == [200, 200, 200, 200, 400, 400]
            assert answers[-1][2]["type"].endswith(":host-not-allowed")
            assert service.stop() == 0

    def test_the_files_of_a_certificate_turn_tls_on(self, config, tmp_path, redis_client):
        certificate = TLS / "certificate.pem"
        files = {"api.ssl_cert_file": certificate, "api.ssl_key_file": TLS / "plain.key"}
        context = ssl.create_default_context(cafile=certificate)
        with ServeProcess(config, tmp_path, **files) as service:
            client = http.client.HTTPSConnection("localhost", service.port(), timeout=60, context=context)
            with contextlib.closing(client):
                client.request("GET", "/livez")
                assert client.getresponse().read() == b"ok\n"
