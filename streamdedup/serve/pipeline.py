"""The state of the pipeline: its plain data, and its reading from Kafka where no metrics of daemons are configured."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol

from streamdedup.errors import StreamdedupError
from streamdedup.kafka.group import GroupMonitor
from streamdedup.serve.schemas import DaemonBody, StoreBody


@dataclass(frozen=True, slots=True)
class PipelineReading:
    """The pipeline at one moment.

    Attributes:
        documents: Records committed since the reading before; None where unknown.
        alerts: Alerts published since the reading before; None where unknown.
        lag: Records that are not read yet; None where unknown.
        daemons: State of each daemon, as far as known.
        memory: Memory of Redis; None where the source does not know it.
    """

    documents: float | None
    alerts: float | None
    lag: int | None
    daemons: tuple[DaemonBody, ...] = ()
    memory: StoreBody | None = None


class PipelineSource(Protocol):
    """Reads the state of the pipeline. Used from one thread.

    Attributes:
        name: Name of the source in answers.
    """

    @property
    def name(self) -> Literal["metrics", "kafka"]:
        """Name of the source in answers."""

    def read(self) -> PipelineReading:
        """Return the state now.

        Raises:
            StreamdedupError: The state cannot be read.
        """

    def close(self) -> None:
        """Close the clients."""


class Increases:
    """Sums the increases of numbers between two readings.

    Args:
        from_zero: Whether a number that has decreased has begun at zero again; otherwise a decrease counts nothing.
    """

    def __init__(self, *, from_zero: bool) -> None:
        self._from_zero = from_zero
        self._values: dict[Any, float] = {}

    def advance(self, values: Mapping[Any, float]) -> float:
        """Return the sum of the increases since each number was last given; a new number counts nothing."""
        increase = 0.0
        for key, value in values.items():
            before = self._values.get(key, value)
            if value >= before:
                increase += value - before
            elif self._from_zero:
                increase += value
        self._values.update(values)
        return increase


class KafkaPipeline:
    """Reads the pipeline from Kafka; a ``PipelineSource``.

    Documents are counted by the committed offsets of the daemons' group. Offsets of the input topics include the
    markers of transactions, one for each transaction of a producer and partition. Alerts are counted by the reader that
    follows the alerts topic, because there every batch of a daemon is a transaction: a topic with one alert in each
    batch has twice as many offsets as alerts.

    Args:
        open_monitor: Opens a client.
        count_alerts: Returns the alerts that were read so far; None while the topic is not followed.
    """

    name: Final = "kafka"

    def __init__(self, open_monitor: Callable[[], GroupMonitor], count_alerts: Callable[[], int | None]) -> None:
        self._open_monitor = open_monitor
        self._count_alerts = count_alerts
        self._monitor: GroupMonitor | None = None
        self._committed = Increases(from_zero=False)
        self._alerts_count: int | None = None

    def read(self) -> PipelineReading:
        """See ``PipelineSource.read``."""
        monitor = self._monitor = self._monitor or self._open_monitor()
        try:
            found = monitor.read()
        except StreamdedupError:
            self.close()
            raise
        alerts = self._new_alerts()
        if found.committed is None:
            return PipelineReading(None, alerts, None)
        lag = sum(max(0, end - found.committed[partition]) for partition, end in found.ends.items())
        return PipelineReading(self._committed.advance(found.committed), alerts, lag)

    def _new_alerts(self) -> int | None:
        """Return the alerts since the reading before; None where one of the two counts is unknown."""
        before, self._alerts_count = self._alerts_count, self._count_alerts()
        return None if before is None or self._alerts_count is None else self._alerts_count - before

    def close(self) -> None:
        """See ``PipelineSource.close``."""
        if self._monitor is not None:
            self._monitor.close()
        self._monitor = None
