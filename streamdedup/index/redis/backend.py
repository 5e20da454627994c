"""The ``Backend`` of Redis and Valkey; its contract is ``index.backend.Backend``."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from streamdedup.errors import StoreMisconfigured, StoreUnavailable
from streamdedup.findings import Finding
from streamdedup.index.backend import IndexParameters, ServerFacts
from streamdedup.index.redis.checks import check_redis, read_facts, require_usable, software
from streamdedup.index.redis.inspection import RedisInspector
from streamdedup.index.redis.reader import RedisIndexReader
from streamdedup.index.redis.reading import RedisIndexOptions
from streamdedup.index.redis.servers import Servers
from streamdedup.index.redis.staging import RedisStagingIndex
from streamdedup.index.redis.store import RedisIndex
from streamdedup.index.redis.tls import tls_mismatch
from streamdedup.index.values import Fingerprint


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisOptions:
    """Options that all indexes of an installation share; ``RedisIndexOptions`` are those of one index.

    ``address`` is shown to the operator. The servers at ``tcp_addresses`` are asked about TLS if none answers.
    """

    prefix: str
    address: str
    shards: int = 1
    bucket_layout: str = "sets"
    tcp_addresses: Sequence[tuple[str, int]] = ()
    uses_tls: bool = False


class RedisBackend(AbstractContextManager["RedisBackend"]):
    """The ``Backend`` of one installation. Its indexes share connections, so each one counts those of all."""

    def __init__(self, servers: Servers, options: RedisOptions, parameters: Mapping[str, IndexParameters]) -> None:
        self.shared_servers = servers
        self.address = options.address
        self.mode = servers.mode
        self._options = options
        self._parameters = parameters

    def index(self, name: str) -> RedisIndex:
        return RedisIndex(self.shared_servers, self._index_options(name))

    def staging(self, name: str, on_keys: Callable[[int], None] = lambda _count: None) -> RedisStagingIndex:
        store = RedisIndex(self.shared_servers, self._index_options(name), in_staging=True)
        return RedisStagingIndex(self.shared_servers, store, on_keys)

    def reader(self, name: str) -> RedisIndexReader:
        return RedisIndexReader(self.shared_servers, self._index_options(name))

    def inspector(self, name: str) -> RedisInspector:
        return RedisInspector(self.shared_servers, self._namespace(name))

    def configured_fingerprint(self, name: str) -> Fingerprint:
        return self._index_options(name).stored_fingerprint(self._parameters[name].fingerprint)

    def where(self, name: str) -> str:
        return f"{self.address} under {self._namespace(name)} (redis.url, redis.key_prefix)"

    def servers(self) -> list[ServerFacts]:
        return [_server_facts(address, info) for address, info in read_facts(self.shared_servers).items()]

    def require_usable(self) -> list[str]:
        return require_usable(self.shared_servers)

    def findings(self, *, rebuilds: bool) -> Iterator[Finding]:
        all_keys = [self._index_options(name).keys() for name in self._parameters]
        guards = [keys.guard(slot) for keys in all_keys for slot in range(keys.slots_count)]
        # For an ACL rule: all keys begin with the hash tag {prefix:profile:slot}.
        key_pattern = f"~{{{self._options.prefix}:*"
        try:
            yield from check_redis(
                self.shared_servers, self.address, keys=guards, rebuilds=rebuilds, key_pattern=key_pattern
            )
        except StoreUnavailable as error:
            # For a wrong TLS setting the client raises the same error as for an absent server.
            uses_tls, has_url = self._options.uses_tls, self.mode == "single"
            mismatch = tls_mismatch(self._options.tcp_addresses, uses_tls=uses_tls, has_url=has_url)
            if mismatch is None:
                raise
            raise StoreMisconfigured(f"{mismatch} [{error}]") from error

    def _namespace(self, name: str) -> str:
        return f"{self._options.prefix}:{name}"

    def _index_options(self, name: str) -> RedisIndexOptions:
        parameters = self._parameters[name]
        return RedisIndexOptions(
            namespace=self._namespace(name),
            bands=parameters.bands,
            shards=self._options.shards,
            lifetime_ms=parameters.lifetime_ms,
            bucket_cap=parameters.bucket_cap,
            bucket_layout=self._options.bucket_layout,
        )

    def close(self) -> None:
        self.shared_servers.close()

    def __exit__(self, *_error: object) -> None:
        self.close()


def _server_facts(address: str, info: Mapping[str, Any]) -> ServerFacts:
    return ServerFacts(
        address=address,
        software=software(info),
        used_bytes=info.get("used_memory"),
        limit_bytes=info.get("maxmemory") or None,
        eviction_policy=info.get("maxmemory_policy"),
    )
