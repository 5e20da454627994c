"""The consumers that end_to_end measures beside the daemon, each a process of its own that runs until it is killed.

`datasketch` is a plain consumer with that library: kafka-python, word 3-shingles, MinHash, LSH in Redis, an alert for
each document with candidates, offsets committed once for each batch; as the documentation of the library shows, or
tuned. Nothing is verified, nothing expires, and a crash repeats or loses alerts. `bare` computes nothing:
it polls, sends one record for a number of records read, and commits in a transaction, with the client settings of the
daemon.
"""

import json
from collections.abc import Iterator
from typing import Any

from kafka import KafkaConsumer, KafkaProducer
from kafka.structs import OffsetAndMetadata

from benchmarks import load
from streamdedup.embedded import ManagedProcess
from streamdedup.kafka.options import KafkaOptions
from streamdedup.similarity.lsh import Banding

#: Records of one batch of the bare loop and of the tuned peers: the default of `kafka.batch_records`.
BATCH_RECORDS = 2_000
#: Records of one batch of the peer as documented: the default of the client.
PLAIN_BATCH_RECORDS = 500
#: Printed when the consumer has partitions.
AT_WORK = "at work"
#: Longest wait for records, in milliseconds.
POLL_MS = 500
#: Records read for each record that the bare loop sends: about as many as Reuters gives alerts.
RECORDS_PER_ALERT = 40


def datasketch(kafka: str, topic: str, group: str, output: str, redis: str, way: str, bands: int, rows: int) -> None:
    """Consume with datasketch, in one of ``peers.WAYS``."""
    from benchmarks import peers  # noqa: PLC0415  the bare loop needs no datasketch

    plain = way == peers.PLAIN
    index = peers.redis_index(redis, Banding(bands, rows), plain=plain)
    step, sign = peers.WAYS[way], peers.sign_plainly if plain else peers.sign
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=kafka,
        group_id=group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        max_poll_records=PLAIN_BATCH_RECORDS if plain else BATCH_RECORDS,
    )
    producer = KafkaProducer(bootstrap_servers=kafka, linger_ms=5)
    for records in batches(consumer):
        documents = [json.loads(record.value) for record in records]
        ids = [document["id"] for document in documents]
        matches = step(index, ids, sign(document["text"] for document in documents))
        for document_id, others in zip(ids, matches, strict=True):
            if others:
                value = json.dumps({"id": document_id, "matches": others}).encode()
                producer.send(output, key=document_id.encode(), value=value)
        producer.flush()
        consumer.commit()


def bare(kafka: str, topic: str, group: str, output: str, *, copies: bool = False) -> None:
    """Consume, produce and commit; ``copies`` forwards the records that benchmarks.latency awaits."""
    options = KafkaOptions(
        bootstrap_servers=kafka,
        group_id=group,
        topics=(topic,),
        transactional_id=group,
        max_poll_records=BATCH_RECORDS,
    )
    consumer = KafkaConsumer(topic, **options.consumer())
    producer = KafkaProducer(**options.producer())
    producer.init_transactions()
    for records in batches(consumer):
        producer.begin_transaction()
        awaited = (record for record in records if load.is_awaited(record.key))
        for record in awaited if copies else records[::RECORDS_PER_ALERT]:
            producer.send(output, key=record.key, value=record.value)
        ends = {partition: consumer.position(partition) for partition in consumer.assignment()}
        offsets = {partition: OffsetAndMetadata(offset, "", -1) for partition, offset in ends.items()}
        producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
        producer.commit_transaction()


def is_at_work(process: ManagedProcess) -> bool:
    """Tell whether a consumer of this module has partitions to read."""
    return AT_WORK in process.log_path.read_text(encoding="utf-8")


def batches(consumer: Any) -> Iterator[list[Any]]:
    """Yield the records of each poll that brings some, for ever."""
    announced = False
    while True:
        polled = consumer.poll(timeout_ms=POLL_MS)
        if not announced and consumer.assignment():
            print(AT_WORK, flush=True)
            announced = True
        if polled:
            yield [record for records in polled.values() for record in records]
