"""A private Kafka Connect for tests: a standalone worker with the Avro converter of Apicurio and one file sink."""

from pathlib import Path

from streamdedup.embedded.process import LOOPBACK, ManagedProcess
from tests.support.kafka import FAST_START, HEAP, KAFKA_VERSION, SLF4J, START_DEADLINE_S, fetch_jars
from tests.support.ports import accepts_connections, free_ports
from tests.support.processes import find_tool
from tests.support.registry import RegistryServer

#: The last version whose parent POM is in every mirror.
CONVERTER = "io.apicurio:apicurio-registry-utils-converter:2.6.13.Final"
WORKER = "org.apache.kafka.connect.cli.ConnectStandalone"


class ConnectWorker(ManagedProcess):
    """A worker that writes the values of a topic to a file; a context manager that stops it.

    Args:
        cache: Folder of fetched jars.
        folder: Folder of the configuration and of the file.
        kafka: Address of Kafka.
        registry: The registry.
        sink: Properties of the sink, besides its class and file.

    Attributes:
        file: The file.
    """

    def __init__(self, cache: Path, folder: Path, kafka: str, registry: RegistryServer, **sink: str) -> None:
        super().__init__("connect", folder)
        artifacts = [f"org.apache.kafka:connect-{part}:{KAFKA_VERSION}" for part in ("runtime", "file", "transforms")]
        self._jars = fetch_jars(cache, f"connect-{KAFKA_VERSION}", *artifacts, SLF4J)
        fetch_jars(cache / "connect-plugins", "converter", CONVERTER)
        self._java = find_tool("java", "install Java 17 or newer (Debian: apt-get install default-jre-headless)")
        self.port = 0
        self.file = folder / "sink.txt"
        self._worker = {
            "bootstrap.servers": kafka,
            "plugin.path": str(cache / "connect-plugins"),
            "offset.storage.file.filename": str(folder / "offsets"),
            "offset.flush.interval.ms": "1000",
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": "io.apicurio.registry.utils.converter.AvroConverter",
            "value.converter.apicurio.registry.url": f"http://{LOOPBACK}:{registry.port}/apis/registry/v2",
            "value.converter.apicurio.registry.as-confluent": "true",
            "value.converter.apicurio.registry.use-id": "contentId",
        }
        self._sink = {
            "name": "sink",
            "connector.class": "org.apache.kafka.connect.file.FileStreamSinkConnector",
            "file": str(self.file),
            **sink,
        }

    def start(self, deadline_s: float = START_DEADLINE_S) -> None:
        """Start the worker, with as much time as Kafka has, which starts faster."""
        super().start(deadline_s)

    def choose_ports(self) -> None:
        """Choose a free port."""
        (self.port,) = free_ports()

    def command(self) -> list[str]:
        """Write the configurations, and return the command line."""
        worker = {**self._worker, "listeners": f"http://{LOOPBACK}:{self.port}"}
        files = {self.directory / "worker.properties": worker, self.directory / "sink.properties": self._sink}
        for path, properties in files.items():
            path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()), encoding="utf-8")
        return [self._java, HEAP, *FAST_START, "-cp", f"{self._jars}/*", WORKER, *map(str, files)]

    def is_ready(self) -> bool:
        """Return whether the API answers."""
        return accepts_connections(self.port)
