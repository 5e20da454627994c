"""Workarounds that need private parts of the Kafka client (kafka-python 3.0.12).

Each names the behaviour of the client, and the consequence without the workaround. ``tests/unit/test_kafka_compat.py``
has the test of each, and checks that only ``batch_limits`` and ``unreadable`` also use private parts.
"""

import copy
import logging
import selectors
import weakref
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

from kafka.consumer.fetcher import Fetcher
from kafka.errors import FencedInstanceIdError, KafkaTimeoutError
from kafka.net.compat import KafkaNetClient
from kafka.protocol.consumer import IsolationLevel
from kafka.structs import MemberState, TopicPartition

from streamdedup.kafka.batch_limits import limit_batches
from streamdedup.kafka.errors import (
    CLIENT_ERRORS,
    LOGIN_REFUSED,
    cap_client_logging,
    close_quietly,
    connection_error,
    is_final,
)
from streamdedup.kafka.options import KafkaOptions

logger = logging.getLogger(__name__)

# Building and closing clients


class ClosingSelector(selectors.DefaultSelector):
    """A selector whose ``close`` also closes the sockets that were registered.

    A closed client leaves open the socket of a queued request, such as the fetch of the last poll.
    """

    def __init__(self) -> None:
        super().__init__()
        self._sockets: weakref.WeakSet[Any] = weakref.WeakSet()

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        self._sockets.add(fileobj)
        return super().register(fileobj, events, data)

    def close(self) -> None:
        super().close()
        for registered in self._sockets:
            registered.close()


def build(kind: Callable[..., Any], config: dict[str, Any], options: KafkaOptions) -> Any:
    """Prepare the login, and return a client of ``kind``; raises ``errors.connection_error`` with the likely cause.

    Where the constructor fails, the client leaves its network thread and its sockets open; they are closed here.
    """
    # The next three lines change the client for the whole process.
    cap_client_logging()
    limit_batches()
    Fetcher._send_list_offsets_requests = _request_all_offsets
    if options.sasl_login is not None:
        options.sasl_login.prepare(options.connect_timeout_s)
    networks: list[Any] = []
    reasons: list[Exception] = []

    def factory(**configs: Any) -> Any:
        networks.append(KafkaNetClient(**configs))
        _stop_at_final_refusal(networks[-1], reasons)
        return networks[-1]

    try:
        client = kind(**config, kafka_client=factory, selector=ClosingSelector)
    except BaseException as error:
        for network in networks:
            close_quietly("close the network part", network.close)
        if isinstance(error, CLIENT_ERRORS):
            if isinstance(error, KafkaTimeoutError) and reasons:
                # A time-out says only that there is no connection. Better: a refused login, else the last failure.
                refusals = [reason for reason in reasons if isinstance(reason, LOGIN_REFUSED)]
                error = (refusals or reasons)[-1]
            doing = f"connect to Kafka at {options.bootstrap_servers} ({options.security_protocol})"
            # No cause is chained: some texts of the client contain configuration values.
            raise connection_error(error, doing, options) from None
        raise
    for network in networks:
        # Uncovers the client's method, which `_stop_at_final_refusal` replaced: a connected client reconnects as usual.
        del network._manager.get_connection
    return client


def _stop_at_final_refusal(network: Any, reasons: list[Exception]) -> None:
    """Append to ``reasons`` why connections fail, and stop connecting after the first permanent reason.

    The client only logs a refused login, tries it again until the timeout, and reports a broker that does not answer.
    """
    manager = network._manager
    client_get_connection = manager.get_connection

    def get_connection(node_id: Any, **options: Any) -> Any:
        for reason in reasons:
            if is_final(reason):
                raise reason
        connection = client_get_connection(node_id, **options)
        connection.close_future.add_errback(reasons.append)
        if connection.transport is None:  # a new connection, not one that the client reuses
            _read_before_close(connection)
        return connection

    manager.get_connection = get_connection


def _read_before_close(connection: Any) -> None:
    """Let a new connection process data that arrives together with the end of the connection.

    A broker answers a wrong password and closes the connection at once. The client drops data that come with the end.
    """
    client_connection_made = connection.connection_made

    def connection_made(transport: Any) -> None:
        receive = transport._sock_recv

        def receive_data_first() -> tuple[bytes, Exception | None]:
            data, error = receive()
            return data, (None if data else error)  # the next call sees the end again

        transport._sock_recv = receive_data_first
        client_connection_made(transport)

    connection.connection_made = connection_made


def force_close(producer: Any) -> None:
    """Stop the thread of a producer whose ``close`` has timed out; the client would wait for it when Python exits."""
    producer._sender.force_close()
    producer._closed = True


# Records, metadata and offsets

_client_request_offsets = Fetcher._send_list_offsets_requests


async def _request_all_offsets(fetcher: Any, timestamps: Mapping[Any, int]) -> tuple[dict[Any, Any], set[Any]]:
    """Request offsets as the client does; return the answers, and the partitions to ask for again.

    Where only some partitions have a leader, the client does not ask for the others again: ``offsets_for_times``
    returns None for them, as for a time behind the last record, and ``end_offsets`` raises ``KeyError``.
    """
    leader = fetcher._manager.cluster.leader_for_partition
    leaderless = {partition for partition in timestamps if leader(partition) in {None, -1}}
    offsets, to_repeat = await _client_request_offsets(fetcher, timestamps)
    return offsets, to_repeat | leaderless


def has_fetched(consumer: Any) -> bool:
    """Return whether the client holds fetched records; to poll with timeout 0 may take ``retry_backoff_ms``."""
    fetcher = consumer._fetcher
    return bool(fetcher._completed_fetches or fetcher._next_partition_records)


def assigned_states(consumer: Any) -> Mapping[Any, Any]:
    """Return the client's states of assigned partitions: ``position``; ``highwater``, the end offset.

    ``KafkaConsumer.position`` may ask the broker and wait. ``KafkaSource.request_ends`` may increase ``highwater``. A
    state object lives as long as the assignment: a partition that was revoked and assigned again has another one, and
    begins at the committed offset.
    """
    states: Mapping[Any, Any] = consumer._subscription.assignment
    return states


def drop_parked(consumer: Any) -> None:
    """Drop the records that were fetched before their partition was paused; the next fetch brings them again.

    After a resume the client returns such records only when no other fetched records wait, and meanwhile does not fetch
    the partition again. So of two resumed partitions the second may starve, unseen, until a rebalance.
    """
    consumer._fetcher._paused_partition_records.clear()


def known_partitions(consumer: Any, topic: str) -> set[int]:
    """Return the partition numbers of a topic in the metadata; ``partitions_for_topic`` may wait without a limit."""
    try:
        return set(consumer._cluster.partitions_for_topic(topic) or ())
    except KeyError:  # the network thread is replacing the metadata
        return set()


def watch_topics(consumer: Any, listener: Callable[[Any], None]) -> None:
    """Call ``listener`` on the network thread with each topic in Kafka's metadata, before the client uses the metadata.

    A topic has ``name``, ``topic_id``, ``error_code``. Public methods return no ids, nor which topics are missing.
    """
    cluster = consumer._cluster
    update = cluster.update_metadata

    def report_and_update(metadata: Any) -> Any:
        for topic in metadata.topics if metadata.brokers else ():  # the client ignores an answer without brokers
            listener(topic)
        return update(metadata)

    cluster.update_metadata = report_and_update


def request_metadata(consumer: Any) -> Any:
    """Request the metadata of the consumer's topics, and return the client's future; public methods request all."""
    return consumer._client.cluster.request_update()


def fetch_committed_offsets(
    consumer: Any, partitions: list[TopicPartition], timeout_ms: int, *, stable: bool = True
) -> Mapping[Any, Any]:
    """Return the committed offset of each partition that has one; ``KafkaConsumer.committed`` takes one partition.

    ``stable``: as for ``Source.committed_offsets``.
    """
    coordinator = consumer._coordinator
    if not stable:
        coordinator = copy.copy(coordinator)  # the consumer stays read_committed
        coordinator._isolation_level = IsolationLevel.READ_UNCOMMITTED
        # Else the copy joins a stable fetch in progress, which waits for transactions.
        coordinator._offset_fetch_futures = {}
        # Else the copy waits for the original's lookup of the coordinator, whose answer only the original takes: until
        # the time limit the copy would loop on the network thread, which meanwhile sends no heartbeat.
        coordinator._find_coordinator_future = None
    offsets: Mapping[Any, Any] = coordinator.fetch_committed_offsets(partitions, timeout_ms=timeout_ms)
    return offsets


def drop_offset_answers(consumer: Any) -> None:
    """Drop the answers, also those to come, to requests for committed offsets whose poll ended before the answer.

    The client returns them to later requests, also after other members owned the partitions: offsets would go back.
    """
    consumer._coordinator._offset_fetch_futures.clear()


# Membership in the group


def forget_owned_partitions(consumer: Any) -> None:
    """Let the next join name no partitions as owned, after the membership was lost.

    A partition that a member names as owned and that is to move to another is at first assigned to nobody: its owner
    revokes it, and so begins a second rebalance. A former owner has nothing to revoke: the rebalance never comes, and
    nobody reads the partition.
    """
    for assignor in consumer._coordinator._assignors.values():
        assignor.member_assignment = None


def finish_rebalance(consumer: Any) -> None:
    """Join the group again where the client has forgotten a rebalance.

    If the leader of the group joins again, for new partitions of a topic, and its poll ends before the answer arrives,
    its client considers itself joined: it never reads the answer, and sends no heartbeats and no fetches, forever.
    """
    coordinator = consumer._coordinator
    if coordinator.state == MemberState.REBALANCING and not coordinator.need_rejoin():
        logger.info("Joining the group once more", extra={"event": "rejoin"})
        coordinator.request_rejoin()


def keep_join_answer(consumer: Any) -> None:
    """Let the next poll take the answer to a join that arrived between two polls.

    The client drops a join task that is done and joins again: one more rebalance, for which all members wait. So a task
    with the same answer that is never done replaces it.
    """
    coordinator = consumer._coordinator
    join = coordinator._join_task
    # In any other state the client has lost its membership since the join was answered.
    if join is not None and join.is_done and join.succeeded() and coordinator.state == MemberState.REBALANCING:
        kept = SimpleNamespace(is_done=False, add_callback=join.add_callback, add_errback=join.add_errback)
        coordinator._join_task = kept


def lead_after_return(consumer: Any) -> None:
    """Let a static member that returns as the leader of its group watch the topics for new partitions, as leaders do.

    A static member that returns gets a new member id. Before JoinGroup version 9 (Kafka 3.2; the client asks for 7)
    Kafka still names the leader by its former id, so the leader takes itself for a follower, and nobody would ever read
    partitions and topics that come later. Only the leader may watch: of several members each would join again at each
    change, and some of these joins begin a rebalance.
    """
    coordinator = consumer._coordinator
    read_answer = coordinator._process_join_group_response

    def read_and_lead(*answer: Any) -> Any:
        response = read_answer(*answer)
        # Kafka makes the id of a static member from its name, a hyphen and a UUID, which has four hyphens.
        if response.leader.rsplit("-", 5)[0] == coordinator.group_instance_id:
            coordinator._is_leader, coordinator._assignment_snapshot = True, coordinator._metadata_snapshot
        return response

    coordinator._process_join_group_response = read_and_lead


def heartbeat_answered_at(consumer: Any) -> float:
    """Return the monotonic time of the last answer to a heartbeat; public methods return only the times of sending."""
    heartbeat = consumer._coordinator.heartbeat
    # A join resets the heartbeat; until the first answer after it the reset counts as one.
    return float(max(heartbeat.last_receive, heartbeat.last_reset))


def send_heartbeat(consumer: Any) -> None:
    """Send a heartbeat and wait for the answer; errors of the answer are raised. No public method does."""
    coordinator = consumer._coordinator
    coordinator._net.run(coordinator._send_heartbeat_request)


def watch_fencing(consumer: Any, on_fenced: Callable[[FencedInstanceIdError], None]) -> None:
    """Call ``on_fenced`` when another process has taken over the static membership.

    The client logs the error of its heartbeat and polls on in a busy loop, without heartbeats and records.
    """
    coordinator = consumer._coordinator
    read_answer = coordinator._handle_heartbeat_response

    def read_and_report(*answer: Any) -> Any:
        try:
            return read_answer(*answer)
        except FencedInstanceIdError as error:
            on_fenced(error)
            raise

    coordinator._handle_heartbeat_response = read_and_report


# Requests of an admin client


def broker_version(admin: Any) -> tuple[int, ...]:
    """Return a lower bound of the broker's version, which the client infers from the supported requests."""
    return tuple(admin._manager.broker_version)


def send_request(admin: Any, request: Any) -> Any:
    """Send ``request``, for which the client has no public method, to any broker; return the answer."""
    return admin._manager.run(admin._manager.send, request)
