"""All benchmarks, as short as they can be: they run and leave results. What they measure is not looked at."""

import json
import subprocess
import sys

import pytest

from benchmarks import datasets
from benchmarks.__main__ import AGAINST, names_of

#: Seconds that all together may take; 300 were measured.
DEADLINE_S = 3600


def run(*arguments):
    """Run benchmarks in their short form."""
    command = [sys.executable, "-m", "benchmarks", "--quick", *arguments]
    ended = subprocess.run(
        command, cwd=datasets.REPOSITORY, capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )
    assert ended.returncode == 0, ended.stdout[-2000:] + ended.stderr[-2000:]
    return ended.stderr


@pytest.mark.timeout(DEADLINE_S + 30)
def test_every_benchmark_runs_and_leaves_its_tables(tmp_path):
    absent = run("--output", str(tmp_path)).rpartition("without their open sets: ")[2].strip().split(", ")
    results = {path.stem: json.loads(path.read_text()) for path in tmp_path.glob("*.json")}
    assert set(results) == set(names_of()) - {AGAINST, *absent}
    for result in results.values():
        assert result["quick"]
        assert result["tables"]
        assert all(table["rows"] for name, table in result["tables"].items() if name != "limits")
    # Of one server: each has hash tables of its own, which are large for so few keys and grow at different times.
    growth = {row["layout"]: row for row in results["growth"]["results"] if row["server"].startswith("Redis ")}
    # The entry of an article of the sample has some hundred bytes; without its shingles it has less than a hundred.
    assert growth["sets"]["bytes_a_document"] > growth["bare commands"]["bytes_a_document"] + 300
    assert results["storm"]["setting"]["alerts of exact copies that name none"].startswith("0 of ")
    # On the sample the daemon finds what scan finds, and all of it is right.
    quality = results["quality"]["results"]
    assert [(row["set"], row["profile"]) for row in quality] == [
        ("articles", "articles"),
        ("reviews", "reviews"),
        ("reviews", "articles"),
    ]
    for row in quality:
        assert row["daemon_differs_in"] == 0
        assert row["daemon_pairs"] == row["recall"][0] > 10
        hits, total = row["exact_precision"]
        assert hits == total


@pytest.mark.skipif(not (datasets.REPOSITORY / ".venv").exists(), reason="the other checkout needs an environment")
def test_a_checkout_is_compared_with_itself(tmp_path):
    run("--against", str(datasets.REPOSITORY), "--output", str(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["against.json"]
    other, ours = json.loads((tmp_path / "against.json").read_text())["results"]
    assert (other["name"], ours["name"]) == ("the other", "this checkout")
    assert ours["best"]["documents_per_s"] > 0
