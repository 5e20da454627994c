"""Tombstones of change data capture whose keys have another form than the settings, through a real Kafka."""

import json
import re
import tomllib
from pathlib import Path

from tests import envelopes
from tests.daemons import PATIENT, Installation, produce_keyed, streamdedup
from tests.made_corpus import a_corpus

PAGE = (Path(__file__).parents[2] / "docs" / "messages.md").read_text(encoding="utf-8")
RECIPES = tomllib.loads(re.search(r"### Envelopes\n.*?```toml\n(.*?)```", PAGE, re.DOTALL)[1])["profiles"]


def settings_of(recipe: str) -> dict[str, str]:
    """Return the settings of a recipe, with the topic of the installation."""
    keys = {key: value for key, value in RECIPES[recipe].items() if key != "topics"}
    keys["text_fields"] = ",".join(keys["text_fields"])
    return {f"profiles.articles.{key}": value for key, value in keys.items()} | PATIENT


def produce(installation: Installation, records: list[envelopes.Envelope]) -> None:
    produce_keyed(installation.kafka, installation.topic, [(key, value) for key, value, _ in records])


def test_tombstones_with_keys_in_another_form_are_dead_letters_until_key_format_is_set(install):
    installation = install(1)
    ((name, text), *_) = a_corpus(83, 3)
    tombstone = envelopes.connect(name, None)
    recipe = settings_of("connect")
    wrong = {key: value for key, value in recipe.items() if "key_f" not in key}
    produce(installation, [envelopes.connect(name, text), tombstone, tombstone])
    with installation.daemon(**wrong) as daemon:
        installation.wait_committed(3)
        assert daemon.stop() == 0
        assert [(e["flaw"], e["position"]) for e in daemon.events("document_flawed")] == [
            ("key", f"{installation.topic}:0:0")
        ]
    letters = installation.published(f"{installation.duplicates}.dlq")
    facts = [dict(letter.headers) for letter in letters]
    assert [fact["streamdedup.dlq.error.code"] for fact in facts] == [b"invalid_id"] * 2
    assert b"set key_format" in facts[0]["streamdedup.dlq.error.message"]
    for settings, level in ((wrong, "warning"), (recipe, "ok")):
        sets = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
        checked = json.loads(streamdedup("check", "--json", "--config", installation.config, *sets).stdout)
        (found,) = [finding for finding in checked["checks"] if finding["check"] == "keys"]
        assert found["level"] == level, found
    with installation.running(**recipe):
        sets = [part for key, value in recipe.items() for part in ("--set", f"{key}={value}")]
        replayed = streamdedup("dlq", "replay", "--yes", "--from-beginning", "--config", installation.config, *sets)
        assert replayed.returncode == 0, replayed.stderr
        installation.wait_committed(5)
        produce(installation, [envelopes.connect("copy", text)])
        installation.wait_committed(6)
    assert installation.pairs() == []
