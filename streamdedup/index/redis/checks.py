"""Checks of the servers before the first document, without writing keys; for `streamdedup check` and `run`.

Called by ``redis.backend``. A command in ``PROBES`` is also in docs/redis.md. Script: ``check_permissions``.
"""

import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from redis.exceptions import NoPermissionError

from streamdedup.errors import StoreMisconfigured
from streamdedup.findings import Finding
from streamdedup.index.redis.errors import GRANT
from streamdedup.index.redis.facts import policy_warnings, read_facts, software, store_name
from streamdedup.index.redis.scripts import read_scripts
from streamdedup.index.redis.servers import Command, Servers
from streamdedup.index.values import NEARLY_FULL

#: Commands that the checks themselves call.
_CALLED_ANYWAY = ("info", "evalsha", "script load")
#: One call of each other command that the daemon must be permitted to call. "@" is replaced by a guard
#: (``check_redis``).
PROBES = (
    "ping",
    "exists @",
    "get @",
    "set @ 0",
    "mget @",
    "unlink @",
    "sadd @ 0",
    "srem @ 0",
    "scard @",
    "smembers @",
    "srandmember @",
    "rename @ @",
    "zadd @ 1 0",
    "zrem @ 0",
    "zremrangebyrank @ 0 0",
    "zrevrange @ 0 0",
    "time",
    "pexpire @ 1",
    "pexpireat @ 1",
    "hsetnx @ 0 0",
    "hset @ 0 0",
    "hget @ 0",
    "hdel @ 0",
    "hgetall @",
    "hlen @",
    "pfadd @ 0",
    "pfcount @",
)
#: The further commands of a daemon that rebuilds a lost index by itself.
REBUILD_PROBES = ("scan 0 count 1",)
#: Difference of two clocks, in seconds, beyond which at least one of them is not set by NTP.
_CLOCK_LIMIT_S = 30.0


def check_redis(
    servers: Servers, address: str, *, keys: Sequence[bytes], rebuilds: bool, key_pattern: str
) -> Iterator[Finding]:
    """Yield the result of each check; raise for a request without an answer.

    The check of permissions (``lua/check_permissions.lua``) changes no key; its script stays in the server's cache.

    Args:
        keys: The guard of each slot of the indexes, a key that never exists.
        rebuilds: Whether the daemon rebuilds a lost index by itself.
        key_pattern: Pattern of all keys of the installation, for a rule of an ACL.
    """
    facts = read_facts(servers)
    for name, info in facts.items():
        shown = address if servers.mode == "single" else name
        yield Finding.ok("redis", f"Redis at {shown} answers: {software(info)}, {servers.mode}")
    for name, info in facts.items():
        yield from _master_findings(store_name(servers, name), name, info)
    yield from _clocks(servers)
    yield from _rights(servers, keys, (*PROBES, *(REBUILD_PROBES if rebuilds else ())), key_pattern)


def _master_findings(store: str, address: str, info: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield the findings of a master from its reply to ``INFO``; ``store`` is the result of ``store_name``."""
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
    if used_bytes > NEARLY_FULL * limit_bytes:
        text = f"{used_text} of {limit_bytes / 2**20:,.1f} MiB: raise maxmemory; a full store holds up all daemons"
        return Finding.warning("redis_memory", text)
    return Finding.ok("redis_memory", f"{used_text} of {limit_bytes / 2**20:,.1f} MiB")


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
    script = read_scripts()["check_permissions"]
    try:
        servers.ask_masters("SCRIPT LOAD", script.source)
        replies = servers.ask_many([Command(key, ("EVALSHA", script.sha, 1, key, *probes)) for key in keys])
    except StoreMisconfigured as error:
        if not isinstance(error.__cause__, NoPermissionError):
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
        commands_count = len(probes) + len(_CALLED_ANYWAY)
        yield Finding.ok("redis_rights", f"all {commands_count} commands that the daemon needs are granted")
