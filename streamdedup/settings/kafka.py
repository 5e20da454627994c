"""The section ``[kafka]``: where the records come from and where the alerts go."""

import re
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from streamdedup.settings.base import Check, Section, check_items
from streamdedup.settings.tls import unusable_files
from streamdedup.settings.units import Duration, File, Flag, Names, Secret, Size, Text, Version, Whole

#: What Kafka accepts as the name of a topic, apart from "." and "..".
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
#: Names that go into a transactional.id or a member's id.
_INSTANCE = r"[A-Za-z0-9._-]{1,64}"
#: One server: name, IPv4 address or bracketed IPv6 address, and port.
_SERVER = re.compile(r"([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):([0-9]{1,5})")
#: What a server may be, for messages and documentation.
SERVERS_ALLOWED = 'servers as "host:port"'
#: Oldest Kafka that fences a transaction by the consumer group's generation (KIP-447).
_TRANSACTIONS_SINCE = (2, 5)
#: Oldest Kafka that knows zstd (KIP-110).
_ZSTD_SINCE = (2, 1)
#: The way out for those who know their network.
ALLOW_PLAINTEXT = "set allow_plaintext = true if the network is safe"


def check_topic(topic: str) -> str:
    """Return a topic's name if Kafka would accept it.

    Raises:
        ValueError: It would not.
    """
    if not _TOPIC.fullmatch(topic) or topic in {".", ".."}:
        raise ValueError("not a topic")
    return topic


def check_servers(servers: Iterable[str]) -> tuple[str, ...]:
    """Return servers if each is a host and a port.

    Raises:
        ValueError: One is not.
    """
    return check_items(servers, _check_server)


def _check_server(server: str) -> None:
    match = _SERVER.fullmatch(server)
    if match is None or not 0 < int(match[2]) < 65536:
        raise ValueError("not a server")


def split_server(server: str) -> tuple[str, int]:
    """Return host and port of a server that was accepted; the brackets of an IPv6 address are taken off."""
    host, _, port = server.rpartition(":")
    return host.strip("[]"), int(port)


def _upper(value: object) -> object:
    return value.upper() if isinstance(value, str) else value


def is_loopback(host: str) -> bool:
    """Tell whether a host name or address plainly means this machine."""
    name = host.strip("[]").lower()
    return name in {"localhost", "::1"} or re.fullmatch(r"127(\.[0-9]{1,3}){3}", name) is not None


#: The name of a topic.
Topic = Annotated[Text, AfterValidator(check_topic)]
#: What a topic's name may be, for messages and documentation.
TOPIC_ALLOWED = "a topic's name: letters, digits, dot, underscore and hyphen, at most 249 of them"


class Kafka(Section):
    """Connection, topics and delivery; durations are in seconds here, with their units in the file."""

    bootstrap_servers: Annotated[Names, AfterValidator(check_servers)] = Field(
        min_length=1,
        description="Brokers to ask first; one that answers is enough.",
        json_schema_extra={"allowed": f"{SERVERS_ALLOWED}, as a list or with commas between them"},
    )
    group_id: Text = Field(
        default="streamdedup",
        min_length=1,
        max_length=249,
        description="Consumer group. Daemons of one group share the partitions of the input topics.",
        json_schema_extra={"allowed": "a text of 1 to 249 characters"},
    )
    duplicates_topic: Topic = Field(
        default="duplicates",
        description="Topic that the alerts go to. It must exist.",
        json_schema_extra={"allowed": TOPIC_ALLOWED},
    )
    dead_letter_topic: Topic = Field(
        default_factory=lambda values: f"{values['duplicates_topic']}.dlq",
        description="Topic for records that can never be processed. It must exist.",
        json_schema_extra={"allowed": TOPIC_ALLOWED, "default": "`<duplicates_topic>.dlq`"},
    )
    delivery: Literal["exactly-once", "at-least-once"] = Field(
        default="exactly-once",
        description="`exactly-once` commits alerts, dead letters and offsets in one transaction. `at-least-once` is "
        "for brokers without transactions: a crash may repeat alerts.",
    )
    instance_id: Text = Field(
        default_factory=lambda: uuid.uuid4().hex,
        pattern=f"^{_INSTANCE}$",
        description="Name of this daemon among those of its group, the same after a restart; part of its "
        "transactional.id. With a random one everything stays correct, but a transaction that a crash left open keeps "
        "its partitions waiting for `transaction_timeout`. Two live daemons must never share one.",
        json_schema_extra={
            "allowed": "1 to 64 letters, digits, dots, underscores and hyphens",
            "default": "random for each process",
        },
    )
    group_instance_id: Text | None = Field(
        default=None,
        pattern=f"^{_INSTANCE}$",
        description="Static membership: after a restart within `session_timeout` the daemon gets its partitions "
        "back without a rebalance. Unique in the group.",
        json_schema_extra={"allowed": "1 to 64 letters, digits, dots, underscores and hyphens"},
    )
    auto_offset_reset: Literal["earliest", "fail"] = Field(
        default="earliest",
        description="Where to start in a partition without a usable committed offset: `earliest` at its oldest record, "
        "`fail` not at all.",
    )
    on_unreadable: Literal["skip", "halt"] = Field(
        default="skip",
        description="A record that the Kafka client itself cannot parse: `skip` steps past it and leaves a dead letter "
        "with its position, `halt` stops the daemon.",
    )
    batch_records: Whole = Field(
        default=2_000,
        ge=1,
        le=10_000,
        description="Largest number of records in one batch, which is one transaction. A batch is never waited for: "
        "more is faster while there is a backlog, and takes more memory.",
    )
    max_message_bytes: Size = Field(
        default=1024 * 1024,
        ge=64 * 1024,
        le=64 * 1024 * 1024,
        description="Largest message to send. Not above the topics' `max.message.bytes`.",
    )
    max_batch_bytes: Size = Field(
        default=64 * 1024 * 1024,
        ge=1024 * 1024,
        le=1024 * 1024 * 1024,
        description="Largest batch of input records, decompressed. A larger one is treated as unreadable, so that a "
        "few bytes that grow to gigabytes do no harm.",
    )
    compression: Literal["zstd", "lz4", "gzip", "none"] = Field(
        default="zstd", description="Compression of alerts and dead letters; any input is read."
    )
    session_timeout_s: Duration = Field(
        default=45.0,
        alias="session_timeout",
        ge=1.0,
        le=1800.0,
        description="A daemon that sends no heartbeat for so long loses its partitions. Within the broker's "
        "`group.min.session.timeout.ms` and `group.max.session.timeout.ms`.",
    )
    max_poll_interval_s: Duration = Field(
        default=300.0,
        alias="max_poll_interval",
        ge=1.0,
        le=86400.0,
        description="A daemon that works on one batch for longer loses its partitions.",
    )
    transaction_timeout_s: Duration = Field(
        default=30.0,
        alias="transaction_timeout",
        ge=1.0,
        le=900.0,
        description="The broker aborts a transaction that is open for longer. Not above its "
        "`transaction.max.timeout.ms`.",
    )
    request_timeout_s: Duration = Field(
        default=10.0,
        alias="request_timeout",
        ge=0.1,
        le=300.0,
        description="How long one request to a broker may take.",
    )
    api_version: Version = Field(
        default=None,
        description="Version of Kafka to assume instead of asking the broker. Normally absent.",
    )
    security_protocol: Annotated[Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"], BeforeValidator(_upper)] = (
        Field("PLAINTEXT", description="How to talk to the brokers.")
    )
    sasl_mechanism: Annotated[Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] | None, BeforeValidator(_upper)] = (
        Field(
            None,
            description="How to log in; needed with the `SASL_` protocols.",
            json_schema_extra={"allowed": '"PLAIN" or "SCRAM-SHA-256" or "SCRAM-SHA-512"'},
        )
    )
    sasl_username: Text | None = Field(
        default=None,
        min_length=1,
        description="User to log in as.",
        json_schema_extra={"allowed": "a text that is not empty"},
    )
    sasl_password: Secret = Field(default=None, min_length=1, description="Password of `sasl_username`.")
    sasl_password_file: File = Field(default=None, description="File that holds `sasl_password`.")
    ssl_ca_file: File = Field(
        default=None, description="Certificates (PEM) of the authorities to trust; the system's without it."
    )
    ssl_cert_file: File = Field(default=None, description="Certificate (PEM) that this daemon shows.")
    ssl_key_file: File = Field(default=None, description="Private key (PEM) of `ssl_cert_file`.")
    ssl_key_password: Secret = Field(default=None, min_length=1, description="Password of `ssl_key_file`.")
    ssl_key_password_file: File = Field(default=None, description="File that holds `ssl_key_password`.")
    ssl_check_hostname: Flag = Field(
        default=True, description="Whether the broker's certificate must carry the name it was reached by."
    )
    allow_plaintext: Flag = Field(
        default=False,
        description="Allow `SASL_PLAINTEXT` to servers that are not this machine; anybody between can listen.",
    )

    @property
    def exactly_once(self) -> bool:
        """Whether alerts and offsets are committed in transactions."""
        return self.delivery == "exactly-once"

    @property
    def transactional_id(self) -> str | None:
        """Name under which the broker knows this daemon's transactions, or None for delivery without them."""
        return f"streamdedup-{self.group_id}-{self.instance_id}" if self.exactly_once else None

    def security(self) -> dict[str, Any]:
        """Return the Kafka transport's options for TLS and login; secrets in clear, so never log them."""
        options: dict[str, Any] = {"security_protocol": self.security_protocol}
        if self.sasl_mechanism is not None:
            options["sasl_mechanism"] = self.sasl_mechanism
            options["sasl_username"] = self.sasl_username
            options["sasl_password"] = self.sasl_password.get_secret_value() if self.sasl_password else None
        if self.security_protocol.endswith("SSL"):
            files = {
                "ssl_cafile": self.ssl_ca_file,
                "ssl_certfile": self.ssl_cert_file,
                "ssl_keyfile": self.ssl_key_file,
            }
            options.update({name: str(path) for name, path in files.items() if path is not None})
            options["ssl_check_hostname"] = self.ssl_check_hostname
            if self.ssl_key_password is not None:
                options["ssl_password"] = self.ssl_key_password.get_secret_value()
        return options

    def checks(self) -> tuple[Check, ...]:
        """Return what looks for contradictions within the section."""
        return (
            *super().checks(),
            self._times,
            self._sasl,
            self._tls,
            self._plaintext,
            self._outputs,
            self._names,
            self._version,
        )

    def _outputs(self) -> Iterator[tuple[str, str]]:
        if self.dead_letter_topic == self.duplicates_topic:
            yield "dead_letter_topic", "is the duplicates_topic too; alerts and dead letters need a topic each"

    def _names(self) -> Iterator[tuple[str, str]]:
        if self.group_instance_id is not None and self.exactly_once and "instance_id" not in self.model_fields_set:
            yield "instance_id", "is missing; without it the partitions of group_instance_id wait after a crash"

    def _version(self) -> Iterator[tuple[str, str]]:
        if self.api_version is not None:
            if self.exactly_once and self.api_version < _TRANSACTIONS_SINCE:
                yield "api_version", 'is below 2.5, which delivery = "exactly-once" needs'
            if self.compression == "zstd" and self.api_version < _ZSTD_SINCE:
                yield "api_version", 'is below 2.1, which compression = "zstd" needs'

    def _times(self) -> Iterator[tuple[str, str]]:
        if self.request_timeout_s * 2 > self.transaction_timeout_s:
            yield "request_timeout", "must be at most half of transaction_timeout, so that one retry fits into it"
        if self.transaction_timeout_s >= self.max_poll_interval_s:
            yield "transaction_timeout", "must be below max_poll_interval, or a batch could outlive the membership"
        if self.session_timeout_s > self.max_poll_interval_s:
            yield "session_timeout", "must not be above max_poll_interval"

    def _sasl(self) -> Iterator[tuple[str, str]]:
        sasl = self.security_protocol.startswith("SASL")
        for name in ("sasl_mechanism", "sasl_username", "sasl_password"):
            given = getattr(self, name) is not None
            if sasl and not given:
                yield name, f"is missing; security_protocol = {self.security_protocol} needs it"
            elif given and not sasl:
                yield name, f"is given, but security_protocol = {self.security_protocol} does not log in"

    def _tls(self) -> Iterator[tuple[str, str]]:
        for name in ("ssl_ca_file", "ssl_cert_file", "ssl_key_file", "ssl_key_password"):
            if getattr(self, name) is not None and not self.security_protocol.endswith("SSL"):
                yield name, f"is given, but security_protocol = {self.security_protocol} does not use TLS"
        key_password = self.ssl_key_password.get_secret_value() if self.ssl_key_password else None
        yield from tls_files(self.ssl_ca_file, self.ssl_cert_file, self.ssl_key_file, key_password)
        if self.ssl_key_password is not None and self.ssl_key_file is None:
            yield "ssl_key_password", "is given, but there is no ssl_key_file that it could belong to"

    def _plaintext(self) -> Iterator[tuple[str, str]]:
        if self.security_protocol == "SASL_PLAINTEXT" and not self.allow_plaintext:
            hosts = [server.rpartition(":")[0] for server in self.bootstrap_servers]
            if not all(is_loopback(host) for host in hosts):
                yield "security_protocol", f"is SASL_PLAINTEXT to another machine; use SASL_SSL, or {ALLOW_PLAINTEXT}"


def tls_files(ca: File, cert: File, key: File, key_password: str | None = None) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with the files of a TLS client: absent, unusable, or a certificate without its key."""
    files = {"ssl_ca_file": ca, "ssl_cert_file": cert, "ssl_key_file": key}
    absent = [name for name, path in files.items() if path is not None and not _is_file(path)]
    for name in absent:
        yield name, f"names no file that can be read: {files[name]}"
    if (cert is None) != (key is None):
        given, missing = ("ssl_cert_file", "ssl_key_file") if key is None else ("ssl_key_file", "ssl_cert_file")
        yield missing, f"is missing; {given} needs it"
    if not absent:
        yield from unusable_files(ca, cert, key, key_password)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a name that is too long, a folder that may not be looked into
        return False
