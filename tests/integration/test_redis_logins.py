"""Logins to Redis that change while a process runs: files that are written again, and tokens that last seconds."""

import shutil

import pytest
import redis

from streamdedup.errors import StoreMisconfigured, StoreUnavailable
from streamdedup.index.redis.backend import RedisBackend
from streamdedup.index.redis.connection import login_of_provider
from streamdedup.indexes import connect_backend
from streamdedup.settings import Settings
from tests import redis_sets, token_login
from tests.canaries import TLS
from tests.servers import make_redis, wait_until
from tests.token_login import ExpiringTokens

SETTINGS = {"kafka.bootstrap_servers": "localhost:9092", "profiles.articles.topics": "articles"}


def allow(client, password, user="app"):
    """Give the user this password alone, and end its connections."""
    client.execute_command("ACL", "SETUSER", user, "on", "~*", "&*", "+@all", "resetpass", f">{password}")
    client.execute_command("CLIENT", "KILL", "USER", user, "SKIPME", "yes")


def backend_of(**values) -> RedisBackend:
    """Return the store of settings; nothing is sent yet."""
    given = SETTINGS | {f"redis.{key}": str(value) for key, value in values.items()}
    backend = connect_backend(Settings.load(None, given, {}))
    assert isinstance(backend, RedisBackend)
    return backend


def refusal(backend, kind):
    """Return the text of the error of a command; it repeats no secret."""
    with pytest.raises(kind) as caught:
        backend.shared_servers.ask_masters("PING")
    assert "canary" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("how", ["pipeline", "single"])
def test_a_password_file_is_read_again_when_the_server_has_another_password(own_redis, tmp_path, how):
    started, client = own_redis
    path = tmp_path / "password"
    path.write_text("canary-1\n")
    allow(client, "canary-1")
    with backend_of(url=started.url, username="app", password_file=path) as backend:
        probes = {"pipeline": lambda: backend.shared_servers.ask(b"k", "GET", b"k"), "single": backend.require_usable}
        ask = probes[how]
        ask()
        allow(client, "canary-2")
        assert "waiting for a new one in redis.password_file" in refusal(backend, StoreUnavailable)
        path.unlink()
        assert f"redis.password_file: {path} cannot be read" in refusal(backend, StoreUnavailable)
        path.write_text("\n")
        assert "is empty" in refusal(backend, StoreUnavailable)
        path.write_text("canary-2\n")
        ask()


def test_a_connection_that_the_server_no_longer_takes_for_logged_in_is_opened_again(own_redis, tmp_path):
    started, client = own_redis
    (tmp_path / "password").write_text("canary-1")
    allow(client, "canary-1")
    with backend_of(url=started.url, username="app", password_file=tmp_path / "password") as backend:
        backend.require_usable()
        client.execute_command("ACL", "SETUSER", "default", ">own")
        try:
            backend.shared_servers.ask_masters("RESET")
            assert backend.shared_servers.ask(b"k", "GET", b"k") is None
        finally:
            client.execute_command("ACL", "SETUSER", "default", "nopass")


def test_user_and_password_in_the_file_of_the_url_are_read_again(own_redis, tmp_path):
    started, client = own_redis
    path = tmp_path / "url"
    allow(client, "canary-1", "blue")
    allow(client, "canary/2", "green")
    path.write_text(f"redis://blue:canary-1@localhost:{started.port}/0")
    with backend_of(url_file=path) as backend:
        backend.require_usable()
        path.write_text(f"redis://green:canary%2F2@localhost:{started.port}/0")
        client.execute_command("ACL", "DELUSER", "blue")
        assert backend.shared_servers.ask_masters("ACL", "WHOAMI").popitem()[1] == b"green"


def test_a_first_login_that_is_refused_is_final(own_redis, tmp_path):
    started, client = own_redis
    (tmp_path / "password").write_text("canary-1")
    allow(client, "canary-2")
    with backend_of(url=started.url, username="app", password_file=tmp_path / "password") as backend:
        assert "the store refuses the login: check redis.username" in refusal(backend, StoreMisconfigured)


@pytest.mark.parametrize("mode", ["single", "cluster"])
def test_the_tokens_of_a_provider_that_last_seconds_are_renewed(redis_program, mode):
    options = {"cluster-enabled": "yes"} if mode == "cluster" else {}
    with make_redis(redis_program, options=options) as started, redis.Redis(port=started.port) as client:
        place = {"url": started.url}
        if mode == "cluster":
            client.cluster("ADDSLOTSRANGE", 0, redis_sets.SLOTS_COUNT - 1)
            wait_until(lambda: client.cluster("INFO")["cluster_state"] == "ok", what="the cluster")
            place = {"mode": "cluster", "nodes": f"127.0.0.1:{started.port}"}
        place["credential_provider"] = "tests.token_login:provider"
        with ExpiringTokens(started.port) as tokens, backend_of(**place) as backend:

            def still_serves():
                try:
                    backend.shared_servers.ask(b"k", "SET", b"k", b"v")
                except StoreUnavailable as error:  # the token ended while the connection was made
                    failures.append(error)
                    return False
                return tokens.ended_count >= 3

            failures: list[StoreUnavailable] = []
            wait_until(still_serves, what="three ends of tokens")
            assert len(failures) <= tokens.ended_count


@pytest.mark.parametrize(("provider", "error"), [("failing_provider", "OSError"), ("ExpiringTokens", "TypeError")])
def test_a_provider_without_a_login_is_waited_for_and_its_words_are_not_repeated(own_redis, provider, error):
    started, _ = own_redis
    with backend_of(url=started.url, credential_provider=f"tests.token_login:{provider}") as backend:
        assert f"redis.credential_provider gives no login: {error}" in refusal(backend, StoreUnavailable)


def test_a_provider_is_made_once_for_all_logins(monkeypatch):
    made = []
    monkeypatch.setattr(token_login, "provider", lambda: made.append(token_login.Provider()) or made[-1])
    login = login_of_provider("tests.token_login:provider")
    assert [login.get_credentials()[0] for _ in range(2)] == [token_login.USER] * 2
    assert len(made) == 1


@pytest.mark.long
def test_client_certificates_are_read_again_for_a_new_connection(tmp_path):
    started = redis_sets.TlsServer()
    files = {"ssl_cert_file": tmp_path / "client.pem", "ssl_key_file": tmp_path / "client.key"}
    for path, name in zip(files.values(), ("other.pem", "other.key"), strict=True):
        shutil.copy(TLS / name, path)
    with started:
        place = {"url": f"rediss://localhost:{started.port}/0", "ssl_ca_file": TLS / "certificate.pem"}
        with backend_of(**place, **files) as backend:
            refusal(backend, StoreUnavailable)
            for path, name in zip(files.values(), ("certificate.pem", "plain.key"), strict=True):
                shutil.copy(TLS / name, path)
            backend.require_usable()
