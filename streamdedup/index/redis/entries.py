"""Index entries in Redis: one string for each, in the slot of its document number. Their form: ``index.entries``."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamdedup.index.documents import MARKER_LIFETIME_MS, IndexEntry, InsertResult, InsertState
from streamdedup.index.entries import decode_entries, encode_entries, encode_number, encode_place
from streamdedup.index.redis.errors import damage_translated
from streamdedup.index.redis.keys import Keys, by_slot
from streamdedup.index.redis.partitions import RedisPartitions
from streamdedup.index.redis.scripts import Call, ScriptRunner
from streamdedup.index.redis.servers import Command, Servers
from streamdedup.index.values import Fence
from streamdedup.position import Position


class RedisEntryReader:
    """Reads index entries."""

    def __init__(self, servers: Servers, keys: Keys, run: Callable[[Sequence[Call]], list[Any]]) -> None:
        self._servers = servers
        self._keys = keys
        self._run = run

    def get_entries(self, numbers: Sequence[int]) -> dict[int, IndexEntry]:
        """See ``EntryStore.get_entries``."""
        distinct = list(dict.fromkeys(numbers))
        groups = by_slot(self._keys.entry_slot(number) for number in distinct)
        keys = [[self._keys.entry(distinct[index]) for index in members] for members in groups.values()]
        replies = self._servers.ask_all([Command(of_slot[0], ("MGET", *of_slot)) for of_slot in keys])
        found = {
            distinct[index]: data
            for members, values in zip(groups.values(), replies, strict=True)
            for index, data in zip(members, values, strict=True)
            if data is not None
        }
        return _decoded(found)

    def read_entries(self, numbers: Sequence[int], limit_bytes: int) -> dict[int, IndexEntry | None]:
        """See ``EntryStore.read_entries``."""
        groups = by_slot(self._keys.entry_slot(number) for number in numbers)
        limit = max(1, limit_bytes // max(1, len(groups)))
        calls = [
            Call("read_entries", [self._keys.entry(numbers[index]) for index in members], [limit])
            for members in groups.values()
        ]
        replies = self._run(calls)
        read = {
            numbers[index]: data
            for members, reply in zip(groups.values(), replies, strict=True)
            # A reply ends where the limit was reached.
            for index, data in zip(members, reply, strict=False)
        }
        found = _decoded({number: data for number, data in read.items() if data is not None})
        return {number: found.get(number) for number in read}


def _decoded(stored: Mapping[int, bytes]) -> dict[int, IndexEntry]:
    """Decode entries by document number."""
    with damage_translated():
        entries = decode_entries(list(stored), list(stored.values()))
    return dict(zip(stored, entries, strict=True))


class RedisEntries(RedisEntryReader):
    """An ``EntryStore`` in Redis.

    Args:
        servers: Servers of the index.
        keys: Keys of the index.
        runner: Calls the scripts.
        partitions: Makes calls under fences.
        lifetime_ms: Time to live of entries after the last write, in milliseconds; None for ever.
    """

    def __init__(
        self, servers: Servers, keys: Keys, runner: ScriptRunner, partitions: RedisPartitions, lifetime_ms: int | None
    ) -> None:
        super().__init__(servers, keys, runner.run)
        self._runner = runner
        self._fenced_call = partitions.fenced_call
        self._lifetime = b"%d" % (lifetime_ms or 0)
        self._marker_lifetime = b"%d" % (lifetime_ms or MARKER_LIFETIME_MS)

    def insert_entries(self, entries: Sequence[IndexEntry], fences: Sequence[Fence]) -> list[InsertResult]:
        """See ``EntryStore.insert_entries``."""
        results = [InsertResult(InsertState.CREATED)] * len(entries)
        groups, replies = self._store("insert_entries", [self._lifetime], entries, fences)
        for members, (states, *stored) in zip(groups, replies, strict=True):
            if not any(states):
                continue
            rows = members.tolist()
            of_rows = [rows[at - 1] for at in stored[::2]]
            with damage_translated():
                previous = decode_entries([entries[index].number for index in of_rows], stored[1::2])
            entry_of = dict(zip(of_rows, previous, strict=True))
            for index, state in zip(rows, states, strict=True):
                if state != InsertState.CREATED:
                    results[index] = InsertResult(InsertState(state), entry_of.get(index))
        return results

    def replace_entries(self, entries: Sequence[IndexEntry], fences: Sequence[Fence]) -> None:
        """See ``EntryStore.replace_entries``."""
        self._store("replace_entries", [self._lifetime, self._marker_lifetime], entries, fences)

    def _store(
        self, script: str, lifetimes: Sequence[bytes], entries: Sequence[IndexEntry], fences: Sequence[Fence]
    ) -> tuple[list[NDArray[np.intp]], list[Any]]:
        """Call a script; return the indexes of the entries of each call, and the replies."""
        numbers = np.array([entry.number for entry in entries], np.int64)
        groups = self._keys.by_entry_slot(numbers)
        encoded = encode_entries(entries)
        lengths = np.array([len(data) for data in encoded], ">u4")
        calls = []
        for slot, members in groups:
            of_slot = b"".join([encoded[index] for index in members.tolist()])
            joined = (numbers[members].astype(">i8").tobytes(), lengths[members].tobytes(), of_slot)
            call = self._fenced_call(script, slot, fences, [self._keys.entries(slot), *lifetimes, *joined])
            calls.append(call._replace(documents_count=len(members)))
        return [members for _, members in groups], self._runner.run(calls)

    def set_clusters(self, clusters: Sequence[tuple[int, Position, int]], fences: Sequence[Fence]) -> None:
        """See ``EntryStore.set_clusters``."""
        calls = []
        for slot, members in by_slot(self._keys.entry_slot(number) for number, _, _ in clusters).items():
            arguments = [self._keys.entries(slot)]
            for index in members:
                number, position, cluster = clusters[index]
                arguments += (encode_number(number), encode_place(position), encode_number(cluster))
            calls.append(self._fenced_call("set_clusters", slot, fences, arguments))
        self._runner.run(calls)
