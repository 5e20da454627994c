"""The work of a daemon on a batch between poll and publish, in the steps of ``streamdedup.detection.detector``.

The first step computes the contents of appends from the stored entries, outside the server. An entry that changed
meanwhile is a conflict.
"""

from collections.abc import Generator, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tests.model.documents import (
    NOTHING_SUPPRESSED,
    Marker,
    Operation,
    Pair,
    Position,
    Record,
    Suppression,
    Texts,
    pair_key,
    with_incarnation,
)
from tests.model.errors import StoreUnavailable
from tests.model.index import Ask, Fence, InsertResult, InsertState, decide_version
from tests.model.rules import Rules
from tests.model.store import Step, Store

#: States of a record whose document is in the index because of this position.
INSERTED = (InsertState.CREATED, InsertState.REPLACED, InsertState.REPLAYED)
#: States of a record whose document may have had an entry before, and so claims.
RENEWED = (InsertState.REPLACED, InsertState.REPLAYED)


@dataclass(slots=True)
class Row:
    """A record of the batch, with its results."""

    operation: Operation
    position: Position
    #: Entry to insert; None when there is nothing to insert.
    new: Record | Marker | None = None
    #: Position of the entry that an append was computed from.
    base: Position | None = None
    state: InsertState = InsertState.UNKNOWN
    removals: tuple[tuple[int, ...], ...] = ()
    #: Whether to insert the document into buckets and look for matches.
    searching: bool = False
    matches: set[Pair] = field(default_factory=set)
    #: Pairs with candidates that are no matches, or suppressed.
    others: set[Pair] = field(default_factory=set)
    #: Suppressed pairs.
    suppressed: set[Pair] = field(default_factory=set)


@dataclass(slots=True)
class Publication:
    """Result of a batch."""

    #: Each pair with the position that publishes it.
    alerts: list[tuple[Pair, Position]] = field(default_factory=list)
    dead_letters: list[Position] = field(default_factory=list)


def split_batch(batch: Sequence[tuple[Position, Operation]]) -> Iterator[list[tuple[Position, Operation]]]:
    """Split a batch as ``daemon.batch.split_documents`` does."""
    chunk: list[tuple[Position, Operation]] = []
    for position, operation in batch:
        deletes = operation.kind == "delete"
        same = [(at, before) for at, before in chunk if before.doc == operation.doc]
        again = any(
            at.partition != position.partition
            or not before.kind == operation.kind == "upsert"
            or before.part != operation.part
            for at, before in same
        )
        if chunk and ((again and not deletes) or deletes != (chunk[0][1].kind == "delete")):
            yield chunk
            chunk = []
        chunk.append((position, operation))
    if chunk:
        yield chunk


class Detector:
    """Inserts batches into the index and finds pairs.

    Args:
        store: The index.
        texts: Band keys and similarity.
        window: Greatest difference of record times of a pair; None for no limit.
        rules: The rules.
        suppression: Rules about what is alerted.
    """

    def __init__(
        self,
        store: Store,
        texts: Texts,
        window: int | None,
        rules: Rules,
        *,
        suppression: Suppression = NOTHING_SUPPRESSED,
    ) -> None:
        self._store = store
        self._texts = texts
        self._window = window
        self._suppression = suppression
        self._rules = rules

    def index(
        self, batch: Sequence[tuple[Position, Operation]], fence_of: Mapping[int, Fence]
    ) -> Generator[Step, None, Publication]:
        """Index a batch, chunk by chunk; all steps may be repeated from the start."""
        whole = Publication()
        for chunk in split_batch(batch):
            publication = yield from self._index(chunk, fence_of)
            whole.alerts += publication.alerts
            whole.dead_letters += publication.dead_letters
        return whole

    def _index(
        self, batch: Sequence[tuple[Position, Operation]], fence_of: Mapping[int, Fence]
    ) -> Generator[Step, None, Publication]:
        fences = list(fence_of.values())
        rows = [Row(operation, position) for position, operation in batch]
        emitting = [
            row for row in rows if not self._rules.mark or row.position.offset >= fence_of[row.position.partition].mark
        ]
        # 1. Compute the contents of appends; save which appends found no document.
        yield from self._compose(rows)
        unknown = [
            row
            for row in emitting
            if row.operation.kind == "append" and row.new is None and row.state is InsertState.UNKNOWN
        ]
        if unknown and self._rules.unknown_saved:
            yield from self._store.save_pending_matches([(row.position, frozenset((None,))) for row in unknown], fences)
        # 2. Entries first.
        if self._rules.record_first:
            yield from self._insert(rows, fences)
            yield from self._remove_old_versions(rows, fences)
            candidates = yield from self._insert_and_look_up(rows, fences)
        else:
            candidates = yield from self._insert_and_look_up(
                [row for row in rows if isinstance(row.new, Record)], fences
            )
            yield from self._insert(rows, fences)
            yield from self._remove_old_versions(rows, fences)
        # 3. Verify.
        yield from self._verify([(row, found) for row, found in candidates if any(row is other for other in emitting)])
        # 4. Save the matches, and add those of an earlier attempt.
        saved = yield from self._save(
            [row for row in emitting if row.matches or row.state is not InsertState.CREATED], fences
        )
        # 5. Claim.
        appends = {row.position for row in rows if row.operation.kind == "append"}
        renewed = [row for row in rows if row.state in RENEWED and row.others] if self._rules.claims_followed else []
        publication = yield from self._claim(saved, renewed, appends, fences)
        if not self._rules.suppressed_unclaimed:
            suppressed = {(pair, row.position) for row in rows for pair in row.suppressed}
            publication.alerts = [alert for alert in publication.alerts if alert not in suppressed]
        if not self._rules.unknown_saved:
            publication.dead_letters = [row.position for row in unknown]
        return publication

    def _compose(self, rows: Sequence[Row]) -> Generator[Step, None, None]:
        """Set the entry of each row. For documents with appends, start from the stored entry and follow the batch."""
        followed = {row.operation.doc for row in rows if row.operation.kind == "append"}
        stored: dict[int, Record | Marker | None] = {}
        if followed:
            stored |= yield from self._store.get_entries(sorted(followed))
        for row in rows:
            kind, doc, part, time, source = row.operation
            if kind == "append":
                self._append(row, stored.get(doc))
            elif part is None:
                row.new = Marker(row.position, time)
            else:
                row.new = Record(doc, part, (part,), row.position, time, source)
            if doc in followed and row.new is not None:
                state = decide_version(stored.get(doc), row.new, self._rules)
                if state in (InsertState.CREATED, InsertState.REPLACED):
                    is_version = isinstance(row.new, Record)
                    stored[doc] = with_incarnation(row.new, stored.get(doc)) if is_version else row.new

    def _append(self, row: Row, old: Record | Marker | None) -> None:
        """Append to a document: in position order, and never twice."""
        _, doc, part, time, source = row.operation
        assert part is not None
        if old is not None and self._rules.append_ordered:
            same_partition = old.position.partition_incarnation == row.position.partition_incarnation
            if old.position == row.position:
                row.state = InsertState.REPLAYED
                row.new = old
                return
            if old.position.offset > row.position.offset if same_partition else old.time >= time:
                row.state = InsertState.SUPERSEDED
                return
        if not isinstance(old, Record):
            row.state = InsertState.UNKNOWN
        elif len(old.content) > 1 and old.content[-1] == part and old.time == time:
            # The same part with the same creation time: a retry of the producer.
            row.state = InsertState.REDELIVERED
        else:
            content = (*old.content, part)
            kept = old.source if self._rules.source_kept else source
            row.new = Record(doc, old.version, content, row.position, time, kept, old.incarnation)
            row.base = old.position

    def _insert(self, rows: Sequence[Row], fences: Sequence[Fence]) -> Generator[Step, None, None]:
        inserts = [row for row in rows if row.new is not None]
        results: list[InsertResult] = yield from self._store.insert_entries(
            [(row.operation.doc, row.new, row.base) for row in inserts if row.new is not None], fences
        )
        latest: dict[int, Row] = {}
        for row, result in zip(inserts, results, strict=True):
            if result.state is InsertState.CONFLICT:
                raise StoreUnavailable  # another partition has changed the document: repeat
            row.state, row.removals = result.state, result.removals
            if row.state is InsertState.REPLAYED and isinstance(result.stored, Record):
                row.new = result.stored
            elif row.state in INSERTED and isinstance(row.new, Record):
                row.new = with_incarnation(row.new, result.stored)
            elif row.state is InsertState.REDELIVERED and self._is_from_elsewhere(row, result.stored):
                row.new = result.stored
                row.searching = True
            if row.state in INSERTED or row.searching:
                row.searching = True
                # A version that is replaced within the batch is not inserted into buckets.
                if row.operation.doc in latest:
                    latest[row.operation.doc].state = InsertState.SUPERSEDED
                    latest[row.operation.doc].searching = False
                latest[row.operation.doc] = row

    def _is_from_elsewhere(self, row: Row, stored: Record | Marker | None) -> bool:
        """Tell whether the same text came from another partition, where it may be uncommitted."""
        return (
            self._rules.redeliveries_searched
            and stored is not None
            and stored.position.partition_incarnation != row.position.partition_incarnation
        )

    def _remove_old_versions(self, rows: Sequence[Row], fences: Sequence[Fence]) -> Generator[Step, None, None]:
        """Remove old versions from their buckets, then delete the record of these removals."""
        removing = [row for row in rows if row.removals and row.state in INSERTED]
        if removing and self._rules.old_versions_removed:
            entries = [
                (row.operation.doc, band, key)
                for row in removing
                for content in row.removals
                for band, key in enumerate(self._texts.band_keys(content))
                if not isinstance(row.new, Record) or self._texts.band_keys(row.new.content)[band] != key
            ]
            yield from self._store.remove_from_buckets(entries, fences)
        if removing:
            yield from self._store.forget_removals([(row.operation.doc, row.position) for row in removing], fences)
        deleted = [row.operation.doc for row in rows if isinstance(row.new, Marker) and row.state in INSERTED]
        if deleted and not self._rules.claims_outlive_deletion:
            yield from self._store.drop_claims(deleted, fences)

    def _insert_and_look_up(
        self, rows: Sequence[Row], fences: Sequence[Fence]
    ) -> Generator[Step, None, list[tuple[Row, set[int]]]]:
        to_insert = [
            (row, row.new)
            for row in rows
            if isinstance(row.new, Record) and (row.searching or not self._rules.record_first)
        ]
        if not to_insert:
            return []
        candidates = yield from self._store.insert_and_look_up(
            [(record.doc, self._texts.band_keys(record.content)) for _, record in to_insert], fences
        )
        return [(row, found) for (row, _), found in zip(to_insert, candidates, strict=True) if found]

    def _verify(self, candidates: Sequence[tuple[Row, set[int]]]) -> Generator[Step, None, None]:
        others = yield from self._store.get_entries(sorted({doc for _, found in candidates for doc in found}))
        for row, found in candidates:
            for doc in found:
                own, other = row.new, others.get(doc)
                if isinstance(own, Record) and isinstance(other, Record):
                    self._sort(row, own, other)

    def _sort(self, row: Row, own: Record, other: Record) -> None:
        """Add a compared pair to the matches of a row, to its suppressed pairs, or to its other pairs."""
        pair, symmetric = pair_key(own, other), self._rules.suppression_symmetric
        is_match = self._is_pair(own, other)
        if is_match and self._suppression.suppresses(own, other, symmetric=symmetric):
            row.suppressed.add(pair)
            is_match = not self._rules.suppressed_unclaimed
        (row.matches if is_match else row.others).add(pair)

    def _is_pair(self, a: Record, b: Record) -> bool:
        within = self._window is None or abs(a.time - b.time) <= self._window
        return within and self._texts.similar(a.content, b.content, symmetric=self._rules.containment_symmetric)

    def _save(
        self, rows: Sequence[Row], fences: Sequence[Fence]
    ) -> Generator[Step, None, list[tuple[Position, frozenset[Pair | None]]]]:
        found: list[tuple[Position, frozenset[Pair | None]]] = [(row.position, frozenset(row.matches)) for row in rows]
        if not found or not self._rules.pending_matches_saved:
            return found
        saved = yield from self._store.save_pending_matches(found, fences)
        return [(row.position, pairs) for row, pairs in zip(rows, saved, strict=True)]

    def _claim(
        self,
        saved: Sequence[tuple[Position, frozenset[Pair | None]]],
        renewed: Sequence[Row],
        appends: set[Position],
        fences: Sequence[Fence],
    ) -> Generator[Step, None, Publication]:
        publication = Publication(dead_letters=[position for position, pairs in saved if None in pairs])
        found = [(pair, position) for position, pairs in saved for pair in sorted(pairs, key=repr) if pair is not None]
        asked = [Ask(self._claim_key(pair, position, appends), position) for pair, position in found]
        asked += [
            Ask(self._claim_key(pair, row.position, appends), row.position, extending=True)
            for row in renewed
            for pair in sorted(row.others, key=repr)
        ]
        if asked and self._rules.pairs_claimed:
            owned = yield from self._store.claim_pairs(asked, fences)
            found = [claim for claim, own in zip(found, owned[: len(found)], strict=True) if own]
        publication.alerts = found
        return publication

    def _claim_key(self, pair: Pair, position: Position, appends: set[Position]) -> Hashable:
        """Return the key of a pair for claims: its versions, which an append keeps."""
        return pair if self._rules.version_kept or position not in appends else (pair, position)
