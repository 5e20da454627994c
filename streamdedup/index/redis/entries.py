"""Index entries in Redis, a part of ``RedisIndex``: a string each, in the slot of the number (``index.entries``).

Read ``index.contract`` first: the calls implement its rules 1, 3 and 9.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from streamdedup.index.documents import IndexEntry, InsertResult, InsertState
from streamdedup.index.entries import (
    decode_counts,
    decode_entries,
    decode_number,
    encode_entries,
    encode_number,
    encode_position,
)
from streamdedup.index.redis.base import RedisPart
from streamdedup.index.redis.errors import damage_translated
from streamdedup.index.redis.keys import by_slot
from streamdedup.index.values import CLUSTER_SIZE_CAP, ClusterCounts, Fence, marker_lifetime
from streamdedup.position import Position


class RedisEntries(RedisPart):
    """An ``EntryStore`` in Redis."""

    @staticmethod
    def encode_entries(entries: Sequence[IndexEntry]) -> list[bytes]:
        return encode_entries(entries)

    def insert_entries(
        self, entries: Sequence[IndexEntry], fences: Sequence[Fence], encoded: Sequence[bytes] | None = None
    ) -> list[InsertResult]:
        results = [InsertResult(InsertState.CREATED)] * len(entries)
        encoded = encode_entries(entries) if encoded is None else encoded
        # Reply of a call: a string with one state byte per entry; then, for each entry in ``RETURNING_STATES``, its
        # number in the call (from 1 on) and the stored entry.
        groups, replies = self._call_with_entries("insert_entries", [self._lifetime], entries, encoded, fences)
        for rows, (states, *stored) in zip(groups, replies, strict=True):
            if set(states) == {InsertState.CREATED}:
                continue
            returned = [rows[number - 1] for number in stored[::2]]
            with damage_translated():
                previous = decode_entries([entries[row].number for row in returned], stored[1::2])
            previous_of = dict(zip(returned, previous, strict=True))
            for row, state in zip(rows, states, strict=True):
                if state != InsertState.CREATED:
                    results[row] = InsertResult(InsertState(state), previous_of.get(row))
        return results

    def replace_entries(self, entries: Sequence[IndexEntry], fences: Sequence[Fence]) -> None:
        # The entries rely on the removals from buckets (rule 9), which are in other slots. A removal of no documents in
        # the slot of each entry stores the call number there (rule 10). A failover that loses the removals also loses
        # this number, and the new master refuses the entries.
        removal, encoded_fences = f"remove_{self.options.bucket_layout}", self._encode_fences(fences)
        self._run(
            [
                self._fenced_call(removal, slot, encoded_fences, [self._keys.buckets(slot), self._lifetime, b"", b""])
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
        """Call a script that stores entries; return the rows of the entries in each call, and the replies.

        ``lifetimes`` are the times to live that the script takes, in milliseconds.
        """
        groups = by_slot(self._keys.entry_slot(entry.number) for entry in entries)
        numbers = np.array([entry.number for entry in entries], ">i8")
        lengths = np.array([len(data) for data in encoded], ">u4")
        calls, encoded_fences = [], self._encode_fences(fences)
        for slot, rows in groups.items():
            slot_entries = b"".join([encoded[row] for row in rows])
            joined = (numbers[rows].tobytes(), lengths[rows].tobytes(), slot_entries)
            arguments = [self._keys.entries(slot), *lifetimes, *joined]
            calls.append(self._fenced_call(script, slot, encoded_fences, arguments, len(rows)))
        return list(groups.values()), self._run(calls)

    def set_clusters(
        self, clusters: Sequence[tuple[int, Position, int]], fences: Sequence[Fence]
    ) -> list[ClusterCounts]:
        """Store the clusters in three runs.

        The first run writes the cluster into each entry that names none, the second one updates the cluster sets, the
        third one writes the clusters of entries that name another one. So after a call that failed halfway such an
        entry still names the cluster whose set the document leaves.
        """
        joining = [(number, position, cluster) for number, position, cluster in clusters if cluster != number]
        replies = iter(self._name_clusters(joining, fences, leaving=False))
        changes: list[tuple[str, int, bytes]] = []
        leaving: list[tuple[int, Position, int]] = []
        for number, position, cluster in clusters:
            reply = b"" if cluster == number else next(replies)
            if not reply:
                changes.append(("=", cluster, b""))
                continue
            if (previous_cluster := decode_number(reply[:8])) not in (cluster, number):
                changes.append(("-", previous_cluster, encode_number(number)))
                leaving.append((number, position, cluster))
            # Also where the entry names the cluster already: after a call that failed halfway the set may lack the
            # document, and to join again changes nothing.
            changes.append(("+", cluster, reply[8:]))
        counts = self._change_cluster_sets(changes, fences)
        self._name_clusters(leaving, fences, leaving=True)
        return [decode_counts(reply) for (change, _, _), reply in zip(changes, counts, strict=True) if change != "-"]

    def _name_clusters(
        self, clusters: Sequence[tuple[int, Position, int]], fences: Sequence[Fence], *, leaving: bool
    ) -> list[bytes]:
        """Write clusters into entries; with ``leaving`` also into those that name another cluster.

        Returns:
            For each document the cluster that its entry named before, the document's own number where it was in none,
            and the member for the set; empty where the entry is missing or has another position.
        """
        slots = [self._keys.entry_slot(number) for number, _, _ in clusters]
        arguments = [
            (encode_number(number), encode_position(position), encode_number(cluster))
            for number, position, cluster in clusters
        ]

        def prefixes(slot: int) -> list[Any]:
            return [self._keys.entries(slot), int(leaving)]

        return _in_order(slots, self._run(self._calls_by_slot("set_clusters", slots, fences, prefixes, arguments)))

    def leave_clusters(self, members: Sequence[tuple[int, int]], fences: Sequence[Fence]) -> None:
        self._change_cluster_sets([("-", cluster, encode_number(number)) for number, cluster in members], fences)

    def _change_cluster_sets(self, changes: Sequence[tuple[str, int, bytes]], fences: Sequence[Fence]) -> list[bytes]:
        """Change the sets of clusters, in order; return the counts of each cluster.

        A change is ``+``, ``-`` or ``=`` (only the counts), the number that names the cluster, and the member of the
        document (``+``) or its number (``-``).
        """
        slots = [self._keys.entry_slot(cluster) for _, cluster, _ in changes]
        arguments = [(change, encode_number(cluster), document) for change, cluster, document in changes]

        max_joined = CLUSTER_SIZE_CAP - 1  # without the first document

        def prefixes(slot: int) -> list[Any]:
            return [self._keys.cluster_sets(slot), self._keys.entries(slot), self._lifetime, max_joined]

        return _in_order(
            slots, self._run(self._calls_by_slot("change_cluster_sets", slots, fences, prefixes, arguments))
        )


def _in_order(slots: Sequence[int], replies: Sequence[Sequence[Any]]) -> list[Any]:
    """Return the reply for each element, from calls by slot, in the order of the elements."""
    groups = by_slot(slots).values()
    reply_of = {
        row: reply
        for rows, slot_replies in zip(groups, replies, strict=True)
        for row, reply in zip(rows, slot_replies, strict=True)
    }
    return [reply_of[row] for row in range(len(slots))]
