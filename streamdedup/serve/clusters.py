"""The members of clusters, as far as the alerts topic tells.

The index knows the cluster of a document, and not the members of a cluster. One reader in one thread follows the alerts
topic while the service runs, from a bounded time back, and the members are kept in a bounded memory: each alert names
its document and the cluster that the document has joined. Everything but the calls of the reader runs in the event
loop.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final, NamedTuple, TypeVar

from streamdedup.detection.captions import read_caption
from streamdedup.errors import BrokerUnavailable, MessageError
from streamdedup.index.documents import IndexEntry
from streamdedup.kafka.protocols import Batch, Record
from streamdedup.kafka.reader import KafkaSpan
from streamdedup.serve.metrics import ServeMetrics
from streamdedup.serve.problems import OutageLog
from streamdedup.serve.schemas import ClusterBody, MemberBody
from streamdedup.wire import Alert, decode_alert, rfc_3339

T = TypeVar("T")

#: Most members of all clusters that are kept, about 60 MB.
MAX_MEMBERS: Final = 100_000
#: Most members of one cluster that are kept.
MAX_OF_CLUSTER: Final = 1_000
#: Longest wait for alerts in one call of the reader, in seconds.
_POLL_S: Final = 0.5
#: Pause before the topic is read again after a failure, in seconds.
_RETRY_S: Final = 10.0


class ClusterMember(NamedTuple):
    """A document of a cluster.

    Attributes:
        id: Document id.
        source: Source of the document; None where unknown.
        time_ms: Record time in milliseconds since the epoch.
        label: First words of the document; None where unknown.
    """

    id: str
    source: str | None
    time_ms: int
    label: str | None


class _Cluster:
    """A cluster in memory.

    Attributes:
        members: Documents that have joined, by id.
        alerted_at_ms: Time of the last alert.
        size: Cluster size that the last alert names; None where it names none.
        is_cut: Whether there were too many members.
    """

    def __init__(self) -> None:
        self.members: dict[str, ClusterMember] = {}
        self.alerted_at_ms = 0
        self.size: int | None = None
        self.is_cut = False


class ClusterMemory:
    """Remembers the members of clusters; those without alerts for the longest time are forgotten.

    Args:
        open_reader: Opens a reader of the alerts from a time on, in milliseconds since the epoch.
        lookback_ms: Age of the first alerts that are read, in milliseconds.
        metrics: Counts members.
        now_ms: The clock, in milliseconds since the epoch.
        max_members: Most members of all clusters.
    """

    def __init__(
        self,
        open_reader: Callable[[int], KafkaSpan],
        lookback_ms: int,
        metrics: ServeMetrics,
        now_ms: Callable[[], float],
        max_members: int = MAX_MEMBERS,
    ) -> None:
        self._open_reader = open_reader
        self._lookback_ms = lookback_ms
        self._metrics = metrics
        self._now_ms = now_ms
        self._max_members = max_members
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="clusters")
        self._clusters: OrderedDict[tuple[str, str], _Cluster] = OrderedDict()
        self._cluster_of: dict[tuple[str, str], str] = {}
        #: Alerts since this time are in memory; None while they are not read to the end.
        self._complete_since_ms: int | None = None
        #: Beginning and end of the time of which all alerts were read.
        self._read_since_ms = self._read_until_ms = 0
        self._outages = OutageLog("clusters")

    # Following the topic

    async def run(self) -> None:
        """Follow the alerts topic until cancelled."""
        while True:
            try:
                await self._follow()
            except Exception as error:  # noqa: BLE001  the topic is read again
                self._complete_since_ms = None
                self._outages.failed(error)
            await asyncio.sleep(_RETRY_S)

    async def _follow(self) -> None:
        """Follow the topic until it cannot be read.

        Raises:
            StreamdedupError: Kafka cannot be read, or the topic has new partitions.
        """
        since_ms = max(0, int(self._now_ms()) - self._lookback_ms)
        reader = await self._in_thread(lambda: self._open_reader(since_ms))
        try:
            if since_ms > self._read_until_ms:
                self._read_since_ms = since_ms
            while True:
                began_at_ms = int(self._now_ms())
                batch, has_caught_up = await self._in_thread(lambda: _next_batch(reader))
                for record in batch.records:
                    self._read(record)
                if has_caught_up:
                    self._complete_since_ms = self._read_since_ms
                    self._read_until_ms = began_at_ms
                    self._outages.succeeded()
        finally:
            self._thread.submit(reader.close)

    def _read(self, record: Record) -> None:
        with suppress(MessageError):  # counted by the streams of alerts
            self.add(decode_alert(record.value or b""))

    async def _in_thread(self, function: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, function)

    def close(self) -> None:
        """Wait for the call in progress and end the thread."""
        self._thread.shutdown(wait=True)

    # The memory

    def add(self, alert: Alert) -> None:
        """Remember the document of an alert as a member of its cluster, and of no other."""
        document, key = alert.document, (alert.profile, alert.cluster_id)
        before = self._cluster_of.get((alert.profile, document.id))
        if before is not None and before != alert.cluster_id:
            self._leave(alert, before)
        cluster = self._clusters.setdefault(key, _Cluster())
        self._clusters.move_to_end(key)
        if alert.detected_at_ms >= cluster.alerted_at_ms:
            cluster.alerted_at_ms, cluster.size = alert.detected_at_ms, alert.cluster_size
        if len(cluster.members) >= MAX_OF_CLUSTER and document.id not in cluster.members:
            cluster.is_cut = True
        else:
            cluster.members[document.id] = ClusterMember(
                document.id, document.source, document.time_ms, document.label or None
            )
            self._cluster_of[alert.profile, document.id] = alert.cluster_id
        while len(self._cluster_of) > self._max_members:
            self._forget()
        self._metrics.cluster_members.set(len(self._cluster_of))

    def _leave(self, alert: Alert, cluster_id: str) -> None:
        """Remove the document of an alert from a cluster; forget a cluster without members."""
        members = self._clusters[alert.profile, cluster_id].members
        del members[alert.document.id], self._cluster_of[alert.profile, alert.document.id]
        if not members:
            del self._clusters[alert.profile, cluster_id]

    def _forget(self) -> None:
        """Forget the cluster without alerts for the longest time; clusters as old as it are not complete any more."""
        (profile, _), cluster = self._clusters.popitem(last=False)
        for document_id in cluster.members:
            del self._cluster_of[profile, document_id]
        self._read_since_ms = max(self._read_since_ms, cluster.alerted_at_ms + 1)
        if self._complete_since_ms is not None:
            self._complete_since_ms = self._read_since_ms

    def members_of(self, profile: str, entry: IndexEntry, first: IndexEntry | None, label_bytes: int) -> ClusterBody:
        """Return the cluster of a document, with its members in the order of their record times.

        Deleted and expired documents are among them. The members are complete where all alerts since the first document
        are in memory.

        Args:
            profile: Name of the profile.
            entry: The document.
            first: First document of the cluster; None where it left the index.
            label_bytes: Most bytes in a label; 0 for no labels.
        """
        by_id = {entry.id: _member_of(entry, label_bytes)}
        complete, size = False, None
        if first is not None:
            by_id[first.id] = _member_of(first, label_bytes)
            cluster = self._clusters.get((profile, first.id)) or _Cluster()
            by_id |= cluster.members
            size = cluster.size
            since_ms = self._complete_since_ms
            complete = since_ms is not None and first.time_ms >= since_ms and not cluster.is_cut
        members = [
            MemberBody(member.id, member.source, rfc_3339(member.time_ms), member.label if label_bytes else None)
            for member in sorted(by_id.values(), key=lambda member: (member.time_ms, member.id))
        ]
        complete = complete and len(members) <= MAX_OF_CLUSTER
        return ClusterBody(None if first is None else first.id, members[:MAX_OF_CLUSTER], complete, size)


def _member_of(entry: IndexEntry, label_bytes: int) -> ClusterMember:
    caption = read_caption(entry.content.caption, label_bytes)
    return ClusterMember(entry.id, caption.source or None, entry.time_ms, caption.label or None)


def _next_batch(reader: KafkaSpan) -> tuple[Batch, bool]:
    """Return the next records, and whether all were returned that the topic held when the reader was opened.

    Raises:
        StreamdedupError: Kafka cannot be read, or the topic has new partitions.
    """
    batch = reader.poll(_POLL_S)
    if reader.has_new_partitions():
        raise BrokerUnavailable("the alerts topic has new partitions; it is read again")
    positions = reader.positions()
    return batch, all(positions[partition] >= end for partition, end in reader.ends.items())
