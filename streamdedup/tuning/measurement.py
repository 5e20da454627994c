"""What the parts of an index cost on a real server: small indexes are filled, and the growth of its memory is divided.

Into an empty index are inserted, one after the other, index entries, buckets of one member, further members of these
buckets, and claims; once for n documents and once for n / 2, which gives the part that does not grow, such as the least
number of bucket pages. Nothing is assumed about allocators, tables and stored forms.

n is the number of documents of the forecast, halved until the index is small. A server's hash tables double as they
grow: those of the small index are as full as those of the large one. That holds for the row that is measured; with
other numbers of bands the tables may be fuller or emptier, which is a few percent of the memory.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from itertools import cycle, islice, pairwise
from typing import Final, NamedTuple, Protocol, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from streamdedup.detection.detector import Detector
from streamdedup.detection.model import DetectorOptions
from streamdedup.index.contract import BucketStore, Fence
from streamdedup.position import Partition, Position
from streamdedup.tuning.memory import Costs, EntryForm, Line, contents_of
from streamdedup.tuning.rows import Demand, Row
from streamdedup.tuning.sample import Sample
from streamdedup.tuning.study import Study
from streamdedup.wire import Document

#: Documents of the larger index: at most, and at least.
MOST_DOCUMENTS: Final = 16_384
LEAST_DOCUMENTS: Final = 1_024
#: Documents of the sample whose entries are inserted, evenly spread over it.
MOST_SAMPLED: Final = 4_096
#: Documents of one call to the store.
_BATCH: Final = 500
#: Seed of document numbers, band keys and pair keys: the same sample gives the same keys.
_SEED: Final = 1

Item = TypeVar("Item")


class Server(Protocol):
    """A server whose memory can be read."""

    def index(self, bands: int, bucket_layout: str) -> AbstractContextManager[BucketStore]:
        """Create an empty index, and delete it at the end."""

    def used_bytes(self) -> int:
        """Return the memory that data takes, once it no longer changes."""


class _Growth(NamedTuple):
    """Bytes by which each part let the memory grow."""

    entries: float
    buckets: float
    members: float
    claims: float


class Measurement:
    """Measures the parts of indexes.

    Args:
        server: Where.
        options: Settings of the detector; shingles and exact limit are those of the entries.
        sample: Texts that entries are made of; at least one.
        partition: Partition whose name the entries hold.
    """

    def __init__(
        self,
        server: Server,
        options: DetectorOptions,
        sample: Sample,
        partition: Partition,
    ) -> None:
        self._server = server
        self._options = options
        self._form = EntryForm(options.shingles, options.exact_limit)
        self._partition = partition
        self._random = np.random.default_rng(_SEED)
        places = np.linspace(0, len(sample.ids) - 1, min(len(sample.ids), MOST_SAMPLED)).astype(np.int64).tolist()
        self._documents = [
            Document(sample.ids[place], sample.texts[place], Position(*partition, place), 0) for place in places
        ]

    def costs(self, study: Study, demand: Demand, row: Row, bucket_layout: str) -> Costs:
        """Measure an index and one of half its size.

        Args:
            study: The sample with the row's shingles.
            demand: Size of the index of the forecast.
            row: Its bands.
            bucket_layout: Name of its layout.
        """
        size = measured_documents(demand.documents)
        contents = contents_of(study, demand, row, demand.documents)
        buckets = round(contents.buckets / contents.bands * size / demand.documents)
        members = study.meetings(row.banding.rows, row.banding.bands).members(row.banding.bands)
        bucket_sizes = self._random.choice(members, buckets) if buckets else np.empty(0, np.int64)
        # Buffers of the server grow with the first calls; they are no part of an index.
        self._fill(bucket_layout, contents.bands, _BATCH, bucket_sizes[:_BATCH])
        half = self._fill(bucket_layout, contents.bands, size // 2, bucket_sizes[: buckets // 2])
        whole = self._fill(bucket_layout, contents.bands, size, bucket_sizes)
        further = contents.bands * int((bucket_sizes - 1).sum())
        return Costs(
            entries=_line((size // 2, half.entries), (size, whole.entries)),
            buckets=_line((buckets // 2, half.buckets / contents.bands), (buckets, whole.buckets / contents.bands)),
            member=whole.members / further if further else 0.0,
            claim=whole.claims / size,
        )

    def differences(self, forms: Sequence[EntryForm]) -> dict[EntryForm, float]:
        """Return by how many bytes an entry of each form is larger than one of the options' form, mean."""
        size = max(len(self._documents), LEAST_DOCUMENTS)
        grown = {}
        for form in dict.fromkeys([self._form, *forms]):
            with self._server.index(1, "sets") as store:
                fence = store.fence(self._partition, 0, 0)
                before = self._server.used_bytes()
                self._insert_entries(store, fence, form, size)
                grown[form] = self._server.used_bytes() - before
        return {form: (bytes_ - grown[self._form]) / size for form, bytes_ in grown.items()}

    def _fill(self, bucket_layout: str, bands: int, size: int, bucket_sizes: NDArray[np.int64]) -> _Growth:
        """Fill an index.

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
            self._insert_entries(store, fence, self._form, size)
            used.append(self._server.used_bytes())
            for keys in (band_keys, np.repeat(band_keys, bucket_sizes - 1, axis=0)):
                for low in range(0, len(keys), _BATCH):
                    part = keys[low : low + _BATCH]
                    store.insert_and_look_up(self._numbers(len(part)), part, [fence])
                used.append(self._server.used_bytes())
            for claims in batches((self._random.bytes(16), Position(*self._partition, at)) for at in range(size)):
                store.claim_pairs(claims, [fence])
            used.append(self._server.used_bytes())
        return _Growth(*(after - before for before, after in pairwise(used)))

    def _insert_entries(self, store: BucketStore, fence: Fence, form: EntryForm, size: int) -> None:
        """Insert the entries of the sample, again and again under new document numbers."""
        options = replace(self._options, shingles=form.shingles, exact_limit=form.exact_limit)
        detector = Detector(options, store)
        entries = [entry for batch in batches(self._documents) for entry in detector.prepare(batch).records]
        numbered = (
            msgspec.structs.replace(entry, number=number, cluster=number)
            for number, entry in zip(self._numbers(size), cycle(entries))
        )
        for batch in batches(numbered):
            store.insert_entries(batch, [fence])

    def _numbers(self, count: int) -> list[int]:
        numbers: list[int] = self._random.integers(-(1 << 63), 1 << 63, count, np.int64).tolist()
        return numbers


def measured_documents(documents: float) -> int:
    """Return the size of the larger index that is measured for a forecast of so many documents."""
    while documents > MOST_DOCUMENTS:
        documents /= 2
    return max(round(documents), LEAST_DOCUMENTS)


def batches(items: Iterable[Item]) -> Iterator[list[Item]]:
    """Yield lists of the documents of one call to the store."""
    left = iter(items)
    while batch := list(islice(left, _BATCH)):
        yield batch


def _line(half: tuple[int, float], whole: tuple[int, float]) -> Line:
    """Return the line through two points, each a number of things and their bytes."""
    if whole[0] == half[0]:
        return Line(0.0, 0.0)
    each = (whole[1] - half[1]) / (whole[0] - half[0])
    return Line(each, whole[1] - each * whole[0])
