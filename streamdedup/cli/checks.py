"""The checks of live servers, as ``run`` and ``check`` call them: the only place that says what the daemon needs.

Nothing here writes to a server, and no finding holds a secret.
"""

import socket
import ssl
from collections.abc import Iterable, Iterator, Mapping

from streamdedup.cli.assembly import (
    connect_store,
    index_upkeep,
    kafka_options,
    lifetime_ms,
    redis_keys,
    redis_store,
)
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
from streamdedup.index.redis.checks import RightsNeed, check_redis
from streamdedup.index.redis.servers import Servers
from streamdedup.kafka import TopicNeed, check_kafka, committed_quietly
from streamdedup.position import Partition
from streamdedup.settings import Settings

#: Seconds that one attempt to find out by which protocol a port answers may take.
_PROTOCOL_S = 1.0
#: Ways to see that a plain port has answered: with a reply of Redis, or an error.
_REPLIES = (b"+", b"-")


def topic_needs(settings: Settings) -> list[TopicNeed]:
    """Return what the daemon needs of each topic."""
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
    """Return how long a rebuild needs alerts, in milliseconds: the longest lifetime of all profiles."""
    return max(lifetime_ms(profile) for profile in settings.profiles.values())


def kafka_findings(settings: Settings) -> Iterator[Finding]:
    """Yield the results of all checks of Kafka."""
    return check_kafka(kafka_options(settings), topic_needs(settings))


def redis_findings(settings: Settings, servers: Servers) -> Iterator[Finding]:
    """Yield the results of all checks of the store."""
    keys = [keys.guard(slot) for keys in redis_keys(settings) for slot in range(keys.slots_count)]
    prefix = settings.redis.key_prefix
    need = RightsNeed(
        keys=keys,
        rebuilds=settings.service.on_index_lost == "rebuild",
        cure=f"grant what docs/redis.md lists under User and rights, with ~{{{prefix}:* for the keys",
    )
    for finding in check_redis(servers, settings.redis.shown_url, need):
        if finding.error is StoreUnavailable and (mismatch := _protocol_mismatch(settings)) is not None:
            yield Finding.failure(finding.check, finding.subject, StoreMisconfigured(f"{mismatch} [{finding.text}]"))
        else:
            yield finding


def _protocol_mismatch(settings: Settings) -> str | None:
    """Return what is wrong when a server answers with TLS where the settings have none, or without where they have it.

    Neither shows in the client's error: a Redis without TLS waits for the end of a handshake's first message, and one
    with TLS ends a connection that begins otherwise.
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
    """Tell whether a port answers a command of Redis without TLS, be it by a refusal."""
    try:
        with socket.create_connection((host, port), _PROTOCOL_S) as connection:
            connection.sendall(b"PING\r\n")
            return connection.recv(1) in _REPLIES
    except OSError:
        return False


def _answers_tls(host: str, port: int) -> bool:
    """Tell whether a port answers a TLS handshake, be it by an alert; its certificate does not matter."""
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
    """Return the committed offsets of the group; None when Kafka does not tell, which the checks of Kafka explain."""
    try:
        return committed_quietly(kafka_options(settings))
    except (BrokerUnavailable, BrokerMisconfigured):
        return None


def index_findings(
    settings: Settings, servers: Servers, committed: Mapping[Partition, int] | None
) -> Iterator[Finding]:
    """Yield what the index of each profile is: absent, fitting, different, half deleted, being rebuilt, or lost.

    Args:
        settings: The settings.
        servers: The store.
        committed: Committed offsets of the group; None when they are not known.
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
        ours = redis_store(settings, name, servers).stored_fingerprint(profile.fingerprint())
        opening = compare_fingerprints(stored, ours)
        if opening.advisories:
            return Finding.warning("index", subject, f"index of {name}: fits, but {'; '.join(opening.advisories)}")
        return Finding.ok("index", subject, f"index of {name}: fits the settings")
    there = sorted(partition for partition in committed or () if partition.topic in profile.topics)
    if there:
        raise IndexLost(
            f"lost: the group {settings.kafka.group_id} has committed offsets of {', '.join(map(str, there[:3]))}"
            f"{' ...' if len(there) > 3 else ''}, and there is no index at {settings.redis.shown_url} under "
            f"{settings.redis.key_prefix}:{name}; mend redis.url or redis.key_prefix if they have changed, else: "
            "streamdedup index rebuild"
        )
    unknown = "" if committed is not None else " (whether one was lost is not known without Kafka)"
    return Finding.ok("index", subject, f"index of {name}: none yet; the first daemon begins one{unknown}")


def every_finding(settings: Settings) -> Iterator[Finding]:
    """Yield the results of all checks; a server that does not answer hides none of the others'."""
    yield Finding.ok("settings", "settings", f"settings are valid: profiles {', '.join(sorted(settings.profiles))}")
    for hint in settings.hints():
        yield Finding.warning("settings", "settings", hint)
    answers = _Answers("kafka")
    yield from answers.watch(kafka_findings(settings))
    committed = _committed(settings) if answers else None
    with connect_store(settings) as servers:
        answers = _Answers("redis")
        yield from answers.watch(redis_findings(settings, servers))
        if answers:
            yield from index_findings(settings, servers, committed)


class _Answers:
    """Remembers whether a server has answered to its last check.

    Args:
        check: Name of the check of the connection, which fails as soon as the server does not answer.
    """

    def __init__(self, check: str) -> None:
        self._check = check
        self._last: Level | None = None

    def watch(self, findings: Iterable[Finding]) -> Iterator[Finding]:
        """Pass findings on."""
        for finding in findings:
            if finding.check == self._check:
                self._last = finding.level
            yield finding

    def __bool__(self) -> bool:
        return self._last is Level.OK
