"""The HTTP service over an index in memory, and requests to it without a socket."""

import json
import threading
from collections.abc import Awaitable, Callable
from dataclasses import replace
from itertools import count
from typing import Any, NoReturn

from litestar.testing import TestClient

from streamdedup.detection.detector import Detector
from streamdedup.detection.lookup import IndexLookup
from streamdedup.errors import BrokerUnavailable
from streamdedup.index.memory import MemoryIndex
from streamdedup.kafka.protocols import Record
from streamdedup.position import Partition, Position
from streamdedup.serve.access import Gate, Limits
from streamdedup.serve.admission import AllowedHosts
from streamdedup.serve.app import create_app
from streamdedup.serve.feed import Feed, Feeds
from streamdedup.serve.index_thread import IndexThread, ServedProfile, TimedReader
from streamdedup.serve.metrics import ServeMetrics
from streamdedup.serve.stream_kinds import DEAD_LETTERS, alerts_kind
from streamdedup.serve.texts import TextAligner
from streamdedup.similarity.lsh import Banding
from streamdedup.wire import AlertReader, Decoder, Document
from tests import streams

OPTIONS = replace(streams.OPTIONS, banding=Banding(4, 2), permutations=8, min_words=3, label_bytes=80)
FINGERPRINT = {"bands": 4}
TEXT = "amber birch cedar delta ember fjord grove heath"
NEAR = TEXT + " iris"
HOST = "http://127.0.0.1"
LOOKUP = "/v1/profiles/articles/lookup"
PARTITION = Partition("articles", 0)


def no_kafka() -> NoReturn:
    raise BrokerUnavailable("10.1.2.3 does not answer")


class MemoryFetcher:
    """Fetches records of topics in memory.

    While ``released`` is cleared, no answer comes; ``error`` is raised instead of an answer.
    """

    def __init__(self) -> None:
        self.records: dict[Position, Record] = {}
        self.error: Exception | None = None
        self.released = threading.Event()
        self.released.set()
        self.opened_count = 0
        self.closed_count = 0

    def open(self) -> "MemoryFetcher":
        self.opened_count += 1
        return self

    def fetch(self, position: Position) -> Record | None:
        assert self.released.wait(60)
        if self.error is not None:
            raise self.error
        return self.records.get(position)

    def close(self) -> None:
        self.closed_count += 1


class Service:
    """The application over an index in memory; ``texts`` has the records of the documents."""

    def __init__(
        self,
        *,
        tokens=None,
        max_requests=8,
        max_bodies_bytes=1_000_000,
        max_body_bytes=100_000,
        timeout_s=30.0,
        texts_timeout_s=30.0,
        open_reader=no_kafka,
        open_letters=no_kafka,
        options=OPTIONS,
        registry=None,
        hosts=None,
    ) -> None:
        self.texts = MemoryFetcher()
        self.index = MemoryIndex()
        self.index.open(FINGERPRINT)
        self.metrics = ServeMetrics()
        self._offsets = count()
        self._options = options
        reader = TimedReader(self.index)
        profile = ServedProfile(
            name="articles",
            topics=("articles",),
            similarity="set",
            retention_s=60.0,
            max_text_bytes=2_000,
            bucket_cap=500,
            fingerprint=FINGERPRINT,
            decoder=Decoder(registry=registry),
            reader=reader,
            lookup=IndexLookup(options, reader),
        )
        self.index_thread = IndexThread({"articles": profile}, self.metrics, lambda: 0)
        self.feeds = Feeds(
            Feed(alerts_kind(AlertReader()), "duplicates", open_reader, self.metrics),
            Feed(DEAD_LETTERS, "letters", open_letters, self.metrics),
        )
        self.aligner = TextAligner(self.texts.open, texts_timeout_s)
        app = create_app(self.index_thread, self.aligner, self.feeds, self.metrics, max_body_bytes)
        self.limits = Limits(max_body_bytes, max_bodies_bytes, max_requests, max_connections=8, timeout_s=timeout_s)
        self.app = Gate(app, tokens, hosts or AllowedHosts(), self.limits, self.metrics)
        self.client = TestClient(self.app, base_url=HOST, raise_server_exceptions=False)

    def add(self, *documents: tuple[str, str], source: str | None = None, time_ms: int = 0) -> None:
        detector = Detector(self._options, self.index)
        fence = self.index.fence(PARTITION, 1, 0)
        batch = [
            Document(each, text, Position(*PARTITION, next(self._offsets)), time_ms, source=source)
            for each, text in documents
        ]
        detector.index(detector.prepare(batch), {PARTITION: fence})
        for document in batch:
            value = json.dumps({"id": document.id, "text": document.text}).encode()
            self.texts.records[document.position] = Record(document.position, 0, None, value)

    def close(self) -> None:
        self.index_thread.close()
        self.aligner.close()

    def look_up(self, *, status=200, **body):
        response = self.client.post(LOOKUP, json=body)
        assert response.status_code == status, response.text
        return response.json()


def a_receive(body: bytes) -> Callable[[], Awaitable[dict[str, Any]]]:
    """Return the channel on which an application receives a body."""

    async def receive():
        return {"type": "http.request", "body": body, "more_body": False}

    return receive


def a_scope(method: str, path: str, query=b"", headers=()) -> dict[str, Any]:
    given = {b"host": b"127.0.0.1", b"content-type": b"application/json", **dict(headers)}
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode("latin-1"),
        "query_string": query,
        "root_path": "",
        "headers": list(given.items()),
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 8080),
        "state": {},
    }


async def call(app, *, method="POST", path=LOOKUP, query=b"", headers=(), receive=None) -> list[dict]:
    """Send one request to an ASGI application; return its messages."""
    messages = []

    async def send(message):
        messages.append(message)

    scope = a_scope(method, path, query, headers)
    await app(scope, receive or a_receive(b'{"text": "amber birch cedar"}'), send)
    return messages
