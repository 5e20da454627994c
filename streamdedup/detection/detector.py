"""The engine: documents in, detections out.

It knows texts, signatures and an ``Index``; it knows no Kafka, no clock, no metric and no settings file. A batch
passes through two stages that stay separate calls: ``prepare`` only computes, ``index`` only talks to the store and
compares.

The pairs that a stream yields do not depend on the order of arrival, on batches or on how many daemons share the
work: P is the set of all pairs of documents that have at least ``min_shared_bands`` band keys in common, lie within
the window and have a similarity of at least the threshold. All three conditions are symmetric and computed from the
two sketches alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from streamdedup.detection.clusters import StarFinder
from streamdedup.detection.content import contents_of
from streamdedup.detection.lifecycle import Changes, collision, in_its_incarnation
from streamdedup.detection.model import (
    Detection,
    DetectionResult,
    DetectorOptions,
    Prepared,
    Skip,
    document_number,
)
from streamdedup.detection.verification import Met, Verifier
from streamdedup.index.contract import Index
from streamdedup.index.documents import (
    Content,
    IndexEntry,
    InsertResult,
    InsertState,
    PendingMatches,
    decide_version,
)
from streamdedup.index.values import Fence, Listed, ListedClaim, ListedDocument
from streamdedup.position import Partition, Position
from streamdedup.similarity.minhash import HashFamily
from streamdedup.similarity.sketch import Sketcher
from streamdedup.text.shingles import Shingler
from streamdedup.wire import Document, Match, content_digest

#: States of a record that is not indexed, without being a mistake.
_PASSED_OVER = {InsertState.REDELIVERED: Skip.REDELIVERED, InsertState.SUPERSEDED: Skip.SUPERSEDED}

#: States of a record whose version is in the index afterwards.
_INDEXED = (InsertState.CREATED, InsertState.REPLACED, InsertState.REPLAYED)

#: States of a record whose document may have had an index entry before, and so claims.
_RENEWED = (InsertState.REPLACED, InsertState.REPLAYED)


class Detector:
    """Finds near-duplicates among documents of one profile.

    Args:
        options: What decides.
        store: Where the index lives; already open.
    """

    def __init__(self, options: DetectorOptions, store: Index) -> None:
        self._options = options
        self._store = store
        self._shingler = Shingler(options.shingles)
        family = HashFamily(options.permutations, options.seed)
        self._sketcher = Sketcher(family, options.exact_limit, options.banding.permutations, options.measure)
        self._verifier = Verifier(options, store, self._sketcher)
        self._changes = Changes(options, store, self._shingler, self._sketcher)
        self._stars = StarFinder(store, self._sketcher, options.threshold)

    @property
    def store(self) -> Index:
        """The store that the index lives in."""
        return self._store

    # Stage one: compute

    def prepare(self, documents: Sequence[Document]) -> Prepared:
        """Compute everything about a batch that needs no store: shingles, sketches, band keys.

        Args:
            documents: Documents to place in the index or to continue, in the order of their positions within each
                partition. Of what may be replayed each is there once, unless its partition brings the same text again.
        """
        placed = [document for document in documents if document.op != "append"]
        shingles = self._shingler.shingle([document.text for document in placed])
        sketches, signatures = self._sketcher.make(shingles.hashes, shingles.offsets)
        contents = contents_of(shingles, sketches)
        records = [self._record(document, content) for document, content in zip(placed, contents, strict=True)]
        skips = self._skips(shingles.token_counts, np.diff(shingles.offsets))
        appends = [document for document in documents if document.op == "append"]
        return Prepared(placed, records, self._options.banding.band_keys(signatures), skips, appends)

    def _skips(self, token_counts: NDArray[np.int64], shingle_counts: NDArray[np.int64]) -> dict[int, Skip]:
        """Return by row why a document enters no bucket.

        Args:
            token_counts: Tokens of each document, int64 (n,).
            shingle_counts: Shingles of each, int64 (n,).
        """
        least = self._options.min_words
        rows = np.flatnonzero((shingle_counts == 0) | (token_counts < least)).tolist()
        few = {True: Skip.TOO_FEW_WORDS, False: Skip.TOO_SHORT}
        return {row: few[bool(token_counts[row] < least)] if token_counts[row] else Skip.EMPTY for row in rows}

    def _record(self, document: Document, content: Content) -> IndexEntry:
        number = document_number(self._options.profile, document.id)
        return IndexEntry(
            number=number,
            id=document.id,
            digest=content_digest(document.text),
            position=document.position,
            time_ms=document.time_ms,
            cluster=number,
            content=content,
        )

    # Stage two: the index

    def delete(self, documents: Sequence[Document], fences: Mapping[Partition, Fence]) -> DetectionResult:
        """Take documents out of the index, with everything known of them but a marker.

        Args:
            documents: What is to be deleted, in the order of their positions within each partition.
            fences: The right to write for every partition concerned.

        Raises:
            StoreUnavailable: Try the batch again.
            BatchRefused: A partition is no longer ours; drop the batch.
            IndexLost: The index is gone.
        """
        self._changes.delete(documents, list(fences.values()))
        return DetectionResult(deleted_count=len(documents))

    def listed(self, documents: Sequence[Document], asked: Sequence[tuple[bytes, Position]]) -> Listed:
        """Name documents, and the claims that they asked for, as the index lists them.

        Args:
            documents: Which.
            asked: Pairs that these and others have asked for, each with the position.
        """
        times = {document.position: document.time_ms for document in documents}
        return Listed(
            [
                ListedDocument(document_number(self._options.profile, document.id), document.position, document.time_ms)
                for document in documents
            ],
            [ListedClaim(pair_key, position, times[position]) for pair_key, position in asked if position in times],
        )

    def evict(self, listed: Listed, fence: Fence) -> int:
        """Remove expired documents from the index, where they are still at the position that is listed.

        Args:
            listed: The first listed documents and claims of a partition.
            fence: Right to write for the partition.

        Returns:
            How many documents were.

        Raises:
            StoreUnavailable: Try again.
            BatchRefused: The partition is no longer ours.
            IndexLost: The index is gone.
        """
        return self._changes.evict(listed, fence)

    def index(self, prepared: Prepared, fences: Mapping[Partition, Fence]) -> DetectionResult:
        """Place a prepared batch in the index and find its near-duplicates.

        Every step may be repeated: a batch that failed half-way is indexed again from the start, and a pair is
        emitted by the same position as the first time.

        Steps, each a call to the store (the rules: ``index.contract``):
            1. Put the records: from now on they are the authority. Continue the documents that are continued, and take
               old versions out of their buckets before they are replaced.
            2. Enter the buckets and meet candidates.
            3. Verify the candidates: window, shared bands, similarity.
            4. Save the verified partners, and take up those saved by an earlier attempt.
            5. Claim the pairs.
            6. Find the cluster of each document that has pairs.

        Args:
            prepared: The batch.
            fences: The right to write for every partition that the batch has records of.

        Raises:
            StoreUnavailable: Try the batch again.
            BatchRefused: A partition is no longer ours; drop the batch.
            IndexLost: The index is gone.
        """
        rights = list(fences.values())
        outcome = DetectionResult()
        # 1. Record first; leave before change.
        results = self._put(prepared.records, rights)
        prepared, results = self._continue(prepared, results, rights, outcome)
        self._replace(prepared, results, rights)
        states = [result.state for result in results]
        _take_first_attempts(prepared.records, results)
        again = _take_what_stands_elsewhere(prepared, results)
        # 2. Add before read.
        placed = [row for row, state in enumerate(states) if state in _INDEXED or row in again]
        entering = [row for row in placed if row not in prepared.skips]
        met = self._enter(prepared, entering, rights, outcome)
        emitting = self._count_states(prepared, states, results, fences, outcome)
        # 3. Verify.
        renewed = {row for row in emitting if states[row] in _RENEWED}
        verified, others = self._verifier.partners(prepared, met, emitting, renewed, rights, outcome)
        # 4. Save the partners.
        partners = self._save_pending_matches(prepared, emitting, states, verified, rights)
        # 5. Claim.
        outcome.pending_positions += [prepared.documents[row].position for row, saved in partners.items() if saved]
        owned = self._claim(prepared, partners, others, rights, outcome)
        # 6. Clusters.
        self._detect(prepared, owned, rights, outcome)
        return outcome

    def _put(self, records: Sequence[IndexEntry], rights: list[Fence]) -> list[InsertResult]:
        """Put the records, of each document the version that stands at the end of the batch."""
        results = _within_batch(records)
        if records and not results:
            return self._store.insert_entries(records, rights)
        rows = [row for row in range(len(records)) if row not in results]
        if rows:
            put = self._store.insert_entries([records[row] for row in rows], rights)
            results.update(zip(rows, put, strict=True))
        return [results[row] for row in range(len(records))]

    def _continue(
        self, prepared: Prepared, results: list[InsertResult], rights: list[Fence], outcome: DetectionResult
    ) -> tuple[Prepared, list[InsertResult]]:
        """Add to a batch what comes of those that continue a document."""
        if not prepared.appends:
            return prepared, results
        continued = self._changes.continued(prepared.appends, rights, outcome)
        contents = [record.content for record in continued.records]
        sketches = [content.sketch for content in contents]
        token_counts = np.array([content.token_count for content in contents], np.int64)
        skips = self._skips(token_counts, np.array([sketch.count for sketch in sketches], np.int64))
        whole = Prepared(
            [*prepared.documents, *continued.documents],
            [*prepared.records, *continued.records],
            np.concatenate([prepared.band_keys, self._changes.band_keys(sketches)]),
            {**prepared.skips, **{len(prepared.records) + row: why for row, why in skips.items()}},
        )
        return whole, [*results, *continued.results]

    def _replace(self, prepared: Prepared, results: Sequence[InsertResult], rights: list[Fence]) -> None:
        """Take old versions out of their buckets, then put the new ones in their place."""
        rows = [row for row, result in enumerate(results) if result.state is InsertState.REPLACED]
        if rows:
            old = {row: record for row in rows if (record := results[row].previous) is not None}
            for row, record in old.items():
                prepared.records[row] = in_its_incarnation(prepared.records[row], record)
            self._changes.withdraw([record for record in old.values() if not record.deleted], rights)
            self._store.replace_entries([prepared.records[row] for row in rows], rights)

    def _enter(
        self, prepared: Prepared, entering: list[int], rights: list[Fence], outcome: DetectionResult
    ) -> dict[int, Met]:
        """Return for each row that met others what the buckets showed."""
        if not entering:
            return {}
        numbers = [prepared.records[row].number for row in entering]
        hits = self._store.insert_and_look_up(numbers, prepared.band_keys[entering], rights)
        outcome.full_buckets_count = hits.full_buckets_count
        outcome.before_full_buckets = [prepared.documents[entering[at]].position for at in sorted(hits.full)]
        return {
            row: Met(met, near_capacity=at in hits.near_capacity, full=at in hits.full)
            for at, (row, met) in enumerate(zip(entering, hits.candidates, strict=True))
            if met
        }

    def _count_states(
        self,
        prepared: Prepared,
        states: Sequence[InsertState],
        results: Sequence[InsertResult],
        fences: Mapping[Partition, Fence],
        outcome: DetectionResult,
    ) -> list[int]:
        """Sort the rows by what became of them; return those that may emit pairs."""
        emitting = []
        silent_until = self._options.silent_until_ms
        # By plain tuples: most of the time would go into making a `Partition` of each position.
        fence_of = {(partition.topic, partition.number): fence for partition, fence in fences.items()}
        for row, (document, state) in enumerate(zip(prepared.documents, states, strict=True)):
            if state is InsertState.COLLIDED:
                outcome.refused.append((document, collision(results[row])))
                continue
            passed_over = _PASSED_OVER.get(state, prepared.skips.get(row))
            if passed_over is not None:
                outcome.skipped.append((document, passed_over))
            else:
                outcome.indexed_count += 1
                outcome.replayed_count += state is InsertState.REPLAYED
            # Also one that is passed over: an earlier attempt at its position may have claimed pairs.
            fence = fence_of[document.position.topic, document.position.partition]
            if document.position.offset >= fence.high_water_mark:
                emitting.append(row)
                is_warm_up = silent_until is not None and document.time_ms < silent_until
                outcome.silent_count += passed_over is None and is_warm_up
            elif passed_over is None:
                outcome.silent_count += 1
                outcome.unexplained_count += not fence.has_commit
        return emitting

    def _save_pending_matches(
        self,
        prepared: Prepared,
        emitting: list[int],
        states: Sequence[InsertState],
        verified: dict[int, dict[bytes, Match]],
        rights: list[Fence],
    ) -> dict[int, dict[bytes, Match]]:
        """Save what was found; return it together with what an earlier attempt at the same position had found.

        A position whose record was created just now without a partner cannot have been attempted before.
        """
        rows = [row for row in emitting if row in verified or states[row] is not InsertState.CREATED]
        if not rows:
            return {}
        found = []
        for row in rows:
            matches, document = verified.get(row, {}), prepared.documents[row]
            digest = prepared.records[row].digest if matches and document.op == "append" else None
            found.append((document.position, PendingMatches(matches, digest)))
        saved = self._store.save_pending_matches(found, rights)
        for row, pending in zip(rows, saved, strict=True):
            if pending.digest is not None:
                prepared.records[row] = structs.replace(prepared.records[row], digest=pending.digest)
        return {row: pending.matches for row, pending in zip(rows, saved, strict=True)}

    def _claim(
        self,
        prepared: Prepared,
        partners: dict[int, dict[bytes, Match]],
        others: dict[int, set[bytes]],
        rights: list[Fence],
        outcome: DetectionResult,
    ) -> dict[int, tuple[Match, ...]]:
        """Claim all pairs; return for each row the matches of the pairs that its position owns."""
        pairs = [(row, key, match) for row, saved in partners.items() for key, match in saved.items()]
        claims = [(key, prepared.documents[row].position) for row, key, _ in pairs]
        met = [(key, prepared.documents[row].position) for row, keys in others.items() for key in sorted(keys)]
        if not claims and not met:
            return {}
        owned = self._store.claim_pairs(claims, rights, met) if met else self._store.claim_pairs(claims, rights)
        outcome.asked += [*claims, *met]
        matches: dict[int, list[Match]] = {}
        for (row, key, match), own in zip(pairs, owned, strict=True):
            if own:
                matches.setdefault(row, []).append(replace(match, pair=key.hex()))
        return {row: tuple(sorted(found, key=lambda m: (-m.similarity, m.id))) for row, found in matches.items()}

    def _detect(
        self, prepared: Prepared, owned: dict[int, tuple[Match, ...]], rights: list[Fence], outcome: DetectionResult
    ) -> None:
        """Make a detection of each row with pairs, and place it in the cluster of its best match."""
        if not owned:
            return
        best = {row: document_number(self._options.profile, matches[0].id) for row, matches in owned.items()}
        stars = self._stars.load([*best.values(), *(prepared.records[row].number for row in owned)])
        for row, matches in sorted(owned.items()):
            record = prepared.records[row]
            near = {(match.id, match.digest) for match in matches}
            first = stars.join(record, best[row], near)
            outcome.detections.append(Detection(prepared.documents[row], record.digest, matches, first.id))
        stars.save(rights)


def _take_first_attempts(records: list[IndexEntry], results: Sequence[InsertResult]) -> None:
    """Give each replayed record the time and the version of its first attempt.

    A time in the future is set back to that of the attempt, and the window must be the same for all attempts. What was
    placed again after a deletion has a version of its own.
    """
    for row, result in enumerate(results):
        if result.state is InsertState.REPLAYED and result.previous is not None:
            records[row] = structs.replace(
                records[row], time_ms=result.previous.time_ms, content=result.previous.content
            )


def _take_what_stands_elsewhere(prepared: Prepared, results: Sequence[InsertResult]) -> set[int]:
    """Find redeliveries of what another partition has placed, and give them the records that stand there.

    They are placed and compared again: their own attempt may have been cut short before the index was lost, and the
    other may have been placed anew in silence, as committed before. Claims keep silent what was alerted.

    Returns:
        Their rows.
    """
    again = set()
    for row, (document, result) in enumerate(zip(prepared.documents, results, strict=True)):
        stands = result.previous
        if (
            result.state is InsertState.REDELIVERED
            and stands is not None
            and stands.position.log != document.position.log
        ):
            prepared.records[row] = stands
            again.add(row)
    return again


def _within_batch(records: Sequence[IndexEntry]) -> dict[int, InsertResult]:
    """Decide about several versions of a document in one batch; only what stands at its end is put.

    Returns:
        By row, what became of those that are not.
    """
    decided: dict[int, InsertResult] = {}
    if len({record.number for record in records}) == len(records):
        return decided
    standing: dict[int, int] = {}
    for row, record in enumerate(records):
        before = standing.setdefault(record.number, row)
        if before == row:
            continue
        state = decide_version(records[before], record)
        if state is InsertState.REPLACED:
            decided[before] = InsertResult(InsertState.SUPERSEDED)
            standing[record.number] = row
        else:
            decided[row] = InsertResult(state, records[before] if state is InsertState.COLLIDED else None)
    return decided
