"""Base of ``daemon.metrics`` and ``serve.metrics``: metrics as declarations, each with an action of the operator.

A new metric is declared there; docs/architecture.md has the recipe.
"""

from collections.abc import Callable
from typing import Any, ClassVar, Generic, TypeVar

from prometheus_client import CollectorRegistry, ProcessCollector, disable_created_metrics

# Otherwise the client adds a series with the time of creation for each counter and histogram. These series double the
# number of series, and ``process_start_time_seconds`` has the same information.
disable_created_metrics()  # type: ignore[no-untyped-call]

Kind = TypeVar("Kind")


class DeclaredMetric(Generic[Kind]):
    """Declares a metric in a ``MetricSet``; ``action`` says which values need an operator, and what to do."""

    def __init__(self, kind: Callable[..., Kind], text: str, action: str, *labels: str, **options: Any) -> None:
        self.kind = kind
        self.action = action
        self.labels = labels
        self._text = text
        self._options = options

    def __set_name__(self, _owner: type, name: str) -> None:
        self._name = name

    def __get__(self, metrics: "MetricSet", _owner: type) -> Kind:
        """Create the metric at its first use; later uses find the instance attribute."""
        metric = self.kind(
            f"{metrics.prefix}{self._name}", self._text, self.labels, registry=metrics.registry, **self._options
        )
        vars(metrics)[self._name] = metric
        return metric


class MetricSet:
    """The metrics of a process in their own registry, with process metrics (memory, time, open files)."""

    #: First part of the metric names.
    prefix: ClassVar[str]

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        # The first use of an attribute creates its metric (``DeclaredMetric.__get__``): the first scrape shows all.
        for name in self.declared():
            getattr(self, name)

    @classmethod
    def declared(cls) -> dict[str, DeclaredMetric[Any]]:
        return {name: value for name, value in vars(cls).items() if isinstance(value, DeclaredMetric)}
