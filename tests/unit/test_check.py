"""What ``streamdedup check`` says of what it finds: lines, JSON, exit codes; one failure hides none of the others."""

import json
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
from structlog.testing import capture_logs
from typer.testing import CliRunner

from streamdedup import errors
from streamdedup.cli import check as check_module
from streamdedup.cli import checks, topics
from streamdedup.cli import main as cli
from streamdedup.cli import run as run_module
from streamdedup.cli.check import exit_code_of, render
from streamdedup.daemon.metrics import Metrics
from streamdedup.daemon.readiness import Readiness
from streamdedup.findings import Finding, Level, warnings_or_raise
from streamdedup.indexes import connect_backend
from streamdedup.settings import Settings

DAY_MS = 86_400_000
FINE = Finding.ok("kafka", "Kafka answers")
AT_REDIS = Finding.ok("redis", "Redis answers")
WARNED = Finding.warning("topic_retention", "topic t keeps too little", "kafka-configs.sh --alter t")
AWAY = Finding.failure("redis", errors.StoreUnavailable("nobody there"))
REFUSED = Finding.failure("topic_exists", errors.BrokerMisconfigured("no such topic: t"), "streamdedup topics create")
WRONG = Finding.failure("settings", errors.SettingsError("redis.url: is missing"))
SETTINGS = {
    "kafka.bootstrap_servers": "h:1",
    "redis.url": "redis://:canary@h:2/0",
    "redis.allow_plaintext": True,
    "profiles.articles.topics": "articles",
    "profiles.reviews.topics": "reviews",
    "profiles.reviews.retention": "60d",
}


@pytest.fixture
def settings():
    return Settings.load(None, SETTINGS, {})


class TestExitCode:
    @pytest.mark.parametrize(
        ("findings", "code"),
        [
            ([FINE, WARNED], errors.EXIT_OK),
            ([FINE, AWAY], errors.EXIT_FAILED),
            ([AWAY, REFUSED], errors.EXIT_FATAL),
            ([WRONG], errors.EXIT_USAGE),
        ],
    )
    def test_it_is_that_of_the_failure_that_needs_the_operator_most(self, findings, code):
        assert exit_code_of(findings) == code


class TestWarnings:
    def test_run_logs_warnings_and_ends_with_failures(self):
        assert warnings_or_raise([FINE, WARNED]) == [WARNED]
        with pytest.raises(errors.StoreUnavailable, match="nobody there"):
            warnings_or_raise([FINE, AWAY])

    def test_run_raises_permanent_failures_before_transient_ones_and_lists_all(self):
        other = Finding.failure("topic_size", errors.BrokerMisconfigured("topic u is too small"))
        with pytest.raises(errors.BrokerMisconfigured) as caught:
            warnings_or_raise([AWAY, REFUSED, WARNED, other])
        assert str(caught.value) == "no such topic: t: streamdedup topics create\ntopic u is too small"

    def test_run_does_not_wait_where_the_settings_are_wrong_too(self):
        with pytest.raises(errors.SettingsError, match=r"^redis\.url: is missing$"):
            warnings_or_raise([AWAY, WRONG])


class TestLines:
    def test_a_pipe_gets_one_line_without_colours(self):
        assert list(render(FINE, None)) == ["ok       Kafka answers"]
        assert list(render(WARNED, None)) == ["warning  topic t keeps too little: kafka-configs.sh --alter t"]
        broken = Finding.failure("x", errors.StoreMisconfigured("two\nlines"))
        assert list(render(broken, None)) == ["failed   two lines"]

    def test_a_terminal_gets_lines_of_its_width_and_the_command_in_one(self):
        text = " ".join(["word"] * 30)
        command = "kafka-configs.sh " + "-" * 80
        first, *others, last = render(Finding.warning("x", text, command), 60)
        assert "warning" in first
        assert all(line.startswith(" " * 9) and len(line) <= 60 for line in others)
        assert command in last


def invoke(*arguments):
    return CliRunner().invoke(cli.app, ["check", *arguments])


def answer(results):
    """Yield the findings of a check, and raise the error that ends it."""
    for result in results:
        if isinstance(result, Exception):
            raise result
        yield result


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "streamdedup.toml"
    text = 'kafka.bootstrap_servers = "h:1"\nredis.url = "redis://h:2/0"\nprofiles.articles.topics = ["articles"]\n'
    path.write_text(text, encoding="utf-8")
    return path


class TestCommand:
    def test_each_mistake_in_the_settings_is_a_line(self, config):
        config.write_text('redis.url = "redis://h"\nredis.timeout = "soon"\n', encoding="utf-8")
        result = invoke("--config", str(config))
        assert result.exit_code == errors.EXIT_USAGE
        *lines, summary = result.output.splitlines()
        assert [line for line in lines if line.startswith("failed   redis.timeout: ")]
        assert len(lines) > 1
        assert all(line.startswith("failed   ") for line in lines)
        assert summary.endswith("the daemon would not start")

    def test_json_has_all_checks_and_the_exit_code(self, config, monkeypatch):
        monkeypatch.setattr(check_module, "CHECKS", [checks.Check("kafka", lambda _: answer([FINE, WARNED, REFUSED]))])
        result = invoke("--config", str(config), "--json")
        said = json.loads(result.output)
        assert result.exit_code == said["exit_code"] == errors.EXIT_FATAL
        assert [(told["check"], told["level"], told["error"]) for told in said["checks"]] == [
            ("settings", "ok", None),
            ("kafka", "ok", None),
            ("topic_retention", "warning", None),
            ("topic_exists", "failed", "BrokerMisconfigured"),
        ]
        assert said["checks"][2]["command"] == WARNED.command

    def test_each_hint_about_the_settings_is_a_warning(self, config, monkeypatch):
        monkeypatch.setattr(check_module, "CHECKS", [])
        lines = invoke("--config", str(config), "--set", "profiles.articles.max_candidates=1").output.splitlines()
        assert [line.partition(":")[0] for line in lines[1:-1]] == ["warning  profiles.articles.max_candidates"]

    def test_the_last_line_has_counts_and_the_consequence_for_the_daemon(self, config, monkeypatch):
        monkeypatch.setattr(check_module, "CHECKS", [checks.Check("kafka", lambda _: answer([FINE, WARNED]))])
        assert invoke("--config", str(config)).output.endswith("\n2 ok, 1 warning, 0 failed: the daemon can start\n")


class TestAll:
    """Servers are checked one after the other, and one that is away hides nothing of the next."""

    @pytest.fixture
    def checked(self, monkeypatch, config):
        def look(kafka, redis):
            asked = []
            backend = SimpleNamespace(findings=lambda **_rebuilds: answer(redis))
            monkeypatch.setattr(check_module, "connect_backend", lambda _settings: nullcontext(backend))
            monkeypatch.setattr(checks, "check_kafka", lambda *_arguments: answer(kafka))

            def read_records(*_arguments, **_named):
                asked.append("records")
                raise errors.BrokerUnavailable("suppressed")

            monkeypatch.setattr(checks, "KafkaSpan", read_records)
            monkeypatch.setattr(
                checks, "read_committed_offsets_if_listed", lambda _options: asked.append("offsets") or {}
            )
            monkeypatch.setattr(
                checks, "_index_finding", lambda *arguments: Finding.ok("index", f"beside {arguments[-1]}")
            )
            result = invoke("--config", str(config), "--json")
            said = [(told["check"], told["text"]) for told in json.loads(result.stdout)["checks"]]
            assert said.pop(0) == ("settings", "settings are valid: profiles articles")
            return said, asked

        return look

    def test_without_kafka_its_other_checks_are_skipped_and_those_of_redis_run(self, checked):
        said, asked = checked([FINE, errors.BrokerUnavailable("no Kafka")], [AT_REDIS])
        assert said == [
            ("redis", "Redis answers"),
            ("kafka", "Kafka answers"),
            ("kafka", "no Kafka"),
            ("index", "beside None"),
        ]
        assert asked == []

    def test_without_redis_the_indexes_are_not_checked(self, checked):
        said, asked = checked([FINE], [AT_REDIS, errors.StoreMisconfigured("refused")])
        assert said == [("redis", "Redis answers"), ("redis", "refused"), ("kafka", "Kafka answers")]
        assert asked == ["records"]

    def test_a_missing_library_of_a_format_hides_no_other_check(self, checked, monkeypatch):
        def needs_library(*_arguments):
            raise errors.SettingsError("format needs fastavro")

        monkeypatch.setattr(checks, "topic_decoder", needs_library)
        said, asked = checked([FINE], [AT_REDIS])
        assert said == [
            ("redis", "Redis answers"),
            ("schema_registry", "format needs fastavro"),
            ("kafka", "Kafka answers"),
            ("index", "beside {}"),
        ]
        assert asked == ["offsets"]

    def test_a_missing_library_of_a_login_hides_no_check_of_redis(self, checked):
        said, _ = checked([errors.SettingsError("kafka.sasl_mechanism needs gssapi")], [AT_REDIS])
        assert said == [
            ("redis", "Redis answers"),
            ("kafka", "kafka.sasl_mechanism needs gssapi"),
            ("index", "beside None"),
        ]

    def test_a_failure_that_leaves_a_server_in_use_skips_no_check(self, checked):
        said, asked = checked([FINE, REFUSED], [AT_REDIS, AWAY])
        assert said[-1] == ("index", "beside {}")
        assert asked == ["records", "offsets"]


class TestStart:
    def test_run_asks_store_registry_and_kafka_and_logs_each_warning_with_its_event(self, monkeypatch, settings):
        monkeypatch.setattr(checks, "check_kafka", lambda *_arguments: answer([FINE, WARNED]))
        loop = SimpleNamespace(readiness=Readiness(Metrics()))
        awaited = []
        monkeypatch.setattr(loop.readiness, "set_awaited", awaited.append)
        backend = SimpleNamespace(findings=lambda **_rebuilds: answer([Finding.warning("redis_memory", "nearly full")]))
        stop, pulse = SimpleNamespace(stopping=False), SimpleNamespace(tick=lambda: None)
        with capture_logs() as lines:
            run_module._await_servers(settings, backend, None, stop, pulse, loop)
        assert awaited == ["the store", "the schema registry", "Kafka"]
        assert [(line["event"], line["reason"]) for line in lines if line["log_level"] == "warning"] == [
            ("store_warning", "nearly full"),
            ("topic_warning", WARNED.sentence),
        ]


class TestNeeds:
    def test_topics_must_keep_what_a_rebuild_reads_and_outputs_must_not_be_compacted(self, settings):
        needs = {need.name: need for need in checks.topic_needs(settings)}
        assert needs.keys() == {"articles", "reviews", "duplicates", "duplicates.dlq"}
        kept = {name: need.kept_ms and need.kept_ms // DAY_MS for name, need in needs.items()}
        assert kept == {"articles": 31, "reviews": 61, "duplicates": 61, "duplicates.dlq": None}
        assert [name for name, need in needs.items() if need.compaction_loss] == ["duplicates", "duplicates.dlq"]
        assert needs["duplicates"].operations == ("READ", "WRITE")
        assert needs["duplicates.dlq"].operations == ("WRITE",)

    def test_a_daemon_that_rebuilds_no_index_does_not_read_its_alerts(self, settings):
        fails = settings.model_copy(update={"service": settings.service.model_copy(update={"on_index_lost": "fail"})})
        needs = {need.name: need for need in checks.topic_needs(fails)}
        assert needs["duplicates"].operations == ("WRITE",)

    def test_new_topics_are_created_with_what_is_needed(self, settings):
        configs = topics.output_configs(settings)
        assert configs["duplicates"]["retention.ms"] == str(61 * DAY_MS)
        assert configs["duplicates"]["cleanup.policy"] == "delete"
        assert [configs["duplicates.dlq"][name] for name in ("retention.ms", "retention.bytes")] == ["-1", "-1"]
        assert "articles" not in configs

    def test_no_finding_of_a_store_that_is_away_shows_the_password(self, settings):
        with connect_backend(settings) as backend:
            (failed,) = checks.STORE.findings(checks.CheckRun(settings, backend))
        assert failed.level is Level.FAILED
        assert "canary" not in failed.sentence
