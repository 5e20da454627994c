"""What ``produce`` makes of the lines of a file, without a server."""

import pytest

from streamdedup.cli import produce
from streamdedup.errors import SettingsError

SETTINGS = ["kafka.bootstrap_servers=h:2", "redis.url=redis://localhost:1", "profiles.articles.topics=articles"]


def test_a_limit_may_be_any_number(tmp_path, monkeypatch):
    path = tmp_path / "d.jsonl"
    path.write_text('{"id": "1", "text": "x"}\n')
    sent = []
    monkeypatch.setattr(produce, "_send", lambda _options, _topic, records, *_, **__: sent.extend(records))
    produce.produce([str(path)], topic="articles", assignments=SETTINGS, limit=10**20)
    assert len(sent) == 1


@pytest.mark.parametrize(
    "option",
    [{"rate": 1.0}, {"limit": 1}, {"corpus_format": "csv"}, {"published_at_column": "a"}],
)
def test_options_for_files_are_refused_beside_an_erasure(option):
    with pytest.raises(SettingsError, match="--erase-scope goes with"):
        produce.produce(topic="articles", assignments=SETTINGS, erase_scope="x", **option)
