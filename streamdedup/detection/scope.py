"""Scopes: documents are compared within one scope only, such as a tenant, a language or a product.

A change to the masks also touches docs/format.md. A scope acts in two places:

- Each band key is XORed with 32 bits that depend on scope and band (``scoped_band_keys``), so scopes have different
  buckets, and band keys stay 32 bits long. Two scopes may share a bucket by chance, as two contents may.
- An index entry has 8 bytes more, the hash of the scope (``Content.scope``). Verification and clusters compare it, so a
  shared bucket leads to no pair.

The content digest depends on the scope (``wire.content_digest``): a changed scope is a new version, and a bucket of
exact copies holds documents of one scope. Pair keys do not depend on the scope: a published pair stays known when its
documents change their scope. Nor do document numbers: a tombstone, the record without a value that deletes a document,
has no scope.
"""

from collections.abc import Sequence
from functools import lru_cache
from hashlib import shake_128

import numpy as np
from numpy.typing import NDArray

from streamdedup.detection.model import DetectorOptions
from streamdedup.errors import MessageError
from streamdedup.index.documents import Content
from streamdedup.similarity.lsh import Banding
from streamdedup.similarity.sketch import Sketcher
from streamdedup.wire import ErrorCode, missing_scope


def scoped_band_keys(band_keys: NDArray[np.uint32], contents: Sequence[Content]) -> NDArray[np.uint32]:
    """Return the band keys (n, bands) of n contents within their scopes; unchanged without scopes."""
    if all(content.scope is None for content in contents):
        return band_keys
    return band_keys ^ np.stack([band_mask(content.scope, band_keys.shape[1]) for content in contents])


def band_keys_of(contents: Sequence[Content], sketcher: Sketcher, banding: Banding) -> NDArray[np.uint32]:
    """Return the band keys of contents within their scopes, computed from the sketches, (n, bands)."""
    signatures = sketcher.signatures([content.sketch for content in contents], banding.permutations)
    return scoped_band_keys(banding.band_keys(signatures), contents)


@lru_cache(maxsize=4096)
def band_mask(scope: bytes | None, bands: int) -> NDArray[np.uint32]:
    """Return 32 bits for each band: SHAKE-128 of the stored scope, uint32 (bands,); zeros (no change) without one."""
    if scope is None:
        return np.zeros(bands, np.uint32)
    return np.frombuffer(shake_128(scope).digest(4 * bands), "<u4").astype(np.uint32)


def query_scope(options: DetectorOptions, scope: str | None) -> str | None:
    """Return the scope of a text from a program or a request: as given, else the profile's default.

    Raises MessageError where the profile needs a scope that the text lacks, or the text has one and the profile none.
    """
    if options.scope_field is not None:
        if not scope and options.default_scope is None:
            raise missing_scope(options.scope_field)
        return scope or options.default_scope
    if scope is not None:
        raise MessageError(ErrorCode.INVALID_FIELD, "a scope needs a profile with scope_field; this one has none")
    return None
