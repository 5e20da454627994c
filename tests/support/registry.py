"""A private schema registry for tests: Apicurio Registry, in memory, with the API of Confluent. Needs Java 17."""

import hashlib
import tarfile
import urllib.request
from pathlib import Path
from urllib.error import URLError

from streamdedup.embedded.process import LOOPBACK, ManagedProcess, ServerError
from tests.support.kafka import FAST_START, HEAP, START_DEADLINE_S, locked
from tests.support.ports import free_ports
from tests.support.processes import find_tool

#: Version that is fetched.
VERSION = "3.0.9"
JAR = f"apicurio-registry-app-{VERSION}-runner.jar"
#: The archive, 109 MB. Its parent POM is not in every mirror, so Maven cannot resolve it.
ARCHIVE = f"https://repo.maven.apache.org/maven2/io/apicurio/apicurio-registry-app/{VERSION}/apicurio-registry-app-{VERSION}-all.tar.gz"
SHA256 = "2b28181501a20cbf6efcd77f9b7153908fc01f3d3a7c32024c0bd9e1b04c8a43"


def fetch_registry(cache: Path) -> Path:
    """Return the folder of the registry's program; fetch it if the cache does not contain it.

    Of several processes one fetches and the others wait. The folder appears when it is complete.

    Raises:
        ServerError: It cannot be fetched, or is another one.
    """
    folder = cache / f"apicurio-registry-{VERSION}"
    cache.mkdir(parents=True, exist_ok=True)
    with locked(cache / f"apicurio-registry-{VERSION}.lock"):
        if not folder.is_dir():
            archive, unpacked = cache / "apicurio.tar.gz", cache / "apicurio.unpacked"
            try:
                urllib.request.urlretrieve(ARCHIVE, archive)
            except URLError as error:
                raise ServerError(f"{ARCHIVE} cannot be fetched: {error}") from error
            with archive.open("rb") as content:
                if hashlib.file_digest(content, "sha256").hexdigest() != SHA256:
                    raise ServerError(f"{archive} has another digest than {SHA256}")
            with tarfile.open(archive) as content:
                content.extractall(unpacked, filter="data")
            archive.unlink()
            unpacked.rename(folder)
    return folder


class RegistryServer(ManagedProcess):
    """A registry on a free port of the loopback interface; a context manager that stops it.

    Args:
        folder: Program; see ``fetch_registry``.
        database: File of a database that survives a restart; None for one in memory.

    Raises:
        MissingToolError: Java is not installed.
    """

    def __init__(self, folder: Path, database: Path | None = None) -> None:
        super().__init__("schema-registry")
        self._java = find_tool("java", "install Java 17 or newer (Debian: apt-get install default-jre-headless)")
        self._jar = folder / JAR
        self._database = database
        self.port = 0

    @property
    def url(self) -> str:
        """Address of the API."""
        return f"http://{LOOPBACK}:{self.port}/apis/ccompat/v7"

    def start(self, deadline_s: float = START_DEADLINE_S) -> None:
        """Start the registry, with as much time as Kafka has, which starts faster."""
        super().start(deadline_s)

    def choose_ports(self) -> None:
        """Choose a free port."""
        (self.port,) = free_ports()

    def command(self) -> list[str]:
        """Return the command line."""
        options = {"quarkus.http.host": LOOPBACK, "quarkus.http.port": str(self.port)}
        if self._database is not None:
            # Without delay: what a client has registered survives kill -9.
            options["apicurio.datasource.url"] = f"jdbc:h2:file:{self._database};WRITE_DELAY=0"
        properties = [f"-D{name}={value}" for name, value in options.items()]
        return [self._java, HEAP, *FAST_START, *properties, "-jar", str(self._jar)]

    def is_ready(self) -> bool:
        """Return whether the API answers."""
        try:
            with urllib.request.urlopen(f"{self.url}/subjects", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False
