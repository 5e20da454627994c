"""Clients that are built and closed within a bound, and calls that could block for ever, bounded."""

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any, TypeVar

from kafka import KafkaAdminClient
from kafka.errors import KafkaTimeoutError
from kafka.net.compat import KafkaNetClient

from streamdedup.errors import BrokerUnavailable
from streamdedup.kafka.decompression import bound_decompression
from streamdedup.kafka.errors import CLIENT_ERRORS, is_final, not_connected, translated
from streamdedup.kafka.options import KafkaOptions

logger = logging.getLogger(__name__)

Result = TypeVar("Result")


def call_within(timeout_s: float, doing: str, call: Callable[[], Result]) -> Result:
    """Return what ``call`` returns, waiting at most ``timeout_s``.

    The client offers no time limit for most of what it does in a transaction. The call therefore runs in a daemon
    thread, which is left behind when time is up: it cannot be stopped, and it keeps no process alive.

    Args:
        timeout_s: Longest wait in seconds.
        doing: What the call does, as "cannot <doing>" continues.
        call: What to call; it runs in another thread.

    Raises:
        BrokerUnavailable: Time is up; whether the call takes effect later is unknown.
    """
    outcome: Future[Result] = Future()

    def run() -> None:
        try:
            outcome.set_result(call())
        except BaseException as error:  # noqa: BLE001  handed over to the caller, whatever it is
            outcome.set_exception(error)

    threading.Thread(target=run, name=f"kafka: {doing}", daemon=True).start()
    try:
        return outcome.result(timeout_s)
    except TimeoutError:
        if outcome.done():
            raise
        raise BrokerUnavailable(f"cannot {doing}: Kafka did not answer within {timeout_s:g} s") from None


def build(kind: Callable[..., Any], config: dict[str, Any], options: KafkaOptions) -> Any:
    """Return a client of ``kind``, or nothing that outlives the attempt.

    A constructor that fails leaves its network thread and sockets behind; so the network part is built by a factory
    that remembers it, and is closed here. Its longest duration is that of connecting plus one request.

    Raises:
        BrokerUnavailable: Nothing answers.
        FatalError: The broker refuses us for good.
    """
    bound_decompression(options.max_batch_bytes)
    network: list[Any] = []
    reasons: list[Exception] = []

    def remembering(**configs: Any) -> Any:
        network.append(KafkaNetClient(**configs))
        _note_refusals(network[-1], reasons)
        return network[-1]

    try:
        client = kind(**config, kafka_client=remembering)
    except BaseException as error:
        for part in network:
            close_quietly("close the network part", part.close, options.close_timeout_s)
        if isinstance(error, CLIENT_ERRORS):
            # All that a time-out tells is that no connection came about. Neither is named as the cause: the client puts
            # configuration values into some of its texts.
            reason = reasons[-1] if reasons and isinstance(error, KafkaTimeoutError) else error
            doing = f"connect to Kafka at {options.address} ({options.security_protocol})"
            raise not_connected(reason, doing, options.secrets()) from None
        raise
    for part in network:
        del part._manager.get_connection  # noqa: SLF001  the watch ends, and the method of the class is back
    return client


def _note_refusals(network: Any, reasons: list[Exception]) -> None:
    """Take into ``reasons`` why connections do not come about, and end the attempts at the first final one.

    The client means to end them itself, but forgets a refused login as soon as it has filed it; so a wrong password
    would be tried until time is up, and be told as a server that does not answer.
    """
    manager = network._manager  # noqa: SLF001  no public method tells
    connect = manager.get_connection

    def watched(node_id: Any, **options: Any) -> Any:
        for reason in reasons:
            if is_final(reason):
                raise reason
        connection = connect(node_id, **options)
        connection.close_future.add_errback(reasons.append)
        if connection.transport is None:
            _hear_out(connection)
        return connection

    manager.get_connection = watched


def _hear_out(connection: Any) -> None:
    """Let a new connection read what came before the other end hung up.

    A broker answers a wrong password and hangs up at once; the client throws away what it receives together with the
    end of the connection, and would know nothing but that.
    """
    made = connection.connection_made

    def connection_made(transport: Any) -> None:
        receive = transport._sock_recv  # noqa: SLF001  no public method reads

        def hear() -> tuple[bytes, Exception | None]:
            data, error = receive()
            return data, (None if data else error)  # the next call meets the end again

        transport._sock_recv = hear  # noqa: SLF001  see above
        made(transport)

    connection.connection_made = connection_made


@contextlib.contextmanager
def admin_client(options: KafkaOptions) -> Iterator[Any]:
    """Yield an admin client and close it.

    Raises:
        BrokerUnavailable: Nothing answers.
        FatalError: The broker refuses us for good.
    """
    admin = build(KafkaAdminClient, options.admin(), options)
    try:
        yield admin
    except CLIENT_ERRORS as error:
        raise translated(error, "ask Kafka about its topics", options.secrets()) from error
    finally:
        close_quietly("close the admin client", admin.close, options.close_timeout_s)


def close_quietly(doing: str, close: Callable[[], object], timeout_s: float) -> bool:
    """Call ``close`` for at most ``timeout_s``; never raise. Return whether it succeeded."""
    try:
        call_within(timeout_s, doing, close)
    except Exception as error:  # noqa: BLE001  closing is the last step: whatever fails here has no further effect
        logger.info("Closing was cut short", extra={"event": "close_cut_short", "doing": doing, "error": repr(error)})
        return False
    return True
