"""Fingerprints: whether an index that was built with some parameters can be continued with others.

Parameters come from ``settings.profile`` and ``RedisIndexOptions``; a new one touches docs/format.md, and makes
existing indexes unusable.
"""

import msgspec

from streamdedup.errors import IndexMismatch, StoreMisconfigured
from streamdedup.index.values import Fingerprint, Opening

#: Parameters in which an index may differ from the settings: another version of Unicode changes few texts.
ADVISORY_PARAMETERS = frozenset({"unicode"})
#: Parameters that the version of the program decides, not the settings.
VERSION_PARAMETERS = frozenset({"shingle_algorithm", "signature_algorithm", "layout"})
#: Seconds that the last rebuild of the index took: stored with the parameters, but not compared.
REBUILT_S = "rebuilt_s"
#: Marks an index that programs write with ``library``; an index of daemons has no such parameter.
MAINTAINED_BY_PROGRAMS = {"maintained_by": "library"}
#: First part of all keys of the indexes that programs write.
PROGRAMS_PREFIX = "streamdedup-library"


def differences(stored: Fingerprint, expected: Fingerprint) -> dict[str, str]:
    """Return a text about each parameter that differs, by name; the text names a missing value `None`."""
    return {
        name: _difference(name, stored, expected)
        for name in sorted((stored.keys() | expected.keys()) - {REBUILT_S})
        if stored.get(name) != expected.get(name)
    }


def mismatches(stored: Fingerprint, expected: Fingerprint) -> list[str]:
    """Return the texts of all but the advisory differences: with these an index cannot be continued."""
    return [text for name, text in differences(stored, expected).items() if name not in ADVISORY_PARAMETERS]


def _difference(name: str, stored: Fingerprint, expected: Fingerprint) -> str:
    if name in VERSION_PARAMETERS:
        return f"{name} is {stored.get(name)} in the index and {expected.get(name)} in this version"
    setting = "retention plus retention_slack, in milliseconds," if name == "page_generation_ms" else name
    return f"{setting} is {stored.get(name)!r} in the index and {expected.get(name)!r} in the settings"


def compare_fingerprints(stored: Fingerprint, expected: Fingerprint) -> Opening:
    """Return the opening of an existing index; raise ``IndexMismatch`` if it cannot be continued."""
    texts = differences(stored, expected)
    if blocking := mismatches(stored, expected):
        if MAINTAINED_BY_PROGRAMS.items() <= expected.items():
            raise IndexMismatch(
                f"{'; '.join(blocking)}. Use the profile that the index was built with, or give a new index another "
                "name=..., or delete this one: Index.delete(url, name=...)"
            )
        # What to restore first: the version if only its parameters differ, else the settings, perhaps with the version.
        restore = (
            "the version of streamdedup" if texts.keys() <= VERSION_PARAMETERS | ADVISORY_PARAMETERS else "the settings"
        )
        took = f"; the last one took {stored[REBUILT_S]} s" if REBUILT_S in stored else ""
        raise IndexMismatch(
            f"{'; '.join(blocking)}. Restore {restore}, or build the index from the topics (nothing is published): "
            f"`streamdedup index rebuild` while all daemons are stopped{took}; or without a pause, beside this index: "
            "`streamdedup index prepare` with another redis.key_prefix"
        )
    return Opening(is_created=False, advisories=tuple(texts.values()))


def decode_fingerprint(key: bytes, data: bytes) -> dict[str, object]:
    """Decode the fingerprint stored at ``key``; raise ``StoreMisconfigured`` for other data."""
    try:
        return msgspec.json.decode(data, type=dict[str, object])
    except (ValueError, RecursionError) as error:  # msgspec's errors and those of UTF-8 are ValueErrors
        raise StoreMisconfigured(
            f"the key {key.decode()} holds no fingerprint of an index; choose another prefix"
        ) from error
