"""What the model of memory and speed says, checked on a real server with the sample itself."""

import time
from contextlib import ExitStack
from typing import Final, NamedTuple

import redis

from streamdedup.commands.collection import BATCH_DOCUMENTS, temporary_store
from streamdedup.commands.progress import batches
from streamdedup.detections import DetectorOptions
from streamdedup.embedded import MissingToolError, RedisServer
from streamdedup.evaluation import Trial, document_at
from streamdedup.evaluation.sample import Sample
from streamdedup.settings import Profile

#: How long the server may take to finish growing its tables, and between two looks, in seconds.
_SETTLE_S, _LOOK_S = 10.0, 0.25
#: Length of the namespace that a temporary index has: its prefix and 16 digits.
NAMESPACE_BYTES: Final = len("streamdedup-temporary:") + 16


class Measured(NamedTuple):
    """What a server took for an index of the sample.

    Attributes:
        server: Its name and version.
        allocator: Of its memory.
        private: It was started for this.
        documents: How many were indexed.
        used_bytes: By how much `used_memory` grew.
        seconds: Spent by the detector and the server.
    """

    server: str
    allocator: str
    private: bool
    documents: int
    used_bytes: int
    seconds: float


def measure(
    url: str | None, index: Profile, options: DetectorOptions, sample: Sample, bucket_layout: str
) -> Measured | None:
    """Index texts on a server, and delete the index again.

    Args:
        url: Which server; None starts a private one.
        index: Bands of the index.
        options: How to compare.
        sample: The texts and their ids, all different.
        bucket_layout: Name of the layout of the buckets.

    Returns:
        None where there is no server to start.

    Raises:
        SettingsError: The URL cannot be used.
        StoreUnavailable: The server does not answer.
        StoreMisconfigured: It is too old, or drops keys when it is full.
    """
    with ExitStack() as stack:
        if url is None:
            try:
                address = stack.enter_context(RedisServer()).url
            except MissingToolError:
                return None
        else:
            address = url
        # First of all the store, whose errors are those of the command.
        store = stack.enter_context(temporary_store(address, index, index.bucket_cap, bucket_layout))
        client = stack.enter_context(redis.Redis.from_url(address))
        server, allocator = _name(client)
        before = _used_bytes(client)
        trial = Trial(options, store)
        places = enumerate(zip(sample.ids, sample.texts, strict=True))
        for batch in batches((document_at(at, one, text) for at, (one, text) in places), BATCH_DOCUMENTS):
            trial.add(batch)
        return Measured(
            server, allocator, url is None, len(sample.ids), _settled_bytes(client) - before, trial.findings().seconds
        )


def _name(client: "redis.Redis") -> tuple[str, str]:
    server, memory = client.info("server"), client.info("memory")
    name = f"Valkey {server['valkey_version']}" if "valkey_version" in server else f"Redis {server['redis_version']}"
    return name, str(memory.get("mem_allocator", ""))


def _used_bytes(client: "redis.Redis") -> int:
    return int(client.info("memory")["used_memory"])


def _settled_bytes(client: "redis.Redis") -> int:
    """Return the memory in use once it changes no more: a table that has grown is moved bit by bit."""
    end = time.monotonic() + _SETTLE_S
    used = _used_bytes(client)
    while time.monotonic() < end:
        time.sleep(_LOOK_S)
        before, used = used, _used_bytes(client)
        if abs(used - before) < 1024:
            break
    return used
