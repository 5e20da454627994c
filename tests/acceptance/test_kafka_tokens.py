"""The daemon with tokens of an endpoint on a real Kafka that verifies their signatures and ends sessions."""

import pytest

from streamdedup.embedded.ports import free_ports
from streamdedup.errors import EXIT_FATAL
from tests import servers
from tests.daemons import PATIENT, Installation
from tests.made_corpus import a_corpus, the_expected
from tests.servers import fresh_name, wait_until
from tests.support.kafka import KafkaServer
from tests.token_endpoint import AUDIENCE, CLIENT, SECRET, TokenEndpoint

#: Lifetime of tokens by the answer of their endpoint, and of sessions, in seconds.
LIFETIME_S = 5.0
#: For daemons whose tokens end: the broker keeps the earlier membership until its session ends.
FORGOTTEN_SOON = {"kafka.session_timeout": "15s"}


class TokenKafka(KafkaServer):
    """A Kafka with a second listener, whose clients need tokens of an endpoint."""

    def __init__(self, endpoint: TokenEndpoint) -> None:
        allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={endpoint.keys_url}"
        super().__init__(servers.kafka_jars(), java_options=[allowed])
        self._endpoint = endpoint
        (self._port,) = free_ports()

    @property
    def guarded(self) -> str:
        """Address of the listener."""
        return f"127.0.0.1:{self._port}"

    def _properties(self, broker):
        properties = super()._properties(broker)
        oauth = "listener.name.tokens.oauthbearer"
        package = "org.apache.kafka.common.security.oauthbearer"
        return properties | {
            "listeners": f"{properties['listeners']},TOKENS://{self.guarded}",
            "advertised.listeners": f"{properties['advertised.listeners']},TOKENS://{self.guarded}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,TOKENS:SASL_PLAINTEXT",
            "listener.name.tokens.sasl.enabled.mechanisms": "OAUTHBEARER",
            f"{oauth}.connections.max.reauth.ms": "5000",
            f"{oauth}.sasl.jaas.config": f"{package}.OAuthBearerLoginModule required;",
            f"{oauth}.sasl.server.callback.handler.class": f"{package}.OAuthBearerValidatorCallbackHandler",
            # The default of Kafka 4.1 verifies no signature.
            "sasl.oauthbearer.jwt.validator.class": f"{package}.BrokerJwtValidator",
            "sasl.oauthbearer.jwks.endpoint.url": self._endpoint.keys_url,
            "sasl.oauthbearer.expected.audience": AUDIENCE,
            "sasl.oauthbearer.clock.skew.seconds": "0",
        }


@pytest.fixture(scope="module")
def endpoint():
    with TokenEndpoint(LIFETIME_S) as server:
        yield server


@pytest.fixture(scope="module")
def kafka(endpoint):
    with TokenKafka(endpoint) as server:
        yield server


@pytest.fixture
def installation(kafka, tmp_path, redis_client, redis_url, new_group):
    topic, duplicates = fresh_name("articles"), fresh_name("duplicates")
    servers.create_topics(kafka.bootstrap_servers, [topic], 2)
    servers.create_topics(kafka.bootstrap_servers, [duplicates, f"{duplicates}.dlq"])
    names = {"topic": topic, "duplicates": duplicates, "group": new_group(), "batch_records": 10}
    return Installation(tmp_path, kafka=kafka.bootstrap_servers, redis=redis_url, **names)


def tokens(kafka, **keys):
    """Return the settings of a daemon that logs in by tokens."""
    own = {"bootstrap_servers": kafka.guarded, "security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER"}
    return PATIENT | {f"kafka.{key}": value for key, value in (own | keys).items()}


@pytest.fixture
def by_endpoint(kafka, endpoint, installation):
    file = installation.folder / "secret"
    file.write_text(SECRET)
    return tokens(kafka, sasl_token_url=endpoint.url, sasl_client_id=CLIENT, sasl_client_secret_file=file)


def test_tokens_that_expire_while_documents_flow_lose_double_and_interrupt_nothing(installation, endpoint, by_endpoint):
    corpus = a_corpus(31, 240)
    with installation.daemon(**by_endpoint) as daemon:
        for start in range(0, len(corpus), 60):
            count = len(endpoint.tokens)
            installation.send(corpus[start : start + 60])
            installation.wait_committed(start + 60)
            wait_until(lambda before=count: len(endpoint.tokens) > before, what="the next token")
        rebuilt, errors = daemon.metric("streamdedup_rebuilds_total"), daemon.metric("streamdedup_broker_errors_total")
        assert daemon.stop() == 0
    assert installation.pairs() == the_expected(corpus)
    assert (rebuilt, errors) == (0, 0)
    text = daemon.log.read_text(encoding="utf-8")
    assert [secret for secret in (SECRET, *endpoint.tokens) if secret in text] == []


def test_an_endpoint_that_is_away_is_waited_for_and_named(installation, endpoint, by_endpoint):
    corpus = a_corpus(37, 120)
    with installation.daemon(**by_endpoint | FORGOTTEN_SOON) as daemon:
        installation.send(corpus[:60])
        installation.wait_committed(60)
        endpoint.is_away = True
        try:
            event = daemon.wait_event("token_missing")
            wait_until(lambda: "Kafka" in daemon.get("/readyz")[1], what="the wait")
            installation.send(corpus[60:])
            assert installation.committed_count() == 60
        finally:
            endpoint.is_away = False
        assert endpoint.url in event["message"]
        installation.wait_committed(120)
        assert daemon.stop() == 0
    assert installation.pairs() == the_expected(corpus)


def test_a_refused_token_names_the_reason_and_one_in_a_file_is_read_again(kafka, installation, endpoint):
    corpus = a_corpus(41, 60)
    file = installation.folder / "token"
    settings = tokens(kafka, sasl_token_file=file) | FORGOTTEN_SOON
    endpoint.audience = "another"
    file.write_text(endpoint.make())
    endpoint.audience = AUDIENCE
    with installation.daemon(**settings) as daemon:
        assert daemon.wait() == EXIT_FATAL
        assert "invalid_token" in daemon.log.read_text(encoding="utf-8")
    file.write_text(endpoint.make(600))
    installation.send(corpus[:30])
    with installation.daemon(**settings) as daemon:
        installation.wait_committed(30)
        file.write_text(endpoint.make(0.001))
        wait_until(lambda: "Kafka" in daemon.get("/readyz")[1], what="the wait for a token")
        file.write_text(endpoint.make(600))
        installation.send(corpus[30:])
        installation.wait_committed(60)
        assert daemon.stop() == 0
    assert installation.pairs() == the_expected(corpus)
