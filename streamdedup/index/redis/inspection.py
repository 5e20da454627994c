"""Inspects an index in Redis (``index.backend.IndexInspector``).

``redis.staging`` scans and deletes the same keys. A new kind of key (``redis.keys``) gets its line in ``KINDS``.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from streamdedup.index.backend import KeyStatistics, PartitionFacts, Survey
from streamdedup.index.documents import MARKER_DIGEST
from streamdedup.index.entries import DIGEST_RANGE, decode_generation, decode_high_water_mark
from streamdedup.index.fingerprints import decode_fingerprint
from streamdedup.index.redis.keys import Keys
from streamdedup.index.redis.servers import Command, Servers
from streamdedup.index.values import Fingerprint
from streamdedup.position import Partition

ENTRY_KIND = "index entries"
FENCE_KIND = "fences"
#: Kinds of keys by the letter after the hash tag, as ``index status --exact`` shows them.
KINDS = {
    b"r": ENTRY_KIND,
    b"b": "buckets",
    b"d": "buckets of exact copies",
    b"q": "removals of exact copies",
    b"g": "cluster sets",
    b"c": "claim pages",
    b"k": "claim catalogues",
    b"p": "pending matches",
    b"f": FENCE_KIND,
    b"m": "high-water marks",
    b"o": "last calls",
    b"a": "announced attempts",
}
#: Kind of the entries that replace those of deleted documents.
MARKER_KIND = "deletion markers"
#: All other keys: fingerprint, lease on a staging index, counts of documents.
OTHER_KIND = "other"
#: Number of keys that a server examines in one step of a scan; those of the index are deleted in one round trip.
_SCAN_COUNT = 1000
#: Number of keys of each kind whose memory is measured.
_SAMPLE_COUNT = 500
#: Number of partitions looked up for a topic: the partition count in Kafka is not known here.
_MAX_PARTITIONS = 1024


class RedisInspector:
    """``namespace`` is prefix and profile, joined by a colon."""

    def __init__(self, servers: Servers, namespace: str) -> None:
        self._servers = servers
        self._namespace = namespace
        # One band is enough: all keys that are read by name are in slot 0.
        self._keys = Keys(namespace, 1)

    def fingerprint(self) -> Fingerprint | None:
        key = self._keys.fingerprint
        stored = self._servers.ask(key, "GET", key)
        return None if stored is None else decode_fingerprint(key, stored)

    def is_half_dropped(self) -> bool:
        return bool(self._servers.ask(self._keys.dropping, "EXISTS", self._keys.dropping))

    def is_staging(self) -> bool:
        return bool(self._servers.ask(self._keys.staging, "EXISTS", self._keys.staging))

    def partitions(self, topics: Iterable[str], also: Iterable[Partition] = ()) -> dict[Partition, PartitionFacts]:
        """Return the facts of ``also`` and of the first 1,024 partitions of each topic."""
        looked_up = {Partition(topic, number) for topic in topics for number in range(_MAX_PARTITIONS)}
        partitions = sorted(looked_up | set(also))
        marks = [self._keys.high_water_mark(partition) for partition in partitions]
        fences = [self._keys.fence(0, partition) for partition in partitions]
        stored = self._servers.ask_many([Command(keys[0], ("MGET", *keys)) for keys in (marks, fences)])
        return {
            partition: _facts(high_water_mark, fence)
            for partition, high_water_mark, fence in zip(partitions, *stored, strict=True)
            if high_water_mark is not None or fence is not None
        }

    def survey(self, on_keys: Callable[[int], None] = lambda _count: None) -> Survey:
        counts: Counter[str] = Counter()
        samples: dict[str, list[bytes]] = {}
        for keys in scan_keys(self._servers, self._namespace):
            markers = self._markers(keys)
            for key in keys:
                kind = MARKER_KIND if key in markers else kind_of(key)
                counts[kind] += 1
                _add_to_sample(samples.setdefault(kind, []), key, counts[kind])
            on_keys(len(keys))
        kinds = {
            kind: KeyStatistics(counts[kind], round(counts[kind] * self._mean_bytes(samples.get(kind, []))))
            for kind in (*KINDS.values(), MARKER_KIND, OTHER_KIND)
        }
        return Survey(counts[ENTRY_KIND], kinds)

    def _markers(self, keys: Sequence[bytes]) -> set[bytes]:
        entries = [key for key in keys if kind_of(key) == ENTRY_KIND]
        digests = self._servers.ask_many([Command(key, ("GETRANGE", key, *DIGEST_RANGE)) for key in entries])
        return {key for key, digest in zip(entries, digests, strict=True) if digest == MARKER_DIGEST}

    def _mean_bytes(self, sample: Sequence[bytes]) -> float:
        sizes = self._servers.ask_many([Command(key, ("MEMORY USAGE", key)) for key in sample])
        unexpired = [size for size in sizes if size is not None]
        return sum(unexpired) / len(unexpired) if unexpired else 0.0


def kind_of(key: bytes) -> str:
    """Return the kind of a key: one of ``KINDS``, or ``OTHER_KIND``."""
    suffix = key.partition(b"}")[2]
    # These names begin with f and d, the letters of two kinds.
    return OTHER_KIND if suffix in {b"fingerprint", b"dropping"} else KINDS.get(suffix[:1], OTHER_KIND)


def scan_keys(servers: Servers, namespace: str) -> Iterator[list[bytes]]:
    """Yield all keys of an index in chunks; a change of servers or hash slots may repeat or miss some."""
    # Neither a prefix nor the name of a profile has a character with a meaning in patterns.
    pattern = f"{{{namespace}:*"
    first_replies: Mapping[str, Any] = servers.ask_masters("SCAN", 0, "MATCH", pattern, "COUNT", _SCAN_COUNT)
    for master, first_reply in first_replies.items():
        cursor, keys = first_reply
        yield keys
        while cursor:
            cursor, keys = servers.ask_master(master, "SCAN", cursor, "MATCH", pattern, "COUNT", _SCAN_COUNT)
            yield keys


def _facts(high_water_mark: bytes | None, fence: bytes | None) -> PartitionFacts:
    generation = None if fence is None else decode_generation(fence)
    if high_water_mark is None:
        return PartitionFacts(None, generation)
    offset, _, topic_id = decode_high_water_mark(high_water_mark)
    return PartitionFacts(offset, generation, topic_id)


def _add_to_sample(sample: list[bytes], key: bytes, seen_count: int) -> None:
    """Add a key so that the sample has each of the keys seen so far with equal probability (reservoir sampling)."""
    if len(sample) < _SAMPLE_COUNT:
        sample.append(key)
    elif (drawn := random.randrange(seen_count)) < _SAMPLE_COUNT:  # noqa: S311  no secret depends on it
        sample[drawn] = key
