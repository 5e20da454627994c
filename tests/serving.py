"""Settings and an index to serve; start the installed command ``streamdedup serve`` as a process, and ask it."""

import http.client
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from streamdedup import indexes
from streamdedup.detection.detector import Detector
from streamdedup.position import Partition, Position
from streamdedup.settings import Settings
from streamdedup.wire import Document
from tests.daemons import PROGRAM
from tests.servers import wait_until

#: Seconds that the process may take to start.
DEADLINE_S = 180.0
#: ``daemons.PROGRAM`` whose ``serve`` gives a busy machine time to open the reader of a stream as well.
STREAMING = (
    sys.executable,
    "-c",
    f"""
from streamdedup.__main__ import main
from streamdedup.cli import serve
from streamdedup.serve import access, feed

serve.STOP_TIMEOUT_S = serve._OPENING_S = feed._OPEN_S = {DEADLINE_S}
access.Limits.for_texts = lambda _bytes: access.Limits(timeout_s={DEADLINE_S})
main()
""",
)


def settings_file(folder: Path, redis_url: str, kafka: str = "localhost:9") -> Path:
    """Write settings with the profile ``articles``; return the file."""
    path = folder / "streamdedup.toml"
    path.write_text(
        f'[kafka]\nbootstrap_servers = "{kafka}"\n[redis]\nurl = "{redis_url}"\n'
        '[profiles.articles]\ntopics = ["articles"]\nshingle_size = 2\nthreshold = 0.5\nrecall_from = 0.5\n'
        'containment_threshold = "none"\n',
        encoding="utf-8",
    )
    return path


def fill(settings: Settings, *texts: str, time_ms: int = 0) -> None:
    """Insert documents d0, d1... into the index of the profile ``articles`` as a daemon does."""
    profile, partition = settings.profiles["articles"], Partition("articles", 0)
    with indexes.connect_backend(settings) as backend:
        index = backend.index("articles")
        index.open(profile.fingerprint())
        fence = index.fence(partition, 1, 0)
        detector = Detector(indexes.detector_options("articles", profile), index)
        documents = [Document(f"d{at}", text, Position(*partition, at), time_ms) for at, text in enumerate(texts)]
        detector.index(detector.prepare(documents), {partition: fence})


class ServeProcess:
    """One process of ``streamdedup serve`` on a free port."""

    def __init__(self, config: Path, folder: Path, *, program: Sequence[str] = PROGRAM, **settings: Any) -> None:
        self.log = folder / "serve.log"
        given = {"api.port": 0, **settings}
        sets = [part for key, value in given.items() for part in ("--set", f"{key}={value}")]
        self._command = [*program, "serve", "--config", str(config), *sets]
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                self._command, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL
            )
        return self

    def __exit__(self, *_error: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def events(self, name: str | None = None) -> list[dict[str, Any]]:
        lines = self.log.read_text(encoding="utf-8").splitlines()
        found = [json.loads(line) for line in lines if line.startswith("{")]
        return [event for event in found if name in (None, event["event"])]

    def names(self) -> list[str]:
        """Names of the events that it has logged, without those of its background tasks and of libraries."""
        background = ("state_", "library_")
        return [event["event"] for event in self.events() if not event["event"].startswith(background)]

    def port(self) -> int:
        """Wait until it listens; return its port."""

        def listening() -> list[dict[str, Any]]:
            assert self._process.poll() is None, self.log.read_text(encoding="utf-8")
            return self.events("serving")

        return wait_until(listening, DEADLINE_S, "the service")[0]["port"]

    def request(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, dict[str, str], Any]:
        """Send a request; return status, headers and JSON body, or the text of another one."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port(), timeout=DEADLINE_S)
        try:
            content = None if body is None else json.dumps(body)
            connection.request(method, path, content, {"content-type": "application/json", **headers})
            response = connection.getresponse()
            text = response.read().decode()
            is_json = "json" in response.headers["content-type"]
            return response.status, dict(response.headers), json.loads(text) if is_json else text
        finally:
            connection.close()

    @contextmanager
    def alerts(self, last_id: str | None = None, path: str = "/v1/alerts") -> Iterator[Iterator[dict[str, str]]]:
        """Follow a stream; yield an iterator over the fields of each block of lines, which ends with the stream."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port(), timeout=DEADLINE_S)
        try:
            connection.request("GET", path, headers={} if last_id is None else {"last-event-id": last_id})
            response = connection.getresponse()
            assert response.status == 200, response.read()
            yield self._blocks(response)
        finally:
            connection.close()

    @staticmethod
    def _blocks(response: http.client.HTTPResponse) -> Iterator[dict[str, str]]:
        fields: dict[str, str] = {}
        for line in iter(response.readline, b""):
            name, _, value = line.decode().rstrip("\n").partition(": ")
            if name:
                fields[name] = value
            elif line == b"\n":
                yield fields
                fields = {}

    def look_up(self, text: str, **fields: Any) -> dict[str, Any]:
        status, _, answer = self.request("POST", "/v1/profiles/articles/lookup", {"text": text, **fields})
        assert status == 200, answer
        return answer

    def stop(self) -> int:
        """Ask it to stop; return its exit code."""
        os.kill(self._process.pid, signal.SIGTERM)
        return self._process.wait(DEADLINE_S)
