"""A soak of seconds: load, samples, and an index that levels off, and one that does not; ``make soak`` takes longer."""

import json
import subprocess
import sys

import pytest

from tests.soak.backlog import BATCH_RECORDS, DOCUMENTS, FIRST, PARTITIONS, WINDOWS, bytes_after_windows
from tests.soak.daemon import SLACK_SHARE, a_daemon
from tests.soak.late import held_while_late


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
    assert (tmp_path / "soak.svg").read_text(encoding="utf-8").startswith("<svg")


@pytest.mark.long
def test_a_backlog_of_ten_windows_read_at_full_speed_takes_no_more_than_two(tmp_path, kafka, redis_url, redis_client):
    options = {"partitions": PARTITIONS, "batch_records": BATCH_RECORDS}
    with a_daemon(tmp_path, 36_000, kafka, redis_url, in_order=True, **options) as (installation, daemon):
        windows = bytes_after_windows(installation, daemon, redis_client, 36_000, seed=1)
        sizes = dict(windows)
        assert daemon.metric("streamdedup_documents_outdated_total") > 0.7 * WINDOWS * DOCUMENTS
        assert daemon.stop() == 0
    assert sizes[WINDOWS] <= 1.1 * sizes[FIRST]


@pytest.mark.long
def test_a_stream_that_is_always_late_beside_an_empty_partition_lists_at_most_twice_the_live_documents(
    tmp_path, kafka, redis_url, redis_client
):
    lifetime_s, rate = 8.0, 50
    window_s = lifetime_s / (1 + SLACK_SHARE)
    with a_daemon(tmp_path, window_s, kafka, redis_url, partitions=2, in_order=True) as (installation, daemon):
        held = list(held_while_late(installation, daemon, redis_client, lifetime_s, rate=rate, lifetimes=6))
        assert daemon.stop() == 0
    # All documents are listed: those of a lifetime and its eighth.
    assert max(look.listed_count for look in held) > 0.5 * lifetime_s * rate
    assert all(look.listed_count <= 2 * look.alive_count for look in held[4:]), held
