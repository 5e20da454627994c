"""The sections ``[profiles.NAME]``: topics, the format of their documents, and the rules for near-duplicates.

From the keys ``Profile`` also derives shingle options, the banding and the index fingerprint. ``base`` has the
conventions of names, docstrings and ``_check_...``. A new key needs a run of docs/settings_tables.py, and also touches

* ``indexes.detector_options`` if the detector needs it, ``cli.assembly`` if it is for decoding;
* ``fingerprint`` and docs/format.md if it changes the band keys or the sketch of a text;
* ``library.ProfileKeys`` if programs may set it.
"""

import unicodedata
from collections import Counter
from dataclasses import replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Final, Literal

from pydantic import Field

from streamdedup.index.documents import MAX_COUNT
from streamdedup.settings import kinds, profile_kinds
from streamdedup.settings.base import Mistakes, Section
from streamdedup.settings.files import read_utf8
from streamdedup.settings.profile_kinds import ENGLISH, NO_STOPS, UNIT_DEFAULTS, default_by_unit
from streamdedup.similarity import minhash
from streamdedup.similarity.containment import MIN_SHINGLES, ContainmentRule
from streamdedup.similarity.lsh import REFERENCE_DOCUMENTS, Banding, choose_banding, false_candidates
from streamdedup.similarity.measures import MEASURES, MeasureName
from streamdedup.text import shingles
from streamdedup.text.folding import look_alikes_version, variants_version
from streamdedup.text.shingles import ShingleOptions
from streamdedup.text.stop_shingles import digest_of_hashes, digest_of_words, option_differences, parse_stop_shingles
from streamdedup.text.stop_words import ENGLISH_STOP_WORDS, parse_stop_words
from streamdedup.wire import MAX_ID_BYTES, KeyFormat

#: ``recall_from`` where none is given and the threshold is not higher.
DEFAULT_RECALL_FROM: Final = 0.8
_chosen_banding = lru_cache(choose_banding)  # the choice tries all bandings


class Profile(Section):
    """Some topics, the form of their records, and the rules of comparison; each profile has an index of its own."""

    # Records.
    topics: profile_kinds.Topics
    """Input topics of this profile."""
    format: profile_kinds.FormatName = "json"
    """Format of the values in `topics`: plain JSON, or with schemas in a [registry](messages.md#schema-registry)."""
    id_field: profile_kinds.FieldName = "id"
    """Field with the document id; without it the key of the record is the id."""
    key_format: KeyFormat | None = None
    """Form of the record [keys](messages.md#keys): the id as text, JSON, or a key with a schema in the registry.
    Absent, the key is the id."""
    key_field: profile_kinds.OptionalFieldName = None
    """Field of the record key with the id; absent, the whole key is the id."""
    text_fields: profile_kinds.FieldNames = ("text",)
    """Fields with the text; several are joined by a line break."""
    published_at_field: profile_kinds.FieldName = "published_at"
    """Field with the time of publication."""
    source_field: profile_kinds.FieldName = "source"
    """Field with the source of the document."""
    op_field: profile_kinds.FieldName = "op"
    """Field with the operation: `upsert`, `append` or `delete`."""
    op_values: profile_kinds.OpValues = ()
    """Further words for operations in `op_field`."""
    deleted_field: profile_kinds.OptionalFieldName = None
    """Field that makes a record a deletion where it is true."""
    scope_field: profile_kinds.OptionalFieldName = None
    """Field with the [scope](tuning.md#scopes) of the document, such as a tenant: documents of two scopes are never
    compared."""
    default_scope: kinds.OptionalText = None
    """Scope of documents without one in `scope_field`; absent, they become dead letters."""
    # Text.
    shingle_unit: Literal["word", "char"] = "word"
    """Unit of a shingle; `char` suits short texts."""
    shingle_size: kinds.Whole = default_by_unit("shingle_size", ge=1, le=64)
    """Words or characters in a shingle."""
    letters_only: kinds.Flag = False
    """Drop digits: texts that differ only in numbers become equal."""
    fold_marks: kinds.Flag = False
    """Ignore [accents and vowel signs](text.md#accents-and-vowel-signs), dots and strokes, the script of digits, and
    Persian and Urdu keyboards."""
    fold_variants: kinds.Flag = False
    """Treat traditional, simplified and regional forms of a [Han character](text.md#variants-of-han-characters) as
    one."""
    fold_look_alikes: kinds.Flag = False
    """Treat letters that [look like a Latin letter](text.md#look-alike-letters) as this letter."""
    keep_urls: kinds.Flag = True
    """Keep [URLs and the link targets of Markdown](text.md#links-and-markup)."""
    stop_words: profile_kinds.StopWords = NO_STOPS
    """Words to leave out, for the unit `word`: the list of the project, or a file (UTF-8) with one word per line."""
    stop_shingles: profile_kinds.StopShingles = NO_STOPS
    """Shingles to leave out as [boilerplate](text.md#boilerplate): a file written by `streamdedup stop-shingles`."""
    keep_white_space: kinds.Flag = True
    """For the unit `char`: keep the space between words as part of the text."""
    # Comparison.
    similarity: MeasureName = "set"
    """Jaccard similarity of sets of shingles, or of bags, which count repetitions."""
    short_texts: Literal["whole", "skip"] = "whole"
    """A text shorter than a shingle becomes one shingle (`whole`), or is skipped."""
    min_words: kinds.Whole = Field(default=0, ge=0, le=MAX_COUNT)
    """Skip documents with fewer words."""
    threshold: kinds.Number = default_by_unit("threshold", gt=0.0, le=1.0)
    """Lowest similarity of an alerted pair."""
    containment_threshold: kinds.OptionalNumber = default_by_unit("containment_threshold", gt=0.0, le=1.0)
    """Alert a pair below `threshold` too if the larger text has at least this share of the smaller one:
    [containment](tuning.md#containment)."""
    recall_from: kinds.Number = Field(
        default_factory=lambda values: max(DEFAULT_RECALL_FROM, values["threshold"]),
        gt=0.0,
        le=1.0,
        json_schema_extra={"default": f"`{DEFAULT_RECALL_FROM}`, or `threshold` where higher"},
    )
    """Similarity from which an alerted pair is found with at least `min_recall`. Less similar pairs are found less
    often: [recall](tuning.md#recall)."""
    min_recall: kinds.Number = Field(default=0.99, gt=0.0, le=1.0)
    """Lowest share of the pairs exactly at `recall_from` that must be found; decides bands and rows."""
    # Suppressed pairs, and labels.
    min_shingles: kinds.Whole = Field(default=0, ge=0)
    """Suppress pairs in which a document has [fewer shingles](tuning.md#rules-about-sources), stop shingles not
    counted."""
    only_sources: profile_kinds.SourceNames = ()
    """If not empty, suppress pairs of two known sources of which neither is listed."""
    ignore_same_source: kinds.Flag = False
    """Suppress pairs whose documents have the same source."""
    ignore_sources: profile_kinds.SourcePairs = ()
    """Suppress pairs between these sources, in both directions; a source paired with itself: pairs within it."""
    label_bytes: kinds.Whole = Field(default=80, ge=0, le=160)
    """Longest label: the first words of a document, which the index keeps for alerts with source and publication time.
    0 keeps none of them."""
    # Index.
    permutations: kinds.Whole = Field(default=128, ge=1, le=1024)
    """Values in a signature."""
    bands: kinds.OptionalWhole = Field(default=None, ge=1, json_schema_extra={"default": "chosen"})
    """Bands of the signature, instead of the choice by `min_recall`."""
    rows: kinds.OptionalWhole = Field(default=None, ge=1, json_schema_extra={"default": "chosen"})
    """Values in a band; given together with `bands`."""
    min_shared_bands: kinds.Whole = Field(default=1, ge=1)
    """Fewest bands that a pair must share to be compared."""
    exact_limit: kinds.Limit = Field(default=8192, ge=0)
    """A document of at most this many shingles (distinct ones; of bags: all) is compared exactly; a longer one by the
    estimate of its signature."""
    retention_s: kinds.Duration = Field(default=30 * 86400.0, ge=1.0, le=36500 * 86400.0)
    """Largest difference between the record times of a pair."""
    retention_slack_s: kinds.Duration = Field(default=86400.0, ge=0.0, le=3650 * 86400.0)
    """Additional time in the index, for outages and late records."""
    index_silently_until_ms: kinds.Moment = None
    """Documents with earlier record times form no pairs among themselves and become no dead letters: a [new
    index](deployment.md#a-new-index) is filled from a backlog without alerts."""
    # Below 512: a Redis set of at most 512 numbers is compact; one that once had more takes eight times the memory.
    bucket_cap: kinds.Limit = Field(default=500, ge=1)
    """Most documents in one bucket. A document that finds a bucket full is not added to it, and is compared with at
    most three candidates, exact copies first."""
    max_candidates: kinds.Limit = Field(default=500, ge=1)
    """Most candidates that a document is compared with, the most promising first."""
    # At most 64 MiB, as a record batch (``batch_limits.MAX_BATCH_BYTES``).
    max_text_bytes: kinds.Size = Field(default=1024 * 1024, ge=1, le=64 * 1024 * 1024)
    """Longest text (UTF-8) to process; a longer one becomes a dead letter."""
    seed: kinds.Whole = Field(default=minhash.DEFAULT_SEED, ge=0, le=2**63 - 1)
    """Seed of the hash functions of the signatures."""

    def shingle_options(self) -> ShingleOptions:
        return replace(self._options_without_stop_shingles(), stop_shingles=self._stop_shingles)

    def _options_without_stop_shingles(self) -> ShingleOptions:
        return ShingleOptions(
            unit=self.shingle_unit,
            size=self.shingle_size,
            letters_only=self.letters_only,
            fold_marks=self.fold_marks,
            fold_variants=self.fold_variants,
            fold_look_alikes=self.fold_look_alikes,
            keep_urls=self.keep_urls,
            stop_words=self._stop_words,
            keep_white_space=self.keep_white_space,
            bag=MEASURES[self.similarity].bag,
            short_texts=self.short_texts,
        )

    def banding(self) -> Banding:
        """Return ``bands`` and ``rows`` if set, else the cheapest that reach ``min_recall``; ValueError if none do."""
        if self.bands is not None and self.rows is not None:
            return Banding(self.bands, self.rows)
        jaccard = self.least_jaccard(self.recall_from)
        return _chosen_banding(jaccard, self.min_recall, self.permutations, self.min_shared_bands)

    def containment_rule(self) -> ContainmentRule | None:
        if self.containment_threshold is None:
            return None
        # A document counts at most as one with exact_limit + 1 shingles (``similarity.sketch``).
        min_shingles = MIN_SHINGLES if self.exact_limit is None else min(MIN_SHINGLES, self.exact_limit + 1)
        return ContainmentRule(self.containment_threshold, min_shingles)

    def configured_recall_from(self) -> float:
        """Return ``recall_from`` if set, else 0.8, also below the threshold, because ``tune`` tries others."""
        return self.recall_from if "recall_from" in self.model_fields_set else DEFAULT_RECALL_FROM

    def recall(self, similarity: float) -> float:
        """Return the probability that bands find a pair with this similarity; exact for Jaccard, else a lower bound."""
        return self.banding().probability(self.least_jaccard(similarity), self.min_shared_bands)

    def least_jaccard(self, similarity: float) -> float:
        """Return the least Jaccard similarity of a pair with this similarity; bands depend on Jaccard similarity."""
        return MEASURES[self.similarity].least_jaccard(similarity)

    def fingerprint(self) -> dict[str, object]:
        """Return by name, as JSON values, all with which the stored documents must agree.

        An index is used only with an equal fingerprint. ``unicode`` alone may differ: another version of Unicode
        changes few characters, and causes a warning.

        - Included: all that determines band keys and sketches; ``exact_limit``, because documents inserted before and
          after a change would be compared differently; ``scope_field``, as stored documents would be in wrong scopes.
        - Excluded: ``threshold``, ``containment_threshold``, ``min_words``, ``min_shared_bands``, the rules of
          suppression, the names of other fields, ``label_bytes``, retention and caps, because band keys and sketches
          do not depend on them; ``recall_from`` and ``min_recall``, of which only the resulting bands and rows count;
          ``default_scope``, because it applies to later records only.
        """
        banding = self.banding()
        return {
            "shingle_algorithm": shingles.ALGORITHM,
            "signature_algorithm": minhash.ALGORITHM,
            "unicode": unicodedata.unidata_version,
            "shingle_unit": self.shingle_unit,
            "shingle_size": self.shingle_size,
            "letters_only": self.letters_only,
            "fold_marks": self.fold_marks,
            "fold_variants": self.fold_variants and variants_version(),  # False, or the version of the data
            "fold_look_alikes": self.fold_look_alikes and look_alikes_version(),
            "keep_urls": self.keep_urls,
            "stop_words": digest_of_words(self._stop_words),
            "stop_shingles": digest_of_hashes(self._stop_shingles),
            "keep_white_space": self.keep_white_space,
            "similarity": self.similarity,
            "short_texts": self.short_texts,
            "permutations": self.permutations,
            "seed": self.seed,
            "bands": banding.bands,
            "rows": banding.rows,
            "exact_limit": self.exact_limit,
            "scope_field": self.scope_field,
        }

    # Read once. A copy by ``model_copy`` keeps both values, also if its keys name other files.
    @cached_property
    def _stop_words(self) -> frozenset[str]:
        if self.stop_words == NO_STOPS:
            return frozenset()
        if self.stop_words == ENGLISH:
            return ENGLISH_STOP_WORDS
        return parse_stop_words(read_utf8(Path(self.stop_words)))

    @cached_property
    def _stop_shingles(self) -> frozenset[int]:
        if self.stop_shingles == NO_STOPS:
            return frozenset()
        stops = parse_stop_shingles(read_utf8(Path(self.stop_shingles)))
        # They were learnt without stop shingles; ``shingle_options`` would also call this again.
        if wrong := option_differences(stops, self._options_without_stop_shingles()):
            raise ValueError(f"holds other shingles than those of the profile: {', '.join(wrong)}")
        return stops.hashes

    def hints(self) -> Mistakes:
        """Yield key and text of a warning if a document probably has more false candidates than ``max_candidates``."""
        banding = self.banding()
        candidates = false_candidates(banding, self.least_jaccard(self.threshold), unit=self.shingle_unit)
        # The estimate for characters was measured with shingles of 5, and is too high for longer ones.
        estimate_applies = self.shingle_unit == "word" or self.shingle_size <= UNIT_DEFAULTS["char"].shingle_size
        if estimate_applies and self.max_candidates is not None and candidates > self.max_candidates:
            text = (
                f"is {self.max_candidates}, but {banding} (bands x rows) give a document some {candidates:,.0f} "
                f"candidates below similarity {self.threshold:g} in an index of {REFERENCE_DOCUMENTS:,} texts like "
                "Reuters articles: pairs are missed; more rows with more permutations give fewer (streamdedup tune "
                "chooses them), or raise max_candidates and bucket_cap"
            )
            yield "max_candidates", text

    def _check_bands(self) -> Mistakes:
        if self.bands is not None and self.rows is not None:
            yield from self._explicit_banding_mistakes(Banding(self.bands, self.rows))
        elif self.bands is not None:
            yield "rows", "is missing; bands needs it"
        elif self.rows is not None:
            yield "bands", "is missing; rows needs it"
        else:
            try:
                self.banding()
            except ValueError as error:
                yield "min_recall", f"cannot be reached: {error}"

    def _explicit_banding_mistakes(self, banding: Banding) -> Mistakes:
        """Yield mistakes of ``bands`` and ``rows``; checks ``min_recall`` only if it or ``recall_from`` is set."""
        banding_text = f"{banding.bands} bands of {banding.rows} rows"
        is_possible = banding.permutations <= self.permutations
        if not is_possible:
            yield "bands", f"{banding_text} need {banding.permutations} permutations; there are {self.permutations}"
        if self.min_shared_bands > banding.bands:
            yield "min_shared_bands", f"is above the number of bands, {banding.bands}"
        elif is_possible and {"min_recall", "recall_from"} & self.model_fields_set:
            reached = self.recall(self.recall_from)
            if reached < self.min_recall:
                text = f"is {self.min_recall}, but {banding_text} reach {reached:.4f} at recall_from {self.recall_from}"
                yield "min_recall", text

    def _check_recall_from(self) -> Mistakes:
        if self.recall_from < self.threshold:
            text = f"is {self.recall_from:g}; it must be at least threshold, which is {self.threshold:g}"
            yield "recall_from", text

    def _check_shingle_counts(self) -> Mistakes:
        # A document counts at most as one with exact_limit + 1 shingles: a larger minimum would suppress all pairs.
        if self.exact_limit is not None and self.min_shingles > self.exact_limit + 1:
            text = f"is {self.min_shingles}; it may be {self.exact_limit + 1} at most, one above exact_limit"
            yield "min_shingles", text

    def _check_repetitions(self) -> Mistakes:
        for key in ("topics", "text_fields", "only_sources"):
            # A key with a wrong value has no attribute: without the default, an error here would hide later mistakes.
            for name, count in Counter(getattr(self, key, ())).items():
                if count > 1:
                    yield key, f"{kinds.write_text(name)} is there {count} times, and may be there once"

    def _check_ignored_pairs(self) -> Mistakes:
        for pair, count in Counter(tuple(sorted(pair)) for pair in self.ignore_sources).items():
            if count > 1:
                text = f"{kinds.write_list(pair)} is there {count} times, and may be there once, in either order"
                yield "ignore_sources", text

    def _check_white_space(self) -> Mistakes:
        if self.shingle_unit == "word" and "keep_white_space" in self.model_fields_set:
            yield "keep_white_space", 'is for shingle_unit = "char" only'

    def _check_stop_lists(self) -> Mistakes:
        if self.shingle_unit == "char" and self.stop_words != NO_STOPS:
            yield "stop_words", 'is for shingle_unit = "word" only'
        # One mistake at a time, in this order: ``_stop_shingles`` needs ``_stop_words``.
        for key, noun in (("stop_words", "word"), ("stop_shingles", "shingle")):
            path = getattr(self, key)
            try:
                stops = self._stop_words if key == "stop_words" else self._stop_shingles  # reads the file
            except ValueError as error:
                yield key, f"{path} {error}"
                return
            if not stops and path != NO_STOPS:
                yield key, f"{path} holds no {noun}"
                return

    def _check_fields(self) -> Mistakes:
        keys_by_name = dict.fromkeys(getattr(self, "text_fields", ()), "text_fields")  # as in ``_check_repetitions``
        for key in ("id_field", "published_at_field", "source_field", "op_field", "scope_field", "deleted_field"):
            name = getattr(self, key, None)
            if name in keys_by_name:
                yield key, f"is {name}, which {keys_by_name[name]} names already; each needs a field of its own"
            elif name is not None:
                keys_by_name[name] = key
        if self.default_scope is not None and self.scope_field is None:
            yield "default_scope", "needs scope_field"
        if self.default_scope is not None and len(self.default_scope.encode()) > MAX_ID_BYTES:
            yield "default_scope", f"is longer than {MAX_ID_BYTES:,} bytes"
        if self.key_field is not None and self.key_format not in {"json", "registry"}:
            yield "key_field", 'needs key_format = "json" or "registry"'
