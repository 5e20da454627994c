"""The server on which ``streamdedup tune`` measures memory and speed: a private one, or that of ``--redis``."""

import secrets
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final, NamedTuple

import redis
import typer

from streamdedup.cli.assembly import lifetime_ms
from streamdedup.cli.collection import LEFT_BEHIND_MS
from streamdedup.cli.progress import counting
from streamdedup.detection.model import DetectorOptions
from streamdedup.embedded import RedisServer
from streamdedup.evaluation import Trial, document_at
from streamdedup.index.contract import BucketStore
from streamdedup.index.redis.admin import IndexUpkeep
from streamdedup.index.redis.buckets import LAYOUTS
from streamdedup.index.redis.connection import check_server, connect
from streamdedup.index.redis.servers import Servers
from streamdedup.index.redis.store import RedisBucketStore
from streamdedup.settings import Profile
from streamdedup.tuning.measurement import batches
from streamdedup.tuning.sample import Sample

#: Keys of one command that looks keys up, and look-ups at most: tables of more keys are not those of a measured index.
_LOOKUPS: Final = 1_000
_MOST_LOOKUPS: Final = 2_000_000
#: Options of the private server: its timer runs 500 times a second.
PRIVATE_OPTIONS: Final = {"hz": "500"}
#: Seconds until memory must be steady, and between two looks at it; bytes by which steady memory may change meanwhile.
_STEADY_S: Final = 10.0
_LOOK_S: Final = 0.25
_PRIVATE_LOOK_S: Final = 0.02
_STEADY_BYTES: Final = 1_024
#: Least length of a namespace: five characters and as many random digits, which no other index has.
_LEAST_NAMESPACE: Final = 10


class Trialled(NamedTuple):
    """What a server took for an index of the sample.

    Attributes:
        documents: Documents of the sample.
        used_bytes: Memory of the index.
        seconds: Time of detector and server.
    """

    documents: int
    used_bytes: int
    seconds: float


class TuneServer:
    """Holds one index after the other, and tells their memory.

    Args:
        servers: Connection for indexes.
        client: Connection for questions about memory.
        profile: Times to live and caps of the indexes.
        namespace_bytes: Length of prefix and profile, joined by a colon, of the index that is forecast; keys of the
            measured ones are as long.
        private: Whether the server was started for this.
    """

    def __init__(
        self, servers: Servers, client: "redis.Redis", profile: Profile, namespace_bytes: int, *, private: bool
    ) -> None:
        self._servers = servers
        self._client = client
        self._profile = profile
        self._namespace_bytes = namespace_bytes
        self.private = private
        info = client.info("server")
        kind, version = ("Valkey", "valkey_version") if "valkey_version" in info else ("Redis", "redis_version")
        self.name = f"{kind} {info[version]}"
        self.allocator = str(client.info("memory").get("mem_allocator", ""))

    @contextmanager
    def index(self, bands: int, bucket_layout: str) -> Iterator[BucketStore]:
        """Create an empty index, and delete it at the end.

        Args:
            bands: Bands of the index.
            bucket_layout: Name of its layout.
        """
        length = max(self._namespace_bytes, _LEAST_NAMESPACE)
        namespace = f"tune-{secrets.token_hex(length)}"[:length]
        store = RedisBucketStore(
            self._servers,
            namespace=namespace,
            bands=bands,
            lifetime_ms=lifetime_ms(self._profile) if self.private else LEFT_BEHIND_MS,
            bucket_cap=self._profile.bucket_cap,
            bucket_layout=LAYOUTS[bucket_layout],
        )
        try:
            store.open(self._profile.fingerprint())
            yield store
        finally:
            if self.private:
                # SYNC: servers may free memory in the background otherwise, while the next index is measured.
                self._client.execute_command("FLUSHALL", "SYNC")
            else:
                with counting("deleting the temporary index") as on_keys:
                    IndexUpkeep(self._servers, namespace).drop(on_keys)

    def used_bytes(self) -> int:
        """Return the memory that data takes, once it changes no more.

        A server moves a table that has grown to its new place bit by bit, a bit at each look-up, and has two of them
        until then; so as many keys are looked up as there are.
        """
        key = self._client.randomkey()
        for _ in range(0, min(self._client.dbsize(), _MOST_LOOKUPS), _LOOKUPS):
            self._client.execute_command("EXISTS", *[key] * _LOOKUPS)
        end = time.monotonic() + _STEADY_S
        used = self._used_bytes()
        while time.monotonic() < end:
            time.sleep(_PRIVATE_LOOK_S if self.private else _LOOK_S)
            before, used = used, self._used_bytes()
            if abs(used - before) < _STEADY_BYTES:
                break
        return used

    def _used_bytes(self) -> int:
        memory = self._client.info("memory")
        # Buffers of connections come and go; the server notices their sizes when its timer runs.
        return int(memory["used_memory"]) - int(memory.get("mem_clients_normal", 0))

    def trial(self, options: DetectorOptions, sample: Sample, bucket_layout: str) -> Trialled:
        """Index the sample as the daemon does."""
        places = enumerate(zip(sample.ids, sample.texts, strict=True))
        parts = list(batches(document_at(place, *document) for place, document in places))
        # The first index lets buffers of the server grow, which are no part of an index; it is not counted.
        for counted in (parts[:1], parts):
            with self.index(options.banding.bands, bucket_layout) as store:
                before = self.used_bytes()
                trial = Trial(options, store)
                for part in counted:
                    trial.add(part)
                trialled = Trialled(len(sample.ids), self.used_bytes() - before, trial.findings().seconds)
        return trialled


@contextmanager
def tune_server(url: str | None, profile: Profile, namespace_bytes: int) -> Iterator[TuneServer]:
    """Connect to a server.

    Args:
        url: Which server; None starts a private one.
        profile: See ``TuneServer``.
        namespace_bytes: See ``TuneServer``.

    Raises:
        MissingToolError: No server program is installed; the text names what to install.
        SettingsError: The URL cannot be used.
        StoreUnavailable: The server does not answer.
        StoreMisconfigured: It is too old, or drops keys when it is full.
    """
    with ExitStack() as stack:
        if url is None:
            server = stack.enter_context(RedisServer(options=PRIVATE_OPTIONS))
            address = server.url
        else:
            address = url
        servers = stack.enter_context(connect(address))
        for warning in check_server(servers) if url is not None else ():
            typer.echo(f"streamdedup: {warning}", err=True)
        client = stack.enter_context(redis.Redis.from_url(address))
        yield TuneServer(servers, client, profile, namespace_bytes, private=url is None)
