"""The servers and processes that a stream of documents needs, from the measured costs of a document on one machine.

All rates are those of the busiest hour, R = documents a day / 86,400 x peak. With t the time of a document in a stage,
in microseconds, and a load of at most ``LOAD``:

    daemons      = R (Kafka client + decode + prepare + index + publish + Redis) / 10^6 / LOAD
    masters      = least m with  f(m) (R Redis + L look-up) / 10^6 <= LOAD  and  f(m) memory <= MEMORY_FILL x server
    replicas     = L (HTTP + look-up + Redis) / 10^6 / LOAD,    L look-ups a second

A daemon waits while Redis works for it, so the time of Redis is counted for both. f(m) is the share of the slots of the
index on the fullest of m masters, from the real key names. More masters need more slots, and each slot costs a script
call for each chunk of documents, so the times of index and Redis grow with the number of masters. Every number grows,
or stays, with the documents and the retention.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

import numpy as np

from streamdedup.index.redis.buckets import LAYOUTS
from streamdedup.index.redis.keys import fullest_share
from streamdedup.index.redis.pairs import CLAIM_LIFETIMES
from streamdedup.tuning.machine import LayoutCosts, Machine
from streamdedup.tuning.memory import Contents, Costs

DAY_S: Final = 86_400.0
#: Greatest load of a process in the busiest hour, as a share of its speed; the rest is for backlogs.
LOAD: Final = 0.5
#: Greatest share of a server's memory that the index fills; the rest is for buffers of replicas, fragmentation, and
#: pages that a snapshot copies.
MEMORY_FILL: Final = 0.6
#: Copies of each partition.
COPIES: Final = 3
#: Partitions for each daemon, so that the number of daemons can be raised without new partitions.
PARTITIONS_PER_DAEMON: Final = 4
#: Greatest rate of a partition, in bytes a second: copied and read again within a tenth of common disks and networks.
PARTITION_BYTES_PER_S: Final = 5e6
#: Slots of the index for each master: the fewer, the fuller the fullest one.
SLOTS_PER_MASTER: Final = 12
#: Most masters of one Redis Cluster, as its specification recommends; and its hash slots.
MOST_MASTERS: Final = 1_000
HASH_SLOTS: Final = 16_384
#: Most slots for each band; the bound of ``redis.shards``.
MOST_SHARDS: Final = 4_096
#: Documents of a chunk, which the index stage takes at once.
CHUNK_DOCUMENTS: Final = 1_000
#: Processor time of the Kafka client for a record that is polled and sent, in microseconds: 7 to 9 in runs of the bare
#: loop of docs/performance.md.
KAFKA_CLIENT_US: Final = 9.0
#: Processor time of the service for a request without the look-up itself: HTTP, JSON, hand-over of threads. Measured
#: with one request at a time, as the look-up; concurrent requests are answered together and cost less.
HTTP_US: Final = 600.0
#: Assumed dead letters: share of the records, days for which they are stored, bytes beyond those of the record.
DEAD_LETTER_SHARE: Final = 0.001
DEAD_LETTER_DAYS: Final = 365.0
DEAD_LETTER_BYTES: Final = 700.0

#: Numbers of masters to choose from: all up to 200, then in steps of about one percent.
_MASTERS: Final = (*range(1, 200), *(round(200 * 1.01**step) for step in range(443)))

Layout = Literal["sets", "packed"]


@dataclass(frozen=True, slots=True)
class Demand:
    """A stream of documents, and the look-ups beside it.

    Attributes:
        documents_per_day: Documents a day.
        retention_s: Retention in seconds.
        retention_slack_s: Retention slack in seconds.
        document_bytes: Bytes of a record, mean.
        alerts_share: Alerts for each document.
        lookups_per_s: Look-ups over HTTP in the busiest hour.
        peak: Documents of the busiest hour, divided by those of a mean hour.
        server_bytes: Memory of one Redis server.
    """

    documents_per_day: float
    retention_s: float
    retention_slack_s: float
    document_bytes: float
    alerts_share: float
    lookups_per_s: float
    peak: float
    server_bytes: float

    @property
    def documents_per_s(self) -> float:
        """Documents a second in the busiest hour."""
        return self.documents_per_day / DAY_S * self.peak

    @property
    def days(self) -> float:
        """Days for which a document is stored."""
        return (self.retention_s + self.retention_slack_s) / DAY_S

    @property
    def documents_kept(self) -> float:
        """Documents in the index in the steady state."""
        return self.documents_per_day * self.days


class StageTime(NamedTuple):
    """Time of a stage for a document, in microseconds, and where the number comes from."""

    name: str
    us: float
    origin: str


@dataclass(frozen=True, slots=True)
class Masters:
    """Redis servers.

    Attributes:
        count: Number of masters.
        shards: Slots for each band: ``redis.shards``.
        share: Share of the index on the fullest master.
        limit: Resource that decides on the number.
    """

    count: int
    shards: int
    share: float
    limit: Literal["memory", "processor"]


@dataclass(frozen=True, slots=True)
class LayoutPlan:
    """Processes and servers with one bucket layout.

    Attributes:
        memory_bytes: Memory of the index.
        masters: Redis servers.
        stages: Stages of a document: those of the daemon, then Redis.
        daemons: Number of daemons.
        partitions: Partitions of the input topics together.
    """

    memory_bytes: float
    masters: Masters
    stages: tuple[StageTime, ...]
    daemons: int
    partitions: int

    @property
    def document_us(self) -> float:
        """Time of a document in a daemon, waiting for Redis included, in microseconds."""
        return sum(stage.us for stage in self.stages)

    @property
    def limiting_stage(self) -> StageTime:
        """Stage that takes the most time."""
        return max(self.stages, key=lambda stage: stage.us)


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that a demand needs.

    Attributes:
        demand: The demand.
        layouts: Processes and servers by bucket layout.
        replicas: Processes of ``streamdedup serve``; 0 without look-ups.
        input_bytes_per_s: From Kafka to the daemons, in the busiest hour.
        alert_bytes_per_s: From the daemons to Kafka.
        copied_bytes_per_s: Between the brokers.
        redis_bytes_per_s: Between daemons and Redis, both directions, by bucket layout.
        input_topic_bytes: Size of the input topics, all copies.
        duplicates_topic_bytes: Size of the duplicates topic, all copies.
        dead_letter_topic_bytes: Size of the dead-letter topic, all copies.
    """

    demand: Demand
    layouts: Mapping[Layout, LayoutPlan]
    replicas: int
    input_bytes_per_s: float
    alert_bytes_per_s: float
    copied_bytes_per_s: float
    redis_bytes_per_s: Mapping[Layout, float]
    input_topic_bytes: float
    duplicates_topic_bytes: float
    dead_letter_topic_bytes: float


def plan_of(machine: Machine, demand: Demand) -> Plan:
    """Return the servers and processes for a demand."""
    sample, stages, rate = machine.sample, machine.stages, demand.documents_per_s
    alerts = demand.alerts_share * sample.alert_bytes
    lookup_us = HTTP_US + stages.lookup_us + stages.lookup_redis_us
    stored = demand.documents_kept * COPIES
    return Plan(
        demand=demand,
        layouts={layout: _layout_plan(machine, demand, layout) for layout in machine.layouts},
        replicas=math.ceil(demand.lookups_per_s * lookup_us / 1e6 / LOAD),
        input_bytes_per_s=rate * demand.document_bytes,
        alert_bytes_per_s=rate * alerts,
        copied_bytes_per_s=rate * (demand.document_bytes + alerts) * (COPIES - 1),
        redis_bytes_per_s={
            layout: rate * (costs.sent_bytes + costs.received_bytes) for layout, costs in machine.layouts.items()
        },
        input_topic_bytes=stored * demand.document_bytes,
        duplicates_topic_bytes=stored * alerts,
        dead_letter_topic_bytes=demand.documents_per_day
        * DEAD_LETTER_DAYS
        * DEAD_LETTER_SHARE
        * (demand.document_bytes + DEAD_LETTER_BYTES)
        * COPIES,
    )


def _layout_plan(machine: Machine, demand: Demand, layout: Layout) -> LayoutPlan:
    costs, rate = machine.layouts[layout], demand.documents_per_s
    masters = _masters_of(machine, demand, layout)
    memory_bytes = index_bytes(machine, demand, layout, masters.shards)
    index_us, redis_us = _index_times(machine, costs, masters.shards)
    measured, stages = "measured", machine.stages
    times = (
        StageTime("Kafka client", KAFKA_CLIENT_US, "a bare loop on another machine: docs/performance.md"),
        StageTime("decode", stages.decode_us, measured),
        StageTime("prepare", stages.prepare_us, measured),
        StageTime("index", index_us, measured),
        StageTime("publish", stages.alert_us * demand.alerts_share, f"measured, {stages.alert_us:.1f} µs for an alert"),
        StageTime("Redis", redis_us, f"measured on one core of {machine.versions.get('server', 'the server')}"),
    )
    daemons = max(1, math.ceil(rate * sum(stage.us for stage in times) / 1e6 / LOAD))
    by_bytes = math.ceil(rate * demand.document_bytes / PARTITION_BYTES_PER_S)
    return LayoutPlan(memory_bytes, masters, times, daemons, max(PARTITIONS_PER_DAEMON * daemons, by_bytes))


def index_bytes(machine: Machine, demand: Demand, layout: Layout, shards: int = 1) -> float:
    """Return the memory of the index in the steady state, with so many slots for each band."""
    sample, costs, kept = machine.sample, machine.layouts[layout], demand.documents_kept
    contents = Contents(
        entries=kept,
        # The part that does not grow, such as the least number of bucket pages, is in each slot.
        bands=machine.profile.bands * shards,
        buckets=kept * min(sample.buckets, sample.members),
        members=kept * sample.members,
        claims=kept * demand.alerts_share * sample.matches * CLAIM_LIFETIMES,
    )
    return Costs(np.array(costs.fixed_bytes), np.array(costs.each_bytes)).total(contents, LAYOUTS[layout].lifetimes)


def _index_times(machine: Machine, costs: LayoutCosts, shards: int) -> tuple[float, float]:
    """Return the processor times of daemon and Redis for a document, with so many slots for each band.

    Of the slots of a band, a chunk of n documents uses s (1 - (1 - 1/s)^n) in the mean; the first is in the times
    measured with one slot.
    """
    used = shards * -math.expm1(CHUNK_DOCUMENTS * math.log1p(-1 / shards)) if shards > 1 else 1.0
    further = machine.profile.bands * (used - 1) / CHUNK_DOCUMENTS
    return costs.index_us + further * costs.slot_us, costs.redis_us + further * costs.slot_redis_us


def _masters_of(machine: Machine, demand: Demand, layout: Layout) -> Masters:
    """Return the fewest masters of which the fullest one has room and time."""
    profile, costs = machine.profile, machine.layouts[layout]
    lookups_us = demand.lookups_per_s * machine.stages.lookup_redis_us

    def by_memory(shards: int) -> float:
        return index_bytes(machine, demand, layout, shards) / (MEMORY_FILL * demand.server_bytes)

    def by_time(shards: int) -> float:
        redis_us = _index_times(machine, costs, shards)[1]
        return (demand.documents_per_s * redis_us + lookups_us) / 1e6 / LOAD

    def masters(count: int, shards: int, share: float) -> Masters:
        return Masters(count, shards, share, "memory" if by_memory(shards) > by_time(shards) else "processor")

    least = max(by_memory(1), by_time(1))
    for count in _MASTERS:
        if count < least:
            continue
        shards = shards_of(profile.bands, count)
        share = fullest_share(profile.namespace, profile.bands, shards, count)
        if share * max(by_memory(shards), by_time(shards)) <= 1:
            return masters(count, shards, share)
    # No cluster is so large; the number shows how far the demand is from one.
    shards = shards_of(profile.bands, HASH_SLOTS)
    count = max(HASH_SLOTS + 1, math.ceil(max(by_memory(shards), by_time(shards))))
    return masters(count, shards, 1 / count)


def shards_of(bands: int, masters: int) -> int:
    """Return the slots for each band: 1 for a single server, else a power of two with enough slots for each master."""
    if masters == 1:
        return 1
    return min(MOST_SHARDS, 1 << math.ceil(math.log2(max(1.0, SLOTS_PER_MASTER * masters / bands))))
