"""All benchmarks, as short as they can be: they run and leave results. What they measure is not looked at."""

import json
import subprocess
import sys

import pytest

from benchmarks import quality
from benchmarks.__main__ import NAMES
from benchmarks.places import REPOSITORY

#: Seconds that all together may take; 150 were measured.
DEADLINE_S = 3600


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
    # Of one server: each has hash tables of its own, which are large for so few keys and grow at different times.
    rows = json.loads((tmp_path / "growth.json").read_text())["results"]
    growth = {row["layout"]: row for row in rows if row["server"].startswith("Redis ")}
    # The entry of an article of the sample has some hundred bytes; without its shingles it has less than a hundred.
    assert growth["sets"]["bytes_a_document"] > growth["bare commands"]["bytes_a_document"] + 300
    storm = json.loads((tmp_path / "storm.json").read_text())
    assert storm["setting"]["alerts of exact copies that name none"].startswith("0 of ")


@pytest.mark.long
@pytest.mark.skipif(not (REPOSITORY / ".venv").exists(), reason="the other checkout needs an environment of its own")
def test_a_checkout_is_compared_with_itself(tmp_path):
    command = [sys.executable, "-m", "benchmarks", "--quick", "--against", str(REPOSITORY), "--output", str(tmp_path)]
    run = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert run.returncode == 0, run.stdout[-2000:] + run.stderr[-2000:]
    assert [path.name for path in tmp_path.iterdir()] == ["against.json"]
    other, ours = json.loads((tmp_path / "against.json").read_text())["results"]
    assert (other["name"], other["ratio"], ours["name"]) == ("the other", 1.0, "this checkout")
    assert ours["ratio"] > 0


@pytest.mark.long
def test_on_the_sample_the_daemon_finds_what_scan_finds_and_all_of_it_is_right(tmp_path):
    command = [sys.executable, "-m", "benchmarks.quality", "--quick", "--output", str(tmp_path)]
    run = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=900, check=False)
    assert run.returncode == 0, run.stdout[-2000:] + run.stderr[-2000:]
    results = json.loads((tmp_path / "quality.json").read_text())["results"]
    sets = results["sets"]
    assert [(one["set"], one["profile"]) for one in sets] == [
        ("articles", "articles"),
        ("reviews", "reviews"),
        ("reviews", "articles"),
    ]
    for one in sets:
        assert one["daemon_differs_in"] == 0
        assert one["daemon_pairs"] == one["recall"]["hits"] > 10
        assert one["exact"]["precision"]["share"] == 1.0
    assert [(one["set"], one["profile"], one["seed"]) for one in results["summary"]] == [
        (one["set"], one["profile"], seed) for one in sets for seed in quality.SEEDS
    ]
    for one in results["summary"]:
        assert one["similarity"]["of"] == one["similarity"]["hits"] > 10
        assert (one["boilerplate"] is None) == (one["profile"] == "reviews")
    assert [one["set"] for one in results["boilerplate"]] == ["articles", "reviews"]


@pytest.mark.long
def test_on_the_sample_a_lookup_before_sending_finds_the_matches_of_the_alert(tmp_path):
    command = [sys.executable, "-m", "benchmarks.lookups", "--quick", "--output", str(tmp_path)]
    run = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=600, check=False)
    assert run.returncode == 0, run.stdout[-2000:] + run.stderr[-2000:]
    (found,) = json.loads((tmp_path / "lookups.json").read_text())["results"]
    assert found["differing"] == 0
    assert found["matches"] == found["looked_up"] > 20
