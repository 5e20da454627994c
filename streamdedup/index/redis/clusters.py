"""Clusters in Redis, a part of ``RedisIndex``.

An index entry names the cluster of its document. A cluster set is a string (``lua/_cluster_sets.lua``) in the slot of
the number of its first document. The specification is ``index.cluster_sets`` with ``index.memory``.
"""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from streamdedup.index.entries import decode_counts, decode_number, encode_number, encode_position
from streamdedup.index.redis.fenced import RedisPart
from streamdedup.index.values import CLUSTER_SIZE_CAP, ClusterCounts, Fence
from streamdedup.position import Position


class _SetChange(NamedTuple):
    """A change of a cluster set: ``+`` adds a member, ``-`` removes a document number, ``=`` only reads the counts."""

    sign: Literal["+", "-", "="]
    cluster: int
    document: bytes


class RedisClusters(RedisPart):
    def set_clusters(
        self, clusters: Sequence[tuple[int, Position, int]], fences: Sequence[Fence]
    ) -> list[ClusterCounts]:
        """Store the clusters in three runs, so that a call that failed halfway can be repeated.

        1. Write the cluster into each entry that names none; read which cluster each other entry names.
        2. Update the cluster sets. Until this is done, the entry of a document that changes its cluster names the
           cluster whose set the document leaves.
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
                # A document that names none may have expired and come again: its earlier version is in the set.
                left = cluster if previous_cluster == number else previous_cluster
                changes.append(_SetChange("-", left, encode_number(number)))
            if previous_cluster not in (number, cluster):
                moving.append((number, position, cluster))
            # Also where the entry names the cluster already: after a call that failed halfway the set may lack the
            # document, and to join again changes nothing.
            changes.append(_SetChange("+", cluster, member))
        counts = self._change_cluster_sets(changes, fences)
        self._name_clusters(moving, fences, replace_other=True)
        # One "+" or "=" for each of ``clusters``.
        return [decode_counts(reply) for change, reply in zip(changes, counts, strict=True) if change.sign != "-"]

    def _name_clusters(
        self, clusters: Sequence[tuple[int, Position, int]], fences: Sequence[Fence], *, replace_other: bool
    ) -> list[bytes]:
        """Write clusters into entries; with ``replace_other`` also into those that name another cluster.

        Returns for each document 8 bytes, which are the cluster that the entry named before, or the document's own
        number, and the member for the set; empty where the entry is missing or has another position.
        """
        slots = [self._keys.entry_slot(number) for number, _, _ in clusters]
        arguments = [
            (encode_number(number), encode_position(position), encode_number(cluster))
            for number, position, cluster in clusters
        ]

        def first_arguments(slot: int) -> list[Any]:
            return [self._keys.entries_prefix(slot), int(replace_other)]

        return self._run_by_slot("set_clusters", slots, fences, first_arguments, arguments)

    def leave_clusters(self, members: Sequence[tuple[int, int]], fences: Sequence[Fence]) -> None:
        changes = [_SetChange("-", cluster, encode_number(number)) for number, cluster in members]
        self._change_cluster_sets(changes, fences)

    def _change_cluster_sets(self, changes: Sequence[_SetChange], fences: Sequence[Fence]) -> list[bytes]:
        """Change the sets of clusters, in order; return for each change the counts of its cluster after all changes."""
        slots = [self._keys.entry_slot(change.cluster) for change in changes]
        arguments = [(sign, encode_number(cluster), document) for sign, cluster, document in changes]
        most_joined = CLUSTER_SIZE_CAP - 1  # without the first document

        def first_arguments(slot: int) -> list[Any]:
            return [
                self._keys.cluster_sets_prefix(slot),
                self._keys.entries_prefix(slot),
                self.options.lifetime_ms,
                most_joined,
            ]

        return self._run_by_slot("change_cluster_sets", slots, fences, first_arguments, arguments)
