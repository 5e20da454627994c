"""Index entries in Redis, a part of ``RedisIndex``: rules 1, 3 and 9 of ``index.contract``.

An entry is a string (``index.entries``) in the slot of its document number.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from streamdedup.index.documents import IndexEntry, InsertResult, InsertState
from streamdedup.index.entries import decode_entries, encode_entries
from streamdedup.index.redis.errors import damage_translated
from streamdedup.index.redis.fenced import RedisPart
from streamdedup.index.redis.keys import by_slot
from streamdedup.index.values import Fence, marker_lifetime


class RedisEntries(RedisPart):
    encode_entries = staticmethod(encode_entries)

    def insert_entries(
        self, entries: Sequence[IndexEntry], fences: Sequence[Fence], encoded: Sequence[bytes] | None = None
    ) -> list[InsertResult]:
        results = [InsertResult(InsertState.CREATED)] * len(entries)
        encoded = encode_entries(entries) if encoded is None else encoded
        # Reply of a call: a state byte for each entry; then for each state in ``RETURNING_STATES`` the row, from 1 on,
        # and the stored entry. b"\0\1\0", 2, stored: of three entries the second is to replace the stored one.
        groups, replies = self._call_with_entries(
            "insert_entries", [self.options.lifetime_ms], entries, encoded, fences
        )
        for rows, (states, *stored) in zip(groups, replies, strict=True):
            if set(states) == {InsertState.CREATED}:
                continue
            returned = [rows[row_from_1 - 1] for row_from_1 in stored[::2]]
            with damage_translated():
                previous = decode_entries([entries[row].number for row in returned], stored[1::2])
            previous_of = dict(zip(returned, previous, strict=True))
            for row, state in zip(rows, states, strict=True):
                if state != InsertState.CREATED:
                    results[row] = InsertResult(InsertState(state), previous_of.get(row))
        return results

    def replace_entries(self, entries: Sequence[IndexEntry], fences: Sequence[Fence]) -> None:
        if self._servers.mode == "cluster":
            self._store_call_numbers(entries, fences)
        lifetimes = [self.options.lifetime_ms, marker_lifetime(self.options.lifetime_ms)]
        self._call_with_entries("replace_entries", lifetimes, entries, encode_entries(entries), fences)

    def _store_call_numbers(self, entries: Sequence[IndexEntry], fences: Sequence[Fence]) -> None:
        """Call each slot of the entries, with a removal of no documents, before the entries are replaced.

        The entries rely on removals from buckets in other slots (rule 9), each with call numbers of its own (rule 10).
        A master of both slots that loses removals in a failover loses this later call too, and refuses the entries. A
        removal that is lost elsewhere leaves a number in its bucket, a hint that expires.
        """
        removal, encoded_fences = f"remove_{self.options.bucket_layout}", self._encode_fences(fences)
        calls = []
        for slot in by_slot(self._keys.entry_slot(entry.number) for entry in entries):
            no_documents = [self._keys.buckets_prefix(slot), self.options.lifetime_ms, b"", b""]
            calls.append(self._fenced_call(removal, slot, encoded_fences, no_documents))
        self._run(calls)

    def _call_with_entries(
        self,
        script: str,
        lifetimes: Sequence[int],
        entries: Sequence[IndexEntry],
        encoded: Sequence[bytes],
        fences: Sequence[Fence],
    ) -> tuple[list[list[int]], list[Any]]:
        """Call a script that stores entries; return the rows of the entries in each call, and the replies."""
        groups = by_slot(self._keys.entry_slot(entry.number) for entry in entries)
        numbers = np.array([entry.number for entry in entries], ">i8")
        lengths = np.array([len(data) for data in encoded], ">u4")
        calls, encoded_fences = [], self._encode_fences(fences)
        for slot, rows in groups.items():
            slot_entries = b"".join([encoded[row] for row in rows])
            joined = (numbers[rows].tobytes(), lengths[rows].tobytes(), slot_entries)
            arguments = [self._keys.entries_prefix(slot), *lifetimes, *joined]
            calls.append(self._fenced_call(script, slot, encoded_fences, arguments, len(rows)))
        return list(groups.values()), self._run(calls)
