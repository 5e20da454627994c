"""Whether an index that was built with some parameters can be continued with others."""

from streamdedup.errors import IndexMismatch
from streamdedup.store.base import Fingerprint, Opening

#: Parameters of a fingerprint in which two indexes may differ and still be compared: a newer Unicode changes the class
#: of few characters, so few texts get other shingles than before.
ADVISORY_PARAMETERS = frozenset({"unicode"})


def differences(stored: Fingerprint, ours: Fingerprint) -> dict[str, str]:
    """Return the parameters in which two fingerprints differ, by name, each with a text that names both values."""
    return {
        name: f"{name} is {stored.get(name)!r} in the index and {ours.get(name)!r} in the settings"
        for name in sorted(stored.keys() | ours.keys())
        if stored.get(name) != ours.get(name)
    }


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
        raise IndexMismatch(
            f"{'; '.join(mismatches)}. Restore the settings, or build a new index: another redis.key_prefix or profile "
            "name, and a new consumer group to read the topics again"
        )
    return Opening(created=False, advisories=tuple(found.values()))
