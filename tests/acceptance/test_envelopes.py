"""Streams of change data capture through a real Kafka: deletions take effect, and keys in another form are found."""

import re
import tomllib
from pathlib import Path

import pytest

from tests import envelopes
from tests.daemons import PATIENT, Installation, produce_keyed
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
