"""Makes response bodies (``schemas``) from the results of look-ups."""

from typing import Any, Final, Literal

from msgspec.structs import replace

from streamdedup.detection.captions import read_caption
from streamdedup.detection.lookup import DocumentComparison, LookupResult, StoredCluster
from streamdedup.detection.model import Skip
from streamdedup.index.documents import IndexEntry
from streamdedup.index.values import CLUSTER_SIZE_CAP
from streamdedup.serve.index_thread import ServedProfile, StoredDocument
from streamdedup.serve.problems import Problem
from streamdedup.serve.schemas import (
    MAX_MATCHES,
    ClusterBody,
    CompareBody,
    DocumentBody,
    DocumentMatchesBody,
    LookupBody,
    MemberBody,
    ProfileBody,
    SegmentBody,
)
from streamdedup.serve.texts import Alignment
from streamdedup.similarity.containment import SmallerSide
from streamdedup.wire import rfc_3339

#: Reasons why the daemon would skip a text of a look-up.
_SKIPS: Final[dict[Skip | None, Literal["empty", "too_short", "too_few_words"]]] = {
    Skip.EMPTY: "empty",
    Skip.TOO_SHORT: "too_short",
    Skip.TOO_FEW_WORDS: "too_few_words",
}
#: Field ``contained`` of a comparison: the side with fewer shingles, or both; set for any containment.
_COMPARED_SIDES: Final[dict[SmallerSide, Literal["a", "b", "both"]]] = {"left": "a", "right": "b", "both": "both"}


def lookup_body(result: LookupResult, limit: int) -> LookupBody:
    skipped = _SKIPS.get(result.skipped)  # None for a text that is not skipped
    return LookupBody(skipped=skipped, redelivery=result.redelivery, **_result_fields(result, limit))


def _result_fields(result: LookupResult, limit: int) -> dict[str, Any]:
    return {
        "digest": result.digest.hex(),
        "matches": list(result.matches[:limit]),
        "matches_count": len(result.matches),
        "complete": result.complete,
        "threshold": result.threshold,
        "recall": result.recall,
        "suppressed": {rule.value: count for rule, count in result.suppressed.items()},
    }


def document_body(served: ServedProfile, stored: StoredDocument) -> DocumentBody:
    """Return the body of a document; without labels it has no source and publication time either."""
    entry, cluster_id = stored
    sketch, caption = entry.content.sketch, read_caption(entry.content.caption, served.lookup.options.label_bytes)
    return DocumentBody(
        id=entry.id,
        digest=entry.digest.hex(),
        topic=entry.position.topic,
        partition=entry.position.partition,
        offset=entry.position.offset,
        record_time=rfc_3339(entry.time_ms),
        cluster_id=cluster_id,
        tokens=entry.content.token_count,
        shingles=sketch.count,
        sketch="signature" if sketch.hashes is None else "shingles",
        sketch_bytes=sketch.size_bytes,
        label=caption.label or None,
        source=caption.source or None,
        published_at=caption.published_at or None,
    )


def cluster_body(first_id: str | None, cluster: StoredCluster) -> ClusterBody:
    """Return the body of a cluster; ``first_id``: None where unknown (``StoredDocument``)."""
    members = [
        MemberBody(
            id=member.id,
            source=member.caption.source or None,
            record_time=rfc_3339(member.time_ms),
            label=member.caption.label or None,
        )
        for member in cluster.members
    ]
    # The index counts and collects at most `CLUSTER_SIZE_CAP` members, so a cluster of this size may have more.
    body = ClusterBody(id=first_id, members=members, complete=cluster.size < CLUSTER_SIZE_CAP, size=cluster.size)
    if (spread := cluster.spread) is None:
        return body
    return replace(
        body,
        sources=spread.sources,
        since=rfc_3339(spread.since_ms),
        until=rfc_3339(spread.until_ms),
        earliest_id=spread.earliest_id,
        earliest_source=spread.earliest_source,
    )


def matches_body(entry: IndexEntry, cluster: ClusterBody, result: LookupResult) -> DocumentMatchesBody:
    fields = _result_fields(result, MAX_MATCHES)
    return DocumentMatchesBody(id=entry.id, cluster_id=cluster.id, cluster=cluster, **fields)


def compare_body(
    a: DocumentBody | None, b: DocumentBody, comparison: DocumentComparison, alignment: Alignment
) -> CompareBody:
    segments = None
    if alignment.segments is not None:
        segments = [
            SegmentBody("equal" if part.is_equal else "changed", a=part.a, b=part.b) for part in alignment.segments
        ]
    return CompareBody(
        a=a,
        b=b,
        similarity=comparison.similarity,
        method="exact" if comparison.exact else "estimated",
        standard_error=comparison.standard_error,
        containment=comparison.containment,
        containment_error=comparison.containment_error,
        contained=_COMPARED_SIDES[comparison.contained],
        bands=comparison.bands,
        shared_bands=comparison.shared_bands,
        within_scope=comparison.within_scope,
        within_window=comparison.within_window,
        is_match=comparison.is_match,
        suppressed_by=None if comparison.suppressed_by is None else comparison.suppressed_by.value,
        segments=segments,
        aligned=alignment.is_aligned,
        texts_missing=alignment.texts_missing,
    )


def profile_body(served: ServedProfile, documents_count: int | None, index_problem: Problem | None) -> ProfileBody:
    """Return the body of a profile; ``index_problem`` says why its index cannot be looked up."""
    options = served.lookup.options
    return ProfileBody(
        name=served.name,
        topics=list(served.topics),
        threshold=options.threshold,
        containment_threshold=None if options.containment is None else options.containment.threshold,
        similarity=served.similarity,
        shingle_unit=options.shingles.unit,
        shingle_size=options.shingles.size,
        bands=options.banding.bands,
        rows=options.banding.rows,
        permutations=options.permutations,
        min_shared_bands=options.min_shared_bands,
        min_words=options.min_words,
        max_candidates=options.max_candidates,
        bucket_cap=served.bucket_cap,
        max_text_bytes=served.max_text_bytes,
        scope_field=options.scope_field,
        default_scope=options.default_scope,
        retention_seconds=served.retention_s,
        recall=options.recall(options.threshold),
        index=index_problem,
        documents=documents_count,
    )
