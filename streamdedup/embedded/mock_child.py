"""The process of ``MockBroker``: the in-memory broker of librdkafka, running until it is killed.

A script, ``python -P mock_child.py ADDRESS_FILE [TOPIC=PARTITIONS...]``, which writes the address of the broker to the
file when the broker is ready. librdkafka, the library inside the confluent-kafka package, exports the functions of the
broker (``rdkafka_mock.h``), but has no Python interface to them.
"""

import ctypes
import importlib
import signal
import sys
from pathlib import Path

#: ``RD_KAFKA_PRODUCER`` of rdkafka.h: the broker belongs to a client, which may be a producer.
PRODUCER = 0
#: Milliseconds for which a new group waits for further members. After the default of librdkafka, 3000, the answer to a
#: join would arrive just as a poll ends; kafka-python would lose it, join again, and wait for the session timeout.
REBALANCE_DELAY_MS = 0
#: Bytes for the library's error texts.
ERROR_BYTES = 512


def _load_library() -> ctypes.CDLL:
    """Return librdkafka with the types of the used functions."""
    library = ctypes.CDLL(importlib.import_module("confluent_kafka.cimpl").__file__)  # the module that contains it
    text, handle = ctypes.c_char_p, ctypes.c_void_p
    library.rd_kafka_conf_new.restype = handle
    library.rd_kafka_conf_set.argtypes = [handle, text, text, text, ctypes.c_size_t]
    library.rd_kafka_new.argtypes = [ctypes.c_int, handle, text, ctypes.c_size_t]
    library.rd_kafka_new.restype = handle
    library.rd_kafka_handle_mock_cluster.argtypes = [handle]
    library.rd_kafka_handle_mock_cluster.restype = handle
    library.rd_kafka_mock_cluster_bootstraps.argtypes = [handle]
    library.rd_kafka_mock_cluster_bootstraps.restype = text
    library.rd_kafka_mock_group_initial_rebalance_delay_ms.argtypes = [handle, ctypes.c_int32]
    library.rd_kafka_mock_topic_create.argtypes = [handle, text, ctypes.c_int, ctypes.c_int]
    return library


def start_broker(topics: dict[str, int]) -> str:
    """Start the broker in this process and return its address; ``topics`` has the number of partitions by topic."""
    library = _load_library()
    error = ctypes.create_string_buffer(ERROR_BYTES)
    settings = library.rd_kafka_conf_new()
    if library.rd_kafka_conf_set(settings, b"test.mock.num.brokers", b"1", error, ERROR_BYTES):
        raise OSError(error.value.decode())
    client = library.rd_kafka_new(PRODUCER, settings, error, ERROR_BYTES)
    if not client:
        raise OSError(error.value.decode())
    cluster = library.rd_kafka_handle_mock_cluster(client)
    library.rd_kafka_mock_group_initial_rebalance_delay_ms(cluster, REBALANCE_DELAY_MS)  # returns nothing
    for topic, partition_count in topics.items():
        code = library.rd_kafka_mock_topic_create(cluster, topic.encode(), partition_count, 1)  # one replica
        if code:
            raise OSError(f"cannot create topic {topic} with {partition_count} partitions: librdkafka error {code}")
    return str(library.rd_kafka_mock_cluster_bootstraps(cluster).decode())


def main(arguments: list[str]) -> None:
    address_file = Path(arguments[0])
    topics = {name: int(count) for name, _, count in (argument.partition("=") for argument in arguments[1:])}
    address = start_broker(topics)
    # Renamed when complete, because ``MockBroker`` may read the file at any moment.
    unfinished = address_file.with_suffix(".new")
    unfinished.write_text(address, encoding="ascii")
    unfinished.rename(address_file)
    while True:
        signal.pause()


if __name__ == "__main__":
    main(sys.argv[1:])
