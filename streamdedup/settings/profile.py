"""The sections ``[profiles.NAME]``: what counts as a near-duplicate in some topics, and for how long.

A profile also turns itself into what the core works with: options for shingles, a banding, and the fingerprint of the
index.
"""

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from streamdedup import content, minhash, text
from streamdedup.lsh import Banding, choose_banding
from streamdedup.settings.base import Check, Section, check_different, check_items
from streamdedup.settings.kafka import check_topic
from streamdedup.settings.units import Duration, Flag, Limit, Moment, Names, Number, Size, Text, Whole, read_utf8
from streamdedup.stop_shingles import differences, digest_of_hashes, digest_of_words, parse_stop_shingles
from streamdedup.text import ENGLISH_STOP_WORDS, ShingleOptions, parse_stop_words

#: Shingle size where none is given, by unit.
DEFAULT_SIZES = {"word": 3, "char": 5}
#: What the name of a field may be, in words and as an expression: what JSON spells without escapes.
_NAME_ALLOWED = "without quotes, backslashes and control characters"
_NAME = re.compile(r'[^"\\\x00-\x1f\ud800-\udfff]+')
#: Names of the stop-word lists that need no file.
_NO_STOP_WORDS, _ENGLISH = "none", "english"
#: What stands for no file of stop shingles.
_NO_STOP_SHINGLES = "none"


def _check_topics(topics: tuple[str, ...]) -> tuple[str, ...]:
    return check_different(check_items(topics, check_topic))


def _check_field(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError("not the name of a field")
    return name


def _check_fields(fields: tuple[str, ...]) -> tuple[str, ...]:
    return check_different(check_items(fields, _check_field))


#: The name of a field of the input.
FieldName = Annotated[Text, AfterValidator(_check_field)]


def _field(default: str, description: str) -> FieldName:
    """Declare a key that names a field of the input."""
    declared: FieldName = Field(
        default=default,
        description=description,
        json_schema_extra={"allowed": f"the name of a field, {_NAME_ALLOWED}"},
    )
    return declared


class Profile(Section):
    """One namespace of the index and the rules by which its documents are compared; durations are in seconds here."""

    topics: Annotated[Names, AfterValidator(_check_topics)] = Field(
        min_length=1,
        description="Input topics that this profile applies to.",
        json_schema_extra={"allowed": "one or more names of topics, none twice, as a list or with commas between them"},
    )
    id_field: FieldName = _field("id", "Field that holds the document's id; the record's key where it is absent.")
    text_fields: Annotated[Names, AfterValidator(_check_fields)] = Field(
        default=("text",),
        min_length=1,
        description="Fields that hold the text; several are joined by a line break.",
        json_schema_extra={
            "allowed": f"one or more names of fields {_NAME_ALLOWED}, none twice, as a list or with commas between them"
        },
    )
    published_at_field: FieldName = _field(
        "published_at", "Field with the time of publication, passed on to alerts as it is."
    )
    source_field: FieldName = _field(
        "source", "Field that says where the document comes from, passed on to alerts as it is."
    )
    op_field: FieldName = _field("op", "Field that says what to do: `upsert`, `append` or `delete`.")
    shingle_unit: Literal["word", "char"] = Field(
        default="word", description="What a shingle is made of; `char` suits short texts."
    )
    shingle_size: Whole = Field(
        default_factory=lambda values: DEFAULT_SIZES[values["shingle_unit"]],
        ge=1,
        le=64,
        description="Words or characters in a shingle.",
        json_schema_extra={"default": "`3` words, `5` characters"},
    )
    letters_only: Flag = Field(
        default=False, description="Drop digits: texts that differ in their figures only become equal."
    )
    fold_marks: Flag = Field(
        default=False,
        description="Drop accents (Latin, Greek, Cyrillic) and vowel signs (Arabic, Hebrew, Syriac): texts with and "
        "without them match.",
    )
    stop_words: Text = Field(
        default=_NO_STOP_WORDS,
        min_length=1,
        description="Words to leave out, for the unit `word`: the project's own list, or a file (UTF-8) with one "
        "word a line.",
        json_schema_extra={"allowed": '"none", "english" or the path of a file', "path": True},
    )
    stop_shingles: Text = Field(
        default=_NO_STOP_SHINGLES,
        min_length=1,
        description="Shingles to leave out because too many documents share them: a file that "
        "`streamdedup stop-shingles` wrote.",
        json_schema_extra={"allowed": '"none" or the path of a file', "path": True},
    )
    keep_white_space: Flag = Field(
        default=True, description="For the unit `char`: whether the space between words belongs to the text."
    )
    similarity: Literal["set", "bag"] = Field(
        default="set", description="Jaccard similarity of sets of shingles, or of bags, which count repetitions."
    )
    short_texts: Literal["whole", "skip"] = Field(
        default="whole", description="A text too short for one shingle is one `whole` shingle, or is skipped."
    )
    min_words: Whole = Field(default=0, ge=0, description="Skip documents with fewer words.")
    threshold: Number = Field(default=0.8, gt=0.0, le=1.0, description="Least similarity of an alerted pair.")
    min_recall: Number = Field(
        default=0.99,
        gt=0.0,
        le=1.0,
        description="Least share of the pairs exactly at the threshold that must be found; bands and rows are "
        "chosen by it.",
    )
    permutations: Whole = Field(default=128, ge=1, le=1024, description="Values in a signature.")
    bands: Limit = Field(
        default=None,
        ge=1,
        description="Bands of the signature, instead of the choice by `min_recall`.",
        json_schema_extra={"allowed": "a whole number from 1", "default": "chosen"},
    )
    rows: Limit = Field(
        default=None,
        ge=1,
        description="Values in a band; given together with `bands`.",
        json_schema_extra={"allowed": "a whole number from 1", "default": "chosen"},
    )
    min_shared_bands: Whole = Field(
        default=1, ge=1, description="Bands that a pair must have in common before it is compared."
    )
    exact_limit: Limit = Field(
        default=8192,
        ge=0,
        description="A document with at most so many distinct shingles keeps them all and is compared exactly; beyond, "
        "its signature gives an estimate.",
    )
    retention_s: Duration = Field(
        default=30 * 86400.0,
        alias="retention",
        ge=1.0,
        le=36500 * 86400.0,
        description="Two documents match while their record times differ by at most this.",
    )
    retention_slack_s: Duration = Field(
        default=86400.0,
        alias="retention_slack",
        ge=0.0,
        le=3650 * 86400.0,
        description="How much longer the index keeps a document, for outages and late records.",
    )
    records_in_order: Flag = Field(
        default=False,
        description="A promise: in no partition record times go back by more than retention_slack. Then a backlog that "
        "is read at full speed takes no more memory than the windows that are open.",
    )
    index_silently_until_ms: Moment = Field(
        default=None,
        alias="index_silently_until",
        description="Documents of record times before this are no pairs among themselves, and nothing is said of those "
        "that cannot be processed: a new index is filled from a backlog without alerting.",
    )
    # Redis keeps a set of up to 512 numbers compact; one more, for a moment, would cost eight times the memory.
    bucket_cap: Limit = Field(
        default=500,
        ge=1,
        description="Most documents in one bucket. Who meets a full one does not enter it and is compared with "
        "three candidates only, exact copies first.",
    )
    max_candidates: Limit = Field(
        default=500, ge=1, description="Most candidates to compare a document with, the most promising first."
    )
    max_matches: Whole = Field(
        default=100, ge=1, le=10_000, description="Most matches in one message; more continue in a further one."
    )
    max_text_bytes: Size = Field(
        default=1024 * 1024,
        ge=1,
        le=256 * 1024 * 1024,
        description="Longest text (UTF-8) to process; a longer one becomes a dead letter.",
    )
    seed: Whole = Field(
        default=minhash.DEFAULT_SEED,
        ge=0,
        le=2**63 - 1,
        description="What the hash functions of the signatures are drawn from.",
    )

    def shingle_options(self) -> ShingleOptions:
        """Return how texts of this profile become shingles."""
        return replace(self.every_shingle(), stop_shingles=self._stop_shingles)

    def every_shingle(self) -> ShingleOptions:
        """Return the same without stop shingles."""
        return ShingleOptions(
            unit=self.shingle_unit,
            size=self.shingle_size,
            letters_only=self.letters_only,
            fold_marks=self.fold_marks,
            stop_words=self._stop_words,
            keep_white_space=self.keep_white_space,
            bag=self.similarity == "bag",
            short_texts=self.short_texts,
        )

    def banding(self) -> Banding:
        """Return the bands and rows that were given, else the cheapest that reach ``min_recall`` at the threshold."""
        return self._banding

    def fingerprint(self) -> dict[str, object]:
        """Return everything that decides which band keys and sketches a text gets, in values that JSON can hold.

        Two indexes may be continued with each other's documents exactly if these are equal. ``exact_limit`` is among
        them because else the same two texts would be compared exactly or by estimate, depending on when they came. Not
        among them, because they select among documents and pairs and change nothing stored: ``threshold`` and
        ``min_recall`` (but bands and rows, which may follow from them, are), ``min_words``, ``min_shared_bands``, the
        names of fields, retention and caps. A newer ``unicode``, which changes few characters, deserves a warning only.
        """
        banding = self.banding()
        return {
            "shingle_algorithm": text.ALGORITHM,
            "signature_algorithm": minhash.ALGORITHM,
            "content_format": content.FORMAT,
            "unicode": unicodedata.unidata_version,
            "shingle_unit": self.shingle_unit,
            "shingle_size": self.shingle_size,
            "letters_only": self.letters_only,
            "fold_marks": self.fold_marks,
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
        }

    @cached_property
    def _stop_words(self) -> frozenset[str]:
        if self.stop_words == _NO_STOP_WORDS:
            return frozenset()
        if self.stop_words == _ENGLISH:
            return ENGLISH_STOP_WORDS
        return parse_stop_words(read_utf8(Path(self.stop_words)))

    @cached_property
    def _stop_shingles(self) -> frozenset[int]:
        if self.stop_shingles == _NO_STOP_SHINGLES:
            return frozenset()
        found = parse_stop_shingles(read_utf8(Path(self.stop_shingles)))
        if wrong := differences(found, self.every_shingle()):
            raise ValueError(f"holds other shingles than those of the profile: {', '.join(wrong)}")
        return found.hashes

    @cached_property
    def _banding(self) -> Banding:
        if self.bands is not None and self.rows is not None:
            return Banding(self.bands, self.rows)
        return choose_banding(self.threshold, self.min_recall, self.permutations, self.min_shared_bands)

    def checks(self) -> tuple[Check, ...]:
        """Return what looks for contradictions within the section."""
        return (*super().checks(), self._white_space, self._stop_list, self._names, self._bands)

    def _bands(self) -> Iterator[tuple[str, str]]:
        if (self.bands is None) != (self.rows is None):
            yield (
                ("bands", "is missing; rows needs it") if self.bands is None else ("rows", "is missing; bands needs it")
            )
        elif self.bands is not None and self.rows is not None:
            yield from self._given_banding(Banding(self.bands, self.rows))
        else:
            try:
                self.banding()
            except ValueError as error:
                yield "min_recall", f"cannot be reached: {error}"

    def _white_space(self) -> Iterator[tuple[str, str]]:
        if self.shingle_unit == "word" and "keep_white_space" in self.model_fields_set:
            yield "keep_white_space", 'is for shingle_unit = "char" only'

    def _stop_list(self) -> Iterator[tuple[str, str]]:
        if self.shingle_unit == "char" and self.stop_words != _NO_STOP_WORDS:
            yield "stop_words", 'is for shingle_unit = "word" only'
        try:
            words = self._stop_words
        except ValueError as error:
            yield "stop_words", f"{self.stop_words} {error}"
        else:
            if not words and self.stop_words != _NO_STOP_WORDS:
                yield "stop_words", f"{self.stop_words} holds no word"
            else:
                yield from self._frames()

    def _frames(self) -> Iterator[tuple[str, str]]:
        try:
            found = self._stop_shingles
        except ValueError as error:
            yield "stop_shingles", f"{self.stop_shingles} {error}"
        else:
            if not found and self.stop_shingles != _NO_STOP_SHINGLES:
                yield "stop_shingles", f"{self.stop_shingles} holds no shingle"

    def _names(self) -> Iterator[tuple[str, str]]:
        owners = dict.fromkeys(self.text_fields, "text_fields")
        for key in ("id_field", "published_at_field", "source_field", "op_field"):
            name = getattr(self, key)
            if name in owners:
                yield key, f"is {name}, and so is one of {owners[name]}; each needs a field of its own"
            owners.setdefault(name, key)

    def _given_banding(self, banding: Banding) -> Iterator[tuple[str, str]]:
        used = f"{banding.bands} bands of {banding.rows} rows"
        if banding.permutations > self.permutations:
            yield "bands", f"{used} need {banding.permutations} permutations; there are {self.permutations}"
        if self.min_shared_bands > banding.bands:
            yield "min_shared_bands", f"is above the number of bands, {banding.bands}"
        elif "min_recall" in self.model_fields_set:
            reached = banding.probability(self.threshold, self.min_shared_bands)
            if reached < self.min_recall:
                yield (
                    "min_recall",
                    f"is {self.min_recall}, but {used} reach {reached:.4f} at threshold {self.threshold}",
                )
