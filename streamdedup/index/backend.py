"""The backend: everything that depends on the kind of store in which the indexes are; made by ``indexes``.

A change touches ``redis.backend``, ``redis.inspection`` and the backend in tests/simulation/operator.py.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from streamdedup.findings import Finding
from streamdedup.index.contract import Index, IndexReader, StagingIndex
from streamdedup.index.values import Fingerprint
from streamdedup.position import Partition


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexParameters:
    """Parameters of a profile's index, the same for all its processes.

    ``bands`` is at least 1; a ``bucket_cap`` of None is no limit.
    """

    fingerprint: Fingerprint
    bands: int
    lifetime_ms: int
    bucket_cap: int | None


@dataclass(frozen=True, slots=True)
class KeyStatistics:
    """Keys of one kind; ``used_bytes`` is estimated from a sample, without the memory of the server's key tables."""

    count: int
    used_bytes: int


@dataclass(frozen=True, slots=True)
class Survey:
    """The result of a walk over all keys of an index; ``kinds`` are by name."""

    documents_count: int
    kinds: Mapping[str, KeyStatistics]


@dataclass(frozen=True, slots=True)
class PartitionFacts:
    """What `index status` shows of a partition; without a fence the ``generation`` is None."""

    high_water_mark: int | None
    generation: int | None
    topic_id: str = ""


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """Facts reported by a server of the store; None where unknown, or for no limit; ``address`` has no secret."""

    address: str
    software: str
    used_bytes: int | None
    limit_bytes: int | None
    eviction_policy: str | None


class IndexInspector(Protocol):
    """Inspects one index, for the commands and ``library``; numbers are approximate while daemons write."""

    def fingerprint(self) -> Fingerprint | None: ...

    def is_half_dropped(self) -> bool:
        """Tell whether a deletion was interrupted."""

    def is_staging(self) -> bool:
        """Tell whether the index is being rebuilt or deleted."""

    def partitions(self, topics: Iterable[str], also: Iterable[Partition] = ()) -> dict[Partition, PartitionFacts]:
        """Return the facts for those partitions of ``topics``, and those in ``also``, that the index has seen."""

    def survey(self, on_keys: Callable[[int], None] = lambda _count: None) -> Survey:
        """Walk over all keys of the index; ``on_keys`` gets the number of keys counted since its last call."""


class Backend(AbstractContextManager["Backend", None], Protocol):
    """The store of the indexes of some profiles; a context manager that closes the connections.

    Connects at the first use. Methods raise ``StoreUnavailable`` when a server does not answer, ``StoreMisconfigured``
    when a server refuses the client for good. ``name`` is the name of a profile.
    """

    @property
    def address(self) -> str:
        """The address of the store without secrets, for the operator."""

    @property
    def mode(self) -> str:
        """How the servers are reached, for `index status`: ``single`` (one server), ``sentinel`` or ``cluster``."""

    def index(self, name: str) -> Index: ...

    def staging(self, name: str, on_keys: Callable[[int], None] = lambda _count: None) -> StagingIndex:
        """Return the staging index; ``on_keys`` gets the number of keys deleted since its last call."""

    def reader(self, name: str) -> IndexReader: ...

    def inspector(self, name: str) -> IndexInspector: ...

    def configured_fingerprint(self, name: str) -> Fingerprint:
        """Return the parameters with which the index would be built now."""

    def where(self, name: str) -> str:
        """Say where the index is and which settings decide it, for the operator."""

    def servers(self) -> Sequence[ServerFacts]:
        """Return the facts of the servers; raise ``StoreMisconfigured`` unless they are as in the settings."""

    def require_usable(self) -> list[str]:
        """Raise unless the servers accept writes and keep every key (a part of ``findings``); return warnings."""

    def findings(self, *, rebuilds: bool) -> Iterator[Finding]:
        """Yield the result of each check of the servers, for `streamdedup check` and for the start of the daemon.

        With ``rebuilds`` the daemon rebuilds a lost index by itself, and its user needs more permissions.
        """

    def close(self) -> None: ...
