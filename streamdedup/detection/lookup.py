"""Look-ups: the near-duplicates of a text that is not in the index, without inserting it.

The matches are those that the detector would find if the text arrived now as a record: same preparation, same buckets,
same verification. Two differences are on purpose:

- Claims are ignored: a pair is returned although it was alerted before.
- Nothing is inserted: of two texts that are looked up together neither finds the other.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from streamdedup.detection.appending import collision
from streamdedup.detection.comparison import Comparer, matches_by_row, rows_by_candidate
from streamdedup.detection.entry_chunks import read_chunks
from streamdedup.detection.lifecycle import with_incarnation
from streamdedup.detection.model import DetectorOptions, Prepared, Skip, document_number
from streamdedup.detection.preparation import Preparer
from streamdedup.detection.suppression import SuppressionRule
from streamdedup.detection.verification import BucketHits, copies_first, hits_by_row, promising_candidates
from streamdedup.errors import MessageError
from streamdedup.index.documents import IndexEntry
from streamdedup.index.reading import IndexReader
from streamdedup.position import Position
from streamdedup.similarity.containment import Contained
from streamdedup.wire import Document, Match

#: Position of a text that comes from no topic.
_NOWHERE = Position("", 0, 0)
#: Id of a text without one; no document has it.
_NO_ID = ""


class LookupQuery(NamedTuple):
    """A text to look up.

    Attributes:
        text: The text.
        id: Document id; None for a text without one.
        threshold: Least similarity of a match; None for the definition of the profile, with its rule of containment.
        source: Source of the text; None where unknown: rules about sources do not apply then.
    """

    text: str
    id: str | None = None
    threshold: float | None = None
    source: str | None = None


@dataclass(frozen=True, slots=True)
class LookupResult:
    """Near-duplicates of a text or of a stored document.

    Attributes:
        digest: Content digest.
        skipped: Why the detector would skip the text: ``EMPTY``, ``TOO_SHORT`` or ``TOO_FEW_WORDS``; otherwise None.
        redelivery: Whether the index has the id with this content, so that the detector would skip the text as
            redelivered; true for a stored document.
        matches: Near-duplicates, the most similar first, then by id.
        complete: Whether all candidates were compared; not where a bucket was full or there were too many.
        threshold: Least similarity of a match by similarity.
        recall: Probability that the bands find a document whose similarity is the threshold.
        suppressed: Near-duplicates from the threshold on that are no matches, by the rule that suppresses them.
    """

    digest: bytes
    skipped: Skip | None
    redelivery: bool
    matches: tuple[Match, ...]
    complete: bool
    threshold: float
    recall: float
    suppressed: Counter[SuppressionRule]


@dataclass(frozen=True, slots=True)
class DocumentComparison:
    """Comparison of two stored documents, or of a text with a stored document.

    Attributes:
        similarity: Similarity, exact or estimated.
        exact: Whether the similarity is exact.
        standard_error: Standard error of an estimate; 0 when exact.
        containment: Share of the smaller document's shingles that the other one has; exact or estimated likewise.
        containment_error: Standard error of an estimated containment; 0 when exact.
        contained: The smaller document: "left" is the first one.
        bands: Bands of the profile.
        shared_bands: Band keys that the documents have in common.
        within_window: Whether their record times are near enough for a pair.
        is_match: Whether the detector would report the pair.
        suppressed_by: Rule that suppresses pairs of the two documents, or None.
    """

    similarity: float
    exact: bool
    standard_error: float
    containment: float
    containment_error: float
    contained: Contained
    bands: int
    shared_bands: int
    within_window: bool
    is_match: bool
    suppressed_by: SuppressionRule | None


class _Found(NamedTuple):
    """Near-duplicates of one row with their pair keys, and whether all candidates were compared.

    Attributes:
        matches: Near-duplicates that are not suppressed.
        complete: Whether all candidates were compared.
        suppressed: Suppressed near-duplicates, each with the rule.
    """

    matches: tuple[Match, ...] = ()
    complete: bool = True
    suppressed: tuple[tuple[SuppressionRule, Match], ...] = ()


class IndexLookup:
    """Looks up texts and documents of one profile.

    Args:
        options: Options of the detector.
        reader: The index.

    Attributes:
        options: As given.
    """

    def __init__(self, options: DetectorOptions, reader: IndexReader) -> None:
        self.options = options
        self._reader = reader
        self._preparer = Preparer(options)

    def look_up(self, queries: Sequence[LookupQuery], time_ms: int) -> list[LookupResult | MessageError]:
        """Find the near-duplicates of texts, each as if it arrived alone.

        Args:
            queries: The texts.
            time_ms: Record time that the texts would have, milliseconds since the epoch.

        Returns:
            A result for each text; an error where another document has the number of the id.
        """
        documents = [
            Document(query.id or _NO_ID, query.text, _NOWHERE, time_ms, source=query.source) for query in queries
        ]
        prepared = self._preparer.prepare(documents)
        stored = self._reader.get_entries([entry.number for entry in prepared.entries if entry.id != _NO_ID])
        entries = [_current(entry, stored.get(entry.number)) for entry in prepared.entries]
        prepared = replace(prepared, entries=entries)
        rows = [row for row in range(len(queries)) if row not in prepared.skips]
        least = min((self._threshold(query.threshold) for query in queries), default=self.options.threshold)
        found = dict(zip(rows, self._find(prepared, rows, least), strict=True))
        results: list[LookupResult | MessageError] = []
        for row, (query, entry) in enumerate(zip(queries, entries, strict=True)):
            known, skipped = stored.get(entry.number), prepared.skips.get(row)
            if known is not None and not known.deleted and known.id != entry.id:
                results.append(collision(known))
            else:
                of_row = found.get(row, _Found())
                # `_current` returns the stored entry of a redelivery itself.
                results.append(self._result(entry, skipped, of_row, query.threshold, redelivery=known is entry))
        return results

    def _result(
        self, entry: IndexEntry, skipped: Skip | None, found: _Found, threshold: float | None, *, redelivery: bool
    ) -> LookupResult:
        least = self._threshold(threshold)
        return LookupResult(
            digest=entry.digest,
            skipped=skipped,
            redelivery=redelivery,
            matches=_in_order(self._chosen(threshold, found.matches), has_id=entry.id != _NO_ID),
            complete=found.complete,
            threshold=least,
            recall=self.options.recall(least),
            suppressed=Counter(rule for rule, match in found.suppressed if self._chosen(threshold, [match])),
        )

    def _threshold(self, threshold: float | None) -> float:
        return self.options.threshold if threshold is None else threshold

    def _chosen(self, threshold: float | None, matches: Sequence[Match]) -> list[Match]:
        """Return those matches of a query that reach its own threshold.

        All queries of a call are compared from their least threshold on. A query without a threshold has the threshold
        and the rule of containment of the profile; a query with a threshold has no rule of containment.
        """
        if threshold is not None:
            similar = [match for match in matches if match.similarity >= threshold]
            return [one if one.reason == "similarity" else replace(one, reason="similarity") for one in similar]
        least = self.options.threshold
        return [match for match in matches if match.similarity >= least or match.reason == "containment"]

    def document(self, document_id: str) -> tuple[IndexEntry, str | None] | None:
        """Return the entry of a document and the id of the first document of its cluster.

        Returns:
            None where the index does not have the document. The id is None where the first document left the index.
        """
        number = document_number(self.options.profile, document_id)
        entry = self._reader.get_entries([number]).get(number)
        if entry is None or entry.id != document_id:
            return None
        first = self._reader.get_entries([entry.cluster]).get(entry.cluster)
        return entry, None if first is None or first.deleted else first.id

    def matches_of(self, entry: IndexEntry) -> LookupResult:
        """Find the near-duplicates that the index has now for one of its documents."""
        content = entry.content
        skips = self.options.skips(np.array([content.token_count]), np.array([content.sketch.count]))
        prepared = Prepared([], [entry], self._preparer.band_keys([content.sketch]), skips)
        found = _Found() if skips else self._find(prepared, [0], self.options.threshold)[0]
        return self._result(entry, skips.get(0), found, None, redelivery=True)

    def compare(self, a: IndexEntry, b: IndexEntry) -> DocumentComparison:
        """Compare two documents of the index."""
        options, sketches = self.options, [a.content.sketch, b.content.sketch]
        similarities = self._preparer.sketcher.similarities(sketches[:1], sketches[1:])
        similarity, exact = float(similarities.values[0]), bool(similarities.exact[0])
        keys = self._preparer.band_keys(sketches)
        shared_bands = int(np.count_nonzero(keys[0] == keys[1]))
        within_window = Comparer(options, self._preparer.sketcher).within_window(a, b)
        suppressed_by = None if options.suppression is None else options.suppression.rule(a.content, b.content)
        is_near = bool(options.near(similarities)[0]) and shared_bands >= options.min_shared_bands
        return DocumentComparison(
            similarity=similarity,
            exact=exact,
            standard_error=0.0 if exact else options.measure.standard_error(similarity, options.permutations),
            containment=float(similarities.overlaps.containments()[0]),
            containment_error=0.0 if exact else float(similarities.overlaps.standard_errors()[0]),
            contained=similarities.overlaps.contained()[0],
            bands=options.banding.bands,
            shared_bands=shared_bands,
            within_window=within_window,
            is_match=is_near and within_window and a.number != b.number and suppressed_by is None,
            suppressed_by=suppressed_by,
        )

    def compare_text(self, text: str, entry: IndexEntry, time_ms: int, source: str | None = None) -> DocumentComparison:
        """Compare a text with a document of the index, as if the text arrived at ``time_ms``."""
        prepared = self._preparer.prepare([Document(_NO_ID, text, _NOWHERE, time_ms, source=source)])
        comparison = self.compare(prepared.entries[0], entry)
        return replace(comparison, is_match=comparison.is_match and not prepared.skips)

    def _find(self, prepared: Prepared, rows: Sequence[int], threshold: float) -> list[_Found]:
        """Look up rows of a batch and compare them with their candidates.

        Args:
            prepared: The documents.
            rows: Rows to look up.
            threshold: Least similarity of a match; matches by the rules of the profile are returned too.

        Returns:
            The near-duplicates of each of ``rows``.
        """
        if not rows:
            return []
        numbers = [prepared.entries[row].number for row in rows]
        hits = hits_by_row(rows, self._reader.look_up(numbers, prepared.band_keys[list(rows)]))
        promising = {row: promising_candidates(hit, self.options.max_candidates) for row, hit in hits.items()}
        chosen = self._with_copies(prepared, hits, promising)
        rows_of = rows_by_candidate(chosen)
        comparer = Comparer(self.options, self._preparer.sketcher, threshold)
        near: dict[tuple[int, int], tuple[bytes, Match]] = {}
        suppressed: dict[int, list[tuple[SuppressionRule, Match]]] = {}
        suppression = self.options.suppression
        for entries in read_chunks(self._reader, rows_of):
            found = comparer.near_duplicates(prepared, rows_of, entries)
            if suppression is not None:
                for pair, rule in suppression.rules(found, prepared.entries, entries).items():
                    suppressed.setdefault(pair[0], []).append((rule, found.pop(pair)[1]))
            near |= found
        matches = matches_by_row(chosen, near)
        return [
            _Found(
                tuple(replace(match, pair=key.hex()) for key, match in matches.get(row, {}).items()),
                row not in hits or (not hits[row].full and len(promising[row]) == len(hits[row].candidates)),
                tuple(suppressed.get(row, ())),
            )
            for row in rows
        ]

    def _with_copies(
        self, prepared: Prepared, hits: dict[int, BucketHits], promising: dict[int, list[int]]
    ) -> dict[int, list[int]]:
        """Return the chosen candidates; those of rows with a full bucket begin with exact copies."""
        full = [row for row, hit in hits.items() if hit.full]
        entries = [prepared.entries[row] for row in full]
        copies = self._reader.look_up_copies([(entry.number, entry.digest) for entry in entries]) if full else []
        chosen = {row: copies_first(numbers, promising[row]) for row, numbers in zip(full, copies, strict=True)}
        return {**promising, **chosen}


def _current(entry: IndexEntry, stored: IndexEntry | None) -> IndexEntry:
    """Return the entry that the detector would go on with after inserting ``entry`` (``lifecycle``)."""
    if stored is None:
        return entry
    if not stored.deleted and stored.id == entry.id and stored.digest == entry.digest:
        return stored
    return with_incarnation(entry, stored)


def _in_order(matches: Sequence[Match], *, has_id: bool) -> tuple[Match, ...]:
    """Return matches in the order of an alert; a text without an id has no pair to name."""
    chosen = [match if has_id else replace(match, pair="") for match in matches]
    return tuple(sorted(chosen, key=lambda match: (-match.similarity, match.id)))
