"""The ways in which Redis is run, as settings: accepted, handed on, and contradicted in one line each."""

import pytest
from test_settings import CANARY, load, mistakes
from typer.testing import CliRunner

from streamdedup.cli import main as cli
from streamdedup.indexes import connect_store
from streamdedup.settings import Settings, show
from tests.canaries import KEY_PASSWORD, TLS

CERTIFICATE = str(TLS / "certificate.pem")
SENTINEL = {
    "redis.url": None,
    "redis.mode": "sentinel",
    "redis.nodes": "s-1:26379,s-2:26379",
    "redis.sentinel_service": "index",
}
CLUSTER = {"redis.url": None, "redis.mode": "cluster", "redis.nodes": ["n-1:6379", "[::1]:6380"]}


class TestAccepted:
    def test_a_cluster(self):
        redis = load(CLUSTER | {"redis.shards": 8}).redis
        assert redis.addresses == [("n-1", 6379), ("::1", 6380)]
        assert (redis.shown_url, redis.address) == ("cluster n-1:6379,[::1]:6380", "n-1:6379,[::1]:6380")
        assert redis.security() == {}

    def test_sentinels_with_logins_of_their_own(self):
        login = {
            "redis.username": "u",
            "redis.password": "p",
            "redis.sentinel_username": "su",
            "redis.sentinel_password": "sp",
            "redis.database": "3",
            "redis.tls": "true",
            "redis.ssl_ca_file": CERTIFICATE,
        }
        redis = load(SENTINEL | login).redis
        tls = {"ssl": True, "ssl_check_hostname": True, "ssl_ca_certs": CERTIFICATE}
        assert redis.security() == {"username": "u", "password": "p", **tls}
        assert redis.sentinel_security() == {"username": "su", "password": "sp", **tls}
        assert redis.database == 3
        assert redis.shown_url == "sentinel index at s-1:26379,s-2:26379"

    def test_the_password_of_the_servers_is_not_for_the_sentinels(self):
        redis = load(SENTINEL | {"redis.password": "p", "redis.allow_plaintext": True}).redis
        assert redis.sentinel_security() == {}

    def test_a_key_that_is_locked(self):
        files = {"redis.ssl_cert_file": CERTIFICATE, "redis.ssl_key_file": str(TLS / "encrypted.key")}
        redis = load({"redis.url": "rediss://db", **files, "redis.ssl_key_password": KEY_PASSWORD}).redis
        assert redis.security()["ssl_password"] == KEY_PASSWORD
        assert "ssl" not in redis.security()

    @pytest.mark.parametrize("form", [{}, SENTINEL, CLUSTER | {"redis.tls": True, "redis.ssl_check_hostname": False}])
    def test_shown_settings_are_read_back_as_the_same(self, form, tmp_path):
        loaded = load(form)
        path = tmp_path / "shown.toml"
        path.write_text(show(loaded), encoding="utf-8")
        assert Settings.load(path, environ={}).redis == loaded.redis

    @pytest.mark.parametrize("form", [{}, SENTINEL, CLUSTER])
    def test_nothing_is_sent_before_the_first_question(self, form):
        # None of these names can be looked up.
        with connect_store(load(form)) as servers:
            assert servers.mode == form.get("redis.mode", "single")


@pytest.mark.parametrize(
    ("given", "key", "said"),
    [
        ({"redis.url": None}, "redis.url", 'is missing; needed: "redis://HOST:PORT/DB"'),
        ({"redis.nodes": "n:1"}, "redis.mode", 'nodes need mode = "sentinel" or "cluster"'),
        ({"redis.url": None, "redis.nodes": "n:1"}, "redis.mode", 'nodes need mode = "sentinel" or "cluster"'),
        ({"redis.database": 1}, "redis.database", "write it into url"),
        ({"redis.tls": True}, "redis.tls", "write rediss:// in url"),
        ({"redis.mode": "sentinel-2"}, "redis.mode", '"single" or "sentinel" or "cluster"'),
        ({"redis.sentinel_service": "index"}, "redis.sentinel_service", 'mode = "single" asks no Sentinel'),
        (CLUSTER | {"redis.sentinel_username": "u"}, "redis.sentinel_username", 'mode = "cluster" asks no Sentinel'),
        (CLUSTER | {"redis.url": "redis://h"}, "redis.url", "name the servers in nodes"),
        (CLUSTER | {"redis.nodes": None}, "redis.nodes", 'is missing; needed: servers as "host:port"'),
        (CLUSTER | {"redis.nodes": "n-1"}, "redis.nodes", 'allowed: servers as "host:port"'),
        (CLUSTER | {"redis.nodes": "redis://n-1:1"}, "redis.nodes", 'allowed: servers as "host:port"'),
        (CLUSTER | {"redis.database": 2}, "redis.database", "is 2, but a cluster has database 0 only"),
        (CLUSTER | {"redis.database": -1}, "redis.database", "a whole number from 0"),
        (CLUSTER | {"redis.password": "p"}, "redis.tls", "a password is sent in clear to another machine"),
        (CLUSTER | {"redis.ssl_ca_file": CERTIFICATE}, "redis.ssl_ca_file", "is given, but tls is false"),
        (CLUSTER | {"redis.username": "u"}, "redis.password", "is missing; username needs it"),
        (SENTINEL | {"redis.sentinel_service": None}, "redis.sentinel_service", "the name under which"),
        (SENTINEL | {"redis.sentinel_username": "u"}, "redis.sentinel_password", "sentinel_username needs it"),
        (SENTINEL | {"redis.sentinel_password": "p"}, "redis.tls", "a password is sent in clear"),
        (SENTINEL | {"redis.nodes": None}, "redis.nodes", "is missing"),
        (
            {"redis.url": "rediss://db", "redis.ssl_key_password": "p"},
            "redis.ssl_key_password",
            "there is no ssl_key_file that it could belong to",
        ),
        ({"redis.ssl_ca_file": CERTIFICATE, "redis.url": "unix:///s"}, "redis.ssl_ca_file", "write rediss://"),
    ],
)
def test_a_contradiction_is_one_line_with_the_full_name_of_its_key(given, key, said):
    lines = mistakes(given)
    assert len(lines) == 1, lines
    assert lines[0].startswith((f"{key}: ", f"{key}[0]: "))
    assert said in lines[0]


def test_no_word_is_needed_for_a_password_that_stays_on_this_machine():
    here = {"redis.nodes": "localhost:1,127.0.0.1:2,[::1]:3", "redis.password": "p"}
    assert load(CLUSTER | here).redis.security() == {"password": "p"}


def test_a_url_in_the_place_of_a_node_does_not_give_its_password_away():
    (line,) = mistakes(CLUSTER | {"redis.nodes": f"redis://u:{CANARY}@n:1"})
    assert CANARY not in line


PROFILE = "profiles.a"


def test_bands_that_miss_the_minimum_recall_are_allowed_and_hinted_at():
    (hint,) = load({f"{PROFILE}.bands": 4, f"{PROFILE}.rows": 5}).hints()
    assert hint.startswith(f"{PROFILE}.bands: 4 x 5 (bands x rows) find 0.7957 of the pairs at similarity 0.8, below")
    assert list(load({f"{PROFILE}.bands": 12, f"{PROFILE}.rows": 5}).hints()) == []


def test_bands_with_more_candidates_than_are_compared_are_hinted_at():
    low = {f"{PROFILE}.shingle_unit": "char", f"{PROFILE}.threshold": 0.5}
    (hint,) = load(low).hints()
    assert hint.startswith(f"{PROFILE}.max_candidates: is 500, but 35 x 3 (bands x rows) give a document some 1,4")
    wider = {f"{PROFILE}.permutations": 288, f"{PROFILE}.bands": 72, f"{PROFILE}.rows": 4}
    for cure in (wider, {f"{PROFILE}.max_candidates": "none"}, {f"{PROFILE}.shingle_unit": "word"}):
        assert list(load(low | cure).hints()) == [], cure


def test_shards_without_a_cluster_are_allowed_and_hinted_at():
    (hint,) = load({"redis.shards": 4}).hints()
    assert hint == "redis.shards: is 4, which costs time and helps on a cluster only"
    assert list(load(CLUSTER | {"redis.shards": 4}).hints()) == []


def test_the_check_prints_hints_and_succeeds(tmp_path):
    path = tmp_path / "streamdedup.toml"
    path.write_text(show(load()), encoding="utf-8")
    checked = CliRunner().invoke(cli.app, ["config", "check", "--config", str(path), "--set", "redis.shards=4"])
    assert checked.exit_code == 0
    assert checked.output.endswith("hint: redis.shards: is 4, which costs time and helps on a cluster only\n")
