"""Fingerprints: whether an index that was built with some parameters can be continued with others."""

import msgspec

from streamdedup.errors import IndexMismatch, StoreMisconfigured
from streamdedup.index.values import Fingerprint, Opening

#: Parameters in which an index may differ from the settings: a newer Unicode changes the class of few characters, so
#: few texts have other shingles.
ADVISORY_PARAMETERS = frozenset({"unicode"})
#: Parameters of the program, not of the settings.
VERSION_PARAMETERS = frozenset({"shingle_algorithm", "signature_algorithm", "claim_layout", "entry_layout"})
#: Version parameters of earlier versions.
_FORMER_PARAMETERS = frozenset({"content_format"})
#: Parameter of an index that programs write with the library; an index of daemons does not have it.
MAINTAINED_BY_PROGRAMS = {"maintained_by": "library"}


def differences(stored: Fingerprint, expected: Fingerprint) -> dict[str, str]:
    """Return the parameters in which two fingerprints differ: name, and a text with both values."""
    return {
        name: _difference(name, stored, expected)
        for name in sorted(stored.keys() | expected.keys())
        if stored.get(name) != expected.get(name)
    }


def _difference(name: str, stored: Fingerprint, expected: Fingerprint) -> str:
    if name in VERSION_PARAMETERS | _FORMER_PARAMETERS:
        return f"{name} is {stored.get(name, 'older')} in the index and {expected.get(name, 'newer')} in this version"
    return f"{name} is {stored.get(name)!r} in the index and {expected.get(name)!r} in the settings"


def compare_fingerprints(stored: Fingerprint, expected: Fingerprint) -> Opening:
    """Compare an index's fingerprint with that from the settings.

    Returns:
        The opened index, with the differences that affect few pairs.

    Raises:
        IndexMismatch: The index cannot be continued; the text names each difference.
    """
    texts = differences(stored, expected)
    mismatches = [text for name, text in texts.items() if name not in ADVISORY_PARAMETERS]
    if mismatches:
        restore = (
            "the version of streamdedup"
            if texts.keys() <= VERSION_PARAMETERS | _FORMER_PARAMETERS | ADVISORY_PARAMETERS
            else "the settings"
        )
        if MAINTAINED_BY_PROGRAMS.items() <= expected.items():
            raise IndexMismatch(
                f"{'; '.join(mismatches)}. Use the profile that the index was built with, or give a new index another "
                "name=..., or delete this one: Index.delete(url, name=...)"
            )
        raise IndexMismatch(
            f"{'; '.join(mismatches)}. Restore {restore}, or build a new index: another redis.key_prefix or profile "
            "name, and a new consumer group to read the topics again"
        )
    return Opening(created=False, advisories=tuple(texts.values()))


def decode_fingerprint(key: bytes, data: bytes) -> dict[str, object]:
    """Decode the fingerprint at a key.

    Raises:
        StoreMisconfigured: The value is no fingerprint.
    """
    try:
        return msgspec.json.decode(data, type=dict[str, object])
    except (ValueError, RecursionError) as error:  # msgspec's errors and those of UTF-8 are ValueErrors
        raise StoreMisconfigured(
            f"the key {key.decode()} holds no fingerprint of an index; choose another prefix"
        ) from error
