"""Checks of live servers for ``run`` and ``check``: the requirements of the daemon in one place.

Checks are read-only, and no finding holds a secret.
"""

import socket
import ssl
from collections.abc import Iterator, Mapping

from streamdedup.cli.assembly import index_upkeep, kafka_options, redis_keys
from streamdedup.errors import (
    BrokerMisconfigured,
    BrokerUnavailable,
    IndexLost,
    IndexMismatch,
    StoreMisconfigured,
    StoreUnavailable,
)
from streamdedup.findings import Finding, Level
from streamdedup.index.fingerprints import compare_fingerprints
from streamdedup.index.redis.checks import check_redis
from streamdedup.index.redis.servers import Servers
from streamdedup.indexes import connect_store, lifetime_ms, redis_store
from streamdedup.kafka.admin import TopicNeed, check_kafka
from streamdedup.kafka.group import committed_quietly
from streamdedup.position import Partition
from streamdedup.settings import Settings

#: Time limit of one probe of a port, in seconds.
_PROTOCOL_S = 1.0
#: First bytes of a plain reply of Redis: a status or an error.
_REPLIES = (b"+", b"-")


def topic_needs(settings: Settings) -> list[TopicNeed]:
    """Return the requirements on each topic."""
    kafka = settings.kafka
    inputs = [
        TopicNeed(name=topic, operation="READ", kept_ms=lifetime_ms(profile))
        for profile in settings.profiles.values()
        for topic in profile.topics
    ]
    duplicates = TopicNeed(
        name=kafka.duplicates_topic,
        operation="WRITE",
        message_bytes=kafka.max_message_bytes,
        compaction_loss="drops parts of alerts, and with them the claims by which a rebuild publishes no pair again",
        kept_ms=duplicates_kept_ms(settings),
    )
    letters = TopicNeed(
        name=kafka.dead_letter_topic,
        operation="WRITE",
        message_bytes=kafka.max_message_bytes,
        compaction_loss="refuses messages without a key and drops all but the last of each key",
    )
    return [*inputs, duplicates, letters]


def duplicates_kept_ms(settings: Settings) -> int:
    """Return the time for which a rebuild needs alerts, in milliseconds: the longest lifetime of all profiles."""
    return max(lifetime_ms(profile) for profile in settings.profiles.values())


def kafka_findings(settings: Settings) -> Iterator[Finding]:
    """Yield the findings about Kafka."""
    return check_kafka(kafka_options(settings), topic_needs(settings))


def redis_findings(settings: Settings, servers: Servers) -> Iterator[Finding]:
    """Yield the findings about Redis."""
    keys = [keys.guard(slot) for keys in redis_keys(settings) for slot in range(keys.slots_count)]
    prefix = settings.redis.key_prefix
    findings = check_redis(
        servers,
        settings.redis.shown_url,
        keys=keys,
        rebuilds=settings.service.on_index_lost == "rebuild",
        cure=f"grant what docs/redis.md lists under User and rights, with ~{{{prefix}:* for the keys",
    )
    for finding in findings:
        if finding.error is StoreUnavailable and (mismatch := _protocol_mismatch(settings)) is not None:
            yield Finding.failure(finding.check, finding.subject, StoreMisconfigured(f"{mismatch} [{finding.text}]"))
        else:
            yield finding


def _protocol_mismatch(settings: Settings) -> str | None:
    """Return an error text if a server expects TLS and the settings have none, or the reverse.

    The errors of the client do not tell: a Redis without TLS waits for the end of the first message of the handshake,
    and one with TLS closes a connection that begins otherwise.
    """
    redis = settings.redis
    for host, port in redis.tcp_addresses:
        if redis.uses_tls and _answers_plainly(host, port):
            cure = "write redis:// in redis.url" if redis.mode == "single" else "set redis.tls = false"
            return f"TLS handshake against a server without TLS: {host}:{port} answers without; {cure}"
        if not redis.uses_tls and _answers_tls(host, port):
            cure = "write rediss:// in redis.url" if redis.mode == "single" else "set redis.tls = true"
            return f"no TLS to a server that wants it: {host}:{port} answers a TLS handshake; {cure}"
    return None


def _answers_plainly(host: str, port: int) -> bool:
    """Return whether a port answers a command of Redis without TLS, with a status or an error."""
    try:
        with socket.create_connection((host, port), _PROTOCOL_S) as connection:
            connection.sendall(b"PING\r\n")
            return connection.recv(1) in _REPLIES
    except OSError:
        return False


def _answers_tls(host: str, port: int) -> bool:
    """Return whether a port answers a TLS handshake, with any certificate or an alert."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # nothing is sent after the handshake
    try:
        with (
            socket.create_connection((host, port), _PROTOCOL_S) as connection,
            context.wrap_socket(connection, server_hostname=host),
        ):
            return True
    except ssl.SSLError as error:
        return "ALERT" in (error.reason or "")
    except OSError:
        return False


def _committed(settings: Settings) -> dict[Partition, int] | None:
    """Return the committed offsets of the group; None if Kafka does not answer."""
    try:
        return committed_quietly(kafka_options(settings))
    except (BrokerUnavailable, BrokerMisconfigured):
        return None


def index_findings(
    settings: Settings, servers: Servers, committed: Mapping[Partition, int] | None
) -> Iterator[Finding]:
    """Yield the state of each index: absent, fitting, different, half deleted, being rebuilt, or lost.

    Args:
        settings: Settings.
        servers: Connection to the store.
        committed: Committed offsets of the group; None if unknown.
    """
    for name in settings.profiles:
        try:
            yield _index(settings, name, servers, committed)
        except (StoreUnavailable, StoreMisconfigured, IndexMismatch, IndexLost) as error:
            yield Finding.failure("index", f"profile {name}", type(error)(f"index of {name}: {error}"))
            if isinstance(error, StoreUnavailable):
                return


def _index(settings: Settings, name: str, servers: Servers, committed: Mapping[Partition, int] | None) -> Finding:
    subject = f"profile {name}"
    profile = settings.profiles[name]
    upkeep = index_upkeep(settings, name, servers)
    if upkeep.is_half_dropped():
        raise IndexMismatch("half deleted; call streamdedup index drop again")
    if upkeep.is_staging():
        text = f"index of {name}: being rebuilt; a daemon that is started now waits for the end"
        return Finding.warning("index", subject, text)
    stored = upkeep.fingerprint()
    if stored is not None:
        configured = redis_store(settings, name, servers).options.stored_fingerprint(profile.fingerprint())
        opening = compare_fingerprints(stored, configured)
        if opening.advisories:
            return Finding.warning("index", subject, f"index of {name}: fits, but {'; '.join(opening.advisories)}")
        return Finding.ok("index", subject, f"index of {name}: fits the settings")
    orphaned = sorted(partition for partition in committed or () if partition.topic in profile.topics)
    if orphaned:
        raise IndexLost(
            f"lost: the group {settings.kafka.group_id} has committed offsets of {', '.join(map(str, orphaned[:3]))}"
            f"{' ...' if len(orphaned) > 3 else ''}, and there is no index at {settings.redis.shown_url} under "
            f"{settings.redis.key_prefix}:{name}; restore redis.url or redis.key_prefix if they have changed, else: "
            "streamdedup index rebuild"
        )
    unknown = "" if committed is not None else " (whether one was lost is not known without Kafka)"
    return Finding.ok("index", subject, f"index of {name}: none yet; the first daemon begins one{unknown}")


def every_finding(settings: Settings) -> Iterator[Finding]:
    """Yield the findings of all checks; those that need a server are skipped if it does not answer."""
    yield Finding.ok("settings", "settings", f"settings are valid: profiles {', '.join(sorted(settings.profiles))}")
    for hint in settings.hints():
        yield Finding.warning("settings", "settings", hint)
    answers = False
    for finding in kafka_findings(settings):
        answers = finding.level is Level.OK if finding.check == "kafka" else answers
        yield finding
    committed = _committed(settings) if answers else None
    with connect_store(settings) as servers:
        answers = False
        for finding in redis_findings(settings, servers):
            answers = finding.level is Level.OK if finding.check == "redis" else answers
            yield finding
        if answers:
            yield from index_findings(settings, servers, committed)
