"""Inspects and deletes an index in Redis: the contract is ``index.backend.IndexUpkeep``, which names the callers.

``redis.staging`` calls ``drop``, under its lease. A new kind of key (``redis.keys``) gets its line in ``KINDS``.
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
from streamdedup.index.redis.scripts import Call, ScriptRunner
from streamdedup.index.redis.servers import Command, Servers
from streamdedup.index.values import Fingerprint
from streamdedup.position import Partition

#: Kind of the keys that hold index entries.
ENTRY_KIND = "index entries"
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
    b"f": "fences",
    b"m": "high-water marks",
    b"o": "last calls",
    b"a": "announced attempts",
}
#: Kind of the entries that replace those of deleted documents.
MARKER_KIND = "deletion markers"
#: All other keys: fingerprint, lease on a staging index, counts of documents.
OTHER_KIND = "other"
#: Number of keys that a server examines in one step of a scan; the index's among them are deleted in one round trip.
_SCAN_COUNT = 1000
#: Number of keys of each kind whose memory is measured.
_SAMPLE_COUNT = 500
#: Number of partitions looked up for a topic: the partition count in Kafka is not known here.
_PARTITIONS_COUNT = 1024

#: The type of ``RedisUpkeep.delete``.
Delete = Callable[[Sequence[bytes], bool], int]


class RedisUpkeep:
    """An ``IndexUpkeep`` in Redis; ``namespace`` is prefix and profile, joined by a colon."""

    def __init__(self, servers: Servers, namespace: str) -> None:
        self._servers = servers
        self._namespace = namespace
        # One band is enough: all keys that are read by name are in the first slot, which every index has.
        self._keys = Keys(namespace, 1)
        self._runner = ScriptRunner(servers, self._keys.fingerprint)

    def fingerprint(self) -> Fingerprint | None:
        """Return the stored fingerprint; raise ``StoreMisconfigured`` for a value that is no fingerprint."""
        key = self._keys.fingerprint
        stored = self._servers.ask(key, "GET", key)
        return None if stored is None else decode_fingerprint(key, stored)

    def is_half_dropped(self) -> bool:
        return bool(self._servers.ask(self._keys.dropping, "EXISTS", self._keys.dropping))

    def partitions(self, topics: Iterable[str], also: Iterable[Partition] = ()) -> dict[Partition, PartitionFacts]:
        """Return the facts of ``also`` and of the first 1,024 partitions of each topic."""
        looked_up = {Partition(topic, number) for topic in topics for number in range(_PARTITIONS_COUNT)}
        partitions = sorted(looked_up | set(also))
        high_water_marks = self._stored([self._keys.high_water_mark(partition) for partition in partitions])
        slot = 0  # every slot has the fence
        fences = self._stored([self._keys.fence(slot, partition) for partition in partitions])
        return {
            partition: _facts(high_water_mark, fence)
            for partition, high_water_mark, fence in zip(partitions, high_water_marks, fences, strict=True)
            if high_water_mark is not None or fence is not None
        }

    def _stored(self, keys: Sequence[bytes]) -> list[bytes | None]:
        stored: list[bytes | None] = self._servers.ask(keys[0], "MGET", *keys)
        return stored

    def survey(self, on_keys: Callable[[int], None] = lambda _count: None) -> Survey:
        counts: Counter[str] = Counter()
        samples: dict[str, list[bytes]] = {}
        for keys in self._scan():
            markers = self._markers(keys)
            for key in keys:
                kind = MARKER_KIND if key in markers else self._kind(key)
                counts[kind] += 1
                sample = samples.setdefault(kind, [])
                _add_to_sample(sample, key, counts[kind])
            on_keys(len(keys))
        kinds = {
            kind: KeyStatistics(counts[kind], round(counts[kind] * self._mean_bytes(samples.get(kind, []))))
            for kind in (*KINDS.values(), MARKER_KIND, OTHER_KIND)
        }
        return Survey(counts[ENTRY_KIND], kinds)

    def _kind(self, key: bytes) -> str:
        suffix = key.partition(b"}")[2]
        # These names begin with f and d, the letters of two kinds.
        return OTHER_KIND if suffix in {b"fingerprint", b"dropping"} else KINDS.get(suffix[:1], OTHER_KIND)

    def _markers(self, keys: Sequence[bytes]) -> set[bytes]:
        entries = [key for key in keys if self._kind(key) == ENTRY_KIND]
        digests = self._servers.ask_many([Command(key, ("GETRANGE", key, *DIGEST_RANGE)) for key in entries])
        return {key for key, digest in zip(entries, digests, strict=True) if digest == MARKER_DIGEST}

    def _mean_bytes(self, sample: Sequence[bytes]) -> float:
        sizes = self._servers.ask_many([Command(key, ("MEMORY USAGE", key)) for key in sample])
        unexpired = [size for size in sizes if size is not None]
        return sum(unexpired) / len(unexpired) if unexpired else 0.0

    def is_staging(self) -> bool:
        return bool(self._servers.ask(self._keys.staging, "EXISTS", self._keys.staging))

    def drop(
        self,
        on_keys: Callable[[int], None] = lambda _count: None,
        delete: Delete | None = None,
        lease_key: bytes | None = None,
    ) -> int:
        """Delete the index in small steps.

        A marker key exists until the deletion is complete. Without the marker, remains from an interrupted deletion
        could be taken for a part of the next index.

        Args:
            delete: In place of ``self.delete``; ``redis.staging`` passes its own form, which checks the lease.
            lease_key: The lease, which is not deleted.
        """
        delete = delete or self.delete
        # 0. Before the first change: a user without the right to scan is refused here.
        self._servers.ask_masters("SCAN", 0, "COUNT", 1)
        # 1. No process opens the index any more. A daemon that has the index open finds it lost at the first missing
        # fence, and reacts as `service.on_index_lost` says.
        deleted_count = delete([self._keys.fingerprint], False)
        kept = {self._keys.dropping, lease_key}

        def delete_scanned(*, fences_only: bool = False) -> int:
            count = 0
            for scanned in self._scan():
                wanted = (key for key in scanned if not fences_only or self._kind(key) == KINDS[b"f"])
                keys = [key for key in wanted if key not in kept]
                count += delete(keys, False) if keys else 0
                on_keys(len(keys))
            return count

        # 2. The fences of all slots, so that a batch that misses an entry is refused.
        deleted_count += delete_scanned(fences_only=True)
        # 3. All other keys, until a scan finds none. A scan that a failover, a restart or a moved hash slot interrupts
        # goes on without an error and misses keys, because a cursor is a place in the table of one process.
        while count := delete_scanned():
            deleted_count += count
        # 4. The deletion is complete.
        return deleted_count + delete([], True)

    def delete(self, keys: Sequence[bytes], is_last: bool) -> int:
        """Delete keys under the marker, which the last call removes; return how many keys existed."""
        marker = self._keys.dropping
        # First, and so before the deletion of the fingerprint.
        if is_last:
            self._servers.ask(marker, "UNLINK", marker)
        else:
            self._runner.run([Call("set_in_full_memory", [self._keys.guard(0), marker], ["1"])])
        return sum(self._servers.ask_many([Command(key, ("UNLINK", key)) for key in keys]))

    def _scan(self) -> Iterator[list[bytes]]:
        """Yield all keys in chunks; if servers or hash slots change meanwhile, a key may occur twice or be missed."""
        # Neither prefixes nor profile names have characters with a meaning in patterns.
        pattern = f"{{{self._namespace}:*"
        first_replies: Mapping[str, Any] = self._servers.ask_masters("SCAN", 0, "MATCH", pattern, "COUNT", _SCAN_COUNT)
        for master, (first_cursor, first_keys) in first_replies.items():
            cursor, keys = first_cursor, first_keys
            yield keys
            while cursor:
                cursor, keys = self._servers.ask_master(master, "SCAN", cursor, "MATCH", pattern, "COUNT", _SCAN_COUNT)
                yield keys


def _facts(high_water_mark: bytes | None, fence: bytes | None) -> PartitionFacts:
    generation = None if fence is None else decode_generation(fence)
    if high_water_mark is None:
        return PartitionFacts(None, generation)
    stored = decode_high_water_mark(high_water_mark)
    return PartitionFacts(stored.offset, generation, stored.topic_id)


def _add_to_sample(sample: list[bytes], key: bytes, seen_count: int) -> None:
    """Reservoir sampling: add a key so that the sample has each of the keys seen so far with equal probability."""
    if len(sample) < _SAMPLE_COUNT:
        sample.append(key)
    elif (drawn := random.randrange(seen_count)) < _SAMPLE_COUNT:  # noqa: S311  no secret depends on it
        sample[drawn] = key
