"""A producer for whole corpora: many records, few in flight, and no delivery that is not checked.

The client's own queue has no bound, so a fast reader of files would fill the memory with what a slow broker has not
taken yet. Here the sender waits once so many records, or so many bytes, are on their way.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

from kafka import KafkaProducer
from kafka.errors import KafkaTimeoutError

from streamdedup.errors import BrokerUnavailable, StreamdedupError
from streamdedup.kafka.client import build
from streamdedup.kafka.errors import CLIENT_ERRORS, cap_client_logging, translated
from streamdedup.kafka.options import KafkaOptions
from streamdedup.kafka.producer import abandon
from streamdedup.kafka.topics import refuse_missing

#: Records on their way at once. Two batches of small records for each of a few partitions.
MAX_IN_FLIGHT_RECORDS = 5_000

#: Bytes of keys and values on their way at once.
MAX_IN_FLIGHT_BYTES = 16 * 1_048_576


class Feeder:
    """Sends records outside any transaction, each at least once; with a broker that knows producer ids exactly once.

    As a context manager it closes in order when all went well, and drops what is unsent when something raised. Used
    from one thread.

    Args:
        options: Where Kafka is, and the limits of its producer. ``delivery`` says what the broker knows: without
            transactions it has no producer ids either. Group, input topics and transactional id are not used.
        max_in_flight_records: Wait when so many records are not acknowledged.
        max_in_flight_bytes: Wait when their keys and values are so many bytes; a longer record goes alone.

    Attributes:
        delivered_count: Records known to be stored.

    Raises:
        BrokerUnavailable: Nothing answers.
        FatalError: The broker refuses us for good.
    """

    def __init__(
        self,
        options: KafkaOptions,
        *,
        max_in_flight_records: int = MAX_IN_FLIGHT_RECORDS,
        max_in_flight_bytes: int = MAX_IN_FLIGHT_BYTES,
    ) -> None:
        cap_client_logging()
        self._options = options
        self._max_records = max_in_flight_records
        self._max_bytes = max_in_flight_bytes
        self._in_flight: deque[tuple[Any, str, int]] = deque()
        self._in_flight_bytes = 0
        self._taken_count = 0
        self._closed = False
        self._failed = False
        self.delivered_count = 0
        self._producer = build(KafkaProducer, _producer_config(options), options)

    def send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        timestamp_ms: int | None = None,
        *,
        headers: Sequence[tuple[str, bytes]] = (),
        partition: int | None = None,
    ) -> None:
        """Hand over one record; returns before it is stored, and waits while too many are on their way.

        Args:
            topic: Where to.
            key: Decides on the partition, unless that is given; None leaves the choice to the client.
            value: What to store; None is a tombstone, which needs a key.
            timestamp_ms: Record time in milliseconds since the epoch; None is now.
            headers: Name and value of each header.
            partition: Number of the partition.

        Raises:
            BrokerUnavailable: This record, or one before it, could not be delivered; nothing more can be sent.
            BrokerMisconfigured: The same, for a reason that an operator must cure (topic, rights, size).
        """
        self._refuse_if_spent()
        size_bytes = len(key or b"") + len(value or b"") + sum(len(content) for _, content in headers)
        self._make_room(size_bytes)
        try:
            future = self._producer.send(
                topic, value=value, key=key, headers=list(headers), partition=partition, timestamp_ms=timestamp_ms
            )
        except CLIENT_ERRORS as error:
            self._failed = True
            if isinstance(error, KafkaTimeoutError):
                # Also what the client says about a topic that does not exist.
                refuse_missing(self._options, [topic])
            raise self._failure(error, topic) from error
        self._taken_count += 1
        self._in_flight.append((future, topic, size_bytes))
        self._in_flight_bytes += size_bytes

    def flush(self) -> None:
        """Wait until every record is stored, at most ``delivery_timeout_s``.

        Raises:
            BrokerUnavailable: A record could not be delivered; nothing more can be sent.
            BrokerMisconfigured: The same, for a reason that an operator must cure.
        """
        self._refuse_if_spent()
        try:
            self._producer.flush(timeout=self._options.delivery_timeout_s)
        except CLIENT_ERRORS as error:
            self._failed = True
            raise self._failure(error) from error
        while self._in_flight:
            self._settle_oldest()

    def close(self) -> None:
        """Wait until every record is stored, and free everything; may be called twice.

        Raises:
            BrokerUnavailable: A record could not be delivered.
            BrokerMisconfigured: The same, for a reason that an operator must cure.
        """
        if self._closed:
            return
        try:
            if not self._failed:
                self.flush()
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Free everything and drop what is unsent; never raises, may be called twice."""
        if self._closed:
            return
        self._closed = True
        abandon(self._producer, self._options)

    def _make_room(self, size_bytes: int) -> None:
        """Wait until another ``size_bytes`` may be on their way."""
        while self._in_flight and (
            self._in_flight[0][0].is_done
            or len(self._in_flight) >= self._max_records
            or self._in_flight_bytes + size_bytes > self._max_bytes
        ):
            self._settle_oldest()

    def _settle_oldest(self) -> None:
        """Wait for the outcome of the oldest record on its way; a failed one is an exception."""
        future, topic, size_bytes = self._in_flight.popleft()
        self._in_flight_bytes -= size_bytes
        try:
            future.get(timeout=self._options.delivery_timeout_s)
        except CLIENT_ERRORS as error:
            self._failed = True
            raise self._failure(error, topic) from error
        self.delivered_count += 1

    def _refuse_if_spent(self) -> None:
        if self._failed or self._closed:
            raise BrokerUnavailable("this feeder is unusable: it was closed, or a record could not be delivered")

    def _failure(self, error: Exception, topic: str | None = None) -> StreamdedupError:
        """Return the error of ours, which also says how far it came."""
        ours = translated(error, "send records", self._options.secrets(), topic)
        stored_count = self.delivered_count + sum(future.succeeded() for future, _, _ in self._in_flight)
        return type(ours)(f"{ours}; records taken: {self._taken_count:,}, known to be stored: {stored_count:,}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:
            self.abandon()


def _producer_config(options: KafkaOptions) -> dict[str, Any]:
    """Configuration of a producer without transactions, and with producer ids where the broker has them."""
    config = replace(options, delivery="at-least-once", transactional_id=None).producer()
    if options.delivery == "exactly-once":
        # A request that is repeated after a time-out is then stored once, and in order, with several on their way.
        config |= {"enable_idempotence": True, "max_in_flight_requests_per_connection": 5}
    return config
