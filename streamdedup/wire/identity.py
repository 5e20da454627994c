"""Ids, content digests and stored scopes of documents, for all folders above ``wire``."""

import re
from functools import lru_cache
from hashlib import blake2b
from typing import Final

from streamdedup.errors import DecodeError
from streamdedup.wire.error_codes import ErrorCode

#: Limit of UTF-8 bytes in an id, a source, a publication time or a scope: 100 matches stay far below Kafka's 1 MB.
MAX_ID_BYTES: Final = 1_024
#: Bytes in the stored form of a scope. Two of 100,000 scopes have the same form with a probability of 3 in 10^10.
SCOPE_BYTES: Final = 8
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


@lru_cache(maxsize=4096)
def scope_key(scope: str | None) -> bytes:
    """Return the stored form of a scope: ``SCOPE_BYTES``, or none without a scope."""
    return b"" if scope is None else blake2b(scope.encode("utf-8", "surrogatepass"), digest_size=SCOPE_BYTES).digest()


def content_digest(text: str, scope: str | None = None) -> bytes:
    """Return the digest of a text and its scope, 16 bytes: BLAKE2b of the UTF-8 text, and ``toggle_scope``."""
    return toggle_scope(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest(), scope_key(scope))


def toggle_scope(digest: bytes, key: bytes | None) -> bytes:
    """Return a digest XOR twice the bytes of a ``scope_key``; a second call with the key restores the digest."""
    if not key:
        return digest
    return (int.from_bytes(digest) ^ int.from_bytes(key + key)).to_bytes(len(digest))


def missing_scope(scope_field: str) -> DecodeError:
    reason = f"the scope (field `{scope_field}`) is missing, null or empty, and the profile has no default_scope"
    return DecodeError(ErrorCode.MISSING_SCOPE, reason)


def id_mistake(document_id: str, length: int) -> str | None:
    """Return why a text, whose ``length`` is in UTF-8 bytes, cannot be a document id; None if it can."""
    if not 1 <= length <= MAX_ID_BYTES:
        return f"is {length:,} bytes long; 1 to {MAX_ID_BYTES:,} are allowed"
    # `isprintable`, which is faster, spares most ids the search.
    if not document_id.isprintable() and (control := _CONTROL.search(document_id)):
        return f"contains a control character at position {control.start()}"
    return None
