"""The state of the pipeline from a real Kafka and Redis."""

import asyncio
import contextlib
import time

import pytest
from kafka import KafkaAdminClient, KafkaProducer
from kafka.admin import ACLOperation, ResourceType
from kafka.structs import TopicPartition

from streamdedup.cli.serve import _store_memory
from streamdedup.embedded import MissingToolError
from streamdedup.errors import BrokerMisconfigured, StoreMisconfigured
from streamdedup.index.redis.connection import connect, connect_cluster
from streamdedup.kafka.group import GroupMonitor, GroupOffsets
from streamdedup.kafka.options import KafkaOptions
from streamdedup.kafka.protocols import CommittedOffset
from streamdedup.kafka.reader import KafkaSpan
from streamdedup.position import Partition
from streamdedup.serve.clusters import ClusterMemory
from streamdedup.serve.metrics import ServeMetrics
from tests import redis_sets
from tests.canaries import TLS
from tests.event_stream import DEADLINE_S, an_alert
from tests.guarded_kafka import GuardedKafka
from tests.servers import produce, unavailable, wait_until


def options_for(kafka, group, *topics, **more) -> KafkaOptions:
    return KafkaOptions(bootstrap_servers=kafka, group_id=group, topics=topics, delivery="at-least-once", **more)


def commit(kafka, group, **offsets: int) -> None:
    """Commit offsets of partitions 0 of topics."""
    with GroupOffsets(options_for(kafka, group, *offsets), group) as of_group:
        of_group.write({Partition(topic, 0): CommittedOffset(at) for topic, at in offsets.items()})


def test_the_progress_of_a_group_is_read(kafka, new_topic, new_group):
    articles, reviews, group = new_topic("articles", 2), new_topic("reviews"), new_group()
    produce(kafka, reviews, [b"a", b"b", b"c"])
    with contextlib.closing(KafkaAdminClient(bootstrap_servers=kafka)) as admin:
        admin.delete_records({TopicPartition(reviews, 0): 1})
    with contextlib.closing(GroupMonitor(options_for(kafka, group, articles, reviews))) as monitor:
        found = monitor.read()
        places = {Partition(articles, 0): 0, Partition(articles, 1): 0}
        assert found.committed is None
        assert found.ends == {**places, Partition(reviews, 0): 3}
        commit(kafka, group, **{articles: 0})
        assert monitor.read().committed == {**places, Partition(reviews, 0): 1}
        commit(kafka, group, **{reviews: 2})
        assert monitor.read().committed == {**places, Partition(reviews, 0): 2}


def test_the_records_of_an_open_transaction_do_not_count(kafka, new_topic, new_group):
    articles = new_topic("articles")
    with (
        contextlib.closing(KafkaProducer(bootstrap_servers=kafka, transactional_id=new_group())) as producer,
        contextlib.closing(GroupMonitor(options_for(kafka, new_group(), articles))) as monitor,
    ):
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(articles, value=b"x").get(60)
        assert monitor.read().ends == {Partition(articles, 0): 0}
        producer.commit_transaction()
        with_marker = {Partition(articles, 0): 2}
        wait_until(lambda: monitor.read().ends == with_marker, what="the end of the transaction")


def test_the_markers_of_transactions_are_no_alerts(kafka, new_topic, new_group):
    """Each alert in a transaction of its own, as of a daemon whose batches have one alert each."""
    duplicates = new_topic("duplicates")

    def publish(*ids: str) -> None:
        with contextlib.closing(KafkaProducer(bootstrap_servers=kafka, transactional_id=new_group())) as producer:
            producer.init_transactions()
            for document_id in ids:
                producer.begin_transaction()
                producer.send(duplicates, value=an_alert(document_id)).get(60)
                producer.commit_transaction()

    async def test() -> None:
        options = options_for(kafka, new_group(), duplicates)
        memory = ClusterMemory(
            lambda since_ms: KafkaSpan(options, since_ms, None),
            100,
            3_600_000,
            ServeMetrics(),
            lambda: time.time() * 1000,
        )
        task = asyncio.create_task(memory.run())
        try:
            await until(lambda: memory.alerts_count() == 0)
            await asyncio.to_thread(publish, "b", "c", "d")
            await until(lambda: memory.alerts_count() == 3)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await asyncio.to_thread(memory.close)

    publish("a")  # before the start
    asyncio.run(test())


async def until(condition) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not condition():  # noqa: ASYNC110  there is no event
            await asyncio.sleep(0.02)


def test_a_topic_that_does_not_exist_is_named(kafka, new_group):
    with (
        contextlib.closing(GroupMonitor(options_for(kafka, new_group(), "nowhere"))) as monitor,
        pytest.raises(BrokerMisconfigured, match="nowhere"),
    ):
        monitor.read()


class TestMemory:
    @pytest.fixture
    def login(self, redis_client):
        yield {"username": "streamdedup-serve", "password": "secret"}
        redis_client.execute_command("ACL", "DELUSER", "streamdedup-serve")

    def test_the_right_of_the_page_is_needed_and_enough(self, redis_client, redis_url, login):
        redis_client.execute_command("ACL", "SETUSER", "streamdedup-serve", *redis_sets.acl_line("serve"))
        with connect(redis_url, security=login) as servers:
            with pytest.raises(StoreMisconfigured, match="rights"):
                _store_memory(servers)
            redis_client.execute_command("ACL", "SETUSER", "streamdedup-serve", *redis_sets.acl_line("serve-state"))
            assert _store_memory(servers).used_bytes > 0

    def test_the_masters_of_a_cluster_are_added(self, cluster_of_redis):
        with connect_cluster(cluster_of_redis.addresses) as servers:
            used = sum(client.info("memory")["used_memory"] for client in cluster_of_redis.clients)
            assert _store_memory(servers).used_bytes == pytest.approx(used, rel=0.5)
            assert _store_memory(servers).max_bytes is None


def test_the_limit_of_redis_is_told(redis_url, redis_client):
    before = redis_client.config_get("maxmemory")["maxmemory"]
    redis_client.config_set("maxmemory", 500_000_000)
    try:
        with connect(redis_url) as servers:
            assert _store_memory(servers).max_bytes == 500_000_000
    finally:
        redis_client.config_set("maxmemory", before)


@pytest.fixture
def guarded_kafka(tmp_path):
    """A Kafka whose user "subscriber" has no right yet."""
    try:
        made = GuardedKafka(tmp_path, {"subscriber": "only-for-tests"})
        with made.server:
            yield made
    except MissingToolError as error:
        unavailable(error)


@pytest.mark.long
def test_the_rights_of_the_page_are_needed_and_enough(guarded_kafka):
    guarded_kafka.create_topics("articles")
    login = {
        "security_protocol": "SASL_SSL",
        "ssl_cafile": str(TLS / "certificate.pem"),
        "ssl_certfile": str(TLS / "certificate.pem"),
        "ssl_keyfile": str(TLS / "plain.key"),
        "sasl_mechanism": "PLAIN",
        "sasl_username": "subscriber",
        "sasl_password": "only-for-tests",
    }
    servers = guarded_kafka.bootstrap_servers
    admin_login = {**login, "sasl_username": "admin", "sasl_password": guarded_kafka.login()["sasl_plain_password"]}
    with GroupOffsets(options_for(servers, "group", "articles", **admin_login), "group") as of_group:
        of_group.write({Partition("articles", 0): CommittedOffset(0)})
    with contextlib.closing(GroupMonitor(options_for(servers, "group", "articles", **login))) as monitor:
        with pytest.raises(BrokerMisconfigured, match="DESCRIBE"):
            monitor.read()
        guarded_kafka.grant("subscriber", [(ResourceType.TOPIC, "articles", ACLOperation.DESCRIBE)])
        assert monitor.read().committed is None
        guarded_kafka.grant("subscriber", [(ResourceType.GROUP, "group", ACLOperation.DESCRIBE)])
        assert monitor.read().committed == {Partition("articles", 0): 0}
