"""Base of ``daemon.metrics`` and ``serve.metrics``: metrics as declarations, each with an action of the operator.

A new metric is declared there; docs/architecture.md has the recipe.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from threading import Lock
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray
from prometheus_client import CollectorRegistry, ProcessCollector, disable_created_metrics
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

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
        return {name: metric for name, metric in vars(cls).items() if isinstance(metric, DeclaredMetric)}


class BatchHistogram(Collector):
    """A histogram with one label that observes many values in one call, which ``prometheus_client.Histogram`` lacks.

    ``buckets`` are upper bounds, ascending; a bucket without a bound follows them.
    """

    def __init__(
        self, name: str, text: str, labels: tuple[str], *, buckets: Sequence[float], registry: CollectorRegistry
    ) -> None:
        self._name = name
        self._text = text
        self._bounds = np.array(buckets, np.float64)
        self._bound_texts: list[str] = [
            floatToGoString(bound)  # type: ignore[no-untyped-call]
            for bound in (*buckets, math.inf)
        ]
        (self.label_name,) = labels
        self._counts: dict[str, NDArray[np.int64]] = {}
        self._sums: dict[str, float] = {}
        # Scrapes read in the thread of the HTTP server.
        self._lock = Lock()
        registry.register(self)

    def observe(self, label_value: str, values: NDArray[np.float64]) -> None:
        """Observe ``values``, float64 (n,); an empty array creates the series."""
        # A value that equals a bound belongs below this bound, as in Prometheus.
        bucket_numbers = np.searchsorted(self._bounds, values, side="left")
        counts = np.bincount(bucket_numbers, minlength=len(self._bound_texts))
        with self._lock:
            self._counts[label_value] = self._counts.get(label_value, 0) + counts
            self._sums[label_value] = self._sums.get(label_value, 0.0) + float(values.sum())

    def describe(self) -> Iterator[HistogramMetricFamily]:
        yield HistogramMetricFamily(self._name, self._text, labels=[self.label_name])

    def collect(self) -> Iterator[HistogramMetricFamily]:
        (family,) = self.describe()
        with self._lock:
            for label_value, counts in self._counts.items():
                cumulative = list(zip(self._bound_texts, np.cumsum(counts).tolist(), strict=True))
                family.add_metric([label_value], cumulative, self._sums[label_value])
        yield family
