"""Logins to Kafka that change: passwords and tokens in files, tokens of an endpoint, and their settings."""

import threading
from types import SimpleNamespace

import pytest
from kafka.errors import KafkaConnectionError, SaslAuthenticationFailedError
from kafka.net.sasl import get_sasl_mechanism

from streamdedup.cli.assembly import kafka_login, kafka_options
from streamdedup.errors import BrokerMisconfigured, BrokerUnavailable, SettingsError
from streamdedup.kafka import login
from streamdedup.kafka.errors import is_final, translated
from streamdedup.settings import Settings
from tests.token_endpoint import CLIENT, SECRET, TokenEndpoint

REFUSED = SaslAuthenticationFailedError('SaslAuthenticationFailedError: {"status":"invalid_token"}')


@pytest.fixture(autouse=True)
def accepted(monkeypatch):
    event = threading.Event()
    monkeypatch.setattr(login, "_accepted", event)
    return event


@pytest.fixture
def endpoint():
    with TokenEndpoint() as server:
        yield server


def settings_with(**keys):
    kafka = {"bootstrap_servers": "localhost:9092", "security_protocol": "SASL_PLAINTEXT", **keys}
    tree = {"kafka": kafka, "redis": {"url": "redis://localhost"}, "profiles": {"articles": {"topics": "a"}}}
    return Settings.load(None, tree, {})


def oauth(**keys):
    client = {"sasl_client_id": CLIENT, "sasl_client_secret": SECRET}
    return settings_with(**{"sasl_mechanism": "oauthbearer", "sasl_token_url": "http://localhost/t"} | client | keys)


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ({}, "kafka.sasl_mechanism: is missing; security_protocol = SASL_PLAINTEXT needs it"),
        ({"sasl_mechanism": "PLAIN", "sasl_username": "u"}, "kafka.sasl_password: is missing"),
        ({"sasl_mechanism": "OAUTHBEARER"}, "OAUTHBEARER needs either sasl_token_file or sasl_token_url"),
        ({"sasl_mechanism": "OAUTHBEARER", "sasl_token_url": "http://a"}, "kafka.sasl_client_id: is missing"),
        ({"sasl_mechanism": "OAUTHBEARER", "sasl_token_url": "ftp://a"}, "kafka.sasl_token_url: .*is not valid"),
        ({"sasl_mechanism": "OAUTHBEARER", "sasl_token_file": "/no"}, "sasl_token_file: names no file"),
        ({"sasl_mechanism": "GSSAPI", "sasl_username": "u"}, "sasl_mechanism = GSSAPI does not use it"),
        ({"sasl_mechanism": "PLAIN", "sasl_token_scope": "s"}, "sasl_mechanism = PLAIN does not use it"),
        ({"sasl_mechanism": "AWS_MSK_IAM"}, "AWS_MSK_IAM needs SASL_SSL"),
        ({"security_protocol": "PLAINTEXT", "sasl_client_id": "c"}, "sasl_client_id: .*does not log in"),
    ],
)
def test_contradictory_settings_are_refused(keys, reason):
    with pytest.raises(SettingsError, match=reason):
        settings_with(**keys)


def test_a_secret_in_clear_to_another_machine_is_pointed_out():
    hints = ["\n".join(oauth(sasl_token_url=url).hints()) for url in ("http://a/t", "https://a/t", "http://[::1]/t")]
    assert ["in clear" in hint for hint in hints] == [True, False, False]


@pytest.mark.parametrize(
    ("settings", "module", "extra"),
    [
        (oauth, "authlib.integrations.requests_client", "oauth"),
        (lambda: settings_with(sasl_mechanism="GSSAPI"), "gssapi", "kerberos"),
        (lambda: settings_with(sasl_mechanism="AWS_MSK_IAM", security_protocol="SASL_SSL"), "botocore", "aws"),
    ],
)
def test_without_the_extra_an_error_says_which_command_installs_it(monkeypatch, settings, module, extra):
    kafka_login.cache_clear()
    monkeypatch.setitem(__import__("sys").modules, module, None)
    with pytest.raises(SettingsError, match=rf"kafka\.sasl_\w+.* needs {module}: pip install 'streamdedup\[{extra}\]'"):
        kafka_options(settings())


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_a_password_file_is_read_for_each_login(tmp_path, mechanism):
    file = tmp_path / "password"
    file.write_text("canary-one\n")
    keys = {"sasl_mechanism": mechanism, "sasl_username": "u", "sasl_password_file": str(file)}
    options = kafka_options(settings_with(**keys))
    logins = []
    for password in ("canary-one", "canary-two"):
        file.write_text(f"{password}\r\n")
        made = get_sasl_mechanism(mechanism)(**options.connection())
        logins.append(made.password if mechanism == "PLAIN" else made._scram_client.password.decode())
        assert password in options.secrets()
    assert logins == ["canary-one", "canary-two"]
    file.write_text("")
    with pytest.raises(KafkaConnectionError, match=r"kafka\.sasl_password_file: .* is empty"):
        get_sasl_mechanism(mechanism)(**options.connection())
    assert "canary" not in repr(options)


def test_a_token_file_is_read_for_each_login(tmp_path):
    file = tmp_path / "token"
    file.write_text("one\n")
    options = kafka_options(settings_with(sasl_mechanism="OAUTHBEARER", sasl_token_file=str(file)))
    made = get_sasl_mechanism("OAUTHBEARER")(**options.connection())
    file.write_text("two\n")
    assert b"Bearer two\x01" in made.auth_bytes()


def test_a_token_is_renewed_before_its_end_and_kept_while_the_endpoint_is_away(endpoint, monkeypatch, caplog):
    caplog.set_level("INFO")
    now = [1000.0]
    monkeypatch.setattr(login, "time", SimpleNamespace(monotonic=lambda: now[0]))
    tokens = kafka_options(oauth(sasl_token_url=endpoint.url)).sasl_login
    with pytest.raises(KafkaConnectionError, match="no token yet"):
        tokens.token()
    assert tokens._fetch_token() == 4.0
    assert tokens.token() == endpoint.tokens[-1]
    now[0] += 4
    endpoint.is_away = True
    for _ in range(2):
        assert tokens._fetch_token() == login.RETRY_S
    assert tokens.token() == endpoint.tokens[-1]
    now[0] += 1
    with pytest.raises(KafkaConnectionError, match=f"{endpoint.url} does not answer with a token: HTTPError"):
        tokens.token()
    endpoint.is_away = False
    tokens._fetch_token()
    assert tokens.token() == endpoint.tokens[-1] != endpoint.tokens[0]
    events = [line.event for line in caplog.records if hasattr(line, "event")]
    assert events == ["token_fetched", "token_missing", "token_fetched"]
    assert tokens.secrets() == (endpoint.tokens[-1],)
    # The next request has no answer yet.
    now[0] += 6
    tokens._thread = threading.current_thread()
    with pytest.raises(BrokerUnavailable, match="the token has expired"):
        tokens.prepare(0)


def test_a_client_that_the_endpoint_refuses_ends_the_daemon_only_before_the_first_login(endpoint, accepted):
    kafka_login.cache_clear()
    tokens = kafka_options(oauth(sasl_token_url=endpoint.url, sasl_client_secret="canary-wrong")).sasl_login
    for error in (BrokerMisconfigured, BrokerUnavailable):
        with pytest.raises(error, match="refuses the client: invalid_client: not Basic") as caught:
            tokens.prepare(60)
        assert "canary" not in str(caught.value)
        accepted.set()
    tokens._is_ended.set()


def test_an_endpoint_that_goes_away_after_a_refusal_is_waited_for(endpoint):
    tokens = kafka_options(oauth(sasl_token_url=endpoint.url, sasl_client_secret="canary-wrong")).sasl_login
    tokens._fetch_token()
    endpoint.is_away = True
    tokens._fetch_token()
    with pytest.raises(BrokerUnavailable, match="does not answer with a token"):
        tokens.prepare(60)
    tokens._is_ended.set()


def test_all_clients_of_a_process_share_one_login(endpoint):
    settings = oauth(sasl_token_url=endpoint.url)
    options = [kafka_options(settings) for _ in range(2)]
    assert options[0].sasl_login is options[1].sasl_login is not None
    for each in options:
        each.sasl_login.prepare(60)
    assert len(endpoint.tokens) == 1
    options[0].sasl_login._is_ended.set()


def test_a_refused_login_is_final_until_one_that_changes_was_accepted(tmp_path, accepted):
    assert is_final(REFUSED)
    assert isinstance(translated(REFUSED, "poll"), BrokerMisconfigured)
    plain = {"security_protocol": "SASL_PLAINTEXT", "sasl_plain_username": "u"}
    made = get_sasl_mechanism("PLAIN")(sasl_plain_password="p", **plain)
    made.receive(b"")
    assert made.is_authenticated()
    assert not accepted.is_set()
    renewed = login.KafkaLogin("kafka.sasl_password_file", lambda: "p")
    made = get_sasl_mechanism("PLAIN")(sasl_plain_password=renewed, **plain)
    made.receive(b"")
    assert made.is_authenticated()
    assert not is_final(REFUSED)
    error = translated(REFUSED, "poll")
    assert (type(error), "invalid_token" in str(error)) == (BrokerUnavailable, True)
