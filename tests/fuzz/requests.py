"""Damaged requests to the HTTP service: each has an answer or a problem, and memory does not grow."""

import asyncio
import random
from collections import Counter

from tests.fuzz.memory import rss_bytes
from tests.served import LOOKUP, TEXT, Service, a_receive, call

#: Bodies that are damaged.
_BODIES = (
    b'{"text": "amber birch cedar delta", "id": "d0", "limit": 3, "threshold": 0.4}',
    b'{"text": "amber birch cedar delta", "id": "d0"}',
    b'{"texts": [{"text": "amber birch"}, {"text": "amber birch cedar", "id": "d1"}]}',
)
_DOCUMENT = "/v1/profiles/articles/documents/d0"
#: Method and path of requests; look-ups are most of them.
_TARGETS = (
    *([("POST", LOOKUP), ("POST", LOOKUP + ":batch")] * 4),
    ("GET", _DOCUMENT),
    ("GET", _DOCUMENT + "/matches"),
    ("GET", "/v1/profiles/articles/compare"),
    ("POST", "/v1/profiles/articles/compare"),
    ("GET", "/v1/profiles"),
    # Without Kafka a stream ends with a problem.
    ("GET", "/v1/alerts"),
    ("GET", "/v1/dead-letters"),
    ("GET", "/"),
    ("GET", "/page/app.js"),
    ("GET", "/readyz"),
    ("PUT", LOOKUP),
    ("HEAD", _DOCUMENT),
)
_QUERIES = (b"a=d0&b=d1", b"recent=5&profile=articles")
_LAST_ID = b"duplicates:1,0"
#: Pieces that readers of JSON, URLs and texts stumble over.
_PIECES = (b'"', *rb"{ [ \ud800 \u0000 1e999 null NaN -1 % /".split(), b"\xef\xbb\xbf", b"\xff")
#: Shares of damaged paths, of damaged content types, and of requests with the id of an event.
_DAMAGED_PATHS, _DAMAGED_TYPES, _RESUMED = 0.2, 0.05, 0.5


def fuzz_requests(seed: str, count: int) -> tuple[Counter[int], list[int]]:
    """Send damaged requests; return the statuses, and the resident memory in bytes after each tenth of the requests."""
    service = Service()
    service.add(("d0", TEXT), ("d1", TEXT + " iris"))
    try:
        return asyncio.run(_send(service, random.Random(seed), count))
    finally:
        service.close()


async def _send(service: Service, rng: random.Random, count: int) -> tuple[Counter[int], list[int]]:
    statuses: Counter[int] = Counter()
    rss = []
    for at in range(count):
        method, path = rng.choice(_TARGETS)
        if rng.random() < _DAMAGED_PATHS:
            path = _damaged(rng, path.encode()).decode("latin-1")
        # The server refuses other bytes.
        query = bytes(byte for byte in _damaged(rng, rng.choice(_QUERIES)) if 0x20 < byte < 0x7F)
        body = _damaged(rng, rng.choice(_BODIES))
        headers = {b"content-type": rng.randbytes(8)} if rng.random() < _DAMAGED_TYPES else {}
        headers |= {b"last-event-id": _damaged(rng, _LAST_ID)} if rng.random() < _RESUMED else {}
        start, *_ = await call(
            service.app, method=method, path=path, query=query, headers=headers, receive=a_receive(body)
        )
        statuses[start["status"]] += 1
        assert start["status"] != 500, f"{method} {path!r} query {query!r} headers {headers} body {body!r}"
        if (at + 1) % max(1, count // 10) == 0:
            rss.append(rss_bytes())
    return statuses, rss


def _damaged(rng: random.Random, data: bytes) -> bytes:
    """Return bytes with up to three insertions, deletions and changes."""
    damaged = bytearray(data)
    for _ in range(rng.randrange(4)):
        at = rng.randrange(len(damaged) + 1)
        match rng.randrange(4):
            case 0:
                damaged[at:at] = rng.randbytes(rng.randrange(5))
            case 1:
                del damaged[at : at + rng.randrange(6)]
            case 2:
                damaged[at : at + 1] = rng.randbytes(1)
            case _:
                damaged[at:at] = rng.choice(_PIECES)
    return bytes(damaged)
