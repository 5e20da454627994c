"""All benchmarks, as short as they can be: they run and leave results. What they measure is not looked at."""

import json
import subprocess
import sys

import pytest

from benchmarks.__main__ import NAMES
from benchmarks.places import REPOSITORY

#: Seconds that all together may take; 70 were measured.
DEADLINE_S = 600


@pytest.mark.long
@pytest.mark.timeout(DEADLINE_S + 30)
def test_every_benchmark_runs_and_leaves_its_tables(tmp_path):
    command = [sys.executable, "-m", "benchmarks", "--quick", "--output", str(tmp_path)]
    run = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert run.returncode == 0, run.stdout[-2000:] + run.stderr[-2000:]
    for name in NAMES:
        result = json.loads((tmp_path / f"{name}.json").read_text())
        assert result["quick"]
        assert result["tables"]
        assert all(table["rows"] for table in result["tables"].values())


@pytest.mark.long
def test_in_the_storm_of_the_benchmark_every_exact_copy_is_reported_with_one(tmp_path):
    command = [sys.executable, "benchmarks/storm.py", "--documents", "1200", "--output", str(tmp_path)]
    run = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=100, check=False)
    assert run.returncode == 0, run.stdout[-2000:] + run.stderr[-2000:]
    copies = json.loads((tmp_path / "storm.json").read_text())["copies"]
    assert (copies["alerts"], copies["alerts_without_exact_copy"]) == (1199, 0)
