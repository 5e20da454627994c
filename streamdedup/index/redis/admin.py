"""Inspects and deletes an index in Redis, for the commands of operators; a rebuild also deletes.

Nothing takes a lock, so numbers are approximate while daemons write.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from streamdedup.index.entries import decode_generation, decode_high_water_mark
from streamdedup.index.fingerprints import decode_fingerprint
from streamdedup.index.redis.keys import Keys
from streamdedup.index.redis.servers import Command, Servers
from streamdedup.index.values import Fingerprint
from streamdedup.position import Partition

#: Kinds of keys by the letter after the tag, as ``index status`` shows them.
KINDS = {
    b"r": "records",
    b"b": "buckets",
    b"d": "copies",
    b"q": "departures",
    b"c": "claim pages",
    b"k": "claim catalogues",
    b"p": "partners",
    b"f": "fences",
    b"m": "marks",
    b"e": "read starts",
    b"o": "orders",
    b"a": "announcements",
    b"l": "lists",
    b"n": "lists of claims",
    b"t": "times",
}
#: All other keys: fingerprint, lease on a staging index, counts of documents.
OTHER_KIND = "other"
#: Keys that a server examines in one step of a scan, and that are deleted in one round trip.
_SCAN_COUNT = 1000
#: Number of keys of each kind whose memory is measured.
_SAMPLE_COUNT = 500
#: Number of partitions of a topic that are looked up: the number in Kafka is not known here.
_PARTITIONS_COUNT = 1024


@dataclass(frozen=True, slots=True)
class KindStatistics:
    """Keys of one kind.

    Attributes:
        count: Number of keys.
        used_bytes: Memory, estimated from a sample of the keys, without the server's tables of keys.
    """

    count: int
    used_bytes: int


@dataclass(frozen=True, slots=True)
class PartitionFacts:
    """The facts of a partition that ``index status`` shows.

    Attributes:
        high_water_mark: High-water mark, or None.
        generation: Generation of the consumer group that may write, or None.
        topic_id: Kafka's id of the topic of the high-water mark; empty when unknown.
    """

    high_water_mark: int | None
    generation: int | None
    topic_id: str = ""


class IndexUpkeep:
    """Inspects and deletes one index.

    Args:
        servers: Servers of the index.
        namespace: Prefix and profile, joined by a colon.
    """

    def __init__(self, servers: Servers, namespace: str) -> None:
        self._servers = servers
        self._namespace = namespace
        # All keys that are read by name are in the first slot, which every index has.
        self._keys = Keys(namespace, 1)

    def fingerprint(self) -> Fingerprint | None:
        """Return the parameters that the index was built with, or None when there is no index.

        Raises:
            StoreMisconfigured: The value at the key is no fingerprint.
        """
        key = self._keys.fingerprint
        stored = self._servers.ask(key, "GET", key)
        return None if stored is None else decode_fingerprint(key, stored)

    def is_half_dropped(self) -> bool:
        """Tell whether a deletion was interrupted."""
        return bool(self._servers.ask(self._keys.dropping, "EXISTS", self._keys.dropping))

    def partitions(self, topics: Iterable[str], also: Iterable[Partition] = ()) -> dict[Partition, PartitionFacts]:
        """Return the facts of all partitions that the index has seen.

        Args:
            topics: Topics whose first 1,024 partitions are looked up.
            also: Further partitions.
        """
        every = {Partition(topic, number) for topic in topics for number in range(_PARTITIONS_COUNT)} | set(also)
        places = sorted(every)
        offsets = self._values([self._keys.high_water_mark(partition) for partition in places])
        fences = self._values([self._keys.fence(0, partition) for partition in places])
        return {
            partition: _facts(offset, fence)
            for partition, offset, fence in zip(places, offsets, fences, strict=True)
            if offset is not None or fence is not None
        }

    def _values(self, keys: Sequence[bytes]) -> list[bytes | None]:
        values: list[bytes | None] = self._servers.ask(keys[0], "MGET", *keys)
        return values

    def survey(self, on_keys: Callable[[int], None] = lambda _count: None) -> dict[str, KindStatistics]:
        """Walk over all keys of the index.

        Args:
            on_keys: Called with the number of keys found since the last call.

        Returns:
            Number and memory of each kind of key.
        """
        counts: Counter[str] = Counter()
        samples: dict[str, list[bytes]] = {}
        for keys in self._scan():
            for key in keys:
                kind = self._kind(key)
                counts[kind] += 1
                sample = samples.setdefault(kind, [])
                _keep_some(sample, key, counts[kind])
            on_keys(len(keys))
        return {
            kind: KindStatistics(counts[kind], round(counts[kind] * self._mean_bytes(samples.get(kind, []))))
            for kind in (*KINDS.values(), OTHER_KIND)
        }

    def _kind(self, key: bytes) -> str:
        after = key.partition(b"}")[2]
        return OTHER_KIND if after in {b"fingerprint", b"draft", b"dropping"} else KINDS.get(after[:1], OTHER_KIND)

    def _mean_bytes(self, sample: Sequence[bytes]) -> float:
        sizes = self._servers.ask_all([Command(key, ("MEMORY USAGE", key)) for key in sample])
        known = [size for size in sizes if size is not None]  # some have expired meanwhile
        return sum(known) / len(known) if known else 0.0

    def is_staging(self) -> bool:
        """Tell whether the index is being rebuilt."""
        return bool(self._servers.ask(self._keys.staging, "EXISTS", self._keys.staging))

    def drop(self, on_keys: Callable[[int], None] = lambda _count: None, keep: bytes | None = None) -> int:
        """Delete the index in small steps; daemons that still write to the index end.

        A marker key exists until the deletion is complete. Without the marker, the rest of an interrupted deletion
        could be taken for a part of the next index.

        Args:
            on_keys: Called with the number of keys deleted since the last call.
            keep: A key that is not deleted.

        Returns:
            Number of deleted keys.
        """
        dropping, fingerprint = self._keys.dropping, self._keys.fingerprint
        # 0. A user without the right to scan changes nothing.
        self._servers.on_masters("SCAN", 0, "COUNT", 1)
        # 1. No process opens the index any more; a daemon that has it open ends at the first missing fence.
        self._servers.ask_all(
            [Command(dropping, ("SET", dropping, b"1")), Command(fingerprint, ("UNLINK", fingerprint))]
        )
        # 2. All keys.
        total = 0
        for keys in self._scan():
            replies = self._servers.ask_all(
                [Command(key, ("UNLINK", key)) for key in keys if key not in {dropping, keep}]
            )
            total += sum(replies)
            on_keys(len(replies))
        # 3. The deletion is complete.
        self._servers.ask(dropping, "UNLINK", dropping)
        return total

    def _scan(self) -> Iterator[list[bytes]]:
        """Yield the keys of the index, some at a time; a key whose slot moves meanwhile may be yielded twice."""
        # Neither prefixes nor names of profiles have characters with a meaning in patterns.
        pattern = f"{{{self._namespace}:*"
        cursors: Mapping[str, Any] = self._servers.on_masters("SCAN", 0, "MATCH", pattern, "COUNT", _SCAN_COUNT)
        for master, (first_cursor, first_keys) in cursors.items():
            cursor, keys = first_cursor, first_keys
            yield keys
            while cursor:
                cursor, keys = self._servers.on_master(master, "SCAN", cursor, "MATCH", pattern, "COUNT", _SCAN_COUNT)
                yield keys


def _facts(high_water_mark: bytes | None, fence: bytes | None) -> PartitionFacts:
    """Decode a high-water mark and a fence."""
    offset, topic_id = (None, "") if high_water_mark is None else decode_high_water_mark(high_water_mark)
    return PartitionFacts(offset, None if fence is None else decode_generation(fence), topic_id)


def _keep_some(sample: list[bytes], key: bytes, found_count: int) -> None:
    """Add a key to a sample in which every key found so far is with the same probability."""
    if len(sample) < _SAMPLE_COUNT:
        sample.append(key)
    elif (at := random.randrange(found_count)) < _SAMPLE_COUNT:  # noqa: S311  no secret depends on it
        sample[at] = key
