"""A private Apache Kafka without containers, for tests and benchmarks.

Needs Java 17 and Maven on the PATH. The jars (43 MB) are Maven artifacts, fetched once into a cache folder. Each node
is broker and controller (KRaft); data and ports survive kill -9.
"""

import base64
import contextlib
import fcntl
import os
import shutil
import socket
import struct
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from streamdedup.embedded.process import (
    LOOPBACK,
    PORT_ATTEMPTS,
    PORT_TAKEN,
    STOP_DEADLINE_S,
    ManagedProcess,
    ServerContext,
    ServerError,
)
from tests.support.ports import accepts_connections, free_ports
from tests.support.processes import find_tool

#: Version of Apache Kafka that is fetched.
KAFKA_VERSION = "4.1.1"
#: Time limit from the start of a node to its first answer, in seconds; 4 s were measured.
START_DEADLINE_S = 180.0
#: Time limit for fetching the jars, in seconds; 13 s were measured.
FETCH_DEADLINE_S = 900.0
#: Time limit for formatting the storage of a node, in seconds; 1 s was measured.
FORMAT_DEADLINE_S = 180.0
#: Largest heap of a node; a node has 260-310 MB resident in tests.
HEAP = "-Xmx512m"
#: Options of a fast start of the Java machine, at the cost of throughput.
FAST_START = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")

#: Time limit for the answer to one probe of a broker, in seconds.
ANSWER_TIMEOUT_S = 2.0
#: A request for the metadata (key 3, version 0) of all topics, from a client without a name, after its length.
METADATA_REQUEST = struct.pack(">ihhihi", 14, 3, 0, 1, -1, 0)

_JAVA_ADVICE = "install Java 17 or newer and Maven (Debian: apt-get install default-jre-headless maven)"
_MAVEN_ADVICE = "install Maven (Debian: apt-get install maven)"
#: Writes the logs of Java programs.
SLF4J = "org.slf4j:slf4j-simple:1.7.36"
_MAVEN_GOAL = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
_DEPENDENCY = "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>"
_POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>streamdedup</groupId>
  <artifactId>kafka-for-tests</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>{}</dependencies>
</project>
"""


class ToolRun(ManagedProcess):
    """One run of a program to its end, with the same protection as a server.

    Args:
        name: Name of the log file and in errors.
        arguments: Program and arguments.
        directory: Working directory and folder of the log; must exist as long as the program runs.
    """

    def __init__(self, name: str, arguments: list[str], directory: Path) -> None:
        super().__init__(name, directory)
        self._arguments = arguments

    def command(self) -> list[str]:
        """Return program and arguments."""
        return self._arguments

    def is_ready(self) -> bool:
        """Return True: there is nothing to wait for."""
        return True

    def finish(self, deadline_s: float) -> None:
        """Wait until the program ends.

        Raises:
            ServerError: The program did not end within ``deadline_s`` seconds (it is then killed), or not with code 0.
        """
        if not self.wait_exit(deadline_s):
            self.kill()
            raise ServerError(f"{self.name} took more than {deadline_s:g} s{self.log_tail()}")
        self._reap_keeper()
        if self.exit_code:
            raise ServerError(f"{self.name} ended with code {self.exit_code}{self.log_tail()}")


def fetch_kafka(cache: Path) -> Path:
    """Return the folder of Kafka's jars; see ``fetch_jars``."""
    return fetch_jars(cache, f"kafka-{KAFKA_VERSION}", f"org.apache.kafka:kafka_2.13:{KAFKA_VERSION}", SLF4J)


def fetch_jars(cache: Path, name: str, *artifacts: str) -> Path:
    """Return the folder of the jars of Maven artifacts, and fetch them if the cache does not contain them.

    Of several processes one fetches and the others wait. The folder appears when it is complete.

    Args:
        cache: Folder of such folders; is created.
        name: Name of the folder.
        artifacts: Group, artifact and version, with colons between them.

    Raises:
        MissingToolError: Maven is not installed.
        ServerError: Maven failed; the text ends with its output.
    """
    jars = cache / name
    if jars.is_dir():
        return jars
    find_tool("java", _JAVA_ADVICE)
    maven = find_tool("mvn", _MAVEN_ADVICE)
    cache.mkdir(parents=True, exist_ok=True)
    with locked(cache / f"{name}.lock"):
        if jars.is_dir():
            return jars
        with tempfile.TemporaryDirectory(prefix="fetch-", dir=cache) as scratch:
            (Path(scratch) / "pom.xml").write_text(
                _POM.format("".join(_DEPENDENCY.format(*artifact.split(":")) for artifact in artifacts)),
                encoding="utf-8",
            )
            # Strict: a download that does not match the checksum of the repository is an error.
            arguments = [maven, "--batch-mode", "--quiet", "--strict-checksums", _MAVEN_GOAL]
            arguments += [f"-DoutputDirectory={scratch}/jars", "-DincludeScope=runtime"]
            with contextlib.closing(ToolRun("maven", arguments, Path(scratch))) as fetch:
                fetch.spawn()
                fetch.finish(FETCH_DEADLINE_S)
            (Path(scratch) / "jars").rename(jars)
    return jars


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock between processes; the end of the process releases it."""
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def count_brokers(bootstrap_servers: str) -> int:
    """Return the number of live brokers according to the first of ``bootstrap_servers`` that answers; else 0.

    For listeners without encryption and passwords. A broker answers after it has joined its cluster; a killed broker is
    counted until the cluster detects its absence.
    """
    for address in bootstrap_servers.split(","):
        host, _, port = address.rpartition(":")
        try:
            with socket.create_connection((host, int(port)), ANSWER_TIMEOUT_S) as connection:
                connection.sendall(METADATA_REQUEST)
                answer = connection.recv(12, socket.MSG_WAITALL)
        except OSError:
            continue
        if len(answer) == 12:  # length of the answer, number of the request, number of brokers
            return int.from_bytes(answer[8:])
    return 0


class KafkaBroker(ManagedProcess):
    """One node; created and configured by ``KafkaServer``.

    Attributes:
        node_id: Number of the node in the cluster, from 1.
        port: Port for clients.
        controller_port: Port for the other controllers.
    """

    def __init__(self, node_id: int, directory: Path, java: list[str]) -> None:
        super().__init__(f"kafka-{node_id}", directory)
        self.node_id = node_id
        self.port = 0
        self.controller_port = 0
        self._java = java

    @property
    def properties_path(self) -> Path:
        """The node's configuration file."""
        return self.directory / "server.properties"

    def command(self) -> list[str]:
        """Return the broker's command line."""
        return [*self._java, "kafka.Kafka", str(self.properties_path)]

    def is_ready(self) -> bool:
        """Return whether the port accepts connections; ``KafkaServer.wait_ready`` checks more."""
        return accepts_connections(self.port)

    def format_command(self, cluster_id: str) -> ToolRun:
        """Return the run that prepares the data folder of this node."""
        tool = ["kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(self.properties_path)]
        return ToolRun(f"format-{self.node_id}", [*self._java, *tool], self.directory)


class KafkaServer(ServerContext):
    """A cluster on free ports of the loopback interface; a context manager that stops it.

    Stop, kill, pause and start single nodes through ``brokers``; ``wait_ready`` then waits for the running nodes.

    Args:
        jars: Folder of Kafka's jars; see ``fetch_kafka``.
        directory: Folder of data, configuration and logs; None for a private folder that ``close`` removes.
        broker_count: Number of nodes; with three, topics have three replicas and one node may be lost.
        fast_start: Start fast rather than run fast; False for benchmarks.
        options: Further broker properties by name; they override the defaults.
        probe: Returns the number of brokers known to the broker at an address, 0 without an answer; to be replaced if
            ``options`` require encryption or passwords.
        java_options: Further options of the Java machine.

    Attributes:
        brokers: The nodes, by number.

    Raises:
        MissingToolError: Java is not installed.
    """

    def __init__(
        self,
        jars: Path,
        directory: Path | None = None,
        *,
        broker_count: int = 1,
        fast_start: bool = True,
        options: Mapping[str, str] | None = None,
        probe: Callable[[str], int] = count_brokers,
        java_options: Sequence[str] = (),
    ) -> None:
        java = [find_tool("java", _JAVA_ADVICE), HEAP, *(FAST_START if fast_start else ()), *java_options]
        java += ["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", f"{jars}/*"]
        self._probe = probe
        self._options = dict(options or {})
        self._private = directory is None
        self.directory = Path(tempfile.mkdtemp(prefix="streamdedup-kafka-")) if directory is None else directory
        numbers = range(1, broker_count + 1)
        self.brokers = [KafkaBroker(number, self.directory / f"node-{number}", java) for number in numbers]
        for broker in self.brokers:
            broker.scratch = self.directory if self._private else None
        self._formatted = False

    @property
    def bootstrap_servers(self) -> str:
        """Addresses of all nodes, with commas between them."""
        return ",".join(f"{LOOPBACK}:{broker.port}" for broker in self.brokers)

    def start(self, deadline_s: float = START_DEADLINE_S) -> None:
        """Start all nodes that are not running, and wait until they answer; a restart keeps ports and data.

        Raises:
            ServerError: A node ended or did not answer in ``deadline_s`` seconds; all nodes are then killed.
        """
        for attempt in range(1, PORT_ATTEMPTS + 1):
            first_time = not self._formatted
            try:
                if first_time:
                    self._format()
                for broker in self.brokers:
                    broker.spawn()
                self.wait_ready(deadline_s)
            except ServerError as error:
                self.kill()
                if not first_time or PORT_TAKEN not in str(error) or attempt == PORT_ATTEMPTS:
                    raise
            else:
                self._formatted = True
                return

    def wait_ready(self, deadline_s: float = START_DEADLINE_S) -> None:
        """Wait until every running node answers and knows at least as many brokers as are running.

        Raises:
            ServerError: A node ended meanwhile, or ``deadline_s`` seconds have passed.
        """
        running = [broker for broker in self.brokers if broker.is_running()]
        for broker in running:
            sees_all = partial(self._sees, f"{LOOPBACK}:{broker.port}", len(running))
            broker.wait_until(sees_all, deadline_s)

    def _sees(self, address: str, broker_count: int) -> bool:
        return self._probe(address) >= broker_count

    def stop(self, deadline_s: float = STOP_DEADLINE_S) -> None:
        """End all nodes with SIGTERM, and each with SIGKILL if it still runs after ``deadline_s`` seconds."""
        # All at once: an orderly shutdown waits for a controller, which the last nodes would not find.
        for broker in self.brokers:
            broker.ask_to_stop()
        for broker in self.brokers:
            broker.stop(deadline_s)

    def kill(self) -> None:
        """End all nodes as a crash would (kill -9)."""
        for broker in self.brokers:
            broker.kill()

    def close(self) -> None:
        """Stop all nodes and remove a private directory; may be called twice."""
        self.stop()
        if self._private:
            shutil.rmtree(self.directory, ignore_errors=True)

    def _format(self) -> None:
        """Choose ports, write the configurations and prepare empty data folders."""
        ports = free_ports(2 * len(self.brokers))
        for broker in self.brokers:
            broker.port, broker.controller_port = ports.pop(), ports.pop()
        # The first byte 0 becomes a letter: an id that begins with a hyphen would be read as an option.
        cluster_id = base64.urlsafe_b64encode(b"\0" + os.urandom(15)).rstrip(b"=").decode()
        formats = []
        for broker in self.brokers:
            shutil.rmtree(broker.directory / "data", ignore_errors=True)
            lines = [f"{name}={value}\n" for name, value in self._properties(broker).items()]
            broker.properties_path.write_text("".join(lines), encoding="utf-8")
            formats.append(broker.format_command(cluster_id))
            formats[-1].spawn()
        for command in formats:
            with contextlib.closing(command):
                command.finish(FORMAT_DEADLINE_S)

    def _properties(self, broker: KafkaBroker) -> dict[str, str]:
        """Return the configuration of one node."""
        replicas = min(3, len(self.brokers))
        voters = ",".join(f"{node.node_id}@{LOOPBACK}:{node.controller_port}" for node in self.brokers)
        client = f"PLAINTEXT://{LOOPBACK}:{broker.port}"
        return {
            "process.roles": "broker,controller",
            "node.id": str(broker.node_id),
            "controller.quorum.voters": voters,
            "listeners": f"{client},CONTROLLER://{LOOPBACK}:{broker.controller_port}",
            "advertised.listeners": client,
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAINTEXT",
            "log.dirs": str(broker.directory / "data"),
            "default.replication.factor": str(replicas),
            "min.insync.replicas": str(max(1, replicas - 1)),
            "offsets.topic.replication.factor": str(replicas),
            "offsets.topic.num.partitions": "4",
            "transaction.state.log.replication.factor": str(replicas),
            "transaction.state.log.min.isr": str(max(1, replicas - 1)),
            "transaction.state.log.num.partitions": "4",
            "auto.create.topics.enable": "false",
            **_TEST_PROPERTIES,
            **self._options,
        }


#: Properties for tests: a group does not wait for further members, a killed broker is detected after 2 s instead of
#: 9 s, short consumer sessions are allowed, and records of any time stay (documents have times decades ago).
_TEST_PROPERTIES = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "500",
    "log.retention.ms": "-1",
}
