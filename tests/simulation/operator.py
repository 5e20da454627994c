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
from tests.simulation.world import GROUP, INPUT

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

    def options(self) -> Mapping[str, Any]:
        """Return the options of the detector that differ from those of the first version."""
        return VERSIONS[self.version]

    def fingerprint(self) -> dict[str, object]:
        """Return the parameters of the index."""
        return {"bands": 6, **{name: value for name, value in self.options().items() if name != "threshold"}}


@dataclass(frozen=True)
class Settings:
    """What the commands read of the settings, and the simulation.

    The options of Kafka are the settings themselves.
    """

    simulation: Any
    installation: Installation
    process: str
    profiles: Mapping[str, Any]
    kafka: Any
    service: Any
    group_id: str = GROUP
    topics: tuple[str, ...] = (INPUT,)
    session_timeout_s: float = 6.0
    fetch_timeout_s: float = 5.0
    group_instance_id: str | None = None


def settings_of(simulation: Any, installation: Installation, process: str) -> Settings:
    """Return the settings of a command."""
    return Settings(
        simulation,
        installation,
        process,
        {"articles": SimpleNamespace(topics=[INPUT])},
        SimpleNamespace(group_id=GROUP, session_timeout_s=6.0),
        SimpleNamespace(on_index_lost="rebuild"),
    )


class Backend:
    """A ``Backend`` of the server in memory."""

    address = "memory"

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._simulation = settings.simulation
        self.name = settings.process
        self.link = Link()
        self._index = self._simulation.connection(self.name, settings.installation, self.link)

    def index(self, _name: str) -> Any:
        return self._index

    def upkeep(self, _name: str) -> Any:
        return self._index.ask("upkeep", self._index.upkeep)

    def configured(self, _name: str) -> Mapping[str, object]:
        return self._index.configured(self._settings.installation.fingerprint())  # type: ignore[no-any-return]

    def where(self, _name: str) -> str:
        return self._settings.installation.prefix

    def check(self) -> list[str]:
        return []


@contextlib.contextmanager
def _connect_backend(settings: Settings) -> Iterator[Backend]:
    yield Backend(settings)


def _committed(settings: Settings) -> dict[Partition, CommittedOffset]:
    simulation = settings.simulation
    simulation.pause("committed_offsets")
    committed = {each: simulation.broker.committed_offset(GROUP, each) for each in simulation.broker.committed(GROUP)}
    return {partition: offset for partition, offset in committed.items() if offset is not None}


def _members(settings: Settings) -> tuple[str, ...]:
    settings.simulation.pause("describe_group")
    group = settings.simulation.broker.groups[GROUP]
    return tuple(group.index_names.get(member, "") for member in group.members)


def _members_of_index(settings: Settings, **_named: Any) -> tuple[str, ...]:
    return tuple(name for name in _members(settings) if name == settings.installation.prefix)


def _describe_group(settings: Settings) -> Any:
    return SimpleNamespace(members=_members(settings), missing_topics=frozenset())


def _refuse_members(settings: Settings, *_arguments: Any, **_named: Any) -> None:
    if members := _members(settings):
        raise StreamdedupError(f"daemons of the group are running: {members}")


class _Transport:
    """The transport of a command that joins the group."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def open(self) -> Any:
        self._settings.simulation.pause("open_clients")
        simulation, name = self._settings.simulation, self._settings.process
        prefix = self._settings.installation.prefix
        source, sink = MemoryTransport(
            simulation.broker, GROUP, simulation.topics, transactional_id=name, index_name=prefix
        ).open()
        simulation.processes[name].joined = source
        return source, sink


@contextlib.contextmanager
def _silently(*_arguments: Any, **_named: Any) -> Iterator[Callable[..., None]]:
    yield lambda *_arguments, **_named: None


def _nothing(*_arguments: Any, **_named: Any) -> None:
    pass


#: By name in ``cli.index``, what takes its place.
PATCHES: Mapping[str, Any] = {
    "load_settings": lambda settings, _assignments: settings,
    "kafka_options": lambda settings: settings,
    "connect_backend": _connect_backend,
    "rebuilder": lambda settings, backend, *_: settings.simulation.rebuilder(backend),
    "committed_offsets": _committed,
    "describe_group": _describe_group,
    "members_of_index": _members_of_index,
    "refuse_while_daemons_run": _refuse_members,
    "refuse_members": _refuse_members,
    "check_topics": lambda settings: {INPUT: settings.simulation.partitions},
    "KafkaTransport": _Transport,
    "require_confirmable": _nothing,
    "confirm": _nothing,
    "tell": _nothing,
    "counting": _silently,
    "measuring": _silently,
}
