"""The forecast of memory, against a made-up server whose memory is known at any size."""

import dataclasses
import math
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from streamdedup.detection.model import DetectorOptions
from streamdedup.index.memory import MemoryIndex
from streamdedup.position import Partition
from streamdedup.similarity.lsh import Banding
from streamdedup.similarity.minhash import HashFamily
from streamdedup.text.shingles import ShingleOptions
from streamdedup.tuning.candidates import Growth
from streamdedup.tuning.capped import StormLimits
from streamdedup.tuning.memory import (
    LEAST_DOCUMENTS,
    MOST_DOCUMENTS,
    Contents,
    Costs,
    EntryForm,
    Measurement,
    MemoryForecast,
    contents_of,
    measured_documents,
)
from streamdedup.tuning.rows import TuningRow, Workload, rows_of
from streamdedup.tuning.sample import Sample
from streamdedup.tuning.study import Study

WORDS, PAIRS_OF_WORDS = ShingleOptions("word", 3), ShingleOptions("word", 2)
TEXTS = [
    f"{' '.join(f'w{(at // 3 * 7919 + place * 104729) % 4001}' for place in range(30))} {at % 3}" for at in range(90)
]
#: Documents of the measured indexes in place of many more, for the sake of time.
SMALL = 1_500
#: Bytes of the made-up server: of an entry besides its content, of a bucket, of a member, of a claim; of the pages that
#: each band has at least; of each place in a table that doubles as keys come.
ENTRY, BUCKET, MEMBER, CLAIM, PAGES, PLACE = 70, 90, 8, 36, 50_000, 16


def bytes_of(entries: float, content_bytes: float, contents: Contents) -> float:
    """Return the memory of an index on the made-up server."""
    table = PLACE * 2 ** math.ceil(math.log2(max(entries + contents.buckets, 1)))
    buckets = contents.bands * PAGES + BUCKET * contents.buckets + MEMBER * contents.members if contents.buckets else 0
    return table + entries * ENTRY + content_bytes + buckets + CLAIM * contents.claims


class CountingStore(MemoryIndex):
    """An index that counts insertions."""

    def __init__(self, bands: int) -> None:
        super().__init__()
        self.bands = bands
        self.content: dict[int, int] = {}
        self.keys: set[tuple[int, int]] = set()
        self.members = self.claims = 0

    def insert_entries(self, records, fences):
        self.content |= {record.number: record.content.size_bytes for record in records}
        return super().insert_entries(records, fences)

    def insert_and_look_up(self, numbers, band_keys, fences):
        self.keys |= {(band, key) for row in band_keys.tolist() for band, key in enumerate(row)}
        self.members += band_keys.size
        return super().insert_and_look_up(numbers, band_keys, fences)

    def claim_pairs(self, claims, fences, met=()):
        self.claims += len(claims)
        return super().claim_pairs(claims, fences, met)

    def used_bytes(self) -> float:
        contents = Contents(0, self.bands, len(self.keys), self.members, self.claims)
        return bytes_of(len(self.content), sum(self.content.values()), contents)


class MadeUpServer:
    def __init__(self) -> None:
        self.store: CountingStore | None = None
        self.sizes: list[int] = []

    @contextmanager
    def index(self, bands: int, bucket_layout: str) -> Iterator[CountingStore]:
        self.store = CountingStore(bands)
        self.store.open({})
        yield self.store
        self.sizes.append(len(self.store.content))

    def used_bytes(self) -> float:
        return self.store.used_bytes()


@pytest.fixture(autouse=True)
def _small(monkeypatch, request):
    if request.cls is TestMeasurement and "halved" not in request.node.name:
        monkeypatch.setattr("streamdedup.tuning.memory.MOST_DOCUMENTS", SMALL)


@pytest.fixture(scope="module")
def study() -> Study:
    return Study(WORDS, TEXTS, HashFamily(128), floor=0.5)


def workload_of(documents: float) -> Workload:
    return Workload(
        documents,
        collection=len(TEXTS),
        share=1.0,
        permutations=128,
        most_permutations=128,
        limits=StormLimits(None, 500),
    )


def row_of(study: Study, workload: Workload) -> TuningRow:
    (row,) = rows_of(study, workload, [0.8], [0.95])
    return row


def measurement(server: MadeUpServer, banding: Banding, exact_limit: int | None = None) -> Measurement:
    options = DetectorOptions("articles", WORDS, banding, 128, 1, 0.8, exact_limit=exact_limit)
    sample = Sample([f"d{at:02}" for at in range(len(TEXTS))], TEXTS, [None] * len(TEXTS), len(TEXTS), "first")
    return Measurement(server, options, sample, Partition("articles", 0))


def costs_of(measured: Measurement, study: Study, workload: Workload, row: TuningRow, bucket_layout: str) -> Costs:
    contents = contents_of(study, workload, row, workload.documents)
    return measured.costs(contents, study.buckets(row.banding, row.limits.bucket_cap).members, bucket_layout)


def content_bytes() -> float:
    """Return the mean length of what an entry of the sample stores, with a set of hashes."""
    server = MadeUpServer()
    measured = measurement(server, Banding(1, 1))
    with server.index(1, "sets") as store:
        fence = store.fence(Partition("articles", 0), 0, 0)
        measured._insert_entries(store, fence, EntryForm(WORDS, None), len(TEXTS))
    return sum(store.content.values()) / len(TEXTS)


class TestMeasurement:
    @pytest.mark.parametrize("documents", [10_000.0, 300_000.0, 5_000_000.0])
    def test_a_large_index_is_forecast_from_two_small_ones(self, study, documents):
        server, workload = MadeUpServer(), workload_of(documents)
        row = row_of(study, workload)
        costs = costs_of(measurement(server, row.banding), study, workload, row, "sets")
        form = EntryForm(WORDS, None)
        forecast = MemoryForecast(workload, {"sets": costs}, {form: 0.0}, form)
        contents = contents_of(study, workload, row, documents, filling=True)
        truth = bytes_of(documents, documents * content_bytes(), contents)
        assert forecast.total(study, row, "sets", None, filled_with=documents) == pytest.approx(truth, rel=0.01)
        assert max(server.sizes) <= SMALL

    def test_the_fixed_memory_of_a_band_does_not_grow_with_the_index(self, study):
        workload = workload_of(1_000_000.0)
        row = row_of(study, workload)
        costs = costs_of(measurement(MadeUpServer(), row.banding), study, workload, row, "packed")
        assert costs.fixed[1] == pytest.approx(PAGES, rel=0.01)
        assert costs.each[2:].tolist() == [MEMBER, CLAIM]

    def test_entries_of_other_forms_differ_by_their_content(self):
        server = MadeUpServer()
        signature, words, plain = EntryForm(WORDS, 0), EntryForm(PAIRS_OF_WORDS, None), EntryForm(WORDS, None)
        told: list[int] = []
        found = measurement(server, Banding(1, 1)).entry_bytes([signature, words, plain], told.append)
        assert told == [1, 1, 1]
        # 128 values of a signature in place of 28 or 29 hashes; one hash more, and one word fewer of the end.
        assert found[signature] - found[plain] == pytest.approx(4 * (128 - 29), abs=4)
        assert found[words] - found[plain] == pytest.approx(4 - 8, abs=1)

    @pytest.mark.parametrize("documents", [1.0, 360.0, 1_023.5, 5_000.0, 16_384.0, 16_385.0, 310_000.0, 1e9])
    def test_the_measured_index_is_the_forecast_one_halved_or_doubled(self, documents):
        size = measured_documents(documents)
        assert LEAST_DOCUMENTS <= size <= MOST_DOCUMENTS
        halvings = math.log2(documents / size)
        assert halvings == pytest.approx(round(halvings), abs=1e-3)
        if documents > MOST_DOCUMENTS:
            assert size >= MOST_DOCUMENTS / 2
        elif documents < LEAST_DOCUMENTS:
            assert size <= LEAST_DOCUMENTS * 2
        else:
            assert size == documents


class TestForecast:
    def test_parts_are_added_up_and_stored_for_their_lifetimes(self, study):
        workload = workload_of(1_000.0)
        row = row_of(study, workload)
        costs = Costs(np.array([7.0, 3.0, 0.0, 0.0]), np.array([100.0, 10.0, 8.0, 36.0]))
        signatures, exact = EntryForm(WORDS, 0), EntryForm(WORDS, None)
        bytes_of_entries = {signatures: 205.0, exact: 200.0}
        forecast = MemoryForecast(workload, {"packed": costs}, bytes_of_entries, exact)
        contents = contents_of(study, workload, row, 1_000.0)
        buckets = row.banding.bands * 3.0 + 10 * contents.buckets + 8 * (contents.members - contents.buckets)
        expected = 7 + 105 * 1_000 + 1.5 * buckets + 2.5 * 36 * contents.claims
        assert forecast.total(study, row, "packed", 0) == pytest.approx(expected)
        # Nothing is stored beyond a lifetime in an index that was filled once.
        filling = contents_of(study, workload, row, 1_000.0, filling=True)
        assert forecast.total(study, row, "packed", 0, filled_with=1_000.0) == pytest.approx(
            7 + 105 * 1_000 + buckets + 36 * filling.claims
        )

    def test_contents_are_those_of_the_sample_for_as_many_documents(self, study):
        row = row_of(study, workload_of(90.0))
        contents = contents_of(study, workload_of(90.0), row, 90.0)
        keys = study.band_keys(row.banding)
        documents = np.repeat(np.arange(len(keys)), study.distinct.copies)
        assert contents.members == 90 * row.banding.bands
        assert contents.buckets == sum(len(np.unique(keys[documents, band])) for band in range(row.banding.bands))

    def test_a_document_was_compared_with_half_of_an_index_that_was_filled_once(self, study):
        workload = workload_of(80.0)
        row = row_of(study, workload)
        row = row._replace(candidates=row.candidates._replace(matches=Growth(near=0.0, per_document=0.1)))
        assert contents_of(study, workload, row, 80.0).claims == pytest.approx(80 * 8)
        assert contents_of(study, workload, row, 80.0, filling=True).claims == pytest.approx(80 * 4)
        # Of documents beyond the collection it is not known whether they match; and no document has more claims than
        # candidates.
        assert contents_of(study, workload, row, 8_000.0).claims == pytest.approx(8_000 * 9)
        capped = row._replace(limits=StormLimits(None, 5))
        assert contents_of(study, workload, capped, 80.0).claims == pytest.approx(80 * 5)

    def test_buckets_fill_up_within_the_collection_and_others_come_beyond(self):
        copies = Study(WORDS, TEXTS[:30] * 3, HashFamily(128), floor=0.5)
        workload = dataclasses.replace(workload_of(9_000.0), collection=900)
        row = row_of(copies, workload)
        here, whole, beyond = (contents_of(copies, workload, row, count) for count in (90.0, 900.0, 9_000.0))
        # The second half of the sample brings no bucket that the first one has not.
        assert whole.buckets == here.buckets
        assert beyond.buckets == pytest.approx(10 * whole.buckets)
        assert beyond.members == pytest.approx(100 * here.members)

    def test_a_sample_without_words_has_entries_and_nothing_else(self):
        empty = Study(WORDS, ["...", "!!!"], HashFamily(128), floor=0.5)
        workload = workload_of(1_000.0)
        row = row_of(empty, workload)
        assert contents_of(empty, workload, row, 1_000.0) == Contents(1_000.0, row.banding.bands, 0.0, 0.0, 0.0)
        server = MadeUpServer()
        options = DetectorOptions("articles", WORDS, row.banding, 128, 1, 0.8)
        sample = Sample(["a", "b"], ["...", "!!!"], [None, None], 2, "first")
        costs = costs_of(Measurement(server, options, sample, Partition("articles", 0)), empty, workload, row, "sets")
        assert costs.fixed[1:3].tolist() == costs.each[1:3].tolist() == [0.0, 0.0]
        assert costs.each[0] > 0
