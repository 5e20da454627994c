"""The producer as a Sink: everything of a batch in one transaction, or at least once."""

import contextlib
import time
from collections.abc import Callable, Sequence
from typing import Any

from kafka import KafkaProducer
from kafka.errors import KafkaError, KafkaTimeoutError

from streamdedup.errors import BrokerUnavailable, StreamdedupError
from streamdedup.kafka.client import build, call_within, close_quietly
from streamdedup.kafka.consumer import KafkaSource
from streamdedup.kafka.errors import CLIENT_ERRORS, translated
from streamdedup.kafka.options import KafkaOptions
from streamdedup.kafka.protocols import Batch, Message
from streamdedup.kafka.records import offsets_of
from streamdedup.kafka.topics import refuse_missing

#: What a commit may take beyond the transaction timeout, in seconds. When it is over, the broker has aborted the
#: transaction or has completed it, so waiting longer would tell nothing.
COMMIT_MARGIN_S = 5.0


def _as_it_is(producer: Any) -> Any:
    return producer


class _ProducerSink:
    """What both sinks share: sending with every future checked, and closing."""

    def __init__(self, producer: Any, options: KafkaOptions) -> None:
        self._producer = producer
        self._options = options
        self._spent: str | None = None
        self._closed = False

    def close(self) -> None:
        """Free everything without waiting for unsent messages; takes at most ``close_timeout_s``, never raises."""
        if self._closed:
            return
        self._closed = True
        self._spent = "closed"
        abandon(self._producer, self._options)

    def _send(self, messages: Sequence[Message]) -> None:
        """Send all ``messages`` and return when each is known to be stored."""
        deadline = time.monotonic() + self._options.delivery_timeout_s
        sent = [(message, self._send_one(message)) for message in messages]
        with contextlib.suppress(KafkaError):
            # Only the futures know: flushing raises for a record batch that is split and then stored, and neither
            # flushing nor committing says a word about one that was given up.
            self._producer.flush(timeout=self._options.delivery_timeout_s)
        for message, future in sent:
            try:
                future.get(timeout=max(0.0, deadline - time.monotonic()))
            except CLIENT_ERRORS as error:
                raise self._failure(error, "publish", message.topic) from error

    def _send_one(self, message: Message) -> Any:
        """Hand one message to the client."""
        try:
            return self._producer.send(
                message.topic,
                value=message.value,
                key=message.key,
                headers=list(message.headers),
                timestamp_ms=message.timestamp_ms,
            )
        except KafkaTimeoutError as error:
            # Also what the client says about a topic that does not exist; new clients would not cure that.
            refuse_missing(self._options, [message.topic])
            raise self._failure(error, "publish", message.topic) from error
        except CLIENT_ERRORS as error:
            raise self._failure(error, "publish", message.topic) from error

    def _refuse_if_spent(self) -> None:
        """A producer that failed once is never used again: it keeps the offsets of the failed transaction and would
        commit them with the next one, over those of the partitions' new owners."""  # noqa: D205, D209  one thought
        if self._spent is not None:
            raise BrokerUnavailable(f"this sink is unusable ({self._spent}); open a new one")

    def _failure(self, error: Exception, doing: str, topic: str | None = None) -> StreamdedupError:
        return translated(error, doing, self._options.secrets(), topic)


class TransactionalSink(_ProducerSink):
    """Messages and offsets of a batch in one transaction."""

    @classmethod
    def open(cls, options: KafkaOptions, wrap: Callable[[Any], Any] = _as_it_is) -> "TransactionalSink":
        """Connect, and settle what an earlier producer of the same transactional id left behind.

        Args:
            options: How to connect.
            wrap: Put around the producer, for those who want to see what is asked of it.

        Raises:
            BrokerUnavailable: Nothing answers.
            FatalError: The broker refuses us for good.
        """
        producer = wrap(build(KafkaProducer, options.producer(), options))
        limit_s = options.transaction_timeout_s + COMMIT_MARGIN_S
        try:
            call_within(limit_s, "open transactions", producer.init_transactions)
        except CLIENT_ERRORS as error:
            abandon(producer, options)
            raise translated(error, "open transactions", options.secrets()) from error
        except BaseException:
            abandon(producer, options)
            raise
        return cls(producer, options)

    def publish(self, messages: Sequence[Message], batch: Batch) -> None:
        """Publish ``messages`` and commit ``batch`` in one transaction.

        1. begin, 2. send, 3. check every message, 4. add the offsets under the batch's membership, 5. commit.

        Raises:
            BrokerUnavailable: Any failure that new clients may cure; the outcome is unknown.
            ProducerFenced: Another producer took over the transactional id.
            FatalError: The broker refuses us for good.
        """
        self._refuse_if_spent()
        if not messages and not batch:
            return
        self._spent = "a transaction failed"
        try:
            self._producer.begin_transaction()  # 1.
            self._send(messages)  # 2. and 3.
            self._commit(batch)  # 4. and 5.
        except CLIENT_ERRORS as error:
            raise self._failure(error, "publish a batch") from error
        self._spent = None

    def _commit(self, batch: Batch) -> None:
        """Steps 4 and 5, bounded.

        The thread that is left behind when time is up may still complete the transaction, or may not. Neither does any
        harm: before the next batch is read, a new producer of the same transactional id has made the coordinator
        complete or abort the transaction and refuse the old producer from then on, and a new consumer has gone back to
        the offsets that are committed then.
        """

        def commit() -> None:
            if offsets := offsets_of(batch):
                # The membership as it was when the batch was polled: a group that has moved on refuses it. With the
                # bare name of the group nobody would be refused.
                self._producer.send_offsets_to_transaction(offsets, batch.membership)
            self._producer.commit_transaction()

        call_within(self._options.transaction_timeout_s + COMMIT_MARGIN_S, "commit a transaction", commit)


class PlainSink(_ProducerSink):
    """Messages first, then the offsets: a crash between the two repeats messages."""

    def __init__(self, producer: Any, options: KafkaOptions, source: KafkaSource) -> None:
        super().__init__(producer, options)
        self._source = source

    @classmethod
    def open(cls, options: KafkaOptions, source: KafkaSource, wrap: Callable[[Any], Any] = _as_it_is) -> "PlainSink":
        """Connect; offsets go through ``source``, and ``wrap`` around the producer.

        Raises:
            BrokerUnavailable: Nothing answers.
            FatalError: The broker refuses us for good.
        """
        return cls(wrap(build(KafkaProducer, options.producer(), options)), options, source)

    def publish(self, messages: Sequence[Message], batch: Batch) -> None:
        """Publish ``messages``, then commit ``batch``.

        Raises:
            BrokerUnavailable: Any failure that new clients may cure; the outcome is unknown.
            FatalError: The broker refuses us for good.
        """
        self._refuse_if_spent()
        self._spent = "publishing failed"
        try:
            self._send(messages)
        except CLIENT_ERRORS as error:
            raise self._failure(error, "publish a batch") from error
        if batch:
            self._source.commit(batch)
        self._spent = None


def abandon(producer: Any, options: KafkaOptions) -> None:
    """Close ``producer`` without sending anything more.

    Its own close waits for messages that may never be delivered, raises when they are not, and then leaves its thread
    running and itself open, to try again when Python exits.
    """
    if not close_quietly("close the producer", lambda: producer.close(timeout=0), options.close_timeout_s):
        producer._sender.force_close()  # noqa: SLF001  what close does after its wait
        producer._closed = True  # noqa: SLF001  so that nothing is tried at exit
