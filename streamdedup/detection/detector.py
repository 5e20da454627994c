"""The detector: documents in, detections out.

Called by ``daemon.batch``, ``detection.writing`` (for programs) and ``evaluation.trial``. A batch passes through two
stages: ``prepare`` computes everything that needs no index; ``index`` writes to the index and compares. The third
stage, publishing the result, belongs to the daemon. The detector knows no Kafka, clock, metric or settings file. A
change to the steps of ``index`` must pass ``tests/simulation``.

The reported pairs do not depend on the order of arrival, on batches or on the daemon count. A pair is reported under
four conditions, which are symmetric and depend only on the two index entries:

- The documents have at least ``min_shared_bands`` band keys in common, and the same scope, if any.
- The record times are within the window.
- The similarity is at least the threshold; or, by the containment rule, the larger document contains a large enough
  share of the smaller one.
- No rule suppresses the pair (``suppression``).

In two cases the pairs do depend on the order of arrival. The limits for storms (``bucket_cap``, ``max_candidates``)
leave pairs out. Of a document that changes or is deleted, only the version that the index has now is compared.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace

from msgspec import structs

from streamdedup.detection.candidates import BucketHits, hits_by_row
from streamdedup.detection.captions import read_caption
from streamdedup.detection.clusters import Clusters, Member
from streamdedup.detection.copy_buckets import insert_and_look_up_copies
from streamdedup.detection.lifecycle import Lifecycle
from streamdedup.detection.model import (
    Detection,
    DetectionResult,
    DetectorOptions,
    InsertedBatch,
    Prepared,
    Skip,
    alert_order,
    document_number,
)
from streamdedup.detection.preparation import Preparer
from streamdedup.detection.verification import RowMatches, Verifier
from streamdedup.index.contract import Index
from streamdedup.index.documents import InsertState, PendingMatches
from streamdedup.index.values import Fence
from streamdedup.position import Partition
from streamdedup.wire import Document, Match

#: Reason why a document is skipped because of the index, by the state of its insertion.
_SKIPS = {InsertState.REDELIVERED: Skip.REDELIVERED, InsertState.SUPERSEDED: Skip.SUPERSEDED}

#: States of documents whose earlier version or attempt may own claims. The lives of the claims are extended also for
#: pairs that do not match now, for example because of the window: a pair that matches later is not alerted twice.
_KNOWN_STATES = frozenset({InsertState.REPLACED, InsertState.REPLAYED})


class Detector:
    """Finds near-duplicates for one profile, in an open index."""

    def __init__(self, options: DetectorOptions, store: Index) -> None:
        self._options = options
        self._store = store
        self._preparer = Preparer(options)
        sketcher = self._preparer.sketcher
        self._lifecycle = Lifecycle(options, store, self._preparer)
        self._verifier = Verifier(options, store, sketcher)
        self._clusters = Clusters(store, sketcher, options)

    def prepare(self, documents: Sequence[Document]) -> Prepared:
        """Compute all that needs no index (``Preparer``), and encode the entries: a thread may run this stage ahead."""
        prepared = self._preparer.prepare(documents)
        return replace(prepared, encoded=self._store.encode_entries(prepared.entries))

    # Stage two: index

    def index(self, prepared: Prepared, fences: Mapping[Partition, Fence]) -> DetectionResult:
        """Insert a prepared batch in the index and find its near-duplicates.

        Every step may be repeated: a batch that failed half-way is indexed again from the start, and each pair is
        emitted by the same position as in the first attempt.

        Steps, each with calls to the index (the rules: ``index.contract``):
            1. Insert entries for new documents; the index decides which version is the latest for each document
               (``decide_version``). Append to documents. Where the index has an earlier version, remove this version
               from its buckets first, then replace its entry.
            2. Insert in buckets and look up candidates. For a document with a bucket full or near capacity, its exact
               copies are candidates too (``copy_buckets``).
            3. Verify the candidates of rows that may emit pairs: window, shared bands, similarity or containment,
               suppression rules.
            4. Save the matches as pending, and add those that an earlier attempt at the position saved (rule 4).
            5. Claim the pairs: a pair belongs to the position that claims first (rule 5).
            6. Find the cluster for each document with pairs.
        """
        fence_list = list(fences.values())
        # 1. Insert entries.
        batch = self._lifecycle.insert(prepared, fences)
        # 2. Insert in buckets and look up.
        hits, bucket_counts = self._insert_and_look_up(batch, fence_list)
        exact_copies, read_entries = insert_and_look_up_copies(self._store, batch, hits, fence_list)
        # 3. Verify.
        emitting, emission_counts = self._emitting_rows(batch, fences)
        emitting_hits = {row: hits[row] for row in emitting if row in hits}
        known_rows = {row for row in emitting if batch.states[row] in _KNOWN_STATES}
        verified, verified_counts = self._verifier.verify(
            batch.entries, batch.band_keys, emitting_hits, exact_copies, known_rows=known_rows, read_before=read_entries
        )
        # 4. Save pending matches.
        pending = self._save_pending_matches(batch, emitting, verified, fence_list)
        # 5. Claim.
        owned = self._claim(batch, pending, verified, fence_list)
        # 6. Clusters.
        detections = self._place_in_clusters(batch, pending, owned, verified, fence_list)
        with_matches = {row for row, saved in pending.items() if saved.matches}
        limit_counts = _beyond_limits(batch, emitting_hits, verified, with_matches)
        return (
            bucket_counts
            + emission_counts
            + verified_counts
            + limit_counts
            + DetectionResult(
                detections=detections,
                refused=tuple(batch.refused),
                # ``missing_positions``: refused appends may have pending matches, too.
                pending_positions=(*batch.missing_positions, *(batch.documents[row].position for row in with_matches)),
            )
        )

    def delete(self, documents: Sequence[Document], fences: Mapping[Partition, Fence]) -> DetectionResult:
        """Delete documents, in position order within each partition; a deletion marker replaces each entry."""
        return self._lifecycle.delete(documents, fences)

    # Steps of index

    def _insert_and_look_up(
        self, batch: InsertedBatch, fences: Sequence[Fence]
    ) -> tuple[dict[int, BucketHits], DetectionResult]:
        """Insert documents in their buckets; return candidates by row, and a result with the full buckets."""
        rows = batch.to_look_up
        if not rows:
            return {}, DetectionResult()
        numbers = [batch.entries[row].number for row in rows]
        hits = self._store.insert_and_look_up(numbers, batch.band_keys[rows], fences)
        full = tuple(batch.documents[rows[hit_row]].position for hit_row in sorted(hits.full))
        counts = DetectionResult(full_buckets_count=sum(hits.full.values()), full_bucket_positions=full)
        return hits_by_row(rows, hits), counts

    def _emitting_rows(
        self, batch: InsertedBatch, fences: Mapping[Partition, Fence]
    ) -> tuple[list[int], DetectionResult]:
        """Return the rows that may emit pairs, and a result with the counts of indexed, replayed and silent documents.

        A row may emit if its offset is not below the high-water mark, even if its document is skipped.
        """
        emitting: list[int] = []
        skipped: list[tuple[Document, Skip]] = []
        indexed_count = replayed_count = silent_count = unexplained_count = 0
        silent_until = self._options.silent_until_ms
        # Keyed by plain tuples, because a `Partition` for each position would take most of the time.
        fence_of = {(partition.topic, partition.partition): fence for partition, fence in fences.items()}
        for row, (document, state) in enumerate(zip(batch.documents, batch.states, strict=True)):
            if state is InsertState.COLLIDED:
                continue  # in ``batch.refused``: the publisher makes a dead letter
            skip = _SKIPS.get(state, batch.skips.get(row))
            if skip is not None:
                skipped.append((document, skip))
            else:
                indexed_count += 1
            # A skipped document may emit, too: an earlier attempt at its position may have claimed pairs.
            fence = fence_of[document.position.topic, document.position.partition]
            if document.position.offset >= fence.high_water_mark:
                emitting.append(row)
                replayed_count += skip is None and state is InsertState.REPLAYED
                # A warm-up document counts as silent and may emit: ``times_allow_pair`` excludes pairs of two such.
                is_warm_up = silent_until is not None and document.time_ms < silent_until
                silent_count += skip is None and is_warm_up
            elif skip is None:
                # Committed before: a rebuild replays it, an operator set the offset back, or Kafka lost the commit.
                silent_count += 1
                unexplained_count += not fence.has_commit
        return emitting, DetectionResult(
            skipped=tuple(skipped),
            indexed_count=indexed_count,
            replayed_count=replayed_count,
            silent_count=silent_count,
            unexplained_count=unexplained_count,
        )

    def _save_pending_matches(
        self, batch: InsertedBatch, emitting: Sequence[int], verified: Mapping[int, RowMatches], fences: Sequence[Fence]
    ) -> dict[int, PendingMatches]:
        """Save matches as pending; return by row the pending matches from this and earlier attempts at the position.

        Leaves out new documents (``CREATED``) without a match: an earlier attempt that had saved matches for a document
        would have created its entry.
        """
        matches = {row: dict(row_matches.matches) for row, row_matches in verified.items() if row_matches.matches}
        rows = [row for row in emitting if row in matches or batch.states[row] is not InsertState.CREATED]
        if not rows:
            return {}
        pending = []
        for row in rows:
            by_pair, document = matches.get(row, {}), batch.documents[row]
            # Saved for a replay: after a later append the entry has another digest, and the alert needs this one.
            digest = batch.entries[row].digest if by_pair and document.op == "append" else None
            pending.append((document.position, PendingMatches(by_pair, digest)))
        return dict(zip(rows, self._store.save_pending_matches(pending, fences), strict=True))

    def _claim(
        self,
        batch: InsertedBatch,
        pending: Mapping[int, PendingMatches],
        verified: Mapping[int, RowMatches],
        fences: Sequence[Fence],
    ) -> dict[int, tuple[Match, ...]]:
        """Claim the pair of each match, and extend claims on pairs of earlier versions that do not match now.

        Returns by row the matches whose pair the position owns, the most similar first.
        """
        pairs = [(row, key, match) for row, saved in pending.items() for key, match in saved.matches.items()]
        claims = [(key, batch.documents[row].position) for row, key, _ in pairs]
        extended_keys = sorted(set().union(*(row_matches.unmatched for row_matches in verified.values())))
        if not claims and not extended_keys:
            return {}
        owned = self._store.claim_pairs(claims, fences, extended_keys)
        matches: dict[int, list[Match]] = {}
        for (row, key, match), is_owned in zip(pairs, owned, strict=True):
            if is_owned:
                owned_match = structs.replace(match, pair=key.hex())
                if not self._options.label_bytes:  # an attempt with other settings may have saved a caption
                    owned_match = structs.replace(owned_match, label="", source=None, published_at=None)
                matches.setdefault(row, []).append(owned_match)
        return {row: tuple(sorted(row_matches, key=alert_order)) for row, row_matches in matches.items()}

    def _place_in_clusters(
        self,
        batch: InsertedBatch,
        pending: Mapping[int, PendingMatches],
        owned: Mapping[int, tuple[Match, ...]],
        verified: Mapping[int, RowMatches],
        fences: Sequence[Fence],
    ) -> tuple[Detection, ...]:
        """Place the document of each row with owned pairs in a cluster; return the detections."""
        if not owned:
            return ()
        rows = sorted(owned)
        # A digest saved with the pending matches takes precedence: a later append may have changed that of the entry.
        # The first match is the most similar one.
        members = [
            Member(
                entry=structs.replace(batch.entries[row], digest=pending[row].digest or batch.entries[row].digest),
                best_number=document_number(self._options.profile, owned[row][0].id),
                matches=owned[row],
            )
            for row in rows
        ]
        clusters = self._clusters.join(members, fences)
        # ``verified`` lacks a row if an earlier attempt at the position found all its matches.
        compared = {row: verified.get(row, RowMatches()) for row in rows}
        label_bytes = self._options.label_bytes
        return tuple(
            Detection(
                document=batch.documents[row],
                digest=member.entry.digest,
                matches=owned[row],
                cluster_id=cluster.first.id,
                label=read_caption(member.entry.content.caption, label_bytes).label,
                cluster_label=read_caption(cluster.first.content.caption, label_bytes).label,
                incarnation=cluster.incarnation or b"",
                cluster_size=cluster.size,
                spread=cluster.spread,
                complete=compared[row].complete,
                suppressed=Counter(rule for rule, _ in compared[row].suppressed),
            )
            for row, member, cluster in zip(rows, members, clusters, strict=True)
        )


def _beyond_limits(
    batch: InsertedBatch,
    hits: Mapping[int, BucketHits],
    verified: Mapping[int, RowMatches],
    with_matches: AbstractSet[int],
) -> DetectionResult:
    """Return a result with the documents that have too many candidates, and the hidden ones."""
    over_candidates = [row for row, matches in verified.items() if not (matches.complete or hits[row].full_count)]
    band_count = batch.band_keys.shape[1]
    hidden = {row for row, hit in hits.items() if hit.full_count == band_count} - with_matches
    return DetectionResult(
        over_candidates_positions=tuple(batch.documents[row].position for row in over_candidates),
        hidden=tuple(batch.documents[row] for row in sorted(hidden)),
    )
