"""A backlog of ten windows, read at full speed: how much of it is in Redis at the end."""

import contextlib
import time
from collections.abc import Iterator
from itertools import islice

import redis
from kafka import KafkaProducer

from tests.daemons import DEADLINE_S, Daemon, Installation
from tests.servers import wait_until
from tests.soak.daemon import SLACK_SHARE
from tests.soak.stream import endless

#: Windows that the backlog covers, and after how many it is looked at first.
WINDOWS, FIRST = 10, 2
#: Documents of a window, and partitions that they are in: what a client fetches of one at a time, two megabytes, is how
#: far one may lag behind another, and should be little beside a window. And the index has far fewer keys than a power
#: of two, where Redis doubles its table of keys.
DOCUMENTS, PARTITIONS = 14_000, 2
#: ``batch_records`` of the daemon. The watermark of a partition is the earliest time of its last batch, so that a large
#: batch keeps documents beyond their lifetime.
BATCH_RECORDS = 250
#: Most index entries that are left when everything expired is evicted: those of a lifetime, and of the time of a batch.
_SETTLED = round((1 + SLACK_SHARE) * DOCUMENTS) + 2 * PARTITIONS * BATCH_RECORDS
#: Seconds that the daemon may take for all of them.
_CATCH_UP_S = 600.0


def bytes_after_windows(
    installation: Installation,
    daemon: Daemon,
    client: "redis.Redis",
    window_s: float,
    *,
    seed: int,
) -> Iterator[tuple[int, int]]:
    """Send a backlog in two parts, and look at Redis when each is indexed and its expired documents are evicted.

    Args:
        installation: Where to.
        daemon: Reads it.
        client: Of Redis, empty but for the index.
        window_s: The window in seconds.
        seed: Of the documents.

    Yields:
        How many windows were read, and the bytes that Redis then holds beyond those it held before.
    """
    before = int(client.info("memory")["used_memory"])
    # The last of them is as old as the clock says, the first ten windows older.
    first_ms = time.time_ns() // 1_000_000 - round(WINDOWS * window_s * 1_000)
    step_ms = window_s * 1_000 / DOCUMENTS
    documents = enumerate(endless(seed))
    sent_count = 0
    for windows in (FIRST, WINDOWS):
        with contextlib.closing(
            KafkaProducer(bootstrap_servers=installation.kafka.split(","), linger_ms=5)
        ) as producer:
            part = islice(documents, windows * DOCUMENTS - sent_count)
            futures = [
                producer.send(installation.topic, key=key, value=value, timestamp_ms=first_ms + round(at * step_ms))
                for at, (key, value) in part
            ]
            producer.flush(DEADLINE_S)
            for future in futures:
                future.get(0)
        sent_count += len(futures)
        wait_until(
            lambda count=sent_count: daemon.alive_or_fail() and daemon.metric("streamdedup_records_total") >= count,
            _CATCH_UP_S,
            f"{sent_count} records consumed",
        )
        wait_until(
            lambda: daemon.alive_or_fail() and _entries(client) <= _SETTLED,
            what=f"an index of at most {_SETTLED} documents",
        )
        yield windows, int(client.info("memory")["used_memory"]) - before


def _entries(client: "redis.Redis") -> int:
    """Count the index entries."""
    return sum(key.partition(b"}")[2].startswith(b"r") for key in client.scan_iter(count=10_000))
