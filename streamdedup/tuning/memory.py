"""Memory of an index in Redis, forecast from what its parts cost on a real server (``tuning.measurement``).

An index consists of entries, buckets of one member, further members of buckets, and claims. The forecast counts them
and adds up their measured bytes:

    entries(N) + bands x buckets(B / bands) + (M - B) x member + C x claim

with N documents, B buckets and M members of all bands, and C claims. In the steady state, when as many documents expire
as are inserted, some parts are stored for more than one lifetime.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from streamdedup.text.shingles import ShingleOptions
from streamdedup.tuning.rows import Demand, Row
from streamdedup.tuning.study import Study


class EntryForm(NamedTuple):
    """What decides the size of an index entry.

    Attributes:
        shingles: Kind of shingles.
        exact_limit: Distinct shingles up to which a document is stored as a set; None for any number.
    """

    shingles: ShingleOptions
    exact_limit: int | None


class Contents(NamedTuple):
    """What an index holds.

    Attributes:
        entries: Index entries.
        bands: Bands of the banding.
        buckets: Buckets of all bands.
        members: Members of all buckets.
        claims: Pairs that are claimed in a lifetime.
    """

    entries: float
    bands: int
    buckets: float
    members: float
    claims: float


class Line(NamedTuple):
    """Bytes of n things: fixed + each x n."""

    each: float
    fixed: float

    def at(self, count: float) -> float:
        """Return the bytes of so many things, at least 0."""
        return max(self.fixed + self.each * count, 0.0)


class Costs(NamedTuple):
    """Bytes of the parts of an index.

    Attributes:
        entries: Of index entries.
        buckets: Of the buckets of one band, with one member each.
        member: Of a further member.
        claim: Of a claim.
    """

    entries: Line
    buckets: Line
    member: float
    claim: float


@dataclass(frozen=True, slots=True)
class Lifetimes:
    """For how many lifetimes parts of an index are stored in the steady state, mean.

    Attributes:
        members: Of bucket members, by layout.
        claims: Of claims.
    """

    members: Mapping[str, float]
    claims: float


class MemoryForecast:
    """Forecasts the memory of an index.

    Args:
        demand: Size of the index.
        lifetimes: Of its parts.
        costs: Of its parts, by bucket layout.
        differences: By how many bytes an entry of each form is larger than the entries of ``costs``, mean.
    """

    def __init__(
        self,
        demand: Demand,
        lifetimes: Lifetimes,
        costs: Mapping[str, Costs],
        differences: Mapping[EntryForm, float],
    ) -> None:
        self._demand = demand
        self._lifetimes = lifetimes
        self._costs = costs
        self._differences = differences

    def steady(self, study: Study, row: Row, bucket_layout: str, exact_limit: int | None) -> float:
        """Return the bytes of an index in its steady state.

        Args:
            study: The sample with the row's shingles.
            row: Bands of the index.
            bucket_layout: Name of the layout.
            exact_limit: Distinct shingles up to which a document is stored as a set; None for any number.
        """
        contents = contents_of(study, self._demand, row, self._demand.documents)
        contents = contents._replace(claims=contents.claims * self._lifetimes.claims)
        form = EntryForm(row.options, exact_limit)
        return self._bytes(contents, bucket_layout, form, self._lifetimes.members[bucket_layout])

    def filled(
        self, study: Study, row: Row, bucket_layout: str, exact_limit: int | None, documents: float | None = None
    ) -> float:
        """Return the bytes of an index that has just been filled for the first time, so that nothing has expired.

        Args:
            study: The sample with the row's shingles.
            row: Bands of the index.
            bucket_layout: Name of the layout.
            exact_limit: Distinct shingles up to which a document is stored as a set; None for any number.
            documents: Documents in the index; None for those of the demand.
        """
        count = self._demand.documents if documents is None else documents
        contents = contents_of(study, self._demand, row, count, filling=True)
        return self._bytes(contents, bucket_layout, EntryForm(row.options, exact_limit), 1.0)

    def _bytes(self, contents: Contents, bucket_layout: str, form: EntryForm, lifetimes: float) -> float:
        costs = self._costs[bucket_layout]
        entries = costs.entries.at(contents.entries) + contents.entries * self._differences[form]
        buckets = contents.bands * costs.buckets.at(contents.buckets / contents.bands)
        further = (contents.members - contents.buckets) * costs.member
        return entries + lifetimes * (buckets + further) + contents.claims * costs.claim


def contents_of(study: Study, demand: Demand, row: Row, documents: float, *, filling: bool = False) -> Contents:
    """Return what an index of so many documents holds.

    With twice the documents there are 2^g times the buckets, as from half of the sample to all of it; beyond the
    collection, documents bring buckets of their own.

    Args:
        study: The sample with the row's shingles.
        demand: Size of the collection.
        row: Bands of the index, and matches of its documents.
        documents: Documents in the index.
        filling: Whether it is filled for the first time, so that a document met half of the others in the mean.
    """
    bands = row.banding.bands
    meetings = study.meetings(row.banding.rows, bands)
    sizes = meetings.members(bands)
    halves = float(meetings.half_buckets[bands])
    exponent = min(max(math.log2(len(sizes) / halves), 0.0), 1.0) if halves else 1.0
    ratio = documents / max(study.documents_count, 1)
    known = min(ratio, demand.collection / max(study.documents_count, 1))
    matches = row.matches.at(min(documents, demand.collection) / (2 if filling else 1))
    return Contents(
        entries=documents,
        bands=bands,
        buckets=len(sizes) * (known**exponent * ratio / known if known > 1.0 else ratio),
        members=float(sizes.sum()) * ratio,
        claims=ratio * study.indexed_count * min(matches, demand.max_candidates or matches),
    )
