"""Preparation: everything about documents that is computed without the index.

Called by ``detector`` (stage one), ``lookup``, ``lifecycle`` and ``cli.warm_up``. A new value in an entry also touches
``index.documents``, ``index.entries`` and docs/format.md.
"""

from collections.abc import Sequence

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from streamdedup.detection.captions import caption_of
from streamdedup.detection.content import contents_of
from streamdedup.detection.model import DetectorOptions, Prepared, document_number
from streamdedup.detection.scope import band_keys_of, scoped_band_keys
from streamdedup.detection.suppression import source_key
from streamdedup.index.documents import Content, IndexEntry
from streamdedup.similarity.minhash import HashFamily
from streamdedup.similarity.sketch import Sketcher
from streamdedup.text.shingles import Shingler
from streamdedup.wire import Document, content_digest, scope_key


class Preparer:
    """Computes index entries and band keys from texts, and band keys from stored contents."""

    def __init__(self, options: DetectorOptions) -> None:
        self._options = options
        self.shingler = Shingler(options.shingles)
        family = HashFamily(options.permutations, options.seed)
        self.sketcher = Sketcher(family, options.exact_limit, options.banding.permutations, options.measure)

    def prepare(self, documents: Sequence[Document]) -> Prepared:
        """Prepare a chunk, in which no other document has the id of an append (``chunks``)."""
        inserted = [document for document in documents if document.op != "append"]
        shingles = self.shingler.shingle([document.text for document in inserted])
        sketches, banded_signatures = self.sketcher.sketch(shingles.hashes, shingles.offsets)
        contents = contents_of(shingles, sketches)
        entries = [self._entry(document, content) for document, content in zip(inserted, contents, strict=True)]
        band_keys = self._options.banding.band_keys(banded_signatures)
        return Prepared(
            documents=inserted,
            entries=entries,
            band_keys=scoped_band_keys(band_keys, [entry.content for entry in entries]),
            skips=self._options.skip_reasons(shingles.token_counts, shingle_counts=np.diff(shingles.offsets)),
            appends=[document for document in documents if document.op == "append"],
        )

    def band_keys(self, contents: Sequence[Content]) -> NDArray[np.uint32]:
        return band_keys_of(contents, self.sketcher, self._options.banding)

    def _entry(self, document: Document, content: Content) -> IndexEntry:
        number = document_number(self._options.profile, document.id)
        if document.source:
            content = structs.replace(content, source=source_key(document.source))
        if document.scope is not None:
            content = structs.replace(content, scope=scope_key(document.scope))
        if caption := caption_of(document, self._options.label_bytes):
            content = structs.replace(content, caption=caption)
        return IndexEntry(
            number=number,
            id=document.id,
            digest=content_digest(document.text, document.scope),
            position=document.position,
            time_ms=document.time_ms,
            cluster=number,  # alone at first
            content=content,
        )
