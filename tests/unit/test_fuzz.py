"""Damaged messages and requests, a short portion of ``make fuzz``."""

from collections import Counter

import pytest
import structlog

from tests.fuzz.accounts import Accountant
from tests.fuzz.messages import fuzzed_messages
from tests.fuzz.requests import fuzz_requests

#: When the messages are sent, in milliseconds since the epoch.
NOW_MS = 1_777_618_931_480
SEED = "in every run of the tests"


@pytest.fixture(autouse=True)
def _logging_as_before():
    yield
    structlog.reset_defaults()


@pytest.mark.parametrize("count", [3_000, pytest.param(12_000, marks=pytest.mark.long)])
def test_every_message_is_accounted_for(count):
    messages = list(fuzzed_messages(SEED, count, NOW_MS))
    account = Accountant().settle(messages)
    kinds = Counter()
    for outcome, number in account.outcomes.items():
        kinds[outcome.partition(" ")[0]] += number
    assert kinds.total() == len(messages)
    assert min(kinds["processed"], kinds["skipped"], kinds["dead"]) > count / 15
    assert account.pairs_count > count / 60
    assert account.cut_count > 0
    assert account.judged_count > len(messages) / 2


def test_damaged_requests_have_an_answer_or_a_problem_and_never_a_defect():
    statuses, rss = fuzz_requests(SEED, 1_000)
    assert statuses.total() == 1_000
    assert {200, 400, 404, 415, 422} <= statuses.keys()
    assert len(rss) == 10
