"""Index entries and clusters in Redis, a part of ``RedisIndex``: rules 1, 3 and 9 of ``index.contract``.

An entry is a string (``index.entries``) in the slot of its document number, and names the cluster of the document. A
cluster set is a string (``lua/_cluster_sets.lua``) in the slot of its first document.
"""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

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
from streamdedup.index.redis.errors import damage_translated
from streamdedup.index.redis.fenced import RedisPart
from streamdedup.index.redis.keys import by_slot
from streamdedup.index.values import CLUSTER_SIZE_CAP, ClusterCounts, Fences, NamedCluster, marker_lifetime
from streamdedup.position import Position


class _SetChange(NamedTuple):
    """A change of a cluster set: ``+`` adds a member, ``-`` removes a document number, ``=`` only reads the counts."""

    sign: Literal["+", "-", "="]
    cluster: int
    document: bytes


class RedisEntries(RedisPart):
    encode_entries = staticmethod(encode_entries)

    def insert_entries(
        self, entries: Sequence[IndexEntry], fences: Fences, encoded: Sequence[bytes] | None = None
    ) -> list[InsertResult]:
        results = [InsertResult(InsertState.CREATED)] * len(entries)
        encoded = encode_entries(entries) if encoded is None else encoded
        lifetimes = [self.options.lifetime_ms]
        groups, replies = self._call_with_entries("insert_entries", lifetimes, entries, encoded, fences)
        # A reply has a state byte for each entry; then for each state in ``RETURNING_STATES`` the row in the call, from
        # 1 on, and the stored entry. b"\0\1\0", 2, stored: of three entries the second is to replace the stored one.
        for rows, (states, *returned) in zip(groups, replies, strict=True):
            if set(states) == {InsertState.CREATED}:
                continue
            returned_rows = [rows[row_from_1 - 1] for row_from_1 in returned[::2]]
            with damage_translated():
                previous = decode_entries([entries[row].number for row in returned_rows], returned[1::2])
            previous_of = dict(zip(returned_rows, previous, strict=True))
            for row, state in zip(rows, states, strict=True):
                if state != InsertState.CREATED:
                    results[row] = InsertResult(InsertState(state), previous_of.get(row))
        return results

    def replace_entries(self, entries: Sequence[IndexEntry], fences: Fences) -> None:
        if self._servers.mode == "cluster":
            self._store_call_numbers(entries, fences)
        lifetimes = [self.options.lifetime_ms, marker_lifetime(self.options.lifetime_ms)]
        self._call_with_entries("replace_entries", lifetimes, entries, encode_entries(entries), fences)

    def _store_call_numbers(self, entries: Sequence[IndexEntry], fences: Fences) -> None:
        """Store a call number in each slot of the entries, by a removal of no documents, before they are replaced.

        The entries rely on removals from buckets in other slots (rule 9), which have call numbers of their own (rule
        10). A master of both slots that loses removals in a failover loses this later call too, and refuses the
        entries. A removal that is lost on another master leaves a number in its bucket, a hint that expires.
        """
        removal = f"remove_{self.options.bucket_layout}"
        encoded_fences = self._encode_fences(fences)
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
        fences: Fences,
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

    def set_clusters(self, clusters: Sequence[NamedCluster], fences: Fences) -> list[ClusterCounts]:
        """Do as the contract says in three runs, so that a call that failed halfway can be repeated.

        1. Write the cluster into each entry that names none; read which cluster each other entry names.
        2. Change the cluster sets. Until then the entry of a document that changes its cluster names the cluster whose
           set the document leaves.
        3. Write the clusters into the entries that name another one.
        """
        joining = [(number, position, cluster) for number, position, cluster in clusters if cluster != number]
        replies = iter(self._name_clusters(joining, fences, replace_other=False))
        changes: list[_SetChange] = []
        moving: list[tuple[int, Position, int]] = []
        for number, position, cluster in clusters:
            reply = b"" if cluster == number else next(replies)
            if not reply:
                changes.append(_SetChange("=", cluster, b""))
                continue
            previous_cluster, member = decode_number(reply[:8]), reply[8:]
            if previous_cluster != cluster:
                # The set of the new cluster may have an earlier version of a document that expired and came again.
                left = cluster if previous_cluster == number else previous_cluster
                changes.append(_SetChange("-", left, encode_number(number)))
            if previous_cluster not in (number, cluster):
                moving.append((number, position, cluster))
            # Also if the entry names the cluster: after a call that failed halfway the set may lack the document.
            changes.append(_SetChange("+", cluster, member))
        counts = self._change_cluster_sets(changes, fences)
        self._name_clusters(moving, fences, replace_other=True)
        # One "+" or "=" for each of ``clusters``.
        return [decode_counts(reply) for change, reply in zip(changes, counts, strict=True) if change.sign != "-"]

    def _name_clusters(self, clusters: Sequence[NamedCluster], fences: Fences, *, replace_other: bool) -> list[bytes]:
        """Write clusters into entries; with ``replace_other`` also into those that name another cluster.

        Returns for each document the cluster that its entry named before, or its own number (8 bytes), and the member
        for the cluster set; nothing where the entry is missing or has another position.
        """
        slots = [self._keys.entry_slot(number) for number, _, _ in clusters]
        arguments = [
            (encode_number(number), encode_position(position), encode_number(cluster))
            for number, position, cluster in clusters
        ]

        def first_arguments(slot: int) -> list[Any]:
            return [self._keys.entries_prefix(slot), int(replace_other)]

        return self._run_by_slot("set_clusters", slots, fences, first_arguments, arguments)

    def leave_clusters(self, members: Sequence[tuple[int, int]], fences: Fences) -> None:
        changes = [_SetChange("-", cluster, encode_number(number)) for number, cluster in members]
        self._change_cluster_sets(changes, fences)

    def _change_cluster_sets(self, changes: Sequence[_SetChange], fences: Fences) -> list[bytes]:
        """Change cluster sets, in order; return for each change the counts of its cluster after all changes."""
        slots = [self._keys.entry_slot(change.cluster) for change in changes]
        arguments = [(sign, encode_number(cluster), document) for sign, cluster, document in changes]
        limits = [self.options.lifetime_ms, CLUSTER_SIZE_CAP - 1]  # documents beside the first one

        def first_arguments(slot: int) -> list[Any]:
            return [self._keys.cluster_sets_prefix(slot), self._keys.entries_prefix(slot), *limits]

        return self._run_by_slot("change_cluster_sets", slots, fences, first_arguments, arguments)
