"""The state of the pipeline from a real Kafka and Redis."""

import contextlib

import pytest
from kafka import KafkaAdminClient, KafkaProducer
from kafka.admin import ACLOperation, ResourceType
from kafka.structs import TopicPartition

from streamdedup.cli.serve import _store_memory
from streamdedup.embedded import MissingToolError
from streamdedup.errors import BrokerMisconfigured, StoreMisconfigured
from streamdedup.index.redis.connection import connect, connect_cluster
from streamdedup.kafka import GroupMonitor, GroupOffsets, KafkaOptions
from streamdedup.kafka.protocols import CommittedOffset
from streamdedup.position import Partition
from tests import redis_sets
from tests.canaries import TLS
from tests.guarded_kafka import GuardedKafka
from tests.servers import produce, unavailable, wait_until


def options_for(kafka, group, *topics, **more) -> KafkaOptions:
    return KafkaOptions(bootstrap_servers=kafka, group_id=group, topics=topics, delivery="at-least-once", **more)


def commit(kafka, group, **offsets: int) -> None:
    """Commit offsets of partitions 0 of topics."""
    with GroupOffsets(options_for(kafka, group, *offsets), group) as of_group:
        of_group.write({Partition(topic, 0): CommittedOffset(at) for topic, at in offsets.items()})


def test_the_progress_of_a_group_is_read(kafka, new_topic, new_group):
    articles, reviews, alerts, group = new_topic("articles", 2), new_topic("reviews"), new_topic("alerts"), new_group()
    produce(kafka, reviews, [b"a", b"b", b"c"])
    with contextlib.closing(KafkaAdminClient(bootstrap_servers=kafka)) as admin:
        admin.delete_records({TopicPartition(reviews, 0): 1})
    with contextlib.closing(GroupMonitor(options_for(kafka, group, articles, reviews), alerts)) as monitor:
        found = monitor.read()
        places = {Partition(articles, 0): 0, Partition(articles, 1): 0}
        assert (found.committed, found.other_ends) == (None, {Partition(alerts, 0): 0})
        assert found.ends == {**places, Partition(reviews, 0): 3}
        commit(kafka, group, **{articles: 0})
        assert monitor.read().committed == {**places, Partition(reviews, 0): 1}
        commit(kafka, group, **{reviews: 2})
        produce(kafka, alerts, [b"x"])
        found = monitor.read()
        assert found.committed == {**places, Partition(reviews, 0): 2}
        assert found.other_ends == {Partition(alerts, 0): 1}


def test_the_records_of_an_open_transaction_do_not_count(kafka, new_topic, new_group):
    articles, alerts = new_topic("articles"), new_topic("alerts")
    with (
        contextlib.closing(KafkaProducer(bootstrap_servers=kafka, transactional_id=new_group())) as producer,
        contextlib.closing(GroupMonitor(options_for(kafka, new_group(), articles), alerts)) as monitor,
    ):
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(alerts, value=b"x").get(60)
        assert monitor.read().other_ends == {Partition(alerts, 0): 0}
        producer.commit_transaction()
        with_marker = {Partition(alerts, 0): 2}
        wait_until(lambda: monitor.read().other_ends == with_marker, what="the end of the transaction")


def test_a_topic_that_does_not_exist_is_named(kafka, new_group):
    with (
        contextlib.closing(GroupMonitor(options_for(kafka, new_group(), "nowhere"), "nowhere-either")) as monitor,
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
    guarded_kafka.create_topics("articles", "alerts")
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
    with contextlib.closing(GroupMonitor(options_for(servers, "group", "articles", **login), "alerts")) as monitor:
        with pytest.raises(BrokerMisconfigured, match="DESCRIBE"):
            monitor.read()
        topics = [(ResourceType.TOPIC, topic, ACLOperation.DESCRIBE) for topic in ("articles", "alerts")]
        guarded_kafka.grant("subscriber", topics)
        assert monitor.read().committed is None
        guarded_kafka.grant("subscriber", [(ResourceType.GROUP, "group", ACLOperation.DESCRIBE)])
        assert monitor.read().committed == {Partition("articles", 0): 0}
