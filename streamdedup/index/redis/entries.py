"""Index entries in Redis: one string for each, in the slot for its document number. Layout: ``index.entries``."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from streamdedup.index.documents import IndexEntry, InsertResult, InsertState
from streamdedup.index.entries import decode_entries, decode_number, encode_entries, encode_number, encode_place
from streamdedup.index.redis.base import RedisPart
from streamdedup.index.redis.errors import damage_translated
from streamdedup.index.redis.keys import by_slot
from streamdedup.index.values import CLUSTER_SIZE_CAP, Fence, marker_lifetime
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
        # Reply: a byte with the state of each member, then number (from 1) and stored entry of members with one.
        groups, replies = self._call_with_entries("insert_entries", [self._lifetime], entries, encoded, fences)
        for members, (states, *stored) in zip(groups, replies, strict=True):
            if not any(states):  # all CREATED
                continue
            changed = [members[member - 1] for member in stored[::2]]
            with damage_translated():
                previous = decode_entries([entries[index].number for index in changed], stored[1::2])
            entry_of = dict(zip(changed, previous, strict=True))
            for index, state in zip(members, states, strict=True):
                if state != InsertState.CREATED:
                    results[index] = InsertResult(InsertState(state), entry_of.get(index))
        return results

    def replace_entries(self, entries: Sequence[IndexEntry], fences: Sequence[Fence]) -> None:
        """See ``EntryStore.replace_entries``."""
        # First make an empty call to the buckets of each slot. The call raises the slot's call number (rule 10 of
        # `index.contract`). A server that goes back later loses the removals from buckets together with this number,
        # and so refuses the entries.
        script, encoded = f"remove_{self.options.bucket_layout}", self._encoded(fences)
        self._run(
            [
                self._fenced_call(script, slot, encoded, [self._keys.buckets(slot), self._lifetime, b"", b""])
                for slot in by_slot(self._keys.entry_slot(entry.number) for entry in entries)
            ]
        )
        lifetimes = [self._lifetime, marker_lifetime(self.options.lifetime_ms) or 0]
        self._call_with_entries("replace_entries", lifetimes, entries, encode_entries(entries), fences)

    def _call_with_entries(
        self,
        script: str,
        lifetimes: Sequence[int],
        entries: Sequence[IndexEntry],
        encoded: Sequence[bytes],
        fences: Sequence[Fence],
    ) -> tuple[list[list[int]], list[Any]]:
        """Call a script; return the entry indexes in each call, and the replies."""
        groups = by_slot(self._keys.entry_slot(entry.number) for entry in entries)
        numbers = np.array([entry.number for entry in entries], ">i8")
        lengths = np.array([len(data) for data in encoded], ">u4")
        calls, encoded_fences = [], self._encoded(fences)
        for slot, members in groups.items():
            of_slot = b"".join([encoded[index] for index in members])
            joined = (numbers[members].tobytes(), lengths[members].tobytes(), of_slot)
            arguments = [self._keys.entries(slot), *lifetimes, *joined]
            calls.append(self._fenced_call(script, slot, encoded_fences, arguments, len(members)))
        return list(groups.values()), self._run(calls)

    def set_clusters(self, clusters: Sequence[tuple[int, Position, int]], fences: Sequence[Fence]) -> list[int]:
        """See ``EntryStore.set_clusters``; the entries in one round trip, the sets in a second one."""
        joining = [(number, position, cluster) for number, position, cluster in clusters if cluster != number]
        slots = [self._keys.entry_slot(number) for number, _, _ in joining]
        arguments = [
            (encode_number(number), encode_place(position), encode_number(cluster))
            for number, position, cluster in joining
        ]
        calls = self._calls_by_slot("set_clusters", slots, fences, lambda slot: [self._keys.entries(slot)], arguments)
        before = iter(_in_order(slots, self._run(calls)))
        changes: list[tuple[str, int, int]] = []
        for number, _, cluster in clusters:
            stored = b"" if cluster == number else next(before)  # b"": in no other cluster, or left alone
            if stored and stored not in (encode_number(cluster), encode_number(number)):
                changes.append(("-", decode_number(stored), number))
            changes.append(("+" if stored else "=", cluster, number))
        sizes = self._change_cluster_sets(changes, fences)
        return [size for (change, _, _), size in zip(changes, sizes, strict=True) if change != "-"]

    def leave_clusters(self, members: Sequence[tuple[int, int]], fences: Sequence[Fence]) -> None:
        """See ``EntryStore.leave_clusters``."""
        self._change_cluster_sets([("-", cluster, number) for number, cluster in members], fences)

    def _change_cluster_sets(self, changes: Sequence[tuple[str, int, int]], fences: Sequence[Fence]) -> list[int]:
        """Change the sets of clusters, in order; return the size of each cluster.

        Args:
            changes: ``+``, ``-`` or ``=`` (only the size), the number that names the cluster, the document number.
            fences: Fences for the batch partitions.
        """
        slots = [self._keys.entry_slot(cluster) for _, cluster, _ in changes]
        arguments = [(change, encode_number(cluster), number) for change, cluster, number in changes]

        def prefixes(slot: int) -> list[Any]:
            return [self._keys.cluster_sets(slot), self._lifetime, CLUSTER_SIZE_CAP - 1]

        return _in_order(
            slots, self._run(self._calls_by_slot("change_cluster_sets", slots, fences, prefixes, arguments))
        )


def _in_order(slots: Sequence[int], replies: Sequence[Sequence[Any]]) -> list[Any]:
    """Return the replies for elements of calls by slot in the order of the elements."""
    groups = by_slot(slots).values()
    by_index = {
        index: reply for group, of in zip(groups, replies, strict=True) for index, reply in zip(group, of, strict=True)
    }
    return [by_index[index] for index in range(len(slots))]
