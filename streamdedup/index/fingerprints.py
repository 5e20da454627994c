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


def differences(stored: Fingerprint, wanted: Fingerprint) -> dict[str, str]:
    """Return the parameters in which two fingerprints differ: name, and a text with both values."""
    return {
        name: _difference(name, stored, wanted)
        for name in sorted(stored.keys() | wanted.keys())
        if stored.get(name) != wanted.get(name)
    }


def _difference(name: str, stored: Fingerprint, wanted: Fingerprint) -> str:
    if name in VERSION_PARAMETERS | _FORMER_PARAMETERS:
        return f"{name} is {stored.get(name, 'older')} in the index and {wanted.get(name, 'newer')} in this version"
    return f"{name} is {stored.get(name)!r} in the index and {wanted.get(name)!r} in the settings"


def compare_fingerprints(stored: Fingerprint, wanted: Fingerprint) -> Opening:
    """Compare the fingerprint of an index with that of the settings.

    Returns:
        The result of opening the index, with the differences that affect few pairs.

    Raises:
        IndexMismatch: The index cannot be continued; the text names each difference.
    """
    found = differences(stored, wanted)
    mismatches = [text for name, text in found.items() if name not in ADVISORY_PARAMETERS]
    if mismatches:
        restore = (
            "the version of streamdedup"
            if found.keys() <= VERSION_PARAMETERS | _FORMER_PARAMETERS | ADVISORY_PARAMETERS
            else "the settings"
        )
        if MAINTAINED_BY_PROGRAMS.items() <= wanted.items():
            raise IndexMismatch(
                f"{'; '.join(mismatches)}. Use the profile that the index was built with, or give a new index another "
                "name=..., or delete this one: Index.delete(url, name=...)"
            )
        raise IndexMismatch(
            f"{'; '.join(mismatches)}. Restore {restore}, or build a new index: another redis.key_prefix or profile "
            "name, and a new consumer group to read the topics again"
        )
    return Opening(created=False, advisories=tuple(found.values()))


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
