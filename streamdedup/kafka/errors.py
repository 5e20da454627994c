"""Kafka client errors as errors from ``streamdedup.errors``, and calls with a time limit.

The other modules catch ``CLIENT_ERRORS`` and raise the error that ``translated`` returns: ``BrokerUnavailable``, which
new clients may solve, because after an error the state of a client is unknown; or ``BrokerMisconfigured``, which an
operator must solve, with the advice of ``_ADVICE``. Of an error also matters whether the same call may be repeated
(``is_retriable``), and whether every connection will fail (``is_final``).
"""

import logging
import re
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import TypeVar

from kafka import errors as kafka_errors

from streamdedup.errors import (
    BrokerMisconfigured,
    BrokerUnavailable,
    CodecMissing,
    FatalError,
    MembershipEnded,
    ProducerFenced,
    StreamdedupError,
)
from streamdedup.kafka import login
from streamdedup.kafka.options import KafkaOptions

logger = logging.getLogger(__name__)

Result = TypeVar("Result")

#: Longest time for which closing a client is waited for, in seconds.
CLOSE_TIMEOUT_S = 3.0
#: Longest part of an error text of the client that is passed on, in characters.
_MAX_TEXT_CHARS = 300

#: Another live producer has taken over the transactional id: the error of the coordinator, and of a partition leader.
_FENCED = (kafka_errors.ProducerFencedError, kafka_errors.InvalidProducerEpochError)
#: The group has gone on without the membership under which a commit was made.
_MEMBERSHIP_ENDED = (kafka_errors.CommitFailedError, kafka_errors.RebalanceInProgressError)
_TOPIC_MISSING = (kafka_errors.UnknownTopicOrPartitionError, kafka_errors.InvalidTopicError)

#: Errors of a login that will be refused again.
LOGIN_REFUSED = (
    kafka_errors.SaslAuthenticationFailedError,
    kafka_errors.UnsupportedSaslMechanismError,
    kafka_errors.IllegalSaslStateError,
)
#: Error of TLS for an untrusted certificate, or a certificate of another host.
_UNTRUSTED = "CERTIFICATE_VERIFY_FAILED"
#: Error of the client for a TLS alert, whose first four bytes, 0x15, 0x03 and two others, it reads as the length of an
#: answer.
_FRAME_LENGTH = re.compile(r"Invalid frame length: (\d+)")
_TLS_ALERT = 0x1503

#: Failed connections: part of the client's text, and the likely cause; the first row that fits counts.
_CAUSES = {
    "DNS Resolution failure": "a host name does not resolve; check kafka.bootstrap_servers and advertised.listeners",
    "ECONNREFUSED": "no server listens there",
    "Invalid frame length": "the server there does not speak Kafka's protocol",
    "Handshake failed": "the TLS handshake failed, as with a listener without TLS; check kafka.security_protocol",
    "socket disconnected": (
        "the listener closed the connection, as one does that wants TLS or a login; check kafka.security_protocol"
    ),
    "timed out": "nothing answers there; check the address, and the network in between",
}

#: A record larger than a topic takes.
TOO_LARGE = (kafka_errors.MessageSizeTooLargeError, kafka_errors.RecordListTooLargeError)
#: The client's name for its own limit, at which it refuses a record before any broker sees the record.
_CLIENT_LIMIT_NAME = "max_request_size"
_ABOVE_CLIENT_LIMIT = (
    "a record is larger than kafka.max_message_bytes; raise it, and the topic's max.message.bytes where it is below"
)
_ABOVE_TOPIC_LIMIT = "a record is larger than the topic takes; raise its max.message.bytes"

#: Error of kafka-python 3.0 for a codec without its library; a codec number of no codec gives another text.
_NO_LIBRARY = re.compile(r"Libraries for (\w+) compression codec not found")
_LIBRARIES = {"snappy": "python-snappy", "lz4": "lz4", "zstd": "zstandard"}

_LACKS_RIGHTS = "Kafka refuses us: the user lacks rights"
#: Errors that only an operator can solve, with advice; the first row that fits counts, so base classes come last.
_ADVICE: dict[type[Exception], str] = {
    kafka_errors.TopicAuthorizationFailedError: (
        f"{_LACKS_RIGHTS}; grant READ on the topics that it reads, WRITE on the topics that it sends to"
    ),
    kafka_errors.GroupAuthorizationFailedError: (
        f"{_LACKS_RIGHTS}; grant READ on the consumer group (kafka.group_id; for `dlq replay` <group_id>.dlq-replay)"
    ),
    kafka_errors.TransactionalIdAuthorizationFailedError: (
        f"{_LACKS_RIGHTS}; grant WRITE on transactional ids that begin with streamdedup-<kafka.group_id>-"
    ),
    kafka_errors.AuthorizationError: f"{_LACKS_RIGHTS} on the cluster",
    kafka_errors.SaslAuthenticationFailedError: (
        "Kafka refuses us: check kafka.sasl_username and its password, or the token"
    ),
    kafka_errors.UnsupportedSaslMechanismError: "Kafka refuses us: choose another kafka.sasl_mechanism",
    kafka_errors.IllegalSaslStateError: "the listener takes no login; set kafka.security_protocol to PLAINTEXT or SSL",
    kafka_errors.SecurityDisabledError: "the broker knows no users and rights",
    kafka_errors.InvalidTransactionTimeoutError: (
        "kafka.transaction_timeout exceeds the broker's transaction.max.timeout.ms; lower the one or raise the other"
    ),
    kafka_errors.InvalidTimestampError: (
        "the topic refuses the record's timestamp; raise its message.timestamp.before.max.ms if the record is old, "
        "message.timestamp.after.max.ms if clocks differ; before Kafka 3.6 message.timestamp.difference.max.ms"
    ),
    kafka_errors.InvalidRecordError: (
        "the topic refuses a record; a compacted topic takes none without a key: set its cleanup.policy to delete"
    ),
    kafka_errors.FencedInstanceIdError: (
        "another live member of the group has the same kafka.group_instance_id; give each its own"
    ),
    kafka_errors.InconsistentGroupProtocolError: (
        "the group has members with another assignment strategy; stop them, or use another group_id"
    ),
    kafka_errors.GroupMaxSizeReachedError: "the group is full; raise the broker's group.max.size",
    kafka_errors.InvalidSessionTimeoutError: (
        "kafka.session_timeout lies outside the broker's group.min.session.timeout.ms to group.max.session.timeout.ms"
    ),
    kafka_errors.UnsupportedForMessageFormatError: (
        "the broker's message format knows no transactions; set delivery to at-least-once"
    ),
    kafka_errors.UnsupportedVersionError: (
        "the broker is too old for a request of the client; without transactions, set delivery to at-least-once"
    ),
    kafka_errors.KafkaConfigurationError: "the settings of the Kafka client contradict each other",
}
#: Errors of the client (``RuntimeError`` if closed) and of the network; none is one of ``streamdedup.errors``.
CLIENT_ERRORS = (kafka_errors.KafkaError, OSError, RuntimeError)


def translated(
    error: Exception, doing: str, options: KafkaOptions | None = None, topic: str | None = None
) -> StreamdedupError:
    """Return the ``StreamdedupError`` for ``error``, "cannot ``doing``", without the secrets of ``options``."""
    text = described(error, options)
    suffix = f" (topic {topic})" if topic else ""
    if isinstance(error, _FENCED) or _is_of_kind(error, kafka_errors.ProducerFencedError):
        return ProducerFenced(f"cannot {doing}: another daemon uses the same kafka.instance_id [{text}]")
    if isinstance(error, _MEMBERSHIP_ENDED):
        return MembershipEnded(f"cannot {doing}: the group has gone on without this member [{text}]")
    if isinstance(error, (kafka_errors.OffsetOutOfRangeError, kafka_errors.NoOffsetForPartitionError)):
        # With `on_out_of_range = "halt"` (`kafka.auto_offset_reset = "fail"`).
        return FatalError(
            f"cannot {doing}: the group's offset is not in the topic (expired, or none was ever committed); set the "
            f'group\'s offset, or set kafka.auto_offset_reset to "earliest" [{text}]'
        )
    # A login that changes, and was accepted before, may be accepted again.
    advice = None if login.may_be_accepted_later(error) else _advice(error, text)
    if advice is not None:
        return BrokerMisconfigured(f"cannot {doing}{suffix}: {advice} [{text}]")
    return BrokerUnavailable(f"cannot {doing}{suffix}: {text}")


def connection_error(error: Exception, doing: str, options: KafkaOptions) -> StreamdedupError:
    result = translated(error, doing, options)
    text = described(error, options)
    cause = next((cause for part, cause in _CAUSES.items() if part in text), None)
    if cause is None or not isinstance(result, BrokerUnavailable):
        return result
    return BrokerUnavailable(f"cannot {doing}: {cause} [{text}]")


def codec_missing(error: Exception, attempt: str) -> CodecMissing | None:
    """Return the fatal error, which begins with ``attempt``, if a parser error says that a library is not installed."""
    match = _NO_LIBRARY.search(str(error)) if isinstance(error, kafka_errors.UnsupportedCodecError) else None
    if match is None:
        return None
    codec = match[1]
    return CodecMissing(
        f"{attempt}: the records are compressed with {codec}, and its library is not installed here. Install it with "
        f"`pip install {_LIBRARIES.get(codec, codec)}` and start again; nothing is skipped and nothing is committed"
    )


def _advice(error: Exception, text: str) -> str | None:
    """Return the advice to the operator; None when new clients may solve the problem."""
    if _UNTRUSTED in text:
        return (
            "the broker's certificate is not trusted; check kafka.ssl_ca_file, and whether the servers are named as in "
            "their certificates"
        )
    if _is_tls_alert(text):
        return "the listener uses TLS; set kafka.security_protocol to SSL or SASL_SSL"
    if isinstance(error, TOO_LARGE):
        return _ABOVE_CLIENT_LIMIT if _CLIENT_LIMIT_NAME in text else _ABOVE_TOPIC_LIMIT
    for kind, advice in _ADVICE.items():
        if _is_of_kind(error, kind):
            return advice
    return None


def is_final(error: Exception) -> bool:
    """Return whether connecting again will always fail with ``error``."""
    if login.may_be_accepted_later(error):
        return False
    return isinstance(error, LOGIN_REFUSED) or _UNTRUSTED in str(error) or _is_tls_alert(str(error))


def _is_tls_alert(text: str) -> bool:
    match = _FRAME_LENGTH.search(text)
    return match is not None and int(match[1]) >> 16 == _TLS_ALERT


def _is_of_kind(error: Exception, kind: type[Exception]) -> bool:
    """Return whether ``error`` is of a kind, or a bare ``KafkaError`` that names the kind in its text."""
    return isinstance(error, kind) or (type(error) is kafka_errors.KafkaError and kind.__name__ in str(error))


def is_retriable(error: Exception) -> bool:
    """Return whether the same call of a consumer or reader may succeed later; producers end with any error."""
    return isinstance(error, kafka_errors.KafkaError) and bool(error.retriable)


def is_topic_missing(error_code: int) -> bool:
    """Return whether the error of a topic in Kafka's metadata means that the topic does not exist."""
    return kafka_errors.for_code(error_code) in _TOPIC_MISSING


def missing_topics_text(names: Iterable[str], create_command: str | None) -> str:
    """Describe topics that do not exist, with the command line that creates them, if there is one."""
    text = f"no such topic: {', '.join(sorted(names))}"
    return text if create_command is None else f"{text}; create with: {create_command}"


def cap_client_logging() -> None:
    """Keep the client from logging at DEBUG, which contains passwords and every record."""
    client_logger = logging.getLogger("kafka")
    if client_logger.getEffectiveLevel() < logging.INFO:
        client_logger.setLevel(logging.INFO)


def described(error: Exception, options: KafkaOptions | None = None) -> str:
    """Return the class and the text of an error in one line, cut at ``_MAX_TEXT_CHARS``; without secrets."""
    name, text = type(error).__name__, str(error)
    # Most of the client's errors begin with their own name.
    text = text if name in text else f"{name}: {text}"
    for secret in options.secrets() if options is not None else ():
        text = text.replace(secret, "***")
    return " ".join(text.split())[:_MAX_TEXT_CHARS]


def call_within(timeout_s: float, doing: str, call: Callable[[], Result]) -> Result:
    """Return the result of ``call``, waiting at most ``timeout_s``; most transactional calls have no time limit.

    After it the daemon thread of the call is abandoned: it cannot be stopped, and the call may still take effect.
    """
    outcome: Future[Result] = Future()

    def run() -> None:
        try:
            outcome.set_result(call())
        except BaseException as error:  # noqa: BLE001  passed to the caller
            outcome.set_exception(error)

    threading.Thread(target=run, name=f"kafka: {doing}", daemon=True).start()
    try:
        return outcome.result(timeout_s)
    except TimeoutError:
        if outcome.done():  # failed with a TimeoutError, or ended just after the wait
            return outcome.result()
        raise BrokerUnavailable(f"cannot {doing}: Kafka did not answer within {timeout_s:g} s") from None


def close_quietly(doing: str, close: Callable[[], object]) -> bool:
    """Call ``close`` for at most ``CLOSE_TIMEOUT_S`` and log any error; return whether the call succeeded."""
    try:
        call_within(CLOSE_TIMEOUT_S, doing, close)
    except Exception as error:  # noqa: BLE001  no later step depends on a closed client
        logger.info("Closing was cut short", extra={"event": "close_cut_short", "doing": doing, "error": repr(error)})
        return False
    return True
