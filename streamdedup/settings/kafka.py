"""The section ``[kafka]``: connection, topics and delivery.

A new key of a client also touches ``kafka.options`` and ``cli.assembly.kafka_options``; then run settings_tables.py.
"""

import re
import uuid
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field

from streamdedup.settings import kinds
from streamdedup.settings.base import Mistakes
from streamdedup.settings.hosts import ALLOW_PLAINTEXT, HttpUrl, Servers, is_loopback
from streamdedup.settings.kinds import LISTED, NOT_EMPTY, Kind, parse_list, write_list
from streamdedup.settings.tls import TlsSection, is_file

#: Topic names that Kafka accepts: not "." or "..". Compiled, because pydantic's own expressions have no look-ahead.
_TOPIC = re.compile(r"\A(?!\.{1,2}\Z)[A-Za-z0-9._-]{1,249}\Z")
#: Oldest Kafka that fences a transaction by the consumer group's generation (KIP-447).
_TRANSACTIONS_SINCE = (2, 5)
_PASSWORD_KEYS = ("sasl_username", "sasl_password")
_CLIENT_KEYS = ("sasl_client_id", "sasl_client_secret")
#: Keys that only a login with tokens from an endpoint uses.
_ENDPOINT_KEYS = (*_CLIENT_KEYS, "sasl_token_scope", "sasl_token_ca_file")
#: Keys of a login with tokens, from a file or from an endpoint.
_TOKEN_KEYS = ("sasl_token_file", "sasl_token_url", *_ENDPOINT_KEYS)
#: Keys of a login by mechanism. A mechanism that is not named here uses ``_PASSWORD_KEYS``.
_KEYS_BY_MECHANISM: dict[str, tuple[str, ...]] = {"OAUTHBEARER": _TOKEN_KEYS, "AWS_MSK_IAM": (), "GSSAPI": ()}
#: Texts of mistakes about a login; ``{}`` becomes the protocol.
_MISSING = "is missing; security_protocol = {} needs it"
_UNUSED = "is given, but security_protocol = {} does not log in"


def _upper(value: object) -> object:
    return value.upper() if isinstance(value, str) else value


_TOPIC_ALLOWED = "a topic's name: letters, digits, dot, underscore and hyphen, at most 249 of them"
Topic = Annotated[str, Field(pattern=_TOPIC), Kind(_TOPIC_ALLOWED)]
#: Without commas, which separate names in a variable, and ``streamdedup.dlq.``, which begins the daemon's own headers.
HeaderNames = Annotated[
    tuple[Annotated[str, Field(pattern=re.compile(r"^(?!streamdedup\.dlq\.)[^,\x00-\x1f]{1,256}\Z"))], ...],
    BeforeValidator(parse_list),
    Kind(f"at most 32 names of headers, not beginning with streamdedup.dlq., {LISTED}", write_list),
]
#: Part of a transactional.id or of a member's id.
_INSTANCE = r"^[A-Za-z0-9._-]{1,64}$"
_INSTANCE_KIND = Kind("1 to 64 letters, digits, dots, underscores and hyphens")


class Kafka(TlsSection):
    """Connection, topics and delivery."""

    bootstrap_servers: Servers = Field(min_length=1)
    """Brokers for the first connection; one reachable is enough."""
    group_id: Annotated[str, Field(min_length=1, max_length=249), Kind("a text of 1 to 249 characters")] = "streamdedup"
    """Consumer group. Daemons of one group share the partitions of the input topics."""
    duplicates_topic: Topic = "duplicates"
    """Topic of the alerts. It must exist."""
    alert_format: Literal["json", "avro"] = "json"
    """Format of the alerts: JSON, or [Avro](messages.md#alerts-in-avro) with a schema in the registry."""
    dead_letter_topic: Topic = Field(
        default_factory=lambda values: f"{values['duplicates_topic']}.dlq",
        json_schema_extra={"default": "`<duplicates_topic>.dlq`"},
    )
    """Topic of the dead letters. It must exist."""
    delivery: Literal["exactly-once", "at-least-once"] = "exactly-once"
    """`exactly-once` commits alerts, dead letters and offsets in one transaction. `at-least-once` is for brokers
    without transactions: a crash may repeat alerts."""
    instance_id: Annotated[str, Field(pattern=_INSTANCE), _INSTANCE_KIND] = Field(
        default_factory=lambda: uuid.uuid4().hex, json_schema_extra={"default": "random for each process"}
    )
    """Name of this daemon in its group, the same after a restart; part of its transactional.id. Two live daemons must
    never share a name. With a random name, after a crash the daemon that takes over the partitions processes nothing
    for up to `transaction_timeout`, of its other partitions neither."""
    group_instance_id: Annotated[str | None, Field(pattern=_INSTANCE), _INSTANCE_KIND] = None
    """Static membership, unique in the group: a restart within `session_timeout` causes no rebalance."""
    auto_offset_reset: Literal["earliest", "window", "fail"] = "earliest"
    """Start of a partition without a usable committed offset: `earliest` at its oldest record, `window` at the
    first record younger than `retention` plus `retention_slack`; `fail` stops the daemon. In a topic that was created
    again, or for an offset out of range, `window` acts as `earliest`."""
    on_unreadable: Literal["skip", "halt"] = "skip"
    """A record that the Kafka client cannot parse becomes a dead letter (`skip`), or stops the daemon (`halt`)."""
    batch_records: kinds.Whole = Field(default=2_000, ge=1, le=10_000)
    """Most records in one batch, which is one transaction. The daemon never waits for a full batch. More are faster in
    a backlog, and take more memory."""
    max_message_bytes: kinds.Size = Field(default=1024 * 1024, ge=64 * 1024, le=64 * 1024 * 1024)
    """Largest message to send. Not above the topics' `max.message.bytes`."""
    copy_headers: HeaderNames = Field(default=(), max_length=32)
    """Headers of a record that are [copied to its alert](messages.md#copied-headers), such as `["traceparent",
    "tracestate"]`."""
    session_timeout_s: kinds.Duration = Field(default=45.0, ge=1.0, le=1800.0)
    """A daemon that sends no heartbeat for this long loses its partitions. Within the broker's
    `group.min.session.timeout.ms` and `group.max.session.timeout.ms`."""
    max_poll_interval_s: kinds.Duration = Field(default=300.0, ge=1.0, le=86400.0)
    """Longest time between two polls; a daemon that needs longer loses its partitions. In a backlog two batches may
    have to fit."""
    transaction_timeout_s: kinds.Duration = Field(default=30.0, ge=1.0, le=900.0)
    """The broker aborts a transaction that is open for longer. Not above its `transaction.max.timeout.ms`. A request
    may take a third of it."""
    api_version: kinds.Version = None
    """Version of Kafka to assume, without asking the broker."""
    security_protocol: Annotated[Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"], BeforeValidator(_upper)] = (
        "PLAINTEXT"
    )
    """Protocol of the brokers: `SSL` is TLS, `SASL_` is a login."""
    sasl_mechanism: Annotated[
        Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "AWS_MSK_IAM", "GSSAPI"] | None,
        BeforeValidator(_upper),
    ] = None
    """Method of the login; required by the `SASL_` protocols."""
    sasl_username: kinds.OptionalText = None
    """User of the login."""
    sasl_password: kinds.Secret = None
    """Password of `sasl_username`."""
    sasl_password_file: kinds.File = None
    """File that holds `sasl_password`."""
    sasl_token_file: kinds.File = None
    """File that holds a token for `OAUTHBEARER`."""
    sasl_token_url: HttpUrl = None
    """Endpoint of tokens for `OAUTHBEARER`."""
    sasl_client_id: kinds.OptionalText = None
    """Client of `sasl_token_url`."""
    sasl_client_secret: kinds.Secret = None
    """Secret of `sasl_client_id`."""
    sasl_client_secret_file: kinds.File = None
    """File that holds `sasl_client_secret`."""
    sasl_token_scope: kinds.OptionalText = None
    """Scope of the tokens."""
    sasl_token_ca_file: kinds.File = None
    """Certificates (PEM) for `sasl_token_url`."""
    sasl_kerberos_service_name: Annotated[str, Field(min_length=1), NOT_EMPTY] = "kafka"
    """Service name for `GSSAPI`."""
    allow_plaintext: kinds.Flag = False
    """Allow `SASL_PLAINTEXT` to other machines, where the network can read the password."""

    @property
    def transactional_id(self) -> str | None:
        """Name of this daemon's transactions at the broker, or None for delivery without them."""
        return f"streamdedup-{self.group_id}-{self.instance_id}" if self.delivery == "exactly-once" else None

    @property
    def request_timeout_s(self) -> float:
        """Time limit of a request to a broker: a request and its repetition fit into a transaction."""
        return self.transaction_timeout_s / 3

    @property
    def uses_tls(self) -> bool:
        return self.security_protocol.endswith("SSL")

    def security(self) -> dict[str, Any]:
        """Return the client's options for TLS and login, with ``sasl_password`` in clear; no login that changes."""
        options: dict[str, Any] = {"security_protocol": self.security_protocol}
        if self.sasl_mechanism is not None:
            options["sasl_mechanism"] = self.sasl_mechanism
            options["sasl_username"] = self.sasl_username
            options["sasl_password"] = self.sasl_password.get_secret_value() if self.sasl_password else None
        if self.sasl_mechanism == "GSSAPI":
            options["sasl_kerberos_service_name"] = self.sasl_kerberos_service_name
        return options | (self.tls_options("ssl_cafile") if self.uses_tls else {})

    def hints(self) -> Mistakes:
        parts = urlsplit(self.sasl_token_url or "")
        if parts.scheme == "http" and not is_loopback(parts.hostname or ""):
            yield "sasl_token_url", "sends the client's secret in clear to another machine; use https://"

    def _check_outputs(self) -> Mistakes:
        if self.dead_letter_topic == self.duplicates_topic:
            yield "dead_letter_topic", "is the duplicates_topic too; alerts and dead letters need a topic each"
        elif not _TOPIC.match(self.dead_letter_topic):  # a default, which pydantic does not validate
            yield "dead_letter_topic", "is missing; <duplicates_topic>.dlq has more than 249 characters"

    def _check_instance(self) -> Mistakes:
        is_random = "instance_id" not in self.model_fields_set
        if self.group_instance_id is not None and self.delivery == "exactly-once" and is_random:
            yield "instance_id", "is missing; without it the partitions of group_instance_id wait after a crash"

    def _check_version(self) -> Mistakes:
        if self.api_version is not None and self.delivery == "exactly-once" and self.api_version < _TRANSACTIONS_SINCE:
            yield "api_version", 'is below 2.5, which delivery = "exactly-once" needs'

    def _check_times(self) -> Mistakes:
        if self.transaction_timeout_s >= self.max_poll_interval_s:
            yield "transaction_timeout", "must be below max_poll_interval, or a batch could outlive the membership"
        if self.session_timeout_s > self.max_poll_interval_s:
            yield "session_timeout", "must not be above max_poll_interval"

    def _check_mechanism(self) -> Mistakes:
        protocol, mechanism = self.security_protocol, self.sasl_mechanism
        logs_in = protocol.startswith("SASL")
        if logs_in != (mechanism is not None):
            yield "sasl_mechanism", (_MISSING if logs_in else _UNUSED).format(protocol)
        if mechanism == "AWS_MSK_IAM" and protocol == "SASL_PLAINTEXT":
            yield "security_protocol", "is SASL_PLAINTEXT; AWS_MSK_IAM needs SASL_SSL"

    def _check_login_keys(self) -> Mistakes:
        protocol, mechanism = self.security_protocol, self.sasl_mechanism
        logs_in = protocol.startswith("SASL")
        if logs_in and mechanism is None:
            return  # the mechanism, which is missing, decides which keys the login uses
        used = _KEYS_BY_MECHANISM.get(mechanism or "", _PASSWORD_KEYS) if logs_in else ()
        reason = f"is given, but sasl_mechanism = {mechanism} does not use it" if logs_in else _UNUSED.format(protocol)
        for name in (*_PASSWORD_KEYS, *_TOKEN_KEYS):
            if getattr(self, name) is not None and name not in used:
                yield name, reason
        needed = dict.fromkeys(_PASSWORD_KEYS, _MISSING.format(protocol))
        if self.sasl_token_url is not None:  # a token endpoint needs a client, a token file does not
            needed |= dict.fromkeys(_CLIENT_KEYS, "is missing; sasl_token_url needs it")
        for name, mistake in needed.items():
            if name in used and getattr(self, name) is None:
                yield name, mistake

    def _check_tokens(self) -> Mistakes:
        if self.security_protocol.startswith("SASL") and self.sasl_mechanism == "OAUTHBEARER":
            if (self.sasl_token_file is None) == (self.sasl_token_url is None):
                yield "sasl_token_file", "OAUTHBEARER needs either sasl_token_file or sasl_token_url"
            elif self.sasl_token_url is None:
                for name in _ENDPOINT_KEYS:
                    if getattr(self, name) is not None:
                        yield name, "is given, but sasl_token_file does not use it; it is for sasl_token_url"
        for name in ("sasl_token_file", "sasl_token_ca_file"):
            path = getattr(self, name)
            if path is not None and not is_file(path):
                yield name, f"names no file that can be read: {path}"

    def _check_tls(self) -> Mistakes:
        unused = None if self.uses_tls else f"security_protocol = {self.security_protocol} does not use TLS"
        return self.tls_mistakes(unused)

    def _check_plaintext(self) -> Mistakes:
        if self.security_protocol == "SASL_PLAINTEXT" and not self.allow_plaintext:
            hosts = [server.rpartition(":")[0] for server in self.bootstrap_servers]
            if not all(is_loopback(host) for host in hosts):
                yield "security_protocol", f"is SASL_PLAINTEXT to another machine; use SASL_SSL, or {ALLOW_PLAINTEXT}"
