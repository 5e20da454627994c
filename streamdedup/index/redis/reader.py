"""Reads an index in Redis without the right to write, on a master or a replica (``index.contract.IndexReader``).

Each look-up is one script call for a slot, so that a bucket page is read as a whole while a daemon splits it. Scripts
are called by ``EVALSHA_RO``, and sent by ``EVAL_RO`` where the server does not have them: neither runs a command
that writes, and the right to load scripts is not needed.
"""

from collections.abc import Sequence
from typing import Any

from redis.exceptions import NoScriptError

from streamdedup.errors import StoreUnavailable
from streamdedup.index.entries import decode_cluster, encode_number
from streamdedup.index.redis.buckets import LAYOUTS
from streamdedup.index.redis.errors import beginning_of, check_replies
from streamdedup.index.redis.reading import RedisIndexOptions, RedisReading
from streamdedup.index.redis.scripts import Call, read_scripts
from streamdedup.index.redis.servers import Command, Servers
from streamdedup.index.values import (
    BandKeys,
    ClusterCounts,
    Fingerprint,
    Hits,
    NumberAndDigest,
    Opening,
    hits_of_members,
)


class RedisIndexReader(RedisReading):
    def __init__(self, servers: Servers, options: RedisIndexOptions) -> None:
        super().__init__(servers, options)
        self._scripts = read_scripts()

    def check(self, fingerprint: Fingerprint) -> Opening | None:
        key = self._keys.fingerprint
        requests = (("GET", key), ("EXISTS", self._keys.staging), ("EXISTS", self._keys.dropping))
        stored, is_in_rebuild, is_half_dropped = self._servers.ask_many([Command(key, parts) for parts in requests])
        if is_in_rebuild:
            raise StoreUnavailable(f"the index of {self.options.namespace} is being rebuilt or deleted")
        # The remains of an interrupted deletion count as no index.
        return None if stored is None or is_half_dropped else self._compare_fingerprint(stored, fingerprint)

    def look_up(self, numbers: Sequence[int], band_keys: BandKeys) -> Hits:
        layout = self.options.bucket_layout
        calls, rows_of_call = [], []
        for slot, rows, keys in self._keys.split_band_keys(band_keys):
            arguments = [self._keys.buckets_prefix(slot), self.options.lifetime_ms, keys]
            calls.append(Call(f"look_up_{layout}", [self._keys.guard(slot)], arguments))
            rows_of_call.append(rows)
        buckets: list[list[list[int]]] = [[] for _ in numbers]
        for rows, reply in zip(rows_of_call, self._run(calls), strict=True):
            for row_from_1, members in zip(reply[::2], reply[1::2], strict=True):
                buckets[int(rows[row_from_1 - 1])].append(LAYOUTS[layout].decode(members))
        return hits_of_members(numbers, buckets, self.options.bucket_cap)

    def look_up_copies(self, documents: Sequence[NumberAndDigest]) -> list[list[int]]:
        keys = [self._keys.copies_prefix(self._keys.digest_slot(digest)) + digest for _, digest in documents]
        replies = self._servers.ask_many([Command(key, ("ZREVRANGE", key, 0, -1)) for key in keys])
        return [
            [member for member in map(int, members) if member != number]
            for (number, _), members in zip(documents, replies, strict=True)
        ]

    def read_cluster(self, cluster: int) -> tuple[ClusterCounts, list[int]]:
        slot = self._keys.entry_slot(cluster)
        arguments = [self._keys.cluster_sets_prefix(slot), self._keys.entries_prefix(slot), encode_number(cluster)]
        (reply,) = self._run([Call("read_cluster", [self._keys.guard(slot)], arguments)])
        return decode_cluster(reply)

    def _run(self, calls: Sequence[Call]) -> list[Any]:
        """Call scripts in one round trip; in a second round trip send and run the scripts that a server lacks."""
        replies = self._servers.send_raw([call.command("EVALSHA_RO", self._scripts[call.name].sha) for call in calls])
        missing = [row for row, reply in enumerate(replies) if isinstance(reply, NoScriptError)]
        if missing:
            sent = [calls[row].command("EVAL_RO", self._scripts[calls[row].name].source) for row in missing]
            for row, reply in zip(missing, self._servers.send_raw(sent), strict=True):
                replies[row] = reply
        # An error does not name its key, and the first key of a call may be the guard.
        check_replies(replies, [beginning_of(call.keys[0]) for call in calls])
        return replies
