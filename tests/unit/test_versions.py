"""Which of two versions of a document the index keeps: the rule in Python."""

import pytest

from streamdedup.index.documents import InsertState, decide_version
from tests.versions import CASES


@pytest.mark.parametrize("case", CASES)
def test_a_version_has_the_state_of_the_table(case):
    stored, new, state = CASES[case]
    assert decide_version(stored and stored.entry(), new.entry()) is state


def test_every_state_is_in_the_table():
    assert {state for _, _, state in CASES.values()} == set(InsertState)
