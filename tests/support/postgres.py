"""A private PostgreSQL for tests; `make tools` installs it."""

import os
import shutil
import signal
import subprocess
from pathlib import Path

import psycopg

from streamdedup.embedded.process import LOOPBACK, ManagedProcess, MissingToolError, ServerError
from tests.support.ports import free_ports

#: Folder of Debian's servers, whose programs are not on the PATH.
DEBIAN = Path("/usr/lib/postgresql")
#: User that runs the server when root runs the tests: the server refuses root.
USER = "nobody"


def find_postgres() -> Path:
    """Return the folder of the server's programs.

    Raises:
        MissingToolError: PostgreSQL is not installed.
    """
    folders = [os.environ.get("PATH", os.defpath), *map(str, DEBIAN.glob("*/bin"))]
    path = shutil.which("initdb", path=os.pathsep.join(folders))
    if path is None:
        raise MissingToolError("no PostgreSQL server: run `make tools` (Debian: apt-get install postgresql)")
    return Path(path).resolve().parent


class PostgresServer(ManagedProcess):
    """A server on a free port of the loopback interface; data survive kill -9."""

    def __init__(self) -> None:
        self._programs = find_postgres()
        super().__init__("postgres")
        self.port = 0
        self._data = self.directory / "data"
        self._initialise()

    @property
    def url(self) -> str:
        """Address of the database; every user may log in."""
        return f"postgresql://postgres@{LOOPBACK}:{self.port}/postgres"

    def create_schema(self, name: str) -> str:
        """Create a schema, and return an address under which its tables are the only ones."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(f"CREATE SCHEMA {name}")
        return f"{self.url}?options=-csearch_path%3D{name}"

    def _initialise(self) -> None:
        self._data.mkdir()
        if os.geteuid() == 0:
            self.directory.chmod(0o711)
            shutil.chown(self._data, USER)
        options = ["--username=postgres", "--auth=trust", "--no-locale", "--encoding=UTF8", "--no-sync"]
        done = subprocess.run(
            self._program("initdb", "--pgdata", str(self._data), *options),
            capture_output=True,
            text=True,
            check=False,
            cwd=self._data,
        )
        if done.returncode:
            raise ServerError(f"initdb ended with {done.returncode}: {done.stderr}")

    def _program(self, name: str, *arguments: str) -> list[str]:
        """Return a command line, under another user when root runs the tests."""
        user = ["setpriv", f"--reuid={USER}", "--clear-groups", "--pdeathsig=KILL"] if os.geteuid() == 0 else []
        return [*user, str(self._programs / name), *arguments]

    def choose_ports(self) -> None:
        """Choose a free port."""
        (self.port,) = free_ports()

    def command(self) -> list[str]:
        """Return the command line."""
        options = {"listen_addresses": LOOPBACK, "port": self.port, "unix_socket_directories": "", "fsync": "off"}
        settings = [f"--{name}={value}" for name, value in options.items()]
        return self._program("postgres", "-D", str(self._data), *settings)

    def is_ready(self) -> bool:
        """Return whether the server takes a login."""
        try:
            psycopg.connect(self.url, connect_timeout=5).close()
        except psycopg.OperationalError:
            return False
        return True

    def ask_to_stop(self) -> None:
        """Send SIGINT: with SIGTERM the server would wait for its clients."""
        self._signal(signal.SIGINT)
