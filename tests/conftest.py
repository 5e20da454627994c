"""Tiers of the tests, servers and fresh names for every test, and a check that nothing is left running.

Servers come from ``KAFKA_BOOTSTRAP`` and ``REDIS_URL``, else every process that runs tests starts its own, at the first
test that needs one. ``REDIS_URL`` must name a database that is empty, because tests flush it, and therefore serves one
process only. ``TEST_REDIS_SERVER`` selects the server program to start (``redis-server``). A server that
cannot be started is a skip on a laptop and a failure under CI.
"""

import asyncio
import contextlib
import gc
import inspect
import os
import resource
import signal
import sys
import uuid
import warnings
from collections.abc import Callable, Generator, Iterator

import hypothesis
import pytest
import redis

from streamdedup.embedded import MissingToolError, RedisServer
from streamdedup.index.redis.connection import connect_cluster
from streamdedup.index.redis.servers import Servers
from streamdedup.kafka.protocols import Sink, Source, Transport
from tests.support.kafka import KafkaServer
from tests.support.postgres import PostgresServer
from tests.support.processes import processes_with

with warnings.catch_warnings():
    # kafka-python reads its schemas in a way that Python 3.11 and 3.12 call deprecated; it does so while it is
    # imported.
    warnings.simplefilter("ignore", DeprecationWarning)
    from tests import redis_sets, servers, thoroughness

#: Environment variable that every process started by this session inherits, so that they can be found at its end.
RUN_MARK = "TEST_RUN_OF_STREAMDEDUP"
#: Seconds that processes whose end was asked for may still take at the end of the session.
LEFT_BEHIND_S = 60.0
#: Fixtures that need a real Kafka.
KAFKA_FIXTURES = frozenset({"kafka", "start_kafka", "own_kafka", "guarded_servers"})

#: Examples that hypothesis tries in `make test-all` where a test names no other number.
EXAMPLES = 100

REDIS_PROGRAM = pytest.StashKey[str | None]()


def pytest_configure(config: pytest.Config) -> None:
    """Take the settings of whoever runs the tests out of the environment; tests set what they mean."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # Shells start background jobs so; children inherit it, and tests of Ctrl-C would wait for ever.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.stash[REDIS_PROGRAM] = os.environ.get("TEST_REDIS_SERVER")
    for name in [name for name in os.environ if name.startswith("STREAMDEDUP_")]:
        del os.environ[name]
    # urllib and curl would ask a proxy of the environment for the servers that tests start.
    for name in ("no_proxy", "NO_PROXY"):
        os.environ[name] = ",".join(filter(None, [os.environ.get(name), "127.0.0.1", "localhost"]))
    # The same examples every time where a failure stops others; new ones wherever somebody can look into a failure.
    fixed: dict[str, object] = {"derandomize": True, "print_blob": True} if os.environ.get("CI") else {}
    # The time of an example is that of a busy machine.
    fixed |= {"deadline": None, "suppress_health_check": [hypothesis.HealthCheck.too_slow]}
    hypothesis.settings.register_profile("quick", max_examples=EXAMPLES // thoroughness.QUICK_PART, **fixed)
    hypothesis.settings.register_profile(thoroughness.THOROUGH, max_examples=EXAMPLES, **fixed)
    # The option --hypothesis-profile loads another one after this hook.
    hypothesis.settings.load_profile("quick")


def pytest_make_parametrize_id(val: object) -> str | None:
    """Name binary parameters by their size: compressed bytes hold the time, and all processes must agree on names."""
    readable = not isinstance(val, bytes) or (val.isascii() and val.decode().isprintable())
    return None if readable else f"{len(val)} bytes"


@pytest.hookimpl(tryfirst=True)  # the marks decide on what pytest deselects and what pytest-xdist groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark acceptance tests and tests on a real Kafka as long, and group tests so that few processes start servers.

    With ``--dist loadgroup`` one process runs the short tests on Kafka, so `make test` starts one shared broker. They
    come first, because they take longest. All other tests are grouped by file, because fixtures are shared in a file;
    those of the simulation share none, and take long.
    """
    for item in items:
        file = item.nodeid.partition("::")[0]
        short = item.get_closest_marker("short") is not None
        on_kafka = not KAFKA_FIXTURES.isdisjoint(getattr(item, "fixturenames", ()))
        if not short and (on_kafka or file.startswith("tests/acceptance/")):
            item.add_marker(pytest.mark.long)
        if item.get_closest_marker("xdist_group") is None and not file.startswith("tests/simulation/"):
            item.add_marker(pytest.mark.xdist_group("kafka" if short and on_kafka else file))
    items.sort(key=lambda item: item.get_closest_marker("short") is None)


@pytest.hookimpl(tryfirst=True)  # pytest itself refuses a coroutine
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine in an event loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = pyfuncitem._fixtureinfo.argnames
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup() -> Generator[None, object, object]:
    """Skip a test that lacks a tool, on a laptop; under CI it fails."""
    try:
        return (yield)
    except MissingToolError as error:
        servers.unavailable(error)


pytest_runtest_call = pytest_runtest_setup


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Give all skips for one missing server one place, so that the summary has one line for all of them."""
    report = yield
    if report.skipped and call.excinfo is not None and isinstance(call.excinfo.value, servers.Unavailable):
        report.longrepr = (servers.__file__, None, f"Skipped: {call.excinfo.value}")
    return report


@pytest.fixture(scope="session", autouse=True)
def nothing_left_running() -> Iterator[None]:
    """Fail the session when a process that it started, at whatever remove, outlives all fixtures."""
    mark = uuid.uuid4().hex
    os.environ[RUN_MARK] = mark
    yield
    del os.environ[RUN_MARK]
    if not sys.platform.startswith("linux"):
        return  # there is no /proc to look into
    try:
        servers.wait_until(lambda: not processes_with(RUN_MARK, mark), LEFT_BEHIND_S, "the end of everything started")
    except TimeoutError:
        pytest.fail("left running by the tests:\n" + "\n".join(processes_with(RUN_MARK, mark)), pytrace=False)


@pytest.fixture(scope="module", autouse=True)
def nothing_left_open(request: pytest.FixtureRequest) -> Iterator[None]:
    """Let the garbage collector find what the tests of a module left open, or else a later test would fail for it."""
    yield
    if request.path.parent.name != "unit":
        gc.collect()


@pytest.fixture(scope="session")
def redis_program(pytestconfig: pytest.Config) -> str | None:
    """Name of the Redis server program under test; None is the wheel's."""
    return pytestconfig.stash[REDIS_PROGRAM]


@pytest.fixture(scope="session")
def redis_server(redis_program: str | None) -> Iterator[RedisServer]:
    """A Redis server for the whole session; tests that stop or pause one start their own with ``start_redis``."""
    with servers.make_redis(redis_program) as server:
        yield server


@pytest.fixture(scope="session")
def redis_url(request: pytest.FixtureRequest) -> str:
    """Address of a Redis whose database belongs to the tests."""
    given = os.environ.get("REDIS_URL")
    if given is None:
        server: RedisServer = request.getfixturevalue("redis_server")
        return server.url
    if int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")) > 1:
        pytest.fail("REDIS_URL names one server, and tests flush it: run them in one process, with WORKERS=0")
    with redis.Redis.from_url(given) as client:
        if client.dbsize():
            pytest.fail("REDIS_URL names a database with keys in it, and tests flush it; name an empty one")
    return given


@pytest.fixture
def redis_client(redis_url: str) -> Iterator[redis.Redis]:
    """A client of a Redis that is empty before the test and after it."""
    with redis.Redis.from_url(redis_url) as client:
        client.flushdb()
        yield client
        client.flushdb()


@pytest.fixture(scope="session")
def shared_cluster(redis_program: str | None) -> Iterator[redis_sets.Cluster]:
    """A Redis Cluster of three masters for the whole session; tests that change it start their own."""
    with redis_sets.redis_cluster(redis_program) as cluster:
        cluster.be_patient()
        yield cluster


@pytest.fixture
def cluster_of_redis(shared_cluster: redis_sets.Cluster) -> Iterator[redis_sets.Cluster]:
    """A Redis Cluster that is empty before the test and after it."""
    shared_cluster.flush()
    yield shared_cluster
    shared_cluster.flush()


@pytest.fixture
def cluster_servers(cluster_of_redis: redis_sets.Cluster) -> Iterator[Servers]:
    """A connection to a Redis Cluster that is empty."""
    with connect_cluster(cluster_of_redis.addresses[:1]) as connection:
        yield connection


@pytest.fixture(scope="module")
def redis_of_module(redis_program: str | None) -> Iterator[tuple[RedisServer, redis.Redis]]:
    """A Redis of the module's own; tests use it as ``own_redis``."""
    with servers.make_redis(redis_program) as server, redis.Redis(port=server.port) as client:
        yield server, client


@pytest.fixture
def own_redis(redis_of_module: tuple[RedisServer, redis.Redis]) -> Iterator[tuple[RedisServer, redis.Redis]]:
    """A Redis whose settings and users the test may change, and a client of it that may do everything."""
    yield redis_of_module
    _, client = redis_of_module
    client.config_set("maxmemory", 0, "maxmemory-policy", "noeviction", "appendonly", "no")
    client.flushall()


@pytest.fixture(scope="session")
def kafka() -> Iterator[str]:
    """Bootstrap servers of a real Kafka for the whole session; tests that stop one use ``start_kafka``."""
    given = os.environ.get("KAFKA_BOOTSTRAP")
    if given is not None:
        yield given
        return
    with servers.make_kafka() as server:
        yield server.bootstrap_servers


@pytest.fixture
def start_redis(redis_program: str | None) -> Iterator[Callable[..., RedisServer]]:
    """Start Redis servers of the test's own; the options are those of ``RedisServer``."""
    with contextlib.ExitStack() as stack:
        yield lambda **options: stack.enter_context(servers.make_redis(redis_program, **options))


@pytest.fixture
def start_kafka() -> Iterator[Callable[..., KafkaServer]]:
    """Start Kafka clusters of the test's own; the options are those of ``KafkaServer``."""
    with contextlib.ExitStack() as stack:
        yield lambda **options: stack.enter_context(servers.make_kafka(**options))


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A PostgreSQL for the whole session."""
    with PostgresServer() as server:
        yield server


@pytest.fixture
def postgres(postgres_server: PostgresServer) -> str:
    """Address of a PostgreSQL without tables."""
    return postgres_server.create_schema(f"test{uuid.uuid4().hex}")


@pytest.fixture
def new_topic(kafka: str) -> Callable[..., str]:
    """Create a topic under a name of its own and return the name: ``new_topic("input", partitions=4)``."""

    def create(kind: str = "topic", partitions: int = 1, **configs: str) -> str:
        name = servers.fresh_name(kind)
        settings = {key.replace("_", "."): value for key, value in configs.items()}
        servers.create_topics(kafka, [name], partitions, settings)
        return name

    return create


@pytest.fixture
def new_group() -> Callable[[], str]:
    """Return names of consumer groups, each one new."""
    return lambda: servers.fresh_name("group")


@pytest.fixture
def open_ends() -> Iterator[Callable[[Transport], tuple[Source, Sink]]]:
    """Open both ends of a transport; whatever is still open at the end is closed."""
    with contextlib.ExitStack() as stack:

        def opened(transport: Transport) -> tuple[Source, Sink]:
            source, sink = transport.open()
            stack.callback(source.close)
            stack.callback(sink.close)
            return source, sink

        yield opened


@pytest.fixture
def many_files() -> Iterator[None]:
    """Raise the limit of open files to 4,096, for tests that open hundreds of connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 4_096)), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture
def key_prefix() -> str:
    """Return a prefix of Redis keys that no other test has."""
    return servers.fresh_name("keys")
