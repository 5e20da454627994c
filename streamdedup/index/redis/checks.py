"""Checks of the servers, which write no key: findings for `streamdedup check` and `run`, errors for wrong servers.

A command in ``PROBES`` is also in docs/redis.md.
"""

import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from redis import exceptions
from redis.sentinel import SentinelConnectionPool

from streamdedup.errors import StoreMisconfigured, StoreUnavailable
from streamdedup.findings import Finding
from streamdedup.index.redis.errors import GRANT, is_untrusted, translated
from streamdedup.index.redis.scripts import read_scripts
from streamdedup.index.redis.servers import Command, OneServer, Servers
from streamdedup.index.values import NEARLY_FULL

#: A call of each command that the daemon needs and the checks do not call themselves; "@" becomes a guard.
PROBES = (
    # Server and keys
    *("ping", "time"),
    *("exists @", "unlink @", "rename @ @", "pexpire @ 1", "pexpireat @ 1"),
    # Strings and HyperLogLogs
    *("get @", "set @ 0", "mget @"),
    *("pfadd @ 0", "pfcount @"),
    # Sets and sorted sets
    *("sadd @ 0", "srem @ 0", "scard @", "smembers @", "srandmember @"),
    *("zadd @ 1 0", "zrem @ 0", "zremrangebyrank @ 0 0", "zrevrange @ 0 0"),
    # Hashes
    *("hsetnx @ 0 0", "hset @ 0 0", "hget @ 0", "hdel @ 0", "hgetall @", "hlen @"),
)
#: The further commands of a daemon that rebuilds a lost index by itself.
REBUILD_PROBES = ("scan 0 count 1",)
#: Oldest server version, the first with NX and GET together in SET.
_OLDEST_VERSION = (7, 0)
#: Difference of two clocks, in seconds, beyond which at least one of them is not set by NTP.
_CLOCK_LIMIT_S = 30.0


def check_redis(
    servers: Servers, address: str, *, keys: Sequence[bytes], rebuilds: bool, key_pattern: str
) -> Iterator[Finding]:
    """Yield the result of each check; raise for a request without an answer.

    ``keys`` are the guards of all slots, ``key_pattern`` is that of all keys of the installation, for a rule of an ACL.
    """
    facts = read_facts(servers)
    for name, info in facts.items():
        shown_address = address if servers.mode == "single" else name
        yield Finding.ok("redis", f"Redis at {shown_address} answers: {software(info)}, {servers.mode}")
    for name, info in facts.items():
        yield from _master_findings(store_name(servers, name), name, info)
    yield from _clocks(servers)
    yield from _rights(servers, keys, (*PROBES, *(REBUILD_PROBES if rebuilds else ())), key_pattern)


def _master_findings(store: str, address: str, info: Mapping[str, Any]) -> Iterator[Finding]:
    try:
        warnings = policy_warnings(store, info)
    except StoreMisconfigured as error:
        yield Finding.failure("redis_eviction", error, _set_config(address, "maxmemory-policy", "noeviction"))
    else:
        yield from (Finding.warning("redis_eviction", text) for text in warnings)
        if not warnings:
            yield Finding.ok("redis_eviction", f"{store} keeps every key (maxmemory-policy noeviction)")
    yield _memory(store, info)
    yield _persistence(store, address, info)


def _memory(store: str, info: Mapping[str, Any]) -> Finding:
    used_bytes, limit_bytes = int(info.get("used_memory", 0)), int(info.get("maxmemory", 0))
    used_text = f"{store} uses {used_bytes / 2**20:,.1f} MiB"
    if not limit_bytes:
        text = f"{used_text} and has no memory limit (maxmemory 0): the machine's memory is the limit"
        return Finding.ok("redis_memory", text)
    text = f"{used_text} of {limit_bytes / 2**20:,.1f} MiB"
    if used_bytes > NEARLY_FULL * limit_bytes:
        return Finding.warning("redis_memory", f"{text}: raise maxmemory; a full store holds up all daemons")
    return Finding.ok("redis_memory", text)


def _set_config(address: str, key: str, value: str) -> str:
    """Return the command line that sets a parameter of a server; ``address`` is a path, or host and port."""
    host, colon, port = address.rpartition(":")
    server = ["-h", host, "-p", port] if colon else ["-s", address]
    return shlex.join(["redis-cli", *server, "CONFIG", "SET", key, value])


def _persistence(store: str, address: str, info: Mapping[str, Any]) -> Finding:
    for field, kind in (("aof_last_write_status", "append-only file"), ("rdb_last_bgsave_status", "snapshot")):
        if info.get(field, "ok") != "ok":
            text = f"{store} could not write its last {kind} and may refuse writes (MISCONF): see its log and its disk"
            return Finding.warning("redis_persistence", text)
    if int(info.get("aof_enabled", 0)):
        return Finding.ok("redis_persistence", f"{store} writes an append-only file")
    return Finding.warning(
        "redis_persistence",
        f"{store} writes no append-only file: after a crash the index is gone, or as old as the last snapshot, and "
        "must be built anew; set appendonly yes, in its configuration file too",
        _set_config(address, "appendonly", "yes"),
    )


def _clocks(servers: Servers) -> Iterator[Finding]:
    before_s = time.time()
    replies = servers.ask_masters("TIME")
    local_s = (before_s + time.time()) / 2  # in the middle of the round trip
    for name, (seconds, microseconds) in replies.items():
        store = store_name(servers, name)
        ahead_s = int(seconds) + int(microseconds) / 1e6 - local_s
        if abs(ahead_s) > _CLOCK_LIMIT_S:
            direction = "ahead of" if ahead_s > 0 else "behind"
            text = (
                f"the clock of {store} is {abs(ahead_s):,.0f} s {direction} this machine's, so one of them is wrong; "
                "the daemon takes record times beyond its own for mistakes: set both clocks by NTP"
            )
            yield Finding.warning("redis_clock", text)
        else:
            yield Finding.ok("redis_clock", f"the clock of {store} agrees with this machine's")


def _rights(servers: Servers, keys: Sequence[bytes], probes: Sequence[str], key_pattern: str) -> Iterator[Finding]:
    """Check the rights by a script, which stays in the server's cache."""
    script = read_scripts()["check_permissions"]
    try:
        servers.ask_masters("SCRIPT LOAD", script.source)
        replies = servers.ask_many([Command(key, ("EVALSHA", script.sha, 1, key, *probes)) for key in keys])
    except StoreMisconfigured as error:
        if not isinstance(error.__cause__, exceptions.NoPermissionError):
            raise
        # Scripts are not permitted, so it is unknown which other commands are.
        yield Finding.failure("redis_rights", StoreMisconfigured(f"{error}, with {key_pattern} for the keys"))
        return
    # A reply is a list of lines: command, colon, refusal.
    refused = sorted({line.decode(errors="replace").partition(":")[0].upper() for lines in replies for line in lines})
    if refused:
        lacking = StoreMisconfigured(
            f"the store refuses us: the user (redis.username) lacks rights on the keys of the index, or on the "
            f"commands {', '.join(refused)}; {GRANT}, with {key_pattern} for the keys"
        )
        yield Finding.failure("redis_rights", lacking)
    else:
        yield Finding.ok("redis_rights", "all commands that the daemon needs are granted")


def read_facts(servers: Servers) -> dict[str, dict[str, Any]]:
    """Return each master's reply to ``INFO``, by address; raise unless the servers are as in the settings."""
    if isinstance(servers, OneServer) and isinstance(servers.client.connection_pool, SentinelConnectionPool):
        _check_sentinels(servers.client.connection_pool)
    facts = servers.ask_masters("INFO")
    for info in facts.values():
        _check_kind(servers, info)
    return facts


def require_usable(servers: Servers) -> list[str]:
    """Raise unless each server is as in the settings, accepts writes and keeps every key; return warnings."""
    facts = read_facts(servers).items()
    return [text for name, info in facts for text in policy_warnings(store_name(servers, name), info)]


def software(info: Mapping[str, Any]) -> str:
    valkey = info.get("valkey_version")
    return f"Valkey {valkey}" if valkey else f"Redis {info.get('redis_version')}"


def store_name(servers: Servers, address: str) -> str:
    """Return the noun phrase for a master; cluster masters are named by their addresses."""
    return f"the store {address}" if servers.mode == "cluster" else "the store"


def _check_kind(servers: Servers, info: Mapping[str, Any]) -> None:
    version = str(info.get("redis_version", "0"))
    if "sentinel_masters" in info:
        raise StoreMisconfigured('redis.url names a Sentinel; name it in redis.nodes, with redis.mode = "sentinel"')
    if tuple(int(part) for part in version.split(".")[:2] if part.isdigit()) < _OLDEST_VERSION:
        raise StoreMisconfigured(f"the store runs Redis {version}; streamdedup needs 7.0 or newer, or Valkey")
    # In the reverse case the client has raised an error already (``errors._wrong_server``).
    if info.get("cluster_enabled") and servers.mode != "cluster":
        raise StoreMisconfigured('the store is part of a cluster; set redis.mode = "cluster" and redis.nodes')
    if info.get("role") == "slave":
        if servers.mode == "single":
            raise StoreMisconfigured("the store is a replica; redis.url must name the master")
        raise StoreUnavailable("the store's master has become a replica: a failover is under way")


def policy_warnings(store: str, info: Mapping[str, Any]) -> list[str]:
    """Raise if the server ``store`` drops keys when it is full; return a warning if only a memory limit is missing."""
    policy = info.get("maxmemory_policy", "noeviction")
    if policy == "noeviction":
        return []
    advice = "set it to noeviction (CONFIG SET maxmemory-policy noeviction)"
    if info.get("maxmemory"):
        raise StoreMisconfigured(
            f"{store} would drop keys when full and pairs would be missed; its maxmemory-policy is {policy}: {advice}"
        )
    return [f"{store} would drop keys if a memory limit were set; its maxmemory-policy is {policy}: {advice}"]


def _check_sentinels(pool: SentinelConnectionPool) -> None:
    """Raise unless the Sentinels know the master; a master that is away at the moment passes."""
    masters: set[str] = set()
    has_answer = False
    untrusted: exceptions.RedisError | None = None
    for sentinel in pool.sentinel_manager.sentinels:
        try:
            masters |= set(sentinel.sentinel_masters())
            has_answer = True
        except (exceptions.AuthenticationError, exceptions.NoPermissionError) as error:
            raise StoreMisconfigured(
                f"a Sentinel refuses us; check redis.sentinel_username and password: {error}"
            ) from error
        except exceptions.ResponseError as error:
            # All other errors say nothing about the master: the next Sentinel is asked.
            if "unknown command" in str(error).lower():
                raise StoreMisconfigured("redis.nodes names a server that is no Sentinel") from error
        except (exceptions.ConnectionError, exceptions.TimeoutError) as error:
            if is_untrusted(error):
                untrusted = error
    if untrusted is not None and not has_answer:
        with translated():
            raise untrusted
    if has_answer and pool.service_name not in masters:
        names = ", ".join(sorted(masters)) or "none"
        raise StoreMisconfigured(f"redis.sentinel_service: no Sentinel knows {pool.service_name}; they know: {names}")
