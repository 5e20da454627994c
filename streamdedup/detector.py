"""The engine: documents in, detections out.

It knows texts, signatures and a ``BucketStore``; it knows no Kafka, no clock, no metric and no settings file. A batch
passes through two stages that stay separate calls: ``prepare`` only computes, ``index`` only talks to the store and
compares.

The pairs that a stream yields do not depend on the order of arrival, on batches or on how many daemons share the
work: P is the set of all pairs of documents that have at least ``min_shared_bands`` band keys in common, lie within
the window and have a similarity of at least the threshold. All three conditions are symmetric and computed from the
two sketches alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import msgspec
import numpy as np
from numpy.typing import NDArray

from streamdedup import sketch as sketches
from streamdedup.candidates import Met, Verifier
from streamdedup.clusters import StarFinder
from streamdedup.detections import (
    Detection,
    DetectorOptions,
    Outcome,
    Prepared,
    Skip,
    document_number,
)
from streamdedup.messages import Document, Match, content_digest
from streamdedup.minhash import HashFamily
from streamdedup.position import Partition
from streamdedup.sketch import Sketch, Sketcher
from streamdedup.store.base import BucketStore, Fence, PutResult, PutState, StoredRecord
from streamdedup.text import Shingler

#: States of a record that is not indexed, without being a mistake.
_PASSED_OVER = {PutState.REDELIVERED: Skip.REDELIVERED, PutState.SUPERSEDED: Skip.SUPERSEDED}


class _MatchCodec:
    """Matches of one batch as the store keeps them; each is encoded once, and what was encoded here is not decoded."""

    _decoder = msgspec.json.Decoder(Match)

    def __init__(self) -> None:
        self._texts: dict[int, bytes] = {}
        self._matches: dict[bytes, Match] = {}

    def encoded(self, partners: Mapping[bytes, Match]) -> dict[bytes, bytes]:
        """Encode the partners of a position."""
        return {key: self._encoded(match) for key, match in partners.items()}

    def _encoded(self, match: Match) -> bytes:
        # By identity: a match is made once for all documents that it is a match of, and outlives this codec.
        text = self._texts.get(id(match))
        if text is None:
            text = self._texts[id(match)] = msgspec.json.encode(match)
            self._matches[text] = match
        return text

    def decoded(self, partners: Mapping[bytes, bytes]) -> dict[bytes, Match]:
        """Decode what is saved for a position."""
        return {key: self._matches.get(text) or self._decoder.decode(text) for key, text in partners.items()}


class Detector:
    """Finds near-duplicates among documents of one profile.

    Args:
        options: What decides.
        store: Where the index lives; already open.
    """

    def __init__(self, options: DetectorOptions, store: BucketStore) -> None:
        self._options = options
        self._store = store
        self._shingler = Shingler(options.shingles)
        family = HashFamily(options.permutations, options.seed)
        self._sketcher = Sketcher(family, options.exact_limit, options.banding.permutations)
        self._verifier = Verifier(options, store, self._sketcher)
        self._stars = StarFinder(store, self._sketcher, options.threshold)

    @property
    def store(self) -> BucketStore:
        """The store that the index lives in."""
        return self._store

    # Stage one: compute

    def prepare(self, documents: Sequence[Document]) -> Prepared:
        """Compute everything about a batch that needs no store: shingles, sketches, band keys.

        Args:
            documents: Documents to place in the index, in the order of their positions within each partition.
        """
        shingles = self._shingler.shingle([document.text for document in documents])
        counts = np.diff(shingles.offsets)
        skipped = self._skipped(counts, shingles.token_counts)
        kept = [index for index in range(len(documents)) if index not in skipped]
        # A skipped document may have shingles: they must not be signed along with those of its neighbours.
        chosen = np.repeat(np.isin(np.arange(len(documents)), kept), counts) if skipped else slice(None)
        offsets = np.concatenate(([0], np.cumsum(counts[kept]))).astype(np.int64)
        made, signatures = self._sketcher.make(shingles.hashes[chosen], offsets)
        records = [self._record(documents[index], made_one) for index, made_one in zip(kept, made, strict=True)]
        return Prepared(documents, skipped, kept, records, made, self._options.banding.band_keys(signatures))

    def _skipped(self, shingle_counts: NDArray[np.int64], token_counts: NDArray[np.int64]) -> dict[int, Skip]:
        reasons = {}
        for index in np.flatnonzero((shingle_counts == 0) | (token_counts < self._options.min_words)).tolist():
            if token_counts[index] == 0:
                reasons[index] = Skip.EMPTY
            elif token_counts[index] < self._options.min_words:
                reasons[index] = Skip.TOO_FEW_WORDS
            else:
                reasons[index] = Skip.TOO_SHORT
        return reasons

    def _record(self, document: Document, made: Sketch) -> StoredRecord:
        number = document_number(self._options.profile, document.id)
        return StoredRecord(
            number=number,
            id=document.id,
            digest=content_digest(document.text),
            position=document.position,
            time_ms=document.time_ms,
            cluster=number,
            sketch=sketches.encode(made),
        )

    # Stage two: the index

    def index(self, prepared: Prepared, fences: Mapping[Partition, Fence]) -> Outcome:
        """Place a prepared batch in the index and find its near-duplicates.

        Every step may be repeated: a batch that failed half-way is indexed again from the start, and a pair is
        emitted by the same position as the first time.

        Steps, each a call to the store (the rules: ``store.base``):
            1. Put the records: from now on they are the authority.
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
        outcome = Outcome(skipped=[(prepared.documents[index], why) for index, why in prepared.skipped.items()])
        # 1. Record first.
        results = self._store.put_records(prepared.records, rights) if prepared.kept else []
        states = _states_within_batch(prepared.records, results)
        _take_stored_times(prepared.records, results)
        # 2. Add before read.
        entering = [row for row, state in enumerate(states) if state <= PutState.REPLAYED]
        met = self._enter(prepared, entering, rights, outcome)
        loud = self._count_states(prepared, states, results, fences, outcome)
        # 3. Verify.
        verified = self._verifier.partners(prepared, met, loud, rights, outcome)
        # 4. Save the partners.
        partners = self._save_partners(prepared, loud, states, verified, rights)
        # 5. Claim.
        outcome.saved_positions = [prepared.records[row].position for row, saved in partners.items() if saved]
        owned = self._claim(prepared, partners, rights)
        # 6. Clusters.
        self._detect(prepared, owned, rights, outcome)
        return outcome

    def _enter(self, prepared: Prepared, entering: list[int], rights: list[Fence], outcome: Outcome) -> dict[int, Met]:
        """Return for each row that met others what the buckets showed."""
        if not entering:
            return {}
        numbers = [prepared.records[row].number for row in entering]
        hits = self._store.enter_buckets(numbers, prepared.band_keys[entering], rights)
        outcome.full_buckets_count = hits.full_buckets_count
        return {
            row: Met(met, crowded=at in hits.crowded, full=at in hits.full)
            for at, (row, met) in enumerate(zip(entering, hits.candidates, strict=True))
            if met
        }

    def _count_states(
        self,
        prepared: Prepared,
        states: Sequence[PutState],
        results: Sequence[PutResult],
        fences: Mapping[Partition, Fence],
        outcome: Outcome,
    ) -> list[int]:
        """Sort the rows by what became of them; return those that may emit pairs."""
        loud = []
        for row, state in enumerate(states):
            document = prepared.documents[prepared.kept[row]]
            if state is PutState.COLLIDED:
                other = results[row].previous
                outcome.collided.append((document, other.id if other is not None else ""))
                continue
            passed_over = _PASSED_OVER.get(state)
            if passed_over is not None:
                outcome.skipped.append((document, passed_over))
            else:
                outcome.indexed_count += 1
                outcome.replayed_count += state is PutState.REPLAYED
            # Also one that is passed over: an earlier attempt at its position may have claimed pairs.
            if document.position.offset >= fences[document.position.of].mark:
                loud.append(row)
            elif passed_over is None:
                outcome.silent_count += 1
        return loud

    def _save_partners(
        self,
        prepared: Prepared,
        loud: list[int],
        states: Sequence[PutState],
        verified: dict[int, dict[bytes, Match]],
        rights: list[Fence],
    ) -> dict[int, dict[bytes, Match]]:
        """Save what was found; return it together with what an earlier attempt at the same position had found.

        A position whose record was created just now without a partner cannot have been attempted before.
        """
        rows = [row for row in loud if row in verified or states[row] is not PutState.CREATED]
        if not rows:
            return {}
        codec = _MatchCodec()
        entries = [(prepared.records[row].position, codec.encoded(verified.get(row, {}))) for row in rows]
        saved = self._store.save_partners(entries, rights)
        return {row: codec.decoded(partners) for row, partners in zip(rows, saved, strict=True)}

    def _claim(
        self, prepared: Prepared, partners: dict[int, dict[bytes, Match]], rights: list[Fence]
    ) -> dict[int, tuple[Match, ...]]:
        """Claim all pairs; return for each row the matches of the pairs that its position owns."""
        pairs = [(row, key, match) for row, saved in partners.items() for key, match in saved.items()]
        if not pairs:
            return {}
        owned = self._store.claim_pairs([(key, prepared.records[row].position) for row, key, _ in pairs], rights)
        matches: dict[int, list[Match]] = {}
        for (row, _, match), own in zip(pairs, owned, strict=True):
            if own:
                matches.setdefault(row, []).append(match)
        return {row: tuple(sorted(found, key=lambda m: (-m.similarity, m.id))) for row, found in matches.items()}

    def _detect(
        self, prepared: Prepared, owned: dict[int, tuple[Match, ...]], rights: list[Fence], outcome: Outcome
    ) -> None:
        """Make a detection of each row with pairs, and place it in the cluster of its best match."""
        if not owned:
            return
        best = {row: document_number(self._options.profile, matches[0].id) for row, matches in owned.items()}
        stars = self._stars.load([*best.values(), *(prepared.records[row].number for row in owned)])
        for row, matches in sorted(owned.items()):
            record = prepared.records[row]
            near = {(match.id, match.digest) for match in matches}
            first = stars.join(record, prepared.sketches[row], best[row], near)
            document = prepared.documents[prepared.kept[row]]
            outcome.detections.append(Detection(document, record.digest, matches, first.id))
        stars.save(rights)


def _take_stored_times(records: list[StoredRecord], results: Sequence[PutResult]) -> None:
    """Give each replayed record the time of its first attempt.

    A time in the future is set back to that of the attempt, and the window must be the same for all attempts.
    """
    for row, result in enumerate(results):
        if result.state is PutState.REPLAYED and result.previous is not None:
            records[row] = replace(records[row], time_ms=result.previous.time_ms)


def _states_within_batch(records: Sequence[StoredRecord], results: Sequence[PutResult]) -> list[PutState]:
    """Read the results of a put so that a version replaced within the same batch does not enter the buckets."""
    states = [result.state for result in results]
    latest: dict[int, int] = {}
    for row, (record, state) in enumerate(zip(records, states, strict=True)):
        if state in (PutState.CREATED, PutState.REPLACED, PutState.REPLAYED):
            earlier = latest.get(record.number)
            if earlier is not None:
                states[earlier] = PutState.SUPERSEDED
            latest[record.number] = row
    return states
