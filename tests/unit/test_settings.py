import json
import os
import re
import shutil
import traceback
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka import KafkaConsumer
from kafka.errors import KafkaTimeoutError
from pydantic import ValidationError

from streamdedup.cli.assembly import file_decoder, kafka_options, pipeline
from streamdedup.counts import counted
from streamdedup.errors import SettingsError
from streamdedup.index.fingerprints import ADVISORY_PARAMETERS
from streamdedup.index.memory import MemoryIndex
from streamdedup.settings import Profile, Settings, describe_banding, show
from streamdedup.settings.base import keys_of, secrets_of
from streamdedup.settings.kinds import (
    BYTES,
    SECONDS,
    format_duration,
    format_moment,
    format_size,
    parse_duration,
    parse_flag,
    parse_moment,
    parse_number,
    parse_size,
)
from streamdedup.settings.presets import default_profile_name, named_profile
from streamdedup.settings.schema import SECTIONS
from streamdedup.similarity.containment import ContainmentRule
from streamdedup.similarity.lsh import Banding, choose_banding
from streamdedup.similarity.measures import MEASURES
from streamdedup.text.shingles import ShingleOptions
from streamdedup.text.stop_learning import learn_stop_shingles
from streamdedup.text.stop_words import ENGLISH_STOP_WORDS
from tests.canaries import KEY_PASSWORD, TLS
from tests.thoroughness import examples

SMALLEST = """
[kafka]
bootstrap_servers = "localhost:9092"

[redis]
url = "redis://localhost:6379/0"

[profiles.articles]
topics = ["articles"]
"""

#: The same as overrides.
BASE = {
    "kafka.bootstrap_servers": "localhost:9092",
    "redis.url": "redis://localhost:6379/0",
    "profiles.a.topics": "articles",
}

#: A login to Kafka without its password.
LOGIN = {"kafka.security_protocol": "SASL_SSL", "kafka.sasl_mechanism": "PLAIN", "kafka.sasl_username": "u"}

#: Stands in every place that must never be shown.
CANARY = KEY_PASSWORD


#: Allowed values in messages.
EXAMPLES = ', such as "500ms", "90s", "5m", "12h" or "30d"'
URLS = '"redis://HOST:PORT/DB", "rediss://HOST:PORT/DB" or "unix:///PATH?db=DB"'
NO_SCHEME = "it does not begin with redis://, rediss:// or unix://"
SERVERS = 'servers as "host:port", as a list or with commas between them'
TOPICS = "one or more names of topics, none twice, as a list or with commas between them"


def load(overrides=None, environ=None, path=None):
    """Load the smallest settings; an override of a whole table replaces theirs."""
    overrides = overrides or {}
    base = {key: value for key, value in BASE.items() if not any(key.startswith(f"{name}.") for name in overrides)}
    return Settings.load(path, base | overrides, environ or {})


def refused(load_settings, *arguments):
    """Return the lines of the error."""
    with pytest.raises(SettingsError) as raised:
        load_settings(*arguments)
    return str(raised.value).splitlines()


def mistakes(overrides=None, environ=None, path=None):
    return refused(load, overrides, environ, path)


def keys_named(lines):
    """Return what the lines of an error begin with: the key, or the variable."""
    return [line.partition(":")[0] for line in lines]


def check_mistake(overrides, key, said, *, of_item=False):
    """Check that there is one mistake, in a key or, where the caller allows it, in an item of its list."""
    lines = mistakes(overrides)
    assert len(lines) == 1, lines
    assert lines[0].startswith((f"{key}: ", f"{key}[") if of_item else f"{key}: ")
    assert said in lines[0]


def write(folder, text, name="streamdedup.toml"):
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_the_environment_beats_the_file_and_the_command_line_beats_both(tmp_path):
    path = write(tmp_path, SMALLEST.replace("[redis]", "batch_records = 1\n[redis]"))
    variable = {"STREAMDEDUP_KAFKA__BATCH_RECORDS": "2"}
    assert Settings.load(path, {}, {}).kafka.batch_records == 1
    assert Settings.load(path, {}, variable).kafka.batch_records == 2
    assert Settings.load(path, {"kafka.batch_records": 3}, variable).kafka.batch_records == 3
    assert Settings.load(path, {"kafka": {"batch_records": 3}}, variable).kafka.batch_records == 3
    assert Settings.load(path, {"kafka.batch_records": None}, variable).kafka.batch_records == 2


def test_a_variable_names_the_file_where_the_caller_does_not(tmp_path):
    path = write(tmp_path, SMALLEST)
    assert Settings.load(None, {}, {"STREAMDEDUP_CONFIG": str(path)}).profiles["articles"].topics == ("articles",)


def test_variables_reach_into_profiles_and_may_make_one():
    environ = {"STREAMDEDUP_PROFILES__A__THRESHOLD": "0.7", "STREAMDEDUP_PROFILES__MY__OWN__TOPICS": "x, y"}
    loaded = load({"profiles.hot-news.topics": ["news"]}, environ)
    assert loaded.profiles["a"].threshold == 0.7
    assert loaded.profiles["my__own"].topics == ("x", "y")


def test_a_hyphen_in_a_profiles_name_is_an_underscore_in_a_variable(tmp_path):
    path = write(tmp_path, SMALLEST.replace("articles", "hot-news"))
    loaded = Settings.load(path, {}, {"STREAMDEDUP_PROFILES__HOT_NEWS__THRESHOLD": "0.7"})
    assert list(loaded.profiles) == ["hot-news"]
    assert loaded.profiles["hot-news"].threshold == 0.7


def test_a_variable_set_to_nothing_counts_as_not_set():
    assert load({}, {"STREAMDEDUP_KAFKA__GROUP_ID": ""}).kafka.group_id == "streamdedup"


@pytest.mark.parametrize("name", ["OTHER_KAFKA__GROUP", "_STREAMDEDUP_COMPLETE"])
def test_variables_of_other_programs_are_left_alone(name):
    assert load({}, {name: "tcp://10.0.0.1:9464"}).service.metrics_port == 9464


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("STREAMDEDUP_KAFKA__BOOTSTRAP_SERVER", "kafka.bootstrap_servers"),
        ("STREAMDEDUP_PROFILES__A__TRESHOLD", "profiles.a.threshold"),
    ],
)
def test_an_unknown_variable_is_a_mistake_that_names_the_key_meant(name, meant):
    assert mistakes({}, {name: CANARY}) == [f"{name}: unknown key; did you mean {meant}?"]


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("STREAMDEDUP_KAFKA_GROUP_ID", "STREAMDEDUP_KAFKA__GROUP_ID"),
        ("STREAMDEDUP__REDIS__URL", "STREAMDEDUP_REDIS__URL"),
        ("STREAMDEDUP_PROFILES_HOT_NEWS_THRESHOLD", "STREAMDEDUP_PROFILES__HOT_NEWS__THRESHOLD"),
    ],
)
def test_a_variable_with_other_underscores_is_named_as_it_must_be(tmp_path, name, meant):
    path = write(tmp_path, SMALLEST.replace("articles", "hot-news"))
    assert mistakes({}, {name: CANARY}, path) == [f"{name}: did you mean {meant}?"]


def test_a_key_of_the_same_table_is_meant_before_one_of_another():
    assert mistakes({"redis.usernme": "x"}) == ["redis.usernme: unknown key; did you mean redis.username?"]


def test_every_mistake_is_one_line_with_the_keys_full_name(tmp_path):
    path = write(
        tmp_path,
        """
group_id = "x"
[kafak]
[kafka]
batch_records = 0
bootstrap_server = "localhost:9092"
threshold = 0.5
[redis]
url = "http://localhost"
[profiles.a]
topics = ["x", 3]
retention = 30
threshold = 1.5
[profiles."B!"]
topics = "y"
""",
    )
    lines = refused(Settings.load, path, {}, {"STREAMDEDUP_KAFKA__SESSION_TIMEOUT": "45"})
    assert sorted(lines) == sorted(
        [
            f"kafka.bootstrap_servers: is missing; needed: {SERVERS}",
            "kafka.batch_records: 0 is not valid; allowed: a whole number from 1 up to 10000",
            f'kafka.session_timeout: "45" is not valid; allowed: a duration from 1s up to 30m{EXAMPLES}',
            "kafka.bootstrap_server: unknown key; did you mean kafka.bootstrap_servers?",
            "kafka.threshold: unknown key; did you mean profiles.NAME.threshold?",
            f"redis.url: the value (not shown) is not valid: {NO_SCHEME}; allowed: {URLS}",
            f"profiles.a.topics[1]: 3 is not valid; allowed: {TOPICS}",
            "profiles.a.threshold: 1.5 is not valid; allowed: a number above 0 up to 1",
            f"profiles.a.retention: 30 is not valid; allowed: a duration from 1s up to 36500d{EXAMPLES}",
            'profiles: "B!" is not a profile\'s name; allowed: 1 to 32 of a-z, 0-9, _ and -',
            "group_id: unknown key; did you mean kafka.group_id?",
            "kafak: unknown key; did you mean kafka?",
        ]
    )


def test_without_settings_the_message_explains_how_to_name_a_file():
    assert keys_named(refused(Settings.load, None, {}, {})) == [
        "no settings file; name one with --config or STREAMDEDUP_CONFIG",
        "kafka.bootstrap_servers",
        "redis.url",
        "profiles",
    ]


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("kafka", 3, "kafka: is 3, not a table; needed: keys under [kafka]"),
        ("profiles", "x", 'profiles: is "x", not a table; needed: keys under [profiles.NAME]'),
        ("profiles.a", 3, "profiles.a: is 3, not a table; needed: keys under [profiles.a]"),
        ("kafka.bootstrap_servers", "localhost", '"localhost" is not valid'),
        ("kafka.bootstrap_servers", "h:99999", '"h:99999" is not valid'),
        ("kafka.bootstrap_servers", "broker..example:1", '"broker..example:1" is not valid'),
        ("kafka.bootstrap_servers", [], "kafka.bootstrap_servers: is empty; needed: servers as"),
        ("kafka.batch_records", True, "true is not valid"),
        ("kafka.batch_records", 1.0, "1.0 is not valid"),
        ("kafka.batch_records", "many", '"many" is not valid'),
        ("kafka.group_id", 5, "5 is not valid"),
        ("kafka.delivery", "exactly_once", 'allowed: "exactly-once" or "at-least-once"'),
        ("kafka.duplicates_topic", "a b", '"a b" is not valid'),
        ("kafka.duplicates_topic", "..", '".." is not valid'),
        ("kafka.api_version", 2.8, "2.8 is not valid"),
        ("kafka.api_version", "2.0", '"2.0" is not valid; allowed: a version from 2.1 on'),
        ("kafka.ssl_check_hostname", "yes", "allowed: true or false"),
        ("kafka.max_message_bytes", "1 TiB", '"1 TiB" is not valid'),
        ("kafka.max_message_bytes", "0.3B", '"0.3B" is not valid'),
        ("kafka.instance_id", "a/b", "1 to 64 letters"),
        ("kafka.instance_id", "pod-0\n", "1 to 64 letters"),
        ("kafka.group_instance_id", "pod-0\n", "1 to 64 letters"),
        ("kafka.copy_headers", ["traceparent\n"], "allowed: at most 32 names of headers"),
        ("kafka.copy_headers", ["name"] * 33, "allowed: at most 32 names of headers"),
        ("kafka.sasl_token_url", "https://h/token?p=policy", "allowed: a URL without login, query or fragment"),
        ("kafka.session_timeout", "0.5s", '"500ms" is not valid; allowed: a duration from 1s'),
        ("redis.shards", "4x", '"4x" is not valid'),
        ("service.metrics_port", 65536, "a whole number from 0 up to 65535"),
        ("api.tokens_file", "a\0b", '"a\\u0000b" is not valid; allowed: the path of a file'),
        ("api.tokens_file", "\ud800", "allowed: the path of a file"),
        ("api.allowed_hosts", "dedup.example:80", '"dedup.example:80" is not valid; allowed: at most 256 host names'),
        ("api.allowed_hosts", ["serve", "*.example"], '"*.example" is not valid'),
        ("api.allowed_hosts", "fe80::1%eth0", '"fe80::1%eth0" is not valid'),
        ("api.allowed_hosts", "", '"" is not valid'),
        ("api.allowed_hosts", 5, "5 is not valid"),
        ("profiles.a.threshold", 0, "0 is not valid; allowed: a number above 0 up to 1"),
        ("profiles.a.threshold", float("nan"), "nan is not valid"),
        ("profiles.a.topics", [], f"profiles.a.topics: is empty; needed: {TOPICS}"),
        ("profiles.a.text_fields", [], "profiles.a.text_fields: is empty; needed: one or more names of fields"),
        ("profiles.a.text_fields", ["", "x"], "one or more names of fields"),
        ("profiles.a.exact_limit", -1, 'a whole number from 0, or "none" for no limit'),
        ("profiles.a.bucket_cap", False, "false is not valid"),
        ("profiles.a.op_field", "", "the name of a field"),
        ("profiles.a.id_field", "a\nb", "the name of a field, without quotes, backslashes and control characters"),
        ("profiles.a.source_field", "a\udc80", "the name of a field, without"),
        ("profiles.a.text_fields", ["title", 'a"b'], "one or more names of fields without quotes"),
        ("profiles.a.only_sources", 5, "5 is not valid; allowed: names of sources"),
        ("profiles.a.ignore_same_source", "maybe", "allowed: true or false"),
        ("profiles.a.ignore_sources", "a,b", '"a,b" is not valid; allowed: a list of pairs of sources'),
        ("profiles.a.ignore_sources", ["a"], '"a" is not valid; allowed: a list of pairs'),
        ("profiles.a.ignore_sources", [["a"]], "a list is not valid; allowed: a list of pairs"),
        ("profiles.a.ignore_sources", [["a", "b", "c"]], 'such as [["a", "b"], ["a", "c"]]'),
        ("profiles.a.ignore_sources", [["a", ""]], '"" is not valid'),
        ("profiles.a.min_shingles", -1, "a whole number from 0"),
        # A stored text with more words would count as one with fewer.
        ("profiles.a.min_words", 65_536, "a whole number from 0 up to 65535"),
    ],
)
def test_a_wrong_value_is_reported_with_the_allowed_ones(key, value, said):
    check_mistake({key: value}, key, said, of_item=True)


@pytest.mark.parametrize("key", ["kafka.batch_records", "profiles.a.bucket_cap", "profiles.a.max_candidates"])
def test_a_number_that_cannot_be_written_is_refused(key):
    digits = 16**4_000  # as a hexadecimal number of TOML; Python writes no decimal number of this length
    for value in (digits, -digits):
        check_mistake({key: value}, key, "a number of more than 60 digits is not valid")


def test_the_name_of_a_field_may_be_long():
    assert load({"profiles.a.id_field": "x" * 500})


def test_every_wrong_item_of_a_list_is_named():
    lines = mistakes({"kafka.bootstrap_servers": "h,i:1,j"})
    assert keys_named(lines) == ["kafka.bootstrap_servers[0]", "kafka.bootstrap_servers[2]"]


@pytest.mark.parametrize(
    ("overrides", "keys"),
    [
        ({"kafka.batch_records": 0, "kafka.dead_letter_topic": "duplicates"}, {"kafka.dead_letter_topic"}),
        ({"redis.shards": 0, "redis.username": "u"}, {"redis.password"}),
        ({"profiles.a.threshold": 2, "profiles.b.topics": "articles"}, {"profiles.b.topics"}),
        ({"profiles.a.permutations": -1, "profiles.a.bands": 8, "profiles.a.min_words": -1}, {"profiles.a.rows"}),
        ({"kafka": 3, "profiles.a.bands": 8}, {"profiles.a.rows"}),
        # What is said of a wrong value is enough, and nothing is made of what it may have been meant to be.
        ({"profiles.a.bands": 8, "profiles.a.rows": "x"}, set()),
        ({"redis.mode": "sentinell", "redis.url": None, "redis.nodes": "n:1"}, set()),
        ({"kafka.security_protocol": "SASL", "kafka.sasl_username": "u"}, set()),
        ({"kafka.group_instance_id": "a", "kafka.instance_id": "/"}, set()),
    ],
)
def test_contradictions_are_reported_together_with_wrong_values(overrides, keys):
    lines = mistakes(overrides)
    contradictions = [line for line in lines if " is not valid" not in line and "not a table" not in line]
    assert set(keys_named(contradictions)) == keys
    assert len(contradictions) == len(keys) < len(lines)


@pytest.mark.parametrize(
    ("overrides", "key", "said"),
    [
        ({"kafka.dead_letter_topic": "duplicates"}, "kafka.dead_letter_topic", "a topic each"),
        ({"kafka.duplicates_topic": "d" * 246}, "kafka.dead_letter_topic", "is missing; <duplicates_topic>.dlq has"),
        ({"profiles.b.topics": "articles"}, "profiles.b.topics", "belongs to profiles.a already"),
        ({"kafka.transaction_timeout": "5m"}, "kafka.transaction_timeout", "below max_poll_interval"),
        ({"kafka.session_timeout": "301s"}, "kafka.session_timeout", "not be above max_poll_interval"),
        ({"kafka.group_instance_id": "a"}, "kafka.instance_id", "is missing; without it the partitions"),
        ({"kafka.api_version": "2.4"}, "kafka.api_version", "below 2.5"),
        ({"kafka.sasl_username": "u"}, "kafka.sasl_username", "but security_protocol = PLAINTEXT does not log"),
        (LOGIN, "kafka.sasl_password", "is missing; security_protocol = SASL_SSL needs it"),
        ({"kafka.ssl_ca_file": str(TLS / "certificate.pem")}, "kafka.ssl_ca_file", "is given, but security_protocol"),
        ({"kafka.ssl_ca_file": "/nonexistent", "kafka.security_protocol": "SSL"}, "kafka.ssl_ca_file", "no file"),
        ({"redis.username": "u"}, "redis.password", "is missing"),
        ({"redis.url": "redis://:p@localhost", "redis.password": "p"}, "redis.password", "given twice"),
        ({"redis.url": "redis://example.org/0", "redis.password": "p"}, "redis.url", "allow_plaintext"),
        ({"redis.url": "redis://:p@10.0.0.1/0"}, "redis.url", "allow_plaintext"),
        ({"redis.url": "redis://p@10.0.0.1/0"}, "redis.url", "write redis://:PASSWORD@HOST for a password alone"),
        ({"redis.url": "redis://u:@10.0.0.1/0"}, "redis.url", "allow_plaintext"),
        ({"api.host": "0.0.0.0"}, "api.tokens_file", "or allow_anonymous = true, with allowed_hosts"),
        ({"api.allow_anonymous": True}, "api.allowed_hosts", "the names or addresses by which clients call"),
        ({"api.tokens_file": "tokens", "api.allowed_hosts": "h"}, "api.allowed_hosts", "may name any host"),
    ],
)
def test_values_that_contradict_each_other_are_a_mistake(overrides, key, said):
    check_mistake(overrides, key, said)


def test_a_wrong_value_hides_no_repetition_in_other_keys_and_no_topic_of_other_profiles():
    wrong = {"topics": 7, "text_fields": ["a", "a"], "id_field": "\n", "op_field": "source"}
    lines = mistakes({"profiles.a": wrong, "profiles.b": {"topics": "duplicates"}})
    for said in ('profiles.a.text_fields: "a" is there 2', "profiles.a.op_field: is source", "profiles.b.topics: dup"):
        assert any(line.startswith(said) for line in lines), said


def test_a_url_with_tls_may_have_its_scheme_in_upper_case():
    tls = {"schema_registry.url": "HTTPS://registry", "schema_registry.ssl_ca_file": str(TLS / "certificate.pem")}
    assert load(tls).schema_registry.url == "HTTPS://registry"


@pytest.mark.parametrize(
    ("keys", "key", "said"),
    [
        ({"topics": "duplicates"}, "topics", "its own output"),
        ({"topics": "duplicates.dlq"}, "topics", "its own output"),
        ({"topics": "x,y,x"}, "topics", '"x" is there 2 times, and may be there once'),
        ({"text_fields": ["b", "b", "b"]}, "text_fields", '"b" is there 3 times'),
        ({"text_fields": "title,id"}, "id_field", "which text_fields names already"),
        ({"op_field": "source"}, "op_field", "which source_field names already"),
        ({"scope_field": "source"}, "scope_field", "which source_field names already"),
        ({"default_scope": "x"}, "default_scope", "needs scope_field"),
        ({"scope_field": "tenant", "default_scope": "\u00e9" * 513}, "default_scope", "is longer than 1,024 bytes"),
        ({"bands": 8}, "rows", "is missing"),
        ({"rows": 8}, "bands", "is missing"),
        ({"bands": 26, "rows": 5}, "bands", "need 130 permutations; there are 128"),
        ({"bands": 129, "rows": 1, "min_shared_bands": 120, "min_recall": 0.9}, "bands", "need 129 permutations"),
        ({"bands": 2, "rows": 5, "min_shared_bands": 3}, "min_shared_bands", "above the number of bands"),
        ({"bands": 2, "rows": 5, "min_recall": 0.9}, "min_recall", "reach 0.5480 at recall_from 0.8"),
        ({"bands": 9, "rows": 4, "recall_from": 0.7, "threshold": 0.5}, "min_recall", "is 0.99, but 9 bands of 4 rows"),
        ({"threshold": 0.9, "recall_from": 0.8}, "recall_from", "is 0.8; it must be at least threshold"),
        ({"min_shingles": 102, "exact_limit": 100}, "min_shingles", "is 102; it may be 101 at most"),
        ({"min_recall": 1.0}, "min_recall", "cannot be reached"),
        ({"permutations": 1}, "min_recall", "cannot be reached"),
        ({"keep_white_space": True}, "keep_white_space", 'shingle_unit = "char" only'),
        ({"shingle_unit": "char", "stop_words": "english"}, "stop_words", 'shingle_unit = "word" only'),
        ({"stop_words": "/nonexistent"}, "stop_words", "cannot be read"),
        ({"only_sources": "x,y,x"}, "only_sources", '"x" is there 2 times'),
        ({"ignore_sources": [["x", "y"], ["y", "x"]]}, "ignore_sources", '["x", "y"] is there 2 times'),
    ],
)
def test_values_of_a_profile_that_contradict_each_other_are_a_mistake(keys, key, said):
    check_mistake({f"profiles.a.{name}": value for name, value in keys.items()}, f"profiles.a.{key}", said)


@pytest.mark.parametrize(
    "overrides",
    [{"profiles.a.text_fields": "title,body", "profiles.a.id_field": "text"}, {"profiles.a.source_field": "\x7f é"}],
)
def test_names_of_fields_that_are_accepted_make_a_decoder(overrides):
    assert file_decoder(load(overrides).profiles["a"])


def test_the_watchdog_is_more_patient_than_a_slow_commit_and_a_silent_store():
    assert load({}).watchdog_s == 4 * load({}).kafka.transaction_timeout_s == 120
    assert load({"kafka.transaction_timeout": "1s"}).watchdog_s == 60
    assert load({"redis.timeout": "39s"}).watchdog_s == 4 * 3 * (39 + 1)
    assert load({"schema_registry.timeout": "30s", "kafka.transaction_timeout": "1s"}).watchdog_s == 4 * 30


def test_a_document_of_more_shingles_than_the_index_counts_is_long_enough_for_containment():
    rule = load({"profiles.a.containment_threshold": 0.9}).profiles["a"].containment_rule()
    assert rule.min_shingles == 20
    few = {"profiles.a.containment_threshold": 0.9, "profiles.a.exact_limit": 0}
    assert load(few).profiles["a"].containment_rule().min_shingles == 1


def test_static_membership_needs_no_instance_id_where_there_are_no_transactions():
    assert load({"kafka.group_instance_id": "a", "kafka.delivery": "at-least-once"})
    assert load({"kafka.group_instance_id": "a", "kafka.instance_id": "a"})


def test_a_service_without_tokens_may_name_its_hosts():
    api = load({"api.allow_anonymous": True, "api.host": "0.0.0.0", "api.allowed_hosts": "dedup.example"}).api
    assert api.allowed_hosts == ("dedup.example",)


@pytest.mark.parametrize("timeout", ["1s", "45s"])
def test_a_record_is_tried_twice_and_given_up_before_its_transaction_is_aborted(timeout):
    options = kafka_options(load({"kafka.transaction_timeout": timeout}))
    assert 2 * options.produce_timeout_s < options.delivery_timeout_s < options.transaction_timeout_s


def test_the_preset_for_news_is_the_example_and_finds_pairs_from_its_recall_from_on():
    news = named_profile(None, "news", {})
    assert (news.threshold, news.containment_threshold, news.recall_from) == (0.5, 0.8, 0.6)
    assert news.recall(0.6) >= 0.99 > news.recall(0.5)
    articles = named_profile(None, "articles", {})
    assert (articles.threshold, articles.containment_threshold, articles.recall_from) == (0.8, 0.8, 0.8)
    assert (
        articles.configured_recall_from()
        == named_profile(None, "articles", {"threshold": 0.9}).configured_recall_from()
        == 0.8
    )
    assert news.configured_recall_from() == 0.6


def test_a_built_in_profile_keeps_what_no_option_changes():
    profile = named_profile(None, "reviews", {"shingle_unit": None, "threshold": 0.7})
    assert (profile.shingle_unit, profile.threshold) == ("char", 0.7)


def test_login_without_tls_needs_a_word_unless_the_server_is_here():
    login = {"kafka.security_protocol": "sasl_plaintext", "kafka.sasl_mechanism": "plain"}
    login = LOGIN | login | {"kafka.sasl_password": CANARY}
    assert load({**login, "kafka.bootstrap_servers": "127.0.0.1:1,[::1]:2"}).kafka.sasl_mechanism == "PLAIN"
    elsewhere = {**login, "kafka.bootstrap_servers": "localhost:1,broker:2"}
    assert "allow_plaintext = true" in mistakes(elsewhere)[0]
    assert load({**elsewhere, "kafka.allow_plaintext": "true"}).kafka.allow_plaintext
    assert load({"redis.url": "redis://:p@db/0", "redis.allow_plaintext": True}).redis.allow_plaintext


def test_one_transactional_id_for_each_instance_and_none_without_transactions():
    assert load({"kafka.instance_id": "pod-0"}).kafka.transactional_id == "streamdedup-streamdedup-pod-0"
    assert load().kafka.transactional_id != load().kafka.transactional_id
    assert load({"kafka.delivery": "at-least-once"}).kafka.transactional_id is None


def test_settings_cannot_be_changed():
    with pytest.raises(ValidationError):
        load().kafka.group_id = "other"


# Files


def test_a_file_that_cannot_be_read_is_one_mistake(tmp_path):
    missing = tmp_path / "missing.toml"
    broken = write(tmp_path, "[kafka\n")
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"[kafka]\ngroup_id = '\xff'\n")
    assert mistakes(path=missing) == [f"{missing}: cannot be read: No such file or directory"]
    assert mistakes(path=tmp_path) == [f"{tmp_path}: cannot be read: Is a directory"]
    (not_toml,) = mistakes(path=broken)
    assert not_toml.startswith(f"{broken}: is not TOML: ")
    assert mistakes(path=binary) == [f"{binary}: is not UTF-8 at byte 20"]
    for text in (f"x = {'[' * 3_000}", f"x{'.x' * 3_000} = 1"):
        assert mistakes(path=write(tmp_path, text)) == [f"{broken}: is nested too deeply"]


def test_after_an_unreadable_file_no_key_is_missing_and_other_mistakes_are_reported(tmp_path):
    missing = tmp_path / "missing.toml"
    first, *others = refused(Settings.load, missing, {}, {"STREAMDEDUP_KAFKA__BATCH_RECORDS": "none"})
    assert first == f"{missing}: cannot be read: No such file or directory"
    assert keys_named(others) == ["kafka.batch_records"]


@pytest.mark.parametrize(
    ("key", "name"),
    [("kafka.ssl_ca_file", "none"), ("kafka.ssl_ca_file", "english"), ("profiles.articles.stop_shingles", "english")],
)
def test_a_file_may_be_called_like_a_word_of_another_key(tmp_path, key, name):
    section, _, last = key.rpartition(".")
    path = write(tmp_path, SMALLEST.replace(f"[{section}]", f'[{section}]\n{last} = "{name}"'))
    with pytest.raises(SettingsError, match=f"{key}: .*{tmp_path / name}"):
        Settings.load(path, {"kafka.security_protocol": "SSL"}, {})


def test_numbers_of_things_are_written_as_one_would_say_them():
    counts = [counted(number, "dead letter") for number in (0, 1, 2, 12_000)]
    assert counts == ["0 dead letters", "1 dead letter", "2 dead letters", "12,000 dead letters"]


def test_secrets_come_from_files_without_the_line_break_at_their_end(tmp_path):
    write(tmp_path, "redis://localhost:1/2\r\n", "url")
    write(tmp_path, " pass word \n", "password")
    text = SMALLEST.replace('url = "redis://localhost:6379/0"', 'url_file = "url"\npassword_file = "password"')
    loaded = Settings.load(write(tmp_path, text), {}, {})
    assert loaded.redis.url.get_secret_value() == "redis://localhost:1/2"
    assert loaded.redis.login() == (" pass word ",)
    assert loaded.redis.password_file == tmp_path / "password"


def test_a_byte_order_mark_belongs_to_no_text(tmp_path):
    write(tmp_path, "\ufeffund\r\n", "words")
    write(tmp_path, "\ufeffpass", "password")
    text = SMALLEST.replace("[redis]", '[redis]\npassword_file = "password"') + 'stop_words = "words"\n'
    loaded = Settings.load(write(tmp_path, f"\ufeff{text}"), {}, {})
    assert loaded.redis.login() == (loaded.redis.password.get_secret_value(),) == ("pass",)
    assert loaded.profiles["articles"].shingle_options().stop_words == {"und"}


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_a_file_in_utf_16_is_named(tmp_path, encoding):
    path = tmp_path / "streamdedup.toml"
    path.write_bytes(f"\ufeff{SMALLEST}".encode(encoding))
    assert mistakes(path=path) == [f"{path}: is UTF-16, not UTF-8"]


@pytest.mark.parametrize(
    ("key", "value", "mark"),
    [
        ("KAFKA__BOOTSTRAP_SERVERS", '"localhost:9092"', '"'),
        ("KAFKA__GROUP_ID", "'group'", "'"),
        ("REDIS__PASSWORD", f'"{CANARY}"', '"'),
        ("PROFILES__A__THRESHOLD", '"0.7"', '"'),
    ],
)
def test_quotation_marks_that_an_env_file_leaves_are_named(key, value, mark):
    name = key.lower().replace("__", ".")
    (line,) = mistakes(environ={f"STREAMDEDUP_{key}": value})
    assert line == f"{name}: has {mark} around its value, as an env file leaves them; remove both"


@pytest.mark.parametrize("value", ['"', "a'", "'a\"", '["a"]'])
def test_a_value_with_other_quotation_marks_is_kept(value):
    assert load(environ={"STREAMDEDUP_KAFKA__GROUP_ID": value}).kafka.group_id == value


def test_a_command_on_files_needs_a_profile_and_no_server(tmp_path):
    text = """
[kafka]
security_protocol = "SASL_SSL"
sasl_password_file = "absent"
[redis]
ssl_ca_file = "absent"
[api]
allow_anonymous = true
[profiles.own]
topics = ["duplicates"]
threshold = 0.6
"""
    path = write(tmp_path, text)
    assert len(refused(Settings.load, path, {}, {})) > 5
    assert named_profile(path, "own", {"min_words": 3}).threshold == 0.6
    assert default_profile_name(path) == "own"
    # Wrong values, unknown keys and contradictions of the profile are mistakes nevertheless.
    wrong = write(tmp_path, text.replace("[redis]", "group_ip = 1\n[redis]") + "bands = 3\n")
    with pytest.raises(SettingsError) as raised:
        named_profile(wrong, "own", {})
    assert keys_named(str(raised.value).splitlines()) == ["kafka.group_ip", "profiles.own.rows"]


@pytest.mark.parametrize(
    ("profiles", "expected"),
    [(["a"], "a"), (["a", "b"], "articles"), ([], "articles"), (["articles", "b"], "articles")],
)
def test_the_only_profile_of_a_file_need_not_be_named(tmp_path, profiles, expected):
    path = write(tmp_path, "".join(f'[profiles.{name}]\nthreshold = "wrong"\n' for name in profiles))
    assert default_profile_name(path) == expected
    assert default_profile_name(None) == default_profile_name(tmp_path / "absent.toml") == "articles"


@pytest.mark.parametrize("password", ["ab/cd+ef==", "Pa55 W0rd", "P?w#d", "a@b", "Line\nBreak"])
@pytest.mark.parametrize("key", ["schema_registry.url", "kafka.sasl_token_url", "kafka.bootstrap_servers"])
def test_no_part_of_a_login_in_an_address_is_shown(key, password):
    text = "\n".join(mistakes({key: f"https://KEY123:{password}@host/path"}))
    # Behind a `?` the `@` may also be in a query.
    assert f"https://***{'' if '?' in password else '@host/path'}" in text
    assert not any(part in text for part in ("KEY123", *re.findall(r"\w{2,}", password)))


@pytest.mark.parametrize(
    ("address", "shown_address"),
    [
        ("https://host/path?key=S3CRET", "https://host/path?***"),
        ("https://host/path#S3CRET", "https://host/path#***"),
        ("host/path?key=S3CRET", "host/path?***"),
        ("https://host/path?mail=a@b&key=S3CRET", "https://***"),
        ("https://KEY123:S3CRET@host?key=S3CRET", "https://***@host?***"),
    ],
)
def test_no_query_or_fragment_of_an_address_is_shown(address, shown_address):
    (text,) = mistakes({"schema_registry.url": address})
    assert f'"{shown_address}" is not valid' in text


@pytest.mark.parametrize("session_s", [1, 45, 1_800])
def test_a_request_of_the_consumer_ends_before_the_watchdog_does_and_the_client_takes_its_limit(session_s):
    loaded = load({"kafka.session_timeout": f"{session_s}s", "kafka.max_poll_interval": "30m"})
    options = kafka_options(loaded)
    assert options.fetch_timeout_s == min(max(10, session_s + 5), 50)
    with pytest.raises(KafkaTimeoutError):  # not for its configuration
        KafkaConsumer(**options.consumer() | {"bootstrap_servers": "localhost:1", "bootstrap_timeout_ms": 1})


@pytest.mark.parametrize(
    ("setting", "parameter"),
    [
        ("session_timeout", "session_timeout_ms"),
        ("max_poll_interval", "max_poll_interval_ms"),
        ("transaction_timeout", "transaction_timeout_ms"),
    ],
)
def test_each_time_limit_of_the_kafka_clients_has_its_own_setting(setting, parameter):
    def differing(keys):
        options = kafka_options(load(keys))
        return {key for key, value in (options.consumer() | options.producer()).items() if value == 50_500}

    assert differing({}) == set()
    assert differing({f"kafka.{setting}": "50500ms"}) == {parameter}


def test_a_secret_and_its_file_together_are_a_mistake(tmp_path):
    path = write(tmp_path, CANARY, "password")
    assert mistakes({"redis.password": CANARY}, {"STREAMDEDUP_REDIS__PASSWORD_FILE": str(path)}) == [
        "redis.password_file: given beside redis.password; give one of them"
    ]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "{file} cannot be read: No such file or directory"),
        (b"\xff", "{file} is not UTF-8 at byte 0"),
        (b"\n", "{file} is empty"),
    ],
)
def test_an_unreadable_secret_is_one_mistake_without_consequences(tmp_path, content, said):
    file = tmp_path / "secret"
    if content is not None:
        file.write_bytes(content)
    (line,) = mistakes(LOGIN | {"kafka.sasl_password_file": str(file)})
    assert line == f"kafka.sasl_password_file: {said.format(file=file)}"


@pytest.mark.timeout(60)
@pytest.mark.parametrize("kind", ["pipe", "folder", "device"])
@pytest.mark.parametrize("key", ["redis.password_file", "kafka.ssl_ca_file", "profiles.a.stop_words"])
def test_a_setting_names_a_regular_file(tmp_path, key, kind):
    path = tmp_path / "file"
    {"pipe": os.mkfifo, "folder": os.mkdir, "device": lambda path: path.symlink_to("/dev/zero")}[kind](path)
    said = "names no file that can be read:" if key == "kafka.ssl_ca_file" else "is no regular file"
    check_mistake({"kafka.security_protocol": "SSL", key: str(path)}, key, said)


@pytest.mark.parametrize("key", ["api.host", "service.metrics_host"])
@pytest.mark.parametrize(
    "host",
    ["*", "", ":", "[]", "[::1", "[::1]:80", "localhost:80", "http://a", "a/b", "a b", "256.0.0.1", "8080", "1.2"],
)
def test_an_address_that_nothing_can_listen_at_is_refused_with_the_settings(key, host):
    check_mistake({key: host}, key, f'"{host}" is not valid; allowed: a host name or address without a port')


@pytest.mark.parametrize(
    ("host", "read"),
    [("[::1]", "::1"), ("::1", "::1"), ("[::]", "::"), ("localhost", "localhost"), ("127.0.0.2", "127.0.0.2")],
)
def test_an_address_may_have_brackets(host, read):
    tokens = {"api.tokens_file": "tokens"} if read == "::" else {}
    loaded = load({"api.host": host, "service.metrics_host": host} | tokens)
    assert (loaded.api.host, loaded.service.metrics_host) == (read, read)


@pytest.fixture
def piped():
    """A settings file that is a pipe, and can be read once."""
    reading, writing = os.pipe()
    os.write(writing, b"[kafka]\ngroup_id = 'piped'\n[profiles.news]\ntopics = ['news']\n")
    os.close(writing)
    yield Path(f"/dev/fd/{reading}")
    os.close(reading)


def test_a_settings_file_may_be_a_pipe(piped):
    assert load(path=piped).kafka.group_id == "piped"


def test_a_profile_may_be_in_a_pipe(piped):
    assert default_profile_name(piped) == "news"
    assert named_profile(piped, "news", {"threshold": 0.7}).threshold == 0.7
    assert load(path=piped).kafka.group_id == "piped"


def test_the_clients_get_the_options_for_tls_and_login(tmp_path):
    files = {
        "ssl_ca_file": str(TLS / "certificate.pem"),
        "ssl_cert_file": str(TLS / "certificate.pem"),
        "ssl_key_file": str(TLS / "plain.key"),
    }
    login = {"security_protocol": "SASL_SSL", "sasl_mechanism": "SCRAM-SHA-512"}
    login |= {"sasl_username": "u", "sasl_password": "p"}
    redis = {"url": "rediss://db:1/0", "username": "u", "password": "p", "ssl_check_hostname": "false", **files}
    of_kafka = {f"kafka.{key}": value for key, value in (login | files).items()}
    loaded = load(of_kafka | {f"redis.{key}": value for key, value in redis.items()})
    assert loaded.kafka.security() == login | {
        "ssl_cafile": files["ssl_ca_file"],
        "ssl_certfile": files["ssl_cert_file"],
        "ssl_keyfile": files["ssl_key_file"],
        "ssl_check_hostname": True,
    }
    assert kafka_options(loaded).sasl_password == "p"
    assert loaded.redis.login() == ("u", "p")
    assert loaded.redis.tls_arguments() == {
        "ssl_ca_certs": files["ssl_ca_file"],
        "ssl_certfile": files["ssl_cert_file"],
        "ssl_keyfile": files["ssl_key_file"],
        "ssl_check_hostname": False,
    }
    without_key = {"redis.url": "rediss://db", "redis.ssl_cert_file": files["ssl_cert_file"]}
    check_mistake(without_key, "redis.ssl_key_file", "is missing")


CERTIFICATE = {"ssl_cert_file": "certificate.pem"}


@pytest.mark.parametrize(
    ("files", "key", "said"),
    [
        ({"ssl_ca_file": "plain.key"}, "ssl_ca_file", "holds no certificate"),
        ({"ssl_cert_file": "plain.key", "ssl_key_file": "plain.key"}, "ssl_cert_file", "holds no certificate"),
        (CERTIFICATE | {"ssl_key_file": "other.key"}, "ssl_key_file", "not the key of"),
        (CERTIFICATE | {"ssl_key_file": "certificate.pem"}, "ssl_key_file", "holds no private key"),
        (CERTIFICATE | {"ssl_key_file": "encrypted.key"}, "ssl_key_file", "one with a password"),
    ],
)
@pytest.mark.parametrize("section", ["kafka", "redis"])
def test_files_that_tls_cannot_use_are_found_before_any_connection(section, files, key, said):
    tls = {"kafka.security_protocol": "SSL"} if section == "kafka" else {"redis.url": "rediss://db"}
    given_files = {f"{section}.{name}": str(TLS / file) for name, file in files.items()}
    check_mistake(tls | given_files, f"{section}.{key}", said)


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="a file that nobody can read is found on Linux only")
@pytest.mark.parametrize(
    ("files", "key"),
    [
        ({"ssl_ca_file": "/proc/self/mem"}, "ssl_ca_file"),
        ({"ssl_cert_file": "/proc/self/mem", "ssl_key_file": TLS / "plain.key"}, "ssl_cert_file"),
        ({"ssl_cert_file": TLS / "certificate.pem", "ssl_key_file": "/proc/self/mem"}, "ssl_key_file"),
    ],
)
def test_an_unreadable_tls_file_is_distinguished_from_one_with_wrong_content(files, key):
    given = {f"redis.{name}": str(file) for name, file in files.items()}
    assert mistakes({"redis.url": "rediss://db"} | given) == [
        f"redis.{key}: cannot be read (Input/output error): /proc/self/mem"
    ]


@pytest.mark.parametrize(
    "url",
    [
        "redis://localhost",
        "redis://localhost:6379",
        "redis://localhost:6379/15",
        "redis://[::1]:6379/0",
        "rediss://user:p%40ss@db.example.org:6380/0",
        "unix:///run/redis.sock",
        "unix:///run/redis.sock?db=3",
    ],
)
def test_urls_of_redis_are_accepted(url):
    assert load({"redis.url": url}).redis.url.get_secret_value() == url


OPTION = "it has an option behind ? other than db; other options are keys of [redis]"
#: Advice for a URL with a login.
ENCODE = "; in user and password, write % / ? # as %25 %2F %3F %23"


@pytest.mark.parametrize(
    ("url", "part"),
    [
        ("localhost:6379", NO_SCHEME),
        ("", NO_SCHEME),
        ("redis://", "its host is missing"),
        ("redis://:secret/x@localhost/0", f"its host or port is not valid{ENCODE}"),
        ("redis://[::1/0", "its host or port is not valid"),
        ("redis://local..host/0", "its host or port is not valid"),
        ("redis://u:sec[ret@localhost/0", f"its host or port is not valid{ENCODE}"),
        ("redis://localhost:0/0", "its host or port is not valid"),
        ("redis://localhost:70000/0", "its host or port is not valid"),
        ("redis://localhost:secret/0", "its host or port is not valid"),
        ("redis://localhost/x", "its database is not a number"),
        ("redis://localhost/1/2", "its database is not a number"),
        ("redis://localhost/?db=x", "its database is not a number"),
        ("unix:///run/redis.sock?db=x", "its database is not a number"),
        ("redis://localhost/0?password=secret", OPTION),
        ("redis://localhost/0#x", "it has a part behind #"),
        ("redis://u:secret#x@localhost/0", f"its host or port is not valid{ENCODE}"),
        ("redis://secret#x@localhost/0", f"it has a part behind #{ENCODE}"),
        ("unix://run/redis.sock", "its socket is no absolute path"),
        ("unix://", "its socket is no absolute path"),
        ("unix:/run/redis.sock", NO_SCHEME),
        ("REDIS://localhost", NO_SCHEME),
    ],
)
def test_the_refused_part_of_a_url_is_named_and_not_shown(url, part):
    (line,) = mistakes({"redis.url": url})
    assert line == f"redis.url: the value (not shown) is not valid: {part}; allowed: {URLS}"


# Secrets are never shown

SECRET_KEYS = [f"{name}.{key}" for name, model in SECTIONS.items() for key in secrets_of(model)]


def test_the_secrets_are_these():
    assert SECRET_KEYS == [
        "kafka.sasl_password",
        "kafka.sasl_client_secret",
        "redis.url",
        "redis.password",
        "redis.sentinel_password",
        "schema_registry.password",
    ]


def test_accepted_secrets_are_in_no_text_of_the_settings():
    tls = {"kafka.ssl_cert_file": str(TLS / "certificate.pem"), "kafka.ssl_key_file": str(TLS / "plain.key")}
    loaded = load(LOGIN | tls | {"kafka.sasl_password": CANARY, "redis.url": f"rediss://u:{CANARY}@db/0"})
    texts = [repr(loaded), str(loaded), show(loaded), loaded.model_dump_json(), loaded.redis.shown_url]
    assert [text for text in texts if CANARY in text] == []
    assert 'url = "rediss://u:***@db/0"' in show(loaded)


def test_a_user_of_the_url_without_a_password_there_is_not_shown_because_redis_cli_takes_it_for_the_password():
    (line,) = mistakes({"redis.url": f"redis://{CANARY}@localhost/0"})
    assert CANARY not in line
    loaded = load({"redis.url": f"rediss://{CANARY}@db/0", "redis.password": "p"})
    assert loaded.redis.shown_url == "rediss://***@db/0"
    assert CANARY not in show(loaded) + repr(loaded)


@pytest.mark.parametrize("key", SECRET_KEYS)
@pytest.mark.parametrize("value", [CANARY, f"http://u:{CANARY}@h/", [CANARY], {"x": CANARY}, f"redis://:{CANARY}@h:x/"])
def test_refused_secrets_are_in_no_message_and_in_nothing_that_leads_to_it(key, value):
    with pytest.raises(SettingsError) as raised:
        load({key: value, "kafka.batch_records": 0})
    assert CANARY not in "".join(traceback.format_exception(raised.value))
    assert raised.value.__context__ is None


@pytest.mark.parametrize(
    "overrides",
    [
        {"kafka.bootstrap_servers": f"https://u:{CANARY}@h:1"},
        {"redis": f"redis://:{CANARY}@h"},
        {"kafka.password": CANARY},
        {"kafka.pasword_file": CANARY},
        {"redis.sasl_password": CANARY},
        {"secret": {"password": CANARY}},
    ],
)
def test_secrets_in_the_wrong_place_are_not_repeated(overrides):
    assert CANARY not in "\n".join(mistakes(overrides))


# Profiles


def profile(**given_keys):
    return Profile.model_validate({"topics": ["t"], **given_keys})


def test_the_size_of_a_shingle_follows_from_its_unit():
    assert profile().shingle_options().size == 3
    assert profile(shingle_unit="char").shingle_options().size == 5
    assert profile(shingle_unit="char", shingle_size=9).shingle_options().size == 9


def test_options_reach_the_shingler(tmp_path):
    words = write(tmp_path, "The\n\n# a comment\nund\n", "words")
    options = profile(letters_only=True, stop_words=str(words), similarity="bag", short_texts="skip").shingle_options()
    assert options.letters_only
    assert options.bag
    assert options.short_texts == "skip"
    assert options.stop_words == {"The", "und"}
    assert profile(stop_words="english").shingle_options().stop_words == ENGLISH_STOP_WORDS
    assert not profile(shingle_unit="char", keep_white_space=False).shingle_options().keep_white_space


#: Texts that have the shingle of their first three words in common.
FRAMED = ["a b c d", "a b c e", "a b c f"]


def stop_shingles(tmp_path, texts, **options):
    found = learn_stop_shingles([(text, None) for text in texts], ShingleOptions(**options), 0.5).stops
    return found.hashes, write(tmp_path, found.encoded(), "frames")


def test_stop_shingles_count_from_the_folder_of_the_settings_file_and_change_the_fingerprint(tmp_path):
    hashes, _ = stop_shingles(tmp_path, FRAMED)
    path = write(tmp_path, SMALLEST + 'stop_shingles = "frames"\n')
    with_frames = Settings.load(path, {}, {}).profiles["articles"]
    assert with_frames.shingle_options().stop_shingles == hashes
    assert len(hashes) == 1
    without = Settings.load(path, {"profiles.articles.stop_shingles": "none"}, {}).profiles["articles"]
    assert with_frames.fingerprint()["stop_shingles"] != without.fingerprint()["stop_shingles"] == "none"


@pytest.mark.parametrize(
    ("texts", "options", "said"),
    [
        (FRAMED, {"size": 2}, "holds other shingles than those of the profile: size 2, not 3"),
        (FRAMED[:2], {}, "holds no shingle"),
    ],
)
def test_stop_shingles_must_be_those_of_the_profile(tmp_path, texts, options, said):
    _, path = stop_shingles(tmp_path, texts, **options)
    assert mistakes({"profiles.a.stop_shingles": str(path)}) == [f"profiles.a.stop_shingles: {path} {said}"]


@pytest.mark.parametrize(
    ("key", "content", "said"),
    [
        ("stop_words", b"# none\n", "holds no word"),
        ("stop_words", b"\xff", "is not UTF-8"),
        ("stop_shingles", b"the\n", "is no file of stop shingles"),
        ("stop_shingles", b"\xff", "is not UTF-8"),
        ("stop_shingles", None, "cannot be read"),
    ],
)
def test_a_file_from_which_no_stops_can_be_read_is_named(tmp_path, key, content, said):
    path = tmp_path / "stops"
    if content is not None:
        path.write_bytes(content)
    (mistake,) = mistakes({f"profiles.a.{key}": str(path)})
    assert mistake.startswith(f"profiles.a.{key}: {path} {said}")


def test_bands_and_rows_are_chosen_or_given():
    chosen = profile(threshold=0.5, recall_from=0.7, min_recall=0.95)
    assert chosen.banding().probability(0.7) >= 0.95
    assert chosen.banding() == choose_banding(0.7, 0.95)
    assert chosen.banding() is chosen.banding()
    assert profile(bands=16, rows=6).banding() == Banding(16, 6)
    assert profile(bands=4, rows=5).banding() == Banding(4, 5)  # no key asks for a recall
    assert profile(bands=32, rows=4).banding() == Banding(32, 4)  # takes all of the 128 permutations


def test_bands_follow_from_recall_from_and_neither_from_the_threshold_nor_from_containment():
    assert [profile(threshold=threshold).recall_from for threshold in (0.5, 0.8, 0.9)] == [0.8, 0.8, 0.9]
    assert profile(threshold=0.5, recall_from=0.6).recall_from == 0.6
    assert profile().banding() == profile(threshold=0.5).banding() == Banding(9, 4)
    assert profile(containment_threshold="none").banding() == profile(containment_threshold=0.5).banding()
    assert profile(threshold=0.9).banding() == choose_banding(0.9, 0.99)


def test_words_are_alerted_by_containment_too_and_characters_are_not_unless_a_profile_says_otherwise():
    assert profile().containment_rule() == ContainmentRule(0.8, 20)
    assert profile(containment_threshold=0.9, exact_limit=5).containment_rule() == ContainmentRule(0.9, 6)
    assert profile(containment_threshold="none").containment_rule() is None
    assert profile(shingle_unit="char").containment_rule() is None
    assert [profile(shingle_unit=unit).threshold for unit in ("word", "char")] == [0.8, 0.8]


def test_bands_recall_and_candidates_follow_the_least_jaccard_similarity_of_the_measure(monkeypatch):
    low = {"min_recall": 0.95, "max_candidates": 1, "shingle_unit": "char"}
    (hint,) = profile(threshold=0.45, recall_from=0.45, **low).hints()
    monkeypatch.setitem(MEASURES, "set", replace(MEASURES["set"], least_jaccard=lambda similarity: similarity / 2))
    halved = profile(threshold=0.9, **low)
    assert halved.banding() == choose_banding(0.45, 0.95, halved.permutations)
    assert halved.recall(0.9) == halved.banding().probability(0.45)
    assert list(halved.hints()) == [(hint[0], hint[1].replace("similarity 0.45", "similarity 0.9"))]


def test_the_curve_of_the_bands_and_the_alerted_pairs_are_described():
    given = profile(bands=9, rows=4, threshold=0.5)
    curve = "0.4406 at 0.5, 0.7133 at 0.6, 0.9155 at 0.7, 0.9913 at 0.8"
    assert list(describe_banding(given))[2:] == [
        f"found: {curve}",
        "alerted: pairs from similarity 0.5 on, or contained from 0.8 of 20 shingles or more",
    ]
    higher = profile(threshold=0.95, containment_threshold="none", bands=9, rows=4)
    assert list(describe_banding(higher))[2:] == [
        f"found: {curve}, 1.0000 at 0.95",
        "alerted: pairs from similarity 0.95 on",
    ]


def test_no_limit_is_none():
    unlimited = profile(exact_limit="none", bucket_cap="none", max_candidates="NONE")
    assert (unlimited.exact_limit, unlimited.bucket_cap, unlimited.max_candidates) == (None, None, None)


@pytest.mark.parametrize(
    "changed",
    [
        {"shingle_size": 4},
        {"letters_only": True},
        {"fold_marks": True},
        {"fold_variants": True},
        {"fold_look_alikes": True},
        {"keep_urls": False},
        {"stop_words": "english"},
        {"similarity": "bag"},
        {"short_texts": "skip"},
        {"permutations": 100},
        {"bands": 12},
        {"rows": 5},
        {"exact_limit": 0},
        {"exact_limit": "none"},
        {"shingle_unit": "char"},
        {"scope_field": "tenant"},
    ],
)
def test_every_key_that_changes_stored_data_changes_the_fingerprint(changed):
    before = {"bands": 16, "rows": 6, "shingle_size": 3}
    assert profile(**before).fingerprint() != profile(**before | changed).fingerprint()


@pytest.mark.parametrize("key", ["fold_marks", "fold_variants", "fold_look_alikes", "keep_urls"])
def test_the_shingles_follow_the_keys_of_the_text(key):
    usual = getattr(profile(), key)
    assert getattr(profile(**{key: not usual}).shingle_options(), key) is not usual


def test_keys_that_only_select_do_not_change_the_fingerprint():
    given_banding = {"bands": 16, "rows": 6}
    other = {
        "threshold": 0.9,
        "containment_threshold": 0.9,
        "min_words": 3,
        "min_shared_bands": 2,
        "retention": "1d",
        "bucket_cap": 9,
        "max_candidates": 9,
        "topics": ["u"],
        "min_shingles": 5,
        "only_sources": ["a"],
        "ignore_same_source": True,
        "ignore_sources": [["a", "b"]],
    }
    assert profile(**given_banding).fingerprint() == profile(**given_banding, **other).fingerprint()
    scoped = profile(**given_banding, scope_field="tenant")
    assert scoped.fingerprint() == profile(**given_banding, scope_field="tenant", default_scope="x").fingerprint()


def test_pairs_of_sources_from_a_variable_are_written_as_in_the_file():
    environ = {
        "STREAMDEDUP_PROFILES__A__IGNORE_SOURCES": '[["a", "b,c"]]',
        "STREAMDEDUP_PROFILES__A__ONLY_SOURCES": "a, d",
    }
    chosen = load(environ=environ).profiles["a"]
    assert (chosen.ignore_sources, chosen.only_sources) == ((("a", "b,c"),), ("a", "d"))


def test_a_fingerprint_is_json_and_contains_the_unicode_version():
    fingerprint = profile().fingerprint()
    assert json.loads(json.dumps(fingerprint)) == fingerprint
    assert set(fingerprint) > ADVISORY_PARAMETERS


def test_equal_stop_lists_have_equal_fingerprints_however_they_are_written(tmp_path):
    one = write(tmp_path, "The\nund\n", "one")
    two = write(tmp_path, "UND\n# comment\nthe\nthe\n", "two")
    assert profile(stop_words=str(one)).fingerprint() == profile(stop_words=str(two)).fingerprint()


# Laws


@given(st.integers(0, 10**9), st.sampled_from(sorted(SECONDS)))
def test_a_duration_reads_back_as_written(count, unit):
    seconds = parse_duration(f"{count}{unit}")
    assert parse_duration(format_duration(seconds)) == pytest.approx(seconds, rel=1e-12)


@given(st.integers(0, 10**9), st.sampled_from(sorted(BYTES)))
def test_a_size_reads_back_as_written(count, unit):
    size = parse_size(f"{count}{unit}")
    assert size == count * BYTES[unit]
    assert parse_size(format_size(size)) == size


def test_sizes_are_exact():
    assert [parse_size(text) for text in ("32.120kB", "33.111MB", "16.222436GB")] == [32120, 33111000, 16222436000]


@pytest.mark.parametrize("text", ["20260501T060000Z", "2026-W18-5T06:00Z", "2026-05-01T08+02:00", "2026-05-01 06:00Z"])
def test_forms_of_iso_8601_are_times(text):
    assert format_moment(parse_moment(text)) == "2026-05-01T06:00:00Z"


@pytest.mark.parametrize("text", ["1,5MiB", "1MiB and more", "0.3B", "8Mbit", "1M", "٣kB", "1_000", "1.0", 1.0, True])
def test_no_size_is_guessed(text):
    with pytest.raises(ValueError, match="not a whole number"):
        parse_size(text)


@pytest.mark.parametrize(("value", "flag"), [("true", True), (" True ", True), ("TRUE", True), ("False", False)])
def test_a_truth_value_is_read_in_any_case(value, flag):
    assert parse_flag(value) is flag


@pytest.mark.parametrize("value", ["secret", "", "0x10", "nan", "1e999", True, None, 10**400])
def test_the_error_about_a_number_does_not_repeat_it(value):
    with pytest.raises(ValueError, match=r"^not a number$"):
        parse_number(value)


NO_MOMENTS = ["20260501", "2026-05-01", "1700000000", 1_700_000_000, "2026-05-01T06:00", "2026-05-01T06:00:00"]
NO_MOMENTS += ["yesterday", datetime(2026, 5, 1)]  # noqa: DTZ001  the mistake


@pytest.mark.parametrize("value", NO_MOMENTS)
def test_nothing_without_time_and_zone_is_a_time(value):
    with pytest.raises(ValueError, match=r"^not a time with a time zone$"):
        parse_moment(value)


@pytest.mark.parametrize(
    "text", ["9999-12-31T23:59:59-05:00", "9999-12-31T23:59:59.999999Z", "0001-01-01T00:00:00+01:00"]
)
def test_a_time_that_cannot_be_written_in_utc_is_refused(text):
    check_mistake(
        {"profiles.a.index_silently_until": text}, "profiles.a.index_silently_until", f'"{text}" is not valid'
    )


@pytest.mark.parametrize(
    "text", ["", "5", "s", "-5s", "5 weeks", "5e3s", "1h30m", "٣s", "9" * 400 + "d", 5, 5.0, None, True]
)
def test_no_other_text_is_a_duration(text):
    with pytest.raises(ValueError, match="not a duration"):
        parse_duration(text)


@settings(max_examples=25)
@given(
    st.fixed_dictionaries(
        {},
        optional={
            "kafka.group_id": st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30),
            "kafka.max_message_bytes": st.integers(64 * 1024, 64 * 1024 * 1024),
            "kafka.session_timeout": st.integers(1_000, 15_000).map("{}ms".format),
            "kafka.delivery": st.sampled_from(["exactly-once", "at-least-once"]),
            "service.dead_letter_limit": st.integers(1, 999) | st.just("none"),
            "profiles.a.threshold": st.floats(0.6, 1.0),
            "profiles.a.retention": st.integers(1, 10**9).map("{}s".format),
            "profiles.a.exact_limit": st.integers(0, 10**6) | st.just("none"),
            "profiles.a.index_silently_until": st.datetimes(
                max_value=datetime(9999, 12, 31),  # noqa: DTZ001  the zone is the other argument
                timezones=st.just(UTC),
            ).map(datetime.isoformat),
            "profiles.a.stop_words": st.sampled_from(["none", "english"]),
            "profiles.a.containment_threshold": st.sampled_from([0.8, "none"]),
            "profiles.a.ignore_sources": st.just([['a "quoted" \\', "b,c"], ["b", "b"]]),
            "profiles.a.only_sources": st.just(["b", "b,c"]),
            "kafka.api_version": st.just("2.10"),
            "profiles.a.shingle_size": st.integers(1, 9),
            "profiles.b.topics": st.lists(st.from_regex(r"[a-z]{3,9}", fullmatch=True), min_size=1, unique=True),
        },
    )
)
def test_any_shown_settings_read_back_as_the_same(overrides):
    loaded = load({"kafka.instance_id": "one", **overrides})
    with TemporaryDirectory() as folder:
        again = Settings.load(write(Path(folder), show(loaded)), {}, {})
    assert again == loaded
    assert show(again) == show(loaded)


def test_shown_settings_name_the_same_files_from_any_folder(tmp_path, monkeypatch):
    (tmp_path / "settings").mkdir()
    (tmp_path / "elsewhere").mkdir()
    files = {"stop words.txt": "the\n", "user.pw": "secret\n", "redis.url": "rediss://localhost:6379/0\n"}
    for name, content in files.items():
        (tmp_path / "settings" / name).write_text(content, encoding="utf-8")
    shutil.copytree(TLS, tmp_path / "settings" / "tls")
    stop_shingles(tmp_path / "settings", FRAMED)
    tls = """ssl_ca_file = "tls/certificate.pem"
ssl_cert_file = "tls/certificate.pem"
ssl_key_file = "tls/plain.key"
"""
    text = f"""
[kafka]
bootstrap_servers = "localhost:9092"
instance_id = "one"
security_protocol = "SASL_SSL"
sasl_mechanism = "PLAIN"
sasl_username = "user"
sasl_password_file = "user.pw"
{tls}
[redis]
url_file = "redis.url"
{tls}
[profiles.articles]
topics = ["articles"]
stop_shingles = "frames"

[profiles.reviews]
topics = ["reviews"]
stop_words = "stop words.txt"
"""
    monkeypatch.chdir(tmp_path)
    loaded = Settings.load(write(tmp_path / "settings", text).relative_to(tmp_path), {}, {})
    again = Settings.load(write(tmp_path / "elsewhere", show(loaded)), {}, {})
    assert show(again) == show(loaded)
    assert again.kafka.sasl_password == loaded.kafka.sasl_password
    assert again.redis.url == loaded.redis.url
    for name, profile in loaded.profiles.items():
        assert again.profiles[name].fingerprint() == profile.fingerprint()


ALL_KEYS = [f"{name}.{key}" for name, model in SECTIONS.items() for key in keys_of(model)]
ALL_KEYS += [f"profiles.a.{key}" for key in keys_of(Profile)]
TEXTS = st.text(max_size=20) | st.sampled_from(["none", "5s", "1MiB"])
PLAIN = st.none() | st.booleans() | st.integers() | st.floats() | TEXTS
FIRST_WORDS = {*SECTIONS, "profiles", "no settings file; name one with --config or STREAMDEDUP_CONFIG"}
ANYTHING = PLAIN | st.lists(PLAIN, max_size=3) | st.dictionaries(st.text(max_size=5), PLAIN, max_size=3)


@settings(max_examples=examples(300))
@given(st.dictionaries(st.sampled_from(ALL_KEYS), ANYTHING, max_size=4))
def test_any_value_is_accepted_or_answered_by_lines_that_begin_with_a_key(overrides):
    lines = []
    try:
        # Shown, because settings that lack a value could be accepted by mistake.
        show(load(overrides))
    except SettingsError as error:
        lines = str(error).splitlines()
    for line in lines:
        assert line.split(": ")[0].partition(".")[0] in FIRST_WORDS


@settings(max_examples=examples(200))
@given(st.data())
def test_a_damaged_file_is_accepted_or_answered_without_its_secret(tmp_path_factory, data):
    content = bytearray(b'[kafka]\nbootstrap_servers = ["one:9092"]\nbatch_records = 500\nsession_timeout = "45s"\n')
    content += b'[profiles.articles]\ntopics = "articles, more"\nthreshold = 0.8\nretention = "30d"\n[redis]\n'
    for _ in range(data.draw(st.integers(1, 5))):
        start = data.draw(st.integers(0, len(content)))
        end = start + data.draw(st.integers(0, 8))
        content[start:end] = data.draw(st.binary(max_size=2) | st.sampled_from([b'"', b"=", b"\n", b"{}", b"none"]))
    path = tmp_path_factory.getbasetemp() / "damaged.toml"
    path.write_bytes(content + b'url = "redis://user:kestrel-7@localhost:6379/0"\n')
    try:
        shown = "\n".join(show(Settings.load(path, environ={})))
    except SettingsError as error:
        shown = str(error)
    assert shown.strip()
    assert "kestrel-7" not in shown


@settings(max_examples=examples(200))
@given(
    st.dictionaries(st.sampled_from(ALL_KEYS), st.text(st.characters(exclude_characters="\0"), max_size=12), max_size=4)
)
def test_any_variable_is_accepted_or_answered_by_a_key(values):
    environ = {"STREAMDEDUP_" + key.upper().replace(".", "__"): value for key, value in values.items()}
    lines = []
    try:
        show(load({}, environ))
    except SettingsError as error:
        lines = str(error).splitlines()
    assert [line for line in lines if not line.startswith(tuple(f"{name}." for name in (*SECTIONS, "profiles")))] == []


def test_a_mistake_stays_on_one_line_with_any_content(tmp_path):
    path = write(tmp_path, SMALLEST + 'stop_words = "a\\nb\\u0000"\n"x\\ny" = 1\n')
    lines = refused(Settings.load, path, {"redis.password_file": "c\nd\0", "kafka.ssl_ca_file": "\0"}, {})
    keys = ["redis.password_file", "kafka.ssl_ca_file", "profiles.articles.x y", "profiles.articles.stop_words"]
    assert keys_named(lines) == keys


@pytest.mark.parametrize("key", ["kafka.ssl_ca_file", "redis.ssl_ca_file"])
def test_a_file_whose_name_is_too_long_is_absent(key):
    assert any(line.startswith(f"{key}: names no file that can be read") for line in mistakes({key: "x" * 5_000}))


@pytest.mark.parametrize(
    ("policy", "on_out_of_range", "max_start_age_ms"),
    [("earliest", "earliest", None), ("window", "earliest", 5 * 3_600_000), ("fail", "halt", None)],
)
def test_a_partition_without_an_offset_begins_as_the_settings_say(policy, on_out_of_range, max_start_age_ms):
    times = {"profiles.a.retention": "3h", "profiles.a.retention_slack": "2h"}
    settings = load({"kafka.auto_offset_reset": policy, **times})
    assert kafka_options(settings).on_out_of_range == on_out_of_range
    assert pipeline(settings, "a", MemoryIndex()).max_start_age_ms == max_start_age_ms
