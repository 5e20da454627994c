"""Kafka connection settings, and the client configurations made from them.

A new setting touches ``settings.kafka``, ``cli.assembly`` and this module. Options that would break a guarantee
(automatic commits, isolation level, acknowledgements, deserializers) do not exist.
"""

from dataclasses import dataclass, field
from typing import Any, Literal

from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor

from streamdedup.kafka.login import KafkaLogin

CLIENT_ID = "streamdedup"
#: Pause between two tries of a request of a producer, in milliseconds. The producer also pauses once in every
#: transaction that directly follows another: 100 (the default) limits a daemon to 9 a second, 20 allows 160.
PRODUCER_BACKOFF_MS = 20
#: Longest pause between two tries to connect, in milliseconds: the longest delay after the return of a broker.
RECONNECT_BACKOFF_MAX_MS = 2_000
#: How long a fetch may wait at the broker for data, in milliseconds.
FETCH_MAX_WAIT_MS = 500
#: Largest number of bytes of one fetch from one broker, and of one partition in this fetch.
FETCH_MAX_BYTES, PARTITION_FETCH_MAX_BYTES = 16 * 1_048_576, 2 * 1_048_576
#: Largest answer of a broker, in bytes. A fetch returns at least one record batch, however large; by default brokers
#: take 100 MiB at most (``socket.request.max.bytes``). Below 336 MiB, which is what a TLS alert reads as (``errors``).
RECEIVE_MAX_BYTES = 128 * 1_048_576
#: Age at which a consumer renews its metadata, in milliseconds: the longest delay until it notices changed topics.
METADATA_MAX_AGE_MS = 5_000
#: How long a record may wait for further records of its batch, in milliseconds; a flush ends the wait.
LINGER_MS = 5
#: Largest batch of output records of one partition, in bytes.
PRODUCER_BATCH_BYTES = 131_072


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaOptions:
    """All settings for a Kafka transport; for most, the docstring in ``settings.kafka`` says more.

    Attributes:
        transactional_id: Daemon name; the same after a restart, never shared by two live daemons.
        on_out_of_range: Where to begin without a committed offset that the topic has: at the oldest record, or
            ``halt``, which raises ``FatalError``.
        api_version: Protocol version, for brokers without negotiation of versions; None to negotiate.
        sasl_login: Login whose password or token changes; None for a constant password, and without a login.
        compression: Codec of sent records; None for brokers in memory (demo, tests).
        fetch_timeout_s, produce_timeout_s: Time limits for one request of the consumer, and of the producer.
        opening_timeout_s: Time limit for each step of opening a reader; None for ``fetch_timeout_s``.
        delivery_timeout_s: Time limit for one output record, retries included; at most ``transaction_timeout_s``.
        create_command: Command line that creates the topics, for error texts; None without settings.
        index_name: Name of the indexes (``redis.key_prefix``), part of the client id of group members. A daemon does
            not join members with another name or none. Empty for no name.
    """

    bootstrap_servers: str
    group_id: str
    topics: tuple[str, ...]
    delivery: Literal["exactly-once", "at-least-once"] = "exactly-once"
    transactional_id: str | None = None
    group_instance_id: str | None = None
    on_unreadable: Literal["skip", "halt"] = "skip"
    on_out_of_range: Literal["earliest", "halt"] = "earliest"
    api_version: tuple[int, ...] | None = None
    security_protocol: str = "PLAINTEXT"
    ssl_cafile: str | None = None
    ssl_certfile: str | None = None
    ssl_keyfile: str | None = None
    ssl_check_hostname: bool = True
    sasl_mechanism: str | None = None
    sasl_username: str | None = None
    sasl_password: str | None = field(default=None, repr=False)
    sasl_login: KafkaLogin | None = None
    sasl_kerberos_service_name: str = "kafka"
    compression: Literal["zstd"] | None = "zstd"
    max_poll_records: int = 2_000
    max_request_bytes: int = 1_048_576
    connect_timeout_s: float = 10.0
    session_timeout_s: float = 45.0
    heartbeat_interval_s: float = 3.0
    max_poll_interval_s: float = 300.0
    fetch_timeout_s: float = 30.0
    opening_timeout_s: float | None = None
    produce_timeout_s: float = 10.0
    delivery_timeout_s: float = 25.0
    transaction_timeout_s: float = 30.0
    create_command: str | None = None
    index_name: str = ""

    def secrets(self) -> tuple[str, ...]:
        """Return the passwords and tokens, which ``errors.translated`` keeps out of error texts."""
        changing = () if self.sasl_login is None else self.sasl_login.secrets()
        return (self.sasl_password, *changing) if self.sasl_password else changing

    @property
    def member_client_id(self) -> str:
        return f"{CLIENT_ID}-{self.index_name}" if self.index_name else CLIENT_ID

    def connection(self) -> dict[str, Any]:
        return {
            "bootstrap_servers": self.bootstrap_servers,
            "client_id": CLIENT_ID,
            "api_version": self.api_version,
            "bootstrap_timeout_ms": _ms(self.connect_timeout_s),
            "reconnect_backoff_max_ms": RECONNECT_BACKOFF_MAX_MS,
            "security_protocol": self.security_protocol,
            "ssl_cafile": self.ssl_cafile,
            "ssl_certfile": self.ssl_certfile,
            "ssl_keyfile": self.ssl_keyfile,
            "ssl_check_hostname": self.ssl_check_hostname,
            "sasl_mechanism": self.sasl_mechanism,
            "sasl_plain_username": self.sasl_username,
            # The mechanisms that `login` registers also take a `KafkaLogin` here, and read its password.
            "sasl_plain_password": self.sasl_password if self.sasl_login is None else self.sasl_login,
            "sasl_oauth_token_provider": self.sasl_login,
            "sasl_kerberos_service_name": self.sasl_kerberos_service_name,
        }

    def admin(self) -> dict[str, Any]:
        return self.connection() | {"request_timeout_ms": _ms(self.connect_timeout_s)}

    def reader(self) -> dict[str, Any]:
        """Configuration for a consumer without a group; ``consumer`` adds the group."""
        return self.connection() | {
            "enable_auto_commit": False,  # offsets are committed with the alerts, never by themselves
            # Also for input without transactions: a read_committed consumer that takes over a partition waits for the
            # open transaction in which the previous owner commits offsets; a read_uncommitted one reads the old offset.
            "isolation_level": "read_committed",
            # The default, latest, would lose records written before the group existed.
            "auto_offset_reset": "earliest" if self.on_out_of_range == "earliest" else "none",
            "allow_auto_create_topics": False,
            "max_poll_records": self.max_poll_records,
            "fetch_max_bytes": FETCH_MAX_BYTES,
            "max_partition_fetch_bytes": PARTITION_FETCH_MAX_BYTES,
            "receive_message_max_bytes": RECEIVE_MAX_BYTES,
            "fetch_max_wait_ms": FETCH_MAX_WAIT_MS,
            "metadata_max_age_ms": METADATA_MAX_AGE_MS,
            "request_timeout_ms": _ms(self.fetch_timeout_s),
        }

    def consumer(self) -> dict[str, Any]:
        return self.reader() | {
            "client_id": self.member_client_id,
            "group_id": self.group_id,
            "group_instance_id": self.group_instance_id,
            "partition_assignment_strategy": [CooperativeStickyAssignor],
            "max_poll_interval_ms": _ms(self.max_poll_interval_s),
            "session_timeout_ms": _ms(self.session_timeout_s),
            "heartbeat_interval_ms": _ms(self.heartbeat_interval_s),
        }

    def producer(self) -> dict[str, Any]:
        shared = self.connection() | {
            "acks": "all",
            "allow_auto_create_topics": False,
            "delivery_timeout_ms": _ms(self.delivery_timeout_s),
            "request_timeout_ms": _ms(self.produce_timeout_s),
            "max_block_ms": _ms(self.produce_timeout_s),
            "retry_backoff_ms": PRODUCER_BACKOFF_MS,
            "linger_ms": LINGER_MS,
            "batch_size": PRODUCER_BATCH_BYTES,
            "max_request_size": self.max_request_bytes,
            "compression_type": self.compression,
        }
        if self.delivery == "at-least-once":
            # Brokers without transactions may lack producer ids as well. One request at a time then keeps the order.
            return shared | {"enable_idempotence": False, "max_in_flight_requests_per_connection": 1}
        return shared | {
            "transactional_id": self.transactional_id,
            "transaction_timeout_ms": _ms(self.transaction_timeout_s),
        }


def _ms(duration_s: float) -> int:
    return round(duration_s * 1000)
