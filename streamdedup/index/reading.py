"""Reading an index without changing it: the Protocol ``IndexReader``, and the hits of documents in given buckets.

``detection.lookup`` calls a reader, for ``serve`` and ``library``. tests/contract/test_lookup.py tests both
implementations.
"""

from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from streamdedup.index.contract import EntryReading
from streamdedup.index.values import SHOWN_OF_FULL, ClusterCounts, Fingerprint, Hits, Opening

#: Chooses the shown members of full buckets; of its own, so that the library leaves the program's generator alone.
_random = Random()  # noqa: S311  no secret


class IndexReader(EntryReading, Protocol):
    """A profile's index for a process that owns no partition. Called from one thread.

    No method writes, so the server may be a replica. A daemon may insert and remove documents between two calls. All
    methods raise ``StoreUnavailable`` and ``StoreMisconfigured`` as those in ``index.contract``.
    """

    def check(self, fingerprint: Fingerprint) -> Opening | None:
        """Do as ``StoreHealth.open`` with ``create=False``, cheaply enough for every request.

        Raises ``StoreUnavailable`` while another process rebuilds the index.
        """

    def look_up(self, numbers: Sequence[int], band_keys: NDArray[np.uint32]) -> Hits:
        """Return the hits that ``insert_and_look_up`` would return for each document alone, without an insertion.

        Of a full bucket ``SHOWN_OF_FULL`` members are chosen at random, because an insertion may return any of them; a
        document that is a member itself gets all others. ``band_keys`` have the shape (n, bands) for n ``numbers``.
        """

    def look_up_copies(self, documents: Sequence[tuple[int, bytes]]) -> list[list[int]]:
        """Return the other members of each document's bucket of exact copies, as ``insert_copies`` does."""

    def read_cluster(self, cluster: int) -> tuple[ClusterCounts, list[int]]:
        """Return a cluster's counts, as ``set_clusters`` would, and the document numbers in its cluster set.

        The numbers are hints: the entries tell which documents still belong to the cluster. The first document, whose
        number names the cluster, may be missing among them.
        """

    def count_documents(self) -> int: ...

    def close(self) -> None: ...


def hits_of_members(numbers: Sequence[int], buckets: Sequence[Sequence[Sequence[int]]], bucket_cap: int | None) -> Hits:
    """Return the hits of documents of which ``buckets[row]`` has the members of each bucket."""
    candidates: list[dict[int, int]] = []
    full: Counter[int] = Counter()
    near_capacity: set[int] = set()
    for row, (number, document_buckets) in enumerate(zip(numbers, buckets, strict=True)):
        band_counts: dict[int, int] = {}
        for members in document_buckets:
            co_members = [member for member in members if member != number]
            is_member = len(co_members) < len(members)
            # A full bucket would refuse the document, unless it is a member, which gets all others.
            if bucket_cap is not None and len(members) >= bucket_cap and not is_member:
                full[row] += 1
                co_members = _random.sample(co_members, min(SHOWN_OF_FULL, len(co_members)))
            elif bucket_cap is not None and 2 * len(co_members) >= bucket_cap:
                near_capacity.add(row)
            for member in co_members:
                band_counts[member] = band_counts.get(member, 0) + 1
        candidates.append(band_counts)
    return Hits(candidates, full, frozenset(near_capacity))
