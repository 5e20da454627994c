"""The memory of the fullest master, by which the daemon warns; rows of each call, and calls of each round trip."""

import contextlib
import itertools
import socket
import threading
from types import SimpleNamespace

import pytest
import redis
from redis.exceptions import NoScriptError

from streamdedup.errors import StoreMisconfigured, StreamdedupError
from streamdedup.index.backend import ServerFacts
from streamdedup.index.redis import scripts
from streamdedup.index.redis.backend import _server_facts
from streamdedup.index.redis.checks import _check_kind, _check_sentinels
from streamdedup.index.redis.keys import Keys
from streamdedup.index.redis.pairs import _FULL_CALL, _split_calls
from streamdedup.index.redis.store import _fullest
from streamdedup.index.redis.tls import tls_mismatch
from streamdedup.index.values import StoreStats


def test_the_fullest_master_uses_most_of_its_limit():
    unlimited = {"used_memory": 900, "maxmemory": 0}
    roomy = {"used_memory": 500, "maxmemory": 1_000}
    full = {"used_memory": 50, "maxmemory": 60}
    assert _fullest([unlimited, roomy, full]) == StoreStats(50, 60)
    assert _fullest([unlimited, unlimited | {"used_memory": 901}]) == StoreStats(901, None)


def test_calls_of_several_round_trips_are_sent_once_and_in_order(monkeypatch):
    monkeypatch.setattr(scripts, "_ROUND_TRIP_ARGUMENTS", 4)
    round_trips = []

    def send_raw(commands):
        round_trips.append(len(commands))
        return [command.parts[-1] for command in commands]

    calls = [scripts.Call(next(iter(scripts.read_scripts())), [b"key"], [0, number]) for number in range(5)]
    assert scripts.Scripts(SimpleNamespace(send_raw=send_raw), b"any").run(calls) == [0, 1, 2, 3, 4]
    assert round_trips == [2, 2, 1]


def test_scripts_are_loaded_where_any_server_lacks_one():
    loaded: list[bytes] = []

    def send_raw(commands):
        return [
            command.parts[-1] if number == 0 or loaded else NoScriptError() for number, command in enumerate(commands)
        ]

    servers = SimpleNamespace(send_raw=send_raw, ask_masters=lambda _command, source: loaded.append(source))
    calls = [scripts.Call(next(iter(scripts.read_scripts())), [b"key"], [number]) for number in range(2)]
    assert scripts.Scripts(servers, b"any").run(calls) == [0, 1]
    assert len(loaded) == len(scripts.read_scripts())


@pytest.mark.parametrize("reply", [b"+PONG\r\n", b"-NOAUTH Authentication required.\r\n"])
def test_a_server_that_answers_without_tls_is_named(reply):
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer():
            connection, _ = server.accept()
            with connection:
                assert connection.recv(100) == b"PING\r\n"
                connection.sendall(reply)

        thread = threading.Thread(target=answer)
        thread.start()
        mismatch = tls_mismatch([server.getsockname()], uses_tls=True, has_url=False)
        thread.join()
    assert mismatch is not None
    assert mismatch.endswith("set redis.tls = false")


def test_each_call_is_filled_before_the_next_begins():
    calls = list(_split_calls([0] * (2 * _FULL_CALL + 5) + [1], [1] * (2 * _FULL_CALL + 6)))
    assert [(slot, len(rows)) for slot, rows in calls] == [(0, _FULL_CALL), (0, _FULL_CALL), (0, 5), (1, 1)]


def test_the_facts_of_a_server_have_its_memory_limit_if_there_is_one():
    info = {"redis_version": "7.0.15", "used_memory": 5, "maxmemory_policy": "noeviction"}
    facts = _server_facts("h:1", {**info, "maxmemory": 9})
    assert facts == ServerFacts("h:1", "Redis 7.0.15", used_bytes=5, limit_bytes=9, eviction_policy="noeviction")
    assert _server_facts("h:1", {**info, "maxmemory": 0}).limit_bytes is None


@pytest.mark.parametrize(
    ("mode", "info", "error"),
    [
        ("single", {"sentinel_masters": 1}, "names a Sentinel"),
        ("single", {"redis_version": "6.2.14"}, r"runs Redis 6\.2\.14"),
        ("single", {"cluster_enabled": 1}, "part of a cluster"),
        ("single", {"role": "slave"}, "is a replica"),
        ("cluster", {"role": "slave"}, "has become a replica"),
        ("cluster", {"cluster_enabled": 1, "role": "master"}, None),
    ],
)
def test_a_server_of_another_kind_is_refused(mode, info, error):
    with pytest.raises(StreamdedupError, match=error) if error else contextlib.nullcontext():
        _check_kind(SimpleNamespace(mode=mode), {"redis_version": "7.0.15", **info})


def test_sentinels_whose_certificates_are_all_untrusted_are_a_wrong_setting():
    def untrusted():
        raise redis.ConnectionError("Error 1 connecting to h:1. [SSL: CERTIFICATE_VERIFY_FAILED] self-signed.")

    def pool(*sentinels):
        manager = SimpleNamespace(sentinels=[SimpleNamespace(sentinel_masters=ask) for ask in sentinels])
        return SimpleNamespace(sentinel_manager=manager, service_name="index")

    def hanging():
        raise redis.TimeoutError("Timeout reading from socket")

    _check_sentinels(pool(untrusted, hanging, lambda: {"index": {}}))
    with pytest.raises(StoreMisconfigured, match="certificate"):
        _check_sentinels(pool(untrusted, untrusted))


def test_one_sentinel_that_knows_the_master_is_enough():
    sentinels = [SimpleNamespace(sentinel_masters=lambda names=names: names) for names in ({"index": {}}, {})]
    for ordered in itertools.permutations(sentinels):
        pool = SimpleNamespace(sentinel_manager=SimpleNamespace(sentinels=ordered), service_name="index")
        _check_sentinels(pool)
        pool.service_name = "other"
        with pytest.raises(StoreMisconfigured, match="no Sentinel knows other; they know: index"):
            _check_sentinels(pool)


def test_the_slot_of_a_digest_comes_from_its_first_bytes_the_highest_first():
    assert Keys("sd:articles", 9).digest_slot(bytes(3) + b"\x05" + bytes(12)) == 5
