"""A daemon that sleeps past its session while operators change the index, and then wakes up."""

import signal

import pytest

from tests import servers
from tests.daemons import streamdedup, wait_no_members

pytestmark = pytest.mark.long

#: Settings of the index that is built while the daemon sleeps.
CHANGES = {"profiles.articles.shingle_size": "3", "profiles.articles.seed": "7"}


def text(number: int) -> str:
    return " ".join(f"w{number}x{at}" for at in range(20))


def changed(installation, *arguments, **changes):
    """Call a command with changed settings."""
    settings = [word for key, value in changes.items() for word in ("--set", f"{key}={value}")]
    ended = streamdedup(*arguments, "--config", installation.config, *settings)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_a_daemon_that_slept_through_a_rebuild_with_other_parameters_ends_and_no_pair_is_lost(install):
    installation = install(2, threshold=0.9)
    with installation.daemon("old") as old:
        old.wait_ready()
        installation.send([(f"a{number}", text(number)) for number in range(20)])
        installation.wait_committed(20)
        old.signal(signal.SIGSTOP)
        wait_no_members(installation.kafka, installation.group)
        changed(installation, "index", "rebuild", "--yes", **CHANGES)
        with installation.daemon("new", **CHANGES) as new:
            new.wait_ready()
            old.signal(signal.SIGCONT)
            installation.send([(f"p{number}", text(1000 + number)) for number in range(40)])
            assert old.wait() == 78
            reason = old.events("fatal")[-1]["reason"]
            assert "seed is 7 in the index and" in reason
            assert "shingle_size is 3 in the index and" in reason
            installation.send([(f"q{number}", text(1000 + number)) for number in range(40)])
            installation.wait_committed(100)
            assert installation.pairs() == sorted((f"p{number}", f"q{number}") for number in range(40))
            assert new.stop() == 0


def test_a_daemon_that_slept_through_a_switch_to_another_index_waits_and_no_pair_is_lost(install):
    installation = install(2, threshold=0.9)
    changes = {"redis.key_prefix": "next", "profiles.articles.threshold": "0.7", "profiles.articles.recall_from": "0.7"}
    with installation.daemon("old") as old:
        old.wait_ready()
        installation.send([(f"a{number}", text(number)) for number in range(20)])
        installation.wait_committed(20)
        changed(installation, "index", "prepare", **changes)
        old.signal(signal.SIGSTOP)
        wait_no_members(installation.kafka, installation.group)
        with installation.daemon("new", **changes) as new:
            new.wait_ready()
            old.signal(signal.SIGCONT)
            servers.wait_until(
                lambda: [event for event in old.events("waiting") if "have another index" in event["reason"]],
                what="the old daemon to notice the switch",
            )
            installation.send([(f"p{number}", text(1000 + number)) for number in range(40)])
            installation.wait_committed(60)
            installation.send([(f"q{number}", text(1000 + number)) for number in range(40)])
            installation.wait_committed(100)
            assert installation.pairs() == sorted((f"p{number}", f"q{number}") for number in range(40))
            assert [old.stop(), new.stop()] == [0, 0]
