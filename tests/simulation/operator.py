"""The operator: installations, and the commands ``streamdedup index`` on the broker and the server in memory.

The commands are the real ones; ``PATCHES`` replaces what they use of settings, Kafka and Redis.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from streamdedup.errors import StreamdedupError
from streamdedup.kafka.protocols import CommittedOffset
from streamdedup.position import Partition
from tests.simulation.server import Link
from tests.simulation.transport import MemoryTransport
from tests.simulation.world import FINGERPRINT, GROUP, INPUT, a_rebuilder

#: By version, how the options of the detector differ.
VERSIONS: Mapping[int, Mapping[str, Any]] = {
    1: {},
    2: {"seed": 7, "threshold": 0.7},
    3: {"scope_field": "tenant", "default_scope": "all"},
}


@dataclass(frozen=True)
class Installation:
    """The settings of daemons and commands: ``redis.key_prefix``, and the version of the profile."""

    prefix: str
    version: int

    def fingerprint(self) -> dict[str, object]:
        options = VERSIONS[self.version]
        return FINGERPRINT | {name: value for name, value in options.items() if name != "threshold"}


@dataclass(frozen=True)
class Settings:
    """What the commands read of the settings, with those of Kafka among them."""

    simulation: Any
    installation: Installation
    process: str
    group_instance_id: str | None = None
    group_id = GROUP
    session_timeout_s = 6.0
    fetch_timeout_s = 5.0
    service = SimpleNamespace(on_index_lost="rebuild")

    @property
    def profiles(self) -> Mapping[str, Any]:
        return {"articles": SimpleNamespace(topics=[INPUT], lifetime_ms=self.simulation.kept_ms)}

    @property
    def kafka(self) -> "Settings":
        return self


class Backend:
    """A ``Backend`` of the server in memory."""

    address = "memory"

    def __init__(self, settings: Settings) -> None:
        self._installation = settings.installation
        self.name = settings.process
        self.link = Link()
        self._simulation = settings.simulation
        self._index = self._simulation.connection(self.name, self._installation, self.link)

    def index(self, _name: str) -> Any:
        return self._index

    def staging(self, _name: str, _on_keys: Callable[[int], None]) -> Any:
        connection = self._simulation.connection(
            f"{self.name} deletion", self._installation, self.link, in_staging=True
        )
        return connection.staging()

    def servers(self) -> None:
        """Do nothing: the servers are as in the settings."""

    def inspector(self, _name: str) -> Any:
        return self._index.ask("inspector", self._index.inspector)

    def configured_fingerprint(self, _name: str) -> Mapping[str, object]:
        return self._index.configured(self._installation.fingerprint())  # type: ignore[no-any-return]

    def where(self, _name: str) -> str:
        return self._installation.prefix

    def require_usable(self) -> list[str]:
        return []


def _read_committed_offsets(settings: Settings) -> dict[Partition, CommittedOffset]:
    settings.simulation.pause("committed_offsets")
    return settings.simulation.broker.committed_offsets(GROUP)  # type: ignore[no-any-return]


def _members(settings: Settings) -> tuple[str, ...]:
    settings.simulation.pause("describe_group")
    group = settings.simulation.broker.groups[GROUP]
    return tuple(group.index_names[member] for member in group.members)


def _refuse_members(settings: Settings, *_arguments: Any, **_named: Any) -> None:
    if members := _members(settings):
        raise StreamdedupError(f"daemons of the group are running: {members}")


class _Transport:
    """The transport of a command that joins the group."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def open(self) -> Any:
        simulation, name = self._settings.simulation, self._settings.process
        simulation.pause("open_clients")
        prefix = self._settings.installation.prefix
        clients = MemoryTransport(simulation.broker, GROUP, [INPUT], transactional_id=name, index_name=prefix).open()
        simulation.processes[name].joined = clients[0]
        return clients


@contextlib.contextmanager
def _silently(*_arguments: Any, **_named: Any) -> Iterator[Callable[..., None]]:
    yield _nothing


def _nothing(*_arguments: Any, **_named: Any) -> None:
    pass


#: By name in ``cli.index`` and ``cli.index_building``, what takes its place.
PATCHES: Mapping[str, Any] = {
    "load_settings": lambda settings, _assignments: settings,
    "kafka_options": lambda settings: settings,
    "connect_backend": lambda settings: contextlib.nullcontext(Backend(settings)),
    "rebuilder": lambda settings, backend, *_: a_rebuilder(settings.simulation, backend),
    "lifetime_ms": lambda profile: profile.lifetime_ms,
    "read_committed_offsets": _read_committed_offsets,
    "describe_group": lambda settings: SimpleNamespace(members=_members(settings), missing_topics=frozenset()),
    "members_of_index": lambda settings, **_: [n for n in _members(settings) if n == settings.installation.prefix],
    "refuse_members": _refuse_members,
    "require_topics": lambda settings: {INPUT: settings.simulation.partitions},
    "KafkaTransport": _Transport,
    "require_confirmable": _nothing,
    "confirm": _nothing,
    "tell": _nothing,
    "showing_keys": _silently,
    "showing_parts": _silently,
}
