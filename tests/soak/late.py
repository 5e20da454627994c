"""A stream that is always late, beside a partition that never has a record: how much is listed for backlog expiry."""

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass

import redis
from kafka import KafkaProducer

from tests.daemons import DEADLINE_S, Daemon, Installation
from tests.soak.stream import endless

#: Lifetimes that the stream lasts.
LIFETIMES = 33
#: Share of a lifetime by which each record is late; those of more than a sixteenth are listed.
LATE_SHARE = 0.25
#: Looks at Redis in a lifetime.
_LOOKS = 4


@dataclass(frozen=True, slots=True)
class Held:
    """What Redis holds at one moment.

    Attributes:
        lifetimes: Lifetimes since the beginning.
        alive_count: Index entries.
        listed_count: Documents in the lists for backlog expiry.
    """

    lifetimes: float
    alive_count: int
    listed_count: int


def held_while_late(
    installation: Installation,
    daemon: Daemon,
    client: "redis.Redis",
    lifetime_s: float,
    *,
    rate: float,
    lifetimes: float = LIFETIMES,
    seed: int = 1,
) -> Iterator[Held]:
    """Send records late to the first partition, and look at Redis every quarter of a lifetime.

    Args:
        installation: Where to; its topic has two partitions.
        daemon: Reads it.
        client: Of Redis, empty but for the index.
        lifetime_s: Time to live of index entries, in seconds.
        rate: Documents a second.
        lifetimes: How long to send, in lifetimes.
        seed: Of the documents.

    Yields:
        What Redis holds.
    """
    documents = endless(seed)
    looks_count = round(lifetimes * _LOOKS)
    with contextlib.closing(KafkaProducer(bootstrap_servers=installation.kafka.split(","), linger_ms=5)) as producer:
        began, sent_count = time.monotonic(), 0
        for look in range(1, looks_count + 1):
            while (passed_s := time.monotonic() - began) < look * lifetime_s / _LOOKS:
                daemon.alive_or_fail()
                time_ms = round((time.time() - LATE_SHARE * lifetime_s) * 1000)
                due = round(passed_s * rate) - sent_count
                for _, (key, value) in zip(range(due), documents, strict=False):
                    producer.send(installation.topic, key=key, value=value, partition=0, timestamp_ms=time_ms)
                producer.flush(DEADLINE_S)
                sent_count += due
                time.sleep(0.05)  # the rate of the stream
            keys = [(key.partition(b"}")[2][:1], key) for key in client.scan_iter(count=10_000)]
            listed = sum(client.llen(key) for kind, key in keys if kind == b"l")
            yield Held(passed_s / lifetime_s, sum(kind == b"r" for kind, _ in keys), listed)
