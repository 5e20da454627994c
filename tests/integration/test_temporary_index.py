"""Commands that keep their index in Redis for as long as they run."""

import json
from importlib import resources

import pytest

from streamdedup.cli import main as cli
from streamdedup.cli.collection import temporary_store
from streamdedup.settings.presets import named_profile

SAMPLE = str(resources.files("streamdedup").joinpath("sample/articles.jsonl"))


@pytest.fixture
def printed(capsys):
    def run(*arguments):
        with pytest.raises(SystemExit) as exited:
            cli.main(arguments)
        shown = capsys.readouterr()
        assert not exited.value.code, shown.err
        return shown.out

    return run


def test_scan_finds_the_same_in_redis_as_in_memory_and_leaves_nothing(printed, redis_url, redis_client):
    redis_client.set("somebody's", "key")
    in_memory = printed("scan", SAMPLE, "--skip-unreadable")
    assert printed("scan", SAMPLE, "--skip-unreadable", "--redis", redis_url) == in_memory
    assert len(in_memory.splitlines()) > 10
    assert redis_client.keys() == [b"somebody's"]


def test_evaluate_scores_in_redis_as_in_memory(printed, redis_url, redis_client):
    results = [
        json.loads(printed("evaluate", SAMPLE, "--skip-unreadable", "--threshold", "0.5", "--json", *where))
        for where in ((), ("--redis", redis_url))
    ]
    for result in results:
        assert result.pop("documents_per_second") > 0
        assert result.pop("truth_seconds") > 0
    assert results[0] == results[1]
    assert results[0]["recall"]["of"] > 10
    assert redis_client.dbsize() == 0


def test_the_index_is_deleted_also_when_the_work_fails(redis_url, redis_client):
    profile = named_profile(None, "articles", {})

    def work():
        with temporary_store(redis_url, profile, None):
            assert redis_client.dbsize() > 0
            raise RuntimeError("on purpose")

    with pytest.raises(RuntimeError, match="on purpose"):
        work()
    assert redis_client.dbsize() == 0
