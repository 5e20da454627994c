"""Which of two versions of a document the index keeps: the rule in Python, and the same rule in the model."""

import pytest

from streamdedup.index.documents import InsertState, decide_version
from tests.model import documents as model
from tests.model import index as model_index
from tests.model.rules import ALL
from tests.versions import CASES, Version


@pytest.mark.parametrize("case", CASES)
def test_a_version_has_the_state_of_the_table(case):
    stored, new, state = CASES[case]
    assert decide_version(stored and stored.entry(), new.entry()) is state


def test_every_state_is_in_the_table():
    assert {state for _, _, state in CASES.values()} == set(InsertState)


def in_model(version: Version | None) -> model.Record | model.Marker | None:
    if version is None:
        return None
    position = model.Position(version.partition, version.offset, version.incarnation)
    if version.text is None:
        return model.Marker(position, version.time_ms)
    return model.Record(1, version.text[0], (version.text[0],), position, version.time_ms)


#: The model has one id for each number, and a record has one content. Its names differ where nothing is replaced.
IN_MODEL = [name for name, (_, new, _) in CASES.items() if new.id == "doc" and "the same record with" not in name]
IN_MODEL.remove("deleted at the same position")


@pytest.mark.parametrize("case", IN_MODEL)
def test_the_model_has_the_same_rule(case):
    stored, new, state = CASES[case]
    found = model_index.decide_version(in_model(stored), in_model(new), ALL)
    assert found.name == state.name
