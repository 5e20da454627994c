import os
import subprocess
import sys
import tomllib

import pytest

from streamdedup import __version__, errors, wire
from streamdedup.cli import config as config_commands
from streamdedup.cli import main as cli
from streamdedup.cli.settings_options import check_bootstrap_servers, parse_assignments
from tests.canaries import KEY_PASSWORD, TLS

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
def _bare_environment(monkeypatch):
    for name in list(os.environ):
        if name.startswith("STREAMDEDUP_"):
            monkeypatch.delenv(name)
    # Help is wrapped to the terminal's width.
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
def test_help_fits_the_terminal_and_cuts_nothing(run, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    for names in all_commands():
        code, out, _ = run(*names, "--help")
        assert code == errors.EXIT_OK
        assert "…" not in out
        listed = out.partition("Commands:")[2].partition("Examples:")[0]
        assert "..." not in listed, names
        examples = [line for line in out.splitlines() if "streamdedup " in line]
        others = [line for line in out.splitlines() if line not in examples]
        # The names and the type of an option are kept together.
        assert [line for line in others if len(line) > width and not line.startswith("  -")] == [], names
        parameters = cli.load_command(names[0]).params if len(names) == 1 else []
        for parameter in parameters:
            assert all(name in out for name in [*parameter.opts, *parameter.secondary_opts] if name.startswith("-"))


def test_examples_in_help_texts_are_not_broken(run, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    _, out, _ = run("--help")
    assert all(f"  {example}" in out.splitlines() for example in cli.EXAMPLES)
    _, out, _ = run("scan", "--help")
    assert "  Example:  streamdedup scan articles.jsonl.gz --threshold 0.7 --output pairs.tsv" in out.splitlines()


def test_every_example_of_the_help_calls_a_command_that_exists():
    assert {example.split()[1] for example in cli.EXAMPLES} <= set(cli.COMMANDS)


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_command_of_the_table_exists_with_the_help_of_the_table(name):
    command = cli.load_command(name)
    assert command.help.splitlines()[0] == cli.COMMANDS[name]


def test_a_command_missing_from_its_module_is_no_silent_gap(monkeypatch):
    monkeypatch.setitem(sys.modules, "streamdedup.cli.gap", config_commands)
    with pytest.raises(LookupError, match="has no command of that name"):
        cli.load_command("gap")


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


def test_a_mistake_of_the_program_itself_keeps_its_traceback(monkeypatch):
    def fail(_name):
        raise ZeroDivisionError

    monkeypatch.setattr(wire, "schema", fail)
    with pytest.raises(ZeroDivisionError):
        cli.main(["schema", "alert"])


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252"])
def test_output_that_its_encoding_cannot_hold_is_one_line_and_code_1(config, encoding):
    command = [
        sys.executable,
        "-m",
        "streamdedup",
        "config",
        "show",
        "--config",
        config,
        "--set",
        "kafka.group_id=ключ",
    ]
    done = subprocess.run(command, capture_output=True, check=False, env={**os.environ, "PYTHONIOENCODING": encoding})
    assert done.returncode == errors.EXIT_FAILED
    (line,) = done.stderr.decode().splitlines()
    assert line.startswith("streamdedup: cannot write the output: its encoding, ")
    assert line.endswith(" lacks U+043A; set PYTHONIOENCODING=utf-8 in the environment")


def test_a_character_that_is_encoded_elsewhere_keeps_its_traceback(monkeypatch):
    monkeypatch.setattr(cli, "_run", lambda _arguments: "ключ".encode("ascii"))
    with pytest.raises(UnicodeEncodeError):
        cli.main([])


@pytest.mark.parametrize("words", [(), *((name,) for name in cli.COMMANDS), ("topics", "create"), ("index", "unfence")])
def test_help_names_no_type_for_flags_which_take_no_value(run, words):
    code, out, _ = run(*words, "--help")
    assert code == errors.EXIT_OK
    assert "--help" in out
    assert "bool" not in out.lower()


@pytest.mark.parametrize("servers", ["host:notaport", "host", "", ",", "a:9092,b", "host:0", "host:70000", "me:pw@h:1"])
def test_brokers_of_the_command_line_are_checked_like_those_of_the_settings(run, servers):
    code, out, err = run("tail", "--bootstrap-servers", servers)
    assert (code, out) == (errors.EXIT_USAGE, "")
    assert err.startswith("streamdedup: --bootstrap-servers ")
    assert err.endswith('not valid; allowed: servers as "host:port", with commas between them\n')
    assert "pw" not in err


def test_brokers_of_the_command_line_may_be_several():
    assert check_bootstrap_servers("a:9092, [::1]:9093,c.example:1") == "a:9092,[::1]:9093,c.example:1"
    assert check_bootstrap_servers(None) is None


# config


def test_check_lists_the_profiles(run, config):
    code, out, err = run("config", "check", "--config", config)
    assert (code, err) == (errors.EXIT_OK, "")
    assert out.splitlines()[:2] == [
        "settings are valid: 1 profile, exactly-once delivery",
        "profile articles: topics articles",
    ]
    assert "bands x" in out


def test_check_answers_mistakes_with_a_line_each_and_code_2(run, config):
    code, out, err = run("config", "check", "-c", config, "--set", "kafka.batch_records=0", "--set", "kafka.x=1")
    assert (code, out) == (errors.EXIT_USAGE, "")
    assert [line.split(": ")[1] for line in err.splitlines()] == ["kafka.batch_records", "kafka.x"]


def test_show_prints_toml_with_the_achieved_banding(run, config):
    code, out, _ = run("config", "show", "--config", config, "--set", "profiles.articles.bands=16", "--set",
                       "profiles.articles.rows=6")  # fmt: skip
    assert code == errors.EXIT_OK
    assert tomllib.loads(out)["profiles"]["articles"]["topics"] == ["articles"]
    assert [line for line in out.splitlines() if line.startswith("# banding") or "chance" in line] == [
        "# banding (given): 16 bands x 6 rows, 96 of 128 permutations",
        "# chance to share at least 1 band: 0.9923 at the threshold 0.8, 0.0636 at 0.4",
    ]
    assert "# steepest near (1/16)^(1/6) = 0.630" in out


def test_show_never_prints_a_secret(run, tmp_path, monkeypatch):
    path = tmp_path / "secret.toml"
    path.write_text(
        SMALLEST.replace("redis://", f"redis://user:{CANARY}@").replace(
            "[redis]",
            'security_protocol = "SASL_SSL"\nsasl_mechanism = "PLAIN"\nsasl_username = "u"\n'
            f'ssl_cert_file = "{TLS / "certificate.pem"}"\nssl_key_file = "{TLS / "encrypted.key"}"\n'
            f'ssl_key_password = "{CANARY}"\n[redis]',
        ),
        encoding="utf-8",
    )
    (tmp_path / "password").write_text(CANARY, encoding="utf-8")
    monkeypatch.setenv("STREAMDEDUP_KAFKA__SASL_PASSWORD_FILE", str(tmp_path / "password"))
    code, out, err = run("config", "show", "--config", str(path))
    assert code == errors.EXIT_OK
    assert CANARY not in out + err
    assert 'ssl_key_password = "***"' in out
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
        f"kafka.ssl_key_password={CANARY}",
        "profiles.articles.topics=",
    ]
    options = [part for assignment in assignments for part in ("--set", assignment)]
    code, out, err = run("config", "check", "--config", config, *options)
    assert code == errors.EXIT_USAGE
    assert CANARY not in out + err
    named = [line.removeprefix("streamdedup: ").partition(":")[0] for line in err.splitlines()]
    assert named[:3] == ["--set redis.password", "--set (number 2)", "--set kafka.ssl_key_password"]
    assert set(named[3:]) >= {
        "STREAMDEDUP_KAFKA__BATCH_RECORDS",
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


def test_schema_of_anything_else_is_wrong_use(run):
    code, _, err = run("schema", "tweet")
    assert code == errors.EXIT_USAGE
    assert "'document', 'alert', 'dead-letter'" in " ".join(err.replace("│", " ").split())
    assert "Value error" not in err
