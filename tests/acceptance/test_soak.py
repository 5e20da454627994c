"""A soak of seconds: load, samples, and an index that levels off; ``make soak`` takes longer."""

import json
import subprocess
import sys

import pytest


@pytest.mark.long
def test_an_endless_stream_is_sampled_and_its_index_levels_off(tmp_path):
    command = [sys.executable, "-m", "tests.soak", "--minutes", "0.3", "--rate", "150", "--into", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    report = json.loads((tmp_path / "soak.json").read_text(encoding="utf-8"))
    samples = report["samples"]
    assert len(samples) > 50, done.stderr
    assert samples[-1]["consumed_count"] > 1_000
    assert samples[-1]["redis_keys_count"] > 0
    # In so short a run the daemon is warming up all the time; of its own memory this tells nothing.
    verdicts = {line.split()[1]: line.startswith("ok") for line in report["verdict"]}
    assert verdicts["Redis"], report["verdict"]
    assert verdicts.keys() == {"RSS", "file", "Redis"}
    assert done.returncode == (0 if all(verdicts.values()) else 1)
    assert (tmp_path / "soak.svg").read_text(encoding="utf-8").startswith("<svg")
