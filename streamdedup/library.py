"""The Python API: the detector and its index for programs, without Kafka.

The package exports ``LibraryIndex`` and ``LibraryProfile`` as ``Index`` and ``Profile``. ``detection.writing`` writes
indexes by the stages of the daemon, ``detection.lookup`` reads these and those of daemons. The time of a call is the
record time of its documents. A change also touches docs/library.md, which lists the errors.
"""

import re
import threading
import warnings
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Literal, Self, TypedDict, Unpack

from streamdedup import clock, settings
from streamdedup.detection.chunks import CHUNK_DOCUMENTS
from streamdedup.detection.lookup import IndexLookup, LookupQuery, StoredCluster
from streamdedup.detection.model import DetectorOptions
from streamdedup.detection.scope import query_scope
from streamdedup.detection.writing import IndexWriter, Matches
from streamdedup.errors import BatchRefused, DocumentTooLarge, IndexNotWritable, SettingsError, StoreUnavailable
from streamdedup.index import contract
from streamdedup.index.contract import IndexReader, delete_index
from streamdedup.index.fingerprints import MAINTAINED_BY_PROGRAMS, PROGRAMS_PREFIX
from streamdedup.index.memory import MemoryIndex
from streamdedup.index.values import Fingerprint
from streamdedup.indexes import backend_at, connect_backend, detector_options, index_parameters, lifetime_ms
from streamdedup.library_arguments import (
    DocumentArgument,
    Field,
    converted_item,
    converted_items,
    optional_column,
    valid_field,
    valid_id,
    without_lone_surrogates,
)
from streamdedup.settings.validation import read_profile
from streamdedup.similarity.measures import MeasureName
from streamdedup.wire import ErrorCode, Match

__all__ = ["LibraryIndex", "LibraryProfile", "Match", "ProfileKeys"]

#: Name of an index, which is a part of keys in Redis.
_INDEX_NAME = re.compile(r"[a-z0-9_-]{1,32}")

_DocumentTuple = tuple[Field, str] | tuple[Field, str, Field | None] | tuple[Field, str, Field | None, Field | None]


class ProfileKeys(TypedDict, total=False):
    """The keys of ``settings.profile`` that are not about records of Kafka; bounds and defaults: docs/settings.md."""

    shingle_unit: Literal["word", "char"]
    shingle_size: int
    letters_only: bool
    fold_marks: bool
    fold_variants: bool
    fold_look_alikes: bool
    keep_urls: bool
    stop_words: str
    stop_shingles: str
    keep_white_space: bool
    similarity: MeasureName
    short_texts: Literal["whole", "skip"]
    min_words: int
    threshold: float
    containment_threshold: float | Literal["none"]
    recall_from: float
    min_shingles: int
    only_sources: Sequence[str]
    ignore_same_source: bool
    ignore_sources: Sequence[tuple[str, str]]
    label_bytes: int
    scope_field: str
    default_scope: str
    min_recall: float
    permutations: int
    bands: int
    rows: int
    min_shared_bands: int
    exact_limit: int | Literal["none"]
    retention: str
    retention_slack: str
    bucket_cap: int | Literal["none"]
    max_candidates: int | Literal["none"]
    max_text_bytes: int | str
    seed: int


class LibraryProfile:
    """The definition of a near-duplicate: the keys of ``[profiles.NAME]`` of the settings file (``ProfileKeys``).

    ``section`` is the validated profile with all values. ``SettingsError`` has a line for each mistake.
    """

    __slots__ = ("_keys", "section")

    def __init__(self, **keys: Unpack[ProfileKeys]) -> None:
        self._keys = keys
        self.section = read_profile(keys, allowed_keys=ProfileKeys.__annotations__.keys())

    def __repr__(self) -> str:
        return f"Profile({', '.join(f'{key}={value!r}' for key, value in self._keys.items())})"


class LibraryIndex:
    """An index for near-duplicates of documents and texts; made by ``in_memory``, ``connect`` or ``of_daemons``.

    Threads may share an index: a lock makes their calls run one after the other. For look-ups side by side, each thread
    opens an index of its own with ``connect``. An index must not be used on both sides of a fork.

    One program at a time writes to an index in Redis: the first ``add`` or ``remove`` takes the right to write, and the
    program that had the right is refused from then on.
    """

    def __init__(
        self,
        section: settings.Profile,
        options: DetectorOptions,
        reader: IndexReader,
        fingerprint: Fingerprint,
        writer: IndexWriter | None,
    ) -> None:
        self._options = options
        self._max_text_bytes = section.max_text_bytes
        self._fingerprint = fingerprint
        self._reader = reader
        self._writer = writer  # None for an index of daemons
        self._lookup = IndexLookup(options, reader)
        self._lock = threading.Lock()
        self._check_index()

    @classmethod
    def in_memory(cls, profile: LibraryProfile) -> Self:
        """Return an empty index in the memory of this process."""
        section = profile.section
        store = MemoryIndex(lifetime_ms=lifetime_ms(section), bucket_cap=section.bucket_cap)
        return cls._writable(section, "memory", store, store)  # the store is also the reader

    @classmethod
    def connect(cls, url: str, profile: LibraryProfile, *, name: str = "default") -> Self:
        """Open an index in Redis that programs write; the first ``add`` creates it.

        ``url``: ``redis://``, ``rediss://`` or ``unix://``; a single server, with login and database. ``name``: 1 to 32
        of a-z, 0-9, _ and -. Warns (``UserWarning``) of an eviction policy that would drop keys if the server, now
        without a memory limit, got one.

        Raises ``SettingsError``, ``StoreUnavailable``, ``StoreMisconfigured`` or ``IndexMismatch``, as docs/library.md
        says.
        """
        _check_index_name(name)
        section = profile.section
        with ExitStack() as stack:
            backend = stack.enter_context(backend_at(url, PROGRAMS_PREFIX, {name: index_parameters(section)}))
            for warning in backend.require_usable():
                warnings.warn(warning, stacklevel=2)
            index = cls._writable(section, name, backend.index(name), backend.reader(name))
            stack.pop_all()  # without an error the connections stay open until ``close``
            return index

    @classmethod
    def _writable(cls, section: settings.Profile, name: str, store: contract.Index, reader: IndexReader) -> Self:
        options = detector_options(name, section)
        fingerprint = {**section.fingerprint(), **MAINTAINED_BY_PROGRAMS}
        return cls(section, options, reader, fingerprint, IndexWriter(options, store, fingerprint))

    @staticmethod
    def delete(url: str, *, name: str = "default") -> bool:
        """Delete an index in Redis that programs write, with any profile; return whether anything was deleted.

        A program that has the index open gets ``IndexLost`` at its next ``add`` or ``remove``. If the call fails,
        repeat it: a part of the index may be left, and no program can open the index until the call has succeeded.

        Arguments and errors are those of ``connect``, without ``IndexMismatch``. ``StoreUnavailable`` is also raised
        while another call deletes it, and for a minute if its process was killed. ``IndexNotWritable`` means that
        daemons maintain the index.
        """
        _check_index_name(name)
        parameters = index_parameters(LibraryProfile().section)  # any profile: the name tells which keys to delete
        with backend_at(url, PROGRAMS_PREFIX, {name: parameters}) as backend:
            fingerprint = backend.inspector(name).fingerprint()
            # Without a fingerprint there is no index; without ``MAINTAINED_BY_PROGRAMS`` in it the index is of daemons.
            if fingerprint is not None and not MAINTAINED_BY_PROGRAMS.items() <= fingerprint.items():
                raise IndexNotWritable(
                    f"daemons maintain the index {PROGRAMS_PREFIX}:{name}; to delete it, stop them and call: "
                    "streamdedup index drop"
                )
            try:
                return delete_index(backend.staging(name)) > 0
            except BatchRefused as error:  # another process has the lease: this one was suspended
                raise StoreUnavailable(str(error)) from error

    @classmethod
    def of_daemons(cls, config: str | Path | None, profile: str) -> Self:
        """Open an index that daemons maintain, for look-ups.

        ``config`` is the settings file of the daemons; None for the file that STREAMDEDUP_CONFIG names. Errors are
        those of ``connect``; ``StoreUnavailable`` also means that the index does not exist yet.
        """
        loaded = settings.Settings.load(None if config is None else Path(config))
        if profile not in loaded.profiles:
            raise SettingsError(
                f"there is no profile {profile}; the settings have {', '.join(sorted(loaded.profiles))}"
            )
        section = loaded.profiles[profile]
        with ExitStack() as stack:
            reader = stack.enter_context(connect_backend(loaded)).reader(profile)
            index = cls(section, detector_options(profile, section), reader, section.fingerprint(), None)
            stack.pop_all()  # as in ``connect``
            return index

    def add(self, documents: Iterable[_DocumentTuple]) -> list[Matches]:
        """Insert documents and find their near-duplicates among those that were inserted before.

        Each pair is returned once, for the document that is inserted later, also within one call. A document whose id
        is in the index replaces the earlier version; with the same text it changes nothing, and has no matches again.
        If the call fails with ``StoreUnavailable``, repeat it on this index with the same documents: no pair is lost or
        doubled. Only a repeated call may return a pair for the document that was inserted earlier.

        Args:
            documents: Id and text of each document; its source where rules of the profile need it; its scope, by which
                a profile with ``scope_field`` compares. An integer as id, source or scope is its decimal text.

        Raises:
            TypeError, ValueError: A document is not such a tuple: nothing was inserted.
            MessageError: An id, text, source or scope is not valid, or a scope is missing or not expected: nothing was
                inserted. Or two ids share a document number: the other documents were inserted without a result.
            IndexNotWritable, IndexMismatch, StoreUnavailable, IndexLost: As docs/library.md says.
        """
        valid = list(map(self._valid_document, converted_items("documents", documents, DocumentArgument)))
        with self._lock:
            return self._require_writer().add(valid)

    def lookup(
        self,
        texts: Iterable[str],
        *,
        sources: Iterable[Field | None] | None = None,
        scopes: Iterable[Field | None] | None = None,
    ) -> list[Matches]:
        """Find the near-duplicates of texts without inserting them; the texts do not find each other.

        Args:
            sources: Source of each text, for the rules of the profile; without one, rules about sources do not apply.
            scopes: Scope of each text, in a profile with ``scope_field``; without one, the default scope.

        Raises:
            TypeError, ValueError: An argument is one text or has an item of a wrong type; there are not as many sources
                or scopes as texts.
            MessageError: A text is too long, a source or scope is not valid, or a scope is missing or not expected.
            StoreUnavailable, IndexMismatch: As docs/library.md says.
        """
        items = enumerate(converted_items("texts", texts, str))
        valid = [self._valid_text(f"texts[{row}]", text) for row, text in items]
        source_column = optional_column("source", sources, valid)
        scope_column = optional_column("scope", scopes, valid)
        queries = [
            LookupQuery(text, source=source, scope=query_scope(self._options, scope))
            for text, source, scope in zip(valid, source_column, scope_column, strict=True)
        ]
        with self._lock:
            if not self._check_index():
                return [Matches()] * len(queries)  # no document was added yet
            now_ms, matches = clock.now_ms(), []
            for first in range(0, len(queries), CHUNK_DOCUMENTS):
                for result in self._lookup.look_up(queries[first : first + CHUNK_DOCUMENTS], now_ms):
                    if isinstance(result, Exception):
                        raise result  # never: the scopes were checked above, and no text has an id
                    matches.append(Matches(result.matches, complete=result.complete))
            return matches

    def cluster(self, document_id: Field) -> StoredCluster | None:
        """Return members, size and spread of a document's cluster; None if the document is not in the index.

        ``spread`` is None without sources or labels. Errors: as for ``lookup``; ``TypeError`` names the wrong id.
        """
        valid = valid_id(converted_item("document_id", document_id, Field))
        with self._lock:
            stored = self._lookup.document(valid) if self._check_index() else None
            return None if stored is None else self._lookup.cluster_of(stored[0])  # the entry

    def remove(self, ids: Iterable[Field]) -> None:
        """Remove documents; unknown ids are ignored. Errors: as for ``add``; ``TypeError`` names the wrong id."""
        valid = [valid_id(document_id) for document_id in converted_items("ids", ids, Field)]
        with self._lock:
            self._require_writer().remove(valid)

    def close(self) -> None:
        with self._lock:
            self._reader.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def _require_writer(self) -> IndexWriter:
        if self._writer is None:
            raise IndexNotWritable(
                f"daemons maintain the index of profile {self._options.profile}: they would not alert a document that a"
                " program adds, and lose it when they rebuild the index. Send the document to an input topic of the "
                "profile, or write an index of the program: Index.connect(url, profile, name=...)"
            )
        return self._writer

    def _check_index(self) -> bool:
        """Check the profile; return whether the index exists. One of programs is created by the first ``add``.

        Raises ``StoreUnavailable`` and ``IndexMismatch`` as ``lookup``.
        """
        opening = self._reader.check(self._fingerprint)
        if opening is None and self._writer is None:
            raise StoreUnavailable(
                f"the index of profile {self._options.profile} does not exist; a daemon creates it at its start"
            )
        return opening is not None

    def _valid_document(self, document: DocumentArgument) -> tuple[str, str, str | None, str | None]:
        document_id = valid_id(document.id)
        scope = query_scope(self._options, valid_field("scope", document.scope))
        text = self._valid_text(f"the text of {document_id}", document.text)
        return document_id, text, valid_field("source", document.source), scope

    def _valid_text(self, subject: str, text: str) -> str:
        """Return a repaired text; ``subject`` begins the error for a text that is too long."""
        text, length = without_lone_surrogates(text)
        if length > self._max_text_bytes:
            limit = f"max_text_bytes is {self._max_text_bytes:,}"
            raise DocumentTooLarge(ErrorCode.TOO_LARGE, f"{subject} is {length:,} bytes long; {limit}")
        return text


def _check_index_name(name: str) -> None:
    if not _INDEX_NAME.fullmatch(name):
        raise SettingsError(f"name: {name!r} is not the name of an index; allowed: 1 to 32 of a-z, 0-9, _ and -")
