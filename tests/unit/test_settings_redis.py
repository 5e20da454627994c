"""The ways in which Redis is run, as settings: accepted, handed on, and contradicted in one line each."""

import re

import pytest
from test_settings import CANARY, check_mistake, load, mistakes, write
from typer.testing import CliRunner

from streamdedup.cli import main as cli
from streamdedup.indexes import connect_backend
from streamdedup.settings import Settings, show
from tests.canaries import TLS

CERTIFICATE = str(TLS / "certificate.pem")
SENTINEL = {
    "redis.url": None,
    "redis.mode": "sentinel",
    "redis.nodes": "s-1:26379,s-2:26379",
    "redis.sentinel_service": "index",
}
PROVIDER = {"redis.credential_provider": "json:loads"}
CLUSTER = {"redis.url": None, "redis.mode": "cluster", "redis.nodes": ["n-1:6379", "[::1]:6380"]}


class TestAccepted:
    @pytest.mark.parametrize(
        ("form", "addresses"),
        [
            ({"redis.url": "redis://r-1"}, [("r-1", 6379)]),
            ({"redis.url": "redis://r-1:6380/2"}, [("r-1", 6380)]),
            ({"redis.url": "unix:///run/redis.sock"}, []),
            (SENTINEL, [("s-1", 26379), ("s-2", 26379)]),
            (CLUSTER, [("n-1", 6379), ("::1", 6380)]),
        ],
    )
    def test_the_known_servers_have_addresses(self, form, addresses):
        assert load(form).redis.addresses == addresses

    def test_a_cluster(self):
        redis = load(CLUSTER | {"redis.shards": 8}).redis
        assert redis.shown_url == "cluster n-1:6379,[::1]:6380"
        assert (redis.login(), redis.tls_arguments()) == ((), {})

    def test_sentinels_with_logins_of_their_own(self):
        login = {
            "redis.username": "u",
            "redis.password": "p",
            "redis.sentinel_username": "su",
            "redis.sentinel_password": "sp",
            "redis.tls": "true",
            "redis.ssl_ca_file": CERTIFICATE,
        }
        redis = load(SENTINEL | login).redis
        tls = {"ssl": True, "ssl_check_hostname": True, "ssl_ca_certs": CERTIFICATE}
        assert (redis.login(), redis.sentinel_login()) == (("u", "p"), ("su", "sp"))
        assert redis.tls_arguments() == tls
        assert redis.shown_url == "sentinel index at s-1:26379,s-2:26379"

    def test_the_password_of_the_servers_is_not_for_the_sentinels(self):
        redis = load(SENTINEL | {"redis.password": "p", "redis.allow_plaintext": True}).redis
        assert redis.sentinel_login() == ()

    @pytest.mark.parametrize("form", [{}, SENTINEL, CLUSTER | {"redis.tls": True, "redis.ssl_check_hostname": False}])
    def test_shown_settings_are_read_back_as_the_same(self, form, tmp_path):
        loaded = load(form)
        assert Settings.load(write(tmp_path, show(loaded)), environ={}).redis == loaded.redis

    @pytest.mark.parametrize("form", [{}, SENTINEL, CLUSTER])
    def test_nothing_is_sent_before_the_first_question(self, form):
        # None of these names can be looked up.
        with connect_backend(load(form)) as backend:
            assert backend.mode == form.get("redis.mode", "single")

    @pytest.mark.parametrize("url", ["unix:///run/redis.sock?db=3", "unix://u:p%40@/run/redis.sock?db=3"])
    def test_a_socket_of_this_machine_is_connected_with_and_without_a_login(self, url):
        with connect_backend(load({"redis.url": url})) as backend:
            arguments = backend.shared_servers.client.connection_pool.connection_kwargs
        assert (arguments["path"], arguments["db"]) == ("/run/redis.sock", 3)
        assert arguments.get("password") == ("p@" if "@" in url else None)

    def test_the_url_may_have_a_user_whose_password_is_a_key_or_who_needs_none(self):
        assert load({"redis.url": "redis://u@localhost", "redis.password": "p"}).redis.login() == ("u", "p")
        assert load({"redis.url": "redis://u:@localhost"}).redis.login() == ("u", "")

    def test_an_end_of_a_line_in_a_password_leaves_no_login_in_the_address(self):
        assert load({"redis.url": "redis://u:secret\r@[::1]:1/2"}).redis.url_without_login == "redis://[::1]:1/2"


@pytest.mark.parametrize(
    ("given", "key", "said"),
    [
        ({"redis.url": None}, "redis.url", 'is missing; needed: "redis://HOST:PORT/DB"'),
        ({"redis.nodes": "n:1"}, "redis.mode", 'nodes need mode = "sentinel" or "cluster"'),
        ({"redis.url": None, "redis.nodes": "n:1"}, "redis.mode", 'nodes need mode = "sentinel" or "cluster"'),
        ({"redis.tls": True}, "redis.tls", "write rediss:// in url"),
        ({"redis.mode": "sentinel-2"}, "redis.mode", '"single" or "sentinel" or "cluster"'),
        ({"redis.sentinel_service": "index"}, "redis.sentinel_service", 'mode = "single" asks no Sentinel'),
        (CLUSTER | {"redis.sentinel_username": "u"}, "redis.sentinel_username", 'mode = "cluster" asks no Sentinel'),
        (CLUSTER | {"redis.url": "redis://h"}, "redis.url", "name the servers in nodes"),
        (CLUSTER | {"redis.nodes": None}, "redis.nodes", 'is missing; needed: servers as "host:port"'),
        (CLUSTER | {"redis.nodes": "n-1"}, "redis.nodes", 'allowed: servers as "host:port"'),
        (CLUSTER | {"redis.nodes": "redis://n-1:1"}, "redis.nodes", 'allowed: servers as "host:port"'),
        (SENTINEL | {"redis.nodes": ".s-1:26379"}, "redis.nodes", '".s-1:26379" is not valid'),
        (CLUSTER | {"redis.nodes": f"{'n' * 64}:1"}, "redis.nodes", 'allowed: servers as "host:port"'),
        (CLUSTER | {"redis.password": "p"}, "redis.tls", "a password is sent in clear to another machine"),
        (CLUSTER | {"redis.ssl_ca_file": CERTIFICATE}, "redis.ssl_ca_file", "is given, but tls is false"),
        (CLUSTER | {"redis.username": "u"}, "redis.password", "is missing; username needs it"),
        (SENTINEL | {"redis.sentinel_service": None}, "redis.sentinel_service", "the name under which"),
        (SENTINEL | {"redis.sentinel_username": "u"}, "redis.sentinel_password", "sentinel_username needs it"),
        (SENTINEL | {"redis.sentinel_password": "p"}, "redis.tls", "a password is sent in clear"),
        (SENTINEL | {"redis.nodes": None}, "redis.nodes", "is missing"),
        ({"redis.ssl_ca_file": CERTIFICATE, "redis.url": "unix:///s"}, "redis.ssl_ca_file", "write rediss://"),
        ({"redis.credential_provider": "os.path"}, "redis.credential_provider", '"package.module:function"'),
        ({"redis.credential_provider": "no.such:f"}, "redis.credential_provider", "cannot be imported (ModuleNotFound"),
        ({"redis.credential_provider": "json:no_such"}, "redis.credential_provider", "no function of json: no_such"),
        (PROVIDER | {"redis.password": "p"}, "redis.credential_provider", "and so is username or password"),
        (PROVIDER | {"redis.url": "redis://u@localhost"}, "redis.credential_provider", "and so is username"),
        (PROVIDER | {"redis.url": "redis://elsewhere"}, "redis.url", "sends a login in clear to another machine"),
        (CLUSTER | PROVIDER, "redis.tls", "a password is sent in clear to another machine"),
    ],
)
def test_a_contradiction_is_one_line_with_the_full_name_of_its_key(given, key, said):
    check_mistake(given, key, said, of_item=True)


def test_no_word_is_needed_for_a_password_that_stays_on_this_machine():
    here = {"redis.nodes": "localhost:1,127.0.0.1:2,[::1]:3", "redis.password": "p"}
    assert load(CLUSTER | here).redis.login() == ("p",)


def test_a_url_in_the_place_of_a_node_does_not_give_its_password_away():
    (line,) = mistakes(CLUSTER | {"redis.nodes": f"redis://u:{CANARY}@n:1"})
    assert CANARY not in line


def test_bands_with_more_candidates_than_are_compared_are_hinted_at():
    low = {"profiles.a.shingle_unit": "char", "profiles.a.threshold": 0.5, "profiles.a.recall_from": 0.5}
    (hint,) = load(low).hint_lines()
    assert hint.startswith("profiles.a.max_candidates: is 500, but 35 x 3 (bands x rows) give a document some 1,4")
    assert "candidates below similarity 0.5 in" in hint
    (lower,) = load(low | {"profiles.a.threshold": 0.1}).hint_lines()
    assert "candidates below similarity 0.1 in" in lower
    counts = [int(re.search(r"some ([\d,]+) candidates", text)[1].replace(",", "")) for text in (hint, lower)]
    assert counts[1] < 0.9 * counts[0]  # those between 0.1 and 0.5 are right candidates of the lower threshold
    wider = {"profiles.a.permutations": 288, "profiles.a.bands": 72, "profiles.a.rows": 4}
    for cure in (wider, {"profiles.a.max_candidates": "none"}, {"profiles.a.shingle_unit": "word"}):
        assert list(load(low | cure).hint_lines()) == [], cure


def test_shards_without_a_cluster_are_allowed_and_hinted_at():
    (hint,) = load({"redis.shards": 4}).hint_lines()
    assert hint == "redis.shards: is 4, which costs time and helps on a cluster only"
    assert list(load(CLUSTER | {"redis.shards": 4}).hint_lines()) == []


def test_the_check_prints_hints_and_succeeds(tmp_path):
    path = write(tmp_path, show(load()))
    checked = CliRunner().invoke(cli.app, ["config", "check", "--config", str(path), "--set", "redis.shards=4"])
    assert checked.exit_code == 0
    assert checked.output.endswith("hint: redis.shards: is 4, which costs time and helps on a cluster only\n")
