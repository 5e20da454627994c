"""How far back a rebuild reads, with a rebuilder made of settings as the daemon makes it."""

import time

from streamdedup.cli import assembly
from streamdedup.detection.model import document_number
from streamdedup.index.redis.servers import OneServer
from streamdedup.indexes import redis_backend
from streamdedup.kafka.protocols import CommittedOffset
from streamdedup.position import Partition
from streamdedup.settings import Settings
from tests.simulation.broker import MemoryBroker
from tests.simulation.transport import MemoryHistory

MINUTE_MS = 60_000
RETENTION_MS, SLACK_MS = 60 * MINUTE_MS, 30 * MINUTE_MS


def test_a_rebuild_reads_the_records_of_the_retention_and_of_its_slack(redis_client, monkeypatch):
    window = {"retention": f"{RETENTION_MS}ms", "retention_slack": f"{SLACK_MS}ms"}
    settings = Settings(
        kafka={"bootstrap_servers": "localhost:9092"},
        redis={"url": "redis://localhost:6379/0", "key_prefix": "window"},
        profiles={"articles": {"topics": ["articles"], **window}},
    )
    ages_ms = {
        "beyond": RETENTION_MS + SLACK_MS + MINUTE_MS,
        "in the slack": RETENTION_MS + SLACK_MS - MINUTE_MS,
        "in the window": RETENTION_MS - MINUTE_MS,
        "new": 0,
    }
    broker, now_ms = MemoryBroker({"articles": 1, settings.kafka.duplicates_topic: 1}), time.time_ns() // 1_000_000
    for name, age_ms in ages_ms.items():
        value = b'{"id": "%b", "text": "amber birch cedar delta ember fjord"}' % name.encode()
        broker.produce("articles", value, None, timestamp_ms=now_ms - age_ms)
    monkeypatch.setattr(assembly, "KafkaHistory", lambda _options: MemoryHistory(broker))
    backend = redis_backend(settings, OneServer(redis_client))
    rebuilder = assembly.rebuilder(settings, backend)
    assert rebuilder.begin("articles")
    committed_offsets = {Partition("articles", 0): CommittedOffset(len(ages_ms))}
    assert rebuilder.rebuild("articles", committed_offsets, 1, lambda: None).records_count == 3
    entries = backend.index("articles").get_entries([document_number("articles", name) for name in ages_ms])
    assert {entry.id for entry in entries.values()} == ages_ms.keys() - {"beyond"}
