"""Base class for the index and the reader in Redis, ``RedisPart`` and ``RedisIndexReader``: what both read."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from streamdedup import clock
from streamdedup.index.documents import IndexEntry
from streamdedup.index.entries import LAYOUT, decode_entries
from streamdedup.index.fingerprints import compare_fingerprints, decode_fingerprint
from streamdedup.index.redis.errors import damage_translated
from streamdedup.index.redis.keys import Keys, by_slot
from streamdedup.index.redis.scripts import Call
from streamdedup.index.redis.servers import Command, Servers
from streamdedup.index.values import Fingerprint, Opening

#: Time slices in a lifetime; documents are counted by slice.
SLICES_PER_LIFETIME = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisIndexOptions:
    """The options of an index in Redis, the same for all processes that use it.

    Attributes:
        namespace: Prefix and profile, joined by a colon.
        shards: Slots for each band; 1 except on a cluster.
        lifetime_ms: Time to live of index entries, bucket members and pending matches after the last write.
        bucket_layout: A key of ``buckets.LAYOUTS``.
    """

    namespace: str
    bands: int
    lifetime_ms: int
    shards: int = 1
    bucket_cap: int | None = None
    bucket_layout: str = "sets"

    def stored_fingerprint(self, fingerprint: Fingerprint) -> dict[str, object]:
        """Return the fingerprint to store: the settings, and the parameters that decide on the keys."""
        stored = {**fingerprint, "shards": self.shards, "bucket_layout": self.bucket_layout, "layout": LAYOUT}
        if self.bucket_layout == "packed":
            # Keys of pages contain the number of a generation: the time divided by this length (``lua/_pages.lua``).
            stored["page_generation_ms"] = self.lifetime_ms
        return stored

    def keys(self, *, in_staging: bool = False) -> Keys:
        return Keys(self.namespace, self.bands, self.shards, in_staging=in_staging)


class RedisReading(ABC):
    def __init__(self, servers: Servers, options: RedisIndexOptions, *, in_staging: bool = False) -> None:
        self.options = options
        self._servers = servers
        self._keys = options.keys(in_staging=in_staging)
        self._slots = range(self._keys.slots_count)

    @abstractmethod
    def _run(self, calls: Sequence[Call]) -> list[Any]:
        """Call scripts and return their replies."""

    def _compare_fingerprint(self, stored: bytes, fingerprint: Fingerprint) -> Opening:
        # Through JSON, as the stored value was: a tuple becomes a list.
        configured = msgspec.json.decode(msgspec.json.encode(self.options.stored_fingerprint(fingerprint)))
        return compare_fingerprints(decode_fingerprint(self._keys.fingerprint, stored), configured)

    def get_entries(self, numbers: Sequence[int]) -> dict[int, IndexEntry]:
        distinct = list(dict.fromkeys(numbers))
        groups = by_slot(self._keys.entry_slot(number) for number in distinct)
        keys_by_slot = [[self._keys.entry(distinct[row]) for row in rows] for rows in groups.values()]
        replies = self._servers.ask_many([Command(keys[0], ("MGET", *keys)) for keys in keys_by_slot])
        stored = {}
        for rows, encoded in zip(groups.values(), replies, strict=True):
            for row, entry in zip(rows, encoded, strict=True):
                if entry is not None:
                    stored[distinct[row]] = entry
        return _decoded(stored)

    def read_entries(self, numbers: Sequence[int], limit_bytes: int) -> dict[int, IndexEntry | None]:
        groups = by_slot(self._keys.entry_slot(number) for number in numbers)
        slot_limit_bytes = max(1, limit_bytes // max(1, len(groups)))  # without numbers there is no group
        calls = [
            Call("read_entries", [self._keys.entry(numbers[row]) for row in rows], [slot_limit_bytes])
            for rows in groups.values()
        ]
        read: dict[int, bytes | None] = {}
        for rows, reply in zip(groups.values(), self._run(calls), strict=True):
            for row, entry in zip(rows, reply, strict=False):  # a reply ends where the limit was reached
                read[numbers[row]] = entry
        entries = _decoded({number: entry for number, entry in read.items() if entry is not None})
        return {number: entries.get(number) for number in read}

    def count_documents(self) -> int:
        """Return the count of the HyperLogLogs of a lifetime, standard error 0.81 %.

        Nothing can be removed from a HyperLogLog: each time slice has its own, which expires after its last entry.
        """
        present = self._present_slice()
        time_slices = range(present - SLICES_PER_LIFETIME, present + 1)
        keys = [self._keys.document_count(time_slice) for time_slice in time_slices]
        return int(self._servers.ask(keys[0], "PFCOUNT", *keys))

    def _present_slice(self) -> int:
        return int(clock.now_ms() * SLICES_PER_LIFETIME / self.options.lifetime_ms)

    def close(self) -> None:
        self._servers.close()


def _decoded(stored: Mapping[int, bytes]) -> dict[int, IndexEntry]:
    with damage_translated():
        entries = decode_entries(list(stored), list(stored.values()))
    return dict(zip(stored, entries, strict=True))
