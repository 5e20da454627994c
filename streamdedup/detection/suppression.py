"""Suppression: near-duplicates that a profile's rules keep out of alerts.

``verification``, ``clusters`` and ``lookup`` apply the rules to entries, ``evaluation.scores`` to arrays. A new rule
also touches ``settings.profile``, ``indexes`` and docs/tuning.md.

A rule reads the index entries of both documents and treats them alike, so the order of arrival changes nothing. The
rules apply to near-duplicates, before matches are saved and pairs are claimed: a suppressed pair has no claim, no alert
and no part in a cluster. An append may lift a document to ``min_shingles``; its pairs are alerted then.

The rules are applied in the order of ``SuppressionRule``, and the first that suppresses the pair is counted;
docs/tuning.md says what each does. A document has the source from the upsert that stored its text; appends keep it. The
rules about sources need both: a pair with a source that is missing or empty is alerted.

An index entry has 8 bytes of its source (BLAKE2b). Among 100,000 sources two have the same hash, and then count as one,
with a probability of 3 in 10^10. With 4 bytes it would be likely.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from hashlib import blake2b

from streamdedup.index.documents import SOURCE_BYTES, Content


class SuppressionRule(StrEnum):
    """Rule name: the key in the settings, and a metric label."""

    MIN_SHINGLES = "min_shingles"
    ONLY_SOURCES = "only_sources"
    IGNORE_SAME_SOURCE = "ignore_same_source"
    IGNORE_SOURCES = "ignore_sources"


@lru_cache(maxsize=4096)
def source_key(source: str) -> bytes:
    return blake2b(source.encode("utf-8", "surrogatepass"), digest_size=SOURCE_BYTES).digest()


@dataclass(frozen=True, slots=True)
class Suppression:
    """The rules in a profile.

    Attributes:
        only_sources: Source keys; a pair needs one of them. Empty for all sources.
        ignore_sources: Unordered pairs of source keys: ``{a, b}``, or ``{a}`` for pairs within one source.
    """

    min_shingles: int = 0
    only_sources: frozenset[bytes] = frozenset()
    ignore_same_source: bool = False
    ignore_sources: frozenset[frozenset[bytes]] = frozenset()

    def rule(self, a: Content, b: Content) -> SuppressionRule | None:
        """Return the first rule that suppresses the pair, or None."""
        if min(_shingle_count(a), _shingle_count(b)) < self.min_shingles:
            return SuppressionRule.MIN_SHINGLES
        return self.source_rule(a.source, b.source)

    def source_rule(self, a: bytes | None, b: bytes | None) -> SuppressionRule | None:
        """Return the first rule about sources that suppresses pairs between two sources, or None."""
        if a is None or b is None:
            return None
        if self.only_sources and a not in self.only_sources and b not in self.only_sources:
            return SuppressionRule.ONLY_SOURCES
        if self.ignore_same_source and a == b:
            return SuppressionRule.IGNORE_SAME_SOURCE
        if self.ignore_sources and frozenset((a, b)) in self.ignore_sources:
            return SuppressionRule.IGNORE_SOURCES
        return None


def suppression_of(
    *,
    min_shingles: int,
    only_sources: Iterable[str],
    ignore_same_source: bool,
    ignore_sources: Iterable[tuple[str, str]],
) -> Suppression | None:
    """Return the rules of a profile, from names of sources; None if it has none."""
    rules = Suppression(
        min_shingles,
        frozenset(map(source_key, only_sources)),
        ignore_same_source,
        frozenset(frozenset(map(source_key, pair)) for pair in ignore_sources),
    )
    return None if rules == Suppression() else rules


def _shingle_count(content: Content) -> int:
    # A sketch has no stop shingles, except in a ``stop_only`` document, whose sketch has nothing else.
    return 0 if content.stop_only else content.sketch.count
