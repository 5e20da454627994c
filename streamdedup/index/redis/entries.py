"""Index entries in Redis: one string for each, in the slot of its document number. Their form: ``index.entries``."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from streamdedup.index.documents import MARKER_LIFETIME_MS, IndexEntry, InsertResult, InsertState
from streamdedup.index.entries import decode_entries, encode_entries, encode_number, encode_place
from streamdedup.index.redis.base import RedisPart
from streamdedup.index.redis.errors import damage_translated
from streamdedup.index.redis.keys import by_slot
from streamdedup.index.values import Fence
from streamdedup.position import Position


class RedisEntries(RedisPart):
    """An ``EntryStore`` in Redis."""

    @staticmethod
    def encode_entries(entries: Sequence[IndexEntry]) -> list[bytes]:
        """See ``EntryStore.encode_entries``."""
        return encode_entries(entries)

    def insert_entries(
        self, entries: Sequence[IndexEntry], fences: Sequence[Fence], encoded: Sequence[bytes] | None = None
    ) -> list[InsertResult]:
        """See ``EntryStore.insert_entries``."""
        results = [InsertResult(InsertState.CREATED)] * len(entries)
        encoded = encode_entries(entries) if encoded is None else encoded
        groups, replies = self._store("insert_entries", [self._lifetime], entries, encoded, fences)
        for members, (states, *stored) in zip(groups, replies, strict=True):
            if not any(states):
                continue
            of_rows = [members[at - 1] for at in stored[::2]]
            with damage_translated():
                previous = decode_entries([entries[index].number for index in of_rows], stored[1::2])
            entry_of = dict(zip(of_rows, previous, strict=True))
            for index, state in zip(members, states, strict=True):
                if state != InsertState.CREATED:
                    results[index] = InsertResult(InsertState(state), entry_of.get(index))
        return results

    def replace_entries(self, entries: Sequence[IndexEntry], fences: Sequence[Fence]) -> None:
        """See ``EntryStore.replace_entries``."""
        # First a call without documents to the buckets of each slot; calls are numbered (rule 10 of `index.contract`).
        # A server that then goes back to an earlier state, without the removals from buckets in other slots, has lost
        # this call too, so the script refuses the entries.
        script = f"remove_{self.options.bucket_layout}"
        self._run(
            [
                self._fenced_call(script, slot, fences, [self._keys.buckets(slot), self._lifetime, b"", b""])
                for slot in by_slot(self._keys.entry_slot(entry.number) for entry in entries)
            ]
        )
        lifetimes = [self._lifetime, self._lifetime or MARKER_LIFETIME_MS]
        self._store("replace_entries", lifetimes, entries, encode_entries(entries), fences)

    def _store(
        self,
        script: str,
        lifetimes: Sequence[int],
        entries: Sequence[IndexEntry],
        encoded: Sequence[bytes],
        fences: Sequence[Fence],
    ) -> tuple[list[list[int]], list[Any]]:
        """Call a script; return the indexes of the entries of each call, and the replies."""
        groups = by_slot(self._keys.entry_slot(entry.number) for entry in entries)
        numbers = np.array([entry.number for entry in entries], ">i8")
        lengths = np.array([len(data) for data in encoded], ">u4")
        calls = []
        for slot, members in groups.items():
            of_slot = b"".join([encoded[index] for index in members])
            joined = (numbers[members].tobytes(), lengths[members].tobytes(), of_slot)
            arguments = [self._keys.entries(slot), *lifetimes, *joined]
            calls.append(self._fenced_call(script, slot, fences, arguments, len(members)))
        return list(groups.values()), self._run(calls)

    def set_clusters(self, clusters: Sequence[tuple[int, Position, int]], fences: Sequence[Fence]) -> None:
        """See ``EntryStore.set_clusters``."""
        slots = (self._keys.entry_slot(number) for number, _, _ in clusters)
        encoded = [(encode_number(number), encode_place(at), encode_number(first)) for number, at, first in clusters]
        self._run(self._calls_by_slot("set_clusters", slots, fences, lambda slot: [self._keys.entries(slot)], encoded))
