"""Private servers of ``streamdedup demo`` (``cli.demo_servers``): on free ports, and ended with their parent process.

``RedisServer`` is a real Redis-compatible server. ``MockBroker`` is the in-memory broker of librdkafka, sufficient for
a demonstration only. No server here is for production. Tests have a real Kafka (``tests/support/kafka.py``).
"""

from streamdedup.embedded.mock_broker import MockBroker
from streamdedup.embedded.process import ManagedProcess, MissingToolError, ServerError
from streamdedup.embedded.redis import RedisServer, find_redis

__all__ = ["ManagedProcess", "MissingToolError", "MockBroker", "RedisServer", "ServerError", "find_redis"]
