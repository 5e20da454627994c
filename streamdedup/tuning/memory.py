"""Memory of an index in Redis, forecast from small indexes on a real server.

An index consists of index entries, buckets with one member, further members of buckets, and claims. With N documents,
B buckets and M members of all bands, and C claims its memory is

    entries(N) + bands x buckets(B / bands) + (M - B) x member + C x claim

The parts are inserted one after the other into an empty index, once for n documents and once for n / 2; the growth of
the server's memory gives the bytes of each part, and of entries and buckets the part that does not grow, such as the
least number of bucket pages. Nothing is assumed about allocators, tables and stored forms.

n is the number of documents of the forecast, halved or doubled until the index is small, but not too small to measure.
A server's hash tables double as they grow, so those of the measured index are as full as those of the forecast one.
That holds for the measured row; with another number of bands the tables may be fuller or emptier, which is a few
percent of the memory.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from itertools import cycle, islice
from typing import Final, NamedTuple, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from streamdedup.detection.detector import Detector
from streamdedup.detection.model import DetectorOptions
from streamdedup.index.contract import Index
from streamdedup.index.redis.buckets import LAYOUTS
from streamdedup.index.redis.pairs import CLAIM_LIFETIMES
from streamdedup.index.values import Fence
from streamdedup.position import Partition, Position
from streamdedup.text.shingles import ShingleOptions
from streamdedup.tuning.rows import TuningRow, Workload
from streamdedup.tuning.sample import Sample
from streamdedup.tuning.study import Study
from streamdedup.wire import Document

#: Documents of the larger measured index: at most, and at least.
MOST_DOCUMENTS: Final = 16_384
LEAST_DOCUMENTS: Final = 1_024
#: Documents of the sample whose entries are inserted, evenly spread over the sample.
MOST_SAMPLED: Final = 4_096
#: Documents of one call to the store.
_BATCH: Final = 500
#: Seed of document numbers, band keys and pair keys.
_SEED: Final = 1


class MeasuredServer(Protocol):
    """A server whose memory can be read."""

    def index(self, bands: int, bucket_layout: str) -> AbstractContextManager[Index]:
        """Create an empty index, and delete it at the end."""

    def used_bytes(self) -> int:
        """Return the memory of the data, once it is steady."""


class EntryForm(NamedTuple):
    """Decides the size of an index entry: kind of shingles, and distinct shingles up to which a set is stored."""

    shingles: ShingleOptions
    exact_limit: int | None


class Contents(NamedTuple):
    """Numbers of index entries, bands, buckets and members of all bands, and claims of one lifetime."""

    entries: float
    bands: int
    buckets: float
    members: float
    claims: float


class Costs(NamedTuple):
    """Bytes of index entries, buckets of one band, further members of one band, and claims, in this order.

    Attributes:
        fixed: float64 (4,); bytes that do not depend on the number.
        each: float64 (4,); bytes of one more.
    """

    fixed: NDArray[np.float64]
    each: NDArray[np.float64]

    def total(self, contents: Contents, member_lifetimes: float = 1.0) -> float:
        """Return the bytes of an index; ``member_lifetimes``: lifetimes for which bucket members are stored, mean."""
        bands, further = contents.bands, contents.members - contents.buckets
        numbers = np.array([contents.entries, contents.buckets / bands, further / bands, contents.claims])
        times = np.array([1.0, bands * member_lifetimes, bands * member_lifetimes, 1.0])
        return float(times @ np.maximum(self.fixed + self.each * numbers, 0.0))


class MemoryForecast(NamedTuple):
    """Forecasts the memory of indexes.

    Attributes:
        workload: Size of the index.
        costs: Measured costs by bucket layout.
        entry_bytes: Mean bytes of an entry, by form.
        measured_form: Form of the entries in ``costs``.
    """

    workload: Workload
    costs: Mapping[str, Costs]
    entry_bytes: Mapping[EntryForm, float]
    measured_form: EntryForm

    def total(
        self,
        study: Study,
        row: TuningRow,
        bucket_layout: str,
        exact_limit: int | None,
        filled_with: float | None = None,
    ) -> float:
        """Return the bytes of an index.

        Args:
            study: The sample with the row's shingles.
            row: Bands of the index.
            bucket_layout: Name of the layout.
            exact_limit: Distinct shingles up to which a document is stored as a set; None for any number.
            filled_with: Documents of an index that was filled for the first time, so that nothing has expired; None for
                the steady state, in which as many documents expire as are inserted.
        """
        lifetimes = 1.0
        if filled_with is None:
            contents = contents_of(study, self.workload, row, self.workload.documents)
            contents = contents._replace(claims=contents.claims * CLAIM_LIFETIMES)
            lifetimes = LAYOUTS[bucket_layout].lifetimes
        else:
            contents = contents_of(study, self.workload, row, filled_with, filling=True)
        larger_by = self.entry_bytes[EntryForm(row.options, exact_limit)] - self.entry_bytes[self.measured_form]
        return self.costs[bucket_layout].total(contents, lifetimes) + contents.entries * larger_by


def contents_of(
    study: Study, workload: Workload, row: TuningRow, documents: float, *, filling: bool = False
) -> Contents:
    """Return the contents of an index of so many documents.

    Within the collection, twice the documents have 2^g times the buckets, as all of the sample has of half of it;
    beyond the collection, documents bring buckets of their own.

    Args:
        study: The sample with the row's shingles.
        workload: Size of the collection.
        row: Bands of the index, and matches of its documents.
        documents: Documents in the index.
        filling: The index is filled for the first time: a document was compared with half of the others in the mean.
    """
    buckets = study.buckets(row.banding, row.limits.bucket_cap)
    count, half = len(buckets.members), buckets.half_count
    exponent = min(max(math.log2(count / half), 0.0), 1.0) if half else 1.0
    ratio = documents / max(study.documents_count, 1)
    known = min(ratio, workload.collection / max(study.documents_count, 1))
    matches = row.candidates.matches.at(min(documents, workload.collection) / (2 if filling else 1))
    return Contents(
        entries=documents,
        bands=row.banding.bands,
        buckets=count * (known**exponent * ratio / known if known > 1.0 else ratio),
        members=float(buckets.members.sum()) * ratio,
        claims=ratio * study.indexed_count * min(matches, row.limits.max_candidates or matches),
    )


def measured_documents(documents: float) -> int:
    """Return the size of the larger measured index for a forecast of so many documents."""
    while documents > MOST_DOCUMENTS:
        documents /= 2
    while documents < LEAST_DOCUMENTS:
        documents *= 2
    return round(documents)


class Measurement:
    """Measures the parts of indexes on a server.

    Args:
        server: The server.
        options: Settings of the detector; shingles and exact limit are those of the entries.
        sample: Texts of the entries; at least one.
        partition: Partition that the entries name.
    """

    def __init__(self, server: MeasuredServer, options: DetectorOptions, sample: Sample, partition: Partition) -> None:
        self._server = server
        self._options = options
        self.form = EntryForm(options.shingles, options.exact_limit)
        self._partition = partition
        self._random = np.random.default_rng(_SEED)
        numbers = np.linspace(0, len(sample.ids) - 1, min(len(sample.ids), MOST_SAMPLED)).astype(np.int64).tolist()
        self._documents = [
            Document(sample.ids[number], sample.texts[number], Position(*partition, number), 0) for number in numbers
        ]

    def costs(self, contents: Contents, bucket_members: NDArray[np.int64], bucket_layout: str) -> Costs:
        """Measure an index and one of half its size.

        Args:
            contents: Contents of the index of the forecast.
            bucket_members: Members of some of its buckets, from which the sizes of all are drawn.
            bucket_layout: Name of its layout.
        """
        size = measured_documents(contents.entries)
        bands, count = contents.bands, round(contents.buckets / contents.bands * size / contents.entries)
        bucket_sizes = self._random.choice(bucket_members, count) if count else np.empty(0, np.int64)
        further = (bucket_sizes - 1).sum()
        # Buffers of the server grow with the first calls; they are no part of an index.
        self._grown(bucket_layout, bands, _BATCH, bucket_sizes[:_BATCH])
        half, whole = (
            self._grown(bucket_layout, bands, *part)
            for part in ((size // 2, bucket_sizes[: count // 2]), (size, bucket_sizes))
        )
        # Members and claims have no fixed part; that of the others is not negative, though noise may make it so.
        half[2:] = 0.0
        numbers = np.array([size, count, further, size])
        each = (whole - half) / np.maximum(numbers - [size // 2, count // 2, 0, 0], 1)
        each = np.minimum(each, whole / np.maximum(numbers, 1))
        return Costs(whole - each * numbers, each)

    def entry_bytes(self, forms: Sequence[EntryForm], progress: Callable[[int], None]) -> dict[EntryForm, float]:
        """Return the mean bytes of an entry of each form."""
        size = max(len(self._documents), LEAST_DOCUMENTS)
        found = {}
        for form in forms:
            with self._server.index(1, "sets") as store:
                before = self._server.used_bytes()
                self._insert_entries(store, store.fence(self._partition, 0, 0), form, size)
                found[form] = (self._server.used_bytes() - before) / size
            progress(1)
        return found

    def _grown(self, bucket_layout: str, bands: int, size: int, bucket_sizes: NDArray[np.int64]) -> NDArray[np.float64]:
        """Fill an index, and return the growth of memory by part, as in ``Costs``.

        Args:
            bucket_layout: Name of the layout.
            bands: Bands of the index.
            size: Number of entries, and of claims.
            bucket_sizes: Members of each bucket of a band, int64 (n,).
        """
        band_keys = self._random.integers(0, 1 << 32, (len(bucket_sizes), bands), np.uint32)
        with self._server.index(bands, bucket_layout) as store:
            fence = store.fence(self._partition, 0, 0)
            used = [self._server.used_bytes()]
            self._insert_entries(store, fence, self.form, size)
            used.append(self._server.used_bytes())
            for keys in (band_keys, np.repeat(band_keys, bucket_sizes - 1, axis=0)):
                for low in range(0, len(keys), _BATCH):
                    part = keys[low : low + _BATCH]
                    store.insert_and_look_up(self._numbers(len(part)), part, [fence])
                used.append(self._server.used_bytes())
            for low in range(0, size, _BATCH):
                places = range(low, min(low + _BATCH, size))
                claims = [(self._random.bytes(16), Position(*self._partition, at)) for at in places]
                store.claim_pairs(claims, [fence])
            used.append(self._server.used_bytes())
        return np.diff(used) / [1, bands, bands, 1]

    def _insert_entries(self, store: Index, fence: Fence, form: EntryForm, size: int) -> None:
        """Insert the entries of the sample, again and again under new document numbers."""
        detector = Detector(replace(self._options, shingles=form.shingles, exact_limit=form.exact_limit), store)
        entries = cycle(
            entry
            for low in range(0, len(self._documents), _BATCH)
            for entry in detector.prepare(self._documents[low : low + _BATCH]).entries
        )
        for low in range(0, size, _BATCH):
            numbers = self._numbers(min(_BATCH, size - low))
            batch = zip(numbers, islice(entries, len(numbers)), strict=False)
            store.insert_entries(
                [msgspec.structs.replace(entry, number=number, cluster=number) for number, entry in batch], [fence]
            )

    def _numbers(self, count: int) -> list[int]:
        numbers: list[int] = self._random.integers(-(1 << 63), 1 << 63, count, np.int64).tolist()
        return numbers
