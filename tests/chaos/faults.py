"""Faults of daemons, servers and the network between them; each fault begins, lasts and is reverted.

A fault begins while a daemon, the victim, is held at a point of a stage, so the step that it interrupts is known. Its
effects are read from the trace of the daemon, and from counters of the server where the daemon tolerates the fault
without a trace.
"""

import contextlib
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import redis

from tests import servers
from tests.chaos.proxy import Proxy
from tests.chaos.world import SESSION_S, Passage, WatchedDaemon, World
from tests.support.processes import pause, resume

#: Points at which a daemon is held, by stage. At each of them a batch is partly done.
POINTS = {
    "index": (
        "after_insert_entries",
        "before_insert_and_look_up",
        "after_insert_and_look_up",
        "after_save_pending_matches",
        "before_claim_pairs",
        "after_claim_pairs",
    ),
    "sending": ("after_begin", "after_send", "before_flush"),
    "commit": ("before_send_offsets", "after_send_offsets", "before_commit", "after_commit"),
}
#: Duration from which a step counts as slow, in seconds; without a fault a step takes less than a tenth of it.
SLOW_S = 0.25
#: Longest time that a daemon may take to stop, in seconds.
STOP_S = 120.0


@dataclass
class Strike:
    """A fault in progress; its victim is held. ``spare`` creates a further daemon.

    ``effects`` are those that the servers report. ``stops_s``: time that each requested stop took, in seconds.
    """

    world: World
    victim: WatchedDaemon
    spare: Callable[[], WatchedDaemon]
    rng: random.Random
    effects: list[str] = field(default_factory=list)
    stops_s: list[float] = field(default_factory=list)

    def pause(self, least_s: float, most_s: float) -> None:
        time.sleep(self.rng.uniform(least_s, most_s))


def kill(strike: Strike) -> None:
    strike.victim.kill()
    strike.victim.release()
    strike.victim.start()


def freeze(strike: Strike) -> None:
    """Stop the daemon (SIGSTOP) until its session has ended, and let it continue."""
    strike.pause(SESSION_S + 1, SESSION_S + 3)
    strike.victim.release()


def terminate(strike: Strike) -> None:
    """Request a stop in the middle of a batch, and start the daemon again."""
    os.kill(strike.victim.process.pid, signal.SIGTERM)
    strike.victim.release()
    _stopped(strike, strike.victim)
    strike.victim.start()


def _stopped(strike: Strike, daemon: WatchedDaemon) -> None:
    since = time.monotonic()
    code = daemon.wait(STOP_S)
    strike.stops_s.append(round(time.monotonic() - since, 2))
    if code != 0:
        raise AssertionError(f"{daemon.name} ended with {code} when asked to stop; its log: {daemon.log}")


def join_and_leave(strike: Strike) -> None:
    """Let a further daemon join the group while the victim processes a batch, work, and leave."""
    further = strike.spare()
    try:
        further.start()
        further.wait_passed("before_poll")
        strike.victim.release()
        strike.pause(1.0, 3.0)
        os.kill(further.process.pid, signal.SIGTERM)
        _stopped(strike, further)
    finally:
        further.__exit__(None, None, None)


def broker_killed(strike: Strike) -> None:
    """Kill a broker and start it again with its data; of three brokers the others take over."""
    broker = strike.rng.choice(strike.world.kafka.brokers)
    broker.kill()
    strike.victim.release()
    strike.pause(1.0, 3.0)
    strike.world.kafka.start()


def redis_killed(strike: Strike) -> None:
    """Kill Redis and start it again with all acknowledged writes."""
    strike.world.redis.kill()
    strike.victim.release()
    strike.pause(0.5, 2.0)
    strike.world.redis.start()


def redis_frozen(strike: Strike) -> None:
    """Stop Redis (SIGSTOP): connections stay open, and requests are answered later."""
    pause(strike.world.redis)
    strike.victim.release()
    strike.pause(1.2, 4.0)
    resume(strike.world.redis)


def redis_clients_paused(strike: Strike) -> None:
    """Let Redis delay all commands (CLIENT PAUSE)."""
    with strike.world.redis_client() as client:
        client.client_pause(strike.rng.randint(600, 2500), all=True)
    strike.victim.release()
    strike.pause(1.0, 2.5)


def redis_full(strike: Strike) -> None:
    with strike.world.redis_client() as client:
        before = _error_count(client, "OOM")
        client.config_set("maxmemory", 1)
        strike.victim.release()
        strike.pause(1.0, 3.0)
        client.config_set("maxmemory", 0)
        strike.effects += ["refused"] * (_error_count(client, "OOM") > before)


def scripts_forgotten(strike: Strike) -> None:
    with strike.world.redis_client() as client:
        before = _error_count(client, "NOSCRIPT")
        client.script_flush()
        strike.victim.release()
        with contextlib.suppress(TimeoutError):
            servers.wait_until(lambda: _error_count(client, "NOSCRIPT") > before, what="a script to be missed")
        strike.effects += ["loaded again"] * (_error_count(client, "NOSCRIPT") > before)


def _error_count(client: redis.Redis, kind: str) -> int:
    found = client.info("errorstats").get(f"errorstat_{kind}", {})
    return int(found.get("count", 0))


def _cut(strike: Strike, proxies: list[Proxy]) -> None:
    """Reset all connections, and refuse new ones for a moment."""
    before = sum(proxy.cut_count for proxy in proxies)
    for proxy in proxies:
        proxy.refuse()
    strike.victim.release()
    strike.pause(0.1, 1.5)
    for proxy in proxies:
        proxy.accept()
    strike.effects += ["cut"] * (sum(proxy.cut_count for proxy in proxies) > before)


def _slow(strike: Strike, proxies: list[Proxy]) -> None:
    delay_s = strike.rng.uniform(SLOW_S, 2 * SLOW_S)
    for proxy in proxies:
        proxy.delay_s = delay_s
    strike.victim.release()
    strike.pause(2.0, 4.0)
    for proxy in proxies:
        proxy.delay_s = 0.0


def _half_open(strike: Strike, proxies: list[Proxy]) -> None:
    """Hold all traffic, then reset the connections; held traffic is lost."""
    for proxy in proxies:
        proxy.hold()
    strike.victim.release()
    strike.pause(1.5, 4.0)
    for proxy in proxies:
        proxy.cut()
        proxy.release()


def _answers_lost(strike: Strike, proxies: list[Proxy]) -> None:
    """Deliver all requests and lose the answers."""
    for proxy in proxies:
        proxy.hold("down")
    strike.victim.release()
    strike.pause(0.3, 3.0)
    for proxy in proxies:
        proxy.cut()
        proxy.release()


def _on(what: Callable[[Strike, list[Proxy]], None], server: str) -> Callable[[Strike], None]:
    def fault(strike: Strike) -> None:
        world = strike.world
        what(strike, [world.redis_proxy] if server == "redis" else world.kafka.proxies)

    return fault


#: Every kind of fault, by name.
KINDS: dict[str, Callable[[Strike], None]] = {
    "kill": kill,
    "freeze": freeze,
    "terminate": terminate,
    "join-and-leave": join_and_leave,
    "broker-killed": broker_killed,
    "redis-killed": redis_killed,
    "redis-frozen": redis_frozen,
    "redis-clients-paused": redis_clients_paused,
    "redis-full": redis_full,
    "redis-scripts-forgotten": scripts_forgotten,
    "redis-cut": _on(_cut, "redis"),
    "redis-slow": _on(_slow, "redis"),
    "redis-half-open": _on(_half_open, "redis"),
    "redis-answers-lost": _on(_answers_lost, "redis"),
    "kafka-cut": _on(_cut, "kafka"),
    "kafka-slow": _on(_slow, "kafka"),
    "kafka-half-open": _on(_half_open, "kafka"),
    "kafka-answers-lost": _on(_answers_lost, "kafka"),
}


def effects_of(passages: list[Passage]) -> Iterator[str]:
    """Yield the effects of a fault on a daemon, from the trace since the last point before the fault.

    A failed step has no end in the trace, and a slow step ends late. A fence is set again under another generation of
    the group, and transactions are initialised again by new clients.
    """
    begun: Passage | None = None
    for passage in passages:
        when, _, step = passage.point.partition("_")
        if when == "before":
            if begun is not None:
                yield f"{begun.point.partition('_')[2]} failed"
            begun = passage
            if step in ("fence", "init_transactions"):
                yield f"{step} again"
        elif when == "after":
            if begun is not None and passage.at_ns - begun.at_ns > SLOW_S * 1e9 and step not in ("poll", "open"):
                yield f"{step} slow"
            begun = None
