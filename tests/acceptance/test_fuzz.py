"""Damaged messages through a real Kafka and the daemon; ``make fuzz-daemon`` sends more."""

import pytest
import redis

from tests import servers
from tests.fuzz import daemon


@pytest.mark.long
def test_every_damaged_message_is_accounted_for_by_the_topics_and_the_metrics(tmp_path, kafka, redis_url):
    report = daemon.run("acceptance", 4_500, tmp_path, kafka=kafka, redis=redis_url)
    with redis.Redis.from_url(redis_url) as client:
        client.flushdb()
    assert report.wrong == []
    assert report.figures["consumed"] == 4_500
    assert min(report.figures[name] for name in ("processed", "skipped", "dead letters")) > 300


@pytest.mark.long
def test_every_damaged_value_with_a_schema_is_accounted_for(tmp_path, kafka, redis_url):
    with servers.make_registry() as registry:
        report = daemon.run_schemas("acceptance", 4_500, tmp_path, kafka=kafka, redis=redis_url, registry=registry.url)
    with redis.Redis.from_url(redis_url) as client:
        client.flushdb()
    assert report.wrong == []
    assert report.figures["consumed"] == 4_500
    assert report.figures["processed"] > 500
    assert set(report.letters) >= {"schema_mismatch", "unknown_schema", "unusable_schema", "not_framed"}
