"""Completion in the shell: what it offers, that it is quick, and that it can be installed."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from streamdedup.cli import main as cli

SETTINGS = """
[kafka]
bootstrap_servers = "localhost:9092"

[redis]
url = "redis://localhost:6379/0"

[profiles.{profile}]
topics = ["{profile}-in", "{profile}-late"]
"""
#: What completion of a command must not wait for.
HEAVY = ("kafka", "redis", "numpy", "streamdedup.settings")


@pytest.fixture
def completed(monkeypatch, capsys):
    """Return the words that a shell would offer at the end of a line."""

    def complete(line):
        words = line.split(" ")
        monkeypatch.setenv("_STREAMDEDUP_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", "\n".join(words))
        monkeypatch.setenv("COMP_CWORD", str(len(words) - 1))
        with pytest.raises(SystemExit):
            cli.main([])
        shown = capsys.readouterr()
        assert shown.err == ""
        return shown.out.split()

    return complete


@pytest.fixture
def _folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("news", "shop"):
        (tmp_path / f"{name}.toml").write_text(SETTINGS.format(profile=name), encoding="utf-8")
    (tmp_path / "wrong.toml").write_text("[profiles.news]\ntopicz = []\n", encoding="utf-8")


def test_commands_options_and_fixed_values_are_offered(completed):
    assert completed("streamdedup ") == list(cli.COMMANDS)
    assert completed("streamdedup dlq ") == ["inspect", "replay"]
    assert "--dry-run" in completed("streamdedup dlq replay --")
    assert completed("streamdedup schema ") == ["document", "alert", "dead-letter"]
    assert completed("streamdedup produce --format ts") == ["tsv", "tsv-unquoted"]
    assert completed("streamdedup dlq inspect --code not_j") == ["not_json"]


@pytest.mark.usefixtures("_folder")
def test_names_of_the_settings_file_are_offered(completed, monkeypatch):
    assert completed("streamdedup scan --profile ") == ["articles", "reviews"]
    assert completed("streamdedup scan --config shop.toml --profile ") == ["shop"]
    assert completed("streamdedup produce -c news.toml --topic news-l") == ["news-late"]
    monkeypatch.setenv("STREAMDEDUP_CONFIG", "shop.toml")
    assert completed("streamdedup dlq replay --topic ") == ["shop-in", "shop-late"]


@pytest.mark.usefixtures("_folder")
@pytest.mark.parametrize("name", ["wrong.toml", "nowhere.toml"])
def test_without_valid_settings_nothing_is_completed_and_no_error_is_printed(completed, name):
    assert completed(f"streamdedup produce -c {name} --topic ") == []


def test_completing_a_command_imports_neither_clients_nor_arrays():
    program = (
        "import sys\n"
        "from streamdedup.cli.main import main\n"
        "try:\n"
        "    main([])\n"
        "finally:\n"
        f"    print(sorted(set({HEAVY}) & set(sys.modules)), file=sys.stderr)\n"
    )
    variables = {"_STREAMDEDUP_COMPLETE": "complete_bash", "COMP_WORDS": "streamdedup ", "COMP_CWORD": "1"}
    done = subprocess.run(
        [sys.executable, "-c", program], env=os.environ | variables, capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == list(cli.COMMANDS)
    assert done.stderr.split() == ["[]"]


def test_bash_takes_what_is_offered():
    program = shutil.which("streamdedup", path=str(Path(sys.executable).parent))
    bash = shutil.which("bash")
    if program is None or bash is None:
        pytest.skip("needs bash, and the command installed beside Python")
    script = (
        f'eval "$({program} --show-completion bash)"\n'
        f"COMP_WORDS=({program} d)\n"
        "COMP_CWORD=1\n"
        f"_streamdedup_completion {program}\n"
        'echo "${COMPREPLY[@]}"\n'
    )
    done = subprocess.run([bash, "--norc", "-c", script], capture_output=True, text=True, timeout=900, check=True)
    assert done.stdout.split() == ["demo", "dlq"]


def test_it_installs_itself_for_a_shell(tmp_path):
    command = [sys.executable, "-m", "streamdedup", "--install-completion", "bash"]
    done = subprocess.run(
        command, env=os.environ | {"HOME": str(tmp_path)}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "streamdedup" in (tmp_path / ".bashrc").read_text(encoding="utf-8")
