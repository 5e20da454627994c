"""The state of the pipeline: scraped daemons, rates, history; daemons and servers that misbehave."""

import asyncio
import socket
import ssl
import threading
from contextlib import closing, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from streamdedup.daemon.health import HealthServer, Readiness
from streamdedup.daemon.metrics import Metrics
from streamdedup.errors import BrokerUnavailable, StoreMisconfigured, StoreUnavailable
from streamdedup.kafka.group import GroupProgress
from streamdedup.position import Partition
from streamdedup.serve import daemon_metrics, sampler
from streamdedup.serve.daemon_metrics import DaemonMetrics, ScrapeError, Target, parse, scrape, targets_of
from streamdedup.serve.pipeline import Increases, KafkaPipeline, PipelineReading
from streamdedup.serve.schemas import DaemonBody, StoreBody
from tests.canaries import TLS
from tests.served import TEXT, Service

STATE = "/v1/state"


class TestIncreases:
    @given(st.lists(st.dictionaries(st.sampled_from("ab"), st.integers(0, 9)), max_size=6))
    def test_growing_numbers_are_summed_from_their_first_value(self, steps):
        increases, totals, first, grown = Increases(from_zero=False), {}, {}, 0.0
        for step in steps:
            totals = {key: totals.get(key, 0) + value for key, value in step.items()} | {
                key: value for key, value in totals.items() if key not in step
            }
            for key in step:
                first.setdefault(key, totals[key])
            grown += increases.advance({key: totals[key] for key in step})
        assert grown == sum(totals[key] - first[key] for key in first)

    def test_a_number_that_begins_again_counts_from_zero_or_not_at_all(self):
        for from_zero, expected in ((True, 3.0), (False, 0.0)):
            increases = Increases(from_zero=from_zero)
            increases.advance({"a": 10.0})
            assert increases.advance({"a": 3.0}) == expected
            assert increases.advance({"a": 4.0}) == 1.0


@contextmanager
def a_daemon():
    """Serve the metrics of a daemon as the daemon does."""
    metrics = Metrics()
    metrics.begin_at_zero({"articles": "news"}, kinds=("upsert",), codes=("not_json",), reasons=(), rules=())
    readiness = Readiness(metrics)
    readiness.at_work()
    server = HealthServer("127.0.0.1", 0, metrics.registry, live=lambda: None, ready=readiness.problem)
    with closing(server):
        yield SimpleNamespace(
            metrics=metrics, readiness=readiness, url=f"http://127.0.0.1:{server.port}/metrics", port=server.port
        )


@contextmanager
def a_server(*parts: bytes, pause_s: float = 0.0):
    """Answer each connection with bytes; yield the address."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ended = threading.Event()

        def serve():
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(65_536)
                    for part in parts:
                        try:
                            connection.sendall(part)
                        except OSError:
                            break
                        ended.wait(pause_s)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}/metrics"
        finally:
            ended.set()
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


@contextmanager
def a_tls_proxy(context: ssl.SSLContext, port: int):
    """Accept TLS, and answer each request with the metrics at a port; yield the port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = scrape(Target(f"http://127.0.0.1:{port}/metrics"))
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_given) -> None:
            pass

    class Server(ThreadingHTTPServer):
        def handle_error(self, *_given) -> None:
            pass  # a handshake that the client refused

    with Server(("127.0.0.1", 0), Handler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


def named(url: str) -> str:
    """Return a URL with a host name in place of the address."""
    return url.replace("127.0.0.1", "pods.example")


def names(monkeypatch, *addresses: str) -> list[str]:
    """Make ``pods.example`` a name of addresses; return the list of them, which may change."""
    known, resolve = list(addresses), socket.getaddrinfo

    def resolved(host, port, *given, **options):
        if host != "pods.example":
            return resolve(host, port, *given, **options)
        if not known:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [found for address in known for found in resolve(address, port, *given, **options)]

    monkeypatch.setattr(socket, "getaddrinfo", resolved)
    return known


def answer(status: str, body: bytes = b"", *headers: bytes) -> bytes:
    lines = [b"HTTP/1.1 " + status.encode(), b"content-length: %d" % len(body), *headers, b"", body]
    return b"\r\n".join(lines)


class TestScraping:
    def test_the_numbers_of_all_daemons_are_added(self):
        with a_daemon() as one, a_daemon() as other, closing(DaemonMetrics([one.url, other.url], lambda: 0)) as source:
            for daemon, lag in ((one, 4), (other, 3)):
                daemon.metrics.lag_records.labels("articles", "0").set(lag)
                daemon.metrics.records.labels("articles", "upsert").inc(100)
                daemon.metrics.store_used_bytes.set(1_000)
                daemon.metrics.store_limit_bytes.set(5_000)
            first = source.read()
            assert (first.documents, first.alerts, first.lag) == (0, 0, 7)
            assert first.memory == StoreBody(1_000, 5_000)
            assert first.daemons == (
                DaemonBody(f"127.0.0.1:{one.port}", True, None, None),
                DaemonBody(f"127.0.0.1:{other.port}", True, None, None),
            )
            one.metrics.records.labels("articles", "upsert").inc(5)
            other.metrics.records.labels("articles", "upsert").inc(2)
            other.metrics.alerts.labels("news").inc()
            second = source.read()
            assert (second.documents, second.alerts) == (7, 1)

    def test_a_daemon_that_waits_or_fails_says_so(self):
        with a_daemon() as daemon, closing(DaemonMetrics([daemon.url], lambda: 1_500)) as source:
            daemon.metrics.store_errors.inc(3)

            def state():
                (found,) = source.read().daemons
                return found.waiting_for, found.last_error

            assert state() == (None, None)  # failures before the first scrape have an unknown time
            daemon.readiness.wait_for("the store")
            daemon.metrics.store_errors.inc()
            assert state() == ("store", "Redis failed, seen at 1970-01-01T00:00:01.500Z")
            daemon.readiness.at_work()
            assert state() == (None, "Redis failed, seen at 1970-01-01T00:00:01.500Z")
            daemon.metrics.dead_letters.labels("articles", "not_json").inc()
            assert state()[1] == "dead letter not_json, seen at 1970-01-01T00:00:01.500Z"
            daemon.metrics.broker_errors.inc()
            assert state()[1].startswith("Kafka failed")
            daemon.metrics.index_lost_timestamp_seconds.labels("news").set(60)
            assert state()[1] == "the index of profile news is lost since 1970-01-01T00:01:00.000Z"
            daemon.metrics.halted.set(1)
            assert state()[1] == "halted after too many dead letters"

    def test_a_daemon_that_is_away_hides_no_other(self):
        with socket.create_server(("127.0.0.1", 0)) as closed:
            away = f"http://127.0.0.1:{closed.getsockname()[1]}/metrics"
        with a_daemon() as daemon, closing(DaemonMetrics([away, daemon.url], lambda: 0)) as source:
            daemon.metrics.lag_records.labels("articles", "0").set(2)
            reading = source.read()
            assert [each.reachable for each in reading.daemons] == [False, True]
            assert reading.daemons[0].last_error == "cannot be reached: Connection refused"
            assert reading.lag == 2
        with closing(DaemonMetrics([away], lambda: 0)) as source:
            reading = source.read()
            assert (reading.documents, reading.alerts, reading.lag, reading.memory) == (None,) * 4

    @pytest.mark.parametrize(
        ("content", "reason"),
        [
            (answer("302 Found", b"", b"location: http://127.0.0.1:9/"), "answers with status 302"),
            (answer("404 Not Found", b"none"), "answers with status 404"),
            (b"SSH-2.0\r\n", "does not speak HTTP"),
            (b"", "does not speak HTTP|cannot be reached"),
            (b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 20_000, "longer than 10,000 bytes"),
            (b"HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\nx", "ends early"),
        ],
    )
    def test_a_server_that_is_no_daemon_is_refused(self, monkeypatch, content, reason):
        monkeypatch.setattr(daemon_metrics, "MAX_BYTES", 10_000)
        with a_server(content) as url, pytest.raises(ScrapeError, match=reason):
            scrape(Target(url))

    def test_a_server_that_sends_slowly_is_given_up(self):
        parts = [b"HTTP/1.1 200 OK\r\n\r\n", *([b"x"] * 1_000)]
        with a_server(*parts, pause_s=0.02) as url, pytest.raises(ScrapeError, match=r"no answer within 0\.1 s"):
            scrape(Target(url), 0.1)
        with a_server(b"", pause_s=60) as url, pytest.raises(ScrapeError, match=r"no answer within 0\.1 s"):
            scrape(Target(url), 0.1)

    def test_no_proxy_of_the_environment_is_used(self, monkeypatch):
        monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
        with a_daemon() as daemon:
            assert b"streamdedup_ready" in scrape(Target(daemon.url))

    def test_a_name_with_several_addresses_names_a_daemon_at_each(self, monkeypatch):
        with a_daemon() as daemon, closing(DaemonMetrics([named(daemon.url)], lambda: 0)) as source:
            daemon.metrics.records.labels("articles", "upsert").inc(3)
            known = names(monkeypatch, "127.0.0.1", "127.0.0.2")
            first = source.read()
            assert [(each.address, each.reachable) for each in first.daemons] == [
                (f"127.0.0.1:{daemon.port}", True),
                (f"127.0.0.2:{daemon.port}", False),  # the daemon listens at the first address alone
            ]
            daemon.metrics.records.labels("articles", "upsert").inc(2)
            assert source.read().documents == 2
            known[:] = ["127.0.0.1"]  # the other daemon has ended
            assert [each.address for each in source.read().daemons] == [f"pods.example:{daemon.port}"]
            assert len(source._errors) == 1

    def test_a_name_that_cannot_be_resolved_is_a_daemon_that_is_away(self, monkeypatch):
        names(monkeypatch)
        with closing(DaemonMetrics(["http://pods.example:9464/metrics"], lambda: 0)) as source:
            (daemon,) = source.read().daemons
        assert (daemon.address, daemon.reachable) == ("pods.example:9464", False)
        assert daemon.last_error == "cannot be reached: Name or service not known"

    def test_the_addresses_of_one_family_are_taken_in_order_and_bounded(self, monkeypatch):
        names(monkeypatch, "10.0.0.2", "fd00::1", "10.0.0.1")
        url = "http://pods.example:9464/metrics"
        assert targets_of(url) == [Target(url, "10.0.0.1"), Target(url, "10.0.0.2")]
        names(monkeypatch, "10.0.0.2", "fd00::1")
        assert targets_of(url) == [Target(url)]
        names(monkeypatch, "fd00::1", "fd00::2")
        assert [target.name for target in targets_of(url)] == ["[fd00::1]:9464", "[fd00::2]:9464"]
        assert Target("http://pods.example/metrics", "10.0.0.1").name == "10.0.0.1"
        monkeypatch.setattr(daemon_metrics, "MAX_TARGETS", 1)
        with socket.create_server(("127.0.0.1", 0)) as closed:
            port = closed.getsockname()[1]
        names(monkeypatch, "127.0.0.1", "127.0.0.2")
        with closing(DaemonMetrics([f"http://pods.example:{port}/metrics"], lambda: 0)) as source:
            assert len(source.read().daemons) == 1

    def test_an_encrypted_connection_to_an_address_checks_the_certificate_of_the_name(self, monkeypatch):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(TLS / "certificate.pem", TLS / "plain.key")
        trusted = ssl.create_default_context(cafile=TLS / "certificate.pem")
        monkeypatch.setattr(ssl, "create_default_context", lambda: trusted)
        with a_daemon() as daemon, a_tls_proxy(context, daemon.port) as port:
            assert b"streamdedup_ready" in scrape(Target(f"https://localhost:{port}/metrics", "127.0.0.1"))
            with pytest.raises(ScrapeError, match="cannot be reached"):
                scrape(Target(f"https://pods.example:{port}/metrics", "127.0.0.1"))

    @given(st.binary(max_size=80) | st.text(max_size=60).map(lambda text: b"streamdedup_halted" + text.encode()))
    def test_any_answer_is_parsed_or_refused(self, body):
        with suppress(ScrapeError):
            assert "halted" in parse(body)

    def test_numbers_that_are_none_are_left_out(self):
        found = parse(b"streamdedup_halted 0\nstreamdedup_lag_records NaN\nstreamdedup_alerts_total +Inf\n")
        assert {name: len(samples) for name, samples in found.items()} == {"halted": 1}


class MadePipeline:
    """A pipeline whose readings are given."""

    name = "metrics"

    def __init__(self, *readings) -> None:
        self.readings = list(readings)
        self.is_closed = False

    def read(self) -> PipelineReading:
        reading = self.readings.pop(0)
        if isinstance(reading, Exception):
            raise reading
        return reading

    def close(self) -> None:
        self.is_closed = True


def sample_all(service: Service) -> None:
    """Take a sample for each reading."""

    async def several():
        while service.source.readings:
            await service.sampler.sample()

    asyncio.run(several())


class TestSampling:
    def test_before_the_first_sample_numbers_are_unknown(self):
        with closing(Service(source=MadePipeline())) as service:
            body = service.sampler.state()
            assert (body.documents_per_second, body.lag, body.history, body.daemons) == (None, None, [], [])
            assert [(each.name, each.documents) for each in body.profiles] == [("articles", None)]

    def test_rates_are_counted_from_the_second_sample_on(self, monkeypatch):
        readings = [PipelineReading(0, 0, 9), PipelineReading(50, 5, 7), PipelineReading(0, 0, 0)]
        with closing(Service(source=MadePipeline(*readings))) as service:
            service.add(("a", TEXT))
            monkeypatch.setattr(sampler, "_rate", lambda increase, _: None if increase is None else increase / 10)
            sample_all(service)
            body = service.sampler.state()
            assert [each.documents_per_second for each in body.history] == [None, 5.0, 0.0]
            assert [each.alerts_per_second for each in body.history] == [None, 0.5, 0.0]
            assert [each.lag for each in body.history] == [9, 7, 0]
            assert [each.documents for each in body.history] == [1, 1, 1]
            assert (body.redis.used_bytes, body.redis.max_bytes) == (1_000, None)

    def test_a_rate_is_the_increase_by_the_time_that_passed(self):
        assert sampler._rate(50, 10.0) == 5.0
        assert sampler._rate(None, 10.0) is None
        assert sampler._rate(1, 0.0) is None

    def test_the_history_is_bounded(self, monkeypatch):
        monkeypatch.setattr(sampler, "MAX_SAMPLES", 3)
        with closing(Service(source=MadePipeline(*[PipelineReading(0, 0, lag) for lag in range(5)]))) as service:
            sample_all(service)
            assert [each.lag for each in service.sampler.state().history] == [2, 3, 4]

    def test_a_source_that_fails_leaves_gaps_and_is_logged_once(self):
        failing = BrokerUnavailable("10.1.2.3 is away")
        readings = [PipelineReading(0, 0, 9), failing, failing, RuntimeError("x"), PipelineReading(1, 1, 7)]
        with closing(Service(source=MadePipeline(*readings))) as service:
            with capture_logs() as events:
                sample_all(service)
            body = service.sampler.state()
            assert [each.lag for each in body.history] == [9, None, None, None, 7]
            assert body.history[-1].documents_per_second is not None  # since the last successful reading
        assert service.source.is_closed
        assert [(event["event"], event.get("reason")) for event in events] == [
            ("state_unavailable", "10.1.2.3 is away"),
            ("state_available", None),
        ]

    def test_while_a_sample_is_taken_the_state_is_that_of_the_sample_before(self, monkeypatch):
        there, gone = (DaemonBody("127.0.0.1:9464", reachable, None, None) for reachable in (True, False))
        readings = [PipelineReading(0, 0, 9, (there,)), PipelineReading(None, None, None, (gone,))]
        with closing(Service(source=MadePipeline(*readings))) as service:
            seen = []

            def memory(*_given):
                state = service.sampler.state()
                seen.append((state.daemons, state.lag))
                return StoreBody(1, None)

            monkeypatch.setattr(service.sampler, "_read_memory", memory)
            sample_all(service)
            state = service.sampler.state()
        assert [*seen, (state.daemons, state.lag)] == [([], None), ([there], 9), ([gone], None)]

    @pytest.mark.parametrize("error", [StoreUnavailable("away"), StoreMisconfigured("no right to call INFO")])
    def test_a_redis_that_does_not_tell_leaves_its_numbers_unknown(self, monkeypatch, error):
        def failing(*_given):
            raise error

        with closing(Service(source=MadePipeline(PipelineReading(0, 0, 9)))) as service:
            monkeypatch.setattr(service.sampler, "_read_memory", failing)
            monkeypatch.setattr(service.index, "count_documents", failing)
            sample_all(service)
            body = service.sampler.state()
            assert (body.redis.used_bytes, body.redis.max_bytes, body.lag) == (None, None, 9)
            assert (body.profiles[0].documents, body.history[0].documents) == (None, None)

    def test_the_service_samples_while_it_runs_and_answers_with_the_names_of_the_page(self):
        daemon = DaemonBody("127.0.0.1:9464", True, "store", "Redis failed")
        reading = PipelineReading(1.0, 1.0, 5, (daemon,), StoreBody(7, 9))
        with closing(Service(source=MadePipeline(reading, PipelineReading(0, 0, 0)))) as service:
            sampled = threading.Event()
            take = service.sampler.sample

            async def signalling():
                await take()
                sampled.set()

            service.sampler.sample = signalling
            with service.client as client:
                assert sampled.wait(60)
                body = client.get(STATE).json()
        assert body == {
            "at": "1970-01-01T00:00:00.000Z",
            "from": "metrics",
            "documents_per_second": None,
            "alerts_per_second": None,
            "lag": 5,
            "daemons": [
                {
                    "address": "127.0.0.1:9464",
                    "reachable": True,
                    "waiting_for": "store",
                    "last_error": "Redis failed",
                }
            ],
            "profiles": [{"name": "articles", "documents": 0}],
            "redis": {"used_bytes": 7, "max_bytes": 9},
            "history": [
                {
                    "at": "1970-01-01T00:00:00.000Z",
                    "documents_per_second": None,
                    "alerts_per_second": None,
                    "lag": 5,
                    "documents": 0,
                    "used_bytes": 7,
                }
            ],
        }
        assert len(service.source.readings) == 1  # no sample after the end

    def test_the_openapi_document_has_the_names_of_the_answer(self):
        with closing(Service()) as service, service.client as client:
            schemas = client.get("/openapi.json").json()["components"]["schemas"]
        assert "from" in schemas["StateBody"]["properties"]
        assert "source" not in schemas["StateBody"]["properties"]


class MadeMonitor:
    """A client whose progress is given."""

    def __init__(self, *found) -> None:
        self.found = list(found)
        self.closed_count = 0

    def read(self) -> GroupProgress:
        found = self.found.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    def close(self) -> None:
        self.closed_count += 1


class TestKafka:
    A, B = Partition("articles", 0), Partition("articles", 1)

    def test_lag_and_documents_are_those_of_the_offsets(self):
        ends = {self.A: 10, self.B: 3}
        monitor = MadeMonitor(
            GroupProgress({self.A: 5, self.B: 0}, ends),
            GroupProgress({self.A: 9, self.B: 3}, ends),
            GroupProgress(None, ends),
        )
        counts = iter([4, 6, 6])
        source = KafkaPipeline(lambda: monitor, lambda: next(counts))
        assert source.read() == PipelineReading(0, None, 8)
        assert source.read() == PipelineReading(7, 2, 1)
        assert source.read() == PipelineReading(None, 0, None)  # the group may not be described any more
        source.close()
        assert monitor.closed_count == 1

    def test_alerts_are_those_between_two_known_counts(self):
        monitor = MadeMonitor(*[GroupProgress({}, {})] * 6)
        counts = iter([None, 4, 6, None, 9, 9])
        source = KafkaPipeline(lambda: monitor, lambda: next(counts))
        assert [source.read().alerts for _ in range(6)] == [None, None, 2, None, None, 0]

    def test_after_a_failure_another_client_is_opened(self):
        monitors = [MadeMonitor(BrokerUnavailable("away")), MadeMonitor(GroupProgress({}, {}))]
        opened = iter(monitors)
        source = KafkaPipeline(lambda: next(opened), lambda: 0)
        with pytest.raises(BrokerUnavailable):
            source.read()
        assert monitors[0].closed_count == 1
        assert source.read() == PipelineReading(0, None, 0)
