"""What a daemon does with a batch between poll and publish; the steps are those of ``streamdedup.detection.detector``.

Compositions, the first step, are what appends need: the new content is computed from the record that stands there,
outside the server, and put with the position that it was computed from.
"""

from collections.abc import Generator, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tests.model.documents import Marker, Operation, Pair, Position, Record, Texts, pair_key
from tests.model.errors import StoreUnavailable
from tests.model.index import Ask, InsertState, Listed, ListedClaim, Put, Right, decide_version
from tests.model.rules import Rules
from tests.model.store import Step, Store

#: States after which a document is in the index because of this position.
PLACED = (InsertState.CREATED, InsertState.REPLACED, InsertState.REPLAYED)
#: States after which the document may have had an index entry before, and so claims.
RENEWED = (InsertState.REPLACED, InsertState.REPLAYED)


@dataclass(slots=True)
class Row:
    """A record of the batch on its way through the steps."""

    operation: Operation
    position: Position
    #: What to put; None when there is nothing to put.
    new: Record | Marker | None = None
    #: The position of the record that an append was computed from.
    base: Position | None = None
    state: InsertState = InsertState.UNKNOWN
    shed: tuple[tuple[int, ...], ...] = ()
    #: Whether to enter the buckets and look for partners.
    searching: bool = False
    partners: set[Pair] = field(default_factory=set)
    #: Pairs with those it met that are no partners.
    others: set[Pair] = field(default_factory=set)


@dataclass(slots=True)
class Outcome:
    """What a batch publishes."""

    #: Each pair with the position that reports it.
    alerts: list[tuple[Pair, Position]] = field(default_factory=list)
    dead_letters: list[Position] = field(default_factory=list)


def runs(batch: Sequence[tuple[Position, Operation]]) -> Iterator[list[tuple[Position, Operation]]]:
    """Split a batch as ``daemon.batch.split_documents`` does."""
    run: list[tuple[Position, Operation]] = []
    for position, operation in batch:
        deletes = operation.kind == "delete"
        same = [(at, before) for at, before in run if before.doc == operation.doc]
        again = any(
            at.partition != position.partition
            or not before.kind == operation.kind == "upsert"
            or before.part != operation.part
            for at, before in same
        )
        if run and ((again and not deletes) or deletes != (run[0][1].kind == "delete")):
            yield run
            run = []
        run.append((position, operation))
    if run:
        yield run


class Detector:
    """Places batches in the index and finds pairs.

    Args:
        store: The index.
        texts: Band keys and similarity.
        window: Greatest difference of record times of a pair; None for no limit.
        rules: The rules.
        ages: Whether what is placed is listed, to be taken out later.
    """

    def __init__(self, store: Store, texts: Texts, window: int | None, rules: Rules, *, ages: bool = False) -> None:
        self._store = store
        self._ages = ages
        self._texts = texts
        self._window = window
        self._rules = rules

    def index(
        self, batch: Sequence[tuple[Position, Operation]], rights_by_partition: Mapping[int, Right]
    ) -> Generator[Step, None, Outcome]:
        """Take a batch through the index, a run of it after the other; all may be repeated from the start."""
        whole = Outcome()
        for run in runs(batch):
            outcome = yield from self._index(run, rights_by_partition)
            whole.alerts += outcome.alerts
            whole.dead_letters += outcome.dead_letters
        return whole

    def _index(
        self, batch: Sequence[tuple[Position, Operation]], rights_by_partition: Mapping[int, Right]
    ) -> Generator[Step, None, Outcome]:
        rights = list(rights_by_partition.values())
        rows = [Row(operation, position) for position, operation in batch]
        emitting = [
            row
            for row in rows
            if not self._rules.mark or row.position.offset >= rights_by_partition[row.position.partition].mark
        ]
        # 1. Compose what appends make, note those that met no document.
        yield from self._compose(rows)
        unknown = [
            row
            for row in emitting
            if row.operation.kind == "append" and row.new is None and row.state is InsertState.UNKNOWN
        ]
        if unknown and self._rules.unknown_noted:
            yield from self._store.save_pending_matches([(row.position, frozenset((None,))) for row in unknown], rights)
        # 2. Record first.
        if self._rules.record_first:
            yield from self._put(rows, rights)
            yield from self._leave(rows, rights)
            met = yield from self._enter(rows, rights)
        else:
            met = yield from self._enter([row for row in rows if isinstance(row.new, Record)], rights)
            yield from self._put(rows, rights)
            yield from self._leave(rows, rights)
        placed = [(row.new, row.position) for row in rows if row.state in PLACED]
        yield from self._list([(new, at) for new, at in placed if isinstance(new, Record)], rights)
        # 3. Verify.
        yield from self._verify([(row, found) for row, found in met if any(row is other for other in emitting)])
        # 4. Save the partners, take up those of an earlier attempt.
        saved = yield from self._save(
            [row for row in emitting if row.partners or row.state is not InsertState.CREATED], rights
        )
        # 5. Claim.
        appends = {row.position for row in rows if row.operation.kind == "append"}
        met_again = [row for row in rows if row.state in RENEWED and row.others] if self._rules.claims_followed else []
        outcome = yield from self._claim(
            saved, met_again, appends, {row.position: row.operation.time for row in rows}, rights
        )
        if not self._rules.unknown_noted:
            outcome.dead_letters = [row.position for row in unknown]
        return outcome

    def _compose(self, rows: Sequence[Row]) -> Generator[Step, None, None]:
        """Say what each row puts. Ids with an append among them are followed from the record that stands there."""
        followed = {row.operation.doc for row in rows if row.operation.kind == "append"}
        standing: dict[int, Record | Marker | None] = {}
        if followed:
            standing |= yield from self._store.get_entries(sorted(followed))
        for row in rows:
            kind, doc, part, time = row.operation
            if kind == "append":
                self._append(row, standing.get(doc))
            elif part is None:
                row.new = Marker(row.position, time)
            else:
                row.new = Record(doc, part, (part,), row.position, time)
            if doc in followed and row.new is not None:
                state = decide_version(standing.get(doc), row.new, self._rules)
                if state in (InsertState.CREATED, InsertState.REPLACED):
                    standing[doc] = row.new

    def _append(self, row: Row, old: Record | Marker | None) -> None:
        """Continue a document: by position order, as for any version, and never twice."""
        _, doc, part, time = row.operation
        assert part is not None
        if old is not None and self._rules.append_ordered:
            same_partition = old.position.log == row.position.log
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
            # The same part with the same time of creation: the producer's client has sent it twice.
            row.state = InsertState.REDELIVERED
        else:
            content = (*old.content, part)
            row.new = Record(doc, old.version, content, row.position, time)
            row.base = old.position

    def _put(self, rows: Sequence[Row], rights: Sequence[Right]) -> Generator[Step, None, None]:
        put = [row for row in rows if row.new is not None]
        results: list[Put] = yield from self._store.insert_entries(
            [(row.operation.doc, row.new, row.base) for row in put if row.new is not None], rights
        )
        latest: dict[int, Row] = {}
        for row, result in zip(put, results, strict=True):
            if result.state is InsertState.CONFLICT:
                raise StoreUnavailable  # another partition has changed the document: compose anew
            row.state, row.shed = result.state, result.shed
            if row.state is InsertState.REPLAYED and isinstance(result.standing, Record):
                row.new = result.standing
            elif row.state is InsertState.REDELIVERED and self._is_from_elsewhere(row, result.standing):
                row.new = result.standing
                row.searching = True
            if row.state in PLACED or row.searching:
                row.searching = True
                # A version replaced within the batch does not enter the buckets.
                if row.operation.doc in latest:
                    latest[row.operation.doc].state = InsertState.SUPERSEDED
                    latest[row.operation.doc].searching = False
                latest[row.operation.doc] = row

    def _is_from_elsewhere(self, row: Row, standing: Record | Marker | None) -> bool:
        """Tell whether the same text came from another partition, where it need not be committed yet."""
        return self._rules.redeliveries_searched and standing is not None and standing.position.log != row.position.log

    def _leave(self, rows: Sequence[Row], rights: Sequence[Right]) -> Generator[Step, None, None]:
        """Leave the buckets of versions that are gone, then forget that they are to be left."""
        shedding = [row for row in rows if row.shed and row.state in PLACED]
        if shedding and self._rules.buckets_left:
            entries = [
                (row.operation.doc, band, key)
                for row in shedding
                for content in row.shed
                for band, key in enumerate(self._texts.band_keys(content))
                if not isinstance(row.new, Record) or self._texts.band_keys(row.new.content)[band] != key
            ]
            yield from self._store.remove_from_buckets(entries, rights)
        if shedding:
            yield from self._store.settle([(row.operation.doc, row.position) for row in shedding], rights)
        deleted = [row.operation.doc for row in rows if isinstance(row.new, Marker) and row.state in PLACED]
        if deleted and not self._rules.claims_outlive_deletion:
            yield from self._store.drop_claims(deleted, rights)

    def _enter(self, rows: Sequence[Row], rights: Sequence[Right]) -> Generator[Step, None, list[tuple[Row, set[int]]]]:
        entering = [
            (row, row.new)
            for row in rows
            if isinstance(row.new, Record) and (row.searching or not self._rules.record_first)
        ]
        if not entering:
            return []
        met = yield from self._store.insert_and_look_up(
            [(record.doc, self._texts.band_keys(record.content)) for _, record in entering], rights
        )
        return [(row, found) for (row, _), found in zip(entering, met, strict=True) if found]

    def _list(self, placed: Sequence[tuple[Record, Position]], rights: Sequence[Right]) -> Generator[Step, None, None]:
        """Note what is to be taken out when its time is over; repeated with each attempt, it is noted twice."""
        if placed and self._ages:
            yield from self._store.list_placed([Listed(new.doc, at, new.time) for new, at in placed], rights)

    def age(self, due: Sequence[Listed], right: Right) -> Generator[Step, None, None]:
        """Take documents out whose time is over: leave before change."""
        standing = yield from self._store.get_entries(sorted({entry.doc for entry in due}))
        old = [entry for entry in due if self._is_still_at(entry, standing.get(entry.doc))]
        entries = [
            (doc, band, key)
            for doc in {entry.doc for entry in old}
            if isinstance(record := standing[doc], Record)
            for band, key in enumerate(self._texts.band_keys(record.content))
        ]
        if entries:
            yield from self._store.remove_from_buckets(sorted(entries), [right])
        if old:
            yield from self._store.drop_entries(old, right)

    def _is_still_at(self, entry: Listed, standing: Record | Marker | None) -> bool:
        if not self._rules.aged_where_listed:
            return isinstance(standing, Record)
        return isinstance(standing, Record) and standing.position == entry.position

    def _verify(self, met: Sequence[tuple[Row, set[int]]]) -> Generator[Step, None, None]:
        others = yield from self._store.get_entries(sorted({doc for _, found in met for doc in found}))
        for row, found in met:
            for doc in found:
                own, other = row.new, others.get(doc)
                if isinstance(own, Record) and isinstance(other, Record):
                    (row.partners if self._is_pair(own, other) else row.others).add(pair_key(own, other))

    def _is_pair(self, a: Record, b: Record) -> bool:
        within = self._window is None or abs(a.time - b.time) <= self._window
        return within and self._texts.similar(a.content, b.content)

    def _save(
        self, rows: Sequence[Row], rights: Sequence[Right]
    ) -> Generator[Step, None, list[tuple[Position, frozenset[Pair | None]]]]:
        found: list[tuple[Position, frozenset[Pair | None]]] = [(row.position, frozenset(row.partners)) for row in rows]
        if not found or not self._rules.partners_saved:
            return found
        saved = yield from self._store.save_pending_matches(found, rights)
        return [(row.position, pairs) for row, pairs in zip(rows, saved, strict=True)]

    def _claim(
        self,
        saved: Sequence[tuple[Position, frozenset[Pair | None]]],
        met_again: Sequence[Row],
        appends: set[Position],
        times: Mapping[Position, int],
        rights: Sequence[Right],
    ) -> Generator[Step, None, Outcome]:
        outcome = Outcome(dead_letters=[position for position, pairs in saved if None in pairs])
        found = [(pair, position) for position, pairs in saved for pair in sorted(pairs, key=repr) if pair is not None]
        asked = [Ask(self._claim_key(pair, position, appends), position) for pair, position in found]
        asked += [
            Ask(self._claim_key(pair, row.position, appends), row.position, extending=True)
            for row in met_again
            for pair in sorted(row.others)
        ]
        if asked and self._rules.pairs_claimed:
            owned = yield from self._store.claim_pairs(asked, rights)
            if self._ages:
                yield from self._store.list_claims(
                    [ListedClaim(ask.pair, ask.position, times[ask.position]) for ask in asked], rights
                )
            found = [claim for claim, own in zip(found, owned[: len(found)], strict=True) if own]
        outcome.alerts = found
        return outcome

    def _claim_key(self, pair: Pair, position: Position, appends: set[Position]) -> Hashable:
        """Name a pair in claims: by the versions, which an append keeps."""
        return pair if self._rules.version_kept or position not in appends else (pair, position)
