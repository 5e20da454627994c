"""The server on which ``streamdedup tune`` measures memory and speed: a private one, or that of ``--redis``."""

import secrets
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final, Literal, NamedTuple

import redis
import typer

from streamdedup.cli.collection import BATCH_DOCUMENTS, temporary_index
from streamdedup.cli.output import batches
from streamdedup.detection.limits import ReachedLimits
from streamdedup.detection.model import DetectorOptions
from streamdedup.embedded import RedisServer
from streamdedup.evaluation.trial import DetectorRun, document_at
from streamdedup.index.redis.connection import check_server, connect
from streamdedup.index.redis.reader import RedisIndexReader
from streamdedup.index.redis.servers import Servers
from streamdedup.index.redis.store import RedisIndex
from streamdedup.settings import Profile
from streamdedup.tuning.sample import Sample

#: Keys of one EXISTS command, and keys looked up at most; no measured index has larger tables.
_LOOKUPS: Final = 1_000
_MOST_LOOKUPS: Final = 2_000_000
#: Options of the private server: its timer runs 500 times a second.
PRIVATE_OPTIONS: Final = {"hz": "500"}
#: Longest wait for steady memory, pause between two readings, and bytes by which steady memory may change in a pause.
_STEADY_S: Final = 10.0
_PAUSE_S: Final = 0.25
_PRIVATE_PAUSE_S: Final = 0.02
_STEADY_BYTES: Final = 1_024
#: Least length of a namespace: "tune-" and five random digits.
_LEAST_NAMESPACE: Final = 10


class SampleIndex(NamedTuple):
    """An index of the sample: its documents, its memory, the time of detector and server, and the reached limits."""

    documents: int
    used_bytes: int
    seconds: float
    limits: ReachedLimits


class ServerCounters(NamedTuple):
    """Processor time in seconds, and bytes received and sent, since the server started."""

    cpu_s: float
    input_bytes: int
    output_bytes: int


class TuneServer:
    """Holds one index after the other, and reads their memory.

    Args:
        servers: Connection for indexes.
        client: Connection for questions about memory.
        profile: Bucket cap and fingerprint of the indexes.
        namespace_bytes: Length of prefix and profile, joined by a colon, of the index that is forecast; keys of the
            measured indexes are as long.
        private: The server was started for this command.

    Attributes:
        name: Product and version.
        allocator: Memory allocator.
    """

    def __init__(
        self, servers: Servers, client: "redis.Redis", profile: Profile, namespace_bytes: int, *, private: bool
    ) -> None:
        self._servers = servers
        self._client = client
        self._profile = profile
        self._namespace_bytes = max(namespace_bytes, _LEAST_NAMESPACE)
        self.private = private
        info = client.info("server")
        kind, version = ("Valkey", "valkey_version") if "valkey_version" in info else ("Redis", "redis_version")
        self.name = f"{kind} {info[version]}"
        self.allocator = str(client.info("memory").get("mem_allocator", ""))

    @contextmanager
    def index(
        self, bands: int, bucket_layout: str, shards: int = 1, *, bucket_cap: int | Literal["own"] | None = "own"
    ) -> Iterator[RedisIndex]:
        """Create an empty index, and delete it at the end; ``bucket_cap``: that of the profile, another, or none."""
        namespace = f"tune-{secrets.token_hex(self._namespace_bytes)}"[: self._namespace_bytes]
        with temporary_index(
            self._servers,
            namespace,
            self._profile,
            bands=bands,
            bucket_cap=self._profile.bucket_cap if bucket_cap == "own" else bucket_cap,
            bucket_layout=bucket_layout,
            shards=shards,
        ) as store:
            try:
                yield store
            finally:
                if self.private:
                    # SYNC: otherwise the server may free memory while the next index is measured.
                    self._client.execute_command("FLUSHALL", "SYNC")

    def reader(self, store: RedisIndex) -> RedisIndexReader:
        """Return a reader of an index that ``index`` has created."""
        return RedisIndexReader(self._servers, store.options)

    def counters(self) -> ServerCounters:
        """Return the counters of the server."""
        cpu, statistics = self._client.info("cpu"), self._client.info("stats")
        return ServerCounters(
            float(cpu["used_cpu_user"]) + float(cpu["used_cpu_sys"]),
            int(statistics["total_net_input_bytes"]),
            int(statistics["total_net_output_bytes"]),
        )

    def used_bytes(self) -> int:
        """Return the memory of the data, once it is steady.

        A server moves a table that has grown to its new place step by step, one step for each look-up, and has both
        until then; so as many keys are looked up as there are.
        """
        key = self._client.randomkey()
        for _ in range(0, min(self._client.dbsize(), _MOST_LOOKUPS), _LOOKUPS):
            self._client.execute_command("EXISTS", *[key] * _LOOKUPS)
        end = time.monotonic() + _STEADY_S
        used = self._used_bytes()
        while time.monotonic() < end:
            time.sleep(_PRIVATE_PAUSE_S if self.private else _PAUSE_S)
            before, used = used, self._used_bytes()
            if abs(used - before) < _STEADY_BYTES:
                break
        return used

    def _used_bytes(self) -> int:
        memory = self._client.info("memory")
        # Buffers of connections vary; the server reads their sizes when its timer runs.
        return int(memory["used_memory"]) - int(memory.get("mem_clients_normal", 0))

    def index_sample(
        self, options: DetectorOptions, sample: Sample, bucket_layout: str, bucket_cap: int | None
    ) -> SampleIndex:
        """Index the sample as the daemon does, and return what that took."""
        documents = (document_at(at, *one) for at, one in enumerate(zip(sample.ids, sample.texts, strict=True)))
        parts = list(batches(documents, BATCH_DOCUMENTS))
        # The first index lets buffers of the server grow, which are no part of an index.
        for indexed in (parts[:1], parts):
            with self.index(options.banding.bands, bucket_layout, bucket_cap=bucket_cap) as store:
                before, run = self.used_bytes(), DetectorRun(options, store)
                for part in indexed:
                    run.index(part)
                found = SampleIndex(run.documents_count, self.used_bytes() - before, run.seconds, run.limits)
        return found


@contextmanager
def tune_server(url: str | None, profile: Profile, namespace: str) -> Iterator[TuneServer]:
    """Connect to a server.

    Args:
        url: URL of the server; None starts a private one.
        profile: See ``TuneServer``.
        namespace: Prefix and profile, joined by a colon, of the index that is forecast.

    Raises:
        MissingToolError: No server program is installed; the text names what to install.
        SettingsError: The URL cannot be used.
        StoreUnavailable: The server does not answer.
        StoreMisconfigured: It is too old, or drops keys when it is full.
    """
    with ExitStack() as stack:
        address = stack.enter_context(RedisServer(options=PRIVATE_OPTIONS)).url if url is None else url
        servers = stack.enter_context(connect(address))
        for warning in check_server(servers) if url is not None else ():
            typer.echo(f"streamdedup: {warning}", err=True)
        client = stack.enter_context(redis.Redis.from_url(address))
        yield TuneServer(servers, client, profile, len(namespace.encode()), private=url is None)
