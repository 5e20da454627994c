"""Private servers for the demo and the tests: on free ports of this machine, gone with the process that started them.

``RedisServer`` is a real Redis-compatible server, ``KafkaServer`` a real Apache Kafka (needs Java and Maven),
``MockBroker`` the in-memory broker inside librdkafka, good for a demonstration and for nothing else. Nothing here is
for production, and nothing of the package but its errors is imported here.
"""

from streamdedup.embedded.kafka import KafkaBroker, KafkaServer, count_brokers, fetch_kafka
from streamdedup.embedded.mock_broker import MOCK_API_VERSION, MockBroker
from streamdedup.embedded.ports import free_ports
from streamdedup.embedded.process import ManagedProcess, MissingToolError, ServerError
from streamdedup.embedded.redis import RedisServer, find_redis

__all__ = [
    "MOCK_API_VERSION",
    "KafkaBroker",
    "KafkaServer",
    "ManagedProcess",
    "MissingToolError",
    "MockBroker",
    "RedisServer",
    "ServerError",
    "count_brokers",
    "fetch_kafka",
    "find_redis",
    "free_ports",
]
