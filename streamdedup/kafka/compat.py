"""The only module, beside ``batch_limits``, that relies on private parts of the Kafka client (kafka-python 3.0.12).

Each workaround names the behaviour of the client, the consequence without the workaround, and its test (``Test:``).
``tests/unit/test_kafka_compat.py`` checks that the tests exist and that no third module of ``kafka/`` does this.
"""

import copy
import logging
import selectors
import weakref
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from kafka.consumer.fetcher import Fetcher
from kafka.errors import FencedInstanceIdError, KafkaError, KafkaTimeoutError
from kafka.net.compat import KafkaNetClient
from kafka.protocol.consumer import IsolationLevel
from kafka.structs import MemberState, TopicPartition

from streamdedup.kafka.batch_limits import PollBudget, RecordBatches, limit_batches
from streamdedup.kafka.errors import (
    CLIENT_ERRORS,
    LOGIN_REFUSED,
    cap_client_logging,
    close_quietly,
    codec_missing,
    connection_error,
    described,
    is_final,
)
from streamdedup.kafka.options import KafkaOptions
from streamdedup.kafka.unreadable import UnreadableRange, UnreadableReports
from streamdedup.position import Partition

logger = logging.getLogger(__name__)

#: Longest error text of an unreadable record, in characters.
MAX_REASON_CHARS = 200


# Building and closing clients


class ClosingSelector(selectors.DefaultSelector):
    """A selector whose ``close`` also closes the sockets that were registered.

    A closed client cancels the tasks of its connections. A task that is cancelled before it has sent its request, as
    the fetch that the last poll has queued, leaves its socket open until garbage collection.

    Test: ``test_closing_a_client_closes_a_connection_with_a_request_that_is_to_be_sent``.
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
    """Prepare the login, and return a client of ``kind``; raises the error that ``errors.connection_error`` returns.

    A client whose constructor fails leaves its network thread and its sockets open. So ``factory`` records the network
    part, which is closed here after a failure.

    Test: ``test_an_absent_broker_is_reported_in_time_and_nothing_is_left_behind``.
    """
    # These three lines change the client for the whole process.
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
                # It only says that there is no connection. A refused login is the best reason, else the latest one.
                error = ([reason for reason in reasons if isinstance(reason, LOGIN_REFUSED)] or reasons)[-1]
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

    The client drops a refused login after logging it. Without this function a wrong password is tried again until the
    timeout, and is reported as a broker that does not answer.

    Test: ``test_a_wrong_password_is_told_as_such_by_every_command``.
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

    Test: ``test_a_wrong_password_is_told_as_such_by_every_command``.
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
    """Stop the thread of a producer whose ``close`` waited in vain for undeliverable messages.

    The client leaves the thread running, and repeats the wait when Python exits.

    Test: ``test_a_process_ends_quietly_and_soon_although_kafka_is_away``.
    """
    producer._sender.force_close()
    producer._closed = True


# Record batches that the client cannot parse


def guard_parsing(consumer: Any, max_offsets: int, *, keeps_rests: bool = True) -> list[UnreadableRange]:
    """Make a consumer return unreadable offsets as ``UnreadableRange`` in place of records; limit a poll's bytes.

    Returns a list to which each poll adds its ranges; the caller empties it before each poll whose records it uses. For
    the limit see ``RecordBatches``, for ``max_offsets`` and ``keeps_rests`` ``UnreadableReports``.

    Unreadable means: an unknown codec, a wrong checksum, a header name that is not UTF-8, a batch above the limits of
    ``limit_batches``. The first unreadable record also hides the records behind it in the same record batch. The client
    raises an error that names no offset and keeps the exhausted parser, so that no later poll returns, even with a
    timeout.

    Test: ``TestT8T9RecordsThatTheClientCannotParse``.
    """
    unreadable = UnreadableReports(max_offsets, keeps_rests)
    budget = PollBudget()
    consumer._fetcher.PartitionRecords = partial(_PartitionRecords, unreadable, budget)
    _keep_unparsed(consumer._fetcher, budget)
    return unreadable.ranges


def _keep_unparsed(fetcher: Any, budget: PollBudget) -> None:
    """Renew ``budget`` for each poll; when it is spent, put aside, for the next poll, fetches that are not begun.

    The client would begin such a fetch, get no record, drop the fetch and send it again. A broker keeps the order of
    the partitions in its answers, so no record of the partition would be read as long as an earlier partition has a
    backlog of large record batches.

    Test: ``test_a_poll_begins_no_record_batch_beyond_its_bytes``.
    """
    fetched_records, parse = fetcher.fetched_records, fetcher._parse_fetched_data
    kept: list[Any] = []

    def parse_within_budget(fetch: Any) -> Any:
        if budget.left_bytes > 0:
            return parse(fetch)
        kept.append(fetch)
        return None  # as for an outdated fetch: the client takes the next one

    def records_within_budget(*arguments: Any, **options: Any) -> Any:
        budget.renew()
        try:
            records, is_partial = fetched_records(*arguments, **options)
            # While the second value is true, the client sends no new fetches; otherwise the kept ones would pile up.
            return records, is_partial or bool(kept)
        finally:
            fetcher._completed_fetches.extendleft(reversed(kept))
            kept.clear()

    fetcher._parse_fetched_data = parse_within_budget
    fetcher.fetched_records = records_within_budget


class _PartitionRecords(Fetcher.PartitionRecords):  # type: ignore[misc]  # the client is untyped
    """The client's parser of one fetched partition; adds nothing to the work per record."""

    def __init__(self, unreadable: UnreadableReports, budget: PollBudget, *fetch: Any, **options: Any) -> None:
        offset, partition, records = fetch
        self._unreadable = unreadable
        self._batches = RecordBatches(records, budget, offset)
        super().__init__(offset, partition, self._batches, **options)

    def take(self, n: int | None = None) -> list[Any]:
        """Return up to ``n`` records, or one unreadable range, or nothing if the next fetch is to begin with the range.

        Raises:
            CodecMissing: The library of a codec is not installed; the records become readable once it is.
        """
        # The rest of a range that the last poll did not report, if this fetch begins with the same record batch.
        rest = self._unreadable.rests.pop(self.topic_partition, None)
        if rest is not None and (rest.offset, rest.batch_header) == (self.fetch_offset, self._batches.next_header()):
            self.drain()
            return self._reported(rest)
        try:
            records: list[Any] = super().take(n)
        except MemoryError:  # no record is to blame, so none is stepped past
            self.drain()
            raise
        except Exception as error:
            self.drain()  # otherwise the client polls the exhausted parser forever
            self._batches.charge_unreadable()
            attempt = f"cannot read {Partition(*self.topic_partition)} from offset {self._next_offset()} on"
            missing = codec_missing(error, attempt)
            if missing is not None:
                raise missing from error
            if self.next_fetch_offset > self.fetch_offset:
                return []  # earlier records were readable: the next fetch begins here
            return self._reported(self._range(error, attempt))
        return records

    def _next_offset(self) -> int:
        """Return the next offset to parse; ``next_fetch_offset`` is less while the client skips earlier records."""
        return int(max(self.next_fetch_offset, self.fetch_offset))

    def _reported(self, unreadable: UnreadableRange) -> list[UnreadableRange]:
        """Return the part of the range that this poll reports, if any, and set the position behind it."""
        parts = self._unreadable.report(self.topic_partition, unreadable)
        if parts:
            self.next_fetch_offset = parts[0].last + 1
        return parts

    def _range(self, error: Exception, attempt: str) -> UnreadableRange:
        """Return the unreadable range at the beginning of the fetch."""
        batch = self._batches.current
        if batch is None or batch.magic < 2 or batch.last_offset < self._next_offset():
            # Formats before Kafka 0.11 have no header with the last offset, and the header itself may be damaged.
            advice = "move the group's offset behind the damaged record batch, whose header has no last offset"
            raise KafkaError(f"{attempt}: {advice} [{described(error)}]") from error
        start = max(self._next_offset(), batch.base_offset)  # compaction may have left a gap before the batch
        reason = described(error)[:MAX_REASON_CHARS]
        topic, partition = self.topic_partition
        header = batch.HEADER_STRUCT.pack(*batch._header_data)
        return UnreadableRange(topic, partition, start, batch.last_offset, reason, header)


# Partitions without a leader

_client_request_offsets = Fetcher._send_list_offsets_requests


async def _request_all_offsets(fetcher: Any, timestamps: Mapping[Any, int]) -> tuple[dict[Any, Any], set[Any]]:
    """Request offsets as the client does; return the answers, and the partitions to ask for again.

    Where only some partitions have a leader, the client does not ask for the others again: ``offsets_for_times``
    returns None for them, as for a time behind the last record, and ``end_offsets`` raises ``KeyError``. With this
    function the client asks until the time limit of the call.

    Test: ``test_offsets_are_asked_for_until_all_partitions_have_a_leader``.
    """
    leader = fetcher._manager.cluster.leader_for_partition
    leaderless = {partition for partition in timestamps if leader(partition) in {None, -1}}
    offsets, to_repeat = await _client_request_offsets(fetcher, timestamps)
    return offsets, to_repeat | leaderless


# Records, metadata and offsets


def has_fetched(consumer: Any) -> bool:
    """Return whether the client holds fetched records that no poll has returned.

    A poll with timeout 0 is no replacement: it may sleep for ``retry_backoff_ms``, 100 ms.

    Test: ``test_records_that_were_waited_for_are_not_followed_by_another_poll``.
    """
    fetcher = consumer._fetcher
    return bool(fetcher._completed_fetches or fetcher._next_partition_records)


def assigned_states(consumer: Any) -> Mapping[Any, Any]:
    """Return the client's states of assigned partitions: ``position``; ``highwater``, the end offset.

    ``KafkaConsumer.position`` may ask the broker and wait. ``KafkaSource.request_ends`` may increase ``highwater``. A
    state object lives as long as the assignment: a partition that was revoked and assigned again has another one, and
    begins at the committed offset.

    Test: ``test_the_private_parts_of_the_client_that_are_relied_on_exist``.
    """
    states: Mapping[Any, Any] = consumer._subscription.assignment
    return states


def drop_parked(consumer: Any) -> None:
    """Drop the records that were fetched before their partition was paused; the next fetch brings them again.

    After a resume the client returns such records only when no other fetched records wait, and meanwhile does not fetch
    the partition again. So of two resumed partitions the second may starve, unseen, until a rebalance.

    Test: ``test_all_partitions_are_read_after_a_hold``.
    """
    consumer._fetcher._paused_partition_records.clear()


def known_partitions(consumer: Any, topic: str) -> set[int]:
    """Return the partition numbers of a topic in the client's metadata.

    ``KafkaConsumer.partitions_for_topic`` asks Kafka where they lack the topic, and waits without a limit.

    Test: ``test_a_member_knows_of_the_partitions_of_others_too``.
    """
    try:
        return set(consumer._cluster.partitions_for_topic(topic) or ())
    except KeyError:  # the network thread is replacing the metadata
        return set()


def watch_topics(consumer: Any, listener: Callable[[Any], None]) -> None:
    """Call ``listener`` with each topic in Kafka's metadata: ``name``, ``topic_id``, ``error_code``.

    The calls are made on the network thread, before the client uses the metadata. No public method returns topic ids,
    or tells a topic that does not exist from one that the client has not asked for yet.

    Test: ``test_a_running_daemon_finds_it_by_itself``.
    """
    cluster = consumer._cluster
    update = cluster.update_metadata

    def report_and_update(metadata: Any) -> Any:
        for topic in metadata.topics if metadata.brokers else ():  # the client ignores an answer without brokers
            listener(topic)
        return update(metadata)

    cluster.update_metadata = report_and_update


def request_metadata(consumer: Any) -> Any:
    """Ask for the metadata of the consumer's topics; return the client's future. Public methods ask about all topics.

    Test: ``test_refusals_count_as_silence_too``.
    """
    return consumer._client.cluster.request_update()


def fetch_committed_offsets(
    consumer: Any, partitions: list[TopicPartition], timeout_ms: int, *, stable: bool = True
) -> Mapping[Any, Any]:
    """Return the committed offset of each partition that has one; ``KafkaConsumer.committed`` takes one partition.

    With ``stable`` the request waits until no open transaction commits offsets, also that of a dead process; else the
    answer has the offsets from before such transactions.

    Tests: ``test_committed_offsets_are_fetched_for_all_partitions_of_all_topics``,
    ``test_the_offsets_before_an_open_transaction_are_read_without_waiting_for_its_end``,
    ``test_committed_offsets_are_fetched_while_the_group_coordinator_is_being_looked_up``.
    """
    coordinator = consumer._coordinator
    if not stable:
        coordinator = copy.copy(coordinator)  # the consumer stays read_committed
        coordinator._isolation_level = IsolationLevel.READ_UNCOMMITTED
        # Else the copy joins a stable fetch in progress, which waits for transactions.
        coordinator._offset_fetch_futures = {}
        # Else the copy waits for a lookup in progress, whose answer only the original takes: it would loop on the
        # network thread, without a heartbeat, until the time limit.
        coordinator._find_coordinator_future = None
    offsets: Mapping[Any, Any] = coordinator.fetch_committed_offsets(partitions, timeout_ms=timeout_ms)
    return offsets


def drop_offset_answers(consumer: Any) -> None:
    """Drop the answers, also those to come, to requests for committed offsets whose poll ended before the answer.

    The client returns such an answer to a later request for the same partitions, also after other members have owned
    them. Their records would be read again, and the group's offsets would go back.

    Test: ``test_an_answer_from_before_a_partition_was_assigned_again_is_not_its_committed_offset``.
    """
    consumer._coordinator._offset_fetch_futures.clear()


# Membership in the group


def forget_owned_partitions(consumer: Any) -> None:
    """Let the next join claim no partitions, after the membership was lost.

    A claimed partition that is to move is assigned to nobody at first: the leader of the group waits for a second
    rebalance, which begins when the owner has revoked the partition. A former owner has nothing to revoke, so without
    this function the second rebalance never comes, and nobody reads the partition.

    Test: ``test_a_member_that_has_lost_its_membership_claims_no_partitions``.
    """
    for assignor in consumer._coordinator._assignors.values():
        assignor.member_assignment = None


def finish_rebalance(consumer: Any) -> None:
    """Join the group again where the client has forgotten a rebalance.

    If the leader of the group joins again, for new partitions of a topic, and its poll ends before the answer arrives,
    its client considers itself joined: it never reads the answer, and sends no heartbeats and no fetches, forever.

    Test: ``test_t15_a_rebalance_whose_end_falls_between_two_polls_is_finished``.
    """
    coordinator = consumer._coordinator
    if coordinator.state == MemberState.REBALANCING and not coordinator.need_rejoin():
        logger.info("Joining the group once more", extra={"event": "rejoin"})
        coordinator.request_rejoin()


class _JoinAnswer:
    """A finished join that says that it is in progress (``is_done``), so that the client does not drop it.

    The next poll of the client waits for the join; the callbacks are called at once.
    """

    is_done = False

    def __init__(self, join: Any) -> None:
        self.add_callback, self.add_errback = join.add_callback, join.add_errback


def keep_join_answer(consumer: Any) -> None:
    """Let the next poll take the answer to a join that has come since the last poll.

    The client drops a join that is done, and joins again: all members would wait for one that is in a long batch.

    Test: ``test_an_answer_to_a_join_that_comes_between_two_polls_is_taken``.
    """
    coordinator = consumer._coordinator
    join = coordinator._join_task
    # In any other state the client has lost its membership since the join was answered.
    if join is not None and join.is_done and join.succeeded() and coordinator.state == MemberState.REBALANCING:
        coordinator._join_task = _JoinAnswer(join)


def lead_after_return(consumer: Any) -> None:
    """Let a static member that returns as the leader of its group watch the topics for new partitions, as leaders do.

    When a static leader returns, Kafka names its former member id as the leader's, until JoinGroup version 9 (Kafka
    3.2); the client asks for version 7. The client considers itself a follower, so no member would watch: partitions
    and topics that come later would be assigned to nobody and never be read.

    The other members do not watch: each would join again at each change, and some of these joins begin a rebalance.

    Tests: ``test_t16_a_static_leader_that_returns_reads_partitions_that_come_later``,
    ``test_of_static_members_only_the_leader_watches_the_topics``.
    """
    coordinator = consumer._coordinator
    process = coordinator._process_join_group_response

    def process_and_lead(*answer: Any) -> Any:
        response = process(*answer)
        # Kafka makes the id of a static member from its name, a hyphen and a UUID, which has four hyphens.
        if response.leader.rsplit("-", 5)[0] == coordinator.group_instance_id:
            coordinator._is_leader, coordinator._assignment_snapshot = True, coordinator._metadata_snapshot
        return response

    coordinator._process_join_group_response = process_and_lead


def heartbeat_answered_at(consumer: Any) -> float:
    """Return the monotonic time of the last answer to a heartbeat; the public interface has only the times of sending.

    Test: ``test_silence_is_detected_within_ten_seconds_and_an_answer_ends_it``.
    """
    heartbeat = consumer._coordinator.heartbeat
    # A reset, at a join, counts as an answer: no heartbeat was sent since.
    return float(max(heartbeat.last_receive, heartbeat.last_reset))


def send_heartbeat(consumer: Any) -> None:
    """Send a heartbeat and wait for the answer; errors of the answer are raised. No public method does.

    Test: ``test_a_static_membership_is_confirmed_by_no_error_but_a_rebalance``.
    """
    coordinator = consumer._coordinator
    coordinator._net.run(coordinator._send_heartbeat_request)


def watch_fencing(consumer: Any, on_fenced: Callable[[FencedInstanceIdError], None]) -> None:
    """Call ``on_fenced`` when another process has taken over the static membership.

    The client logs the error of its heartbeat and polls on in a busy loop, without heartbeats and records.

    Test: ``test_a_membership_taken_over_by_another_process_is_detected_with_the_next_heartbeat``.
    """
    coordinator = consumer._coordinator
    handle = coordinator._handle_heartbeat_response

    def handle_and_report(*answer: Any) -> Any:
        try:
            return handle(*answer)
        except FencedInstanceIdError as error:
            on_fenced(error)
            raise

    coordinator._handle_heartbeat_response = handle_and_report


# Requests of an admin client


def broker_version(admin: Any) -> tuple[int, ...]:
    """Return the broker version that the client infers from the supported requests: a lower bound.

    Test: ``test_times_beyond_a_limit_of_the_broker_are_reported_with_the_limit``.
    """
    version: tuple[int, ...] = admin._manager.broker_version
    return version


def send_request(admin: Any, request: Any) -> Any:
    """Send ``request``, for which the client has no public method, to any broker; return the answer.

    Test: ``test_times_beyond_a_limit_of_the_broker_are_reported_with_the_limit``.
    """
    return admin._manager.run(admin._manager.send, request)
