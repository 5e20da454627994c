"""``KafkaTransport`` and its sinks for the daemon, and ``Feeder`` for commands that send records.

A change of the order in a transaction must pass tests/integration/test_kafka_traps.py, and touches docs/delivery.md.
"""

import contextlib
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Self

from kafka import KafkaProducer
from kafka.errors import KafkaError, KafkaTimeoutError

from streamdedup.errors import BrokerUnavailable, StreamdedupError
from streamdedup.kafka import compat
from streamdedup.kafka.admin import require_topics
from streamdedup.kafka.consumer import KafkaSource
from streamdedup.kafka.errors import CLIENT_ERRORS, TOO_LARGE, call_within, close_quietly, translated
from streamdedup.kafka.group_admin import refuse_other_indexes, remove_outdated_membership
from streamdedup.kafka.offsets import offsets_to_commit
from streamdedup.kafka.options import KafkaOptions
from streamdedup.kafka.protocols import Batch, Message, Sink, Source

#: Seconds beyond the transaction timeout to wait for the end of a transaction; after it new clients resolve that.
COMMIT_MARGIN_S = 5.0
#: Most unacknowledged records of a ``Feeder``: small ones fill two record batches in each of a few partitions.
MAX_IN_FLIGHT_RECORDS = 5_000
#: Largest number of unacknowledged bytes of keys, values and headers of a ``Feeder``; a longer record goes alone.
MAX_IN_FLIGHT_BYTES = 16 * 1_048_576


class _InFlight(NamedTuple):
    """An unacknowledged record of a ``Feeder``; ``future`` is that of the client, ``name`` is for ``on_too_large``."""

    future: Any
    topic: str
    size_bytes: int
    name: str


class KafkaTransport:
    def __init__(self, options: KafkaOptions) -> None:
        self._options = options

    def open(self) -> tuple[Source, Sink]:
        """Open the producer, then the source; the order matters."""
        options = self._options
        remove_outdated_membership(options)
        refuse_other_indexes(options)
        producer = compat.build(KafkaProducer, options.producer(), options)
        with contextlib.ExitStack() as after_error:
            after_error.callback(_close_without_flush, producer)
            if options.delivery == "exactly-once":
                self._resolve_transaction(producer)
            source = KafkaSource.open(options)
            after_error.pop_all()
        if options.delivery == "at-least-once":
            return source, AtLeastOnceSink(producer, options, source)
        return source, TransactionalSink(producer, options)

    def _resolve_transaction(self, producer: Any) -> None:
        """End the transaction that an earlier producer has left open: only then are the committed offsets final."""
        limit_s = self._options.transaction_timeout_s + COMMIT_MARGIN_S
        try:
            call_within(limit_s, "open transactions", producer.init_transactions)
        except CLIENT_ERRORS as error:
            raise translated(error, "open transactions", self._options) from error


class _ProducerSink(ABC):
    """Common part of both sinks: checks every future, and refuses further use after a failure."""

    def __init__(self, producer: Any, options: KafkaOptions) -> None:
        self._producer = producer
        self._options = options
        self._unusable_reason: str | None = None

    def close(self) -> None:
        """Drop unsent messages, unlike ``Feeder.close``, and close the client; never raises."""
        self._unusable_reason = "closed"
        _close_without_flush(self._producer)

    def publish(self, messages: Sequence[Message], batch: Batch) -> None:
        """Publish and commit. After a failure every further call is refused.

        The next transaction would commit the offsets of the failed one, too, and so rewind those of new owners.
        """
        if self._unusable_reason is not None:
            raise BrokerUnavailable(f"this sink is unusable ({self._unusable_reason}); open a new one")
        self._unusable_reason = "publishing failed"  # stays after any exception
        try:
            self._publish(messages, batch)
        except CLIENT_ERRORS as error:
            raise translated(error, "publish a batch", self._options) from error
        self._unusable_reason = None

    @abstractmethod
    def _publish(self, messages: Sequence[Message], batch: Batch) -> None: ...

    def _send(self, messages: Sequence[Message]) -> None:
        """Send all ``messages``; return when each is known to be stored."""
        deadline = time.monotonic() + self._options.delivery_timeout_s
        sent = [(message, self._send_one(message)) for message in messages]
        # `flush` speeds up the sending; only the futures tell whether a message is stored. `flush` also raises for a
        # record batch that the client splits and then stores, and neither `flush` nor `commit_transaction` reports a
        # message that the client has dropped.
        with contextlib.suppress(KafkaError):
            self._producer.flush(timeout=self._options.delivery_timeout_s)
        for message, future in sent:
            try:
                future.get(timeout=max(0.0, deadline - time.monotonic()))
            except CLIENT_ERRORS as error:
                raise translated(error, "publish", self._options, message.topic) from error

    def _send_one(self, message: Message) -> Any:
        try:
            return self._producer.send(
                message.topic,
                value=message.value,
                key=message.key,
                headers=list(message.headers),
                timestamp_ms=message.timestamp_ms,
            )
        except CLIENT_ERRORS as error:
            _raise_if_topic_missing(error, self._options, message.topic)
            raise translated(error, "publish", self._options, message.topic) from error


class TransactionalSink(_ProducerSink):
    def _publish(self, messages: Sequence[Message], batch: Batch) -> None:
        """Take the steps: 1. begin, 2. send, 3. check each message, 4. add offsets under the membership, 5. commit."""
        if messages or batch:
            self._producer.begin_transaction()  # 1.
            self._send(messages)  # 2. and 3.
            self._commit(batch)  # 4. and 5.

    def _commit(self, batch: Batch) -> None:
        """Steps 4 and 5, within a time limit, after which the thread of ``call_within`` may still commit.

        This is harmless: before new clients read committed offsets, they end the transaction and fence its producer.
        """

        def commit() -> None:
            if offsets := offsets_to_commit(batch):
                # By the membership the coordinator refuses a former member; by the group alone it accepts any commit.
                self._producer.send_offsets_to_transaction(offsets, batch.membership)
            self._producer.commit_transaction()

        call_within(self._options.transaction_timeout_s + COMMIT_MARGIN_S, "commit a transaction", commit)


class AtLeastOnceSink(_ProducerSink):
    """Messages first, then the offsets: a crash between the two repeats messages."""

    def __init__(self, producer: Any, options: KafkaOptions, source: KafkaSource) -> None:
        super().__init__(producer, options)
        self._source = source

    def _publish(self, messages: Sequence[Message], batch: Batch) -> None:
        self._send(messages)
        if batch:
            self._source.commit(batch)


class Feeder:
    """Sends many records outside any transaction; each is stored, or causes an error or a call of ``on_too_large``.

    The queue of the client has no bound, so the feeder waits at a number of unacknowledged records or bytes. The end of
    a ``with`` block flushes and closes; an exception in the block drops unsent records. Used from one thread. Group,
    input topics and transactional id of ``options`` are not used.

    ``on_too_large`` is called with name and reason for each record that is too large, in place of an error. Without it,
    and with ``delivery = "exactly-once"``, the feeder is idempotent: no record is stored twice. Not with it: the
    idempotent producer of kafka-python 3.0 fails all records after a refused one. Brokers for
    ``delivery = "at-least-once"`` may lack producer ids.
    """

    def __init__(self, options: KafkaOptions, *, on_too_large: Callable[[str, str], None] | None = None) -> None:
        self._options = options
        self._on_too_large = on_too_large
        self._in_flight: deque[_InFlight] = deque()  # the oldest first
        self._in_flight_bytes = 0
        self._sent_count = 0
        self._is_closed = False
        self._has_failed = False
        self.delivered_count = 0
        config = replace(options, delivery="at-least-once", transactional_id=None).producer()
        if options.delivery == "exactly-once" and on_too_large is None:
            # A request that is repeated after a timeout is stored once, and in order, with up to 5 requests in flight.
            config |= {"enable_idempotence": True, "max_in_flight_requests_per_connection": 5}
        self._producer = compat.build(KafkaProducer, config, options)

    def send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        timestamp_ms: int | None = None,
        *,
        headers: Sequence[tuple[str, bytes]] = (),
        partition: int | None = None,
        name: str = "",
    ) -> None:
        """Send one record; return before it is stored, and wait at the limits of unacknowledged records.

        The key selects the partition, unless ``partition`` is given. A time of None is now. ``name`` is for
        ``on_too_large``. After an error, which may be of an earlier record, nothing more can be sent.
        """
        self._raise_if_unusable()
        size_bytes = len(key or b"") + len(value or b"") + sum(len(content) for _, content in headers)
        self._make_room(size_bytes)
        try:
            future = self._producer.send(
                topic, value=value, key=key, headers=list(headers), partition=partition, timestamp_ms=timestamp_ms
            )
        except CLIENT_ERRORS as error:
            if self._leave_out_if_too_large(error, topic, name):
                return
            self._has_failed = True
            _raise_if_topic_missing(error, self._options, topic)
            raise self._failure(error, topic) from error
        self._sent_count += 1
        self._in_flight.append(_InFlight(future, topic, size_bytes, name))
        self._in_flight_bytes += size_bytes

    def flush(self) -> None:
        """Wait until every record is stored, at most ``delivery_timeout_s``; raise as ``send``."""
        self._raise_if_unusable()
        with contextlib.suppress(KafkaError):  # only the futures tell whether records are stored
            self._producer.flush(timeout=self._options.delivery_timeout_s)
        while self._in_flight:
            self._await_oldest()

    def close(self) -> None:
        """Wait until every record is stored, and close; after an error, or again, close only. Raises as ``send``."""
        if self._is_closed:
            return
        try:
            if not self._has_failed:
                self.flush()
        finally:
            self._is_closed = True
            _close_without_flush(self._producer)

    def _make_room(self, size_bytes: int) -> None:
        """Check the oldest records that are settled, and wait until another ``size_bytes`` may be in flight."""
        while self._in_flight and (
            self._in_flight[0].future.is_done
            or len(self._in_flight) >= MAX_IN_FLIGHT_RECORDS
            or self._in_flight_bytes + size_bytes > MAX_IN_FLIGHT_BYTES
        ):
            self._await_oldest()

    def _await_oldest(self) -> None:
        """Wait for the oldest unacknowledged record, and raise if its delivery failed."""
        future, topic, size_bytes, name = self._in_flight[0]
        try:
            future.get(timeout=self._options.delivery_timeout_s)
        except CLIENT_ERRORS as error:
            if not self._leave_out_if_too_large(error, topic, name):
                self._has_failed = True
                raise self._failure(error, topic) from error
        # Last: after a Ctrl-C that the caller catches in the `with` block, `close` waits for the record and counts it.
        self._in_flight.popleft()
        self._in_flight_bytes -= size_bytes
        self.delivered_count += future.succeeded()

    def _leave_out_if_too_large(self, error: Exception, topic: str, name: str) -> bool:
        """Report a record that is too large; return False for another error, or without ``on_too_large``."""
        if self._on_too_large is None or not isinstance(error, TOO_LARGE):
            return False
        self._on_too_large(name, str(translated(error, "send it", topic=topic)))
        return True

    def _raise_if_unusable(self) -> None:
        if self._has_failed or self._is_closed:
            raise BrokerUnavailable("this feeder is unusable: it was closed, or a record could not be delivered")

    def _failure(self, error: Exception, topic: str) -> StreamdedupError:
        """Return the translated error with the numbers of records taken and stored."""
        failure = translated(error, "send records", self._options, topic)
        stored_count = self.delivered_count + sum(record.future.succeeded() for record in self._in_flight)
        return type(failure)(f"{failure}; records taken: {self._sent_count:,}, known to be stored: {stored_count:,}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_error: object) -> None:
        self._has_failed |= kind is not None  # then unsent records are dropped
        self.close()


def _raise_if_topic_missing(error: Exception, options: KafkaOptions, topic: str) -> None:
    """Ask the broker after a timeout, which is all that the client reports of a missing topic; return if it exists."""
    if isinstance(error, KafkaTimeoutError):
        require_topics(options, {topic: ("DESCRIBE",)})  # needs the fewest rights


def _close_without_flush(producer: Any) -> None:
    """Drop unsent records and close ``producer``, by force where that fails; never raises."""
    if not close_quietly("close the producer", lambda: producer.close(timeout=0)):
        compat.force_close(producer)
