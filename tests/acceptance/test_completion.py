"""Completion in the shell: what it offers, that it is quick, and that it can be installed."""

import os
import subprocess
import sys

import pytest

from streamdedup.cli import main as cli

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


def test_commands_options_and_fixed_values_are_offered(completed):
    assert completed("streamdedup ") == list(cli.COMMANDS)
    assert completed("streamdedup dlq ") == ["inspect", "replay"]
    assert "--dry-run" in completed("streamdedup dlq replay --")
    assert completed("streamdedup schema ") == ["document", "alert", "dead-letter"]
    assert completed("streamdedup produce --format ts") == ["tsv", "tsv-unquoted"]
    assert completed("streamdedup dlq inspect --code not_j") == ["not_json"]


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


def test_it_installs_itself_for_a_shell(tmp_path):
    # The command asks for the shell among the processes that have started it; `exit` keeps this one alive.
    command = ["bash", "-c", '"$0" -m streamdedup --install-completion; exit $?', sys.executable]
    done = subprocess.run(
        command, env=os.environ | {"HOME": str(tmp_path)}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "streamdedup" in (tmp_path / ".bashrc").read_text(encoding="utf-8")
