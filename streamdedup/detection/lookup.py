"""Look-ups, which write nothing: near-duplicates of texts and stored documents, comparisons and clusters.

Called by ``serve`` and ``library``; a new field of a result also touches ``serve.schemas``, ``serve.bodies`` and
docs/http.md. The matches of a text are those that the detector would find if the text arrived now as a record.
Exceptions:

- Claims are ignored: a pair is returned although it was alerted before.
- Nothing is inserted: of two texts that are looked up together neither finds the other.
- A redelivery (same id, same content) is looked up; the detector skips it.
- Of a full bucket the candidates are random members (``index.values``), so two look-ups may differ.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from streamdedup.detection.appending import collision
from streamdedup.detection.candidates import hits_by_row
from streamdedup.detection.captions import Caption, read_caption
from streamdedup.detection.clusters import spread_of
from streamdedup.detection.entry_chunks import read_chunks
from streamdedup.detection.model import DetectorOptions, Skip, Spread, alert_order, document_number, with_incarnation
from streamdedup.detection.preparation import Preparer
from streamdedup.detection.scope import query_scope
from streamdedup.detection.suppression import SuppressionRule
from streamdedup.detection.verification import RowMatches, Verifier
from streamdedup.errors import MessageError
from streamdedup.index.contract import IndexReader
from streamdedup.index.documents import IndexEntry
from streamdedup.index.values import CLUSTER_SIZE_CAP
from streamdedup.position import Position
from streamdedup.similarity.containment import SmallerSide
from streamdedup.similarity.lsh import shared_bands
from streamdedup.wire import Document, Match

#: Position of a text that comes from no topic.
_NOWHERE = Position("", 0, 0)
#: Id of a text without one; no document has it.
_NO_ID = ""


class LookupQuery(NamedTuple):
    """A text to look up.

    Without a ``threshold``, the threshold and the containment rule of the profile apply; without a ``source``, no rules
    about sources; without a ``scope``, the default of the profile.
    """

    text: str
    id: str | None = None
    threshold: float | None = None
    source: str | None = None
    scope: str | None = None


@dataclass(frozen=True, slots=True)
class LookupResult:
    """Near-duplicates for a text or a stored document.

    Attributes:
        skipped: Why the detector would skip the text: ``EMPTY``, ``TOO_SHORT`` or ``TOO_FEW_WORDS``; otherwise None.
        redelivery: Whether the index has the id with this content, so that the detector would skip the text as
            redelivered; true for a stored document.
        matches: Near-duplicates, the most similar first, then by id.
        complete: Whether all candidates were compared; not where a bucket was full, or beyond ``max_candidates``.
        threshold: That of the query, else of the profile.
        recall: Least probability that the bands find a document whose similarity is the threshold.
        suppressed: Near-duplicates that a rule keeps out of ``matches``.
    """

    digest: bytes
    skipped: Skip | None
    redelivery: bool
    matches: tuple[Match, ...]
    complete: bool
    threshold: float
    recall: float
    suppressed: Counter[SuppressionRule]


class ClusterMember(NamedTuple):
    id: str
    time_ms: int
    caption: Caption


class StoredCluster(NamedTuple):
    """A cluster as the index has it.

    Attributes:
        members: Its documents, the first one included, in the order of their record times, then of their ids.
        size: Document count, which includes documents that have expired since they joined, and those of the earlier
            scope of the first document. ``CLUSTER_SIZE_CAP`` means as many or more, of which not all are members.
    """

    members: tuple[ClusterMember, ...]
    size: int
    spread: Spread | None


@dataclass(frozen=True, slots=True)
class DocumentComparison:
    """Comparison between two stored documents, or a text and a stored document.

    Attributes:
        standard_error, containment_error: 0 when exact.
        containment: Share of the smaller document's shingles that the other one has; exact if the similarity is.
        contained: The smaller document: "left" is the first argument of ``compare``, "both" for equal sizes.
        is_match: Whether the detector would report the pair.
    """

    similarity: float
    exact: bool
    standard_error: float
    containment: float
    containment_error: float
    contained: SmallerSide
    bands: int
    shared_bands: int
    within_scope: bool
    within_window: bool
    is_match: bool
    suppressed_by: SuppressionRule | None


class IndexLookup:
    """Looks up texts and documents in the index of one profile."""

    def __init__(self, options: DetectorOptions, reader: IndexReader) -> None:
        self.options = options
        self._reader = reader
        self._preparer = Preparer(options)
        self._verifier = Verifier(options, reader, self._preparer.sketcher)

    # Near-duplicates

    def look_up(self, queries: Sequence[LookupQuery], time_ms: int) -> list[LookupResult | MessageError]:
        """Find near-duplicates for texts, each as if it arrived alone.

        ``time_ms`` is the record time that the texts would have. The result for a text is an error if its scope is
        refused (``query_scope``), or if another id in the index has its document number.
        """
        results: dict[int, LookupResult | MessageError] = {}
        documents: dict[int, Document] = {}
        for query_number, query in enumerate(queries):
            try:
                documents[query_number] = self._document_of(query, time_ms)
            except MessageError as error:
                results[query_number] = error
        thresholds = [queries[query_number].threshold for query_number in documents]
        results |= zip(documents, self._look_up(list(documents.values()), thresholds), strict=True)
        return [results[query_number] for query_number in range(len(queries))]

    def _document_of(self, query: LookupQuery, time_ms: int) -> Document:
        scope = query_scope(self.options, query.scope)
        return Document(query.id or _NO_ID, query.text, _NOWHERE, time_ms, source=query.source, scope=scope)

    def _look_up(
        self, documents: Sequence[Document], thresholds: Sequence[float | None]
    ) -> list[LookupResult | MessageError]:
        """Find near-duplicates for documents, each from its threshold on; None for the rules of the profile."""
        prepared = self._preparer.prepare(documents)
        numbers = [entry.number for entry in prepared.entries if entry.id != _NO_ID]
        stored = self._reader.get_entries(numbers) if numbers else {}
        entries = [_entry_to_compare(entry, stored.get(entry.number)) for entry in prepared.entries]
        rows = [row for row in range(len(documents)) if row not in prepared.skips]
        # All are compared from the lowest threshold on; ``_reaches`` then applies the threshold of each.
        given_thresholds = [threshold for threshold in thresholds if threshold is not None]
        lowest_threshold = min(given_thresholds, default=self.options.threshold)
        matches = self._find(entries, prepared.band_keys, rows, lowest_threshold)
        results: list[LookupResult | MessageError] = []
        for row, (entry, threshold) in enumerate(zip(entries, thresholds, strict=True)):
            previous, skipped = stored.get(entry.number), prepared.skips.get(row)
            if previous is not None and not previous.deleted and previous.id != entry.id:
                results.append(collision(previous))
            else:
                row_matches = matches.get(row, RowMatches())
                redelivery = _is_redelivery(entry, previous)
                results.append(self._result(entry, skipped, row_matches, threshold, redelivery=redelivery))
        return results

    def matches_of(self, entry: IndexEntry) -> LookupResult:
        """Find the near-duplicates that the index has now for a stored document."""
        content = entry.content
        # A document that is skipped for its text has an entry, but is in no bucket.
        skips = self.options.stored_skip_reasons([content])
        band_keys = self._preparer.band_keys([content])
        matches = {} if skips else self._find([entry], band_keys, [0], self.options.threshold)
        return self._result(entry, skips.get(0), matches.get(0, RowMatches()), threshold=None, redelivery=True)

    def _find(
        self, entries: Sequence[IndexEntry], band_keys: NDArray[np.uint32], rows: Sequence[int], threshold: float
    ) -> dict[int, RowMatches]:
        """Look up rows and compare them with their candidates; return the matches of each row with candidates.

        Matches have at least the lower one of ``threshold`` and the profile's threshold, or the containment rule.
        """
        if not rows:
            return {}
        hits = hits_by_row(rows, self._reader.look_up([entries[row].number for row in rows], band_keys[list(rows)]))
        copy_rows = [row for row, hit in hits.items() if hit.may_miss_copies]
        documents = [(entries[row].number, entries[row].digest) for row in copy_rows]
        copies = zip(copy_rows, self._reader.look_up_copies(documents) if documents else (), strict=True)
        matches, _ = self._verifier.verify(entries, band_keys, hits, dict(copies), threshold=threshold)
        return matches

    def _result(
        self, entry: IndexEntry, skip: Skip | None, verified: RowMatches, threshold: float | None, *, redelivery: bool
    ) -> LookupResult:
        """Return the result for an entry; ``threshold`` is that of the query, or None for the profile's rules."""
        matches = []
        for key, match in verified.matches.items():
            if self._reaches(match, threshold):
                pair = "" if entry.id == _NO_ID else key.hex()  # no pair key can name a text without an id
                reason = match.reason if threshold is None else "similarity"
                matches.append(structs.replace(match, pair=pair, reason=reason))
        least = self.options.threshold if threshold is None else threshold
        return LookupResult(
            digest=entry.digest,
            skipped=skip,
            redelivery=redelivery,
            matches=tuple(sorted(matches, key=alert_order)),
            complete=verified.complete,
            threshold=least,
            recall=self.options.recall(least),
            suppressed=Counter(rule for rule, match in verified.suppressed if self._reaches(match, threshold)),
        )

    def _reaches(self, match: Match, threshold: float | None) -> bool:
        """Tell whether a match reaches a query's threshold; without one, the profile's threshold or containment rule.

        A query with a threshold has no containment rule: the reason for each match is the similarity, also where the
        profile's rule was the reason.
        """
        if threshold is not None:
            return match.similarity >= threshold
        return match.similarity >= self.options.threshold or match.reason == "containment"

    # Stored documents and clusters

    def document(self, document_id: str) -> tuple[IndexEntry, str | None] | None:
        """Return the entry of a stored document, and the id of the first document in its cluster.

        The id is None where the first document left the index, or has another scope now.
        """
        number = document_number(self.options.profile, document_id)
        entry = self._reader.get_entries([number]).get(number)
        if entry is None or entry.id != document_id:  # a deletion marker has an empty id
            return None
        first = self._reader.get_entries([entry.cluster]).get(entry.cluster)
        if first is None or first.deleted or first.content.scope != entry.content.scope:
            return entry, None
        return entry, first.id

    def cluster_of(self, entry: IndexEntry) -> StoredCluster:
        """Return the cluster of a stored document; its members have the scope of the document (``spread_of``)."""
        counts, numbers = self._reader.read_cluster(entry.cluster)
        label_bytes, scope, earliest = self.options.label_bytes, entry.content.scope, None
        # ``entry`` is added, because a set at ``CLUSTER_SIZE_CAP`` lacks documents that joined later.
        distinct = list(dict.fromkeys([entry.cluster, entry.number, counts.earliest, *numbers]))
        present: dict[int, ClusterMember] = {}
        for chunk in read_chunks(self._reader, distinct):
            earliest = chunk.get(counts.earliest, earliest)
            present |= {
                number: ClusterMember(member.id, member.time_ms, read_caption(member.content.caption, label_bytes))
                for number, member in chunk.items()
                # A member may have left since the set was read. The document that names the cluster always counts.
                if entry.cluster in {member.cluster, member.number}
                and not member.deleted
                and member.content.scope == scope
            }
        # Beyond the cap the last numbers of the set are left out, not the three in front.
        members = [present[number] for number in distinct if number in present][:CLUSTER_SIZE_CAP]
        # A set may have expired before its members: a daemon died between an append and the renewal of the set.
        size = max(counts.size, len(members))
        members.sort(key=lambda member: (member.time_ms, member.id))
        return StoredCluster(tuple(members), size, spread_of(counts, earliest, scope, label_bytes))

    # Comparisons

    def compare(self, a: IndexEntry, b: IndexEntry) -> DocumentComparison:
        options = self.options
        similarities = self._preparer.sketcher.similarities([a.content.sketch], [b.content.sketch], [(0, 0)])
        similarity, exact = float(similarities.values[0]), bool(similarities.exact[0])
        keys = self._preparer.band_keys([a.content, b.content])
        shared = int(shared_bands(keys[:1], keys[1:])[0])
        within_window = options.times_allow_pair(a.time_ms, b.time_ms)
        within_scope = a.content.scope == b.content.scope
        suppressed_by = None if options.suppression is None else options.suppression.rule(a.content, b.content)
        is_match = (
            bool(options.near(similarities)[0])
            and shared >= options.min_shared_bands
            and suppressed_by is None
            and within_scope
            and within_window
            and a.number != b.number  # a document is no match of itself
            and not options.stored_skip_reasons([a.content, b.content])  # a skipped document is in no bucket
        )
        return DocumentComparison(
            similarity=similarity,
            exact=exact,
            standard_error=0.0 if exact else options.measure.standard_error(similarity, options.permutations),
            containment=float(similarities.overlaps.containments()[0]),
            containment_error=0.0 if exact else float(similarities.overlaps.standard_errors()[0]),
            contained=similarities.overlaps.smaller_sides()[0],
            bands=options.banding.bands,
            shared_bands=shared,
            within_scope=within_scope,
            within_window=within_window,
            is_match=is_match,
            suppressed_by=suppressed_by,
        )

    def compare_text(self, query: LookupQuery, entry: IndexEntry, time_ms: int) -> DocumentComparison:
        """Compare a text with a stored document, as if the text arrived at ``time_ms``; raise as ``query_scope``."""
        (compared,) = self._preparer.prepare([self._document_of(query, time_ms)]).entries
        return self.compare(compared, entry)


def _entry_to_compare(entry: IndexEntry, stored: IndexEntry | None) -> IndexEntry:
    """Return the entry that the detector would compare after inserting ``entry`` (``lifecycle``).

    For a redelivery this is the stored entry; else ``entry``, with its document's incarnation, a part of pair keys.
    """
    if stored is None:
        return entry
    return stored if _is_redelivery(entry, stored) else with_incarnation(entry, stored)


def _is_redelivery(entry: IndexEntry, stored: IndexEntry | None) -> bool:
    return stored is not None and not stored.deleted and stored.id == entry.id and stored.digest == entry.digest
