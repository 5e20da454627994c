"""Preparation: everything about a batch of documents that is computed without the index."""

from collections.abc import Sequence

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from streamdedup.detection.content import contents_of
from streamdedup.detection.model import DetectorOptions, Prepared, document_number
from streamdedup.detection.suppression import source_key
from streamdedup.index.documents import Content, IndexEntry
from streamdedup.similarity.minhash import HashFamily
from streamdedup.similarity.sketch import Sketch, Sketcher
from streamdedup.text.shingles import Shingler
from streamdedup.wire import Document, content_digest


class Preparer:
    """Computes shingles, sketches and band keys.

    Attributes:
        shingler: Makes the shingles of the profile.
        sketcher: Makes and compares the sketches of the profile.
    """

    def __init__(self, options: DetectorOptions) -> None:
        self._options = options
        self.shingler = Shingler(options.shingles)
        family = HashFamily(options.permutations, options.seed)
        self.sketcher = Sketcher(family, options.exact_limit, options.banding.permutations, options.measure)

    def prepare(self, documents: Sequence[Document]) -> Prepared:
        """Compute shingles, sketches and band keys of a batch.

        Args:
            documents: Documents to insert or to append to, in the order of their positions within each partition. Each
                id occurs once, unless a partition repeats a text.
        """
        inserted = [document for document in documents if document.op != "append"]
        shingles = self.shingler.shingle([document.text for document in inserted])
        sketches, signatures = self.sketcher.make(shingles.hashes, shingles.offsets)
        contents = contents_of(shingles, sketches)
        return Prepared(
            documents=inserted,
            entries=[self._entry(document, content) for document, content in zip(inserted, contents, strict=True)],
            band_keys=self._options.banding.band_keys(signatures),
            skips=self._options.skips(shingles.token_counts, np.diff(shingles.offsets)),
            appends=[document for document in documents if document.op == "append"],
        )

    def band_keys(self, sketches: Sequence[Sketch]) -> NDArray[np.uint32]:
        """Return the band keys of sketches, (n, bands)."""
        banding = self._options.banding
        return banding.band_keys(self.sketcher.signatures(sketches, banding.permutations))

    def _entry(self, document: Document, content: Content) -> IndexEntry:
        number = document_number(self._options.profile, document.id)
        if self._options.keep_sources and document.source:
            content = structs.replace(content, source=source_key(document.source))
        return IndexEntry(
            number=number,
            id=document.id,
            digest=content_digest(document.text),
            position=document.position,
            time_ms=document.time_ms,
            cluster=number,
            content=content,
        )
