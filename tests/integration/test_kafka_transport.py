"""The Kafka transport around its contract: opening, refusing, checking, ending."""

import contextlib
import logging
import socketserver
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest
from kafka import errors as kafka_errors

from streamdedup.errors import BrokerMisconfigured, BrokerUnavailable, FatalError, MembershipEnded, ProducerFenced
from streamdedup.kafka.admin import create_topics, require_topics
from streamdedup.kafka.errors import call_within, cap_client_logging, close_quietly, translated
from streamdedup.kafka.producer import KafkaTransport
from streamdedup.kafka.protocols import Batch, Message
from tests import servers
from tests.servers import kafka_options
from tests.support.ports import free_ports

#: Longest single poll, in seconds.
POLL_S = 0.2


@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
def test_an_absent_broker_is_reported_in_time_and_nothing_is_left_behind(delivery):
    # In a process of its own: pytest keeps log records, which keep exceptions, which keep sockets.
    address = f"127.0.0.1:{free_ports()[0]}"
    script = f"""
        import gc, logging, pathlib, threading, time
        from streamdedup.errors import BrokerUnavailable
        from streamdedup.kafka.options import KafkaOptions
        from streamdedup.kafka.producer import KafkaTransport
        logging.disable()
        transport = KafkaTransport(KafkaOptions(bootstrap_servers={address!r}, group_id="g", topics=("t",),
            transactional_id="x", delivery={delivery!r}, connect_timeout_s=0.5))
        counts = set()
        for _ in range(3):
            try:
                transport.open()
            except BrokerUnavailable as error:
                assert {address!r} in str(error)
            gc.collect()
            end = time.monotonic() + 60
            while threading.active_count() > 1 and time.monotonic() < end:
                time.sleep(0.01)
            counts.add((threading.active_count(), len(list(pathlib.Path("/proc/self/fd").iterdir()))))
        assert len(counts) == 1, counts
        assert threading.active_count() == 1
    """
    command = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(script)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=150, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_source_and_a_sink_leave_no_thread_behind(kafka, new_topic):
    transport = KafkaTransport(kafka_options(kafka, new_topic("input")))
    before = threading.active_count()
    for _ in range(2):
        source, sink = transport.open()
        source.poll(POLL_S)
        source.close()
        sink.close()
    servers.wait_until(lambda: threading.active_count() <= before, what="the end of the client's threads")


def test_publishing_to_a_topic_that_does_not_exist_names_the_topic_and_the_command(kafka, new_topic, open_ends):
    limits = {"produce_timeout_s": 1.0, "connect_timeout_s": 5.0}
    asked = kafka_options(kafka, new_topic("input"), create_command="create them", **limits)
    _, sink = open_ends(KafkaTransport(asked))
    missing = servers.fresh_name("missing")
    with pytest.raises(BrokerMisconfigured, match=f"{missing}; create with: create them"):
        sink.publish([Message(missing, None, b"v")], Batch())


def test_a_message_without_key_and_value_is_a_programming_error_and_not_hidden(kafka, new_topic, open_ends):
    _, sink = open_ends(KafkaTransport(kafka_options(kafka, new_topic("input"))))
    with pytest.raises(ValueError, match="key or value"):
        sink.publish([Message(new_topic("output"), None, None)], Batch())


def test_topics_are_created_once_and_then_found(kafka):
    names = {servers.fresh_name("a"): 2, servers.fresh_name("b"): 1}
    asked = kafka_options(kafka, *names)
    assert create_topics(asked, names, 1, {}, {}).created == tuple(sorted(names))
    again = create_topics(asked, names, 1, {}, {})
    assert again.created == ()
    assert again.partition_counts == names
    assert require_topics(asked) == names


def test_more_copies_than_brokers_are_refused_with_the_topics_name(kafka):
    name = servers.fresh_name("topic")
    with pytest.raises(BrokerMisconfigured, match=name):
        create_topics(kafka_options(kafka, name), {name: 1}, 7, {}, {})


def test_a_topic_that_is_compacted_later_stops_the_daemon_instead_of_being_tried_for_ever(kafka, new_topic, open_ends):
    compacted = new_topic("output", cleanup_policy="compact")
    _, sink = open_ends(KafkaTransport(kafka_options(kafka, new_topic("input"))))
    with pytest.raises(BrokerMisconfigured, match=rf"{compacted}.*compacted topic takes none without a key"):
        sink.publish([Message(compacted, None, b"v")], Batch())


def test_offsets_that_are_gone_stop_the_daemon_when_asked_to(kafka, new_topic, open_ends):
    asked = kafka_options(kafka, new_topic("input"), on_out_of_range="halt")
    source, _ = open_ends(KafkaTransport(asked))
    with pytest.raises(FatalError, match="offset"):
        servers.wait_until(lambda: source.poll(POLL_S))


def test_a_process_ends_quietly_and_soon_although_kafka_is_away(start_kafka):
    server = start_kafka()
    topic = servers.fresh_name("topic")
    servers.create_topics(server.bootstrap_servers, [topic])
    script = f"""
        import sys
        from streamdedup.errors import BrokerUnavailable
        from streamdedup.kafka import producer
        from streamdedup.kafka.options import KafkaOptions
        from streamdedup.kafka.producer import KafkaTransport
        from streamdedup.kafka.protocols import Batch, Message, Sink, Source
        producer.COMMIT_MARGIN_S = 0.5
        source, sink = KafkaTransport(KafkaOptions(
            bootstrap_servers={server.bootstrap_servers!r}, group_id="g", topics=({topic!r},), transactional_id="x",
            transaction_timeout_s=20.0, delivery_timeout_s=15.0, produce_timeout_s=10.0)).open()
        source.poll(0.2)
        sink.publish([Message({topic!r}, None, b"v")], Batch())
        print("open", flush=True)
        sys.stdin.readline()
        try:
            sink.publish([Message({topic!r}, None, b"v")], Batch())
        except BrokerUnavailable:
            print("away", flush=True)
        if sys.stdin.readline().strip() == "close":
            sink.close()
            source.close()
    """
    command = [sys.executable, "-W", "ignore", "-c", "import logging; logging.disable()\n" + textwrap.dedent(script)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipes) as process:
        assert process.stdin
        assert process.stdout
        assert process.stdout.readline() == "open\n"
        server.kill()
        process.stdin.write("publish\n")
        process.stdin.flush()
        assert process.stdout.readline() == "away\n"
        _, complaints = process.communicate("close\n", timeout=150)
        assert (process.returncode, complaints) == (0, "")


def test_a_call_that_takes_too_long_is_left_behind_and_its_error_is_kept_otherwise():
    with pytest.raises(BrokerUnavailable, match=r"cannot wait: .* within 0\.05 s"):
        call_within(0.05, "wait", threading.Event().wait)
    with pytest.raises(LookupError):
        call_within(5.0, "fail", lambda: (_ for _ in ()).throw(LookupError()))
    assert call_within(5.0, "answer", lambda: 42) == 42
    assert not close_quietly("fail", lambda: (_ for _ in ()).throw(LookupError()))


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (kafka_errors.ProducerFencedError(), ProducerFenced, "instance_id"),
        (kafka_errors.InvalidProducerEpochError(), ProducerFenced, "instance_id"),
        (kafka_errors.KafkaError("error state: ProducerFencedError"), ProducerFenced, "instance_id"),
        (kafka_errors.SaslAuthenticationFailedError("no"), BrokerMisconfigured, "password"),
        (kafka_errors.TopicAuthorizationFailedError({"t"}), BrokerMisconfigured, "rights"),
        (kafka_errors.MessageSizeTooLargeError(), BrokerMisconfigured, "larger than the topic takes"),
        (kafka_errors.InvalidTransactionTimeoutError(), BrokerMisconfigured, "transaction.max.timeout.ms"),
        (kafka_errors.KafkaError("x: [Error 50] InvalidTransactionTimeoutError"), BrokerMisconfigured, "max.timeout"),
        (kafka_errors.KafkaConnectionError("[SSL: CERTIFICATE_VERIFY_FAILED]"), BrokerMisconfigured, "ssl_ca_file"),
        (kafka_errors.KafkaError("something else"), BrokerUnavailable, "something else"),
        (kafka_errors.GroupAuthorizationFailedError("g"), BrokerMisconfigured, "READ on the consumer group"),
        (kafka_errors.UnsupportedVersionError(), BrokerMisconfigured, "at-least-once"),
        (kafka_errors.OffsetOutOfRangeError({}), FatalError, "offset"),
        (kafka_errors.CommitFailedError(), MembershipEnded, "cannot publish"),
        (kafka_errors.KafkaTimeoutError(), BrokerUnavailable, "cannot publish"),
        (OSError("reset"), BrokerUnavailable, "reset"),
    ],
)
def test_an_error_is_translated_by_the_reaction_of_the_loop(error, kind, words):
    ours = translated(error, "publish")
    assert type(ours) is kind
    assert words in str(ours)


@contextlib.contextmanager
def server_that_answers(reply: bytes) -> Iterator[str]:
    """The address of a server that answers any request with ``reply``, and closes the connection."""

    class Answer(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(1000)
            self.request.sendall(reply)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Answer) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield f"127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


#: Answers of other servers: the alert "protocol version" of TLS 1.2, and HTTP.
TLS_ALERT, HTTP = b"\x15\x03\x03\x00\x02\x02\x46", b"HTTP/1.1 400 Bad Request\r\n\r\n"
LOGIN = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN", "sasl_username": "u", "sasl_password": "p"}


@pytest.mark.parametrize(
    ("reply", "kind", "words"),
    [
        (TLS_ALERT, BrokerMisconfigured, "uses TLS; set kafka.security_protocol to SSL or SASL_SSL"),
        (HTTP, BrokerUnavailable, "does not speak Kafka's protocol"),
        (b"", BrokerUnavailable, "wants TLS or a login; check kafka.security_protocol"),
    ],
)
def test_a_server_that_is_no_kafka_or_needs_tls_is_explained(reply, kind, words):
    with server_that_answers(reply) as address, pytest.raises(kind, match=words):
        require_topics(kafka_options(address, connect_timeout_s=2.0))


@pytest.mark.parametrize(
    ("changes", "kind", "words"),
    [
        ({"connect_timeout_s": 60.0, **LOGIN}, BrokerMisconfigured, "takes no login; set kafka.security_prot"),
        ({"bootstrap_servers": "nowhere.invalid:9092"}, BrokerUnavailable, "a host name does not resolve"),
        ({"bootstrap_servers": "127.0.0.1:1"}, BrokerUnavailable, "no server listens there"),
    ],
)
def test_the_reason_of_a_failed_connection_is_explained(kafka, changes, kind, words):
    with pytest.raises(kind, match=words) as caught:
        require_topics(replace(kafka_options(kafka), **({"connect_timeout_s": 2.0} | changes)))
    assert type(caught.value) is kind


def test_a_failed_tls_handshake_is_explained(kafka):
    # In a process of its own: the client leaves the socket of a failed handshake to the garbage collector.
    script = f"""
        from streamdedup.errors import BrokerUnavailable
        from streamdedup.kafka.admin import require_topics
        from streamdedup.kafka.options import KafkaOptions
        asked = KafkaOptions(bootstrap_servers={kafka!r}, group_id="g", topics=("t",), delivery="at-least-once",
            connect_timeout_s=6.0, security_protocol="SSL")
        try:
            require_topics(asked)
        except BrokerUnavailable as error:
            print(error)
    """
    command = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(script)]
    said = subprocess.run(command, capture_output=True, text=True, timeout=900, check=True).stdout
    assert "(SSL): the TLS handshake failed, as with a listener without TLS; check kafka.security_protocol [" in said


def test_no_error_and_no_representation_shows_a_secret():
    asked = kafka_options("localhost:1", sasl_password="canary")
    assert "canary" not in str(translated(ValueError("{'p': 'canary'}"), "connect", asked))
    assert "canary" not in repr(asked)


def test_the_client_never_logs_at_debug_where_it_prints_passwords(monkeypatch):
    client = logging.getLogger("kafka")
    monkeypatch.setattr(client, "level", logging.DEBUG)
    cap_client_logging()
    assert client.getEffectiveLevel() == logging.INFO
