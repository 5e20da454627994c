"""Types of the request and response bodies; docstrings and descriptions are in the OpenAPI document."""

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from streamdedup.serve.problems import Problem
from streamdedup.text.alignment import MAX_WORDS
from streamdedup.wire import MAX_ID_BYTES, Match

#: Most texts of one batch request.
MAX_BATCH_TEXTS: Final = 500
#: Most matches in the answer for one text or document; and the ``limit`` of a look-up whose request has none.
MAX_MATCHES: Final = 1_000
DEFAULT_MATCHES: Final = 100
#: Most matches in the answer to one batch: enough for the default ``limit`` of as many texts as a batch may have.
MAX_BATCH_MATCHES: Final = MAX_BATCH_TEXTS * DEFAULT_MATCHES

#: Form of a document id, for the OpenAPI document; ``requests.check_id`` refuses other ids. Its limit is in bytes of
#: UTF-8, which JSON Schema cannot express.
ID_SCHEMA: Final = {"minLength": 1, "maxLength": MAX_ID_BYTES, "pattern": r"^[^\u0000-\u001f\u007f-\u009f]+$"}

_Suppressed = Annotated[
    dict[str, int],
    Meta(description="Near-duplicates that are no matches, by the rule of the profile that suppresses them."),
]

_Source = (
    Annotated[
        str,
        Meta(
            max_length=MAX_ID_BYTES,
            description="Source of the text. Without it the rules of the profile about sources do not apply.",
        ),
    ]
    | None
)

_Scope = (
    Annotated[
        str,
        Meta(
            min_length=1,
            max_length=MAX_ID_BYTES,
            description="Scope of the text, in a profile with scopes. Without it the profile's default applies.",
        ),
    ]
    | None
)


class LookupRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A text to look up."""

    text: Annotated[str, Meta(description="The text, as the daemon would receive it.")]
    id: (
        Annotated[
            str, Meta(description="Id of the document; the document itself is left out.", extra_json_schema=ID_SCHEMA)
        ]
        | None
    ) = None
    # A float without a fraction: 1.0 is an integer in JSON Schema, but msgspec refuses it for an `int`.
    limit: Annotated[
        float,
        Meta(
            ge=1,
            le=MAX_MATCHES,
            multiple_of=1,
            description="Most matches to return.",
            extra_json_schema={"type": "integer", "default": DEFAULT_MATCHES},
        ),
    ] = DEFAULT_MATCHES
    threshold: (
        Annotated[
            float,
            Meta(
                gt=0,
                le=1,
                description="Least similarity of every match; without it the profile's, with its rule of containment.",
            ),
        ]
        | None
    ) = None
    source: _Source = None
    scope: _Scope = None


class LookupBatchRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Texts to look up, each for itself."""

    # For the OpenAPI document; ``requests`` decodes the texts one by one.
    texts: Annotated[
        list[LookupRequest],
        Meta(
            min_length=1,
            max_length=MAX_BATCH_TEXTS,
            description=f"Texts, whose `limit` is at most {MAX_BATCH_MATCHES:,} together.",
        ),
    ]


class CompareRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A text to compare with a stored document."""

    text: Annotated[str, Meta(description="The text, as the daemon would receive it.")]
    id: Annotated[str, Meta(description="Id of the stored document.", extra_json_schema=ID_SCHEMA)]
    source: _Source = None
    scope: _Scope = None


class LookupBody(msgspec.Struct, frozen=True):
    """Answer for one text."""

    digest: Annotated[str, Meta(description="Content digest of the text.")]
    skipped: Annotated[
        Literal["empty", "too_short", "too_few_words"] | None,
        Meta(description="Why the daemon would skip the text; null where it would not."),
    ]
    redelivery: Annotated[
        bool, Meta(description="Whether the index has this id with this content, so that the daemon would skip it.")
    ]
    matches: Annotated[list[Match], Meta(description="Near-duplicates, the most similar first, then by id.")]
    matches_count: Annotated[int, Meta(description="Number of near-duplicates, beyond the limit included.")]
    complete: Annotated[
        bool, Meta(description="False where a bucket was full or there were more candidates than the profile compares.")
    ]
    threshold: Annotated[float, Meta(description="Least similarity of a match whose reason is the similarity.")]
    recall: Annotated[
        float, Meta(description="Probability that the bands find a document whose similarity is the threshold.")
    ]
    suppressed: _Suppressed


class LookupBatchResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """Answer for one text of a batch, or the problem with it."""

    answer: LookupBody | None = None
    problem: Problem | None = None


class LookupBatchBody(msgspec.Struct, frozen=True):
    """Answers in the order of the texts."""

    results: list[LookupBatchResult]


_Label = Annotated[str | None, Meta(description="First words of the document; null where the index keeps no label.")]


class DocumentBody(msgspec.Struct, frozen=True):
    """A document of the index, which stores the label of a text and not the text."""

    id: str
    digest: str
    topic: str
    partition: int
    offset: int
    record_time: Annotated[str, Meta(description="Record time, RFC 3339.")]
    cluster_id: Annotated[
        str | None,
        Meta(description="Id of the first document of the cluster; null where it left the index or has another scope."),
    ]
    tokens: Annotated[int, Meta(description="Tokens of the text, 65,535 where there are more.")]
    shingles: Annotated[int, Meta(description="Distinct shingles of the text, `exact_limit` + 1 where there are more.")]
    sketch: Annotated[Literal["shingles", "signature"], Meta(description="Stored form of the shingles.")]
    sketch_bytes: Annotated[int, Meta(description="Size of the stored hashes.")]
    label: _Label
    source: Annotated[str | None, Meta(description="Source, a long one cut; null where unknown.")]
    published_at: Annotated[str | None, Meta(description="Publication time as it was sent; null where unknown.")]


class MemberBody(msgspec.Struct, frozen=True):
    """A document of a cluster."""

    id: str
    source: Annotated[str | None, Meta(description="Source, a long one cut; null where unknown.")]
    record_time: Annotated[str, Meta(description="Record time, RFC 3339.")]
    label: _Label


class ClusterBody(msgspec.Struct, frozen=True):
    """A cluster as the index has it; the last five fields are null without sources or labels."""

    id: Annotated[
        str | None, Meta(description="Id of the first document; null where it left the index or has another scope now.")
    ]
    members: Annotated[list[MemberBody], Meta(description="The earliest first; at most 1,000.")]
    complete: Annotated[bool, Meta(description="Whether the members are all documents; false from size 1000 on.")]
    size: Annotated[int, Meta(description="Number of documents, expired ones too; 1000 means 1,000 or more.")]
    sources: Annotated[
        int | None, Meta(description="Distinct sources in the cluster; from size 1000 on there may be more.")
    ] = None
    since: Annotated[str | None, Meta(description="Smallest record time in the cluster, RFC 3339.")] = None
    until: Annotated[str | None, Meta(description="Greatest record time in the cluster, RFC 3339.")] = None
    earliest_id: Annotated[
        str | None,
        Meta(
            description="Id of the document with the smallest record time; "
            "null where it left the index or has another scope now."
        ),
    ] = None
    earliest_source: Annotated[
        str | None, Meta(description="Source of `earliest_id`, a long one cut; null where unknown.")
    ] = None


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

    a: Annotated[DocumentBody | None, Meta(description="A stored document; null for a text of the request.")]
    b: DocumentBody
    similarity: float
    method: Literal["exact", "estimated"]
    standard_error: Annotated[
        float,
        Meta(
            description="Standard error of the similarity; 0 when exact, and for an estimate of 1: the similarity is "
            "then at least 1 - 3 / `permutations`, with 95 % confidence."
        ),
    ]
    containment: Annotated[float, Meta(description="Share of the smaller document's shingles that the other one has.")]
    containment_error: Annotated[
        float, Meta(description="Standard error of the containment; 0 when exact, and for an estimate of 1.")
    ]
    contained: Annotated[
        Literal["a", "b", "both"], Meta(description="The smaller document; both: they are of equal size.")
    ]
    bands: Annotated[int, Meta(description="Bands of the profile.")]
    shared_bands: int
    within_scope: Annotated[bool, Meta(description="Whether the documents are compared: they have the same scope.")]
    within_window: Annotated[bool, Meta(description="Whether the record times are near enough for a pair.")]
    is_match: Annotated[bool, Meta(description="Whether the two documents are a pair of the profile.")]
    suppressed_by: Annotated[
        Literal["min_shingles", "only_sources", "ignore_same_source", "ignore_sources"] | None,
        Meta(description="Rule of the profile that suppresses pairs of the two documents; null where none does."),
    ]
    segments: Annotated[
        list[SegmentBody] | None,
        Meta(description="Both texts in order, joined by `a` and by `b`; null where a text is missing."),
    ]
    aligned: Annotated[
        bool,
        Meta(
            description=f"Whether the texts were aligned. Where one has more than {MAX_WORDS:,} words, both are one "
            "segment, of the kind `changed`."
        ),
    ]
    texts_missing: Annotated[
        str | None,
        Meta(description="Why there are no segments, as when Kafka no longer has a text; null with segments."),
    ]


class ProfileBody(msgspec.Struct, frozen=True):
    """A profile and the state of its index."""

    name: str
    topics: list[str]
    threshold: float
    containment_threshold: Annotated[
        float | None, Meta(description="Least containment of a pair below the threshold; null without this rule.")
    ]
    similarity: str
    shingle_unit: str
    shingle_size: int
    bands: int
    rows: int
    permutations: int
    min_shared_bands: int
    min_words: int
    max_candidates: Annotated[int | None, Meta(description="Most candidates that are compared; null for no limit.")]
    bucket_cap: Annotated[int | None, Meta(description="Most documents in a bucket; null for no limit.")]
    max_text_bytes: int
    scope_field: Annotated[str | None, Meta(description="Field with the scope of a document; null without scopes.")]
    default_scope: Annotated[
        str | None, Meta(description="Scope of documents without one; null where each needs a scope.")
    ]
    retention_seconds: float
    recall: Annotated[float, Meta(description="Probability that a pair at the threshold is found.")]
    index: Annotated[Problem | None, Meta(description="Problem with the index; null where it can be looked up.")]
    documents: Annotated[int | None, Meta(description="About how many documents the index has, deleted ones included.")]


class ProfilesBody(msgspec.Struct, frozen=True):
    """All profiles."""

    profiles: list[ProfileBody]
