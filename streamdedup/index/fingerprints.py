"""Whether an index that was built with some parameters can be continued with others."""

import msgspec

from streamdedup.errors import IndexMismatch, StoreMisconfigured
from streamdedup.index.entries import ENTRY_LAYOUT
from streamdedup.index.values import Fingerprint, Opening

#: Parameters of a fingerprint in which two indexes may differ and still be compared: a newer Unicode changes the class
#: of few characters, so few texts get other shingles than before.
ADVISORY_PARAMETERS = frozenset({"unicode"})
#: Parameters of the program, not of the settings.
VERSION_PARAMETERS = frozenset({"shingle_algorithm", "signature_algorithm", "claim_layout", "entry_layout"})
#: Version parameters of earlier versions.
_FORMER_PARAMETERS = frozenset({"content_format"})
#: Layout of claims in Redis: `redis/lua/_claims.lua`. An index without this parameter has a string for each claim.
_CLAIM_LAYOUT = 2


def in_redis(
    fingerprint: Fingerprint, *, shards: int, bucket_layout: str, lifetime_ms: int | None
) -> dict[str, object]:
    """Return the fingerprint of an index in Redis: that of the settings, and the parameters that decide on its keys.

    Args:
        fingerprint: Of the settings.
        shards: Slots for each band.
        bucket_layout: Name of the layout of the buckets.
        lifetime_ms: Lifetime of index entries in milliseconds, which is the length of a page generation; None for ever.
    """
    generation = {"page_generation_ms": lifetime_ms or 0} if bucket_layout == "packed" else {}
    layouts = {"bucket_layout": bucket_layout, "claim_layout": _CLAIM_LAYOUT, "entry_layout": ENTRY_LAYOUT}
    return {**fingerprint, "shards": shards, **layouts, **generation}


def differences(stored: Fingerprint, ours: Fingerprint) -> dict[str, str]:
    """Return the parameters in which two fingerprints differ, by name, each with a text that names both values."""
    return {
        name: _difference(name, stored, ours)
        for name in sorted(stored.keys() | ours.keys())
        if stored.get(name) != ours.get(name)
    }


def _difference(name: str, stored: Fingerprint, ours: Fingerprint) -> str:
    if name in VERSION_PARAMETERS | _FORMER_PARAMETERS:
        return f"{name} is {stored.get(name, 'older')} in the index and {ours.get(name, 'newer')} in this version"
    return f"{name} is {stored.get(name)!r} in the index and {ours.get(name)!r} in the settings"


def compare_fingerprints(stored: Fingerprint, ours: Fingerprint) -> Opening:
    """Find out whether an index can be continued under other settings.

    Args:
        stored: Fingerprint of the index.
        ours: Fingerprint of the settings.

    Returns:
        An existing index, with the differences that do not matter.

    Raises:
        IndexMismatch: Some do; the text names each.
    """
    found = differences(stored, ours)
    mismatches = [text for name, text in found.items() if name not in ADVISORY_PARAMETERS]
    if mismatches:
        restore = (
            "the version of streamdedup"
            if found.keys() <= VERSION_PARAMETERS | _FORMER_PARAMETERS | ADVISORY_PARAMETERS
            else "the settings"
        )
        raise IndexMismatch(
            f"{'; '.join(mismatches)}. Restore {restore}, or build a new index: another redis.key_prefix or profile "
            "name, and a new consumer group to read the topics again"
        )
    return Opening(created=False, advisories=tuple(found.values()))


def decode_fingerprint(key: bytes, data: bytes) -> dict[str, object]:
    """Decode the parameters that stand at a key.

    Raises:
        StoreMisconfigured: Somebody else wrote there.
    """
    try:
        return msgspec.json.decode(data, type=dict[str, object])
    except (ValueError, RecursionError) as error:  # msgspec's own errors are ValueErrors, and so is what is not UTF-8
        raise StoreMisconfigured(
            f"the key {key.decode()} holds no fingerprint of an index; choose another prefix"
        ) from error
