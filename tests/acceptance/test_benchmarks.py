"""The runner of the benchmarks: two short ones leave their tables, and every other one can be started."""

import importlib
import json
import subprocess
import sys

import pytest

from benchmarks import datasets
from benchmarks.__main__ import names_of

#: Seconds that a run may take; 30 were measured.
DEADLINE_S = 600


def run(*arguments):
    """Run benchmarks in their short form; return the completed process."""
    command = [sys.executable, "-m", "benchmarks", "--quick", *arguments]
    return subprocess.run(
        command, cwd=datasets.REPOSITORY, capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )


@pytest.mark.timeout(DEADLINE_S + 30)
def test_the_runner_runs_benchmarks_and_leaves_their_tables(tmp_path):
    ended = run("worked", "stages", "--output", str(tmp_path))
    assert ended.returncode == 0, ended.stdout[-2000:] + ended.stderr[-2000:]
    results = {path.stem: json.loads(path.read_text()) for path in tmp_path.glob("*.json")}
    assert set(results) == {"worked", "stages"}
    for result in results.values():
        assert result["quick"]
        assert result["tables"]
        assert all(table["rows"] for table in result["tables"].values())


@pytest.mark.parametrize("name", names_of())
def test_a_benchmark_can_be_started(name):
    assert callable(importlib.import_module(f"benchmarks.{name}").main)
