"""Types of the request and response bodies; docstrings and descriptions are in the OpenAPI document."""

from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from streamdedup.serve.problems import Problem
from streamdedup.text.alignment import MAX_WORDS
from streamdedup.wire import MAX_ID_BYTES, Match

MAX_BATCH_TEXTS: Final = 500  # most texts of one batch request
#: Most matches in the answer for one text or document; and the ``limit`` of a look-up whose request has none.
MAX_MATCHES: Final = 1_000
DEFAULT_MATCHES: Final = 100
#: Most matches in the answer to one batch: enough for the default ``limit`` of as many texts as a batch may have.
MAX_BATCH_MATCHES: Final = MAX_BATCH_TEXTS * DEFAULT_MATCHES

#: Form of a document id, for the OpenAPI document; its limit is in bytes, which JSON Schema cannot express.
ID_SCHEMA: Final = {"minLength": 1, "maxLength": MAX_ID_BYTES, "pattern": r"^[^\u0000-\u001f\u007f-\u009f]+$"}


def _about(description: str, **constraints: Any) -> Meta:
    return Meta(description=description, **constraints)


# Requests

_Text = Annotated[str, _about("The text, as the daemon would receive it.")]
_Source = Annotated[str, _about("Without it the profile's rules about sources do not apply.", max_length=MAX_ID_BYTES)]
_Scope = Annotated[str, _about("Without it the profile's default applies.", min_length=1, max_length=MAX_ID_BYTES)]
_Id = Annotated[str, _about("Id of the document, which is left out.", extra_json_schema=ID_SCHEMA)]
_StoredId = Annotated[str, _about("Id of the stored document.", extra_json_schema=ID_SCHEMA)]
_Threshold = Annotated[
    float,
    _about("Least similarity of a match; without it the profile's, with its rule of containment.", gt=0, le=1),
]
# A float without a fraction: 1.0 is an integer in JSON Schema, but msgspec refuses it for an `int`.
_Limit = Annotated[
    float,
    Meta(ge=1, le=MAX_MATCHES, multiple_of=1, extra_json_schema={"type": "integer", "default": DEFAULT_MATCHES}),
]


class LookupRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A text to look up."""

    text: _Text
    id: _Id | None = None
    limit: _Limit = DEFAULT_MATCHES
    threshold: _Threshold | None = None
    source: _Source | None = None
    scope: _Scope | None = None


# For the OpenAPI document; ``requests`` decodes the texts one by one.
_Texts = Annotated[
    list[LookupRequest],
    _about(f"The sum of their `limit` is at most {MAX_BATCH_MATCHES:,}.", min_length=1, max_length=MAX_BATCH_TEXTS),
]


class LookupBatchRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Texts to look up, each for itself."""

    texts: _Texts


class CompareRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A text to compare with a stored document."""

    text: _Text
    id: _StoredId
    source: _Source | None = None
    scope: _Scope | None = None


# Responses

_Suppressed = Annotated[dict[str, int], _about("Near-duplicates that are no matches, by the rule of the profile.")]
_Label = Annotated[str | None, _about("First words of the document; null where the index keeps no label.")]
_StoredSource = Annotated[str | None, _about("A long one is cut; null where unknown.")]
_FirstId = Annotated[str | None, _about("Null where the document left the index or has another scope.")]
_Error = Annotated[float, _about("Standard error; 0 when exact, and for an estimate of 1.")]


class LookupBody(msgspec.Struct, frozen=True):
    """Answer for one text."""

    digest: str
    skipped: Annotated[
        Literal["empty", "too_short", "too_few_words"] | None, _about("Why the daemon would skip the text.")
    ]
    redelivery: Annotated[bool, _about("Whether the index has this id with this content.")]
    matches: Annotated[list[Match], _about("Near-duplicates, the most similar first, then by id.")]
    matches_count: Annotated[int, _about("Number of near-duplicates, beyond the limit included.")]
    complete: Annotated[bool, _about("False where a bucket was full, or the profile compares fewer candidates.")]
    threshold: Annotated[float, _about("Least similarity of a match whose reason is the similarity.")]
    recall: Annotated[float, _about("Probability that the bands find a document whose similarity is the threshold.")]
    suppressed: _Suppressed


class LookupBatchResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """Answer for one text of a batch, or the problem with it."""

    answer: LookupBody | None = None
    problem: Problem | None = None


class LookupBatchBody(msgspec.Struct, frozen=True):
    """Answers in the order of the texts."""

    results: list[LookupBatchResult]


class DocumentBody(msgspec.Struct, frozen=True):
    """A document of the index, which stores the label of a text and not the text."""

    id: str
    digest: str
    topic: str
    partition: int
    offset: int
    record_time: str
    cluster_id: _FirstId
    tokens: Annotated[int, _about("Tokens of the text, 65,535 where there are more.")]
    shingles: Annotated[int, _about("Distinct shingles of the text, `exact_limit` + 1 where there are more.")]
    sketch: Annotated[Literal["shingles", "signature"], _about("Stored form of the shingles.")]
    sketch_bytes: Annotated[int, _about("Size of the stored hashes.")]
    label: _Label
    source: _StoredSource
    published_at: Annotated[str | None, _about("As it was sent; null where unknown.")]


class MemberBody(msgspec.Struct, frozen=True):
    """A document of a cluster."""

    id: str
    source: _StoredSource
    record_time: str
    label: _Label


class ClusterBody(msgspec.Struct, frozen=True):
    """A cluster as the index has it; the last five fields are null without sources or labels."""

    id: _FirstId
    members: Annotated[list[MemberBody], _about("The earliest first; at most 1,000.")]
    complete: Annotated[bool, _about("Whether the members are all documents; false from size 1000 on.")]
    size: Annotated[int, _about("Number of documents, expired ones too; 1000 means 1,000 or more.")]
    sources: Annotated[int | None, _about("Distinct sources; from size 1000 on there may be more.")] = None
    since: Annotated[str | None, _about("Smallest record time in the cluster.")] = None
    until: Annotated[str | None, _about("Greatest record time in the cluster.")] = None
    earliest_id: _FirstId = None
    earliest_source: _StoredSource = None


class DocumentMatchesBody(msgspec.Struct, frozen=True):
    """Near-duplicates of a stored document."""

    id: str
    digest: str
    cluster_id: str | None
    cluster: ClusterBody
    matches: list[Match]
    matches_count: int
    complete: bool
    threshold: float
    recall: float
    suppressed: _Suppressed


class SegmentBody(msgspec.Struct, frozen=True):
    """A part of both texts: the same in both, or the parts that replace each other, of which one may be empty."""

    kind: Literal["equal", "changed"]
    a: str
    b: str


class CompareBody(msgspec.Struct, frozen=True):
    """Comparison of two stored documents, or of a text with a stored document."""

    a: Annotated[DocumentBody | None, _about("A stored document; null for a text of the request.")]
    b: DocumentBody
    similarity: float
    method: Literal["exact", "estimated"]
    standard_error: _Error
    containment: Annotated[float, _about("Share of the smaller document's shingles that the other one has.")]
    containment_error: _Error
    contained: Annotated[Literal["a", "b", "both"], _about("The smaller document; both: they are of equal size.")]
    bands: Annotated[int, _about("Bands of the profile.")]
    shared_bands: int
    within_scope: Annotated[bool, _about("Whether the documents have the same scope.")]
    within_window: Annotated[bool, _about("Whether the record times are near enough for a pair.")]
    is_match: Annotated[bool, _about("Whether the two documents are a pair of the profile.")]
    suppressed_by: Annotated[
        Literal["min_shingles", "only_sources", "ignore_same_source", "ignore_sources"] | None,
        _about("Rule of the profile that suppresses the pair."),
    ]
    segments: Annotated[list[SegmentBody] | None, _about("Both texts in order, joined by `a` and by `b`.")]
    aligned: Annotated[bool, _about(f"False for more than {MAX_WORDS:,} words: both texts are one segment.")]
    texts_missing: Annotated[str | None, _about("Why there are no segments, as when Kafka no longer has a text.")]


class ProfileBody(msgspec.Struct, frozen=True):
    """A profile and the state of its index."""

    name: str
    topics: list[str]
    threshold: float
    containment_threshold: Annotated[float | None, _about("Least containment of a pair below the threshold.")]
    similarity: str
    shingle_unit: str
    shingle_size: int
    bands: int
    rows: int
    permutations: int
    min_shared_bands: int
    min_words: int
    max_candidates: Annotated[int | None, _about("Most candidates that are compared; null for no limit.")]
    bucket_cap: Annotated[int | None, _about("Most documents in a bucket; null for no limit.")]
    max_text_bytes: int
    scope_field: Annotated[str | None, _about("Field with the scope of a document; null without scopes.")]
    default_scope: Annotated[str | None, _about("Scope of documents without one; null where each needs a scope.")]
    retention_seconds: float
    recall: Annotated[float, _about("Probability that a pair at the threshold is found.")]
    index: Annotated[Problem | None, _about("Problem with the index; null where it can be looked up.")]
    documents: Annotated[int | None, _about("About how many documents the index has, deleted ones included.")]


class ProfilesBody(msgspec.Struct, frozen=True):
    """All profiles."""

    profiles: list[ProfileBody]
