"""Every error of the Kafka client turned into one of ours, by what the loop can do about it.

The client's exception types are no guide to the state of the client (a producer that failed once is unusable however
mildly it said so), so the only question answered here is: will new clients cure it, or only an operator?
"""

import logging
import re

from kafka import errors as kafka_errors

from streamdedup.errors import (
    BrokerMisconfigured,
    BrokerUnavailable,
    CodecMissing,
    FatalError,
    ProducerFenced,
    StreamdedupError,
)

#: Longest part of a client's error text that is passed on, in characters.
MAX_TEXT_CHARS = 300

#: Another live producer has taken over the transactional id. A zombie hears one name of it from the coordinator and the
#: other from a partition leader.
FENCED = (kafka_errors.ProducerFencedError, kafka_errors.InvalidProducerEpochError)

_LACKING = "Kafka refuses us: the user lacks rights"

#: The broker refuses who we are, or what we may do: the error, and what helps.
REFUSALS: tuple[tuple[type[Exception], str], ...] = (
    (
        kafka_errors.TopicAuthorizationFailedError,
        f"{_LACKING}; grant READ on the input topics, WRITE on the duplicates and dead-letter topics",
    ),
    (
        kafka_errors.GroupAuthorizationFailedError,
        f"{_LACKING}; grant READ on the consumer group (kafka.group_id)",
    ),
    (
        kafka_errors.TransactionalIdAuthorizationFailedError,
        f"{_LACKING}; grant WRITE on transactional ids that begin with streamdedup-<kafka.group_id>-",
    ),
    (kafka_errors.AuthorizationError, f"{_LACKING} on the cluster"),
    (
        kafka_errors.SaslAuthenticationFailedError,
        "Kafka refuses us: check kafka.sasl_username and its password",
    ),
    (kafka_errors.UnsupportedSaslMechanismError, "Kafka refuses us: choose another kafka.sasl_mechanism"),
    (
        kafka_errors.IllegalSaslStateError,
        "the listener takes no login; set kafka.security_protocol to PLAINTEXT or SSL",
    ),
    (kafka_errors.SecurityDisabledError, "the broker knows no users and rights"),
)

#: Errors of a login that will be refused again.
LOGIN_REFUSED = (
    kafka_errors.SaslAuthenticationFailedError,
    kafka_errors.UnsupportedSaslMechanismError,
    kafka_errors.IllegalSaslStateError,
)

#: What TLS calls a certificate that it does not trust, or that was given for another host.
UNTRUSTED = "CERTIFICATE_VERIFY_FAILED"

#: What the client makes of a TLS alert, the first bytes of which it takes for the length of an answer.
_FRAME_LENGTH = re.compile(r"Invalid frame length: (\d+)")
_TLS_ALERT = 0x1503

#: Why a connection may not come about: what the client says of it, and the likely cause.
CAUSES: tuple[tuple[str, str], ...] = (
    ("DNS Resolution failure", "a host name does not resolve; check kafka.bootstrap_servers and advertised.listeners"),
    ("ECONNREFUSED", "nobody listens there"),
    ("Invalid frame length", "what listens there does not speak Kafka's protocol"),
    ("Handshake failed", "TLS did not come about; a listener without TLS ends it so: check kafka.security_protocol"),
    ("socket disconnected", "hung up; a listener that wants TLS or a login does so: check kafka.security_protocol"),
    ("timed out", "nothing answers there; check the address, and what lies between"),
)

#: A record larger than a topic takes.
TOO_LARGE = (kafka_errors.MessageSizeTooLargeError, kafka_errors.RecordListTooLargeError)
#: How the client names its own limit, which refuses a record before any broker sees it.
_CLIENTS_LIMIT = "max_request_size"
_OURS_TOO_LARGE = (
    "a record is larger than kafka.max_message_bytes; raise it, and the topic's max.message.bytes where it is below"
)
_TOPICS_TOO_LARGE = "a record is larger than the topic takes; raise its max.message.bytes"

#: How kafka-python 3.0 reports a codec whose library is not installed. A codec number that Kafka does not define raises
#: the same class of error with another text, and no library cures it.
_NO_LIBRARY = re.compile(r"Libraries for (\w+) compression codec not found")
#: The package of each codec's library.
_LIBRARIES = {"snappy": "python-snappy", "lz4": "lz4", "zstd": "zstandard"}

#: What each other error means that only an operator can cure.
ADVICE: tuple[tuple[type[Exception], str], ...] = (
    (
        kafka_errors.InvalidTransactionTimeoutError,
        "kafka.transaction_timeout exceeds the broker's transaction.max.timeout.ms; lower ours or raise the broker's",
    ),
    (
        kafka_errors.InvalidTimestampError,
        "the topic refuses the record's timestamp; raise its message.timestamp.after.max.ms",
    ),
    (
        kafka_errors.InvalidRecordError,
        "the topic refuses a record; a compacted topic takes none without a key: set its cleanup.policy to delete",
    ),
    (
        kafka_errors.FencedInstanceIdError,
        "another live member of the group has the same kafka.group_instance_id; give each its own",
    ),
    (
        kafka_errors.InconsistentGroupProtocolError,
        "the group has members with another assignment strategy; stop them, or use another group_id",
    ),
    (kafka_errors.GroupMaxSizeReachedError, "the group is full; raise the broker's group.max.size"),
    (
        kafka_errors.InvalidSessionTimeoutError,
        "kafka.session_timeout lies outside the broker's group.min.session.timeout.ms to group.max.session.timeout.ms",
    ),
    (
        kafka_errors.UnsupportedForMessageFormatError,
        "the broker's message format knows no transactions; set delivery to at-least-once",
    ),
    (
        kafka_errors.UnsupportedVersionError,
        "the broker is too old for what is asked; without transactions, set delivery to at-least-once",
    ),
    (kafka_errors.KafkaConfigurationError, "the settings of the Kafka client contradict each other"),
)

#: Errors of the client or of the network, as against errors of our own code, which are never hidden.
CLIENT_ERRORS = (kafka_errors.KafkaError, OSError, RuntimeError)


def translated(
    error: Exception, doing: str, secrets: tuple[str, ...] = (), topic: str | None = None
) -> StreamdedupError:
    """Return the error of ours that stands for ``error``.

    Args:
        error: What the client raised.
        doing: What was being done, as "cannot <doing>" continues.
        secrets: Texts to blot out.
        topic: Topic concerned, where one is known.
    """
    text = described(error, secrets)
    at = f" (topic {topic})" if topic else ""
    if (missing := codec_missing(error, f"cannot {doing}{at}")) is not None:
        return missing
    if isinstance(error, FENCED) or "ProducerFencedError" in text:
        return ProducerFenced(f"cannot {doing}: another daemon uses the same kafka.instance_id [{text}]")
    if isinstance(error, (kafka_errors.OffsetOutOfRangeError, kafka_errors.NoOffsetForPartitionError)):
        return FatalError(
            f"cannot {doing}: the group's offset is not in the topic (expired, or none was ever committed); set the "
            f"group's offset, or allow going on at the earliest record [{text}]"
        )
    advice = _advice(error, text)
    if advice is not None:
        return BrokerMisconfigured(f"cannot {doing}{at}: {advice} [{text}]")
    return BrokerUnavailable(f"cannot {doing}{at}: {text}")


def not_connected(error: Exception, doing: str, secrets: tuple[str, ...] = ()) -> StreamdedupError:
    """Return the error of ours for a connection that did not come about, with its likely cause; see ``translated``."""
    ours = translated(error, doing, secrets)
    text = described(error, secrets)
    cause = next((cause for said, cause in CAUSES if said in text), None)
    if cause is None or not isinstance(ours, BrokerUnavailable):
        return ours
    return BrokerUnavailable(f"cannot {doing}: {cause} [{text}]")


def codec_missing(error: Exception, where: str) -> CodecMissing | None:
    """Return the fatal error for a record batch that needs a library that is not installed; None for other errors.

    Args:
        error: What the client's parser raised.
        where: Which records, or what cannot be done without them.
    """
    found = _NO_LIBRARY.search(str(error)) if isinstance(error, kafka_errors.UnsupportedCodecError) else None
    if found is None:
        return None
    codec = found[1]
    return CodecMissing(
        f"{where}: the records are compressed with {codec}, and its library is not installed here. Install it with "
        f"`pip install {_LIBRARIES.get(codec, codec)}` and start again; nothing is skipped and nothing is committed"
    )


def _advice(error: Exception, text: str) -> str | None:
    """What an operator must do about ``error``; None when waiting may help."""
    if UNTRUSTED in text:
        return (
            "the broker's certificate is not trusted; check kafka.ssl_ca_file, and whether the servers are named as in "
            "their certificates"
        )
    if _is_tls_alert(text):
        return "the listener uses TLS; set kafka.security_protocol to SSL or SASL_SSL"
    if isinstance(error, TOO_LARGE):
        return _OURS_TOO_LARGE if _CLIENTS_LIMIT in text else _TOPICS_TOO_LARGE
    for kind, advice in (*REFUSALS, *ADVICE):
        if _is(error, kind):
            return advice
    return None


def is_final(error: Exception) -> bool:
    """Whether ``error`` will meet every further attempt to connect."""
    return isinstance(error, LOGIN_REFUSED) or UNTRUSTED in str(error) or _is_tls_alert(str(error))


def _is_tls_alert(text: str) -> bool:
    """Whether the other end answered with a TLS alert where an answer of Kafka was awaited."""
    match = _FRAME_LENGTH.search(text)
    return match is not None and int(match[1]) >> 16 == _TLS_ALERT


def _is(error: Exception, kind: type[Exception]) -> bool:
    """Whether ``error`` is of a kind, or is what the client makes of one that it did not expect: its name in a text."""
    return isinstance(error, kind) or (type(error) is kafka_errors.KafkaError and kind.__name__ in str(error))


def missing_topics(names: list[str]) -> BrokerMisconfigured:
    """Return the error for topics that do not exist."""
    return BrokerMisconfigured(f"no such topic: {', '.join(sorted(names))}; create with: streamdedup topics create")


def cap_client_logging() -> None:
    """Keep the client from logging at DEBUG, where it prints passwords and every record."""
    logger = logging.getLogger("kafka")
    if logger.getEffectiveLevel() < logging.INFO:
        logger.setLevel(logging.INFO)


def described(error: Exception, secrets: tuple[str, ...] = ()) -> str:
    """Return one line about ``error``: its class, once, and its text, at most ``MAX_TEXT_CHARS``, without secrets."""
    name, text = type(error).__name__, str(error)
    # Most of the client's errors begin with their own name.
    text = text if name in text else f"{name}: {text}"
    for secret in secrets:
        text = text.replace(secret, "***")
    return " ".join(text.split())[:MAX_TEXT_CHARS]
