"""The daemon with no more rights than the pages name, over TLS: Kafka by SCRAM-SHA-512, Redis as a user of its own."""

import contextlib
import json

import pytest
import redis
from kafka import KafkaProducer
from kafka.admin import ACLOperation, ResourceType

from streamdedup.embedded.process import LOOPBACK
from streamdedup.errors import BrokerMisconfigured
from streamdedup.kafka.consumer import KafkaSource
from streamdedup.kafka.options import KafkaOptions
from streamdedup.wire import decode_alert
from tests import canaries, redis_sets, servers
from tests.canaries import TLS
from tests.daemons import PATIENT, Daemon, values_of
from tests.guarded import rights_of
from tests.made_corpus import a_corpus, the_expected

GROUP, TOPICS = "least-group", ("least", "least-duplicates", "least-letters")
#: What a client of the Redis needs to get in at all.
CERTIFICATES = {
    "ssl": True,
    "ssl_ca_certs": str(TLS / "certificate.pem"),
    "ssl_certfile": str(TLS / "certificate.pem"),
    "ssl_keyfile": str(TLS / "plain.key"),
}


@pytest.fixture
def store():
    """A Redis that speaks TLS only, and a client of it that may do everything."""
    server = redis_sets.TlsServer(requirepass=canaries.PASSWORDS["redis"])
    with server, redis.Redis(LOOPBACK, server.port, password=canaries.PASSWORDS["redis"], **CERTIFICATES) as client:
        yield server, client


def let_in(client, *lines):
    """Give the daemon's user the rights of these lines of the page, and no others."""
    client.execute_command("ACL", "DELUSER", "streamdedup")
    for line in lines:
        rules = [rule.replace(">secret", f">{canaries.PASSWORDS['redis']}") for rule in redis_sets.acl_line(line)]
        client.execute_command("ACL", "SETUSER", "streamdedup", *rules)


def settings_for(store):
    """What stands in the settings of a daemon with the least rights, over those of all guarded servers."""
    server, _ = store
    given, duplicates, letters = TOPICS
    return {
        "kafka.sasl_mechanism": "SCRAM-SHA-512",
        "kafka.sasl_username": "least",
        "kafka.group_id": GROUP,
        "kafka.duplicates_topic": duplicates,
        "kafka.dead_letter_topic": letters,
        "redis.url": f"rediss://localhost:{server.port}/0",
        "redis.username": "streamdedup",
        "redis.ssl_ca_file": TLS / "certificate.pem",
        "redis.ssl_cert_file": TLS / "certificate.pem",
        "redis.ssl_key_file": TLS / "plain.key",
        "profiles.articles.topics": given,
        "profiles.articles.shingle_size": 2,
        "profiles.articles.threshold": 0.5,
        "profiles.articles.recall_from": 0.5,
        "profiles.articles.containment_threshold": "none",
        # Long enough for everything that is compared, also on a busy machine; the test waits for the end of it.
        "profiles.articles.retention": "30s",
        "profiles.articles.retention_slack": "1s",
    }


def send(kafka, records):
    with contextlib.closing(KafkaProducer(bootstrap_servers=kafka.bootstrap_servers, **kafka.login())) as producer:
        futures = [producer.send(TOPICS[0], key=key, value=value) for key, value in records]
        producer.flush(servers.DEADLINE_S)
        for future in futures:
            future.get(0)


def published(kafka, topic):
    servers.wait_no_transaction(kafka.bootstrap_servers, [topic], **kafka.login())
    return servers.read_topic(kafka.bootstrap_servers, topic, **kafka.login())


def pairs(kafka):
    alerts = [decode_alert(record.value) for record in published(kafka, TOPICS[1])]
    return sorted(tuple(sorted((alert.document.id, match.id))) for alert in alerts for match in alert.matches)


@pytest.mark.long
def test_the_whole_life_of_an_index_needs_no_more_rights_than_the_pages_name(guarded_servers, store):
    setup, kafka, client = guarded_servers, guarded_servers.kafka, store[1]
    kafka.create_topics(*TOPICS)
    kafka.grant("least", rights_of("least", GROUP, TOPICS))
    let_in(client, "daemon")
    settings = settings_for(store)
    corpus = a_corpus(5, 90)
    records = [*values_of(corpus), (b"bad", b"not json")]
    # The broker takes no longer transactions.
    patient = {**PATIENT, "kafka.transaction_timeout": "60s"}
    with Daemon(setup, "a", {**patient, **settings}) as daemon:
        daemon.wait_ready()
        send(kafka, records)
        servers.wait_until(lambda: daemon.metric("streamdedup_records_total") == len(records), what="all documents")
        # New versions of some, the same again, and nothing of either that was alerted before.
        send(kafka, values_of([(corpus[0][0], "a text of its own that resembles no other"), *corpus[1:5]]))
        servers.wait_until(lambda: daemon.metric("streamdedup_records_total") == len(records) + 5, what="new versions")
        assert daemon.metric("streamdedup_index_documents") >= 0
        assert daemon.stop() == 0
        assert daemon.events("fatal") == []
    expected = the_expected(corpus)
    assert len(expected) > 10
    assert pairs(kafka) == expected
    assert [letter.key for letter in published(kafka, TOPICS[2])] == [b"bad"]
    # The client says its name, which the page says is refused.
    assert {entry["object"] for entry in client.acl_log()} <= {"client|setinfo"}

    let_in(client, "daemon", "operator")
    wishes = {key.replace(".", "__"): value for key, value in settings.items()}
    looked = setup.run("index", "status", "--json", "--exact", **wishes)
    assert looked.code == 0, looked.text
    assert json.loads(looked.text)["profiles"][0]["differences"] == []
    servers.wait_until(lambda: not [key for key in client.keys() if b"}b" in key or b"}r" in key], what="expiry")  # noqa: SIM118  all keys of a server
    dropped = setup.run("index", "drop", "--yes", **wishes)
    assert dropped.code == 0, dropped.text
    assert client.dbsize() == 0
    assert {entry["object"] for entry in client.acl_log()} <= {"client|setinfo"}


def test_a_member_that_fetches_nothing_of_a_topic_ends_when_the_right_to_it_is_withdrawn(guarded_servers):
    kafka, topic = guarded_servers.kafka, "withdrawn"
    kafka.create_topics(topic)
    rights = [(ResourceType.TOPIC, topic, ACLOperation.READ), (ResourceType.GROUP, topic, ACLOperation.READ)]
    kafka.grant("least", rights)
    login = kafka.login("least")
    options = KafkaOptions(
        bootstrap_servers=kafka.bootstrap_servers,
        group_id=topic,
        topics=(topic,),
        delivery="at-least-once",
        sasl_username=login.pop("sasl_plain_username"),
        sasl_password=login.pop("sasl_plain_password"),
        **login,
    )
    with contextlib.closing(KafkaSource.open(options)) as source:
        servers.wait_until(lambda: source.poll(0.1) or source.stats().lags, what="a fetch")
        kafka.withdraw("least", rights[:1])
        servers.wait_until(lambda: source.keep_membership(0.1) or not source.partitions(), what="new metadata")
        with pytest.raises(BrokerMisconfigured, match=r"cannot read withdrawn: .* grant READ on the topics"):
            source.poll(0.1)
