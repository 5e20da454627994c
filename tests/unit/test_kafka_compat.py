"""The only use of private parts of the Kafka client: its rules, unreadable record batches, limits of record batches."""

import ast
import gzip
import re
import socket
import ssl
import struct
import subprocess
import sys
import tracemalloc
from contextlib import closing, nullcontext
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import kafka.codec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka import codec
from kafka.consumer.fetcher import CompletedFetch, Fetcher
from kafka.consumer.subscription_state import SubscriptionState
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.base import Generation
from kafka.coordinator.consumer import ConsumerCoordinator
from kafka.errors import (
    CoordinatorNotAvailableError,
    CorruptRecordError,
    InvalidReceiveError,
    KafkaError,
    UnsupportedCodecError,
)
from kafka.future import Future
from kafka.net.transport import KafkaSSLTransport
from kafka.protocol.consumer import FetchResponse
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment
from kafka.protocol.parser import KafkaProtocol
from kafka.record import MemoryRecords, default_records, legacy_records
from kafka.structs import MemberState, OffsetAndMetadata, OffsetAndTimestamp, TopicPartition

from streamdedup.errors import BrokerUnavailable, CodecMissing
from streamdedup.kafka import batch_limits, compat
from streamdedup.kafka.batch_limits import PollBudget, limit_batches
from streamdedup.kafka.consumer import RebalanceListener
from streamdedup.kafka.decoders import DecompressedTooLarge, ungzip, unlz4, unsnappy, unzstd
from streamdedup.kafka.errors import codec_missing, described, translated
from streamdedup.kafka.options import KafkaOptions
from streamdedup.kafka.unreadable import UnreadableReports, _GuardedParser, guard_parsing
from tests import servers
from tests.raw_batches import RawRecord, record_batch, stored_as_snappy

FOLDER = Path(compat.__file__).parent
#: The modules that may use private parts of the client.
PRIVATE = {"batch_limits", "compat", "unreadable"}
TESTS = Path(__file__).parents[1]
#: Modules of the client that are no public interface; the docstrings of its clients name ``kafka.net.sasl``.
INTERNAL = re.compile(r"kafka\.(net(?!\.sasl\b)|record|codec|consumer\.fetcher)\b")

#: The tests of each workaround.
TESTS_OF = {
    "batch_limits.BoundedBatch": [
        "test_a_record_with_too_many_headers_is_unreadable",
        "test_records_before_the_fetch_are_not_parsed",
    ],
    "batch_limits.RecordBatches": [
        "test_a_poll_begins_no_record_batch_beyond_its_bytes",
        "test_record_batches_that_end_in_an_unreadable_record_count_too",
    ],
    "batch_limits.limit_batches": ["test_the_clients_parsers_use_them"],
    "compat.ClosingSelector": ["test_closing_a_client_closes_a_connection_with_a_request_that_is_to_be_sent"],
    "compat._read_before_close": ["test_a_wrong_password_is_told_as_such_by_every_command"],
    "compat._request_all_offsets": ["test_offsets_are_asked_for_until_all_partitions_have_a_leader"],
    "compat._stop_at_final_refusal": ["test_a_wrong_password_is_told_as_such_by_every_command"],
    "compat.assigned_states": ["test_the_private_parts_of_the_client_that_are_relied_on_exist"],
    "compat.broker_version": ["test_times_beyond_a_limit_of_the_broker_are_reported_with_the_limit"],
    "compat.build": ["test_an_absent_broker_is_reported_in_time_and_nothing_is_left_behind"],
    "compat.drop_offset_answers": [
        "test_an_answer_from_before_a_partition_was_assigned_again_is_not_its_committed_offset"
    ],
    "compat.drop_parked": ["test_all_partitions_are_read_after_a_hold"],
    "compat.fetch_committed_offsets": [
        "test_committed_offsets_are_fetched_for_all_partitions_of_all_topics",
        "test_the_offsets_before_an_open_transaction_are_read_without_waiting_for_its_end",
        "test_committed_offsets_are_fetched_while_the_group_coordinator_is_being_looked_up",
    ],
    "compat.finish_rebalance": ["test_t15_a_rebalance_whose_end_falls_between_two_polls_is_finished"],
    "compat.force_close": ["test_a_process_ends_quietly_and_soon_although_kafka_is_away"],
    "compat.forget_owned_partitions": ["test_a_member_that_has_lost_its_membership_claims_no_partitions"],
    "compat.has_fetched": ["test_records_that_were_waited_for_are_not_followed_by_another_poll"],
    "compat.heartbeat_answered_at": ["test_silence_is_detected_within_ten_seconds_and_an_answer_ends_it"],
    "compat.keep_join_answer": ["test_an_answer_to_a_join_that_comes_between_two_polls_is_taken"],
    "compat.known_partitions": ["test_a_member_knows_of_the_partitions_of_others_too"],
    "compat.lead_after_return": [
        "test_t16_a_static_leader_that_returns_reads_partitions_that_come_later",
        "test_of_static_members_only_the_leader_watches_the_topics",
    ],
    "compat.request_metadata": ["test_refusals_count_as_silence_too"],
    "compat.send_heartbeat": ["test_a_static_membership_is_confirmed_by_no_error_but_a_rebalance"],
    "compat.send_request": ["test_times_beyond_a_limit_of_the_broker_are_reported_with_the_limit"],
    "compat.watch_fencing": ["test_a_membership_taken_over_by_another_process_is_detected_with_the_next_heartbeat"],
    "compat.watch_topics": ["test_a_topic_that_is_deleted_is_reported_and_read_again_when_it_is_created"],
    "unreadable._keep_unparsed": ["test_a_poll_begins_no_record_batch_beyond_its_bytes"],
    "unreadable.guard_parsing": ["TestT8T9RecordsThatTheClientCannotParse"],
    "group_admin.remove_outdated_membership": [
        "test_t16_a_static_leader_that_returns_reads_partitions_that_have_come_meanwhile",
        "test_t17_a_static_member_that_returns_with_another_topic_reads_this_topic",
    ],
}

# The rules


@pytest.mark.parametrize("module", sorted(FOLDER.glob("*.py")), ids=lambda path: path.stem)
def test_only_these_modules_use_private_parts_of_the_client(module):
    tree = ast.parse(module.read_text(encoding="utf-8"))
    private = [
        f"line {node.lineno}: {node.attr}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and re.match("_[^_]", node.attr) and node.attr != "_replace"
        if not (isinstance(node.value, ast.Name) and node.value.id in {"self", "cls"})
    ]
    imports = [
        name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in ([node.module] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names])
        if name and INTERNAL.match(name)
    ]
    assert bool(private + imports) == (module.stem in PRIVATE), private + imports


def test_each_workaround_has_a_test():
    sources = "".join(path.read_text(encoding="utf-8") for path in TESTS.rglob("test_*.py"))
    assert {test for tests in TESTS_OF.values() for test in tests} <= set(re.findall(r"\b(?:def|class) (\w+)", sources))
    tree = ast.parse((FOLDER / "compat.py").read_text(encoding="utf-8"))
    functions = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    assert {f"compat.{name}" for name in functions if not name.startswith("_")} <= TESTS_OF.keys()
    for place in TESTS_OF:
        module, name = place.split(".")
        assert hasattr(import_module(f"streamdedup.kafka.{module}"), name)


def test_each_connection_reads_the_files_of_its_certificate_again(tmp_path):
    files = {"ssl_certfile": tmp_path / "certificate.pem", "ssl_keyfile": tmp_path / "key.pem"}
    for certificate, key in (("certificate.pem", "plain.key"), ("other.pem", "other.key")):
        files["ssl_certfile"].write_bytes((TESTS / "tls" / certificate).read_bytes())
        files["ssl_keyfile"].write_bytes((TESTS / "tls" / key).read_bytes())
        with closing(socket.socket()) as plain, closing(KafkaSSLTransport(None, plain, "a", **files)._sock):
            pass
    files["ssl_keyfile"].write_text("no key")
    with closing(socket.socket()) as plain, pytest.raises(ssl.SSLError):
        KafkaSSLTransport(None, plain, "a", **files)


# Closing clients


def test_closing_a_client_closes_a_connection_with_a_request_that_is_to_be_sent():
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = "{}:{}".format(*server.getsockname())
        options = KafkaOptions(bootstrap_servers=address, group_id="g", topics=("t",), transactional_id="x")
        # At a broker of this version a connection begins without a question.
        config = {"bootstrap_servers": address, "api_version": (0, 9)}
        network = compat.build(lambda kafka_client, **config: kafka_client(**config), config, options)
        connection = network._manager.get_connection("bootstrap-0")
        servers.wait_until(lambda: network.poll(timeout_ms=0) or connection.connected, what="a connection")
        connected = connection.transport._sock
        connection.transport.write(b"a request")
        network.close()
        assert connected.fileno() == -1


# Unreadable record batches

#: Numbers of the codecs in the attributes of a record batch, and one that Kafka does not define.
CODEC_NUMBERS = {"gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
UNDEFINED_CODEC = 6
RECORDS = [RawRecord(b"value %d" % number * 20) for number in range(3)]
BAD = RawRecord(b"bad", headers=((b"\xff", b""),))


def fetched(content, offset=0, max_offsets=100):
    """The client's parser of an answer to a fetch from ``offset`` on, and the ranges that it reports."""
    unreadable, budget = UnreadableReports(max_offsets), PollBudget(batch_limits.POLL_BYTES)
    return of_fetch(unreadable, budget, content, offset), unreadable.ranges


def of_fetch(unreadable, budget, content, offset):
    return _GuardedParser(unreadable, budget, offset, TopicPartition("articles", 2), MemoryRecords(content))


def read(content, offset=0, max_offsets=100, **options):
    """Offsets that polls return for a partition that holds one batch; a range as its first and last offset."""
    found, end = [], MemoryRecords(content).next_batch().next_offset
    unreadable, budget = UnreadableReports(max_offsets, **options), PollBudget(batch_limits.POLL_BYTES)
    while offset < end:
        parser = of_fetch(unreadable, budget, content, offset)
        unreadable.ranges.clear()
        while parser:
            found += [(each.offset, each.last) if each in unreadable.ranges else each.offset for each in parser.take(2)]
        offset = parser.next_fetch_offset
    return found


@pytest.mark.parametrize(
    ("codec", "package"), [("gzip", "gzip"), ("snappy", "python-snappy"), ("lz4", "lz4"), ("zstd", "zstandard")]
)
def test_a_codec_without_its_library_stops_the_reader_and_names_the_package(monkeypatch, codec, package):
    monkeypatch.setattr(kafka.codec, f"has_{codec}", lambda: False)
    parser, ranges = fetched(record_batch(RECORDS, CODEC_NUMBERS[codec]), 1)
    with pytest.raises(CodecMissing) as raised:
        parser.take(1)
    text = str(raised.value)
    assert text.startswith(f"cannot read articles:2 from offset 1 on: the records are compressed with {codec}, ")
    assert f"`pip install {package}`" in text
    assert ranges == []
    assert not parser  # the next poll fetches again, and does not poll an exhausted parser


WHOLE = record_batch(RECORDS)


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (record_batch(RECORDS, UNDEFINED_CODEC), "UnsupportedCodecError"),
        (WHOLE[:-1] + bytes([WHOLE[-1] ^ 1]), "CorruptRecordError"),
    ],
)
def test_an_unreadable_batch_is_stepped_past_and_reported_once(content, error):
    parser, ranges = fetched(content, 1)
    (found,) = parser.take(10)
    assert ranges == [found]
    assert (found.offset, found.last) == (1, 2)
    assert found.reason.count(error) == 1
    assert parser.next_fetch_offset == 3


def test_records_before_an_unreadable_one_come_alone_and_the_rest_of_its_batch_after_them():
    content = record_batch([*RECORDS, BAD, *RECORDS])
    parser, ranges = fetched(content)
    assert [record.offset for record in parser.take(10)] == [0, 1, 2]
    assert parser.take(10) == ranges == []
    assert read(content) == [0, 1, 2, (3, 6)]


@pytest.mark.parametrize("content", [[BAD] * 7, [BAD, *RECORDS, *RECORDS]])
def test_a_range_has_no_more_offsets_than_asked_for(content):
    assert read(record_batch(content), max_offsets=3) == [(0, 2), (3, 5), (6, 6)]


def test_the_rest_of_a_range_is_reported_without_parsing_the_batch_again():
    unreadable, content = UnreadableReports(3), record_batch([BAD] * 7)
    assert of_fetch(unreadable, PollBudget(1), content, 0).take(10) == unreadable.ranges
    unreadable.ranges.clear()
    parser = of_fetch(unreadable, PollBudget(1), content[:61] + bytes(len(content) - 61), 3)
    ((found,), rest) = parser.take(10), unreadable.rests[parser.topic_partition]
    assert (found.offset, found.last, parser.next_fetch_offset) == (3, 5, 6)
    assert (rest.offset, rest.last, rest.reason) == (6, 6, found.reason)
    # A position that was moved meanwhile: the batch there is parsed.
    assert of_fetch(unreadable, PollBudget(1), record_batch(RECORDS), 0).take(1)[0].offset == 0
    assert not unreadable.rests


def test_the_rest_of_a_range_ends_with_its_record_batch():
    content = record_batch(RECORDS)
    damaged = content[:23] + struct.pack(">i", 1 << 20) + content[27:]  # the last offset
    behind = struct.pack(">q", 3) + content[8:]
    for then, offsets in ((behind, [3, 4, 5]), (b"", [])):
        unreadable = UnreadableReports(3)
        of_fetch(unreadable, PollBudget(1), damaged, 0).take(10)
        parser = of_fetch(unreadable, PollBudget(1), then, 3)
        assert [record.offset for record in parser.take(10)] == offsets
        assert (unreadable.rests, unreadable.ranges[1:]) == ({}, [])


@pytest.mark.usefixtures("network")
def test_a_reader_of_single_positions_reads_the_records_behind_an_unreadable_one():
    batch = record_batch([BAD, *RECORDS])
    assert read(batch, max_offsets=1, keeps_rests=False) == [(0, 0), 1, 2, 3]
    assert read(batch, max_offsets=1) == [(offset, offset) for offset in range(4)]


def test_the_ranges_of_one_poll_have_no_more_offsets_together_than_asked_for():
    content = record_batch([BAD] * 2)
    unreadable, budget = UnreadableReports(3), PollBudget(batch_limits.POLL_BYTES)
    parsers = [of_fetch(unreadable, budget, content, 0) for _ in range(3)]
    for number, parser in enumerate(parsers):
        parser.topic_partition = TopicPartition("articles", number)
    assert [[(each.offset, each.last) for each in parser.take(10)] for parser in parsers] == [[(0, 1)], [(0, 0)], []]
    assert parsers[2].next_fetch_offset == 0  # the next poll fetches it again


def test_a_batch_without_a_readable_header_is_an_error_and_not_stepped_past():
    parser, ranges = fetched(record_batch(RECORDS)[:-1] + b"")
    assert parser.take(10) == []  # an incomplete batch is the end of a fetch
    parser, ranges = fetched(b"\0" * 8 + struct.pack(">i", 5) + b"\0" * 5, 7)
    with pytest.raises(KafkaError, match="cannot read articles:2 from offset 7 on: move the group's offset behind"):
        parser.take(10)
    assert ranges == []


class Client:
    """A client of record batches by partition, each fetched whole, in order of partitions, when no fetches are left."""

    def __init__(self, network, *contents):
        self.contents = {TopicPartition("articles", number): content for number, content in enumerate(contents)}
        self.subscription = SubscriptionState()
        self.subscription.assign_from_user(self.contents)
        for partition in self.contents:
            self.subscription.seek(partition, 0)
        self._fetcher = Fetcher(network, self.subscription)
        self.is_partial = False

    def poll(self, max_records):
        fetchable = [] if self.is_partial else self._fetcher._fetchable_partitions()
        for partition, content in self.contents.items():
            if partition in fetchable:
                offset = self.subscription.assignment[partition].position.offset
                data = FetchResponse.FetchableTopicResponse.PartitionData(records=b"".join(content[offset:]))
                self._fetcher._completed_fetches.append(CompletedFetch(partition, offset, 12, data, None))
        taken, self.is_partial = self._fetcher.fetched_records(max_records)
        return [(partition.partition, record.offset) for partition, records in taken.items() for record in records]


def batches(*sizes):
    """Return record batches with a record each, of these sizes."""
    # A batch begins with the offset of its first record, which no checksum covers.
    return [struct.pack(">q", at) + record_batch([RawRecord(bytes(size))])[8:] for at, size in enumerate(sizes)]


def polls(client, *, count, max_records=100):
    guard_parsing(client, 100)
    return [client.poll(max_records) for _ in range(count)]


def test_a_poll_begins_no_record_batch_beyond_its_bytes(monkeypatch, network):
    monkeypatch.setattr(batch_limits, "POLL_BYTES", 1_000)
    client = Client(network, batches(*[400] * 6), batches(10, 10), batches(10))
    # Fetches that a poll has not begun are those of the next poll; others follow them only.
    assert polls(client, count=4) == [
        [(0, 0), (0, 1), (0, 2)],
        [(1, 0), (1, 1), (2, 0)],
        [(0, 3), (0, 4), (0, 5)],
        [],
    ]


def test_one_record_beyond_the_bytes_of_a_poll_is_taken_alone(monkeypatch, network):
    monkeypatch.setattr(batch_limits, "POLL_BYTES", 1_000)
    assert polls(Client(network, batches(9_000, 9_000, 10)), count=3) == [[(0, 0)], [(0, 1)], [(0, 2)]]


def test_record_batches_that_end_in_an_unreadable_record_count_too(monkeypatch, network):
    monkeypatch.setattr(batch_limits, "POLL_BYTES", 1_000)
    batch = record_batch([RawRecord(bytes(900)), BAD])
    assert polls(Client(network, *[[batch]] * 4), count=2) == [[(0, 0), (1, 0)], [(2, 0), (3, 0)]]
    # A batch that was not decompressed has perhaps cost all time that a poll has.
    assert polls(Client(network, *[[record_batch([BAD], UNDEFINED_CODEC)]] * 2), count=2) == [[(0, 0)], [(1, 0)]]


def test_the_bytes_of_a_poll_bound_no_poll_of_small_records(network):
    assert polls(Client(network, batches(*[10] * 8)), count=3, max_records=3) == [
        [(0, at) for at in span] for span in (range(3), range(3, 6), range(6, 8))
    ]


def test_the_class_of_an_error_is_named_once():
    assert described(UnsupportedCodecError("Unrecognized compression type: 6")).count("UnsupportedCodecError") == 1
    assert described(ValueError("no such thing")) == "ValueError: no such thing"


def test_only_a_missing_library_is_a_missing_codec():
    assert codec_missing(UnsupportedCodecError("Unrecognized compression type: 6"), "") is None
    assert codec_missing(CorruptRecordError("Libraries for zstd compression codec not found"), "") is None
    assert isinstance(translated(CorruptRecordError("x"), "fetch"), BrokerUnavailable)


# Limits of record batches


@pytest.fixture
def network():
    """The network part of a client, as ``build`` makes it, without a connection."""
    options = KafkaOptions(bootstrap_servers="127.0.0.1:9", group_id="g", topics=("t",), transactional_id="x")
    config = {"bootstrap_servers": options.bootstrap_servers}
    with closing(compat.build(lambda kafka_client, **config: kafka_client(**config), config, options)) as network:
        yield network


@pytest.mark.parametrize("magic", [0, 1])
def test_a_record_of_an_earlier_format_is_read(magic):
    builder = legacy_records.LegacyRecordBatchBuilder(magic, compression_type=0, batch_size=1000)
    builder.append(0, timestamp=1, key=None, value=b"v")
    assert [record.value for record in fetched(bytes(builder.build()))[0].take(10)] == [b"v"]


@pytest.mark.parametrize("key", [None, b"", b"a key"])
@pytest.mark.usefixtures("network")
def test_a_record_with_too_many_headers_is_unreadable(monkeypatch, key):
    monkeypatch.setattr(batch_limits, "MAX_HEADERS", 500)
    counts = (100, 400, 0, 1, 500, 501, 0)
    content = record_batch([RawRecord(b"v", key, ((b"", None),) * count) for count in counts])
    assert read(content) == [0, 1, 2, 3, 4, (5, 6)]
    (found,) = fetched(content, 5)[0].take(10)
    assert "more than 500 headers" in found.reason


@pytest.mark.usefixtures("network")
def test_records_before_the_fetch_are_not_parsed():
    content = record_batch([BAD, *RECORDS])
    assert read(content) == [(0, 3)]
    assert read(content, 2) == [2, 3]
    # The offsets of the last records may have been compacted away.
    longer = content[:23] + struct.pack(">i", 9) + content[27:]  # the last offset, in the header
    parser = of_fetch(UnreadableReports(9), PollBudget(1), longer, 5)
    parser.check_crcs = False
    assert (parser.take(9), parser.next_fetch_offset) == ([], 10)


@pytest.mark.usefixtures("network")
def test_a_record_before_the_fetch_with_a_negative_length_is_unreadable_at_once():
    content = bytearray(record_batch(RECORDS))
    content[57:61] = struct.pack(">i", 2**31 - 1)  # number of records
    content[61:63] = b"\x83\0"  # length of the first record: -2, back to its own beginning
    parser = of_fetch(UnreadableReports(9), PollBudget(1), bytes(content), 1)
    parser.check_crcs = False
    (found,) = parser.take(9)
    assert (found.offset, found.last) == (1, 2)


@pytest.mark.usefixtures("network")
def test_the_headers_of_a_record_that_is_refused_take_no_memory():
    content = record_batch([RawRecord(b"v", headers=((b"", None),) * (batch_limits.MAX_HEADERS + 1))])
    parser, ranges = fetched(content)
    tracemalloc.start()
    try:
        assert parser.take(10) == ranges != []
        assert tracemalloc.get_traced_memory()[1] < 2 * len(content)
    finally:
        tracemalloc.stop()


def test_the_headers_of_a_poll_count_by_their_memory(monkeypatch, network):
    monkeypatch.setattr(batch_limits, "POLL_BYTES", 3 * 100 * batch_limits.HEADER_BYTES)
    batch = record_batch([RawRecord(b"v", headers=((b"", None),) * 100)])
    client = Client(network, [struct.pack(">q", at) + batch[8:] for at in range(4)])
    assert polls(client, count=2) == [[(0, 0), (0, 1), (0, 2)], [(0, 3)]]


@pytest.mark.parametrize("library", ["snappy", "lz4.frame", "zstandard"])
def test_the_daemon_starts_without_the_library_of_a_codec(library):
    script = f"import sys; sys.modules[{library!r}] = None; import streamdedup.cli.run"
    subprocess.run([sys.executable, "-c", script], check=True, timeout=300)


CODECS = {
    "gzip": (codec.gzip_encode, ungzip),
    "lz4": (codec.lz4_encode, unlz4),
    "zstd": (codec.zstd_encode, unzstd),
    "snappy": (codec.snappy_encode, unsnappy),
}
#: Decompressed size and limit, in bytes.
BOMB_BYTES, LIMIT_BYTES = 100_000_000, 4_000_000


@pytest.mark.parametrize("name", CODECS)
@given(content=st.binary(max_size=300), times=st.sampled_from([1, 20_000]))
def test_content_is_decompressed_up_to_the_limit_and_not_beyond(name, content, times):
    compress, decompress = CODECS[name]
    content *= times
    assert decompress(compress(content), len(content)) == content
    if content:
        with pytest.raises(DecompressedTooLarge, match=r"more than .* bytes$"):
            decompress(compress(content), len(content) - 1)


@pytest.mark.parametrize("name", CODECS)
def test_a_few_bytes_that_would_grow_to_many_cost_little_memory(name):
    compress, decompress = CODECS[name]
    bomb = compress(bytes(BOMB_BYTES))
    tracemalloc.start()
    try:
        with pytest.raises(DecompressedTooLarge):
            decompress(bomb, LIMIT_BYTES)
        assert tracemalloc.get_traced_memory()[1] < 3 * LIMIT_BYTES
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", ["gzip", "lz4"])
def test_a_cut_is_an_error_and_no_shorter_text(name):
    compress, decompress = CODECS[name]
    whole = compress(b"some text that is compressed " * 100)
    with pytest.raises((EOFError, RuntimeError)):
        decompress(whole[: len(whole) // 2], LIMIT_BYTES)


def test_several_members_of_gzip_are_one_text():
    assert ungzip(gzip.compress(b"one ") + gzip.compress(b"two"), 7) == b"one two"


def test_snappy_is_measured_before_anything_is_decompressed(monkeypatch):
    monkeypatch.setattr("snappy.decompress", lambda block: block)
    block = stored_as_snappy(b"x" * 100)
    assert unsnappy(block, 100) == block[20:]
    with pytest.raises(DecompressedTooLarge):
        unsnappy(block, 99)
    bare = bytes([0x80, 0x80, 0x80, 0x80, 0x04, 0])  # declares a length of a gigabyte
    with pytest.raises(DecompressedTooLarge):
        unsnappy(bare, 1 << 29)
    with pytest.raises(ValueError, match="negative"):
        unsnappy(block[:16] + struct.pack(">i", -4) + block[20:], 1000)


def test_the_clients_parsers_use_them(monkeypatch):
    monkeypatch.setattr(batch_limits.BoundedBatch, "max_bytes", 0, raising=False)
    for module in (default_records, legacy_records):
        for name in ("gzip_decode", "lz4_decode", "snappy_decode", "zstd_decode"):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, getattr(module, name))
    limit_batches(1000)
    assert legacy_records.gzip_decode(codec.gzip_encode(b"x" * 1000)) == b"x" * 1000
    for name in CODECS:
        with pytest.raises(DecompressedTooLarge):
            getattr(default_records, f"{name}_decode")(CODECS[name][0](b"x" * 1001))
    assert read(record_batch([RawRecord(bytes(900))])) == [0]
    assert read(record_batch([RawRecord(bytes(900)), RawRecord(bytes(100))])) == [(0, 1)]


def test_the_largest_batch_that_a_broker_takes_is_received_and_an_alert_of_tls_is_no_answer():
    options = KafkaOptions(bootstrap_servers="h:1", group_id="g", topics=("t",), transactional_id="x")
    for size, is_read in ((100 * 2**20 + 1_000, True), (int.from_bytes(b"\x15\x03\x00\x00"), False)):
        parser = KafkaProtocol(receive_message_max_bytes=options.reader()["receive_message_max_bytes"])
        with nullcontext() if is_read else pytest.raises(InvalidReceiveError):
            parser.receive_bytes(struct.pack(">i", size))


# Partitions without a leader


@pytest.mark.parametrize("leader_id", [-1, None], ids=["no leader", "not in the metadata"])
@pytest.mark.parametrize("ask", [Fetcher.offsets_by_times, Fetcher.end_offsets])
def test_offsets_are_asked_for_until_all_partitions_have_a_leader(network, leader_id, ask):
    led, leaderless = (TopicPartition("articles", number) for number in range(2))
    cluster, fetcher = network._manager.cluster, Fetcher(network, SubscriptionState())
    cluster._partitions = {"articles": {0: SimpleNamespace(leader_id=7)}}
    if leader_id is not None:
        cluster._partitions["articles"][1] = SimpleNamespace(leader_id=leader_id)
    asked = []

    def elect_a_leader():
        cluster._partitions["articles"][1] = SimpleNamespace(leader_id=7)
        return Future().success(cluster)

    async def answer(_node_id, partitions):
        asked.append(set(partitions))
        if len(asked) == 1:
            return {}, {led}  # its leader refuses the first request
        return {partition: OffsetAndTimestamp(40, 1_000, 0) for partition in partitions}, set()

    fetcher._send_list_offsets_request = answer
    cluster.request_update = elect_a_leader
    assert None not in ask(fetcher, {led: 1_000, leaderless: 1_000}).values()
    assert asked == [{led}, {led, leaderless}]


# Membership and committed offsets


def coordinator_of(network, **options):
    """Return the client's part for the group, and its subscription."""
    subscription = SubscriptionState()
    assignors = [CooperativeStickyAssignor]
    return ConsumerCoordinator(network, subscription, group_id="g", assignors=assignors, **options), subscription


def complete_join(network, coordinator, *partitions):
    """Let the coordinator take an assignment of partitions of the topic "articles"."""
    assignment = ConsumerProtocolAssignment(assigned_partitions=[("articles", list(partitions))]).encode(version=1)
    network._net.run(coordinator._on_join_complete_async, 1, "member", "cooperative-sticky", assignment)


def test_an_answer_from_before_a_partition_was_assigned_again_is_not_its_committed_offset(network, monkeypatch):
    coordinator, subscription = coordinator_of(network)
    answer, partition = Future(), TopicPartition("articles", 0)
    subscription.subscribe(["articles"], listener=RebalanceListener(SimpleNamespace(_coordinator=coordinator)))

    async def is_ready(timeout_ms):
        return True

    async def fetch(_partitions):
        return await answer

    monkeypatch.setattr(coordinator, "ensure_coordinator_ready_async", is_ready)
    monkeypatch.setattr(coordinator, "_send_offset_fetch_request", fetch)

    complete_join(network, coordinator, 0)
    assert not coordinator.refresh_committed_offsets_if_needed(timeout_ms=1)  # the poll ends before the answer
    complete_join(network, coordinator)
    answer.success({partition: OffsetAndMetadata(1_000, "", -1)})
    answer = Future().success({partition: OffsetAndMetadata(500_000, "", -1)})  # of the owner in between
    complete_join(network, coordinator, 0)
    assert coordinator.refresh_committed_offsets_if_needed(timeout_ms=5_000)
    assert subscription.assignment[partition].position.offset == 500_000


def test_committed_offsets_are_fetched_while_the_group_coordinator_is_being_looked_up(network, monkeypatch):
    answer, partition = Future(), TopicPartition("articles", 0)

    async def look_up(coordinator):
        await answer
        coordinator.coordinator_id = 0

    async def fetch(coordinator, partitions):
        if coordinator.coordinator_unknown():
            raise CoordinatorNotAvailableError  # as the client does
        return dict.fromkeys(partitions, OffsetAndMetadata(7, "", -1))

    monkeypatch.setattr(ConsumerCoordinator, "_send_group_coordinator_request", look_up)
    monkeypatch.setattr(ConsumerCoordinator, "_send_offset_fetch_request", fetch)
    monkeypatch.setattr(network, "is_disconnected", lambda _node_id: False)
    coordinator, _ = coordinator_of(network)
    coordinator.lookup_coordinator()  # as for a heartbeat
    network._net.call_later(0.0, lambda: answer.success(None))
    consumer = SimpleNamespace(_coordinator=coordinator)
    offsets = compat.fetch_committed_offsets(consumer, [partition], 60_000, stable=False)
    assert offsets == {partition: OffsetAndMetadata(7, "", -1)}


@pytest.mark.parametrize(("state", "joins"), [(MemberState.REBALANCING, 1), (MemberState.UNJOINED, 2)])
def test_an_answer_to_a_join_that_comes_between_two_polls_is_taken(network, monkeypatch, state, joins):
    coordinator, _ = coordinator_of(network)
    answer, steps = Future(), []

    def step(name, returned=None):
        async def take(*arguments, timeout_ms=None):
            steps.append((name, *arguments[3:]))
            return returned

        return take

    async def join():
        steps.append(("join",))
        return await answer

    for name, take in {
        "ensure_coordinator_ready_async": step("find", True),
        "_on_join_prepare_async": step("prepare"),
        "_do_join_and_sync_async": join,
        "_on_join_complete_async": step("complete"),
    }.items():
        monkeypatch.setattr(coordinator, name, take)
    for method in ("need_rejoin", "_maybe_start_heartbeat_loop", "_enable_heartbeat", "_disable_heartbeat"):
        monkeypatch.setattr(coordinator, method, lambda method=method: method == "need_rejoin")
    assert not coordinator.ensure_active_group(timeout_ms=1)
    answer.success(b"assigned")
    servers.wait_until(lambda: network.poll(timeout_ms=0) or coordinator._join_task.is_done, what="the answer")
    coordinator.state = state  # unjoined: the membership was lost after the answer
    compat.keep_join_answer(SimpleNamespace(_coordinator=coordinator))
    assert coordinator.ensure_active_group(timeout_ms=10_000)
    taken = [("prepare",), *[("join",)] * joins, ("complete", b"assigned")]
    assert [each for each in steps if each != ("find",)] == taken


def test_a_member_that_has_lost_its_membership_claims_no_partitions(network):
    coordinator, subscription = coordinator_of(network)
    subscription.subscribe(["articles"], listener=RebalanceListener(SimpleNamespace(_coordinator=coordinator)))
    coordinator._generation = Generation(1, "member", "cooperative-sticky")
    claims = []
    for lose in (lambda: None, coordinator.reset_generation):
        complete_join(network, coordinator, 0, 1)
        lose()
        network._net.run(coordinator._on_join_prepare_async, 1, "member")
        ((_, metadata),) = coordinator.group_protocols()
        claims.append([(owned.topic, owned.partitions) for owned in metadata.owned_partitions])
    assert claims == [[("articles", [0, 1])], []]


#: The part of a member id behind its name.
UUID = "-54977119-511a-467c-a7a0-864d48f4290e"


@pytest.mark.parametrize(
    ("instance_id", "leader", "watches"),
    [("a-0", "a-0", True), ("a-0", "a-1", False), ("a", "a-0", False), (None, "streamdedup", False)],
)
def test_of_static_members_only_the_leader_watches_the_topics(network, instance_id, leader, watches):
    coordinator, subscription = coordinator_of(network, group_instance_id=instance_id)
    subscription.subscribe(["articles"])
    compat.lead_after_return(SimpleNamespace(_coordinator=coordinator))
    coordinator.group_protocols()
    coordinator.state, coordinator.rejoin_needed = MemberState.REBALANCING, False
    member = {"generation_id": 1, "member_id": f"{instance_id}-of-now", "protocol_name": "cooperative-sticky"}
    answer = SimpleNamespace(error_code=0, protocol_type="consumer", leader=leader + UUID, **member)
    coordinator._process_join_group_response(answer, 0.0)
    complete_join(network, coordinator, 0)
    assert not coordinator.need_rejoin()
    coordinator._metadata_snapshot = {"articles": {0, 1}}
    assert coordinator.need_rejoin() == watches
