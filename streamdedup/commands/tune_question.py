"""What ``streamdedup tune`` is asked, and the memory that it forecasts for it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from streamdedup.commands.assembly import detector_options
from streamdedup.commands.tune_server import NAMESPACE_BYTES, Measured, measure
from streamdedup.evaluation.sample import Sample
from streamdedup.evaluation.study import Study
from streamdedup.evaluation.tuning import Basis, Demand, Row, memory_bytes
from streamdedup.settings import Profile
from streamdedup.store.footprint import REDIS_7, ServerModel, model_of
from streamdedup.text import ShingleOptions

#: Documents from which on what a server took corrects the model; of fewer, what any connection takes is too much of it.
_CORRECTED_FROM: Final = 2_000
#: A recall that any bands reach.
_ANY_RECALL: Final = 1e-6
DAY_S: Final = 86_400.0


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of the sample.

    Attributes:
        name: Name of the profile.
        profile: Settings that are not varied.
        kinds: Kinds of shingles, the profile's own among them or not.
        thresholds: Each above 0, at most 1.
        recalls: Each above 0, below 1.
        documents_per_day: Documents that come.
        basis: Where the recall must be reached.
        key_prefix: Prefix of the keys in Redis.
        bucket_layout: Name of the layout of the buckets in Redis.
        index_with: Makes a profile of some settings, for the index that is measured.
    """

    name: str
    profile: Profile
    kinds: tuple[ShingleOptions, ...]
    thresholds: tuple[float, ...]
    recalls: tuple[float, ...]
    documents_per_day: float
    basis: Basis
    key_prefix: str
    bucket_layout: str
    index_with: Callable[[Mapping[str, Any]], Profile]

    @property
    def documents_kept(self) -> float:
        """Documents in the index in its steady state."""
        return self.documents_per_day * (self.profile.retention_s + self.profile.retention_slack_s) / DAY_S


class Memory:
    """Forecasts memory: by the model of a server, and where one was measured, corrected by what it took."""

    def __init__(self, demand: Demand, profile: Profile) -> None:
        self._demand = demand
        self._limit = profile.exact_limit
        self.server: ServerModel = REDIS_7
        self.correction = 1.0

    def check(
        self, study: Study, row: Row, question: Question, sample: Sample, url: str | None
    ) -> dict[str, Any] | None:
        """Measure on a server; return what is to be said of it."""
        bands = {"bands": row.banding.bands, "rows": row.banding.rows, "threshold": row.threshold}
        # Already seen to; bands that were chosen on the sample may be fewer than theory asks for.
        index = question.index_with({**bands, "min_recall": _ANY_RECALL, "permutations": question.profile.permutations})
        options = detector_options("tune", question.profile)
        chosen = replace(options, shingles=row.options, banding=row.banding, threshold=row.threshold)
        done = measure(url, index, chosen, sample, question.bucket_layout)
        if done is None:
            return None
        self.server = model_of(done.server, done.allocator)
        temporary = replace(self._demand, namespace_bytes=NAMESPACE_BYTES, partition_bytes=len("trial:0"))
        modelled = memory_bytes(
            study, temporary, row, self.server, documents=done.documents, exact_limit=self._limit, filling=True
        )
        if done.documents >= _CORRECTED_FROM:
            self.correction = done.used_bytes / modelled
        return _of_measured(done, modelled) | {"corrects": done.documents >= _CORRECTED_FROM}

    def bytes(self, study: Study, row: Row, limit: int | None = -1) -> float:
        """Return the forecast of an index that is full."""
        return self.correction * self.by(self.server, study, row, limit)

    def filled(self, study: Study, row: Row) -> float:
        """Return the forecast of an index that has just been filled for the first time."""
        size = memory_bytes(
            study,
            self._demand,
            row,
            self.server,
            documents=self._demand.documents,
            exact_limit=self._limit,
            filling=True,
        )
        return self.correction * size

    def with_layout(self, bucket_layout: str, study: Study, row: Row) -> float:
        """Return the forecast of an index that is full, with another layout of the buckets."""
        demand = replace(self._demand, bucket_layout=bucket_layout)
        size = memory_bytes(study, demand, row, self.server, documents=demand.documents, exact_limit=self._limit)
        return self.correction * size

    def by(self, server: ServerModel, study: Study, row: Row, limit: int | None = -1) -> float:
        """Return what the model of a server says."""
        limit = self._limit if limit == -1 else limit
        return memory_bytes(study, self._demand, row, server, documents=self._demand.documents, exact_limit=limit)


def _of_measured(done: Measured, modelled: float) -> dict[str, Any]:
    return {
        "server": done.server,
        "allocator": done.allocator,
        "private": done.private,
        "documents": done.documents,
        "measured_bytes": done.used_bytes,
        "modelled_bytes": modelled,
        "model_error": modelled / done.used_bytes - 1 if done.used_bytes else None,
        "bytes_per_document": done.used_bytes / max(done.documents, 1),
        "documents_per_s": done.documents / done.seconds if done.seconds else None,
    }
