"""The two ends of a latency measurement, each a process of its own: a producer with a schedule, and a subscriber.

The producer is an open loop: record n is due at ``begin + n / rate``, whether or not earlier records have been
processed, so that a stalled consumer is measured with every record that it delays. The subscriber reads committed
records only and notes the time at which each arrives.
"""

import gc
import time
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

import msgspec
from kafka import KafkaConsumer, KafkaProducer
from kafka.structs import TopicPartition

#: Beginning of the key of a document whose alert is awaited.
AWAITED = b"copy-"
#: Printed when a process is connected.
READY = "ready"
#: From that moment to the first record of the producer, in seconds.
HEAD_START_S = 1.0
#: Shortest sleep of the producer, in seconds: at high rates a few records are sent at each waking.
LEAST_SLEEP_S = 0.001
#: The subscriber ends when nothing has arrived for so long, in seconds.
SILENCE_S = 15.0
#: Longest wait for the first record of all, in seconds.
PATIENCE_S = 120.0


def write_documents(path: Path, documents: Iterable[tuple[str, str]]) -> None:
    """Write documents (id, text) for the producer: key, tab and value, one a line."""
    with path.open("wb") as file:
        for document_id, text in documents:
            file.write(b"%s\t%s\n" % (document_id.encode(), msgspec.json.encode({"id": document_id, "text": text})))


def produce(kafka: str, topic: str, documents: str, rate: float, linger_ms: int) -> dict[str, object]:
    """Send each document at its time.

    Returns:
        ``begin_s``, the Unix time of the first record; ``late_ms``, how late each was handed to the client;
        ``cpu_s``, the processor time used since the connection was made.
    """
    gc.disable()  # a pause of this process would be counted as one of the daemon
    lines = Path(documents).read_bytes().splitlines()
    late_ms = []
    with closing(KafkaProducer(bootstrap_servers=kafka, linger_ms=linger_ms)) as producer:
        producer.partitions_for(topic)
        print(READY, flush=True)
        begin_s, cpu_s = time.time() + HEAD_START_S, time.process_time()
        number = 0
        while number < len(lines):
            due_s = begin_s + number / rate
            now_s = time.time()
            if now_s < due_s:
                time.sleep(max(LEAST_SLEEP_S, due_s - now_s))
                continue
            key, _, value = lines[number].partition(b"\t")
            producer.send(topic, key=key, value=value)
            late_ms.append(1000 * (now_s - due_s))
            number += 1
        producer.flush()
    return {"begin_s": begin_s, "late_ms": late_ms, "cpu_s": time.process_time() - cpu_s}


def is_awaited(key: bytes) -> bool:
    """Tell whether an alert of the document with this key is awaited."""
    return key.startswith(AWAITED)


def subscribe(kafka: str, topic: str, count: int) -> dict[str, object]:
    """Read until so many awaited keys have arrived, or nothing has arrived for a while.

    Returns:
        ``arrived_s``, by key the Unix time at which its first record arrived; ``cpu_s``, as above.
    """
    gc.disable()  # as above
    arrived_s: dict[str, float] = {}
    options = {"isolation_level": "read_committed", "enable_auto_commit": False, "group_id": None}
    with closing(KafkaConsumer(bootstrap_servers=kafka, **options)) as consumer:
        partitions = [TopicPartition(topic, number) for number in consumer.partitions_for_topic(topic)]
        consumer.assign(partitions)
        consumer.seek_to_beginning(*partitions)
        for partition in partitions:
            consumer.position(partition)
        print(READY, flush=True)
        end_s, cpu_s = time.time() + PATIENCE_S, time.process_time()
        while len(arrived_s) < count and time.time() < end_s:
            polled = consumer.poll(timeout_ms=200)
            now_s = time.time()
            for records in polled.values():
                for record in records:
                    if is_awaited(record.key):
                        arrived_s.setdefault(record.key.decode(), now_s)
                end_s = now_s + SILENCE_S
    return {"arrived_s": arrived_s, "cpu_s": time.process_time() - cpu_s}
