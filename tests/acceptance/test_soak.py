"""A soak of seconds: load, samples, and an index that levels off, and one that does not; ``make soak`` takes longer."""

import json
import subprocess
import sys

import pytest


@pytest.mark.long
def test_an_endless_stream_is_sampled_and_its_index_levels_off(tmp_path):
    options = ["--minutes", "0.3", "--rate", "150", "--redis", "", "--into", str(tmp_path)]
    command = [sys.executable, "-m", "tests.soak", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    report = json.loads((tmp_path / "soak.json").read_text(encoding="utf-8"))
    samples = report["samples"]
    assert len(samples) > 10, done.stderr
    assert samples[-1]["consumed_count"] > 100
    # One of twelve windows is kept. The verdict about Redis compares windows of 1.5 s, which differ on a busy machine.
    keys_of_each = max(
        sample["redis_keys_count"] / sample["consumed_count"] for sample in samples if sample["consumed_count"] > 20
    )
    assert 0 < samples[-1]["redis_keys_count"] < 0.5 * keys_of_each * samples[-1]["consumed_count"]
    # In so short a run the daemon is warming up all the time; of its own memory this tells nothing.
    verdicts = {line.split()[1]: line.startswith("ok") for line in report["verdict"]}
    assert verdicts.keys() == {"RSS", "file", "Redis"}
    assert done.returncode == (0 if all(verdicts.values()) else 1)
