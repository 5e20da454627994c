"""Streams of change data capture through a real Kafka: deletions take effect, and keys in another form are found."""

import json
import re
import tomllib
from pathlib import Path

import pytest

from tests import envelopes
from tests.daemons import PATIENT, Installation, produce_keyed, streamdedup
from tests.made_corpus import a_corpus, the_expected

PAGE = (Path(__file__).parents[2] / "docs" / "messages.md").read_text(encoding="utf-8")
RECIPES = tomllib.loads(re.search(r"### Envelopes\n.*?```toml\n(.*?)```", PAGE, re.DOTALL)[1])["profiles"]


def settings_of(recipe: str) -> dict[str, str]:
    """Return the settings of a recipe, with the topic of the installation."""
    keys = {key: value for key, value in RECIPES[recipe].items() if key != "topics"}
    keys["text_fields"] = ",".join(keys["text_fields"])
    if operations := keys.get("op_values"):
        table = ", ".join(f'"{word}" = "{operation}"' for word, operation in operations.items())
        keys["op_values"] = f"{{{table}}}"
    return {f"profiles.articles.{key}": value for key, value in keys.items()} | PATIENT


def produce(installation: Installation, records: list[envelopes.Envelope]) -> None:
    produce_keyed(installation.kafka, installation.topic, [(key, value) for key, value, _ in records])


def records_of(shape: str, name: str, text: str | None) -> list[envelopes.Envelope]:
    """Return the records of a new document, or of the deletion of a document where there is no text."""
    if shape == "connect":
        return [envelopes.connect(name, text)]
    return envelopes.debezium("d" if text is None else "c", int(name), text)


@pytest.mark.parametrize("shape", ["debezium", "connect"])
def test_subscribers_see_no_pair_of_a_document_after_its_deletion(install, shape):
    installation = install(3, batch_records=25)
    corpus = [(str(number), text) for number, (_, text) in enumerate(a_corpus(83, 240))]
    gone = corpus[:40]
    copies = [(str(1_000 + number), text) for number, (_, text) in enumerate(corpus[:80])]
    with installation.all_running("ab", **settings_of(shape)) as daemons:
        first = [record for name, text in corpus for record in records_of(shape, name, text)]
        produce(installation, first)
        installation.wait_committed(len(first))
        deletions = [record for name, _ in gone for record in records_of(shape, name, None)]
        produce(installation, deletions)
        installation.wait_committed(len(first) + len(deletions))
        last = [record for name, text in copies for record in records_of(shape, name, text)]
        produce(installation, last)
        installation.wait_committed(len(first) + len(deletions) + len(last))

        def total(name: str) -> float:
            return sum(daemon.metric(f"streamdedup_{name}_total") for daemon in daemons)

        assert total("documents_deleted") == len(deletions)
        assert [total(name) for name in ("documents_deleted_unknown", "documents_flawed", "dead_letters")] == [0] * 3
    deleted = {name for name, _ in gone}
    living = {name for name, _ in copies}
    all_pairs = the_expected([*corpus, *copies])
    expected = [pair for pair in all_pairs if not (deleted & set(pair) and living & set(pair))]
    assert len(all_pairs) - len(expected) >= len(gone)
    assert installation.pairs() == sorted(expected)


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
