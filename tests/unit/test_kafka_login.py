"""Logins to Kafka that change: passwords and tokens in files, tokens of an endpoint, and their settings."""

import gzip
import json
import ssl
import threading
from base64 import b64encode
from pathlib import Path
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

TLS = Path(__file__).parents[1] / "tls"
REFUSED = SaslAuthenticationFailedError('SaslAuthenticationFailedError: {"status":"invalid_token"}')


@pytest.fixture(autouse=True)
def accepted(monkeypatch):
    event = threading.Event()
    monkeypatch.setattr(login, "_accepted", event)
    return event


@pytest.fixture(autouse=True)
def no_thread_outlives_its_test(monkeypatch):
    """End the threads of all logins by tokens, before the output of the test is closed."""
    logins, init = [], login.TokenLogin.__init__

    def recorded(self, *arguments):
        init(self, *arguments)
        logins.append(self)

    monkeypatch.setattr(login.TokenLogin, "__init__", recorded)
    yield
    for tokens in logins:
        tokens._is_ended.set()
        if tokens._thread not in (None, threading.current_thread()):
            tokens._thread.join()


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
        ({"sasl_mechanism": "OAUTHBEARER", "sasl_token_url": "http://a"}, "sasl_client_id: .* sasl_token_url needs it"),
        ({"sasl_mechanism": "OAUTHBEARER", "sasl_token_url": "ftp://a"}, "kafka.sasl_token_url: .*is not valid"),
        ({"sasl_mechanism": "OAUTHBEARER", "sasl_token_file": "/no"}, "sasl_token_file: names no file"),
        *(
            (
                {"sasl_mechanism": "OAUTHBEARER", "sasl_token_file": __file__, key: __file__},
                f"{key}: is given, but sasl_token_file",
            )
            for key in ("sasl_client_id", "sasl_client_secret", "sasl_token_scope", "sasl_token_ca_file")
        ),
        ({"sasl_mechanism": "GSSAPI", "sasl_username": "u"}, "sasl_mechanism = GSSAPI does not use it"),
        ({"sasl_mechanism": "PLAIN", "sasl_token_scope": "s"}, "sasl_mechanism = PLAIN does not use it"),
        ({"sasl_mechanism": "AWS_MSK_IAM"}, "AWS_MSK_IAM needs SASL_SSL"),
        ({"security_protocol": "PLAINTEXT", "sasl_client_id": "c"}, "sasl_client_id: .*does not log in"),
    ],
)
def test_contradictory_settings_are_refused(keys, reason):
    with pytest.raises(SettingsError, match=reason):
        settings_with(**keys)


def test_without_a_mechanism_no_key_of_a_login_is_unused_or_missing():
    with pytest.raises(SettingsError) as caught:
        settings_with(sasl_token_file=__file__)
    assert str(caught.value) == "kafka.sasl_mechanism: is missing; security_protocol = SASL_PLAINTEXT needs it"


def test_a_secret_in_clear_to_another_machine_is_pointed_out():
    hints = [
        "\n".join(oauth(sasl_token_url=url).hint_lines()) for url in ("http://a/t", "https://a/t", "http://[::1]/t")
    ]
    assert ["in clear" in hint for hint in hints] == [True, False, False]


@pytest.mark.parametrize(
    ("settings", "module", "extra"),
    [
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
    file.write_text("canary\x01auth=x")
    with pytest.raises(KafkaConnectionError, match=r"kafka\.sasl_token_file: .* RFC 6750") as caught:
        made.auth_bytes()
    assert "canary" not in str(caught.value)


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
    with pytest.raises(KafkaConnectionError, match=f"{endpoint.url} does not answer with a token: .* status 503"):
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


def test_a_login_during_a_request_does_not_bring_the_last_token_back():
    texts = iter(["first", "second"])
    tokens = login.TokenLogin("http://localhost/t", lambda: (next(texts), 60))
    tokens._fetch_token()
    read = tokens._read

    def read_before_a_fetch():
        text = read()
        tokens._fetch_token()
        return text

    tokens._read = read_before_a_fetch
    assert tokens.token() == "first"
    tokens._read = read
    assert tokens.token() == "second"


def test_a_client_that_the_endpoint_refuses_ends_the_daemon_only_before_the_first_login(endpoint, accepted):
    kafka_login.cache_clear()
    tokens = kafka_options(oauth(sasl_token_url=endpoint.url, sasl_client_secret="canary-wrong")).sasl_login
    for error in (BrokerMisconfigured, BrokerUnavailable):
        with pytest.raises(error, match=r"refuses the client: invalid_client$") as caught:
            tokens.prepare(60)
        assert "canary" not in str(caught.value)
        accepted.set()


def test_an_endpoint_that_goes_away_after_a_refusal_is_waited_for(endpoint):
    tokens = kafka_options(oauth(sasl_token_url=endpoint.url, sasl_client_secret="canary-wrong")).sasl_login
    tokens._fetch_token()
    endpoint.is_away = True
    tokens._fetch_token()
    with pytest.raises(BrokerUnavailable, match="does not answer with a token"):
        tokens.prepare(60)


def fetched(endpoint, **keys):
    """Return the login after one request, and the pause until the next."""
    tokens = kafka_options(oauth(sasl_token_url=endpoint.url, **keys)).sasl_login
    return tokens, tokens._fetch_token()


def refusal(endpoint):
    """Return why an answer brought no token."""
    tokens, pause_s = fetched(endpoint)
    assert pause_s == login.RETRY_S
    with pytest.raises(KafkaConnectionError) as caught:
        tokens.token()
    assert not tokens.secrets()
    return str(caught.value)


@pytest.mark.parametrize(
    ("member", "lifetime_s"),
    [
        ("", login.DEFAULT_LIFETIME_S),
        (', "expires_in": null', login.DEFAULT_LIFETIME_S),
        (', "expires_at": 1', login.DEFAULT_LIFETIME_S),
        (', "expires_in": 60', 60),
        (', "expires_in": "60"', 60),
        (', "expires_in": 90000', 86_400),
        (', "expires_in": 1000000000000', 86_400),
        (', "expires_in": "Infinity"', 86_400),
    ],
)
def test_a_token_is_used_for_its_lifetime_and_at_most_a_day(endpoint, monkeypatch, member, lifetime_s):
    now = [1000.0]
    monkeypatch.setattr(login, "time", SimpleNamespace(monotonic=lambda: now[0]))
    endpoint.raw = 200, f'{{"access_token": "tok"{member}}}'.encode()
    tokens, pause_s = fetched(endpoint)
    assert (tokens.token(), pause_s) == ("tok", lifetime_s * login.RENEW_SHARE)
    now[0] += lifetime_s
    with pytest.raises(KafkaConnectionError, match="expired"):
        tokens.token()


@pytest.mark.parametrize("lifetime", ["0.001", "1e-300", "1.2"])
def test_a_short_lifetime_does_not_shorten_the_pause_between_requests(endpoint, lifetime):
    endpoint.raw = 200, f'{{"access_token": "tok", "expires_in": {lifetime}}}'.encode()
    assert fetched(endpoint)[1] == login.RETRY_S


@pytest.mark.parametrize("lifetime", ["0", '"0"', "-5", '"soon"', "NaN", '"nan"', "Infinity", "true", "[1]", "{}"])
def test_a_lifetime_that_is_none_brings_no_token(endpoint, lifetime):
    endpoint.raw = 200, f'{{"access_token": "canary", "expires_in": {lifetime}}}'.encode()
    assert "canary" not in refusal(endpoint)


TOKENS = ["null", '{"a": 1}', "5", '""', r'"canary\u0001auth=x\r\n\u0000"', '"canary x"', '"canary\\n"', '"=canary"']


@pytest.mark.parametrize("token", [*TOKENS, '"canary=x"', '"canaryé"', r'"canary\ud83d\ude00"', '["canary"]', "true"])
def test_a_token_with_characters_that_no_broker_takes_is_refused(endpoint, token):
    endpoint.raw = 200, f'{{"access_token": {token}, "expires_in": 60}}'.encode()
    assert "canary" not in refusal(endpoint)


def test_a_token_may_have_all_characters_of_rfc_6750(endpoint):
    endpoint.raw = 200, b'{"access_token": "azAZ09-._~+/=="}'
    assert fetched(endpoint)[0].token() == "azAZ09-._~+/=="


WHOLE = b'{"access_token": "canary", "expires_in": 60}'
LONG = b'{"access_token": "%b"}' % (b"x" * login.MAX_TOKEN_BYTES)


@pytest.mark.parametrize(
    ("status", "body"),
    [
        *((200, body) for body in (b"", b"<html>", b"[]", b"null", b"[" * 100_000, b"\xff", WHOLE[:-1], LONG)),
        (200, b'{"x": %b%b, "access_token": "canary"}' % (b"[" * 100_000, b"]" * 100_000)),
        (200, gzip.compress(WHOLE)),
        *((status, WHOLE) for status in (201, 302, 307, 308, 400, 401, 404, 500)),
        (400, b'{"error": "canary"}'),
        (400, b'{"error": {"code": "canary"}}'),
        (400, b'{"error": "temporarily_unavailable"}'),
    ],
)
def test_an_answer_that_is_none_of_a_token_endpoint_is_waited_for(endpoint, status, body):
    with TokenEndpoint() as elsewhere:
        endpoint.raw, endpoint.headers = (status, body), {"Location": elsewhere.url}
        text = refusal(endpoint)
        assert (endpoint.url in text, "canary" in text) == (True, False)
        assert not elsewhere.asked
    tokens, _ = fetched(endpoint)
    with pytest.raises(BrokerUnavailable):
        tokens.prepare(60)


def test_an_answer_that_never_ends_has_a_time_limit(endpoint, monkeypatch):
    monkeypatch.setattr(login, "TOKEN_TIMEOUT_S", 0.2)
    endpoint.raw, endpoint.is_dripping = (200, WHOLE), True
    assert "TimeoutError" in refusal(endpoint)


@pytest.mark.parametrize("error", ["invalid_client", "invalid_scope", "unauthorized_client"])
def test_a_refusal_of_the_endpoint_holds_no_secret_in_any_form(endpoint, error):
    login_text = b64encode(f"{CLIENT}:{SECRET}".encode()).decode()
    description = f"{SECRET}, {login_text}, {SECRET[::-1]} \r\n\x1b[31m"
    endpoint.raw = 400, json.dumps({"error": error, "error_description": description}).encode()
    text = refusal(endpoint)
    assert text.endswith(f"the token endpoint {endpoint.url} refuses the client: {error}")


def test_the_request_has_client_secret_and_scope(endpoint):
    tokens, _ = fetched(endpoint, sasl_client_secret="canary:é &", sasl_token_scope="a b&c")
    assert endpoint.asked == [("Basic ZGFlbW9uOmNhbmFyeTrDqSAm", "grant_type=client_credentials&scope=a+b%26c")]
    with pytest.raises(KafkaConnectionError, match=r"refuses the client: invalid_client$"):
        tokens.token()


def test_a_secret_that_cannot_be_read_is_named(endpoint, tmp_path):
    file = tmp_path / "secret"
    file.write_text("one")
    settings = oauth(sasl_token_url=endpoint.url, sasl_client_secret=None, sasl_client_secret_file=str(file))
    tokens = kafka_options(settings).sasl_login
    file.unlink()
    tokens._fetch_token()
    with pytest.raises(KafkaConnectionError, match="secret cannot be read"):
        tokens.token()


def test_an_endpoint_by_tls_needs_a_certificate_of_a_trusted_authority():
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(TLS / "certificate.pem", TLS / "plain.key")
    with TokenEndpoint(tls=tls) as endpoint:
        tokens, _ = fetched(endpoint, sasl_token_ca_file=str(TLS / "certificate.pem"))
        assert tokens.token() == endpoint.tokens[-1]
        assert "SSLCertVerificationError" in refusal(endpoint)


def test_all_clients_of_a_process_share_one_login(endpoint):
    settings = oauth(sasl_token_url=endpoint.url)
    options = [kafka_options(settings) for _ in range(2)]
    assert options[0].sasl_login is options[1].sasl_login is not None
    for each in options:
        each.sasl_login.prepare(60)
    assert len(endpoint.tokens) == 1


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
