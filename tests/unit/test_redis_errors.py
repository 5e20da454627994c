"""What an error of the Redis client means: come back later, or ask an operator."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from threading import Thread
from types import SimpleNamespace

import pytest
from redis import exceptions

from streamdedup.errors import StoreMisconfigured, StoreUnavailable
from streamdedup.index.redis import tls
from streamdedup.index.redis.cluster_servers import ClusterServers
from streamdedup.index.redis.connection import RenewedLogin, connect, connect_cluster, connect_sentinel
from streamdedup.index.redis.errors import check_replies, translated
from streamdedup.index.redis.servers import Command


def wrapped(cause):
    """What the client of a cluster makes of an error that kept it from reading the map of the slots."""
    inner = exceptions.RedisClusterException("Cluster mode is not enabled on this node")
    inner.__context__ = cause
    outer = exceptions.RedisClusterException(f"Redis Cluster cannot be connected: {inner}")
    outer.__cause__ = inner
    return outer


PASSING = [
    exceptions.ConnectionError("Connection refused"),
    exceptions.TimeoutError("Timeout reading from socket"),
    exceptions.BusyLoadingError("Redis is loading the dataset in memory"),
    exceptions.OutOfMemoryError("command not allowed when used memory > 'maxmemory'."),
    exceptions.ReadOnlyError("You can't write against a read only replica."),
    exceptions.MovedError("866 127.0.0.1:7000"),
    exceptions.AskError("866 127.0.0.1:7000"),
    exceptions.TryAgainError("Multiple keys request during rehashing of slot"),
    exceptions.ClusterDownError("The cluster is down"),
    exceptions.MasterDownError("Link with MASTER is down"),
    exceptions.ClusterError("TTL exhausted."),
    exceptions.SlotNotCoveredError('Slot "866" is not covered by the cluster.'),
    exceptions.NoScriptError("No matching script."),
    exceptions.ResponseError("MISCONF Errors writing to the AOF file"),
    exceptions.ResponseError("NOREPLICAS Not enough good replicas to write."),
    exceptions.ResponseError("BUSY Redis is busy running a script."),
    exceptions.ResponseError("READONLY You can't write against a read only replica."),
    exceptions.ResponseError("TRYAGAIN Multiple keys request during rehashing of slot"),
    exceptions.ResponseError("max number of clients + cluster connections reached"),
    wrapped(exceptions.ConnectionError("Connection refused")),
    wrapped(exceptions.BusyLoadingError("Redis is loading the dataset in memory")),
]
FOR_GOOD = [
    exceptions.ConnectionError("Error 1 connecting to h:1. [SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed"),
    exceptions.AuthenticationError("invalid username-password pair or user is disabled."),
    exceptions.NoPermissionError("User u has no permissions to run the 'get' command"),
    exceptions.ResponseError("ACL failure in script: User u has no permissions to run the 'sadd' command"),
    exceptions.ResponseError("The user executing the script can't run this command or subcommand"),
    exceptions.ResponseError("WRONGTYPE Operation against a key holding the wrong kind of value"),
    exceptions.ClusterCrossSlotError("Keys in request don't hash to the same slot"),
    wrapped(exceptions.AuthenticationError("invalid username-password pair or user is disabled.")),
    wrapped(exceptions.NoPermissionError("User u has no permissions to run the 'cluster|slots' command")),
    wrapped(exceptions.ResponseError("This instance has cluster support disabled")),
]
EVERY = [(error, StoreUnavailable) for error in PASSING] + [(error, StoreMisconfigured) for error in FOR_GOOD]


@pytest.mark.parametrize(("error", "kind"), EVERY, ids=[f"{type(error).__name__}: {error}"[:60] for error, _ in EVERY])
def test_an_error_is_waited_out_or_put_to_an_operator(error, kind):
    with pytest.raises(kind):
        check_replies([error])
    with pytest.raises(kind), translated():
        raise error


MISSING = r"set redis\.password, and redis\.username"
REFUSED = (
    r"check redis\.username and redis\.password, or .* redis\.url \(redis\.url_file\), or redis\.credential_provider"
)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (exceptions.AuthenticationError("HELLO must be called with the client already authenticated"), MISSING),
        (exceptions.AuthenticationError("Authentication required."), MISSING),
        (exceptions.ResponseError("NOAUTH HELLO must be called with the client already authenticated"), MISSING),
        (exceptions.AuthenticationError("invalid username-password pair or user is disabled."), REFUSED),
        (wrapped(exceptions.AuthenticationError("WRONGPASS invalid username-password pair")), REFUSED),
    ],
)
def test_a_login_that_is_missing_or_refused_is_told_with_the_settings_that_hold_it(error, said):
    with pytest.raises(StoreMisconfigured, match=said):
        check_replies([error])


@pytest.mark.parametrize(
    "text",
    [
        "this user has no permissions to access one of the keys used as arguments",
        "No permissions to access a key",
        "User u has no permissions to access the 'x' key",
        "The user executing the script can't access at least one of the keys mentioned in the command arguments",
        "ACL failure in script: No permissions to access a key script: on @user_script:1.",
    ],
)
def test_a_right_that_is_missing_on_the_keys_is_told_with_the_setting_that_begins_them(text):
    with pytest.raises(StoreMisconfigured, match=r"lacks rights on the keys.*redis\.key_prefix"):
        check_replies([exceptions.NoPermissionError(text) if "script" not in text else exceptions.ResponseError(text)])


NO_MEMORY = "its memory is full; raise its limit (maxmemory), or drop unused indexes"
NO_SPACE = "its append-only file cannot be written (MISCONF: No space left on device); make room on the disk that h"
NO_SNAPSHOT = "its snapshots cannot be written (MISCONF); its log names the reason, often a full disk"
NO_REPLICAS = "NOREPLICAS Not enough good replicas to write"


@pytest.mark.parametrize("script", ["", " script: 8d1f2a, on @user_script:1."])
@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("command not allowed when used memory > 'maxmemory'.", NO_MEMORY),
        ("OOM command not allowed when used memory > 'maxmemory'.", NO_MEMORY),
        ("MISCONF Errors writing to the AOF file: No space left on device", NO_SPACE),
        ("MISCONF Redis is configured to persist data to AOF, but ... AOF error: No space left on device", NO_SPACE),
        ("MISCONF Valkey is configured to save RDB snapshots, but it's currently unable to persist", NO_SNAPSHOT),
        (NO_REPLICAS, NO_REPLICAS),
    ],
)
def test_a_store_that_cannot_write_is_told_with_the_cure_and_without_the_script(text, condition, script):
    kind = exceptions.OutOfMemoryError if text.startswith("command") else exceptions.ResponseError
    with pytest.raises(StoreUnavailable) as caught:
        check_replies([kind(f"{text}{script}")])
    assert str(caught.value).startswith(f"the store does not serve us now: {condition}")
    assert "script" not in str(caught.value)


def test_sentinels_that_are_away_are_named_without_the_options_of_their_clients():
    with connect_sentinel([("127.0.0.1", 1), ("localhost", 1)], "articles") as servers:
        with pytest.raises(StoreUnavailable) as caught:
            servers.ask_masters("PING")
        reason = "127.0.0.1:1 - network:ConnectionError, localhost:1 - network:ConnectionError"
        condition = f"does not serve us now: No master found for 'articles' : {reason}"
        assert str(caught.value) == f"the store at the master of articles {condition}"


NO_RIGHT = "User u has no permissions to run the 'time' command"


@pytest.mark.parametrize(
    "error",
    [
        exceptions.NoPermissionError(NO_RIGHT),
        exceptions.ResponseError(f"ACL failure in script: {NO_RIGHT} script: on @user_script:1."),
    ],
)
def test_a_missing_right_points_to_the_page_that_lists_all(error):
    with pytest.raises(StoreMisconfigured) as caught:
        check_replies([error])
    cure = "grant what docs/redis.md lists under User and rights"
    assert str(caught.value) == f"the store refuses us: the user (redis.username) lacks rights: {NO_RIGHT}; {cure}"


def test_a_key_that_is_not_text_is_shown_with_escapes():
    error = exceptions.ResponseError("WRONGTYPE Operation against a key holding the wrong kind of value")
    with pytest.raises(StoreMisconfigured, match=r"the key \{sd:a:0\}d\\x1f ~\\x7f\\xff holds"):
        check_replies([error], [b"{sd:a:0}d\x1f ~\x7f\xff"])


def test_whatever_led_to_an_ordinary_error_does_not_count():
    error = exceptions.ConnectionError("Connection refused")
    error.__context__ = exceptions.AuthenticationError("of an earlier call")
    with pytest.raises(StoreUnavailable):
        check_replies([error])


def test_an_error_that_says_nothing_is_named():
    with pytest.raises(StoreUnavailable, match="TimeoutError"):
        check_replies([exceptions.TimeoutError()])


@contextmanager
def server_that_answers(reply: bytes) -> Iterator[str]:
    """Run a server that sends these bytes on each connection, and nothing more; yield its address."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            accepted = []
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    break
                accepted.append(connection)
                connection.sendall(reply)
            for connection in accepted:
                connection.close()

        thread = Thread(target=serve)
        thread.start()
        try:
            yield f"127.0.0.1:{listening.getsockname()[1]}"
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join()


@pytest.mark.parametrize(
    ("reply", "timeout_s", "kind", "said"),
    [
        (b"", 0.05, StoreUnavailable, "the store at {address} does not serve us now: Timeout reading from socket"),
        (b"HTTP/1.1 400 Bad\r\n", 60.0, StoreMisconfigured, "the store at {address} does not answer as Redis does; "),
    ],
    ids=["silent", "http"],
)
def test_the_error_of_a_server_that_does_not_answer_has_its_address(reply, timeout_s, kind, said):
    with server_that_answers(reply) as address, connect(f"redis://{address}/0", timeout_s=timeout_s) as servers:
        with pytest.raises(kind) as caught:
            servers.ask_masters("PING")
        assert str(caught.value).startswith(said.format(address=address))


def test_a_server_without_a_port_in_its_url_is_named_with_the_default():
    with connect("redis://store-1") as servers:
        assert servers._address() == "store-1:6379"


def test_an_address_is_named_once():
    error = exceptions.ConnectionError("Error 111 connecting to store-1:6379. Connection refused.")
    with pytest.raises(StoreUnavailable) as caught, translated(lambda: "store-1:6379"):
        raise error
    assert str(caught.value) == f"the store does not serve us now: {error}"


def test_a_cluster_of_which_no_node_answers_is_looked_for_by_the_nodes_of_the_settings():
    clients: list[SimpleNamespace] = []

    def raises(error: Exception) -> None:
        raise error

    def open_client() -> SimpleNamespace:
        client = SimpleNamespace(
            get_node_from_key=lambda _key: raises(exceptions.SlotNotCoveredError("no slots")),
            nodes_manager=SimpleNamespace(initialize=lambda: raises(exceptions.RedisClusterException("no nodes"))),
            close=lambda: client.__dict__.update(is_closed=True),
            is_closed=False,
        )
        clients.append(client)
        return client

    servers = ClusterServers(open_client)
    for count in (1, 2):
        with pytest.raises(StoreUnavailable):
            servers.send_raw([Command(b"key", ("GET", "key"))])
        assert [client.is_closed for client in clients] == [True] * count


def cluster_that_replies(*replies: object) -> tuple[ClusterServers, list[str]]:
    """Return a cluster of one node, which gives these replies, and what it is sent: "GET" or "map"."""
    sent: list[str] = []
    remaining = iter(replies)

    def send(*_arguments: object, **_options: object) -> list[object]:
        sent.append("GET")
        return [next(remaining)]

    client = SimpleNamespace(
        get_node_from_key=lambda _key: SimpleNamespace(name="store-1:6379"),
        pipeline=lambda: SimpleNamespace(send_cluster_commands=send),
        nodes_manager=SimpleNamespace(initialize=lambda: sent.append("map")),
    )
    return ClusterServers(lambda: client), sent


def test_a_cluster_is_asked_for_a_new_map_in_the_call_after_a_time_out():
    servers, sent = cluster_that_replies(exceptions.TimeoutError("Timeout reading from socket"), b"value", b"value")
    with pytest.raises(StoreUnavailable, match=r"Timeout reading from socket \(store-1:6379\)"):
        servers.ask(b"key", "GET", "key")
    assert sent == ["GET"]
    for _ in range(2):
        assert servers.ask(b"key", "GET", "key") == b"value"
    assert sent == ["GET", "map", "GET", "GET"]


def test_a_node_that_is_cut_off_from_its_cluster_is_left_for_the_new_master():
    servers, sent = cluster_that_replies(exceptions.ClusterDownError("The cluster is down"), b"value")
    assert servers.ask(b"key", "GET", "key") == b"value"
    assert sent == ["GET", "map", "GET"]


@pytest.mark.parametrize(
    "open_servers",
    [
        partial(connect, "redis://store-1"),
        partial(connect_sentinel, [("store-1", 1)], "articles"),
        partial(connect_cluster, [("store-1", 1)]),
    ],
    ids=["single", "sentinel", "cluster"],
)
def test_a_new_login_is_waited_for_after_the_first_connection(open_servers):
    login = RenewedLogin("redis.password_file", lambda: ("canary",))
    with open_servers(security={"credential_provider": login}) as servers:
        for kind in (StoreMisconfigured, StoreUnavailable):
            with pytest.raises(kind), translated(new_login_setting=servers.connections.new_login_setting):
                raise exceptions.AuthenticationError("invalid username-password pair or user is disabled.")
            servers.connections.count_connection(None)


def test_a_sentinel_has_the_time_of_a_connect_to_answer():
    with connect_sentinel([("127.0.0.1", 1)], "articles", timeout_s=60.0, connect_timeout_s=1.0) as servers:
        (sentinel,) = servers.client.connection_pool.sentinel_manager.sentinels
        assert sentinel.get_connection_kwargs()["socket_timeout"] == 1.0


def test_each_address_is_tried_for_a_disagreement_about_tls(monkeypatch):
    monkeypatch.setattr(tls, "_answers_tls", lambda _host, port: port == 2)
    mistake = tls.tls_mismatch([("h", 1), ("h", 2)], uses_tls=False, has_url=False)
    assert "h:2 answers a TLS handshake" in mistake
