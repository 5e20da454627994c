"""From those a document met in its buckets to its verified partners.

Candidates are fetched and compared by their sketches, chunk by chunk. A template that arrives again and again
fills its buckets; a document that meets a full bucket is shown only some of its members, looks for exact copies of
itself in a bucket of its content, and is compared with few, so that its cost stays bounded however many came before.
"""

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from streamdedup.detection.entry_chunks import BUDGET_BYTES, EntryReader
from streamdedup.detection.model import DetectionResult, DetectorOptions, Prepared, pair_key, pair_side
from streamdedup.index.contract import DocumentStore
from streamdedup.index.documents import IndexEntry
from streamdedup.index.values import Fence, FoundNearCapacity
from streamdedup.similarity.sketch import Sketcher
from streamdedup.wire import Match

#: Candidates of a document that met a full bucket, exact copies included. With so few a document in a storm costs about
#: three times the ordinary, alert and all (`python -m benchmarks storm`).
STORM_CANDIDATES = 3
#: Exact copies among them, at most.
STORM_COPIES = 2


@dataclass(slots=True)
class Met:
    """What the buckets showed to a document.

    Attributes:
        candidates: Numbers of others, and in how many bands each was met.
        near_capacity: Whether a bucket was at least half full.
        full: Whether one was full, so that it showed only some of its members.
    """

    candidates: dict[int, int]
    near_capacity: bool = False
    full: bool = False


@dataclass(slots=True)
class _Comparisons:
    """Pairs to compare: rows of the batch, and the record that each is compared with."""

    rows: list[int] = field(default_factory=list)
    others: list[IndexEntry] = field(default_factory=list)


class Verifier:
    """Finds the near-duplicates among candidates.

    Args:
        options: What decides.
        store: Where the candidates' records are.
        sketcher: Compares.
        budget_bytes: Weight of the candidates' entries that are held at once, in bytes.
    """

    def __init__(
        self, options: DetectorOptions, store: DocumentStore, sketcher: Sketcher, budget_bytes: int = BUDGET_BYTES
    ) -> None:
        self._options = options
        self._store = store
        self._sketcher = sketcher
        self._reader = EntryReader(store, budget_bytes)

    def partners(
        self,
        prepared: Prepared,
        met: Mapping[int, Met],
        emitting: Sequence[int],
        renewed: AbstractSet[int],
        rights: list[Fence],
        outcome: DetectionResult,
    ) -> tuple[dict[int, dict[bytes, Match]], dict[int, set[bytes]]]:
        """Compare documents with their candidates.

        Args:
            prepared: The batch.
            met: By row, what the buckets showed.
            emitting: Rows that may emit pairs; only those are compared.
            renewed: Rows of documents that may have been in the index before.
            rights: Rights to write.
            outcome: Takes the counts.

        Returns:
            By row, its near-duplicates by pair key; by renewed row, the pair keys of the other documents that it met.
        """
        chosen = {row: self._promising(prepared.records[row], met[row], outcome) for row in emitting if row in met}
        kept = self._add_copies(prepared, met, chosen, rights)
        rows_of: dict[int, list[int]] = {}
        for row, numbers in chosen.items():
            for number in numbers:
                rows_of.setdefault(number, []).append(row)
        verified: dict[int, dict[int, tuple[bytes, Match]]] = {}
        others: dict[int, set[bytes]] = {row: set() for row in chosen if row in renewed}
        for entries in self._reader.chunks(rows_of, kept):
            _add_others(prepared, rows_of, entries, others)
            self._near_duplicates(prepared, self._comparisons(prepared, rows_of, entries), verified)
        partners = _in_order(chosen, verified)
        verified_count = sum(len(matches) for matches in partners.values())
        outcome.verified_count += verified_count
        outcome.rejected_count += sum(len(numbers) for numbers in chosen.values()) - verified_count
        return partners, {row: keys for row, seen in others.items() if (keys := seen - partners.get(row, {}).keys())}

    def _comparisons(
        self, prepared: Prepared, rows_of: Mapping[int, Sequence[int]], entries: Mapping[int, IndexEntry]
    ) -> _Comparisons:
        """Return the pairs of a chunk of candidates: each with the rows that chose it."""
        pairs = _Comparisons()
        for number, other in entries.items():
            if other.deleted:
                continue
            for row in rows_of[number]:
                if self._within_window(prepared.records[row], other):
                    pairs.rows.append(row)
                    pairs.others.append(other)
        return pairs

    def _promising(self, record: IndexEntry, met: Met, outcome: DetectionResult) -> list[int]:
        """Choose the candidates to verify: those met in most bands, then by number, which every attempt sorts alike."""
        candidates = met.candidates
        outcome.candidates_count += len(candidates)
        limit = self._options.max_candidates
        if met.full:
            limit = STORM_CANDIDATES if limit is None else min(limit, STORM_CANDIDATES)
        if limit is None or len(candidates) <= limit:
            return list(candidates)
        outcome.dropped_candidates_count += len(candidates) - limit
        if not met.full:
            outcome.over_candidates.append(record.position)
        return sorted(candidates, key=lambda number: (-candidates[number], number))[:limit]

    def _add_copies(
        self, prepared: Prepared, met: Mapping[int, Met], chosen: dict[int, list[int]], rights: list[Fence]
    ) -> dict[int, IndexEntry]:
        """Put exact copies in the first places of the candidates chosen for a document that met a full bucket.

        A document that meets a bucket that is half full notes its own content and that of all its members, so that all
        in it are noted long before it is full and hides most of them.

        Returns:
            Entries of members that were read, as many as the budget allows to keep.
        """
        near_capacity = [row for row, seen in met.items() if seen.near_capacity]
        if not near_capacity:
            return {}
        members, kept = self._members(prepared, met, [row for row in near_capacity if not met[row].full], rights)
        own = [(prepared.records[row].number, prepared.records[row].digest) for row in near_capacity]
        copies = self._store.insert_copies(own, rights, members)
        for row, numbers in zip(near_capacity, copies, strict=True):
            if met[row].full and row in chosen:
                chosen[row] = list(dict.fromkeys([*numbers[:STORM_COPIES], *chosen[row]]))[:STORM_CANDIDATES]
        return kept

    def _members(
        self, prepared: Prepared, met: Mapping[int, Met], rows: Sequence[int], rights: list[Fence]
    ) -> tuple[FoundNearCapacity | None, dict[int, IndexEntry]]:
        """Read the members of the buckets of documents that met crowded ones.

        They are met once more after the departures were counted, and read after that: what was deleted before the count
        is not met any more, and what is deleted after it is not inserted (``Index.insert_copies``).

        Returns:
            The members with their digests, None without any; entries that were read, as many as the budget allows to
            keep.
        """
        if not rows:
            return None, {}
        removals = self._store.copy_removals()
        numbers = [prepared.records[row].number for row in rows]
        still_there = set().union(*self._store.insert_and_look_up(numbers, prepared.band_keys[rows], rights).candidates)
        # Not those that came after: a pair with one of them belongs in its alert.
        members = sorted(still_there & {number for row in rows for number in met[row].candidates})
        noted: list[tuple[int, bytes]] = []
        kept: dict[int, IndexEntry] = {}
        for entries in self._reader.chunks(members):
            noted += [(entry.number, entry.digest) for entry in entries.values() if not entry.deleted]
            if self._reader.with_room(entries, kept):
                kept |= entries
        return FoundNearCapacity(sorted(noted), removals), kept

    def _within_window(self, a: IndexEntry, b: IndexEntry) -> bool:
        window, silent_until = self._options.window_ms, self._options.silent_until_ms
        if silent_until is not None and max(a.time_ms, b.time_ms) < silent_until:
            return False
        return window is None or abs(a.time_ms - b.time_ms) <= window

    def _near_duplicates(
        self, prepared: Prepared, pairs: _Comparisons, verified: dict[int, dict[int, tuple[bytes, Match]]]
    ) -> None:
        """Compare all pairs of a chunk; of equal contents only one pair, for the others are as similar.

        Args:
            prepared: The batch.
            pairs: The pairs; those of one candidate are in one chunk.
            verified: Takes the near-duplicates: by row and number of the other document, pair key and match.
        """
        if not pairs.rows:
            return
        records = prepared.records
        contents = [(records[row].digest, other.digest) for row, other in zip(pairs.rows, pairs.others, strict=True)]
        place: dict[tuple[bytes, bytes], int] = {}
        for content in contents:
            place.setdefault(content, len(place))
        first = _first_of_each(contents, place)
        compared = self._compare(prepared, [pairs.rows[at] for at in first], [pairs.others[at] for at in first])
        made: dict[tuple[int, int], Match] = {}
        sides = {row: pair_side(records[row]) for row in set(pairs.rows)}
        sides_of_others = {other.number: pair_side(other) for other in pairs.others}
        for row, other, content in zip(pairs.rows, pairs.others, contents, strict=True):
            at = place[content]
            outcome = compared[at]
            if outcome is None:
                continue
            match = made.get((other.number, at))
            if match is None:
                match = made[other.number, at] = self._match(other, *outcome)
            key = pair_key(sides[row], sides_of_others[other.number])
            verified.setdefault(row, {})[other.number] = key, match

    def _compare(
        self, prepared: Prepared, rows: Sequence[int], others: Sequence[IndexEntry]
    ) -> list[tuple[float, bool, int] | None]:
        """Return for each pair similarity, whether it is exact, and shared bands; None for one that is not near."""
        options = self._options
        own, distinct = list(dict.fromkeys(rows)), {other.number: other.content.sketch for other in others}
        row_at = {row: at for at, row in enumerate(own)}
        other_at = {number: at for at, number in enumerate(distinct)}
        similarities = self._sketcher.similarities(
            [prepared.records[row].content.sketch for row in own],
            list(distinct.values()),
            [(row_at[row], other_at[other.number]) for row, other in zip(rows, others, strict=True)],
        )
        near = np.flatnonzero(similarities.values >= options.threshold).tolist()
        shared = self._shared_bands(prepared, [rows[at] for at in near], [others[at] for at in near])
        compared: list[tuple[float, bool, int] | None] = [None] * len(rows)
        for at, shared_bands in zip(near, shared.tolist(), strict=True):
            if shared_bands >= options.min_shared_bands:
                compared[at] = float(similarities.values[at]), bool(similarities.exact[at]), shared_bands
        return compared

    def _shared_bands(self, prepared: Prepared, rows: Sequence[int], others: Sequence[IndexEntry]) -> NDArray[np.int64]:
        """Count the band keys that the sides of each pair share."""
        banding = self._options.banding
        distinct = {other.number: other.content.sketch for other in others}
        place = {number: at for at, number in enumerate(distinct)}
        keys = banding.band_keys(self._sketcher.signatures(list(distinct.values()), banding.permutations))
        theirs = [place[other.number] for other in others]
        shared: NDArray[np.int64] = (keys[theirs] == prepared.band_keys[list(rows)]).sum(axis=1)
        return shared

    def _match(self, other: IndexEntry, similarity: float, exact: bool, shared_bands: int) -> Match:
        options = self._options
        return Match(
            id=other.id,
            digest=other.digest.hex(),
            position=other.position,
            similarity=similarity,
            method="exact" if exact else "estimated",
            standard_error=0.0 if exact else options.measure.standard_error(similarity, options.permutations),
            shared_bands=shared_bands,
        )


def _add_others(
    prepared: Prepared,
    rows_of: Mapping[int, Sequence[int]],
    entries: Mapping[int, IndexEntry],
    others: Mapping[int, set[bytes]],
) -> None:
    """Add the pair keys of a chunk of candidates to those of the rows in ``others`` that chose them."""
    for number, entry in entries.items():
        for row in rows_of[number]:
            if row in others and not entry.deleted:
                others[row].add(pair_key(pair_side(prepared.records[row]), pair_side(entry)))


def _in_order(
    chosen: Mapping[int, Sequence[int]], verified: Mapping[int, Mapping[int, tuple[bytes, Match]]]
) -> dict[int, dict[bytes, Match]]:
    """Return the near-duplicates of each row by pair key, in the order of its candidates: no chunk changes it."""
    return {
        row: dict(verified[row][number] for number in numbers if number in verified[row])
        for row, numbers in chosen.items()
        if row in verified
    }


def _first_of_each(contents: Iterable[tuple[bytes, bytes]], place: Mapping[tuple[bytes, bytes], int]) -> list[int]:
    """Return where each distinct pair of contents occurs first, in the order of their places."""
    first: dict[int, int] = {}
    for at, content in enumerate(contents):
        first.setdefault(place[content], at)
    return list(first.values())
