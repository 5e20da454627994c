"""Looking into the indexes in Redis and deleting them, for an operator; the daemon does neither.

Nothing here is needed to read or write an index, and nothing takes a lock: what is counted while daemons write is what
was met on the way.
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

#: What the letter after the tag of a key means.
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
#: Whatever else an index has: fingerprint and figures.
OTHER_KIND = "other"
#: Keys that a server looks at in one step of a scan, and that are deleted in one round trip.
_SCAN_COUNT = 1000
#: Keys of each kind whose memory is asked for.
_SAMPLE_COUNT = 500
#: Partitions of a topic that are looked for: Kafka, which knows how many there are, need not be there.
_PARTITIONS_COUNT = 1024


@dataclass(frozen=True, slots=True)
class KindStatistics:
    """Keys of one kind.

    Attributes:
        count: How many there are.
        used_bytes: Their memory, from that of a sample of them; the server's tables of keys are not part of it.
    """

    count: int
    used_bytes: int


@dataclass(frozen=True, slots=True)
class PartitionFacts:
    """What an index knows of a partition.

    Attributes:
        mark: Offset known to be committed, or None.
        generation: Generation of the consumer group that may write, or None.
        topic_id: Kafka's id of the topic that the mark belongs to; empty when none was known.
    """

    mark: int | None
    generation: int | None
    topic_id: str = ""


class IndexUpkeep:
    """Looks into one index and deletes it.

    Args:
        servers: Where it is.
        namespace: Prefix and profile, joined by a colon.
    """

    def __init__(self, servers: Servers, namespace: str) -> None:
        self._servers = servers
        self._namespace = namespace
        # What is looked at by its name stands in the first slot, which every index has.
        self._keys = Keys(namespace, 1)

    def fingerprint(self) -> Fingerprint | None:
        """Return the parameters that the index was built with, or None when there is no index.

        Raises:
            StoreMisconfigured: Somebody else wrote there.
        """
        key = self._keys.fingerprint
        stored = self._servers.ask(key, "GET", key)
        return None if stored is None else decode_fingerprint(key, stored)

    def is_half_dropped(self) -> bool:
        """Tell whether a deletion was begun and did not end."""
        return bool(self._servers.ask(self._keys.dropping, "EXISTS", self._keys.dropping))

    def partitions(self, topics: Iterable[str], also: Iterable[Partition] = ()) -> dict[Partition, PartitionFacts]:
        """Return what the index knows of partitions, for those of which it knows anything.

        Args:
            topics: Topics of which the first 1,024 partitions are looked up.
            also: Further partitions.
        """
        every = {Partition(topic, number) for topic in topics for number in range(_PARTITIONS_COUNT)} | set(also)
        places = sorted(every)
        marks = self._values([self._keys.high_water_mark(partition) for partition in places])
        fences = self._values([self._keys.fence(0, partition) for partition in places])
        return {
            partition: _facts(mark, fence)
            for partition, mark, fence in zip(places, marks, fences, strict=True)
            if mark is not None or fence is not None
        }

    def _values(self, keys: Sequence[bytes]) -> list[bytes | None]:
        values: list[bytes | None] = self._servers.ask(keys[0], "MGET", *keys)
        return values

    def survey(self, on_keys: Callable[[int], None] = lambda _count: None) -> dict[str, KindStatistics]:
        """Walk over all keys of the index.

        Args:
            on_keys: Called with the number of keys met since the last call.

        Returns:
            Figures for each kind of key.
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
        """Delete the index, in small steps; daemons that still write to it end.

        A key says that it is being done until it is done: were it cut short, what is left of one index could be taken
        for a part of the next.

        Args:
            on_keys: Called with the number of keys deleted since the last call.
            keep: A key to leave.

        Returns:
            How many keys were deleted.
        """
        dropping, fingerprint = self._keys.dropping, self._keys.fingerprint
        # 1. Nobody opens it any more, and who has it open notices at the first fence that is missing.
        self._servers.ask_all(
            [Command(dropping, ("SET", dropping, b"1")), Command(fingerprint, ("UNLINK", fingerprint))]
        )
        # 2. Everything.
        total = 0
        for keys in self._scan():
            replies = self._servers.ask_all(
                [Command(key, ("UNLINK", key)) for key in keys if key not in {dropping, keep}]
            )
            total += sum(replies)
            on_keys(len(replies))
        # 3. From now on there is none.
        self._servers.ask(dropping, "UNLINK", dropping)
        return total

    def _scan(self) -> Iterator[list[bytes]]:
        """Yield the keys of the index, some at a time; one that moves meanwhile may come twice."""
        # Neither a prefix nor a profile's name has characters that a pattern would read as anything but themselves.
        pattern = f"{{{self._namespace}:*"
        cursors: Mapping[str, Any] = self._servers.on_masters("SCAN", 0, "MATCH", pattern, "COUNT", _SCAN_COUNT)
        for master, (first_cursor, first_keys) in cursors.items():
            cursor, keys = first_cursor, first_keys
            yield keys
            while cursor:
                cursor, keys = self._servers.on_master(master, "SCAN", cursor, "MATCH", pattern, "COUNT", _SCAN_COUNT)
                yield keys


def _facts(mark: bytes | None, fence: bytes | None) -> PartitionFacts:
    """Return what a stored mark and a stored fence say."""
    offset, topic_id = (None, "") if mark is None else decode_high_water_mark(mark)
    return PartitionFacts(offset, None if fence is None else decode_generation(fence), topic_id)


def _keep_some(sample: list[bytes], key: bytes, met_count: int) -> None:
    """Keep a sample in which every key met so far stands with the same chance."""
    if len(sample) < _SAMPLE_COUNT:
        sample.append(key)
    elif (at := random.randrange(met_count)) < _SAMPLE_COUNT:  # noqa: S311  no secret depends on it
        sample[at] = key
